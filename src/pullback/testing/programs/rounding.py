"""How far rounding may carry a graph's results: each inexact operation is run again with its results moved a little.

The spread of several such runs is an estimate of the error that any order of additions and any correctly built
function may have, at the values of this very program: where rounding is magnified the spread is large, and where a
comparison hangs on it, the element is told apart as undecided. What is exact, such as sums of small integers, ties of
inputs and everything that only moves elements, is never moved, and a function's results of equal operands are moved
alike: a value still equals the maximum that it is.

Source: D. S. Parker, *Monte Carlo arithmetic*, UCLA 1997.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from pullback.compiler.legalise.parts import OnPacked, with_parts
from pullback.compiler.passes.minimal_filtering import filtered
from pullback.compiler.target import Processor
from pullback.errors import MatrixError
from pullback.graph import Constant, Graph, Node, Operation, TupleType, Variable, regions
from pullback.interpreter import evaluate
from pullback.testing.programs.exactness import inexact, may_round, product_error
from pullback.testing.programs.terms import DEGREE, sizes_of_terms
from pullback.testing.programs.tolerance import MARGIN, Expected

__all__ = ["SIGNS", "expected"]

RUNS, MORE_RUNS = 6, 30
"""Runs beside the one that is not moved, and those that follow where these leave a difference unexplained."""

AMPLITUDE = {"add": 2.0, "subtract": 2.0, "multiply": 2.0, "divide": 2.0, "sqrt": 2.0, "cast": 2.0}
"""Units in the last place by which results are moved at most."""

OTHERS, SUMS = 8.0, 4.0
"""The same for other functions, and for what sums many terms."""

SHARED = 64.0
"""Units of the largest terms by which results that share products may differ from sums."""

SIGNS = 1024
"""Runs with other signs of zero products at most, where a sign differs."""

EXACT = frozenset({
    "where", "negative", "sign", "absolute", "floor", "ceil", "trunc", "rint", "maximum", "minimum", "relu",
    "broadcast", "reshape", "transpose", "slice", "reverse", "pad", "concatenate", "contiguous", "result", "iota",
    "stop_gradient", "check_index", "gather", "max", "min", "argmax", "argmin", "windows", "window_max",
    "window_argmax", "argmax_index", "gather_at_argmax", "floor_divide", "remainder", "scatter_set",
    "scatter_max", "scatter_min", "argsort", "cumargmax", "cumargmin", "bitcast", "half_value",
})  # fmt: skip
"""Operators that round nothing: they choose, move or count."""

MOVES = frozenset(("broadcast", "reshape", "transpose", "slice", "reverse", "contiguous", "negative"))

SIGNLESS = frozenset({
    "contract", "convolve", "max_unpool", "solve", "triangular_solve", "inv", "cofactor", "det", "pinv", "expm",
    "expm_along", "cholesky", "cholesky_cotangent",
})  # fmt: skip
"""The sign of a zero depends on where their sums begin, or on whether there is one, in NumPy too."""

CENTRED = frozenset(["standardise"])
"""What takes the mean from its terms, rounded or not: beside subnormal numbers half of the least one is much."""

SOLVERS = frozenset(("solve", "triangular_solve", "det", "cofactor", "inv"))
"""What becomes of infinite numbers depends on how rows are eliminated: zeros beside them are multiplied, or not."""

_WIDER: Mapping[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float32): np.dtype(np.float64),
    np.dtype(np.float64): np.dtype(np.longdouble),
}
"""The type in which products of a type do not overflow, where there is one."""

ORDERS = frozenset(("less", "less_equal", "greater", "greater_equal"))
"""Comparisons whose result is another one where rounding carries a value over a bound."""

SHIFTED = frozenset(("logaddexp", "logaddexp2"))
"""What is as exact as its operands, which it takes out before and adds again, and not as its result."""

TERMS: Mapping[str, Callable[..., Any]] = {
    "gelu_slope": lambda x: x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
}
"""The largest term of what is as exact as that, and not as its result, where terms cancel."""


def expected(
    graph: Graph, arguments: Sequence[Any], seed: int = 0, reordered: bool = False
) -> list[Expected]:
    """The results of ``graph``, each with its moved ones; of complex numbers both parts, as they are computed.

    They are ``reordered`` where sums may be made in another order, multiplied and rounded to other dtypes term by term.
    """
    graph = with_parts(graph)
    plain = _Run(graph, arguments)

    def moved(number: int, sign: int | None) -> _Run:
        random = np.random.default_rng((seed, number))
        moves = _Moves(
            random,
            sign,
            plain,
            turned=number % 2 == 1,
            by_chance=number % 8 != 1,
            cancels=number % 3 == 0,
            one_by_one=number % 3 == 1,
            in_pairs=number % 3 == 2,
            negative=random.random(),
            by_terms=number % 4 == 3,
            reordered=reordered,
        )
        return _Run(graph, arguments, moves)

    @cache
    def of_any_signs(number: int) -> dict[Node, np.ndarray]:
        run = moved(RUNS + number, None)
        return {node: run.values[node] for node in graph.outputs}

    def signed(node: Node) -> Iterable[np.ndarray]:
        return (of_any_signs(number)[node] for number in range(SIGNS))

    @cache
    def another(number: int) -> _Run:
        return moved(number, (-1) ** number)

    def values(node: Node, numbers: range) -> tuple[np.ndarray, ...]:
        return tuple(another(number).values[node] for number in numbers)

    first, rest = range(RUNS), range(RUNS, RUNS + MORE_RUNS)

    @cache
    def finite() -> _Run:
        given = [np.where(np.isfinite(x), x, 1) if np.asarray(x).dtype.kind in "fc" else x for x in arguments]
        return _Run(graph, given)

    def overflowed(node: Node) -> np.ndarray:
        return np.asarray(np.isnan(finite().values[node]))

    def chooses(node: Node) -> bool:
        needed = Graph(graph.inputs, (node,)).nodes()
        comparisons = [k for k in needed if isinstance(k, Operation) and k.operator.name in ORDERS]
        runs = map(another, (*first, *rest))
        return any((run.values[k] != plain.values[k]).any() for run in runs for k in comparisons)

    @cache
    def in_any_order() -> list[Expected]:
        return expected(graph, arguments, seed, reordered=True)

    return [
        Expected(
            plain.values[node],
            values(node, first),
            partial(signed, node),
            partial(values, node, rest),
            partial(overflowed, node),
            partial(chooses, node),
            None if reordered else lambda k=k: in_any_order()[k],  # type: ignore[misc]
        )
        for k, node in enumerate(graph.outputs)
    ]


@dataclass
class _Moves:
    """How a run is moved: zero products have this ``sign``, with ``None`` each one by chance."""

    random: np.random.Generator
    sign: int | None
    plain: _Run
    """The run that is not moved."""
    turned: bool
    """Whether equalities that may be another way are."""
    by_chance: bool
    """Whether chance tells for each of these: of many sums that only rounding keeps from being equal any may win."""
    cancels: bool
    """Whether sums that only rounding keeps from zero are zero."""
    one_by_one: bool
    """Whether sums add term after term, in loops one a turn, whose roundings may all be to the same side."""
    in_pairs: bool
    """Whether sums add halves, which are as exact as a product where terms are equal."""
    negative: float
    """The share of zero products that are negative where chance tells: sums are -0 where all of their terms are."""
    by_terms: bool
    """Whether sums of products that are all -0 are -0, as they are where nothing is added to them."""
    reordered: bool
    """Whether sums are made in another order, those that are exact here, too: moved by units of their terms."""
    turn: int = 0
    """Which run of a region it is, such as a turn of a loop, from 1 on."""
    salts: dict[str, int] = field(default_factory=dict)


class _Run:
    """The value of each node by the interpreter, every inexact one moved if there are ``moves``."""

    def __init__(self, graph: Graph, arguments: Sequence[Any], moves: _Moves | None = None) -> None:
        self.values: dict[Any, Any] = {
            node: np.asarray(array, node.dtype) for node, array in zip(graph.inputs, arguments)
        }
        self.graph = graph
        self.regions: dict[Node, list[_Run]] = {}
        """The runs of the regions of each operation that holds some, in their order."""
        self.users = Counter(child for node in graph.nodes() for child in node.inputs) + Counter(
            graph.outputs
        )
        with np.errstate(all="ignore"):
            for node in graph.nodes():
                if isinstance(node, Constant):
                    self.values[node] = node.value
                elif isinstance(node, Operation) and isinstance(node.type, TupleType):
                    self.values[node] = self._several(node, moves)
                elif isinstance(node, Operation):
                    self.values[node] = (
                        self._value(node) if moves is None else self._moved_or_refused(node, moves)
                    )

    @cached_property
    def terms(self) -> dict[Node, np.ndarray]:
        """The size of the terms of each value."""
        return sizes_of_terms(self.graph, self.values)

    def _several(self, node: Operation, moves: _Moves | None) -> list[np.ndarray]:
        """The results of an operation that has several; graphs in it are run, and moved, like the one around."""
        runs = self.regions[node] = []

        def run(region: Graph, given: Sequence[Any]) -> list[np.ndarray]:
            inside = None
            if moves is not None:
                # A branch that only rounding leads to is not moved.
                unmoved = [other for other in moves.plain.regions[node] if other.graph is region]
                turn = sum(other.graph is region for other in runs)
                if unmoved:
                    inside = replace(moves, plain=unmoved[min(turn, len(unmoved) - 1)], turn=turn + 1)
            runs.append(_Run(region, given, inside))
            return [runs[-1].values[output] for output in region.outputs]

        inputs = [self.values[child] for child in node.inputs]
        runs_inside = {"run": run} if regions(node) else {}
        function = node.attributes.get("function")
        if moves is not None and isinstance(function, OnPacked):  # a transform
            inputs = [_moved(x, moves.random, SUMS) for x in inputs]
        made: list[np.ndarray] = node.operator.reference(*inputs, **node.attributes, **runs_inside)
        if moves is None or not isinstance(function, OnPacked):
            return made
        turned = [_transformed(x, function, moves.random) if x.dtype.kind == "f" else x for x in made]
        if moves.cancels:
            before = moves.plain.values[node]
            turned = [_cancelled(x, plain) if x.dtype.kind == "f" else x for x, plain in zip(turned, before)]
        return turned

    def _value(
        self, node: Operation, inputs: Sequence[np.ndarray] | None = None, turned: bool = False
    ) -> np.ndarray:
        """What an operation gives; ``turned``, convolutions share products where they do in compiled code."""
        if inputs is None:
            inputs = [self.values[child] for child in node.inputs]
        value = np.asarray(node.operator.reference(*inputs, **node.attributes), node.dtype)
        return _with_shared_products(node, inputs, value) if turned else value

    def _moved_or_refused(self, node: Operation, moves: _Moves) -> np.ndarray:
        """The moved value, NaN where moving has made of a matrix one that the operator refuses."""
        try:
            return self._moved(node, moves)
        except MatrixError:
            return np.full(node.shape, np.nan, node.dtype)

    def _moved(self, node: Operation, moves: _Moves) -> np.ndarray:
        name, value = node.operator.name, self._value(node, turned=moves.turned)
        if name in ("equal", "not_equal") and node.inputs[0].dtype.kind == "f":
            return self._turned(node, value, moves) if moves.turned else value
        if name == "bitcast" and node.inputs[0].dtype.kind == "f":
            return self._value(node, [_of_any_sign(self.values[node.inputs[0]], moves.random)])
        if node.dtype.kind != "f" or name in EXACT or not value.size:
            return value
        if node.operator.elementwise:
            return self._moved_elements(node, value, moves)
        random, inputs = moves.random, [self.values[child] for child in node.inputs]
        computed = partial(self._value, node, turned=moves.turned)
        if name not in DEGREE or not _small_multiples(inputs, DEGREE[name], computed):
            # Moving the terms shows what cancels.
            alike, units = random, SUMS
            if name == "sum" and moves.one_by_one and moves.turn:
                # The terms of all turns may be added up before those of each: their roundings are to one side, too.
                alike = np.random.default_rng(moves.salts.setdefault(name, int(random.integers(1 << 30))))
                units = max(SUMS, moves.turn / 2)
            terms = [_moved(x, alike, units) if x.dtype.kind == "f" else x for x in inputs]
            if name in CENTRED:
                terms = [np.where(_is_small(x) & (x != 0), _unrounded(x, random), x) for x in terms]
            if name == "sum" and (moves.one_by_one or moves.in_pairs):
                rows = _rows(np.asarray(terms[0]), node.attributes["axes"])
                total = _one_by_one(rows) if moves.one_by_one else np.asarray(rows.sum(-1), node.dtype)
            else:
                total = computed(terms)
            value = _moved(total, random, SUMS)
            if moves.reordered and name in DEGREE:
                size = moves.plain.terms[node]
                value = np.where(np.isfinite(value), value + (_moved(size, random, SUMS) - size), value)
            if moves.cancels and name in DEGREE:
                value = _cancelled(value, moves.plain.values[node])
            if name == "prod":
                value = _in_another_order(inputs[0], node.attributes["axes"], value, random)
            elif DEGREE.get(name) == 2:
                some = computed([np.asarray(x != 0, x.dtype) for x in inputs]) != 0
                value = np.where(some & _is_small(value), _unrounded(value, random), value)
        if moves.turned and not np.isfinite(value).all():
            # A product that is added without being rounded does not overflow.
            if DEGREE.get(name) == 2:
                wide = [np.asarray(x, _WIDER.get(x.dtype, x.dtype)) for x in inputs]
                value = np.where(np.isfinite(value), value, computed(wide))
            elif name == "sum" and (product := _wide(node.inputs[0], self.values)) is not None:
                value = np.where(np.isfinite(value), value, computed([product]))
        if moves.turned and name in DEGREE and _is_large(inputs, DEGREE[name]):
            # Terms of both signs may overflow in the order that somebody adds them in, to infinities of both signs,
            # and beside an infinite term a product may, unless it is added without being rounded.
            sizes = computed(
                [np.where(np.isfinite(x), np.abs(x), 0) if x.dtype.kind == "f" else x for x in inputs]
            )
            plain = moves.plain.values[node]
            overflown = np.where(np.isfinite(plain), sizes, np.where(np.isinf(plain), np.nan, value))
            value = np.where(np.isfinite(sizes), value, overflown)
        if name in SOLVERS and moves.turned and not all(np.isfinite(x).all() for x in inputs):
            return np.zeros_like(value)
        if name in SIGNLESS:
            below = random.random(value.shape) < moves.negative
            signs = np.where(below, -1, 1) if moves.sign is None else moves.sign
            if moves.by_terms and DEGREE.get(name) == 2:
                sides = [np.copysign(np.ones_like(x), x) for x in inputs]
                signs = np.where(computed(sides) == -computed(list(map(np.ones_like, inputs))), -1, 1)
            value = np.where(value == 0, np.asarray(signs * 0.0, value.dtype), value)
        return value

    def _moved_elements(self, node: Operation, value: np.ndarray, moves: _Moves) -> np.ndarray:
        name, inputs = node.operator.name, [self.values[child] for child in node.inputs]
        if name in ("add", "subtract"):
            # A product without other users may be rounded together with the sum that it goes into.
            products = [_rounded(child, self.values, self.users) for child in node.inputs]
            inputs = [
                x if at is None else np.where(at, _unrounded(x, moves.random), x)
                for x, at in zip(inputs, products)
            ]
            value = self._value(node, inputs)
            if moves.turned and not np.isfinite(value).all():
                wide = [_wide(child, self.values, self.users) for child in node.inputs]
                if any(x is not None for x in wide):
                    terms = [x if w is None else w for x, w in zip(inputs, wide)]
                    value = np.where(np.isfinite(value), value, self._value(node, terms))
            if moves.cancels:
                value = _cancelled(value, moves.plain.values[node])
        rounds = inexact(name, inputs, value)
        if name in ("add", "subtract") and moves.reordered:
            rounds |= may_round(*inputs)
        if name == "multiply" and moves.reordered:
            sizes = [moves.plain.terms[child] for child in node.inputs]
            rounds |= inexact(name, sizes, sizes[0] * sizes[1])
        if not rounds.any():
            return value
        salt = moves.salts.setdefault(name, int(moves.random.integers(1 << 30)))
        terms = inputs if name in SHIFTED else [TERMS[name](*inputs)] if name in TERMS else []
        scale = np.max(np.abs([value, *terms]), axis=0)
        # A product or quotient may have vanished; zeros of other functions are zeros.
        small = _is_small(value) & ((value != 0) | (name in ("multiply", "divide")))
        scale = np.where(small, np.finfo(value.dtype).smallest_normal, scale)
        if moves.reordered and name in ("add", "subtract", "multiply", "cast"):
            scale = np.maximum(scale, moves.plain.terms[node].astype(value.dtype))
        units = AMPLITUDE.get(name, OTHERS)
        if moves.one_by_one and moves.turn and name in ("add", "subtract"):
            step = np.copysign(scale, value) * (units * float(np.finfo(value.dtype).eps))
            moved = np.asarray(value + step, value.dtype)
        else:
            moved = _moved_alike(value, inputs, scale, salt, units)
        return np.where(rounds & np.isfinite(value), moved, value)

    def _turned(self, node: Operation, value: np.ndarray, moves: _Moves) -> np.ndarray:
        """A comparison that another rounding might turn round is turned: moving never makes unequal numbers equal."""
        plain = moves.plain.values
        apart, before = (np.subtract(*(values[x] for x in node.inputs)) for values in (self.values, plain))
        near = (apart != before) & (np.abs(before) <= MARGIN * np.abs(apart - before))
        other = moves.random.random(value.shape) < 0.5 if moves.by_chance else ~plain[node]
        return np.where(near, other, value)


def _rounded(node: Node, values: Mapping[Any, np.ndarray], users: Mapping[Node, int]) -> np.ndarray | None:
    """Where a value is a product of this one use that was rounded, its elements in any order."""
    if not isinstance(node, Operation) or users[node] > 1:
        return None
    factors = _factors(node, values)
    if factors is not None:
        for one, other in zip(factors, node.inputs[::-1]):
            if node.operator.name == "multiply" and np.all(np.abs(one) == 1):  # no product in the end
                return _rounded(other, values, users)
        return np.asarray(product_error(*factors, values[node]) != 0)
    if node.operator.name == "where":
        chosen, *branches = node.inputs
        found = [_rounded(branch, values, users) for branch in branches]
        if found[0] is None and found[1] is None:
            return None
        return np.where(values[chosen], *(False if at is None else at for at in found))
    if node.operator.name not in MOVES:
        return None
    inside = _rounded(node.inputs[0], values, users)
    if inside is None or node.operator.name == "negative":
        return inside
    return np.asarray(node.operator.reference(inside, **node.attributes))


def _wide(
    node: Node, values: Mapping[Any, np.ndarray], users: Mapping[Node, int] | None = None
) -> np.ndarray | None:
    """A product, of one use if ``users`` tell, its elements in any order, as it is where it is added unrounded."""
    if not isinstance(node, Operation) or node.dtype not in _WIDER or (users and users[node] > 1):
        return None
    factors = _factors(node, values)
    if factors is not None:
        for one, other in zip(factors, node.inputs[::-1]):
            ones = node.operator.name == "multiply" and np.all(np.abs(one) == 1)
            if ones and (inside := _wide(other, values, users)) is not None:
                return np.asarray(one * inside)  # the product is one farther up
        return np.asarray(factors[0].astype(_WIDER[node.dtype]) * factors[1])
    if node.operator.name not in MOVES:
        return None
    inside = _wide(node.inputs[0], values, users)
    return None if inside is None else np.asarray(node.operator.reference(inside, **node.attributes))


def _factors(node: Operation, values: Mapping[Any, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """What is multiplied, element by element, if the node is a product that sums nothing."""
    if node.operator.name not in ("multiply", "contract"):
        return None
    a, b = (values[child] for child in node.inputs)
    if node.operator.name == "multiply":
        return a, b
    out, *labels = (node.attributes[name] for name in ("out_labels", "a_labels", "b_labels"))
    if set(out) != {*labels[0], *labels[1]}:
        return None
    return _aligned(a, labels[0], out), _aligned(b, labels[1], out)


def _aligned(x: np.ndarray, labels: Sequence[int], out: Sequence[int]) -> np.ndarray:
    """An operand with its axes in the order of the result's, size one where it has none."""
    x = np.transpose(x, [labels.index(label) for label in out if label in labels])
    return np.expand_dims(x, [k for k, label in enumerate(out) if label not in labels])


