"""Damaged and lying files through every loader: an error of ours that names the file, or a result.

``python -m tests.stress.files --count 20000 --seed 1`` makes so many files from the seed and prints each that ends in
another error, a crash, or more memory than 64 MB + 20 × its size. Memory is what Linux says of the process: the
largest resident size during the call, less the one before. The files are made in one process and read in another
one, which is started anew when it has died.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import io
import json
import multiprocessing
import os
import random
import re
import signal
import struct
import sys
import tarfile
import tempfile
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pullback import nn, optim
from pullback.cli.predict import _lines, load_model
from pullback.cli.workloads import WORKLOADS
from pullback.compiler.runtime.cache import Cache
from pullback.compiler.target import Processor
from pullback.data import (
    Alphabet,
    Corpus,
    Vocabulary,
    read_glove,
    read_idx,
    read_pictures,
    read_text,
    write_glove,
    write_idx,
)
from pullback.data.imdb import _restored, read_reviews
from pullback.errors import PullbackError
from pullback.io import load_metadata, load_tensors, read_history, save, save_tensors, write_history
from pullback.train import Trainer, load_checkpoint, save_checkpoint

__all__ = ["main"]

_SHAPE = (8, 8)
_VOCABULARY = Vocabulary(["good", "bad", "film", "story"])
_SECONDS = 120
_FAILED = 1


def _trainer() -> Trainer:
    model = nn.Chain(nn.Dense(2, 3, seed=0), nn.relu)
    return Trainer(model, nn.squared_error, optim.Adam(0.1), metrics=(), batch_size=4)


def _cached(path: Path) -> None:
    """The file as the entry of a key, under the name that it has for it."""
    cache = Cache(path.parent)
    cache.load("key", Processor.host())


LOADERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "idx": ("a.idx", read_idx),
    "idx.gz": ("a.idx.gz", read_idx),
    "pictures.idx.gz": ("a.idx.gz", lambda path: read_pictures(path, _SHAPE)),
    "pictures.npy": ("a.npy", lambda path: read_pictures(path, _SHAPE)),
    "pictures.png": ("a.png", lambda path: read_pictures(path, _SHAPE)),
    "glove": ("a.txt", lambda path: read_glove(path, _VOCABULARY)),
    "glove.gz": ("a.txt.gz", lambda path: read_glove(path, _VOCABULARY)),
    "archive": ("aclImdb_v1.tar.gz", read_reviews),
    "archive.tar": ("aclImdb_v1.tar", read_reviews),
    "texts": ("texts.txt", lambda path: Corpus.of_files([path])),
    "lines": ("lines.txt", lambda path: sum(map(len, _lines(f"@{path}")))),
    "history": ("history.json", read_history),
    "tensors": ("a.safetensors", load_tensors),
    "metadata": ("a.safetensors", load_metadata),
    "words": ("words.safetensors", _restored),
    "image model": ("image.safetensors", load_model),
    "text model": ("text.safetensors", load_model),
    "character model": ("characters.safetensors", load_model),
    "characters": ("lines.txt", read_text),
    "checkpoint": ("checkpoint.safetensors", lambda path: load_checkpoint(_trainer(), path)),
    "code": ("*.code", _cached),
}
"""The file that is damaged, and what reads it."""


def _make_files(folder: Path) -> dict[str, bytes]:
    """A whole file of each kind, by its name."""
    images = np.random.default_rng(0).integers(0, 256, (5, *_SHAPE)).astype(np.uint8)
    write_idx(folder / "a.idx", images)
    write_idx(folder / "a.idx.gz", images)
    np.save(folder / "a.npy", images)
    (folder / "a.png").write_bytes(_png(images[0]))
    write_glove(folder / "a.txt", ["good", "film", "café"], np.linspace(-1, 1, 12).reshape(3, 4))
    (folder / "a.txt.gz").write_bytes(gzip.compress((folder / "a.txt").read_bytes()))
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for number in range(6):
            side, rating = ("pos", 8) if number % 2 else ("neg", 3)
            member = tarfile.TarInfo(f"aclImdb/train/{side}/{number}_{rating}.txt")
            text = b"A good film.<br />It wasn't bad. " * (number + 1)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    (folder / "aclImdb_v1.tar").write_bytes(tar.getvalue())
    (folder / "aclImdb_v1.tar.gz").write_bytes(gzip.compress(tar.getvalue()))
    (folder / "texts.txt").write_bytes("A good film\nna\u00efve <br /> story\n\nbad".encode() * 9)
    (folder / "lines.txt").write_bytes("A good film\nna\u00efve story\n\nbad".encode() * 9)
    write_history(folder / "history.json", {"loss": [0.5, float("nan")], "seconds": [1.5, 2], "name": "a"})
    save_tensors(folder / "a.safetensors", {"x": np.eye(3), "flag": np.array([True, False])}, {"k": "v"})
    words = np.frombuffer(b"good\nfilm", np.uint8)
    tokens, starts = np.array([0, 1, 1], np.int32), np.array([0, 2, 3], np.int64)
    kept = {"words": words, "tokens": tokens, "starts": starts, "labels": np.array([0, 1], np.uint8)}
    save_tensors(folder / "words.safetensors", kept)
    settings = {"input": "image", "shape": [8, 8], "scale": 1 / 16, "classes": 10, "hidden": 5}
    entries = {"workload": "mnist-rnn", "settings": json.dumps(settings)}
    save(WORKLOADS["mnist-rnn"].restore(settings), folder / "image.safetensors", entries)
    settings = {
        "input": "text",
        "words": 6,
        "length": 12,
        "dimensions": 3,
        "filters": 2,
        "classes": ["n", "p"],
    }
    entries = {"workload": "imdb-cnn", "settings": json.dumps(settings), "vocabulary": _VOCABULARY.to_json()}
    save(WORKLOADS["imdb-cnn"].restore(settings), folder / "text.safetensors", entries)
    settings = {"input": "characters", "characters": 3, "hidden": 4, "layers": 2}
    entries = {"workload": "chars", "settings": json.dumps(settings), "vocabulary": Alphabet("abc").to_json()}
    save(WORKLOADS["chars"].restore(settings), folder / "characters.safetensors", entries)
    trainer = _trainer()
    trainer.fit((np.ones((8, 2), np.float32), np.ones((8, 3), np.float32)), 2)
    save_checkpoint(trainer, folder / "checkpoint.safetensors")
    Cache(folder).store("key", Processor.host(), (b"object code" * 9, {"phases": [["f", 3]], "name": "a"}))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _png(pixels: np.ndarray) -> bytes:
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    parts = {b"IHDR": header, b"tEXt": b"a\0b", b"IDAT": zlib.compress(rows), b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts.items())


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


_NUMBERS = [
    b"-1",
    b"0",
    b"1e999",
    b"99999999999",
    b"18446744073709551616",
    b"9" * 400,
    b"NaN",
    b"null",
    b"[]",
    b'"a"',
]
_WORDS = [(1 << bits) - 1 for bits in (7, 8, 15, 16, 31, 32, 40, 63)] + [0, 1 << 31, 1 << 62]


def _damaged(content: bytes, others: list[bytes], source: random.Random) -> bytes:
    """``content`` with a few things wrong with it."""
    data = bytearray(content)
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        place = source.randrange(len(data) + 1)
        if source.random() < 0.5:
            place = min(place, source.randrange(1, 128))  # headers are where lies are
        kind = source.randrange(9)
        if kind == 0 and data:
            data[min(place, len(data) - 1)] ^= 1 << source.randrange(8)
        elif kind == 1:
            data[place : place + source.choice((1, 2, 4, 16))] = source.randbytes(
                source.choice((1, 2, 4, 16))
            )
        elif kind == 2:
            del data[place:]
        elif kind == 3:
            data += source.choice((b"\0", b"\n", bytes(1000), bytes(data[:100]), source.randbytes(50)))
        elif kind == 4:  # another file's end
            data[place:] = source.choice(others)[place:]
        elif kind == 5:
            size, order = source.choice((2, 4, 8)), source.choice(("little", "big"))
            number = source.choice(_WORDS) & ((1 << 8 * size) - 1)
            data[place : place + size] = number.to_bytes(size, order)
        elif kind == 6 and (found := list(re.finditer(rb"-?\d+(\.\d+)?", data))):
            begin, end = source.choice(found).span()
            data[begin:end] = source.choice(_NUMBERS)
        elif kind == 7:
            piece = bytes(data[place : place + source.choice((1, 8, 64))])
            data[place:place] = piece * source.choice((1, 3, 1000))
        elif kind == 8:
            data[place:place] = source.choice(
                (b"[" * 5000, b'{"a":' * 3000, b" " * 70_000, b'"\\ud800"', b"\xff\xfe")
            )
    return bytes(data)


def _file(name: str, files: dict[str, bytes], source: random.Random) -> bytes:
    """A damaged or lying file of this name; half of them with their sums put right, so that they are believed."""
    content, others = files[name], list(files.values())
    deeper = source.random() < 0.5
    if name.endswith(".gz") and deeper:
        if source.random() < 0.03:
            return _bomb(gzip.decompress(content), source)
        return gzip.compress(_damaged(gzip.decompress(content), others, source), 1)
    if name.endswith(".safetensors") and deeper:
        (length,) = struct.unpack_from("<Q", content)
        header = re.sub(rb'"pullback.crc32":"[^"]*",?', b"", content[8 : 8 + length])
        header = _damaged(header, others, source)
        return struct.pack("<Q", len(header)) + header + content[8 + length :]
    if name.endswith(".png") and deeper:
        return _damaged_chunks(content, others, source)
    if name.endswith(".npy") and deeper:
        header = _damaged(content[10:128], others, source)
        return content[:8] + struct.pack("<H", min(len(header), 65535)) + header + content[128:]
    return _damaged(content, others, source)


def _bomb(content: bytes, source: random.Random) -> bytes:
    """A gzip file that unpacks to a hundred times more than it should."""
    packer = zlib.compressobj(9, wbits=31)
    if content.startswith(b"\0\0\x08\3") and source.random() < 0.7:  # pictures, as many as it says
        count = source.choice((100_000, 500_000, 2_000_000))
        header = content[:4] + struct.pack(">III", count, *_SHAPE)
        return packer.compress(header + bytes(count * _SHAPE[0] * _SHAPE[1])) + packer.flush()
    parts = [packer.compress(content[: source.choice((0, 4, 16, len(content)))])]
    piece = source.choice((bytes(512), content, b"good " * 100, b"good 1 2 3 4\n", bytes(range(256)))) * 500
    parts += [packer.compress(piece) for _ in range(min(400, (100 << 20) // len(piece)))]
    return b"".join([*parts, packer.flush()])


def _damaged_chunks(content: bytes, others: list[bytes], source: random.Random) -> bytes:
    """A PNG file with right checksums, one of its chunks damaged and some of them moved."""
    chunks, start = [], 8
    while start < len(content):
        (length,) = struct.unpack_from(">I", content, start)
        chunks.append((content[start + 4 : start + 8], content[start + 8 : start + 8 + length]))
        start += 12 + length
    place = source.randrange(len(chunks))
    name, data = chunks[place]
    if name == b"IDAT" and source.random() < 0.5:
        data = zlib.compress(_damaged(zlib.decompress(data), others, source))
    else:
        data = _damaged(data, others, source)
    chunks[place] = name, data
    if source.random() < 0.3:
        text = b"a\0\0" + zlib.compress(bytes(2 << 20))
        extra = (
            (b"zTXt", text),
            (b"iCCP", text),
            (b"PLTE", bytes(9)),
            (b"tRNS", bytes(300)),
            (b"acTL", bytes(8)),
        )
        chunks[1:1] = [source.choice(extra)] * source.choice((1, 2, 40))
    if source.random() < 0.2:
        source.shuffle(chunks)
    return content[:8] + b"".join(_chunk(name, data) for name, data in chunks)


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+)", text)[1]) * 1024  # type: ignore[index]


class _Memory:
    """How much more memory the process takes within the block than before it; 0 where nobody tells."""

    def __init__(self) -> None:
        self.grown = 0
        self._told = os.access("/proc/self/clear_refs", os.W_OK)
        if self._told:
            self._trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)

    def __enter__(self) -> _Memory:
        if self._told:
            self._trim(0)
            Path("/proc/self/clear_refs").write_text("5")  # the largest size from now on
            self._before = _status("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        if self._told:
            self.grown = max(0, _status("VmHWM") - self._before)


def _problem(load: Callable[[Path], object], path: Path) -> tuple[str, int]:
    """What is wrong with reading a file, nothing if all is right; and the memory that it took."""
    problem = ""
    with _Memory() as memory:
        try:
            load(path)
        except PullbackError as error:
            if str(path) not in str(error) and path.suffix != ".code":
                problem = f"an error that does not name the file: {error}"
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"
    most = (64 << 20) + 20 * path.stat().st_size
    if not problem and memory.grown > most:
        problem = f"{memory.grown / 1e6:.0f} MB of memory for {path.stat().st_size:,} bytes"
    return problem, memory.grown


def _work(folder: Path, files: dict[str, bytes], seed: int, numbers: range, told: object) -> None:
    """Read the files of these numbers, and tell of each what came of it."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    code = next(name for name in files if name.endswith(".code"))
    for name, load in LOADERS.values():  # what is loaded once takes no memory for a file
        path = folder / (code if name == "*.code" else name)
        path.write_bytes(files[path.name])
        load(path)
    for number in numbers:
        source = random.Random(f"{seed} {number}")
        loader = source.choice(list(LOADERS))
        name, load = LOADERS[loader]
        path = folder / (code if name == "*.code" else name)
        path.write_bytes(_file(path.name, files, source))
        told.send((number, loader, None, 0))  # type: ignore[attr-defined]
        signal.alarm(_SECONDS)
        problem, grown = _problem(load, path)
        signal.alarm(0)
        told.send((number, loader, problem, grown))  # type: ignore[attr-defined]


