"""Sequences of different lengths: batches of similar length, trimmed, train as masked ones do."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from pullback.data import Dataset, bucketed_order, trimmed_width
from pullback.data.text import padded
from pullback.errors import DataError
from pullback.train import Trainer

RANDOM = np.random.default_rng(4)
ROWS, STEPS, WORDS = 50, 23, 40
LENGTHS = RANDOM.integers(0, STEPS + 1, ROWS)
TOKENS = np.where(np.arange(STEPS) < LENGTHS[:, None], RANDOM.integers(1, WORDS, (ROWS, STEPS)), 0)
DATA = Dataset(TOKENS.astype(np.int32), (LENGTHS[:, None] % 2).astype(np.uint8), LENGTHS)


def make_model(**options: Any) -> nn.Chain:
    random = np.random.default_rng(0)
    return nn.Chain(
        nn.Embedding(WORDS, 6, seed=random),
        nn.LSTM(6, 8, layers=2, seed=random, **options),
        nn.Dense(16 if options else 8, 1, seed=random),
    )


def trainer(bucket: int | None, **options: Any) -> Trainer:
    return Trainer(
        make_model(**options), nn.binary_cross_entropy, optim.SGD(0.1), batch_size=8, bucket=bucket, seed=3
    )


def step_losses(bucket: int, trimmed: bool, options: Any) -> tuple[list[float], Any]:
    """The losses of an epoch in the order of the buckets, and the model after it."""
    own = trainer(bucket, **options)
    if not trimmed:
        own._width = lambda lengths, inputs: None  # type: ignore[method-assign]
    history = own.fit(DATA, 2, progress=False)
    return list(history["loss"]), own.model


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}])
def test_trimmed_batches_train_as_whole_ones_with_masks(options: Any) -> None:
    (losses, model), (wanted, other) = (step_losses(5, trimmed, options) for trimmed in (True, False))
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    for one, two in zip(pb.flatten(model)[0], pb.flatten(other)[0], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def test_outputs_are_the_same_bits_whatever_is_trimmed() -> None:
    whole, some = trainer(None), trainer(5)
    wanted = whole.predict(DATA.inputs, DATA.lengths)
    found = some.predict(DATA.inputs, DATA.lengths)
    np.testing.assert_array_equal(found, wanted)
    by_hand = np.concatenate(
        [
            some.model(x[None, :n] if n else x[None, :1], lengths=np.array([n]))
            for x, n in zip(TOKENS, LENGTHS)
        ]
    )
    np.testing.assert_allclose(found, by_hand, rtol=1e-5, atol=1e-6)
    left, right = (each.evaluate(DATA) for each in (whole, some))
    assert left.keys() == right.keys()
    np.testing.assert_allclose(list(left.values()), list(right.values()), rtol=1e-6)


def test_what_stands_in_the_padding_does_not_matter() -> None:
    noise = np.where(np.arange(STEPS) < LENGTHS[:, None], TOKENS, 7).astype(np.int32)
    found = []
    for inputs in (DATA.inputs, noise):
        own = trainer(4)
        own.fit(Dataset(inputs, DATA.labels, LENGTHS), 1, progress=False)
        found.append(b"".join(array.tobytes() for array in pb.flatten(own.model)[0]))
    assert found[0] == found[1]


def test_programs_are_few_and_read_no_padding() -> None:
    own = trainer(10)
    own.fit(DATA, 3, progress=False)
    compiled = own._train._programs.values()
    loops = {
        node.attributes["trips"]
        for each in compiled
        for node in each.executable.graph.nodes()
        if getattr(getattr(node, "operator", None), "name", "") == "scan"
    }
    assert loops <= {10, 20, 23} and len(loops) > 1


@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_bits_for_any_number_of_threads(threads: int) -> None:
    before = pb.get_num_threads()
    try:
        found = []
        for count in (threads, 2):
            pb.set_num_threads(count)
            own = trainer(6)
            own.fit(DATA, 1, progress=False)
            found.append([array.tobytes() for array in pb.flatten(own.model)[0]])
        assert found[0] == found[1]
    finally:
        pb.set_num_threads(before)


def test_a_bad_step_is_gone_back_from() -> None:
    own = trainer(5)
    own.fit(DATA, 1, progress=False)
    good = copy.deepcopy(own.model)
    bad = Dataset(DATA.inputs, np.where(np.arange(ROWS)[:, None] == 11, np.nan, 1.0), LENGTHS)
    with pytest.raises(pb.errors.NonFiniteLoss):
        own.fit(bad, 1, progress=False)
    assert all(np.isfinite(array).all() for array in pb.flatten(own.model)[0])
    assert pb.flatten(good)[1] == pb.flatten(own.model)[1]


# ---------------------------------------------------------------------- orders


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("batch_size", [1, 7, 8, 50, 60])
def test_an_order_visits_each_row_once_in_batches_of_similar_length(batch_size: int, shuffle: bool) -> None:
    order = bucketed_order(LENGTHS, batch_size, 5, seed=1, shuffle=shuffle)
    assert sorted(order) == list(range(ROWS))
    full = ROWS // batch_size
    widths = -(-LENGTHS[order[: full * batch_size]].reshape(full, batch_size) // 5)
    mixed = (widths.min(axis=1) != widths.max(axis=1)).sum()
    assert (
        mixed <= len(set(-(-LENGTHS // 5))) - 1
    )  # no more than one batch for each border between two widths


def test_orders_differ_from_epoch_to_epoch_and_follow_the_seed() -> None:
    orders = [bucketed_order(LENGTHS, 8, 5, seed, epoch).tolist() for seed in (1, 2) for epoch in (0, 1)]
    assert len(set(map(tuple, orders))) == 4
    assert bucketed_order(LENGTHS, 8, 5, 1, 1).tolist() == orders[1]
    rest = np.concatenate([bucketed_order(LENGTHS, 8, 5, 1, epoch)[48:] for epoch in range(200)])
    assert abs(LENGTHS[rest].mean() - LENGTHS.mean()) < 2  # those left over are not the longest


def test_lengths_may_be_of_any_integer_dtype() -> None:
    orders = [bucketed_order(LENGTHS.astype(dtype), 8, 5, seed=1).tolist() for dtype in (np.int64, np.uint8)]
    assert orders[0] == orders[1]


def test_widths() -> None:
    assert [trimmed_width(n, 10, 23) for n in ([0], [1, 10], [11], [23], [])] == [10, 10, 20, 23, 10]
    assert trimmed_width([3], 50, 23) == 23


def test_words_at_the_beginning_of_rows() -> None:
    tokens, starts = np.arange(1, 10), np.array([0, 2, 2, 9])
    np.testing.assert_array_equal(
        padded(tokens, starts, 4, behind=True), [[1, 2, 0, 0], [0, 0, 0, 0], [6, 7, 8, 9]]
    )


# ---------------------------------------------------------------------- data sets, chains, bad requests


def test_a_data_set_takes_its_lengths_along() -> None:
    part = DATA[[3, 1]]
    assert part.lengths is not None and part.lengths.tolist() == LENGTHS[[3, 1]].tolist()
    first, second = DATA.split(0.5)
    assert first.lengths is not None and second.lengths is not None
    assert f"lengths {LENGTHS.min()} to {LENGTHS.max()}" in repr(DATA)


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        (np.full(ROWS, STEPS + 1), "the length 24 of row 0 is outside 0 to 23"),
        (np.full(ROWS, -1), "outside"),
        (np.full(ROWS, 1.0), "an integer for each row"),
        (np.arange(3), "an integer for each row"),
    ],
)
def test_lengths_that_do_not_fit(lengths: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Dataset(DATA.inputs, DATA.labels, lengths)


def test_requests_that_cannot_be_met() -> None:
    with pytest.raises(DataError, match="need to know them"):
        trainer(5).fit(Dataset(DATA.inputs, DATA.labels), 1)
    with pytest.raises(ValueError, match="bucket is 0"):
        trainer(0)
    with pytest.raises(TypeError, match="no layer takes any"):
        nn.Chain(nn.Dense(3, 2), nn.relu)(np.ones((2, 3), np.float32), lengths=np.array([1, 2]))
    with pytest.raises(DataError, match="Give 1 or more"):
        bucketed_order(LENGTHS, 8, 0, seed=0)
