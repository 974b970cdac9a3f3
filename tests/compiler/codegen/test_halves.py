"""Floats of 16 bits: conversions with and without the processor's, and programs against the interpreter and NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pullback as pb
from pullback.graph import OPERATORS, Graph, Type, Variable

EVERY = np.arange(1 << 16, dtype=np.uint16)
FLOAT16 = np.dtype(np.float16)


@pytest.fixture(autouse=True)
def _silent():
    """Among all halves are NaN of the kind that NumPy warns of."""
    with np.errstate(all="ignore"):
        yield


def bfloat16() -> np.dtype:
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)


@pytest.fixture(params=["float16", "bfloat16"])
def half(request) -> np.dtype:
    return FLOAT16 if request.param == "float16" else bfloat16()


def same_bits(found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal to the sign of zero; any NaN is as good as another."""
    assert found.dtype == wanted.dtype
    nan = np.isnan(wanted.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float64)), nan)
    bits = np.dtype(f"u{wanted.dtype.itemsize}")
    np.testing.assert_array_equal(found.view(bits)[~nan], wanted.view(bits)[~nan])


def cast_graph(source: np.dtype, target: np.dtype, count: int) -> Graph:
    x = Variable(Type(source, (count,)))
    return Graph((x,), (OPERATORS["cast"](x, dtype=target),))


@pytest.mark.parametrize("target", ["float32", "float64", "int32", "bool", "complex64"])
def test_every_half_is_what_numpy_makes_of_it(half, target, compiler, processor):
    x = EVERY.view(half)
    x = x[np.abs(x.astype(np.float64)) < 2.0**31] if target == "int32" else x
    (found,) = compiler.run(cast_graph(half, np.dtype(target), len(x)), [x], processor=processor)
    wanted = x.astype(np.float32).astype(target)
    if wanted.dtype.kind == "f":
        same_bits(found, wanted)
    else:
        np.testing.assert_array_equal(found, wanted)


def test_subnormal_halves_are_normal_floats_and_stay(compiler, processor):
    """Flushing concerns what is subnormal as a float, on processors with and without conversions of their own."""
    x = EVERY.view(FLOAT16)
    flushing = replace(processor, flush_subnormals=True)
    (found,) = compiler.run(cast_graph(FLOAT16, np.dtype("float32"), len(x)), [x], processor=flushing)
    same_bits(found, x.astype(np.float32))
    (found,) = compiler.run(cast_graph(np.dtype("float32"), FLOAT16, len(x)), [found], processor=flushing)
    same_bits(found, x)


@pytest.mark.parametrize("source", ["float32", "float64"])
def test_floats_are_rounded_as_numpy_rounds_them(half, source, compiler, processor):
    """Every half, the middle between it and the next one, and the floats beside each of these."""
    values = np.sort(EVERY.view(half).astype(source)[~np.isnan(EVERY.view(half).astype(source))])
    middles = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(source)
    x = np.concatenate([values, middles, [65519.996, 65520.0, 1e-30, -1e-45, 3.4e38, np.nan, -np.nan]])
    x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf)]).astype(source)
    wanted = x.astype(half)
    (found,) = compiler.run(cast_graph(np.dtype(source), half, len(x)), [x], processor=processor)
    same_bits(found, wanted)


@pytest.mark.parametrize("source", ["int8", "uint16", "int32", "int64", "bool", "complex64"])
def test_other_numbers_become_halves(half, source, compiler, processor):
    kind = np.dtype(source)
    whole = np.array([0, 1, 3, 100, 255, 257, 2049, 4099, 65519, 2**24 + 1, 2**31 - 1])
    x = whole.astype(kind) if kind.kind in "bc" else whole[whole <= np.iinfo(kind).max].astype(kind)
    (found,) = compiler.run(cast_graph(kind, half, len(x)), [x], processor=processor)
    same_bits(found, (x.real if kind.kind == "c" else x).astype(np.float64).astype(half))


@pytest.mark.parametrize("function", [np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum])
def test_arithmetic_is_numpys_bit_for_bit(function):
    random = np.random.default_rng(0)
    x, y = (random.integers(0, 1 << 16, 5_000).astype(np.uint16).view(FLOAT16) for _ in "xy")
    wanted = function(x, y)
    ordinary = (wanted != 0) | (function not in (np.maximum, np.minimum))  # NumPy takes either zero
    for run in (pb.jit(function), lambda *both: pb.vjp(function, *both)[0]):
        same_bits(np.asarray(run(x, y))[ordinary], wanted[ordinary])


def test_sums_and_products_are_rounded_once(half):
    random = np.random.default_rng(1)
    x, w = random.standard_normal((30, 500)).astype(half), random.standard_normal((500, 20)).astype(half)
    wide = x.astype(np.float32)
    for run in (pb.jit, lambda f: lambda *given: pb.vjp(f, *given)[0]):
        total, product = run(lambda x, w: (np.sum(x, axis=1), x @ w))(x, w)
        assert total.dtype == product.dtype == half
        spacing = 2.0**-10 if half == FLOAT16 else 2.0**-7
        np.testing.assert_allclose(total.astype(np.float64), wide.sum(1), rtol=spacing, atol=1e-4)
        np.testing.assert_allclose(
            product.astype(np.float64), wide @ w.astype(np.float32), rtol=spacing, atol=1e-4
        )
        ones = np.ones(100_000, half)  # added up in 16 bits they would never get beyond 2048, or 256
        assert run(np.mean)(ones) == 1


