"""Optimisers against recurrences written out by hand, interpreted and compiled, with donation."""

from itertools import pairwise

import numpy as np
import pytest

from pullback import buffer, jit, nn, optim
from pullback.errors import SettingError, ShapeError, TreeError
from pullback.tracing import flatten, map_tree

random = np.random.default_rng(5)
WEIGHTS = {"w": random.standard_normal((3, 2)), "b": random.standard_normal(2)}
GRADIENTS = [map_tree(lambda w: random.standard_normal(w.shape), WEIGHTS) for _ in range(5)]


def falling(step):
    """A schedule, for numbers and traced values."""
    return 0.3 / (1 + step)


def rates(rate):
    return [rate(t) if callable(rate) else rate for t in range(len(GRADIENTS))]


def sgd_by_hand(p, gradients, *, rate, momentum=0.0, nesterov=False, decay=0.0):
    """As PyTorch's documentation of SGD has it: the buffer begins as the first gradient."""
    buffer = None
    for gradient, eta in zip(gradients, rates(rate)):
        g = gradient + decay * p
        step = g
        if momentum:
            buffer = g if buffer is None else momentum * buffer + g
            step = g + momentum * buffer if nesterov else buffer
        p = p - eta * step
        yield p


def adam_by_hand(p, gradients, *, rate, decay=0.0, decoupled=False, amsgrad=False):
    beta1, beta2, epsilon = 0.8, 0.95, 1e-3
    m, s, largest = 0, 0, 0
    for t, (gradient, eta) in enumerate(zip(gradients, rates(rate)), 1):
        g = gradient if decoupled else gradient + decay * p
        p = p * (1 - eta * decay) if decoupled else p
        m = beta1 * m + (1 - beta1) * g
        s = beta2 * s + (1 - beta2) * g**2
        largest = np.maximum(largest, s) if amsgrad else s
        p = p - eta * (m / (1 - beta1**t)) / (np.sqrt(largest / (1 - beta2**t)) + epsilon)
        yield p


def nadam_by_hand(p, gradients, *, rate, decay=0.0):
    beta1, beta2, epsilon, psi = 0.8, 0.95, 1e-3, 0.1
    momenta = [beta1 * (1 - 0.5 * 0.96 ** (t * psi)) for t in range(1, len(gradients) + 2)]
    m = s = 0
    for t, (gradient, eta) in enumerate(zip(gradients, rates(rate)), 1):
        g = gradient + decay * p
        m = beta1 * m + (1 - beta1) * g
        s = beta2 * s + (1 - beta2) * g**2
        ahead = momenta[t] * m / (1 - np.prod(momenta[: t + 1]))
        ahead = ahead + (1 - momenta[t - 1]) * g / (1 - np.prod(momenta[:t]))
        p = p - eta * ahead / (np.sqrt(s / (1 - beta2**t)) + epsilon)
        yield p


def adagrad_by_hand(p, gradients, *, rate, decay=0.0):
    total = 0
    for gradient, eta in zip(gradients, rates(rate)):
        g = gradient + decay * p
        total = total + g**2
        p = p - eta * g / (np.sqrt(total) + 1e-3)
        yield p


def rmsprop_by_hand(p, gradients, *, rate, decay=0.0, momentum=0.0, centred=False):
    alpha, epsilon = 0.9, 1e-3
    s = a = v = 0
    for gradient, eta in zip(gradients, rates(rate)):
        g = gradient + decay * p
        s = alpha * s + (1 - alpha) * g**2
        a = alpha * a + (1 - alpha) * g
        step = g / (np.sqrt(s - a**2 if centred else s) + epsilon)
        v = momentum * v + step
        p = p - eta * v
        yield p


def adadelta_by_hand(p, gradients, *, rate, decay=0.0):
    rho, epsilon = 0.8, 1e-3
    s = u = 0
    for gradient, eta in zip(gradients, rates(rate)):
        g = gradient + decay * p
        s = rho * s + (1 - rho) * g**2
        step = np.sqrt(u + epsilon) / np.sqrt(s + epsilon) * g
        u = rho * u + (1 - rho) * step**2
        p = p - eta * step
        yield p


