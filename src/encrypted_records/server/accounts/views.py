"""Account endpoints. Those that obtain credentials look at none: a stale cookie hinders nobody."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from django.conf import settings
from django.contrib.auth import login as start_session
from django.contrib.auth import update_session_auth_hash
from django.db import transaction
from django.middleware.csrf import get_token
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers, status
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from encrypted_records import __version__
from encrypted_records.errors import BadInput, Flaw, NotAuthenticated, NotFound
from encrypted_records.server.accounts import (
    credentials,
    limits,
    logins,
    mail,
    registration,
    sessions,
    tokens,
)
from encrypted_records.server.accounts.api_tokens import READS
from encrypted_records.server.accounts.authentication import Session
from encrypted_records.server.accounts.job_tokens import JobToken
from encrypted_records.server.accounts.models import Login, User
from encrypted_records.server.accounts.serializers import (
    ChangePasswordSerializer,
    EmailSerializer,
    LoginSerializer,
    RefreshSerializer,
    RegisterSerializer,
    ResetPasswordSerializer,
    SignedLinkSerializer,
    UserSerializer,
    VerifySerializer,
)
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action

DETAIL = inline_serializer("Detail", {"detail": serializers.CharField()})
#: ``mail`` is ``folder`` where no mail server is set up: a message is a file of the data folder.
MESSAGE = inline_serializer(
    "Message",
    {"detail": serializers.CharField(), "mail": serializers.ChoiceField(["sent", "folder"])},
)
ACCESS = inline_serializer("Access", {"access": serializers.CharField()})
PAIR = inline_serializer(
    "Pair", {"access": serializers.CharField(), "refresh": serializers.CharField()}
)


def _valid(kind: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """The body, as that serializer wants it.

    Raises:
        ValidationError: it is not so.
    """
    sent = kind(data=request.data, context={"request": request})
    sent.is_valid(raise_exception=True)
    return dict(sent.validated_data)


class Open(APIView):
    """For everybody."""

    authentication_classes = []
    permission_classes = [AllowAny]


class Status(Open):
    @extend_schema(
        auth=[],
        responses=inline_serializer(
            "Status",
            {
                "status": serializers.CharField(),
                "api_version": serializers.CharField(),
                "behind_proxy": serializers.BooleanField(),
            },
        ),
    )
    def get(self, request: Request) -> Response:
        return Response({"status": "ok", "api_version": __version__, "behind_proxy": False})


class Csrf(Open):
    @extend_schema(
        auth=[], responses=inline_serializer("Csrf", {"csrfToken": serializers.CharField()})
    )
    def get(self, request: Request) -> Response:
        return Response({"csrfToken": get_token(request._request)})


class Register(Open):
    @extend_schema(auth=[], request=RegisterSerializer, responses={201: MESSAGE})
    def post(self, request: Request) -> Response:
        limits.throttle("register")
        data = _valid(RegisterSerializer, request)
        registration.register(data["email"], data["password"], data["organization_name"])
        said = "A message with a link to confirm the address is on its way."
        return Response({"detail": said, "mail": _way_of_mail()}, status=status.HTTP_201_CREATED)


def _way_of_mail() -> str:
    """The same for every address, as all of the answer is."""
    return "folder" if settings.EMAIL_BACKEND == mail.FOLDER_BACKEND else "sent"


class VerifyRegistration(Open):
    @extend_schema(auth=[], request=SignedLinkSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        limits.throttle("links")
        registration.verify(_valid(SignedLinkSerializer, request))
        return Response({"detail": "The address is confirmed; you can log in."})


class LogIn(Open):
    @extend_schema(auth=[], request=LoginSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        """Start a session; one that this browser had ends."""
        user = credentials.check(request._request, **_valid(LoginSerializer, request))
        _end_session(request)
        start_session(request._request, user)
        lifetime = timedelta(seconds=settings.SESSION_COOKIE_AGE)
        try:
            login = logins.begin(user, lifetime, sessions.login_secret(request.session))
        except NotAuthenticated:
            request.session.flush()
            raise
        request.session[tokens.LOGIN] = login.pk
        audit.note_for_all(user, Action.LOGGED_IN)
        return Response({"detail": "You are logged in."})


class LogOut(APIView):
    """End what the request came with: the session, or the token with all of its kin."""

    @extend_schema(request=None, responses=DETAIL)
    def post(self, request: Request) -> Response:
        _end_session(request)
        if isinstance(request.auth, Login):
            request.auth.delete()
        audit.note_for_all(cast(User, request.user), Action.LOGGED_OUT)
        return Response({"detail": "You are logged out."})


def _end_session(request: Request) -> None:
    Login.objects.filter(pk=request.session.get(tokens.LOGIN)).delete()
    request.session.flush()


class ChangePassword(APIView):
    """Other sessions and all tokens end; the session of the request stays."""

    @extend_schema(request=ChangePasswordSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        data = _valid(ChangePasswordSerializer, request)
        user, login = cast(User, request.user), cast(Login | None, request.auth)
        try:
            credentials.check(request._request, user.email, data["old_password"])
        except NotAuthenticated:
            detail = "is not the present password"
            flaw = Flaw("wrong_password", detail, pointer="/old_password")
            raise BadInput("the request is not valid", flaws=(flaw,)) from None
        by_session = isinstance(request.successful_authenticator, Session)
        keep = login if by_session else None
        with transaction.atomic():
            logins.set_password(user, data["password"], keep=keep)
            audit.note_for_all(user, Action.PASSWORD_CHANGED)
            if keep is not None:
                update_session_auth_hash(request._request, user)
                logins.change_secret(keep, sessions.login_secret(request.session))
        return Response({"detail": "The password is changed."})


class SendResetPasswordLink(Open):
    @extend_schema(auth=[], request=EmailSerializer, responses=MESSAGE)
    def post(self, request: Request) -> Response:
        limits.throttle("reset")
        registration.send_reset_link(_valid(EmailSerializer, request)["email"])
        said = "If the address has an account, a message is on its way."
        return Response({"detail": said, "mail": _way_of_mail()})


class ResetPassword(Open):
    @extend_schema(auth=[], request=ResetPasswordSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        limits.throttle("links")
        data = _valid(ResetPasswordSerializer, request)
        registration.reset_password(data, data.pop("password"))
        return Response({"detail": "The new password is set; you can log in."})


class ObtainToken(Open):
    @extend_schema(auth=[], request=LoginSerializer, responses=PAIR)
    def post(self, request: Request) -> Response:
        user = credentials.check(request._request, **_valid(LoginSerializer, request))
        pair = tokens.pair(user)
        audit.note_for_all(user, Action.LOGGED_IN)
        return Response(pair)


class RefreshToken(Open):
    @extend_schema(auth=[], request=RefreshSerializer, responses=PAIR)
    def post(self, request: Request) -> Response:
        limits.throttle("tokens")
        return Response(tokens.rotate(_valid(RefreshSerializer, request)["refresh"]))


class VerifyToken(Open):
    @extend_schema(auth=[], request=VerifySerializer, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request) -> Response:
        limits.throttle("tokens")
        tokens.verify(_valid(VerifySerializer, request)["token"])
        return Response({})


class SessionToken(APIView):
    """For proxies: an access token in the name of a session, which ends with it."""

    authentication_classes = [Session]

    @extend_schema(request=None, responses=ACCESS)
    def post(self, request: Request) -> Response:
        secret = sessions.login_secret(request.session)
        return Response({"access": tokens.access(cast(Login, request.auth), secret)})


class UserDetail(APIView):
    """The caller. Nobody sees anybody else."""

    token_uses = READS

    def get_authenticators(self) -> list[Any]:
        # Who founds an organization states an address, also by a job.
        return [JobToken(), *super().get_authenticators()]

    @extend_schema(responses=UserSerializer)
    def get(self, request: Request, pk: str) -> Response:
        if pk not in ("self", request.user.pk):
            raise NotFound("there is nothing here, or nothing that you can reach")
        return Response(UserSerializer(cast(User, request.user)).data)
