"""What of NumPy is supported: ``python docs/numpy_table.py > docs/numpy.md`` writes the page anew.

``docs/expressions/*.txt`` list NumPy's functions with expressions of each; the head of ``numpy.txt`` says how.
``tests/numpy/test_support.py`` computes every expression in every way that the page ticks, and compares the page.
Functions of ``numpy``, ``numpy.linalg`` and ``numpy.fft`` and methods of arrays that no file lists stand on the page
without a tick; the tests see to it that they are refused by their names.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pullback as pb

FILES = sorted((Path(__file__).parent / "expressions").glob("*.txt"))
NO_ARRAYS = """
array2string array_repr array_str asarray_chkfinite asmatrix base_repr binary_repr bmat broadcast_shapes busday_count
busday_offset can_cast datetime_as_string datetime_data einsum_path empty errstate eye format_float_positional
format_float_scientific from_dlpack frombuffer fromfile fromiter frompyfunc fromregex fromstring genfromtxt get_include
get_printoptions getbufsize geterr geterrcall identity info is_busday isdtype isfortran isnat issubdtype load loadtxt
mask_indices may_share_memory min_scalar_type mintypecode nested_iters ones printoptions promote_types require
result_type save savetxt savez savez_compressed set_printoptions setbufsize seterr seterrcall shares_memory show_config
show_runtime test tril_indices triu_indices diag_indices typename vectorize zeros common_type
bartlett blackman hamming hanning kaiser
""".split()  # noqa: SIM905
"""Files, text, dates and dtypes, and what makes arrays of extents alone."""
NO_METHODS = """
byteswap dump dumps getfield setfield setflags to_device tobytes tofile view
""".split()  # noqa: SIM905
IN_PLACE = """
copyto fill partition place put putmask resize sort
""".split()  # noqa: SIM905
"""They change an array, or their methods do."""
COPIES = {"np.partition", "np.resize", "np.sort"}


X = np.array([[0.52, 0.21, 0.73], [0.62, 0.34, 0.81], [0.17, 0.93, 0.45]])
CALLS: tuple[Callable[[Callable[..., Any], Any], Any], ...] = (
    lambda f, x: f(x),
    lambda f, x: f(x, 0.5 * x + 0.1),
    lambda f, x: f(x[0]),
    lambda f, x: f(x[0], x[1]),
    lambda f, x: f([x, 2.0 * x]),
    lambda f, x: f(x, (9,)),
)
"""Ways to call a function that no file lists."""


class Expression(NamedTuple):
    """One expression of a function: its mark, as the files say, and its text."""

    function: str
    mark: str
    text: str

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays that it takes."""
        code = ast.parse(self.text, mode="eval")
        own = {
            argument.arg
            for node in ast.walk(code)
            if isinstance(node, ast.Lambda)
            for argument in node.args.args
        }
        found = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
        return tuple(
            sorted((found - own | (own & found & {"x"} if "(x, [" in self.text else set())) & set(ARRAYS))
        )

    def of(self, **modules: Any) -> Callable[..., Any]:
        """The function of its arrays, with ``np`` and ``pnp`` from ``modules``."""
        made: Callable[..., Any] = eval(f"lambda {', '.join(self.names)}: {self.text}", modules)
        return made

    def arguments(self, example: int = 0) -> list[np.ndarray]:
        """Values for its arrays, others for each ``example``."""
        arrays = ARRAYS if example == 0 else sample(example)
        return [arrays[name] for name in self.names]


def sample(example: int) -> dict[str, np.ndarray]:
    """The arrays that expressions name; the head of ``expressions/numpy.txt`` describes them."""
    random = np.random.default_rng([7, example])

    def apart(*shape: int) -> np.ndarray:
        """Numbers from -2 to 2, no two of them near."""
        size = int(np.prod(shape))
        return (random.permutation(size) * (4 / size) - 2 + 0.37 * 4 / size).reshape(shape) + 0.011

    made: dict[str, Any] = {
        "x": apart(3, 4),
        "y": apart(3, 4) * 0.83 + 0.05,
        "v": apart(8),
        "w": apart(8) * 0.71,
    }
    made |= {
        "c": np.array([0.8, -1.3, 0.55]) + 0.1 * example,
        "e": np.array([-0.4, 0.9, 1.7]) - 0.1 * example,
    }
    made |= {"p": random.permutation(12).reshape(3, 4) * 0.17 + 0.31, "u": apart(3, 4) * 0.43}
    made |= {"z": np.sort(apart(8)) + np.arange(8) * 0.01, "q": random.permutation(5) * 0.61 - 1.17}
    made |= {"m": apart(4, 4), "t": apart(2, 3, 4), "s": np.float64(0.63 + 0.2 * example)}
    made |= {
        "i": random.integers(-5, 6, (3, 4)),
        "j": random.integers(1, 7, (3, 4)),
        "k": random.permutation(8)[:5],
    }
    made |= {"h": random.permutation(np.arange(8) % 4), "o": random.integers(0, 3, (3, 4))}
    made |= {
        "b": random.permutation(12).reshape(3, 4) % 3 > 0,
        "r": np.array([1.5, 0.5, 1.5, -2.0, 0.5, 3.0, -2.0, 4.5]),
    }
    made["b"][:, example % 4] = made["b"][0] = True
    made["n"] = np.where(np.arange(8) % 3 == 2, np.nan, made["w"])
    made["N"] = np.where(np.eye(3, 4, 1) > 0, np.nan, made["y"])
    return made


