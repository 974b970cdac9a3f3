"""Tracing: a Python function called once, on variables, gives the graph of what it computes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.errors import DTypeError, NamedAxisError, TracingError, TreeError
from pullback.graph import (
    PENDING,
    Graph,
    Node,
    Operation,
    Type,
    Variable,
    apply,
    evaluating,
    force,
    free_variables,
    mark,
    substitute,
    topological,
)
from pullback.graph.named import is_named
from pullback.graph.values import mode
from pullback.interpreter import values_of
from pullback.numpy.arrays import TracedArray
from pullback.numpy.promotion import as_array_node, type_of
from pullback.ownership import owns_memory
from pullback.tracing.specs import LEAF
from pullback.tracing.trees import Static, Structure, difference, flatten

__all__ = [
    "Traced",
    "apart",
    "argument_name",
    "at_end",
    "during_apart",
    "ended",
    "eval_shape",
    "finish",
    "is_apart",
    "is_example",
    "is_whole",
    "kept_for_all_calls",
    "known_order",
    "known_value",
    "known_values",
    "leaf_type",
    "owned",
    "runs_under_way",
    "trace",
    "trace_flat",
    "traces_outside_kept",
    "traces_under_way",
    "tracing",
    "variables_under_way",
    "whole",
]


@dataclass(frozen=True, eq=False)
class Traced:
    """The graph of a function for arguments of one structure and one list of types."""

    graph: Graph
    in_structure: Structure
    """The structure of ``(arguments, keywords)``."""
    out_structure: Structure
    free: tuple[Variable, ...]
    """Variables of traces around this one that the function closes over."""

    def evaluate(self, leaves: Sequence[Any]) -> Any:
        """The result for these leaves of the arguments, by the interpreter."""
        outputs = finish(self.graph.outputs, self.graph.inputs, leaves)
        return self.out_structure.unflatten(outputs)


def leaf_type(leaf: Any, name: str = "an argument") -> Type:
    """The type of a leaf; a ``Type`` stands for any value of it.

    Raises ``DTypeError`` for a dtype that no graph can hold.
    """
    if isinstance(leaf, Type):
        return leaf
    try:
        return type_of(leaf)
    except DTypeError as error:
        raise DTypeError(f"{name}: {error}") from None


def known_value(leaf: Any, type: Type) -> np.ndarray | None:
    """The array that a leaf is; ``None`` for a traced one that stands for every value it may take.

    >>> known_value(2, Type(np.dtype("float64"), ()))
    array(2.)
    """
    if isinstance(leaf, Node):
        return force(leaf.as_read() if isinstance(leaf, TracedArray) else leaf)  # type: ignore[no-any-return]
    return np.asarray(leaf, type.dtype)


def is_example(leaf: Any) -> bool:
    """Whether a leaf depends on each example of a batch."""
    unknown = isinstance(leaf, Node) and leaf.value is None
    return unknown and any(variable.is_example for variable in free_variables([leaf]))


def trace(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Traced:
    """The graph of ``function`` for arguments like these; only their structure, types and static values
    matter.

    Long loops of Python whose steps do the same are in it as scans. Variables are named by their paths:
    ``arg0.weights.0``. Arguments may be ``Type`` objects in place of values; Python's numbers become variables that
    are weak, as the numbers are.

    >>> import numpy as np
    >>> from pullback.graph import format_graph
    >>> print(format_graph(trace(np.negative, Type(np.dtype("float32"), (3,))).graph, sources=False))
    input  %0 arg0: float32[3]
    %1 = negative(%0): float32[3]
    output %1
    """
    leaves, structure = flatten((arguments, keywords))
    names = [argument_name(path) for path in structure.paths]
    return trace_flat(function, structure, [leaf_type(leaf, name) for leaf, name in zip(leaves, names)])


def eval_shape(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    """The types of what ``function`` gives for arguments like these, computing nothing: a tree of ``Type``.

    Arguments may be ``Type`` objects, so nothing of their size needs to exist. Each type has a ``shape`` and a
    ``dtype``. Raises what tracing raises.

    Source: the meaning is that of ``jax.eval_shape``.

    >>> import numpy as np
    >>> large = Type(np.dtype(np.float32), (100_000, 100_000))
    >>> print(eval_shape(lambda x: {"row": x @ x[0], "total": x.sum()}, large)["row"])
    float32[100000]
    """
    traced = trace(function, *arguments, **keywords)
    types = [node.type for node in traced.graph.outputs]
    if any(is_named(extent) for type in types for extent in type.shape):
        raise NamedAxisError(
            "eval_shape: a result has a named axis, which is of any size here and no integer; take x.shape of the "
            "traced value itself"
        )
    return traced.out_structure.unflatten(types)


def trace_flat(function: Callable[..., Any], structure: Structure, types: Sequence[Type]) -> Traced:
    """The graph of ``function`` for ``(arguments, keywords)`` of this structure with leaves of these
    types.
    """
    names = [argument_name(path) for path in structure.paths]
    inputs = tuple([Variable(type, name) for type, name in zip(types, names)])
    arguments, keywords = structure.unflatten(inputs)
    since = mark()
    with whole():
        with tracing(inputs, _with_static(arguments, keywords, structure)):
            outputs, out_structure = output_nodes(function(*arguments, **keywords))
        outputs = ended(outputs, since)
    own = {id(variable) for variable in inputs}
    free = [variable for variable in free_variables(outputs) if id(variable) not in own]
    refuse_leaked(free)
    return Traced(Graph(inputs, outputs), structure, out_structure, tuple(free))


def _with_static(arguments: tuple[Any, ...], keywords: dict[str, Any], structure: Structure) -> Any:
    """``(arguments, keywords)`` with those that are no trees marked as static again."""
    _, _, (positional, named) = structure.spec

    def marked(value: Any, spec: Any) -> Any:
        return value if spec is LEAF or len(spec) == 3 else Static(value)

    return (
        tuple(map(marked, arguments, positional[2])),
        {name: marked(keywords[name], spec) for name, spec in zip(named[1][0], named[2])},
    )


def argument_name(path: str) -> str:
    """What the leaf at this path of ``(arguments, keywords)`` is called: ``arg0.weights``, or a keyword."""
    place, _, rest = path.partition(".")
    return f"arg{rest}" if place == "0" else rest


def output_nodes(result: Any) -> tuple[tuple[Node, ...], Structure]:
    """The leaves of a traced function's result as nodes, and its structure."""
    try:
        leaves, structure = flatten(result)
    except TreeError as error:
        raise TreeError(f"the result of a traced function must be arrays or trees of them: {error}") from None
    return tuple([as_array_node(leaf) for leaf in leaves]), structure


