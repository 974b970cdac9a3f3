import gzip
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pullback.data import read_idx, write_idx
from pullback.errors import DataError, DTypeError, OutputError

DTYPES = ["uint8", "int8", "int16", "int32", "float32", "float64"]
PAIR = bytes([0, 0, 0x0B, 1, 0, 0, 0, 2, 0x01, 0x02, 0xFF, 0xFE])  # int16: 258, -2


@given(
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    ),
    st.sampled_from(["a.idx", "a.gz"]),
)
def test_round_trip(tmp_path_factory, array, name):
    path = tmp_path_factory.mktemp("idx") / name
    write_idx(path, array)
    found = read_idx(path)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.dtype.isnative
    assert found.tobytes() == array.tobytes()


def test_the_bytes_are_those_of_the_format(tmp_path):
    write_idx(tmp_path / "a", np.array([258, -2], np.int16))
    assert (tmp_path / "a").read_bytes() == PAIR
    write_idx(tmp_path / "b", np.array([[1.0]], ">f8"))
    assert (tmp_path / "b").read_bytes() == bytes([0, 0, 0x0E, 2, 0, 0, 0, 1, 0, 0, 0, 1]) + struct.pack(
        ">d", 1.0
    )


def test_gzip_is_known_by_its_content(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(PAIR))
    (tmp_path / "b.gz").write_bytes(PAIR)
    for name in ("a", "b.gz"):
        assert read_idx(tmp_path / name).tolist() == [258, -2]


def test_equal_arrays_make_equal_files(tmp_path):
    for name in ("a.gz", "b.gz"):
        write_idx(tmp_path / name, np.arange(5, dtype=np.uint8))
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_memory_order_does_not_matter(tmp_path):
    matrix = np.arange(6, dtype=np.int32).reshape(2, 3)
    write_idx(tmp_path / "a", matrix.T)
    np.testing.assert_array_equal(read_idx(tmp_path / "a"), matrix.T)


def test_larger_than_one_piece(tmp_path):
    array = np.arange(700_000, dtype=np.int32)
    write_idx(tmp_path / "a.gz", array)
    np.testing.assert_array_equal(read_idx(tmp_path / "a.gz"), array)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("length", range(len(PAIR)))
def test_content_that_ends_early(tmp_path, pack, length):
    (tmp_path / "a").write_bytes(pack(PAIR[:length]))
    with pytest.raises(DataError, match=r"a is truncated: expected .*Get the file again"):
        read_idx(tmp_path / "a")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_content_that_goes_on(tmp_path, pack):
    (tmp_path / "a").write_bytes(pack(PAIR + b"\0"))
    with pytest.raises(DataError, match=r"goes on after its end: expected int16\[2\], 12 bytes, found"):
        read_idx(tmp_path / "a")


def test_the_sizes_are_in_the_message(tmp_path):
    (tmp_path / "a").write_bytes(PAIR[:-1])
    with pytest.raises(DataError, match=r"expected int16\[2\], 12 bytes, found 11 bytes"):
        read_idx(tmp_path / "a")


@pytest.mark.parametrize("length", range(2, len(gzip.compress(PAIR))))
def test_gzip_cut_off(tmp_path, length):
    (tmp_path / "a").write_bytes(gzip.compress(PAIR)[:length])
    with pytest.raises(DataError, match="truncated"):
        read_idx(tmp_path / "a")


def test_no_flipped_bit_of_a_gzip_file_changes_a_number(tmp_path):
    """A flipped bit in the time stamp and the like is harmless; any other must be found."""
    content = gzip.compress(np.random.default_rng(1).bytes(40))
    content = gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 40]) + gzip.decompress(content), mtime=0)
    (tmp_path / "a").write_bytes(content)
    expected, found = read_idx(tmp_path / "a"), 0
    for position in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        (tmp_path / "a").write_bytes(damaged)
        try:
            np.testing.assert_array_equal(read_idx(tmp_path / "a"), expected)
        except DataError:
            found += 1
    assert found > 8 * 40


def test_rubbish_after_gzip(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(PAIR) + b"rubbish")
    with pytest.raises(DataError, match="is damaged"):
        read_idx(tmp_path / "a")


@pytest.mark.parametrize(
    "content",
    [
        b"<!DOCTYPE html>",
        b"\0\1\x08\1\0\0\0\1\0",  # second byte not zero
        b"\0\0\x07\1\0\0\0\1\0",  # no such dtype
        b"\0\0\x0a\1\0\0\0\1\0",
        b"\0\0\x08\x21" + bytes(200),  # 33 axes
    ],
)
def test_other_files(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(
        DataError, match=r"is no IDX file: expected the bytes 00 00, .*found " + content[:4].hex(" ")
    ):
        read_idx(tmp_path / "a")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("lengths", [(1 << 31,), (0xFFFFFFFF,) * 3, (0xFFFFFFFF,) * 32, (1 << 16, 1 << 16)])
def test_hostile_sizes_take_no_memory(tmp_path, pack, lengths):
    (tmp_path / "a").write_bytes(
        pack(bytes([0, 0, 8, len(lengths)]) + struct.pack(f">{len(lengths)}I", *lengths))
    )
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="is truncated: expected uint8"):
            read_idx(tmp_path / "a")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_an_axis_of_none_among_hostile_ones(tmp_path):
    """No elements, but a shape that NumPy itself refuses."""
    (tmp_path / "a").write_bytes(bytes([0, 0, 8, 4]) + struct.pack(">4I", 0, *(0xFFFFFFFF,) * 3))
    with pytest.raises(DataError, match="no memory for uint8"):
        read_idx(tmp_path / "a")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*none: No such file"):
        read_idx(tmp_path / "none")
    with pytest.raises(DataError, match="cannot read"):
        read_idx(tmp_path)


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint16", "float16", "complex64", "object"])
def test_dtypes_that_idx_lacks(tmp_path, dtype):
    with pytest.raises(DTypeError, match=f"IDX has no {dtype}"):
        write_idx(tmp_path / "a", np.zeros(1, dtype))


def test_axes_that_are_too_long(tmp_path):
    with pytest.raises(DataError, match=r"ends at 2\*\*32 - 1"):
        write_idx(tmp_path / "a", np.broadcast_to(np.uint8(0), (1 << 32,)))


def test_unwritable(tmp_path):
    with pytest.raises(OutputError, match="Create the folder"):
        write_idx(tmp_path / "runs" / "a", np.zeros(1))


def test_a_gzip_file_that_holds_far_more_than_it_has(tmp_path):
    """The header lies about it: what counts is what comes out."""
    zeros = gzip.compress(b"\0\0\x08\1" + (100_000_000).to_bytes(4, "big") + bytes(100_000_000), 1)
    (tmp_path / "a.gz").write_bytes(zeros)
    with pytest.raises(DataError, match=r"a.gz .*unpack it first \(gunzip\)"):
        read_idx(tmp_path / "a.gz")
    (tmp_path / "a").write_bytes(gzip.decompress(zeros))
    assert read_idx(tmp_path / "a").shape == (100_000_000,)
