"""Differential equations, with gradients by the adjoint equation and tangents by the variational one.

>>> import numpy as np
>>> import pullback as pb
>>> def decay(y, t, rate):
...     return -rate * y
>>> times = np.linspace(0.0, 1.0, 3)
>>> odeint(decay, np.array([1.0]), times, 2.0).round(6).ravel()
array([1.      , 0.367879, 0.135335])
>>> last = lambda rate: odeint(decay, np.array([1.0]), times, rate)[-1, 0]
>>> round(float(pb.jit(pb.grad(last))(2.0)), 6)
-0.135335
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.control import custom_pullback, scan, while_loop
from pullback.errors import DTypeError, ShapeError
from pullback.graph import Node
from pullback.numpy.promotion import any_traced, as_array_node, cast, strong, where_written
from pullback.tracing.trace import trace
from pullback.tracing.trees import flatten, map_tree
from pullback.transforms import jvp, vjp

__all__ = ["odeint"]

Settings = tuple[Callable[..., Any], float, float]
"""The slope as a function of state, time and arguments, and the relative and absolute tolerances."""

A = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
C = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
"""Dormand's and Prince's pair of orders 5 and 4: stages, times, and the difference of the two."""

MOST_STEPS = 100_000
"""Steps between two times at most: what is not there then is NaN."""


def _step(slope: Callable[..., Any], y: Any, t: Any, h: Any, first: Any) -> tuple[Any, Any, Any]:
    """The state one step on, its slope there, and the error that is made."""
    stages = [first]
    new = y
    for row, c in zip(A, C):
        new = y + h * sum(a * k for a, k in zip(row, stages) if a)
        stages.append(slope(new, t + c * h))
    error = h * sum(e * k for e, k in zip(ERROR, stages) if e)
    return new, stages[-1], error


def _advanced(slope: Callable[..., Any], state: Any, end: Any, rtol: float, atol: float) -> Any:
    """The state ``(y, slope, t, h)`` at the time ``end``; NaN where steps become too small to get there."""

    def goes_on(loop: Any) -> Any:
        _, _, t, h, count = loop
        return (t < end) & (t + h > t) & (count < MOST_STEPS)

    def again(loop: Any) -> Any:
        y, first, t, h, count = loop
        last = t + h >= end
        taken = np.where(last, end - t, h)
        new, after, error = _step(slope, y, t, taken, first)
        scale = atol + rtol * np.maximum(np.abs(y), np.abs(new))
        size = np.sqrt(np.mean((error / scale) ** 2))
        good = size <= 1
        # A step into what has no slope is an error that is no number.
        factor = np.where(size >= 0, np.clip(0.9 * np.maximum(size, 1e-10) ** -0.2, 0.2, 10.0), 0.2)
        return (
            np.where(good, new, y),
            np.where(good, after, first),
            np.where(good, np.where(last, end, t + taken), t),
            # A step that was cut short says little of how long the next may be.
            np.where(last & good, np.maximum(h, taken * factor), taken * factor),
            count + 1,
        )

    y, first, t, h, _ = while_loop(goes_on, again, (*state, np.int64(0)))
    return np.where(t == end, y, np.nan), first, t, h


def _first_step(y: Any, slope: Any, span: Any, rtol: float, atol: float) -> Any:
    scale = atol + rtol * np.abs(y)
    sizes = np.sqrt(np.mean((y / scale) ** 2)), np.sqrt(np.mean((slope / scale) ** 2))
    guess = 0.01 * np.maximum(sizes[0], 1e-3) / np.maximum(sizes[1], 1e-5)
    return np.minimum(guess, np.maximum(span, 1e-12))


def _solved(settings: Settings, y0: Any, t: Any, arguments: Any) -> Any:
    function, rtol, atol = settings
    shape = y0.shape
    # Where times fall, time is counted backwards.
    way = np.where(t[-1] < t[0], -1.0, 1.0).astype(t.dtype)

    def slope(y: Any, at: Any) -> Any:
        return way * np.reshape(function(np.reshape(y, shape), way * at, *arguments), (-1,))

    y, times = np.reshape(y0, (-1,)), way * t
    first = slope(y, times[0])
    h = _first_step(y, first, times[-1] - times[0], rtol, atol)

    def onwards(state: Any, end: Any) -> Any:
        state = _advanced(slope, state, end, rtol, atol)
        return state, state[0]

    _, ys = scan(onwards, (y, first, times[0], h), times[1:])
    return np.reshape(np.concatenate([y[None], ys]), (t.shape[0], *shape))


def _by_floats(function: Callable[..., Any], arguments: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The slope as a function of state, time and the floats among ``arguments``, and these."""
    leaves, structure = flatten(arguments)
    smooth = [k for k, leaf in enumerate(leaves) if leaf.dtype.kind == "f"]

    def slope(y: Any, at: Any, *floats: Any) -> Any:
        given = dict(enumerate(leaves)) | dict(zip(smooth, floats))
        return function(y, at, *structure.unflatten(list(given.values())))

    return slope, [leaves[k] for k in smooth]


