"""Expressions to instructions: the value of an expression at one point, or along the lanes of some vectors.

Along the *lane axis* values are lists of vectors, one for each vector of the current group; what does not depend on
that axis is a single scalar. A value is emitted once in the innermost scope that knows its axes; before a loop opens,
all that does not depend on the loop's axis is emitted outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from pullback.compiler.codegen.halves import half_bits, half_value
from pullback.compiler.codegen.integers import COMPARISONS, Integers, comparison, integer_function
from pullback.compiler.codegen.types import (
    constants,
    convert,
    first_lanes,
    literal,
    memory_type,
    scalar_type,
    splat,
    vector_of,
)
from pullback.compiler.codegen.vectormath import ELEMENTWISE, Lanes
from pullback.compiler.codegen.vectormath.extrema import Extremum
from pullback.compiler.llvm.function import Function, OpenLoop
from pullback.compiler.schedules.columns import Columns
from pullback.compiler.target import Processor
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Buffer,
    Expression,
    Literal,
    Load,
    Placeholder,
    Position,
    RareCase,
    Reduce,
    fused_product,
    operands_of,
    rare_case,
    walk,
)
from pullback.loops.arithmetic import as_index, bounds
from pullback.loops.fixed import INDEX_ARITHMETIC, fixed_value

__all__ = ["LaneGroup", "Place", "Values"]

_INT64 = np.dtype(np.int64)


@dataclass(frozen=True)
class Place:
    """Where an axis stands: ``value + constant``, ``value`` an i64 in a register or nothing.

    That may be the index of a ``loop`` that is being written.
    """

    value: str | None
    constant: int = 0
    loop: OpenLoop | None = field(default=None, compare=False)


@dataclass(frozen=True)
class LaneGroup:
    """Some vectors side by side along the lane axis; ``tail`` is how many lanes the last one has (0: all).

    ``whole`` tells that the group spans the whole axis, so that a reduction over it needs no loop.
    """

    axis: Axis
    vectors: int
    lanes: int
    tail: int = 0
    whole: bool = False

    @classmethod
    def over(cls, axis: Axis, length: int, lanes: int, whole: bool = False) -> LaneGroup:
        """As many vectors as ``length`` turns of the axis take."""
        return cls(axis, -(-length // lanes), lanes, length % lanes, whole)

    def present(self, vector: int) -> int:
        """How many lanes of one of the vectors exist."""
        return self.tail if self.tail and vector == self.vectors - 1 else self.lanes


@dataclass(eq=False)
class Values:
    """Emits expressions into a function; knows the pointers, the open loops and what was computed already.

    ``pointers`` of buffers may be ``shifts`` elements into them. Loads, reductions and index checks, which are emitted
    in terms of values, come from the files that know how.
    """

    f: Function
    pointers: Mapping[Buffer, str]
    lanes: int
    target: Processor
    shifts: Mapping[Buffer, int]
    emit_reduction: Callable[[Values, Reduce], list[str]]
    emit_check: Callable[[Values, Apply], list[str]]
    emit_load: Callable[[Values, Load], list[str]]
    pieces: Sequence[tuple[str, int]] = ()
    """Where memory lies that later kernels read, and how many bytes of it: a product asks for them."""
    end: tuple[str, int] | None = None
    """Of a product that is summed over rows their number, and that of those that there are."""
    group: LaneGroup | None = None
    columns: Columns = field(default_factory=dict)
    together: Mapping[Reduce, Sequence[Reduce]] = field(default_factory=dict)
    """For reductions those that one loop makes with them, itself among them."""
    places: Mapping[Axis, Place] = field(default_factory=dict)
    sizes: dict[Axis, str] = field(default_factory=dict)
    """Of axes of which not all turns are made how many are."""
    spare: dict[str, str] = field(default_factory=dict)
    rare: int = 0
    _scopes: list[dict[Expression, list[str]]] = field(default_factory=lambda: [{}])

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
    def lane_group(self, group: LaneGroup, place: Place) -> Iterator[None]:
        """Values along ``group.axis`` are vectors that start at ``place``."""
        before, self.group = self.group, group
        with self.standing({group.axis: place}):
            yield
        self.group = before

    @contextmanager
    def standing(self, places: Mapping[Axis, Place]) -> Iterator[None]:
        """Axes stand at other ``places`` inside, where what is computed is another value."""
        held, self.places = self.places, {**self.places, **places}
        with self.scope():
            yield
        self.places = held

    @contextmanager
    def shadowing(self, axes: Iterable[Axis]) -> Iterator[None]:
        """Where ``axes`` already stand somewhere, they do not inside: an inner loop gives them a meaning of its own."""
        held = self.group, self._scopes, self.places
        hidden = self.places.keys() & set(axes)
        if self.group is not None and self.group.axis in hidden:
            self.group = None
        self._scopes = [{e: v for known in self._scopes for e, v in known.items() if not e.axes & hidden}]
        self.places = {axis: place for axis, place in self.places.items() if axis not in hidden}
        yield
        self.group, self._scopes, self.places = held

    @contextmanager
    def reducing(self, emit: Callable[[Values, Reduce], list[str]]) -> Iterator[None]:
        """Reductions are emitted by ``emit`` inside."""
        held, self.emit_reduction = self.emit_reduction, emit
        yield
        self.emit_reduction = held

    def bind(self, expression: Expression, value: list[str]) -> None:
        """Give the value of ``expression`` in the current scope."""
        self._scopes[-1][expression] = value

    def hoist(self, roots: Iterable[Expression], inner: Iterable[Axis], lanes: Axis | None = None) -> None:
        """Emit now what does not depend on the ``inner`` axes, so that their loops need not.

        ``lanes`` is the axis of the group if it spans the whole axis: a reduction over it is no loop.
        """
        seen: set[int] = set()

        def visit(expression: Expression, bound: frozenset[Axis]) -> None:
            if id(expression) in seen or isinstance(expression, Literal | Placeholder):
                return
            seen.add(id(expression))
            if not expression.axes & bound and not isinstance(expression, Position):
                self.emit(expression)
                return
            deeper = bound.union(axis for axis in expression.bound_axes() if axis is not lanes)
            case = rare_case(expression)
            for operand in expression.operands if case is None else (case.condition, case.usual):
                visit(operand, deeper)

        for root in roots:
            visit(root, frozenset(inner))

    # ------------------------------------------------------------------ values

    @property
    def current_group(self) -> LaneGroup:
        """The group, which there is wherever values are vectors."""
        assert self.group is not None
        return self.group

    def is_vector(self, expression: Expression) -> bool:
        """Whether the value differs between the lanes of the current group."""
        return self.group is not None and self.group.axis in expression.axes

    def lanes_of(self, expression: Expression) -> int:
        """How many lanes the value has, one if it is a scalar."""
        return self.current_group.lanes if self.is_vector(expression) else 1

    def parts(self, parts: Sequence[Expression], whole: Expression) -> list[list[str]]:
        """The values of what ``whole`` is made of: vectors if it is one."""
        return [self.vectors(part) if self.is_vector(whole) else self.emit(part) for part in parts]

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
        group = self.current_group
        if isinstance(expression, Literal):
            return [literal(expression.dtype, expression.value, group.lanes)] * group.vectors
        if self.is_vector(expression):
            return self.emit(expression)
        if isinstance(expression, Apply) and expression.function in COMPARISONS:
            # A mask: one instruction compares what is repeated, and many make one of a single bit.
            sides = [self.splat(self.emit(side)[0], side.dtype) for side in expression.operands]
            return [self.function(expression, sides, group.lanes)] * group.vectors
        return [self.splat(self.emit(expression)[0], expression.dtype)] * group.vectors

    def emit_side_by_side(self, roots: Sequence[Expression]) -> None:
        """Emit vectors by how many operations they wait for: chains that do not need each other advance together."""
        depth: dict[Expression, int] = {}
        for expression in walk(*roots):
            depth[expression] = 1 + max((depth[operand] for operand in expression.operands), default=0)
        self._emit_vectors(sorted(depth, key=depth.__getitem__))

    def emit_as_read(self, roots: Sequence[Expression]) -> None:
        """Emit vectors by what they read last, where that is more than registers hold, so that it is read once."""
        last: dict[Expression, int] = {}
        reads = 0
        for expression in walk(*roots):
            own = 0
            if isinstance(expression, Load) and self.is_vector(expression):
                own, reads = expression.offset.constant, reads + 1
            last[expression] = max((last[operand] for operand in expression.operands), default=own)
        if reads > self.target.vector_registers:
            self._emit_vectors(sorted(last, key=last.__getitem__))

    def _emit_vectors(self, parts: Collection[Expression]) -> None:
        """Emit those of ``parts`` that are vectors here, in order; what belongs to a loop inside is left to that."""
        inner = _taken_in(parts)
        for part in parts:
            inside = part in inner or not part.axes <= self.places.keys()
            if self.is_vector(part) and not inside:
                self.emit(part)

    def emit_in_order(self, root: Expression) -> str:
        """The scalar that ``root`` is, its operands before it: a chain may have more links than Python has calls."""
        parts = list(walk(root, enter=lambda part: rare_case(part) is None))
        inner = _taken_in(parts)
        for part in parts:
            if part not in inner:
                self.emit(part)
        return self.emit(root)[0]

    def splat(self, value: str, dtype: np.dtype) -> str:
        """One scalar in every lane."""
        return splat(self.f, value, scalar_type(dtype), self.current_group.lanes)

    def _emit(self, expression: Expression) -> list[str]:
        if isinstance(expression, Literal):
            return [literal(expression.dtype, expression.value)]
        if isinstance(expression, Load):
            return self.emit_load(self, expression)
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
        step = expression.index.coefficient(self.current_group.axis)
        return [self.lane_positions(scalar, step, k) for k in range(self.current_group.vectors)]

    def lane_positions(self, start: str, step: int, vector: int) -> str:
        """``start + step * lane`` for the lanes of one vector of the group."""
        lanes, kind = self.current_group.lanes, vector_of("i64", self.current_group.lanes)
        known = not start.startswith("%")
        first = int(start) if known else 0
        steps = constants("i64", (first + (vector * lanes + lane) * step for lane in range(lanes)))
        return steps if known else self.f.pure(f"add {kind} {self.splat(start, _INT64)}, {steps}")

    def convert_index(self, expression: Expression) -> list[str]:
        """An integer value as ``i64``."""
        lanes = self.lanes_of(expression)
        return [convert(self.f, value, expression.dtype, _INT64, lanes) for value in self.emit(expression)]

    # ------------------------------------------------------------------ addresses

    def offset(self, index: Affine, dynamic: Iterable[tuple[Expression, int]] = ()) -> str:
        """The value of an index, in elements, at the first lane of the group; computed indices have strides."""
        constant = index.constant
        computed = [(self.convert_index(each)[0], stride) for each, stride in dynamic]
        parts: list[str] = []
        for axis, coefficient in index.terms:
            place = self.places[axis]
            constant += place.constant * coefficient
            if place.value is not None:
                parts.append(self._times(place.value, coefficient))
        parts += [self._times(value, stride) for value, stride in computed]
        if constant or not parts:
            parts.append(str(constant))
        return reduce(lambda a, b: self.f.pure(f"add i64 {a}, {b}"), parts)

    def element(self, buffer: Buffer, index: Affine, dynamic: Iterable[tuple[Expression, int]] = ()) -> str:
        """The offset of an element from the buffer's pointer, which may already be some elements into it."""
        return self.offset(index + -self.shifts.get(buffer, 0), dynamic)

    def at(self, buffer: Buffer, index: Affine, dynamic: Iterable[tuple[Expression, int]] = ()) -> str:
        """The address of an element."""
        return self.address(buffer, self.element(buffer, index, dynamic))

    def _times(self, value: str, factor: int) -> str:
        return value if factor == 1 else self.f.pure(f"mul i64 {value}, {factor}")

    def address(self, buffer: Buffer, offset: str, ahead: int = 0) -> str:
        """The address of an element, ``ahead`` elements after ``offset``."""
        return self.ahead(self.ahead(self.pointers[buffer], buffer, offset), buffer, ahead)

    def ahead(self, pointer: str, buffer: Buffer, elements: int | str) -> str:
        """The address so many elements after another one."""
        if str(elements) == "0":
            return pointer
        return self.f.pure(f"getelementptr {memory_type(buffer.dtype)}, ptr {pointer}, i64 {elements}")

    def mask(self, vector: int) -> str | None:
        """The lanes of one vector of the group that exist, or ``None`` when all do."""
        lanes, present = self.current_group.lanes, self.current_group.present(vector)
        return None if present == lanes else first_lanes(present, lanes)

    def existing(self, mask: str, vector: int) -> str:
        """A mask without the lanes of one vector of the group that do not exist."""
        exists = self.mask(vector)
        if exists is None:
            return mask
        return self.f.value(f"and {vector_of('i1', self.current_group.lanes)} {mask}, {exists}")

    # ------------------------------------------------------------------ functions

    def _apply(self, expression: Apply) -> list[str]:
        if expression.function == "check_index":
            return self.emit_check(self, expression)
        case = rare_case(expression)
        if case is not None and not self.is_vector(case.condition):
            return self._in_rare_cases(expression, case)
        fused = (
            self._multiply_add(expression)
            or self._negated_product(expression)
            or self._extremum(expression)
            or self._fixed_lanes(expression)
        )
        if fused is not None:
            return fused
        rows, lanes = self.parts(expression.operands, expression), self.lanes_of(expression)
        return [self.function(expression, operands, lanes) for operands in zip(*rows)]

    def _in_rare_cases(self, expression: Apply, case: RareCase) -> list[str]:
        """The usual value, unless the condition holds: only then is the other one computed."""
        (holds,), (usual,) = self.emit(case.condition), self.parts([case.usual], expression)
        kind = vector_of(scalar_type(expression.dtype), self.lanes_of(expression))
        turns = self.f.value(f"zext i1 {holds} to i64")
        carried = [(kind, value) for value in usual]
        with self.f.loop("0", turns, carried=carried, counted=False) as once, self.scope():
            self.rare += 1  # code for it is short rather than fast
            once.carry(*self.parts([case.rare], expression)[0])
            self.rare -= 1
        return once.results

    def _fixed_lanes(self, expression: Apply) -> list[str] | None:
        """Index arithmetic on the lane axis alone, where it stands at a known place: a constant for each lane."""
        if not self.is_vector(expression) or expression.function not in INDEX_ARITHMETIC:
            return None
        group = self.current_group
        if expression.dtype != _INT64 or expression.axes != {group.axis}:
            return None
        rows = [self.known_lanes(expression, vector, group.lanes) for vector in range(group.vectors)]
        return [constants("i64", lanes) for lanes in rows if lanes is not None] or None

    def known_lanes(self, expression: Expression, vector: int, count: int) -> list[int] | None:
        """Its numbers in the first lanes of a vector of the group, if they are known when the code is written."""
        group, place = self.current_group, self.places[self.current_group.axis]
        if place.value is not None:
            return None
        lanes = place.constant + vector * group.lanes + np.arange(count)
        known = {axis: place.constant for axis, place in self.places.items() if place.value is None}
        found = fixed_value(expression, {**known, group.axis: lanes})
        return None if found is None else np.broadcast_to(found, count).tolist()

    def function(self, expression: Apply, operands: Sequence[str], count: int) -> str:
        """One scalar function of the vocabulary on ``count`` lanes."""
        name, taken = expression.function, expression.operands[0].dtype
        kind = vector_of(scalar_type(taken), count)
        if name == "cast":
            return convert(self.f, operands[0], taken, expression.dtype, count)
        if name == "where":
            kind = vector_of(scalar_type(expression.dtype), count)
            mask = vector_of("i1", count)
            return self.f.value(f"select {mask} {operands[0]}, {kind} {operands[1]}, {kind} {operands[2]}")
        if name in ("stop_gradient", "bounded", "rounded", "unlikely"):
            return operands[0]
        if name == "bitcast":
            target = vector_of(scalar_type(expression.dtype), count)
            return self.f.value(f"bitcast {kind} {operands[0]} to {target}")
        if name == "half_bits":
            return half_bits(self.f, operands[0], taken.itemsize == 8, count, self.target)
        if name == "half_value":
            return half_value(self.f, operands[0], count, self.target)
        if name in COMPARISONS:
            return self.f.value(f"{comparison(name, taken)} {kind} {operands[0]}, {operands[1]}")
        if name in ("isnan", "isinf", "isfinite"):
            return self._question(name, operands[0], kind, count)
        if name in ("floor_divide", "remainder") and (known := _divided_place(expression)) is not None:
            quotient, remainder = Integers(self.f, taken, count).divided_below(operands[0], *known)
            return quotient if name == "floor_divide" else remainder
        if name == "divide" and count > 1 and taken.kind == "f" and _may_be_filled(expression.operands[1]):
            operands = [operands[0], self._hidden(operands[1], kind)]
        return self.elementwise(name, operands, taken, count)

    def elementwise(self, name: str, operands: Sequence[str], dtype: np.dtype, count: int) -> str:
        """One function of numbers of one ``dtype``, by its name."""
        if dtype.kind == "f":
            return ELEMENTWISE[name](Lanes(self.f, scalar_type(dtype), count), *operands)
        return integer_function(self.f, name, operands, dtype, count)

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
        """``a * b + c``, ``c - a * b`` and ``a * b - c`` as one instruction, where the program says so."""
        place = fused_product(expression)
        if place is None:
            return None
        product, rest = expression.operands[place], expression.operands[1 - place]
        negative = expression.function == "subtract"
        negate_product, negate_rest = negative and place == 1, negative and place == 0
        rows = self.parts([*product.operands, rest], expression)
        lanes = Lanes(self.f, scalar_type(expression.dtype), self.lanes_of(expression))
        return [
            lanes.fma(lanes.neg(a) if negate_product else a, b, lanes.neg(c) if negate_rest else c)
            for a, b, c in zip(*rows)
        ]

    def _extremum(self, expression: Apply) -> list[str] | None:
        """A chain of maxima, or of minima, as one of many values."""
        links, parts, stack = set(_links(expression)), list[Expression](), [*reversed(expression.operands)]
        while stack:
            part = stack.pop()
            if part in links and not any(part in scope for scope in self._scopes):
                links.update(_links(part))
                stack += reversed(part.operands)
            else:
                parts.append(part)
        if len(parts) == len(expression.operands):
            return None
        lanes = Lanes(self.f, scalar_type(expression.dtype), self.lanes_of(expression))
        extremum = Extremum(lanes, expression.function)
        vectors = self.current_group.vectors if self.is_vector(expression) else 1
        states = [[value for _, value in extremum.start(1)]] * vectors
        for first in range(0, len(parts), 2):  # read when they are taken in, to need few registers
            rows = self.parts(parts[first : first + 2], expression)
            states = [extremum.taken(state, values) for state, values in zip(states, zip(*rows))]
        return [extremum.found(state) for state in states]

    def _negated_product(self, expression: Apply) -> list[str] | None:
        """``-a * b`` as one instruction, ``-(a * b) - 0``: the product of zeros keeps its sign."""
        if expression.function != "multiply" or expression.dtype.kind != "f":
            return None
        if sum(bool(operands_of(operand, "negative")) for operand in expression.operands) != 1:
            return None
        left, right = self.parts(expression.operands, expression)
        lanes = Lanes(self.f, scalar_type(expression.dtype), self.lanes_of(expression))
        zero = lanes.constant(-0.0)
        return [lanes.fma(a, b, zero) for a, b in zip(left, right)]


