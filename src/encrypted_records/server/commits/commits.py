"""Apply commits, all of a request in one transaction or none; and the checkpoints of logs.

A commit is judged under the lock of its schema's row, against the stored state:

1. a commit that is already in the log gets its receipt again, so a retry is safe;
2. its writer must know the current definition, the schema's key, the writer's own last commit, and
   a prefix of the stored log;
3. the records it adds must be new, the rows and segments it ends or replaces must be live, and
   its new segments must cover all groups of the replaced segments.

The loser of a race gets a conflict; its code names the condition that did not hold. Schemas are
locked in the order of their ids, so that two requests never deadlock.

A new reader skips the commits before a checkpoint (docs/SPEC.md, section 7.9). The API checks a
checkpoint's signer and version; only proxies interpret the state in it. All commits stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from encrypted_records import errors
from encrypted_records.model import ids, records, resources, wire
from encrypted_records.rules import commit_judging
from encrypted_records.rules.commit_judging import CommitFault, Log
from encrypted_records.server import permissions, sql
from encrypted_records.server.accounts.models import User
from encrypted_records.server.commits import checks, judging, staging, storing
from encrypted_records.server.datasets.models import EMPTY_LOG_DIGEST, Schema
from encrypted_records.server.db.fields import as_stored
from encrypted_records.server.db.statements import Statement, insert, update
from encrypted_records.server.erasure import damage, erasing
from encrypted_records.server.objects import objects
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.models import DatasetKey, Shared, Standing
from encrypted_records.server.records import store
from encrypted_records.server.records.models import (
    CommitLog,
    CommitRequest,
    IndexSegment,
    LogCheckpoint,
    PagePart,
    RecordGroup,
    WriterHead,
)
from encrypted_records.server.rows import contents, queries

#: From a commit as it was checked to the commit as it is stored.
_Ready = Callable[[Schema, checks.CheckedCommit], checks.CheckedCommit]
#: Selects a schema by id and locks its row.
_locked = Statement(sql.LOCKED, permissions.WHOLE, locks="s")


@dataclass(frozen=True)
class CommitOutcome:
    """Receipts in the order of the commits; ``created`` is false if all were already in the log."""

    receipts: list[records.Receipt]
    created: bool


def apply(
    user: User, uploads: Sequence[records.CommitUpload], *, by_retention: bool = False
) -> CommitOutcome:
    """Apply the commits of one request.

    Args:
        by_retention: whether the sender says that the records end because of their age.

    Raises:
        Malformed, BadInput: a commit is not valid in itself.
        NotFound: the user cannot reach a schema.
        NotAllowed: ``not_writer``.
        StaleDefinition, MergeFirst, Conflict: the state has moved on or forbids the commit.
    """
    reached = _reach(user, [checks.check(upload) for upload in uploads])
    # Check shapes before taking any lock: this is the slow part.
    for schema, commit in reached:
        try:
            judging.require_current(schema, commit.body)
            checks.check_sealed(commit, judging.definitions_of(schema, commit.body))
        except errors.ErsError:
            # A commit in the log was valid when it was stored. Look it up only now, after a failed
            # check: nearly every commit is new.
            if _find_receipt(schema, commit) is None:
                raise
    commits = [commit for _, commit in reached]
    return _apply_all(user, commits, by_retention=by_retention)


def publish(user: User, uid: bytes, commits: Sequence[records.Commit]) -> CommitOutcome:
    """Apply commits whose rows and pages are in the staging ``uid``.

    Raises:
        NotFound: ``staging_gone``; or as :func:`apply`.
        Malformed, BadInput, StaleDefinition, MergeFirst, Conflict: as :func:`apply`.
    """
    checked = [checks.check_bare(commit) for commit in commits]
    for schema, commit in _reach(user, checked):
        if _find_receipt(schema, commit) is None:
            judging.require_current(schema, commit.body)
    return _apply_all(
        user,
        checked,
        lambda schema, commit: replace(commit, staged=staging.take(user, schema, uid, commit.body)),
    )


def _reach(
    user: User, commits: Sequence[checks.CheckedCommit]
) -> list[tuple[Schema, checks.CheckedCommit]]:
    """Each commit with its schema.

    Raises:
        BadInput: ``invalid_commit``; two commits are for the same schema.
        NotFound: the user cannot reach a schema.
        NotAllowed: ``not_writer``.
    """
    schema_ids = [ids.to_text(commit.body.schema) for commit in commits]
    if len(set(schema_ids)) != len(schema_ids):
        raise errors.BadInput(
            "two commits of one request are for one schema", code="invalid_commit"
        )
    found = [permissions.to_store_into(user, schema_id) for schema_id in schema_ids]
    for schema, is_written in found:
        permissions.require_written(schema, is_written)
    return [(schema, commit) for (schema, _), commit in zip(found, commits, strict=True)]


def _apply_all(
    user: User,
    commits: Sequence[checks.CheckedCommit],
    ready: _Ready = lambda _, commit: commit,
    *,
    by_retention: bool = False,
) -> CommitOutcome:
    """Apply commits in one transaction; ``ready`` is called under the lock of the schema's row."""
    schema_ids = [ids.to_text(commit.body.schema) for commit in commits]
    with transaction.atomic():
        locked: dict[str, Schema] = {}
        for stored in sorted(map(as_stored, schema_ids)):
            for row in _locked.rows(schema=stored):
                schema = permissions.schema_of(row)
                locked[schema.pk] = schema
        outcomes = []
        for schema_id, commit in zip(schema_ids, commits, strict=True):
            if schema_id not in locked:
                raise errors.NotFound("there is no such schema, or none that you can reach")
            outcomes.append(
                _apply_locked(user, locked[schema_id], commit, ready, by_retention=by_retention)
            )
    return CommitOutcome([receipt for receipt, _ in outcomes], any(new for _, new in outcomes))


