"""The programs of ``jit(f, shapes=…)``: traced once for all sizes of the named axes, compiled for a capacity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from pullback.compiler.named import (
    NamedCall,
    NamedShapes,
    Slices,
    capacity,
    cut,
    padded,
    sizes_known,
    slices_of,
)
from pullback.compiler.padded import refuse_unlike, with_capacity
from pullback.graph import Graph, Type
from pullback.graph.named import NamedSize
from pullback.tracing.trees import Structure

__all__ = ["AnySize", "Instance", "Sized"]


class Requested(Protocol):
    """What is to be compiled, with its graph."""

    @property
    def graph(self) -> Graph: ...

    def _replace(self, *, graph: Graph) -> Any: ...


R = TypeVar("R", bound=Requested)


@dataclass(frozen=True, eq=False)
class Instance:
    """A program for any size up to a capacity."""

    types: tuple[Type, ...]
    """Of the arguments as the program has them."""
    leaves: tuple[int | None, ...]
    """Which of them have a named axis."""
    requested: Any
    slices: Slices
    least: int
    """The least size that it is right for."""


class Sized(NamedTuple):
    """A call of such a program."""

    owner: AnySize
    structure: Structure
    instance: Instance
    call: NamedCall

    def arguments(self, leaves: Sequence[Any]) -> list[Any]:
        """What the program is given: ``leaves`` with padding, and the sizes."""
        found = [
            leaf if which is None else padded(leaf, type, type.shape[0])
            for leaf, which, type in zip(leaves, self.call.leaves, self.instance.types)
        ]
        return [*found, *map(np.int64, self.call.sizes)]

    def results(self, results: Sequence[Any]) -> list[Any]:
        """What the program has given, without padding."""
        return cut(results, self.instance.slices, self.call.sizes)

    def again(self, request: Callable[[Structure, tuple[Type, ...]], R]) -> R:
        """What is to be compiled, traced anew: for decisions that a trace is made with."""
        extents = tuple(map(capacity, self.call.sizes))
        traced = self.owner.trace(self.structure, self.call, 0, request)
        return self.owner.made(self.call, extents, *traced).requested  # type: ignore[no-any-return]


class AnySize:
    """The traces and instances of one function; ``request(structure, types)`` traces it for some types."""

    def __init__(self, function: Callable[..., Any], shapes: Mapping[str, Sequence[Any]]) -> None:
        self.shapes = NamedShapes(function, shapes)
        self._traced: dict[Any, tuple[Any, list[NamedSize]]] = {}
        self._instances: dict[Any, Instance] = {}

    def sized(
        self,
        structure: Structure,
        types: tuple[Type, ...],
        donated: Callable[[], Sequence[Sequence[int]]],
        request: Callable[[Structure, tuple[Type, ...]], R],
    ) -> Sized | None:
        """How a program for any size is called here; None where a size is so small that it has one of its own.

        Raises ``NamedAxisError`` where there is no program for any size, however small it is here.
        """
        call = self.shapes.call(structure, types)
        if not call.names:
            return None
        extents = tuple(map(capacity, call.sizes))
        key = structure, call.leaves, call.with_extents(extents)
        known = self._instances.get(key)
        if known is None:
            self.shapes.refuse_donated(call, donated(), structure.paths)
            known = self._instances[key] = self.made(call, extents, *self._for_all(structure, call, request))
        return None if min(call.sizes) < known.least else Sized(self, structure, known, call)

    def made(self, call: NamedCall, extents: Sequence[int], traced: R, sizes: list[NamedSize]) -> Instance:
        """The instance of a trace for some extents."""
        instance = with_capacity(traced.graph, sizes, extents, zeroed=True)
        requested = traced._replace(graph=instance.graph)
        slices = slices_of(traced.graph, sizes)
        return Instance(call.with_extents(extents), call.leaves, requested, slices, instance.least)

    def _for_all(
        self, structure: Structure, call: NamedCall, request: Callable[[Structure, tuple[Type, ...]], R]
    ) -> tuple[R, list[NamedSize]]:
        """The function traced for every size: twice, so that what is no function of the size shows."""
        key = structure, call.leaves, call.with_extents((0,) * len(call.sizes))
        known = self._traced.get(key)
        if known is None:
            known, (other, others) = (self.trace(structure, call, turn, request) for turn in (0, 1))
            refuse_unlike(known[0].graph, other.graph, known[1], others)
            self._traced[key] = known
        return known

    def trace(
        self,
        structure: Structure,
        call: NamedCall,
        turn: int,
        request: Callable[[Structure, tuple[Type, ...]], R],
    ) -> tuple[R, list[NamedSize]]:
        """The function traced for stand-ins of the sizes, and these."""
        sizes = call.stand_ins(turn)
        with sizes_known(sizes):
            return request(structure, call.with_extents([size.stand_in for size in sizes])), sizes
