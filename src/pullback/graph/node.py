"""Nodes: constants, variables and operations. Immutable, typed, and equal operations are one node."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from functools import lru_cache, partial
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph.classes import refuse_class
from pullback.graph.protocol import ArrayProtocol
from pullback.graph.source import Source, current_source, source_of_operation
from pullback.graph.type import Type, is_half, one_type, type_like
from pullback.graph.values import PENDING, evaluated, force, mode
from pullback.interning import Interned

if TYPE_CHECKING:
    from pullback.graph.operator import Operator

__all__ = [
    "SMALL_CONSTANT",
    "Constant",
    "Detached",
    "Node",
    "Operation",
    "Signature",
    "Variable",
    "applied",
    "apply",
    "constant",
    "detached",
    "forget_dead",
    "kind_of",
    "mark",
    "signature_of",
]

SMALL_CONSTANT = 64
"""Constants of up to this many elements belong to the graph and its key.

Larger ones are hidden inputs of a program.
"""


class Node(ArrayProtocol):
    """A value of a graph. To the code that is traced it behaves as a NumPy array of its type does.

    ``value`` is the array where it is known: of constants, and of what is computed from arguments that are. It is
    ``PENDING`` until somebody needs it, and ``None`` where the node stands for every value that it may take.
    """

    __slots__ = ("__weakref__", "type", "value")
    type: Type
    value: Any
    inputs: tuple[Node, ...] = ()
    """The nodes that this one is computed from."""

    @property
    def node(self) -> Node:
        """The node itself, or the one that it is a name for."""
        return self

    @property
    def dtype(self) -> np.dtype:
        return self.type.dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> NoReturn:
        self._refuse("dtype")

    @property
    def shape(self) -> tuple[int, ...]:
        shown = mode.shown
        return self.type.shape if shown is None else shown(self.type.shape)  # type: ignore[no-any-return]

    @shape.setter
    def shape(self, shape: Any) -> NoReturn:
        self._refuse("shape")

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> int:
        shown = mode.shown
        return self.type.size if shown is None else shown(self.type.size)  # type: ignore[no-any-return]


class Constant(Node):
    """A value known while tracing."""

    __slots__ = ("original",)
    value: np.ndarray
    original: weakref.ref[np.ndarray] | None
    """The large array that it was copied from, if there was one."""

    def __init__(
        self, value: np.ndarray, weak: bool = False, original: weakref.ref[np.ndarray] | None = None
    ) -> None:
        self.value = value
        self.original = original
        self.type = type_like(value.dtype, value.shape, weak)

    def __repr__(self) -> str:
        if self.value.size == 1:
            return f"Constant({self.value.reshape(-1)[0]!s}: {self.type})"
        return f"Constant({self.type})"


class Variable(Node):
    """An input of a graph: an argument of the traced function, or a parameter."""

    __slots__ = ("is_example", "name")
    name: str
    is_example: bool
    """Whether it stands for each example of a batch."""

    def __init__(
        self, type: Type, name: str = "", value: np.ndarray | None = None, is_example: bool = False
    ) -> None:
        self.type = type
        self.name = name
        self.value = value
        self.is_example = is_example

    def __repr__(self) -> str:
        return f"Variable({self.name or '_'}: {self.type})"


class Detached(Node):
    """A known value without the operations that it has been computed by.

    Rules that are given such nodes compute: what an elementwise operator makes of them is one at once. ``origin`` is
    the node of a graph whose value it is, if there is one; of an operation it has inputs and attributes, as rules ask.
    """

    __slots__ = ("attributes", "inputs", "origin")
    inputs: tuple[Node, ...]

    def __init__(
        self,
        type: Type,
        value: np.ndarray,
        origin: Node | None = None,
        inputs: tuple[Node, ...] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.type = type
        self.value = value
        self.origin = origin
        self.inputs = inputs
        self.attributes = attributes

    def __repr__(self) -> str:
        return f"Detached({self.type})"


_NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})


class Signature:
    """An operator, its attributes and the types of its inputs: what operations that differ in their inputs share.

    Equal plain ones are one object while it is alive, and the types that it was made of stay alive with it.
    """

    __slots__ = (
        "__weakref__",
        "attributes",
        "changes_nothing",
        "compute",
        "is_plain",
        "looks_at_constants",
        "operator",
        "type",
        "types",
    )

    def __init__(
        self, operator: Operator, types: tuple[Type, ...], attributes: Mapping[str, Any], type: Type
    ) -> None:
        self.operator = operator
        self.types = types
        self.attributes = MappingProxyType(dict(attributes)) if attributes else _NO_ATTRIBUTES
        self.type = type
        self.is_plain = all(map(_is_plain, attributes.values()))
        """Whether the attributes are numbers, names and dtypes, or tuples of these."""
        self.compute: Any = None
        """The operator's reference with these attributes, where its result needs no more than a dtype."""
        if type.dtype.kind != "V" and not is_half(type.dtype):
            self.compute = partial(operator.reference, **attributes) if attributes else operator.reference
        self.changes_nothing = (
            operator.name == "cast"
            and type.shape == ()
            and types[0].dtype is type.dtype
            and type.dtype.kind != "V"
        )
        """Whether a number is cast to the dtype that it has: one of Python's becomes one of NumPy's."""
        self.looks_at_constants = operator.elementwise or operator.name == "broadcast"
        """Whether a pullback may depend on the numbers in constants among the inputs: rules look through broadcasts."""


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, complex, str, np.dtype))


