import gzip
import struct
import sys
import zlib

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


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(path, height, width, *extra, pixels=None):
    """A grey picture, with more chunks before its pixels."""
    rows = np.zeros((height, width + 1), np.uint8)
    rows[:, 1:] = PIXELS if pixels is None else pixels
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    body = b"".join([header, *extra, chunk(b"IDAT", zlib.compress(rows.tobytes())), chunk(b"IEND", b"")])
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


@pytest.mark.parametrize("kind", ["JPEG", "GIF", "BMP", "TIFF", "EPS"])
def test_other_formats_are_not_given_to_a_decoder(tmp_path, kind):
    """PostScript would be run by another program."""
    image = pytest.importorskip("PIL.Image")
    image.fromarray(PIXELS).save(tmp_path / f"a.{kind}", kind)
    with pytest.raises(DataError, match=r"is no picture that can be read .* Save it as PNG or .npy"):
        read_pictures(tmp_path / f"a.{kind}", SHAPE)


def test_pictures_of_another_size_are_not_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr("matplotlib.image.imread", lambda _: pytest.fail("no pixel must be decoded"))
    with pytest.raises(DataError, match=r"has shape \(9000, 9000\); the model takes pictures of 4 × 6"):
        read_pictures(png(tmp_path / "a.png", 9000, 9000, pixels=0), SHAPE)
    with pytest.raises(DataError, match=r"bytes for 9000 × 9000 pixels. Give .npy"):
        read_pictures(tmp_path / "a.png", (9000, 9000))


def test_only_what_makes_pixels_is_given_to_the_decoder(tmp_path):
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20)))
    profile = chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(1 << 20)))
    found = read_pictures(png(tmp_path / "a.png", *SHAPE, *[text] * 70, profile), SHAPE)
    np.testing.assert_allclose(found[0], PIXELS / 255, rtol=1e-6)


def test_damage_is_told_once(tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(png(file, *SHAPE).read_bytes()[:60])
    with pytest.raises(DataError) as caught:
        read_pictures(file, SHAPE)
    assert (
        str(caught.value)
        == f"[read_pictures] {file} is damaged: it is cut off. Save it again as PNG or .npy."
    )


def test_every_damage_to_a_png_is_noticed(tmp_path):
    whole = png(tmp_path / "a.png", *SHAPE).read_bytes()
    for position in range(8, len(whole)):
        for damaged in (
            whole[:position],
            whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :],
        ):
            (tmp_path / "a.png").write_bytes(damaged)
            with pytest.raises(DataError, match=r"\[read_pictures\] .*a.png"):
                read_pictures(tmp_path / "a.png", SHAPE)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "u1", ">f2"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_arrays_of_every_layout(tmp_path, order, dtype, version):
    array = np.asarray(np.arange(72).reshape(3, *SHAPE) / (1 if dtype == "u1" else 72), dtype, order=order)
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, array, version)
    np.testing.assert_allclose(read_pictures(tmp_path / "a.npy", SHAPE, 1.0), array, rtol=1e-6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"(4, 6)", b"(4, 6000000000)"),
        (b"(4, 6)", b"(0, 99999999999999999, 99999999999999999)"),
        (b"(4, 6)", b"(-4, -6)"),
        (b"(4, 6)", b"(" + b"1, " * 90 + b"24)"),
        (b"|u1", b"<i16"),
        (b"'|u1'", b"[('a', '|u1')]"),
        (b"'|u1'", b"(" * 900),
        (b"False", b"None"),
    ],
)
def test_headers_that_lie(tmp_path, old, new):
    content = npy(tmp_path / "a.npy", PIXELS).read_bytes()
    length = int.from_bytes(content[8:10], "little")
    header = content[10 : 10 + length].replace(old, new)
    (tmp_path / "a.npy").write_bytes(
        content[:8] + struct.pack("<H", len(header)) + header + content[10 + length :]
    )
    with pytest.raises(DataError, match=r"a.npy is damaged"):
        read_pictures(tmp_path / "a.npy", SHAPE)


def test_a_gzip_file_with_more_than_it_should(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"\0\0\x08\3" + struct.pack(">III", 10**8, 4, 6)))
    with pytest.raises(DataError, match=r"a.gz is truncated: .* unpack it first \(gunzip\)"):
        read_pictures(tmp_path / "a.gz", SHAPE)


def test_floats_beyond_float32_are_not_finite(tmp_path):
    with pytest.raises(DataError, match="not finite"):
        read_pictures(npy(tmp_path / "a.npy", np.full(SHAPE, 1e300)), SHAPE)


def test_integers_of_two_bytes_are_no_pixels(tmp_path):
    np.save(tmp_path / "wide.npy", np.full(SHAPE, 65535, np.uint16))
    with pytest.raises(DataError, match=r"has dtype uint16. Give uint8, or floats from 0 to 1"):
        read_pictures(tmp_path / "wide.npy", SHAPE)
