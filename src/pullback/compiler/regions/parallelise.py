"""From kernels to regions: what may run side by side, and how the work of a region is cut into chunks.

Kernels that treat the same rows (the samples of a batch, say) one by one form a *row group*: a chunk takes some rows
through all of them, one after another, without waiting for other chunks. A kernel that needs other rows, such as a
gradient summed over the batch, starts a new region. Chunks depend on shapes alone, never on the number of threads.

    region 0   rows 0-9 | rows 10-19 | …        forward and backward, sample by sample
    region 1   dw rows 0-48 | … | db | loss     sums over the batch, and the update in their epilogue

A kernel may have to wait for others before it goes on with the rows of an earlier region. Then the kernels that it goes
on from wait with it, unless somebody else needs them sooner: the gradient of a table of vectors is set to zero, added
to and used for the update a few rows at a time, and is never in memory as a whole.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pullback.compiler.kernels.canonicalise import coalesced_rows
from pullback.compiler.kernels.order import added, dependencies
from pullback.compiler.regions.steps import Group, Job, Region, keeps_to_rows
from pullback.compiler.runtime.layout import MAX_CHUNKS
from pullback.compiler.schedules.choose import Schedules, choose_schedule
from pullback.compiler.schedules.contraction_schedules import (
    ContractionSchedule,
    PackedContraction,
    TiledContraction,
)
from pullback.compiler.schedules.cost import (
    COMPARING,
    FEWEST_READING,
    MOST_CHUNKS,
    SHARED_BY,
    SHORT_CYCLES,
    STAYING,
    UNEVEN_REGION,
    WORTH_CUTTING,
)
from pullback.compiler.schedules.map import MapSchedule, schedule_map
from pullback.compiler.schedules.reduction_vectorised import ReductionVectorised
from pullback.compiler.schedules.scatter import ScatterSchedule
from pullback.compiler.target import Processor
from pullback.loops import Kernel

__all__ = ["make_regions", "one_after_another"]

S = TypeVar("S")
"""A step of a program."""


def make_regions(
    kernels: Sequence[Kernel],
    before: Mapping[Kernel, Iterable[Kernel]],
    schedules: Schedules,
    trips: int = 1,
) -> list[Region]:
    """Place each kernel in the earliest region that its inputs allow; all of them are run ``trips`` times.

    ``before[kernel]`` are kernels that must have finished in an earlier region for another reason than what they
    write: they read memory that ``kernel`` overwrites, or check an index before anything is updated.
    """
    regions: list[Region] = []
    placed: dict[Kernel, tuple[int, Group, Job]] = {}
    needs = dependencies(kernels)
    users: dict[Kernel, set[Kernel]] = {kernel: set() for kernel in kernels}
    for kernel in kernels:
        for other in (*needs[kernel], *before.get(kernel, ())):
            users[other].add(kernel)
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
        sooner = [k for k in producers if placed[k][0] < earliest]
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
        for group in region.groups:
            if len(group.jobs) == 1 and isinstance(group.jobs[0].schedule, MapSchedule) and group.rows > 1:
                (job,) = group.jobs
                _coalesce(job, coalesced_rows(job.kernel), schedules)
                group.rows = job.rows
            _cut(group, schedules, trips)
        if schedules.sharers > SHARED_BY:
            _share_evenly(region.groups, schedules, trips)
        region.groups = _bounded(_gathered(region.groups, schedules.target.chunk_cycles))
    return one_after_another([region for region in regions if region.groups], before)


def _join(job: Job, producers: list[Kernel], placed: Mapping[Kernel, tuple[int, Group, Job]]) -> Group | None:
    """The row group of all ``producers`` if the job reads of them nothing but its own rows.

    A row of the job may be several of the group's, which are then taken together: in short programs, and where the
    job has rows for many chunks.
    """
    groups = {id(placed[k][1]): placed[k][1] for k in producers}
    if len(groups) != 1 or job.rows == 1 or job.alone:
        return None
    (group,) = groups.values()
    if group.alone or group.rows % job.rows or not all(_same_rows(placed[k][2], job) for k in producers):
        return None
    if group.rows != job.rows:
        pitch = group.rows // job.rows
        if not (group.cycles < SHORT_CYCLES or (job.rows >= MOST_CHUNKS and _in_whole_vectors(group, pitch))):
            return None
        if any(not isinstance(other.schedule, MapSchedule) for other in group.jobs):
            return None
        for other in group.jobs:
            other.pitch *= pitch
        group.rows = job.rows
    return group


def _in_whole_vectors(group: Group, rows: int) -> bool:
    """Whether so many rows of the group's maps are whole vectors."""
    return all(
        isinstance(job.schedule, MapSchedule) and rows % job.schedule.alignment == 0 for job in group.jobs
    )


