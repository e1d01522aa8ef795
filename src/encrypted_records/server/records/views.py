"""Endpoints of sealed records. Frames in, frames out; no serializer touches a record."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec
from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from encrypted_records.errors import BadInput, Flaw, Malformed, NotFound
from encrypted_records.model import ids, wire
from encrypted_records.model.records import PageRef, RowRef
from encrypted_records.server import access
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.fields import identifier
from encrypted_records.server.formats import FramesParser
from encrypted_records.server.paging import Paging
from encrypted_records.server.records import commits, reading, store
from encrypted_records.server.records.models import RecordGroup

FRAMES = {(200, wire.MEDIA_TYPE): OpenApiTypes.BINARY}
#: Ends an answer that failed after it began. The server would close it like a whole one, and no
#: frame begins like this, so every reader refuses it.
BROKEN = b"\x00"
_log = logging.getLogger(__name__)
FRAMES_BODY = {wire.MEDIA_TYPE: OpenApiTypes.BINARY}


def _user(request: Request) -> User:
    return cast(User, request.user)


def _schema(request: Request, schema_id: str) -> Schema:
    return access.find(access.schemas(_user(request)), schema_id)


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

    @extend_schema(request=FRAMES_BODY, responses=FRAMES | {(201, wire.MEDIA_TYPE): bytes})
    def post(self, request: Request) -> HttpResponse:
        """Apply commits, each to a schema of its own, all or none."""
        outcome = commits.apply(_user(request), wire.decode_uploads(_frames(request)))
        return HttpResponse(
            wire.encode(outcome.receipts),
            status=201 if outcome.created else 200,
            content_type=wire.MEDIA_TYPE,
        )


class Manifest(APIView):
    @extend_schema(parameters=[OpenApiParameter("since", int)], responses=FRAMES)
    def get(self, request: Request, schema_id: str) -> StreamingHttpResponse:
        """The log of a schema's commits after the version ``since``."""
        text = request.query_params.get("since", "0")
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise BadInput(
                "the parameter since is not valid",
                flaws=(Flaw("invalid_parameter", "expected a version of the log", field="since"),),
            )
        return _stream(reading.manifest(_schema(request, schema_id), int(text)))


class Pages(APIView):
    parser_classes = [FramesParser]

    @extend_schema(request=FRAMES_BODY, responses=FRAMES)
    def post(self, request: Request, schema_id: str) -> StreamingHttpResponse:
        """Index pages by segment and number, in the order asked."""
        schema = _schema(request, schema_id)
        return _stream(reading.pages(schema, wire.decode_all(_frames(request), PageRef)))


class Rows(APIView):
    parser_classes = [FramesParser]

    @extend_schema(request=FRAMES_BODY, responses=FRAMES)
    def post(self, request: Request, schema_id: str) -> StreamingHttpResponse:
        """Sealed rows by group and ordinal, in the order asked."""
        schema = _schema(request, schema_id)
        return _stream(reading.rows(schema, wire.decode_all(_frames(request), RowRef)))


class Records(APIView):
    @extend_schema(
        operation_id="records_list",
        parameters=[
            OpenApiParameter("schema", str, required=True),
            OpenApiParameter("limit", int),
            OpenApiParameter("offset", int),
        ],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        """Live records of one schema, sealed, in the order they were stored."""
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
        return Response(_record(_user(request), pk))


def _record(user: User, record_id: str) -> dict[str, Any]:
    gone = NotFound("there is no such record, or none that you can reach")
    try:
        row = store.live_row_of(ids.from_text(record_id))
    except Malformed:
        raise gone from None
    if row is None:
        raise gone
    group = RecordGroup.objects.get(pk=row.group)
    schema = access.schemas(user).filter(pk=group.schema_id).first()
    if schema is None:
        raise gone
    return reading.sealed_record(schema, group, row)
