"""Loop programs as text: expressions as Python writes them, what is shared or long under a name of its own.

for i<100, j<64:
    t0 = tanh(sum[r0<64](h[64*i + r0] * w[j + 64*r0]) + b[j])
    out[64*i + j] = t0
    slope[64*i + j] = 1 - t0 * t0

Sums and other reductions that get a name are called ``s0``, ``s1``, … Different axes, or buffers, of one name are told
apart: ``i``, ``i_1``, ``i_2``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TypeVar

from pullback.loops.expression import Apply, Buffer, Expression, Load, Position, Reduce, walk
from pullback.loops.index import Affine, Axis
from pullback.loops.kernel import Kernel, Store

__all__ = ["format_kernel", "format_program"]

_T = TypeVar("_T", Axis, Buffer)
_WIDTH = 100
_INDENT = "    "
_ATOM, _NAME = 10, 11
_INFIX = {
    "logical_or": ("or", 1),
    "logical_and": ("and", 2),
    "equal": ("==", 3),
    "not_equal": ("!=", 3),
    "less": ("<", 3),
    "less_equal": ("<=", 3),
    "greater": (">", 3),
    "greater_equal": (">=", 3),
    "bitwise_or": ("|", 4),
    "bitwise_xor": ("^", 4),
    "bitwise_and": ("&", 4),
    "left_shift": ("<<", 5),
    "right_shift": (">>", 5),
    "add": ("+", 6),
    "subtract": ("-", 6),
    "multiply": ("*", 7),
    "divide": ("/", 7),
    "floor_divide": ("//", 7),
    "remainder": ("%", 7),
}
_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}


def format_kernel(kernel: Kernel, width: int = _WIDTH) -> str:
    """The kernel's loops and stores; parts that several stores have in common are named once."""
    roots = [root for store in kernel.stores for root in store.roots()]
    inner = [axis for store in kernel.stores for axis in store.inner]
    names = _Names((*kernel.axes, *inner), kernel.writes(), roots)
    lines = [f"for {names.turns(kernel.axes)}:" if kernel.axes else "once:"]
    scope = _Scope(width, roots, names)
    for store in kernel.stores:
        body: list[str] = []
        scope.define(store.roots(), body, store.inner)
        if store.inner:
            body.append(f"for {names.turns(store.inner)}:")
            lines_inside, inside = list[str](), scope.inside(store.inner)
            inside.define(store.roots(), lines_inside)
            lines_inside.append(inside.assignment(store))
            body.extend(_INDENT + line for line in lines_inside)
        else:
            body.append(scope.assignment(store))
        lines.extend(_INDENT + line for line in body)
    return "\n".join(lines)


def format_program(kernels: Iterable[Kernel], width: int = _WIDTH) -> str:
    """Kernels one after another, an empty line between them."""
    return "\n\n".join(format_kernel(kernel, width) for kernel in kernels)


class _Names:
    """What axes and buffers are called: each by its own name, with a number where another one has it already."""

    def __init__(self, axes: Iterable[Axis], buffers: Iterable[Buffer], roots: Sequence[Expression]) -> None:
        parts = list(walk(*roots))
        used = [axis for part in parts for axis in (*part.own_axes(), *part.bound_axes())]
        self.axes = _told_apart([*axes, *used])
        self.buffers = _told_apart([*buffers, *(part.buffer for part in parts if isinstance(part, Load))])

    def turns(self, axes: Sequence[Axis]) -> str:
        """The loops over ``axes``."""
        return ", ".join(f"{self.axes[axis]}<{axis.extent}" for axis in axes)

    def affine(self, index: Affine) -> str:
        """An affine index."""
        return index.text(self.axes.__getitem__)

    def element(
        self, buffer: Buffer, offset: Affine, dynamic: Sequence[tuple[tuple[str, int], int]], guard: str = ""
    ) -> str:
        """An element of a buffer: the affine part of its place and the computed terms."""
        parts = []
        for (text, binding), stride in dynamic:
            sign, outer = _INFIX["add" if stride == 1 else "multiply"]
            term = text if binding > outer else f"({text})"
            parts.append(term if stride == 1 else f"{stride}{sign}{term}")
        if offset != Affine() or not parts:
            parts.insert(0, self.affine(offset))
        return f"{self.buffers[buffer]}[{' + '.join(parts)}{guard}]"


def _told_apart(things: Sequence[_T]) -> dict[_T, str]:
    names: dict[_T, str] = {}
    for thing in dict.fromkeys(things):
        rivals = (f"{thing.name}_{k}" if k else thing.name for k in itertools.count())
        names[thing] = next(name for name in rivals if name not in names.values())
    return names


def _sign(store: Store) -> str:
    """``=``, or with the function before it that an accumulating store is made with."""
    if not store.accumulate:
        return "="
    sign = _INFIX.get(store.accumulate)
    return f"{store.accumulate if sign is None else sign[0]}="


