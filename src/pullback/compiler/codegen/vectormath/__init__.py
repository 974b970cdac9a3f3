"""Vector mathematics as inlined polynomials: the elementwise vocabulary, emitted into a function being written.

:class:`Lanes` is a vector of one or more lanes whose methods append instructions and return the name of the result;
:data:`ELEMENTWISE` finds them by operator name. Nothing is called except beyond the range of an argument reduction
(``sin``, ``cos``, ``tan`` of huge numbers, remainders of huge quotients), and there only in the lanes concerned.

Every function is exact where its value is a matter of definition (signed zeros, infinities, NaN) and its error is
bounded by :data:`ACCURACY` elsewhere, in the whole range of the kind, subnormal numbers included.

>>> from pullback.compiler.codegen.function import Module
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

__all__ = ["ACCURACY", "ELEMENTWISE", "Lanes"]


class Lanes(Hyperbolic, Trigonometric, Powers):
    """``count`` lanes of ``"float"`` or ``"double"``: arithmetic and all the functions.

    >>> from pullback.compiler.codegen.function import Module
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


ELEMENTWISE: dict[str, Callable[..., str]] = {
    "add": Lanes.add,
    "subtract": Lanes.sub,
    "multiply": Lanes.mul,
    "divide": Lanes.div,
    "negative": Lanes.neg,
    "absolute": Lanes.abs,
    "sign": Lanes.sign,
    "square": Lanes.square,
    "sqrt": Lanes.sqrt,
    "reciprocal": Lanes.reciprocal,
    "floor": Lanes.floor,
    "ceil": Lanes.ceil,
    "trunc": Lanes.trunc,
    "rint": Lanes.rint,
    "copysign": Lanes.copysign,
    "minimum": Lanes.minimum,
    "maximum": Lanes.maximum,
    "exp": Lanes.exp,
    "exp2": Lanes.exp2,
    "expm1": Lanes.expm1,
    "log": Lanes.log,
    "log2": Lanes.log2,
    "log10": Lanes.log10,
    "log1p": Lanes.log1p,
    "sin": Lanes.sin,
    "cos": Lanes.cos,
    "tan": Lanes.tan,
    "arcsin": Lanes.arcsin,
    "arccos": Lanes.arccos,
    "arctan": Lanes.arctan,
    "arctan2": Lanes.arctan2,
    "sinh": Lanes.sinh,
    "cosh": Lanes.cosh,
    "tanh": Lanes.tanh,
    "arcsinh": Lanes.arcsinh,
    "arccosh": Lanes.arccosh,
    "arctanh": Lanes.arctanh,
    "erf": Lanes.erf,
    "sigmoid": Lanes.sigmoid,
    "softplus": Lanes.softplus,
    "relu": Lanes.relu,
    "power": Lanes.power,
    "remainder": Lanes.remainder,
    "floor_divide": Lanes.floor_divide,
}
"""An emitter ``(lanes, *operands) -> result`` for each operator, under NumPy's name where NumPy has one."""

ACCURACY: dict[str, tuple[float, float]] = {
    "exp": (1.5, 1.5),
}
"""The largest error in units in the last place, for float and for double. What is not listed is correctly rounded."""
