"""The trainer against a loop written out by hand, and what it does when something is wrong."""

import os
import signal
import threading

import numpy as np
import pytest

from pullback import metrics, nn, optim, value_and_grad
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.data import Dataset, epoch_order, load_digits
from pullback.errors import DataError, DonationError, IndexRangeError, NonFiniteLoss, SettingError, TreeError
from pullback.tracing import flatten, map_tree
from pullback.train import Trainer
from pullback.train.snapshot import Snapshot

SCALE = 1 / 255


def make_trainer(model, rate=0.5, loss=nn.softmax_cross_entropy, **options):
    return Trainer(model, loss, optim.SGD(rate), **{"batch_size": 20, "scale": SCALE, **options})


def by_hand(model, data, epochs, rate=0.5, batch_size=20):
    """Every step by the interpreter; the mean loss of each epoch."""
    losses = []
    for epoch in range(epochs):
        order, total = epoch_order(len(data), 0, epoch), 0.0
        for start in range(0, len(data), batch_size):
            rows = order[start : start + batch_size]
            x, y = data.inputs[rows].astype(np.float32) * np.float32(SCALE), data.labels[rows]
            loss, gradients = value_and_grad(lambda m, x, y: nn.softmax_cross_entropy(m(x), y))(model, x, y)
            model = map_tree(lambda p, g: p - np.float32(rate) * g, model, gradients)
            total += float(loss) * len(rows)
        losses.append(total / len(data))
    return model, losses


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(flatten(first)[0], flatten(second)[0], strict=True))


def test_training_is_what_the_loop_by_hand_does(data, make_model):
    expected, losses = by_hand(make_model(), data, epochs=3)
    model = make_model()
    history = make_trainer(model).fit(data, 3)
    np.testing.assert_allclose(history["loss"], losses, rtol=1e-5)
    for found, wanted in zip(flatten(model)[0], flatten(expected)[0]):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_the_model_itself_is_trained(data, make_model):
    model = make_model()
    weight = model[0].weight
    before = weight.copy()
    trainer = make_trainer(model)
    trainer.fit(data, 1)
    assert model[0].weight is weight and trainer.model is model
    assert not np.array_equal(weight, before)


def test_learns_the_digits():
    digits = load_digits()
    random = np.random.default_rng(0)
    model = nn.Chain(nn.Reshape(4, 16), nn.RNN(16, 32, seed=random), nn.Dense(32, 10, seed=random))
    trainer = Trainer(
        model,
        nn.softmax_cross_entropy,
        optim.SGD(0.05, 0.9, nesterov=True),
        batch_size=50,
        scale=digits.scale,
    )
    history = trainer.fit(digits.train, 10, validation=digits.test)
    assert history["accuracy"][-1] > 0.95
    assert history["validation_accuracy"][-1] > 0.9
    assert history["loss"][-1] < history["loss"][0] / 5


def test_history_has_a_figure_of_each_kind_per_epoch(data, make_model):
    trainer = make_trainer(make_model())
    history = trainer.fit(data, 2, validation=data[:50])
    history = trainer.fit(data, 1)
    assert history is trainer.history and history.epochs == 3 and not history.interrupted
    assert set(history) == {
        "loss",
        "accuracy",
        "validation_loss",
        "validation_accuracy",
        "steps",
        "seconds",
        "steps_per_second",
        "peak_memory",
        "learning_rate",
    }
    assert history["steps"] == [6, 6, 6] and trainer.steps == 18 and history["learning_rate"] == [0.5] * 3
    assert all(len(values) == 3 for values in history.values())
    assert np.isnan(history["validation_loss"]).tolist() == [False, False, True]


