"""What an operator is: a name and its rules, all in one place, and the table of all operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.graph.node import Detached, Node, Operation, apply, detached
from pullback.graph.routine import Routine
from pullback.graph.type import Type

__all__ = ["OPERATORS", "Case", "Operator", "Sample"]


@dataclass(frozen=True)
class Sample:
    """One input of a test case: values drawn from ``[low, high)``.

    ``kind`` tells the dtypes that the operator takes there: ``"float"`` (complex ones, too), ``"int"``, ``"bool"``,
    ``"complex"``, ``"any"`` (each of them in turn), or ``"index"`` (``int64``). ``diagonal`` is added to the diagonal
    of the last two axes: of matrices that have an inverse, or are positive definite.
    """

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    kind: str = "float"
    diagonal: float = 0.0


@dataclass(frozen=True)
class Case:
    """An example of an operator that the table's tests draw values for and check in every way they know."""

    inputs: tuple[Sample, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    differentiable: tuple[int, ...] | None = None
    """Inputs that have a derivative at these samples; ``None`` means every input of a float dtype."""


Rule = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Operator:
    """An operator's name and rules.

    ``type_rule(*types, **attributes) -> Type`` checks the inputs and gives the result's type.
    ``reference(*arrays, **attributes) -> array`` computes it in NumPy; the interpreter is made of these.
    ``pullback(node, cotangent) -> [cotangent | None, ...]`` gives the inputs' cotangents as graph nodes;
    ``None`` is an absent cotangent (the input does not matter to first order, or is no float).
    ``batch(node, inputs) -> Node`` gives the results of many examples at once: ``inputs`` are those of
    ``node``, but at least one has a further axis in front, with an example at each place, and so has the
    result. An input without that axis is the same for all examples.
    ``lower(node, operands, index) -> Expression`` gives the value at ``index`` in loop-program vocabulary,
    where each operand is a function from its own index to its value.
    ``linear`` tells that the result is linear in all float inputs taken together.
    ``cost`` is roughly how many arithmetic instructions one element takes: what is cheap is computed again
    rather than stored. A ``view`` only says where its input's elements are. What is ``stored`` always has memory of its
    own before kernels are fused. An operator that ``rereads`` needs its operands many times, and one that ``selects``
    its first at computed places: they find them in memory, unless they are cheap. ``visits(node)`` tells of one that
    does both how many rows, lines along the last axis, it reads of its first; zero where it reads no whole ones. One
    that ``accumulates`` makes each element of its first input that function of itself and an update, one update after
    another.
    An operator with several results has a type rule that gives a ``TupleType``, a reference and a batching rule that
    give a list, and a pullback that takes a list of cotangents, ``None`` where there is none, and of each input whether
    its cotangent is wanted.
    ``narrow(node, used) -> (narrower, positions)`` leaves out what only other results than those ``used`` need;
    ``positions`` are those of the used results in the narrower one.
    ``pushforward(node, tangents) -> [tangent | None, ...]`` gives the tangents of several results from those of the
    inputs, where transposing the pullback would not do; ``forward_only(node)`` tells that it must not be transposed.
    An operator without a lowering is computed out of the compiled program, by its reference, or where it has one by
    ``routine(*types, **attributes) -> Routine | None``, a function in machine code at an address.
    ``parts(node, *inputs)`` gives the real and the imaginary part of a complex result, or a real one, where each
    complex input comes as such a pair. A linear operator needs none: what it does to an array it does to its parts.
    ``is_layer(inputs)`` tells whether rules look for such an operation in a cotangent, rather than for its value alone:
    masks and what they come through, the factors of a product, and parts of a sum.
    ``vary(node) -> Padding`` tells what must stand in the padding of its inputs along axes of which programs are made
    for every size (``operators/varying.py``); elementwise operators need nothing, others without a rule are refused.
    """

    name: str
    type_rule: Callable[..., Type]
    reference: Callable[..., Any]
    pullback: Callable[..., Sequence[Node | None]] | None
    batch: Callable[[Operation, Sequence[Node]], Any]
    lower: Rule | None
    cases: tuple[Case, ...]
    cost: float = 1.0
    linear: bool = False
    elementwise: bool = False
    view: bool = False
    stored: bool = False
    rereads: bool = False
    selects: bool = False
    visits: Callable[[Operation], int] = lambda node: 0
    accumulates: str = ""
    narrow: Callable[[Operation, Sequence[int]], tuple[Operation, Sequence[int]]] | None = None
    pushforward: Callable[[Operation, Sequence[Node | None]], Sequence[Node | None]] | None = None
    forward_only: Callable[[Operation], bool] | None = None
    routine: Callable[..., Routine | None] | None = None
    parts: Callable[..., Any] | None = None
    is_layer: Callable[[Sequence[Node]], bool] = lambda inputs: False
    vary: Callable[[Operation], Any] | None = None

    def __post_init__(self) -> None:
        if self.name in OPERATORS:
            raise ValueError(f"two operators are named {self.name}")
        OPERATORS[self.name] = self

    def __call__(self, *inputs: Node, **attributes: Any) -> Operation:
        """Apply the operator to nodes of just the types it takes; promotion and broadcasting happen above."""
        for x in inputs:
            if x.__class__ is not Operation:  # it may be a name for a node
                return self._of_others(tuple([x.node for x in inputs]), attributes)
        return apply(self, inputs, attributes)

    def _of_others(self, inputs: tuple[Node, ...], attributes: Mapping[str, Any]) -> Operation:
        for x in inputs:
            if x.__class__ is Detached:
                return detached(self, inputs, attributes)  # type: ignore[return-value]
        return apply(self, inputs, attributes)

    def __lt__(self, other: Operator) -> bool:
        return self.name < other.name

    def __repr__(self) -> str:
        return f"Operator({self.name})"


OPERATORS: dict[str, Operator] = {}
"""Every operator by name; the table that drives the operator tests."""
