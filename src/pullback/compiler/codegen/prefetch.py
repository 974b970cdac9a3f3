"""Asking for memory before it is needed: what epilogues of products read of large arrays, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.compiler.codegen.values import Values
from pullback.compiler.llvm.function import Function
from pullback.compiler.schedules.cost import MOST_ASKED
from pullback.loops import Axis, Load, Store, walk

__all__ = ["Cursors", "Wanted", "lies_far", "wanted_by", "wanted_rows"]


@dataclass(frozen=True)
class Wanted:
    """Rows of lines that are needed later: where the first of them begins, and how many bytes the next one is ahead.

    They come to the first or the second ``cache``.
    """

    address: str
    pitch: int
    rows: int
    lines: Sequence[int]
    """Bytes ahead of a row's beginning."""
    cache: int

    def ask(self, f: Function, row: str) -> None:
        """Ask for the lines of one row, a register; they need not exist."""
        start = f.ahead(self.address, "i8", f.value(f"mul i64 {row}, {self.pitch}"))
        how = ("i32", "0"), ("i32", str(4 - self.cache)), ("i32", "1")
        for ahead in self.lines:
            f.call("void", "llvm.prefetch.p0", ("ptr", f.ahead(start, "i8", ahead)), *how)


class Cursors:
    """Where pieces of memory go on of which each of so many ``tiles`` asks for some lines.

    Pieces are an address and a number of bytes.
    """

    def __init__(self, f: Function, pieces: Sequence[tuple[str, int]], tiles: int, line_bytes: int) -> None:
        self.f, self.line_bytes = f, line_bytes
        self.cursors: list[tuple[str, int]] = []
        """Where the address of the next line is kept, and how many lines a tile asks for."""
        for address, size in pieces:
            cursor = f.reserve("ptr")
            f.do(f"store ptr {address}, ptr {cursor}, align 8")
            self.cursors.append((cursor, -(-size // (tiles * line_bytes))))

    def share(self, turns: int) -> list[Wanted]:
        """What the next tile asks for, some lines in each of so many turns."""
        f, line, found = self.f, self.line_bytes, list[Wanted]()
        for cursor, lines in self.cursors:
            first = f.value(f"load ptr, ptr {cursor}, align 8")
            f.do(f"store ptr {f.ahead(first, 'i8', lines * line)}, ptr {cursor}, align 8")
            each = min(-(-lines // turns), MOST_ASKED)
            found.append(Wanted(first, each * line, -(-lines // each), range(0, each * line, line), cache=2))
        return found


def wanted_rows(values: Values, load: Load, address: str, shape: tuple[int, int, int], cache: int) -> Wanted:
    """Rows of what ``load`` reads from ``address`` on: how many, how many elements apart, and how many of each."""
    (rows, pitch, run), size, line = shape, load.dtype.itemsize, values.target.line_bytes
    last = [run * size - 1] if pitch * size % line else []  # they begin anywhere in a line
    return Wanted(address, pitch * size, rows, [*range(0, run * size, line), *last], cache)


def wanted_by(values: Values, stores: Sequence[Store], rows: tuple[Axis, int], columns: Axis) -> list[Wanted]:
    """What a tile's epilogue reads of large arrays, rows and columns from where the axes stand on.

    It would wait for them; the products before it need not.
    """
    (axis, count), group = rows, values.current_group
    run = (group.vectors - 1) * group.lanes + group.present(group.vectors - 1)
    reads = (e for e in walk(*(store.value for store in stores)) if isinstance(e, Load))
    wanted: dict[str, Wanted] = {}
    for load in reads:
        down, across = (load.offset.coefficient(a) for a in (axis, columns))
        if across == 1 and down and lies_far(values, load) and load.is_plain:
            address = values.at(load.buffer, load.offset)
            wanted[address] = wanted_rows(values, load, address, (count, down, run), cache=1)
    return list(wanted.values())


def lies_far(values: Values, load: Load) -> bool:
    """Whether an array is larger than what stays in the caches that no other core uses."""
    return load.buffer.nbytes >= values.target.private_bytes
