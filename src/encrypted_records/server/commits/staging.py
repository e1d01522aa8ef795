"""Staged rows and pages, before their commit (docs/SPEC.md, section 7.6).

They are stored in their final tables, under a group or segment that refers to its staging and is
hidden from readers. Publishing moves no row: it checks that all parts are present, and clears the
reference.

A staging belongs to the user who began it, and is invisible to all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from django.db import IntegrityError, transaction
from django.utils import timezone

from encrypted_records.errors import Conflict, NotFound
from encrypted_records.model import records
from encrypted_records.server.accounts import authentication
from encrypted_records.server.accounts.models import JobGrant, User
from encrypted_records.server.commits import checks, judging
from encrypted_records.server.commits.storing import require_new
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.erasure import removing
from encrypted_records.server.objects import objects
from encrypted_records.server.records import store
from encrypted_records.server.records.bindings import (
    BoundPart,
    bind_part,
    require_pages,
    require_rows,
)
from encrypted_records.server.records.models import (
    IndexSegment,
    PagePart,
    RecordGroup,
    RowPart,
    StagedPart,
    Staging,
)
from encrypted_records.server.rows import contents

_numbers = msgspec.json.Decoder(list[tuple[int, ...]])


def add(
    user: User,
    schema: Schema,
    upload: records.PartUpload,
    job: JobGrant | None = None,
    *,
    attempt: int = 0,
) -> bool:
    """Store one part of a staging; returns whether anything changed.

    Args:
        job: the job that sends the part, if any.
        attempt: a number that increases each time the part is made again.

    Raises:
        NotAuthenticated: ``bad_token``; the job has ended in the meantime.
        BadInput: ``invalid_commit``, ``not_sealed``; the part is not valid by itself.
        StaleDefinition: the part was made under a definition that is no longer usable.
        NotFound: the staging belongs to another user.
        Conflict: ``uid_taken``, ``record_exists``; ``part_overtaken``, a later attempt at the same
            part is stored.
    """
    part = upload.part
    definition = judging.find_usable(schema, part.definition, stands=bool(part.stands))
    checks.check_part(upload, definition)
    bound = bind_part(upload)
    mine = StagedPart.objects.filter(
        staging__schema=schema,
        staging__uid=part.staging,
        staging__user=user,
        sequence=part.sequence,
    )
    before = mine.first()
    if _is_same(before, part, bound):
        return False  # so that nothing is written to the bulk store
    _require_newest(before, attempt)
    draft = objects.draft_part(bound, upload.pages)
    with objects.written(draft.contents) as numbers:
        if _add(user, schema, upload, job, bound, draft, numbers, attempt):
            return True
        objects.give_up(numbers)
    return False


def _add(
    user: User,
    schema: Schema,
    upload: records.PartUpload,
    job: JobGrant | None,
    bound: BoundPart,
    draft: objects.CommitDraft,
    numbers: Sequence[int],
    attempt: int,
) -> bool:
    part = upload.part
    with transaction.atomic():
        if job is not None:
            authentication.hold_job(job)
        sealed_under = {group.key_version for group in part.groups}
        sealed_under |= {segment.key_version for segment in part.segments}
        removing.require_not_forgotten(schema, sealed_under)
        staging = _make_or_lock(user, schema, part.staging)
        before = StagedPart.objects.filter(staging=staging, sequence=part.sequence).first()
        if _is_same(before, part, bound):
            return False
        _require_newest(before, attempt)
        if before is not None:
            _remove(staging, before)
        _store(staging, upload, bound, draft, numbers, attempt)
        Staging.objects.filter(pk=staging.pk).update(touched=timezone.now())
    return True


def _is_same(before: StagedPart | None, part: records.Part, bound: BoundPart) -> bool:
    return (
        before is not None
        and bytes(before.digest) == bound.digest
        and bytes(before.definition) == part.definition
    )


def _require_newest(before: StagedPart | None, attempt: int) -> None:
    """
    Raises:
        Conflict: ``part_overtaken``; a newer attempt at the same part is stored.
    """
    if before is not None and attempt < before.attempt:
        raise Conflict(
            "a later attempt at the same part is staged",
            code="part_overtaken",
            hint="nothing was changed; create the part again under a higher number",
        )


def _make_or_lock(user: User, schema: Schema, uid: bytes) -> Staging:
    """The staging with its row locked; created if missing."""
    removing.drop_expired()
    Staging.objects.get_or_create(
        schema=schema, uid=uid, defaults={"user": user, "touched": timezone.now()}
    )
    return _lock_staging(user, schema, uid)


def _lock_staging(user: User, schema: Schema, uid: bytes) -> Staging:
    """
    Raises:
        NotFound: ``staging_gone``.
    """
    mine = Staging.objects.filter(schema=schema, uid=uid, user=user)
    staging = mine.select_for_update().first()
    if staging is None:
        raise _gone("nothing is staged under this id, or no longer")
    return staging


def _gone(message: str) -> NotFound:
    return NotFound(
        message,
        code="staging_gone",
        hint="if the log does not contain the commit, store its parts again",
    )


def _store(
    staging: Staging,
    upload: records.PartUpload,
    bound: BoundPart,
    draft: objects.CommitDraft,
    numbers: Sequence[int],
    attempt: int,
) -> None:
    part = upload.part
    salts_and_headers = bound.salts_and_headers
    groups = {
        group.uid: _group(staging, group, salts_and_headers.salts[group.uid])
        for group in part.groups
    }
    segments = {
        segment.uid: _segment(staging, segment, salts_and_headers.headers[segment.uid])
        for segment in part.segments
    }
    rows = [row for batch in upload.rows for row in batch.rows if row is not None]
    if not part.stands:
        require_new(row.record_id for row in rows if row.version == 1)
    try:
        draft.enter(numbers, groups, segments)
        store.add_rows(row for batch in draft.batches for row in batch.placed(groups[batch.group]))
        store.add_runs((groups[batch.group], batch.first, batch.runs) for batch in bound.batches)
        store.add_pages(
            (segments[page.segment], page.number, digest, page.data) for page, digest in draft.pages
        )
    except IntegrityError:
        raise Conflict(
            "a record, row or page of the part is already stored", code="record_exists"
        ) from None
    batches = [(groups[batch.group], batch.first, len(batch.rows)) for batch in upload.rows]
    pages = [(segments[page.segment], page.number) for page in upload.pages]
    StagedPart.objects.create(
        staging=staging,
        sequence=part.sequence,
        attempt=attempt,
        digest=bound.digest,
        definition=part.definition,
        stands=bool(part.stands),
        changes=not part.stands and any(row.version > 1 for row in rows),
        rows=msgspec.json.encode(batches).decode(),
        pages=msgspec.json.encode(pages).decode(),
    )


def _describe(group: records.Group) -> dict[str, Any]:
    return {
        "key_version": group.key_version,
        "count": group.count,
        "live": group.count,
        "fields": store.describe_fields(group),
    }


def _describe_segment(segment: records.Segment) -> dict[str, Any]:
    return {"form": segment.form, "count": segment.count, "pages": segment.pages}


def _group(staging: Staging, group: records.Group, salt: bytes) -> int:
    """The number of a staged group, created by the first part that announces it.

    Raises:
        Conflict: ``uid_taken``; the group is visible, is of another staging, or was described
            differently before.
    """
    described = _describe(group) | {"salt": salt}
    row, _ = RecordGroup.objects.get_or_create(
        schema_id=staging.schema_id,
        uid=group.uid,
        # The commit sets the key's id.
        defaults={"staging": staging, "key_id": b"", **described},
    )
    return _same(staging, row, described, "a group's uid is taken")


def _segment(staging: Staging, segment: records.Segment, header: records.SegmentHeader) -> int:
    """The number of a staged segment, created if new; see :func:`_group`."""
    described = _describe_segment(segment) | {"header": header.data, "salt": header.salt}
    row, _ = IndexSegment.objects.get_or_create(
        schema_id=staging.schema_id, uid=segment.uid, defaults={"staging": staging, **described}
    )
    return _same(staging, row, described, "a segment's uid is taken")


def _same(
    staging: Staging, row: RecordGroup | IndexSegment, described: dict[str, Any], taken: str
) -> int:
    if row.staging_id != staging.pk or not _fits(row, described):
        raise Conflict(taken, code="uid_taken")
    number: int = row.pk
    return number


def _fits(row: RecordGroup | IndexSegment, described: dict[str, Any]) -> bool:
    return all(_plain(getattr(row, name)) == value for name, value in described.items())


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _remove(staging: Staging, part: StagedPart) -> None:
    """Remove a part, and the groups and segments that are then empty."""
    for group, first, count in _numbers.decode(part.rows):
        removing.drop_rows(group, first, count)
    for segment, number in _numbers.decode(part.pages):
        removing.drop_page(segment, number)
    StagedPart.objects.filter(staging=staging, sequence=part.sequence).delete()
    removing.drop_empty(staging.pk)


def take(user: User, schema: Schema, uid: bytes, body: records.CommitBody) -> checks.Staged:
    """Hand over the staged groups and segments that a commit names; drop all others.

    The caller has locked the schema's row, and makes them visible in the same transaction.

    Raises:
        NotFound: ``staging_gone``; the staging or some of its parts are missing.
        BadInput: ``invalid_commit``; the parts differ from the commit's description.
    """
    staging = _lock_staging(user, schema, uid)
    groups = {bytes(group.uid): group for group in RecordGroup.objects.filter(staging=staging)}
    segments = {
        bytes(segment.uid): segment for segment in IndexSegment.objects.filter(staging=staging)
    }
    rows: dict[int, int] = {}
    pages: dict[int, int] = {}
    for group in body.groups:
        staged_group = groups.get(group.uid)
        if staged_group is None:
            raise _gone("a group is not staged, or no longer")
        checks.require(
            _fits(staged_group, _describe(group)), "a group is not staged as the commit states"
        )
        rows[groups[group.uid].pk] = group.count
    for segment in body.segments:
        checks.check_form(segment)
        staged_segment = segments.get(segment.uid)
        if staged_segment is None:
            raise _gone("a segment is not staged, or no longer")
        checks.require(
            _fits(staged_segment, _describe_segment(segment)),
            "a segment is not staged as the commit states",
        )
        pages[segments[segment.uid].pk] = segment.pages
    made = {(0, groups[group.uid].pk): group.definition for group in body.groups}
    made |= {(1, segments[segment.uid].pk): segment.definition for segment in body.segments}
    changed = _check_parts(staging, body, rows, pages, made)
    runs, digests = store.runs_of(rows), contents.page_digests_of(pages)
    for group in body.groups:
        require_rows(group, runs[groups[group.uid].pk])
    for segment in body.segments:
        stored = segments[segment.uid]
        require_pages(segment, bytes(stored.salt), bytes(stored.header), digests[stored.pk])
    # Includes objects that the commit does not name: they are doomed below.
    objects.name(RowPart.objects.filter(group_id__in=staging.groups.values("pk")))
    objects.name(PagePart.objects.filter(segment_id__in=staging.segments.values("pk")))
    for table, numbers in ((RecordGroup, rows), (IndexSegment, pages)):
        for batch in store.cut(list(numbers)):
            table._default_manager.filter(pk__in=batch).update(staging=None)
    removing.drop_staging(staging)
    return checks.Staged(
        {group.uid: groups[group.uid].pk for group in body.groups},
        {segment.uid: segments[segment.uid].pk for segment in body.segments},
        contents.list_changed_in(sorted(changed)),
    )


def _check_parts(
    staging: Staging,
    body: records.CommitBody,
    rows: dict[int, int],
    pages: dict[int, int],
    made: dict[tuple[int, int], bytes],
) -> set[int]:
    """Check that the parts contain all ``rows`` and ``pages`` of the commit (counts by group and
    segment number). Returns the groups that have rows of a version above 1 and replace no others.

    ``made``: the definition of each group (0) and segment (1), by number.

    No row or page is stored twice or beyond its group or segment, so counting is enough. Holes are
    checked later, when rows are compared with the rows that they replace.
    """
    rows, pages = dict(rows), dict(pages)
    changed: set[int] = set()
    for part in StagedPart.objects.filter(staging=staging).order_by("sequence"):
        batches, single = _numbers.decode(part.rows), _numbers.decode(part.pages)
        named = [group in rows for group, _, _ in batches] + [uid in pages for uid, _ in single]
        if not any(named):
            continue
        checks.require(all(named), "a part contains more than the commit names")
        definitions = {made[0, group] for group, _, _ in batches} | {
            made[1, uid] for uid, _ in single
        }
        checks.require(
            definitions <= {bytes(part.definition)},
            "a part was made under another definition than its groups and segments name",
        )
        checks.require(
            not batches or part.stands == bool(body.ended),
            "a part's rows replace others, but its commit ends no groups, or the other way round",
        )
        changed.update(group for group, _, _ in batches if part.changes)
        for group, _, count in batches:
            rows[group] -= count
        for segment, _ in single:
            pages[segment] -= 1
    if any(rows.values()) or any(pages.values()):
        raise _gone("the staged parts are not complete, or no longer")
    return changed
