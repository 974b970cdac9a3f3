"""Early stopping with the best model, and learning rates that fall on a plateau; also across checkpoints."""

import numpy as np
import pytest

from pullback import nn, optim
from pullback import numpy as pnp
from pullback.errors import DataError, NonFiniteLoss
from pullback.tracing import flatten
from pullback.train import EarlyStopping, ReduceOnPlateau, Trainer, load_checkpoint, save_checkpoint
from pullback.train.history import History


def make_trainer(model, optimiser=None, seed=7):
    optimiser = optimiser or optim.Adjustable(optim.SGD(0.5, momentum=0.9))
    return Trainer(model, nn.softmax_cross_entropy, optimiser, batch_size=20, scale=1 / 255, seed=seed)


def bits(tree):
    return [array.tobytes() for array in flatten(tree)[0]]


class Recorder:
    """Keeps the model's bits after each epoch."""

    def __init__(self):
        self.models = []

    def __call__(self, trainer):
        self.models.append(bits(trainer.model))


# -- Stopping


@pytest.mark.parametrize(
    ("answer", "epochs"), [(True, 1), (np.True_, 1), (1, 3), (np.False_, 3), (np.ones(2), 3)]
)
def test_a_callback_that_returns_true_ends_the_training(data, make_model, answer, epochs):
    """NumPy's True as well: what a comparison with a mean of figures gives."""
    assert make_trainer(make_model()).fit(data, 3, on_epoch_end=lambda trainer: answer).epochs == epochs


# -- Early stopping


def wavy(trainer):
    """Learning rates that make the loss of later epochs worse."""
    optim.rate_factor(trainer.state)[...] = 1.0 if trainer.history.epochs < 3 else 30.0


def test_the_best_model_is_put_back(data, make_model):
    trainer, seen = make_trainer(make_model()), Recorder()
    stopping = EarlyStopping("loss", patience=2, restore_best=True)
    trainer.fit(data, 20, on_epoch_end=[stopping, seen, wavy])
    best = int(np.argmin(trainer.history["loss"]))
    assert trainer.history.epochs == best + 3 < 20
    assert bits(trainer.model) == seen.models[best] != seen.models[-1]
    assert trainer.best.epoch == best + 1 and trainer.best.value == trainer.history["loss"][best]


def test_the_best_model_is_put_back_after_the_last_epoch_and_after_ctrl_c(data, make_model):
    def interrupt(trainer):
        if trainer.history.epochs == 5:
            raise KeyboardInterrupt

    for end in (lambda trainer: None, interrupt):
        trainer, seen = make_trainer(make_model()), Recorder()
        stopping = EarlyStopping("accuracy", patience=9, rising=True, restore_best=True)
        history = trainer.fit(data, 5, on_epoch_end=[stopping, seen, wavy, end])
        best = int(np.argmax(history["accuracy"]))
        assert history.epochs == 5 and best < 4 and bits(trainer.model) == seen.models[best]


def test_without_the_option_the_last_model_stays(data, make_model):
    trainer, seen = make_trainer(make_model()), Recorder()
    trainer.fit(data, 20, on_epoch_end=[EarlyStopping("loss", patience=2), seen, wavy])
    assert bits(trainer.model) == seen.models[-1] and trainer.best is None


@pytest.mark.parametrize("saved_after", [2, 4])
def test_the_best_model_is_in_checkpoints(data, make_model, tmp_path, saved_after):
    """The best epoch is the third: before the checkpoint, or after it."""
    whole, first, second = (make_trainer(make_model(), seed=seed) for seed in (7, 7, 0))
    stopping = {"figure": "loss", "patience": 2, "restore_best": True}
    whole.fit(data, 20, on_epoch_end=[EarlyStopping(**stopping), wavy])

    def save(trainer):
        if trainer.history.epochs == saved_after:
            save_checkpoint(trainer, tmp_path / "c")
            return True
        return False

    first.fit(data, 20, on_epoch_end=[EarlyStopping(**stopping), wavy, save])
    load_checkpoint(second, tmp_path / "c")
    second.fit(data, 20 - saved_after, on_epoch_end=[EarlyStopping(**stopping), wavy])
    assert bits((second.model, second.state)) == bits((whole.model, whole.state))
    assert second.history["loss"] == whole.history["loss"] and second.best.epoch == whole.best.epoch == 3


