"""Fourier transforms that the compiler writes itself, between fences, for each width of vectors."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.operators.stockham import planned

SMOOTH = (8, 9, 12, 16, 25, 27, 30, 36, 60, 100, 128, 135, 256, 360, 1024)
PRIME = (7, 13, 31, 49, 77, 140, 403)
CONVOLVED = (37, 74, 101, 997)


def close(found, wanted):
    bound = 20 * np.finfo(found.dtype).eps * np.abs(wanted).max(initial=0)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [*range(1, 7), *SMOOTH, *PRIME, *CONVOLVED])
def test_rows_are_numpys(length, dtype, compiler, traced, processor):
    random = np.random.default_rng(length)
    x = random.standard_normal((3, 2 * length)).astype(dtype)
    z = np.fft.rfft(x) + 1j * random.standard_normal((3, length + 1))
    z = z.astype(np.result_type(dtype, np.complex64))

    def all_of_them(x, z):
        whole = z[:, :-1]
        real = np.fft.rfft(x, norm="ortho"), np.fft.irfft(z, 2 * length)
        odd = np.fft.rfft(x[:, 1:], norm="ortho"), np.fft.irfft(whole, 2 * length - 1)
        return *real, *odd, np.fft.fft(whole), np.fft.ifft(whole, norm="ortho")

    found = compiler.run(traced(all_of_them, x, z), [x, z], processor=processor)
    for made, wanted in zip(found, all_of_them(x.astype(np.float64), z.astype(np.complex128)), strict=True):
        close(made, wanted.astype(made.dtype))


@pytest.mark.parametrize(
    "shape",
    [(16, 1), (8, 3), (2, 9, 5), (60, 4), (3, 32, 2, 8), (7, 9), (2, 37, 3), (14, 20), (41, 17), (6, 31)],
)
def test_other_axes_are_numpys(shape, compiler, traced, processor):
    random = np.random.default_rng(0)
    z = random.standard_normal(shape) + 1j * random.standard_normal(shape)
    for axis in range(len(shape)):

        def forth_and_back(z, axis=axis):
            n = 2 * z.shape[axis] - 2
            real = (np.fft.irfft(z, n + more, axis=axis, norm="forward") for more in (0, 1) if n + more)
            half = np.fft.rfft(z.real, axis=axis, norm="ortho")
            return np.fft.fft(z, axis=axis), np.fft.ifft(z, axis=axis, norm="forward"), half, *real

        found = compiler.run(traced(forth_and_back, z), [z], processor=processor)
        for made, wanted in zip(found, forth_and_back(z), strict=True):
            close(made, wanted)


@pytest.mark.parametrize("length", [7, 31, 77, 127, 997, 1001, 1024, 4001])
def test_errors_are_of_the_order_of_roundings(length, compiler, traced):
    random = np.random.default_rng(length)
    z = random.standard_normal((3, length)) + 1j * random.standard_normal((3, length))
    exact = np.fft.fft(z.astype(np.clongdouble))
    (found,) = compiler.run(traced(np.fft.fft, z), [z])
    error = np.sqrt(np.mean(np.abs(found - exact) ** 2) / np.mean(np.abs(exact) ** 2))
    assert error < 3 * np.finfo(np.float64).eps


@pytest.mark.parametrize("length", [7, 8, 37])
def test_columns_do_not_touch_each_other(length, compiler, traced):
    x = np.random.default_rng(length).standard_normal((length, 11))
    x[0, 4] = np.nan
    transforms = traced(lambda x: (np.fft.fft(x, axis=0), np.fft.rfft(x, axis=0)), x)
    for found in compiler.run(transforms, [x]):
        assert np.array_equal(np.isnan(found).any(axis=0), np.isnan(x).any(axis=0))


@pytest.mark.parametrize(("length", "ends"), [(1, [0]), (7, [0]), (8, [0, 4]), (37, [0]), (74, [0, 37])])
@pytest.mark.parametrize("beside", [1, 3])
def test_imaginary_parts_of_the_ends_are_not_read(length, ends, beside, compiler, traced):
    z = np.ones((length // 2 + 1, beside), complex)
    z[ends] = complex(1, np.nan)
    (found,) = compiler.run(traced(lambda z: np.fft.irfft(z, length, axis=0), z), [z])
    close(found, np.eye(length, 1) * np.ones(beside))


def test_which_passes_there_are():
    assert planned(4**3 * 2 * 5 * 7).radices == (4, 4, 4, 2, 5, 7)
    assert not planned(31 * 31).convolves
    assert planned(37).radices == (3, 5, 5) and planned(37).convolves
