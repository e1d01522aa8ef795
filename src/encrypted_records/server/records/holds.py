"""Keep what somebody needs who reads one version of a log for long."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from encrypted_records.errors import BadInput, Conflict, Flaw, TooLarge
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.records import store
from encrypted_records.server.records.models import Hold

#: No hold counts longer, however often it is renewed.
LONGEST = timedelta(days=1)
#: Of one schema that count at the same time.
MOST = 100
#: What somebody may read for.
REASONS = ("export", "job", "backup", "reading")


@dataclass(frozen=True)
class Held:
    """A hold as others see it."""

    version: int
    reason: str
    email: str
    begun: datetime
    until: datetime


def keep(user: User, schema: Schema, uid: uuid.UUID, version: int, reason: str) -> Hold:
    """Begin a hold, or renew it.

    Raises:
        BadInput: there is no such version, or reason.
        Conflict: ``hold_over``; it is somebody else's, of another version, or has lasted a day.
        TooLarge: too many count already.
    """
    if not 0 <= version <= schema.version:
        raise _invalid("version", "expected a version of the schema's log")
    if reason not in REASONS:
        raise _invalid("reason", f"expected one of {', '.join(REASONS)}")
    now = timezone.now()
    with transaction.atomic():
        own = Hold.objects.select_for_update().filter(schema=schema, uid=uid).first()
        if own is None:
            counting = Hold.objects.filter(schema=schema, renewed__gt=now - store.HELD_FOR)
            if counting.count() >= MOST:
                raise TooLarge(f"more than {MOST} hold versions of this schema")
            Hold.objects.filter(schema=schema, renewed__lte=now - LONGEST).delete()
            return Hold.objects.create(
                schema=schema,
                uid=uid,
                user=user,
                version=version,
                reason=reason,
                begun=now,
                renewed=now,
            )
        lasted = own.begun <= now - LONGEST or own.renewed <= now - store.HELD_FOR
        if own.user_id != user.pk or own.version != version or lasted:
            raise Conflict(
                "the hold is over, or is another one",
                code="hold_over",
                hint="begin again with a hold of the present version",
            )
        own.renewed = now
        own.save(update_fields=["renewed"])
        return own


def end(user: User, schema: Schema, uid: uuid.UUID) -> None:
    """End a hold of one's own; one that is not there is no mistake."""
    Hold.objects.filter(schema=schema, uid=uid, user=user).delete()


def list_active(schema: Schema) -> list[Held]:
    """The holds of a schema that count, the oldest first."""
    now = timezone.now()
    counting = Hold.objects.filter(
        schema=schema, renewed__gt=now - store.HELD_FOR, begun__gt=now - LONGEST
    )
    return [
        Held(
            one.version,
            one.reason,
            one.user.email,
            one.begun,
            min(one.renewed + store.HELD_FOR, one.begun + LONGEST),
        )
        for one in counting.select_related("user").order_by("begun")
    ]


def _invalid(member: str, detail: str) -> BadInput:
    return BadInput(detail, flaws=(Flaw("invalid_value", detail, pointer=f"/{member}"),))
