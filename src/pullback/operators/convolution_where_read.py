"""A convolution that is computed where it is read: for what is computed in rare cases alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pullback.errors import ShapeError
from pullback.graph import Case, Node, Operation, Sample, Type
from pullback.operators.convolution import convolve, windows_met
from pullback.operators.elementwise import where, zeros_like

__all__ = ["convolve_where_read"]


def _type(x: Type, w: Type, *inside: Type, **how: Any) -> Type:
    if any(each.dtype.kind != "b" or each.shape != w.shape for each in inside):
        raise ShapeError(
            f"convolve_where_read: {inside[0]} to say which elements of {w} are met; give a bool for each"
        )
    found: Type = convolve.type_rule(x, w, **how)
    return found


def _reference(x: np.ndarray, w: np.ndarray, *inside: np.ndarray, **how: Any) -> np.ndarray:
    """All products in an array, of which those that are not made are zero."""
    if not inside:
        product: np.ndarray = convolve.reference(x, w, **how)
        return product
    view, labels, window, out = windows_met(x, w, **how)
    every = out + "".join(sorted({*labels, *window} - {*out}))
    products, met = (
        np.einsum(f"{labels},{window}->{every}", of_x, of_w)
        for of_x, of_w in ((view, w), (np.ones(view.shape, bool), *inside))
    )
    zero = np.zeros((), products.dtype)
    total: np.ndarray = np.where(met, products, zero).sum(tuple(range(len(out), len(every))), x.dtype)
    return total


def _pullback(node: Operation, g: Node) -> list[Node | None]:
    """The cotangents of a convolution, whose window is zero where it is not met."""
    x, w, *inside = node.inputs
    zero = zeros_like(w)
    for each in inside:
        w = where(each, w, zero)
    assert convolve.pullback is not None
    x_bar, w_bar = convolve.pullback(convolve(x, w, **node.attributes), g)
    for each in inside:
        w_bar = None if w_bar is None else where(each, w_bar, zero)
    return [x_bar, w_bar, *(None for _ in inside)]


def _with_bools(case: Case) -> Case:
    """The case with an element of the window left out here and there."""
    return replace(case, inputs=(*case.inputs, Sample(case.inputs[1].shape, kind="bool")))


convolve_where_read = replace(
    convolve,
    name="convolve_where_read",
    type_rule=_type,
    reference=_reference,
    pullback=_pullback,
    cases=(*convolve.cases, *map(_with_bools, convolve.cases)),
    cost=0.0,
    rereads=False,
)
"""``convolve``, each element computed where it is read, and what it is made of likewise: for rare cases.

A third input says of each element of ``w`` whether it is met; with one that is not no product is made, which would be
NaN where ``x`` is infinite. Without it all are.
Raises what ``convolve`` raises, and ``ShapeError`` where there is not a bool for each element.
"""
