"""``compiled``: what a compiled function is to a transformation around it that is called from Python.

    results = compiled(inputs)              one graph, which is run as a program of its own

What a transformation makes of it are such operations again: its batch is a program for many examples, its pullback one
that takes cotangents, too. They are remembered with the graph, which ``jit`` remembers by types; so each is made and
compiled once, however often the transformation is called.

Where values are known, as in a ``grad`` that is called from Python, the function has run before its pullback is asked
for. It gives what that needs beside its results, its residuals (``saving.py``), and the pullback's program begins with
these. Elsewhere, under ``vmap``, nothing has run yet, and the pullback's program computes the function, too.

In what is compiled as a whole there is no such operation: there a compiled function is its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pullback.control.saving import chosen_to_save
from pullback.errors import DTypeError, PullbackError, ShapeError
from pullback.graph import (
    PENDING,
    Graph,
    Node,
    Operation,
    Operator,
    TupleType,
    Type,
    Variable,
    apply,
    force,
    free_variables,
    is_float,
    result,
    results,
    substitute,
    topological,
    written_at,
)
from pullback.graph.node import forget_dead
from pullback.operators.batching import batch_size, is_batched
from pullback.tracing.trace import at_end, is_whole, whole
from pullback.transforms.batching import batched
from pullback.transforms.forward import is_forward_only, tangents
from pullback.transforms.reverse import cotangents

__all__ = ["MOST_DERIVED", "Body", "Run", "applied_compiled"]

Run = Callable[..., Sequence[np.ndarray]]
MOST_DERIVED = 64
"""So much that is made of a graph is remembered, the latest: for each batch size, and each set of moving arguments."""


class Body:
    """A graph that is run compiled, by what ``compile`` makes of it when it is first run, and what is made of it."""

    def __init__(self, graph: Graph, compile: Callable[[Graph], Run], residuals: int | None = None) -> None:
        self.graph = graph
        self.type = TupleType.of([node.type for node in graph.outputs])
        self.residuals = residuals
        """How many of the outputs, the last ones, are there for the pullback; ``None`` where it does without."""
        self.whole: _Part | None = None
        """The same without what has been saved, of which derivatives are taken: in that masks are still to be seen."""
        self._compile = compile
        self._program: Run | None = None
        self._derived: dict[Hashable, Any] = {}

    def __repr__(self) -> str:
        return f"Body({len(self.graph.nodes())} nodes)"

    def run(self, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """The outputs for these inputs, by the program."""
        if self._program is None:
            forget_dead()  # other programs, of functions that are gone
            with whole():
                self._program = self._compile(self.graph)
        return self._program(*arrays)

    def like(self, inputs: Iterable[Variable], outputs: Iterable[Node], residuals: int | None = None) -> Body:
        """Another graph that is run in the same way."""
        return Body(Graph(tuple(inputs), tuple(outputs)), self._compile, residuals)

    def remembered(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What ``make()`` gave when it was first asked for by this key."""
        found = self._derived.get(key)
        if found is None:
            with whole():
                found = make()
            for old in list(self._derived)[: 1 - MOST_DERIVED]:
                self._derived.pop(old, None)
            self._derived[key] = found
        return found

    @cached_property
    def forward_only(self) -> bool:
        """Whether there is something in the graph that has no pullback."""
        return any(map(is_forward_only, self.graph.nodes()))

    def saving(self, moving: tuple[bool, ...]) -> Body:
        """The same with the residuals that cotangents of the ``moving`` inputs need; itself without a pullback."""
        saving: Body = self.remembered(("saving", moving), lambda: self._saving(moving))
        return saving

    def _saving(self, moving: Sequence[bool]) -> Body:
        inputs, outputs = self.graph.inputs, self.graph.outputs
        smooth = [output for output in outputs if is_float(output.dtype)]
        seeds = [Variable(output.type, "cotangent") for output in smooth]
        try:
            bars = cotangents(smooth, seeds, [x for x, moves in zip(inputs, moving) if moves])
        except PullbackError:  # told where a cotangent is asked for; there may be none
            return self
        kept = chosen_to_save([bar for bar in bars if bar is not None], seeds, (), inputs, outputs, outputs)
        there = set(outputs)
        kept = [node for node in kept if node not in there]
        return self.like(inputs, (*outputs, *kept), len(kept))


