"""What a commit must be based on to be applied: key, own head, log (its definition:
:mod:`.definitions`).

Decided under the lock of the schema's row. Each refusal is a conflict whose code names the
condition that does not hold.
"""

from __future__ import annotations

from encrypted_records.errors import Conflict
from encrypted_records.model.records import MAX_BEHIND, CommitBody
from encrypted_records.server.commits.checks import Checked
from encrypted_records.server.datasets.models import EMPTY_LOG_DIGEST, Schema
from encrypted_records.server.records.models import CommitLog


def require_writer_knows(schema: Schema, commit: Checked, head: tuple[int, bytes] | None) -> None:
    """
    Args:
        head: number and digest of the writer's last commit, where it has one.

    Raises:
        Conflict: ``writer_conflict``, ``log_moved``, ``log_conflict`` or ``key_mismatch``.
    """
    body = commit.body
    _require_key(schema, body)
    counter, previous = head or (0, bytes(32))
    if body.counter != counter + 1 or body.previous != previous:
        raise Conflict(
            "the commit does not follow the writer's last one",
            code="writer_conflict",
            hint="read the manifest, then make the commit again; after restoring an old state,"
            " use a new writer",
        )
    if body.segments and body.seen < schema.resealed_at:
        raise Conflict(
            "everything was sealed again, which the writer has not seen",
            code="log_moved",
            hint="read the manifest, then make the commit again",
        )
    if body.exact and body.seen < schema.added_at:
        raise Conflict(
            "records were added that the writer has not seen",
            code="log_moved",
            hint="read the manifest, then make the commit again",
        )
    if schema.version - body.seen > MAX_BEHIND:
        raise Conflict(
            f"the writer has not read the log for more than {MAX_BEHIND} versions",
            code="log_conflict",
            hint="read the manifest, then make the commit again",
        )
    if body.seen > schema.version or body.seen_digest != _digest_at(schema, body.seen):
        raise Conflict(
            "the log that the writer has seen is not a beginning of this one",
            code="log_conflict",
            hint="if the API was restored from a backup, restore its newest one",
        )


def _require_key(schema: Schema, body: CommitBody) -> None:
    """Check the commit's key against the log's (docs/SPEC.md, section 7.5)."""
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


def _digest_at(schema: Schema, version: int) -> bytes:
    if version == 0:
        return EMPTY_LOG_DIGEST
    if version == schema.version:
        return bytes(schema.log_digest)
    return bytes(CommitLog.objects.get(schema=schema, version=version).log_digest)
