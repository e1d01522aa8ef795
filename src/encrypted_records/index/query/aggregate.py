"""Exact counts and measures over the matching rows, computed from columns alone.

Records are counted from directories if possible, and without a set of rows.

Memory holds the column of one field and one segment at a time, and the data that measures keep
(:mod:`.tallies`). Sums are of 64-bit offsets, added in halves to avoid overflow, and returned as
integers of any size; averages are rounded once, at the end. Long strings are opened only if the
answer depends on their order or shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyroaring import BitMap

from encrypted_records.errors import InvalidQuery
from encrypted_records.index.columns.dictionary import Codes
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.asking import (
    Asking,
    Work,
    Workspace,
    bring_all_directories,
    bring_by_row,
    bring_columns,
    bring_directories,
    bring_kept,
    bring_together,
)
from encrypted_records.index.query.candidates import (
    BATCH,
    Candidates,
    Matches,
    check_records,
    learn_texts,
    open_rows,
)
from encrypted_records.index.query.choices import COUNT, CountFigures, Way, choose
from encrypted_records.index.query.condition import Condition, Every, Node, fold, only_leaf
from encrypted_records.index.query.key_sets import Texts
from encrypted_records.index.query.leaves import AbsentLeaf, LeafOperator, RangeLeaf, TestLeaf
from encrypted_records.index.query.matching import Matching, SegmentMatches, match_rows
from encrypted_records.index.query.measures import MeasureResults, OrderedKeys, count_shown
from encrypted_records.index.query.ranked_measures import RankedMeasures
from encrypted_records.index.query.row_groups import (
    RowGroups,
    choose_first,
    count_values,
    dictionary_of,
    group_values,
    known_counts,
    read_values,
    too_many_groups,
)
from encrypted_records.index.query.segment_filters import comes_by_row, open_column
from encrypted_records.index.query.tallies import (
    ALL_RANKS,
    DISTINCT_LIMITS,
    ENDS_AND_SUMS,
    RANKS_AND_SUMS,
    DistinctLimits,
    FieldTally,
)
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment, scope
from encrypted_records.index.segments.reading import STANDARD as ALL_AT_ONCE
from encrypted_records.index.segments.reading import ReadingLimits
from encrypted_records.model.aggregations import Aggregation, Count, Measure, Needs
from encrypted_records.model.definition import SchemaDefinition, Value
from encrypted_records.model.predicates import Everything, Predicate
from encrypted_records.model.records import RowRef, Segment


def count_all(space: Workspace, condition: Condition) -> Asking[int]:
    """The number of matching records: from directories if these determine it, otherwise from the
    sets of matching rows.

    Raises:
        InvalidQuery, DoesNotOpen: as :func:`match_rows`.
    """
    count = yield from count_matches(space, condition)
    if count is not None:
        return count
    return sum(map(len, (yield from match_rows(space, condition))))


def count_matches(space: Workspace, condition: Condition) -> Asking[int | None]:
    """The number of matching records if directories determine it, otherwise None. They do for a
    comparison or its negation; with many records also for several joined comparisons, if at most
    one is undecided in each segment, except in a few segments. Dead rows of segments are looked up.

    Raises:
        DoesNotOpen: a page or a column does not open, or a key is not a text.
    """
    if condition.root == Every():
        count: int | None = space.snapshot.count
    elif condition.tests:
        count = yield from _count_tested(space, condition)
    elif _is_folded(space, condition):
        count = yield from _count_compared(space, condition)
    else:
        return None
    space.counted.certain = count or 0
    return count


def _is_folded(space: Workspace, condition: Condition) -> bool:
    """Whether directories give the count, or leave little open: keys decide each comparison, and
    there is a single comparison, or sets of rows would take longer."""
    if not all(leaf.is_exact or isinstance(leaf, AbsentLeaf) for leaf in condition.leaves):
        return False
    total = sum(segment.count for segment in space.snapshot.segments)
    return only_leaf(condition.root)[0] is not None or total > space.sizes.few_rows


def _count_tested(space: Workspace, condition: Condition) -> Asking[int | None]:
    """The count of a test, by its keys; no row of a segment may be dead."""
    snapshot = space.snapshot
    leaf, _ = only_leaf(condition.root)
    if not isinstance(leaf, TestLeaf) or any(
        _dead_in(snapshot, segment) for segment in snapshot.segments
    ):
        return None
    segments = yield from space.open(snapshot.segments)
    yield Work("fetch_pages", long=True)
    yield from bring_together(segments, condition.missing_to_scan)
    counts = yield from Matching(space, condition).count_tested(segments)
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _count_compared(space: Workspace, condition: Condition) -> Asking[int]:
    """The number of records that match comparisons decided by keys. Most segments have all or none
    of their rows in a range of a field that grows with time."""
    snapshot, lookups = space.snapshot, space.sizes.work.lookups
    segments = yield from space.open(snapshot.segments)
    yield Work("fetch_pages", long=condition.values * len(segments) > lookups)
    yield from bring_together(segments, condition.missing_to_find)
    count = 0
    by_ends: dict[bytes, LeafOperator] = {}
    negated: set[bytes] = set()
    by_row: list[tuple[LoadedSegment, RangeLeaf]] = []
    left: list[Segment] = []
    for segment in segments:
        uid = segment.segment.uid
        decided = False if condition.excludes(segment) else fold(condition.root, segment)
        leaf, is_negated = (None, False) if isinstance(decided, bool) else only_leaf(decided)
        if is_negated:
            negated.add(uid)
        match choose(COUNT, _figures(space, segment, decided, leaf)):
            case Way.NONE:
                pass
            case Way.ALL:
                count += segment.segment.count - _dead_in(snapshot, segment.segment)
            case Way.ENDS:
                assert leaf is not None
                by_ends[uid] = leaf
            case Way.ENDS_LESS_DEAD:
                assert isinstance(segment, LoadedSegment)
                assert isinstance(leaf, RangeLeaf)
                by_ends[uid] = leaf
                by_row.append((segment, leaf))
            case _:
                left.append(segment.segment)
    by_ends_segments = [segment for segment in segments if segment.segment.uid in by_ends]
    with scope(*by_ends_segments):
        yield Work("fetch_pages", long=condition.values * len(by_ends_segments) > lookups)
        yield from bring_together(by_ends_segments, lambda segment: _missing_ends(by_ends, segment))
        for segment in by_ends_segments:
            uid = segment.segment.uid
            found = by_ends[uid].count(segment, condition.memo(segment))
            assert found is not None
            count += segment.count - found if uid in negated else found
    for large, compared in by_row:
        dead = snapshot.dead_rows(large.segment)
        matching = len((yield from open_column(space, large, compared)).of(dead))
        # Rows that a merge left out are dead, but not in any column.
        is_negated = large.segment.uid in negated
        count -= _dead_in(snapshot, large.segment) - matching if is_negated else matching
    answers = (yield from Matching(space, condition).find(left)) if left else []
    return count + sum(len(answer.matches.certain) for answer in answers)


def _figures(
    space: Workspace, segment: OpenedSegment, decided: Node | bool, leaf: LeafOperator | None
) -> CountFigures:
    """
    Args:
        leaf: the comparison that is left open, if there is only one.
    """
    dead = _dead_in(space.snapshot, segment.segment) > 0
    return CountFigures(
        decided=decided if isinstance(decided, bool) else None,
        is_alone=leaf is not None,
        dead=dead,
        by_row=(
            dead
            and leaf is not None
            and isinstance(segment, LoadedSegment)
            and comes_by_row(space, segment, leaf)
        ),
    )


def _missing_ends(by_ends: Mapping[bytes, LeafOperator], segment: OpenedSegment) -> set[int]:
    leaf = by_ends[segment.segment.uid]
    return leaf.missing_to_count(segment) if isinstance(segment, LoadedSegment) else set()


def _dead_in(snapshot: Snapshot, segment: Segment) -> int:
    """The dead rows among the indexed rows of a segment."""
    return len(snapshot.dead_rows(segment)) - segment.purged


def count_rows(
    space: Workspace, where: Predicate, answers: Sequence[SegmentMatches]
) -> Asking[int]:
    """The number of matching rows in these answers; rows that the index leaves undecided are
    opened, batch by batch.
    """
    count = sum(len(answer.matches.certain) for answer in answers)
    unsure: list[RowRef] = []
    for answer in answers:
        undecided = Matches(BitMap(), answer.matches.possible - answer.matches.certain)
        part = Candidates.of(answer.segment, undecided, space.snapshot)
        unsure += [space.snapshot.ref(position) for position in part.positions.tolist()]
    alone = len(unsure) > space.most_kept
    for at in range(0, len(unsure), BATCH):
        records = yield from open_rows(unsure[at : at + BATCH], alone=alone)
        count += sum((yield from check_records(space, where, records)))
    return count


@dataclass(frozen=True, slots=True)
class AggregateLimits:
    """Maximum number of ``groups`` of a request, of values that an answer shows in addition to its
    groups' values, and of bytes of distinct values kept per field while it is measured. Up to
    ``left_out`` rows of a segment are looked up, to measure the others by directories."""

    groups: int = 100_000
    shown: int = 200_000
    kept: DistinctLimits = DISTINCT_LIMITS
    left_out: int = 1 << 16


STANDARD = AggregateLimits()


@dataclass(frozen=True, slots=True)
class GroupResults:
    """``values`` are the values of the grouping fields; there is one result per measure."""

    values: tuple[Value, ...]
    results: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Aggregated:
    """``total`` counts all groups; ``groups`` are the first of them."""

    groups: list[GroupResults]
    total: int


def aggregate(
    aggregation: Aggregation,
    definition: SchemaDefinition,
    parts: Sequence[Candidates],
    texts: Texts,
    limits: AggregateLimits = STANDARD,
    reading: ReadingLimits = ALL_AT_ONCE,
    *,
    by_row: bool = True,
) -> Asking[Aggregated | None]:
    """The answer; None if ``texts`` now wants some. The sums of columns stay in their segments, for
    a repeated call.

    Args:
        parts: the matching rows, all certain.
        by_row: whether row-major columns stay in memory for other queries.

    Raises:
        DoesNotOpen: a column that is needed does not open.
        InvalidQuery: too many groups, values to keep or to show, or long strings to open.
    """
    work = _Aggregator(aggregation, definition, texts, limits, reading, by_row)
    parts = [part for part in parts if len(part)]
    # A column may have a key for each row of its segment, even if few rows match.
    rows, keys = sum(map(len, parts)), sum(part.segment.segment.count for part in parts)
    yield Work("measure", rows * len(aggregation.measures) + keys)
    if aggregation.group_by:
        answer = yield from work.measure_groups(parts)
    else:
        answer = yield from work.measure_all(parts)
    return None if texts.wanted else answer


@dataclass(frozen=True, slots=True)
class _Aggregator:
    """Aggregation work. A text that is not known yet is requested from ``texts``, and a placeholder
    is used; the answer is discarded then.
    """

    aggregation: Aggregation
    definition: SchemaDefinition
    texts: Texts
    limits: AggregateLimits
    reading: ReadingLimits
    by_row: bool

    @property
    def _shown(self) -> MeasureResults:
        return MeasureResults(self.definition, self.texts)

    def measure_all(self, parts: Sequence[Candidates]) -> Asking[Aggregated]:

        def add(tallies: Mapping[str, FieldTally]) -> Asking[None]:
            left = dict(tallies)
            for name, tally in tallies.items():
                if self._is_ranked(parts, name, tally):
                    yield from self._ranked(name).add(parts, tally)
                    del left[name]
            for part in parts:
                for name, tally in left.items():
                    yield from self._add_part(part, name, tally)

        tallies = yield from self._accumulate(1, add)
        rows = sum(len(part) for part in parts)
        results = self._shown.results(self.aggregation.measures, tallies, [rows])
        return Aggregated([GroupResults((), tuple(result[0] for result in results))], 1)

    def measure_groups(self, parts: Sequence[Candidates]) -> Asking[Aggregated | None]:
        aggregation = self.aggregation
        fields = dict(zip(aggregation.group_by, aggregation.periods, strict=True))
        groups = RowGroups(self.definition, fields, self.limits.groups)
        for part in parts:
            with scope(part.segment):
                yield from groups.count(part, self.reading)
        if len(groups.counts) > self.limits.groups:
            raise too_many_groups(self.limits.groups)
        members = groups.members
        keys: list[OrderedKeys] = []
        for at, name in enumerate(fields):
            group_keys, positions = groups.keys(name)
            order = np.argsort(group_keys, kind="stable")
            keys.append(OrderedKeys(name, group_keys[order], positions[order]))
            # Convert codes from the order of arrival of keys to the order of keys.
            by_order = np.zeros(len(group_keys) + 1, np.int64)
            by_order[order + 1] = np.arange(1, len(group_keys) + 1)
            members[:, at] = by_order[members[:, at]]
        levels = []
        for at, field in enumerate(keys):
            ranks = field.ranks(members[:, at], self.texts)
            if ranks is None:
                return None
            levels.append(ranks[members[:, at]])
        counts = groups.counts
        by_value = np.empty(len(members), np.int64)
        by_value[np.lexsort(tuple(reversed(levels)))] = np.arange(len(members))
        chosen = choose_first(by_value, counts, aggregation.order, aggregation.limit)
        _refuse_long(
            aggregation.measures, len(chosen), int(counts[chosen].sum()), self.limits.shown
        )
        number = np.full(len(counts), -1)
        number[chosen] = np.arange(len(chosen))

        def add(tallies: Mapping[str, FieldTally]) -> Asking[None]:
            for part in parts if len(chosen) else ():
                yield from self._add_groups(part, groups, number, tallies)

        tallies = yield from self._accumulate(len(chosen), add)
        results = self._shown.results(aggregation.measures, tallies, counts[chosen].tolist())
        shown = [
            GroupResults(
                tuple(
                    self._shown.group_value(key, int(code), period)
                    for key, code, period in zip(keys, codes, aggregation.periods, strict=True)
                ),
                tuple(result[at] for result in results),
            )
            for at, codes in enumerate(members[chosen])
        ]
        return Aggregated(shown, len(members))

    def _accumulate(
        self, groups: int, add: Callable[[Mapping[str, FieldTally]], Asking[None]]
    ) -> Asking[dict[str, FieldTally]]:
        """Accumulate all values that measures need for ``groups`` groups, with ``add``."""
        tallies: dict[str, FieldTally] = {}
        left = self._tallies(groups)
        while left:
            yield from add(left)
            tallies |= left
            left = self._shown.refine(left)
        return tallies

    def _tallies(self, groups: int) -> dict[str, FieldTally]:
        """A tally for each measured field, in the order of their names."""
        by_field: dict[str, list[Measure]] = {}
        for measure in self.aggregation.measures:
            if measure.field is not None:
                by_field.setdefault(measure.field, []).append(measure)
        return {
            name: FieldTally(groups, by_field[name], self.limits.kept) for name in sorted(by_field)
        }

    def _ranked(self, name: str) -> RankedMeasures:
        limits = self.limits.left_out
        return RankedMeasures(self._shown, name, self.reading, self.by_row, limits)

    def _is_ranked(self, parts: Sequence[Candidates], name: str, tally: FieldTally) -> bool:
        """Whether the values of all parts are accumulated together, by rank."""
        ranked = self._ranked(name)
        if Needs.RANKS not in tally.needs or tally.needs not in RANKS_AND_SUMS:
            return False
        if not any(map(ranked.fits, parts)):
            return False
        return all(_has_little(part, name) or ranked.fits(part) for part in parts)

    def _add_part(self, part: Candidates, name: str, tally: FieldTally) -> Asking[None]:
        segment: OpenedSegment = part.segment  # type: ignore[assignment] # of either form
        if isinstance(segment, LoadedSegment) and not segment.has_column(name):
            return  # it is older than the field
        yield from bring_directories(segment, [name])
        known = known_counts(part, name, tally)
        if known is not None:
            tally.add(known)
            return
        ranked = self._ranked(name)
        of_texts = self.definition.fields[name].is_of_texts
        if not of_texts and tally.needs in ENDS_AND_SUMS and ranked.fits(part):
            yield from ranked.add([part], tally)
            return
        with scope(segment):
            if self.by_row:
                yield from bring_by_row(segment, name, self.reading)
            else:
                # Making it row-major for a single query takes more memory, and no less time.
                yield from bring_kept(segment, name)
            dictionary = dictionary_of(part, name)
            if dictionary is not None:
                tally.add(count_values(part, name, dictionary))
            else:
                yield from read_values(part, name, tally, self.reading)

    def _add_groups(
        self, part: Candidates, groups: RowGroups, number: Codes, tallies: Mapping[str, FieldTally]
    ) -> Asking[None]:
        """
        Args:
            number: each group's index among the measured groups, or -1.
        """
        segment: OpenedSegment = part.segment  # type: ignore[assignment] # of either form
        count = int(number.max()) + 1
        with scope(segment):
            part_groups = yield from groups.number(part, self.reading)
            unread = {}
            for name, tally in tallies.items():
                with scope(segment):
                    yield from bring_by_row(segment, name, self.reading)
                    dictionary = dictionary_of(part, name)
                    if dictionary is None:
                        unread[name] = tally
                        continue
                    for rows in part.in_pieces():
                        groups_of = number[part_groups.of_rows(rows)]
                        kept = groups_of >= 0
                        tally.add(
                            group_values(
                                part, dictionary, rows[kept], groups_of[kept], count, tally
                            )
                        )
            if unread:
                assert isinstance(segment, LoadedSegment)
                by_row = np.zeros(segment.covered, np.uint32)
                for rows in part.in_pieces():
                    by_row[rows] = number[part_groups.of_rows(rows)] + 1
                for name, tally in unread.items():
                    yield from read_values(part, name, tally, self.reading, by_row)


def _has_little(part: Candidates, name: str) -> bool:
    """Whether a segment is small, or older than a field."""
    segment = part.segment
    return not isinstance(segment, LoadedSegment) or not segment.has_column(name)


def _refuse_long(measures: Sequence[Measure], groups: int, rows: int, most: int) -> None:
    """
    Args:
        groups, rows: the number of groups that are shown, and of their rows.
        most: maximum number of values shown.

    Raises:
        InvalidQuery: the groups' measures would show more than ``most`` values.
    """
    if sum(count_shown(measure, groups, rows) for measure in measures) > most:
        raise InvalidQuery(
            f"the answer would show more than {most} values",
            code="too_many_values",
            hint="ask for fewer groups, bins or values of a list, or in several requests",
        )


def measure(space: Workspace, condition: Condition, aggregation: Aggregation) -> Asking[Aggregated]:
    """The measures.

    Args:
        condition: of the aggregation.

    Raises:
        InvalidQuery: too many records or groups would be needed.
        DoesNotOpen: a page, a column or a row does not open.
    """
    if not aggregation.group_by and all(measure == Count() for measure in aggregation.measures):
        count = None if condition.tests else (yield from count_matches(space, condition))
        if count is not None:
            return Aggregated([GroupResults((), (count,) * len(aggregation.measures))], 1)
    # A large schema's columns are fetched singly, segment by segment.
    few = space.snapshot.count * len(aggregation.fields) <= space.sizes.few_values
    parts = yield from match_rows(space, condition)
    segments = [part.segment for part in parts if isinstance(part.segment, LoadedSegment)]
    with scope(*segments):
        yield Work("fetch_pages")
        if few and _needs_columns(space, aggregation):
            yield from bring_columns(segments, aggregation.fields, space.sizes)
        yield from bring_all_directories(segments, aggregation.fields)
        texts = space.texts()
        by_row = space.keeps_columns(space.snapshot.count, len(aggregation.fields))
        while True:
            groups = yield from aggregate(
                aggregation,
                space.definition,
                parts,
                texts,
                reading=space.sizes.reading,
                by_row=by_row,
            )
            if groups is not None:
                return groups
            yield from learn_texts(space, texts)


def _needs_columns(space: Workspace, aggregation: Aggregation) -> bool:
    """Whether measured fields need more than directories and a few pages."""
    if aggregation.group_by or not isinstance(aggregation.where, Everything):
        return True
    if not all(measure.needs in ALL_RANKS for measure in aggregation.measures):
        return True
    return any(space.definition.fields[name].is_of_texts for name in aggregation.fields)
