"""What a node shares with an array: Python's operators and NumPy's methods.

A node knows no operator by itself. Each method looks its name up in ``vocabulary``, which the NumPy
namespace, floors above, fills when it is imported: so a traced function and a derivative rule write
``g * (1 - y * y)``, and the graph still imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from pullback.graph.node import Node

__all__ = ["ArrayProtocol", "vocabulary"]

vocabulary: dict[str, Callable[..., Any]] = {}
_functions: Mapping[str, Callable[..., Node]] = vocabulary


class ArrayProtocol:
    """Operators and methods of an array, each answered by the function of the same name in ``vocabulary``."""

    __slots__ = ()
    __array_priority__ = 1000
    __pandas_priority__ = 10_000  # more than a DataFrame's: pandas leaves the operator to the traced value

    def __add__(self, other: Any) -> Node:
        return _functions["add"](self, other)

    def __radd__(self, other: Any) -> Node:
        return _functions["add"](other, self)

    def __sub__(self, other: Any) -> Node:
        return _functions["subtract"](self, other)

    def __rsub__(self, other: Any) -> Node:
        return _functions["subtract"](other, self)

    def __mul__(self, other: Any) -> Node:
        return _functions["multiply"](self, other)

    def __rmul__(self, other: Any) -> Node:
        return _functions["multiply"](other, self)

    def __truediv__(self, other: Any) -> Node:
        return _functions["divide"](self, other)

    def __rtruediv__(self, other: Any) -> Node:
        return _functions["divide"](other, self)

    def __floordiv__(self, other: Any) -> Node:
        return _functions["floor_divide"](self, other)

    def __rfloordiv__(self, other: Any) -> Node:
        return _functions["floor_divide"](other, self)

    def __mod__(self, other: Any) -> Node:
        return _functions["remainder"](self, other)

    def __rmod__(self, other: Any) -> Node:
        return _functions["remainder"](other, self)

    def __divmod__(self, other: Any) -> Any:
        return _functions["divmod"](self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return _functions["divmod"](other, self)

    def __pow__(self, other: Any) -> Node:
        return _functions["power"](self, other)

    def __rpow__(self, other: Any) -> Node:
        return _functions["power"](other, self)

    def __matmul__(self, other: Any) -> Node:
        return _functions["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Node:
        return _functions["matmul"](other, self)

    def __and__(self, other: Any) -> Node:
        return _functions["bitwise_and"](self, other)

    def __rand__(self, other: Any) -> Node:
        return _functions["bitwise_and"](other, self)

    def __or__(self, other: Any) -> Node:
        return _functions["bitwise_or"](self, other)

    def __ror__(self, other: Any) -> Node:
        return _functions["bitwise_or"](other, self)

    def __xor__(self, other: Any) -> Node:
        return _functions["bitwise_xor"](self, other)

    def __rxor__(self, other: Any) -> Node:
        return _functions["bitwise_xor"](other, self)

    def __lshift__(self, other: Any) -> Node:
        return _functions["left_shift"](self, other)

    def __rlshift__(self, other: Any) -> Node:
        return _functions["left_shift"](other, self)

    def __rshift__(self, other: Any) -> Node:
        return _functions["right_shift"](self, other)

    def __rrshift__(self, other: Any) -> Node:
        return _functions["right_shift"](other, self)

    def __iadd__(self, other: Any) -> Node:
        return _functions["in_place"]("+", "add", self, other)

    def __isub__(self, other: Any) -> Node:
        return _functions["in_place"]("-", "subtract", self, other)

    def __imul__(self, other: Any) -> Node:
        return _functions["in_place"]("*", "multiply", self, other)

    def __itruediv__(self, other: Any) -> Node:
        return _functions["in_place"]("/", "divide", self, other)

    def __ifloordiv__(self, other: Any) -> Node:
        return _functions["in_place"]("//", "floor_divide", self, other)

    def __imod__(self, other: Any) -> Node:
        return _functions["in_place"]("%", "remainder", self, other)

    def __ipow__(self, other: Any) -> Node:
        return _functions["in_place"]("**", "power", self, other)

    def __imatmul__(self, other: Any) -> Node:
        return _functions["in_place"]("@", "matmul", self, other)

    def __iand__(self, other: Any) -> Node:
        return _functions["in_place"]("&", "bitwise_and", self, other)

    def __ior__(self, other: Any) -> Node:
        return _functions["in_place"]("|", "bitwise_or", self, other)

    def __ixor__(self, other: Any) -> Node:
        return _functions["in_place"]("^", "bitwise_xor", self, other)

    def __ilshift__(self, other: Any) -> Node:
        return _functions["in_place"]("<<", "left_shift", self, other)

    def __irshift__(self, other: Any) -> Node:
        return _functions["in_place"](">>", "right_shift", self, other)

    def __neg__(self) -> Node:
        return _functions["negative"](self)

    def __pos__(self) -> Node:
        return _functions["positive"](self)

    def __abs__(self) -> Node:
        return _functions["absolute"](self)

    def __invert__(self) -> Node:
        return _functions["invert"](self)

    def __eq__(self, other: Any) -> Node:  # type: ignore[override]
        return _functions["equal"](self, other)

    def __ne__(self, other: Any) -> Node:  # type: ignore[override]
        return _functions["not_equal"](self, other)

    def __lt__(self, other: Any) -> Node:
        return _functions["less"](self, other)

    def __le__(self, other: Any) -> Node:
        return _functions["less_equal"](self, other)

    def __gt__(self, other: Any) -> Node:
        return _functions["greater"](self, other)

    def __ge__(self, other: Any) -> Node:
        return _functions["greater_equal"](self, other)

    __hash__ = object.__hash__

    def __getitem__(self, index: Any) -> Node:
        return _functions["getitem"](self, index)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        self._refuse("setitem")

    def __delitem__(self, index: Any) -> NoReturn:
        self._refuse("delete")

    def _refuse(self, attempt: str) -> NoReturn:
        _functions["refuse"](self, attempt)
        raise AssertionError("refuse always raises")

    def __len__(self) -> int:
        return cast(int, _functions["length"](self))

    def __iter__(self) -> Any:
        return _functions["iterate"](self)

    def __bool__(self) -> bool:
        return cast(bool, _functions["truth"](self))

    def __int__(self) -> int:
        return cast(int, _functions["int"](self))

    __trunc__ = __int__

    def __float__(self) -> float:
        return cast(float, _functions["float"](self))

    def __complex__(self) -> complex:
        return cast(complex, _functions["complex"](self))

    def __index__(self) -> int:
        return cast(int, _functions["index"](self))

    def __round__(self, digits: int | None = None) -> Any:
        return _functions["python_round"](self, digits)

    def __floor__(self) -> int:
        return cast(int, _functions["floor_number"](self))

    def __ceil__(self) -> int:
        return cast(int, _functions["ceil_number"](self))

    def __format__(self, spec: str) -> str:
        return cast(str, _functions["format"](self, spec))

    def __str__(self) -> str:
        return cast(str, _functions["text"](self))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return _functions["array_of_numbers"](self, dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return _functions["array_of_numbers"](self).__dlpack__(**options)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        return _functions["array_ufunc"](ufunc, method, *inputs, **keywords)

    def __array_function__(self, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        return _functions["array_function"](function, types, arguments, keywords)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        # A copy of a node would be another value: of a variable, one that no graph knows.
        return self

    if TYPE_CHECKING:
        # Methods and attributes of an array (``x.sum(axis=0)``, ``x.T``) are properties that the namespace sets: with
        # a ``__getattr__`` Python would look up every other attribute in a slower way as well.
        def __getattr__(self, name: str) -> Any: ...
