"""Positions that sort rows: the routine of ``operators/sorting.py``, by digits of 256, the last digit first.

Numbers become unsigned keys in the same order, NaN the largest, of both zeros the same. Each row is made pairs of key
and position; a digit's pass counts how often each value occurs, and so where each value's pairs begin, and moves the
pairs there in turn, so equal ones stay in their order. All digits are counted while the keys are made, and a digit that
all keys share is passed over. In rows that are short for the digits of a number, the counts would take longer than the
elements: runs of 8 are sorted by insertion and then merged by twos, without a branch that depends on keys. Where only
the last few of the order are wanted, a row is gone through once, and those that are the last so far are held in their
order.
"""

from __future__ import annotations

import numpy as np

from pullback.compiler.llvm.function import Module
from pullback.compiler.llvm.language import Record, Unit
from pullback.compiler.schedules.cost import FEWEST_FOR_ONE, MERGED_FOR_A_DIGIT, MOST_INSERTED, SORTED_RUN

__all__ = ["define_argsort"]

_SORTING = """
# Each pair moved before those of its run that are larger.
def pullback_sort_runs(pairs: Pair, extent: i64):
    for index in range(1, extent):
        key = pairs[index].KEY
        position = pairs[index].POSITION
        start = index & -SORTED_RUN
        free = index
        while free != start and pairs[free - 1].KEY > key:
            pairs[free].KEY = pairs[free - 1].KEY
            pairs[free].POSITION = pairs[free - 1].POSITION
            free -= 1
        pairs[free].KEY = key
        pairs[free].POSITION = position

# Two runs, from low and from middle on, as one; of equal pairs that of the first run is first.
def pullback_sort_merge(source: Pair, target: Pair, low: i64, middle: i64, high: i64):
    left = low
    right = middle
    for index in range(low, high):
        # behind the last pair there is memory still, if nothing that matters
        first = (left < middle) & ((source[left].KEY <= source[right].KEY) | (right >= high))
        chosen = source[left if first else right]
        target[index].KEY = chosen.KEY
        target[index].POSITION = chosen.POSITION
        left += i64(first)
        right += 1 - i64(first)

# Merge runs of twice the length in each round; the result is where the pairs are then.
def pullback_sort_merges(source: Pair, target: Pair, extent: i64) -> Pair:
    width = SORTED_RUN
    while width < extent:
        low = 0
        while low < extent:
            middle = low + width if low + width < extent else extent
            high = middle + width if middle + width < extent else extent
            pullback_sort_merge(source, target, low, middle, high)
            low = high
        merged = target
        target = source
        source = merged
        width = width << 1
    return source

# Move the pairs by one digit after another; the result is where they are then.
def pullback_sort_digits(source: Pair, target: Pair, counts: Words, digits: i64, extent: i64) -> Pair:
    for digit in range(digits):
        shift = 8 * digit
        buckets: Words = counts + 2048 * digit
        if buckets[source[0].KEY >> shift & 255] == extent:
            continue
        place = 0
        for value in range(256):
            count = buckets[value]
            buckets[value] = place
            place += count
        for index in range(extent):
            bucket = source[index].KEY >> shift & 255
            here = target[buckets[bucket]]
            buckets[bucket] += 1
            here.KEY = source[index].KEY
            here.POSITION = source[index].POSITION
        moved = target
        target = source
        source = moved
    return source

# Put a pair among those that are held, the largest so far, which rise. It comes from before all of them, so equal ones
# stay behind it. The result is how many are held.
def pullback_sort_insert(pairs: Pair, held: i64, wanted: i64, key: i64, position: i64) -> i64:
    free = held
    if held < wanted:
        while free > 0 and pairs[free - 1].KEY >= key:
            pairs[free].KEY = pairs[free - 1].KEY
            pairs[free].POSITION = pairs[free - 1].POSITION
            free -= 1
        held += 1
    else:
        if pairs[0].KEY >= key:
            return held
        free = 0
        while free + 1 < held and pairs[free + 1].KEY < key:
            pairs[free].KEY = pairs[free + 1].KEY
            pairs[free].POSITION = pairs[free + 1].POSITION
            free += 1
    pairs[free].KEY = key
    pairs[free].POSITION = position
    return held
"""

_ROUTINE = """
def {name}(x: {array}, order: Words, workspace: Pair, rows: i64, extent: i64, wanted: i64):
    second = workspace[extent]
    counts: Words = second[extent]
    are_few = (wanted <= MOST_INSERTED) & (wanted * FEWEST_FOR_ONE <= extent)
    is_short = (extent <= LONGEST_MERGED_ROW) | are_few
    for row in range(rows):
        first = row * extent
        if not is_short:
            llvm.memset.p0.i64(counts, 0, 2048 * DIGITS, False)
        held = 0
        for count in range(extent):
            index = extent - 1 - count if are_few else count
            # an unsigned number that is in the order of the numbers, of which NaN is the largest
            key = i64(x[first + index]) & ALL
            if KIND == "f":
                is_nan = (key & (SIGN - 1)) > INFINITY
                key = 0 if key == SIGN else key
                key = key ^ ALL if key >= SIGN else key | SIGN
                key = ALL if is_nan else key
            elif KIND == "i":
                key = key ^ SIGN
            if are_few:
                held = pullback_sort_insert(workspace, held, wanted, key, index)
            else:
                workspace[index].KEY = key
                workspace[index].POSITION = index
            if not is_short:
{counting}
        if are_few:
            sorted = workspace
        elif is_short:
            pullback_sort_runs(workspace, extent)
            sorted = pullback_sort_merges(workspace, second, extent)[extent - wanted]
        else:
            sorted = pullback_sort_digits(workspace, second, counts, DIGITS, extent)[extent - wanted]
        for index in range(wanted):
            order[row * wanted + index] = sorted[index].POSITION
"""
_ARRAYS = {1: "Bytes", 2: "Halves", 4: "Ints", 8: "Words"}
_PAIR = Record(KEY="i64", POSITION="i64")


def define_argsort(module: Module, name: str, dtype: str) -> None:
    """Write the routine: addresses of the rows, the positions and a workspace, and three numbers as named in it."""
    size = np.dtype(dtype).itemsize
    constants = {
        "KIND": np.dtype(dtype).kind,
        "DIGITS": size,
        "ALL": (1 << 8 * size) - 1,
        "SIGN": 1 << 8 * size - 1,
        "INFINITY": _bits_of_infinity(np.dtype(dtype)),
        "SORTED_RUN": SORTED_RUN,
        "LONGEST_MERGED_ROW": MERGED_FOR_A_DIGIT * size,
        "MOST_INSERTED": MOST_INSERTED,
        "FEWEST_FOR_ONE": FEWEST_FOR_ONE,
    }
    unit = Unit({"Pair": _PAIR}, constants, {"llvm.memset.p0.i64": "void (ptr, i8, i64, i1)"})
    counting = [f"counts[{256 * digit} + (key >> {8 * digit} & 255)] += 1" for digit in range(size)]
    lines = "\n".join(f"                {line}" for line in counting)
    unit.write(module, _SORTING, _ROUTINE.format(name=name, array=_ARRAYS[size], counting=lines))


def _bits_of_infinity(dtype: np.dtype) -> int:
    return int(np.array(np.inf, dtype).view(f"u{dtype.itemsize}")) if dtype.kind == "f" else 0
