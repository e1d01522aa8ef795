"""Service strings: how a program proves itself to a proxy without a login.

``ers1_<id>_<key>``: the 22 characters of the service's id, and 32 bytes in base64url without
padding, from which its identity and its token at the API follow. The string stays on this side:
the API gets ``Authorization: Service <token>``, and refuses the string itself
(docs/SPEC.md, section 15.8).
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field

from encrypted_records.errors import Malformed
from encrypted_records.model import ids

#: The scheme of the Authorization header under which the API takes a service's token.
SCHEME = "Service"
PREFIX = "ers1_"
KEY_BYTES = 32
TOKEN_BYTES = 32
_FORM = re.compile(rf"{PREFIX}({ids.PATTERN})_([A-Za-z0-9_-]{{43}})")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """A service's id, 16 bytes, and its secret, 32 bytes, which must not print."""

    id: bytes
    secret: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The string itself. Anyone who reads this answers for where it goes."""
        return f"{PREFIX}{ids.to_text(self.id)}_{_base64url(self.secret)}"


def parse(text: str) -> ServiceKey:
    """The service string ``text``.

    Raises:
        Malformed: it is not one; the message does not repeat it.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise _not_one()
    secret = base64.urlsafe_b64decode(match[2] + "=")
    if _base64url(secret) != match[2]:
        # The last character has two bits that say nothing; one string has one spelling.
        raise _not_one()
    return ServiceKey(ids.from_text(match[1]), secret)


def looks_like_one(text: str) -> bool:
    """Whether a credential begins as a service string does, whole or cut short: the API must not
    use it, and must say that it was exposed."""
    return text.strip().lower().startswith(PREFIX)


def authorization(token: bytes) -> str:
    """The Authorization value for the API, of a token of 32 bytes."""
    return f"{SCHEME} {_base64url(token)}"


def token_of(authorization: str) -> bytes | None:
    """Undo :func:`authorization`; None for anything else."""
    scheme, _, text = authorization.strip().partition(" ")
    if scheme.lower() != SCHEME.lower() or not _TOKEN.fullmatch(text):
        return None
    token = base64.urlsafe_b64decode(text + "=")
    return token if _base64url(token) == text else None


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _not_one() -> Malformed:
    return Malformed(
        "this is not a service's secret key",
        code="malformed_id",
        hint=(
            "copy it completely: it begins with ers1_ and was shown once, when the service"
            " was created"
        ),
    )
