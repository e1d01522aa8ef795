"""The keys of one schema, whether they come from a keyring or were granted."""

from __future__ import annotations

from typing import Protocol

from encrypted_records.crypto.keys import SchemaKey


class LogKeys(Protocol):
    """One schema's keys, wherever they come from. ``version`` is a keyring's, or an epoch."""

    @property
    def organization(self) -> bytes: ...

    @property
    def schema(self) -> bytes: ...

    @property
    def newest(self) -> SchemaKey:
        """Seals whatever is new.

        Raises:
            Closed: it is not here.
        """

    def of(self, version: int) -> SchemaKey:
        """The schema's key of a version.

        Raises:
            KeyMissing: it is not here.
        """

    def find(self, version: int, key_id: bytes) -> SchemaKey:
        """The same, which must be the one that ``key_id`` names.

        Raises:
            KeyMissing: it is not here; the message names it.
        """
