"""What traced arrays answer to Python's operators, NumPy's functions and the methods of NumPy's arrays.

That is what the nodes answer that they stand for (``graph.protocol``, ``dispatch.py``), made a traced array again: a
view where NumPy gives one, and what is to be written into an array is written.

>>> import numpy as np, pullback as pb
>>> def f(x):
...     y = np.sin(x)
...     np.add(y, x.T, out=y)
...     return (y[0] * 2).sum()
>>> print(pb.grad(f)(np.zeros((2, 2))))
[[4. 2.]
 [2. 0.]]
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from pullback.errors import TracingError
from pullback.graph import Node, Operation
from pullback.graph.named import sizes_under_way
from pullback.graph.protocol import ArrayProtocol, vocabulary
from pullback.numpy.arrays import TracedArray, boxed, named_like, plain, plain_all
from pullback.numpy.elementwise import UFUNCS
from pullback.numpy.promotion import settled, where_written
from pullback.numpy.recipes import followed
from pullback.numpy.sizes import comparison, size_of
from pullback.numpy.views import OWN_ARGUMENTS, SPLITS, VIEWS, gives_itself
from pullback.numpy.writing import IN_PLACE, WITH_OUT, WRITES, masked, names_each_once

__all__ = ["UPDATES", "called", "doored", "of_array"]


_NONE: Mapping[str, Any] = MappingProxyType({})


def doored(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of nodes as one of traced arrays."""

    def called(*arguments: Any, **keywords: Any) -> Any:
        return boxed(function(*plain_all(arguments), **plain_all(keywords)), arguments)

    return called


def _method(x: TracedArray, name: str, *arguments: Any, **keywords: Any) -> Any:
    operands = [] if name == "copy" else [x, *arguments]
    out = keywords.pop("out", None) if name in WITH_OUT else None
    found = followed(name, _called_method, (x, name, *arguments), keywords)
    if out is not None:
        return written(out, found, f"x.{name}")
    if gives_itself(x, name, keywords, found):
        return x
    if name in VIEWS and isinstance(found, Node):
        arguments, keywords = settled(plain_all(arguments)), settled(plain_all(keywords))
        return x.derived(found, lambda y: getattr(y, name)(*arguments, **keywords))
    return boxed(found, operands)


def of_array(name: str, is_method: bool) -> property:
    """The attribute ``name`` that traced arrays share with NumPy's."""

    def attribute(self: TracedArray) -> Any:
        if name in IN_PLACE:
            return partial(IN_PLACE[name], self)
        if is_method:
            return partial(_method, self, name)
        if name in ("T", "mT"):
            found = followed("attribute", _attribute, (self, name))
            return self.derived(found, lambda x: getattr(x, name))
        found = _attribute(self.node, name)
        if callable(found) and not isinstance(found, type):
            return partial(_method, self, name)
        return boxed(found, [self])

    return property(attribute)


def _attribute(x: Node, name: str) -> Any:
    return vocabulary["attribute"](x, name)


def _called_method(x: Node, name: str, *arguments: Any, **keywords: Any) -> Any:
    return _attribute(x, name)(*arguments, **keywords)


