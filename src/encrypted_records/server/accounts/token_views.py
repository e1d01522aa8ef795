"""/api/tokens/: API tokens, made, listed and revoked by their user; no token reaches this.

Making one takes the password of the account in that very request, as Basic credentials or in the
body: anyone who found an open session must not leave with something that lasts longer.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from django.db import transaction
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from encrypted_records.errors import BadInput, Flaw, NotAuthenticated
from encrypted_records.model import ids
from encrypted_records.server import permissions
from encrypted_records.server.accounts import api_tokens, credentials
from encrypted_records.server.accounts.authentication import Basic
from encrypted_records.server.accounts.models import ApiToken, User
from encrypted_records.server.accounts.serializers import PasswordField
from encrypted_records.server.db.fields import ReferenceField
from encrypted_records.server.http.members import KnownMembers
from encrypted_records.server.http.texts import TextField
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action

#: Seconds.
SHORTEST, USUAL, LONGEST = 60, 30 * 86_400, 366 * 86_400
MOST_DATASETS = 100
_SCOPES = ["read", "write"]


class NewApiTokenSerializer(KnownMembers):
    """``datasets`` names what the token is limited to; without it, it reaches all of them."""

    name = TextField(max_length=100)
    scope = serializers.ChoiceField(_SCOPES, default="read")
    datasets = serializers.ListField(
        child=ReferenceField("datasets"),
        required=False,
        allow_null=True,
        min_length=1,
        max_length=MOST_DATASETS,
    )
    expires_in = serializers.IntegerField(
        min_value=SHORTEST, max_value=LONGEST, default=USUAL, help_text="seconds"
    )
    password = PasswordField(required=False)


class ApiTokenSerializer(serializers.ModelSerializer[ApiToken]):
    id = serializers.CharField(read_only=True)
    scope = serializers.SerializerMethodField()
    datasets = serializers.SerializerMethodField()

    class Meta:
        model = ApiToken
        fields = [
            *("id", "url", "name", "scope", "datasets"),
            *("created", "expires", "last_used"),
        ]
        read_only_fields = fields

    def get_scope(self, token: ApiToken) -> str:
        return _SCOPES[token.writes]

    def get_datasets(self, token: ApiToken) -> list[str] | None:
        """What it is limited to; null where it reaches whatever its user does."""
        named = [ids.reference("datasets", one.pk) for one in token.datasets.all()]
        return sorted(named) if token.limited else None


class CreatedApiTokenSerializer(ApiTokenSerializer):
    """``token`` is shown this once."""

    token = serializers.CharField(read_only=True)

    class Meta(ApiTokenSerializer.Meta):
        fields = [*ApiTokenSerializer.Meta.fields, "token"]
        read_only_fields = fields


class ApiTokens(generics.ListAPIView[ApiToken]):
    """The caller's API tokens."""

    serializer_class = ApiTokenSerializer
    queryset = ApiToken.objects.none()

    @property
    def user(self) -> User:
        return cast(User, self.request.user)

    def get_queryset(self) -> QuerySet[ApiToken]:
        return self.user.api_tokens.prefetch_related("datasets").order_by("pk")

    @extend_schema(request=NewApiTokenSerializer, responses={201: CreatedApiTokenSerializer})
    def post(self, request: Request) -> Response:
        """Make a token; the answer is the only one that has it."""
        context = {"request": request, "reachable": lambda _: permissions.datasets(self.user)}
        sent = NewApiTokenSerializer(data=request.data, context=context)
        sent.is_valid(raise_exception=True)
        wanted: dict[str, Any] = dict(sent.validated_data)
        _check_password(request, self.user, wanted.get("password"))
        with transaction.atomic():
            made, text = api_tokens.create(
                self.user,
                wanted["name"],
                writes=wanted["scope"] == "write",
                datasets=wanted.get("datasets"),
                lifetime=timedelta(seconds=wanted["expires_in"]),
            )
            audit.note_for_all(self.user, Action.TOKEN_CREATED)
        shown = ApiTokenSerializer(made).data | {"token": text}
        return Response(shown, status=status.HTTP_201_CREATED)


class ApiTokenDetail(APIView):
    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: str) -> Response:
        """Revoke a token: it is refused from now on, and jobs that it began end."""
        user = cast(User, request.user)
        with transaction.atomic():
            permissions.find(ApiToken.objects.filter(user=user), pk).delete()
            audit.note_for_all(user, Action.TOKEN_REVOKED)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _check_password(request: Request, user: User, password: str | None) -> None:
    """
    Raises:
        BadInput: ``wrong_password``, or none was sent.
        Throttled: after too many wrong ones.
    """
    if isinstance(request.successful_authenticator, Basic):
        return
    code, detail = "required", "is needed, since a token outlasts the login that makes it"
    if password is not None:
        try:
            credentials.check(request._request, user.email, password)
        except NotAuthenticated:
            code, detail = "wrong_password", "is not the present password"
        else:
            return
    flaw = Flaw(code, detail, pointer="/password")
    raise BadInput("the request is not valid", flaws=(flaw,))
