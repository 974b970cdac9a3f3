"""A program ready for code: regions of chunks with a schedule for each kernel, and a place for every buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pullback.compiler.lowering.items import View
from pullback.compiler.regions.memory import MemoryPlan
from pullback.compiler.regions.steps import Step, every_job
from pullback.compiler.target import Processor
from pullback.loops import Buffer

__all__ = ["Planned"]


@dataclass(frozen=True)
class Planned:
    """What code is generated from."""

    target: Processor
    steps: tuple[Step, ...]
    addressed: Mapping[Buffer, int]
    """The slot of every buffer outside the arena."""
    bound: Mapping[Buffer, View]
    """Where arrays lie that are part of another buffer, or move with the turns of loops."""
    memory: MemoryPlan
    constants: tuple[np.ndarray, ...]
    results: tuple[Buffer, ...]

    @property
    def scratch_bytes(self) -> int:
        """What a thread needs for itself: what chunks keep there, or the panels of a contraction."""
        own = (job.schedule.scratch_bytes for job in every_job(self.steps))
        return max([self.memory.scratch_bytes, *own])
