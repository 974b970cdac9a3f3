"""Copies that change the order of two axes: square blocks transposed in registers."""

from __future__ import annotations

from pullback.compiler.codegen.blocks import transpose_block
from pullback.compiler.codegen.nest import ChunkTurns, TileTurns, emit_nest
from pullback.compiler.codegen.types import memory_type
from pullback.compiler.codegen.values import Values
from pullback.compiler.schedules.transpose import TransposedCopy
from pullback.loops import Kernel

__all__ = ["emit_transposed"]


def emit_transposed(values: Values, kernel: Kernel, copy: TransposedCopy, ends: ChunkTurns) -> None:
    """Run a transposed copy between ``ends``: memory is only ever touched in whole vectors, or parts of one."""
    kind = memory_type(copy.load.dtype)

    def block(tile: TileTurns, _: list[str]) -> None:
        source = values.at(copy.load.buffer, copy.load.offset), copy.load.offset.coefficient(copy.fast)
        target = values.at(copy.store.buffer, copy.store.offset), copy.store.offset.coefficient(copy.slow)
        rows, piece = values.current_group.present(0), values.target.piece_bytes
        transpose_block(values.f, kind, values.lanes, source, target, rows, tile[copy.slow], piece)

    emit_nest(values, copy.nest.levels, block, ends=ends)
