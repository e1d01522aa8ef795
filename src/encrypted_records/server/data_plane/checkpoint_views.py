"""The endpoint that takes checkpoints, and lists them."""

from __future__ import annotations

from typing import Any, cast

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from encrypted_records.model import wire
from encrypted_records.model.checkpoints import Checkpoint
from encrypted_records.server import permissions
from encrypted_records.server.accounts.api_tokens import Use
from encrypted_records.server.accounts.job_tokens import WITH_JOBS
from encrypted_records.server.accounts.models import User
from encrypted_records.server.commits import checkpoints
from encrypted_records.server.http.frames import FRAMES_BODY, body_of
from encrypted_records.server.http.parsers import FramesParser

_LISTED = inline_serializer(
    "ListedCheckpoint",
    {
        "version": serializers.IntegerField(),
        "key_version": serializers.IntegerField(),
        "digest": serializers.CharField(),
        "bytes": serializers.IntegerField(),
    },
    many=True,
)


class Checkpoints(APIView):
    token_uses = {"GET": Use.READ, "POST": Use.WRITE}
    parser_classes = [FramesParser]
    authentication_classes = WITH_JOBS

    @extend_schema(responses={200: _LISTED})
    def get(self, request: Request, schema_id: str) -> Response:
        """The checkpoints of a schema's log that can be taken, the newest first."""
        schema = permissions.data_of(cast(User, request.user), schema_id)
        listed: list[dict[str, Any]] = [
            {
                "version": one.version,
                "key_version": one.key_version,
                "digest": one.digest,
                "bytes": one.bytes,
            }
            for one in checkpoints.list_usable(schema)
        ]
        return Response(listed)

    @extend_schema(request=FRAMES_BODY, responses={200: None, 201: None})
    def post(self, request: Request, schema_id: str) -> HttpResponse:
        """Keep a checkpoint of a schema's log."""
        checkpoint = wire.decode_one(body_of(request), Checkpoint)
        new = checkpoints.add(cast(User, request.user), schema_id, checkpoint)
        return HttpResponse(status=201 if new else 200)
