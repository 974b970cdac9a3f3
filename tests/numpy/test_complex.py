"""Complex numbers: the convention of derivatives, dtypes, parts, writes through them, and what is refused."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DerivativeError, DTypeError, TracingError
from pullback.testing import check_grads

Z = np.array([1 + 2j, -0.5 + 0.3j, 2 - 1j])
W = np.array([0.3 - 1j, 1.5 + 0.5j, -1 + 0.2j])


def slopes(f: Callable[..., Any], z: np.ndarray) -> np.ndarray:
    """``∂f/∂x - i ∂f/∂y`` by differences."""
    step, made = 1e-6, np.zeros_like(z)
    for place in np.ndindex(z.shape):
        unit = np.zeros(z.shape)
        unit[place] = step
        along, across = ((f(z + d) - f(z - d)) / (2 * step) for d in (unit, 1j * unit))
        made[place] = along - 1j * across
    return made


REAL = {
    "abs": lambda z: np.sum(np.abs(z) * np.array([1.0, 2.0, 3.0])),
    "angle": lambda z: np.sum(np.angle(z) ** 2),
    "real": lambda z: np.real(np.prod(z)),
    "imag": lambda z: (z**2).imag.sum(),
    "conj": lambda z: np.sum(z * z.conj() * 1j * np.conj(W)).real,
    "exp": lambda z: np.sum(np.abs(np.exp(z) + np.sin(z)) ** 2),
    "matmul": lambda z: np.abs(np.outer(z, z) @ W).sum(),
    "vdot": lambda z: np.abs(np.vdot(z, W)),
    "correlate": lambda z: np.abs(np.correlate(z, W[:2])).sum(),
    "convolve": lambda z: np.abs(np.convolve(W[:2], z)).sum(),
    "norm": np.linalg.norm,
    "var": np.var,
    "cov": lambda z: np.abs(np.cov(z, W)).sum(),
    "power": lambda z: np.real(np.sum(z ** (0.4 - 0.3j) + 2.0**z)),
    "sign": lambda z: np.sum((np.sign(z) * W).real),
    "nan_to_num": lambda z: np.sum(np.abs(np.nan_to_num(z) * W) ** 2),
    "nanvar": lambda z: np.nanvar(np.concatenate([z, [math.nan]])),
    "where": lambda z: np.abs(np.where(np.array([True, False, True]), z, 2j * z)).sum(),
    "cumsum": lambda z: np.abs(np.cumsum(z)).sum(),
    "solve": lambda z: np.abs(np.linalg.solve(np.outer(W, z) + 3 * np.eye(3), W)).sum(),
    "det": lambda z: np.abs(np.linalg.det(np.outer(W, z) + 3j * np.eye(3))),
    "inv": lambda z: np.abs(np.linalg.inv(np.outer(W, z) + 3j * np.eye(3))).sum(),
    "cumprod": lambda z: np.abs(np.cumprod(z)).sum(),
}


@pytest.mark.parametrize("name", REAL)
def test_the_gradient_is_that_of_jax_and_autograd(name: str) -> None:
    f = REAL[name]
    wanted = slopes(f, Z)
    for gradient in (pb.grad(f), pb.jit(pb.grad(f))):
        found = gradient(Z)
        assert found.dtype == np.complex128
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(pb.jit(f)(Z), f(Z), rtol=1e-12)
    check_grads(f, [Z])


def test_a_batch_is_one_example_after_another() -> None:
    many = np.stack([Z, W, Z * 1j])
    for f in REAL.values():
        found = pb.jit(pb.vmap(pb.grad(f)))(many)
        np.testing.assert_allclose(found, [pb.grad(f)(z) for z in many], rtol=1e-10, atol=1e-12)


def test_real_arguments_have_real_gradients() -> None:
    f = lambda x: np.sum(np.abs(np.exp(1j * x) + x) ** 2)  # noqa: E731
    x = np.array([0.3, -1.2])
    found = pb.grad(f)(x)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [2 * (np.cos(t) - t * np.sin(t) + t) for t in x])


def test_holomorphic_functions_have_derivatives() -> None:
    assert pb.grad(lambda z: z**3, holomorphic=True)(1 + 1j) == pytest.approx(3 * (1 + 1j) ** 2)
    matrix = pb.jacobian(lambda z: z * z[::-1], holomorphic=True)(Z)
    wanted = np.diag(Z[::-1]) + np.diag(Z)[:, ::-1]
    np.testing.assert_allclose(matrix, wanted)
    found = pb.hessian(lambda z: np.sum(z**3), holomorphic=True)(Z)
    np.testing.assert_allclose(found, np.diag(6 * Z))


def test_jacobians_between_the_real_and_the_complex() -> None:
    x = np.array([0.3, -1.2])
    np.testing.assert_allclose(
        pb.jacobian(lambda x: np.exp(1j * x))(x), np.diag(1j * np.exp(1j * x)), atol=1e-15
    )
    np.testing.assert_allclose(pb.jacobian(lambda z: np.abs(z) ** 2)(Z), np.diag(2 * Z.conj()))
    with pytest.raises(DerivativeError, match="leave it out, or give 'reverse'"):
        pb.jacobian(np.abs, mode="forward")(Z)
    with pytest.raises(DerivativeError, match="leave it out, or give 'forward'"):
        pb.jacobian(lambda x: x + 0j, mode="reverse")(x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pb.grad(np.sum)(Z), "say holomorphic=True if it is"),
        (lambda: pb.jacobian(np.exp)(Z), "say holomorphic=True if it is"),
        (lambda: pb.grad(lambda z: np.sum(z).real, holomorphic=True)(Z), "there is float64"),
        (lambda: pb.grad(np.sum, holomorphic=True)(np.ones(2)), "there is float64"),
        (lambda: pb.jvp(np.sin, (np.ones(3),), (Z,)), "give its real part"),
    ],
)
def test_derivatives_that_there_are_none_of_are_refused(call: Any, message: str) -> None:
    with pytest.raises(DerivativeError, match=message):
        call()


REFUSED = {
    "less": lambda z: z < 1,
    "maximum": lambda z: np.maximum(z, 0),
    "max": np.max,
    "argsort": np.sort,
    "argmax": np.argmax,
    "floor": np.floor,
    "hypot": lambda z: np.hypot(z, 1),
    "floor_divide": lambda z: z // 2,
    "rfft": np.fft.rfft,
    "sigmoid": pb.sigmoid,
    "max_pool": lambda z: pb.nn.max_pool(z[None, None], 2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_refused_by_its_name(name: str) -> None:
    for run in (pb.jit(REFUSED[name]), lambda z: pb.vjp(REFUSED[name], z)):
        with pytest.raises(DTypeError, match=rf"{name} takes no complex128; .*real"):
            run(Z)


def test_imaginary_parts_are_not_lost() -> None:
    def into_real(z: Any) -> Any:
        out = np.zeros_like(z, dtype=float)
        out[0] = z[0]
        return out

    for f in (into_real, lambda z: z.astype(float), lambda z: np.sum(z, dtype=float)):
        with pytest.raises(DTypeError, match="the imaginary part would be lost"):
            pb.jit(f)(Z)
    with pytest.raises(TracingError, match=r"take x\.real"):
        pb.jit(np.real_if_close)(Z)


def test_optimisers_refuse_complex_parameters() -> None:
    with pytest.raises(DTypeError, match="two arrays"):
        pb.optim.Adam(0.1).init({"w": Z})


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float32", "float64", "complex64"])
def test_dtypes_are_numpys(dtype: str) -> None:
    x = np.array([1, 0, 2]).astype(dtype)
    functions = (
        lambda x: x * 1j,
        lambda x: x + np.complex64(1j),
        lambda x: x * np.complex128(2),
        lambda x: x**2 + 1j,
        lambda x: np.exp(x * 1j),
        lambda x: np.where(x > 0, x, 1j) if x.dtype.kind != "c" else x,
        lambda x: np.abs(x + 0j),
        lambda x: np.stack([x, x * 1j]),
        lambda x: np.mean(x * 1j),
    )
    for f in functions:
        wanted = f(x)
        for found in (pb.jit(f)(x), pb.trace(f, x).evaluate([x])):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_pythons_complex_numbers() -> None:
    f = pb.jit(lambda z, factor=2j: z * factor)
    assert f(3.0) == 6j
    assert f(1j) == -2
    assert f(np.float32(2)).dtype == np.complex64
    assert f(np.complex64(2), factor=1 + 1j).dtype == np.complex64
    assert pb.grad(lambda z: abs(z) ** 2)(3 + 4j) == 6 - 8j


def test_writes_through_the_parts() -> None:
    def written(z: Any) -> Any:
        out = z.copy()
        out.real[1:] = 3.0
        out.imag *= z.imag
        out[0] += 1j
        return out

    wanted = Z.copy()
    wanted.real[1:] = 3.0
    wanted.imag *= Z.imag
    wanted[0] += 1j
    np.testing.assert_allclose(pb.jit(written)(Z), wanted)
    f = lambda z: np.sum(np.abs(written(z)) ** 2)  # noqa: E731
    np.testing.assert_allclose(pb.jit(pb.grad(f))(Z), [2 - 40j, -4 * 0.3**3 * 1j, 4j], atol=1e-12)


def test_python_decides_by_complex_values() -> None:
    def f(z: Any) -> Any:
        return np.abs(z * z) if z.real > 0 and complex(z).imag > 0 else z.imag

    assert pb.grad(f)(1 + 1j) == pytest.approx(2 * (1 - 1j))
    assert pb.grad(f)(-1 + 1j) == -1j


def test_loops_branches_and_checkpoints_carry_complex_numbers() -> None:
    def loss(z: Any) -> Any:
        last, kept = pb.scan(lambda c, x: (c * x + 1j, np.abs(c)), z[0], z)
        branch = pb.cond(np.abs(last) > 1, lambda a: a * 2j, np.conj, last)
        again = pb.checkpoint(lambda a: np.exp(1j * a) * a)(branch)
        return np.abs(again) + np.sum(kept)

    wanted = slopes(lambda z: float(loss(z)), Z)
    np.testing.assert_allclose(pb.grad(loss)(Z), wanted, rtol=1e-5)
    np.testing.assert_allclose(pb.jit(pb.grad(loss))(Z), wanted, rtol=1e-5)
    np.testing.assert_allclose(pb.jit(pb.vmap(pb.grad(loss)))(np.stack([Z, W]))[0], wanted, rtol=1e-5)


def test_callbacks_are_given_complex_arrays() -> None:
    def unwrapped(z: np.ndarray) -> np.ndarray:
        assert z.dtype == np.complex128
        return np.unwrap(np.angle(z)) + 1j

    f = pb.jit(lambda z: pb.pure_callback(unwrapped, z, z * 1j))
    np.testing.assert_allclose(f(Z), unwrapped(Z * 1j))


def test_donated_complex_arrays_are_updated_in_place() -> None:
    step = pb.jit(lambda z, w: (z * w, np.abs(z).sum()), donate_argnums=0)
    z = Z.copy()
    found, _ = step(z, W)
    assert found is z
    np.testing.assert_allclose(z, Z * W)
    (kept, sizes), done = step.run_steps((Z.copy(), np.stack([W, W])), 2, 1)
    assert done == 2
    np.testing.assert_allclose(kept, Z * W * W)
    np.testing.assert_allclose(sizes, [np.abs(Z).sum(), np.abs(Z * W).sum()])


def test_functions_agree_with_numpy_where_they_are_hard() -> None:
    sizes = np.array([0.0, 1e-200, 1e-9, 0.3, 1.0, 1.7, 30.0, 700.0, 1e150])
    parts = np.concatenate([sizes, -sizes])
    z = (parts[:, None] + 1j * parts).ravel()
    small = z[np.maximum(np.abs(z.real), np.abs(z.imag)) <= 30]
    near = 1 + np.array([1e-9, -1e-9, 1e-5j, 1e-3 + 1e-4j, -1e-3])
    for f, given in [
        *((f, z) for f in (np.sqrt, np.abs, np.log, np.reciprocal)),
        *((f, small) for f in (np.exp, np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh, np.expm1)),
        *((f, near) for f in (np.log, np.log1p, np.log2, np.log10, np.exp2)),
    ]:
        with np.errstate(all="ignore"):
            wanted, found = f(given), pb.jit(f)(given)
        finite = np.isfinite(wanted)
        error = np.abs(found[finite] - wanted[finite])
        assert (error <= 1e-14 * np.abs(wanted[finite]) + 1e-300).all(), f.__name__


def test_powers_of_zero() -> None:
    powers = np.array([0, 1, 2 + 0j, 0.5, -1, 1j])
    with np.errstate(all="ignore"):
        wanted = np.power(np.zeros(6, complex), powers)
    np.testing.assert_array_equal(pb.jit(lambda p: np.power(0j, p))(powers), wanted)
    assert pb.grad(lambda z: np.real(z**3))(0j) == 0


PARTS = np.array([math.inf, -math.inf, 0.0, -0.0, 2.5, math.nan, -1e-9])
EVERY = (PARTS[:, None] + 0j).repeat(len(PARTS), 1)
EVERY.imag = PARTS


@pytest.mark.parametrize(
    "f",
    [
        np.rint,
        np.round,
        lambda z: np.round(z, 1),
        lambda z: np.round(z * 100, -1),
        np.nan_to_num,
        lambda z: np.nan_to_num(z, nan=7.0, posinf=2.0, neginf=-1.0),
    ],
)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_either_part_is_rounded_and_replaced(f: Callable[..., Any], dtype: str) -> None:
    z = EVERY.astype(dtype)
    with np.errstate(all="ignore"):
        wanted = f(z)
        for found in (pb.jit(f)(z), pb.vmap(f)(z), pb.trace(f, z).evaluate([z])):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)
    zero = (wanted.real == 0) & (wanted.imag == 0)
    np.testing.assert_array_equal(np.signbit(found.imag[zero]), np.signbit(wanted.imag[zero]))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_sign_is_the_direction(dtype: str) -> None:
    z = EVERY.astype(dtype)
    with np.errstate(all="ignore"):
        wanted = np.sign(z)
    for found in (pb.jit(np.sign)(z), pb.vmap(np.sign)(z)):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=4 * np.finfo(z.dtype).eps)
    assert (pb.grad(lambda z: np.sum(np.sign(z).real))(np.zeros(2, complex)) == 0).all()


def test_variances_of_some_complex_numbers() -> None:
    z, mask = np.append(Z, math.nan), np.array([True, True, False, True])
    for f in (np.nanvar, np.nanstd, lambda z: np.var(z[:3], where=mask[:3])):
        np.testing.assert_allclose(pb.jit(f)(z), f(z))


def test_roots_of_infinite_numbers() -> None:
    z = np.array(
        [complex(a, b) for a in (2.0, math.inf, -math.inf) for b in (math.inf, -math.inf, 1.0, -0.0)]
    )
    np.testing.assert_array_equal(pb.jit(np.sqrt)(z), np.sqrt(z))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("f", [np.tanh, np.tan])
def test_tangents_of_infinite_parts_are_those_of_c99(f: Callable[..., Any], dtype: Any) -> None:
    parts = [0.0, -0.0, 1.0, -2.0, 40.0, math.inf, -math.inf, math.nan]
    z = np.array([complex(a, b) for a in parts for b in parts], dtype)
    with np.errstate(all="ignore"):
        expected = f(z)
    found = pb.jit(f)(z)
    for one, other in ((found.real, expected.real), (found.imag, expected.imag)):
        np.testing.assert_allclose(one, other, rtol=8 * np.finfo(dtype).eps, atol=0)
        number = ~np.isnan(other)
        np.testing.assert_array_equal(np.signbit(one[number]), np.signbit(other[number]))


def test_float_power_of_complex_numbers() -> None:
    for x, y in ((Z, 2), (Z, W), (np.arange(1, 4), Z), (Z.astype(np.complex64), np.float32(0.5))):
        found, expected = pb.jit(np.float_power)(x, y), np.float_power(x, y)
        assert found.dtype == expected.dtype == np.complex128
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    check_grads(np.float_power, [Z, W])


def test_interp_of_complex_points() -> None:
    points, values = np.array([0.0, 1, 2.5]), np.array([1 + 2j, 3 - 1j, 0.5j])
    x = np.array([-1, 0, 0.25, 1, 2, 2.5, 9, np.nan])
    ways: list[dict[str, Any]] = [{}, {"left": 1j}, {"left": 2.0, "right": 3 - 4j}, {"period": 2.7}]
    for keywords in ways:
        call = functools.partial(np.interp, **keywords)
        expected = call(x, points, values)
        np.testing.assert_allclose(pb.jit(call)(x, points, values), expected, rtol=1e-14, atol=1e-15)
        np.testing.assert_allclose(pb.vjp(call, x, points, values)[0], expected, rtol=1e-14, atol=1e-15)
    check_grads(lambda x, values: np.interp(x, points, values), [x[2:5] + 0.1, values])
    with pytest.raises(DTypeError, match="imaginary part would be lost"):
        pb.jit(lambda values: np.interp(x, points, values, left=1j))(values.real)
    with pytest.raises(DTypeError, match="imaginary part would be lost"):
        pb.jit(lambda z: np.interp(z, points, values))(values)
