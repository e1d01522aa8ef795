"""Account endpoints. Those that issue credentials ignore existing credentials, so that a stale
cookie does not hinder a login.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, cast

from django.conf import settings
from django.contrib.auth import login as start_session
from django.contrib.auth import update_session_auth_hash
from django.db import transaction
from django.db.models import QuerySet
from django.middleware.csrf import get_token
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers, status
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from encrypted_records import __version__
from encrypted_records.errors import BadInput, Conflict, Flaw, NotAuthenticated
from encrypted_records.model import ids, resources
from encrypted_records.model.texts import normalized
from encrypted_records.server import permissions, sql
from encrypted_records.server.accounts import (
    authentication,
    limits,
    logins,
    mail,
    passwords,
    registration,
)
from encrypted_records.server.accounts.authentication import READS, Basic, JobToken, Session
from encrypted_records.server.accounts.models import ApiToken, Login, User
from encrypted_records.server.accounts.passwords import MAX_ADDRESS, check_new_password
from encrypted_records.server.db.fields import ReferenceField
from encrypted_records.server.db.statements import Statement, fetch
from encrypted_records.server.http.bodies import KnownMembers, Shown, TextField, answer, valid
from encrypted_records.server.organizations import audit


class PasswordField(TextField):
    def __init__(self, **options: Any) -> None:
        options |= {"trim_whitespace": False, "write_only": True, "max_length": 1024}
        super().__init__(**options)


def check_same(attrs: dict[str, Any]) -> None:
    first, second = (normalized("NFC", attrs[name]) for name in ("password", "password_confirm"))
    if first != second:
        raise serializers.ValidationError(
            {"password_confirm": "differs from password"}, code="password_mismatch"
        )


class RegisterSerializer(KnownMembers):
    email = serializers.EmailField(max_length=MAX_ADDRESS)
    password = PasswordField()
    password_confirm = PasswordField()
    organization_name = TextField(max_length=200, allow_blank=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        check_same(attrs)
        check_new_password(attrs["password"], User(email=attrs["email"]))
        return attrs


class CodeField(TextField):
    """A code of the second factor, or a recovery code; needed where the account has one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 64, "write_only": True} | options)


class LoginSerializer(KnownMembers):
    email = TextField(max_length=MAX_ADDRESS)
    password = PasswordField()
    code = CodeField(required=False, allow_blank=True)


class PasswordSerializer(KnownMembers):
    password = PasswordField()
    code = CodeField(required=False, allow_blank=True)


class ChangeEmailSerializer(PasswordSerializer):
    email = serializers.EmailField(max_length=MAX_ADDRESS)


class DeleteAccountSerializer(PasswordSerializer):
    """``unsigned``: also where a roster has the person, who then stays there until an owner removes
    them."""

    unsigned = serializers.BooleanField(default=False)


class CodeSerializer(KnownMembers):
    code = CodeField()


class SignedLinkSerializer(KnownMembers):
    user_id = TextField(max_length=100)
    timestamp = serializers.IntegerField(min_value=0, max_value=2**40)
    signature = TextField(max_length=200)


class ResetPasswordSerializer(SignedLinkSerializer):
    """The password is judged once the link is: it must not be like the user's name or address."""

    password = PasswordField()


