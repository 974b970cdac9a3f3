"""The table of ``docs/kinks.md``: every row at once and compiled, in reverse and forward mode, to second order."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn

PAGE = Path(__file__).parent.parent / "docs" / "kinks.md"


def numbers(text: str) -> tuple[Any, ...]:
    """The numbers of a cell, arrays in brackets."""
    return tuple(eval(f"({text},)", {"inf": math.inf, "nan": math.nan}))


def rows() -> list[Any]:
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            function, at, value, slopes, second, *_ = cells
            name = function.strip("`")
            known = (numbers(value), numbers(slopes), numbers(second))
            found.append(pytest.param(name, numbers(at), known, id=f"{name} at {at}"))
    return found


def measured(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A function of a point: the value, the slopes in reverse and in forward mode, and the second order."""
    every = tuple(range(count))

    def total(*point: Any) -> Any:
        return np.sum(function(*point))

    def forward(*point: Any) -> list[Any]:
        slopes = []
        for k, x in enumerate(point):

            def alone(x: Any, k: int = k) -> Any:
                return total(*point[:k], x, *point[k + 1 :])

            units = np.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
            along = [pb.jvp(alone, (x,), (unit,))[1] for unit in units]
            slopes.append(np.stack(along).reshape(x.shape))
        return slopes

    def of_slopes(*point: Any) -> Any:
        return sum(np.sum(slope) for slope in pb.grad(total, argnums=every)(*point))

    def all_of_it(*point: Any) -> Any:
        reverse = pb.grad(total, argnums=every)(*point)
        return total(*point), reverse, forward(*point), pb.grad(of_slopes, argnums=every)(*point)

    return all_of_it


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "at", "known"), rows())
def test_a_row_of_the_table(name, at, known, dtype):
    function = eval(f"lambda {', '.join('xy'[: len(at)])}: {name}", {"np": np, "pb": pb, "nn": nn})
    (value,), slopes, second = known
    point = [np.asarray(x, dtype) for x in at]
    measure = measured(function, len(at))
    for run in (measure, pb.jit(measure)):
        found, reverse, forward, twice = run(*point)
        np.testing.assert_allclose(found, value, rtol=1e-4)
        for kind, wanted, order in ((reverse, slopes, 1), (forward, slopes, 1), (twice, second, 2)):
            for slope, want in zip(kind, wanted, strict=True):
                np.testing.assert_allclose(slope, want, rtol=1e-4, err_msg=f"order {order}")


def test_the_table_is_read():
    assert len(rows()) > 60
