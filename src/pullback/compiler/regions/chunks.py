"""How the work of a region is cut into chunks: as many as last long enough, and come out even among the cores.

    a group of 96 rows          grain 24: 4 chunks; for 16 cores grain 6: 16 chunks, in smaller tiles

What is computed, and in what order sums are taken, is decided before, for two threads on any machine. How rows and
blocks are dealt out shows in no result.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace

from pullback.compiler.kernels.canonicalise import coalesced_rows
from pullback.compiler.kernels.short_rows import join_short_rows
from pullback.compiler.regions.steps import Group, Job
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
    READING,
    SHARED_BY,
    STAYING,
    UNEVEN_REGION,
    WORTH_CUTTING,
)
from pullback.compiler.schedules.map import MapSchedule, schedule_map
from pullback.compiler.schedules.reduction_vectorised import ReductionVectorised
from pullback.compiler.schedules.scatter import ScatterSchedule
from pullback.compiler.target import Processor

__all__ = ["in_chunks", "wanted_chunks"]

_TILED = (TiledContraction, ReductionVectorised)


def in_chunks(groups: list[Group], schedules: Schedules, trips: int) -> list[Group]:
    """The groups of a region that is run ``trips`` times, with their grains, in the order of their weight."""
    for group in groups:
        together = len(group.jobs) > 1 or group.rows == 1
        for job in group.jobs:
            if isinstance(job.schedule, MapSchedule):
                kernel = job.kernel if together else coalesced_rows(job.kernel)
                kernel = join_short_rows(kernel, schedules, together)
                if kernel is not job.kernel:
                    job.kernel = kernel
                    job.schedule = schedule_map(kernel, schedules.lanes(kernel), schedules.target)
                if not together:
                    group.rows = job.rows
        _cut(group, schedules, trips)
    if schedules.sharers > SHARED_BY:
        _share_evenly(groups, schedules, trips)
    return _bounded(_gathered(groups, schedules.target.chunk_cycles))


def _cut(group: Group, schedules: Schedules, trips: int) -> int:
    """Choose the grain of each chunk: whole tiles of the longest product, whole vectors of maps.

    Gives the one that tiles are not asked about.
    """
    if isinstance(group.jobs[0].schedule, PackedContraction):
        return group.grain
    share = max(1, group.rows // wanted_chunks(group, schedules, trips))
    tiled = [job for job in group.jobs if isinstance(job.schedule, _TILED)]
    others = (job for job in group.jobs if job not in tiled)
    aligned = max((_alignment(job, group, schedules, share) for job in others), default=1)  # powers of two
    step = _tile_rows(max(tiled, key=lambda job: job.cycles)) if tiled else 1
    step = -(-step // aligned) * aligned
    group.grain, within = (min(group.rows, -(-share // each) * each) for each in (step, aligned))
    return within


def _share_evenly(groups: Sequence[Group], schedules: Schedules, trips: int) -> None:
    """Finer tiles, blocks and grains of the groups of a region that keep its threads waiting.

    In what order sums are taken is the same for any number of cores, and so are results.
    """
    sharers = schedules.sharers
    cycles = sum(group.cycles for group in groups)
    enough = UNEVEN_REGION * cycles / sharers
    for parts in (1, 2):
        if _makespan(groups, sharers) <= enough:
            return
        # There are few: their chunks are as long as a thread's share, or half of it.
        for group in [group for group in groups if parts * group.cycles / group.chunks > enough]:
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
    """Bytes of the operands of a product that the rows of each chunk meet as a whole."""
    if not isinstance(job.schedule, TiledContraction):
        return 0
    product, rows = job.schedule.contraction, job.kernel.axes[0]
    operands = (operand for pair in product.pairs for operand in (pair.left, pair.right))
    return sum(operand.buffer.nbytes for operand in operands if rows not in operand.axes)


def _time(group: Group, grain: int, beside: float, sharers: int) -> float:
    """Cycles of a region for chunks of so many rows of a group: a product takes whole tiles for any number of rows.

    While a chunk is done, other threads do what is ``beside`` the group.
    """
    chunk = sum(job.cycles * max(grain, min(_tile_rows(job), group.rows)) for job in group.jobs) / group.rows
    chunks = -(-group.rows // grain)
    return max(-(-chunks // sharers) * chunk, (chunks * chunk + beside) / sharers)


def _tile_rows(job: Job) -> int:
    """The rows of a product's tile, or of a vector of rows that are summed; 1 of all else."""
    return job.schedule.nest.grain if isinstance(job.schedule, _TILED) else 1


def wanted_chunks(group: Group, schedules: Schedules, trips: int) -> int:
    """Chunks that last long enough; of a scatter fewer, but so many that their rows stay in the cache.

    Those that each read an operand that the nearer caches do not hold are as many as threads, or few times as many.
    """
    target = schedules.target
    wanted = min(_most_chunks(group, target), int(group.cycles * trips / target.chunk_cycles))
    read = sum(map(_read_by_all, group.jobs))
    if read >= target.l2_bytes:
        times = int(READING * group.cycles * target.bytes_per_cycle / read) // schedules.sharers
        wanted = min(wanted, max(1, times) * schedules.sharers)
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
    joined = coalesced_rows(job.kernel) if together else job.kernel
    if joined is not job.kernel:
        pitch = joined.axes[0].extent // group.rows
        over_rows = schedule_map(joined, lanes, schedules.target)
        aligned = over_rows.alignment // math.gcd(over_rows.alignment, pitch)
        if aligned <= share:
            job.kernel, job.schedule, job.pitch = joined, over_rows, pitch
            return aligned
    aligned = job.schedule.alignment
    aligned //= math.gcd(aligned, job.pitch)
    if together and aligned > max(1, share):
        job.schedule = schedule_map(job.kernel, lanes, schedules.target, row_by_row=True)
        return 1
    return aligned


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
