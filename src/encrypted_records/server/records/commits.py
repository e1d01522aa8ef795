"""Applying commits: all of a request in one transaction, or none.

What a commit may do is decided under the lock of its schema's row, against what is stored then:

1. a commit that is in the log already is answered with its receipt again, so a retry is safe;
2. its writer knew the present definition, the schema's key, its own last commit, and a log that
   is a beginning of ours;
3. what it adds is new, what it ends or replaces is live, and what it replaces it covers again.

The loser of a race gets a conflict whose code says which of these did not hold. Schemas are
locked in the order of their ids, so two requests never wait for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from encrypted_records.errors import BadInput, Conflict, MergeFirst, NotFound, StaleDefinition
from encrypted_records.model import ids, wire
from encrypted_records.model.records import Commit, CommitBody, CommitUpload, Receipt
from encrypted_records.server import access
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import EMPTY_LOG_DIGEST, Schema
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.records import checks, staging, store
from encrypted_records.server.records.checks import Checked
from encrypted_records.server.records.models import (
    CommitLog,
    IndexSegment,
    RecordGroup,
    WriterHead,
)

MAX_LIVE_SEGMENTS = 256
#: How long superseded segments stay for readers who know of them.
KEPT_FOR = timedelta(minutes=15)


@dataclass(frozen=True)
class Outcome:
    """Receipts in the order of the commits; ``created`` unless all were in the log already."""

    receipts: list[Receipt]
    created: bool


def apply(user: User, uploads: Sequence[CommitUpload]) -> Outcome:
    """Apply the commits of one request.

    Raises:
        Malformed, BadInput: a commit is not sound in itself.
        NotFound: a schema that the user does not reach.
        StaleDefinition, MergeFirst, Conflict: the state has moved on or forbids it.
    """
    commits = [checks.check(upload) for upload in uploads]
    # Shapes are checked before any lock is taken: that is the slow part.
    for schema, commit in _reached(user, commits):
        if _receipt(schema, commit) is None:
            _require_current(schema, commit)
            checks.check_sealed(commit, schema.parsed())
    return _apply_all(user, commits, lambda _, commit: commit)


def publish(user: User, uid: bytes, commits: Sequence[Commit]) -> Outcome:
    """Apply commits whose rows and pages are stored ahead under ``uid``, a staging's.

    Raises:
        NotFound: ``staging_gone``; or as :func:`apply`.
        Malformed, BadInput, StaleDefinition, MergeFirst, Conflict: as :func:`apply`.
    """
    checked = [checks.check_bare(commit) for commit in commits]
    for schema, commit in _reached(user, checked):
        if _receipt(schema, commit) is None:
            _require_current(schema, commit)
    return _apply_all(
        user,
        checked,
        lambda schema, commit: replace(commit, staged=staging.take(user, schema, uid, commit.body)),
    )


def _reached(user: User, commits: Sequence[Checked]) -> list[tuple[Schema, Checked]]:
    """Each commit with its schema.

    Raises:
        BadInput: ``invalid_commit``; two are for one schema.
        NotFound: a schema that the user does not reach.
    """
    schema_ids = [ids.to_text(commit.body.schema) for commit in commits]
    if len(set(schema_ids)) != len(schema_ids):
        raise BadInput("two commits of one request are for one schema", code="invalid_commit")
    reached = {schema.pk: schema for schema in access.schemas(user).filter(pk__in=schema_ids)}
    if len(reached) != len(schema_ids):
        raise NotFound("there is no such schema, or none that you can reach")
    return [
        (reached[schema_id], commit) for schema_id, commit in zip(schema_ids, commits, strict=True)
    ]


def _apply_all(
    user: User, commits: Sequence[Checked], ready: Callable[[Schema, Checked], Checked]
) -> Outcome:
    """Apply commits in one transaction; ``ready`` is called under the lock of the schema's row."""
    schema_ids = [ids.to_text(commit.body.schema) for commit in commits]
    with transaction.atomic():
        locked = {
            schema.pk: schema
            for schema in Schema.objects.select_for_update(of=("self",), no_key=True)
            .select_related("dataset")
            .filter(pk__in=schema_ids)
            .order_by("pk")
        }
        outcomes = []
        for schema_id, commit in zip(schema_ids, commits, strict=True):
            if schema_id not in locked:
                raise NotFound("there is no such schema, or none that you can reach")
            receipt, new = _apply_one(locked[schema_id], commit, ready)
            outcomes.append((receipt, new))
            if new:
                _note(user, locked[schema_id], commit)
    return Outcome([receipt for receipt, _ in outcomes], any(new for _, new in outcomes))


