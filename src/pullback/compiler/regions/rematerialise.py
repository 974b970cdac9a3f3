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

from collections.abc import Collection, Sequence

from pullback.compiler.kernels.order import Users
from pullback.compiler.regions.parallelise import row_groups
from pullback.compiler.regions.steps import Group, keeps_to_rows
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
    users = Users(kernels)
    cheap = [
        buffer
        for buffer, makers in users.writers.items()
        if buffer not in results and all(_is_cheap(kernel, buffer, schedules.target) for kernel in makers)
    ]
    if not cheap:
        return list(kernels)
    program = _Program(kernels, users, results, schedules)
    for buffer in reversed(cheap):  # readers first: what they are made of is then read where they are
        program.repeat(buffer)
    return program.kernels


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


class _Program:
    def __init__(
        self, kernels: Sequence[Kernel], users: Users, results: Collection[Buffer], schedules: Schedules
    ) -> None:
        self.kernels, self.users, self.results = list(kernels), users, results
        self.least = schedules.target.private_bytes
        places = [
            (job, group)
            for region in row_groups(kernels, {}, schedules)
            for group in region.groups
            for job in group.jobs
        ]
        self.jobs = {job.given: job for job, _ in places}
        self.groups = {job.given: group for job, group in places}

    def repeat(self, made: Buffer) -> None:
        """Have groups that read an array, and may as well make it, do so."""
        own = list(self.users.writers[made])
        home, *others = {self.groups[kernel] for kernel in own}
        if others or not all(isinstance(self.jobs[kernel].schedule, MapSchedule) for kernel in own):
            return
        groups: dict[Group, list[Kernel]] = {}
        for reader in self.users.readers[made]:
            groups.setdefault(self.groups[reader], []).append(reader)
        groups.pop(home, None)
        large = {buffer for kernel in own for buffer in kernel.reads() if buffer.nbytes >= self.least}
        more = {group: sum(group not in self._readers(buffer) for buffer in large) for group in groups}
        able = [group for group, readers in groups.items() if self._goes_on(group, [*own, *readers], made)]
        able = [group for group in able if all(self._stays(buffer, home) for buffer in large)]
        if len(able) < len(groups) or any(more[group] > 1 for group in able):
            able = [group for group in able if more[group] == 0]
        for group in able:
            self._repeat(own, made, group, groups[group])
        if able and not self.users.readers[made]:
            for kernel in own:
                self.users.leave(kernel)
                self.kernels.remove(kernel)

    def _readers(self, buffer: Buffer) -> set[Group]:
        return {self.groups[kernel] for kernel in self.users.readers[buffer]}

    def _stays(self, source: Buffer, own: Group) -> bool:
        """Whether an array is in memory anyway, because others than the group that makes the copy read it too."""
        return not self.users.writers[source] or source in self.results or self._readers(source) != {own}

    def _goes_on(self, group: Group, kernels: Sequence[Kernel], made: Buffer) -> bool:
        """Whether a chunk of the group needs no other rows of an array than those it can make itself.

        ``kernels`` are those that make it, and those of the group that read it.
        """
        rows = self.groups[kernels[0]].rows
        return (
            not group.alone
            and group.rows == rows > 1
            and all(keeps_to_rows(self.jobs[kernel], made) for kernel in kernels)
        )

    def _repeat(self, own: Sequence[Kernel], made: Buffer, group: Group, readers: Sequence[Kernel]) -> None:
        again = Buffer(made.name, made.dtype, made.shape)
        first = min(map(self.kernels.index, readers))
        for old in (*own, *readers):
            new = with_buffer(old, made, again)
            self.jobs[new], self.groups[new] = self.jobs[old], group
            if old in readers:
                self.users.replace(old, new)
                self.kernels[self.kernels.index(old)] = new
            else:
                self.users.enter(new)
                self.kernels.insert(first, new)
                first += 1
