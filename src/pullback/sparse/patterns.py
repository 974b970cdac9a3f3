"""Where a graph's derivatives may be other than zero: for each element of each node, which elements it depends on.

    pattern(output) = pattern(operator) @ pattern(input)           products of matrices of bools, sparse ones

What an operator that only moves elements takes from where, its own reference tells, applied to the elements' numbers.
What is not known of an operator counts as if every element depended on every other: a pattern may be too full, and is
never too empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import DerivativeError, MissingExtra
from pullback.graph import OPERATORS, Constant, Graph, Node, Operation, TupleType, Variable, is_float, result
from pullback.interpreter import evaluate

__all__ = ["MOST_ENTRIES", "pattern_of"]

Pattern = Any
"""A ``csr_array`` of bools, (elements of the node, elements of the variable); ``None`` where there is no derivative."""

MOVES = (
    "broadcast", "concatenate", "contiguous", "gather", "interleave", "pad", "reshape", "reverse", "slice",
    "transpose", "windows",
)  # fmt: skip
"""Operators each element of whose result is one element of an input, or none."""

REDUCTIONS = frozenset(("sum", "max", "min", "prod"))
PROBED = frozenset(("convolve", "convolve_where_read", "cumsum", "overlap_add"))
"""Linear operators, of which unit vectors tell what depends on what."""

MOST_PROBES = 2_048
MOST_PRODUCTS = 30_000_000
"""Elements of the space of a contraction up to which it is looked at element by element."""

MOST_ENTRIES = 50_000_000
"""Entries of a pattern: where there are more, nothing is sparse about it."""


def pattern_of(graph: Graph, variable: Variable) -> Pattern:
    """The pattern of the only output of ``graph`` by one of its inputs.

    >>> import numpy as np
    >>> from pullback.tracing import trace
    >>> graph = trace(lambda x: x[1:] * x[:-1], np.zeros(4)).graph
    >>> pattern_of(graph, graph.inputs[0]).toarray().astype(int)
    array([[1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """
    sparse = _scipy_sparse()
    own = sparse.eye_array(variable.size, dtype=bool, format="csr")
    (found,) = _walk(graph, [own if v is variable else None for v in graph.inputs], variable.size)
    if found is None:
        return sparse.csr_array((graph.outputs[0].size, variable.size), dtype=bool)
    return found


def _scipy_sparse() -> Any:
    try:
        from scipy import sparse
    except ImportError:
        raise MissingExtra(
            "sparse derivatives are SciPy's sparse arrays, and SciPy is not installed: pip install 'pullback[scipy]'"
        ) from None
    return sparse


def _walk(graph: Graph, given: Sequence[Pattern], extent: int) -> list[Pattern]:
    """The patterns of the outputs, of which the inputs have those ``given``."""
    found: dict[int, Any] = {id(v): p for v, p in zip(graph.inputs, given)}
    fixed: set[int] = set()
    for node in graph.nodes():
        if isinstance(node, Constant) or (
            isinstance(node, Operation) and node.operator.name != "host_call" and _all_in(node.inputs, fixed)
        ):
            fixed.add(id(node))
        elif isinstance(node, Operation):
            found[id(node)] = _step(_Step(node, [found.get(id(x)) for x in node.inputs], fixed, extent))
    return [found.get(id(node)) for node in graph.outputs]


def _all_in(nodes: Sequence[Node], known: set[int]) -> bool:
    return all(id(node) in known for node in nodes)


class _Step:
    """An operation, the patterns of its inputs, and which nodes around it are constant."""

    def __init__(self, node: Operation, patterns: list[Pattern], fixed: set[int], extent: int) -> None:
        self.node, self.patterns, self.extent = node, patterns, extent
        self.fixed = [id(x) in fixed for x in node.inputs]

    def value(self, position: int) -> np.ndarray:
        """The value of a constant input."""
        return evaluate(Graph((), (self.node.inputs[position],)), [])[0]

    def pattern(self, position: int) -> Pattern:
        """The pattern of an input, empty where there is none."""
        known = self.patterns[position]
        if known is not None:
            return known
        return _scipy_sparse().csr_array((self.node.inputs[position].size, self.extent), dtype=bool)

    def moved(self, position: int, targets: np.ndarray, sources: np.ndarray) -> Pattern:
        """What the elements ``targets`` of the result depend on by the elements ``sources`` of an input."""
        if self.patterns[position] is None:
            return None
        shape = (self.node.size, self.node.inputs[position].size)
        ones = np.ones(targets.size, bool)
        own = _scipy_sparse().coo_array((ones, (targets.ravel(), sources.ravel())), shape=shape)
        return own.tocsr() @ self.patterns[position]


def _step(step: _Step) -> Any:
    node = step.node
    several = isinstance(node.type, TupleType)
    if node.operator is result:
        picked = step.patterns[0]
        return None if picked is None else picked[node.attributes["index"]]
    name, rules = node.operator.name, node.operator.pullback
    if all(p is None for p in step.patterns) or rules is None or name == "stop_gradient":
        return None
    if not several and not is_float(node.dtype):
        return None
    if name == "call":  # of custom, whose rule may say anything, nothing is known
        return _walk(node.attributes["body"], step.patterns, step.extent)
    rule = _elementwise if node.operator.elementwise else _RULES.get(name)
    found = None if rule is None or several else rule(step)
    return _full(step) if found is None else found


def _union(patterns: Sequence[Pattern]) -> Pattern:
    """The sum of those that there are."""
    total = None
    for pattern in patterns:
        if pattern is not None:
            total = pattern if total is None else total + pattern
    return total


def _full(step: _Step) -> Any:
    """Every element of every result depends on what any element of any input does."""
    sparse, node = _scipy_sparse(), step.node
    row = sum(p.sum(axis=0) for p in step.patterns if p is not None)
    columns = np.flatnonzero(row)

    def filled(size: int) -> Pattern:
        if size * columns.size > MOST_ENTRIES:
            raise DerivativeError(
                f"{node.operator.name} counts as dense, which makes {size * columns.size:,} entries; use jacobian with "
                f"chunk=, or give the pattern{'' if node.source is None else f' (at {node.source})'}"
            )
        starts = np.arange(size + 1) * columns.size
        data = np.ones(size * columns.size, bool)
        return sparse.csr_array((data, np.tile(columns, size), starts), shape=(size, step.extent))

    if isinstance(node.type, TupleType):
        return [filled(math.prod(t.shape)) if is_float(t.dtype) else None for t in node.type.types]
    return filled(node.size)


def _elementwise(step: _Step) -> Pattern:
    if step.node.operator.name == "multiply":
        for position in (0, 1):
            if step.fixed[position]:
                kept = np.flatnonzero(step.value(position).ravel())
                return step.moved(1 - position, kept, kept)
    return _union(step.patterns)


def _moves(step: _Step) -> Pattern:
    """The elements of all inputs numbered from 1 on, and moved as they are; 0 is what comes from none."""
    node, sparse = step.node, _scipy_sparse()
    arrays: list[np.ndarray] = []
    rows = [sparse.csr_array((1, step.extent), dtype=bool)]
    count = 1
    for position, x in enumerate(node.inputs):
        if is_float(x.dtype):
            arrays.append(np.arange(count, count + x.size).reshape(x.shape))
            rows.append(step.pattern(position))
            count += x.size
        elif step.fixed[position]:
            arrays.append(step.value(position))
        else:
            return None
    places = np.asarray(node.operator.reference(*arrays, **node.attributes)).ravel()
    return sparse.vstack(rows, format="csr")[places]


def _reduction(step: _Step) -> Pattern:
    node, x = step.node, step.node.inputs[0]
    targets = np.expand_dims(np.arange(node.size).reshape(node.shape), node.attributes["axes"])
    return step.moved(0, np.broadcast_to(targets, x.shape).ravel(), np.arange(x.size))


def _scatter(step: _Step) -> Pattern:
    """``x``, at some places also the updates; an index that is not known makes it full."""
    node = step.node
    if not all(step.fixed[2:]):
        return None
    places = np.arange(node.size).reshape(node.shape)
    indices = [step.value(position) for position in range(2, len(node.inputs))]
    targets = OPERATORS["gather"].reference(places, *indices, axes=node.attributes["axes"])
    updates = step.moved(1, np.asarray(targets).ravel(), np.arange(node.inputs[1].size))
    return _union([step.patterns[0], updates])


def _contract(step: _Step) -> Pattern:
    """Which products of elements there are; zeros of a constant factor make none."""
    node = step.node
    labels = [node.attributes[f"{name}_labels"] for name in ("a", "b", "out")]
    arrays = [*node.inputs, node]
    extents = {label: n for own, x in zip(labels, arrays) for label, n in zip(own, x.shape)}
    order = sorted(extents)
    shape = tuple(extents[label] for label in order)
    if math.prod(shape) > MOST_PRODUCTS:
        return None

    def everywhere(values: np.ndarray, own: Sequence[int]) -> np.ndarray:
        turned = values.transpose([own.index(label) for label in order if label in own])
        wide = tuple(extents[label] if label in own else 1 for label in order)
        return np.broadcast_to(turned.reshape(wide), shape)

    numbers = [everywhere(np.arange(x.size).reshape(x.shape), own).ravel() for own, x in zip(labels, arrays)]
    kept: Any = slice(None)
    for position in (0, 1):
        if step.fixed[position]:
            kept = np.flatnonzero(everywhere(step.value(position) != 0, labels[position]))
    return _union([step.moved(position, numbers[2][kept], numbers[position][kept]) for position in (0, 1)])


def _probed(step: _Step) -> Pattern:
    """What a unit vector at each place of the one input that is not constant gives."""
    moving = [position for position, pattern in enumerate(step.patterns) if pattern is not None]
    position = moving[0]
    others = [k for k in range(len(step.fixed)) if k != position]
    x = step.node.inputs[position]
    if len(moving) > 1 or not all(step.fixed[k] for k in others) or x.size > MOST_PROBES:
        return None
    arrays: list[Any] = [None if k == position else step.value(k) for k in range(len(step.fixed))]
    targets, sources = [], []
    for number in range(x.size):
        arrays[position] = np.zeros(x.shape, x.dtype)
        arrays[position].flat[number] = 1
        found = np.flatnonzero(step.node.operator.reference(*arrays, **step.node.attributes))
        targets.append(found)
        sources.append(np.full(found.size, number))
    return step.moved(
        position, np.concatenate([[], *targets]).astype(int), np.concatenate([[], *sources]).astype(int)
    )


_RULES: dict[str, Callable[[_Step], Pattern]] = {
    **dict.fromkeys(MOVES, _moves),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys((name for name in OPERATORS if name.startswith("scatter_")), _scatter),
    **dict.fromkeys(PROBED, _probed),
    "contract": _contract,
}
