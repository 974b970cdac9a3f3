"""Keys, and uniform and normal numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pullback.counts import count
from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Node
from pullback.graph.named import is_named
from pullback.numpy import (
    astype,
    concatenate,
    full,
    maximum,
    minimum,
    reshape,
    stack,
)
from pullback.numpy.promotion import any_traced, operands
from pullback.numpy.shapes import extents

__all__ = ["bernoulli", "bits", "float_kind", "fold_in", "key", "normal", "permutation", "split", "uniform"]

Shape = int | Sequence[int]
_WORD = np.dtype(np.uint32)


def key(seed: int) -> NDArray[np.uint32]:
    """The key of a seed, an integer from 0 to 2⁶⁴ - 1.

    Raises ``ValueError`` for a seed outside.

    >>> key(2**32 + 5)
    array([1, 5], dtype=uint32)
    """
    number = operator.index(seed)
    if not 0 <= number < 2**64:
        raise ValueError(f"[key] seed {seed} is outside 0 to 2**64 - 1. Give a number that is not negative.")
    return np.array(divmod(number, 2**32), _WORD)


def fold_in(key: Any, number: Any) -> Any:
    """The key that ``number`` makes of ``key``: another one for each integer, such as that of a step.

    ``number`` may be traced. Raises ``DTypeError`` for what is no integer.

    >>> fold_in(key(0), 1)
    array([2494418683,  513002203], dtype=uint32)
    """
    if not isinstance(number, Node):
        number = np.asarray(number)
    if number.dtype.kind not in "iu" or number.shape:
        raise DTypeError(f"[fold_in] found {number.dtype}{list(number.shape)}. Give one integer.")
    return _derived("fold_in", key, number)


def split(key: Any, number: int = 2) -> Any:
    """``number`` new keys, (number, 2); row ``k`` is ``fold_in(key, k)``.

    >>> first, second = split(key(0))
    >>> second
    array([2494418683,  513002203], dtype=uint32)
    """
    return _derived("split", key, np.arange(count("split", "number", number, least=0)))


def bits(key: Any, shape: Shape = (), word: int = 0) -> Any:
    """Random ``uint32`` of this shape, uniform over all 2³².

    There are two independent arrays of them for each key, ``word`` 0 and 1; computed together they cost
    little more than one.

    Raises ``DTypeError`` or ``ShapeError`` for what is no key.

    >>> bits(key(0), (2, 2))
    array([[1797259609,  928981903],
           [4146024105, 2467461003]], dtype=uint32)
    """
    first, second = _words_of("bits", key)
    shape = _shape(shape)
    count = math.prod(shape)
    place: Any
    if isinstance(key, Node) or is_named(count):
        place = OPERATORS["iota"](shape=(count,), axis=0, dtype=np.dtype(np.int64)).reshape(shape)
    else:
        place = np.arange(count).reshape(shape)
    high = astype(place >> 32, _WORD) if count > 2**32 else np.zeros((), _WORD)
    return _threefry(first, second, high, astype(place, _WORD), word)


def uniform(
    key: Any, shape: Shape = (), low: float = 0.0, high: float = 1.0, dtype: DTypeLike = np.float32
) -> Any:
    r"""Floats uniform in ``[low, high)``: :math:`l + (h - l)\,k\,2^{-24}`, in ``float64`` :math:`k\,2^{-53}`.

    With bounds other than 0 and 1 the sum may be rounded to ``high`` itself. Raises ``DTypeError`` for a
    dtype that is no float.

    >>> uniform(key(1), (2,), -1, 1)
    array([-0.76369953, -0.09248257], dtype=float32)
    """
    kind = float_kind("uniform", dtype)
    if kind == np.float32:
        # Through int32, which every processor converts in one instruction.
        share = astype(astype(bits(key, shape) >> 8, np.int32), kind) * 2.0**-24
    else:
        upper, lower = astype(bits(key, shape) >> 5, kind), astype(bits(key, shape, 1) >> 6, kind)
        share = (upper * 2.0**26 + lower) * 2.0**-53
    if (low, high) == (0.0, 1.0):
        return share
    stretched = (high - low) * share
    return low + (OPERATORS["rounded"](stretched) if isinstance(stretched, Node) else stretched)


def normal(key: Any, shape: Shape = (), dtype: DTypeLike = np.float32) -> Any:
    r"""Floats of the normal distribution with mean 0 and variance 1, :math:`\sqrt{-2 \ln u} \cos 2 \pi v`.

    :math:`u` and :math:`v` have 32 bits, so that no value is beyond 6.8; errors are below four units in the last place.
    The steps are rounded alike wherever they are done, so the bits are those of the key. Raises ``DTypeError`` for a
    dtype that is no float.

    Source: Box & Muller, *A note on the generation of random normal deviates*, 1958.

    >>> values = normal(key(0), (10000,))
    >>> bool(abs(values.mean()) < 0.02), bool(abs(values.std() - 1) < 0.02)
    (True, True)
    """
    kind = float_kind("normal", dtype)
    words = bits(key, shape), bits(key, shape, 1)
    transform = OPERATORS["box_muller"]
    return (
        transform(*words, dtype=kind) if any_traced(*words) else transform.reference(*words, dtype=kind)[()]
    )


def permutation(key: Any, count: int) -> Any:
    r"""The numbers from 0 to ``count - 1`` in a random order, ``int64``.

    The places of random numbers when these are sorted. Of the 64 bits of a number the last
    :math:`b = \lceil \log_2 n \rceil` are its place instead, so that no two are equal; orders are equally likely as
    far as :math:`64 - b` bits can be. A compiled function sorts by a network of :math:`b (b + 1) / 2` passes over
    :math:`2^b` numbers, each of them code of its own: 136 for 60,000 numbers. Raises ``ValueError`` for a negative
    ``count``.

    Source: Batcher, *Sorting networks and their applications*, 1968.

    >>> permutation(key(0), 5)
    array([1, 0, 4, 3, 2])
    """
    if count < 0:
        raise ValueError(f"[permutation] count {count}. Give a number that is not negative.")
    high, low = (astype(bits(key, count, word), np.uint64) for word in (0, 1))
    places = (1 << max(count - 1, 0).bit_length()) - 1
    numbers = ((high << np.uint64(32)) | low) & np.uint64(2**64 - 1 - places)
    numbers = numbers | np.arange(count, dtype=np.uint64)
    return astype(_sorted(numbers) & np.uint64(places), np.int64)


def _sorted(numbers: Any) -> Any:
    """``uint64`` numbers in ascending order: of an array by NumPy, of a traced one by a bitonic network."""
    if not isinstance(numbers, Node):
        return np.sort(numbers)
    (count,) = numbers.shape
    size = 1 << max(count - 1, 0).bit_length()
    numbers = concatenate([numbers, np.full(size - count, 2**64 - 1, np.uint64)])  # these stay last
    for level in range(size.bit_length() - 1):
        # Runs of 2**level are sorted: the first is compared with the second turned round, then halves with halves.
        for step in range(level, -1, -1):
            blocks = reshape(numbers, (-1, 2, 1 << step))
            back = slice(None, None, -1 if step == level else 1)
            first, second = blocks[:, 0], blocks[:, 1, back]
            smaller, larger = minimum(first, second), maximum(first, second)
            numbers = reshape(stack([smaller, larger[:, back]], axis=1), (size,))
    return numbers[:count]


def bernoulli(key: Any, probability: float, shape: Shape = ()) -> Any:
    """Bools, each true with this probability, to 32 bits.

    Raises ``ValueError`` for a probability outside 0 to 1.

    >>> bernoulli(key(0), 0.5, (4,))
    array([ True,  True, False, False])
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"[bernoulli] probability {probability}. Give a number from 0 to 1.")
    threshold = round(probability * 2**32)
    if threshold == 2**32:
        _words_of("bernoulli", key)
        return full(_shape(shape), True)
    return bits(key, shape) < np.uint32(threshold)


