"""A second factor of logins: codes of an authenticator app, and recovery codes for when it is lost.

A code is the six digits of TOTP (RFC 6238, SHA-1, steps of 30 seconds), from the step of now or a
neighbour of it, since clocks differ. A step is taken once (section 5.2 there), and a recovery code
too. The app's key follows from ``secret.key`` and a random seed, and the database has the seed
alone, so that a copy of it makes no codes; of recovery codes it has the SHA-256, like of all
secrets that are too long to be guessed (:mod:`.digests`).

Six digits can be guessed, so wrong codes are counted per account wherever they come from
(``codes`` in ``RATE_LIMITS``), besides the lockout that they share with wrong passwords. Only who
has the password comes so far as to be counted.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyotp
from django.db import transaction
from django.utils.crypto import salted_hmac

from encrypted_records.errors import Conflict, NotAuthenticated
from encrypted_records.server.accounts import limits
from encrypted_records.server.accounts.digests import digest
from encrypted_records.server.accounts.models import RecoveryCode, SecondFactor, User

STEP_SECONDS = 30
RECOVERY_CODES = 10
_SEED_BYTES = 20
_ISSUER = "Encrypted Records Service"
#: Letters of recovery codes: none that is read as another. Sixteen of these 32 are 80 bits.
_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_GROUPS, _GROUP = 4, 4


@dataclass(frozen=True)
class NewFactor:
    """The secret of an authenticator app: the key in Base32, and the same key as an ``otpauth://``
    link for a QR code. Printing the object shows neither.
    """

    key: str
    uri: str

    def __repr__(self) -> str:
        return "<new factor>"


def begin(user: User) -> NewFactor:
    """A key for the user's app, which counts once :func:`confirm` has seen a code of it; one that
    was begun before is replaced.

    Raises:
        Conflict: ``second_factor_exists``.
    """
    seed = secrets.token_bytes(_SEED_BYTES)
    with transaction.atomic():
        if _locked(user).has_second_factor:
            raise Conflict(
                "the account has a second factor",
                code="second_factor_exists",
                hint="remove it first, with a code of the app or a recovery code",
            )
        SecondFactor.objects.update_or_create(user=user, defaults={"seed": seed, "step": 0})
    totp = _totp(user, seed)
    return NewFactor(totp.secret, totp.provisioning_uri(name=user.email, issuer_name=_ISSUER))


def confirm(user: User, code: str) -> list[str]:
    """Activate the second factor that was begun.

    Returns:
        The recovery codes, of which nothing but digests is kept.

    Raises:
        NotAuthenticated: ``wrong_code``.
        Conflict: ``no_second_factor``; none was begun.
        Throttled: too many wrong codes.
    """
    with _one_attempt(user):
        _take_code(user, code)
    with transaction.atomic():
        user = _locked(user)
        user.has_second_factor = True
        user.save(update_fields=["has_second_factor"])
        return _new_recovery_codes(user)


def demand(user: User, code: str) -> None:
    """Take a code of the app, or a recovery code, where the account has a second factor.

    Raises:
        NotAuthenticated: ``second_factor_required``, where there is no code; ``wrong_code``.
        Throttled: too many wrong codes.
    """
    if not user.has_second_factor:
        return
    if not code:
        raise NotAuthenticated(
            "the account has a second factor, and its code is missing",
            code="second_factor_required",
            hint='send it in the member "code"; programs use an API token instead of a password',
        )
    with _one_attempt(user):
        if code.strip().isdigit():
            _take_code(user, code)
        elif not user.recovery_codes.filter(pk=_recovery_digest(code)).delete()[0]:
            raise _wrong()


def renew_recovery_codes(user: User) -> list[str]:
    """New recovery codes; those before are worth nothing.

    Raises:
        Conflict: ``no_second_factor``.
    """
    with transaction.atomic():
        user = _locked(user)
        if not user.has_second_factor:
            raise _none()
        return _new_recovery_codes(user)


def remove(user: User) -> None:
    """Remove the second factor, so that the password alone is sufficient.

    Raises:
        Conflict: ``no_second_factor``.
    """
    with transaction.atomic():
        user = _locked(user)
        if not user.has_second_factor:
            raise _none()
        user.has_second_factor = False
        user.save(update_fields=["has_second_factor"])
        forget(user)


def forget(user: User) -> None:
    """Delete the key of the user's app, and the recovery codes."""
    SecondFactor.objects.filter(user=user).delete()
    user.recovery_codes.all().delete()


def _locked(user: User) -> User:
    return User.objects.select_for_update().get(pk=user.pk)


@contextmanager
def _one_attempt(user: User) -> Iterator[None]:
    # Counted before it is judged, so that many at once are not all judged.
    limits.count_attempt("codes", user.pk, "too many wrong codes for this account")
    yield
    limits.forget("codes", user.pk)


def _take_code(user: User, code: str) -> None:
    factor = SecondFactor.objects.filter(user=user).first()
    if factor is None:
        raise _none()
    totp = _totp(user, bytes(factor.seed))
    shown = code.strip().encode("utf-8", "surrogatepass")
    now = int(time.time()) // STEP_SECONDS
    for step in (now - 1, now, now + 1):
        if hmac.compare_digest(totp.at(step * STEP_SECONDS).encode(), shown):
            later = SecondFactor.objects.filter(user=user, step__lt=step)
            if later.update(step=step):
                return
    raise _wrong()


def _totp(user: User, seed: bytes) -> pyotp.TOTP:
    text = f"{user.pk}:{seed.hex()}"
    mac = salted_hmac("encrypted_records.second_factor", text, algorithm="sha256")
    key = mac.digest()[:20]  # as many bytes as RFC 4226 recommends (section 4, R6)
    return pyotp.TOTP(base64.b32encode(key).decode(), interval=STEP_SECONDS)


def _new_recovery_codes(user: User) -> list[str]:
    codes = [_recovery_code() for _ in range(RECOVERY_CODES)]
    user.recovery_codes.all().delete()
    RecoveryCode.objects.bulk_create(
        RecoveryCode(digest=_recovery_digest(code), user=user) for code in codes
    )
    return codes


def _recovery_code() -> str:
    return "-".join(
        "".join(secrets.choice(_LETTERS) for _ in range(_GROUP)) for _ in range(_GROUPS)
    )


def _recovery_digest(code: str) -> bytes:
    return digest("".join(letter for letter in code.lower() if letter in _LETTERS))


def _wrong() -> NotAuthenticated:
    return NotAuthenticated(
        "the code is wrong, too old, or was used before",
        code="wrong_code",
        hint="wait for the app's next code and check the clock of its device, or use a recovery"
        " code",
    )


def _none() -> Conflict:
    return Conflict(
        "the account has no second factor",
        code="no_second_factor",
        hint="set up a second factor first",
    )
