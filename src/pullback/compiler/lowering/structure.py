"""A graph with loops as blocks and loops in their order: where each begins, what it reads, where its results go.

    h, ys = scan(cell, h0, x @ w)                 block 0   x @ w, and h0 as the first state
    loss = (h * h).sum() + ys.sum()        →      loop      body: block 0   the cell of one step
                                                  block 1   the loss

A *block* is a graph without loops; what it reads and gives lies in memory, at a *view*: a buffer and a place in it that
may move with the turns of the loops around. So a body reads ``x[t]`` as an array like any other, and everything behind
this that treats graphs and kernels knows nothing about loops. A carry moves from slot to slot of one buffer, two slots
by turns or, where the states of all steps are wanted, one for each; then they need no copy. Nor does a part of a
sequence that a loop goes through, or a sequence that is put together from what loops give one after another.

The branches of a ``switch`` write the same places, and only one of them is run; the state of a ``while`` loop stays in
one place and is copied there at the end of each turn; a ``call`` is blocks of its own. What is called out of the
program reads and writes whole arrays between blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pullback.compiler.key.graph import TELLING
from pullback.compiler.lowering.items import Block, Choice, Counter, HostCall, Item, Loop, View, While
from pullback.compiler.passes.loops import is_result
from pullback.compiler.passes.rewriting import inner, ranges_of, readers_of, uses
from pullback.control.checkpoint import call
from pullback.control.choice import switch
from pullback.control.host import host_call
from pullback.control.regions import PARTS, VIEWS, dependent
from pullback.control.scan import Scan
from pullback.control.scan import scan as scan_operator
from pullback.control.unbounded import unbounded
from pullback.graph import (
    Constant,
    Graph,
    Node,
    Operation,
    TupleType,
    Variable,
    behind,
    regions,
    result,
    results,
    substitute,
)
from pullback.loops import Buffer
from pullback.operators.arithmetic import cast

__all__ = ["Arrangement", "has_loops", "with_single_call"]


_SHOWN = VIEWS | {"unlikely"}
"""What each block that reads it has anew: another order of what is stored, and what says that it is rare."""


def has_loops(graph: Graph) -> bool:
    """Whether an operation of ``graph`` has several results: it holds graphs, or is called out of the program."""
    return any(isinstance(node.type, TupleType) for node in graph.nodes())


def with_single_call(graph: Graph) -> Graph:
    """``graph`` with the region of its only call in the place of it.

    Operations of a call are kept apart from those of another one that computes them again; one alone needs not be.
    """
    calls = [node for node in graph.nodes() if isinstance(node, Operation) and node.operator is call]
    if len(calls) != 1:
        return graph
    (node,) = calls
    (region,) = regions(node)
    made = substitute(region.outputs, dict(zip(region.inputs, node.inputs)))
    picked: dict[Node, Node] = dict(zip(results(node), made))
    return with_single_call(Graph(graph.inputs, substitute(graph.outputs, picked)))


@dataclass(eq=False)
class Arrangement:
    """The blocks and loops of ``graph``, its ``items``.

    Operations stand in the earliest block that their inputs allow; after block ``k`` come loops of stage ``k``.
    """

    graph: Graph
    inputs: Sequence[View]
    targets: Sequence[View]
    """Where its outputs go."""
    offers: Mapping[int, int]
    """Inputs whose memory is offered to outputs, by number."""
    constants: dict[Buffer, np.ndarray]
    """Those of the program, to which those are added that loops read."""

    def __post_init__(self) -> None:
        graph = self.graph
        self.order = graph.nodes()
        self.places: dict[Node, View] = dict(zip(graph.inputs, self.inputs))
        self.stage: dict[Node, int] = {}
        self.local: set[Node] = {node for node in self.order if isinstance(node, Constant)}
        """What is made of constants alone is made wherever it is used."""
        for node in self.order:
            self.stage[node] = max((self.stage[child] for child in node.inputs), default=0) + is_result(node)
            computed = isinstance(node, Operation) and not _is_loop(node)
            if computed and all(child in self.local for child in node.inputs):
                self.local.add(node)
        self._sink()
        self.loops = [node for node in self.order if isinstance(node, Operation) and _is_loop(node)]
        self.last = max((self.stage[node] for node in graph.outputs), default=0)
        self.last = max([self.last, *(self.stage[node] + 1 for node in self.loops)])
        self.wanted: list[list[tuple[Node, View]]] = [[] for _ in range(self.last + 2)]
        """For each block what it stores where."""
        self.users = uses(self.order, graph.outputs)
        self.readers = readers_of(self.order)
        self.failing = max((self._when(node) for node in self.order if _may_fail(node)), default=-1)
        """When the last error may be reported."""

    def _sink(self) -> None:
        """What is made element by element of what is stored anyway stands in the block of its first user, not before.

        So does what an optimiser makes of its moments beside the gradient, and what is gathered for a rare case.
        """
        there = {*self.local, *self.graph.inputs}
        for node in self.order:
            there |= {child for child in node.inputs if self.stage[child] < self.stage[node]}
        moving = set[Node]()
        for node in self.order:
            moves = isinstance(node, Operation) and (node.operator.elementwise or _is_moved(node))
            if moves and all(child in there or child.size == 1 for child in node.inputs):
                moving.add(node)
                there.add(node)
        first = dict.fromkeys(self.graph.outputs, 0)
        for node in reversed(self.order):
            if node in moving and node in first:
                self.stage[node] = max(self.stage[node], first[node])
            for child in node.inputs:
                first[child] = min(self.stage[node], first.get(child, self.stage[node]))

    def items(self) -> list[Item]:
        self._place_outputs()
        for node in self.order:
            if (parts := self._free_parts(node)) and node not in self.places:
                self._place_parts(parts, self._own(node))
        bodies: dict[int, list[Item]] = {}
        for node in reversed(self.loops):
            self._storage(node)
        for node in self.loops:
            bodies.setdefault(self.stage[node], []).extend(self._held(node))
        made: list[Item] = []
        stages = range(len(self.wanted))
        blocks = {k: block for k in reversed(stages) if (block := self._block(k)) is not None}
        for k in stages:
            if k in blocks:
                made.append(blocks[k])
            made += bodies.get(k, [])
        return made

    # ------------------------------------------------------------------ places

    def _place_outputs(self) -> None:
        """Each output is stored by the block that computes it, by its loop, or copied at the end."""
        for position, (shown, target) in enumerate(zip(self.graph.outputs, self.targets)):
            node = _behind_reshapes(shown)
            stage = self.stage[node]
            safe = self._is_computed(node) and node not in self.places
            if position in self.offers:
                safe = safe and self._may_take_over(stage, self.graph.inputs[self.offers[position]])
            elif safe and (parts := self._free_parts(node)):
                self.places[node] = target
                self._place_parts(parts, target)
                continue
            if safe:
                self.places[node] = target
                self.wanted[stage].append((node, target))
            elif _lies_anywhere(node) and position not in self.offers and node not in self.places:
                self.places[node] = target
            else:
                self.wanted[-1].append((node, target))

    def _free_parts(self, node: Node) -> list[Node]:
        """What ``node`` is put together from, one after another, if all of it is yet to be written, some by loops."""
        joined = inner(node, "concatenate")
        if joined is None or joined.attributes["axis"] != 0:
            return []
        parts = [_behind_reshapes(part) for part in joined.inputs]
        if len(set(map(id, parts))) < len(parts) or not any(map(_is_kept, parts)):
            return []
        if any(part in self.places for part in parts):
            return []
        return parts if all(_is_kept(part) or self._is_computed(part) for part in parts) else []

    def _is_computed(self, node: Node) -> bool:
        """Whether a block computes ``node``."""
        return isinstance(node, Operation) and not is_result(node) and node not in self.local

    def _place_parts(self, parts: Sequence[Node], whole: View) -> None:
        start = 0
        for part in parts:
            self.places[part] = view = whole.after(start)
            if not _is_kept(part):
                self.wanted[self.stage[part]].append((part, view))
            start += part.size

    def _may_take_over(self, stage: int, argument: Variable) -> bool:
        """Whether nobody behind the block of this stage reads the argument or may still report an error.

        A view of it is read where it is needed, and an output that is the argument is copied at the end. Of what the
        block itself reads it knows the argument, but not its views from blocks before.
        """
        if self.failing > 2 * stage:
            return False
        views: list[Node] = [argument]
        shown = {id(argument)}
        for view in views:
            before = view is not argument and self.stage[view] < stage
            for node in self.readers.get(id(view), ()):
                if self._when(node) > 2 * stage or (before and self.stage[node] == stage):
                    return False
                is_view = isinstance(node, Operation) and node.operator.name in VIEWS | {"slice"}
                if is_view and id(node) not in shown:
                    shown.add(id(node))
                    views.append(node)
        if any(_behind_reshapes(node) is argument for node in self.graph.outputs):
            return False
        later = [node for node in self.graph.outputs if self.stage[node] > stage]
        return not later or dependent(self.order, [argument]).isdisjoint(map(id, later))

    def _when(self, node: Node) -> int:
        """Twice the stage of a block's operation; a loop comes behind the block of its stage."""
        return 2 * self.stage[node] + _is_loop(node)

    def _storage(self, node: Operation) -> None:
        """Places for the results that have none; those that are carries of a loop get theirs with it."""
        if node.operator is unbounded:
            return
        made: Sequence[Node] = results(node)
        if node.operator is scan_operator:
            this = Scan.of(node)
            ys = zip(made[len(this.carries) :], this.ys)
            made = [picked for picked, y in ys if self._alias(this, y) is None]
        for picked in made:
            if picked in self.stage and picked not in self.places:
                self._own(picked)

    @staticmethod
    def _alias(this: Scan, y: Node) -> tuple[int, bool] | None:
        """The carry whose states ``y`` is the sequence of, and whether of those that leave a step."""
        for k, (variable, after) in enumerate(zip(this.variables.carries, this.carries)):
            if y is after and y is not variable:
                return k, True
            if y is variable:
                return k, False
        return None

    def _own(self, node: Node) -> View:
        """A buffer of its own for ``node``."""
        name = node.operator.name if isinstance(node, Operation) else "value"
        view = View(Buffer(f"{name}{len(self.places)}", node.dtype, node.shape))
        self.places[node] = view
        return view

    def _stored(self, node: Node) -> View:
        """Where ``node`` lies; what has no place gets one, and the block that computes it stores it there."""
        node = _behind_reshapes(node)
        known = self.places.get(node)
        if known is not None:
            return known
        if (first := _first_of_steps(node)) is not None:
            return self._stored(node.inputs[0]).after(first)
        view = self._own(node)
        if isinstance(node, Constant):
            self.constants[view.base] = node.value
            return view
        self.wanted[self.stage[node]].append((node, view))
        return view

    # ------------------------------------------------------------------ loops and choices

    def _held(self, node: Operation) -> Sequence[Item]:
        """What an operation of several results has become."""
        if node.operator is scan_operator:
            return [self._loop(node)]
        if node.operator is unbounded:
            return [self._while(node)]
        if node.operator is host_call:
            made = [self.places.get(picked) or self._own(picked) for picked in results(node)]
            return [HostCall(node, tuple(map(self._stored, node.inputs)), tuple(made))]
        chooses = node.operator is switch
        given = node.inputs[1:] if chooses else node.inputs
        inputs = [self._stored(x) for x in given]
        kept = [(k, picked) for k, picked in enumerate(results(node)) if picked in self.places]
        targets = [self.places[picked] for _, picked in kept]
        branches: list[tuple[Item, ...]] = []
        for branch in regions(node):
            region = Graph(branch.inputs, tuple(branch.outputs[k] for k, _ in kept))
            branches.append(self._inside(region, inputs, targets))
        return [Choice(self._stored(node.inputs[0]), tuple(branches))] if chooses else branches[0]

    def _inside(self, region: Graph, inputs: Sequence[View], targets: Sequence[View]) -> tuple[Item, ...]:
        """The items of a region."""
        return tuple(Arrangement(region, inputs, targets, {}, self.constants).items())

    def _while(self, node: Operation) -> While[Item]:
        """A carry that changes has one place for the turn, and another one for the next, from which it is copied."""
        condition, body = regions(node)
        consts, stage = node.attributes["consts"], self.stage[node]
        inputs = [self._stored(const) for const in node.inputs[:consts]]
        changed: list[tuple[Node, View, View]] = []
        for k, (init, after) in enumerate(zip(node.inputs[consts:], body.outputs)):
            state = View(Buffer(f"state{len(self.places)}_{k}", init.dtype, init.shape))
            inputs.append(state)
            self.wanted[stage].append((init, state))
            final = result(node, index=k)
            if final in self.stage:
                self.places[final] = state
            if after is not body.inputs[consts + k]:
                following = View(Buffer(f"next{len(self.places)}_{k}", init.dtype, init.shape))
                changed.append((after, following, state))
        flag = View(Buffer(f"flag{len(self.places)}", np.dtype(np.int64), ()))
        (truth,) = condition.outputs
        ask = Graph(condition.inputs, (cast(truth, dtype=np.dtype(np.int64)),))
        step = Graph(body.inputs, tuple(after for after, _, _ in changed))
        copied = tuple(Variable(after.type) for after, _, _ in changed)
        copy = Block(
            Graph(copied, copied),
            tuple(view for _, view, _ in changed),
            tuple(view for _, _, view in changed),
        )
        return While(
            flag,
            self._inside(ask, inputs, [flag]),
            (*self._inside(step, inputs, [view for _, view, _ in changed]), copy),
        )

    def _loop(self, node: Operation) -> Loop[Item]:
        this = Scan.of(node)
        counter = Counter(this.trips, this.reverse)
        count = len(this.carries)
        kept: dict[int, list[tuple[Node, bool]]] = {}
        """Of each carry the results that are its states in all steps."""
        ys: list[tuple[Node, View]] = []
        for k, y in enumerate(this.ys):
            picked = result(node, index=count + k)
            alias = self._alias(this, y)
            if alias is not None and picked in self.stage and picked not in self.places:
                kept.setdefault(alias[0], []).append((picked, alias[1]))
            elif picked in self.places:
                ys.append((y, self._step(self.places[picked], y, counter, this)))
        pairs = [self._carry(node, this, counter, k, kept.get(k, [])) for k in range(count)]
        inputs = [
            *(self._stored(const) for const in this.inputs.consts),
            *(enter for enter, _ in pairs),
            *(
                self._step(self._stored(x), variable, counter, this)
                for x, variable in zip(this.inputs.xs, this.variables.xs)
            ),
        ]
        body = with_single_call(Graph(this.variables.all, (*this.carries, *(y for y, _ in ys))))
        targets = [*(leave for _, leave in pairs), *(view for _, view in ys)]
        return Loop(counter, self._inside(body, inputs, targets), tuple(pairs))

    @staticmethod
    def _step(whole: View, one: Node, counter: Counter, this: Scan) -> View:
        """The part of a sequence that belongs to a turn."""
        if this.reverse:
            return whole.part((this.trips - 1) * one.size, counter, -one.size)
        return whole.part(0, counter, one.size)

    def _carry(
        self, node: Operation, this: Scan, counter: Counter, k: int, kept: Sequence[tuple[Node, bool]]
    ) -> tuple[View, View]:
        """Where a carry enters and leaves a turn; its first value is stored, or copied, by the block before."""
        init, stage, trips = this.inputs.carries[k], self.stage[node], this.trips
        size = init.size
        slots = trips + 1 if kept else 2
        whole = View(Buffer(f"carry{len(self.places)}_{k}", init.dtype, (slots, *init.shape)))
        if not kept:  # the turn after this one finds it in the second slot, or in the first again
            first, last = 0, trips % 2 * size
            enter, leave = whole.part(0, counter, size, 2), whole.part(size, counter, -size, 2)
        else:
            first, last, step = (trips * size, 0, -size) if this.reverse else (0, trips * size, size)
            enter, leave = (whole.part(start, counter, step) for start in (first, first + step))
        for picked, leaves in kept:
            self.places[picked] = whole.after(size if leaves != this.reverse else 0)
        final = result(node, index=k)
        if final in self.stage:
            self.places[final] = whole.after(last)
        target = whole.after(first)
        # The first slot of two is overwritten in the second turn; nobody else may read it then.
        if self._is_computed(init) and init not in self.places and (kept or self.users[id(init)] == 1):
            self.places[init] = target
            stage = self.stage[init]
        self.wanted[stage].append((init, target))
        return enter, leave

    # ------------------------------------------------------------------ blocks

    def _block(self, stage: int) -> Block | None:
        """The block of a stage; what it reads of others gets a place."""
        stores = self.wanted[stage]
        if not stores:
            return None
        outputs = [node for node, _ in stores]
        captured: list[Node] = []
        pending = list(outputs)
        seen = set(self.local)
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            crossing = not isinstance(node, Operation) or is_result(node) or self.stage[node] < stage
            if not crossing:
                pending += node.inputs
            elif isinstance(node, Operation) and node.operator.name in _SHOWN and node not in self.places:
                pending += node.inputs  # rather than stored
            else:
                captured.append(node)
        views = [self._stored(node) for node in captured]
        own: dict[Node, Variable] = {
            node: Variable(node.type, getattr(node, "name", "")) for node in captured
        }
        made = substitute(outputs, own)
        numbers = {node: k for k, node in enumerate(captured)}
        over = {}
        for position, argument in self.offers.items():
            variable, target = self.graph.inputs[argument], self.targets[position]
            for k, (_, view) in enumerate(stores):
                if view is target and variable in numbers:
                    over[k] = numbers[variable]
        return Block(Graph(tuple(own.values()), made), tuple(views), tuple(view for _, view in stores), over)


