"""Programs on one thread and on several: results, steps, failures, signals, forks."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import weakref

import numpy as np
import pytest

from pullback.compiler.llvm.function import Module
from pullback.compiler.runtime import layout
from pullback.compiler.runtime.engine import load
from pullback.compiler.runtime.layout import emit_pointer, region_function
from pullback.compiler.runtime.machine import machine
from pullback.compiler.runtime.program import Failure, Program, RegionSpec, RepeatSpec
from pullback.compiler.runtime.threads import set_num_threads
from pullback.compiler.target import Processor
from pullback.errors import DonationError, DTypeError, IndexRangeError, ShapeError
from pullback.graph import Type

CELLS, TURNS = 37, 3
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def mixing_reference(state, added):
    totals = np.empty(len(added), np.int64)
    with np.errstate(over="ignore"):
        for step, extra in enumerate(added):
            for turn in range(TURNS):
                buffer = np.roll(state, -1) * 3 + state + extra + turn
                state = buffer ^ (np.roll(buffer, 1) * 5)
            totals[step] = state.sum()
    return state, totals


def run_mixing(program, state, added):
    totals = np.zeros(len(added), np.int64)
    done = program.run_steps([state, added, state, totals], len(added), [0, 8, 0, 8])
    return done, totals


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_steps_agree_with_numpy_for_any_number_of_threads(mixing, threads):
    set_num_threads(threads)
    state, added = np.arange(CELLS), np.arange(400) * 7
    expected, expected_totals = mixing_reference(state, added)
    done, totals = run_mixing(mixing(), state, added)
    assert done == 400
    np.testing.assert_array_equal(totals, expected_totals)
    np.testing.assert_array_equal(state, expected)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_single_calls_carry_donated_memory(mixing, threads):
    set_num_threads(threads)
    program = mixing()
    state, added = np.arange(CELLS), np.arange(50)
    expected, expected_totals = mixing_reference(state, added)
    for step in range(50):
        result, total = program(state, added[step])
        assert result is state
        assert total == expected_totals[step]
    np.testing.assert_array_equal(state, expected)


def test_call_and_steps_may_alternate_with_other_numbers_of_threads(mixing):
    program = mixing()
    state, added = np.arange(CELLS), np.arange(60)
    expected, _ = mixing_reference(state, added)
    for start in range(0, 60, 4):
        set_num_threads(1 + start % 3)
        run_mixing(program, state, added[start : start + 3])
        program(state, added[start + 3])
    np.testing.assert_array_equal(state, expected)


def test_thousands_of_steps_beyond_the_visits_that_a_word_can_count(mixing):
    set_num_threads(2)
    program = mixing()
    context = program._instances[0]
    memory, epoch = context._memory, context.context + layout.CONTEXT["EPOCH"]
    state, added = np.arange(CELLS), np.arange(3000)
    expected, _ = mixing_reference(state, added)
    run_mixing(program, state, added[:1000])
    memory.set_word(epoch, layout.MAX_VISITS // TURNS - 500)  # as if days had passed
    run_mixing(program, state, added[1000:2000])
    assert 1 < memory.word(epoch) < 2000
    run_mixing(program, state, added[2000:])
    np.testing.assert_array_equal(state, expected)


def test_nested_repeats_count_iterations():
    module = Module()
    f = region_function(module, "note")
    y = emit_pointer(f, 1, f["step"])
    at = f.value(f"getelementptr i64, ptr {y}, i64 {f['iteration']}")
    old = f.value(f"load i64, ptr {at}, align 8")
    f.do(f"store i64 {f.value(f'add i64 {old}, 1')}, ptr {at}, align 8")
    zero = region_function(module, "zero")
    y = emit_pointer(zero, 1, zero["step"])
    at = zero.value(f"getelementptr i64, ptr {y}, i64 {zero['chunk']}")
    zero.do(f"store i64 0, ptr {at}, align 8")
    program = Program(
        load(module.text(), Processor.host()),
        arguments=[],
        results=[Type(np.dtype(np.int64), (14,))],
        regions=[
            RegionSpec("zero", 14),
            RepeatSpec(4, [RepeatSpec(3, [RegionSpec("note")]), RepeatSpec(0, [RegionSpec("note")])]),
        ],
    )
    for threads in (1, 2):
        set_num_threads(threads)
        for _ in range(3):
            np.testing.assert_array_equal(program()[0], [1] * 12 + [0, 0])


@pytest.mark.parametrize("threads", [2, 3, 4, 5, 7])
def test_any_number_of_chunks_for_any_number_of_threads(threads):
    module = Module()
    f = region_function(module, "count")
    y = emit_pointer(f, 1, f["step"])
    at = f.value(f"getelementptr i64, ptr {y}, i64 {f['chunk']}")
    step = f["step"]
    f.do(f"store i64 {f.value(f'add i64 {step}, 1')}, ptr {at}, align 8")
    set_num_threads(threads)
    for chunks in range(1, 9):
        program = Program(
            load(module.text(), Processor.host()),
            arguments=[],
            results=[Type(np.dtype(np.int64), (chunks,))],
            regions=[RegionSpec("count", chunks)],
            cost=1e6,
            saving=1.0,
        )
        found = np.zeros((20, chunks), np.int64)
        program.run_steps([found], 20, [8 * chunks])
        np.testing.assert_array_equal(found, np.arange(1, 21)[:, None] + np.zeros(chunks, int))


def test_two_threads_call_one_program(mixing):
    set_num_threads(2)
    program, added = mixing(), np.arange(300)
    expected, _ = mixing_reference(np.arange(CELLS), added)
    states = [np.arange(CELLS) for _ in range(4)]

    def work(state):
        for start in range(0, 300, 10):
            run_mixing(program, state, added[start : start + 9])
            program(state, added[start + 9])

    workers = [threading.Thread(target=work, args=(state,)) for state in states]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for state in states:
        np.testing.assert_array_equal(state, expected)


def test_many_programs_from_many_threads(mixing, scaling):
    set_num_threads(3)
    wrong = []

    def work(number):
        mix, scale = mixing(), scaling()
        state, added = np.arange(CELLS) + number, np.arange(40)
        expected, _ = mixing_reference(state, added)
        for step in range(40):
            mix(state, added[step])
            if not np.array_equal(scale(X * step)[0], 2 * X * step):
                wrong.append((number, step))
        if not np.array_equal(state, expected):
            wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_cheap_programs_run_on_their_caller(mixing):
    set_num_threads(2)
    program = mixing(cost=100.0)
    state = np.arange(CELLS)
    expected, _ = mixing_reference(state, np.array([5]))
    program(state, np.array(5))
    np.testing.assert_array_equal(state, expected)
    assert epoch(program) == 1


def epoch(program):
    instance = program._instances[0]
    return instance._memory.word(instance.context + layout.CONTEXT["EPOCH"])


def test_many_steps_that_sharing_would_slow_down_run_on_their_caller(mixing):
    set_num_threads(2)
    state, added = np.arange(CELLS), np.arange(400) * 7
    expected, _ = mixing_reference(state, added)
    alone, shared = mixing(saving=-1.0), mixing(saving=1.0)
    for program, epochs in ((alone, 1), (shared, 401)):
        current = state.copy()
        run_mixing(program, current, added)
        np.testing.assert_array_equal(current, expected)
        assert epoch(program) == epochs


# --- run_steps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"steps": -1, "sliced": ()}, ValueError, "negative|-1 steps"),
        ({"steps": 11}, ShapeError, r"argument 1 .* shape \(10,\), it was compiled for \(11,\)"),
        ({"sliced": ()}, ShapeError, r"argument 1 .* shape \(10,\), it was compiled for \(\)"),
        ({"state": np.zeros(CELLS, np.int32)}, DTypeError, "argument 0"),
        ({"state": np.zeros(2 * CELLS, np.int64)[::2]}, DonationError, "not C-contiguous"),
        ({"state": [0] * CELLS}, DonationError, "is a list"),
    ],
)
def test_a_run_refuses_arrays_that_cannot_serve(mixing, change, error, message):
    state, added = change.get("state", np.zeros(CELLS, np.int64)), np.zeros(10, np.int64)
    given = [state, added[0] if change.get("steps") == -1 else added]
    with pytest.raises(error, match=message):
        mixing().run(given, change.get("steps", 10), change.get("sliced", (1,)))


def test_a_run_refuses_donated_memory_that_overlaps_arguments(mixing):
    shared = np.zeros(CELLS + 5, np.int64)
    with pytest.raises(DonationError, match="argument 0 and argument 1 share memory"):
        mixing().run([shared[:CELLS], shared[CELLS - 1 :][:5]], 5, (1,))


def test_a_run_gives_the_results_of_its_steps(mixing):
    state, added = np.arange(CELLS), np.arange(10) * 7
    expected, expected_totals = mixing_reference(state, added)
    (final, totals), done = mixing().run([state, added], 10, (1,))
    assert final is state and done == 10
    np.testing.assert_array_equal(final, expected)
    np.testing.assert_array_equal(totals, expected_totals)


def test_no_steps_do_nothing(mixing):
    state = np.arange(CELLS)
    assert run_mixing(mixing(), state, np.zeros(0, np.int64))[0] == 0
    np.testing.assert_array_equal(state, np.arange(CELLS))


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("threads", [1, 2])
def test_watched_result_that_is_not_finite_ends_the_run(name, bad, threads):
    set_num_threads(threads)
    dtype = np.dtype(name)
    module = Module()
    f = region_function(module, "copy")
    x, y = (emit_pointer(f, slot, f["step"]) for slot in (1, 2))
    kind = "float" if dtype.itemsize == 4 else "double"
    f.do(f"store {kind} {f.value(f'load {kind}, ptr {x}, align 4')}, ptr {y}, align 4")
    program = Program(
        load(module.text(), Processor.host()),
        arguments=[Type(dtype, ())],
        results=[Type(dtype, ())],
        regions=[RegionSpec("copy")],
        watch_result=0,
    )
    losses, out = np.ones(100, dtype), np.zeros(100, dtype)
    losses[:3] = np.finfo(dtype).max, np.finfo(dtype).tiny, -1
    losses[41] = bad
    for _ in range(3):
        out[:] = 0
        assert program.run_steps([losses, out], 100, [dtype.itemsize] * 2) == 42
        np.testing.assert_array_equal(out[:42], losses[:42])
        np.testing.assert_array_equal(out[42:], 0)
        assert program.run_steps([losses, out], 40, [dtype.itemsize] * 2) == 40
    np.testing.assert_array_equal(program(bad)[0], bad)  # a single call hands over what it got


# --- failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_failure_of_the_lowest_position_is_reported_before_anything_is_written(scaling, threads):
    set_num_threads(threads)
    program = scaling(donated=True, checked=True)
    for _ in range(100):
        x = X.copy()
        x.flat[[30, 11, 25]] = -30, -11, -25
        before = x.copy()
        with pytest.raises(IndexRangeError, match="failure 7 at position 11, value -11"):
            program(x)
        np.testing.assert_array_equal(x, before)
        y = X.copy()
        np.testing.assert_array_equal(program(y)[0], 2 * X)


@pytest.mark.parametrize("threads", [1, 2])
def test_failure_in_a_run_of_steps(scaling, threads):
    set_num_threads(threads)
    seen = []

    def explain(failure):
        seen.append(failure)
        return KeyError(f"token {failure.value}")

    program = scaling(checked=True, explain=explain)
    batches, out = np.stack([X] * 50), np.zeros((50, 8, 4), np.float32)
    batches[17, 2, 1] = -4
    for _ in range(20):
        with pytest.raises(KeyError, match="token -4"):
            program.run_steps([batches, out], 50, [X.nbytes] * 2)
        assert program.steps_done == 17
        np.testing.assert_array_equal(out[:17], 2 * batches[:17])
        np.testing.assert_array_equal(out[17:], 0)
        out[:] = 0
    assert set(seen) == {Failure(code=7, position=9, value=-4, step=17)}


# --- signals, forks, lifetimes ---------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
@pytest.mark.parametrize("threads", [1, 2])
def test_interrupt_stops_between_two_steps(mixing, threads):
    set_num_threads(threads)
    program = mixing()
    steps = 500_000_000  # hours; the stride of 0 lets one number serve all steps
    state, added, total = np.arange(CELLS), np.zeros(1, np.int64), np.zeros(1, np.int64)

    def interrupt(signum, frame):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            program.run_steps([state, added, state, total], steps, [0] * 4)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert 0 < program.steps_done < steps
    assert total[0] == state.sum()
    expected, _ = mixing_reference(state, np.arange(3))
    run_mixing(program, state, np.arange(3))
    np.testing.assert_array_equal(state, expected)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("way", ["entry", "call", "steps"])
def test_interrupt_stops_a_long_step_that_writes_nothing_in_place(scaling_code, threads, way):
    set_num_threads(threads)
    program = Program(
        scaling_code,
        arguments=[Type(np.dtype(np.float32), (8, 4))],
        results=[Type(np.dtype(np.float32), (8, 4))],
        regions=[RepeatSpec(2**30, [RegionSpec("scale", 8)])],
        constants=[np.float32([2.0])],
    )
    machine().pool.start()
    out = np.empty((8, 4), np.float32)

    def interrupt(signum, frame):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.03)
            with pytest.raises(KeyboardInterrupt):
                if way == "steps":
                    program.run_steps([X, out], 1, [0, 0])
                else:
                    (program.entry if way == "entry" else program)(X)
            assert program.steps_done == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
@pytest.mark.parametrize("threads", [1, 2])
def test_interrupt_stops_a_long_region_between_two_chunks(threads):
    """Each chunk counts to ten million and enters that it was there; then a donated argument is written."""
    set_num_threads(threads)
    module, chunks = Module(), 1000
    f = region_function(module, "count")
    there = f.value(f"getelementptr i64, ptr {emit_pointer(f, 2)}, i64 {f['chunk']}")
    with f.loop("0", "10000000") as loop:
        f.do(f"store volatile i64 {loop.index}, ptr {there}, align 8")
    f = region_function(module, "update")
    f.do(f"store i64 1, ptr {emit_pointer(f, 3)}, align 8")
    program = Program(
        load(module.text(), Processor.host()),
        arguments=[Type(np.dtype(np.int64), ())],
        results=[Type(np.dtype(np.int64), (chunks,)), Type(np.dtype(np.int64), ())],
        donated={1: 0},
        regions=[RegionSpec("count", chunks, writes=False), RegionSpec("update")],
    )
    machine().pool.start()
    out, donated = np.zeros(chunks, np.int64), np.array(0)
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.03)
        with pytest.raises(KeyboardInterrupt):
            program.run_steps([donated, out, donated], 1, [0] * 3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert program.steps_done == 0 and donated == 0 and np.count_nonzero(out) < chunks
    assert set(out) <= {0, 9_999_999}, "a chunk was left half done"


def in_child(work):
    """Run ``work`` in a forked child; whether it returned True."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return status == 0


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_fork_after_use(mixing):
    set_num_threads(2)
    program = mixing()
    state, added = np.arange(CELLS), np.arange(200)
    expected, _ = mixing_reference(state, added)
    run_mixing(program, state, added[:100])

    def work():
        before = threading.active_count()
        run_mixing(program, state, added[100:])
        return before == 1 and threading.active_count() == 2 and np.array_equal(state, expected)

    assert in_child(work)
    run_mixing(program, state, added[100:])  # and the parent goes on as if nothing had happened
    np.testing.assert_array_equal(state, expected)


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_fork_while_another_thread_is_inside_the_program(mixing):
    set_num_threads(2)
    program = mixing()
    state, added = np.arange(CELLS), np.arange(20)
    expected, _ = mixing_reference(state, added)
    running = np.arange(CELLS)
    finish = threading.Event()

    def keep_running():
        while not finish.is_set():
            run_mixing(program, running, np.zeros(2000, np.int64))

    other = threading.Thread(target=keep_running)
    other.start()
    try:
        for _ in range(5):

            def work():
                here = state.copy()
                run_mixing(program, here, added)
                program(here.copy(), 0)
                return np.array_equal(here, expected)

            assert in_child(work)
    finally:
        finish.set()
        other.join()


