"""One request for a page: who visits, what their form says, and what the page answers.

- Pages take the session cookie and nothing else. A form carries the CSRF token in a field, since
  forms work without scripts; from here on it is the header that the interface asks for.
- Whatever a page shows or does, it asks of the endpoints under /api/ (:mod:`..inside`).
- An error is shown in the words of its problem document, with the fix; whoever is not logged in
  is sent to the page for it. No page answers with a bare status.
- No page runs an inline script or loads anything from another host, and browsers are told not to
  keep one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from encrypted_records.errors import BadInput, ErsError, NotAuthenticated
from encrypted_records.model import problem as problems
from encrypted_records.proxy import answers
from encrypted_records.proxy.access import READING, credentials_of
from encrypted_records.proxy.desk import Desk
from encrypted_records.proxy.inside import Answer, Inside
from encrypted_records.proxy.parts import parts_of
from encrypted_records.proxy.routes.bodies import media_type, read_body
from encrypted_records.proxy.routes.web import words

LOG_IN = "/login/"
MAX_FORM_BYTES = 4 << 20
MAX_FORM_FIELDS = 10_000
_SESSION, _CSRF = "sessionid", "csrftoken"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # The address of a signed link is secret. "no-referrer" would turn forms' Origin into null.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
}
templates = Environment(
    loader=PackageLoader("encrypted_records.proxy.web"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
templates.filters |= words.FILTERS


class Visit:
    """A request as pages see it. ``inside`` asks in the visitor's name, where there is one."""

    def __init__(self, request: Request) -> None:
        self.request = request
        #: What was typed into the form; of fields of one name, the last.
        self.form: Mapping[str, str] = {}
        self.session = request.cookies.get(_SESSION, "")
        self.csrf = request.cookies.get(_CSRF, "")
        self.known = False
        self._inside = Inside(request, {})

    @property
    def id(self) -> str:
        """The identifier in the page's path."""
        return str(self.request.path_params["id"])

    @property
    def sends(self) -> bool:
        """Whether a form was sent, rather than a page asked for."""
        return self.request.method == "POST"

    @property
    def desk(self) -> Desk:
        return parts_of(self.request).desks.of(self.session)

    async def open(self, *, public: bool) -> None:
        """Read the form and find out who visits.

        Raises:
            NotAuthenticated: nobody, on a page that is not ``public``.
            NotAllowed: a form without the session's CSRF token.
            TooLarge: a form of absurd length.
        """
        if self.sends:
            self.form = await _read_form(self.request)
        if public:
            return
        caller = await parts_of(self.request).caller(self._as_session())
        self._inside = Inside(self.request, {"authorization": caller.auth})
        self.known = True

    def _as_session(self, method: str = "") -> Request:
        """The request as a script of ours would have sent it: cookies and the CSRF header."""
        headers = self._session_headers().items()
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        changed = {"headers": raw, "method": method or self.request.method}
        return Request({**self.request.scope, **changed})

    def _session_headers(self) -> dict[str, str]:
        sent = self.request.headers
        headers = {"host": sent.get("host", ""), "cookie": sent.get("cookie", "")}
        token = sent.get("x-csrftoken") or self.text("csrf")
        if self.sends and token:
            headers["x-csrftoken"] = token
        if "origin" in sent:
            headers["origin"] = sent["origin"]
        return headers

    def text(self, name: str, default: str = "") -> str:
        """A field of the form."""
        return self.form.get(name, default)

    async def ask(
        self, method: str, path: str, body: Any = None, params: Mapping[str, str] | None = None
    ) -> Any:
        """The JSON that an endpoint answers; raises the error it answers with."""
        return (await self._inside.ask(method, path, body, params=params)).json()

    async def answer(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """As :meth:`ask`, with headers of its own, and those of the answer."""
        return await self._inside.ask(method, path, body, headers=headers)

    async def ask_as_session(self, path: str, body: Any = None) -> Answer:
        """POST with the cookies themselves, where the session is what the request is about."""
        return await self._inside.ask("POST", path, body, headers=self._session_headers())

    def hand_on(self, path: str, body: Any, headers: Mapping[str, str]) -> Response:
        """The answer of an endpoint as the page's own, streaming."""
        return self._inside.hand_on("POST", path, body, headers=headers)

    async def every(self, path: str, **params: str) -> list[dict[str, Any]]:
        """All results of a list, page by page."""
        found: list[dict[str, Any]] = []
        while True:
            page = await self.ask(
                "GET", path, params={**params, "limit": "1000", "offset": str(len(found))}
            )
            found += page["results"]
            if page["next"] is None or not page["results"]:
                return found

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        values.setdefault("problem", None)
        html = templates.get_template(template).render(
            csrf=self.csrf,
            known=self.known,
            path=self.request.url.path,
            built=words.scripts_are_built(),
            **values,
        )
        return HTMLResponse(html, status, headers=_HEADERS)

    def problem(self, error: ErsError, template: str = "problem.html", **values: Any) -> Response:
        """A page that shows what went wrong: one of its own, or the form that was sent."""
        status = problems.status_of(error)
        response = self.render(template, status, problem=error, **values)
        if error.retry_after is not None:
            response.headers["Retry-After"] = str(error.retry_after)
        return response

    def download(self, content: bytes, name: str) -> Response:
        """A file for the visitor to keep."""
        headers = {**_HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, headers=headers, media_type="application/octet-stream")

    def go(self, path: str) -> Response:
        """On to another page, after a form did what it says; back to this one, to show that."""
        if "hx-request" in self.request.headers and path != self.request.url.path:
            return _elsewhere(path)
        return RedirectResponse(path, 303, headers=_HEADERS)

    def forget(self) -> None:
        """Drop what is remembered of the session: it has ended."""
        parts = parts_of(self.request)
        parts.desks.clear(self.session)
        for method in ("GET", "POST"):
            with suppress(NotAuthenticated):  # it may have come without any
                parts.access.forget(credentials_of(self._as_session(method)))


async def _read_form(request: Request) -> dict[str, str]:
    if media_type(request) != "application/x-www-form-urlencoded":
        raise BadInput("this is not a form of ours", hint="use the page's own form")
    body = await read_body(request, limit=MAX_FORM_BYTES)
    try:
        return dict(
            parse_qsl(
                body.decode(),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=MAX_FORM_FIELDS,
            )
        )
    except ValueError:
        raise BadInput("the form is not UTF-8, or has too many fields") from None


Endpoint = Callable[[Visit], Awaitable[Response]]


def page(
    path: str, endpoint: Endpoint, *, methods: Sequence[str] = ("GET",), public: bool = False
) -> Route:
    """A route to a page. ``public`` pages ask nobody who they are."""

    async def answered(request: Request) -> Response:
        visit = Visit(request)
        try:
            await visit.open(public=public)
            return await endpoint(visit)
        except NotAuthenticated as error:
            if public:
                return visit.problem(error)
            visit.forget()
            return _to_log_in(request)
        except ErsError as error:
            return visit.problem(error)
        except Exception as error:
            await answers.on_bug(request, error)
            return visit.problem(ErsError("something unexpected happened in the proxy"))

    return Route(path, answered, methods=list(methods))


def _to_log_in(request: Request) -> Response:
    """To the page for logging in, and afterwards back here."""
    back = request.url.path if request.method in READING else "/"
    target = LOG_IN if back == "/" else f"{LOG_IN}?next={back}"
    if "hx-request" in request.headers:
        return _elsewhere(target)
    return RedirectResponse(target, 303, headers=_HEADERS)


def _elsewhere(path: str) -> Response:
    """For htmx, which would follow a redirect and put that page into a part of this one."""
    return Response(status_code=204, headers={"HX-Redirect": path})
