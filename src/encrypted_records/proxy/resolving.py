"""From a condition to the rows that match, and whatever records that takes to decide."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.candidates import Candidates, within
from encrypted_records.index.long_texts import Texts
from encrypted_records.index.paged import Opened
from encrypted_records.index.resolve import Matches, count, missing, missing_to_count, resolve
from encrypted_records.index.view import View
from encrypted_records.model.predicates import And, Or, Predicate, matches
from encrypted_records.model.records import PlainRecord, RowRef, Segment
from encrypted_records.proxy.asking import Asking

#: Rows opened at once.
BATCH = 500


@dataclass(frozen=True, slots=True)
class Resolved:
    """The live rows of one segment that match, as local ordinals."""

    segment: Opened
    answer: Matches

    def within(self, view: View, groups: int) -> Resolved:
        """What of it lies in the first ``groups`` groups of the schema."""
        return Resolved(
            self.segment, within(self.answer, self.segment.segment, view, groups=groups)
        )


async def resolved(
    asking: Asking, where: Predicate, among: Sequence[Segment] | None = None
) -> list[Resolved]:
    """The answer of live segments, from the index alone.

    Args:
        among: some of the live ones; all if None.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`Asking.segments`.
    """
    tails, definition = asking.state.ledger.tails, asking.definition
    with asking.cost.stage("fetch_pages"):
        segments = await asking.segments(
            lambda segment: missing(where, segment, tails, definition), among
        )
    with asking.cost.stage("resolve"):
        found = await asyncio.to_thread(_resolve_all, asking, where, segments)
    certain = sum(len(one.answer.certain) for one in found)
    asking.cost.certain += certain
    asking.cost.unsure += sum(len(one.answer.possible) for one in found) - certain
    return found


async def counted(asking: Asking, where: Predicate) -> int | None:
    """How many records match, where directories tell it: of one comparison or its negation, and
    of segments without dead rows. Else None.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`Asking.segments`.
    """
    view = asking.view
    if isinstance(where, And | Or) or any(
        len(view.dead_rows(segment)) > segment.purged for segment in view.segments
    ):
        return None
    place = (asking.state.ledger.tails, asking.definition)
    with asking.cost.stage("fetch_pages"):
        segments = await asking.segments(lambda one: missing_to_count(where, one, *place))
    counts = [count(where, segment, *place) for segment in segments]
    known = [one for one in counts if one is not None]
    if len(known) < len(counts):
        return None
    asking.cost.certain = sum(known)
    return asking.cost.certain


def _resolve_all(asking: Asking, where: Predicate, segments: Sequence[Opened]) -> list[Resolved]:
    found: list[Resolved] = []
    for segment in segments:
        answer = resolve(where, segment, asking.state.ledger.tails, asking.definition)
        dead: BitMap = asking.view.dead_rows(segment.segment)
        live = Matches(answer.certain - dead, answer.possible - dead)
        if live.possible:
            found.append(Resolved(segment, live))
    return found


async def fill_columns(asking: Asking, segments: Sequence[Opened], fields: Collection[str]) -> None:
    """Bring whole columns of segments whose rows are to be sorted or measured by them."""
    with asking.cost.stage("fetch_pages"):
        await asking.columns(segments, fields)


async def opened(asking: Asking, wanted: Sequence[RowRef]) -> list[PlainRecord]:
    """The rows in the order asked for."""
    with asking.cost.stage("fetch_rows"):
        return await asking.rows(wanted)


async def count_unsure(asking: Asking, where: Predicate, unsure: Sequence[RowRef]) -> int:
    """How many of these rows match once they are opened; no more than a batch is held."""
    count = 0
    for at in range(0, len(unsure), BATCH):
        records = await opened(asking, unsure[at : at + BATCH])
        count += sum(matches(where, record.data, asking.definition) for record in records)
    return count


async def learn_texts(asking: Asking, texts: Texts) -> None:
    """Open one record for every long string that is wanted."""
    wanted = list(texts.wanted.items())
    for at in range(0, len(wanted), BATCH):
        some = wanted[at : at + BATCH]
        records = await opened(asking, [asking.view.ref(place) for _, place in some])
        for ((field, key), _), record in zip(some, records, strict=True):
            spec = asking.definition.fields[field]
            tail = asking.state.ledger.tails.field(spec).tail
            texts.answer(field, key, record.data.get(field), tail)


async def matching(
    asking: Asking, where: Predicate, fields: Collection[str] = ()
) -> list[Candidates]:
    """The rows that match; of those that the index leaves undecided, the records are opened.

    Args:
        fields: whose columns are needed of their segments.
    """
    answers = await resolved(asking, where)
    await fill_columns(asking, [one.segment for one in answers], fields)
    parts = [Candidates.of(one.segment, one.answer, asking.view) for one in answers]
    return [await _certain(asking, where, part) for part in parts]


async def _certain(asking: Asking, where: Predicate, part: Candidates) -> Candidates:
    unsure = np.flatnonzero(~part.certain)
    if not len(unsure):
        return part
    kept = part.certain.copy()
    for at in range(0, len(unsure), BATCH):
        some = unsure[at : at + BATCH]
        kept[some] = await _decided(asking, where, part.places[some].tolist())
    return part.only(kept)


async def _decided(asking: Asking, where: Predicate, places: Sequence[int]) -> NDArray[np.bool_]:
    records = await opened(asking, [asking.view.ref(place) for place in places])
    return np.array([matches(where, record.data, asking.definition) for record in records])
