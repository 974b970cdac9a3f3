"""Estimates of time: what is computed once for a row is counted once."""

import numpy as np

from pullback.compiler.schedules.contraction import find_contraction
from pullback.compiler.schedules.cost import kernel_cycles
from pullback.compiler.target import Processor
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, Reduce, Store

F = np.dtype(np.float32)
NARROW, WIDE = (Processor("generic", "", "x86_64", size, size // 2) for size in (32, 64))
ROWS, COLUMNS = 100, 256


def row_kernel(nested):
    """The sum over each row of x minus the row's mean, or of x minus a constant of the row."""
    i, j, k = Axis("i", ROWS), Axis("j", COLUMNS), Axis("k", COLUMNS)
    x, means, y = Buffer("x", F, (ROWS, COLUMNS)), Buffer("means", F, (ROWS,)), Buffer("y", F, (ROWS,))
    inner = Reduce("add", (k,), Load(x, Affine.of(i) * COLUMNS + Affine.of(k)))
    middle = inner if nested else Load(means, Affine.of(i))
    centred = Apply("subtract", (Load(x, Affine.of(i) * COLUMNS + Affine.of(j)), middle), F)
    return Kernel((i,), (Store(y, Affine.of(i), Reduce("add", (j,), centred)),))


def test_a_sum_inside_a_sum_costs_one_more_pass():
    plain, nested = (kernel_cycles(row_kernel(nested), None, NARROW) for nested in (False, True))
    assert plain < nested < 2 * plain


def test_cycles_grow_with_the_row():
    cycles = kernel_cycles(row_kernel(False), None, NARROW)
    assert ROWS * COLUMNS / 8 < cycles < 10 * ROWS * COLUMNS / 8


def product_cycles(rows):
    i, j, k = Axis("i", rows), Axis("j", COLUMNS), Axis("k", 512)
    x, w, y = Buffer("x", F, (rows, 512)), Buffer("w", F, (512, COLUMNS)), Buffer("y", F, (rows, COLUMNS))
    left = Load(x, Affine.of(i) * 512 + Affine.of(k))
    right = Load(w, Affine.of(k) * COLUMNS + Affine.of(j))
    total = Reduce("add", (k,), Apply("multiply", (left, right), F))
    kernel = Kernel((i, j), (Store(y, Affine.of(i) * COLUMNS + Affine.of(j), total),))
    return kernel_cycles(kernel, find_contraction(kernel), WIDE)


def test_a_few_rows_cost_the_reading_of_the_matrix():
    assert product_cycles(2) == product_cycles(4)
    assert 1.9 < product_cycles(200) / product_cycles(100) < 2.1