def _apply_locked(
    user: User,
    schema: Schema,
    commit: checks.CheckedCommit,
    ready: _Ready,
    *,
    by_retention: bool,
) -> tuple[records.Receipt, bool]:
    """Apply one commit under the schema's lock; see :func:`_apply_all`. Returns its receipt, and
    whether the commit is new.
    """
    found = storing.find_facts(as_stored(user.pk), commit)
    # A user who lost the right during this request must not store anything.
    permissions.require_written(schema, found.is_written)
    receipt, is_new = _apply_one(user, schema, commit, found, ready)
    if is_new:
        _note(user, schema, commit, by_retention=by_retention)
    return receipt, is_new


def _note(user: User, before: Schema, commit: checks.CheckedCommit, *, by_retention: bool) -> None:
    organization_id = before.dataset.organization_id
    if before.key_id is None or bytes(before.key_id) != commit.body.key_id:
        audit.note(user, audit.Action.KEY_CHANGED, organization_id, before.url)
    action = _action(commit.body)
    if by_retention and action is audit.Action.RECORDS_DELETED:
        action = audit.Action.RECORDS_EXPIRED
    audit.note(user, action, organization_id, before.url)


def _action(body: records.CommitBody) -> audit.Action:
    """The audited action of a commit; a merge may be part of any of the first three."""
    if not body.changes_data:
        return audit.Action.SCHEMA_CHANGED
    if body.ended:
        return audit.Action.RECORDS_COMPACTED if body.compacts else audit.Action.RECORDS_RESEALED
    if body.groups:
        return audit.Action.RECORDS_CHANGED if body.killed else audit.Action.RECORDS_STORED
    return audit.Action.RECORDS_DELETED if body.killed else audit.Action.INDEX_MERGED


def _find_receipt(schema: Schema, commit: checks.CheckedCommit) -> records.Receipt | None:
    """The receipt of a commit that is in the log.

    Raises:
        Conflict: ``commit_reused``; the log has its id with other content.
    """
    return _receipt(commit, storing.in_log.row(schema=schema.uid, id=commit.body.id))


def _receipt(commit: checks.CheckedCommit, logged: Sequence[Any] | None) -> records.Receipt | None:
    """The receipt of a commit from its log row; see :func:`_find_receipt`, which reads the row."""
    if logged is None:
        return None
    version, digest = logged
    if bytes(digest) != commit.digest:
        raise errors.Conflict("another commit has this id already", code="commit_reused")
    return records.Receipt(commit.body.id, commit.body.schema, version)


