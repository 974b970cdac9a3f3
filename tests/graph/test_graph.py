"""Order, substitution and the checker."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.errors import GraphError
from pullback.graph import (
    OPERATORS,
    Graph,
    Node,
    Operation,
    Signature,
    Type,
    Variable,
    check,
    constant,
    free_variables,
    substitute,
    topological,
)

FLOAT = np.dtype("float64")
ADD, MULTIPLY, SIN, COS = (OPERATORS[name] for name in ("add", "multiply", "sin", "cos"))
DEPTH = 10_000


def variable(*shape: int, name: str = "x") -> Variable:
    return Variable(Type(FLOAT, shape), name)


def chain(x: Node, depth: int) -> Node:
    for _ in range(depth):
        x = SIN(x)
    return x


def test_order_has_each_node_once_after_its_inputs():
    x, y = variable(), variable()
    product = MULTIPLY(x, y)
    root = ADD(SIN(product), COS(product))
    order = topological([root, product])
    assert len(order) == len(set(order)) == 6
    place = {node: k for k, node in enumerate(order)}
    assert all(place[child] < place[node] for node in order for child in node.inputs)
    assert order == [x, y, product, root.inputs[0], root.inputs[1], root]


def test_order_is_that_of_the_inputs():
    """Left before right, so that equal functions give programs that are equal in every line."""
    x, y = variable(), variable()
    assert topological([ADD(SIN(y), COS(x))])[:4] == [y, SIN(y), x, COS(x)]


def test_deep_graphs_need_no_recursion():
    x, y = variable(), variable()
    root = chain(x, DEPTH)
    assert len(topological([root])) == DEPTH + 1
    assert free_variables([root]) == [x]
    graph = Graph((x,), (root,))
    check(graph)
    (moved,) = substitute([root], {x: y})
    assert moved is chain(y, DEPTH)


def test_wide_sharing_is_visited_once():
    """2 ** 200 paths, 201 nodes."""
    x = variable()
    root: Node = x
    for _ in range(200):
        root = ADD(root, root)
    assert len(topological([root])) == 201
    assert len(topological(substitute([root], {x: variable()}))) == 201


def test_free_variables_are_those_below():
    x, y = variable(), variable()
    product = MULTIPLY(x, y)
    assert free_variables([ADD(SIN(y), product)]) == [y, x]
    assert free_variables([SIN(y), constant(1.0)]) == [y]
    assert free_variables([]) == []


def test_substitute_shares_what_stays():
    x, y = variable(name="x"), variable(name="y")
    kept, changed = COS(y), SIN(x)
    first, second, untouched = substitute([ADD(changed, kept), changed, kept], {x: y})
    assert first is ADD(SIN(y), kept)
    assert second is SIN(y)
    assert untouched is kept


def test_substitute_replaces_operations():
    x = variable()
    inner = SIN(x)
    (out,) = substitute([COS(inner)], {inner: constant(0.5)})
    assert out is COS(constant(0.5))
    assert substitute([inner], {inner: x}) == (x,)


def test_substitute_builds_with_the_given_function():
    x = variable()

    def rebuild(operation: Operation, inputs: tuple[Node, ...]) -> Node:
        return (
            COS(*inputs) if operation.operator is SIN else operation.operator(*inputs, **operation.attributes)
        )

    (out,) = substitute([ADD(SIN(SIN(x)), x)], {}, rebuild)
    assert out is ADD(COS(COS(x)), x)


def test_substitute_checks_types():
    x = variable(3)
    with pytest.raises(ValueError, match=r"add: shapes \(2,\) and \(3,\)"):
        substitute([ADD(x, constant(np.ones(3)))], {x: variable(2)})


def faulty(operator=SIN, inputs=None, type=Type(FLOAT, ())) -> Operation:  # noqa: B008
    inputs = inputs or (X,)
    return Operation(Signature(operator, tuple(x.type for x in inputs), {}, type), inputs)


X = variable()


class Stranger(Node):
    """A fourth kind of node, which there is not."""

    __slots__ = ()

    def __init__(self) -> None:
        self.type, self.value = Type(FLOAT, ()), None


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (Graph((X, X), (SIN(X),)), "same input twice"),
        (Graph((), (SIN(X),)), r"Variable\(x: float64\[\]\) is used but is no input"),
        (
            Graph((X,), (faulty(type=Type(FLOAT, (2,))),)),
            r"sin is typed float64\[2\], its rule says float64\[\]",
        ),
        (Graph((X,), (COS(faulty(type=Type(np.dtype("float32"), ()))),)), r"sin is typed float32\[\]"),
        (Graph((X,), (Stranger(),)), "Stranger is no kind of node"),
        (Graph((X,), (SIN(Stranger()),)), "Stranger is no kind of node"),
    ],
)
def test_the_checker_finds_planted_faults(graph, said):
    with pytest.raises(GraphError, match=said):
        check(graph)


def test_the_checker_accepts_sound_graphs():
    y = variable(2, 3)
    total = OPERATORS["sum"](MULTIPLY(y, y), axes=(0, 1))
    check(Graph((X, y), (ADD(total, X), y, constant(1.0))))
    check(Graph((), ()))
