"""Endpoints of sealed records. Frames in, frames out; no serializer touches a record."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, cast

import msgspec
from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from encrypted_records.errors import BadInput, Flaw, Malformed, NotAllowed, NotFound, TooLarge
from encrypted_records.model import ids, wire
from encrypted_records.model.records import Commit, PageRef, RowRef
from encrypted_records.server import access
from encrypted_records.server.accounts import job_tokens
from encrypted_records.server.accounts.job_tokens import WITH_JOBS
from encrypted_records.server.accounts.models import JobGrant, User
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.fields import identifier
from encrypted_records.server.formats import FramesParser
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.paging import Paging
from encrypted_records.server.records import commits, reading, staging, store
from encrypted_records.server.records.models import RecordGroup

FRAMES = {(200, wire.MEDIA_TYPE): OpenApiTypes.BINARY}
#: Ends an answer that failed after it began. The server would close it like a whole one, and no
#: frame begins like this, so every reader refuses it.
BROKEN = b"\x00"
_log = logging.getLogger(__name__)
FRAMES_BODY = {wire.MEDIA_TYPE: OpenApiTypes.BINARY}
SINCE = OpenApiParameter("since", int)
#: Records that one request may name by id.
MAX_NAMED = 100
_GONE = "there is no such record, or none that you can reach"


def _user(request: Request) -> User:
    return cast(User, request.user)


def _schema(request: Request, schema_id: str) -> Schema:
    """The schema whose data is read by this request."""
    schema = access.data_of(_user(request), schema_id)
    _note_reading(_user(request), schema)
    return schema


def _note_reading(user: User, schema: Schema) -> None:
    organization_id = schema.dataset.organization_id
    audit.note_once(user, Action.RECORDS_READ, organization_id, schema.url)


def _frames(request: Request) -> bytes:
    body = request.data
    if not isinstance(body, bytes):
        raise Malformed("the body is empty", code="malformed_frame")
    return body


def _stream(items: Iterable[msgspec.Struct]) -> StreamingHttpResponse:
    return StreamingHttpResponse(_whole_or_broken(items), content_type=wire.MEDIA_TYPE)


def _whole_or_broken(items: Iterable[msgspec.Struct]) -> Iterator[bytes]:
    try:
        yield from wire.encode_parts(items)
    except Exception as error:  # the status is sent; only the body can still say that it failed
        _log.error("an answer broke off", exc_info=error)
        yield BROKEN


class Commits(APIView):
    parser_classes = [FramesParser]
    authentication_classes = WITH_JOBS

    @extend_schema(request=FRAMES_BODY, responses=FRAMES | {(201, wire.MEDIA_TYPE): bytes})
    def post(self, request: Request) -> HttpResponse:
        """Apply commits, each to a schema of its own, all or none."""
        uploads = wire.decode_uploads(_frames(request))
        # What a job adds, it publishes; beside that it may make room in the index.
        if isinstance(request.auth, JobGrant) and not all(_merges(one.commit) for one in uploads):
            raise NotAllowed("a job's token merges segments here and adds or ends no rows")
        return _outcome(commits.apply(_user(request), uploads))


def _merges(commit: Commit) -> bool:
    """Whether a commit changes nothing but the index."""
    body = wire.decode_commit_body(commit)
    return not body.groups and not body.killed


def _outcome(outcome: commits.Outcome) -> HttpResponse:
    return HttpResponse(
        wire.encode(outcome.receipts),
        status=201 if outcome.created else 200,
        content_type=wire.MEDIA_TYPE,
    )


class Staging(APIView):
    parser_classes = [FramesParser]
    authentication_classes = WITH_JOBS

    @extend_schema(request=FRAMES_BODY, responses={200: None, 201: None})
    def post(self, request: Request, schema_id: str) -> HttpResponse:
        """Store a part of a commit ahead of it."""
        upload = wire.decode_part(_frames(request))
        if upload.part.groups:
            _require_own(request, upload.part.staging)
        # As a whole and at once: what it brings is held against the definition.
        schema = access.find(access.schemas(_user(request)), schema_id)
        new = staging.add(_user(request), schema, upload)
        return HttpResponse(status=201 if new else 200)


def _require_own(request: Request, job: bytes) -> None:
    """
    Raises:
        NotAllowed: the caller is a job, and this is another one's.
    """
    if isinstance(request.auth, JobGrant) and bytes(request.auth.job) != job:
        raise NotAllowed("a job's token is for its own job")


class Token(APIView):
    @extend_schema(request=None, responses={201: OpenApiTypes.OBJECT})
    def post(self, request: Request, job: uuid.UUID) -> Response:
        """A token with which a proxy goes on with this job; an earlier one is void."""
        return Response({"token": job_tokens.issue(_user(request), job.bytes)}, status=201)


class Publish(APIView):
    parser_classes = [FramesParser]
    authentication_classes = WITH_JOBS

    @extend_schema(request=FRAMES_BODY, responses=FRAMES | {(201, wire.MEDIA_TYPE): bytes})
    def post(self, request: Request, job: uuid.UUID) -> HttpResponse:
        """Make what is stored ahead under this id visible, at once, by a commit per schema."""
        found = wire.decode_all(_frames(request), Commit)
        if not all(map(_merges, found)):
            _require_own(request, job.bytes)
        return _outcome(commits.publish(_user(request), job.bytes, found))


class Job(APIView):
    authentication_classes = WITH_JOBS

    @extend_schema(responses={204: None})
    def delete(self, request: Request, job: uuid.UUID) -> HttpResponse:
        """Drop what is stored ahead under this id, and void the job's token."""
        _require_own(request, job.bytes)
        staging.drop(_user(request), job.bytes)
        job_tokens.revoke(_user(request), job.bytes)
        return HttpResponse(status=204)


