"""Passwords and second factors of accounts, and the only place that checks them.

Login, token, Basic and a change of password all use this check, so that they share one lockout and
one throttle. A wrong password, an address without account and an account that was not verified cost
the same work and get the same answer. Passwords are hashed by :mod:`.hashing`.

A second factor is a code of an authenticator app, or a recovery code for when it is lost. A code is
the six digits of TOTP (RFC 6238, SHA-1, steps of 30 seconds), of the current step or a neighbour,
because clocks differ. Each step is accepted once (section 5.2 there), and each recovery code too.
The app's key is derived from ``secret.key`` and a random seed; the database has only the seed, so
that a copy of it cannot produce codes. Of recovery codes it has the SHA-256, as of all secrets that
are too long to be guessed (:func:`.logins.digest`).

Six digits can be guessed, so wrong codes are counted per account, from all sources (``codes`` in
``RATE_LIMITS``), besides the lockout that they share with wrong passwords. They are counted only
after the right password.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyotp
from django.contrib.auth import authenticate
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError as DjangoValidationError
from django.db import transaction
from django.http import HttpRequest
from django.utils.crypto import salted_hmac
from rest_framework import serializers

from encrypted_records.errors import Conflict, NotAuthenticated, time_of
from encrypted_records.model.resources import NewSecondFactor
from encrypted_records.model.texts import normalized
from encrypted_records.server.accounts import limits
from encrypted_records.server.accounts.logins import digest
from encrypted_records.server.accounts.models import RecoveryCode, SecondFactor, User

#: The most characters of an account's address, enforced by endpoints. Passwords for a longer
#: address, which a header may have, are not checked.
MAX_ADDRESS = 254


def check_new_password(password: str, user: User | None) -> None:
    try:
        validate_password(normalized("NFC", password), user=user)
    except DjangoValidationError as error:
        details = [serializers.ErrorDetail(e.messages[0], code=e.code) for e in error.error_list]
        raise serializers.ValidationError({"password": details}) from None


def check_password(request: HttpRequest, email: str, password: str, code: str = "") -> User:
    """Authenticate by e-mail address, password and, if the account has a second factor, its code.

    Raises:
        NotAuthenticated: no account has this address and password, or it is not verified yet, or
            deactivated; ``second_factor_required`` and ``wrong_code`` if the password is right.
        Throttled: too many wrong passwords for this address, or too many of any kind, came from
            this source; or too many wrong codes for the account.
    """
    limits.throttle("passwords")
    limits.refuse_locked(email)
    user = None
    if len(email) <= MAX_ADDRESS:
        for form in _forms_of(password):
            user = authenticate(request, username=email, password=form)
            if user is not None:
                break
    if user is None:
        limits.count_failure(email)
        raise NotAuthenticated(
            "e-mail address or password is wrong, or the account is not active",
            code="bad_credentials",
            hint="a new account works once its address is confirmed",
        )
    try:
        _demand_code(user, code)
    except NotAuthenticated:
        if code:
            limits.count_failure(email)
        raise
    limits.clear_failures(email)
    return user


def _forms_of(password: str) -> Iterable[str]:
    """The spellings of a password that an account's hash may be of: NFC, which is stored now, and
    spellings in which it may have been typed before passwords were normalized (RFC 8265, 4.2.2).

    All are tried even if there is no account, so that the cost is the same.
    """
    spelled = (normalized("NFC", password), password, normalized("NFD", password))
    return dict.fromkeys(spelled)


STEP_SECONDS = 30
RECOVERY_CODES = 10
_SEED_BYTES = 20
_ISSUER = "Encrypted Records Service"
#: Letters of recovery codes; none looks like another. Sixteen of these 32 are 80 bits.
_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_GROUPS, _GROUP = 4, 4


def begin_second_factor(user: User) -> NewSecondFactor:
    """Create a key for the user's app, which is active once :func:`confirm_second_factor` has
    accepted a code of it. It replaces an unconfirmed key.

    Raises:
        Conflict: ``second_factor_exists``.
    """
    seed = secrets.token_bytes(_SEED_BYTES)
    with transaction.atomic():
        _lock_account(user, has_factor=False)
        SecondFactor.objects.update_or_create(user=user, defaults={"seed": seed, "step": 0})
    totp = _totp(user, seed)
    return NewSecondFactor(totp.secret, totp.provisioning_uri(name=user.email, issuer_name=_ISSUER))


def confirm_second_factor(user: User, code: str) -> list[str]:
    """Activate the second factor that was begun.

    Returns:
        The recovery codes; only their digests are stored.

    Raises:
        NotAuthenticated: ``wrong_code``.
        Conflict: ``no_second_factor``; none was begun. ``second_factor_exists``; new recovery codes
            need the password too.
        Throttled: too many wrong codes.
    """
    if not user.has_second_factor:
        with _one_attempt(user):
            _take_code(user, code)
    with transaction.atomic():
        user = _lock_account(user, has_factor=False)
        user.has_second_factor = True
        user.save(update_fields=["has_second_factor"])
        return _new_recovery_codes(user)


def _demand_code(user: User, code: str) -> None:
    """Accept a code of the app, or a recovery code, if the account has a second factor.

    Raises:
        NotAuthenticated: ``second_factor_required``, if there is no code; ``wrong_code``.
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
            raise _wrong_code()


