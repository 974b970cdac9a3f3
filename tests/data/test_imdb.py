import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from pullback.data import Vocabulary, imdb, load_imdb, load_imdb_or_generated
from pullback.data.imdb import read_reviews
from pullback.errors import DataError, DownloadError

REAL = os.environ.get("PULLBACK_DATA")


def texts_of(corpus):
    return [
        " ".join(corpus.words[n] for n in corpus.tokens[begin:end])
        for begin, end in zip(corpus.starts, corpus.starts[1:])
    ]


@pytest.fixture
def folder(tmp_path, reviews):
    """The reviews as files, with some that are none."""
    for name, text in reviews.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "aclImdb/train/pos/notes.txt").write_text("no review")
    (tmp_path / "aclImdb/README").write_text("no review")
    return tmp_path / "aclImdb"


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache" / "pullback" / "data" / "imdb"


def test_what_is_read(write_archive, reviews):
    others = {"aclImdb/README": b"\xff", "aclImdb/train/unsup/0_0.txt": "no label", "aclImdb/imdb.vocab": "a"}
    path = write_archive({**others, **reviews})
    loaded = load_imdb(path)
    assert loaded.name == "IMDB" and loaded.note == f"7 film reviews from {path}"
    assert loaded.corpus.labels.tolist() == [0, 1, 0, 0, 1, 1, 1]
    assert texts_of(loaded.corpus)[:2] == ["a dull film awful", "a good film it wasn't dull"]


def test_the_order_is_that_of_the_names_wherever_they_stand(write_archive, reviews, folder):
    vocabulary = Vocabulary.of_texts(reviews.values())
    expected = vocabulary.encode(reviews.values())
    backwards = write_archive(list(reviews.items())[::-1])
    for source in (backwards, folder):
        found = read_reviews(source)
        np.testing.assert_array_equal(found.encode(found.vocabulary()), expected)
        assert found.labels.tolist() == [0, 1, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("place", [".", "aclImdb"])
def test_the_folder_or_the_one_above(folder, place):
    assert len(load_imdb(folder.parent / place).corpus) == 7


@pytest.mark.parametrize("name", ["aclImdb_v1.tar.gz", "imdb/aclImdb_v1.tar.gz"])
def test_the_folder_of_the_archive(write_archive, reviews, tmp_path, name):
    write_archive(reviews, name)
    assert len(load_imdb(tmp_path).corpus) == 7


def test_the_environment_comes_before_the_cache(write_archive, reviews, tmp_path, monkeypatch, cache):
    write_archive(reviews, "cache/pullback/data/imdb/aclImdb_v1.tar.gz")
    assert load_imdb().note.endswith(str(cache / "aclImdb_v1.tar.gz"))
    write_archive(reviews, "data/imdb/aclImdb_v1.tar.gz")
    monkeypatch.setenv("PULLBACK_DATA", str(tmp_path / "data"))
    assert load_imdb().note.endswith(str(tmp_path / "data/imdb/aclImdb_v1.tar.gz"))


def test_a_given_folder_without_reviews_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"has no aclImdb_v1.tar.gz and no aclImdb/train/pos"):
        load_imdb(tmp_path)


@pytest.mark.parametrize("kind", ["archive", "folder"])
def test_the_words_are_kept_for_the_next_time(write_archive, reviews, folder, cache, kind, monkeypatch):
    source = write_archive(reviews) if kind == "archive" else folder
    lines = []
    first = load_imdb(source, report=lines.append)
    assert lines == [f"reading {source}"] and len(list(cache.iterdir())) == 1
    monkeypatch.setattr(imdb, "read_reviews", None)
    second = load_imdb(source, report=lines.append)
    assert len(lines) == 1
    assert second.corpus.words == first.corpus.words
    for name in ("tokens", "starts", "labels"):
        found, expected = getattr(second.corpus, name), getattr(first.corpus, name)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["archive", "folder"])
def test_changed_files_are_read_anew(write_archive, reviews, folder, kind, cache):
    def write():
        if kind == "archive":
            return write_archive(reviews)
        for name, text in reviews.items():
            (folder.parent / name).write_text(text, encoding="utf-8")
        return folder

    load_imdb(write())
    reviews["aclImdb/train/pos/10_8.txt"] += " indeed"
    assert texts_of(load_imdb(write()).corpus)[-1].endswith("indeed")
    assert len(list(cache.iterdir())) == 1


def _kept(path, monkeypatch):
    """The corpus from the cache; an error if it is not there."""
    with monkeypatch.context() as context:
        context.setattr(imdb, "read_reviews", None)
        return load_imdb(path).corpus


