"""Optimisers around optimisers: gradients of several batches, learning rates that can be changed."""

from dataclasses import replace

import numpy as np
import pytest

from pullback import jit, nn, optim
from pullback.errors import SettingError, TreeError
from pullback.tracing import flatten, map_tree
from pullback.train import Trainer

random = np.random.default_rng(8)
WEIGHTS = {"w": random.standard_normal((3, 2)), "b": random.standard_normal(2)}
GRADIENTS = [map_tree(lambda w: random.standard_normal(w.shape), WEIGHTS) for _ in range(7)]
OPTIMISERS = [
    optim.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    optim.SGD(optim.schedules.Step(0.3, every=2)),
    optim.Adam(optim.schedules.Exponential(0.1, 0.7), amsgrad=True),
    optim.AdamW(0.1),
    optim.NAdam(0.1),
    optim.Adagrad(0.1),
    optim.RMSProp(0.1, momentum=0.9),
    optim.Adadelta(),
    optim.Lion(0.1),
]

both = pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
every = pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda optimiser: type(optimiser).__name__)


def after(optimiser, gradients, compiled, dtype=np.float64, between=lambda step, state: None):
    """The weights after each gradient, updated in place when compiled."""
    update = jit(optimiser.update, donate_argnums=(1, 2)) if compiled else optimiser.update
    weights = map_tree(lambda w: w.astype(dtype), WEIGHTS)
    state, found = optimiser.init(weights), []
    for step, gradient in enumerate(gradients):
        between(step, state)
        weights, state = update(map_tree(lambda g: g.astype(dtype), gradient), state, weights)
        found.append(map_tree(np.copy, weights))
    return found


def close(found, expected, tolerance=1e-12):
    for first, second in zip(flatten(found)[0], flatten(expected)[0], strict=True):
        assert first.dtype == second.dtype
        np.testing.assert_allclose(first, second, rtol=tolerance, atol=tolerance)


@both
@every
def test_a_group_of_batches_is_one_update_by_the_mean(optimiser, compiled):
    found = after(optim.Accumulate(optimiser, 3), GRADIENTS, compiled)
    means = [map_tree(lambda *g: sum(g) / 3, *GRADIENTS[k : k + 3]) for k in (0, 3)]
    first, second = after(optimiser, means, compiled)
    for step, expected in enumerate([WEIGHTS, WEIGHTS, first, first, first, second, second]):
        close(found[step], expected)


@both
def test_groups_of_one_are_the_optimiser_itself(compiled):
    optimiser = optim.Adam(0.1)
    close(after(optim.Accumulate(optimiser, 1), GRADIENTS, compiled), after(optimiser, GRADIENTS, compiled))


@both
@every
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_factor_of_one_changes_nothing_and_others_the_rate(optimiser, compiled, dtype):
    adjustable = optim.Adjustable(optimiser)
    tolerance = {np.float32: 1e-6, np.float64: 1e-12}[dtype]
    close(
        after(adjustable, GRADIENTS, compiled, dtype), after(optimiser, GRADIENTS, compiled, dtype), tolerance
    )

    def change(step, state):
        if step == 4:
            state.factor[...] = 0.25

    def slower(step):
        return optim.rate_at(optimiser.learning_rate, step) * (1.0 if step < 4 else 0.25)

    # Interpreted steps are numbers: such a schedule can branch.
    by_schedule = after(replace(optimiser, learning_rate=slower), GRADIENTS, False, dtype)
    close(after(adjustable, GRADIENTS, compiled, dtype, between=change), by_schedule, tolerance)


def test_the_rate_of_a_group_is_that_of_its_update():
    optimiser = optim.Accumulate(optim.SGD(lambda step: 1.0 / (1 + step)), 3)
    assert [optimiser.learning_rate(step) for step in range(7)] == [1, 1, 1, 1 / 2, 1 / 2, 1 / 2, 1 / 3]
    assert optim.Accumulate(optim.SGD(0.1), 3).learning_rate == 0.1


def test_the_factor_is_found_within_other_states():
    weights = {"w": np.ones(2)}
    outer = optim.Accumulate(optim.Adjustable(optim.SGD(0.1, 0.9)), 2).init(weights)
    optim.rate_factor(outer)[...] = 0.5
    assert outer.state.factor == 0.5
    assert optim.rate_factor(optim.SGD(0.1, 0.9).init(weights)) is None
    assert optim.rate_factor(optim.SGD(lambda step: 0.1).init(weights)) is None


