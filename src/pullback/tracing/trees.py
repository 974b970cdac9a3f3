"""Trees: arguments and results as nested dicts, lists, tuples, dataclasses, and the arrays at their leaves.

What a leaf is depends on where it stands. In plain containers (dicts, lists, tuples, named tuples, arguments
themselves) leaves are arrays, NumPy's scalars and Python's ``int``, ``float`` and ``bool``; anything else is
refused. ``None`` is a tree without leaves.

In a dataclass, and in containers held by one, leaves are arrays, NumPy's scalars and Python's ``float``.
Strings, functions, ``int``, ``bool`` and whatever else is no array belong to the structure and are compared
by equality: a layer's size is part of its program, its weights are data. A field made by ``static()``
belongs to the structure whatever it holds; the leaves in a field made by ``buffer()`` are no parameters:
gradients and optimisers leave them alone. Attributes that an object has beside its fields, and those of
subclasses of containers, travel by the same rules as fields; only what a ``cached_property`` keeps is computed
anew. A rebuilt tree has the classes of the first one, and its dicts go through their keys in the same order.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np

from pullback.errors import TreeError
from pullback.graph import Constant, Node, Operation, Type, Variable, refuse_class
from pullback.graph.node import kind_of
from pullback.numpy.arrays import TracedArray
from pullback.tracing.specs import (
    BUFFERS,
    FIELDS,
    LEAF,
    REGISTERED,
    Attributes,
    Spec,
    attributes_of,
    first_difference,
    part_names,
    show,
    trained,
    unordered,
    walk,
)
from pullback.tracing.tables import parts_of

__all__ = [
    "LEAF_ALONE",
    "Static",
    "Structure",
    "buffer",
    "builder",
    "flatten",
    "handed_out",
    "leaf_paths",
    "map_tree",
    "register_tree",
    "spread",
    "static",
]


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
    {'weights': 2, 'bias': 1}
    """

    __slots__ = ("_hash", "spec")

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._hash: int | None = None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves, in the order in which ``flatten`` gives them."""
        handed = [handed_out(leaf) for leaf in leaves]
        if self.spec is LEAF and len(handed) == 1:
            return handed[0]
        supply = iter(handed)
        try:
            tree = _build(self.spec, supply)
        except StopIteration:
            raise TreeError(f"too few leaves for {self!r}, which has {self.size}") from None
        if next(supply, LEAF) is not LEAF:
            raise TreeError(f"too many leaves for {self!r}, which has {self.size}")
        return tree

    @property
    def is_leaf(self) -> bool:
        """Whether the tree is a leaf itself."""
        return self.spec is LEAF

    @property
    def size(self) -> int:
        """Number of leaves."""
        return sum(1 for _ in walk(self.spec))

    @property
    def paths(self) -> list[str]:
        """The path of each leaf: names and positions joined by dots, empty for a tree that is a leaf
        itself.
        """
        return [".".join(path) for path, _ in walk(self.spec)]

    @property
    def in_dataclass(self) -> list[bool]:
        """Whether each leaf stands in a dataclass."""
        return [inside for _, inside in walk(self.spec)]

    @property
    def trained(self) -> list[bool]:
        """Whether each leaf is a parameter where it is a float, rather than part of a ``buffer()``."""
        return [True] if self.spec is LEAF else list(trained(self.spec, True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and bool(self.spec == other.spec)

    def fits(self, other: Structure) -> bool:
        """Whether the leaves of both belong together: equal but for the order that dicts were written in."""
        return self == other or bool(unordered(self.spec) == unordered(other.spec))

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
        return f"Structure({show(self.spec)})"


LEAF_ALONE = Structure(LEAF)


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of ``tree`` in a fixed order (dict keys sorted), and its structure.

    Raises ``TreeError`` for what has no place in a tree, such as a string in a list of arrays.

    >>> flatten((1.0, [2.0, None]))
    ([1.0, 2.0], Structure((*, [*, None])))
    """
    leaves: list[Any] = []
    kind = type(tree)
    if kind in LEAF_TYPES:
        return [tree], LEAF_ALONE
    try:
        return leaves, Structure((_FLATTEN.get(kind) or _learn(kind))(tree, leaves, False))
    except RecursionError:
        raise TreeError(f"a {kind.__name__} is nested too deep for a tree, or holds itself") from None


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
        if not found.fits(structure):
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
    REGISTERED.add(cls)


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
        if not fits or (part[1] != spec[1] and part[0] not in FIELDS):
            raise TreeError(
                f"another structure at {'.'.join(path) or 'the root'}: {show(part)} for {show(spec)}"
            )
        for name, one, other in zip(part_names(spec[0], spec[1], len(spec[2])), part[2], spec[2]):
            visit(one, other, (*path, name))

    visit(unordered(given.spec), unordered(structure.spec), ())
    return found


def difference(left: Structure, right: Structure) -> str:
    """The first place where two structures differ, in words."""
    path, one, other = first_difference(unordered(left.spec), unordered(right.spec), ())
    return f"at {'.'.join(path) or 'the root'}: {show(one)} against {show(other)}"


