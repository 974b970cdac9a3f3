"""Which pages of mapped files are given back, and that nothing which differs from its file is."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pullback.compiler.runtime.pages import give_back_pages

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc/self/smaps")

_PAGES = 64
_SIZE = _PAGES * mmap.PAGESIZE


def _library() -> ctypes.CDLL:
    found = ctypes.CDLL(None)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    found.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_ssize_t]
    found.mmap.restype = pointer
    found.mprotect.argtypes = [pointer, size, number]
    found.munmap.argtypes = [pointer, size]
    return found


Mapper = Callable[[str], int]


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[Mapper]:
    """Maps a file of ones in ``tmp_path``, private, writable, all of it read; its address."""
    library, made = _library(), []

    def make(name: str) -> int:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\x01" * _SIZE)
        with path.open("rb") as file:
            both = mmap.PROT_READ | mmap.PROT_WRITE
            address: int = library.mmap(None, _SIZE, both, mmap.MAP_PRIVATE, file.fileno(), 0)
        made.append(address)
        assert sum(ctypes.string_at(address, _SIZE)) == _SIZE
        return address

    yield make
    for address in made:
        library.munmap(address, _SIZE)


def _protect(address: int) -> None:
    assert _library().mprotect(address, _SIZE, mmap.PROT_READ) == 0


def _resident(address: int) -> int:
    """Bytes of the mapping that begins at ``address`` which are in memory."""
    text = Path("/proc/self/smaps").read_text()
    found = re.search(rf"(?m)^{address:x}-(?:.*\n)+?Rss:\s+(\d+) kB", text)
    assert found is not None
    return 1024 * int(found[1])


def test_unchanged_pages_go_and_come_back(tmp_path: Path, mapped: Mapper) -> None:
    address = mapped("a.so")
    _protect(address)
    assert _resident(address) == _SIZE
    give_back_pages(tmp_path)
    assert _resident(address) == 0
    assert sum(ctypes.string_at(address, _SIZE)) == _SIZE


def test_what_was_changed_stays(tmp_path: Path, mapped: Mapper) -> None:
    address = mapped("a.so")
    ctypes.memset(address + _SIZE // 2, 7, 1)  # as a loader's relocation does
    _protect(address)
    give_back_pages(tmp_path)
    assert _resident(address) == _SIZE
    assert sum(ctypes.string_at(address, _SIZE)) == _SIZE + 6


def test_what_can_be_written_stays(tmp_path: Path, mapped: Mapper) -> None:
    address = mapped("a.so")
    give_back_pages(tmp_path)
    assert _resident(address) == _SIZE


def test_other_folders_stay(tmp_path: Path, mapped: Mapper) -> None:
    address = mapped("beside/a.so")
    _protect(address)
    (tmp_path / "besid").mkdir()
    give_back_pages(tmp_path / "besid")
    assert _resident(address) == _SIZE