def test_program_and_its_memory_are_freed_but_not_before_its_entry(scaling):
    program = scaling()
    entry, instance = program.entry, weakref.ref(program._instances[0])
    del program
    gc.collect()
    np.testing.assert_array_equal(entry(X)[0], 2 * X)
    del entry
    gc.collect()
    assert instance() is None


def test_calls_keep_reference_counts(mixing, scaling):
    program, scale, checked = mixing(), scaling(), scaling(checked=True)
    state, zero = np.arange(CELLS), np.array(0)
    program(state, zero)
    counted = [state, zero, X, state.dtype, NotImplemented]
    before = [sys.getrefcount(item) for item in counted]
    for _ in range(500):
        program(state, zero)
        scale(X)
        scale.entry(X[:2])
        with pytest.raises(IndexRangeError):
            checked(-1 - X)
    after = [sys.getrefcount(item) for item in counted]
    assert all(abs(a - b) < 50 for a, b in zip(after, before))


def test_descriptions_that_make_no_sense(scaling_code):
    float32, float64 = np.dtype(np.float32), np.dtype(np.float64)

    def make(arguments, results, watch=None):
        Program(
            scaling_code,
            arguments=arguments,
            results=results,
            donated={0: 0} if arguments else {},
            regions=[RegionSpec("scale")],
            watch_result=watch,
        )

    with pytest.raises(ValueError, match="cannot become result"):
        make([Type(float32, ())], [Type(float64, ())])
    with pytest.raises(ValueError, match="watched result"):
        make([], [Type(np.dtype(np.int32), ())], watch=0)
    with pytest.raises(KeyError, match="absent"):
        Program(scaling_code, arguments=[], results=[], regions=[RegionSpec("absent")])
    with pytest.raises(ValueError, match="repeated"):
        Program(
            scaling_code,
            arguments=[],
            results=[],
            regions=[RepeatSpec(10**7, [RepeatSpec(10**7, [RegionSpec("scale")])])],
        )
