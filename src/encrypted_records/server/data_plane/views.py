"""The less frequent endpoints of sealed records; :mod:`.endpoints` has the others."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, cast

from django.db import connection, transaction
from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from msgspec.structs import asdict
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from encrypted_records.errors import BadInput, Flaw, Malformed, NotFound, TooLarge
from encrypted_records.http.openapi import LISTED_RECORD, SEALED_RECORD
from encrypted_records.model import ids, resources, wire
from encrypted_records.model.records import MAX_NAMED_RECORDS, BlockRef, Commit, PageRef, RowRef
from encrypted_records.server import permissions
from encrypted_records.server.accounts import authentication
from encrypted_records.server.accounts.authentication import (
    READS,
    READS_BY_BODY,
    WITH_JOBS,
    WRITES,
    Use,
)
from encrypted_records.server.accounts.models import User
from encrypted_records.server.commits import commits
from encrypted_records.server.data_plane.endpoints import (
    find_to_read,
    note_reading,
    only_merges,
    receipts,
    require_own,
)
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.fields import identifier
from encrypted_records.server.erasure import damage, erasing, removing, sweeping
from encrypted_records.server.http.bodies import (
    FRAMES,
    FRAMES_BODY,
    FramesParser,
    KnownMembers,
    Paging,
    answer,
    body_of,
    flag_of,
    invalid_parameter,
    only,
    stream,
    valid,
)
from encrypted_records.server.http.openapi import describe
from encrypted_records.server.organizations import audit
from encrypted_records.server.records.models import AskedErasure, RecordGroup
from encrypted_records.server.rows import contents
from encrypted_records.server.rows import queries as reading


class TokenDigestSerializer(KnownMembers):
    digest = serializers.RegexField(
        "^[0-9a-f]{64}$", required=False, help_text="SHA-256 of the token, in hexadecimal"
    )


#: Records that are requested by id are not paginated.
_PAGE_OF_RECORDS = {
    "type": "object",
    "required": ["results"],
    "properties": {
        "count": {"type": "integer"},
        "next": {"type": ["string", "null"], "format": "uri-reference"},
        "previous": {"type": ["string", "null"], "format": "uri-reference"},
        "results": {"type": "array", "items": LISTED_RECORD},
    },
}
_GONE = "there is no such record, or you cannot reach it"


def _user(request: Request) -> User:
    return cast(User, request.user)


def _schema(request: Request, schema_id: str) -> Schema:
    """The schema whose data this request reads."""
    return find_to_read(_user(request), schema_id)


class JobTokenView(APIView):
    token_uses = WRITES

    @extend_schema(
        request=TokenDigestSerializer,
        responses={201: answer(resources.JobTokenResource), 204: None},
    )
    def post(self, request: Request, job: uuid.UUID) -> Response:
        """Have the token of this digest count for this job for a week; another one is void. Without
        a digest, the answer has a new token."""
        named = valid(TokenDigestSerializer, request).get("digest")
        shown = None if named is None else bytes.fromhex(named)
        token = authentication.issue_job_token(_user(request), job.bytes, shown)
        return (
            Response(status=204)
            if token is None
            else Response(resources.JobTokenResource(token), status=201)
        )


class Publish(APIView):
    token_uses = WRITES
    parser_classes = [FramesParser]
    authentication_classes = WITH_JOBS

    @extend_schema(request=FRAMES_BODY, responses=FRAMES | {(201, wire.MEDIA_TYPE): bytes})
    def post(self, request: Request, job: uuid.UUID) -> HttpResponse:
        """Make what is staged under this id visible, at once, by a commit per schema."""
        staged_commits = wire.decode_all(body_of(request), Commit)
        if not all(map(only_merges, staged_commits)):
            require_own(request.auth, job.bytes)
        return receipts(commits.publish(_user(request), job.bytes, staged_commits))


class StagedJobView(APIView):
    token_uses = WRITES
    authentication_classes = WITH_JOBS

    @extend_schema(responses={204: None})
    def delete(self, request: Request, job: uuid.UUID) -> HttpResponse:
        """Drop what is staged under this id, and void the job's token."""
        require_own(request.auth, job.bytes)
        removing.end(_user(request), job.bytes)
        return HttpResponse(status=204)


class Parts(APIView):
    token_uses = WRITES
    authentication_classes = WITH_JOBS

    @extend_schema(responses={204: None})
    def delete(self, request: Request, job: uuid.UUID) -> HttpResponse:
        """Drop what is staged under this id, so that no late request publishes it."""
        require_own(request.auth, job.bytes)
        removing.drop(_user(request), job.bytes)
        return HttpResponse(status=204)


class NamesView(APIView):
    token_uses = READS_BY_BODY
    parser_classes = [FramesParser]
    authentication_classes = WITH_JOBS

    @extend_schema(request=FRAMES_BODY, responses=FRAMES)
    def post(self, request: Request, schema_id: str) -> StreamingHttpResponse:
        """Id, version and one sealed field of all rows of blocks, in the order asked."""
        schema = _schema(request, schema_id)
        wanted = wire.decode_all(body_of(request), BlockRef)
        return stream(reading.names(schema, wanted))


