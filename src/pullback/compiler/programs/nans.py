"""Where NaN comes from: a graph is computed operator by operator, and loops step by step, until one gives NaN."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pullback.control.custom import without_rules
from pullback.control.regions import Run
from pullback.errors import NaNError
from pullback.graph import Constant, Graph, Operation, is_float, regions

__all__ = ["explain_nan", "has_nan"]


class _Step(NamedTuple):
    """A step of a loop."""

    number: int
    text: str


def has_nan(value: Any) -> bool:
    """Whether an array has NaN."""
    return is_float(value.dtype) and bool(np.isnan(value).any())


def explain_nan(graph: Graph, arguments: Sequence[Any]) -> NoReturn:
    """Raise ``NaNError`` for the first operator that gives NaN and is given none.

    >>> from pullback import scan
    >>> from pullback.tracing.trace import trace
    >>> xs = np.array([4.0, 1.0, 9.0])
    >>> down = trace(lambda xs: scan(lambda c, x: (np.sqrt(c - x), None), 5.0, xs)[0], xs)
    >>> try:
    ...     explain_nan(down.graph, [xs])
    ... except NaNError as error:
    ...     print(str(error).splitlines()[0], error.steps)
    sqrt gives NaN for -9.0 (2,)
    """
    given = [np.asarray(a, v.dtype) for a, v in zip(arguments, graph.inputs)]
    for variable, value in zip(graph.inputs, given):
        if has_nan(value):
            place = tuple(int(i) for i in np.argwhere(np.isnan(value))[0])
            at = f" at {place}" if place else ""
            raise NaNError(f"the argument {variable.name or value.shape} has NaN{at}; look at the data")
    with np.errstate(all="ignore"):
        _watched(without_rules(graph), given, ())
    raise NaNError(
        "the compiled program gives NaN where its operators, one by one, do not: an overflow that rounding decides; "
        "scale the values down"
    )


def _watched(graph: Graph, arguments: Sequence[np.ndarray], around: tuple[_Step, ...]) -> list[np.ndarray]:
    values: dict[int, Any] = {id(v): np.asarray(a, v.dtype) for v, a in zip(graph.inputs, arguments)}
    for node in graph.nodes():
        if isinstance(node, Constant):
            values[id(node)] = node.value
        elif isinstance(node, Operation):
            inputs = [values[id(child)] for child in node.inputs]
            if regions(node):
                run = _in_steps(node, around)
                values[id(node)] = node.operator.reference(*inputs, **node.attributes, run=run)
                continue
            value = node.operator.reference(*inputs, **node.attributes)
            values[id(node)] = value = np.asarray(value, node.dtype)
            if has_nan(value) and not any(isinstance(x, np.ndarray) and has_nan(x) for x in inputs):
                _report(node, inputs, value, around)
    return [values[id(node)] for node in graph.outputs]


def _in_steps(node: Operation, around: tuple[_Step, ...]) -> Run:
    """What runs the regions of ``node``, and knows in which step."""
    steps = count()

    def run(region: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        inside = around
        if node.operator.name == "scan":
            trips, number = node.attributes["trips"], next(steps)
            number = trips - 1 - number if node.attributes["reverse"] else number
            inside = (*around, _Step(number, f"in step {number} of {trips}"))
        elif node.operator.name == "while":
            # The condition of a turn is asked before its body is run.
            number = next(steps) // 2
            inside = (*around, _Step(number, f"in turn {number} of a while loop"))
        return _watched(region, arrays, inside)

    return run


def _described(x: np.ndarray) -> str:
    """An input by its type and range."""
    name = f"{x.dtype}[{', '.join(map(str, x.shape))}]"
    if x.dtype.kind not in "fiu" or not x.size:
        return name
    low, high = x.min(), x.max()
    return f"{name} of {low}" if low == high else f"{name} from {low} to {high}"


def _report(
    node: Operation, inputs: Sequence[np.ndarray], value: np.ndarray, around: tuple[_Step, ...]
) -> NoReturn:
    place = tuple(int(i) for i in np.argwhere(np.isnan(value))[0])
    if node.operator.elementwise:
        operands = " for " + ", ".join(str(x[place]) for x in inputs)
    else:
        operands = " of " + ", ".join(map(_described, inputs))
    at = f" at {place}" if place else ""
    lines = [f"{node.operator.name} gives NaN{at}{operands}"]
    if node.source is not None:
        lines.append(f"at {node.source}")
    lines += [step.text for step in reversed(around)]
    raise NaNError("\n  ".join(lines), source=node.source, steps=tuple(step.number for step in around))
