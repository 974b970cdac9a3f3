"""Trees: arguments and results as nested dicts, lists, tuples, dataclasses, and the arrays at their leaves.

What a leaf is depends on where it stands. In plain containers (dicts, lists, tuples, named tuples, arguments
themselves) leaves are arrays, NumPy's scalars and Python's ``int``, ``float`` and ``bool``; anything else is
refused. ``None`` is a tree without leaves.

In a dataclass, and in containers held by one, leaves are arrays, NumPy's scalars and Python's ``float``.
Strings, functions, ``int``, ``bool`` and whatever else is no array belong to the structure and are compared
by equality: a layer's size is part of its program, its weights are data. A field made by ``static()``
belongs to the structure whatever it holds; the leaves in a field made by ``buffer()`` are no parameters:
gradients and optimisers leave them alone. Only fields travel: what ``__init__`` keeps beside them is not
copied to a rebuilt object.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from pullback.errors import TreeError
from pullback.graph import Constant, Node, Operation, Type, Variable, refuse_class

__all__ = [
    "Static",
    "Structure",
    "buffer",
    "flatten",
    "leaf_paths",
    "map_tree",
    "register_tree",
    "spread",
    "static",
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
Flatten = Callable[[Any, list[Any], bool], Spec]
Build = Callable[[Any, list[Any]], Any]


class Static:
    """A value that belongs to the structure of the tree around it; the rebuilt tree holds the value itself.

    >>> leaves, structure = flatten((1.0, Static("same")))
    >>> leaves, structure.unflatten([2.0])
    ([1.0], (2.0, 'same'))
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def static(**options: Any) -> Any:
    """A dataclass field that belongs to the structure; ``options`` are those of ``dataclasses.field``.

    >>> @dataclasses.dataclass
    ... class Dropout:
    ...     rate: float = static(default=0.5)
    >>> flatten(Dropout())
    ([], Structure(Dropout(rate=0.5)))
    """
    return dataclasses.field(metadata={"static": True, **options.pop("metadata", {})}, **options)


def buffer(unless: str | None = None, **options: Any) -> Any:
    """A dataclass field whose arrays are data, but no parameters: a running mean, a table that stays fixed.

    ``unless`` names a field of the same class: where that is true, the arrays are parameters after all.
    ``options`` are those of ``dataclasses.field``.

    >>> @dataclasses.dataclass
    ... class Table:
    ...     rows: np.ndarray = buffer(unless="trained")
    ...     trained: bool = False
    >>> flatten(Table(np.ones(3)))[1].trained, flatten(Table(np.ones(3), trained=True))[1].trained
    ([False], [True])
    """
    return dataclasses.field(metadata={"buffer": unless, **options.pop("metadata", {})}, **options)


class Structure:
    """All of a tree but its leaves: hashable, comparable, and able to rebuild the tree around other leaves.

    >>> _, structure = flatten({"weights": np.ones(3), "bias": 0.0})
    >>> structure
    Structure({'bias': *, 'weights': *})
    >>> structure.unflatten([1, 2])
    {'bias': 1, 'weights': 2}
    """

    __slots__ = ("_hash", "spec")

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._hash: int | None = None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves, in the order in which ``flatten`` gives them."""
        supply = iter(leaves)
        try:
            tree = _build(self.spec, supply)
        except StopIteration:
            raise TreeError(f"too few leaves for {self!r}, which has {self.size}") from None
        if next(supply, LEAF) is not LEAF:
            raise TreeError(f"too many leaves for {self!r}, which has {self.size}")
        return tree

    @property
    def size(self) -> int:
        """Number of leaves."""
        return sum(1 for _ in _walk(self.spec))

    @property
    def paths(self) -> list[str]:
        """The path of each leaf: names and positions joined by dots, empty for a tree that is a leaf
        itself.
        """
        return [".".join(path) for path, _ in _walk(self.spec)]

    @property
    def in_dataclass(self) -> list[bool]:
        """Whether each leaf stands in a dataclass."""
        return [inside for _, inside in _walk(self.spec)]

    @property
    def trained(self) -> list[bool]:
        """Whether each leaf is a parameter where it is a float, rather than part of a ``buffer()``."""
        return list(_trained(self.spec, True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and bool(self.spec == other.spec)

    def __hash__(self) -> int:
        if self._hash is not None:
            return self._hash
        try:
            self._hash = hash(self.spec)
        except TypeError as error:
            raise TreeError(
                f"{self!r} holds a static value that cannot be compared: {error}; use a tuple, a string or a "
                "number, or make it an array, which is a leaf"
            ) from None
        return self._hash

    def __repr__(self) -> str:
        return f"Structure({_show(self.spec)})"


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of ``tree`` in a fixed order (dict keys sorted), and its structure.

    Raises ``TreeError`` for what has no place in a tree, such as a string in a list of arrays.

    >>> flatten((1.0, [2.0, None]))
    ([1.0, 2.0], Structure((*, [*, None])))
    """
    leaves: list[Any] = []
    kind = type(tree)
    if kind in LEAF_TYPES:
        return [tree], Structure(LEAF)
    return leaves, Structure((_FLATTEN.get(kind) or _learn(kind))(tree, leaves, False))


