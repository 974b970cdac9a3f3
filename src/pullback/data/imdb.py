"""The Large Movie Review Dataset: 50,000 reviews from IMDB, half of them positive, half negative.

Source: Maas, Daly, Pham, Huang, Ng & Potts, *Learning word vectors for sentiment analysis*, ACL 2011.
A review is the file ``aclImdb/{train,test}/{pos,neg}/ID_RATING.txt``, with a rating of 7 to 10 or of 1 to 4.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.data.corpus import Corpus, CorpusBuilder, Reviews
from pullback.data.download import cache_folder, fetch, folder_lock, make_cache_folder
from pullback.errors import DataError, DownloadError, OutputError
from pullback.io.tensors import load_metadata, load_tensors, save_tensors

__all__ = ["load_imdb", "read_reviews"]

Report = Callable[[str], None]

_HOMES = ("https://ai.stanford.edu/~amaas/data/sentiment/",)
_ARCHIVE = "aclImdb_v1.tar.gz"
_SHA256 = "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"  # of the file, 84,125,825 bytes
_LARGEST_ARCHIVE = 100_000_000
_LARGEST_REVIEW = 1 << 20  # bytes; the longest of the data set has 14,106
_LARGEST_CONTENT = 1_000_000_000  # bytes of an unpacked archive

_ROOT = "aclImdb"
_FOLDERS = tuple(f"{part}/{side}" for part in ("train", "test") for side in ("pos", "neg"))
_REVIEW = re.compile(r"aclImdb/(train|test)/(pos|neg)/(\d{1,9})_(\d{1,2})\.txt")
_KEPT = [("uint8", 1), ("int32", 1), ("int64", 1), ("uint8", 1)]  # words, tokens, starts and labels
_TOKENS = "1"  # to be raised when the tokeniser changes: cached tokens of another one are not used


def load_imdb(
    path: str | os.PathLike[str] | None = None, *, download: bool = True, report: Report | None = None
) -> Reviews:
    """The reviews of the archive or folder ``path``, or wherever they are found; see ``Reviews``.

    ``path`` is the archive ``aclImdb_v1.tar.gz``, the folder ``aclImdb`` that is in it, or a folder that has
    one of them, also under ``imdb/``. Without it they are looked for in ``$PULLBACK_DATA/imdb``, then in the
    cache folder ``$XDG_CACHE_HOME/pullback/data/imdb`` (``~/.cache`` if that is not set), into which the
    archive is downloaded if ``download`` allows it: 84 MB, checked by SHA-256, resumed if it was interrupted.
    ``report`` is given a line before what takes long.

    The archive is read as a stream and never unpacked to the disk. The words of the reviews are kept in the
    cache folder (47 MB), so that the next start takes a fraction of a second; they are read anew when the
    size or the date of a file has changed. Reviews come in one order, whatever the order in the archive.

    Raises ``DataError`` when there are no reviews, or the archive is damaged or hostile, ``DownloadError``
    (a ``DataError``) when they are nowhere and no home delivered them, ``OutputError`` when the cache folder
    cannot be made for the download.
    """
    source = _source(path, download, report)
    corpus = _cached(source, report)
    note = f"{len(corpus):,} film reviews from {source}"
    return Reviews("IMDB", corpus, note)


def read_reviews(source: Path) -> Corpus:
    """The reviews of an archive or of a folder ``aclImdb``, without looking into the cache."""
    builder, keys = CorpusBuilder(), []
    size = sum(size for _, size, _ in _listing(source)) if source.is_dir() else source.stat().st_size
    for name, content in _files(source):
        if (key := _key(source, name)) is None:
            continue
        try:
            builder.add(content.decode())
        except UnicodeDecodeError as error:
            raise DataError(f"[load_imdb] {source}: {name} is no UTF-8 ({error}). Get it again.") from error
        builder.check(f"[load_imdb] {source}: {name}", size)
        keys.append(key)
    sides = {side for _, side, _, _ in keys}
    if len(sides) < 2:
        found = f"only {sides.pop()}/" if sides else "none"
        raise DataError(
            f"[load_imdb] {source}: expected reviews of both sides, {_ROOT}/{{train,test}}/{{pos,neg}}/"
            f"ID_RATING.txt, found {found}. Check that it is the right file."
        )
    order = sorted(range(len(keys)), key=keys.__getitem__)
    for first, second in pairwise(order):
        if keys[first] == keys[second]:
            raise DataError(f"[load_imdb] {source}: the review {keys[first]} is there twice. Get it again.")
    labels = np.array([side == "pos" for _, side, _, _ in keys], np.uint8)
    return builder.corpus(labels, np.array(order))


def _source(path: str | os.PathLike[str] | None, download: bool, report: Report | None) -> Path:
    """The archive or the folder ``aclImdb`` to read."""
    if path is not None:
        given = Path(path).expanduser()
        if given.is_file():
            return given
        if (found := _found(given) or _found(given / "imdb")) is not None:
            return found
        raise DataError(
            f"[load_imdb] {given} has no {_ARCHIVE} and no {_ROOT}/train/pos. "
            "Give the archive or the folder that it holds, or none to have it downloaded."
        )
    named = os.environ.get("PULLBACK_DATA")
    if named and (found := _found(Path(named, "imdb"))) is not None:
        return found
    cache = cache_folder("imdb")
    if (found := _found(cache)) is not None:
        return found
    if not download:
        raise DownloadError(
            f"[load_imdb] no reviews in {cache}, and no download allowed. "
            "Allow it, or let PULLBACK_DATA name a folder that has imdb/."
        )
    make_cache_folder(cache)
    archive = cache / _ARCHIVE
    with folder_lock(cache):
        if not archive.is_file():  # another process may have been at it
            fetch(
                _ARCHIVE, _HOMES, archive, sha256=_SHA256, limit=_LARGEST_ARCHIVE, packed=True, report=report
            )
    return archive


def _found(folder: Path) -> Path | None:
    """The folder with the reviews or the archive that ``folder`` is or has."""
    for candidate in (folder, folder / _ROOT):
        if all((candidate / "train" / side).is_dir() for side in ("pos", "neg")):
            return candidate
    archive = folder / _ARCHIVE
    return archive if archive.is_file() else None


def _files(source: Path) -> Iterator[tuple[str, bytes]]:
    """Name, as in the archive, and content of each file that may be a review."""
    from pullback.data.archive import read_members

    if not source.is_dir():
        yield from read_members(source, largest=_LARGEST_REVIEW, limit=_LARGEST_CONTENT, wanted=_REVIEW)
        return
    for name, size, _ in _listing(source):
        if size > _LARGEST_REVIEW:
            raise DataError(
                f"[load_imdb] {source / name} has {size:,} bytes; no review is that long. Get it again."
            )
        try:
            yield f"{_ROOT}/{name}", (source / name).read_bytes()
        except OSError as error:
            raise DataError(
                f"[load_imdb] cannot read {source / name}: {error.strerror}. Check its rights."
            ) from error


def _listing(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and date of the files of the folders of reviews, in the order of their names."""
    found = []
    for part in _FOLDERS:
        if not (folder / part).is_dir():
            continue
        with os.scandir(folder / part) as entries:
            for entry in entries:
                if entry.is_file():
                    status = entry.stat()
                    found.append((f"{part}/{entry.name}", status.st_size, status.st_mtime_ns))
    return sorted(found)


