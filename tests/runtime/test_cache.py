"""The code cache: entries come back whole or not at all, and untrusted folders are refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from pullback.compiler.programs.executable import make_executable
from pullback.compiler.runtime import cache as cache_module
from pullback.compiler.runtime.cache import Cache, default_cache
from pullback.compiler.runtime.specs import RegionSpec
from pullback.compiler.target import Processor
from pullback.errors import CacheError
from pullback.files import create_temporary
from pullback.tracing.trace import trace

HOST = Processor.host()
TEXT = "define i64 @twice(i64 %x) {\n  %y = add i64 %x, %x\n  ret i64 %y\n}"
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
not_root = pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind root")


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "deep" / "code")


def entry_file(cache):
    (file,) = cache.folder.glob("*.code")
    return file


def test_values_come_back_as_they_were(cache):
    assert cache.load("a", HOST) is None
    value = [b"\0code\xff" * 100], {"regions": (RegionSpec("f", 3),), "name": "größer"}
    cache.store("a", HOST, value)
    assert cache.load("a", HOST) == value
    cache.store("a", HOST, b"newer")
    assert cache.load("a", HOST) == b"newer"


def test_key_versions_and_processor_tell_entries_apart(cache, monkeypatch):
    cache.store("a", HOST, b"code")
    assert cache.load("b", HOST) is None
    assert cache.load("a", replace(HOST, features=HOST.features + ",+other")) is None
    assert cache.load("a", replace(HOST, name="another")) is None
    for name in ("vector_bytes", "vector_registers", "l1_bytes", "l2_bytes"):
        assert cache.load("a", replace(HOST, **{name: getattr(HOST, name) * 2})) is None
    few, many = replace(HOST, cores=1), replace(HOST, cores=64)
    cache.store("c", few, b"code")
    assert cache.load("c", replace(few, cores=2)) is not None  # work is dealt out among two at least
    assert cache.load("c", many) is None
    with monkeypatch.context() as changed:
        changed.setattr(np, "__version__", "0.0")
        assert cache.load("a", HOST) is None
    with monkeypatch.context() as changed:
        changed.setattr(cache_module, "package_digest", lambda: "another compiler")
        assert cache.load("a", HOST) is None
        changed.setattr(cache_module, "package_digest", lambda: None)
        assert cache.load("a", HOST) is None
    assert cache.load("a", HOST) is not None
    monkeypatch.setattr(cache_module, "llvm_version", lambda: "LLVM 0")
    assert cache.load("a", HOST) is None


def test_nothing_is_kept_where_the_compiler_has_changed(cache, monkeypatch):
    monkeypatch.setattr(cache_module, "unchanged", lambda: False)
    cache.store("a", HOST, b"code")
    monkeypatch.undo()
    assert cache.load("a", HOST) is None


def test_every_damage_is_noticed(cache):
    cache.store("a", HOST, (b"object code", {"n": 1}))
    file = entry_file(cache)
    whole = file.read_bytes()
    for position in range(len(whole)):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        assert cache.load("a", HOST) is None
        file.write_bytes(whole[:position])
        assert cache.load("a", HOST) is None
    file.write_bytes(whole + b"\0")
    assert cache.load("a", HOST) is None
    file.write_bytes(whole)
    assert cache.load("a", HOST) == (b"object code", {"n": 1})


def test_another_entrys_file_under_this_name_is_no_entry(cache):
    cache.store("a", HOST, b"code of a")
    file = entry_file(cache)
    taken = file.read_bytes()
    file.unlink()
    cache.store("b", HOST, b"code of b")
    entry_file(cache).write_bytes(taken)
    assert cache.load("b", HOST) is None


def test_damaged_code_is_compiled_again(monkeypatch, tmp_path):
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "code"))
    graph = trace(lambda x: 2 * x, np.ones(3)).graph
    assert not make_executable(graph, {}).program.code.cached
    assert make_executable(graph, {}).program.code.cached
    for file in (tmp_path / "code").iterdir():
        file.write_bytes(b"\x7fELF and then nothing")
    assert not make_executable(graph, {}).program.code.cached
    again = make_executable(graph, {}).program
    assert again.code.cached and again(np.ones(3))[0].tolist() == [2.0] * 3


def test_nothing_is_kept_under_no_key(cache):
    cache.store(None, HOST, b"code")
    assert cache.load(None, HOST) is None and not [*cache.folder.iterdir()]


@posix
def test_folder_is_made_for_its_user_alone(cache):
    cache.store("a", HOST, b"code")
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert entry_file(cache).stat().st_mode & 0o077 == 0


@posix
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_folder_that_others_may_write_to_is_refused(cache, mode):
    cache.store("a", HOST, b"code")
    cache.folder.chmod(mode)
    for use in (lambda: cache.load("a", HOST), lambda: cache.store("b", HOST, b"")):
        with pytest.raises(CacheError, match=r"may be written by others.*chmod 700"):
            use()
    cache.folder.chmod(0o755)
    assert cache.load("a", HOST) is not None


@posix
def test_folder_of_another_user_is_refused(cache, monkeypatch):
    cache.store("a", HOST, b"code")
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(CacheError, match="belongs to user"):
        cache.load("a", HOST)


@not_root
def test_folder_that_cannot_be_written_keeps_nothing(cache):
    cache.store("a", HOST, b"code")
    cache.folder.chmod(0o500)
    cache.store("b", HOST, b"code")
    cache.folder.chmod(0o700)
    assert cache.load("a", HOST) is not None
    assert cache.load("b", HOST) is None


def test_folder_that_cannot_be_made_keeps_nothing(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "code")
    cache.store("a", HOST, b"code")
    assert cache.load("a", HOST) is None


def test_full_disk_keeps_nothing_and_leaves_nothing(cache, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.store("a", HOST, b"code")
    assert list(cache.folder.iterdir()) == []


def test_an_interrupt_leaves_nothing(cache, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.store("a", HOST, b"code")
    assert list(cache.folder.iterdir()) == []


def test_an_entry_larger_than_the_cache_is_none(tmp_path):
    cache = Cache(tmp_path, limit_bytes=1000)
    cache.store("a", HOST, bytes(2000))
    assert cache.load("a", HOST) is None


@posix
def test_a_pipe_a_folder_and_a_link_are_no_entries(cache, tmp_path):
    """Opening a pipe for reading waits for a writer that never comes."""
    cache.store("a", HOST, b"code")
    file = entry_file(cache)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink(elsewhere, path)):
        make(file)
        assert cache.load("a", HOST) is None
        file.rmdir() if file.is_dir() else file.unlink()
    elsewhere.rename(file)
    assert cache.load("a", HOST) == b"code"


@posix
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_to_is_no_entry(cache, mode):
    cache.store("a", HOST, b"code")
    entry_file(cache).chmod(mode)
    assert cache.load("a", HOST) is None


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root may give files away")
def test_a_file_of_another_user_is_no_entry(cache):
    cache.store("a", HOST, b"code")
    os.chown(entry_file(cache), 1234, -1)
    assert cache.load("a", HOST) is None


@posix
def test_a_folder_put_into_its_place_after_the_check_is_not_used(cache, tmp_path, monkeypatch):
    """Where others may write to the folder above, they may rename this one and put their own there."""
    cache.store("a", HOST, b"mine")
    theirs = Cache(tmp_path / "theirs")
    theirs.store("a", HOST, b"theirs")
    stat = os.stat

    def exchanged(path, **options):
        """What is there now, and then another folder is there."""
        state = stat(path, **options)
        if path == cache.folder or isinstance(path, int):
            monkeypatch.setattr(os, "stat", stat)
            os.rename(cache.folder, tmp_path / "mine")
            os.rename(theirs.folder, cache.folder)
        return state

    monkeypatch.setattr(os, "stat", exchanged)
    monkeypatch.setattr(os, "mkdir", lambda *_, **__: None)
    assert cache.load("a", HOST) == b"mine"
    assert not theirs.folder.exists()


def test_entries_unused_for_longest_go_first(tmp_path):
    cache = Cache(tmp_path, limit_bytes=3000)
    for number in range(4):
        cache.store(f"entry {number}", HOST, bytes(600))
        for file in tmp_path.glob("*.code"):
            if file.stat().st_mtime > 1e9:
                os.utime(file, (number, number))
    assert cache.load("entry 0", HOST) is not None  # used now, so younger than the others
    Cache(tmp_path, limit_bytes=2200).store("entry 4", HOST, bytes(600))
    kept = [number for number in range(5) if cache.load(f"entry {number}", HOST) is not None]
    assert kept == [0, 3, 4]


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    prefix = str(tmp_path / cache_module._TEMPORARY)
    file, living = create_temporary(prefix)
    ended, abandoned = create_temporary(prefix)
    ended.close()
    Cache(tmp_path).store("a", HOST, b"code")
    assert os.path.exists(living) and not os.path.exists(abandoned)
    file.close()
    Cache(tmp_path).store("b", HOST, b"code")
    assert all(file.suffix == ".code" for file in tmp_path.iterdir())


def test_threads_share_a_cache(cache):
    wrong = []

    def work(number):
        for turn in range(30):
            key = f"key {turn % 3}"
            cache.store(key, HOST, key.encode() * 1000)
            entry = cache.load(key, HOST)
            if entry is None or entry != key.encode() * 1000:
                wrong.append((number, turn))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []
    assert len(list(cache.folder.iterdir())) == 3


_PROCESS = """
import sys
from pathlib import Path
from pullback.compiler.runtime.cache import Cache
from pullback.compiler.target import Processor
cache, host = Cache(Path(sys.argv[1]), limit_bytes=20_000), Processor.host()
for turn in range(60):
    key = f"key {turn % 7}"
    entry = cache.load(key, host)
    assert entry is None or entry == key.encode() * 700, key
    cache.store(key, host, key.encode() * 700)