def leaf_paths(tree: Any) -> list[str]:
    """The path of each leaf of ``tree``.

    >>> leaf_paths({"layers": [np.ones(2), np.ones(3)]})
    ['layers.0', 'layers.1']
    """
    return flatten(tree)[1].paths


def map_tree(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """The tree of ``function(leaf, *leaves of the others)``; all trees must have the same structure.

    Raises ``TreeError`` naming the first place where they differ.

    >>> map_tree(lambda x, y: x + y, {"a": 1, "b": 2}, {"b": 20, "a": 10})
    {'a': 11, 'b': 22}
    """
    leaves, structure = flatten(tree)
    columns = [leaves]
    for other in others:
        more, found = flatten(other)
        if found != structure:
            raise TreeError(f"trees of different structure: {difference(structure, found)}")
        columns.append(more)
    return structure.unflatten([function(*row) for row in zip(*columns)])


def register_tree(
    cls: type,
    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]],
    unflatten: Callable[[Any, Sequence[Any]], Any],
) -> None:
    """Make instances of ``cls`` trees.

    ``flatten(instance)`` gives its parts, themselves trees, and a hashable rest; ``unflatten(rest, parts)``
    rebuilds it.

    >>> class Pair:
    ...     def __init__(self, left, right):
    ...         self.left, self.right = left, right
    >>> register_tree(Pair, lambda pair: ((pair.left, pair.right), None), lambda _, parts: Pair(*parts))
    >>> map_tree(lambda x: 2 * x, Pair(1, 2)).right
    4
    """

    def visit(tree: Any, leaves: list[Any], inside: bool) -> Spec:
        parts, rest = flatten(tree)
        return (cls, rest, tuple([_visit(part, leaves, inside) for part in parts]))

    _FLATTEN[cls] = visit
    _BUILD[cls] = unflatten


def spread(prefix: Any, structure: Structure) -> list[Any]:
    """What ``prefix`` says of each leaf of a tree of this structure.

    A number or ``None`` in ``prefix`` says the same of all leaves below its place; its containers are those of the
    tree. Raises ``TreeError`` naming the first place where they are not.

    >>> spread({"a": None, "b": (0, 1)}, flatten({"a": [1, 2], "b": (3, [4, 5])})[1])
    [None, None, 0, 1, 1]
    """
    values, given = flatten(prefix)
    supply = iter(values)
    found: list[Any] = []

    def visit(part: Spec, spec: Spec, path: tuple[str, ...]) -> None:
        if part is LEAF or len(part) == 2:
            value = next(supply) if part is LEAF else part[0]
            found.extend([value] * Structure(spec).size)
            return
        fits = spec is not LEAF and len(spec) == 3 and part[0] is spec[0] and len(part[2]) == len(spec[2])
        # What is static in a dataclass says nothing about leaves; the keys of a dict do.
        if not fits or (part[1] != spec[1] and part[0] not in _FIELDS):
            raise TreeError(
                f"another structure at {'.'.join(path) or 'the root'}: {_show(part)} for {_show(spec)}"
            )
        for name, one, other in zip(_names(spec[0], spec[1], len(spec[2])), part[2], spec[2]):
            visit(one, other, (*path, name))

    visit(given.spec, structure.spec, ())
    return found


def difference(left: Structure, right: Structure) -> str:
    """The first place where two structures differ, in words."""
    path, one, other = _first_difference(left.spec, right.spec, ())
    return f"at {'.'.join(path) or 'the root'}: {_show(one)} against {_show(other)}"


# -- Flattening: one function per class, learned at its first instance


def _visit(tree: Any, leaves: list[Any], inside: bool) -> Spec:
    kind = type(tree)
    if kind in ARRAY_TYPES:
        leaves.append(tree)
        return LEAF
    return (_FLATTEN.get(kind) or _learn(kind))(tree, leaves, inside)


def _leaf(tree: Any, leaves: list[Any], inside: bool) -> Spec:
    leaves.append(tree)
    return LEAF


def _array(tree: Any, leaves: list[Any], inside: bool) -> Spec:
    refuse_class(tree)
    return _leaf(tree, leaves, inside)


