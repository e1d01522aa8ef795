"""The values that some rows have in a field, for a semi-join: what is read out of their column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.dictionary import ColumnDictionary
from encrypted_records.index.ordinals import Ordinals, mask_of
from encrypted_records.index.query.asking import Asking, Work
from encrypted_records.index.query.bringing import ask_for, bring_by_row
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.field_rows import dictionary_of
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.matching import Matching
from encrypted_records.index.query.members import are_long, join_keys
from encrypted_records.index.query.records import keep_matching, learn_texts
from encrypted_records.index.query.workspace import Workspace
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment, scope
from encrypted_records.index.segments.reading import (
    STANDARD,
    ReadingLimits,
    Window,
    WindowEntries,
    read_column,
)
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.predicates import refuse_join

#: Bytes of the values of one semi-join.
MOST_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """The distinct values of a field in ``rows`` rows: sorted keys, and long strings as texts."""

    keys: Keys
    long: frozenset[str]
    rows: int


def collect_values(
    space: Workspace, condition: Condition, spec: FieldSpec, pointer: str, *, stored: int
) -> Asking[DistinctValues]:
    """The values of a field in the records that match, among the first ``stored`` rows.

    Args:
        pointer: leads to the semi-join in the question.

    Raises:
        InvalidQuery: ``too_many_long``; or the values take too much memory.
        DoesNotOpen: a page, a column or a row does not open.
    """
    texts = space.texts()
    parts: list[Keys] = []
    wanted: set[bytes] = set()
    rows = size = 0
    for matched in (yield from Matching(space, condition).find()):
        answer = matched.within(space.snapshot, stored)
        part = Candidates.of(answer.segment, answer.matches, space.snapshot)
        part = yield from keep_matching(space, condition.predicate, part)
        # One segment's column at a time is in memory beyond the cache.
        with scope(answer.segment):
            keys, long = yield from list_values(part, spec.name, texts, space.sizes.reading)
        rows += len(part)
        size += sum(some.nbytes for some in keys)
        if size > MOST_BYTES:
            detail = f"the values take more than {MOST_BYTES >> 20} MiB: narrow the condition"
            raise refuse_join("too_many_values", detail, pointer)
        parts += keys
        wanted |= long
    yield from learn_texts(space, texts)
    known = (texts.get(spec.name, key) for key in wanted)
    yield Work(None, long=True)
    return DistinctValues(join_keys(parts, spec), frozenset(text for text in known if text), rows)


def list_values(
    part: Candidates, field: str, texts: Texts, limits: ReadingLimits = STANDARD
) -> Asking[tuple[list[Keys], set[bytes]]]:
    """The keys that some rows have, sorted in each list, and apart from them those of long strings,
    whose texts are now wanted.

    Raises:
        InvalidQuery: ``too_many_long``.
        DoesNotOpen: the column does not open.
    """
    segment: OpenedSegment = part.segment  # type: ignore[assignment] # of either form
    yield Work("measure", segment.segment.count)
    yield from bring_by_row(segment, field, limits)
    dictionary = dictionary_of(part, field)
    found = _Found(part, field, texts)
    if isinstance(dictionary, ColumnDictionary):
        counts = part.counts(field)[1:]
        row_of = np.zeros(len(counts), np.uint32)
        if dictionary.long:
            for rows in part.in_pieces():
                codes = dictionary.codes_of(rows)
                row_of[codes[codes > 0] - 1] = rows[codes > 0]
        found.take(dictionary.keys, counts > 0, row_of)
        return found.keys, found.long
    assert isinstance(segment, LoadedSegment)
    wanted = mask_of(part.matches.possible, segment.covered)

    def take(window: Window) -> None:
        entries = WindowEntries(segment, field, window)
        at = np.flatnonzero(wanted[entries.ordinals])
        key_of = entries.key_of_entries()[at]
        row_of = np.zeros(len(entries.keys), np.uint32)
        row_of[key_of] = entries.ordinals[at]
        held = np.zeros(len(entries.keys), np.bool_)
        held[key_of] = True
        order = np.argsort(entries.keys, kind="stable")
        found.take(entries.keys[order], held[order], row_of[order])

    yield from ask_for(segment, read_column(segment, field, take, limits))
    return found.keys, found.long


class _Found:
    def __init__(self, part: Candidates, field: str, texts: Texts) -> None:
        self._part, self._field, self._texts = part, field, texts
        self.keys: list[Keys] = []
        self.long: set[bytes] = set()

    def take(self, keys: Keys, held: NDArray[np.bool_], row_of: Ordinals) -> None:
        """
        Args:
            held: which of the keys some row has.
            row_of: such a row of each.
        """
        long: NDArray[np.bool_] = held & are_long(keys)
        places = self._part.places
        for at in np.flatnonzero(long).tolist():
            key = bytes(keys[at])
            self._texts.want(self._field, key, places.position(int(row_of[at])))
            self.long.add(key)
        self.keys.append(keys[held & ~long])
