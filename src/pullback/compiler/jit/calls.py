"""From structures to what compiled code walks: how the entry finds the leaves of arguments, and makes trees of results.

What is matched in compiled code is matched exactly; a structure for which that cannot be done (classes that say by
themselves what their parts are, dicts that keep an order of their own, fields behind properties) is left to Python,
which takes some microseconds longer. Any tree can be built: what has no node of its own is made by Python.

>>> from pullback.tracing.trees import flatten
>>> structure = flatten({"b": 1.0, "a": (2.0, None)})[1]
>>> [(part.kind, part.value) for part in taken(structure.spec).parts]
[('EQUAL', 'b'), ('LEAF', 1), ('EQUAL', 'a'), ('TUPLE', None)]
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any

from pullback.compiler.runtime.machine import machine
from pullback.compiler.runtime.nodes import Node, static_node
from pullback.compiler.runtime.signature import Trees
from pullback.tracing.specs import FIELDS, LEAF, REGISTERED, Spec, attributes_of
from pullback.tracing.trees import Structure, builder

__all__ = ["made", "taken", "trees"]


class _Unmatched(Exception):
    """Something in a structure that compiled code does not match."""


def trees(given: Structure, returned: Structure) -> Trees | None:
    """What matches ``(arguments, keywords)`` and builds the results; None where Python has to do it."""
    try:
        root, built = taken(given.spec), made(returned.spec)
    except RecursionError:
        return None
    if root is None:
        return None
    arguments, keywords = root.parts
    return Trees(arguments, keywords, built)


def taken(spec: Spec) -> Node | None:
    """What matches a tree of this structure, or None where compiled code cannot.

    Leaves are numbered as ``flatten`` gives them; a dict is matched in the order in which it was written.
    """
    if not machine().reads_arrays or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None  # without the interpreter lock containers may change while they are looked at
    try:
        return _node(spec, itertools.count(), match=True)
    except _Unmatched:
        return None


def made(spec: Spec) -> Node:
    """What builds a tree of this structure around results, which are numbered as ``flatten`` gives them."""
    return _node(spec, itertools.count(), match=False)


def _node(spec: Spec, numbers: Iterator[int], match: bool) -> Node:
    static = static_node if match else _same
    if spec is LEAF:
        return Node("LEAF", value=next(numbers))
    if len(spec) == 2:
        return static(spec[0])
    cls, rest, specs = spec
    parts = tuple([_node(part, numbers, match) for part in specs])
    if cls in FIELDS and cls not in REGISTERED:
        moving, fixed = FIELDS[cls]
        names = (*moving, *fixed, *attributes_of(rest))
        parts = (*parts[: len(moving)], *map(static, rest[: len(fixed)]), *parts[len(moving) :])
        try:
            slots = _in_slots(cls, names)
        except _Unmatched:
            if match:
                raise
            slots = True
        return Node("SLOTS" if slots else "FIELDS", cls, parts, tuple(map(sys.intern, names)))
    if cls is dict:
        keys, written = rest
        by_key = dict(zip(keys, parts))
        order = keys if written is None else written
        parts = tuple([by_key[key] for key in order])
        if match:
            parts = tuple([each for pair in zip(map(static_node, order), parts) for each in pair])
        return Node("DICT", dict, parts, tuple(order))
    if cls in (tuple, list) or (match and cls not in REGISTERED and _is_plain_tuple(cls)):
        return Node("LIST" if cls is list else "TUPLE", cls, parts)
    if match:
        raise _Unmatched
    build = builder(cls)
    return Node("CALLED", None, parts, value=lambda elements: build(rest, list(elements)))


def _same(value: Any) -> Node:
    return Node("SAME", value=value)


def _is_plain_tuple(cls: type) -> bool:
    """Whether the elements of its instances are all that they hold, and are found as those of tuples are."""
    return issubclass(cls, tuple) and not cls.__dictoffset__ and cls.__iter__ is tuple.__iter__


def _in_slots(cls: type, names: tuple[str, ...]) -> bool:
    """Whether attributes stand in slots rather than in the dict of an instance.

    Raises ``_Unmatched`` where they are found in another way, or where there may be attributes of both kinds.
    """
    if _of_class(cls, "__getattribute__") is not object.__dict__["__getattribute__"]:
        raise _Unmatched
    found = [_of_class(cls, name) for name in names]
    slots = {
        name
        for base in cls.__mro__
        for name, value in vars(base).items()
        if isinstance(value, types.MemberDescriptorType)
    }
    if not cls.__dictoffset__:
        if slots != set(names) or not all(isinstance(each, types.MemberDescriptorType) for each in found):
            raise _Unmatched
        return True
    own = _of_class(cls, "__dict__")
    overriding = any(hasattr(type(each), "__set__") or hasattr(type(each), "__delete__") for each in found)
    if slots or overriding or not isinstance(own, types.GetSetDescriptorType):
        raise _Unmatched
    return False


def _of_class(cls: type, name: str) -> Any:
    """What the class or one of its bases has by that name, as it stands there."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
