import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from pullback.data import load_mnist, mnist, read_idx, write_idx
from pullback.errors import DataError, DownloadError, OutputError

REAL = os.environ.get("PULLBACK_DATA")


def requested(server):
    return [path.removeprefix("/") for path, _ in server.requests]


def test_what_is_loaded(small_mnist):
    loaded = load_mnist(small_mnist)
    assert loaded.name == "MNIST"
    assert loaded.scale == 1 / 255
    assert loaded.classes == 10
    assert loaded.note == f"MNIST from {small_mnist}: 30 training and 10 test images"
    for half, rows, part in ((loaded.train, 30, "train"), (loaded.test, 10, "t10k")):
        assert half.inputs.shape == (rows, 28, 28)
        assert half.inputs.dtype == half.labels.dtype == np.uint8
        np.testing.assert_array_equal(half.inputs, read_idx(small_mnist / f"{part}-images-idx3-ubyte.gz"))
        np.testing.assert_array_equal(half.labels, read_idx(small_mnist / f"{part}-labels-idx1-ubyte.gz"))


def test_the_folder_above(small_mnist, tmp_path):
    small_mnist.rename(tmp_path / "mnist")
    assert len(load_mnist(tmp_path).train) == 30


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("separator", ["-", "."])
def test_names(small_mnist, tmp_path, separator, ending):
    folder = tmp_path / "renamed"
    folder.mkdir()
    for path in small_mnist.iterdir():
        write_idx(folder / (path.stem.replace("-idx", f"{separator}idx") + ending), read_idx(path))
    assert len(load_mnist(folder).test) == 10


