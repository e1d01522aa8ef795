"""Read what a request asks for outside of its body: query parameters, references, If-Match."""

from __future__ import annotations

import re

from starlette.requests import Request

from encrypted_records.errors import BadInput, Flaw, InvalidQuery
from encrypted_records.model.ids import from_reference, from_text
from encrypted_records.proxy.parts import Parts

_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


def schema_of(parts: Parts, wanted: object) -> bytes:
    """The schema that a path, an absolute URL of this proxy, or a bare id names."""
    if isinstance(wanted, str) and "/" not in wanted:
        return from_text(wanted)
    return from_reference(wanted, "schemas", pointer="/schema", own_hosts=parts.own_origins)


def only(request: Request, known: set[str]) -> None:
    """Refuse parameters that nobody here reads: a filter that is ignored would mislead."""
    for name in request.query_params:
        if name not in known:
            detail = "there is no such parameter; POST /api/records/search/ takes conditions"
            raise InvalidQuery(detail, flaws=(Flaw("unknown_parameter", detail, f"/{name}"),))


def number_of(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdecimal() and least <= int(text) <= most:
        return int(text)
    detail = f"expected an integer from {least} to {most}"
    raise InvalidQuery(detail, flaws=(Flaw("limit", detail, f"/{name}"),))


def if_match(request: Request) -> frozenset[int] | None:
    """The versions that If-Match allows; None where any will do (RFC 9110, section 13.1.1).

    Raises:
        BadInput: it is no list of ETags.
    """
    text = ", ".join(request.headers.getlist("if-match")).strip()
    if text in ("", "*"):
        return None
    found = [one.strip() for one in text.split(",")]
    if not all(_ETAG.fullmatch(one) for one in found):
        detail = 'expected "*", or ETags as records come with'
        raise BadInput(detail, flaws=(Flaw("invalid", detail, field="If-Match"),))
    # A weak one never matches, nor does one that no record ever had.
    return frozenset(int(one[1:-1]) for one in found if re.fullmatch(r'"[0-9]{1,10}"', one))
