"""API tokens: what a program shows in place of a person's login, with limits and an end.

A token is ``ersr1_<secret>``, which only reads, or ``ersw1_<secret>``, which reads and writes; the
secret is 32 random bytes in base64url without padding. What it may do is part of the string whose
SHA-256 the API keeps, so that a proxy sees it without believing anybody: nothing that an API says
makes a token write that was made to read.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from encrypted_records import runtime

SECRET_BYTES = 32
_FORM = re.compile(r"ers([rw])1_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class BearerToken:
    """``text`` is the token itself; it must not print.

    Attributes:
        writes: whether it may change anything.
    """

    writes: bool
    text: str = field(repr=False)

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the whole string, 32 bytes, which is all that is kept of it."""
        return hashlib.sha256(self.text.encode("ascii")).digest()


def generate(*, writes: bool) -> BearerToken:
    """A new token."""
    secret = runtime.random_text(SECRET_BYTES)
    return BearerToken(writes, f"ers{'w' if writes else 'r'}1_{secret}")


def parse(text: str) -> BearerToken | None:
    """The token ``text``; None if it is not one."""
    match = _FORM.fullmatch(text)
    return None if match is None else BearerToken(match[1] == "w", text)


def of_authorization(value: str) -> BearerToken | None:
    """The token in an Authorization value; None if it holds none."""
    scheme, _, text = value.strip().partition(" ")
    return parse(text.strip()) if scheme.lower() == "bearer" else None
