"""Automatic differentiation of NumPy code, compiled whole: one machine-code program per training step.

>>> import numpy as np
>>> import pullback as pb
>>> round(float(pb.grad(lambda x: np.sin(np.cos(x)))(1.0)), 6)
-0.721606
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pullback import sources as _sources  # noqa: F401  (first: it notes when)

# isort: split
from pullback.undisturbed import completed

completed(lambda: import_module("numpy"))  # interrupted half-way, it could not be imported a second time
try:
    from pullback import errors, numpy
    from pullback.control import (
        associative_scan,
        checkpoint,
        cond,
        custom_pullback,
        custom_pushforward,
        fori_loop,
        map,
        pure_callback,
        scan,
        switch,
        while_loop,
    )
    from pullback.graph import Type
    from pullback.numpy.activations import (
        celu,
        elu,
        gelu,
        glu,
        hard_sigmoid,
        hard_swish,
        hard_tanh,
        leaky_relu,
        log_sigmoid,
        log_softmax,
        mish,
        one_hot,
        relu,
        relu6,
        selu,
        sigmoid,
        silu,
        softmax,
        softplus,
        softsign,
    )
    from pullback.numpy.composite import erf
    from pullback.numpy.elementwise import where
    from pullback.numpy.ordering import top_k
    from pullback.numpy.reductions import logsumexp
    from pullback.numpy.updates import at
    from pullback.tracing import (
        Static,
        aligned,
        buffer,
        eval_shape,
        flatten,
        leaf_paths,
        map_tree,
        register_tree,
        static,
        trace,
    )
    from pullback.transforms import (
        all_gather,
        axis_index,
        grad,
        hessian,
        hvp,
        jacobian,
        jvp,
        linearize,
        pmax,
        pmean,
        pmin,
        psum,
        stop_gradient,
        taylor,
        value_and_grad,
        vjp,
        vmap,
    )
except BaseException:  # what is half there must not stand in the way of the next attempt
    for _name in [name for name in sys.modules if name.startswith("pullback.")]:
        del sys.modules[_name]
    raise

__version__ = "0.1.0"

__all__ = [
    "Static",
    "Type",
    "aligned",
    "all_gather",
    "associative_scan",
    "at",
    "axis_index",
    "buffer",
    "celu",
    "checkpoint",
    "cond",
    "custom_pullback",
    "custom_pushforward",
    "elu",
    "erf",
    "errors",
    "eval_shape",
    "flatten",
    "fori_loop",
    "gelu",
    "glu",
    "grad",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "leaf_paths",
    "leaky_relu",
    "linearize",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "map",
    "map_tree",
    "mish",
    "numpy",
    "one_hot",
    "pmax",
    "pmean",
    "pmin",
    "psum",
    "pure_callback",
    "register_tree",
    "relu",
    "relu6",
    "scan",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
    "static",
    "stop_gradient",
    "switch",
    "taylor",
    "top_k",
    "trace",
    "value_and_grad",
    "vjp",
    "vmap",
    "where",
    "while_loop",
]

_MODULES = (
    "compiler",
    "data",
    "debug",
    "io",
    "metrics",
    "nn",
    "optim",
    "random",
    "scipy",
    "sparse",
    "testing",
    "train",
)
_NAMES = {
    "Trainer": "train",
    "disable_jit": "compiler.jit.disabled",
    "get_num_threads": "compiler.runtime.threads",
    "jit": "compiler.jit",
    "load": "io",
    "save": "io",
    "set_num_threads": "compiler.runtime.threads",
    "sparse_hessian": "sparse",
    "sparse_jacobian": "sparse",
    "vectorize": "compiler.jit.vectorize",
}
"""Packages, and names with the package of each, that are loaded when first used: importing stays quick."""


if TYPE_CHECKING:  # what type checkers read in place of the function below, which would let any name pass
    from pullback import compiler as compiler
    from pullback import data as data
    from pullback import debug as debug
    from pullback import io as io
    from pullback import metrics as metrics
    from pullback import nn as nn
    from pullback import optim as optim
    from pullback import random as random
    from pullback import scipy as scipy
    from pullback import sparse as sparse
    from pullback import testing as testing
    from pullback import train as train
    from pullback.compiler.jit import jit as jit
    from pullback.compiler.jit.disabled import disable_jit as disable_jit
    from pullback.compiler.jit.vectorize import vectorize as vectorize
    from pullback.compiler.runtime.threads import get_num_threads as get_num_threads
    from pullback.compiler.runtime.threads import set_num_threads as set_num_threads
    from pullback.io import load as load
    from pullback.io import save as save
    from pullback.sparse import sparse_hessian as sparse_hessian
    from pullback.sparse import sparse_jacobian as sparse_jacobian
    from pullback.train import Trainer as Trainer
else:

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"pullback.{name}")
        if name in _NAMES:
            return getattr(import_module(f"pullback.{_NAMES[name]}"), name)
        raise AttributeError(f"module 'pullback' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_NAMES})
