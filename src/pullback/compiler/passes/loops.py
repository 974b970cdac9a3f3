"""What the passes over loops share: scans rewritten one by one, and parts of bodies computed for all steps at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from pullback.compiler.passes.rewriting import inner, with_outputs
from pullback.control.regions import dependent
from pullback.control.scan import Scan, make_scan
from pullback.control.scan import scan as scan_operator
from pullback.graph import (
    Graph,
    Node,
    Operation,
    Variable,
    apply,
    pruned,
    regions,
    result,
    substitute,
    topological,
)
from pullback.operators.shapes import broadcast, reshape
from pullback.transforms.batching import batched

__all__ = [
    "PRODUCTS",
    "Rebuilt",
    "all_steps",
    "frontier",
    "has_any",
    "is_result",
    "lazy",
    "rewrite_held",
    "rewrite_scans",
    "scans",
]

PRODUCTS = frozenset({"contract", "convolve"})
"""What gains by being done for all steps at once: weights are read once, and there are more rows."""

LAZY = frozenset({"switch", "while", "call", "host_call"})
"""What stays in the loop: it may do less than all that it holds, does each step by itself, or is there to keep nothing
of other steps."""

ScanRule = Callable[[Operation], "Sequence[Node] | None"]
"""``rule(scan)``: its results computed in another way, or ``None`` where it says nothing."""


def is_result(node: Node) -> bool:
    """Whether ``node`` picks a result of an operation that has several."""
    return isinstance(node, Operation) and node.operator is result


def scans(graph: Graph) -> list[Operation]:
    """The scans of a graph, without those inside others."""
    return [node for node in graph.nodes() if isinstance(node, Operation) and node.operator is scan_operator]


def rewrite_scans(graph: Graph, rule: ScanRule) -> Graph:
    """``graph`` with ``rule`` applied to each of its scans; what is not needed any more is left away."""
    return rewrite_held(graph, lambda node: rule(node) if node.operator is scan_operator else None)


def rewrite_held(graph: Graph, rule: ScanRule) -> Graph:
    """The same for all operations that hold graphs."""
    if not any(regions(node) for node in graph.nodes()):
        return graph
    several: dict[int, Sequence[Node]] = {}

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node | None:
        if node.operator is result and id(node.inputs[0]) in several:
            picked: Node = several[id(node.inputs[0])][node.attributes["index"]]
            return picked
        if not regions(node):
            return None
        new = apply(node.operator, inputs, node.attributes)
        made = rule(new)
        if made is not None:
            several[id(node)] = made
        return new

    outputs = substitute(graph.outputs, {}, rebuild)
    return with_outputs(graph, pruned(outputs)) if several else graph


class Rebuilt:
    """A scan taken apart, with the nodes around it in place of the consts of its body."""

    def __init__(self, node: Operation) -> None:
        this = Scan.of(node)
        self.scan = this
        self.trips, self.reverse = this.trips, this.reverse
        around: dict[Node, Node] = dict(zip(this.variables.consts, this.inputs.consts))
        outputs = substitute((*this.carries, *this.ys), around)
        count = len(this.carries)
        self.variables: list[Variable] = list(this.variables.carries)
        self.x_variables: list[Variable] = list(this.variables.xs)
        self.inits: list[Node] = list(this.inputs.carries)
        self.xs: list[Node] = list(this.inputs.xs)
        self.carries: list[Node] = list(outputs[:count])
        self.ys: list[Node] = list(outputs[count:])
        self.order = topological(outputs)
        self.of_x = dependent(self.order, self.x_variables)
        self.of_carry = dependent(self.order, self.variables)

    def replace(self, replaced: Mapping[Node, Node]) -> None:
        """Put other nodes into the body."""
        outputs = substitute((*self.carries, *self.ys), replaced)
        self.carries, self.ys = list(outputs[: len(self.carries)]), list(outputs[len(self.carries) :])

    def results(self) -> Sequence[Node]:
        """The results of the scan that it has become."""
        if not self.carries and not self.ys:
            return []
        return make_scan(
            self.variables,
            self.x_variables,
            self.carries,
            self.ys,
            self.inits,
            self.xs,
            self.trips,
            self.reverse,
        )


def all_steps(nodes: Sequence[Node], ones: Sequence[Variable], many: Sequence[Node]) -> list[Node]:
    """``nodes``, which depend on the variables ``ones`` of one step, for all steps at once."""
    return batched(nodes, ones, many, _with_joined_rows)


def _with_joined_rows(node: Node) -> Node:
    """A product of the rows of all steps as one of so many rows, and elementwise work on it with the rows joined.

    Large products are done in blocks of rows, and what follows one elementwise is its epilogue if it has its axes.
    """
    if (product := inner(node, "contract")) is not None:
        return _joined_product(product)
    if not (
        isinstance(node, Operation) and node.operator.elementwise and any(map(_has_joined_rows, node.inputs))
    ):
        return node
    inputs = [_joined(child) for child in node.inputs]
    return reshape(node.operator(*inputs, **node.attributes), shape=node.shape)


def _joined_product(node: Operation) -> Node:
    (a, b), out = node.inputs, node.attributes["out_labels"]
    a_labels, b_labels = node.attributes["a_labels"], node.attributes["b_labels"]
    if len(out) < 2 or a_labels[:2] != out[:2] or {*out[:2]} & {*b_labels}:
        return node
    product = node.operator(_joined(a), b, a_labels=a_labels[1:], b_labels=b_labels, out_labels=out[1:])
    return reshape(product, shape=node.shape)


def _has_joined_rows(x: Node) -> bool:
    if inner(x, "reshape") is None or x.ndim < 2:
        return False
    return x.inputs[0].shape == (x.shape[0] * x.shape[1], *x.shape[2:])


def _joined(x: Node) -> Node:
    """``x`` with its first two axes as one."""
    shape = (x.shape[0] * x.shape[1], *x.shape[2:])
    if _has_joined_rows(x):
        return x.inputs[0]
    spread = inner(x, "broadcast")
    if spread is not None and min(spread.attributes["axes"], default=2) > 1:
        return broadcast(
            spread.inputs[0], shape=shape, axes=tuple(axis - 1 for axis in spread.attributes["axes"])
        )
    return reshape(x, shape=shape)


def lazy(order: Sequence[Node], taken: set[int]) -> set[int]:
    """Those of the nodes ``taken`` that need a choice, a loop of its own length, or a checkpoint among them.

    For all steps at once each branch would be run, every loop as often as the longest, and what a checkpoint computes
    on its way would lie in memory for all of them.
    """
    roots = [node for node in order if isinstance(node, Operation) and node.operator.name in LAZY]
    return dependent([node for node in order if id(node) in taken], roots) & taken


def frontier(roots: Iterable[Node], taken: Set[int], inside: Set[int]) -> list[Node]:
    """What the nodes ``taken`` that ``roots`` need read of the others ``inside`` the body."""
    found: dict[int, Node] = {}
    for node in topological(roots):
        if id(node) in taken:
            found.update((id(child), child) for child in node.inputs if id(child) not in taken)
    return [node for node in found.values() if id(node) in inside]


def has_any(names: Set[str], node: Node, taken: Set[int]) -> bool:
    """Whether an operation of one of the ``names`` is among the nodes ``taken`` that ``node`` needs."""
    return any(
        id(part) in taken and isinstance(part, Operation) and part.operator.name in names
        for part in topological([node])
    )