def _note(user: User, before: Schema, commit: Checked) -> None:
    organization_id = before.dataset.organization_id
    if before.key_id is None or bytes(before.key_id) != commit.body.key_id:
        audit.note(user, Action.KEY_CHANGED, organization_id, before.url)
    audit.note(user, _action(commit.body), organization_id, before.url)


def _action(body: CommitBody) -> Action:
    """What a commit does; a merge may come along with the first three."""
    if body.groups:
        return Action.RECORDS_CHANGED if body.killed else Action.RECORDS_STORED
    return Action.RECORDS_DELETED if body.killed else Action.INDEX_MERGED


def _receipt(schema: Schema, commit: Checked) -> Receipt | None:
    """The receipt of a commit that is in the log.

    Raises:
        Conflict: ``commit_reused``; its id is there with another content.
    """
    known = CommitLog.objects.filter(schema=schema, commit_id=commit.body.id).first()
    if known is None:
        return None
    if bytes(known.digest) != commit.digest:
        raise Conflict("another commit has this id already", code="commit_reused")
    return Receipt(commit.body.id, commit.body.schema, known.version)


def _require_current(schema: Schema, commit: Checked) -> None:
    if commit.body.definition != bytes(schema.definition_digest):
        raise StaleDefinition("the schema's definition is not the one the records were sealed for")


def _apply_one(
    schema: Schema, commit: Checked, ready: Callable[[Schema, Checked], Checked]
) -> tuple[Receipt, bool]:
    receipt = _receipt(schema, commit)
    if receipt is not None:
        return receipt, False
    _require_current(schema, commit)
    _require_writer_knows(schema, commit)
    version = schema.version + 1
    _drop_old_pages(schema)
    freed = _freed_groups(schema, commit)
    killed = _end_rows(schema, commit, version)
    _require_successors(commit, killed)
    commit = ready(schema, commit)
    segments_change = len(commit.body.segments) - len(commit.body.replaced)
    # What was stored ahead cannot be merged before it is visible; its proxy does so right after.
    at_once = 0 if commit.staged else segments_change
    if segments_change > 0 and schema.live_segments + at_once > MAX_LIVE_SEGMENTS:
        raise MergeFirst(f"the schema would have more than {MAX_LIVE_SEGMENTS} live segments")
    segments = _add_segments(schema, commit, freed)
    _add_groups(schema, commit, segments, version)
    _log(schema, commit, version)
    Schema.objects.filter(pk=schema.pk).update(
        version=version,
        **_key_state(schema, commit.body, version),
        log_digest=wire.next_log_digest(bytes(schema.log_digest), commit.commit),
        live_rows=F("live_rows") + sum(g.count for g in commit.body.groups) - len(killed),
        live_segments=F("live_segments") + segments_change,
    )
    return Receipt(commit.body.id, commit.body.schema, version), True


def _require_writer_knows(schema: Schema, commit: Checked) -> None:
    body = commit.body
    _require_key(schema, body)
    head = WriterHead.objects.filter(schema=schema, writer=body.writer).first()
    counter, previous = (head.counter, bytes(head.digest)) if head else (0, bytes(32))
    if body.counter != counter + 1 or body.previous != previous:
        raise Conflict(
            "the commit does not follow the writer's last one",
            code="writer_conflict",
            hint="read the manifest, then make the commit anew; after restoring an old state,"
            " use a new writer",
        )
    if body.seen > schema.version or body.seen_digest != _digest_at(schema, body.seen):
        raise Conflict(
            "the log that the writer has seen is not a beginning of this one",
            code="log_conflict",
            hint="if the API was restored from a backup, restore its newest one",
        )


