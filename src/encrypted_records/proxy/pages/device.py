"""Letting this browser in: its device is taken in for a code, the passphrase or the words."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from encrypted_records.errors import ErsError
from encrypted_records.model import device_secret
from encrypted_records.proxy.pages import phrases
from encrypted_records.proxy.pages.account import OWN_PATH
from encrypted_records.proxy.pages.page import LET_IN, Visit, page

_CODE = re.compile(r"[0-9A-Za-z]{4}[- ]?[0-9A-Za-z]{4}")


async def let_in(visit: Visit) -> Response:
    device = visit.device or device_secret.generate()
    shown = {device_secret.DEVICE_HEADER: device.text}
    back = visit.text("next") if visit.sends else visit.request.query_params.get("next", "")
    values: dict[str, Any] = {"next": back if OWN_PATH.fullmatch(back) else "", "typed": ""}
    values["access"] = (await visit.answer("GET", "/api/devices/", headers=shown)).json()
    if not visit.sends:
        return visit.render("device.html", **values)
    typed = visit.text("shown").strip()
    kind = _kind(typed, values["access"])
    sent = " ".join(phrases.words_of(typed)) if kind == "phrase" else typed
    try:
        body = {kind: sent, "name": _name(visit)}
        await visit.answer("POST", "/api/devices/", body, headers=shown)
    except ErsError as error:
        if kind == "phrase":  # one word of them may be mistyped
            values["typed"] = typed
        return visit.problem(error, "device.html", **values)
    return visit.let_in(visit.session, visit.csrf, values["next"] or "/", device)


def _kind(typed: str, access: dict[str, Any]) -> str:
    """The kind of the typed proof: the words, a code, or the passphrase."""
    if len(phrases.words_of(typed)) == phrases.WORDS:
        return "phrase"
    has_passphrase = access["keyring"] is not None and access["keyring"]["passphrase"]
    return "code" if _CODE.fullmatch(typed) or not has_passphrase else "passphrase"


def _name(visit: Visit) -> str:
    """A name by which this browser is known again in the list of devices."""
    agent = visit.request.headers.get("user-agent", "")
    match = re.search(r"(Firefox|Edg|OPR|Chrome|Safari)", agent)
    names = {"Edg": "Edge", "OPR": "Opera"}
    browser = names.get(match[1], match[1]) if match else "browser"
    system = re.search(r"(Windows|Mac OS X|Android|iPhone|iPad|Linux)", agent)
    return f"{browser} on {system[1]}" if system else browser


routes = [page(LET_IN, let_in, methods=("GET", "POST"))]
