"""Windows and their adjoint."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.errors import ShapeError
from pullback.graph import Graph, Type, Variable, constant
from pullback.interpreter import evaluate
from pullback.operators.windows import overlap_add, windows
from pullback.testing import operator_cases

FLOAT = np.dtype(np.float64)
PAIRS = {"axes": (1,), "sizes": (2,), "strides": (2,), "dilations": (1,)}


def test_windows_by_their_definition():
    for case in operator_cases("windows", dtypes=[FLOAT]):
        (x,) = case.arguments()
        (y,) = evaluate(case.graph(), [x])
        axes = case.attributes["axes"]
        for place in np.ndindex(*y.shape):
            given, inner = iter(place), []
            for axis in range(x.ndim):
                inner.append(next(given))
                if axis in axes:
                    k = axes.index(axis)
                    inner[-1] = inner[-1] * case.attributes["strides"][k]
                    inner[-1] += next(given) * case.attributes["dilations"][k]
            assert y[place] == x[tuple(inner)]


def test_overlap_add_is_the_adjoint_of_windows():
    random = np.random.default_rng(0)
    for case in operator_cases("overlap_add", dtypes=[FLOAT]):
        (y,) = case.arguments()
        (x,) = evaluate(case.graph(), [y])
        other = random.standard_normal(x.shape)
        attributes = {key: value for key, value in case.attributes.items() if key != "shape"}
        (seen,) = evaluate(Graph((), (windows(constant(other), **attributes),)), [])
        np.testing.assert_allclose(np.vdot(x, other), np.vdot(y, seen), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "changes", "sparse"),
    [
        ((3, 8), {}, True),
        ((3, 9), {}, True),
        ((3, 11), {"strides": (3,)}, True),
        ((3, 2), {"strides": (1,)}, True),
        ((3, 8), {"strides": (1,)}, False),
        ((3, 8), {"dilations": (2,)}, False),
    ],
    ids=["side by side", "with a rest", "with gaps", "one window", "overlapping", "spread"],
)
def test_windows_that_do_not_overlap_are_put_back_by_views(shape, changes, sparse):
    x = Variable(Type(FLOAT, shape), "x")
    y = windows(x, **PAIRS | changes)
    (bar,) = y.operator.pullback(y, constant(np.ones(y.shape)))
    names = {node.operator.name for node in Graph((), (bar,)).nodes() if hasattr(node, "operator")}
    assert (names <= {"pad", "reshape", "slice"}) is sparse and ("overlap_add" in names) is not sparse


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        ((3, 8), {"sizes": (9,)}, "a window of 9 elements at distance 1 does not fit into 8 along axis 1"),
        ((3, 8), {"sizes": (5,), "dilations": (2,)}, "at distance 2"),
        ((3, 8), {"sizes": (0,)}, "1 or more"),
        ((3, 8), {"strides": (0,)}, "1 or more"),
        ((3, 8), {"axes": (2,)}, "rising order"),
        ((3, 8), {"strides": (1, 1)}, "one of each"),
        ((3, 0), {}, "does not fit into 0"),
    ],
)
def test_windows_that_do_not_fit(shape, changes, message):
    with pytest.raises(ShapeError, match=message):
        windows(constant(np.zeros(shape)), **PAIRS | changes)


def test_overlap_add_of_another_shape():
    with pytest.raises(ShapeError, match=r"\(3, 4, 2\)"):
        overlap_add(constant(np.zeros((3, 5, 2))), shape=(3, 8), **PAIRS)
