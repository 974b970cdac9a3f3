"""Recipes: what a function of NumPy's makes of nodes, remembered, so that it is not found out each time.

Which operations a function makes depends on the types of its traced operands and on its other arguments, not on
values. While a function of the user's is evaluated as it goes, this is found out once, on variables of these types, and
the operations are applied from then on: without dispatch, promotion, and the sorting of indices and axes. Where there
is a tape (``tape.py``) they are called as one function of Python's on values, and no nodes are made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, MappingProxyType
from typing import Any

import numpy as np

from pullback.errors import CallbackError, IndexRangeError, MatrixError
from pullback.graph import (
    Constant,
    Node,
    Operation,
    Signature,
    Type,
    Variable,
    applied,
    constant,
    evaluating,
    topological,
)
from pullback.graph.node import SMALL_CONSTANT
from pullback.graph.source import current_source, known_line, user_frame
from pullback.graph.straight import Straight
from pullback.graph.values import PENDING, force, mode, with_line
from pullback.numpy.arrays import TracedArray, laid_like, plain_all
from pullback.numpy.tape import BYTES_OF_VALUE, Tape

__all__ = ["MOST_RECORDED", "Recipe", "followed", "recipe_of", "recorded", "recorded_together"]

Step = tuple[Signature, tuple[int, ...], Any]
"""An operation, the places of its inputs among the nodes made so far, and its value where that is always the same."""

MOST_RECORDED = 1 << 16
"""Bytes of an array on a tape: where there are more, NumPy's own work counts for more than nodes do."""

MOST_RECIPES = 4096
_NONE: Mapping[str, Any] = MappingProxyType({})
_recipes: dict[Any, Any] = {}
_recorded: dict[Any, Recipe] = {}
"""Those that have been recorded on a tape."""
_SEEN_ONCE: Any = object()
_STATIC = frozenset({int, bool, str, type(None), type(...), type})


class Recipe:
    """The operations that make a function's result of its operands, in order."""

    __slots__ = ("constants", "nbytes", "result_types", "results", "run", "steps", "type", "types")

    def __init__(
        self, types: Sequence[Type], constants: Sequence[Node], steps: Sequence[Step], results: Sequence[int]
    ) -> None:
        self.types = tuple(types)  # they stay alive, so their numbers in the key are their own
        self.constants = tuple(constants)
        self.steps = tuple(steps)
        self.results = tuple(results)
        """The places of the results among operands, constants and steps; of one result the last, or an operand's."""
        every = [*types, *[x.type for x in constants], *[signature.type for signature, _, _ in steps]]
        self.result_types = [every[k] for k in results]
        self.type = self.result_types[-1]
        made = [signature.type for signature, _, value in steps if value is PENDING]
        self.nbytes = sum(BYTES_OF_VALUE + type.nbytes for type in made)
        self.run: Any = None
        """The function from values of the operands to those of the constants and operations, once it was needed."""

    @property
    def is_recorded(self) -> bool:
        """Whether the operations have a place on tapes: small arrays, by references that need no rounding."""
        return all(
            signature.compute is not None and signature.type.nbytes <= MOST_RECORDED
            for signature, _, _ in self.steps
        )

    def compiled(self) -> None:
        """Make ``run``."""
        code = Straight(self.types)
        numbers = [*range(len(self.types)), *[code.constant(x.value, x.type) for x in self.constants]]
        for signature, places, value in self.steps:
            if value is PENDING:
                compute = None if signature.changes_nothing else signature.compute
                numbers.append(code.call(compute, [numbers[k] for k in places], signature.type))
            else:
                numbers.append(code.constant(value, signature.type))
        self.run = code.function(numbers[len(self.types) :])


def followed(
    name: Any,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any] = _NONE,
    promotes: bool = False,
) -> Any:
    """``function(*arguments, **keywords)`` of the nodes of traced arrays, by its recipe if there is one.

    A traced array where it has been recorded on a tape, else a node. ``name`` tells the function from others. One that
    ``promotes`` its arguments makes constants of arrays and asks for no more than their types, of masks too.
    """
    tape = mode.tape
    if tape is not None:
        made = recorded(tape, name, arguments, keywords, promotes, sys._getframe(2))
        if made is not None:
            return made
    return _applied(name, function, plain_all(arguments), plain_all(keywords), promotes)


