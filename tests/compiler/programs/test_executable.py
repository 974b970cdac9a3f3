"""Programs as wholes: nothing to compute, results that are inputs, constants, threads, many steps, the code cache."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.key.graph import graph_key
from pullback.compiler.programs.executable import make_executable
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.graph import Graph, Type, Variable, constant


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def variable(*shape: int) -> Variable:
    return Variable(Type(np.dtype(np.float32), shape), "x")


def test_scalars(compiler, traced, processor):
    def function(x, y, n, flag):
        return x + y, np.exp(x) * n, np.where(flag, x, y), n // 2, ~flag, x

    arrays = [np.array(0.5, np.float32), np.array(1.5, np.float32), np.array(7), np.array(True)]
    compiler.assert_same(traced(function, *arrays), arrays, processor=processor, rounding=4)


def test_no_results_and_no_elements(compiler, traced, processor):
    assert compiler.run(Graph((variable(3),), ()), [numbers(3)], processor=processor) == []

    def function(x):
        return x + 1, x.sum(0), x.sum(1), x.sum(), x.prod(0), (x > 0).all(), x.T @ x, x @ x.T, x.T

    compiler.assert_same(traced(function, numbers(0, 3)), [numbers(0, 3)], processor=processor)


def test_results_that_are_inputs_constants_or_equal(compiler, processor):
    x = variable(4, 3)
    large, small = constant(numbers(30, 9)), constant(np.arange(5.0))
    ones = constant(np.ones((12, 12), np.int32))
    outputs = (x, x, x + 1, x + 1, large, large, small, ones, x.T, x.T, constant(2), (x + 1).reshape(-1))
    compiler.assert_same(Graph((x,), outputs), [numbers(4, 3)], processor=processor)


def test_inputs_that_nothing_needs(compiler, processor):
    x, y = variable(4, 3), variable(9)
    compiler.assert_same(Graph((y, x), (x * 2,)), [numbers(9), numbers(4, 3)], processor=processor)


def test_results_are_the_callers_own(compiler):
    """Results of two calls do not share memory, nor with constants or arguments."""
    x = variable(4, 3)
    program = compiler.program(Graph((x,), (x, constant(numbers(30, 9)), x * 2)))
    array = numbers(4, 3)
    first, second = program(array), program(array)
    for one, other in zip(first, second):
        one[...] = 0
        assert other.any()
        assert not np.shares_memory(one, other)
    assert array.any()
    np.testing.assert_array_equal(program(array)[1], numbers(30, 9))


@pytest.mark.parametrize("threads", [2, 3])
def test_the_same_bits_for_any_number_of_threads(threads, compiler, traced):
    def step(w, u, x, y, i):
        hidden = np.tanh(x @ w)
        scores = hidden @ u
        scores = scores - scores.max(1, keepdims=True)
        probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        error = probabilities - y
        back = (error @ u.T) * (1 - hidden * hidden)
        table = np.zeros_like(w)
        return (
            x.T @ back,
            hidden.T @ error,
            (error * error).sum(),
            hidden.sum(0),
            w[i % 200].mean(0),
            table + w[i[0]],
        )

    arrays = [numbers(*shape) for shape in [(200, 96), (96, 10), (300, 200), (300, 10)]]
    arrays.append(np.arange(5000) * 7 % 311)
    program = compiler.program(traced(step, *arrays))
    before = get_num_threads()
    try:
        set_num_threads(1)
        alone = [result.tobytes() for result in program(*arrays)]
        set_num_threads(threads)
        for _ in range(5):
            assert [result.tobytes() for result in program(*arrays)] == alone
    finally:
        set_num_threads(before)


def test_many_steps_are_the_steps_one_by_one(compiler):
    def step(w, speed, x, y):
        error = x @ w - y
        speed = speed * 0.5 + x.T @ error / 8
        return w - speed / 8, speed, (error * error).mean()

    w, speed, xs, ys = numbers(5, 3), numbers(5, 3) * 0, numbers(6, 8, 5), numbers(6, 8, 3)
    compiled = pb.jit(step, donate_argnums=(0, 1))
    state, losses = (w.copy(), speed.copy()), []
    for x, y in zip(xs, ys):
        *state, loss = compiled(*state, x, y)
        losses.append(loss)
    (*carried, history), done = compiled.run_steps((w, speed, xs, ys), 6, (2, 3))
    assert done == 6
    for one, other in zip([*state, np.array(losses)], [*carried, history]):
        np.testing.assert_array_equal(one, other)


def test_large_constants_are_not_part_of_the_code(monkeypatch, tmp_path):
    """Two graphs that differ in a large constant share code, and each computes with its own."""
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "code"))

    def graph(value: np.ndarray) -> Graph:
        x = variable(9, 30)
        return Graph((x,), (x @ constant(value) + constant(np.arange(5), np.float32),))

    first, second = numbers(30, 5), numbers(30, 5) + 1
    assert graph_key(graph(first), {}) == graph_key(graph(second), {})
    x = numbers(9, 30)
    for value, cached in [(first, False), (second, True), (first, True)]:
        program = make_executable(graph(value), {}).program
        assert program.code.cached is cached
        np.testing.assert_allclose(program(x)[0], x @ value + np.arange(5), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(80), np.ones(80)),
        (np.zeros(80), np.arange(80.0)),
        (np.arange(80.0), np.zeros(80)),
        (np.zeros(80), np.array([0.0, -0.0] * 40)),
        (np.arange(5.0), np.arange(5.0) + 1),
        (np.array(0.0), np.array(-0.0)),
        (np.zeros(80), np.zeros((8, 10))),
        (np.zeros(80), np.zeros(80, np.float32)),
    ],
)
def test_constants_that_are_part_of_the_code(one, other, monkeypatch, tmp_path):
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "code"))
    assert graph_key(Graph((), (constant(one),)), {}) != graph_key(Graph((), (constant(other),)), {})
    for value in (one, other, one):
        (result,) = make_executable(Graph((), (constant(value),)), {}).program()
        assert result.tobytes() == value.tobytes()


def test_keys_tell_programs_apart():
    x, y = variable(3), variable(3)
    graphs = [
        Graph((x, y), (x + y,)),
        Graph((x, y), (x - y,)),
        Graph((x, y), (y - x,)),
        Graph((x, y), (x - y, x)),
        Graph((y, x, variable(2)), (x - y,)),
        Graph((x,), (x[:2],)),
        Graph((x,), (x[1:],)),
    ]
    keys = {graph_key(graph, {}) for graph in graphs} | {
        graph_key(graphs[0], {0: 0}),
        graph_key(graphs[0], {0: 1}),
    }
    assert len(keys) == len(graphs) + 2
    assert graph_key(Graph((y, x), (y + x,)), {}) == graph_key(graphs[0], {})


def test_keys_tell_types_and_bits_apart():
    """Weak types, the payloads of NaN, and attributes that are equal but of another type."""

    def key(*outputs, inputs=()):
        return graph_key(Graph(inputs, outputs), {})

    nan, other = (np.array([bits], np.uint64).view(np.float64) for bits in (0x7FF8 << 48, (0x7FF8 << 48) + 1))
    assert np.isnan(nan) & np.isnan(other)
    assert key(constant(nan)) != key(constant(other))
    assert key(constant(np.tile(nan, 80))) != key(constant(np.tile(other, 80)))
    assert key(constant(2.0)) != key(constant(2.0, weak=True))
    strong, weak = (Variable(Type(np.dtype(np.float64), (), flag), "x") for flag in (False, True))
    assert key(strong + 1, inputs=(strong,)) != key(weak + 1, inputs=(weak,))


def test_a_report_is_of_the_program_that_runs(compiler):
    x = variable(40, 30)
    graph = Graph((x,), (np.tanh(x) * 2,))
    for processor in compiler.processors:
        report = make_executable(graph, {}, processor=processor).report([np.zeros((40, 30), np.float32)])
        assert f"<{processor.lanes(4)} x float>" in report.llvm
        assert f"<{2 * processor.lanes(4)} x float>" not in report.llvm


def test_a_report_shows_every_form(compiler):
    x = variable(4, 3)
    report = make_executable(Graph((x,), (np.tanh(x).sum(0),)), {}).report([numbers(4, 3)])
    assert "tanh" in report.graph
    assert "tanh" in report.loops
    assert "define void @region0" in report.llvm
    assert report.assembly.count("region0") > 1
    assert "bytes: an arena" in report.memory.splitlines()[0]
    assert not report.from_cache


def test_a_report_shows_every_stage_and_the_time_of_each_region(tmp_path, monkeypatch):
    def step(w, x):
        h = np.tanh(x @ w) * 1.0
        return w - 0.1 * (x.T @ h) / h.sum(), h.sum()

    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path))
    w, x = numbers(30, 40), numbers(3000, 30)
    reports = [pb.jit(step, donate_argnums=0).inspect(w, x) for _ in range(2)]
    assert [report.from_cache for report in reports] == [False, True]
    np.testing.assert_array_equal(w, numbers(30, 40))
    for report in reports:
        assert "multiply" in report.graph  # by one, which a pass takes away
        assert report.optimised.count("multiply") == report.graph.count("multiply") - 1
        assert list(report.stages)[-3:] == ["donate", "regions", "memory"]
        assert "tanh(sum[" in report.stages["fuse"]
        assert "tanh(sum[" not in report.stages["lower"]
        regions = [line for line in report.loops.splitlines() if line.startswith("region ")]
        assert len(regions) == len(report.region_seconds) > 1
        assert all(seconds >= 0 for seconds in report.region_seconds)
        assert all(line.endswith(" microseconds") for line in regions)
        assert report.memory.endswith(report.stages["memory"])


def test_what_a_program_refuses_its_report_refuses():
    picked = pb.jit(lambda x, i: x[i] * 2)
    assert len(picked.inspect(numbers(5), 4).region_seconds) == 1
    with pytest.raises(pb.errors.IndexRangeError, match="5"):
        picked.inspect(numbers(5), 5)


def test_what_is_timed_is_not_run_on_indices_that_it_has_overwritten():
    """Places whose range is known are not checked, and their memory is another array's once they have been read."""

    def loss(table, values, x):
        near, far = np.interp(x, table, values), np.interp(x[:7], table, values, left=0.0, right=1.0)
        return np.mean(near**2) + np.trapezoid(values**2, table) + np.sum(far)

    random = np.random.default_rng(0)
    table = np.cumsum(random.uniform(0.1, 1.0, 23))
    arrays = table, random.standard_normal(23), random.uniform(-1.0, 14.0, 101)
    report = pb.jit(pb.value_and_grad(loss, (0, 1, 2))).inspect(*arrays)  # it ended the process
    assert all(seconds >= 0 for seconds in report.region_seconds)


def test_regions_say_whether_they_write_in_place():
    """A step may be left until the first of them."""

    def step(w, x):
        loss, gradient = pb.value_and_grad(lambda w: np.sum(np.sin(x @ w) ** 2))(w)
        return w - 0.1 * gradient, loss

    compiled = pb.jit(step, donate_argnums=0)
    compiled(np.ones((300, 200)), np.ones((500, 300)))
    (special,) = compiled._programs.values()
    writes = [region.writes for region in special.executable.program.regions]
    assert not writes[0] and any(writes)
