"""Every operator of the table along a named axis: padding of NaN and huge values changes nothing of the rest."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pullback.compiler.jit.named import cut, slices_of
from pullback.compiler.legalise.padded import with_capacity
from pullback.errors import DTypeError, NamedAxisError, PullbackError, ShapeError
from pullback.graph import OPERATORS, Graph, Node, Type, Variable, is_complex, is_float
from pullback.graph.named import STAND_INS, NamedSize, named_sizes
from pullback.interpreter import evaluate
from pullback.testing import OperatorCase, operator_cases
from pullback.transforms.batching import batched
from pullback.transforms.reverse import cotangents

FLOAT64 = np.dtype(np.float64)
CAPACITY = 8
REFUSED = {
    "distinct",
    "links",
    "scatter_multiply",
    "scatter_power",
    "scatter_set",
    "solve",
    "triangular_solve",
}
"""Operators whose rules, of some inputs, put examples where rows are no rows: behind others, or between them."""
every_operator = pytest.mark.parametrize(
    "name", [name for name, operator in OPERATORS.items() if any(case.inputs for case in operator.cases)]
)

Made = Callable[[int], tuple[list[Variable], Sequence[Node]]]
"""The inputs and outputs of a function for some extent of its axis."""


def worst(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """What padding may be at its worst."""
    if is_complex(dtype):
        values: Sequence[complex] = (complex(np.nan, np.inf), complex(-1e30, 1e30))
    elif is_float(dtype):
        values = (np.nan, np.inf, -np.inf, 6e4, -6e4, 0.0)
    elif dtype.kind == "b":
        values = (True, False)
    else:
        values = (np.iinfo(dtype).max, np.iinfo(dtype).min, 77)
    if name == "power" and dtype.kind == "i":
        values = (77, 78)  # checked by another operator before
    found = [each for each, _ in zip(itertools.cycle(values), range(int(np.prod(shape))))]
    return np.array(found, dtype).reshape(shape)


def assert_same(
    name: str, made: Made, arguments: Sequence[np.ndarray], extent: int, tolerance: float = 256
) -> bool:
    """Whether there is a program for any size; where there is, it gives what the one for ``extent`` does."""
    size = NamedSize("rows", STAND_INS[0], Variable(Type(np.dtype(np.int64), (), True), "rows"))
    with named_sizes([size]):
        try:
            inputs, outputs = made(size.stand_in)
        except (DTypeError, ShapeError):
            return False
        graph = Graph(tuple(inputs), tuple(outputs))
    instance = with_capacity(graph, [size], [CAPACITY])
    if extent < instance.least:
        return False
    plain, results = made(extent)
    given = []
    for variable, array in zip(inputs, arguments):
        shape = tuple(CAPACITY if axis == size.stand_in else axis for axis in variable.shape)
        made = worst(name, shape, array.dtype)
        made[tuple(map(slice, array.shape))] = array
        given.append(made)
    with np.errstate(all="ignore"):
        found = evaluate(instance.graph, [*given, np.asarray(extent)])
        wanted = evaluate(Graph(tuple(plain), tuple(results)), list(arguments))
    for padded, cuts, other in zip(found, slices_of(graph, [size]), wanted):
        one = cut(padded, cuts, [extent], steps=0)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if is_float(one.dtype):
            close = tolerance * float(np.finfo(one.dtype).eps) if one.dtype.char != "E" else 0.05
            np.testing.assert_allclose(one.astype(complex), other.astype(complex), rtol=close, atol=close)
        else:
            np.testing.assert_array_equal(one, other)
    return True


Chosen = frozenset[tuple[int, int]]
"""Axes that are named: the number of the input, and the axis."""


def own_axes(case: OperatorCase, chosen: Chosen) -> Made:
    """The case's operator with axes of its own named."""

    def made(extent: int) -> tuple[list[Variable], Sequence[Node]]:
        inputs = []
        for k, type in enumerate(case.types):
            shape = tuple([extent if (k, axis) in chosen else own for axis, own in enumerate(type.shape)])
            inputs.append(Variable(type.with_shape(shape), f"x{k}"))
        return inputs, [case.apply(*inputs)]

    return made


@every_operator
def test_along_its_own_axes(name: str) -> None:
    """One axis, the axes of one number of all inputs, or all axes that are as long."""
    for case in operator_cases(name):
        arguments = case.arguments()
        places = [(k, axis, n) for k, type in enumerate(case.types) for axis, n in enumerate(type.shape)]
        for extent in sorted({n for _, _, n in places if 1 < n <= CAPACITY}):
            alike = [(k, axis) for k, axis, n in places if n == extent]
            columns = [frozenset(p for p in alike if p[1] == axis) for axis in {axis for _, axis in alike}]
            for chosen in {frozenset(alike), *columns, *[frozenset([place]) for place in alike]}:
                try:
                    assert_same(name, own_axes(case, chosen), arguments, extent)
                except NamedAxisError:
                    pass  # it is refused, as far as its operator says
                except AssertionError as error:
                    raise AssertionError(f"{case}, axes {sorted(chosen)}: {error}") from error


def many(case: OperatorCase, chosen: Sequence[bool], pulled: bool) -> Made:
    """The case's operator for any number of examples, or its cotangents."""

    def made(extent: int) -> tuple[list[Variable], Sequence[Node]]:
        ones = [Variable(type, f"x{k}") for k, type in enumerate(case.types)]
        inputs = [
            Variable(one.type.with_shape((extent, *one.shape)), one.name) if named else one
            for one, named in zip(ones, chosen)
        ]
        moving = [k for k, named in enumerate(chosen) if named]
        outputs = batched([case.apply(*ones)], [ones[k] for k in moving], [inputs[k] for k in moving])
        if not pulled:
            return inputs, outputs
        seed = Variable(outputs[0].type, "seed")
        bars = cotangents(outputs, [seed], [inputs[k] for k in case.differentiable])
        return [*inputs, seed], [bar for bar in bars if bar is not None]

    return made


@every_operator
@pytest.mark.parametrize("pulled", [False, True], ids=["values", "cotangents"])
def test_for_any_number_of_examples(name: str, pulled: bool) -> None:
    for case in operator_cases(name, dtypes=[FLOAT64]) if pulled else operator_cases(name):
        result = case.graph().outputs[0]
        if pulled and (not case.differentiable or result.dtype != FLOAT64):
            continue
        count = len(case.types)
        for chosen in {(True,) * count, *[tuple(k == j for j in range(count)) for k in range(count)]}:
            extent = 3
            rows = [case.arguments(k) for k in range(extent)]
            columns = [np.stack([row[k] for row in rows]) if n else rows[0][k] for k, n in enumerate(chosen)]
            if pulled:
                columns.append(np.asarray(np.random.default_rng(0).uniform(-1, 1, (extent, *result.shape))))
            try:
                assert assert_same(name, many(case, chosen, pulled), columns, extent, 4096)
            except NamedAxisError:
                assert name in REFUSED, f"{case}, examples {chosen}"
            except (AssertionError, PullbackError) as error:
                raise AssertionError(f"{case}, examples {chosen}: {error}") from error