def test_gradients_have_the_dtype_of_their_inputs(half):
    random = np.random.default_rng(2)
    w, x = random.standard_normal((7, 3)).astype(half), random.standard_normal((5, 7)).astype(np.float32)

    def loss(w, x):
        return np.mean(np.tanh(x @ w.astype(np.float32)) ** 2)

    value, (by_w, by_x) = pb.jit(pb.value_and_grad(loss, (0, 1)))(w, x)
    assert (value.dtype, by_w.dtype, by_x.dtype) == (np.float32, half, np.float32)
    exact = pb.grad(loss)(w.astype(np.float32), x)
    same_bits(by_w, exact.astype(half))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: pb.scan(lambda h, row: (np.tanh(h @ w + row), h * 2), x[0], x),
        lambda x, w: pb.vmap(pb.grad(lambda row: np.sum(np.sin(row) * row)))(x),
        lambda x, w: pb.jvp(np.sin, (x,), (x,)),
        lambda x, w: pb.pure_callback(lambda v: v * v.dtype.type(2), x, pb.stop_gradient(x)) + x,
        lambda x, w: pb.checkpoint(lambda x: np.exp(np.sin(x)))(x),
        lambda x, w: (np.pad(x, 1), x.T[::2], np.concatenate([x, x]), np.where(x > 0, x, w[:5])),
        lambda x, w: pb.grad(lambda w: np.sum(w[np.array([0, 3, 3])] ** 2))(w),
        lambda x, w: (np.sort(x), np.argsort(x), np.argmax(x, 1), x > 0, np.cumsum(x, 1)),
        lambda x, w: (np.signbit(x), np.nextafter(x, x + 1), *np.frexp(x), np.ldexp(x, 3)),
        lambda x, w: x + 1j * w[:5].astype(np.float32),
    ],
)
def test_programs_are_the_interpreters_bit_for_bit(half, function, compiler):
    """What is made of moves, arithmetic and sums of few terms; functions are rounded alike at these values."""
    random = np.random.default_rng(3)
    x, w = random.standard_normal((5, 7)).astype(half), random.standard_normal((7, 7)).astype(half)
    found, wanted = pb.jit(function)(x, w), pb.jvp(function, (x, w), (x, w))[0]
    for one, other in zip(
        *(each if isinstance(each, tuple) else (each,) for each in (found, wanted)), strict=True
    ):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_weights_that_are_read_once_are_not_copied(half, compiler, processor):
    """A row times a matrix, a matrix times a row, and the pullback of either: no ``float32`` matrix is kept."""
    random = np.random.default_rng(4)
    w, x = random.standard_normal((70, 90)).astype(half), random.standard_normal((1, 70)).astype(np.float32)
    y = random.standard_normal(90).astype(np.float32)
    functions = (
        lambda w, x, y: x @ w.astype(np.float32),
        lambda w, x, y: w.astype(np.float32) @ y,
        pb.grad(lambda w, x, y: np.sum(np.tanh(x @ w.astype(np.float32))), 1),
    )
    for function in functions:
        graph = pb.trace(function, w, x, y).graph
        assert compiler.program(graph, processor=processor).arena_bytes < 4 * w.size
        compiler.assert_same(graph, [w, x, y], processor=processor, rounding=64)


def test_donated_halves_are_updated_in_place(half):
    p, g = np.ones((4, 5), half), np.full((4, 5), 0.5, half)
    made = pb.jit(lambda p, g: p - g * 0.5, donate_argnums=(0,))(p, g)
    assert np.shares_memory(made, p) and made.dtype == half and (made.astype(np.float32) == 0.75).all()


def test_python_numbers_leave_halves_as_they_are(half):
    for f in (lambda x: x * 2.5 + 1, lambda x: 0.1 - x / 3, lambda x: np.maximum(x, 0.0)):
        assert pb.jit(f)(np.ones(3, half)).dtype == half


def test_what_takes_no_halves_says_so(half):
    matrix = np.eye(3).astype(half)
    for function, name in ((np.linalg.inv, "inv"), (np.linalg.svd, "svd"), (np.linalg.cholesky, "cholesky")):
        for run in (pb.jit(function), lambda x, function=function: pb.vjp(function, x)):
            with pytest.raises(
                pb.errors.DTypeError, match=rf"{name} takes no {half}.*\.astype\(np\.float32\)"
            ):
                run(matrix)


def test_bfloat16_meets_only_what_it_has_a_dtype_in_common_with():
    kind = bfloat16()
    x = np.ones(3, kind)
    assert pb.jit(lambda x: x + np.float32(1))(x).dtype == np.float32
    assert pb.jit(lambda x: x + np.int8(1))(x).dtype == kind
    for other in (np.ones(3, np.int64), np.ones(3, np.float16)):
        with pytest.raises(
            pb.errors.DTypeError, match=r"bfloat16 and (int64|float16) have no dtype in common"
        ):
            pb.jit(np.add)(x, other)
