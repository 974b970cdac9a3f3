"""Where a sequence of operations repeats: its runs of one period, found from labels of the operations alone.

Nothing follows from a run but that it is worth a look: whether the operations compute the same of what comes before is
for ``template.py`` to prove.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.graph import Constant, Graph, Node, Operation
from pullback.graph.node import kind_of

__all__ = ["Alphabet", "Run", "runs"]

Labels = NDArray[np.uint64]

CANDIDATES = 4
"""So many distances of equal words, the most frequent ones, are tried as periods for each length of words."""

LONGEST_WORD = 256


@dataclass(frozen=True)
class Run:
    """Places ``start`` to ``stop`` of a sequence, where each label is that of ``period`` places before."""

    period: int
    start: int
    stop: int

    @property
    def saved(self) -> int:
        """How many places are repetitions of others."""
        return self.stop - self.start - self.period

    def overlaps(self, other: Run) -> bool:
        """Whether two runs have a place in common."""
        return self.start < other.stop and other.start < self.stop


def _signature(node: Operation) -> tuple[Any, ...]:
    """What two operations share that do the same to operands of the same types."""
    items = tuple(sorted([(name, _told(value)) for name, value in node.attributes.items()]))
    return (
        node.operator,
        items,
        tuple([kind_of(value) for _, value in items]),
        node.type,
        tuple([child.type for child in node.inputs]),
    )


def _told(value: Any) -> Any:
    """An attribute, with what they compute in place of graphs: those of two steps are never the same object."""
    if isinstance(value, tuple):
        return tuple(map(_told, value))
    if not isinstance(value, Graph):
        return value
    numbers = {id(variable): number for number, variable in enumerate(value.inputs)}
    lines: list[Any] = [variable.type for variable in value.inputs]
    for node in value.nodes():
        numbers.setdefault(id(node), len(numbers))
        if isinstance(node, Operation):
            lines.append((_signature(node), tuple([numbers[id(child)] for child in node.inputs])))
        elif isinstance(node, Constant):
            lines.append((node.type, node.value.tobytes()))
    return (*lines, tuple([numbers[id(node)] for node in value.outputs]))


class Alphabet:
    """Which operations are alike: those that do the same to operands of the same types."""

    def __init__(self, nodes: Sequence[Operation]) -> None:
        known: dict[Any, int] = {}
        self._rough: dict[int, int] = {}
        self._exact: dict[int, int] = {}
        for node in nodes:
            whole = _signature(node)
            self._exact[id(node)] = known.setdefault(whole, len(known))
            if node.operator.name == "slice":
                whole = node.operator, node.attributes["steps"], *whole[3:]
            self._rough[id(node)] = known.setdefault(whole, len(known))

    def labels(self, nodes: Sequence[Operation]) -> Labels:
        """A number for each of ``nodes``: one for all that are alike, and whose operands are made by operations alike.

        Here slices are alike wherever they begin: steps read one part of an array after another.
        """
        known: dict[tuple[int, ...], int] = {}
        found = []
        for node in nodes:
            word = self._rough[id(node)], *[self._rough.get(id(child), -1) for child in node.inputs]
            found.append(known.setdefault(word, len(known)))
        return np.array(found, np.uint64)

    def alike(self, first: Node, second: Node) -> bool:
        """Whether both are among the operations and do the same."""
        one = self._exact.get(id(first))
        return one is not None and one == self._exact.get(id(second))


def runs(found: Labels, least: int) -> list[Run]:
    """Runs of four periods or more that repeat ``least`` labels, apart from each other; those that repeat most first.

    >>> runs(np.array([7, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 9], np.uint64), least=3)
    [Run(period=3, start=1, stop=13)]
    """
    candidates: list[Run] = []
    for period in _periods(found, len(found) - least):
        equal = np.flatnonzero(np.diff(np.concatenate(([0], found[period:] == found[:-period], [0]))))
        for start, stop in zip(equal[::2].tolist(), equal[1::2].tolist()):
            if stop - start >= max(least, 3 * period):
                candidates.append(Run(period, start, stop + period))
    chosen: list[Run] = []
    for run in sorted(candidates, key=lambda run: (-run.saved, run.period, run.start)):
        if not any(run.overlaps(other) for other in chosen):
            chosen.append(run)
    return chosen


def _periods(found: Labels, longest: int) -> list[int]:
    """Frequent distances from a word of labels to the next one like it, for words of several lengths.

    Inside a step operations alike may follow each other; the longer the words, the rarer that is.
    """
    periods: set[int] = set()
    mixer = np.uint64(0x9E3779B97F4A7C15)
    words, factor, width = (found + np.uint64(1)) * mixer, mixer, 1
    while width <= min(LONGEST_WORD, len(found) // 2):
        order = np.argsort(words, kind="stable")
        alike = words[order[1:]] == words[order[:-1]]
        counts = np.bincount((order[1:] - order[:-1])[alike], minlength=1)[: max(longest, 0) + 1]
        best = np.argsort(-counts, kind="stable")[:CANDIDATES]
        periods.update(int(period) for period in best if counts[period])
        words = words[:-width] * factor + words[width:]  # words twice as long
        words ^= words >> np.uint64(31)
        words *= mixer
        width *= 2
    return sorted(periods)
