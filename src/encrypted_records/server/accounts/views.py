"""Account endpoints. Those that obtain credentials look at none: a stale cookie hinders nobody."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth import authenticate, update_session_auth_hash
from django.middleware.csrf import get_token
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers, status
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework_simplejwt.views import TokenObtainPairView, TokenRefreshView, TokenVerifyView
from rest_registration.api.views.change_password import ChangePasswordView
from rest_registration.api.views.login import LoginView, LogoutView
from rest_registration.api.views.reset_password import SendResetPasswordLinkView

from encrypted_records import __version__
from encrypted_records.errors import NotAuthenticated, NotFound
from encrypted_records.server.accounts import registration
from encrypted_records.server.accounts.models import User
from encrypted_records.server.accounts.serializers import (
    ChangePasswordSerializer,
    EmailSerializer,
    LoginSerializer,
    ObtainSerializer,
    RefreshSerializer,
    RegisterSerializer,
    ResetPasswordSerializer,
    SignedLinkSerializer,
    UserSerializer,
    VerifySerializer,
)

DETAIL = inline_serializer("Detail", {"detail": serializers.CharField()})


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
    @extend_schema(auth=[], request=RegisterSerializer, responses={201: DETAIL})
    def post(self, request: Request) -> Response:
        wanted = RegisterSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        data = wanted.validated_data
        registration.register(request, data["email"], data["password"], data["organization_name"])
        return Response(
            {"detail": "A message with a link to confirm the address is on its way."},
            status=status.HTTP_201_CREATED,
        )


class VerifyRegistration(Open):
    @extend_schema(auth=[], request=SignedLinkSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        signed = SignedLinkSerializer(data=request.data)
        signed.is_valid(raise_exception=True)
        registration.verify(signed.validated_data)
        return Response({"detail": "The address is confirmed; you can log in."})


def check_login(data: dict[str, Any], *, serializer: serializers.BaseSerializer[Any]) -> Any:
    """Who is logging in.

    Raises:
        NotAuthenticated: nobody with this address and password, or not verified yet.
    """
    user = authenticate(
        serializer.context["request"], username=data["email"], password=data["password"]
    )
    if user is None:
        raise NotAuthenticated(
            "e-mail and password do not belong to an active account",
            code="bad_credentials",
            hint="a new account works once its address is confirmed",
        )
    return user


@extend_schema(auth=[], request=LoginSerializer, responses=DETAIL)
class Login(LoginView):  # type: ignore[misc]  # the library is untyped
    authentication_classes: list[type] = []


@extend_schema(request=None, responses=DETAIL)
class Logout(LogoutView):  # type: ignore[misc]  # the library is untyped
    pass


@extend_schema(request=ChangePasswordSerializer, responses=DETAIL)
class ChangePassword(ChangePasswordView):  # type: ignore[misc]  # the library is untyped
    """Other sessions and all tokens end; the session that asked goes on."""

    serializer_class = ChangePasswordSerializer

    def post(self, request: Request) -> Response:
        response: Response = super().post(request)
        if request.auth is None and request.session.session_key:
            update_session_auth_hash(request._request, cast(User, request.user))
        return response


@extend_schema(auth=[], request=EmailSerializer, responses=DETAIL)
class SendResetPasswordLink(SendResetPasswordLinkView):  # type: ignore[misc]  # untyped
    authentication_classes: list[type] = []


class ResetPassword(Open):
    @extend_schema(auth=[], request=ResetPasswordSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        signed = ResetPasswordSerializer(data=request.data)
        signed.is_valid(raise_exception=True)
        data = dict(signed.validated_data)
        registration.reset_password(data, data.pop("password"))
        return Response({"detail": "The new password is set; you can log in."})


@extend_schema(auth=[])
class ObtainToken(TokenObtainPairView):
    serializer_class = ObtainSerializer


@extend_schema(auth=[])
class RefreshToken(TokenRefreshView):
    serializer_class = RefreshSerializer


@extend_schema(auth=[])
class VerifyToken(TokenVerifyView):
    serializer_class = VerifySerializer


class UserDetail(APIView):
    """The caller. Nobody sees anybody else."""

    @extend_schema(responses=UserSerializer)
    def get(self, request: Request, pk: str) -> Response:
        if pk not in ("self", request.user.pk):
            raise NotFound("there is nothing here, or nothing that you can reach")
        return Response(UserSerializer(cast(User, request.user)).data)
