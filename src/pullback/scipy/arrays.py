"""How functions of nodes take concrete arrays: they make a graph of constants, which is computed at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import numpy as np

from pullback.graph import Graph, Node
from pullback.interpreter import evaluate
from pullback.numpy.promotion import any_traced, strong

__all__ = ["on_arrays"]

P = ParamSpec("P")


def on_arrays(function: Callable[P, Any]) -> Callable[P, Any]:
    """``function``, which makes nodes of whatever it is given, as one that gives arrays for arrays.

    >>> from pullback.numpy.promotion import as_array_node
    >>> on_arrays(lambda x: as_array_node(x) * 2)(np.array([1.0, 2.0]))
    array([2., 4.])
    """

    @wraps(function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> Any:
        found = function(*arguments, **keywords)
        if any_traced(*arguments, *keywords.values()):
            return strong(found)
        several = isinstance(found, tuple)
        parts = found if several else (found,)
        nodes = [part for part in parts if isinstance(part, Node)]
        values = iter(evaluate(Graph((), tuple(nodes)), []))
        made = [np.asarray(next(values))[()] if isinstance(part, Node) else part for part in parts]
        if not several:
            return made[0]
        return found._make(made) if hasattr(found, "_make") else tuple(made)

    return called
