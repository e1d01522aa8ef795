"""Rows and pages that are stored ahead of their commit (docs/SPEC.md, 7.6).

They lie in the tables they will stay in, under a group or segment that names its staging and that
no reader is shown. So publishing moves no row: it checks that all is there and clears that name.

A staging belongs to the user who began it; for everybody else it does not exist.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from django.db import IntegrityError, transaction
from django.utils import timezone

from encrypted_records.errors import Conflict, NotFound, StaleDefinition
from encrypted_records.model import wire
from encrypted_records.model.records import CommitBody, Group, PartUpload, Segment
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.records import checks, store
from encrypted_records.server.records.models import (
    IndexSegment,
    RecordGroup,
    StagedPart,
    Staging,
)

#: A staging to which nothing came for so long is dropped: its job will not go on.
KEPT_FOR = timedelta(days=7)

_numbers = msgspec.json.Decoder(list[tuple[int, ...]])


def add(user: User, schema: Schema, upload: PartUpload) -> bool:
    """Store one part; whether anything changed.

    Raises:
        BadInput: ``invalid_commit``, ``not_sealed``; the part is not sound in itself.
        StaleDefinition: it was made under another definition than the present one.
        NotFound: the staging is somebody else's.
        Conflict: ``uid_taken``, ``record_exists``.
    """
    part = upload.part
    if part.definition != bytes(schema.definition_digest):
        raise StaleDefinition("the schema's definition is not the one the records were sealed for")
    checks.check_part(upload, schema.parsed())
    digest = wire.part_digest(upload.rows, upload.pages)
    with transaction.atomic():
        staging = _opened(user, schema, part.staging)
        before = StagedPart.objects.filter(staging=staging, sequence=part.sequence).first()
        if before is not None:
            if bytes(before.digest) == digest and bytes(before.definition) == part.definition:
                return False
            _remove(staging, before)
        _store(staging, upload, digest)
        Staging.objects.filter(pk=staging.pk).update(touched=timezone.now())
    return True


def _opened(user: User, schema: Schema, uid: bytes) -> Staging:
    """The staging, made now if there is none, with its row locked."""
    drop_expired()
    Staging.objects.get_or_create(
        schema=schema, uid=uid, defaults={"user": user, "touched": timezone.now()}
    )
    return _locked(user, schema, uid)


def _locked(user: User, schema: Schema, uid: bytes) -> Staging:
    """
    Raises:
        NotFound: ``staging_gone``.
    """
    mine = Staging.objects.filter(schema=schema, uid=uid, user=user)
    found = mine.select_for_update().first()
    if found is None:
        raise NotFound(
            "nothing is stored ahead under this id, or no longer",
            code="staging_gone",
            hint="if the log does not hold the commit, store its parts again",
        )
    return found


def _store(staging: Staging, upload: PartUpload, digest: bytes) -> None:
    part = upload.part
    groups = {group.uid: _group(staging, group) for group in part.groups}
    segments = {segment.uid: _segment(staging, segment) for segment in part.segments}
    try:
        store.add_rows(
            (
                groups[batch.group],
                ordinal,
                row.record_id,
                row.version,
                store.pack_fields(row.fields),
            )
            for batch in upload.rows
            for ordinal, row in enumerate(batch.rows, batch.first)
        )
        store.add_pages((segments[page.segment], page.number, page.data) for page in upload.pages)
    except IntegrityError:
        raise Conflict(
            "a record, row or page of the part is stored already", code="record_exists"
        ) from None
    rows = [(groups[batch.group], batch.first, len(batch.rows)) for batch in upload.rows]
    pages = [(segments[page.segment], page.number) for page in upload.pages]
    StagedPart.objects.create(
        staging=staging,
        sequence=part.sequence,
        digest=digest,
        definition=part.definition,
        rows=msgspec.json.encode(rows).decode(),
        pages=msgspec.json.encode(pages).decode(),
    )


def _describe(group: Group) -> dict[str, Any]:
    return {
        "key_version": group.key_version,
        "count": group.count,
        "live": group.count,
        "fields": msgspec.json.encode(group.fields).decode(),
    }


def _describe_segment(segment: Segment) -> dict[str, Any]:
    return {"form": segment.form, "count": segment.count, "pages": segment.pages}


def _group(staging: Staging, group: Group) -> int:
    """The number of a staged group, which the first part that announces it makes.

    Raises:
        Conflict: ``uid_taken``; visible, of another staging, or described otherwise before.
    """
    described = _describe(group)
    found, _ = RecordGroup.objects.get_or_create(
        schema_id=staging.schema_id,
        uid=group.uid,
        # The key's id comes with the commit.
        defaults={"staging": staging, "key_id": b"", **described},
    )
    return _same(staging, found, described, "a group's uid is taken")


def _segment(staging: Staging, segment: Segment) -> int:
    """As :func:`_group`, for a segment."""
    described = _describe_segment(segment)
    found, _ = IndexSegment.objects.get_or_create(
        schema_id=staging.schema_id, uid=segment.uid, defaults={"staging": staging, **described}
    )
    return _same(staging, found, described, "a segment's uid is taken")


def _same(
    staging: Staging, found: RecordGroup | IndexSegment, described: dict[str, Any], taken: str
) -> int:
    if found.staging_id != staging.pk or not _fits(found, described):
        raise Conflict(taken, code="uid_taken")
    number: int = found.pk
    return number


def _fits(found: RecordGroup | IndexSegment, described: dict[str, Any]) -> bool:
    return all(getattr(found, name) == value for name, value in described.items())


def _remove(staging: Staging, part: StagedPart) -> None:
    """Take a part back, and the groups and segments of which nothing is left."""
    for group, first, count in _numbers.decode(part.rows):
        store.drop_rows(group, first, count)
    for segment, number in _numbers.decode(part.pages):
        store.drop_page(segment, number)
    StagedPart.objects.filter(staging=staging, sequence=part.sequence).delete()
    store.drop_empty(staging.pk)


def take(user: User, schema: Schema, uid: bytes, body: CommitBody) -> checks.Staged:
    """Hand the staged groups and segments that a commit names over to it; drop all others.

    The schema's row is locked by the caller, who makes them visible in the same transaction.

    Raises:
        NotFound: ``staging_gone``.
        StaleDefinition: a part was made under another definition than the commit.
        BadInput: ``invalid_commit``; parts are missing, incomplete, or others than the commit's.
    """
    staging = _locked(user, schema, uid)
    groups = {bytes(one.uid): one for one in RecordGroup.objects.filter(staging=staging)}
    segments = {bytes(one.uid): one for one in IndexSegment.objects.filter(staging=staging)}
    rows: dict[int, int] = {}
    pages: dict[int, int] = {}
    for group in body.groups:
        found = groups.get(group.uid)
        checks.require(
            found is not None and _fits(found, _describe(group)), "a group is not stored ahead"
        )
        rows[groups[group.uid].pk] = group.count
    for segment in body.segments:
        checks.check_form(segment)
        held = segments.get(segment.uid)
        checks.require(
            held is not None and _fits(held, _describe_segment(segment)),
            "a segment is not stored ahead",
        )
        pages[segments[segment.uid].pk] = segment.pages
    _check_parts(staging, body, rows, pages)
    for table, numbers in ((RecordGroup, rows), (IndexSegment, pages)):
        for some in store.cut(list(numbers)):
            table._default_manager.filter(pk__in=some).update(staging=None)
    _drop(staging)
    return checks.Staged(
        {group.uid: groups[group.uid].pk for group in body.groups},
        {segment.uid: segments[segment.uid].pk for segment in body.segments},
    )


def _check_parts(
    staging: Staging, body: CommitBody, rows: dict[int, int], pages: dict[int, int]
) -> None:
    """Check that the parts bring all ``rows`` and ``pages`` (how many, by number) of the commit.

    No row or page is there twice and none beyond its group or segment, so counting is enough.
    """
    rows, pages = dict(rows), dict(pages)
    digests: list[bytes] = []
    for part in StagedPart.objects.filter(staging=staging).order_by("sequence"):
        batches, single = _numbers.decode(part.rows), _numbers.decode(part.pages)
        named = [group in rows for group, _, _ in batches] + [one in pages for one, _ in single]
        if not any(named):
            continue
        checks.require(all(named), "a part brings more than the commit names")
        if bytes(part.definition) != body.definition:
            raise StaleDefinition("the schema's definition changed while records were stored ahead")
        digests.append(bytes(part.digest))
        for group, _, count in batches:
            rows[group] -= count
        for segment, _ in single:
            pages[segment] -= 1
    checks.require(
        not any(rows.values()) and not any(pages.values()), "what is stored ahead is not complete"
    )
    checks.check_content(body, digests)


def drop(user: User, uid: bytes) -> None:
    """Drop what the user has staged under this id, of any schema."""
    with transaction.atomic():
        for staging in Staging.objects.select_for_update().filter(user=user, uid=uid):
            _drop(staging)


def drop_expired() -> None:
    """Drop stagings to which nothing came for a week."""
    old = timezone.now() - KEPT_FOR
    with transaction.atomic():
        for staging in Staging.objects.select_for_update().filter(touched__lt=old):
            _drop(staging)


def _drop(staging: Staging) -> None:
    store.drop_staged(staging.pk)
    StagedPart.objects.filter(staging=staging).delete()
    RecordGroup.objects.filter(staging=staging).delete()
    IndexSegment.objects.filter(staging=staging).delete()
    Staging.objects.filter(pk=staging.pk).delete()
