"""The programs of ``jit(f, shapes=…)``: traced once for all sizes of the named axes, compiled for a capacity."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pullback.compiler.jit.at_size import unlike_at
from pullback.compiler.jit.named import (
    NamedCall,
    NamedShapes,
    Slices,
    cut,
    padded,
    sizes_known,
    slices_of,
)
from pullback.compiler.jit.request import Request
from pullback.compiler.jit.retraces import note_one_size
from pullback.compiler.legalise.padded import with_capacity
from pullback.compiler.programs.executable import Requested
from pullback.compiler.runtime.arguments import conform
from pullback.compiler.runtime.program import Program
from pullback.graph import Type, Variable
from pullback.graph.named import NamedSize
from pullback.tracing.trees import Structure

__all__ = ["AnySize", "Instance", "Sized"]


@dataclass(frozen=True, eq=False)
class Instance:
    """A program for any size up to a capacity."""

    types: tuple[Type, ...]
    """Of the arguments as the program has them."""
    requested: Requested
    slices: Slices
    least: int
    """The least size that it is right for."""


class Sized(NamedTuple):
    """A call of such a program."""

    owner: AnySize
    structure: Structure
    instance: Instance
    call: NamedCall

    def arguments(
        self, program: Program, leaves: Sequence[Any], steps: int = 1, sliced: Collection[int] = ()
    ) -> list[Any]:
        """What the program is given: ``leaves`` with padding, and the sizes.

        In a run those that are ``sliced`` have an axis of steps in front. Raises ``DonationError`` for memory that is
        donated and cannot be written.
        """
        fronts = [(steps,) if k in sliced else () for k in range(len(leaves))]
        named = [k for k, places in enumerate(self.call.leaves) if places]
        if any(k in program.overwritten for k in named):
            types = [type.with_shape((*front, *type.shape)) for type, front in zip(self.call.types, fronts)]
            conform(types, program.overwritten, leaves, program.names)
        found = list(leaves)
        for k in named:
            found[k] = padded(leaves[k], self.instance.types[k], fronts[k])
        return [*found, *[np.array(size) for size in self.call.sizes]]

    def run(
        self, program: Program, leaves: Sequence[Any], steps: int = 1, sliced: Collection[int] | None = None
    ) -> tuple[list[Any], int]:
        """The results of a call, or of a run of many steps, without padding, and how many steps were done.

        Donated ``leaves`` are updated in place. What a run keeps of each step has a further axis in front.
        """
        passed, donated = self.arguments(program, leaves, steps, sliced or ()), program.donated
        results: Sequence[Any]
        try:
            results, done = (program(*passed), 1) if sliced is None else program.run(passed, steps, sliced)
        finally:
            for k in program.overwritten:
                if passed[k] is not leaves[k]:
                    leaves[k][...] = passed[k][tuple(map(slice, leaves[k].shape))]
        front = int(sliced is not None)
        made = [
            leaves[donated[k]] if k in donated else cut(results[k], cuts, self.call.sizes, front)
            for k, cuts in enumerate(self.instance.slices)
        ]
        return made, done

    def again(self) -> Requested:
        """What is to be compiled, traced anew: for decisions that a trace is made with."""
        traced = self.owner.trace(self.structure, self.call.for_any_size())
        return _instance_of(self.call.within_capacity(), *traced).requested


class AnySize:
    """The traces and instances of one function."""

    def __init__(self, request: Request, shapes: Mapping[str, Sequence[Any]]) -> None:
        self.shapes = NamedShapes(request.function, shapes)
        self._request = request
        self._noted = False
        self.sized = cache(self._sized)
        self._traced = cache(self.trace)
        self._instance = cache(self._for_capacity)

    def _sized(self, structure: Structure, types: tuple[Type, ...]) -> Sized | None:
        """How a program for any size is called here; None where these sizes have one of their own.

        That is so for sizes that are too small, and those at which the function is another one: it is traced for each.
        Raises ``NamedAxisError`` where there is no program for any size, however small it is here.
        """
        call = self.shapes.call(structure, types)
        if not call.names:
            return None
        instance = self._instance(structure, call.within_capacity())
        if min(call.sizes) < instance.least:
            return None
        traced, sizes = self._traced(structure, call.for_any_size())
        here = self._request(structure, types)
        unlike = unlike_at(traced.graph, sizes, call.sizes, here.graph)
        if unlike is not None or (here.out_structure, here.offered) != (traced.out_structure, traced.offered):
            note_one_size(self._request.name, call.names, call.sizes, unlike, warn=not self._noted)
            self._noted = True
            return None
        return Sized(self, structure, instance, call)

    def _for_capacity(self, structure: Structure, call: NamedCall) -> Instance:
        return _instance_of(call, *self._traced(structure, call.for_any_size()))

    def trace(self, structure: Structure, call: NamedCall) -> tuple[Requested, list[NamedSize]]:
        """The function traced for a call with stand-ins, and these."""
        weak = Type(np.dtype(np.int64), (), True)
        sizes = [NamedSize(name, size, Variable(weak, name)) for name, size in zip(call.names, call.sizes)]
        with sizes_known(sizes):
            return self._request(structure, call.types), sizes


def _instance_of(call: NamedCall, traced: Requested, sizes: Sequence[NamedSize]) -> Instance:
    """The instance of a trace for the sizes of ``call``, which are capacities."""
    # In a run the padding of what is donated is what the step before has left there.
    zeroed = [k not in traced.offered.values() for k in range(len(traced.graph.inputs))]
    graph, least = with_capacity(traced.graph, sizes, call.sizes, zeroed)
    return Instance(call.types, traced._replace(graph=graph), slices_of(traced.graph, sizes), least)