class Digests(APIView):
    parser_classes = [FramesParser]
    authentication_classes = WITH_JOBS
    token_uses = READS_BY_BODY

    @extend_schema(request=FRAMES_BODY, responses=FRAMES)
    def post(self, request: Request, schema_id: str) -> StreamingHttpResponse:
        """Proofs of rows and pages, by group and ordinal or segment, in the order asked."""
        schema = _schema(request, schema_id)
        body = body_of(request)
        wanted: list[RowRef | PageRef] = []
        for item in wire.decode(body):
            if not isinstance(item, RowRef | PageRef):
                raise Malformed("expected only RowRef and PageRef frames", code="malformed_frame")
            wanted.append(item)
        return stream(reading.digests(schema, wanted))


class RecordsView(APIView):
    token_uses = READS

    @extend_schema(
        operation_id="records_list",
        parameters=[
            OpenApiParameter("schema", str),
            OpenApiParameter("id", str, many=True),
            OpenApiParameter("dead", str, enum=["true", "false"]),
            OpenApiParameter("limit", int),
            OpenApiParameter("offset", int),
        ],
        responses={200: _PAGE_OF_RECORDS},
    )
    def get(self, request: Request) -> Response:
        """Live records of one schema, sealed, in the order they were stored; or those named.

        With ``dead=true`` every row that is stored, also of records that were changed or deleted.
        """
        # A proxy forwards a list with "sealed", and its links keep that.
        only(request, "schema", "dead", "id", "sealed")
        named = request.query_params.getlist("id")
        if named:
            return Response({"results": _look_up(_user(request), named)})
        asked = request.query_params.get("schema")
        if asked is None:
            detail = "name the schema whose records to list: ?schema=<id>"
            raise BadInput(detail, flaws=(Flaw("required", detail, parameter="schema"),))
        schema = _schema(request, identifier(request, asked, "schemas", parameter="schema"))
        paging = Paging()
        paging.request = request
        paging.limit = paging.get_limit(request)
        paging.offset = paging.get_offset(request)
        records: Sequence[resources.SealedRecord]
        if flag_of(request, "dead", default=False):
            paging.count, records = reading.list_stored(
                schema, offset=paging.offset, limit=paging.limit
            )
        else:
            paging.count = schema.live_rows
            records = reading.list_live(schema, offset=paging.offset, limit=paging.limit)
        return paging.get_paginated_response(records)


class RecordDetail(APIView):
    token_uses = READS

    @extend_schema(responses={200: SEALED_RECORD})
    def get(self, request: Request, pk: str) -> Response:
        """One live record, sealed."""
        [record] = _look_up(_user(request), [pk])
        return Response(record, headers={"ETag": f'"{record.version}"'})


def _look_up(user: User, record_ids: list[str]) -> list[resources.SealedRecord]:
    """Sealed records in the order of their ids; all of them, or none.

    Raises:
        TooLarge: more than ``MAX_NAMED_RECORDS``.
        NotFound: with the positions of the ids that name no record the user can reach.
    """
    if len(record_ids) > MAX_NAMED_RECORDS:
        raise TooLarge(f"more than {MAX_NAMED_RECORDS} records in one request")
    records = _find(user, record_ids)
    if records == [None]:
        raise NotFound(_GONE)
    if not all(records):
        raise NotFound(
            "some of these records do not exist, or you cannot reach them",
            flaws=tuple(
                Flaw("unknown_reference", f"id number {at} does not exist", parameter="id")
                for at, found in enumerate(records, 1)
                if found is None
            ),
        )
    return [record for record in records if record is not None]


def _find(user: User, record_ids: Sequence[str]) -> list[resources.SealedRecord | None]:
    """The sealed record of each id, or None, with a constant number of statements."""
    named = [_identifier(text) for text in record_ids]
    rows = contents.live_rows_of({record_id for record_id in named if record_id is not None})
    groups = RecordGroup.objects.filter(staging=None).in_bulk(
        {row.group for found in rows.values() for row in found}
    )
    reached = permissions.schemas(user).in_bulk({group.schema_id for group in groups.values()})

    def sealed(record_id: bytes | None) -> resources.SealedRecord | None:
        for row in rows.get(record_id or b"", ()):
            group = groups.get(row.group)
            schema = reached.get(group.schema_id) if group else None
            if group and schema:
                note_reading(user, schema)
                return reading.sealed_record(schema, group, row)
        return None

    return [sealed(record_id) for record_id in named]


def _identifier(text: str) -> bytes | None:
    try:
        return ids.from_text(text)
    except Malformed:
        return None


# The endpoint that stores checkpoints, and lists them.


