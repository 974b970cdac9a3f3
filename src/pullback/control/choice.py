"""``switch``: one region of several runs, the one whose number an index is.

    results = branches[index](inputs)              an index before the first is the first, one beyond the last the last

The operation's first input is the index, an ``int64`` scalar; all branches take the others. Branches share their
variables and give results of the same types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.control.regions import Run, closed, same_for_all
from pullback.errors import DTypeError, IndexRangeError, MatrixError, ShapeError
from pullback.graph import (
    OPERATORS,
    Graph,
    Node,
    Operation,
    Operator,
    TupleType,
    Type,
    Variable,
    constant,
    every_node,
    is_float,
    pruned,
    regions,
    results,
    substitute,
    topological,
)
from pullback.interpreter import evaluate
from pullback.operators.batching import batch_size, is_batched
from pullback.operators.elementwise import where, zeros_like
from pullback.operators.logic import less_equal
from pullback.operators.shapes import broadcast
from pullback.transforms.batching import batched
from pullback.transforms.forward import tangents
from pullback.transforms.reverse import cotangents

__all__ = ["make_switch", "picked_branch", "switch"]


def make_switch(
    index: Node,
    variables: Sequence[Variable],
    branches: Sequence[Sequence[Node]],
    given: Sequence[Node],
    since: int | None = None,
) -> Sequence[Node]:
    """The results of a switch whose branches give nodes of ``variables``, for which stands what is ``given``.

    What branches use of the graph around them becomes an input; operations made ``since`` a mark belong to branches.
    """
    count = len(branches[0])
    captured, together = closed([node for branch in branches for node in branch], variables, since)
    held = tuple(
        Graph(together.inputs, together.outputs[k * count : (k + 1) * count]) for k in range(len(branches))
    )
    return results(switch(index, *captured, *given, branches=held))


def _type_rule(index: Type, *types: Type, branches: tuple[Graph, ...]) -> Type:
    if (index.dtype, index.shape) != (np.dtype(np.int64), ()):
        raise DTypeError(f"switch: the index is int64[], not {index}")
    variables = branches[0].inputs
    if len(types) != len(variables):
        raise ShapeError(f"switch: {len(types)} inputs for branches of {len(variables)}")
    for position, (given, variable) in enumerate(zip(types, variables)):
        if (given.dtype, given.shape) != (variable.dtype, variable.shape):
            raise ShapeError(f"switch: input {position} is {given}, its branches take {variable.type}")
    first = [node.type for node in branches[0].outputs]
    for number, branch in enumerate(branches):
        if any(own is not shared for own, shared in zip(branch.inputs, variables, strict=True)):
            raise ShapeError("switch: branches have other variables")
        for one, other in zip(first, branch.outputs, strict=True):
            if (one.dtype, one.shape) != (other.dtype, other.shape):
                raise ShapeError(f"switch: branch 0 gives {one}, branch {number} {other.type}")
    return TupleType.of(first)


def _reference(
    index: np.ndarray, *arrays: np.ndarray, branches: tuple[Graph, ...], run: Run = evaluate
) -> Sequence[np.ndarray]:
    number = min(max(int(index), 0), len(branches) - 1)
    try:
        return run(branches[number], arrays)
    except (IndexRangeError, MatrixError) as error:
        raise error.extended(f"in branch {number} of {len(branches)}") from None


def _pullback(node: Operation, bars: Sequence[Node | None], wanted: Sequence[bool]) -> list[Node | None]:
    """Another switch of the same index, each branch of which computes its part of the forward pass again."""
    index, *given = node.inputs
    branches: tuple[Graph, ...] = node.attributes["branches"]
    variables = branches[0].inputs
    seeds = {
        k: Variable(output.type, "cotangent")
        for k, (output, bar) in enumerate(zip(branches[0].outputs, bars))
        if bar is not None and is_float(output.dtype)
    }
    live = [k for k, is_wanted in enumerate(wanted[1:]) if is_wanted]
    found = []
    for branch in branches:
        of_live = cotangents(
            [branch.outputs[k] for k in seeds], list(seeds.values()), [variables[k] for k in live]
        )
        found.append(dict(zip(live, of_live)))
    moving = [k for k in live if any(each[k] is not None for each in found)]
    if not moving:
        return [None] * len(node.inputs)
    made = make_switch(
        index,
        (*variables, *seeds.values()),
        [[_present(each[k], variables[k]) for k in moving] for each in found],
        [*given, *(bar for k, bar in enumerate(bars) if bar is not None and k in seeds)],
    )
    supply = dict(zip(moving, made))
    return [None, *(supply.get(k) for k in range(len(variables)))]


def _present(bar: Node | None, like: Node) -> Node:
    return zeros_like(like) if bar is None else bar


def _pushforward(node: Operation, directions: Sequence[Node | None]) -> Sequence[Node | None]:
    """A switch of the same index between the branches' tangents."""
    index, *given = node.inputs
    branches: tuple[Graph, ...] = node.attributes["branches"]
    variables = branches[0].inputs
    moving = [
        Variable(v.type, "tangent") if d is not None else None for v, d in zip(variables, directions[1:])
    ]
    found = [tangents(branch.outputs, variables, moving) for branch in branches]
    there = [k for k in range(len(branches[0].outputs)) if any(each[k] is not None for each in found)]
    made = make_switch(
        index,
        (*variables, *(m for m in moving if m is not None)),
        [[_present(each[k], branch.outputs[k]) for k in there] for each, branch in zip(found, branches)],
        [*given, *(d for d in directions[1:] if d is not None)],
    )
    supply = dict(zip(there, made))
    return [supply.get(k) for k in range(len(branches[0].outputs))]


