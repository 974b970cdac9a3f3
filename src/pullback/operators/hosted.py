"""Special functions that SciPy computes, out of the compiled program, and what has no derivative among
their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from pullback.errors import DerivativeError, MissingExtra
from pullback.graph import OPERATORS, Case, Node, Operation, Operator, Sample, Type
from pullback.operators.batching import batch_first
from pullback.operators.elementwise import elementwise_type, inside_masks, is_constant, zeros_like
from pullback.operators.gamma_ratios import betaln, gamma_density
from pullback.operators.special import digamma, gammaln
from pullback.operators.transcendental import exp, log, log1p
from pullback.operators.varying import keeps, keeps_zeros

__all__ = [
    "betainc",
    "fixed",
    "gammainc",
    "gammainc_slope",
    "gammaincc",
    "iv",
    "ive",
    "jv",
    "kv",
    "kve",
    "stdtr",
    "yv",
]


def _refuse(node: Operation, g: Node) -> NoReturn:
    raise DerivativeError(
        f"{node.attributes['what']} has no derivative here; hold it fixed, with stop_gradient if it is computed"
    )


fixed = Operator(
    "fixed",
    lambda x, what: x,
    lambda x, what: x,
    _refuse,
    batch_first,
    lambda node, operands, index: operands[0](index),
    (),
    vary=keeps_zeros,
)
"""``x``, by which nobody may differentiate; ``what`` names it in the error."""


def _from_scipy(name: str) -> Callable[..., Any]:
    def reference(*arrays: Any, **attributes: Any) -> Any:
        try:
            from scipy import special
        except ImportError:
            raise MissingExtra(
                f"{name} is computed by SciPy, which is not installed: pip install 'pullback[scipy]'"
            ) from None
        with np.errstate(all="ignore"):
            made = getattr(special, name)(*attributes.values(), *(np.asarray(x, np.float64) for x in arrays))
            return np.asarray(made).astype(np.asarray(arrays[0]).dtype)

    return reference


def _hosted(
    name: str,
    reference: Callable[..., Any],
    rules: Sequence[Any],
    domains: Sequence[tuple[float, float]],
    settings: Sequence[dict[str, Any]] = ({},),
    differentiable: tuple[int, ...] | None = None,
) -> Operator:
    """An elementwise function that is called; ``rules`` as those of ``elementwise``."""

    def contribution(rule: Any, node: Operation, g: Node) -> Any:
        return inside_masks(g, lambda g: rule(g, node, *node.inputs))

    def pullback(node: Operation, g: Node) -> list[Node | None]:
        return [
            None if is_constant(x) else contribution(rule, node, g) for rule, x in zip(rules, node.inputs)
        ]

    def type_rule(*types: Type, **attributes: Any) -> Type:
        return elementwise_type(name, "f", None)(*types)

    samples = tuple(Sample((3, 2), low, high) for low, high in domains)
    cases = tuple(Case(samples, attributes, differentiable) for attributes in settings)
    return Operator(name, type_rule, reference, pullback, batch_first, None, cases, vary=keeps)


def _none(g: Node, y: Any, x: Any, *rest: Any) -> Node:
    """The cotangent of an argument that is ``fixed``: it is there, so that somebody who asks for it is refused."""
    return zeros_like(x)


# -- incomplete integrals

TERMS = 100_000
"""Terms of a series at most."""


def _gammainc_slope(a: Any, x: Any) -> Any:
    """The sum of the terms' derivatives: ``e^-x x^(a+n) / Γ(a+n+1)`` has that of its logarithm."""
    kind = np.asarray(a).dtype
    a, x = (np.asarray(value, np.float64) for value in (a, x))
    with np.errstate(all="ignore"):
        logarithm = np.log(x)
        term = np.exp(a * logarithm - x - gammaln.reference(a + 1))
        psi = digamma.reference(a + 1)
        total = np.zeros_like(term)
        for n in range(TERMS):
            step = term * (logarithm - psi)
            total = total + step
            psi = psi + 1 / (a + n + 1)
            term = term * x / (a + n + 1)
            if not np.any((np.abs(step) > 1e-17 * np.abs(total)) | ((n < x) & (term > 0))):
                break
    return np.where(x == 0, 0.0, np.where(x == np.inf, 0.0, total)).astype(kind)


def _density(g: Any, y: Any, a: Any, x: Any) -> Any:
    return g * gamma_density(a, x)


