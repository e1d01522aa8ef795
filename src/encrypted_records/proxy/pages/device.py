"""Letting this browser in: its device is taken in for a code, the passphrase or the words."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from encrypted_records import runtime
from encrypted_records.errors import ErsError
from encrypted_records.model import credentials
from encrypted_records.proxy.pages import phrases
from encrypted_records.proxy.pages.account import OWN_PATH
from encrypted_records.proxy.pages.page import LET_IN, Visit, page
from encrypted_records.proxy.services import services_of

_CODE = re.compile(r"[0-9A-Za-z]{4}[- ]?[0-9A-Za-z]{4}")


async def let_in(visit: Visit) -> Response:
    if visit.is_over_mirror:
        return await _let_in_over_mirror(visit)
    device = visit.device or credentials.generate_device_secret()
    shown = {credentials.DEVICE_HEADER: device.text}
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


async def _let_in_over_mirror(visit: Visit) -> Response:
    """Register this browser as a new device, which is a login there; where no keyring is here, the
    words restore it.
    """
    back = visit.text("next") if visit.sends else visit.request.query_params.get("next", "")
    values: dict[str, Any] = {"next": "", "typed": ""}
    if OWN_PATH.fullmatch(back) and back != LET_IN:
        values["next"] = back
    if not visit.sends:
        return visit.render("device_mirror.html", **values)
    device = credentials.generate_device_secret()
    shown = {credentials.DEVICE_HEADER: device.text}
    typed = visit.text("shown").strip()
    is_code = _CODE.fullmatch(typed) is not None
    sent = phrases.phrases_of(typed)
    name = {"name": _name(visit)}
    try:
        if is_code or services_of(visit.request).admission.enrolment.users():
            body = {"code": typed} if is_code else {"phrase": sent[-1] if sent else ""}
            await visit.answer("POST", "/api/devices/", name | body, headers=shown)
        else:
            await visit.answer("POST", "/api/keyring/restore/", {"phrases": sent}, headers=shown)
    except ErsError as error:
        values["typed"] = "" if is_code else typed
        return visit.problem(error, "device_mirror.html", **values)
    # A session is there only to be ended by logging out.
    session, csrf = runtime.random_hex(16), runtime.random_hex(16)
    return visit.let_in(session, csrf, values["next"] or "/", device)


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