def _batch(node: Operation, inputs: Sequence[Node]) -> Sequence[Node]:
    """One branch for all examples where the index is the same for all; else all branches, and of each its examples."""
    index, *given = inputs
    branches: tuple[Graph, ...] = node.attributes["branches"]
    variables, size = branches[0].inputs, batch_size(inputs, node.inputs)
    if is_batched(index, node.inputs[0]):
        return _every_branch(index, given, branches, size)
    differs = [is_batched(x, one) for x, one in zip(given, variables)]
    ones = [variable for variable, d in zip(variables, differs) if d]
    many = [Variable(one.type.with_shape((size, *one.shape)), one.name) for one in ones]
    made = [batched(branch.outputs, ones, many) for branch in branches]
    for k, one in enumerate(branches[0].outputs):
        if any(is_batched(outputs[k], one) for outputs in made):
            for outputs in made:
                outputs[k] = same_for_all(outputs[k], one, size)
    replaced = {id(one): new for one, new in zip(ones, many)}
    own = tuple(replaced.get(id(variable), variable) for variable in variables)
    return results(switch(index, *given, branches=tuple(Graph(own, tuple(outputs)) for outputs in made)))


def _every_branch(index: Node, given: Sequence[Node], branches: Sequence[Graph], size: int) -> Sequence[Node]:
    made = []
    for number, branch in enumerate(branches):
        taken = Variable(Type(np.dtype(np.bool_), ()), "taken")
        chosen = _equals(index, number, len(branches))
        outputs = batched(_guarded(branch, taken), [*branch.inputs, taken], [*given, chosen])
        made.append([same_for_all(many, one, size) for many, one in zip(outputs, branch.outputs)])
    return picked_branch(index, made)


def picked_branch(index: Node, branches: Sequence[Sequence[Node]]) -> Sequence[Node]:
    """Of the results of all branches those of the branch that is chosen; the index is a scalar, or one a row."""
    *others, found = branches
    for number, outputs in reversed(list(enumerate(others))):
        chosen, axes = _equals(index, number, len(branches)), tuple(range(len(index.shape)))
        found = [
            new if new is old else where(_spread(chosen, new.shape, axes), new, old)
            for new, old in zip(outputs, found)
        ]
    return found