def recorded(
    tape: Tape,
    name: Any,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    promotes: bool,
    frame: FrameType,
) -> TracedArray | None:
    """The same on a tape, where all operands are there and the recipe is known; ``frame`` is the user's or inside."""
    try:
        x = arguments[0]
        if (
            len(arguments) == 1
            and type(x) is TracedArray
            and x._tape is tape
            and x._parent is None
            and not keywords
        ):
            known: tuple[Any, ...] = (name, id(x._type))  # as it is mostly
            places: tuple[int, ...] = (x._place,)
            likes = bool(x._like)
        else:
            found = _noted_on(tape, name, arguments, keywords, promotes)
            if found is None:
                return None
            known, places, likes = found
        recipe = _recorded.get(known)
        if recipe is None:
            recipe = _recipes.get(known)
            if type(recipe) is not Recipe or not recipe.is_recorded:
                return None
            recipe.compiled()
            _recorded[known] = recipe
        if tape.room < 0:
            return None
        values = tape.values
        if not recipe.steps:
            made = TracedArray(None, False, tape, places[recipe.results[0]], recipe.type)
            return laid_like(made, arguments) if likes else made
        if len(places) == 1:
            values += recipe.run(values[places[0]])
        elif len(places) == 2:
            values += recipe.run(values[places[0]], values[places[1]])
        else:
            values += recipe.run(*[values[place] for place in places])
        code = frame.f_code
        line = known_line((id(code), frame.f_lasti))
        tape.key += recipe, places
        tape.lines.append(user_frame(frame) if line is None else line[0])
    except BaseException as error:
        tape.mend()
        if isinstance(error, (CallbackError, IndexRangeError, MatrixError)):
            raise with_line(error, current_source()) from None
        raise
    tape.room -= recipe.nbytes
    made = TracedArray(None, False, tape, len(values) - 1, recipe.type)
    return laid_like(made, arguments) if likes else made


def recorded_together(tape: Tape, recipe: Recipe, places: tuple[int, ...]) -> list[TracedArray]:
    """All results of a recipe for operands in these places on a tape."""
    values, count = tape.values, len(recipe.types)
    begun = len(values)
    try:
        values += recipe.run(*[values[place] for place in places])
        tape.key += recipe, places
        tape.lines.append(current_source())
    except BaseException as error:
        tape.mend()
        if isinstance(error, (CallbackError, IndexRangeError, MatrixError)):
            raise with_line(error, current_source()) from None
        raise
    tape.room -= recipe.nbytes
    found = [places[k] if k < count else begun + k - count for k in recipe.results]
    return [TracedArray(None, False, tape, place, type) for place, type in zip(found, recipe.result_types)]


def _noted_on(
    tape: Tape, name: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any], promotes: bool
) -> tuple[tuple[Any, ...], tuple[int, ...], bool] | None:
    """The key of a recipe, the places of its operands, and whether the result may be laid out like one of them."""
    key: list[Any] = [name]
    places: list[int] = []
    likes = False
    for x in arguments:
        kind = type(x)
        if kind is TracedArray:
            if x._parent is None:
                if x._tape is not tape:
                    return None
                place = x._place
                if x._like:
                    likes = True
            else:
                place, likes = x.place_on(tape), True
                if place < 0:
                    return None
            if places and place in places:
                key.append(places.index(place))
            else:
                places.append(place)
                key.append(id(x._type))
        elif (kind is float and x) or kind is int:
            key.append(kind)
            key.append(x)
        elif kind is np.ndarray and promotes and x.dtype.kind == "f" and _is_alike(x.dtype, arguments):
            node, place = tape.constant(x)
            places.append(place)
            key.append(id(node.type))
        elif not _noted(x, key, places, tape):
            return None
    if keywords and not _noted(keywords, key, places, tape):
        return None
    return tuple(key), tuple(places), likes


def _is_alike(dtype: np.dtype, arguments: tuple[Any, ...]) -> bool:
    """Whether all traced arrays among ``arguments`` are of ``dtype``."""
    return all(x.dtype is dtype for x in arguments if isinstance(x, (TracedArray, np.ndarray)))


def _applied(
    name: Any,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    promotes: bool,
) -> Any:
    """The same of nodes, as a node."""
    if not mode.evaluates:
        return function(*arguments, **keywords)
    operands: list[Node] = []
    key = [name]
    for x in arguments:
        if type(x) is Operation and not operands and x.type.dtype.kind == "f":  # as the first mostly is
            operands.append(x)
            key.append(id(x.type))
        elif not _noted(x, key, operands, kinds="fb" if promotes else "f"):
            if not promotes or type(x) is not np.ndarray:
                return function(*arguments, **keywords)
            given = tuple([constant(x) if type(x) is np.ndarray else x for x in arguments])
            if len({x.type.dtype for x in given if isinstance(x, Node)}) > 1:
                return function(*arguments, **keywords)
            return _applied(name, function, given, keywords, False)
    if keywords and not _noted(keywords, key, operands):
        return function(*arguments, **keywords)
    known = tuple(key)
    recipe = _recipes.get(known)
    if type(recipe) is Recipe:
        nodes = operands
        nodes += recipe.constants
        for signature, places, value in recipe.steps:
            if len(places) == 1:
                inputs: Any = (nodes[places[0]],)
            elif len(places) == 2:
                inputs = nodes[places[0]], nodes[places[1]]
            else:
                inputs = tuple([nodes[k] for k in places])
            nodes.append(applied(signature, inputs, value))
        return nodes[-1] if recipe.steps else nodes[recipe.results[0]]
    if recipe is None:
        if len(_recipes) >= MOST_RECIPES:
            _recipes.clear()
            _recorded.clear()
        _recipes[known] = _SEEN_ONCE, [x.type for x in operands]
    elif recipe[0] is _SEEN_ONCE:
        _recipes[known] = _learned(function, arguments, keywords, operands) or (None, recipe[1])
    return function(*arguments, **keywords)