def _may_be_filled(expression: Expression) -> bool:
    """Whether some lanes may be zeros that are known when the code is written."""
    return (isinstance(expression, Literal) and not expression.value) or any(
        (isinstance(part, Load) and part.guard is not None) or operands_of(part, "where")
        for part in walk(expression)
    )


def _links(expression: Expression) -> list[Expression]:
    """The operands that are a maximum of floats as ``expression`` is, or a minimum: links of one chain."""
    if not isinstance(expression, Apply) or expression.function not in ("maximum", "minimum"):
        return []
    same = expression.function
    return [part for part in expression.operands if operands_of(part, same) and part.dtype.kind == "f"]


def _taken_in(parts: Collection[Expression]) -> set[Expression]:
    """What needs no value before its user: products that a sum takes in, links of a chain and what they read."""
    products = {part.operands[place] for part in parts if (place := fused_product(part)) is not None}
    users = Counter(operand for part in parts for operand in part.operands)
    links = {link for part in parts for link in _links(part)}
    chained = {operand for part in parts if part in links or _links(part) for operand in part.operands}
    return products | {p for p in chained if users[p] == 1 and (p in links or isinstance(p, Load))}


def _divided_place(expression: Apply) -> tuple[int, int] | None:
    """The constant that a place which is never negative is divided by, and what it is below: 2³¹ or less."""
    index, divisor = expression.operands
    if expression.dtype != _INT64 or not isinstance(divisor, Literal) or divisor.value <= 0:
        return None
    known = bounds(as_index(index))
    if known is None or known[0] < 0 or known[1] >= 1 << 31:
        return None
    return int(divisor.value), known[1] + 1
