"""Sources of a schema's keys and of the right to commit to it: the roster of its organization.

Where there is a roster, keys were granted, and the log is checked against the roster. An
organization without one has one keyring's keys and no signatures.

The keys of one schema below its dataset's, as far as they were granted.
"""

from __future__ import annotations

from collections.abc import Sequence

from encrypted_records import runtime
from encrypted_records.crypto.keys import LogKeys, SchemaKey
from encrypted_records.errors import (
    Closed,
    KeyMissing,
    Malformed,
    NotAllowed,
    NotFound,
    SchemaUnsigned,
)
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.signing import LogMembership
from encrypted_records.index.roster.access import require_reader
from encrypted_records.index.roster.grants import OpenedGrant
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import wire
from encrypted_records.model.records import ManifestDelta
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.sharing.reading import View
from encrypted_records.proxy.sharing.service import Sharing

#: Seconds for which a roster that was read is taken as it is, unless something names a newer one.
FRESH = 10.0


class KeySource:
    def __init__(self, keyrings: Keyrings, sharing: Sharing) -> None:
        self._keyrings = keyrings
        self._sharing = sharing

    async def keys(
        self, caller: Holder, organization: bytes, schema: bytes, key_id: bytes | None
    ) -> tuple[LogKeys, LogMembership | None]:
        """The keys of a schema, and by whom its commits count.

        Args:
            key_id: of its records, as the API says; None where it has none.

        Raises:
            KeyMissing: there are records, and the caller has no keyring here.
            NotAllowed: ``not_shared``, ``not_admitted``.
            ErsError: as :meth:`RosterReader.read` and :meth:`OwnGrants.open`.
        """
        if key_id is not None:
            existing = await runtime.in_thread(self._keyrings.existing, caller)
            if existing is None:
                # No keyring is made: it would block the one that the user will restore.
                name = f" with key {key_id.hex()}" if key_id else ""
                raise KeyMissing(f"this schema is encrypted{name}; you have no keyring here")
        view = await self._sharing.reader.read(caller, organization, within=FRESH)
        if view is None:
            keyring = await runtime.in_thread(self._keyrings.of, caller)
            return keyring.schema(organization, schema), None
        try:
            opened = await self._open(view, schema)
        except NotAllowed:
            # What was shared since the roster was read opens at once.
            view = await self._sharing.reader.read(caller, organization) or view
            opened = await self._open(view, schema)
        keys = SharedKeys(organization, schema, view.roster, opened)
        return keys, LogMembership(view.roster, view.user, view.identity)

    async def holds(
        self, caller: Holder, organization: bytes, schema: bytes, version: int, key_id: bytes
    ) -> bool:
        """Whether the caller has this key of a schema, in a keyring or granted.

        Raises:
            Unavailable: the API cannot be asked.
        """
        try:
            keys, _ = await self.keys(caller, organization, schema, key_id)
            keys.find(version, key_id)
        except (Closed, NotAllowed, NotFound):
            return False  # it is shown, and nothing is opened or sealed by it
        return True

    async def renew(self, caller: Holder, ledger: Ledger, *, within: float = FRESH) -> bool:
        """Update the roster that judges a log to its head, with its present keys.

        Returns:
            False where the organization has got its first entry since, so that nothing of the
            ledger holds any more.

        Raises:
            LogBroken: the log is not the one that an epoch ended which began since.
            ErsError: as :meth:`keys`.
        """
        keys, membership = ledger.keys, ledger.membership
        view = await self._sharing.reader.read(caller, keys.organization, within=within)
        if membership is None or not isinstance(keys, SharedKeys):
            return view is None
        assert view is not None, "a roster that was seen is there, or refused"
        roster, number, opened = view.roster, view.roster.number, keys.opened
        stands = keys.roster is roster and keys.number == number
        if opened is None or not stands or not _holds(roster, opened):
            opened = await self._open(view, keys.schema)
        # Both at once: others read the roster on while the grant is fetched.
        membership.renew(roster, number, view.identity)
        keys.renew(roster, number, opened)
        ledger.check_ends()
        return True

    async def refresh(self, caller: Holder, state: SchemaState) -> int:
        """Read the roster again before the log is read, unless that was a moment ago.

        Returns:
            The number of the entry to which it was read; 0 where there is none.

        Raises:
            ErsError: as :meth:`renew`.
        """
        ledger = state.ledger
        if ledger.membership is not None or state.roster_moved:
            within = 0.0 if state.roster_moved else FRESH
            if not await self.renew(caller, ledger, within=within):
                await self.begin_again(caller, state)
            state.roster_moved = False
        by = state.ledger.membership
        return 0 if by is None else by.number

    async def begin_again(self, caller: Holder, state: SchemaState) -> None:
        """Replace a ledger by an empty one under the keys that hold by now: where an organization
        has got a roster, nothing of an earlier ledger counts.

        Raises:
            ErsError: as :meth:`keys`.
        """
        keys, by = await self.keys(caller, state.ledger.keys.organization, state.id, None)
        state.ledger = Ledger(keys, state.ledger.writer, by)

    async def follow(
        self, caller: Holder, state: SchemaState, deltas: Sequence[ManifestDelta]
    ) -> None:
        """Read the roster that the newest of these commits names, where it is not known yet."""
        by, named = state.ledger.membership, _newest_roster(deltas)
        if by is None and named and not state.ledger.version:
            # Founded since this proxy looked, by the first who stored.
            await self.begin_again(caller, state)
        elif by is not None and named > by.number:
            await self.renew(caller, state.ledger, within=0)

    async def _open(self, view: View, schema: bytes) -> OpenedGrant | None:
        """The grant of a schema's dataset; None where the roster does not place the schema."""
        placed = view.roster.schema(schema)
        if placed is None:
            return None
        require_reader(view.roster, view.user, schema)
        return await self._sharing.grants.open(view, placed.dataset, newest=False)


def _holds(roster: Roster, opened: OpenedGrant) -> bool:
    """Whether a grant has the newest epoch's key."""
    epoch = roster.epoch(opened.dataset)
    return epoch is not None and opened.epoch >= epoch.epoch


def _newest_roster(deltas: Sequence[ManifestDelta]) -> int:
    """The entry of the roster that the newest of these commits names; 0 where there is none."""
    commits = [entry.commit for delta in deltas for entry in delta.entries[-1:]]
    try:
        return wire.decode_commit_body(commits[-1]).roster if commits else 0
    except Malformed:
        return 0


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
        """The newest key, for encrypting new data.

        Raises:
            Closed: ``grant_missing``; the newest epoch's key was not granted.
            SchemaUnsigned: the schema is not in the signed roster.
        """
        epoch = None if self.opened is None else self.roster.epoch(self.opened.dataset, self.number)
        if self.opened is None or epoch is None:
            raise SchemaUnsigned("this schema was created at the API, and no owner has signed it")
        if self.opened.epoch < epoch.epoch:
            raise Closed(
                f"the dataset's keys are of epoch {epoch.epoch}, and your grant ends with"
                f" epoch {self.opened.epoch}",
                code="grant_missing",
                hint="ask an owner of the organization to run ers share settle; earlier records"
                " can still be decrypted",
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
                raise KeyMissing("you were not granted a key of this schema")
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
                f"this schema's records are encrypted with key {key_id.hex()} of epoch"
                f" {version}, and your grant has another key"
            )
        return key
