"""Training mode and dropout: who sees it, which keys it gives, and how buffers come out of it."""

import threading

import numpy as np
import pytest

from pullback import checkpoint, cond, grad, jit, nn, random, scan, trace, value_and_grad
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
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
