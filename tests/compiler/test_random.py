"""Random graphs: compiled programs against the interpreter, forward and backward.

Values are small integers held exactly by every dtype, so that comparisons, extremes and indices come out the same in
any order of additions; what passes through a smooth function is compared within rounding and never compared again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import pullback.numpy  # noqa: F401  (fills the table of operators)
from pullback.compiler.runtime.processor import Processor
from pullback.compiler.stages import check_stages, within
from pullback.graph import OPERATORS, Graph, Node, Type, Variable, constant
from pullback.transforms.reverse import cotangents

LARGEST_VALUE = {2: 100.0, 4: 2.0**20, 8: 2.0**45}
"""By itemsize: integers up to this stay exact through one more operation."""

MOST_ELEMENTS = 8000
op = SimpleNamespace(**OPERATORS)
BOOL, INT64 = np.dtype(bool), np.dtype(np.int64)


@dataclass(frozen=True)
class Value:
    """A node, a bound of its absolute value, and whether it is an exact integer."""

    node: Node
    bound: float
    exact: bool = True

    @property
    def floating(self) -> bool:
        return self.node.dtype.kind == "f"


class Maker:
    """Grows a graph by one random operation after another; ``choose(n)`` gives a number below ``n``."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self.choose = choose
        self.dtype = np.dtype([np.float64, np.float32][choose(2)])
        self.extents = [(1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33, 64)[choose(12)] for _ in range(3)]
        self.values: list[Value] = []
        self.inputs: list[Variable] = []
        for _ in range(1 + choose(3)):
            self.variable(self.dtype)
        for dtype in (np.int64, np.int32, np.uint8, bool):
            if choose(3) == 0:
                self.variable(np.dtype(dtype))
        steps = (
            *(self.unary, self.smooth, self.binary, self.binary, self.binary, self.select, self.compare),
            *(self.cast, self.reduce, self.reduce, self.position, self.product, self.product, self.broadcast),
            *(self.reshape, self.transpose, self.cut, self.pad, self.join, self.gather, self.scatter),
        )
        for _ in range(3 + choose(22)):
            made = steps[choose(len(steps))]()
            if made is not None and made.node.size <= MOST_ELEMENTS:
                self.values.append(self.limited(made))

    # ------------------------------------------------------------------ picking

    def one_of(self, values: list[Value]) -> Value | None:
        """One of ``values``, a late one more often."""
        if not values:
            return None
        return values[max(self.choose(len(values)), self.choose(len(values)))]

    def number(self, exact: bool = False) -> Value | None:
        return self.one_of([v for v in self.values if v.node.dtype != BOOL and (v.exact or not exact)])

    def fitting(self, to: Node, dtype: np.dtype, exact: bool = False) -> Value | None:
        """A value of ``dtype`` in the shape of ``to``, broadcast if need be."""
        shape = to.shape
        fits = []
        for value in self.values:
            if value.node.dtype == dtype and (value.exact or not exact):
                rank = value.node.ndim
                tail = shape[len(shape) - rank :] if rank <= len(shape) else None
                if tail is not None and all(e in (1, t) for e, t in zip(value.node.shape, tail)):
                    fits.append(value)
        found = self.one_of(fits)
        if found is None or found.node.shape == shape:
            return found
        axes = tuple(range(len(shape) - found.node.ndim, len(shape)))
        return Value(op.broadcast(found.node, shape=shape, axes=axes), found.bound, found.exact)

    def limited(self, value: Value) -> Value:
        """The value, made small again where it might become inexact."""
        node = value.node
        if node.dtype == BOOL or value.bound <= LARGEST_VALUE.get(node.dtype.itemsize, 60.0):
            return value
        if not value.exact:
            factor = 2.0 ** -math.ceil(math.log2(value.bound))
            return Value(op.multiply(node, self.like(node, factor)), 1.0, False)
        return Value(op.remainder(node, self.like(node, 7)), 7.0)

    @staticmethod
    def like(node: Node, value: float) -> Node:
        return op.broadcast(constant(value, node.dtype), shape=node.shape, axes=())

    # ------------------------------------------------------------------ steps

    def variable(self, dtype: np.dtype) -> None:
        shape = tuple(self.extents[self.choose(3)] for _ in range(self.choose(4)))
        if math.prod(shape) <= MOST_ELEMENTS:
            self.inputs.append(Variable(Type(dtype, shape), f"x{len(self.inputs)}"))
            self.values.append(Value(self.inputs[-1], 1.0 if dtype == BOOL else 4.0))

    def unary(self) -> Value | None:
        x = self.number()
        if x is None:
            return None
        name = ("negative", "absolute", "square", "relu")[self.choose(4)]
        if name == "square":
            return Value(op.multiply(x.node, x.node), x.bound**2, x.exact)
        if name == "relu" and not (x.floating and x.exact):
            return None
        if name == "negative" and x.node.dtype.kind == "u":
            return None
        return Value(getattr(op, name)(x.node), x.bound, x.exact)

    def smooth(self) -> Value | None:
        x = self.one_of([v for v in self.values if v.floating])
        if x is None:
            return None
        name = ("tanh", "sin", "sigmoid", "exp")[self.choose(4)]
        scale = 1.0 if name != "exp" or x.bound <= 8 else 8 / x.bound
        node = op.multiply(x.node, self.like(x.node, scale / max(1.0, x.bound / 8)))
        return Value(getattr(op, name)(node), math.exp(8) if name == "exp" else 1.0, False)

    def binary(self) -> Value | None:
        x = self.number()
        y = None if x is None else self.fitting(x.node, x.node.dtype)
        if x is None or y is None:
            return None
        name = ("add", "subtract", "multiply", "maximum", "minimum")[self.choose(5)]
        exact = x.exact and y.exact
        if name in ("maximum", "minimum") and not exact:
            return None
        if name == "subtract" and x.node.dtype.kind == "u":
            return None
        bounds = {
            "multiply": x.bound * y.bound,
            "maximum": max(x.bound, y.bound),
            "minimum": max(x.bound, y.bound),
        }
        return Value(getattr(op, name)(x.node, y.node), bounds.get(name, x.bound + y.bound), exact)

    def compare(self) -> Value | None:
        x = self.number(exact=True)
        y = None if x is None else self.fitting(x.node, x.node.dtype, exact=True)
        if x is None or y is None:
            return None
        name = ("less", "greater_equal", "equal", "not_equal")[self.choose(4)]
        return Value(getattr(op, name)(x.node, y.node), 1.0)

    def select(self) -> Value | None:
        x = self.number()
        y = None if x is None else self.fitting(x.node, x.node.dtype)
        mask = None if x is None else self.fitting(x.node, BOOL)
        if x is None or y is None or mask is None:
            return None
        return Value(op.where(mask.node, x.node, y.node), max(x.bound, y.bound), x.exact and y.exact)

    def cast(self) -> Value | None:
        x = self.one_of([v for v in self.values if v.exact])
        if x is None:
            return None
        dtype = np.dtype((self.dtype, np.int32, np.int64, self.dtype, np.int16)[self.choose(5)])
        if x.bound > LARGEST_VALUE[dtype.itemsize]:
            return None
        return Value(op.cast(x.node, dtype=dtype), x.bound)

    def some_axes(self, rank: int) -> tuple[int, ...]:
        picked = [axis for axis in range(rank) if self.choose(2)]
        return tuple(picked or [self.choose(rank)])

    def reduce(self) -> Value | None:
        x = self.number()
        if x is None or not x.node.ndim:
            return None
        axes = self.some_axes(x.node.ndim)
        name = ("sum", "sum", "max", "min")[self.choose(4)]
        if name != "sum" and not x.exact:
            return None
        if x.node.dtype.itemsize == 1:
            return None
        count = math.prod(x.node.shape[axis] for axis in axes) if name == "sum" else 1
        if x.exact and x.bound * count > 16 * LARGEST_VALUE[x.node.dtype.itemsize]:
            return None
        return Value(getattr(op, name)(x.node, axes=axes), x.bound * count, x.exact)

    def position(self) -> Value | None:
        x = self.number(exact=True)
        if x is None or not x.node.ndim:
            return None
        axes = self.some_axes(x.node.ndim)
        node = (op.argmax, op.argmin)[self.choose(2)](x.node, axes=axes)
        return Value(node, float(math.prod(x.node.shape[axis] for axis in axes)))

    def product(self) -> Value | None:
        x = self.number()
        if x is None or x.node.dtype.itemsize == 1:
            return None
        y = self.one_of([v for v in self.values if v.node.dtype == x.node.dtype])
        assert y is not None
        left = list(range(x.node.ndim))
        right, free = [], left[:]
        for extent in y.node.shape:
            same = [label for label in free if x.node.shape[label] == extent]
            if same and self.choose(4):
                right.append(same[self.choose(len(same))])
                free.remove(right[-1])
            else:
                right.append(10 + len(right))
        shared = [label for label in left if label in right]
        summed = [label for label in shared if self.choose(4)]
        out = [label for label in (*left, *(r for r in right if r not in left)) if label not in summed]
        for k in range(len(out) - 1, 0, -1):
            other = self.choose(k + 1) if self.choose(2) else k
            out[k], out[other] = out[other], out[k]
        count = math.prod(x.node.shape[label] for label in summed)
        bound, exact = x.bound * y.bound * count, x.exact and y.exact
        if exact and bound > 16 * LARGEST_VALUE[x.node.dtype.itemsize]:
            return None
        extents = {**dict(zip(left, x.node.shape)), **dict(zip(right, y.node.shape))}
        if math.prod(extents[label] for label in out) > MOST_ELEMENTS:
            return None
        node = op.contract(x.node, y.node, a_labels=tuple(left), b_labels=tuple(right), out_labels=tuple(out))
        return Value(node, bound, exact)

    def broadcast(self) -> Value | None:
        x = self.one_of(self.values)
        if x is None or x.node.ndim > 3:
            return None
        shape = [self.extents[self.choose(3)] if e == 1 and self.choose(2) else e for e in x.node.shape]
        place = self.choose(x.node.ndim + 1)
        shape.insert(place, self.extents[self.choose(3)])
        axes = tuple(axis for axis in range(len(shape)) if axis != place)
        return Value(op.broadcast(x.node, shape=tuple(shape), axes=axes), x.bound, x.exact)

    def reshape(self) -> Value | None:
        x = self.one_of(self.values)
        if x is None:
            return None
        shape, left = [], x.node.size
        while left > 1 and len(shape) < 3:
            divisors = [d for d in range(2, left + 1) if left % d == 0]
            shape.append(divisors[self.choose(len(divisors))])
            left //= shape[-1]
        return Value(op.reshape(x.node, shape=(*shape, left)), x.bound, x.exact)

    def transpose(self) -> Value | None:
        x = self.one_of([v for v in self.values if v.node.ndim > 1])
        if x is None:
            return None
        axes = list(range(x.node.ndim))
        for k in range(len(axes) - 1, 0, -1):
            other = self.choose(k + 1)
            axes[k], axes[other] = axes[other], axes[k]
        return Value(op.transpose(x.node, axes=tuple(axes)), x.bound, x.exact)

    def cut(self) -> Value | None:
        x = self.one_of([v for v in self.values if v.node.ndim])
        if x is None:
            return None
        if self.choose(3) == 0:
            return Value(op.reverse(x.node, axes=self.some_axes(x.node.ndim)), x.bound, x.exact)
        starts = [self.choose(extent) for extent in x.node.shape]
        stops = [start + 1 + self.choose(extent - start) for start, extent in zip(starts, x.node.shape)]
        steps = tuple(1 + self.choose(3) for _ in starts)
        return Value(
            op.slice(x.node, starts=tuple(starts), stops=tuple(stops), steps=steps), x.bound, x.exact
        )

    def pad(self) -> Value | None:
        x = self.one_of([v for v in self.values if v.node.ndim])
        if x is None:
            return None
        low, high = (tuple((0, 0, 1, 3)[self.choose(4)] for _ in x.node.shape) for _ in range(2))
        return Value(op.pad(x.node, low=low, high=high), x.bound, x.exact)

    def join(self) -> Value | None:
        x = self.one_of([v for v in self.values if v.node.ndim])
        if x is None:
            return None
        axis = self.choose(x.node.ndim)
        fits = [v for v in self.values if v.node.dtype == x.node.dtype and v.node.ndim == x.node.ndim]
        rest = (*x.node.shape[:axis], *x.node.shape[axis + 1 :])
        fits = [v for v in fits if (*v.node.shape[:axis], *v.node.shape[axis + 1 :]) == rest]
        y = self.one_of(fits)
        assert y is not None
        node = op.concatenate(x.node, y.node, axis=axis)
        return Value(node, max(x.bound, y.bound), x.exact and y.exact)

    def index(self, extent: int) -> Node | None:
        """Positions along an axis of ``extent``, counted from its end at times."""
        value = self.one_of([v for v in self.values if v.node.dtype == INT64 and v.node.ndim < 3])
        if value is None:
            return None
        node = op.remainder(value.node, self.like(value.node, extent))
        if self.choose(2):
            node = op.subtract(node, self.like(node, extent))
        return op.check_index(node, extent=extent, what="index")

    def gather(self) -> Value | None:
        x = self.one_of([v for v in self.values if v.node.ndim])
        if x is None:
            return None
        axis = self.choose(x.node.ndim)
        index = self.index(x.node.shape[axis])
        if index is None or x.node.size * index.size > MOST_ELEMENTS * x.node.shape[axis]:
            return None
        return Value(op.gather(x.node, index, axes=(axis,)), x.bound, x.exact)

    def scatter(self) -> Value | None:
        x = self.one_of([v for v in self.values if v.node.ndim and v.node.dtype.itemsize > 2])
        if x is None:
            return None
        axis = self.choose(x.node.ndim)
        index = self.index(x.node.shape[axis])
        if index is None or x.node.size * index.size > MOST_ELEMENTS * x.node.shape[axis]:
            return None
        shape = (*index.shape, *(extent for k, extent in enumerate(x.node.shape) if k != axis))
        updates = self.fitting(Variable(Type(x.node.dtype, shape)), x.node.dtype)
        if updates is None:
            updates = Value(op.gather(x.node, index, axes=(axis,)), x.bound, x.exact)
        node = op.scatter_add(x.node, updates.node, index, axes=(axis,))
        return Value(node, x.bound + index.size * updates.bound, x.exact and updates.exact)

    # ------------------------------------------------------------------ what is asked

    def outputs(self) -> list[Value]:
        """The last value and some before it."""
        made = self.values[len(self.inputs) :]
        return [*made[-1:], *(v for v in made[:-1] if self.choose(4) == 0), *self.values[:1]]

    def arguments(self) -> list[np.ndarray]:
        random = np.random.default_rng(self.choose(1000))
        return [
            random.integers(0 if x.dtype.kind in "ub" else -4, 2 if x.dtype == BOOL else 5, x.shape).astype(
                x.dtype
            )
            for x in self.inputs
        ]


