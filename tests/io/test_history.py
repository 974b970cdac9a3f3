import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullback.errors import DataError, DTypeError, OutputError
from pullback.io import read_history, write_history


def test_what_numpy_gives_becomes_plain(tmp_path):
    history = {
        "loss": [np.float32(0.5), np.float64(0.25)],
        "accuracy": np.array([0.5, 0.75]),
        "steps": np.int64(600),
        "settings": {"shape": (4, 196), "shuffle": np.True_, "data": None, "name": "mnist-rnn"},
    }
    write_history(tmp_path / "history.json", history)
    expected = {
        "loss": [0.5, 0.25],
        "accuracy": [0.5, 0.75],
        "steps": 600,
        "settings": {"shape": [4, 196], "shuffle": True, "data": None, "name": "mnist-rnn"},
    }
    assert json.loads((tmp_path / "history.json").read_text()) == expected
    assert read_history(tmp_path / "history.json") == expected


def test_numbers_that_are_not_finite(tmp_path):
    path = tmp_path / "history.json"
    write_history(path, {"loss": [1.0, float("nan")], "extremes": np.array([np.inf, -np.inf], np.float32)})

    def forbidden(constant):
        pytest.fail(f"{constant} is not JSON")

    assert json.loads(path.read_text(), parse_constant=forbidden) == {
        "loss": [1.0, "NaN"],
        "extremes": ["Infinity", "-Infinity"],
    }
    history = read_history(path)
    assert history["loss"][0] == 1.0
    assert math.isnan(history["loss"][1])
    assert history["extremes"] == [math.inf, -math.inf]


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just("text"),
            lambda values: (
                st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values, max_size=3)
            ),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_round_trip(tmp_path_factory, history):
    path = tmp_path_factory.mktemp("history") / "history.json"
    write_history(path, history)
    assert read_history(path) == history


def test_one_line_for_each_entry(tmp_path):
    write_history(tmp_path / "h.json", {"loss": [1, 2], "accuracy": [3, 4]})
    assert (tmp_path / "h.json").read_text() == '{\n  "loss": [1, 2],\n  "accuracy": [3, 4]\n}\n'


def test_what_json_cannot_hold_is_named_and_the_old_file_kept(tmp_path):
    path = tmp_path / "h.json"
    write_history(path, {"loss": [1]})
    with pytest.raises(DTypeError, match=r"history\['a'\]\['b'\]\[1\] is a object"):
        write_history(path, {"a": {"b": [0, object()]}})
    with pytest.raises(DTypeError, match="the key 3 is no string"):
        write_history(path, {"a": {3: 1}})
    with pytest.raises(DTypeError, match="complex"):
        write_history(path, {"a": np.complex64(1)})
    assert read_history(path) == {"loss": [1]}


def test_unwritable(tmp_path):
    with pytest.raises(OutputError, match="Create the folder"):
        write_history(tmp_path / "runs" / "h.json", {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no JSON"),
        (b'{"loss": [1, 2', "no JSON"),
        (b"\xff\xfe{}", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[1, 2]", "found list"),
    ],
)
def test_damaged_files(tmp_path, content, message):
    (tmp_path / "h.json").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_history(tmp_path / "h.json")


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        read_history(tmp_path / "h.json")


def test_a_history_that_would_take_far_more_memory_than_the_file(tmp_path):
    (tmp_path / "h.json").write_bytes(b'{"loss": [' + b"{}," * 2_000_000 + b"{}]}")
    with pytest.raises(DataError, match=r"h.json is no JSON that can be read \(6.0 MB that would take"):
        read_history(tmp_path / "h.json")


def test_numbers_that_are_not_finite_come_back_at_any_depth(tmp_path):
    (tmp_path / "h.json").write_text('{"a": [' * 300 + '"Infinity"' + "]}" * 300)
    found = read_history(tmp_path / "h.json")
    for _ in range(300):
        found = found["a"][0]
    assert found == math.inf