"""


def test_processes_share_a_cache_that_is_too_small_for_them(tmp_path):
    command = [sys.executable, "-c", _PROCESS, str(tmp_path / "code")]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert all(file.suffix == ".code" for file in (tmp_path / "code").iterdir())


def test_where_the_default_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("PULLBACK_CACHE", "off")
    assert default_cache().folder is None
    default_cache().store("a", HOST, b"code")
    assert default_cache().load("a", HOST) is None
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "own"))
    assert default_cache().folder == tmp_path / "own"
    monkeypatch.delenv("PULLBACK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache().folder == tmp_path / "pullback" / "code"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert default_cache().folder == tmp_path / ".cache" / "pullback" / "code"


def test_the_folder_is_read_for_every_sixteenth_entry(monkeypatch, tmp_path):
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "code"))
    read = []
    monkeypatch.setattr("pullback.compiler.runtime.cache.remove_leftovers", lambda *given: read.append(given))
    for number in range(20):
        default_cache().store(f"program {number}", Processor.host(), b"code")
    assert len(read) == 2


def test_a_program_from_the_cache_has_the_tables_that_passes_made(tmp_path):
    """Places of updates that are gathered are no constants of the graph that is compiled."""
    script = (
        "import numpy as np, pullback as pb\n"
        "places = np.random.default_rng(0).permutation(np.arange(600) % 100)\n"
        "x = np.linspace(0, 1, 100)\n"
        "gradient = pb.jit(pb.grad(lambda x: np.sum(np.sin(x[places]) * np.arange(600.0))))(x)\n"
        "wanted = np.zeros(100)\n"
        "np.add.at(wanted, places, np.cos(x[places]) * np.arange(600.0))\n"
        "np.testing.assert_allclose(gradient, wanted, rtol=1e-12)\n"
    )
    environment = {**os.environ, "PULLBACK_CACHE": str(tmp_path)}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    assert list(tmp_path.rglob("*.code"))


def test_programs_of_other_places_are_others(tmp_path):
    """Places are part of the code, since passes make tables of them; what is gathered there is not."""
    script = (
        "import numpy as np, pullback as pb\n"
        "x = np.linspace(0, 1, 100)\n"
        "for seed in (0, 1):\n"
        "    random = np.random.default_rng(seed)\n"
        "    places, weights = random.permutation(np.arange(600) % 100), random.standard_normal(600)\n"
        "    gradient = pb.jit(pb.grad(lambda x: np.sum(np.sin(x[places]) * weights)))(x)\n"
        "    wanted = np.zeros(100)\n"
        "    np.add.at(wanted, places, np.cos(x[places]) * weights)\n"
        "    np.testing.assert_allclose(gradient, wanted, rtol=1e-10, atol=1e-12)\n"
        "    places = np.random.default_rng(5).permutation(np.arange(600) % 100)\n"
        "    gradient = pb.jit(pb.grad(lambda x: np.sum(np.sin(x[places]) * weights)))(x)\n"
        "    wanted = np.zeros(100)\n"
        "    np.add.at(wanted, places, np.cos(x[places]) * weights)\n"
        "    np.testing.assert_allclose(gradient, wanted, rtol=1e-10, atol=1e-12)\n"
    )
    environment = {**os.environ, "PULLBACK_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