def _apply_one(
    user: User,
    schema: Schema,
    commit: checks.CheckedCommit,
    found: storing.Facts,
    ready: _Ready,
) -> tuple[records.Receipt, bool]:
    receipt = _receipt(commit, found.logged)
    if receipt is not None:
        return receipt, False
    judging.require_signed(user, commit, found.signer)
    judging.require_current(schema, commit.body)
    known = judging.definitions_of(schema, commit.body)
    require_writer_knows(schema, commit, found.head)
    body, version = commit.body, schema.version + 1
    ends_all = _ends_all(schema, body)
    freed = free_groups(schema, body, version)
    if body.compacts:
        standing: storing.ReplacingGroups | None = storing.find_standing(schema, body)
    else:
        standing = storing.ReplacingGroups(body, freed) if body.ended else None
    # After the checks of ended groups: if a group has already ended, the writer lost a race, and
    # must get a conflict, not an error about the definition.
    changed = judging.enter_definition(schema, body, version, ends_all=ends_all)
    killed = end_rows(schema, body, version) if standing is None else set()
    commit = ready(schema, commit)
    if commit.staged:
        checks.check_stated(body.groups, known)
    if standing is None:
        places = storing.place_at_the_end(schema, body)
        require_successors(commit.changed(), killed)
    else:
        places = standing.places
        freed = [group for group in freed if group.pk not in standing.kept]
    segments_change = len(body.segments) - len(body.replaced)
    if segments_change > 0:
        _require_room(schema, body, staged=commit.staged is not None)
    sizes = {uid: place.size for uid, place in places.items()}
    segments: Mapping[bytes, int] = {}
    if not body.compacts:
        segments = storing.add_segments(schema, commit, found, freed, sizes, version)
    numbers = storing.add_groups(schema, commit, found, segments, places, version)
    if standing is not None:
        standing.finish(numbers, version)
    added = sum(group.count for group in body.groups) if body.adds_records else 0
    log_digest = wire.next_log_digest(bytes(schema.log_digest), commit.commit)
    _log(schema, commit, version, log_digest, is_first=found.head is None)
    update(
        Schema,
        {"id": schema.pk},
        version=version,
        **key_state(schema, body, version, reseals=ends_all and bool(body.exact)),
        **changed,
        **({"added_at": version} if body.adds_records else {}),
        log_digest=log_digest,
        live_rows=schema.live_rows + added - len(killed),
        stored_rows=schema.stored_rows + added,
        live_segments=schema.live_segments + segments_change,
    )
    return records.Receipt(body.id, body.schema, version), True


def _require_room(schema: Schema, body: records.CommitBody, *, staged: bool) -> None:
    """Check that merging keeps up with a commit that adds more segments than it replaces.

    Raises:
        MergeFirst: the schema would have too many small segments.
    """
    # Staged segments cannot be merged before they are visible; the proxy merges them right after.
    added = 0 if staged else sum(new.count <= records.SMALL_SEGMENT_ROWS for new in body.segments)
    if schema.live_segments + added <= records.MAX_SMALL_SEGMENTS:
        return
    # The replaced segments have already been superseded.
    small = IndexSegment.objects.filter(
        schema=schema,
        version__isnull=False,
        pages__gt=0,
        superseded_at=None,
        staging=None,
        count__lte=records.SMALL_SEGMENT_ROWS,
    )
    if small.count() + added > records.MAX_SMALL_SEGMENTS:
        raise errors.MergeFirst(
            f"the schema would have more than {records.MAX_SMALL_SEGMENTS} small segments, and each"
            " search has to read all of them"
        )


def _ends_all(schema: Schema, body: records.CommitBody) -> bool:
    """Whether a commit ends as many groups as are live. A later check makes sure that these are
    live.
    """
    if not body.ended or body.compacts:
        return False
    live = RecordGroup.objects.filter(schema=schema, staging=None, ended_at=None)
    return live.count() == len(body.ended)


