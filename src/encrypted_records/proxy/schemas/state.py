"""The state of one schema as this proxy has verified it, and the sources of its keys.

If a dataset's organization has a roster, keys are granted, and the log is checked against the
roster. An organization without a roster uses the keys of one keyring and no signatures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from encrypted_records import errors, runtime
from encrypted_records.client.api import Api
from encrypted_records.crypto.keys import LogKeys, SchemaKey
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import LogHead, LogMembership, LogOlder
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.roster.access import OpenedGrant
from encrypted_records.index.roster.roster import Roster, require_reader
from encrypted_records.model import ids, wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.records import ManifestDelta, RowRef
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.process import by_size
from encrypted_records.proxy.schemas.store import AcceptedHead
from encrypted_records.proxy.sharing.reading import FRESH, View
from encrypted_records.proxy.sharing.settling import Sharing


@dataclass(frozen=True, slots=True)
class ShownSchema:
    """``definition`` counts until the log has a commit, or the roster has the schema."""

    organization: bytes
    dataset: bytes
    slug: str
    name: str
    definition: SchemaDefinition


async def read_shown(api: Api, caller: Holder, schema: bytes) -> ShownSchema:
    """
    Raises:
        NotFound: the schema does not exist, or the caller may not read it.
        ApiFailed: the answer does not fit this version.
    """
    resource = await api.schema(schema, caller.auth)
    try:
        text = bytes(resource.schema)
        return ShownSchema(
            ids.from_reference(resource.organization, "organizations", pointer="/organization"),
            ids.from_reference(resource.dataset, "datasets", pointer="/dataset"),
            resource.slug,
            resource.name,
            await by_size(len(text))(parse_definition, text),
        )
    except errors.BadInput:
        raise errors.ApiFailed("the API's answer contains no schema of this version") from None


@dataclass
class SchemaState:
    """A schema as opened by one user's keyring. Change it only while holding ``lock``."""

    id: bytes
    #: its definition counts until the log has a commit, or the roster has the schema
    shown: ShownSchema
    ledger: Ledger
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: an earlier commit may or may not have been stored, or the log could not be followed; read
    #: the log before drafting another commit
    uncertain: bool = False
    #: the API knows a newer roster than this proxy, or newer keys
    roster_moved: bool = False
    #: the roster entry at which this user was found to be allowed to store
    ready_at: int = 0
    #: number of commits of the log that are stored on disk
    kept: int = 0
    #: version and key version of the newest known checkpoint, and of the log at the last attempt to
    #: write a checkpoint
    checkpointed: tuple[int, int] = (0, 0)
    tried: tuple[int, int] = (0, 0)
    #: the digest of the newest checkpoint that this process has written
    own_checkpoint: bytes = b""

    @property
    def definition(self) -> SchemaDefinition:
        """The definition by the log; before the first commit nothing can prove it."""
        return self.ledger.definition or self.shown.definition


@dataclass(frozen=True, slots=True)
class SoundPart:
    """The authentic part of a schema's log, whatever comes after it.

    ``ledger`` belongs to the caller. ``broken`` says why it ends early; it is None if the ledger
    reaches the end. ``seen`` is what this proxy has seen of the log before.
    """

    definition: SchemaDefinition
    ledger: Ledger
    broken: errors.ErsError | None
    seen: LogHead | None
    #: id of the newest commit of the ledger, which contains a time
    newest: bytes | None

    @property
    def fault(self) -> errors.ErsError | None:
        """The fault of the log; None if it has none."""
        lacks = self.seen is not None and not self.ledger.knows(self.seen)
        return self.broken or (lacking() if lacks else None)


class EndedRows(Protocol):
    """A cache of sealed rows, from which deleted and replaced rows are removed."""

    def forget(self, schema: bytes, snapshot: Snapshot, rows: Iterable[RowRef]) -> None:
        """Drop these rows from the caches."""

    def forget_between(self, schema: bytes, numbers: range) -> None:
        """Drop all cached rows with these numbers, because they are in other groups now."""

    def forget_segments(self, uids: Collection[bytes]) -> None:
        """Drop all pages of these segments."""


def not_shown() -> errors.LogBroken:
    """The error of a log that is older than what was seen, but not shown to be a part of it."""
    return errors.LogBroken(
        "the log is not shown to be an earlier state of what this proxy has seen",
        hint="use another copy: this one has other commits, or too many are missing",
    )


def lacking(accepted: Sequence[AcceptedHead] = (), *, is_fork: bool = False) -> errors.LogBroken:
    """The error of a log that lacks commits which a user of this proxy has seen.

    Args:
        accepted: acceptances by other users of this proxy, who accepted a log that lacks commits.
        is_fork: whether it has other commits in their place.
    """
    message = "the API's log lacks commits that this proxy has seen"
    if accepted:
        newest = accepted[0]
        when = errors.time_of(newest.time / 1000)
        who = "another user" if newest.writer else "a reader"
        message += (
            f"; {who} of this proxy accepted version {newest.head.version} of it at {when},"
            " which does not count for others"
        )
    return errors.LogBroken(message) if is_fork else LogOlder(message)


def may_write(caller: Holder, ledger: Ledger) -> bool:
    """Whether the caller may write the schema of a log, by the roster that this proxy trusts; true
    if the organization has none."""
    by = ledger.membership
    return by is None or by.roster.may_write(caller.user, ledger.keys.schema)


