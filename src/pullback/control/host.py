"""``host_call``: a function of the host, in Python or at an address, that a compiled program calls on arrays.

    results = function(inputs)             results of the types that were promised

Nobody looks into the function, so it has no derivative and no lowering. Compiled, the one thread that called the
program calls it, between the phases of chunks; the others wait. What the code refers to is the number of the call;
which function that is, the program is told when it is loaded, so a program from the code cache may call another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, NoReturn

import numpy as np

from pullback.control.scan import make_scan
from pullback.errors import CallbackError, DerivativeError, PullbackError, TreeError
from pullback.graph import (
    Graph,
    Node,
    Operation,
    Operator,
    Routine,
    TupleType,
    Type,
    Variable,
    apply,
    constant,
    every_node,
    regions,
    result,
    results,
    substitute,
    with_regions,
)
from pullback.graph.node import kind_of
from pullback.numpy.promotion import result_dtype, where_written
from pullback.operators.batching import all_batched, batch_size, is_batched
from pullback.operators.elementwise import filled
from pullback.operators.shapes import broadcast
from pullback.tracing.trace import finish, leaf_type
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import Structure, difference, flatten

__all__ = [
    "HostFunction",
    "Reference",
    "as_host_call",
    "host_call",
    "host_functions",
    "pure_callback",
    "with_host_calls",
]

METHODS = ("sequential", "expand_dims", "broadcast_all")
"""How a function of one example is called for a batch."""


class HostFunction:
    """What a ``host_call`` calls: ``call(arrays, types)`` gives arrays of just these types.

    The arrays are the function's own: a traceback, or the function itself, may keep them.
    """

    routine: Routine | None = None
    """What the compiled program calls in its place."""

    def call(self, arrays: Sequence[np.ndarray], types: Sequence[Type]) -> list[np.ndarray]:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class UsersFunction(HostFunction):
    """A Python function of a user, with the structures of its arguments and results."""

    name: str
    function: Callable[..., Any]
    arguments: Structure
    results: Structure

    def call(self, arrays: Sequence[np.ndarray], types: Sequence[Type]) -> list[np.ndarray]:
        """Call the function on arrays that it cannot write to, and check what it gives."""
        for array in arrays:
            array.flags.writeable = False
        made = self.function(*self.arguments.unflatten([array[()] for array in arrays]))
        try:
            leaves, structure = flatten(made)
        except PullbackError as error:
            raise CallbackError(f"{self.name}: the result must be arrays or trees of them: {error}") from None
        if not structure.fits(self.results):
            raise CallbackError(
                f"{self.name}: the result has another structure than was promised: "
                f"{difference(self.results, structure)}"
            )
        return [
            self._fitting(leaf, type, path) for leaf, type, path in zip(leaves, types, self.results.paths)
        ]

    def _fitting(self, leaf: Any, promised: Type, path: str) -> np.ndarray:
        what = f"{self.name}: the result at {path}" if path else f"{self.name}: the result"
        try:
            found = leaf_type(leaf)
        except PullbackError as error:
            raise CallbackError(f"{what}: {error}") from None
        if found.shape != promised.shape:
            raise CallbackError(f"{what} is {found}; promised was {promised}")
        fits = result_dtype(found, promised) if found.weak else found.dtype
        if fits != promised.dtype:
            raise CallbackError(
                f"{what} is {found}; promised was {promised}: cast it with .astype(np.{promised.dtype}), or promise "
                f"{found.dtype}"
            )
        return np.array(leaf, promised.dtype, order="C")

    def _identity(self) -> tuple[Any, ...]:
        function, who = self.function, [id(self.function)]
        if isinstance(function, MethodType):  # which is made anew whenever it is looked up
            who = [id(function.__self__), id(function.__func__)]
        return *who, self.arguments, self.results

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UsersFunction) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Reference(HostFunction):
    """An operator that has no lowering, computed by its reference, or in compiled programs by its routine."""

    operator: Operator
    attributes: tuple[tuple[str, Any], ...]
    kinds: Any
    """What tells attributes from others that are equal to them: 1 from 1.0, 0.0 from -0.0."""
    routine: Routine | None = None

    def call(self, arrays: Sequence[np.ndarray], types: Sequence[Type]) -> list[np.ndarray]:
        tables = 0 if self.routine is None else len(self.routine.tables)
        with np.errstate(all="ignore"):
            made = self.operator.reference(*arrays[: len(arrays) - tables], **dict(self.attributes))
        several = list(made) if isinstance(made, (list, tuple)) else [made]
        if self.routine is not None and self.routine.workspace:
            several.append(np.zeros(self.routine.workspace))
        found = [np.asarray(value, type.dtype) for value, type in zip(several, types, strict=True)]
        for value, type in zip(found, types):
            if value.shape != type.shape:
                raise CallbackError(
                    f"{self.operator.name}: its reference gives {list(value.shape)}, its type rule {type}"
                )
        return found

    def __repr__(self) -> str:
        return self.operator.name


@shows_users_frames
def pure_callback(
    function: Callable[..., Any], result_types: Any, *arguments: Any, vmap_method: str = "sequential"
) -> Any:
    r"""``function(*arguments)``, called in Python with NumPy arrays, also from inside a compiled program.

    For what cannot be traced: another library, a table on disk, a loop over strings. ``result_types`` is a tree like
    the function's result, with an array, or a ``Type``, of the right shape and dtype in each place; what stands in it
    does not matter. Arguments are trees of arrays. The function is given read-only copies.

    It must be pure: equal arguments give equal results, and nothing else happens. So it may be called once for several
    equal calls, more often than is written (a checkpoint computes again), already while tracing if all arguments are
    known then, or never if nobody needs the result. In a loop it is called in each step in which its arguments change,
    of branches only in the one that is taken. It is called by the thread that called the program, an exception passes
    through the program as it is, and what was donated is whole then.

    ``vmap_method`` says how a batch is treated: ``"sequential"`` calls the function for one example after another;
    ``"expand_dims"`` calls it once, with the batch axis in front of every argument and result, of length 1 in arguments
    that are the same for all examples; ``"broadcast_all"`` repeats these. Where a branch is chosen for each example by
    itself, all branches are computed for all examples, and the function is called for all.

    There is no derivative: give one with ``custom_pullback`` or ``custom_pushforward``.

    Raises ``CallbackError`` where the result is not what was promised, ``DerivativeError`` where a derivative is asked
    for, ``TreeError`` for another ``vmap_method``.

    Source: the meaning is that of ``jax.pure_callback``.

    >>> import pullback as pb
    >>> @pb.jit
    ... def scaled(x):
    ...     order = pure_callback(np.argsort, np.empty(3, np.int64), x)
    ...     return x[order] * 2
    >>> scaled(np.array([3.0, 1.0, 2.0]))
    array([2., 4., 6.])

    A derivative of one's own:

    >>> @pb.custom_pullback
    ... def cube_root(x):
    ...     return pure_callback(np.cbrt, x, x)
    >>> _ = cube_root.define(lambda x: (y := cube_root(x), y), lambda y, bar: (bar / (3 * y * y),))
    >>> float(pb.jit(pb.grad(cube_root))(8.0))
    0.08333333333333333
    """
    if vmap_method not in METHODS:
        raise TreeError(
            f"pure_callback: there is no vmap_method {vmap_method!r}; give one of {', '.join(METHODS)}{where_written()}"
        )
    name = f"pure_callback {getattr(function, '__name__', type(function).__name__)}"
    promised, out = flatten(result_types)
    types = [
        leaf_type(leaf, f"{name}: the promised result {path}".rstrip())
        for leaf, path in zip(promised, out.paths)
    ]
    leaves, structure = flatten(arguments)
    given = [leaf_type(leaf, f"{name}: argument {path}") for leaf, path in zip(leaves, structure.paths)]
    variables = [Variable(type, "argument") for type in given]
    node = host_call(
        *variables,
        function=UsersFunction(name, function, structure, out),
        promised=TupleType.of(Type(type.dtype, type.shape) for type in types),
        method=vmap_method,
    )
    return out.unflatten(finish(results(node), variables, leaves))


# -- the operator


def _type_rule(*types: Type, function: HostFunction, promised: TupleType, method: str) -> Type:
    return promised


def _reference(
    *arrays: np.ndarray, function: HostFunction, promised: TupleType, method: str
) -> list[np.ndarray]:
    return function.call([np.array(array) for array in arrays], promised.types)


def _refuse(node: Operation, *directions: Any) -> NoReturn:
    raise DerivativeError(
        f"{node.attributes['function']}: a derivative is asked for of what is called out of the program, and nobody "
        f"can look into it; give it a rule with custom_pullback or custom_pushforward, or stop it with stop_gradient"
        f"{where_written()}"
    )


def _batch(node: Operation, inputs: Sequence[Node]) -> Sequence[Node]:
    """As ``pure_callback`` says of the method."""
    method, size = node.attributes["method"], batch_size(inputs, node.inputs)
    if method == "sequential":
        return _one_after_another(node, inputs, size)
    if method == "broadcast_all":
        inputs = all_batched(inputs, node.inputs)
    else:
        inputs = [x if is_batched(x, one) else _in_front(x) for x, one in zip(inputs, node.inputs)]
    promised = TupleType.of(
        type.with_shape((size, *type.shape)) for type in node.attributes["promised"].types
    )
    return results(host_call(*inputs, **{**node.attributes, "promised": promised}))


def _in_front(x: Node) -> Node:
    return broadcast(x, shape=(1, *x.shape), axes=tuple(range(1, x.ndim + 1)))


def _one_after_another(node: Operation, inputs: Sequence[Node], size: int) -> Sequence[Node]:
    if size == 0:
        promised: TupleType = node.attributes["promised"]
        return [filled(0, type.dtype, (0, *type.shape)) for type in promised.types]
    differs = [is_batched(x, one) for x, one in zip(inputs, node.inputs)]
    given = [Variable(one.type, "example") if d else x for x, one, d in zip(inputs, node.inputs, differs)]
    made = results(host_call(*given, **node.attributes))
    examples = [x for x, d in zip(given, differs) if isinstance(x, Variable) and d]
    many = [x for x, d in zip(inputs, differs) if d]
    return make_scan([], examples, [], made, [], many, size, False)


host_call = Operator(  # type: ignore[arg-type]
    "host_call",
    _type_rule,
    _reference,
    _refuse,
    _batch,
    None,
    (),
    pushforward=_refuse,
)
"""See the head of this file."""


def host_functions(nodes: Iterable[Node]) -> dict[HostFunction, int]:
    """A number for each function that the nodes call, in the order of the nodes.

    Code says by such a number which function it calls.
    """
    called = (
        node.attributes["function"]
        for node in nodes
        if isinstance(node, Operation) and node.operator is host_call
    )
    return {function: number for number, function in enumerate(dict.fromkeys(called))}


# -- operators without a lowering


def _is_outside(node: Node) -> bool:
    """Whether nobody knows how to compute an operation inside the program."""
    if not isinstance(node, Operation) or node.operator.lower is not None or regions(node):
        return False
    made = node.operator.stored  # the compiler makes kernels of it by itself
    return node.operator not in (host_call, result) and not made


def as_host_call(node: Operation, inputs: Sequence[Node], routine: Routine | None = None) -> Operation:
    """The call of a node's reference, or of its ``routine``, with the node's results."""
    items = tuple(sorted(node.attributes.items()))
    promised = node.type.types if isinstance(node.type, TupleType) else (node.type,)
    if routine is not None and routine.workspace:
        promised = (*promised, Type(np.dtype(np.uint8), (routine.workspace,)))
    return host_call(
        *inputs,
        *map(constant, () if routine is None else routine.tables),
        function=Reference(node.operator, items, kind_of(items), routine),
        promised=TupleType.of(promised),
        method="sequential",
    )


def with_host_calls(graph: Graph) -> Graph:
    """``graph`` where operators that have no lowering are calls of their references, or routines.

    >>> from pullback.graph import format_graph
    >>> from pullback.operators.batching import batch_first
    >>> ranks = Operator(
    ...     "ranks", lambda x: x, lambda x: x.argsort().argsort().astype(x.dtype), None, batch_first, None, ()
    ... )
    >>> x = Variable(Type(np.dtype(np.float32), (3,)), "x")
    >>> print(format_graph(with_host_calls(Graph((x,), (ranks(x + x),))), sources=False))
    input  %0 x: float32[3]
    %1 = add(%0, %0): float32[3]
    %2 = host_call(%1, function=ranks, method=sequential, promised=(float32[3])): (float32[3])
    %3 = result(%2, index=0): float32[3]
    output %3
    """
    if not any(map(_is_outside, every_node(graph))):
        return graph

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node:
        if not _is_outside(node):
            return apply(node.operator, inputs, with_regions(node.attributes, with_host_calls))
        makes = node.operator.routine
        routine = None if makes is None else makes(*(x.type for x in inputs), **node.attributes)
        called = as_host_call(node, inputs, routine)
        return called if isinstance(node.type, TupleType) else result(called, index=0)

    return replace(graph, outputs=substitute(graph.outputs, {}, rebuild))
