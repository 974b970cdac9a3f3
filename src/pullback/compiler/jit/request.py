"""What ``jit`` asks to be compiled: a function's graph, and which results may take over which arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.compiler.jit.draws import without_draws
from pullback.compiler.programs.executable import Requested
from pullback.errors import DonationError, ShapeError, TracingError, TreeError
from pullback.graph import Node, Type
from pullback.graph.named import sizes_under_way, with_names
from pullback.tracing.trace import Traced, kept_for_all_calls, trace_flat
from pullback.tracing.trees import Structure, difference, flatten

__all__ = ["ClosesOver", "Request", "Settings", "traced_once"]


@dataclass(frozen=True)
class Settings:
    """How ``jit`` compiles a function: what it was told beside it, checked."""

    donate_argnums: tuple[int, ...]
    static_argnums: tuple[int, ...]
    """Those that have names in ``static_argnames`` included."""
    static_argnames: frozenset[str]
    watch: int | None
    memory: int | None
    """The budget in bytes."""
    check_nan: bool
    max_traces: int | None
    flush_subnormals: bool
    shapes: Mapping[str, Sequence[Any]] | None


class ClosesOver(TracingError):
    """A function uses values of a trace around it: it is no program of its own, but part of that trace."""

    def __init__(self, message: str, traced: Traced) -> None:
        super().__init__(message)
        self.traced = traced


def traced_once(function: Callable[..., Any], structure: Structure, types: tuple[Type, ...]) -> Traced:
    """The function's trace for all its calls; raises ``TracingError`` if it draws random numbers of its own."""
    with kept_for_all_calls():
        return without_draws(lambda: trace_flat(function, structure, types), function, structure.spec)


@dataclass(frozen=True)
class Request:
    """How a function's programs are asked for, by the structure and the types of arguments."""

    function: Callable[..., Any]
    name: str
    settings: Settings

    def __call__(self, structure: Structure, types: tuple[Type, ...]) -> Requested:
        """The graph that the function is traced to, with what its results may take over."""
        traced = traced_once(self.function, structure, types)
        own = [size.variable for size in sizes_under_way()]
        foreign = [variable for variable in traced.free if not any(variable is each for each in own)]
        if foreign:
            raise ClosesOver(
                f"{self.name} uses {foreign[0]!r} of a trace around it; give it as an argument", traced
            )
        graph, out_structure = traced.graph, traced.out_structure
        results = [node.type for node in graph.outputs]
        uncarried = self._uncarried(structure, types, out_structure, results)
        donated = [leaf for group, _ in self._donated(structure) for leaf in group]
        offered: dict[int, int] = {}
        for result, type in enumerate(results):
            match = next((a for a in donated if _fits(types[a], type)), None)
            if match is not None:
                offered[result] = match
                donated.remove(match)
        return Requested(
            graph, out_structure, offered, uncarried, self._watched(out_structure, graph.outputs)
        )

    def _donated(self, structure: Structure) -> list[tuple[list[int], Structure]]:
        """For each donated argument the numbers of its leaves, and its structure."""
        arguments, _ = _numbered(structure)
        found = []
        for number in self.settings.donate_argnums:
            if number >= len(arguments):
                raise DonationError(f"{self.name}: argument {number} is donated, {len(arguments)} were given")
            leaves, part = flatten(arguments[number])
            found.append(([int(leaf) for leaf in leaves], part))
        return found

    def _uncarried(
        self,
        structure: Structure,
        types: Sequence[Type],
        out_structure: Structure,
        results: Sequence[Type],
    ) -> str:
        """The first of the donated arguments that does not come back as it was, in words; empty if all do.

        Those that do are, in order, the first results.
        """
        out = _numbered(out_structure)
        heads = list(out) if type(out) is tuple else [out]
        for number, (group, part), head in zip(self.settings.donate_argnums, self._donated(structure), heads):
            leaves, found = flatten(head)
            if not found.fits(part):
                return (
                    f"argument {number} has another structure as result {number}: {difference(part, found)}"
                )
            for path, argument, result in zip(part.paths, group, leaves):
                before, after = types[argument], results[int(result)]
                if not _fits(before, after):
                    place = f" at {path}" if path else ""
                    return with_names(f"argument {number}{place} is {before}, and comes back as {after}")
        few = len(heads) < len(self.settings.donate_argnums)
        return f"{len(self.settings.donate_argnums)} are donated, and {len(heads)} come back" if few else ""

    def _watched(self, out_structure: Structure, outputs: Sequence[Node]) -> int | None:
        """The number of the result that ``watch`` names, if any."""
        if self.settings.watch is None:
            return None
        out = _numbered(out_structure)
        if not isinstance(out, tuple) or not 0 <= self.settings.watch < len(out):
            raise TreeError(f"{self.name}: watch={self.settings.watch} is no element of the returned tuple")
        leaf = out[self.settings.watch]
        node = outputs[int(leaf)] if isinstance(leaf, float) else None
        if node is None or node.shape or node.dtype.kind != "f":
            raise ShapeError(f"{self.name}: the watched result {self.settings.watch} must be a scalar float")
        return int(leaf)


def _numbered(structure: Structure) -> Any:
    """The tree with each leaf's number in its place; as floats, which are leaves in dataclasses too."""
    return structure.unflatten(map(float, range(structure.size)))


def _fits(argument: Type, result: Type) -> bool:
    return (argument.dtype, argument.shape) == (result.dtype, result.shape)