# -- What is done where a trace ends

End = Callable[[Sequence[Node], int], "tuple[Node, ...]"]
_ends: list[End] = []


def at_end(function: End, first: bool = False) -> End:
    """Have ``function(nodes, since)`` applied where a trace ends, ``first`` or last, for the floors above."""
    _ends.insert(0 if first else len(_ends), function)
    return function


def ended(nodes: Sequence[Node], since: int) -> tuple[Node, ...]:
    """All results of a trace that has begun at the mark ``since``, before anything else is made of them.

    They must come together: what is found in the graph of one, such as a loop, may be what others read as well. What
    has been evaluated as it went stays as it is.
    """
    nodes = tuple(nodes)
    if all(map(_has_value, nodes)):
        return nodes
    for function in _ends:
        nodes = function(nodes, since)
    return nodes


# -- The traces that are under way: values of others have leaked


class _UnderWay(threading.local):
    def __init__(self) -> None:
        self.stack: list[tracing] = []
        self.whole = False
        self.outside_kept = -1
        self.apart = False


_under_way = _UnderWay()


_NUMBER = Type(np.dtype(np.int64), ())


class tracing:
    """Count ``variables`` as those of a trace under way, and refuse that it changes ``arguments``.

    These are trees made for the trace: the caller's own would not change with them, as they do where nothing is
    traced. A trace whose function is run many times says what one run is called, ``each``; what is traced may ask for
    its number (``runs_under_way``), and then ``run`` is a variable that whoever made the trace has to supply.
    """

    __slots__ = ("_before", "_outer", "_trees", "each", "known", "run")

    def __init__(self, variables: Iterable[Variable], arguments: Any = (), each: str = "") -> None:
        self.known = {id(variable): variable for variable in variables}
        self._trees = None if _are_nodes(arguments) else arguments
        self.each = each
        self.run: Variable | None = None

    def __enter__(self) -> tracing:
        _under_way.stack.append(self)
        self._outer, mode.trace = mode.trace, self
        self._before = None if self._trees is None else flatten(self._trees)
        return self

    def number(self) -> Variable:
        """The variable ``run``, an ``int64``, made where it is first asked for."""
        if self.run is None:
            self.run = Variable(_NUMBER, self.each, is_example=self.each == "example")
            self.known[id(self.run)] = self.run
        return self.run

    def __exit__(self, kind: Any, *error: Any) -> None:
        _under_way.stack.pop()
        mode.trace = self._outer
        if kind is None and self._before is not None:
            _refuse_changed(self._trees, *self._before)


