"""Steps that leave alone what has no gradient: rows of tables of which a batch touches a few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.counts import count
from pullback.numpy import any as any_
from pullback.numpy import broadcast_to, where
from pullback.optim.groups import Groups
from pullback.optim.optimiser import LearningRate, Optimiser, check_inner, map_parameters
from pullback.tracing import flatten, static

__all__ = ["Lazy"]


@dataclass(frozen=True)
class Lazy:
    r"""Another optimiser that leaves the rows of tables alone whose gradient is zero, and what it keeps of them.

    .. math:: p_r, s_r = \begin{cases} \text{the other optimiser's} & \text{if } g_r \ne 0 \\
        p_r, s_r & \text{otherwise} \end{cases}

    for each row :math:`r` of a parameter of two axes or more with at least ``rows`` rows, its gradient :math:`g` and
    its part :math:`s` of the state. This is *not* what the other optimiser does by itself: momentum does not go on
    moving a word that the batch has not, running means do not fade, weight decay waits, and where the number of the
    step counts it is that of all steps. In return a compiled step that is given a table it may overwrite reads and
    writes the touched rows of the table and of the state alone, for any learning rate: what grows with the table is a
    number for each row, which is cleared. Other parameters take the other optimiser's steps as they are.

    Raises ``ValueError`` for ``rows`` below 1, ``TypeError`` for a line search, for ``Groups`` and for what is no
    optimiser.

    >>> import numpy as np
    >>> from pullback import optim
    >>> optimiser = Lazy(optim.SGD(0.5, momentum=0.9), rows=3)
    >>> table = np.zeros((3, 2))
    >>> state = optimiser.init(table)
    >>> for row in (0, 2):
    ...     gradient = np.zeros((3, 2))
    ...     gradient[row] = 1.0
    ...     table, state = optimiser.update(gradient, state, table)
    >>> table
    array([[-0.5, -0.5],
           [ 0. ,  0. ],
           [-0.5, -0.5]])
    """

    optimiser: Optimiser = static()
    rows: int = static(default=1000)

    def __post_init__(self) -> None:
        count("Lazy", "rows", self.rows)
        check_inner("Lazy", self.optimiser)
        if isinstance(self.optimiser, Groups):
            raise TypeError(
                "[Lazy] Groups has a state for each part. Put Lazy into it, around the tables' optimiser."
            )

    @property
    def learning_rate(self) -> LearningRate:
        """That of the other optimiser."""
        return self.optimiser.learning_rate

    def init(self, parameters: Any) -> Any:
        """The other optimiser's state."""
        return self.optimiser.init(parameters)

    def update(self, gradients: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
        """The parameters and the state after a step."""
        moved, after = self.optimiser.update(gradients, state, parameters)
        structure = flatten(parameters)[1]

        def lazy(old: Any, new: Any) -> Any:
            # By the new leaves: what is not trained stays, and a state keeps its own dtype beside 16 bits.
            return map_parameters(self._chosen, new, old, parameters, gradients)

        return lazy(parameters, moved), _alike(structure, state, after, lazy)

    def _chosen(self, new: Any, old: Any, parameter: Any, gradient: Any) -> Any:
        """The new rows where the gradient is not zero, the old ones elsewhere."""
        # A count of steps is no part of a table, though a tree of one leaf has its structure as well.
        if parameter.ndim < 2 or len(parameter) < self.rows or np.shape(new) != parameter.shape:
            return new
        touched = any_(gradient != 0, axis=tuple(range(1, parameter.ndim)), keepdims=True)
        return where(broadcast_to(touched, parameter.shape), new, old)


def _alike(structure: Any, old: Any, new: Any, function: Callable[[Any, Any], Any]) -> Any:
    """``new`` with ``function(old, new)`` for each of its parts that are trees like the parameters."""
    if flatten(new)[1] == structure:
        return function(old, new)
    if not isinstance(new, tuple):
        return new
    parts = [_alike(structure, *pair, function) for pair in zip(old, new)]
    return type(new)(*parts) if hasattr(new, "_fields") else tuple(parts)
