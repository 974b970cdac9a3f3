"""Loop programs as text: expressions as Python writes them, what is shared or long under a name of its own.

for i<100, j<64:
    t0 = tanh(sum[r0<64](h[64*i + r0] * w[j + 64*r0]) + b[j])
    out[64*i + j] = t0
    slope[64*i + j] = 1 - t0 * t0
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pullback.loops.expression import Apply, Expression, Load, Position, Reduce
from pullback.loops.index import Affine, Axis
from pullback.loops.kernel import Kernel, Store

__all__ = ["format_expression", "format_kernel", "format_program"]

_WIDTH = 100
_INDENT = "    "
_ATOM = 10
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
    scope = _Scope(width)
    lines: list[str] = []
    (value,) = scope.block((expression,), lines)
    return "\n".join([*lines, value])


def format_kernel(kernel: Kernel, width: int = _WIDTH) -> str:
    """The kernel's loops and stores; parts that several stores have in common are named once."""
    lines = [f"for {_turns(kernel.axes)}:" if kernel.axes else "once:"]
    scope = _Scope(width)
    for store in kernel.stores:
        body: list[str] = []
        if store.inner:
            body.append(f"for {_turns(store.inner)}:")
            inner: list[str] = []
            _format_store(scope.inside(), store, inner)
            body.extend(_INDENT + line for line in inner)
        else:
            _format_store(scope, store, body)
        lines.extend(_INDENT + line for line in body)
    return "\n".join(lines)


def format_program(kernels: Iterable[Kernel], width: int = _WIDTH) -> str:
    """Kernels one after another, an empty line between them."""
    return "\n\n".join(format_kernel(kernel, width) for kernel in kernels)


def _turns(axes: Sequence[Axis]) -> str:
    return ", ".join(map(repr, axes))


def _format_store(scope: _Scope, store: Store, lines: list[str]) -> None:
    value, *dynamic = scope.block(store.roots(), lines)
    place = _place(store.offset, list(zip(dynamic, (stride for _, stride in store.dynamic))))
    lines.append(f"{store.buffer.name}[{place}] {'+=' if store.accumulate else '='} {value}")


def _place(offset: Affine, dynamic: Sequence[tuple[str, int]]) -> str:
    """An element's place in a buffer: its affine part and its computed terms."""
    parts = [text if stride == 1 else f"{stride}*({text})" for text, stride in dynamic]
    if offset != Affine() or not parts:
        parts.insert(0, str(offset))
    return " + ".join(parts)


class _Scope:
    """The texts of what has been printed so far, by identity, and the names given."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.texts: dict[int, tuple[str, int]] = {}
        self.names = iter(map("t{}".format, range(1 << 62)))

    def inside(self) -> _Scope:
        """A scope within this one: it knows its names and takes new ones from the same row."""
        scope = _Scope(self.width)
        scope.texts, scope.names = dict(self.texts), self.names
        return scope

    def block(self, roots: Sequence[Expression], lines: list[str]) -> list[str]:
        """The texts of ``roots``; names that they use are defined in ``lines``."""
        order = list(_outside_reductions(roots))
        users: dict[int, int] = {}
        for expression in order:
            for operand in expression.operands:
                users[id(operand)] = users.get(id(operand), 0) + 1
        for expression in order:
            if id(expression) in self.texts:
                continue
            self.texts[id(expression)] = self.fitted(expression, lines)
            if users.get(id(expression), 0) > 1 and isinstance(expression, Apply | Reduce):
                self.give_name(expression, lines)
        return [self.texts[id(root)][0] for root in roots]

    def give_name(self, expression: Expression, lines: list[str]) -> None:
        """Define a name for ``expression``, which has a text."""
        name = next(self.names)
        lines.append(f"{name} = {self.texts[id(expression)][0]}")
        self.texts[id(expression)] = name, _ATOM

    def fitted(self, expression: Expression, lines: list[str]) -> tuple[str, int]:
        """The text of ``expression``; where it would be too long, its longest operands get names first."""
        if isinstance(expression, Reduce):
            return self.reduction(expression, lines)
        text = self.text(expression)
        operands = sorted(set(expression.operands), key=lambda operand: -len(self.texts[id(operand)][0]))
        for operand in operands:
            if len(text[0]) <= self.width or not isinstance(operand, Apply | Reduce):
                break
            self.give_name(operand, lines)
            text = self.text(expression)
        return text

    def reduction(self, expression: Reduce, lines: list[str]) -> tuple[str, int]:
        """A reduction on one line, or a block of its own whose last line is what it reduces."""
        body: list[str] = []
        (value,) = self.inside().block((expression.body,), body)
        head = f"{_REDUCTIONS.get(expression.kind, expression.kind)}[{_turns(expression.over)}]"
        if not body:
            return f"{head}({value})", _ATOM
        name = next(self.names)
        lines.append(f"{name} = {head}:")
        lines.extend(_INDENT + line for line in [*body, value])
        return name, _ATOM

    def text(self, expression: Expression) -> tuple[str, int]:
        """One expression in terms of the texts of its operands, and how tightly it binds."""
        texts = [self.texts[id(operand)] for operand in expression.operands]
        if isinstance(expression, Position):
            return str(expression.index), _ATOM if len(expression.index.terms) < 2 else 6
        if isinstance(expression, Load):
            dynamic = list(zip((text for text, _ in texts), (stride for _, stride in expression.dynamic)))
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
        arguments = [text for text, _ in texts] + [f"{key}={value}" for key, value in expression.attributes]
        return f"{function}({', '.join(arguments)})", _ATOM


def _outside_reductions(roots: Sequence[Expression]) -> Iterator[Expression]:
    """Every expression under ``roots``, operands before users; a reduction's body is a scope of its own."""
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        expression, expanded = stack.pop()
        if id(expression) in seen:
            continue
        if expanded or isinstance(expression, Reduce):
            seen.add(id(expression))
            yield expression
            continue
        stack.append((expression, True))
        stack.extend((operand, False) for operand in reversed(expression.operands))
