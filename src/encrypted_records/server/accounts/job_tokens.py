"""Tokens for one job each: the proxy continues with one when its user's credentials have expired.

A job outlives the request that began it, and the process. Its token lets the proxy store what
belongs to this job and nothing else, and read what that takes: the definition and the log of
schemas that its user reaches, pages and rows, all of them sealed. Only views that name
:class:`JobToken` among their authenticators know such tokens; every other one refuses them.

A token ends with its job, after a week, when the user's password changes, when the account is shut,
and when the API token is revoked with which the job was begun; that one's limits are the job's. The
database holds its SHA-256 alone.
"""

from __future__ import annotations

import hmac
from datetime import timedelta

from django.db import transaction
from django.utils import timezone
from rest_framework import authentication
from rest_framework.request import Request

from encrypted_records.errors import NotAuthenticated
from encrypted_records.server.accounts import api_tokens
from encrypted_records.server.accounts.authentication import Basic, Bearer, Session
from encrypted_records.server.accounts.digests import digest, new_secret
from encrypted_records.server.accounts.models import JobGrant, User
from encrypted_records.server.accounts.service_tokens import ServiceToken, has_expired

LIFETIME = timedelta(days=7)
SCHEME = "Job"


def issue(user: User, job: bytes) -> str:
    """A new token for this job, within the limits of what asks for it; an earlier one is void.

    Raises:
        NotAllowed: ``token_limited``; an API token asks, and did not begin the job.
    """
    with transaction.atomic():
        known = JobGrant.objects.select_for_update().filter(user=user, job=job).first()
        acting = user.acting
        if known is not None and acting is not None and known.api_token_id != acting.pk:
            raise api_tokens.limited(
                "the job was not begun with this API token", "log in, and do it as yourself"
            )
        return _issue(user, job)


def _issue(user: User, job: bytes) -> str:
    token = new_secret()
    revoke(user, job)
    JobGrant.objects.filter(expires__lt=timezone.now()).delete()
    JobGrant.objects.create(
        digest=digest(token),
        user=user,
        job=job,
        seal=user.get_session_auth_hash(),
        expires=timezone.now() + LIFETIME,
        api_token=user.acting,
    )
    return token


def revoke(user: User, job: bytes) -> None:
    """End the job's token; an API token ends those of jobs that it began."""
    granted = JobGrant.objects.filter(user=user, job=job)
    if user.acting is not None:
        granted = granted.filter(api_token=user.acting)
    granted.delete()


def hold(grant: JobGrant) -> None:
    """Keep a job from ending before this transaction does: what a request of it brings late would
    lie there, and nobody would drop it.

    Raises:
        NotAuthenticated: ``bad_token``; it has ended.
    """
    held = JobGrant.objects.select_for_update().filter(user=grant.user_id, job=grant.job)
    if held.first() is None:
        raise _ended()


def _ended() -> NotAuthenticated:
    return NotAuthenticated(
        "the job's token is not valid, or no longer",
        code="bad_token",
        hint="begin the job again; a change of password ends the jobs under way",
    )


class JobToken(authentication.BaseAuthentication):
    """``Authorization: Job <token>``; the request's ``auth`` is then the :class:`JobGrant`."""

    def authenticate(self, request: Request) -> tuple[User, JobGrant] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != SCHEME.lower():
            return None
        grant = (
            JobGrant.objects.select_related("user__service", "api_token")
            .filter(digest=digest(token))
            .first()
        )
        if (
            grant is None
            or grant.expires < timezone.now()
            or not grant.user.is_active
            or has_expired(grant.user)
            or not hmac.compare_digest(grant.seal, grant.user.get_session_auth_hash())
        ):
            raise _ended()
        grant.user.acting = grant.api_token
        return grant.user, grant

    def authenticate_header(self, request: Request) -> str:
        return SCHEME


#: For views that a job may use, too.
WITH_JOBS = (JobToken, Bearer, Basic, Session, ServiceToken)
