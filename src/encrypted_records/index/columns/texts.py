"""The distinct keys of a string column as text, for tests of each text.

Keys are joined into chunks of bytes, with a zero byte before each key and after the last; order
bytes never contain a zero. A chunk is searched in one pass over its bytes. Keys that are not the
plain UTF-8 of their texts are left empty in the chunk: keys with an escape are tested individually,
and of long strings only the prefix is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_PREFIX
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.packing import matrix
from encrypted_records.model.texts import TextTest, folded

#: Keys of a chunk: other threads have a turn behind each.
CHUNK = 1 << 14
#: Of more operands, each text is looked up among them.
_FEW = 4

Mask = NDArray[np.bool_]
#: Called from time to time by work that takes long; raises if nobody waits for it.
GoOn = Callable[[], None]


def go_on_always() -> None:
    """A no-op for work that cannot be cancelled."""


class ColumnTexts:
    """Texts of the keys of one segment's column."""

    def __init__(self, keys: Keys) -> None:
        """
        Raises:
            DoesNotOpen: a key holds no text.
        """
        self._chunks = [_Chunk(keys[at : at + CHUNK]) for at in range(0, len(keys), CHUNK)]

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(chunk.size for chunk in self._chunks)

    def test(self, test: TextTest, go_on: GoOn = go_on_always) -> tuple[Mask, Mask]:
        """Masks of the keys whose texts surely pass, and of those that possibly do.

        Args:
            go_on: is called behind each chunk, and raises to end the work.
        """
        certain, possible = [np.zeros(0, np.bool_)], [np.zeros(0, np.bool_)]
        for chunk in self._chunks:
            passed = chunk.test(test)
            certain.append(passed)
            possible.append(passed | chunk.long)
            go_on()
        return np.concatenate(certain), np.concatenate(possible)


class _Joined:
    """Texts between zeros, and where the zeros are."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.zeros = np.flatnonzero(np.frombuffer(data, np.uint8) == 0).astype(np.uint32)

    @property
    def size(self) -> int:
        return len(self.data) + self.zeros.nbytes

    def __len__(self) -> int:
        return len(self.zeros) - 1

    def texts(self) -> list[str]:
        return self.data.decode().split("\0")[1:-1]

    def find(self, before: str, text: str, behind: str) -> Mask:
        """The texts in which ``text`` is, with a zero before or behind it to have it begin or
        end them."""
        found: list[int] = []
        data, end = self.data, int(self.zeros[-1])
        needle = (before + text + behind).encode()
        if "\0" in text:
            return np.zeros(len(self), np.bool_)
        at = data.find(needle)
        while 0 <= at < end:
            found.append(at)
            at = data.find(needle, data.find(b"\0", at + 1))
        return self._mask(np.searchsorted(self.zeros, found, "right") - 1)

    def match(self, pattern: Any) -> Mask:
        """The texts in which a pattern for lines matches; none may have a line break."""
        data = self.data.replace(b"\0", b"\n")
        found: list[int] = []
        at = 1
        while at < len(data) and (match := pattern.search(data, at)) is not None:
            start = match.start()
            if start >= len(data):
                break
            found.append(start)
            at = data.find(b"\n", start) + 1
        return self._mask(np.searchsorted(self.zeros, found, "left") - 1)

    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each text."""
        zeros = self.zeros.astype(np.int64)
        return zeros[1:] - zeros[:-1] - 1

    def _mask(self, indices: NDArray[np.intp]) -> Mask:
        mask = np.zeros(len(self), np.bool_)
        mask[indices] = True
        return mask


