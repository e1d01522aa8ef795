"""A version of a mirror, with bytes of segments and groups, read and verified without a key.

Rosters and logs are verified as proxies verify them: signatures, order, rights, and that segments
cover all rows. Only the HMAC of each commit needs a key, which a mirror's reader has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from encrypted_records import errors, runtime
from encrypted_records.crypto.identity import Identity
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import NO_MEMBER, LogMembership
from encrypted_records.index.roster.roster import Roster
from encrypted_records.mirror import layout
from encrypted_records.model import digests, ids, records, strict_json, wire
from encrypted_records.model.digests import RUN
from encrypted_records.model.roster import Grant, RosterEntry, read_grant

#: An entry of an index of record ids: an id, and the ordinal of its row.
ENTRY_BYTES = ids.ID_BYTES + 4


@dataclass(frozen=True, slots=True)
class RowContents:
    """The rows of an object by ordinal; and, for runs that are not complete here, the digests of
    all their rows, by the first ordinal of the run.
    """

    rows: Mapping[int, records.SealedRow]
    digests: Mapping[int, bytes] = field(default_factory=dict)

    def check(self, group: records.Group, group_digests: records.RowDigests) -> None:
        """
        Args:
            group_digests: the digests of all runs of the group.

        Raises:
            Altered: a row differs from the row that the log names.
        """
        shown = [
            records.RowDigests(
                group.uid, group_digests.salt, first, row_digests, group_digests.runs
            )
            for first, row_digests in self.digests.items()
        ]
        all_runs = records.RowDigests(group.uid, group_digests.salt, -1, b"", group_digests.runs)
        digests.check_rows(group, self.rows, [all_runs, *shown])

    def without_dead(self, place: layout.MirrorRows, salt: bytes) -> RowContents:
        """The same without dead rows."""
        live = set(place.live)
        kept = {ordinal: row for ordinal, row in self.rows.items() if ordinal in live}
        proofs: dict[int, bytes] = {}
        for first in range(place.ordinals.start, place.ordinals.stop, RUN):
            run = range(first, min(first + RUN, place.ordinals.stop))
            live_of_run = [ordinal for ordinal in run if ordinal in kept]
            if live_of_run and len(live_of_run) < len(run):
                proofs[first] = self.digests.get(first) or digests.row_digests(
                    salt, [self.rows.get(ordinal) for ordinal in run]
                )
        return RowContents(kept, proofs)

    def encode(self, group: records.Group, salt: bytes) -> bytes:
        stored = [
            records.StoredRow(group.uid, ordinal, row) for ordinal, row in sorted(self.rows.items())
        ]
        proofs = [
            records.RowDigests(group.uid, salt, first, row_digests, b"")
            for first, row_digests in self.digests.items()
        ]
        return wire.encode([*stored, *proofs])


def decode_rows(group: records.Group, name: str, data: bytes) -> RowContents:
    """The content of an object of rows of a group.

    Raises:
        MirrorBroken: it is not an object of rows, or has other rows.
    """
    rows: dict[int, records.SealedRow] = {}
    proofs: dict[int, bytes] = {}
    try:
        for item in wire.decode(data):
            if isinstance(item, records.StoredRow) and item.group == group.uid:
                rows[item.ordinal] = item.row
            elif isinstance(item, records.RowDigests) and item.group == group.uid:
                proofs[item.first] = item.rows
            else:
                raise altered(name)
    except (errors.Malformed, errors.Unsupported):
        raise altered(name) from None
    return RowContents(rows, proofs)


def read_rows(
    store: layout.Store, place: layout.MirrorRows, group_digests: records.RowDigests
) -> RowContents:
    """The rows of an object, checked against the log.

    Args:
        group_digests: the result of :func:`read_runs` for the group.

    Raises:
        MirrorBroken, Unavailable: as :func:`frames`; or a row is not the stored row.
    """
    contents = decode_rows(place.group, place.name, store.read(place.name))
    if sorted(contents.rows) != place.live:
        raise altered(place.name)
    with named(place.name):
        contents.check(place.group, group_digests)
    return contents


def read_header(
    store: layout.Store, objects: layout.SchemaObjects, segment: records.Segment
) -> records.SegmentHeader:
    """The header of a segment, unverified. Raises as :func:`frames`."""
    return read_stored(store, objects.header(segment), records.SegmentHeader)


def read_page_digests(
    store: layout.Store, objects: layout.SchemaObjects, segment: records.Segment
) -> records.PageDigests:
    """The digests of a segment's pages, checked against the log.

    Raises:
        MirrorBroken, Unavailable: as :func:`frames`; or they, or the segment's header, differ from
            those that were stored.
    """
    header = read_header(store, objects, segment)
    page_digests = read_stored(store, objects.page_digests(segment), records.PageDigests)
    with named(f"{objects.header(segment)}, or {objects.page_digests(segment)}"):
        check_pages(segment, header, page_digests)
    return page_digests


def read_pages(
    store: layout.Store, place: layout.MirrorPages, page_digests: records.PageDigests
) -> list[records.Page]:
    """The pages of an object, checked against the log.

    Args:
        page_digests: the result of :func:`read_page_digests` for the segment.

    Raises:
        MirrorBroken, Unavailable: as :func:`frames`; or a page is not the stored page.
    """
    pages = frames(store, place.name, records.Page)
    if [(page.segment, page.number) for page in pages] != [
        (place.segment.uid, number) for number in place.numbers
    ]:
        raise altered(place.name)
    with named(place.name):
        for page in pages:
            digests.check_page(page.segment, page.number, page.data, page_digests.pages)
    return pages


@contextmanager
def named(name: str) -> Iterator[None]:
    """Name the mirror's object in errors about altered content."""
    try:
        yield
    except errors.Altered:
        raise altered(name) from None


