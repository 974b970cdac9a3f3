"""Parts of vectors in memory, and square blocks of elements turned around in registers.

A block of ``lanes × lanes`` elements is read as rows, transposed by exchanging halves, quarters, … of neighbouring
rows, and written as rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.compiler.codegen.function import Function
from pullback.compiler.codegen.types import vector_of

__all__ = ["load_lanes", "store_lanes", "transpose", "turn_block"]


def transpose(f: Function, rows: Sequence[str], kind: str) -> list[str]:
    """The columns of a square block, given its rows (vectors of ``kind``, as many lanes as rows)."""
    lanes = len(rows)
    current, distance = list(rows), 1
    vector = vector_of(kind, lanes)
    while distance < lanes:
        low = [lane if not lane & distance else lanes + lane - distance for lane in range(lanes)]
        high = [lane + distance if not lane & distance else lanes + lane for lane in range(lanes)]
        following = list(current)
        for first in range(lanes):
            if not first & distance:
                a, b = current[first], current[first + distance]
                for place, picks in ((first, low), (first + distance, high)):
                    mask = ", ".join(f"i32 {pick}" for pick in picks)
                    following[place] = f.value(
                        f"shufflevector {vector} {a}, {vector} {b}, <{lanes} x i32> <{mask}>"
                    )
        current, distance = following, 2 * distance
    return current


def _mask(count: int, lanes: int) -> str:
    return "<" + ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes)) + ">"


def _suffix(kind: str) -> tuple[str, int]:
    """How intrinsic names spell a type in memory, and its bytes."""
    if kind in ("float", "double"):
        return ("f32", 4) if kind == "float" else ("f64", 8)
    return kind, int(kind[1:]) // 8


def load_lanes(f: Function, address: str, kind: str, lanes: int, count: int) -> str:
    """The first ``count`` of ``lanes`` elements at ``address``; zeros beyond them."""
    vector, (suffix, size) = vector_of(kind, lanes), _suffix(kind)
    if count == lanes:
        return f.value(f"load {vector}, ptr {address}, align {size}")
    mask = (vector_of("i1", lanes), _mask(count, lanes))
    name = f"llvm.masked.load.v{lanes}{suffix}.p0"
    return f.call(vector, name, ("ptr", address), ("i32", str(size)), mask, (vector, "zeroinitializer"))


def store_lanes(f: Function, value: str, address: str, kind: str, lanes: int, count: int) -> None:
    """Write the first ``count`` lanes to ``address``: fewer than all in pieces of a power of two.

    A masked store would cover what follows too, and a read of that would wait until it has reached memory.
    """
    vector, (_, size) = vector_of(kind, lanes), _suffix(kind)
    if count == lanes:
        f.do(f"store {vector} {value}, ptr {address}, align {size}")
        return
    done = 0
    for piece in (2**power for power in reversed(range(lanes.bit_length())) if count & 2**power):
        at = f.value(f"getelementptr {kind}, ptr {address}, i64 {done}") if done else address
        if piece == 1:  # LLVM forgets where a vector of a single lane was truncated
            part, part_kind = f"extractelement {vector} {value}, i32 {done}", kind
        else:
            picks = ", ".join(f"i32 {done + lane}" for lane in range(piece))
            part = f"shufflevector {vector} {value}, {vector} poison, <{piece} x i32> <{picks}>"
            part_kind = vector_of(kind, piece)
        f.do(f"store {part_kind} {f.value(part)}, ptr {at}, align {size}")
        done += piece


def turn_block(
    f: Function,
    kind: str,
    lanes: int,
    source: Callable[[int], str],
    target: Callable[[int], str],
    rows: int,
    columns: int,
    full_rows: bool = False,
) -> None:
    """Copy ``rows × columns`` elements (at most ``lanes`` each) from source rows to target columns.

    With ``full_rows`` whole vectors are written, zeros where the source has no row.
    """
    block = [load_lanes(f, source(r), kind, lanes, columns) for r in range(rows)]
    block += ["zeroinitializer"] * (lanes - rows)
    for c, column in enumerate(transpose(f, block, kind)[:columns]):
        store_lanes(f, column, target(c), kind, lanes, lanes if full_rows else rows)
