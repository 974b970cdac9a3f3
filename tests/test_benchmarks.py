"""The benchmark suite counts, orders and compares rightly; how fast anything is, no test asks."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.compiler.build import build
from pullback.compiler.passes import PASSES
from pullback.compiler.passes.rewriting import GraphPass
from pullback.compiler.runtime.engine import assembly
from pullback.compiler.target import Processor

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("networks")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for name, (high, width, dtype, classes) in {
        "mnist": (256, 784, np.uint8, 10),
        "imdb": (30, 20, np.int32, 2),
        "characters": (30, 20, np.int32, 30),
    }.items():
        (tmp_path / name).mkdir()
        for prefix, count in (("", 20), ("test_", 10)):
            labels = {2: (count, 1), 10: (count,), 30: (count, width)}[classes]
            np.save(tmp_path / name / f"{prefix}inputs.npy", random.integers(0, high, (count, width), dtype))
            np.save(tmp_path / name / f"{prefix}labels.npy", random.integers(0, classes, labels, np.uint8))
    return tmp_path


def test_operations_of_a_step_are_those_of_its_products(networks: Any) -> None:
    dense = networks.Dense(10)
    recurrent = networks.Network("r", (4, 196), (networks.Recurrent(64), dense))
    forward = 4 * 196 * 64 + 3 * 64 * 64 + 64 * 10
    state_gradients = 3 * 64 * 64 + 64 * 10
    assert networks.flops_per_step(recurrent) == 2 * 100 * (2 * forward + state_gradients)
    layers = networks.Conv(6, 5, stride=2), networks.Flatten(), dense
    convolutional = networks.Network("c", (3, 11, 9), layers, batch=5)
    convolution, last = 6 * 4 * 3 * 3 * 5 * 5, 6 * 4 * 3 * 10
    assert networks.flops_per_step(convolutional) == 2 * 5 * (2 * convolution + 3 * last)
    for trainable, passes in ((True, 3), (False, 2)):
        layers = networks.Embedding(30, 4, trainable), networks.Conv(8, 3), networks.Pool(), networks.Dense(1)
        text = networks.Network("t", (20,), layers, channels="last", batch=1)
        assert networks.flops_per_step(text) == 2 * (passes * 18 * 8 * 3 * 4 + 3 * 8)


def test_batches_do_not_depend_on_the_pieces_they_are_asked_for_in(networks: Any) -> None:
    workload = importlib.import_module("workload")
    whole = workload.batch_rows(23, 5, 0, 12, seed=3)
    pieces = [workload.batch_rows(23, 5, first, steps, seed=3) for first, steps in ((0, 1), (1, 6), (7, 5))]
    assert np.array_equal(np.concatenate(pieces), whole)
    for epoch in whole.reshape(3, 20):
        assert len(set(epoch.tolist())) == 20


@pytest.mark.parametrize(
    "form",
    [
        "Network('s', (4, 196), (Recurrent(6), Dense(10)))",
        "Network('s', (7, 112), (Recurrent(6, 'relu', sequence=True), Recurrent(5), Dense(10)))",
        "Network('s', (784,), (Dense(6, 'relu'), Dense(10)))",
        "Network('s', (1, 28, 28), (Conv(2, 3, bias=False), Pool(2), Flatten(), Dense(10, bias=False)))",
        "Network('s', (4, 14, 14), (Conv(2, 3, 2), Conv(3, 2), Pool(2, mean=True), Flatten(), Dense(10)))",
        "Network('s', (14, 14, 4), (Conv(2, 3), Pool(2), Flatten(), Dense(10)), channels='last')",
        "Network('s', (4, 14, 14), (Conv(2, 3), Pool(mean=True), Dense(10)), optimiser='adamw')",
        "Network('s', (20,), (Embedding(30, 4), Conv(2, 3), Pool(8), Flatten(), Dense(1)), 'imdb', 'last')",
        "Network('s', (20,), (Embedding(30, 4, False), Conv(2, 3), Pool(), Dense(1)), 'imdb', 'last')",
        "Network('s', (20,), (Embedding(30, 4), Gated('lstm', 5), Dense(1)), 'imdb', 'last')",
        "Network('s', (7, 112), (Gated('gru', 6, sequence=True), Gated('lstm', 5), Dense(10)))",
        "Network('s', (20,), (Embedding(30, 4), Gated('gru', 5, sequence=True), Dense(30)), 'characters', 'last')",
    ],
)
def test_a_worker_trains_the_network_that_numpy_knows(networks: Any, data: Path, form: str) -> None:
    workload = importlib.import_module("workload")
    network = dataclasses.replace(eval(form, vars(networks)), batch=10)
    assert networks.Network.from_json(json.loads(json.dumps(network.as_json()))) == network
    job = workload.Job(network, str(data / network.data), threads=1)
    commands = [
        {"do": "start", "library": "pullback", "job": job.as_json()},
        {"do": "run", "steps": 2, "warm": 1},
        {"do": "accuracy"},
    ]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "worker.py")],
        input="".join(json.dumps(command) + "\n" for command in commands),
        capture_output=True,
        text=True,
        check=True,
    )
    _, run, accuracy = map(json.loads, done.stdout.splitlines())
    inputs, labels = job.arrays()
    rows = workload.batch_rows(20, 10, 0, 1)[0]
    scores = networks.outputs(network, job.initial_weights(), inputs[rows]).astype(np.float64)
    if network.binary:
        expected = np.mean(np.log1p(np.exp(scores)) - scores * labels[rows])
    else:
        chosen = np.take_along_axis(scores, labels[rows][..., None].astype(int), -1)[..., 0]
        expected = np.mean(np.log(np.exp(scores).sum(axis=-1)) - chosen)
    assert len(run["losses"]) == 3
    assert run["losses"][0] == pytest.approx(expected, rel=1e-5)
    answers = job.arrays("test_")[1].size
    assert accuracy["accuracy"] in [k / answers for k in range(answers + 1)]


def test_every_raced_network_has_shapes_and_weights(networks: Any) -> None:
    jobs = importlib.import_module("suite.jobs")
    for race in jobs.RACES.values():
        for network in race.networks:
            *_, last = network.with_shapes()
            assert last[-1] == {"characters": (64, 96)}.get(network.data, (1 if network.binary else 10,))
            assert network.trained() <= set(networks.initial_weights(network, 0))
    names = [network.name for race in jobs.RACES.values() for network in race.networks]
    assert len(set(names)) == len(names)


def test_the_best_way_is_found_one_answer_after_the_other(
    networks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = importlib.import_module("contenders.ways")
    costs = {"a": 3.0, "b": 1.0, "x": 0.5, "y": 0.2, "z": 0.9}
    questions = {"first": ("a", "b"), "second": ("x", "y", "z")}
    made = []

    def make(way: dict[str, str]) -> Any:
        made.append("".join(way.values()))
        return lambda: sum(costs[answer] for answer in way.values())

    monkeypatch.setattr(ways, "_seconds", lambda run: run())
    assert ways.fastest(questions, make, tuned=True) == {"first": "b", "second": "y"}
    assert made == ["ax", "bx", "by", "bz"]
    assert ways.fastest(questions, make, tuned=False) == {"first": "a", "second": "x"}


def test_a_library_that_fails_is_left_out_with_a_line(networks: Any, data: Path) -> None:
    contest = importlib.import_module("contest")
    said: list[str] = []
    missing = contest.Entrant("no_such_library", "", sys.executable)
    settings = contest.Settings([missing], str(data), 1, 1, 1, False, said.append)
    network = networks.Network("small", (784,), (networks.Dense(10),), batch=10)
    with contest.started(settings, network) as running:
        assert running == []
    assert said == [
        "no_such_library: ModuleNotFoundError: No module named 'contenders.with_no_such_library'; left out"
    ]


def test_vectors_can_be_kept_short(networks: Any) -> None:
    program = (
        "import vectors; vectors.with_vectors(16)\n"
        "import worker\n"
        "from pullback.compiler.target import Processor\n"
        "vectors.keep_short(); print(Processor.host().vector_bytes)"
    )
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=FOLDER, capture_output=True, text=True, check=True)
    assert done.stdout == "16\n"


def test_tables_read_the_same_as_text_and_as_markdown(networks: Any) -> None:
    report = importlib.import_module("report")
    table = report.Table("t", ("name", "ms"), [["a", "1.5"], ["long", "10"]], ["A note."])
    assert table.text() == "t\n\nname   ms\n----  ---\na     1.5\nlong   10\n\nA note."
    assert table.markdown() == (
        "### t\n\n| name | ms |\n| --- | ---: |\n| a | 1.5 |\n| long | 10 |\n\nA note."
    )
    assert report.relative_difference([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("calls")


@pytest.mark.parametrize("program", ["gru", "gru-before", "lstm", "minimal-gated", "peephole"])
def test_operations_of_a_call_are_those_of_its_products(calls: Any, program: str) -> None:
    """Each product of a step is one forward and two backward, less those that only the first state needs."""
    gates, inner = {"gru": (3, 0), "gru-before": (3, 1), "minimal-gated": (2, 1)}.get(program, (4, 0))
    call = calls.Call("c", program, 7, 5, 3, 6, layers=2)
    inputs = 3 * 7 * gates * (3 * 6 + 6 * 6)
    states = 2 * (3 * 7 * gates - (gates - inner)) * 6 * 6
    assert calls.flops_per_call(call) == 2 * 5 * (inputs + states)


@pytest.mark.parametrize(
    "program",
    [
        "gru",
        "gru-before",
        "lstm",
        "minimal-gated",
        "peephole",
        "normalised-gru",
        "two-products",
        "ode",
        "kalman",
        "solving-kalman",
        "gaussian-process",
        "fixed-point",
        "cloth",
    ],
)
def test_a_worker_differentiates_the_call(calls: Any, tmp_path: Path, program: str) -> None:
    """The gradients along a direction are the differences of what the same function gives without a compiler."""
    sizes = {"batch": 2, "inputs": 3, "layers": 2} if program in calls.CELLS else {}
    call = calls.Call("c", program, 4, units=3, **sizes)
    commands = [
        {
            "do": "start_call",
            "library": "pullback",
            "call": call.as_json(),
            "variant": "",
            "threads": 1,
            "tuned": True,
        },
        {"do": "call"},
        {"do": "results", "file": str(tmp_path / "results.npz")},
    ]
    subprocess.run(
        [sys.executable, str(FOLDER / "worker.py")],
        input="".join(json.dumps(command) + "\n" for command in commands),
        capture_output=True,
        text=True,
        check=True,
    )
    with np.load(tmp_path / "results.npz") as stored:
        found = {name: stored[name] for name in stored.files}
    names = calls.differentiated(call)
    arrays = {name: array.astype(np.float64) for name, array in calls.arrays_of(call).items()}
    fixed = {name: array for name, array in arrays.items() if name not in names}
    random = np.random.default_rng(1)
    along = {name: random.standard_normal(arrays[name].shape) for name in names}
    value_of = importlib.import_module("contenders.calls_pullback").value_of
    ends = [
        value_of(call, {name: arrays[name] + step * along[name] for name in names}, fixed)
        for step in (1e-5, -1e-5)
    ]
    expected = (ends[0] - ends[1]) / 2e-5
    slope = sum(float(np.sum(found[name] * along[name])) for name in names)
    assert slope == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("network", ["autoencoder", "stride-2", "transposed", "depthwise"])
def test_a_step_of_a_network_goes_against_its_gradient(calls: Any, network: str) -> None:
    """The loss falls as fast as the weights move."""
    nets = importlib.import_module("nets")
    contender = importlib.import_module("contenders.nets_pullback").Contender
    net = nets.Net("n", network, 3, 6)
    arrays = nets.arrays_of(net)
    made = contender(net, arrays, "", 1, True)
    made.run()
    first, loss = made.numbers(), float(made.loss)
    moved = sum(float(np.sum((first[name] - arrays[name]) ** 2.0)) for name in arrays if name[0] == "w")
    made.run()
    assert moved and loss - float(made.loss) == pytest.approx(moved / nets.LEARNING_RATE, rel=0.1)


def test_products_of_networks_are_counted(calls: Any) -> None:
    """Forward, and backward to weights and inputs, but for the images, which are given."""
    nets = importlib.import_module("nets")
    dense = (784 * 512 + 512 * 64) * 2
    assert nets.Net("n", "autoencoder", 2, 512).flops == 2 * 2 * (3 * dense - 784 * 512)
    assert nets.Net("n", "depthwise", 2, 6).flops == 2 * 3 * 2 * 64 * 36 * 9


def test_programs_are_built_with_the_passes_that_are_asked_for(calls: Any) -> None:
    """The bodies of their loops too, and nothing is taken from the cache."""
    ablation = importlib.import_module("suite.ablation")
    seen = []

    def look(graph: Any) -> Any:
        seen.append(len(graph.inputs))
        return graph

    bodies = next(each for each in PASSES if each.name == "bodies")
    call = calls.Call("c", "gru", 3, 2, 4, 5)
    arrays = calls.arrays_of(call)
    varied, fixed = ablation._parted(arrays, calls.differentiated(call))
    function = importlib.import_module("contenders.calls_pullback").function_of(call)
    for _ in range(2):
        seen.clear()
        variant = ablation._Variant(function, varied, fixed, (GraphPass("look", look), bodies))
        assert len(arrays) in seen and len(set(seen)) > 1
    whole = ablation._Variant(function, varied, fixed, PASSES)
    for found, expected in zip(variant.program(*variant.leaves), whole.program(*whole.leaves)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_parts_of_the_compiler_are_left_out_of_programs_that_they_change(
    calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = importlib.import_module("suite.passes")
    settings = importlib.import_module("contest").Settings([], "", 1, 2, 0, False, print)
    monkeypatch.setattr(passes, "_TURN_SECONDS", 0.001)
    contenders = importlib.import_module("contenders.calls_pullback")
    make = passes._called(settings, calls, contenders, calls.Call("c", "gru", 40, 2, 4, 5))
    usual = passes._code(passes.graph_of(make))
    found = passes._compared(settings, make)
    assert "hoisted_steps" in found and "sparse_pooling" not in found
    assert all(whole > 0 and without > 0 for whole, without in found.values())
    assert passes._code(passes.graph_of(make)) == usual


def test_programs_are_timed_with_several_numbers_of_threads(
    calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, threads = importlib.import_module("suite.passes"), importlib.import_module("suite.threads")
    settings = importlib.import_module("contest").Settings([], "", 3, 1, 0, False, print)
    monkeypatch.setattr(passes, "_TURN_SECONDS", 0.001)
    contenders = importlib.import_module("contenders.calls_pullback")
    make = passes._called(settings, calls, contenders, calls.Call("c", "gru", 40, 2, 4, 5))
    monkeypatch.setattr(threads, "programs", lambda _: {"small": make})
    (table,) = threads.run(settings)
    assert [list(times) for times in table.data.values()] == [[1, 2, 3]]
    assert len(table.rows[0]) == len(table.columns) == 4


def test_every_program_of_the_suite_has_a_name_of_its_own(calls: Any) -> None:
    passes, suite = importlib.import_module("suite.passes"), importlib.import_module("suite")
    settings = importlib.import_module("contest").Settings([], "", 1, 2, 0, False, print)
    networks = sum(len(race.networks) for race in suite.RACES.values())
    called = sum(len(group) for name, group in suite._CALLED.items() if name != "operations")
    assert len(passes.programs(settings)) == networks + called + len(passes.small.UPDATES)


def test_results_that_are_not_the_same_are_told(calls: Any) -> None:
    expected = {"a": np.array([3.0, 4.0]), "b": np.zeros(2)}
    assert calls.largest_difference(expected, expected) == 0
    assert calls.largest_difference({"a": np.array([3.0, 4.5]), "b": np.zeros(2)}, expected) == pytest.approx(
        0.1
    )
    with pytest.raises(ValueError, match="are not those of"):
        calls.largest_difference({"a": expected["a"]}, expected)
    with pytest.raises(ValueError, match="are not those of"):
        calls.largest_difference({"a": expected["a"], "b": np.zeros((2, 1))}, expected)


_SMALL = {
    "gmm": {"d": 2, "k": 3, "n": 5},
    "kmeans": {"k": 3, "n": 7, "d": 2},
    "lse": {"n": 7},
    "llsq": {"n": 9, "m": 4},
    "ode": {"n": 3, "steps": 4},
    "det": {"n": 4},
    "lstm": {"layers": 2, "steps": 5, "bits": 3},
    "ht": {"vertices": 6, "points": 4},
    "ba": {"cameras": 2, "points": 3, "seen": 5},
    "rosenbrock": {"n": 5},
    "rosenbrock_forward": {"n": 20},
    "ackley": {"n": 5},
    "examples": {"n": 3},
    "spline": {"knots": 5, "n": 7},
    "deconvolution": {"n": 8},
    "sorting": {"n": 6},
    "spectra": {"n": 20, "window": 8},
    "ranks": {"n": 4},
    "densities": {"n": 7},
    "determinants": {"n": 3},
}


class _Differences:
    """The vocabulary of numerical programs in NumPy alone, derivatives by differences."""

    np, constant, sorted = np, staticmethod(np.asarray), staticmethod(np.sort)

    @classmethod
    def jacobian(cls, function: Any, argnums: Any = 0, by_rows: bool = False) -> Any:
        def by(number: int, values: Any) -> Any:
            def along(unit: Any) -> Any:
                moved = list(values)
                moved[number] = values[number] + unit
                return function(*moved)

            x = np.asarray(values[number])
            units = 1e-5 * np.eye(x.size).reshape(x.size, *x.shape)
            columns = np.stack([(along(unit) - along(-unit)) / 2e-5 for unit in units], -1)
            return columns.reshape((*columns.shape[:-1], *x.shape))

        if isinstance(argnums, tuple):
            return lambda *values: tuple(by(number, values) for number in argnums)
        return lambda *values: by(argnums, values)

    grad = jacobian

    @classmethod
    def forward_grad(cls, function: Any, chunk: int | None = None) -> Any:
        return cls.jacobian(function)

    @classmethod
    def value_and_grad(cls, function: Any, argnums: Any = 0) -> Any:
        return lambda *values: (function(*values), cls.jacobian(function, argnums)(*values))

    @classmethod
    def jvp(cls, function: Any, x: Any, direction: Any) -> Any:
        return function(x), (function(x + 1e-5 * direction) - function(x - 1e-5 * direction)) / 2e-5

    @classmethod
    def hvp(cls, function: Any, x: Any, direction: Any) -> Any:
        slope = cls.grad(function)
        return slope(x), (slope(x + 1e-4 * direction) - slope(x - 1e-4 * direction)) / 2e-4

    @staticmethod
    def vmap(function: Any) -> Any:
        def mapped(*many: Any) -> Any:
            found = [function(*each) for each in zip(*many)]
            return tuple(map(np.stack, zip(*found))) if isinstance(found[0], tuple) else np.stack(found)

        return mapped

    @staticmethod
    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    @staticmethod
    def scan(step: Any, state: Any, xs: Any, count: int) -> Any:
        kept = []
        for k in range(count):
            state, found = step(state, tuple(x[k] for x in xs))
            kept.append(found)
        return state, kept

    @staticmethod
    def placed(x: Any, shape: Any, places: Any) -> Any:
        made = np.zeros(shape)
        made[:, places[0], places[1]] = x
        return made

    @staticmethod
    def constant_rows(t: Any, count: int) -> Any:
        return np.stack([np.ones_like(t), *[t] * (count - 1)], 1)


@pytest.mark.parametrize("program", _SMALL)
def test_numerical_programs_give_what_differences_give(program: str, networks: Any) -> None:
    evaluations = importlib.import_module("evaluations")
    contenders = importlib.import_module("contenders.evaluations_pullback")
    asked = evaluations.Evaluation("small", program, _SMALL[program])
    assert evaluations.from_json(json.loads(json.dumps(asked.as_json()))) == asked
    arrays = evaluations.arrays_of(asked)
    contender = contenders.Contender(asked, arrays, "", 1, False)
    contender.run()
    expected = evaluations.PROGRAMS[program](_Differences, arrays)
    for name, found in contender.numbers().items():
        scale = 1 + np.max(np.abs(expected[name]))
        np.testing.assert_allclose(found / scale, expected[name] / scale, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(
    ("program", "result"), [("particle", 0.2071918746486116), ("saddle", 8.246324826140356e-06)]
)
@pytest.mark.parametrize("mode", ["", "_reverse"])
def test_descents_end_where_those_of_others_end(
    program: str, mode: str, result: float, networks: Any
) -> None:
    """The results are those that GradBench expects."""
    evaluations = importlib.import_module("evaluations")
    contenders = importlib.import_module("contenders.evaluations_pullback")
    asked = evaluations.Evaluation("descent", program + mode)
    contender = contenders.Contender(asked, evaluations.arrays_of(asked), "", 1, False)
    contender.run()
    for found in contender.numbers().values():
        np.testing.assert_allclose(found, np.full(found.shape, result), rtol=1e-9)


def test_uncompiled_gradients_are_those_of_differences(networks: Any) -> None:
    uncompiled = importlib.import_module("uncompiled")
    contenders = importlib.import_module("contenders.uncompiled_pullback")
    for program, function in uncompiled.PROGRAMS.items():
        contender = contenders.Contender(program)
        contender.run()
        given, random = uncompiled.named(uncompiled.argument(program)), np.random.default_rng(2)
        direction = {name: random.standard_normal(x.shape) for name, x in given.items()}
        slope = sum(np.vdot(found, direction[name]) for name, found in contender.numbers().items())

        def moved(
            step: float, given: Any = given, direction: Any = direction, function: Any = function
        ) -> Any:
            trees = {name: x + step * direction[name] for name, x in given.items()}
            return function(np, trees.get("gradient", trees))

        expected = (moved(1e-6) - moved(-1e-6)) / 2e-6
        np.testing.assert_allclose(slope, expected, rtol=1e-6, err_msg=program)


def test_every_benchmark_can_be_run(networks: Any) -> None:
    suite = importlib.import_module("suite")
    for name in suite.BENCHMARKS:
        assert callable(suite.benchmark(name))


@pytest.mark.parametrize(
    "program",
    [
        "elementwise-12", "slopes-12", "reductions-6", "products-3", "rolls-4", "concatenations-3", "parameters-3",
        "resnet-8", "gru-2", "perceptron-2",
    ],
)  # fmt: skip
def test_programs_whose_compiling_is_measured_can_be_traced(program: str, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    compiling = importlib.import_module("compiling")
    name, _, number = program.partition("-")
    function, arguments, _ = compiling.PROGRAMS[name](int(number))
    assert pullback.trace(function, *arguments).graph.outputs


def test_what_compiling_takes_is_measured(tmp_path: Path) -> None:
    script = [sys.executable, str(FOLDER / "compiling.py"), "elementwise-12"]
    environment = {**os.environ, "PULLBACK_CACHE": str(tmp_path)}
    done = subprocess.run(script, capture_output=True, text=True, check=True, env=environment)
    figures = json.loads(done.stdout)
    assert figures["cpu"] > 0
    assert figures["peak_mb"] >= figures["before_mb"] > 0


_X86 = """\
	.globl	kernel0
