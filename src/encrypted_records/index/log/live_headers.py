"""The sealed headers of live segments, which the API hands out beside the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from encrypted_records.model.records import SegmentHeader


def keep_live(
    known: Mapping[bytes, SegmentHeader], new: Sequence[SegmentHeader], live: Collection[bytes]
) -> Mapping[bytes, SegmentHeader]:
    """Those of the segments that live; each is checked when its segment is opened.

    ``known`` does not change, since a snapshot may have it.
    """
    if not new and all(uid in live for uid in known):
        return known
    every = {**known, **{one.segment: one for one in new}}
    return {uid: one for uid, one in every.items() if uid in live}
