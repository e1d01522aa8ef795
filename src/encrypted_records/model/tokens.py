"""What a client may read of an access token (a JWT, RFC 7519)."""

from __future__ import annotations

import base64
import binascii

import msgspec


class _Claims(msgspec.Struct):
    exp: float = 0.0


def expiry(token: str) -> float:
    """When a token expires, in seconds since 1970; 0 where it does not say.

    Only a hint for when to ask for another. The signature is for the API to check.
    """
    try:
        payload = token.split(".")[1]
        claims = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        return msgspec.json.decode(claims, type=_Claims).exp
    except (IndexError, binascii.Error, ValueError):
        return 0.0
