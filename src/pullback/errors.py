"""One class per kind of misuse; messages name the operator, the values that clash, and the repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.linalg import LinAlgError

if TYPE_CHECKING:
    from pullback.graph.source import Source

__all__ = [
    "AddressError",
    "ArrayClassError",
    "BatchError",
    "CacheError",
    "CallbackError",
    "DTypeError",
    "DataError",
    "DerivativeError",
    "DonationError",
    "DownloadError",
    "GraphError",
    "IndexRangeError",
    "KeywordError",
    "LoopError",
    "MatrixError",
    "MemoryBudgetError",
    "MissingExtra",
    "NaNError",
    "NamedAxisError",
    "NonFiniteLoss",
    "OutputError",
    "ProcessorError",
    "PullbackError",
    "RetraceError",
    "SettingError",
    "ShapeError",
    "StageError",
    "TracingError",
    "TreeError",
]


class PullbackError(Exception):
    """The base of every error that Pullback raises by itself."""


class _OfCall(PullbackError):
    """An error of a layer, a loss or the like, which knows its ``[name]`` and not where it was called: the message is
    given the user's line.
    """

    def __init__(self, message: str) -> None:
        from pullback.graph.source import with_users_line

        super().__init__(with_users_line(message) if message.startswith("[") else message)


class ShapeError(_OfCall, ValueError):
    """Shapes that do not fit: ``np.ones((2, 3)) @ np.ones((2, 3))`` inside a traced function."""


class DTypeError(_OfCall, TypeError):
    """A dtype that an operator does not take, such as ``np.sin`` of labels that were never cast."""


class ArrayClassError(PullbackError, TypeError):
    """An array whose class says more than its numbers: a masked array, an ``np.matrix``."""


class TracingError(PullbackError, TypeError):
    """A traced value used where Python needs a concrete one: ``if x > 0:``, ``int(x)``, ``while x < 1:``."""


class BatchError(PullbackError, ValueError):
    """Examples that make no batch: arrays of different batch sizes, an axis that is not there."""


class NamedAxisError(PullbackError, ValueError):
    """An axis of ``jit(f, shapes=…)`` that no one program can follow: sizes that differ, ``x[::-1]`` along it."""


class DerivativeError(PullbackError, TypeError):
    """A derivative that does not exist: the gradient of a vector, or with respect to integers."""


class TreeError(_OfCall, TypeError):
    """Arguments or results whose structure does not fit: another dict, another module, no array."""


class MatrixError(PullbackError, LinAlgError):
    """A matrix that is singular, or not positive definite, where an inverse or a factor of it is wanted.

    ``source`` is the line, where that is known.
    """

    source: Source | None

    def __init__(self, message: str, *, source: Source | None = None) -> None:
        super().__init__(message)
        self.source = source

    def extended(self, note: str, source: Source | None = None) -> MatrixError:
        """The same error with a further line."""
        return MatrixError(f"{self}\n  {note}", source=source or self.source)


class IndexRangeError(PullbackError, IndexError):
    """An index, token or label outside the axis that it selects from.

    Where one index is wrong the error says which, for code that goes on from there; what is not known is ``None``:

    - ``what`` it selects from: ``"label"``, ``"token"``, ``"axis 0 of shape (3, 4)"``,
    - its ``value``, and the least that is allowed, ``low``, and the ``extent`` of the axis,
    - its ``position`` in the array of indices, and the ``source`` line that selects by it,
    - the ``row`` of the data set that has it, where a trainer has found one.

    >>> try:
    ...     raise IndexRangeError("token: 7 is outside 0 to 4", what="token", value=7, low=0, extent=5)
    ... except IndexError as error:
    ...     print(error.what, error.value, error.extent, error.row)
    token 7 5 None
    """

    what: str | None
    value: int | None
    low: int | None
    extent: int | None
    position: tuple[int, ...] | None
    source: Source | None
    row: int | None

    def __init__(
        self,
        message: str,
        *,
        what: str | None = None,
        value: int | None = None,
        low: int | None = None,
        extent: int | None = None,
        position: tuple[int, ...] | None = None,
        source: Source | None = None,
        row: int | None = None,
    ) -> None:
        super().__init__(message)
        self.what, self.value, self.low, self.extent = what, value, low, extent
        self.position, self.source, self.row = position, source, row

    def extended(self, note: str, **fields: Any) -> IndexRangeError:
        """The same error with a further line, and with what it says as ``fields``."""
        known = {name: getattr(self, name) for name in IndexRangeError.__annotations__}
        return IndexRangeError(f"{self}\n  {note}", **{**known, **fields})


class CallbackError(PullbackError, TypeError):
    """A function called out of the program that gives another shape, dtype or structure than was promised.

    ``source`` is the line of the call, where that is known.
    """

    def __init__(self, message: str, *, source: Source | None = None) -> None:
        super().__init__(message)
        self.source = source

    def extended(self, note: str, source: Source | None = None) -> CallbackError:
        """The same error with a further line."""
        return CallbackError(f"{self}\n  {note}", source=source or self.source)


class NaNError(PullbackError, ArithmeticError):
    """NaN, found by ``jit(…, check_nan=True)``: what gives the first one, where, and in which steps of loops.

    ``source`` is the line, ``steps`` the steps of the loops around it, the outermost first; ``None`` and ``()`` where
    an argument has NaN to begin with.
    """

    source: Source | None
    steps: tuple[int, ...]

    def __init__(self, message: str, *, source: Source | None = None, steps: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.source, self.steps = source, steps


class NonFiniteLoss(PullbackError, ArithmeticError):
    """The loss became NaN or infinite; training stopped and the model of the last good step was kept."""


class DataError(PullbackError, ValueError):
    """A file that is truncated, corrupt or of another format, or a data set that cannot be used as it is."""


class DownloadError(DataError):
    """A data set that no public home delivered: no network, a server that fails, a wrong checksum."""


class OutputError(PullbackError, OSError):
    """A file that could not be written: a folder that is missing or read-only, a full disk."""


class MissingExtra(PullbackError, ImportError):
    """An optional package that this call needs and that is not installed."""


class ProcessorError(PullbackError, ValueError):
    """Features asked for that this processor does not have, or a number of threads that is none."""


class SettingError(_OfCall, TypeError):
    """A setting of the wrong kind: a loss by its name, a learning rate that is text, a class for an optimiser."""


class KeywordError(_OfCall, TypeError):
    """A keyword argument that a layer, an optimiser or a trainer does not take, such as another library's name for one.

    It says which ``keyword`` that is, and which are ``known``.
    """

    keyword: str
    known: tuple[str, ...]

    def __init__(self, message: str, *, keyword: str = "", known: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.keyword, self.known = keyword, known


class DonationError(PullbackError, ValueError):
    """A donated argument that cannot be updated in place: read-only, not contiguous, or shared."""


class MemoryBudgetError(PullbackError, MemoryError):
    """``jit(…, memory="1MB")`` of a program that needs more, however often its scans run their steps again."""


class RetraceError(PullbackError, RuntimeError):
    """``jit(…, max_traces=1)`` of a function that is called with arguments of a second list of types."""


class AddressError(PullbackError, TypeError):
    """The address of a compiled function that C cannot call, as it calls Python or takes any number of arguments."""


class CacheError(PullbackError, RuntimeError):
    """A code cache that must not be trusted, such as a folder that other users may write to."""


class GraphError(PullbackError, RuntimeError):
    """A graph that breaks its own grammar; raised by the checker, never by valid user code."""


class LoopError(PullbackError, RuntimeError):
    """A loop program that breaks its own grammar; raised by the checker, never by valid user code."""


class StageError(PullbackError, RuntimeError):
    """A stage of the compiler that has changed what a program computes; raised by checks, never by valid user code."""
