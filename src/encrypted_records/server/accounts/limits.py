"""Limits of attempts: lockout after wrong passwords, and throttles.

Counts are in the database, so that all processes of all APIs on it share them. The key of a count
is an HMAC, so the table does not reveal which addresses, or passwords typed in their place, were
tried.

Wrong passwords count per address and source, whether the address has an account or not. From the
tenth on, each doubles the time until the next is checked. Nothing else is locked out: neither the
same address from other sources, nor any session, token or cached Basic credential.
"""

from __future__ import annotations

import math
import unicodedata
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from encrypted_records.errors import Throttled
from encrypted_records.model.texts import normalized
from encrypted_records.server.accounts.models import Tally
from encrypted_records.server.http.middleware import source

FREE_FAILURES = 10
FIRST_DELAY = timedelta(seconds=5)
LONGEST_DELAY = timedelta(hours=1)
#: Wrong passwords are forgotten this long after the last one.
FORGET = timedelta(days=1)
#: Clocks of several APIs on a database differ by less than this.
_CLOCKS_DIFFER = timedelta(hours=1)


def refuse_locked(email: str) -> None:
    """
    Raises:
        Throttled: too many wrong passwords for this address came from this source.
    """
    tally = Tally.objects.filter(pk=_failures(email)).first()
    if tally is not None and tally.until is not None and not _is_over(tally, FORGET):
        _refuse_until(tally.until, "too many wrong passwords for this address", "too_many_failures")


def count_failure(email: str) -> None:
    now = timezone.now()
    with transaction.atomic():
        tally = _lock_tally(_failures(email), FORGET)
        tally.count += 1
        tally.forgotten = now + FORGET
        beyond = tally.count - FREE_FAILURES
        if beyond >= 0:
            tally.until = now + min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(beyond, 20))
        tally.save()


def clear_failures(email: str) -> None:
    Tally.objects.filter(pk=_failures(email)).delete()


def throttle(name: str) -> None:
    """Count one request of a source towards the limit called ``name`` in ``RATE_LIMITS``.

    Raises:
        Throttled: the limit is reached.
    """
    until = count_towards(name, source.get())
    if until is not None:
        _refuse_until(until, "too many such requests came from your address", "throttled")


def throttle_account(name: str, user_id: str) -> None:
    """Count a request of an account from any source; see :func:`throttle`."""
    until = count_towards(name, user_id)
    if until is not None:
        _refuse_until(until, "too many requests of this kind came from this account", "throttled")


def count_attempt(name: str, whose: str, message: str) -> None:
    """Count an attempt towards the limit called ``name``, until :func:`forget`.

    Raises:
        Throttled: ``too_many_failures``; the limit is reached.
    """
    until = count_towards(name, whose)
    if until is not None:
        _refuse_until(until, message, "too_many_failures")


def forget(name: str, whose: str) -> None:
    Tally.objects.filter(pk=_name(name, whose)).delete()


def count_towards(name: str, whose: str) -> datetime | None:
    """Count one towards a limit; if the limit is already reached, returns until when."""
    limit, window = settings.RATE_LIMITS[name]
    with transaction.atomic():
        tally = _lock_tally(_name(name, whose), window)
        if tally.count >= limit:
            return tally.until
        if tally.count == 0:
            tally.until = tally.forgotten = timezone.now() + window
        tally.count += 1
        tally.save()
    return None


def drop_forgotten() -> None:
    Tally.objects.filter(forgotten__lte=timezone.now()).delete()


def _failures(email: str) -> bytes:
    # Spellings that a database may treat as the same address must share a count.
    plain = normalized("NFKD", email)
    letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return _name("failures", letters.casefold(), source.get())


def _name(name: str, *parts: str) -> bytes:
    text = "\0".join((name, *parts))
    return salted_hmac("encrypted_records.limits", text, algorithm="sha256").digest()


def _is_over(tally: Tally, lasts: timedelta) -> bool:
    """Whether the tally has expired, or was counted by a clock that was ahead."""
    now = timezone.now()
    return not now < tally.forgotten <= now + lasts + _CLOCKS_DIFFER


def _lock_tally(name: bytes, lasts: timedelta) -> Tally:
    """The tally with this name, locked; zero if it is new or has expired."""
    now = timezone.now()
    tally, made = Tally.objects.select_for_update().get_or_create(
        pk=name, defaults={"forgotten": now}
    )
    if made:
        # Each new tally also deletes some expired tallies.
        old = Tally.objects.select_for_update(skip_locked=True).filter(forgotten__lt=now)
        Tally.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:100])).delete()
    elif _is_over(tally, lasts):
        tally.count, tally.until = 0, None
    return tally


def _refuse_until(until: datetime, message: str, code: str) -> None:
    left = (until - timezone.now()).total_seconds()
    if left > 0:
        raise Throttled(message, code=code, retry_after=math.ceil(left))
