"""Pages of the keyring and of the devices that may use it.

One page shows the keyring's backup, versions, passphrase and devices, and restores it; another page
registers a browser for a code, the passphrase or the words.

A form that reveals or changes keys has a field for the proof, which is typed each time. Words and
passphrases are only in one form or the answer to it: the form that asks for some of the words
carries the others in hidden fields. They are never stored, neither in an address nor in the state
of the session.

People type the 24 words of a keyring numbered, in lines, and with typing errors. An error names the
number of a mistyped word, never the word.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from encrypted_records import runtime
from encrypted_records.errors import BadInput, Closed, Flaw, NotFound
from encrypted_records.model import credentials
from encrypted_records.proxy.pages.account import draw_code, next_of
from encrypted_records.proxy.pages.formatting import format_minutes
from encrypted_records.proxy.pages.page import LET_IN, Visit, page, proof_of
from encrypted_records.proxy.process import aside
from encrypted_records.proxy.services import services_of

#: A recovery phrase (docs/SPEC.md, section 8.1), one for each version of the keyring.
WORDS = 24
#: How many words are asked for, to confirm that they were written down.
WORDS_ASKED = 4
#: Maximum characters: the words of some two hundred versions.
MOST_TYPED = 1 << 16
_NUMBER = re.compile(r"\b\d+\s*[.):]?")


def words_of(typed: str) -> list[str]:
    """The words in a text: ``1. picture 2. clip`` and ``picture, clip`` are two words, like
    ``Picture clip``.
    """
    return re.sub(r"[,;]", " ", _NUMBER.sub(" ", typed[:MOST_TYPED])).lower().split()


def phrases_of(typed: str) -> list[str]:
    """The typed phrases, one for each version; the last may be too short, which is reported
    later.
    """
    words = words_of(typed)
    return [" ".join(words[start : start + WORDS]) for start in range(0, len(words), WORDS)]


def places_to_ask_for() -> list[int]:
    """Unpredictable word numbers, from 1 on, for the confirmation of a backup."""
    return sorted(runtime.chance.sample(range(1, WORDS + 1), WORDS_ASKED))


def check_typed(phrase: str, typed: Mapping[int, str]) -> None:
    """Compare some words, by their numbers from 1 on, with those of the phrase.

    Raises:
        BadInput: ``invalid_phrase``; some differ, and the flaws name their numbers.
    """
    words = phrase.split()
    wrong = [
        place
        for place, word in typed.items()
        if not 1 <= place <= len(words) or words_of(word) != [words[place - 1]]
    ]
    if wrong or len(typed) != WORDS_ASKED:
        raise BadInput(
            f"{_listed(wrong)} not what was shown",
            code="invalid_phrase",
            hint="check your paper; if it is wrong there, go back and correct it",
            flaws=tuple(
                Flaw("invalid_phrase", "this is a different word", pointer=f"/word-{place}")
                for place in wrong
            ),
        )


def _listed(places: Sequence[int]) -> str:
    if len(places) == 1:
        return f"word {places[0]} is"
    return f"words {', '.join(map(str, places[:-1]))} and {places[-1]} are" if places else "that is"


# --- registering this browser ---------------------------------------------------------------------

_CODE = re.compile(r"[0-9A-Za-z]{4}[- ]?[0-9A-Za-z]{4}")


async def let_in(visit: Visit) -> Response:
    if visit.is_over_mirror:
        return await _let_in_over_mirror(visit)
    device = visit.device or credentials.generate_device_secret()
    shown = {credentials.DEVICE_HEADER: device.text}
    access = (await visit.answer("GET", "/api/devices/", headers=shown)).json()
    typed = visit.text("shown").strip()
    kind = _kind_of_proof(typed, access)
    if not visit.sends:
        # One of the words may be mistyped.
        words = typed if kind == "phrase" else ""
        return visit.render("device.html", next=next_of(visit), typed=words, access=access)
    sent = " ".join(words_of(typed)) if kind == "phrase" else typed
    body = {kind: sent, "name": _name_of_browser(visit)}
    await visit.answer("POST", "/api/devices/", body, headers=shown)
    return visit.let_in(visit.session, visit.csrf, next_of(visit) or "/", device)


async def _let_in_over_mirror(visit: Visit) -> Response:
    """Register this browser as a new device, which is a login over a mirror; if the keyring is not
    here, the words restore it.
    """
    back = next_of(visit)
    back = "" if back == LET_IN else back
    typed = visit.text("shown").strip()
    is_code = _CODE.fullmatch(typed) is not None
    if not visit.sends:
        return visit.render("device_mirror.html", next=back, typed="" if is_code else typed)
    device = credentials.generate_device_secret()
    shown = {credentials.DEVICE_HEADER: device.text}
    sent = phrases_of(typed)
    name = {"name": _name_of_browser(visit)}
    if is_code or services_of(visit.request).admission.enrolment.users():
        body = {"code": typed} if is_code else {"phrase": sent[-1] if sent else ""}
        await visit.answer("POST", "/api/devices/", name | body, headers=shown)
    else:
        await visit.answer("POST", "/api/keyring/restore/", {"phrases": sent}, headers=shown)
    # The session exists only so that logging out can end it.
    session, csrf = runtime.random_hex(16), runtime.random_hex(16)
    return visit.let_in(session, csrf, back or "/", device)


def _kind_of_proof(typed: str, access: dict[str, Any]) -> str:
    """The kind of the typed proof: the words, a code, or the passphrase."""
    if len(words_of(typed)) == WORDS:
        return "phrase"
    has_passphrase = access["keyring"] is not None and access["keyring"]["passphrase"]
    return "code" if _CODE.fullmatch(typed) or not has_passphrase else "passphrase"


def _name_of_browser(visit: Visit) -> str:
    """A name that identifies this browser in the list of devices."""
    agent = visit.request.headers.get("user-agent", "")
    match = re.search(r"(Firefox|Edg|OPR|Chrome|Safari)", agent)
    names = {"Edg": "Edge", "OPR": "Opera"}
    browser = names.get(match[1], match[1]) if match else "browser"
    system = re.search(r"(Windows|Mac OS X|Android|iPhone|iPad|Linux)", agent)
    return f"{browser} on {system[1]}" if system else browser


# --- the page of the keyring ----------------------------------------------------------------------

#: The name under which a browser saves a backup.
_FILE = "keyring.backup"


async def keyring(visit: Visit) -> Response:
    if not visit.sends:
        return await _show(visit)
    action = _ACTIONS.get(visit.text("do"))
    response = await action(visit) if action is not None else None
    return response or visit.go("/keyring/")


async def _show_phrases(visit: Visit) -> Response:
    which = {"all": visit.text("do") == "show-all", "proof": proof_of(visit)}
    return await _show(visit, await visit.ask("POST", "/api/keyring/backup/", which))


async def _unlock(visit: Visit) -> Response:
    """Unlock, and redirect to the page that needed it."""
    await visit.ask("POST", "/api/keyring/unlock/", {"passphrase": visit.text("passphrase")})
    return visit.go(next_of(visit) or "/keyring/")


async def _lock(visit: Visit) -> None:
    await visit.ask("POST", "/api/keyring/lock/")


async def _ask_for_words(visit: Visit) -> Response:
    """The words were written down: ask for some of them, and show none."""
    return visit.render(
        "keyring_words.html",
        version=visit.text("version"),
        phrase=visit.text("phrase"),
        typed=dict.fromkeys(places_to_ask_for(), ""),
    )


async def _confirm_phrase(visit: Visit) -> Response | None:
    phrase = visit.text("phrase")
    typed = {
        int(name.removeprefix("word-")): text
        for name, text in visit.form.items()
        if re.fullmatch(r"word-[0-9]{1,2}", name)
    }
    try:
        check_typed(phrase, typed)
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
    await _restore(visit, {"phrases": phrases_of(visit.text("phrase"))})


async def _try_file(visit: Visit) -> None:
    await visit.ask("POST", "/api/keyring/restore/", {**_file(visit), "dry_run": True})


async def _try_phrases(visit: Visit) -> None:
    body = {"phrases": phrases_of(visit.text("phrase")), "dry_run": True}
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


#: The action of each button; the page is loaded again if the action returns no answer.
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
        BadInput: the two typed passphrases differ.
    """
    if visit.text("passphrase") != visit.text("again"):
        raise BadInput("the two passphrases differ", hint="enter the same passphrase twice")


