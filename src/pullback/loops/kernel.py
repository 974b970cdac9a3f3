"""Kernels: loops over axes that store expressions into buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar

from pullback.loops.expression import (
    Apply,
    Buffer,
    Expression,
    Literal,
    Load,
    Position,
    Reduce,
    element,
    rebuilt,
    walk,
)
from pullback.loops.index import Affine, Axis
from pullback.loops.rare import rare_case, usual_parts

__all__ = [
    "ACCUMULATIONS",
    "Kernel",
    "Store",
    "UpdatesCase",
    "itself",
    "once",
    "rewrite",
    "staged",
    "updates_case",
    "with_buffer",
]

ACCUMULATIONS = frozenset({"add", "divide", "maximum", "minimum", "multiply", "power", "set"})
"""What a store may do with the element that is there: a function of it and the value, or ``"set"``."""

_T = TypeVar("_T")


def once(compute: Callable[[Kernel], _T]) -> Callable[[Kernel], _T]:
    """A function of a kernel that is computed when first asked for, wherever it is defined; a method may be a property.

    ``functools.cached_property`` has a lock up to Python 3.11, which a fork may find taken by another thread.

    >>> count = once(lambda kernel: print("counted") or len(kernel.stores))
    >>> kernel = Kernel((), ())
    >>> count(kernel), count(kernel)
    counted
    (0, 0)
    """
    name = f"{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def known(kernel: Kernel) -> _T:
        facts = kernel.__dict__
        if name not in facts:
            facts[name] = compute(kernel)
        found: _T = facts[name]
        return found

    return known


@dataclass(frozen=True, eq=False)
class Store:
    """``buffer[offset + sum(stride * dynamic)] = value`` for every turn of the kernel's axes and ``inner``.

    With ``accumulate``, one of ``ACCUMULATIONS``, the element becomes that function of itself and the value, turn by
    turn in row-major order of the axes: what meets in one element is taken in one order. ``"set"`` takes the value
    alone, so that the last one stays.
    """

    buffer: Buffer
    offset: Affine
    value: Expression
    inner: tuple[Axis, ...] = ()
    dynamic: tuple[tuple[Expression, int], ...] = ()
    accumulate: str = ""

    def roots(self) -> tuple[Expression, ...]:
        """The expressions that the store evaluates."""
        return (self.value, *(expression for expression, _ in self.dynamic))

    @property
    def is_plain(self) -> bool:
        """Whether an affine place becomes the value, whatever was there."""
        return not self.dynamic and not self.accumulate

    def with_roots(self, change: Callable[[Expression], Expression]) -> Store:
        """The store of what ``change`` makes of each expression that it evaluates."""
        dynamic = tuple((change(e), stride) for e, stride in self.dynamic)
        return replace(self, value=change(self.value), dynamic=dynamic)

    def rewritten(
        self, axes: Mapping[Axis, Affine], memo: dict[Expression, Expression] | None = None
    ) -> Store:
        """The store with indices in the place of axes, but for its ``inner`` ones; see ``rewrite``."""
        memo = {} if memo is None else memo
        moved = self.with_roots(lambda root: rewrite(root, axes, memo))
        return replace(moved, offset=self.offset.replace(axes))


@dataclass(frozen=True, eq=False)
class Kernel:
    """A loop nest over ``axes``; the first axis is the one that threads share out."""

    axes: tuple[Axis, ...]
    stores: tuple[Store, ...]

    @once
    def expressions(self) -> tuple[Expression, ...]:
        """Every expression of every store, each once, operands before users."""
        return tuple(walk(*(root for store in self.stores for root in store.roots())))

    @once
    def loads(self) -> tuple[Load, ...]:
        """Every read of memory."""
        return tuple(expression for expression in self.expressions() if isinstance(expression, Load))

    @once
    def reads(self) -> tuple[Buffer, ...]:
        """Buffers read, in the order of first use; an accumulating store reads its target too."""
        found = {load.buffer: None for load in self.loads()}
        found.update({store.buffer: None for store in self.stores if store.accumulate})
        return tuple(found)

    @once
    def writes(self) -> tuple[Buffer, ...]:
        """Buffers written."""
        return tuple({store.buffer: None for store in self.stores})

    @property
    @once
    def by_inner(self) -> tuple[tuple[tuple[Axis, ...], list[Store]], ...]:
        """The stores as each turn takes them: those in the same loops inside together, in fewer loops first.

        What is stored for a whole row may need what the others leave.
        """
        found: dict[tuple[Axis, ...], list[Store]] = {}
        for store in self.stores:
            found.setdefault(store.inner, []).append(store)
        return tuple(sorted(found.items(), key=lambda item: len(item[0])))

    @property
    @once
    def functions(self) -> int:
        """How many different functions one turn evaluates."""
        return sum(1 for expression in self.expressions() if isinstance(expression, Apply))

    @property
    @once
    def reductions(self) -> tuple[Reduce, ...]:
        """Every reduction, those inside others first."""
        return tuple(e for e in self.expressions() if isinstance(e, Reduce))

    @property
    def only_reduction(self) -> Reduce | None:
        """The reduction of a plain kernel that has no other, but for what rare cases alone need."""
        if not self.is_plain or not self.reductions:
            return None
        usual = usual_parts(*(store.value for store in self.stores))
        found = [e for e in usual if isinstance(e, Reduce)]
        return found[0] if len(found) == 1 else None

    @property
    @once
    def has_checks(self) -> bool:
        """Whether the kernel may report an error."""
        return any(isinstance(e, Apply) and e.function == "check_index" for e in self.expressions())

    @property
    @once
    def likeness(self) -> tuple[Any, ...]:
        """Equal for kernels that differ in nothing but which axes and which buffers they are made of.

        >>> from pullback.loops import Affine, Axis, Buffer, Kernel, Load, Store
        >>> import numpy as np
        >>> def copy(extent):
        ...     i, x, y = Axis("i", extent), *(Buffer(name, np.dtype(np.float32), (9,)) for name in "xy")
        ...     return Kernel((i,), (Store(y, Affine.of(i), Load(x, Affine.of(i))),))
        >>> copy(5).likeness == copy(5).likeness, copy(5).likeness == copy(6).likeness
        (True, False)
        """
        numbers: dict[object, int] = {}

        def number(thing: Axis | Buffer | Expression) -> int:
            return numbers.setdefault(thing, len(numbers))

        def axis(each: Axis) -> tuple[int, int]:
            return number(each), each.extent

        def index(affine: Affine) -> tuple[Any, ...]:
            return affine.constant, *((axis(each), factor) for each, factor in affine.terms)

        def array(buffer: Buffer) -> tuple[Any, ...]:
            return number(buffer), buffer.dtype.str, buffer.shape

        found: list[Any] = [tuple(map(axis, self.axes))]
        for e in self.expressions():
            own = itself(e, axis, array, index)
            found.append((number(e), type(e), e.dtype.str, tuple(map(number, e.operands)), own))
        for store in self.stores:
            place = array(store.buffer), index(store.offset), tuple(stride for _, stride in store.dynamic)
            inner = tuple(map(axis, store.inner))
            found.append((*place, *map(number, store.roots()), inner, store.accumulate))
        return tuple(found)

    @property
    def is_plain(self) -> bool:
        """Whether each store is of one element a turn, at a place that is affine, of nothing but its value."""
        return all(store.is_plain and not store.inner for store in self.stores)

    def with_values(self, change: Callable[[Expression], Expression]) -> Kernel:
        """The kernel with other values in the same stores; itself where all are what they were."""
        values = [change(s.value) for s in self.stores]
        if all(new is s.value for new, s in zip(values, self.stores)):
            return self
        return self.with_stores(replace(s, value=new) for new, s in zip(values, self.stores))

    def with_replaced(self, new: Mapping[Any, Expression]) -> Kernel:
        """The kernel with other expressions in the place of these parts of its values."""
        memo: dict[Expression, Expression] = {**new}
        return self.with_values(lambda value: rebuilt(value, lambda part: part, memo))

    def with_reductions(self, change: Callable[[Reduce], Expression]) -> Kernel:
        """The kernel with what ``change`` makes of each reduction of its values, those inside others first."""
        return self.with_parts(lambda part: change(part) if isinstance(part, Reduce) else part)

    def with_parts(self, change: Callable[[Expression], Expression]) -> Kernel:
        """The kernel with values ``rebuilt`` by ``change``."""
        memo: dict[Expression, Expression] = {}
        return self.with_values(lambda value: rebuilt(value, change, memo))

    def over(self, axes: tuple[Axis, ...], new: Mapping[Axis, Affine]) -> Kernel:
        """The kernel over other ``axes``, with ``new`` indices in the place of its own."""
        memo: dict[Expression, Expression] = {}
        return Kernel(axes, tuple(store.rewritten(new, memo) for store in self.stores))

    def with_stores(self, stores: Iterable[Store]) -> Kernel:
        """The same axes around other stores."""
        return replace(self, stores=tuple(stores))


def staged(name: str, value: Expression, axes: Sequence[Axis], pitch: int = 0) -> tuple[Kernel, Load]:
    """A kernel that stores ``value`` for all turns of ``axes`` in a buffer of its own, and the read of it there.

    Rows may lie ``pitch`` elements apart.

    >>> import numpy as np
    >>> from pullback.loops import Affine, Axis, Buffer, Load
    >>> i, j = Axis("i", 2), Axis("j", 3)
    >>> x = Buffer("x", np.dtype(np.float32), (3, 2))
    >>> kernel, read = staged("packed", Load(x, Affine.of(j) * 2 + Affine.of(i)), (i, j))
    >>> kernel.stores[0].value, read
    (x[i + 2*j], packed[3*i + j])
    """
    shape = [axis.extent for axis in axes]
    shape[-1:] = [pitch or extent for extent in shape[-1:]]
    buffer = Buffer(name, value.dtype, tuple(shape))
    place = element(map(Affine.of, axes), shape)
    return Kernel(tuple(axes), (Store(buffer, place, value),)), Load(buffer, place)


def itself(
    expression: Expression,
    axis: Callable[[Axis], object],
    array: Callable[[Buffer], object],
    index: Callable[[Affine], object],
) -> object:
    """What an expression is beside its dtype and its operands, with the names that these functions give."""
    if isinstance(expression, Literal):
        return expression.value.tobytes()
    if isinstance(expression, Load):
        strides = tuple(stride for _, stride in expression.dynamic)
        return array(expression.buffer), index(expression.offset), strides, expression.guard is None
    if isinstance(expression, Position):
        return index(expression.index)
    if isinstance(expression, Apply):
        return expression.function, expression.attributes
    return (
        (expression.kind, tuple(map(axis, expression.over))) if isinstance(expression, Reduce) else expression
    )


def rewrite(
    root: Expression, axes: Mapping[Axis, Affine], memo: dict[Expression, Expression] | None = None
) -> Expression:
    """``root`` with its free axes replaced by indices.

    A reduction closes over its axes: inside it they keep their meaning, whatever ``axes`` says of them, and one that
    a new index mentions gets another axis, so that the index is not captured.

    >>> from pullback.loops import Affine, Axis, Buffer, Load, Reduce
    >>> import numpy as np
    >>> i, j, k = Axis("i", 3), Axis("j", 3), Axis("k", 3)
    >>> x = Buffer("x", np.dtype(np.float32), (3, 3))
    >>> row = Reduce("add", (k,), Load(x, Affine.of(i) * 3 + Affine.of(k)))
    >>> rewrite(row, {i: Affine.of(j), k: Affine.of(i)})
    add[k<3](x[3*j + k])

    ``memo`` is shared between calls with equal ``axes``.
    """
    memo = {} if memo is None else memo
    named = axes.keys() | {axis for index in axes.values() for axis in index.axes}

    def is_closed(part: Expression) -> bool:
        """Whether it is a reduction over an axis that is to be replaced, or that a new index names."""
        return isinstance(part, Reduce) and not named.isdisjoint(part.over)

    for expression in walk(root, enter=lambda part: not is_closed(part), known=memo):
        if isinstance(expression, Reduce) and is_closed(expression):
            memo[expression] = _rewritten_inside(expression, axes)
        else:
            memo[expression] = expression.remade(memo).moved(axes)
    return memo[root]


@dataclass(frozen=True, eq=False)
class UpdatesCase:
    """A kernel whose updates are made only where ``condition`` holds, or does not; else each of them adds zero."""

    condition: Expression
    holds: bool
    kernel: Kernel


@once
def updates_case(kernel: Kernel) -> UpdatesCase | None:
    """What ``kernel`` adds in rare cases alone, or in all but these, if the case is the same for all its turns.

    >>> import numpy as np
    >>> from pullback.loops import Affine, Apply, Axis, Buffer, Load, Literal, unlikely
    >>> i, float32 = Axis("i", 2), np.dtype(np.float32)
    >>> x, y = (Buffer(name, float32, (2,)) for name in "xy")
    >>> flag = unlikely(Load(Buffer("flag", np.dtype(np.bool_), ()), Affine()))
    >>> value = Apply("where", (flag, Load(x, Affine.of(i)), Literal(0, float32)), float32)
    >>> case = updates_case(Kernel((i,), (Store(y, Affine.of(i), value, accumulate="add"),)))
    >>> case.holds, case.kernel.stores[0].value
    (True, x[i])
    """
    if len(kernel.stores) != 1 or kernel.stores[0].accumulate != "add":
        return None
    (store,) = kernel.stores
    case = rare_case(store.value)
    if case is None or case.condition.axes or store.value.dtype.kind != "f":
        return None
    for value, other, holds in ((case.rare, case.usual, True), (case.usual, case.rare, False)):
        if isinstance(other, Literal) and other.value == 0:
            return UpdatesCase(case.condition, holds, kernel.with_stores([replace(store, value=value)]))
    return None


def with_buffer(kernel: Kernel, old: Buffer, new: Buffer) -> Kernel:
    """The kernel with another buffer in the place of one, wherever it reads or writes."""
    memo: dict[Expression, Expression] = {}

    def moved(part: Expression) -> Expression:
        if not isinstance(part, Load) or part.buffer is not old:
            return part
        return Load(new, part.offset, part.dynamic, part.guard)

    made = (store.with_roots(lambda root: rebuilt(root, moved, memo)) for store in kernel.stores)
    return kernel.with_stores(replace(s, buffer=new) if s.buffer is old else s for s in made)


def _rewritten_inside(reduce: Reduce, axes: Mapping[Axis, Affine]) -> Expression:
    """A reduction that closes over some of these axes, with the others replaced."""
    inside = {axis: index for axis, index in axes.items() if axis in reduce.axes}
    if not inside:
        return reduce
    named = {axis for index in inside.values() for axis in index.axes}
    own = {axis: Axis(axis.name, axis.extent) for axis in reduce.over if axis in named}
    body = rewrite(reduce.body, inside | {old: Affine.of(new) for old, new in own.items()})
    return Reduce(reduce.kind, tuple(own.get(axis, axis) for axis in reduce.over), body, reduce.dtype)
