"""A program as steps: regions of chunks that threads run side by side, with loops, choices and calls around them.

Jobs over the same rows are a *group*, groups that run side by side a *region*, at whose end all threads wait for each
other. This is what the middle of the compiler makes and what code is generated from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pullback.compiler.lowering.items import Choice, Counter, Held, HostCall, Loop, Serial, While, every_step
from pullback.compiler.schedules.scatter import ScatterSchedule
from pullback.compiler.schedules.schedule import Schedule
from pullback.loops import Buffer, Kernel
from pullback.loops.arithmetic import in_row

__all__ = [
    "End",
    "Group",
    "Job",
    "Region",
    "Step",
    "buffers_of",
    "every_job",
    "every_region",
    "keeps_to_rows",
]


@dataclass(frozen=True)
class End:
    """Where rows end: so many of a ``capacity`` count as the first element of ``size`` says when the program runs."""

    size: Buffer
    capacity: int


@dataclass(eq=False)
class Job:
    """A kernel with its schedule, and the time that it is estimated to take."""

    kernel: Kernel
    schedule: Schedule
    cycles: float
    pitch: int = 1
    """Turns of the kernel's first axis for each row of its group, where rows or axes were joined."""
    given: Kernel = field(init=False)
    """The kernel as it was before its axes were coalesced: the one that others wait for."""
    ended: End | None = None
    """Where the summed rows of a product end, or the updates of a scatter."""

    def __post_init__(self) -> None:
        self.given = self.kernel

    @property
    def alone(self) -> bool:
        """Whether something else than rows is shared out: blocks of a large product, parts of a scatter's rows."""
        return self.schedule.alone

    @property
    def parts(self) -> int:
        """What is shared out: turns of the first axis, blocks of a large product, rows of a scatter's target."""
        return self.schedule.parts(self.kernel)

    @property
    def rows(self) -> int:
        """What is shared out, in rows of the job's group; 1 where nothing may be."""
        return max(1, self.schedule.rows(self.kernel) // self.pitch)


@dataclass(eq=False)
class Group:
    """Jobs over the same rows, cut into chunks of ``grain`` rows."""

    rows: int
    jobs: list[Job] = field(default_factory=list)
    grain: int = 1
    turns: Counter | None = None
    """The loop that a chunk runs through for its rows, all jobs in every turn, without waiting for other chunks."""
    end: End | None = None
    """Where its rows end: chunks that begin beyond write zeros to what is ``cleared``, and nothing else."""
    cleared: tuple[Buffer, ...] = ()

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

    @property
    def jobs(self) -> list[Job]:
        """All that its groups do."""
        return [job for group in self.groups for job in group.jobs]

    def order(self) -> list[int]:
        """The chunks, numbered group by group, in the order in which they are dealt out to threads.

        Any range has its share of every group, and of the same rows of each; it begins with its share of single ones.
        Of a group whose rows end somewhere it has rows from everywhere, and so a share of those that are done.

        >>> import numpy as np
        >>> rows = [Group(6, grain=2), Group(1), Group(12, grain=2), Group(1)]
        >>> Region(rows).order()
        [3, 4, 0, 5, 6, 1, 10, 7, 8, 2, 9]
        >>> Region([Group(8, end=End(Buffer("size", np.dtype(np.int64), ()), 8))]).order()
        [0, 4, 2, 6, 1, 5, 3, 7]
        """
        found: list[tuple[float, int]] = []
        singles = sum(group.chunks == 1 for group in self.groups)
        single = (k / singles for k in range(singles))
        for group in self.groups:
            chunks = list(range(group.chunks))
            if group.end is not None:
                digits = len(f"{group.chunks - 1:b}")
                chunks.sort(key=lambda k: f"{k:0{digits}b}"[::-1])
            parts = (
                [next(single)]
                if group.chunks == 1
                else [(k + 0.5) / group.chunks for k in range(group.chunks)]
            )
            first = len(found)
            found += [(part, first + k) for k, part in zip(chunks, parts)]
        return [chunk for _, chunk in sorted(found)]


Step = Region | HostCall | Loop["Step"] | Choice["Step"] | While["Step"] | Serial["Step"]


def every_region(steps: Iterable[Step]) -> Iterator[tuple[Region, tuple[Held, ...]]]:
    """All regions with the steps around each."""
    return ((step, around) for step, around in every_step(steps) if isinstance(step, Region))


def every_job(steps: Iterable[Step]) -> Iterator[Job]:
    """The jobs of all regions, in their order."""
    return (job for region, _ in every_region(steps) for job in region.jobs)


def keeps_to_rows(job: Job, buffer: Buffer) -> bool:
    """Whether row ``r`` of the job touches nothing of ``buffer`` but its row ``r``."""
    kernel = job.given
    scatter = job.schedule if isinstance(job.schedule, ScatterSchedule) else None
    rows = kernel.axes[0].extent if scatter is None and kernel.axes else job.rows
    if buffer.size % rows:
        return False
    pitch = buffer.size // rows
    if scatter is not None and not scatter.disjoint:
        return scatter.outermost and all(load.buffer is not buffer for load in kernel.loads())
    uses = [(load.offset, load.dynamic, load.guard) for load in kernel.loads() if load.buffer is buffer]
    uses += [(store.offset, store.dynamic, None) for store in kernel.stores if store.buffer is buffer]
    return all(in_row(offset, dynamic, pitch, kernel.axes[0], guard) for offset, dynamic, guard in uses)


def buffers_of(kernel: Kernel) -> list[Buffer]:
    """All buffers that a kernel touches."""
    return list(dict.fromkeys([*kernel.reads(), *kernel.writes()]))