def _require_key(schema: Schema, body: CommitBody) -> None:
    """Hold the commit's key against the log's (docs/SPEC.md, section 7.5)."""
    present, first = schema.key_version, schema.first_key_version
    if present is None or first is None:
        return
    if body.key_version < present:
        raise _key_mismatch(
            f"the schema's records are sealed under keyring version {present} by now"
        )
    if body.key_version == present:
        if body.key_id != bytes(schema.key_id or b""):
            raise _key_mismatch("the schema's records are sealed under another key")
        if body.key_version > first and body.seen < 1:
            raise _key_mismatch("the writer has not seen under which key the log began")
    elif body.seen < schema.key_since:
        raise _key_mismatch("the writer has not seen the present key's first commit")


def _key_mismatch(message: str) -> Conflict:
    return Conflict(
        message,
        code="key_mismatch",
        hint="use the keyring that sealed the schema's newest records: ers keyring restore brings"
        " it here, with a recovery phrase for each of its versions",
    )


def _key_state(schema: Schema, body: CommitBody, version: int) -> dict[str, Any]:
    """What the schema's row says of keys once ``version`` is ``body``."""
    if body.key_version == schema.key_version:
        return {}
    first = schema.first_key_version or body.key_version
    return {
        "key_id": body.key_id,
        "key_version": body.key_version,
        "key_since": version,
        "first_key_version": first,
    }


def _digest_at(schema: Schema, version: int) -> bytes:
    if version == 0:
        return EMPTY_LOG_DIGEST
    if version == schema.version:
        return bytes(schema.log_digest)
    return bytes(CommitLog.objects.get(schema=schema, version=version).log_digest)


def _drop_old_pages(schema: Schema) -> None:
    """Delete pages that no reader can still want. Their segments' uids stay taken for good."""
    old = IndexSegment.objects.filter(
        schema=schema, superseded_at__lt=timezone.now() - KEPT_FOR, pages__gt=0
    )
    numbers = list(old.values_list("pk", flat=True))
    store.drop_pages(numbers)
    IndexSegment.objects.filter(pk__in=numbers).update(pages=0)


def _freed_groups(schema: Schema, commit: Checked) -> list[RecordGroup]:
    """The groups of the segments that the commit replaces, with their rows as they are before.

    Raises:
        Conflict: ``segment_not_live``.
    """
    old = IndexSegment.objects.filter(
        schema=schema, uid__in=commit.body.replaced, superseded_at=None
    )
    numbers = list(old.values_list("pk", flat=True))
    if len(numbers) != len(commit.body.replaced):
        raise Conflict(
            "a segment that the commit replaces is not live",
            code="segment_not_live",
            hint="somebody merged it before; read the manifest again",
        )
    freed = list(RecordGroup.objects.filter(segment_id__in=numbers))
    old.update(superseded_at=timezone.now())
    return freed


def _end_rows(schema: Schema, commit: Checked, version: int) -> set[tuple[bytes, int]]:
    """Mark the rows that the commit ends; which record ids and versions they are.

    Raises:
        Conflict: ``row_not_live``.
    """
    killed = commit.body.killed
    if not killed:
        return set()
    groups = {
        bytes(uid): pk
        for pk, uid in RecordGroup.objects.filter(
            schema=schema, uid__in={ref.group for ref in killed}, staging=None
        ).values_list("pk", "uid")
    }
    gone = Conflict(
        "a row that the commit ends is not live",
        code="row_not_live",
        hint="somebody changed or deleted the record; read it again and repeat",
    )
    if any(ref.group not in groups for ref in killed):
        raise gone
    keys = [(groups[ref.group], ref.ordinal) for ref in killed]
    ended = store.versions_at(keys)
    if len(ended) != len(keys) or store.dead_among(keys):
        raise gone
    store.add_dead((group, ordinal, version) for group, ordinal in keys)
    for group, count in Counter(group for group, _ in keys).items():
        RecordGroup.objects.filter(pk=group).update(live=F("live") - count)
    return set(ended.values())


