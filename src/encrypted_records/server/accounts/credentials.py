"""The one place where a password is checked against an account's.

Login, token, Basic and a change of password all come here, so one lockout and one throttle cover
them. A wrong password, an address without account and an account that was not verified cost the
same work and get the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth import authenticate
from django.http import HttpRequest

from encrypted_records.errors import NotAuthenticated
from encrypted_records.model.texts import normalized
from encrypted_records.server.accounts import limits, second_factor
from encrypted_records.server.accounts.models import User

#: What no account's address is longer than, in characters. Endpoints say so; a header may hold
#: anything, and no password is looked at for a longer one.
MAX_ADDRESS = 254


def check(request: HttpRequest, email: str, password: str, code: str = "") -> User:
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
        second_factor.demand(user, code)
    except NotAuthenticated:
        if code:
            limits.count_failure(email)
        raise
    limits.clear_failures(email)
    return user


def _forms_of(password: str) -> Iterable[str]:
    """The spellings of a password that an account's hash may be of: NFC, which is stored now, and
    those in which it may have been typed before passwords were normalized (RFC 8265, 4.2.2).

    All of them are tried where there is no account either, so that it costs the same.
    """
    spelled = (normalized("NFC", password), password, normalized("NFD", password))
    return dict.fromkeys(spelled)
