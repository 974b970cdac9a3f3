"""Gathers that are done at the tiles of the contraction that reads them, rather than by themselves before it."""

from __future__ import annotations

from collections.abc import Iterable, Set

from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.schedules.contraction_schedules import TiledContraction
from pullback.compiler.schedules.map import MapSchedule
from pullback.compiler.schedules.staged_gather import find_staged_gather
from pullback.compiler.steps import Group, Step, every_region
from pullback.loops import Buffer

__all__ = ["stage_gathers"]


def stage_gathers(steps: Iterable[Step], there: Set[Buffer], schedules: Schedules) -> None:
    """Give contractions the gathers of what they are the first to read.

    A gather may wait for them only if what it reads itself is ``there`` all the time, in memory that is used for
    nothing else meanwhile.
    """
    for region, _ in every_region(steps):
        for group in region.groups:
            _stage(group, there, schedules)


def _stage(group: Group, there: Set[Buffer], schedules: Schedules) -> None:
    for position, job in enumerate(group.jobs):
        written = set(job.kernel.writes())
        users = [other for other in group.jobs[position + 1 :] if written & set(other.kernel.reads())]
        if not isinstance(job.schedule, MapSchedule) or not users or users[0].staged is not None:
            continue
        user = users[0]
        if not job.rows == user.rows == group.rows or not isinstance(user.schedule, TiledContraction):
            continue
        lanes = schedules.lanes(job.kernel)
        if lanes != schedules.lanes(user.kernel) or not set(job.kernel.reads()) <= there:
            continue
        staged = find_staged_gather(job.given, user.schedule, lanes, schedules.target)
        if staged is not None:
            user.staged, job.staged_by = staged, user