def test_a_checkpoint_without_a_best_model_forgets_it(data, make_model, tmp_path):
    trainer = make_trainer(make_model())
    save_checkpoint(trainer, tmp_path / "c")
    trainer.fit(data, 1, on_epoch_end=EarlyStopping("loss", restore_best=True))
    assert trainer.best is not None
    load_checkpoint(trainer, tmp_path / "c")
    assert trainer.best is None


# -- Plateau


def factors(values, **options):
    """The factor after each epoch, judged epoch by epoch."""
    trainer = make_trainer(nn.Dense(1, 1, seed=0))
    found = []
    for value in values:
        trainer.history.append({"validation_loss": value})
        ReduceOnPlateau(**options)(trainer)
        found.append(float(trainer.state.factor))
    return found


@pytest.mark.parametrize(
    ("losses", "options", "expected"),
    [
        ([5, 4, 3, 2], {}, [1, 1, 1, 1]),
        ([3, 3, 3, 3, 3, 3], {}, [1, 1, 0.5, 0.5, 0.25, 0.25]),
        ([3, 4, 2, 4, 4, 4], {}, [1, 1, 1, 1, 0.5, 0.5]),
        ([3, 2.9, 2.8, 2.7], {"least": 0.5}, [1, 1, 0.5, 0.5]),
        ([3, 3, 3, 3, 3, 3, 3], {"cooldown": 2}, [1, 1, 0.5, 0.5, 0.5, 0.5, 0.25]),
        ([3, 3, 3, 3, 3, 3, 3], {"lowest": 0.2}, [1, 1, 0.5, 0.5, 0.4, 0.4, 0.4]),
        ([3, 3, 3], {"lowest": 7.0}, [1, 1, 1]),
        ([1, 2, 3, 3, 3], {"rising": True}, [1, 1, 1, 1, 0.5]),
        ([1, float("nan"), float("nan")], {}, [1, 1, 0.5]),
    ],
)
def test_reductions(losses, options, expected):
    assert factors(losses, patience=2, factor=0.5, **options) == expected


def test_reductions_are_those_of_a_scheduler_that_counts():
    """The rule written as a machine with a state, on random losses."""
    for seed in range(20):
        losses = np.random.default_rng(seed).integers(0, 30, 40).astype(float)
        patience, cooldown = 1 + seed % 4, seed % 3
        best, bad, cool, factor, expected = np.inf, 0, 0, 1.0, []
        for loss in losses:
            best, bad = (loss, 0) if loss < best else (best, bad + 1)
            if cool:
                cool, bad = cool - 1, 0
            if bad >= patience:
                factor, cool, bad = factor / 2, cooldown, 0
            expected.append(factor)
        assert factors(losses, patience=patience, cooldown=cooldown, factor=0.5) == expected


def test_the_rate_falls_without_another_compilation(data, make_model):
    """Training with the callback is training with the rates that it enters into the history."""
    trainer = make_trainer(make_model(), optim.Adjustable(optim.SGD(0.5)))
    plateau = ReduceOnPlateau("loss", factor=0.1, patience=1, least=10.0)
    history = trainer.fit(data, 4, on_epoch_end=plateau)
    np.testing.assert_allclose(history["learning_rate"], [0.5, 0.5, 0.05, 0.005], rtol=1e-12)
    assert len(trainer._train._programs) == 2  # whole batches, and the rest of an epoch
    by_schedule = optim.SGD(lambda step: 0.5 * 0.1 ** pnp.maximum(pnp.floor(step / 6) - 1, 0.0))
    expected = make_trainer(make_model(), by_schedule).fit(data, 4)
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-5)


