"""Transformations: derivatives and batches of graphs, and the functions by which users ask for them."""

from pullback.transforms.api import grad, hessian, jacobian, jvp, stop_gradient, value_and_grad, vjp
from pullback.transforms.linear import hvp, linearize
from pullback.transforms.mapping import vmap
from pullback.transforms.named import axis_index, pmean, psum
from pullback.transforms.taylor import taylor

__all__ = [
    "axis_index",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "linearize",
    "pmean",
    "psum",
    "stop_gradient",
    "taylor",
    "value_and_grad",
    "vjp",
    "vmap",
]
