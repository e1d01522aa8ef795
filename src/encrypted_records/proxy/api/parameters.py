"""Read the parts of a request outside its body: query parameters, references, If-Match; and write
the pages of a list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.requests import HTTPConnection, Request

from encrypted_records.errors import BadInput, Flaw, InvalidQuery, Malformed
from encrypted_records.model.ids import from_path, from_text, slug_in, to_text
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.services import Services, services_of
from encrypted_records.proxy.sharing.shown_names import Collection

#: Collections whose objects a path may name by slug.
_COLLECTIONS: Final[tuple[Collection, ...]] = ("datasets", "schemas")
_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')
_VERSION = re.compile(r"[0-9]{1,10}")
#: Parameters of the list of records, which users may expect to be filters.
_LISTING = {"schema", "sealed"}
#: Parameters that may be given several times.
_SEVERAL = {"id", "version"}
_SEARCH = "conditions are for POST /api/records/search/"


def id_in_path(request: Request) -> bytes:
    """The identifier in the path.

    Raises:
        NotFound: it is not an identifier.
    """
    return from_path(request.path_params["id"])


def requested_ids(request: Request, *, most: int) -> list[bytes]:
    """The identifiers in the query parameter ``id``, without duplicates.

    Raises:
        InvalidQuery: none, or more than ``most``.
        Malformed: ``malformed_id``: a value is not an identifier.
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


def requested_versions(
    request: Request, ids: Sequence[bytes]
) -> dict[bytes, frozenset[int] | None]:
    """The required version of each of ``ids``, from the query parameter ``version``; empty without
    the parameter.

    Raises:
        BadInput: their number differs from that of the ids, or a version is not a number.
    """
    texts = request.query_params.getlist("version")
    if not texts:
        return {}
    if len(texts) != len(ids) or not all(_VERSION.fullmatch(text) for text in texts):
        detail = "give one version for each id, in the same order: ?id=<id>&version=1"
        raise BadInput(detail, flaws=(Flaw("invalid", detail, parameter="version"),))
    return {id_: frozenset([int(text)]) for id_, text in zip(ids, texts, strict=True)}


async def schema_of(services: Services, caller: Holder, wanted: object) -> bytes:
    """The schema that a body's member names: by its path, an absolute URL of this proxy or of its
    API, its id, or its slug.

    Raises:
        BadInput: it is none of these.
        ErsError: as :meth:`ShownNames.by_slug`.
    """
    return await services.sharing.shown_names.of_reference(
        caller, wanted, "schemas", pointer="/schema", own_hosts=services.own_origins
    )


async def requested_schema(request: Request, caller: Holder) -> bytes:
    """The schema in the query parameter.

    Raises:
        ErsError: it is missing; otherwise as :func:`schema_of`.
    """
    wanted = request.query_params.get("schema", "")
    return await schema_named(services_of(request), caller, wanted, parameter="schema")


async def schema_named(
    services: Services,
    caller: Holder,
    wanted: str,
    *,
    parameter: str | None = None,
    header: str | None = None,
) -> bytes:
    """The schema in a query parameter or a header.

    Raises:
        ErsError: as :func:`schema_of`.
    """
    try:
        return await schema_of(services, caller, wanted)
    except BadInput as error:
        flaws = tuple(
            Flaw(flaw.code, flaw.detail, parameter=parameter, header=header) for flaw in error.flaws
        )
        raise BadInput(f"schema: {error.message}", hint=error.hint, flaws=flaws) from None


