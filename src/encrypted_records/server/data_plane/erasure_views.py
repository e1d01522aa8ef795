"""Endpoints that say what is still there of what ended, have it go, and hold it."""

from __future__ import annotations

import uuid
from typing import Any, cast

from django.db import connection, transaction
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from encrypted_records.server import permissions
from encrypted_records.server.accounts.api_tokens import Use
from encrypted_records.server.accounts.job_tokens import WITH_JOBS
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.erasure import damage, erasing, holds, sweeping, unstaging
from encrypted_records.server.http.parameters import flag_of, invalid_parameter
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.records.models import AskedErasure

_HELD = inline_serializer(
    "Held",
    {
        "version": serializers.IntegerField(),
        "reason": serializers.CharField(),
        "email": serializers.CharField(),
        "begun": serializers.DateTimeField(),
        "until": serializers.DateTimeField(),
    },
    many=True,
)
_STATE = inline_serializer(
    "Erasure",
    {
        "version": serializers.IntegerField(),
        "asked": serializers.IntegerField(),
        "done": serializers.IntegerField(),
        "due": serializers.DateTimeField(allow_null=True),
        "rows": serializers.IntegerField(required=False),
        "segments": serializers.IntegerField(required=False),
        "groups": serializers.IntegerField(required=False),
        "since": serializers.DateTimeField(allow_null=True, required=False),
        "database": serializers.ChoiceField(choices=["sqlite", "postgresql"]),
        "holds": _HELD,
    },
)


_DAMAGE = inline_serializer(
    "Damage",
    {
        "segments": serializers.ListField(child=serializers.CharField()),
        "rows": inline_serializer(
            "LostRows",
            {
                "group": serializers.CharField(),
                "runs": serializers.ListField(
                    child=serializers.ListField(child=serializers.IntegerField(min_value=0))
                ),
            },
            many=True,
        ),
    },
)


class _HoldBody(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    version = serializers.IntegerField(min_value=0, max_value=2**62)
    reason = serializers.ChoiceField(choices=list(holds.REASONS))


def _user(request: Request) -> User:
    return cast(User, request.user)


def _progress(schema: Schema) -> dict[str, Any]:
    """How far it is: a row of a table, whatever is left."""
    entry = AskedErasure.objects.filter(schema=schema).first()
    return {
        "version": schema.version,
        "asked": 0 if entry is None else entry.up_to,
        "done": 0 if entry is None else entry.done,
        "due": None if entry is None else entry.due,
        "database": connection.vendor,
        "holds": _holds(schema),
    }


def _state(schema: Schema) -> dict[str, Any]:
    left = erasing.left_of(schema, schema.version)
    return _progress(schema) | vars(left)


def _holds(schema: Schema) -> list[dict[str, Any]]:
    return [vars(one) for one in holds.list_active(schema)]


class Erasure(APIView):
    token_uses = {"GET": Use.READ, "POST": Use.WRITE}

    @extend_schema(
        parameters=[OpenApiParameter("counts", bool, default=True)], responses={200: _STATE}
    )
    def get(self, request: Request, schema_id: str) -> Response:
        """What is still there of records that were deleted or changed, and who needs it; with
        ``counts=false`` only how far it is, which costs little."""
        counts = flag_of(request, "counts", default=True)
        schema = permissions.data_of(_user(request), schema_id)
        return Response(_state(schema) if counts else _progress(schema))

    @extend_schema(request=None, responses={202: _STATE})
    def post(self, request: Request, schema_id: str) -> Response:
        """Have it go at once, as far as the log has ended it by now."""
        user = _user(request)
        reached = permissions.schemas(user).select_related("dataset__organization")
        with transaction.atomic():
            schema = permissions.find(reached.select_for_update(of=("self",)), schema_id)
            permissions.require_writer(user, schema)
            erasing.ask(schema)
            audit.note(user, Action.RECORDS_ERASED, schema.dataset.organization_id, schema.url)
        # Without a lock of the schema, for which who stages may wait.
        unstaging.drop_copies(schema)
        sweeping.look_soon()
        return Response(_state(schema), status=202)


class Damage(APIView):
    token_uses = {"GET": Use.READ}

    @extend_schema(responses={200: _DAMAGE})
    def get(self, request: Request, schema_id: str) -> Response:
        """What was found to be lost: segments whose pages are, and live rows without bytes."""
        return Response(damage.of(permissions.data_of(_user(request), schema_id)))


class Holds(APIView):
    token_uses = dict.fromkeys(("GET", "PUT", "DELETE"), Use.READ)
    authentication_classes = WITH_JOBS

    @extend_schema(responses={200: _HELD})
    def get(self, request: Request, schema_id: str) -> Response:
        """The versions of a schema's log that somebody reads for long."""
        return Response(_holds(permissions.data_of(_user(request), schema_id)))

    @extend_schema(request=_HoldBody, responses={200: _HELD})
    def put(self, request: Request, schema_id: str) -> Response:
        """Begin a hold of a version, or renew it; it counts for five minutes."""
        schema = permissions.data_of(_user(request), schema_id)
        body = _HoldBody(data=request.data)
        body.is_valid(raise_exception=True)
        sent = body.validated_data
        holds.keep(_user(request), schema, sent["id"], sent["version"], sent["reason"])
        return Response(_holds(schema))

    @extend_schema(parameters=[OpenApiParameter("id", str, required=True)], responses={204: None})
    def delete(self, request: Request, schema_id: str) -> Response:
        """End a hold."""
        schema = permissions.data_of(_user(request), schema_id)
        try:
            uid = uuid.UUID(request.query_params.get("id", ""))
        except ValueError:
            raise invalid_parameter("id", "expected the id of a hold") from None
        holds.end(_user(request), schema, uid)
        return Response(status=204)
