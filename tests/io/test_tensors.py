import json
import struct
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save_file

from pullback.errors import DataError, DTypeError, MissingExtra, OutputError
from pullback.io import load_metadata, load_tensors, save_tensors

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.ones(3, np.float32)}
    save_tensors(path, tensors, {"network": "mnist-rnn"})
    return path


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5).filter(lambda name: name != "__metadata__"),
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
        ),
        max_size=4,
    )
)
def test_round_trip(tmp_path_factory, tensors):
    path = tmp_path_factory.mktemp("tensors") / "a.safetensors"
    save_tensors(path, tensors)
    loaded = load_tensors(path, like=tensors)
    assert loaded.keys() == tensors.keys()
    for name, array in tensors.items():
        assert (loaded[name].dtype, loaded[name].shape) == (array.dtype, array.shape)
        assert loaded[name].tobytes() == array.tobytes()


def test_bfloat16_comes_back_as_it_was(tmp_path):
    kind = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    tensors = {"weight": np.arange(6).astype(kind).reshape(2, 3), "scale": np.ones(2, np.float16)}
    save_tensors(tmp_path / "a.safetensors", tensors)
    assert load_file(tmp_path / "a.safetensors")["weight"].dtype == kind
    loaded = load_tensors(tmp_path / "a.safetensors", like=tensors)
    for name, array in tensors.items():
        assert loaded[name].dtype == array.dtype and loaded[name].tobytes() == array.tobytes()


def test_bfloat16_without_its_package_is_refused(tmp_path, monkeypatch):
    kind = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    save_tensors(tmp_path / "a.safetensors", {"weight": np.ones(3, kind)})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(MissingExtra, match=r"weight.*bfloat16.*pip install 'pullback\[bfloat16\]'"):
        load_tensors(tmp_path / "a.safetensors")


def test_memory_order_and_byte_order(tmp_path):
    matrix = np.arange(12, dtype=np.float64).reshape(3, 4)
    tensors = {
        "transposed": matrix.T,
        "strided": matrix[::2, 1::2],
        "fortran": np.asfortranarray(matrix),
        "big": matrix.astype(">f8"),
        "reversed": matrix[::-1],
    }
    save_tensors(tmp_path / "a.safetensors", tensors)
    for name, array in load_tensors(tmp_path / "a.safetensors").items():
        np.testing.assert_array_equal(array, tensors[name])
        assert array.dtype.isnative
        assert array.flags.c_contiguous
        assert array.flags.writeable


def test_metadata(saved):
    assert load_metadata(saved) == {"network": "mnist-rnn"}


def test_other_programs_read_ours_and_we_read_theirs(saved, tmp_path):
    np.testing.assert_array_equal(load_file(saved)["bias"], np.ones(3, np.float32))
    save_file({"x": np.arange(3)}, tmp_path / "theirs.safetensors")
    np.testing.assert_array_equal(load_tensors(tmp_path / "theirs.safetensors")["x"], np.arange(3))
    assert load_metadata(tmp_path / "theirs.safetensors") == {}


@pytest.mark.parametrize("value", [np.complex64(1), np.array([object()]), np.array(["a"]), np.longdouble(1)])
def test_dtypes_that_the_format_lacks(tmp_path, value):
    with pytest.raises(DTypeError, match=r"'weight' has dtype .* Convert it"):
        save_tensors(tmp_path / "a.safetensors", {"weight": value})
    assert not list(tmp_path.iterdir())


def test_a_failed_save_keeps_the_old_file(saved):
    with pytest.raises(DTypeError):
        save_tensors(saved, {"weight": np.array(["text"])})
    assert set(load_tensors(saved)) == {"weight", "bias"}


def test_unwritable(tmp_path):
    with pytest.raises(OutputError, match="Create the folder"):
        save_tensors(tmp_path / "runs" / "a.safetensors", {})


def test_every_truncation_is_found(saved):
    content = saved.read_bytes()
    for length in range(len(content)):
        saved.write_bytes(content[:length])
        with pytest.raises(DataError, match="no readable safetensors file"):
            load_tensors(saved)


def test_no_flipped_byte_changes_a_number(saved):
    """Bytes that carry no tensor, such as those that pad the header, may change unnoticed."""
    content, tensors = saved.read_bytes(), load_tensors(saved)
    found = 0
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x01
        saved.write_bytes(damaged)
        try:
            loaded = load_tensors(saved, like=tensors)
        except DataError:
            found += 1
            continue
        for name, array in tensors.items():
            np.testing.assert_array_equal(loaded[name], array)
    assert found > len(content) / 2


