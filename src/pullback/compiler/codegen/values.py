"""Expressions to instructions: the value of an expression at one point, or along the lanes of some vectors.

Along the *lane axis* values are lists of vectors, one for each vector of the current group; what does not depend on
that axis is a single scalar. A value is emitted once in the innermost scope that knows its axes; before a loop opens,
all that does not depend on the loop's axis is emitted outside.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from pullback.compiler.codegen.blocks import load_lanes, store_lanes
from pullback.compiler.codegen.function import Function
from pullback.compiler.codegen.integers import COMPARISONS, integer_function
from pullback.compiler.codegen.types import convert, is_signed, literal, memory_type, scalar_type, vector_of
from pullback.compiler.codegen.vectormath import ELEMENTWISE, Lanes
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Buffer,
    Expression,
    Hole,
    Literal,
    Load,
    Position,
    Reduce,
    walk,
)

__all__ = ["MOST_STRIDE", "Group", "Place", "Values"]

_INT64 = np.dtype(np.int64)

MOST_STRIDE = 4
"""Lanes whose elements lie within this many vectors are picked out of them; a gather is slower."""


@dataclass(frozen=True)
class Place:
    """Where an axis stands: ``value + constant``, ``value`` an i64 in a register or nothing."""

    value: str | None
    constant: int = 0


@dataclass(frozen=True)
class Group:
    """Some vectors side by side along the lane axis; ``tail`` is how many lanes the last one has (0: all).

    ``whole`` tells that the group spans the whole axis, so that a reduction over it needs no loop.
    """

    axis: Axis
    vectors: int
    lanes: int
    tail: int = 0
    whole: bool = False


class Values:
    """Emits expressions into a function; knows the pointers, the open loops and what was computed already.

    ``pointers`` of buffers may be ``shifts`` elements into them. Reductions and index checks, which are emitted in
    terms of values, come from the files that know how.
    """

    def __init__(
        self,
        function: Function,
        pointers: Mapping[Buffer, str],
        lanes: int,
        registers: int,
        shifts: Mapping[Buffer, int],
        emit_reduction: Callable[[Values, Reduce], list[str]],
        emit_check: Callable[[Values, Apply], list[str]],
    ) -> None:
        self.f = function
        self.pointers = pointers
        self.lanes = lanes
        self.registers = registers
        self.shifts = shifts
        self.emit_reduction = emit_reduction
        self.emit_check = emit_check
        self.group: Group | None = None
        self.places: dict[Axis, Place] = {}
        self._scopes: list[dict[Expression, list[str]]] = [{}]
        self._spare: dict[str, str] = {}

    # ------------------------------------------------------------------ scopes and loops

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside is forgotten outside: it does not dominate what follows."""
        self._scopes.append({})
        try:
            yield
        finally:
            self._scopes.pop()

    @contextmanager
    def lane_group(self, group: Group, place: Place) -> Iterator[None]:
        """Values along ``group.axis`` are vectors that start at ``place``."""
        before, held = self.group, self.places.get(group.axis)
        self.group, self.places[group.axis] = group, place
        with self.scope():
            yield
        self.group = before
        if held is None:
            del self.places[group.axis]
        else:
            self.places[group.axis] = held

    @contextmanager
    def shadowing(self, axes: Iterable[Axis]) -> Iterator[None]:
        """Where ``axes`` already stand somewhere, they do not inside: an inner loop gives them a meaning of its own."""
        hidden = {axis: self.places.pop(axis) for axis in axes if axis in self.places}
        group, scopes = self.group, self._scopes
        if group is not None and group.axis in hidden:
            self.group = None
        self._scopes = [{e: v for scope in scopes for e, v in scope.items() if not e.axes & hidden.keys()}]
        yield
        self.group, self._scopes = group, scopes
        self.places.update(hidden)

    def bind(self, expression: Expression, value: list[str]) -> None:
        """Give the value of ``expression`` in the current scope."""
        self._scopes[-1][expression] = value

    def hoist(self, roots: Iterable[Expression], inner: Iterable[Axis], lanes: Axis | None = None) -> None:
        """Emit now what does not depend on the ``inner`` axes, so that their loops need not.

        ``lanes`` is the axis of the group if it spans the whole axis: a reduction over it is no loop.
        """
        seen: set[int] = set()

        def visit(expression: Expression, bound: frozenset[Axis]) -> None:
            if id(expression) in seen or isinstance(expression, Literal | Hole):
                return
            seen.add(id(expression))
            if not expression.axes & bound and not isinstance(expression, Position):
                self.emit(expression)
                return
            deeper = bound.union(axis for axis in expression.bound_axes() if axis is not lanes)
            for operand in expression.operands:
                visit(operand, deeper)

        for root in roots:
            visit(root, frozenset(inner))

    # ------------------------------------------------------------------ values

    def is_vector(self, expression: Expression) -> bool:
        """Whether the value differs between the lanes of the current group."""
        return self.group is not None and self.group.axis in expression.axes

    def emit(self, expression: Expression) -> list[str]:
        """The value: one scalar, or the vectors of the group."""
        for scope in reversed(self._scopes):
            if expression in scope:
                return scope[expression]
        value = self._emit(expression)
        self._scopes[-1][expression] = value
        return value

    def vectors(self, expression: Expression) -> list[str]:
        """The value as vectors, a scalar repeated over the lanes."""
        assert self.group is not None
        if isinstance(expression, Literal):
            return [literal(expression.dtype, expression.value, self.group.lanes)] * self.group.vectors
        value = self.emit(expression)
        if self.is_vector(expression):
            return value
        return [self.splat(value[0], expression.dtype)] * self.group.vectors

    def splat(self, value: str, dtype: np.dtype) -> str:
        """One scalar in every lane."""
        assert self.group is not None
        kind = scalar_type(dtype)
        vector = vector_of(kind, self.group.lanes)
        first = self.f.pure(f"insertelement {vector} poison, {kind} {value}, i32 0")
        zeros = f"<{self.group.lanes} x i32> zeroinitializer"
        return self.f.pure(f"shufflevector {vector} {first}, {vector} poison, {zeros}")

    def _emit(self, expression: Expression) -> list[str]:
        if isinstance(expression, Literal):
            return [literal(expression.dtype, expression.value)]
        if isinstance(expression, Load):
            return self._load(expression)
        if isinstance(expression, Position):
            return self._position(expression)
        if isinstance(expression, Reduce):
            return self.emit_reduction(self, expression)
        assert isinstance(expression, Apply), expression
        return self._apply(expression)

    def _position(self, expression: Position) -> list[str]:
        scalar = self.offset(expression.index)
        if not self.is_vector(expression):
            return [scalar]
        assert self.group is not None
        step = expression.index.coefficient(self.group.axis)
        return [self._lane_positions(scalar, step, k, _INT64) for k in range(self.group.vectors)]

    def _lane_positions(self, start: str, step: int, vector: int, dtype: np.dtype) -> str:
        """``start + step * lane`` for the lanes of one vector of the group."""
        assert self.group is not None
        lanes, kind = self.group.lanes, vector_of("i64", self.group.lanes)
        known = not start.startswith("%")
        first = int(start) if known else 0
        steps = ", ".join(f"i64 {first + (vector * lanes + lane) * step}" for lane in range(lanes))
        return f"<{steps}>" if known else self.f.pure(f"add {kind} {self.splat(start, dtype)}, <{steps}>")

    def convert_index(self, expression: Expression) -> list[str]:
        """An integer value as ``i64``."""
        vector = self.is_vector(expression)
        lanes = self.group.lanes if vector and self.group is not None else 1
        row = self.vectors(expression) if vector else self.emit(expression)
        return [convert(self.f, value, expression.dtype, _INT64, lanes) for value in row]

    # ------------------------------------------------------------------ addresses

    def offset(self, index: Affine, dynamic: Sequence[tuple[str, int]] = ()) -> str:
        """The value of an index, in elements, at the first lane of the group."""
        constant = index.constant
        parts: list[str] = []
        for axis, coefficient in index.terms:
            place = self.places[axis]
            constant += place.constant * coefficient
            if place.value is not None:
                parts.append(self._times(place.value, coefficient))
        parts += [self._times(value, stride) for value, stride in dynamic]
        total: str | None = None
        for part in parts:
            total = part if total is None else self.f.pure(f"add i64 {total}, {part}")
        if total is None:
            return str(constant)
        return self.f.pure(f"add i64 {total}, {constant}") if constant else total

    def element(self, buffer: Buffer, index: Affine, dynamic: Sequence[tuple[str, int]] = ()) -> str:
        """The offset of an element from the buffer's pointer, which may already be some elements into it."""
        return self.offset(index + -self.shifts.get(buffer, 0), dynamic)

    def _times(self, value: str, factor: int) -> str:
        return value if factor == 1 else self.f.pure(f"mul i64 {value}, {factor}")

    def address(self, buffer: Buffer, offset: str, ahead: int = 0) -> str:
        """The address of an element, ``ahead`` elements after ``offset``."""
        pointer = self.pointers[buffer]
        if offset != "0":
            pointer = self.f.pure(f"getelementptr {memory_type(buffer.dtype)}, ptr {pointer}, i64 {offset}")
        return self._ahead(pointer, buffer, ahead)

    def _ahead(self, pointer: str, buffer: Buffer, elements: int) -> str:
        if not elements:
            return pointer
        return self.f.pure(f"getelementptr {memory_type(buffer.dtype)}, ptr {pointer}, i64 {elements}")

    def mask(self, vector: int) -> str | None:
        """The lanes of one vector of the group that exist, or ``None`` when all do."""
        group = self.group
        assert group is not None
        if vector < group.vectors - 1 or group.tail == 0:
            return None
        return (
            "<"
            + ", ".join(f"i1 {'true' if lane < group.tail else 'false'}" for lane in range(group.lanes))
            + ">"
        )

    # ------------------------------------------------------------------ reads

    def _load(self, load: Load) -> list[str]:
        if not self.is_vector(load):
            return [self._load_scalar(load)]
        assert self.group is not None
        lane_axis = self.group.axis
        varying = [e for e, _ in load.dynamic if lane_axis in e.axes]
        step = load.offset.coefficient(lane_axis)
        fixed = [(self._index(e), stride) for e, stride in load.dynamic if lane_axis not in e.axes]
        start = self.element(load.buffer, load.offset, fixed)
        count = self.group.vectors
        together = not varying and step == 1
        picks = [None if together else self._picks(load, k) for k in range(count)]
        if None not in picks:
            return [self._picked(load, start, offsets) for offsets in picks if offsets is not None]
        guards = [None] * count if load.guard is None else self.vectors(load.guard)
        values = []
        for k in range(count):
            mask = self._both(self.mask(k), guards[k])
            if together:
                values.append(self._load_vector(load.buffer, start, k, mask))
            else:
                values.append(self._gather(load, start, step, k, mask))
        return values

    def _index(self, expression: Expression) -> str:
        """A computed index as an i64 scalar."""
        return convert(self.f, self.emit(expression)[0], expression.dtype, _INT64, 1)

    def _load_scalar(self, load: Load) -> str:
        offset = self.element(
            load.buffer, load.offset, [(self._index(e), stride) for e, stride in load.dynamic]
        )
        kind, dtype = memory_type(load.dtype), load.dtype
        guard = None if load.guard is None else self.emit(load.guard)[0]
        address = self.address(load.buffer, offset)
        if guard is not None:  # read something that is there instead, and forget it
            spare = self._spare.get(kind) or self._spare.setdefault(kind, self.f.reserve(kind))
            address = self.f.value(f"select i1 {guard}, ptr {address}, ptr {spare}")
        value = self.f.value(f"load {kind}, ptr {address}, align {dtype.itemsize}")
        if guard is not None:
            zero = "0" if dtype.kind != "f" else "0.0"
            value = self.f.value(f"select i1 {guard}, {kind} {value}, {kind} {zero}")
        return value if dtype.kind != "b" else self.f.value(f"icmp ne i8 {value}, 0")

    def _load_vector(self, buffer: Buffer, start: str, vector: int, mask: str | None) -> str:
        """Lanes that lie side by side, those under ``mask``.

        A short last vector is read as one of fewer lanes: LLVM may read past the end of the parts of a long one that
        no register holds as a whole.
        """
        assert self.group is not None
        lanes, size = self.group.lanes, buffer.dtype.itemsize
        element, address = memory_type(buffer.dtype), self.address(buffer, start, vector * lanes)
        kind = vector_of(element, lanes)
        if mask is None:
            return self._to_mask(
                self.f.value(f"load {kind}, ptr {address}, align {size}"), buffer.dtype, lanes
            )
        there = lanes if vector < self.group.vectors - 1 else self.group.tail or lanes
        short = max(2, 1 << (there - 1).bit_length())
        if short < lanes:
            mask = self._resized(mask, "i1", lanes, short)
        part = vector_of(element, short)
        value = self.f.call(
            part,
            f"llvm.masked.load.v{short}{_mangled(buffer.dtype)}.p0",
            ("ptr", address),
            ("i32", str(size)),
            (vector_of("i1", short), mask),
            (part, "zeroinitializer"),
        )
        if short < lanes:
            value = self._resized(value, element, short, lanes)
        return self._to_mask(value, buffer.dtype, lanes)

    def _resized(self, value: str, element: str, lanes: int, wanted: int) -> str:
        """The first lanes of a vector, or all of them and zeros after."""
        kind = vector_of(element, lanes)
        picks = ", ".join(f"i32 {min(lane, lanes)}" for lane in range(wanted))
        return self.f.value(
            f"shufflevector {kind} {value}, {kind} zeroinitializer, <{wanted} x i32> <{picks}>"
        )

    def _picks(self, load: Load, vector: int) -> list[int | None] | None:
        """Where the elements of the lanes lie, None for lanes that read nothing; None unless near and known."""
        assert self.group is not None
        offsets = None if load.dtype.kind == "b" else self._lane_offsets(load, vector)
        if offsets is None:
            return None
        found: list[int | None] = [*offsets]
        place, first = self.places[self.group.axis], vector * self.group.lanes
        for condition in _conditions(load.guard):
            if self.group.axis not in condition.axes:
                continue
            for lane in range(len(found)):
                there = place.value or _fixed(condition, self.group.axis, place.constant + first + lane)
                if not isinstance(there, int):
                    return None
                found[lane] = found[lane] if there else None
        near = [offset for offset in found if offset is not None]
        return found if not near or max(near) - min(near) < MOST_STRIDE * self.group.lanes else None

    def _picked(self, load: Load, start: str, offsets: Sequence[int | None]) -> str:
        """Elements at fixed distances from ``start``, one for each lane that exists: picked out of whole vectors.

        Nothing outside the first and the last of them is read, and zeros are taken where no lane reads anything.
        """
        assert self.group is not None
        lanes, element = self.group.lanes, memory_type(load.dtype)
        kind = vector_of(element, lanes)
        known = [offset for offset in offsets if offset is not None]
        if not known:
            return "zeroinitializer"
        first = min(known)
        wanted = [None if offset is None else offset - first for offset in offsets]
        span = max(known) - first + 1
        guard = self._common_guard(load)
        spare = "" if guard is None else self.f.reserve(f"[{span} x {element}]")
        picked = "poison" if len(known) == len(offsets) else "zeroinitializer"
        last = max(0, span - lanes)  # a vector that ends with the last element needs no mask
        for part in (min(part, last) for part in range(0, span, lanes)):
            there = min(lanes, span - part)
            address = self.address(load.buffer, start, first + part)
            if guard is not None:  # read something that is there instead, and forget it
                instead = self.f.value(f"getelementptr {element}, ptr {spare}, i64 {part}")
                address = self.f.value(f"select i1 {guard}, ptr {address}, ptr {instead}")
            row = load_lanes(self.f, address, element, lanes, there)
            lies_at = [-1 if offset is None else offset - part for offset in wanted]
            picks = [
                lanes + lies_at[lane] if lane < len(lies_at) and 0 <= lies_at[lane] < lanes else lane
                for lane in range(lanes)
            ]
            mask = ", ".join(f"i32 {pick}" for pick in picks)
            picked = self.f.value(f"shufflevector {kind} {picked}, {kind} {row}, <{lanes} x i32> <{mask}>")
        if guard is not None:
            picked = self.f.value(f"select i1 {guard}, {kind} {picked}, {kind} zeroinitializer")
        return picked

    def _common_guard(self, load: Load) -> str | None:
        """Of the conditions under which ``load`` reads, those that are the same for all lanes."""
        assert self.group is not None
        common = [c for c in _conditions(load.guard) if self.group.axis not in c.axes]
        values = [self.emit(condition)[0] for condition in common]
        guard = values[0] if values else None
        for value in values[1:]:
            guard = self.f.value(f"and i1 {guard}, {value}")
        return guard

    def _lane_offsets(self, load: Load, vector: int) -> list[int] | None:
        """For each lane of a vector that exists, how far its element lies from that of the group's start, if fixed."""
        assert self.group is not None
        axis, lanes = self.group.axis, self.group.lanes
        place = self.places[axis]
        count = self.group.tail if self.mask(vector) is not None else lanes
        step = load.offset.coefficient(axis)
        offsets = [(vector * lanes + lane) * step for lane in range(count)]
        for expression, stride in load.dynamic:
            if axis in expression.axes:
                if place.value is not None:
                    return None
                for lane in range(count):
                    value = _fixed(expression, axis, place.constant + vector * lanes + lane)
                    if value is None:
                        return None
                    offsets[lane] += value * stride
        return offsets

    def _to_mask(self, value: str, dtype: np.dtype, lanes: int) -> str:
        if dtype.kind != "b":
            return value
        return self.f.value(f"icmp ne {vector_of('i8', lanes)} {value}, zeroinitializer")

    def _gather(self, load: Load, start: str, step: int, vector: int, mask: str | None) -> str:
        """Lanes that do not lie side by side."""
        assert self.group is not None
        lanes = self.group.lanes
        indices = self._lane_positions(start, step, vector, _INT64)
        kind64 = vector_of("i64", lanes)
        for expression, stride in load.dynamic:
            if self.group.axis in expression.axes:
                index = convert(self.f, self.vectors(expression)[vector], expression.dtype, _INT64, lanes)
                index = self.f.value(f"mul {kind64} {index}, {literal(_INT64, stride, lanes)}")
                indices = self.f.value(f"add {kind64} {indices}, {index}")
        kind = memory_type(load.dtype)
        pointers = self.f.value(f"getelementptr {kind}, ptr {self.pointers[load.buffer]}, {kind64} {indices}")
        vector_kind = vector_of(kind, lanes)
        value = self.f.call(
            vector_kind,
            f"llvm.masked.gather.v{lanes}{_mangled(load.dtype)}.v{lanes}p0",
            (vector_of("ptr", lanes), pointers),
            ("i32", str(load.dtype.itemsize)),
            (vector_of("i1", lanes), mask or "splat (i1 true)"),
            (vector_kind, "zeroinitializer"),
        )
        return self._to_mask(value, load.dtype, lanes)

    def _both(self, first: str | None, second: str | None) -> str | None:
        if first is None or second is None:
            return first or second
        assert self.group is not None
        return self.f.value(f"and {vector_of('i1', self.group.lanes)} {first}, {second}")

    # ------------------------------------------------------------------ functions

    def _apply(self, expression: Apply) -> list[str]:
        if expression.function == "check_index":
            return self.emit_check(self, expression)
        fused = self._multiply_add(expression) or self._fixed_lanes(expression)
        if fused is not None:
            return fused
        if not self.is_vector(expression):
            operands = [self.emit(operand)[0] for operand in expression.operands]
            return [self.function(expression, operands, 1)]
        assert self.group is not None
        rows = [self.vectors(operand) for operand in expression.operands]
        lanes = self.group.lanes
        return [self.function(expression, [row[k] for row in rows], lanes) for k in range(self.group.vectors)]

    def _fixed_lanes(self, expression: Apply) -> list[str] | None:
        """Index arithmetic on the lane axis alone, where it stands at a known place: a constant for each lane."""
        if not self.is_vector(expression) or expression.function not in _INDEX_ARITHMETIC:
            return None
        assert self.group is not None
        place, group = self.places[self.group.axis], self.group
        if place.value is not None or expression.dtype != _INT64 or expression.axes != {group.axis}:
            return None
        rows = []
        for vector in range(group.vectors):
            places = [place.constant + vector * group.lanes + lane for lane in range(group.lanes)]
            lanes = [_fixed(expression, group.axis, where) for where in places]
            if None in lanes:
                return None
            rows.append("<" + ", ".join(f"i64 {lane}" for lane in lanes) + ">")
        return rows

    def function(self, expression: Apply, operands: Sequence[str], count: int) -> str:
        """One scalar function of the vocabulary on ``count`` lanes."""
        name, taken = (
            expression.function,
            expression.operands[0].dtype if expression.operands else expression.dtype,
        )
        kind = vector_of(scalar_type(taken), count)
        if name == "cast":
            return convert(self.f, operands[0], taken, expression.dtype, count)
        if name == "where":
            kind = vector_of(scalar_type(expression.dtype), count)
            mask = vector_of("i1", count)
            return self.f.value(f"select {mask} {operands[0]}, {kind} {operands[1]}, {kind} {operands[2]}")
        if name in ("stop_gradient", "bounded", "rounded"):
            return operands[0]
        if name == "bitcast":
            target = vector_of(scalar_type(expression.dtype), count)
            return self.f.value(f"bitcast {kind} {operands[0]} to {target}")
        if name in COMPARISONS:
            floating, signed, unsigned = COMPARISONS[name]
            if taken.kind == "f":
                return self.f.value(f"fcmp {floating} {kind} {operands[0]}, {operands[1]}")
            return self.f.value(
                f"icmp {signed if is_signed(taken) else unsigned} {kind} {operands[0]}, {operands[1]}"
            )
        if name in ("isnan", "isinf", "isfinite"):
            return self._question(name, operands[0], kind, count)
        if name == "divide" and count > 1 and taken.kind == "f" and _may_be_filled(expression.operands[1]):
            operands = [operands[0], self._hidden(operands[1], kind)]
        if taken.kind == "f":
            return ELEMENTWISE[name](Lanes(self.f, scalar_type(taken), count), *operands)
        return integer_function(self.f, name, operands, taken, count)

    def _hidden(self, value: str, kind: str) -> str:
        """``value``, of which LLVM knows nothing any more.

        Its code generation takes 0 / 0 for 0 in lanes that it knows: a branch not taken would be NaN.
        """
        spot = self.f.reserve(kind)
        self.f.do(f"store volatile {kind} {value}, ptr {spot}")
        return self.f.value(f"load volatile {kind}, ptr {spot}")

    def _question(self, name: str, x: str, kind: str, count: int) -> str:
        """Whether floats are NaN, infinite or finite: ``x - x`` is NaN for all but finite numbers."""
        if name == "isnan":
            return self.f.value(f"fcmp uno {kind} {x}, {x}")
        difference = self.f.value(f"fsub {kind} {x}, {x}")
        if name == "isfinite":
            return self.f.value(f"fcmp ord {kind} {difference}, {difference}")
        unbounded = self.f.value(f"fcmp uno {kind} {difference}, {difference}")
        number = self.f.value(f"fcmp ord {kind} {x}, {x}")
        return self.f.value(f"and {vector_of('i1', count)} {unbounded}, {number}")

    def _multiply_add(self, expression: Apply) -> list[str] | None:
        """``a * b + c``, ``c - a * b`` and ``a * b - c`` as one instruction.

        ``a * b - c * d`` stays as it is: with one product rounded and the other not, the difference of equal products
        would be what rounding took away, and ``sqrt(x * x - y * y)`` might be NaN where ``x`` is ``y``. Nor are
        products that have other users, which are marked as rounded when they are lowered.
        """
        if expression.function not in ("add", "subtract") or expression.dtype.kind != "f":
            return None
        x, y = expression.operands
        subtract = expression.function == "subtract"
        if subtract and _is_product(x) and _is_product(y):
            return None
        if _is_product(y):
            product, rest, negate_product, negate_rest = y, x, subtract, False
        elif _is_product(x):
            product, rest, negate_product, negate_rest = x, y, False, subtract
        else:
            return None
        count = self.group.lanes if self.group is not None and self.is_vector(expression) else 1
        parts = [*product.operands, rest]
        rows = [self.vectors(part) if count > 1 else self.emit(part) for part in parts]
        kind = scalar_type(expression.dtype)
        lanes = Lanes(self.f, kind, count)
        results = []
        for a, b, c in zip(*rows):
            left = lanes.neg(a) if negate_product else a
            results.append(lanes.fma(left, b, lanes.neg(c) if negate_rest else c))
        return results

    # ------------------------------------------------------------------ writes

    def store(
        self, buffer: Buffer, index: Affine, value: Expression, dynamic: Sequence[tuple[Expression, int]]
    ) -> None:
        """Write ``value``; along the lanes where the group's axis moves the target."""
        fixed = [(self._index(e), stride) for e, stride in dynamic]
        if self.group is None or not (self.is_vector(value) or index.coefficient(self.group.axis)):
            scalar = self.emit(value)[0]
            self._store_scalar(buffer, self.address(buffer, self.element(buffer, index, fixed)), scalar)
            return
        values = self.vectors(value)
        start = self.element(buffer, index, fixed)
        step = index.coefficient(self.group.axis)
        for k, vector in enumerate(values):
            if step == 1:
                self.store_vector(buffer, start, k * self.group.lanes, vector, self.mask(k))
            else:
                self._scatter(buffer, start, step, k, vector)

    def store_mixed(self, buffer: Buffer, index: Affine, mixed: Sequence[Expression]) -> None:
        """Write values whose lanes lie as far apart as there are values, one value beside the other."""
        assert self.group is not None
        lanes, count = self.group.lanes, len(mixed)
        kind = vector_of(scalar_type(buffer.dtype), lanes)
        start = self.element(buffer, index)
        rows = [self.vectors(value) for value in mixed]
        for k in range(self.group.vectors):
            there = count * (lanes if self.mask(k) is None else self.group.tail)
            for part in range(-(-there // lanes)):
                whole = "poison"
                for number, row in enumerate(rows):
                    elements = [divmod(part * lanes + lane, count) for lane in range(lanes)]
                    picks = ", ".join(
                        f"i32 {lanes + source if which == number else lane}"
                        for lane, (source, which) in enumerate(elements)
                    )
                    whole = self.f.value(
                        f"shufflevector {kind} {whole}, {kind} {row[k]}, <{lanes} x i32> <{picks}>"
                    )
                ahead = (k * count + part) * lanes
                self._store_lanes(buffer, start, ahead, whole, min(lanes, there - part * lanes))

    def _store_scalar(self, buffer: Buffer, address: str, value: str) -> None:
        kind = memory_type(buffer.dtype)
        if buffer.dtype.kind == "b":
            value = self.f.value(f"zext i1 {value} to i8")
        self.f.do(f"store {kind} {value}, ptr {address}, align {buffer.dtype.itemsize}")

    def store_vector(self, buffer: Buffer, start: str, ahead: int, value: str, mask: str | None) -> None:
        """Write one vector to consecutive elements."""
        assert self.group is not None
        self._store_lanes(buffer, start, ahead, value, self.group.lanes if mask is None else self.group.tail)

    def _store_lanes(self, buffer: Buffer, start: str, ahead: int, value: str, count: int) -> None:
        assert self.group is not None
        lanes, element = self.group.lanes, memory_type(buffer.dtype)
        if buffer.dtype.kind == "b":
            value = self.f.value(f"zext {vector_of('i1', lanes)} {value} to {vector_of(element, lanes)}")
        store_lanes(self.f, value, self.address(buffer, start, ahead), element, lanes, count)

    def _scatter(self, buffer: Buffer, start: str, step: int, vector: int, value: str) -> None:
        """Write lanes that do not lie side by side, one by one."""
        assert self.group is not None
        lanes = self.group.tail if self.mask(vector) is not None else self.group.lanes
        kind = scalar_type(buffer.dtype)
        first = self.address(buffer, start)  # one for all lanes: LLVM looks at each address that is computed
        for lane in range(lanes):
            element = self.f.value(f"extractelement {vector_of(kind, self.group.lanes)} {value}, i32 {lane}")
            self._store_scalar(
                buffer, self._ahead(first, buffer, (vector * self.group.lanes + lane) * step), element
            )


def _fixed(expression: Expression, axis: Axis, value: int) -> int | None:
    """An index's value where ``axis`` stands at ``value``, if it depends on nothing else."""
    known: dict[int, int] = {}
    for part in walk(
        expression
    ):  # a chain of reshapes has each part many times, and is as deep as it is long
        if isinstance(part, Literal):
            known[id(part)] = int(part.value)
        elif isinstance(part, Position) and part.index.axes in ((), (axis,)):
            known[id(part)] = part.index.constant + part.index.coefficient(axis) * value
        elif isinstance(part, Apply) and (part.function in _INDEX_ARITHMETIC or part.function in _ASKED):
            operands = [known[id(operand)] for operand in part.operands]
            known[id(part)] = int((_INDEX_ARITHMETIC | _ASKED)[part.function](*operands))
        else:
            return None
    return known[id(expression)]


_INDEX_ARITHMETIC: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
}

_ASKED: dict[str, Callable[..., bool]] = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}


def _may_be_filled(expression: Expression) -> bool:
    """Whether some lanes may be zeros that are known when the code is written."""
    return any(
        (isinstance(part, Load) and part.guard is not None)
        or (isinstance(part, Apply) and part.function == "where")
        for part in walk(expression)
    )


def _conditions(guard: Expression | None) -> list[Expression]:
    """The conditions that must all hold for ``guard`` to hold."""
    if isinstance(guard, Apply) and guard.function == "logical_and":
        return [condition for operand in guard.operands for condition in _conditions(operand)]
    return [] if guard is None else [guard]


def _mangled(dtype: np.dtype) -> str:
    """The element type in memory as intrinsic names spell it."""
    return {"b": "i8", "f": f"f{8 * dtype.itemsize}"}.get(dtype.kind, f"i{8 * dtype.itemsize}")


def _is_product(expression: Expression) -> bool:
    return isinstance(expression, Apply) and expression.function == "multiply"