class KeySource:
    def __init__(self, keyrings: Keyrings, sharing: Sharing) -> None:
        self._keyrings = keyrings
        self._sharing = sharing

    async def keys(
        self, caller: Holder, organization: bytes, schema: bytes, key_id: bytes | None
    ) -> tuple[LogKeys, LogMembership | None]:
        """The keys of a schema, and the membership by which its commits count.

        Args:
            key_id: of its records, according to the API; None if it has no records.

        Raises:
            KeyMissing: there are records, and the caller has no keyring here.
            NotAllowed: ``not_shared``, ``not_admitted``.
            ErsError: as :meth:`RosterReader.read` and :meth:`OwnGrants.open`.
        """
        if key_id is not None:
            existing = await runtime.in_thread(self._keyrings.existing, caller)
            if existing is None:
                # No keyring is made: it would block the keyring that the user will restore.
                name = f" with key {key_id.hex()}" if key_id else ""
                raise errors.KeyMissing(f"this schema is encrypted{name}; you have no keyring here")
        view = await self._sharing.reader.read(caller, organization, within=FRESH)
        if view is None:
            keyring = await runtime.in_thread(self._keyrings.of, caller)
            return keyring.schema(organization, schema), None
        try:
            opened = await self._open(view, schema)
        except errors.NotAllowed:
            # Schemas that were shared since the roster was read open at once.
            view = await self._sharing.reader.read(caller, organization) or view
            opened = await self._open(view, schema)
        keys = SharedKeys(organization, schema, view.roster, opened)
        return keys, LogMembership(view.roster, view.user, view.identity)

    async def holds(
        self, caller: Holder, organization: bytes, schema: bytes, version: int, key_id: bytes
    ) -> bool:
        """Whether the caller has this key of a schema, in a keyring or granted.

        Raises:
            Unavailable: the API does not answer.
        """
        try:
            keys, _ = await self.keys(caller, organization, schema, key_id)
            keys.find(version, key_id)
        except (errors.Closed, errors.NotAllowed, errors.NotFound):
            return False  # the schema is shown, but no data is opened or sealed
        return True

    async def renew(self, caller: Holder, ledger: Ledger, *, within: float = FRESH) -> bool:
        """Update the roster that judges a log to its head, with its current keys.

        Returns:
            False if the organization has got its first entry since, so that nothing of the ledger
            counts any more.

        Raises:
            LogBroken: the log does not agree with its end as stated by an epoch that began since.
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
        # Both at once: other tasks read the roster on while the grant is fetched.
        membership.renew(roster, number, view.identity)
        keys.renew(roster, number, opened)
        ledger.check_ends()
        return True

    async def refresh(self, caller: Holder, state: SchemaState) -> int:
        """Read the roster again before the log is read, unless that was a moment ago.

        Returns:
            The number of the newest roster entry that was read; 0 if there is none.

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
        """Replace a ledger by an empty ledger under the current keys: after an organization has got
        a roster, nothing of an earlier ledger counts.

        Raises:
            ErsError: as :meth:`keys`.
        """
        keys, by = await self.keys(caller, state.ledger.keys.organization, state.id, None)
        state.ledger = Ledger(keys, state.ledger.writer, by)

    async def follow(
        self, caller: Holder, state: SchemaState, deltas: Sequence[ManifestDelta]
    ) -> None:
        """Read the roster entry that the newest of these commits names, if it is not known yet."""
        by, named = state.ledger.membership, _newest_roster(deltas)
        if by is None and named and not state.ledger.version:
            # The roster was founded since this proxy looked, by the first user who stored.
            await self.begin_again(caller, state)
        elif by is not None and named > by.number:
            await self.renew(caller, state.ledger, within=0)

    async def _open(self, view: View, schema: bytes) -> OpenedGrant | None:
        """The grant of a schema's dataset; None if the roster does not place the schema."""
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
    """The roster entry that the newest of these commits names; 0 if there is none."""
    commits = [entry.commit for delta in deltas for entry in delta.entries[-1:]]
    try:
        return wire.decode_commit_body(commits[-1]).roster if commits else 0
    except errors.Malformed:
        return 0


class SharedKeys:
    """Keys by epoch. ``roster`` grows in place with each reading; its entry ``number`` determines
    the newest epoch, so that all parts of a commit use the same epoch. ``opened`` is None if the
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
        """Use another entry of the roster, and the grant that was opened since."""
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
            raise errors.SchemaUnsigned(
                "this schema was created at the API, and no owner has signed it"
            )
        if self.opened.epoch < epoch.epoch:
            raise errors.Closed(
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
                raise errors.KeyMissing("you were not granted a key of this schema")
            key = self._derived[version] = self.opened.schema(self.schema, version)
        return key

    def find(self, version: int, key_id: bytes) -> SchemaKey:
        """The key of an epoch, which must match ``key_id``.

        Raises:
            KeyMissing: it was not granted, or has another id; the message names it.
        """
        key = self.of(version)
        if key.id != key_id:
            raise errors.KeyMissing(
                f"this schema's records are encrypted with key {key_id.hex()} of epoch"
                f" {version}, and your grant has another key"
            )
        return key