def test_figures_are_those_of_all_rows_whatever_the_batches(data, make_model):
    """With a learning rate of zero an epoch's means are those of the data set; 103 rows leave a remainder."""
    for batch_size in (20, 103, 500):
        model = make_model()
        trainer = make_trainer(model, rate=0.0, batch_size=batch_size)
        history = trainer.fit(data, 1)
        logits = model(data.inputs * np.float32(SCALE))
        loss = nn.softmax_cross_entropy(logits, data.labels)
        accuracy = (logits.argmax(axis=1) == data.labels).mean()
        evaluated = trainer.evaluate(data)
        for figures in (history.last(), evaluated):
            assert figures["loss"] == pytest.approx(loss, rel=1e-6)
            assert figures["accuracy"] == pytest.approx(accuracy, rel=1e-6)
        assert set(evaluated) == {"loss", "accuracy"}


def test_drop_last_leaves_out_the_rest(data, make_model):
    assert make_trainer(make_model(), drop_last=True).fit(data, 2)["steps"] == [5, 5]
    with pytest.raises(DataError, match="103 rows give no batch of 200"):
        make_trainer(make_model(), drop_last=True, batch_size=200).fit(data, 1)


def test_without_shuffling_rows_come_in_their_order(data, make_model):
    trainer = make_trainer(make_model(), batch_size=103)
    shuffled = make_trainer(make_model(), batch_size=103)
    first = trainer.fit(data, 2, shuffle=False)
    second = shuffled.fit(data, 2)
    np.testing.assert_allclose(first["loss"], second["loss"], rtol=1e-5)


def test_seeds_decide_every_bit(data, make_model):
    models = [make_model() for _ in range(3)]
    histories = [make_trainer(m, seed=seed).fit(data, 3) for m, seed in zip(models, (4, 4, 5))]
    assert histories[0]["loss"] == histories[1]["loss"] != histories[2]["loss"]
    assert same(models[0], models[1]) and not same(models[0], models[2])


def test_results_do_not_depend_on_the_number_of_threads(data, make_model):
    before = get_num_threads()
    models = []
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            models.append(make_model())
            make_trainer(models[-1]).fit(data, 2)
    finally:
        set_num_threads(before)
    assert same(models[0], models[1]) and same(models[0], models[2])


def test_fitting_twice_goes_on_where_the_first_ended(data, make_model):
    once, twice = make_model(), make_model()
    for model, epochs in ((once, [4]), (twice, [1, 3])):
        trainer = Trainer(
            model, nn.softmax_cross_entropy, optim.SGD(0.1, momentum=0.9), batch_size=20, scale=SCALE
        )
        for count in epochs:
            trainer.fit(data, count)
    assert same(once, twice)


def test_predict_is_the_model(data, make_model):
    model = make_model()
    trainer = make_trainer(model)
    trainer.fit(data, 1)
    expected = model(data.inputs * np.float32(SCALE))
    np.testing.assert_allclose(trainer.predict(data.inputs), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(trainer.predict(data.inputs[:7]), expected[:7], rtol=1e-4, atol=1e-5)
    with pytest.raises(DataError, match="at least one row"):
        trainer.predict(data.inputs[:0])


@pytest.mark.parametrize(
    ("model", "shape"),
    [(nn.Chain(nn.Dense(4, 3)), (4,)), (nn.Chain(nn.Dense(4, 4), lambda y: y.sum(0)), (5, 4))],
    ids=["a single input", "a sum over the batch"],
)
def test_predictions_without_a_row_for_each_input_are_refused(model, shape):
    trainer = Trainer(model, nn.squared_error, optim.SGD(0.1), batch_size=8)
    with pytest.raises(
        DataError, match=r"outputs of shape .* for a batch of shape .*a single input is inputs\[None\]"
    ):
        trainer.predict(np.ones(shape, np.float32))


@pytest.mark.parametrize(
    ("option", "clip"), [("clip_norm", optim.clip_by_norm), ("clip_value", optim.clip_by_value)]
)
def test_gradients_are_clipped(data, make_model, option, clip):
    model = make_model()
    start = map_tree(np.copy, model)
    x = data.inputs[:20] * np.float32(SCALE)
    gradients = value_and_grad(lambda m: nn.softmax_cross_entropy(m(x), data.labels[:20]))(start)[1]
    expected = map_tree(lambda p, g: p - 0.5 * g, start, clip(gradients, 0.01))
    make_trainer(model, **{option: 0.01}).fit(data[:20], 1)
    for found, wanted in zip(flatten(model)[0], flatten(expected)[0]):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-7)


