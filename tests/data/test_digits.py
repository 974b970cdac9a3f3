import sys

import numpy as np
import pytest

from pullback.data import load_digits, load_digits_or_mnist
from pullback.errors import DataError, MissingExtra


@pytest.fixture(scope="module", autouse=True)
def scikit_learn():
    return pytest.importorskip("sklearn")


def rows(half):
    return {image.tobytes() + label.tobytes() for image, label in half}


def test_what_is_loaded():
    digits = load_digits()
    assert digits.name == "digits"
    assert len(digits.train) + len(digits.test) == 1797
    for half in (digits.train, digits.test):
        assert half.inputs.shape[1:] == (8, 8)
        assert half.inputs.dtype == half.labels.dtype == np.uint8
        assert set(half.labels.tolist()) == set(range(digits.classes))
    assert digits.train.inputs.max() * digits.scale == 1.0
    assert "scikit-learn" in digits.note


def test_the_pixels_are_those_of_scikit_learn():
    from sklearn import datasets

    original = datasets.load_digits()
    digits = load_digits(seed=3)
    found = rows(digits.train) | rows(digits.test)
    assert found == {
        image.astype(np.uint8).tobytes() + bytes([label])
        for image, label in zip(original.images, original.target)
    }


def test_the_split():
    digits = load_digits(test_fraction=0.25, seed=1)
    assert len(digits.test) == 449
    assert not rows(digits.train) & rows(digits.test)
    np.testing.assert_array_equal(digits.test.inputs, load_digits(test_fraction=0.25, seed=1).test.inputs)
    assert rows(digits.test) != rows(load_digits(test_fraction=0.25, seed=2).test)


@pytest.mark.parametrize("fraction", [0.0, 1.0, 2.0])
def test_a_split_into_nothing(fraction):
    with pytest.raises(DataError, match="empty part"):
        load_digits(test_fraction=fraction)


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtra, match=r"Install pullback\[digits\]"):
        load_digits()


def test_mnist_is_preferred(small_mnist):
    assert load_digits_or_mnist(small_mnist).name == "MNIST"


def test_mnist_is_downloaded(served_mnist):
    assert load_digits_or_mnist().name == "MNIST"


def test_without_network(server, served_mnist):
    server.files.clear()
    loaded = load_digits_or_mnist(seed=5)
    assert loaded.name == "digits"
    assert "MNIST is not to be had, using the digits of scikit-learn" in loaded.note
    assert "HTTP Error 404" in loaded.note
    assert "\n" not in loaded.note
    np.testing.assert_array_equal(loaded.train.inputs, load_digits(seed=5).train.inputs)


def test_without_a_download():
    assert load_digits_or_mnist(download=False).name == "digits"


def test_without_a_cache_folder(served_mnist, tmp_path):
    (tmp_path / "cache").write_bytes(b"in the way")
    loaded = load_digits_or_mnist()
    assert loaded.name == "digits"
    assert "cannot make the cache folder" in loaded.note


def test_a_given_folder_is_meant(tmp_path, small_mnist):
    with pytest.raises(DataError, match="has no train-images"):
        load_digits_or_mnist(tmp_path / "none")
    (small_mnist / "train-labels-idx1-ubyte.gz").write_bytes(b"damaged")
    with pytest.raises(DataError, match="no IDX file"):
        load_digits_or_mnist(small_mnist)


def test_without_anything(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtra, match=r"Install pullback\[digits\].*no download allowed"):
        load_digits_or_mnist(download=False)
