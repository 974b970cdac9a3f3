"""``scan``: a region that runs once for each step of a sequence and hands a state, the carry, from step to step.

    carry[t + 1], y[t] = body(consts, carry[t], x[t])         t = 0 … trips - 1, or backwards with ``reverse``

The operation has the last carries and all ``y`` as results. Its inputs are those of the body, the carries with their
first values and every ``x`` with an axis of steps in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.control.regions import Run, closed, dependent, same_for_all
from pullback.control.saving import chosen_to_save
from pullback.errors import DTypeError, IndexRangeError, MatrixError, ShapeError
from pullback.graph import (
    Graph,
    Node,
    Operation,
    Operator,
    TupleType,
    Type,
    Variable,
    pruned,
    result,
    results,
    substitute,
    topological,
)
from pullback.interpreter import evaluate
from pullback.operators.batching import is_batched, moved
from pullback.operators.elementwise import summed, zeros_like
from pullback.transforms.batching import batched
from pullback.transforms.forward import tangents
from pullback.transforms.reverse import cotangents

__all__ = ["Parts", "Scan", "make_scan", "scan"]


@dataclass(frozen=True)
class Parts:
    """The inputs of a scan, or of its body, by what they are for."""

    consts: tuple[Any, ...]
    carries: tuple[Any, ...]
    xs: tuple[Any, ...]

    @property
    def all(self) -> tuple[Any, ...]:
        """Those inputs in their order."""
        return (*self.consts, *self.carries, *self.xs)


@dataclass(frozen=True)
class Scan:
    """A scan operation taken apart."""

    inputs: Parts
    variables: Parts
    """What stands for the inputs in the body, where an ``x`` is that of one step."""
    carries: tuple[Node, ...]
    ys: tuple[Node, ...]
    """What the body gives: the carries of the next step, and what is kept of each."""
    trips: int
    reverse: bool

    @staticmethod
    def of(node: Operation) -> Scan:
        """What ``node`` is made of."""
        body, consts, carries = (node.attributes[name] for name in ("body", "consts", "carries"))
        inputs, variables = (
            Parts(of[:consts], of[consts : consts + carries], of[consts + carries :])
            for of in (node.inputs, body.inputs)
        )
        trips, reverse = node.attributes["trips"], node.attributes["reverse"]
        return Scan(inputs, variables, body.outputs[:carries], body.outputs[carries:], trips, reverse)

    def with_outputs(self, carries: Sequence[Node], ys: Sequence[Node]) -> Operation:
        """A scan of the same inputs whose body gives these."""
        return scan(
            *self.inputs.all,
            body=Graph(self.variables.all, (*carries, *ys)),
            consts=len(self.inputs.consts),
            carries=len(self.inputs.carries),
            trips=self.trips,
            reverse=self.reverse,
        )


def make_scan(
    variables: Sequence[Variable],
    xs_variables: Sequence[Variable],
    carries: Sequence[Node],
    ys: Sequence[Node],
    inits: Sequence[Node],
    xs: Sequence[Node],
    trips: int,
    reverse: bool,
) -> Sequence[Node]:
    """The results of a scan whose body gives ``carries`` and ``ys`` of its variables and of nodes around it."""
    captured, body = closed((*carries, *ys), (*variables, *xs_variables))
    node = scan(
        *captured,
        *inits,
        *xs,
        body=body,
        consts=len(captured),
        carries=len(variables),
        trips=trips,
        reverse=reverse,
    )
    return results(node)


def _type_rule(*types: Type, body: Graph, consts: int, carries: int, trips: int, reverse: bool) -> Type:
    if len(types) != len(body.inputs):
        raise ShapeError(f"scan: {len(types)} inputs for a body of {len(body.inputs)}")
    for position, (given, variable) in enumerate(zip(types, body.inputs)):
        shape = (trips, *variable.shape) if position >= consts + carries else variable.shape
        if given.shape != shape:
            raise ShapeError(f"scan: input {position} is {given}, its body takes {variable.type}")
        if given.dtype != variable.dtype:
            raise DTypeError(f"scan: input {position} is {given}, its body takes {variable.type}")
    for before, after in zip(body.inputs[consts : consts + carries], body.outputs):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise ShapeError(f"scan: a carry enters the body as {before.type} and leaves it as {after.type}")
    kept = [node.type for node in body.outputs[:carries]]
    return TupleType.of([*kept, *(y.type.with_shape((trips, *y.shape)) for y in body.outputs[carries:])])


def _reference(
    *arrays: np.ndarray,
    body: Graph,
    consts: int,
    carries: int,
    trips: int,
    reverse: bool,
    run: Run = evaluate,
) -> list[np.ndarray]:
    given, state, xs = arrays[:consts], list(arrays[consts : consts + carries]), arrays[consts + carries :]
    ys = [np.zeros((trips, *y.shape), y.dtype) for y in body.outputs[carries:]]
    for step in reversed(range(trips)) if reverse else range(trips):
        try:
            made = run(body, [*given, *state, *(x[step] for x in xs)])
        except (IndexRangeError, MatrixError) as error:
            raise error.extended(f"in step {step} of {trips}") from None
        state = made[:carries]
        for y, value in zip(ys, made[carries:]):
            y[step] = value
    return [*state, *ys]


def _pullback(node: Operation, bars: Sequence[Node | None], wanted: Sequence[bool]) -> list[Node | None]:
    """Another scan, the other way round, that carries the cotangents of the carries and adds up those of the consts.

    What the body computes and the pullback needs is kept by a scan of the same body, or computed again: ``saving``.
    """
    this = Scan.of(node)
    variables, count = this.variables, len(this.carries)
    seeds = [Variable(c.type, "cotangent") for c in this.carries]
    y_seeds = [
        None if bar is None else Variable(y.type, "cotangent") for y, bar in zip(this.ys, bars[count:])
    ]
    moving = {k for k, bar in enumerate(bars[:count]) if bar is not None}
    live = _live(this, wanted)
    while True:
        seeded = [(c, seed) for k, (c, seed) in enumerate(zip(this.carries, seeds)) if k in moving]
        seeded += [(y, seed) for y, seed in zip(this.ys, y_seeds) if seed is not None]
        bars_of_live = cotangents([node for node, _ in seeded], [seed for _, seed in seeded], live)
        of_live = {id(v): bar for v, bar in zip(live, bars_of_live)}
        found = [of_live.get(id(v)) for v in variables.all]
        parts = Parts(*_split(found, this))
        reached = {k for k, bar in enumerate(parts.carries) if bar is not None}
        if reached <= moving:
            break
        moving |= reached
    kept = chosen_to_save(
        [bar for bar in found if bar is not None],
        [*seeds, *y_seeds],
        variables.carries,
        variables.xs,
        [*this.carries, *this.ys],
        [*this.ys, *(v for v, after in zip(variables.carries, this.carries) if _is_among(after, this.ys))],
    )
    ahead = this.with_outputs(this.carries, (*this.ys, *kept))
    stacks = [result(ahead, index=count + len(this.ys) + k) for k in range(len(kept))]
    # Inside the pullback: consts are those around it, what is kept comes step by step, and so does each x.
    own = [Variable(value.type) for value in (*kept, *variables.xs)]
    replaced: dict[Node, Node] = dict(zip((*kept, *variables.xs), own))
    replaced.update(zip(variables.consts, this.inputs.consts))

    def inside(nodes: Sequence[Node | None], seeds: Sequence[Node]) -> list[Node]:
        return list(
            substitute(
                [zeros_like(s) if n is None else n for n, s in zip(nodes, seeds)],
                replaced,
            )
        )

    carried = sorted(moving)
    added = [k for k, bar in enumerate(parts.consts) if bar is not None]
    pulled = [k for k, bar in enumerate(parts.xs) if bar is not None]
    totals = [Variable(variables.consts[k].type, "total") for k in added]
    carries = inside([parts.carries[k] for k in carried], [seeds[k] for k in carried])
    parts_added = inside([parts.consts[k] for k in added], totals)
    ys = inside([parts.xs[k] for k in pulled], [variables.xs[k] for k in pulled])
    y_bars = [(seed, bar) for seed, bar in zip(y_seeds, bars[count:]) if seed is not None and bar is not None]
    last = zip((bars[k] for k in carried), (this.inputs.carries[k] for k in carried))
    starts = [zeros_like(carry) if bar is None else bar for bar, carry in last]
    made = make_scan(
        [*(seeds[k] for k in carried), *totals],
        [*own, *(seed for seed, _ in y_bars)],
        [*carries, *(summed(total, part) for total, part in zip(totals, parts_added))],
        ys,
        [*starts, *(zeros_like(this.inputs.consts[k]) for k in added)],
        [*stacks, *this.inputs.xs, *(bar for _, bar in y_bars)],
        this.trips,
        not this.reverse,
    )
    supply = dict(
        zip(
            [
                *(len(this.inputs.consts) + k for k in carried),
                *added,
                *(len(this.inputs.consts) + count + k for k in pulled),
            ],
            made,
        )
    )
    return [supply.get(k) for k in range(len(node.inputs))]


def _live(this: Scan, wanted: Sequence[bool]) -> list[Variable]:
    """The variables of the body by whose cotangents those ``wanted`` are computed.

    Beside their own these are the carries that depend on them in a later step.
    """
    order = topological(this.carries)
    live = [variable for variable, is_wanted in zip(this.variables.all, wanted) if is_wanted]
    while True:
        known = {id(variable) for variable in live}
        reached = dependent(order, live)
        more = [
            variable
            for variable, after in zip(this.variables.carries, this.carries)
            if id(after) in reached and id(variable) not in known
        ]
        if not more:
            return live
        live += more


def _is_among(node: Node, nodes: Sequence[Node]) -> bool:
    return any(node is other for other in nodes)


def _pushforward(node: Operation, directions: Sequence[Node | None]) -> Sequence[Node | None]:
    """A scan that carries the tangents of the carries as well, and keeps those of what is kept."""
    this = Scan.of(node)
    given, variables, count = Parts(*_split(directions, this)), this.variables, len(this.carries)
    of_consts, of_xs = (
        [None if d is None else Variable(v.type, "tangent") for v, d in zip(own, found)]
        for own, found in ((variables.consts, given.consts), (variables.xs, given.xs))
    )
    moving = {k for k, d in enumerate(given.carries) if d is not None}
    while True:
        of_carries = [
            Variable(v.type, "tangent") if k in moving else None for k, v in enumerate(variables.carries)
        ]
        found = tangents((*this.carries, *this.ys), variables.all, [*of_consts, *of_carries, *of_xs])
        reached = {k for k in range(count) if found[k] is not None}
        if reached <= moving:
            break
        moving |= reached
    carried = sorted(moving)
    kept = [k for k in range(len(this.ys)) if found[count + k] is not None]
    after = [zeros_like(variables.carries[k]) if (t := found[k]) is None else t for k in carried]
    starts = [zeros_like(this.inputs.carries[k]) if (d := given.carries[k]) is None else d for k in carried]
    outputs = (*this.carries, *after, *this.ys, *(t for t in found[count:] if t is not None))
    whole = scan(
        *this.inputs.consts,
        *(d for d in given.consts if d is not None),
        *this.inputs.carries,
        *starts,
        *this.inputs.xs,
        *(d for d in given.xs if d is not None),
        body=Graph(
            (
                *variables.consts,
                *(v for v in of_consts if v is not None),
                *variables.carries,
                *(v for v in of_carries if v is not None),
                *variables.xs,
                *(v for v in of_xs if v is not None),
            ),
            outputs,
        ),
        consts=len(variables.consts) + sum(v is not None for v in of_consts),
        carries=count + len(carried),
        trips=this.trips,
        reverse=this.reverse,
    )
    first = count + len(carried) + len(this.ys)
    supply = {k: result(whole, index=count + position) for position, k in enumerate(carried)}
    supply.update((count + k, result(whole, index=first + position)) for position, k in enumerate(kept))
    return [supply.get(k) for k in range(count + len(this.ys))]


def _split(nodes: Sequence[Any], this: Scan) -> tuple[tuple[Any, ...], ...]:
    consts, carries = len(this.inputs.consts), len(this.inputs.carries)
    return tuple(nodes[:consts]), tuple(nodes[consts : consts + carries]), tuple(nodes[consts + carries :])


def _batch(node: Operation, inputs: Sequence[Node]) -> Sequence[Node]:
    """The scan of many examples: its carries and ``x`` that differ between them have a batch axis inside the body."""
    this = Scan.of(node)
    differs = [is_batched(x, one) for x, one in zip(inputs, node.inputs)]
    size = next(x.shape[0] for x, d in zip(inputs, differs) if d)
    consts, count = len(this.inputs.consts), len(this.inputs.carries)
    while True:
        ones = [variable for variable, d in zip(this.variables.all, differs) if d]
        many = [Variable(one.type.with_shape((size, *one.shape)), one.name) for one in ones]
        made = batched((*this.carries, *this.ys), ones, many)
        changed = [
            k for k in range(count) if is_batched(made[k], this.carries[k]) and not differs[consts + k]
        ]
        if not changed:
            break
        for k in changed:
            differs[consts + k] = True

    replaced = {id(one): new for one, new in zip(ones, many)}
    variables: list[Any] = [replaced.get(id(v), v) for v in this.variables.all]
    given: list[Node] = []
    for k, (x, one) in enumerate(zip(inputs, node.inputs)):
        if k >= consts + count:
            given.append(moved(x, 0, 1) if differs[k] else x)
        else:
            given.append(same_for_all(x, one, size) if differs[k] and k >= consts else x)
    carries = [
        same_for_all(made[k], c, size) if differs[consts + k] else made[k] for k, c in enumerate(this.carries)
    ]
    node = scan(
        *given,
        body=Graph(tuple(variables), (*carries, *made[count:])),
        consts=consts,
        carries=count,
        trips=this.trips,
        reverse=this.reverse,
    )
    found = list(results(node))
    for k, (y, one) in enumerate(zip(made[count:], this.ys)):
        if is_batched(y, one):
            found[count + k] = moved(found[count + k], 1, 0)
    return found


def _narrow(node: Operation, used: Sequence[int]) -> tuple[Operation, Sequence[int]]:
    """Without the ``y`` that nobody uses, the carries that neither a used result nor a kept carry needs, and inputs."""
    this = Scan.of(node)
    count = len(this.carries)
    ys = [k for k in range(len(this.ys)) if count + k in used]
    kept = {k for k in range(count) if k in used}
    while True:
        wanted = [*(this.carries[k] for k in sorted(kept)), *(this.ys[k] for k in ys)]
        made = pruned(wanted)
        read = {id(n) for n in topological(made)}
        reached = {k for k, variable in enumerate(this.variables.carries) if id(variable) in read}
        if reached <= kept:
            break
        kept |= reached
    carried = sorted(kept)
    chosen = Parts(
        tuple(k for k, v in enumerate(this.variables.consts) if id(v) in read),
        tuple(carried),
        tuple(k for k, v in enumerate(this.variables.xs) if id(v) in read),
    )
    inputs, variables = _chosen(this.inputs, chosen), _chosen(this.variables, chosen)
    positions = [carried.index(k) if k < count else len(carried) + ys.index(k - count) for k in used]
    if (
        len(inputs.all) == len(node.inputs)
        and len(ys) == len(this.ys)
        and all(new is old for new, old in zip(made, wanted))
    ):
        return node, positions
    count = len(carried)
    narrower = Scan(inputs, variables, made[:count], made[count:], this.trips, this.reverse)
    return narrower.with_outputs(narrower.carries, narrower.ys), positions


def _chosen(parts: Parts, places: Parts) -> Parts:
    pairs = zip((parts.consts, parts.carries, parts.xs), (places.consts, places.carries, places.xs))
    return Parts(*(tuple(values[k] for k in chosen) for values, chosen in pairs))


scan = Operator(  # type: ignore[arg-type]
    "scan",
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
