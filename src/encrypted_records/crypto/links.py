"""The secret of a link to a question, and what is sealed under it (docs/SPEC.md, section 16.1).

Only the link contains the secret. A proxy that keeps the sealed question does not keep it.
"""

from __future__ import annotations

import base64
import re

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.secret import Cipher, Secret
from encrypted_records.errors import DoesNotOpen

_TEXT = re.compile(r"[A-Za-z0-9_-]{43}")
_VERSION = b"\x01"


class _LinkKey(Cipher):
    """Seals one question, once."""


class LinkSecret(Secret):
    """The part of a link behind ``#``."""

    @classmethod
    def generate(cls) -> LinkSecret:
        return cls(runtime.random_bytes(fmt.KEY_BYTES))

    @classmethod
    def read(cls, text: str) -> LinkSecret:
        """
        Raises:
            DoesNotOpen: it is not of a link.
        """
        if not _TEXT.fullmatch(text):
            raise DoesNotOpen("the secret of a link is not whole")
        return cls(base64.urlsafe_b64decode(f"{text}="))

    def text(self) -> str:
        """For the link: 43 characters. Anyone who calls this answers for where they go."""
        return base64.urlsafe_b64encode(self._secret).decode("ascii").rstrip("=")

    def seal(self, schema: bytes, link: bytes, plain: bytes) -> bytes:
        """A padded question, for the link ``link`` to the schema ``schema``."""
        nonce = runtime.random_bytes(fmt.NONCE_BYTES)
        return _VERSION + nonce + self._key(schema, link).encrypt(nonce, plain, _VERSION)

    def open(self, schema: bytes, link: bytes, sealed: bytes) -> bytes:
        """Undo :meth:`seal`.

        Raises:
            DoesNotOpen: altered, of another link or schema, or under another secret.
        """
        begin = len(_VERSION) + fmt.NONCE_BYTES
        if sealed[:1] != _VERSION:
            raise DoesNotOpen("a link is of a format this version does not know")
        return self._key(schema, link).decrypt(sealed[1:begin], sealed[begin:], _VERSION)

    def _key(self, schema: bytes, link: bytes) -> _LinkKey:
        return _LinkKey(self._derive(fmt.LINK, schema, link))
