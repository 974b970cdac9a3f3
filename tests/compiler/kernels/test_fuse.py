"""Fusion: what is read of a producer takes the place of the read, and nothing else changes."""

from __future__ import annotations

import numpy as np

from pullback.compiler.kernels.fuse import fuse
from pullback.compiler.target import Processor
from pullback.graph import OPERATORS
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, Store
from pullback.loops.dependences import dependences

FLOAT = np.dtype(np.float32)
TARGET = Processor("generic", "+avx2,+fma", "x86_64", vector_bytes=32, vector_registers=16)


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_a_softmax_is_one_kernel_over_its_rows(stages):
    fused = stages(softmax, (4, 5))["fuse"]
    assert (
        fused
        == """\
for i<4:
    s0 = max[r1<5](argument0[r1 + 5*i])
    s1 = sum[r1_1<5](exp(argument0[r1_1 + 5*i] - s0))
    for j<5:
        result0[5*i + j] = exp(argument0[5*i + j] - s0) / s1"""
    )


def test_a_layer_is_one_product_with_an_epilogue(stages):
    fused = stages(lambda x, w, b: np.tanh(x @ w + b), (4, 3), (3, 5), (5,))["fuse"]
    assert (
        fused
        == """\
for i<4, j<5:
    result0[5*i + j] = tanh(sum[r0<3](argument0[r0 + 3*i] * argument1[5*r0 + j]) + argument2[j])"""
    )


def test_what_would_leave_lanes_idle_is_computed_by_itself(stages):
    """Three columns of eight lanes; of few rows, of cheap functions and of more columns it is an epilogue."""

    def layer(x, w):
        return np.tanh(x @ w)

    assert (
        stages(layer, (400, 5), (5, 3))["fuse"]
        == """\
for i<400, j<3:
    contract2[3*i + j] = sum[r0<5](argument0[5*i + r0] * argument1[j + 3*r0])
for i<400, j<3:
    result0[3*i + j] = tanh(contract2[3*i + j])"""
    )
    assert stages(layer, (400, 5), (5, 5))["fuse"].count("for") == 1
    assert stages(layer, (4, 5), (5, 3))["fuse"].count("for") == 1
    assert stages(lambda x, w: np.maximum(x @ w, 0), (400, 5), (5, 3))["fuse"].count("for") == 1


def test_products_that_are_added_are_one(stages):
    fused = stages(lambda x, w, h, u: x @ w + h @ u, (4, 3), (3, 5), (4, 2), (2, 5))["fuse"]
    assert (
        fused
        == """\
for i<4, j<5:
    s0 = sum[r0_1<2](argument2[r0_1 + 2*i] * argument3[5*r0_1 + j])
    result0[5*i + j] = sum[r0<3](argument0[r0 + 3*i] * argument1[5*r0 + j]) + s0"""
    )


def test_products_that_are_added_are_one_for_several_users(stages):
    def function(x, w, h, u):
        y = x @ w + h @ u
        return y * 2, y * y

    fused = stages(function, (4, 3), (3, 5), (4, 2), (2, 5))["fuse"]
    assert fused.count("sum[") == 2
    assert fused.count("for i<4, j<5:") == 1


def test_what_is_found_at_computed_places_is_read_back(stages):
    def function(x, k):
        y = x[k.astype(np.int64)]
        return y, y.sum(1), (y * y).sum(1)

    fused = stages(function, (100,), (4, 500))["fuse"]
    assert fused.count("argument0[") == 1


def test_what_costs_much_is_read_back_rather_than_made_again(stages):
    """An exponential function alone is made again for each of two loops, with a division it is not."""

    def function(x):
        y = np.exp(x - x.max(1, keepdims=True)) / (1 + x * x)
        return y, y.sum(1)

    def wider(x, w):
        y = np.exp(x * w) / (1 + x * x)
        z = y / y.sum(1, keepdims=True)
        return (z * z).sum(1), z.sum(0)

    assert stages(function, (4, 500))["fuse"].count("exp(") == 1
    assert stages(wider, (4, 500), (4, 500))["fuse"].count("exp(") == 1
    assert stages(softmax, (4, 500))["fuse"].count("exp(") == 2


def test_short_rows_are_made_again_as_they_are_written_out(stages):
    def function(x, w):
        s = x.sum(1, keepdims=True)
        y = np.exp(w * s) / (1 + w * w)
        return y, s, y.sum(1)

    assert stages(function, (64, 5), (64, 12))["fuse"].count("exp(") == 2
    assert stages(function, (64, 5), (64, 40))["fuse"].count("exp(") == 1


