"""Redundant computation: what every thread does for itself, instead of fetching what another one has done.

    region 0   pixel = image / 255                       region 0   each thread first: pixel = image / 255
    region 1   channel 0 of pixel | channel 1 | …    →              channel 0 of pixel | channel 1 | …
    …                                                    …
    region 4   gradient 0 from pixel | 1 | …             region 3   each thread first: pixel = image / 255
                                                                    gradient 0 from pixel | 1 | …

What a thread has computed lies in its scratch memory, where nobody has to fetch it from another core's cache. So a
region is saved where a map is all that it holds; and a transposed copy is sooner made again than half of it fetched.
A region less pays by itself, however long its users take: all threads wait for each other once less. What leaves a
region that stays must gain a share of its users' time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from operator import itemgetter

from pullback.compiler.cost import WORTH_REPEATING
from pullback.compiler.schedules.contraction_schedules import PackedContraction
from pullback.compiler.schedules.map import MapSchedule
from pullback.compiler.schedules.transpose import TransposedCopy
from pullback.compiler.steps import Group, Job, Region
from pullback.compiler.target import Processor
from pullback.loops import Buffer, Kernel

__all__ = ["recompute_small"]


def recompute_small(
    regions: Sequence[Region],
    before: Mapping[Kernel, Iterable[Kernel]],
    results: Iterable[Buffer],
    overwritten: Iterable[Buffer],
    target: Processor,
) -> list[Region]:
    """The regions without what all threads may as well compute where they need it.

    It depends on nothing but arguments, and gives no ``results``. What must be done ``before`` something is
    ``overwritten``, or nothing be overwritten if it fails, is still done in an earlier region.
    """
    found = list(regions)
    lost = set(overwritten)
    written = Counter(buffer for region in regions for job in _jobs(region) for buffer in job.kernel.writes())
    # What others accumulate on is in one memory for all, as results are.
    given = {*results, *(buffer for buffer, writers in written.items() if writers > 1)}
    for region in regions:
        jobs = _jobs(region)
        users = {job: _users(job, found) for job in jobs if _stands_alone(job, given, written.keys())}
        moving = [job for job in users if _may_move(job, region, users[job], found, before, lost, target)]
        paying = [job for job in moving if _gain([job], region, users, target) > 0]
        choices = [(_gain(chosen, region, users, target), chosen) for chosen in (paying, moving)]
        gain, moving = max(choices, key=itemgetter(0))
        fed = dict.fromkeys(user for job in moving for user in users[job])
        cycles = sum(group.cycles for user in fed for group in user.groups)
        least = 0.0 if len(moving) == len(jobs) else WORTH_REPEATING * cycles
        if not moving or gain < least:
            continue
        for job in moving:
            for user in users[job]:
                user.first.append(job)
        left = [(group, [job for job in group.jobs if job not in moving]) for group in region.groups]
        region.groups = [Group(group.rows, jobs, group.grain, group.turns) for group, jobs in left if jobs]
        if not region.groups:
            found.remove(region)
    return found


def _jobs(region: Region) -> list[Job]:
    return [job for group in region.groups for job in group.jobs]


def _users(job: Job, regions: Iterable[Region]) -> list[Region]:
    """The regions that read what ``job`` writes."""
    made = set(job.kernel.writes())
    return [r for r in regions if any(made.intersection(other.kernel.reads()) for other in _jobs(r))]


def _stands_alone(job: Job, given: Set[Buffer], written: Set[Buffer]) -> bool:
    """Whether the job is a map or a transposed copy that computes the same whenever it runs, in any memory."""
    if not isinstance(job.schedule, (MapSchedule, TransposedCopy)):
        return False
    if any(store.accumulate for store in job.kernel.stores):
        return False
    return written.isdisjoint(job.kernel.reads()) and given.isdisjoint(job.kernel.writes())


def _may_move(
    job: Job,
    region: Region,
    users: Sequence[Region],
    regions: Sequence[Region],
    before: Mapping[Kernel, Iterable[Kernel]],
    lost: set[Buffer],
    target: Processor,
) -> bool:
    """Whether ``job`` may be done in the regions that use it, each thread in its own memory."""
    if not users or region in users:
        return False
    if any(isinstance(other.schedule, PackedContraction) for user in users for other in _jobs(user)):
        return False  # its panels lie in scratch memory
    if any(_bytes_made([job, *user.first]) > target.private_bytes for user in users):
        return False
    # Who overwrites what the job reads comes after the last of them; who only waits for its checks, after the first.
    last = users[-1] if lost.intersection(job.kernel.reads()) else users[0]
    late = (other.given for later in regions[: regions.index(last) + 1] for other in _jobs(later))
    return not any(job.given in before.get(kernel, ()) for kernel in late)


def _gain(
    jobs: Sequence[Job], region: Region, users: Mapping[Job, Sequence[Region]], target: Processor
) -> float:
    """The cycles that are saved by not moving lines between cores, less those that repeating ``jobs`` takes.

    As it is, one thread does them while the others wait, if the region is a single chunk, or two share them. With all
    that it holds, the region itself is saved, at whose end all wait for each other.
    """
    whole = len(jobs) == len(_jobs(region))
    done = 1.0 if whole and sum(group.chunks for group in region.groups) == 1 else 0.5
    repeated = sum(job.cycles * (len(users[job]) - done) for job in jobs)
    fetched = target.exchange_line_cycles * _bytes_made(jobs) / target.line_bytes
    return fetched + whole * target.exchange_cycles - repeated


def _bytes_made(jobs: Iterable[Job]) -> int:
    return sum(buffer.nbytes for job in jobs for buffer in job.kernel.writes())
