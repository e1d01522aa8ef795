"""The answer to an aggregate: match -> bring what is measured -> measure, as a question."""

from __future__ import annotations

from encrypted_records.index.query.aggregate import Aggregated, GroupResults, aggregate
from encrypted_records.index.query.asking import Asking, Work
from encrypted_records.index.query.bringing import bring_all_directories, bring_columns
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.counting import count_matches
from encrypted_records.index.query.matching import match_rows
from encrypted_records.index.query.records import learn_texts
from encrypted_records.index.query.tallies import ALL_RANKS
from encrypted_records.index.query.workspace import Workspace
from encrypted_records.index.segments.loaded import LoadedSegment, scope
from encrypted_records.model.aggregations import Aggregation, Count
from encrypted_records.model.predicates import Everything


def measure(space: Workspace, condition: Condition, aggregation: Aggregation) -> Asking[Aggregated]:
    """The measures.

    Args:
        condition: that of the aggregation.

    Raises:
        InvalidQuery: it would take too many records or groups.
        DoesNotOpen: a page, a column or a row does not open.
    """
    if not aggregation.group_by and all(measure == Count() for measure in aggregation.measures):
        count = None if condition.tests else (yield from count_matches(space, condition))
        if count is not None:
            return Aggregated([GroupResults((), (count,) * len(aggregation.measures))], 1)
    # A large schema's columns are brought one at a time, segment by segment.
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
    """Whether more than directories and a few pages is needed of the fields that are measured."""
    if aggregation.group_by or not isinstance(aggregation.where, Everything):
        return True
    if not all(measure.needs in ALL_RANKS for measure in aggregation.measures):
        return True
    return any(space.definition.fields[name].is_of_texts for name in aggregation.fields)
