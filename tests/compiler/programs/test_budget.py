"""Budgets of memory: met by the program as it is compiled, with no more run again than that takes, or refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.programs.budget import budget_bytes
from pullback.errors import MemoryBudgetError

Array = Any
W, XS = (
    np.random.default_rng(3).normal(size=(32, 32)) * 0.1,
    np.random.default_rng(4).normal(size=(300, 8, 32)),
)


def step(h: Array, x: Array, w: Array) -> Any:
    h = np.tanh(np.sin(h @ w) + x)
    return h, None


def loss(w: Array, xs: Array) -> Array:
    return (pb.scan(lambda h, x: step(h, x, w), np.zeros_like(xs[0]), xs)[0] ** 2).sum()


def short_and_long(w: Array, xs: Array) -> Array:
    h, _ = pb.scan(lambda h, x: step(h, x, w), np.zeros_like(xs[0]), xs[:10])
    h = pb.fori_loop(0, 300, lambda i, h: step(h, h, w)[0], h)
    return (h**2).sum()


def taken(compiled: Any, *arguments: Array) -> int:
    """What the compiled program has of its own."""
    return int(compiled.memory_bytes(*arguments))


def of_error(memory: Any, function: Any = loss) -> Any:
    with pytest.raises(MemoryBudgetError) as caught:
        pb.jit(pb.grad(function, (0, 1)), memory=memory)(W, XS)
    return caught.value


def test_a_budget_is_met_by_what_is_compiled() -> None:
    gradient = pb.value_and_grad(loss, (0, 1))
    plain = pb.jit(gradient)
    wanted, most = plain(W, XS), taken(plain, W, XS)
    for budget in (most, most // 3, most // 10):
        compiled = pb.jit(gradient, memory=budget)
        (value, (of_w, of_xs)) = compiled(W, XS)
        assert taken(compiled, W, XS) <= budget
        np.testing.assert_allclose(value, wanted[0], rtol=1e-12)
        np.testing.assert_allclose(of_w, wanted[1][0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(of_xs, wanted[1][1], rtol=1e-9, atol=1e-12)
    assert taken(pb.jit(gradient, memory=most), W, XS) == most


def test_the_least_is_told_and_can_be_had() -> None:
    error = of_error("20kB")
    least = int(re.search(r"\(([\d,]+) bytes\) at least", str(error))[1].replace(",", ""))  # type: ignore[index]
    compiled = pb.jit(pb.grad(loss, (0, 1)), memory=least)
    compiled(W, XS)
    assert taken(compiled, W, XS) <= least
    assert "scan of 300 steps at" in str(error)
    assert "segments of" in str(error)
    assert f"({least:,} bytes) at least" in str(of_error(least - 1))


def test_what_was_decided_once_is_not_searched_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path))
    gradient = pb.grad(short_and_long)
    budget = pb.jit(gradient).memory_bytes(W, XS) // 3
    first = pb.jit(gradient, memory=budget).inspect(W, XS)
    monkeypatch.setattr("pullback.compiler.programs.budget.needed", None)
    again = pb.jit(gradient, memory=budget).inspect(W, XS)
    assert (first.from_cache, again.from_cache) == (False, True)
    assert again.memory == first.memory
    with pytest.raises(TypeError):
        pb.jit(gradient, memory=budget + 1)(W, XS)


def test_what_is_counted_is_what_the_program_has() -> None:
    compiled = pb.jit(pb.grad(loss))
    compiled(W, XS)
    _, special, _ = compiled._specialised((W, XS), {})
    (instance,) = special.executable.program._instances
    held = sum(memory._end - memory.address for memory in (instance._arena, instance._scratch))
    assert compiled.memory_bytes(W, XS) == held


def test_only_what_must_be_is_run_again() -> None:
    gradient = pb.grad(short_and_long)
    plain = pb.jit(gradient)
    plain(W, XS)
    compiled = pb.jit(gradient, memory=taken(plain, W, XS) // 3)
    report = compiled.inspect(W, XS).memory
    assert "scan of 300 steps" in report
    assert "scan of 10 steps" not in report
    assert "segments of" not in plain.inspect(W, XS).memory


def test_a_program_without_scans() -> None:
    with pytest.raises(MemoryBudgetError, match=r"nothing is run again.*The arguments have"):
        pb.jit(lambda x: np.exp(x @ x.T) @ x, memory=10)(np.ones((50, 50)))


def test_what_a_scan_says_by_itself_stays() -> None:
    def by_hand(w: Array, xs: Array) -> Array:
        h, _ = pb.scan(lambda h, x: step(h, x, w), np.zeros_like(xs[0]), xs, checkpoint=(150,))
        return (h**2).sum()

    assert "nothing is run again" in str(of_error(50_000, by_hand))


@pytest.mark.parametrize("wrong", ["a lot", "12 parsecs", "MB", -1, 1.5, True])
def test_what_is_no_budget(wrong: Any) -> None:
    with pytest.raises(MemoryBudgetError, match=r"is no budget; give bytes.*units are B, kB, MB"):
        pb.jit(loss, memory=wrong)


def test_units() -> None:
    assert [budget_bytes(text) for text in ("1kB", "1KB", "2 MiB", "0.5GB", "7")] == [
        1000,
        1000,
        2 << 20,
        500_000_000,
        7,
    ]
