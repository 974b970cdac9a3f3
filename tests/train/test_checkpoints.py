"""Checkpoints, callbacks and early stopping."""

import errno
import json
import os

import numpy as np
import pytest

from pullback import io, nn, optim
from pullback.errors import DataError, OutputError, SettingError
from pullback.tracing import flatten
from pullback.train import EarlyStopping, Trainer, load_checkpoint, save_checkpoint


def make_trainer(model, optimiser=None, seed=7):
    rate = optim.schedules.Cosine(0.05, 20)
    return Trainer(
        nn.Chain(model, nn.Dropout(0.2)),
        nn.softmax_cross_entropy,
        optimiser or optim.Adam(rate, amsgrad=True),
        batch_size=20,
        scale=1 / 255,
        seed=seed,
    )


def bits(trainer):
    return [array.tobytes() for array in flatten((trainer.model, trainer.state))[0]]


def test_resumes_to_the_same_bits(data, make_model, tmp_path):
    whole, first, second = (
        make_trainer(make_model()),
        make_trainer(make_model()),
        make_trainer(make_model(), seed=0),
    )
    whole.fit(data, 4, validation=data)
    first.fit(data, 2)
    save_checkpoint(first, tmp_path / "c")
    weight = flatten(second.model)[0][0]
    load_checkpoint(second, tmp_path / "c")
    assert bits(second) == bits(first) and flatten(second.model)[0][0] is weight
    second.fit(data, 2, validation=data)
    assert bits(second) == bits(whole) != bits(first)
    assert second.steps == whole.steps and second.history["loss"] == whole.history["loss"]
    assert second.history["learning_rate"] == whole.history["learning_rate"]
    assert np.isnan(second.history["validation_loss"]).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    "optimiser",
    [optim.Accumulate(optim.SGD(0.3, 0.9), 4), optim.Adjustable(optim.Lion(0.01)), optim.LBFGS(memory=3)],
    ids=["accumulated", "adjustable", "L-BFGS"],
)
def test_every_state_resumes_to_the_same_bits(data, make_model, tmp_path, optimiser):
    """The checkpoint is in the middle of a group: three batches an epoch, four a group."""
    size = 103 if isinstance(optimiser, optim.LBFGS) else 40
    whole, first, second = (
        Trainer(make_model(), nn.softmax_cross_entropy, optimiser, batch_size=size, scale=1 / 255)
        for _ in range(3)
    )
    whole.fit(data, 5)
    first.fit(data, 2)
    save_checkpoint(first, tmp_path / "c")
    load_checkpoint(second, tmp_path / "c")
    second.fit(data, 3)
    assert bits(second) == bits(whole) != bits(first)


def test_another_training_is_refused_and_changes_nothing(data, make_model, tmp_path):
    trainer = make_trainer(make_model())
    trainer.fit(data, 1)
    save_checkpoint(trainer, tmp_path / "c")
    io.save(trainer.model, tmp_path / "model")
    wider = make_trainer(nn.Chain(nn.Dense(6, 9, activation=np.tanh, seed=0), nn.Dense(9, 3, seed=0)))
    other = make_trainer(make_model(), optim.SGD(0.1))
    within = make_trainer(make_model(), optim.Accumulate(optim.Adam(), 2))
    for found, path, message in (
        (wider, "c", r"model\.layers\.0\.layers\.0\.weight.*\[6, 8\], expected float32\[6, 9\]"),
        (other, "c", "optimiser was Adam, and is SGD"),
        (within, "c", "optimiser was Adam, and is Accumulate"),
        (trainer, "model", "no checkpoint"),
        (trainer, "missing", "missing"),
    ):
        before = bits(found)
        with pytest.raises(DataError, match=message):
            load_checkpoint(found, tmp_path / path)
        assert bits(found) == before and found.history.epochs == (found is trainer)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": -1},
        {"seed": "7"},
        {"steps": 1.5},
        {"steps": -6},
        {"epochs": 9},
        {"history": [1.0]},
        {"history": {"loss": ["low"]}},
        {"best": {"figure": "loss"}},
        {"settings": None},
        {"settings": {}},
        {"data": 3},
        {"epochs": 1e300},
        {"epochs": 10**400, "history": {"loss": []}},
        {"history": {"loss": [10**400]}},
        {"best": {"figure": "loss", "value": "low", "epoch": 1}},
        {"best": {"figure": "loss", "value": 0.5, "epoch": 2}},
        None,
    ],
    ids=str,
)
def test_an_entry_that_was_tampered_with_changes_nothing(data, make_model, tmp_path, change):
    trainer = make_trainer(make_model())
    trainer.fit(data, 1)
    save_checkpoint(trainer, tmp_path / "c")
    (name,) = io.load_metadata(tmp_path / "c")
    entry = json.loads(io.load_metadata(tmp_path / "c")[name])
    text = "{" if change is None else json.dumps({**entry, **change})
    io.save_tensors(tmp_path / "c", io.load_tensors(tmp_path / "c"), {name: text})
    fresh = make_trainer(make_model(), seed=3)
    before = bits(fresh)
    with pytest.raises(DataError, match=r"\[load_checkpoint\]"):
        load_checkpoint(fresh, tmp_path / "c")
    assert bits(fresh) == before and fresh.seed == 3 and fresh.history.epochs == fresh.steps == 0


