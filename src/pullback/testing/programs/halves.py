"""Random steps through ``float16``: what NumPy rounds as everybody does, arithmetic and moves, between casts."""

from __future__ import annotations

from pullback.testing.programs.families import family
from pullback.testing.programs.maker import Maker

__all__: list[str] = []

HALF = "{}.astype(np.float16)"


@family(3)
def halves(m: Maker) -> str:
    """Arithmetic of two arrays that are stored in 16 bits, as one of 32 or 64."""
    x = m.floats()
    y = m.partner(x, m.dtype(x))
    back = f".astype(np.{m.dtype(x).name})"
    one, other = HALF.format("{0}"), HALF.format("{1}")
    texts = (
        f"({one} * {other}){back}",
        f"({one} + {other} * 2.5){back}",
        f"({one} / {other} - {one}){back}",
        f"np.sqrt(np.abs({one})){back} * {{1}}",
        f"np.where({one} > {other}, {one}, -{other}){back}",
        f"np.maximum({one}, {other}){back} + {{0}}",
        f"np.stack([{one}, {other}])[::-1]{back}",
        f"np.sum({one}{back}) * {{1}}",
        f"np.pad({one}, 1){back}",
        f"({one}.ravel()[::-1] * 3){back}",
        f"{one}.T{back}",
        f"np.isfinite({one} * {other}){back} * {{1}}",
    )
    return m.step(m.pick(texts), x, y)
