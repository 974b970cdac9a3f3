"""What the tests of the passes share: graphs of functions, graphs at random, comparison of their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest

import pullback.numpy as pnp
from pullback.graph import OPERATORS, Constant, Graph, Node, Type, Variable, check, constant
from pullback.interpreter import evaluate
from pullback.operators.elementwise import filled

SPECIAL = (math.nan, math.inf, -math.inf, -0.0)
SHAPES = ((), (3,), (2, 3), (3, 2), (3, 1), (1, 3), (2, 1, 3))


@pytest.fixture(scope="session")
def traced() -> Callable[..., Graph]:
    """``traced(function, *types)``: the graph of ``function``; a type is a dtype and a shape."""

    def graph(function: Callable[..., Node | tuple[Node, ...]], *types: tuple[str, tuple[int, ...]]) -> Graph:
        inputs = tuple(
            Variable(Type(np.dtype(dtype), shape), f"x{k}") for k, (dtype, shape) in enumerate(types)
        )
        made = function(*inputs)
        return Graph(inputs, made if isinstance(made, tuple) else (made,))

    return graph


@pytest.fixture(scope="session")
def names() -> Callable[[Graph], list[str]]:
    """``names(graph)``: the operators in topological order, broadcasts of one number left out."""

    def operators(graph: Graph) -> list[str]:
        return [
            node.operator.name
            for node in graph.nodes()
            if hasattr(node, "operator")
            and not (node.operator.name == "broadcast" and isinstance(node.inputs[0], Constant))
        ]

    return operators


@pytest.fixture(scope="session")
def assert_kept() -> Callable[..., None]:
    """``assert_kept(before, after, arrays)``: ``after`` is sound, and computes what ``before`` does.

    Values must be equal, NaN where NaN is; with ``signs`` zeros must have the same signs too, and with
    ``tolerance`` values may differ by that much relatively. What is the very same graph is not computed twice.
    """

    def compare(
        before: Graph,
        after: Graph,
        arrays: Sequence[np.ndarray],
        signs: bool = False,
        tolerance: float | None = None,
    ) -> None:
        check(after)
        if after is before:
            return
        assert after.inputs == before.inputs
        with np.errstate(all="ignore"):
            wanted, found = evaluate(before, arrays), evaluate(after, arrays)
        for want, value in zip(wanted, found, strict=True):
            assert value.dtype == want.dtype
            assert value.shape == want.shape
            if tolerance is not None:
                np.testing.assert_allclose(value, want, rtol=tolerance, atol=tolerance)
            else:
                np.testing.assert_array_equal(value, want)
            if signs and want.dtype.kind == "f":
                zero = want == 0
                np.testing.assert_array_equal(np.signbit(value[zero]), np.signbit(want[zero]))

    return compare


class RandomGraph:
    """A graph that grows at random.

    Floats are integers or small binary fractions, so small that every sum of them is exact in whatever order;
    NaN, infinities and zeros of both signs are among them. ``bits`` bounds, for each node, the bits of its
    magnitude and of its fraction.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.dtype = dtype = np.dtype(random.choice(["float64", "float32"]))
        self.limit = 20 if dtype.itemsize == 4 else 48
        self.arrays: list[np.ndarray] = []
        self.inputs: list[Variable] = []
        self.nodes: list[Node] = []
        self.bits: dict[int, int] = {}

    # -- choices

    def flag(self) -> bool:
        return self.random.random() < 0.5

    def node(self, test: Callable[[Node], bool] = lambda node: True) -> Node | None:
        """One of the nodes that pass the test, often one of the last: rules are about operations in a row."""
        options = [node for node in self.nodes if test(node)]
        recent = options[-3:] if self.flag() else options
        return self.random.choice(recent) if options else None

    def numbers(self, like: Node) -> Node:
        """A constant in every place of ``like``."""
        options = (0, 1, 2, -1, 3, -0.0, 0.5) if like.dtype.kind == "f" else (0, 1, 2, 3)
        value = bool(self.flag()) if like.dtype.kind == "b" else self.random.choice(options)
        made = filled(value, like.dtype, like.shape)
        self.bits[id(made)] = 2
        return made

    def partner(self, x: Node) -> Node:
        """A node of the type of ``x``."""
        if self.flag():
            return self.node(lambda node: node.shape == x.shape and node.dtype == x.dtype)
        if self.flag():
            return self.numbers(x)
        smaller = self.node(lambda node: node.dtype == x.dtype and node.ndim <= x.ndim)
        spread = pnp.broadcast_to(smaller, x.shape) if self.spreads(smaller.shape, x.shape) else x
        self.bits.setdefault(id(spread), self.bits[id(smaller)])
        return spread

    @staticmethod
    def spreads(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
        return all(a in (1, b) for a, b in zip(reversed(small), reversed(shape)))

    # -- growth

    def add_input(self, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(self.random.getrandbits(32))
        array = np.asarray(random.integers(-3 if dtype.kind in "if" else 0, 4, shape)).astype(dtype)
        if dtype.kind == "f" and self.flag():
            array = np.asarray(
                np.where(random.random(shape) < 0.3, random.choice(SPECIAL, shape), array), dtype
            )
        self.arrays.append(array)
        variable = Variable(Type(dtype, shape), f"x{len(self.inputs)}")
        self.inputs.append(variable)
        self.keep(variable, 2)

    def keep(self, node: Node, bits: int) -> None:
        if bits <= self.limit and node.size <= 400 and node.ndim <= 4:
            self.nodes.append(node)
            self.bits[id(node)] = max(bits, self.bits.get(id(node), 0))

    def grow(self) -> None:
        """One more operation."""
        steps = [self.elementwise, self.elementwise, self.choice, self.shape, self.shape]
        steps += [self.reduction, self.product, self.accumulation]
        self.random.choice(steps)()

    def elementwise(self) -> None:
        x = self.node(lambda node: node.dtype.kind in "iuf")
        y = self.partner(x)
        both = max(self.bits[id(x)], self.bits[id(y)])
        name = self.random.choice(
            ["add", "subtract", "multiply", "negative", "absolute", "maximum", "scale", "power", "cast"]
        )
        if name == "scale" and x.dtype.kind == "f":
            number = filled(self.random.choice([1, -1, 2, 0.25]), x.dtype, x.shape)
            self.keep(OPERATORS["divide"](x, number), self.bits[id(x)] + 2)
        elif name == "power":
            number = self.random.choice([0, 1, 2])
            self.keep(OPERATORS["power"](x, filled(number, x.dtype, x.shape)), 2 * self.bits[id(x)])
        elif name == "cast":
            targets = {
                "f": ["float32", "float64", "bool"],
                "i": ["float64", "int8", "uint8", "bool", "int32"],
            }
            dtype = np.dtype(self.random.choice(targets.get(x.dtype.kind, targets["i"])))
            if self.bits[id(x)] < 20:
                self.keep(OPERATORS["cast"](x, dtype=dtype), 8 if x.dtype.kind != "f" else self.bits[id(x)])
        elif name in ("negative", "absolute"):
            self.keep(OPERATORS[name](x), self.bits[id(x)])
        elif name == "maximum":
            self.keep(OPERATORS[name](x, y), both)
        elif name == "multiply":
            self.keep(OPERATORS[name](x, y), self.bits[id(x)] + self.bits[id(y)])
        elif name in ("add", "subtract"):
            self.keep(OPERATORS[name](x, y), both + 1)

    def choice(self) -> None:
        x = self.node()
        y, bits = self.partner(x), self.bits[id(x)]
        compared = OPERATORS[self.random.choice(["equal", "less", "greater_equal"])](x, y)
        if x.dtype.kind == "b" or self.flag():
            self.keep(compared, 1)
            return
        mask = self.node(lambda node: node.dtype.kind == "b" and node.shape == x.shape)
        mask = compared if mask is None else mask
        mask = OPERATORS["logical_not"](mask) if self.flag() else mask
        self.keep(OPERATORS["where"](mask, x, y), max(bits, self.bits[id(y)]))

    def shape(self) -> None:
        x = self.node()
        bits, rank = self.bits[id(x)], x.ndim
        name = self.random.choice(
            ["reshape", "units", "transpose", "broadcast", "slice", "reverse", "pad", "concatenate"]
        )
        if name == "reshape":
            self.keep(OPERATORS["reshape"](x, shape=(x.size,)), bits)
        elif name == "units":
            shape = tuple(extent for extent in x.shape if extent != 1)
            place = self.random.randint(0, len(shape))
            self.keep(OPERATORS["reshape"](x, shape=(*shape[:place], 1, *shape[place:])), bits)
        elif name == "transpose":
            self.keep(OPERATORS["transpose"](x, axes=tuple(self.random.sample(range(rank), rank))), bits)
        elif name == "broadcast":
            place, extent = self.random.randint(0, rank), self.random.choice([1, 2, 3])
            axes = tuple(axis if axis < place else axis + 1 for axis in range(rank))
            shape = (*x.shape[:place], extent, *x.shape[place:])
            self.keep(OPERATORS["broadcast"](x, shape=shape, axes=axes), bits)
        elif name == "slice":
            starts = tuple(self.random.randint(0, extent) for extent in x.shape)
            stops = tuple(self.random.randint(low, extent) for low, extent in zip(starts, x.shape))
            steps = tuple(self.random.choice([1, 1, 2]) for _ in x.shape)
            self.keep(OPERATORS["slice"](x, starts=starts, stops=stops, steps=steps), bits)
        elif name == "reverse":
            self.keep(OPERATORS["reverse"](x, axes=tuple(axis for axis in range(rank) if self.flag())), bits)
        elif name == "pad":
            low, high = (tuple(self.random.choice([0, 0, 1]) for _ in x.shape) for _ in range(2))
            self.keep(OPERATORS["pad"](x, low=low, high=high), bits)
        elif rank:
            axis = self.random.randrange(rank)
            rest = (*x.shape[:axis], *x.shape[axis + 1 :])
            other = self.node(
                lambda y: (
                    y.ndim == rank and y.dtype == x.dtype and (*y.shape[:axis], *y.shape[axis + 1 :]) == rest
                )
            )
            self.keep(OPERATORS["concatenate"](x, other, axis=axis), max(bits, self.bits[id(other)]))

    def reduction(self) -> None:
        name = self.random.choice(["sum", "sum", "max", "min", "argmax"])
        x = self.node(lambda node: node.dtype.kind in "iuf" and (name == "sum" or node.size > 0))
        if x is None:
            return
        axes = tuple(axis for axis in range(x.ndim) if self.flag())
        count = math.prod(x.shape[axis] for axis in axes)
        bits = self.bits[id(x)] + (max(count, 1).bit_length() if name == "sum" else 0)
        self.keep(OPERATORS[name](x, axes=axes), 8 if name == "argmax" else bits)

    def product(self) -> None:
        a = self.node(lambda node: node.dtype == self.dtype)
        b = self.node(lambda node: node.dtype == self.dtype)
        a_labels = list(range(a.ndim))
        b_labels: list[int] = []
        for position, extent in enumerate(b.shape):
            options = [label for label in a_labels if a.shape[label] == extent and label not in b_labels]
            b_labels.append(self.random.choice(options) if options and self.flag() else 10 + position)
        shared = {label for label in a_labels if label in b_labels and self.flag()}
        kept = sorted({*a_labels, *b_labels} - shared)
        out = self.random.sample(kept, len(kept))
        made = OPERATORS["contract"](a, b, a_labels=(*a_labels,), b_labels=(*b_labels,), out_labels=(*out,))
        count = math.prod(a.shape[label] for label in shared)
        self.keep(made, self.bits[id(a)] + self.bits[id(b)] + max(count, 1).bit_length())

    def accumulation(self) -> None:
        """A sum of products and another term; one product is written as a sum, and one is transposed."""
        x = self.node(lambda node: node.dtype == self.dtype and node.ndim == 2 and node.shape[0] > 0)
        if x is None:
            return
        y = self.partner(x)
        terms = [pnp.sum(x[:, None, :] * y[None, :, :], axis=2), x @ pnp.flip(y, 0).T]
        terms.append((y @ x.T).T)
        terms.append(filled(3, x.dtype, terms[0].shape))
        self.random.shuffle(terms)
        bits = self.bits[id(x)] + self.bits[id(y)] + x.shape[1].bit_length() + 3
        self.keep(terms[0] + (terms[1] + terms[2]) + terms[3], bits)


@pytest.fixture(scope="session")
def random_graph() -> Callable[..., tuple[Graph, list[np.ndarray]]]:
    """``random_graph(seed)``: a graph and values for its inputs, the same ones for the same seed."""

    def make(seed: int) -> tuple[Graph, list[np.ndarray]]:
        random = Random(seed)
        growing = RandomGraph(random)
        for _ in range(random.randint(1, 3)):
            growing.add_input(growing.dtype, random.choice(SHAPES))
        growing.add_input(np.dtype(np.int64), random.choice(SHAPES))
        if growing.flag():
            growing.keep(constant(np.arange(6).reshape(2, 3), growing.dtype), 3)
        for _ in range(random.randint(5, 30)):
            growing.grow()
        return Graph(tuple(growing.inputs), tuple(growing.nodes[-5:])), growing.arrays

    return make
