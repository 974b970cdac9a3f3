"""Expressions of a loop program: the value at one index, as data.

Equal expressions are one object, so a value that two stores need is computed once and a pass can key its
memory on identity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, TypeVar

import numpy as np

from pullback.interning import Interned
from pullback.loops.index import Affine, Axis

__all__ = [
    "Apply",
    "Buffer",
    "Expression",
    "Index",
    "Literal",
    "Load",
    "Operand",
    "Placeholder",
    "Position",
    "Reduce",
    "as_expression",
    "element",
    "linear",
    "load_at",
    "operands_of",
    "rebuilt",
    "row_major",
    "walk",
]


class Buffer:
    """A contiguous, row-major piece of memory: an argument, a result, a constant or a part of the arena."""

    __slots__ = ("dtype", "name", "shape")

    def __init__(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


_interned: Interned[Any] = Interned()
_E = TypeVar("_E", bound="Expression")


class Expression:
    """A value of ``dtype`` that depends on some axes."""

    __slots__ = ("__weakref__", "_axes", "dtype", "operands")
    dtype: np.dtype
    operands: tuple[Expression, ...]
    """The expressions that this one is made of."""
    _axes: frozenset[Axis]

    def own_axes(self) -> tuple[Axis, ...]:
        """Axes that the expression names itself, beside those of its operands."""
        return ()

    def bound_axes(self) -> tuple[Axis, ...]:
        """Axes that the expression closes over: a reduction's."""
        return ()

    def of(self, operands: Sequence[Expression]) -> Expression:
        """The same of other operands."""
        return self

    def moved(self, axes: Mapping[Axis, Affine]) -> Expression:
        """The same with indices in the place of axes that it names itself."""
        return self

    def remade(self, new: Mapping[Expression, Expression]) -> Expression:
        """The same of what its operands have become; itself where all are what they were."""
        operands = [new[operand] for operand in self.operands]
        return self if all(map(is_, operands, self.operands)) else self.of(operands)

    @property
    def axes(self) -> frozenset[Axis]:
        """Every axis that the value depends on."""
        # Without recursion: an expression is as deep as the chain of operations that was fused into it.
        stack: list[Expression] = [] if hasattr(self, "_axes") else [self]
        while stack:
            missing = [operand for operand in stack[-1].operands if not hasattr(operand, "_axes")]
            if missing:
                stack.extend(missing)
                continue
            part = stack.pop()
            found = frozenset(part.own_axes()).union(*(operand._axes for operand in part.operands))
            part._axes = found.difference(part.bound_axes())
        return self._axes


def _intern(
    cls: type[_E], key: tuple[Any, ...], dtype: np.dtype, operands: tuple[Expression, ...], *own: Any
) -> _E:
    """The expression that ``key`` tells from all others; ``own`` is what the slots of its class hold."""
    expression: _E = _interned.intern(key, _make, cls, dtype, operands, own)
    return expression


def _make(cls: type[_E], dtype: np.dtype, operands: tuple[Expression, ...], own: Iterable[Any]) -> _E:
    self = object.__new__(cls)
    self.dtype, self.operands = dtype, operands
    for name, value in zip(cls.__slots__, own):
        setattr(self, name, value)
    return self


class Literal(Expression):
    """A constant."""

    __slots__ = ("value",)
    value: Any

    def __new__(cls, value: Any, dtype: np.dtype) -> Literal:
        scalar = np.asarray(value, dtype)
        return _intern(cls, (cls, scalar.tobytes(), dtype), dtype, (), scalar[()])

    def __repr__(self) -> str:
        return str(self.value)


