"""Loops that are written out step by step become loops of the graph.

    for t in range(100):                            scan: h' = tanh(x[t] @ w + h @ u), 100 steps
        h = np.tanh(x[t] @ w + h @ u)       →

Python runs a loop while it is traced, so that the graph holds a copy of the body for each step; it takes as long to
differentiate and to compile as it is large. So where a trace ends (``tracing.trace.ended``), before anything else is
made of its graph, steps that do the same are found and become the body of one ``scan``. That is early enough for the
derivative to be the scan's own, which keeps what it needs of all steps side by side; the backward pass of what is
written out is never made. What is rolled up is what this trace has made: nodes of traces around it belong to loops
that are not over yet.

Three stages. ``periods.py`` proposes runs of equal labels in the order in which Python made the operations.
``candidates.py`` and ``template.py`` prove that steps compute the same of the step before, of what is the same for all,
and of what each has for itself: slices of an array at equal distances, constants, or small arrays, which are put side
by side (``inputs.py``). Steps that differ, mostly the first or the last, stay as they are beside the loop. Here the
proven steps become a scan, and what was read of them is read from its results (``outside.py``). Where anything speaks
against it the graph stays as it was, node by node.

When: ``WORTHWHILE`` and ``FEWEST_STEPS``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.control.regions import PARTS
from pullback.control.rolling.candidates import template_of
from pullback.control.rolling.inputs import descends, stacked
from pullback.control.rolling.outside import Around, Place, Rank
from pullback.control.rolling.periods import Alphabet, runs
from pullback.control.rolling.template import Kind, Reference, Slot, Template, same
from pullback.control.scan import make_scan
from pullback.graph import (
    Node,
    Operation,
    TupleType,
    Variable,
    apply,
    is_float,
    mark,
    result,
    topological,
    written_at,
)
from pullback.operators.shapes import reshape, reverse, slice

__all__ = ["FEWEST_STEPS", "WORTHWHILE", "rolled"]

WORTHWHILE = 200
"""A loop is rolled up if its steps hold so many operations together, views of others not counted.

Compiling an operation that is written out takes 5 ms with its derivative if it is elementwise, and 15 to 30 where there
are products, so these take one to six seconds, and a scan less than one. What has fewer, as a recurrent network of 28
steps of five operations, gains more from having no loop: its steps are fused with each other, which saves about a tenth
of the time that they take.
"""

LARGE_BYTES, OF_LARGE_ARRAYS = 2**16, 5
"""So many times as many operations are worthwhile that are elementwise on arrays so large.

Written out they go through all steps with some elements, which stay in registers and the nearest cache; a scan goes
through memory in each step, and keeps all that its backward pass needs: Horner's rule of 128 terms at 131,072 points
takes nine times as long, its derivatives by the coefficients twice. Compiling these takes a millisecond or two.
"""

FEWEST_STEPS = 8
"""Fewer steps are no loop: a scan's turns and what it keeps of each cost more than so few copies of a large body."""

MOST_COPIED = 2**20
"""So many bytes of the arrays of single steps are copied in every call to stand side by side: what a cache holds.

None are where no step needs another: there is nothing to wait for, as in an optimiser's updates of many arrays.
"""

MOST_SHORTENED = 3
"""So many steps may stay beside the loop at its begin, which make what all later ones read, or at its end."""

MOST_ATTEMPTS = 16
"""So many runs at most are looked at in a graph, each in time linear in its size."""


def rolled(outputs: Sequence[Node], since: int) -> tuple[Node, ...]:
    """``outputs`` where repeated steps among the operations made ``since`` a mark are scans.

    >>> import numpy as np
    >>> from pullback.graph import Type
    >>> x = Variable(Type(np.dtype(np.float64), (400,)), "x")
    >>> since, total = mark(), x[0]
    >>> for t in range(1, 400):
    ...     total = np.sin(total) + x[t]
    >>> for node in topological(rolled([total], since)):
    ...     print(node)
    Variable(x: float64[400])
    Operation(slice: float64[1])
    Operation(reshape: float64[])
    Operation(slice: float64[399])
    Operation(reshape: float64[399, 1])
    Operation(scan: (float64[]))
    Operation(result: float64[])
    """
    outputs = tuple(outputs)
    kept = [outputs]
    ranks = _ranks(outputs, since)
    refused: set[tuple[int, Rank, Rank]] = set()
    while len(ranks) >= WORTHWHILE and len(refused) < MOST_ATTEMPTS:
        found = _rolled_once(outputs, ranks, refused)
        if found is None:
            break
        outputs = found
        kept.append(outputs)
    return outputs


