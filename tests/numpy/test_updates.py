"""``at(x)[index]`` against NumPy's ``ufunc.at``, for every kind of index: traced, concrete, and its derivatives."""

import itertools

import numpy as np
import pytest

import pullback as pb
from pullback import grad, vmap
from pullback.errors import DTypeError, IndexRangeError, ShapeError, TracingError
from pullback.graph import Operation
from pullback.testing import check_grads
from pullback.tracing import trace

X = np.arange(12.0).reshape(3, 4)
PICKS = np.array([2, 0, 2])
METHODS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
ENTRIES = {
    "number": 1,
    "last": -1,
    "all": slice(None),
    "steps": slice(None, None, 2),
    "steps back": slice(None, None, -2),
    "part": slice(1, 3),
    "none": slice(0, 0),
    "array": np.array([2, -1, 2]),
    "two axes": np.array([[1], [-3]]),
}
SHAPE = (3, 4, 5)


def indices(rank):
    """Every combination of entries, with new axes and ellipses among them, and masks."""
    found = list(itertools.product(ENTRIES.values(), repeat=rank))
    array = ENTRIES["array"]
    found += [(None, *found[k][:1], None, *found[k][1:]) for k in range(0, len(found), 7)]
    found += [
        (...,),
        (..., 1),
        (..., array),
        (array, ...),
        (array, ..., None),
        (1, ...),
        (None, ...),
        (..., -1, None),
    ]
    if rank > 1:
        found += [
            (array, ..., array),
            (array, None, array),
            (array, ..., 1),
            (slice(None, None, -1), ..., array),
        ]
    mask = np.arange(np.prod(SHAPE[:rank])).reshape(SHAPE[:rank]) % 3 > 0
    return [
        *found,
        mask,
        np.arange(SHAPE[0]) != 1,
        (~mask if rank == 1 else mask[..., 0], ..., None),
        [0, 0, 1],
    ]


