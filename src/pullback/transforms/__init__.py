"""Transformations: derivatives and batches of graphs, and the functions by which users ask for them."""

from pullback.transforms.api import grad, hessian, jacobian, jvp, stop_gradient, value_and_grad, vjp
from pullback.transforms.linear import hvp, linearize
from pullback.transforms.mapping import vmap

__all__ = [
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "linearize",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vmap",
]
