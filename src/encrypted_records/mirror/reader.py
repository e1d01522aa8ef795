"""The API's read endpoints over a mirror: the same paths, parameters and answers.

Requests that change data are refused as ``read_only_mirror``. Nothing here knows HTTP beyond
method, path and parameters (:mod:`.serving`).
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from encrypted_records import __version__, errors, runtime
from encrypted_records.mirror.copy import (
    LINKS,
    MirrorCopy,
    MirrorResource,
    RowContents,
    SchemaLog,
    altered,
    find_id,
    gone,
    index_ids,
    last_part,
    portions,
    read_page_digests,
    read_pages,
    read_rows,
    read_runs,
)
from encrypted_records.mirror.layout import (
    MirrorHead,
    MirrorRows,
    SchemaObjects,
    Store,
    read_head,
    require_complete,
)
from encrypted_records.model import digests, ids, resources, wire
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.digests import HOLE, RUN
from encrypted_records.model.queries import DEFAULT_LIMIT, MAX_LIMIT
from encrypted_records.model.records import (
    DELTA_BYTES,
    MAX_BLOCK_REFS,
    MAX_DIGEST_REFS,
    MAX_NAMED_RECORDS,
    MAX_PAGE_REFS,
    MAX_ROW_REFS,
    BlockNames,
    BlockRef,
    Group,
    ManifestDelta,
    Page,
    PageDigests,
    PageRef,
    RowDigests,
    RowName,
    RowRef,
    SealedRow,
    Segment,
    StoredRow,
)
from encrypted_records.model.roster import ENTRIES_AT_ONCE

JSON = "application/json"
#: Objects that stay in memory: up to a mebibyte each, and more for an index of ids.
_KEPT = 64

T = TypeVar("T")
Params = Mapping[str, Sequence[str]]
#: Filters of a list, and the member of a resource that each compares.
_FILTERS = {
    "organizations": (),
    "datasets": ("organization", "slug", "name"),
    "schemas": ("organization", "dataset", "slug", "name"),
}


@dataclass(frozen=True, slots=True)
class MirrorRequest:
    """A request by ``member``, the 16-byte id of a user; its path has matched."""

    member: bytes
    params: Params
    body: bytes
    parts: Mapping[str, str]

    def last(self, name: str) -> str | None:
        values = self.params.get(name, ())
        return values[-1] if values else None

    def number(self, name: str, least: int = 0) -> int | None:
        """
        Raises:
            BadInput: it is not a number, or less than ``least``.
        """
        text = self.last(name)
        if text is None:
            return None
        if text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= least:
            return int(text)
        detail = f"expected an integer of at least {least}"
        flaw = errors.Flaw("invalid_parameter", detail, parameter=name)
        raise errors.BadInput(f"the parameter {name} is not valid", flaws=(flaw,))


@dataclass(frozen=True, slots=True)
class MirrorAnswer:
    body: bytes
    media_type: str = JSON
    status: int = 200


class MirrorReader:
    """Answers requests from a mirror, which may be updated meanwhile. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._copy: MirrorCopy | None = None
        self._looked = float("-inf")
        self._turn = threading.RLock()
        self._kept: OrderedDict[str, Any] = OrderedDict()
        #: the digests of indexes of ids that were verified against their rows, by name
        self._proven: dict[str, bytes] = {}

    def head(self) -> MirrorHead:
        """The present head.

        Raises:
            MirrorBroken: there is no head, or no complete one.
            Unavailable: the store cannot be read.
        """
        return self._present().head

    def _present(self) -> MirrorCopy:
        with self._turn:
            now = runtime.monotonic()
            if self._copy is not None and now - self._looked < self._store.look_seconds:
                return self._copy
            head = read_head(self._store)
            require_complete(head)
            self._looked = now
            if self._copy is None or self._copy.head != head:
                self._copy = MirrorCopy(self._store, head, self._copy)
            return self._copy

    def answer(
        self, method: str, path: str, params: Params, body: bytes, member: bytes
    ) -> MirrorAnswer:
        """
        Args:
            member: the member whose grants are read.

        Raises:
            ErsError: as the API answers it; ``read_only_mirror``, ``not_mirrored``.
        """
        # Serialized, because logs are continued and the object cache changes.
        with self._turn:
            copy = self._present()
            for known, form, function in _ENDPOINTS:
                match = form.fullmatch(path)
                if match is not None and method == known:
                    request = MirrorRequest(member, params, body, match.groupdict())
                    return self._answer(function, copy, request)
        if method not in ("GET", "HEAD"):
            raise read_only(copy.head)
        raise errors.NotFound(
            "a mirror has no such thing",
            code="not_mirrored",
            hint=f"ask the API itself, at {copy.head.source}",
        )

    def _answer(self, function: Function, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        while True:
            try:
                return function(self, copy, request)
            except errors.MirrorBroken as error:
                # A run that has ended meanwhile deletes objects that its head does not name.
                self._looked = float("-inf")
                present = self._present()
                if error.reason != "mirror_incomplete" or present is copy:
                    raise
                copy = present

    # --- resources --------------------------------------------------------------------------------

    def status(self, copy: MirrorCopy, _request: MirrorRequest) -> MirrorAnswer:
        head = copy.head
        assert head.taken is not None, "the head is complete"
        taken = datetime.fromtimestamp(int(head.taken), UTC)
        return _json(
            resources.StatusResource(
                status="ok",
                api_version=__version__,
                behind_proxy=False,
                mirror=resources.MirrorStatus(head.source, taken),
            )
        )

    def user(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        text = ids.to_text(request.member)
        if request.parts["id"] not in ("self", text):
            raise _nothing()
        return _json(
            resources.UserResource(
                id=text,
                url=ids.reference("users", text),
                email="",
                first_name="",
                last_name="",
                organizations=[
                    ids.reference("organizations", organization)
                    for organization in copy.head.organizations
                ],
                date_joined=None,
            )
        )

    def listed(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        collection = request.parts["collection"]
        found = copy.resources(collection)
        for name in _FILTERS[collection]:
            wanted = request.last(name)
            if wanted is not None:
                wanted = last_part(wanted) if name in LINKS else wanted
                found = [resource for resource in found if resource.member(name) == wanted]
        return _page([resource.raw for resource in found], f"/api/{collection}/", request)

    def resource(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        return _first(
            copy,
            request.parts["collection"],
            lambda resource: resource.member("id") == request.parts["id"],
        )

    def organization_by_slug(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        slug = request.parts["slug"]
        return _first(copy, "organizations", lambda resource: resource.member("slug") == slug)

    def dataset_by_slug(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        place = (request.parts["id"], request.parts["slug"])
        return _first(
            copy,
            "datasets",
            lambda resource: (resource.member("organization"), resource.member("slug")) == place,
        )

    def schema_by_slug(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        place = (request.parts["id"], request.parts["slug"])
        return _first(
            copy,
            "schemas",
            lambda resource: (resource.member("dataset"), resource.member("slug")) == place,
        )

    def nothing_listed(self, _copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        return _page([], "", request)

    # --- roster -----------------------------------------------------------------------------------

    def roster(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        organization = self._organization(copy, request)
        entries = copy.entries(organization, request.number("since") or 0)
        return _frames(islice(entries, ENTRIES_AT_ONCE))

    def grants(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        named = request.last("member")
        member = request.member if named is None else ids.from_path(named)
        return _frames(copy.grants_of(self._organization(copy, request), member))

    def _organization(self, copy: MirrorCopy, request: MirrorRequest) -> str:
        if request.parts["id"] not in copy.head.organizations:
            raise _nothing()
        return request.parts["id"]

    # --- the log, pages and rows ------------------------------------------------------------------

    def manifest(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        schema = self._schema(copy, request)
        known = request.number("checkpoint")
        since = 0 if known is not None else request.number("since") or 0
        _require_version(copy.log(schema), known or since)
        checkpoint: wire.Checkpoint | None = None
        with suppress(
            errors.MirrorBroken
        ):  # ers verify reports it, and the log has the same content
            checkpoint = None if known is None else copy.checkpoint(schema)
        if checkpoint is None:
            return _frames(self._deltas(copy, schema, since))
        version = wire.decode_checkpoint_body(checkpoint).version
        since = min(known, version) if known else version
        return _frames([checkpoint, *self._deltas(copy, schema, since, every_header=True)])

    def _deltas(
        self, copy: MirrorCopy, schema: str, since: int, *, every_header: bool = False
    ) -> Iterator[ManifestDelta]:
        """The log after a version, with the headers of the segments that it added, or of all live
        segments.
        """
        log = copy.log(schema)
        ledger = log.ledger
        definition = ledger.definition
        if definition is None:
            shown = _find(copy, "schemas", lambda resource: resource.member("id") == schema)
            definition = parse_definition(bytes(shown.members.get("schema", b"")))
        key_id = log.key_ids[max(log.key_ids)] if log.key_ids else None
        uid, digest = ids.from_text(schema), definition.digest
        entries = copy.log_entries(schema, since)
        *earlier, last = list(portions(entries, DELTA_BYTES)) or [[]]
        for portion in earlier:
            yield ManifestDelta(uid, portion[-1].version, key_id, digest, portion, [])
        headers = list(copy.headers(schema, 0 if every_header else since))
        yield ManifestDelta(uid, ledger.version, key_id, digest, last, headers)

    def pages(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        schema = self._schema(copy, request)
        return self._behind_log(
            copy,
            schema,
            request,
            lambda: self._pages(copy, schema, _refs(request.body, PageRef, MAX_PAGE_REFS)),
        )

    def _pages(self, copy: MirrorCopy, schema: str, wanted: Sequence[PageRef]) -> Iterator[Page]:
        objects = copy.log(schema).objects()
        segments = {segment.uid: segment for segment in objects.snapshot.segments}
        for ref in wanted:
            segment = segments.get(ref.segment)
            if segment is None or ref.number >= segment.pages:
                raise gone("page", "segment_gone")
            place = objects.page(segment, ref.number)
            page_digests = self._page_digests(objects, segment)
            pages = self._keep(place.name, partial(read_pages, self._store, place, page_digests))
            yield pages[ref.number - place.first]

    def rows(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        schema = self._schema(copy, request)
        return self._behind_log(
            copy,
            schema,
            request,
            lambda: self._rows(copy, schema, _refs(request.body, RowRef, MAX_ROW_REFS)),
        )

    def _rows(self, copy: MirrorCopy, schema: str, wanted: Sequence[RowRef]) -> Iterator[StoredRow]:
        objects = copy.log(schema).objects()
        for ref in wanted:
            _, contents, _ = self._row(objects, ref)
            yield StoredRow(ref.group, ref.ordinal, contents.rows[ref.ordinal])

    def _row(self, objects: SchemaObjects, ref: RowRef) -> tuple[Group, RowContents, MirrorRows]:
        """The object with a live row."""
        state = objects.snapshot.groups.get(ref.group)
        if state is None or not objects.snapshot.is_live(ref.group, ref.ordinal):
            raise gone("row", "row_gone")
        place = objects.row(state.group, ref.ordinal)
        return state.group, self._contents(objects, place), place

    def _contents(self, objects: SchemaObjects, place: MirrorRows) -> RowContents:
        read = partial(read_rows, self._store, place, self._runs(objects, place.group))
        return self._keep(place.name, read)

    def _runs(self, objects: SchemaObjects, group: Group) -> RowDigests:
        name = objects.digests(group)
        return self._keep(name, partial(read_runs, self._store, objects, group))

    def _page_digests(self, objects: SchemaObjects, segment: Segment) -> PageDigests:
        name = objects.page_digests(segment)
        return self._keep(name, partial(read_page_digests, self._store, objects, segment))

    def _behind_log(
        self,
        copy: MirrorCopy,
        schema: str,
        request: MirrorRequest,
        items: Callable[[], Iterable[msgspec.Struct]],
    ) -> MirrorAnswer:
        """``items``, after the log since the version that the caller names, if any; only the log if
        it has advanced.
        """
        since = request.number("since")
        if since is None:
            return _frames(items())
        _require_version(copy.log(schema), since)
        log = list(self._deltas(copy, schema, since))
        is_moved = since < copy.log(schema).ledger.version
        return _frames(log if is_moved else [*log, *items()])

    def names(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        objects = copy.log(self._schema(copy, request)).objects()
        wanted = _refs(request.body, BlockRef, MAX_BLOCK_REFS)
        if any(ref.first % RUN for ref in wanted):
            raise errors.BadInput("no block of rows begins there", code="malformed_frame")
        return _frames([self._block(objects, ref) for ref in wanted])

    def _block(self, objects: SchemaObjects, ref: BlockRef) -> BlockNames:
        state = objects.snapshot.groups.get(ref.group)
        if state is None or ref.first >= state.group.count or ref.field not in state.group.fields:
            raise gone("row", "row_gone")
        at = list(state.group.fields).index(ref.field)
        place = objects.row(state.group, ref.first)
        rows = self._contents(objects, place).rows if place.live_rows else {}
        block: list[RowName | None] = []
        for ordinal in range(ref.first, min(ref.first + RUN, state.group.count)):
            row = rows.get(ordinal)
            block.append(
                None if row is None else RowName(row.record_id, row.version, row.fields[at])
            )
        return BlockNames(ref.group, ref.first, ref.field, block)

    def digests(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        objects = copy.log(self._schema(copy, request)).objects()
        items = list(wire.decode(request.body))
        wire.require_few(items, MAX_DIGEST_REFS)
        return _frames([self._digests(objects, item) for item in items])

    def _digests(self, objects: SchemaObjects, ref: msgspec.Struct) -> msgspec.Struct:
        if isinstance(ref, PageRef):
            segments = (
                segment for segment in objects.snapshot.segments if segment.uid == ref.segment
            )
            segment = next(segments, None)
            if segment is None or ref.number >= segment.pages:
                raise gone("page", "segment_gone")
            return self._page_digests(objects, segment)
        if not isinstance(ref, RowRef):
            raise errors.Malformed(
                "expected only RowRef and PageRef frames", code="malformed_frame"
            )
        group, contents, place = self._row(objects, ref)
        group_digests = self._runs(objects, group)
        first = ref.ordinal - ref.ordinal % RUN
        row_digests = contents.digests.get(first)
        if row_digests is None:
            run = range(first, min(first + RUN, place.ordinals.stop))
            row_digests = digests.row_digests(
                group_digests.salt, [contents.rows.get(ordinal) for ordinal in run]
            )
        return RowDigests(
            group.uid, group_digests.salt, first, row_digests or HOLE, group_digests.runs
        )

    def checkpoints(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        self._schema(copy, request)
        return _json([])

    def damage(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        self._schema(copy, request)
        return _json({"segments": [], "rows": []})

    def erasure(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        version = copy.log(self._schema(copy, request)).ledger.version
        return _json(
            {
                "version": version,
                "asked": 0,
                "done": version,
                "due": None,
                "rows": 0,
                "segments": 0,
                "groups": 0,
                "since": None,
                "database": "sqlite",
                "holds": [],
            }
        )

    def holds(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        """A mirror never erases data under a reader, so a hold is granted and has no effect."""
        self._schema(copy, request)
        return _json([])

    def release(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        self._schema(copy, request)
        return MirrorAnswer(b"", status=204)

    def _schema(self, copy: MirrorCopy, request: MirrorRequest) -> str:
        return _held_schema(copy, request.parts["id"])

    def _keep(self, name: str, read: Callable[[], T]) -> T:
        """An object, read if necessary; the most recently used objects stay in memory."""
        if name not in self._kept:
            self._kept[name] = read()
        self._kept.move_to_end(name)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        found: T = self._kept[name]
        return found

    # --- records by id ----------------------------------------------------------------------------

    def records(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        named = request.params.get("id", ())
        if named:
            if len(named) > MAX_NAMED_RECORDS:
                raise errors.TooLarge(f"more than {MAX_NAMED_RECORDS} records in one request")
            return _json({"results": [self._record(copy, record_id) for record_id in named]})
        schema = request.last("schema")
        if schema is None:
            detail = "name the schema whose records to list: ?schema=<id>"
            raise errors.BadInput(
                detail, flaws=(errors.Flaw("required", detail, parameter="schema"),)
            )
        schema = _held_schema(copy, last_part(schema))
        objects = copy.log(schema).objects()
        offset, limit = _paging(request)
        listed: list[dict[str, Any]] = []
        for place, ordinal in islice(_live_after(objects, offset), limit):
            row = self._contents(objects, place).rows[ordinal]
            listed.append(_sealed(copy, schema, place.group, ordinal, row))
        if request.last("dead") == "true":
            listed = [record | {"dead": False} for record in listed]
        count = sum(map(objects.live_rows, objects.groups()))
        return _json(_links("/api/records/", request, count) | {"results": listed})

    def record(self, copy: MirrorCopy, request: MirrorRequest) -> MirrorAnswer:
        return _json(self._record(copy, request.parts["id"]))

    def _record(self, copy: MirrorCopy, text: str) -> dict[str, Any]:
        try:
            record_id = ids.from_text(text)
        except errors.Malformed:
            raise _nothing() from None
        for schema in copy.head.schemas:
            objects = copy.log(schema).objects()
            for group in objects.groups():
                name = objects.ids(group)
                index = self._keep(name, partial(self._store.read, name))
                ordinal = find_id(index, record_id)
                if ordinal is not None:
                    row = self._indexed(objects, group, ordinal)
                    if row is None or row.record_id != record_id:
                        raise altered(name)
                    return _sealed(copy, schema, group, ordinal, row)
        # That no record has this id is the word of the indexes, which are not signed.
        for schema in copy.head.schemas:
            self._prove_ids(copy.log(schema).objects())
        raise _nothing()

    def _indexed(self, objects: SchemaObjects, group: Group, ordinal: int) -> SealedRow | None:
        """The row that an index of ids names; None if there is none, or it is dead."""
        if ordinal >= group.count or not objects.snapshot.is_live(group.uid, ordinal):
            return None
        return self._contents(objects, objects.row(group, ordinal)).rows[ordinal]

    def _prove_ids(self, objects: SchemaObjects) -> None:
        """Verify the indexes of ids against the rows, each index once.

        Raises:
            MirrorBroken: an index does not match its rows.
        """
        for group in objects.groups():
            name = objects.ids(group)
            index = self._keep(name, partial(self._store.read, name))
            digest = hashlib.sha256(index).digest()
            if self._proven.get(name) == digest:
                continue
            group_digests = self._runs(objects, group)
            rows = (
                read_rows(self._store, place, group_digests).rows for place in objects.rows(group)
            )
            if index != index_ids(rows):
                del self._kept[name]
                raise altered(name)
            self._proven[name] = digest


def read_only(head: MirrorHead) -> errors.NotAllowed:
    return errors.NotAllowed(
        "this is a mirror, which is only read",
        code="read_only_mirror",
        hint=f"make the change at the API that it was copied from, {head.source}",
    )


def _nothing() -> errors.NotFound:
    return errors.NotFound("there is nothing here, or nothing that was mirrored")


def _require_version(log: SchemaLog, version: int) -> None:
    """
    Raises:
        Conflict: ``log_conflict``; the log in the mirror does not reach this version.
    """
    if version > log.ledger.version:
        raise errors.Conflict(
            "the log in this mirror ends before the version you have seen",
            code="log_conflict",
            hint="the copy is stale: run ers mirror again, or use a newer copy",
        )


def _live_after(objects: SchemaObjects, offset: int) -> Iterator[tuple[MirrorRows, int]]:
    """The live rows after the first ``offset``, by object and ordinal, in the order of storing.

    Groups and objects have counts of their live rows, so a late page costs little more than an
    early page.
    """
    for group in objects.groups():
        if offset >= objects.live_rows(group):
            offset -= objects.live_rows(group)
            continue
        for place in objects.rows(group):
            if offset < place.live_rows:
                yield from ((place, ordinal) for ordinal in place.live[offset:])
            offset = max(0, offset - place.live_rows)


def _held_schema(copy: MirrorCopy, schema: str) -> str:
    if schema not in copy.head.schemas:
        raise _nothing()
    return schema


def _sealed(
    copy: MirrorCopy, schema: str, group: Group, ordinal: int, row: SealedRow
) -> dict[str, Any]:
    log = copy.log(schema)
    definition = log.ledger.definition
    assert definition is not None, "a schema with rows has a definition"
    names = [definition.by_id[number].name for number in group.fields]
    text = ids.to_text(row.record_id)
    return {
        "id": text,
        "url": ids.reference("records", text),
        "schema": ids.reference("schemas", schema),
        "version": row.version,
        "group": group.uid.hex(),
        "ordinal": ordinal,
        "key_id": log.key_ids[group.key_version].hex(),
        "key_version": group.key_version,
        "fields": {
            name: base64.b64encode(sealed).decode()
            for name, sealed in zip(names, row.fields, strict=True)
        },
    }


def _find(
    copy: MirrorCopy, collection: str, wanted: Callable[[MirrorResource], bool]
) -> MirrorResource:
    for resource in copy.resources(collection):
        if wanted(resource):
            return resource
    raise _nothing()


def _first(
    copy: MirrorCopy, collection: str, wanted: Callable[[MirrorResource], bool]
) -> MirrorAnswer:
    return MirrorAnswer(bytes(_find(copy, collection, wanted).raw))


def _json(content: Any) -> MirrorAnswer:
    return MirrorAnswer(msgspec.json.encode(content))


def _frames(items: Iterable[msgspec.Struct]) -> MirrorAnswer:
    return MirrorAnswer(wire.encode(items), wire.MEDIA_TYPE)


def _refs(body: bytes, kind: type[wire.T], most: int) -> list[wire.T]:
    wanted = wire.decode_all(body, kind)
    wire.require_few(wanted, most)
    return wanted


def _paging(request: MirrorRequest) -> tuple[int, int]:
    limit = request.number("limit", least=1) or DEFAULT_LIMIT
    return request.number("offset") or 0, min(limit, MAX_LIMIT)


def _page(results: Sequence[msgspec.Raw], path: str, request: MirrorRequest) -> MirrorAnswer:
    offset, limit = _paging(request)
    page = list(results[offset : offset + limit])
    return _json(_links(path, request, len(results)) | {"results": page})


def _links(path: str, request: MirrorRequest, count: int) -> dict[str, Any]:
    """The members of a list besides its results."""
    offset, limit = _paging(request)
    filters = [
        (name, value)
        for name, values in request.params.items()
        if name not in ("limit", "offset")
        for value in values
    ]

    def at(place: int) -> str:
        # In alphabetical order, and without an offset of 0, as the API writes them.
        places = [("offset", str(place))] if place > 0 else []
        return f"{path}?{urlencode(sorted([*filters, ('limit', str(limit)), *places]))}"

    return {
        "count": count,
        "next": at(offset + limit) if offset + limit < count else None,
        "previous": at(offset - limit) if offset > 0 else None,
    }


_ID = r"(?P<id>[^/]+)"
_COLLECTION = r"(?P<collection>organizations|datasets|schemas)"
_SCHEMA = rf"/api/schemas/{_ID}"
_ORGANIZATION = rf"/api/organizations/{_ID}"
Function = Callable[[MirrorReader, MirrorCopy, MirrorRequest], MirrorAnswer]
_ENDPOINTS: tuple[tuple[str, re.Pattern[str], Function], ...] = tuple(
    (method, re.compile(path), function)
    for method, path, function in (
        ("GET", r"/api/status/", MirrorReader.status),
        ("GET", rf"/api/users/{_ID}/", MirrorReader.user),
        ("GET", rf"/api/{_COLLECTION}/", MirrorReader.listed),
        ("GET", r"/api/organizations/by-slug/(?P<slug>[^/]+)/", MirrorReader.organization_by_slug),
        ("GET", rf"{_ORGANIZATION}/roster/", MirrorReader.roster),
        ("GET", rf"{_ORGANIZATION}/grants/", MirrorReader.grants),
        ("GET", rf"{_ORGANIZATION}/dataset/(?P<slug>[^/]+)/", MirrorReader.dataset_by_slug),
        ("GET", rf"/api/datasets/{_ID}/schema/(?P<slug>[^/]+)/", MirrorReader.schema_by_slug),
        ("GET", rf"/api/{_COLLECTION}/{_ID}/", MirrorReader.resource),
        ("GET", r"/api/invitations/", MirrorReader.nothing_listed),
        ("GET", rf"{_SCHEMA}/manifest/", MirrorReader.manifest),
        ("POST", rf"{_SCHEMA}/pages/", MirrorReader.pages),
        ("POST", rf"{_SCHEMA}/rows/", MirrorReader.rows),
        ("POST", rf"{_SCHEMA}/names/", MirrorReader.names),
        ("POST", rf"{_SCHEMA}/digests/", MirrorReader.digests),
        ("GET", rf"{_SCHEMA}/checkpoints/", MirrorReader.checkpoints),
        ("GET", rf"{_SCHEMA}/damage/", MirrorReader.damage),
        ("GET", rf"{_SCHEMA}/erasure/", MirrorReader.erasure),
        ("GET", rf"{_SCHEMA}/holds/", MirrorReader.holds),
        ("PUT", rf"{_SCHEMA}/holds/", MirrorReader.holds),
        ("DELETE", rf"{_SCHEMA}/holds/", MirrorReader.release),
        ("GET", r"/api/records/", MirrorReader.records),
        ("GET", rf"/api/records/{_ID}/", MirrorReader.record),
    )
)
#: Paths that need no credentials.
PUBLIC = frozenset({"/api/status/"})
