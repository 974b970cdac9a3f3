"""What of NumPy is supported, by trying: ``python docs/numpy_table.py > docs/numpy.md`` writes the page anew.

Every public function of ``numpy``, ``numpy.linalg`` and ``numpy.fft`` and every method of an array is called in several
ways on a concrete array; in the first way that NumPy takes, and those that follow until one works, it is traced,
differentiated in both modes and compiled. ``tests/numpy/test_support.py`` compares each row with the page.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pullback as pb
from pullback.errors import PullbackError
from pullback.graph import is_float

NO_ARRAYS = """
apply_along_axis apply_over_axes asarray_chkfinite array2string array_repr array_str asmatrix base_repr binary_repr bmat
busday_count busday_offset datetime_as_string datetime_data einsum_path empty empty_like errstate
format_float_positional format_float_scientific from_dlpack frombuffer fromfile frompyfunc fromregex fromstring
genfromtxt get_include get_printoptions getbufsize geterr geterrcall info is_busday isfortran load loadtxt mask_indices
may_share_memory min_scalar_type mintypecode nested_iters piecewise printoptions require save savetxt savez
savez_compressed set_printoptions setbufsize seterr seterrcall shares_memory show_config show_runtime test typename
vectorize
""".split()  # noqa: SIM905
"""Files, text, dates, dtypes, and what calls functions of the user: no arithmetic on arrays."""
NO_METHODS = """
byteswap dump dumps getfield setfield setflags to_device tobytes tofile view
""".split()  # noqa: SIM905
IN_PLACE = """
copyto fill fill_diagonal partition place put put_along_axis putmask resize sort
""".split()  # noqa: SIM905
"""They change an array, or their methods do."""
COPIES = {"np.partition", "np.resize", "np.sort"}

X = np.array([[0.52, 0.21, 0.73], [0.62, 0.34, 0.81], [0.17, 0.93, 0.45]])
CALLS: tuple[Callable[[Callable[..., Any], Any], Any], ...] = (
    lambda f, x: f(x),
    lambda f, x: f(x, 0.5 * x + 0.1),
    lambda f, x: f(x[0]),
    lambda f, x: f(x[0], x[1]),
    lambda f, x: f(1.0 + x),
    lambda f, x: f(x, 1),
    lambda f, x: f(x[0], 0),
    lambda f, x: f([x, 2.0 * x]),
    lambda f, x: f(x > 0.4, x, 2.0 * x),
    lambda f, x: f(x, np.array([0, 1])),
    lambda f, x: f(x, 0, 1),
    lambda f, x: f(x, 0.3, 0.7),
    lambda f, x: f(x[0], x[1], x[2]),
    lambda f, x: f("ij->i", x),
    lambda f, x: f((2,), x[0, 0]),
    lambda f, x: f(x, (9,)),
    lambda f, x: f(x[:, :1], (3, 3)),
    lambda f, x: f(x, 3),
    lambda f, x: f([x > 0.4], [x]),
    lambda f, x: f(x > 0.4, x),
    lambda f, x: f(x, np.array([[0], [1], [2]]), 1),
    lambda f, x: f(x[0], np.float64),
)
"""Ways to call a function."""


def functions() -> dict[str, Callable[..., Any]]:
    """What the page lists, by the name that users write."""
    found: dict[str, Callable[..., Any]] = {}
    for prefix, module in (("np", np), ("np.linalg", np.linalg), ("np.fft", np.fft)):
        for name in sorted(set(dir(module)) - {*NO_ARRAYS}):
            value = getattr(module, name)
            if not name.startswith("_") and callable(value) and not isinstance(value, type):
                found[f"{prefix}.{name}"] = value
    for name in sorted(set(dir(np.ndarray)) - {*NO_METHODS}):
        if not name.startswith("_") and callable(getattr(np.ndarray, name)):
            found[f"ndarray.{name}"] = _method(name)
    listed = (
        set(found) - {f"ndarray.{name}" for name in IN_PLACE} - ({f"np.{name}" for name in IN_PLACE} - COPIES)
    )
    return {name: found[name] for name in found if name in listed and any(True for _ in calls(found[name]))}


def _method(name: str) -> Callable[..., Any]:
    def call(x: Any, *arguments: Any) -> Any:
        return getattr(x, name)(*arguments)

    return call


def calls(function: Callable[..., Any]) -> Iterator[tuple[Callable[[Any], Any], Any]]:
    """The ways to call a function that NumPy takes, with NumPy's result."""
    for call in CALLS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = call(function, X.copy())
                if not all(np.isfinite(np.asarray(part, float)).all() for part in _parts(expected)):
                    continue
            except Exception:  # whatever NumPy raises: it does not take this call
                continue
        yield (lambda x, call=call: call(function, x)), expected


