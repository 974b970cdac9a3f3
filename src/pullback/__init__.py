"""Automatic differentiation of NumPy code, compiled whole: one machine-code program per training step.

>>> import numpy as np
>>> import pullback as pb
>>> round(float(pb.grad(lambda x: np.sin(np.cos(x)))(1.0)), 6)
-0.721606
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

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
        logsumexp,
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
    from pullback.numpy.updates import at
    from pullback.tracing import (
        Static,
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
        axis_index,
        grad,
        hessian,
        hvp,
        jacobian,
        jvp,
        linearize,
        pmean,
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
    "pmean",
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
    "disable_jit": "compiler.disabled",
    "get_num_threads": "compiler.runtime.threads",
    "jit": "compiler.jit",
    "load": "io",
    "save": "io",
    "set_num_threads": "compiler.runtime.threads",
    "sparse_hessian": "sparse",
    "sparse_jacobian": "sparse",
}
"""Packages, and names with the package of each, that are loaded when first used: importing stays quick."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"pullback.{name}")
    if name in _NAMES:
        return getattr(import_module(f"pullback.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'pullback' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_NAMES})
