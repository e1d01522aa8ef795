"""What a schema's row says of its keys once a commit is in the log. Pure."""

from __future__ import annotations

from typing import Any

from encrypted_records.model.records import CommitBody
from encrypted_records.server.datasets.models import Schema


def key_state(schema: Schema, body: CommitBody, version: int, *, reseals: bool) -> dict[str, Any]:
    """What the schema's row says of keys once ``version`` is ``body``.

    Args:
        reseals: whether everything is sealed again by it.
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
