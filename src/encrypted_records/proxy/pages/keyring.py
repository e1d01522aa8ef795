"""The page of the keyring: its backup, its versions, its passphrase, its devices, and restoring it.

A form that gives keys out or changes them has a field for the proof, which is typed again each
time. Words and passphrases are in one form or the answer to it: that which asks for some of the
words carries the others along, unseen. They are never stored: neither in an address nor in the
state of the session.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from encrypted_records.errors import BadInput, Closed, ErsError, NotFound
from encrypted_records.proxy.pages import phrases
from encrypted_records.proxy.pages.account import OWN_PATH
from encrypted_records.proxy.pages.formatting import format_minutes
from encrypted_records.proxy.pages.page import Visit, page, proof_of
from encrypted_records.proxy.pages.recovery_code import draw_code
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.services import services_of

#: The name under which a browser saves a backup.
_FILE = "keyring.backup"


async def keyring(visit: Visit) -> Response:
    action = _ACTIONS.get(visit.text("do")) if visit.sends else None
    try:
        response = await action(visit) if action is not None else None
    except ErsError as error:
        return await _show(visit, problem=error)
    if response is not None:
        return response
    return visit.go("/keyring/") if visit.sends else await _show(visit)


async def _show_phrases(visit: Visit) -> Response:
    which = {"all": visit.text("do") == "show-all", "proof": proof_of(visit)}
    return await _show(visit, await visit.ask("POST", "/api/keyring/backup/", which))


async def _unlock(visit: Visit) -> Response:
    """And back to the page that needed it."""
    await visit.ask("POST", "/api/keyring/unlock/", {"passphrase": visit.text("passphrase")})
    back = visit.text("next")
    return visit.go(back if OWN_PATH.fullmatch(back) else "/keyring/")


async def _lock(visit: Visit) -> None:
    await visit.ask("POST", "/api/keyring/lock/")


async def _ask_for_words(visit: Visit) -> Response:
    """The words are on paper now: ask for some of them, and show none."""
    return visit.render(
        "keyring_words.html",
        version=visit.text("version"),
        phrase=visit.text("phrase"),
        typed=dict.fromkeys(phrases.places_to_ask_for(), ""),
    )


async def _confirm_phrase(visit: Visit) -> Response | None:
    phrase = visit.text("phrase")
    typed = {
        int(name.removeprefix("word-")): text
        for name, text in visit.form.items()
        if re.fullmatch(r"word-[0-9]{1,2}", name)
    }
    try:
        phrases.check_typed(phrase, typed)
    except BadInput as error:
        shown = {"version": visit.text("version"), "phrase": phrase, "typed": typed}
        return visit.problem(error, "keyring_words.html", **shown)
    await visit.ask("POST", "/api/keyring/backup/confirm/", {"phrase": phrase})
    return None


async def _rotate(visit: Visit) -> None:
    await visit.ask("POST", "/api/keyring/rotate/", {"proof": proof_of(visit)})


async def _download_file(visit: Visit) -> Response:
    _check_repeated(visit)
    body = {"passphrase": visit.text("passphrase"), "proof": proof_of(visit)}
    made = await visit.answer("POST", "/api/keyring/backup/file/", body)
    return visit.download(made.body, _FILE)


async def _confirm_file(visit: Visit) -> None:
    await visit.ask("POST", "/api/keyring/backup/confirm/", _file(visit))


async def _restore_file(visit: Visit) -> None:
    await _restore(visit, _file(visit))


async def _restore_phrases(visit: Visit) -> None:
    await _restore(visit, {"phrases": phrases.phrases_of(visit.text("phrase"))})


async def _try_file(visit: Visit) -> None:
    await visit.ask("POST", "/api/keyring/restore/", {**_file(visit), "dry_run": True})


async def _try_phrases(visit: Visit) -> None:
    body = {"phrases": phrases.phrases_of(visit.text("phrase")), "dry_run": True}
    await visit.ask("POST", "/api/keyring/restore/", body)


async def _restore(visit: Visit, backup: dict[str, Any]) -> None:
    choice = {"replace": visit.text("replace") == "yes", "proof": proof_of(visit)}
    await visit.ask("POST", "/api/keyring/restore/", {**backup, **choice})


async def _change_passphrase(visit: Visit) -> None:
    _check_repeated(visit)
    body = {
        "new": visit.text("passphrase"),
        "old": visit.text("old") or None,
        "proof": proof_of(visit),
    }
    await visit.ask("POST", "/api/keyring/passphrase/", body)


async def _make_code(visit: Visit) -> Response:
    made = await visit.ask("POST", "/api/devices/code/", {"proof": proof_of(visit)})
    return await _show(visit, code=made["code"])


async def _revoke_device(visit: Visit) -> None:
    path = f"/api/devices/{visit.text('device')}/"
    await visit.ask("DELETE", path, {"proof": proof_of(visit)})


#: The action of each button; the page is loaded again if it returns no answer of its own.
_ACTIONS: Mapping[str, Callable[[Visit], Awaitable[Response | None]]] = {
    "show": _show_phrases,
    "show-all": _show_phrases,
    "unlock": _unlock,
    "lock": _lock,
    "ask": _ask_for_words,
    "confirm": _confirm_phrase,
    "rotate": _rotate,
    "file": _download_file,
    "confirm-file": _confirm_file,
    "restore-file": _restore_file,
    "try-file": _try_file,
    "try": _try_phrases,
    "restore": _restore_phrases,
    "passphrase": _change_passphrase,
    "code": _make_code,
    "revoke": _revoke_device,
}


def _check_repeated(visit: Visit) -> None:
    """
    Raises:
        BadInput: the passphrase was typed in two ways, so that nothing would open with it.
    """
    if visit.text("passphrase") != visit.text("again"):
        raise BadInput("the two passphrases differ", hint="enter the same passphrase twice")


def _file(visit: Visit) -> dict[str, Any]:
    """A backup file, which a script has put into the form, and its passphrase."""
    return {"file": visit.text("content"), "passphrase": visit.text("passphrase")}


async def _show(
    visit: Visit,
    shown: list[dict[str, Any]] | None = None,
    problem: ErsError | None = None,
    code: str = "",
) -> Response:
    locked = False
    try:
        existing = await _existing(visit)
    except Closed as error:
        if error.reason != "keyring_locked":
            raise
        existing, locked = None, True
    values: dict[str, Any] = {
        "phrases": shown,
        # For the sheet on paper; a code takes some milliseconds to draw.
        "codes": await aside(_draw_codes, shown or []),
        # The typed words are shown again: one of them may be mistyped.
        "typed": visit.text("phrase") if visit.text("do") in ("restore", "try") else "",
        "keyring": existing,
        "locked": locked,
        "tried": visit.text("do"),
        "access": await visit.ask("GET", "/api/devices/"),
        "code": code,
        "locks_after": format_minutes(services_of(visit.request).keyrings.unlocked_seconds / 60),
        "schemas": await visit.ask("GET", "/api/keyring/schemas/") if existing else [],
    }
    if problem is not None:
        return visit.problem(problem, "keyring.html", **values)
    return visit.render("keyring.html", **values)


def _draw_codes(shown: Sequence[Mapping[str, Any]]) -> dict[int, Markup]:
    """By version of the keyring."""
    return {phrase["version"]: draw_code(phrase["phrase"]) for phrase in shown}


async def _existing(visit: Visit) -> dict[str, Any] | None:
    try:
        existing: dict[str, Any] = await visit.ask("GET", "/api/keyring/")
    except NotFound:
        return None
    return existing


routes = [page("/keyring/", keyring, methods=("GET", "POST"))]
