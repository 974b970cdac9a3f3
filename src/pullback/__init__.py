"""Automatic differentiation of NumPy code, compiled whole: one machine-code program per training step."""

from pullback import numpy

__all__ = ["numpy"]
