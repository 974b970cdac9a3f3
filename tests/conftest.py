"""What several packages' tests need: loop expressions computed by NumPy, and operators lowered to them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from pullback import operators as _operators  # noqa: F401  (fills the table)
from pullback.compiler.target import Processor
from pullback.graph import OPERATORS, Constant, Node, Operation
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
    fused_product,
    load_at,
    walk,
)
from pullback.loops.functions import FUNCTIONS
from pullback.loops.multiply_add import multiply_add

# A shell ignores Ctrl-C in what it runs in the background, and what it starts inherits that; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

KILO, MEGA = 1 << 10, 1 << 20
AVX512 = "+avx2,+avx512bw,+avx512dq,+avx512f,+avx512vl,+fma"

DESCRIBED = {
    "zen3": Processor("znver3", "+avx2,+fma", "x86_64", 32, 16, 32 * KILO, 512 * KILO, 8),
    "zen5": Processor("znver5", AVX512, "x86_64", 64, 32, 48 * KILO, MEGA, 3),
    "emerald-rapids": Processor("emeraldrapids", AVX512, "x86_64", 64, 32, 48 * KILO, 2 * MEGA, 2),
    "cascade-lake": Processor("cascadelake", AVX512, "x86_64", 64, 32, 32 * KILO, MEGA, 2),
    "graviton3": Processor("neoverse-v1", "+neon", "aarch64", 16, 32, 64 * KILO, MEGA, 8),
    "apple-m2": Processor("apple-m2", "+neon", "aarch64", 16, 32, 128 * KILO, 16 * MEGA, 8),
    "odd-caches": Processor("generic", "+avx2,+fma", "x86_64", 32, 16, 24 * KILO, 1280 * KILO, 3),
    "unknown-caches": Processor("generic", "", "riscv64", 16, 16),
}
"""Vectors of 16 bytes stand for SVE too: the compiler writes fixed widths, and asks for no more than NEON has."""


@pytest.fixture(params=DESCRIBED.values(), ids=DESCRIBED, scope="session")
def described(request: pytest.FixtureRequest) -> Processor:
    """Each processor of a list, for what is decided but not run."""
    return request.param


REDUCTIONS = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


class Grid:
    """Values of expressions for all turns of all axes at once: each axis is one dimension of every value."""

    def __init__(self, roots: Sequence[Expression], arrays: Mapping[Buffer, np.ndarray]) -> None:
        self.arrays = arrays
        found = {axis: None for e in walk(*roots) for axis in (*e.own_axes(), *e.bound_axes())}
        self.axes = list(found)
        self.values: dict[int, np.ndarray] = {}
        for expression in walk(*roots):
            value = self.values[id(expression)] = np.asarray(self.compute(expression))
            assert value.dtype == expression.dtype, expression

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
            return np.full((1,) * len(self.axes), expression.value, expression.dtype)
        if isinstance(expression, Position):
            return self.affine(expression.index)
        if isinstance(expression, Load):
            return self.load(expression)
        if isinstance(expression, Reduce):
            return self.reduce(expression, values[0])
        assert isinstance(expression, Apply)
        if expression.function == "cast":
            return values[0].astype(expression.dtype)
        if expression.function == "bounded":
            limits = dict(expression.attributes)
            assert np.all((values[0] >= limits["low"]) & (values[0] <= limits["high"]))
            return values[0]
        operands = np.broadcast_arrays(*values)
        place = fused_product(expression)
        if place is not None:
            factors = [self.values[id(factor)] for factor in expression.operands[place].operands]
            return multiply_add(expression.function, place, factors, operands[1 - place])
        if expression.function not in OPERATORS:
            return np.asarray(FUNCTIONS[expression.function](*operands))
        attributes = {key: value for key, value in expression.attributes if key != "source"}
        return np.asarray(OPERATORS[expression.function].reference(*operands, **attributes))

    def reduce(self, reduction: Reduce, body: np.ndarray) -> np.ndarray:
        over = tuple(self.axes.index(axis) for axis in reduction.over)
        extents = [self.axes[k].extent if k in over else extent for k, extent in enumerate(body.shape)]
        body = np.broadcast_to(body, extents)
        if reduction.kind in REDUCTIONS:
            return REDUCTIONS[reduction.kind].reduce(body, over, dtype=body.dtype, keepdims=True)
        kept = [k for k in range(body.ndim) if k not in over]
        flat = body.transpose([*kept, *over]).reshape([*(body.shape[k] for k in kept), -1])
        return getattr(np, reduction.kind)(flat, axis=-1).reshape(
            [1 if k in over else extent for k, extent in enumerate(body.shape)]
        )

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
        return np.where(read, array[np.where(read, place, 0)], np.zeros((), array.dtype))


@pytest.fixture
def expression_value() -> Callable[..., np.ndarray]:
    """``expression_value(expression, axes, arrays)``: an array with one dimension for each of ``axes``.

    Every read is asserted to lie inside its buffer.
    """

    def value(
        expression: Expression, axes: Sequence[Axis], arrays: Mapping[Buffer, np.ndarray] | None = None
    ) -> np.ndarray:
        # The positions beside the expression make every axis known, also those that it does not depend on.
        with np.errstate(all="ignore"):
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
