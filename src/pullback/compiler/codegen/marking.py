"""The different rows that places name: the routine of ``operators/distinct.py``.

Each place marks the byte of its row. Eight bytes at a time, one multiplication makes of the marks how many there are up
to each, and a number for each eight of them says how many were before. Places are never compared with each other.
"""

from __future__ import annotations

from pullback.compiler.llvm.function import Module
from pullback.compiler.llvm.language import Unit
from pullback.compiler.schedules.cost import MARKED_TOGETHER

__all__ = ["define_distinct"]

_ROUTINE = """
def {name}(places: Words, made: Words, marks: Bytes, rows: i64, count: i64, extent: i64):
    capacity = count if count < extent else extent
    groups = (extent + 63) // 64
    words: Words = marks + 0
    before: Ints = marks + 64 * groups
    whole = count - count % UNROLLED
    for index in range(rows):
        place: Words = places + 8 * count * index
        row: Words = made + 8 * (1 + capacity + count) * index
        found_rows: Words = row + 8
        numbers: Words = row + 8 * (1 + capacity)
        llvm.memset.p0.i64(marks, 0, 64 * groups, False)
        k = 0
        while k < whole:
{marking}
            k += UNROLLED
        while k < count:
            marks[place[k]] = i8(1)
            k += 1
        found = 0
        for last in range(8):
            for group in range(groups):
                word = 8 * group + last
                marked = words[word]
                before[word] = i32(found)
                if marked != 0:
                    words[word] = marked * 0x0101010101010101
                    first = 8 * word
{listing}
        row[0] = found
        llvm.memset.p0.i64(found_rows + 8 * found, 0, 8 * (capacity - found), False)
        k = 0
        while k < whole:
{numbering}
            k += UNROLLED
        while k < count:
            at = place[k]
            numbers[k] = i64(before[at >> 3]) + i64(marks[at]) - 1
            k += 1
"""
_MARK = "            marks[place[k + {0}]] = i8(1)"
_NUMBER = """            at = place[k + {0}]
            numbers[k + {0}] = i64(before[at >> 3]) + i64(marks[at]) - 1"""
_LIST = """                    # behind the last one stands what is written later
                    found_rows[found] = first + {0}
                    found += marked >> {1} & 1"""


def define_distinct(module: Module, name: str) -> None:
    """Write the routine: addresses of places, result and workspace; rows, places in each, rows of the table."""
    unit = Unit({}, {"UNROLLED": MARKED_TOGETHER}, {"llvm.memset.p0.i64": "void (ptr, i8, i64, i1)"})
    marking, numbering = (
        "\n".join(line.format(turn) for turn in range(MARKED_TOGETHER)) for line in (_MARK, _NUMBER)
    )
    listing = "\n".join(_LIST.format(k, 8 * k) for k in range(8))
    unit.write(module, _ROUTINE.format(name=name, marking=marking, listing=listing, numbering=numbering))
