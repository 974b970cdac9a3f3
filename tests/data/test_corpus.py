import numpy as np
import pytest

from pullback.data import Corpus, Reviews, Vocabulary
from pullback.data.corpus import CorpusBuilder
from pullback.data.text import tokenise
from pullback.errors import DataError

TEXTS = ["A good film", "", "bad film, bad story", "good"]


def corpus_of(count):
    return Corpus.of([f"word{k} shared" for k in range(count)], [k % 2 for k in range(count)])


def test_the_texts_of_a_corpus():
    corpus = Corpus.of(TEXTS, [1, 0, 0, 1])
    assert corpus.words == ("a", "good", "film", "bad", "story")
    assert corpus.tokens.tolist() == [0, 1, 2, 3, 2, 3, 4, 1] and corpus.tokens.dtype == np.int32
    assert corpus.starts.tolist() == [0, 3, 3, 7, 8]
    assert corpus.labels.tolist() == [1, 0, 0, 1] and corpus.labels.dtype == np.uint8


@pytest.mark.parametrize("length", [1, 3, 10])
@pytest.mark.parametrize("size", [3, 4, 100])
def test_a_corpus_and_its_vocabulary_agree_with_the_texts(size, length):
    corpus = Corpus.of(TEXTS)
    vocabulary = corpus.vocabulary(size)
    assert vocabulary == Vocabulary.of_texts(TEXTS, size)
    np.testing.assert_array_equal(corpus.encode(vocabulary, length), vocabulary.encode(TEXTS, length))


def test_the_vocabulary_of_some_texts():
    assert Corpus.of(TEXTS).vocabulary(100, rows=np.array([0, 3])) == Vocabulary(["good", "a", "film"])


def test_texts_in_another_order():
    builder = CorpusBuilder()
    for text in TEXTS:
        builder.add(text)
    found = builder.corpus(np.array([1, 0, 0, 1], np.uint8), order=np.array([2, 0, 1, 3]))
    expected = Corpus.of([TEXTS[k] for k in (2, 0, 1, 3)], [0, 1, 0, 1])
    vocabulary = expected.vocabulary()
    np.testing.assert_array_equal(found.encode(vocabulary, 5), expected.encode(vocabulary, 5))
    np.testing.assert_array_equal(found.labels, expected.labels)


def test_a_label_for_each_text():
    with pytest.raises(DataError, match="4 texts, 1 labels"):
        Corpus.of(TEXTS, [1])


def test_a_corpus_without_texts():
    corpus = Corpus.of([])
    assert len(corpus) == 0 and corpus.encode(Vocabulary(["a"])).shape == (0, 130)


def test_text_files(tmp_path):
    (tmp_path / "a.txt").write_bytes("A good film\r\nna\u00efve\n".encode())
    (tmp_path / "b.txt").write_bytes(b"bad")
    corpus = Corpus.of_files([tmp_path / "a.txt", tmp_path / "b.txt"])
    assert corpus.words == ("a", "good", "film", "naïve", "bad") and len(corpus) == 3


def test_text_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*none.txt: No such file"):
        Corpus.of_files([tmp_path / "none.txt"])
    (tmp_path / "a.txt").write_bytes(b"good\n\xff\xfe\n")
    with pytest.raises(DataError, match=r"a.txt, line 2: no UTF-8"):
        Corpus.of_files([tmp_path / "a.txt"])


def test_a_split_is_four_fifths_and_a_fifth():
    reviews = Reviews("made", corpus_of(53), "53 texts")
    texts = reviews.split(seed=3, length=4)
    assert len(texts.train) == 43 and len(texts.test) == 10
    assert texts.note == "53 texts: 43 to train on, 10 to test on"
    assert texts.train.inputs.shape == (43, 4) and texts.train.inputs.dtype == np.int32
    assert texts.train.labels.shape == (43, 1) and texts.train.labels.dtype == np.uint8
    # Each text has a word of its own, which tells where it went: the test texts' are unknown.
    own = texts.train.inputs[:, 2]
    assert len(set(own.tolist())) == 43 and own.min() > 1
    assert set(texts.test.inputs[:, 2].tolist()) == {1}


def test_seeds_decide_the_split():
    reviews = Reviews("made", corpus_of(50), "")
    first, again, other = (reviews.split(seed) for seed in (1, 1, 2))
    assert first.vocabulary == again.vocabulary != other.vocabulary
    np.testing.assert_array_equal(first.test.inputs, again.test.inputs)


def test_labels_stay_with_their_texts():
    words = Reviews("made", Corpus.of(["no"] * 20 + ["yes"] * 20, [0] * 20 + [1] * 20), "").split(0)
    for part in (words.train, words.test):
        np.testing.assert_array_equal(
            part.inputs[:, -1] == words.vocabulary.number("yes"), part.labels[:, 0] == 1
        )


def test_too_few_to_split():
    with pytest.raises(DataError, match="4 reviews cannot be split"):
        Reviews("made", corpus_of(4), "").split()


def words_in(content, tmp_path):
    (tmp_path / "a.txt").write_bytes(content)
    corpus = Corpus.of_files([tmp_path / "a.txt"])
    return [
        [corpus.words[k] for k in corpus.tokens[a:b]] for a, b in zip(corpus.starts[:-1], corpus.starts[1:])
    ]


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("word", ["naïve ", "it's ", "a<br />b ", "<BR  /> ", "x\t", "a  ", "ΣΑΣ "])
def test_a_long_line_is_one_text_wherever_it_is_cut(tmp_path, word, ending):
    for before in range(3):
        line = "z" * before + word * 30_000
        assert words_in(f"{line}\n\n{line}{ending}".encode(), tmp_path) == [tokenise(line)] * 2


def test_a_line_of_just_the_length_of_a_piece(tmp_path):
    for size in (1 << 16, (1 << 16) - 1, 1 << 17):
        line = "ab " * (size // 3) + "c" * (size % 3)
        for content in (line, f"{line}\n", f"{line}\nab"):
            expected = [tokenise(part) for part in content.split("\n") if part]
            assert words_in(content.encode(), tmp_path) == expected


def test_lines_that_are_no_text(tmp_path):
    with pytest.raises(DataError, match=r"a.txt, line 2: 65,536 bytes without a space"):
        words_in(b"a\n" + b"x" * 100_000, tmp_path)


def test_files_with_more_words_than_a_text_has(tmp_path):
    content = " ".join(f"{number:x}" for number in range(1 << 20, (1 << 20) + 300_000)).encode()
    with pytest.raises(
        DataError, match=r"a.txt, line 1: .* of them different, take far more memory than the file"
    ):
        words_in(content, tmp_path)
