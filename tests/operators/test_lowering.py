"""Lowerings: each operator's loop form, evaluated in NumPy at every index, against its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.graph import OPERATORS
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Buffer,
    Expression,
    Literal,
    Load,
    Position,
    Reduce,
    load_at,
    walk,
)
from pullback.testing import operator_cases

REDUCERS = {
    "add": np.add.reduce,
    "multiply": np.multiply.reduce,
    "maximum": np.maximum.reduce,
    "minimum": np.minimum.reduce,
}


class Evaluator:
    """Values of expressions as arrays with one dimension for each axis that occurs."""

    def __init__(self, root: Expression, memory: dict[Buffer, np.ndarray]) -> None:
        self.memory = memory
        found: dict[Axis, None] = {}
        for part in walk(root):
            found.update(dict.fromkeys((*part.own_axes(), *part.bound_axes())))
        self.axes = list(found)

    def position(self, index: Affine) -> np.ndarray:
        total = np.full((1,) * len(self.axes), index.constant, np.int64)
        for axis, coefficient in index.terms:
            shape = [1] * len(self.axes)
            shape[self.axes.index(axis)] = axis.extent
            total = total + coefficient * np.arange(axis.extent).reshape(shape)
        return total

    def value(self, expression: Expression) -> np.ndarray:
        result = self.compute(expression)
        assert result.dtype == expression.dtype, expression
        return result

    def compute(self, expression: Expression) -> np.ndarray:
        if isinstance(expression, Literal):
            return np.full((1,) * len(self.axes), expression.value, expression.dtype)
        if isinstance(expression, Position):
            return self.position(expression.index)
        if isinstance(expression, Load):
            return self.load(expression)
        if isinstance(expression, Apply):
            return self.apply(expression)
        assert isinstance(expression, Reduce)
        return self.reduce(expression)

    def load(self, load: Load) -> np.ndarray:
        place = self.position(load.offset)
        for index, stride in load.dynamic:
            place = place + stride * self.value(index)
        read = np.broadcast_to(True, place.shape) if load.guard is None else self.value(load.guard)
        place, read = np.broadcast_arrays(place, read)
        flat = self.memory[load.buffer].reshape(-1)
        outside = read & ((place < 0) | (place >= flat.size))
        assert not outside.any(), f"{load!r} reads at {place[outside]} of {flat.size}"
        result = np.zeros(place.shape, flat.dtype)
        result[read] = flat[place[read]]
        return result

    def apply(self, apply: Apply) -> np.ndarray:
        operands = np.broadcast_arrays(*map(self.value, apply.operands))
        if apply.function == "cast":
            return operands[0].astype(apply.dtype)
        return np.asarray(OPERATORS[apply.function].reference(*operands, **dict(apply.attributes)))

    def reduce(self, reduce: Reduce) -> np.ndarray:
        body = self.value(reduce.body)
        over = tuple(self.axes.index(axis) for axis in reduce.over)
        extents = [self.axes[k].extent if k in over else n for k, n in enumerate(body.shape)]
        body = np.broadcast_to(body, extents)
        if reduce.kind in REDUCERS:
            return REDUCERS[reduce.kind](body, axis=over, keepdims=True, dtype=body.dtype)
        kept = [k for k in range(body.ndim) if k not in over]
        flat = body.transpose([*kept, *over]).reshape([body.shape[k] for k in kept] + [-1])
        chosen = getattr(np, reduce.kind)(flat, axis=-1)
        return chosen.reshape([1 if k in over else n for k, n in enumerate(body.shape)])


def evaluate_lowering(case: Any) -> np.ndarray:
    """The result of a case by its operator's loop form."""
    graph = case.graph()
    node = graph.outputs[0]
    buffers = [Buffer(v.name, v.dtype, v.shape) for v in graph.inputs]
    operands = [lambda index, buffer=buffer: load_at(buffer, index) for buffer in buffers]
    axes = [Axis(f"i{k}", extent) for k, extent in enumerate(node.shape)]
    root = case.operator.lower(node, operands, [Affine.of(axis) for axis in axes])
    evaluator = Evaluator(root, dict(zip(buffers, case.arguments())))
    with np.errstate(all="ignore"):
        value = evaluator.value(root)
    # Put the result's axes in their order, and repeat the value along those that it does not depend on.
    free = [axis for axis in axes if axis in evaluator.axes]
    assert all(value.shape[k] == 1 for k, axis in enumerate(evaluator.axes) if axis not in free)
    shape = [value.shape[evaluator.axes.index(axis)] if axis in free else 1 for axis in axes]
    order = [evaluator.axes.index(axis) for axis in free]
    rest = [k for k in range(value.ndim) if k not in order]
    return np.broadcast_to(value.transpose([*order, *rest]).reshape(shape), node.shape)


@pytest.mark.parametrize("name", [name for name, operator in OPERATORS.items() if operator.lower])
def test_lowering_agrees_with_reference(name: str) -> None:
    for case in operator_cases(name):
        if case.graph().outputs[0].size == 0:
            continue
        with np.errstate(all="ignore"):
            expected = np.asarray(case.operator.reference(*case.arguments(), **case.attributes))
        found = evaluate_lowering(case)
        assert found.dtype == expected.dtype, case
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=str(case))
        else:
            np.testing.assert_array_equal(found, expected, err_msg=str(case))


def test_only_scatters_have_no_lowering() -> None:
    assert [name for name, operator in OPERATORS.items() if operator.lower is None] == ["scatter_add"]
