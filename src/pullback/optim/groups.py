"""Parts of the parameters with an optimiser of their own, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pullback.errors import TreeError
from pullback.numpy import zeros_like
from pullback.optim.averaged import Averaged
from pullback.optim.optimiser import LearningRate, Optimiser, check_inner, is_parameter
from pullback.tracing import Structure, flatten, static

__all__ = ["Grouped", "Groups"]

Parts = Mapping[str, Optimiser | None] | tuple[tuple[str, Optimiser | None], ...]


class Grouped(NamedTuple):
    """The state of the optimiser of the rest, and those of the parts in their order, None of what is frozen."""

    state: Any
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Groups:
    r"""One optimiser for each part of the parameters, and one for the rest.

    .. math:: p_k, s_k = \text{update}_k(g_k, s_k, p_k)

    ``parts`` names parts by the begin of their paths (``pullback.leaf_paths(model)`` lists all paths), such as
    ``{"layers.0": optim.SGD(0.001)}``; of two that fit the longer one counts. A part with None for an optimiser is
    frozen: it stays as it is, without weight decay, and its gradients are not computed. ``learning_rate`` is that of
    the rest, which ``ReduceOnPlateau`` changes if its optimiser is an ``Adjustable``. ``clip_norm`` of a ``Trainer`` is
    a limit of all parts together, without what is frozen; a loop of your own clips ``optimiser.moving(gradients)``.

    Raises ``TypeError`` for a line search and for ``Averaged``, which goes around, ``SettingError`` for what is no
    optimiser and, from ``init``, ``TreeError`` for a part that no parameter belongs to.

    >>> import numpy as np
    >>> from pullback import optim
    >>> weights = {"body": np.ones(2), "head": [np.ones(2), np.ones(1)], "table": np.ones(1)}
    >>> optimiser = Groups(optim.SGD(0.5), {"head": optim.SGD(0.25), "table": None})
    >>> optimiser.update(weights, optimiser.init(weights), weights)[0]
    {'body': array([0.5, 0.5]), 'head': [array([0.75, 0.75]), array([0.75])], 'table': array([1.])}
    """

    optimiser: Optimiser = static()
    parts: Parts = static()

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "parts", tuple(dict(self.parts).items())
        )  # which has a hash, as settings have
        for each in self._optimisers():
            if each is not None:
                check_inner("Groups", each)
            if isinstance(each, Averaged):
                raise TypeError("[Groups] Averaged is of all parameters. Put it around: Averaged(Groups(…)).")

    @property
    def learning_rate(self) -> LearningRate:
        """That of the rest."""
        return self.optimiser.learning_rate

    def init(self, parameters: Any) -> Grouped:
        """The states of all."""
        leaves, structure = flatten(parameters)
        members = self._members(leaves, structure)
        for (name, _), places in zip(dict(self.parts).items(), members[1:]):
            if not places:
                paths = [structure.paths[place] for group in members for place in group]
                raise TreeError(
                    f"[Groups] no parameter belongs to {name!r} alone. Name the begin of one of {', '.join(paths)}."
                )
        first, *others = [
            None if each is None else each.init([leaves[place] for place in places])
            for each, places in zip(self._optimisers(), members)
        ]
        return Grouped(first, tuple(others))

    def update(self, gradients: Any, state: Grouped, parameters: Any) -> tuple[Any, Grouped]:
        """The parameters and the states after a step."""
        leaves, structure = flatten(parameters)
        given, found = flatten(gradients)
        if not found.fits(structure) or not isinstance(state, Grouped):
            raise TreeError(
                "[Groups] gradients, state and parameters do not fit. Begin with state = optimiser.init(parameters), "
                "and call parameters, state = optimiser.update(gradients, state, parameters)."
            )
        states: list[Any] = [state.state, *state.parts]
        moved = list(leaves)
        for number, (each, places) in enumerate(zip(self._optimisers(), self._members(leaves, structure))):
            if each is None:
                continue
            own, slopes = ([tree[place] for place in places] for tree in (leaves, given))
            own, states[number] = each.update(slopes, states[number], own)
            for place, leaf in zip(places, own):
                moved[place] = leaf
        return structure.unflatten(moved), Grouped(states[0], tuple(states[1:]))

    def moving(self, gradients: Any) -> Any:
        """``gradients`` with zeros for what is frozen."""
        leaves, structure = flatten(gradients)
        for each, places in zip(self._optimisers(), self._members(leaves, structure)):
            if each is None:
                for place in places:
                    leaves[place] = zeros_like(leaves[place])
        return structure.unflatten(leaves)

    def _optimisers(self) -> list[Optimiser | None]:
        """That of the rest, and those of the parts."""
        return [self.optimiser, *dict(self.parts).values()]

    def _members(self, leaves: Sequence[Any], structure: Structure) -> list[list[int]]:
        """The places among ``leaves`` of what belongs to the rest and to each part."""
        names = list(dict(self.parts))
        members: list[list[int]] = [[] for _ in range(len(names) + 1)]
        for place, (path, trained) in enumerate(zip(structure.paths, structure.trained)):
            if trained and is_parameter(leaves[place]):
                fitting = [name for name in names if path == name or path.startswith(f"{name}.")]
                members[1 + names.index(max(fitting, key=len)) if fitting else 0].append(place)
        return members
