"""Random steps of special functions."""

from __future__ import annotations

from pullback.testing.programs.families import family
from pullback.testing.programs.maker import Maker

__all__: list[str] = []

ANYWHERE = ("erfc", "ndtr", "expit", "log_expit", "entr")
POSITIVE = ("gammaln", "gamma", "rgamma")


@family(2)
def special(m: Maker) -> str:
    x = m.floats()
    if m.chance(0.4):
        inside = m.step(m.pick(("np.abs({0}) + 0.5", "np.exp(np.minimum({0}, 2))")), x)
        if m.chance(0.4):
            return m.step("pb.scipy.special.xlogy({0}, {1})", x, inside)
        return m.step(f"pb.scipy.special.{m.pick(POSITIVE)}({{0}})", inside)
    return m.step(f"pb.scipy.special.{m.pick(ANYWHERE)}({{0}})", x)