def test_a_checkpoint_that_is_cut_off_or_flipped(data, make_model, tmp_path):
    trainer = make_trainer(make_model())
    save_checkpoint(trainer, tmp_path / "c")
    content = (tmp_path / "c").read_bytes()
    for damaged in (content[:-9], content[: len(content) // 9], content[:-1] + bytes([content[-1] ^ 1]), b""):
        (tmp_path / "c").write_bytes(damaged)
        with pytest.raises(DataError, match="damaged"):
            load_checkpoint(trainer, tmp_path / "c")


def test_a_full_disk_leaves_the_old_one(data, make_model, tmp_path, monkeypatch):
    trainer = make_trainer(make_model())
    save_checkpoint(trainer, tmp_path / "c")
    before = (tmp_path / "c").read_bytes()
    trainer.fit(data, 1)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        save_checkpoint(trainer, tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == before and os.listdir(tmp_path) == ["c"]


def test_callbacks_see_each_epoch_and_can_stop(data, make_model):
    seen = []
    trainer = make_trainer(make_model())
    trainer.fit(data, 3, on_epoch_end=lambda t: seen.append(t.history["loss"][-1]))
    assert seen == trainer.history["loss"] and len(seen) == 3
    called = []
    trainer.fit(data, 5, on_epoch_end=[lambda t: True, lambda t: called.append(t.steps)])
    assert trainer.history.epochs == 4 and called == [trainer.steps]


@pytest.mark.parametrize(
    ("losses", "options", "stops"),
    [
        ([3, 2, 1], {}, False),
        ([3, 2, 2], {}, False),
        ([3, 2, 2, 2.5], {}, True),
        ([3, 2, 2.5, 1.9, 2], {}, False),
        ([3, 2.9, 2.8], {"least": 0.5}, True),
        ([1, 2, 3], {"rising": True}, False),
        ([3, 2, 1], {"rising": True}, True),
        ([1, float("nan"), float("nan")], {}, True),
    ],
)
def test_early_stopping(data, make_model, losses, options, stops):
    trainer = make_trainer(make_model())
    for loss in losses:
        trainer.history.append({"validation_loss": loss})
    assert EarlyStopping(patience=2, **options)(trainer) is stops


def test_early_stopping_ends_a_training(data, make_model):
    trainer = make_trainer(make_model(), optim.SGD(0.0))
    trainer.fit(data, 9, validation=data, on_epoch_end=EarlyStopping(patience=2))
    assert trainer.history.epochs == 3


@pytest.mark.parametrize("options", [{"patience": 0}, {"least": -1.0}])
def test_settings_that_make_no_sense(options):
    with pytest.raises(ValueError, match="EarlyStopping"):
        EarlyStopping(**options)


SETTINGS = {
    "batch_size": 20,
    "scale": 1 / 255,
    "clip_norm": 1.0,
    "clip_value": None,
    "drop_last": False,
    "loss": nn.softmax_cross_entropy,
    "optimiser": optim.Adam(0.05, beta1=0.8),
    "rate": 0.2,
}


def trainer_with(make_model, **changes):
    settings = {**SETTINGS, **changes}
    model = nn.Chain(make_model(), nn.Dropout(settings.pop("rate")))
    return Trainer(model, settings.pop("loss"), settings.pop("optimiser"), **settings)


def other_loss(outputs, labels):
    return 2 * nn.softmax_cross_entropy(outputs, labels)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 25}, "batch_size was 20, and is 25"),
        ({"scale": None}, r"scale was 0\.0039\d*, and is None"),
        ({"clip_norm": 2.0}, r"clip_norm was 1\.0, and is 2\.0"),
        ({"clip_value": 0.5}, r"clip_value was None, and is 0\.5"),
        ({"drop_last": True}, "drop_last was False, and is True"),
        ({"loss": other_loss}, "loss was .*softmax_cross_entropy', and is .*other_loss'"),
        ({"optimiser": optim.Adam(0.05)}, r"optimiser\.beta1 was 0\.8, and is 0\.9"),
        ({"optimiser": optim.Adam(0.1, beta1=0.8)}, r"optimiser\.learning_rate was 0\.05, and is 0\.1"),
        ({"rate": 0.5}, r"model\.layers\.1\.rate was 0\.2, and is 0\.5"),
        ({"batch_size": 25, "clip_norm": None}, "batch_size was .*; clip_norm was "),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value),
)
def test_every_setting_that_makes_a_difference_is_compared(data, make_model, tmp_path, changes, message):
    trainer = trainer_with(make_model)
    trainer.fit(data, 1)
    save_checkpoint(trainer, tmp_path / "c")
    found = trainer_with(make_model, **changes)
    before = bits(found)
    with pytest.raises(DataError, match=f"c does not fit: .*{message}.*Make the trainer as it was"):
        load_checkpoint(found, tmp_path / "c")
    assert bits(found) == before and found.steps == 0
    load_checkpoint(found, tmp_path / "c", changed=(*changes, "learning_rate", "beta1"))
    assert bits(found) == bits(trainer)


