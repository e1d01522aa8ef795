"""An authenticator app: codes of a key, none of them twice."""

from __future__ import annotations

import time

import pyotp

from tests.support.service import Account, Service, call

_STEP = 30


class Authenticator:
    """Gives three codes at once, since the API takes those of the half minutes around its own."""

    def __init__(self, key: str) -> None:
        self._totp = pyotp.TOTP(key)
        self._last = 0

    def code(self) -> str:
        now = int(time.time()) // _STEP
        self._last = max(self._last + 1, now - 1)
        assert self._last <= now + 1, "the API would not take this code yet"
        return self._totp.at(self._last * _STEP)

    def stale(self) -> str:
        """A code of an hour ago, which is none that :meth:`code` gives."""
        return self._totp.at(int(time.time()) - 3600)


def with_second_factor(service: Service, account: Account) -> Authenticator:
    """Give the account a second factor."""
    given = {"email": account.email, "password": account.password}
    token = call("POST", f"{service.base_url}/api/token/", given).json()["access"]
    url, bearer = f"{service.base_url}/api/accounts/second-factor/", f"Bearer {token}"
    made = call("POST", url, {"password": account.password}, auth=bearer)
    app = Authenticator(made.json()["key"])
    assert call("POST", f"{url}confirm/", {"code": app.code()}, auth=bearer).status == 200
    return app