def read_stored(store: layout.Store, name: str, kind: type[wire.T]) -> wire.T:
    """The only frame of an object. Raises as :func:`frames`."""
    stored = frames(store, name, kind)
    if len(stored) != 1:
        raise altered(name)
    return stored[0]


def read_runs(
    store: layout.Store, objects: layout.SchemaObjects, group: records.Group
) -> records.RowDigests:
    """The digests of all runs of a group, checked against the log.

    Raises:
        MirrorBroken, Unavailable: as :func:`frames`; or they differ from those of the group's
            commit.
    """
    group_digests = read_stored(store, objects.digests(group), records.RowDigests)
    with named(objects.digests(group)):
        require_runs(group, group_digests)
    return group_digests


def require_runs(group: records.Group, group_digests: records.RowDigests) -> None:
    """
    Raises:
        Altered: the runs differ from those that the group's commit names.
    """
    if group_digests.group != group.uid or digests.group_digest(group_digests.runs) != group.rows:
        raise errors.Altered(f"the records are not as they were stored: group {group.uid.hex()}")


def check_pages(
    segment: records.Segment,
    header: records.SegmentHeader,
    page_digests: records.PageDigests,
    pages: Iterable[records.Page] = (),
) -> None:
    """
    Raises:
        Altered: header, digests or pages differ from those that the segment's commit names.
    """
    digests.check_pages(segment, header, page_digests.pages)
    for page in pages:
        digests.check_page(segment.uid, page.number, page.data, page_digests.pages)


def index_ids(rows: Iterable[Mapping[int, records.SealedRow]]) -> bytes:
    """The rows of a group by the id of their record: sorted entries of id and ordinal."""
    entries = [
        row.record_id + ordinal.to_bytes(4, "big") for part in rows for ordinal, row in part.items()
    ]
    return b"".join(sorted(entries))


def find_id(index: bytes, record_id: bytes) -> int | None:
    """The ordinal of a record's row in an index of ids; None if it is not there."""
    places = range(0, len(index), ENTRY_BYTES)
    at = bisect_left(places, record_id, key=lambda place: index[place : place + ids.ID_BYTES])
    entry = index[at * ENTRY_BYTES : (at + 1) * ENTRY_BYTES]
    return (
        int.from_bytes(entry[ids.ID_BYTES :], "big") if entry[: ids.ID_BYTES] == record_id else None
    )


def gone(kind: str, code: str) -> errors.NotFound:
    """The error for an object that the log of this version does not have, or no longer has."""
    return errors.NotFound(
        f"a {kind} is not here, or no longer",
        code=code,
        hint="read the manifest again: the mirror may have been copied again",
    )