class _Scope:
    """The texts of what has been printed so far, by identity, and the names given."""

    def __init__(self, width: int, roots: Sequence[Expression], names: _Names) -> None:
        self.width, self.names = width, names
        self.open: frozenset[Axis] = frozenset()
        self.texts: dict[int, tuple[str, int]] = {}
        self.values, self.reductions = (map(f"{letter}{{}}".format, itertools.count()) for letter in "ts")
        self.users: dict[int, int] = {}
        for used in (*roots, *(operand for expression in walk(*roots) for operand in expression.operands)):
            self.users[id(used)] = self.users.get(id(used), 0) + 1

    def inside(self, axes: Sequence[Axis]) -> _Scope:
        """A scope within this one, in loops over ``axes``: it knows its names and takes new ones from the same row."""
        scope = _Scope(self.width, (), self.names)
        scope.open = self.open.union(axes)
        scope.texts, scope.users = dict(self.texts), self.users
        scope.values, scope.reductions = self.values, self.reductions
        return scope

    def assignment(self, store: Store) -> str:
        """The store itself."""
        dynamic = [(self.texts[id(index)], stride) for index, stride in store.dynamic]
        place = self.names.element(store.buffer, store.offset, dynamic)
        return f"{place} {_sign(store)} {self.text_of(store.value)}"

    def text_of(self, expression: Expression) -> str:
        """The text of an expression that is defined here."""
        return self.texts[id(expression)][0]

    def define(self, roots: Sequence[Expression], lines: list[str], inner: Sequence[Axis] = ()) -> None:
        """Give every expression under ``roots`` a text, and where it needs one a name, defined in ``lines``.

        What depends on the axis of a reduction below, or on ``inner`` loops, belongs to a scope of its own. A reduction
        that is used there and does not depend on it is computed before, and so has a name.
        """
        order = list(walk(*roots))
        below = {*inner, *(axis for expression in order for axis in expression.bound_axes())} - self.open
        used_below = {id(o) for e in order if not below.isdisjoint(e.axes) for o in e.operands}
        for expression in order:
            if id(expression) in self.texts or not below.isdisjoint(expression.axes):
                continue
            self.texts[id(expression)] = self.fitted(expression, lines)
            often = self.users.get(id(expression), 0) > 1 and isinstance(expression, Apply | Reduce)
            if often or (isinstance(expression, Reduce) and id(expression) in used_below):
                self.give_name(expression, lines)

    def give_name(self, expression: Expression, lines: list[str]) -> None:
        """Define a name for ``expression``, which has a text."""
        text = self.text_of(expression)
        if self.texts[id(expression)][1] != _NAME:
            name = next(self.reductions if isinstance(expression, Reduce) else self.values)
            lines.append(f"{name} = {text}")
            self.texts[id(expression)] = name, _NAME

    def fitted(self, expression: Expression, lines: list[str]) -> tuple[str, int]:
        """The text of ``expression``; where it would be too long, its longest operands get names first."""
        if isinstance(expression, Reduce):
            return self.reduction(expression, lines)
        text = self.text(expression)
        operands = [part for part in dict.fromkeys(expression.operands) if isinstance(part, Apply | Reduce)]
        operands.sort(key=lambda operand: len(self.text_of(operand)))
        while operands and len(text[0]) > self.width:
            self.give_name(operands.pop(), lines)
            text = self.text(expression)
        return text

    def reduction(self, expression: Reduce, lines: list[str]) -> tuple[str, int]:
        """A reduction on one line, or a block of its own whose last line is what it reduces."""
        body: list[str] = []
        inside = self.inside(expression.over)
        inside.define((expression.body,), body)
        value = inside.text_of(expression.body)
        if body and body[-1].startswith(f"{value} = "):
            value = body.pop().removeprefix(f"{value} = ")
        head = f"{_REDUCTIONS.get(expression.kind, expression.kind)}[{self.names.turns(expression.over)}]"
        if not body:
            return f"{head}({value})", _ATOM
        name = next(self.reductions)
        lines.append(f"{name} = {head}:")
        lines.extend(_INDENT + line for line in [*body, value])
        return name, _NAME

    def text(self, expression: Expression) -> tuple[str, int]:
        """One expression in terms of the texts of its operands, and how tightly its last sign binds."""
        texts = [self.texts[id(operand)] for operand in expression.operands]
        if isinstance(expression, Position):
            text = self.names.affine(expression.index)
            return text, _ATOM if text.isidentifier() or text.isdigit() else _INFIX["add"][1]
        if isinstance(expression, Load):
            dynamic = list(zip(texts, (stride for _, stride in expression.dynamic)))
            guard = "" if expression.guard is None else f" if {texts[-1][0]}"
            return self.names.element(expression.buffer, expression.offset, dynamic, guard), _ATOM
        if not isinstance(expression, Apply):
            return repr(expression), _ATOM
        if expression.function in _INFIX:
            sign, binding = _INFIX[expression.function]
            (left, left_binding), (right, right_binding) = texts
            left = left if left_binding >= binding else f"({left})"
            right = right if right_binding > binding else f"({right})"
            return f"{left} {sign} {right}", binding
        function = str(expression.dtype) if expression.function == "cast" else expression.function
        shown = [(key, value) for key, value in expression.attributes if key != "source"]
        arguments = [text for text, _ in texts] + [f"{key}={value!r}" for key, value in shown]
        return f"{function}({', '.join(arguments)})", _ATOM
