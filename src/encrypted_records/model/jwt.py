"""The part of an access token (a JWT, RFC 7519) that a client may read."""

from __future__ import annotations

import base64
import binascii

import msgspec


class _Claims(msgspec.Struct):
    exp: float = 0.0
    iat: float = 0.0


def expiry(token: str) -> float:
    """The expiry time of a token, in seconds since 1970; 0 if it has none.

    Only a hint for when to ask for another. The signature is for the API to check.
    """
    return _claims(token).exp


def lifetime(token: str) -> float:
    """For how many seconds a token is good from when it was made; 0 where it does not say.

    Only by the clock of its issuer, so that a clock that differs does no harm. A hint, as
    :func:`expiry` is.
    """
    claims = _claims(token)
    return max(claims.exp - claims.iat, 0.0)


def _claims(token: str) -> _Claims:
    try:
        payload = token.split(".")[1]
        claims = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        return msgspec.json.decode(claims, type=_Claims)
    except (IndexError, binascii.Error, ValueError):
        return _Claims()