class Operation(Node):
    """An operator applied to nodes. Made by ``apply`` only, which keeps equal operations one node."""

    __slots__ = ("attributes", "inputs", "number", "operator", "signature", "source")
    inputs: tuple[Node, ...]
    number: int
    """Of two operations the one made later has the larger number."""
    operator: Operator
    attributes: Mapping[str, Any]
    signature: Signature
    source: Source | None

    def __init__(self, signature: Signature, inputs: tuple[Node, ...]) -> None:
        self.number = next(_numbers)
        self.signature = signature
        self.operator = signature.operator
        self.inputs = inputs
        self.attributes = signature.attributes
        self.type = signature.type
        self.source = source_of_operation()
        self.value = PENDING
        for node in inputs:
            if node.value is None:
                self.value = None
                break

    def __repr__(self) -> str:
        return f"Operation({self.operator.name}: {self.type})"


_numbers = count()


def mark() -> int:
    """A number below those of all operations that are yet to be made."""
    return next(_numbers)


def kind_of(value: Any) -> Any:
    """What tells a value from others that are equal to it: 1 from 1.0 and True, 0.0 from -0.0, in tuples too.

    >>> kind_of((1, 0.0)) == kind_of((2, 0.0)), kind_of((1, 0.0)) == kind_of((1, -0.0))
    (True, False)
    """
    kind = type(value)
    if kind is tuple:
        kinds = tuple(map(type, value))
        return (kind, *(map(kind_of, value) if tuple in kinds or float in kinds else kinds))
    return (kind, str(value)) if kind is float and value == 0 else kind


# -- Making operations

_interned: Interned[Any] = Interned()
_references = _interned.references
_met: Interned[Any] = Interned()
"""Constants by the addresses of the large arrays that they were copied from, which may have changed or be no more."""


def forget_dead() -> None:
    """Let go of the attributes of operations that nobody holds any more; it is done from time to time anyway."""
    _interned.sweep()


def apply(operator: Operator, inputs: tuple[Node, ...], attributes: Mapping[str, Any]) -> Operation:
    """The node of ``operator`` on ``inputs``; the same node as before when an equal one is alive.

    It is computed at once while a function is evaluated as it goes, if its inputs are known. Raises ``ShapeError`` or
    ``DTypeError`` from the operator's type rule, with the user's line at its end.
    """
    signature = signature_of(operator, inputs, attributes)
    if signature.is_plain:
        return applied(signature, inputs)
    key = (*_key(operator, attributes), *map(id, inputs))
    node: Operation = _interned.intern(key, Operation, signature, inputs)
    if node.value is PENDING and mode.evaluates:
        force(node)
    return node


def applied(signature: Signature, inputs: tuple[Node, ...], value: Any = PENDING) -> Operation:
    """The same for a plain signature that ``inputs`` are known to fit, with its ``value`` where that is known."""
    key: Any = (signature, id(inputs[0])) if len(inputs) == 1 else (signature, *map(id, inputs))
    reference = _references.get(key)
    node: Operation | None = None if reference is None else reference()
    if node is None:
        node = _interned.enter(key, Operation(signature, inputs))
    if node.value is PENDING:
        if value is not PENDING:
            node.value = value
        elif mode.evaluates:
            force(node)
    return node


