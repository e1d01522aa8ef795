"""/api/records/columns/: whole columns as Arrow, for engines that compute with them."""

from __future__ import annotations

from importlib.util import find_spec

from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.errors import NotInstalled
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    ARROW,
    BINARY,
    NAMES,
    NUMBER,
    answer_of_kinds,
    json_body,
    object_of,
)
from encrypted_records.proxy.api.parameters import schema_of
from encrypted_records.proxy.api.search import CONDITIONS, OPTIONAL_CONDITIONS
from encrypted_records.proxy.http.bodies import read_object, while_wanted
from encrypted_records.proxy.http.downloads import Download
from encrypted_records.proxy.services import services_of

#: The version of the schema's log of which all columns are.
VERSION_HEADER = "X-Log-Version"

endpoint = Endpoints("records")


@endpoint(
    "POST",
    "/api/records/columns/",
    summary="columns of the records that a condition selects, as a stream of Arrow.",
    body=json_body(object_of(CONDITIONS, **OPTIONAL_CONDITIONS, fields=NAMES)),
    answers={
        200: answer_of_kinds(
            {ARROW: BINARY},
            description="A record batch for each part of a segment",
            X_Log_Version=NUMBER,
        )
    },
    problems=(501,),
)
async def read_columns(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    body = await read_object(request)
    schema = schema_of(services, body.get("schema"))
    require_arrow()
    from encrypted_records.proxy.search.columns import (  # noqa: PLC0415 - optional, slow to import
        read_columns as ask,
    )

    async with services.turns.take(caller.user):
        asked = ask(services.query_runner, caller, schema, body)
        columns = await while_wanted(request, asked)
    pieces = services.admission.until_revoked(caller, columns.pieces)
    download = Download(services.turns.each(caller.user, pieces), ARROW)
    download.headers[VERSION_HEADER] = str(columns.version)
    return download


def require_arrow() -> None:
    """
    Raises:
        NotInstalled: the library that writes Arrow is not there.
    """
    if find_spec("pyarrow") is None:
        raise NotInstalled(
            "columns are sent as Arrow, and the library that writes it is not installed",
            hint="where the proxy runs: pip install 'encrypted-records[sql]'",
        )