class _Part(NamedTuple):
    """A body that gives the same outputs for some of the inputs."""

    body: Body
    takes: list[int]
    """The inputs, by number."""

    def of(self, values: Sequence[Any]) -> list[Any]:
        """What belongs to its inputs, of what belongs to all."""
        return [values[k] for k in self.takes]

    def node(self, inputs: Sequence[Node]) -> Operation:
        """It in the place of the other body, with all of the inputs."""
        made = compiled(*self.of(inputs), body=self.body)
        assert isinstance(made, Operation)
        return made


class _Derived(NamedTuple):
    """What a rule has made of a body."""

    body: Body
    takes: list[int]
    """Its inputs, by their numbers among all that the rule may give it."""
    gives: list[int]
    """What its outputs are, by number."""

    def found(self, given: Sequence[Node], count: int) -> list[Node | None]:
        """The outputs in their places among ``count``."""
        made = results(compiled(*[given[k] for k in self.takes], body=self.body))
        supply = dict(zip(self.gives, made))
        return [supply.get(k) for k in range(count)]


def _derived(
    body: Body,
    candidates: Sequence[Variable],
    outputs: Sequence[Node | None],
    saved: Mapping[Node, Node] = {},
) -> _Derived:
    """A body for those ``outputs`` that there are, with the inputs that they need, where ``saved`` nodes are such."""
    there = [k for k, node in enumerate(outputs) if node is not None]
    whole = [node for node in outputs if node is not None]
    made = substitute(whole, saved)
    read = set(free_variables([*whole, *made]))
    takes = [k for k, variable in enumerate(candidates) if variable in read]
    inputs = [candidates[k] for k in takes]
    found = body.like(inputs, made)
    if saved:
        known = set(free_variables(whole))
        own = [k for k, variable in enumerate(inputs) if variable in known]
        found.whole = _Part(body.like([inputs[k] for k in own], whole), own)
    return _Derived(found, takes, there)


def applied_compiled(body: Body, inputs: Sequence[Node]) -> list[Node]:
    """The results of ``body`` for these inputs; each has the line at which the function makes it.

    Where the values of all inputs are known, a derivative is under way: what it needs is saved.
    """
    count = len(body.graph.outputs)
    moving = tuple([is_float(x.dtype) and isinstance(x, (Operation, Variable)) for x in inputs])
    if any(moving) and all(x.value is not None for x in inputs):
        body = body.saving(moving)
    node = compiled(*inputs, body=body)
    found: list[Node] = []
    for index, output in enumerate(body.graph.outputs[:count]):
        with written_at(output.source if isinstance(output, Operation) else node.source):
            found.append(result(node, index=index))
    return found


def _type_rule(*types: Type, body: Body) -> Type:
    for position, (given, variable) in enumerate(zip(types, body.graph.inputs, strict=True)):
        if given.shape != variable.shape:
            raise ShapeError(f"compiled: input {position} is {given}, its graph takes {variable.type}")
        if given.dtype != variable.dtype:
            raise DTypeError(f"compiled: input {position} is {given}, its graph takes {variable.type}")
    return body.type