class Load(Expression):
    """``buffer[offset + sum(stride * dynamic)]``, in elements.

    ``dynamic`` are ``(integer expression, stride)`` pairs: gathered indices. Where ``guard`` is given and
    false, nothing is read and the value is zero.
    """

    __slots__ = ("buffer", "dynamic", "guard", "offset")
    buffer: Buffer
    offset: Affine
    dynamic: tuple[tuple[Expression, int], ...]
    guard: Expression | None

    def __new__(
        cls,
        buffer: Buffer,
        offset: Affine,
        dynamic: tuple[tuple[Expression, int], ...] = (),
        guard: Expression | None = None,
    ) -> Load:
        parts = tuple([index for index, _ in dynamic])
        operands = parts if guard is None else (*parts, guard)
        key = (cls, id(buffer), offset, tuple([(id(e), s) for e, s in dynamic]), id(guard))
        return _intern(cls, key, buffer.dtype, operands, buffer, dynamic, guard, offset)

    def own_axes(self) -> tuple[Axis, ...]:
        return self.offset.axes

    @property
    def is_plain(self) -> bool:
        """Whether an affine place is read, and always."""
        return not self.dynamic and self.guard is None

    def of(self, operands: Sequence[Expression]) -> Load:
        dynamic = tuple([(index, stride) for index, (_, stride) in zip(operands, self.dynamic)])
        return Load(self.buffer, self.offset, dynamic, None if self.guard is None else operands[-1])

    def moved(self, axes: Mapping[Axis, Affine]) -> Load:
        offset = self.offset.replace(axes)
        return self if offset is self.offset else Load(self.buffer, offset, self.dynamic, self.guard)

    def __repr__(self) -> str:
        parts = [str(self.offset)] + [f"{stride}*({expression!r})" for expression, stride in self.dynamic]
        guard = "" if self.guard is None else f" if {self.guard!r}"
        return f"{self.buffer.name}[{' + '.join(parts)}{guard}]"


class Position(Expression):
    """The value of an affine index itself, as ``int64``."""

    __slots__ = ("index",)
    index: Affine

    def __new__(cls, index: Affine) -> Position:
        return _intern(cls, (cls, index), np.dtype(np.int64), (), index)

    def own_axes(self) -> tuple[Axis, ...]:
        return self.index.axes

    def moved(self, axes: Mapping[Axis, Affine]) -> Position:
        return Position(self.index.replace(axes))

    def __repr__(self) -> str:
        return f"({self.index})"


class Apply(Expression):
    """A scalar function of the vocabulary (``"add"``, ``"tanh"``, ``"where"``, …) on its operands."""

    __slots__ = ("attributes", "function")
    function: str
    attributes: tuple[tuple[str, Any], ...]

    def __new__(
        cls,
        function: str,
        operands: Sequence[Expression],
        dtype: np.dtype,
        attributes: tuple[tuple[str, Any], ...] = (),
    ) -> Apply:
        key = (cls, function, tuple(map(id, operands)), dtype, attributes)
        return _intern(cls, key, dtype, tuple(operands), attributes, function)

    def of(self, operands: Sequence[Expression]) -> Apply:
        return Apply(self.function, operands, self.dtype, self.attributes)

    def __repr__(self) -> str:
        extra = "".join(f", {key}={value}" for key, value in self.attributes)
        return f"{self.function}({', '.join(map(repr, self.operands))}{extra})"


class Reduce(Expression):
    """``kind`` over ``axes`` of ``body``.

    Kinds are ``"add"``, ``"multiply"``, ``"maximum"``, ``"minimum"``, ``"argmax"`` and ``"argmin"``. The last
    two count the turns of ``axes`` in row-major order; the first winner wins.
    """

    __slots__ = ("body", "kind", "over")
    kind: str
    over: tuple[Axis, ...]
    body: Expression

    def __new__(
        cls, kind: str, over: tuple[Axis, ...], body: Expression, dtype: np.dtype | None = None
    ) -> Reduce:
        dtype = dtype or body.dtype
        return _intern(cls, (cls, kind, over, id(body), dtype), dtype, (body,), body, kind, over)

    def bound_axes(self) -> tuple[Axis, ...]:
        return self.over

    @property
    def adds_floats(self) -> bool:
        """Whether it is a sum whose bits depend on its order."""
        return self.kind == "add" and self.dtype.kind == "f"

    def of(self, operands: Sequence[Expression]) -> Reduce:
        return Reduce(self.kind, self.over, operands[0], self.dtype)

    def __repr__(self) -> str:
        return f"{self.kind}[{', '.join(map(repr, self.over))}]({self.body!r})"


class Placeholder(Expression):
    """A value that code around the expression provides, such as a product's accumulator in its epilogue."""

    __slots__ = ("_own", "name")

    def __init__(self, name: str, axes: tuple[Axis, ...], dtype: np.dtype) -> None:
        self.name, self._own, self.dtype, self.operands = name, axes, dtype, ()

    def own_axes(self) -> tuple[Axis, ...]:
        return self._own

    def __repr__(self) -> str:
        return f"<{self.name}>"


