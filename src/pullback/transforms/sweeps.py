"""Reverse sweeps on values, remembered: which operations the derivative of a graph takes is found out once.

What rules make of a graph depends on its operations, on the constants among their operands, and on types, not on
values. So when a graph like one before comes again, its derivative is made as a graph, of variables in place of values,
and from then on the references of the operations in it are called, one after another, by a function of Python's that
is written for it: without rules and nodes. What is on a tape needs no nodes to be recognised either.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.errors import CallbackError, IndexRangeError, MatrixError, PullbackError
from pullback.graph import (
    PENDING,
    Constant,
    Detached,
    Node,
    Operation,
    Source,
    Variable,
    applied,
    constant,
    force,
    topological,
    written_at,
)
from pullback.graph.node import SMALL_CONSTANT
from pullback.graph.straight import Straight, scalar_or_array
from pullback.graph.values import evaluating, with_line
from pullback.numpy.arrays import TracedArray
from pullback.numpy.recipes import Recipe, recipe_of, recorded_together
from pullback.numpy.tape import Tape, is_told, number_of
from pullback.operators.shapes import padded
from pullback.tracing.trace import owned
from pullback.transforms.forward import tangents
from pullback.transforms.reverse import Sums, cotangents, detached_cotangents, one, unjoined_cotangents

__all__ = ["known_cotangents", "learn_nested", "nested_results", "taped_results", "taped_tangents"]

MOST_STEPS = 100_000
"""Steps of all derivatives that are remembered together, or nearly."""

MOST_REFUSED = 10_000
"""Graphs that find no room until room is made for others."""

_UNKNOWN: Any = object()


class _Memory:
    """What is known of graphs by their likeness: which have come before, and the derivatives of these."""

    def __init__(self) -> None:
        self.sweeps: dict[tuple[Any, ...], Sweep | None] = {}
        """``None`` where rules make something of a graph that is not to be remembered."""
        self.taped: dict[tuple[Any, ...], tuple[Sweep, list[int]] | None] = {}
        """By what tells a tape, and the place of the result, a derivative and the places of the values it needs."""
        self.nested: dict[tuple[Any, ...], Recipe | None] = {}
        """In the same way recipes of a result and its derivatives, of functions within others."""
        self.seen: set[int] = set()
        self.steps = self.refused = 0

    def admits(self, key: tuple[Any, ...]) -> bool:
        """Whether a derivative is to be made: of a graph that has come before, where there is room."""
        if self.refused > MOST_REFUSED or len(self.seen) > MOST_STEPS:
            self.sweeps.clear()
            self.taped.clear()
            self.nested.clear()
            self.seen.clear()
            self.steps = self.refused = 0
        known = hash(key)
        if known not in self.seen:
            self.seen.add(known)
            return False
        if self.steps <= MOST_STEPS:
            return True
        # Those that are here stay a while: graphs that take turns would all be made each time.
        self.refused += 1
        return False

    def take(self, key: tuple[Any, ...], sweep: Sweep | None) -> None:
        """Remember a derivative."""
        self.sweeps[key] = sweep
        self.steps += 1 if sweep is None else sweep.size

    def take_tape(self, tape: Tape, place: int, order: Sequence[Node], sweep: Sweep) -> None:
        """Remember that this is the derivative of what stands in this place on a tape."""
        if len(tape.values) <= MOST_STEPS - self.steps:
            places = tape.places()
            key = (place, *tape.key)
            self.taped[key] = sweep, [places[order[each]] for each in sweep.needed]
            self.steps += len(tape.values)


_memory = _Memory()


def known_cotangents(
    order: Sequence[Node],
    output: Node,
    inputs: Sequence[Variable],
    kept: Sequence[Node],
    tape: Tape | None = None,
    result: Any = None,
) -> list[Node | None]:
    """The cotangents of ``inputs`` for a scalar whose value is known, as numbers without a graph.

    ``order`` is a topological order of what the output is computed from. Of each operation the value is let go, but
    for those of ``kept``. Where the ``result``, a traced array, is on a ``tape``, it is remembered for that, too.
    """
    key = _likeness(order, output, inputs)
    if key is not None:
        sweep = _memory.sweeps.get(key, _UNKNOWN)
        if sweep is _UNKNOWN and _memory.admits(key):
            try:
                sweep = Sweep(order, output, inputs)
            except (PullbackError, _Unfit):
                sweep = None
            _memory.take(key, sweep)
        if type(sweep) is Sweep:
            place = _place_of(result, tape)
            if place >= 0:
                _memory.take_tape(tape, place, order, sweep)  # type: ignore[arg-type]
            return sweep.follow(order, kept)
    return detached_cotangents(order, output, inputs, kept)


def _place_of(result: Any, tape: Tape | None) -> int:
    """The place of what a function has returned; below zero where it is on no tape."""
    return -1 if tape is None or type(result) is not TracedArray else result.place_on(tape)


def taped_results(tape: Tape, result: Any, inputs: Sequence[Variable]) -> list[Any] | None:
    """A result on a tape and its derivatives by the tape's variables, as they are given to the caller.

    ``None`` where no derivative is remembered for it, and where it fails: nodes tell the line.
    """
    place = _place_of(result, tape)
    found = _memory.taped.get((place, *tape.key))
    if found is None:
        return None
    sweep, places = found
    values = tape.values
    try:
        results = [values[place], *sweep.run([values[each] for each in places])]
    except (CallbackError, IndexRangeError, MatrixError):
        return None
    if sweep.lacks:
        zeros = [values[place], *[np.zeros(x.type.shape, x.type.dtype)[()] for x in inputs]]
        results = [zero if value is None else value for value, zero in zip(results, zeros)]
    return owned(results, values) if sweep.gives_arrays else results


def taped_tangents(
    tape: Tape, result: Any, inputs: Sequence[Variable], directions: Sequence[Any]
) -> list[Any] | None:
    """A result on a tape and its tangent along ``directions`` of the tape's variables, as they are given to the caller.

    ``None`` where it is not remembered, which it is from the second time on, or fails.
    """
    place = _place_of(result, tape)
    if place < 0 or result.type.dtype.kind != "f":
        return None
    key = ("forward", place, *tape.key)
    found = _memory.taped.get(key, _UNKNOWN)
    if found is _UNKNOWN:
        if not _memory.admits(key):
            return None
        order = topological([result.node])
        try:
            sweep = Sweep(order, result.node, inputs, forward=True)
        except (PullbackError, _Unfit):
            found = None
        else:
            places = tape.places()
            found = sweep, [places[order[each]] for each in sweep.needed]
        _memory.taped[key] = found
        _memory.steps += len(tape.values)
    if found is None:
        return None
    sweep, needed = found
    values = tape.values
    given = [scalar_or_array(np.asarray(along, x.type.dtype)) for along, x in zip(directions, inputs)]
    try:
        (tangent,) = sweep.run([*[values[each] for each in needed], *given])
    except (CallbackError, IndexRangeError, MatrixError):
        return None
    if tangent is None:
        tangent = np.zeros(result.type.shape, result.type.dtype)[()]
    return owned([values[place], tangent], [*values, *given])


def nested_results(
    outer: Tape, tape: Tape, result: Any, leaves: Sequence[TracedArray]
) -> list[TracedArray] | None:
    """What ``taped_results`` gives, where the tape's variables stand for ``leaves`` on another, as traced arrays there.

    ``None`` where no recipe is remembered that makes them.
    """
    recipe = _memory.nested.get((_place_of(result, tape), *tape.key))
    places = tuple([leaf.place_on(outer) for leaf in leaves])
    if recipe is None or outer.room < 0 or min(places) < 0:
        return None
    return recorded_together(outer, recipe, places)


def learn_nested(tape: Tape, result: Any, inputs: Sequence[Variable]) -> None:
    """Remember a recipe of a result on a tape and its derivatives, where it comes again."""
    key = (_place_of(result, tape), *tape.key)
    if key[0] < 0 or key in _memory.nested or not _memory.admits(("nested", *key)):
        return
    order = topological([result.node])
    standing, _, _ = _standing(order, inputs)
    starts, output = [standing[x] for x in inputs], standing[result.node]
    recipe = None
    with contextlib.suppress(PullbackError), evaluating(False):
        bars = cotangents([output], [constant(one(output.type.dtype))], starts)
        if all(x is not None for x in bars):
            recipe = recipe_of([output, *bars], starts)  # type: ignore[list-item, arg-type]
    if recipe is not None and recipe.is_recorded:
        recipe.compiled()
        _memory.steps += len(recipe.steps)
    else:
        recipe = None
    _memory.nested[key] = recipe


def _likeness(order: Sequence[Node], output: Node, inputs: Sequence[Variable]) -> tuple[Any, ...] | None:
    """What graphs with one derivative have in common, ``None`` where no derivative is to be remembered."""
    key: list[Any] = []
    places: dict[Node, int] = {}
    for x in inputs:
        places[x] = len(places)
        key.append(id(x.type))
    for node in order:
        if type(node) is Operation:
            signature = node.signature
            if signature.compute is None or not signature.is_plain:
                return None
            key.append(signature)
            for child in node.inputs:
                key.append(places[child])
                if type(child) is Constant and signature.looks_at_constants and child.value.size > 1:
                    key.append(number_of(child.value))
        elif type(node) is Constant:
            key.append(id(node.type))
            value = node.value
            if is_told(value):
                key.append(value.tobytes())
        elif node in places:
            continue
        else:
            return None
        places[node] = len(places)
    key.append(places[output])
    return tuple(key)


class _Unfit(Exception):
    """What the rules make of a graph is not to be remembered."""


class Sweep:
    """The derivative of one graph, as straight-line code from the values that it needs to the cotangents.

    A step knows the place of the operation in the graph that it belongs to, whose line errors name.
    """

    __slots__ = ("_code", "_types", "gives_arrays", "lacks", "needed", "results", "run", "size")

    def __init__(
        self, order: Sequence[Node], output: Node, inputs: Sequence[Variable], forward: bool = False
    ) -> None:
        """Ask the rules for a graph like that of ``order``; ``_Unfit`` where it is not to be remembered.

        One that goes ``forward`` gives the tangent of the output, of the directions of the inputs, which follow the
        values that it needs.
        """
        standing, fixed, lines = _standing(order, inputs)
        with evaluating(False):
            ordered = [standing[x] for x in order]
            seed, sums = Variable(output.type), Sums()
            starts, moving = [standing[x] for x in inputs], [Variable(x.type) for x in inputs]
            if forward:
                bars = tangents([standing[output]], starts, moving)
            else:
                bars = unjoined_cotangents(ordered, standing[output], seed, starts, sums)
        self._types = [x.type for x in [*inputs, *order]]  # their numbers in the key stay their own
        given = {x: place for place, x in enumerate(ordered) if x not in fixed}
        wanted = [x for x in bars if x is not None]
        operands = _operands(wanted, {*given, *fixed, *moving, seed}, sums)
        needed = [x for x in operands if x in given]
        self.needed = [given[x] for x in needed]
        """The places of the nodes whose values it takes."""
        starts = [*needed, *moving] if forward else needed
        self._code = code = Straight([x.type for x in starts], listed=True)
        numbers = {x: number for number, x in enumerate(starts)}
        computed: dict[Node, tuple[Node, ...]] = {}
        for x, parts in operands.items():
            if x in numbers:
                continue
            if type(x) is Constant or (type(x) is Operation and _is_fixed(x, parts, fixed)):
                fixed[x] = force(x)
            if x is seed or x in fixed:
                numbers[x] = code.constant(one(x.type.dtype) if x is seed else fixed[x], x.type)
            else:
                computed[x] = parts
        places = {number: place for number, (place, _) in lines.items()}
        self._take_steps(computed, numbers, {*wanted, *fixed, *moving, seed}, places)
        self.run = code.function([None if x is None else numbers[x] for x in bars])
        self.results = [None if x is None else x.type for x in bars]
        """The types of the cotangents that there are."""
        self.lacks = any(x is None for x in bars)
        """Whether the result does not depend on some of the inputs."""
        self.gives_arrays = any(x is not None and x.type.shape for x in bars)
        self.size = len(computed)

    def _take_steps(
        self,
        operands: Mapping[Any, tuple[Node, ...]],
        numbers: dict[Node, int],
        lasting: Container[Node],
        lines: Mapping[int, int],
    ) -> None:
        """A step for each node that is computed from ``operands``, the first first; ``lasting`` ones stay."""
        uses = Counter([each for parts in operands.values() for each in parts])
        last = {each: x for x, parts in operands.items() for each in parts}
        own = set[Node]()
        """Arrays that nobody else has: of zeros, and of parts."""
        for x, parts in operands.items():
            compute = x.signature.compute
            if parts is not x.inputs:
                total, part = parts
                is_own = total in own and uses[total] == 1 and total not in lasting
                compute = _Adding(padded(x.inputs[1].attributes["low"], part.type.shape), is_own)
            if parts is not x.inputs or x.operator.name == "pad":
                own.add(x)
            if x.signature.changes_nothing:
                compute = None
            place = lines.get(id(x.source))
            numbers[x] = self._code.call(compute, [numbers[each] for each in parts], x.type, place)
            for each in set(parts):
                if last[each] is x and each not in lasting:
                    self._code.drop(numbers[each])

    def follow(self, order: Sequence[Any], kept: Sequence[Node]) -> list[Node | None]:
        """The cotangents of the inputs for a graph of this likeness."""
        values = [scalar_or_array(force(order[place])) for place in self.needed]
        lasting = set(kept)
        for node in order:
            if type(node) is Operation and node not in lasting:
                node.value = PENDING
        try:
            with np.errstate(all="ignore"):
                found = self.run(values)
        except (CallbackError, IndexRangeError, MatrixError) as error:
            place = self._code.tag_of(error)
            raise with_line(error, None if place is None else order[place].source) from None
        return [
            None if type is None else Detached(type, np.asarray(value))
            for type, value in zip(self.results, found)
        ]


def _standing(
    order: Sequence[Node], inputs: Sequence[Variable]
) -> tuple[dict[Node, Node], dict[Node, Any], dict[int, tuple[int, Source]]]:
    """For each node one of a graph of variables, which values of these are always the same, and the lines of places."""
    standing: dict[Node, Node] = {x: Variable(x.type) for x in inputs}
    fixed: dict[Node, Any] = {}
    lines: dict[int, tuple[int, Source]] = {}
    with evaluating(False), written_at(None) as line:
        for place, node in enumerate(order):
            if type(node) is Operation:
                if node.source is not None:
                    source = replace(node.source)  # an object of its own tells what rules make of this
                    lines[id(source)] = place, source
                    line.move(source)
                standing[node] = applied(node.signature, tuple([standing[x] for x in node.inputs]))
            elif type(node) is Constant:
                if is_told(node.value):  # itself: what rules make of the same number is the same node
                    standing[node], fixed[node] = node, node.value
                elif node.value.dtype.kind in "fc":
                    # A node of its own: numbers that matter to nobody are not those of a constant in a rule.
                    standing[node] = Constant(node.value, node.type.weak)
                else:  # as a rule sees indices that are not known
                    standing[node] = Variable(node.type)
    return standing, fixed, lines


class _Adding:
    """Adds a part of an array to a total, in place if the total is nobody else's."""

    __slots__ = ("_is_own", "_where")

    def __init__(self, where: tuple[slice, ...], is_own: bool) -> None:
        self._where = where
        self._is_own = is_own

    def __call__(self, total: np.ndarray, part: np.ndarray) -> np.ndarray:
        if not self._is_own:
            total = np.array(total)
        total[self._where] += part
        return total


