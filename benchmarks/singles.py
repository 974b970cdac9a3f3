"""Single operations on large arrays: reductions along any axis, products of a few rows, elementwise work in any layout.

An operation is a function of a library's own namespace (``numpy``, ``jax.numpy``, ``torch``), of names that all of them
have, and of arrays. What it reads and writes, over its time, is to be compared with the bandwidth of the machine. Only
NumPy is used here: the file is read by interpreters that have one library each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SINGLES", "Single", "arrays_of", "from_json"]

Arrays = dict[str, NDArray[np.float32]]
Shape = tuple[int, ...]

_SQUARE, _CUBE, _TALL, _WIDE = (3162, 3162), (215, 215, 215), (1_000_000, 10), (10, 1_000_000)
_LONG, _LARGE, _LARGER = (20480, 512), (2048, 2048), (4096, 4096)


@dataclass(frozen=True)
class _Operation:
    function: Callable[..., Any]
    shapes: tuple[Shape, ...]
    result: Shape
    depth: int = 0
    """Of a product, the elements that are summed."""


def _largest(o: Any, x: Any, *axis: int) -> Any:
    return (o.amax if hasattr(o, "amax") else o.max)(x, *axis)


def _permuted(o: Any, x: Any) -> Any:
    return o.permute(x, (2, 0, 1)) if hasattr(o, "permute") else o.transpose(x, (2, 0, 1))


SINGLES = {
    "sum, all": _Operation(lambda o, x: o.sum(x), (_SQUARE,), ()),
    "sum, axis 0": _Operation(lambda o, x: o.sum(x, 0), (_SQUARE,), (3162,)),
    "sum, axis 1": _Operation(lambda o, x: o.sum(x, 1), (_SQUARE,), (3162,)),
    "sum, axis 1 of 3": _Operation(lambda o, x: o.sum(x, 1), (_CUBE,), (215, 215)),
    "mean, axis 1 of 3, long rows": _Operation(lambda o, x: o.mean(x, 1), ((64, 200, 1024),), (64, 1024)),
    "sum, axes 0 and 2 of 3": _Operation(lambda o, x: o.sum(x, (0, 2)), (_CUBE,), (215,)),
    "sum, axis 0, tall": _Operation(lambda o, x: o.sum(x, 0), (_TALL,), (10,)),
    "sum, axis 1, tall": _Operation(lambda o, x: o.sum(x, 1), (_TALL,), (1_000_000,)),
    "sum, axis 0, wide": _Operation(lambda o, x: o.sum(x, 0), (_WIDE,), (1_000_000,)),
    "sum, axis 0, long": _Operation(lambda o, x: o.sum(x, 0), (_LONG,), (512,)),
    "sum, axis 1, wide": _Operation(lambda o, x: o.sum(x, 1), (_WIDE,), (10,)),
    "sum, axis 0, transposed": _Operation(lambda o, x: o.sum(x.T, 0), (_SQUARE,), (3162,)),
    "sum, axes 0 and 2, permuted": _Operation(
        lambda o, x: o.sum(_permuted(o, x), (0, 2)), ((200, 100, 512),), (200,)
    ),
    "maximum, all": _Operation(_largest, (_SQUARE,), ()),
    "maximum, axis 0": _Operation(lambda o, x: _largest(o, x, 0), (_SQUARE,), (3162,)),
    "maximum, axis 1": _Operation(lambda o, x: _largest(o, x, 1), (_SQUARE,), (3162,)),
    "argmax, axis 0": _Operation(lambda o, x: o.argmax(x, 0), (_SQUARE,), (3162,)),
    "argmax, axis 1": _Operation(lambda o, x: o.argmax(x, 1), (_SQUARE,), (3162,)),
    "sum": _Operation(lambda o, x, y: x + y, (_SQUARE, _SQUARE), _SQUARE),
    "sum with a transposed array": _Operation(lambda o, x, y: x + y.T, (_SQUARE, _SQUARE), _SQUARE),
    "sum of a permuted array": _Operation(lambda o, x, y: _permuted(o, x) + y, (_CUBE, _CUBE), _CUBE),
    "rows of seven rolled": _Operation(lambda o, x: o.roll(x, 3, 0), ((1_000_000, 7),), (1_000_000, 7)),
    "running totals, axis 1": _Operation(lambda o, x: o.cumsum(x, 1), ((1000, 4096),), (1000, 4096)),
    "exponential": _Operation(lambda o, x: o.exp(x), (_SQUARE,), _SQUARE),
    "choice": _Operation(lambda o, x, y: o.where(x > 0.5, x, y), (_SQUARE, _SQUARE), _SQUARE),
    "matrix times vector": _Operation(lambda o, a, x: a @ x, (_LARGE, (2048,)), (2048,), 2048),
    "vector times matrix": _Operation(lambda o, a, x: x @ a, (_LARGE, (2048,)), (2048,), 2048),
    "2 rows times matrix": _Operation(lambda o, a, x: x @ a, (_LARGE, (2, 2048)), (2, 2048), 2048),
    "8 rows times matrix": _Operation(lambda o, a, x: x @ a, (_LARGE, (8, 2048)), (8, 2048), 2048),
    "4 rows times larger matrix": _Operation(lambda o, a, x: x @ a, (_LARGER, (4, 4096)), (4, 4096), 4096),
    "8 rows times transposed": _Operation(lambda o, a, x: x @ a.T, (_LARGE, (8, 2048)), (8, 2048), 2048),
    "64 rows times matrix": _Operation(lambda o, a, x: x @ a, (_LARGE, (64, 2048)), (64, 2048), 2048),
    "matrix times matrix": _Operation(lambda o, a, x: x @ a, ((512, 512), (512, 512)), (512, 512), 512),
    "transposed times matrix": _Operation(lambda o, a, x: x.T @ a, ((128, 784), (128, 512)), (784, 512), 128),
}
"""By their names; of float32, NumPy's order of axes."""


@dataclass(frozen=True)
class Single:
    """An operation of ``SINGLES``."""

    name: str

    what = "A call is the operation on arrays that are there."

    def describe(self) -> str:
        """Shapes, and what is moved."""
        shapes = ", ".join("×".join(map(str, shape)) for shape in SINGLES[self.name].shapes)
        return f"{shapes}; {self.moved / 1e6:,.0f} MB read and written"

    @property
    def moved(self) -> int:
        """Bytes of arguments and result."""
        return 4 * (sum(map(math.prod, SINGLES[self.name].shapes)) + math.prod(SINGLES[self.name].result))

    @property
    def flops(self) -> int:
        """Of a product."""
        return 2 * SINGLES[self.name].depth * math.prod(SINGLES[self.name].result)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(values: dict[str, Any]) -> Single:
    """What ``as_json`` made."""
    return Single(**values)


def arrays_of(single: Single, seed: int = 0) -> Arrays:
    """The arguments, of numbers between 0 and 1."""
    random = np.random.default_rng(seed)
    return {f"x{k}": random.random(shape, np.float32) for k, shape in enumerate(SINGLES[single.name].shapes)}