def _spread(x: Node, shape: tuple[int, ...], axes: tuple[int, ...]) -> Node:
    return x if x.shape == shape else broadcast(x, shape=shape, axes=axes)


def _equals(index: Node, number: int, count: int) -> Node:
    """Whether the branch of this number is that of the index, for each example."""

    def at_most(bound: int) -> Node:
        return less_equal(index, _spread(constant(bound, np.int64), index.shape, ()))

    if number == 0:
        return at_most(0)
    beyond = OPERATORS["logical_not"](at_most(number - 1))
    return beyond if number == count - 1 else OPERATORS["logical_and"](beyond, at_most(number))


def _guarded(branch: Graph, taken: Variable) -> Sequence[Node]:
    """The results of a branch in which no index is checked unless the branch is ``taken``."""

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node:
        if node.operator.name == "check_index":
            (x,) = inputs
            mask = broadcast(taken, shape=x.shape, axes=()) if x.shape else taken
            inputs = (where(mask, x, zeros_like(x)),)
        elif node.operator.name in ("scan", "while", "call", "switch") and _checks(node):
            return _guarded_inside(node, inputs, taken)
        return node.operator(*inputs, **node.attributes)

    return substitute(branch.outputs, {}, rebuild)


def _checks(node: Operation) -> bool:
    """Whether an index is checked in what an operation holds."""
    return any(
        isinstance(inner, Operation) and inner.operator.name == "check_index"
        for region in regions(node)
        for inner in every_node(region)
    )


def _guarded_inside(node: Operation, inputs: Sequence[Node], taken: Variable) -> Node:
    """The same for what an operation holds: its regions take one more input that is the same in all turns."""
    (first, *_) = regions(node)
    here = Variable(taken.type, "taken")
    place = node.attributes.get("consts", 0)
    own = (*first.inputs[:place], here, *first.inputs[place:])

    def guarded(held: Any) -> Any:
        if isinstance(held, Graph):
            return Graph(own, tuple(_guarded(held, here)))
        return tuple(map(guarded, held)) if isinstance(held, tuple) and node.operator is switch else held

    attributes = {name: guarded(value) for name, value in node.attributes.items()}
    if "consts" in attributes:
        attributes["consts"] = place + 1
    place += len(inputs) - len(first.inputs)  # a switch has an index before what its branches are given
    return node.operator(*inputs[:place], taken, *inputs[place:], **attributes)


def _narrow(node: Operation, used: Sequence[int]) -> tuple[Operation, Sequence[int]]:
    """Without the results that nobody uses, and the inputs that only these need."""
    branches: tuple[Graph, ...] = node.attributes["branches"]
    made = [pruned([branch.outputs[k] for k in used]) for branch in branches]
    read = {id(n) for outputs in made for n in topological(outputs)}
    kept = [k for k, variable in enumerate(branches[0].inputs) if id(variable) in read]
    positions = list(range(len(used)))
    unchanged = len(kept) + 1 == len(node.inputs) and all(
        len(outputs) == len(branch.outputs) and all(a is b for a, b in zip(outputs, branch.outputs))
        for outputs, branch in zip(made, branches)
    )
    if unchanged:
        return node, positions
    variables = tuple(branches[0].inputs[k] for k in kept)
    narrower = switch(
        node.inputs[0],
        *(node.inputs[1 + k] for k in kept),
        branches=tuple(Graph(variables, outputs) for outputs in made),
    )
    return narrower, positions


switch = Operator(  # type: ignore[arg-type]
    "switch",
    _type_rule,
    _reference,
    _pullback,
    _batch,
    None,
    (),
    narrow=_narrow,
    pushforward=_pushforward,
)
"""See the head of this file."""
