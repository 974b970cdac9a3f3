import numpy as np
import pytest

from pullback.data import Vocabulary, tokenise
from pullback.data.text import padded
from pullback.errors import DataError

VOCABULARY = Vocabulary(["good", "film", "wasn't"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("...!? -- <br /><br/><br>", []),
        ("One<br />two", ["one", "two"]),
        ("It WASN'T, 'quoted' rock'n'roll'", ["it", "wasn't", "quoted", "rock'n'roll"]),
        ("don’t", ["don't"]),
        ("10/10 snake_case", ["10", "10", "snake", "case"]),
        ("Čeština naïve 映画", ["čeština", "naïve", "映画"]),
        ("a\nb\tc\u00a0d", ["a", "b", "c", "d"]),
    ],
)
def test_words(text, words):
    assert tokenise(text) == words


def test_the_most_frequent_words_in_a_fixed_order():
    texts = ["b a c", "a b", "d a"]
    assert Vocabulary.of_texts(texts, size=5).words[2:] == ("a", "b", "c")
    assert Vocabulary.of_texts(reversed(texts), size=5) == Vocabulary.of_texts(texts, size=5)
    assert len(Vocabulary.of_texts(texts, size=100)) == 6


def test_numbers():
    assert [VOCABULARY.number(word) for word in ("good", "film", "bad", "<padding>")] == [2, 3, 1, 0]
    assert VOCABULARY[4] == "wasn't" and len(VOCABULARY) == 5


def test_padding_stands_first_and_the_end_of_a_text_is_kept():
    rows = VOCABULARY.encode(["Good film", "", "the film wasn't a good good film"], length=4)
    assert rows.dtype == np.int32
    assert rows.tolist() == [[0, 0, 2, 3], [0, 0, 0, 0], [1, 2, 2, 3]]


def test_no_texts():
    assert VOCABULARY.encode([], length=4).shape == (0, 4)


def test_one_string_is_no_list_of_texts():
    with pytest.raises(DataError, match="Give a list of texts"):
        VOCABULARY.encode("good film")
    with pytest.raises(DataError, match="Give a list of texts"):
        Vocabulary.of_texts("good film")  # its letters would be the words


@pytest.mark.parametrize("length", [1, 3, 7])
def test_padded_rows_against_python(length):
    random = np.random.default_rng(length)
    texts = [random.integers(1, 100, size).tolist() for size in random.integers(0, 9, 5000)]
    starts = np.cumsum([0, *map(len, texts)])
    found = padded(np.array([n for text in texts for n in text]), starts, length)
    expected = [[0] * (length - len(text[-length:])) + text[-length:] for text in texts]
    assert found.tolist() == expected


def test_a_row_has_room_for_a_word():
    with pytest.raises(DataError, match="rows of 0 words"):
        padded(np.array([1]), np.array([0, 1]), 0)


def test_json_and_back():
    vocabulary = Vocabulary(['"', "é", "film"])
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary
    assert hash(Vocabulary.from_json(vocabulary.to_json())) == hash(vocabulary)
    assert vocabulary != Vocabulary(["film"]) and vocabulary != "film"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "no JSON"),
        ("{}", "expected a list of words, found dict"),
        ('["a", "a"]', "'a' is there twice"),
        ('["a", ""]', "empty or no string"),
        ("[1]", "empty or no string"),
        ('["<unknown>"]', "'<unknown>' is there twice"),
    ],
)
def test_unusable_json(text, message):
    with pytest.raises(DataError, match=message):
        Vocabulary.from_json(text)


def test_an_embedding_of_another_size():
    VOCABULARY.check_rows(5)
    with pytest.raises(DataError, match="5 words, but the embedding has 12,000 rows"):
        VOCABULARY.check_rows(12_000)


def test_a_vocabulary_has_a_word():
    with pytest.raises(DataError, match="size of 2 leaves no word"):
        Vocabulary.of_texts(["a"], size=2)
