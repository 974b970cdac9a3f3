"""Compiled functions within transformations that are called from Python: which program a call there is.

``vmap(lambda x: g(x) + 1)`` with ``g = jit(f)`` calls ``g`` on one example. It is traced once for these types, and what
stands for the call is one operation (``control/compiled.py``), whose batch and derivatives are programs too.

>>> import pullback as pb
>>> slope = pb.jit(pb.grad(lambda x: np.sin(x) * x))
>>> pb.vmap(lambda x: slope(x) + 1)(np.zeros(3)), slope.traces
(array([1., 1., 1.]), 1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.compiler.jit.request import Settings, traced_once
from pullback.compiler.programs.executable import make_executable
from pullback.compiler.programs.nans import explain_nan, has_nan
from pullback.control.compiled import Body, Run, applied_compiled
from pullback.graph import Graph, Type, every_node
from pullback.numpy.promotion import as_array_node
from pullback.tracing.trace import is_apart, leaf_type
from pullback.tracing.trees import Structure
from pullback.transforms.named import is_collective

__all__ = ["Inside"]


@dataclass(frozen=True, eq=False)
class Inside:
    """The graphs of a compiled function that stand for its calls within transformations."""

    function: Callable[..., Any]
    settings: Settings
    known: dict[tuple[Structure, tuple[Type, ...]], tuple[Body, Structure]] = field(default_factory=dict)
    """By structures and types of arguments the graph, and the structure of its results."""
    known_apart: dict[tuple[Structure, tuple[Type, ...]], tuple[Body, Structure]] = field(
        default_factory=dict
    )
    """The same for calls within a context that is ``apart``."""

    def call(
        self, leaves: Sequence[Any], structure: Structure, note: Callable[[Structure, tuple[Type, ...]], None]
    ) -> Any:
        """The results for these leaves, some of which are traced; ``note`` is called where a graph is new.

        A function that closes over traced values, or that sums over a named axis, is another one each time: it is
        part of the graph around it.
        """
        types = tuple([leaf_type(leaf) for leaf in leaves])
        known = self.known_apart if is_apart() else self.known
        found = known.get((structure, types))
        if found is None:
            traced = traced_once(self.function, structure, types)
            if traced.free or any(map(is_collective, every_node(traced.graph))):
                return traced.evaluate(leaves)
            note(structure, types)
            found = Body(traced.graph, self._compile), traced.out_structure
            known[structure, types] = found
        body, out_structure = found
        return out_structure.unflatten(applied_compiled(body, [as_array_node(leaf) for leaf in leaves]))

    def _compile(self, graph: Graph) -> Run:
        """The graph compiled by the settings of ``jit``."""
        program = make_executable(graph, {}, flush_subnormals=self.settings.flush_subnormals).program
        if not self.settings.check_nan:
            return program

        def checked(*arrays: np.ndarray) -> Sequence[np.ndarray]:
            results = program(*arrays)
            if any(map(has_nan, results)):
                explain_nan(graph, arrays)
            return results

        return checked