def _log(
    schema: Schema,
    commit: checks.CheckedCommit,
    version: int,
    log_digest: bytes,
    *,
    is_first: bool,
) -> None:
    """Add a commit to the log.

    Args:
        log_digest: of the log with this commit.
        is_first: whether the writer has no commit yet.

    Raises:
        Conflict: ``commit_reused``; a request of the commit is already stored.
    """
    body = commit.body
    if body.requests:
        if CommitRequest.objects.filter(schema=schema, request__in=body.requests).exists():
            raise errors.Conflict("a request in the commit is already stored", code="commit_reused")
        requests = [CommitRequest(schema=schema, request=request) for request in body.requests]
        if len(requests) <= store.FEW:
            for request in requests:
                insert(request)
        else:
            CommitRequest.objects.bulk_create(requests)
    insert(
        CommitLog(
            schema=schema,
            version=version,
            commit_id=body.id,
            digest=commit.digest,
            log_digest=log_digest,
            body=commit.commit.body,
            mac=commit.commit.mac,
            signature=commit.commit.signature,
        )
    )
    head = {"counter": body.counter, "digest": commit.digest}
    if is_first:
        insert(WriterHead(schema=schema, writer=body.writer, **head))
    else:
        update(WriterHead, {"schema": schema.pk, "writer": body.writer}, **head)


# The key columns of a schema's row once a commit is in the log. Pure.


def key_state(
    schema: Schema, body: records.CommitBody, version: int, *, reseals: bool
) -> dict[str, Any]:
    """The key columns of the schema's row once ``version`` is ``body``.

    Args:
        reseals: whether the commit reseals everything.
    """
    resealed = {"resealed_at": version, "first_key_version": body.key_version} if reseals else {}
    if body.key_version == schema.key_version:
        return resealed
    first = schema.first_key_version or body.key_version
    return {
        "key_id": body.key_id,
        "key_version": body.key_version,
        "key_since": version,
        "first_key_version": first,
        **resealed,
    }


# The state that a commit must be based on: key, its writer's head, log (its definition:
# :mod:`.judging`).
#
# Checked under the lock of the schema's row. Each refusal is a conflict whose code names the
# condition that does not hold.


def require_writer_knows(
    schema: Schema, commit: checks.CheckedCommit, head: tuple[int, bytes] | None
) -> None:
    """Check the state that a commit is based on.

    Args:
        head: number and digest of the writer's last commit, if any.

    Raises:
        Conflict: ``writer_conflict``, ``log_moved``, ``log_conflict`` or ``key_mismatch``.
    """
    body = commit.body
    present, first = schema.key_version, schema.first_key_version
    if body.key_version == present and body.key_id != bytes(schema.key_id or b""):
        raise _key_mismatch("the schema's records are encrypted under another key")
    log = Log(schema.version, schema.added_at, schema.resealed_at, first, present, schema.key_since)
    reason = commit_judging.judge_keys(body, log)
    if reason is not None:
        raise _key_mismatch(reason.value)
    reason = commit_judging.judge_order(body, log, head or (0, bytes(32)))
    if reason is None and body.seen_digest != _digest_at(schema, body.seen):
        reason = CommitFault.OTHER_LOG
    if reason is not None:
        code, hint = _REFUSALS[reason]
        raise errors.Conflict(reason.value, code=code, hint=hint)


_AGAIN = "read the manifest, then make the commit again"
#: Code and hint of the conflict for each reason why a commit may not follow.
_REFUSALS = {
    CommitFault.WRITER: (
        "writer_conflict",
        f"{_AGAIN}; after restoring an old state, use a new writer",
    ),
    CommitFault.UNSEEN_RESEAL: ("log_moved", _AGAIN),
    CommitFault.UNSEEN_RECORDS: ("log_moved", _AGAIN),
    CommitFault.BEHIND: ("log_conflict", _AGAIN),
    CommitFault.OTHER_LOG: (
        "log_conflict",
        "if the API was restored from a backup, restore its newest one",
    ),
}


def _key_mismatch(message: str) -> errors.Conflict:
    return errors.Conflict(
        message,
        code="key_mismatch",
        hint="use the keyring that encrypted the schema's newest records: ers keyring restore"
        " restores it here from a recovery phrase for each of its versions",
    )


def _digest_at(schema: Schema, version: int) -> bytes:
    if version == 0:
        return EMPTY_LOG_DIGEST
    if version == schema.version:
        return bytes(schema.log_digest)
    return bytes(CommitLog.objects.get(schema=schema, version=version).log_digest)