def _key(operator: Operator, attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells an operator with attributes from others."""
    if not attributes:
        return (operator,)
    items = tuple(sorted(attributes.items())) if len(attributes) > 1 else tuple(attributes.items())
    return (operator, items, tuple([kind_of(value) for _, value in items]))


def signature_of(operator: Operator, inputs: tuple[Node, ...], attributes: Mapping[str, Any]) -> Signature:
    """The signature of ``operator`` on ``inputs``; raises what its type rule does.

    What has graphs or functions among its attributes is not shared, and does not keep these alive.
    """
    key = (*_key(operator, attributes), *[id(node.type) for node in inputs])
    reference = _signatures.references.get(key)
    signature: Signature | None = None if reference is None else reference()
    if signature is None:
        signature = _signature(operator, inputs, attributes)
        if signature.is_plain:
            signature = _signatures.intern(key, lambda made: made, signature)
            _recent.append(signature)
    return signature


def _signature(operator: Operator, inputs: tuple[Node, ...], attributes: Mapping[str, Any]) -> Signature:
    types = tuple([node.type for node in inputs])
    try:
        type = operator.type_rule(*types, **attributes)
    except (ShapeError, DTypeError) as error:
        source = current_source()
        if source is not None:
            error.args = (f"{error}\n  at {source}",)
        raise
    return Signature(operator, types, attributes, one_type(type))


_signatures: Interned[Signature] = Interned()
_recent: deque[Signature] = deque(maxlen=2048)
"""Signatures that stay alive without a node, so that a function that is called again finds them."""


def detached(operator: Operator, inputs: tuple[Node, ...], attributes: Mapping[str, Any]) -> Node:
    """What ``operator`` gives for ``inputs`` of which some are detached: a value, or an operation that nobody shares.

    Values are what elementwise operators give, unless rules look for the operator in a cotangent. Masks are shared
    where all that they are made of is in a graph: rules ask whether two are one.
    """
    signature = signature_of(operator, inputs, attributes)
    if signature.type.dtype.kind == "b":
        origins = [x.origin if isinstance(x, Detached) else x for x in inputs]
        if all(origin is not None for origin in origins):
            return apply(operator, tuple(origins), attributes)  # type: ignore[arg-type]
    if operator.elementwise and not operator.is_layer(inputs):
        values = [force(x) for x in inputs]
        return Detached(
            signature.type, evaluated(operator, values, attributes, signature.type, current_source())
        )
    return Operation(signature, inputs)


def constant(value: Any, dtype: Any = None, weak: bool = False) -> Constant:
    """A constant node holding a private, read-only copy of ``value``; small equal constants are one node.

    So is a large array that is met again as it was: what a loop reads in each of its turns.
    """
    if type(value) is int or (type(value) is float and value):
        return _number(value, dtype, weak)
    return _constant(value, dtype, weak)


def _constant(value: Any, dtype: Any, weak: bool) -> Constant:
    refuse_class(value)
    is_large = type(value) is np.ndarray and value.size > SMALL_CONSTANT
    if is_large and (dtype is None or dtype == value.dtype):
        key = (id(value), value.dtype, value.shape, weak)
        known: Constant | None = _met.known(key)
        if known is None or not _is_copy(known, value):
            known = _met.replace(key, _copied(value, None, weak, weakref.ref(value)))
        return known
    return _copied(value, dtype, weak)


def _is_copy(known: Constant, value: np.ndarray) -> bool:
    """Whether ``value`` is the array that ``known`` was copied from, as it was: not one that has its address now."""
    return known.original is not None and known.original() is value and _same_bits(known.value, value)


def _same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    word = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(one.dtype.itemsize)
    if word is None or one.dtype != other.dtype:
        return False
    return bool(np.array_equal(one.view(word), other.view(word)))


def _copied(value: Any, dtype: Any, weak: bool, original: weakref.ref[np.ndarray] | None = None) -> Constant:
    array = np.array(value, dtype=dtype, order="C")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array.flags.writeable = False
    if array.size > SMALL_CONSTANT:
        return Constant(array, weak, original)
    key = (array.dtype, array.shape, array.tobytes(), weak)
    node: Constant = _interned.intern(key, Constant, array, weak)
    return node


# Of two equal floats zeros alone may differ.
_number = lru_cache(maxsize=256, typed=True)(_constant)
