"""Training mode and dropout: who sees it, which keys it gives, and how buffers come out of it."""

import threading

import numpy as np
import pytest

from pullback import (
    checkpoint,
    cond,
    fori_loop,
    grad,
    jit,
    nn,
    random,
    scan,
    trace,
    value_and_grad,
    vmap,
    while_loop,
)
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.control.loops import map as map_loop
from pullback.errors import TracingError, TreeError
from pullback.tracing import buffer, flatten

KEY = random.key(3)
X = np.random.default_rng(0).uniform(1, 2, (60, 40)).astype(np.float32)


class Counter(nn.Module):
    """A layer that counts its calls in training, in a buffer."""

    calls: np.ndarray = buffer()
    weight: np.ndarray

    def __call__(self, x):
        mode = nn.current_training()
        if mode is not None:
            mode.set(self.calls, mode.value(self.calls) + 1)
        return x * self.weight


@pytest.fixture
def counter():
    return Counter(np.zeros(2), np.ones(2))


def dropped(layer, x, key):
    with nn.training(key):
        return layer(x)


@pytest.fixture
def threads():
    """A function that sets the number of threads until the test is over."""
    before = get_num_threads()
    yield set_num_threads
    set_num_threads(before)


def test_dropout_does_nothing_outside_of_training():
    layer = nn.Dropout(0.5)
    assert layer(X) is X
    np.testing.assert_array_equal(jit(layer)(X), X)
    assert dropped(nn.Dropout(0.0), X, KEY) is X


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_expectation(rate):
    ones = np.ones((400, 500), np.float32)
    y = dropped(nn.Dropout(rate), ones, KEY)
    kept = y != 0
    assert y.dtype == np.float32 and np.unique(y).tolist() == [0, np.float32(1 / (1 - rate))]
    deviation = np.sqrt(rate * (1 - rate) / ones.size)
    assert abs(kept.mean() - (1 - rate)) < 4 * deviation
    assert abs(y.mean() - 1) < 4 * deviation / (1 - rate)
    assert np.ptp(kept.mean(axis=0)) < 0.25 and np.ptp(kept.mean(axis=1)) < 0.25


def test_dropout_is_the_same_bits_in_every_form(threads):
    layer = nn.Dropout(0.3)
    expected = dropped(layer, X, KEY)
    np.testing.assert_array_equal(trace(dropped, layer, X, KEY).evaluate([X, KEY]), expected)
    compiled = jit(dropped)
    for number in (1, 2, 3):
        threads(number)
        np.testing.assert_array_equal(compiled(layer, X, KEY), expected)


def test_the_gradient_passes_where_nothing_was_dropped():
    layer = nn.Dropout(0.3)
    found = jit(grad(lambda x, key: dropped(layer, x, key).sum()))(X, KEY)
    np.testing.assert_array_equal(found, np.where(dropped(layer, X, KEY) != 0, np.float32(1 / 0.7), 0))


def test_layers_and_keys_drop_different_elements():
    layer = nn.Dropout(0.5)
    ones = np.ones(1000, np.float32)
    with nn.training(KEY):
        first, second = layer(ones), layer(ones)
    masks = [y != 0 for y in (first, second, dropped(layer, ones, random.key(4)))]
    for a in range(3):
        for b in range(a):
            assert 400 < (masks[a] == masks[b]).sum() < 600
    np.testing.assert_array_equal(first, dropped(layer, ones, KEY))


def collected(loop):
    """What ``layer`` makes of ones in each of five turns of ``loop(body, init)``, one row for each."""

    def rows(layer, x):
        return loop(lambda i, found: found.at[i].set(layer(x)), np.zeros((5, 400), np.float32))

    return rows


