"""Forward mode on graphs: the tangents of the outputs, by transposing the pullback."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.errors import DerivativeError
from pullback.graph import (
    Node,
    Operation,
    TupleType,
    Variable,
    free_variables,
    is_float,
    pruned,
    regions,
    result,
    topological,
    written_at,
)
from pullback.transforms.reverse import cotangents

__all__ = ["is_forward_only", "refuse_crooked", "tangents"]


def tangents(
    outputs: Sequence[Node], inputs: Sequence[Node], directions: Sequence[Node | None]
) -> list[Node | None]:
    r"""The tangent of each output, given the tangents ``directions`` of the inputs.

    .. math:: \dot y = J \dot x = \frac{\partial}{\partial v} \langle J^T v, \dot x \rangle

    The pullback of ``outputs`` maps cotangents ``v`` to ``J^T v`` and is linear in ``v``, so its own pullback
    maps tangents of the inputs to ``J`` times them. So every operator that has a pullback has forward mode
    too, and what only ``J^T v`` needed is not reached from the result. ``None`` stands for a tangent that is
    absent: zero, or of an output that is no float. Where an operation has no pullback, tangents go from node to node.
    Raises ``DerivativeError`` where a user's rule is not linear in ``v``.

    Source: Townsend, *A new trick for calculating Jacobian vector products*, 2017.
    """
    if any(map(is_forward_only, topological(outputs))):
        return _node_by_node(outputs, inputs, directions)
    seeds = [Variable(output.type, "cotangent") for output in outputs]
    found = _transposed(outputs, inputs, directions, seeds)
    refuse_crooked(found, seeds, "custom_pullback")
    return found


def _transposed(
    outputs: Sequence[Node],
    inputs: Sequence[Node],
    directions: Sequence[Node | None],
    seeds: Sequence[Variable],
) -> list[Node | None]:
    smooth = [(output, seed) for output, seed in zip(outputs, seeds) if is_float(output.dtype)]
    bars = cotangents([output for output, _ in smooth], [seed for _, seed in smooth], inputs)
    pairs = [(bar, t) for bar, t in zip(bars, directions) if bar is not None and t is not None]
    moved = cotangents([bar for bar, _ in pairs], [t for _, t in pairs], seeds)
    there = iter(pruned([node for node in moved if node is not None]))
    return [None if node is None else next(there) for node in moved]


def refuse_crooked(tangents: Sequence[Node | None], seeds: Sequence[Variable], name: str) -> None:
    """Raise where the pullback was not linear in its cotangents ``seeds``: then its transpose depends on them."""
    found = free_variables([node for node in tangents if node is not None])
    if not {id(seed) for seed in seeds}.isdisjoint(map(id, found)):
        raise DerivativeError(
            f"{name}: the rule of a custom_pullback is not linear in its cotangent, so it has no forward mode (one "
            "that iterates until its result is close enough is not); use reverse mode, or give .define(…) a pushforward"
        )


def is_forward_only(node: Node) -> bool:
    """Whether an operation has no pullback to transpose, or holds one that has none."""
    if not isinstance(node, Operation):
        return False
    forward_only = node.operator.forward_only
    return (forward_only is not None and forward_only(node)) or any(
        is_forward_only(inner) for region in regions(node) for inner in region.nodes()
    )


def _node_by_node(
    outputs: Sequence[Node], inputs: Sequence[Node], directions: Sequence[Node | None]
) -> list[Node | None]:
    wanted = {id(node) for node in inputs}
    moving = {id(node): t for node, t in zip(inputs, directions) if t is not None}
    several: dict[int, Sequence[Node | None]] = {}
    for node in topological(outputs):
        if id(node) in wanted or not isinstance(node, Operation):
            continue
        if node.operator is result:
            found = several.get(id(node.inputs[0]))
            picked = None if found is None else found[node.attributes["index"]]
            if picked is not None and is_float(node.dtype):
                moving[id(node)] = picked
            continue
        children = {id(child): child for child in node.inputs}
        if moving.keys().isdisjoint(children):
            continue
        with written_at(node.source):
            if isinstance(node.type, TupleType):
                assert node.operator.pushforward is not None
                several[id(node)] = node.operator.pushforward(node, [moving.get(id(c)) for c in node.inputs])
            elif is_float(node.dtype):
                # All children are inputs, those without a tangent as well: how they come from others is no part of it.
                seed = Variable(node.type, "cotangent")
                along = [moving.get(key) for key in children]
                (tangent,) = _transposed([node], list(children.values()), along, [seed])
                if tangent is not None:
                    moving[id(node)] = tangent
    made = [moving.get(id(node)) for node in outputs]
    there = iter(pruned([node for node in made if node is not None]))
    return [None if node is None else next(there) for node in made]
