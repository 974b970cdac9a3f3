"""``jit(…, memory=…)``: as much is computed again as it takes to stay within a budget of memory, and no more.

A budget is met by scans whose backward pass keeps some carries only, and runs the steps between them again
(``control/schedules.py``). How much memory a program takes is not estimated: each candidate is traced and goes through
the compiler up to its memory plan.

All scans get one level of segments more at a time, until the program fits. Then each is tried with fewer again, those
first that save the most time, so that in the end none could do with less.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pullback.compiler.programs.executable import Need, Requested, decided, needed
from pullback.control.schedules import Found, Levels, most_levels
from pullback.errors import MemoryBudgetError

__all__ = ["budget_bytes", "described", "within"]

_UNITS = {"B": 1} | {
    f"{letter}{'i' if base == 1024 else ''}B": base**power
    for base in (1000, 1024)
    for power, letter in enumerate("kMGT", 1)
}


def budget_bytes(memory: int | str) -> int:
    """A budget in bytes: a number of them, or a number with a unit, which are of 1,000 or, with an ``i``, of 1,024.

    >>> budget_bytes("200MB"), budget_bytes("1.5 GiB"), budget_bytes(4096)
    (200000000, 1610612736, 4096)
    """
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([A-Za-z]*)\s*", memory)
        units = {name.lower(): size for name, size in _UNITS.items()} | {"": 1}
        unit = units.get(match[2].lower()) if match else None
        if match and unit is not None:
            return int(float(match[1]) * unit)
    elif isinstance(memory, int) and not isinstance(memory, bool) and memory >= 0:
        return memory
    raise MemoryBudgetError(
        f'jit: memory={memory!r} is no budget; give bytes, such as 200_000_000 or "200MB"; units are '
        f"{', '.join(_UNITS)}"
    )


def described(size: float) -> str:
    """A number of bytes as text.

    >>> described(25_276_416), described(0)
    ('25.3 MB', '0 B')
    """
    for name in ("TB", "GB", "MB", "kB"):
        if size >= _UNITS[name]:
            return f"{size / _UNITS[name]:.1f} {name}"
    return f"{size:.0f} B"


@dataclass(frozen=True)
class _Candidate:
    traced: Requested
    levels: Levels

    @cached_property
    def need(self) -> Need:
        return needed(self.traced)


@dataclass
class _Search:
    """The candidates that have been looked at."""

    trace: Callable[[], Requested]
    known: dict[object, _Candidate] = field(default_factory=dict)

    def of(self, chosen: Mapping[Found, int], step_bytes: float = 0.0) -> _Candidate:
        chosen = {found: levels for found, levels in chosen.items() if levels}
        key = frozenset(chosen.items()), step_bytes
        if key not in self.known:
            levels = Levels(chosen, step_bytes)
            with levels.during():
                traced = self.trace()
            self.known[key] = _Candidate(traced, levels)
        return self.known[key]


def within(budget: int, trace: Callable[[], Requested], name: str, given: int) -> tuple[Requested, Levels]:
    """What ``trace()`` gives with the fewest steps run again of those that need no more than the budget.

    Raises ``MemoryBudgetError`` with the least that can be reached, which names the bytes ``given`` as arguments.
    """
    search = _Search(trace)
    first = search.of({})
    scans = list(first.levels.met)

    def decide() -> dict[str, Any]:
        levels = _searched(search, budget, scans, name, given).levels
        return {"levels": [levels.chosen.get(s, 0) for s in scans], "step_bytes": levels.step_bytes}

    decision = decided(first.traced, budget, decide)
    found = search.of(dict(zip(scans, decision["levels"], strict=True)), decision["step_bytes"])
    return found.traced, found.levels


def _searched(search: _Search, budget: int, scans: Sequence[Found], name: str, given: int) -> _Candidate:
    first = least = search.of({})
    # Long segments first, which cost less; then those that take the least memory, for what a step seems to keep.
    kept = first.need.bytes / max(1, sum(found.trips for found in scans))
    for levels in range(1, 1 + max((most_levels(s.trips) for s in scans), default=0)):
        if least.need.bytes <= budget:
            break
        chosen = {s: min(levels, most_levels(s.trips)) for s in scans}
        before = least
        for step_bytes in (0.0, kept):
            found = search.of(chosen, step_bytes)
            least = found if found.need.bytes < least.need.bytes else least
            if least.need.bytes <= budget:
                break
        if least is before:
            break  # what is left is not kept by scans
    if least.need.bytes > budget:
        raise MemoryBudgetError(
            f"{name}: a budget of {described(budget)} cannot be met: it takes {described(first.need.bytes)} as "
            f"it is, and {described(least.need.bytes)} ({least.need.bytes:,} bytes) at least: "
            f"{least.levels}. The arguments have {described(given)}, which is not counted. Give more memory, or "
            "fewer or smaller examples."
        )
    return _with_fewer(search, least, budget)


def _with_fewer(search: _Search, found: _Candidate, budget: int) -> _Candidate:
    """The same with fewer levels for scans that can do with fewer."""
    chosen, step_bytes = dict(found.levels.chosen), found.levels.step_bytes
    if len(chosen) > 1:
        time = {s: search.of({**chosen, s: 0}, step_bytes).need.nanoseconds for s in chosen}
        for s in sorted(time, key=lambda s: time[s]):
            for levels in range(chosen[s]):
                candidate = search.of({**chosen, s: levels}, step_bytes)
                if candidate.need.bytes <= budget:
                    found, chosen = candidate, {**chosen, s: levels}
                    break
    return found
