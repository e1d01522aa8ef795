"""A sender's note on a file: its name, when it was changed, and a digest of its ends. Pure.

It is plaintext of the user, so it is kept sealed in this proxy and goes nowhere else. By it an
upload is known again that was stored before.
"""

from __future__ import annotations

import re

import msgspec

_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOMENT = re.compile(r"[0-9]{1,16}")
MAX_NAME = 400
#: How much of either end of a file is digested.
END_BYTES = 64 << 10


class FileNote(msgspec.Struct, frozen=True, array_like=True):
    """``changed`` is in milliseconds since 1970. ``ends`` is SHA-256, in hexadecimal, of the first
    and the last 64 KiB of the file, one after the other."""

    name: str = ""
    changed: int | None = None
    ends: str | None = None

    def __repr__(self) -> str:
        return "<FileNote>"

    @classmethod
    def of_texts(cls, name: str | None, changed: str | None, ends: str | None) -> FileNote:
        """From the texts of a request; one that is not in form counts as not said."""
        return cls(
            (name or "")[:MAX_NAME],
            int(changed) if changed and _MOMENT.fullmatch(changed) else None,
            ends if ends and _DIGEST.fullmatch(ends) else None,
        )

    def is_same(self, other: FileNote) -> bool:
        """Whether this is, as far as can be told, the file that ``other`` is of, whose size is the
        same."""
        if self.ends and other.ends:
            return self.ends == other.ends
        if None not in (self.changed, other.changed) and self.changed != other.changed:
            return False
        return bool(self.name) and self.name == other.name


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(FileNote).decode
