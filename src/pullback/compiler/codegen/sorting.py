"""Positions that sort rows: the routine of ``operators/sorting.py``, by digits of 256, the last digit first.

Numbers become unsigned keys in the same order, NaN the largest, of both zeros the same. Each row is made pairs of key
and position; a digit's pass counts how often each value occurs, and so where each value's pairs begin, and moves the
pairs there in turn, so equal ones stay in their order. All digits are counted while the keys are made, and a digit that
all keys share is passed over. In short rows the counts would take longer than the elements: runs of 8 are sorted by
insertion and then merged by twos, without a branch that depends on keys.
"""

from __future__ import annotations

import numpy as np

from pullback.compiler.codegen.function import Function, Module
from pullback.compiler.codegen.types import memory_type
from pullback.compiler.cost import LONGEST_MERGED_ROW, SORTED_RUN

__all__ = ["define_argsort"]

PAIR = "{i64, i64}"


def define_argsort(module: Module, name: str, kind: str, dtype: str) -> None:
    """Write the routine: addresses of the rows, the positions and a workspace, the number of rows and their extent."""
    arrays = [("ptr", each) for each in ("x", "order", "workspace")]
    f = module.function(name, [*arrays, ("i64", "rows"), ("i64", "extent")])
    _Sort(f, np.dtype(dtype)).write()