def _words_of(name: str, key: Any) -> tuple[Any, Any]:
    """The two words of a key."""
    if not hasattr(key, "dtype") or key.dtype != _WORD or key.shape != (2,):
        found = f"{key.dtype}{list(key.shape)}" if hasattr(key, "dtype") else type(key).__name__
        error = ShapeError if getattr(key, "dtype", None) == _WORD else DTypeError
        raise error(f"[{name}] {found} is no key. Make one with pullback.random.key(seed).")
    return key[0], key[1]


def _shape(shape: Shape) -> tuple[int, ...]:
    shape = (shape,) if isinstance(shape, int) else extents("random", shape)
    if any(extent < 0 for extent in shape):
        raise ShapeError(f"[random] shape {shape}. Give extents of at least 0.")
    return shape


def float_kind(name: str, dtype: DTypeLike) -> np.dtype:
    """``dtype``, if it is one of the floats that numbers are drawn in."""
    kind = np.dtype(dtype)
    if kind not in (np.float32, np.float64):
        raise DTypeError(f"[{name}] dtype {kind}. Use float32 or float64.")
    return kind


def _derived(name: str, key: Any, numbers: Any) -> Any:
    """The keys that integers make of ``key``, with a last axis of their two words."""
    first, second = _words_of(name, key)
    numbers = astype(numbers, np.int64)
    # The highest bit keeps keys apart from the numbers that are drawn by ``key`` itself.
    high, low = astype(numbers >> 32, _WORD) ^ np.uint32(2**31), astype(numbers, _WORD)
    return stack([_threefry(first, second, high, low, word) for word in (0, 1)], axis=-1)


def _threefry(first: Any, second: Any, high: Any, low: Any, word: int) -> Any:
    """One word of the cipher, for blocks and a key that broadcast."""
    cipher = OPERATORS["threefry"]
    blocks = (first, second, high, low)
    if any_traced(*blocks):
        return cipher(*operands("threefry", blocks), word=word)
    return cipher.reference(*np.broadcast_arrays(*blocks), word=word)[()]
