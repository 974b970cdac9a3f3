"""Numbers that kernels do not compute with taken apart: complex ones, and floats of 16 bits.

A complex value becomes two real nodes, its parts, by the rules of its operators (``operators/complex_parts.py``). Where
values are handed over as wholes, as arguments and results of a program, of a loop's body, of a call, they are *packed*:
real arrays with a last axis of two, which lie in memory as complex ones do. So a program's arguments and results are
the caller's complex arrays, and no pass, kernel or loop knows of them.

A ``float16`` or ``bfloat16`` becomes two nodes as well: its number, as ``float32``, and its bits, as ``uint16``, which
are what is handed over. Operations are those on the numbers, each followed by one that rounds; what only moves
elements moves bits.

>>> import numpy as np
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> z = Variable(Type(np.dtype(np.complex128), (3,)), "z")
>>> print(format_graph(with_parts(Graph((z,), (z * z,))), sources=False))
input  %0 z: float64[3, 2]
%1 = slice(%0, starts=(0, 0), steps=(1, 1), stops=(3, 1)): float64[3, 1]
%2 = reshape(%1, shape=(3,)): float64[3]
%3 = multiply(%2, %2): float64[3]
%4 = slice(%0, starts=(0, 1), steps=(1, 1), stops=(3, 2)): float64[3, 1]
%5 = reshape(%4, shape=(3,)): float64[3]
%6 = multiply(%5, %5): float64[3]
%7 = subtract(%3, %6): float64[3]
%8 = reshape(%7, shape=(3, 1)): float64[3, 1]
%9 = multiply(%2, %5): float64[3]
%10 = multiply(%5, %2): float64[3]
%11 = add(%9, %10): float64[3]
%12 = reshape(%11, shape=(3, 1)): float64[3, 1]
%13 = concatenate(%8, %12, axis=1): float64[3, 2]
output %13
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pullback.control.host import HostFunction, as_host_call, host_call
from pullback.errors import DTypeError, GraphError
from pullback.graph import (
    OPERATORS,
    Constant,
    Graph,
    Node,
    Operation,
    Routine,
    TupleType,
    Type,
    Variable,
    apply,
    constant,
    every_node,
    is_complex,
    is_half,
    part_dtype,
    regions,
    result,
    with_regions,
    written_at,
)
from pullback.operators.complex_parts import Parts

__all__ = ["OnPacked", "pack_type", "packed_array", "with_parts"]


_BITS, _WIDE = np.dtype(np.uint16), np.dtype(np.float32)

MOVES = frozenset({
    "concatenate", "contiguous", "gather", "interleave", "pad", "scatter_set", "stop_gradient", "where",
    "broadcast", "reshape", "reverse", "slice", "transpose", "windows",
})  # fmt: skip
"""Operators each element of whose result is an element of an input, or zero: they do the same to bits."""


class Half(NamedTuple):
    """A float of 16 bits: its bits, and its number in ``float32``."""

    bits: Node
    number: Node


def with_parts(graph: Graph) -> Graph:
    """``graph`` with packed arguments and results where the compiler knows no such numbers, and others in between."""
    return _Walk({}).graph(graph) if any(_is_packed(node.type) for node in every_node(graph)) else graph


def pack_type(type: Type) -> Type:
    """The type of a packed array of this type; that of numbers which the compiler knows as it is.

    >>> print(pack_type(Type(np.dtype(np.complex64), (3,))), pack_type(Type(np.dtype(np.float16), (3,))))
    float32[3, 2] uint16[3]
    """
    if isinstance(type, TupleType):
        return TupleType.of(map(pack_type, type.types))
    if is_half(type.dtype):
        return Type(_BITS, type.shape)
    return Type(part_dtype(type.dtype), (*type.shape, 2)) if is_complex(type.dtype) else type


def packed_array(array: Any) -> np.ndarray:
    """A complex array as its parts, side by side in its memory, floats of 16 bits as their bits; others as they are."""
    array = np.asarray(array)
    if is_half(array.dtype):
        return array.view(_BITS)  # type: ignore[no-any-return]
    if not is_complex(array.dtype):
        return array  # type: ignore[no-any-return]
    return np.ascontiguousarray(array).view(part_dtype(array.dtype)).reshape((*array.shape, 2))


@dataclass(frozen=True)
class OnPacked(HostFunction):
    """A function of arrays of which some are packed, called on the arrays themselves."""

    function: HostFunction
    given: tuple[Type, ...]
    promised: tuple[Type, ...]

    @property
    def routine(self) -> Routine | None:  # type: ignore[override]
        """That of the function, which does not mind: the memory is the same."""
        return self.function.routine

    def call(self, arrays: Sequence[np.ndarray], types: Sequence[Type]) -> list[np.ndarray]:
        whole = [array.view(type.dtype).reshape(type.shape) for array, type in zip(arrays, self.given)]
        return [packed_array(made) for made in self.function.call(whole, self.promised)]

    def __repr__(self) -> str:
        return repr(self.function)


def _is_packed(type: Type) -> bool:
    if isinstance(type, TupleType):
        return any(map(_is_packed, type.types))
    return is_complex(type.dtype) or is_half(type.dtype)


class _Walk:
    """What has become of each node of a graph."""

    def __init__(self, variables: dict[Variable, Variable]) -> None:
        self.variables = variables
        """Those of graphs that have the same ones, as branches have, by those that they stand for."""
        self.made: dict[Node, Any] = {}
        self.whole: dict[Node, Node] = {}
        """Packed values that have been taken apart, by the real part."""

    def graph(self, graph: Graph) -> Graph:
        """The graph with packed inputs and outputs."""
        inputs = [self.variable(v) if _is_packed(v.type) else v for v in graph.inputs]
        for old, new in zip(graph.inputs, inputs):
            self.made[old] = self.unpacked(new, old.type)
        for node in graph.nodes():
            if node in self.made:
                continue
            if isinstance(node, Operation):
                with written_at(node.source):
                    self.made[node] = self.operation(node)
            elif isinstance(node, Constant) and is_half(node.dtype):
                self.made[node] = Half(constant(packed_array(node.value)), constant(node.value.astype(_WIDE)))
            elif isinstance(node, Constant) and is_complex(node.dtype):
                self.made[node] = Parts(constant(node.value.real), constant(node.value.imag))
            else:
                self.made[node] = node
        outputs = tuple(self.packed(self.made[node]) for node in graph.outputs)
        return replace(graph, inputs=tuple(inputs), outputs=outputs)

    def variable(self, old: Variable) -> Variable:
        """The packed variable in place of one."""
        packed = Variable(pack_type(old.type), old.name, is_example=old.is_example)
        return self.variables.setdefault(old, packed)

    def operation(self, node: Operation) -> Any:
        """The node, or the parts, that take the place of an operation."""
        inputs = [self.made[child] for child in node.inputs]
        if node.operator is result:
            return self.unpacked(result(*inputs, **node.attributes), node.type)
        if regions(node):
            variables = dict[Variable, Variable]()
            held = with_regions(node.attributes, lambda region: _Walk(variables).graph(region))
            return apply(node.operator, tuple(map(self.packed, inputs)), held)
        if not _is_packed(node.type) and not any(isinstance(x, Parts | Half) for x in inputs):
            return apply(node.operator, tuple(inputs), node.attributes)
        if node.operator is host_call:
            return self.called(node, inputs)
        if is_half(node.dtype) or any(isinstance(x, Half) for x in inputs):
            return self.rounded(node, inputs)
        return self.of_complex(node, inputs)

    def rounded(self, node: Operation, inputs: Sequence[Any]) -> Any:
        """An operation on floats of 16 bits: on their bits where it only moves them, else on their numbers."""
        operator, attributes = node.operator, dict(node.attributes)
        if operator.name == "bitcast":
            bits = self.packed(inputs[0])
            packed = pack_type(node.type).dtype
            return self.unpacked(bits if bits.dtype == packed else operator(bits, dtype=packed), node.type)
        if operator.name in MOVES:
            made = apply(operator, tuple(map(self.packed, inputs)), attributes)
            if not operator.view:
                return self.unpacked(made, node.type)
            return Half(made, apply(operator, (inputs[0].number,), attributes))
        wide = [x.number if isinstance(x, Half) else x for x in inputs]
        if operator.name == "cast":
            return self.converted(wide[0], node)
        attributes = {name: _WIDE if _is_half_dtype(value) else value for name, value in attributes.items()}
        made = apply(operator, tuple(wide), attributes)
        return self.half(made, node.dtype) if is_half(node.dtype) else made

    def converted(self, x: Any, node: Operation) -> Any:
        """A cast from floats of 16 bits, or to them."""
        dtype = node.dtype
        if not is_half(dtype):
            cast: Any = OPERATORS["cast"](x, dtype=dtype)
            return self.of_complex(cast, [x]) if is_complex(dtype) else cast
        x = x.real if isinstance(x, Parts) else x
        whole = x.dtype == _WIDE or (x.dtype == np.float64 and dtype == np.float16)
        return self.half(x if whole else OPERATORS["cast"](x, dtype=_WIDE), dtype)

    def half(self, number: Node, dtype: np.dtype) -> Half:
        """A number rounded to floats of 16 bits."""
        bits = OPERATORS["half_bits"](number, kind=dtype.name)
        return Half(bits, OPERATORS["half_value"](bits, kind=dtype.name))

    def of_complex(self, node: Operation, inputs: Sequence[Any]) -> Any:
        """An operation on complex numbers."""
        if node.operator.parts is not None:
            return _checked(node, node.operator.parts(node, *inputs))
        if node.operator.linear and is_complex(node.dtype):
            both = [tuple(x[k] if isinstance(x, Parts) else x for x in inputs) for k in (0, 1)]
            return Parts(*(apply(node.operator, own, node.attributes) for own in both))
        if node.operator.lower is not None or node.operator.stored:
            given = ", ".join(str(child.type) for child in node.inputs)
            raise DTypeError(
                f"{node.operator.name} of {given} cannot be compiled: it has no rule for complex parts"
            )
        makes = node.operator.routine
        routine = None if makes is None else makes(*(child.type for child in node.inputs), **node.attributes)
        outside = as_host_call(node, node.inputs, routine)
        several = self.called(outside, [*inputs, *outside.inputs[len(inputs) :]])
        if isinstance(node.type, TupleType):
            return several
        return self.unpacked(result(several, index=0), node.type)

    def called(self, node: Operation, inputs: Sequence[Any]) -> Node:
        """A call out of the program on packed values."""
        promised: TupleType = node.attributes["promised"]
        given = tuple(child.type for child in node.inputs)
        function = OnPacked(node.attributes["function"], given, promised.types)
        attributes = {**node.attributes, "function": function, "promised": pack_type(promised)}
        return host_call(*map(self.packed, inputs), **attributes)

    def unpacked(self, whole: Node, type: Type) -> Any:
        """What stands for a value of ``type`` that is packed if need be."""
        if is_half(type.dtype):
            return Half(whole, OPERATORS["half_value"](whole, kind=type.dtype.name))
        return self.apart(whole) if is_complex(type.dtype) else whole

    def apart(self, whole: Node) -> Parts:
        """The parts of a packed value."""
        shape = whole.shape[:-1]
        parts = []
        for k in (0, 1):
            starts, stops = (0,) * len(shape) + (k,), (*shape, k + 1)
            one = OPERATORS["slice"](whole, starts=starts, stops=stops, steps=(1,) * whole.ndim)
            parts.append(OPERATORS["reshape"](one, shape=shape))
        self.whole[parts[0]] = whole
        return Parts(*parts)

    def packed(self, value: Any) -> Any:
        """Parts as one node, and of a float of 16 bits the bits; any other as it is."""
        if isinstance(value, Half):
            return value.bits
        if not isinstance(value, Parts):
            return value
        if isinstance(value.real, Constant) and isinstance(value.imag, Constant):
            return constant(np.stack((value.real.value, value.imag.value), axis=-1))
        whole = self.whole.get(value.real)
        if whole is not None and self.apart(whole).imag is value.imag:
            return whole
        pair = [OPERATORS["reshape"](part, shape=(*part.shape, 1)) for part in value]
        return OPERATORS["concatenate"](*pair, axis=value.real.ndim)


def _checked(node: Operation, made: Any) -> Any:
    """What a rule has made, which has the type of the operation or of its parts."""
    kind = part_dtype(node.dtype) if is_complex(node.dtype) else node.dtype
    parts = tuple(made) if isinstance(made, Parts) else (made,)
    if len(parts) != 1 + is_complex(node.dtype) or any(
        (p.dtype, p.shape) != (kind, node.shape) for p in parts
    ):
        found = ", ".join(str(part.type) for part in parts)
        raise GraphError(f"{node.operator.name} is {node.type}, and its rule for complex parts gives {found}")
    return made


def _is_half_dtype(value: Any) -> bool:
    return isinstance(value, np.dtype) and is_half(value)
