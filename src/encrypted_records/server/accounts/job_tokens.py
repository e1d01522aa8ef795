"""Tokens for one job each: what a proxy goes on with when its user's credentials have expired.

A job outlives the request that began it, and the process. Its token lets the proxy store what
belongs to this job and nothing else, and read what that takes: the definition and the log of
schemas that its user reaches, and pages, all of them sealed. Only views that name
:class:`JobToken` among their authenticators know such tokens; every other one refuses them.

A token ends with its job, after a week, when the user's password changes, and when the account is
shut. The database holds its SHA-256 alone.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import timedelta

from django.utils import timezone
from rest_framework import authentication
from rest_framework.request import Request

from encrypted_records.errors import NotAuthenticated
from encrypted_records.server.accounts.authentication import Basic, Bearer, Session
from encrypted_records.server.accounts.models import JobGrant, User

LIFETIME = timedelta(days=7)
SCHEME = "Job"


def issue(user: User, job: bytes) -> str:
    """A new token for this job; an earlier one is void."""
    token = secrets.token_urlsafe(32)
    revoke(user, job)
    JobGrant.objects.filter(expires__lt=timezone.now()).delete()
    JobGrant.objects.create(
        digest=_digest(token),
        user=user,
        job=job,
        seal=user.get_session_auth_hash(),
        expires=timezone.now() + LIFETIME,
    )
    return token


def revoke(user: User, job: bytes) -> None:
    JobGrant.objects.filter(user=user, job=job).delete()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class JobToken(authentication.BaseAuthentication):
    """``Authorization: Job <token>``; the request's ``auth`` is then the :class:`JobGrant`."""

    def authenticate(self, request: Request) -> tuple[User, JobGrant] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != SCHEME.lower():
            return None
        grant = JobGrant.objects.select_related("user").filter(digest=_digest(token)).first()
        if (
            grant is None
            or grant.expires < timezone.now()
            or not grant.user.is_active
            or not hmac.compare_digest(grant.seal, grant.user.get_session_auth_hash())
        ):
            raise NotAuthenticated(
                "the job's token is not valid, or no longer",
                code="bad_token",
                hint="begin the job again; a change of password ends the jobs under way",
            )
        return grant.user, grant

    def authenticate_header(self, request: Request) -> str:
        return SCHEME


#: For views that a job may use, too.
WITH_JOBS = (JobToken, Bearer, Basic, Session)