# End the segments that a commit replaces and the rows that it deletes. Under the schema's lock.


def free_groups(schema: Schema, body: records.CommitBody, version: int) -> list[RecordGroup]:
    """The groups of the segments that the commit replaces, as they are before it.

    Raises:
        Conflict: ``segment_not_live``.
    """
    if not body.replaced:
        return []
    old = IndexSegment.objects.filter(schema=schema, uid__in=body.replaced, superseded_at=None)
    numbers = list(old.values_list("pk", flat=True))
    if len(numbers) != len(body.replaced):
        raise errors.Conflict(
            "a segment that the commit replaces is not live",
            code="segment_not_live",
            hint="somebody else merged it; read the manifest again",
        )
    freed = list(RecordGroup.objects.filter(segment_id__in=numbers))
    objects.doom(PagePart.objects.filter(segment_id__in=numbers))
    old.update(superseded_at=timezone.now(), replaced=version)
    return freed


def end_rows(schema: Schema, body: records.CommitBody, version: int) -> set[contents.Identity]:
    """Mark the rows that the commit ends; returns their record ids and versions.

    Raises:
        Conflict: ``row_not_live``.
    """
    killed = body.killed
    if not killed:
        return set()
    groups = {
        bytes(uid): pk
        for batch in store.cut(killed)
        for pk, uid in RecordGroup.objects.filter(
            schema=schema, uid__in=[kills.group for kills in batch], staging=None, ended_at=None
        ).values_list("pk", "uid")
    }
    gone = errors.Conflict(
        "a row that the commit ends is not live",
        code="row_not_live",
        hint="somebody else changed or deleted the record; read it again and repeat",
    )
    if len(groups) != len(killed):
        raise gone
    keys = [(groups[row.group], row.ordinal) for kills in killed for row in kills.rows()]
    ended, without = _identities(keys)
    if len(ended) + without != len(keys) or store.dead_among(keys):
        raise gone
    store.add_dead((group, ordinal, version) for group, ordinal in keys)
    for rows in killed:
        RecordGroup.objects.filter(pk=groups[rows.group]).update(
            live=F("live") - rows.count, erase_at=erasing.soon()
        )
    return set(ended.values())


def _identities(keys: Sequence[store.Key]) -> tuple[dict[store.Key, contents.Identity], int]:
    """Id and version of each of these rows that has bytes, and the number of the other rows. Those
    were erased or found to be lost, so that their ids are unknown.

    Raises:
        ObjectLost: an object is missing that was not marked as lost.
    """
    try:
        ended = contents.versions_at(keys)
    except errors.ObjectLost:
        without = damage.among(keys)
        if not without:
            raise
        return contents.versions_at([key for key in keys if key not in without]), len(without)
    left = [key for key in keys if key not in ended]
    return ended, len(damage.among(left)) if left else 0


def require_successors(
    changed: Iterable[contents.Identity], killed: set[contents.Identity]
) -> None:
    """Check that each changed record is the only successor of a row that the commit ends.

    Raises:
        Conflict: ``record_version``.
    """
    followed: set[contents.Identity] = set()
    for record_id, version in changed:
        before = (record_id, version - 1)
        if before not in killed or before in followed:
            raise errors.Conflict(
                "a commit adds a new version of a record without ending the previous one",
                code="record_version",
                hint="read the record again and repeat the change on its current version",
            )
        followed.add(before)


#: The most checkpoints kept per schema.
KEPT_CHECKPOINTS = 3


def add_checkpoint(user: User, schema_id: str, checkpoint: wire.Checkpoint) -> bool:
    """Store a checkpoint, and delete all but the newest. Returns whether it was new.

    Raises:
        BadInput: ``invalid_checkpoint``; it is not of this log, or not signed by the user.
        Conflict: ``roster_moved``, ``key_mismatch``, or ``log_conflict``.
        NotFound: the user cannot reach such a schema.
        NotAllowed: ``not_writer``.
    """
    try:
        body = wire.decode_checkpoint_body(checkpoint)
    except errors.Malformed as error:
        raise errors.BadInput(error.message, code="invalid_checkpoint") from None
    reached = permissions.schemas(user).select_related("dataset__organization")
    with transaction.atomic():
        schema = permissions.find(reached.select_for_update(of=("self",), no_key=True), schema_id)
        permissions.require_writer(user, schema)
        signed = judging.Signed(
            "checkpoint", body, checkpoint.signature, wire.checkpoint_message(checkpoint)
        )
        signed.require(body.schema == schema.uid, "a checkpoint is of another schema")
        judging.require_signer(user, schema, signed)
        _require_of_log(schema, body)
        return _store_checkpoint(schema, body, checkpoint)


