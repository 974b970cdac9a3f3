"""Second names of functions, as NumPy has them.

>>> concat is concatenate, pow is power
(True, True)
"""

from pullback.numpy.complex_numbers import conjugate
from pullback.numpy.composite import deg2rad, rad2deg, round
from pullback.numpy.elementwise import (
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    bitwise_not,
    left_shift,
    power,
    right_shift,
)
from pullback.numpy.reductions import max, min
from pullback.numpy.shapes import concatenate, transpose, vstack

__all__ = [
    "acos",
    "acosh",
    "amax",
    "amin",
    "around",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "concat",
    "conj",
    "degrees",
    "permute_dims",
    "pow",
    "radians",
    "row_stack",
]

acos, acosh, asin, asinh, atan, atan2, atanh = arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh
bitwise_invert, bitwise_left_shift, bitwise_right_shift = bitwise_not, left_shift, right_shift
amax, amin, around, concat, conj = max, min, round, concatenate, conjugate
degrees, radians, permute_dims, pow, row_stack = rad2deg, deg2rad, transpose, power, vstack