ARRAYS: dict[str, np.ndarray] = {}
ARRAYS.update(sample(0))


def expressions() -> list[Expression]:
    """All expressions of the files."""
    found = []
    for path in FILES:
        function = ""
        for line in path.read_text().splitlines():
            if line.startswith("  "):
                found.append(Expression(function, line[2], line[4:].strip()))
            elif line and not line.startswith("#"):
                function = line.strip()
    return found


def functions() -> list[str]:
    """What the page lists: functions that the files name, and the other public ones of NumPy."""
    listed = dict.fromkeys(expression.function for expression in expressions())
    for prefix, module in (("np", np), ("np.linalg", np.linalg), ("np.fft", np.fft)):
        for name in sorted(set(dir(module)) - {*NO_ARRAYS}):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = getattr(module, name)
            if not name.startswith("_") and callable(value) and not isinstance(value, type):
                listed.setdefault(f"{prefix}.{name}")
    for name in sorted(set(dir(np.ndarray)) - {*NO_METHODS}):
        if not name.startswith("_") and callable(getattr(np.ndarray, name)):
            listed.setdefault(f"ndarray.{name}")
    changing = {f"ndarray.{name}" for name in IN_PLACE} | ({f"np.{name}" for name in IN_PLACE} - COPIES)
    return sorted((name for name in listed if name not in changing), key=_place)


def _place(name: str) -> tuple[int, str]:
    prefixes = ("np", "np.linalg", "np.fft", "ndarray")
    prefix = name.rpartition(".")[0]
    return (prefixes.index(prefix) if prefix in prefixes else 0), name


def parts(result: Any) -> list[np.ndarray]:
    """The arrays of a result."""
    several = result if isinstance(result, (tuple, list)) else [result]
    return [np.asarray(part) for part in several]


def row(name: str, own: list[Expression]) -> str:
    """The function's line: how many expressions are tried, and what holds of all of them."""
    working = [expression for expression in own if expression.mark != "x"]
    if not working:
        return f"| `{name}` |  |  |  |  |  |  |"
    smooth = "✓" if any(expression.mark == "d" for expression in working) else "–"
    only = f"`pb.numpy.{name.rpartition('.')[2]}`" if all("pnp." in each.text for each in working) else ""
    return f"| `{name}` | {only} | {len(working)} | ✓ | {smooth} | {smooth} | ✓ ✓ |"


HEAD = """# What of NumPy is supported

Made by `python docs/numpy_table.py` from the {tried} expressions in `docs/expressions/`, which the tests compute:
values are compared with NumPy {version}'s, uncompiled, compiled and in batches (`vmap`), derivatives in both modes with
difference quotients, uncompiled and compiled. A dash stands for results that are no floats, which have no derivative.
Where NumPy has no door for traced values the function is one of `pullback.numpy`. A function without a tick raises an
error that says so, with the nearest thing to use, when it is given a traced value, and works on concrete arrays as
ever. Functions that change an array, and those about files, text, dates and dtypes, are not listed.

| function | as | expressions | values | reverse | forward | batch, compiled |
| --- | --- | --- | --- | --- | --- | --- |
"""


def page() -> str:
    """The page as Markdown."""
    by_function: dict[str, list[Expression]] = {}
    for expression in expressions():
        by_function.setdefault(expression.function, []).append(expression)
    rows = [row(name, by_function.get(name, [])) for name in functions()]
    ticks = sum("✓" in line for line in rows)
    tried = sum(expression.mark != "x" for expression in expressions())
    version = ".".join(np.__version__.split(".")[:2])
    head = HEAD.format(version=version, tried=tried)
    return head + "\n".join(rows) + f"\n\n{ticks} of {len(rows)} are available.\n"


def traced(expression: Expression) -> Callable[..., Any]:
    """The expression with this library's names."""
    return expression.of(np=np, pnp=pb.numpy, pb=pb)


def unlisted() -> Iterator[str]:
    """Functions of the page that no file has an expression of."""
    listed = {expression.function for expression in expressions()}
    return (name for name in functions() if name not in listed)


if __name__ == "__main__":
    print(page(), end="")
