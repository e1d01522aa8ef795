"""A page of a search: match -> sort -> rows -> check, as a generator that yields the data it lacks.

Rows are returned in the query's order, or else in storage order. A cursor names the last row
returned and the newest group of the first page's snapshot, so that later pages neither repeat nor
skip rows while other writers store more. It contains no value: the position of its row in a sorted
order is read from the row itself.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import msgspec

from encrypted_records.errors import DoesNotOpen, Flaw, InvalidQuery, NotFound
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.aggregate import count_matches, count_rows
from encrypted_records.index.query.asking import Asking, Work, Workspace, bring_all_directories
from encrypted_records.index.query.candidates import check_records, open_rows
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.key_sets import Texts
from encrypted_records.index.query.matching import Matching, SegmentMatches
from encrypted_records.index.query.segment_filters import UnreadSegment, find_sorted
from encrypted_records.index.query.sort import SortedRows, SortPosition, locate_record
from encrypted_records.index.query.top_k import take_first
from encrypted_records.model.predicates import Absent, And, Not, Predicate
from encrypted_records.model.queries import Query, Rank
from encrypted_records.model.records import PlainRecord, RowRef, Segment


class Cursor(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The last row returned, and the number of stored rows at the time of the first page: in the
    schema itself, and in the schema of each semi-join. ``question`` is the result of
    :meth:`UidKey.of_question` for the search."""

    position: int
    stored: int
    joined: tuple[int, ...] = ()
    question: bytes = b""