class Parts(APIView):
    authentication_classes = WITH_JOBS

    @extend_schema(responses={204: None})
    def delete(self, request: Request, job: uuid.UUID) -> HttpResponse:
        """Drop what is stored ahead under this id, so that no late request publishes it."""
        _require_own(request, job.bytes)
        staging.drop(_user(request), job.bytes)
        return HttpResponse(status=204)


def _since(request: Request) -> int | None:
    """The version of the log that the caller knows, where it says so."""
    text = request.query_params.get("since")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadInput(
            "the parameter since is not valid",
            flaws=(Flaw("invalid_parameter", "expected a version of the log", field="since"),),
        )
    return int(text)


def _current(
    request: Request, schema: Schema, items: Callable[[], Iterable[msgspec.Struct]]
) -> StreamingHttpResponse:
    """``items``, behind the log after ``since`` where the caller names a version of it.

    When the log has moved on, it comes alone: what was asked for by an old state is asked again.
    """
    since = _since(request)
    if since is None:
        return _stream(items())
    log = reading.manifest(schema, since)
    return _stream(log if since < schema.version else chain(log, items()))


class Manifest(APIView):
    authentication_classes = WITH_JOBS

    @extend_schema(parameters=[SINCE], responses=FRAMES)
    def get(self, request: Request, schema_id: str) -> StreamingHttpResponse:
        """The log of a schema's commits after the version ``since``."""
        return _stream(reading.manifest(_schema(request, schema_id), _since(request) or 0))


class Pages(APIView):
    parser_classes = [FramesParser]
    authentication_classes = WITH_JOBS

    @extend_schema(request=FRAMES_BODY, parameters=[SINCE], responses=FRAMES)
    def post(self, request: Request, schema_id: str) -> StreamingHttpResponse:
        """Index pages by segment and number, in the order asked."""
        schema = _schema(request, schema_id)
        wanted = wire.decode_all(_frames(request), PageRef)
        return _current(request, schema, lambda: reading.pages(schema, wanted))


class Rows(APIView):
    parser_classes = [FramesParser]

    @extend_schema(request=FRAMES_BODY, parameters=[SINCE], responses=FRAMES)
    def post(self, request: Request, schema_id: str) -> StreamingHttpResponse:
        """Sealed rows by group and ordinal, in the order asked."""
        schema = _schema(request, schema_id)
        wanted = wire.decode_all(_frames(request), RowRef)
        return _current(request, schema, lambda: reading.rows(schema, wanted))


class Records(APIView):
    @extend_schema(
        operation_id="records_list",
        parameters=[
            OpenApiParameter("schema", str),
            OpenApiParameter("id", str, many=True),
            OpenApiParameter("limit", int),
            OpenApiParameter("offset", int),
        ],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        """Live records of one schema, sealed, in the order they were stored; or those named."""
        named = request.query_params.getlist("id")
        if named:
            return Response({"results": _named(_user(request), named)})
        asked = request.query_params.get("schema")
        if asked is None:
            detail = "name the schema whose records to list: ?schema=<id>"
            raise BadInput(detail, flaws=(Flaw("required", detail, field="schema"),))
        schema = _schema(request, identifier(request, asked, "schemas", pointer="schema"))
        paging = Paging()
        paging.request = request
        paging.limit = paging.get_limit(request)
        paging.offset = paging.get_offset(request)
        paging.count = schema.live_rows
        found = reading.listing(schema, offset=paging.offset, limit=paging.limit)
        return paging.get_paginated_response(found)


class RecordDetail(APIView):
    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: str) -> Response:
        """One live record, sealed."""
        found = _record(_user(request), pk)
        if found is None:
            raise NotFound(_GONE)
        return Response(found, headers={"ETag": f'"{found["version"]}"'})


def _named(user: User, record_ids: list[str]) -> list[dict[str, Any]]:
    """Sealed records in the order of their ids; all of them, or none.

    Raises:
        TooLarge: more than ``MAX_NAMED``.
        NotFound: with the places of the ids that name nothing the user reaches.
    """
    if len(record_ids) > MAX_NAMED:
        raise TooLarge(f"more than {MAX_NAMED} records in one request")
    found = [_record(user, record_id) for record_id in record_ids]
    if found == [None]:
        raise NotFound(_GONE)
    if not all(found):
        raise NotFound(
            "some of these records are not there, or you cannot reach them",
            flaws=tuple(
                Flaw("unknown_reference", f"id number {at} names nothing here", field="id")
                for at, one in enumerate(found, 1)
                if one is None
            ),
        )
    return [one for one in found if one is not None]


def _record(user: User, record_id: str) -> dict[str, Any] | None:
    try:
        row = store.live_row_of(ids.from_text(record_id))
    except Malformed:
        return None
    if row is None:
        return None
    group = RecordGroup.objects.filter(pk=row.group, staging=None).first()
    if group is None:
        return None
    schema = access.schemas(user).filter(pk=group.schema_id).first()
    if schema is None:
        return None
    _note_reading(user, schema)
    return reading.sealed_record(schema, group, row)
