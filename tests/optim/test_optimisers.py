"""Optimisers against recurrences written out by hand, interpreted and compiled."""

from itertools import pairwise

import numpy as np
import pytest

from pullback import jit, nn, optim
from pullback.tracing import flatten, map_tree

random = np.random.default_rng(5)
WEIGHTS = {"w": random.standard_normal((3, 2)), "b": random.standard_normal(2)}
GRADIENTS = [map_tree(lambda w: random.standard_normal(w.shape), WEIGHTS) for _ in range(5)]


def steps_of(optimiser, compiled):
    update = jit(optimiser.update) if compiled else optimiser.update
    weights, state = WEIGHTS, optimiser.init(WEIGHTS)
    for gradients in GRADIENTS:
        weights, state = update(gradients, state, weights)
        yield weights


def sgd_by_hand(p, gradients, *, rate, momentum, nesterov, decay):
    """As PyTorch's documentation of SGD has it: the buffer begins as the first gradient."""
    buffer = None
    for gradient in gradients:
        g = gradient + decay * p
        step = g
        if momentum:
            buffer = g if buffer is None else momentum * buffer + g
            step = g + momentum * buffer if nesterov else buffer
        p = p - rate * step
        yield p


def adam_by_hand(p, gradients, *, rate, beta1, beta2, epsilon, decay):
    m = s = 0
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        s = beta2 * s + (1 - beta2) * g**2
        p = p * (1 - rate * decay) - rate * (m / (1 - beta1**t)) / (np.sqrt(s / (1 - beta2**t)) + epsilon)
        yield p


def adagrad_by_hand(p, gradients, *, rate, epsilon, decay):
    total = 0
    for gradient in gradients:
        g = gradient + decay * p
        total = total + g**2
        p = p - rate * g / (np.sqrt(total) + epsilon)
        yield p


def compare(found, by_hand):
    for name, weights in WEIGHTS.items():
        expected = list(by_hand(weights, [gradients[name] for gradients in GRADIENTS]))
        assert len(found) == len(expected) == 5
        for step, value in enumerate(expected):
            np.testing.assert_allclose(found[step][name], value, rtol=1e-12)


both = pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])


@both
@pytest.mark.parametrize(
    ("momentum", "nesterov", "decay"),
    [(0.0, False, 0.0), (0.0, False, 0.1), (0.9, False, 0.0), (0.9, True, 0.0), (0.9, True, 0.1)],
)
def test_sgd(compiled, momentum, nesterov, decay):
    found = list(steps_of(optim.SGD(0.3, momentum, nesterov, decay), compiled))
    settings = {"rate": 0.3, "momentum": momentum, "nesterov": nesterov, "decay": decay}
    compare(found, lambda p, g: sgd_by_hand(p, g, **settings))


@both
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(compiled, decay):
    found = list(steps_of(optim.Adam(0.3, 0.8, 0.95, 1e-3, decay), compiled))
    settings = {"rate": 0.3, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "decay": decay}
    compare(found, lambda p, g: adam_by_hand(p, g, **settings))


@both
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adagrad(compiled, decay):
    found = list(steps_of(optim.Adagrad(0.3, 1e-3, decay), compiled))
    compare(found, lambda p, g: adagrad_by_hand(p, g, rate=0.3, epsilon=1e-3, decay=decay))


@both
@pytest.mark.parametrize(
    "optimiser", [optim.SGD(0.1, 0.9, True, 0.1), optim.Adam(weight_decay=0.1), optim.Adagrad(0.1)], ids=repr
)
def test_structure_and_dtypes_stay(compiled, optimiser):
    model = nn.Dense(3, 2, seed=0)
    update = jit(optimiser.update) if compiled else optimiser.update
    before = optimiser.init(model)
    changed, state = update(map_tree(np.ones_like, model), before, model)
    for tree, like in ((changed, model), (state, before)):
        leaves, structure = flatten(tree)
        assert structure == flatten(like)[1]
        assert [leaf.dtype for leaf in leaves] == [leaf.dtype for leaf in flatten(like)[0]]
    assert not np.array_equal(changed.weight, model.weight)


@pytest.mark.parametrize(
    "optimiser", [optim.SGD(0.1, 0.9, True, 0.1), optim.Adam(0.1), optim.Adagrad(0.1)], ids=repr
)
def test_integers_beside_the_weights_stay(optimiser):
    weights = {"w": np.ones(2), "count": np.array([3, 4])}
    gradients = {"w": np.ones(2), "count": np.zeros(2, np.int64)}
    changed, _ = optimiser.update(gradients, optimiser.init(weights), weights)
    assert changed["count"].dtype == np.int64 and changed["count"].tolist() == [3, 4]
    assert (changed["w"] < 1).all()


def test_states_share_no_memory_with_the_weights():
    for optimiser in (optim.SGD(0.1, 0.9), optim.Adam(), optim.Adagrad()):
        state = flatten(optimiser.init(WEIGHTS))[0]
        assert not any(np.shares_memory(a, b) for a in state for b in flatten(WEIGHTS)[0])
        assert not any(np.shares_memory(a, b) for a, b in pairwise(state))


@pytest.mark.parametrize(
    "make",
    [
        lambda: optim.SGD(-0.1),
        lambda: optim.SGD(float("nan")),
        lambda: optim.SGD(0.1, momentum=1.0),
        lambda: optim.SGD(0.1, nesterov=True),
        lambda: optim.Adam(beta1=1.0),
        lambda: optim.Adam(epsilon=-1.0),
        lambda: optim.Adagrad(-1.0),
    ],
)
def test_settings_that_make_no_sense(make):
    with pytest.raises(ValueError, match=r"\[(SGD|Adam|Adagrad)\]"):
        make()
