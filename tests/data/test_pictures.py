import sys

import numpy as np
import pytest

from pullback.data import read_pictures, write_idx
from pullback.errors import DataError, MissingExtra

SHAPE = (4, 6)
PIXELS = np.random.default_rng(1).integers(0, 256, SHAPE).astype(np.uint8)


def npy(path, array):
    np.save(path, array)
    return path


@pytest.mark.parametrize("ending", ["a.idx", "a.gz"])
@pytest.mark.parametrize("count", [None, 1, 3])
def test_idx(tmp_path, ending, count):
    array = PIXELS if count is None else np.stack([PIXELS] * count)
    write_idx(tmp_path / ending, array)
    found = read_pictures(tmp_path / ending, SHAPE)
    assert found.shape == (count or 1, *SHAPE) and found.dtype == np.float32
    np.testing.assert_allclose(found[-1], PIXELS / 255, rtol=1e-6)


def test_the_scale_is_for_integers_alone(tmp_path):
    np.testing.assert_allclose(
        read_pictures(npy(tmp_path / "a.npy", PIXELS), SHAPE, 1 / 16)[0], PIXELS / 16, rtol=1e-6
    )
    floats = np.linspace(0, 1, 24).reshape(SHAPE)
    np.testing.assert_allclose(
        read_pictures(npy(tmp_path / "b.npy", floats), SHAPE, 1 / 16)[0], floats, rtol=1e-6
    )


@pytest.mark.parametrize("channels", [3, 4])
def test_png(tmp_path, channels):
    from matplotlib.image import imsave

    colours = np.full((*SHAPE, channels), 255, np.uint8)
    colours[..., :3] = PIXELS[..., None]
    imsave(tmp_path / "a.png", colours)
    np.testing.assert_allclose(read_pictures(tmp_path / "a.png", SHAPE)[0], PIXELS / 255, atol=1e-6)


def test_a_png_without_matplotlib(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    monkeypatch.setitem(sys.modules, "matplotlib.image", None)
    with pytest.raises(MissingExtra, match=r"Install pullback\[plot\]"):
        read_pictures(tmp_path / "a.png", SHAPE)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((6, 4), np.uint8), r"has shape \(1, 6, 4\); the model takes pictures of 4 × 6 pixels"),
        (np.zeros(24, np.uint8), r"has shape \(24,\)"),
        (np.zeros(SHAPE, np.int32), "has dtype int32"),
        (np.full(SHAPE, np.nan), "not finite"),
        (np.full(SHAPE, None), "damaged"),
    ],
)
def test_arrays_of_another_form(tmp_path, array, message):
    with pytest.raises(DataError, match=message):
        read_pictures(npy(tmp_path / "a.npy", array), SHAPE)


@pytest.mark.parametrize("content", [b"", b"text", b"\x89PNG\r\n\x1a\nnothing", b"\x93NUMPY\x01\x00v\x00{"])
def test_damaged_files(tmp_path, content):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(DataError, match=r"no picture that can be read|damaged"):
        read_pictures(tmp_path / "a.png", SHAPE)


def test_an_array_that_is_cut_off(tmp_path):
    path = npy(tmp_path / "a.npy", PIXELS)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="damaged"):
        read_pictures(path, SHAPE)


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        read_pictures(tmp_path / "none.npy", SHAPE)
