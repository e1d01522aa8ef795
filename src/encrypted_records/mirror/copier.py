"""Copy the data that a member can read at an API into a mirror, once.

A run reads rosters and logs until they are consistent, copies the objects that the mirror lacks,
and then replaces the head. A run that is killed leaves the mirror at its last head, and the next
run reuses the objects that it wrote. Everything is verified before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from encrypted_records import errors, runtime
from encrypted_records.client.api import Api, read_list
from encrypted_records.client.rosters import RosterApi
from encrypted_records.client.transport import Transport
from encrypted_records.index.log.order import LogHead
from encrypted_records.index.roster.roster import Roster
from encrypted_records.mirror import layout
from encrypted_records.mirror.copy import (
    COLLECTIONS,
    MirrorCopy,
    RowContents,
    SchemaLog,
    begin_log,
    check_pages,
    decode_rows,
    index_ids,
    is_of_log,
    last_part,
    missing_runs,
    portions,
    read_checkpoint,
    read_header,
    read_rows,
    read_runs,
    require_runs,
)
from encrypted_records.model import credentials, ids, records, strict_json, wire
from encrypted_records.model.digests import RUN
from encrypted_records.model.roster import ENTRIES_AT_ONCE, RosterEntry
from encrypted_records.proxy import auth

#: Maximum attempts of a run at an API whose data changes during the copy.
_LOOKS = 20
#: Resources in one answer.
_PAGE = 100
#: Maximum bytes of commits in an object, which is a single frame.
_DELTA_BYTES = 16 << 20


class _ListedResource(msgspec.Struct):
    """The members of a resource that a mirror reads; schemas have ``organization``, a path."""

    id: str
    organization: str = ""

    @classmethod
    def of(cls, raw: msgspec.Raw) -> _ListedResource:
        """
        Raises:
            ApiFailed: it is not a resource.
        """
        try:
            named = msgspec.json.decode(raw, type=cls)
            ids.from_text(named.id)
        except (*strict_json.UNREADABLE, errors.Malformed):
            raise errors.ApiFailed("the API lists something that is no resource") from None
        return named


@dataclass(slots=True)
class _OrganizationState:
    roster: Roster
    fresh: list[RosterEntry] = field(default_factory=list)
    grants: bytes = b""


@dataclass(slots=True)
class _CopyState:
    organization: str
    log: SchemaLog
    fresh: list[records.LogEntry] = field(default_factory=list)
    headers: dict[bytes, records.SegmentHeader] = field(default_factory=dict)
    checkpoint: str = ""


@dataclass(slots=True)
class CopyTotals:
    """The result of a run: the objects that it wrote, their bytes, and the objects that
    it deleted.
    """

    schemas: int = 0
    objects: int = 0
    bytes: int = 0
    deleted: int = 0


class Copier:
    """One run of ``ers mirror``.

    Args:
        transport: to the API, with the login of a member.
        tell: called with each schema that is copied.
        forget: whether to remove data from the mirror that the API no longer lists, although no
            roster states its deletion.
    """

    def __init__(
        self,
        transport: Transport,
        store: layout.Store,
        tell: Callable[[str], None] = lambda _line: None,
        *,
        forget: bool = False,
    ) -> None:
        self._transport = transport
        self._api = Api(transport)
        self._rosters = RosterApi(transport)
        self._store = store
        self._tell = tell
        self._forget = forget
        self._names: set[str] = set()
        self._organizations: dict[str, _OrganizationState] = {}
        self._schemas: dict[str, _CopyState] = {}
        self._resources = b""
        self._organization_ids: list[str] = []
        #: the organization of each schema
        self._homes: dict[str, str] = {}
        self.copied = CopyTotals()

    async def run(self) -> layout.MirrorHead:
        """Bring the mirror to the API's present state; returns its new head.

        Raises:
            Locked: ``mirror_in_use``; another run is using it.
            NotAllowed: ``mirror_of_another``; the place holds something else.
            LogBroken, RosterBroken: the API's log or roster is altered, or does not continue the
                mirror's: for example, the API was restored to an earlier state. The mirror stays as
                it is.
            Conflict: ``mirror_would_lose``; the API does not list something that the mirror has, or
                lists it elsewhere. The mirror stays as it is.
            Altered: the API's bytes differ from those that its log names.
            Unavailable: the API or the place cannot be used.
        """
        user = ids.to_text(ids.from_text(await self._api.user_id("")))
        # Check before taking the lock, which creates a file.
        if not _has_head(self._store):
            _refuse_others(self._store.names())
        with self._store.alone():
            return await self._run(user)

    async def _run(self, user: str) -> layout.MirrorHead:
        old = self._begin(user)
        for look in range(_LOOKS):
            await self._read(old)
            self._refuse_loss(old.head)
            try:
                for schema, state in self._schemas.items():
                    await self._copy(schema, state)
                    await self._copy_checkpoint(schema, state)
            except errors.NotFound as error:
                # Merged or erased after the log was read.
                if look == _LOOKS - 1:
                    raise
                self._tell(f"the data changed while it was copied ({error.reason}); reading on")
            else:
                break
        return self._publish(user, old)

    def _begin(self, user: str) -> MirrorCopy:
        self._names = set(self._store.names())
        source = self._transport.base_url
        if layout.HEAD not in self._names:
            _refuse_others(self._names)
            self._write(layout.HEAD, msgspec.json.encode(layout.MirrorHead(1, source, user)))
        head = layout.read_head(self._store)
        if head.member != user:
            raise errors.NotAllowed(
                "the place holds a mirror that another account has made",
                code="mirror_of_another",
                hint="name another folder, or log in as that account",
            )
        return MirrorCopy(self._store, head)

    def _write(self, name: str, data: bytes) -> None:
        self._store.write(name, data)
        self._names.add(name)
        self.copied.objects += 1
        self.copied.bytes += len(data)

    # --- what belongs together ------------------------------------------------------------------

    async def _read(self, old: MirrorCopy) -> None:
        """Read resources, rosters, grants and logs until they belong to the same moment."""
        for _ in range(_LOOKS):
            await self._read_resources()
            await self._read_rosters(old)
            await self._read_grants()
            deltas = {schema: await self._manifest(schema, old) for schema in self._schemas}
            # A commit names the roster entry that its author had read, so rosters are read again
            # after logs.
            if not await self._read_rosters(old):
                break
        for schema, deltas_of_schema in deltas.items():
            self._take(schema, deltas_of_schema)

    async def _read_resources(self) -> None:
        found: dict[str, list[msgspec.Raw]] = {
            collection: await read_list(
                self._transport, f"/api/{collection}/?limit={_PAGE}", msgspec.Raw, ""
            )
            for collection in COLLECTIONS
        }
        self._resources = msgspec.json.encode(found)
        named = {
            collection: list(map(_ListedResource.of, listed))
            for collection, listed in found.items()
        }
        for gone in self._organizations.keys() - {
            organization.id for organization in named["organizations"]
        }:
            del self._organizations[gone]
        self._organization_ids = [organization.id for organization in named["organizations"]]
        self._homes = {schema.id: last_part(schema.organization) for schema in named["schemas"]}
        if not set(self._homes.values()) <= set(self._organization_ids):
            raise errors.ApiFailed("the API lists a schema, and not the organization that has it")
        for gone in self._schemas.keys() - self._homes.keys():
            del self._schemas[gone]

    def _refuse_loss(self, old: layout.MirrorHead) -> None:
        """Refuse to lose objects of the mirror: the API's lists are not signed."""
        for organization in old.organizations.keys() - self._organizations.keys():
            if not self._forget:
                raise _would_lose(f"organization {organization}")
        for schema, named in old.schemas.items():
            state = self._schemas.get(schema)
            if state is None:
                if not (self._forget or self._is_freed(schema, named.organization)):
                    raise _would_lose(f"schema {schema}")
            elif state.organization != named.organization or not state.log.ledger.knows(
                LogHead(named.version, bytes.fromhex(named.digest))
            ):
                raise errors.Conflict(
                    f"the API shows another log of schema {schema} than the mirror has",
                    code="mirror_would_lose",
                    hint="the mirror stays as it is; copy the API into another place",
                )

    def _is_freed(self, schema: str, organization: str) -> bool:
        """Whether the verified roster states that a schema was deleted."""
        state = self._organizations.get(organization)
        placed = None if state is None else state.roster.schema(ids.from_text(schema))
        return placed is not None and placed.slug == ""

    async def _read_rosters(self, old: MirrorCopy) -> bool:
        """Read new roster entries; whether there were any."""
        is_new = False
        for organization in self._organization_ids:
            state = self._organizations.get(organization)
            if state is None:
                known = old.roster(organization) if organization in old.head.organizations else None
                state = _OrganizationState(known or Roster(ids.from_text(organization)))
                self._organizations[organization] = state
                is_new = True
            while True:
                entries = await self._rosters.entries(
                    ids.from_text(organization), state.roster.number, ""
                )
                state.roster.extend(entries)
                state.fresh += entries
                is_new |= bool(entries)
                if len(entries) < ENTRIES_AT_ONCE:
                    break
        for schema, organization in self._homes.items():
            roster = self._organizations[organization].roster
            begun = self._schemas.get(schema)
            if begun is None or not _judged_by(begun.log, roster):
                self._begin_schema(schema, organization, old)
                is_new = True
        return is_new

    def _begin_schema(self, schema: str, organization: str, old: MirrorCopy) -> None:
        """Continue the log in the mirror, or start again if the organization had no roster at that
        time.
        """
        roster = self._organizations[organization].roster
        named = old.head.schemas.get(schema)
        log = None
        if named is not None and named.organization == organization:
            log = old.log(schema)
        if log is None or not _judged_by(log, roster):
            by = roster if roster.number else None
            log = begin_log(ids.from_text(organization), ids.from_text(schema), by)
        checkpoint = "" if named is None else named.checkpoint
        self._schemas[schema] = _CopyState(organization, log, checkpoint=checkpoint)

    async def _read_grants(self) -> None:
        """Read the grants of all members, or only of the caller, if not an owner."""
        for organization, state in self._organizations.items():
            uid = ids.from_text(organization)
            grants = await self._rosters.grants(uid, "")
            try:
                for member in state.roster.members():
                    grants += await self._rosters.grants_of(uid, member.member, "")
            except (errors.NotAllowed, errors.NotFound):
                pass  # only owners may
            apart = {wire.encode([grant]): grant for grant in grants}
            state.grants = wire.encode(apart[key] for key in sorted(apart))

    async def _manifest(self, schema: str, old: MirrorCopy) -> list[records.ManifestDelta]:
        since = self._schemas[schema].log.ledger.version
        try:
            return await self._api.manifest(ids.from_text(schema), since, "")
        except errors.Conflict as error:
            raise errors.Conflict(
                f"the API's log of schema {schema} ends before the version in the mirror",
                code=error.reason,
                hint="the API was restored to an earlier moment: the mirror stays as it is, and"
                " has what was lost; copy the API into another place",
            ) from None

    def _take(self, schema: str, deltas: Sequence[records.ManifestDelta]) -> None:
        """Verify the new part of the log."""
        state = self._schemas[schema]
        entries = [entry for delta in deltas for entry in delta.entries]
        state.log.extend(entries)
        state.fresh += entries
        if state.log.ledger.version != deltas[-1].version:
            raise errors.ApiFailed("the API's log does not reach the version that it claims")
        membership = state.log.ledger.membership
        state.log.ledger.check_ends(None if membership is None else membership.roster.number)
        for delta in deltas:
            state.headers.update((header.segment, header) for header in delta.headers)

    # --- objects --------------------------------------------------------------------------------

    async def _copy(self, schema: str, state: _CopyState) -> None:
        objects = state.log.objects()
        headers = [
            segment.uid
            for segment in objects.snapshot.segments
            if objects.header(segment) not in self._names
        ]
        if not state.headers.keys() >= set(headers):
            # The header of an earlier segment is missing: an altered object was deleted.
            deltas = await self._api.manifest(objects.schema, 0, "")
            found = (header for delta in deltas for header in delta.headers)
            state.headers.update((header.segment, header) for header in found)
        if all(name in self._names for name in objects.names()):
            return
        self._tell(f"copying schema {schema} at version {state.log.ledger.version}")
        for segment in objects.snapshot.segments:
            await self._copy_segment(objects, segment, state)
        earlier = self._earlier_rows(objects)
        for group in objects.groups():
            await self._copy_group(objects, group, earlier)

    async def _copy_checkpoint(self, schema: str, state: _CopyState) -> None:
        """Copy the newest checkpoint of the log, if the API has one that proxies would accept. A
        checkpoint of another log is left out: readers do not depend on it.
        """
        before, state.checkpoint = state.checkpoint, ""
        uid, ledger = ids.from_text(schema), state.log.ledger
        listed = await self._api.checkpoints(uid, "")
        if not listed:
            return
        with suppress(errors.MirrorBroken):
            if (
                before
                and wire.checkpoint_digest(read_checkpoint(self._store, before)).hex()
                == listed[0].digest
            ):
                state.checkpoint = before
                return
        found, _ = await self._api.manifest_from_checkpoint(uid, ledger.version, "")
        if found is not None and is_of_log(found, ledger):
            data = wire.encode([found])
            state.checkpoint = layout.by_content(f"schemas/{schema}/checkpoints", data)
            self._write(state.checkpoint, data)

    async def _copy_segment(
        self, objects: layout.SchemaObjects, segment: records.Segment, state: _CopyState
    ) -> None:
        wanted = [place for place in objects.pages(segment) if place.name not in self._names]
        header_name, digests_name = objects.header(segment), objects.page_digests(segment)
        if not wanted and {header_name, digests_name} <= self._names:
            return
        header = state.headers.get(segment.uid)
        if header is None and header_name in self._names:
            header = read_header(self._store, objects, segment)
        if header is None:
            raise errors.NotFound("the API handed out no header of a segment", code="segment_gone")
        (page_digests,) = await self._api.page_digests(objects.schema, [segment.uid], "")
        check_pages(segment, header, page_digests)
        self._write(header_name, wire.encode([header]))
        self._write(digests_name, wire.encode([page_digests]))
        for place in wanted:
            await self._copy_pages(objects.schema, place, header, page_digests)

    async def _copy_pages(
        self,
        schema: bytes,
        place: layout.MirrorPages,
        header: records.SegmentHeader,
        page_digests: records.PageDigests,
    ) -> None:
        segment = place.segment
        refs = [records.PageRef(segment.uid, number) for number in place.numbers]
        pages = await self._api.pages(schema, refs, "")
        if [(page.segment, page.number) for page in pages] != [
            (ref.segment, ref.number) for ref in refs
        ]:
            raise errors.ApiFailed("the API answered with other pages than were asked for")
        check_pages(segment, header, page_digests, pages)
        self._write(place.name, wire.encode(pages))

    def _earlier_rows(self, objects: layout.SchemaObjects) -> dict[str, str]:
        """The row objects of an earlier version of the mirror, by their names without the number of
        live rows.
        """
        prefix = f"{objects.folder}/groups/"
        return {
            name.rpartition("-")[0]: name
            for name in self._names
            if name.startswith(prefix) and name.rpartition("-")[2].isdecimal()
        }

    async def _copy_group(
        self, objects: layout.SchemaObjects, group: records.Group, earlier: dict[str, str]
    ) -> None:
        places = list(objects.rows(group))
        wanted = [place for place in places if place.name not in self._names]
        group_digests: records.RowDigests
        if objects.digests(group) in self._names:
            group_digests = read_runs(self._store, objects, group)
        else:
            ref = records.RowRef(group.uid, places[0].live[0])
            (shown,) = await self._api.row_digests(objects.schema, [ref], "")
            require_runs(group, shown)
            group_digests = records.RowDigests(group.uid, shown.salt, 0, b"", shown.runs)
            self._write(objects.digests(group), wire.encode([group_digests]))
        for place in wanted:
            before = earlier.get(place.name.rpartition("-")[0])
            contents = None if before is None else self._rows_before(place, before, group_digests)
            if contents is None:
                contents = await self._fetch_rows(objects.schema, place, group_digests)
            contents = contents.without_dead(place, group_digests.salt)
            self._write(place.name, contents.encode(group, group_digests.salt))
        if objects.ids(group) not in self._names:
            rows_by_place = (read_rows(self._store, place, group_digests).rows for place in places)
            self._write(objects.ids(group), index_ids(rows_by_place))

    def _rows_before(
        self, place: layout.MirrorRows, before: str, group_digests: records.RowDigests
    ) -> RowContents | None:
        """The rows of an object that the mirror has from an earlier version; None if it is altered,
        or lacks live rows.
        """
        try:
            contents = decode_rows(place.group, before, self._store.read(before))
            contents.check(place.group, group_digests)
        except (errors.Altered, errors.MirrorBroken):
            return None
        return contents if set(place.live) <= contents.rows.keys() else None

    async def _fetch_rows(
        self, schema: bytes, place: layout.MirrorRows, group_digests: records.RowDigests
    ) -> RowContents:
        """The rows from the API, with dead rows while it has them, because the digest of a run
        covers all its rows.
        """
        group = place.group
        try:
            rows = await self._rows(schema, group, list(place.ordinals))
        except errors.NotFound:
            if not place.dead:
                raise
            rows = await self._rows(schema, group, place.live)
        proofs: dict[int, bytes] = {}
        for first in missing_runs(place, list(rows)):
            known = next(ordinal for ordinal in range(first, first + RUN) if ordinal in rows)
            (shown,) = await self._api.row_digests(schema, [records.RowRef(group.uid, known)], "")
            proofs[first] = shown.rows
        contents = RowContents(rows, proofs)
        contents.check(group, group_digests)
        return contents

    async def _rows(
        self, schema: bytes, group: records.Group, ordinals: Sequence[int]
    ) -> dict[int, records.SealedRow]:
        refs = [records.RowRef(group.uid, ordinal) for ordinal in ordinals]
        stored = await self._api.rows(schema, refs, "")
        if [(row.group, row.ordinal) for row in stored] != [
            (ref.group, ref.ordinal) for ref in refs
        ]:
            raise errors.ApiFailed("the API answered with other rows than were asked for")
        return {row.ordinal: row.row for row in stored}

    # --- the head -------------------------------------------------------------------------------

    def _publish(self, user: str, old: MirrorCopy) -> layout.MirrorHead:
        """Write the objects that the new head names, then the head, then delete all
        other objects.
        """
        resources = layout.by_content("resources", self._resources, ".json")
        self._write_new(resources, self._resources)
        head = layout.MirrorHead(
            format=1,
            source=self._transport.base_url,
            member=user,
            taken=runtime.wall(),
            resources=resources,
            organizations={
                organization: self._publish_organization(organization, state, old)
                for organization, state in self._organizations.items()
            },
            schemas={
                schema: self._publish_schema(schema, state, old)
                for schema, state in self._schemas.items()
            },
        )
        self._write(layout.HEAD, msgspec.json.encode(head))
        self.copied.schemas = len(self._schemas)
        named = {layout.HEAD, resources}
        for published in head.organizations.values():
            named |= {*published.roster, published.grants}
        for schema, state in self._schemas.items():
            named |= {*head.schemas[schema].log, *state.log.objects().names(), state.checkpoint}
        for name in sorted(self._names - named):
            if layout.is_ours(name):
                self._store.delete(name)
                self.copied.deleted += 1
        return head

    def _write_new(self, name: str, data: bytes) -> None:
        if name not in self._names:
            self._write(name, data)

    def _publish_organization(
        self, organization: str, state: _OrganizationState, old: MirrorCopy
    ) -> layout.OrganizationHead:
        before = old.head.organizations.get(organization)
        roster = [] if before is None else list(before.roster)
        folder, number = f"organizations/{organization}", state.roster.number
        if state.fresh:
            roster.append(f"{folder}/roster/{number - len(state.fresh) + 1}-{number}")
            # A killed run may have left an object with this name, of another roster.
            self._write(roster[-1], wire.encode(state.fresh))
        grants = layout.by_content(f"{folder}/grants", state.grants)
        self._write_new(grants, state.grants)
        digest = state.roster.head.digest.hex() if number else ""
        return layout.OrganizationHead(roster, number, digest, grants)

    def _publish_schema(self, schema: str, state: _CopyState, old: MirrorCopy) -> layout.SchemaHead:
        before = old.head.schemas.get(schema)
        head, count = state.log.ledger.head, len(state.fresh)
        log = [] if before is None or count == head.version else list(before.log)
        # Each object is separate, because readers load it as a whole.
        for portion in portions(state.fresh, _DELTA_BYTES):
            first, last = portion[0].version, portion[-1].version
            log.append(f"schemas/{schema}/log/{first}-{last}")
            delta = records.ManifestDelta(ids.from_text(schema), last, None, bytes(32), portion, [])
            self._write(log[-1], wire.encode([delta]))
        digest = head.digest.hex()
        return layout.SchemaHead(state.organization, log, head.version, digest, state.checkpoint)