def handed_out(leaf: Any) -> Any:
    """A leaf as users get it: a traced one by a name of its own."""
    if not isinstance(leaf, Node) or type(leaf) is TracedArray:
        return leaf
    return TracedArray(leaf, isinstance(leaf, Variable))


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


_SUBTLE = frozenset({float, tuple})
"""Classes of values that ``kind_of`` says more about than their class."""


def _number(tree: Any, leaves: list[Any], inside: bool) -> Spec:
    if inside:
        return (tree, kind_of(tree))
    leaves.append(tree)
    return LEAF


def _other(tree: Any, leaves: list[Any], inside: bool) -> Spec:
    if inside:
        return (tree, kind_of(tree))
    raise TreeError(
        f"a tree of arrays holds a {type(tree).__name__}: {tree!r:.60}; leave it out, put it in a dataclass, "
        "or make it a static argument, jit(f, static_argnames=…)"
    )


def _foreign_array(tree: Any, leaves: list[Any], inside: bool) -> Spec:
    """Refuse another library's array: in a dataclass it would be a constant of the structure, not a parameter."""
    raise TreeError(
        f"a tree of arrays holds a {type(tree).__name__} of {type(tree).__module__.partition('.')[0]}; make it a NumPy "
        "array, np.asarray(x)"
    )


def _sequence(cls: type) -> Flatten:
    names = _attribute_names(cls, ())

    def visit(tree: Any, leaves: list[Any], inside: bool) -> Spec:
        parts: list[Spec] = []
        for part in tree:
            if type(part) in ARRAY_TYPES:
                leaves.append(part)
                parts.append(LEAF)
            else:
                parts.append(_visit(part, leaves, inside))
        attributes = names(tree)
        if not attributes:
            return (cls, None, tuple(parts))
        parts += [_visit(getattr(tree, name), leaves, True) for name in attributes]
        return (cls, (attributes,), tuple(parts))

    return visit


def _sorted_keys(tree: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(tree))
    except TypeError:
        return tuple(sorted(tree, key=lambda key: (type(key).__name__, repr(key))))


def _mapping(cls: type) -> Flatten:
    """Leaves come in the order of the sorted keys; the rest keeps the order that they were written in, where that
    is another: a function may go through them.
    """
    ordered, defaults = issubclass(cls, OrderedDict), issubclass(cls, defaultdict)
    names = _attribute_names(cls, ())

    def visit(tree: Any, leaves: list[Any], inside: bool) -> Spec:
        written = tuple(tree)
        keys = written if ordered else _sorted_keys(tree)
        rest: tuple[Any, ...] = (keys, None if written == keys else written)
        if defaults:
            rest = (*rest, tree.default_factory)
        parts = [_visit(tree[key], leaves, inside) for key in keys]
        attributes = names(tree)
        if attributes:
            parts += [_visit(getattr(tree, name), leaves, True) for name in attributes]
            rest = (*rest, attributes)
        return (cls, rest, tuple(parts))

    return visit


def _attribute_names(cls: type, fields: Iterable[str]) -> Callable[[Any], Attributes]:
    """The function from an instance to the names of its attributes that are no fields.

    What a ``cached_property`` has computed is left out: it is computed again from what the rebuilt object holds.
    """
    known = frozenset(fields)
    slots = [
        f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
        for base in cls.__mro__
        for name in _as_names(base.__dict__.get("__slots__", ()))
    ]
    slots = [name for name in slots if name not in known and name not in ("__dict__", "__weakref__")]
    none = Attributes()
    if not slots and not cls.__dictoffset__:
        return lambda tree: none

    def names(tree: Any) -> Attributes:
        values = vars(tree) if cls.__dictoffset__ else {}
        if not slots and values.keys() <= known:
            return none
        found = [name for name in values if name not in known and not _is_cached(cls, name)]
        return Attributes(sorted(found + [name for name in slots if hasattr(tree, name)]))

    return names


def _as_names(slots: str | Iterable[str]) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


def _is_cached(cls: type, name: str) -> bool:
    return any(isinstance(vars(base).get(name), cached_property) for base in cls.__mro__)


