"""The keyring: what it is, its backup on paper or in a file, a new version of it, its passphrase,
and bringing one here.

Words and passphrases are in one form or the answer to it, and never kept: not in an address, not on
the desk.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from encrypted_records.errors import BadInput, Closed, ErsError, NotFound
from encrypted_records.proxy.routes.web.visit import Visit, page

#: A recovery phrase (docs/SPEC.md, section 8.1), one for each version of the keyring.
_WORDS = 24
#: What a browser calls a backup.
_FILE = "keyring.backup"


async def keyring(visit: Visit) -> Response:
    if not visit.sends:
        return await _shown(visit)
    told = visit.text("phrase").split()
    try:
        match visit.text("do"):
            case "show" | "show-all" as do:
                which = {"all": do == "show-all"}
                return await _shown(visit, await visit.ask("POST", "/api/keyring/backup/", which))
            case "unlock":
                typed = {"passphrase": visit.text("passphrase")}
                await visit.ask("POST", "/api/keyring/unlock/", typed)
            case "lock":
                await visit.ask("POST", "/api/keyring/lock/")
            case "confirm":
                phrase = " ".join(told)
                await visit.ask("POST", "/api/keyring/backup/confirm/", {"phrase": phrase})
            case "rotate":
                await visit.ask("POST", "/api/keyring/rotate/")
            case "file":
                _same(visit)
                asked = {"passphrase": visit.text("passphrase")}
                made = await visit.answer("POST", "/api/keyring/backup/file/", asked)
                return visit.download(made.body, _FILE)
            case "confirm-file":
                await visit.ask("POST", "/api/keyring/backup/confirm/", _file(visit))
            case "restore-file":
                body = {**_file(visit), "replace": visit.text("replace") == "yes"}
                await visit.ask("POST", "/api/keyring/restore/", body)
            case "passphrase":
                _same(visit)
                body = {"new": visit.text("passphrase"), "old": visit.text("old") or None}
                await visit.ask("POST", "/api/keyring/passphrase/", body)
            case "restore":
                phrases = [told[start : start + _WORDS] for start in range(0, len(told), _WORDS)]
                body = {
                    "phrases": [" ".join(phrase) for phrase in phrases],
                    "replace": visit.text("replace") == "yes",
                }
                await visit.ask("POST", "/api/keyring/restore/", body)
    except ErsError as error:
        return await _shown(visit, problem=error)
    return visit.go("/keyring/")


def _same(visit: Visit) -> None:
    """
    Raises:
        BadInput: the passphrase was typed in two ways; what it seals would stay closed.
    """
    if visit.text("passphrase") != visit.text("again"):
        raise BadInput("the two passphrases differ", hint="type the same one twice")


def _file(visit: Visit) -> dict[str, Any]:
    """A backup file, which a script has put into the form, and its passphrase."""
    return {"file": visit.text("content"), "passphrase": visit.text("passphrase")}


async def _shown(
    visit: Visit, phrases: list[dict[str, Any]] | None = None, problem: ErsError | None = None
) -> Response:
    locked = False
    try:
        found = await _existing(visit)
    except Closed as error:
        if error.reason != "keyring_locked":
            raise
        found, locked = None, True
    values: dict[str, Any] = {
        "phrases": phrases,
        "keyring": found,
        "locked": locked,
        "tried": visit.text("do"),
        "schemas": await visit.ask("GET", "/api/keyring/schemas/") if found else [],
    }
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
