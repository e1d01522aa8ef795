"""Tokens for one job each: the proxy continues with one when its user's credentials have expired.

A job outlives the request that began it, and the process. Its token lets the proxy store what
belongs to this job and nothing else, and read what that takes: the definition and the log of
schemas that its user reaches, pages and rows, all of them sealed. Only views that name
:class:`JobToken` among their authenticators know such tokens; every other one refuses them.

The proxy makes the token, keeps it, and has the API enter its SHA-256: however often and however
late that request arrives, the token stays the same, and no lost answer leaves a job without it. An
older proxy sends no digest, and the API makes the token.

A token is revoked permanently (``job_revoked``) when the user's password changes, when the account
is shut or deleted, and when the API token is revoked with which the job was begun; that one's
limits are the job's. It is not known (``bad_token``) after a week without being entered again,
after its job has ended, where an older database was restored, and under another ``secret.key``:
then the proxy enters another one by the next request of its user. The database holds its SHA-256
alone.
"""

from __future__ import annotations

import hmac
from datetime import timedelta

from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from rest_framework import authentication
from rest_framework.request import Request

from encrypted_records.errors import BadInput, Conflict, NotAuthenticated
from encrypted_records.server.accounts import api_tokens
from encrypted_records.server.accounts.authentication import Basic, Bearer, Session
from encrypted_records.server.accounts.digests import digest, new_secret
from encrypted_records.server.accounts.models import JobGrant, User
from encrypted_records.server.accounts.tokens import ServiceToken, has_expired

LIFETIME = timedelta(days=7)
SCHEME = "Job"


def issue(user: User, job: bytes, shown: bytes | None = None) -> str | None:
    """Issue a token for this job for a week, within the limits of the caller's credentials; it
    replaces any other token of the job.

    Args:
        shown: the digest of the token; the API makes a token where there is none.

    Returns:
        The token that was made here.

    Raises:
        BadInput: the digest is that of another job's token.
        Conflict: ``job_token_spent``; the token was revoked, or entered under another
            ``secret.key``, and counts never again.
        NotAllowed: ``token_limited``; an API token asks, and did not begin the job.
        NotAuthenticated: ``job_revoked``; the API token that began the job was revoked.
    """
    made = None if shown is not None else new_secret()
    entered = shown or digest(made)
    with transaction.atomic():
        known = JobGrant.objects.select_for_update().filter(user=user, job=job).first()
        began = user.acting
        if known is not None:
            if known.is_limited and known.api_token_id is None:
                raise _revoked()
            if began is not None and known.api_token_id != began.pk:
                raise api_tokens.limited(
                    "the job was not begun with this API token", "log in, and do this as yourself"
                )
            began = known.api_token
            if bytes(known.digest) == entered and not _is_sealed(known, user):
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
            expires=timezone.now() + LIFETIME,
            api_token=began,
            is_limited=began is not None,
        )
    return made


def _is_sealed(grant: JobGrant, user: User) -> bool:
    return hmac.compare_digest(grant.seal, user.get_session_auth_hash())


def revoke(user: User, job: bytes) -> None:
    """End the job's token; an API token ends those of jobs that it began."""
    granted = JobGrant.objects.filter(user=user, job=job)
    if user.acting is not None:
        granted = granted.filter(api_token=user.acting)
    granted.delete()


def hold(grant: JobGrant) -> None:
    """Keep a job from ending before this transaction ends. Otherwise data that a late request adds
    to an ended job would never be deleted.

    Raises:
        NotAuthenticated: ``bad_token``; the job has ended.
    """
    held = JobGrant.objects.select_for_update().filter(user=grant.user_id, job=grant.job)
    if held.first() is None:
        raise _unknown()


def _unknown() -> NotAuthenticated:
    return NotAuthenticated(
        "the API does not know the job's token, or it has expired",
        code="bad_token",
        hint="the job continues with its user's next request to the proxy",
    )


def _revoked() -> NotAuthenticated:
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
        if scheme.lower() != SCHEME.lower():
            return None
        grant = (
            JobGrant.objects.select_related("user__service", "api_token")
            .filter(digest=digest(token))
            .first()
        )
        if grant is None or grant.expires < timezone.now():
            raise _unknown()
        if (
            not grant.user.is_active
            or has_expired(grant.user)
            or (grant.is_limited and grant.api_token is None)
            or not hmac.compare_digest(bytes(grant.password_digest), digest(grant.user.password))
        ):
            raise _revoked()
        if not _is_sealed(grant, grant.user):
            raise _unknown()
        grant.user.acting = grant.api_token
        return grant.user, grant

    def authenticate_header(self, request: Request) -> str:
        return SCHEME


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
        # They ask of the framework's request what Django's has, too.
        found = authenticator.authenticate(request)  # type: ignore[arg-type]
        if found is not None:
            return found
    raise NotAuthenticated("this path needs credentials")