class ChangePasswordSerializer(KnownMembers):
    old_password = PasswordField()
    password = PasswordField()
    password_confirm = PasswordField()
    code = CodeField(required=False, allow_blank=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        check_same(attrs)
        check_new_password(attrs["password"], self.context["request"].user)
        return attrs


class EmailSerializer(KnownMembers):
    email = serializers.EmailField(max_length=MAX_ADDRESS)


_organizations_of = Statement(sql.ORGANIZATIONS)


class UserSerializer(Shown):
    structure = resources.UserResource

    def to_representation(self, instance: User) -> Any:
        rows = _organizations_of.rows(account=ids.from_text(instance.pk))
        reached = [ids.to_text(bytes(organization)) for (organization,) in rows]
        token = instance.acting
        if token is not None and token.limited:
            within = set(token.datasets.values_list("organization_id", flat=True))
            reached = [organization for organization in reached if organization in within]
        return resources.UserResource(
            id=instance.pk,
            url=instance.url,
            email=instance.email,
            first_name=instance.first_name,
            last_name=instance.last_name,
            organizations=[ids.reference("organizations", uid) for uid in reached],
            date_joined=instance.date_joined,
        )


class RefreshSerializer(KnownMembers):
    refresh = TextField(max_length=4096)


class VerifySerializer(KnownMembers):
    token = TextField(max_length=4096)


DETAIL, MESSAGE = answer(resources.DetailResource), answer(resources.MessageResource)


class OpenView(APIView):
    """For everybody."""

    authentication_classes = []
    permission_classes = [AllowAny]


class StatusView(OpenView):
    @extend_schema(auth=[], responses=answer(resources.StatusResource))
    def get(self, request: Request) -> Response:
        fetch("SELECT 1 FROM django_migrations LIMIT 1")  # an API without its database is not well
        return Response(
            resources.StatusResource(status="ok", api_version=__version__, behind_proxy=False)
        )


class Csrf(OpenView):
    @extend_schema(auth=[], responses=answer(resources.CsrfResource))
    def get(self, request: Request) -> Response:
        return Response(resources.CsrfResource(get_token(request._request)))


class Register(OpenView):
    @extend_schema(auth=[], request=RegisterSerializer, responses={201: MESSAGE})
    def post(self, request: Request) -> Response:
        limits.throttle("register")
        data = valid(RegisterSerializer, request)
        registration.register(data["email"], data["password"], data["organization_name"])
        detail = "A message with a link to confirm the address is on its way."
        return Response(
            resources.MessageResource(detail, _way_of_mail()), status=status.HTTP_201_CREATED
        )


def _way_of_mail() -> Literal["sent", "folder"]:
    """The same for every address, like the rest of the answer."""
    return "folder" if settings.EMAIL_BACKEND == mail.FOLDER_BACKEND else "sent"


class VerifyRegistration(OpenView):
    @extend_schema(auth=[], request=SignedLinkSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        limits.throttle("links")
        registration.verify(valid(SignedLinkSerializer, request))
        return Response(resources.DetailResource("The address is confirmed; you can log in."))


class LogIn(OpenView):
    @extend_schema(auth=[], request=LoginSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        """Start a session; one that this browser had ends."""
        user = passwords.check_password(request._request, **valid(LoginSerializer, request))
        _end_session(request)
        start_session(request._request, user)
        lifetime = timedelta(seconds=settings.SESSION_COOKIE_AGE)
        try:
            login = logins.begin(user, lifetime, logins.login_secret(request.session))
        except NotAuthenticated:
            request.session.flush()
            raise
        request.session[logins.LOGIN_CLAIM] = login.pk
        audit.note_for_all(user, audit.Action.LOGGED_IN)
        return Response(resources.DetailResource("You are logged in."))


class LogOut(APIView):
    """End what the request came with: the session, or the token with all of its kin."""

    @extend_schema(request=None, responses=DETAIL)
    def post(self, request: Request) -> Response:
        _end_session(request)
        if isinstance(request.auth, Login):
            request.auth.delete()
        audit.note_for_all(cast(User, request.user), audit.Action.LOGGED_OUT)
        return Response(resources.DetailResource("You are logged out."))


def _end_session(request: Request) -> None:
    Login.objects.filter(pk=request.session.get(logins.LOGIN_CLAIM)).delete()
    request.session.flush()


class ChangePassword(APIView):
    """Other sessions and all tokens end; the session of the request stays."""

    @extend_schema(request=ChangePasswordSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        data = valid(ChangePasswordSerializer, request)
        user, login = cast(User, request.user), cast(Login | None, request.auth)
        _check_password(
            request, user, data["old_password"], data.get("code", ""), pointer="/old_password"
        )
        by_session = isinstance(request.successful_authenticator, Session)
        keep = login if by_session else None
        with transaction.atomic():
            logins.set_password(user, data["password"], keep=keep)
            audit.note_for_all(user, audit.Action.PASSWORD_CHANGED)
            if keep is not None:
                update_session_auth_hash(request._request, user)
                logins.change_secret(keep, logins.login_secret(request.session))
        return Response(resources.DetailResource("The password is changed."))


class ChangeEmail(APIView):
    """The account keeps its address until the link in the message to the new one is used."""

    @extend_schema(request=ChangeEmailSerializer, responses=MESSAGE)
    def post(self, request: Request) -> Response:
        user, data = _confirm_owner(request, ChangeEmailSerializer)
        registration.ask_for_address(user, data["email"])
        detail = "A message with a link is on its way to the new address."
        return Response(resources.MessageResource(detail, _way_of_mail()))


class ConfirmEmail(OpenView):
    @extend_schema(auth=[], request=SignedLinkSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        limits.throttle("links")
        registration.change_address(valid(SignedLinkSerializer, request))
        return Response(
            resources.DetailResource("The account has its new address; log in with it.")
        )


class DeleteAccount(APIView):
    """The caller's account, for its holder alone."""

    @extend_schema(responses=answer(resources.Deletion))
    def get(self, request: Request) -> Response:
        """The consequences of a deletion for each of the caller's organizations, or obstacles."""
        affected = registration.affected_by_deletion(cast(User, request.user))
        return Response(resources.Deletion(affected))

    @extend_schema(request=DeleteAccountSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        """Delete it; logins and tokens end at once."""
        user, data = _confirm_owner(request, DeleteAccountSerializer)
        try:
            registration.delete_account(user, unsigned=data["unsigned"])
        except Conflict:
            if user.has_second_factor:  # the account leaves its organizations, and asks again
                passwords.give_code_back(user, data["code"])
            raise
        return Response(resources.DetailResource("The account is deleted."))


class SendResetPasswordLink(OpenView):
    @extend_schema(auth=[], request=EmailSerializer, responses=MESSAGE)
    def post(self, request: Request) -> Response:
        limits.throttle("reset")
        registration.send_reset_link(valid(EmailSerializer, request)["email"])
        detail = "If the address has an account, a message is on its way."
        return Response(resources.MessageResource(detail, _way_of_mail()))


class ResetPassword(OpenView):
    @extend_schema(auth=[], request=ResetPasswordSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        limits.throttle("links")
        data = valid(ResetPasswordSerializer, request)
        registration.reset_password(data, data.pop("password"))
        return Response(resources.DetailResource("The new password is set; you can log in."))


class ObtainToken(OpenView):
    @extend_schema(auth=[], request=LoginSerializer, responses=answer(resources.Tokens))
    def post(self, request: Request) -> Response:
        user = passwords.check_password(request._request, **valid(LoginSerializer, request))
        pair = logins.token_pair(user)
        audit.note_for_all(user, audit.Action.LOGGED_IN)
        return Response(pair)


class RefreshToken(OpenView):
    @extend_schema(auth=[], request=RefreshSerializer, responses=answer(resources.Tokens))
    def post(self, request: Request) -> Response:
        limits.throttle("tokens")
        return Response(logins.rotate_refresh(valid(RefreshSerializer, request)["refresh"]))


class VerifyToken(OpenView):
    @extend_schema(auth=[], request=VerifySerializer, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request) -> Response:
        limits.throttle("tokens")
        logins.verify_token(valid(VerifySerializer, request)["token"])
        return Response({})


class SessionToken(APIView):
    """For proxies: an access token in the name of a session, which ends with it."""

    authentication_classes = [Session]

    @extend_schema(request=None, responses=answer(resources.AccessResource))
    def post(self, request: Request) -> Response:
        secret = logins.login_secret(request.session)
        return Response(
            resources.AccessResource(logins.access_token(cast(Login, request.auth), secret))
        )


class UserDetail(APIView):
    """The caller. Nobody sees anybody else."""

    token_uses = READS

    def get_authenticators(self) -> list[Any]:
        # A job may found an organization, which needs an address.
        return [JobToken(), *super().get_authenticators()]

    @extend_schema(responses=UserSerializer)
    def get(self, request: Request, pk: str) -> Response:
        if pk not in ("self", request.user.pk):
            raise permissions.unreachable()
        return Response(UserSerializer(cast(User, request.user)).data)


# /api/tokens/: API tokens; their user creates, lists and revokes them, and no token has access.
#
# Creating a token needs the password of the account in the same request, as Basic credentials or in
# the body: an open session that was found must not yield a credential that lasts longer.


#: Lifetimes in seconds.
SHORTEST, USUAL, LONGEST = 60, 30 * 86_400, 366 * 86_400
MOST_DATASETS = 100
_SCOPES: list[resources.Scope] = ["read", "write"]


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
    code = CodeField(required=False, allow_blank=True)


class ApiTokenSerializer(Shown):
    structure = resources.ApiTokenResource

    def to_representation(self, instance: ApiToken) -> Any:
        return resources.ApiTokenResource(**_members_of(instance))


def _members_of(token: ApiToken) -> dict[str, Any]:
    named = [ids.reference("datasets", dataset.pk) for dataset in token.datasets.all()]
    return {
        "id": token.id,
        "url": token.url,
        "name": token.name,
        "scope": _SCOPES[token.writes],
        "datasets": sorted(named) if token.limited else None,
        "created": token.created,
        "expires": token.expires,
        "last_used": token.last_used,
    }


class ApiTokensView(generics.ListAPIView[ApiToken]):
    """The caller's API tokens."""

    serializer_class = ApiTokenSerializer
    queryset = ApiToken.objects.none()

    @property
    def user(self) -> User:
        return cast(User, self.request.user)

    def get_queryset(self) -> QuerySet[ApiToken]:
        return self.user.api_tokens.prefetch_related("datasets").order_by("pk")

    @extend_schema(
        request=NewApiTokenSerializer, responses={201: answer(resources.CreatedApiTokenResource)}
    )
    def post(self, request: Request) -> Response:
        """Make a token; the answer is the only one that has it."""
        wanted = valid(
            NewApiTokenSerializer, request, reachable=lambda _: permissions.datasets(self.user)
        )
        if not isinstance(request.successful_authenticator, Basic):  # has the password
            _check_password(request, self.user, wanted.get("password"), wanted.get("code", ""))
        with transaction.atomic():
            made, text = authentication.create_api_token(
                self.user,
                wanted["name"],
                writes=wanted["scope"] == "write",
                datasets=wanted.get("datasets"),
                lifetime=timedelta(seconds=wanted["expires_in"]),
            )
            audit.note_for_all(self.user, audit.Action.TOKEN_CREATED)
        shown = resources.CreatedApiTokenResource(**_members_of(made), token=text)
        return Response(shown, status=status.HTTP_201_CREATED)


class ApiTokenDetail(APIView):
    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: str) -> Response:
        """Revoke a token: it is refused from now on, and jobs that it began end."""
        user = cast(User, request.user)
        with transaction.atomic():
            permissions.find(ApiToken.objects.filter(user=user), pk).delete()
            audit.note_for_all(user, audit.Action.TOKEN_REVOKED)
        return Response(status=status.HTTP_204_NO_CONTENT)


class SecondFactorView(APIView):
    """The second factor of the caller's logins, at this API."""

    @extend_schema(responses=answer(resources.SecondFactorResource))
    def get(self, request: Request) -> Response:
        user = cast(User, request.user)
        left = user.recovery_codes.count()
        return Response(resources.SecondFactorResource(user.has_second_factor, left))

    @extend_schema(request=PasswordSerializer, responses={201: answer(resources.NewSecondFactor)})
    def post(self, request: Request) -> Response:
        """Make a key for an authenticator app; it counts once a code of it was shown."""
        user = cast(User, request.user)
        _confirm_owner(request, PasswordSerializer)
        made = passwords.begin_second_factor(user)
        return Response(made, status=status.HTTP_201_CREATED)


class ConfirmSecondFactor(APIView):
    @extend_schema(request=CodeSerializer, responses=answer(resources.RecoveryCodesResource))
    def post(self, request: Request) -> Response:
        """Show a code of the app: from now on logins need one."""
        user = cast(User, request.user)
        try:
            codes = passwords.confirm_second_factor(user, valid(CodeSerializer, request)["code"])
        except NotAuthenticated as error:
            raise _flawed(error, "/code") from None
        audit.note_for_all(user, audit.Action.SECOND_FACTOR_ADDED)
        return Response(resources.RecoveryCodesResource(codes))


class RecoveryCodes(APIView):
    @extend_schema(request=PasswordSerializer, responses=answer(resources.RecoveryCodesResource))
    def post(self, request: Request) -> Response:
        """Replace all recovery codes."""
        _confirm_owner(request, PasswordSerializer)
        codes = passwords.renew_recovery_codes(cast(User, request.user))
        return Response(resources.RecoveryCodesResource(codes))


class RemoveSecondFactor(APIView):
    @extend_schema(request=PasswordSerializer, responses=DETAIL)
    def post(self, request: Request) -> Response:
        """Let logins need the password alone again."""
        user = cast(User, request.user)
        _confirm_owner(request, PasswordSerializer)
        passwords.remove_second_factor(user)
        audit.note_for_all(user, audit.Action.SECOND_FACTOR_REMOVED)
        return Response(resources.DetailResource("Logins need the password alone now."))


def _confirm_owner(
    request: Request, kind: type[serializers.Serializer[Any]]
) -> tuple[User, dict[str, Any]]:
    """Check the password, and the code where there is a second factor, of a body that has both;
    returns the account as the check has read it, and the body."""
    data, user = valid(kind, request), cast(User, request.user)
    checked = _check_password(request, user, data.get("password"), data.get("code", ""))
    return checked, data


def _check_password(
    request: Request,
    user: User,
    password: str | None,
    code: str,
    *,
    pointer: str = "/password",
) -> User:
    """Check the password; returns the account.

    Raises:
        BadInput: ``wrong_password``, ``second_factor_required`` or ``wrong_code``; or no password
            was sent.
        Throttled: after too many wrong passwords.
    """
    if password is None:
        detail = "is required, because this change outlasts the login of the request"
        raise BadInput(
            "the request is not valid", flaws=(Flaw("required", detail, pointer=pointer),)
        )
    try:
        return passwords.check_password(request._request, user.email, password, code)
    except NotAuthenticated as error:
        raise _flawed(error, pointer) from None


def _flawed(error: NotAuthenticated, pointer: str) -> BadInput:
    """The error as a flaw of the body: the caller is known, so that 401 would be misleading."""
    flaw = Flaw("wrong_password", "is not the current password", pointer=pointer)
    if error.reason in {"second_factor_required", "wrong_code"}:
        flaw = Flaw(error.reason, error.message, pointer="/code")
    return BadInput("the request is not valid", flaws=(flaw,), hint=error.hint)
