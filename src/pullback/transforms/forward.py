"""Forward mode on graphs: the tangents of the outputs, by transposing the pullback."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.graph import Node, Variable, is_float, pruned
from pullback.transforms.reverse import cotangents

__all__ = ["tangents"]


def tangents(
    outputs: Sequence[Node], inputs: Sequence[Node], directions: Sequence[Node | None]
) -> list[Node | None]:
    r"""The tangent of each output, given the tangents ``directions`` of the inputs.

    .. math:: \dot y = J \dot x = \frac{\partial}{\partial v} \langle J^T v, \dot x \rangle

    The pullback of ``outputs`` maps cotangents ``v`` to ``J^T v`` and is linear in ``v``, so its own pullback
    maps tangents of the inputs to ``J`` times them. So every operator that has a pullback has forward mode
    too, and what only ``J^T v`` needed is not reached from the result. ``None`` stands for a tangent that is
    absent: zero, or of an output that is no float.

    Source: Townsend, *A new trick for calculating Jacobian vector products*, 2017.
    """
    seeds = [Variable(output.type, "cotangent") for output in outputs]
    smooth = [(output, seed) for output, seed in zip(outputs, seeds) if is_float(output.dtype)]
    bars = cotangents([output for output, _ in smooth], [seed for _, seed in smooth], inputs)
    pairs = [(bar, t) for bar, t in zip(bars, directions) if bar is not None and t is not None]
    moved = cotangents([bar for bar, _ in pairs], [t for _, t in pairs], seeds)
    there = iter(pruned([node for node in moved if node is not None]))
    return [None if node is None else next(there) for node in moved]
