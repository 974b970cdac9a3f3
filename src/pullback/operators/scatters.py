"""Updates of elements at computed places, one position after another: what NumPy's ``ufunc.at`` does.

``y = x``, then ``y[indices[p], r] = f(y[indices[p], r], updates[p, r])`` for each position ``p`` in row-major order:
a place that is named again goes on from what the position before has left there. ``f`` is a sum, a product, a quotient,
a power, an extreme, or takes the update alone (``scatter_set``: the last one stays).

``repeats`` is the most positions that name one place, as far as that is known: derivatives of products need all others
of a place, and look for them no further than that (``_Chains``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Case, Node, Operation, Operator, Sample, Type, dtype_kind
from pullback.operators.batching import all_batched, any_batched, behind, moved
from pullback.operators.concatenation import concatenate
from pullback.operators.elementwise import filled, is_constant, repair_of, where, zeros_like
from pullback.operators.indexing import check_axes, examples, gather, gathered_shape, index_sample
from pullback.operators.shapes import broadcast, iota, reshape, slice
from pullback.operators.varying import Fill, Padding, Rule, is_count, least_for, named_axes, refuse_named

__all__ = [
    "links",
    "scatter_add",
    "scatter_divide",
    "scatter_max",
    "scatter_min",
    "scatter_multiply",
    "scatter_power",
    "scatter_set",
]

_INT = np.dtype(np.int64)

Pullback = Callable[[Operation, Node], tuple[Node | None, Node | None]]
"""The cotangents of ``x`` and of the updates."""

_KINDS = {"biufc": "any", "biuf": "any", "iufc": "any", "iuf": "any", "f": "float"}


def _type_rule(name: str, kinds: str) -> Callable[..., Type]:
    def rule(x: Type, updates: Type, *indices: Type, axes: tuple[int, ...], repeats: int = 0) -> Type:
        check_axes(name, x, indices, axes)
        expected = gathered_shape(x, indices[0], axes)
        if updates.shape != expected:
            raise ShapeError(
                f"{name}: updates of shape {updates.shape} for axes {axes} of shape {x.shape} at indices of "
                f"shape {indices[0].shape}; broadcast the updates to {expected}"
            )
        if updates.dtype != x.dtype:
            raise DTypeError(f"{name}: dtypes {x.dtype} and {updates.dtype} differ; cast one with .astype")
        if dtype_kind(x.dtype) not in kinds:
            raise DTypeError(f"{name} takes no {x.dtype}; {repair_of(x.dtype, kinds)}")
        return Type(x.dtype, x.shape)

    return rule


def _reference(accumulate: str) -> Callable[..., np.ndarray]:
    def reference(
        x: np.ndarray, updates: np.ndarray, *indices: np.ndarray, axes: tuple[int, ...], repeats: int = 0
    ) -> np.ndarray:
        # NumPy goes through places as they lie in memory: of several updates of one the last row's is to win.
        indices = tuple(np.asarray(index, order="C") for index in indices)
        result = np.array(x)
        target = np.moveaxis(result, axes, range(len(axes)))
        if accumulate == "set":
            target[indices] = updates
        elif accumulate == "minimum" and dtype_kind(x.dtype) == "f":
            np.negative(_largest(-target, -updates, indices), out=target)
        elif accumulate == "maximum" and dtype_kind(x.dtype) == "f":
            target[...] = _largest(target, updates, indices)
        else:
            getattr(np, accumulate).at(target, indices, updates)
        return result

    return reference


def _largest(base: np.ndarray, updates: np.ndarray, indices: tuple[np.ndarray, ...]) -> np.ndarray:
    """The largest of each element and its updates, +0 above -0: which of two zeros NumPy takes is left to chance."""
    result, positive = np.array(base), ~np.signbit(base)
    np.maximum.at(result, indices, updates)
    np.logical_or.at(positive, indices, ~np.signbit(updates))
    return np.where(result == 0, np.copysign(base.dtype.type(0), np.where(positive, 1, -1)), result)


def _batch(node: Operation, inputs: Sequence[Node]) -> Node:
    """The adjoint of the rule of ``gather``; every example has an array of its own to update."""
    (_, _, *indices), (_, _, *ones) = inputs, node.inputs
    others = {**node.attributes, "axes": behind(node.attributes["axes"])}
    if not any_batched(indices, ones):
        x, updates = all_batched(inputs[:2], node.inputs[:2])
        return node.operator(x, moved(updates, 0, ones[0].ndim), *indices, **others)
    x, updates, *indices = all_batched(inputs, node.inputs)
    others["axes"] = (0, *others["axes"])
    return node.operator(x, updates, examples(indices[0]), *indices, **others)


_NEUTRAL: dict[str, Fill] = {
    "scatter_add": 0,
    "scatter_multiply": 1,
    "scatter_divide": 1,
    "scatter_power": 1,
    "scatter_max": "least",
    "scatter_min": "greatest",
}


def _vary(name: str) -> Rule:
    """Padding updates the first place by what changes nothing, or places in the padding of its own."""

    def rule(node: Operation) -> Padding:
        x, _, *indices = node.inputs
        places = ("index" for _ in indices)
        least = least_for(x, indices, node.attributes["axes"])
        varying = named_axes(indices[0])
        if not varying or _own_rows(x, indices, node.attributes["axes"], varying):
            return Padding((None, None, *places), least)
        if name not in _NEUTRAL:
            refuse_named(
                node,
                "sets rows by number",
                "add into zeros, x.at[i].add(v), or set rows of the named axis itself",
            )
        return Padding((None, _NEUTRAL[name], *places), least)

    return rule


def _own_rows(x: Node, indices: Sequence[Node], axes: Sequence[int], varying: Sequence[int]) -> bool:
    """Whether each update along the named axis is of a row of its own."""
    return len(varying) == 1 and any(
        is_count(index, varying[0]) and x.shape[axis] == index.shape[varying[0]]
        for index, axis in zip(indices, axes)
    )


def _scatter(
    name: str,
    accumulate: str,
    kinds: str,
    pullback: Pullback,
    base: tuple[float, float] = (-2.0, 2.0),
    updates: tuple[float, float] = (-2.0, 2.0),
    linear: bool = False,
) -> Operator:
    """An operator that updates one position after another; ``base`` and ``updates`` are what samples are drawn from."""
    kind = _KINDS[kinds]

    def both(node: Operation, g: Node) -> list[Node | None]:
        return [*pullback(node, g), *(None for _ in node.inputs[2:])]

    def case(shape: tuple[int, ...], axes: tuple[int, ...], *positions: int, kind: str = "float") -> Case:
        kept = tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
        indices = [index_sample(*positions, below=shape[axis]) for axis in axes]
        samples = Sample(shape, *base, kind), Sample((*positions, *kept), *updates, kind)
        return Case((*samples, *indices), {"axes": axes})

    return Operator(
        name,
        _type_rule(name, kinds),
        _reference(accumulate),
        both,
        _batch,
        # The result is no function of one index: the compiler runs over the updates instead.
        None,
        (
            case((4,), (0,), 6),
            case((4, 3), (0,), 2, 3),
            case((2, 4, 3), (1,), 5),
            case((3, 4), (0, 1), 6),
            case((3, 2), (0,)),
            case((1, 2), (0,), 3),
            case((3, 2), (0,), 0),
            case((3,), (0,), 4, kind=kind),
        ),
        linear=linear,
        stored=True,
        accumulates=accumulate,
        vary=_vary(name),
    )


def _at(node: Operation, x: Node) -> Node:
    """The elements of ``x`` that the updates of ``node`` are for, in the shape of the updates."""
    _, _, *indices = node.inputs
    return gather(x, *indices, axes=node.attributes["axes"])


def _again(operator: Operator, node: Operation, x: Node, updates: Node) -> Node:
    """Another scatter to the same places."""
    return operator(x, updates, *node.inputs[2:], **node.attributes)


# -- which positions name one place


def _links_type(places: Type, extent: int) -> Type:
    if places.rank != 1 or places.dtype != _INT:
        raise ShapeError(f"links: places of type {places}; give them as one row of int64")
    return Type(_INT, (extent + places.shape[0],))


def _links_reference(places: np.ndarray, extent: int) -> np.ndarray:
    result = np.full(extent + places.size, -1)
    order = np.argsort(places, kind="stable")
    again = np.flatnonzero(places[order[1:]] == places[order[:-1]])
    result[extent + order[again + 1]] = order[again]
    result[places] = np.arange(places.size)
    return result


def _links_batch(node: Operation, inputs: Sequence[Node]) -> Node:
    """The places of each example behind those of the one before, and positions counted by itself again."""
    (places,), extent = inputs, node.attributes["extent"]
    examples_, count = places.shape
    number = iota(shape=(examples_, 1), axis=0, dtype=_INT)
    ahead = broadcast(reshape(number, shape=(examples_,)), shape=places.shape, axes=(0,))
    flat = reshape(places + ahead * extent, shape=(examples_ * count,))
    found = links(flat, extent=examples_ * extent)
    whole = examples_ * extent
    last = slice(found, starts=(0,), stops=(whole,), steps=(1,))
    before = slice(found, starts=(whole,), stops=(whole + examples_ * count,), steps=(1,))
    rows = concatenate(
        reshape(last, shape=(examples_, extent)), reshape(before, shape=(examples_, count)), axis=1
    )
    earlier = broadcast(reshape(number, shape=(examples_,)), shape=rows.shape, axes=(0,)) * count
    return where(OPERATORS["less"](rows, zeros_like(rows)), rows, rows - earlier)


links = Operator(
    "links",
    _links_type,
    _links_reference,
    None,
    _links_batch,
    # Positions are visited in order, each leaving its number at its place: the compiler has a loop for that.
    None,
    tuple(
        Case((index_sample(count, below=extent),), {"extent": extent})
        for count, extent in ((7, 3), (40, 9), (5, 1), (1, 4), (0, 3))
    ),
    stored=True,
)
"""For each place the last position that names it, then for each position the one before that names the same place.

