"""The recurrent layer against the recurrence and its derivative written out by hand."""

import numpy as np
import pytest

from pullback import grad, jit, nn
from pullback.errors import ShapeError
from pullback.testing import check_grads
from pullback.tracing import map_tree, trace

SLOPES = {"tanh": lambda h: 1 - h * h, "relu": lambda h: (h > 0).astype(h.dtype)}
FUNCTIONS = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0)}


@pytest.fixture
def random():
    return np.random.default_rng(7)


def states_by_hand(rnn, x):
    h, states = np.zeros((len(x), rnn.recurrent_weight.shape[0])), []
    for t in range(x.shape[1]):
        z = x[:, t] @ rnn.input_weight + h @ rnn.recurrent_weight + rnn.bias
        h = FUNCTIONS[rnn.activation](z)
        states.append(h)
    return np.stack(states, axis=1)


def gradients_by_hand(rnn, x, last_bar):
    """Backpropagation through time, for a loss that depends on the last state only."""
    states = states_by_hand(rnn, x)
    bars = dict.fromkeys(("input_weight", "recurrent_weight", "bias"), 0)
    bar = last_bar
    for t in reversed(range(x.shape[1])):
        delta = bar * SLOPES[rnn.activation](states[:, t])
        bars["input_weight"] += x[:, t].T @ delta
        bars["bias"] += delta.sum(axis=0)
        if t:
            bars["recurrent_weight"] += states[:, t - 1].T @ delta
        bar = delta @ rnn.recurrent_weight.T
    return bars


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
def test_states_are_those_of_the_recurrence(random, activation, compiled):
    rnn = nn.RNN(3, 5, activation, return_sequences=True, seed=random, dtype=np.float64)
    x = random.standard_normal((2, 4, 3))
    found = jit(lambda rnn, x: rnn(x))(rnn, x) if compiled else rnn(x)
    np.testing.assert_allclose(found, states_by_hand(rnn, x), rtol=1e-12)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
def test_gradients_are_those_of_backpropagation_through_time(random, activation, compiled):
    rnn = nn.RNN(3, 5, activation, seed=random, dtype=np.float64)
    x, last_bar = random.standard_normal((2, 4, 3)), random.standard_normal((2, 5))
    gradient = grad(lambda rnn: (rnn(x) * last_bar).sum())
    found = (jit(gradient) if compiled else gradient)(rnn)
    expected = gradients_by_hand(rnn, x, last_bar)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-11, atol=1e-13)


def test_gradients_agree_with_finite_differences(random):
    rnn = nn.RNN(3, 4, seed=random, dtype=np.float64)

    def last_state(x, input_weight, recurrent_weight, bias):
        changed = map_tree(lambda leaf: leaf, rnn)
        changed.input_weight, changed.recurrent_weight, changed.bias = input_weight, recurrent_weight, bias
        return changed(x)

    arguments = [random.standard_normal((2, 3, 3)), rnn.input_weight, rnn.recurrent_weight, rnn.bias]
    check_grads(last_state, arguments, order=2, tolerance=1e-5)


def test_the_last_state_is_the_end_of_all_states(random):
    last, states = (nn.RNN(3, 4, return_sequences=all_states, seed=1) for all_states in (False, True))
    x = random.standard_normal((2, 5, 3)).astype(np.float32)
    np.testing.assert_array_equal(last(x), states(x)[:, -1])


def test_a_state_continues_a_sequence(random):
    rnn = nn.RNN(3, 4, seed=1)
    x = random.standard_normal((2, 6, 3)).astype(np.float32)
    np.testing.assert_array_equal(rnn(x[:, 4:], rnn(x[:, :4])), rnn(x))


def test_the_first_step_has_no_recurrent_product():
    x = np.zeros((2, 1, 3), np.float32)
    names = [
        getattr(node, "operator", None) for node in trace(lambda rnn: rnn(x), nn.RNN(3, 4)).graph.nodes()
    ]
    assert sum(operator is not None and operator.name == "contract" for operator in names) == 1


def test_layers_stack(random):
    model = nn.Chain(nn.RNN(3, 4, return_sequences=True, seed=1), nn.RNN(4, 2, "relu", seed=2))
    x = random.standard_normal((5, 6, 3)).astype(np.float32)
    expected = states_by_hand(model[1], states_by_hand(model[0], x))[:, -1]
    np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-6)


def test_sequences_without_a_batch(random):
    rnn = nn.RNN(3, 4, seed=1)
    x = random.standard_normal((5, 3)).astype(np.float32)
    np.testing.assert_allclose(rnn(x), rnn(x[None])[0], rtol=1e-6)


def test_begins_in_the_limits_of_its_size():
    rnn = nn.RNN(100, 25, seed=0)
    for weight in (rnn.input_weight, rnn.recurrent_weight, rnn.bias):
        assert 0.9 * 0.2 < np.abs(weight).max() <= 0.2


@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 0, 3), (3,)], ids=["features", "no steps", "no time axis"])
def test_inputs_that_do_not_fit(shape):
    with pytest.raises(ShapeError, match=r"RNN\(3 → 4, tanh\)"):
        nn.RNN(3, 4)(np.zeros(shape, np.float32))


def test_unknown_activation():
    with pytest.raises(ValueError, match="'tanh', 'relu'"):
        nn.RNN(3, 4, "sin")
