"""Authentication of requests, and API tokens with their limits.

People send a Bearer token, Basic credentials or a session cookie. A Bearer token is of a login, or
an API token, which has limits. Checking a password is slow on purpose, so a successful Basic
credential is remembered for a minute: as an HMAC under a key that lives as long as this process,
with the HMAC of the address and password hash that it was right for. The user is read again for
every request, so that a changed address or password or a deactivated account ends this at once. The
login of a token is cached in the same way, with the digest of the token's secret, which spares
parsing the token; the login itself is read for each request.

An API token acts for its user, within its limits: it reads, or reads and writes, and reaches all of
its user's datasets, or only the named ones. The request's user carries the limits
(:attr:`User.acting`), so that :mod:`~encrypted_records.server.permissions` returns only resources
that the token reaches. Views state what tokens may do, by method (:class:`Use`); a view that states
nothing refuses tokens. So no token can change a password, create a token, invite a user or end a
login. A token ends when it is revoked, when it expires, when its user's password changes, and when
the account is deactivated. Jobs that it began end with it, except when it expires. Each request
looks it up.

Services are programs with a standing in a roster and without a password. A service's proxy derives
its token from the secret key that the owner was shown; the key itself must never be sent to the
API, and a caller who sends it is told that it is exposed. The database has the SHA-256 of the
token. A token is valid from its creation until it expires or the roster removes the service; the
roster decides what it reaches.

Each job has a token, with which the proxy continues when its user's credentials have expired: a job
outlives the request that began it, and the process. Its token lets the proxy store data of this job
and nothing else, and read what this needs: the definition and the log of schemas that its user
reaches, pages and rows, all of them sealed. Only views with :class:`JobToken` among their
authenticators accept such tokens; all other views refuse them.

The proxy makes the token of a job, keeps it, and registers its SHA-256 at the API: however often
and however late that request arrives, the token stays the same, and a lost answer leaves no job
without a token. An older proxy sends no digest, and the API makes the token.

A job's token is revoked permanently (``job_revoked``) when the user's password changes, when the
account is deactivated or deleted, and when the API token that began the job is revoked; that
token's limits apply to the job. The token is unknown (``bad_token``) after a week without being
registered again, after its job has ended, after an older database was restored, and under another
``secret.key``: then the proxy registers another token with the next request of its user. The
database has only its SHA-256.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from django.contrib.sessions.middleware import SessionMiddleware
from django.core.cache import cache
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from rest_framework import authentication, exceptions
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from encrypted_records.errors import BadInput, Conflict, NotAllowed, NotAuthenticated
from encrypted_records.model import credentials
from encrypted_records.model.credentials import SERVICE_PREFIX, SERVICE_SCHEME, service_token_of
from encrypted_records.server.accounts import logins, passwords
from encrypted_records.server.accounts.logins import digest
from encrypted_records.server.accounts.models import ApiToken, JobGrant, Login, User
from encrypted_records.server.gateway.admission import SENDER
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.models import Service

if TYPE_CHECKING:
    from rest_framework.views import APIView

    from encrypted_records.server.datasets.models import Dataset


#: The most tokens of a user, including expired tokens.
MOST_API_TOKENS = 100


class Use(Enum):
    """The kind of an API operation, which decides whether a token may use it."""

    #: changes nothing, and returns content of the token's datasets
    READ = auto()
    #: changes nothing, and returns resources of a whole organization
    READ_ALL = auto()
    #: changes content of the token's datasets
    WRITE = auto()
    #: changes resources of a whole organization
    WRITE_ALL = auto()


def _uses(**uses: Use) -> Mapping[str, Use]:
    return MappingProxyType(uses)


#: Uses that views allow to tokens, by method.
READS = _uses(GET=Use.READ)
#: For a view through which writing tokens add what a first record needs.
READS_AND_ADDS = _uses(GET=Use.READ, POST=Use.WRITE)
READS_ALL = _uses(GET=Use.READ_ALL)
#: For views whose requests to read have a body.
READS_BY_BODY = _uses(POST=Use.READ)
WRITES = _uses(POST=Use.WRITE, DELETE=Use.WRITE)
CHANGES = _uses(GET=Use.READ, POST=Use.WRITE, PUT=Use.WRITE, PATCH=Use.WRITE, DELETE=Use.WRITE)
#: For collections in which a token with limits must not create resources.
CHANGES_ALL = MappingProxyType({**CHANGES, "POST": Use.WRITE_ALL})


def create_api_token(
    user: User, name: str, *, writes: bool, datasets: Sequence[Dataset] | None, lifetime: timedelta
) -> tuple[ApiToken, str]:
    """Create a token; returns it with its text, which is not stored.

    Args:
        datasets: the datasets it is limited to; None for all that its user reaches.

    Raises:
        Conflict: ``too_many_tokens``.
        NotAuthenticated: the password was changed, or the account deactivated, just now.
    """
    made = credentials.generate_api_token(writes=writes)
    with transaction.atomic():
        # Locked as for a login: either a change of password sees this token, or this sees that
        # change.
        same = User.objects.select_for_update().filter(
            pk=user.pk, password=user.password, is_active=True
        )
        if not same.exists():
            raise NotAuthenticated("the password was just changed", code="bad_credentials")
        if user.api_tokens.count() >= MOST_API_TOKENS:
            raise Conflict(
                f"an account has at most {MOST_API_TOKENS} API tokens",
                code="too_many_tokens",
                hint="revoke tokens that are no longer used",
            )
        row = ApiToken.objects.create(
            user=user,
            name=name,
            digest=made.digest,
            writes=writes,
            limited=datasets is not None,
            expires=timezone.now() + lifetime,
        )
        row.datasets.set(datasets or ())
    return row, made.text


def find_api_token(text: str) -> ApiToken | None:
    """The valid token with this text, with its user; its use is noted, to the day. None if the text
    is not an API token.

    Raises:
        NotAuthenticated: it has the form of a token, and is not valid.
    """
    shown = credentials.parse_api_token(text)
    if shown is None:
        return None
    token = ApiToken.objects.select_related("user").filter(digest=shown.digest).first()
    now = timezone.now()
    if token is None or token.expires <= now or not token.user.is_active:
        raise NotAuthenticated(
            "the API token has expired, was revoked, or never existed",
            code="bad_token",
            hint="create a new one: ers token create NAME",
        )
    if token.last_used != now.date():
        ApiToken.objects.filter(pk=token.pk).update(last_used=now.date())
    token.user.acting = token
    return token


class WithinToken(BasePermission):
    """Refuses requests beyond the limits of their token, or of the token that began their job."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """
        Raises:
            NotAllowed: ``token_limited``.
        """
        uses: Mapping[str, Use] = getattr(view, "token_uses", {})
        method = request.method or ""
        use = uses.get("GET" if method == "HEAD" else method)
        require_within(request.META, cast(User, request.user), use)
        return True


def require_within(environ: dict[str, Any], user: User, use: Use | None) -> None:
    """Check that a user's token, if any, allows this use. Also stores the sender of the request in
    ``environ`` for the server.

    Raises:
        NotAllowed: ``token_limited``.
    """
    environ[SENDER] = user.pk
    token = user.acting
    if token is None:
        return
    if use is None:
        raise token_limited("an API token cannot do this", "log in, and do this as yourself")
    if use in (Use.WRITE, Use.WRITE_ALL) and not token.writes:
        raise token_limited(
            "this API token is read-only",
            'use a token with the scope "write" (ers token create --scope write), or log in',
        )
    if use in (Use.READ_ALL, Use.WRITE_ALL) and token.limited:
        raise token_limited_to_datasets()


def token_limited_to_datasets() -> NotAllowed:
    """The error for a token that is limited to datasets, in a request that needs more."""
    return token_limited(
        "this API token is limited to some datasets, and this request concerns the organization",
        "use a token that is not limited to datasets, or log in",
    )


def token_limited(message: str, hint: str) -> NotAllowed:
    return NotAllowed(message, code="token_limited", hint=hint)


#: Minimal time between two updates of a service's last use.
NOTED_EVERY = timedelta(minutes=1)


def digest_of(token: bytes) -> bytes:
    """The digest that the database stores of a token of 32 bytes."""
    return hashlib.sha256(token).digest()


def refuse_key(*shown: str) -> None:
    """
    Raises:
        NotAuthenticated: ``service_key_exposed``; a value begins like a service's secret key.
    """
    if any(text.lower().startswith(SERVICE_PREFIX) for text in shown):
        raise NotAuthenticated(
            "a service's secret key was sent to the API, which must never see it",
            code="service_key_exposed",
            hint=(
                "delete the service, create another, and give its secret key only to ers or a proxy"
            ),
        )


def has_expired(user: User) -> bool:
    """Whether a user is an expired service."""
    service = getattr(user, "service", None)
    return service is not None and service.expires is not None and service.expires <= timezone.now()


class ServiceToken(authentication.BaseAuthentication):
    """``Authorization: Service <token>``."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        header = request.headers.get("Authorization", "")
        scheme, _, shown = header.partition(" ")
        if scheme.lower() != SERVICE_SCHEME.lower():
            return None
        refuse_key(shown.strip())
        token = service_token_of(header)
        user = None if token is None else _find_service(token)
        if user is None or not user.is_active or has_expired(user):
            raise NotAuthenticated(
                "the service's token is not valid, or no longer valid",
                code="bad_token",
                hint="ask an owner of the organization to create a new service",
            )
        _note_use(user)
        return user, None

    def authenticate_header(self, request: Request) -> str:
        return SERVICE_SCHEME


