"""Compiled functions as C calls them: values, pointers, packed numbers, errors, threads, SciPy's callbacks."""

from __future__ import annotations

import ctypes
import gc
import threading

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import AddressError

DOUBLE = ctypes.POINTER(ctypes.c_double)


def pointer(array):
    kind = np.ctypeslib.as_ctypes_type(array.dtype)
    return array.ctypes.data_as(ctypes.POINTER(kind))


def called(function, *arguments, results):
    """What a C function writes to its results."""
    made = [np.full_like(np.asarray(like), 99) for like in results]
    given = [pointer(x) if isinstance(x, np.ndarray) and x.ndim else x for x in arguments]
    status = function.ctypes(*given, *map(pointer, made))
    return status, made


def test_numbers_come_and_go_by_value():
    slope = pb.jit(pb.grad(lambda x: np.sin(np.cos(x))))
    function = slope.c_function(1.0)
    assert function.signature == "double function(double x0)"
    for x in (-2.0, 0.0, 1.0, 1e9):
        assert function.ctypes(x) == slope(x)


def test_the_address_is_that_of_a_function_of_doubles():
    def area(width, height, scale=2.0):
        return width * height * scale

    compiled = pb.jit(area)
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(compiled.address)
    assert function(3.0, 5.0) == 30.0
    assert compiled.address == compiled.address


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_are_returned_in_their_dtype(dtype):
    compiled = pb.jit(lambda x: np.exp(x) / 3)
    function = compiled.c_function(dtype(0))
    assert function.signature.startswith("float" if dtype == np.float32 else "double")
    assert dtype(function.ctypes(1.25)) == compiled(dtype(1.25))


INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
def test_integers_and_bools_come_by_value(dtype):
    kind = np.dtype(dtype).type
    compiled = pb.jit(lambda n, x: np.where(n > 0, x + n, -x))
    function = compiled.c_function(kind(1), 1.5)
    for n in (0, 1) if dtype == "bool" else (0, 7, 100, *((-3,) if dtype[0] == "i" else ())):
        assert function.ctypes(n, 1.5) == compiled(kind(n), 1.5), n


def test_arrays_come_and_go_by_their_addresses():
    compiled = pb.jit(lambda tree, y: {"sum": np.sum(tree["x"] * y), "product": tree["x"] @ y})
    x, y = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    function = compiled.c_function({"x": x}, y)
    assert function.signature == "int function(const double *x0, const double *x1, double *y0, double *y1)"
    expected = compiled({"x": x}, y)
    status, (product, total) = called(function, x, y, results=(expected["product"], expected["sum"]))
    assert status == 0
    np.testing.assert_array_equal(product, expected["product"])
    np.testing.assert_array_equal(total, expected["sum"])


def test_numbers_whose_result_is_no_float_are_written_to_an_address():
    function = pb.jit(lambda n: n * n).c_function(3)
    assert function.signature == "int function(int64_t x0, int64_t *y0)"
    assert called(function, 12, results=(np.int64(0),)) == (0, [144])


@pytest.mark.parametrize("size", [1, 7, 300])
def test_programs_with_memory_of_their_own_give_the_same_bits(size):
    """Products, sums cut in blocks, a loop, a solution by LAPACK: on the stack, and beyond it."""

    def network(w, x):
        hidden = x
        for _ in range(3):
            hidden = np.tanh(hidden @ w)
        carry, rows = pb.scan(lambda c, row: (np.cos(c + row), c * 2), np.zeros_like(x[0]), hidden)
        return np.sum(hidden**2), carry, rows, np.linalg.solve(w.T @ w + 10 * np.eye(len(w)), x[0])

    compiled = pb.jit(pb.value_and_grad(lambda w, x: sum(np.sum(part) for part in network(w, x))))
    generator = np.random.default_rng(size)
    w, x = generator.normal(size=(size, size)) / size, generator.normal(size=(40, size))
    function = compiled.c_function(w, x)
    expected = compiled(w, x)
    for _ in range(3):
        status, (value, gradient) = called(function, w, x, results=expected)
        assert status == 0
        np.testing.assert_array_equal(value, expected[0])
        np.testing.assert_array_equal(gradient, expected[1])


def recurrent():
    """Regions that threads enter, in chunks with scratch memory of their own."""
    model = nn.Chain(nn.Reshape(4, 196), nn.RNN(196, 64, seed=0), nn.Dense(64, 10, seed=0))
    generator = np.random.default_rng(0)
    images, labels = generator.normal(size=(100, 28, 28)).astype(np.float32), generator.integers(0, 10, 100)
    return pb.grad(lambda model, x, y: nn.softmax_cross_entropy(model(x), y)), (model, images, labels)


def repeated():
    """Regions that the schedule repeats."""
    xs = np.random.default_rng(0).random((30, 64, 64))
    return lambda xs: pb.scan(lambda c, x: (np.tanh(c @ c * 0.01 + x), c.sum()), np.zeros((64, 64)), xs), (
        xs,
    )


def unbounded():
    """A loop that looks for signals, of which it must find none here."""
    return lambda x: pb.while_loop(lambda s: s.sum() < 1e3, lambda s: s * 1.1 + 1, x), (np.arange(7.0),)


