"""Fourier transforms: the routines of ``operators/stockham.py``, which says what a pass computes.

Real and imaginary parts lie in turns, and stay so in registers: a product with ``i`` exchanges the two of each pair.
Lanes are along the elements that lie beside each other; where there are none, the first pass has them along the roots
of unity. Passes write to two places in turns. Where many elements lie beside each other, some columns of them are
copied to the workspace and transformed there, so that passes stay in a cache; real numbers become complex ones on the
way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from pullback.compiler.codegen.types import constants, scalar_type
from pullback.compiler.codegen.vectormath.lanes import Arithmetic
from pullback.compiler.llvm.function import Function, Module, float_literal
from pullback.operators.stockham import Plan, columns, halves, planned, root

__all__ = ["define_transform"]


def define_transform(
    module: Module, lanes: int, name: str, kind: str, dtype: str, extent: str, others: str
) -> None:
    """Write ``fft``, ``ifft``, ``rfft`` or ``irfft`` of ``extent`` elements with so many ``others`` beside each.

    Its parameters are the addresses of the array, the result, the workspace and the roots of unity, the number of rows
    and the factor.
    """
    element, n, beside = np.dtype(dtype), int(extent), int(others)
    pointers = [("ptr", each) for each in ("x", "y", "work", "roots")]
    f = module.function(name, [*pointers, ("i64", "rows"), (scalar_type(element), "factor")])
    made = _Transform(f, element, max(1, lanes // 2), kind in ("fft", "rfft"))
    spectrum, real, whole = 2 * (n // 2 + 1) * beside, n * beside, 2 * n * beside
    given = {"rfft": real, "irfft": spectrum}.get(kind, whole)
    result = {"rfft": spectrum, "irfft": real}.get(kind, whole)
    with f.loop("0", f["rows"], counted=False) as turn:
        x, y = (
            f.ahead(f[each], made.element, f.value(f"mul i64 {turn.index}, {size}"))
            for each, size in (("x", given), ("y", result))
        )
        made.rows(kind, x, y, n, beside)


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


@dataclass(frozen=True)
class _Columns:
    """The numbers from ``first`` on, ``count`` of them, of each row of ``beside`` numbers."""

    base: str
    count: int
    beside: int
    first: str = "0"


class _Transform:
    """The text of one routine; a vector holds up to ``width`` complex numbers."""

    def __init__(self, f: Function, dtype: np.dtype, width: int, forward: bool) -> None:
        self.f, self.dtype, self.width, self.forward = f, dtype, width, forward
        self.element = scalar_type(dtype)
        self.whole, self.one = (_Complex(f, self.element, numbers) for numbers in (width, 1))

    def rows(self, kind: str, x: str, y: str, n: int, beside: int) -> None:
        """The transforms of ``n`` rows of so many numbers: of some columns after the other, in the workspace."""
        count = columns(beside)
        with self._turns(0, -(-beside // count), 1) as block:
            first = self.f.smaller(self.f.value(f"mul i64 {block}, {count}"), beside - count)
            self._columns(kind, _Columns(x, count, beside, first), _Columns(y, count, beside, first), n)

    def _columns(self, kind: str, x: _Columns, y: _Columns, n: int) -> None:
        half, count = halves(kind, n), x.count
        plan = planned(n // 2 if half else n)
        size = plan.length * count
        spaces = [_Columns(self.one.near(self.f["work"], k * size), count, count) for k in (0, 1, 2)]
        # Complex numbers in their order are read and written where they lie; two real neighbours are such a number.
        ordered = count == x.beside and (kind in ("fft", "ifft") or (half and count == 1))
        begins, ends = (ordered and kind != other for other in ("irfft", "rfft"))
        last, other = (y, spaces[0]) if ends else spaces[:2]
        targets = (last, other) if len(plan.radices) % 2 else (other, last)
        source = x if begins else other if plan.convolves else targets[1]
        scales = not (half and kind == "rfft")
        if kind == "irfft":
            (self._join_spectrum if half else self._mirror_spectrum)(x, source, plan)
        elif kind == "rfft" and not begins:
            self._join_rows(x, source, plan.length, 1 + half)
        elif not begins:
            self._copy(x, source, n)
        if plan.convolves:
            self._convolve(plan, source, last, spaces[2], scales)
        else:
            self._passes(plan, source, targets, scales)
        if kind == "rfft" and half:
            self._part_spectrum(last, y, plan)
        elif kind == "irfft" and not ends:
            self._part_rows(last, y, plan.length, 1 + half)
        elif not ends:
            self._copy(last, y, n // 2 + 1 if kind == "rfft" else n)

    # -- Passes

    def _passes(
        self, plan: Plan, source: _Columns, targets: Sequence[_Columns], scales: bool = False
    ) -> _Columns:
        """All passes, which write to the targets in turns; where the result is."""
        beside = source.count
        for (radix, left, first), target in zip(plan.passes(), itertools.cycle(targets)):
            if beside == 1 and left > 1:
                self._first_pass(source.base, target.base, radix, left, first)
            else:
                self._pass(source.base, target.base, radix, left, beside, first, scales and left == 1)
            beside *= radix
            source = target
        return source

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

        def turned(a: str) -> str:
            return on.times_i(a, -1 if self.forward else 1)

        add, subtract, radix = on.add, on.sub, len(x)
        if radix == 2:
            return [add(x[0], x[1]), subtract(x[0], x[1])]
        if radix == 4:
            even, odd = add(x[0], x[2]), add(x[1], x[3])
            middle, side = subtract(x[0], x[2]), turned(subtract(x[1], x[3]))
            return [add(even, odd), add(middle, side), subtract(even, odd), subtract(middle, side)]
        made, half = [x[0]] * radix, range(1, (radix + 1) // 2)
        sums = {u: add(x[u], x[radix - u]) for u in half}
        differences = {u: subtract(x[u], x[radix - u]) for u in half}
        roots = root(np.arange(radix), radix)
        for t in half:
            made[0] = add(made[0], sums[t])
            middle, side = x[0], ""
            for u in half:
                cosine, sine = (on.constant(part) for part in roots[t * u % radix])
                middle = on.plus_product(middle, sums[u], cosine)
                side = on.plus_product(side, differences[u], sine) if side else on.mul(differences[u], sine)
            side = on.times_i(side, 1 if self.forward else -1)
            made[t], made[radix - t] = add(middle, side), subtract(middle, side)
        return made

    # -- Convolutions

    def _convolve(
        self, plan: Plan, source: _Columns, target: _Columns, spare: _Columns, scales: bool
    ) -> None:
        """The transform as a convolution in ``spare`` memory."""
        chirp, spectrum = plan.pass_roots, plan.pass_roots + plan.length
        count, size = spare.count, plan.transformed * spare.count
        there, back = (_Transform(self.f, self.dtype, self.width, forward) for forward in (True, False))
        other = replace(spare, base=self.one.near(spare.base, size))

        def turned(source: _Columns, target: _Columns, roots: int, rows: int, scales: bool = False) -> None:
            for on, j, k in self._each(0, rows, count):
                root = self._root(on, roots, j, count)
                value = on.turned(self._read(on, source, j, k), root, self.forward)
                if scales:
                    value = on.mul(value, on.splat(self.f["factor"]))
                self._write(on, target, j, k, value)

        turned(source, spare, chirp, plan.length)
        begin = self.one.near(spare.base, plan.length * count)
        left = 2 * self.dtype.itemsize * (size - plan.length * count)
        nothing = ("ptr", begin), ("i8", "0"), ("i64", str(left)), ("i1", "false")
        self.f.call("void", "llvm.memset.p0.i64", *nothing)
        found = there._passes(plan, spare, (other, spare))
        free = other if found is spare else spare
        turned(found, free, spectrum, plan.transformed)
        found = back._passes(plan, free, (found, free))
        turned(found, target, chirp, plan.length, scales)

    # -- Real numbers as complex ones

    def _join_rows(self, x: _Columns, target: _Columns, rows: int, step: int) -> None:
        """Each row of real numbers with the next one as imaginary parts, or with zeros where the ``step`` is one."""
        for on, j, k in self._each(0, rows, x.count):
            kind, parts = f"<{on.numbers} x {self.element}>", ["zeroinitializer"] * 2
            for part in range(step):
                address = self._real(x, j, k, step, part)
                parts[part] = self.f.value(f"load {kind}, ptr {address}, align {self.dtype.itemsize}")
            lanes = [place for lane in range(on.numbers) for place in (lane, on.numbers + lane)]
            self._write(on, target, j, k, self.f.shuffled(kind, parts[0], parts[1], lanes))

    def _part_rows(self, source: _Columns, y: _Columns, rows: int, step: int) -> None:
        """Real parts, and imaginary ones as the row behind where the ``step`` is two."""
        for on, j, k in self._each(0, rows, y.count):
            kind, value = f"<{on.numbers} x {self.element}>", self._read(on, source, j, k)
            for part in range(step):
                address = self._real(y, j, k, step, part)
                parts = on.shuffled(value, range(part, on.count, 2))
                self.f.do(f"store {kind} {parts}, ptr {address}, align {self.dtype.itemsize}")

    def _real(self, x: _Columns, j: str, k: str, step: int, part: int) -> str:
        """The address of a real number in row ``step * j + part``."""
        row = self.f.value(f"mul i64 {j}, {step}")
        row = self.f.value(f"add i64 {row}, {part}")
        return self.f.ahead(x.base, self.element, self._place(x, row, k))

    def _copy(self, source: _Columns, target: _Columns, rows: int) -> None:
        for on, j, k in self._each(0, rows, source.count):
            self._write(on, target, j, k, self._read(on, source, j, k))

    def _mirror_spectrum(self, x: _Columns, target: _Columns, plan: Plan) -> None:
        """All frequencies of an odd number of rows, from those that are not conjugates of others."""
        for on, k in self._places(0, x.count):
            self._write(on, target, "0", k, self._real_part(on, self._read(on, x, "0", k)))
        for on, j, k in self._each(1, (plan.length + 1) // 2, x.count):
            value = self._read(on, x, j, k)
            self._write(on, target, j, k, value)
            self._write_mirrored(on, target, plan.length, j, k, on.conjugate(value))

    # -- Half a spectrum

    def _part_spectrum(self, source: _Columns, y: _Columns, plan: Plan) -> None:
        """From the transform of pairs of neighbours to the frequencies of all of them."""
        f, length = self.f, plan.length
        self._fold(source, y, plan, f.value(f"fmul {self.element} {f['factor']}, 0.5"))
        for on, k in self._places(0, y.count):
            factor = on.splat(f["factor"])
            if length % 2 == 0:
                middle = on.conjugate(self._read(on, source, str(length // 2), k))
                self._write(on, y, str(length // 2), k, on.mul(middle, factor))
            real = on.mul(self._read(on, source, "0", k), factor)
            imaginary = on.shuffled(real, [lane ^ 1 for lane in range(on.count)])
            self._write(on, y, "0", k, self._real_part(on, on.add(real, imaginary)))
            self._write(on, y, str(length), k, self._real_part(on, on.sub(real, imaginary)))

    def _join_spectrum(self, x: _Columns, target: _Columns, plan: Plan) -> None:
        """From the frequencies to those of pairs of neighbours, twice as large."""
        length = plan.length
        self._fold(x, target, plan)
        for on, k in self._places(0, x.count):
            if length % 2 == 0:
                middle = on.conjugate(self._read(on, x, str(length // 2), k))
                self._write(on, target, str(length // 2), k, on.add(middle, middle))
            low, high = (self._read(on, x, str(row), k) for row in (0, length))
            even, odd = on.add(low, high), on.sub(low, high)
            lanes = [place for lane in range(0, on.count, 2) for place in (lane, on.count + lane)]
            self._write(on, target, "0", k, self.f.shuffled(on.type, even, odd, lanes))

    def _fold(self, source: _Columns, target: _Columns, plan: Plan, share: str = "") -> None:
        """Frequencies below the middle, with those that mirror them: of a transform forward a ``share``."""
        length, count = plan.length, source.count
        first = plan.pass_roots + (length + plan.transformed if plan.convolves else 0)
        for on, j, k in self._each(1, (length + 1) // 2, count):
            low = self._read(on, source, j, k)
            high = self._read(on, source, self._mirror(on, length, j, count), k)
            high = on.conjugate(on.reversed(high) if count == 1 else high)
            even, odd = on.add(low, high), on.sub(low, high)
            root = self._root(on, first - 1, j, count)
            odd = on.times_i(on.turned(odd, root, self.forward), -1 if self.forward else 1)
            if share:
                factor = on.splat(share)
                even, odd = on.mul(even, factor), on.mul(odd, factor)
            self._write(on, target, j, k, on.add(even, odd))
            self._write_mirrored(on, target, length, j, k, on.conjugate(on.sub(even, odd)))

    def _write_mirrored(self, on: _Complex, x: _Columns, rows: int, j: str, k: str, value: str) -> None:
        """Write to row ``rows - j``; of a single column to rows from there downwards."""
        value = on.reversed(value) if x.count == 1 else value
        self._write(on, x, self._mirror(on, rows, j, x.count), k, value)

    def _mirror(self, on: _Complex, rows: int, j: str, count: int) -> str:
        return self.f.value(f"sub i64 {rows - (on.numbers - 1 if count == 1 else 0)}, {j}")

    def _real_part(self, on: _Complex, a: str) -> str:
        """The numbers without their imaginary parts, whatever these are."""
        lanes = [on.count if lane % 2 else lane for lane in range(on.count)]
        return self.f.shuffled(on.type, a, "zeroinitializer", lanes)

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

    def _read(self, on: _Complex, x: _Columns, j: str, k: str) -> str:
        return on.load(on.near(x.base, self._place(x, j, k)))

    def _write(self, on: _Complex, x: _Columns, j: str, k: str, value: str) -> None:
        on.store(value, on.near(x.base, self._place(x, j, k)))

    def _place(self, x: _Columns, j: str, k: str) -> str:
        """Where the number ``k`` of row ``j`` lies."""
        at = self.f.value(f"mul i64 {j}, {x.beside}")
        for more in (x.first, k):
            at = self.f.value(f"add i64 {at}, {more}") if more != "0" else at
        return at

    def _root(self, on: _Complex, first: int, j: str, count: int) -> str:
        """The roots of unity from ``first`` on for the rows of a vector."""
        at = on.near(self.f["roots"], j)
        return on.read(at, first) if count == 1 else self._first(self._repeated(self.one.read(at, first)), on)

    def _each(self, start: int, stop: int, count: int) -> Iterator[tuple[_Complex, str, str]]:
        """Vectors of columns, row by row, or of rows of a single column: a row and a column of theirs."""
        if count == 1:
            for on, j in self._places(start, stop):
                yield on, j, "0"
        elif start < stop:
            with self._turns(start, stop, 1) as j:
                for on, k in self._places(0, count):
                    yield on, j, k

    def _places(self, start: int, stop: int) -> Iterator[tuple[_Complex, str]]:
        """``range(start, stop)`` in vectors, a loop that what follows is written in; the last two may overlap."""
        if stop > start:
            width = min(self.width, 1 << (stop - start).bit_length() - 1)
            with self._turns(start, stop, width) as turn:
                at = self.f.smaller(turn, stop - width) if (stop - start) % width else turn
                yield _Complex(self.f, self.element, width), at

    @contextmanager
    def _turns(self, start: int, stop: int, step: int) -> Iterator[str]:
        """A loop over places, or none where there is only one."""
        if stop - start == step:
            yield str(start)
            return
        with self.f.loop(str(start), str(stop), step) as loop:
            yield loop.index
