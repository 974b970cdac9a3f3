"""Operators on known values: computed as they are made, with the bits that the interpreter gives the graph."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.graph import OPERATORS, Graph, Node, TupleType, Variable, evaluating, force, is_float, results
from pullback.interpreter import evaluate
from pullback.numpy.promotion import as_array_node
from pullback.testing.derivatives import OperatorCase, operator_cases
from pullback.transforms.reverse import cotangents

pytestmark = pytest.mark.parametrize("name", sorted(OPERATORS))


def made(case: OperatorCase, variables: list[Variable]) -> list[Node]:
    """The results of the operator, and the cotangents of its inputs for cotangents of ones."""
    node = case.apply(*variables)
    several = list(results(node)) if isinstance(node.type, TupleType) else [node]
    smooth = [output for output in several if is_float(output.dtype)]
    bars: list[Node | None] = []
    if smooth and case.operator.pullback is not None and not case.operator.forward_only:
        seeds = [as_array_node(np.ones(output.shape, output.dtype)) for output in smooth]
        bars = cotangents(smooth, seeds, [variables[k] for k in case.differentiable])
    return [*several, *[bar for bar in bars if bar is not None]]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_known_values_are_those_of_the_interpreter(name: str) -> None:
    for case in operator_cases(name):
        arguments = case.arguments()
        variables = [Variable(t, f"x{k}") for k, t in enumerate(case.types)]
        wanted = evaluate(Graph(tuple(variables), tuple(made(case, variables))), arguments)
        known = [Variable(t, f"x{k}", x) for k, (t, x) in enumerate(zip(case.types, arguments))]
        with evaluating(True):
            found = [force(node) for node in made(case, known)]
        assert len(wanted) == len(found)
        for one, other in zip(wanted, found):
            assert (one.dtype, one.shape) == (other.dtype, other.shape), str(case)
            np.testing.assert_array_equal(one, other, strict=True, err_msg=str(case))
            np.testing.assert_array_equal(
                np.signbit(one.astype(float)), np.signbit(other.astype(float)), str(case)
            )
