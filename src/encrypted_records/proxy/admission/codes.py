"""Codes with which an enrolled device enrols another: typed by hand, used once, valid for minutes.

In memory alone: the end of the proxy ends them. A code is bound to a keyring, so that an API that
names another user can enrol nobody but the user it was made for.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from encrypted_records import runtime
from encrypted_records.errors import NotAllowed

#: Without I, L, O and U, which are read as something else (Crockford's base32).
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_READ_AS = str.maketrans("ILO", "110")
CHARACTERS = 8
LIFE_SECONDS = 600
MAX_TRIES = 5


@dataclass(slots=True)
class _Code:
    digest: bytes = field(repr=False)
    until: float
    wrong: int = 0


@dataclass(frozen=True, slots=True)
class NewCode:
    """``text`` is shown once, as ``ABCD-EFGH``."""

    text: str = field(repr=False)
    seconds: int


class Codes:
    """One code a keyring; a newer one ends the one before. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = runtime.monotonic) -> None:
        self._clock = clock
        self._codes: dict[bytes, _Code] = {}
        self._lock = threading.Lock()

    def make(self, user: bytes) -> NewCode:
        text = "".join(runtime.chance.choice(_ALPHABET) for _ in range(CHARACTERS))
        with self._lock:
            self._codes[user] = _Code(_digest(user, text), self._clock() + LIFE_SECONDS)
        return NewCode(f"{text[:4]}-{text[4:]}", LIFE_SECONDS)

    def use(self, user: bytes, typed: str) -> None:
        """Use up the code of the user's keyring.

        Raises:
            NotAllowed: ``code_wrong``; it is not that code, was used, is too old, or was tried too
                often.
        """
        text = typed.upper().translate(_READ_AS).replace("-", "").replace(" ", "")
        with self._lock:
            code = self._codes.get(user)
            if code is not None and code.until > self._clock():
                if hmac.compare_digest(code.digest, _digest(user, text)):
                    del self._codes[user]
                    return
                code.wrong += 1
                if code.wrong < MAX_TRIES:
                    raise _wrong()
            self._codes.pop(user, None)
        raise _wrong()


def _digest(user: bytes, text: str) -> bytes:
    return hashlib.sha256(user + text[: 4 * CHARACTERS].encode()).digest()


def _wrong() -> NotAllowed:
    return NotAllowed(
        "that is not the code, or not any more",
        code="code_wrong",
        hint=f"make one on a device that was taken in: ers device code, or the page /keyring/; it"
        f" is good for {math.ceil(LIFE_SECONDS / 60)} minutes, once, and {MAX_TRIES} tries",
    )
