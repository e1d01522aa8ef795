"""API tokens: create, find, and check their limits.

A token acts for its user, within its limits: it reads, or reads and writes, and reaches all of its
user's datasets, or only the named ones. The request's user carries the limits
(:attr:`User.acting`), so that :mod:`~encrypted_records.server.permissions` returns only resources
that the token reaches.

Views state what tokens may do, by method (:class:`Use`); a view that states nothing refuses tokens.
So no token can change a password, create a token, invite a user or end a login.

A token ends when it is revoked, when it expires, when its user's password changes, and when the
account is deactivated. Jobs that it began end with it, except when it expires. Each request looks
it up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from django.db import transaction
from django.utils import timezone
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from encrypted_records.errors import Conflict, NotAllowed, NotAuthenticated
from encrypted_records.model import credentials
from encrypted_records.server.accounts.models import ApiToken, User
from encrypted_records.server.gateway.admission import SENDER

if TYPE_CHECKING:  # the library imports this module while it defines APIView
    from rest_framework.views import APIView

    from encrypted_records.server.datasets.models import Dataset

#: The most tokens of a user, including expired tokens.
MOST = 100


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


def create(
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
        if user.api_tokens.count() >= MOST:
            raise Conflict(
                f"an account has at most {MOST} API tokens",
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


def find(text: str) -> ApiToken | None:
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
        raise limited("an API token cannot do this", "log in, and do this as yourself")
    if use in (Use.WRITE, Use.WRITE_ALL) and not token.writes:
        raise limited("this API token is read-only", "create one with --scope write, or log in")
    if use in (Use.READ_ALL, Use.WRITE_ALL) and token.limited:
        raise of_organization()


def of_organization() -> NotAllowed:
    """The error for a token that is limited to datasets, in a request that needs more."""
    return limited(
        "this API token is limited to some datasets, and this request concerns the organization",
        "create one without --dataset, or log in",
    )


def limited(message: str, hint: str) -> NotAllowed:
    return NotAllowed(message, code="token_limited", hint=hint)
