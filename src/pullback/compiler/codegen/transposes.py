"""Copies that change the order of two axes: square blocks transposed in registers."""

from __future__ import annotations

from pullback.compiler.codegen.blocks import transpose_block
from pullback.compiler.codegen.nest import ChunkTurns, TileTurns, emit_nest
from pullback.compiler.codegen.types import memory_type
from pullback.compiler.codegen.values import Values
from pullback.compiler.schedules.transpose import TransposedCopy
from pullback.loops import Kernel, Load, Store

__all__ = ["emit_transposed"]


def emit_transposed(values: Values, kernel: Kernel, copy: TransposedCopy, ends: ChunkTurns) -> None:
    """Run a transposed copy between ``ends``: memory is only ever touched in whole vectors, or parts of one."""
    f, kind = values.f, memory_type(copy.load.dtype)
    pitches = copy.load.offset.coefficient(copy.fast), copy.store.offset.coefficient(copy.slow)

    def block(tile: TileTurns, _: list[str]) -> None:

        def start(access: Load | Store) -> str:
            return values.address(access.buffer, values.element(access.buffer, access.offset))

        source, target = start(copy.load), start(copy.store)
        transpose_block(
            f,
            kind,
            values.lanes,
            lambda r: f.ahead(source, kind, r * pitches[0]),
            lambda c: f.ahead(target, kind, c * pitches[1]),
            values.current_group.present(0),
            tile[copy.slow],
            values.target.piece_bytes,
        )

    emit_nest(values, copy.nest.levels, block, ends=ends)
