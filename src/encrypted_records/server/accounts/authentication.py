"""Authentication of requests.

People send a Bearer token, Basic credentials or a session cookie. A Bearer token is of a login, or
an API token (:mod:`.api_tokens`), which has limits. Checking a password is slow on purpose, so a
successful Basic credential is remembered for a minute: as an HMAC under a key that lives as long as
this process, with the HMAC of the address and password hash that it was right for. The user is read
again for every request, so that a changed address or password or a deactivated account ends this at
once. The login of a token is cached in the same way, with the digest of the token's secret, which
spares parsing the token; the login itself is read for each request.

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
from datetime import timedelta
from typing import Any

from django.contrib.sessions.middleware import SessionMiddleware
from django.core.cache import cache
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from encrypted_records.errors import BadInput, Conflict, NotAllowed, NotAuthenticated
from encrypted_records.model.credentials import SERVICE_PREFIX, SERVICE_SCHEME, service_token_of
from encrypted_records.server.accounts import api_tokens, logins, passwords
from encrypted_records.server.accounts.logins import digest, new_secret
from encrypted_records.server.accounts.models import ApiToken, JobGrant, Login, User
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action

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
        service.last_used = now
        service.save(update_fields=["last_used"])


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
        audit.note_for_all(user, Action.LOGGED_IN)
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
        row = api_tokens.find(text)
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
    made = None if shown is not None else new_secret()
    entered = shown or digest(made)
    with transaction.atomic():
        known = JobGrant.objects.select_for_update().filter(user=user, job=job).first()
        began = user.acting
        if known is not None:
            if known.is_limited and known.api_token_id is None:
                raise _job_revoked()
            if began is not None and known.api_token_id != began.pk:
                raise api_tokens.limited(
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
    held = JobGrant.objects.select_for_update().filter(user=grant.user_id, job=grant.job)
    if held.first() is None:
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