Index = Affine | Expression
"""An index along one axis of an operand: affine in the loops' axes, or computed (gathered)."""

Operand = Callable[[Sequence[Index]], Expression]
"""An operand of a lowering: from an index to the value there."""


def as_expression(index: Index) -> Expression:
    """The index as a value of ``int64``."""
    return Position(index) if isinstance(index, Affine) else index


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous row-major array.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def element(index: Iterable[Affine], shape: Sequence[int]) -> Affine:
    """The number, in row-major order, of an element of an array of ``shape``."""
    return Affine.total(i * stride for i, stride in zip(index, row_major(shape)))


def linear(parts: Iterable[tuple[Index, int]]) -> tuple[Affine, tuple[tuple[Expression, int], ...]]:
    """``sum(stride * index)`` as its affine part and its computed terms, each with a stride.

    A quotient and a remainder by the same divisor are put together again where the strides fit, so that a
    reshape of an array in memory reads it with plain strides.
    """
    affine: list[Affine] = []
    terms: dict[Expression, int] = {}
    work = list(parts)
    while work:
        index, stride = work.pop()
        if isinstance(index, Affine):
            affine.append(index * stride)
        elif isinstance(index, Position):
            affine.append(index.index * stride)
        elif isinstance(index, Literal):
            affine.append(Affine((), int(index.value) * stride))
        elif isinstance(index, Apply) and index.function == "add":
            work.extend((operand, stride) for operand in index.operands)
        else:
            factor = _literal_operand(index, "multiply")
            if factor is None:
                terms[index] = terms.get(index, 0) + stride
            else:
                work.append((index.operands[0], stride * factor))
        if not work:
            work = _rejoined(terms)
    return Affine.total(affine), tuple((index, stride) for index, stride in terms.items() if stride)


def _rejoined(terms: dict[Expression, int]) -> list[tuple[Index, int]]:
    """Take pairs ``(i // d) * (d * stride) + (i % d) * stride`` out of ``terms``, as ``i * stride`` each."""
    joined: list[tuple[Index, int]] = []
    for term, stride in list(terms.items()):
        divisor = _literal_operand(term, "remainder")
        if divisor is not None:
            quotient = Apply("floor_divide", term.operands, term.dtype)
            if terms.get(quotient) == stride * divisor:
                del terms[term], terms[quotient]
                joined.append((term.operands[0], stride))
    return joined


def _literal_operand(expression: Expression, function: str) -> int | None:
    """The integer that ``function`` is applied with, where ``expression`` is such an application."""
    if isinstance(expression, Apply) and expression.function == function:
        operand = expression.operands[1]
        return int(operand.value) if isinstance(operand, Literal) else None
    return None


def load_at(buffer: Buffer, index: Sequence[Index]) -> Load:
    """The element of ``buffer`` at a full index."""
    return Load(buffer, *linear(zip(index, row_major(buffer.shape))))


def walk(
    *roots: Expression,
    enter: Callable[[Expression], bool] | None = None,
    known: Container[Expression] = (),
) -> Iterator[Expression]:
    """Every expression under ``roots`` once, operands before users; of those not to ``enter``, no operands.

    What is ``known`` is left out, with what it alone is made of.
    """
    seen: set[Expression] = set()
    stack: list[Expression | None] = [*reversed(roots)]
    while stack:
        expression = stack.pop()
        if expression is None:  # what follows had its operands above it
            expression = stack.pop()
            assert expression is not None
        elif expression in seen or expression in known:
            continue
        elif expression.operands and (enter is None or enter(expression)):
            stack += (expression, None)
            stack += reversed(expression.operands)
            continue
        seen.add(expression)
        yield expression


def operands_of(expression: Expression, function: str) -> tuple[Expression, ...]:
    """The operands of ``function`` where that is what the expression applies, else none."""
    applied = isinstance(expression, Apply) and expression.function == function
    return expression.operands if applied else ()


def rebuilt(
    root: Expression, change: Callable[[Expression], Expression], memo: dict[Expression, Expression]
) -> Expression:
    """``root`` with what ``change`` makes of each part, once that is made of what its operands have become.

    ``memo`` is shared between calls with the same ``change``.
    """
    for part in walk(root, known=memo):
        memo[part] = change(part.remade(memo))
    return memo[root]
