"""Data of a schema that an older key opens, and data that may not be stored any more."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from django.db import connection

from encrypted_records.errors import Conflict
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.fields import as_stored
from encrypted_records.server.records.models import AskedErasure, RecordGroup, Staging


def of_older_keys(schema: Schema, first: int) -> Iterator[str]:
    """Reasons in words why key versions before ``first`` cannot be forgotten; none where they open
    nothing that is stored. The schema's row is locked.

    What ended is gone once its erasure is done, from the files of the database, too; the version at
    which everything was sealed again is the newest at which something of an older key can end.
    """
    stored = (schema.key_version or first, schema.first_key_version or first)
    if min(stored) < first:
        yield f"has records that were sealed under epoch {min(stored)}"
        return
    asked = AskedErasure.objects.filter(schema=schema).first()
    if schema.resealed_at > (0 if asked is None else asked.done):
        yield "still has what was sealed again: it is not erased, or somebody reads it"
    older = RecordGroup.objects.filter(schema=schema, key_version__lt=first, count__gt=0)
    if older.filter(staging__isnull=False).exists():
        yield "has a job under way that began under an older key"
    # Segments that are staged alone do not say of which key they are.
    elif schema.resealed_at and _staged_merges(schema):
        yield "has a merge of its index under way"


def _staged_merges(schema: Schema) -> bool:
    return Staging.objects.filter(schema=schema).exclude(groups__isnull=False).exists()


def require_not_forgotten(schema: Schema, versions: Collection[int]) -> None:
    """Check that nothing is staged under an epoch that was forgotten. On PostgreSQL its entry waits
    for the transaction of the caller, or the other way round; SQLite has one writer.

    Raises:
        Conflict: ``key_mismatch``.
    """
    wait = " FOR SHARE" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f'SELECT "first" FROM roster_dataset WHERE dataset = %s{wait}',  # noqa: S608
            [as_stored(schema.dataset_id)],
        )
        found = cursor.fetchone()
    if found is not None and any(version < found[0] for version in versions):
        raise Conflict(
            f"the dataset's keys before epoch {found[0]} were forgotten",
            code="key_mismatch",
            hint="read the roster to its end, and seal it again under its newest keys",
        )
