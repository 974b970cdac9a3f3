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

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pullback.compiler.canonicalise import coalesced_rows
from pullback.compiler.codegen.maps import alignment
from pullback.compiler.cost import kernel_cycles
from pullback.compiler.form import Form
from pullback.compiler.items import Counter, HostCall, View
from pullback.compiler.order import dependencies
from pullback.compiler.runtime.layout import MAX_CHUNKS
from pullback.compiler.schedules.tiles import Tile, choose_tile
from pullback.loops import Buffer, Kernel
from pullback.loops.arithmetic import in_row

__all__ = [
    "Choose",
    "Group",
    "Job",
    "Region",
    "Repeat",
    "Serial",
    "Step",
    "While",
    "every_region",
    "every_step",
    "joined_region",
    "keeps_to_rows",
    "make_regions",
]

CHUNK_CYCLES = 6000.0
"""A chunk should last at least this long: claiming one costs about a hundred cycles."""

MOST_CHUNKS = 32

SHORT_CYCLES = 120_000.0
"""Row groups that take less go on with a kernel of fewer, longer rows: waiting costs more than uneven shares."""

COMPARING = 0.25
"""What each chunk of a scatter spends on comparing all places with its rows, as a part of adding the updates.

More of them, until it takes as long as adding, only where their rows would leave the cache.
"""

KEPT_BYTES = 1 << 19
"""What a chunk's rows of a scatter's target, and all that goes with them, may take: so much stays in the cache."""


@dataclass(eq=False)
class Job:
    """A kernel with what the code generator decides about it."""

    kernel: Kernel
    form: Form
    cycles: float
    tile: Tile | None = None
    row_by_row: bool = False
    pitch: int = 1
    """Turns of the kernel's first axis for each row of its group, where rows or axes were joined."""
    given: Kernel = field(init=False)
    """The kernel as it was before its axes were joined: the one that others wait for."""

    def __post_init__(self) -> None:
        self.given = self.kernel

    @property
    def alone(self) -> bool:
        """Whether something else than rows is shared out: blocks of a large product, parts of a scatter's rows."""
        scatter = self.form.scatter
        shared = scatter is None or scatter.outermost or scatter.apart
        return self.form.packing is not None or not shared

    @property
    def turns(self) -> int:
        """Turns of the first axis, blocks of a large product, or rows of a scatter's target."""
        if self.form.packing is not None:
            return self.form.packing.blocks
        if self.form.scatter is not None:
            return self.form.scatter.rows
        return self.kernel.axes[0].extent if self.kernel.axes else 1

    @property
    def rows(self) -> int:
        """What is shared out, in rows of the job's group; 1 where nothing may be."""
        if self.form.scatter is None and any(store.accumulate for store in self.kernel.stores):
            return 1
        return self.turns // self.pitch


