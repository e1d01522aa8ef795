"""Lost rows and pages of a schema, for proxies that can repair it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from encrypted_records.errors import ObjectLost
from encrypted_records.model.digests import HOLE
from encrypted_records.model.resources import Damage, LostRows
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.statements import fetch
from encrypted_records.server.objects import objects
from encrypted_records.server.records import store
from encrypted_records.server.records.models import (
    BulkObject,
    IndexSegment,
    PagePart,
    RecordGroup,
    RowPart,
)
from encrypted_records.server.rows import contents


def of(schema: Schema) -> Damage:
    """Live segments that have lost pages, and live rows without bytes."""
    pages = PagePart.objects.filter(Exists(_lost()), segment_id=OuterRef("pk"))
    segments = IndexSegment.objects.filter(
        Exists(pages), schema=schema, staging=None, superseded_at=None
    )
    rows = _erased_alive(schema)
    parts = RowPart.objects.filter(Exists(_lost()))
    groups = RecordGroup.objects.filter(
        Exists(parts.filter(group_id=OuterRef("pk"))), schema=schema, staging=None, ended_at=None
    )
    for group in groups:
        rows.setdefault(group.pk, set()).update(_lost_of(group, parts))
    uids = dict(store.select_in("SELECT id, uid FROM record_group WHERE id IN {values}", rows))
    return Damage(
        sorted(bytes(segment.uid).hex() for segment in segments),
        [
            LostRows(bytes(uids[number]).hex(), _runs(ordinals))
            for number, ordinals in sorted(rows.items())
            if ordinals
        ],
    )


def among(keys: Sequence[store.Key]) -> set[store.Key]:
    """The rows among these, as (group, ordinal), that have no bytes: they were erased, or found to
    be lost.
    """
    found = contents.erased_among(keys)
    groups = {group for group, _ in keys}
    for batch in store.cut(sorted(groups)):
        parts = RowPart.objects.filter(Exists(_lost()), group_id__in=batch)
        for part in parts:
            holes = RecordGroup.objects.values_list("holes", flat=True).get(pk=part.group_id)
            left = set(range(part.first, part.first + part.count)) - store.hole_ordinals(holes)
            found |= {key for key in keys if key[0] == part.group_id and key[1] in left}
    return found


def _lost() -> QuerySet[BulkObject]:
    return BulkObject.objects.filter(pk=OuterRef("object_id"), state=objects.LOST)


def forget(group: RecordGroup, part: RowPart) -> None:
    """Forget a part whose object is lost, if none of its rows is live: there is nothing to rewrite.

    Raises:
        ObjectLost: some rows are live; only a user who can delete them can give them up.
    """
    ordinals = set(range(part.first, part.first + part.count))
    ordinals -= store.hole_ordinals(group.holes)
    ordinals -= contents.erased_digests(group.pk, part.first, part.first + part.count).keys()
    with transaction.atomic():
        locked = RecordGroup.objects.select_for_update().filter(pk=group.pk, ended_at=None)
        mine = RowPart.objects.filter(group_id=group.pk, first=part.first, object_id=part.object_id)
        if not locked.exists() or not mine.exists():
            return
        if ordinals - store.dead_of(group.pk):
            raise ObjectLost("an object is lost that contained live records")
        objects.drop(mine)
        # Their proofs are lost as well, but these runs have no row left to prove.
        contents.note_erased(group.pk, dict.fromkeys(ordinals, HOLE))


def _erased_alive(schema: Schema) -> dict[int, set[int]]:
    """By group, erased rows that are live according to the restored log."""
    rows = fetch(
        "SELECT e.group_id, e.ordinal FROM record_group g JOIN erased_row e"
        " ON e.group_id = g.id WHERE g.schema_id = %s AND g.ended_at IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM dead_row d"
        " WHERE d.group_id = e.group_id AND d.ordinal = e.ordinal)",
        schema.uid,
    )
    found: dict[int, set[int]] = {}
    for group, ordinal in rows:
        found.setdefault(group, set()).add(ordinal)
    return found


def _lost_of(group: RecordGroup, parts: Any) -> set[int]:
    ordinals: set[int] = set()
    for first, count in parts.filter(group_id=group.pk).values_list("first", "count"):
        ordinals.update(range(first, first + count))
        ordinals -= contents.erased_digests(group.pk, first, first + count).keys()
    return ordinals - store.hole_ordinals(group.holes) - store.dead_of(group.pk)


def _runs(ordinals: Iterable[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for at in sorted(ordinals):
        if runs and at == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([at, 1])
    return runs
