"""The keyring: what it is, its words on paper, and bringing one here.

The words are shown in the answer to one form and never kept: not in an address, not on the desk.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from encrypted_records.errors import ErsError, NotFound
from encrypted_records.proxy.routes.web.visit import Visit, page


async def keyring(visit: Visit) -> Response:
    if not visit.sends:
        return await _shown(visit)
    try:
        match visit.text("do"):
            case "show":
                found = await visit.ask("POST", "/api/keyring/backup/")
                return await _shown(visit, words=found["phrase"].split())
            case "confirm":
                body = {"phrase": visit.text("phrase")}
                await visit.ask("POST", "/api/keyring/backup/confirm/", body)
            case "restore":
                told = {"phrase": visit.text("phrase"), "replace": visit.text("replace") == "yes"}
                await visit.ask("POST", "/api/keyring/restore/", told)
    except ErsError as error:
        return await _shown(visit, problem=error)
    return visit.go("/keyring/")


async def _shown(
    visit: Visit, *, words: list[str] | None = None, problem: ErsError | None = None
) -> Response:
    values: dict[str, Any] = {"words": words, "keyring": await _existing(visit)}
    if problem is not None:
        return visit.problem(problem, "keyring.html", **values)
    return visit.render("keyring.html", **values)


async def _existing(visit: Visit) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = await visit.ask("GET", "/api/keyring/")
    except NotFound:
        return None
    return found


routes = [page("/keyring/", keyring, methods=("GET", "POST"))]
