"""The code of a kernel: its schedule says which emitter writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.compiler.codegen.contractions import emit_contraction
from pullback.compiler.codegen.indexed_contractions import emit_indexed_contraction
from pullback.compiler.codegen.maps import emit_map
from pullback.compiler.codegen.nest import ChunkTurns
from pullback.compiler.codegen.packed_contractions import emit_packed_contraction
from pullback.compiler.codegen.reduction_vectorised import emit_reduction_vectorised
from pullback.compiler.codegen.scatters import emit_scatter
from pullback.compiler.codegen.transposes import emit_transposed
from pullback.compiler.codegen.values import Values
from pullback.compiler.codegen.windows import emit_window_maximum
from pullback.compiler.regions.steps import Job
from pullback.compiler.schedules.contraction_schedules import PackedContraction, TiledContraction
from pullback.compiler.schedules.indexed_contraction import IndexedContraction
from pullback.compiler.schedules.map import MapSchedule
from pullback.compiler.schedules.reduction_vectorised import ReductionVectorised
from pullback.compiler.schedules.scatter import ScatterSchedule
from pullback.compiler.schedules.schedule import Schedule
from pullback.compiler.schedules.transpose import TransposedCopy
from pullback.compiler.schedules.window_maximum import WindowMaximum
from pullback.loops import Kernel
from pullback.loops.kernel import updates_case

__all__ = ["emit_kernel"]


def emit_kernel(values: Values, job: Job, grains: Sequence[int]) -> None:
    """Write the body of the function of a kernel, for its parts ``low`` to ``high``; ``grains`` are how many."""
    ends = ChunkTurns(values.f["low"], values.f["high"], grains)
    emit = _EMITTERS[type(job.schedule)]
    case = updates_case(job.kernel)
    if case is None:
        emit(values, job.kernel, job.schedule, ends)
        return
    (held,) = values.emit(case.condition)
    if not case.holds:
        held = values.f.value(f"xor i1 {held}, true")
    values.rare = int(case.holds)
    with values.f.when(held), values.scope():
        emit(values, case.kernel, job.schedule, ends)


Emitter = Callable[[Values, Kernel, Any, ChunkTurns], None]


_EMITTERS: dict[type[Schedule], Emitter] = {
    MapSchedule: emit_map,
    TiledContraction: emit_contraction,
    PackedContraction: emit_packed_contraction,
    ReductionVectorised: emit_reduction_vectorised,
    WindowMaximum: emit_window_maximum,
    IndexedContraction: emit_indexed_contraction,
    ScatterSchedule: emit_scatter,
    TransposedCopy: emit_transposed,
}
