"""Machine code that is written by hand, in Python's syntax: a small imperative language with LLVM's values.

What the compiler generates is written by ``function.py``; what runs it, walks the trees of its arguments and waits for
its threads is the same for every program, and is written as text in this language. A function says the kinds of its
parameters and of its result; a local variable has the kind of what it was first given. Kinds are ``i1``, ``i8``,
``i16``, ``i32``, ``i64``, ``float``, ``double``, ``ptr``, and the names of records: pointers with named fields.
Numbers of 32 bits are signed, as C's are, others are unsigned.

>>> pair = Record(FIRST="i64", NEXT="Pair")
>>> text = '''
... def total(pair: Pair, most: i64) -> i64:
...     sum = 0
...     while pair is not None and sum < most:
...         sum += pair.FIRST
...         pair = pair.NEXT
...     return sum
... '''
>>> print(Unit({"Pair": pair}).compiled(text).split(" {")[0])
define internal i64 @total(ptr %pair, i64 %most) nounwind

``x.FIELD`` reads a field and ``x.FIELD = y`` writes it; ``x[i]`` is the ``i``-th of the records that begin at ``x``, or
the element of an array (``Bytes``, ``Halves``, ``Ints``, ``Words``,
``Pointers``, ``Floats``, ``Doubles``). ``x + n`` is the address ``n``
bytes after ``x``. A function whose name begins with ``pullback`` is seen from outside. Besides there are

- kinds, ``i64(x)``: a number in another width, an address as a number, an address as that of a record,
- ``load(place, order)``, ``store(place, value, order)``, ``add(place, amount)``: atomically, with an order of LLVM's,
- ``exchange(place, seen, wanted, order)``: compare and swap; what was there, and whether it was replaced,
- ``address(place)``, ``reserve(size)``: where a field lies; so many bytes on the stack,
- ``call(kind, function, …)``: what an address leads to, with arguments of the kinds that they have.

A condition is an ``i1``. One over constants alone is decided here, and what is not taken is not written.
``a if c else b`` computes both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pullback.compiler.llvm.function import Module

__all__ = ["Record", "Unit"]

_ALIGNMENTS = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "float": 4, "i64": 8, "double": 8, "ptr": 8}
_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
_ARRAYS = {
    "Bytes": "i8", "Halves": "i16", "Ints": "i32", "Words": "i64", "Pointers": "ptr", "Floats": "float",
    "Doubles": "double",
}  # fmt: skip
_INTEGER: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "udiv", ast.Mod: "urem", ast.BitAnd: "and",
    ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "lshr",
}  # fmt: skip
_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.Is: "eq", ast.NotEq: "ne", ast.IsNot: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt",
    ast.GtE: "ge",
}  # fmt: skip
_FIXED = (ast.Constant, ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp)
"""Expressions that are constants if their parts are."""


class Record:
    """A structure in memory: fields of some kinds, one after another or where their offsets say.

    >>> pair = Record(SMALL="i32", LARGE="i64", APART=(64, "ptr"))
    >>> [pair[name] for name in pair.kinds], pair.size
    ([0, 8, 64], 72)
    """

    def __init__(self, size: int = 0, **fields: str | tuple[int, str]) -> None:
        self.kinds: dict[str, str] = {}
        self._offsets: dict[str, int] = {}
        end = 0
        for name, given in fields.items():
            offset, kind = given if isinstance(given, tuple) else (end, given)
            width = _ALIGNMENTS.get(kind, _ALIGNMENTS["ptr"])
            self.kinds[name], self._offsets[name] = kind, -(-offset // width) * width
            end = self._offsets[name] + width
        self.size = size or -(-end // 8) * 8

    def __getitem__(self, name: str) -> int:
        """The offset of a field."""
        return self._offsets[name]


class _Value(NamedTuple):
    """A value of a kind; a literal has the kind ``""`` until it meets another value."""

    kind: str
    text: str


@dataclass
class _Join:
    """A place that control flow reaches from several blocks, each with its values of the variables."""

    label: str
    edges: list[tuple[str, dict[str, _Value]]] = field(default_factory=list)


@dataclass(eq=False)
class Unit:
    """Functions compiled together: their records, the constants that they name, and what they call elsewhere.

    ``external`` has the signatures of functions outside, ``"ptr (i64, ...)"``; ``defined`` of such as stand in the same
    module as other text.
    """

    records: Mapping[str, Record]
    constants: Mapping[str, Any] = field(default_factory=dict)
    external: Mapping[str, str] = field(default_factory=dict)
    defined: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        called = {**self.external, **self.defined}
        self.signatures = {name: _signature(text) for name, text in called.items()}

    def compiled(self, *texts: str) -> str:
        """The functions of the texts as LLVM IR, with declarations of what they call."""
        module = Module()
        self.write(module, *texts)
        return module.text()

    def write(self, module: Module, *texts: str) -> None:
        """Write the functions of the texts into a module, but for those that it has."""
        functions = [
            part for text in texts for part in ast.parse(text).body if isinstance(part, ast.FunctionDef)
        ]
        for function in functions:
            kinds = tuple(_name(each.annotation) for each in function.args.args)
            self.signatures[function.name] = _name(function.returns), kinds
        for function in functions:
            if function.name not in module.functions:
                _Writer(self, module, function).write()

    def llvm(self, kind: str) -> str:
        """What LLVM calls a kind."""
        return "ptr" if kind in self.records or kind in _ARRAYS else kind


def _signature(text: str) -> tuple[str, tuple[str, ...]]:
    """
    >>> _signature("i32 (ptr, ...)")
    ('i32', ('ptr', '...'))
    """
    result, _, kinds = text.partition(" (")
    return result, tuple(kind for kind in kinds.rstrip(")").split(", ") if kind)


def _name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return "void" if node is None else ast.unparse(node)


class _Writer:
    """One function being written."""

    def __init__(self, unit: Unit, module: Module, function: ast.FunctionDef) -> None:
        self.unit = unit
        self.function = function
        self.result, kinds = unit.signatures[function.name]
        names = [each.arg for each in function.args.args]
        linkage = "" if function.name.startswith("pullback") else "internal"
        parameters = [(unit.llvm(kind), name) for kind, name in zip(kinds, names)]
        self.f = module.function(function.name, parameters, unit.llvm(self.result), linkage)
        self.known: dict[str, _Value] | None = {n: _Value(k, self.f[n]) for n, k in zip(names, kinds)}
        """The variables; None where control flow does not come."""
        self.loops: list[tuple[_Join, _Join]] = []
        """Of each loop around where it goes on, and where it ends."""

    def write(self) -> None:
        self.statements(self.function.body)
        if self.known is not None and self.result != "void":
            raise ValueError(f"{self.function.name}: ends without a result")

    # Control flow.

    def join(self) -> _Join:
        return _Join(self.f.fresh("b"))

    def go(self, to: _Join) -> None:
        """Leave the block for a place, if control flow comes here."""
        if self.known is not None:
            self.f.branch(to.label)
            to.edges.append((self.f.block, self.known))
            self.known = None

    def open(self, join: _Join) -> None:
        """Go on at a place whose edges are all known."""
        if not join.edges:
            self.known = None
            return
        self.f.label(join.label)
        shared = [name for name in join.edges[0][1] if all(name in known for _, known in join.edges)]
        self.known = {
            name: self._merged([(block, known[name]) for block, known in join.edges]) for name in shared
        }

    def _merged(self, values: Sequence[tuple[str, _Value]]) -> _Value:
        kinds, texts = {value.kind for _, value in values}, {value.text for _, value in values}
        kind = kinds.pop() if len(kinds) == 1 else "ptr"
        return _Value(kind, texts.pop() if len(texts) == 1 else self.f.value(self._phi(kind, values)))

    def _phi(self, kind: str, values: Iterable[tuple[str, _Value]]) -> str:
        edges = ", ".join(f"[{self.convert(value, kind).text}, %{block}]" for block, value in values)
        return f"phi {self.unit.llvm(kind)} {edges}"

    def branch(self, condition: ast.expr, yes: _Join, no: _Join) -> None:
        """Go to one of two places; what stands after ``and`` and ``or`` is computed only where it is asked for."""
        known, constant = self.constant(condition)
        if known:
            self.go(yes if constant else no)
        elif isinstance(condition, ast.BoolOp):
            *ahead, last = condition.values
            for part in ahead:
                further = self.join()
                self.branch(part, *((further, no) if isinstance(condition.op, ast.And) else (yes, further)))
                self.open(further)
            self.branch(last, yes, no)
        elif isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
            self.branch(condition.operand, no, yes)
        else:
            truth = self.value(condition)
            self.f.do(f"br i1 {truth.text}, label %{yes.label}, label %{no.label}")
            assert self.known is not None
            for join in (yes, no):
                join.edges.append((self.f.block, self.known))
            self.known = None

    def statements(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if self.known is None:
                return
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(ast.Call() as call):
                self.called(call)
            case ast.Return(value):
                self.f.returns("" if value is None else self.convert(self.value(value), self.result).text)
                self.known = None
            case ast.Assign([ast.Tuple(targets)], ast.Call() as call):
                for target, part in zip(targets, self.exchange(call)):
                    self.assign(target, part)
            case ast.Assign([target], value):
                self.assign(target, self.value(value))
            case ast.AnnAssign(target, kind, ast.expr() as value):
                self.assign(target, self.convert(self.value(value), _name(kind)))
            case ast.AugAssign(target, operation, value):
                self.assign(target, self.binary(operation, self.value(target), self.value(value)))
            case ast.If(test, body, orelse):
                yes, no, after = self.join(), self.join(), self.join()
                self.branch(test, yes, no)
                for join, branch in ((yes, body), (no, orelse)):
                    self.open(join)
                    self.statements(branch)
                    self.go(after)
                self.open(after)
            case ast.While(test):
                self.loop(node, test)
            case ast.For(ast.Name() as target, ast.Call(args=[*first, end])):
                self.counted(node, target, first, end)
            case ast.Break():
                self.go(self.loops[-1][1])
            case ast.Continue():
                self.go(self.loops[-1][0])
            case _:
                raise ValueError(f"{ast.unparse(node)}: no statement of this language")

    def loop(self, node: ast.While | ast.For, test: ast.expr, step: ast.stmt | None = None) -> None:
        """The body of ``node`` while ``test`` holds.

        ``step`` is done after each turn, also one that ``continue`` leaves.
        """
        head, inside, onward, after = (self.join() for _ in range(4))
        assert self.known is not None
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        changed = {n: v.kind for n, v in self.known.items() if n in names}
        self.go(head)
        self.f.label(head.label)
        self.known = dict(head.edges[0][1])
        fill = self.f.later()
        phis = {name: _Value(kind, f"%{self.f.fresh()}") for name, kind in changed.items()}
        self.known |= phis
        self.branch(test, inside, after)
        self.loops.append((onward, after))
        self.open(inside)
        self.statements(node.body)
        self.loops.pop()
        self.go(onward)
        self.open(onward)
        if self.known is not None and step is not None:
            self.statement(step)
        self.go(head)
        fill(
            f"{value.text} = {self._phi(value.kind, [(block, known[name]) for block, known in head.edges])}"
            for name, value in phis.items()
        )
        self.open(after)

    def counted(self, node: ast.For, target: ast.Name, first: Sequence[ast.expr], end: ast.expr) -> None:
        """``for target in range(first, end)``; the end is looked at once."""
        stop = ast.Name(f"{target.id} end", ast.Load())
        self.assign(stop, self.value(end))
        self.assign(target, self.value(first[0]) if first else _Value("i64", "0"))
        step = ast.AugAssign(target, ast.Add(), ast.Constant(1))
        self.loop(node, ast.Compare(ast.Name(target.id, ast.Load()), [ast.Lt()], [stop]), step)

    # Values.

    def assign(self, target: ast.expr, value: _Value) -> None:
        if isinstance(target, ast.Name):
            assert self.known is not None
            before = self.known.get(target.id)
            kind = before.kind if before is not None and self.unit.llvm(value.kind) != "ptr" else value.kind
            self.known = {**self.known, target.id: self.convert(value, kind or "i64")}
        else:
            kind, at = self.place(target)
            text = self.convert(value, kind).text
            kind = self.unit.llvm(kind)
            self.f.do(f"store {kind} {text}, ptr {at}, align {_ALIGNMENTS[kind]}")

    def constant(self, node: ast.expr) -> tuple[bool, Any]:
        """Whether an expression names constants only, and its value."""
        if isinstance(node, ast.Constant):
            return True, node.value
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                if part.id not in self.unit.constants or part.id in (self.known or ()):
                    return False, None
            elif isinstance(part, ast.expr) and not isinstance(part, _FIXED):
                return False, None
        return True, eval(ast.unparse(node), {}, self.unit.constants)

    def value(self, node: ast.expr) -> _Value:
        known, constant = self.constant(node)
        if known:
            return _literal(constant)
        match node:
            case ast.Name(name):
                assert self.known is not None
                if name not in self.known:
                    raise ValueError(f"{self.function.name}: {name} has no value here")
                return self.known[name]
            case ast.Attribute() | ast.Subscript():
                kind, at = self.place(node)
                if kind in self.unit.records and isinstance(node, ast.Subscript):
                    return _Value(kind, at)
                there = self.unit.llvm(kind)
                return _Value(kind, self.f.value(f"load {there}, ptr {at}, align {_ALIGNMENTS[there]}"))
            case ast.BinOp(left, operation, right):
                return self.binary(operation, self.value(left), self.value(right))
            case ast.Compare(left, [operation], [right]):
                return self.compared(operation, self.value(left), self.value(right))
            case ast.IfExp(test, yes, no):
                truth = self.value(test)
                first, second = self.matched(self.value(yes), self.value(no))
                kind = self.unit.llvm(first.kind)
                text = self.f.value(f"select i1 {truth.text}, {kind} {first.text}, {kind} {second.text}")
                return _Value(first.kind, text)
            case ast.BoolOp() | ast.UnaryOp(ast.Not()):
                return self.decided(node)
            case ast.Call():
                return self.called(node)
        raise ValueError(f"{ast.unparse(node)}: no expression of this language")

    def decided(self, condition: ast.expr) -> _Value:
        """A condition as a value."""
        target = ast.Name("", ast.Store())
        yes, no = ([ast.Assign([target], ast.Constant(truth))] for truth in (True, False))
        self.statement(ast.If(condition, [*yes], [*no]))
        assert self.known is not None
        return self.known.pop("")

    def matched(self, first: _Value, second: _Value) -> tuple[_Value, _Value]:
        """Two values of one kind; a literal takes the other's."""
        if not first.kind or first.text == "null":
            return self.convert(first, second.kind or "i64"), self.convert(second, second.kind or "i64")
        return first, self.convert(second, first.kind)

    def binary(self, operation: ast.operator, left: _Value, right: _Value) -> _Value:
        if self.unit.llvm(left.kind) == "ptr":
            right = self.convert(right, "i64")
            return _Value("ptr", self.f.pure(f"getelementptr i8, ptr {left.text}, i64 {right.text}"))
        left, right = self.matched(left, right)
        name = _INTEGER[type(operation)]
        name = f"f{name}" if left.kind in ("float", "double") else name
        return _Value(left.kind, self.f.pure(f"{name} {left.kind} {left.text}, {right.text}"))

    def compared(self, operation: ast.cmpop, left: _Value, right: _Value) -> _Value:
        left, right = self.matched(left, right)
        name, kind = _COMPARED[type(operation)], self.unit.llvm(left.kind)
        if kind in ("float", "double"):
            return _Value("i1", self.f.value(f"fcmp o{name} {kind} {left.text}, {right.text}"))
        if name not in ("eq", "ne"):
            name = ("s" if kind == "i32" else "u") + name
        return _Value("i1", self.f.value(f"icmp {name} {kind} {left.text}, {right.text}"))

    def place(self, node: ast.expr) -> tuple[str, str]:
        """The kind and the address of a field, of an element of an array, or of one of several records."""
        match node:
            case ast.Attribute(base, name):
                value = self.value(base)
                record = self.unit.records[value.kind]
                kind, offset = record.kinds[name], str(record[name])
            case ast.Subscript(base, index):
                value = self.value(base)
                kind = _ARRAYS.get(value.kind, value.kind)
                size = _ALIGNMENTS[kind] if value.kind in _ARRAYS else self.unit.records[kind].size
                number = self.convert(self.value(index), "i64").text
                known = number.isdigit()
                offset = str(int(number) * size) if known else self.f.pure(f"mul i64 {number}, {size}")
            case _:
                raise ValueError(f"{ast.unparse(node)}: no place in memory")
        at = value.text if offset == "0" else self.f.pure(f"getelementptr i8, ptr {value.text}, i64 {offset}")
        return kind, at

    def convert(self, value: _Value, kind: str) -> _Value:
        """A value as one of another kind."""
        before, after = self.unit.llvm(value.kind), self.unit.llvm(kind)
        text = value.text
        if not before and after in ("float", "double"):
            text = f"{text}.0"
        elif before and before != after:
            if before in _BITS and after in _BITS:
                narrower = _BITS[before] > _BITS[after]
                name = "trunc" if narrower else "sext" if before == "i32" else "zext"
            else:
                name = {("ptr", "i64"): "ptrtoint", ("double", "float"): "fptrunc"}[before, after]
            text = self.f.pure(f"{name} {before} {text} to {after}")
        return _Value(kind, text)

    # Calls.

    def called(self, node: ast.Call) -> _Value:
        name, arguments = _name(node.func), node.args
        if name in self.unit.signatures:
            result, kinds = self.unit.signatures[name]
            return self.call(result, f"@{name}", kinds, [self.value(each) for each in arguments])
        if name in _ALIGNMENTS or name in _ARRAYS or name in self.unit.records:
            return self.convert(self.value(arguments[0]), name)
        if name == "call":
            function, *values = (self.value(each) for each in arguments[1:])
            kinds = tuple(value.kind or "i64" for value in values)
            return self.call(_name(arguments[0]), function.text, kinds, values)
        if name == "reserve":
            known, size = self.constant(arguments[0])
            if known:
                return _Value("ptr", self.f.reserve(f"[{size} x i8]", align=8))
            return _Value("ptr", self.f.value(f"alloca i8, i64 {self.value(arguments[0]).text}, align 8"))
        if name not in ("address", "load", "store", "add"):
            raise ValueError(f"{ast.unparse(node)}: no function of this language")
        kind, at = self.place(arguments[0])
        order, there = _name(arguments[-1]), self.unit.llvm(kind)
        if name == "address":
            return _Value("ptr", at)
        ordered = f"ptr {at} {order}, align {_ALIGNMENTS[there]}"
        if name == "load":
            return _Value(kind, self.f.value(f"load atomic {there}, {ordered}"))
        text = self.convert(self.value(arguments[1]), kind).text
        if name == "store":
            self.f.do(f"store atomic {there} {text}, {ordered}")
            return _Value("void", "")
        return _Value(kind, self.f.value(f"atomicrmw add ptr {at}, {there} {text} seq_cst"))

    def exchange(self, node: ast.Call) -> tuple[_Value, _Value]:
        where, seen, wanted, order = node.args
        kind, at = self.place(where)
        texts = [self.convert(self.value(each), kind).text for each in (seen, wanted)]
        orders = f"acq_rel {_name(order)}, align {_ALIGNMENTS[kind]}"
        both = self.f.value(f"cmpxchg ptr {at}, {kind} {texts[0]}, {kind} {texts[1]} {orders}")
        parts = [self.f.value(f"extractvalue {{{kind}, i1}} {both}, {k}") for k in (0, 1)]
        return _Value(kind, parts[0]), _Value("i1", parts[1])

    def call(self, result: str, function: str, kinds: Sequence[str], values: Sequence[_Value]) -> _Value:
        signature = ", ".join(map(self.unit.llvm, kinds))
        fixed = [kind for kind in kinds if kind != "..."]
        if len(values) < len(fixed) or (len(values) > len(fixed) and len(fixed) == len(kinds)):
            raise ValueError(
                f"{function} takes {signature}, in {self.function.name} it is given {len(values)} values"
            )
        name = function[1:]
        if name in self.unit.external:
            self.f.module.declare(f"{self.unit.llvm(result)} {function}({signature})")
        each = [self.convert(value, kind) for value, kind in zip(values, fixed)]
        each += [self.convert(value, value.kind or "i64") for value in values[len(fixed) :]]
        given = ", ".join(f"{self.unit.llvm(value.kind)} {value.text}" for value in each)
        kind = self.unit.llvm(result) + (f" ({signature})" if "..." in kinds else "")
        text = f"call {kind} {function}({given})"
        if result == "void":
            self.f.do(text)
            return _Value("void", "")
        return _Value(result, self.f.value(text))


def _literal(value: Any) -> _Value:
    if value is None:
        return _Value("ptr", "null")
    if isinstance(value, bool):
        return _Value("i1", "true" if value else "false")
    return _Value("", str(value))
