"""Arrays that begin where vectors do: vectors that lie across two lines of the cache are read and written twice.

NumPy's large arrays begin 16 bytes behind a page, so all of their vectors of 64 bytes do. Results take the memory of
donated arguments; that of weights decides for a whole training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pullback.tracing.trees import map_tree

__all__ = ["aligned", "aligned_array", "new_aligned"]

_BYTES = 64
"""Of the widest vectors that any processor has, and of a line of the cache on most."""


def new_aligned(
    shape: Sequence[int], dtype: DTypeLike, made: Callable[..., NDArray[Any]] = np.empty
) -> NDArray[Any]:
    """An array in C order that begins at a multiple of 64 bytes, of bytes ``made`` by ``np.empty`` or ``np.zeros``.

    >>> found = new_aligned((3, 5), np.float32, np.zeros)
    >>> found.sum(), found.shape, found.ctypes.data % 64
    (np.float32(0.0), (3, 5), 0)
    """
    memory = made(math.prod(shape) * np.dtype(dtype).itemsize + _BYTES, np.uint8)
    found: NDArray[Any] = np.ndarray(tuple(shape), dtype, memory, -memory.ctypes.data % _BYTES)
    return found


def aligned_array(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself if it begins at a multiple of 64 bytes and lies in C order, else such a copy.

    An array of Python objects stays as it is.
    """
    if array.dtype.hasobject or (array.ctypes.data % _BYTES == 0 and array.flags.c_contiguous):
        return array
    copy = new_aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def aligned(tree: Any) -> Any:
    """The tree with arrays that begin at multiples of 64 bytes, in C order: copies of those that do not.

    Compiled functions are a few percent faster on such arrays, of large matrices above all: no vector of theirs lies
    across two lines of the cache. ``nn`` makes the parameters of its layers so, optimisers their states, and ``load``
    what it reads; weights of your own, and the data of a training loop, become so here. What is no array (numbers,
    ``None``) stays as it is.

    >>> weights = aligned({"w": np.ones((64, 10), np.float32), "rate": 0.1})
    >>> weights["w"].ctypes.data % 64, weights["rate"]
    (0, 0.1)
    """
    return map_tree(lambda leaf: aligned_array(leaf) if type(leaf) is np.ndarray else leaf, tree)