async def id_of_slug(
    connection: HTTPConnection, path: str, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """The parameters of a path, with the id of a dataset or schema in place of its slug.

    Args:
        path: of the route, with names in braces.

    Raises:
        ErsError: as :meth:`ShownNames.by_slug`; the request is not authenticated.
    """
    found = dict(parameters)
    collection = collection_named(path)
    slug = None if collection is None else slug_in(found["id"], collection)
    if collection is not None and slug is not None:
        found["id"] = to_text(await find_slug(connection, collection, slug))
    return found


def collection_named(path: str) -> Collection | None:
    """The collection whose id or slug a path takes; None if it takes no slug."""
    return next(
        (collection for collection in _COLLECTIONS if path.startswith(f"/api/{collection}/{{")),
        None,
    )


async def find_slug(connection: HTTPConnection, collection: Collection, slug: str) -> bytes:
    """
    Raises:
        ErsError: as :meth:`ShownNames.by_slug`; the request is not authenticated.
    """
    services = services_of(connection)
    # A lookup only reads: the proxy does not act for an owner because of it.
    holder = await services.admission.holder(connection)
    return await services.sharing.shown_names.by_slug(holder, collection, slug)


def only(request: Request, known: set[str]) -> None:
    """Refuse unknown and repeated parameters: an ignored filter would mislead."""
    for name in request.query_params:
        if name not in known:
            allowed = (
                f"the parameters are {', '.join(sorted(known))}"
                if known
                else "this path has no parameters"
            )
            hint = "check the spelling" if known else "leave it out"
            if not known and request.method == "POST":
                hint = "options of this path are members of its body"
            raise InvalidQuery(
                f"this path does not have such a parameter; {allowed}",
                hint=_SEARCH if known >= _LISTING else hint,
                flaws=(Flaw("unknown_parameter", "there is no such parameter", parameter=name),),
            )
        if name not in _SEVERAL:
            require_once(name, len(request.query_params.getlist(name)))


def require_once(name: str, times: int) -> None:
    """
    Raises:
        InvalidQuery: a parameter with one value has several.
    """
    if times > 1:
        detail = "is given more than once"
        raise InvalidQuery(
            f"the parameter {name} {detail}",
            hint="leave out all but one",
            flaws=(Flaw("invalid_parameter", detail, parameter=name),),
        )


def whole_number(text: str) -> int | None:
    """The number that a text of up to 18 digits states; None for other texts. Python refuses to
    read thousands of digits.
    """
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def number_of(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    number = whole_number(text)
    if number is not None and least <= number <= most:
        return number
    detail = f"expected an integer from {least} to {most}"
    raise InvalidQuery(detail, flaws=(Flaw("limit", detail, parameter=name),))


def flag_of(request: Request, name: str, *, default: bool) -> bool:
    text = request.query_params.get(name)
    if text is None:
        return default
    if text in ("true", "false"):
        return text == "true"
    detail = "expected true or false"
    raise InvalidQuery(detail, flaws=(Flaw("invalid_parameter", detail, parameter=name),))


def page_range(request: Request, *, limit: int, most: int) -> tuple[int, int]:
    """The ``limit`` and the ``offset`` of a request.

    Args:
        limit: default limit.
        most: maximum limit.

    Raises:
        InvalidQuery: a value is not valid.
    """
    limit = number_of(request, "limit", limit, least=1, most=most)
    return limit, number_of(request, "offset", 0, least=0, most=2**31)


def page_head(path: str, query: str, count: int, *, limit: int, offset: int) -> dict[str, Any]:
    """The members of a page except ``results``: the count, and the paths of the neighbouring pages.

    Args:
        query: the query in the paths before ``limit``; ends in ``&`` if it is not empty.
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
    """The versions that If-Match allows; None if all are allowed (RFC 9110, section 13.1.1). An
    If-None-Match of "*" allows none.

    Raises:
        BadInput: it is not a list of ETags, or If-None-Match is another.
    """
    unless = ", ".join(request.headers.getlist("if-none-match")).strip()
    if unless not in ("", "*"):
        detail = 'expected "*"; ETags are compared with If-Match only'
        raise BadInput(detail, flaws=(Flaw("invalid", detail, header="If-None-Match"),))
    if unless:
        return frozenset()
    text = ", ".join(request.headers.getlist("if-match")).strip()
    if text in ("", "*"):
        return None
    etags = [part.strip() for part in text.split(",")]
    if not all(_ETAG.fullmatch(etag) for etag in etags):
        detail = 'expected "*", or ETags as records have them'
        raise BadInput(detail, flaws=(Flaw("invalid", detail, header="If-Match"),))
    # A weak ETag never matches, nor does an ETag that no record ever had.
    return frozenset(int(etag[1:-1]) for etag in etags if re.fullmatch(r'"[0-9]{1,10}"', etag))
