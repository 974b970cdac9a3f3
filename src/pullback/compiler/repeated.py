"""Small jobs that every thread does for itself, instead of fetching what another one has done.

    phase 0   pixel = image / 255                        phase 0   each thread first: pixel = image / 255
    phase 1   channel 0 of pixel | channel 1 | …    →              channel 0 of pixel | channel 1 | …
    …                                                    …
    phase 4   gradient 0 from pixel | 1 | …              phase 3   each thread first: pixel = image / 255
                                                                   gradient 0 from pixel | 1 | …

What a thread has computed lies in its scratch memory, where nobody has to fetch it from another core's cache. So a
phase is saved where a map is all that it holds; and a transposed copy is sooner made again than half of it fetched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from pullback.compiler.codegen.prefetch import CACHE_LINE
from pullback.compiler.form import Form
from pullback.compiler.schedule import Job, Phase
from pullback.loops import Buffer, Kernel

__all__ = ["EXCHANGE_CYCLES", "repeat_small"]

EXCHANGE_CYCLES = 1000.0
"""What threads lose in a phase by claiming chunks, waiting for each other and fetching what the other one wrote."""

LINE_CYCLES = 25.0
"""What a line costs that one core writes and another reads, time after time."""

OWN_BYTES = 1 << 19
"""What a thread may keep for itself in a phase: it must stay in the core's own cache."""

MOST_USES = 3
"""Phases in which it is computed again; more would cost more than the exchange that they save."""


def repeat_small(
    phases: Sequence[Phase],
    before: Mapping[Kernel, Iterable[Kernel]],
    results: Iterable[Buffer],
    overwritten: Iterable[Buffer],
) -> list[Phase]:
    """The phases without what all threads may as well compute where they need it.

    It depends on nothing but arguments, and gives no ``results``. What must be done ``before`` something is
    ``overwritten``, or nothing be overwritten if it fails, is still done in an earlier phase.
    """
    found = list(phases)
    lost = set(overwritten)
    written = Counter(buffer for phase in phases for job in _jobs(phase) for buffer in job.kernel.writes())
    # What others accumulate on is in one memory for all, as results are.
    given = {*results, *(buffer for buffer, writers in written.items() if writers > 1)}
    for phase in phases:
        jobs = _jobs(phase)
        users = {job: _users(job, found) for job in jobs if _stands_alone(job, given, written.keys())}
        moving = [job for job in users if _may_move(job, phase, users[job], found, before, lost)]
        alone = sum(group.chunks for group in phase.groups) == 1
        if len(moving) < len(jobs) or _cost(moving, users, alone) > EXCHANGE_CYCLES:
            moving = [job for job in moving if _cost([job], users, False) <= 0]
        for job in moving:
            for user in users[job]:
                user.first.append(job)
            for group in phase.groups:
                group.jobs = [other for other in group.jobs if other is not job]
            phase.groups = [group for group in phase.groups if group.jobs]
        if not phase.groups:
            found.remove(phase)
    return found


def _jobs(phase: Phase) -> list[Job]:
    return [job for group in phase.groups for job in group.jobs]


def _users(job: Job, phases: Iterable[Phase]) -> list[Phase]:
    """The phases that read what ``job`` writes."""
    made = set(job.kernel.writes())
    return [
        phase for phase in phases if any(made.intersection(other.kernel.reads()) for other in _jobs(phase))
    ]


def _stands_alone(job: Job, given: Set[Buffer], written: Set[Buffer]) -> bool:
    """Whether the job is a map or a transposed copy that computes the same whenever it runs, in any memory."""
    if job.form not in (Form(), Form(transposition=job.form.transposition)):
        return False
    if any(store.accumulate for store in job.kernel.stores):
        return False
    return written.isdisjoint(job.kernel.reads()) and given.isdisjoint(job.kernel.writes())


def _may_move(
    job: Job,
    phase: Phase,
    users: Sequence[Phase],
    phases: Sequence[Phase],
    before: Mapping[Kernel, Iterable[Kernel]],
    lost: set[Buffer],
) -> bool:
    """Whether ``job`` may be done in the phases that use it, each thread in its own memory."""
    if not 1 <= len(users) <= MOST_USES or phase in users:
        return False
    if any(other.form.blocking is not None for user in users for other in _jobs(user)):
        return False  # its panels lie in scratch memory
    if any(_bytes_made([job, *user.first]) > OWN_BYTES for user in users):
        return False
    # Who overwrites what the job reads comes after the last of them; who only waits for its checks, after the first.
    last = users[-1] if lost.intersection(job.kernel.reads()) else users[0]
    late = (other.given for later in phases[: phases.index(last) + 1] for other in _jobs(later))
    return not any(job.given in before.get(kernel, ()) for kernel in late)


def _cost(jobs: Sequence[Job], users: Mapping[Job, Sequence[Phase]], alone: bool) -> float:
    """The cycles that repeating ``jobs`` takes, less what it saves by not moving lines between cores.

    As it is, one thread does them while the others wait, if they are ``alone`` in their phase, or two share them.
    """
    done = 1.0 if alone else 0.5
    cycles = sum(job.cycles * (len(users[job]) - done) for job in jobs)
    return cycles - LINE_CYCLES * _bytes_made(jobs) / CACHE_LINE


def _bytes_made(jobs: Iterable[Job]) -> int:
    return sum(buffer.nbytes for job in jobs for buffer in job.kernel.writes())