def give_code_back(user: User, code: str) -> None:
    """Let a code that :func:`check_password` has just accepted be used once more, because its
    change was refused."""
    if code.strip().isdigit():
        factors = SecondFactor.objects.filter(user=user)
        for step in (step for factor in factors for step in _steps_of(user, factor, code)):
            factors.filter(step=step).update(step=step - 1)  # unless a later code was used since
        return
    with transaction.atomic():
        locked = User.objects.select_for_update().get(pk=user.pk)
        # A full set was made since, and ended this code.
        if code and locked.has_second_factor and user.recovery_codes.count() < RECOVERY_CODES:
            RecoveryCode.objects.get_or_create(digest=_recovery_digest(code), user=user)


def renew_recovery_codes(user: User) -> list[str]:
    """Create new recovery codes; earlier codes become invalid.

    Raises:
        Conflict: ``no_second_factor``.
    """
    with transaction.atomic():
        return _new_recovery_codes(_lock_account(user, has_factor=True))


def remove_second_factor(user: User) -> None:
    """Remove the second factor, so that the password alone is sufficient.

    Raises:
        Conflict: ``no_second_factor``.
    """
    with transaction.atomic():
        user = _lock_account(user, has_factor=True)
        user.has_second_factor = False
        user.save(update_fields=["has_second_factor"])
        forget_second_factor(user)


def forget_second_factor(user: User) -> None:
    """Delete the key of the user's app, and the recovery codes."""
    SecondFactor.objects.filter(user=user).delete()
    user.recovery_codes.all().delete()


def _lock_account(user: User, *, has_factor: bool) -> User:
    """
    Raises:
        Conflict: ``second_factor_exists`` or ``no_second_factor``, if it is not as expected.
    """
    locked = User.objects.select_for_update().get(pk=user.pk)
    if locked.has_second_factor == has_factor:
        return locked
    if has_factor:
        raise _no_factor()
    raise Conflict(
        "the account has a second factor",
        code="second_factor_exists",
        hint="remove it first, with a code of the app or a recovery code",
    )


@contextmanager
def _one_attempt(user: User) -> Iterator[None]:
    # Count before checking, so that many concurrent attempts cannot all be checked.
    limits.count_attempt("codes", user.pk, "too many wrong codes for this account")
    yield
    limits.forget("codes", user.pk)


def _take_code(user: User, code: str) -> None:
    factor = SecondFactor.objects.filter(user=user).first()
    if factor is None:
        raise _no_factor()
    for step in _steps_of(user, factor, code):
        # A later step than any that is tried was stored by a clock that was ahead.
        used = (step, int(time.time()) // STEP_SECONDS + 1)
        unused = SecondFactor.objects.filter(user=user).exclude(step__range=used)
        if unused.update(step=step):
            return
    raise _wrong_code()


def _steps_of(user: User, factor: SecondFactor, code: str) -> Iterator[int]:
    """The steps around now whose code this is."""
    totp = _totp(user, bytes(factor.seed))
    shown = code.strip().encode("utf-8", "surrogatepass")
    now = int(time.time()) // STEP_SECONDS
    for step in (now - 1, now, now + 1):
        if hmac.compare_digest(totp.at(step * STEP_SECONDS).encode(), shown):
            yield step


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


def _wrong_code() -> NotAuthenticated:
    return NotAuthenticated(
        "the code is wrong, too old, or was used before",
        code="wrong_code",
        hint="wait for the app's next code, and compare the clock of its device with the API's,"
        f" which is at {time_of(time.time())}; or use a recovery code",
    )


def _no_factor() -> Conflict:
    return Conflict(
        "the account has no second factor",
        code="no_second_factor",
        hint="set up a second factor first",
    )
