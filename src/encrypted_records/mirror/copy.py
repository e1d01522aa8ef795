"""One version of a mirror, read and verified without a key.

Rosters and logs are verified as proxies verify them: signatures, order, rights, the cover of rows
by segments. Only the HMAC of each commit takes a key, which a mirror's reader has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from encrypted_records import runtime
from encrypted_records.crypto.identity import Identity
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import (
    KeyMissing,
    LogBroken,
    Malformed,
    MirrorBroken,
    RosterBroken,
    Unsupported,
)
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.signing import NO_MEMBER, LogMembership
from encrypted_records.index.roster.roster import Roster
from encrypted_records.mirror import layout
from encrypted_records.mirror.layout import MirrorHead, SchemaHead, SchemaObjects
from encrypted_records.mirror.store import Store
from encrypted_records.model import ids, wire
from encrypted_records.model.records import LogEntry, ManifestDelta, SegmentHeader
from encrypted_records.model.roster import Grant, RosterEntry, read_grant
from encrypted_records.model.wire import Checkpoint, decode_checkpoint_body

COLLECTIONS = ("organizations", "datasets", "schemas")
#: Members of resources that are paths.
LINKS = frozenset({"organization", "dataset"})
_NOBODY = bytes(16)


@dataclass(frozen=True, slots=True)
class NoKeys:
    """The keys of a schema, of which none is here."""

    organization: bytes
    schema: bytes

    @property
    def newest(self) -> SchemaKey:
        raise KeyMissing("a mirror has no keys")

    def of(self, version: int) -> SchemaKey:
        raise KeyMissing("a mirror has no keys")

    def find(self, version: int, key_id: bytes) -> SchemaKey:
        raise KeyMissing("a mirror has no keys")


class KeylessLedger(Ledger):
    """A log that is verified as far as it takes no key: as if all keys had been forgotten."""

    def _held(self, name: object) -> None:
        return None


@dataclass(slots=True)
class SchemaLog:
    """The log of one schema: what it adds up to, and the id of each version of its key."""

    ledger: KeylessLedger
    key_ids: dict[int, bytes] = field(default_factory=dict)

    def extend(self, entries: Sequence[LogEntry]) -> None:
        """
        Raises:
            LogBroken: as :meth:`Ledger.extend`.
        """
        if not entries:
            return
        last = entries[-1].version
        schema = self.ledger.keys.schema
        self.ledger.extend(ManifestDelta(schema, last, None, bytes(32), list(entries), []))
        for entry in entries:
            body = wire.decode_commit_body(entry.commit)
            self.key_ids[body.key_version] = body.key_id

    def objects(self) -> SchemaObjects:
        return SchemaObjects(self.ledger.keys.schema, self.ledger.snapshot())


def begin_log(organization: bytes, schema: bytes, roster: Roster | None) -> SchemaLog:
    """The empty log of a schema.

    Args:
        roster: None if the organization has none.
    """
    by = None if roster is None else LogMembership(roster, NO_MEMBER, _signs_nothing())
    return SchemaLog(KeylessLedger(NoKeys(organization, schema), _NOBODY, by))


def _signs_nothing() -> Identity:
    random = runtime.random_bytes
    return Identity(random(32), random(32), random(64))


@dataclass(frozen=True, slots=True)
class MirrorResource:
    """An organization, dataset or schema as the API showed it."""

    raw: msgspec.Raw
    members: Mapping[str, msgspec.Raw]

    @classmethod
    def of(cls, raw: msgspec.Raw) -> MirrorResource:
        """
        Raises:
            msgspec.DecodeError: it is no object.
        """
        return cls(raw, msgspec.json.decode(raw, type=dict[str, msgspec.Raw]))

    def member(self, name: str) -> str:
        """A member that is text; the id that a path ends with."""
        value = msgspec.json.decode(self.members.get(name, msgspec.Raw(b'""')))
        text = value if isinstance(value, str) else ""
        return last_part(text) if name in LINKS else text


def last_part(path: str) -> str:
    """The id that a path ends with."""
    return path.rstrip("/").rpartition("/")[2]


class MirrorCopy:
    """The mirror at one head. Rosters, logs and lists stay in memory once they are read."""

    def __init__(self, store: Store, head: MirrorHead, before: MirrorCopy | None = None) -> None:
        """
        Args:
            before: a copy at an earlier head, whose logs are read on.
        """
        self.store = store
        self.head = head
        self._rosters: dict[str, Roster | None] = {}
        self._logs: dict[str, SchemaLog] = {}
        self._resources: dict[str, list[MirrorResource]] | None = None
        if before is not None:
            self._adopt(before)

    def _adopt(self, before: MirrorCopy) -> None:
        """Take over the logs of an earlier head that this one goes on from."""
        if before.head.organizations == self.head.organizations:
            self._rosters = before._rosters
            self._logs = {
                schema: log
                for schema, log in before._logs.items()
                if schema in self.head.schemas
                and log.ledger.version <= self.head.schemas[schema].version
            }

    # --- what it names ------------------------------------------------------------------------

    def resources(self, collection: str) -> list[MirrorResource]:
        """The organizations, datasets or schemas as the API showed them."""
        if self._resources is None:
            data = self.store.read(self.head.resources)
            if layout.by_content("resources", data, ".json") != self.head.resources:
                raise altered(self.head.resources)
            self._resources = decode_resources(data, self.head.resources)
        return self._resources[collection]

    def entries(self, organization: str, since: int = 0) -> Iterator[RosterEntry]:
        """The entries of an organization's roster after number ``since``."""
        for name in self.head.organizations[organization].roster:
            first, last = _span(name)
            if last > since:
                every = frames(self.store, name, RosterEntry)
                yield from every[max(0, since + 1 - first) :]

    def roster(self, organization: str) -> Roster | None:
        """The verified roster of an organization; None if it has none.

        Raises:
            RosterBroken: it was altered, or is not the one that the head names.
        """
        if organization not in self._rosters:
            roster = Roster(ids.from_text(organization), self.entries(organization))
            named = self.head.organizations[organization]
            if (roster.number, roster.head.digest.hex() if roster.number else "") != (
                named.number,
                named.digest,
            ):
                raise RosterBroken("the roster in the mirror is not the one that its head names")
            self._rosters[organization] = roster if roster.number else None
        return self._rosters[organization]

    def grants(self, organization: str) -> list[Grant]:
        """All grants of an organization that were copied."""
        name = self.head.organizations[organization].grants
        data = self.store.read(name)
        if layout.by_content(f"organizations/{organization}/grants", data) != name:
            raise altered(name)
        try:
            return wire.decode_all(data, Grant)
        except (Malformed, Unsupported):
            raise altered(name) from None

    def grants_of(self, organization: str, member: bytes) -> list[Grant]:
        """Those of one member."""
        return [grant for grant in self.grants(organization) if read_grant(grant).member == member]

    def log_entries(self, schema: str, since: int = 0) -> Iterator[LogEntry]:
        """The commits of a schema after version ``since``."""
        for name in self.head.schemas[schema].log:
            first, last = _span(name)
            if last > since:
                every = [
                    entry
                    for delta in frames(self.store, name, ManifestDelta)
                    for entry in delta.entries
                ]
                yield from every[max(0, since + 1 - first) :]

    def log(self, schema: str) -> SchemaLog:
        """The verified log of a schema.

        Raises:
            LogBroken: it was altered, or is not the one that the head names.
            RosterBroken: as :meth:`roster`.
        """
        named = self.head.schemas[schema]
        known = self._logs.get(schema)
        if known is None:
            organization = ids.from_text(named.organization)
            roster = self.roster(named.organization)
            known = begin_log(organization, ids.from_text(schema), roster)
        if known.ledger.version < named.version:
            known.extend(list(self.log_entries(schema, known.ledger.version)))
        if not _is_at(known, named):
            self._logs.pop(schema, None)
            raise LogBroken("the log in the mirror is not the one that its head names")
        self._logs[schema] = known
        return known

    def checkpoint(self, schema: str) -> Checkpoint | None:
        """The newest checkpoint of a schema's log that was copied. It is a claim of its signer,
        which readers judge; here it is one of this log.

        Raises:
            MirrorBroken: it is missing or was altered.
            LogBroken, RosterBroken: as :meth:`log`.
        """
        name = self.head.schemas[schema].checkpoint
        if not name:
            return None
        found = read_checkpoint(self.store, name)
        if not is_of_log(found, self.log(schema).ledger):
            raise altered(name)
        return found

    def headers(self, schema: str, since: int = 0) -> Iterator[SegmentHeader]:
        """The headers of the live segments that were added after a version of the log."""
        objects = self.log(schema).objects()
        added = None
        if since:
            added = {
                segment.uid
                for entry in self.log_entries(schema, since)
                for segment in wire.decode_commit_body(entry.commit).segments
            }
        for segment in objects.snapshot.segments:
            if added is None or segment.uid in added:
                yield from frames(self.store, objects.header(segment), SegmentHeader)