def _number(tree: Any, leaves: list[Any], inside: bool) -> Spec:
    if inside:
        return (tree, type(tree))
    leaves.append(tree)
    return LEAF


def _other(tree: Any, leaves: list[Any], inside: bool) -> Spec:
    if inside:
        return (tree, type(tree))
    raise TreeError(
        f"a tree of arrays holds a {type(tree).__name__}: {tree!r:.60}; leave it out, put it in a dataclass, "
        "or make it a static argument"
    )


def _sequence(cls: type) -> Flatten:
    def visit(tree: Any, leaves: list[Any], inside: bool) -> Spec:
        parts: list[Spec] = []
        for part in tree:
            if type(part) in ARRAY_TYPES:
                leaves.append(part)
                parts.append(LEAF)
            else:
                parts.append(_visit(part, leaves, inside))
        return (cls, None, tuple(parts))

    return visit


def _sorted_keys(tree: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(tree))
    except TypeError:
        return tuple(sorted(tree, key=lambda key: (type(key).__name__, repr(key))))


def _mapping(cls: type) -> Flatten:
    def visit(tree: Any, leaves: list[Any], inside: bool) -> Spec:
        keys = _sorted_keys(tree)
        return (cls, keys, tuple([_visit(tree[key], leaves, inside) for key in keys]))

    return visit


def _default_dict(tree: Any, leaves: list[Any], inside: bool) -> Spec:
    keys = _sorted_keys(tree)
    return (
        defaultdict,
        (tree.default_factory, keys),
        tuple([_visit(tree[key], leaves, inside) for key in keys]),
    )


def _data_class(cls: type) -> Flatten:
    fields = dataclasses.fields(cls)
    moving = [field.name for field in fields if not field.metadata.get("static")]
    fixed = [field.name for field in fields if field.metadata.get("static")]
    get_moving, get_fixed = _getter(moving), _getter(fixed)

    def visit(tree: Any, leaves: list[Any], inside: bool) -> Spec:
        parts: list[Spec] = []
        for part in get_moving(tree):
            kind = type(part)
            if kind in ARRAY_TYPES:
                leaves.append(part)
                parts.append(LEAF)
            else:
                parts.append((_FLATTEN.get(kind) or _learn(kind))(part, leaves, True))
        values = get_fixed(tree)
        return (cls, (*values, *map(type, values)), tuple(parts))

    _FIELDS[cls] = (tuple(moving), tuple(fixed))
    _BUFFERS[cls] = {field.name: field.metadata["buffer"] for field in fields if "buffer" in field.metadata}
    return visit


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda tree: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda tree: (get(tree),)


def _learn(kind: type) -> Flatten:
    """How instances of a class are flattened; remembered, for it is asked on every call of a compiled
    function.
    """
    if issubclass(kind, np.ndarray):
        visit: Flatten = _array
    elif issubclass(kind, (np.generic, Node)):
        visit = _leaf
    elif dataclasses.is_dataclass(kind):
        visit = _data_class(kind)
    elif issubclass(kind, (list, tuple)):
        visit = _sequence(kind)
    elif issubclass(kind, dict):
        visit = _mapping(kind)
    else:
        visit = _other
    _FLATTEN[kind] = visit
    return visit


ARRAY_TYPES = frozenset(
    {np.ndarray, Variable, Operation, Constant, Type, float}
    | {np.dtype(name).type for name in ("bool", "int32", "int64", "uint8", "float32", "float64")}
)
"""Classes that are leaves wherever they stand."""
LEAF_TYPES = ARRAY_TYPES | {int, bool}
"""Classes that are leaves outside dataclasses."""
_FIELDS: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {}
_BUFFERS: dict[type, dict[str, str | None]] = {}
"""Names of fields made by ``buffer()``, each with the field that turns it into a parameter, if any."""
_FLATTEN: dict[type, Flatten] = {
    **dict.fromkeys(ARRAY_TYPES, _leaf),
    int: _number,
    bool: _number,
    type(None): lambda tree, leaves, inside: (None, type(None)),
    Static: lambda tree, leaves, inside: (tree.value, type(tree.value)),
    tuple: _sequence(tuple),
    list: _sequence(list),
    dict: _mapping(dict),
    OrderedDict: lambda tree, leaves, inside: (
        OrderedDict,
        tuple(tree),
        tuple([_visit(part, leaves, inside) for part in tree.values()]),
    ),
    defaultdict: _default_dict,
}


# -- Rebuilding