def test_the_environment_comes_before_the_cache(small_mnist, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    small_mnist.rename(tmp_path / "data" / "mnist")
    shutil.copytree(tmp_path / "data" / "mnist", tmp_path / "cache" / "pullback" / "data" / "mnist")
    assert str(tmp_path / "cache") in load_mnist().note
    monkeypatch.setenv("PULLBACK_DATA", str(tmp_path / "data"))
    assert str(tmp_path / "data") in load_mnist().note


def test_an_environment_without_mnist_is_passed_over(small_mnist, tmp_path, monkeypatch):
    (tmp_path / "data" / "imdb").mkdir(parents=True)
    monkeypatch.setenv("PULLBACK_DATA", str(tmp_path / "data"))
    shutil.copytree(small_mnist, tmp_path / "cache" / "pullback" / "data" / "mnist")
    assert str(tmp_path / "cache") in load_mnist().note


def test_a_given_folder_without_mnist_is_an_error(served_mnist, tmp_path):
    with pytest.raises(DataError, match="has no train-images-idx3-ubyte"):
        load_mnist(tmp_path / "none")
    assert not served_mnist.requests


def test_a_missing_file_is_named(small_mnist):
    (small_mnist / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"small has no t10k-labels-idx1-ubyte \(nor with .gz\)"):
        load_mnist(small_mnist)


def test_the_default_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for unusable in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        with pytest.raises(DownloadError, match=f"no MNIST in {tmp_path}/.cache/pullback/data/mnist"):
            load_mnist(download=False)


def test_a_user_without_a_home(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(OutputError, match="Let XDG_CACHE_HOME name one"):
        load_mnist()


def test_download(served_mnist, tmp_path, small_mnist):
    lines = []
    loaded = load_mnist(report=lines.append)
    cache = tmp_path / "cache" / "pullback" / "data" / "mnist"
    np.testing.assert_array_equal(loaded.train.inputs, load_mnist(small_mnist).train.inputs)
    assert sorted(path.name for path in cache.iterdir()) == sorted(f"{name}.gz" for name in mnist._FILES)
    assert lines == [f"downloading {served_mnist.home}{name}.gz" for name in mnist._FILES]
    load_mnist()
    assert len(served_mnist.requests) == 4


def test_only_what_is_missing_is_downloaded(served_mnist, tmp_path, small_mnist):
    cache = tmp_path / "cache" / "pullback" / "data" / "mnist"
    cache.mkdir(parents=True)
    shutil.copy(small_mnist / "train-images-idx3-ubyte.gz", cache)
    load_mnist()
    assert requested(served_mnist) == [
        f"{name}.gz" for name in mnist._FILES if name != "train-images-idx3-ubyte"
    ]


def test_no_download_when_it_is_not_allowed(served_mnist):
    with pytest.raises(DownloadError, match="no download allowed"):
        load_mnist(download=False)
    assert not served_mnist.requests


def test_a_wrong_checksum_leaves_nothing(served_mnist, tmp_path):
    served_mnist.files["/train-labels-idx1-ubyte.gz"] = served_mnist.files["/t10k-labels-idx1-ubyte.gz"]
    with pytest.raises(DownloadError, match="wrong checksum"):
        load_mnist()
    cache = tmp_path / "cache" / "pullback" / "data" / "mnist"
    assert [path.name for path in cache.iterdir()] == ["train-images-idx3-ubyte.gz"]


def test_a_cache_folder_that_cannot_be_made(served_mnist, tmp_path):
    (tmp_path / "cache").write_bytes(b"in the way")
    with pytest.raises(OutputError, match="cannot make the cache folder"):
        load_mnist()


def test_the_checksums_are_four_different_ones():
    assert len({int(checksum, 16) for checksum in mnist._FILES.values()}) == 4
    assert {len(checksum) for checksum in mnist._FILES.values()} == {64}


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (
            "train-images-idx3-ubyte",
            np.zeros((30, 28, 27), np.uint8),
            r"expected uint8 of shape \(N, 28, 28\), found",
        ),
        ("train-images-idx3-ubyte", np.zeros((30, 784), np.uint8), r"found uint8 of \(30, 784\)"),
        ("train-images-idx3-ubyte", np.zeros((30, 28, 28), np.float32), "found float32"),
        ("train-images-idx3-ubyte", np.zeros((29, 28, 28), np.uint8), r"has 29 images, .* has 30 labels"),
        ("t10k-labels-idx1-ubyte", np.zeros((10, 1), np.uint8), r"expected uint8 of shape \(N,\)"),
        ("t10k-labels-idx1-ubyte", np.zeros(10, np.int32), "found int32"),
        ("t10k-labels-idx1-ubyte", np.arange(1, 11, dtype=np.uint8), "labels must be 0 to 9, found 10"),
    ],
)
def test_files_of_another_form(small_mnist, name, array, message):
    write_idx(small_mnist / f"{name}.gz", array)
    with pytest.raises(DataError, match=message):
        load_mnist(small_mnist)


def test_empty_files(small_mnist):
    write_idx(small_mnist / "train-images-idx3-ubyte.gz", np.zeros((0, 28, 28), np.uint8))
    write_idx(small_mnist / "train-labels-idx1-ubyte.gz", np.zeros(0, np.uint8))
    with pytest.raises(DataError, match="has 0 images"):
        load_mnist(small_mnist)


def test_a_damaged_file_is_named(small_mnist):
    path = small_mnist / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz is truncated"):
        load_mnist(small_mnist)


@pytest.mark.skipif(
    not REAL or not Path(REAL, "mnist").is_dir(), reason="PULLBACK_DATA names no folder with mnist/"
)
def test_the_real_thing(monkeypatch):
    monkeypatch.setenv("PULLBACK_DATA", str(REAL))
    loaded = load_mnist()
    assert loaded.train.inputs.shape == (60_000, 28, 28)
    assert loaded.test.inputs.shape == (10_000, 28, 28)
    assert np.bincount(loaded.train.labels).tolist() == [
        *(5923, 6742, 5958, 6131, 5842),
        *(5421, 5918, 6265, 5851, 5949),
    ]
    assert round(float(loaded.train.inputs.mean()) * loaded.scale, 4) == 0.1307
