"""L-BFGS: quasi-Newton steps with a line search, for losses that are the same function every time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pullback.compiler.jit import jit
from pullback.counts import count
from pullback.errors import NonFiniteLoss, TreeError
from pullback.numpy import abs as abs_
from pullback.numpy import astype, concatenate, isfinite, maximum, sqrt, where
from pullback.numpy import max as max_
from pullback.numpy import sum as sum_
from pullback.optim.optimiser import check_number, map_parameters, trained_leaves
from pullback.tracing import map_tree, static
from pullback.transforms import value_and_grad

__all__ = ["LBFGS", "LBFGSState", "Minimum"]

_SUFFICIENT, _FLAT = (
    1e-4,
    0.9,
)  # the constants of the Wolfe conditions that Nocedal & Wright give for such methods


class LBFGSState(NamedTuple):
    """Where a minimisation stands; vectors hold all parameters of ``n`` numbers, one after the other."""

    loss: Any
    """The loss at the parameters; 0 before the first step."""
    gradient: Any
    """The gradient there, (n,)."""
    direction: Any
    """The line that is searched, (n,)."""
    steps: Any
    """The last steps from one point to the next, the latest in the last row, (memory, n)."""
    changes: Any
    """How each changed the gradient, (memory, n)."""
    curvatures: Any
    """The products of the two, (memory,); 0 for a row that is not in use."""
    size: Any
    """How far along the line the next trial is; 0 where the parameters themselves are to be evaluated."""
    low: Any
    """The largest size so far with enough of a descent that goes on beyond it."""
    high: Any
    """The smallest size so far without enough of a descent; 0 for none."""
    trials: Any
    """How many trials of this search were turned down."""
    failures: Any
    """How many searches in a row found nothing lower: rounding leaves nothing to be gained after two."""


class Minimum(NamedTuple):
    """What ``LBFGS.minimise`` found."""

    parameters: Any
    """The best parameters, a tree like that of the first ones."""
    loss: float
    evaluations: int
    """How many times the loss and its gradient were computed."""
    converged: bool
    """Whether no element of the gradient is larger than the tolerance."""


@dataclass(frozen=True)
class LBFGS:
    r"""L-BFGS: steps along :math:`-H g`, with :math:`H` built from the last ``memory`` steps and gradients.

    .. math:: x_{k+1} = x_k - \alpha_k H_k g_k, \quad
        H_{k+1} = \Big(I - \frac{s y^T}{s^T y}\Big) H_k \Big(I - \frac{y s^T}{s^T y}\Big) + \frac{s s^T}{s^T y}

    with :math:`s = x_{k+1} - x_k` and :math:`y = g_{k+1} - g_k`; the product with :math:`H` is the two-loop
    recursion. The size :math:`\alpha` first tried is ``learning_rate``, which should be 1; it is doubled or the
    bracket around it halved until the weak Wolfe conditions hold, with at most ``trials`` evaluations. Then
    :math:`s^T y > 0`, and the loss never rises by more than rounding.

    The loss has to be one function: full batches, no dropout. Every step evaluates it once, at ``trial(state,
    parameters)``; ``update`` takes the gradients and the loss there, and moves the parameters only to points that
    were accepted. So a step is a function without branches that compiles like those of the other optimisers.
    ``minimise`` does it all for a function of your own; a ``Trainer`` whose batches are whole data sets does too:
    its loss is that at the parameters, its metrics are of the trial. The state is arrays of fixed shapes in the
    parameters' own dtype.

    Raises ``ValueError`` for settings that are not positive.

    Source: Nocedal & Wright, *Numerical optimization*, 2006, algorithms 7.4 and 7.5; the line search: Lewis &
    Overton, *Nonsmooth optimization via quasi-Newton methods*, 2013; near the minimum: Hager & Zhang, *A new
    conjugate gradient method with guaranteed descent and an efficient line search*, 2005.

    >>> def valley(p):
    ...     return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
    >>> found = LBFGS().minimise(valley, np.array([-1.2, 1.0]))
    >>> found.parameters.round(6), found.converged
    (array([1., 1.]), True)
    """

    learning_rate: float = static(default=1.0)
    memory: int = static(default=10)
    trials: int = static(default=25)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_number("LBFGS", name, value)
            if callable(value) or not 0 < value < math.inf:
                raise ValueError(f"[LBFGS] {name} is {value}. Give a positive number.")
        for name in ("memory", "trials"):
            count("LBFGS", name, getattr(self, name))

    def init(self, parameters: Any) -> LBFGSState:
        """Nothing evaluated yet, and nothing remembered."""
        leaves = trained_leaves(parameters)
        size = sum(math.prod(np.shape(leaf)) for leaf in leaves)
        if not size:
            raise TreeError("[LBFGS] there are no parameters. Give a tree with arrays of floats.")
        dtype = np.result_type(*[getattr(leaf, "dtype", np.float64) for leaf in leaves])
        shapes: dict[str, tuple[int, ...]] = {
            "gradient": (size,),
            "direction": (size,),
            "steps": (self.memory, size),
            "changes": (self.memory, size),
            "curvatures": (self.memory,),
        }
        return LBFGSState(*[np.zeros(shapes.get(name, ()), dtype) for name in LBFGSState._fields])

    def trial(self, state: LBFGSState, parameters: Any) -> Any:
        """Where ``update`` wants the loss and its gradients next."""
        return _moved(parameters, state.size * state.direction)

    def update(
        self, gradients: Any, state: LBFGSState, parameters: Any, loss: Any
    ) -> tuple[Any, LBFGSState, Any]:
        """The parameters and the state after the ``loss`` and the ``gradients`` at the trial are known.

        The third result is the loss at the parameters, NaN if it or its gradient is not finite at the very first.
        """
        gradient = _vector(gradients, state.gradient.dtype)
        loss = astype(loss, gradient.dtype)
        slope, first_slope = _dot(gradient, state.direction), _dot(state.gradient, state.direction)
        finite = isfinite(loss) & isfinite(_dot(gradient, gradient))
        first, last = state.size == 0, state.trials >= self.trials
        # Where rounding hides how much lower a trial is, the slopes tell: a parabola through them is that low.
        rounding = 4 * np.finfo(gradient.dtype).eps * abs_(state.loss)
        hidden = (loss <= state.loss + rounding) & (slope <= (2 * _SUFFICIENT - 1) * first_slope)
        lower = finite & ((loss <= state.loss + _SUFFICIENT * state.size * first_slope) | hidden)
        # With NaN in the slope the comparison is false: the trial is turned down.
        flat = slope >= _FLAT * first_slope
        accepted = finite & (first | (lower & (flat | (last & (loss < state.loss)))))
        # After its last trial a search evaluates the best point it has once more, and takes that if it is lower.
        failed = ~accepted & last & ((state.low == 0) | (state.size == state.low))

        step, change = state.size * state.direction, gradient - state.gradient
        curvature = _dot(step, change)
        useful = accepted & (curvature > np.finfo(gradient.dtype).eps * _dot(change, change))
        steps, changes = _shifted(useful, state.steps, step), _shifted(useful, state.changes, change)
        curvatures = where(
            useful, concatenate([state.curvatures[1:], curvature.reshape(1)]), state.curvatures
        )
        curvatures = where(failed, 0.0, curvatures)

        low = where(lower, state.size, state.low)
        high = where(lower, state.high, state.size)
        size = where(high > 0, (low + high) / 2, 2 * low)
        size = where(last, low, size)
        state = LBFGSState(
            loss=where(accepted, loss, state.loss),
            gradient=where(accepted, gradient, state.gradient),
            direction=where(accepted, _direction(gradient, steps, changes, curvatures), state.direction),
            steps=steps,
            changes=changes,
            curvatures=curvatures,
            size=where(accepted, self.learning_rate, where(failed, 0.0, size)),
            low=where(accepted | failed, 0.0, low),
            high=where(accepted | failed, 0.0, high),
            trials=where(accepted | failed, 0.0, state.trials + 1.0),
            failures=where(failed, state.failures + 1.0, where(accepted & ~first, 0.0, state.failures)),
        )
        parameters = _moved(parameters, where(accepted, step, 0.0))
        return parameters, state, where(first & ~finite, np.nan, state.loss)

    def minimise(
        self,
        loss: Callable[..., Any],
        parameters: Any,
        *data: Any,
        steps: int = 1000,
        tolerance: float = 1e-6,
    ) -> Minimum:
        """Minimise ``loss(parameters, *data)``, a scalar, in one compiled loop of at most ``steps`` evaluations.

        It ends when no element of the gradient exceeds ``tolerance``, or when the dtype's rounding leaves nothing
        lower to be found. ``parameters`` is any tree of floats, and stays as it is.

        Raises ``NonFiniteLoss`` when the loss or its gradient at the first parameters is not finite.
        """

        def step(point: Any, state: LBFGSState, *data: Any) -> Any:
            value, gradients = value_and_grad(loss)(self.trial(state, point), *data)
            point, state, value = self.update(gradients, state, point, value)
            steepest = max_(abs_(state.gradient))
            ended = (steepest <= tolerance) | (state.failures >= 2)
            return point, state, where(ended, np.nan, value), value, steepest

        # A watched value that is not finite ends a run of steps: at the minimum as well as at a bad loss.
        program = jit(step, donate_argnums=(0, 1), watch=2)
        point = map_tree(np.array, parameters)
        state = self.init(point)
        (point, _, _, losses, steepest), done = program.run_steps((point, state, *data), steps)
        value = float(losses[done - 1])
        if not math.isfinite(value):
            raise NonFiniteLoss(
                "[LBFGS] the loss or its gradient at the first parameters is not finite. Begin elsewhere."
            )
        return Minimum(point, value, done, bool(steepest[done - 1] <= tolerance))


def _direction(gradient: Any, steps: Any, changes: Any, curvatures: Any) -> Any:
    """Where to go from a point with this gradient: minus its product with the inverse Hessian's estimate."""
    steepest = gradient / maximum(sqrt(_dot(gradient, gradient)), 1.0)  # at most of length 1
    used = curvatures > 0
    safe = where(used, curvatures, 1.0)
    result, shares = gradient, []
    for row in reversed(range(curvatures.shape[0])):
        share = where(used[row], _dot(steps[row], result) / safe[row], 0.0)
        result = result - share * changes[row]
        shares.append(share)
    scale = safe[-1] / where(used[-1], _dot(changes[-1], changes[-1]), 1.0)
    result = where(used[-1], scale * result, steepest)
    for row, share in enumerate(reversed(shares)):
        other = where(used[row], _dot(changes[row], result) / safe[row], 0.0)
        result = result + (share - other) * steps[row]
    # Rounding can turn an estimate round: then the way down is that of the gradient.
    return -where(_dot(gradient, result) > 0, result, steepest)


def _shifted(useful: Any, rows: Any, latest: Any) -> Any:
    return where(useful, concatenate([rows[1:], latest[None]]), rows)


def _dot(first: Any, second: Any) -> Any:
    return sum_(first * second)


def _vector(tree: Any, dtype: np.dtype[Any]) -> Any:
    """All leaves that are trained, one after the other."""
    return concatenate([astype(leaf, dtype).reshape(-1) for leaf in trained_leaves(tree)])


def _moved(parameters: Any, vector: Any) -> Any:
    """The parameters with the elements of a vector added."""
    place = 0

    def moved(leaf: Any) -> Any:
        nonlocal place
        size = math.prod(np.shape(leaf))
        part = vector[place : place + size].reshape(np.shape(leaf))
        place += size
        return leaf + astype(part, leaf.dtype)

    return map_parameters(moved, parameters)
