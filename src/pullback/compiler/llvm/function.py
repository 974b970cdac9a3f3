"""LLVM IR as text: a module that collects functions and a function that collects instructions.

Values are the strings that LLVM prints (``%v7``, ``1.0``, ``@table``); types are strings too (``<8 x float>``).
Building text this way is an order of magnitude faster than building objects, and what is built can be read as it is.

>>> module = Module()
>>> f = module.function("sum", [("ptr", "x"), ("i64", "n")], result="double")
>>> with f.loop("0", f["n"], carried=[("double", "0.0")]) as loop:
...     address = f.value(f"getelementptr double, ptr {f['x']}, i64 {loop.index}")
...     element = f.value(f"load double, ptr {address}, align 8")
...     loop.carry(f.value(f"fadd double {loop.values[0]}, {element}"))
>>> f.returns(loop.results[0])
>>> print(module.text().splitlines()[0])
define double @sum(ptr %x, i64 %n) nounwind {
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from pullback.compiler.target import LINE_BYTES

__all__ = ["Function", "Module", "OpenLoop", "float_literal"]


def float_literal(kind: str, value: float) -> str:
    """The exact hexadecimal literal of ``value`` as LLVM's ``float`` or ``double``.

    >>> float_literal("float", 0.1), float_literal("double", 0.1)
    ('0x3FB99999A0000000', '0x3FB999999999999A')
    """
    if kind == "float":
        value = ctypes.c_float(value).value
    return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"


class Module:
    """Functions, global definitions and external declarations, printed in a fixed order."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self._handed: set[str] = set()
        self._declarations: dict[str, None] = {}
        self._globals: dict[str, str] = {}

    def function(
        self,
        name: str,
        parameters: Sequence[tuple[str, str]],
        result: str = "void",
        linkage: str = "",
        attributes: str = "nounwind",
    ) -> Function:
        """Open a function of this module; ``parameters`` are ``(type, name)`` pairs."""
        self.functions[name] = Function(self, name, parameters, result, linkage, attributes)
        return self.functions[name]

    def declare(self, signature: str) -> None:
        """Ask for an external function, ``"float @llvm.fma.f32(float, float, float)"``; asking twice is harmless."""
        self._declarations[signature] = None

    def define_global(self, name: str, text: str) -> str:
        """Define ``@name = text`` once and return ``@name``."""
        self._globals[name] = text
        return f"@{name}"

    def text(self) -> str:
        """The whole module as LLVM assembly."""
        parts = [function.text() for function in self.functions.values()]
        parts += [f"@{name} = {text}" for name, text in self._globals.items()]
        parts += [f"declare {signature}" for signature in self._declarations]
        return "\n".join(parts) + "\n"

    def part(self) -> str:
        """The functions written since the part before, as a module that is linked with the others later.

        What it uses of other parts is declared; so only functions that are not internal may be used across parts.
        """
        own = {name: f.text() for name, f in self.functions.items() if name not in self._handed}
        self._handed.update(own)
        parts = list(own.values())
        used = set(re.findall(r"@([\w.]+)", "\n".join(parts)))
        parts += [f.declaration for name, f in self.functions.items() if name in used and name not in own]
        parts += [f"@{name} = {text}" for name, text in self._globals.items() if name in used]
        parts += [f"declare {signature}" for signature in self._declarations]
        return "\n".join(parts) + "\n"


class OpenLoop:
    """A counted loop being written: its index, the values carried into this turn, and the results after it.

    It ends before ``stop``; the next turn is one step after ``last``, the turn itself unless a body does several.
    """

    def __init__(self, index: str, values: list[str], stop: str) -> None:
        self.index = self.last = index
        self.stop = stop
        self.values = values
        self.results: list[str] = []

    def carry(self, *values: str) -> None:
        """Give the values that the next turn starts from; after the loop they are ``results``."""
        self.results = list(values)