def test_damaged_numbers_are_reported_as_such(saved):
    content = bytearray(saved.read_bytes())
    content[-1] ^= 0x80
    saved.write_bytes(content)
    with pytest.raises(DataError, match="is damaged: expected CRC-32"):
        load_tensors(saved)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<!DOCTYPE html><html></html>",
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 4) + b"\xff\xfe\xfd\xfc",
    ],
)
def test_other_files(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    for load in (load_tensors, load_metadata):
        with pytest.raises(DataError, match="truncated, damaged"):
            load(tmp_path / "a")


@pytest.mark.parametrize(("dtype", "size"), [("F4", 1), ("F8_E4M3", 2)])
def test_dtypes_that_numpy_lacks(tmp_path, dtype, size):
    header = json.dumps({"x": {"dtype": dtype, "shape": [2], "data_offsets": [0, size]}}).encode()
    (tmp_path / "a").write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
    with pytest.raises(DataError, match="of another format or dtype"):
        load_tensors(tmp_path / "a")


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(DataError, match="cannot read"):
            load_tensors(path)


def test_every_difference_is_named(saved):
    like = {"weight": np.zeros((3, 2), np.float32), "recurrent": np.zeros(1)}
    with pytest.raises(DataError) as error:
        load_tensors(saved, like=like)
    for part in (
        "'recurrent' is missing",
        "'bias' is unexpected",
        "'weight' is float32[2, 3], expected float32[3, 2]",
    ):
        assert part in str(error.value)


def test_another_dtype_does_not_fit(saved):
    like = {"weight": np.zeros((2, 3), np.float64), "bias": np.zeros(3, np.float32)}
    with pytest.raises(DataError, match=r"'weight' is float32\[2, 3\], expected float64\[2, 3\]"):
        load_tensors(saved, like=like)


def lying(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "header",
    [
        {"x": {**GOOD, "shape": [1 << 40]}},
        {"x": {**GOOD, "shape": [-2]}},
        {"x": {**GOOD, "shape": [2.0]}},
        {"x": {**GOOD, "shape": [True, 2]}},
        {"x": {**GOOD, "shape": [1] * 90 + [2]}},
        {"x": {**GOOD, "shape": None}},
        {"x": {**GOOD, "data_offsets": [0, 8, 8]}},
        {"x": {**GOOD, "data_offsets": [8, 0]}},
        {"x": {**GOOD, "data_offsets": [1, 9]}},
        {"x": {**GOOD, "data_offsets": [0, 1 << 70], "shape": [1 << 68]}},
        {"x": GOOD, "y": GOOD},
        {"x": GOOD, "y": {"dtype": "U8", "shape": [0, 1 << 61, 1 << 61], "data_offsets": [8, 8]}},
        {"x": {**GOOD, "dtype": 3}},
        {"x": {**GOOD, "dtype": ["F32"]}},
        {"x": {"dtype": "F32"}},
        {"x": [GOOD]},
        {"x": {**GOOD, "more": 1}},
        {"x": GOOD, "__metadata__": {"a": 1}},
        {"x": GOOD, "__metadata__": []},
        {"x": {"dtype": "BOOL", "shape": [8], "data_offsets": [0, 8]}},
        [GOOD],
        b"{" * 200_000,
        b'{"x": [' + b"{}," * 2_000_000 + b"{}]}",
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
    ids=lambda header: str(header)[:60],
)
def test_headers_that_lie(tmp_path, header):
    path = lying(tmp_path / "a.safetensors", header, bytes([3]) * 8)
    with pytest.raises(DataError, match=r"a.safetensors is no readable safetensors file \(.*Restore it"):
        load_tensors(path)


def test_arrays_in_another_order_than_their_names(tmp_path):
    header = {
        "a": {"dtype": "U8", "shape": [1], "data_offsets": [4, 5]},
        "b": {"dtype": "U16", "shape": [2], "data_offsets": [0, 4]},
        "c": {"dtype": "I64", "shape": [0], "data_offsets": [4, 4]},
    }
    found = load_tensors(lying(tmp_path / "a", header, bytes(range(5))))
    assert found["a"].tolist() == [4] and found["b"].tolist() == [0x0100, 0x0302] and found["c"].size == 0
