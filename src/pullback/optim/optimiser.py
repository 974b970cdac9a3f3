"""What an optimiser is: settings, and two functions without side effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from pullback.errors import DTypeError, SettingError, ShapeError, TreeError
from pullback.graph import Node, is_float, is_half, is_known
from pullback.numpy import abs as abs_
from pullback.numpy import astype, where
from pullback.tracing import flatten, map_tree, new_aligned

__all__ = [
    "Counted",
    "Counting",
    "LearningRate",
    "LineSearch",
    "Optimiser",
    "check_below_one",
    "check_gradients",
    "check_inner",
    "check_not_negative",
    "check_number",
    "check_state",
    "decayed",
    "is_parameter",
    "map_parameters",
    "moving_mean",
    "rate_at",
    "scalar_for",
    "settled",
    "trained_leaves",
    "widened",
    "zeros_for",
]

LearningRate = float | Callable[[Any], Any]
"""A number, or a schedule: a function of the number of steps done, such as those of ``optim.schedules``."""


class Optimiser(Protocol):
    """Anything with a learning rate, ``init`` and ``update``; all else are trees of floats.

    ``update`` works on NumPy arrays and on traced values alike: it can stand in a user's own compiled step.
    """

    @property
    def learning_rate(self) -> LearningRate:
        """The size of a step, or the schedule of it."""

    def init(self, parameters: Any) -> Any:
        """The state before the first step: arrays of its own, which may be donated."""

    def update(self, gradients: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
        """The parameters and the state after a step; trees of the same structures as before."""


@runtime_checkable
class LineSearch(Protocol):
    """An optimiser that compares losses: it says where it wants the next one, and moves once it is low enough."""

    @property
    def learning_rate(self) -> LearningRate:
        """The size that is tried first."""

    def init(self, parameters: Any) -> Any:
        """The state before the first step: arrays of its own, which may be donated."""

    def trial(self, state: Any, parameters: Any) -> Any:
        """The parameters at which the loss and its gradients are wanted next."""

    def update(self, gradients: Any, state: Any, parameters: Any, loss: Any) -> tuple[Any, Any, Any]:
        """The parameters, the state and the loss at these parameters, once those at the trial are known."""


class Counted(NamedTuple):
    """Steps done (a ``float64`` without axes), and the state of an optimiser that does not count them itself."""

    step: Any
    state: Any


class Counting:
    """The base of optimisers whose formula does not know the number of the step: a schedule has to.

    Subclasses are frozen dataclasses with ``learning_rate``, ``_begin`` and ``_step``. Only where the learning
    rate is a schedule is the state a ``Counted`` one.
    """

    learning_rate: LearningRate

    def init(self, parameters: Any) -> Any:
        """The state before the first step: arrays of its own, which may be donated."""
        state = self._begin(parameters)
        return Counted(np.zeros(()), state) if callable(self.learning_rate) else state

    def update(self, gradients: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
        """The parameters and the state after a step."""
        check_gradients(type(self).__name__, gradients, parameters)
        if not callable(self.learning_rate):
            return self._step(self.learning_rate, gradients, state, parameters)
        step, inner = state
        parameters, inner = self._step(self.learning_rate(step), gradients, inner, parameters)
        return parameters, Counted(step + 1.0, inner)

    def _begin(self, parameters: Any) -> Any:
        """The state before the first step, without a count."""
        raise NotImplementedError

    def _step(self, rate: Any, gradients: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
        """The parameters and the state after a step of size ``rate``."""
        raise NotImplementedError


def rate_at(learning_rate: LearningRate, step: Any) -> Any:
    """The learning rate after ``step`` steps.

    >>> rate_at(0.1, 3), rate_at(lambda step: 0.1 / (1 + step), 3)
    (0.1, 0.025)
    """
    return learning_rate(step) if callable(learning_rate) else learning_rate


def scalar_for(value: Any, like: Any) -> Any:
    """``value`` as a factor of ``like`` that leaves its dtype: numbers do, other scalars are cast.

    >>> scalar_for(0.1, np.ones(1, np.float32)), scalar_for(np.array(0.5), np.ones(1, np.float32)).dtype
    (0.1, dtype('float32'))
    """
    return value if type(value) in (int, float) else astype(value, like.dtype)


def decayed(gradients: Any, parameters: Any, weight_decay: float) -> Any:
    r"""The gradients of the loss with :math:`\frac{\lambda}{2} \lVert p \rVert^2` added: :math:`g + \lambda p`.

    >>> decayed(np.array([1.0]), np.array([2.0]), 0.5)
    array([2.])
    """
    if not weight_decay:
        return gradients
    return map_parameters(lambda g, p: g + weight_decay * p, gradients, parameters)


def moving_mean(decay: float, mean: Any, value: Any) -> Any:
    r"""The exponential moving mean after another value, :math:`\beta m + (1 - \beta) x`, ``settled``.

    >>> moving_mean(0.75, np.array([1.0]), np.array([3.0]))
    array([1.5])
    """
    return settled(decay * mean + (1 - decay) * value)


def settled(values: Any) -> Any:
    """``values`` with 0 in place of what is smaller than the smallest normal number.

    What decays, such as the mean of gradients that have become zero, would come down to subnormal numbers and stay
    there: rounding keeps them from zero, and processors take a hundred times as long for each.

    >>> settled(np.array([1e-310, -2.0]))
    array([ 0., -2.])
    """
    return where(abs_(values) < np.finfo(values.dtype).tiny, 0.0, values)


def is_parameter(leaf: Any) -> bool:
    """Whether a leaf can be trained: floats can, the integers and masks beside them cannot.

    Raises ``DTypeError`` for complex numbers, whose gradient is no direction to go in.
    """
    if hasattr(leaf, "dtype") and leaf.dtype.kind == "c":
        raise DTypeError(
            f"optimisers train floats, and a parameter is {leaf.dtype}; keep its real and its imaginary part as two "
            "arrays"
        )
    return not hasattr(leaf, "dtype") or is_float(leaf.dtype)


def trained_leaves(tree: Any) -> list[Any]:
    """The leaves of ``tree`` that are trained: floats, outside the fields made by ``pb.buffer()``.

    >>> trained_leaves({"weight": np.ones(1), "steps": np.zeros(1, int)})
    [array([1.])]
    """
    leaves, structure = flatten(tree)
    return [leaf for leaf, trained in zip(leaves, structure.trained) if trained and is_parameter(leaf)]


def map_parameters(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """``map_tree`` for the leaves of ``tree`` that are trained; the others stay what they are.

    Leaves of 16 bits go to ``function`` as ``float32``, and what it gives for one of ``tree`` is rounded at the end: a
    step has one rounding, and numbers such as Adam's epsilon, which are zero in ``float16``, mean something.
    """
    trained = iter(flatten(tree)[1].trained)

    def visit(leaf: Any, *more: Any) -> Any:
        if not (next(trained) and is_parameter(leaf)):
            return leaf
        made = function(*map(widened, (leaf, *more)))
        return astype(made, leaf.dtype) if _is_half(leaf) else made

    try:
        return map_tree(visit, tree, *others)
    except TreeError as error:
        raise TreeError(f"{error}; gradients, state and parameters go together, in this order") from None


def _is_half(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and is_half(leaf.dtype)


def widened(leaf: Any) -> Any:
    """A leaf of 16 bits in the dtype that is computed in; any other as it is."""
    return astype(leaf, np.float32) if _is_half(leaf) else leaf


def zeros_for(parameters: Any) -> Any:
    """Zeros of each parameter's shape and dtype, as arrays even where a parameter is a NumPy scalar.

    Those for a parameter of 16 bits are of ``float32``: running means would stand still in 16. A leaf that is not
    trained has one zero of its dtype: a fixed table needs no running means.
    """
    trained = iter(flatten(parameters)[1].trained)

    def zeros(leaf: Any) -> Any:
        whole = next(trained) and is_parameter(leaf)
        dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
        dtype = np.dtype(np.float32) if whole and is_half(dtype) else dtype
        return new_aligned(np.shape(leaf), dtype, np.zeros) if whole else np.zeros((), dtype)

    return map_tree(zeros, parameters)


def check_not_negative(optimiser: str, **settings: LearningRate) -> None:
    """Raise ``ValueError`` for a setting below zero, infinite or NaN, ``SettingError`` for no number.

    Schedules pass, and what is not known while it is traced.

    >>> check_not_negative("SGD", learning_rate="0.1")
    Traceback (most recent call last):
    pullback.errors.SettingError: [SGD] learning_rate is '0.1', a str. Give a number, such as 0.1. ...
    """
    for name, value in settings.items():
        check_number(optimiser, name, value)
        unknown = isinstance(value, Node) and not is_known(value)
        if not (callable(value) or unknown or 0 <= value < np.inf):
            raise ValueError(f"[{optimiser}] {name} is {value}. Give a finite number that is not negative.")


def check_state(optimiser: str, state: Any, kind: type) -> None:
    """Raise ``TreeError`` unless a state is what ``init`` of this optimiser makes.

    >>> from pullback.optim import AdamState
    >>> check_state("Adam", None, AdamState)
    Traceback (most recent call last):
    pullback.errors.TreeError: [Adam] the state is a NoneType. Begin with state = optimiser.init(parameters), ...
    """
    if not isinstance(state, kind):
        raise TreeError(
            f"[{optimiser}] the state is a {type(state).__name__}. Begin with state = optimiser.init(parameters), and "
            "call parameters, state = optimiser.update(gradients, state, parameters)."
        )


def check_gradients(optimiser: str, gradients: Any, parameters: Any) -> None:
    """Raise ``ShapeError`` for a gradient of another shape than its parameter, which would be repeated along axes.

    >>> check_gradients("SGD", {"w": np.ones((5, 2))}, {"w": np.ones(2)})
    Traceback (most recent call last):
    pullback.errors.ShapeError: [SGD] the gradient of w has shape (5, 2), and the parameter (2,). Give one gradient ...
    """
    leaves, structure = flatten(parameters)
    found, form = flatten(gradients)
    if form.paths != structure.paths:  # what goes through both trees says how they differ
        return
    for path, leaf, gradient, trained in zip(structure.paths, leaves, found, structure.trained):
        if trained and is_parameter(leaf) and np.shape(gradient) != np.shape(leaf):
            raise ShapeError(
                f"[{optimiser}] the gradient of {path or 'the parameter'} has shape {tuple(np.shape(gradient))}, and "
                f"the parameter {tuple(np.shape(leaf))}. Give one gradient for each parameter: that of the mean over a "
                "batch, say, or the mean of the gradients of its examples."
            )


def check_inner(wrapper: str, optimiser: Any) -> None:
    """Raise unless ``optimiser`` is one that another can be around: no class of them, and none that compares losses.

    >>> from pullback import optim
    >>> check_inner("Lazy", optim.SGD)
    Traceback (most recent call last):
    pullback.errors.SettingError: [Lazy] it is given the class SGD. Make an optimiser of it: optim.SGD(…). ...
    """
    if isinstance(optimiser, type):
        name = optimiser.__name__
        raise SettingError(
            f"[{wrapper}] it is given the class {name}. Make an optimiser of it: optim.{name}(…)."
        )
    if isinstance(optimiser, LineSearch):
        name = type(optimiser).__name__
        raise TypeError(f"[{wrapper}] {name} searches along lines. Give it full batches instead.")
    if not all(hasattr(optimiser, name) for name in ("learning_rate", "init", "update")):
        raise SettingError(
            f"[{wrapper}] it is given {optimiser!r:.60}, a {type(optimiser).__name__}. Give an optimiser such as "
            "optim.SGD(0.01)."
        )


def check_number(optimiser: str, name: str, value: Any) -> None:
    """Raise ``SettingError`` for what is no number, no traced one and no schedule."""
    if isinstance(value, type):
        raise SettingError(
            f"[{optimiser}] {name} is the class {value.__name__}. Give a number, or make a schedule of it: "
            f"{value.__name__}(…)."
        )
    if value is None or isinstance(value, (str, bytes, dict, list, tuple)):
        raise SettingError(
            f"[{optimiser}] {name} is {value!r:.60}, a {type(value).__name__}. Give a number, such as 0.1."
        )


def check_below_one(optimiser: str, **settings: float) -> None:
    """Raise ``ValueError`` for a setting of one or more: a running mean that would never move."""
    for name, value in settings.items():
        if not value < 1:
            raise ValueError(f"[{optimiser}] {name} is {value}. Give a number below 1.")