class _Chunk:
    def __init__(self, keys: Keys) -> None:
        cells = matrix(keys)
        self.long: Mask = np.any(cells[:, INDEX_KEY_PREFIX:], axis=1)
        cells = cells[:, :INDEX_KEY_PREFIX]
        escaped: Mask = np.any(cells == 1, axis=1)
        # Only these can have a line break in them, too: both are few, as a rule.
        self._single = {
            int(at): values.text_of(bytes(keys[at])) for at in np.flatnonzero(escaped & ~self.long)
        }
        #: the beginnings of long strings, without those that have an escape
        self._begun = {
            int(at): bytes(keys[at])[:INDEX_KEY_PREFIX]
            for at in np.flatnonzero(self.long & ~escaped)
        }
        framed = np.zeros((len(keys), 1 + INDEX_KEY_PREFIX), np.uint8)
        framed[:, 1:] = np.where((self.long | escaped)[:, None], np.uint8(0), cells)
        kept = framed != 0
        kept[:, 0] = True
        self._plain = _Joined(framed[kept].tobytes() + b"\0")
        try:
            self._plain.data.decode()
        except UnicodeDecodeError:
            raise DoesNotOpen("an index key contains no text") from None
        self._empty = np.logical_or(self.long, escaped)
        self._folded: _Joined | None = None

    @property
    def size(self) -> int:
        one_by_one = 100 * (len(self._single) + len(self._begun))
        other = self._folded is not None and self._folded is not self._plain
        alike = self._folded.size if self._folded is not None and other else 0
        return self._plain.size + alike + one_by_one + 2 * len(self._empty)

    def test(self, test: TextTest) -> Mask:
        """A mask of the texts that surely pass."""
        passed = self._passed(self._joined(fold=test.fold), test)
        passed[self._empty] = False
        for at, text in self._single.items():
            passed[at] = test.fits(text)
        if test.how == "contains" and not test.fold:
            needle = test.texts[0].encode()
            for at, begun in self._begun.items():
                passed[at] = needle in begun
        return passed

    def _joined(self, *, fold: bool) -> _Joined:
        if not fold:
            return self._plain
        if self._folded is None:
            data = self._plain.data
            alike = data.lower() if data.isascii() else folded(data.decode()).encode()
            self._folded = self._plain if alike == data else _Joined(alike)
        return self._folded

    def _passed(self, texts: _Joined, test: TextTest) -> Mask:
        first = test.texts[0]
        match test.how:
            case "contains" | "ends_with" if not first:
                return np.ones(len(texts), np.bool_)
            case "contains":
                return texts.find("", first, "")
            case "prefix":
                return texts.find("\0", first, "")
            case "ends_with":
                return texts.find("", first, "\0")
            case "one_of":
                return _one_of(texts, test.texts)
            case "has_words" | "has_phrase":
                return _with_words(texts, test)
            case "near":
                return _near(texts, first, test.within)
            case _:
                return _match(texts, test)


def _one_of(texts: _Joined, wanted: tuple[str, ...]) -> Mask:
    if len(wanted) <= _FEW:
        mask = np.zeros(len(texts), np.bool_)
        for text in wanted:
            mask |= texts.find("\0", text, "\0")
        return mask
    known = set(wanted)
    return np.array([text in known for text in texts.texts()], np.bool_)


def _with_words(texts: _Joined, test: TextTest) -> Mask:
    likely = np.ones(len(texts), np.bool_)
    for word in test.texts:
        likely &= texts.find("", word, "")
    if likely.any():
        every = texts.texts()
        for at in np.flatnonzero(likely).tolist():
            likely[at] = test.passes(every[at])
    return likely


def _near(texts: _Joined, wanted: str, within: int) -> Mask:
    # An edit changes up to four bytes.
    apart = np.abs(texts.lengths() - len(wanted.encode()))
    likely = np.flatnonzero(apart <= 4 * within)
    mask = np.zeros(len(texts), np.bool_)
    if len(likely):
        every = texts.texts()
        choices = [every[at] for at in likely.tolist()]
        (distances,) = process.cdist(
            [wanted], choices, scorer=Levenshtein.distance, score_cutoff=within, dtype=np.int32
        )
        mask[likely] = distances <= within
    return mask


def _match(texts: _Joined, test: TextTest) -> Mask:
    pattern = test.by_line()
    every = texts.texts() if pattern is None or b"\n" in texts.data else []
    if pattern is None:
        return np.array([test.passes(text) for text in every], np.bool_)
    mask = texts.match(pattern)
    for at, text in enumerate(every):
        if "\n" in text:
            mask[at] = test.passes(text)
    return mask