def _moved(value: np.ndarray, random: np.random.Generator, units: float) -> np.ndarray:
    """Each element moved by up to so many units in its last place, zeros not at all."""
    step = units * float(np.finfo(value.dtype).eps)
    return (value * (1 + random.uniform(-step, step, value.shape))).astype(value.dtype)


def _with_shared_products(node: Operation, inputs: Sequence[np.ndarray], value: np.ndarray) -> np.ndarray:
    """``value``, of a convolution as compiled code computes it if that makes common products of neighbouring results.

    They are as exact as the largest sums of terms, and what is further off is no rounding. Of windows that are longer
    than results, as in the gradient of a window, they may be NaN where anything is not finite.
    """
    if node.operator.name != "convolve":
        return value
    variables = tuple(Variable(child.type, "x") for child in node.inputs)
    made = filtered(Processor.host(), node.operator(*variables, **node.attributes))
    if made is None:
        return value
    (shared,) = evaluate(Graph(variables, (made,)), inputs)
    sizes = [np.abs(np.where(np.isfinite(x), x, 0)) for x in inputs]
    largest = np.max(node.operator.reference(*sizes, **node.attributes), initial=0)
    near = np.abs(shared - value) <= SHARED * np.finfo(value.dtype).eps * largest
    windows, results = (
        {label: extent for label, extent in zip(node.attributes[layout], shape) if label.isdigit()}
        for layout, shape in (("w_layout", node.inputs[1].shape), ("out_layout", node.shape))
    )
    if any(windows[label] > results[label] for label in windows):
        near |= np.isnan(shared) & (not all(np.isfinite(x).all() for x in inputs))
    return np.where(near, shared, value)