def encode_cursor(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode()


def decode_cursor(text: str, snapshot: Snapshot, question: bytes, joins: int = 0) -> Cursor:
    """
    Args:
        question: as in :class:`Cursor`.
        joins: the number of semi-joins of the query.

    Raises:
        InvalidQuery: it is not a cursor of this query.
    """
    cursor = _decode(text)
    if cursor is None or not hmac.compare_digest(cursor.question, question):
        detail = "expected the next_cursor of an earlier answer to this question"
    elif not snapshot.has(cursor.position) or len(cursor.joined) != joins:
        detail = "expected the next_cursor of an earlier answer"
    else:
        return cursor
    raise InvalidQuery(
        detail,
        hint=(
            "keep schema, where, filters and order_by the same for all pages, or begin"
            " without a cursor"
        ),
        flaws=(Flaw("cursor", detail, "/cursor"),),
    )


def joined_of(text: object) -> tuple[int, ...]:
    """The number of rows that each semi-join of a query considers; empty if its cursor has no such
    numbers.

    :func:`decode_cursor` checks whether it is a cursor.
    """
    cursor = _decode(text) if isinstance(text, str) else None
    return () if cursor is None else cursor.joined


def _decode(text: str) -> Cursor | None:
    try:
        cursor = msgspec.msgpack.decode(base64.urlsafe_b64decode(text.encode()), type=Cursor)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        return None
    return cursor if min(cursor.stored, *cursor.joined, 0) >= 0 else None


#: Rows of the segments that are searched first, if the oldest matching rows are enough.
FIRST_ROWS = 1 << 18
#: Maximum number of fields whose absent values may be at another end than in the index: each
#: doubles the queries.
_MOST_SPLIT = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row that may match; ``certain`` if it certainly does."""

    position: int
    ref: RowRef
    certain: bool


#: Candidates that match, each with its record.
Found = list[tuple[Candidate, PlainRecord]]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for one page of a query: after ``start``, among the first ``stored`` rows of the
    schema. ``later``: the client's page begins further on, although this request includes the rows
    before it.
    """

    space: Workspace
    query: Query
    condition: Condition
    start: Cursor | None
    stored: int
    later: bool = False

    @property
    def wanted(self) -> int:
        """The page size plus one, because the extra row shows whether there is a next page; 0 for a
        page without rows.
        """
        return self.query.limit + 1 if self.query.limit else 0

    def find(
        self,
        among: Sequence[Segment] | None = None,
        *,
        decide: bool = True,
        first: int | None = None,
    ) -> Asking[list[SegmentMatches]]:
        """Find rows like :meth:`Matching.find`, among the first ``stored`` rows of the schema."""
        matching = Matching(self.space, self.condition)
        answers = yield from matching.find(among, decide=decide, first=first)
        yield Work(None)
        return [answer.within(self.space.snapshot, self.stored) for answer in answers]


def find_page(
    request: PageRequest, first_rows: int = FIRST_ROWS
) -> Asking[tuple[int | None, Found]]:
    """The count, if requested, and the rows of a page, with an extra row if there is a next page.

    Args:
        first_rows: rows of the segments that are searched first, if the oldest matching rows are
            enough.

    Raises:
        InvalidQuery: ``too_many_long``, or ``cursor_gone``.
        DoesNotOpen: a page, a column or a row does not open.
    """
    query = request.query
    count = yield from _count_from_directories(request)
    if query.order:
        return (yield from _find_sorted(request, count))
    if query.count and count is None:
        return (yield from _find_counted(request))
    if query.limit or not query.count:
        return count, (yield from _find_oldest(request, first_rows))
    return count, []


def find_top(
    space: Workspace, where: Predicate, ranks: Sequence[Rank], want: int, *, later: bool
) -> Asking[list[PlainRecord]]:
    """The first ``want`` matching records, and possibly some later records. The order may put
    absent values at either end.

    The index has absent values first, or last if it descends. If the order wants the other end, the
    first records with a value and the first without are found separately: the first of all are
    among these, because both lists are sorted.

    Args:
        later: as for :class:`PageRequest`.

    Raises:
        InvalidQuery: too many fields lack values; or as :func:`find_page`.
        DoesNotOpen: as :func:`find_page`.
    """
    split = yield from _find_misplaced(space, ranks)
    if len(split) > _MOST_SPLIT:
        raise InvalidQuery(
            f"the order has more than {_MOST_SPLIT} fields whose absent values would be elsewhere",
            flaws=(Flaw("order_by", "too many fields lack values", "/order_by"),),
        )
    return (yield from _find_apart(space, (where,), ranks, split, want, later=later))


def _find_apart(
    space: Workspace,
    conditions: Sequence[Predicate],
    ranks: Sequence[Rank],
    split: Sequence[Rank],
    want: int,
    *,
    later: bool,
) -> Asking[list[PlainRecord]]:
    """Like :func:`find_top`; ``split`` are the misplaced fields of ``ranks``."""
    if not split:
        where = conditions[0] if len(conditions) == 1 else And(tuple(conditions))
        order = tuple(rank.key for rank in ranks)
        query = Query(where, order, None, want, None, count=False)
        condition = Condition.of(where, space.tails, space.definition, space.texts())
        request = PageRequest(space, query, condition, None, space.snapshot.stored, later)
        _, found = yield from find_page(request)
        return [record for _, record in found[:want]]
    rank, *later_ranks = split
    lacking = Absent(rank.key.field)
    records: list[PlainRecord] = []
    for absent in (rank.absent_first, not rank.absent_first):
        # Records without a value are equal in this field.
        left = [other for other in ranks if not (absent and other is rank)]
        part = (*conditions, lacking if absent else Not(lacking))
        records += yield from _find_apart(space, part, left, later_ranks, want, later=later)
        if rank is ranks[0] and len(records) >= want:
            break  # the remaining records come after these
    return records


def _find_misplaced(space: Workspace, ranks: Sequence[Rank]) -> Asking[list[Rank]]:
    """The fields that records may lack, and whose absent values the order wants at the other end
    than the index."""
    others = [rank for rank in ranks if rank.absent_first == rank.key.descending]
    if not others:
        return []
    segments = yield from space.open(space.snapshot.segments)
    names = [rank.key.field for rank in others]
    yield from bring_all_directories(segments, names)
    return [
        rank
        for rank in others
        if any(segment.lookup(rank.key.field).absent for segment in segments)
    ]


# --- one function for each way to find them -----------------------------------------------------


def _count_from_directories(request: PageRequest) -> Asking[int | None]:
    """The requested count, if directories give it faster than the set of all matching rows; else
    None."""
    query, space = request.query, request.space
    if not query.count or request.stored < space.snapshot.stored:
        return None
    if query.limit:
        # The first request fetches the rows of a small schema. Tests are not made twice.
        total = sum(segment.count for segment in space.snapshot.segments)
        if total <= space.sizes.few_rows or request.condition.tests:
            return None
    return (yield from count_matches(space, request.condition))


def _find_sorted(request: PageRequest, count: int | None) -> Asking[tuple[int | None, Found]]:
    """Find rows in the order of fields, which needs all segments."""
    query, space = request.query, request.space
    if query.count and count is None:
        answers = yield from request.find()
        count = yield from count_rows(space, query.where, answers)
        return count, (yield from _take_sorted(request, answers))
    if query.count and not query.limit:
        return count, []
    found = yield from find_sorted(space, request.condition, query.order, request.stored)
    return count, (yield from _take_sorted(request, found))


def _find_counted(request: PageRequest) -> Asking[tuple[int | None, Found]]:
    """Find rows in storage order with a count, which needs all segments."""
    answers = yield from request.find()
    count = yield from count_rows(request.space, request.query.where, answers)
    candidates = scan_stored(answers, request.space.snapshot, request.start)
    yield from _leave_out(request, candidates, request.query.offset, None)
    rows = yield from _take(request, candidates, request.wanted, None)
    assert rows is not None
    return count, rows


def _find_oldest(request: PageRequest, first_rows: int) -> Asking[Found]:
    """Find rows in storage order, without the segments after those that have enough rows."""
    if request.condition.tests or request.condition.by_words:
        # If a test of long strings passes often, the first strings are enough.
        rows = yield from _take_oldest(request, first_rows, decide=False)
        if rows is not None:
            return rows
        request = replace(request, condition=request.condition.with_texts())
    rows = yield from _take_oldest(request, first_rows, decide=True)
    assert rows is not None
    return rows


def _take_oldest(request: PageRequest, first_rows: int, *, decide: bool) -> Asking[Found | None]:
    """The rows; None if ``decide`` is false and too many non-matching records would have to be
    opened."""
    space, start = request.space, request.start
    rows: Found = []
    left = request.query.offset
    limit = None if decide else space.counted.rows + space.most_opened
    for segments in space.snapshot.by_age(after=start.position if start else 0, rows=first_rows):
        if len(rows) == request.wanted:
            break
        # After a cursor the first rows are others; and EXPLAIN counts all rows.
        enough = left + request.wanted - len(rows)
        first = enough if start is None and not space.is_explained else None
        answers = yield from request.find(segments, decide=decide, first=first)
        candidates = scan_stored(answers, space.snapshot, start)
        gone = yield from _leave_out(request, candidates, left, limit)
        if gone is None:
            return None
        left -= gone
        taken = yield from _take(request, candidates, request.wanted - len(rows), limit)
        if taken is None:
            return None
        rows += taken
    return rows


# --- in the order in which rows were stored -----------------------------------------------------


def scan_stored(
    answers: Sequence[SegmentMatches], snapshot: Snapshot, after: Cursor | None
) -> Iterator[Candidate]:
    """Candidates in storage order, after the cursor's row."""
    last = after.position if after else -1
    scans = (_scan_segment(answer, snapshot, last) for answer in answers)
    return heapq.merge(*scans, key=lambda found: found.position)


def _scan_segment(answer: SegmentMatches, snapshot: Snapshot, last: int) -> Iterator[Candidate]:
    places = snapshot.places(answer.segment.segment)
    for position, row in places.in_order(answer.matches.possible, after=last):
        yield Candidate(position, snapshot.ref(position), row in answer.matches.certain)


def _take(
    request: PageRequest, candidates: Iterator[Candidate], wanted: int, limit: int | None
) -> Asking[Found | None]:
    """The first ``wanted`` candidates that match, opened and checked; None once the query has
    opened ``limit`` records and that was not enough."""
    rows: Found = []
    while batch := list(islice(candidates, wanted - len(rows))):
        if limit is not None and request.space.counted.rows >= limit:
            return None
        rows += yield from take_candidates(request.space, request.condition.predicate, batch)
    return rows


def _leave_out(
    request: PageRequest,
    candidates: Iterator[Candidate],
    count: int,
    limit: int | None,
    *,
    ranked: bool = False,
) -> Asking[int | None]:
    """Take the first ``count`` matching candidates, or all if there are fewer; returns how many
    were taken. Certain matches are not opened. ``limit`` and None as for :func:`_take`.
    """
    left = count
    while left and request.wanted and (batch := list(islice(candidates, left))):
        if limit is not None and request.space.counted.rows >= limit:
            return None
        unsure = [row for row in batch if not row.certain]
        records = yield from open_rows([row.ref for row in unsure], ranked=ranked)
        fits = yield from check_records(request.space, request.condition.predicate, records)
        left -= len(batch) - len(unsure) + sum(fits)
    return count - left


def take_candidates(
    space: Workspace,
    where: Predicate,
    candidates: Sequence[Candidate],
    *,
    alone: bool = False,
    ranked: bool = False,
) -> Asking[Found]:
    """The candidates that match, with their records; the rest as for :class:`Rows`.

    Raises:
        DoesNotOpen: as :func:`check_candidates`.
    """
    refs = [candidate.ref for candidate in candidates]
    records = yield from open_rows(refs, alone=alone, ranked=ranked)
    return (yield from check_candidates(space, where, candidates, records))


def check_candidates(
    space: Workspace,
    where: Predicate,
    candidates: Sequence[Candidate],
    records: Sequence[PlainRecord],
) -> Asking[Found]:
    """The candidates that match, with their records.

    Raises:
        DoesNotOpen: a candidate that certainly matches does not match.
    """
    rows: Found = []
    fits = yield from check_records(space, where, records)
    for candidate, record, fit in zip(candidates, records, fits, strict=True):
        if fit:
            rows.append((candidate, record))
        elif candidate.certain:
            raise DoesNotOpen("the index and a record contradict each other")
    return rows


# --- in the order of fields ---------------------------------------------------------------------


def _take_sorted(
    request: PageRequest, answers: Sequence[SegmentMatches | UnreadSegment]
) -> Asking[Found]:
    space, query, start = request.space, request.query, request.start
    texts = space.texts()
    after: SortPosition | None = None
    if start and request.wanted:
        after = yield from _locate_start(request, start, texts)
    rows: Found = []
    left = query.offset
    # Only the first page's rows are fetched like those of any search. Fetching page after page that
    # way would reveal the order.
    ranked = request.later or start is not None or left > 0
    while len(rows) < request.wanted:
        want = left + request.wanted - len(rows)
        page = yield from take_first(
            space, query, request.condition, answers, texts, want=want, after=after, ranked=ranked
        )
        yield Work(None)
        candidates = list_candidates(space.snapshot, page)
        left -= (yield from _leave_out(request, candidates, left, None, ranked=ranked)) or 0
        batch = list(candidates)
        many = ranked or len(batch) > space.most_hidden
        rows += yield from take_candidates(space, query.where, batch, ranked=many)
        if len(page) < want:
            break
        after, ranked = page.sort_position(-1), True
    return rows


def list_candidates(snapshot: Snapshot, rows: SortedRows) -> Iterator[Candidate]:
    for position, certain in zip(rows.positions.tolist(), rows.certain.tolist(), strict=True):
        yield Candidate(position, snapshot.ref(position), certain)


def _locate_start(request: PageRequest, start: Cursor, texts: Texts) -> Asking[SortPosition]:
    space = request.space
    try:
        (record,) = yield from open_rows([space.snapshot.ref(start.position)], ranked=True)
    except NotFound as error:
        if error.reason != "row_gone":
            raise
        detail = "the last row of the previous page was deleted since, and cannot be found"
        raise InvalidQuery(
            detail,
            code="cursor_gone",
            hint="begin with the first page again",
            flaws=(Flaw("cursor_gone", detail, "/cursor"),),
        ) from None
    return locate_record(
        record, start.position, request.query.order, space.tails, space.definition, texts
    )
