"""API tokens: begin, find, end; and what may be asked with one.

A token acts for its user, within its limits: it reads, or reads and writes, and reaches all of its
user's datasets, or those that were named. The limits travel with the user of the request
(:attr:`User.acting`), so that :mod:`~encrypted_records.server.permissions`, asked what a user
reaches, says what the token reaches.

Views say what tokens may ask of them, by method (:class:`Use`); a view that says nothing refuses
them. So no token changes a password, makes a token, invites anybody or ends a login.

A token ends when it is revoked, on its day, when its user's password changes, and when the account
is shut; jobs that it began end with it, except on its day. It is looked up for each request.
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

if TYPE_CHECKING:  # the library imports this module while it makes APIView
    from rest_framework.views import APIView

    from encrypted_records.server.datasets.models import Dataset

#: Tokens of one user, those that have expired too.
MOST = 100


class Use(Enum):
    """The kind of an operation of the API, by which a token may ask for it or not."""

    #: it changes nothing, and shows what the token's datasets hold
    READ = auto()
    #: it changes nothing, and shows what belongs to a whole organization
    READ_ALL = auto()
    #: it changes what the token's datasets hold
    WRITE = auto()
    #: it changes what belongs to a whole organization
    WRITE_ALL = auto()


def _uses(**uses: Use) -> Mapping[str, Use]:
    return MappingProxyType(uses)


#: What views allow tokens, by method.
READS = _uses(GET=Use.READ)
#: Of a view that takes, from tokens that write, what a first record needs.
READS_AND_ADDS = _uses(GET=Use.READ, POST=Use.WRITE)
READS_ALL = _uses(GET=Use.READ_ALL)
#: Of views that are asked what to read by a body.
READS_BY_BODY = _uses(POST=Use.READ)
WRITES = _uses(POST=Use.WRITE, DELETE=Use.WRITE)
CHANGES = _uses(GET=Use.READ, POST=Use.WRITE, PUT=Use.WRITE, PATCH=Use.WRITE, DELETE=Use.WRITE)
#: Of what is made beside datasets: new ones.
CHANGES_ALL = MappingProxyType({**CHANGES, "POST": Use.WRITE_ALL})


def create(
    user: User, name: str, *, writes: bool, datasets: Sequence[Dataset] | None, lifetime: timedelta
) -> tuple[ApiToken, str]:
    """A new token and its text, which is kept nowhere.

    Args:
        datasets: what it is limited to; all that its user reaches where None.

    Raises:
        Conflict: ``too_many_tokens``.
        NotAuthenticated: the password was changed, or the account shut, at this moment.
    """
    made = credentials.generate_api_token(writes=writes)
    with transaction.atomic():
        # As a login begins: either a change of password sees this token, or this sees that change.
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
    """The token of that text with its user, while it may be used; this is noted, by the day.

    Raises:
        NotAuthenticated: it has the form of a token, and may not be used.
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
    """Refuses a request that came with a token, or from a job that one began, beyond its limits."""

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
    """Check that a user's token, where one was shown, may be used so; the server is told in
    ``environ`` who sent the request.

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
    """The error of a token that asks for more than its datasets."""
    return limited(
        "this API token is limited to some datasets, and this request concerns the organization",
        "create one without --dataset, or log in",
    )


def limited(message: str, hint: str) -> NotAllowed:
    return NotAllowed(message, code="token_limited", hint=hint)