def _transformed(value: np.ndarray, function: OnPacked, random: np.random.Generator) -> np.ndarray:
    """What a Fourier transform gives: each element, or part of one, is as exact as the largest of its row.

    The sign of a zero depends on the order of its sums.
    """
    value = np.where((value == 0) & (random.random(value.shape) < 0.5), -value, value)
    axis = dict(getattr(function.function, "attributes", ())).get("axis")
    if axis is None:
        return _moved(value, random, SUMS)
    rank = len(function.given[0].shape)
    with np.errstate(all="ignore"):
        largest = np.max(
            np.abs(value), axis=(axis % rank, *range(rank, value.ndim)), keepdims=True, initial=0
        )
        step = SUMS * float(np.finfo(value.dtype).eps) * np.where(np.isfinite(largest), largest, 0)
        return (value + step * random.uniform(-1, 1, value.shape)).astype(value.dtype)


def _of_any_sign(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """``x``, in which what is no number has a sign by chance: nobody says which one it has."""
    return np.where(np.isnan(x) & (random.random(x.shape) < 0.5), -x, x)


def _rows(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """The terms of each sum over ``axes`` side by side, where NumPy adds halves."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    terms = math.prod(x.shape[k] for k in axes)
    return np.ascontiguousarray(
        np.transpose(x, (*kept, *axes)).reshape(*(x.shape[axis] for axis in kept), terms)
    )


def _one_by_one(rows: np.ndarray) -> np.ndarray:
    """The sum of each row, every term added to those before it."""
    return np.add.accumulate(rows, axis=-1, dtype=rows.dtype)[..., -1] if rows.shape[-1] else rows.sum(-1)


def _cancelled(value: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """Sums with zeros for those that are as small, before they are moved, as what moves them: terms that cancel."""
    zero = np.abs(plain) <= MARGIN * np.abs(value - plain)
    return np.where(zero & np.isfinite(value), value.dtype.type(0), value)


def _is_small(value: np.ndarray) -> np.ndarray:
    """Whether numbers there are as far apart as next to zero."""
    return np.asarray(np.abs(value) < np.finfo(value.dtype).smallest_normal)


def _in_another_order(
    x: np.ndarray, axes: tuple[int, ...], value: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Where a product of some factors underflows or overflows, the product in another order: what is lost may be lost
    elsewhere, most of it where the least factors or the largest ones come first; zero times infinity is NaN."""
    size = np.abs(x)
    least, most = (np.prod(pick(size, 1), axis=axes, dtype=x.dtype) for pick in (np.minimum, np.maximum))
    underflows = _is_small(least) & np.all(x != 0, axis=axes)
    lost = underflows | (np.isinf(most) & np.all(np.isfinite(x), axis=axes))
    way = random.choice(("rising", "falling", "any"))
    for axis in axes:
        order = np.argsort(np.abs(x) if way == "rising" else -np.abs(x), axis)
        x = random.permutation(x, axis) if way == "any" else np.take_along_axis(x, order, axis)
    return np.where(lost, _unrounded(np.prod(x, axis=axes, dtype=x.dtype), random), value)


def _unrounded(product: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A rounded product moved by about a unit in the last place, of subnormal numbers too."""
    least = np.finfo(product.dtype).smallest_normal
    unit = np.finfo(product.dtype).eps * np.where(_is_small(product), least, np.abs(product))
    moved = product + unit * random.uniform(-1.5, 1.5, product.shape)
    return np.where(np.isfinite(product), moved, product).astype(product.dtype)


def _moved_alike(
    value: np.ndarray, inputs: Sequence[np.ndarray], scale: np.ndarray, salt: int, units: float
) -> np.ndarray:
    """The same in units of ``scale``, by an amount that depends on the element alone and what it is computed from.

    Equal results of other operands are moved apart: only rounding has made them equal.
    """
    mixed = np.zeros(value.shape, np.uint64)
    for x in (value, *inputs):  # in any order, and of either sign: sums and even functions stay equal
        bits = np.abs(x).view(f"u{x.itemsize}").astype(np.uint64)
        one = (bits ^ np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = mixed + (one ^ (one >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    part = (mixed >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1
    signed = np.copysign(scale, value)  # odd functions stay odd
    return np.asarray(value + signed * (units * float(np.finfo(value.dtype).eps) * part), value.dtype)


def _is_large(inputs: Sequence[np.ndarray], degree: int) -> bool:
    """Whether as many numbers as there are, products of ``degree`` factors, may overflow together."""
    factors = [x for x in inputs if x.dtype.kind == "f" and x.size]
    if not factors:
        return False
    largest = [np.max(np.abs(x), where=np.isfinite(x), initial=0) for x in factors[-degree:]]
    powers = [float(np.frexp(x)[1]) for x in largest]
    terms = math.log2(max(x.size for x in factors))
    return bool(max(sum(powers), *powers) + terms >= np.finfo(factors[0].dtype).maxexp)


def _small_multiples(
    inputs: Sequence[np.ndarray], degree: int, computed: Callable[[Sequence[np.ndarray]], np.ndarray]
) -> bool:
    """Whether a sum of products of multiples of 1/256 is exact in every order."""
    floats = [x for x in inputs if x.dtype.kind == "f"]
    for x in floats:
        scaled = x.astype(np.float64) * 256
        if not np.all((scaled == np.rint(scaled)) | ~np.isfinite(x)):
            return False
    bound = computed(
        [np.abs(np.nan_to_num(x, posinf=0, neginf=0)) if x.dtype.kind == "f" else x for x in inputs]
    )
    exact_up_to = 2.0 ** (np.finfo(floats[0].dtype).nmant - 8 * degree)
    return bool(np.abs(bound).max(initial=0) <= exact_up_to)
