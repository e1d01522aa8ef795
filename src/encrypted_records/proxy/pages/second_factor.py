"""The page of an account's second factor: set it up, renew its recovery codes, remove it.

Keys and recovery codes are shown by the answer that made them, and by no page after it.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from encrypted_records.errors import BadInput, ErsError
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.recovery_code import draw_code

PATH = "/account/second-factor/"
ENDPOINT = f"/api/accounts{PATH.removeprefix('/account')}"
_TEMPLATE = "second_factor.html"


async def second_factor(visit: Visit) -> Response:
    nothing: dict[str, Any] = {"codes": None, "key": ""}
    shown = nothing
    if visit.sends:
        do = visit.text("do")
        if do == "confirm":
            shown = nothing | _new(visit.text("key"), visit.text("uri"))
        try:
            shown = nothing | await _done(visit, do)
        except ErsError as error:
            return visit.problem(error, _TEMPLATE, **shown, second_factor=await state(visit))
    return visit.render(_TEMPLATE, **shown, second_factor=await state(visit))


async def state(visit: Visit) -> Any:
    """The state of the visitor's second factor from the API: ``enabled`` and ``recovery_codes``."""
    return await visit.ask("GET", ENDPOINT)


async def _done(visit: Visit, do: str) -> dict[str, Any]:
    owner = {name: visit.text(name) for name in ("password", "code")}
    match do:
        case "begin":
            made = await visit.ask("POST", ENDPOINT, owner)
            return _new(made["key"], made["uri"])
        case "confirm":
            made = await visit.ask("POST", f"{ENDPOINT}confirm/", {"code": owner["code"]})
        case "renew":
            made = await visit.ask("POST", f"{ENDPOINT}recovery-codes/", owner)
        case "remove":
            await visit.ask("POST", f"{ENDPOINT}remove/", owner)
            return {}
        case _:
            raise BadInput("the form requests something that this page does not do")
    return {"codes": made["recovery_codes"]}


def _new(key: str, uri: str) -> dict[str, Any]:
    return {"key": key, "uri": uri, "picture": draw_code(uri)}


routes = [page(PATH, second_factor, methods=("GET", "POST"))]
