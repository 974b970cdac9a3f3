"""Copies that change the order of two axes: square blocks turned around in registers.

Memory is only ever touched in whole vectors; what is left at the ends is done with fewer lanes.
"""

from __future__ import annotations

from pullback.compiler.codegen.blocks import transpose_block
from pullback.compiler.codegen.nest import emit_parallel
from pullback.compiler.codegen.types import memory_type
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.schedules.transpose import TransposedCopy

__all__ = ["emit_transposed"]


def emit_transposed(values: Values, copy: TransposedCopy, low: str, high: str) -> None:
    """Run a transposed copy for turns ``low`` to ``high`` of its first axis, which may be ``slow``."""

    def blocks() -> None:
        start, stop = (low, high) if not copy.outer else ("0", str(copy.slow.extent))
        _blocks(values, copy, start, stop)

    emit_parallel(values, copy.outer, copy.outer[0] if copy.outer else None, (low, high), blocks)


def _blocks(values: Values, copy: TransposedCopy, start: str, stop: str) -> None:
    """Blocks of whole vectors; what is left at the axes' ends in narrower ones."""
    f, lanes = values.f, values.lanes
    kind = memory_type(copy.load.dtype)
    source_pitch, target_pitch = (
        copy.load.offset.coefficient(copy.fast),
        copy.store.offset.coefficient(copy.slow),
    )

    def block(slow: Place, fast: Place, columns: int, rows: int) -> None:
        values.places[copy.slow], values.places[copy.fast] = slow, fast
        source = values.address(copy.load.buffer, values.element(copy.load.buffer, copy.load.offset))
        target = values.address(copy.store.buffer, values.element(copy.store.buffer, copy.store.offset))
        del values.places[copy.slow], values.places[copy.fast]

        def at(base: str, ahead: int) -> str:
            return f.value(f"getelementptr {kind}, ptr {base}, i64 {ahead}") if ahead else base

        transpose_block(
            f,
            kind,
            lanes,
            lambda r: at(source, r * source_pitch),
            lambda c: at(target, c * target_pitch),
            rows,
            columns,
        )

    def strip(slow: Place, columns: int) -> None:
        whole, rest = divmod(copy.fast.extent, lanes)
        if whole:
            with f.loop("0", str(whole * lanes), lanes) as loop:
                block(slow, Place(loop.index), columns, lanes)
        if rest:
            block(slow, Place(None, whole * lanes), columns, rest)

    whole, rest = divmod(copy.slow.extent, lanes)
    if whole:
        end = f.call("i64", "llvm.smin.i64", ("i64", stop), ("i64", str(whole * lanes)))
        with f.loop(start, end, lanes, counted=False) as loop:
            strip(Place(loop.index), lanes)
    if rest:
        with f.when(f.value(f"icmp eq i64 {stop}, {copy.slow.extent}")):
            strip(Place(None, whole * lanes), rest)