def _waiting(
    job: Job,
    producers: Sequence[Kernel],
    finished: Iterable[Kernel],
    placed: Mapping[Kernel, tuple[int, Group, Job]],
    users: Mapping[Kernel, set[Kernel]],
) -> list[Job]:
    """Jobs of earlier regions that may run just before ``job``, row by row: nobody placed so far needs them sooner.

    They are those of its ``producers`` whose rows it goes on with, and what only these go on from. What must have
    ``finished`` in an earlier region stays where it is, but for what reads no other rows of the memory that ``job``
    overwrites than it goes on with.
    """
    if job.rows == 1 or job.alone:
        return []
    fitting = {
        k
        for k in producers
        if placed[k][1].rows == job.rows and not placed[k][1].alone and _same_rows(placed[k][2], job)
    }
    ending = fitting.intersection(finished)
    fitting -= {k for k in ending if k.has_checks or not _reads_own_rows(placed[k][2], job)}
    staying = {*finished, *producers} - fitting
    groups = {id(placed[k][1]): placed[k][1] for k in producers if k in fitting}
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
    for buffer in producer.kernel.writes():
        written = buffer in consumer.kernel.writes()
        if written and added(consumer.kernel) and not isinstance(consumer.schedule, ScatterSchedule):
            return False
        used = written or buffer in consumer.kernel.reads()
        if used and not (keeps_to_rows(producer, buffer) and keeps_to_rows(consumer, buffer)):
            return False
    return True


def _reads_own_rows(reader: Job, writer: Job) -> bool:
    """Whether the reader touches only its own rows of all arrays like those that the writer writes.

    A result is written into the memory of an argument of its own type; which one does not matter here.
    """
    types = {(buffer.dtype, buffer.shape) for buffer in writer.kernel.writes()}
    like = [buffer for buffer in reader.kernel.reads() if (buffer.dtype, buffer.shape) in types]
    return all(keeps_to_rows(reader, buffer) for buffer in like)


