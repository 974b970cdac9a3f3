"""Transformations: derivatives and batches of graphs, and the functions by which users ask for them."""

from pullback.transforms.api import grad, jvp, stop_gradient, value_and_grad, vjp
from pullback.transforms.jacobians import hessian, jacobian
from pullback.transforms.linear import hvp, linearize
from pullback.transforms.mapping import vmap
from pullback.transforms.named import all_gather, axis_index, pmax, pmean, pmin, psum
from pullback.transforms.taylor import taylor

__all__ = [
    "all_gather",
    "axis_index",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "linearize",
    "pmax",
    "pmean",
    "pmin",
    "psum",
    "stop_gradient",
    "taylor",
    "value_and_grad",
    "vjp",
    "vmap",
]
