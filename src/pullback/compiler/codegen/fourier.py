"""Fourier transforms: the routines of ``operators/stockham.py``, which says what a pass computes.

Real and imaginary parts lie in turns, and stay so in registers: a product with ``i`` exchanges the two of each pair.
The first pass has its lanes along the roots of unity, all others along the elements that lie beside each other. Passes
write to the result and to the workspace in turns, so that the last one writes to the result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from pullback.compiler.codegen.types import constants, scalar_type
from pullback.compiler.codegen.vectormath.lanes import Arithmetic
from pullback.compiler.llvm.function import Function, Module, float_literal
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
    with f.loop("0", f["rows"], counted=False) as turn:
        x, y = (
            f.ahead(f[each], made.element, f.value(f"mul i64 {turn.index}, {size}"))
            for each, size in (("x", given), ("y", result))
        )
        made.row(kind, x, y, int(length), int(beside))


class _Complex(Arithmetic):
    """Vectors of ``numbers`` complex numbers: a real and an imaginary part each, in turns."""

    def __init__(self, f: Function, kind: str, numbers: int) -> None:
        super().__init__(f, kind, 2 * numbers)
        self.numbers = numbers

    def shuffled(self, a: str, lanes: Iterable[int]) -> str:
        """These lanes of a vector."""
        return self.function.shuffled(self.type, a, a, lanes)

    def reversed(self, a: str) -> str:
        """The numbers in the opposite order."""
        return self.shuffled(a, [2 * k + part for k in reversed(range(self.numbers)) for part in (0, 1)])

    def splat(self, value: str) -> str:
        """One real number in each lane."""
        first = self.function.value(f"insertelement {self.type} poison, {self.kind} {value}, i32 0")
        return self.shuffled(first, [0] * self.count)

    def constants(self, values: Sequence[float]) -> str:
        """A number for each lane."""
        return constants(self.kind, [float_literal(self.kind, value) for value in values])

    def plus_product(self, total: str, a: str, b: str) -> str:
        """``total + a * b``, each real number by itself."""
        return self.intrinsic("fmuladd", a, b, total)

    def times_i(self, a: str, sign: int) -> str:
        """``i a`` or ``-i a``."""
        swapped = self.shuffled(a, [lane ^ 1 for lane in range(self.count)])
        return self.mul(swapped, self.constants([-sign, sign] * self.numbers))

    def conjugate(self, a: str) -> str:
        """The conjugates."""
        return self.mul(a, self.constants([1, -1] * self.numbers))

    def turned(self, a: str, root: str, forward: bool) -> str:
        """The product with roots of unity, or with their conjugates."""
        real = self.shuffled(root, [lane & ~1 for lane in range(self.count)])
        imaginary = self.shuffled(root, [lane | 1 for lane in range(self.count)])
        aside = self.mul(self.times_i(a, 1 if forward else -1), imaginary)
        return self.plus_product(aside, a, real)

    def near(self, base: str, at: int | str) -> str:
        """The address of a complex number."""
        return self.function.ahead(base, f"[2 x {self.kind}]", at)

    def read(self, base: str, ahead: int) -> str:
        """The numbers so far ahead of an address."""
        return self.load(self.near(base, ahead))

    def write(self, base: str, ahead: int, value: str) -> None:
        """Put numbers so far ahead of an address."""
        self.store(value, self.near(base, ahead))


class _Transform:
    """The text of one routine; a vector holds up to ``width`` complex numbers."""

    def __init__(self, f: Function, dtype: np.dtype, width: int, forward: bool) -> None:
        self.f, self.width, self.forward = f, width, forward
        self.element = scalar_type(dtype)
        self.whole, self.one = (_Complex(f, self.element, numbers) for numbers in (width, 1))

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
        for on, at in self._places(0, left):
            near = on.near(source, at)
            parts = [on.read(near, u * left) for u in range(radix)]
            roots = on.near(self.f["roots"], at)
            made = self._butterfly(on, parts)
            for t in range(1, radix):
                root = on.read(roots, first + (t - 1) * left)
                made[t] = on.turned(made[t], root, self.forward)
            place = on.near(target, self.f.value(f"mul i64 {at}, {radix}"))
            self._write_mixed(on, place, made)

    def _pass(
        self, source: str, target: str, radix: int, left: int, beside: int, first: int, scales: bool
    ) -> None:
        """A pass over elements beside each other, which have their roots in common."""
        f, one = self.f, self.one
        with self._turns(0, left, 1) as turn:
            roots = one.near(f["roots"], turn)
            places = range(first, first + (radix - 1) * left, left) if left > 1 else ()
            common = [self._repeated(one.read(roots, place)) for place in places]
            begin = f.value(f"mul i64 {turn}, {beside}")
            for on, k in self._places(0, beside):
                at = f.value(f"add i64 {begin}, {k}")
                near = on.near(source, at)
                parts = [on.read(near, u * left * beside) for u in range(radix)]
                made = self._butterfly(on, parts)
                for t, root in enumerate(common, 1):
                    made[t] = on.turned(made[t], self._first(root, on), self.forward)
                if scales:
                    factor = on.splat(f["factor"])
                    made = [on.mul(each, factor) for each in made]
                ahead = f.value(f"mul i64 {begin}, {radix - 1}")
                place = on.near(target, f.value(f"add i64 {at}, {ahead}"))
                for t in range(radix):
                    on.write(place, t * beside, made[t])

    def _butterfly(self, on: _Complex, x: Sequence[str]) -> list[str]:
        """The transform of as many vectors as the radix."""

        def scaled(a: str, by: float, to: str = "") -> str:
            factor = on.constant(by)
            return on.plus_product(to, a, factor) if to else on.mul(a, factor)

        def turned(a: str) -> str:
            return on.times_i(a, -1 if self.forward else 1)

        add, subtract = on.add, on.sub
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
        f, one = self.f, self.one
        half = f.value(f"fmul {self.element} {f['factor']}, 0.5")
        self._fold(y, y, length, first, half)
        if length % 2 == 0:
            middle = one.conjugate(one.read(y, length // 2))
            one.write(y, length // 2, one.mul(middle, one.splat(f["factor"])))
        both = [f.value(f"extractelement {one.type} {one.read(y, 0)}, i32 {k}") for k in (0, 1)]
        for place, operation in ((0, "fadd"), (length, "fsub")):
            made = f.value(f"{operation} {self.element} {both[0]}, {both[1]}")
            made = f.value(f"fmul {self.element} {made}, {f['factor']}")
            one.write(y, place, self._pair(made, float_literal(self.element, 0.0)))

    def _join_spectrum(self, x: str, target: str, length: int, first: int) -> None:
        """From the frequencies to those of pairs of neighbours, twice as large."""
        f, one = self.f, self.one
        self._fold(x, target, length, first)
        if length % 2 == 0:
            middle = one.conjugate(one.read(x, length // 2))
            one.write(target, length // 2, one.add(middle, middle))
        real = Arithmetic(f, self.element, 1)
        ends = [real.load(f.ahead(x, self.element, 2 * place)) for place in (0, length)]
        one.write(target, 0, self._pair(real.add(*ends), real.sub(*ends)))

    def _fold(self, source: str, target: str, length: int, first: int, share: str = "") -> None:
        """Frequencies below the middle, with those that mirror them: of a transform forward a ``share``."""
        for on, k in self._places(1, (length + 1) // 2):
            low = on.load(on.near(source, k))
            high = on.conjugate(on.reversed(on.load(self._mirror(on, source, k, length))))
            even, odd = on.add(low, high), on.sub(low, high)
            root = on.read(on.near(self.f["roots"], k), first - 1)
            odd = on.times_i(on.turned(odd, root, self.forward), -1 if self.forward else 1)
            if share:
                factor = on.splat(share)
                even, odd = on.mul(even, factor), on.mul(odd, factor)
            on.write(on.near(target, k), 0, on.add(even, odd))
            mirrored = on.conjugate(on.sub(even, odd))
            on.write(self._mirror(on, target, k, length), 0, on.reversed(mirrored))

    def _mirror(self, on: _Complex, base: str, k: str, length: int) -> str:
        """Where the frequencies ``length - k`` downwards lie, the last one first."""
        return on.near(base, self.f.value(f"sub i64 {length - on.numbers + 1}, {k}"))

    # -- Vectors and places

    def _write_mixed(self, on: _Complex, base: str, x: Sequence[str]) -> None:
        """Store the first complex numbers of all vectors, then the second ones, and so on."""
        if len(x) % 2:
            for k, t in itertools.product(range(on.numbers), range(len(x))):
                self.one.write(base, k * len(x) + t, on.shuffled(x[t], [2 * k, 2 * k + 1]))
            return
        whole, made = list(x), on
        while len(whole) > 1:  # one behind the other
            pairs = zip(whole[::2], whole[1::2])
            whole = [self.f.shuffled(made.type, a, b, range(2 * made.count)) for a, b in pairs]
            made = _Complex(self.f, self.element, 2 * made.numbers)
        picks = [
            2 * (t * on.numbers + k) + part
            for k in range(on.numbers)
            for t in range(len(x))
            for part in (0, 1)
        ]
        made.write(base, 0, made.shuffled(whole[0], picks))

    def _repeated(self, pair: str) -> str:
        """One complex number in each place of a vector."""
        return self.one.shuffled(pair, [0, 1] * self.width)

    def _first(self, x: str, on: _Complex) -> str:
        """The first places of a whole vector."""
        return x if on.numbers == self.width else self.whole.shuffled(x, range(on.count))

    def _pair(self, real: str, imaginary: str) -> str:
        kind = self.one.type
        made = self.f.value(f"insertelement {kind} poison, {self.element} {real}, i32 0")
        return self.f.value(f"insertelement {kind} {made}, {self.element} {imaginary}, i32 1")

    def _places(self, start: int, stop: int) -> Iterator[tuple[_Complex, str]]:
        """``range(start, stop)`` in whole vectors, then in ever smaller ones: loops that what follows is written in."""
        width = self.width
        while start < stop:
            end = start + (stop - start) // width * width
            if end > start:
                with self._turns(start, end, width) as at:
                    yield _Complex(self.f, self.element, width), at
            start, width = end, width // 2

    @contextmanager
    def _turns(self, start: int, stop: int, step: int) -> Iterator[str]:
        """A loop over places, or none where there is only one."""
        if stop - start == step:
            yield str(start)
            return
        with self.f.loop(str(start), str(stop), step) as loop:
            yield loop.index
