"""Transforms of cosines and sines against SciPy's, of every type, norm and length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ShapeError
from pullback.scipy import fft
from pullback.testing import check_grads

theirs = pytest.importorskip("scipy.fft")
RANDOM = np.random.default_rng(0)
ONE = ("dct", "idct", "dst", "idst")


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("type", [1, 2, 3, 4])
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
def test_values_are_those_of_scipy(name: str, type: int, norm: Any) -> None:
    for n in (2, 3, 8):
        x = RANDOM.normal(size=(n, 5))
        for options in ({}, {"axis": 0}, {"n": 4}, {"orthogonalize": norm != "ortho"}):
            wanted = getattr(theirs, name)(x, type, norm=norm, **options)
            found = getattr(fft, name)(x, type, norm=norm, **options)
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    of_traced = pb.jit(lambda x: getattr(fft, name)(x, type, norm=norm))
    np.testing.assert_allclose(
        of_traced(x), getattr(theirs, name)(x, type, norm=norm), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex64", "complex128"])
def test_dtypes(dtype: str) -> None:
    x = (10 * (RANDOM.normal(size=6) + 1j)).astype(dtype) if dtype[0] == "c" else np.arange(6).astype(dtype)
    exact = 1e-5 if dtype in ("float32", "complex64") else 1e-12
    for name in ONE:
        found, wanted = getattr(fft, name)(x), getattr(theirs, name)(x)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=exact, atol=exact)


@pytest.mark.parametrize("name", ["dctn", "idctn", "dstn", "idstn"])
def test_of_several_axes(name: str) -> None:
    x = RANDOM.normal(size=(3, 4, 2))
    for options in ({}, {"axes": (0, 2)}, {"s": (5, 3)}, {"s": 3, "axes": 1}, {"norm": "ortho", "type": 3}):
        wanted = getattr(theirs, name)(x, **options)
        np.testing.assert_allclose(getattr(fft, name)(x, **options), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("type", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["dct", "dst", "idct", "idst"])
def test_derivatives_and_batches(name: str, type: int) -> None:
    x = RANDOM.normal(size=(2, 5))
    function = getattr(fft, name)
    check_grads(lambda x: function(x, type, norm="ortho") ** 2, (x,))
    np.testing.assert_allclose(pb.vmap(lambda x: function(x, type))(x), function(x, type), rtol=1e-12)


def test_what_is_refused() -> None:
    with pytest.raises(ShapeError, match="dct: 1 elements along axis 0; it takes 2 at least"):
        fft.dct(np.ones(1), 1)
    with pytest.raises(ValueError, match="type=5"):
        fft.idst(np.ones(3), 5)
    with pytest.raises(ShapeError, match="give one for each"):
        fft.dctn(np.ones((3, 3)), s=(2, 2), axes=0)


def test_transforms_under_scipys_names() -> None:
    x = RANDOM.normal(size=(4, 5))
    for name in (
        "fft",
        "ifft",
        "rfft",
        "irfft",
        "fft2",
        "rfft2",
        "fftn",
        "irfftn",
        "hfft",
        "ihfft",
        "fftshift",
    ):
        np.testing.assert_allclose(getattr(fft, name)(x), getattr(theirs, name)(x), rtol=1e-12, atol=1e-12)
