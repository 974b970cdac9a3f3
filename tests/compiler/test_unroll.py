"""Short axes written out: which kernels, and that the programs stay what they were."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.stages import check_stages
from pullback.compiler.target import Processor
from pullback.compiler.unroll import unroll_short_axes
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, Reduce, Store
from pullback.loops.printer import format_kernel

FLOAT = np.dtype(np.float32)
WIDE = Processor("generic", "", "x86_64", 64, 32)


def rows_of_three(rows: int, columns: int = 3) -> Kernel:
    """``y[j, k] = x[j, k] * sum(x[j] * x[j])``."""
    x, y = (Buffer(name, FLOAT, (rows, columns)) for name in "xy")
    j, k, r = Axis("j", rows), Axis("k", columns), Axis("r", columns)
    element = Load(x, Affine.of(j) * columns + Affine.of(k))
    each = Load(x, Affine.of(j) * columns + Affine.of(r))
    total = Reduce("add", (r,), Apply("multiply", (each, each), FLOAT))
    value = Apply("multiply", (element, total), FLOAT)
    return Kernel((j,), (Store(y, Affine.of(j) * columns + Affine.of(k), value, (k,)),))


def test_rows_of_three_are_written_out():
    kernel = unroll_short_axes(rows_of_three(240), WIDE)
    assert [axis.extent for axis in kernel.axes] == [240]
    assert len(kernel.stores) == 3 and not any(store.inner for store in kernel.stores)
    assert not any(isinstance(e, Reduce) for e in kernel.expressions())
    assert "y[3*j + 2] =" in format_kernel(kernel)


@pytest.mark.parametrize(
    ("kernel", "lanes"),
    [
        (rows_of_three(5), 16),  # a vector would be emptier than with lanes along the three
        (rows_of_three(240, 5), 16),
        (rows_of_three(240, 4), 4),  # these lanes are filled
    ],
)
def test_what_gains_nothing_stays(kernel, lanes):
    assert unroll_short_axes(kernel, Processor("generic", "", "x86_64", 4 * lanes, 32)) is kernel


def unit(x):
    return x / np.sqrt(np.sum(x**2, axis=-1, keepdims=True) + 1)


def pulls(x):
    """Springs between neighbours along both axes: parts that are joined with zeros at either end."""
    total = 0.0
    for axis in (0, 1):
        along = np.diff(x, axis=axis)
        force = (1 - 1 / np.sqrt(np.sum(along**2, axis=-1, keepdims=True) + 1)) * along
        none = np.zeros_like(x[:1] if axis == 0 else x[:, :1])
        total = total + np.concatenate([force, none], axis) - np.concatenate([none, force], axis)
    return total


def at_least_from_product(x, y, z):
    """The product of a row is in memory for one kernel and in a register of another: both have the same bits."""
    positive = pb.softplus(x)
    distance = positive - np.prod(positive, axis=-1, keepdims=True)
    total = np.sum(z * positive[:, 1:2] * y, axis=-1, keepdims=True)
    return np.where(distance == np.min(distance, axis=-1, keepdims=True), total, 0)


PROGRAMS = {
    "unit vectors": (unit, [(37, 3)]),
    "pairs": (lambda x: x * np.max(x, axis=-1, keepdims=True), [(4, 33, 2)]),
    "colours": (
        lambda x: (x - np.array([1, 2, 3], x.dtype)) * np.array([2, 0.5, 4], x.dtype),
        [(2, 9, 16, 3)],
    ),
    "scaled rows": (lambda x, s: x * s[:, None], [(50, 4), (50,)]),
    "rows found by index": (lambda x: unit(x[np.arange(40) * 7 % 20]), [(20, 3)]),
    "neighbours in a net": (pulls, [(16, 16, 3)]),
    "neighbours in a wide net": (pulls, [(3, 40, 2)]),
    "what is compared": (lambda x: x > x.mean(-1, keepdims=True), [(70, 3)]),
    "ends joined": (lambda x: np.concatenate([x[5:], unit(x[:5])]), [(45, 3)]),
    "turned": (lambda x: unit(x).T * 2, [(40, 3)]),
    "every second row": (lambda x: unit(x[::2]), [(64, 2)]),
    "backwards": (lambda x: unit(x[::-1]), [(40, 3)]),
    "least distance from a product": (at_least_from_product, [(64, 3), (64, 3), (64, 1)]),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_on_short_rows(name, dtype, compiler, traced, processor):
    f, shapes = PROGRAMS[name]
    random = np.random.default_rng(len(name))
    arrays = [random.integers(-4, 5, shape).astype(dtype) for shape in shapes]
    compiler.assert_same(traced(f, *arrays), arrays, processor=processor, rounding=8)
    loss = pb.grad(lambda *a: np.sum(f(*a) ** 2), tuple(range(len(arrays))))
    if name != "what is compared":
        compiler.assert_same(traced(loss, *arrays), arrays, processor=processor, rounding=64)
        check_stages(traced(loss, *arrays), arrays, processor)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lanes_that_read_nothing_divide_nothing(dtype, compiler, traced, processor):
    """What is not selected has a slope of zero, not of 0 / 0."""

    def loss(x):
        selected = x[:, ::3]
        shifted = selected - np.max(selected, axis=0, keepdims=True)
        return np.sum(shifted - np.log(np.sum(np.exp(shifted), axis=0, keepdims=True)))

    x = np.ones((2, 4), dtype)
    compiler.assert_same(traced(pb.grad(loss), x), [x], processor=processor)
