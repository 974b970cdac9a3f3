"""Complex numbers taken apart: a graph of real ones, before anything else is made of it.

A complex value becomes two real nodes, its parts, by the rules of its operators (``operators/complex_parts.py``). Where
values are handed over as wholes, as arguments and results of a program, of a loop's body, of a call, they are *packed*:
real arrays with a last axis of two, which lie in memory as complex ones do. So a program's arguments and results are
the caller's complex arrays, and no pass, kernel or loop knows of them.

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
from dataclasses import dataclass
from typing import Any

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
    part_dtype,
    regions,
    result,
    written_at,
)
from pullback.operators.complex_parts import Parts

__all__ = ["OnPacked", "pack_type", "packed_array", "with_parts"]


def with_parts(graph: Graph) -> Graph:
    """``graph`` with packed arguments and results in place of complex ones, and real numbers in between."""
    return _Walk().graph(graph) if any(_has_complex(node.type) for node in every_node(graph)) else graph


def pack_type(type: Type) -> Type:
    """The type of a packed array of this type; that of real numbers as it is.

    >>> print(pack_type(Type(np.dtype(np.complex64), (3,))))
    float32[3, 2]
    """
    if isinstance(type, TupleType):
        return TupleType.of(map(pack_type, type.types))
    return Type(part_dtype(type.dtype), (*type.shape, 2)) if is_complex(type.dtype) else type


def packed_array(array: Any) -> np.ndarray:
    """A complex array as its parts, which lie side by side in its memory; any other as it is."""
    array = np.asarray(array)
    if not is_complex(array.dtype):
        return array  # type: ignore[no-any-return]
    return np.ascontiguousarray(array).view(part_dtype(array.dtype)).reshape((*array.shape, 2))


@dataclass(frozen=True)
class OnPacked(HostFunction):
    """A function of complex arrays, called on packed ones."""

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


def _has_complex(type: Type) -> bool:
    if isinstance(type, TupleType):
        return any(map(_has_complex, type.types))
    return is_complex(type.dtype)


class _Walk:
    """What has become of each node of a graph."""

    def __init__(self, variables: dict[int, Variable] | None = None) -> None:
        self.variables: dict[int, Variable] = {} if variables is None else variables
        """Those of graphs that have the same ones, as branches have, by those that they stand for."""
        self.made: dict[int, Any] = {}
        self.whole: dict[int, Node] = {}
        """Packed values that have been taken apart, by the real part."""

    def graph(self, graph: Graph) -> Graph:
        """The graph with packed inputs and outputs."""
        inputs = [self.variable(v) if is_complex(v.dtype) else v for v in graph.inputs]
        for old, new in zip(graph.inputs, inputs):
            self.made[id(old)] = self.apart(new) if is_complex(old.dtype) else new
        for node in graph.nodes():
            if id(node) in self.made:
                continue
            if isinstance(node, Operation):
                with written_at(node.source):
                    self.made[id(node)] = self.operation(node)
            elif isinstance(node, Constant) and is_complex(node.dtype):
                self.made[id(node)] = Parts(constant(node.value.real), constant(node.value.imag))
            else:
                self.made[id(node)] = node
        return Graph(tuple(inputs), tuple(self.packed(self.made[id(node)]) for node in graph.outputs))

    def variable(self, old: Variable) -> Variable:
        """The packed one in place of a complex variable."""
        known = self.variables.get(id(old))
        if known is None:
            known = self.variables[id(old)] = Variable(
                pack_type(old.type), old.name, is_example=old.is_example
            )
        return known

    def operation(self, node: Operation) -> Any:
        """The node, or the parts, that take the place of an operation."""
        inputs = [self.made[id(child)] for child in node.inputs]
        if node.operator is result:
            made = result(*inputs, **node.attributes)
            return self.apart(made) if is_complex(node.dtype) else made
        if regions(node):
            variables = dict[int, Variable]()
            held = {name: _inside(value, variables) for name, value in node.attributes.items()}
            return apply(node.operator, tuple(map(self.packed, inputs)), held)
        if not _has_complex(node.type) and not any(isinstance(x, Parts) for x in inputs):
            return apply(node.operator, tuple(inputs), node.attributes)
        if node.operator is host_call:
            return self.called(node, inputs)
        if node.operator.parts is not None:
            return _checked(node, node.operator.parts(node, *inputs))
        if node.operator.linear and is_complex(node.dtype):
            return Parts(*(self.partwise(node, inputs, k) for k in (0, 1)))
        if node.operator.lower is not None or node.operator.stored:
            given = ", ".join(str(child.type) for child in node.inputs)
            raise DTypeError(
                f"{node.operator.name} of {given} cannot be compiled: it has no rule for complex parts"
            )
        makes = node.operator.routine
        routine = None if makes is None else makes(*(child.type for child in node.inputs), **node.attributes)
        outside = as_host_call(node, node.inputs, routine)
        several = self.called(outside, inputs)
        return several if isinstance(node.type, TupleType) else self.picked(several, node.type)

    def partwise(self, node: Operation, inputs: Sequence[Any], part: int) -> Node:
        """A linear operation on one part."""
        own = tuple(x[part] if isinstance(x, Parts) else x for x in inputs)
        return apply(node.operator, own, node.attributes)

    def called(self, node: Operation, inputs: Sequence[Any]) -> Node:
        """A call out of the program on packed values."""
        promised: TupleType = node.attributes["promised"]
        given = tuple(child.type for child in node.inputs)
        function = OnPacked(node.attributes["function"], given, promised.types)
        attributes = {**node.attributes, "function": function, "promised": pack_type(promised)}
        return host_call(*map(self.packed, inputs), **attributes)

    def picked(self, several: Node, type: Type) -> Any:
        """The one result of a call."""
        made = result(several, index=0)
        return self.apart(made) if is_complex(type.dtype) else made

    def apart(self, whole: Node) -> Parts:
        """The parts of a packed value."""
        shape = whole.shape[:-1]
        parts = []
        for k in (0, 1):
            starts, stops = (0,) * len(shape) + (k,), (*shape, k + 1)
            one = OPERATORS["slice"](whole, starts=starts, stops=stops, steps=(1,) * whole.ndim)
            parts.append(OPERATORS["reshape"](one, shape=shape))
        self.whole[id(parts[0])] = whole
        self.made[id(parts[0])] = parts[0]
        return Parts(*parts)

    def packed(self, value: Any) -> Any:
        """Parts as one node; any other as it is."""
        if not isinstance(value, Parts):
            return value
        if isinstance(value.real, Constant) and isinstance(value.imag, Constant):
            return constant(np.stack((value.real.value, value.imag.value), axis=-1))
        whole = self.whole.get(id(value.real))
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


def _inside(value: Any, variables: dict[int, Variable]) -> Any:
    """An attribute with the graphs in it taken apart."""
    if isinstance(value, Graph):
        return _Walk(variables).graph(value)
    return tuple(_inside(part, variables) for part in value) if isinstance(value, tuple) else value