def read_checkpoint(store: Store, name: str) -> Checkpoint:
    """The checkpoint in an object.

    Raises:
        MirrorBroken: it is missing or was altered.
        Unavailable: the store cannot be read.
    """
    found = frames(store, name, Checkpoint)
    if len(found) != 1 or layout.by_content(name.rpartition("/")[0], wire.encode(found)) != name:
        raise altered(name)
    return found[0]


def is_of_log(checkpoint: Checkpoint, ledger: Ledger) -> bool:
    """Whether a checkpoint is of a version of this log, by its own word."""
    try:
        body = decode_checkpoint_body(checkpoint)
    except Malformed:
        return False
    return body.schema == ledger.keys.schema and ledger.digest_at(body.version) == body.digest


def portions(entries: Iterable[LogEntry], most: int) -> Iterator[list[LogEntry]]:
    """Commits that follow on, in portions of at most so many bytes where one does not have more."""
    some: list[LogEntry] = []
    size = 0
    for entry in entries:
        if some and size + len(entry.commit.body) > most:
            yield some
            some, size = [], 0
        some.append(entry)
        size += len(entry.commit.body)
    if some:
        yield some


def _is_at(log: SchemaLog, named: SchemaHead) -> bool:
    head = log.ledger.head
    return (head.version, head.digest.hex()) == (named.version, named.digest)


def _span(name: str) -> tuple[int, int]:
    """The first and the last number that the name of an object of entries states."""
    first, mark, last = name.rpartition("/")[2].partition("-")
    if not (mark and first.isdecimal() and last.isdecimal()):
        raise altered(name)
    return int(first), int(last)


def frames(store: Store, name: str, kind: type[wire.T]) -> list[wire.T]:
    """The frames of an object, all of one kind.

    Raises:
        MirrorBroken: the mirror lacks the object, or it is not of this form.
        Unavailable: the store cannot be read.
    """
    data = store.read(name)
    try:
        return wire.decode_all(data, kind)
    except (Malformed, Unsupported):
        raise altered(name) from None


def decode_resources(data: bytes, name: str) -> dict[str, list[MirrorResource]]:
    """
    Raises:
        MirrorBroken: it is not the lists of organizations, datasets and schemas.
    """
    try:
        found = msgspec.json.decode(data, type=dict[str, list[msgspec.Raw]])
        return {
            collection: list(map(MirrorResource.of, found[collection]))
            for collection in COLLECTIONS
        }
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        raise altered(name) from None


def altered(name: str) -> MirrorBroken:
    return MirrorBroken(f"an object of the mirror was altered: {name}")
