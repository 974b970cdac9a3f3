import errno
import os
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from pullback.errors import OutputError, PullbackError
from pullback.io import atomic_write


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_the_file_appears_whole_and_alone(tmp_path):
    with atomic_write(tmp_path / "a") as file:
        file.write(b"one")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"one"
    assert names(tmp_path) == ["a"]


def test_an_old_file_is_replaced(tmp_path):
    (tmp_path / "a").write_bytes(b"a long old text")
    with atomic_write(tmp_path / "a") as file:
        file.write(b"new")
    assert (tmp_path / "a").read_bytes() == b"new"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_old_file_and_no_other(tmp_path, error):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(error), atomic_write(tmp_path / "a") as file:
        file.write(b"half")
        raise error
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_an_error_before_there_was_a_file_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "a") as file:
        file.write(bytes(1 // 0))
    assert names(tmp_path) == []


def test_a_signal_in_the_middle(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    program = """
import sys, signal, time
from pullback.io import atomic_write
signal.signal(signal.SIGINT, signal.default_int_handler)
with atomic_write(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("ready", flush=True)
    time.sleep(60)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "a")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().strip() == b"ready"
        process.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in process.communicate(timeout=60)[1]
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_missing_folder(tmp_path):
    with (
        pytest.raises(OutputError, match=r"Create the folder .*runs first"),
        atomic_write(tmp_path / "runs" / "a"),
    ):
        pytest.fail("the block must not run")


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "runs").write_bytes(b"")
    with (
        pytest.raises(OutputError, match="Choose another file name or folder"),
        atomic_write(tmp_path / "runs" / "a"),
    ):
        pytest.fail("the block must not run")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_folder(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OutputError, match="that you may write to"), atomic_write(tmp_path / "a"):
            pytest.fail("the block must not run")
    finally:
        tmp_path.chmod(0o700)


def test_permission_denied_names_the_repair(tmp_path, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with (
        pytest.raises(OutputError, match=r"Permission denied. Choose a folder that you may"),
        atomic_write("a"),
    ):
        pytest.fail("the block must not run")


def test_a_folder_or_a_device_is_not_replaced(tmp_path):
    for target in (tmp_path, Path(os.devnull)):
        with pytest.raises(OutputError, match="is a folder or a device"), atomic_write(target):
            pytest.fail("the block must not run")
    assert not Path(os.devnull).is_file()


@contextmanager
def full_after_1000_bytes():
    """No file can grow further. Not a fixture: the log of the tests themselves may be a longer file."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("size", [2000, 100_000])  # noticed at the end, and while writing
def test_full_disk(tmp_path, size):
    (tmp_path / "a").write_bytes(b"old")
    with (
        full_after_1000_bytes(),
        pytest.raises(OutputError, match="Free some space"),
        atomic_write(tmp_path / "a") as file,
    ):
        file.write(bytes(size))
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_full_disk_does_not_hide_another_error(tmp_path):
    with full_after_1000_bytes(), pytest.raises(KeyboardInterrupt), atomic_write(tmp_path / "a") as file:
        file.write(bytes(2000))
        raise KeyboardInterrupt
    assert names(tmp_path) == []


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_full_disk_at_the_end(tmp_path, monkeypatch, step):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(os, step, full)
    with pytest.raises(OutputError, match="No space left on device"), atomic_write(tmp_path / "a") as file:
        file.write(b"new")
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_other_errors_of_the_block_are_not_disguised(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "a"):
        (tmp_path / "not there").read_bytes()


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with atomic_write(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_the_rights_are_those_of_an_ordinary_new_file(tmp_path):
    (tmp_path / "ordinary").write_bytes(b"")
    with atomic_write(tmp_path / "a"):
        pass
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "ordinary").stat().st_mode
    )


def test_the_error_is_caught_as_ours_and_as_an_error_of_the_system():
    assert issubclass(OutputError, PullbackError)
    assert issubclass(OutputError, OSError)


posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@posix
@pytest.mark.parametrize("rights", [0o600, 0o644, 0o640, 0o755])
def test_a_file_that_is_replaced_hands_on_its_rights(tmp_path, rights):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(rights)
    with atomic_write(tmp_path / "a") as file:
        file.write(b"new")
        file.flush()
        (temporary,) = set(tmp_path.iterdir()) - {tmp_path / "a"}
        assert mode(temporary) == 0o600
    assert mode(tmp_path / "a") == rights and (tmp_path / "a").read_bytes() == b"new"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root may give files away")
def test_a_file_that_is_replaced_hands_on_its_owner(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    os.chown(tmp_path / "a", 1234, 2345)
    with atomic_write(tmp_path / "a") as file:
        file.write(b"new")
    state = (tmp_path / "a").stat()
    assert (state.st_uid, state.st_gid) == (1234, 2345)


@posix
def test_another_group_does_not_get_the_rights_of_the_old_one(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o664)
    state = os.stat_result([*(tmp_path / "a").stat()[:5], 4321, *(tmp_path / "a").stat()[6:]])

    def denied(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", denied)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: state)
    with atomic_write(tmp_path / "a"):
        pass
    monkeypatch.undo()
    assert mode(tmp_path / "a") == 0o644


def test_a_read_only_file_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path / "a")  # root may write anything
    with pytest.raises(OutputError, match="read-only"), atomic_write(tmp_path / "a"):
        pytest.fail("the block must not run")
    assert names(tmp_path) == ["a"]


_WRITER = """
import sys, time
from pullback.io import atomic_write
with atomic_write(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("ready", flush=True)
    time.sleep(60)
"""


@posix
def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    def writer(path):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE)
        assert process.stdout.readline().strip() == b"ready"
        return process

    def end(process):
        process.kill()
        process.communicate()

    killed = writer(tmp_path / "a")
    end(killed)
    living, neighbour = writer(tmp_path / "a"), writer(tmp_path / "a.b")
    assert len(names(tmp_path)) == 2  # what the first one left is gone, both write
    end(neighbour)
    with atomic_write(tmp_path / "a") as file:
        file.write(b"new")
    assert len(names(tmp_path)) == 3  # another file's leftovers are for whoever writes that file
    end(living)
    for name in ("a", "a.b"):
        with atomic_write(tmp_path / name) as file:
            file.write(b"newer")
    assert names(tmp_path) == ["a", "a.b"]


@posix
def test_a_fifo_that_looks_like_a_leftover_is_left_alone(tmp_path):
    fifo = tmp_path / ".a.0123456789abcdef.tmp"
    os.mkfifo(fifo)
    with atomic_write(tmp_path / "a"):
        pass
    assert names(tmp_path) == sorted([fifo.name, "a"])
