"""Named axes that are counted from their ends, that are not the first, and that loops run along."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import NamedAxisError
from pullback.tracing.trees import flatten

SIZES = (1, 2, 3, 7, 8, 9, 17)
W = np.random.default_rng(3).uniform(-1, 1, (4, 4))
ROWS, TIMES = {"x": ("rows", 4)}, {"x": (3, "time", 4)}


def rows(size: int) -> np.ndarray:
    return np.random.default_rng(size).uniform(0.5, 2, (size, 4))


def times(size: int) -> np.ndarray:
    return np.random.default_rng(size).uniform(0.5, 2, (3, size, 4))


def cell(state: Any, x: Any) -> Any:
    state = np.tanh(state @ W + x)
    return state, state[..., 0]


def attention(x: Any) -> Any:
    return nn.softmax(x @ np.swapaxes(x, 1, 2)) @ x


def drawn(step: Any, x: Any) -> Any:
    with nn.training(pb.random.key(3)):
        return pb.vmap(nn.Dropout(0.5))(x) if step is None else pb.scan(step, np.ones(4), x)


# Of 1 / x the padding is infinite, and of what is made of it NaN.
OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "last": lambda x: x[-1],
    "last three": lambda x: x[-3:],
    "all but the last": lambda x: x[:-1] * 2,
    "neighbours": lambda x: x[1:] - x[:-1],
    "diff": lambda x: np.diff(x, axis=0),
    "reversed": lambda x: x[::-1],
    "joined": lambda x: np.concatenate([x, 2 * x, np.ones((2, 4)), x]),
    "shifted": lambda x: np.concatenate([np.zeros((1, 4)), x[:-1]]),
    "rolled": lambda x: (np.roll(x, 1, axis=0), np.roll(x, -2, axis=0)),
    "columns one by one": lambda x: x.T.reshape(-1),
    "columns and back": lambda x: np.cumsum(x.T.reshape(-1)).reshape(4, -1).T,
    "padded": lambda x: np.pad(x, ((1, 2), (0, 0))),
    "sums from the end": lambda x: np.cumsum(x[::-1], axis=0)[::-1],
    "trapezoids": lambda x: np.trapezoid(x, axis=0) if hasattr(np, "trapezoid") else np.trapz(x, axis=0),
    "steps": lambda x: pb.scan(cell, np.ones(4), x),
    "steps from the end": lambda x: pb.scan(cell, np.ones(4), x, reverse=True),
    "steps of steps": lambda x: pb.scan(
        lambda c, r: pb.scan(lambda d, s: (d * 0.5 + np.tanh(s), d.sum()), c + r, x), np.ones(4), x
    ),
    "counted steps": lambda x: pb.fori_loop(
        1, 2 * x.shape[0] - 1, lambda i, c: c * 0.5 + np.tanh(x.sum(axis=0)) * i, np.ones(4)
    ),
    "as many steps": lambda x: pb.scan(
        lambda c, _: (c * 0.5 + np.tanh(x.sum(axis=0)), c), np.ones(4), length=x.shape[0]
    ),
    "steps that draw": lambda x: drawn(lambda c, r: (c + nn.Dropout(0.5)(r), c), x),
    "rows that draw": lambda x: drawn(None, x),
    "rows with numbers": pb.vmap(lambda r: r * pb.axis_index("rows"), axis_name="rows"),
    "branches in steps": lambda x: pb.scan(
        lambda c, r: (pb.cond(r.sum() > 4, np.sin, lambda v: v + r, c), c), np.ones(4), x
    ),
    "indices in steps": lambda x: pb.scan(
        lambda c, r: (c + pb.numpy.take(W, (r[0] * 2 - 1).astype(int), 0)[0], c), 1.0, x
    ),
    "matrices in steps": lambda x: pb.scan(
        lambda c, r: (np.linalg.solve(np.diag(r) + 0.1 * W, c + 1), c), np.ones(4), x
    ),
}  # fmt: skip
OF_TIMES: dict[str, Callable[[Any], Any]] = {
    "dense": lambda x: np.tanh(x @ W).sum(axis=1),
    "softmax": lambda x: nn.softmax(x.sum(axis=2)),
    "attention": attention,
    "last": lambda x: x[:, -1],
    "flat": lambda x: (x.reshape(-1, 4) @ W).reshape(x.shape),
    "flat and back": lambda x: np.cumsum(x.reshape(-1, 4), axis=0).reshape(3, -1, 4),
    "rows of all": lambda x: x.reshape(3, -1),
    "largest": lambda x: (x.max(axis=1), x.argmax(axis=1)),
    "normal": lambda x: (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1),
    "recurrent": lambda x: pb.scan(cell, np.ones((3, 4)), np.swapaxes(x, 0, 1)),
    "convolution": lambda x: nn.Conv1d(4, 2, 3, padding=1, seed=0)(np.swapaxes(x, 1, 2)),
    "narrower convolution": lambda x: nn.Conv1d(4, 2, 2, seed=0)(np.swapaxes(x, 1, 2)),
}


def assert_same(function: Callable[..., Any], given: Callable[[int], Any], shapes: Any, most: int) -> None:
    named, plain = pb.jit(function, shapes=shapes), pb.jit(function)
    for size in SIZES:
        if size == 1:
            continue
        found, structure = flatten(named(given(size)))
        wanted, expected = flatten(plain(given(size)))
        assert structure == expected
        for one, other in zip(found, wanted):
            assert (np.shape(one), type(one)) == (np.shape(other), type(other))
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=f"size {size}")
    assert named.traces <= most


@pytest.mark.parametrize("gradient", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", [*OF_ROWS, *(f"{name} in time" for name in OF_TIMES)])
def test_same_as_a_program_for_each_size(name: str, gradient: bool) -> None:
    """Programs for up to 8, 16 and 32 rows; for two and three, a function may be another one."""
    along = name.removesuffix(" in time")
    own = OF_TIMES[along] if along != name else OF_ROWS[name]
    given, shapes = (times, TIMES) if along != name else (rows, ROWS)

    def function(x: Any) -> Any:
        return own(1 / x)

    def total(x: Any) -> Any:
        leaves = [leaf for leaf in flatten(own(1 / x))[0] if leaf.dtype.kind == "f"]
        return sum((np.sin(leaf).sum() for leaf in leaves), 0.0)

    assert_same(pb.grad(total) if gradient else function, given, shapes, 5)


def test_two_axes_of_one_array() -> None:
    def scores(x: Any) -> Any:
        return nn.softmax(np.tanh(1 / x).sum(axis=2)), x.mean(axis=(0, 1)), x[-1, -1]

    named = pb.jit(scores, shapes={"x": ("batch", "time", 4)})
    for n, m in ((2, 7), (8, 2), (5, 9), (3, 3)):
        x = np.random.default_rng(n).uniform(0.5, 2, (n, m, 4))
        for one, other in zip(named(x), scores(x)):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    assert named.traces == 2


RECURRENT = {
    "GRU": nn.GRU(4, 3, seed=0),
    "LSTM in both directions": nn.LSTM(4, 3, layers=2, bidirectional=True, learned_state=True, seed=0),
    "Recurrent": nn.Recurrent(nn.RNNCell(4, 3, seed=0)),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_of_any_number_of_sequences_and_steps(name: str) -> None:
    layer = RECURRENT[name]

    def slope(x: Any) -> Any:
        return pb.grad(lambda layer, x: (layer(1 / x) ** 2).mean(), argnums=(0, 1))(layer, x)

    def ended(x: Any, n: Any) -> Any:
        return layer(1 / x, lengths=n)

    both = pb.jit(slope, shapes={"x": ("batch", "time", 4)})
    several = pb.jit(ended, shapes={"x": ("batch", 6, 4), "n": ("batch",)})
    for n, m in ((2, 7), (5, 6)):
        x = np.random.default_rng(n).uniform(0.5, 2, (n, m, 4)).astype(np.float32)
        for one, other in zip(flatten(both(x))[0], flatten(slope(x))[0]):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        steps = np.arange(n) % 6 + 1
        np.testing.assert_allclose(several(x[:, :6], steps), ended(x[:, :6], steps), rtol=1e-4, atol=1e-6)
    assert (both.traces, several.traces) == (1, 1)


def test_steps_that_are_written_out_have_a_number() -> None:
    with pytest.raises(NamedAxisError, match=r"any number of them. Use nn.Recurrent\(nn.RNNCell"):
        pb.jit(nn.RNN(4, 3, seed=0), shapes=TIMES)(times(5))


# -- What is compared at each size


def test_what_the_trace_for_any_size_cannot_know(caplog: pytest.LogCaptureFixture) -> None:
    """Code that reads extents behind the tracer's back has a program for each size at which it matters."""

    def hidden(x: Any) -> Any:
        rows = x.node.type.shape[0]
        return x * 2 if rows > 10 else -x

    named = pb.jit(hidden, shapes=ROWS)
    with caplog.at_level(logging.INFO, "pullback.jit"):
        for size in (20, 5, 6, 18, 5, 12):
            np.testing.assert_array_equal(named(rows(size)), rows(size) * 2 if size > 10 else -rows(size))
    alone = [record.getMessage() for record in caplog.records if "alone" in record.getMessage()]
    assert len(alone) == 2
    assert "hidden is compiled for rows = 5 alone: multiply at" in alone[0]
    assert "test_named_axes.py" in alone[0]
    assert named.traces == 4  # up to 16 and up to 32 rows, of 5, of 6


