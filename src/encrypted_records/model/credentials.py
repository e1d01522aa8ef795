"""Credentials as strings: API tokens, device secrets, service strings, access tokens.

An API token is used by a program in place of a person's login, with limits and an expiry:
``ersr1_<secret>``, which only reads, or ``ersw1_<secret>``, which reads and writes; the secret is
32 random bytes in base64url without padding. The right is part of the string whose SHA-256 the API
stores, so a proxy sees the right without trusting the API: no statement of an API can make a
read-only token write.

A client shows a device secret to a proxy, and no API ever sees it: ``ersd1_<id>_<key>``, with 8
letters and digits that name the device, and 32 random bytes in base64url without padding. A proxy
stores the id and the SHA-256 of the whole string. The door of a proxy is a secret of the same form
whose id is :data:`DOOR`; it proves the user of the operating system who runs the proxy
(docs/SPEC.md, section 13).

A program authenticates to a proxy with a service string, without a login: ``ers1_<id>_<key>``, with
the 22 characters of the service's id, and 32 bytes in base64url without padding, from which its
identity and its token at the API are derived. The string is never sent to the API, which gets
``Authorization: Service <token>``, and refuses the string itself (docs/SPEC.md, section 15.8).

An access token of a login is a JWT (RFC 7519); a client reads only its lifetime.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass, field

import msgspec

from encrypted_records import runtime
from encrypted_records.errors import Malformed
from encrypted_records.model import ids

API_TOKEN_BYTES = 32
_API_TOKEN = re.compile(r"ers([rw])1_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class BearerToken:
    """``text`` is the token itself; it must not be printed.

    Attributes:
        writes: whether it may change data.
    """

    writes: bool
    text: str = field(repr=False)

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the whole string, 32 bytes; nothing else of it is stored."""
        return hashlib.sha256(self.text.encode("ascii")).digest()


def generate_api_token(*, writes: bool) -> BearerToken:
    """A new token."""
    secret = runtime.random_text(API_TOKEN_BYTES)
    return BearerToken(writes, f"ers{'w' if writes else 'r'}1_{secret}")


def parse_api_token(text: str) -> BearerToken | None:
    """The token ``text``; None if it is not one."""
    match = _API_TOKEN.fullmatch(text)
    return None if match is None else BearerToken(match[1] == "w", text)


def api_token_of(value: str) -> BearerToken | None:
    """The token in an Authorization value; None if it holds none."""
    scheme, _, text = value.strip().partition(" ")
    return parse_api_token(text.strip()) if scheme.lower() == "bearer" else None


#: Headers between clients and proxies. None of them is ever forwarded.
DEVICE_HEADER = "X-ERS-Device"
DOOR_HEADER = "X-ERS-Door"
CHALLENGE_HEADER = "X-ERS-Challenge"
ANSWER_HEADER = "X-ERS-Answer"
INLINE_HEADER = "X-ERS-Inline"

#: The id in the door secret of every proxy; no device ever gets it.
DOOR = "thedoor0"
DEVICE_KEY_BYTES = 32
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_DEVICE_SECRET = re.compile(r"ersd1_([A-Za-z0-9]{8})_[A-Za-z0-9_-]{43}")
_WITHOUT_SECRET = re.compile(rb"([^:]*:.*):" + _DEVICE_SECRET.pattern.encode(), re.DOTALL)
#: Text that begins like a device secret, of any length.
_LIKE = re.compile(rb"ersd1_", re.IGNORECASE)
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")
#: Characters of the page path that is derived from a secret: 80 bits in base32.
PAGE_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class DeviceSecret:
    """``text`` is the secret itself; it must not be printed."""

    id: str
    text: str = field(repr=False)

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the whole string, 32 bytes, which a proxy stores."""
        return hashlib.sha256(self.text.encode("ascii")).digest()

    @property
    def page(self) -> str:
        """The part of a page's address that is derived from this secret: 16 letters and digits."""
        digest = hashlib.sha256(b"page" + self.text.encode("ascii")).digest()[:10]
        return base64.b32encode(digest).decode("ascii").lower()


def generate_device_secret(device_id: str | None = None) -> DeviceSecret:
    """A new secret, with a random id unless ``device_id`` is given."""
    chosen = device_id or "".join(runtime.chance.choice(_ALPHABET) for _ in range(8))
    key = (
        base64.urlsafe_b64encode(runtime.random_bytes(DEVICE_KEY_BYTES)).decode("ascii").rstrip("=")
    )
    return DeviceSecret(chosen, f"ersd1_{chosen}_{key}")