def _parts(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def agrees(found: Any, expected: Any) -> bool:
    """Whether a result is NumPy's, in values and shapes."""
    ours, theirs = _parts(found), _parts(expected)
    return len(ours) == len(theirs) and all(
        np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-6, equal_nan=True)
        for a, b in zip(ours, theirs)
    )


def support(function: Callable[..., Any]) -> tuple[str, str, str, str]:
    """Four marks: available, differentiable in reverse and in forward mode, compiled. Empty where it is not."""
    for call, expected in calls(function):
        try:
            if not agrees(pb.trace(call, X).evaluate([X]), expected):
                raise AssertionError(f"another result than NumPy's: {expected}")
        except (PullbackError, AttributeError):
            continue
        parts = [np.asarray(part) for part in _parts(expected)]
        if not any(is_float(part.dtype) for part in parts):
            return "✓", "–", "–", "✓" if agrees(pb.jit(call)(X), expected) else ""
        return "✓", *_derivatives(call), "✓" if agrees(pb.jit(call)(X), expected) else ""
    return "", "", "", ""


def _derivatives(call: Callable[[Any], Any]) -> tuple[str, str]:
    """Whether both modes give the difference quotient along a direction."""

    def smooth(x: Any) -> list[Any]:
        return [part for part in _parts(call(x)) if is_float(np.dtype(part.dtype))]

    direction = np.cos(np.arange(9.0)).reshape(3, 3)
    step = 1e-6
    ahead, behind = smooth(X + step * direction), smooth(X - step * direction)
    quotient = [(a - b) / (2 * step) for a, b in zip(ahead, behind)]
    weights = [np.sin(1.0 + np.arange(np.size(part))).reshape(np.shape(part)) for part in quotient]
    expected = sum(np.sum(weight * part) for weight, part in zip(weights, quotient))
    value, pull = pb.vjp(smooth, X)
    reverse = np.sum(pull([w.astype(v.dtype) for w, v in zip(weights, value)])[0] * direction)
    tangents = pb.jvp(smooth, (X,), (direction,))[1]
    forward = sum(np.sum(weight * part) for weight, part in zip(weights, tangents))
    return tuple(
        "✓" if np.isclose(found, expected, rtol=1e-4, atol=1e-6) else "" for found in (reverse, forward)
    )  # type: ignore[return-value]


def row(name: str, function: Callable[..., Any]) -> str:
    marks = support(function)
    own = getattr(pb.numpy, name[3:], None) if not any(marks) else None
    if own is not None:
        marks = support(own)
        if any(marks):
            marks = (f"as `pb.numpy.{name[3:]}`", *marks[1:])
    return f"| `{name}` | {' | '.join(marks)} |"


HEAD = """# What of NumPy is supported

Made by `python docs/numpy_table.py`, trying every function of NumPy {version}; a test compares each row. *Available*
functions take traced values and give NumPy's result; derivatives are compared with difference quotients, compiled
results with NumPy's. A dash stands for a result that is no float, which has no derivative. A function without a tick
raises an error that says so when it is given a traced value, and works on concrete arrays as ever. Functions that
change an array, and those about files, text, dates and dtypes, are not listed.

| function | available | reverse | forward | compiled |
| --- | --- | --- | --- | --- |
"""


def main() -> None:
    rows = {
        name: row(name, function)
        for name, function in functions().items()
        if any(True for _ in calls(function))
    }
    ticks = sum("✓" in line for line in rows.values())
    version = ".".join(np.__version__.split(".")[:2])
    print(
        HEAD.format(version=version) + "\n".join(rows.values()) + f"\n\n{ticks} of {len(rows)} are available."
    )


if __name__ == "__main__":
    main()
