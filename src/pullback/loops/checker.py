"""The grammar of loop programs, as a check that can run after every pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from pullback.errors import LoopError
from pullback.loops.dependences import dependences
from pullback.loops.expression import Apply, Buffer, Expression, Load, Reduce, operands_of, walk
from pullback.loops.functions import COMPARISONS
from pullback.loops.index import Axis
from pullback.loops.kernel import ACCUMULATIONS, Kernel, Store
from pullback.loops.multiply_add import fused_product

__all__ = ["check_expression", "check_kernel", "check_order"]

_BOOL, _INT = np.dtype(np.bool_), np.dtype(np.int64)
_QUESTIONS = COMPARISONS | {"isnan", "isinf", "isfinite"}
_KINDS = frozenset(["add", "multiply", "maximum", "minimum", "argmax", "argmin"])


def check_order(kernels: Iterable[Kernel], given: Collection[Buffer]) -> None:
    """Raise ``LoopError`` where a kernel reads what is not ``given`` and none before it, nor itself, has written.

    ``given`` are the arguments and the constants.
    """
    known = set(given)
    for kernel in kernels:
        known.update(kernel.writes())
        for buffer in kernel.reads():
            if buffer not in known:
                raise LoopError(f"{buffer!r} is read before any kernel has written it")


def check_kernel(kernel: Kernel, shared_axes: bool = False) -> None:
    """Raise ``LoopError`` unless the kernel's axes, dtypes and places in memory are right.

    Turns must not need each other, unless a store accumulates. With ``shared_axes`` an inner loop and the reductions
    inside it may have an axis in common, each closing over it by itself.
    """
    for store in kernel.stores:
        axes = (*kernel.axes, *store.inner)
        if len(set(axes)) != len(axes):
            raise LoopError(f"{store.buffer.name}: an axis of {axes} is a loop twice")
        if store.value.dtype != store.buffer.dtype:
            raise LoopError(f"{store.buffer!r} is given a {store.value.dtype}")
        if store.accumulate and store.accumulate not in ACCUMULATIONS:
            raise LoopError(
                f"{store.buffer.name}: no store is made with {store.accumulate!r}; there are "
                f"{', '.join(sorted(ACCUMULATIONS))}"
            )
        for root in store.roots():
            check_expression(root, axes, kernel.axes if shared_axes else None)
        _check_store(store, axes)
    if not any(store.accumulate for store in kernel.stores):
        for dependence in dependences(kernel):
            raise LoopError(f"a kernel that does not accumulate: {dependence}")


def check_expression(
    expression: Expression, axes: Sequence[Axis], closed: Sequence[Axis] | None = None
) -> None:
    """Raise ``LoopError`` unless ``expression`` is sound inside loops over ``axes``.

    No reduction inside it may be over an axis of ``closed``; without ``closed``, over none of ``axes``, nor over
    one that a reduction around it is over.
    """
    bound: dict[int, frozenset[Axis]] = {}
    for part in walk(expression):
        inner = frozenset[Axis]().union(*(bound[id(operand)] for operand in part.operands))
        own = frozenset(part.bound_axes())
        nested = own & inner if closed is None else frozenset[Axis]()
        if nested or (own | inner).intersection(axes if closed is None else closed):
            raise LoopError(
                f"a reduction over {sorted(map(repr, own | inner))} is inside loops over the same axes"
            )
        bound[id(part)] = own | inner
        if isinstance(part, Load):
            _check_load(part)
        elif isinstance(part, Apply):
            _check_apply(part)
        elif isinstance(part, Reduce):
            _check_reduce(part)
    free = expression.axes.difference(axes)
    if free:
        raise LoopError(f"{sorted(map(repr, free))} are used outside their loops")


def _check_store(store: Store, axes: Sequence[Axis]) -> None:
    free = set(store.offset.axes).difference(axes)
    if free:
        raise LoopError(f"{store.buffer.name}: {sorted(map(repr, free))} are used outside their loops")
    _check_place(store, axes)


def _check_load(load: Load) -> None:
    if load.guard is not None and load.guard.dtype != _BOOL:
        raise LoopError(f"{load.buffer.name}: the guard is a {load.guard.dtype}; it must be a bool")
    _check_place(load, load.offset.axes)


def _check_place(place: Load | Store, axes: Sequence[Axis]) -> None:
    """Affine places lie inside the buffer for every turn; computed ones are not known here, nor when they are read."""
    buffer = place.buffer
    for index, _ in place.dynamic:
        if index.dtype != _INT:
            raise LoopError(f"{buffer.name}: an index is a {index.dtype}; it must be an int64")
    guarded = isinstance(place, Load) and place.guard is not None
    if guarded or place.dynamic or any(axis.extent == 0 for axis in axes):
        return
    low, high = place.offset.bounds()
    if low < 0 or high >= buffer.size:
        raise LoopError(f"{buffer!r} is used from {low} to {high}, outside its {buffer.size} elements")


def _check_apply(part: Apply) -> None:
    dtypes = [operand.dtype for operand in part.operands]
    if part.function in ("cast", "bitcast", "half_bits", "half_value"):
        expected, result = [dtypes[0]], part.dtype
    elif part.function == "check_index":
        expected, result = [_INT], _INT
        missing = {"extent", "what", "wrap"} - dict(part.attributes).keys()
        if missing:
            raise LoopError(f"check_index lacks {sorted(missing)}")
    elif part.function == "where":
        expected, result = [_BOOL, part.dtype, part.dtype], part.dtype
    elif part.function in _QUESTIONS:
        expected, result = [dtypes[0]] * len(dtypes), _BOOL
    else:
        expected, result = [part.dtype] * len(dtypes), part.dtype
        place = fused_product(part)
        if place is not None and not operands_of(part.operands[place], "multiply"):
            raise LoopError(f"{part!r}: operand {place} is no product to be added unrounded")
    if dtypes != expected or part.dtype != result:
        given = ", ".join(map(str, dtypes))
        raise LoopError(f"{part.function} of {given} gives {part.dtype}; cast its operands")


def _check_reduce(part: Reduce) -> None:
    if part.kind not in _KINDS:
        raise LoopError(f"{part.kind} is no kind of reduction; there are {', '.join(sorted(_KINDS))}")
    expected = _INT if part.kind in ("argmax", "argmin") else part.body.dtype
    if part.dtype != expected:
        raise LoopError(f"{part.kind} of {part.body.dtype} gives {expected}, not {part.dtype}")
    if not part.over or len(set(part.over)) != len(part.over):
        raise LoopError(f"{part.kind} over {list(part.over)}; it needs axes, each once")
