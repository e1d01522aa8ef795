"""Keys that show that a request is an earlier one, sent again.

``Idempotency-Key`` (draft-ietf-httpapi-idempotency-key-header) holds a UUID of version 7, made when
the request is first sent. The id of the request and those of its records follow from it and from
the bytes of the body (docs/SPEC.md, section 2.2), so the schema's log itself shows whether the
request was stored: no table of answers can be lost, and any proxy with the keyring can check.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass

from encrypted_records import runtime
from encrypted_records.crypto.keys import UidKey
from encrypted_records.errors import BadInput, Conflict, Flaw, time_of
from encrypted_records.model import ids

HEADER = "Idempotency-Key"
#: Since a key's time is the records', it may not be far from the present: in seconds.
OLDEST, NEWEST = 86_400, 300
_HOW_TO_MAKE = "create a UUID of version 7 for each request; a repetition uses the same one"


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Identifies a request that is stored once: its key (16 bytes) and its body's SHA-256."""

    key: bytes
    digest: bytes

    @classmethod
    def of(cls, header: str | None, body: bytes) -> IdempotencyKey | None:
        """The key of a request with this header and body; None without the header.

        Raises:
            BadInput: ``invalid_idempotency_key``.
        """
        if header is None:
            return None
        try:
            key = uuid.UUID(header.strip().strip('"'))
        except ValueError:
            raise _invalid("it is not a UUID") from None
        if key.version != 7:
            raise _invalid("it is not a UUID of version 7")
        made, now = ids.milliseconds(key.bytes) / 1000, runtime.wall()
        if not -NEWEST < now - made < OLDEST:
            raise _invalid(
                f"it is {_clock(made)} by the clock that created it, and {_clock(now)}"
                " by this proxy's clock",
                hint="set both clocks, for instance by NTP, and send it with a new key",
            )
        return cls(key.bytes, hashlib.sha256(body).digest())

    def require_later(self, moment: int) -> None:
        """Check that the request was first sent after a moment, in milliseconds since 1970.

        Raises:
            Conflict: ``repeat_too_old``; by the clock that made its key it may have been before.
        """
        if ids.milliseconds(self.key) <= moment + NEWEST * 1000:
            raise Conflict(
                "it can no longer be determined whether this request was stored: all records"
                " were re-encrypted since",
                code="repeat_too_old",
                hint="check whether its records are stored; send the missing ones with a new key",
            )

    def request_id(self, key: UidKey) -> bytes:
        """The id by which the log recognises the request under its schema's key."""
        return self.record_id(key, 0)

    def record_id(self, key: UidKey, number: int) -> bytes:
        """The id of the request's record ``number``, counted from 1, under its schema's key."""
        return ids.at(self.key, key.of_request(self.key, self.digest, number))


def _clock(seconds: float) -> str:
    try:
        return time_of(seconds)
    except (ValueError, OverflowError):  # beyond the year 9999
        return "after the year 9999"


def _invalid(why: str, hint: str = _HOW_TO_MAKE) -> BadInput:
    return BadInput(
        f"{HEADER} cannot be used: {why}",
        code="invalid_idempotency_key",
        flaws=(Flaw("invalid", why, field=HEADER),),
        hint=hint,
    )