def _forward(settings: Settings, y0: Any, t: Any, arguments: Any) -> Any:
    ys = _odeint(settings, y0, t, arguments)
    return ys, (ys, t, arguments)


def _backward(settings: Settings, kept: Any, bars: Any) -> Any:
    """The adjoint equation, from the last time to the first: the state, its cotangent, and those of the arguments."""
    function, rtol, atol = settings
    ys, t, arguments = kept
    leaves, structure = flatten(arguments)
    smooth = [k for k, leaf in enumerate(leaves) if leaf.dtype.kind == "f"]
    shape, kind = ys.shape[1:], ys.dtype
    size, total = int(np.prod(shape)), sum(leaves[k].size for k in smooth)

    def joined(parts: Any) -> Any:
        return np.concatenate([np.reshape(part, (-1,)).astype(kind) for part in parts])

    def backwards(whole: Any, at: Any, arguments: Any) -> Any:
        y, bar = (np.reshape(whole[k * size : (k + 1) * size], shape) for k in (0, 1))
        of_floats, floats = _by_floats(function, arguments)
        value, pull = vjp(of_floats, y, at, *floats)
        by_state, _, *by_floats = pull(-bar)
        return joined([value, by_state, *by_floats])

    def before(state: Any, inputs: Any) -> Any:
        bar, totals = state
        y, bar_y, start, end = inputs
        whole = joined([y, bar + np.reshape(bar_y, (-1,)), totals])
        made = _odeint((backwards, rtol, atol), whole, np.stack([end, start]), (arguments,))[1]
        return (made[size : 2 * size], made[2 * size :]), None

    def along(_: Any, inputs: Any) -> Any:
        """How the loss moves with the time of an observation alone."""
        y, at, bar = inputs
        return None, np.sum(bar * function(y, at, *arguments))

    start = np.zeros_like(bars, shape=(size,)), np.zeros_like(bars, shape=(total,))
    (bar, totals), _ = scan(before, start, (ys[1:], bars[1:], t[:-1], t[1:]), reverse=True)
    bar = np.reshape(bar, shape)
    _, seen = scan(along, None, (ys[1:], t[1:], bars[1:]))
    times = np.concatenate([-np.sum(bar * function(ys[0], t[0], *arguments))[None], seen]).astype(t.dtype)
    found, place = list(leaves), 0
    for k in smooth:
        leaf = leaves[k]
        found[k] = np.reshape(totals[place : place + leaf.size], leaf.shape).astype(leaf.dtype)
        place += leaf.size
    return bar + bars[0], times, structure.unflatten(found)


def _pushforward(settings: Settings, primals: Any, tangents: Any) -> Any:
    """The variational equation beside the one that is solved: the state and its tangent."""
    function, rtol, atol = settings
    (y0, t, arguments), (y0_dot, t_dot, arguments_dot) = primals, tangents
    moved = [leaf for leaf in flatten(arguments_dot)[0] if leaf.dtype.kind == "f"]
    shape, size = y0.shape, int(np.prod(y0.shape))

    def both(whole: Any, at: Any, arguments: Any, directions: Any) -> Any:
        y, y_dot = (np.reshape(whole[k * size : (k + 1) * size], shape) for k in (0, 1))
        of_floats, floats = _by_floats(function, arguments)
        pair = jvp(lambda y, *floats: of_floats(y, at, *floats), (y, *floats), (y_dot, *directions))
        return np.concatenate([np.reshape(part, (-1,)) for part in pair])

    start = np.concatenate(
        [np.reshape(part, (-1,)) for part in (y0, y0_dot - function(y0, t[0], *arguments) * t_dot[0])]
    )
    made = _odeint((both, rtol, atol), start, t, (arguments, moved))
    ys, ys_dot = (np.reshape(made[:, k * size : (k + 1) * size], (t.shape[0], *shape)) for k in (0, 1))

    def with_time(_: Any, inputs: Any) -> Any:
        """How a solution moves with the time at which it is looked at."""
        y, y_dot, at, at_dot = inputs
        return None, y_dot + function(y, at, *arguments) * at_dot

    return ys, scan(with_time, None, (ys, ys_dot, t, t_dot))[1]


