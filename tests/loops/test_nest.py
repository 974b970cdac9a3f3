"""Nests: whatever moves are made, each turn is in one tile, and the interpreter gives what it gave before."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pullback.errors import LoopError
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, Store
from pullback.loops.interpreter import Memory, run_kernel
from pullback.loops.nest import (
    Kind,
    Nest,
    keep,
    nest_of,
    parallelise,
    reorder,
    split,
    strips_of,
    unroll,
    vectorise,
)

FLOAT = np.dtype(np.float64)
A, B, C = Axis("i", 7), Axis("j", 10), Axis("k", 3)
INDEX = Affine.of(A) * 30 + Affine.of(B) * 3 + Affine.of(C)
X, Y = Buffer("x", FLOAT, (7, 10, 3)), Buffer("y", FLOAT, (7, 10, 3))
KERNEL = Kernel((A, B, C), (Store(Y, INDEX, Apply("exp", (Load(X, INDEX),), FLOAT)),))

MOVED = {
    "as it is": nest_of(KERNEL),
    "split": split(nest_of(KERNEL), B, strips_of(10, 4)),
    "split evenly": split(nest_of(KERNEL), A, strips_of(7, 3, even=True)),
    "reordered": reorder(nest_of(KERNEL), [C, A]),
    "parallel": parallelise(nest_of(KERNEL), A),
    "unrolled": unroll(split(nest_of(KERNEL), B, ((4, 2), (2, 1))), B),
    "registers": keep(split(nest_of(KERNEL), A, strips_of(7, 3)), A),
    "lanes": vectorise(split(nest_of(KERNEL), B, strips_of(10, 8)), B, 4),
    "all of it": vectorise(
        split(keep(split(parallelise(nest_of(KERNEL), A), A, strips_of(7, 2)), A), C, strips_of(3, 2)), C, 2
    ),
}


def run(nest: Nest, low: int = 0, high: int = A.extent) -> np.ndarray:
    """What the interpreter leaves in ``y``, which holds what is not written as NaN."""
    memory = Memory({X: np.linspace(0, 1, X.size), Y: np.full(Y.size, np.nan)})
    for part in nest.parts(low, high):
        run_kernel(nest.kernel, memory, part)
    return memory.arrays[Y]


@pytest.mark.parametrize("name", MOVED)
def test_a_moved_nest_means_the_same(name):
    np.testing.assert_array_equal(run(MOVED[name]), run(nest_of(KERNEL)))


@pytest.mark.parametrize("name", MOVED)
def test_each_turn_is_in_one_tile(name):
    seen = [
        (i, j, k)
        for part in MOVED[name].parts(0, A.extent)
        for i in part[A]
        for j in part[B]
        for k in part[C]
    ]
    assert len(seen) == len(set(seen)) == math.prod(axis.extent for axis in KERNEL.axes)


@pytest.mark.parametrize("name", ["parallel", "all of it"])
def test_a_part_of_the_parallel_turns(name):
    found = run(MOVED[name], 3, 6).reshape(7, 30)
    np.testing.assert_array_equal(np.isnan(found).all(axis=1), [i < 3 or i >= 6 for i in range(7)])


def totals(axes: tuple[Axis, ...], offset: Affine) -> Nest:
    """A kernel that adds all of ``x`` to elements of ``total``."""
    total = Buffer("total", FLOAT, (7,))
    return nest_of(Kernel(axes, (Store(total, offset, Load(X, INDEX), accumulate="add"),)))


def test_turns_that_meet_keep_their_order():
    nest = totals((A, B, C), Affine.of(A))
    with pytest.raises(
        LoopError, match=r"k cannot go outside j: the turns of both meet in elements of total"
    ):
        reorder(nest, [C, B])
    assert [level.axis for level in reorder(nest, [B, A]).levels] == [
        B,
        A,
        C,
    ]  # each element has an i of its own


def test_turns_that_meet_are_neither_lanes_nor_shared():
    nest = totals((A, B, C), Affine.of(A))
    with pytest.raises(LoopError, match="k cannot be lanes: its turns meet"):
        vectorise(nest, C, 4)
    with pytest.raises(LoopError, match="j cannot be parallel: its turns meet"):
        parallelise(nest, B)
    assert parallelise(nest, A).levels[0].kind is Kind.PARALLEL


def test_moves_that_make_no_sense():
    nest = nest_of(KERNEL)
    with pytest.raises(LoopError, match="do not make the 10 turns of j"):
        split(nest, B, ((4, 2),))
    with pytest.raises(LoopError, match="no loop over other"):
        unroll(nest, Axis("other", 2))
    with pytest.raises(LoopError, match="in the tile already"):
        keep(vectorise(nest, B, 4), B)
