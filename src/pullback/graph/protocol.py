"""What a node shares with an array: Python's operators and NumPy's methods.

A node knows no operator by itself. Each method looks its name up in ``vocabulary``, which the NumPy
namespace, floors above, fills when it is imported: so a traced function and a derivative rule write
``g * (1 - y * y)``, and the graph still imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from pullback.graph.node import Node

__all__ = ["ArrayProtocol", "vocabulary"]

vocabulary: dict[str, Callable[..., Node]] = {}


class ArrayProtocol:
    """Operators and methods of an array, each answered by the function of the same name in ``vocabulary``."""

    __slots__ = ()
    __array_priority__ = 1000

    def __add__(self, other: Any) -> Node:
        return vocabulary["add"](self, other)

    def __radd__(self, other: Any) -> Node:
        return vocabulary["add"](other, self)

    def __sub__(self, other: Any) -> Node:
        return vocabulary["subtract"](self, other)

    def __rsub__(self, other: Any) -> Node:
        return vocabulary["subtract"](other, self)

    def __mul__(self, other: Any) -> Node:
        return vocabulary["multiply"](self, other)

    def __rmul__(self, other: Any) -> Node:
        return vocabulary["multiply"](other, self)

    def __truediv__(self, other: Any) -> Node:
        return vocabulary["divide"](self, other)

    def __rtruediv__(self, other: Any) -> Node:
        return vocabulary["divide"](other, self)

    def __floordiv__(self, other: Any) -> Node:
        return vocabulary["floor_divide"](self, other)

    def __rfloordiv__(self, other: Any) -> Node:
        return vocabulary["floor_divide"](other, self)

    def __mod__(self, other: Any) -> Node:
        return vocabulary["remainder"](self, other)

    def __rmod__(self, other: Any) -> Node:
        return vocabulary["remainder"](other, self)

    def __pow__(self, other: Any) -> Node:
        return vocabulary["power"](self, other)

    def __rpow__(self, other: Any) -> Node:
        return vocabulary["power"](other, self)

    def __matmul__(self, other: Any) -> Node:
        return vocabulary["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Node:
        return vocabulary["matmul"](other, self)

    def __and__(self, other: Any) -> Node:
        return vocabulary["bitwise_and"](self, other)

    def __rand__(self, other: Any) -> Node:
        return vocabulary["bitwise_and"](other, self)

    def __or__(self, other: Any) -> Node:
        return vocabulary["bitwise_or"](self, other)

    def __ror__(self, other: Any) -> Node:
        return vocabulary["bitwise_or"](other, self)

    def __xor__(self, other: Any) -> Node:
        return vocabulary["bitwise_xor"](self, other)

    def __rxor__(self, other: Any) -> Node:
        return vocabulary["bitwise_xor"](other, self)

    def __lshift__(self, other: Any) -> Node:
        return vocabulary["left_shift"](self, other)

    def __rlshift__(self, other: Any) -> Node:
        return vocabulary["left_shift"](other, self)

    def __rshift__(self, other: Any) -> Node:
        return vocabulary["right_shift"](self, other)

    def __rrshift__(self, other: Any) -> Node:
        return vocabulary["right_shift"](other, self)

    def __neg__(self) -> Node:
        return vocabulary["negative"](self)

    def __pos__(self) -> Node:
        return vocabulary["positive"](self)

    def __abs__(self) -> Node:
        return vocabulary["absolute"](self)

    def __invert__(self) -> Node:
        return vocabulary["invert"](self)

    def __eq__(self, other: Any) -> Node:  # type: ignore[override]
        return vocabulary["equal"](self, other)

    def __ne__(self, other: Any) -> Node:  # type: ignore[override]
        return vocabulary["not_equal"](self, other)

    def __lt__(self, other: Any) -> Node:
        return vocabulary["less"](self, other)

    def __le__(self, other: Any) -> Node:
        return vocabulary["less_equal"](self, other)

    def __gt__(self, other: Any) -> Node:
        return vocabulary["greater"](self, other)

    def __ge__(self, other: Any) -> Node:
        return vocabulary["greater_equal"](self, other)

    __hash__ = object.__hash__

    def __getitem__(self, index: Any) -> Node:
        return vocabulary["getitem"](self, index)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        vocabulary["refuse"](self, "setitem")
        raise AssertionError("refuse always raises")

    def __len__(self) -> int:
        return cast(int, vocabulary["length"](self))

    def __iter__(self) -> Any:
        return vocabulary["iterate"](self)

    def __bool__(self) -> NoReturn:
        vocabulary["refuse"](self, "bool")
        raise AssertionError("refuse always raises")

    def __int__(self) -> NoReturn:
        vocabulary["refuse"](self, "int")
        raise AssertionError("refuse always raises")

    def __float__(self) -> NoReturn:
        vocabulary["refuse"](self, "float")
        raise AssertionError("refuse always raises")

    def __complex__(self) -> NoReturn:
        vocabulary["refuse"](self, "complex")
        raise AssertionError("refuse always raises")

    def __index__(self) -> NoReturn:
        vocabulary["refuse"](self, "index")
        raise AssertionError("refuse always raises")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        vocabulary["refuse"](self, "array")
        raise AssertionError("refuse always raises")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        return vocabulary["array_ufunc"](ufunc, method, *inputs, **keywords)

    def __array_function__(self, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        return vocabulary["array_function"](function, types, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        # Methods and attributes of an array (``x.sum(axis=0)``, ``x.T``): the namespace says which exist.
        if name.startswith("__"):
            raise AttributeError(name)
        return vocabulary["attribute"](self, name)