def test_metrics_by_name_function_or_dict(data, make_model):
    def largest(logits, labels):
        return logits.max()

    assert "largest" in make_trainer(make_model(), metrics=["accuracy", largest]).fit(data, 1)
    assert make_trainer(make_model(), metrics={"top": largest}).evaluate(data).keys() == {"loss", "top"}
    assert make_trainer(make_model(), metrics=()).evaluate(data).keys() == {"loss"}
    with pytest.raises(ValueError, match="no metric is named 'precise'"):
        make_trainer(make_model(), metrics=["precise"])


def test_metrics_that_are_numbers_of_python_or_nothing(data, make_model):
    history = make_trainer(make_model(), metrics={"half": lambda y, t: 0.5}).fit(data, 1, validation=data)
    assert history["half"] == history["validation_half"] == [0.5]
    with pytest.raises(SettingError, match=r"the metric 'none' gave a NoneType"):
        make_trainer(make_model(), metrics={"none": lambda y, t: None}).fit(data, 1)


def test_lazy_steps_of_a_model_with_running_statistics(data):
    """What is not trained has a place in the state that no step changes."""
    model = nn.Chain(nn.Dense(6, 8, seed=0), nn.BatchNorm(8), nn.Dense(8, 3, seed=0))
    trainer = Trainer(
        model, nn.softmax_cross_entropy, optim.Lazy(optim.Adam(0.01), rows=5), batch_size=20, scale=SCALE
    )
    losses = trainer.fit(data, 3)["loss"]
    assert losses[2] < losses[0] and trainer.state.mean.layers[1].running_mean.shape == ()


def test_metrics_of_whole_epochs(data, make_model):
    """Those of all rows at once, whatever the batches, for training and validation."""
    names = ["precision", "recall", "f1", metrics.top_k_accuracy(2)]
    for batch_size in (20, 103):
        trainer = make_trainer(make_model(), rate=0.0, batch_size=batch_size, metrics=names)
        last = trainer.fit(data, 1, validation=data[:50]).last()
        for prefix, rows in (("", data), ("validation_", data[:50])):
            logits = trainer.predict(rows.inputs)
            table = metrics.confusion_matrix(logits, rows.labels)
            expected = [figures.mean() for figures in metrics.precision_recall_f1(table)]
            found = [last[f"{prefix}{name}"] for name in names[:3]]
            np.testing.assert_allclose(found, expected, rtol=1e-12)
            top = metrics.top_k_accuracy(2)(logits, rows.labels)
            assert last[f"{prefix}top_2_accuracy"] == pytest.approx(top, rel=1e-6)
        assert trainer.evaluate(data)["f1"] == last["f1"]


def test_the_area_under_the_curve_of_an_epoch(data):
    targets = (data.labels[:, None] > 0).astype(np.float32)
    model = nn.Dense(6, 1, seed=0)
    trainer = make_trainer(model, loss=nn.binary_cross_entropy, metrics=["auc", metrics.binary_accuracy])
    history = trainer.fit((data.inputs, targets), 3, validation=(data.inputs, targets))
    scores = trainer.predict(data.inputs)
    assert history["validation_auc"][-1] == metrics.area_under_curve(scores, targets) > 0.6
    assert list(history)[:3] == ["loss", "binary_accuracy", "auc"]


