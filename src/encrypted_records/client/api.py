"""The API's endpoints as the proxy uses them, one method each.

``auth`` is everywhere the caller's own Authorization value: the proxy has no rights of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from encrypted_records.client.transport import Response, Transport
from encrypted_records.errors import ApiFailed, ErsError, Malformed, Unsupported
from encrypted_records.model import wire
from encrypted_records.model.ids import reference, to_text
from encrypted_records.model.records import (
    U32,
    Commit,
    CommitUpload,
    ManifestDelta,
    Page,
    PageRef,
    Receipt,
    RowRef,
    StoredRow,
)

#: Rows and pages asked for in one request; the API takes no fewer.
MAX_ROWS = 1000
MAX_PAGES = 1000
#: Schemas asked for in one request: each comes with its definition.
MAX_SCHEMAS = 100


class SchemaResource(msgspec.Struct):
    """A schema as the API returns it; ``schema`` is the definition's own text."""

    id: str
    url: str
    organization: str
    schema: msgspec.Raw


class SchemaKeyState(msgspec.Struct):
    """What the API says of a schema's keys; null until it has records."""

    id: str
    url: str
    name: str
    organization: str
    key_id: str | None
    key_version: U32 | None
    first_key_version: U32 | None


class _SchemaPage(msgspec.Struct):
    next: str | None
    results: list[SchemaKeyState]


class _Access(msgspec.Struct):
    access: str


class SealedRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A sealed record in JSON: ids and numbers as text, ciphertexts in base64."""

    id: str
    url: str
    schema: str
    version: U32
    group: str
    ordinal: U32
    key_id: str
    key_version: U32
    fields: dict[str, bytes]


class _JobToken(msgspec.Struct):
    token: str


class _SealedRecords(msgspec.Struct):
    results: list[SealedRecord]


@dataclass(frozen=True, slots=True)
class Known:
    """What a caller takes for a schema's present state: version of the log, and definition."""

    version: int
    definition: bytes


class Moved(Exception):
    """The state is another than the caller knows; ``deltas`` lead from it to the present one."""

    def __init__(self, known: Known, deltas: Sequence[ManifestDelta]) -> None:
        super().__init__("the log has moved on")
        self.known = known
        self.deltas = deltas


