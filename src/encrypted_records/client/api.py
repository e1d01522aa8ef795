"""The API's endpoints for the proxy, one method each, and its lists, page after page.

Beside schemas and records: checkpoints, erasure of ended rows, and holds of log versions; rosters
have their own module (:mod:`.rosters`). ``auth`` is always the caller's Authorization value: the
proxy has no rights by itself.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta

from encrypted_records import runtime
from encrypted_records.client.messages import Response, Whole
from encrypted_records.client.transport import ANSWER_SECONDS, Transport
from encrypted_records.errors import ApiFailed, ErsError, Malformed, Unsupported
from encrypted_records.model import resources, wire
from encrypted_records.model.ids import reference, to_text
from encrypted_records.model.records import (
    ATTEMPT_HEADER,
    MAX_BLOCK_REFS,
    MAX_DIGEST_REFS,
    MAX_ROW_REFS,
    U63,
    BlockNames,
    BlockRef,
    Commit,
    CommitUpload,
    ManifestDelta,
    Page,
    PageDigests,
    PageRef,
    Receipt,
    RowDigests,
    RowRef,
    StoredRow,
)

T = TypeVar("T")

#: Maximum pages of a list. An untrusted API may have a list without an end.
MOST_PAGES = 200
#: Maximum bytes of a list, all of which is held in memory.
MAX_LIST_BYTES = 256 << 20


async def read_list(transport: Transport, path: str, kind: type[T], auth: str) -> list[T]:
    """All items of a list.

    Args:
        path: the path of its first page, with parameters.

    Raises:
        ApiFailed: the list has no end, or continues elsewhere; or a page is malformed.
    """
    found: list[T] = []
    first_path, _, _ = path.partition("?")
    size = 0
    for _ in range(MOST_PAGES):
        answer = await transport.request("GET", path, auth=auth)
        size += len(answer.body)
        if size > MAX_LIST_BYTES:
            break
        page: Any = answer.convert(resources.ListPage[kind])  # type: ignore[valid-type]
        found += page.results
        if page.next is None:
            return found
        # It is appended to the API's address, and must not turn it into another host.
        if not page.next.startswith(f"{first_path}?"):
            raise ApiFailed("a list of the API continues at another path")
        path = page.next
    raise ApiFailed("a list of the API has no end")


@dataclass(frozen=True, slots=True)
class KnownState:
    """The state of a schema as a caller knows it: version of the log, and definition."""

    version: int
    definition: bytes


class Moved(Exception):
    """The state differs from the caller's; ``deltas`` lead from the caller's to the
    present state.
    """

    def __init__(self, known: KnownState, deltas: Sequence[ManifestDelta]) -> None:
        super().__init__("the log has moved on")
        self.known = known
        self.deltas = deltas


def read_frames(answer: Response, kind: type[wire.T], known: KnownState | None) -> list[wire.T]:
    """The frames of an answer, which begins with the log if the caller stated its known version.

    Raises:
        Moved: the log has advanced beyond ``known``.
        ApiFailed: the answer does not fit the request.
    """
    return all_frames(answer, kind) if known is None else _confirm(answer, kind, known)


def all_frames(answer: Response, kind: type[wire.T]) -> list[wire.T]:
    """The frames of an answer with frames of a single kind.

    Raises:
        ApiFailed: it has other frames.
    """
    try:
        return wire.decode_all(answer.body, kind)
    except ErsError:
        raise ApiFailed("the API's answer is not in the format of this version") from None


def _confirm(answer: Response, kind: type[wire.T], known: KnownState) -> list[wire.T]:
    """The frames after the log, which must state that nothing follows ``known``.

    Raises:
        Moved: something follows.
    """
    deltas: list[ManifestDelta] = []
    frames: list[wire.T] = []
    try:
        for item in wire.decode(answer.body):
            if isinstance(item, ManifestDelta) and not frames:
                deltas.append(item)
            elif isinstance(item, kind):
                frames.append(item)
            else:
                raise ApiFailed("the API's answer contains something that was not requested")
    except (Malformed, Unsupported):
        raise ApiFailed("the API's answer is not in the format of this version") from None
    if not deltas:
        raise ApiFailed("the API did not say whether the log has moved on")
    unmoved = KnownState(deltas[-1].version, deltas[-1].definition) == known
    if not unmoved or any(delta.entries for delta in deltas):
        raise Moved(known, deltas)
    return frames


#: Pages per request: fewer than the API allows, because they are held in memory.
MAX_PAGES = 1000
#: Up to this many bytes, decoding an answer takes less time than handing it to a thread.
FEW_BYTES = 256 << 10
#: Schemas per request: each comes with its definition.
MAX_SCHEMAS = 100
_Checkpoints = Annotated[list[resources.UsableCheckpoint], Meta(max_length=100)]


class _SealedRecords(msgspec.Struct):
    results: list[resources.SealedRecord]


class StoredPage(msgspec.Struct):
    """Some rows of a schema, and the total ``count`` of its places."""

    count: U63
    results: list[resources.UnfilteredRecord]


class ApiCalls:
    """What the endpoints for schemas and those for rosters have in common."""

    #: Minimum rate at which the API stores data, in bytes per second.
    stored_rate: ClassVar[int] = 1 << 20

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def schema(self, schema: bytes, auth: str) -> resources.SchemaResource:
        return await self._json(resources.SchemaResource, reference("schemas", schema), auth)

    async def _json(
        self, kind: type[T], path: str, auth: str, params: Mapping[str, str] | None = None
    ) -> T:
        answer = await self.transport.request("GET", path, params=params, auth=auth)
        return answer.convert(kind)

    async def _frames(
        self,
        path: str,
        body: Whole,
        auth: str,
        *,
        method: str = "POST",
        params: Mapping[str, str] | None = None,
        seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send frames; repeating is safe."""
        return await self.transport.request(
            method,
            path,
            data=body,
            params=params,
            headers={"Content-Type": wire.MEDIA_TYPE, **(headers or {})},
            auth=auth,
            # The uploaded data has to be stored before the API can answer.
            timeout=(seconds or self.transport.timing.silent_seconds)
            + len(body) / self.stored_rate,
            repeatable=True,
        )