def missing_runs(place: layout.MirrorRows, rows: Sequence[int]) -> list[int]:
    """The first ordinals of the runs of which some but not all rows are among ``rows``."""
    available = set(rows)
    found = []
    for first in range(place.ordinals.start, place.ordinals.stop, RUN):
        run = range(first, min(first + RUN, place.ordinals.stop))
        count = sum(ordinal in available for ordinal in run)
        if 0 < count < len(run):
            found.append(first)
    return found


COLLECTIONS = ("organizations", "datasets", "schemas")
#: Members of resources whose values are paths.
LINKS = frozenset({"organization", "dataset"})
_NOBODY = bytes(16)


@dataclass(frozen=True, slots=True)
class NoKeys:
    """A schema's keys, all of which are missing."""

    organization: bytes
    schema: bytes

    @property
    def newest(self) -> SchemaKey:
        raise errors.KeyMissing("a mirror has no keys")

    def of(self, version: int) -> SchemaKey:
        raise errors.KeyMissing("a mirror has no keys")

    def find(self, version: int, key_id: bytes) -> SchemaKey:
        raise errors.KeyMissing("a mirror has no keys")


class KeylessLedger(Ledger):
    """A log that is verified without keys: as if all keys had been forgotten."""

    def _find_key(self, name: object) -> None:
        return None


@dataclass(slots=True)
class SchemaLog:
    """The state of a schema's log, and the id of each version of its key."""

    ledger: KeylessLedger
    key_ids: dict[int, bytes] = field(default_factory=dict)

    def extend(self, entries: Sequence[records.LogEntry]) -> None:
        """
        Raises:
            LogBroken: as :meth:`Ledger.extend`.
        """
        if not entries:
            return
        last = entries[-1].version
        schema = self.ledger.keys.schema
        self.ledger.extend(records.ManifestDelta(schema, last, None, bytes(32), list(entries), []))
        for entry in entries:
            body = wire.decode_commit_body(entry.commit)
            self.key_ids[body.key_version] = body.key_id

    def objects(self) -> layout.SchemaObjects:
        return layout.SchemaObjects(self.ledger.keys.schema, self.ledger.snapshot())


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
    """An organization, dataset or schema as the API returned it."""

    raw: msgspec.Raw
    members: Mapping[str, msgspec.Raw]

    @classmethod
    def of(cls, raw: msgspec.Raw) -> MirrorResource:
        """
        Raises:
            msgspec.DecodeError: it is not an object.
        """
        return cls(raw, msgspec.json.decode(raw, type=dict[str, msgspec.Raw]))

    def member(self, name: str) -> str:
        """A member that is text; of a path, the id at its end."""
        value = msgspec.json.decode(self.members.get(name, msgspec.Raw(b'""')))
        text = value if isinstance(value, str) else ""
        return last_part(text) if name in LINKS else text


def last_part(path: str) -> str:
    """The id at the end of a path."""
    return path.rstrip("/").rpartition("/")[2]


