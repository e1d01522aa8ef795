"""Device secrets: what a client shows to a proxy, and no API ever sees.

A secret is ``ersd1_<id>_<key>``: 8 letters and digits that name the device, and 32 random bytes in
base64url without padding. A proxy keeps the id and the SHA-256 of the whole string. The door of a
proxy is a secret of the same form whose id is :data:`DOOR`; it proves the user of the operating
system who runs the proxy (docs/SPEC.md, section 13).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field

from encrypted_records import runtime

#: Headers between clients and proxies. None of them is ever forwarded.
DEVICE_HEADER = "X-ERS-Device"
DOOR_HEADER = "X-ERS-Door"
CHALLENGE_HEADER = "X-ERS-Challenge"
ANSWER_HEADER = "X-ERS-Answer"
INLINE_HEADER = "X-ERS-Inline"

#: The id in the secret of every proxy's door; no device is ever given it.
DOOR = "thedoor0"
KEY_BYTES = 32
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_FORM = re.compile(r"ersd1_([A-Za-z0-9]{8})_[A-Za-z0-9_-]{43}")
_WITHOUT_SECRET = re.compile(rb"([^:]*:.*):" + _FORM.pattern.encode(), re.DOTALL)
#: Text that begins as a secret does, of any length.
_LIKE = re.compile(rb"ersd1_", re.IGNORECASE)
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")
#: Characters of the page path that follows from a secret: 80 bits in base32.
PAGE_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class DeviceSecret:
    """``text`` is the secret itself; it must not print."""

    id: str
    text: str = field(repr=False)

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the whole string, 32 bytes, which a proxy keeps of it."""
        return hashlib.sha256(self.text.encode("ascii")).digest()

    @property
    def page(self) -> str:
        """The part of a page's address that follows from this secret: 16 letters and digits."""
        digest = hashlib.sha256(b"page" + self.text.encode("ascii")).digest()[:10]
        return base64.b32encode(digest).decode("ascii").lower()


def generate(device_id: str | None = None) -> DeviceSecret:
    """A new secret, of a random id unless one is given."""
    chosen = device_id or "".join(runtime.chance.choice(_ALPHABET) for _ in range(8))
    key = base64.urlsafe_b64encode(runtime.random_bytes(KEY_BYTES)).decode("ascii").rstrip("=")
    return DeviceSecret(chosen, f"ersd1_{chosen}_{key}")


def parse(text: str) -> DeviceSecret | None:
    """The secret ``text``; None if it is not one."""
    match = _FORM.fullmatch(text)
    return None if match is None else DeviceSecret(match[1], text)


def split_password(password: str) -> tuple[str, DeviceSecret | None]:
    """A Basic password without the secret that may stand at its end, and that secret.

    ``email:password:ersd1_...`` is how a client that knows nothing but Basic shows its device. What
    does not have exactly this form belongs to the password.
    """
    rest, colon, end = password.rpartition(":")
    secret = parse(end) if colon else None
    return (password, None) if secret is None else (rest, secret)


def without_device(authorization: str) -> str:
    """The part of an Authorization value for the API: Basic credentials without a device secret.

    Empty where nothing may leave: Basic credentials that are not the Base64 of ``email:password``,
    which another reader might parse differently, and text that still contains something like a
    device secret, such as one instead of the password, or cut short.
    """
    scheme, _, encoded = authorization.strip().partition(" ")
    if scheme.lower() != "basic":
        return "" if _FORM.search(authorization) else authorization
    try:
        pair = base64.b64decode(encoded.strip(), validate=True)
    except ValueError:
        return ""
    # Bytes: passwords that are no UTF-8 are refused here, and read by the API.
    match = _WITHOUT_SECRET.fullmatch(pair)
    kept = match[1] if match else pair
    if b":" not in kept or _LIKE.search(kept):
        return ""
    return f"Basic {base64.b64encode(kept).decode('ascii')}"


def is_nonce(text: str) -> bool:
    """Whether ``text`` can be a client's nonce: 16 to 64 characters of base64url."""
    return _NONCE.fullmatch(text) is not None


def challenge_answer(digest: bytes, nonce: str, host: str) -> str:
    """The answer to a nonce by a proxy that knows the secret with this digest.

    HMAC-SHA256 under the digest over "ers answer", the nonce and the Host header, each ended by a
    zero byte, in hexadecimal.

    Args:
        digest: the SHA-256 of the secret (:attr:`DeviceSecret.digest`).
        host: the Host header as the client sent it, in lower case.
    """
    message = b"".join(part.encode() + b"\0" for part in ("ers answer", nonce, host.lower()))
    return hmac.digest(digest, message, "sha256").hex()