def authorization_of(text: str) -> str:
    """The Authorization value for the API, from a service's secret key.

    Raises:
        Malformed: it is not the secret key of a service.
    """
    return auth.authorization_of(credentials.parse_service_key(text))


def _has_head(store: layout.Store) -> bool:
    try:
        layout.read_head(store)
    except errors.MirrorBroken as error:
        if error.reason == "mirror_incomplete":
            return False
        raise
    return True


def _refuse_others(names: Iterable[str]) -> None:
    """
    Raises:
        NotAllowed: ``mirror_of_another``; the place has files but no mirror.
    """
    if found := [name for name in names if not layout.is_beginning(name)]:
        raise errors.NotAllowed(
            f"the place holds something, such as {min(found)}, and no mirror",
            code="mirror_of_another",
            hint="name an empty folder, or one that does not exist yet",
        )


def _would_lose(missing: str) -> errors.Conflict:
    return errors.Conflict(
        f"the API does not list {missing}, which the mirror has",
        code="mirror_would_lose",
        hint="the mirror stays as it is. Look at what the API lists for this account, and whether"
        " it was restored from a backup; if the mirror shall forget what is gone, use --forget",
    )


def _judged_by(log: SchemaLog, roster: Roster) -> bool:
    """Whether a log is verified by this roster, if it has entries."""
    membership = log.ledger.membership
    return roster.number == 0 if membership is None else membership.roster is roster
