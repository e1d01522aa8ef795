"""Pages of login and account, with the second factor and API tokens.

A visitor registers, opens signed links, logs in and out, changes the password or the address, and
deletes the account. Opening an e-mailed link changes nothing, because mail scanners open links too;
the page's button does. After an error, the form shows the typed input again, except passwords. Keys
and recovery codes of a second factor, and the API token itself, are shown only by the answer that
made them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any

import segno
from markupsafe import Markup
from starlette.responses import Response

from encrypted_records.client.proxy.connection import ShownDataset
from encrypted_records.errors import BadInput, ErsError, NotAuthenticated, NotFound
from encrypted_records.model import credentials, ids
from encrypted_records.model.credentials import DeviceSecret
from encrypted_records.model.forwarded import CSRF, SESSION
from encrypted_records.model.resources import ApiTokenResource, OrganizationResource
from encrypted_records.proxy.auth import RequestCredentials
from encrypted_records.proxy.pages.formatting import whole
from encrypted_records.proxy.pages.internal_client import ProxyAnswer
from encrypted_records.proxy.pages.page import LET_IN, LOG_IN, Visit, page
from encrypted_records.proxy.services import services_of

#: Valid redirect targets after login: pages of this proxy only.
OWN_PATH = re.compile(r"/(?:[A-Za-z0-9_-]+/)*(?:\?q=[A-Za-z0-9_-]{1,64})?")


def next_of(visit: Visit) -> str:
    """The page of this proxy that the form, or the address, leads to; empty if there is none."""
    back = visit.text("next") or visit.request.query_params.get("next", "")
    return back if OWN_PATH.fullmatch(back) else ""


@dataclass(frozen=True, slots=True)
class _SignedLinkPage:
    """One kind of signed link, and the texts of its page."""

    path: str
    endpoint: str
    title: str
    explanation: str
    button: str
    done_title: str
    done: str
    #: text for a link that does not work: what to do, and the page for it
    instead: str
    again: tuple[str, str]
    asks_password: bool = False

    async def __call__(self, visit: Visit) -> Response:
        query = visit.request.query_params
        names = ("user_id", "timestamp", "signature")
        signed = {name: visit.text(name, query.get(name, "")) for name in names}
        if not visit.sends:
            return visit.render("signed_form.html", link=self, signed=signed)
        body: dict[str, object] = {**signed, "timestamp": whole(signed["timestamp"], 15) or 0}
        if self.asks_password:
            body["password"] = visit.text("password")
        await visit.ask("POST", self.endpoint, body)
        return visit.render(
            "said.html", title=self.done_title, lines=[self.done], link=(LOG_IN, "Log in")
        )


_LINKS = (
    _SignedLinkPage(
        path="/verify-registration/",
        endpoint="/api/accounts/verify-registration/",
        title="Confirm your e-mail address",
        explanation="With one click, your account is ready to use.",
        button="Confirm my address",
        done_title="Your address is confirmed",
        done="You can now log in with your e-mail address and password.",
        instead="A link works once, and for seven days. If you used it before, your account is"
        " ready: log in. If not, register again with the same address to get a new message.",
        again=("/register/", "Register again"),
    ),
    _SignedLinkPage(
        path="/confirm-email/",
        endpoint="/api/accounts/confirm-email/",
        title="Use this e-mail address",
        explanation="The account gets the address that the message was sent to.",
        button="Use this address",
        done_title="Your address is changed",
        done="Log in with the new address and the same password. Earlier logins and API tokens have"
        " ended.",
        instead="A link works once, and for a day. Another link, or a new password, ends it.",
        again=("/account/email/", "Ask for a new message"),
    ),
    _SignedLinkPage(
        path="/reset-password/",
        endpoint="/api/accounts/reset-password/",
        title="Choose a new password",
        explanation="The password must have at least 12 characters. Your records stay unchanged.",
        button="Set the password",
        done_title="Your password is changed",
        done="Log in with the new password. Other sessions and API tokens have ended.",
        instead="A link works once, and for an hour.",
        again=("/forgot-password/", "Ask for a new message"),
        asks_password=True,
    ),
)


def _cookies(answer: ProxyAnswer) -> dict[str, str]:
    """The values of the cookies that the API has set, by name."""
    cookies: SimpleCookie = SimpleCookie()
    for name, value in answer.headers:
        if name.lower() == b"set-cookie":
            cookies.load(value.decode("latin-1"))
    return {name: morsel.value for name, morsel in cookies.items()}


def _device_for(visit: Visit, user: bytes) -> DeviceSecret:
    """The browser's device for a user; a new device if the current device is another user's."""
    parts, device = services_of(visit.request), visit.device
    if device is not None:
        try:
            owner = parts.admission.enrolment.owner_of(device)
        except NotAuthenticated:  # the device was revoked
            device = None
        else:
            if owner is not None and owner != user:
                device = None
    return device or credentials.generate_device_secret()


async def log_in(visit: Visit) -> Response:
    if visit.is_over_mirror:
        return visit.go(LET_IN)
    back, email = next_of(visit), visit.text("email")
    if not visit.sends:
        reason = "" if visit.refusal is None else visit.refusal.reason
        asks = reason in {"second_factor_required", "wrong_code"}
        return visit.render("login.html", next=back, email=email, asks_code=asks)
    body = {"email": email, "password": visit.text("password"), "code": visit.text("code")}
    answer = await visit.ask_as_session("/api/accounts/login/", body)
    visit.forget()
    cookies = _cookies(answer)
    session, csrf = cookies.get(SESSION, ""), cookies.get(CSRF, "")
    parts = services_of(visit.request)
    user = (await parts.access.caller(RequestCredentials("session", session))).user
    parts.desks.hand_over(visit.session, session, user)
    target = back if back not in ("", LOG_IN) else "/"
    return visit.let_in(session, csrf, target, _device_for(visit, user))


async def log_out(visit: Visit) -> Response:
    if not visit.is_over_mirror:
        await visit.ask_as_session("/api/accounts/logout/")
    visit.forget()
    services_of(visit.request).desks.clear(visit.session)
    return visit.let_out(LOG_IN)


async def register(visit: Visit) -> Response:
    names = ("email", "organization_name", "password", "password_confirm")
    sent = {name: visit.text(name) for name in names}
    if not visit.sends:
        return visit.render("register.html", values=sent)
    answer = await visit.ask("POST", "/api/accounts/register/", sent)
    return visit.render(
        "said.html",
        title="Check your mail",
        lines=[
            f"A message is on its way to {sent['email']}.",
            *_mail_location(answer),
            "The link in the message confirms the address; then you can log in. It works"
            " for seven days.",
            "If no message arrives, or the address is wrong, register again: a new"
            " message is sent.",
        ],
        link=("/register/", "Register again"),
    )


def _mail_location(answer: Any) -> list[str]:
    """Text for a server without a mail server: where its messages are."""
    if not isinstance(answer, dict) or answer.get("mail") != "folder":
        return []
    return [
        "No mail server is configured, so the message is a file in the folder mail of the"
        " server's data. A server that was started in a terminal also shows the link there.",
    ]


async def ask_for_link(visit: Visit) -> Response:
    if not visit.sends:
        return visit.render("forgot.html")
    answer = await visit.ask(
        "POST", "/api/accounts/send-reset-password-link/", {"email": visit.text("email")}
    )
    return visit.render(
        "said.html",
        title="Check your mail",
        lines=[
            "If the address has an account, a message with a link is on its way.",
            *_mail_location(answer),
            "The link works for an hour.",
        ],
        link=None,
    )


async def show_account(visit: Visit) -> Response:
    if not visit.sends:
        return visit.render(
            "account.html",
            user=await visit.ask("GET", "/api/users/self/"),
            organizations=await visit.every(OrganizationResource),
            second_factor=await second_factor_state(visit),
        )
    names = ("old_password", "password", "password_confirm", "code")
    answer = await visit.ask_as_session(
        "/api/accounts/change-password/", {name: visit.text(name) for name in names}
    )
    visit.forget()
    # A page's cookie has a device in addition to the session, so a logged-in visitor has both.
    assert visit.device is not None
    cookies = _cookies(answer)
    session = cookies.get(SESSION, visit.session)
    return visit.let_in(session, cookies.get(CSRF, visit.csrf), "/account/changed/", visit.device)


async def change_email(visit: Visit) -> Response:
    """Request a new address; the account gets it when the link in the message is used."""
    sent = {name: visit.text(name) for name in ("email", "password", "code")}
    if not visit.sends:
        return visit.render(
            "account_email.html",
            user=await visit.ask("GET", "/api/users/self/"),
            second_factor=await second_factor_state(visit),
            email=sent["email"],
        )
    answer = await visit.ask("POST", "/api/accounts/change-email/", sent)
    return visit.render(
        "said.html",
        title="Check the mail of the new address",
        lines=[
            f"A message is on its way to {sent['email']}.",
            *_mail_location(answer),
            "The link in it gives your account this address. It works for a day; until you use it,"
            " you log in with the present address.",
        ],
        link=("/account/", "Go to your account"),
    )


async def delete_account(visit: Visit) -> Response:
    """Explain the deletion, and delete the account. If rosters contain it, it leaves them by
    entries that this proxy signs, after the password was verified.
    """
    organizations = (await visit.ask("GET", "/api/accounts/delete/"))["organizations"]
    if not visit.sends:
        return visit.render(
            "account_delete.html",
            user=await visit.ask("GET", "/api/users/self/"),
            second_factor=await second_factor_state(visit),
            organizations=organizations,
        )
    await _delete(visit, organizations)
    visit.forget()
    services_of(visit.request).desks.clear(visit.session)
    return visit.let_out("/account/deleted/")


async def _delete(visit: Visit, organizations: Sequence[Mapping[str, Any]]) -> None:
    unsigned = visit.text("unsigned") == "yes"
    body: dict[str, object] = {"password": visit.text("password"), "unsigned": unsigned}
    if code := visit.text("code"):
        body["code"] = code
    path = "/api/accounts/delete/"
    try:
        await visit.ask_as_session(path, body)
    except ErsError as error:
        if error.reason != "in_roster":  # which comes after the check of password and code
            raise
    else:
        return
    obstacles = {organization["outcome"] for organization in organizations} - {"leave", "delete"}
    for organization in organizations:
        if organization["signed"] and not unsigned and not obstacles:
            await _leave(visit, organization["organization"])
    await visit.ask_as_session(path, body)


async def _leave(visit: Visit, organization: str) -> None:
    """Sign that the visitor leaves. The roster determines the visitor's member, so an API that
    names another member cannot have that member removed.
    """
    named = ids.from_reference(organization, "organizations", pointer="/organization")
    path = ids.reference("organizations", named)
    for person in (await visit.ask("GET", f"{path}people/"))["people"]:
        if person["you"]:
            await visit.ask("DELETE", f"{path}people/{person['id']}/")


async def say_deleted(visit: Visit) -> Response:
    return visit.render(
        "said.html",
        title="Your account is deleted",
        lines=["A last message says so at the address that it had."],
        link=("/register/", "Register an account"),
    )


async def say_changed(visit: Visit) -> Response:
    return visit.render(
        "said.html",
        title="Your password is changed",
        lines=["Other sessions, access tokens and API tokens have ended. This session continues."],
        link=("/", "Go to the overview"),
    )


# --- codes to scan: inline SVG without styles, which the pages' policy would refuse ---------------

#: Width of the quiet zone, which readers need to find the code (ISO/IEC 18004), in modules.
QUIET_MODULES = 4


def draw_code(phrase: str) -> Markup:
    """An ``svg`` of the class ``code-modules``, which is readable with up to a sixth of it lost.

    The code of a keyring contains its words in plain text, separated by spaces, so that any code
    reader can type them into the form. The code is as secret as the words.
    """
    code = segno.make(phrase, error="m", micro=False)
    # Always dark on light: readers may not support the inverse.
    drawn = code.svg_inline(
        border=QUIET_MODULES,
        dark="#000",
        light="#fff",
        omitsize=True,
        svgclass="code-modules",
        lineclass=None,
    )
    return Markup(drawn)  # noqa: S704 - numbers alone, whatever the words are


# --- the second factor ----------------------------------------------------------------------------

_FACTOR_PATH = "/account/second-factor/"
_FACTOR_ENDPOINT = f"/api/accounts{_FACTOR_PATH.removeprefix('/account')}"
_FACTOR_TEMPLATE = "second_factor.html"


async def second_factor(visit: Visit) -> Response:
    shown: dict[str, Any] = {"codes": None, "key": ""}
    do = visit.text("do")
    if visit.sends:
        shown |= await _change_factor(visit, do)
    elif do == "confirm":
        shown |= _new_factor(visit.text("key"), visit.text("uri"))
    return visit.render(_FACTOR_TEMPLATE, **shown, second_factor=await second_factor_state(visit))


async def second_factor_state(visit: Visit) -> Any:
    """The state of the visitor's second factor from the API: ``enabled`` and ``recovery_codes``."""
    return await visit.ask("GET", _FACTOR_ENDPOINT)


