"""End what a commit ends: segments that it replaces, rows that die. Under the schema's lock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db.models import F
from django.utils import timezone

from encrypted_records.errors import Conflict, ObjectLost
from encrypted_records.model.records import CommitBody
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.erasure import damage, erasing
from encrypted_records.server.objects import objects
from encrypted_records.server.records import store
from encrypted_records.server.records.bulk_tables import PagePart
from encrypted_records.server.records.models import IndexSegment, RecordGroup
from encrypted_records.server.records.store import Key
from encrypted_records.server.rows import contents
from encrypted_records.server.rows.identities import Identity


def free_groups(schema: Schema, body: CommitBody, version: int) -> list[RecordGroup]:
    """The groups of the segments that the commit replaces, with their rows as they are before.

    Raises:
        Conflict: ``segment_not_live``.
    """
    if not body.replaced:
        return []
    old = IndexSegment.objects.filter(schema=schema, uid__in=body.replaced, superseded_at=None)
    numbers = list(old.values_list("pk", flat=True))
    if len(numbers) != len(body.replaced):
        raise Conflict(
            "a segment that the commit replaces is not live",
            code="segment_not_live",
            hint="somebody merged it before; read the manifest again",
        )
    freed = list(RecordGroup.objects.filter(segment_id__in=numbers))
    objects.doom(PagePart.objects.filter(segment_id__in=numbers))
    old.update(superseded_at=timezone.now(), replaced=version)
    return freed


def end_rows(schema: Schema, body: CommitBody, version: int) -> set[Identity]:
    """Mark the rows that the commit ends; which record ids and versions they are.

    Raises:
        Conflict: ``row_not_live``.
    """
    killed = body.killed
    if not killed:
        return set()
    groups = {
        bytes(uid): pk
        for pk, uid in RecordGroup.objects.filter(
            schema=schema, uid__in=[one.group for one in killed], staging=None, ended_at=None
        ).values_list("pk", "uid")
    }
    gone = Conflict(
        "a row that the commit ends is not live",
        code="row_not_live",
        hint="somebody changed or deleted the record; read it again and repeat",
    )
    if len(groups) != len(killed):
        raise gone
    keys = [(groups[row.group], row.ordinal) for one in killed for row in one.rows()]
    ended, without = _identities(keys)
    if len(ended) + without != len(keys) or store.dead_among(keys):
        raise gone
    store.add_dead((group, ordinal, version) for group, ordinal in keys)
    for one in killed:
        RecordGroup.objects.filter(pk=groups[one.group]).update(
            live=F("live") - one.count, erase_at=erasing.soon()
        )
    return set(ended.values())


def _identities(keys: Sequence[Key]) -> tuple[dict[Key, Identity], int]:
    """Id and version of each of these rows, and how many more have no bytes any more, so that
    nobody can know theirs.

    Raises:
        ObjectLost: of one that was not found to be lost.
    """
    try:
        ended = contents.versions_at(keys)
    except ObjectLost:
        without = damage.among(keys)
        if not without:
            raise
        return contents.versions_at([key for key in keys if key not in without]), len(without)
    left = [key for key in keys if key not in ended]
    return ended, len(damage.among(left)) if left else 0


def require_successors(changed: Iterable[Identity], killed: set[Identity]) -> None:
    """Check that each changed record is the only one that follows on a row that the commit ends.

    Raises:
        Conflict: ``record_version``.
    """
    followed: set[Identity] = set()
    for record_id, version in changed:
        before = (record_id, version - 1)
        if before not in killed or before in followed:
            raise Conflict(
                "a new version of a record comes without ending the one before",
                code="record_version",
                hint="read the record again and repeat the change on its present version",
            )
        followed.add(before)
