"""The pages behind the links in messages: confirm an address, choose a new password.

Opening a link changes nothing, since mail scanners open links too; the page's button does. Pages
load nothing from other hosts and run no script.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs

from jinja2 import Environment, PackageLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from encrypted_records.errors import ErsError
from encrypted_records.proxy.parts import parts_of
from encrypted_records.proxy.routes.bodies import read_body

_MAX_FORM_BYTES = 16 << 10
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'"
    ),
    # The address holds a signature. "no-referrer" would also turn the form's Origin into null.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_templates = Environment(
    loader=PackageLoader("encrypted_records.proxy.web"), autoescape=True, trim_blocks=True
)


@dataclass(frozen=True, slots=True)
class _Form:
    """One kind of signed link and what its page says."""

    path: str
    endpoint: str
    title: str
    explanation: str
    button: str
    done_title: str
    done: str
    asks_password: bool = False


_FORMS = (
    _Form(
        path="/verify-registration/",
        endpoint="/api/accounts/verify-registration/",
        title="Confirm your e-mail address",
        explanation="One click, and your account is ready to use.",
        button="Confirm my address",
        done_title="Your address is confirmed",
        done="You can log in now, with your e-mail address and password.",
    ),
    _Form(
        path="/reset-password/",
        endpoint="/api/accounts/reset-password/",
        title="Choose a new password",
        explanation="At least 12 characters. Your records stay as they are.",
        button="Set the password",
        done_title="Your password is changed",
        done="Log in with the new one. Other sessions have ended.",
        asks_password=True,
    ),
)


def _page(template: str, status: int = 200, **values: object) -> Response:
    html = _templates.get_template(template).render(**values)
    return HTMLResponse(html, status, headers=_HEADERS)


def _form_page(
    form: _Form, signed: dict[str, str], *, status: int = 200, problem: str = ""
) -> Response:
    return _page(
        "signed_form.html",
        status,
        title=form.title,
        explanation=form.explanation,
        button=form.button,
        action=form.path,
        asks_password=form.asks_password,
        signed=signed,
        problem=problem,
    )


def _signed(values: dict[str, str]) -> dict[str, str]:
    return {name: values.get(name, "") for name in ("user_id", "timestamp", "signature")}


def _route(form: _Form) -> Route:
    async def endpoint(request: Request) -> Response:
        if request.method != "POST":
            return _form_page(form, _signed(dict(request.query_params)))
        body = (await read_body(request, limit=_MAX_FORM_BYTES)).decode("utf-8", "replace")
        sent = {name: values[-1] for name, values in parse_qs(body).items()}
        return await _submit(request, form, sent)

    return Route(form.path, endpoint, methods=["GET", "POST"])


async def _submit(request: Request, form: _Form, sent: dict[str, str]) -> Response:
    signed = _signed(sent)
    timestamp = signed["timestamp"]
    asked: dict[str, object] = {
        **signed,
        "timestamp": int(timestamp) if timestamp.isascii() and timestamp.isdecimal() else 0,
    }
    if form.asks_password:
        asked["password"] = sent.get("password", "")
    try:
        await parts_of(request).api.transport.request("POST", form.endpoint, json=asked)
    except ErsError as error:
        words = " ".join([error.message, *(flaw.detail for flaw in error.flaws)])
        return _form_page(form, signed, status=400, problem=words)
    return _page("page.html", title=form.done_title, lines=[form.done])


async def home(_request: Request) -> Response:
    return _page(
        "page.html",
        title="The encryption proxy is running",
        lines=[
            "Programs reach it at this address, under /api/.",
            "Pages for people to search and upload in are not built yet.",
        ],
    )


routes = [
    Route("/", home),
    *(_route(form) for form in _FORMS),
    Mount("/static", StaticFiles(packages=[("encrypted_records.proxy.web", "static")])),
]