kernel0:                                # @kernel0
# %bb.0:
	pushq	%rbx
	movq	(%rdi), %rax                    # the operand $8
	.p2align	4
.LBB0_1:                                # %loop
                                        # =>This Loop Header: Depth=1
                                        #     Child Loop BB0_3 Depth 2
	vmovups	%zmm3, (%rsi) {%k1}
	jmp	.LBB0_3
.LBB0_2:                                #   in Loop: Header=BB0_3 Depth=2
	vmovups	64(%rsp), %zmm1                 # 64-byte Reload
	incq	(%rdx)
.LBB0_3:                                # %loop2
                                        #   Parent Loop BB0_1 Depth=1
                                        # =>  This Inner Loop Header: Depth=2
	vfmadd231ps	(%rcx){1to16}, %zmm1, %zmm2
	vaddss	%xmm4, %xmm5, %xmm5
	vpmaxsd	%zmm6, %zmm7, %zmm7
	vmovups	%zmm1, 64(%rsp)                 # 64-byte Spill
	prefetcht0	(%rcx)
	#ARITH_FENCE
	cmpq	$5, (%rdx)
	jl	.LBB0_2
	jmp	.LBB0_4
.LBB0_5:                                #   in Loop: Header=BB0_3 Depth=2
	vmovups	%zmm2, 128(%rsp)                # 64-byte Spill
	callq	pullback_failure@PLT
	vmovups	128(%rsp), %zmm2                # 64-byte Reload
	jmp	.LBB0_3
