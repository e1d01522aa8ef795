"""Read what a request asks for outside of its body: query parameters, references, If-Match; and
write the pages of a list that it asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from encrypted_records.errors import BadInput, Flaw, InvalidQuery, Malformed
from encrypted_records.model.ids import from_path, from_reference, from_text
from encrypted_records.proxy.services import Services, services_of

_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')
_VERSION = re.compile(r"[0-9]{1,10}")
#: Of the list of records, from which people expect filters.
_LISTING = {"schema", "sealed"}
_SEARCH = "conditions are for POST /api/records/search/"


def id_in_path(request: Request) -> bytes:
    """The identifier in the path.

    Raises:
        NotFound: it is no identifier.
    """
    return from_path(request.path_params["id"])


def ids_asked(request: Request, *, most: int) -> list[bytes]:
    """The identifiers of the query parameter ``id``, each once.

    Raises:
        InvalidQuery: none, or more than ``most``.
        Malformed: ``malformed_id``: one of them is no identifier.
    """
    texts = dict.fromkeys(request.query_params.getlist("id"))
    if not 1 <= len(texts) <= most:
        detail = f"name 1 to {most} records: ?id=<id>&id=<id>"
        raise InvalidQuery(detail, flaws=(Flaw("too_many", detail, parameter="id"),))
    try:
        return [from_text(text) for text in texts]
    except Malformed as error:
        flaw = Flaw(error.reason, error.message, parameter="id")
        raise Malformed(error.message, code=error.reason, flaws=(flaw,)) from None


def versions_asked(request: Request, ids: Sequence[bytes]) -> dict[bytes, frozenset[int] | None]:
    """The version that each of ``ids`` is to have, by the query parameter ``version``; of none
    where there is none.

    Raises:
        BadInput: not as many as ids, or one is not a number.
    """
    texts = request.query_params.getlist("version")
    if not texts:
        return {}
    if len(texts) != len(ids) or not all(_VERSION.fullmatch(text) for text in texts):
        detail = "give one version for each id, in the same order: ?id=<id>&version=1"
        raise BadInput(detail, flaws=(Flaw("invalid", detail, parameter="version"),))
    return {id_: frozenset([int(text)]) for id_, text in zip(ids, texts, strict=True)}


def schema_of(services: Services, wanted: object) -> bytes:
    """The schema that a body's member names: by its path, an absolute URL of this proxy or of its
    API, or its id.

    Raises:
        BadInput: it is none of these.
    """
    return from_reference(wanted, "schemas", pointer="/schema", own_hosts=services.own_origins)


def schema_asked(request: Request) -> bytes:
    """The same of the query parameter.

    Raises:
        BadInput: it is missing, or none of these.
    """
    return schema_named(
        services_of(request), request.query_params.get("schema", ""), parameter="schema"
    )


def schema_named(
    services: Services, wanted: str, *, parameter: str | None = None, header: str | None = None
) -> bytes:
    """The same of a query parameter or a header.

    Raises:
        BadInput: it is none of these.
    """
    try:
        return schema_of(services, wanted)
    except BadInput as error:
        flaw = Flaw("invalid_reference", error.message, parameter=parameter, header=header)
        raise BadInput(f"schema: {error.message}", flaws=(flaw,)) from None


def only(request: Request, known: set[str]) -> None:
    """Refuse parameters that nobody here reads: a filter that is ignored would mislead."""
    for name in request.query_params:
        if name not in known:
            there = (
                f"the parameters are {', '.join(sorted(known))}"
                if known
                else "this path has no parameters"
            )
            raise InvalidQuery(
                f"this path does not have such a parameter; {there}",
                hint=_SEARCH if known >= _LISTING else "check the spelling",
                flaws=(Flaw("unknown_parameter", "there is no such parameter", parameter=name),),
            )


def number_of(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdecimal() and least <= int(text) <= most:
        return int(text)
    detail = f"expected an integer from {least} to {most}"
    raise InvalidQuery(detail, flaws=(Flaw("limit", detail, parameter=name),))


def flag_of(request: Request, name: str, *, default: bool) -> bool:
    text = request.query_params.get(name)
    if text is None:
        return default
    if text in ("true", "false"):
        return text == "true"
    detail = "expected true or false"
    raise InvalidQuery(detail, flaws=(Flaw("invalid_parameter", detail, f"/{name}"),))


def page_range(request: Request, *, limit: int, most: int) -> tuple[int, int]:
    """The ``limit`` and the ``offset`` that a request asks for.

    Args:
        limit: what it is if the request names none.
        most: the greatest limit.

    Raises:
        InvalidQuery: one of them is not valid.
    """
    asked = number_of(request, "limit", limit, least=1, most=most)
    return asked, number_of(request, "offset", 0, least=0, most=2**31)


def page_head(path: str, query: str, count: int, *, limit: int, offset: int) -> dict[str, Any]:
    """The members of a page beside ``results``: the count, and the paths of its neighbours.

    Args:
        query: what the paths have before ``limit``; ends in ``&`` if it is not empty.
    """

    def link(start: int) -> str:
        begin = f"{path}?{query}limit={limit}"
        return f"{begin}&offset={start}" if start else begin

    return {
        "count": count,
        "next": link(offset + limit) if offset + limit < count else None,
        "previous": link(max(0, offset - limit)) if offset else None,
    }


def if_match(request: Request) -> frozenset[int] | None:
    """The versions that If-Match allows; None where any will do (RFC 9110, section 13.1.1).

    Raises:
        BadInput: it is not a list of ETags.
    """
    text = ", ".join(request.headers.getlist("if-match")).strip()
    if text in ("", "*"):
        return None
    etags = [part.strip() for part in text.split(",")]
    if not all(_ETAG.fullmatch(etag) for etag in etags):
        detail = 'expected "*", or ETags as records have them'
        raise BadInput(detail, flaws=(Flaw("invalid", detail, header="If-Match"),))
    # A weak one never matches, nor does one that no record ever had.
    return frozenset(int(etag[1:-1]) for etag in etags if re.fullmatch(r'"[0-9]{1,10}"', etag))
