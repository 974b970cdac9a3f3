"""Automatic differentiation of NumPy code, compiled whole: one machine-code program per training step."""

import pullback.numpy
