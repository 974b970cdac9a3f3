"""What several packages' tests need: loop expressions computed by NumPy, and operators lowered to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from pullback.graph import Constant, Node, Operation
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Buffer,
    Expression,
    Index,
    Literal,
    Load,
    Operand,
    Position,
    Reduce,
    load_at,
    walk,
)

REDUCTIONS = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


class Grid:
    """Values of expressions for all turns of all axes at once: each axis is one dimension of every value."""

    def __init__(self, roots: Sequence[Expression], arrays: Mapping[Buffer, np.ndarray]) -> None:
        self.arrays = arrays
        found = {axis: None for e in walk(*roots) for axis in (*e.own_axes(), *e.bound_axes())}
        self.axes = list(found)
        self.values: dict[int, np.ndarray] = {}
        for expression in walk(*roots):
            self.values[id(expression)] = np.asarray(self.compute(expression), expression.dtype)

    def affine(self, index: Affine) -> np.ndarray:
        total = np.full((1,) * len(self.axes), index.constant, np.int64)
        for axis, coefficient in index.terms:
            shape = [1] * len(self.axes)
            shape[self.axes.index(axis)] = axis.extent
            total = total + coefficient * np.arange(axis.extent).reshape(shape)
        return total

    def compute(self, expression: Expression) -> np.ndarray:
        values = [self.values[id(operand)] for operand in expression.operands]
        if isinstance(expression, Literal):
            return np.full((1,) * len(self.axes), expression.value)
        if isinstance(expression, Position):
            return self.affine(expression.index)
        if isinstance(expression, Load):
            return self.load(expression)
        if isinstance(expression, Reduce):
            dimensions = tuple(self.axes.index(axis) for axis in expression.over)
            shape = list(values[0].shape)
            for dimension in dimensions:
                shape[dimension] = self.axes[dimension].extent
            return REDUCTIONS[expression.kind].reduce(
                np.broadcast_to(values[0], shape), dimensions, keepdims=True
            )
        assert isinstance(expression, Apply)
        if expression.function == "cast":
            return values[0].astype(expression.dtype)
        if expression.function == "check_index":
            extent = dict(expression.attributes)["extent"]
            assert ((values[0] >= -extent) & (values[0] < extent)).all(), (
                "an index that is not used was checked"
            )
            return np.where(values[0] < 0, values[0] + extent, values[0])
        return getattr(np, expression.function)(*values)

    def load(self, load: Load) -> np.ndarray:
        place = self.affine(load.offset)
        for index, stride in load.dynamic:
            place = place + stride * self.values[id(index)]
        read = np.True_ if load.guard is None else self.values[id(load.guard)]
        place, read = np.broadcast_arrays(place, read)
        array = self.arrays[load.buffer].reshape(-1)
        assert (~read | ((place >= 0) & (place < array.size))).all(), f"{load!r} reads outside its buffer"
        if not place.size:
            return np.zeros(place.shape, array.dtype)
        return np.where(read, array[np.where(read, place, 0)], 0)


@pytest.fixture
def expression_value() -> Callable[..., np.ndarray]:
    """``expression_value(expression, axes, arrays)``: an array with one dimension for each of ``axes``.

    Every read is asserted to lie inside its buffer.
    """

    def value(
        expression: Expression, axes: Sequence[Axis], arrays: Mapping[Buffer, np.ndarray] | None = None
    ) -> np.ndarray:
        # The positions beside the expression make every axis known, also those that it does not depend on.
        grid = Grid([expression, *(Position(Affine(((axis, 1),))) for axis in axes)], arrays or {})
        result = grid.values[id(expression)]
        shape = list(result.shape)
        for axis in axes:
            shape[grid.axes.index(axis)] = axis.extent
        order = [grid.axes.index(axis) for axis in axes]
        rest = [k for k in range(len(shape)) if k not in order]
        return np.broadcast_to(result, shape).transpose(order + rest).reshape([axis.extent for axis in axes])

    return value


@pytest.fixture
def loop_value(expression_value: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """``loop_value(node, {variable: array})``: a node's value by its lowering, all operations inlined."""

    def value(node: Node, arguments: Mapping[Node, np.ndarray]) -> np.ndarray:
        arrays: dict[Buffer, np.ndarray] = {}

        def operand(child: Node) -> Operand:
            if isinstance(child, Operation):
                return lambda index: lowered(child, index)
            array = child.value if isinstance(child, Constant) else arguments[child]
            buffer = Buffer("x", child.dtype, child.shape)
            arrays[buffer] = array
            return lambda index: load_at(buffer, index)

        def lowered(operation: Operation, index: Sequence[Index]) -> Expression:
            return operation.operator.lower(operation, [operand(child) for child in operation.inputs], index)

        axes = [Axis(f"i{k}", extent) for k, extent in enumerate(node.shape)]
        expression = operand(node)([Affine.of(axis) for axis in axes])
        assert expression.dtype == node.dtype
        if not node.size:
            # No turn of the loops: nothing is read, and there may be nothing to read.
            return np.empty(node.shape, node.dtype)
        return expression_value(expression, axes, arrays)

    return value