def test_settings_that_make_no_sense():
    with pytest.raises(ValueError, match="batches is 0"):
        optim.Accumulate(optim.SGD(0.1), 0)
    with pytest.raises(TypeError, match="Accumulate goes around Adjustable"):
        optim.Adjustable(optim.Accumulate(optim.SGD(0.1), 2))


@both
@every
@pytest.mark.parametrize("decay", [0.0, 0.9, 0.999])
def test_averages_are_means_with_weights_that_fall(optimiser, compiled, decay):
    wrapper, means = optim.Averaged(optimiser, decay), []

    def seen(step, state):
        means.append(map_tree(np.copy, optim.averaged(state, WEIGHTS)))

    found = after(wrapper, [*GRADIENTS, GRADIENTS[0]], compiled, between=seen)
    close(found[:-1], after(optimiser, GRADIENTS, compiled))
    close(means[0], WEIGHTS)
    for t in range(1, len(means)):
        shares = decay ** np.arange(t - 1.0, -1, -1)
        expected = map_tree(lambda *w, s=shares: np.tensordot(s / s.sum(), np.stack(w), 1), *found[:t])
        close(means[t], expected, 1e-10)


@both
def test_averages_of_groups_and_groups_of_averages(compiled):
    """Around groups the mean is over batches, within them over updates."""
    optimiser = optim.SGD(0.1)
    steps = after(optim.Accumulate(optimiser, 2), GRADIENTS[:4], compiled)
    for wrapper, over in (
        (optim.Averaged(optim.Accumulate(optimiser, 2), 0.5), steps),
        (optim.Accumulate(optim.Averaged(optimiser, 0.5), 2), steps[1::2]),
    ):
        means = []
        after(
            wrapper,
            GRADIENTS[:5],
            compiled,
            between=lambda step, state, means=means: means.append(
                map_tree(np.copy, optim.averaged(state, WEIGHTS))
            ),
        )
        shares = 0.5 ** np.arange(len(over) - 1.0, -1, -1)
        close(means[-1], map_tree(lambda *w, s=shares: np.tensordot(s / s.sum(), np.stack(w), 1), *over))


def test_lazy_averages_of_rows_without_a_gradient_stay():
    table, gradient = np.ones((3, 2)), np.zeros((3, 2))
    gradient[1] = 1.0
    optimiser = optim.Lazy(optim.Averaged(optim.SGD(0.5), 0.5), rows=3)
    state = optimiser.init(table)
    for _ in range(2):
        table, state = optimiser.update(gradient, state, table)
    np.testing.assert_array_equal(table, [[1, 1], [0, 0], [1, 1]])
    np.testing.assert_allclose(optim.averaged(state, table), [[1, 1], [1 / 6, 1 / 6], [1, 1]])


@both
def test_averages_of_halves_are_kept_in_32_bits(compiled):
    optimiser = optim.Averaged(optim.SGD(1.0), 0.999)
    update = jit(optimiser.update) if compiled else optimiser.update
    weights = np.array([1.0, 2.0], np.float16)
    state = optimiser.init(weights)
    for gradient in (2.0**-10, 0.0, 0.0):
        weights, state = update(np.full(2, gradient, np.float16), state, weights)
    assert state.mean.dtype == np.float32 and optim.averaged(state, weights).dtype == np.float16
    np.testing.assert_allclose(state.mean, weights, rtol=1e-6)


def test_averages_are_found_within_other_states_and_leave_the_rest_alone():
    model = nn.Chain(nn.Dense(2, 3, seed=0), nn.BatchNorm(3))
    state = optim.Accumulate(optim.Averaged(optim.Adam(0.1)), 2).init(model)
    state.state.mean[0].weight[...] = 7
    found = optim.averaged(state, model)
    assert (found[0].weight == 7).all() and found[1].running_mean is model[1].running_mean
    assert not np.shares_memory(state.state.mean[0].bias, model[0].bias)
    assert optim.averaged(optim.Adam(0.1).init(model), model) is model


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_a_decay_that_is_none(decay):
    with pytest.raises(ValueError, match=r"\[Averaged\] decay is "):
        optim.Averaged(optim.SGD(0.1), decay)