def _pullback(node: Operation, bars: Sequence[Node | None], wanted: Sequence[bool]) -> list[Node | None]:
    """A program of the cotangents, of inputs or of what has been saved of them."""
    whole: _Part | None = node.attributes["body"].whole
    if whole is not None:
        supply = dict(zip(whole.takes, _pullback(whole.node(node.inputs), bars, whole.of(wanted))))
        return [supply.get(k) for k in range(len(node.inputs))]
    if node.value is PENDING and node.attributes["body"].residuals is None:
        # Nothing has run yet, and it can: what the pullback needs is saved on the way.
        count = len(bars)
        node, before = compiled(*node.inputs, body=node.attributes["body"].saving(tuple(wanted))), node
        before.value = force(node)[:count]
        bars = [*bars, *[None] * (len(node.attributes["body"].graph.outputs) - count)]
    body: Body = node.attributes["body"]
    outputs = body.graph.outputs
    own = len(outputs) - (body.residuals or 0)
    seeded = tuple([k for k, bar in enumerate(bars) if bar is not None and is_float(outputs[k].dtype)])
    live = tuple([k for k, is_wanted in enumerate(wanted) if is_wanted])
    reads = body.residuals is not None and all(k < own for k in seeded)

    def make() -> _Derived:
        seeds = [Variable(outputs[k].type, "cotangent") for k in seeded]
        inputs = [body.graph.inputs[k] for k in live]
        made = cotangents([outputs[k] for k in seeded], seeds, inputs)
        kept = [Variable(output.type, "residual") for output in outputs]
        saved: dict[Node, Node] = {x: y for x, y in zip(outputs, kept) if isinstance(x, Operation)}
        return _derived(body, [*body.graph.inputs, *seeds, *kept], made, saved if reads else {})

    derived = body.remembered(("pullback", seeded, live, reads), make)
    given: list[Any] = [*node.inputs, *[bars[k] for k in seeded], *(results(node) if reads else ())]
    supply = dict(zip(live, derived.found(given, len(live))))
    return [supply.get(k) for k in range(len(node.inputs))]


def _pushforward(node: Operation, directions: Sequence[Node | None]) -> Sequence[Node | None]:
    """A program of the tangents."""
    whole: _Part | None = node.attributes["body"].whole
    if whole is not None:
        return _pushforward(whole.node(node.inputs), whole.of(directions))
    body: Body = node.attributes["body"]
    graph = body.graph
    there = tuple([k for k, along in enumerate(directions) if along is not None])

    def make() -> _Derived:
        moving = {k: Variable(graph.inputs[k].type, "tangent") for k in there}
        made = tangents(graph.outputs, graph.inputs, [moving.get(k) for k in range(len(directions))])
        return _derived(body, [*graph.inputs, *moving.values()], made)

    derived = body.remembered(("pushforward", there), make)
    given: list[Any] = [*node.inputs, *[directions[k] for k in there]]
    found: Sequence[Node | None] = derived.found(given, len(graph.outputs))
    return found


def _batch(node: Operation, inputs: Sequence[Node]) -> Sequence[Node]:
    """A program for many examples."""
    size = batch_size(inputs, node.inputs)
    differs = [is_batched(x, one) for x, one in zip(inputs, node.inputs)]
    return results(compiled(*inputs, body=_batched(node.attributes["body"], size, differs)))


def _batched(body: Body, size: int, differs: Sequence[bool]) -> Body:
    """The body for ``size`` examples, which differ in some of the inputs."""

    def make() -> Body:
        own = [
            Variable(one.type.with_shape((size, *one.shape)), one.name) if d else one
            for one, d in zip(body.graph.inputs, differs)
        ]
        made = body.like(own, batched(body.graph.outputs, body.graph.inputs, own), body.residuals)
        if body.whole is not None:
            whole, takes = body.whole
            made.whole = _Part(_batched(whole, size, body.whole.of(differs)), takes)
        return made

    found: Body = body.remembered(("batch", size, tuple(differs)), make)
    return found


compiled = Operator(  # type: ignore[arg-type]
    "compiled",
    _type_rule,
    lambda *arrays, body: body.run(arrays),
    _pullback,
    _batch,
    None,
    (),
    pushforward=_pushforward,
    forward_only=lambda node: node.attributes["body"].forward_only,
)
"""See the head of this file."""


def _inlined(nodes: Sequence[Node], since: int) -> tuple[Node, ...]:
    """In what is compiled as a whole the graphs themselves: such as of a pushforward that was made outside."""
    if not is_whole() or not any(_is_compiled(node) for node in topological(nodes)):
        return tuple(nodes)
    several: dict[Node, Sequence[Node]] = {}

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node:
        if node.operator is compiled:
            graph = node.attributes["body"].graph
            several[node] = substitute(graph.outputs, dict(zip(graph.inputs, inputs)))
            return node
        if node.operator is result and inputs[0] in several:
            made: Node = several[inputs[0]][node.attributes["index"]]
            return made
        return apply(node.operator, inputs, node.attributes)

    return substitute(nodes, {}, rebuild)


def _is_compiled(node: Node) -> bool:
    return isinstance(node, Operation) and node.operator is compiled


at_end(_inlined, first=True)
