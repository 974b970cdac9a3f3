"""Characters by number, and texts in streams."""

import numpy as np
import pytest

from pullback.data import Alphabet, character_rows, character_streams, read_text
from pullback.errors import DataError

TEXT = "the cat sat on the mat: «ça, 猫 𝄞»\n"


def test_characters_are_numbered_by_frequency_and_come_back():
    alphabet = Alphabet.of_text(TEXT)
    assert alphabet.characters[:2] == " t" and len(alphabet) == len(set(TEXT))
    assert alphabet.decode(alphabet.encode(TEXT)) == TEXT
    assert alphabet.encode("").tolist() == [] and alphabet.decode([]) == ""
    assert "猫" in alphabet and "q" not in alphabet
    again = Alphabet.from_json(alphabet.to_json())
    assert again == alphabet and hash(again) == hash(alphabet) and again[0] == " "


def test_the_order_of_equally_frequent_characters_is_unicodes():
    assert Alphabet.of_text("cabba").characters == "abc"


@pytest.mark.parametrize(
    ("text", "named"),
    [("quiz", "'q', 'u', 'z'"), ("the zoo", "'z'"), ("\ud800", r"'\\ud800'"), ("\uffff", r"'\\uffff'")],
)
def test_characters_that_are_not_known_are_named(text, named):
    alphabet = Alphabet.of_text(TEXT + "io")
    with pytest.raises(DataError, match=f"{named} (is|are) not among the {len(alphabet)} characters"):
        alphabet.encode(text)


def test_of_many_unknown_characters_some_are_named():
    with pytest.raises(DataError, match="'h', … are not among the 1 characters"):
        Alphabet("z").encode("abcdefghijkl")


@pytest.mark.parametrize("text", ['"aba"', '""', "[1, 2]", "7", '"\\ud800"', "{", '["a", "b"]'])
def test_what_is_no_alphabet(text):
    with pytest.raises(DataError, match=r"Give each character once|Save the model again"):
        Alphabet.from_json(text)


def test_streams_go_on_from_batch_to_batch():
    data = character_streams(np.arange(100, dtype=np.uint8), streams=4, steps=6)
    assert data.inputs.shape == data.labels.shape == (16, 6) and data.inputs.dtype == np.uint8
    batches = data.inputs.reshape(-1, 4, 6)
    for stream in range(4):
        whole = batches[:, stream].ravel()
        assert whole.tolist() == list(range(24 * stream, 24 * stream + 24))
    assert np.array_equal(data.labels, data.inputs + 1)


def test_the_shortest_text_has_one_batch():
    assert len(character_streams(np.arange(13), 4, 3)) == 4
    with pytest.raises(DataError, match="12 characters are too few for 4 streams of 3, which need 13"):
        character_streams(np.arange(12), 4, 3)


def test_rows_of_equal_length():
    assert character_rows(np.arange(11), 4).inputs.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert character_rows(np.arange(3), 10).labels.tolist() == [[1, 2]]
    with pytest.raises(DataError, match="1 characters are too few"):
        character_rows(np.arange(1), 10)


def test_texts_are_read_whole(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    assert read_text(tmp_path / "t.txt") == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"good\nb\xe4d\n", "byte 0xe4 at 6, in line 2"),
        (b"\xff\xfeb\x00", "byte 0xff at 0, in line 1"),
    ],
)
def test_files_that_are_no_text(tmp_path, content, message):
    if content is not None:
        (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(DataError, match=message) as raised:
        read_text(tmp_path / "t.txt")
    assert "t.txt" in str(raised.value)
    if content is None:
        with pytest.raises(DataError, match="Is a directory"):
            read_text(tmp_path)
