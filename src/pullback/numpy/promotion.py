"""Promotion and broadcasting, made explicit: from whatever the user wrote to operands of one dtype and one
shape.

Operators are strict. What NumPy does silently before it computes, dtype promotion by the rules of NEP 50 and
implicit broadcasting, becomes ``cast`` and ``broadcast`` operations here.

Source: NumPy Enhancement Proposal 50, *Promotion rules for Python scalars*, 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeGuard

import numpy as np

import pullback.operators  # noqa: F401  (importing it fills the table of operators)
from pullback.errors import ArrayClassError, DTypeError, ShapeError, TracingError
from pullback.graph import (
    OPERATORS,
    Node,
    Type,
    constant,
    current_source,
    dtype_kind,
    force,
    is_complex,
    is_float,
    is_known,
    refuse_class,
    type_like,
)
from pullback.graph.named import LEAST_STAND_IN
from pullback.graph.protocol import vocabulary
from pullback.numpy.sizes import counted, extent_of

__all__ = [
    "Scalar",
    "any_traced",
    "are_alike",
    "array_of",
    "as_array_node",
    "as_node",
    "broadcast_shapes",
    "broadcast_to_shape",
    "broadcast_together",
    "cast",
    "float_dtype",
    "is_node",
    "of_python",
    "operands",
    "promote",
    "refuse_lost_part",
    "result_dtype",
    "settled",
    "strong",
    "where_written",
]

P = ParamSpec("P")

Scalar = (bool, int, float, complex)
"""Python's own numbers: they take the dtype of what they meet."""

_KIND_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
_DEFAULT = tuple(np.dtype(kind) for kind in (np.bool_, np.int64, np.float64, np.complex128))
_WEAK_TYPES = {
    bool: type_like(_DEFAULT[0], (), True),
    int: type_like(_DEFAULT[1], (), True),
    float: type_like(_DEFAULT[2], (), True),
    complex: type_like(_DEFAULT[3], (), True),
}


def is_node(value: Any) -> TypeGuard[Node]:
    """Whether ``value`` is traced."""
    return isinstance(value, Node)


def any_traced(*values: Any) -> bool:
    """Whether a traced value is among ``values`` or inside the lists, tuples and slices among them."""
    for value in values:
        if isinstance(value, Node):
            return True
        if isinstance(value, (list, tuple)) and any_traced(*value):
            return True
        if isinstance(value, slice) and any_traced(value.start, value.stop, value.step):
            return True
    return False


def settled(x: Any) -> Any:
    """``x`` with arrays for the integers and bools in it that are known while tracing, in tuples, lists and slices too.

    They have no derivative that would be lost, so shapes may depend on them. Floats stay traced.
    """
    if isinstance(x, Node):
        if is_float(x.dtype) or not is_known(x):
            extent = extent_of(x)
            return x if extent is None else np.asarray(extent)
        array = force(x).view()
        array.flags.writeable = False  # others read it as well
        return array
    if isinstance(x, (list, tuple)) and any_traced(*x):
        parts = [settled(each) for each in x]
        return x._make(parts) if hasattr(x, "_make") else type(x)(parts)
    if isinstance(x, slice) and any_traced(x):
        return slice(settled(x.start), settled(x.stop), settled(x.step))
    return x


def where_written() -> str:
    """The user's line, as the end of an error message."""
    source = current_source()
    return "" if source is None else f" (at {source})"


def type_of(value: Any) -> Type:
    """The type of a node, an array or a number; weak for Python's own numbers."""
    weak = _WEAK_TYPES.get(type(value))
    if weak is not None:
        return weak
    if isinstance(value, Node):
        return value.type
    if isinstance(value, (np.ndarray, np.generic)):
        refuse_class(value)
        return type_like(value.dtype.newbyteorder("="), value.shape)
    refuse_class(value)
    array = np.asarray(value)
    return type_like(array.dtype.newbyteorder("="), array.shape)


def result_dtype(*types: Type) -> np.dtype:
    """The dtype that NumPy's rules give operands of these types.

    >>> float32, weak = Type(np.dtype("float32"), (3,)), Type(np.dtype("float64"), (), weak=True)
    >>> result_dtype(float32, weak)
    dtype('float32')
    >>> result_dtype(Type(np.dtype("int8"), (3,)), weak)
    dtype('float64')
    >>> result_dtype(float32, Type(np.dtype("complex128"), (), weak=True))
    dtype('complex64')
    """
    return _common_dtype(tuple([(t.dtype, t.weak) for t in types]))