@dataclass(eq=False)
class Group:
    """Jobs over the same rows, cut into chunks of ``grain`` rows."""

    rows: int
    jobs: list[Job] = field(default_factory=list)
    grain: int = 1
    turns: Counter | None = None
    """The loop that a chunk runs through for its rows, all jobs in every turn, without waiting for other chunks."""

    @property
    def cycles(self) -> float:
        """Estimated time of all jobs."""
        return sum(job.cycles for job in self.jobs)

    @property
    def alone(self) -> bool:
        """Whether no other job may be added."""
        return self.jobs[0].alone

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return -(-self.rows // self.grain)

    def grains(self) -> list[int]:
        """The lengths of chunks that occur."""
        last = self.rows % self.grain
        return [self.grain, last] if last and self.rows > self.grain else [last or self.grain]


@dataclass(eq=False)
class Region:
    """Groups that run side by side; the heaviest first."""

    groups: list[Group] = field(default_factory=list)
    first: list[Job] = field(default_factory=list)
    """What each thread that takes part computes for itself before its first chunk."""

    def order(self) -> list[int]:
        """The chunks, numbered group by group, in the order in which they are dealt out to threads.

        Single ones come first; then any range has its share of every group, and of the same rows of each.

        >>> rows = [Group(6, grain=2), Group(1), Group(12, grain=2)]
        >>> Region(rows).order()
        [3, 4, 0, 5, 6, 1, 7, 8, 2, 9]
        """
        found: list[tuple[float, int]] = []
        for group in self.groups:
            parts = [0.0] if group.chunks == 1 else [(k + 0.5) / group.chunks for k in range(group.chunks)]
            found += [(part, len(found) + k) for k, part in enumerate(parts)]
        return [chunk for _, chunk in sorted(found)]


@dataclass(eq=False)
class Repeat:
    """Steps that are run ``counter.trips`` times, all threads together."""

    counter: Counter
    steps: list[Step]


@dataclass(eq=False)
class Choose:
    """Of several branches the one that is run: that whose number lies at ``index``, or the first or the last."""

    index: View
    branches: list[list[Step]]

    @property
    def steps(self) -> list[Step]:
        """Those of all branches."""
        return [step for branch in self.branches for step in branch]


@dataclass(eq=False)
class Serial:
    """Steps that one thread runs from end to end, as the one chunk of a region."""

    steps: list[Step]


@dataclass(eq=False)
class While:
    """A condition that is asked, and a body that is run while its ``flag`` is not 0; inside a ``Serial`` only."""

    flag: View
    condition: list[Step]
    body: list[Step]

    @property
    def steps(self) -> list[Step]:
        """Those of a turn."""
        return [*self.condition, *self.body]


Step = Region | Repeat | Choose | Serial | While | HostCall


Around = tuple[Repeat | Choose | Serial | While, ...]
"""The steps around another one, outermost first."""


def every_step(steps: Iterable[Step]) -> Iterator[tuple[Region | HostCall, Around]]:
    """All regions and calls out of the program, with the steps around each."""
    for step in steps:
        if isinstance(step, (Region, HostCall)):
            yield step, ()
        else:
            for inside, around in every_step(step.steps):
                yield inside, (step, *around)


def every_region(steps: Iterable[Step]) -> Iterator[tuple[Region, Around]]:
    """All regions with the steps around each."""
    return ((step, around) for step, around in every_step(steps) if isinstance(step, Region))


def make_regions(
    kernels: Sequence[Kernel],
    before: Mapping[Kernel, Iterable[Kernel]],
    lanes: Callable[[Kernel], int],
    form_of: Callable[[Kernel], Form],
    registers: int,
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
        form = form_of(kernel)
        job = Job(kernel, form, kernel_cycles(kernel, form.product, lanes(kernel)))
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
        region.groups = [part for group in region.groups for part in _parted(group, needs, lanes, trips)]
        for group in region.groups:
            if len(group.jobs) == 1 and group.jobs[0].form == Form() and group.rows > 1:
                group.jobs[0].kernel = coalesced_rows(group.jobs[0].kernel)
                group.rows = group.jobs[0].rows
            _cut(group, lanes, registers, trips)
        region.groups = _bounded(_gathered(region.groups))
    return _one_after_another([region for region in regions if region.groups], before)


def _join(job: Job, producers: list[Kernel], placed: Mapping[Kernel, tuple[int, Group, Job]]) -> Group | None:
    """The row group of all ``producers`` if the job reads of them nothing but its own rows.

    A row of the job may be several of the group's, which are then taken together.
    """
    groups = {id(placed[k][1]): placed[k][1] for k in producers}
    if len(groups) != 1 or job.rows == 1 or job.alone:
        return None
    (group,) = groups.values()
    if group.alone or group.rows % job.rows or not all(_same_rows(placed[k][2], job) for k in producers):
        return None
    if group.rows != job.rows:
        if group.cycles >= SHORT_CYCLES or any(other.form != Form() for other in group.jobs):
            return None
        for other in group.jobs:
            other.pitch *= group.rows // job.rows
        group.rows = job.rows
    return group


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
    groups = {id(placed[k][1]): placed[k][1] for k in fitting}
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
        if (
            written
            and any(store.accumulate for store in consumer.kernel.stores)
            and consumer.form.scatter is None
        ):
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


def keeps_to_rows(job: Job, buffer: Buffer) -> bool:
    """Whether row ``r`` of the job touches nothing of ``buffer`` but its row ``r``."""
    kernel, scatter = job.given, job.form.scatter
    rows = kernel.axes[0].extent if scatter is None and kernel.axes else job.rows
    if buffer.size % rows:
        return False
    pitch = buffer.size // rows
    if scatter is not None and not scatter.apart:
        return scatter.outermost and all(load.buffer is not buffer for load in kernel.loads())
    uses = [(load.offset, load.dynamic) for load in kernel.loads() if load.buffer is buffer]
    uses += [(store.offset, store.dynamic) for store in kernel.stores if store.buffer is buffer]
    return all(in_row(offset, dynamic, pitch, kernel.axes[0]) for offset, dynamic in uses)


def _parted(
    group: Group, needs: Mapping[Kernel, Iterable[Kernel]], lanes: Callable[[Kernel], int], trips: int
) -> list[Group]:
    """The group without maps whose vectors are longer than its shares, if they have nothing to do with its other jobs.

    Those are groups of their own: one by one, a vector's rows would take as long as so many vectors.
    """
    share = max(1, group.rows // _wanted_chunks(group, lanes, trips))
    used = {kernel for job in group.jobs for kernel in needs[job.given]}
    kernels = {job.given for job in group.jobs}
    apart = [
        job
        for job in group.jobs
        if job.form == Form() and alignment(job.kernel, lanes(job.kernel)) > share
        if job.given not in used and kernels.isdisjoint(needs[job.given])
    ]
    rest = [job for job in group.jobs if job not in apart]
    return [Group(group.rows, jobs) for jobs in (rest, *([job] for job in apart)) if jobs]


def _cut(group: Group, lanes: Callable[[Kernel], int], registers: int, trips: int) -> None:
    """Choose the share of rows of each chunk, whole tiles of the longest product, and the register tiles."""
    if group.jobs[0].form.packing is not None:
        return
    share = max(1, group.rows // _wanted_chunks(group, lanes, trips))
    step = aligned = 1
    heaviest = 0.0
    for job in group.jobs:
        product = job.form.product
        if product is not None:
            job.tile = choose_tile(product, lanes(job.kernel), registers)
            if product.rows and job.tile.row_axis is product.rows[0] and job.cycles > heaviest:
                step, heaviest = job.tile.rows, job.cycles
        else:
            aligned = max(aligned, _alignment(job, group, lanes(job.kernel), share))  # powers of two
    step = -(-step // aligned) * aligned
    group.grain = min(group.rows, -(-share // step) * step)


def _wanted_chunks(group: Group, lanes: Callable[[Kernel], int], trips: int) -> int:
    """Chunks that last long enough; of a scatter fewer, but so many that their rows stay in the cache."""
    wanted = min(MOST_CHUNKS, int(group.cycles * trips / CHUNK_CYCLES))
    scatters = [
        (job.form.scatter, lanes(job.kernel))
        for job in group.jobs
        if job.form.scatter is not None and not job.form.scatter.apart
    ]
    if scatters:
        most = min(scatter.most_grains(width) for scatter, width in scatters)
        wanted = min(wanted, max(1, int(COMPARING * most)))
        own = {store.buffer for job in group.jobs for store in job.kernel.stores}
        if len(group.jobs) > 1:
            wanted = max(wanted, sum(buffer.nbytes for buffer in own) // KEPT_BYTES)
        wanted = min(wanted, most)
    return max(1, wanted)


def _alignment(job: Job, group: Group, lanes: int, share: int) -> int:
    """What the shares of a kernel's first axis must be multiples of.

    Rows of a map that follow each other in memory are joined, and lanes may lie along the rows, if a ``share`` is long
    enough for whole vectors. Where it is not and others share the rows with it, the map goes row by row.
    """
    own = (job.form.dots, job.form.gathered, job.form.pooled, job.form.scatter)
    if any(part is not None for part in own):
        return 1
    if job.form.transposed is not None:
        return 1 if job.form.transposed.outer else lanes
    together = len(group.jobs) > 1
    joined = coalesced_rows(job.kernel)
    pitch = joined.axes[0].extent // group.rows if joined.axes else 1
    aligned = alignment(joined, lanes) // math.gcd(alignment(joined, lanes), pitch)
    if together and joined is not job.kernel and aligned <= share:
        job.kernel, job.pitch = joined, pitch
        return aligned
    aligned = alignment(job.kernel, lanes)
    aligned //= math.gcd(aligned, job.pitch)
    job.row_by_row = together and aligned > max(1, share)
    return 1 if job.row_by_row else aligned


def _gathered(groups: list[Group]) -> list[Group]:
    """Groups by weight, before them the small ones that are not cut, together in one chunk.

    The caller begins at the front: small ones mostly read and write what it has just had in its cache.
    """
    small = [g for g in groups if g.chunks == 1 and g.cycles < CHUNK_CYCLES]
    rest = sorted((g for g in groups if g not in small), key=lambda g: -g.cycles / g.chunks)
    bundles: list[Group] = []
    for group in small:
        if bundles and bundles[-1].cycles + group.cycles < CHUNK_CYCLES:
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


def _one_after_another(regions: list[Region], before: Mapping[Kernel, Iterable[Kernel]]) -> list[Region]:
    """Regions of a single chunk that follow each other as one: whoever runs the first goes on without an exchange.

    What a failure must stop stays in a region after the one that may fail.
    """
    joined: list[Region] = []
    for region in regions:
        last = joined[-1] if joined else None
        if last is not None and _single(last) and _single(region):
            (earlier,), (later,) = last.groups, region.groups
            may_fail = {job.given for job in earlier.jobs if job.kernel.has_checks}
            if not any(may_fail.intersection(before.get(job.given, ())) for job in later.jobs):
                last.groups = [Group(1, [*earlier.jobs, *later.jobs])]
                continue
        joined.append(region)
    return joined


def joined_region(first: Region, second: Region) -> Region | None:
    """Two regions of a single chunk each as one that does one after the other, without a loop in either."""
    if not (_single(first) and _single(second)) or first.first or second.first:
        return None
    (earlier,), (later,) = first.groups, second.groups
    if earlier.turns is not None or later.turns is not None:
        return None
    return Region([Group(1, [*earlier.jobs, *later.jobs])])


def _single(region: Region) -> bool:
    """Whether one thread runs the whole region."""
    return len(region.groups) == 1 and region.groups[0].chunks == 1


def buffers_of(kernel: Kernel) -> list[Buffer]:
    """All buffers that a kernel touches."""
    return list(dict.fromkeys([*kernel.reads(), *kernel.writes()]))