ROUNDING, ROUNDING_OF_COTANGENTS = 600, 60000
"""Units in the last place of the largest number that was involved."""

SETTINGS = settings(
    max_examples=120,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def drawn(data: st.DataObject) -> Maker:
    return Maker(lambda n: data.draw(st.integers(0, n - 1)))


def compare(value: np.ndarray, reference: np.ndarray, about: Value) -> None:
    if about.exact:
        np.testing.assert_array_equal(value, reference, str(about.node))
    else:
        unit = ROUNDING * 2.0 ** (-24 if value.dtype.itemsize == 4 else -53)
        np.testing.assert_allclose(value, reference, rtol=unit, atol=unit * max(1.0, about.bound))


@SETTINGS
@given(data=st.data())
def test_values(compiler, data):
    maker = drawn(data)
    wanted = maker.outputs()
    graph, arrays = Graph(tuple(maker.inputs), tuple(v.node for v in wanted)), maker.arguments()
    processor = compiler.processors[maker.choose(len(compiler.processors))]
    found = compiler.run(graph, arrays, processor=processor)
    for value, reference, about in zip(found, compiler.reference(graph, arrays), wanted, strict=True):
        compare(value, reference, about)


def offered(maker: Maker, wanted: list[Value]) -> dict[int, int]:
    """Arguments that results may take over, by the number of the result."""
    donated: dict[int, int] = {}
    for argument, x in enumerate(maker.inputs):
        fits = [k for k, v in enumerate(wanted) if v.node.type == x.type and k not in donated]
        if fits and maker.choose(4):
            donated[fits[maker.choose(len(fits))]] = argument
    return donated


@SETTINGS
@given(data=st.data())
def test_results_that_take_over_arguments(compiler, data):
    maker = drawn(data)
    wanted = [value for value in maker.values if maker.choose(2)]
    donated = offered(maker, wanted)
    graph, arrays = Graph(tuple(maker.inputs), tuple(v.node for v in wanted)), maker.arguments()
    found = compiler.run(graph, arrays, donated)
    for value, reference, about in zip(found, compiler.reference(graph, arrays), wanted, strict=True):
        compare(value, reference, about)


def backwards(maker: Maker) -> Graph:
    """The graph of the cotangents of all inputs."""
    outputs = [v.node for v in maker.outputs() if v.floating and not isinstance(v.node, Variable)]
    active = [x for x in maker.inputs if x.dtype.kind == "f"]
    random = np.random.default_rng(maker.choose(1000))
    seeds = [constant(random.integers(-2, 3, node.shape), node.dtype) for node in outputs]
    bars = [bar for bar in cotangents(outputs, seeds, active) if bar is not None]
    return Graph(tuple(maker.inputs), tuple(bars))


@SETTINGS
@given(data=st.data())
def test_cotangents(compiler, data):
    maker = drawn(data)
    graph = backwards(maker)
    processor = compiler.processors[maker.choose(len(compiler.processors))]
    compiler.assert_same(graph, maker.arguments(), processor=processor, rounding=ROUNDING_OF_COTANGENTS)


DESCRIBED = (
    Processor("znver3", "+avx2,+fma", "x86_64", 32, 16),
    Processor("sapphirerapids", "+avx512f", "x86_64", 64, 32, 48 << 10, 2 << 20),
    Processor("neoverse-v1", "+neon", "aarch64", 16, 32, 64 << 10, 1 << 20),
)
FEWER = settings(SETTINGS, max_examples=40)


@FEWER
@given(data=st.data())
def test_values_after_every_stage(data):
    maker = drawn(data)
    wanted = maker.outputs()
    graph = Graph(tuple(maker.inputs), tuple(v.node for v in wanted))

    def same(number: int, value: np.ndarray, reference: np.ndarray) -> bool:
        try:
            compare(value, reference, wanted[number])
        except AssertionError:
            return False
        return True

    processor = DESCRIBED[maker.choose(len(DESCRIBED))]
    check_stages(graph, maker.arguments(), processor, offered(maker, wanted), same=same)


@FEWER
@given(data=st.data())
def test_cotangents_after_every_stage(data):
    maker = drawn(data)
    graph, processor = backwards(maker), DESCRIBED[maker.choose(len(DESCRIBED))]
    check_stages(graph, maker.arguments(), processor, same=within(ROUNDING_OF_COTANGENTS))