async def _change_factor(visit: Visit, do: str) -> dict[str, Any]:
    owner = {name: visit.text(name) for name in ("password", "code")}
    match do:
        case "begin":
            made = await visit.ask("POST", _FACTOR_ENDPOINT, owner)
            return _new_factor(made["key"], made["uri"])
        case "confirm":
            made = await visit.ask("POST", f"{_FACTOR_ENDPOINT}confirm/", {"code": owner["code"]})
        case "renew":
            made = await visit.ask("POST", f"{_FACTOR_ENDPOINT}recovery-codes/", owner)
        case "remove":
            await visit.ask("POST", f"{_FACTOR_ENDPOINT}remove/", owner)
            return {}
        case _:
            raise BadInput("the form requests something that this page does not do")
    return {"codes": made["recovery_codes"]}


def _new_factor(key: str, uri: str) -> dict[str, Any]:
    return {"key": key, "uri": uri, "picture": draw_code(uri)}


# --- API tokens -----------------------------------------------------------------------------------

_TOKENS_PATH = "/account/tokens/"
_TOKEN_ID = re.compile(ids.PATTERN)
#: Prefix of the names of datasets' checkboxes.
_TICK = "dataset-"
_DAY = 86_400


async def tokens(visit: Visit) -> Response:
    made: dict[str, Any] | None = None
    if visit.sends:
        do, _, target = visit.text("do").partition(":")
        if do == "revoke":
            await _revoke_token(visit, target)
            return visit.go(_TOKENS_PATH)
        made = await visit.ask("POST", "/api/tokens/", _token_request(visit))
    datasets = await visit.every(ShownDataset)
    return visit.render(
        "api_tokens.html",
        made=made,
        tokens=await visit.every(ApiTokenResource, "/api/tokens/"),
        second_factor=await second_factor_state(visit),
        datasets=datasets,
        names={dataset.url: dataset.name for dataset in datasets},
        # Sending the form again must not make the same token again.
        typed={} if made else visit.form,
    )