def lion_by_hand(p, gradients, *, rate, decay=0.0):
    m = 0
    for g, eta in zip(gradients, rates(rate)):
        p = p * (1 - eta * decay) - eta * np.sign(0.8 * m + 0.2 * g)
        m = 0.95 * m + 0.05 * g
        yield p


ADAM = {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}
NADAM = {**ADAM, "momentum_decay": 0.1}
RMSPROP = {"smoothing": 0.9, "epsilon": 1e-3}
ADADELTA = {"decay": 0.8, "epsilon": 1e-3}
LION = {"beta1": 0.8, "beta2": 0.95}


def cases():
    """The class, its settings, the recurrence, and the settings of that; all but the learning rate."""
    momentum = {"momentum": 0.9, "nesterov": True}
    yield optim.SGD, {}, sgd_by_hand, {}
    yield optim.SGD, {"weight_decay": 0.1}, sgd_by_hand, {"decay": 0.1}
    yield optim.SGD, {"momentum": 0.9}, sgd_by_hand, {"momentum": 0.9}
    yield optim.SGD, momentum, sgd_by_hand, momentum
    yield optim.SGD, {**momentum, "weight_decay": 0.1}, sgd_by_hand, {**momentum, "decay": 0.1}
    yield optim.AdamW, {**ADAM, "weight_decay": 0.1}, adam_by_hand, {"decay": 0.1, "decoupled": True}
    yield optim.AdamW, {**ADAM, "weight_decay": 0.0}, adam_by_hand, {}
    yield optim.Adam, {**ADAM, "amsgrad": True}, adam_by_hand, {"amsgrad": True}
    for options in ({"momentum": 0.9}, {"centred": True}, {"momentum": 0.9, "centred": True}):
        yield optim.RMSProp, {**RMSPROP, **options}, rmsprop_by_hand, options
    for make, settings, by_hand in (
        (optim.Adam, ADAM, adam_by_hand),
        (optim.NAdam, NADAM, nadam_by_hand),
        (optim.Adagrad, {"epsilon": 1e-3}, adagrad_by_hand),
        (optim.RMSProp, RMSPROP, rmsprop_by_hand),
        (optim.Adadelta, ADADELTA, adadelta_by_hand),
        (optim.Lion, LION, lion_by_hand),
    ):
        yield make, settings, by_hand, {}
        yield make, {**settings, "weight_decay": 0.1}, by_hand, {"decay": 0.1}


both = pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
every = pytest.mark.parametrize(
    "optimiser",
    [
        optim.SGD(0.1, 0.9, True, 0.1),
        optim.SGD(falling, 0.9),
        optim.Adam(falling, weight_decay=0.1, amsgrad=True),
        optim.AdamW(0.1),
        optim.NAdam(0.1),
        optim.Adagrad(0.1),
        optim.RMSProp(0.1, momentum=0.9, centred=True),
        optim.Adadelta(),
        optim.Lion(0.1),
    ],
    ids=lambda optimiser: type(optimiser).__name__,
)


def steps_of(optimiser, compiled, dtype):
    """The weights after each step; compiled, with weights and state updated in place."""
    update = jit(optimiser.update, donate_argnums=(1, 2)) if compiled else optimiser.update
    weights = map_tree(lambda w: w.astype(dtype), WEIGHTS)
    state = optimiser.init(weights)
    for gradients in GRADIENTS:
        weights, state = update(map_tree(lambda g: g.astype(dtype), gradients), state, weights)
        yield map_tree(np.copy, weights)


