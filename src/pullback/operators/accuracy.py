"""How exact derivatives are: the largest errors that tests hold, in units in the last place."""

from __future__ import annotations

__all__ = ["DERIVATIVES"]

DERIVATIVES: dict[str, tuple[float, float, float, float]] = {
    "arccos": (2.0, 6.0, 2.0, 7.5),
    "arccosh": (2.5, 5.0, 2.5, 5.5),
    "arcsin": (2.0, 6.0, 2.0, 7.5),
    "arcsinh": (1.5, 4.5, 2.0, 4.0),
    "arctan": (2.5, 4.0, 2.5, 5.0),
    "arctanh": (2.0, 3.5, 2.0, 5.5),
    "beta": (0.51, 0.51, 6.5, 15.0),
    "betaln": (0.51, 0.51, 3.5, 49.0),
    "digamma": (0.51, 0.51, 3.5, 5.0),
    "erf": (3.5, 3.5, 4.0, 4.0),
    "erfc": (3.5, 3.5, 4.0, 4.0),
    "erfcx": (0.51, 0.51, 7.0, 23.0),
    "erfinv": (0.51, 3.0, 5.5, 13.0),
    "exp": (2.0, 2.0, 1.5, 1.5),
    "expm1": (2.0, 2.0, 1.5, 1.5),
    "exprel": (0.51, 0.51, 2.5, 11.0),
    "gamma": (2.5, 4.0, 7.0, 7.5),
    "gammaln": (0.51, 0.51, 3.0, 4.5),
    "gelu": (6.0, 9.0, 5.0, 5.5),
    "i0": (0.51, 2.0, 5.5, 6.0),
    "i1": (2.0, 2.0, 6.0, 7.0),
    "kl_div": (0.51, 0.51, 1.5, 0.51),
    "log": (0.51, 1.5, 0.51, 1.5),
    "log1p": (2.0, 4.0, 2.0, 4.0),
    "log_ndtr": (0.51, 0.51, 4.0, 9.0),
    "logit": (1.5, 4.0, 1.5, 4.0),
    "ndtr": (4.5, 4.5, 3.0, 3.5),
    "ndtri": (0.51, 3.0, 6.0, 11.0),
    "rgamma": (0.51, 0.51, 5.5, 8.0),
    "sigmoid": (0.51, 0.51, 4.0, 5.0),
    "silu": (4.0, 3.5, 4.0, 6.0),
    "sin": (1.5, 1.5, 1.5, 1.5),
    "softplus": (2.5, 0.51, 2.5, 3.0),
    "softsign": (4.0, 6.0, 4.0, 5.5),
    "sqrt": (1.5, 4.0, 2.0, 4.5),
    "tan": (4.5, 6.0, 5.5, 7.0),
    "tanh": (3.5, 5.0, 4.0, 5.0),
}
"""Of each function the first and the second derivative of ``float32``, and those of ``float64``.

Of ``float32`` those of ``sigmoid`` and ``tanh``, and the second ones of ``silu`` and ``softplus``, are units of one.
Those of ``gelu`` and ``silu`` are units of the larger of their two parts, which cancel next to a zero. ``beta`` and
``betaln`` are by the first argument up to 50, ``rgamma`` from 4 on, ``gamma`` from 2 on.
"""
