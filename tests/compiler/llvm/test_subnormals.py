"""Subnormal numbers: NumPy's by default, zeros where a program is told so, in its own regions only."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.llvm.function import Module
from pullback.compiler.llvm.subnormals import mode_functions, switched, unflushed
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.compiler.target import Processor

TINY = np.array([1e-20, -1e-20, 1.0], np.float32)
FLUSHES = Processor.host().architecture in ("x86_64", "aarch64")
needs_mode = pytest.mark.skipif(not FLUSHES, reason="a processor without such a mode")


def test_are_numpys_unless_flushed() -> None:
    np.testing.assert_array_equal(pb.jit(lambda x: x * x)(TINY), TINY * TINY)


@needs_mode
def test_flushed_results_are_zeros_with_their_sign() -> None:
    found = pb.jit(lambda x: x * np.abs(x), flush_subnormals=True)(TINY)
    np.testing.assert_array_equal(found, np.array([0.0, -0.0, 1.0], np.float32))
    np.testing.assert_array_equal(np.signbit(found), [False, True, False])


@needs_mode
def test_flushed_operands_are_zeros() -> None:
    scaled = pb.jit(lambda x: x * np.float32(1e20), flush_subnormals=True)
    np.testing.assert_array_equal(
        scaled(np.array([1e-40, 1e-30], np.float32)), np.array([0, 1e-10], np.float32)
    )


@needs_mode
def test_threads_are_given_back_as_they_were() -> None:
    before = get_num_threads()
    try:
        set_num_threads(3)
        rows = np.full((3000, 400), 1e-20, np.float32)
        assert not pb.jit(lambda x: x * x, flush_subnormals=True)(rows).any()
        np.testing.assert_array_equal(pb.jit(lambda x: x * x)(rows), rows * rows)
        assert (rows * rows).all()
    finally:
        set_num_threads(before)


@needs_mode
def test_functions_out_of_the_program_keep_them() -> None:
    def square(x: np.ndarray) -> np.ndarray:
        return x * x

    called = pb.jit(
        lambda x: pb.pure_callback(square, TINY, x) * np.float32(1.0) + x * x,
        flush_subnormals=True,
    )
    seen = []

    def noted(x: np.ndarray) -> np.ndarray:
        seen.append(x * x)
        return x

    noting = pb.jit(lambda x: pb.pure_callback(noted, TINY, x) * x, flush_subnormals=True)
    np.testing.assert_array_equal(noting(TINY)[:2], 0)
    np.testing.assert_array_equal(seen[0], TINY * TINY)
    np.testing.assert_array_equal(called(TINY)[:2], 0)


@needs_mode
def test_a_c_function_flushes_and_gives_its_thread_back() -> None:
    function = pb.jit(lambda x: x * x, flush_subnormals=True).c_function(np.float32(1.0)).ctypes
    assert function(1e-20) == 0
    assert function(0.5) == 0.25
    assert (TINY * TINY).all()


@needs_mode
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="a system without timers")
@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are the first thread's"
)
def test_handlers_of_signals_keep_them() -> None:
    """A step that takes long enough lets Python handle its signals in its middle."""
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append((TINY * TINY).all()))
    step = pb.jit(lambda x: (np.sin(x[:, None] * x) @ x, x * x), flush_subnormals=True)
    x = np.full(5000, 1e-20, np.float32)
    step(x)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.01)
        while len(seen) < 20:
            assert not step(x)[1].any()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all(seen)


@needs_mode
def test_loops_flush_in_every_turn() -> None:
    def vanishing(x):
        return pb.scan(lambda c, _: (c * np.float32(1e-3), c), x, None, length=20)

    last, seen = pb.jit(vanishing, flush_subnormals=True)(np.float32(1.0))
    assert last == 0 and not ((seen != 0) & (seen < np.finfo(np.float32).tiny)).any()
    last, seen = pb.jit(vanishing)(np.float32(1.0))
    assert ((seen != 0) & (seen < np.finfo(np.float32).tiny)).any()


FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "arcsin", "arctan", "sinh",
    "cosh", "tanh", "arcsinh", "arctanh", "square", "reciprocal", "sign", "absolute", "sigmoid", "softplus", "gelu",
    "relu",
)  # fmt: skip


@needs_mode
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_subnormal_numbers(name: str) -> None:
    """They are those of zero, to the sign, or those of the number itself."""
    least = np.finfo(np.float32).smallest_subnormal
    x = np.array([least, -least, 1000 * least, -1000 * least], np.float32)
    function = getattr(pb.numpy, name)
    with np.errstate(all="ignore"):
        exact = pb.trace(function, x).evaluate([x])
        of_zero = pb.trace(function, x).evaluate([np.copysign(np.float32(0), x)])
    found = pb.jit(function, flush_subnormals=True)(x)
    found[np.abs(found) < np.finfo(np.float32).tiny] = (
        0  # what is handed on as it is counts as zero further on
    )
    near = np.isclose(found, of_zero, rtol=1e-6, atol=0, equal_nan=True)
    near |= np.isclose(found, exact, rtol=1e-6, atol=0, equal_nan=True)
    assert near.all(), (found, of_zero, exact)


def test_other_processors() -> None:
    """What is written for each architecture; where there is no mode, nothing is."""
    texts = {}
    for architecture in ("x86_64", "aarch64", "riscv64"):
        module = Module()
        f = module.function("region", [])
        target = replace(Processor(architecture, "", architecture, 16, 16), flush_subnormals=True)
        end = switched(f, target)
        with unflushed(f, target):
            f.do("call void @other()")
        end()
        texts[architecture] = module.text(), mode_functions(architecture)
    for text, count in zip(texts["x86_64"], (4, 2)):
        assert text.count("call void @llvm.x86.sse.ldmxcsr") == count
    for text, count in zip(texts["aarch64"], (4, 2)):
        assert text.count("call void @llvm.aarch64.set.fpcr") == count
    assert not any("call void @llvm" in text for text in texts["riscv64"])


def test_programs_of_both_kinds_are_kept_apart() -> None:
    host = Processor.host()
    assert host.key != replace(host, flush_subnormals=True).key
