"""Fetch what it takes to sort the first rows of an answer: a few pages where these do."""

from __future__ import annotations

from collections.abc import Sequence

from encrypted_records.index.candidates import Candidates
from encrypted_records.index.ordering import Position
from encrypted_records.index.paged import Opened
from encrypted_records.index.resolve import Matches, stretch
from encrypted_records.index.walking import Start, Walk, Walked
from encrypted_records.model.questions import Query
from encrypted_records.proxy.asking import Asking
from encrypted_records.proxy.resolving import Resolved, fill_columns


async def walked(
    asking: Asking,
    query: Query,
    found: Sequence[Resolved],
    *,
    want: int,
    after: Position | None,
) -> list[Candidates]:
    """All rows that can be among the first ``want`` behind ``after``, with what they are sorted by.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`Asking.fill`.
    """
    found = [one for one in found if one.answer.possible]
    outermost, *others = query.order
    name = outermost.field
    start = Start(after.keys[0], after.place) if after else None
    span = stretch(query.where, name, asking.state.ledger.tails, asking.definition)
    walks = {
        one.segment.segment.uid: Walk(
            order=outermost,
            among=one.answer.possible,
            want=want,
            start=start,
            stretch=span,
            alone=not others,
            sequences=asking.view.sequences(one.segment.segment),
        )
        for one in found
    }
    ends: dict[bytes, Walked | None] = {}

    def missing(segment: Opened) -> set[int]:
        uid = segment.segment.uid
        if uid not in ends:
            outcome = walks[uid].through(segment)
            if isinstance(outcome, set):
                return outcome
            ends[uid] = outcome
        return set()

    with asking.cost.stage("fetch_pages"):
        await asking.fill([one.segment for one in found], missing)
    await fill_columns(asking, [one.segment for one in found], [one.field for one in others])
    whole = [one.segment for one in found if ends[one.segment.segment.uid] is None]
    await fill_columns(asking, whole, [name])
    parts = []
    for one in found:
        end = ends[one.segment.segment.uid]
        if end is None:
            parts.append(Candidates.of(one.segment, one.answer, asking.view))
            continue
        answer = Matches(one.answer.certain & end.rows, end.rows)
        parts.append(Candidates.of(one.segment, answer, asking.view, {name: end.coding}))
    return parts
