"""Linear parts of a function: what it does to tangents at a point, and products with its Hessian."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

from pullback.errors import TreeError
from pullback.graph import Constant, Node, Variable, mark, substitute, topological
from pullback.tracing.functions import check_function
from pullback.tracing.trace import ended, finish, tracing
from pullback.tracing.tracebacks import shows_users_frames
from pullback.transforms.api import Arguments, directions_of, grad, jvp, outputs_of, zero_if_absent
from pullback.transforms.forward import tangents

__all__ = ["hvp", "linearize"]

Function = Callable[..., Any]
R = TypeVar("R")
Extra = TypeVar("Extra")


@overload
def linearize(
    function: Callable[..., R], *primals: Any, has_aux: Literal[False] = False
) -> tuple[R, Callable[..., R]]: ...


@overload
def linearize(
    function: Callable[..., tuple[R, Extra]], *primals: Any, has_aux: Literal[True]
) -> tuple[R, Callable[..., R], Extra]: ...


@shows_users_frames
def linearize(function: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    r"""The value at ``primals`` and the pushforward there, which maps tangents of the arguments to the result's.

    .. math:: \dot x \mapsto \frac{\partial f}{\partial x} \dot x

    Returns ``(value, push)``, or ``(value, push, extra)`` with ``has_aux``, where the function returns ``(value,
    extra)``. ``push(*tangents)`` takes a tree for each argument and returns one like the value. ``function`` is called
    once, and what tangents need of its values is computed and kept, so each call of ``push`` takes the linear part
    alone. The tangent of an integer result is zero.

    Raises ``TreeError`` for tangents of another structure, ``DerivativeError`` for other shapes, or where an argument
    holds integers.

    Source: the meaning is that of ``jax.linearize``.

    >>> import numpy as np
    >>> value, push = linearize(lambda x: np.sin(x) * x, 2.0)
    >>> print(f"{value:.6f} {push(1.0):.6f} {push(10.0):.6f}")
    1.818595 0.077004 0.770038
    """
    check_function("linearize", function)
    inside = Arguments("linearize", primals, range(len(primals)))
    since = mark()
    with tracing(inside.variables, inside.made), inside.evaluated():
        found = outputs_of(function(*inside.replaced), has_aux, function)
    every = ended([*found.outputs, *found.extras], since)
    outputs = every[: len(found.outputs)]
    moving = [Variable(x.type, "tangent") for x in inside.variables]
    moved = tangents(outputs, inside.variables, moving)
    whole = [zero_if_absent(tangent, output) for tangent, output in zip(moved, outputs)]
    known, linear, kept = _split(whole, moving)
    finished = finish([*every, *known], inside.variables, inside.leaves)
    residuals = finished[len(every) :]

    @shows_users_frames
    def push(*given: Any) -> Any:
        if len(given) != len(primals):
            raise TreeError(f"linearize: {len(primals)} primals and {len(given)} tangents; give one for each")
        directions = directions_of("linearize: the tangent", inside, given)
        results = finish(linear, [*kept, *moving], [*residuals, *directions])
        return found.structure.unflatten(results)

    value = found.structure.unflatten(finished[: len(outputs)])
    return (value, push, *found.extra(finished[len(outputs) : len(every)]))


def _split(
    outputs: Sequence[Node], moving: Sequence[Variable]
) -> tuple[list[Node], tuple[Node, ...], list[Variable]]:
    """What ``outputs`` need that does not depend on ``moving``; the rest, with variables for it; these variables."""
    order = topological(outputs)
    linear = {id(variable) for variable in moving}
    for node in order:
        if any(id(child) in linear for child in node.inputs):
            linear.add(id(node))
    used = [*outputs, *(child for node in order if id(node) in linear for child in node.inputs)]
    known = {id(x): x for x in used if id(x) not in linear and not isinstance(x, Constant)}
    kept = {node: Variable(node.type, "residual") for node in known.values()}
    return list(kept), substitute(outputs, dict(kept)), list(kept.values())


@shows_users_frames
def hvp(
    function: Function, primals: Sequence[Any], tangents_in: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    r"""The gradient of a scalar function at ``primals``, and the product of its Hessian with ``tangents_in``.

    .. math:: (\nabla f(x), \; \nabla^2 f(x) \, \dot x)

    ``primals`` and ``tangents_in`` are tuples with a tree for each argument, and so are both results, which come
    together at a few times the cost of ``function``; the Hessian is never made. With ``has_aux`` the function returns
    ``(value, extra)`` and the result is ``(gradient, product, extra)``.

    Raises ``DerivativeError`` when the result is no float scalar or an argument holds integers, ``TreeError`` for
    tangents of another structure.

    Source: Pearlmutter, *Fast exact multiplication by the Hessian*, Neural Computation 6, 1994.

    >>> import numpy as np
    >>> (slope,), (product,) = hvp(lambda x: x[0] ** 2 * x[1], (np.array([3.0, 5.0]),), (np.array([1.0, 0.0]),))
    >>> slope, product
    (array([30.,  9.]), array([10.,  6.]))
    """
    check_function("hvp", function)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents_in, (tuple, list)):
        raise TreeError(
            "hvp: primals and tangents are tuples with an entry for each argument: hvp(f, (x,), (v,))"
        )
    found: tuple[Any, ...] = jvp(
        grad(function, tuple(range(len(primals))), has_aux), primals, tangents_in, has_aux
    )  # type: ignore[call-overload]
    return found