def drawn(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    values = random.uniform(0.5, 2.5, shape) if np.dtype(dtype).kind == "f" else random.integers(1, 9, shape)
    return values.astype(dtype)


def assigned(x, index, value):
    result = x.copy()
    result[index] = value
    return result


def updated(x, method, index, value):
    """What NumPy makes of a copy."""
    if method == "set":
        return assigned(x, index, value)
    result = x.copy()
    METHODS[method].at(result, index, value)
    return result


def updating(method, index):
    """The same update as a function of the array and the value."""
    return lambda x, v: getattr(pb.at(x)[index], method)(v)


def traced_methods(dtype):
    return ["set", *(m for m in METHODS if np.dtype(dtype).kind == "f" or m not in ("divide", "power"))]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_kind_of_index(rank, dtype):
    x = drawn(SHAPE[:rank], dtype)
    values = drawn(1000, dtype, 1)
    for k, index in enumerate(indices(rank)):
        selected = x[index]
        value = values[: selected.size].reshape(selected.shape)
        names = traced_methods(dtype)
        for method in names if rank < 3 else (names[k % len(names)], "set"):
            wanted = updated(x, method, index, value)
            found = trace(updating(method, index), x, value).evaluate([x, value])
            np.testing.assert_array_equal(found, wanted, f"{method} at {index}")
            assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(pb.at(x)[index].get(), selected)


@pytest.mark.parametrize("method", ["set", *METHODS])
def test_concrete_arrays(method):
    x, index, value = (
        drawn((3, 4), "float32"),
        ([0, 0, -1, 0], slice(None, None, -2)),
        drawn((4, 2), "float32", 1),
    )
    found = getattr(pb.at(x)[index], method)(value)
    np.testing.assert_array_equal(found, updated(x, method, index, value))
    np.testing.assert_array_equal(x, drawn((3, 4), "float32"))
    assert type(found) is np.ndarray and found.flags.writeable
    np.testing.assert_array_equal(getattr(pb.numpy.at(x)[1], method)(2), updated(x, method, 1, 2))


@pytest.mark.parametrize("method", ["set", *METHODS])
def test_traced_indices(method, agrees):
    x, rows = drawn((3, 4), "float64"), drawn((3, 4), "float64", 1)
    cells = rows[0, :3]

    def update(x, index, value):
        return getattr(pb.at(x)[index], method)(value)

    def at_traced(index):
        return lambda x, i, v: update(x, index(i), v)

    cases = {
        "one": (lambda i: i, rows),
        "last": (lambda i: (slice(None), i), rows[:, :3]),
        "pairs": (lambda i: (i, i), cells),
        "steps": (lambda i: (slice(None, None, -2), i), rows[:2, :3]),
        "beside an array": (lambda i: (i, np.array([[3], [3]])), rows[:2, :3]),
        "beside a number": (lambda i: (i, -1), cells),
        "one of them": (lambda i: i[0], rows[0]),
        "one among steps": (lambda i: (slice(0, 3, 2), i[1]), rows[0, :2]),
        "all but a new axis": (lambda i: (None, i), rows[None]),
    }
    for index, value in cases.values():
        wanted = updated(x, method, index(PICKS - 3), value)
        agrees(at_traced(index), x, PICKS - 3, value, expected=wanted)


def test_a_concrete_array_at_a_traced_index(agrees):
    agrees(lambda i: pb.at(X)[i].add(1), PICKS, expected=updated(X, "add", PICKS, 1))
    agrees(lambda v: updating("multiply", PICKS)(X, v), X[0], expected=updated(X, "multiply", PICKS, X[0]))


def test_places_named_again_accumulate():
    x, i, v = np.array([1.0, 2.0, 3.0]), np.array([0, 0, 1]), np.array([2.0, 5.0, 7.0])
    assert pb.at(x)[i].multiply(v).tolist() == [10, 14, 3]
    assert trace(lambda x: x.at[i].multiply(v), x).evaluate([x]).tolist() == [10, 14, 3]
    assert pb.at(x)[i].set(v).tolist() == [5, 7, 3]
    assert pb.at(x)[i].power(v).tolist() == [1, 128, 3]


@pytest.mark.parametrize("method", ["set", "add", "subtract", "multiply", "divide", "power", "max", "min"])
@pytest.mark.parametrize("known", [True, False])
def test_derivatives(method, known):
    """First and second order, in both modes, where places are named once, twice, and many times."""
    random = np.random.default_rng(0)
    x = random.uniform(0.5, 1.5, (4, 3))
    cases = [
        (np.array([2, 0, 2]), (3, 3)),
        (np.array([1, 1, 1, 1, 0, 1, 1]), (7, 3)),
        (np.array([[3], [0]]), (2, 1, 3)),
    ]
    for index, shape in cases:
        v = random.uniform(0.5, 1.5, shape)
        if known:
            update = updating(method, index)
            check_grads(lambda x, v, update=update: update(x, v) ** 2, [x, v])
        else:
            check_grads(lambda x, v, i: getattr(x.at[i], method)(v) ** 2, [x, v, index])
    check_grads(
        lambda x, v: getattr(x.at[::-2, [0, 0]], method)(v) ** 3, [x, random.uniform(0.5, 1.5, (2, 2))]
    )
    check_grads(lambda x, v: getattr(x.at[...], method)(v) ** 3, [x, random.uniform(0.5, 1.5, 3)])


@pytest.mark.parametrize("method", ["set", "add", "multiply", "power", "max"])
@pytest.mark.parametrize("index", [np.s_[1:, :-1], np.s_[::2, 1:], np.s_[::-1, ::2], np.s_[None, :3, 0:]])
def test_slices_of_much_have_derivatives(method, index):
    random = np.random.default_rng(1)
    x = random.uniform(0.5, 1.5, (4, 3))
    v = random.uniform(0.5, 1.5, x[index].shape)
    check_grads(lambda x, v: updating(method, index)(x, v) ** 2, [x, v])


@pytest.mark.parametrize("method", ["set", "add"])
@pytest.mark.parametrize(
    ("index", "fuses"),
    [
        (np.s_[1:-1, 1:-1], True),
        (np.s_[-1:0:-1], True),
        (np.s_[:4, :4], True),
        (np.s_[:4, :3], False),
        (np.s_[::2], False),
        (np.s_[0], False),
        (np.s_[[0, 1, 2, 3, 4, 5, 6]], False),
    ],
)
def test_slices_of_much_are_no_scatter(method, index, fuses):
    """So they fuse with what is around them, and so do their derivatives."""
    x, update = np.arange(64.0).reshape(8, 8), updating(method, index)
    for function in (update, grad(lambda x, v: (update(x, v) ** 2).sum(), (0, 1))):
        nodes = trace(function, x, x[index]).graph.nodes()
        names = {node.operator.name for node in nodes if isinstance(node, Operation)}
        assert fuses == (f"scatter_{method}" not in names)


@pytest.mark.parametrize("method", ["set", "add"])
@pytest.mark.parametrize(
    ("shape", "index"),
    [((0, 4), np.s_[:, 1:]), ((0,), np.s_[...]), ((), ()), ((1, 3), 0), ((2, 0), np.s_[::-1])],
)
def test_slices_of_nothing_and_of_all(shape, index, method):
    x = np.ones(shape)
    found = trace(updating(method, index), x, 2.0)
    np.testing.assert_array_equal(found.evaluate([x, 2.0]), updated(x, method, index, 2.0))
    assert not any(
        isinstance(n, Operation) and n.operator.name.startswith("scatter") for n in found.graph.nodes()
    )


def test_slices_beside_a_named_axis_are_those_of_every_size():
    compiled = pb.jit(lambda x: x.at[:, 1:].add(1.0), shapes={"x": ("n", 4)})
    for n in (5, 7):
        np.testing.assert_array_equal(compiled(np.zeros((n, 4))), np.repeat([[0.0, 1, 1, 1]], n, axis=0))
    assert compiled.traces == 1


def test_the_gradient_of_set_goes_to_the_value_that_stays():
    x, v = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    weights = np.array([10.0, 20.0, 30.0])

    def loss(x, v, i):
        return (x.at[i].set(v) * weights).sum()

    bars = grad(loss, (0, 1))(x, v, np.array([1, 1, 2]))
    np.testing.assert_array_equal(bars, [[10, 0, 0], [0, 20, 30]])


def test_products_have_derivatives_at_zero():
    """Of first and second order: no quotient by the factors is taken."""
    x, v, i = np.array([2.0, 3.0]), np.array([0.0, 5.0, 0.0, 7.0]), np.array([0, 0, 1, 0])
    bars = grad(lambda x, v: x.at[i].multiply(v).sum(), (0, 1))(x, v)
    np.testing.assert_array_equal(bars[0], [0, 0])
    np.testing.assert_array_equal(bars[1], [70, 0, 3, 0])
    hessian = pb.hessian(lambda v: pb.at(x)[i].multiply(v).sum())(v)
    np.testing.assert_array_equal(hessian[0], [0, 14, 0, 10])
    np.testing.assert_array_equal(hessian[1], [14, 0, 0, 0])


def test_winners_share_the_gradient():
    x, v, i = np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, 5.0, 0.0]), np.array([0, 1, 1, 2])
    bars = grad(lambda x, v: x.at[i].max(v).sum(), (0, 1))(x, v)
    np.testing.assert_array_equal(bars[0], [0.5, 0, 1])
    np.testing.assert_array_equal(bars[1], [0.5, 0.5, 0.5, 0])
    pair = grad(lambda x: np.maximum(x, 1.0).sum())(np.ones(1))
    np.testing.assert_array_equal(pair, grad(lambda x: x.at[0].max(1.0).sum())(np.ones(1)))


