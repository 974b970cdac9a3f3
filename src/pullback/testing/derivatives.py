"""Checks of derivatives: of the operators, from the table's cases, and of any function of arrays."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback import numpy as _vocabulary  # noqa: F401  (fills the nodes' operators)
from pullback import operators as _operators  # noqa: F401  (fills the table)
from pullback.errors import DerivativeError, DTypeError
from pullback.graph import (
    DTYPES,
    OPERATORS,
    Case,
    Graph,
    Node,
    Operator,
    Sample,
    Type,
    Variable,
    constant,
    is_complex,
    is_float,
    part_dtype,
)
from pullback.interpreter import evaluate
from pullback.numpy.arrays import TracedArray
from pullback.tracing.trace import tracing
from pullback.transforms.forward import tangents
from pullback.transforms.reverse import cotangents

__all__ = ["OperatorCase", "check_grads", "operator_cases"]

FLOAT64 = np.dtype(np.float64)
INT64 = np.dtype(np.int64)
VARIED = (FLOAT64, np.dtype(np.complex128))
"""The dtypes that finite differences are fine enough in."""

SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (0,), (7,), (2, 0, 3), (1, 3, 1))
"""Further shapes for elementwise operators: rank 0, axes of one element and of none, an odd length."""


@dataclass(frozen=True)
class OperatorCase:
    """One operator on inputs of given shapes and dtypes, with attributes and values to try it on.

    >>> import numpy as np
    >>> case = next(operator_cases("tanh", dtypes=[np.dtype(np.float32)]))
    >>> print(case)
    tanh(float32[3, 2])
    >>> evaluate(case.graph(), case.arguments())[0].shape
    (3, 2)
    """

    operator: Operator
    samples: tuple[Sample, ...]
    dtypes: tuple[np.dtype, ...]
    attributes: Mapping[str, Any]
    differentiable: tuple[int, ...]
    """The inputs that have a derivative at the samples."""

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of the inputs."""
        return tuple(Type(dtype, sample.shape) for dtype, sample in zip(self.dtypes, self.samples))

    def arguments(self, example: int = 0) -> list[np.ndarray]:
        """Values for the inputs, the same ones each time and others for each ``example``."""
        random = np.random.default_rng(zlib.crc32(str(self).encode()) + example)
        return [_draw(random, sample, dtype) for sample, dtype in zip(self.samples, self.dtypes)]

    def apply(self, *inputs: Node) -> Node:
        """The operator on nodes."""
        return self.operator(*inputs, **self.attributes)

    def graph(self) -> Graph:
        """A graph of the operator alone."""
        inputs = tuple(Variable(type, f"x{k}") for k, type in enumerate(self.types))
        return Graph(inputs, (self.apply(*inputs),))

    def in_dtype(self, old: np.dtype, new: np.dtype) -> OperatorCase:
        """The same case with inputs of dtype ``old`` in ``new``."""
        return replace(self, dtypes=tuple(new if dtype == old else dtype for dtype in self.dtypes))

    def __str__(self) -> str:
        parts = [str(type) for type in self.types]
        parts += [f"{key}={value}" for key, value in sorted(self.attributes.items())]
        return f"{self.operator.name}({', '.join(parts)})"