class _Sort:
    """The text of one routine."""

    def __init__(self, f: Function, dtype: np.dtype) -> None:
        self.f, self.dtype = f, dtype
        self.digits = dtype.itemsize

    def write(self) -> None:
        f, extent = self.f, self.f["extent"]
        size = f.value(f"mul i64 {extent}, 16")
        second = f.value(f"getelementptr i8, ptr {f['workspace']}, i64 {size}")
        counts = f.value(f"getelementptr i8, ptr {second}, i64 {size}")
        is_short = f.value(f"icmp sle i64 {extent}, {LONGEST_MERGED_ROW}")
        is_long = f.value(f"xor i1 {is_short}, true")
        with f.loop("0", f["rows"]) as row:
            first = f.value(f"mul i64 {row.index}, {extent}")
            with f.when(is_short):
                self._pairs(first, None)
                self._sort_runs()
                self._write_order(first, self._merges(second))
            with f.when(is_long):
                f.call(
                    "void",
                    "llvm.memset.p0.i64",
                    ("ptr", counts),
                    ("i8", "0"),
                    ("i64", str(self.digits * 2048)),
                    ("i1", "false"),
                )
                self._pairs(first, counts)
                self._write_order(first, self._passes(counts, second))

    def _pairs(self, first: str, counts: str | None) -> None:
        """A row as pairs of key and position, with its digits counted."""
        f = self.f
        with f.loop("0", f["extent"]) as loop:
            at = f.value(f"add i64 {first}, {loop.index}")
            kind = memory_type(self.dtype)
            address = f.value(f"getelementptr {kind}, ptr {f['x']}, i64 {at}")
            key = self._key(f.value(f"load {kind}, ptr {address}, align {self.dtype.itemsize}"))
            self._set_pair(f["workspace"], loop.index, key, loop.index)
            if counts is None:
                return
            for digit in range(self.digits):
                bucket = self._bucket(counts, str(digit), self._digit(key, str(8 * digit)))
                count = f.value(f"load i64, ptr {bucket}, align 8")
                f.do(f"store i64 {f.value(f'add i64 {count}, 1')}, ptr {bucket}, align 8")

    def _key(self, value: str) -> str:
        """An unsigned integer of 64 bits that is in the order of the numbers."""
        f, bits = self.f, 8 * self.dtype.itemsize
        own, kind = f"i{bits}", memory_type(self.dtype)
        highest = str(-(2 ** (bits - 1)))
        if self.dtype.kind == "f":
            is_nan = f.value(f"fcmp uno {kind} {value}, {value}")
            value = f.value(f"fadd {kind} {value}, 0.0")  # of -0 makes +0
            raw = f.value(f"bitcast {kind} {value} to {own}")
            sign = f.value(f"ashr {own} {raw}, {bits - 1}")
            flipped = f.value(f"or {own} {sign}, {highest}")
            ordered = f.value(f"xor {own} {raw}, {flipped}")
            value = f.value(f"select i1 {is_nan}, {own} -1, {own} {ordered}")
        elif self.dtype.kind == "i":
            value = f.value(f"xor {own} {value}, {highest}")
        return value if bits == 64 else f.value(f"zext {own} {value} to i64")

    def _digit(self, key: str, shift: str) -> str:
        return self.f.value(f"and i64 {self.f.value(f'lshr i64 {key}, {shift}')}, 255")

    def _bucket(self, counts: str, digit: str, value: str) -> str:
        """Where the count of a digit's value is."""
        place = self.f.value(f"add i64 {self.f.value(f'mul i64 {digit}, 256')}, {value}")
        return self.f.value(f"getelementptr i64, ptr {counts}, i64 {place}")

    def _pair(self, pairs: str, index: str) -> tuple[str, str]:
        f = self.f
        at = f.value(f"getelementptr {PAIR}, ptr {pairs}, i64 {index}")
        behind = f.value(f"getelementptr i8, ptr {at}, i64 8")
        return f.value(f"load i64, ptr {at}, align 8"), f.value(f"load i64, ptr {behind}, align 8")

    def _set_pair(self, pairs: str, index: str, key: str, position: str) -> None:
        f = self.f
        at = f.value(f"getelementptr {PAIR}, ptr {pairs}, i64 {index}")
        behind = f.value(f"getelementptr i8, ptr {at}, i64 8")
        f.do(f"store i64 {key}, ptr {at}, align 8")
        f.do(f"store i64 {position}, ptr {behind}, align 8")

    def _sort_runs(self) -> None:
        """Each pair moved before those of its run that are larger."""
        f, pairs = self.f, self.f["workspace"]
        with f.loop("1", f["extent"], counted=False) as loop:
            key, position = self._pair(pairs, loop.index)
            start = f.value(f"and i64 {loop.index}, {-SORTED_RUN}")
            around, head, move, done = f.block, *(f.fresh(name) for name in ("look", "move", "found"))
            f.branch(head)
            f.label(head)
            free, before = f"%{f.fresh('f')}", f"%{f.fresh('b')}"
            f.do(f"{free} = phi i64 [{loop.index}, %{around}], [{before}, %{move}]")
            f.do(f"{before} = sub i64 {free}, 1")
            compare = f.fresh("compare")
            is_start = f.value(f"icmp eq i64 {free}, {start}")
            f.do(f"br i1 {is_start}, label %{done}, label %{compare}")
            f.label(compare)
            other, place = self._pair(pairs, before)
            larger = f.value(f"icmp ugt i64 {other}, {key}")
            f.do(f"br i1 {larger}, label %{move}, label %{done}")
            f.label(move)
            self._set_pair(pairs, free, other, place)
            f.branch(head)
            f.label(done)
            self._set_pair(pairs, free, key, position)

    def _merges(self, second: str) -> str:
        """Merge runs of twice the length in each round; the result is where the pairs are then."""
        f, extent = self.f, self.f["extent"]
        before, head, body, done = f.block, *(f.fresh(name) for name in ("round", "merges", "merged"))
        source, target, width = (f"%{f.fresh('r')}" for _ in range(3))
        wider = f"%{f.fresh('w')}"
        f.branch(head)
        f.label(head)
        slot = f.fresh("again")
        f.do(f"{source} = phi ptr [{f['workspace']}, %{before}], [{target}, %{slot}]")
        f.do(f"{target} = phi ptr [{second}, %{before}], [{source}, %{slot}]")
        f.do(f"{width} = phi i64 [{SORTED_RUN}, %{before}], [{wider}, %{slot}]")
        apart = f.value(f"icmp slt i64 {width}, {extent}")
        f.do(f"br i1 {apart}, label %{body}, label %{done}")
        f.label(body)
        f.do(f"{wider} = shl i64 {width}, 1")
        runs = f.value(f"add i64 {extent}, {f.value(f'sub i64 {wider}, 1')}")
        with f.loop("0", f.value(f"udiv i64 {runs}, {wider}")) as pair:
            low = f.value(f"mul i64 {pair.index}, {wider}")
            middle, high = (
                f.call("i64", "llvm.smin.i64", ("i64", f.value(f"add i64 {low}, {step}")), ("i64", extent))
                for step in (width, wider)
            )
            self._merge(source, target, low, middle, high)
        f.branch(slot)
        f.label(slot)
        f.branch(head)
        f.label(done)
        return source

    def _merge(self, source: str, target: str, low: str, middle: str, high: str) -> None:
        """Two runs, from ``low`` and from ``middle`` on, as one; of equal pairs that of the first run is first."""
        f = self.f
        with f.loop(low, high, carried=[("i64", low), ("i64", middle)]) as loop:
            left, right = loop.values
            # Behind the last pair there is memory still, if nothing that matters.
            keys = [self._pair(source, each)[0] for each in (left, right)]
            ordered = f.value(f"icmp ule i64 {keys[0]}, {keys[1]}")
            more_left = f.value(f"icmp slt i64 {left}, {middle}")
            no_right = f.value(f"icmp sge i64 {right}, {high}")
            first = f.value(f"and i1 {more_left}, {f.value(f'or i1 {ordered}, {no_right}')}")
            chosen = f.value(f"select i1 {first}, i64 {left}, i64 {right}")
            self._set_pair(target, loop.index, *self._pair(source, chosen))
            step = f.value(f"zext i1 {first} to i64")
            left = f.value(f"add i64 {left}, {step}")
            right = f.value(f"add i64 {right}, {f.value(f'sub i64 1, {step}')}")
            loop.carry(left, right)

    def _passes(self, counts: str, second: str) -> str:
        """Move the pairs by one digit after another; the result is where they are then."""
        f, extent = self.f, self.f["extent"]
        source, target = f.reserve("ptr", 8), f.reserve("ptr", 8)
        f.do(f"store ptr {f['workspace']}, ptr {source}, align 8")
        f.do(f"store ptr {second}, ptr {target}, align 8")
        with f.loop("0", str(self.digits)) as digit:
            old, new = (f.value(f"load ptr, ptr {each}, align 8") for each in (source, target))
            shift = f.value(f"mul i64 {digit.index}, 8")
            key, _ = self._pair(old, "0")
            shared = self._bucket(counts, digit.index, self._digit(key, shift))
            count = f.value(f"load i64, ptr {shared}, align 8")
            with f.when(f.value(f"icmp ne i64 {count}, {extent}")):
                with f.loop("0", "256", carried=[("i64", "0")]) as value:
                    bucket = self._bucket(counts, digit.index, value.index)
                    count = f.value(f"load i64, ptr {bucket}, align 8")
                    f.do(f"store i64 {value.values[0]}, ptr {bucket}, align 8")
                    value.carry(f.value(f"add i64 {value.values[0]}, {count}"))
                with f.loop("0", extent) as loop:
                    key, position = self._pair(old, loop.index)
                    bucket = self._bucket(counts, digit.index, self._digit(key, shift))
                    place = f.value(f"load i64, ptr {bucket}, align 8")
                    f.do(f"store i64 {f.value(f'add i64 {place}, 1')}, ptr {bucket}, align 8")
                    self._set_pair(new, place, key, position)
                f.do(f"store ptr {new}, ptr {source}, align 8")
                f.do(f"store ptr {old}, ptr {target}, align 8")
        return f.value(f"load ptr, ptr {source}, align 8")

    def _write_order(self, first: str, pairs: str) -> None:
        f = self.f
        with f.loop("0", f["extent"]) as loop:
            _, position = self._pair(pairs, loop.index)
            at = f.value(f"add i64 {first}, {loop.index}")
            address = f.value(f"getelementptr i64, ptr {f['order']}, i64 {at}")
            f.do(f"store i64 {position}, ptr {address}, align 8")