@pytest.mark.parametrize(
    "optimiser",
    [
        optim.Adjustable(optim.Adam(optim.schedules.Cosine(0.05, 30))),
        optim.Accumulate(optim.Adjustable(optim.SGD(0.5, 0.9)), 4),
    ],
    ids=["schedule", "accumulated"],
)
def test_reductions_go_on_from_a_checkpoint(data, make_model, tmp_path, optimiser):
    whole, first, second = (make_trainer(make_model(), optimiser, seed) for seed in (7, 7, 0))
    plateau = ReduceOnPlateau("loss", factor=0.5, patience=1, least=10.0, cooldown=1)
    whole.fit(data, 8, on_epoch_end=plateau)
    first.fit(data, 3, on_epoch_end=plateau)
    save_checkpoint(first, tmp_path / "c")
    load_checkpoint(second, tmp_path / "c")
    second.fit(data, 5, on_epoch_end=plateau)
    assert bits((second.model, second.state)) == bits((whole.model, whole.state))
    assert second.history["learning_rate"] == whole.history["learning_rate"]
    assert optim.rate_factor(whole.state) == 0.5**4


def test_a_bad_step_goes_back_to_what_a_callback_left(data, make_model):
    """Good steps before it are repeated with the learning rate that the callback set."""
    inputs = data.inputs / np.float32(255)
    trainers = [make_trainer(make_model()) for _ in range(2)]

    def change(trainer):
        trainer.state.factor[...] = 0.1
        if trainer.history.epochs == 2:
            inputs[-1] = np.nan  # in the last batch of what is the third epoch

    trainers[0].fit((inputs, data.labels), 2, shuffle=False, on_epoch_end=change)
    trainers[0].fit((inputs[:100], data.labels[:100]), 1, shuffle=False)
    inputs[-1] = data.inputs[-1] / np.float32(255)
    with pytest.raises(NonFiniteLoss, match="step 18"):
        trainers[1].fit((inputs, data.labels), 3, shuffle=False, on_epoch_end=change)
    assert bits(trainers[0].model) == bits(trainers[1].model)


def test_a_callback_may_go_back_to_a_checkpoint(data, make_model, tmp_path):
    """What dropout drops depends on the number of the step: it goes back too."""
    expected, trainer = (
        make_trainer(nn.Chain(make_model(), nn.Dropout(0.3)), optim.SGD(0.5)) for _ in range(2)
    )
    expected.fit(data, 3)

    def back(trainer):
        if trainer.history.epochs == 1:
            save_checkpoint(trainer, tmp_path / "c")
        elif trainer.history.epochs == 2 and not returned:
            load_checkpoint(trainer, tmp_path / "c")
            returned.append(trainer.steps)

    returned = []
    trainer.fit(data, 4, on_epoch_end=back)
    assert returned == [6] and trainer.steps == 18
    assert bits(trainer.model) == bits(expected.model)


# -- What goes wrong


def test_a_figure_that_is_not_there(data, make_model):
    for callback in (EarlyStopping(), ReduceOnPlateau()):
        with pytest.raises(DataError, match=r"no validation_loss, only loss, accuracy.*validation set"):
            make_trainer(make_model()).fit(data, 1, on_epoch_end=callback)


def test_an_optimiser_with_a_fixed_rate(data, make_model):
    with pytest.raises(TypeError, match=r"Adjustable\(SGD"):
        make_trainer(make_model(), optim.SGD(0.1)).fit(data, 1, on_epoch_end=ReduceOnPlateau("loss"))


@pytest.mark.parametrize(
    "options",
    [{"factor": 1.0}, {"factor": 0.0}, {"patience": 0}, {"cooldown": -1}, {"least": -1.0}, {"lowest": -0.1}],
    ids=str,
)
def test_settings_that_make_no_sense(options):
    with pytest.raises(ValueError, match="ReduceOnPlateau"):
        ReduceOnPlateau(**options)


def test_an_empty_history_judges_nothing():
    trainer = make_trainer(nn.Dense(1, 1, seed=0))
    trainer.history = History()
    with pytest.raises(DataError, match="only nothing"):
        EarlyStopping()(trainer)