def _are_nodes(arguments: Any) -> bool:
    return isinstance(arguments, (list, tuple)) and all(isinstance(each, Node) for each in arguments)


def _refuse_changed(arguments: Any, before: list[Any], structure: Structure) -> None:
    try:
        after, found = flatten(arguments)
        where = "" if found == structure else difference(structure, found)
    except TreeError as error:
        after, where = [], str(error)
    places = [path for path, one, other in zip(structure.paths, before, after) if one is not other]
    if where or places:
        raise TreeError(
            f"the traced function changes an argument, {where or f'at {argument_name(places[0])}'}: what it is given "
            "is made for the trace, and the caller's stays as it is; return what is new, and change a copy (dict(x), "
            "list(x), copy.copy(x), dataclasses.replace(x, …))"
        )


def variables_under_way() -> list[dict[int, Variable]]:
    """The variables by ``id`` of each trace that this thread is in, the innermost last."""
    return [each.known for each in _under_way.stack]


def runs_under_way(depth: int) -> list[Variable]:
    """The number of the run for each trace, beyond the first ``depth``, of a function that is run many times: the step
    of a loop, the example of a batch. The outermost comes first.
    """
    return [trace.number() for trace in _under_way.stack[depth:] if trace.each]


def traces_under_way() -> int:
    """How many traces, one inside the other, this thread is in; 0 where values are concrete."""
    return len(_under_way.stack)


@contextmanager
def kept_for_all_calls() -> Iterator[None]:
    """A context in which a function is traced once, for every call that it will have."""
    before = _under_way.outside_kept
    try:
        _under_way.outside_kept = traces_under_way()
        yield
    finally:
        _under_way.outside_kept = before


def traces_outside_kept() -> int:
    """How many traces are outside the innermost one that is kept for all calls; -1 where there is none."""
    return _under_way.outside_kept


_during_apart: list[Callable[[], AbstractContextManager[None]]] = []


def during_apart(
    manager: Callable[[], AbstractContextManager[None]],
) -> Callable[[], AbstractContextManager[None]]:
    """Have ``manager()`` entered where a context that is ``apart`` is, for the floors above."""
    _during_apart.append(manager)
    return manager


@contextmanager
def apart() -> Iterator[None]:
    """A context in which functions may do something else than outside, as layers do while they are trained.

    What is kept of a function's trace for all its calls is not for those within, which have a trace of their own.
    """
    if _under_way.apart:
        yield
        return
    with ExitStack() as stack:
        for manager in _during_apart:
            stack.enter_context(manager())
        _under_way.apart = True
        try:
            yield
        finally:
            _under_way.apart = False


