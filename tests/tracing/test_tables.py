"""pandas' tables and SciPy's sparse matrices in traced functions."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArrayClassError, DTypeError, ShapeError, TracingError
from pullback.testing import check_grads

sparse = pytest.importorskip("scipy.sparse")
BOTH = [lambda f: f, pb.jit]


def random_matrix(kind=sparse.csr_array, shape=(6, 5), density=0.4, dtype=np.float64):
    matrix = sparse.random_array(shape, density=density, rng=np.random.default_rng(0), dtype=np.float64)
    return kind(matrix.astype(dtype))


def skewed():
    """One full row among empty ones: its products are added up one after another."""
    dense = np.zeros((8, 7))
    dense[3] = np.arange(1.0, 8.0)
    dense[5, 2] = -2.0
    return sparse.csr_array(dense)


KINDS = [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix, sparse.dia_array]


@pytest.mark.parametrize("call", BOTH)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [(), (3,)])
def test_products_with_constants(kind, columns, call):
    matrix, generator = random_matrix(kind), np.random.default_rng(1)
    x, y = generator.normal(size=(5, *columns)), generator.normal(size=(*columns, 6))
    np.testing.assert_allclose(call(lambda x: matrix @ x)(x), matrix @ x, rtol=1e-13)
    np.testing.assert_allclose(call(lambda y: y @ matrix)(y), y @ matrix, rtol=1e-13)
    np.testing.assert_allclose(
        call(pb.grad(lambda x: np.sum((matrix @ x) ** 2)))(x), 2 * matrix.T @ (matrix @ x), rtol=1e-12
    )


@pytest.mark.parametrize("call", BOTH)
@pytest.mark.parametrize(
    "matrix", [skewed(), sparse.csr_array((4, 3)), sparse.csr_array((0, 3)), sparse.eye_array(5)]
)
def test_rows_of_any_length(matrix, call):
    x = np.random.default_rng(0).normal(size=(matrix.shape[1], 2))
    np.testing.assert_allclose(call(lambda x: matrix @ x)(x), matrix @ x, rtol=1e-13)
    check_grads(lambda x: matrix @ x, (x,))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_dtypes_are_scipys(dtype):
    matrix = random_matrix(dtype=dtype)
    for x in (np.ones(5, np.float32), np.ones(5)):
        assert pb.jit(lambda x: matrix @ x)(x).dtype == (matrix @ x).dtype


@pytest.mark.parametrize("call", BOTH)
def test_a_matrix_as_argument_has_sparse_gradients(call):
    matrix, x = random_matrix(sparse.csc_array), np.arange(1.0, 6.0)
    gradient = call(pb.grad(lambda matrix, x: np.sum((matrix @ x) ** 2)))(matrix, x)
    assert isinstance(gradient, sparse.csr_array)
    expected = np.outer(2 * (matrix @ x), x) * (matrix.toarray() != 0)
    np.testing.assert_allclose(gradient.toarray(), expected, rtol=1e-12)


def test_a_pattern_makes_a_program_and_elements_do_not():
    function = pb.jit(lambda matrix, x: matrix @ x)
    matrix, x = random_matrix(), np.ones(5)
    np.testing.assert_allclose(function(matrix, x), matrix @ x)
    np.testing.assert_allclose(function(matrix * 2, x), matrix @ x * 2)
    assert function.traces == 1
    other = sparse.csr_array(np.eye(6, 5))
    np.testing.assert_allclose(function(other, x), other @ x)
    assert function.traces == 2


def test_matrices_are_transposed_scaled_and_made_dense_when_asked():
    matrix, x = random_matrix(), np.ones(6)
    function = pb.jit(lambda matrix, x: (matrix.T @ x, (2 * matrix).toarray(), x @ matrix))
    turned, dense, left = function(matrix, x)
    np.testing.assert_allclose(turned, matrix.T @ x)
    np.testing.assert_allclose(dense, 2 * matrix.toarray())
    np.testing.assert_allclose(left, x @ matrix)


def test_batches_and_forward_mode():
    matrix, x = random_matrix(), np.random.default_rng(0).normal(size=(4, 5))
    np.testing.assert_allclose(pb.vmap(lambda x: matrix @ x)(x), x @ matrix.T.toarray(), rtol=1e-13)
    np.testing.assert_allclose(pb.jacobian(lambda x: matrix @ x)(x[0]), matrix.toarray(), rtol=1e-13)


@pytest.mark.parametrize("matrix", [random_matrix(), random_matrix(sparse.coo_array)])
@pytest.mark.parametrize(
    "function",
    [
        lambda a, x: a + x,
        lambda a, x: x - a,
        lambda a, x: a * x,
        np.multiply,
        lambda a, x: x * a,
    ],
)
def test_what_needs_all_zeros_is_refused_with_the_repair(matrix, function):
    x = np.ones(5)
    for call in (pb.jit(lambda x: function(matrix, x)), pb.grad(lambda x: np.sum(function(matrix, x)))):
        with pytest.raises(ArrayClassError, match=r"A\.toarray\(\).*A @ x"):
            call(x)
    with pytest.raises((ArrayClassError, TypeError)):
        pb.jit(function)(matrix, x)


def test_shapes_and_products_of_two_are_refused():
    matrix = random_matrix()
    with pytest.raises(ShapeError, match=r"sparse matrix of shape \(6, 5\) and an array of shape \(6,\)"):
        pb.jit(lambda a, x: a @ x)(matrix, np.ones(6))
    with pytest.raises(ArrayClassError, match=r"A @ \(B @ x\)"):
        pb.jit(lambda a, b: (a @ b).toarray())(matrix, matrix.T)
    with pytest.raises(ArrayClassError, match=r"np\.asarray"):
        pb.jit(lambda a: np.asarray(a) + 1)(matrix)


# -- pandas


@pytest.fixture(scope="module")
def pandas():
    return pytest.importorskip("pandas")


def test_gradients_have_the_labels_of_their_argument(pandas):
    series = pandas.Series([1.0, 2.0, 3.0], index=list("abc"), name="weights")
    gradient = pb.grad(lambda s: np.sum(s**3))(series)
    pandas.testing.assert_series_equal(gradient, 3 * series**2)
    table = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}, index=[10, 20])
    by_tree = pb.grad(lambda tree: np.sum(tree["t"] ** 2) + np.sum(tree["s"]))({"t": table, "s": series})
    pandas.testing.assert_frame_equal(by_tree["t"], 2 * table)
    value, gradient = pb.value_and_grad(lambda s: np.sum(s**2))(series)
    assert value == 14.0 and gradient["b"] == 4.0


def test_compiled_functions_read_values_and_return_arrays(pandas):
    series = pandas.Series([1.0, 2.0, 3.0], index=list("abc"))
    function = pb.jit(pb.grad(lambda s: np.sum(s**3)))
    assert function(series).tolist() == [3.0, 12.0, 27.0]
    assert function(pandas.Series([1.0, 1.0, 2.0], index=[5, 6, 7])).tolist() == [3.0, 3.0, 12.0]
    assert function.traces == 1


def test_tables_with_columns_of_several_dtypes(pandas):
    table = pandas.DataFrame({"count": [1, 2], "size": [0.5, 1.5]})
    result = pb.jit(lambda w, table: table @ w)(np.array([2.0, 4.0]), table)
    assert result.tolist() == [4.0, 10.0]
    assert pb.vmap(lambda row: row.sum())(table).tolist() == [1.5, 3.5]


@pytest.mark.parametrize("call", [pb.jit, lambda f: pb.jit(pb.value_and_grad(f))])
def test_tables_that_are_closed_over(pandas, call):
    series, x = pandas.Series([1.0, 2.0, 3.0]), np.array([1.0, 10.0, 100.0])
    function = call(lambda x: np.sum(series * x + x * series - np.exp(-series) / x))
    found = function(x)
    value = found[0] if isinstance(found, tuple) else found
    assert value == pytest.approx(np.sum(2 * series.to_numpy() * x - np.exp(-series.to_numpy()) / x))


def test_a_product_of_pandas_is_refused_with_the_repair(pandas):
    table = pandas.DataFrame(np.eye(2))
    for call in (pb.jit(lambda w: table @ w), pb.grad(lambda w: np.sum(table @ w))):
        with pytest.raises(TracingError, match=r"table\.to_numpy\(\) @ x"):
            call(np.ones(2))


def test_columns_that_are_no_numbers_are_named(pandas):
    table = pandas.DataFrame({"size": [1.0, 2.0], "name": ["a", "b"]})
    with pytest.raises(DTypeError, match="column 'name' of a DataFrame"):
        pb.jit(lambda t: t * 2)(table)
    missing = pandas.Series([1, None], dtype="Int64", name="count")
    with pytest.raises(DTypeError, match="column 'count' of a Series is Int64"):
        pb.grad(np.sum)(missing)


def test_masked_arrays_are_refused_by_name():
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for call in (pb.jit(lambda x: x * 2), pb.grad(lambda x: np.sum(x * 2))):
        with pytest.raises(ArrayClassError, match="MaskedArray would lose its mask"):
            call(masked)
