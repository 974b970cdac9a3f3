"""Small phases that every thread computes for itself, instead of waiting for the one that does.

    phase 0   pixel = image / 255                        phase 0   each thread first: pixel = image / 255
    phase 1   channel 0 of pixel | channel 1 | …    →              channel 0 of pixel | channel 1 | …
    …                                                    …
    phase 4   gradient 0 from pixel | 1 | …              phase 3   each thread first: pixel = image / 255
                                                                   gradient 0 from pixel | 1 | …

What a thread has computed lies in its scratch memory, where nobody has to fetch it from another core's cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pullback.compiler.form import Form
from pullback.compiler.schedule import Job, Phase, has_checks
from pullback.loops import Buffer, Kernel

__all__ = ["EXCHANGE_CYCLES", "repeat_small"]

EXCHANGE_CYCLES = 1000.0
"""What threads lose in a phase by claiming chunks, waiting for each other and fetching what the other one wrote."""

MOST_USES = 3
"""Phases in which it is computed again; more would cost more than the exchange that they save."""


def repeat_small(
    phases: Sequence[Phase],
    before: Mapping[Kernel, Iterable[Kernel]],
    results: Iterable[Buffer],
    overwritten: Iterable[Buffer],
) -> list[Phase]:
    """The phases without those that all threads may as well compute where they need them.

    They depend on nothing but arguments that are not ``overwritten``, and give no ``results``. What must be checked
    ``before`` something is overwritten is still checked in an earlier phase.
    """
    found = list(phases)
    given = {*results, *overwritten}
    written = {buffer for phase in phases for job in _jobs(phase) for buffer in job.kernel.writes()}
    for phase in phases:
        jobs = _jobs(phase)
        users = [other for other in found if other is not phase and _uses(other, jobs)]
        if sum(job.cycles for job in jobs) > EXCHANGE_CYCLES or not 1 <= len(users) <= MOST_USES:
            continue
        if any(job.form.blocking is not None for user in users for job in _jobs(user)):
            continue  # its panels lie in scratch memory
        if all(_stands_alone(job, given, written) for job in jobs) and _in_time(
            jobs, users[0], found, before
        ):
            for user in users:
                user.first.extend(jobs)
            found.remove(phase)
    return found


def _jobs(phase: Phase) -> list[Job]:
    return [job for group in phase.groups for job in group.jobs]


def _uses(phase: Phase, jobs: Sequence[Job]) -> bool:
    """Whether the phase reads what ``jobs`` write."""
    made = {buffer for job in jobs for buffer in job.kernel.writes()}
    return any(made.intersection(job.kernel.reads()) for job in _jobs(phase))


def _stands_alone(job: Job, given: set[Buffer], written: set[Buffer]) -> bool:
    """Whether the job is a map that computes the same whenever it runs, in any memory."""
    if job.form != Form() or any(store.accumulate for store in job.kernel.stores):
        return False
    return not (given | written).intersection(job.kernel.reads()) and not given.intersection(
        job.kernel.writes()
    )


def _in_time(
    jobs: Sequence[Job], phase: Phase, phases: Sequence[Phase], before: Mapping[Kernel, Iterable[Kernel]]
) -> bool:
    """Whether what ``jobs`` check is checked early enough if ``phase`` is the first to do so."""
    checks = {job.given for job in jobs if has_checks(job.kernel)}
    late = {job.given for other in phases[: phases.index(phase) + 1] for job in _jobs(other)}
    return not any(checks.intersection(before.get(kernel, ())) for kernel in late)
