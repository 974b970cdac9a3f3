"""Random numbers as a pure function of a key and a counter: no state, so any thread may compute any part.

They are the same bits interpreted and compiled, so nothing here is rounded in a way that depends on who computes it:
there are integers, and of floats sums, products, quotients and roots, each rounded by itself in one order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Case, Operation, Operator, Sample, Type
from pullback.loops import Apply, Expression, Index, Literal, Operand, Placeholder, walk
from pullback.operators.batching import batch_first

__all__ = ["box_muller", "threefry"]

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


# -- the normal distribution

_BOOL = np.dtype(np.bool_)
_BITS: dict[np.dtype, np.dtype] = {
    np.dtype(np.float32): np.dtype(np.int32),
    np.dtype(np.float64): np.dtype(np.int64),
}
_TERMS = {np.dtype(np.float32): (5, 6), np.dtype(np.float64): (11, 10)}
"""Terms of the logarithm's series, and of sine and cosine: what is left out is below the last bit."""

_BLOCK = 1 << 14
"""Numbers that the reference computes at once: what the steps make of them stays in the cache."""


def _box_muller_type(first: Type, second: Type, dtype: np.dtype) -> Type:
    _type(first, second, word=0)
    if dtype not in _BITS:
        raise DTypeError(f"box_muller: dtype {dtype}; use float32 or float64")
    return Type(dtype, first.shape)


class _Steps:
    """Arithmetic of expressions of one float dtype; products are rounded before they are added to anything."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype

    def number(self, value: float) -> Expression:
        return Literal(value, self.dtype)

    def plus(self, x: Expression, y: Expression) -> Expression:
        return Apply("add", (x, y), self.dtype)

    def times(self, x: Expression, y: Expression) -> Expression:
        return Apply("rounded", (Apply("multiply", (x, y), self.dtype),), self.dtype)

    def cast(self, x: Expression) -> Expression:
        return Apply("cast", (x,), self.dtype)

    def series(self, x: Expression, coefficients: Sequence[float]) -> Expression:
        """``c[0] + c[1] x + c[2] x**2 + …``"""
        total = self.number(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.plus(self.times(total, x), self.number(coefficient))
        return total


def _logarithm(on: _Steps, u: Expression) -> Expression:
    """``log u = e log 2 + 2 artanh s`` for ``u = 2**e m``, m about 1, and ``s = (m - 1) / (m + 1)``."""
    bits, mantissa = _BITS[on.dtype], np.finfo(on.dtype).nmant
    places = Literal(mantissa, bits)
    root = int(np.asarray(math.sqrt(0.5), on.dtype).view(bits))
    pattern = Apply("bitcast", (u,), bits, (("dtype", bits),))
    exponent = Apply("right_shift", (Apply("subtract", (pattern, Literal(root, bits)), bits), places), bits)
    rest = Apply("subtract", (pattern, Apply("left_shift", (exponent, places), bits)), bits)
    m = Apply("bitcast", (rest,), on.dtype, (("dtype", on.dtype),))
    s = Apply("divide", (on.plus(m, on.number(-1)), on.plus(m, on.number(1))), on.dtype)
    terms, _ = _TERMS[on.dtype]
    log_m = on.times(s, on.series(on.times(s, s), [2 / (2 * k + 1) for k in range(terms)]))
    return on.plus(on.times(on.cast(exponent), on.number(math.log(2))), log_m)


def _cosine_of_turns(on: _Steps, word: Expression) -> Expression:
    """``cos(2 pi word / 2**32)``: the nearest quarter of the turn, and a series around it."""
    quarter = _both("right_shift", _both("add", word, _literal(1 << 29)), _literal(30))
    rest = _both("subtract", word, _both("left_shift", quarter, _literal(30)))
    angle = on.times(on.cast(Apply("cast", (rest,), np.dtype(np.int32))), on.number(2 * math.pi / 2**32))
    square = on.times(angle, angle)
    _, terms = _TERMS[on.dtype]
    signed = [(-1) ** k for k in range(terms)]
    cosine = on.series(square, [sign / math.factorial(2 * k) for k, sign in enumerate(signed)])
    sine = on.series(square, [sign / math.factorial(2 * k + 1) for k, sign in enumerate(signed)])
    odd = Apply("not_equal", (_both("bitwise_and", quarter, _literal(1)), _literal(0)), _BOOL)
    size = Apply("where", (odd, on.times(angle, sine), cosine), on.dtype)
    upper = _both("bitwise_and", _both("add", quarter, _literal(1)), _literal(2))
    below = Apply("not_equal", (upper, _literal(0)), _BOOL)
    return Apply("where", (below, Apply("negative", (size,), on.dtype), size), on.dtype)


def _box_muller(first: Expression, second: Expression, dtype: np.dtype) -> Expression:
    on = _Steps(dtype)
    # Half a step away from 0, whose logarithm is infinite; at most 1, where it is 0.
    u = on.times(on.plus(on.cast(first), on.number(0.5)), on.number(2.0**-32))
    radius = Apply("sqrt", (on.times(_logarithm(on, u), on.number(-2)),), dtype)
    return on.times(radius, _cosine_of_turns(on, second))


def _box_muller_reference(first: np.ndarray, second: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The steps that are compiled, one after another in NumPy."""
    words = (Placeholder("first", (), _WORD), Placeholder("second", (), _WORD))
    steps = list(walk(_box_muller(*words, dtype)))
    result = np.empty(np.shape(first), dtype)
    flat = result.reshape(-1)
    drawn = [np.ravel(word) for word in (first, second)]
    for start in range(0, flat.size, _BLOCK):
        known = {id(word): array[start : start + _BLOCK] for word, array in zip(words, drawn)}
        for step in steps:
            if isinstance(step, Literal):
                known[id(step)] = np.asarray(step.value)
            elif isinstance(step, Apply):
                attributes = {"dtype": step.dtype} if step.function == "cast" else dict(step.attributes)
                operands = [known[id(operand)] for operand in step.operands]
                known[id(step)] = OPERATORS[step.function].reference(*operands, **attributes)
        flat[start : start + _BLOCK] = known[id(steps[-1])]
    return result


def _box_muller_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    return _box_muller(operands[0](index), operands[1](index), node.dtype)


box_muller = Operator(
    "box_muller",
    _box_muller_type,
    _box_muller_reference,
    None,
    batch_first,
    _box_muller_lower,
    tuple(Case((_SAMPLE, _SAMPLE), {"dtype": dtype}) for dtype in _BITS),
    cost=70.0,
    elementwise=True,
)
"""``sqrt(-2 log u) cos(2 pi v)`` with ``u = (first + 1/2) / 2**32`` and ``v = second / 2**32``: normal numbers.

Both words are ``uint32`` of one shape; the result is of ``dtype``, ``float32`` or ``float64``, and at most 6.8 away
from 0. Every step is rounded by itself, so the bits are the same wherever it is computed.

Source: Box & Muller, *A note on the generation of random normal deviates*, 1958.
"""
