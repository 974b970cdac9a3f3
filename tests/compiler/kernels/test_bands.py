"""Rows of sums over windows that are written out together."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pullback import nn
from pullback.compiler.build import build
from pullback.compiler.kernels.bands import in_bands
from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.target import Processor
from pullback.graph import OPERATORS
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, Reduce, Store
from pullback.numpy.promotion import as_array_node
from pullback.operators.logic import rarely, unlikely

FLOAT = np.dtype(np.float32)
WIDE = Processor("generic", "", "x86_64", vector_bytes=64, vector_registers=32)


def depthwise(x, w):
    return nn.conv(x, w, groups=x.shape[1])


@pytest.mark.parametrize(
    ("rows", "columns", "stride", "bands"),
    [
        (9, 17, 1, [(3, 3)]),
        (11, 17, 1, [(2, 4), (1, 3)]),
        (5, 17, 1, [(1, 3), (1, 2)]),
        (9, 8, 1, [(1, 5), (1, 4)]),
        (17, 8, 1, [(2, 6), (1, 5)]),
        (9, 17, 2, [(3, 3)]),
    ],
    ids=["equal bands", "with a rest", "two bands", "single vectors", "more of them", "steps of two"],
)
def test_rows_that_see_the_same_are_written_out_together(stages, rows, columns, stride, bands):
    """About equally many at a time: four at most, or eight where a vector is a row."""
    window = 3 if stride == 1 else 5
    shape = (4, 3, (rows - 1) * stride + window, (columns - 1) * stride + 4)
    found = stages(lambda x, w: nn.conv(x, w, stride, groups=3), shape, (3, 1, window, 4))["bands"]
    made = found.split("for ")[1:]
    assert [part.count("result0[") for part in made] == [together for _, together in bands]
    assert "sum[" not in found
    for part, (turns, _) in zip(made, bands):
        along = f"l<{turns}, " if turns > 1 else ""
        assert part.startswith(f"i<4, j<3, {along}m<{columns}:")


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, w: nn.conv(x, w, 2, groups=3), ((4, 3, 21, 41), (3, 1, 3, 4))),
        (depthwise, ((64, 3, 20, 30), (3, 1, 12, 12))),
        (depthwise, ((1, 3, 5, 9), (3, 1, 3, 3))),
        (lambda x, w: (x * w).sum((2, 3)), ((40, 40, 3, 3), (3, 3))),
    ],
    ids=["steps of two", "too many terms", "too few results", "no windows"],
)
def test_what_gains_nothing_stays(stages, function, shapes):
    found = stages(function, *shapes)
    assert found["bands"] == found["pack reread"]


def test_what_several_rows_read_is_used_before_more_is_read(traced):
    """Registers hold it so: of 14 rows of seven vectors those that are read and still needed are few at any time."""
    arrays = (np.zeros(shape, np.float32) for shape in ((2, 3, 22, 22), (3, 1, 7, 7)))
    text = build(traced(depthwise, *arrays), {}, WIDE).emitted.text
    block = max(re.split(r"\n\w[\w.]*:", text), key=lambda part: part.count("fma")).splitlines()
    used = {name: number for number, line in enumerate(block) for name in re.findall(r"%[\w.]+", line)}
    reads = [
        (number, used[line.split()[0]]) for number, line in enumerate(block) if "= load <16 x float>" in line
    ]
    assert len(reads) == 98 and sum("fma" in line for line in block) == 8 * 49
    assert max(sum(first <= at < last for first, last in reads) for at, _ in reads) <= 4


@pytest.mark.parametrize("window", [(3, 3), (1, 5), (4, 1), (2, 6), (7, 7)])
@pytest.mark.parametrize("rows", [8, 9, 11])
def test_sums_over_windows_are_right(window, rows, compiler, traced, processor):
    """Whole numbers have exact sums, in whatever order; with an epilogue that has rows itself."""
    random = np.random.default_rng(rows)
    x, w = (
        random.integers(-2, 3, shape).astype(np.float32)
        for shape in ((2, 5, rows + window[0] - 1, 22), (5, 1, *window))
    )
    bias = random.integers(-2, 3, (rows, 1)).astype(np.float32)

    def function(x, w, bias):
        return np.maximum(depthwise(x, w) + bias, 0), nn.avg_pool(x, window, 1) * (window[0] * window[1])

    compiler.assert_same(traced(function, x, w, bias), [x, w, bias], processor=processor)


def test_what_a_rare_case_sums_stays_a_sum(stages):
    """It is many terms, and hardly ever made."""

    def function(x, w, y):
        x, w, y = map(as_array_node, (x, w, y))
        whole = np.sum(OPERATORS["windows"](y, axes=(3,), sizes=(90,), strides=(1,), dilations=(1,)), 4)
        return rarely(unlikely(np.isnan(y[0, 0, 0, 0])), whole, depthwise(x, w))

    banded = stages(function, (4, 3, 11, 20), (3, 1, 3, 4), (4, 3, 9, 106))["bands"].split("for ")[1]
    assert banded.count("sum[r4<90](") == 3 and "sum[r0<3" not in banded


def test_sums_that_lanes_have_no_part_in_stay():
    """A window of what is the same for a whole row is summed once for the row."""
    i, k, j, r = Axis("i", 4), Axis("k", 9), Axis("j", 40), Axis("r", 3)
    w, y = Buffer("w", FLOAT, (4, 11)), Buffer("y", FLOAT, (4, 9, 40))
    window = Load(w, Affine.of(i) * 11 + Affine.of(k) + Affine.of(r))
    place = Affine.of(i) * 360 + Affine.of(k) * 40 + Affine.of(j)
    total = Apply("multiply", (Reduce("add", (r,), window, FLOAT), Load(y, place)), FLOAT)
    kernel = Kernel((i, k, j), (Store(y, place, total),))
    assert in_bands(kernel, Schedules(WIDE)) == [kernel]
