"""A program of ``jit`` for one list of types, and how compiled code calls the latest of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.compiler.jit.calls import trees
from pullback.compiler.programs.executable import Executable, Requested
from pullback.compiler.runtime.entry import make_function
from pullback.compiler.runtime.exported import CFunction
from pullback.compiler.runtime.machine import machine
from pullback.compiler.runtime.signature import Signature
from pullback.graph import Type
from pullback.tracing.tracebacks import cut_to_users, without_numpys
from pullback.tracing.trees import Structure

__all__ = ["Latest", "Specialised"]


@dataclass(frozen=True, eq=False)
class Specialised:
    """A program for one structure and one list of types."""

    structure: Structure
    types: tuple[Type, ...]
    requested: Requested
    executable: Executable
    scalars: tuple[int, ...]
    """Results without axes that take over no argument: they are returned as NumPy's scalars."""
    signatures: dict[frozenset[int] | None, Signature | None] = field(default_factory=dict)
    exported: list[CFunction] = field(default_factory=list)
    """The function that C calls, once somebody has asked for it."""

    def signature(self, sliced: frozenset[int] | None) -> Signature | None:
        """How compiled code calls the program, once or (with ``sliced`` leaves) for a run of steps, if it can."""
        if sliced not in self.signatures:
            found = trees(self.structure, self.requested.out_structure)
            weak = [type.weak for type in self.types]
            scalars = self.scalars if sliced is None else ()
            self.signatures[sliced] = (
                None
                if found is None
                else self.executable.program.signature(found, sliced, shown=_show, weak=weak, scalars=scalars)
            )
        return self.signatures[sliced]

    def unflatten(self, results: Sequence[Any]) -> Any:
        leaves = list(results)
        for position in self.scalars:
            leaves[position] = leaves[position][()]
        return self.requested.out_structure.unflatten(leaves)


class Latest:
    """The compiled function that tries the latest signatures, and then calls ``last`` or says ``NotImplemented``.

    Until it includes one it is ``last``.
    """

    MOST = 8
    """Signatures that are tried: to find that one does not fit takes some hundredths of a microsecond."""

    def __init__(self, entry: str, last: Callable[..., Any] | None = None) -> None:
        self._entry, self._last = entry, last
        self._signatures: list[Signature] = []
        self.function: Any = last

    def including(self, signature: Signature | None) -> Any:
        """The function that tries this signature, too: first, unless it is among them."""
        if signature is not None and signature not in self._signatures:
            self._signatures = [signature, *self._signatures][: self.MOST]
            self.function = make_function(machine().code.address(self._entry), self._signatures, self._last)
        return self.function


def _show(error: BaseException) -> None:
    """Raise what a call in compiled code has raised, as its caller is to see it."""
    if isinstance(error, Exception):
        error = without_numpys(error)
        cut_to_users(error)
    raise error