@lru_cache(maxsize=1024)
def _common_dtype(kinds: tuple[tuple[np.dtype, bool], ...]) -> np.dtype:
    """The same of each dtype and whether it is weak."""
    strong = [dtype for dtype, weak in kinds if not weak]
    rank = max((_KIND_RANK[dtype_kind(dtype)] for dtype, weak in kinds if weak), default=0)
    if not strong:
        return _DEFAULT[rank]
    dtype = strong[0]
    for other in strong[1:]:
        try:
            dtype = np.promote_types(dtype, other)
        except TypeError:
            raise DTypeError(
                f"{dtype} and {other} have no dtype in common; cast one, for instance with "
                f".astype(np.float32){where_written()}"
            ) from None
    if rank <= _KIND_RANK[dtype_kind(dtype)]:
        return dtype
    return np.promote_types(dtype, np.complex64) if rank == 3 and dtype_kind(dtype) == "f" else _DEFAULT[rank]


def float_dtype(dtype: np.dtype) -> np.dtype:
    """The float or complex dtype that a function such as ``sin`` computes in: NumPy's, with ``float32`` in place of
    ``float16``.

    >>> float_dtype(np.dtype("int16")), float_dtype(np.dtype("int32"))
    (dtype('float32'), dtype('float64'))
    """
    if is_float(dtype):
        return dtype
    return np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)


def cast(x: Node, dtype: Any) -> Node:
    """``x`` in ``dtype``; the node itself where nothing changes.

    Raises ``DTypeError`` where an imaginary part would be lost.
    """
    if x.dtype == dtype:
        return x.node
    refuse_lost_part(x.type, np.dtype(dtype))
    return OPERATORS["cast"](x, dtype=np.dtype(dtype))


def refuse_lost_part(given: Type, dtype: np.dtype) -> None:
    """Raise ``DTypeError`` where complex numbers are to become others than complex ones or bools."""
    if is_complex(given.dtype) and dtype.kind in "iuf":
        raise DTypeError(
            f"{given} where {dtype} is needed: the imaginary part would be lost; take the real part, x.real, or make "
            f"the other array complex, with .astype(np.complex128){where_written()}"
        )


def as_array_node(value: Any) -> Node:
    """The node of ``value`` in its own dtype; Python's numbers become weak constants."""
    if isinstance(value, Node):
        return value.node
    if isinstance(value, (list, tuple)) and any_traced(*value):
        return vocabulary["array"](value)  # type: ignore[no-any-return]
    type = _met_type(value)
    return _number(value, type.dtype, type.weak)


def _met_type(value: Any) -> Type:
    """The type of what a traced function has met; raises ``DTypeError`` with the user's line."""
    try:
        return type_of(value)
    except (ArrayClassError, TracingError):
        raise
    except (TypeError, ValueError, OverflowError) as error:
        name = value.__class__.__name__
        raise DTypeError(
            f"a traced function met a value of class {name} that is no array of numbers: {error}{where_written()}"
        ) from None


def as_node(value: Any, dtype: np.dtype) -> Node:
    """The node of ``value`` in ``dtype``; a Python integer that does not fit is refused as NumPy refuses
    it.
    """
    if isinstance(value, Node):
        return cast(value, dtype)
    refuse_lost_part(type_of(value), dtype)
    if type(value) is int and abs(value) >= LEAST_STAND_IN and counted(value) is not None:
        return _number(value, dtype)
    if isinstance(value, int) and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not limits.min <= value <= limits.max:
            raise DTypeError(
                f"the integer {value} is outside {dtype} [{limits.min}, {limits.max}]; "
                f"cast the array to a wider dtype first, for instance .astype(np.int64){where_written()}"
            )
    return constant(value, dtype)


def _number(value: Any, dtype: np.dtype, weak: bool = False) -> Node:
    """The constant ``value``; where it counts along a named axis, what is computed of its size."""
    size = counted(value) if type(value) is int and abs(value) >= LEAST_STAND_IN else None
    if size is None:
        return constant(value, dtype, weak)
    return (
        size
        if (size.dtype, size.type.weak) == (dtype, weak)
        else OPERATORS["cast"](size, dtype=dtype, weak=weak)
    )


def strong(x: Any) -> Any:
    """``x`` with a dtype of its own: what NumPy's functions make of Python's numbers is no Python number.

    ``np.where(mask, 300, 2) + a`` is of ``int64`` for an ``a`` of ``int8``, but ``(300 + 2) * a`` would be of ``int8``.
    """
    return OPERATORS["cast"](x, dtype=x.dtype) if isinstance(x, Node) and x.type.weak else x