``y[i]`` is the largest ``p`` with ``places[p] == i``, and ``y[extent + p]`` the largest ``q < p`` with ``places[q] ==
places[p]``; -1 where there is none. ``places`` is a row of ``int64`` from 0 to ``extent - 1``.
"""


class _Chains:
    """The positions of a scatter as chains, one for each place, and products along them.

    The product of all updates before a position is found in as many steps as its number of factors has binary digits:
    each step multiplies by what twice as many positions before have. No quotient is taken, so zeros do no harm.
    """

    def __init__(self, node: Operation) -> None:
        x, self.updates, *indices = node.inputs
        self.count = math.prod(indices[0].shape)
        self.repeats = min(self.count, node.attributes.get("repeats") or self.count)
        extents = [x.shape[axis] for axis in node.attributes["axes"]]
        flat: Node = zeros_like(indices[0])
        for index, extent in zip(indices, extents):
            flat = flat * extent + index
        self.places = reshape(flat, shape=(self.count,))
        self.extent = math.prod(extents)
        self.rest = self.updates.shape[indices[0].ndim :]
        self.shape = indices[0].shape
        found = links(self.places, extent=self.extent)
        self._last = slice(found, starts=(0,), stops=(self.extent,), steps=(1,))
        ends = self.extent, self.extent + self.count
        before = slice(found, starts=ends[:1], stops=ends[1:], steps=(1,))
        # A position that has none before it goes on at the one after the last.
        none = filled(self.count, _INT, before.shape)
        self.before = where(OPERATORS["less"](before, zeros_like(before)), none, before)
        numbers = iota(shape=before.shape, axis=0, dtype=_INT)
        after = scatter_set(filled(self.count, _INT, (self.count + 1,)), numbers, self.before, axes=(0,))
        self.after = slice(after, starts=(0,), stops=(self.count,), steps=(1,))

    def is_last(self) -> Node:
        """Where an update is the last one of its place, in the shape of the updates."""
        numbers = iota(shape=(self.count,), axis=0, dtype=_INT)
        last = OPERATORS["equal"](gather(self._last, self.places, axes=(0,)), numbers)
        ranks = tuple(range(len(self.shape)))
        return broadcast(reshape(last, shape=self.shape), shape=self.updates.shape, axes=ranks)

    def products_before(self, values: Node) -> Node:
        """For each update the product of the ``values``, which have its shape, of all before it at its place."""
        return self._products(values, self.before)

    def products_of_others(self, values: Node) -> Node:
        """For each update the product of the ``values`` of all others at its place."""
        return self._products(values, self.before) * self._products(values, self.after)

    def _products(self, values: Node, link: Node) -> Node:
        one = filled(1, values.dtype, (1, *self.rest))
        end = filled(self.count, _INT, (1,))
        flat = reshape(values, shape=(self.count, *self.rest))
        product: Node = gather(concatenate(flat, one, axis=0), link, axes=(0,))
        reach = 1
        while reach < self.repeats - 1:
            product = product * gather(concatenate(product, one, axis=0), link, axes=(0,))
            link = gather(concatenate(link, end, axis=0), link, axes=(0,))
            reach *= 2
        return reshape(product, shape=values.shape)


def _chains(node: Operation) -> _Chains | None:
    """The chains of a scatter's positions, or ``None`` where each place is known to be named once."""
    count = math.prod(node.inputs[2].shape)
    return None if count <= 1 or node.attributes.get("repeats") == 1 else _Chains(node)