def test_damaged_words_are_written_anew(write_archive, reviews, cache, monkeypatch):
    path = write_archive(reviews)
    expected = texts_of(load_imdb(path).corpus)
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    for damage in (whole[:100], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        kept.write_bytes(damage)
        assert texts_of(load_imdb(path).corpus) == expected
        assert texts_of(_kept(path, monkeypatch)) == expected


def test_a_cache_that_cannot_be_written(write_archive, reviews, tmp_path):
    (tmp_path / "cache").write_bytes(b"in the way")
    lines = []
    assert len(load_imdb(write_archive(reviews), report=lines.append).corpus) == 7
    assert "not kept for the next time" in lines[-1]


def test_a_user_without_a_home(write_archive, reviews, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert len(load_imdb(write_archive(reviews)).corpus) == 7


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("aclImdb/train/pos/1_3.txt", "bad", "1_3.txt has a rating that is not pos"),
        ("aclImdb/train/neg/7_5.txt", "so-so", "7_5.txt has a rating that is not neg"),
        ("aclImdb/train/pos/2_9.txt", b"caf\xe9", "2_9.txt is no UTF-8"),
        ("aclImdb/train/pos/3_9.txt", b"x" * (1 << 20) + b"y", "1,048,577 bytes"),
        ("./aclImdb/train/pos/0_7.txt", "again", r"'train', 'pos', 0, 7\) is there twice"),
    ],
)
def test_reviews_that_are_not_what_they_should_be(write_archive, reviews, name, content, message):
    with pytest.raises(DataError, match=message):
        load_imdb(write_archive([*reviews.items(), (name, content)]))


def test_a_review_in_a_folder_that_is_too_long(folder):
    (folder / "train/pos/3_9.txt").write_bytes(b"x" * (1 << 20) + b"y")
    with pytest.raises(DataError, match="no review is that long"):
        load_imdb(folder)


@pytest.mark.parametrize(
    ("entries", "found"),
    [({"other.txt": "a"}, "none"), ({"aclImdb/train/pos/0_9.txt": "a good film"}, "only pos/")],
)
def test_archives_without_reviews(write_archive, entries, found):
    with pytest.raises(DataError, match=f"expected reviews of both sides.*found {found}"):
        load_imdb(write_archive(entries))


@pytest.fixture
def served(server, write_archive, reviews, monkeypatch):
    """The server as the only home of the small archive."""
    path = write_archive(reviews)
    server.files[f"/{path.name}"] = path.read_bytes()
    monkeypatch.setattr(imdb, "_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(imdb, "_HOMES", (server.home,))
    return server


def test_download(served, cache):
    lines = []
    assert len(load_imdb(report=lines.append).corpus) == 7
    assert lines[0] == f"downloading {served.home}aclImdb_v1.tar.gz"
    assert (cache / "aclImdb_v1.tar.gz").read_bytes() == served.files["/aclImdb_v1.tar.gz"]
    load_imdb()
    assert len(served.requests) == 1


def test_another_archive_is_not_kept(served, cache, monkeypatch):
    monkeypatch.setattr(imdb, "_SHA256", "0" * 64)
    with pytest.raises(DownloadError, match="wrong checksum: expected SHA-256 0000"):
        load_imdb()
    assert not list(cache.iterdir())


def test_no_download_when_it_is_not_allowed(served):
    with pytest.raises(DownloadError, match="no download allowed"):
        load_imdb(download=False)
    assert not served.requests


def test_made_up_reviews_say_what_they_are():
    made_up = load_imdb_or_generated(download=False)
    assert made_up.name == "generated"
    assert "not to be had" in made_up.note and "made-up reviews (no real ones)" in made_up.note
    assert np.bincount(made_up.corpus.labels).tolist() == [2000, 2000]


def test_reviews_that_are_given_or_damaged_are_meant(tmp_path, write_archive):
    with pytest.raises(DataError, match="has no aclImdb"):
        load_imdb_or_generated(tmp_path)
    write_archive({"other.txt": "a"}, "cache/pullback/data/imdb/aclImdb_v1.tar.gz")
    with pytest.raises(DataError, match="expected reviews of both sides"):
        load_imdb_or_generated()


@pytest.mark.skipif(
    not REAL or not Path(REAL, "imdb").is_dir(), reason="PULLBACK_DATA names no folder with imdb/"
)
def test_the_real_thing():
    texts = load_imdb(Path(REAL, "imdb")).split(0)
    assert texts.train.inputs.shape == (40_000, 130) and texts.test.inputs.shape == (10_000, 130)
    assert int(texts.train.labels.sum()) + int(texts.test.labels.sum()) == 25_000
    assert len(texts.vocabulary) == 12_000
    assert texts.vocabulary.words[2:6] == ("the", "and", "a", "of")
    # The sides are mixed in both parts, and few words are unknown.
    assert abs(float(texts.test.labels.mean()) - 0.5) < 0.02
    assert (texts.train.inputs == 1).mean() < 0.06
