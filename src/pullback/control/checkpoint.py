"""``checkpoint``: values of a function that the backward pass computes again instead of keeping them.

    results = call(inputs)                  one region; what it computes on the way is not seen from outside

The pullback of a call is a call as well, whose region holds the forward part once more and the cotangents. As nobody
looks into regions, its operations are not joined with those of the first call, and nothing but the inputs is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from pullback.control.regions import Run, closed, dependent
from pullback.errors import DTypeError, IndexRangeError, MatrixError, ShapeError, TreeError
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
    mark,
    pruned,
    result,
    results,
    substitute,
    topological,
)
from pullback.interpreter import evaluate
from pullback.numpy.promotion import where_written
from pullback.operators.batching import batch_size, is_batched
from pullback.tracing.trace import ended, finish, leaf_type, output_nodes, traces_under_way, tracing
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import flatten
from pullback.transforms.batching import batched
from pullback.transforms.forward import tangents
from pullback.transforms.reverse import cotangents

__all__ = ["call", "checkpoint"]

P = ParamSpec("P")
R = TypeVar("R")
Function = Callable[..., Any]
Policy = Callable[[str], bool]

POLICIES: dict[str, frozenset[str]] = {
    "nothing": frozenset(),
    "products": frozenset({"contract", "convolve"}),
}


def checkpoint(function: Callable[P, R], policy: str | Policy = "nothing") -> Callable[P, R]:
    """``function``, whose values on the way are computed again by its pullback rather than kept.

    Kept are its arguments, what it closes over, and the results of the operators that the ``policy`` names:
    ``"nothing"``, ``"products"`` (matrix products and convolutions), or a function that tells of an operator's name
    whether its results are kept. The derivatives are the same; memory goes down, and the time of a backward pass up by
    that of a forward pass, or of its cheap parts. In the body of a ``scan`` only the carries are kept for each step.

    Raises ``TreeError`` for a policy of another name.

    Source: Griewank & Walther, *Algorithm 799: revolve*, ACM TOMS 26, 2000; the meaning is that of ``jax.checkpoint``.

    >>> import pullback as pb
    >>> layer = checkpoint(lambda x: np.sin(np.cos(x)))
    >>> float(pb.grad(lambda x: layer(layer(x)))(1.0)) == float(
    ...     pb.grad(lambda x: np.sin(np.cos(np.sin(np.cos(x)))))(1.0)
    ... )
    True
    """
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise TreeError(
                f"checkpoint: there is no policy {policy!r}; give one of {', '.join(POLICIES)}, or a function of an "
                f"operator's name{where_written()}"
            )
        saved = tuple(sorted(POLICIES[policy]))
    else:
        saved = tuple(sorted(name for name in OPERATORS if policy(name)))

    @wraps(function)
    @shows_users_frames
    def checkpointed(*arguments: Any, **keywords: Any) -> Any:
        leaves, structure = flatten((arguments, keywords))
        if not traces_under_way() and not any(isinstance(leaf, Node) for leaf in leaves):
            return function(*arguments, **keywords)
        types = [leaf_type(leaf, f"checkpoint: {path}") for leaf, path in zip(leaves, structure.paths)]
        variables = [Variable(type, "argument") for type in types]
        since = mark()
        given, named = structure.unflatten(variables)
        with tracing(variables, (given, named)):
            outputs, out = output_nodes(function(*given, **named))
        outputs = ended(outputs, since)
        captured, body = closed(outputs, variables, since)
        around = [Variable(type, "argument") for type in types]
        node = call(*captured, *around, body=body, saved=saved)
        return out.unflatten(finish(results(node), around, leaves))

    return checkpointed


def _type_rule(*types: Type, body: Graph, saved: tuple[str, ...]) -> Type:
    if len(types) != len(body.inputs):
        raise ShapeError(f"call: {len(types)} inputs for a region of {len(body.inputs)}")
    for position, (given, variable) in enumerate(zip(types, body.inputs)):
        if given.shape != variable.shape:
            raise ShapeError(f"call: input {position} is {given}, its region takes {variable.type}")
        if given.dtype != variable.dtype:
            raise DTypeError(f"call: input {position} is {given}, its region takes {variable.type}")
    return TupleType.of([node.type for node in body.outputs])


def _reference(
    *arrays: np.ndarray, body: Graph, saved: tuple[str, ...], run: Run = evaluate
) -> Sequence[np.ndarray]:
    try:
        return run(body, arrays)
    except (IndexRangeError, MatrixError) as error:
        raise error.extended("in a checkpoint") from None


def _pullback(node: Operation, bars: Sequence[Node | None], wanted: Sequence[bool]) -> list[Node | None]:
    """Another call, which computes the forward part again, but for what the policy saves."""
    body: Graph = node.attributes["body"]
    saved: tuple[str, ...] = node.attributes["saved"]
    seeds = {
        k: Variable(output.type, "cotangent")
        for k, (output, bar) in enumerate(zip(body.outputs, bars))
        if bar is not None and is_float(output.dtype)
    }
    live = [k for k, is_wanted in enumerate(wanted) if is_wanted]
    made = cotangents([body.outputs[k] for k in seeds], list(seeds.values()), [body.inputs[k] for k in live])
    found = {k: bar for k, bar in zip(live, made) if bar is not None}
    if not found:
        return [None] * len(node.inputs)
    outputs: Sequence[Node] = list(found.values())
    kept = _kept(outputs, list(seeds.values()), saved)
    own = [Variable(value.type, "kept") for value in kept]
    outputs = substitute(outputs, dict(zip(kept, own)))
    ahead = call(*node.inputs, body=Graph(body.inputs, (*body.outputs, *kept)), saved=saved)
    first = len(body.outputs)
    back = call(
        *node.inputs,
        *(bar for k, bar in enumerate(bars) if bar is not None and k in seeds),
        *(result(ahead, index=first + k) for k in range(len(kept))),
        body=Graph((*body.inputs, *seeds.values(), *own), tuple(outputs)),
        saved=saved,
    )
    supply = dict(zip(found, results(back)))
    return [supply.get(k) for k in range(len(node.inputs))]


def _kept(outputs: Sequence[Node], seeds: Sequence[Variable], saved: tuple[str, ...]) -> list[Node]:
    """The results of ``saved`` operators that ``outputs`` use, seen from the cotangents ``seeds``."""
    if not saved:
        return []
    order = topological(outputs)
    backward = dependent(order, seeds)
    chosen = {id(node) for node in order if id(node) not in backward and _made_by(node) in saved}
    used: list[Node] = []
    seen: set[int] = set()
    stack = list(outputs)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if id(node) in chosen:
            used.append(node)
        else:
            stack += node.inputs
    return used


def _made_by(node: Node) -> str | None:
    """The operator that gives an array, or several, of which this is one."""
    if not isinstance(node, Operation) or isinstance(node.type, TupleType):
        return None
    maker = node.inputs[0] if node.operator is result else node
    return maker.operator.name if isinstance(maker, Operation) else None


def _pushforward(node: Operation, directions: Sequence[Node | None]) -> Sequence[Node | None]:
    """A call of the tangents."""
    body: Graph = node.attributes["body"]
    moving = [None if d is None else Variable(v.type, "tangent") for v, d in zip(body.inputs, directions)]
    found = tangents(body.outputs, body.inputs, moving)
    there = [k for k, tangent in enumerate(found) if tangent is not None]
    region = Graph(
        (*body.inputs, *(m for m in moving if m is not None)), tuple(t for t in found if t is not None)
    )
    along = call(
        *node.inputs, *(d for d in directions if d is not None), body=region, saved=node.attributes["saved"]
    )
    supply = dict(zip(there, results(along)))
    return [supply.get(k) for k in range(len(body.outputs))]


def _batch(node: Operation, inputs: Sequence[Node]) -> Sequence[Node]:
    body: Graph = node.attributes["body"]
    size = batch_size(inputs, node.inputs)
    differs = [is_batched(x, one) for x, one in zip(inputs, body.inputs)]
    own = [
        Variable(one.type.with_shape((size, *one.shape)), one.name) if d else one
        for one, d in zip(body.inputs, differs)
    ]
    ones = [one for one, d in zip(body.inputs, differs) if d]
    made = batched(body.outputs, ones, [many for many, d in zip(own, differs) if d])
    return results(call(*inputs, body=Graph(tuple(own), tuple(made)), saved=node.attributes["saved"]))


def _narrow(node: Operation, used: Sequence[int]) -> tuple[Operation, Sequence[int]]:
    """Without the results that nobody uses, and the inputs that only these need."""
    body: Graph = node.attributes["body"]
    made = pruned([body.outputs[k] for k in used])
    read = {id(n) for n in topological(made)}
    kept = [k for k, variable in enumerate(body.inputs) if id(variable) in read]
    positions = list(range(len(used)))
    if (
        len(kept) == len(node.inputs)
        and len(made) == len(body.outputs)
        and all(new is old for new, old in zip(made, body.outputs))
    ):
        return node, positions
    region = Graph(tuple(body.inputs[k] for k in kept), made)
    return call(*(node.inputs[k] for k in kept), body=region, saved=node.attributes["saved"]), positions


call = Operator(  # type: ignore[arg-type]
    "call",
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