def _key(source: Path, name: str) -> tuple[str, str, int, int] | None:
    """What a review is sorted by; None for a file that is none."""
    match = _REVIEW.fullmatch(name)
    if match is None:
        return None
    part, side, number, rating = match[1], match[2], int(match[3]), int(match[4])
    if rating not in (range(7, 11) if side == "pos" else range(1, 5)):
        raise DataError(f"[load_imdb] {source}: {name} has a rating that is not {side}. Get it again.")
    return part, side, number, rating


def _cached(source: Path, report: Report | None) -> Corpus:
    """The corpus from the cache if it is that of ``source`` as it is now, else read and put there."""
    state = _state(source)
    try:
        file = cache_folder("imdb") / f"words-{_digest(str(source.resolve()))[:16]}.safetensors"
        if file.is_file() and load_metadata(file).get("state") == state:
            return _restored(file)
    except OutputError:  # a user without a home
        return read_reviews(source)
    except DataError:
        pass  # a damaged file in the cache is written anew
    if report is not None:
        report(f"reading {source}")
    corpus = read_reviews(source)
    words = np.frombuffer("\n".join(corpus.words).encode(), np.uint8)
    tensors: dict[str, NDArray[Any]] = {
        "words": words,
        "tokens": corpus.tokens,
        "starts": corpus.starts,
        "labels": corpus.labels,
    }
    try:
        make_cache_folder(file.parent)
        save_tensors(file, tensors, {"state": state})
    except OutputError as error:
        if report is not None:
            report(f"the words are not kept for the next time: {error}")
    return corpus


def _restored(file: Path) -> Corpus:
    """The corpus that was kept in a file; raises ``DataError`` for one that holds something else."""
    tensors = load_tensors(file)
    try:
        kept, tokens, starts, labels = (tensors[name] for name in ("words", "tokens", "starts", "labels"))
        whole = (
            [(array.dtype.name, array.ndim) for array in (kept, tokens, starts, labels)] == _KEPT
            and np.count_nonzero(kept == ord("\n")) <= len(tokens)  # each word is there once or more
            and len(starts) == len(labels) + 1
            and (starts[0], starts[-1]) == (0, len(tokens))
            and bool((starts[1:] >= starts[:-1]).all())
        )
        words = tuple(kept.tobytes().decode().split("\n")) if whole else ()
    except (KeyError, UnicodeDecodeError) as error:
        raise DataError(f"[load_imdb] no words in {file}: {error!r}. Remove the file.") from error
    if not whole or (len(tokens) and not 0 <= tokens.min() <= tokens.max() < len(words)):
        raise DataError(f"[load_imdb] no words in {file}: its arrays do not fit. Remove the file.")
    return Corpus(words, tokens, starts, labels)


def _state(source: Path) -> str:
    """What changes when the files of ``source`` do, or the way they are read."""
    if source.is_dir():
        files = _listing(source)
    else:
        status = source.stat()
        files = [(source.name, status.st_size, status.st_mtime_ns)]
    return _digest(f"{_TOKENS} {files}")


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()
