"""Dependences: all that there are, and none where arrays lie as the compiler lays them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback.loops import Affine, Axis, Buffer, Kernel, Literal, Load, Store
from pullback.loops.dependences import dependences

FLOAT, INT = np.dtype(np.float64), np.dtype(np.int64)
A, B, C = Axis("i", 4), Axis("j", 5), Axis("k", 3)
K = Axis("inner", 3)
Y, TABLE = Buffer("y", FLOAT, (1000,)), Buffer("table", INT, (4,))
ONE = Literal(1, FLOAT)
AT = Load(TABLE, Affine.of(A))


def at(*steps: int, constant: int = 0) -> Affine:
    return Affine.total(Affine.of(axis) * step for axis, step in zip((A, B, C), steps)) + constant


def signs(*stores: Store) -> list[tuple[int, ...]]:
    return sorted(d.signs for d in dependences(Kernel((A, B, C), stores)))


ROWS = Store(Y, at(15, 3, 1), ONE)
APART = {
    "row-major": [ROWS],
    "transposed": [Store(Y, at(1, 4, 20), ONE)],
    "reversed": [Store(Y, at(15, -3, 1, constant=12), ONE)],
    "with gaps": [Store(Y, at(40, 7, 2), ONE)],
    "interleaved": [Store(Y, at(30, 6, 2, constant=k), ONE) for k in range(2)],
    "concatenated": [Store(Y, at(30, 3, 1, constant=k), ONE) for k in (0, 15)],
    "whole rows inside": [Store(Y, at(45, 9, 3) + Affine.of(K), ONE, (K,))],
    "read by the same turn": [ROWS, Store(Y, at(15, 3, 1, constant=500), Load(Y, at(15, 3, 1)))],
    "computed places": [Store(Y, at(0, 3, 1), ONE, dynamic=((AT, 15),))],
}


@pytest.mark.parametrize("name", APART)
def test_turns_apart(name):
    assert signs(*APART[name]) == []


@pytest.mark.parametrize(
    ("store", "wanted"),
    [
        (Store(Y, at(15, 3, 0), ONE), [(0, 0, 1)]),
        (Store(Y, at(1, 1, 8), ONE), [(1, -1, 0)]),
        (Store(Y, at(4, 1, 20), ONE), [(1, -1, 0)]),
        (Store(Y, at(3, 0, 1), ONE), [(0, 1, 0)]),
        (Store(Y, at(15, 3, 1, constant=15), Load(Y, at(15, 3, 1))), [(1, 0, 0)]),
        (Store(Y, at(15, 3, 1), Load(Y, at(15, 3, 1, constant=15))), [(1, 0, 0)]),
        (Store(Y, at(15, 3, 1, constant=15), Load(Y, at(15, 3, 1, constant=3))), [(0, 1, 0), (1, -1, 0)]),
        (Store(Y, at(15, 3, 1) + Affine.of(K) * 15, ONE, (K,)), [(1, 0, 0)]),
        (Store(Y, at(0, 3, 1), ONE, dynamic=((AT, 15),), accumulate="add"), [(1, 0, 0)]),
        # Of one row all places are different; rows may overlap.
        (
            Store(Y, at(0, 3, 0) + Affine.of(C), ONE, dynamic=((AT, 3),), accumulate="add"),
            [(1, -1, 0), (1, 0, 0), (1, 1, 0)],
        ),
    ],
)
def test_turns_that_depend_on_others(store, wanted):
    assert signs(store) == wanted


def test_what_a_dependence_says():
    kernel = Kernel((A, B), (Store(Y, at(5, 1, constant=5), Load(Y, at(5, 1))),))
    (found,) = dependences(kernel)
    assert str(found) == "of turns along i one reads what another stores in y: float64[1000]"
    assert found.sign(A) == 1 and found.sign(B) == 0


def test_no_turns_have_none():
    empty = Axis("e", 0)
    assert dependences(Kernel((empty, A), (Store(Y, Affine(), ONE, accumulate="add"),))) == ()


OFFSETS = st.tuples(*(st.integers(-3, 5) for _ in range(3)), st.integers(0, 6))


@given(OFFSETS, OFFSETS)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_none_is_missed(stored, read):
    (*steps, constant), (*other, shift) = stored, read
    kernel = Kernel(
        (A, B, C), (Store(Y, at(*steps, constant=constant), Load(Y, at(*other, constant=shift))),)
    )
    found = {d.signs for d in dependences(kernel)}
    turns = np.array(list(itertools.product(*map(range, (4, 5, 3)))))
    places = turns @ steps + constant
    for others in (places, turns @ other + shift):
        first, second = np.nonzero(places[:, None] == others[None])
        for way in np.unique(np.sign(turns[second] - turns[first]), axis=0).tolist():
            later = max(tuple(way), tuple(-sign for sign in way))
            assert later in found or not any(later)
