"""From a run of equal labels to the template of its steps: where a step begins, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.control.rolling.periods import Alphabet, Run
from pullback.control.rolling.template import Mismatch, Slot, Template, reads_on
from pullback.graph import Node, Operation

__all__ = ["template_of"]

GROWTH = 2
"""A step has no more slots than this for each place of its period: what is more grows from step to step."""


def template_of(
    nodes: Sequence[Operation], alphabet: Alphabet, run: Run, last_uses: Sequence[int]
) -> Template | None:
    """The steps of ``run`` in ``nodes`` and those before it, or ``None`` where they compute different things.

    ``last_uses`` tells the place of each node's last user, beyond all places for what is read behind them.
    """
    places = {id(node): place for place, node in enumerate(nodes)}
    period, end = run.period, _boundary(nodes, places, run)
    begin = end - period
    leaving = {
        place for place in range(begin, end) if last_uses[place] >= end or last_uses[place - period] >= begin
    }
    waiting: dict[int, None] = {}
    """The places of what a step reads of those before the last one."""
    for place in range(begin, end):
        for child, twin in zip(nodes[place].inputs, nodes[place - period].inputs):
            source = places.get(id(child), -1)
            if run.start + period <= source < begin - period and twin is nodes[source - period]:
                while source < begin - period:
                    waiting[source] = None
                    source += period
                leaving.add(source + period)
    pairs = [(nodes[place], nodes[place - period]) for place in sorted(leaving)]
    pairs = [pair for pair in pairs if not reads_on(alphabet, *pair)]
    delayed = [(nodes[place + period], nodes[place]) for place in sorted(waiting, reverse=True)]
    if not pairs:
        return None
    try:
        found = Template.of(alphabet, pairs, delayed, GROWTH * period)
    except Mismatch:
        return None
    guess = _Guess(nodes, places, found)
    while found.extend(guess):
        pass
    return found


def _boundary(nodes: Sequence[Operation], places: Mapping[int, int], run: Run) -> int:
    """The end of the last step: where least is handed from one step to the next, and as late as may be."""
    period = run.period
    first = run.stop - 4 * period
    reach: dict[int, int] = {}
    for place in range(max(run.start, first), run.stop):
        for child in nodes[place].inputs:
            source = places.get(id(child), -1)
            if source >= max(run.start, first) and place < source + 2 * period:
                reach[source] = max(reach.get(source, 0), place)
    handed = [0] * (len(nodes) + period + 2)
    for source, use in reach.items():
        handed[source + 1] += 1
        handed[min(source + period, use) + 1] -= 1
    total, best, least = 0, run.stop - period, None
    for place in range(max(run.start, first), run.stop - period + 1):
        total += handed[place]
        if place > run.stop - 2 * period and (least is None or total <= least):
            best, least = place, total
    return best + period


class _Guess:
    """What a slot that no other step reads computes one step further back, by its place among the nodes.

    Places are counted without what is the same for all steps, which stands in the first of them only.
    """

    def __init__(self, nodes: Sequence[Operation], places: Mapping[int, int], template: Template) -> None:
        self._nodes: list[Operation] = []
        self._places: dict[int, int] = {}
        if len(template.roots) == len(template.before):
            return
        once: set[int] = set()
        stack = [
            *template.fixed,
            *(slot.nodes[0] for slot in template.slots if slot.nodes[0] is slot.nodes[1]),
        ]
        while stack:
            node = stack.pop()
            if id(node) in places and id(node) not in once:
                once.add(id(node))
                stack += node.inputs
        self._nodes = [node for node in nodes if id(node) not in once]
        self._places = {id(node): place for place, node in enumerate(self._nodes)}

    def __call__(self, slot: Slot) -> Node | None:
        first, second = (self._places.get(id(node), -1) for node in slot.nodes[:2])
        if second < 0:
            return None
        place = first - (first - second) * len(slot.nodes)
        return self._nodes[place] if place >= 0 else None
