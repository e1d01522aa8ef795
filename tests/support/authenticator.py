"""An authenticator app: codes of a key, none of them twice."""

from __future__ import annotations

import time

import pyotp

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
