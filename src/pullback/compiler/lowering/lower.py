"""From graph to kernels: which nodes are stored, and one kernel for each of them.

A node that is not stored costs no memory: its lowering is called inside its users' (a loop body is a function from
index to value, so fusion is calling the producer's function in the consumer). Stored are the outputs, the results of
reductions, products and scatters, what a product reads, and what would be expensive to compute again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import numpy as np

from pullback.compiler.key.graph import repeats_one_value
from pullback.compiler.lowering.inline import pooled_convolutions
from pullback.compiler.passes.rewriting import inner, readers_of, uses
from pullback.compiler.passes.simplify_products import extents_of
from pullback.compiler.schedules.cost import (
    COPY_COST,
    DEEPEST_COST,
    DEEPEST_VALUE,
    LEAST_LINE,
    LOOKUP_COST,
    MOST_CONCATENATED,
    RECOMPUTE_COST,
    REPEATED_ARRAY_COST,
    REPEATED_COST,
    SEEN_COST,
    SHORT_AXIS,
)
from pullback.compiler.target import Processor
from pullback.graph import Constant, Graph, Node, Operation, Variable, topological
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
    element,
    fused,
    load_at,
    operands_of,
    rebuilt,
    row_major,
    turns_of,
)
from pullback.loops.arithmetic import within_extent
from pullback.loops.expression import Reduce, linear
from pullback.loops.kernel import Kernel, Store
from pullback.operators.indexing import gathers_rows
from pullback.operators.interleave import places
from pullback.operators.shapes import reshape

__all__ = ["Lowered", "lower"]

_NEUTRAL = {"add": 0, "multiply": 1}

_WINDOWED = {"windows": 1, "window_max": 1, "window_argmax": 2}
"""Operations on windows, and how much each makes of what a window sees."""


class Lowered:
    """Kernels in an order that respects their buffers, and which buffer holds what."""

    def __init__(self, graph: Graph, target: Processor) -> None:
        self.kernels: list[Kernel] = []
        self.arguments: list[Buffer] = []
        self.constants: dict[Buffer, np.ndarray] = {}
        self.outputs: list[Buffer] = []
        self._shapes = [node.shape for node in graph.outputs]
        self._graph = graph = _with_results_as_made(graph)
        self._buffers: dict[int, Buffer] = {}
        self._values: dict[tuple[int, tuple[Index, ...]], Expression] = {}
        self._operands: dict[int, Operand] = {}
        self._users = uses(graph.nodes(), graph.outputs)
        self._shared: set[Expression] = set()
        self._stored = _choose_stored(graph, pooled_convolutions(graph.nodes(), self._users, target))

    def operand(self, node: Node) -> Operand:
        """The function from an index to the node's value there."""
        known = self._operands.get(id(node))
        if known is None:
            known = self._operands[id(node)] = self._make_operand(node)
        return known

    def _make_operand(self, node: Node) -> Operand:
        if isinstance(node, Constant) and node.size and repeats_one_value(node.value):
            literal = Literal(node.value.flat[0], node.dtype)
            return lambda index: literal
        if isinstance(node, Constant):
            buffer = Buffer(f"constant{len(self.constants)}", node.dtype, node.shape)
            self.constants[buffer] = node.value
            return lambda index: load_at(buffer, index)
        if id(node) in self._buffers:
            stored = self._buffers[id(node)]
            if isinstance(node, Operation) and node.operator.name == "check_index":
                limits = (("high", node.attributes["extent"] - 1), ("low", 0))
                return lambda index: Apply("bounded", (load_at(stored, index),), node.dtype, limits)
            strides = row_major(node.shape)
            return lambda index: Load(stored, *linear(zip(index, strides)))
        assert isinstance(node, Operation)
        return lambda index: self.value(node, index)

    def value(self, node: Operation, index: Sequence[Index]) -> Expression:
        """The node's value at ``index``, computed from its inputs."""
        key = (id(node), tuple(index))
        if key not in self._values:
            assert node.operator.lower is not None, node.operator.name
            operands = [self.operand(child) for child in node.inputs]
            value = node.operator.lower(node, operands, key[1])
            name = node.operator.name
            if name == "add" or (name == "subtract" and not all(map(_multiplies, node.inputs))):
                # A product that has other users is rounded, so that all have the same bits.
                value = fused(value, self._shared)
            if self._users[id(node)] > 1 and _is_product(value):
                self._shared.add(value)
            self._values[key] = value
        return self._values[key]

    def run(self) -> Lowered:
        """Make the kernels of every stored node."""
        for position, variable in enumerate(self._graph.inputs):
            buffer = Buffer(f"argument{position}", variable.dtype, variable.shape)
            self._buffers[id(variable)] = buffer
            self.arguments.append(buffer)
        results = [
            (node, Buffer(f"result{k}", node.dtype, shape))
            for k, (node, shape) in enumerate(zip(self._graph.outputs, self._shapes))
        ]
        first = {id(node): result for node, result in reversed(results)}
        for node in self._graph.nodes():
            if id(node) in self._stored and isinstance(node, Operation):
                name = f"{node.operator.name}{len(self._buffers)}"
                own = first.get(id(node)) or Buffer(name, node.dtype, node.shape)
                buffer = self._updated_before(node) or own
                if node.size:
                    self._store(node, buffer)
                self._buffers[id(node)] = buffer
                self._operands.pop(id(node), None)
        written: set[Buffer] = set()
        for node, result in results:
            known = self._buffers.get(id(node))
            if known is None or known in written or isinstance(node, Variable):
                # An output that is an input, a constant or an output for the second time is a copy.
                known = result
                if node.size:
                    self._copy(node, known)
            written.add(known)
            self.outputs.append(known)
        self._operands.clear()  # each holds this, and is held by it
        return self

    def _store(self, node: Operation, buffer: Buffer) -> None:
        name = node.operator.name
        if node.operator.accumulates:
            self._scatter(node, buffer)
        elif name == "links":
            self._link(node, buffer)
        elif name == "concatenate" and _in_long_parts(node):
            self._store_parts(node, buffer, _concatenated(node))
        elif name == "interleave":
            strides = node.attributes["strides"]
            self._store_parts(node, buffer, ((place, strides) for place in places(strides)))
        else:
            self._copy(node, buffer)

    def _updated_before(self, node: Operation) -> Buffer | None:
        """The buffer of what ``node`` updates, if that is the result of other updates, and nobody else reads it."""
        base = node.inputs[0] if node.operator.accumulates else None
        if not isinstance(base, Operation) or not base.operator.accumulates or self._users[id(base)] > 1:
            return None
        return self._buffers.get(id(base))

    def _scatter(self, node: Operation, buffer: Buffer) -> None:
        """Copy the base, then make the updates one position after another."""
        base, updates, *indices = node.inputs
        selected = node.attributes["axes"]
        if self._buffers.get(id(base)) is not buffer:
            self._copy(base, buffer)
        if not updates.size:
            return
        axes, index = axes_of(updates.shape)
        rank = updates.ndim - (base.ndim - len(selected))
        strides = row_major(base.shape)
        position = index[:rank]
        kept = [stride for axis, stride in enumerate(strides) if axis not in selected]
        places = [
            (within_extent(self.operand(i)(position), base.shape[axis]), strides[axis])
            for i, axis in zip(indices, selected)
        ]
        offset, dynamic = linear((*places, *zip(index[rank:], kept)))
        store = Store(buffer, offset, self.operand(updates)(index), (), dynamic, node.operator.accumulates)
        self.kernels.append(Kernel(axes, (store,)))

    def _store_parts(
        self, node: Operation, buffer: Buffer, where: Iterable[tuple[Sequence[int], Sequence[int]]]
    ) -> None:
        """Each part by itself: one kernel of all would ask in every place which part it belongs to.

        ``where`` has the place of the first element of each part, and how far apart its elements lie.
        """
        for part, (first, strides) in zip(node.inputs, where):
            axes, index = axes_of(part.shape)
            value = self.operand(part)(index)
            if part.size:
                spread = [i * stride + start for i, stride, start in zip(index, strides, first)]
                self._add(axes, buffer, element(spread, node.shape), value)

    def _link(self, node: Operation, buffer: Buffer) -> None:
        """Each position takes along what its place holds, the position before it, and leaves its own number there."""
        (places,), extent = node.inputs, node.attributes["extent"]
        axes, index = axes_of(node.shape)
        self._add(axes, buffer, element(index, node.shape), Literal(-1, node.dtype))
        if not places.size:
            return
        axes, (position,) = axes_of(places.shape)
        place = within_extent(self.operand(places)((position,)), extent)
        offset, dynamic = linear([(place, 1)])
        before: Expression = Load(buffer, offset, dynamic)
        if not place.axes:  # one place for all: nothing that is read tells the turns apart
            before = Position(position + -1)
        number = Store(buffer, offset, Position(position), (), dynamic, "set")
        self.kernels.append(Kernel(axes, (Store(buffer, position + extent, before), number)))

    def _copy(self, node: Node, buffer: Buffer) -> None:
        """A kernel that stores all of ``node``, in its order, in a buffer that may have another shape."""
        axes, index = axes_of(node.shape)
        self._add(axes, buffer, element(index, node.shape), self.operand(node)(index))

    def _add(self, axes: tuple[Axis, ...], buffer: Buffer, place: Affine, value: Expression) -> None:
        """A kernel that stores ``value`` at a place in the buffer."""
        self.kernels.append(Kernel(axes, (Store(buffer, place, _without_empty(value)),)))


