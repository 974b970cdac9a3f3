"""From kernels to phases: what may run side by side, and how the work of a phase is cut into chunks.

Kernels that treat the same rows (the samples of a batch, say) one by one form a *row group*: a chunk takes some rows
through all of them, one after another, without waiting for other chunks. A kernel that needs other rows, such as a
gradient summed over the batch, starts a new phase. Chunks depend on shapes alone, never on the number of threads.

    phase 0   rows 0-9 | rows 10-19 | …        forward and backward, sample by sample
    phase 1   dw rows 0-48 | … | db | loss     sums over the batch, and the update in their epilogue
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pullback.compiler.codegen.maps import alignment
from pullback.compiler.codegen.products import Tile, choose_tile, row_axis
from pullback.compiler.cost import kernel_cycles
from pullback.compiler.form import Form
from pullback.compiler.order import dependencies
from pullback.compiler.tidy import joined_rows
from pullback.loops import Affine, Apply, Buffer, Kernel, Load
from pullback.loops.arithmetic import bounds

__all__ = ["Group", "Job", "Phase", "make_schedule"]

CHUNK_CYCLES = 6000.0
"""A chunk should last at least this long: claiming one costs about a hundred cycles."""

MOST_CHUNKS = 32


@dataclass(eq=False)
class Job:
    """A kernel with what the code generator decides about it."""

    kernel: Kernel
    form: Form
    cycles: float
    tile: Tile | None = None
    row_by_row: bool = False

    @property
    def alone(self) -> bool:
        """Whether something else than rows is shared out: blocks of a large product, rows of a scatter's target."""
        return self.form.blocking is not None or self.form.scatter is not None

    @property
    def rows(self) -> int:
        """Turns of what is shared out: the first axis, or blocks of a large product; 1 where there is nothing."""
        if self.form.blocking is not None:
            return self.form.blocking.blocks
        if self.form.scatter is not None:
            return self.form.scatter.shares
        if not self.kernel.axes or any(store.accumulate for store in self.kernel.stores):
            return 1
        return self.kernel.axes[0].extent


