"""Tokens of services: programs that have a standing in a roster, and no password.

A service's proxy derives its token from the string that its owner was shown; the string itself
never belongs here, and a caller who sends it is told that it is exposed. The database holds the
SHA-256 of the token. A token works from when it is made until it expires or the roster removes the
service; what it reaches, the roster says.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta

from django.utils import timezone
from rest_framework import authentication
from rest_framework.request import Request

from encrypted_records.errors import NotAuthenticated
from encrypted_records.model import service_key
from encrypted_records.server.accounts.models import User

#: Between two times that a service's use is noted.
NOTED_EVERY = timedelta(minutes=1)


def digest_of(token: bytes) -> bytes:
    """The digest that the database holds of a token of 32 bytes."""
    return hashlib.sha256(token).digest()


def refuse_key(*shown: str) -> None:
    """
    Raises:
        NotAuthenticated: ``service_key_exposed``; one of these begins as a service's string.
    """
    if any(text.lower().startswith(service_key.PREFIX) for text in shown):
        raise NotAuthenticated(
            "a service's string reached the API, where it never belongs",
            code="service_key_exposed",
            hint="delete the service, make another, and give its string to ers or a proxy alone",
        )


def has_expired(user: User) -> bool:
    """Whether a user is a service whose time is over."""
    service = getattr(user, "service", None)
    return service is not None and service.expires is not None and service.expires <= timezone.now()


class ServiceToken(authentication.BaseAuthentication):
    """``Authorization: Service <token>``."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        header = request.headers.get("Authorization", "")
        scheme, _, shown = header.partition(" ")
        if scheme.lower() != service_key.SCHEME.lower():
            return None
        refuse_key(shown.strip())
        token = service_key.token_of(header)
        user = None if token is None else _find(token)
        if user is None or not user.is_active or has_expired(user):
            raise NotAuthenticated(
                "the service's token is not valid, or no longer",
                code="bad_token",
                hint="an owner of the organization makes a new service",
            )
        _note_use(user)
        return user, None

    def authenticate_header(self, request: Request) -> str:
        return service_key.SCHEME


def _note_use(user: User) -> None:
    """At most once a minute: a service in a hurry must not write a row for each request."""
    service, now = user.service, timezone.now()
    if service.last_used is None or service.last_used <= now - NOTED_EVERY:
        service.last_used = now
        service.save(update_fields=["last_used"])


def _find(token: bytes) -> User | None:
    digest = digest_of(token)
    return User.objects.select_related("service").filter(service__digest=digest).first()
