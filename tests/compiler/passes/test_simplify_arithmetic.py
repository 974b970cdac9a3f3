"""Arithmetic is simplified to the bit: values are chosen so that a rule that is not exact is seen."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import pullback.numpy as pnp
from pullback.compiler.passes import optimise
from pullback.compiler.passes.fold_constants import fold_constants
from pullback.compiler.passes.simplify_arithmetic import simplify_arithmetic
from pullback.graph import DTYPES, OPERATORS, Graph, Node
from pullback.operators.elementwise import filled

TINY = float(np.finfo(np.float32).smallest_subnormal)
HUGE = float(np.finfo(np.float32).max)
VALUES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.5,
    -3.75,
    math.inf,
    -math.inf,
    math.nan,
    TINY,
    -TINY,
    1e-38,
    HUGE,
    -HUGE,
    1 / 3,
]


def of(name: str, *operands: Node | float, **attributes: object) -> Node:
    """The operator on nodes of one type; numbers are repeated in the type of the first node."""
    like = next(operand for operand in operands if isinstance(operand, Node))
    nodes = [x if isinstance(x, Node) else filled(x, like.dtype, like.shape) for x in operands]
    return OPERATORS[name](*nodes, **attributes)


def neg(x: Node) -> Node:
    return of("negative", x)


def twice(x: Node) -> Node:
    return of("add", x, x)


ONE_OPERAND: dict[str, tuple[Callable[[Node], Node], list[str]]] = {
    "x + -0.0": (lambda x: of("add", x, -0.0), []),
    "-0.0 + x": (lambda x: of("add", -0.0, x), []),
    "x + 0.0": (lambda x: of("add", x, 0.0), ["add"]),
    "x - 0.0": (lambda x: of("subtract", x, 0.0), []),
    "x - -0.0": (lambda x: of("subtract", x, -0.0), ["subtract"]),
    "0.0 - x": (lambda x: of("subtract", 0.0, x), ["subtract"]),
    "-0.0 - x": (lambda x: of("subtract", -0.0, x), ["negative"]),
    "x - x": (lambda x: of("subtract", x, x), ["subtract"]),
    "x * 1": (lambda x: of("multiply", x, 1), []),
    "1 * x": (lambda x: of("multiply", 1, x), []),
    "x * -1": (lambda x: of("multiply", x, -1), ["negative"]),
    "x * 0": (lambda x: of("multiply", x, 0), ["multiply"]),
    "x / 1": (lambda x: of("divide", x, 1), []),
    "x / -1": (lambda x: of("divide", x, -1), ["negative"]),
    "x / 8": (lambda x: of("divide", x, 8), ["multiply"]),
    "x / -0.5": (lambda x: of("divide", x, -0.5), ["multiply"]),
    "x / 3": (lambda x: of("divide", x, 3), ["divide"]),
    "x / 0": (lambda x: of("divide", x, 0.0), ["divide"]),
    "x / inf": (lambda x: of("divide", x, math.inf), ["divide"]),
    "x / tiny": (lambda x: of("divide", x, TINY), ["divide"]),
    "x / largest power": (lambda x: of("divide", x, 2.0**127), ["divide"]),
    "x / x": (lambda x: of("divide", x, x), ["divide"]),
    "--x": (lambda x: neg(neg(x)), []),
    "-(x * 3)": (lambda x: neg(of("multiply", x, 3)), ["multiply", "negative"]),
    "-(x / 3)": (lambda x: neg(of("divide", x, 3)), ["divide", "negative"]),
    "-(x * 4)": (lambda x: neg(of("multiply", x, 4)), ["multiply"]),
    "-x - x": (lambda x: of("subtract", neg(x), x), ["multiply"]),
    "-(-x - x)": (lambda x: neg(of("subtract", neg(x), x)), ["multiply"]),
    "-x * 3": (lambda x: of("multiply", neg(x), 3), ["multiply"]),
    "-x / 3": (lambda x: of("divide", neg(x), 3), ["divide"]),
    "x * 3 + x * 3": (lambda x: twice(of("multiply", x, 3)), ["multiply"]),
    "x * 3 * 4": (lambda x: of("multiply", of("multiply", x, 3), 4), ["multiply"]),
    "x * 3 * 3": (lambda x: of("multiply", of("multiply", x, 3), 3), ["multiply", "multiply"]),
    "x * 0.1 + x * 0.1": (lambda x: twice(of("multiply", x, 0.1)), ["multiply", "add"]),
    "x * 3e38 + x * 3e38": (lambda x: twice(of("multiply", x, 3e38)), ["multiply", "add"]),
    "(1 - x) + (1 - x)": (lambda x: twice(of("subtract", 1, x)), ["multiply", "subtract"]),
    "(x - 3.75) * 8": (lambda x: of("multiply", of("subtract", x, 3.75), 8), ["multiply", "subtract"]),
    "(0.0 - x) * 2": (lambda x: twice(of("subtract", 0.0, x)), ["multiply", "subtract"]),
    "(x + 1 / 3) * 2": (lambda x: twice(of("add", x, 1 / 3)), ["multiply", "add"]),
    "(1e38 - x) * 2": (lambda x: twice(of("subtract", 1e38, x)), ["subtract", "add"]),
    "(x - 1e-38) * 2": (lambda x: twice(of("subtract", x, 1e-38)), ["subtract", "add"]),
    "(1 - x * x) * 2": (
        lambda x: twice(of("subtract", 1, of("multiply", x, x))),
        ["multiply", "subtract", "add"],
    ),
    "||x||": (lambda x: of("absolute", of("absolute", x)), ["absolute"]),
    "|-x|": (lambda x: of("absolute", neg(x)), ["absolute"]),
    "x ** 0": (lambda x: of("power", x, 0), []),
    "x ** 1": (lambda x: of("power", x, 1), []),
    "x ** -1": (lambda x: of("power", x, -1), ["divide"]),
    "x ** 0.5": (lambda x: of("power", x, 0.5), ["power"]),
    "maximum(x, -inf)": (lambda x: of("maximum", x, -math.inf), []),
    "maximum(-inf, x)": (lambda x: of("maximum", -math.inf, x), []),
    "minimum(x, inf)": (lambda x: of("minimum", x, math.inf), []),
    "minimum(x, -inf)": (lambda x: of("minimum", x, -math.inf), ["minimum"]),
    "maximum(x, x)": (lambda x: of("maximum", x, x), []),
    "minimum(x, x)": (lambda x: of("minimum", x, x), []),
    "stop_gradient": (lambda x: of("stop_gradient", x), []),
    "to itself": (lambda x: of("cast", x, dtype=x.dtype), []),
    "there and back": (lambda x: of("cast", of("cast", x, dtype=np.dtype("f8")), dtype=np.dtype("f4")), []),
}

TWO_OPERANDS: dict[str, tuple[Callable[[Node, Node], Node], list[str]]] = {
    "x + -y": (lambda x, y: of("add", x, neg(y)), ["subtract"]),
    "-x + y": (lambda x, y: of("add", neg(x), y), ["subtract"]),
    "-x + -y": (lambda x, y: of("add", neg(x), neg(y)), ["negative", "subtract"]),
    "x - -y": (lambda x, y: of("subtract", x, neg(y)), ["add"]),
    "-x - y": (lambda x, y: of("subtract", neg(x), y), ["negative", "subtract"]),
    "-(x - y)": (lambda x, y: neg(of("subtract", x, y)), ["subtract", "negative"]),
    "-x * -y": (lambda x, y: of("multiply", neg(x), neg(y)), ["multiply"]),
    "-x / -y": (lambda x, y: of("divide", neg(x), neg(y)), ["divide"]),
    "-x * y": (lambda x, y: of("multiply", neg(x), y), ["negative", "multiply"]),
    "where(x > y, x, x)": (lambda x, y: of("where", of("greater", x, y), x, x), []),
    "where(not x > y, x, y)": (
        lambda x, y: of("where", of("logical_not", of("greater", x, y)), x, y),
        ["greater", "where"],
    ),
    "where(m, where(m, x, -y), where(m, -x, y))": (
        lambda x, y: of(
            "where",
            of("greater", x, y),
            of("where", of("greater", x, y), x, neg(y)),
            of("where", of("greater", x, y), neg(x), y),
        ),
        ["greater", "where"],
    ),
    "not x == y": (lambda x, y: of("logical_not", of("equal", x, y)), ["not_equal"]),
    "not x != y": (lambda x, y: of("logical_not", of("not_equal", x, y)), ["equal"]),
    "not x < y": (lambda x, y: of("logical_not", of("less", x, y)), ["less", "logical_not"]),
    "not not x < y": (lambda x, y: of("logical_not", of("logical_not", of("less", x, y))), ["less"]),
}


@pytest.mark.parametrize("rule", ONE_OPERAND)
def test_one_operand(rule: str, traced: Callable, names: Callable, assert_kept: Callable) -> None:
    function, left = ONE_OPERAND[rule]
    graph = traced(function, ("float32", (len(VALUES),)))
    after = simplify_arithmetic(graph)
    assert names(after) == left
    assert_kept(graph, after, [np.array(VALUES, np.float32)], signs=True)


@pytest.mark.parametrize("rule", TWO_OPERANDS)
def test_two_operands(rule: str, traced: Callable, names: Callable, assert_kept: Callable) -> None:
    function, left = TWO_OPERANDS[rule]
    graph = traced(function, *[("float32", (len(VALUES) ** 2,))] * 2)
    after = simplify_arithmetic(graph)
    assert names(after) == left
    x, y = np.meshgrid(np.array(VALUES, np.float32), np.array(VALUES, np.float32))
    assert_kept(graph, after, [x.ravel(), y.ravel()], signs=True)


def test_squares_round_once(traced: Callable, names: Callable, assert_kept: Callable) -> None:
    graph = traced(lambda x: of("power", x, 2), ("float32", (len(VALUES),)))
    after = simplify_arithmetic(graph)
    assert names(after) == ["multiply"]
    assert_kept(graph, after, [np.array(VALUES, np.float32)], tolerance=2e-7)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_integers_wrap_around(dtype: str, traced: Callable, names: Callable, assert_kept: Callable) -> None:
    limits = np.iinfo(dtype)

    def function(x: Node, y: Node) -> tuple[Node, ...]:
        return (
            of("add", x, 0),
            of("subtract", x, 0),
            of("subtract", 0, x),
            of("multiply", x, 0),
            of("multiply", x, 1),
            of("power", x, 2),
            neg(of("multiply", x, 3)),
            of("multiply", neg(x), 3),
            of("add", x, neg(y)),
            of("absolute", neg(x)),
            of("absolute", of("absolute", x)),
            of("maximum", x, limits.min),
            of("minimum", x, limits.max),
        )

    x = np.array([limits.min, limits.min + 1, 0, 1, 2, 100, limits.max], dtype)
    graph = traced(function, (dtype, x.shape), (dtype, x.shape))
    after = simplify_arithmetic(graph)
    assert_kept(graph, after, [x, x[::-1].copy()])
    assert len(names(after)) < len(names(graph))


def test_masks_that_are_known(traced: Callable, names: Callable) -> None:
    def function(x: Node, y: Node) -> tuple[Node, Node]:
        yes, no = (filled(value, np.dtype(bool), x.shape) for value in (True, False))
        return of("where", yes, x, y), of("where", no, x, y)

    graph = traced(function, ("float32", (3,)), ("float32", (3,)))
    after = simplify_arithmetic(graph)
    assert after.outputs[0] is graph.inputs[0]
    assert after.outputs[1] is graph.inputs[1]


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("middle", DTYPES, ids=str)
def test_chains_of_casts(source: np.dtype, middle: np.dtype, traced: Callable, assert_kept: Callable) -> None:
    if source.kind in "iu":
        limits = np.iinfo(source)
        edge = [limits.min, limits.max, limits.max - 1, limits.max // 2 + 1, 0, 1, 2**7 % limits.max]
    elif source.kind == "f":
        edge = [0.0, -0.0, 1.5, 1 / 3, min(16777217.0, float(np.finfo(source).max)), -7.0, 100.25]
    else:
        edge = [False, True]
    x = np.array(edge, source)
    if source.kind == "f" and middle.kind in "u":
        x = np.abs(x)
    targets = [target for target in DTYPES if target.kind in "bf" or middle.kind in "biu"]
    graph = traced(
        lambda x: tuple(of("cast", of("cast", x, dtype=middle), dtype=target) for target in targets),
        (str(source), x.shape),
    )
    if source.kind == "f" and middle.kind in "iu":
        x = np.minimum(x, 100)
    assert_kept(graph, simplify_arithmetic(graph), [x], signs=True)


def test_casts_that_lose_nothing(traced: Callable, names: Callable) -> None:
    to = {name: np.dtype(name) for name in ("int64", "float32", "float64", "int32")}
    kept = {
        ("uint8", "int64", "float32"): 1,
        ("bool", "float32", "int64"): 1,
        ("float32", "float64", "float32"): 0,
        ("int32", "float64", "int32"): 0,
        ("int32", "float32", "float64"): 2,
        ("int64", "float64", "int64"): 2,
        ("float64", "float32", "float64"): 2,
        ("int64", "int32", "int64"): 2,
    }
    for (source, middle, target), count in kept.items():
        first, second = to[middle], to[target]
        (x,) = traced(lambda x: x, (source, (2,))).inputs
        graph = Graph((x,), (of("cast", of("cast", x, dtype=first), dtype=second),))
        assert names(simplify_arithmetic(graph)) == ["cast"] * count, (source, middle, target)


def test_constants_stand_second(traced: Callable) -> None:
    graph = traced(lambda x: (2 * x, x * 2, 3 + x, x + 3), ("float32", (3,)))
    after = simplify_arithmetic(graph)
    assert after.outputs[0] is after.outputs[1]
    assert after.outputs[2] is after.outputs[3]


def test_a_quotient_of_numbers_and_a_sign(traced: Callable, names: Callable) -> None:
    graph = traced(lambda x: -x * (pnp.ones(3) / 2), ("float64", (3,)))
    assert names(optimise(graph, (fold_constants, simplify_arithmetic))) == ["multiply"]