def _data_class(cls: type) -> Flatten:
    fields = dataclasses.fields(cls)
    moving = [field.name for field in fields if not field.metadata.get("static")]
    fixed = [field.name for field in fields if field.metadata.get("static")]
    get_moving, get_fixed = _getter(moving), _getter(fixed)
    names = _attribute_names(cls, [field.name for field in fields])

    def visit(tree: Any, leaves: list[Any], inside: bool) -> Spec:
        parts: list[Spec] = []
        try:
            values, moved = get_fixed(tree), get_moving(tree)
        except AttributeError as error:
            raise TreeError(
                f"a {cls.__name__} lacks a field: {error}; set it in __init__ or __post_init__, or give it a default"
            ) from None
        attributes = names(tree)
        if attributes:
            moved = (*moved, *[getattr(tree, name) for name in attributes])
        for part in moved:
            kind = type(part)
            if kind in ARRAY_TYPES:
                leaves.append(part)
                parts.append(LEAF)
            else:
                parts.append((_FLATTEN.get(kind) or _learn(kind))(part, leaves, True))
        kinds: tuple[Any, ...] = tuple(map(type, values))
        if not _SUBTLE.isdisjoint(kinds):
            kinds = tuple(map(kind_of, values))
        rest = (*values, *kinds)
        return (cls, (*rest, attributes) if attributes else rest, tuple(parts))

    FIELDS[cls] = (tuple(moving), tuple(fixed))
    BUFFERS[cls] = {field.name: field.metadata["buffer"] for field in fields if "buffer" in field.metadata}
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
        if issubclass(kind, (list, tuple, dict)):
            raise TreeError(
                f"{kind.__name__} is a dataclass and a {kind.__mro__[-2].__name__}: give the elements a field of "
                "their own, or tell pb.register_tree what its parts are"
            )
        visit = _data_class(kind)
    elif issubclass(kind, (list, tuple)):
        visit = _sequence(kind)
    elif issubclass(kind, dict):
        visit = _mapping(kind)
    elif (parts := parts_of(kind)) is not None:
        register_tree(*parts)
        visit = _FLATTEN[parts[0]]
    elif hasattr(kind, "__array__"):
        visit = _foreign_array
    else:
        visit = _other
    _FLATTEN[kind] = visit
    return visit


ARRAY_TYPES = frozenset(
    {np.ndarray, Variable, Operation, Constant, Type, float, complex}
    | {
        np.dtype(name).type
        for name in ("bool", "int32", "int64", "uint8", "float32", "float64", "complex64", "complex128")
    }
)
"""Classes that are leaves wherever they stand."""
LEAF_TYPES = ARRAY_TYPES | {int, bool}
"""Classes that are leaves outside dataclasses."""
_FLATTEN: dict[type, Flatten] = {
    **dict.fromkeys(ARRAY_TYPES, _leaf),
    int: _number,
    bool: _number,
    TracedArray: lambda tree, leaves, inside: _leaf(tree.node, leaves, inside),
    type(None): lambda tree, leaves, inside: (None, type(None)),
    Static: lambda tree, leaves, inside: (tree.value, kind_of(tree.value)),
    tuple: _sequence(tuple),
    list: _sequence(list),
    dict: _mapping(dict),
    OrderedDict: _mapping(OrderedDict),
    defaultdict: _mapping(defaultdict),
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
    return builder(cls)(rest, parts)


def builder(cls: type) -> Build:
    """The function that makes an instance of a class from the rest in a structure and its parts."""
    return _BUILD.get(cls) or _learn_building(cls)


def _set_attributes(instance: Any, names: tuple[str, ...], values: Sequence[Any]) -> None:
    for name, value in zip(names, values):
        object.__setattr__(instance, name, value)


def _build_data_class(cls: type) -> Build:
    moving, fixed = FIELDS[cls]

    def build(rest: Any, parts: list[Any]) -> Any:
        # Not by __init__: a tree is rebuilt as it was, whatever its constructor would draw or check.
        instance: Any = object.__new__(cls)
        _set_attributes(instance, moving, parts)
        _set_attributes(instance, fixed, rest)
        if len(parts) > len(moving):
            _set_attributes(instance, attributes_of(rest), parts[len(moving) :])
        return instance

    return build


def _learn_building(cls: Any) -> Build:
    """How instances of a class are rebuilt: their contents and attributes as they were, not by ``__init__``."""

    def build_mapping(rest: Any, parts: list[Any]) -> Any:
        base = next(base for base in (OrderedDict, defaultdict, dict) if issubclass(cls, base))
        instance = base.__new__(cls)
        if base is defaultdict:
            instance.default_factory = rest[2]
        values = dict(zip(rest[0], parts))
        for key in rest[1] or rest[0]:
            base.__setitem__(instance, key, values[key])
        _set_attributes(instance, attributes_of(rest), parts[len(values) :])
        return instance

    def build_sequence(rest: Any, parts: list[Any]) -> Any:
        names = attributes_of(rest)
        elements = parts[: len(parts) - len(names)]
        if issubclass(cls, tuple):
            instance: Any = tuple.__new__(cls, elements)
        else:
            instance = list.__new__(cls)
            list.extend(instance, elements)
        _set_attributes(instance, names, parts[len(elements) :])
        return instance

    if cls in FIELDS:
        build: Build = _build_data_class(cls)
    else:
        build = build_mapping if issubclass(cls, dict) else build_sequence
    _BUILD[cls] = build
    return build


def _build_dict(rest: Any, parts: list[Any]) -> dict[Any, Any]:
    keys, written = rest
    values = dict(zip(keys, parts))
    return values if written is None else {key: values[key] for key in written}


_BUILD: dict[type, Build] = {
    tuple: lambda _, parts: tuple(parts),
    list: lambda _, parts: parts,
    dict: _build_dict,
}
