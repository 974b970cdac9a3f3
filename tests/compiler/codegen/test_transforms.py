"""Fourier transforms that the compiler writes itself, between fences, for each width of vectors."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.graph import Type
from pullback.operators.stockham import radices, written_transform

LENGTHS = (8, 9, 10, 12, 16, 25, 27, 30, 36, 48, 60, 64, 96, 100, 128, 135, 240, 243, 256, 360, 500, 1024)


def close(found, wanted):
    bound = 20 * np.finfo(found.dtype).eps * np.abs(wanted).max(initial=0)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_rows_are_numpys(length, dtype, compiler, traced, processor):
    random = np.random.default_rng(length)
    x = random.standard_normal((3, 2 * length)).astype(dtype)
    z = np.fft.rfft(x) + 1j * random.standard_normal((3, length + 1))
    z = z.astype(np.result_type(dtype, np.complex64))

    def all_of_them(x, z):
        whole = z[:, :-1]
        real = np.fft.rfft(x, norm="ortho"), np.fft.irfft(z, 2 * length)
        return *real, np.fft.fft(whole), np.fft.ifft(whole, norm="ortho")

    found = compiler.run(traced(all_of_them, x, z), [x, z], processor=processor)
    for made, wanted in zip(found, all_of_them(x.astype(np.float64), z.astype(np.complex128)), strict=True):
        close(made, wanted.astype(made.dtype))


@pytest.mark.parametrize("shape", [(16, 1), (8, 3), (2, 9, 5), (60, 4), (3, 32, 2, 8)])
def test_other_axes_are_numpys(shape, compiler, traced, processor):
    random = np.random.default_rng(0)
    z = random.standard_normal(shape) + 1j * random.standard_normal(shape)
    for axis in range(len(shape)):

        def forth_and_back(z, axis=axis):
            return np.fft.fft(z, axis=axis), np.fft.ifft(z, axis=axis, norm="forward")

        for made, wanted in zip(
            compiler.run(traced(forth_and_back, z), [z], processor=processor), forth_and_back(z)
        ):
            close(made, wanted)


def test_which_transforms_are_written():
    def written(name, shape, other, axis=0):
        real, whole = np.dtype(np.float64), np.dtype(np.complex128)
        kinds = {"rfft": (real, whole), "irfft": (whole, real)}.get(name, (whole, whole))
        return written_transform(name, Type(kinds[0], shape), Type(kinds[1], other), axis, 1.0) is not None

    assert radices(4**3 * 2 * 5) == (4, 4, 4, 2, 5)
    assert written("fft", (60,), (60,)) and written("ifft", (2, 8, 3), (2, 8, 3), 1)
    assert not any(written("fft", (n,), (n,)) for n in (4, 7, 77))
    assert written("rfft", (32,), (17,)) and written("irfft", (17,), (32,))
    assert not written("rfft", (45,), (23,)) and not written("rfft", (32, 3), (17, 3))
