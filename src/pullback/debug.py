"""Looking into traced and compiled functions: values printed as they are computed, a debugger, the origin of NaN.

A traced function is Python that runs once, on variables; ``print`` shows these. ``debug.print`` is part of the program
instead, and shows values whenever they are computed.

>>> import numpy as np
>>> import pullback as pb
>>> @pb.jit
... def halved(x):
...     pb.debug.print("x is {}, of {size} elements", x, size=x.size)
...     return x / 2
>>> halved(np.array([1.0, 2.0]))
x is [1. 2.], of 2 elements
array([0.5, 1. ])
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any, NamedTuple

import numpy as np

from pullback.compiler.programs.nans import explain_nan, has_nan
from pullback.control.host import pure_callback
from pullback.graph import OPERATORS, Node, Operation, Variable, force, is_known
from pullback.graph.values import mode
from pullback.numpy import elementwise
from pullback.numpy.promotion import as_array_node, broadcast_to_shape
from pullback.operators.elementwise import filled
from pullback.tracing.trace import at_end, trace, variables_under_way
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import Static, Structure, flatten

__all__ = ["breakpoint", "nan", "print"]

Watcher = Callable[[tuple[Any, ...], dict[str, Any]], None]


class _Pending(NamedTuple):
    """A call that the trace under way has made."""

    token: Node
    """Zero, once the call has been made."""
    variables: dict[int, Variable]
    """Those of its trace."""


_pending = threading.local()


def _calls() -> list[_Pending]:
    return _pending.__dict__.setdefault("calls", [])  # type: ignore[no-any-return]


def print(template: str, *arguments: Any, **keywords: Any) -> None:
    """Print ``template.format(*arguments, **keywords)`` when the values are there, in each call and step of a loop.

    Arguments are trees of arrays, of any dtype; results and derivatives stay what they are. In a function that is
    compiled, or traced by any transformation, the values are printed where the program computes them: those of one
    trace in the order in which they are written, in a branch only where it is taken, in a checkpoint each time it is
    computed, under ``vmap`` one example after another. A function without results prints nothing, and equal calls of a
    transformed function may print once. Raises what ``format`` raises.

    Source: the meaning is that of ``jax.debug.print``.

    >>> import pullback as pb
    >>> def step(total, x):
    ...     print("{} + {x:.1f}", total, x=x)
    ...     return total + x, None
    >>> total, _ = pb.scan(step, 0.0, np.array([1.0, 2.0]))
    0.0 + 1.0
    1.0 + 2.0
    >>> slope = pb.jit(pb.grad(lambda x: (print("at {}", x), x * x)[1]))
    >>> float(slope(3.0))
    at 3.0
    6.0
    """
    _watched(_printer(template), arguments, keywords)


@cache
def _printer(template: str) -> Watcher:
    """One function for each template: so steps that print the same are the same steps."""

    def show(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        builtins.print(template.format(*arguments, **keywords), flush=True)

    return show


def breakpoint(*arguments: Any, **keywords: Any) -> None:
    """Stop in Python's debugger when the values are there; ``arguments`` and ``keywords`` hold them.

    It is ``breakpoint()`` of Python, so ``PYTHONBREAKPOINT`` and ``sys.breakpointhook`` say which debugger. When it is
    called is said at ``print``. To walk through a function line by line, use ``disable_jit``.
    """
    _watched(_stop, arguments, keywords)


def _stop(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    builtins.breakpoint()


def _watched(function: Watcher, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Have ``function`` called with the values, now or as part of the trace under way."""
    traces = variables_under_way()
    if not traces:
        function(arguments, keywords)
        return
    leaves, structure = flatten(
        (tuple(map(_marked, arguments)), {k: _marked(x) for k, x in keywords.items()})
    )
    nodes = [*traces[-1].values(), *(leaf for leaf in leaves if isinstance(leaf, Node))]
    if mode.evaluates and all(map(is_known, nodes)):
        # The trace is evaluated as it goes: the values are there.
        known = [np.asarray(force(leaf)) if isinstance(leaf, Node) else leaf for leaf in leaves]
        function(*structure.unflatten(known))
        return
    calls = _calls()
    # What an abandoned trace has left goes.
    calls[:] = [call for call in calls if any(call.variables is trace for trace in traces)]
    before = next((call.token for call in reversed(calls) if call.variables is traces[-1]), 0)
    # Without a variable of the trace a call of known values would be made at once, and once.
    anchor = min(traces[-1].values(), key=lambda variable: variable.size, default=0)
    given = [elementwise.stop_gradient(leaf) for leaf in (before, anchor, *leaves)]
    token = pure_callback(_caller(function, structure), np.zeros((), np.int64), *given)
    calls.append(_Pending(as_array_node(token), traces[-1]))


def _marked(x: Any) -> Any:
    """Texts are no arrays, and are part of the call."""
    return Static(x) if isinstance(x, str) else x


@cache
def _caller(function: Watcher, structure: Structure) -> Callable[..., np.ndarray]:
    def called(before: Any, anchor: Any, *leaves: Any) -> np.ndarray:
        function(*structure.unflatten(leaves))
        return np.zeros((), np.int64)

    called.__name__ = f"of debug.{function.__name__}"
    return called


def _attached(nodes: Sequence[Node], since: int) -> tuple[Node, ...]:
    """The results of a trace, each chosen by whether the calls of the trace have been made: so they are made for it.

    Derivatives of a result are chosen likewise, so the calls are made for a gradient alone, too.
    """
    calls = _calls()
    own = [call.token for call in calls if isinstance(call.token, Operation) and call.token.number > since]
    if not own:
        return tuple(nodes)
    calls[:] = [call for call in calls if not any(call.token is token for token in own)]
    made = OPERATORS["equal"](own[-1], filled(0, own[-1].dtype, ()))
    return tuple([_chosen(made, node) for node in nodes])


def _chosen(made: Node, node: Node) -> Node:
    zeros = filled(0, node.dtype, node.shape)
    found = OPERATORS["where"](broadcast_to_shape(made, node.shape), node, zeros)
    return OPERATORS["cast"](found, dtype=node.dtype, weak=True) if node.type.weak else found


at_end(_attached, first=True)


def nan(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, which raises ``NaNError`` where its result has NaN: of the first operator that gives it.

    The error tells the operator with its inputs, the line that it was written in, and the steps of loops around it. An
    operator of the backward pass (``nan(grad(f))``) has the line of the operator whose derivative it belongs to.
    Nothing is compiled; ``jit(check_nan=True)`` does the same for a compiled function.

    >>> import pullback as pb
    >>> def loss(x):
    ...     return np.sum(np.log(x))
    >>> try:
    ...     nan(loss)(np.array([1.0, -2.0]))
    ... except pb.errors.NaNError as error:
    ...     builtins.print(str(error).splitlines()[0])
    log gives NaN at (1,) for -2.0
    """

    @wraps(function)
    @shows_users_frames
    def checked(*arguments: Any, **keywords: Any) -> Any:
        leaves, _ = flatten((arguments, keywords))
        if any(isinstance(leaf, Node) for leaf in leaves):
            return function(*arguments, **keywords)
        traced = trace(function, *arguments, **keywords)
        found = traced.evaluate(leaves)
        if any(has_nan(np.asarray(leaf)) for leaf in flatten(found)[0]):
            explain_nan(traced.graph, leaves)
        return found

    return checked
