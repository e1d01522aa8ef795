"""Rows that have some words, from the column of a field's words.

Rows whose words the column does not list are possible, and so are those that have all words of a
phrase: the records say more.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap

from encrypted_records.crypto import values
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.columns.key_range import KeyRange, alike
from encrypted_records.index.columns.words import UNDECIDED
from encrypted_records.index.ordinals import bitmap
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.text_tests import TextTest
from encrypted_records.model.word_columns import words_spec


@dataclass(frozen=True, slots=True)
class WordLookup:
    """``column`` names the column; ``words`` are the keys of each word. ``exact`` says that a row
    which has them all passes."""

    column: str
    words: tuple[KeyRange, ...]
    exact: bool

    @classmethod
    def of(cls, test: TextTest, spec: FieldSpec, tails: SchemaKey) -> WordLookup:
        """
        Args:
            spec: the field, whose words are indexed.
            tails: as for :meth:`.plan.Plan.of`.
        """
        own = words_spec(spec)
        tail = tails.field(own).tail
        keys = [values.word_key(word, tail) for word in dict.fromkeys(test.texts)]
        return cls(own.name, tuple(map(alike, keys)), test.how == "has_words")

    def missing(self, segment: PagedSegment) -> set[int]:
        """The pages without which :meth:`find` has no answer; the column's directory is here."""
        if not segment.has_column(self.column):
            return set()
        column = segment.lookup(self.column)
        return set().union(*(column.missing_for(one) for one in (*self.words, UNDECIDED)))

    def find(self, segment: OpenedSegment) -> tuple[BitMap, BitMap]:
        """The rows that certainly pass, and those that possibly do.

        Raises:
            DoesNotOpen: the column does not open.
        """
        if not segment.has_column(self.column):
            return BitMap(), segment.everything
        every = [_rows(segment, self.column, one) for one in self.words]
        having: BitMap = BitMap.intersection(*every)
        possible = having | _rows(segment, self.column, UNDECIDED)
        return (having if self.exact else BitMap()), possible


def _rows(segment: OpenedSegment, name: str, keys: KeyRange) -> BitMap:
    column = segment.lookup(name)
    if not column.present:
        return BitMap()
    first, last = column.at_all(list(keys))
    return bitmap(*column.pieces(first, last)) if first < last else BitMap()