def lower(graph: Graph, target: Processor) -> Lowered:
    """The kernels of ``graph``, one for each stored node, before any of them is fused with another."""
    return Lowered(graph, target).run()


def _with_results_as_made(graph: Graph) -> Graph:
    """The graph with what its outputs are reshaped from in their place: in memory both lie alike.

    What is made in parts stays so, and no index is divided.
    """
    users = uses(graph.nodes(), graph.outputs)

    def made(node: Node) -> Node:
        while isinstance(node, Operation) and node.operator is reshape and users[id(node)] == 1:
            (node,) = node.inputs
        return node

    return Graph(graph.inputs, tuple(map(made, graph.outputs)))


def axes_of(shape: Sequence[int]) -> tuple[tuple[Axis, ...], tuple[Affine, ...]]:
    """A loop for each axis of ``shape`` that is longer than one, and the full index made of them."""
    all_axes = [Axis("ijklmnpq"[k] if k < 8 else f"i{k}", extent) for k, extent in enumerate(shape)]
    return tuple(axis for axis in all_axes if axis.extent != 1), tuple(map(Affine.of, all_axes))


def _in_long_parts(node: Operation) -> bool:
    """Whether the parts of a concatenation are few, and lines of them long enough for vectors.

    On average is enough where lines are of rows: a question for each row then keeps lanes from lying along several.
    """
    axis = node.attributes["axis"]
    around, row = math.prod(node.shape[:axis]), math.prod(node.shape[axis + 1 :])
    lines = [part.size // around for part in node.inputs if part.size]
    length = min(lines) if row == 1 else sum(lines) // len(lines)
    return len(lines) <= MOST_CONCATENATED and length >= LEAST_LINE


def _concatenated(node: Operation) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """The place of the first element of each part of a concatenation, and how far apart its elements lie."""
    axis, start = node.attributes["axis"], 0
    for part in node.inputs:
        yield [start if k == axis else 0 for k in range(node.ndim)], (1,) * node.ndim
        start += part.shape[axis]


def _is_product(value: Expression) -> bool:
    return bool(operands_of(value, "multiply")) and value.dtype.kind == "f"


def _without_empty(value: Expression) -> Expression:
    """Sums and products over no element are their neutral elements."""

    def neutral(part: Expression) -> Expression:
        if isinstance(part, Reduce) and turns_of(part.over) == 0:
            return Literal(_NEUTRAL[part.kind], part.dtype)
        return part

    return rebuilt(value, neutral, {})


def _choose_stored(graph: Graph, inlined: set[int]) -> set[int]:
    """The nodes that get a buffer; those ``inlined`` get none whatever they cost.

    What is stored because it is deep cuts what else would be computed in one place: then others are read apart.
    """
    readers = readers_of(graph.nodes())  # ``x + x`` evaluates ``x`` once
    apart = _read_apart(graph)
    while True:
        stored, cost = _stored_of(graph, inlined, readers, apart)
        more = _read_apart(graph, stored) - apart - stored
        if not any(cost[key] > RECOMPUTE_COST for key in more):
            return stored
        apart |= more


def _stored_of(
    graph: Graph, inlined: Set[int], readers: Mapping[int, list[Operation]], apart: Set[int]
) -> tuple[set[int], dict[int, float]]:
    """The nodes to store, and what each costs where it is read, if those ``apart`` are read in several places."""
    users = {key: len(nodes) for key, nodes in readers.items()}
    summed = _summed_behind(graph.nodes())
    stored = {id(node) for node in graph.outputs}
    cost: dict[int, float] = {}
    depth: dict[int, int] = {}
    products: dict[int, int] = {}
    finished = _Finished(readers, stored)
    for node in graph.nodes():
        depth[id(node)] = 1 + max((depth[id(x)] for x in node.inputs if id(x) not in stored), default=0)
        if not isinstance(node, Operation):
            cost[id(node)] = 0.0
            continue
        if not node.size:
            stored.update(_checks_of(node))
        for child in node.inputs:
            if _needs_memory(node, child, cost, summed):
                base = _behind_views(child, stored)
                strided = not node.operator.rereads or _has_strides(child, base)
                stored.add(id(base if strided else child))
        if id(node) in inlined:
            cost[id(node)] = 0.0
            continue
        own = (
            sum(cost[id(child)] for child in dict.fromkeys(node.inputs) if id(child) not in stored)
            + node.operator.cost
        )
        cost[id(node)] = own
        again = users.get(id(node), 0) - 1
        most = min(RECOMPUTE_COST, REPEATED_ARRAY_COST / max(again, 1)) if id(node) in apart else DEEPEST_COST
        products[id(node)] = _products_added(node, products, users)
        # Products are added in the same registers, if they are stored once, as their sum.
        added = again > 0 and products[id(node)] > 1
        ends = (finished.includes(node) and id(node) in apart) or finished.gives_way(node, apart)
        if node.operator.stored or added or ends or own > most or depth[id(node)] > DEEPEST_VALUE:
            stored.add(id(node))
            cost[id(node)] = 0.0
    return stored, cost


class _Finished:
    """What elementwise functions make of a product that nobody else needs: its epilogue, at no cost where it is stored.

    Where that is read several times it is stored rather than the product, which would be finished by each reader anew.
    """

    def __init__(self, readers: Mapping[int, Sequence[Operation]], stored: Set[int]) -> None:
        self._readers, self._stored, self._outputs = readers, stored, frozenset(stored)
        self._found: set[int] = set()

    def includes(self, node: Operation) -> bool:
        """Whether ``node`` is such, asked of all nodes in order."""
        found = node.operator.elementwise and any(
            child.shape == node.shape
            and child.dtype.itemsize >= node.dtype.itemsize
            and len(self._readers[id(child)]) == 1
            and id(child) not in self._outputs
            and self._goes_on(child)
            for child in node.inputs
        )
        if found:
            self._found.add(id(node))
        return found

    def gives_way(self, node: Node, apart: Set[int]) -> bool:
        """Whether ``node`` is stored rather than what it is a costly function of, and all whose readers are such.

        So an activation and its derivative, which is read much later, are made of a product together.
        """
        if not isinstance(node, Operation) or node.operator.cost <= RECOMPUTE_COST or len(node.inputs) != 1:
            return False
        (child,) = node.inputs
        return (
            id(child) in apart
            and id(child) in self._stored
            and id(child) not in self._outputs
            and (id(child) in self._found or self._goes_on(child))
            and all(_is_function_of(child, reader) for reader in self._readers[id(child)])
        )

    def _goes_on(self, child: Node) -> bool:
        if not isinstance(child, Operation):
            return False
        if id(child) in self._stored:
            return child.operator.name in ("contract", "convolve", "interleave")
        return id(child) in self._found


def _is_function_of(child: Node, node: Operation) -> bool:
    """Whether ``node`` is an elementwise function of ``child`` alone, and takes no more memory."""
    return (
        node.operator.elementwise
        and len(node.inputs) == 1
        and node.shape == child.shape
        and node.dtype.itemsize <= child.dtype.itemsize
    )


def _read_apart(graph: Graph, stored: Set[int] = frozenset()) -> set[int]:
    """The nodes that would be computed several times if they were not ``stored``.

    Where all users are elementwise functions that end in one, the node is computed once for it.
    """
    apart: set[int] = set()
    ends: dict[int, set[int]] = {id(node): {id(node)} for node in graph.outputs}
    for node in reversed(graph.nodes()):
        found = ends.setdefault(id(node), set())
        if len(found) > 1:
            apart.add(id(node))
        (end,) = found if len(found) == 1 and id(node) not in stored else {id(node)}
        if not isinstance(node, Operation):
            continue
        for child in node.inputs:
            together = node.operator.elementwise and child.shape == node.shape
            ends.setdefault(id(child), set()).add(end if together else id(node))
    return apart


def _products_added(node: Operation, products: Mapping[int, int], users: Mapping[int, int]) -> int:
    """How many products ``node`` is the sum of, that nobody else needs; none if it is more than a sum of products."""
    if node.operator.name in ("contract", "convolve") and node.dtype.kind == "f":
        return 1
    if node.operator.name != "add":
        return 0
    terms = [products.get(id(x), 0) if users[id(x)] == 1 else 0 for x in node.inputs]
    return sum(terms) if all(terms) else 0


def _checks_of(node: Node) -> Iterator[int]:
    """The checks of indices that ``node``, which has no elements to evaluate them for, selects by."""
    for part in topological(child for child in node.inputs if child.size):
        if isinstance(part, Operation) and part.operator.name == "check_index":
            yield id(part)


def _behind_views(node: Node, stored: Set[int]) -> Node:
    """The node whose memory ``node`` is a view of."""
    while isinstance(node, Operation) and node.operator.view and id(node) not in stored:
        node = node.inputs[0]
    return node


def _multiplies(node: Node) -> bool:
    """Whether ``node`` is a product, stored or not."""
    node = _behind_views(node, frozenset())
    return isinstance(node, Operation) and node.operator.name in ("multiply", "square")


def _has_strides(view: Node, base: Node) -> bool:
    """Whether the elements of ``view`` are found in the memory of ``base`` by a stride for each axis."""
    if view is base:
        return True
    _, index = axes_of(view.shape)
    buffer = Buffer("base", base.dtype, base.shape)

    def operand(node: Node) -> Operand:
        if node is base:
            return lambda index: load_at(buffer, index)
        assert isinstance(node, Operation) and node.operator.lower is not None
        lower_node = node.operator.lower
        return lambda index: lower_node(node, [operand(node.inputs[0])], index)

    load = operand(view)(index)
    return isinstance(load, Load) and not load.dynamic


def _needs_memory(
    user: Operation,
    child: Node,
    cost: Mapping[int, float],
    summed: Mapping[int, Set[frozenset[int]]],
) -> bool:
    """Whether ``user`` must find ``child`` in memory rather than compute it where it reads it.

    ``summed`` are the axes of each node along which its functions are summed.
    """
    name = user.operator.name
    if user.operator.rereads:
        return not (_is_read_once(user, child) or _is_looked_up(user, child))
    if user.operator.selects and child is user.inputs[0]:
        return cost.get(id(child), 0.0) * user.size > RECOMPUTE_COST * child.size
    if name == "broadcast":  # what is the same along an axis is computed once; a single number, once a kernel
        long = {axis for axis, extent in zip(user.attributes["axes"], child.shape) if extent > 1}
        repeated = _repeats_rows(user, long) or any(long <= axes for axes in summed.get(id(user), ()))
        most = REPEATED_COST if repeated else RECOMPUTE_COST  # each sum goes through all of it anew
        return child.size > 1 and cost.get(id(child), 0.0) > most
    if name in _WINDOWED:  # what several windows see would be computed for each of them
        taps = math.prod(user.attributes["sizes"]) if name != "windows" else 1
        again = _WINDOWED[name] * user.size * taps - child.size
        return cost.get(id(child), 0.0) * again > SEEN_COST * child.size
    if name == "reshape":
        return cost.get(id(child), 0.0) > 0 and not _merges_little(child.shape, user.shape)
    return name == "concatenate" and cost.get(id(child), 0.0) > RECOMPUTE_COST


def _repeats_rows(user: Operation, long: Set[int]) -> bool:
    """Whether a broadcast repeats rows, which no loop around a row has computed, rather than elements along a row.

    What is repeated has more than one element along the axes ``long`` of the result.
    """
    others = set(range(max(long, default=0))).difference(user.attributes["axes"])
    return any(user.shape[axis] > 1 for axis in others)


def _summed_behind(order: Sequence[Node]) -> dict[int, set[frozenset[int]]]:
    """The axes of each node along which its elementwise functions are summed, to more than one number."""
    summed: dict[int, set[frozenset[int]]] = {}
    for node in reversed(order):
        if not isinstance(node, Operation):
            continue
        for child in node.inputs:
            if node.operator.name == "sum" and node.size > 1:
                summed.setdefault(id(child), set()).add(frozenset(node.attributes["axes"]))
            elif node.operator.elementwise and child.shape == node.shape and id(node) in summed:
                summed.setdefault(id(child), set()).update(summed[id(node)])
    return summed


def _is_read_once(user: Operation, child: Node) -> bool:
    """Whether a product reads each element of ``child``, which is made of a narrower one, only once.

    Weights that are stored in 16 bits need no copy in 32 where a single row is multiplied with them.
    """
    product = inner(user, "contract")
    if product is None or inner(child, "half_value") is None:
        return False
    return math.prod(extents_of(product).values()) == child.size


def _is_looked_up(user: Operation, child: Node) -> bool:
    """Whether the rows of a table that ``user`` visits are looked up there, rather than copied before."""
    if child is not user.inputs[0] or not gathers_rows(child):
        return False
    rows = user.operator.visits(user)
    return bool(rows) and rows * LOOKUP_COST <= child.size * COPY_COST


def _merges_little(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Whether the old index is easily had from the new one: axes are kept, split, or joined with a short one.

    Joining an axis with a short one, as when windows are put side by side again, costs a division by its length, which
    is known for each lane; joining long ones would scatter the lanes over memory.

    >>> _merges_little((100, 784), (100, 4, 196)), _merges_little((5, 13, 2, 13, 2), (5, 26, 26))
    (True, True)
    >>> _merges_little((100, 4, 196), (100, 784))
    False
    """
    if 0 in old:
        return True
    waiting = [extent for extent in old if extent != 1]
    for extent in (e for e in new if e != 1):
        joined = []
        reached = 1
        while waiting and reached < extent:
            joined.append(waiting.pop(0))
            reached *= joined[-1]
        if reached % extent:
            return False
        if reached > extent:  # the old axis is split: its rest belongs to the new axes that follow
            waiting.insert(0, reached // extent)
        if len(joined) > 1 and math.prod(joined[1:]) > SHORT_AXIS:
            return False
    return True