_solved.__name__ = "odeint"
_odeint = custom_pullback(_solved, static_argnums=0)
_odeint.define(_forward, _backward, _pushforward)


def odeint(
    func: Callable[..., Any], y0: Any, t: Any, *args: Any, rtol: float = 1.4e-8, atol: float = 1.4e-8
) -> Any:
    r"""The solution of :math:`\dot y = f(y, t, \dots)` at the times ``t``, beginning with ``y0`` at the first of them.

    .. math:: \dot a = -a^T \, \partial f / \partial y, \qquad \bar p = -\int a^T \, \partial f / \partial p \; dt

    ``func(y, t, *args)`` gives the slope, an array or a list like ``y0``; the result has the shape ``t.shape +
    y0.shape`` and the dtype of ``y0``. Times rise, or fall, and may be equal. Steps are chosen so that the error of
    each is below ``atol + rtol * |y|``. Reverse mode integrates the adjoint equation above back, from one time to the
    one before; forward mode integrates the tangent beside the state. Both go to any order, with respect to ``y0``,
    ``t`` and floats in ``args``, which are trees. A solution that leaves the finite numbers, for which steps become too
    small to move the time, or that needs more than 100,000 steps between two times, is NaN from there on.

    Raises ``ShapeError`` unless there are two times or more along one axis, and where the slope has another shape than
    the state; ``ValueError`` for concrete times that rise and fall (traced ones give NaN); ``DerivativeError`` for a
    derivative by a value that ``func`` closes over (give it in ``args``).

    Source: Dormand & Prince, *A family of embedded Runge-Kutta formulae*, J. Comput. Appl. Math. 6, 1980; the
    meaning is that of ``jax.experimental.ode.odeint``.

    >>> times = np.array([0.0, np.pi / 2])
    >>> abs(odeint(lambda y, t: np.stack([y[1], -y[0]]), np.array([1.0, 0.0]), times).round(6))
    array([[1., 0.],
           [0., 1.]])
    """
    y0, t, args = _arrays(y0, t, args)
    if t.ndim != 1 or t.shape[0] < 2:
        raise ShapeError(
            f"odeint: times of shape {t.shape}; give two at least, along one axis{where_written()}"
        )
    if not isinstance(t, Node):
        apart = np.diff(t)
        if not ((apart >= 0).all() or (apart <= 0).all()):
            raise ValueError(f"odeint: the times {t} rise and fall; sort them{where_written()}")

    def slope(y: Any, at: Any, *arguments: Any) -> Any:
        found = as_array_node(func(y, at, *arguments))
        if found.shape != y.shape:
            raise ShapeError(
                f"odeint: the slope has shape {found.shape}, the state {y.shape}{where_written()}"
            )
        return cast(found, y.dtype)

    def solved(y0: Any, t: Any, args: Any) -> Any:
        return _odeint((slope, float(rtol), float(atol)), y0, t, args)

    given = y0, t, args
    leaves = flatten(given)[0]
    return solved(*given) if any_traced(*leaves) else trace(solved, *given).evaluate(leaves)


def _arrays(y0: Any, t: Any, args: Any) -> tuple[Any, Any, Any]:
    """Arrays for lists and Python's numbers, the times in the dtype of the state."""

    def array(x: Any) -> Any:
        return strong(as_array_node(x)) if any_traced(x) else np.asarray(x)

    y0, t, args = array(y0), array(t), map_tree(array, args)
    if y0.dtype.kind not in "fiub":
        raise DTypeError(f"odeint: a state of {y0.dtype}; give floats{where_written()}")
    kind = y0.dtype if y0.dtype.kind == "f" else np.dtype(np.float64)
    return y0.astype(kind), t.astype(kind), args