def _draw(random: np.random.Generator, sample: Sample, dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            values = np.asarray(random.uniform(sample.low, sample.high, sample.shape))
            if sample.diagonal:
                values = values + sample.diagonal * np.eye(sample.shape[-2], sample.shape[-1])
            return values.astype(dtype)
    if dtype.kind == "c":
        parts = [
            _draw(random, replace(sample, diagonal=each), part_dtype(dtype)) for each in (sample.diagonal, 0)
        ]
        return np.asarray(OPERATORS["complex_of"].reference(*parts))
    if dtype.kind == "b":
        return np.asarray(random.integers(0, 2, sample.shape)).astype(dtype)
    low, high = math.ceil(sample.low), math.ceil(sample.high)
    if dtype.kind == "u":
        low, high = max(low, 0), max(high, 1)
    return np.asarray(random.integers(low, max(high, low + 1), sample.shape)).astype(dtype)


def _dtype_of(sample: Sample, dtype: np.dtype) -> np.dtype:
    """What ``sample`` is drawn in while ``dtype`` is tried: ``dtype`` where its kind allows that."""
    if sample.kind == "float":
        return dtype if is_float(dtype) else FLOAT64
    if sample.kind == "int":
        return dtype if dtype.kind in "iu" else INT64
    if sample.kind == "complex":
        return dtype if is_complex(dtype) else np.dtype(np.complex128)
    return {"bool": np.dtype(bool), "index": INT64}.get(sample.kind, dtype)


def _in_every_dtype(operator: Operator, case: Case, dtypes: Sequence[np.dtype]) -> Iterator[OperatorCase]:
    seen = set()
    for dtype in dtypes:
        chosen = tuple(_dtype_of(sample, dtype) for sample in case.inputs)
        if chosen in seen or not set(chosen) <= {*dtypes, np.dtype(bool), INT64}:
            continue
        seen.add(chosen)
        floats = tuple(k for k, dtype in enumerate(chosen) if is_float(dtype))
        differentiable = floats if case.differentiable is None else case.differentiable
        made = OperatorCase(operator, case.inputs, chosen, case.attributes, differentiable)
        try:
            operator.type_rule(*made.types, **case.attributes)
        except DTypeError:
            continue
        yield made


def operator_cases(
    name: str | None = None, dtypes: Sequence[np.dtype] = DTYPES, vary_shapes: bool = True
) -> Iterator[OperatorCase]:
    """The cases of the operator ``name``, or of every operator, in all of ``dtypes`` that it takes.

    With ``vary_shapes`` the first case of an elementwise operator comes in other shapes as well: rank 0, axes
    of one element and of none, in its float dtypes, or in one dtype where it takes no floats.
    """
    for operator in [OPERATORS[name]] if name else list(OPERATORS.values()):
        for case in operator.cases:
            yield from _in_every_dtype(operator, case, dtypes)
        if not (vary_shapes and operator.elementwise):
            continue
        known = list(_in_every_dtype(operator, operator.cases[0], dtypes))
        floats = [example for example in known if any(map(is_float, example.dtypes))]
        for example in floats or known[:1]:
            for shape in SHAPES:
                yield replace(
                    example, samples=tuple(replace(sample, shape=shape) for sample in example.samples)
                )


def check_grads(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    order: int = 2,
    modes: Sequence[str] = ("reverse", "forward"),
    tolerance: float = 1e-6,
    active: Sequence[int] | None = None,
) -> None:
    r"""Compare derivatives of ``function`` at ``arguments`` with finite differences along a random direction.

    .. math:: J v \approx \frac{f(x + \epsilon v) - f(x - \epsilon v)}{2 \epsilon}

    ``function`` takes arrays and gives an array or a tuple of arrays. Derivatives are taken by ``float64`` and
    ``complex128`` arguments: all of them, or those at the positions ``active``; ``order`` 2 checks the gradient's
    derivative as well, and so on. ``tolerance`` is relative to ``1 + |J v|``.

    Raises ``AssertionError`` when a derivative is wrong and ``DerivativeError`` when there is nothing to
    check.

    Source: the recipe of HIPS autograd's ``check_grads``: Maclaurin, *Modeling, Inference and Optimization
    with Composable Differentiable Procedures*, Harvard 2016.

    >>> import numpy as np
    >>> check_grads(lambda x: np.sin(np.cos(x)), [0.7])
    """
    arrays = [np.asarray(argument) for argument in arguments]
    if active is None:
        active = [k for k, array in enumerate(arrays) if array.dtype in VARIED]
    if not active or any(arrays[k].dtype not in VARIED for k in active):
        found = ", ".join(str(array.dtype) for array in arrays)
        raise DerivativeError(
            f"check_grads needs float64 or complex128 arguments to vary, not {found}; cast them to float64"
        )
    variables = [Variable(Type(array.dtype, array.shape), f"x{k}") for k, array in enumerate(arrays)]
    with tracing(variables):
        made = function(*map(TracedArray, variables))
    outputs = [each.node for each in (made if isinstance(made, (tuple, list)) else [made])]
    check = _Check(tuple(variables), arrays, tuple(active), tuple(modes), tolerance)
    check.run([output for output in outputs if is_float(output.dtype)], order)


def _normal(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    values = random.standard_normal(shape)
    return values + 1j * random.standard_normal(shape) if is_complex(dtype) else np.asarray(values)


@dataclass(frozen=True)
class _Check:
    variables: tuple[Variable, ...]
    arrays: list[np.ndarray]
    active: tuple[int, ...]
    modes: tuple[str, ...]
    tolerance: float
    step: float = 1e-6

    def run(self, outputs: Sequence[Node], order: int) -> None:
        """Check first derivatives of ``outputs``, then, for higher orders, those of their cotangents."""
        if order == 0 or not outputs:
            return
        random = np.random.default_rng(order)
        wanted = [self.variables[k] for k in self.active]
        direction = [_normal(random, self.arrays[k].shape, self.arrays[k].dtype) for k in self.active]
        weights = [_normal(random, output.shape, output.dtype) for output in outputs]
        slopes = self.finite_differences(outputs, direction)
        bars = cotangents(outputs, [constant(weight) for weight in weights], wanted)
        if "reverse" in self.modes:
            # Of a cotangent and a tangent that are complex the real part of the product counts.
            exact = sum(np.sum(bar * v).real for bar, v in zip(self.values(bars, wanted), direction))
            near = sum(np.sum(weight * slope).real for weight, slope in zip(weights, slopes))
            self.compare("reverse", order, np.asarray(exact), np.asarray(near))
        if "forward" in self.modes:
            dots = tangents(outputs, wanted, [constant(v) for v in direction])
            for dot, slope in zip(self.values(dots, outputs), slopes):
                self.compare("forward", order, dot, slope)
        self.run([bar for bar in bars if bar is not None], order - 1)

    def finite_differences(
        self, outputs: Sequence[Node], direction: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """The central difference of each output along ``direction``."""
        ends = []
        for sign in (1, -1):
            moved = list(self.arrays)
            for k, v in zip(self.active, direction):
                moved[k] = moved[k] + sign * self.step * v
            ends.append(evaluate(Graph(self.variables, tuple(outputs)), moved))
        return [(high - low) / (2 * self.step) for high, low in zip(*ends)]

    def values(self, nodes: Sequence[Node | None], like: Sequence[Node]) -> list[np.ndarray]:
        """The value of each node, zeros in the shape of ``like`` for those that are absent."""
        present = tuple(node for node in nodes if node is not None)
        found = iter(evaluate(Graph(self.variables, present), self.arrays))
        return [np.zeros(model.shape) if node is None else next(found) for node, model in zip(nodes, like)]

    def compare(self, mode: str, order: int, exact: np.ndarray, near: np.ndarray) -> None:
        """Raise ``AssertionError`` unless the two agree."""
        scale = 1 + np.maximum(np.abs(exact), np.abs(near))
        if not (np.abs(exact - near) <= self.tolerance * scale).all():
            raise AssertionError(
                f"{mode} mode, derivatives left to check: {order}. Along a random direction the derivative "
                f"is {exact}; finite differences give {near}"
            )
