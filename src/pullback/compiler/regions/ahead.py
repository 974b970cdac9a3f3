"""What the next chunk reads and writes of large arrays is asked for while this one multiplies.

A chunk of a row group is products, whose operands are in the nearer caches, and maps, which mostly wait for memory:

    rows 0    y = relu(scale * x)    waits for x[0]       convolution of y    asks for x[1]
    rows 1    y = relu(scale * x)    x[1] has come        convolution of y    asks for x[2]

So the group's longest product asks for lines of the rows that come after its own, some in each turn of its sum: all at
once they would keep what it reads by itself waiting. Lines that are written arrive too, before they are. It is a guess,
which costs little where it is wrong: other rows come next where a thread helps another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pullback.compiler.regions.steps import Group, Job, buffers_of, keeps_to_rows
from pullback.compiler.schedules.contraction_schedules import TiledContraction
from pullback.compiler.schedules.cost import STAYING
from pullback.compiler.target import Processor
from pullback.loops import Buffer

__all__ = ["asked_ahead"]


_Asked = dict[Job, Mapping[Buffer, int]]


def asked_ahead(group: Group, private: Collection[Buffer], target: Processor) -> _Asked:
    """The product of a group that asks, and the arrays whose next rows it asks for, with the bytes of a row.

    There is one if it takes longer than the lines of a chunk need to come. Buffers that are ``private`` to a chunk or a
    thread have no other rows.
    """
    if group.chunks == 1 or group.turns is not None:
        return {}
    jobs = [job for job in group.jobs if job.rows == group.rows]
    products = [job for job in jobs if isinstance(job.schedule, TiledContraction)]
    if not products:
        return {}
    longest = max(products, key=lambda job: job.cycles)
    users = {buffer: job for job in jobs for buffer in buffers_of(job.kernel)}
    rows = {
        buffer: buffer.nbytes // group.rows
        for buffer, job in users.items()
        if buffer not in private and buffer.nbytes >= target.private_bytes and keeps_to_rows(job, buffer)
    }
    asked = sum(rows.values()) * group.grain
    if not asked or asked > STAYING * target.l2_bytes:
        return {}
    needed = asked / target.line_bytes * target.far_line_cycles / target.lines_coming
    return {longest: rows} if longest.cycles / group.chunks >= needed else {}
