"""``numpy.fft`` on traced values: lengths, axes and norms, derivatives, and how compiled programs call it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ShapeError
from pullback.testing import check_grads

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((3, 4, 5))
Z = X + 1j * RANDOM.standard_normal(X.shape)
ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn")


def given(name: str) -> np.ndarray:
    return X if name in ("rfft", "rfftn", "rfft2", "ihfft") else Z


def same(f: Callable[[Any], Any], x: np.ndarray) -> None:
    """At once and compiled what NumPy gives."""
    wanted = f(x)
    for found in (pb.trace(f, x).evaluate([x]), pb.jit(f)(x)):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        unit = np.finfo(wanted.dtype).eps * (1 + np.abs(wanted).max())
        np.testing.assert_allclose(found, wanted, rtol=0, atol=16 * unit)


@pytest.mark.parametrize("name", ONE)
def test_lengths_axes_and_norms(name: str) -> None:
    function = getattr(np.fft, name)
    for n, axis, norm in itertools.product((None, 1, 3, 6, 9), (-1, 0, 1), (None, "ortho", "forward")):
        same(lambda x, n=n, axis=axis, norm=norm: function(x, n, axis, norm), given(name))


@pytest.mark.parametrize("name", SEVERAL)
def test_several_axes(name: str) -> None:
    function = getattr(np.fft, name)
    for s, axes in [(None, (0, 2)), (None, (2, 0)), ((3, 6), (1, 2)), ((7,), (0,)), (None, (-1,))]:
        same(lambda x, s=s, axes=axes: function(x, s, axes, "ortho"), given(name))
    same(function, given(name))


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2"])
def test_two_axes(name: str) -> None:
    same(getattr(np.fft, name), given(name))


def test_dtypes_are_numpys() -> None:
    for kind in ("float32", "float64", "complex64", "complex128", "int32", "bool"):
        same(np.fft.fft, Z.real.astype(kind) if kind[0] != "c" else Z.astype(kind))
    same(np.fft.rfft, X.astype(np.int64))


@pytest.mark.parametrize("name", [*ONE, *SEVERAL])
def test_derivatives_of_both_orders_and_modes(name: str) -> None:
    function = getattr(np.fft, name)
    x = given(name)[0]
    weights = RANDOM.standard_normal(function(x).shape)
    check_grads(lambda x: np.sum(np.abs(function(x) + weights) ** 2 * weights), [x])
    loss = lambda x: np.sum(np.abs(function(x) * weights))  # noqa: E731
    np.testing.assert_allclose(pb.jit(pb.grad(loss))(x), pb.grad(loss)(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [*ONE, *SEVERAL])
def test_batches(name: str) -> None:
    function = getattr(np.fft, name)
    x = given(name)
    found = pb.jit(pb.vmap(function))(x)
    np.testing.assert_allclose(found, [function(row) for row in x], atol=1e-12)


def test_shifts_and_frequencies() -> None:
    for axes in (None, 0, (0, 2)):
        same(lambda x, axes=axes: np.fft.fftshift(x, axes), X)
        same(lambda x, axes=axes: np.fft.ifftshift(x, axes), Z)
    same(lambda x: x * np.fft.fftfreq(5, 0.1), X)


def test_in_loops() -> None:
    def loss(x: Any) -> Any:
        last, _ = pb.scan(lambda c, _: (np.fft.irfft(np.fft.rfft(c) * 0.9, 5) + x, None), x, np.zeros(7))
        return np.sum(last**2)

    check_grads(loss, [X[0, 0]])
    np.testing.assert_allclose(pb.jit(pb.grad(loss))(X[0, 0]), pb.grad(loss)(X[0, 0]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: np.fft.fft(x_of(X), norm="half"), "it is one of"),
        (lambda: np.fft.fft(x_of(X), 0), "at least one"),
        (lambda: np.fft.irfft(x_of(X[..., :1])), "at least one"),
        (lambda: np.fft.fft(x_of(X), axis=3), "axis 3"),
        (lambda: np.fft.fftn(x_of(X), (2, 3), (0,)), "give a length for each"),
        (lambda: np.fft.rfftn(x_of(X), axes=()), "no axes"),
    ],
)
def test_what_numpy_refuses_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        pb.trace(lambda x: call(), X)


def x_of(x: np.ndarray) -> Any:
    """``x``, traced."""
    return pb.graph.Variable(pb.graph.Type(x.dtype, x.shape))


def test_programs_transform_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = np.fft.irfft(np.fft.rfft(X) * 2j, 5)
    compiled = pb.jit(lambda x: np.fft.irfft(np.fft.rfft(x) * 2j, 5))
    compiled(X)
    for name in ("rfft", "irfft"):
        monkeypatch.setattr(np.fft, name, None)
    np.testing.assert_allclose(compiled(X), wanted, atol=1e-14)