def test_a_group_of_batches_is_a_larger_batch(data, make_model):
    """Means over four batches of five are those over one of twenty; clipped is the mean."""
    models = [make_model(), make_model()]
    for model, optimiser, batch_size in (
        (models[0], optim.Accumulate(optim.SGD(0.5, momentum=0.9), 4), 5),
        (models[1], optim.SGD(0.5, momentum=0.9), 20),
    ):
        trainer = Trainer(
            model, nn.softmax_cross_entropy, optimiser, batch_size=batch_size, scale=SCALE, clip_norm=0.05
        )
        trainer.fit(data[:100], 3)
    for found, expected in zip(flatten(models[0])[0], flatten(models[1])[0]):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_full_batches_by_lbfgs(data, make_model):
    """The loss falls in every epoch, and two trainings one after the other are one."""
    models = [make_model(), make_model()]
    trainers = [
        Trainer(m, nn.softmax_cross_entropy, optim.LBFGS(), batch_size=103, scale=SCALE) for m in models
    ]
    history = trainers[0].fit(data, 60, shuffle=False, validation=data)
    for epochs in (25, 35):
        trainers[1].fit(data, epochs, shuffle=False)
    assert same(*models)
    assert (np.diff(history["loss"]) <= 0).all() and history["loss"][-1] < 0.1
    np.testing.assert_allclose(history["validation_loss"], history["loss"], rtol=1e-3)


def test_lbfgs_refuses_parts_of_a_data_set_and_clipped_gradients(data, make_model):
    with pytest.raises(DataError, match="batch_size=103"):
        Trainer(make_model(), nn.softmax_cross_entropy, optim.LBFGS(), batch_size=50).fit(data, 1)
    with pytest.raises(ValueError, match="LBFGS takes no clipped gradients"):
        Trainer(make_model(), nn.softmax_cross_entropy, optim.LBFGS(), clip_norm=1.0)


def test_lbfgs_with_running_statistics(data):
    """Running means are those of the batches, parameters only those that were accepted."""
    inputs = data.inputs * np.float32(SCALE)
    model = nn.Chain(nn.BatchNorm(6), nn.Dense(6, 3, seed=0))
    trainer = Trainer(model, nn.softmax_cross_entropy, optim.LBFGS(), batch_size=103)
    history = trainer.fit((inputs, data.labels), 80, shuffle=False)
    np.testing.assert_allclose(model[0].running_mean, inputs.mean(axis=0), rtol=1e-3)
    assert history["loss"][-1] < history["loss"][0] / 2


# -- What goes wrong


def poisoned(data, row):
    """The data set as floats, with a NaN in one row."""
    inputs = data.inputs * np.float32(SCALE)
    inputs[row, 0] = np.nan
    return Dataset(inputs, data.labels)


@pytest.mark.parametrize("epochs_before", [0, 2])
def test_a_loss_that_is_not_finite_keeps_the_last_good_model(data, make_model, epochs_before):
    order = epoch_order(103, 0, epochs_before)
    bad = poisoned(data, order[70])  # in the fourth batch of 20
    good = Dataset(data.inputs * np.float32(SCALE), data.labels)
    model, expected = make_model(), make_model()
    trainer, reference = make_trainer(model, scale=None), make_trainer(expected, scale=None)
    trainer.fit(good, epochs_before)
    reference.fit(good, epochs_before)
    with pytest.raises(NonFiniteLoss, match=rf"nan at step {6 * epochs_before + 4} \(step 4 of epoch"):
        trainer.fit(bad, 1)
    assert trainer.steps == 6 * epochs_before + 3
    # Three more good steps are what the reference does on the first sixty rows of that order.
    first = Dataset(good.inputs[order[:60]], good.labels[order[:60]])
    reference.fit(first, 1, shuffle=False)
    assert same(model, expected)
    assert trainer.history.epochs == epochs_before + 1 and trainer.history["steps"][-1] <= 3


def test_parameters_that_overflow_are_undone_too(data, make_model):
    model = make_model()
    trainer = make_trainer(model, rate=1e30, loss=lambda y, t: (y * y).sum(), metrics=())
    with pytest.raises(NonFiniteLoss, match=r"Lower the learning rate"):
        trainer.fit(data, 2)
    assert all(np.isfinite(leaf).all() for leaf in flatten(model)[0])


