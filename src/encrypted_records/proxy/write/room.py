"""Whether a schema has room for one more segment."""

from __future__ import annotations

from encrypted_records.errors import MergeFirst
from encrypted_records.model.records import MAX_SMALL_SEGMENTS, SMALL_SEGMENT_ROWS
from encrypted_records.proxy.schemas.state import SchemaState


def is_full(state: SchemaState) -> bool:
    """Whether the API takes no more segments of a schema."""
    segments = state.ledger.snapshot().segments
    if len(segments) < MAX_SMALL_SEGMENTS:
        return False
    return sum(segment.count <= SMALL_SEGMENT_ROWS for segment in segments) >= MAX_SMALL_SEGMENTS


def too_many_segments() -> MergeFirst:
    return MergeFirst(
        f"the schema would have more than {MAX_SMALL_SEGMENTS} segments that merging makes fewer,"
        " and each question looks into all of them",
        retry_after=2,
    )