# -- Groups

PARTS = {
    "layers": [{"w": np.ones((2, 2)), "b": np.ones(2)}, {"w": np.full((2, 1), 2.0)}],
    "table": np.ones(3),
}


@both
def test_each_part_takes_the_steps_of_its_own_optimiser(compiled):
    first, last, rest = optim.Adam(0.2, weight_decay=0.1), optim.SGD(0.1, momentum=0.5), optim.NAdam(0.1)
    optimiser = optim.Groups(rest, {"layers.0": first, "layers": last})
    gradients = [map_tree(lambda w: random.standard_normal(w.shape), PARTS) for _ in range(4)]
    update = jit(optimiser.update, donate_argnums=(1, 2)) if compiled else optimiser.update
    found = map_tree(np.copy, PARTS)
    state = optimiser.init(found)
    alone = [(first, PARTS["layers"][0]), (last, PARTS["layers"][1]), (rest, PARTS["table"])]
    states = [each.init(part) for each, part in alone]
    parts = [part for _, part in alone]
    for gradient in gradients:
        found, state = update(gradient, state, found)
        slopes = [*gradient["layers"], gradient["table"]]
        for k, (each, _) in enumerate(alone):
            parts[k], states[k] = each.update(slopes[k], states[k], parts[k])
    for one, other in zip(flatten([*found["layers"], found["table"]])[0], flatten(parts)[0]):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert optimiser.learning_rate == 0.1


def test_frozen_parts_stay_bit_for_bit_and_count_in_no_norm():
    optimiser = optim.Groups(optim.AdamW(0.1, weight_decay=0.5), {"layers.0": None})
    state = optimiser.init(PARTS)
    gradients = map_tree(np.ones_like, PARTS)
    moved, state = optimiser.update(gradients, state, PARTS)
    assert all(np.array_equal(moved["layers"][0][name], PARTS["layers"][0][name]) for name in "wb")
    assert not np.array_equal(moved["layers"][1]["w"], PARTS["layers"][1]["w"])
    assert state.parts == (None,)
    assert optim.global_norm(optimiser.moving(gradients)) == pytest.approx(np.sqrt(5))


def test_groups_of_a_network_in_a_trainer():
    model = nn.Chain(nn.Dense(3, 4, seed=0), nn.relu, nn.BatchNorm(4), nn.Dense(4, 1, seed=1))
    kept = model[0].weight.copy()
    random = np.random.default_rng(0)
    data = random.standard_normal((40, 3)).astype(np.float32), np.ones((40, 1), np.float32)
    optimiser = optim.Groups(optim.Adam(0.05), {"layers.0": None, "layers.3": optim.SGD(0.1)})
    trainer = Trainer(model, nn.squared_error, optim.Averaged(optimiser, 0.5), batch_size=10, clip_norm=1.0)
    history = trainer.fit(data, 5)
    assert np.array_equal(model[0].weight, kept) and history["loss"][-1] < history["loss"][0] / 2
    assert np.any(model[2].running_mean) and hash(optimiser) == hash(replace(optimiser))


def test_groups_that_make_no_sense():
    with pytest.raises(
        TreeError, match=r"no parameter belongs to 'layer' alone. Name the begin of one of layers.0.b"
    ):
        optim.Groups(optim.SGD(0.1), {"layer": None}).init(PARTS)
    with pytest.raises(TreeError, match=r"Begin with state = optimiser.init"):
        optim.Groups(optim.SGD(0.1), {"table": None}).update(PARTS, (), PARTS)
    with pytest.raises(TypeError, match="searches along lines"):
        optim.Groups(optim.SGD(0.1), {"table": optim.LBFGS()})
    with pytest.raises(TypeError, match=r"Put it around: Averaged\(Groups"):
        optim.Groups(optim.Averaged(optim.SGD(0.1)), {})
    with pytest.raises(TypeError, match="Put Lazy into it"):
        optim.Lazy(optim.Groups(optim.SGD(0.1), {}))
    with pytest.raises(SettingError, match="the class SGD"):
        optim.Groups(optim.SGD(0.1), {"table": optim.SGD})
