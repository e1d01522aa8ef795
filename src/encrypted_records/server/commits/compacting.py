"""Groups that become one while their segment stays (docs/SPEC.md, section 7.7.2).

Under the schema's lock. Where a group lies in its segment is stored nowhere: the commits say it.
"""

from __future__ import annotations

from collections.abc import Container

from encrypted_records.model import wire
from encrypted_records.model.records import Commit, CommitBody
from encrypted_records.server.commits.checks import require
from encrypted_records.server.commits.standing import Standing, not_live
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.records import store
from encrypted_records.server.records.models import CommitLog, IndexSegment, RecordGroup


def find_standing(schema: Schema, body: CommitBody) -> Standing:
    """The groups that a compaction's group replaces, row by row.

    Raises:
        BadInput: ``invalid_commit``; it stands for groups that do not follow one another in one
            segment, or as :class:`Standing`.
        Conflict: ``group_not_live``; as :class:`Standing`.
    """
    ended = {
        bytes(group.uid): group
        for some in store.cut(body.ended)
        for group in RecordGroup.objects.filter(
            schema=schema, uid__in=some, staging=None, ended_at=None
        )
    }
    if len(ended) != len(body.ended):
        raise not_live("a group that the commit ends is not live")
    homes = {group.segment_id for group in ended.values() if group.segment_id is not None}
    require(len(homes) == 1, "a commit ends groups of several segments that stay")
    segment = IndexSegment.objects.defer("header").get(pk__in=homes)
    bases = _Bases(schema, segment)
    at = bases.of(ended[body.ended[0]])
    for uid in body.ended:
        require(
            bases.of(ended[uid]) == at,
            "a group would stand for groups that are no neighbours in a segment",
        )
        at += ended[uid].count
    return Standing(body, list(ended.values()), segment.pk)


class _Bases:
    """First ordinals of the groups of one segment, within it."""

    def __init__(self, schema: Schema, segment: IndexSegment) -> None:
        self._schema = schema
        self._made = _version(segment)
        uid = bytes(segment.uid)
        named = [segment for segment in self._commit(self._made).segments if segment.uid == uid]
        self._named = dict(named[0].groups)

    def of(self, group: RecordGroup) -> int:
        """The first ordinal of a group that the segment has, or had before a compaction."""
        while (version := _version(group)) > self._made:
            # It came with a compaction, in place of groups of which this was the first.
            first = self._commit(version).ended[0]
            group = RecordGroup.objects.get(schema=self._schema, uid=first)
        return self._named[bytes(group.uid)]

    def _commit(self, version: int) -> CommitBody:
        entry = CommitLog.objects.get(schema=self._schema, version=version)
        parts = (bytes(one) for one in (entry.body, entry.mac, entry.signature))
        return wire.decode_commit_body(Commit(*parts))


def _version(one: IndexSegment | RecordGroup) -> int:
    assert one.version is not None, "it is visible"
    return one.version


def require_live(schema: Schema, body: CommitBody, known: Container[bytes]) -> None:
    """Check that no group has ended that the new segments are over.

    Args:
        known: the groups that they have to cover.

    Raises:
        Conflict: ``group_not_live``; a compaction came before the merge.
    """
    named = [uid for segment in body.segments for uid, _ in segment.groups if uid not in known]
    for some in store.cut(named):
        if RecordGroup.objects.filter(schema=schema, uid__in=some, ended_at__isnull=False).exists():
            raise not_live("a group of a new segment is not live")
