"""Rows of a table that are read many times, such as the words of texts, are multiplied once each.

A product of gathered rows and a matrix is a gather of the products of rows. Of the words of a batch of texts a quarter
may be different ones, so the rows that are read are found first (``operators/distinct.py``), and the product has a row
for each of them. So it is with derivatives: cotangents of one row are added up before they meet the matrix, or rows.

>>> import numpy as np
>>> import pullback.numpy
>>> from pullback.graph import Type, Variable, format_graph
>>> from pullback.operators.indexing import check_index
>>> from pullback.operators.products import contract
>>> wide = Processor("generic", "", "x86_64", vector_bytes=64, vector_registers=32)
>>> table = Variable(Type(np.dtype(np.float32), (96, 64)), "table")
>>> w = Variable(Type(np.dtype(np.float32), (64, 48)), "w")
>>> words = Variable(Type(np.dtype(np.int64), (2048,)), "words")
>>> rows = gather(table, check_index(words, extent=96, what="word"), axes=(0,))
>>> y = contract(rows, w, a_labels=(0, 1), b_labels=(1, 2), out_labels=(0, 2))
>>> print(format_graph(distinct_rows(wide)(Graph((table, words, w), (y,))), sources=False))
input  %0 table: float32[96, 64]
input  %1 words: int64[2048]
input  %2 w: float32[64, 48]
%3 = contract(%0, %2, a_labels=(0, 1), b_labels=(1, 2), out_labels=(0, 2)): float32[96, 48]
%4 = check_index(%1, extent=96, what=word): int64[2048]
%5 = gather(%3, %4, axes=(0,)): float32[2048, 48]
output %5

How many different rows there are is known when the program runs. Arrays have room for as many as there may be; what
stands behind the last one is zero, or not read, and is not computed (``regions/ends.py``). A table that is hardly
larger than what is read of it, as this one, is multiplied as it is.

A convolution of texts, channels last, is one product with all elements of the window side by side, whose parts are
added, and so are its derivatives.

Sums in another order have the same infinities only where all that is summed is finite. So the rows, or the matrix, are
looked at: where they are not, as a rare case, derivatives are computed place by place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from pullback.compiler.passes.repeated_rows import RowSums, different_rows, way_to_rows
from pullback.compiler.passes.rewriting import (
    GraphPass,
    filled,
    inner,
    labelled,
    ordered,
    rebuilt,
    scalar,
    shaped,
    sliced,
)
from pullback.compiler.passes.simplify_products import both_ways
from pullback.compiler.passes.sparse_pooling import cycles_of_visits
from pullback.compiler.schedules.cost import DEEPEST_FACTOR
from pullback.compiler.target import Processor
from pullback.control.host import with_host_calls
from pullback.graph import OPERATORS, Graph, Node, Operation, apply
from pullback.operators.arithmetic import add
from pullback.operators.concatenation import concatenate
from pullback.operators.convolution_where_read import convolve_where_read
from pullback.operators.distinct import distinct
from pullback.operators.elementwise import where
from pullback.operators.indexing import gather, gathers_rows
from pullback.operators.logic import rarely, spoilt, unlikely
from pullback.operators.scatters import scatter_add
from pullback.operators.shapes import broadcast, iota, pad, reverse

__all__ = ["distinct_rows"]

_PLACE_BY_PLACE = {
    "x_layout": "c0b",
    "w_layout": "c0o",
    "out_layout": "b0o",
    "strides": (1,),
    "dilations": (1,),
}
_ROW_BY_ROW = {"x_layout": "b0c", "w_layout": "co0", "out_layout": "b0o", "strides": (1,), "dilations": (1,)}
"""Products of matrices, as convolutions that are computed where they are read."""

_FACTORS = frozenset({"multiply", "where"})
"""What stands between a pool's cotangents and those of a convolution."""

Labels = Sequence[int]
View = Callable[[Node], Node]
"""What brings an array of places into the order and shape that the rows of another array have."""


# -- nodes


def _part(node: Node, start: int, stop: int, axis: int = 0) -> Node:
    return sliced(node, range(node.ndim), {axis: (start, stop, 1)})


def _in_rows(node: Node, rank: int) -> Node:
    """``node`` with all but its first axes as one."""
    return shaped(node, (*node.shape[:rank], math.prod(node.shape[rank:])))