def _behind_reshapes(node: Node) -> Node:
    """What lies in memory as ``node`` does."""
    return behind(node, ("reshape",))


def _picked_from(node: Node) -> Operation | None:
    """The operation of several results that ``node`` is one of."""
    several = node.inputs[0] if is_result(node) else None
    return several if isinstance(several, Operation) else None


def _is_kept(node: Node) -> bool:
    """Whether ``node`` is what a loop keeps of each step."""
    several = _picked_from(node)
    if several is None or several.operator is not scan_operator:
        return False
    return bool(node.attributes["index"] >= several.attributes["carries"])


def _lies_anywhere(node: Node) -> bool:
    """Whether ``node`` is what a loop, a choice or a call writes where it is wanted: it is no carry."""
    several = _picked_from(node)
    return several is not None and (_is_kept(node) or several.operator not in (scan_operator, unbounded))


def _first_of_steps(node: Node) -> int | None:
    """Where ``node`` begins in what it is some steps of, one after another, and which lies in memory anyway."""
    steps = inner(node, "slice")
    if steps is None or not steps.ndim:
        return None
    (x,), ((start, _, step), *others) = steps.inputs, ranges_of(steps)
    if step != 1 or others != [(0, extent, 1) for extent in x.shape[1:]]:
        return None
    base = _behind_reshapes(x)
    if isinstance(base, Operation) and (base.operator.elementwise or base.operator.name in PARTS):
        return None
    return start * math.prod(x.shape[1:])


def _is_moved(node: Operation) -> bool:
    """Whether ``node`` is other elements of an array, but no argument, whose memory a result may take over."""
    return node.operator.name in VIEWS or (
        node.operator.name == "gather" and not isinstance(node.inputs[0], Variable)
    )


def _is_loop(node: Node) -> bool:
    return isinstance(node, Operation) and isinstance(node.type, TupleType)


def _may_fail(node: Node) -> bool:
    """Whether an operation may report an error, also inside."""
    if isinstance(node, Operation) and node.operator.name in TELLING:
        return True
    return any(_may_fail(inside) for region in regions(node) for inside in region.nodes())
