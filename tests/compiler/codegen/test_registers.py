"""Loops over a few numbers keep them in registers, and mean what they mean."""

import re

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.build import plan
from pullback.compiler.codegen.registers import held_bases, is_small
from pullback.compiler.regions.steps import buffers_of, every_region
from pullback.compiler.target import Processor
from pullback.interpreter import evaluate
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, Reduce, Store
from pullback.testing.programs.processors import compiled_for, with_small_caches

X = np.array([0.7, -1.3, 2.1])
DOUBLE = np.dtype(np.float64)


def greatest_divisor(x):
    a, b = (np.abs(x[:2]) * 100).astype(np.int64)
    return pb.while_loop(lambda s: s[1] != 0, lambda s: (s[1], s[0] % s[1]), (a, b))[0]


def collatz(x):
    def turn(state):
        n, steps, odd = state
        n = pb.cond(odd, lambda: 3 * n + 1, lambda: n // 2)
        return n, steps + 1, n % 2 == 1

    n = np.abs(x[0] * 10).astype(np.int64)
    return pb.while_loop(lambda s: s[0] != 1, turn, (n, np.int64(0), n % 2 == 1))[:2]


def root(x):
    x = np.abs(x).astype(np.float32)
    return pb.while_loop(lambda r: np.max(np.abs(r * r - x)) > 1e-4, lambda r: (r + x / r) / 2, x)


def three_ways(x):
    def turn(state):
        k, total, least = state
        branches = (lambda v: v + 1, np.sin, lambda v: v * np.float64(0.5))
        return k + 1, pb.switch(k % 4 - 1, branches, total), np.minimum(least, total)

    return pb.while_loop(lambda s: s[0] < 11, turn, (np.int64(0), x, x))[1:]


def swapped(trips, reverse=False, kept=True):
    def function(x):
        xs = np.cos(np.arange(trips) + x[0])

        def step(state, value):
            a, b = state
            return (b * value, a + 1.5 * value), a[0] - value

        init = (x[:2], x[1:])
        (a, b), ys = pb.scan(step, init, xs, reverse=reverse)
        return (a, b, ys) if kept else (a + b,)

    return function


def powers(x):
    matrix = np.outer(x, x) / 4 + np.eye(3)
    return pb.fori_loop(0, 9, lambda i, m: (m @ matrix) / np.sqrt(np.sum(m * m)), matrix)


def within(x):
    def turn(state):
        total, k = state
        inner = pb.fori_loop(0, 3, lambda i, c: c * 0.5 + i, total)
        inner = pb.while_loop(lambda c: np.sum(c) > 4, lambda c: c - 1, inner)
        last, ys = pb.scan(lambda c, v: (c + v, c * v), inner[0], x)
        return inner + last + ys, k + 1

    return pb.while_loop(lambda s: s[1] < 5, turn, (x, np.int64(0)))


def mixed(x):
    """Large arrays beside small ones."""
    large = np.linspace(0, 1, 500) * x[0]

    def turn(state):
        big, small, k = state
        return big * 0.9 + small[1], np.sin(small + big[3]), k + 1

    return pb.while_loop(lambda s: s[2] < 6, turn, (large, x, np.int64(0)))


def looked_up(x):
    table = np.arange(40.0) * x[1]
    return pb.while_loop(
        lambda s: s[0] < 30, lambda s: (s[0] * 2, s[1] + table[s[0]]), (np.int64(1), 0 * x[0])
    )


def one_after_another(x):
    first = pb.while_loop(lambda s: s[0] < 3, lambda s: s * 1.1, np.abs(x))
    second = pb.while_loop(lambda s: s[0] > 1, lambda s: s - first / 7, first)
    return first, second, np.exp(second)


def chosen_by_a_loop(x):
    """Branches of many chunks, whose number a loop has found."""
    large = np.linspace(0, 1, 60_000) * x[0]
    k = pb.while_loop(lambda k: k * k < 3 * np.abs(x[2]), lambda k: k + 1, np.int64(0)) - 2
    branches = (lambda v: np.exp(np.sin(v)), np.cumsum, lambda v: np.tanh(v) @ np.cos(v) + v)
    found = pb.switch(k, branches, large)
    again = pb.while_loop(lambda k: k < 9, lambda k: k * 2 + 1, k)
    return found, pb.switch(again, branches[:2], large), again


LOOPS = {
    "greatest divisor": greatest_divisor,
    "collatz": collatz,
    "root": root,
    "three ways": three_ways,
    **{f"{n} turns": swapped(n) for n in (1, 2, 5, 8)},
    "reverse": swapped(5, reverse=True),
    "last only": swapped(7, kept=False),
    "powers": powers,
    "within": within,
    "mixed": mixed,
    "looked up": looked_up,
    "one after another": one_after_another,
    "chosen by a loop": chosen_by_a_loop,
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_are_as_interpreted(name, compiler, traced):
    graph = traced(LOOPS[name], X)
    wanted = evaluate(graph, [X])
    for processor in compiler.processors:
        for found, value in zip(compiler.run(graph, [X], processor=processor), wanted):
            np.testing.assert_allclose(found, value, rtol=1e-6 if value.dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("name", ["collatz", "three ways", "mixed", "chosen by a loop"])
def test_what_is_held_is_read_in_the_order_in_which_it_is_touched(name, traced):
    """And not in that of addresses, of which there are others in each process: the same program is the same code."""
    planned = plan(traced(LOOPS[name], X), {}, Processor.host())
    steps = planned.steps
    held = list(held_bases(steps, planned.bound, set()))
    touched = [
        planned.bound[buffer].base if buffer in planned.bound else buffer
        for region, _ in every_region(steps)
        for job in region.jobs
        for buffer in buffers_of(job.kernel)
    ]
    assert len(held) > 5
    first = [base for base in dict.fromkeys(touched) if base in held]
    assert [base for base in held if base in first] == first


@pytest.mark.parametrize("name", ["collatz", "root", "three ways", "8 turns", "powers", "within"])
def test_turns_neither_call_nor_store(name):
    """Loops stand in functions of regions, which a turn leaves for nothing but signals."""
    text = pb.jit(LOOPS[name]).inspect(X).llvm
    loops = [
        f
        for f in re.split(r"^define ", text, flags=re.M)
        if re.match(r"void @region\d+", f) and " = phi " in f
    ]
    assert loops
    for function in loops:
        inside = function[: function.rindex(" = phi ")]
        assert "@kernel" not in function
        assert name == "8 turns" or "\n  store" not in inside, (
            "a scan stores its results, other loops nothing"
        )


def test_gradients_go_through_loops_in_registers(compiler, traced):
    def loss(x):
        (a, b, ys) = swapped(6)(x)
        return np.sum(a * b) + np.sum(ys**2) + np.sum(powers(x))

    slope = pb.grad(loss)
    graph = traced(slope, X)
    for processor in compiler.processors:
        (found,) = compiler.run(graph, [X], processor=processor)
        np.testing.assert_allclose(found, slope(X), rtol=1e-10)


def test_what_is_small():
    i, j, k = Axis("i", 4), Axis("j", 4), Axis("k", 4)
    x, y = Buffer("x", DOUBLE, (4, 4)), Buffer("y", DOUBLE, (4, 4))
    place = Affine.of(i) * 4 + Affine.of(j)

    def product(*axes):
        left, right = Load(x, Affine.of(i) * 4 + Affine.of(k)), Load(x, Affine.of(k) * 4 + Affine.of(j))
        return Reduce("add", axes, Apply("multiply", (left, right), DOUBLE))

    assert is_small(Kernel((i, j), (Store(y, place, Load(x, place)),)))
    assert is_small(Kernel((i, j), (Store(y, place, product(k)),)))
    assert not is_small(Kernel((i, j), (Store(y, place, product(k, Axis("l", 4))),))), "1,024 products"
    assert not is_small(Kernel((i, Axis("l", 100)), (Store(y, place * 1, Load(x, Affine.of(i))),)))
    found = Reduce("argmax", (k,), Load(x, Affine.of(i) * 4 + Affine.of(k)), np.dtype(np.int64))
    assert not is_small(Kernel((i,), (Store(y, Affine.of(i), found),)))
    at = Load(x, Affine(), ((Load(Buffer("n", np.dtype(np.int64), (4,)), Affine.of(i)), 1),))
    assert not is_small(Kernel((i,), (Store(y, Affine.of(i), at),))), "at a computed place"


def test_every_chunk_of_what_a_while_loop_repeats_is_run(monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE", "off")

    def doubled(x, times):
        return pb.while_loop(lambda s: s[1] < times, lambda s: (s[0] * 2 - np.sum(s[0]), s[1] + 1), (x, 0))[0]

    batch = pb.vmap(doubled, (0, None))
    for shape in ((3, 6), (40, 100)):
        x = np.random.default_rng(0).normal(size=shape)
        with compiled_for(with_small_caches(Processor.host())):
            np.testing.assert_allclose(pb.jit(batch)(x, 3), batch(x, 3), rtol=1e-9)


@pytest.mark.parametrize("extent", [200, 250])
def test_a_sum_has_more_terms_than_python_has_calls(extent):
    c = np.linspace(-1, 1.5, extent)

    def turn(c, x):
        return pb.cond(np.sum(c) > 0, lambda: c * x - 1, lambda: c - x), None

    def last(c):
        return pb.scan(turn, c, c[:3])[0]

    np.testing.assert_array_equal(pb.jit(last)(c), last(c))