class Function:
    """One function, written from top to bottom with structured control flow."""

    def __init__(
        self,
        module: Module,
        name: str,
        parameters: Sequence[tuple[str, str]],
        result: str,
        linkage: str,
        attributes: str,
    ) -> None:
        self.module = module
        self.name = name
        arguments = ", ".join(f"{kind} %{label}" for kind, label in parameters)
        self._head = " ".join(f"define {linkage} {result} @{name}({arguments}) {attributes}".split())
        self.declaration = f"declare {result} @{name}({', '.join(kind for kind, _ in parameters)})"
        self._result = result
        self._parameters = {label.split()[-1]: f"%{label.split()[-1]}" for _, label in parameters}
        self._lines: list[str] = []
        self._reserved: list[str] = []
        self._count = 0
        self._block = "entry"
        self._known: dict[str, str] = {}
        """Values of the block that is being written, by their instruction."""

    def __getitem__(self, parameter: str) -> str:
        """The value of a parameter by its name."""
        return self._parameters[parameter]

    def fresh(self, prefix: str = "v") -> str:
        """A name not used before in this function, without its sigil."""
        self._count += 1
        return f"{prefix}{self._count}"

    def value(self, instruction: str) -> str:
        """Append ``%fresh = instruction`` and return the name."""
        name = f"%{self.fresh()}"
        self._lines.append(f"  {name} = {instruction}")
        return name

    def pure(self, instruction: str) -> str:
        """The value of an instruction that reads no memory; where this block has it already, that very one.

        LLVM finds equal instructions too, but is faster where there are none.
        """
        known = self._known.get(instruction)
        if known is None:
            known = self._known[instruction] = self.value(instruction)
        return known

    def ahead(self, pointer: str, kind: str, count: int | str) -> str:
        """The address ``count`` elements after a pointer, a number or a register."""
        return pointer if count == 0 else self.value(f"getelementptr {kind}, ptr {pointer}, i64 {count}")

    def smaller(self, x: str, y: int | str) -> str:
        """The smaller one of two signed ``i64``."""
        return self.call("i64", "llvm.smin.i64", ("i64", x), ("i64", str(y)))

    def larger(self, x: str, y: int | str) -> str:
        """The larger one of two signed ``i64``."""
        return self.call("i64", "llvm.smax.i64", ("i64", x), ("i64", str(y)))

    def shuffled(self, vector: str, first: str, second: str, lanes: Iterable[int]) -> str:
        """A vector of these ``lanes`` of two, those of the second counted after those of the first."""
        picks = [f"i32 {lane}" for lane in lanes]
        return self.value(
            f"shufflevector {vector} {first}, {vector} {second}, <{len(picks)} x i32> <{', '.join(picks)}>"
        )

    def do(self, instruction: str) -> None:
        """Append an instruction that has no value."""
        self._lines.append(f"  {instruction}")

    def call(self, result: str, name: str, *arguments: tuple[str, str]) -> str:
        """Call ``@name`` with ``(type, value)`` arguments, declaring it if the module does not define it."""
        if name not in self.module.functions:
            self.module.declare(f"{result} @{name}({', '.join(kind for kind, _ in arguments)})")
        text = f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})"
        if result == "void":
            self.do(text)
            return ""
        return self.value(text)

    def reserve(self, kind: str, align: int = LINE_BYTES) -> str:
        """Memory on the stack for one ``kind``, made once at the start of the function."""
        name = f"%{self.fresh('s')}"
        self._reserved.append(f"  {name} = alloca {kind}, align {align}")
        return name

    def later(self) -> Callable[[Iterable[str]], None]:
        """Keep a place for instructions that are known later; what is returned writes them there."""
        at = len(self._lines)
        self._lines.append("")

        def fill(instructions: Iterable[str]) -> None:
            self._lines[at] = "\n".join(f"  {instruction}" for instruction in instructions)

        return fill

    @property
    def block(self) -> str:
        """The label of the block being written, for phi nodes."""
        return self._block

    def label(self, name: str) -> None:
        """Start the block ``name``; the block before it must already have been left by a branch."""
        self._lines.append(f"{name}:")
        self._block, self._known = name, {}

    def branch(self, name: str) -> None:
        """Leave the block for ``name``."""
        self.do(f"br label %{name}")

    @contextmanager
    def loop(
        self,
        start: str,
        stop: str,
        step: int = 1,
        carried: Sequence[tuple[str, str]] = (),
        counted: bool = True,
    ) -> Iterator[OpenLoop]:
        """``for index in range(start, stop, step)`` with carried ``(type, initial value)`` pairs.

        With ``counted`` the loop is known to turn at least once and is tested at its end, which saves the test at
        the start; otherwise a loop of no turns is legal and the results are then the initial values.
        """
        head, done, before = self.fresh("loop"), self.fresh("done"), self._block
        if not counted:
            enter = self.value(f"icmp slt i64 {start}, {stop}")
            self.do(f"br i1 {enter}, label %{head}, label %{done}")
        else:
            self.branch(head)
        self.label(head)
        index, following = f"%{self.fresh('i')}", f"%{self.fresh('i')}"
        values = [f"%{self.fresh('c')}" for _ in carried]
        fill = self.later()
        loop = OpenLoop(index, values, stop)
        yield loop
        end, phis = self._block, self._phis(loop, carried, before)
        self.do(f"{following} = add nsw i64 {loop.last}, {step}")
        again = self.value(f"icmp slt i64 {following}, {stop}")
        self.do(f"br i1 {again}, label %{head}, label %{done}")
        counting = f"{index} = phi i64 [{start}, %{before}], [{following}, %{end}]"
        fill([counting, *(f"{name} = {phi}" for name, phi in zip(values, phis))])
        self.label(done)
        if not counted:
            loop.results = [self.value(phi) for phi in phis]

    def _phis(self, loop: OpenLoop, carried: Sequence[tuple[str, str]], before: str) -> list[str]:
        """What each carried value is at the start of a turn, and where the loop may have none behind it too."""
        return [
            f"phi {kind} [{initial}, %{before}], [{new}, %{self._block}]"
            for (kind, initial), new in zip(carried, loop.results, strict=True)
        ]

    @contextmanager
    def turns(self, carried: Sequence[tuple[str, str]]) -> Iterator[OpenLoop]:
        """Turns until the body has left by ``leave_unless``, with carried ``(type, initial value)`` pairs."""
        head, before = self.fresh("while"), self._block
        self.branch(head)
        self.label(head)
        values, fill = [f"%{self.fresh('c')}" for _ in carried], self.later()
        loop = OpenLoop("", values, self.fresh("done"))
        yield loop
        fill(f"{name} = {phi}" for name, phi in zip(values, self._phis(loop, carried, before)))
        self.branch(head)
        self.label(loop.stop)

    def leave_unless(self, loop: OpenLoop, condition: str) -> None:
        """Leave a loop of ``turns`` here, unless a condition holds."""
        body = self.fresh("turn")
        self.do(f"br i1 {condition}, label %{body}, label %{loop.stop}")
        self.label(body)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """``if condition:`` around what is written inside."""
        inside, after = self.fresh("then"), self.fresh("after")
        self.do(f"br i1 {condition}, label %{inside}, label %{after}")
        self.label(inside)
        yield
        self.branch(after)
        self.label(after)

    def returns(self, value: str = "") -> None:
        """Leave the function with ``value``, or with nothing for ``void``."""
        self.do(f"ret {self._result} {value}".rstrip())

    def text(self) -> str:
        """The function as LLVM assembly; a ``void`` function returns at its end by itself."""
        is_left = self._lines[-1:] and self._lines[-1].startswith(("  ret ", "  br "))
        tail = [] if is_left else ["  ret void"]
        return "\n".join([f"{self._head} {{", "entry:", *self._reserved, *self._lines, *tail, "}"])
