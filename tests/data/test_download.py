import gzip
import hashlib
import os
import signal
import socket
import threading
import time

import numpy as np
import pytest

from pullback.data.download import fetch, folder_lock
from pullback.errors import DataError, DownloadError, OutputError

CONTENT = np.random.default_rng(1).bytes(300_000)
PACKED = gzip.compress(CONTENT, mtime=0)
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def get(server, tmp_path):
    """Fetch ``a.gz`` from the server (or from other homes) into ``tmp_path``."""
    server.files["/a.gz"] = PACKED

    def get(homes=None, limit=1_000_000, report=None):
        fetch("a.gz", homes or [server.home], tmp_path / "a.gz", sha256=CHECKSUM, limit=limit, report=report)

    return get


@pytest.fixture
def part(tmp_path):
    return tmp_path / ".a.gz.part"


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_the_whole_file(get, server, tmp_path):
    lines = []
    get(report=lines.append)
    assert files(tmp_path) == {"a.gz": PACKED}
    assert server.requests == [("/a.gz", 0)]
    assert lines == [f"downloading {server.home}a.gz"]


def test_an_interrupted_download_is_resumed(get, server, part, tmp_path):
    part.write_bytes(PACKED[:100_000])
    lines = []
    get(report=lines.append)
    assert files(tmp_path) == {"a.gz": PACKED}
    assert server.requests == [("/a.gz", 100_000)]
    assert lines == [f"resuming {server.home}a.gz"]


def test_a_server_that_cuts_off_is_asked_for_the_rest(get, server, tmp_path):
    server.cut_after = 120_000
    get()
    assert files(tmp_path) == {"a.gz": PACKED}
    assert server.requests == [("/a.gz", 0), ("/a.gz", 120_000), ("/a.gz", 240_000)]


def test_a_server_that_cuts_off_too_often(get, server, part, tmp_path):
    server.cut_after = 50_000
    with pytest.raises(DownloadError, match=rf"cut off after 50000 of {len(PACKED)} bytes"):
        get()
    assert files(tmp_path) == {part.name: PACKED[:150_000]}
    server.cut_after = None
    get()
    assert server.requests[-1] == ("/a.gz", 150_000)
    assert files(tmp_path) == {"a.gz": PACKED}


def test_a_server_that_sends_nothing_is_not_asked_again(get, server, tmp_path):
    server.cut_after = 0
    with pytest.raises(DownloadError, match="cut off after 0 of"):
        get()
    assert len(server.requests) == 1


def test_a_server_without_ranges_starts_again(get, server, part, tmp_path):
    part.write_bytes(PACKED[:100_000])
    server.knows_ranges = False
    get()
    assert files(tmp_path) == {"a.gz": PACKED}


def test_a_server_that_sends_another_range(get, server, part):
    part.write_bytes(PACKED[:100_000])
    server.range_shift = 1
    with pytest.raises(DownloadError, match="asked for the bytes from 100000 on, was sent bytes 100001-"):
        get()
    assert part.read_bytes() == PACKED[:100_000]


def test_a_whole_part_is_kept(get, server, part, tmp_path):
    part.write_bytes(PACKED)
    get()
    assert files(tmp_path) == {"a.gz": PACKED}
    assert server.requests == [("/a.gz", len(PACKED))]


@pytest.mark.parametrize("old", [b"x" * 1000, PACKED[:1000][::-1], PACKED + b"more", b"x" * 2 * len(PACKED)])
def test_a_part_of_another_file_is_discarded(get, server, part, tmp_path, old):
    part.write_bytes(old)
    get()
    assert files(tmp_path) == {"a.gz": PACKED}
    assert server.requests == [("/a.gz", len(old)), ("/a.gz", 0)]


def test_wrong_checksum(get, server, tmp_path):
    server.files["/a.gz"] = gzip.compress(b"another content")
    found = hashlib.sha256(b"another content").hexdigest()
    with pytest.raises(DownloadError, match=f"expected SHA-256 {CHECKSUM}, found {found}"):
        get()
    assert files(tmp_path) == {}
    assert len(server.requests) == 1


@pytest.mark.parametrize("page", [b"<html>please log in</html>", PACKED[:-1], PACKED + b"more"])
def test_what_is_no_gzip_file(get, server, tmp_path, page):
    server.files["/a.gz"] = page
    with pytest.raises(DownloadError, match="no whole gzip file"):
        get()
    assert files(tmp_path) == {}


def test_the_next_home_is_asked(get, server, tmp_path):
    server.files["/bad/a.gz"] = gzip.compress(b"another content")
    get([f"{server.home}missing/", f"{server.home}bad/", server.home])
    assert files(tmp_path) == {"a.gz": PACKED}
    assert [path for path, _ in server.requests] == ["/missing/a.gz", "/bad/a.gz", "/a.gz"]


def test_every_home_is_named_when_all_fail(get, server):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refusing = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        with pytest.raises(DownloadError) as error:
            get([refusing, f"{server.home}missing/"])
    assert f"{refusing}a.gz: " in str(error.value)
    assert "refused" in str(error.value)
    assert f"{server.home}missing/a.gz: HTTP Error 404" in str(error.value)
    assert isinstance(error.value, DataError)


def test_more_than_allowed_is_not_stored(get, tmp_path):
    with pytest.raises(DownloadError, match="sends more than 200000 bytes"):
        get(limit=200_000)
    assert sum(map(len, files(tmp_path).values())) == 0


def test_more_than_allowed_is_not_unpacked(get, server, tmp_path):
    server.files["/a.gz"] = gzip.compress(bytes(2_000_000))
    with pytest.raises(DownloadError, match="its content exceeds 1000000 bytes"):
        get()
    assert files(tmp_path) == {}


def test_an_answer_that_is_no_http(get):
    def greet(listener):
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"220 ready\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=greet, args=(listener,))
        thread.start()
        with pytest.raises(DownloadError, match="220 ready"):
            get([f"http://127.0.0.1:{listener.getsockname()[1]}/"])
        thread.join()


def test_interrupted_by_the_user(get, server, part, tmp_path):
    user, half = threading.main_thread().ident, len(PACKED) // 2

    def interrupt():
        while not part.exists() or part.stat().st_size < half:  # it is on its way
            time.sleep(0.001)
        signal.pthread_kill(user, signal.SIGINT)

    server.during = interrupt
    with pytest.raises(KeyboardInterrupt):
        get()
    assert files(tmp_path).keys() == {part.name}
    assert part.read_bytes()[:half] == PACKED[:half]
    server.during = None
    get()
    assert files(tmp_path) == {"a.gz": PACKED}


def test_a_folder_that_is_not_there(server, tmp_path):
    server.files["/a.gz"] = PACKED
    with pytest.raises(OutputError, match="cannot write"):
        fetch("a.gz", [server.home], tmp_path / "none" / "a.gz", sha256=CHECKSUM, limit=1_000_000)
    assert len(server.requests) == 1


def test_full_disk(get, part, tmp_path):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OutputError, match="Free some space"):
            get()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert PACKED.startswith(part.read_bytes())
    get()
    assert files(tmp_path) == {"a.gz": PACKED}


def test_one_process_at_a_time(tmp_path):
    fcntl = pytest.importorskip("fcntl")

    def others_may_enter():
        handle = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            return True
        finally:
            os.close(handle)

    with folder_lock(tmp_path):
        assert not others_may_enter()
    assert others_may_enter()