@both
@pytest.mark.parametrize("rate", [0.3, falling], ids=["constant", "schedule"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-5)])
@pytest.mark.parametrize(
    ("make", "settings", "by_hand", "options"),
    [pytest.param(*case, id=f"{case[0].__name__}-{'-'.join(case[3])}") for case in cases()],
)
def test_recurrences(make, settings, by_hand, options, dtype, tolerance, rate, compiled):
    found = list(steps_of(make(learning_rate=rate, **settings), compiled, dtype))
    for name, weights in WEIGHTS.items():
        expected = list(by_hand(weights, [gradients[name] for gradients in GRADIENTS], rate=rate, **options))
        assert len(found) == len(expected) == 5
        for step, value in enumerate(expected):
            assert found[step][name].dtype == dtype
            np.testing.assert_allclose(found[step][name], value, rtol=tolerance, atol=tolerance)


@both
@every
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


@every
def test_integers_beside_the_weights_stay(optimiser):
    weights = {"w": np.ones(2), "count": np.array([3, 4])}
    gradients = {"w": np.ones(2), "count": np.zeros(2, np.int64)}
    changed, _ = optimiser.update(gradients, optimiser.init(weights), weights)
    assert changed["count"].dtype == np.int64 and changed["count"].tolist() == [3, 4]
    assert (changed["w"] < 1).all()


@every
def test_states_share_no_memory_with_the_weights(optimiser):
    state = flatten(optimiser.init(WEIGHTS))[0]
    assert state
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
        lambda: optim.AdamW(weight_decay=-0.1),
        lambda: optim.NAdam(beta2=1.0),
        lambda: optim.RMSProp(smoothing=1.0),
        lambda: optim.Adadelta(decay=1.0),
        lambda: optim.Lion(beta2=-1.0),
        lambda: optim.SGD(float("inf")),
        lambda: optim.Adam(epsilon=float("inf")),
        lambda: optim.LBFGS(float("inf")),
        lambda: optim.LBFGS(memory=2.5),
        lambda: optim.LBFGS(trials=0),
        lambda: optim.schedules.Step(float("inf"), 10),
        lambda: optim.schedules.Cosine("0.1", 10),
        lambda: optim.schedules.Exponential(0.1, float("nan")),
    ],
)
def test_settings_that_make_no_sense(make):
    with pytest.raises((ValueError, SettingError), match=r"^\[\w+\] \w+ (is .* Give|needs) "):
        make()


@pytest.mark.parametrize("wrapper", [optim.Accumulate, optim.Adjustable, optim.Averaged, optim.Lazy])
def test_what_no_optimiser_goes_around(wrapper):
    more = {"batches": 2} if wrapper is optim.Accumulate else {}
    for given, meant in (
        (optim.SGD, r"the class SGD.*optim\.SGD\("),
        (optim.LBFGS(), "along lines"),
        (0.1, "0.1, a float"),
    ):
        with pytest.raises(TypeError, match=rf"\[{wrapper.__name__}\] .*{meant}"):
            wrapper(given, **more)


@pytest.mark.parametrize("number", [0, 1.5, "2", float("nan"), True])
def test_numbers_of_wrappers_that_are_none(number):
    for make in (optim.Accumulate, optim.Lazy):
        with pytest.raises((ValueError, SettingError), match=r"(batches|rows) is "):
            make(optim.SGD(0.1), number)


@both
@every
def test_what_decays_does_not_stay_subnormal(compiled, optimiser):
    """Gradients are zero: every mean ends at zero, or is on its way as a normal number."""
    update = jit(optimiser.update) if compiled else optimiser.update
    weights = np.ones(3, np.float32)
    state = optimiser.init(weights)
    smallest = np.finfo(np.float32).tiny
    state = map_tree(lambda leaf: np.full_like(leaf, 1.5 * smallest) if leaf.shape else leaf, state)
    for _ in range(20):
        weights, state = update(np.zeros(3, np.float32), state, weights)
        for leaf in flatten(state)[0]:
            assert ((leaf == 0) | (np.abs(leaf) >= smallest)).all()


class Scaled(nn.Module):
    """A factor that is trained, a mean and a count that are not."""

    factor: np.ndarray
    mean: np.ndarray = buffer()
    count: np.ndarray


