"""Fourier transforms: the routines of ``operators/stockham.py``, which says what a pass computes.

Real and imaginary parts lie in turns, and stay so in registers: a product with ``i`` exchanges the two of each pair.
The first pass has its lanes along the roots of unity, all others along the elements that lie beside each other. Passes
write to the result and to the workspace in turns, so that the last one writes to the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from pullback.compiler.codegen.function import Function, Module, float_literal
from pullback.compiler.codegen.types import literal, scalar_type, vector_of
from pullback.operators.stockham import radices

__all__ = ["define_transform"]


def define_transform(
    module: Module, lanes: int, name: str, kind: str, dtype: str, length: str, beside: str
) -> None:
    """Write ``fft``, ``ifft``, ``rfft`` or ``irfft`` of ``length`` complex elements with so many ``beside`` each.

    Its parameters are the addresses of the array, the result, the workspace and the roots of unity, the number of rows
    and the factor.
    """
    element, count = np.dtype(dtype), int(length) * int(beside)
    pointers = [("ptr", each) for each in ("x", "y", "work", "roots")]
    f = module.function(name, [*pointers, ("i64", "rows"), (scalar_type(element), "factor")])
    made = _Transform(f, element, max(1, lanes // 2), kind in ("fft", "rfft"))
    frequencies = 2 * (count + 1)
    given = frequencies if kind == "irfft" else 2 * count
    result = frequencies if kind == "rfft" else 2 * count
    with f.loop("0", f["rows"], counted=False) as row:
        x, y = (
            f.ahead(f[each], made.element, f.value(f"mul i64 {row.index}, {size}"))
            for each, size in (("x", given), ("y", result))
        )
        made.row(kind, x, y, int(length), int(beside))


class _Transform:
    """The text of one routine; a vector holds up to ``width`` complex numbers."""

    def __init__(self, f: Function, dtype: np.dtype, width: int, forward: bool) -> None:
        self.f, self.dtype, self.width, self.forward = f, dtype, width, forward
        self.element = scalar_type(dtype)

    def row(self, kind: str, x: str, y: str, length: int, beside: int) -> None:
        """The transforms of ``beside`` rows of which the elements lie side by side; of one where it is of reals."""
        passes = radices(length)
        assert passes is not None
        targets = [y if (len(passes) - k) % 2 else self.f["work"] for k in range(len(passes))]
        ahead = sum(length // math.prod(passes[: k + 1]) * (r - 1) for k, r in enumerate(passes[:-1]))
        source = x
        if kind == "irfft":
            source = self.f["work"] if targets[0] == y else y
            self._join_spectrum(x, source, length, ahead)
        first, left = 0, length
        for radix, target in zip(passes, targets):
            left //= radix
            scales = left == 1 and kind != "rfft"
            if beside == 1 and left > 1:
                self._first_pass(source, target, radix, left, first)
            else:
                self._pass(source, target, radix, left, beside, first, scales)
            first += left * (radix - 1)
            beside *= radix
            source = target
        if kind == "rfft":
            self._part_spectrum(y, length, ahead)

    # -- Passes

    def _first_pass(self, source: str, target: str, radix: int, left: int, first: int) -> None:
        """A pass over elements that have none beside them: a vector is of neighbouring roots."""
        for start, stop, width in self._pieces(0, left):
            with self._turns(start, stop, width) as at:
                near = self._near(source, at)
                parts = [self._load(near, u * left, width) for u in range(radix)]
                roots = self._near(self.f["roots"], at)
                made = self._butterfly(parts, width)
                for t in range(1, radix):
                    root = self._load(roots, first + (t - 1) * left, width)
                    made[t] = self._turned(made[t], root, width, self.forward)
                place = self._near(target, self.f.value(f"mul i64 {at}, {radix}"))
                self._store_mixed(place, made, width)

    def _pass(
        self, source: str, target: str, radix: int, left: int, beside: int, first: int, scales: bool
    ) -> None:
        """A pass over elements beside each other, which have their roots in common."""
        f = self.f
        with self._turns(0, left, 1) as row:
            roots = self._near(f["roots"], row)
            places = range(first, first + (radix - 1) * left, left) if left > 1 else ()
            common = [self._repeated(self._load(roots, place, 1)) for place in places]
            begin = f.value(f"mul i64 {row}, {beside}")
            for start, stop, width in self._pieces(0, beside):
                with self._turns(start, stop, width) as k:
                    at = f.value(f"add i64 {begin}, {k}")
                    near = self._near(source, at)
                    parts = [self._load(near, u * left * beside, width) for u in range(radix)]
                    made = self._butterfly(parts, width)
                    for t, root in enumerate(common, 1):
                        made[t] = self._turned(made[t], self._first(root, width), width, self.forward)
                    if scales:
                        factor = self._splat(f["factor"], width)
                        made = [self._value("fmul", each, factor, width) for each in made]
                    ahead = f.value(f"mul i64 {begin}, {radix - 1}")
                    place = self._near(target, f.value(f"add i64 {at}, {ahead}"))
                    for t in range(radix):
                        self._store(place, t * beside, made[t], width)

    def _butterfly(self, x: Sequence[str], width: int) -> list[str]:
        """The transform of as many vectors as the radix."""

        def add(a: str, b: str) -> str:
            return self._value("fadd", a, b, width)

        def subtract(a: str, b: str) -> str:
            return self._value("fsub", a, b, width)

        def scaled(a: str, by: float, to: str = "") -> str:
            factor = literal(self.dtype, by, 2 * width)
            return self._plus_product(to, a, factor, width) if to else self._value("fmul", a, factor, width)

        def turned(a: str) -> str:
            return self._times_i(a, width, -1 if self.forward else 1)

        if len(x) == 2:
            return [add(x[0], x[1]), subtract(x[0], x[1])]
        if len(x) == 3:
            both = add(x[1], x[2])
            middle = scaled(both, -0.5, to=x[0])
            side = turned(scaled(subtract(x[1], x[2]), math.sin(math.pi / 3)))
            return [add(x[0], both), add(middle, side), subtract(middle, side)]
        if len(x) == 4:
            even, odd = add(x[0], x[2]), add(x[1], x[3])
            middle, side = subtract(x[0], x[2]), turned(subtract(x[1], x[3]))
            return [add(even, odd), add(middle, side), subtract(even, odd), subtract(middle, side)]
        near, far = add(x[1], x[4]), add(x[2], x[3])
        left, right = subtract(x[1], x[4]), subtract(x[2], x[3])
        cosines = [math.cos(2 * math.pi * k / 5) for k in (1, 2)]
        sines = [math.sin(2 * math.pi * k / 5) for k in (1, 2)]
        first = scaled(far, cosines[1], to=scaled(near, cosines[0], to=x[0]))
        second = scaled(far, cosines[0], to=scaled(near, cosines[1], to=x[0]))
        aside = turned(scaled(right, sines[1], to=scaled(left, sines[0])))
        beyond = turned(scaled(right, -sines[0], to=scaled(left, sines[1])))
        return [
            add(x[0], add(near, far)),
            add(first, aside),
            add(second, beyond),
            subtract(second, beyond),
            subtract(first, aside),
        ]

    # -- Half a spectrum

    def _part_spectrum(self, y: str, length: int, first: int) -> None:
        """In place, from the transform of pairs of neighbours to the frequencies of all of them."""
        f, half = self.f, self.f.value(f"fmul {self.element} {self.f['factor']}, 0.5")
        for start, stop, width in self._pieces(1, (length + 1) // 2):
            with self._turns(start, stop, width) as k:
                low, high = self._load(self._near(y, k), 0, width), self._mirrored(y, k, length, width)
                even, odd = self._halves(low, high, width)
                root = self._load(self._near(f["roots"], k), first - 1, width)
                odd = self._times_i(self._turned(odd, root, width, forward=True), width, -1)
                share = self._splat(half, width)
                even, odd = (self._value("fmul", each, share, width) for each in (even, odd))
                self._store(self._near(y, k), 0, self._value("fadd", even, odd, width), width)
                other = self._conjugate(self._value("fsub", even, odd, width), width)
                self._store_mirrored(y, k, length, other, width)
        if length % 2 == 0:
            middle = self._conjugate(self._load(y, length // 2, 1), 1)
            self._store(y, length // 2, self._value("fmul", middle, self._splat(f["factor"], 1), 1), 1)
        both = [f.value(f"extractelement {self._vector(1)} {self._load(y, 0, 1)}, i32 {k}") for k in (0, 1)]
        for place, operation in ((0, "fadd"), (length, "fsub")):
            made = f.value(f"{operation} {self.element} {both[0]}, {both[1]}")
            made = f.value(f"fmul {self.element} {made}, {f['factor']}")
            self._store(y, place, self._pair(made, float_literal(self.element, 0.0)), 1)

    def _join_spectrum(self, x: str, target: str, length: int, first: int) -> None:
        """From the frequencies to those of pairs of neighbours, twice as large."""
        f = self.f
        for start, stop, width in self._pieces(1, (length + 1) // 2):
            with self._turns(start, stop, width) as k:
                low, high = self._load(self._near(x, k), 0, width), self._mirrored(x, k, length, width)
                even, odd = self._halves(low, high, width)
                root = self._load(self._near(f["roots"], k), first - 1, width)
                odd = self._times_i(self._turned(odd, root, width, forward=False), width, 1)
                self._store(self._near(target, k), 0, self._value("fadd", even, odd, width), width)
                other = self._conjugate(self._value("fsub", even, odd, width), width)
                self._store_mirrored(target, k, length, other, width)
        if length % 2 == 0:
            middle = self._conjugate(self._load(x, length // 2, 1), 1)
            self._store(target, length // 2, self._value("fadd", middle, middle, 1), 1)
        ends = [self._load_one(x, 2 * place) for place in (0, length)]
        made = [f.value(f"{word} {self.element} {ends[0]}, {ends[1]}") for word in ("fadd", "fsub")]
        self._store(target, 0, self._pair(*made), 1)

    def _halves(self, low: str, high: str, width: int) -> tuple[str, str]:
        """A vector of frequencies plus and minus the conjugates of those that mirror them."""
        mirror = self._conjugate(high, width)
        return self._value("fadd", low, mirror, width), self._value("fsub", low, mirror, width)

    def _mirrored(self, base: str, k: str, length: int, width: int) -> str:
        """The frequencies ``length - k`` downwards."""
        place = self.f.value(f"sub i64 {length - width + 1}, {k}")
        return self._reversed(self._load(self._near(base, place), 0, width), width)

    def _store_mirrored(self, base: str, k: str, length: int, value: str, width: int) -> None:
        place = self.f.value(f"sub i64 {length - width + 1}, {k}")
        self._store(self._near(base, place), 0, self._reversed(value, width), width)

    # -- Complex arithmetic

    def _turned(self, x: str, root: str, width: int, forward: bool) -> str:
        """The product with roots of unity, or with their conjugates."""
        real = self._shuffled(root, root, [lane & ~1 for lane in range(2 * width)], width)
        imaginary = self._shuffled(root, root, [lane | 1 for lane in range(2 * width)], width)
        aside = self._value("fmul", self._times_i(x, width, 1 if forward else -1), imaginary, width)
        return self._plus_product(aside, x, real, width)

    def _times_i(self, x: str, width: int, sign: int) -> str:
        """``i x`` or ``-i x``."""
        swapped = self._shuffled(x, x, [lane ^ 1 for lane in range(2 * width)], width)
        signs = [-sign, sign] * width
        return self._value("fmul", swapped, self._constants(signs), width)

    def _conjugate(self, x: str, width: int) -> str:
        return self._value("fmul", x, self._constants([1, -1] * width), width)

    def _plus_product(self, total: str, a: str, b: str, width: int) -> str:
        kind = self._vector(width)
        name = f"llvm.fmuladd.v{2 * width}f{8 * self.dtype.itemsize}"
        return self.f.call(kind, name, (kind, a), (kind, b), (kind, total))

    def _value(self, operation: str, a: str, b: str, width: int) -> str:
        return self.f.value(f"{operation} {self._vector(width)} {a}, {b}")

    # -- Vectors and places

    def _vector(self, width: int) -> str:
        return vector_of(self.element, 2 * width)

    def _constants(self, values: Sequence[float]) -> str:
        return f"<{', '.join(f'{self.element} {float_literal(self.element, v)}' for v in values)}>"

    def _shuffled(self, a: str, b: str, lanes: Sequence[int], width: int) -> str:
        return self.f.shuffled(self._vector(width), a, b, lanes)

    def _reversed(self, x: str, width: int) -> str:
        lanes = [2 * (width - 1 - k) + part for k in range(width) for part in (0, 1)]
        return self._shuffled(x, x, lanes, width)

    def _store_mixed(self, base: str, x: Sequence[str], width: int) -> None:
        """Store the first complex numbers of all vectors, then the second ones, and so on."""
        if len(x) % 2:
            for k, t in ((k, t) for k in range(width) for t in range(len(x))):
                self._store(base, k * len(x) + t, self._shuffled(x[t], x[t], [2 * k, 2 * k + 1], width), 1)
            return
        whole, size = list(x), width
        while len(whole) > 1:  # one behind the other
            pairs = zip(whole[::2], whole[1::2])
            whole = [self._shuffled(a, b, range(4 * size), size) for a, b in pairs]
            size *= 2
        picks = [2 * (t * width + k) + part for k in range(width) for t in range(len(x)) for part in (0, 1)]
        self._store(base, 0, self._shuffled(whole[0], whole[0], picks, size), size)

    def _repeated(self, pair: str) -> str:
        """One complex number in each place of a vector."""
        return self._shuffled(pair, pair, [0, 1] * self.width, 1)

    def _first(self, x: str, width: int) -> str:
        """The first places of a whole vector."""
        return x if width == self.width else self._shuffled(x, x, range(2 * width), self.width)

    def _splat(self, value: str, width: int) -> str:
        first = self.f.value(f"insertelement {self._vector(width)} poison, {self.element} {value}, i32 0")
        return self._shuffled(first, first, [0] * 2 * width, width)

    def _pair(self, real: str, imaginary: str) -> str:
        kind = self._vector(1)
        made = self.f.value(f"insertelement {kind} poison, {self.element} {real}, i32 0")
        return self.f.value(f"insertelement {kind} {made}, {self.element} {imaginary}, i32 1")

    def _pieces(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """``range(start, stop)`` in whole vectors, then in ever smaller ones."""
        found, width = [], self.width
        while start < stop:
            end = start + (stop - start) // width * width
            if end > start:
                found.append((start, end, width))
            start, width = end, width // 2
        return found

    @contextmanager
    def _turns(self, start: int, stop: int, step: int) -> Iterator[str]:
        """A loop over places, or none where there is only one."""
        if stop - start == step:
            yield str(start)
            return
        with self.f.loop(str(start), str(stop), step) as loop:
            yield loop.index

    def _near(self, base: str, at: str) -> str:
        """The address of a complex number."""
        return self.f.ahead(base, f"[2 x {self.element}]", at)

    def _load(self, base: str, ahead: int, width: int) -> str:
        place = self.f.ahead(base, f"[2 x {self.element}]", ahead)
        return self.f.value(f"load {self._vector(width)}, ptr {place}, align {self.dtype.itemsize}")

    def _load_one(self, base: str, ahead: int) -> str:
        place = self.f.ahead(base, self.element, ahead)
        return self.f.value(f"load {self.element}, ptr {place}, align {self.dtype.itemsize}")

    def _store(self, base: str, ahead: int, value: str, width: int) -> None:
        place = self.f.ahead(base, f"[2 x {self.element}]", ahead)
        self.f.do(f"store {self._vector(width)} {value}, ptr {place}, align {self.dtype.itemsize}")