def test_powers_of_negative_numbers():
    """An even exponent makes them positive, and a smooth function of the exponents that follow."""
    x, v, i = np.array([-2.0, 0.0, -1.5]), np.array([2.0, 1.5, 2.0, 3.0]), np.array([0, 0, 1, 2])

    def powers(x, v):
        return x.at[i].power(v)

    bars = grad(lambda x, v: powers(x, v).sum(), (0, 1))(x, v)
    np.testing.assert_allclose(bars[0], [-3 * 4, 0, 3 * 1.5**2])
    np.testing.assert_allclose(bars[1], [0, 8 * np.log(4), 0, 0])


@pytest.mark.parametrize("method", ["set", "add", "multiply", "divide", "power", "max"])
def test_batches(method):
    random = np.random.default_rng(0)
    x, v = random.uniform(0.5, 1.5, (5, 3, 2)), random.uniform(0.5, 1.5, (5, 4, 2))
    i = random.integers(-3, 3, (5, 4))

    def update(x, i, v):
        return getattr(pb.at(x)[i], method)(v)

    def gradient(x, i, v):
        return grad(lambda x, v: (update(x, i, v) ** 2).sum(), (0, 1))(x, v)

    for axes in itertools.product((0, None), repeat=3):
        if axes == (None, None, None):
            continue
        given = [a if axis == 0 else a[0] for a, axis in zip((x, i, v), axes)]
        rows = [[a[k] if axis == 0 else a for a, axis in zip(given, axes)] for k in range(5)]
        wanted = np.stack([update(*row) for row in rows])
        np.testing.assert_allclose(vmap(update, axes)(*given), wanted, rtol=1e-12)
        bars = vmap(gradient, axes)(*given)
        for k, row in enumerate(rows):
            for found, bar in zip(bars, gradient(*row)):
                np.testing.assert_allclose(found[k], bar, rtol=1e-12)


