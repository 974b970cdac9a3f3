"""The batching rule of every operator of the table: a batch of results is the batch of what each example gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pullback.errors import BatchError
from pullback.graph import (
    OPERATORS,
    Case,
    Graph,
    Node,
    Operation,
    Operator,
    Sample,
    Type,
    Variable,
    check,
    is_complex,
    is_float,
)
from pullback.interpreter import evaluate
from pullback.testing import OperatorCase, operator_cases
from pullback.transforms.batching import batched
from pullback.transforms.reverse import cotangents

FLOAT64 = np.dtype(np.float64)
REORDERED = {"sum", "prod", "contract", "convolve", "convolve_max_unpooled", "convolve_where_read"}
REORDERED |= {"solve", "triangular_solve"}
"""Operators whose terms NumPy, or LAPACK, adds or multiplies in another order when there is one axis more.

Complex products are rounded otherwise in NumPy's vector loops than in the rest of a row.
"""

every_operator = pytest.mark.parametrize(
    "name", [name for name, operator in OPERATORS.items() if any(case.inputs for case in operator.cases)]
)


def assert_batches(
    function: Callable[..., Sequence[Node]], rows: Sequence[Sequence[np.ndarray]], size: int, tolerance: float
) -> None:
    """``function`` of nodes, for ``size`` of ``rows``, is what it is for each, whichever inputs are batched.

    Inputs that are not batched have the values of the first row.
    """
    first = rows[0]
    ones = tuple(Variable(Type(x.dtype, x.shape), f"x{k}") for k, x in enumerate(first))
    outputs = tuple(function(*ones))
    for chosen in itertools.product((True, False), repeat=len(ones)):
        if not any(chosen):
            continue
        inputs, arguments = list(ones), list(first)
        for k, one in enumerate(ones):
            if chosen[k]:
                inputs[k] = Variable(one.type.with_shape((size, *one.shape)), one.name)
                column = [row[k] for row in rows[:size]]
                arguments[k] = np.stack(column) if size else np.zeros(inputs[k].shape, one.dtype)
        moving = [k for k in range(len(ones)) if chosen[k]]
        results = batched(outputs, [ones[k] for k in moving], [inputs[k] for k in moving])
        graph = Graph(tuple(inputs), tuple(results))
        check(graph)
        single = [[row[k] if chosen[k] else first[k] for k in range(len(ones))] for row in rows[: size or 1]]
        each = [evaluate(Graph(ones, outputs), row) for row in single]
        for k, found in enumerate(evaluate(graph, arguments)):
            assert results[k].shape in (outputs[k].shape, (size, *outputs[k].shape))
            wanted = each[0][k]
            if results[k].ndim > outputs[k].ndim:
                wanted = np.stack([values[k] for values in each])[:size]
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            if tolerance and is_float(found.dtype):
                close = tolerance * np.finfo(found.dtype).eps
                np.testing.assert_allclose(
                    found, wanted, rtol=close, atol=close, err_msg=f"batched: {chosen}"
                )
            else:
                np.testing.assert_array_equal(found, wanted, err_msg=f"batched: {chosen}")


def assert_case_batches(case: OperatorCase, size: int) -> None:
    try:
        assert_batches(
            lambda *inputs: [case.apply(*inputs)],
            [case.arguments(example) for example in range(size or 1)],
            size,
            32 if case.operator.name in REORDERED or any(map(is_complex, case.dtypes)) else 0,
        )
    except AssertionError as error:
        raise AssertionError(f"{case}, {size} examples: {error}") from error


@every_operator
def test_a_batch_is_the_stack_of_its_examples(name: str) -> None:
    for case in operator_cases(name):
        assert_case_batches(case, 3)


@every_operator
def test_batches_of_one_and_of_none(name: str) -> None:
    dtypes = [FLOAT64] if any(operator_cases(name, dtypes=[FLOAT64])) else [np.dtype(np.int32)]
    for case in operator_cases(name, dtypes=dtypes):
        assert_case_batches(case, 1)
        assert_case_batches(case, 0)


@every_operator
def test_a_batch_of_cotangents(name: str) -> None:
    """Whatever the pullback is made of is batched as well: the cotangents of each example."""
    for case in operator_cases(name, dtypes=[FLOAT64]):
        result = case.graph().outputs[0]
        if not case.differentiable or result.dtype != FLOAT64:
            continue

        def pulled(*nodes: Node, case: OperatorCase = case) -> list[Node]:
            *inputs, seed = nodes
            bars = cotangents([case.apply(*inputs)], [seed], [inputs[k] for k in case.differentiable])
            return [bar for bar in bars if bar is not None]

        random = np.random.default_rng(0)
        rows = [[*case.arguments(k), np.asarray(random.uniform(-1, 1, result.shape))] for k in range(2)]
        try:
            assert_batches(pulled, rows, 2, 512)
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}") from error


def test_a_rule_that_gives_another_type() -> None:
    def forgetful(node: Operation, inputs: Sequence[Node]) -> Node:
        return OPERATORS["sum"](inputs[0], axes=(0,))

    one, many = (Variable(Type(FLOAT64, shape)) for shape in ((3,), (2, 3)))
    try:
        unruly = Operator("unruly", lambda x: x, np.positive, None, forgetful, None, (Case((Sample((3,)),)),))
        with pytest.raises(
            BatchError, match=r"unruly: .* gives float64\[3\] for .*; it must give float64\[2, 3\]"
        ):
            batched([unruly(one)], [one], [many])
    finally:
        del OPERATORS["unruly"]
