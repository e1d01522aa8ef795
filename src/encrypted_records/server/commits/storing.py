"""Store what a commit adds: segments with their pages, groups with their rows. Under the lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from encrypted_records.errors import Conflict
from encrypted_records.model.records import Group
from encrypted_records.rules.commits.judging import Size, judge_cover
from encrypted_records.server.commits import checks, compacting
from encrypted_records.server.commits.checks import Checked
from encrypted_records.server.commits.facts import Facts, group_of_uid, segment_of_uid
from encrypted_records.server.commits.standing import Place
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.statements import insert
from encrypted_records.server.records import store
from encrypted_records.server.records.models import IndexSegment, RecordGroup
from encrypted_records.server.rows import identities


def add_segments(
    schema: Schema,
    commit: Checked,
    facts: Facts,
    freed: Sequence[RecordGroup],
    added: Mapping[bytes, Size],
    version: int,
) -> dict[bytes, int]:
    """Store segments over the new and the freed groups; the number here of each new uid.

    Raises:
        BadInput: ``invalid_commit``; they do not cover exactly these groups.
        Conflict: ``uid_taken``; ``group_not_live``, one of these groups has ended.
    """
    segments = commit.body.segments
    sizes = dict(added)
    sizes |= {bytes(g.uid): Size(g.count, g.count - g.live) for g in freed}
    compacting.require_live(schema, commit.body, sizes)
    checks.require_none(judge_cover(segments, sizes))
    if commit.staged:
        numbers = commit.staged.segments
        for some in store.cut(list(numbers.values())):
            IndexSegment.objects.filter(pk__in=some).update(version=version)
    else:
        numbers = _store_segments(schema, commit, facts, version)
    freed_numbers = {bytes(group.uid): group.pk for group in freed}
    for segment in segments:
        moved = [freed_numbers[uid] for uid, _ in segment.groups if uid in freed_numbers]
        if moved:
            RecordGroup.objects.filter(pk__in=moved).update(segment_id=numbers[segment.uid])
    return numbers


def _store_segments(
    schema: Schema, commit: Checked, facts: Facts, version: int
) -> dict[bytes, int]:
    segments = commit.body.segments
    # Of the first one it is known.
    taken = (segment_of_uid.rows(schema=schema.uid, uid=segment.uid) for segment in segments[1:])
    if facts.has_segment or any(taken):
        raise Conflict("a segment's uid is taken", code="uid_taken")
    numbers = {}
    for s in segments:
        stored = IndexSegment(
            schema=schema,
            uid=s.uid,
            form=s.form,
            count=s.count,
            pages=s.pages,
            header=commit.beside.headers[s.uid].data,
            salt=commit.beside.headers[s.uid].salt,
            version=version,
        )
        insert(stored)
        numbers[s.uid] = stored.pk
    store.add_pages(
        (numbers[uid], number, digest, data)
        for uid, pages in commit.pages.items()
        for number, (digest, data) in enumerate(zip(commit.digests[uid], pages, strict=True))
    )
    return numbers


def add_groups(
    schema: Schema,
    commit: Checked,
    facts: Facts,
    segments: Mapping[bytes, int],
    places: Mapping[bytes, Place],
    version: int,
) -> dict[bytes, int]:
    """Store the new groups with their rows, or make those that are staged visible; the number here
    of each uid.

    Raises:
        Conflict: ``uid_taken``, ``record_exists``.
    """
    segment_of = {
        uid: segments[segment.uid] for segment in commit.body.segments for uid, _ in segment.groups
    }
    every = commit.body.groups
    rows = {group.uid: _group(schema, commit, group, places[group.uid], version) for group in every}
    for uid, row in rows.items():
        stays = places[uid].segment
        row.segment_id = segment_of[uid] if stays is None else stays
        row.salt = commit.beside.salts.get(uid, b"")
    if commit.staged:
        for uid, row in rows.items():
            row.pk = commit.staged.groups[uid]
        RecordGroup.objects.bulk_update(rows.values(), _PUBLISHED, batch_size=100)
        return dict(commit.staged.groups)
    taken = (group_of_uid.rows(schema=schema.uid, uid=group.uid) for group in every[1:])
    if facts.has_group or any(taken):
        raise Conflict("a group's uid is taken", code="uid_taken")
    if not commit.body.ended:
        new = [row.record_id for row in commit.new_rows() if row.version == 1]
        require_new(new, are_apart=not facts.has_ids_between)
    for row in rows.values():
        insert(row)
    numbers = {uid: row.pk for uid, row in rows.items()}
    store.add_runs((numbers[batch.group], batch.first, batch.runs) for batch in commit.batches)
    store.add_rows(row for batch in commit.batches for row in batch.placed(numbers[batch.group]))
    return numbers


#: What publishing sets of a staged group.
_PUBLISHED = ["segment_id", "version", "start", "key_id", "live", "holes"]


def _group(
    schema: Schema, commit: Checked, group: Group, place: Place, version: int
) -> RecordGroup:
    return RecordGroup(
        schema=schema,
        uid=group.uid,
        version=version,
        start=place.start,
        key_version=group.key_version,
        key_id=commit.body.key_id,
        count=group.count,
        live=group.count - place.dead,
        holes=place.stored_holes,
        fields=store.describe_fields(group),
    )


def require_new(record_ids: Iterable[bytes], *, are_apart: bool = False) -> None:
    """
    Args:
        are_apart: whether no row has an id between the least and the greatest of these.

    Raises:
        Conflict: ``record_exists``; one is there, or is named twice.
    """
    every = list(record_ids)
    distinct = set(every)
    if len(distinct) != len(every) or (not are_apart and identities.is_any_stored(distinct)):
        raise Conflict("a record with one of these ids is stored already", code="record_exists")
