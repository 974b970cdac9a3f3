"""``while``: a region that runs as long as another one says, each time on what it gave before.

    while condition(consts, carries): carries = body(consts, carries)

Both regions share their variables. How many turns there will be nobody knows, so nothing can be kept of each: there is
a pushforward, whose tangents are further carries, and no pullback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from pullback.control.regions import Run, closed, same_for_all
from pullback.errors import DerivativeError, DTypeError, IndexRangeError, MatrixError, ShapeError
from pullback.graph import (
    OPERATORS,
    Graph,
    Node,
    Operation,
    Operator,
    TupleType,
    Type,
    Variable,
    is_float,
    pruned,
    results,
    topological,
)
from pullback.interpreter import evaluate
from pullback.numpy.promotion import where_written
from pullback.operators.batching import batch_size, is_batched
from pullback.operators.elementwise import filled, where, zeros_like
from pullback.operators.shapes import broadcast
from pullback.transforms.batching import batched
from pullback.transforms.forward import tangents

__all__ = ["make_while", "unbounded"]


def make_while(
    variables: Sequence[Variable], flag: Node, carries: Sequence[Node], inits: Sequence[Node], since: int
) -> Sequence[Node]:
    """The last carries of a loop whose condition and body give ``flag`` and ``carries`` of ``variables``."""
    captured, together = closed((flag, *carries), variables, since)
    return results(
        unbounded(
            *captured,
            *inits,
            condition=Graph(together.inputs, together.outputs[:1]),
            body=Graph(together.inputs, together.outputs[1:]),
            consts=len(captured),
        )
    )


def _type_rule(*types: Type, condition: Graph, body: Graph, consts: int) -> Type:
    for position, (given, variable) in enumerate(zip(types, body.inputs, strict=True)):
        if (given.dtype, given.shape) != (variable.dtype, variable.shape):
            raise ShapeError(f"while: input {position} is {given}, its body takes {variable.type}")
    (flag,) = condition.outputs
    if (flag.dtype, flag.shape) != (np.dtype(np.bool_), ()):
        raise DTypeError(f"while: the condition gives {flag.type}, not bool[]")
    for before, after in zip(body.inputs[consts:], body.outputs, strict=True):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise ShapeError(f"while: a carry enters the body as {before.type} and leaves it as {after.type}")
    return TupleType.of([node.type for node in body.outputs])


def _reference(
    *arrays: np.ndarray, condition: Graph, body: Graph, consts: int, run: Run = evaluate
) -> list[np.ndarray]:
    given, state, turn = arrays[:consts], list(arrays[consts:]), 0
    try:
        while run(condition, [*given, *state])[0]:
            state = run(body, [*given, *state])
            turn += 1
    except (IndexRangeError, MatrixError) as error:
        raise error.extended(f"in turn {turn} of a while loop") from None
    return state


def _refuse(node: Operation, bars: Any, wanted: Any) -> NoReturn:
    raise DerivativeError(
        "while_loop: reverse mode goes through the turns from the last to the first and must have kept each, and how "
        "many there will be is not known; give max_steps, use forward mode (jvp), or give the loop a rule of its own "
        f"with custom_pullback{where_written()}"
    )


def _pushforward(node: Operation, directions: Sequence[Node | None]) -> Sequence[Node | None]:
    """A loop that carries the tangents as well."""
    condition, body, consts = (node.attributes[name] for name in ("condition", "body", "consts"))
    variables = body.inputs
    moving = [d is not None for d in directions]
    while True:
        seeds = [Variable(v.type, "tangent") if m else None for v, m in zip(variables, moving)]
        found = tangents(body.outputs, variables, seeds)
        reached = [
            m or (k >= consts and found[k - consts] is not None and is_float(variables[k].dtype))
            for k, m in enumerate(moving)
        ]
        if reached == moving:
            break
        moving = reached
    carried = [k for k in range(consts, len(variables)) if moving[k]]
    along = [seed for seed in seeds if seed is not None]
    fixed = len(along) - len(carried)
    inputs = (*variables[:consts], *along[:fixed], *variables[consts:], *along[fixed:])
    starts = [_present(directions[k], node.inputs[k]) for k in carried]
    made = unbounded(
        *node.inputs[:consts],
        *(d for d in directions[:consts] if d is not None),
        *node.inputs[consts:],
        *starts,
        condition=Graph(inputs, condition.outputs),
        body=Graph(
            inputs,
            (*body.outputs, *(_present(found[k - consts], variables[k]) for k in carried)),
        ),
        consts=consts + fixed,
    )
    count = len(body.outputs)
    supply = dict(zip(carried, results(made)[count:]))
    return [supply.get(consts + k) for k in range(count)]


def _present(tangent: Node | None, like: Node) -> Node:
    return zeros_like(like) if tangent is None else tangent


def _batch(node: Operation, inputs: Sequence[Node]) -> Sequence[Node]:
    """A loop that goes on while it does for any example; those that are done keep what they have."""
    condition, body, consts = (node.attributes[name] for name in ("condition", "body", "consts"))
    variables, size = body.inputs, batch_size(inputs, node.inputs)
    differs = [is_batched(x, one) for x, one in zip(inputs, variables)]
    while True:
        own = [
            Variable(v.type.with_shape((size, *v.shape)), v.name) if d else v
            for v, d in zip(variables, differs)
        ]
        flag, *made = batched((*condition.outputs, *body.outputs), variables, own)
        each = is_batched(flag, condition.outputs[0])
        changed = [
            consts + k
            for k, (many, one) in enumerate(zip(made, body.outputs))
            if (each or is_batched(many, one)) and not differs[consts + k]
        ]
        if not changed:
            break
        for k in changed:
            differs[k] = True
    following = []
    for k, (many, one) in enumerate(zip(made, body.outputs)):
        if differs[consts + k]:
            new = same_for_all(many, one, size)
            mask = broadcast(flag, shape=new.shape, axes=(0,)) if each else None
            following.append(new if mask is None else where(mask, new, own[consts + k]))
        else:
            following.append(many)
    if each:
        flag = OPERATORS["max"](flag, axes=(0,)) if size else filled(0, np.dtype(np.bool_), ())
    given = [
        same_for_all(x, one, size) if d and k >= consts else x
        for k, (x, one, d) in enumerate(zip(inputs, node.inputs, differs))
    ]
    return results(
        unbounded(
            *given,
            condition=Graph(tuple(own), (flag,)),
            body=Graph(tuple(own), tuple(following)),
            consts=consts,
        )
    )


def _narrow(node: Operation, used: Sequence[int]) -> tuple[Operation, Sequence[int]]:
    """Without the carries that neither the condition nor a used result needs; one that never changes is a const."""
    condition, body, consts = (node.attributes[name] for name in ("condition", "body", "consts"))
    variables = body.inputs
    still = {k for k, after in enumerate(body.outputs) if after is variables[consts + k]} - set(used)
    kept = set(used)
    flag = pruned(condition.outputs)
    while True:
        carried = sorted(kept)
        made = pruned([body.outputs[k] for k in carried])
        read = {id(n) for n in topological((*flag, *made))}
        reached = {
            k for k in range(len(body.outputs)) if id(variables[consts + k]) in read and k not in still
        }
        if reached <= kept:
            break
        kept |= reached
    fixed = [k for k in range(consts) if id(variables[k]) in read]
    fixed += [consts + k for k in sorted(still) if id(variables[consts + k]) in read]
    positions = [carried.index(k) for k in used]
    same = all(new is old for new, old in zip((*flag, *made), (*condition.outputs, *body.outputs)))
    if len(fixed) + len(carried) == len(node.inputs) and len(fixed) == consts and same:
        return node, positions
    places = [*fixed, *(consts + k for k in carried)]
    own = tuple(variables[k] for k in places)
    narrower = unbounded(
        *(node.inputs[k] for k in places),
        condition=Graph(own, flag),
        body=Graph(own, made),
        consts=len(fixed),
    )
    return narrower, positions


unbounded = Operator(  # type: ignore[arg-type]
    "while",
    _type_rule,
    _reference,
    _refuse,
    _batch,
    None,
    (),
    narrow=_narrow,
    pushforward=_pushforward,
    forward_only=lambda node: True,
)
"""See the head of this file."""