class Api(ApiCalls):
    async def access_token(self, email: str, password: str, code: str = "") -> str:
        body = {"email": email, "password": password, **({"code": code} if code else {})}
        answer = await self.transport.request("POST", "/api/token/", json=body)
        return answer.convert(resources.AccessResource).access

    async def session_token(self, headers: Mapping[str, str]) -> str:
        """An access token for a session; ``headers`` are its cookies and CSRF token."""
        origin = {"Origin": self.transport.base_url}
        answer = await self.transport.request(
            "POST", "/api/token/session/", headers={**headers, **origin}
        )
        return answer.convert(resources.AccessResource).access

    async def end_login(self, auth: str) -> None:
        """End the login of a token from :meth:`access_token`."""
        await self.transport.request("POST", "/api/accounts/logout/", auth=auth)

    async def user_id(self, auth: str) -> str:
        return (await self._user(auth)).id

    async def email(self, auth: str) -> str:
        return (await self._user(auth)).email

    async def _user(self, auth: str) -> resources.UserResource:
        return await self._json(resources.UserResource, "/api/users/self/", auth)

    async def show_definition(self, schema: bytes, text: bytes, auth: str) -> None:
        """Publish a definition as JSON at the API; its rules have to match the schema's log.

        Raises:
            Conflict: ``through_a_proxy``; the log holds another definition now.
        """
        await self.transport.request(
            "PATCH", reference("schemas", schema), json={"schema": msgspec.Raw(text)}, auth=auth
        )

    async def require_dataset(self, dataset: bytes, auth: str) -> None:
        """
        Raises:
            NotFound: there is no such dataset for this caller.
        """
        await self.transport.request("GET", reference("datasets", dataset), auth=auth)

    async def schemas_of(self, dataset: bytes, auth: str) -> list[resources.SchemaResource]:
        """The schemas of a dataset that the caller can access."""
        path = f"/api/schemas/?dataset={to_text(dataset)}&limit={MAX_SCHEMAS}"
        return await read_list(self.transport, path, resources.SchemaResource, auth)

    async def schema_keys(self, auth: str) -> list[resources.SchemaResource]:
        """All schemas that the caller can access."""
        path = f"/api/schemas/?limit={MAX_SCHEMAS}"
        return await read_list(self.transport, path, resources.SchemaResource, auth)

    async def sealed_records(
        self, record_ids: Sequence[bytes], auth: str
    ) -> list[resources.SealedRecord]:
        """The records with these ids (at most 100), in their order."""
        query = "&".join(f"id={to_text(record_id)}" for record_id in record_ids)
        answer = await self.transport.request("GET", f"/api/records/?{query}", auth=auth)
        if len(answer.body) <= FEW_BYTES:
            return answer.convert(_SealedRecords).results
        return (await runtime.in_thread(answer.convert, _SealedRecords)).results

    async def stored_records(
        self, schema: bytes, auth: str, *, offset: int, limit: int
    ) -> tuple[StoredPage, int]:
        """The rows at these places of a schema, including dead rows, and their size in bytes.

        The API's stored rows, without reference to a log.
        """
        query = f"schema={to_text(schema)}&dead=true&offset={offset}&limit={limit}"
        answer = await self.transport.request("GET", f"/api/records/?{query}", auth=auth)
        return answer.convert(StoredPage), len(answer.body)

    async def manifest(self, schema: bytes, since: int, auth: str) -> list[ManifestDelta]:
        """The log after version ``since``: one delta, or several consecutive ones."""
        path = f"{reference('schemas', schema)}manifest/"
        answer = await self.transport.request("GET", path, params={"since": str(since)}, auth=auth)
        deltas = all_frames(answer, ManifestDelta)
        if not deltas:
            raise ApiFailed("the API's answer contains no manifest")
        return deltas

    async def pages(
        self,
        schema: bytes,
        wanted: Sequence[PageRef],
        auth: str,
        *,
        known: KnownState | None = None,
    ) -> list[Page]:
        """The pages, in the order of the request.

        Args:
            known: the state that the API has to confirm as the present state.

        Raises:
            Moved: it is not the present state.
        """
        path = f"{reference('schemas', schema)}pages/"
        return await self._read(path, wanted, MAX_PAGES, Page, auth, known)

    async def rows(
        self, schema: bytes, wanted: Sequence[RowRef], auth: str, *, known: KnownState | None = None
    ) -> list[StoredRow]:
        """The rows, in the order of the request; ``known`` as for :meth:`pages`."""
        path = f"{reference('schemas', schema)}rows/"
        return await self._read(path, wanted, MAX_ROW_REFS, StoredRow, auth, known)

    async def names(self, schema: bytes, wanted: Sequence[BlockRef], auth: str) -> list[BlockNames]:
        """Ids, versions and one sealed field of the rows of blocks, in the order of the request."""
        path = f"{reference('schemas', schema)}names/"
        return await self._read(path, wanted, MAX_BLOCK_REFS, BlockNames, auth, None)

    async def rows_unread(self, schema: bytes, wanted: Sequence[RowRef], auth: str) -> bytes:
        """The body of :meth:`rows` as unparsed bytes, for up to :data:`MAX_ROW_REFS` rows."""
        path = f"{reference('schemas', schema)}rows/"
        return (await self._frames(path, wire.encode(wanted), auth)).body

    async def digests_unread(self, schema: bytes, wanted: Sequence[RowRef], auth: str) -> bytes:
        """The body of :meth:`row_digests` as unparsed bytes, for up to :data:`MAX_DIGEST_REFS`
        rows.
        """
        path = f"{reference('schemas', schema)}digests/"
        return (await self._frames(path, wire.encode(wanted), auth)).body

    async def row_digests(
        self, schema: bytes, wanted: Sequence[RowRef], auth: str
    ) -> list[RowDigests]:
        """Proofs of the rows, in the order of the request."""
        path = f"{reference('schemas', schema)}digests/"
        return await self._read(path, wanted, MAX_DIGEST_REFS, RowDigests, auth, None)

    async def page_digests(
        self, schema: bytes, segments: Sequence[bytes], auth: str
    ) -> list[PageDigests]:
        """The digests of all pages of these segments, in the order of the request."""
        path = f"{reference('schemas', schema)}digests/"
        wanted = [PageRef(uid, 0) for uid in segments]
        return await self._read(path, wanted, MAX_DIGEST_REFS, PageDigests, auth, None)

    async def _read(
        self,
        path: str,
        wanted: Sequence[msgspec.Struct],
        at_once: int,
        kind: type[wire.T],
        auth: str,
        known: KnownState | None,
    ) -> list[wire.T]:
        frames: list[wire.T] = []
        for start in range(0, len(wanted), at_once):
            body = wire.encode(wanted[start : start + at_once])
            params = None if known is None else {"since": str(known.version)}
            answer = await self._frames(path, body, auth, params=params)
            if len(answer.body) <= FEW_BYTES:
                frames += read_frames(answer, kind, known)
            else:
                frames += await runtime.in_thread(read_frames, answer, kind, known)
            # Later requests concern immutable data only, so one confirmation is enough.
            known = None
        if len(frames) != len(wanted):
            raise ApiFailed("the API answered with another number of items than was asked for")
        return frames

    async def commit(
        self, uploads: Sequence[CommitUpload], auth: str, *, because: str = ""
    ) -> list[Receipt]:
        """Store commits, all or none; repeating is safe because each carries its id.

        Args:
            because: the reason, for the audit log.
        """
        body = b"".join(wire.encode_uploads(uploads))
        path = f"/api/commits/?because={because}" if because else "/api/commits/"
        receipts = all_frames(await self._frames(path, body, auth), Receipt)
        if len(receipts) != len(uploads):
            raise ApiFailed("the API answered with another number of receipts than commits")
        return receipts

    async def clock(self) -> float | None:
        """The API's time, in seconds since 1970, to the second; None if it states none."""
        return (await self.transport.request("GET", "/api/csrf/")).date

    async def enter_job_token(self, job: bytes, token: str, auth: str) -> None:
        """Register ``token`` for this job, a UUID's bytes, so that the job can continue without a
        login: ``Authorization: Job <token>``. Repeating the call only extends its validity.
        """
        body = {"digest": hashlib.sha256(token.encode()).hexdigest()}
        await self.transport.request(
            "POST", f"{_job(job)}token/", json=body, auth=auth, repeatable=True
        )

    async def stage(self, schema: bytes, body: Whole, auth: str, *, attempt: int = 0) -> None:
        """Store a part before its commit; ``body`` is the result of :func:`wire.encode_part`.

        Args:
            attempt: increases each time that the part is built again, so that a late request never
                replaces a newer part.

        Raises:
            Conflict: ``part_overtaken``; a part of a later attempt is stored.
        """
        path = f"{reference('schemas', schema)}staging/"
        await self._frames(path, body, auth, headers={ATTEMPT_HEADER: str(attempt)})

    async def publish(self, job: bytes, commits: Sequence[Commit], auth: str) -> list[Receipt]:
        """Make the data staged under this id visible; repeating is safe as for :meth:`commit`."""
        body = wire.encode(commits)
        answer = await self._frames(f"{_job(job)}publish/", body, auth, seconds=ANSWER_SECONDS)
        receipts = all_frames(answer, Receipt)
        if len(receipts) != len(commits):
            raise ApiFailed("the API answered with another number of receipts than commits")
        return receipts

    async def drop_parts(self, job: bytes, auth: str) -> None:
        """Drop the data staged under this id, whatever earlier requests said about it."""
        await self._drop(f"{_job(job)}parts/", auth)

    async def drop_job(self, job: bytes, auth: str) -> None:
        """Drop the data staged under this id, and void the job's token."""
        await self._drop(_job(job), auth)

    async def _drop(self, path: str, auth: str) -> None:
        await self.transport.request(
            "DELETE", path, auth=auth, timeout=ANSWER_SECONDS, repeatable=True
        )

    async def damage(self, schema: bytes, auth: str) -> resources.Damage:
        path = f"{reference('schemas', schema)}damage/"
        return await self._json(resources.Damage, path, auth)

    # --- checkpoints ------------------------------------------------------------------------

    async def manifest_from_checkpoint(
        self, schema: bytes, known: int, auth: str
    ) -> tuple[wire.Checkpoint | None, list[ManifestDelta]]:
        """The newest checkpoint of a schema's log, and the log after it, or after ``known`` if that
        is older; the whole log if there is no checkpoint.

        Args:
            known: the newest version that the caller remembers; 0 for none.

        Raises:
            Conflict: the log does not reach ``known``.
        """
        answer = await self.transport.request(
            "GET",
            f"{reference('schemas', schema)}manifest/",
            params={"since": "0", "checkpoint": str(known)},
            auth=auth,
        )
        checkpoint: wire.Checkpoint | None = None
        deltas: list[ManifestDelta] = []
        try:
            for item in wire.decode(answer.body):
                if isinstance(item, ManifestDelta):
                    deltas.append(item)
                elif isinstance(item, wire.Checkpoint) and checkpoint is None and not deltas:
                    checkpoint = item
                else:
                    raise ApiFailed("the API's answer contains something that was not requested")
        except ApiFailed:
            raise
        except ErsError:
            raise ApiFailed("the API's answer is not in the format of this version") from None
        if not deltas:
            raise ApiFailed("the API's answer contains no manifest")
        return checkpoint, deltas

    async def checkpoints(self, schema: bytes, auth: str) -> list[resources.UsableCheckpoint]:
        """Checkpoints that the API returns, the newest first."""
        return await self._json(_Checkpoints, f"{reference('schemas', schema)}checkpoints/", auth)

    async def add_checkpoint(self, schema: bytes, checkpoint: wire.Checkpoint, auth: str) -> None:
        """Store a checkpoint at the API; repeating is safe.

        Raises:
            BadInput: ``invalid_checkpoint``.
            Conflict: ``roster_moved``, ``key_mismatch``, ``log_conflict``.
        """
        path = f"{reference('schemas', schema)}checkpoints/"
        await self._frames(path, wire.encode([checkpoint]), auth)

    # --- erasure ----------------------------------------------------------------------------

    async def erasure(self, schema: bytes, auth: str) -> resources.ErasureState:
        return await self._json(resources.ErasureState, _erasure(schema), auth)

    async def erasure_progress(self, schema: bytes, auth: str) -> resources.ErasureProgress:
        """The same as :meth:`erasure`, without the counts: cheap enough to poll."""
        counts = {"counts": "false"}
        return await self._json(resources.ErasureProgress, _erasure(schema), auth, counts)

    async def erase(self, schema: bytes, auth: str) -> resources.ErasureState:
        """Request immediate erasure of all ended data."""
        answer = await self.transport.request("POST", _erasure(schema), auth=auth, repeatable=True)
        return answer.convert(resources.ErasureState)

    async def hold(
        self, schema: bytes, uid: uuid.UUID, version: int, reason: str, auth: str
    ) -> None:
        """Begin or renew a hold on a version of a schema's log."""
        path = f"{reference('schemas', schema)}holds/"
        body = {"id": str(uid), "version": version, "reason": reason}
        await self.transport.request("PUT", path, json=body, auth=auth, repeatable=True)

    async def release(self, schema: bytes, uid: uuid.UUID, auth: str) -> None:
        """End a hold."""
        path = f"{reference('schemas', schema)}holds/"
        await self.transport.request(
            "DELETE", path, params={"id": str(uid)}, auth=auth, repeatable=True
        )


def _job(job: bytes) -> str:
    return f"/api/jobs/{uuid.UUID(bytes=job)}/"


def _erasure(schema: bytes) -> str:
    return f"{reference('schemas', schema)}erasure/"