@dataclass(eq=False)
class Group:
    """Jobs over the same rows, cut into chunks of ``share`` rows."""

    rows: int
    jobs: list[Job] = field(default_factory=list)
    share: int = 1

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
        return -(-self.rows // self.share)

    def shares(self) -> list[int]:
        """The lengths of chunks that occur."""
        last = self.rows % self.share
        return [self.share, last] if last and self.rows > self.share else [last or self.share]


@dataclass(eq=False)
class Phase:
    """Groups that run side by side; the heaviest first."""

    groups: list[Group] = field(default_factory=list)


def make_schedule(
    kernels: Sequence[Kernel],
    before: Mapping[Kernel, Iterable[Kernel]],
    lanes: Callable[[Kernel], int],
    form_of: Callable[[Kernel], Form],
    registers: int,
) -> list[Phase]:
    """Place each kernel in the earliest phase that its inputs allow.

    ``before[kernel]`` are kernels that must have finished in an earlier phase for another reason than what they
    write: they read memory that ``kernel`` overwrites, or check an index before anything is updated.
    """
    phases: list[Phase] = []
    placed: dict[Kernel, tuple[int, Group]] = {}
    needs = dependencies(kernels)
    for kernel in kernels:
        form = form_of(kernel)
        job = Job(kernel, form, kernel_cycles(kernel, form.product, lanes(kernel)))
        producers = needs[kernel]
        earliest = max((placed[k][0] for k in producers), default=0)
        earliest = max([earliest, *(placed[k][0] + 1 for k in before.get(kernel, ()))])
        group = _join(job, [k for k in producers if placed[k][0] == earliest], placed)
        if group is None and any(placed[k][0] == earliest for k in producers):
            earliest += 1
        while len(phases) <= earliest:
            phases.append(Phase())
        if group is None:
            same = [
                g for g in phases[earliest].groups if g.rows == job.rows > 1 and not (g.alone or job.alone)
            ]
            group = same[0] if same else Group(job.rows)
            if not same:
                phases[earliest].groups.append(group)
        group.jobs.append(job)
        placed[kernel] = (earliest, group)
    for phase in phases:
        for group in phase.groups:
            if len(group.jobs) == 1 and group.jobs[0].form == Form() and group.rows > 1:
                group.jobs[0].kernel = joined_rows(group.jobs[0].kernel)
                group.rows = group.jobs[0].rows
            _cut(group, lanes, registers)
        phase.groups = _gathered(phase.groups)
    return _one_after_another([phase for phase in phases if phase.groups], before)


def _join(job: Job, producers: list[Kernel], placed: Mapping[Kernel, tuple[int, Group]]) -> Group | None:
    """The row group of all ``producers`` if the job reads of them nothing but its own rows."""
    groups = {id(placed[k][1]): placed[k][1] for k in producers}
    if len(groups) != 1 or job.rows == 1 or job.alone:
        return None
    (group,) = groups.values()
    if group.rows != job.rows or group.alone or not all(_same_rows(k, job.kernel) for k in producers):
        return None
    return group


def _same_rows(producer: Kernel, consumer: Kernel) -> bool:
    """Whether row ``r`` of the consumer reads only what row ``r`` of the producer wrote."""
    row = Affine.of(consumer.axes[0])
    for store in producer.stores:
        buffer = store.buffer
        if buffer in consumer.writes():
            return False
        if buffer not in consumer.reads():
            continue
        if buffer.size % producer.axes[0].extent or store.dynamic or store.accumulate:
            return False
        pitch = buffer.size // producer.axes[0].extent
        if not _is_row(store.offset, pitch, Affine.of(producer.axes[0])):
            return False
        for load in consumer.loads():
            if load.buffer is buffer and not _in_row(load, pitch, row):
                return False
    return True


def _in_row(load: Load, pitch: int, row: Affine) -> bool:
    """Whether the read stays within the row, wherever its computed indices lead."""
    reach = [(bounds(index), stride) for index, stride in load.dynamic]
    if any(known is None or stride < 0 for known, stride in reach):
        return False
    first, last = (sum(known[end] * stride for known, stride in reach if known is not None) for end in (0, 1))
    return all(_is_row(load.offset + ahead, pitch, row) for ahead in (first, last))


def _is_row(offset: Affine, pitch: int, row: Affine) -> bool:
    split = offset.divide(pitch)
    return split is not None and split[0] == row


def _cut(group: Group, lanes: Callable[[Kernel], int], registers: int) -> None:
    """Choose the share of rows of each chunk, and the register tiles."""
    if group.alone:
        return
    step = aligned = 1
    for job in group.jobs:
        product = job.form.product
        if product is not None:
            axis = row_axis(product)
            tiled = axis is not None and axis is product.rows[0]
            rows = axis.extent if axis is not None else 1
            job.tile = choose_tile(rows, product.columns.extent, lanes(job.kernel), registers)
            if tiled:
                step = max(step, job.tile.rows)
        else:
            aligned = max(aligned, _alignment(job, lanes(job.kernel), len(group.jobs) > 1))  # powers of two
    step = -(-step // aligned) * aligned
    wanted = min(MOST_CHUNKS, max(1, int(group.cycles / CHUNK_CYCLES)))
    share = -(-group.rows // wanted)
    group.share = min(group.rows, -(-share // step) * step)


def _alignment(job: Job, lanes: int, together: bool) -> int:
    """What the shares of a kernel's first axis must be multiples of.

    A map whose lanes would lie along the rows goes row by row instead where others share the rows ``together`` with
    it: whole vectors of rows would make their chunks too coarse.
    """
    if job.form.dots is not None or job.form.gathered is not None:
        return 1
    if job.form.transposition is not None:
        return 1 if job.form.transposition.outer else lanes
    job.row_by_row = together and alignment(job.kernel, lanes) > 1
    return 1 if job.row_by_row else alignment(job.kernel, lanes)


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


def _one_after_another(phases: list[Phase], before: Mapping[Kernel, Iterable[Kernel]]) -> list[Phase]:
    """Phases of a single chunk that follow each other as one: whoever runs the first goes on without an exchange.

    What a failure must stop stays in a phase after the one that may fail.
    """
    joined: list[Phase] = []
    for phase in phases:
        last = joined[-1] if joined else None
        if last is not None and _single(last) and _single(phase):
            (earlier,), (later,) = last.groups, phase.groups
            may_fail = {job.kernel for job in earlier.jobs if has_checks(job.kernel)}
            if not any(may_fail.intersection(before.get(job.kernel, ())) for job in later.jobs):
                last.groups = [Group(1, [*earlier.jobs, *later.jobs])]
                continue
        joined.append(phase)
    return joined


def _single(phase: Phase) -> bool:
    """Whether one thread runs the whole phase."""
    return len(phase.groups) == 1 and phase.groups[0].chunks == 1


def has_checks(kernel: Kernel) -> bool:
    """Whether the kernel may report an error."""
    return any(isinstance(e, Apply) and e.function == "check_index" for e in kernel.expressions())


def buffers_of(kernel: Kernel) -> list[Buffer]:
    """All buffers that a kernel touches."""
    return list(dict.fromkeys([*kernel.reads(), *kernel.writes()]))
