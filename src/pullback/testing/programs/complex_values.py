"""Random steps that go through complex numbers: real operands, complex values in between, a real result."""

from __future__ import annotations

import numpy as np

from pullback.testing.programs.families import family
from pullback.testing.programs.maker import Maker, Rejected

__all__: list[str] = []

LARGEST = 30.0
"""Beyond it, and for what is not finite, NumPy's complex functions have rules of their own."""


def _small(m: Maker, *names: str) -> None:
    for name in names:
        if not np.all(np.abs(np.asarray(m.value(name), np.float64)) < LARGEST):
            raise Rejected("too large for complex functions")


@family(3)
def complex_values(m: Maker) -> str:
    """Arithmetic and functions of complex numbers, and what is real of them."""
    x = m.floats()
    y = m.partner(x, m.dtype(x))
    _small(m, x, y)
    texts = (
        "np.abs({0} + 1j * {1})",
        "np.imag(({0} + 1j * {1}) ** 3)",
        "np.real(({0} + 2j) / (3 - 1j * {1}))",
        "np.real(np.exp(1j * {0}) * ({1} - 0.5j))",
        "np.imag(np.sqrt({0} + 1.5j) * np.conj({1} + 1j))",
        "np.real(np.log({0} + 0.5j) * {1})",
        "np.imag(np.sin({0} * 0.1 + 1j) / np.cosh(0.5 + 0.1j * {1}))",
        "np.angle({0} + 1.5j) * {1}",
        "np.abs(np.where({0} > 0, {0} + 2j, 1j * {1} + 3))",
        "np.sum(({0} + 1j * {1}) * ({1} - 2j)).imag",
        "np.real(np.arcsin({0} + 0.5j) * ({1} - 1j))",
        "np.imag(np.arccos({0} * 0.1 - 2j) + np.arctan({1} + 0.5j))",
        "np.real(np.arcsinh({0} + 0.5j) - np.arctanh({1} * 0.1 + 0.5j))",
        "np.imag(np.arccosh({0} + 1.5j) * {1})",
    )
    return m.step(m.pick(texts), x, y)


@family(2.5)
def transforms(m: Maker) -> str:
    """Fourier transforms along an axis, forth and back."""
    x = m.floats(1)
    axis, norm = m.axis(x), m.pick(("", ", norm='ortho'", ", norm='forward'"))
    y = m.any(lambda name: m.shape(name) == m.shape(x) and m.dtype(name) == m.dtype(x))
    _small(m, x, y)
    n = m.shape(x)[axis]
    if not n:
        raise Rejected("NumPy gives memory as it is for transforms of nothing")
    along = f"axis={axis}{norm}"
    texts = (
        f"np.fft.fft({{0}}, {along}).real",
        f"np.fft.fft({{0}} - 1j * {{1}}, {m.pick((7, 9, 16, 20, 37))}, {along}).imag",
        f"np.fft.ifft(np.fft.fft({{0}} + 1j * {{1}}, {along}) * 1j, {along}).imag",
        f"np.fft.irfft(np.fft.rfft({{0}}, {along}) * np.fft.rfft({{1}}, {along}), {n}, {along})",
        f"np.fft.irfft({{0}} + 1j * {{1}}, {m.pick((1, 4, 5, 13, 16, 30, 37))}, {along})",
        f"np.fft.hfft({{0}} + 1j * {{1}}, {along})",
        f"np.fft.rfft({{0}}, {m.pick((2, 3, 8, 11, 16, 36, 74))}, {along}).imag",
        "np.fft.fft2(np.stack([{0}, {1}])).real" if m.rank(x) == 1 else "np.fft.fft2({0} - 1j * {1}).imag",
        f"np.fft.fftshift({{0}}, axes={axis})",
        f"pb.scipy.fft.{m.pick(('dct', 'idct', 'dst', 'idst'))}({{0}}, {m.pick((2, 3, 4))}, {along})",
    )
    return m.step(m.pick(texts), x, y)
