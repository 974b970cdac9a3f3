"""Loop programs as text: expressions as Python writes them, what is shared or long under a name of its own.

for i<100, j<64:
    t0 = tanh(sum[r0<64](h[64*i + r0] * w[j + 64*r0]) + b[j])
    out[64*i + j] = t0
    slope[64*i + j] = 1 - t0 * t0
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from pullback.loops.expression import Apply, Expression, Load, Position, Reduce, walk
from pullback.loops.index import Affine, Axis
from pullback.loops.kernel import Kernel, Store

__all__ = ["format_expression", "format_kernel", "format_program"]

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


def format_expression(expression: Expression, width: int = _WIDTH) -> str:
    """The expression on one line, or on several that name its parts and end with its value.

    >>> import numpy as np
    >>> from pullback.loops import Affine, Axis, Buffer, Literal, load_at
    >>> i, float64 = Affine.of(Axis("i", 3)), np.dtype("float64")
    >>> x = load_at(Buffer("x", float64, (3,)), [i])
    >>> square = Apply("multiply", (x, x), float64)
    >>> print(format_expression(Apply("add", (square, Literal(1.0, float64)), float64)))
    x[i] * x[i] + 1.0
    """
    scope = _Scope(width, (expression,))
    lines: list[str] = []
    scope.define((expression,), lines)
    return "\n".join([*lines, scope.text_of(expression)])


def format_kernel(kernel: Kernel, width: int = _WIDTH) -> str:
    """The kernel's loops and stores; parts that several stores have in common are named once."""
    lines = [f"for {_turns(kernel.axes)}:" if kernel.axes else "once:"]
    scope = _Scope(width, [root for store in kernel.stores for root in store.roots()])
    for store in kernel.stores:
        body: list[str] = []
        scope.define(store.roots(), body, store.inner)
        if store.inner:
            body.append(f"for {_turns(store.inner)}:")
            inner, inner_scope = list[str](), scope.inside(store.inner)
            inner_scope.define(store.roots(), inner)
            inner.append(_assignment(inner_scope, store))
            body.extend(_INDENT + line for line in inner)
        else:
            body.append(_assignment(scope, store))
        lines.extend(_INDENT + line for line in body)
    return "\n".join(lines)


def format_program(kernels: Iterable[Kernel], width: int = _WIDTH) -> str:
    """Kernels one after another, an empty line between them."""
    return "\n\n".join(format_kernel(kernel, width) for kernel in kernels)


def _turns(axes: Sequence[Axis]) -> str:
    return ", ".join(map(repr, axes))


def _assignment(scope: _Scope, store: Store) -> str:
    place = _place(store.offset, [(scope.texts[id(index)], stride) for index, stride in store.dynamic])
    return f"{store.buffer.name}[{place}] {'+=' if store.accumulate else '='} {scope.text_of(store.value)}"


def _place(offset: Affine, dynamic: Sequence[tuple[tuple[str, int], int]]) -> str:
    """An element's place in a buffer: its affine part and its computed terms."""
    parts = []
    for (text, binding), stride in dynamic:
        sign, outer = _INFIX["add" if stride == 1 else "multiply"]
        term = text if binding > outer else f"({text})"
        parts.append(term if stride == 1 else f"{stride}{sign}{term}")
    if offset != Affine() or not parts:
        parts.insert(0, str(offset))
    return " + ".join(parts)


class _Scope:
    """The texts of what has been printed so far, by identity, and the names given."""

    def __init__(self, width: int, roots: Sequence[Expression]) -> None:
        self.width = width
        self.open: frozenset[Axis] = frozenset()
        self.texts: dict[int, tuple[str, int]] = {}
        self.names = map("t{}".format, itertools.count())
        self.users: dict[int, int] = {}
        for expression in walk(*roots):
            for operand in expression.operands:
                self.users[id(operand)] = self.users.get(id(operand), 0) + 1

    def inside(self, axes: Sequence[Axis]) -> _Scope:
        """A scope within this one, in loops over ``axes``: it knows its names and takes new ones from the same row."""
        scope = _Scope(self.width, ())
        scope.open = self.open.union(axes)
        scope.texts, scope.names, scope.users = dict(self.texts), self.names, self.users
        return scope

    def text_of(self, expression: Expression) -> str:
        """The text of an expression that is defined here."""
        return self.texts[id(expression)][0]

    def define(self, roots: Sequence[Expression], lines: list[str], inner: Sequence[Axis] = ()) -> None:
        """Give every expression under ``roots`` a text, and where it needs one a name, defined in ``lines``.

        What depends on the axis of a reduction below, or on ``inner`` loops, belongs to a scope of its own.
        """
        order = list(walk(*roots))
        below = {*inner, *(axis for expression in order for axis in expression.bound_axes())} - self.open
        for expression in order:
            if id(expression) in self.texts or not below.isdisjoint(expression.axes):
                continue
            self.texts[id(expression)] = self.fitted(expression, lines)
            if self.users.get(id(expression), 0) > 1 and isinstance(expression, Apply | Reduce):
                self.give_name(expression, lines)

    def give_name(self, expression: Expression, lines: list[str]) -> None:
        """Define a name for ``expression``, which has a text."""
        text = self.text_of(expression)
        if self.texts[id(expression)][1] != _NAME:
            name = next(self.names)
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
        head = f"{_REDUCTIONS.get(expression.kind, expression.kind)}[{_turns(expression.over)}]"
        if not body:
            return f"{head}({value})", _ATOM
        name = next(self.names)
        lines.append(f"{name} = {head}:")
        lines.extend(_INDENT + line for line in [*body, value])
        return name, _NAME

    def text(self, expression: Expression) -> tuple[str, int]:
        """One expression in terms of the texts of its operands, and how tightly its last sign binds."""
        texts = [self.texts[id(operand)] for operand in expression.operands]
        if isinstance(expression, Position):
            text = str(expression.index)
            return text, _ATOM if text.isalnum() else _INFIX["add"][1]
        if isinstance(expression, Load):
            dynamic = list(zip(texts, (stride for _, stride in expression.dynamic)))
            guard = "" if expression.guard is None else f" if {texts[-1][0]}"
            return f"{expression.buffer.name}[{_place(expression.offset, dynamic)}{guard}]", _ATOM
        if not isinstance(expression, Apply):
            return repr(expression), _ATOM
        if expression.function in _INFIX:
            sign, binding = _INFIX[expression.function]
            (left, left_binding), (right, right_binding) = texts
            left = left if left_binding >= binding else f"({left})"
            right = right if right_binding > binding else f"({right})"
            return f"{left} {sign} {right}", binding
        function = str(expression.dtype) if expression.function == "cast" else expression.function
        arguments = [text for text, _ in texts] + [f"{key}={value!r}" for key, value in expression.attributes]
        return f"{function}({', '.join(arguments)})", _ATOM