def _ranks(outputs: Sequence[Node], since: int) -> dict[int, Rank]:
    """The order in which operations were made ``since`` a mark.

    Those of constants alone may have been there before, if another graph that happens to be alive has them. So that the
    same program is always rolled up in the same way, they come where they are used first.
    """
    order = topological(outputs)
    constant: set[int] = set()
    for node in order:
        if not isinstance(node, Variable) and all(id(child) in constant for child in node.inputs):
            constant.add(id(node))
    ranks: dict[int, Rank] = {}
    first_uses: dict[int, int] = {}
    for place in reversed(range(len(order))):
        node = order[place]
        if not isinstance(node, Operation):
            continue
        alone = id(node) in constant
        number = first_uses.get(id(node), node.number) if alone else node.number
        if number > since:
            ranks[id(node)] = number, place - len(order) if alone else 0
        for child in node.inputs:
            first_uses[id(child)] = min(first_uses.get(id(child), number), number)
    return ranks


def _rolled_once(
    outputs: tuple[Node, ...], ranks: dict[int, Rank], refused: set[tuple[int, Rank, Rank]]
) -> tuple[Node, ...] | None:
    """The outputs with one more loop rolled up, the first one of those that are apart from each other."""
    reached = [n for n in topological(outputs) if isinstance(n, Operation)]
    made = [node for node in reached if id(node) in ranks]
    alphabet = Alphabet(made)
    views = _views_from_outside(made)
    nodes = sorted([node for node in made if id(node) not in views], key=lambda node: ranks[id(node)])
    last_uses = _last_uses(nodes, reached, outputs)
    for run in sorted(runs(alphabet.labels(nodes), WORTHWHILE // 2), key=lambda run: run.start):
        name = run.period, ranks[id(nodes[run.start])], ranks[id(nodes[run.stop - 1])]
        if name in refused or len(refused) >= MOST_ATTEMPTS:
            continue
        template = template_of(nodes, alphabet, run, last_uses)
        found = None if template is None else _Roll(outputs, template, ranks).made()
        if found is not None:
            return found
        refused.add(name)
    return None


def _views_from_outside(nodes: Sequence[Operation]) -> set[int]:
    """Which of ``nodes``, inputs first, are parts or views of what is no other of them: constants and arguments.

    They are made once however often they are written, in the first step that has them, and so in no regular order.
    """
    made = {id(node) for node in nodes}
    found: set[int] = set()
    for node in nodes:
        if node.operator.name in PARTS and all(id(x) in found or id(x) not in made for x in node.inputs):
            found.add(id(node))
    return found


def _last_uses(
    nodes: Sequence[Operation], reached: Sequence[Operation], outputs: Sequence[Node]
) -> list[int]:
    places = {id(node): place for place, node in enumerate(nodes)}
    last = [0] * len(nodes)
    for user in reached:
        for child in user.inputs:
            source = places.get(id(child))
            if source is not None:
                last[source] = max(last[source], places.get(id(user), len(nodes)))
    for node in outputs:
        if id(node) in places:
            last[places[id(node)]] = len(nodes)
    return last


class _Roll:
    """A template on the way to a scan. Steps are counted from the first, as they are not in the template."""

    def __init__(self, outputs: tuple[Node, ...], template: Template, ranks: dict[int, Rank]) -> None:
        self.outputs = outputs
        self.template = template
        self.ranks = ranks
        self.computing = self._computing()
        """The slots that are no views of what comes from outside, which may be the same in several steps."""

    def _computing(self) -> list[int]:
        slots = self.template.slots
        found: set[int] = set()
        stack = [k for k, slot in enumerate(slots) if not self._shows(slot)]
        users: dict[int, list[int]] = {}
        for number, slot in enumerate(slots):
            for operand in slot.operands:
                if operand.kind is Kind.SLOT:
                    users.setdefault(operand.number, []).append(number)
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                stack += users.get(number, [])
        return sorted(k for k in found if not slots[k].delayed)

    def _shows(self, slot: Slot) -> bool:
        """Whether a slot shows its operand, which the step before has not made."""
        node = slot.nodes[0]
        view = isinstance(node, Operation) and (node.operator.name in PARTS or node.operator.name == "cast")
        return view and all(operand.kind is not Kind.CARRY for operand in slot.operands)

    def made(self) -> tuple[Node, ...] | None:
        """The outputs with a scan in place of the steps, or ``None`` where they cannot be one, or need not."""
        template = self.template
        shortened = 0
        while template.trips >= FEWEST_STEPS and not self._stands_alone():
            if shortened == MOST_SHORTENED:
                return None
            template.shorten()
            shortened += 1
        if any(isinstance(template.slots[k].nodes[0].type, TupleType) for k in template.before):
            return None
        computed = [slot.nodes[0] for slot in template.slots if not self._is_view(slot)]
        working, worthwhile = len(computed), WORTHWHILE
        if all(isinstance(node, Operation) and node.operator.elementwise for node in computed):
            large = max((node.type.nbytes for node in computed), default=0) >= LARGE_BYTES
            worthwhile *= OF_LARGE_ARRAYS if large else 1
        for _ in range(MOST_SHORTENED):
            places = self._places()
            if template.trips < FEWEST_STEPS or working * template.trips < worthwhile or places is None:
                return None
            around = Around(self.outputs, places)
            picked = any(isinstance(node.type, TupleType) for node in around.singly.values())
            if not picked and self._keeps_derivatives(around):
                return self._rebuilt(around)
            template.shorten(at_end=True)
        return None

    def _is_view(self, slot: Slot) -> bool:
        node = slot.nodes[0]
        return slot.delayed or not isinstance(node, Operation) or node.operator.name in {*PARTS, result.name}

    def _places(self) -> dict[int, Place] | None:
        """Where in the loop its nodes are; ``None`` if one is in two steps, which then do work twice.

        In one step two slots may hold the same node, because what they are given is the same there.
        """
        template = self.template
        places: dict[int, Place] = {}
        for number in self.computing:
            for back, node in enumerate(template.slots[number].nodes):
                step = template.trips - 1 - back
                if places.setdefault(id(node), (number, step))[1] != step:
                    return None
        return places

    def _stands_alone(self) -> bool:
        """Whether what the loop reads from outside needs nothing that the loop computes."""
        template = self.template
        inside = {id(node) for number in self.computing for node in template.slots[number].nodes}
        stack = [
            *template.fixed,
            *template.before.values(),
            *(node for one in template.series for node in one),
        ]
        seen: set[int] = set()
        while stack:
            node = stack.pop()
            if id(node) in inside:
                return False
            if id(node) not in seen:
                seen.add(id(node))
                stack += node.inputs
        return True

    def _keeps_derivatives(self, around: Around) -> bool:
        """Whether no operation of a step gets a cotangent of zeros that had none at all when it was written out.

        In a scan all steps are alike: what has a cotangent in one has one in each, of zeros where nobody reads the
        result. Zero times an infinite slope is NaN, as that of an error which is zero and only steers the loop.
        """
        template, last = self.template, self.template.trips - 1
        slots = template.slots
        reads = [around.reads(number) for number in range(len(slots))]
        passing = [self._passing(slot) for slot in slots]
        # Users come before what they use; delayed slots use only what the step before has made.
        order = sorted(self.computing, key=lambda k: self.ranks[id(slots[k].nodes[0])], reverse=True)
        order += [k for k, slot in enumerate(slots) if slot.delayed]
        computing = set(self.computing)
        before: set[int] = set()
        every = set(order)
        some: set[int] = set()
        for step in reversed(range(last + 1)):
            now, before = before, set()
            for number in order:
                if number not in now and step not in reads[number]:
                    continue
                now.add(number)
                for operand in passing[number]:
                    (now if operand.kind is Kind.SLOT else before).add(operand.number)
            every &= now
            some |= now
        stack = list(some)
        while stack:
            for operand in passing[stack.pop()]:
                if operand.number not in some:
                    some.add(operand.number)
                    stack.append(operand.number)
        return all(k in every for k in some if k in computing)

    def _passing(self, slot: Slot) -> list[Reference]:
        """The operands made in the loop that a cotangent of ``slot`` may go on to."""
        node = slot.nodes[0]
        if not _is_differentiable(node):
            return []
        if isinstance(node, Operation) and node.operator.name == "stop_gradient" and not slot.delayed:
            return []
        return [
            operand
            for operand in slot.operands
            if operand.kind in (Kind.SLOT, Kind.CARRY)
            and _is_differentiable(self.template.slots[operand.number].nodes[0])
        ]

    def _rebuilt(self, around: Around) -> tuple[Node, ...] | None:
        """The outputs, computed from a scan's results; ``None`` where its inputs would have to be copied."""
        template, last = self.template, self.template.trips - 1
        directions = [descends(one[::-1]) for one in template.series]
        backwards = directions.count(True) > directions.count(False)
        since = mark()
        inside = {Reference(Kind.FIXED, k): node for k, node in enumerate(template.fixed)}
        xs = self._stepped(inside, backwards)
        if xs is None:
            return None
        variables = {k: Variable(template.slots[k].nodes[0].type, "carry") for k in template.before}
        inside.update((Reference(Kind.CARRY, k), variable) for k, variable in variables.items())
        self._compute(inside)
        kept = {k for k, step in around.singly if step != last or k not in template.before}
        kept |= {*around.together}
        places = [*template.before, *sorted(kept)]
        body = rolled([inside[Reference(Kind.SLOT, k)] for k in places], since)
        count = len(variables)
        source = template.slots[template.roots[0]].nodes[0]
        assert isinstance(source, Operation)
        with written_at(source.source):
            made = make_scan(
                [*variables.values()],
                [*xs],
                body[:count],
                body[count:],
                [*template.before.values()],
                [*xs.values()],
                template.trips,
                backwards,
            )
        ends, kept_ones = dict(zip(places[:count], made)), dict(zip(places[count:], made[count:]))

        def single(place: Place, node: Node) -> Node:
            number, step = place
            if number not in kept_ones:
                return ends[number]
            return self._part(kept_ones[number], last - step if backwards else step, node)

        def all_of(number: int) -> Node:
            return reverse(kept_ones[number], axes=(0,)) if backwards else kept_ones[number]

        return around.rebuilt(single, all_of, self.ranks)

    def _stepped(self, inside: dict[Reference, Node], backwards: bool) -> dict[Variable, Node] | None:
        """The scan's ``x``, each with the array that it comes from; what they are inside goes into ``inside``."""
        found: dict[Variable, Node] = {}
        for k, one in enumerate(self.template.series):
            reference = Reference(Kind.STEPPED, k)
            if all(same(node, one[0]) for node in one):
                inside[reference] = one[0]
                continue
            whole = stacked(one[::-1], backwards, MOST_COPIED if self.template.before else 0)
            if whole is None:
                return None
            inside[reference] = variable = Variable(one[0].type, "x")
            found[variable] = whole
        return found

    def _part(self, whole: Node, at: int, node: Node) -> Node:
        """What ``whole`` holds at a place along its first axis, in place of ``node``."""
        assert isinstance(node, Operation)
        zeros, ones = (0,) * node.ndim, (1,) * (node.ndim + 1)
        with written_at(node.source):
            part = slice(whole, starts=(at, *zeros), stops=(at + 1, *node.shape), steps=ones)
            view = reshape(part, shape=node.shape)
        for new in (part, view):
            self.ranks.setdefault(id(new), self.ranks[id(node)])
        return view

    def _compute(self, inside: dict[Reference, Node]) -> None:
        """The body's nodes, in the order of those of the last step, so that loops in it are found as well."""
        slots = self.template.slots
        delayed = [k for k, slot in enumerate(slots) if slot.delayed]
        others = [k for k, slot in enumerate(slots) if not slot.delayed]
        for number in delayed:
            inside[Reference(Kind.SLOT, number)] = inside[slots[number].operands[0]]
        for number in sorted(others, key=lambda k: self.ranks[id(slots[k].nodes[0])]):
            node = slots[number].nodes[0]
            assert isinstance(node, Operation)
            inputs = tuple([inside[reference] for reference in slots[number].operands])
            with written_at(node.source):
                inside[Reference(Kind.SLOT, number)] = apply(node.operator, inputs, node.attributes)


def _is_differentiable(node: Node) -> bool:
    return is_float(node.dtype) or isinstance(node.type, TupleType)
