"""The interpreter of loop programs against loops in Python, and what it refuses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from pullback.errors import LoopError
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Buffer,
    Kernel,
    Literal,
    Load,
    Position,
    Reduce,
    Store,
    interpreter,
)
from pullback.loops.functions import FUNCTIONS
from pullback.loops.interpreter import Memory, Rows, run_kernel, run_tiles

F64, I64, BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool)
COMBINE = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


def at(*terms):
    """An affine index: ``at((i, 4), (j, 1))``."""
    return Affine.total(Affine.of(axis) * step for axis, step in terms)


def by_loops(kernel, memory):
    """The kernel run turn by turn, one element after another."""

    def index(offset, dynamic, where):
        place = offset.constant + sum(where[axis] * step for axis, step in offset.terms)
        return place + sum(int(value(e, where)) * stride for e, stride in dynamic)

    def value(e, where):
        if isinstance(e, Literal):
            return e.value
        if isinstance(e, Position):
            return index(e.index, (), where)
        if isinstance(e, Load):
            if e.guard is not None and not value(e.guard, where):
                return e.dtype.type(0)
            return memory[e.buffer][index(e.offset, e.dynamic, where)]
        if isinstance(e, Reduce):
            turns = itertools.product(*(range(axis.extent) for axis in e.over))
            found = [value(e.body, {**where, **dict(zip(e.over, turn))}) for turn in turns]
            if e.kind in ("argmax", "argmin"):
                return found.index((max if e.kind == "argmax" else min)(found))
            total = found[0]
            for other in found[1:]:
                total = COMBINE[e.kind](total, other)
            return total
        return e.dtype.type(FUNCTIONS[e.function](*(np.asarray(value(o, where)) for o in e.operands)))

    inner = sorted({store.inner for store in kernel.stores}, key=len)
    for turn in itertools.product(*(range(axis.extent) for axis in kernel.axes)):
        for loops in inner:
            for within in itertools.product(*(range(axis.extent) for axis in loops)):
                where = dict(zip((*kernel.axes, *loops), (*turn, *within)))
                stores = [store for store in kernel.stores if store.inner == loops]
                values = [value(store.value, where) for store in stores]
                for store, made in zip(stores, values):
                    place = index(store.offset, store.dynamic, where)
                    memory[store.buffer][place] = (
                        memory[store.buffer][place] + made if store.accumulate else made
                    )


def assert_as_by_loops(kernel, arrays):
    memory = {buffer: array.copy() for buffer, array in arrays.items()}
    by_loops(kernel, memory)
    found = Memory({buffer: array.copy() for buffer, array in arrays.items()})
    run_kernel(kernel, found)
    for buffer, array in memory.items():
        assert found.arrays[buffer].tobytes() == array.tobytes(), buffer


@pytest.fixture(params=[interpreter.MOST_ELEMENTS, 7])
def blocks(request, monkeypatch):
    """Turns all at once, and a few at a time."""
    monkeypatch.setattr(interpreter, "MOST_ELEMENTS", request.param)


i, j, k = Axis("i", 3), Axis("j", 4), Axis("k", 5)
x, y, row, out = (
    Buffer(n, F64, s) for n, s in (("x", (3, 4)), ("y", (4, 5)), ("row", (3,)), ("out", (3, 4)))
)
NUMBERS = np.random.default_rng(0).standard_normal(60)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("kind", ["add", "multiply", "maximum", "minimum"])
def test_reductions_go_through_their_axes_in_order(kind):
    body = Apply("multiply", (Load(x, at((i, 4), (j, 1))), Load(y, at((j, 5), (k, 1)))), F64)
    both = Reduce(kind, (k, j), body)
    kernel = Kernel((i,), (Store(row, at((i, 1)), both),))
    assert_as_by_loops(kernel, {x: NUMBERS[:12], y: NUMBERS[:20] * 1e3, row: np.zeros(3)})


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_extremes_are_counted_in_row_major_order_and_the_first_wins(kind):
    places = Buffer("places", I64, (3,))
    best = Reduce(kind, (k, j), Load(y, at((j, 5), (k, 1))), I64)
    ties = np.round(NUMBERS[:20])
    kernel = Kernel((i,), (Store(places, at((i, 1)), best),))
    assert_as_by_loops(kernel, {y: ties, places: np.zeros(3, np.int64)})


@pytest.mark.usefixtures("blocks")
def test_loops_and_reductions_over_one_axis_close_over_it_by_themselves():
    """A softmax's shares: the sum inside the row's loop is over the very axis of the loop."""
    here = Load(x, at((i, 4), (j, 1)))
    twice = Reduce("add", (j,), Apply("subtract", (here, Reduce("maximum", (j,), here)), F64))
    share = Apply("divide", (here, Reduce("add", (j,), Apply("multiply", (here, twice), F64))), F64)
    stores = (Store(out, at((i, 4), (j, 1)), share, (j,)), Store(row, at((i, 1)), twice))
    assert_as_by_loops(Kernel((i,), stores), {x: NUMBERS[:12], row: np.zeros(3), out: np.zeros(12)})


@pytest.mark.usefixtures("blocks")
def test_updates_at_one_place_are_added_in_order():
    where, table = Buffer("where", I64, (3, 4)), Buffer("table", F64, (2, 5))
    index = Load(where, at((i, 4), (j, 1)))
    value = Apply("multiply", (Load(x, at((i, 4), (j, 1))), Load(y, at((j, 5), (k, 1)))), F64)
    store = Store(table, at((k, 1)), value, (), ((index, 5),), accumulate="add")
    arrays = {x: NUMBERS[:12], y: NUMBERS[:20], where: np.arange(12) % 2, table: np.ones(10)}
    assert_as_by_loops(Kernel((i, j, k), (store,)), arrays)


def test_turns_that_accumulate_read_what_those_before_have_left():
    """A list of who was last at a place: each turn notes who was, and takes its place."""
    where, last = Buffer("where", I64, (6,)), Buffer("last", I64, (9,))
    turn = Axis("turn", 6)
    index, here = Load(where, at((turn, 1))), Position(at((turn, 1)))
    stores = (
        Store(last, at((turn, 1)) + 3, Load(last, Affine(), ((index, 1),))),
        Store(last, Affine(), here, (), ((index, 1),), accumulate="set"),
    )
    arrays = {where: np.array([0, 2, 0, 0, 2, 1]), last: np.full(9, -1)}
    memory = Memory(arrays)
    run_kernel(Kernel((turn,), stores), memory)
    assert memory.arrays[last].tolist() == [3, 5, 4, -1, -1, 0, 2, 1, -1]


def test_a_share_of_the_updates_is_chosen_by_its_rows():
    where, table = Buffer("where", I64, (3,)), Buffer("table", F64, (4,))
    index = Load(where, at((i, 1)))
    store = Store(table, Affine(), Literal(1.0, F64), (), ((index, 1),), accumulate="add")
    memory = Memory({where: np.array([0, 2, 2]), table: np.zeros(4)})
    run_kernel(Kernel((i,), (store,)), memory, rows=Rows(index, 1, 4))
    assert memory.arrays[table].tolist() == [0, 0, 2, 0]


@pytest.mark.usefixtures("blocks")
def test_a_guarded_load_reads_nothing_where_the_guard_is_false():
    before = Apply("subtract", (Position(at((j, 1))), Literal(2, I64)), I64)
    exists = Apply("greater_equal", (before, Literal(0, I64)), BOOL)
    value = Load(x, at((i, 4)), ((before, 1),), exists)
    kernel = Kernel((i, j), (Store(out, at((i, 4), (j, 1)), value),))
    assert_as_by_loops(kernel, {x: NUMBERS[:12], out: np.zeros(12)})


def test_turns_may_be_a_part_and_buffers_may_be_there_in_part():
    kernel = Kernel((i, j), (Store(out, at((i, 4), (j, 1)), Load(x, at((i, 4), (j, 1)))),))
    memory = Memory({x: np.arange(12.0), out: np.zeros(8)}, starts={out: 4})
    run_kernel(kernel, memory, {i: range(1, 3), j: range(2)})
    assert memory.arrays[out].tolist() == [4, 5, 0, 0, 8, 9, 0, 0]
    with pytest.raises(LoopError, match=r"out.* is written from -4 to -3, outside the 8 elements"):
        run_kernel(kernel, memory, {i: range(1), j: range(2)})


def test_an_index_out_of_range_is_reported_and_zero():
    where = Buffer("where", I64, (3,))
    extent = (("extent", 3), ("what", "label"), ("wrap", True))
    index = Apply("check_index", (Load(where, at((i, 1))),), I64, extent)
    memory = Memory({where: np.array([-1, 3, -4]), row: np.zeros(3), x: np.arange(12.0)})
    run_kernel(Kernel((i,), (Store(row, at((i, 1)), Load(x, Affine(), ((index, 1),))),)), memory)
    assert memory.arrays[row].tolist() == [2, 0, 0]
    assert [str(failure) for failure in memory.failures] == ["label: 3 is outside -3 to 2"]


def test_an_element_that_several_turns_store_is_an_error():
    kernel = Kernel((i, j), (Store(row, at((i, 1)), Load(x, at((i, 4), (j, 1)))),))
    with pytest.raises(LoopError, match="stored by several turns"):
        run_kernel(kernel, Memory({x: np.zeros(12), row: np.zeros(3)}))


def in_place(value, inner=(), axes=(i, j)):
    """A kernel that writes ``out`` in the memory of ``x``."""
    array = NUMBERS[:12].copy()
    return Kernel(axes, (Store(out, at((i, 4), (j, 1)), value, inner),)), Memory({x: array, out: array})


def test_what_a_turn_overwrites_it_may_read_before():
    here = Load(x, at((i, 4), (j, 1)))
    centred = Apply("subtract", (here, Reduce("add", (k4,), Load(x, at((i, 4), (k4, 1))))), F64)
    kernel, memory = in_place(centred, (j,), (i,))
    run_kernel(kernel, memory)
    rows = NUMBERS[:12].reshape(3, 4)
    np.testing.assert_allclose(memory.arrays[x].reshape(3, 4), rows - rows.sum(1, keepdims=True))


k4 = Axis("k", 4)


@pytest.mark.parametrize(
    "value",
    [
        Load(x, Affine(((j, -1),), 3) + at((i, 4))),
        Reduce("add", (k4,), Load(x, at((i, 4), (k4, 1)))),
        Load(x, at((j, 1))),
    ],
    ids=["reversed", "sum of the row", "first row"],
)
def test_what_another_turn_overwrites_is_not_read(value):
    kernel, memory = in_place(value)
    with pytest.raises(LoopError, match="in the same memory, written by another"):
        run_kernel(kernel, memory)


def test_a_sum_inside_a_loop_that_overwrites_its_elements_is_an_error():
    scaled = Apply("multiply", (Load(x, at((i, 4), (k4, 1))), Position(at((j, 1)))), F64)
    kernel, memory = in_place(Reduce("add", (k4,), scaled), (j,), (i,))
    with pytest.raises(LoopError, match="written by another"):
        run_kernel(kernel, memory)


def test_the_functions_are_those_of_code():
    from pullback.compiler.codegen.integers import COMPARISONS
    from pullback.compiler.codegen.vectormath import ELEMENTWISE

    assert {*ELEMENTWISE, *COMPARISONS} <= FUNCTIONS.keys()
    assert math.isclose(FUNCTIONS["erf"](np.array(0.5)), math.erf(0.5))
    powers = FUNCTIONS["power"](np.array([2, -1, -1, 1, 3]), np.array([-1, -3, -2, -5, 4]))
    assert powers.tolist() == [0, -1, 1, 1, 81]


def test_long_sums_lose_no_more_than_lanes_do():
    x, y = Buffer("x", np.dtype(np.float32), (100_000,)), Buffer("y", np.dtype(np.float32), ())
    k = Axis("k", 100_000)
    kernel = Kernel((), (Store(y, Affine(), Reduce("add", (k,), Load(x, Affine.of(k)))),))
    values = np.full(100_000, 0.1, np.float32)
    total = np.zeros(1, np.float32)
    run_kernel(kernel, Memory({x: values, y: total}))
    np.testing.assert_allclose(total, 1e4, rtol=1e-5)


def test_tiles_run_one_after_another_in_the_order_of_their_axes():
    """Of what is set in one element the last turn's stays, and all turns of a tile read before any of them stores."""
    i, j, float64 = Axis("i", 2), Axis("j", 3), np.dtype(np.float64)
    x, y = Buffer("x", float64, (2, 3)), Buffer("y", float64, (4,))
    place = Affine.of(i) * 3 + Affine.of(j)
    last = Kernel((i, j), (Store(y, Affine(), Load(x, place), accumulate="set"),))
    for tiles, wanted in (
        ([{i: range(2), j: range(3)}], 5),
        ([{j: range(k, k + 1), i: range(2)} for k in (0, 2, 1)], 4),
        ([{j: range(1), i: range(2)}, {j: range(1, 3), i: range(1)}], 2),
    ):
        memory = Memory({x: np.arange(6.0), y: np.zeros(4)})
        run_kernel(last, memory, tiles=tiles)
        assert memory.arrays[y][0] == wanted

    diagonals = Store(y, Affine.of(i) + Affine.of(j), Load(x, place), accumulate="set")
    for tile, left in (
        ({i: range(2), j: range(3)}, [0, 3, 4, 5]),
        ({j: range(3), i: range(2)}, [0, 1, 2, 5]),
    ):
        memory = Memory({x: np.arange(6.0), y: np.zeros(4)})
        run_kernel(Kernel((i, j), (diagonals,)), memory, tiles=[tile])
        assert memory.arrays[y].tolist() == left

    shift = Kernel((j,), (Store(y, Affine.of(j) + 1, Load(y, Affine.of(j))),))
    for tiles, found in (
        ([{j: range(3)}], [0, 0, 1, 2]),
        ([{j: range(k, k + 1)} for k in range(3)], [0] * 4),
    ):
        memory = Memory({y: np.arange(4.0)})
        run_tiles(shift, memory, tiles)
        assert memory.arrays[y].tolist() == found
        with pytest.raises(LoopError, match="written by another"):
            run_kernel(shift, memory, tiles=tiles)
