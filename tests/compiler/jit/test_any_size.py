"""Programs for every size of a named axis: what they compute, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import (
    DonationError,
    IndexRangeError,
    NamedAxisError,
    NaNError,
    RetraceError,
    TracingError,
)
from pullback.tracing.trees import flatten

SIZES = (1, 2, 3, 8, 9, 33)
W = np.random.default_rng(7).uniform(-1, 1, (4, 3))
KEY = pb.random.key(1)
ROWS = {"x": ("batch", 4)}


def rows(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, size]).uniform(-2, 2, (size, 4))


def labels(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 4, size)


def assert_same(
    function: Callable[..., Any], arguments: Callable[[int], Sequence[Any]], **shapes: Any
) -> None:
    """The program for any size gives what the program for each size does."""
    named, plain = pb.jit(function, shapes=shapes or ROWS), pb.jit(function)
    for size in SIZES:
        found, structure = flatten(named(*arguments(size)))
        wanted, expected = flatten(plain(*arguments(size)))
        assert structure == expected
        for one, other in zip(found, wanted):
            assert (np.shape(one), np.asarray(one).dtype, type(one)) == (
                np.shape(other),
                other.dtype,
                type(other),
            )
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=f"{size} rows")
    assert named.traces == 4  # of one row, up to 8, up to 16, up to 64


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "mean": lambda x: x.mean(axis=0),
    "variance": lambda x: np.var(x, axis=0),
    "count by hand": lambda x: np.sqrt((x**2).sum(axis=0) / x.shape[0]) * x.size,
    "bytes": lambda x: x.sum(axis=0) * x.nbytes,
    "norm of NaN beyond": lambda x: np.linalg.norm(np.log(np.abs(x) + 0.5)),
    "infinite beyond": lambda x: (1 / x).sum(axis=0) + (1 / x[:, :1] * x).max(axis=0),
    "softmax": lambda x: nn.softmax(x @ W),
    "products": lambda x: (x.T @ x, x @ x.T, np.einsum("bi,bj->ij", x, 1 / x)),
    "two layouts": lambda x: {"t": (x @ W).T, "flat": x.reshape(-1), "pairs": x.reshape(-1, 2)},
    "extremes": lambda x: (x.max(), x.min(axis=0), x.argmax(axis=0), x.argmin(axis=0), (x > 3).any(axis=0)),
    "order": lambda x: (np.sort(x, axis=0), np.argsort(-x, axis=0), np.cumsum(x, axis=0)),
    "counting": lambda x: pb.numpy.arange(x.shape[0])[:, None] * x + pb.numpy.zeros(x.shape),
    "in place": lambda x: np.add(y := np.zeros_like(x), x, out=y)[0],
    "shape known": lambda x: x if x.shape[0] > 1 and x.shape == x.shape and x.shape[0] else 2 * x,
    "matrices": lambda x: np.linalg.inv(x[:, :2, None] * x[:, None, :2] + 9 * np.eye(2)),
    "examples": pb.vmap(lambda x: np.sin(x).sum() * x),
    "scan": lambda x: pb.scan(lambda c, t: (np.tanh(c + t * x[:, 0]), c.mean()), x[:, 1], np.arange(4.0)),
    "branch": lambda x: pb.cond(x.sum() > 0, lambda v: v.mean() * v.shape[0], lambda v: v.sum(), x),
    "loop": lambda x: pb.while_loop(lambda c: np.abs(c).sum() > 1.0, lambda c: c * 0.5, x),
    "long loop": lambda x: [x := np.sin(x) + x.mean(axis=0) for _ in range(60)][-1],
    "checkpoint": pb.checkpoint(lambda x: np.sin(x).mean(axis=0)),
    "distances": lambda x: (
        x * pb.numpy.linspace(0, 1, x.shape[0])[:, None],
        pb.numpy.linspace(x.min(), x[-1], 2 * x.shape[0] + 1, endpoint=False),
        x[:, 0] * pb.numpy.fft.fftfreq(x.shape[0], 0.5),
    ),
    "diagonals": lambda x: (
        (x @ x.T + pb.numpy.eye(x.shape[0])) @ pb.numpy.tri(x.shape[0], k=-1),
        np.where(pb.numpy.eye(x.shape[0], dtype=bool), 0, x @ x.T).sum(axis=1),
        pb.numpy.identity(x.shape[0], np.float32),
    ),
    "chosen": lambda x: pb.random.choice(KEY, x.shape[0], (3,)),
    "draws": lambda x: x * pb.random.normal(KEY, x.shape) + pb.random.bernoulli(KEY, 0.5, x.shape),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str) -> None:
    assert_same(FUNCTIONS[name], lambda size: [rows(size)])


@pytest.mark.parametrize(
    "name", ["mean", "variance", "softmax", "count by hand", "examples", "scan", "branch", "checkpoint"]
)
def test_gradients(name: str) -> None:
    def total(x: Any) -> Any:
        return sum((np.sin(leaf).sum() for leaf in flatten(FUNCTIONS[name](x))[0]), 0.0)

    assert_same(pb.grad(total), lambda size: [rows(size)])


def test_the_gradient_of_a_network_of_labels() -> None:
    def loss(w: Any, x: Any, y: Any) -> Any:
        return nn.softmax_cross_entropy(np.tanh(x @ w["a"]) @ w["b"], y)

    weights = {"a": W, "b": W.T}
    assert_same(
        pb.value_and_grad(loss),
        lambda size: [weights, rows(size), labels(size)],
        x=("batch", 4),
        y=("batch",),
    )


def test_rows_of_tables_and_of_themselves() -> None:
    def picked(table: Any, x: Any, y: Any) -> Any:
        own = x[pb.numpy.arange(x.shape[0]), y]
        return table[y], own, np.take_along_axis(x, y[:, None], 1), pb.at(table)[y].add(x[:, :3])

    assert_same(picked, lambda size: [W, rows(size), labels(size)], x=("batch", 4), y=("batch",))


def test_a_tree_whose_leaves_share_an_axis() -> None:
    def total(data: Any, scale: Any) -> Any:
        return scale * (data["x"].sum(axis=1) * data["y"]).mean()

    given = lambda size: [{"x": rows(size), "y": rows(size, 1)[:, 0]}, 2.0]  # noqa: E731
    assert_same(total, given, data=("batch", ...))
    assert_same(total, given, **{"data.x": ("batch", 4), "data.y": ("batch",)})


def test_two_names() -> None:
    def kernel(x: Any, y: Any) -> Any:
        return np.exp(-((x[:, None] - y[None]) ** 2).sum(axis=-1)).sum(axis=0)

    named = pb.jit(kernel, shapes={"x": ("here", 4), "y": ("there", 4)})
    for n, m in ((2, 7), (8, 2), (5, 9)):
        np.testing.assert_allclose(named(rows(n), rows(m, 1)), kernel(rows(n), rows(m, 1)), rtol=1e-12)
    assert named.traces == 2


def test_no_rows() -> None:
    named = pb.jit(lambda x: (x * 2, x.sum(axis=0)), shapes=ROWS)
    double, total = named(rows(0))
    assert double.shape == (0, 4)
    assert not total.any()
    with pytest.raises(NamedAxisError):  # as for all sizes, though this one would be possible
        pb.jit(lambda x: pb.pure_callback(np.sin, x, x), shapes=ROWS)(rows(0))


def test_first_rows_of_fewer() -> None:
    named = pb.jit(lambda x: x[:5] * 2, shapes=ROWS)
    assert [named(rows(size)).shape[0] for size in (3, 5, 6, 20)] == [3, 5, 5, 5]


def test_known_rows_of_fewer() -> None:
    pick = pb.jit(lambda x: x[np.array([0, 4])], shapes=ROWS)
    np.testing.assert_array_equal(pick(rows(7)), rows(7)[[0, 4]])
    with pytest.raises(IndexRangeError, match="index 4 is outside axis 0"):
        pick(rows(3))
    with pytest.raises(NamedAxisError, match="selects rows by number"):
        pb.jit(lambda x, i: x[i], shapes=ROWS)(rows(9), np.array([3, 8]))


def test_results_are_the_callers_own() -> None:
    named = pb.jit(lambda x: (x, x + 1), shapes=ROWS)
    for size in (5, 8):
        given = rows(size)
        for found in named(given):
            assert found.flags.c_contiguous
            found[...] = 0
        np.testing.assert_array_equal(given, rows(size))


def test_bits_follow_from_the_arguments_alone() -> None:
    first, second = (pb.jit(lambda x: (x @ W).sum(axis=0), shapes=ROWS) for _ in range(2))
    for size in (5, 30, 100):
        first(rows(size))
    for size in (100, 5, 30):
        assert first(rows(size)).tobytes() == second(rows(size)).tobytes()


def test_donated_weights() -> None:
    step = pb.jit(lambda w, x: (w - x.mean(axis=0), w.sum()), donate_argnums=0, shapes=ROWS)
    weights = np.ones(4)
    updated, _ = step(weights, rows(5))
    assert updated is weights
    np.testing.assert_allclose(weights, 1 - rows(5).mean(axis=0))


def momentum(x: Any, state: Any, rows: Any) -> Any:
    state = {"velocity": 0.5 * state["velocity"] + rows.mean(axis=0), "turn": state["turn"] + 1}
    return np.where(x > 100, x, np.log(x) + state["velocity"]), state, x.sum()


def test_donated_rows() -> None:
    shapes = {"x": ("batch", 4), "rows": ("batch", 4)}
    step = pb.jit(momentum, donate_argnums=(0, 1), shapes=shapes)
    plain = pb.jit(momentum)
    for size in (1, 5, 8, 9):
        x, state = np.abs(rows(size)) + 0.1, {"velocity": np.ones(4), "turn": np.array(0)}
        wanted, _, total = plain(x, state, rows(size, 1))
        updated, after, found = step(x, state, rows(size, 1))
        assert updated is x
        assert after["velocity"] is state["velocity"]
        np.testing.assert_allclose(x, wanted, rtol=1e-12)
        np.testing.assert_allclose(found, total, rtol=1e-12)
        if size > 1:
            for bad in (x.T.copy().T, np.broadcast_to(x[:1], x.shape)):
                with pytest.raises(DonationError, match="updated in place"):
                    step(bad, state, rows(len(bad), 1))
    with pytest.raises(DonationError, match="share memory"):
        step(x, state, x)
    np.testing.assert_allclose(x, wanted, rtol=1e-12)


def test_steps_of_any_size() -> None:
    """The padding of a donated argument is what the step before has left there: NaN, of logarithms of zeros."""
    shapes = {"x": ("batch", 4), "rows": ("batch", 4)}
    for size in (1, 5, 8, 11):
        runs = []
        for named in (shapes, None):
            step = pb.jit(momentum, donate_argnums=(0, 1), shapes=named)
            x, state = np.abs(rows(size)) + 9.0, {"velocity": np.ones(4), "turn": np.array(0)}
            given = np.stack([rows(size, seed) for seed in (1, 2, 3)])
            (updated, _, totals), done = step.run_steps((x, state, given), 3, 2)
            assert updated is x
            assert (done, int(state["turn"])) == (3, 3)
            runs.append((x, totals, state["velocity"]))
        for one, other in zip(*runs):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_runs_that_keep_rows_of_each_step() -> None:
    def step(w: Any, x: Any) -> Any:
        return w + x.mean(axis=0), x * w

    named = pb.jit(step, donate_argnums=0, shapes=ROWS)
    for size in (3, 7, 20):
        given = np.stack([rows(size, seed) for seed in (1, 2)])
        (_, kept), _ = named.run_steps((np.ones(4), given), 2, 1)
        (_, wanted), _ = pb.jit(step, donate_argnums=0).run_steps((np.ones(4), given), 2, 1)
        np.testing.assert_allclose(kept, wanted, rtol=1e-12)
    assert named.traces == 2


def test_sums_of_products_along_axes_of_any_size() -> None:
    """Orders of products are compared by costs, for which there are no arrays as long as what stands for a size."""
    w, v = np.random.default_rng(0).normal(size=(2, 1024, 3))
    named = pb.jit(lambda x: np.einsum("btj,jk,lk->btl", x, w, v), shapes={"x": ("batch", "time", 1024)})
    for size in (3, 9):
        x = np.random.default_rng(size).normal(size=(size, 5, 1024))
        np.testing.assert_allclose(named(x), x @ w @ v.T, rtol=1e-9, atol=1e-9)
    assert named.traces == 2
    with pytest.raises(
        TracingError, match=r"(?s)einsum: optimize='any'.*give True, False.*test_any_size.py:\d+"
    ):
        pb.jit(lambda x: np.einsum("bj,jk,lk->bl", x, w, v, optimize="any"))(np.ones((2, 1024)))


def test_what_the_repair_of_top_k_says() -> None:
    values, places = pb.jit(lambda x: (-np.sort(-x, axis=0)[:2], np.argsort(-x, axis=0)[:2]), shapes=ROWS)(
        rows(9)
    )
    wanted = pb.top_k(rows(9), 2, axis=0)
    np.testing.assert_array_equal(values, wanted[0])
    np.testing.assert_array_equal(places, wanted[1])


def added(x: Any, at: Any) -> Any:
    x = x.copy()
    np.add.at(x, at, 1.0)
    return x


REFUSED: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "rows by number": (lambda x: x[x[:, 0].astype(int)], NamedAxisError, "selects rows by number"),
    "rows taken": (
        lambda x: np.take(x, x[:, 0].astype(int), 0), NamedAxisError, r"axis 0 of shape \(batch, 4\): int64\[batch\]"
    ),
    "rows added to": (lambda x: added(x, np.argmax(x[0])[None]), NamedAxisError, r"axis 0 of .*: int64\[1\] selects"),
    "largest": (
        lambda x: pb.top_k(x, 2, axis=0), NamedAxisError, r"top_k of float64\[batch, 4\] .*-np.sort\(-x, axis=0\)\[:2\]"
    ),
    "reflected": (
        lambda x: np.pad(x[:, 0], (3, 2), "reflect", reflect_type="odd"), NamedAxisError, "NumPy itself was to make"
    ),
    "left out": (lambda x: np.delete(x[:, 0], 2), NamedAxisError, "is made while the function is traced"),
    "rounds": (
        lambda x: pb.associative_scan(np.add, x), NamedAxisError, r"associative_scan of float64\[batch, 4\] .* pb.scan"
    ),
    "steps in segments": (
        lambda x: pb.scan(lambda c, r: (c + r, None), x[0], x, checkpoint="sqrt")[0],
        NamedAxisError,
        "leave checkpoint= out",
    ),
    "host": (
        lambda x: pb.pure_callback(np.sin, x, x), NamedAxisError, "leave the axis out of shapes="
    ),
    "vander": (lambda x: np.vander(x[:, 0]), NamedAxisError, "an operation for each"),
    "polyval": (lambda x: np.polyval(x[:, 0], 2.0), NamedAxisError, "an operation for each"),
    "poly": (lambda x: pb.numpy.poly(x[:, 0]), NamedAxisError, "an operation for each"),
    "NumPy's poly": (lambda x: np.poly(x[:, 0]), TracingError, "axis batch element by element"),
    "half": (lambda x: np.split(x, 2)[0], NamedAxisError, "2 equal parts, which not every size has"),
    "every second": (lambda x: x[::2], NamedAxisError, r"float64\[…, 4\]: an axis that is no multiple"),
    "frequencies": (lambda x: np.fft.fftfreq(x.shape[0]), TracingError, "pullback.numpy.fft.fftfreq"),
    "chosen once": (
        lambda x: pb.random.choice(KEY, x.shape[0], (3,), replace=False), TracingError, "replace=True"
    ),
    "len": (lambda x: x / len(x), TracingError, r"use x.shape\[0\]"),
    "range": (lambda x: sum(x[i] for i in range(x.shape[0])), TracingError, "pullback.numpy.arange"),
    "iteration": (lambda x: sum(row for row in x), TracingError, "all rows at once"),
    "float": (lambda x: x / float(x.shape[0]), TracingError, "use n itself in arithmetic"),
    "arange": (lambda x: np.arange(x.shape[0]), TracingError, r"pullback.numpy.arange\(n\)"),
    "zeros": (lambda x: np.zeros(x.shape[0]) + x[:, 0], TracingError, r"pullback.numpy.zeros\(n\)"),
    "zeros of a shape": (lambda x: np.zeros(x.shape) + x, TracingError, r"pullback.numpy.zeros\(n\)"),
    "branch on a layer's": (
        lambda x: x if nn.max_pool(x[:, None], 1).shape[0] > 10 else -x, TracingError, "choose with np.where"
    ),
    "branch": (lambda x: x if x.shape[0] > 10 else -x, TracingError, "choose with np.where"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    function, error, says = REFUSED[name]
    with pytest.raises(error, match=rf"(?s){says}.*test_any_size.py:\d+"):
        pb.jit(function, shapes=ROWS)(rows(5))


def test_sizes_that_differ() -> None:
    both = pb.jit(lambda x, y: x.sum() + y.sum(), shapes={"x": ("n", None), "y": ("n",)})
    with pytest.raises(NamedAxisError, match="axis 'n' has 5 rows in x and 3 in y"):
        both(rows(5), np.ones(3))
    with pytest.raises(NamedAxisError, match=r"y is float64\[3, 4\], and shapes= says \(n,\)"):
        both(rows(3), rows(3))
    with pytest.raises(NamedAxisError, match=r"x is float64\[5, 4\], and shapes= says \(batch, 3\)"):
        pb.jit(lambda x: x, shapes={"x": ("batch", 3)})(rows(5))


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"z": ("n", 4)}, "'z'; the function has the parameters x"),
        ({"x": "n"}, "give a tuple of its axes"),
        ({"x": (4,)}, "names no axis"),
        ({"x": ("n", 1.5)}, "1.5 is no axis"),
        ({}, "names no axis"),
    ],
)
def test_what_shapes_cannot_say(shapes: Any, says: str) -> None:
    with pytest.raises(NamedAxisError, match=says):
        pb.jit(lambda x: x, shapes=shapes)


def test_an_index_outside_is_one_of_the_rows() -> None:
    pick = pb.jit(lambda table, i: table[i], shapes={"i": ("n",)})
    np.testing.assert_array_equal(pick(W, np.array([0, 1, 3])), W[[0, 1, 3]])
    with pytest.raises(IndexRangeError, match="4"):
        pick(W, np.array([0, 4, 3]))


def test_what_goes_with_it() -> None:
    logarithm = pb.jit(np.log, check_nan=True, shapes=ROWS)
    assert np.isfinite(logarithm(np.ones((5, 4)))).all()
    with pytest.raises(NaNError, match="log"):
        logarithm(-np.ones((5, 4)))
    few = pb.jit(lambda x: 2 * x, max_traces=1, shapes=ROWS)
    assert (few(rows(5)).shape, few(rows(7)).shape) == ((5, 4), (7, 4))
    with pytest.raises(RetraceError):
        few(rows(9))
    assert pb.jit(lambda x: np.tanh(x @ x.T).sum(), memory="1MB", shapes=ROWS)(rows(5)).shape == ()
    assert "batch" in pb.jit(lambda x: 2 * x, shapes=ROWS).inspect(rows(5)).graph


def test_c_functions_have_no_sizes() -> None:
    with pytest.raises(NamedAxisError, match=r"double is compiled with shapes=.*jit\(double\).c_function"):
        named_double().c_function(rows(5))
    with pytest.raises(NamedAxisError, match="C functions have arrays of the sizes"):
        _ = named_double().address


def named_double() -> Any:
    def double(x: Any) -> Any:
        return 2 * x

    return pb.jit(double, shapes=ROWS)


def test_chunks_beyond_the_size() -> None:
    """Whole chunks of rows are padding: results are those of a program for the size, with any number of threads."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        return nn.softmax_cross_entropy(nn.relu(x @ w["a"]) @ w["b"], y)

    random = np.random.default_rng(0)
    weights = {"a": random.uniform(-1, 1, (200, 64)), "b": random.uniform(-1, 1, (64, 4))}
    slopes = pb.value_and_grad(loss)
    named, plain = pb.jit(slopes, shapes={"x": ("batch", 200), "y": ("batch",)}), pb.jit(slopes)
    threads = pb.get_num_threads()
    for size in (96, 65, 70, 129):
        arguments = weights, random.uniform(-1, 1, (size, 200)), labels(size)
        wanted = flatten(plain(*arguments))[0]
        found = []
        for count in (1, 3):
            pb.set_num_threads(count)
            found.append(flatten(named(*arguments))[0])
        pb.set_num_threads(threads)
        for one, several, other in zip(*found, wanted):
            assert np.array_equal(one, several)
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert named.traces == 2


@pytest.mark.parametrize("value", [0.5, np.inf, np.nan])
def test_slopes_of_grouped_convolutions_along_the_axis(value: float) -> None:
    """Beyond the size nothing is multiplied, which matters where what is there meets infinity or NaN alone."""

    def slopes(x: Any, w: Any) -> Any:
        return pb.grad(lambda x, w: np.sum(nn.conv(np.tanh(x), w, padding=1, groups=2)), (0, 1))(x, w)

    named, plain = pb.jit(slopes, shapes={"x": (None, None, "length")}), pb.jit(slopes)
    w = np.ones((4, 1, 2), np.float32)
    w[2, 0, 1] = value
    for size in (3, 5, 8, 11):
        x = np.random.default_rng(size).uniform(-1, 1, (1, 2, size)).astype(np.float32)
        for given in (x, np.where(x == x.max(), np.float32(value), x)):
            for one, other in zip(named(given, w), plain(given, w), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
