"""What a program with loops consists of: blocks, loops, choices and calls, and the views that they read and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pullback.graph import Graph, Operation
from pullback.loops import Buffer

__all__ = [
    "Block",
    "Choice",
    "Counter",
    "Held",
    "HostCall",
    "Item",
    "Loop",
    "Serial",
    "View",
    "While",
    "blocks_of",
    "every_step",
    "written_by",
]


S = TypeVar("S")
"""What is held: items of a program, or steps of its schedule."""


@dataclass(frozen=True, eq=False)
class Counter:
    """The turn of a loop, from 0."""

    trips: int
    reverse: bool = False
    """Whether the first turn is the last step."""


@dataclass(frozen=True)
class View:
    """An array inside ``base``: its first element is ``start``, and ``stride * turn`` on for each of the ``moves``.

    A move with a ``period`` counts turns by that: with 2, every other turn is in the same place.
    """

    base: Buffer
    start: int = 0
    moves: tuple[tuple[Counter, int, int], ...] = ()

    def __str__(self) -> str:
        moves = "".join(
            f" + {stride} a turn of {counter.trips}" + (f", by {period}" if period else "")
            for counter, stride, period in self.moves
        )
        return f"{self.base!r} from {self.start}{moves}"

    def part(self, start: int, counter: Counter, stride: int, period: int = 0) -> View:
        """The part of this array that moves with ``counter``."""
        return View(self.base, self.start + start, (*self.moves, (counter, stride, period)))

    def after(self, start: int) -> View:
        """The part of this array from its element ``start`` on."""
        return View(self.base, self.start + start, self.moves)


@dataclass(frozen=True, eq=False)
class Block:
    """A graph without loops, with the places of its inputs and outputs."""

    graph: Graph
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    aliased: Mapping[int, int] = field(default_factory=dict)
    """Of each output that lies in the memory of an input, the input's number."""


@dataclass(frozen=True, eq=False)
class HostCall:
    """A function out of the program, the arrays that it is given, and where its results go."""

    node: Operation
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]


@dataclass(frozen=True, eq=False)
class Loop(Generic[S]):
    """Steps that are run ``counter.trips`` times, one turn after another."""

    counter: Counter
    steps: Sequence[S]
    carries: tuple[tuple[View, View], ...] = ()
    """Where each carry enters and leaves a turn."""


@dataclass(frozen=True, eq=False)
class Choice(Generic[S]):
    """Branches of which one is run: that whose number lies at ``index``, the first or the last if there is none."""

    index: View
    branches: Sequence[Sequence[S]]

    @property
    def steps(self) -> Sequence[S]:
        """Those of all branches."""
        return [step for branch in self.branches for step in branch]


@dataclass(frozen=True, eq=False)
class While(Generic[S]):
    """A ``condition`` that writes ``flag``, and a body that is run as long as that is not 0."""

    flag: View
    condition: Sequence[S]
    body: Sequence[S]

    @property
    def steps(self) -> Sequence[S]:
        """Those of a turn."""
        return [*self.condition, *self.body]


@dataclass(frozen=True, eq=False)
class Serial(Generic[S]):
    """Steps that one thread runs from end to end, as the one chunk of a region."""

    steps: Sequence[S]


Held = Loop[Any] | Choice[Any] | While[Any] | Serial[Any]
"""What holds other steps."""

Item = Block | HostCall | Loop["Item"] | Choice["Item"] | While["Item"]


def every_step(steps: Iterable[Any]) -> Iterator[tuple[Any, tuple[Held, ...]]]:
    """All steps that hold no others, each with those that hold it, outermost first."""
    for step in steps:
        if isinstance(step, (Loop, Choice, While, Serial)):
            for inside, around in every_step(step.steps):
                yield inside, (step, *around)
        else:
            yield step, ()


def blocks_of(items: Iterable[Item]) -> Iterator[Block]:
    """All blocks, those of bodies among them."""
    return (step for step, _ in every_step(items) if isinstance(step, Block))


def written_by(items: Iterable[Item]) -> Iterator[View]:
    """All places that blocks and calls write, also inside loops and choices."""
    return (view for step, _ in every_step(items) for view in step.outputs)