def main(arguments: list[str] | None = None) -> int:
    """Read so many files; the exit status says whether all was right."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress.files", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="files to read (1000)")
    parser.add_argument("--seed", type=int, help="what they are made from (a fresh one, printed)")
    parser.add_argument("--first", type=int, default=0, help="number of the first file (0)")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"{options.count:,} files of seed {seed}", flush=True)
    wrong, largest, end = 0, 0, options.first + options.count
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as work:
        files, next_number = _make_files(Path(whole)), options.first
        while next_number < end:
            told, tell = context.Pipe(duplex=False)
            numbers = range(next_number, end)
            process = context.Process(target=_work, args=(Path(work), files, seed, numbers, tell))
            process.start()
            tell.close()
            loader, problem = "the first files", None
            try:
                while True:
                    number, loader, problem, grown = told.recv()
                    next_number, largest = number + 1, max(largest, grown)
                    if problem:
                        wrong += 1
                        print(f"{loader} ({number}): {problem[:300]}", flush=True)
            except EOFError:
                process.join()
            if process.exitcode:
                wrong += 1
                print(f"{loader} ({next_number - 1}): the process ended with {process.exitcode}", flush=True)
                if next_number == options.first:
                    break
    print(f"{wrong} of {options.count:,} are wrong; at most {largest / 1e6:.0f} MB of memory")
    return _FAILED if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