def _require_of_log(schema: Schema, body: wire.CheckpointBody) -> None:
    if (schema.key_version or 0) > body.key_version:
        raise errors.Conflict("the schema has newer keys now", code="key_mismatch")
    entry = CommitLog.objects.filter(schema=schema, version=body.version)
    digest = entry.values_list("log_digest", flat=True).first()
    if digest is None or bytes(digest) != body.digest:
        raise errors.Conflict("a checkpoint is not of this log", code="log_conflict")


def _store_checkpoint(
    schema: Schema, body: wire.CheckpointBody, checkpoint: wire.Checkpoint
) -> bool:
    digest = wire.checkpoint_digest(checkpoint)
    if LogCheckpoint.objects.filter(schema=schema, digest=digest).exists():
        return False
    LogCheckpoint.objects.create(
        schema=schema,
        version=body.version,
        key_version=body.key_version,
        member=body.member,
        digest=digest,
        size=len(checkpoint.body),
        body=checkpoint.body,
        mac=checkpoint.mac,
        signature=checkpoint.signature,
    )
    newest = list(_newest_checkpoints(schema).values_list("pk", flat=True)[:KEPT_CHECKPOINTS])
    LogCheckpoint.objects.filter(schema=schema).exclude(pk__in=newest).delete()
    return True


def _newest_checkpoints(schema: Schema) -> QuerySet[LogCheckpoint]:
    return LogCheckpoint.objects.filter(schema=schema).order_by("-version", "-pk")


def usable_checkpoints(schema: Schema) -> list[resources.UsableCheckpoint]:
    """Checkpoints that proxies would accept, the newest first."""
    shown = _query_usable(schema).values_list("version", "key_version", "digest", "size")
    return [
        resources.UsableCheckpoint(version, key_version, bytes(digest).hex(), size)
        for version, key_version, digest, size in shown
    ]


def _query_usable(schema: Schema) -> QuerySet[LogCheckpoint]:
    """Checkpoints of the current epoch that match the log, by members who may write now."""
    found = _newest_checkpoints(schema).filter(version__lte=schema.version)
    organization = schema.dataset.organization_id
    epoch = DatasetKey.objects.filter(dataset=schema.dataset_id, organization=organization).first()
    standings = Standing.objects.filter(organization=organization, present=True)
    if epoch is None and not standings.exists():
        return found.filter(member=bytes(ids.ID_BYTES), key_version__gte=schema.key_version or 0)
    writers = Shared.objects.filter(
        Q(schema=None) | Q(schema=schema.pk), dataset=schema.dataset_id, writes=True
    )
    may = standings.filter(Q(is_owner=True) | Q(member__in=writers.values("member")))
    members = [ids.from_text(value) for value in may.values_list("member", flat=True)]
    return found.filter(key_version=0 if epoch is None else epoch.epoch, member__in=members)


def log_behind(schema: Schema, known: int) -> Iterator[msgspec.Struct]:
    """The newest usable checkpoint, and the log after it or after ``known``, whichever is older.
    The whole log if there is no checkpoint.

    Args:
        known: the version that the caller knows; 0 for none.

    Raises:
        Conflict: ``log_conflict``; the log does not reach ``known``.
    """
    if known > schema.version:
        return iter(queries.manifest(schema, known))
    newest = _query_usable(schema).first()
    if newest is None:
        return iter(queries.manifest(schema, 0))
    found = wire.Checkpoint(bytes(newest.body), bytes(newest.mac), bytes(newest.signature))
    since = min(known, newest.version) if known else newest.version
    return chain([found], queries.manifest(schema, since, headers=True))