def test_training_goes_on_after_a_loss_that_was_not_finite(data, make_model):
    model = make_model()
    trainer = make_trainer(model, scale=None)
    with pytest.raises(NonFiniteLoss):
        trainer.fit(poisoned(data, 5), 1)
    history = trainer.fit(Dataset(data.inputs * np.float32(SCALE), data.labels), 3)
    assert np.isfinite(history["loss"][-3:]).all()


class InterruptAfter:
    """A display that presses Ctrl-C once the trainer has reported a number of blocks."""

    def __init__(self, blocks):
        self.blocks = blocks

    def update(self, *_):
        self.blocks -= 1
        if self.blocks == 0:
            os.kill(os.getpid(), signal.SIGINT)

    def finish_epoch(self, *_):
        pass

    def close(self):
        pass


def test_ctrl_c_ends_the_training_with_the_model_usable(data, make_model, monkeypatch):
    monkeypatch.setattr("pullback.train.trainer.Display", lambda *_: InterruptAfter(8))
    model = make_model()
    trainer = make_trainer(model)
    history = trainer.fit(data, 1000, progress=True)
    assert history.interrupted and 1 <= history.epochs < 1000
    assert trainer.predict(data.inputs).shape == (103, 3) and np.isfinite(trainer.predict(data.inputs)).all()
    monkeypatch.undo()
    assert not trainer.fit(data, 1).interrupted and history.epochs == len(history["loss"])


def test_ctrl_c_inside_a_block_of_steps(data, make_model):
    trainer = make_trainer(make_model())
    trainer.fit(data, 1)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        history = trainer.fit(data, 10**9)
    finally:
        timer.join()
    assert history.interrupted and np.isfinite(trainer.predict(data.inputs)).all()


def test_ctrl_c_leaves_the_number_of_steps_right(data):
    """Each step adds the same to the weight: it tells how many were done, also of a block that was cut short."""

    class Added(nn.Module):
        weight: np.ndarray

        def __call__(self, x):
            return self.weight + 0 * x.sum()

    model = Added(np.zeros((), np.float64))
    trainer = Trainer(model, lambda y, labels: -y, optim.SGD(1.0), metrics=(), batch_size=1, scale=SCALE)
    trainer.fit(data, 1)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        history = trainer.fit(data, 10**9)
    finally:
        timer.join()
    assert history.interrupted and trainer.steps == float(model.weight) > 0


