"""Holds: keep the data that a long read of one version of a log needs."""

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
from encrypted_records.server.records.models import AskedErasure, CommitLog, Hold

#: No hold counts longer, however often it is renewed; nor does any for longer after its version was
#: replaced, so that one hold after the other, by whomever, keeps no dead row for longer.
LONGEST = timedelta(days=1)
#: Of one schema that count at the same time, and of these of one user.
MOST = 100
MOST_OF_USER = 10
#: What somebody may read for.
REASONS = ("export", "job", "backup", "reading")


@dataclass(frozen=True)
class HoldSummary:
    """A hold as others see it."""

    version: int
    reason: str
    email: str
    begun: datetime
    until: datetime


def keep(user: User, schema: Schema, uid: uuid.UUID, version: int, reason: str) -> Hold:
    """Begin or renew a hold.

    Raises:
        BadInput: there is no such version, or reason.
        Conflict: ``hold_over``; the hold belongs to another user or another version, has lasted a
            day, or was not renewed in time; the version was replaced a day ago; or the hold is new,
            and erasure of its data was requested.
        TooLarge: the schema has too many holds of this user, or of all users.
    """
    if not 0 <= version <= schema.version:
        raise _invalid("version", "expected a version of the schema's log")
    if reason not in REASONS:
        raise _invalid("reason", f"expected one of {', '.join(REASONS)}")
    now = timezone.now()
    with transaction.atomic():
        own = Hold.objects.select_for_update().filter(schema=schema, uid=uid).first()
        if _is_long_gone(schema, version, now):
            raise _over("the version was replaced more than a day ago")
        if own is None:
            if AskedErasure.objects.filter(schema=schema, up_to__gt=version).exists():
                raise _over("an erasure was requested that removes what this version needs")
            counting = Hold.objects.filter(schema=schema, renewed__gt=now - store.HELD_FOR)
            if counting.count() >= MOST:
                raise TooLarge(f"more than {MOST} hold versions of this schema")
            if counting.filter(user=user).count() >= MOST_OF_USER:
                raise TooLarge(f"more than {MOST_OF_USER} holds of this schema are yours")
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
            raise _over("the hold has ended, or is a different one")
        own.renewed = now
        own.save(update_fields=["renewed"])
        return own


def end(user: User, schema: Schema, uid: uuid.UUID) -> None:
    """End a hold of one's own; one that is not there is no mistake."""
    Hold.objects.filter(schema=schema, uid=uid, user=user).delete()


def list_active(schema: Schema) -> list[HoldSummary]:
    """The holds of a schema that count, the oldest first."""
    now = timezone.now()
    counting = Hold.objects.filter(
        schema=schema, renewed__gt=now - store.HELD_FOR, begun__gt=now - LONGEST
    )
    return [
        HoldSummary(
            hold.version,
            hold.reason,
            hold.user.email,
            hold.begun,
            min(hold.renewed + store.HELD_FOR, hold.begun + LONGEST),
        )
        for hold in counting.select_related("user").order_by("begun")
    ]


def _is_long_gone(schema: Schema, version: int, now: datetime) -> bool:
    """Whether the next version has existed for so long that no reader still uses this one."""
    following = CommitLog.objects.filter(schema=schema, version=version + 1)
    return following.filter(created__lte=now - LONGEST).exists()


def _over(detail: str) -> Conflict:
    return Conflict(detail, code="hold_over", hint="begin again with a hold of the current version")


def _invalid(member: str, detail: str) -> BadInput:
    return BadInput(detail, flaws=(Flaw("invalid_value", detail, pointer=f"/{member}"),))
