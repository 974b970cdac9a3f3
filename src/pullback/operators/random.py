"""Random bits as a pure function of a key and a counter: no state, so any thread may compute any part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import Case, Operation, Operator, Sample, Type
from pullback.loops import Apply, Expression, Index, Literal, Operand
from pullback.operators.batching import batch_first

__all__ = ["threefry"]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Left rotations of four rounds, and of the next four."""

GROUPS = 5
"""Groups of four rounds: twenty in all."""

PARITY = 0x1BD11BDA
"""What the third word of the key schedule is the exclusive or of, beside the key's two words."""

_WORD = np.dtype(np.uint32)


def _type(*words: Type, word: int) -> Type:
    for other in words:
        if other.dtype != _WORD:
            raise DTypeError(f"threefry: a word of dtype {other.dtype}; cast it with .astype(np.uint32)")
        if other.shape != words[0].shape:
            raise ShapeError(
                f"threefry: shapes {words[0].shape} and {other.shape} differ; broadcast one to the other"
            )
    if word not in (0, 1):
        raise ShapeError(f"threefry: word {word} of a result of two words; choose 0 or 1")
    return Type(_WORD, words[0].shape)


def _reference(
    key0: np.ndarray, key1: np.ndarray, high: np.ndarray, low: np.ndarray, word: int
) -> np.ndarray:
    # Arrays of one dimension at least: NumPy's scalars would warn of the overflow that is meant here.
    keys = [np.atleast_1d(key0), np.atleast_1d(key1)]
    keys.append(keys[0] ^ keys[1] ^ np.uint32(PARITY))
    x, y = high + keys[0], low + keys[1]
    for group in range(GROUPS):
        for bits in ROTATIONS[group % 2]:
            x = x + y
            y = ((y << np.uint32(bits)) | (y >> np.uint32(32 - bits))) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + (keys[(group + 2) % 3] + np.uint32(group + 1))
    return np.reshape(y if word else x, np.shape(high))


def _lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    first, second, x, y = (operand(index) for operand in operands)
    keys = (first, second, _both("bitwise_xor", _both("bitwise_xor", first, second), _literal(PARITY)))
    x, y = _both("add", x, first), _both("add", y, second)
    for group in range(GROUPS):
        for bits in ROTATIONS[group % 2]:
            x = _both("add", x, y)
            y = _both("bitwise_xor", _rotated(y, bits), x)
        x = _both("add", x, keys[(group + 1) % 3])
        y = _both("add", y, _both("add", keys[(group + 2) % 3], _literal(group + 1)))
    return y if node.attributes["word"] else x


def _rotated(value: Expression, bits: int) -> Expression:
    left = _both("left_shift", value, _literal(bits))
    return _both("bitwise_or", left, _both("right_shift", value, _literal(32 - bits)))


def _both(function: str, first: Expression, second: Expression) -> Expression:
    return Apply(function, (first, second), _WORD)


def _literal(value: int) -> Expression:
    return Literal(value, _WORD)


_SAMPLE = Sample((3, 2), 0, 2**32, "int")

threefry = Operator(
    "threefry",
    _type,
    _reference,
    None,
    batch_first,
    _lower,
    tuple(Case((_SAMPLE,) * 4, {"word": word}) for word in (0, 1)),
    # Some seventy integer instructions with rotations, each as cheap as an instruction can be.
    cost=36.0,
    elementwise=True,
)
"""Word 0 or 1 of Threefry-2x32 with 20 rounds: ``y = cipher(key=(k0, k1), block=(high, low))[word]``.

All four inputs are ``uint32`` of one shape. For each key the 2⁶⁴ blocks give 2⁶⁴ different pairs of words;
blocks that merely count make a sequence that passes the batteries of statistical tests, from any key.

Source: Salmon, Moraes, Dror & Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC'11.
"""