def _matrix(node: Node, rank: int) -> Node:
    """``node`` with its first axes as one, and all others as one."""
    rows = math.prod(node.shape[:rank])
    return shaped(node, (rows, node.size // rows))


def _where_row(is_row: Node | None, node: Node) -> Node:
    """``node``, with zeros in what are no rows."""
    if is_row is None:
        return node
    return where(broadcast(is_row, shape=node.shape, axes=(0,)), node, filled(0, node))


def _or_rarely(rare: Node, then: Node, usual: Node) -> Node:
    """``usual``, or ``then`` in the rare case, added to zeros by a kernel of its own, which is left out as a whole."""
    rows = iota(shape=usual.shape[:1], axis=0, dtype=np.dtype(np.int64))
    usual = rarely(rare, filled(0, usual), usual)
    return scatter_add(usual, rarely(rare, then, filled(0, then)), rows, axes=(0,))


# -- rows that are read


class _Rows(NamedTuple):
    """Whole rows of a ``node`` in some order: how places move along with them, and how they move back."""

    node: Node
    view: View
    back: View


def _rows(node: Node) -> _Rows:
    """What makes rows, which ``node`` has in another order, or has made."""
    if not isinstance(node, Operation) or node.operator.name not in ("reshape", "transpose"):
        return _Rows(node, lambda places: places, lambda places: places)
    (below,), axes = node.inputs, node.attributes.get("axes", ())
    if node.shape[-1:] != below.shape[-1:] or not node.ndim or axes[-1:] not in ((), (node.ndim - 1,)):
        return _Rows(node, lambda places: places, lambda places: places)
    before, order = _rows(below), range(len(axes) - 1)

    def view(places: Node) -> Node:
        places = before.view(places)
        return ordered(places, order, axes[:-1]) if axes else shaped(places, node.shape[:-1])

    def back(places: Node) -> Node:
        return before.back(ordered(places, axes[:-1], order) if axes else shaped(places, below.shape[:-1]))

    return _Rows(before.node, view, back)


def _read(node: Node) -> _Rows | None:
    """Rows that are gathered at checked places of a table, in any order."""
    rows = _rows(node)
    if not gathers_rows(rows.node) or not node.size:
        return None
    table, place = rows.node.inputs
    return rows if table.dtype.kind == "f" and inner(place, "check_index") is not None else None


class _Table:
    """The rows of a table that a gather reads, once each, and the number among them of each that is read."""

    def __init__(self, gathered: Node, counted: bool, sums: RowSums) -> None:
        self.sums = sums
        self.table, self.place = gathered.inputs
        self.count, self.width = self.table.shape
        self.is_row: Node | None = None
        self.rows: Node | None = None
        self.read, self.numbers = self.table, self.place
        self.product: Node | None = None
        if counted:
            found = distinct(shaped(self.place, (self.place.size,)), extent=self.count)
            self.count = min(self.place.size, self.count)
            self.rows = _part(found, 1, 1 + self.count)
            self.numbers = shaped(_part(found, 1 + self.count, found.size), self.place.shape)
            number = iota(shape=(self.count,), axis=0, dtype=found.dtype)
            size = shaped(_part(found, 0, 1), ())
            self.is_row = OPERATORS["less"](number, broadcast(size, shape=number.shape, axes=()))
            self.read = _where_row(self.is_row, gather(self.table, self.rows, axes=(0,)))

    def times(self, matrix: Node, view: View) -> Node:
        """The products of the rows and a matrix, in the places where they are read."""
        rows = labelled(self.read, matrix, "nk", "kc", "nc")
        self.product = rows if self.product is None else self.product
        return self.at_places(rows, view)

    def at_places(self, rows: Node, view: View) -> Node:
        """A row for each place."""
        return gather(rows, view(self.numbers), axes=(0,))

    def summed(self, cotangents: Node, view: View) -> Node:
        """The sum of the cotangents of each row; ``view`` brings places into their order."""
        made = _rows(cotangents)
        zeros = filled(0, cotangents, (self.count, cotangents.shape[-1]))
        return scatter_add(zeros, made.node, made.back(view(self.numbers)), axes=(0,))

    def gradient(self, cotangents: Node, view: View) -> Node:
        """The gradient of a matrix."""
        usual = labelled(self.read, self.summed(cotangents, view), "nk", "nc", "kc")
        rank = cotangents.ndim - 1
        at_places, given = (_matrix(each, rank) for each in (self.at_places(self.read, view), cotangents))
        every = convolve_where_read(
            shaped(at_places, (1, *at_places.shape)), shaped(given, (1, *given.shape)), **_PLACE_BY_PLACE
        )
        return _or_rarely(self.spoilt(), shaped(every, usual.shape), usual)

    def spoilt(self) -> Node:
        """Whether a row is not finite: then no number of its product is, and one column tells."""
        if self.product is None:
            return unlikely(spoilt(_where_row(self.is_row, self.read)))
        return unlikely(spoilt(self.at_places(_part(self.product, 0, 1, axis=1), lambda places: places)))

    def updated(self, base: Node, cotangents: Node, matrix: Node, every: Node, view: View) -> Node:
        """``base`` with the products of cotangents and a matrix added to the rows that these belong to.

        In the rare case they are those of ``every`` place.
        """
        rare = unlikely(spoilt(matrix))
        made = labelled(self.summed(cotangents, view), matrix, "nc", "ck", "nk")
        made = _where_row(self.is_row, rarely(rare, filled(0, made), made))
        base = base + made if self.rows is None else scatter_add(base, made, self.rows, axes=(0,))
        return scatter_add(base, rarely(rare, every, filled(0, every)), view(self.place), axes=(0,))


# -- products


class _Use(NamedTuple):
    """Rows that are read, what they are multiplied with, or become, and how it is made of the rows of their table.

    Where ``columns`` is absent, it is no reason to have a table.
    """

    rows: _Rows
    columns: Node | None
    made: Callable[[_Table], Node | None]


def _use(node: Node) -> _Use | None:
    if (product := inner(node, "contract")) is not None:
        return _multiplied(product) or _summed(product)
    convolution = inner(node, "convolve")
    return None if convolution is None else _convolved(convolution) or _met_by_cotangents(convolution)


class _Side(NamedTuple):
    """An operand of ``contract``: its ``places``, its last axis, and the other operand."""

    rows: Node
    places: Labels
    within: int
    other: Node
    labels: Labels


def _sides(node: Operation) -> Iterator[_Side]:
    for x, x_labels, y, y_labels in both_ways(node):
        if x_labels:
            yield _Side(x, x_labels[:-1], x_labels[-1], y, y_labels)


def _multiplied(node: Operation) -> _Use | None:
    """Rows that are read, each times a matrix."""
    out = node.attributes["out_labels"]
    for side in _sides(node):
        kept = {*side.places} <= {*out} and {*side.places}.isdisjoint(side.labels)
        if kept and side.within in side.labels and side.within not in out and (rows := _read(side.rows)):
            return _Use(rows, side.other, partial(_multiply, node, rows.view, side))
    return None


def _multiply(node: Operation, view: View, side: _Side, table: _Table) -> Node:
    columns = [label for label in side.labels if label != side.within]
    matrix = ordered(side.other, side.labels, [side.within, *columns])
    made = table.times(_matrix(matrix, 1), view)
    made = shaped(made, (*made.shape[:-1], *matrix.shape[1:]))
    return ordered(made, [*side.places, *columns], node.attributes["out_labels"])


def _summed(node: Operation) -> _Use | None:
    """Rows that are read, each times what it has in another array, all added."""
    out = node.attributes["out_labels"]
    for side in _sides(node):
        columns = {*side.labels} - {*side.places}
        over_places = side.places and {*side.places} <= {*side.labels} and {*side.places}.isdisjoint(out)
        if over_places and columns and {*out} == {side.within, *columns} and (rows := _read(side.rows)):
            return _Use(rows, node, partial(_gradient_of_matrix, node, rows.view, side))
    return None


def _gradient_of_matrix(node: Operation, view: View, side: _Side, table: _Table) -> Node | None:
    if not table.sums.pay(node.size // table.width)[0]:
        return None
    order = [label for label in side.labels if label in side.places]
    columns = [label for label in side.labels if label not in side.places]
    cotangents = ordered(side.other, side.labels, [*order, *columns])
    made = table.gradient(
        _in_rows(cotangents, len(order)), lambda places: ordered(view(places), side.places, order)
    )
    made = shaped(made, (table.width, *cotangents.shape[len(order) :]))
    return ordered(made, [side.within, *columns], node.attributes["out_labels"])


def _matrix_of_rows(product: Operation) -> tuple[_Side, Labels] | None:
    """Of rows that are products with a matrix: it, with all its axes, and those of them that are summed."""
    *out, within = product.attributes["out_labels"]
    for x, labels, w, w_labels in both_ways(product):
        columns = [label for label in labels if label not in out]
        if {*out} <= {*labels} and {*w_labels} == {within, *columns} and within not in labels:
            return _Side(w, w_labels, within, x, labels), columns
    return None


def _update_of_product(table: _Table, node: Operation, made: _Rows) -> Node | None:
    """Updates of rows that are products of cotangents and a matrix."""
    product = inner(made.node, "contract")
    found = None if product is None else _matrix_of_rows(product)
    if product is None or found is None:
        return None
    side, columns = found
    if not table.sums.pay(side.rows.size // table.width)[1]:
        return None
    *out, within = product.attributes["out_labels"]
    order = [label for label in side.labels if label in out]
    cotangents = _in_rows(ordered(side.other, side.labels, [*order, *columns]), len(order))
    matrix = _matrix(ordered(side.rows, side.places, [*columns, within]), len(columns))
    given = _matrix(cotangents, len(order))
    every: Node = convolve_where_read(
        shaped(given, (1, *given.shape)), shaped(matrix, (*matrix.shape, 1)), **_ROW_BY_ROW
    )
    every = shaped(every, (*cotangents.shape[:-1], table.width))
    return table.updated(
        node.inputs[0], cotangents, matrix, every, lambda places: ordered(made.back(places), out, order)
    )


# -- convolutions of texts


def _convolved(node: Operation) -> _Use | None:
    """Rows that are read, channels last, and seen through windows along their places."""
    in_texts = node.attributes["x_layout"] == node.attributes["out_layout"].replace("o", "c") == "b0c"
    rows = _read(node.inputs[0]) if in_texts else None
    return None if rows is None else _Use(rows, node.inputs[1], partial(_convolve, node, rows.view))


def _convolve(node: Operation, view: View, table: _Table) -> Node:
    w, how = node.inputs[1], node.attributes
    (stride,), (distance,) = how["strides"], how["dilations"]
    _, count, outputs = node.shape
    window = ordered(w, how["w_layout"], "c0o")
    product = table.times(_matrix(window, 1), view)

    def part(turn: int) -> Node:
        """What an element of the window adds."""
        first, column = turn * distance, turn * outputs
        places = first, first + (count - 1) * stride + 1, stride
        return sliced(product, "b0o", {"0": places, "o": (column, column + outputs, 1)})

    return reduce(add, map(part, range(window.shape[1])))


def _met_by_cotangents(node: Operation) -> _Use | None:
    """Rows that are read, convolved with the cotangents of all windows."""
    how = node.attributes
    of_windows = (how["x_layout"], how["w_layout"], how["dilations"]) == ("c0b", "c0o", (1,))
    rows = _read(node.inputs[0]) if of_windows else None
    return None if rows is None else _Use(rows, None, partial(_gradient_of_window, node, rows.view))


def _gradient_of_window(node: Operation, view: View, table: _Table) -> Node | None:
    (x, g), how = node.inputs, node.attributes
    at_places = ordered(table.at_places(table.read, view), "c0b", how["x_layout"])
    visits = _visits_of_winners(g, node.size // g.shape[-1], table)
    if not table.sums.pay(node.size // table.width, visits)[0]:
        return apply(node.operator, (at_places, g), how) if math.isfinite(visits) else None
    size, (distance,) = node.shape[how["out_layout"].index("0")], how["strides"]
    cotangents = _side_by_side(g, x.shape[1], size, distance)
    usual = labelled(table.read, table.summed(cotangents, view), "nk", "nc", "kc")
    usual = ordered(shaped(usual, (table.width, size, g.shape[-1])), "b0o", how["out_layout"])
    return _or_rarely(table.spoilt(), convolve_where_read(at_places, g, **how), usual)


def _update_of_convolution(table: _Table, node: Operation, made: _Rows) -> Node | None:
    """Updates of rows that are the gradient of what a convolution has seen."""
    convolution = inner(made.node, "convolve")
    if convolution is None:
        return None
    (x, w), how = convolution.inputs, convolution.attributes
    if (how["x_layout"], how["out_layout"], how["strides"]) != ("b0c", "b0o", (1,)):
        return None
    (distance,), size = how["dilations"], w.shape[how["w_layout"].index("0")]
    padded, around = inner(x, "pad"), (0, (size - 1) * distance, 0)
    if padded is None or (padded.attributes["low"], padded.attributes["high"]) != (around, around):
        return None
    g = padded.inputs[0]
    if not table.sums.pay(w.size // table.width, _visits_of_winners(g, w.size // g.shape[-1], table))[1]:
        return None
    cotangents = _side_by_side(g, made.node.shape[1], size, distance)
    matrix = reverse(ordered(w, how["w_layout"], "0co"), axes=(0,))
    every = convolve_where_read(x, w, **how)
    return table.updated(node.inputs[0], cotangents, _matrix(matrix, 2), every, made.back)


def _visits_of_winners(cotangents: Node, elements: int, table: _Table) -> float:
    """Cycles in which all winners of a pool, if there is one behind a convolution, meet so many elements each."""
    behind = [cotangents]
    for _ in range(DEEPEST_FACTOR):
        placed = [node for node in behind if inner(node, "max_unpool") is not None]
        if placed:
            return cycles_of_visits(placed[0].inputs[0].size, elements, table.width, table.sums.lanes)
        factors = [node for node in behind if isinstance(node, Operation) and node.operator.name in _FACTORS]
        behind = [x for node in factors for x in node.inputs if x.dtype.kind == "f" and scalar(x) is None]
    return math.inf


def _side_by_side(cotangents: Node, places: int, size: int, distance: int) -> Node:
    """For each of so many places the cotangents of all windows that it is in, by its place in the window."""
    parts = []
    for turn in range(size):
        low = turn * distance
        high = places - cotangents.shape[1] - low
        parts.append(pad(cotangents, low=(0, low, 0), high=(0, high, 0)) if low or high else cotangents)
    return concatenate(*parts, axis=2) if size > 1 else parts[0]


# -- the pass


def _updated(node: Operation, tables: Mapping[Node, _Table]) -> Node | None:
    """A scatter to an array like one of the ``tables``, by the places where they are read."""
    if inner(node, "scatter_add") is None:
        return None
    base, updates, place, *others = node.inputs
    table = tables.get(place)
    if table is None or table.table.type != base.type or node.attributes["axes"] != (0,) or others:
        return None
    made = _rows(updates)
    after = _update_of_product(table, node, made)
    return _update_of_convolution(table, node, made) if after is None else after


def distinct_rows(target: Processor, early: bool = False) -> GraphPass:
    """Products of rows that are read many times, once for each row, where that takes ``target`` less time.

    Convolutions are looked for ``early``, before they are made something else; products once they are out of loops.
    """

    def found(graph: Graph) -> dict[Node, _Table]:
        columns: Counter[Node] = Counter()
        for node in graph.nodes():
            use = None if early and inner(node, "contract") is not None else _use(node)
            if use is not None and use.columns is not None:
                columns[use.rows.node] += use.columns.size // use.rows.node.shape[-1]
        scatters = [each for node in graph.nodes() if (each := inner(node, "scatter_add")) is not None]
        trained = {scatter.inputs[2] for scatter in scatters}
        made = {}
        for gathered, count in columns.items():
            (table, place), lanes = gathered.inputs, target.lanes(gathered.dtype.itemsize)
            way = way_to_rows(target, lanes, place.size, *table.shape, count)
            if way:
                rows = different_rows(place.size, table.shape[0]) if way == "counted" else table.shape[0]
                sums = RowSums(lanes, place.size, rows, table.shape[1], place in trained)
                made[gathered] = _Table(gathered, way == "counted", sums)
        return made

    def rewritten(graph: Graph) -> Graph:
        if not (tables := found(graph)):
            return graph
        places: dict[Node, _Table] = {table.place: table for table in tables.values()}

        def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node:
            again = apply(node.operator, inputs, node.attributes)
            use = _use(again)
            table = None if use is None else tables.get(use.rows.node)
            made = _updated(again, places) if use is None or table is None else use.made(table)
            return again if made is None else made

        return with_host_calls(rebuilt(graph, rebuild))

    return GraphPass("distinct_windows" if early else "distinct_rows", rewritten)
