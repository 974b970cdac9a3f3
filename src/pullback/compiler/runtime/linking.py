"""Object files brought into memory without LLVM, whose library takes longer to load than a program to run.

Only what LLVM makes of position-independent code for Linux on x86-64 is understood: sections of instructions and of
constants, and places that hold a distance. Anything else is left to LLVM's own loader.

Sources: System V ABI, AMD64 supplement, chapter 4; ``elf(5)``.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.compiler.runtime.memory import page_function
from pullback.compiler.target import LINE_BYTES

__all__ = ["Image", "link"]

_HEAD = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian
_RELOCATABLE, _X86_64 = 1, 62
_FILE, _SECTION = struct.Struct("<16xHH20xQ10xHHH"), struct.Struct("<IIQ8xQQIIQQ")
_SYMBOL, _RELOCATION = struct.Struct("<IBBHQ8x"), struct.Struct("<QQq")
_SYMBOLS, _RELOCATIONS, _NO_BITS = 2, 4, 8
_WRITE, _ALLOCATE, _EXECUTE, _THREAD = 1, 2, 4, 0x400
_PC32, _PLT32 = 2, 4
_UNDEFINED, _RESERVED = 0, 0xFF00
_GLOBAL, _WEAK = 1, 2
_JUMP = b"\xff\x25\x00\x00\x00\x00"  # jmp [rip + 0]: to the address that follows
_STUB_BYTES = len(_JUMP) + 8


class _Unknown(Exception):
    """Something that this loader does not know."""


@dataclass(frozen=True)
class Image:
    """Machine code in memory for as long as this object is there, and where its global symbols are."""

    memory: Any
    symbols: dict[str, int]


@dataclass
class _Section:
    kind: int
    flags: int
    data: bytes
    link: int
    info: int
    align: int
    place: int = -1


@dataclass
class _Object:
    sections: list[_Section]
    symbols: list[tuple[str, int, int, int]]
    """Of each symbol its name, binding, section and value."""


def link(objects: Sequence[bytes], address_of: Callable[[str], int]) -> Image | None:
    """The object files together in memory; None if they hold what is not understood here.

    ``address_of`` gives the address of a function that none of them defines, 0 if there is none.
    """
    if not _usable():
        return None
    try:
        return _linked([_read(data) for data in objects], address_of)
    except (_Unknown, struct.error, ArithmeticError, IndexError, ValueError):
        return None  # the others: a file that does not hold what it says


def _usable() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 1 << 32


def _read(data: bytes) -> _Object:
    if not data.startswith(_HEAD):
        raise _Unknown
    kind, machine, at, size, count, _ = _FILE.unpack_from(data)
    if (kind, machine, size) != (_RELOCATABLE, _X86_64, _SECTION.size):
        raise _Unknown
    sections: list[_Section] = []
    # What honest files need, so that one that lies takes no more memory: sections and names lie beside each other.
    left, padding = len(data), 2 * len(data) + mmap.PAGESIZE
    for k in range(count):
        _, kind, flags, offset, length, linked, info, align, _ = _SECTION.unpack_from(data, at + k * size)
        if flags & _ALLOCATE and ((flags & (_WRITE | _THREAD) and length) or kind == _NO_BITS):
            raise _Unknown
        left -= 0 if kind == _NO_BITS else length
        # How loops lie in lines of the cache must not depend on what was compiled before.
        align = max(align, LINE_BYTES)
        padding -= align
        if left < 0 or padding < 0 or align > mmap.PAGESIZE:
            raise _Unknown
        content = b"" if kind == _NO_BITS else data[offset : offset + length]
        sections.append(_Section(kind, flags, content, linked, info, align))
    symbols = []
    for table in sections:
        if table.kind == _SYMBOLS:
            text = sections[table.link].data
            for name, info, _, section, value in _SYMBOL.iter_unpack(table.data):
                end = text.index(b"\0", name)
                padding -= end - name
                if padding < 0:
                    raise _Unknown
                symbols.append((text[name:end].decode(), info >> 4, section, value))
    return _Object(sections, symbols)


def _linked(objects: Sequence[_Object], address_of: Callable[[str], int]) -> Image:
    code, size = _places(objects)
    defined = _defined(objects)
    outside = {
        name: address_of(name)
        for each in objects
        for name, binding, section, _ in each.symbols
        if binding in (_GLOBAL, _WEAK) and section == _UNDEFINED and name not in defined
    }
    if not all(outside.values()):
        raise _Unknown
    stubs = dict(zip(outside, range(code, code + _STUB_BYTES * len(outside), _STUB_BYTES)))
    code = -(-(code + _STUB_BYTES * len(outside)) // mmap.PAGESIZE) * mmap.PAGESIZE
    image = bytearray(code + size)
    for name, place in stubs.items():
        image[place : place + _STUB_BYTES] = _JUMP + struct.pack("<Q", outside[name])
    for each in objects:
        for section in each.sections:
            if section.place >= 0:
                section.place += 0 if section.flags & _EXECUTE else code
                image[section.place : section.place + len(section.data)] = section.data
    places = {name: each.sections[section].place + value for name, (each, section, value) in defined.items()}
    for each in objects:
        for section in each.sections:
            if section.kind == _RELOCATIONS and each.sections[section.info].place >= 0:
                _relocate(image, each, section, places, stubs)
    return _mapped(bytes(image), code, places)


def _places(objects: Sequence[_Object]) -> tuple[int, int]:
    """Give each section its place among those of its sort: instructions and constants; the bytes of both."""
    ends = [0, 0]
    for each in objects:
        for section in each.sections:
            if section.flags & _ALLOCATE:
                sort = 0 if section.flags & _EXECUTE else 1
                section.place = -(-ends[sort] // section.align) * section.align
                ends[sort] = section.place + len(section.data)
    return ends[0], ends[1]


def _defined(objects: Sequence[_Object]) -> dict[str, tuple[_Object, int, int]]:
    """Object, section and value of each symbol that others may use."""
    found: dict[str, tuple[_Object, int, int]] = {}
    for each in objects:
        for name, binding, section, value in each.symbols:
            if binding in (_GLOBAL, _WEAK) and section != _UNDEFINED:
                if (
                    binding == _WEAK
                    or name in found
                    or section >= _RESERVED
                    or each.sections[section].place < 0
                ):
                    raise _Unknown
                found[name] = each, section, value
    return found


def _relocate(
    image: bytearray, each: _Object, table: _Section, places: dict[str, int], stubs: dict[str, int]
) -> None:
    """Write the distances that instructions need to what they refer to."""
    base = each.sections[table.info].place
    for offset, info, addend in _RELOCATION.iter_unpack(table.data):
        kind, number = info & 0xFFFFFFFF, info >> 32
        name, _, section, value = each.symbols[number]
        if section == _UNDEFINED and kind == _PLT32 and name in stubs:
            target = stubs[name]
        elif section == _UNDEFINED and name in places:
            target = places[name]
        elif 0 < section < _RESERVED and each.sections[section].place >= 0:
            target = each.sections[section].place + value
        else:
            raise _Unknown
        if kind not in (_PC32, _PLT32):
            raise _Unknown
        place = base + offset
        struct.pack_into("<i", image, place, target + addend - place)


def _mapped(image: bytes, code: int, places: dict[str, int]) -> Image:
    """The image in memory of its own: written first, then instructions to run and constants to read."""
    private, writable = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
    memory = mmap.mmap(-1, max(1, len(image)), private, writable)
    memory.write(image)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for offset, size, protection in (
        (0, code, mmap.PROT_READ | mmap.PROT_EXEC),
        (code, len(image) - code, mmap.PROT_READ),
    ):
        if size and page_function("mprotect")(start + offset, size, protection):
            raise _Unknown
    return Image(memory, {name: start + place for name, place in places.items()})
