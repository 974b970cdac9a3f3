"""Trainings whose optimiser averages the parameters: validation, saving, early stopping, checkpoints."""

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from pullback.tracing import flatten, map_tree
from pullback.train import EarlyStopping, Trainer, load_checkpoint, save_checkpoint


def make_trainer(model, optimiser, **options):
    return Trainer(model, nn.softmax_cross_entropy, optimiser, batch_size=20, scale=1 / 255, **options)


def bits(tree):
    return [array.tobytes() for array in flatten(tree)[0]]


def test_the_model_is_trained_as_ever_and_judged_by_its_averages(data, make_model):
    plain, averaging = (
        make_trainer(make_model(), optimiser)
        for optimiser in (optim.SGD(0.5), optim.Averaged(optim.SGD(0.5), 0.9))
    )
    seen = []
    plain.fit(data, 3)
    averaging.fit(data, 3, validation=data, on_epoch_end=lambda trainer: seen.append(trainer.averaged))
    assert bits(plain.model) == bits(averaging.model) != bits(averaging.averaged)
    judged = [make_trainer(model, optim.SGD(0.5)).evaluate(data)["loss"] for model in seen]
    assert averaging.history["validation_loss"] == judged
    assert averaging.evaluate(data)["loss"] == judged[-1] != plain.evaluate(data)["loss"]
    expected = make_trainer(seen[-1], optim.SGD(0.5)).predict(data.inputs)
    np.testing.assert_array_equal(averaging.predict(data.inputs), expected)


def test_the_averages_are_a_copy_that_can_be_saved(data, make_model, tmp_path):
    trainer = make_trainer(make_model(), optim.Averaged(optim.SGD(0.5), 0.9))
    trainer.fit(data, 1)
    found = trainer.averaged
    before = bits(found)
    pb.save(found, tmp_path / "m.safetensors")
    trainer.fit(data, 1)
    assert bits(found) == before == bits(pb.load(tmp_path / "m.safetensors", like=trainer.model))
    assert bits(make_trainer(found, optim.SGD(0.5)).averaged) == before


def test_running_statistics_are_those_of_the_model(data):
    model = nn.Chain(nn.Dense(6, 8, seed=0), nn.BatchNorm(8), nn.Dense(8, 3, seed=1))
    trainer = make_trainer(model, optim.Averaged(optim.Adam(0.01), 0.9))
    trainer.fit(data, 2)
    found = trainer.averaged
    np.testing.assert_array_equal(found[1].running_mean, model[1].running_mean)
    assert not np.array_equal(found[0].weight, model[0].weight) and np.isfinite(
        trainer.evaluate(data)["loss"]
    )


@pytest.mark.parametrize("outside", [False, True])
def test_the_mean_of_a_group_is_clipped_whatever_is_around(data, make_model, outside):
    inner = optim.Accumulate(optim.SGD(0.5), 2)
    optimiser = (
        optim.Averaged(inner, 0.5) if outside else optim.Accumulate(optim.Averaged(optim.SGD(0.5), 0.5), 2)
    )
    found, expected = (
        make_trainer(make_model(), each, clip_norm=0.01)
        for each in (optimiser, optim.Accumulate(optim.SGD(0.5), 2))
    )
    found.fit(data, 2)
    expected.fit(data, 2)
    assert bits(found.model) == bits(expected.model)


def wavy(trainer):
    optim.rate_factor(trainer.state)[...] = 1.0 if trainer.history.epochs < 3 else 30.0


def averaging():
    return optim.Averaged(optim.Adjustable(optim.SGD(0.5, momentum=0.9)), 0.9)


def test_the_best_averages_are_put_back(data, make_model):
    trainer, seen = make_trainer(make_model(), averaging()), []
    stopping = EarlyStopping("validation_loss", patience=2, restore_best=True)
    keep = lambda trainer: seen.append(bits(trainer.averaged))  # noqa: E731
    history = trainer.fit(data, 20, validation=data, on_epoch_end=[stopping, keep, wavy])
    best = int(np.argmin(history["validation_loss"]))
    assert best + 1 < history.epochs < 20
    assert bits(trainer.model) == bits(trainer.averaged) == seen[best]
    assert trainer.evaluate(data)["loss"] == history["validation_loss"][best]


def test_averages_are_in_checkpoints(data, make_model, tmp_path):
    whole, first, second = (make_trainer(make_model(), averaging()) for _ in range(3))
    whole.fit(data, 4)
    first.fit(data, 2)
    save_checkpoint(first, tmp_path / "c")
    load_checkpoint(second, tmp_path / "c")
    second.fit(data, 2)
    assert bits((second.model, second.averaged)) == bits((whole.model, whole.averaged))


def test_a_loop_of_ones_own(make_model):
    optimiser, model = optim.Averaged(optim.Adam(0.01), 0.9), make_model()
    x, y = np.ones((4, 6), np.float32), np.array([0, 1, 2, 0])

    def step(model, state):
        gradient = pb.grad(lambda model: nn.softmax_cross_entropy(model(x), y))(model)
        return optimiser.update(gradient, state, model)

    state, compiled, found = optimiser.init(model), pb.jit(step, donate_argnums=(0, 1)), []
    for _ in range(3):
        model, state = compiled(model, state)
        found.append(map_tree(np.copy, model))
    shares = 0.9 ** np.arange(2.0, -1, -1)
    expected = map_tree(lambda *w: np.tensordot(shares / shares.sum(), np.stack(w), 1), *found)
    map_tree(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), optim.averaged(state, model), expected)