def _token_request(visit: Visit) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": visit.text("name"),
        "scope": visit.text("scope"),
        "expires_in": (whole(visit.text("days"), 8) or 0) * _DAY,
        "password": visit.text("password"),
        "code": visit.text("code"),
    }
    if visit.text("reach") != "all":
        # Also sent if none is ticked: the API refuses an empty list, whereas a missing list would
        # mean all datasets.
        ticked = [name.removeprefix(_TICK) for name in visit.form if name.startswith(_TICK)]
        body["datasets"] = [f"/api/datasets/{dataset}/" for dataset in ticked]
    return body


async def _revoke_token(visit: Visit, token: str) -> None:
    if not _TOKEN_ID.fullmatch(token):
        raise NotFound("there is no such token")
    await visit.ask("DELETE", f"/api/tokens/{token}/")


routes = [
    *(page(link.path, link, methods=("GET", "POST"), public=True) for link in _LINKS),
    page(LOG_IN, log_in, methods=("GET", "POST"), public=True),
    page("/logout/", log_out, methods=("POST",)),
    page("/register/", register, methods=("GET", "POST"), public=True),
    page("/forgot-password/", ask_for_link, methods=("GET", "POST"), public=True),
    page("/account/", show_account, methods=("GET", "POST")),
    page("/account/changed/", say_changed),
    page("/account/email/", change_email, methods=("GET", "POST")),
    page("/account/delete/", delete_account, methods=("GET", "POST")),
    page("/account/deleted/", say_deleted, public=True),
    page(_FACTOR_PATH, second_factor, methods=("GET", "POST")),
    page(_TOKENS_PATH, tokens, methods=("GET", "POST")),
]