def routines():
    """Sorting and running totals, which the program brings itself, and LAPACK's at their addresses."""
    x = np.random.default_rng(0).random((40, 40))
    return lambda x: (np.sort(x, 0), np.cumsum(x, 1), np.linalg.inv(x @ x.T + np.eye(40))), (x,)


@pytest.mark.parametrize("program", [recurrent, repeated, unbounded, routines])
def test_schedules_of_every_kind_give_the_same_bits(program):
    function, arguments = program()
    compiled = pb.jit(function)
    expected = pb.flatten(compiled(*arguments))[0]
    leaves = [np.ascontiguousarray(leaf) for leaf in pb.flatten(arguments)[0]]
    for _ in range(2):
        status, results = called(compiled.c_function(*arguments), *leaves, results=expected)
        assert status == 0
        for result, value in zip(results, expected):
            np.testing.assert_array_equal(result, value)


def test_many_threads_may_be_in_it_at_once():
    compiled = pb.jit(pb.grad(lambda w: np.sum(np.tanh(w @ w) ** 2)))
    inputs = [np.random.default_rng(seed).normal(size=(60, 60)) / 8 for seed in range(6)]
    expected = [compiled(w) for w in inputs]
    function, wrong = compiled.c_function(inputs[0]), []

    def work(seed):
        for _ in range(20):
            status, (gradient,) = called(function, inputs[seed], results=(inputs[seed],))
            if status or not np.array_equal(gradient, expected[seed]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_wrong_index_gives_nan_or_a_status():
    table = np.arange(5.0)
    by_value = pb.jit(lambda n: pb.numpy.take(table, n) * 2).c_function(3)
    assert by_value.ctypes(4) == 8.0
    assert np.isnan(by_value.ctypes(5))
    assert by_value.ctypes(0) == 0.0
    pointers = pb.jit(lambda x, n: (x[n], x.sum())).c_function(table, 3)
    assert called(pointers, table, 5, results=(0.0, 0.0))[0] != 0
    assert called(pointers, table, 2, results=(0.0, 0.0)) == (0, [2.0, 10.0])


def test_a_singular_matrix_gives_nan():
    @pb.jit
    def determined(a):
        return np.sum(np.linalg.inv(np.ones((9, 9)) + a * np.eye(9)))

    function = determined.c_function(1.0)
    assert function.ctypes(2.0) == determined(2.0)
    assert np.isnan(function.ctypes(0.0))


def test_packed_numbers():
    function = pb.jit(lambda x, y: x - 2 * y).c_function(1.0, 1.0).packed
    assert function.signature == "double function(int n, double *x)"
    numbers = np.array([5.0, 1.0])
    assert function.ctypes(2, pointer(numbers)) == 3.0
    assert np.isnan(function.ctypes(1, pointer(numbers)))


@pytest.mark.parametrize("arguments", [(np.float32(1),), (np.zeros(3),), (1,)])
def test_what_cannot_be_packed_says_what_it_is(arguments):
    with pytest.raises(AddressError, match="this function is"):
        _ = pb.jit(lambda x: np.sum(x) * 1.5).c_function(*arguments).packed


def test_the_function_is_held_by_what_ctypes_has():
    function = pb.jit(lambda x: x * 3).c_function(1.0).ctypes
    gc.collect()
    assert function(2.0) == 6.0


def test_named_functions_are_declared_by_their_names():
    def slope(x):
        return x * 2

    assert pb.jit(slope).c_function(1.0).signature == "double slope(double x0)"


def test_functions_that_call_python_are_refused_with_the_line():
    def told(x):
        return pb.pure_callback(np.sin, np.float64(0), x)

    with pytest.raises(AddressError, match=r"told calls Python at .*test_c_function.py.*\n?.*lock"):
        pb.jit(told).c_function(1.0)


def test_donated_arguments_are_refused():
    with pytest.raises(AddressError, match="leave out donate_argnums"):
        pb.jit(lambda x: x + 1, donate_argnums=0).c_function(np.zeros(3))


def test_the_address_of_any_number_of_arguments_asks_for_an_example():
    with pytest.raises(AddressError, match="c_function"):
        _ = pb.jit(lambda *x: x[0]).address
    with pytest.raises(AddressError, match="c_function"):
        _ = pb.jit(lambda x, n: x**n, static_argnums=1).address
    function = pb.jit(lambda x, n: x**n, static_argnums=1).c_function(1.0, 3)
    assert function.ctypes(2.0) == 8.0


def test_scipys_integrals_call_it():
    scipy = pytest.importorskip("scipy")
    from scipy import integrate

    density = pb.jit(lambda x, mean: np.exp(-((x - mean) ** 2) / 2) / np.sqrt(2 * np.pi))
    function = density.c_function(0.0, 0.0).packed
    value, _ = integrate.quad(scipy.LowLevelCallable(function.ctypes), 0.0, 2.0, args=(1.0,))
    assert value == pytest.approx(0.6826894921370859, rel=1e-12)
    slope = pb.jit(pb.grad(lambda x: np.sin(np.cos(x)))).c_function(0.0)
    value, _ = integrate.quad(scipy.LowLevelCallable(slope.ctypes), 0.0, 1.0)
    assert value == pytest.approx(np.sin(np.cos(1.0)) - np.sin(1.0), rel=1e-12)
