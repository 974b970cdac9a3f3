"""Recipes: what a function of NumPy's makes of nodes, remembered, so that it is not found out each time.

Which operations a function makes depends on the types of its traced operands and on its other arguments, not on
values. While a function of the user's is evaluated as it goes, this is found out once, on variables of these types, and
the operations are applied from then on: without dispatch, promotion, and the sorting of indices and axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

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
from pullback.graph.values import PENDING, force, mode

__all__ = ["followed"]

Step = tuple[Signature, tuple[int, ...], Any]
"""An operation, the places of its inputs among the nodes made so far, and its value where that is always the same."""

MOST_RECIPES = 4096
_NONE: Mapping[str, Any] = MappingProxyType({})
_recipes: dict[Any, Any] = {}
_SEEN_ONCE: Any = object()
_STATIC = frozenset({int, bool, str, type(None), type(...), type})


class Recipe:
    """The operations that make a function's result of its operands, in order."""

    __slots__ = ("constants", "steps", "types")

    def __init__(self, types: Sequence[Type], constants: Sequence[Node], steps: Sequence[Step]) -> None:
        self.types = tuple(types)  # they stay alive, so their numbers in the key are their own
        self.constants = tuple(constants)
        self.steps = tuple(steps)


def followed(
    name: Any,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any] = _NONE,
    promotes: bool = False,
) -> Any:
    """``function(*arguments, **keywords)``, by its recipe if there is one; ``name`` tells it from other functions.

    One that ``promotes`` its arguments makes constants of arrays and asks for no more than their types.
    """
    if not mode.evaluates:
        return function(*arguments, **keywords)
    operands: list[Node] = []
    key = [name]
    for x in arguments:
        if type(x) is Operation and not operands and x.type.dtype.kind == "f":  # as the first mostly is
            operands.append(x)
            key.append(id(x.type))
        elif not _noted(x, key, operands):
            if not promotes or type(x) is not np.ndarray:
                return function(*arguments, **keywords)
            given = tuple([constant(x) if type(x) is np.ndarray else x for x in arguments])
            if len({x.type.dtype for x in given if isinstance(x, Node)}) > 1:
                return function(*arguments, **keywords)
            return followed(name, function, given, keywords)
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
        return nodes[-1]
    if recipe is None:
        if len(_recipes) >= MOST_RECIPES:
            _recipes.clear()
        _recipes[known] = _SEEN_ONCE, [x.type for x in operands]
    elif recipe[0] is _SEEN_ONCE:
        _recipes[known] = _learned(function, arguments, keywords, operands) or (None, recipe[1])
    return function(*arguments, **keywords)


def _noted(x: Any, key: list[Any], operands: list[Node]) -> bool:
    """Write what ``x`` is into ``key``, and the nodes in it into ``operands``; whether a recipe may be for such."""
    kind = type(x)
    if kind is Operation or kind is Variable or kind is Constant:
        type_ = x.type
        if type_.dtype.kind != "f":
            return False
        for place, other in enumerate(operands):
            if other is x:
                key.append(place)
                return True
        operands.append(x)
        key.append(id(type_))
    elif kind is tuple or kind is list:
        key.append(kind)
        key.append(len(x))
        for each in x:
            if not _noted(each, key, operands):
                return False
    elif kind is slice:
        key.append(kind)
        return _noted((x.start, x.stop, x.step), key, operands)
    elif kind is dict:
        key.append(tuple(x))
        return _noted(tuple(x.values()), key, operands)
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
    """The recipe of a function for arguments of these types, if it makes one node and does not ask for values."""
    variables = [Variable(x.type) for x in operands]
    standing = dict(zip(map(id, operands), variables))
    with evaluating(False):
        try:
            made = function(*_replaced(arguments, standing), **_replaced(keywords, standing))
        except Exception:  # the call itself tells what is wrong
            return None
    if type(made) is not Operation:
        return None
    order = topological([made])
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
    return Recipe([x.type for x in operands], constants, steps)


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