def _note_use(user: User) -> None:
    """At most once a minute, so that a busy service does not write a row for each request."""
    service, now = user.service, timezone.now()
    if service.last_used is None or service.last_used <= now - NOTED_EVERY:
        # Not by saving the row, which the roster may delete at this moment.
        Service.objects.filter(pk=service.pk).update(last_used=now)


def _find_service(token: bytes) -> User | None:
    digest = digest_of(token)
    return User.objects.select_related("service").filter(service__digest=digest).first()


REMEMBER_SECONDS = 60
_process_key = secrets.token_bytes(32)
_sessions = SessionMiddleware(lambda _: HttpResponse())


def _fingerprint(secret: str) -> str:
    return hmac.digest(_process_key, secret.encode(), "sha256").hex()


def _seal(user: User) -> str:
    """Identifies the address and password that a Basic credential was right for."""
    return _fingerprint(f"{user.email}:{user.password}")


class Basic(authentication.BasicAuthentication):
    def authenticate_credentials(
        self, userid: str, password: str, request: Any = None
    ) -> tuple[User, None]:
        refuse_key(userid, password)
        # Unambiguous, because an address has no colon.
        name = _fingerprint(f"{userid}:{password}")
        known = cache.get(name)
        if known is not None:
            user_id, seal = known
            user = logins.active_user(user_id)
            same = user is not None and hmac.compare_digest(seal, _seal(user))
            if user is not None and same and not user.has_second_factor:
                return user, None
        user = passwords.check_password(request, userid, password)
        audit.note_for_all(user, audit.Action.LOGGED_IN)
        cache.set(name, (user.pk, _seal(user)), REMEMBER_SECONDS)
        return user, None