@pytest.mark.parametrize(
    "hidden",
    [
        lambda x, n: x * (1.0 / n),
        lambda x, n: x * np.sqrt(n % 97),
        lambda x, n: x + np.arange(n % 89 + 4)[-4:],
        lambda x, n: x[: 3 + n % 2],
        lambda x, n: x.reshape(-1, 4 if n % 2 else 2),
        lambda x, n: np.sum(x, axis=n % 2),
        lambda x, n: pb.scan(lambda c, r: (c + r * (n % 5), None), np.zeros(4), x)[0],
        lambda x, n: pb.cond(x.sum() > 1, lambda v: v * (n % 3), lambda v: v, x),
    ],
    ids=["one over", "root", "numbers", "extent", "shape", "axis", "in a loop", "in a branch"],
)
def test_constants_and_shapes_that_depend_on_the_size(hidden: Callable[[Any, int], Any]) -> None:
    def function(x: Any) -> Any:
        return hidden(
            x, int(getattr(x, "node", x).shape[0] if not hasattr(x, "node") else x.node.type.shape[0])
        )

    named = pb.jit(function, shapes=ROWS)
    for size in (4, 6, 7, 13, 14):
        np.testing.assert_allclose(named(rows(size)), hidden(rows(size), size), rtol=1e-12)