LOOPS = {
    "scan": lambda layer, x: scan(lambda carry, _: (carry, layer(x)), 0.0, length=5)[1],
    "scan over rows, reversed": lambda layer, x: scan(
        lambda carry, row: (carry, layer(row)), 0.0, np.tile(x, (5, 1)), reverse=True
    )[1],
    "scan in segments": lambda layer, x: scan(
        lambda carry, _: (carry, layer(x)), 0.0, length=5, checkpoint=(2,)
    )[1],
    "scan whose carry grows": lambda layer, x: scan(
        lambda carry, _: (carry + np.float32(1), layer(x)), 0, length=5
    )[1],
    "fori_loop": collected(lambda body, init: fori_loop(0, 5, body, init)),
    "fori_loop of a traced bound": collected(
        lambda body, init: fori_loop(0, (init[0, 0] + 5).astype(np.int64), body, init)
    ),
    "while_loop": collected(
        lambda body, init: while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, body(*s)), (0, init))[1]
    ),
    "while_loop of at most": collected(
        lambda body, init: while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, body(*s)), (0, init), 7)[1]
    ),
    "map": lambda layer, x: map_loop(layer, np.tile(x, (5, 1))),
    "vmap": lambda layer, x: vmap(layer)(np.tile(x, (5, 1))),
    "vmap of what is the same for all": lambda layer, x: vmap(lambda _: layer(x))(np.arange(5)),
    "vmap of a scan": lambda layer, x: vmap(
        lambda _: scan(lambda carry, _: (carry, layer(x)), 0.0, length=3)[1]
    )(np.arange(2)).reshape(6, 400),
    "scan of a checkpoint": lambda layer, x: scan(
        lambda carry, _: (carry, checkpoint(layer)(x)), 0.0, length=5
    )[1],
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_every_step_and_example_drops_other_elements(loop):
    """As a loop of Python's does, where every call asks for a key."""
    layer, ones = nn.Dropout(0.5), np.ones(400, np.float32)
    step = jit(lambda x, key: dropped(lambda x: (layer(x), loop(layer, x), layer(x)), x, key))
    before, within, after = step(ones, KEY)
    rows = np.stack([before, *within, after]) != 0
    for a in range(len(rows)):
        for b in range(a):
            assert 140 < (rows[a] == rows[b]).sum() < 260
    np.testing.assert_array_equal(step(ones, KEY)[1], within)
    assert not np.array_equal(step(ones, random.key(4))[1], within)


def test_the_gradient_of_a_loop_passes_where_its_step_dropped_nothing():
    layer, scales = nn.Dropout(0.5), np.arange(1.0, 6.0, dtype=np.float32)

    def total(x, key):
        with nn.training(key):
            return scan(lambda sum, s: (sum + s * layer(x), layer(x)), np.zeros_like(x), scales)

    ones = np.ones(50, np.float32)
    expected = jit(total)(ones, KEY)[0]  # it is linear in x
    slope = grad(lambda x, key: total(x, key)[0].sum())
    for function in (slope, jit(slope), jit(grad(lambda x, key: checkpoint(total)(x, key)[0].sum()))):
        np.testing.assert_allclose(function(ones, KEY), expected)


def test_a_pass_that_is_opened_in_a_step_has_the_key_that_it_is_given():
    layer, ones = nn.Dropout(0.5), np.ones((3, 40), np.float32)
    for run in (vmap, lambda f: lambda xs: scan(lambda carry, x: (carry, f(x)), 0.0, xs)[1]):
        rows = jit(lambda x, run=run: run(lambda row: dropped(layer, row, KEY))(x))(ones)
        np.testing.assert_array_equal(rows, np.tile(dropped(layer, ones[0], KEY), (3, 1)))


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_rates_that_are_none(rate):
    with pytest.raises(ValueError, match=r"\[Dropout\]"):
        nn.Dropout(rate)


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
def test_buffers_come_out_of_a_step(counter, compiled):
    def step(model, x, key):
        def objective(model):
            with nn.training(key) as mode:
                loss = model(model(x)).sum()
            return loss, mode.updated(model)

        (loss, model), gradient = value_and_grad(objective, has_aux=True)(model)
        return model, gradient, loss

    model, gradient, loss = (jit(step) if compiled else step)(counter, np.array([1.0, 2.0]), KEY)
    assert loss == 3.0
    np.testing.assert_array_equal(model.calls, [2, 2])
    np.testing.assert_array_equal(model.weight, [1, 1])
    np.testing.assert_array_equal(gradient.calls, [0, 0])
    np.testing.assert_array_equal(gradient.weight, [2, 4])
    np.testing.assert_array_equal(counter.calls, [0, 0])


def test_no_gradient_reaches_a_buffer(counter):
    gradient = grad(lambda model: (model.calls * model.weight + model.calls).sum())(counter)
    assert flatten(gradient)[1] == flatten(counter)[1]
    np.testing.assert_array_equal(gradient.calls, [0, 0])
    counter.calls[:] = 5
    np.testing.assert_array_equal(
        grad(lambda model: (model.calls * model.weight).sum())(counter).weight, [5, 5]
    )


def test_what_is_not_set_stays(counter):
    with nn.training(KEY) as mode:
        mode.set(counter.calls, np.full(2, 7.0))
    both = mode.updated({"model": counter, "other": [X]})
    assert both["other"][0] is X and both["model"].weight is counter.weight
    np.testing.assert_array_equal(both["model"].calls, [7, 7])


