"""Views, gathers and scatters in compiled programs, and what happens to an index that is out of range."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.errors import IndexRangeError
from pullback.graph import OPERATORS, Graph, Node, Type, Variable, constant
from pullback.interpreter import evaluate

pad, reverse, concatenate, broadcast = (OPERATORS[n] for n in ("pad", "reverse", "concatenate", "broadcast"))
gather, scatter_add, iota = (OPERATORS[n] for n in ("gather", "scatter_add", "iota"))


def integers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(shape).integers(-9, 10, shape).astype(dtype)


def positions(extent: int, *shape: int) -> np.ndarray:
    return np.random.default_rng([extent, *shape]).integers(0, extent, shape)


def assert_same(compiler, processor, function, *arrays: np.ndarray) -> None:
    """``function`` of nodes, without the NumPy namespace around it."""
    variables = [Variable(Type(array.dtype, array.shape)) for array in arrays]
    made = function(*variables)
    outputs = (made,) if isinstance(made, Node) else tuple(made)
    compiler.assert_same(Graph(tuple(variables), outputs), arrays, processor=processor)


def test_views_of_views(compiler, traced, processor):
    def views(x, y):
        joined = np.concatenate([x, x[::-1]], 0)
        stacked = np.concatenate([y, y * 2, y[:0], y[:1]], 0)
        return (
            joined.T,
            joined[::-1, 1:4],
            joined.reshape(5, -1),
            joined.T.reshape(-1)[3:50:4],
            np.concatenate([joined, joined], 1)[:, 2:8].sum(0),
            np.transpose(x.reshape(2, 3, 5), (2, 0, 1)).reshape(-1, 3),
            stacked[::-1],
            stacked.reshape(-1)[::3],
            np.broadcast_to(x[None, :, None], (2, 6, 3, 5)).reshape(12, -1),
            np.flip(np.transpose(np.broadcast_to(y, (4, 37)))),
        )

    arrays = [integers(6, 5), integers(37)]
    compiler.assert_same(traced(views, *arrays), arrays, processor=processor)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, bool])
def test_pads_and_joins(dtype, compiler, processor):
    def function(x, y):
        padded = pad(x, low=(3, 1), high=(1, 20))
        joined = concatenate(x, y, x, axis=0)
        turned = OPERATORS["transpose"](padded, axes=(1, 0))
        results = [padded, turned, reverse(padded, axes=(0, 1)), reverse(joined, axes=(0,)), joined]
        results.append(pad(reverse(joined, axes=(1,)), low=(0, 17), high=(2, 0)))
        return results + ([] if dtype is bool else [OPERATORS["sum"](r, axes=(0,)) for r in results])

    x, y = (np.abs(integers(*shape)).astype(dtype) for shape in [(3, 5), (31, 5)])
    assert_same(compiler, processor, function, x, y)


def test_reads_that_never_happen_are_inside_the_buffer(compiler, processor):
    """The index of the first turn lies far beyond the end of the smaller array."""

    def function(x, y):
        joined = reverse(concatenate(x, y, axis=0), axes=(0,))
        return joined, OPERATORS["sum"](joined, axes=(1,)), OPERATORS["transpose"](joined, axes=(1, 0))

    assert_same(compiler, processor, function, integers(2, 3), integers(30000, 3))
    assert_same(
        compiler, processor, lambda x: reverse(pad(x, low=(3,), high=(9000,)), axes=(0,)), integers(3)
    )


def test_gathers(compiler, processor):
    def function(x, y, rows, columns):
        return (
            gather(x, rows, axes=(0,)),
            gather(x, columns, axes=(1,)),
            gather(x, rows, columns, axes=(0, 1)),
            reverse(gather(x, rows, axes=(0,)), axes=(0, 1)),
            gather(pad(x, low=(1, 0), high=(0, 2)), rows, axes=(0,)),
            gather(concatenate(y, x, axis=0), rows, axes=(0,)),
            gather(OPERATORS["reshape"](x, shape=(15, 14)), rows, axes=(0,)),
            pad(gather(x, rows, axes=(0,)), low=(2, 3, 0), high=(1, 0, 4)),
            OPERATORS["sum"](gather(x, rows, axes=(0,)), axes=(0,)),
            OPERATORS["max"](gather(x, columns, axes=(1,)), axes=(1,)),
        )

    arrays = [integers(6, 35), integers(3, 35), positions(6, 4, 5), positions(35, 4, 5)]
    assert_same(compiler, processor, function, *arrays)


def test_scatters_add_repeated_positions(compiler, processor):
    def function(base, tall, narrow, i, j, updates, rows, cells):
        return (
            scatter_add(base, updates, i, axes=(0,)),
            scatter_add(tall, rows, i, axes=(0,)),
            scatter_add(tall, cells, i, j, axes=(0, 1)),
            scatter_add(narrow, cells, j, axes=(0,)),
            scatter_add(OPERATORS["transpose"](tall, axes=(1, 0)), rows, i, axes=(1,)),
        )

    arrays = [integers(6), integers(6, 17), integers(17), positions(6, 40), positions(17, 40)]
    arrays += [integers(40), integers(40, 17), integers(40) + 1]
    for dtype in (np.float32, np.float64, np.int32):
        given = [a if a.dtype == np.int64 else a.astype(dtype) for a in arrays]
        assert_same(compiler, processor, function, *given)


@pytest.mark.parametrize("count", [1, 5, 20])
def test_scatters_into_places_known_before(count, compiler, processor):
    """All updates go to one element: lanes must not overwrite each other."""

    def function(base, table, updates, grid, rows, one):
        zeros, square = constant(np.zeros(count, np.int64)), constant(np.full((4, count), 2))
        spread = broadcast(one, shape=(4, count), axes=(0,))
        count_up = iota(shape=(count,), axis=0, dtype=np.dtype(np.int64))
        return (
            scatter_add(base, updates, zeros, axes=(0,)),
            scatter_add(table, rows, zeros, axes=(0,)),
            scatter_add(base, grid, square, axes=(0,)),
            scatter_add(base, grid, spread, axes=(0,)),
            scatter_add(base, updates, count_up, axes=(0,)),
        )

    arrays = [integers(30), integers(6, 7), integers(count), integers(4, count), integers(count, 7)]
    assert_same(compiler, processor, function, *arrays, positions(6, 4))


def test_scatters_and_their_bases_in_a_row(compiler, processor):
    """A base that is an output itself, read before and after something was added."""

    def function(x, i, j):
        doubled = x * 2
        first = scatter_add(doubled, x, i, axes=(0,))
        second = scatter_add(first, gather(first, j, axes=(0,)), i, axes=(0,))
        return doubled, first, second, doubled + first, OPERATORS["sum"](second, axes=(0,)) + doubled

    assert_same(compiler, processor, function, integers(19, 5), positions(19, 19), positions(19, 19))


def test_negative_indices_count_from_the_end(compiler, traced, processor):
    arrays = [integers(7, 5), np.array([0, -1, -7, 6, 3, -1])]
    compiler.assert_same(
        traced(lambda x, i: (x[i], x[:, i[:3] % 5], x[i, i % 5]), *arrays), arrays, processor=processor
    )


@pytest.mark.parametrize("wrong", [7, -8, 2**40, -(2**62)])
@pytest.mark.parametrize("place", [0, 3, 18])
def test_an_index_out_of_range_is_reported(wrong, place, traced, compiler, processor):
    x, index = integers(7, 5), positions(7, 19)
    index[place] = wrong
    program = compiler.program(traced(lambda x, i: x[i] * 2, x, index), processor=processor)
    with pytest.raises(IndexRangeError, match=rf": {wrong} at position \({place},\) is outside -7 to 6"):
        program(x, index)
    index[place] = 6
    (result,) = program(x, index)
    np.testing.assert_array_equal(result, x[index] * 2)


def test_an_index_that_a_reduction_made_is_reported(traced, compiler):
    x, y = integers(7), integers(20)
    program = compiler.program(traced(lambda x, y: x[y.argmax() + 100], x, y))
    with pytest.raises(IndexRangeError, match="outside -7 to 6"):
        program(x, y)


def test_a_wrong_index_from_behind_a_guard_is_reported():
    """Where the padding is, the array that the index is read from has no place."""
    x = np.array([[1.0]])

    def picked(x):
        padded = np.pad(x, ((1, 1), (2, 0)))
        return x[np.clip(padded, 40, 40).astype(np.int64)]

    with pytest.raises(IndexRangeError, match=r": 40 is outside -1 to 0; .*"):
        pb.jit(picked)(x)


def _lookup(first, second, i, j):
    """Two tables of one length, each with a line of its own."""
    left = first[i]
    right = second[j]
    return left + right


def _lookup_in_one_line(first, second, i, j):
    return first[i] + second[j]


def _line(function, number):
    return function.__code__.co_firstlineno + number


@pytest.mark.parametrize("cached", [False, True])
def test_an_index_out_of_range_names_its_own_line(cached, monkeypatch, tmp_path):
    """Also where the code comes from the cache, and where other code like it has its checks on one line."""
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "code") if cached else "off")
    good, wrong = np.array([0, 2]), np.array([1, 5])
    tables = integers(5, 3), integers(5, 3)
    wanted = {
        _lookup: (_line(_lookup, 2), _line(_lookup, 3)),
        _lookup_in_one_line: (_line(_lookup_in_one_line, 1),) * 2,
    }
    for function, lines in [*wanted.items(), *wanted.items()]:
        for compiled in (pb.jit(function), pb.jit(lambda *arrays, f=function: f(*arrays))):
            compiled(*tables, good, good)
            for line, arguments in zip(lines, ((wrong, good), (good, wrong))):
                with pytest.raises(
                    IndexRangeError, match=rf"test_indexing\.py:{line} in {function.__name__}$"
                ) as caught:
                    compiled(*tables, *arguments)
                error = caught.value
                assert (error.value, error.low, error.extent, error.position) == (5, -5, 5, (1,))
                assert error.what == "axis 0 of shape (5, 3)" and error.source.line == line


def test_the_interpreter_names_the_same_line(traced):
    tables, good, wrong = (integers(5, 3), integers(5, 3)), np.array([0, 2]), np.array([1, 5])
    graph = traced(_lookup, *tables, good, good)
    with pytest.raises(
        IndexRangeError, match=rf"test_indexing\.py:{_line(_lookup, 3)} in _lookup$"
    ) as caught:
        evaluate(graph, [*tables, good, wrong])
    assert (caught.value.value, caught.value.position) == (5, (1,))


def test_a_wrong_index_leaves_donated_arrays_as_they_were():
    def update(weights, speed, index):
        speed = speed * 0.5 + weights[index].sum(0)
        return weights - speed, speed, (weights * speed).sum()

    step = pb.jit(update, donate_argnums=(0, 1))

    weights, speed = integers(6, 33), integers(6, 33)
    before = weights.copy(), speed.copy()
    with pytest.raises(IndexRangeError):
        step(weights, speed, np.array([0, 6]))
    np.testing.assert_array_equal((weights, speed), before)
    result = step(weights, speed, np.array([0, 5]))
    wanted = before[1] * 0.5 + before[0][[0, 5]].sum(0)
    np.testing.assert_array_equal(speed, wanted)
    np.testing.assert_array_equal(result[0], before[0] - wanted)


@pytest.mark.parametrize("rows", [1, 3, 700])
def test_many_updates_are_shared_out_by_rows(rows, compiler, processor):
    """Enough updates for several chunks: each element still gets its own in the order of the positions."""

    def function(table, updates, i, flat, numbers):
        return scatter_add(table, updates, i, axes=(0,)), scatter_add(flat, numbers, i, axes=(0,))

    random = np.random.default_rng(rows)
    shapes = [(rows, 5), (9000, 5), (rows,), (9000,)]
    table, updates, flat, numbers = (random.standard_normal(shape).astype(np.float32) for shape in shapes)
    assert_same(compiler, processor, function, table, updates, positions(rows, 9000), flat, numbers)


@pytest.mark.parametrize("count", [1, 15, 64, 131])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64, np.uint32])
def test_positions_are_found_at_every_end(dtype, count, compiler, processor):
    """Whole and partial vectors of indices of every width, in grids whose rows do not follow each other."""

    def function(table, index, cells, columns):
        index = index.astype(np.int64)
        return (
            scatter_add(table, columns, index, axes=(0,)),
            scatter_add(table, OPERATORS["transpose"](cells, axes=(1, 0)), index, index % 3, axes=(0, 1)),
            scatter_add(table, cells[:, ::-1].T * 2, index, index // 90, axes=(0, 1)),
        )

    random = np.random.default_rng(count)
    index = random.integers(0, 250, (count, 3)).astype(dtype)
    arrays = [integers(250, 3), index, integers(3, count), integers(count, 3, 3)]
    assert_same(compiler, processor, function, *arrays)


def test_each_step_gathers_the_row_that_its_slice_says():
    """Sliced indices of any sign, whatever lies behind the last of them."""
    table = integers(3000, 100)
    rows = positions(3000, 8, 1) - 1500
    picked = pb.jit(lambda total, row, table: (total + table[row], total), donate_argnums=0)
    guarded = np.concatenate([rows, [[10**15]]])[:8]
    (total, _), done = picked.run_steps((np.zeros((1, 100), np.float32), guarded, table), 8, 1)
    assert done == 8
    np.testing.assert_array_equal(total, table[rows].sum(0))


@pytest.mark.parametrize("height", [3000, 100])
def test_rows_counted_from_the_end(height):
    table, rows = integers(height, 100), positions(height, 20)
    rows[-1] -= height
    picked = pb.jit(lambda table, rows: table[rows] * np.float32(2))
    np.testing.assert_array_equal(picked(table, rows), 2 * table[rows])


def test_a_step_that_fails_leaves_what_was_donated_as_the_step_before_did():
    table, rows = integers(3000, 100), np.array([[5], [2999], [3000], [7]])
    picked = pb.jit(lambda total, row, table: (total + table[row], total), donate_argnums=0)
    total = np.zeros((1, 100), np.float32)
    with pytest.raises(IndexRangeError, match="3000"):
        picked.run_steps((total, rows, table), 4, 1)
    np.testing.assert_array_equal(total, table[[5]] + table[[2999]])


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (2, 0, 4)])
@pytest.mark.parametrize(
    "f",
    [lambda x, i: x[i], lambda x, i: (x[i] * 2, i + 1), lambda x, i: pb.grad(lambda x: np.sum(x[i] ** 2))(x)],
    ids=["alone", "beside another", "gradient"],
)
def test_indices_are_checked_where_nothing_is_selected_by_them(shape, f):
    x = np.zeros(shape, np.float32)
    with pytest.raises(IndexError):
        pb.jit(f)(x, np.array([[1, 5]]))
    if shape[0]:
        pb.jit(f)(x, np.array([[1, -1]]))
