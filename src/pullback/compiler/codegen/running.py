"""Running totals along an axis: routines of ``operators/cumulative.py``, one pass in order, lanes beside each other.

An array is ``outer`` times ``extent`` times ``inner`` elements. Where ``inner`` fills vectors, the lanes are so many
neighbouring totals; one total alone is a chain that cannot be cut without other roundings.
"""

from __future__ import annotations

import numpy as np

from pullback.compiler.codegen.types import literal, memory_type, vector_of
from pullback.compiler.llvm.function import Function, Loop, Module

__all__ = ["define_running"]


def define_running(module: Module, lanes: int, name: str, kind: str, dtype: str, direction: str = "") -> None:
    """Write the routine ``kind`` (``cumsum``, ``cumprod``, ``recurrence``, ``cumargmax``, ``cumargmin``).

    Its parameters are the addresses of its inputs and its result, and the extents outer, along the axis, and inner.
    """
    inputs = ["x", "b"] if kind == "recurrence" else ["x"]
    extents = [("i64", n) for n in ("outer", "extent", "inner")]
    f = module.function(name, [*[("ptr", each) for each in (*inputs, "y")], *extents])
    made = _Running(f, kind, np.dtype(dtype), direction == "reverse", inputs)
    with f.loop("0", f["outer"]) as outer:
        plane = f.value(f"mul i64 {f['extent']}, {f['inner']}")
        row = f.value(f"mul i64 {outer.index}, {plane}")
        whole = f.value(f"and i64 {f['inner']}, {-lanes}")
        with f.loop("0", whole, lanes, counted=False) as inner:
            made.column(f.value(f"add i64 {row}, {inner.index}"), lanes)
        with f.loop(whole, f["inner"], counted=False) as inner:
            made.column(f.value(f"add i64 {row}, {inner.index}"), 1)


class _Running:
    """The text of one routine."""

    def __init__(self, f: Function, kind: str, dtype: np.dtype, reverse: bool, inputs: list[str]) -> None:
        self.f, self.kind, self.dtype, self.reverse, self.inputs = f, kind, dtype, reverse, inputs
        self.arg = kind.startswith("cumarg")
        self.result = np.dtype(np.int64) if self.arg else dtype

    def column(self, start: str, lanes: int) -> None:
        """Totals along the axis from the element ``start`` of its first row on, ``lanes`` beside each other."""
        f = self.f
        step, last = f["inner"], f.value(f"sub i64 {f['extent']}, 1")
        place = start
        if self.reverse:
            distance = f.value(f"mul i64 {last}, {step}")
            place = f.value(f"add i64 {start}, {distance}")
            step = f.value(f"sub i64 0, {step}")
        kind = _vector(self.dtype, lanes)
        total = self._load(self.inputs[-1], place, lanes)
        carried = [("i64", place), (kind, total)]
        if self.arg:
            first = self._splat(last if self.reverse else "0", lanes)
            carried += [(_vector(self.result, lanes), first)] * 2
            self._store(first, place, lanes)
        else:
            self._store(total, place, lanes)
        with f.loop("1", f["extent"], carried=carried, counted=False) as loop:
            at = f.value(f"add i64 {loop.values[0]}, {step}")
            values = [self._load(name, at, lanes) for name in self.inputs]
            if self.arg:
                carry = self._positions(loop, values[0], lanes)
                self._store(carry[1], at, lanes)
            else:
                carry = (self._total(loop, values, kind),)
                self._store(carry[0], at, lanes)
            loop.carry(at, *carry)

    def _total(self, loop: Loop, values: list[str], kind: str) -> str:
        before = loop.values[1]
        prefix = "f" if self.dtype.kind == "f" else ""
        if self.kind == "recurrence":
            product = self.f.value(f"{prefix}mul {kind} {values[0]}, {before}")
            return self.f.value(f"{prefix}add {kind} {product}, {values[1]}")
        word = "add" if self.kind == "cumsum" else "mul"
        return self.f.value(f"{prefix}{word} {kind} {before}, {values[0]}")

    def _positions(self, loop: Loop, value: str, lanes: int) -> tuple[str, ...]:
        """The best value, where it is, and the place that is looked at."""
        f, kind, places = self.f, _vector(self.dtype, lanes), _vector(self.result, lanes)
        _, best, best_place, place = loop.values
        one = -1 if self.reverse else 1
        place = f.value(f"add {places} {place}, {literal(self.result, one, lanes)}")
        larger = self.kind == "cumargmax"
        if self.dtype.kind == "f":
            wins = f.value(f"fcmp {'ogt' if larger else 'olt'} {kind} {value}, {best}")
            mask = _mask(lanes)
            is_nan = f.value(f"fcmp uno {kind} {value}, {value}")
            was_number = f.value(f"fcmp ord {kind} {best}, {best}")
            begins = f.value(f"and {mask} {is_nan}, {was_number}")
            wins = f.value(f"or {mask} {wins}, {begins}")
        else:
            sign = "u" if self.dtype.kind == "u" else "s"
            wins = f.value(f"icmp {sign}{'gt' if larger else 'lt'} {kind} {value}, {best}")
        best = f.value(f"select {_mask(lanes)} {wins}, {kind} {value}, {kind} {best}")
        best_place = f.value(f"select {_mask(lanes)} {wins}, {places} {place}, {places} {best_place}")
        return best, best_place, place

    def _load(self, name: str, place: str, lanes: int) -> str:
        element, f = memory_type(self.dtype), self.f
        address = f.value(f"getelementptr {element}, ptr {f[name]}, i64 {place}")
        return f.value(f"load {_vector(self.dtype, lanes)}, ptr {address}, align {self.dtype.itemsize}")

    def _store(self, value: str, place: str, lanes: int) -> None:
        f = self.f
        address = f.value(f"getelementptr {memory_type(self.result)}, ptr {f['y']}, i64 {place}")
        f.do(f"store {_vector(self.result, lanes)} {value}, ptr {address}, align {self.result.itemsize}")

    def _splat(self, value: str, lanes: int) -> str:
        if lanes == 1:
            return value
        kind, f = _vector(self.result, lanes), self.f
        first = f.value(f"insertelement {kind} poison, i64 {value}, i64 0")
        return f.value(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")


def _vector(dtype: np.dtype, lanes: int) -> str:
    return vector_of(memory_type(dtype), lanes)


def _mask(lanes: int) -> str:
    return vector_of("i1", lanes)
