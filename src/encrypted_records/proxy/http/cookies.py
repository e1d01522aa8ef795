"""The two cookies of a session at the API, in both directions.

Only these two are sent to the API, if they have the form that Django gives them. Only these two are
returned, and not as the API wrote them: the value is checked and the cookie is written by the
proxy, so that the proxy decides what browsers keep for its address.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from encrypted_records.model.forwarded import CSRF, SESSION
from encrypted_records.proxy.auth import plain


@dataclass(frozen=True, slots=True)
class _Kind:
    """``longest`` is how many seconds it is kept at most."""

    longest: int
    hidden_from_scripts: bool


_DAY = 24 * 3600
_KINDS = {
    SESSION: _Kind(longest=14 * _DAY, hidden_from_scripts=True),
    CSRF: _Kind(longest=365 * _DAY, hidden_from_scripts=False),
}


def cookie_header(cookies: Mapping[str, str]) -> str:
    """The Cookie header for the API; empty where there is nothing for it."""
    kept = ((name, plain(cookies.get(name))) for name in _KINDS)
    return "; ".join(f"{name}={value}" for name, value in kept if value)


def rewrite(lines: Iterable[str], names: Collection[str], *, secure: bool) -> list[str]:
    """The API's Set-Cookie headers as the proxy's: of its two cookies, the last of each name.

    Args:
        names: of those that may be set.
        secure: whether the request came by https, so that the cookie need not go by http.
    """
    written: dict[str, str] = {}
    for line in lines:
        first, *attributes = (part.strip() for part in line.split(";"))
        name, _, value = first.partition("=")
        if name not in names or name not in _KINDS:
            continue
        given = dict(_pair(attribute) for attribute in attributes)
        seconds = _seconds(given.get("max-age"), _KINDS[name].longest)
        if seconds == 0:
            written[name] = _line(name, "", 0, secure=secure)
        elif plain(value):
            written[name] = _line(name, value, seconds, secure=secure)
    return list(written.values())


def _pair(attribute: str) -> tuple[str, str]:
    name, _, value = attribute.partition("=")
    return name.strip().lower(), value.strip()


def _seconds(max_age: str | None, longest: int) -> int | None:
    """None where the cookie is to go with the browser."""
    if max_age is None or not re.fullmatch(r"-?[0-9]{1,12}", max_age):
        return None
    return max(0, min(int(max_age), longest))


def _line(name: str, value: str, seconds: int | None, *, secure: bool) -> str:
    parts = [f"{name}={value}", "Path=/", "SameSite=Lax"]
    if seconds is not None:
        parts.append(f"Max-Age={seconds}")
    if _KINDS[name].hidden_from_scripts:
        parts.append("HttpOnly")
    if secure:
        parts.append("Secure")
    return "; ".join(parts)
