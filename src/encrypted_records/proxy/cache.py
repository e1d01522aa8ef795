"""Open segments in memory, within a budget.

Segments are immutable and named by uids that are never reused, so what is here is never stale.
It also keeps questions from the API: a page that is here is not asked for again.
"""

from __future__ import annotations

from collections import OrderedDict

from encrypted_records.index.segments import OpenSegment

DEFAULT_BYTES = 256 << 20


class SegmentCache:
    """Least recently used go first. ``budget`` is in bytes of sealed columns."""

    def __init__(self, budget: int = DEFAULT_BYTES) -> None:
        self._budget = budget
        self._held = 0
        self._segments: OrderedDict[tuple[bytes, bytes], OpenSegment] = OrderedDict()

    def get(self, key_id: bytes, uid: bytes) -> OpenSegment | None:
        """The segment ``uid`` as opened with the schema key ``key_id``."""
        segment = self._segments.get((key_id, uid))
        if segment is not None:
            self._segments.move_to_end((key_id, uid))
        return segment

    def clear(self) -> None:
        self._segments.clear()
        self._held = 0

    def put(self, key_id: bytes, segment: OpenSegment) -> None:
        place = (key_id, segment.segment.uid)
        replaced = self._segments.pop(place, None)
        if replaced is not None:
            self._held -= replaced.size
        self._segments[place] = segment
        self._held += segment.size
        while self._held > self._budget and len(self._segments) > 1:
            _, dropped = self._segments.popitem(last=False)
            self._held -= dropped.size