def _require_successors(commit: Checked, killed: set[tuple[bytes, int]]) -> None:
    for row in commit.new_rows():
        if row.version > 1 and (row.record_id, row.version - 1) not in killed:
            raise Conflict(
                "a new version of a record comes without ending the one before",
                code="record_version",
                hint="read the record again and repeat the change on its present version",
            )


def _add_segments(
    schema: Schema, commit: Checked, freed: Sequence[RecordGroup]
) -> dict[bytes, int]:
    """Store segments over the new and the freed groups; the number here of each new uid.

    Raises:
        BadInput: ``invalid_commit``; they do not cover exactly these groups.
        Conflict: ``uid_taken``.
    """
    found = commit.body.segments
    sizes = {group.uid: checks.Size(group.count) for group in commit.body.groups}
    sizes |= {bytes(g.uid): checks.Size(g.count, g.count - g.live) for g in freed}
    checks.check_cover(found, sizes)
    numbers = commit.staged.segments if commit.staged else _store_segments(schema, commit)
    freed_numbers = {bytes(group.uid): group.pk for group in freed}
    for segment in found:
        moved = [freed_numbers[uid] for uid, _ in segment.groups if uid in freed_numbers]
        RecordGroup.objects.filter(pk__in=moved).update(segment_id=numbers[segment.uid])
    return numbers


def _store_segments(schema: Schema, commit: Checked) -> dict[bytes, int]:
    found = commit.body.segments
    if IndexSegment.objects.filter(schema=schema, uid__in=[s.uid for s in found]).exists():
        raise Conflict("a segment's uid is taken", code="uid_taken")
    stored = IndexSegment.objects.bulk_create(
        IndexSegment(schema=schema, uid=s.uid, form=s.form, count=s.count, pages=s.pages)
        for s in found
    )
    numbers = {bytes(segment.uid): segment.pk for segment in stored}
    store.add_pages(
        (numbers[uid], number, data)
        for uid, pages in commit.pages.items()
        for number, data in enumerate(pages)
    )
    return numbers


def _add_groups(schema: Schema, commit: Checked, segments: dict[bytes, int], version: int) -> None:
    """Store the new groups with their rows, or make those that are stored ahead visible.

    Raises:
        Conflict: ``uid_taken``, ``record_exists``.
    """
    body = commit.body
    if commit.staged:
        for segment in body.segments:
            own = [commit.staged.groups.get(uid) for uid, _ in segment.groups]
            for some in store.cut([number for number in own if number is not None]):
                RecordGroup.objects.filter(pk__in=some).update(
                    segment_id=segments[segment.uid], version=version, key_id=body.key_id
                )
        return
    if RecordGroup.objects.filter(schema=schema, uid__in=[g.uid for g in body.groups]).exists():
        raise Conflict("a group's uid is taken", code="uid_taken")
    segment_of = {uid: segment.uid for segment in body.segments for uid, _ in segment.groups}
    groups = RecordGroup.objects.bulk_create(
        RecordGroup(
            schema=schema,
            uid=group.uid,
            version=version,
            segment_id=segments[segment_of[group.uid]],
            key_version=group.key_version,
            key_id=body.key_id,
            count=group.count,
            live=group.count,
            fields=msgspec.json.encode(group.fields).decode(),
        )
        for group in body.groups
    )
    try:
        store.add_rows(
            (group.pk, ordinal, row.record_id, row.version, store.pack_fields(row.fields))
            for group in groups
            for ordinal, row in enumerate(commit.rows[bytes(group.uid)])
        )
    except IntegrityError:
        raise Conflict(
            "a record with one of these ids has that version already", code="record_exists"
        ) from None


def _log(schema: Schema, commit: Checked, version: int) -> None:
    body = commit.body
    CommitLog.objects.create(
        schema=schema,
        version=version,
        commit_id=body.id,
        digest=commit.digest,
        log_digest=wire.next_log_digest(bytes(schema.log_digest), commit.commit),
        body=commit.commit.body,
        mac=commit.commit.mac,
    )
    changed = WriterHead.objects.filter(schema=schema, writer=body.writer).update(
        counter=body.counter, digest=commit.digest
    )
    if not changed:
        WriterHead.objects.create(
            schema=schema, writer=body.writer, counter=body.counter, digest=commit.digest
        )
