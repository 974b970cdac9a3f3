import gzip

import numpy as np
import pytest

from pullback.data import Vocabulary, read_glove, write_glove
from pullback.errors import DataError, OutputError

VOCABULARY = Vocabulary(["film", "good", "café", "nowhere"])
VECTORS = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)


@pytest.fixture
def glove(tmp_path):
    """``glove(lines)``: a file of these lines."""

    def write(*lines):
        path = tmp_path / "vectors.txt"
        path.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() for line in lines))
        return path

    return write


def test_what_is_written_comes_back_to_the_bit(tmp_path):
    write_glove(tmp_path / "v.txt", ["café", "other", "film"], VECTORS)
    read = read_glove(tmp_path / "v.txt", VOCABULARY)
    assert read.vectors.dtype == np.float32 and read.vectors.shape == (6, 5)
    assert read.found.tolist() == [False, False, True, False, True, False]
    np.testing.assert_array_equal(read.vectors[[4, 2]], VECTORS[[0, 2]])
    assert not read.vectors[~read.found].any()


def test_the_lines_that_are_written(tmp_path):
    write_glove(tmp_path / "v.txt", ["film", "café"], np.array([[0.5, -2], [1e-7, 3]]))
    assert (tmp_path / "v.txt").read_text(encoding="utf-8") == "film 0.5 -2\ncafé 1.00000001e-07 3\n"


def test_gzip_and_line_ends(tmp_path):
    (tmp_path / "v.gz").write_bytes(gzip.compress(b"film 1 2 \r\ngood 3 4\r\n"))
    assert read_glove(tmp_path / "v.gz", VOCABULARY).vectors[2:4].tolist() == [[1, 2], [3, 4]]


def test_words_with_spaces(glove):
    path = glove("film 1 2\n", ". . . 5 6\n", "at name@domain.com 7 8\n", "good 3 4\n")
    assert read_glove(path, VOCABULARY).vectors[2:4].tolist() == [[1, 2], [3, 4]]
    spaced = Vocabulary([". . .", "at name@domain.com"])
    assert read_glove(path, spaced).vectors[2:].tolist() == [[5, 6], [7, 8]]


def test_the_first_of_two_lines_counts(glove):
    assert read_glove(glove("film 1 2\nfilm 3 4\n"), VOCABULARY).vectors[2].tolist() == [1, 2]


@pytest.mark.parametrize("word", ["film", "unused"])
@pytest.mark.parametrize(("values", "found"), [("1", 1), ("1 2 3", 3), ("", 0)])
def test_the_wrong_number_of_values(glove, word, values, found):
    with pytest.raises(DataError, match=f"line 2: expected a word and 2 values, found {found} values"):
        read_glove(glove("good 1 2\n", f"{word} {values}\n"), VOCABULARY)


def test_lines_without_values(glove):
    with pytest.raises(DataError, match="line 1: expected a word and its values, found 0 values"):
        read_glove(glove("film\n", "good\n"), VOCABULARY)


@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite(glove, value):
    with pytest.raises(DataError, match=r"line 3: found .* where a finite number is needed"):
        read_glove(glove("good 1 2\n", "other 1 2\n", f"film 1 {value}\n"), VOCABULARY)


def test_what_is_no_number(glove):
    with pytest.raises(DataError, match=r"line 2: could not convert string to float: b'x2'"):
        read_glove(glove("good 1 2\n", "film 1 x2\n"), VOCABULARY)


def test_no_utf8(glove):
    with pytest.raises(DataError, match="line 2: the word is no UTF-8"):
        read_glove(glove("good 1 2\n", b"caf\xe9 1 2\n"), VOCABULARY)


def test_files_that_cannot_be_read(glove, tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*none.txt: No such file"):
        read_glove(tmp_path / "none.txt", VOCABULARY)
    packed = gzip.compress(b"film 1 2\n" * 1000)
    for damaged in (packed[:-20], packed[:10] + b"\xff" * 30):
        (tmp_path / "v.gz").write_bytes(damaged)
        with pytest.raises(DataError, match=r"is (truncated|damaged)"):
            read_glove(tmp_path / "v.gz", VOCABULARY)


@pytest.mark.parametrize("content", ["", "other 1 2\n"])
def test_nothing_of_use(glove, content):
    with pytest.raises(DataError, match="none with a word of the vocabulary"):
        read_glove(glove(content), VOCABULARY)


def test_a_line_without_an_end(glove):
    with pytest.raises(DataError, match="a line of more than 262,144 bytes"):
        read_glove(glove(b"x" * (1 << 20)), VOCABULARY)


@pytest.mark.parametrize(
    ("words", "vectors", "message"),
    [
        (["a"], VECTORS, r"1 words, vectors of shape \(3, 5\)"),
        (["a"], np.zeros((1, 0)), r"vectors of shape \(1, 0\)"),
        (["a", "b"], np.array([[1.0], [np.nan]]), "the vector of 'b' is not finite"),
        (["a b"], np.zeros((1, 2)), "'a b' is no word"),
        ([""], np.zeros((1, 2)), "'' is no word"),
        (["a\n"], np.zeros((1, 2)), "is no word"),
    ],
)
def test_what_cannot_be_written(tmp_path, words, vectors, message):
    with pytest.raises(DataError, match=message):
        write_glove(tmp_path / "v.txt", words, vectors)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(OutputError, match="Create the folder"):
        write_glove(tmp_path / "none" / "v.txt", ["a"], np.zeros((1, 2)))


def test_vectors_that_would_take_far_more_memory_than_the_file(glove):
    vocabulary = Vocabulary([f"word{k}" for k in range(12_000)])
    with pytest.raises(
        DataError, match=r"12,002 words with the 20,000 values that line 1 has .* smaller vocab"
    ):
        read_glove(glove("word1" + " 1" * 20_000 + "\n"), vocabulary)


def test_a_gzip_file_that_holds_far_more_than_it_has(tmp_path):
    (tmp_path / "v.gz").write_bytes(gzip.compress(b"film 1 2\n" * 20_000_000, 1))
    with pytest.raises(DataError, match=r"v.gz holds more than .* bytes.* unpack it first \(gunzip\)"):
        read_glove(tmp_path / "v.gz", VOCABULARY)