@both
@pytest.mark.parametrize(
    "optimiser", [optim.SGD(0.1, 0.9, True, 0.1), optim.Adam(weight_decay=0.1)], ids=["SGD", "Adam"]
)
def test_buffers_and_integers_are_left_alone(compiled, optimiser):
    model = Scaled(np.ones(3), np.arange(3.0), np.array(5))
    gradients = Scaled(np.ones(3), np.full(3, np.nan), np.array(0))
    update = jit(optimiser.update) if compiled else optimiser.update
    state = optimiser.init(model)
    sizes = {leaf.size for leaf in flatten(state)[0]}
    assert sizes == {1, 3}, "what is not trained needs no state of its size"
    for _ in range(2):
        changed, state = update(gradients, state, model)
    np.testing.assert_array_equal(changed.mean, np.arange(3.0))
    assert changed.count == 5 and not np.array_equal(changed.factor, np.ones(3))


def test_buffers_have_no_part_in_the_norm():
    gradients = Scaled(np.array([3.0, 4.0]), np.full(2, 100.0), np.array(9))
    assert optim.global_norm(gradients) == 5.0
    clipped = optim.clip_by_norm(gradients, 1.0)
    np.testing.assert_allclose(clipped.factor, [0.6, 0.8])
    np.testing.assert_array_equal(clipped.mean, [100.0, 100.0])


def test_a_state_can_be_made_inside_a_compiled_function():
    optimiser = optim.Adam(0.1)
    begin = jit(lambda weights, gradients: optimiser.update(gradients, optimiser.init(weights), weights)[0])
    expected = optimiser.update(GRADIENTS[0], optimiser.init(WEIGHTS), WEIGHTS)[0]
    found = begin(WEIGHTS, GRADIENTS[0])
    for name in WEIGHTS:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12)


def test_rmsprop_centred_on_gradients_that_stay_the_same():
    optimiser = optim.RMSProp(1e-6, smoothing=0.9, centred=True)
    gradient = np.random.default_rng(0).standard_normal(200).astype(np.float32)
    weights = np.zeros(200, np.float32)
    state, update = optimiser.init(weights), jit(optimiser.update)
    for _ in range(300):
        weights, state = update(gradient, state, weights)
    assert np.isfinite(weights).all()


@pytest.mark.parametrize(
    "optimiser", [optim.Adam(), optim.AdamW(), optim.NAdam(), optim.RMSProp(), optim.Adadelta()]
)
def test_a_state_that_was_not_begun(optimiser):
    weights = np.ones(2)
    with pytest.raises(TreeError, match=r"the state is a NoneType. Begin with state = optimiser.init"):
        optimiser.update(weights, None, weights)


def test_arguments_of_an_update_in_another_order():
    weights = {"w": np.ones(2)}
    with pytest.raises(TreeError, match="gradients, state and parameters go together, in this order"):
        optim.SGD(0.1).update(weights, weights, ())


@pytest.mark.parametrize("optimiser", [optim.SGD(0.1), optim.Adam(), optim.NAdam(), optim.Adagrad(falling)])
def test_gradients_have_the_shapes_of_their_parameters(optimiser):
    state = optimiser.init(WEIGHTS)
    of_examples = map_tree(
        lambda g: np.stack([g, g, g]), GRADIENTS[0]
    )  # they would be repeated along an axis
    for update in (optimiser.update, jit(optimiser.update)):
        with pytest.raises(
            ShapeError, match=r"\] the gradient of b has shape \(3, 2\), and the parameter \(2,\)"
        ):
            update(of_examples, state, WEIGHTS)


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam, optim.AdamW, optim.Lion, optim.RMSProp])
def test_a_learning_rate_may_be_an_argument_of_what_is_compiled(make):
    """What it is nobody knows when the optimiser is made."""

    def step(rate):
        optimiser = make(rate)
        return optimiser.update(GRADIENTS[0], optimiser.init(WEIGHTS), WEIGHTS)[0]

    for one, other in zip(flatten(jit(step)(0.3))[0], flatten(step(0.3))[0]):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    with pytest.raises(ValueError, match=r"learning_rate is -0\.3"):
        step(-0.3)
