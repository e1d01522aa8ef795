"""The keyring: what it is, its words on paper, and bringing one here.

The words are shown in the answer to one form and never kept: not in an address, not on the desk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from encrypted_records.errors import ErsError, InvalidQuery, NotFound
from encrypted_records.proxy.routes.web.visit import Visit, page

#: Of a recovery phrase.
WORDS = 24


async def keyring(visit: Visit) -> Response:
    if not visit.sends:
        return await _shown(visit)
    try:
        match visit.text("do"):
            case "show":
                return await _shown(visit, phrases=await visit.ask("POST", "/api/keyring/backup/"))
            case "show all":
                body = {"all": True}
                found = await visit.ask("POST", "/api/keyring/backup/", body)
                return await _shown(visit, phrases=found)
            case "confirm":
                told = {"phrase": visit.text("phrase")}
                await visit.ask("POST", "/api/keyring/backup/confirm/", told)
            case "rotate":
                if visit.text("sure") != "yes":
                    raise InvalidQuery("tick the box first", hint="nothing was changed")
                await visit.ask("POST", "/api/keyring/rotate/")
            case "restore":
                await visit.ask("POST", "/api/keyring/restore/", _restoration(visit))
    except ErsError as error:
        return await _shown(visit, problem=error)
    return visit.go("/keyring/")


def _restoration(visit: Visit) -> dict[str, Any]:
    """The words of all versions stand in one field; the interface refuses half a phrase."""
    words = visit.text("phrase").split()
    phrases = [" ".join(words[at : at + WORDS]) for at in range(0, len(words), WORDS)]
    return {"phrases": phrases, "replace": visit.text("replace") == "yes"}


async def _shown(
    visit: Visit,
    *,
    phrases: Sequence[dict[str, Any]] = (),
    problem: ErsError | None = None,
) -> Response:
    values: dict[str, Any] = {"phrases": phrases, "keyring": await _existing(visit)}
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
