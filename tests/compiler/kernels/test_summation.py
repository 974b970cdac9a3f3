"""Long sums are as exact as sums of their blocks."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.compiler.kernels.summation import sum_in_blocks
from pullback.compiler.schedules.cost import LONGEST_BLOCK, LONGEST_CHAIN
from pullback.loops import Affine, Axis, Buffer, Kernel, Load, Reduce, Store, walk

FLOAT = np.dtype(np.float32)
SHAPES = [
    ((1_000_003,), None),
    ((1_000_000, 3), 0),
    ((3, 400_000), 1),
    ((2, 200_003, 3), 1),
    ((700, 700, 4), (0, 1)),
    ((600, 5, 700), (0, 2)),
]


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_variance_of_many_numbers_far_from_zero(shape, axes, compiler, traced, processor):
    x = (np.random.default_rng(0).random(shape) + 999.5).astype(np.float32)
    (variance, mean) = compiler.run(
        traced(lambda x: (x.var(axes), x.mean(axes)), x), [x], processor=processor
    )
    exact = x.astype(np.float64)
    np.testing.assert_allclose(variance, exact.var(axes), rtol=2e-5)
    np.testing.assert_allclose(mean, exact.mean(axes), rtol=1e-6)


def chains(root) -> list[int]:
    """The turns of each sum, those inside it not counted."""
    sums = [e for e in walk(root) if isinstance(e, Reduce)]
    return [int(np.prod([axis.extent for axis in e.over])) for e in sums]


@pytest.mark.parametrize(
    "extents", [(5000,), (100_003,), (7, 100_003), (40_000, 3), (3, 5, 70_000, 2), (513, 2, 2)]
)
@pytest.mark.parametrize("along", [True, False])
def test_every_term_is_summed_once(extents, along):
    """The blocks of an integer-valued buffer, evaluated by hand, have the sum of all of it."""
    step = 1 if along else 2
    x = Buffer("x", FLOAT, (int(np.prod(extents)) * step,))
    axes = tuple(Axis("k", extent) for extent in extents)
    strides = [step * int(np.prod(extents[k + 1 :])) for k in range(len(extents))]
    offset = Affine.total(Affine.of(axis) * stride for axis, stride in zip(axes, strides))
    kernel = Kernel((), (Store(Buffer("s", FLOAT, ()), Affine(), Reduce("add", axes, Load(x, offset))),))
    (store,) = sum_in_blocks(kernel).stores
    assert max(chains(store.value)) <= (LONGEST_BLOCK if along else LONGEST_CHAIN)
    places: list[np.ndarray] = []

    def visit(expression, around) -> None:
        if isinstance(expression, Load):
            index = np.full([axis.extent for axis in around], expression.offset.constant)
            for axis, coefficient in expression.offset.terms:
                shape = [axis.extent if other is axis else 1 for other in around]
                index += (np.arange(axis.extent) * coefficient).reshape(shape)
            places.append(index.ravel())
            return
        for operand in expression.operands:
            visit(operand, (*around, *expression.over) if isinstance(expression, Reduce) else around)

    visit(store.value, ())
    np.testing.assert_array_equal(np.sort(np.concatenate(places)), np.arange(0, x.size, step))
