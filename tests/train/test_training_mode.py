"""Dropout, batch normalisation and embeddings in the trainer: learning, reproducible, and only in ``fit``."""

import numpy as np
import pytest

from pullback import nn, optim, random, value_and_grad
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.data import Dataset, epoch_order, load_digits
from pullback.errors import IndexRangeError, NonFiniteLoss
from pullback.random import fold_in
from pullback.tracing import flatten, map_tree
from pullback.train import Trainer, load_checkpoint, save_checkpoint

SCALE = 1 / 255


def make_model():
    seed = np.random.default_rng(0)
    return nn.Chain(
        nn.flatten,
        nn.Dense(6, 16, seed=seed),
        nn.BatchNorm(16),
        nn.relu,
        nn.Dropout(0.3),
        nn.Dense(16, 4, seed=seed),
        nn.Dropout(0.1),
    )


def make_trainer(model, **options):
    settings = {"batch_size": 20, "scale": SCALE, **options}
    return Trainer(model, nn.softmax_cross_entropy, optim.SGD(0.1, momentum=0.9), **settings)


def leaves_of(model):
    return [np.array(leaf) for leaf in flatten(model)[0]]


def fitted(data, epochs=3, **options):
    model = make_model()
    make_trainer(model, **options).fit(data, epochs)
    return leaves_of(model)


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_learns_the_digits_and_evaluates_without_chance():
    digits = load_digits()
    seed = np.random.default_rng(0)
    model = nn.Chain(
        nn.flatten,
        nn.Dense(64, 64, seed=seed),
        nn.BatchNorm(64),
        nn.relu,
        nn.Dropout(0.2),
        nn.Dense(64, 10, seed=seed),
    )
    trainer = make_trainer(model, batch_size=50, scale=digits.scale)
    history = trainer.fit(digits.train, 5, validation=digits.test)
    assert history["validation_accuracy"][-1] > 0.93
    before = leaves_of(model)
    first, second = trainer.evaluate(digits.test), trainer.evaluate(digits.test)
    assert first == second and same(before, leaves_of(model))
    assert first["loss"] == pytest.approx(history["validation_loss"][-1], rel=1e-6)
    logits = trainer.predict(digits.test.inputs)
    expected = model(digits.test.inputs.astype(np.float32) * np.float32(digits.scale))
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_a_training_is_what_the_loop_by_hand_does(data):
    """The same batches, keys and updates in the interpreter, running statistics included."""
    expected, optimiser = make_model(), optim.SGD(0.1, momentum=0.9)
    state, step = optimiser.init(expected), 0

    def objective(model, x, y, key):
        with nn.training(key) as mode:
            return nn.softmax_cross_entropy(model(x), y), mode.updated(model)

    for epoch in range(2):
        order = epoch_order(len(data), 7, epoch)
        for start in range(0, 100, 20):
            rows = order[start : start + 20]
            x, y = data.inputs[rows].astype(np.float32) * np.float32(SCALE), data.labels[rows]
            key = fold_in(random.key(7), step)
            (_, expected), gradients = value_and_grad(objective, has_aux=True)(expected, x, y, key)
            expected, state = optimiser.update(gradients, state, expected)
            step += 1
    for found, wanted in zip(fitted(data, 2, seed=7, drop_last=True), leaves_of(expected), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


def test_the_seed_decides(data):
    first = fitted(data, seed=1)
    assert same(first, fitted(data, seed=1))
    assert not same(first, fitted(data, seed=2))


def test_threads_do_not_matter(data):
    before = get_num_threads()
    try:
        results = []
        for number in (1, 2, 3):
            set_num_threads(number)
            results.append(fitted(data))
    finally:
        set_num_threads(before)
    assert same(results[0], results[1]) and same(results[0], results[2])


def test_epochs_may_come_in_several_calls_and_blocks(data, monkeypatch):
    expected = fitted(data, 4)
    model = make_model()
    trainer = make_trainer(model)
    trainer.fit(data, 1)
    monkeypatch.setattr("pullback.train.pace._GROWTH", 1)  # each step in a block of its own
    trainer.fit(data, 3)
    assert same(expected, leaves_of(model))


def test_going_back_replays_what_was_dropped(data):
    """After a step that failed, the model is that of the steps before it, bit for bit."""
    inputs = data.inputs.astype(np.float32)
    inputs[epoch_order(len(data), 0, 0)[70]] = np.nan
    model, expected = make_model(), make_model()
    trainer = make_trainer(model)
    with pytest.raises(NonFiniteLoss, match="at step 4 "):
        trainer.fit((inputs, data.labels), 1)
    assert trainer.steps == 3
    rows = epoch_order(len(data), 0, 0)[:60]
    make_trainer(expected).fit(
        Dataset(data.inputs[rows].astype(np.float32), data.labels[rows]), 1, shuffle=False
    )
    assert same(leaves_of(model), leaves_of(expected))


class Words(nn.Module):
    """The mean of a text's vectors, and a layer above."""

    table: nn.Embedding
    dense: nn.Dense

    def __call__(self, tokens):
        return self.dense(self.table(tokens).mean(axis=1))


def texts(count=60):
    tokens = np.random.default_rng(0).integers(0, 50, (count, 6)).astype(np.uint16)
    return tokens, (tokens < 25).sum(axis=1).astype(np.uint8) // 4


@pytest.mark.parametrize("trainable", [True, False])
def test_a_table_is_trained_or_stays_bit_for_bit(trainable):
    model = Words(nn.Embedding(50, 8, trainable, seed=0), nn.Dense(8, 2, seed=0))
    before = map_tree(np.copy, model)
    trainer = Trainer(model, nn.softmax_cross_entropy, optim.Adam(0.01, weight_decay=0.1), batch_size=10)
    history = trainer.fit(texts(), 20)
    assert history["loss"][-1] < history["loss"][0]
    assert np.array_equal(model.table.weight, before.table.weight) is not trainable
    assert not np.array_equal(model.dense.weight, before.dense.weight)


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_a_token_out_of_range_is_found_in_the_data_set(method):
    tokens, labels = texts()
    tokens[41, 3] = 777
    trainer = Trainer(
        Words(nn.Embedding(50, 8, seed=0), nn.Dense(8, 2, seed=0)), nn.softmax_cross_entropy, optim.SGD(0.1)
    )
    arguments = {"fit": ((tokens, labels), 1), "evaluate": ((tokens, labels),), "predict": (tokens,)}[method]
    with pytest.raises(IndexRangeError, match=r"token: 777 (.|\n)* the data set has token 777 in row 41$"):
        getattr(trainer, method)(*arguments)


def test_a_checkpoint_resumes_what_is_dropped_and_what_is_normalised(data, tmp_path):
    expected = fitted(data, 4)
    first = make_trainer(make_model())
    first.fit(data, 2)
    save_checkpoint(first, tmp_path / "checkpoint.safetensors")
    second = make_trainer(make_model(), seed=5)
    load_checkpoint(second, tmp_path / "checkpoint.safetensors")
    second.fit(data, 2)
    assert same(expected, leaves_of(second.model))