def array_function(function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
    """NumPy's ``function`` of traced arrays."""
    name = getattr(function, "__name__", "")
    if name in ("real", "imag") and type(arguments[0]) is TracedArray:
        return getattr(arguments[0], name)
    if name in WRITES and arguments and type(arguments[0]) is TracedArray:
        return WRITES[name](*arguments, **keywords)
    out = keywords.pop("out", None) if "out" in keywords else None
    made = _made_by(function, arguments, keywords)
    if out is not None:
        return written(out, made, f"np.{name}")
    if name in OWN_ARGUMENTS:
        return boxed(OWN_ARGUMENTS[name](arguments, settled(plain_all(keywords)), made), arguments)
    if arguments and type(arguments[0]) is TracedArray and (name in VIEWS or name in SPLITS):
        rest, named = settled(plain_all(arguments[1:])), settled(plain_all(keywords))
        if name in SPLITS:
            picked = [partial(_picked, function, rest, named, k) for k in range(len(made))]
            return type(made)([arguments[0].derived(each, pick) for each, pick in zip(made, picked)])
        if isinstance(made, Node):
            return arguments[0].derived(made, lambda y: function(y, *rest, **named))
    return boxed(made, arguments)


_PROMOTING = frozenset({np.dot, np.inner, np.outer, np.vdot, np.where})


def _made_by(function: Any, arguments: Any, keywords: Any) -> Any:
    def direct(*arguments: Any, **keywords: Any) -> Any:
        return vocabulary["array_function"](function, (), arguments, keywords)

    if function.__module__ == "numpy.linalg":  # some of these look at what made their operands
        return direct(*plain_all(arguments), **plain_all(keywords))
    return followed(function, direct, arguments, keywords, function in _PROMOTING)


def called(function: Any, *arguments: Any, **keywords: Any) -> Any:
    """``function(*arguments, **keywords)`` for a function of NumPy's and traced arrays."""
    return array_function(function, (), arguments, keywords)


def _picked(function: Any, rest: Any, named: Any, number: int, array: Any) -> Any:
    return function(array, *rest, **named)[number]


def written(out: Any, made: Any, what: str) -> Any:
    """What ``out=`` says, written into."""
    if isinstance(out, tuple) and len(out) == 1 and not isinstance(made, tuple):
        out = out[0]
    if isinstance(out, tuple):
        return tuple(
            [each if one is None else written(one, each, what) for one, each in zip(out, boxed(made))]
        )
    if type(out) is not TracedArray:
        raise TracingError(
            f"{what} with out= of a {type(out).__name__}: an array that NumPy itself has made holds no traced values; "
            f"make it with np.zeros_like(x, shape=n) of a traced x, or with pullback.numpy.zeros(n){where_written()}"
        )
    return out.write(plain(made), what)


# -- The doors: Python's operators and NumPy's functions, on traced arrays


def _operator(name: str) -> Callable[..., Any]:
    method = getattr(ArrayProtocol, name)

    def called(self: TracedArray, *others: Any, **named: Any) -> Any:
        return boxed(method(self.node, *[plain(each) for each in others], **named), [self, *others])

    return called


def _reader(name: str) -> Callable[..., Any]:
    method = getattr(ArrayProtocol, name)

    def called(self: TracedArray, *others: Any) -> Any:
        return method(self.as_read(), *others)

    return called


_SEQUENCES = {list, tuple, str, bytes}


def _binary(name: str) -> Callable[[TracedArray, Any], Any]:
    method = getattr(ArrayProtocol, name)
    repeats = name in ("__mul__", "__rmul__")

    def called(self: TracedArray, other: Any) -> Any:
        if repeats and type(other) in _SEQUENCES and not self.ndim and self.dtype.kind in "iu":
            return other * operator.index(self)  # [0] * n is n zeros, as of Python's and NumPy's integers
        made = followed(name, method, (self, other), _NONE, True)
        if type(made) is TracedArray:
            return made
        return named_like(made, (self, other)) if type(made) is Operation else boxed(made, (self, other))

    return called


def _in_place(name: str, sign: str, function: str) -> Callable[[TracedArray, Any], Any]:
    def called(self: TracedArray, other: Any) -> Any:
        made = vocabulary[function](self.node, plain(other))
        return self.write(made, f"x {sign}= y") if self.ndim else TracedArray(made)

    return called


def _getitem(self: TracedArray, index: Any) -> Any:
    found = followed("getitem", vocabulary["getitem"], (self, index))
    parts = index if isinstance(index, tuple) else (index,)
    if not found.ndim or not all(map(_is_basic, parts)):
        return found if type(found) is TracedArray else TracedArray(found)
    parts = plain_all(parts)
    if any(isinstance(each, slice) for each in parts):
        parts = settled(parts)
    return self.derived(found, lambda x: x[parts], parts)


def _is_basic(part: Any) -> bool:
    """Whether NumPy gives a view for this part of an index."""
    if isinstance(part, Node):
        return not part.ndim and part.dtype.kind in "iu"
    return part is None or part is ... or isinstance(part, (slice, int, np.integer))


def _iterate(self: TracedArray) -> Any:
    vocabulary["iterate"](self.as_read())
    return iter([self[k] for k in range(self.shape[0])])


def _ufunc(self: TracedArray, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
    if method == "at" and type(inputs[0]) is TracedArray and ufunc in UPDATES:
        target, index, value = inputs[0], plain_all(inputs[1]), plain_all(inputs[2])
        target.assign(plain(getattr(vocabulary["at"](target.node)[index], UPDATES[ufunc])(value)))
        return None
    if method == "at" and type(inputs[0]) is TracedArray and names_each_once(inputs[0], inputs[1]):
        target, index, *values = inputs
        target[index] = ufunc(target[index], *values)
        return None
    function = None if keywords or method != "__call__" else UFUNCS.get(ufunc)
    if function is not None:
        made = followed(ufunc, function, inputs, _NONE, True)
        if type(made) is TracedArray:
            return made
        return named_like(made, inputs) if type(made) is Operation else boxed(made, inputs)
    out = keywords.pop("out", None)
    where = plain_all(keywords.pop("where", True)) if method == "__call__" else True
    made = vocabulary["array_ufunc"](ufunc, method, *plain_all(inputs), **plain_all(keywords))
    made = masked(made, where, out, f"np.{ufunc.__name__}")
    return boxed(made, inputs) if out is None else written(out, made, f"np.{ufunc.__name__}")


UPDATES: dict[np.ufunc, str] = {
    np.add: "add",
    np.subtract: "subtract",
    np.multiply: "multiply",
    np.divide: "divide",
    np.power: "power",
    np.maximum: "max",
    np.minimum: "min",
}
"""The method of ``at(x)[index]`` that is each ufunc's ``at``."""

_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
_FUNCTIONS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip

for _name, _sign in _SIGNS.items():
    for _method_name in (f"__{_name}__", f"__r{_name}__"):
        setattr(TracedArray, _method_name, _binary(_method_name))
    setattr(TracedArray, f"__i{_name}__", _in_place(f"__i{_name}__", _sign, _FUNCTIONS[_name]))
_UNARY = ("neg", "pos", "abs", "invert")
_REST = ("divmod", "rdivmod", "float", "complex", "round", "array", "dlpack")
_READERS = ("len", "int", "trunc", "index", "floor", "ceil", "format", "str")
"""Methods of Python's with double underscores that ask for no more than type and value."""


def _compared(name: str) -> Callable[[TracedArray, Any], Any]:
    """A comparison, which Python may ask of extents: it is known where it is the same for all sizes."""
    compare = _binary(f"__{name}__")

    def called(self: TracedArray, other: Any) -> Any:
        known = comparison(name, self.node, other) if sizes_under_way() else None
        return compare(self, other) if known is None else known

    return called


def _hash(self: TracedArray) -> int:
    """By identity; a size is equal to other numbers, among which a dict or a set would not find it."""
    if sizes_under_way() and not self.ndim and size_of(self.node) is not None:
        vocabulary["refuse"](self.node, "index")
    return object.__hash__(self)


def _truth(self: TracedArray) -> bool:
    known = comparison("ne", self.node, 0) if sizes_under_way() else None
    return bool(ArrayProtocol.__bool__(self.as_read())) if known is None else known


def _unary(name: str) -> Callable[[TracedArray], Any]:
    method = getattr(ArrayProtocol, name)

    def called(self: TracedArray) -> Any:
        made = followed(name, method, (self,))
        return made if type(made) is TracedArray else boxed(made, (self,))

    return called


for _method_name in _UNARY:
    setattr(TracedArray, f"__{_method_name}__", _unary(f"__{_method_name}__"))
for _method_name in _READERS:
    setattr(TracedArray, f"__{_method_name}__", _reader(f"__{_method_name}__"))
for _method_name in _REST:
    setattr(TracedArray, f"__{_method_name}__", _operator(f"__{_method_name}__"))
_doors: dict[str, Any] = {
    **{name: _compared(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "bool": _truth,
    "hash": _hash,
    "getitem": _getitem,
    "iter": _iterate,
    "array_ufunc": _ufunc,
    "array_function": lambda self, *given: array_function(*given),
}
for _method_name, _door in _doors.items():
    setattr(TracedArray, f"__{_method_name}__", _door)