class MirrorCopy:
    """The mirror at one head. Rosters, logs and lists stay in memory after they are read."""

    def __init__(
        self, store: layout.Store, head: layout.MirrorHead, before: MirrorCopy | None = None
    ) -> None:
        """
        Args:
            before: a copy at an earlier head, whose logs are continued.
        """
        self.store = store
        self.head = head
        self._rosters: dict[str, Roster | None] = {}
        self._logs: dict[str, SchemaLog] = {}
        self._resources: dict[str, list[MirrorResource]] | None = None
        if before is not None:
            self._adopt(before)

    def _adopt(self, before: MirrorCopy) -> None:
        """Take over the logs of an earlier head that this head continues."""
        if before.head.organizations == self.head.organizations:
            self._rosters = before._rosters
            self._logs = {
                schema: log
                for schema, log in before._logs.items()
                if schema in self.head.schemas
                and log.ledger.version <= self.head.schemas[schema].version
            }

    # --- its content --------------------------------------------------------------------------

    def resources(self, collection: str) -> list[MirrorResource]:
        """The organizations, datasets or schemas as the API returned them."""
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
                stored = frames(self.store, name, RosterEntry)
                yield from stored[max(0, since + 1 - first) :]

    def roster(self, organization: str) -> Roster | None:
        """The verified roster of an organization; None if it has none.

        Raises:
            RosterBroken: it was altered, or is not the roster that the head names.
        """
        if organization not in self._rosters:
            roster = Roster(ids.from_text(organization), self.entries(organization))
            named = self.head.organizations[organization]
            if (roster.number, roster.head.digest.hex() if roster.number else "") != (
                named.number,
                named.digest,
            ):
                raise errors.RosterBroken(
                    "the roster in the mirror is not the one that its head names"
                )
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
        except (errors.Malformed, errors.Unsupported):
            raise altered(name) from None

    def grants_of(self, organization: str, member: bytes) -> list[Grant]:
        """The grants of one member."""
        return [grant for grant in self.grants(organization) if read_grant(grant).member == member]

    def log_entries(self, schema: str, since: int = 0) -> Iterator[records.LogEntry]:
        """The commits of a schema after version ``since``."""
        for name in self.head.schemas[schema].log:
            first, last = _span(name)
            if last > since:
                stored = [
                    entry
                    for delta in frames(self.store, name, records.ManifestDelta)
                    for entry in delta.entries
                ]
                yield from stored[max(0, since + 1 - first) :]

    def log(self, schema: str) -> SchemaLog:
        """The verified log of a schema.

        Raises:
            LogBroken: it was altered, or is not the log that the head names.
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
            raise errors.LogBroken("the log in the mirror is not the one that its head names")
        self._logs[schema] = known
        return known

    def checkpoint(self, schema: str) -> wire.Checkpoint | None:
        """The newest copied checkpoint of a schema's log. Its state is a claim of its signer, which
        readers judge; this method only checks that it belongs to this log.

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

    def headers(self, schema: str, since: int = 0) -> Iterator[records.SegmentHeader]:
        """The headers of live segments that were added after a version of the log."""
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
                yield from frames(self.store, objects.header(segment), records.SegmentHeader)


def read_checkpoint(store: layout.Store, name: str) -> wire.Checkpoint:
    """The checkpoint in an object.

    Raises:
        MirrorBroken: it is missing or was altered.
        Unavailable: the store cannot be read.
    """
    found = frames(store, name, wire.Checkpoint)
    if len(found) != 1 or layout.by_content(name.rpartition("/")[0], wire.encode(found)) != name:
        raise altered(name)
    return found[0]


def is_of_log(checkpoint: wire.Checkpoint, ledger: Ledger) -> bool:
    """Whether a checkpoint claims to be of a version of this log."""
    try:
        body = wire.decode_checkpoint_body(checkpoint)
    except errors.Malformed:
        return False
    return body.schema == ledger.keys.schema and ledger.digest_at(body.version) == body.digest


def portions(entries: Iterable[records.LogEntry], most: int) -> Iterator[list[records.LogEntry]]:
    """Consecutive commits in portions of at most ``most`` bytes; a larger commit is a portion by
    itself.
    """
    portion: list[records.LogEntry] = []
    size = 0
    for entry in entries:
        if portion and size + len(entry.commit.body) > most:
            yield portion
            portion, size = [], 0
        portion.append(entry)
        size += len(entry.commit.body)
    if portion:
        yield portion


def _is_at(log: SchemaLog, named: layout.SchemaHead) -> bool:
    head = log.ledger.head
    return (head.version, head.digest.hex()) == (named.version, named.digest)


def _span(name: str) -> tuple[int, int]:
    """The first and the last number in the name of an object of entries."""
    first, mark, last = name.rpartition("/")[2].partition("-")
    if not (mark and first.isdecimal() and last.isdecimal()):
        raise altered(name)
    return int(first), int(last)


def frames(store: layout.Store, name: str, kind: type[wire.T]) -> list[wire.T]:
    """The frames of an object, all of the same kind.

    Raises:
        MirrorBroken: the mirror lacks the object, or it is not of this form.
        Unavailable: the store cannot be read.
    """
    data = store.read(name)
    try:
        return wire.decode_all(data, kind)
    except (errors.Malformed, errors.Unsupported):
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
    except (*strict_json.UNREADABLE, KeyError):
        raise altered(name) from None


def altered(name: str) -> errors.MirrorBroken:
    return errors.MirrorBroken(f"an object of the mirror was altered: {name}")
