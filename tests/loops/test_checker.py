"""The checker of loop programs accepts what is sound and finds each fault that is planted."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.errors import LoopError
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Buffer,
    Kernel,
    Literal,
    Load,
    Reduce,
    Store,
    load_at,
)
from pullback.loops.arithmetic import within
from pullback.loops.checker import check_expression, check_kernel, check_order
from pullback.loops.guard import guarded

FLOAT, INT, BOOL = np.dtype("float64"), np.dtype("int64"), np.dtype(bool)
R, K = Axis("i", 4), Axis("k", 3)
M, OUT, BEFORE = Buffer("m", FLOAT, (4, 3)), Buffer("out", FLOAT, (4,)), Buffer("before", FLOAT, (4,))
ELEMENT = load_at(M, [Affine.of(R), Affine.of(K)])
ROW = Reduce("add", (K,), ELEMENT)
AT = load_at(Buffer("at", INT, (4,)), [Affine.of(R)])


def kernel(value=ROW, offset=None, axes=(R,), **keywords) -> Kernel:
    return Kernel(axes, (Store(OUT, Affine.of(R) if offset is None else offset, value, **keywords),))


def test_sound_kernels_pass():
    check_kernel(kernel())
    check_kernel(kernel(Apply("where", (within(Affine.of(R), 1, 9), ROW, Literal(0, FLOAT)), FLOAT)))
    check_kernel(kernel(guarded(load_at(BEFORE, [Affine.of(R) + (-2)]), within(Affine.of(R), 2, 9))))
    check_kernel(kernel(Literal(1, FLOAT), Affine(), dynamic=((AT, 1),), accumulate="add"))
    check_kernel(kernel(ELEMENT, axes=(R,), inner=(K,)))
    empty = Axis("e", 0)
    check_kernel(Kernel((empty,), (Store(Buffer("none", FLOAT, (0,)), Affine.of(empty), Literal(1, FLOAT)),)))


def test_programs_read_what_is_there():
    first = kernel()
    second = Kernel(
        (), (Store(Buffer("y", FLOAT, ()), Affine(), Reduce("add", (R,), load_at(OUT, [Affine.of(R)]))),)
    )
    check_order([first, second], given=[M])
    with pytest.raises(LoopError, match=r"m: float64.* is read before"):
        check_order([first, second], given=[])
    with pytest.raises(LoopError, match=r"out: float64.* is read before"):
        check_order([second, first], given=[M])


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        (lambda: kernel(axes=()), "'i<4'.* outside their loops"),
        (lambda: kernel(ELEMENT), "'k<3'.* outside their loops"),
        (lambda: kernel(offset=Affine.of(K)), "'k<3'.* outside their loops"),
        (lambda: kernel(axes=(R, R)), "a loop twice"),
        (lambda: kernel(axes=(R, K)), "inside loops over the same axes"),
        (lambda: kernel(Reduce("add", (K,), Apply("add", (ELEMENT, ROW), FLOAT))), "over the same axes"),
        (lambda: kernel(Apply("cast", (ROW,), np.dtype("float32"))), "out: float64.* is given a float32"),
        (lambda: kernel(Apply("add", (ROW, AT), FLOAT)), "add of float64, int64 gives float64"),
        (lambda: kernel(Apply("less", (ROW, ROW), FLOAT)), "less of float64, float64 gives float64"),
        (lambda: kernel(Apply("where", (ROW, ROW, ROW), FLOAT)), "where of float64, float64, float64"),
        (lambda: kernel(Literal(1, FLOAT), dynamic=((ROW, 1),)), "an index is a float64"),
        (lambda: kernel(Load(OUT, Affine(), ((ROW, 1),))), "out: an index is a float64"),
        (lambda: kernel(Load(OUT, Affine(), (), AT)), "the guard is a int64"),
        (lambda: kernel(offset=Affine()), "does not accumulate: turns along i meet in an element of out"),
        (
            lambda: kernel(load_at(OUT, [Affine() + 3])),
            "of turns along i one reads what another stores in out",
        ),
        (lambda: kernel(offset=Affine.of(R) + 1), "out: float64.* from 1 to 4, outside its 4 elements"),
        (lambda: kernel(load_at(M, [Affine.of(R) + (-1), Affine()])), "m: float64.* from -3 to 6"),
        (lambda: kernel(Reduce("mean", (K,), ELEMENT)), "mean is no kind of reduction"),
        (lambda: kernel(Reduce("argmax", (K,), ELEMENT)), "argmax of float64 gives int64"),
        (lambda: kernel(Reduce("add", (), ROW)), "it needs axes"),
        (lambda: kernel(load_at(OUT, [Apply("check_index", (AT,), INT)])), "check_index lacks"),
    ],
)
def test_planted_faults_are_found(planted, said):
    with pytest.raises(LoopError, match=said):
        check_kernel(planted())


def test_expressions_are_checked_for_their_loops():
    check_expression(ROW, [R])
    with pytest.raises(LoopError, match="outside their loops"):
        check_expression(ROW, [])


def test_rows_may_share_an_axis():
    """A row's loop and the reductions in it: each closes over the axis by itself."""
    spread = Apply("subtract", (ELEMENT, ROW), FLOAT)
    row = Buffer("row", FLOAT, (4, 3))
    softmax = Kernel((R,), (Store(row, load_at(M, [Affine.of(R), Affine.of(K)]).offset, spread, (K,)),))
    total = kernel(Reduce("add", (K,), spread))
    for sound in (softmax, total):
        check_kernel(sound, shared_axes=True)
        with pytest.raises(LoopError, match="over the same axes"):
            check_kernel(sound)
    with pytest.raises(LoopError, match="over the same axes"):
        check_kernel(kernel(axes=(R, K)), shared_axes=True)