class Bearer(authentication.BaseAuthentication):
    """Authenticates by the access token of a login, or by an API token."""

    def authenticate(self, request: Request) -> tuple[User, Login | ApiToken] | None:
        header = authentication.get_authorization_header(request).decode("latin-1")
        scheme, _, shown = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        text = shown.strip()
        refuse_key(text)
        row = find_api_token(text)
        if row is not None:
            return row.user, row
        login = logins.living_login(*_claims(text))
        return login.user, login


def _claims(token: str) -> tuple[str, bytes]:
    """The id of a token's login, and the digest of the login's secret in the token."""
    name = _fingerprint(token)
    known: tuple[str, bytes] | None = cache.get(name)
    if known is None:
        login_id, shown, expires = logins.read_access_token(token)
        known = login_id, shown
        cache.set(name, known, min(REMEMBER_SECONDS, expires - time.time()))
    return known


class Session(authentication.SessionAuthentication):
    """Authenticates by a browser's cookie. The session names the login, which is read as for a
    token; the login's secret is derived from the cookie.
    """

    def authenticate(self, request: Request) -> tuple[User, Login] | None:
        if not hasattr(request, "session"):  # outside of the framework's views
            _sessions.process_request(request)
        session = request.session
        login = logins.find(session.get(logins.LOGIN_CLAIM), digest(logins.login_secret(session)))
        if login is None:
            return None
        self.enforce_csrf(request)
        return login.user, login

    def enforce_csrf(self, request: Request) -> None:
        try:
            super().enforce_csrf(request)
        except exceptions.PermissionDenied:
            raise NotAllowed(
                "a change by session cookie came without a valid CSRF token",
                code="csrf_failed",
                hint="get one at /api/csrf/ and send it as X-CSRFToken",
            ) from None


JOB_LIFETIME = timedelta(days=7)
JOB_SCHEME = "Job"