# -- the operators


def _add_pullback(node: Operation, g: Node) -> tuple[Node | None, Node | None]:
    return g, _at(node, g)


scatter_add = _scatter("scatter_add", "add", "iufc", _add_pullback, linear=True)
"""``y = x``, then ``y[indices[p], r] += updates[p, r]`` for each position ``p``: the transpose of ``gather``.

Positions are visited in row-major order, so an index that occurs again always gives the same sum. Integers
and floats. Raises ``ShapeError`` unless ``updates`` has the shape that ``gather`` would give,
``DTypeError`` where dtypes differ.
"""


def _set_pullback(node: Operation, g: Node) -> tuple[Node | None, Node | None]:
    x, updates, *_ = node.inputs
    x_bar = None if is_constant(x) else _again(scatter_set, node, g, zeros_like(updates))
    chains = None if is_constant(updates) else _chains(node)
    bar = _at(node, g)
    return x_bar, bar if chains is None else where(chains.is_last(), bar, zeros_like(bar))


scatter_set = _scatter("scatter_set", "set", "biufc", _set_pullback, linear=True)
"""``y = x``, then ``y[indices[p], r] = updates[p, r]`` for each position ``p``: of several for one place the last one
stays, and has all of the cotangent.
"""


def _multiply_pullback(node: Operation, g: Node) -> tuple[Node | None, Node | None]:
    x, updates, *_ = node.inputs
    x_bar = None if is_constant(x) else _again(scatter_multiply, node, g, updates)
    if is_constant(updates):
        return x_bar, None
    bar, chains = _at(node, g) * _at(node, x), _chains(node)
    return x_bar, bar if chains is None else bar * chains.products_of_others(updates)


