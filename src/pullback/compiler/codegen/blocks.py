"""Parts of vectors in memory, and square blocks of elements turned around in registers.

A block of ``lanes × lanes`` elements is read in pieces of 16 bytes. A vector takes the same piece of several rows, so
that all that is left to do is to turn squares of 16-byte rows, which needs no lane to leave its 16 bytes:

    row 0   a b c d …                       a e i m | …              rows 0-3 of column 0, then rows 4-7, …
    row 1   e f g h …    in the first       b f j n | …              of column 1
    row 2   i j k l …    16 bytes      →    c g k o | …
    row 3   m n o p …                       d h l p | …
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.compiler.codegen.columns import mixed
from pullback.compiler.codegen.types import bytes_of, first_lanes, mangled, vector_of
from pullback.compiler.llvm.function import Function

__all__ = ["fenced", "load_lanes", "load_under", "store_lanes", "transpose_block"]


def fenced(f: Function, kind: str, lanes: int, value: str) -> str:
    """A vector of which LLVM computes every lane as it is written: of floats, others are as they are.

    Needed where one lane of a register is read alone. LLVM 22 narrows what makes it, and gets it wrong: of
    ``-x[[1, …]]``, eight doubles in another order, the first lane alone is ``-x[0]``.
    """
    if kind not in ("float", "double"):
        return value
    vector = vector_of(kind, lanes)
    return f.call(vector, f"llvm.arithmetic.fence.{mangled(kind, lanes)}", (vector, value))


def load_lanes(f: Function, address: str, kind: str, lanes: int, count: int) -> str:
    """The first ``count`` of ``lanes`` elements at ``address``; zeros beyond them."""
    if count == lanes:
        return f.value(f"load {vector_of(kind, lanes)}, ptr {address}, align {bytes_of(kind)}")
    return load_under(f, address, kind, lanes, first_lanes(count, lanes))


def load_under(f: Function, address: str, kind: str, lanes: int, mask: str) -> str:
    """The elements at ``address`` under ``mask``; zeros in the other ones of so many lanes."""
    vector, size = vector_of(kind, lanes), ("i32", str(bytes_of(kind)))
    name, under = f"llvm.masked.load.{mangled(kind, lanes)}.p0", (vector_of("i1", lanes), mask)
    return f.call(vector, name, ("ptr", address), size, under, (vector, "zeroinitializer"))


def store_lanes(f: Function, value: str, address: str, kind: str, lanes: int, count: int) -> None:
    """Write the first ``count`` lanes to ``address``: fewer than all in pieces of a power of two.

    A masked store would cover what follows too, and a read of that would wait until it has reached memory.
    """
    vector, size = vector_of(kind, lanes), bytes_of(kind)
    if count == lanes:
        f.do(f"store {vector} {value}, ptr {address}, align {size}")
        return
    if count % 2:
        value = fenced(f, kind, lanes, value)
    done = 0
    for piece in (2**power for power in reversed(range(lanes.bit_length())) if count & 2**power):
        at = f.ahead(address, kind, done)
        if piece == 1:  # LLVM forgets where a vector of a single lane was truncated
            part = f.value(f"extractelement {vector} {value}, i32 {done}")
        else:
            part = f.shuffled(vector, value, "poison", range(done, done + piece))
        f.do(f"store {vector_of(kind, piece)} {part}, ptr {at}, align {size}")
        done += piece


def transpose_block(
    f: Function,
    kind: str,
    lanes: int,
    source: tuple[str, int],
    target: tuple[str, int],
    rows: int,
    columns: int,
    piece_bytes: int,
    full_rows: bool = False,
) -> None:
    """Copy ``rows × columns`` elements (at most ``lanes`` each) from source rows to target columns.

    Either has the address of the first one, and how many elements apart they lie.
    Rows are read in pieces of ``piece_bytes``, which a processor exchanges within a vector at no delay. With
    ``full_rows`` whole vectors are written, zeros where the source has no row.
    """
    piece = min(lanes, piece_bytes // bytes_of(kind))
    for first in range(0, columns, piece):
        there = min(piece, columns - first)
        vectors = list[str]()
        for k in range(piece):
            places = [f.ahead(source[0], kind, r * source[1]) for r in range(k, rows, piece)]
            vectors.append(_pieces(f, places, kind, lanes, piece, first, there))
        for c, column in enumerate(_transposed_pieces(f, vectors, kind, lanes)[:there], first):
            place = f.ahead(target[0], kind, c * target[1])
            store_lanes(f, column, place, kind, lanes, lanes if full_rows else rows)


def _pieces(
    f: Function, rows: Sequence[str], kind: str, lanes: int, piece: int, first: int, there: int
) -> str:
    """Elements ``first`` to ``first + there`` of several rows, a piece each; zeros beyond them."""
    vector, part = vector_of(kind, lanes), vector_of(kind, piece)
    name = f"llvm.vector.insert.{mangled(kind, lanes)}.{mangled(kind, piece)}"
    found = "zeroinitializer"
    for number, row in enumerate(rows):
        read = load_lanes(f, f.ahead(row, kind, first), kind, piece, there)
        if lanes == piece:
            return read
        found = f.call(vector, name, (vector, found), (part, read), ("i64", str(number * piece)))
    return found


def _transposed_pieces(f: Function, rows: Sequence[str], kind: str, lanes: int) -> list[str]:
    """The columns of squares that lie side by side, each as wide as there are rows."""
    piece = len(rows)
    squares = range(0, lanes, piece)

    def mix(a: str, b: str, places: Sequence[int]) -> str:
        picks = [start + (k if k < piece else k - piece + lanes) for start in squares for k in places]
        return f.shuffled(vector_of(kind, lanes), a, b, picks)

    return mixed(rows, piece, mix)
