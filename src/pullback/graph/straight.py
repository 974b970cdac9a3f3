"""Straight-line Python: references of operators called one after another, without a loop and a table of values.

Values without axes are NumPy's scalars there. What Python's operators make of two of these has the bits of the ufuncs,
at a tenth of the time; all other functions are called as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pullback.graph.type import Type

__all__ = ["Straight", "scalar_or_array"]

_FILE = str(Path(__file__).resolve().parent / "<straight-line code>")
"""A file of this library's, as tracebacks see it."""

_SIGNS: dict[Any, str] = {
    np.add: "+", np.subtract: "-", np.multiply: "*", np.divide: "/", np.less: "<", np.less_equal: "<=",
    np.greater: ">", np.greater_equal: ">=", np.equal: "==", np.not_equal: "!=",
}  # fmt: skip


def scalar_or_array(value: Any) -> Any:
    """A value as straight-line code takes it: without axes a scalar."""
    return value if value.ndim else value[()]


class Straight:
    """A function while it is written: of values of these types, one after another or in one list.

    Values have numbers, those that are given the first ones. A list is emptied, so that each array can go when nobody
    needs it any more.

    >>> double = Type(np.dtype(np.float64), ())
    >>> code = Straight([double])
    >>> square = code.call(np.multiply, [0, 0], double)
    >>> code.function([code.call(np.sin, [square], double), None])(np.float64(2.0))
    (np.float64(-0.7568024953079282), None)
    """

    def __init__(self, given: Sequence[Type], listed: bool = False) -> None:
        self.tags: list[Any] = [None]
        """Of each line what the step in it belongs to."""
        self._types = list(given)
        self._names = [f"v{k}" for k in range(len(given))]
        self._fixed: dict[str, Any] = {"asarray": np.asarray, "ndarray": np.ndarray}
        self._lines = [f"def straight({'values' if listed else ', '.join(self._names)}):"]
        if listed and given:
            self._add(f"{', '.join(self._names)}, = values")
            self._add("values.clear()")

    def constant(self, value: Any, type_: Type) -> int:
        """The number of a value that is always the same."""
        return self._numbered(self._held(scalar_or_array(value)), type_)

    def call(self, compute: Any, operands: Sequence[int], type_: Type, tag: Any = None) -> int:
        """The number of what ``compute`` gives for the values of these numbers, which has this type.

        Without ``compute`` it is the first of them.
        """
        names, types = [self._names[k] for k in operands], [self._types[k] for k in operands]
        if compute is None:
            return self._numbered(names[0], type_)
        name, is_ufunc = f"v{len(self._types)}", type(compute) is np.ufunc
        certain = is_ufunc and _gives(compute, tuple([t.dtype for t in types])) is type_.dtype
        made = _signed(compute, names, types) if certain and not type_.shape else None
        if made is None:
            if not is_ufunc:  # it may write into a copy, as nobody can into a scalar
                names = [x if t.shape else f"asarray({x})" for x, t in zip(names, types)]
            made = f"{self._held(compute)}({', '.join(names)})"
        self._add(f"{name} = {made}", tag)
        if not certain:
            dtype = self._held(type_.dtype)
            is_other, end = f"type({name}) is not {self._held(type_.dtype.type)}", "[()]"
            if type_.shape:
                is_other, end = f"type({name}) is not ndarray or {name}.dtype is not {dtype}", ""
            self._add(f"if {is_other}: {name} = asarray({name}, {dtype}){end}", tag)
        return self._numbered(name, type_)

    def drop(self, number: int) -> None:
        """Let go of an array that nobody needs any more."""
        if self._types[number].shape and self._names[number] == f"v{number}":
            self._add(f"v{number} = None")

    def function(self, results: Sequence[int | None]) -> Callable[..., tuple[Any, ...]]:
        """The function that gives the values of these numbers, and ``None`` where there is none."""
        names = ["None, " if k is None else f"{self._names[k]}, " for k in results]
        self._add(f"return ({''.join(names)})")
        exec(compile("\n".join(self._lines), _FILE, "exec"), self._fixed)
        return self._fixed.pop("straight")  # type: ignore[no-any-return]

    def tag_of(self, error: BaseException) -> Any:
        """What the step belongs to in which the function has raised this error."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != _FILE:
            trace = trace.tb_next
        return None if trace is None else self.tags[trace.tb_lineno - 1]

    def _add(self, line: str, tag: Any = None) -> None:
        self._lines.append(f" {line}")
        self.tags.append(tag)

    def _held(self, value: Any) -> str:
        name = f"c{len(self._fixed)}"
        self._fixed[name] = value
        return name

    def _numbered(self, name: str, type_: Type) -> int:
        self._names.append(name)
        self._types.append(type_)
        return len(self._types) - 1


def _signed(ufunc: Any, names: Sequence[str], types: Sequence[Type]) -> str | None:
    """What a ufunc gives of numbers, as an expression with Python's sign for it, where there is one."""
    if any(t.dtype.kind != "f" or t.shape or t.dtype is not types[0].dtype for t in types):
        return None
    if ufunc is np.negative:
        return f"-{names[0]}"
    sign = _SIGNS.get(ufunc)
    return None if sign is None else f"{names[0]} {sign} {names[1]}"


@lru_cache(maxsize=1024)
def _gives(ufunc: np.ufunc, dtypes: tuple[np.dtype, ...]) -> np.dtype | None:
    """The dtype of what a ufunc gives for operands of these; ``None`` where there are several results."""
    if ufunc.nout != 1 or ufunc.nin != len(dtypes):
        return None
    try:
        return ufunc.resolve_dtypes((*dtypes, None))[-1]  # type: ignore[no-any-return]
    except TypeError:
        return None
