"""The cipher against its authors' known answers."""

import itertools

import mpmath
import numpy as np
import pytest

from pullback.errors import DTypeError, ShapeError
from pullback.graph import Type, Variable
from pullback.operators.random import box_muller, threefry

ANSWERS = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]
"""Key, block and words of Threefry-2x32-20, from the file ``kat_vectors`` of the Random123 library."""


@pytest.mark.parametrize(("key", "block", "words"), ANSWERS)
def test_known_answers(key, block, words):
    inputs = [np.array(part, np.uint32) for part in (*key, *block)]
    for word, expected in enumerate(words):
        assert int(threefry.reference(*inputs, word=word)) == expected


@pytest.mark.parametrize(("key", "block", "words"), ANSWERS)
def test_known_answers_of_the_loop_form(key, block, words, loop_value):
    inputs = [Variable(Type(np.dtype(np.uint32), (3,))) for _ in range(4)]
    arrays = {x: np.full(3, part, np.uint32) for x, part in zip(inputs, (*key, *block))}
    for word, expected in enumerate(words):
        assert loop_value(threefry(*inputs, word=word), arrays).tolist() == [expected] * 3


def test_each_bit_of_key_and_block_changes_half_of_the_bits():
    """Over many random inputs, a flipped bit flips every bit of both words about half of the time."""
    inputs = np.random.default_rng(0).integers(0, 2**32, (4, 4000), np.uint32)
    before = [threefry.reference(*inputs, word=word) for word in (0, 1)]
    for part in range(4):
        for bit in (0, 13, 31):
            changed = inputs.copy()
            changed[part] ^= np.uint32(1 << bit)
            for word in (0, 1):
                flipped = threefry.reference(*changed, word=word) ^ before[word]
                shares = np.unpackbits(flipped.view(np.uint8).reshape(-1, 4), axis=1).mean(axis=0)
                assert np.abs(shares - 0.5).max() < 5 * 0.5 / np.sqrt(4000)


WORD, LONG = Type(np.dtype(np.uint32), (2,)), Type(np.dtype(np.uint32), (3,))


@pytest.mark.parametrize(
    ("types", "word", "error"),
    [
        ((WORD, WORD, WORD, LONG), 0, ShapeError),
        ((WORD, WORD, Type(np.dtype(np.int32), (2,)), WORD), 0, DTypeError),
        ((WORD,) * 4, 2, ShapeError),
    ],
    ids=["shapes", "dtype", "word"],
)
def test_what_does_not_fit(types, word, error):
    with pytest.raises(error, match="threefry: "):
        threefry.type_rule(*types, word=word)


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 4), (np.float64, 4)])
def test_normal_numbers_are_those_of_the_equation(dtype, most) -> None:  # type: ignore[no-untyped-def]
    """In units of the last place, against fifty decimal digits: also where u is 1, v a quarter and both are small."""
    random = np.random.default_rng(5)
    words = random.integers(0, 2**32, (2, 500), np.uint32)
    edges = np.array([0, 1, 2**29, 2**30, 2**31, 2**32 - 1, 3 << 29, 5 << 29, 7 << 29], np.uint32)
    words = np.concatenate(
        [words, np.array(list(itertools.product(edges, edges))).T.astype(np.uint32)], axis=1
    )
    found = box_muller.reference(*words, dtype=np.dtype(dtype))
    with mpmath.workdps(50):
        for first, second, value in zip(*words, found):
            u = mpmath.mpf(float((dtype(first) + dtype(0.5)) * dtype(2.0**-32)))
            turn = 2 * mpmath.pi * mpmath.mpf(int(second)) / 2**32
            exact = mpmath.sqrt(-2 * mpmath.log(u)) * mpmath.cos(turn)
            if int(second) % 2**30 == 0 and int(second) % 2**31:  # a quarter turn
                exact = mpmath.mpf(0)
            error = abs(mpmath.mpf(float(value)) - exact)
            assert error <= most * mpmath.mpf(float(np.spacing(np.abs(dtype(exact)) + np.finfo(dtype).tiny)))
