"""The position of a consumer in the change feed, as a text that the consumer keeps."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

import msgspec

from encrypted_records.errors import Flaw, Gone, InvalidQuery

#: Bytes of the log's digest in a cursor: enough that no other log has them by chance.
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """All commits up to ``version`` are done, and of the next one the first ``number`` rows: those
    that it ended, then those that it added.

    Attributes:
        digest: of the log at ``version``. Another log may have the same number of commits.
        left: positions of the rows that are still to be listed for a consumer that began with
            nothing.
    """

    version: int
    number: int
    digest: bytes
    left: range = range(0)

    def __str__(self) -> str:
        parts = [self.version, self.number, self.digest[:_DIGEST_BYTES]]
        if self.left:
            parts += [self.left.start, self.left.stop]
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(parts)).rstrip(b"=").decode()

    def is_of(self, digest: bytes | None) -> bool:
        """Whether a log with this digest at the cursor's version is the cursor's."""
        return digest is not None and digest[:_DIGEST_BYTES] == self.digest[:_DIGEST_BYTES]


class _Text(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    number: int
    digest: bytes
    first: int = 0
    end: int = 0


def parse_cursor(text: str) -> FeedCursor:
    """
    Raises:
        InvalidQuery: no answer had this cursor.
    """
    try:
        data = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        sent = msgspec.msgpack.decode(data, type=_Text)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise _unknown() from None
    numbers = (sent.version, sent.number, sent.first, sent.end)
    if len(sent.digest) != _DIGEST_BYTES or not all(0 <= number < 1 << 62 for number in numbers):
        raise _unknown()
    return FeedCursor(sent.version, sent.number, sent.digest, range(sent.first, sent.end))


def _unknown() -> InvalidQuery:
    detail = "expected the cursor of an earlier answer"
    return InvalidQuery(
        detail,
        hint="begin without a cursor: every record is listed then",
        flaws=(Flaw("cursor", detail, parameter="cursor"),),
    )


def start_again(why: str) -> Gone:
    """The error of a consumer that cannot continue from its cursor."""
    return Gone(
        f"the feed cannot continue from this cursor: {why}",
        code="start_again",
        hint="drop your copy and begin without a cursor: every record is listed, then changes",
    )
