from collections import Counter

import numpy as np
import pytest

from pullback import grad
from pullback.data import Corpus
from pullback.errors import DataError
from pullback.train import vectors
from pullback.train.vectors import GloVe, corpus_vectors, count_cooccurrences, glove_loss, train_vectors


def random_texts(seed, words=12, texts=40):
    random = np.random.default_rng(seed)
    return [random.integers(-1, words + 1, size).tolist() for size in random.integers(0, 15, texts)]


def counted_by_hand(texts, words, window):
    """Words outside are left out first; then every pair within the window counts 1/distance."""
    counts = Counter()
    for text in texts:
        known = [word for word in text if 0 <= word < words]
        for k, word in enumerate(known):
            for distance in range(1, min(window, k) + 1):
                other = known[k - distance]
                counts[max(word, other), min(word, other)] += 1 / distance
    return counts


def flat(texts):
    return np.array([word for text in texts for word in text]), np.cumsum([0, *map(len, texts)])


@pytest.mark.parametrize(("piece", "table"), [(7, 1 << 24), (1 << 20, 10), (1 << 20, 1 << 24)])
@pytest.mark.parametrize("window", [1, 4, 10])
def test_counts(monkeypatch, piece, table, window):
    monkeypatch.setattr(vectors, "_LONGEST_PIECE", piece)
    monkeypatch.setattr(vectors, "_LARGEST_TABLE", table)
    texts = random_texts(window)
    expected = counted_by_hand(texts, 12, window)
    found = count_cooccurrences(*flat(texts), 12, window, least=0)
    assert found.pairs.dtype == np.int32 and found.counts.dtype == np.float32
    pairs = [tuple(pair) for pair in found.pairs.tolist()]
    assert len(set(pairs)) == len(pairs) and set(pairs) == set(expected)
    np.testing.assert_allclose(found.counts, [expected[pair] for pair in pairs], rtol=1e-5)


def test_rare_pairs_are_left_out():
    texts = random_texts(3)
    expected = {pair for pair, count in counted_by_hand(texts, 12, 10).items() if count >= 2}
    found = count_cooccurrences(*flat(texts), 12, least=2)
    assert {tuple(pair) for pair in found.pairs.tolist()} == expected and found.counts.min() >= 2


def test_pairs_of_many_words_are_found_again():
    """The row of a pair's place in the table comes from a root."""
    words = 3000
    pairs = np.array([[a, b] for a in range(0, words, 7) for b in (0, 1, a // 2, a - 1, a) if 0 <= b <= a])
    found = count_cooccurrences(pairs.reshape(-1), np.arange(0, pairs.size + 1, 2), words)
    np.testing.assert_array_equal(found.pairs, np.unique(pairs, axis=0))


@pytest.mark.parametrize(
    ("texts", "words", "message"),
    [
        ([[0, 1]], 0, r"0 words. Give 1 to 30,000"),
        ([[0, 1]], 30_001, "30,001 words"),
        ([[0], [1]], 2, "no two words are near each other"),
        ([], 2, "no two words are near each other"),
    ],
)
def test_what_cannot_be_counted(texts, words, message):
    with pytest.raises(DataError, match=message):
        count_cooccurrences(*flat(texts), words)


def test_the_model_and_its_loss_against_numpy():
    random = np.random.default_rng(1)
    model = GloVe(20, 5, seed=2)
    pairs, counts = random.integers(0, 20, (9, 2)), random.uniform(0.5, 200, 9).astype(np.float32)
    w, c, b, d = model.word, model.context, model.word_bias, model.context_bias
    expected = [[w[i] @ c[j] + b[i] + d[j], w[j] @ c[i] + b[j] + d[i]] for i, j in pairs]
    np.testing.assert_allclose(model(pairs), expected, rtol=1e-5, atol=1e-7)
    weights = np.minimum(1, (counts / 100) ** 0.75)
    errors = np.array(expected) - np.log(counts)[:, None]
    np.testing.assert_allclose(
        glove_loss(model(pairs), counts), (weights[:, None] * errors**2).sum() / 9, rtol=1e-5
    )


def test_rows_without_a_pair_have_no_gradient():
    model = GloVe(20, 5, seed=2)
    counts = np.array([3.0, 4.0], np.float32)
    gradient = grad(lambda model: glove_loss(model(np.array([[1, 2], [5, 2]])), counts))(model)
    for array in (gradient.word, gradient.context, gradient.word_bias):
        assert np.flatnonzero(array.reshape(20, -1).any(axis=1)).tolist() == [1, 2, 5]


def test_training_fits_the_counts():
    """Counts that a model of this size made can be fitted: the loss falls to nearly nothing."""
    random = np.random.default_rng(3)
    made = GloVe(30, 4)
    made.word, made.context = random.normal(0, 0.5, (2, 30, 4))
    made.word_bias, made.context_bias = random.normal(0, 0.5, (2, 30))
    pairs = np.array([(a, b) for a in range(30) for b in range(a + 1)], np.int32)
    symmetric = made(pairs).mean(axis=1)
    counted = vectors.CoOccurrences(pairs, np.exp(symmetric).astype(np.float32))
    found, history = train_vectors(counted, 30, dimensions=8, epochs=300, batch_size=31, progress=False)
    assert found.shape == (30, 8) and history["loss"][-1] < 0.01 * history["loss"][0]


def test_seeds_decide_the_vectors():
    corpus = Corpus.of(["a good film", "a bad film", "a good story"] * 5)
    settings = {"dimensions": 3, "epochs": 2, "batch_size": 4, "progress": False}
    first, again, other = (corpus_vectors(corpus, seed=seed, **settings) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[1], other[1])


def test_words_of_the_same_company_are_alike():
    random = np.random.default_rng(4)
    companies = [["sun", "rain", "wind", "snow", "fog"], ["piano", "flute", "drum", "harp", "horn"]]
    texts = [" ".join(random.choice(companies[k % 2], 12)) for k in range(300)]
    lines = []
    words, found, _ = corpus_vectors(
        Corpus.of(texts), dimensions=4, epochs=60, batch_size=16, progress=False, report=lines.append
    )
    assert lines == ["Corpus(300 texts, 3,600 words, 10 different): 30 pairs of 10 words"]
    unit = found / np.linalg.norm(found, axis=1, keepdims=True)
    alike = unit @ unit.T
    side = np.array([word in companies[0] for word in words])
    same = side[:, None] == side
    assert alike[same].min() > alike[~same].max()