def _is_fixed(x: Operation, parts: Sequence[Node], fixed: Container[Node]) -> bool:
    """Whether an operation gives the same each time, and takes little memory."""
    small = x.operator.name == "broadcast" or x.type.size <= SMALL_CONSTANT
    return small and all(each in fixed for each in parts)


def _operands(wanted: Sequence[Node], known: Container[Node], sums: Sums) -> dict[Node, tuple[Node, ...]]:
    """What each node that ``wanted`` ones need is computed from, first ones first; nothing of constants and known ones.

    A sum with a part among zeros is computed from the part itself. ``_Unfit`` where an operation is no call of a
    reference.
    """
    found: dict[Node, tuple[Node, ...]] = {}
    stack: list[Any] = [*reversed(wanted)]
    while stack:
        x = stack.pop()
        if x is None:  # what follows had its operands above it
            x, parts = stack.pop(), stack.pop()
            found.setdefault(x, parts)
        elif x in known or type(x) is Constant:
            found.setdefault(x, ())
        elif x not in found:
            if type(x) is not Operation or x.signature.compute is None or not x.signature.is_plain:
                raise _Unfit
            parts = x.inputs
            before, bar = sums.get(x, (None, None))
            is_sum = before is not None and len(parts) == 2 and parts[0] is before and parts[1] is bar
            if is_sum and type(bar) is Operation and bar.operator.name == "pad" and x.operator.name == "add":
                parts = (parts[0], bar.inputs[0])
            stack += (parts, x, None)
            stack += parts[::-1]
    return found