def test_values_take_the_dtype_of_the_array(agrees):
    agrees(lambda x: x.at[0].set(2.9), np.arange(3), expected=np.array([2, 1, 2]))
    agrees(lambda x: x.at[0].add(np.int64(3)), np.zeros(2, np.float32), expected=np.array([3, 0], np.float32))
    agrees(lambda x: x.at[[0, 0]].max(True), np.zeros(2, bool), expected=np.array([True, False]))


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: x.at[0].set(np.ones(3)), ShapeError, r"shape \(3,\) for elements of shape \(4,\)"),
        (lambda x: x.at[3].add(1), IndexRangeError, "index 3"),
        (lambda x: x.at[[0, -4]].max(1), IndexRangeError, "index -4"),
        (
            lambda x: x.astype(np.int64).at[0].add(0.5),
            DTypeError,
            r"float64 for an array of int64.*astype\(float64\)",
        ),
        (lambda x: x.astype(np.uint8).at[0].add(np.int8(1)), DTypeError, "int8 for an array of uint8"),
        (lambda x: x.astype(np.int64).at[0].divide(2), DTypeError, r"divide of an array of int64.*astype"),
        (lambda x: (x > 1).at[0].add(True), DTypeError, r"bool array; use \.max"),
        (
            lambda x: np.add.at(x, 0, 1),
            TracingError,
            r"writes into an argument.*x = x\.copy\(\)",
        ),
        (lambda x: np.maximum.at(np.zeros(3), [0], x[0]), TracingError, r"\[index\]\.max\(value\)"),
        (lambda x: np.arctan2.at(x, [0, 0], 1.0), TracingError, r"np\.arctan2\.at.*\[index\]\.set"),
    ],
)
def test_what_is_refused(function, error, message):
    with pytest.raises(error, match=message):
        trace(function, X)


@pytest.mark.parametrize("method", ["set", *METHODS])
def test_an_index_out_of_range_is_an_error(method):
    for wrong in (3, -4):
        with pytest.raises(IndexRangeError, match=str(wrong)):
            getattr(pb.at(X)[[0, wrong]], method)(1.0)
        with pytest.raises(IndexRangeError, match=f"{wrong} at position"):
            trace(lambda x, i: getattr(x.at[i], method)(1.0), X, PICKS).evaluate([X, np.array([0, 0, wrong])])


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_last_of_several_values_is_that_of_the_last_row(order):
    """NumPy goes through places as they lie in memory; argsort along the first axis leaves them column by column."""
    x = np.array([[2.0, 1.0], [-1.0, -4.0], [-1.0, -1.0], [1.0, -2.0]], order=order)
    row = np.array([[1.0, 2.0]])

    def last(x, row):
        return pb.at(x)[np.argsort(x, axis=0, kind="stable"), 0].set(row)

    wanted = np.array(x)
    for places in np.argsort(x, axis=0, kind="stable"):
        for place, value in zip(places, row[0]):
            wanted[place, 0] = value
    assert wanted[:, 0].tolist() == [2, 2, 2, 1]
    for way in (last, pb.jit(last), lambda *given: trace(last, *given).evaluate(given)):
        np.testing.assert_array_equal(way(x, row), wanted)
