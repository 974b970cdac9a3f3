"""Loop nests to code: shared, serial, unrolled and vector axes, and the values that go from turn to turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pullback.compiler.codegen.values import Group, Place, Values
from pullback.loops import Axis, Expression

__all__ = ["emit_nest", "emit_parallel", "emit_vectors"]

Carried = list[str]


def emit_nest(
    values: Values,
    axes: Sequence[Axis],
    body: Callable[[Carried], Carried],
    start: Sequence[tuple[str, str]] = (),
    ends: tuple[str, str] | None = None,
    unrolled: Callable[[Sequence[Axis]], bool] = lambda axes: False,
    hoisted: tuple[Sequence[Expression], Iterable[Axis]] = ((), ()),
    entered: Callable[[str], None] = lambda turn: None,
) -> Carried:
    """``body`` for every turn of ``axes``, the outermost first; pairs of a type and a value go from turn to turn.

    The first axis goes between ``ends`` and calls ``entered`` in each turn. An axis is a loop unless those from it on
    are ``unrolled``. Before each loop that of the ``hoisted`` expressions is computed which depends neither on the axes
    that are left nor on those given with them.
    """
    if not axes:
        return body([value for _, value in start])
    axis, rest = axes[0], axes[1:]
    roots, inside = hoisted
    if roots:
        values.hoist(roots, {*axes, *inside})

    def turn(place: Place, current: Sequence[str]) -> Carried:
        values.places[axis] = place
        if place.value is not None:
            entered(place.value)
        with values.scope():
            pairs = [(kind, value) for (kind, _), value in zip(start, current)]
            new = emit_nest(values, rest, body, pairs, None, unrolled, hoisted)
        del values.places[axis]
        return new

    if unrolled(axes):
        current = [value for _, value in start]
        for k in range(axis.extent):
            current = turn(Place(None, k), current)
        return current
    low, high = ends or ("0", str(axis.extent))
    with values.f.loop(low, high, carried=start) as loop:
        loop.carry(*turn(Place(loop.index), loop.values))
    return loop.results


def emit_parallel(
    values: Values,
    axes: Sequence[Axis],
    shared: Axis | None,
    ends: tuple[str, str] | None,
    body: Callable[[], None],
) -> None:
    """``body`` for every turn of ``axes``; threads share out those of one of them, which go between ``ends``."""

    def turn(carried: Carried) -> Carried:
        body()
        return carried

    emit_nest(values, axes, turn, ends=ends if axes and axes[0] is shared else None)


def emit_vectors(
    values: Values,
    axis: Axis,
    lanes: int,
    body: Callable[[Group, Place, Carried], Carried],
    start: Sequence[tuple[str, str]] = (),
    most_unrolled: int = 1,
) -> Carried:
    """``body`` for every vector along ``axis``, the last one with the lanes that are left.

    Up to ``most_unrolled`` whole vectors are no loop.
    """
    full, tail = divmod(axis.extent, lanes)
    whole, current = Group(axis, 1, lanes), [value for _, value in start]
    if full > most_unrolled:
        with values.f.loop("0", str(full * lanes), lanes, start) as loop:
            loop.carry(*body(whole, Place(loop.index), loop.values))
        current = loop.results
    else:
        for k in range(full):
            current = body(whole, Place(None, k * lanes), current)
    return body(Group(axis, 1, lanes, tail), Place(None, full * lanes), current) if tail else current
