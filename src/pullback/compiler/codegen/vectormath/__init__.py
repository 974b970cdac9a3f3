"""Vector mathematics as inlined polynomials: the elementwise vocabulary, emitted into a function.

:class:`Lanes` is a vector of one or more lanes whose methods append instructions and return the name of the
result; :data:`ELEMENTWISE` finds them by operator name. Nothing is called except beyond the range of an
argument reduction (``sin``, ``cos``, ``tan`` of huge numbers, remainders of huge quotients), and there only
in the lanes concerned.

Every function is exact where its value is a matter of definition (signed zeros, infinities, NaN) and its
error is bounded by :data:`ACCURACY` elsewhere, in the whole range of the kind, subnormal numbers included.

>>> from pullback.compiler.llvm.function import Module
>>> module = Module()
>>> function = module.function("logistic", [("<8 x float>", "x")], result="<8 x float>")
>>> function.returns(Lanes(function, "float", 8).sigmoid(function["x"]))
>>> "fdiv <8 x float>" in module.text()
True
"""

from __future__ import annotations

from collections.abc import Callable

from pullback.compiler.codegen.vectormath.hyperbolic import Hyperbolic
from pullback.compiler.codegen.vectormath.powers import Powers
from pullback.compiler.codegen.vectormath.trigonometric import Trigonometric
from pullback.loops.functions import FUNCTIONS

__all__ = ["ACCURACY", "ELEMENTWISE", "Lanes"]


class Lanes(Hyperbolic, Trigonometric, Powers):
    """``count`` lanes of ``"float"`` or ``"double"``: arithmetic and all the functions.

    >>> from pullback.compiler.llvm.function import Module
    >>> function = Module().function("norm", [("double", "x"), ("double", "y")], result="double")
    >>> lanes = Lanes(function, "double", 1)
    >>> x, y = function["x"], function["y"]
    >>> function.returns(lanes.sqrt(lanes.fma(x, x, lanes.mul(y, y))))
    >>> print(function.text())
    define double @norm(double %x, double %y) nounwind {
    entry:
      %v1 = fmul double %y, %y
      %v2 = call double @llvm.fma.f64(double %x, double %x, double %v1)
      %v3 = call double @llvm.sqrt.f64(double %v2)
      ret double %v3
    }
    """


_NAMES = {"subtract": "sub", "multiply": "mul", "divide": "div", "negative": "neg", "absolute": "abs"}
"""Methods that are not called as their operators are."""

ELEMENTWISE: dict[str, Callable[..., str]] = {
    name: getattr(Lanes, method) for name in FUNCTIONS if hasattr(Lanes, method := _NAMES.get(name, name))
}
"""An emitter ``(lanes, *operands) -> result`` for each operator, under NumPy's name where NumPy has one."""

ACCURACY: dict[str, tuple[float, float]] = {
    "exp": (1.25, 1.25),
    "exp2": (1.25, 1.25),
    "expm1": (1.75, 2.5),
    "bell": (1.25, 1.25),
    "half_bell": (1.25, 1.25),
    "decay": (1.25, 1.25),
    "rise": (1.75, 2.5),
    "log": (1.25, 1.25),
    "log2": (2.75, 1.75),
    "log10": (2.25, 1.75),
    "log1p": (2.0, 2.0),
    "sin": (2.0, 2.0),
    "cos": (2.0, 2.0),
    "tan": (3.75, 3.75),
    "arcsin": (2.5, 2.5),
    "arccos": (1.5, 1.5),
    "arctan": (2.0, 2.75),
    "arctan2": (2.25, 2.75),
    "sinh": (2.25, 2.75),
    "cosh": (1.5, 1.5),
    "tanh": (5.0, 2.75),
    "arcsinh": (2.25, 2.25),
    "arccosh": (2.5, 2.5),
    "arctanh": (2.5, 2.5),
    "erf": (6.0, 2.5),
    "sigmoid": (2.5, 2.5),
    "softplus": (1.75, 1.75),
    "power": (1.75, 2.0),
}
"""The largest error in units in the last place, for float and for double.

``add``, ``subtract``, ``multiply``, ``divide``, ``sqrt``, ``square`` and ``reciprocal`` are correctly rounded
(0.5); the other names that are not listed are exact. The typical error is far smaller: that of ``tanh`` in
single precision, the one that trades most of its accuracy for speed, is below one on average and 2.5 at the
99th percentile.
"""