class Checkpoints(APIView):
    token_uses = {"GET": Use.READ, "POST": Use.WRITE}
    parser_classes = [FramesParser]
    authentication_classes = WITH_JOBS

    @extend_schema(responses={200: answer(resources.UsableCheckpoint)(many=True)})
    def get(self, request: Request, schema_id: str) -> Response:
        """The checkpoints of a schema's log that can be taken, the newest first."""
        schema = permissions.data_of(_user(request), schema_id)
        return Response(commits.usable_checkpoints(schema))

    @extend_schema(request=FRAMES_BODY, responses={200: None, 201: None})
    def post(self, request: Request, schema_id: str) -> HttpResponse:
        """Keep a checkpoint of a schema's log."""
        checkpoint = wire.decode_single(body_of(request), wire.Checkpoint)
        new = commits.add_checkpoint(_user(request), schema_id, checkpoint)
        return HttpResponse(status=201 if new else 200)


# Endpoints that report what is left of ended data, erase it, and hold it.


_HELD = answer(resources.Held)(many=True)
#: With counts, or without.
_PROGRESS = {"anyOf": [describe(resources.ErasureState), describe(resources.ErasureProgress)]}


class _HoldBody(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    version = serializers.IntegerField(min_value=0, max_value=2**62)
    reason = serializers.ChoiceField(choices=list(sweeping.HOLD_REASONS))


def _progress(schema: Schema) -> resources.ErasureProgress:
    """Progress of an erasure, from a single row, however much is left."""
    entry = AskedErasure.objects.filter(schema=schema).first()
    return resources.ErasureProgress(
        version=schema.version,
        asked=0 if entry is None else entry.up_to,
        done=0 if entry is None else entry.done,
        due=None if entry is None else entry.due,
        database=cast(Any, connection.vendor),
        holds=sweeping.list_holds(schema),
    )


def _state(schema: Schema) -> resources.ErasureState:
    left = erasing.left_of(schema, schema.version)
    return resources.ErasureState(**asdict(_progress(schema)), **vars(left))


class Erasure(APIView):
    token_uses = {"GET": Use.READ, "POST": Use.WRITE}

    @extend_schema(
        parameters=[OpenApiParameter("counts", bool, default=True)], responses={200: _PROGRESS}
    )
    def get(self, request: Request, schema_id: str) -> Response:
        """The remains of records that were deleted or changed, and who needs them; with
        ``counts=false`` only how far the erasure is, which costs little."""
        counts = flag_of(request, "counts", default=True)
        schema = permissions.data_of(_user(request), schema_id)
        return Response(_state(schema) if counts else _progress(schema))

    @extend_schema(request=None, responses={202: answer(resources.ErasureState)})
    def post(self, request: Request, schema_id: str) -> Response:
        """Have it go at once, as far as the log has ended it by now."""
        user = _user(request)
        reached = permissions.schemas(user).select_related("dataset__organization")
        with transaction.atomic():
            schema = permissions.find(reached.select_for_update(of=("self",)), schema_id)
            permissions.require_writer(user, schema)
            erasing.ask(schema)
            audit.note(
                user, audit.Action.RECORDS_ERASED, schema.dataset.organization_id, schema.url
            )
        # Without a lock of the schema, which a staging request may hold.
        removing.drop_copies(schema)
        sweeping.look_soon()
        return Response(_state(schema), status=202)


class DamageView(APIView):
    token_uses = {"GET": Use.READ}

    @extend_schema(responses={200: answer(resources.Damage)})
    def get(self, request: Request, schema_id: str) -> Response:
        """Lost data that was found: segments whose pages are, and live rows without bytes."""
        return Response(damage.of(permissions.data_of(_user(request), schema_id)))


class HoldsView(APIView):
    token_uses = dict.fromkeys(("GET", "PUT", "DELETE"), Use.READ)
    authentication_classes = WITH_JOBS

    @extend_schema(responses={200: _HELD})
    def get(self, request: Request, schema_id: str) -> Response:
        """The versions of a schema's log that somebody reads for long."""
        return Response(sweeping.list_holds(permissions.data_of(_user(request), schema_id)))

    @extend_schema(request=_HoldBody, responses={200: _HELD})
    def put(self, request: Request, schema_id: str) -> Response:
        """Begin a hold of a version, or renew it; it counts for five minutes."""
        schema = permissions.data_of(_user(request), schema_id)
        sent = valid(_HoldBody, request)
        sweeping.keep_hold(_user(request), schema, sent["id"], sent["version"], sent["reason"])
        return Response(sweeping.list_holds(schema))

    @extend_schema(parameters=[OpenApiParameter("id", str, required=True)], responses={204: None})
    def delete(self, request: Request, schema_id: str) -> Response:
        """End a hold."""
        schema = permissions.data_of(_user(request), schema_id)
        try:
            uid = uuid.UUID(request.query_params.get("id", ""))
        except ValueError:
            raise invalid_parameter("id", "expected the id of a hold") from None
        sweeping.end_hold(_user(request), schema, uid)
        return Response(status=204)