def _file(visit: Visit) -> dict[str, Any]:
    """A backup file, which a script has put into the form, and its passphrase."""
    return {"file": visit.text("content"), "passphrase": visit.text("passphrase")}


async def _show(
    visit: Visit, shown: list[dict[str, Any]] | None = None, code: str = ""
) -> Response:
    locked = False
    try:
        existing = await _existing(visit)
    except Closed as error:
        if error.reason != "keyring_locked":
            raise
        existing, locked = None, True
    return visit.render(
        "keyring.html",
        phrases=shown,
        # For the printed sheet; a code takes some milliseconds to draw.
        codes=await aside(_draw_codes, shown or []),
        # The typed words are shown again: a word may be mistyped.
        typed=visit.text("phrase") if visit.text("do") in ("restore", "try") else "",
        keyring=existing,
        locked=locked,
        tried=visit.text("do"),
        access=await visit.ask("GET", "/api/devices/"),
        code=code,
        locks_after=format_minutes(services_of(visit.request).keyrings.unlocked_seconds / 60),
        schemas=await visit.ask("GET", "/api/keyring/schemas/") if existing else [],
    )


def _draw_codes(shown: Sequence[Mapping[str, Any]]) -> dict[int, Markup]:
    """Codes by version of the keyring."""
    return {phrase["version"]: draw_code(phrase["phrase"]) for phrase in shown}


async def _existing(visit: Visit) -> dict[str, Any] | None:
    try:
        existing: dict[str, Any] = await visit.ask("GET", "/api/keyring/")
    except NotFound:
        return None
    return existing


routes = [
    page(LET_IN, let_in, methods=("GET", "POST")),
    page("/keyring/", keyring, methods=("GET", "POST")),
]
