"""Text as characters by number, in streams that go on from batch to batch."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pullback.data.dataset import Dataset
from pullback.errors import DataError
from pullback.io.bounded import parse_json

__all__ = ["Alphabet", "character_rows", "character_streams", "read_text"]

Numbers = NDArray[np.int32]

_SHOWN = 8  # characters of an error


class Alphabet:
    """The characters of a text by number, the most frequent first.

    ``alphabet[number]`` is a character, ``len(alphabet)`` how many there are: as many rows has an embedding, and as
    many columns what predicts the next one. Of equally frequent characters those come first that Unicode has first.

    Raises ``DataError`` for what is no string of different characters.

    >>> alphabet = Alphabet.of_text("banana")
    >>> alphabet
    Alphabet(3 characters: 'anb')
    >>> alphabet.encode("ban"), alphabet.decode([2, 0, 1])
    (array([2, 0, 1], dtype=int32), 'ban')
    """

    def __init__(self, characters: str) -> None:
        whole = isinstance(characters, str) and not any("\ud800" <= each <= "\udfff" for each in characters)
        if not whole or not characters or len(set(characters)) < len(characters):
            raise DataError(
                f"[Alphabet] expected a string of different characters, found {characters!r:.60}. "
                "Give each character once."
            )
        self.characters = characters
        self._points = _code_points(characters)
        self._sorted = np.argsort(self._points, kind="stable")

    @classmethod
    def of_text(cls, text: str) -> Alphabet:
        """The alphabet of all characters of ``text``."""
        points, counts = np.unique(_code_points(text), return_counts=True)
        return cls("".join(map(chr, points[np.argsort(-counts, kind="stable")].tolist())))

    def __len__(self) -> int:
        return len(self.characters)

    def __getitem__(self, number: int) -> str:
        return self.characters[number]

    def __contains__(self, character: str) -> bool:
        return character in self.characters

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alphabet) and self.characters == other.characters

    def __hash__(self) -> int:
        return hash(self.characters)

    def __repr__(self) -> str:
        more = "…" if len(self) > 40 else ""
        return f"Alphabet({len(self):,} characters: {self.characters[:40]!r}{more})"

    def encode(self, text: str) -> Numbers:
        """The numbers of the characters of ``text``.

        Raises ``DataError`` for characters that the alphabet does not have, naming them.
        """
        points = _code_points(text)
        ranked = self._points[self._sorted]
        places = np.minimum(np.searchsorted(ranked, points), len(self) - 1)
        foreign = sorted(map(chr, np.unique(points[ranked[places] != points]).tolist()))
        if foreign:
            shown = ", ".join(map(repr, foreign[:_SHOWN])) + (", …" if len(foreign) > _SHOWN else "")
            raise DataError(
                f"[Alphabet.encode] {shown} {'is' if len(foreign) == 1 else 'are'} not among the "
                f"{len(self):,} characters of the text that this alphabet was made of. Leave them out."
            )
        return self._sorted[places].astype(np.int32)

    def decode(self, numbers: Sequence[int] | NDArray[np.integer]) -> str:
        """The text of these numbers."""
        return "".join([self.characters[number] for number in np.asarray(numbers).tolist()])

    def to_json(self) -> str:
        """The characters as JSON text, such as for the metadata of a model's file."""
        return json.dumps(self.characters)

    @classmethod
    def from_json(cls, text: str) -> Alphabet:
        """The alphabet that ``to_json`` wrote; raises ``DataError`` for other text."""
        try:
            return cls(parse_json(text))
        except ValueError as error:
            raise DataError(f"[Alphabet] no JSON that can be read: {error}. Save the model again.") from error


def read_text(path: str | os.PathLike[str]) -> str:
    r"""A text file in UTF-8, its line ends as ``\n``, without a byte order mark.

    Raises ``DataError`` for a file that cannot be read, naming the first byte that is no UTF-8, and for an empty one.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise DataError(
            f"[read_text] cannot read {path}: {error.strerror}. Check the file's name and rights."
        ) from error
    except UnicodeDecodeError:
        raise DataError(f"[read_text] {path} is no UTF-8 text: {_culprit(path)}. Give a text file.") from None
    if not text:
        raise DataError(f"[read_text] {path} is empty. Give a file that has text.")
    return text


def character_streams(numbers: NDArray[np.integer], streams: int, steps: int) -> Dataset:
    """A text as ``streams`` side by side, cut into stretches of ``steps`` characters, for batches in this order.

    Row ``k * streams + s`` is stretch ``k`` of stream ``s``: in batches of ``streams`` rows, not shuffled, each row
    goes on where the same row of the batch before ended. ``inputs`` and ``labels`` have shape (rows, steps); a label
    is the character that follows. Less than one batch is left over at the end of the text.

    Raises ``DataError`` for a text of fewer than ``streams * steps + 1`` characters.

    >>> data = character_streams(np.arange(14), streams=2, steps=3)
    >>> data.inputs.tolist()
    [[0, 1, 2], [6, 7, 8], [3, 4, 5], [9, 10, 11]]
    >>> data.labels[0].tolist(), data.labels[2].tolist()
    ([1, 2, 3], [4, 5, 6])
    """
    batches = (len(numbers) - 1) // (streams * steps)
    if batches < 1:
        raise DataError(
            f"[character_streams] {len(numbers):,} characters are too few for {streams} streams of {steps}, which "
            f"need {streams * steps + 1:,}. Give a longer text, fewer streams or fewer steps."
        )

    def stretches(first: int) -> NDArray[np.integer]:
        whole = numbers[first : first + streams * batches * steps].reshape(streams, batches, steps)
        return np.ascontiguousarray(whole.swapaxes(0, 1)).reshape(-1, steps)

    return Dataset(stretches(0), stretches(1))


def character_rows(numbers: NDArray[np.integer], longest: int) -> Dataset:
    """A text as stretches of equal length, at most ``longest``, each with the characters that follow as labels.

    Raises ``DataError`` for a text of fewer than two characters.

    >>> character_rows(np.arange(8), 3).labels.tolist()
    [[1, 2, 3], [4, 5, 6]]
    """
    return character_streams(numbers, 1, max(1, min(longest, len(numbers) - 1)))


def _code_points(text: str) -> NDArray[np.uint32]:
    # A command's argument may hold halves of characters, which then are among those that are not known.
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.dtype("<u4")).astype(np.uint32)


def _culprit(path: str | os.PathLike[str]) -> str:
    """Where a file stops being UTF-8."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return f"byte {content[error.start]:#04x} at {error.start:,}, in line {line:,}"
    return "its bytes changed while it was read"
