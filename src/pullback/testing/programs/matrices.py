"""Random steps of linear algebra, of matrices that are regular and have no two equal eigenvalues but by chance."""

from __future__ import annotations

import numpy as np

from pullback.testing.programs.families import family
from pullback.testing.programs.maker import Maker, Rejected

__all__: list[str] = []

FUNCTIONS = (
    "np.linalg.inv({0})",
    "np.linalg.cholesky({0})",
    "np.linalg.slogdet({0})[1]",
    "np.linalg.det({0})",
)
FACTORS = (
    "np.linalg.eigvalsh({0})",
    "np.linalg.svd({0}, compute_uv=False)",
    "np.linalg.norm({0}, 'nuc', axis=(-2, -1))",
    "np.linalg.matrix_power({0}, -2)",
    "np.linalg.pinv({0})",
    "np.abs(np.linalg.qr({0})[1])",
    "pb.scipy.linalg.expm({0} * -0.02)",
)
COMPLEX = (
    "np.linalg.eigvalsh({0} + 1j * ({0} - 0.3))",
    "np.linalg.svd({0} + 2j, compute_uv=False)",
    "np.abs(np.linalg.cholesky({0} + 0.01j))",
    "np.linalg.slogdet({0} - 0.5j * {0})[0].imag",
    "np.abs(np.linalg.solve({0} + 0.5j, {0}))",
    "np.linalg.qr({0} + 0.5j)[1].real",
    "np.linalg.pinv({0} - 0.5j).imag",
)


def _positive(m: Maker) -> str:
    """A positive definite matrix, or a batch of them, of moderate numbers."""
    x = m.floats(2)
    values = m.value(x)
    if not values.size or m.shape(x)[-1] > 12 or not np.isfinite(values).all() or np.abs(values).max() > 100:
        raise Rejected("no matrix to begin with")
    size = m.shape(x)[-1]
    unit = f"np.eye({size}, dtype=np.{m.dtype(x).name})"
    return m.step(f"np.swapaxes({{0}}, -1, -2) @ {{0}} + {m.pick((1, 3, 10))} * {unit}", x)


@family(1.5)
def of_a_matrix(m: Maker) -> str:
    a = _positive(m)
    return m.step(m.pick(FUNCTIONS if m.chance(0.6) else FACTORS if m.chance(0.7) else COMPLEX), a)


@family(1.5)
def solved(m: Maker) -> str:
    a = _positive(m)
    size = m.shape(a)[-1]
    b = m.input((*m.shape(a)[:-1], m.pick((1, 2, 3))) if m.chance(0.7) else (size, 1), m.dtype(a))
    if m.chance(0.3):
        a = m.step("np.linalg.cholesky({0})", a)
    return m.step("np.linalg.solve({0}, {1})", a, b)
