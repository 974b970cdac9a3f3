"""Nests: a move that would change the results is refused, and any other leaves what the interpreter gives."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import pullback.loops.nest
from pullback.errors import LoopError
from pullback.loops import Affine, Apply, Axis, Buffer, Expression, Kernel, Literal, Load, Store
from pullback.loops.interpreter import Memory, run_tiles
from pullback.loops.nest import Kind, Nest, keep, nest_of, parallelise, reorder, split, strips_of, vectorise

FLOAT, INT = np.dtype(np.float64), np.dtype(np.int64)
A, B, C = Axis("i", 7), Axis("j", 10), Axis("k", 3)
INDEX = Affine.of(A) * 30 + Affine.of(B) * 3 + Affine.of(C)
X, Y = Buffer("x", FLOAT, (7, 10, 3)), Buffer("y", FLOAT, (7, 10, 3))
KERNEL = Kernel((A, B, C), (Store(Y, INDEX, Apply("exp", (Load(X, INDEX),), FLOAT)),))

MOVED = {
    "as it is": nest_of(KERNEL),
    "split": split(nest_of(KERNEL), B, strips_of(10, 4)),
    "split evenly": split(nest_of(KERNEL), A, strips_of(7, 3, even=True)),
    "reordered": reorder(nest_of(KERNEL), [C, A]),
    "parallel": parallelise(nest_of(KERNEL), A),
    "registers": keep(split(nest_of(KERNEL), A, strips_of(7, 3)), A),
    "lanes": vectorise(split(nest_of(KERNEL), B, strips_of(10, 8)), B, 4),
    "all of it": vectorise(
        split(keep(split(parallelise(nest_of(KERNEL), A), A, strips_of(7, 2)), A), C, strips_of(3, 2)), C, 2
    ),
}


def run(nest: Nest, chunk: int = 0) -> dict[Buffer, np.ndarray]:
    """What a kernel leaves, in the order of its nest, of a parallel loop some turns at a time, the last ones first."""
    random = np.random.default_rng(7)
    buffers = dict.fromkeys([*nest.kernel.reads(), *nest.kernel.writes()])
    memory = Memory({})
    for buffer in buffers:
        whole = buffer.dtype.kind == "i"
        drawn = random.integers(0, 4, buffer.size) if whole else random.normal(size=buffer.size)
        memory.arrays[buffer] = drawn
    turns = max([level.axis.extent for level in nest.levels if level.kind is Kind.PARALLEL], default=1)
    for low in reversed(range(0, turns, chunk or turns)):
        run_tiles(nest.kernel, memory, nest.tiles(low, min(low + (chunk or turns), turns)))
    return memory.arrays


def assert_same(nest: Nest, other: Nest) -> None:
    """Both leave the same in memory, to the last bit."""
    found, wanted = run(nest, 1), run(other)
    for buffer, array in wanted.items():
        np.testing.assert_array_equal(found[buffer], array)


@pytest.mark.parametrize("name", MOVED)
def test_a_moved_nest_means_the_same(name):
    assert_same(MOVED[name], nest_of(KERNEL))


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", MOVED)
def test_each_turn_is_in_one_tile(name, together):
    seen = [
        (i, j, k)
        for tile in MOVED[name].tiles(0, A.extent, together)
        for i in tile[A]
        for j in tile[B]
        for k in tile[C]
    ]
    assert len(seen) == len(set(seen)) == math.prod(axis.extent for axis in KERNEL.axes)


@pytest.mark.parametrize("name", ["parallel", "all of it"])
def test_a_part_of_the_parallel_turns(name):
    seen = {i for tile in MOVED[name].tiles(3, 6) for i in tile[A]}
    assert seen == {3, 4, 5}


def test_tiles_are_in_the_order_of_the_loops():
    nest = nest_of(Kernel((A, C), ()))
    serial = [(i, k) for i in range(7) for k in range(3)]

    def order(nest: Nest) -> list[tuple[int, int]]:
        return [(i, k) for tile in nest.tiles(0, 7) for i in tile[A] for k in tile[C]]

    assert order(nest) == order(split(nest, A, strips_of(7, 3))) == serial
    assert order(reorder(nest, [C, A])) == [(i, k) for k in range(3) for i in range(7)]
    kept = keep(split(nest, A, strips_of(7, 3)), A)
    strips = [range(3), range(3, 6), range(6, 7)]
    assert order(kept) == [(i, k) for strip in strips for k in range(3) for i in strip]
    lanes = vectorise(split(nest, A, strips_of(7, 4)), A, 4)
    assert all([*tile] == [C, A] for tile in lanes.tiles(0, 7))


# ---------------------------------------------------------------------- what forbids a move

R, S = Axis("i", 6), Axis("j", 5)
GRID, LINE, ONE = Buffer("grid", FLOAT, (7, 6)), Buffer("line", FLOAT, (12,)), Buffer("one", FLOAT, ())
CELL, SOURCE = Affine.of(R) * 6 + Affine.of(S), Buffer("source", FLOAT, (6, 6))
VALUE = Load(SOURCE, CELL)


def nest(buffer: Buffer, offset: Affine, value: Expression = VALUE, accumulate: str = "") -> Nest:
    """The loops over ``i`` and ``j`` around one store."""
    return nest_of(Kernel((R, S), (Store(buffer, offset, value, accumulate=accumulate),)))


TOTAL = nest(ONE, Affine(), accumulate="add")
ROWS = nest(LINE, Affine.of(R), accumulate="add")
COLUMNS = nest(LINE, Affine.of(S), accumulate="add")
DIAGONALS = nest(LINE, Affine.of(R) + Affine.of(S), accumulate="add")
LAST = nest(ONE, Affine())
DOWN = nest(GRID, CELL + 6, Load(GRID, CELL))
ALONG = nest(GRID, CELL + 1, Load(GRID, CELL))
BACK = nest(GRID, CELL, Load(GRID, CELL + 1))
ASKEW = nest(GRID, CELL + 6, Load(GRID, CELL + 1))
PAIRS = nest_of(
    Kernel((R, S), tuple(Store(GRID, CELL + k, Literal(k, FLOAT)) for k in range(2)))
)  # of neighbours each stores the other's element
COPY = nest(GRID, CELL)


def in_threes(nest: Nest, axis: Axis) -> Nest:
    return split(nest, axis, strips_of(axis.extent, 3))


MOVES: dict[str, Callable[[Nest, Axis], Nest]] = {
    "registers": keep,
    "lanes": lambda nest, axis: vectorise(nest, axis, 2),
    "parallel": parallelise,
    "outermost": lambda nest, axis: reorder(nest, [axis, *(a for a in nest.kernel.axes if a is not axis)]),
}

ALLOWED = [
    *((COPY, move, axis) for move in MOVES for axis in (R, S)),
    *((ROWS, move, R) for move in MOVES),
    (ROWS, "outermost", S),
    *((COLUMNS, move, S) for move in MOVES),
    *((DOWN, move, S) for move in MOVES),
    *((ALONG, move, R) for move in ("registers", "lanes", "outermost")),
    (PAIRS, "outermost", R),
]
REFUSED = [
    (TOTAL, "registers", R, "i cannot be in registers: turns along i meet in an element of one"),
    (TOTAL, "outermost", S, "the order j, i: turns along i and j meet in an element of one"),
    (TOTAL, "lanes", R, "i cannot be lanes: turns along i meet in an element of one"),
    (TOTAL, "parallel", S, "j cannot be parallel: turns along j meet in an element of one"),
    (ROWS, "parallel", S, "j cannot be parallel: turns along j meet in an element of line"),
    (COLUMNS, "parallel", R, "i cannot be parallel: turns along i meet in an element of line"),
    (DIAGONALS, "registers", R, "i cannot be in registers: turns along i and j meet in an element of line"),
    (DIAGONALS, "parallel", R, "i cannot be parallel: turns along i and j meet in an element of line"),
    (LAST, "lanes", S, "j cannot be lanes: turns along j meet in an element of one"),
    (LAST, "parallel", R, "i cannot be parallel: turns along i meet in an element of one"),
    (DOWN, "registers", R, "of turns along i one reads what another stores in grid"),
    (DOWN, "lanes", R, "i cannot be lanes: of turns along i one reads what another stores in grid"),
    (DOWN, "parallel", R, "i cannot be parallel: of turns along i one reads what another stores in grid"),
    (ALONG, "registers", S, "of turns along j one reads what another stores in grid"),
    (ALONG, "lanes", S, "j cannot be lanes: of turns along j one reads what another stores in grid"),
    (ALONG, "parallel", S, "j cannot be parallel: of turns along j one reads what another stores in grid"),
    (BACK, "parallel", S, "j cannot be parallel: of turns along j one reads what another stores in grid"),
    (ASKEW, "outermost", S, "the order j, i: of turns along i and j one reads what another stores in grid"),
    (PAIRS, "parallel", S, "j cannot be parallel: turns along j meet in an element of grid"),
]


@pytest.mark.parametrize(("nest", "move", "axis"), ALLOWED)
def test_moves_that_leave_the_results(nest, move, axis):
    assert_same(MOVES[move](in_threes(nest, axis), axis), nest)


@pytest.mark.parametrize(("nest", "move", "axis", "said"), REFUSED)
def test_moves_that_would_change_the_results(nest, move, axis, said, monkeypatch):
    """Each is refused with the dependence; made all the same, it gives something else."""
    split_nest = in_threes(nest, axis)
    with pytest.raises(LoopError, match=said):
        MOVES[move](split_nest, axis)
    monkeypatch.setattr(pullback.loops.nest, "_checked", lambda nest, refusal: nest)
    with pytest.raises((AssertionError, LoopError)):
        assert_same(MOVES[move](split_nest, axis), nest)


@pytest.mark.parametrize("nest", [TOTAL, DIAGONALS, LAST, DOWN, ASKEW])
def test_strips_leave_the_order_alone(nest):
    assert_same(in_threes(in_threes(nest, R), S), nest)


def test_moves_that_make_no_sense():
    nest = nest_of(KERNEL)
    with pytest.raises(LoopError, match="do not make the 10 turns of j"):
        split(nest, B, ((4, 2),))
    with pytest.raises(LoopError, match="no loop over other"):
        split(nest, Axis("other", 2), ((2, 1),))
    with pytest.raises(LoopError, match="in the tile already"):
        keep(vectorise(nest, B, 4), B)
    with pytest.raises(LoopError, match="k cannot be lanes: those of j are"):
        vectorise(vectorise(nest, B, 4), C, 4)
    with pytest.raises(LoopError, match="j cannot be parallel: the turns of i are shared out"):
        parallelise(parallelise(nest, A), B)


# ---------------------------------------------------------------------- kernels and moves at random

TABLE = Buffer("table", INT, (4,))
MADE = [Buffer(name, FLOAT, (64,)) for name in "yz"]


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """One to three axes, and up to two stores in two buffers, which they read as well."""
    axes = tuple(Axis(name, draw(st.integers(1, 4))) for name in "ijk"[: draw(st.integers(1, 3))])
    steps = st.sampled_from([0, 0, 1, 1, -1, 2, 4, 16])
    inner = Axis("inner", 2)

    def place(loops: tuple[Axis, ...]) -> Affine:
        index = Affine.total(Affine.of(axis) * draw(steps) for axis in loops)
        low, high = index.bounds()
        return index + (draw(st.integers(0, 2)) - low) if high - low < 50 else Affine()

    def computed() -> tuple[tuple[Expression, int], ...]:
        index = Load(TABLE, Affine.of(draw(st.sampled_from(axes))))
        return draw(st.sampled_from([(), (), ((index, draw(st.integers(1, 4))),)]))

    def store() -> Store:
        loops = draw(st.sampled_from([(), (), (inner,)]))
        accumulate = draw(st.sampled_from(["", "add", "set"]))
        read = Load(draw(st.sampled_from([*MADE, X])), place((*axes, *loops)), computed())
        value = Apply("add", (read, Load(X, place(axes))), FLOAT)
        moved = computed() if accumulate else ()
        return Store(draw(st.sampled_from(MADE)), place((*axes, *loops)), value, loops, moved, accumulate)

    return Kernel(axes, tuple(store() for _ in range(draw(st.integers(1, 2)))))


@st.composite
def moves(draw: st.DrawFn) -> tuple[Nest, Nest]:
    """A kernel's nest, and what some moves make of it that are not refused."""
    kernel = draw(kernels())
    nest = nest_of(kernel)
    for _ in range(draw(st.integers(1, 5))):
        axis = draw(st.sampled_from(kernel.axes))
        nest = split(nest, axis, strips_of(axis.extent, draw(st.integers(1, 4)), draw(st.booleans())))
        with contextlib.suppress(LoopError):
            nest = MOVES[draw(st.sampled_from([*MOVES]))](nest, axis)
    return nest_of(kernel), nest


@given(moves())
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_moves_are_refused_or_leave_the_results(case):
    before, after = case
    try:
        run(before)
    except LoopError:  # a loop inside stores one element several times
        assume(False)
    assert_same(after, before)