def test_a_result_that_is_wanted_is_still_stored(stages):
    fused = stages(lambda x: (np.exp(x).sum(1), np.exp(x)), (4, 5))["fuse"]
    assert fused.startswith("for i<4:")
    assert fused.count("for i<4") == 1
    assert "result0[i] =" in fused
    assert "result1[j + 5*i] =" in fused


def test_a_long_maximum_of_each_element_is_computed_once(stages):
    """A short one is computed again where the row needs it; a long one is read back."""

    def pooled(x, w):
        largest = x.max(1)
        return (largest * w).sum(1), np.where(largest > 0, 1, 0) * largest.sum(1, keepdims=True)

    assert stages(pooled, (6, 4, 7), (7,))["fuse"].count("max[") > 1
    assert stages(pooled, (6, 100, 7), (7,))["fuse"].count("max[") == 1


def test_sums_over_columns_are_not_fused_with_their_readers(stages):
    fused = stages(lambda x: x - x.sum(0), (4, 5))["fuse"]
    assert (
        fused
        == """\
for i<5:
    sum1[i] = sum[r0<4](argument0[i + 5*r0])
for i<4, j<5:
    result0[5*i + j] = argument0[5*i + j] - sum1[j]"""
    )


def test_a_long_row_is_not_kept_together(stages):
    assert stages(lambda x: x - x.sum(1, keepdims=True), (2, 16384))["fuse"].count("for i<2") == 1
    assert stages(lambda x: x - x.sum(1, keepdims=True), (2, 16385))["fuse"].count("for i<2") == 2


def test_products_are_not_computed_again_by_their_readers(stages):
    fused = stages(lambda x, w: (x @ w).sum(1), (4, 3), (3, 5))["fuse"]
    assert fused.count("for ") == 2


# -- kernels by hand

ONE, TWO = Axis("i", 4), Axis("j", 4)
X, A, B, C, D = (Buffer(name, FLOAT, (4,)) for name in "xabcd")


def at(buffer: Buffer, axis: Axis, step: int = 1, start: int = 0) -> Load:
    return Load(buffer, Affine.of(axis) * step + start)


def kernel(target: Buffer, axis: Axis, value, accumulate: bool = False) -> Kernel:
    return Kernel((axis,), (Store(target, Affine.of(axis), value, accumulate=accumulate),))


def plus(*values) -> Apply:
    return Apply("add", values, FLOAT)


def test_reads_of_other_places_keep_their_producer():
    first = kernel(A, ONE, plus(at(X, ONE), at(X, ONE)))
    backwards = kernel(B, TWO, plus(at(A, TWO), at(A, TWO, -1, 3)))
    assert fuse([first, backwards], [B], TARGET) == [first, backwards]


def test_parts_of_one_array_are_one_kernel_only_if_their_turns_are_known_to_be_apart():
    """Otherwise neither axis could be lanes, as each of them is in a kernel of its own."""
    x, y = Buffer("x", FLOAT, (12,)), Buffer("y", FLOAT, (54,))

    def part(start, step):
        j, k = Axis("j", 6), Axis("k", 2)
        place = Affine.of(j) * 9 + Affine.of(k) * step + start
        return Kernel((j, k), (Store(y, place, Load(x, Affine.of(j) * 2 + Affine.of(k))),))

    assert len(fuse([part(0, 2), part(1, 2)], [y], TARGET)) == 1
    for parts in ([part(1, 6), part(3, 2)], [part(3, 2), part(1, 6)]):
        assert not any(map(dependences, fuse(parts, [y], TARGET)))


def test_a_way_around_keeps_two_kernels_apart():
    """``c`` needs ``a`` in place and, through ``b``, backwards: it cannot be computed with ``a``."""
    first = kernel(A, ONE, plus(at(X, ONE), at(X, ONE)))
    second = kernel(B, TWO, at(A, TWO, -1, 3))
    axis = Axis("k", 4)
    third = kernel(C, axis, plus(at(A, axis), at(B, axis)))
    fused = fuse([first, second, third], [C], TARGET)
    assert fused[0] is first
    assert [kernel.writes() for kernel in fused] == [(A,), (C,)]


def test_buffers_that_are_added_to_are_left_alone():
    base, more = kernel(A, ONE, at(X, ONE)), kernel(A, TWO, at(X, TWO), accumulate="add")
    axis = Axis("k", 4)
    reader = kernel(B, axis, at(A, axis))
    assert fuse([base, more, reader], [B], TARGET) == [base, more, reader]