def parse_device_secret(text: str) -> DeviceSecret | None:
    """The secret ``text``; None if it is not one."""
    match = _DEVICE_SECRET.fullmatch(text)
    return None if match is None else DeviceSecret(match[1], text)


def split_password(password: str) -> tuple[str, DeviceSecret | None]:
    """A Basic password without the device secret at its end, and that secret, if it has one.

    ``email:password:ersd1_...`` lets a client that supports only Basic authentication show its
    device. A text without exactly this form is a plain password.
    """
    plain, colon, end = password.rpartition(":")
    secret = parse_device_secret(end) if colon else None
    return (password, None) if secret is None else (plain, secret)


def without_device(authorization: str) -> str:
    """The part of an Authorization value for the API: Basic credentials without a device secret.

    Empty if nothing may be forwarded: Basic credentials that are not the Base64 of
    ``email:password``, which another reader might parse differently, and text that still contains
    something like a device secret, for example in place of the password, or truncated.
    """
    scheme, _, encoded = authorization.strip().partition(" ")
    if scheme.lower() != "basic":
        return "" if _DEVICE_SECRET.search(authorization) else authorization
    try:
        pair = base64.b64decode(encoded.strip(), validate=True)
    except ValueError:
        return ""
    # As bytes: the API reads passwords that are not UTF-8, but here they are refused.
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


#: The scheme of the Authorization header under which the API takes a service's token.
SERVICE_SCHEME = "Service"
SERVICE_PREFIX = "ers1_"
SERVICE_KEY_BYTES = 32
_SERVICE_KEY = re.compile(rf"{SERVICE_PREFIX}({ids.PATTERN})_([A-Za-z0-9_-]{{43}})")
_SERVICE_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """A service's id, 16 bytes, and its secret, 32 bytes, which must not be printed."""

    id: bytes
    secret: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The string itself. The caller is responsible for its secrecy."""
        return f"{SERVICE_PREFIX}{ids.to_text(self.id)}_{_base64url(self.secret)}"


def parse_service_key(text: str) -> ServiceKey:
    """The service string ``text``.

    Raises:
        Malformed: it is not a service string; the message does not repeat it.
    """
    match = _SERVICE_KEY.fullmatch(text)
    if match is None:
        raise _not_a_service_key()
    secret = base64.urlsafe_b64decode(match[2] + "=")
    if _base64url(secret) != match[2]:
        # The last character has two unused bits; each service string has a single spelling.
        raise _not_a_service_key()
    return ServiceKey(ids.from_text(match[1]), secret)


def looks_like_service_key(text: str) -> bool:
    """Whether a credential begins like a service string, whole or truncated: the API must not use
    it, and must report that it was exposed.
    """
    return text.strip().lower().startswith(SERVICE_PREFIX)


def authorization(token: bytes) -> str:
    """The Authorization value for the API, of a token of 32 bytes."""
    return f"{SERVICE_SCHEME} {_base64url(token)}"


def service_token_of(authorization: str) -> bytes | None:
    """Undo :func:`authorization`; None for anything else."""
    scheme, _, text = authorization.strip().partition(" ")
    if scheme.lower() != SERVICE_SCHEME.lower() or not _SERVICE_TOKEN.fullmatch(text):
        return None
    token = base64.urlsafe_b64decode(text + "=")
    return token if _base64url(token) == text else None


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _not_a_service_key() -> Malformed:
    return Malformed(
        "this is not a service's secret key",
        code="malformed_id",
        hint=(
            "copy it completely: it begins with ers1_ and was shown once, when the service"
            " was created"
        ),
    )


class _Claims(msgspec.Struct):
    exp: float = 0.0
    iat: float = 0.0


def token_expiry(token: str) -> float:
    """The expiry time of a token, in seconds since 1970; 0 if it has none.

    Only a hint for when to request another token. The API checks the signature.
    """
    return _claims(token).exp


def token_lifetime(token: str) -> float:
    """The lifetime of a token in seconds from its creation; 0 if it does not state one.

    Both times are by the clock of its issuer, so that a different local clock does no harm. A hint,
    as :func:`token_expiry` is.
    """
    claims = _claims(token)
    return max(claims.exp - claims.iat, 0.0)


def _claims(token: str) -> _Claims:
    try:
        payload = token.split(".")[1]
        claims = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        return msgspec.json.decode(claims, type=_Claims)
    except (IndexError, binascii.Error, ValueError, RecursionError):
        return _Claims()
