"""Running totals along an axis: routines of ``operators/cumulative.py``, one pass in order, lanes beside each other.

An array is ``outer`` times ``extent`` times ``inner`` elements. Where ``inner`` fills vectors, the lanes are so many
neighbouring totals. One total alone is a chain that cannot be cut without other roundings: there each sum waits for the
one before, so totals of several rows are made in one loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pullback.compiler.codegen.blocks import load_lanes, store_lanes
from pullback.compiler.codegen.types import scalar_type, splat, vector_of
from pullback.compiler.codegen.vectormath.extrema import FirstExtremum
from pullback.compiler.llvm.function import Function, Module
from pullback.compiler.schedules.cost import CHAINS

__all__ = ["define_running"]


def define_running(module: Module, lanes: int, name: str, kind: str, dtype: str, direction: str = "") -> None:
    """Write the routine ``kind`` (``cumsum``, ``cumprod``, ``recurrence``, ``cumargmax``, ``cumargmin``).

    Its parameters are the addresses of its inputs and its result, and the extents outer, along the axis, and inner.
    """
    inputs = ["x", "b"] if kind == "recurrence" else ["x"]
    extents = [("i64", n) for n in ("outer", "extent", "inner")]
    f = module.function(name, [*[("ptr", each) for each in (*inputs, "y")], *extents])
    made = _Running(f, kind, np.dtype(dtype), direction == "reverse", inputs)
    plane = f.value(f"mul i64 {f['extent']}, {f['inner']}")
    whole = f.value(f"and i64 {f['inner']}, {-lanes}")
    with f.loop("0", f["outer"]) as outer, f.loop("0", whole, lanes, counted=False) as inner:
        row = f.value(f"mul i64 {outer.index}, {plane}")
        made.totals([f.value(f"add i64 {row}, {inner.index}")], lanes)
    several = f.value(f"and i64 {f['outer']}, {-CHAINS}")
    for first, last, rows in (("0", several, CHAINS), (several, f["outer"], 1)):
        with f.loop(first, last, rows, counted=False) as outer:
            starts = [f.value(f"mul i64 {outer.index}, {plane}")]
            for _ in range(rows - 1):
                starts.append(f.value(f"add i64 {starts[-1]}, {plane}"))
            with f.loop(whole, f["inner"], counted=False) as inner:
                made.totals([f.value(f"add i64 {start}, {inner.index}") for start in starts], 1)


class _Running:
    """The text of one routine."""

    def __init__(self, f: Function, kind: str, dtype: np.dtype, reverse: bool, inputs: list[str]) -> None:
        self.f, self.kind, self.reverse, self.inputs = f, kind, reverse, inputs
        self.dtype = np.dtype(np.uint8) if dtype.kind == "b" else dtype
        self.arg = kind.startswith("cumarg")
        self.result = np.dtype(np.int64) if self.arg else self.dtype

    def totals(self, starts: Sequence[str], lanes: int) -> None:
        """Totals along the axis from each of the elements ``starts`` on, of which ``lanes`` lie beside each other."""
        f = self.f
        step, last, place = f["inner"], f.value(f"sub i64 {f['extent']}, 1"), "0"
        if self.reverse:
            place = f.value(f"mul i64 {last}, {step}")
            step = f.value(f"sub i64 0, {step}")
        kind = vector_of(scalar_type(self.dtype), lanes)
        carried = [("i64", place)]
        number = last if self.reverse else "0"
        if self.arg:
            number = splat(f, number, "i64", lanes) if lanes > 1 else number
            carried.append((vector_of("i64", lanes), number))
        for start in starts:
            first = f.value(f"add i64 {start}, {place}")
            carried.append((kind, self._load(self.inputs[-1], first, lanes)))
            if self.arg:
                carried.append((vector_of("i64", lanes), number))
            self._store(carried[-1][1], first, lanes)
        with f.loop("1", f["extent"], carried=carried, counted=False) as loop:
            after = [f.value(f"add i64 {loop.values[0]}, {step}")]
            states = loop.values[1:]
            if self.arg:
                after.append(self._extremum(lanes).places.do("add", states.pop(0), -1 if self.reverse else 1))
            for k, start in enumerate(starts):
                at = f.value(f"add i64 {start}, {after[0]}")
                values = [self._load(name, at, lanes) for name in self.inputs]
                new: tuple[str, ...]
                if self.arg:
                    best = states[2 * k], states[2 * k + 1]
                    new = self._extremum(lanes).taken(best, (values[0], after[1]))
                else:
                    new = (self._total(states[k], values, kind),)
                self._store(new[-1], at, lanes)
                after += new
            loop.carry(*after)

    def _total(self, before: str, values: list[str], kind: str) -> str:
        prefix = "f" if self.dtype.kind == "f" else ""
        if self.kind == "recurrence":
            product = self.f.value(f"{prefix}mul {kind} {values[0]}, {before}")
            return self.f.value(f"{prefix}add {kind} {product}, {values[1]}")
        word = "add" if self.kind == "cumsum" else "mul"
        return self.f.value(f"{prefix}{word} {kind} {before}, {values[0]}")

    def _extremum(self, lanes: int) -> FirstExtremum:
        return FirstExtremum(self.f, self.kind == "cumargmax", self.dtype, self.result, lanes)

    def _load(self, name: str, place: str, lanes: int) -> str:
        kind = scalar_type(self.dtype)
        return load_lanes(self.f, self.f.ahead(self.f[name], kind, place), kind, lanes, lanes)

    def _store(self, value: str, place: str, lanes: int) -> None:
        kind = scalar_type(self.result)
        store_lanes(self.f, value, self.f.ahead(self.f["y"], kind, place), kind, lanes, lanes)
