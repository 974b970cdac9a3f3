"""Small IDX files in MNIST's form, small archives of reviews, and a web server that misbehaves on request."""

import gzip
import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from pullback.data import imdb, mnist, write_idx


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """No test sees the user's own data, cache, proxy or a public server."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PULLBACK_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(mnist, "_HOMES", ())
    monkeypatch.setattr(imdb, "_HOMES", ())


@pytest.fixture
def small_mnist(tmp_path):
    """A folder with 30 training and 10 test images, gzip."""
    folder = tmp_path / "small"
    folder.mkdir()
    generator = np.random.default_rng(1)
    for part, rows in (("train", 30), ("t10k", 10)):
        images = generator.integers(0, 256, (rows, 28, 28)).astype(np.uint8)
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", np.arange(rows, dtype=np.uint8) % 10)
    return folder


REVIEWS = {
    "aclImdb/test/neg/0_2.txt": "A dull film.<br /><br />Awful!",
    "aclImdb/test/pos/0_10.txt": "A good film, it wasn't dull.",
    "aclImdb/train/neg/0_1.txt": "Awful story.",
    "aclImdb/train/neg/1_4.txt": "Not a good story",
    "aclImdb/train/pos/0_7.txt": "Good, good story",
    "aclImdb/train/pos/9_9.txt": "the film is café",
    "aclImdb/train/pos/10_8.txt": "a very good film",
}


@pytest.fixture
def reviews():
    """Seven reviews by the names of their files, in the order in which they are to come."""
    return dict(REVIEWS)


@pytest.fixture
def write_archive(tmp_path):
    """``write_archive(entries)``: a gzip archive; an entry is a text, bytes, or a ``TarInfo`` by itself."""

    def write(entries, name="aclImdb_v1.tar.gz", mode="w:gz"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, mode) as archive:
            for entry, content in entries.items() if isinstance(entries, dict) else entries:
                if isinstance(content, tarfile.TarInfo):
                    content.name = entry
                    archive.addfile(content)
                    continue
                data = content.encode() if isinstance(content, str) else content
                member = tarfile.TarInfo(entry)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return path

    return write


class Server:
    """What the files are, how the server misbehaves, and which requests it saw."""

    def __init__(self):
        self.files = {}
        self.requests = []  # (path, first byte asked for)
        self.cut_after = None  # bytes of each answer before the connection ends
        self.knows_ranges = True
        self.range_shift = 0
        self.during = None  # called after half of an answer
        self.home = ""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server.behaviour
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        server.requests.append((self.path, start))
        content = server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        if asked and server.knows_ranges:
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header(
                "Content-Range", f"bytes {start + server.range_shift}-{len(content) - 1}/{len(content)}"
            )
            content = content[start:]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if server.during is not None:
            half = len(content) // 2
            self.wfile.write(content[:half])
            server.during()
            content = content[half:]
        self.wfile.write(content if server.cut_after is None else content[: server.cut_after])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.behaviour = Server()
        listener.behaviour.home = f"http://127.0.0.1:{listener.server_address[1]}/"
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield listener.behaviour
        listener.shutdown()
        thread.join()


@pytest.fixture
def served_mnist(server, small_mnist, monkeypatch):
    """The server as the only home of the small files, and their checksums as the expected ones."""
    for path in small_mnist.iterdir():
        server.files[f"/{path.name}"] = path.read_bytes()
        monkeypatch.setitem(
            mnist._FILES, path.stem, hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest()
        )
    monkeypatch.setattr(mnist, "_HOMES", (server.home,))
    return server