def issue_job_token(user: User, job: bytes, shown: bytes | None = None) -> str | None:
    """Issue a token for this job for a week, within the limits of the caller's credentials; it
    replaces any other token of the job.

    Args:
        shown: the digest of the token; if None, the API makes a token.

    Returns:
        The token, if it was made here.

    Raises:
        BadInput: the digest is that of another job's token.
        Conflict: ``job_token_spent``; the token was revoked, or registered under another
            ``secret.key``, and is never valid again.
        NotAllowed: ``token_limited``; the caller uses an API token that did not begin the job.
        NotAuthenticated: ``job_revoked``; the API token that began the job was revoked.
    """
    made = None if shown is not None else logins.new_secret()
    entered = shown or digest(made)
    with transaction.atomic():
        known = JobGrant.objects.select_for_update().filter(user=user, job=job).first()
        began = user.acting
        if known is not None:
            if known.is_limited and known.api_token_id is None:
                raise _job_revoked()
            if began is not None and known.api_token_id != began.pk:
                raise token_limited(
                    "the job was not begun with this API token", "log in, and do this as yourself"
                )
            began = known.api_token
            if bytes(known.digest) == entered and not _is_sealed_for(known, user):
                raise Conflict(
                    "this token of the job is no longer valid",
                    code="job_token_spent",
                    hint="create another token for the job",
                )
        if JobGrant.objects.filter(digest=entered).exclude(user=user, job=job).exists():
            raise BadInput("the digest belongs to another job's token")
        JobGrant.objects.filter(user=user, job=job).delete()
        JobGrant.objects.filter(expires__lt=timezone.now()).delete()
        JobGrant.objects.create(
            digest=entered,
            user=user,
            job=job,
            seal=user.get_session_auth_hash(),
            password_digest=digest(user.password),
            expires=timezone.now() + JOB_LIFETIME,
            api_token=began,
            is_limited=began is not None,
        )
    return made


def _is_sealed_for(grant: JobGrant, user: User) -> bool:
    return hmac.compare_digest(grant.seal, user.get_session_auth_hash())


def revoke_job_token(user: User, job: bytes) -> None:
    """End the job's token; an API token can do this only for jobs that it began."""
    granted = JobGrant.objects.filter(user=user, job=job)
    if user.acting is not None:
        granted = granted.filter(api_token=user.acting)
    granted.delete()


def hold_job(grant: JobGrant) -> None:
    """Keep a job from ending before this transaction ends. Otherwise data that a late request adds
    to an ended job would never be deleted.

    Raises:
        NotAuthenticated: ``bad_token``; the job has ended.
    """
    grants = JobGrant.objects.select_for_update().filter(user=grant.user_id, job=grant.job)
    if grants.first() is None:
        raise _job_unknown()


def _job_unknown() -> NotAuthenticated:
    return NotAuthenticated(
        "the API does not know the job's token, or it has expired",
        code="bad_token",
        hint="the job continues with its user's next request to the proxy",
    )


def _job_revoked() -> NotAuthenticated:
    return NotAuthenticated(
        "the job's token was revoked: the password was changed, the account was closed, or"
        " the API token or service that started the job has ended",
        code="job_revoked",
        hint="start the job again",
    )


class JobToken(authentication.BaseAuthentication):
    """``Authorization: Job <token>``; the request's ``auth`` is then the :class:`JobGrant`."""

    def authenticate(self, request: Request) -> tuple[User, JobGrant] | None:
        scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != JOB_SCHEME.lower():
            return None
        grant = (
            JobGrant.objects.select_related("user__service", "api_token")
            .filter(digest=digest(token))
            .first()
        )
        if grant is None or grant.expires < timezone.now():
            raise _job_unknown()
        if (
            not grant.user.is_active
            or has_expired(grant.user)
            or (grant.is_limited and grant.api_token is None)
            or not hmac.compare_digest(bytes(grant.password_digest), digest(grant.user.password))
        ):
            raise _job_revoked()
        if not _is_sealed_for(grant, grant.user):
            raise _job_unknown()
        grant.user.acting = grant.api_token
        return grant.user, grant

    def authenticate_header(self, request: Request) -> str:
        return JOB_SCHEME


#: For views that a job may use, too.
WITH_JOBS = (JobToken, Bearer, Basic, Session, ServiceToken)
_AUTHENTICATORS = tuple(make() for make in WITH_JOBS)


def identify(request: HttpRequest) -> tuple[User, object]:
    """The sender of a request and the credentials, for requests that no view of the framework
    answers.

    Raises:
        NotAuthenticated: there are no credentials, or they are not valid.
        NotAllowed: ``csrf_failed``.
    """
    for authenticator in _AUTHENTICATORS:
        # The authenticators use only attributes that Django's request has, too.
        found = authenticator.authenticate(request)  # type: ignore[arg-type]
        if found is not None:
            return found
    raise NotAuthenticated("this path needs credentials")
