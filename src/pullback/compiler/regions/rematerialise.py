"""Cheap maps that are computed again where they are read, instead of being kept in memory for a later region.

    region 0   y = relu(scale * x); pad = zeros around y;        region 0   y = …; pad = …; convolution of pad
               convolution of pad                            →   …
    …                                                            region 9   y again; pad again; where(y > 0, …, x …)
    region 9   where(y > 0, … x …); sum of pad * cotangent                  sum of pad again * cotangent

A large array that two row groups read is in memory as a whole: written once, fetched from there each time. Where a
group reads what the array was made of anyway, it makes its rows of it by itself, which then never leave the nearer
caches; and where all do, nobody keeps the array. Bits are the same, since only maps of single elements are repeated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from pullback.compiler.regions.parallelise import make_regions
from pullback.compiler.regions.steps import Group, Job, keeps_to_rows
from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.schedules.cost import RECOMPUTE_COST, REPEATED_ARRAY_COST, costs_of
from pullback.compiler.schedules.map import MapSchedule
from pullback.compiler.target import Processor
from pullback.loops import Buffer, Kernel
from pullback.loops.kernel import with_buffer

__all__ = ["rematerialised"]


def rematerialised(
    kernels: Sequence[Kernel], results: Collection[Buffer], schedules: Schedules
) -> list[Kernel]:
    """The kernels, with a map of its own for each row group that reads a large array and may as well make it."""
    makers: defaultdict[Buffer, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        for buffer in kernel.writes():
            makers[buffer].append(kernel)
    cheap = [
        buffer
        for buffer, parts in makers.items()
        if buffer not in results and all(_is_cheap(kernel, buffer, schedules.target) for kernel in parts)
    ]
    if not cheap:
        return list(kernels)
    program = _Program(kernels, results, schedules)
    for buffer in reversed(cheap):  # readers first: what they are made of is then read where they are
        program.repeat(buffer)
    return program.kernels()


def _is_cheap(kernel: Kernel, made: Buffer, target: Processor) -> bool:
    """Whether a kernel makes a large array, or some of it and nothing else, in less time than it takes to arrive."""
    if not kernel.is_plain or kernel.has_checks or kernel.writes() != (made,):
        return False
    if made.nbytes < target.private_bytes or any(load.dynamic for load in kernel.loads()):
        return False
    if kernel.reductions:
        return False
    costs = costs_of(kernel.expressions())
    return max(costs, default=0.0) <= RECOMPUTE_COST and sum(costs) <= REPEATED_ARRAY_COST * len(
        kernel.stores
    )


@dataclass(eq=False)
class _Entry:
    """A kernel, and where it is; one that repeats another stands before its first reader."""

    kernel: Kernel
    job: Job
    group: Group
    number: int
    before: list[_Entry] = field(default_factory=list)


class _Program:
    def __init__(self, kernels: Sequence[Kernel], results: Collection[Buffer], schedules: Schedules) -> None:
        self.results = results
        self.least = schedules.target.private_bytes
        places = {
            job.given: (job, group)
            for region in make_regions(kernels, {}, schedules)
            for group in region.groups
            for job in group.jobs
        }
        self.entries = [_Entry(kernel, *places[kernel], number) for number, kernel in enumerate(kernels)]
        self.idle: set[_Entry] = set()
        self.writers: defaultdict[Buffer, list[_Entry]] = defaultdict(list)
        self.readers: defaultdict[Buffer, list[_Entry]] = defaultdict(list)
        for entry in self.entries:
            for buffer in entry.kernel.writes():
                self.writers[buffer].append(entry)
            for buffer in entry.kernel.reads():
                self.readers[buffer].append(entry)

    def kernels(self) -> list[Kernel]:
        """All of them, in order, without those that nobody reads any more."""
        left = [entry for entry in self.entries if entry not in self.idle]
        return [part.kernel for entry in left for part in (*reversed(entry.before), entry)]

    def repeat(self, made: Buffer) -> None:
        """Have groups that read an array, and may as well make it, do so."""
        own = self.writers[made]
        if any(each.group is not own[0].group for each in own):
            return
        if not all(isinstance(each.job.schedule, MapSchedule) for each in own):
            return
        groups: dict[Group, list[_Entry]] = {}
        for entry in self.readers[made]:
            groups.setdefault(entry.group, []).append(entry)
        groups.pop(own[0].group, None)
        read = dict.fromkeys(buffer for each in own for buffer in each.kernel.reads())
        large = [buffer for buffer in read if buffer.nbytes >= self.least]
        more = {group: self._fetched(large, group) for group in groups}
        able = [group for group, users in groups.items() if _goes_on(group, own, users, made)]
        able = [group for group in able if all(self._stays(b, own[0].group) for b in large)]
        if len(able) < len(groups) or any(more[group] > 1 for group in able):
            able = [group for group in able if more[group] == 0]
        for group in able:
            self._repeat(own, made, group, groups[group])
        if able and not self.readers[made]:
            self.idle.update(own)
            for each in own:
                for buffer in each.kernel.reads():
                    self.readers[buffer].remove(each)

    def _fetched(self, large: Sequence[Buffer], group: Group) -> int:
        """How many of these arrays the group does not read as it is."""
        return sum(all(entry.group is not group for entry in self.readers[buffer]) for buffer in large)

    def _stays(self, source: Buffer, own: Group) -> bool:
        """Whether an array is in memory anyway, because others than the group that makes the copy read it too."""
        readers = [entry for entry in self.readers[source] if entry.group is not own]
        return source not in self.writers or source in self.results or bool(readers)

    def _repeat(self, own: Sequence[_Entry], made: Buffer, group: Group, users: Sequence[_Entry]) -> None:
        again = Buffer(made.name, made.dtype, made.shape)
        first = min(user.number for user in users)
        entries = [_Entry(with_buffer(e.kernel, made, again), e.job, group, first) for e in own]
        self.entries[first].before += reversed(entries)
        for user in users:
            user.kernel = with_buffer(user.kernel, made, again)
            self.readers[made].remove(user)
        self.readers[again] = list(users)
        for entry in entries:
            for buffer in entry.kernel.reads():
                self.readers[buffer].append(entry)


def _goes_on(group: Group, own: Sequence[_Entry], users: Sequence[_Entry], made: Buffer) -> bool:
    """Whether a chunk of the group needs no other rows than those it can make itself."""
    return (
        not group.alone
        and group.rows == own[0].group.rows > 1
        and all(keeps_to_rows(each.job, made) for each in own)
        and all(keeps_to_rows(user.job, made) for user in users)
    )
