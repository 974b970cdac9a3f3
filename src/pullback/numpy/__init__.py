"""NumPy's vocabulary: on traced values it makes operations, on concrete arrays it computes by NumPy itself.

>>> import pullback.numpy as pnp
>>> float(pnp.sum(pnp.square([1.0, 2.0])))
5.0

Each file's ``__all__`` is part of this one.
"""

import numpy
from numpy import (
    bool_,
    complex64,
    complex128,
    e,
    euler_gamma,
    float16,
    float32,
    float64,
    inf,
    int8,
    int16,
    int32,
    int64,
    nan,
    ndim,
    newaxis,
    pi,
    shape,
    size,
    uint8,
    uint16,
    uint32,
    uint64,
)

from pullback.graph.protocol import vocabulary
from pullback.numpy import (
    activations,
    aliases,
    assembling,
    complex_numbers,
    composite,
    creation,
    cumulative,
    elementwise,
    fft,
    floats,
    functional,
    indexing,
    linalg,
    missing,
    ordering,
    padding,
    products,
    quantiles,
    ranges,
    reductions,
    shapes,
    statistics,
)
from pullback.numpy import detached as _detached  # noqa: F401  (the operators of detached values)
from pullback.numpy.activations import *
from pullback.numpy.aliases import *
from pullback.numpy.assembling import *
from pullback.numpy.complex_numbers import *
from pullback.numpy.composite import *
from pullback.numpy.creation import *
from pullback.numpy.cumulative import *
from pullback.numpy.einsum import einsum
from pullback.numpy.elementwise import *
from pullback.numpy.floats import *
from pullback.numpy.functional import *
from pullback.numpy.indexing import *
from pullback.numpy.methods import attribute
from pullback.numpy.missing import *
from pullback.numpy.ordering import *
from pullback.numpy.padding import *
from pullback.numpy.products import *
from pullback.numpy.quantiles import *
from pullback.numpy.ranges import *
from pullback.numpy.reductions import *
from pullback.numpy.shapes import *
from pullback.numpy.statistics import *
from pullback.numpy.updates import at

fromfunction, indices = numpy.fromfunction, numpy.indices

__all__ = [
    "at",
    "attribute",
    "bool_",
    "complex64",
    "complex128",
    "e",
    "einsum",
    "euler_gamma",
    "fft",
    "float16",
    "float32",
    "float64",
    "fromfunction",
    "indices",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "linalg",
    "nan",
    "ndim",
    "newaxis",
    "pi",
    "shape",
    "size",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
__all__ += activations.__all__
__all__ += aliases.__all__
__all__ += assembling.__all__
__all__ += complex_numbers.__all__
__all__ += composite.__all__
__all__ += creation.__all__
__all__ += cumulative.__all__
__all__ += elementwise.__all__
__all__ += floats.__all__
__all__ += functional.__all__
__all__ += indexing.__all__
__all__ += missing.__all__
__all__ += ordering.__all__
__all__ += padding.__all__
__all__ += products.__all__
__all__ += quantiles.__all__
__all__ += ranges.__all__
__all__ += reductions.__all__
__all__ += shapes.__all__
__all__ += statistics.__all__

vocabulary["attribute"] = attribute
