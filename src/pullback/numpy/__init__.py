"""NumPy's vocabulary: on traced values it makes operations, on concrete arrays it computes at once by NumPy itself."""

import pullback.numpy.elementwise
