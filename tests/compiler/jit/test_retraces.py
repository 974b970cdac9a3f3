"""Static arguments by name, how often and why a function is compiled, and when it is not."""

import logging
import threading
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.jit.retraces import MANY_SHAPES
from pullback.errors import DonationError, RetraceError, TreeError

X = np.array([1.0, 2.0, 3.0])


def powers(x: Any, n: int = 1, *, kind: str = "sum", scale: Any = 1.0) -> Any:
    found = x**n * scale
    return found.sum() if kind == "sum" else found


def test_static_names():
    compiled = pb.jit(powers, static_argnames=("n", "kind"))
    for _ in range(3):  # by Python first, then by compiled code
        assert compiled(X, 2) == 14.0
        assert compiled(X, n=2) == 14.0
        assert compiled(X, n=3, kind="sum") == 36.0
        np.testing.assert_array_equal(compiled(X, 2, kind="all", scale=2.0), [2.0, 8.0, 18.0])
        np.testing.assert_array_equal(compiled(X, scale=2.0, kind="all", n=2), [2.0, 8.0, 18.0])
    assert compiled.traces == 5
    one = pb.jit(powers, static_argnames="kind")
    np.testing.assert_array_equal(one(X, 2.0, kind="all"), X**2)
    np.testing.assert_array_equal(
        pb.jit(lambda x, **more: x * len(more["a"]), static_argnames="a")(X, a="ab"), 2 * X
    )
    slope = pb.jit(pb.grad(powers), static_argnames="n")(X, n=2)
    np.testing.assert_array_equal(slope, 2 * X)


def test_static_names_that_are_none():
    with pytest.raises(TreeError, match="the function has no parameter 'm'; it has x, n, kind, scale"):
        pb.jit(powers, static_argnames="m")
    with pytest.raises(TreeError, match="3 is no name"):
        pb.jit(powers, static_argnames=("n", 3))
    with pytest.raises(DonationError, match="argument 0 is static and donated"):
        pb.jit(powers, donate_argnums=0, static_argnames="x")
    with pytest.raises(TreeError, match="static value that cannot be compared"):
        pb.jit(powers, static_argnames="kind")(X, kind=["sum"])


def test_many_sizes_are_worth_a_warning(caplog):
    compiled = pb.jit(lambda x, y: np.sum(x) * y)
    with caplog.at_level(logging.WARNING, "pullback.jit"):
        for n in range(2, MANY_SHAPES + 1):
            compiled(np.ones((3, n)), 1.0)
        compiled(np.ones((3, 2), np.float32), 1.0)  # another dtype is no size
        compiled(np.ones(3), 1.0)
        assert not caplog.records
        compiled(np.ones((3, 40)), 1.0)
        (record,) = caplog.records
        told = record.getMessage()
        assert "is compiled for the 16th time, once for each size of its arguments" in told
        assert "arg0 has had 16 sizes along axis 1, from 2 to 40; pad" in told
        for n in range(41, 41 + MANY_SHAPES - 1):
            compiled(np.ones((3, n)), 1.0)
        assert len(caplog.records) == 1
        compiled(np.ones((3, 99)), 1.0)
        assert "for the 32nd time" in caplog.records[1].getMessage()


def test_a_limit_of_programs_says_what_is_new():
    compiled = pb.jit(powers, max_traces=1, static_argnames="n")
    for _ in range(3):
        compiled(X, 2)
    with pytest.raises(
        RetraceError, match=r"powers would be compiled for the 2nd time, and max_traces is 1: arg0 is "
    ):
        compiled(np.ones(4), 2)
    with pytest.raises(RetraceError, match=r"float32\[3\], it was float64\[3\]"):
        compiled(np.ones(3, np.float32), 2)
    with pytest.raises(RetraceError, match=r"another structure, at 0\.1: 2 against 3"):
        compiled(X, 3)
    with pytest.raises(RetraceError, match=r"another structure, at 1"):
        compiled(X, 2, scale=1.0)
    assert compiled.traces == 1 and compiled(X, 2) == 14.0
    weak = pb.jit(lambda x: x * 2, max_traces=1)
    weak(1.0)
    with pytest.raises(RetraceError, match=r"arg0 is float64\[\], it was float64\[\], a Python number"):
        weak(np.float64(1.0))
    for wrong in (0, True, 1.5):
        with pytest.raises(TreeError, match="max_traces"):
            pb.jit(powers, max_traces=wrong)


def test_the_nearest_call_is_told_of(caplog: Any):
    compiled = pb.jit(lambda *x: sum(part.sum() for part in x))
    with caplog.at_level(logging.INFO, "pullback.jit"):
        compiled(np.ones(3), np.ones(4))
        compiled(np.ones(5), np.ones(6))
        compiled(np.ones(3), np.ones(6))
        compiled(*[np.ones(2)] * 5)
        compiled(*[np.ones(1)] * 5)
    first, second, third, fourth = (record.getMessage() for record in caplog.records)
    assert first.endswith(
        "compiled for the 2nd time: arg0 is float64[5], it was float64[3]; arg1 is float64[6], it was float64[4]"
    )
    assert second.endswith("3rd time: arg0 is float64[3], it was float64[5]")
    assert "4th time: the arguments have another structure" in third
    assert fourth.endswith("; and 2 more")


def test_disabled_functions_are_python():
    seen: list[type] = []

    @pb.jit
    def double(x: Any) -> Any:
        seen.append(type(x))
        return 2 * x

    for _ in range(3):
        double(X)
    seen.clear()
    with pb.disable_jit():
        assert double(X) is not X
        with pb.disable_jit():
            double(X)
        np.testing.assert_array_equal(double(X), 2 * X)
    assert seen == [np.ndarray] * 3
    np.testing.assert_array_equal(double(X), 2 * X)
    np.testing.assert_array_equal(double(X), 2 * X)
    assert len(seen) == 3 and double.traces == 1

    @pb.disable_jit()
    def decorated() -> Any:
        return double(X)

    decorated()
    assert len(seen) == 4


def test_nothing_is_donated_where_jit_is_disabled():
    update = pb.jit(lambda x, n: x + n, donate_argnums=0, static_argnums=1)
    x = X.copy()
    with pb.disable_jit():
        assert update(x, 2).tolist() == [3.0, 4.0, 5.0]
    np.testing.assert_array_equal(x, X)


def test_other_threads_stay_compiled():
    seen: list[type] = []

    @pb.jit
    def double(x: Any) -> Any:
        seen.append(type(x))
        return 2 * x

    def elsewhere() -> None:
        for _ in range(3):
            double(X)

    double(X)
    with pb.disable_jit():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert len(seen) == 1
        double(X)
        assert seen[1:] == [np.ndarray]