def test_who_adds_to_a_buffer_comes_before_who_adds_later():
    """``b`` takes in ``a`` and stands behind what is added to ``d``; so do then both that add to ``c``, in order."""
    axis = Axis("k", 4)
    kernels = [
        kernel(A, ONE, plus(at(X, ONE), at(X, ONE))),
        kernel(D, ONE, at(X, ONE)),
        kernel(D, TWO, at(X, TWO), accumulate="add"),
        kernel(C, ONE, at(X, ONE)),
        first := kernel(C, TWO, at(A, TWO), accumulate="add"),
        second := kernel(C, axis, at(X, axis), accumulate="set"),
        kernel(B, ONE, plus(at(A, ONE), at(D, ONE))),
    ]
    fused = fuse(kernels, [B, C], TARGET)
    (merged,) = (each for each in fused if B in each.writes())
    assert set(merged.writes()) == {A, B}
    assert fused.index(merged) < fused.index(first) < fused.index(second)


def test_what_nobody_reads_is_not_stored():
    first, axis = kernel(A, ONE, plus(at(X, ONE), at(X, ONE))), Axis("k", 4)
    (fused,) = fuse([first, kernel(B, axis, at(A, axis))], [B], TARGET)
    assert fused.writes() == (B,)
    (fused,) = fuse([first, kernel(B, axis, at(A, axis))], [A, B], TARGET)
    assert set(fused.writes()) == {A, B}


def test_what_has_taken_its_producer_stands_beside_those_that_need_no_more():
    """``b`` needs ``a``, which becomes part of it: then both ``b`` and ``c`` need ``x`` alone."""
    first, second = kernel(A, ONE, plus(at(X, ONE), at(X, ONE))), kernel(B, TWO, plus(at(A, TWO), at(X, TWO)))
    axis = Axis("k", 4)
    beside = kernel(C, axis, plus(at(X, axis), at(X, axis), at(X, axis)))
    (fused,) = fuse([first, second, beside], [B, C], TARGET)
    assert set(fused.writes()) == {B, C}


def test_a_pullback_and_an_update_are_one_sweep_of_the_weights(stages):
    fused = stages(lambda w, x, z: (w - x[:, None] * z, w @ z), (300, 84), (300,), (84,))["fuse"]
    assert (
        fused
        == """\
for i<300:
    result1[i] = sum[r0<84](argument0[84*i + r0] * argument2[r0])
    for j<84:
        result0[j + 84*i] = argument0[j + 84*i] - argument1[i] * argument2[j]"""
    )


def test_every_second_element_and_the_others_are_one_kernel(stages):
    """Their lines come into the cache once, though they read nothing in common; halves have lines of their own."""

    def mixed(x, y):
        return OPERATORS["interleave"](np.exp(x), np.tanh(y), strides=(1, 2), shape=(4, 80))

    def joined(x, y):
        return np.concatenate([np.exp(x), np.tanh(y)], axis=1)

    assert len(stages(mixed, (4, 40), (4, 40))["fuse"].split("for i")) == 2
    assert len(stages(joined, (4, 40), (4, 40))["fuse"].split("for i")) == 3


def test_kernels_over_other_rows_of_an_array_are_swept_apart(stages):
    def small(w, x, z):
        return w - x[:, None] * z, w @ z

    fused = stages(lambda w, x, z: (w - x[:, None] * z, w[::-1] @ z), (300, 84), (300,), (84,))["fuse"]
    assert fused.count("for i<300") == 2
    assert stages(small, (3000, 4), (3000,), (4,))["fuse"].count("for i<3000") == 2
    assert stages(small, (30, 84), (30,), (84,))["fuse"].count("for i<30") == 2


def test_rows_of_many_short_rows_stay_by_themselves(stages):
    """They are written out later, with lanes along the many; inside a row of another kernel they could not be."""

    def weighed(x, s):
        shares = np.exp(s) / np.sum(np.exp(s), axis=1, keepdims=True)
        return x * shares[:, :, None]

    assert "for i<5, j<1000, k<2:" in stages(weighed, (5, 1000, 2), (5, 1000))["fuse"]
    assert "for i<5, j<10, k<2:" not in stages(weighed, (5, 10, 2), (5, 10))["fuse"]
    assert "for i<5, j<100, k<32:" not in stages(weighed, (5, 100, 32), (5, 100))["fuse"]
