import copy
import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullback.data import Dataset, epoch_order
from pullback.errors import DataError, IndexRangeError


@pytest.fixture
def digits():
    return Dataset(np.arange(10 * 4, dtype=np.uint8).reshape(10, 2, 2), np.arange(10, dtype=np.uint8))


def test_arrays_stay_what_they_are():
    inputs, labels = np.zeros((3, 2), np.uint8), np.zeros(3, np.int32)
    dataset = Dataset(inputs, labels)
    assert dataset.inputs is inputs
    assert dataset.labels is labels
    assert len(dataset) == 3


def test_lists_become_arrays():
    assert Dataset([[1.0, 2.0]], [0]).inputs.shape == (1, 2)


def test_one_row(digits):
    image, label = digits[3]
    assert image.tolist() == [[12, 13], [14, 15]]
    assert label == 3
    assert digits[np.int64(-1)][1] == 9


def test_rows_in_turn(digits):
    assert [int(label) for _, label in digits] == list(range(10))


def test_slices_share_memory(digits):
    part = digits[2:8:2]
    assert part.labels.tolist() == [2, 4, 6]
    assert np.shares_memory(part.inputs, digits.inputs)


@pytest.mark.parametrize("rows", [[7, 0, 7], (7, 0, 7), np.array([7, 0, 7], np.uint8)])
def test_rows_by_number(digits, rows):
    part = digits[rows]
    assert part.labels.tolist() == [7, 0, 7]
    assert part.inputs[:, 0, 0].tolist() == [28, 0, 28]


def test_rows_by_condition(digits):
    assert digits[digits.labels > 6].labels.tolist() == [7, 8, 9]


@pytest.mark.parametrize("rows", [10, -11, [0, 10], np.ones(9, bool)])
def test_rows_that_are_not_there(digits, rows):
    with pytest.raises(IndexRangeError, match="rows are 0 to 9"):
        digits[rows]


@pytest.mark.parametrize(
    "rows", ["inputs", 1.0, [0.5], [[1, 2]], None, (slice(0, 1), 0), (slice(0, 1), [0, 1])]
)
def test_what_selects_no_rows(digits, rows):
    with pytest.raises(DataError, match="selects no rows"):
        digits[rows]


@pytest.mark.parametrize("rows", [slice(0, 0), np.zeros(10, bool), np.zeros(0, int)])
def test_no_rows_are_an_empty_data_set(digits, rows):
    with pytest.raises(DataError, match="is empty"):
        digits[rows]


def test_empty():
    with pytest.raises(DataError, match=r"is empty: inputs \(0, 28, 28\)"):
        Dataset(np.zeros((0, 28, 28)), np.zeros(0))


def test_lengths_that_differ():
    with pytest.raises(DataError, match=r"have 3 rows, .* have 2"):
        Dataset(np.zeros((3, 4)), np.zeros(2))


@pytest.mark.parametrize("inputs", [1.0, None, "text", [[1], [1, 2]], [object(), object()]])
def test_what_is_no_array(inputs):
    with pytest.raises(DataError, match="inputs"):
        Dataset(inputs, [0, 1])


@pytest.mark.parametrize("labels", [["cat", "dog"], np.array(["cat", "dog"], object), ("cat", "dog")])
def test_labels_that_are_texts(labels):
    with pytest.raises(DataError, match=r"labels are texts, such as 'cat'.*np\.unique"):
        Dataset(np.zeros((2, 3)), labels)


def test_dates_are_no_numbers():
    with pytest.raises(DataError, match=r"inputs must be an array .*datetime64"):
        Dataset(np.array(["2020-01-01", "2020-01-02"], "M8[D]"), [0, 1])


def test_it_cannot_be_changed(digits):
    with pytest.raises(dataclasses.FrozenInstanceError):
        digits.inputs = digits.labels


def test_copies(digits):
    for twin in (copy.copy(digits), copy.deepcopy(digits), pickle.loads(pickle.dumps(digits))):
        np.testing.assert_array_equal(twin.inputs, digits.inputs)
        np.testing.assert_array_equal(twin.labels, digits.labels)


def test_repr(digits):
    assert repr(digits) == "Dataset(10 rows: inputs uint8[2, 2], labels uint8)"
    assert repr(digits[:1]) == "Dataset(1 row: inputs uint8[2, 2], labels uint8)"


def test_split_parts_every_row_once(digits):
    first, second = digits.split(0.7, seed=3)
    assert (len(first), len(second)) == (7, 3)
    assert sorted([*first.labels, *second.labels]) == list(range(10))
    assert first.labels.tolist() == sorted(first.labels.tolist())
    np.testing.assert_array_equal(first.inputs[:, 0, 0], 4 * first.labels)


def test_split_depends_on_the_seed_alone(digits):
    splits = {seed: tuple(digits.split(0.5, seed)[0].labels.tolist()) for seed in range(5)}
    assert len(set(splits.values())) > 1
    assert splits == {seed: tuple(digits.split(0.5, seed)[0].labels.tolist()) for seed in range(5)}


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 1.5, 0.01, 0.99, float("nan")])
def test_split_into_nothing(digits, fraction):
    with pytest.raises(DataError, match="leaves an empty part"):
        digits.split(fraction)


@given(st.integers(1, 300), st.integers(0, 2**80), st.integers(0, 1000), st.booleans())
def test_the_order_is_a_permutation(n, seed, epoch, shuffle):
    order = epoch_order(n, seed, epoch, shuffle)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(n))
    np.testing.assert_array_equal(order, epoch_order(n, seed, epoch, shuffle))


def test_without_shuffling_every_epoch_is_the_identity():
    for epoch in range(3):
        np.testing.assert_array_equal(epoch_order(7, 5, epoch, shuffle=False), np.arange(7))


def test_seeds_and_epochs_give_different_orders():
    orders = {tuple(epoch_order(50, seed, epoch)) for seed in range(10) for epoch in range(10)}
    assert len(orders) == 100


def test_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].copy()
    epoch_order(10, 1)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


@pytest.mark.parametrize(("n", "seed", "epoch"), [(0, 0, 0), (5, -1, 0), (5, 0, -1)])
def test_orders_that_do_not_exist(n, seed, epoch):
    with pytest.raises(DataError, match="epoch_order"):
        epoch_order(n, seed, epoch)
