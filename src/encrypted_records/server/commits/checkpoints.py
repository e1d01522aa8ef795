"""Checkpoints of logs: a new reader skips the commits before a checkpoint (docs/SPEC.md, section
7.9).

The API checks a checkpoint's signer and version; only proxies interpret the state in it. All
commits stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import msgspec
from django.db import transaction
from django.db.models import Q, QuerySet

from encrypted_records.errors import BadInput, Conflict, Malformed
from encrypted_records.model import ids, wire
from encrypted_records.model.wire import Checkpoint, CheckpointBody
from encrypted_records.server import permissions
from encrypted_records.server.accounts.models import User
from encrypted_records.server.commits import judging
from encrypted_records.server.commits.judging import Signed
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.organizations.models import DatasetKey, Shared, Standing
from encrypted_records.server.records.models import CommitLog, LogCheckpoint
from encrypted_records.server.rows import queries

#: The most checkpoints kept per schema.
KEPT = 3


@dataclass(frozen=True)
class Listed:
    """A checkpoint in a list; ``digest`` identifies it, in hexadecimal."""

    version: int
    key_version: int
    digest: str
    bytes: int


def add(user: User, schema_id: str, checkpoint: Checkpoint) -> bool:
    """Store a checkpoint, and delete all but the newest. Returns whether it was new.

    Raises:
        BadInput: ``invalid_checkpoint``; it is not of this log, or not signed by the user.
        Conflict: ``roster_moved``, ``key_mismatch``, or ``log_conflict``.
        NotFound: the user cannot reach such a schema.
        NotAllowed: ``not_writer``.
    """
    try:
        body = wire.decode_checkpoint_body(checkpoint)
    except Malformed as error:
        raise BadInput(error.message, code="invalid_checkpoint") from None
    reached = permissions.schemas(user).select_related("dataset__organization")
    with transaction.atomic():
        schema = permissions.find(reached.select_for_update(of=("self",), no_key=True), schema_id)
        permissions.require_writer(user, schema)
        signed = Signed(
            "checkpoint", body, checkpoint.signature, wire.checkpoint_message(checkpoint)
        )
        signed.require(body.schema == schema.uid, "a checkpoint is of another schema")
        judging.require_signer(user, schema, signed)
        _require_of_log(schema, body)
        return _keep(schema, body, checkpoint)


def _require_of_log(schema: Schema, body: CheckpointBody) -> None:
    if (schema.key_version or 0) > body.key_version:
        raise Conflict("the schema has newer keys now", code="key_mismatch")
    entry = CommitLog.objects.filter(schema=schema, version=body.version)
    digest = entry.values_list("log_digest", flat=True).first()
    if digest is None or bytes(digest) != body.digest:
        raise Conflict("a checkpoint is not of this log", code="log_conflict")


def _keep(schema: Schema, body: CheckpointBody, checkpoint: Checkpoint) -> bool:
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
    newest = list(_newest_first(schema).values_list("pk", flat=True)[:KEPT])
    LogCheckpoint.objects.filter(schema=schema).exclude(pk__in=newest).delete()
    return True


def _newest_first(schema: Schema) -> QuerySet[LogCheckpoint]:
    return LogCheckpoint.objects.filter(schema=schema).order_by("-version", "-pk")


def list_usable(schema: Schema) -> list[Listed]:
    """Checkpoints that proxies would accept, the newest first."""
    shown = _usable(schema).values_list("version", "key_version", "digest", "size")
    return [
        Listed(version, key_version, bytes(digest).hex(), size)
        for version, key_version, digest, size in shown
    ]


def _usable(schema: Schema) -> QuerySet[LogCheckpoint]:
    """Checkpoints of the current epoch that match the log, by members who may write now."""
    found = _newest_first(schema).filter(version__lte=schema.version)
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


def manifest(schema: Schema, known: int) -> Iterator[msgspec.Struct]:
    """The newest usable checkpoint, and the log after it or after ``known``, whichever is older.
    The whole log if there is no checkpoint.

    Args:
        known: the version that the caller knows; 0 for none.

    Raises:
        Conflict: ``log_conflict``; the log does not reach ``known``.
    """
    if known > schema.version:
        return iter(queries.manifest(schema, known))
    newest = _usable(schema).first()
    if newest is None:
        return iter(queries.manifest(schema, 0))
    found = Checkpoint(bytes(newest.body), bytes(newest.mac), bytes(newest.signature))
    since = min(known, newest.version) if known else newest.version
    return chain([found], queries.manifest(schema, since, headers=True))