.LBB0_4:                                #   in Loop: Header=BB0_1 Depth=1
	vmovups	%zmm2, (%rsi)
	jl	.LBB0_1
	retq
.Lfunc_end0:
"""

_ARM = """\
kernel0:                                // @kernel0
// %bb.0:
	str	d8, [sp, #-16]!                 // 8-byte Folded Spill
.LBB0_1:                                // %loop
                                        // =>This Inner Loop Header: Depth=1
	ldp	q0, q1, [x0, #16]
	add	x0, x0, #32                     // =32
	fmla	v2.4s, v0.4s, v1.s[0]
	st1	{ v2.4s }, [x1]
	b.lt	.LBB0_1
// %bb.2:
	ret
.Lfunc_end0:
"""


@pytest.fixture
def machine_code(networks: Any) -> Any:
    return importlib.import_module("machine_code")


def test_instructions_are_counted_inside_of_innermost_loops_and_outside(machine_code: Any) -> None:
    found = machine_code.functions_of(_X86)["kernel0"]
    assert found["loops"] == [
        {"instructions": 10, "vector": 4, "FMAs": 1, "loads": 3, "stores": 1, "spills": 1, "reloads": 1}
    ]
    outside = found["whole"] - found["loops"][0]
    outside_and_failing = {
        "instructions": 11,
        "vector": 4,
        "loads": 1,
        "stores": 2,
        "spills": 1,
        "reloads": 1,
    }
    assert outside == outside_and_failing
    found = machine_code.functions_of(_ARM)["kernel0"]
    assert found["loops"] == [{"instructions": 5, "vector": 3, "FMAs": 1, "loads": 1, "stores": 1}]
    assert found["whole"] - found["loops"][0] == {"instructions": 2, "spills": 1}


@pytest.mark.parametrize("name", ["this", "avx-512", "avx2", "neon"])
def test_innermost_loops_of_a_product_multiply_and_add(machine_code: Any, name: str) -> None:
    import llvmlite.binding as llvm

    processor = machine_code.PROCESSORS.get(name) or Processor.host()
    if processor.vector_bytes == 16 and processor.architecture != "aarch64":
        pytest.skip("no fused multiply-adds")
    llvm.initialize_all_targets()
    try:
        llvm.Target.from_triple(f"{processor.architecture}-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this LLVM compiles for no other processors")
    x = np.ones((64, 64), np.float32)

    def fmas_of(function: Any) -> int:
        found = machine_code.measured(pullback.trace(function, x, x).graph, {}, processor)
        counts = found["result 64 × 64"]
        assert counts["whole"]["instructions"] > sum(loop["instructions"] for loop in counts["loops"]) > 0
        return sum(loop["FMAs"] for loop in counts["loops"])

    assert fmas_of(lambda x, y: x @ y) > 0
    assert fmas_of(lambda x, y: x + y) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the listing is that of Linux")
def test_what_is_counted_is_the_code_that_is_run(machine_code: Any) -> None:
    graph, processor = pullback.trace(np.tanh, np.ones(1000, np.float32)).graph, Processor.host()
    text = build(graph, {}, processor).emitted.text

    def instructions(listing: str) -> list[str]:
        lines = [machine_code._COMMENT.sub("", line) for line in listing.splitlines()]
        return [line.rstrip() for line in lines if any(machine_code._kinds_of(line))]

    found = instructions(machine_code._assembly(text, processor))
    assert found == instructions(assembly(text, processor))
    counts = machine_code.measured(graph, {}, processor)
    assert len(found) == sum(function["whole"]["instructions"] for function in counts.values())


def test_more_in_an_innermost_loop_than_before_is_told(machine_code: Any, tmp_path: Path) -> None:
    spill = next(line for line in _X86.splitlines(keepends=True) if "64-byte Spill" in line)
    before, after = (machine_code.functions_of(text) for text in (_X86.replace(spill, ""), _X86))
    (tmp_path / "before.json").write_text(json.dumps(before))
    saved = json.loads((tmp_path / "before.json").read_text())
    worse = machine_code.beside("n", saved, after)
    assert worse.rows[0] == [
        "kernel0", "", "9/20 → 10/21", "3/7 → 4/8", "1/1", "3/4", "1/3", "0/1 → 1/2", "1/2"
    ]  # fmt: skip
    assert worse.notes == [
        "More in kernel0, loop 1: 9 → 10 instructions; 0 spills, 1 reloads → 1 spills, 1 reloads."
    ]
    for old, new, rows in ((after, saved, 2), (saved, before, 1), ({}, after, 2)):
        table = machine_code.beside("n", old, new)
        assert len(table.rows) == rows and table.notes[0].startswith("No loop")
