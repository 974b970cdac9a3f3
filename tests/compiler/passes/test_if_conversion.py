"""Choices between short branches: all are computed, and the results are those of the branch that is chosen."""

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.passes.if_conversion import if_conversion
from pullback.compiler.target import Processor
from pullback.graph import Operation
from pullback.tracing import trace

SOME = Processor("generic", "+avx2,+fma", "x86_64", vector_bytes=32, vector_registers=16)
BRANCHES = (
    lambda x, k: (x / x, k),
    lambda x, k: (np.log(x), k // 0),
    lambda x, k: (x, k + 1),
)


def choose(index, x, k):
    return pb.switch(index, BRANCHES, x, k)


def names(function, *arguments):
    graph = if_conversion(SOME)(trace(function, *arguments).graph)
    return {node.operator.name for node in graph.nodes() if isinstance(node, Operation)}


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 7])
def test_the_results_are_those_of_the_branch(index):
    """Also where another one divides by zero, and for an index beyond the branches."""
    x, k = np.array([0.0, -1.0, 4.0, -0.0]), np.array(3)
    assert "switch" not in names(choose, index, x, k)
    with np.errstate(all="ignore"):
        wanted = BRANCHES[min(max(index, 0), 2)](x, k)
    for found, each in zip(pb.jit(choose)(index, x, k), wanted):
        np.testing.assert_array_equal(found, each)
        np.testing.assert_array_equal(np.copysign(1, found)[each == 0], np.copysign(1, each)[each == 0])


@pytest.mark.parametrize(
    "branch",
    [
        lambda x: x[np.argsort(x[:3]) * 2],  # an index that is checked
        lambda x: pb.fori_loop(0, 3, lambda i, c: c * x[0], x[:3]),
        lambda x: np.exp(x @ x) * x[:3],
        lambda x: np.exp(np.sin(x))[:3],  # long
    ],
)
def test_what_is_long_or_may_fail_stays_in_its_branch(branch):
    x = np.linspace(0, 1, 100)
    assert "switch" in names(lambda x: pb.cond(x[0] > 0, branch, lambda x: x[:3], x), x)


@pytest.mark.parametrize(("size", "stays"), [(2, True), (40, False)])
def test_branches_within_branches(size, stays):
    """Of a few numbers, which a loop has in registers, they stay: the processor goes on before a choice is known."""

    def descend(x):
        def turn(state):
            x, rate, going = state
            moved = x - rate * 2 * x
            return pb.cond(
                (x * x).sum() < 1e-9,
                lambda: (x, rate, np.bool_(False)),
                lambda: pb.cond(
                    (moved * moved).sum() < (x * x).sum(),
                    lambda: (moved, 2 * rate, going),
                    lambda: (x, rate / 2, going),
                ),
            )

        return pb.while_loop(lambda state: state[2], turn, (x, np.float64(0.1), np.bool_(True)))[0]

    x = np.linspace(1.0, -2.0, size)
    found = pb.jit(descend)(x)
    np.testing.assert_allclose(found, trace(descend, x).evaluate([x]), rtol=1e-12)
    assert ("choose" in pb.jit(descend).inspect(x).loops) == stays
