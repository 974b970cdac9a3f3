"""The order of kernels: writers before readers, stores before what is added to them, circles found."""

from __future__ import annotations

import numpy as np

from pullback.compiler.kernels.order import Users
from pullback.loops import Affine, Axis, Buffer, Kernel, Literal, Load, Store

FLOAT = np.dtype(np.float32)
A, B, C = (Buffer(name, FLOAT, (4,)) for name in "abc")


def kernel(target: Buffer, source: Buffer | None = None, accumulate: bool = False) -> Kernel:
    axis = Axis("i", 4)
    value = Literal(1, FLOAT) if source is None else Load(source, Affine.of(axis))
    return Kernel((axis,), (Store(target, Affine.of(axis), value, accumulate=accumulate),))


def test_writers_come_before_readers_and_the_rest_stays():
    one, two, three = kernel(B, A), kernel(A), kernel(C)
    assert Users([one, two, three]).sorted({}) == ([two, one, three], [])


def test_additions_come_after_the_store_wherever_it_stands():
    first, second = kernel(A, accumulate="add"), kernel(A, B, accumulate="add")
    base, reader, source = kernel(A), kernel(C, A), kernel(B)
    users = Users([first, second, reader, base, source])
    assert users.before(first) == [base]
    assert set(users.before(second)) == {first, base, source}
    assert set(users.before(reader)) == {first, second, base}
    assert users.before(base) == []
    done, waiting = users.sorted({})
    assert done == [base, first, source, second, reader]
    assert not waiting


def test_circles_are_left_over():
    one, two, three = kernel(A), kernel(B), kernel(C)
    assert Users([one, two, three]).sorted({one: [two], two: [one]}) == ([three], [one, two])
    assert Users([one, two, three]).sorted({one: [three]}) == ([two, three, one], [])
