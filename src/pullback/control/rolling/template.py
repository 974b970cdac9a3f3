"""One step of a loop that is written out, found by comparing its steps node by node from the last one back.

Begin with what two steps next to each other leave to those after them, in pairs: a node of the last step and its twin
of the step before. Operands of twins are either

- twins as well, if the same operation made them: the step computes them (a *slot* of the template),
- or the later one is an *earlier* twin: the step before has computed it, and this step receives it (a carry),
- or one and the same node, which all steps read (fixed),
- or any two nodes of one type: each step has its own (stepped).

Then each step further back must fit the template without exception; the first that does not ends the loop, and what the
loop begins with is what that step has made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from pullback.control.regions import VIEWS
from pullback.control.rolling.periods import Alphabet
from pullback.graph import SMALL_CONSTANT, Constant, Node, Operation, TupleType, behind

__all__ = ["Kind", "Mismatch", "Reference", "Slot", "Template", "distance", "reads_on", "same"]

Pair = tuple[Node, Node]


class Mismatch(Exception):
    """Two steps are not alike."""


class Kind(Enum):
    """Where an operand of a step comes from."""

    SLOT = "this step"
    CARRY = "the step before"
    FIXED = "outside, the same for all steps"
    STEPPED = "outside, another for each step"


@dataclass(frozen=True)
class Reference:
    """An operand: the number of a slot, of a fixed node, or of a series of stepped ones."""

    kind: Kind
    number: int


@dataclass(eq=False)
class Slot:
    """What each step computes in one place, and from what."""

    nodes: list[Node]
    """From the last step to the first."""
    operands: tuple[Reference, ...] = ()
    delayed: bool = False
    """Computes nothing: hands on what the step before has received or computed."""


@dataclass(eq=False)
class Template:
    """A step, and the nodes of all steps that have been found to fit it."""

    alphabet: Alphabet
    most: int
    """A step of more slots than these is none."""
    slots: list[Slot] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    """The slots that were begun with."""
    fixed: list[Node] = field(default_factory=list)
    series: list[list[Node]] = field(default_factory=list)
    """For each stepped operand its node in each step, from the last step to the first."""
    before: dict[int, Node] = field(default_factory=dict)
    """For each slot that is carried what the first step found so far receives."""
    _twins: dict[tuple[int, int], int] = field(default_factory=dict)
    _earlier: dict[int, int] = field(default_factory=dict)
    _outside: dict[tuple[int, int], Reference] = field(default_factory=dict)

    @staticmethod
    def of(alphabet: Alphabet, pairs: Sequence[Pair], delayed: Sequence[Pair], most: int) -> Template:
        """The template of two steps that leave ``pairs``, and hand on ``delayed`` ones, each nearer to its source.

        Raises ``Mismatch`` where they are not alike.
        """
        this = Template(alphabet, most)
        for pair in pairs:
            if not alphabet.alike(*pair):
                raise Mismatch
            this.roots.append(this._slot(*pair))
        for later, earlier in delayed:
            source = this._earlier.get(id(later))
            if source is None:
                raise Mismatch
            this._receive(source, earlier)
            this.roots.append(this._slot(later, earlier))
            this.slots[-1].delayed = True
            this.slots[-1].operands = (Reference(Kind.CARRY, source),)
        done = 0
        while done < len(this.slots):
            slot = this.slots[done]
            if not slot.delayed:
                later, earlier = slot.nodes
                slot.operands = tuple([this._operand(*pair) for pair in zip(later.inputs, earlier.inputs)])
            done += 1
        return this

    @property
    def trips(self) -> int:
        """How many steps there are so far."""
        return len(self.slots[0].nodes)

    def _slot(self, later: Node, earlier: Node) -> int:
        number = len(self.slots)
        if number == self.most:
            raise Mismatch
        self.slots.append(Slot([later, earlier]))
        self._twins[id(later), id(earlier)] = number
        if later is not earlier and not reads_on(self.alphabet, later, earlier):
            self._earlier.setdefault(id(earlier), number)
        return number

    def _receive(self, slot: int, node: Node) -> None:
        if not same(self.before.setdefault(slot, node), node):
            raise Mismatch

    def _operand(self, later: Node, earlier: Node) -> Reference:
        known = self._twins.get((id(later), id(earlier)))
        if known is not None:
            return Reference(Kind.SLOT, known)
        if later is earlier and not _is_constant(later):
            return self._from_outside(Kind.FIXED, later, earlier)
        carried = None if later is earlier else self._earlier.get(id(later))
        if carried is not None:
            self._receive(carried, earlier)
            return Reference(Kind.CARRY, carried)
        if self.alphabet.alike(later, earlier):
            return Reference(Kind.SLOT, self._slot(later, earlier))
        if later.type != earlier.type or isinstance(later.type, TupleType):
            raise Mismatch
        return self._from_outside(Kind.STEPPED, later, earlier)

    def _from_outside(self, kind: Kind, later: Node, earlier: Node) -> Reference:
        found = self._outside.get((id(later), id(earlier)))
        if found is None:
            among: list[Node] | list[list[Node]] = self.fixed if kind is Kind.FIXED else self.series
            found = self._outside[id(later), id(earlier)] = Reference(kind, len(among))
            if kind is Kind.FIXED:
                self.fixed.append(later)
            else:
                self.series.append([later, earlier])
        return found

    def extend(self, guess: Callable[[Slot], Node | None]) -> bool:
        """Add the step before the first one if it fits; ``guess`` names its nodes for slots that nobody receives."""
        nodes: dict[int, Node] = {}
        received: dict[int, Node] = {}
        stepped: dict[int, Node] = {}
        stack = list(self.before.items())
        for root in self.roots:
            if root not in self.before:
                node = guess(self.slots[root])
                if node is None:
                    return False
                stack.append((root, node))
        while stack:
            number, node = stack.pop()
            if number in nodes:
                if nodes[number] is not node:
                    return False
                continue
            nodes[number] = node
            slot = self.slots[number]
            if not slot.delayed and not self.alphabet.alike(slot.nodes[0], node):
                return False
            for operand, child in zip(slot.operands, (node,) if slot.delayed else node.inputs):
                match operand.kind:
                    case Kind.SLOT:
                        stack.append((operand.number, child))
                    case Kind.CARRY:
                        if not same(received.setdefault(operand.number, child), child):
                            return False
                    case Kind.FIXED:
                        if self.fixed[operand.number] is not child:
                            return False
                    case Kind.STEPPED:
                        if stepped.setdefault(operand.number, child) is not child:
                            return False
        if len(nodes) < len(self.slots) or not all(
            _goes_on(self.series[k], node) for k, node in stepped.items()
        ):
            return False
        for number, slot in enumerate(self.slots):
            slot.nodes.append(nodes[number])
        for number, one in enumerate(self.series):
            one.append(stepped[number])
        self.before = received
        return True

    def shorten(self, at_end: bool = False) -> None:
        """Without the first step, what it has made being what the loop begins with; or without the last one."""
        if not at_end:
            self.before = {number: self.slots[number].nodes[-1] for number in self.before}
        for nodes in (*(slot.nodes for slot in self.slots), *self.series):
            nodes.pop(0 if at_end else -1)


def same(first: Node, second: Node) -> bool:
    """Whether both are one node, or constants of the same bits: an array outside the trace is a new one at each use."""
    if first is second:
        return True
    if not (isinstance(first, Constant) and isinstance(second, Constant)) or first.type != second.type:
        return False
    return first.value.tobytes() == second.value.tobytes()


def _is_constant(node: Node) -> bool:
    """Whether a node shows a small constant, which may be another one in other steps."""
    node = behind(node, (*VIEWS, "cast"))
    return isinstance(node, Constant) and node.size <= SMALL_CONSTANT


def _goes_on(series: Sequence[Node], node: Node) -> bool:
    """Whether ``node`` may come before what a series begins with: a slice as far from it as the next one is."""
    if node.type != series[-1].type:
        return False
    if isinstance(series[-1], Constant) and isinstance(series[-2], Constant):
        return isinstance(node, Constant)
    apart = distance(series[-1], series[-2])
    return apart is None or distance(node, series[-1]) == apart


def distance(first: Node, second: Node) -> tuple[int, ...] | None:
    """How far behind ``first`` along each axis ``second`` reads the same array, where both are slices alike."""
    if not (isinstance(first, Operation) and isinstance(second, Operation)):
        return None
    if first.operator.name != "slice" or first.operator is not second.operator or first.type != second.type:
        return None
    if first.inputs[0] is not second.inputs[0] or first.attributes["steps"] != second.attributes["steps"]:
        return None
    return tuple([b - a for a, b in zip(first.attributes["starts"], second.attributes["starts"])])


def reads_on(alphabet: Alphabet, later: Node, earlier: Node) -> bool:
    """Whether both are the same views of two slices of one array."""
    while distance(earlier, later) is None:
        if not isinstance(later, Operation) or later.operator.name not in VIEWS:
            return False
        if not alphabet.alike(later, earlier):
            return False
        (later,), (earlier,) = later.inputs, earlier.inputs
    return later is not earlier