def is_apart() -> bool:
    """Whether this thread is in such a context."""
    return _under_way.apart


@contextmanager
def whole() -> Iterator[None]:
    """A context in which graphs are made that are compiled, or looked at, as a whole: nothing in them is evaluated."""
    before = _under_way.whole
    try:
        _under_way.whole = True
        with evaluating(False):
            yield
    finally:
        _under_way.whole = before


def is_whole() -> bool:
    """Whether this thread makes such a graph."""
    return _under_way.whole


def refuse_leaked(variables: Iterable[Variable]) -> None:
    """Raise unless every variable belongs to a trace under way in this thread."""
    for variable in variables:
        for each in reversed(_under_way.stack):
            if id(variable) in each.known:
                break
        else:
            raise TracingError(
                f"{variable!r} belongs to a trace that is over: it was kept in a global, an attribute or a "
                "list; return it from the traced function instead"
            )


def finish(outputs: Sequence[Node], inputs: Sequence[Variable], leaves: Sequence[Any]) -> list[Any]:
    """``outputs`` with ``leaves`` for ``inputs``: arrays when all is concrete, nodes inside another trace.

    Arrays without axes come as NumPy's scalars, as NumPy gives them.
    """
    own = {id(variable) for variable in inputs}
    free = [variable for variable in free_variables(outputs) if id(variable) not in own]
    refuse_leaked(free)
    if not free and all(map(_is_concrete, leaves)):
        pairs = [(variable, leaf) for variable, leaf in zip(inputs, leaves) if variable.value is None]
        given = {variable: np.asarray(leaf, variable.dtype) for variable, leaf in pairs}
        arguments = [*given.values(), *[variable.value for variable in inputs]]
        return owned(values_of(outputs, given), [*arguments, *[node.value for node in outputs]])
    replacements: dict[Node, Node] = {}
    for variable, leaf in zip(inputs, leaves):
        replacements[variable] = as_array_node(leaf)
    with evaluating(False):
        return list(substitute(outputs, replacements, _same_value))


def known_order(outputs: Sequence[Node], leaves: Sequence[Any]) -> list[Node] | None:
    """A topological order of ``outputs`` whose values are all known, in the outermost trace; ``None`` elsewhere.

    What is made of them there needs no graph. Raises ``TracingError`` for a variable of a trace that is over.
    """
    if traces_under_way() != 1 or not all(map(_is_concrete, leaves)) or not all(map(_has_value, outputs)):
        return None
    order = topological(outputs)
    refuse_leaked([node for node in order if type(node) is Variable])
    return order


def _is_concrete(leaf: Any) -> bool:
    return not isinstance(leaf, Node)


def _has_value(node: Node) -> bool:
    return node.value is not None and node.value is not PENDING


def known_values(outputs: Sequence[Node], inputs: Sequence[Variable]) -> list[Any]:
    """The known values of ``outputs``, as ``finish`` gives them."""
    values = [force(node) for node in outputs]
    if {value.ndim for value in values} == {0}:
        return [value[()] for value in values]
    shared = [node.value for node in outputs if isinstance(node, Operation)]
    return owned(values, [*[variable.value for variable in inputs], *shared])


def _same_value(node: Operation, inputs: tuple[Node, ...]) -> Node:
    """The operation on other nodes of the same values: what is known of it stays known."""
    if all(new is old for new, old in zip(inputs, node.inputs)):
        return node
    made = apply(node.operator, inputs, node.attributes)
    if made.value is PENDING and node.value is not None:
        made.value = node.value
    return made


def owned(values: Sequence[np.ndarray], arguments: Sequence[np.ndarray]) -> list[Any]:
    """``values`` as arrays that the caller may write into: no views, none twice, no argument, none of a node."""
    taken = {id(array) for array in arguments}
    found = []
    for value in values:
        private = not value.ndim or (owns_memory(value) and value.flags.writeable and id(value) not in taken)
        taken.add(id(value))
        found.append((value if private else value.copy())[()])
    return found
