"""From kernels to regions: what may run side by side.

Kernels that treat the same rows (the samples of a batch, say) one by one form a *row group*: a chunk takes some rows
through all of them, one after another, without waiting for other chunks. A kernel that needs other rows, such as a
gradient summed over the batch, starts a new region. How rows become chunks is told in ``chunks.py``.

    region 0   rows 0-9 | rows 10-19 | …        forward and backward, sample by sample
    region 1   dw rows 0-48 | … | db | loss     sums over the batch, and the update in their epilogue

A kernel may have to wait for others before it goes on with the rows of an earlier region. Then the kernels that it goes
on from wait with it, unless somebody else needs them sooner: the gradient of a table of vectors is set to zero, added
to and used for the update a few rows at a time, and is never in memory as a whole. So do those that write other parts
of the same rows, such as every second column of them: their lines come into the cache once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from pullback.compiler.kernels.order import Needs, Users, users_of
from pullback.compiler.regions.chunks import in_chunks, wanted_chunks
from pullback.compiler.regions.steps import Group, Job, Region, buffers_of, keeps_to_rows
from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.schedules.cost import MOST_CHUNKS, SHORT_CYCLES
from pullback.compiler.schedules.map import MapSchedule
from pullback.loops import Kernel

__all__ = ["make_regions", "one_after_another", "row_groups"]

S = TypeVar("S")
"""A step of a program."""
Placed = Mapping[Kernel, tuple[int, Group, Job]]
"""For kernels the number of the region, the group and the job that they are in."""


def make_regions(
    kernels: Sequence[Kernel], before: Needs, schedules: Schedules, trips: int = 1
) -> list[Region]:
    """Regions of chunks, with each kernel in the earliest that its inputs allow; all are run ``trips`` times.

    ``before[kernel]`` are kernels that must have finished in an earlier region for another reason than what they
    write: they read memory that ``kernel`` overwrites, or check an index before anything is updated.
    """
    regions = row_groups(kernels, before, schedules, trips)
    for region in regions:
        region.groups = in_chunks(region.groups, schedules, trips)
    return one_after_another(regions, before)


def row_groups(
    kernels: Sequence[Kernel], before: Needs, schedules: Schedules, trips: int = 1
) -> list[Region]:
    """The same before rows are cut into chunks: groups of kernels that go on with each other's rows."""
    regions: list[Region] = []
    placed: dict[Kernel, tuple[int, Group, Job]] = {}
    order = Users(kernels)
    needs = {kernel: order.before(kernel) for kernel in kernels}
    users = users_of({kernel: (*needs[kernel], *before.get(kernel, ())) for kernel in kernels})
    for kernel in kernels:
        schedule = schedules.of(kernel)
        job = Job(kernel, schedule, schedule.cycles(kernel, schedules.target))
        producers = needs[kernel]
        earliest = max((placed[k][0] for k in producers), default=0)
        earliest = max([earliest, *(placed[k][0] + 1 for k in before.get(kernel, ()))])
        group = _join(job, [k for k in producers if placed[k][0] == earliest], placed)
        if group is None and any(placed[k][0] == earliest for k in producers):
            earliest += 1
        while len(regions) <= earliest:
            regions.append(Region())
        beside = (k for buffer in kernel.writes() for k in order.writers[buffer] if k in placed)
        sooner = [k for k in dict.fromkeys((*producers, *beside)) if placed[k][0] < earliest]
        waiting = _waiting(job, sooner, before.get(kernel, ()), placed, users)
        if group is None:
            same = [
                g for g in regions[earliest].groups if g.rows == job.rows > 1 and not (g.alone or job.alone)
            ]
            group = same[0] if same else Group(job.rows)
            if not same:
                regions[earliest].groups.append(group)
        for moved in waiting:
            position, left, _ = placed[moved.kernel]
            left.jobs.remove(moved)
            if not left.jobs:
                regions[position].groups.remove(left)
        for new in (*waiting, job):
            group.jobs.append(new)
            placed[new.kernel] = (earliest, group, new)
    for region in regions:
        region.groups = [part for group in region.groups for part in _parted(group, needs, schedules, trips)]
    return [region for region in regions if region.groups]


def _join(job: Job, producers: list[Kernel], placed: Placed) -> Group | None:
    """The row group of all ``producers`` if the job reads of them nothing but its own rows.

    A row of the job may be several of the group's, which are then taken together: in short programs, and where the
    job has rows for many chunks and each is whole vectors of the group's maps.
    """
    groups = {id(placed[k][1]): placed[k][1] for k in producers}
    if len(groups) != 1 or job.rows == 1 or job.alone:
        return None
    (group,) = groups.values()
    if group.alone or group.rows % job.rows or not all(_same_rows(placed[k][2], job) for k in producers):
        return None
    if group.rows != job.rows:
        pitch = group.rows // job.rows
        vectors = [each.schedule.alignment for each in group.jobs if isinstance(each.schedule, MapSchedule)]
        many = job.rows >= MOST_CHUNKS and all(pitch % rows == 0 for rows in vectors)
        if len(vectors) < len(group.jobs) or not (many or group.cycles < SHORT_CYCLES):
            return None
        for other in group.jobs:
            other.pitch *= pitch
        group.rows = job.rows
    return group