def _build(spec: Spec, supply: Iterator[Any]) -> Any:
    if spec is LEAF:
        return next(supply)
    if len(spec) == 2:
        return spec[0]
    cls, rest, specs = spec
    parts = []
    for part in specs:
        parts.append(next(supply) if part is LEAF else _build(part, supply))
    return (_BUILD.get(cls) or _learn_building(cls))(rest, parts)


def _build_data_class(cls: type) -> Build:
    moving, fixed = _FIELDS[cls]

    def build(rest: Any, parts: list[Any]) -> Any:
        # Not by __init__: a tree is rebuilt as it was, whatever its constructor would draw or check.
        instance: Any = object.__new__(cls)
        for name, value in zip(moving, parts):
            object.__setattr__(instance, name, value)
        for name, value in zip(fixed, rest):
            object.__setattr__(instance, name, value)
        return instance

    return build


def _learn_building(cls: Any) -> Build:
    def build_mapping(keys: Any, parts: list[Any]) -> Any:
        return cls(zip(keys, parts))

    def build_named_tuple(_: Any, parts: list[Any]) -> Any:
        return cls(*parts)

    def build_sequence(_: Any, parts: list[Any]) -> Any:
        return cls(parts)

    if cls in _FIELDS:
        build: Build = _build_data_class(cls)
    elif issubclass(cls, dict):
        build = build_mapping
    else:
        build = build_named_tuple if hasattr(cls, "_fields") else build_sequence
    _BUILD[cls] = build
    return build


_BUILD: dict[type, Build] = {
    tuple: lambda _, parts: tuple(parts),
    list: lambda _, parts: parts,
    dict: lambda keys, parts: dict(zip(keys, parts)),
    defaultdict: lambda rest, parts: defaultdict(rest[0], zip(rest[1], parts)),
}


# -- Reading a structure


def _names(cls: type, rest: Any, count: int) -> list[str]:
    """What the parts of a container are called in a path."""
    if cls in _FIELDS:
        return list(_FIELDS[cls][0])
    if cls is defaultdict:
        return [str(key) for key in rest[1]]
    if issubclass(cls, dict):
        return [str(key) for key in rest]
    return list(getattr(cls, "_fields", map(str, range(count))))


def _walk(
    spec: Spec, path: tuple[str, ...] = (), inside: bool = False
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The path of each leaf and whether it stands in a dataclass."""
    if spec is LEAF:
        yield path, inside
    elif len(spec) == 3:
        cls, rest, parts = spec
        for name, part in zip(_names(cls, rest, len(parts)), parts):
            yield from _walk(part, (*path, name), inside or cls in _FIELDS)


def _trained(spec: Spec, inherited: bool) -> Iterator[bool]:
    """For each leaf, whether no ``buffer()`` is on the way to it."""
    if spec is LEAF:
        yield inherited
    elif len(spec) == 3:
        cls, rest, parts = spec
        buffers = _BUFFERS.get(cls)
        if not buffers:
            for part in parts:
                yield from _trained(part, inherited)
            return
        moving, fixed = _FIELDS[cls]
        settings: dict[str | None, Any] = dict(zip(fixed, rest))
        settings |= {
            name: part[0] for name, part in zip(moving, parts) if part is not LEAF and len(part) == 2
        }
        for name, part in zip(moving, parts):
            yield from _trained(
                part, inherited and (name not in buffers or bool(settings.get(buffers[name])))
            )


def _show(spec: Spec) -> str:
    if spec is LEAF:
        return "*"
    if len(spec) == 2:
        return getattr(spec[0], "__name__", None) or repr(spec[0])
    cls, rest, parts = spec
    shown = [_show(part) for part in parts]
    if cls is tuple:
        return f"({', '.join(shown)}{',' if len(shown) == 1 else ''})"
    if cls is list:
        return f"[{', '.join(shown)}]"
    if cls is dict:
        return "{" + ", ".join(f"{key!r}: {part}" for key, part in zip(rest, shown)) + "}"
    named = [f"{name}={part}" for name, part in zip(_names(cls, rest, len(parts)), shown)]
    if cls in _FIELDS:
        named += [f"{name}={_show((value, type(value)))}" for name, value in zip(_FIELDS[cls][1], rest)]
    return f"{cls.__name__}({', '.join(named)})"


def _first_difference(left: Spec, right: Spec, path: tuple[str, ...]) -> tuple[tuple[str, ...], Spec, Spec]:
    if left is LEAF or right is LEAF or len(left) == 2 or len(right) == 2 or left[:2] != right[:2]:
        return path, left, right
    if len(left[2]) != len(right[2]):
        return path, left, right
    for name, one, other in zip(_names(left[0], left[1], len(left[2])), left[2], right[2]):
        if one != other:
            return _first_difference(one, other, (*path, name))
    return path, left, right
