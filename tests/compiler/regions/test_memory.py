"""Memory plans: how long a buffer must be left alone."""

from __future__ import annotations

import numpy as np

from pullback.compiler.regions.memory import plan_memory
from pullback.compiler.regions.steps import Group, Job, Region
from pullback.compiler.schedules.map import MapSchedule
from pullback.loops import Affine, Axis, Buffer, Kernel, Load, Store
from pullback.loops.nest import nest_of


def copy(source: Buffer, target: Buffer) -> Job:
    axis = Axis("i", source.size)
    value = Load(source, Affine.of(axis))
    kernel = Kernel((axis,), (Store(target, Affine.of(axis), value),))
    return Job(kernel, MapSchedule(nest_of(kernel), None, 1, {}, {}, ()), 1.0)


def test_what_a_later_region_reads_is_in_use_until_then() -> None:
    x, a, b, c, y, z = (Buffer(name, np.dtype(np.float32), (8,)) for name in ("x", "a", "b", "c", "y", "z"))
    regions = [
        Region([Group(1, [copy(x, a)])]),
        Region([Group(1, [copy(x, b)]), Group(1, [copy(x, c)])]),
        Region([Group(1, [copy(b, y)]), Group(1, [copy(a, z)])]),
    ]
    plan = plan_memory(regions, [x, y, z], 128, {})
    spans = {placed.buffer: (placed.first, placed.last) for placed in plan.placed}
    assert spans == {a: (0, 2), b: (1, 2), c: (1, 1)}
    assert len({placed.offset for placed in plan.placed}) == 3