class Api:
    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def access_token(self, email: str, password: str) -> str:
        answer = await self.transport.request(
            "POST", "/api/token/", json={"email": email, "password": password}
        )
        access: str = answer.typed(_Access).access
        return access

    async def session_token(self, headers: Mapping[str, str]) -> str:
        """An access token for a session; ``headers`` are its cookies and CSRF token."""
        own = {"Origin": self.transport.base_url}
        answer = await self.transport.request(
            "POST", "/api/token/session/", headers={**headers, **own}
        )
        access: str = answer.typed(_Access).access
        return access

    async def user_id(self, auth: str) -> str:
        answer = await self.transport.request("GET", "/api/users/self/", auth=auth)
        found = answer.json()
        if not isinstance(found, dict) or not isinstance(found.get("id"), str):
            raise ApiFailed("the API's answer names no user")
        return str(found["id"])

    async def schema(self, schema: bytes, auth: str) -> SchemaResource:
        answer = await self.transport.request("GET", reference("schemas", schema), auth=auth)
        resource: SchemaResource = answer.typed(SchemaResource)
        return resource

    async def schema_keys(self, auth: str) -> list[SchemaKeyState]:
        """All schemas that the caller reaches."""
        found: list[SchemaKeyState] = []
        path: str | None = f"/api/schemas/?limit={MAX_SCHEMAS}"
        while path is not None:
            answer = await self.transport.request("GET", path, auth=auth)
            page: _SchemaPage = answer.typed(_SchemaPage)
            found += page.results
            path = page.next
        return found

    async def sealed_records(self, record_ids: Sequence[bytes], auth: str) -> list[SealedRecord]:
        """The records of these ids (at most 100), in their order."""
        query = "&".join(f"id={to_text(record_id)}" for record_id in record_ids)
        answer = await self.transport.request("GET", f"/api/records/?{query}", auth=auth)
        found: _SealedRecords = answer.typed(_SealedRecords)
        return found.results

    async def manifest(self, schema: bytes, since: int, auth: str) -> list[ManifestDelta]:
        """The log after version ``since``: one delta, or several that follow on."""
        path = f"{reference('schemas', schema)}manifest/"
        answer = await self.transport.request("GET", path, params={"since": str(since)}, auth=auth)
        deltas = _all(answer, ManifestDelta)
        if not deltas:
            raise ApiFailed("the API's answer holds no manifest")
        return deltas

    async def pages(
        self, schema: bytes, wanted: Sequence[PageRef], auth: str, *, known: Known | None = None
    ) -> list[Page]:
        """The pages, in the order asked for.

        Args:
            known: what the API is to confirm as the present state.

        Raises:
            Moved: it is not.
        """
        path = f"{reference('schemas', schema)}pages/"
        return await self._read(path, wanted, MAX_PAGES, Page, auth, known)

    async def rows(
        self, schema: bytes, wanted: Sequence[RowRef], auth: str, *, known: Known | None = None
    ) -> list[StoredRow]:
        """The rows, in the order asked for; ``known`` as for :meth:`pages`."""
        path = f"{reference('schemas', schema)}rows/"
        return await self._read(path, wanted, MAX_ROWS, StoredRow, auth, known)

    async def _read(
        self,
        path: str,
        wanted: Sequence[msgspec.Struct],
        at_once: int,
        kind: type[wire.T],
        auth: str,
        known: Known | None,
    ) -> list[wire.T]:
        found: list[wire.T] = []
        for start in range(0, len(wanted), at_once):
            body = wire.encode(wanted[start : start + at_once])
            answer = await self._frames(path, body, auth, known)
            found += _all(answer, kind) if known is None else _confirmed(answer, kind, known)
            # All that is asked for afterwards is immutable, so one confirmation is enough.
            known = None
        if len(found) != len(wanted):
            raise ApiFailed("the API answered with another number of items than was asked for")
        return found

    async def commit(self, uploads: Sequence[CommitUpload], auth: str) -> list[Receipt]:
        """Store commits, all or none; repeating is safe since each carries its id."""
        body = b"".join(wire.encode_uploads(uploads))
        receipts = _all(await self._frames("/api/commits/", body, auth), Receipt)
        if len(receipts) != len(uploads):
            raise ApiFailed("the API answered with another number of receipts than commits")
        return receipts

    async def job_token(self, job: bytes, auth: str) -> str:
        """An Authorization value with which this job, a UUID's bytes, can go on by itself."""
        answer = await self.transport.request("POST", f"{_job(job)}token/", auth=auth)
        token: str = answer.typed(_JobToken).token
        return f"Job {token}"

    async def stage(self, schema: bytes, body: bytes, auth: str) -> None:
        """Store a part ahead of its commit; ``body`` is what :func:`wire.encode_part` gives."""
        await self._frames(f"{reference('schemas', schema)}staging/", body, auth)

    async def publish(self, job: bytes, commits: Sequence[Commit], auth: str) -> list[Receipt]:
        """Make what is staged under this id visible; repeating is safe as for :meth:`commit`."""
        answer = await self._frames(f"{_job(job)}publish/", wire.encode(commits), auth)
        receipts = _all(answer, Receipt)
        if len(receipts) != len(commits):
            raise ApiFailed("the API answered with another number of receipts than commits")
        return receipts

    async def drop_parts(self, job: bytes, auth: str) -> None:
        """Drop what is staged under this id, whatever was asked about it before."""
        await self.transport.request("DELETE", f"{_job(job)}parts/", auth=auth, repeatable=True)

    async def drop_job(self, job: bytes, auth: str) -> None:
        """Drop what is staged under this id, and void the job's token."""
        await self.transport.request("DELETE", _job(job), auth=auth, repeatable=True)

    async def _frames(
        self, path: str, body: bytes, auth: str, known: Known | None = None
    ) -> Response:
        return await self.transport.request(
            "POST",
            path,
            data=body,
            params=None if known is None else {"since": str(known.version)},
            headers={"Content-Type": wire.MEDIA_TYPE},
            auth=auth,
            repeatable=True,
        )


def _job(job: bytes) -> str:
    return f"/api/jobs/{uuid.UUID(bytes=job)}/"


def _all(answer: Response, kind: type[wire.T]) -> list[wire.T]:
    try:
        return wire.decode_all(answer.body, kind)
    except ErsError:
        raise ApiFailed("the API's answer is not in the format of this version") from None


def _confirmed(answer: Response, kind: type[wire.T], known: Known) -> list[wire.T]:
    """The frames behind the log, which must say that there is nothing after ``known``.

    Raises:
        Moved: it says otherwise.
    """
    deltas: list[ManifestDelta] = []
    found: list[wire.T] = []
    try:
        for item in wire.decode(answer.body):
            if isinstance(item, ManifestDelta) and not found:
                deltas.append(item)
            elif isinstance(item, kind):
                found.append(item)
            else:
                raise ApiFailed("the API's answer holds what was not asked for")
    except (Malformed, Unsupported):
        raise ApiFailed("the API's answer is not in the format of this version") from None
    if not deltas:
        raise ApiFailed("the API did not say whether the log has moved on")
    unmoved = Known(deltas[-1].version, deltas[-1].definition) == known
    if not unmoved or any(delta.entries for delta in deltas):
        raise Moved(known, deltas)
    return found