def _noted(x: Any, key: list[Any], operands: list[Any], tape: Tape | None = None, kinds: str = "f") -> bool:
    """Write what ``x`` is into ``key``, and the nodes in it into ``operands``; whether a recipe may be for such.

    That is of dtypes of these ``kinds``. With a tape the operands are the places of traced arrays.
    """
    kind = type(x)
    if kind is Operation or kind is Variable or kind is Constant:
        type_ = x.type
        if type_.dtype.kind not in kinds or tape is not None:
            return False
        for place, other in enumerate(operands):
            if other is x:
                key.append(place)
                return True
        operands.append(x)
        key.append(id(type_))
    elif kind is TracedArray and tape is not None:
        place = x.place_on(tape)
        if place < 0:
            return False
        if place in operands:
            key.append(operands.index(place))
            return True
        operands.append(place)
        key.append(id(x._type))
    elif kind is tuple or kind is list:
        key.append(kind)
        key.append(len(x))
        for each in x:
            if not _noted(each, key, operands, tape):
                return False
    elif kind is slice:
        key.append(kind)
        return _noted((x.start, x.stop, x.step), key, operands, tape)
    elif kind is dict:
        key.append(tuple(x))
        return _noted(tuple(x.values()), key, operands, tape)
    elif kind is float or kind is np.float64:
        key.append(kind if x else (kind, str(x)))
        key.append(x)
    elif kind in _STATIC or isinstance(x, np.dtype):
        key.append(kind)
        key.append(x)
    else:
        return False
    return True


def _learned(
    function: Callable[..., Any], arguments: Any, keywords: Any, operands: Sequence[Node]
) -> Recipe | None:
    """The recipe of a function for arguments of these types, if it makes a node at most and asks for no values."""
    variables = [Variable(x.type) for x in operands]
    standing = dict(zip(map(id, operands), variables))
    with evaluating(False):
        try:
            made = function(*_replaced(arguments, standing), **_replaced(keywords, standing))
        except Exception:  # the call itself tells what is wrong
            return None
    for place, variable in enumerate(variables):
        if made is variable:
            return Recipe([x.type for x in operands], (), (), [place])
    if type(made) is not Operation:
        return None
    return recipe_of([made], variables)


def recipe_of(outputs: Sequence[Node], variables: Sequence[Variable]) -> Recipe | None:
    """The recipe that makes these nodes of variables, the last of them its result, if there is one."""
    order = topological(outputs)
    constants = [x for x in order if type(x) is Constant]
    if any(x.value.size > SMALL_CONSTANT for x in constants):
        return None
    places = {id(x): place for place, x in enumerate([*variables, *constants])}
    steps: list[Step] = []
    values: dict[int, Any] = {id(x): x.value for x in constants}
    for x in order:
        if id(x) in places:
            continue
        if not isinstance(x, Operation) or not x.signature.is_plain:
            return None
        if x.inputs and all(id(child) in values for child in x.inputs):
            value = force(x)
            if x.operator.name == "broadcast" or value.size <= SMALL_CONSTANT:
                values[id(x)] = value
        steps.append(
            (x.signature, tuple([places[id(child)] for child in x.inputs]), values.get(id(x), PENDING))
        )
        places[id(x)] = len(places)
    return Recipe([x.type for x in variables], constants, steps, [places[id(x)] for x in outputs])


def _replaced(x: Any, standing: dict[int, Variable]) -> Any:
    """``x`` with variables for the nodes in it."""
    if isinstance(x, Node):
        return standing[id(x)]
    if isinstance(x, (tuple, list)):
        return type(x)([_replaced(each, standing) for each in x])
    if isinstance(x, dict):
        return {name: _replaced(each, standing) for name, each in x.items()}
    if isinstance(x, slice):
        return slice(*_replaced((x.start, x.stop, x.step), standing))
    return x