scatter_multiply = _scatter("scatter_multiply", "multiply", "iuf", _multiply_pullback)
"""``y = x``, then ``y[indices[p], r] *= updates[p, r]`` for each position ``p``."""


def _divide_pullback(node: Operation, g: Node) -> tuple[Node | None, Node | None]:
    x, updates, *_ = node.inputs
    x_bar = None if is_constant(x) else _again(scatter_divide, node, g, updates)
    return x_bar, None if is_constant(updates) else -_at(node, g) * (_at(node, node) / updates)


scatter_divide = _scatter("scatter_divide", "divide", "f", _divide_pullback, updates=(0.5, 2.0))
"""``y = x``, then ``y[indices[p], r] /= updates[p, r]`` for each position ``p``. Floats only."""


def _power_pullback(node: Operation, g: Node) -> tuple[Node | None, Node | None]:
    """All exponents of a place make one, ``n``: ``|y| = |x| ** n``, where ``y`` is a number.

    ``y`` may be positive where ``x`` is negative, after an even exponent, and from there on it is a smooth function of
    the exponents that follow.
    """
    x, updates, *_ = node.inputs
    exponents = _again(scatter_multiply, node, filled(1, x.dtype, x.shape), updates)
    n, base, result = (_at(node, each) for each in (exponents, x, node))
    bar, zero, one = _at(node, g), zeros_like(updates), filled(1, x.dtype, updates.shape)
    negative = OPERATORS["less"](base, zero)
    side = where(negative, -OPERATORS["sign"](result), one)
    slope = n * OPERATORS["power"](OPERATORS["absolute"](base), n - 1) * side
    slope = where(OPERATORS["equal"](n, zero), zero, slope)
    x_bar = None if is_constant(x) else _again(scatter_set, node, g, bar * slope)
    if is_constant(updates):
        return x_bar, None
    smooth: Node = OPERATORS["greater"](base, zero)
    others, chains = one, _chains(node)
    if chains is not None:
        others = chains.products_of_others(updates)
        even = OPERATORS["equal"](OPERATORS["remainder"](updates, filled(2, x.dtype, updates.shape)), zero)
        so_far = chains.products_before(where(even, zero, one))
        folded = OPERATORS["logical_and"](negative, OPERATORS["equal"](so_far, zero))
        smooth = OPERATORS["logical_or"](smooth, folded)
    log = OPERATORS["log"](where(smooth, OPERATORS["absolute"](base), one))
    return x_bar, where(smooth, bar * (result * log * others), zero)