class Restless:
    """Presses Ctrl-C in its finaliser, where Python can only report what is raised."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("epochs", [1, 1000])
def test_ctrl_c_in_a_finaliser_ends_the_training(data, make_model, epochs):
    def drop(trainer):
        Restless()

    history = make_trainer(make_model()).fit(data, epochs, on_epoch_end=drop)
    assert history.interrupted and history.epochs == 1


def test_ctrl_c_while_bad_steps_are_undone_leaves_a_whole_model(data, make_model, monkeypatch):
    """The way back to the last good step is gone to its end."""
    trainer, undisturbed = make_trainer(make_model(), scale=None), make_trainer(make_model(), scale=None)
    with pytest.raises(NonFiniteLoss):
        undisturbed.fit(poisoned(data, 5), 1)
    restore = Snapshot._restore

    def pressed(self, blocks, replay):
        os.kill(os.getpid(), signal.SIGINT)
        restore(self, blocks, replay)

    monkeypatch.setattr(Snapshot, "_restore", pressed)
    assert trainer.fit(poisoned(data, 5), 1).interrupted
    for found, expected in zip(flatten(trainer.model)[0], flatten(undisturbed.model)[0]):
        np.testing.assert_array_equal(found, expected)
    assert trainer.steps == undisturbed.steps


@pytest.mark.parametrize("label", [3, 255])
def test_labels_out_of_range(data, make_model, label):
    labels = data.labels.copy()
    labels[17] = label
    model = make_model()
    with pytest.raises(IndexRangeError, match=rf"label: {label} [\s\S]*label {label} in row 17") as caught:
        make_trainer(model).fit(Dataset(data.inputs, labels), 1)
    error = caught.value
    assert (error.what, error.value, error.low, error.extent, error.row) == ("label", label, 0, 3, 17)
    assert error.source is not None and error.position is not None
    assert all(np.isfinite(leaf).all() for leaf in flatten(model)[0])
    with pytest.raises(IndexRangeError, match=rf"label: {label} [\s\S]*label {label} in row 17"):
        make_trainer(model).evaluate(Dataset(data.inputs, labels))


def test_a_label_that_the_loss_computes_is_in_no_row(data, make_model):
    """What is wrong is then no label of the data set, and the error is about that alone."""

    def shifted(outputs, labels):
        return nn.softmax_cross_entropy(outputs, labels + 100)

    trainer = Trainer(make_model(), shifted, optim.SGD(0.1))
    with pytest.raises(IndexRangeError, match=r"label: 10\d at position") as caught:
        trainer.fit(data, 1)
    assert caught.value.row is None and "the data set has" not in str(caught.value)


def test_data_sets_that_cannot_be_used(data, make_model):
    trainer = make_trainer(make_model())
    with pytest.raises(DataError, match="empty"):
        trainer.fit((data.inputs[:0], data.labels[:0]), 1)
    with pytest.raises(DataError, match="Give a Dataset or a pair"):
        trainer.fit(data.inputs, 1)


def test_arrays_in_any_memory_order(data, make_model):
    models = [make_model(), make_model()]
    strided = Dataset(np.asfortranarray(data.inputs), np.repeat(data.labels, 2)[::2])
    make_trainer(models[0]).fit(data, 1)
    make_trainer(models[1]).fit(strided, 1)
    assert same(*models)


class Scaled(nn.Module):
    factor: float

    def __call__(self, x):
        return self.factor * x


def test_parameters_that_are_no_arrays():
    with pytest.raises(TreeError, match=r"layers.0.factor is a float, .*np.array"):
        make_trainer(nn.Chain(Scaled(1.5)))
    with pytest.raises(TreeError, match="no parameters"):
        make_trainer(nn.Chain(np.tanh))


def test_parameters_that_cannot_be_updated_in_place():
    layer = nn.Dense(3, 3)
    with pytest.raises(DonationError, match=r"layers\.0\.weight and layers\.1\.weight share memory"):
        make_trainer(nn.Chain(layer, layer))
    with pytest.raises(DonationError, match="weight is read-only or not contiguous"):
        layer.weight = layer.weight.T
        make_trainer(layer)


def test_batch_size_is_positive(make_model):
    with pytest.raises(ValueError, match="batch_size is 0"):
        make_trainer(make_model(), batch_size=0)


# -- The real thing


@pytest.mark.skipif("PULLBACK_DATA" not in os.environ, reason="needs MNIST in the folder PULLBACK_DATA")
def test_learns_mnist():
    from pullback.cli.workloads.mnist_rnn import make_model as make_rnn
    from pullback.data import load_mnist

    mnist = load_mnist(download=False)
    model = make_rnn(seed=0)
    trainer = Trainer(model, nn.softmax_cross_entropy, optim.SGD(0.015), scale=mnist.scale)
    history = trainer.fit(mnist.train, 5, validation=mnist.test)
    # PyTorch's means over three seeds; one seed is within a tenth of them.
    np.testing.assert_allclose(history["loss"], [1.46, 0.66, 0.47, 0.39, 0.34], rtol=0.1)
    assert 0.905 < history["validation_accuracy"][-1] < 0.925


def test_a_smaller_last_batch_counts_by_its_rows():
    """Running statistics, as in PyTorch and Keras, take each batch as it is, the last one too; losses are weighted."""
    random = np.random.default_rng(0)
    x = random.standard_normal((8, 4)).astype(np.float32)
    y = random.standard_normal((8, 1)).astype(np.float32)
    norm, dense = nn.BatchNorm(4), nn.Dense(4, 1, seed=0)
    trainer = Trainer(
        nn.Chain(norm, dense), nn.squared_error, optim.SGD(0.0), batch_size=3, metrics={"most": most}
    )
    history = trainer.fit((x, y), 1, shuffle=False)
    mean, variance, total, largest = np.zeros(4), np.ones(4), 0.0, 0.0
    for rows in (slice(0, 3), slice(3, 6), slice(6, 8)):
        batch, count = x[rows].astype(np.float64), len(x[rows])
        mean = 0.9 * mean + 0.1 * batch.mean(axis=0)
        variance = 0.9 * variance + 0.1 * batch.var(axis=0, ddof=1)
        outputs = (batch - batch.mean(axis=0)) / np.sqrt(batch.var(axis=0) + norm.epsilon)
        outputs = outputs @ dense.weight + dense.bias
        total += ((outputs - y[rows]) ** 2).sum()
        largest += np.abs(outputs).max() * count
    np.testing.assert_allclose(norm.running_mean, mean, rtol=1e-5)
    np.testing.assert_allclose(norm.running_variance, variance, rtol=1e-5)
    assert history["loss"][0] == pytest.approx(total / 8, rel=1e-5)
    assert history["most"][0] == pytest.approx(largest / 8, rel=1e-5)


def most(outputs, labels):
    return np.max(np.abs(outputs))


@pytest.mark.parametrize(("name", "value"), [("inputs", np.nan), ("labels", np.inf)])
def test_a_loss_that_is_not_finite_names_the_row_of_the_data(name, value):
    arrays = {"inputs": np.ones((30, 3), np.float32), "labels": np.ones((30, 1), np.float32)}
    arrays[name][17] = value
    trainer = Trainer(nn.Dense(3, 1, seed=0), nn.squared_error, optim.SGD(0.01), batch_size=7)
    with pytest.raises(NonFiniteLoss, match=rf"The {name} have {value} in row 17: leave such rows out"):
        trainer.fit(Dataset(**arrays), 1)
    with pytest.raises(NonFiniteLoss, match=r"is kept. Lower the learning rate"):
        Trainer(nn.Dense(3, 1, seed=0), nn.squared_error, optim.SGD(1e30), batch_size=7).fit(
            (np.ones((30, 3), np.float32), np.ones((30, 1), np.float32)), 3
        )


def test_what_stands_behind_the_end_of_a_sequence_is_not_blamed():
    from pullback.train.trainer import _not_finite

    inputs = np.ones((4, 3, 2), np.float32)
    inputs[1, 2] = np.nan
    data = Dataset(inputs, np.zeros(4, int), lengths=np.array([3, 2, 3, 3]))
    assert _not_finite(data, np.arange(4)) == ""
    assert "inputs have nan in row 1" in _not_finite(Dataset(inputs, data.labels), np.arange(4))


@pytest.mark.parametrize(
    "name", ["optimiser", "loss", "metrics", "scale", "penalty", "clip_norm", "clip_value"]
)
def test_what_is_compiled_is_not_set(make_model, name):
    """It had no effect."""
    trainer = make_trainer(make_model())
    with pytest.raises(SettingError, match=rf"{name} is set, .* Make another trainer with it, .*{name}=…"):
        setattr(trainer, name, None)


def test_what_is_asked_for_when_it_is_used_may_be_set(data, make_model):
    trainer, other = make_trainer(make_model()), make_trainer(make_model(), batch_size=30)
    trainer.batch_size = 30
    assert trainer.fit(data, 1)["loss"] == other.fit(data, 1)["loss"]
    trainer.model, other.model = make_model(), make_model()
    assert trainer.fit(data, 1)["loss"] == other.fit(data, 1)["loss"]