def array_of(function: Callable[P, Any]) -> Callable[P, Any]:
    """``function`` as one of NumPy's: its result has a dtype of its own."""

    @wraps(function)
    def concluded(*arguments: P.args, **keywords: P.kwargs) -> Any:
        return strong(function(*arguments, **keywords))

    return concluded


def of_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as what a node's Python operator does: of Python's numbers it makes one, of bools integers."""

    def operator(*operands: Any) -> Any:
        for x in operands:
            if isinstance(x, Node):
                if not x.type.weak or x.type.dtype.kind != "b":
                    return function(*operands)
            elif not isinstance(x, bool):
                return function(*operands)
        return function(*[_weak(x, _DEFAULT[1]) for x in operands])

    return operator


def promote(values: tuple[Any, ...], dtype: Callable[[np.dtype], np.dtype] | None = None) -> tuple[Node, ...]:
    """``values`` as nodes of one dtype: NumPy's result type, or what ``dtype`` makes of it."""
    known = _one_float(values)
    if known is not None and (dtype is None or dtype(known) is known):
        return tuple([x.node if isinstance(x, Node) else _number(x, known) for x in values])
    types = tuple([_met_type(value) for value in values])
    common = result_dtype(*types)
    if dtype is not None:
        common = dtype(common)
    if all(t.weak for t in types):
        return tuple([_weak(value, common) for value in values])
    return tuple([as_node(value, common) for value in values])


def _one_float(values: tuple[Any, ...]) -> np.dtype | None:
    """The dtype of ``values``, as they mostly are: floats of one dtype, beside numbers that take it."""
    found, numbers, strong = None, False, False
    for x in values:
        if isinstance(x, Node):
            own = x.type
            if own.dtype.kind != "f" or (found is not None and own.dtype is not found):
                return None
            found, strong = own.dtype, strong or not own.weak
        elif type(x) is float or type(x) is int:
            numbers = True
        else:
            return None
    return None if numbers and not strong else found


def _weak(value: Any, dtype: np.dtype) -> Node:
    if not isinstance(value, Node):
        return _number(value, dtype, weak=True)
    return value if value.dtype == dtype else OPERATORS["cast"](value, dtype=dtype, weak=True)


@lru_cache(maxsize=2048)
def _common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """What ``np.broadcast_shapes`` gives, of extents whose product no array could have, too."""
    rank = max(map(len, shapes))
    common = []
    for extents in zip(*[(1,) * (rank - len(shape)) + shape for shape in shapes]):
        own = {extent for extent in extents if extent != 1}
        if len(own) > 1:
            raise ValueError("extents differ")
        common.append(own.pop() if own else 1)
    return tuple(common)


def broadcast_shapes(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all ``shapes`` broadcast to; raises ``ShapeError`` naming them when there is none."""
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    try:
        return _common_shape(*shapes)
    except ValueError:
        listed = " and ".join(map(str, shapes))
        raise ShapeError(
            f"{name}: shapes {listed} do not broadcast; aligned at their last axes, extents must be equal or "
            f"1: reshape one, or give it an axis with x[:, None]{where_written()}"
        ) from None


def broadcast_to_shape(x: Node, shape: tuple[int, ...]) -> Node:
    """``x`` repeated to ``shape``, which it is known to broadcast to."""
    if x.type.shape == shape:
        return x
    offset = len(shape) - len(x.type.shape)
    return OPERATORS["broadcast"](x, shape=shape, axes=tuple(range(offset, len(shape))))


def broadcast_together(name: str, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """``nodes`` broadcast to the shape they have in common."""
    shape = broadcast_shapes(name, *[node.type.shape for node in nodes])
    return tuple([broadcast_to_shape(node, shape) for node in nodes])


def operands(
    name: str, values: tuple[Any, ...], dtype: Callable[[np.dtype], np.dtype] | None = None
) -> tuple[Node, ...]:
    """``values`` as a strict elementwise operator wants them: nodes of one dtype and one shape."""
    return broadcast_together(name, promote(values, dtype))


def are_alike(x: Any, y: Any) -> bool:
    """Whether ``x`` and ``y`` are floats, or complex, of one dtype and shape: what an elementwise operator wants."""
    if not isinstance(x, Node) or not isinstance(y, Node):
        return False
    one, other = x.type, y.type
    if one is not other and (one.dtype is not other.dtype or one.shape != other.shape):
        return False
    return one.dtype.kind in "fc"