def test_buffers_of_another_model(counter):
    with nn.training(KEY) as mode:
        counter(np.ones(2))
    with pytest.raises(TreeError, match="1 of the arrays that layers have set are not in this model"):
        mode.updated(Counter(np.zeros(2), np.ones(2)))


def test_blocks_may_be_nested_and_end():
    assert nn.current_training() is None
    with nn.training(KEY) as outer:
        with nn.training(KEY) as inner:
            assert nn.current_training() is inner
        assert nn.current_training() is outer
        with pytest.raises(ZeroDivisionError), nn.training(KEY):
            raise ZeroDivisionError
        assert nn.current_training() is outer
    assert nn.current_training() is None


def test_blocks_belong_to_their_thread():
    seen = []
    with nn.training(KEY):
        thread = threading.Thread(target=lambda: seen.append(nn.current_training()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_a_block_around_a_compiled_function_is_refused_where_a_trace_is_under_way():
    """Its program would be kept with the key of its first call."""
    layer = jit(nn.Dropout(0.5))
    for objective in (
        lambda x: dropped(layer, x, KEY).sum(),
        lambda x: vmap(lambda r: dropped(layer, r, KEY))(x).sum(),
    ):
        with pytest.raises(TracingError, match="Open it inside the function"):
            grad(objective)(X)
    whole = jit(grad(lambda x, key: (dropped(layer, x, key) ** 2).sum()))
    assert not np.array_equal(whole(X, KEY), whole(X, random.key(5)))


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f(X),
        lambda f: vmap(f)(X),
        lambda f: grad(lambda x: dropped(f, x, KEY).sum())(X),
        lambda f: f.run_steps((X[None],), 1, 0),
    ],
    ids=["called", "mapped", "in a derivative", "in steps"],
)
def test_what_is_compiled_without_a_block_is_not_called_within_one(call):
    """Its program has no dropout, and said nothing of it."""
    layer = jit(nn.Dropout(0.5))
    plain = jit(lambda x: 2 * x)
    for f in (layer, plain):
        assert np.array_equal(f(X), f(X))
        vmap(f)(X), grad(lambda x, f=f: f(x).sum())(X)
    with nn.training(KEY):
        with pytest.raises(TracingError, match="Open it inside the function"):
            call(layer)
        np.testing.assert_array_equal(plain(X), 2 * X)
    np.testing.assert_array_equal(layer(X), X)


@pytest.mark.parametrize("transform", [jit, lambda f: grad(lambda x: f(x).sum())], ids=["jit", "grad"])
def test_a_block_around_a_traced_function_is_refused(transform):
    """The program would be compiled for one key and serve for all."""
    with nn.training(KEY), pytest.raises(TracingError, match="Open it inside the function"):
        transform(nn.Dropout(0.5))(X)


def test_a_compiled_function_serves_both_modes():
    layer = nn.Dropout(0.5)
    evaluate, train = jit(layer), jit(dropped)
    train(layer, X, KEY)
    np.testing.assert_array_equal(evaluate(X), X)
    assert not np.array_equal(train(layer, X, KEY), train(layer, X, random.key(5)))


@pytest.mark.parametrize(
    "inner",
    [
        lambda layer, x: checkpoint(layer)(x),
        lambda layer, x: scan(lambda carry, row: (carry, layer(row)), 0.0, x[None])[1],
        lambda layer, x: cond(x[0, 0] > 0, layer, lambda x: x, x),
    ],
    ids=["checkpoint", "scan", "cond"],
)
def test_buffers_set_inside_another_trace_are_known_there_alone(inner):
    def objective(layer, x):
        with nn.training(KEY) as mode:
            loss = (inner(layer, x) ** 2).mean()
        return loss, mode.updated(layer)

    for function in (grad(objective, has_aux=True), jit(objective)):
        with pytest.raises(
            TracingError, match=r"buffer of shape \(40,\) was set inside .* Open nn.training inside"
        ):
            function(nn.BatchNorm(40), X)


def test_a_block_inside_a_checkpoint():
    def inside(layer, x):
        with nn.training(KEY) as mode:
            y = layer(x)
        return y, mode.updated(layer)

    def objective(run):
        def loss(layer, x):
            y, changed = run(layer, x)
            return (y**3).mean(), changed

        return jit(grad(loss, has_aux=True))

    expected, found = (objective(run)(nn.BatchNorm(40), X) for run in (inside, checkpoint(inside)))
    for one, other in zip(flatten(expected)[0], flatten(found)[0]):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