def _waiting(
    job: Job, sooner: Sequence[Kernel], finished: Iterable[Kernel], placed: Placed, users: Needs
) -> list[Job]:
    """Jobs of earlier regions that may run just before ``job``, row by row: nobody placed so far needs them sooner.

    They are those of the kernels ``sooner``, whose values or parts of rows it goes on with, and what only these go on
    from. What must have ``finished`` in an earlier region stays where it is, but for what reads no other rows of the
    memory that ``job`` overwrites than it goes on with.
    """
    if job.rows == 1 or job.alone:
        return []
    fitting = {
        k
        for k in sooner
        if placed[k][1].rows == job.rows and not placed[k][1].alone and _same_rows(placed[k][2], job)
    }
    ending = fitting.intersection(finished)
    fitting -= {k for k in ending if k.has_checks or not _reads_own_rows(placed[k][2], job)}
    staying = {*finished, *sooner} - fitting
    groups = {id(placed[k][1]): placed[k][1] for k in sooner if k in fitting}
    found: list[Job] = []
    for group in groups.values():
        moved = list[Job]()
        kernels = set[Kernel]()
        for other in reversed(group.jobs):
            later = {k for k in users[other.kernel] if k in placed}
            if other.kernel in staying or not later <= kernels:
                continue
            if later or other.kernel in fitting:
                moved.insert(0, other)
                kernels.add(other.kernel)
        found += moved
    return found


def _same_rows(producer: Job, consumer: Job) -> bool:
    """Whether row ``r`` of the consumer reads only what row ``r`` of the producer wrote.

    The rows of a scatter are mostly those of its target. What it adds there, and where, it then reads from anywhere.
    """
    touched = buffers_of(consumer.kernel)
    handed_on = [buffer for buffer in producer.kernel.writes() if buffer in touched]
    return all(keeps_to_rows(job, buffer) for buffer in handed_on for job in (producer, consumer))


def _reads_own_rows(reader: Job, writer: Job) -> bool:
    """Whether the reader touches only its own rows of all arrays like those that the writer writes.

    A result is written into the memory of an argument of its own type; which one does not matter here.
    """
    types = {(buffer.dtype, buffer.shape) for buffer in writer.kernel.writes()}
    like = [buffer for buffer in reader.kernel.reads() if (buffer.dtype, buffer.shape) in types]
    return all(keeps_to_rows(reader, buffer) for buffer in like)


def _parted(group: Group, needs: Needs, schedules: Schedules, trips: int) -> list[Group]:
    """The group without maps whose vectors are longer than its shares, if they have nothing to do with its other jobs.

    Those are groups of their own: one by one, a vector's rows would take as long as so many vectors.
    """
    share = max(1, group.rows // wanted_chunks(group, schedules, trips))
    used = {kernel for job in group.jobs for kernel in needs[job.given]}
    kernels = {job.given for job in group.jobs}
    apart = [
        job
        for job in group.jobs
        if isinstance(job.schedule, MapSchedule) and job.schedule.alignment > share
        if job.given not in used and kernels.isdisjoint(needs[job.given])
    ]
    rest = [job for job in group.jobs if job not in apart]
    return [Group(group.rows, jobs) for jobs in (rest, *([job] for job in apart)) if jobs]


def one_after_another(steps: Iterable[S], before: Needs) -> list[S | Region]:
    """Regions of a single chunk that follow each other as one: whoever runs the first goes on without an exchange.

    What a failure must stop stays in a region after the one that may fail.
    """
    joined: list[S | Region] = []
    for step in steps:
        match [*joined[-1:], step]:
            case [
                Region(groups=[Group(chunks=1, turns=None)]) as first,
                Region(groups=[Group(chunks=1, turns=None)]) as second,
            ] if not _may_stop(first, second, before):
                joined[-1] = Region([Group(1, [*first.jobs, *second.jobs])])
            case _:
                joined.append(step)
    return joined


def _may_stop(first: Region, second: Region, before: Needs) -> bool:
    """Whether what a region finds may be why another one must not begin."""
    may_fail = {job.given for job in first.jobs if job.kernel.has_checks}
    return any(may_fail.intersection(before.get(job.given, ())) for job in second.jobs)
