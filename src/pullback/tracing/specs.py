"""What a structure is made of, and how it is read: paths, what is trained, differences, a line of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = [
    "BUFFERS",
    "FIELDS",
    "LEAF",
    "REGISTERED",
    "Attributes",
    "Spec",
    "attributes_of",
    "first_difference",
    "part_names",
    "show",
    "trained",
    "unordered",
    "walk",
]


class _Leaf:
    """The place of a leaf in a structure."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "*"


LEAF = _Leaf()
"""A structure is made of these, of ``(value, class)`` for what is static, and of ``(class, rest, parts)``.

Classes are compared too: ``1``, ``1.0`` and ``True`` are equal but make different programs.
"""

Spec = Any


class Attributes(tuple[str, ...]):
    """Names of the attributes that an object has beside its fields or elements: the last entry of its rest."""

    __slots__ = ()


REGISTERED: set[type] = set()
FIELDS: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {}
BUFFERS: dict[type, dict[str, str | None]] = {}
"""Names of fields made by ``buffer()``, each with the field that turns it into a parameter, if any."""


def attributes_of(rest: Any) -> tuple[str, ...]:
    """The names of the attributes that are no fields and no elements."""
    return rest[-1] if type(rest) is tuple and rest and type(rest[-1]) is Attributes else ()


def part_names(cls: type, rest: Any, count: int) -> list[str]:
    """What the parts of a container are called in a path."""
    if cls in FIELDS:
        return [*FIELDS[cls][0], *attributes_of(rest)]
    attributes = attributes_of(rest)
    if issubclass(cls, dict) and cls not in REGISTERED:
        return [*map(str, rest[0]), *attributes]
    elements = count - len(attributes)
    return [*getattr(cls, "_fields", map(str, range(elements))), *attributes]


def walk(
    spec: Spec, path: tuple[str, ...] = (), inside: bool = False
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The path of each leaf and whether it stands in a dataclass."""
    if spec is LEAF:
        yield path, inside
    elif len(spec) == 3:
        cls, rest, parts = spec
        for name, part in zip(part_names(cls, rest, len(parts)), parts):
            yield from walk(part, (*path, name), inside or cls in FIELDS)


def trained(spec: Spec, inherited: bool) -> Iterator[bool]:
    """For each leaf, whether no ``buffer()`` is on the way to it."""
    if spec is LEAF:
        yield inherited
    elif len(spec) == 3:
        cls, rest, parts = spec
        buffers = BUFFERS.get(cls)
        if not buffers:
            for part in parts:
                yield from trained(part, inherited)
            return
        moving, fixed = FIELDS[cls]
        settings: dict[str | None, Any] = dict(zip(fixed, rest))
        settings |= {
            name: part[0] for name, part in zip(moving, parts) if part is not LEAF and len(part) == 2
        }
        for name, part in zip(part_names(cls, rest, len(parts)), parts):
            yield from trained(part, inherited and (name not in buffers or bool(settings.get(buffers[name]))))


def unordered(spec: Spec) -> Spec:
    """The structure with all dicts written in the order of their keys."""
    if spec is LEAF or len(spec) == 2:
        return spec
    cls, rest, parts = spec
    if issubclass(cls, dict) and cls not in REGISTERED:
        rest = (rest[0], None, *rest[2:])
    return (cls, rest, tuple([unordered(part) for part in parts]))


def show(spec: Spec) -> str:
    if spec is LEAF:
        return "*"
    if len(spec) == 2:
        return getattr(spec[0], "__name__", None) or repr(spec[0])
    cls, rest, parts = spec
    shown = [show(part) for part in parts]
    if cls is tuple:
        return f"({', '.join(shown)}{',' if len(shown) == 1 else ''})"
    if cls is list:
        return f"[{', '.join(shown)}]"
    if cls is dict:
        return "{" + ", ".join(f"{key!r}: {part}" for key, part in zip(rest[0], shown)) + "}"
    named = [f"{name}={part}" for name, part in zip(part_names(cls, rest, len(parts)), shown)]
    if cls in FIELDS:
        named += [f"{name}={show((value, type(value)))}" for name, value in zip(FIELDS[cls][1], rest)]
    return f"{cls.__name__}({', '.join(named)})"


def first_difference(left: Spec, right: Spec, path: tuple[str, ...]) -> tuple[tuple[str, ...], Spec, Spec]:
    if left is LEAF or right is LEAF or len(left) == 2 or len(right) == 2 or left[:2] != right[:2]:
        return path, left, right
    if len(left[2]) != len(right[2]):
        return path, left, right
    for name, one, other in zip(part_names(left[0], left[1], len(left[2])), left[2], right[2]):
        if one != other:
            return first_difference(one, other, (*path, name))
    return path, left, right
