"""What a program with loops consists of: blocks, loops, choices and calls, and the views that they read and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pullback.graph import Graph, Operation
from pullback.loops import Buffer

__all__ = [
    "Block",
    "Choice",
    "Counter",
    "HostCall",
    "Item",
    "Loop",
    "View",
    "While",
    "blocks_of",
    "written_by",
]


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
class Loop:
    """Items that are run ``counter.trips`` times, one after another."""

    counter: Counter
    items: tuple[Item, ...]
    carries: tuple[tuple[View, View], ...]
    """Where each carry enters and leaves a turn."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Branches of which one is run: that whose number lies at ``index``, the first or the last if there is none."""

    index: View
    branches: tuple[tuple[Item, ...], ...]


@dataclass(frozen=True, eq=False)
class While:
    """Items that are run as long as ``flag``, which those of the ``condition`` write, is true."""

    flag: View
    condition: tuple[Item, ...]
    body: tuple[Item, ...]

    @property
    def items(self) -> tuple[Item, ...]:
        """Those of a turn."""
        return (*self.condition, *self.body)


@dataclass(frozen=True, eq=False)
class HostCall:
    """A function out of the program, the arrays that it is given, and where its results go."""

    node: Operation
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]


Item = Block | Loop | Choice | While | HostCall


def blocks_of(items: Iterable[Item]) -> Iterator[Block]:
    """All blocks, those of bodies among them."""
    for item in items:
        if isinstance(item, Block):
            yield item
        elif isinstance(item, Choice):
            for branch in item.branches:
                yield from blocks_of(branch)
        elif not isinstance(item, HostCall):
            yield from blocks_of(item.items)


def written_by(items: Iterable[Item]) -> Iterator[View]:
    """All places that blocks and calls write, also inside loops and choices."""
    for item in items:
        if isinstance(item, (Block, HostCall)):
            yield from item.outputs
        elif isinstance(item, Choice):
            for branch in item.branches:
                yield from written_by(branch)
        else:
            yield from written_by(item.items)
