"""Running totals along an axis: routines of ``operators/cumulative.py``, one pass in order, lanes beside each other.

An array is ``outer`` times ``extent`` times ``inner`` elements. Where ``inner`` fills vectors, the lanes are so many
neighbouring totals; one total alone is a chain that cannot be cut without other roundings.
"""

from __future__ import annotations

import numpy as np

from pullback.compiler.codegen.blocks import load_lanes, store_lanes
from pullback.compiler.codegen.types import scalar_type, splat, vector_of
from pullback.compiler.codegen.vectormath.extrema import FirstExtremum
from pullback.compiler.llvm.function import Function, Module, OpenLoop

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
        self.f, self.kind, self.reverse, self.inputs = f, kind, reverse, inputs
        self.dtype = np.dtype(np.uint8) if dtype.kind == "b" else dtype
        self.arg = kind.startswith("cumarg")
        self.result = np.dtype(np.int64) if self.arg else self.dtype

    def column(self, start: str, lanes: int) -> None:
        """Totals along the axis from the element ``start`` of its first row on, ``lanes`` beside each other."""
        f = self.f
        step, last = f["inner"], f.value(f"sub i64 {f['extent']}, 1")
        place = start
        if self.reverse:
            distance = f.value(f"mul i64 {last}, {step}")
            place = f.value(f"add i64 {start}, {distance}")
            step = f.value(f"sub i64 0, {step}")
        kind = vector_of(scalar_type(self.dtype), lanes)
        total = self._load(self.inputs[-1], place, lanes)
        carried = [("i64", place), (kind, total)]
        if self.arg:
            first = last if self.reverse else "0"
            if lanes > 1:
                first = splat(f, first, "i64", lanes)
            carried += [(vector_of("i64", lanes), first)] * 2
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

    def _total(self, loop: OpenLoop, values: list[str], kind: str) -> str:
        before = loop.values[1]
        prefix = "f" if self.dtype.kind == "f" else ""
        if self.kind == "recurrence":
            product = self.f.value(f"{prefix}mul {kind} {values[0]}, {before}")
            return self.f.value(f"{prefix}add {kind} {product}, {values[1]}")
        word = "add" if self.kind == "cumsum" else "mul"
        return self.f.value(f"{prefix}{word} {kind} {before}, {values[0]}")

    def _positions(self, loop: OpenLoop, value: str, lanes: int) -> tuple[str, ...]:
        """The best value, where it is, and the place that is looked at."""
        first = FirstExtremum(self.f, self.kind == "cumargmax", self.dtype, self.result, lanes)
        _, best, best_place, place = loop.values
        place = first.places.do("add", place, -1 if self.reverse else 1)
        return *first.taken((best, best_place), (value, place)), place

    def _load(self, name: str, place: str, lanes: int) -> str:
        kind = scalar_type(self.dtype)
        return load_lanes(self.f, self.f.ahead(self.f[name], kind, place), kind, lanes, lanes)

    def _store(self, value: str, place: str, lanes: int) -> None:
        kind = scalar_type(self.result)
        store_lanes(self.f, value, self.f.ahead(self.f["y"], kind, place), kind, lanes, lanes)