def _parted(
    group: Group, needs: Mapping[Kernel, Iterable[Kernel]], schedules: Schedules, trips: int
) -> list[Group]:
    """The group without maps whose vectors are longer than its shares, if they have nothing to do with its other jobs.

    Those are groups of their own: one by one, a vector's rows would take as long as so many vectors.
    """
    share = max(1, group.rows // _wanted_chunks(group, schedules, trips))
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


def _cut(group: Group, schedules: Schedules, trips: int) -> int:
    """Choose the grain of each chunk: whole tiles of the longest product, whole vectors of maps.

    Gives the one that tiles are not asked about.
    """
    if isinstance(group.jobs[0].schedule, PackedContraction):
        return group.grain
    share = max(1, group.rows // _wanted_chunks(group, schedules, trips))
    step = aligned = 1
    heaviest = 0.0
    for job in group.jobs:
        if isinstance(job.schedule, (TiledContraction, ReductionVectorised)):
            if job.cycles > heaviest:
                step, heaviest = job.schedule.nest.grain, job.cycles
        else:
            aligned = max(aligned, _alignment(job, group, schedules, share))  # powers of two
    step = -(-step // aligned) * aligned
    group.grain, within = (min(group.rows, -(-share // each) * each) for each in (step, aligned))
    return within


def _share_evenly(groups: Sequence[Group], schedules: Schedules, trips: int) -> None:
    """Finer tiles, blocks and grains of the groups of a region that keep its threads waiting.

    In what order sums are taken is the same for any number of cores, and so are results.
    """
    sharers = schedules.sharers
    cycles = sum(group.cycles for group in groups)
    for parts in (1, 2):
        for group in groups:
            if _makespan(groups, sharers) <= UNEVEN_REGION * cycles / sharers:
                return
            if parts * group.cycles / group.chunks > UNEVEN_REGION * cycles / sharers:
                wanted = min(sharers, parts * sharers * group.cycles / cycles)
                _cut_finely(group, wanted, cycles - group.cycles, schedules, trips)


def _makespan(groups: Sequence[Group], sharers: int) -> float:
    """When the last of so many threads is done, if each takes the longest chunk that is left whenever it is free.

    >>> from types import SimpleNamespace
    >>> _makespan([SimpleNamespace(cycles=12.0, chunks=3), SimpleNamespace(cycles=6.0, chunks=6)], 4)
    5.0
    """
    busy = [0.0] * sharers
    for group in sorted(groups, key=lambda group: -group.cycles / group.chunks):
        for _ in range(group.chunks):
            heapq.heapreplace(busy, busy[0] + group.cycles / group.chunks)
    return max(busy)


def _cut_finely(group: Group, wanted: float, beside: float, schedules: Schedules, trips: int) -> None:
    """Smaller tiles and blocks for products, for about so many chunks, and a grain within tiles where that pays."""
    sharers, target = schedules.sharers, schedules.target
    wanted = min(wanted, group.cycles * trips / target.chunk_cycles)
    near = STAYING * target.l2_bytes if trips > 1 else target.private_bytes
    if any(_read_by_all(job) > near for job in group.jobs):
        wanted = min(wanted, group.rows / FEWEST_READING)
    if wanted <= SHARED_BY:
        return
    finer = replace(target, cores=math.ceil(wanted))
    for job in group.jobs:
        if isinstance(job.schedule, ContractionSchedule):
            job.schedule = choose_schedule(job.kernel, finer)
    if group.alone:
        group.rows = group.jobs[0].rows
    within = _cut(group, schedules, trips)
    if _time(group, within, beside, sharers) < WORTH_CUTTING * _time(group, group.grain, beside, sharers):
        group.grain = within


def _read_by_all(job: Job) -> int:
    """Bytes of the right operand of a product that the rows of each chunk meet as a whole."""
    if not isinstance(job.schedule, TiledContraction) or not job.kernel.axes:
        return 0
    product, rows = job.schedule.contraction, job.kernel.axes[0]
    return sum(pair.right.buffer.nbytes for pair in product.pairs if rows not in pair.right.axes)


def _time(group: Group, grain: int, beside: float, sharers: int) -> float:
    """Cycles of a region for chunks of so many rows of a group: a product takes whole tiles for any number of rows.

    While a chunk is done, other threads do what is ``beside`` the group.
    """
    chunk = sum(job.cycles * max(grain, min(_tile_rows(job), group.rows)) for job in group.jobs) / group.rows
    chunks = -(-group.rows // grain)
    return max(-(-chunks // sharers) * chunk, (chunks * chunk + beside) / sharers)


def _tile_rows(job: Job) -> int:
    """The rows of a product's tile, or of a vector of rows that are summed; 1 of all else."""
    return job.schedule.nest.grain if isinstance(job.schedule, (TiledContraction, ReductionVectorised)) else 1


def _wanted_chunks(group: Group, schedules: Schedules, trips: int) -> int:
    """Chunks that last long enough; of a scatter fewer, but so many that their rows stay in the cache."""
    target = schedules.target
    wanted = min(_most_chunks(group, target), int(group.cycles * trips / target.chunk_cycles))
    scatters = [
        (job.schedule, schedules.lanes(job.kernel))
        for job in group.jobs
        if isinstance(job.schedule, ScatterSchedule) and not job.schedule.disjoint
    ]
    if scatters:
        most = min(scatter.most_grains(width) for scatter, width in scatters)
        shares = [
            schedules.share(scatter.selector) for scatter, _ in scatters if scatter.selector is not None
        ]
        most = int(most / min(shares, default=1.0))  # chunks of rows that there are not take no time
        wanted = min(wanted, max(1, int(COMPARING * most)))
        own = {store.buffer for job in group.jobs for store in job.kernel.stores}
        if len(group.jobs) > 1:
            wanted = max(wanted, sum(buffer.nbytes for buffer in own) // target.private_bytes)
        wanted = min(wanted, most)
    return max(1, wanted)


def _most_chunks(group: Group, target: Processor) -> int:
    """More than usual where rows that a job hands on to the next one leave the nearest cache otherwise.

    But for contractions that go through all rows of a chunk with some columns of a large operand, to read it seldom.
    """
    if any(isinstance(job.schedule, TiledContraction) and job.schedule.by_columns for job in group.jobs):
        return MOST_CHUNKS
    made = {buffer for job in group.jobs for buffer in job.kernel.writes()}
    handed_on = made.intersection(buffer for job in group.jobs for buffer in job.kernel.reads())
    return max(MOST_CHUNKS, sum(buffer.nbytes for buffer in handed_on) // target.l1_bytes)


def _alignment(job: Job, group: Group, schedules: Schedules, share: int) -> int:
    """What the grains of a kernel's first axis must be multiples of.

    Rows of a map that follow each other in memory are coalesced, and lanes may lie along the rows, if a ``share`` is
    long enough for whole vectors. Where it is not and others share the rows with it, the map goes row by row.
    """
    lanes = schedules.lanes(job.kernel)
    if not isinstance(job.schedule, MapSchedule):
        return job.schedule.aligned(job.kernel, lanes)
    together = len(group.jobs) > 1
    joined = coalesced_rows(job.kernel)
    pitch = joined.axes[0].extent // group.rows if joined.axes else 1
    over_rows = schedule_map(joined, lanes, schedules.target)
    aligned = over_rows.alignment // math.gcd(over_rows.alignment, pitch)
    if together and joined is not job.kernel and aligned <= share:
        job.kernel, job.schedule, job.pitch = joined, over_rows, pitch
        return aligned
    aligned = job.schedule.alignment
    aligned //= math.gcd(aligned, job.pitch)
    if together and aligned > max(1, share):
        job.schedule = schedule_map(job.kernel, lanes, schedules.target, row_by_row=True)
        return 1
    return aligned


def _coalesce(job: Job, kernel: Kernel, schedules: Schedules) -> None:
    """Give a map another kernel, with the schedule that it has then."""
    if kernel is not job.kernel:
        job.kernel, job.schedule = kernel, schedule_map(kernel, schedules.lanes(kernel), schedules.target)


def _gathered(groups: list[Group], chunk_cycles: float) -> list[Group]:
    """Groups by weight, before them the small ones that are not cut, together in one chunk.

    The caller begins at the front: small ones mostly read and write what it has just had in its cache.
    """
    small = [g for g in groups if g.chunks == 1 and g.cycles < chunk_cycles]
    rest = sorted((g for g in groups if g not in small), key=lambda g: -g.cycles / g.chunks)
    bundles: list[Group] = []
    for group in small:
        if bundles and bundles[-1].cycles + group.cycles < chunk_cycles:
            bundles[-1].jobs.extend(group.jobs)
        else:
            bundles.append(Group(1, list(group.jobs), 1))
    return bundles + rest


def _bounded(groups: list[Group], most: int = MAX_CHUNKS) -> list[Group]:
    """The groups of a region in at most ``most`` chunks: larger shares first, then whole groups in one chunk.

    Shares are multiplied, so they still consist of whole tiles and vectors.

    >>> [group.chunks for group in _bounded([Group(960, grain=10), Group(40), Group(9, grain=9)], 64)]
    [24, 20, 1]
    >>> [group.chunks for group in _bounded([Group(2) for _ in range(9)], 4)]
    [1, 1, 1]
    """
    longest = max((group.chunks for group in groups), default=1)
    while longest > 1 and sum(group.chunks for group in groups) > most:
        longest = -(-longest // 2)
        for group in groups:
            group.grain = min(group.rows, group.grain * -(-group.chunks // longest))
    if len(groups) <= most:
        return groups
    together = -(-len(groups) // most)
    bundles = [groups[first : first + together] for first in range(0, len(groups), together)]
    return [Group(1, [job for group in bundle for job in group.jobs]) for bundle in bundles]


def one_after_another(steps: Iterable[S], before: Mapping[Kernel, Iterable[Kernel]]) -> list[S | Region]:
    """Regions of a single chunk that follow each other as one: whoever runs the first goes on without an exchange.

    What a failure must stop stays in a region after the one that may fail.
    """
    joined: list[S | Region] = []
    for step in steps:
        one = _joined(joined[-1], step, before) if joined else None
        if one is None:
            joined.append(step)
        else:
            joined[-1] = one
    return joined


def _joined(first: object, second: object, before: Mapping[Kernel, Iterable[Kernel]]) -> Region | None:
    """Two regions of a single chunk each as one that does one after the other, without a loop in either."""
    if not (isinstance(first, Region) and isinstance(second, Region)):
        return None
    groups = (*first.groups, *second.groups)
    if len(groups) != 2 or any(group.chunks > 1 or group.turns is not None for group in groups):
        return None
    may_fail = {job.given for job in first.jobs if job.kernel.has_checks}
    if any(may_fail.intersection(before.get(job.given, ())) for job in second.jobs):
        return None
    return Region([Group(1, [*first.jobs, *second.jobs])])