def test_the_data_are_compared_when_the_training_goes_on(data, make_model, tmp_path):
    trainer = trainer_with(make_model)
    trainer.fit(data, 1)
    save_checkpoint(trainer, tmp_path / "c")
    found = trainer_with(make_model)
    load_checkpoint(found, tmp_path / "c")
    with pytest.raises(DataError, match=r"other data: rows was 103, and is 80"):
        found.fit(data[:80], 1)
    with pytest.raises(DataError, match=r"other data: shuffle was True, and is False"):
        found.fit(data, 1, shuffle=False)
    found.fit(data, 1)
    found.fit(data[:80], 1)  # once it goes on, it is a training like any other
    load_checkpoint(found, tmp_path / "c", changed=["data"])
    found.fit(data[:80], 1)


def test_a_checkpoint_without_settings_is_refused(data, make_model, tmp_path):
    trainer = trainer_with(make_model)
    save_checkpoint(trainer, tmp_path / "c")
    (name,) = io.load_metadata(tmp_path / "c")
    entry = json.loads(io.load_metadata(tmp_path / "c")[name])
    del entry["settings"]
    io.save_tensors(tmp_path / "c", io.load_tensors(tmp_path / "c"), {name: json.dumps(entry)})
    with pytest.raises(DataError, match="of an earlier version"):
        load_checkpoint(trainer, tmp_path / "c")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("learning_rates", "names 'learning_rates', and nothing is called so. Near it .*'learning_rate'"),
        (["data", "batchsize"], "names 'batchsize'.*'batch_size'"),
        (("optimiser.beta3",), "names 'optimiser.beta3'.*'optimiser.beta"),
        ("xyz", "There are batch_size, .*data, .*optimiser"),
    ],
)
def test_names_of_what_is_changed_are_those_of_something(data, make_model, tmp_path, changed, message):
    trainer = make_trainer(make_model())
    save_checkpoint(trainer, tmp_path / "c")
    with pytest.raises(SettingError, match=message):
        load_checkpoint(trainer, tmp_path / "c", changed=changed)


def test_one_name_of_what_is_changed_needs_no_tuple(make_model, tmp_path):
    save_checkpoint(make_trainer(make_model(), optim.SGD(0.1)), tmp_path / "c")
    load_checkpoint(make_trainer(make_model(), optim.SGD(0.2)), tmp_path / "c", changed="learning_rate")


def test_a_batch_size_that_was_set_is_that_of_the_training(make_model, tmp_path):
    trainer = make_trainer(make_model())
    trainer.batch_size = 10
    save_checkpoint(trainer, tmp_path / "c")
    load_checkpoint(trainer, tmp_path / "c")
    with pytest.raises(DataError, match="batch_size was 10, and is 20"):
        load_checkpoint(make_trainer(make_model()), tmp_path / "c")