def _slope_by_place(g: Any, y: Any, a: Any, x: Any) -> Any:
    return _density(g, y, a, x) * (log(x) - digamma(a))


gammainc_slope = _hosted(
    "gammainc_slope",
    _gammainc_slope,
    [lambda g, y, a, x: zeros_like(x), _slope_by_place],
    [(0.5, 3.0), (0.5, 3.0)],
    differentiable=(1,),
)
"""The derivative of ``gammainc(a, x)`` by ``a``. The ``a`` that it is given is ``fixed``."""


def _by_shape(a: Any, x: Any) -> Any:
    return gammainc_slope(OPERATORS["fixed"](a, what="the second derivative of gammainc by a"), x)


gammainc = _hosted(
    "gammainc",
    _from_scipy("gammainc"),
    [lambda g, y, a, x: g * _by_shape(a, x), _density],
    [(0.5, 3.0), (0.5, 3.0)],
    differentiable=(1,),
)
"""The share of ``Γ(a)``, the integral of ``t ** (a - 1) * exp(-t)``, from 0 to ``x``."""

gammaincc = _hosted(
    "gammaincc",
    _from_scipy("gammaincc"),
    [lambda g, y, a, x: -g * _by_shape(a, x), lambda g, y, a, x: -_density(g, y, a, x)],
    [(0.5, 3.0), (0.5, 3.0)],
    differentiable=(1,),
)
"""``1 - gammainc(a, x)``, exact to the last bits where it is small."""


def _beta_density(g: Any, y: Any, a: Any, b: Any, x: Any) -> Any:
    return g * exp((a - 1.0) * log(x) + (b - 1.0) * log1p(-x) - betaln(a, b))


betainc = _hosted(
    "betainc",
    _from_scipy("betainc"),
    [_none, lambda g, y, a, b, x: zeros_like(b), _beta_density],
    [(0.5, 3.0), (0.5, 3.0), (0.1, 0.9)],
    differentiable=(2,),
)
"""The share of ``B(a, b)``, the integral of ``t ** (a - 1) * (1 - t) ** (b - 1)``, from 0 to ``x``; ``a``,
``b`` ``fixed``.
"""


# -- Bessel's functions of any order


def _of_order(name: str, below: float, above: float, scaled: Any = None) -> Operator:
    """The function whose derivative is half of ``below`` times the order below and ``above`` times that above.

    Where the function is ``scaled`` by an exponential, that is the slope of the exponent.
    """

    def slope(g: Any, y: Any, x: Any) -> Any:
        operator, order = y.operator, y.attributes["order"]
        less, more = operator(x, order=order - 1), operator(x, order=order + 1)
        steep = 0.5 * (below * less + above * more)
        return g * (steep if scaled is None else steep + scaled(x) * y)

    settings = [{"order": 0.0}, {"order": 1.0}, {"order": 2.5}]
    return _hosted(name, _from_scipy(name), [slope], [(1.0, 3.0)], settings)


jv = _of_order("jv", 1.0, -1.0)
"""The function of Bessel of the first kind, of any real ``order``."""

yv = _of_order("yv", 1.0, -1.0)
"""The function of Bessel of the second kind, of any real ``order``."""

iv = _of_order("iv", 1.0, 1.0)
"""The modified function of Bessel of the first kind, of any real ``order``."""

kv = _of_order("kv", -1.0, -1.0)
"""The modified function of Bessel of the second kind, of any real ``order``."""

ive = _of_order("ive", 1.0, 1.0, lambda x: -OPERATORS["sign"](x))
"""``iv`` times ``exp(-|x|)``, which does not overflow."""

kve = _of_order("kve", -1.0, -1.0, lambda x: 1.0)
"""``kv`` times ``exp(x)``, which does not vanish."""


# -- Student's distribution


def _student_density(g: Any, y: Any, v: Any, x: Any) -> Any:
    norm = gammaln((v + 1.0) / 2.0) - gammaln(v / 2.0) - 0.5 * log(v * np.pi)
    return g * exp(norm - (v + 1.0) / 2.0 * log1p(x * x / v))


stdtr = _hosted(
    "stdtr",
    _from_scipy("stdtr"),
    [_none, _student_density],
    [(0.5, 3.0), (-2.0, 2.0)],
    differentiable=(1,),
)
"""The integral of Student's distribution of ``v`` degrees of freedom, which are ``fixed``, up to ``x``."""
