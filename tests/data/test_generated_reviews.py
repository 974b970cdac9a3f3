import numpy as np
import pytest

from pullback.data import generate_reviews
from pullback.errors import DataError


def test_seeds_decide_the_reviews():
    first, again, other = (generate_reviews(50, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.corpus.tokens, again.corpus.tokens)
    assert first.corpus.words == again.corpus.words
    assert len(first.corpus.tokens) != len(other.corpus.tokens)


@pytest.mark.parametrize("count", [2, 101])
def test_half_of_them_are_positive(count):
    assert int(generate_reviews(count).corpus.labels.sum()) == count // 2


def test_words_tell_the_sides_apart_but_not_each_by_itself():
    corpus = generate_reviews(1000).corpus
    texts = np.repeat(np.arange(len(corpus)), np.diff(corpus.starts))
    share = {}
    for word in ("wonderful", "dull", "the"):
        there = np.unique(texts[corpus.tokens == corpus.words.index(word)])
        share[word] = corpus.labels[there].mean()
    assert 0.55 < share["wonderful"] < 0.95 and 0.05 < share["dull"] < 0.45 and 0.4 < share["the"] < 0.6


def test_too_few():
    with pytest.raises(DataError, match=r"1 reviews\. Give 2 or more"):
        generate_reviews(1)