def test_a_size_is_traced_once() -> None:
    traced = []

    def function(x: Any) -> Any:
        traced.append(str(x.shape))
        return x * 2

    named = pb.jit(function, shapes=ROWS)
    for size in (5, 6, 5, 6, 5):
        named(rows(size))
    assert len(traced) == 3
    assert traced[1:] == ["(5, 4)", "(6, 4)"]


def test_errors_of_one_size_are_those_of_the_function() -> None:
    def function(x: Any) -> Any:
        if x.node.type.shape[0] == 6:
            raise KeyError("six")
        return x * 2

    named = pb.jit(function, shapes=ROWS)
    assert named(rows(5)).shape == (5, 4)
    with pytest.raises(KeyError, match="six"):
        named(rows(6))


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("last", [1.5, np.inf, np.nan])
@pytest.mark.parametrize("size", [5, 6, 13])
def test_the_end_of_a_window_of_any_size_meets_no_infinity(size: int, last: float, dtype: Any) -> None:
    """The window of a weight gradient is the cotangent, and a kernel may be as long as its input."""
    random = np.random.default_rng(0)
    x, short, long = (
        random.standard_normal(shape).astype(dtype) for shape in ((2, 3, size), (4, 3, 3), (2, 3, size))
    )
    x[0, 1, -1] = last
    slope = pb.grad(lambda x, w: nn.conv(x, w).real.sum(), 1)
    for function, w, named in (
        (slope, short, {"x": (None, None, "rows")}),
        (lambda x, w: nn.conv(x, w, 1, 2), long, {"x": (None, None, "rows"), "w": (None, None, "rows")}),
    ):
        wanted = pb.trace(function, x, w).evaluate([x, w])
        assert np.isfinite(wanted).any()
        np.testing.assert_allclose(pb.jit(function, shapes=named)(x, w), wanted, rtol=1e-5, atol=1e-5)


def test_second_derivatives_of_strided_convolutions_are_refused_at_once() -> None:
    """Parts of a window as long as a named axis are found without going through it."""
    x, w = np.ones((2, 3, 5, 2)), np.ones((3, 1, 2, 2))

    def slope(x: Any, w: Any) -> Any:
        return sum(
            g.sum() for g in pb.grad(lambda x, w: (nn.conv(x, w, 2, groups=3) ** 3).sum(), (0, 1))(x, w)
        )

    with pytest.raises(NamedAxisError):
        pb.jit(pb.grad(slope, (0, 1)), shapes={"x": (None, None, "rows", None)})(x, w)
