"""The keys of one schema below its dataset's, as far as they were granted."""

from __future__ import annotations

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import Closed, KeyMissing, SchemaUnsigned
from encrypted_records.index.roster.grants import OpenedGrant
from encrypted_records.index.roster.roster import Roster


class SharedKeys:
    """Keys by epoch. ``roster`` grows in place, with each reading; which epoch is the newest says
    its entry ``number``, so that all of one commit is of one epoch. ``opened`` is None where the
    roster does not place the schema."""

    def __init__(
        self, organization: bytes, schema: bytes, roster: Roster, opened: OpenedGrant | None
    ) -> None:
        """
        Args:
            organization, schema: 16-byte identifiers.
        """
        self.organization = organization
        self.schema = schema
        self.roster = roster
        self.number = roster.number
        self.opened = opened
        self._derived: dict[int, SchemaKey] = {}

    def __repr__(self) -> str:
        return f"<SharedKeys of {self.opened!r}>"

    def renew(self, roster: Roster, number: int, opened: OpenedGrant | None) -> None:
        """Go by another entry of the roster, and by the grant that was opened since."""
        self.roster, self.number, self.opened = roster, number, opened
        if opened is not None:
            first = roster.first(opened.dataset)
            self._derived = {epoch: key for epoch, key in self._derived.items() if epoch >= first}

    @property
    def newest(self) -> SchemaKey:
        """Seals whatever is new.

        Raises:
            Closed: ``grant_missing``; the newest epoch's key was not granted.
            SchemaUnsigned: nobody has placed the schema.
        """
        epoch = None if self.opened is None else self.roster.epoch(self.opened.dataset, self.number)
        if self.opened is None or epoch is None:
            raise SchemaUnsigned("this schema was made at the API, and no owner has signed it")
        if self.opened.epoch < epoch.epoch:
            raise Closed(
                f"the dataset's keys are of epoch {epoch.epoch}, and those that you were granted"
                f" end with epoch {self.opened.epoch}",
                code="grant_missing",
                hint="ask an owner of the organization: ers share settle; what was stored before"
                " opens",
            )
        return self.of(epoch.epoch)

    def of(self, version: int) -> SchemaKey:
        """The schema's key of an epoch.

        Raises:
            KeyMissing: it was not granted.
        """
        key = self._derived.get(version)
        if key is None:
            if self.opened is None:
                raise KeyMissing("no key of this schema was granted to you")
            key = self._derived[version] = self.opened.schema(self.schema, version)
        return key

    def find(self, version: int, key_id: bytes) -> SchemaKey:
        """The key of an epoch, which must be the one that ``key_id`` names.

        Raises:
            KeyMissing: it was not granted, or is another; the message names it.
        """
        key = self.of(version)
        if key.id != key_id:
            raise KeyMissing(
                f"this schema's records are sealed with key {key_id.hex()} of epoch {version}, and"
                " the one that you were granted is another"
            )
        return key