scatter_power = _scatter("scatter_power", "power", "f", _power_pullback, (0.3, 2.5), (0.2, 2.8))
"""``y = x``, then ``y[indices[p], r] **= updates[p, r]`` for each position ``p``. Floats only.

The derivative by an exponent is 0 where what it is applied to is not positive, as with ``power``.
"""


def _extreme_pullback(node: Operation, g: Node) -> tuple[Node | None, Node | None]:
    """Equal winners share the cotangent equally, as with a maximum over an axis and one of two arrays."""
    x, updates, *_ = node.inputs
    base, added = OPERATORS["equal"](x, node), OPERATORS["equal"](updates, _at(node, node))
    counts = [OPERATORS["cast"](wins, dtype=x.dtype) for wins in (base, added)]
    share = OPERATORS["divide"](g, _again(scatter_add, node, *counts))
    return where(base, share, zeros_like(x)), where(added, _at(node, share), zeros_like(updates))


scatter_max = _scatter("scatter_max", "maximum", "biuf", _extreme_pullback)
"""``y = x``, then ``y[indices[p], r]`` is the larger of itself and ``updates[p, r]`` for each position ``p``.

NaN where one is NaN. Equal winners, the element of ``x`` among them, share the cotangent equally.
"""

scatter_min = _scatter("scatter_min", "minimum", "biuf", _extreme_pullback)
"""``y = x``, then ``y[indices[p], r]`` is the smaller of itself and ``updates[p, r]`` for each position ``p``.

NaN where one is NaN. Equal winners, the element of ``x`` among them, share the cotangent equally.
"""
