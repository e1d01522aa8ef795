"""The charsets that a sender may declare, by their registered names and others in use. Pure."""

from __future__ import annotations

import re
from enum import Enum

from encrypted_records.errors import Unsupported


class Charset(Enum):
    """A charset other than UTF-8. The value is its usual name.

    ``UTF_16`` says nothing of the order of bytes: the file's first two do.
    """

    ASCII = "US-ASCII"
    LATIN_1 = "ISO-8859-1"
    LATIN_9 = "ISO-8859-15"
    WINDOWS_1252 = "Windows-1252"
    UTF_16 = "UTF-16"
    UTF_16LE = "UTF-16LE"
    UTF_16BE = "UTF-16BE"


_NAMES: dict[str, Charset | None] = {
    **{charset.value.lower(): charset for charset in Charset},
    "utf-8": None,
    "utf8": None,
    "ascii": Charset.ASCII,
    "latin1": Charset.LATIN_1,
    "latin-1": Charset.LATIN_1,
    "iso8859-1": Charset.LATIN_1,
    "iso_8859-1": Charset.LATIN_1,
    "l1": Charset.LATIN_1,
    "latin9": Charset.LATIN_9,
    "latin-9": Charset.LATIN_9,
    "cp1252": Charset.WINDOWS_1252,
    "x-cp1252": Charset.WINDOWS_1252,
    "utf16": Charset.UTF_16,
}
#: What an error says to send.
_KNOWN = ", ".join(["UTF-8", *(charset.value for charset in Charset)])
_PARAMETER = re.compile(r';\s*charset\s*=\s*(?:"([^"]*)"|([^\s;]*))', re.IGNORECASE)


def charset_named(name: str) -> Charset | None:
    """The charset of that name; None is UTF-8.

    Raises:
        Unsupported: ``unsupported_charset``: none of these.
    """
    known = name.strip().lower()
    if known not in _NAMES:
        raise Unsupported(
            "the declared charset is not supported",
            code="unsupported_charset",
            hint=f"send CSV in one of {_KNOWN}, and JSON in UTF-8",
        )
    return _NAMES[known]


def charset_of(content_type: str) -> Charset | None:
    """The charset that a Content-Type declares; None is UTF-8, and also where it declares none.

    Raises:
        Unsupported: as :func:`charset_named`.
    """
    declared = [quoted or bare for quoted, bare in _PARAMETER.findall(content_type)]
    charsets = {charset_named(name) for name in declared}
    if len(charsets) > 1:
        charset_named("two at once")
    return charsets.pop() if charsets else None


def require_utf8(charset: Charset | None) -> None:
    """JSON is UTF-8 (RFC 8259, section 8.1), of which ASCII is a part.

    Raises:
        Unsupported: ``unsupported_charset``: it is declared to be in another charset.
    """
    if charset not in (None, Charset.ASCII):
        raise Unsupported(
            "JSON must be in UTF-8",
            code="unsupported_charset",
            hint="convert it to UTF-8, and leave out charset= in Content-Type",
        )
