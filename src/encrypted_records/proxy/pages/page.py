"""One request for a page: the visitor, the form, and the answer.

- Pages accept only the page's cookie (:mod:`encrypted_records.proxy.http.sessions`). The cookie of
  an API session is ignored here: any port of this host can plant such a cookie, and the visitor
  would work in another user's account. A form has the CSRF token in a field, because forms work
  without scripts; this module converts it to the header that the interface requires.
- A form with a file (multipart/form-data) is read as a stream: its fields, then the file, which is
  its last part and may be of any size. The file is forwarded in pieces and never held as a whole,
  in memory or on disk. All fields precede it in the page, so they are known at its first byte.
- A page uses only the endpoints under /api/ for its content and actions (:mod:`.internal_client`).
- An error is shown with the text of its problem document and a solution. A visitor who is not
  logged in is redirected to the login page. No page answers with a bare status.
- A malformed identifier in a page's address is an unknown page.
- No page runs an inline script or loads anything from another host. Response headers tell browsers
  not to cache pages, and not to give them access to devices.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from encrypted_records.client.messages import Journal, PageCost, keep_journal
from encrypted_records.client.proxy.connection import COLLECTIONS
from encrypted_records.errors import (
    ApiFailed,
    BadInput,
    ErsError,
    NotAuthenticated,
    NotFound,
    TooLarge,
)
from encrypted_records.http import problem as problems
from encrypted_records.model import ids
from encrypted_records.model.credentials import DeviceSecret
from encrypted_records.model.forwarded import CSRF, SESSION
from encrypted_records.model.resources import ListPage
from encrypted_records.proxy.admission import SCOPE_DEVICE
from encrypted_records.proxy.auth import credentials_of
from encrypted_records.proxy.http import messages as answers
from encrypted_records.proxy.http.sessions import Desk, PageCookie, at_of
from encrypted_records.proxy.pages import formatting as words
from encrypted_records.proxy.pages import frame
from encrypted_records.proxy.pages.internal_client import Inside, Parameters, ProxyAnswer, T
from encrypted_records.proxy.pages.templating import templates
from encrypted_records.proxy.process import LONG_BYTES, aside
from encrypted_records.proxy.services import services_of

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks


PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # The address of a signed link is secret. "no-referrer" would turn forms' Origin into null.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": ", ".join(
        f"{power}=()"
        for power in (
            *("accelerometer", "autoplay", "camera", "display-capture", "encrypted-media"),
            *("fullscreen", "geolocation", "gyroscope", "hid", "idle-detection", "magnetometer"),
            *("microphone", "midi", "payment", "publickey-credentials-get", "screen-wake-lock"),
            *("serial", "usb", "xr-spatial-tracking"),
        )
    ),
}


# --- forms with a file ----------------------------------------------------------------------------

FORM_MEDIA_TYPE = "multipart/form-data"
#: Maximum bytes of all fields together; the file does not count.
MAX_FIELDS_BYTES = 4 << 20
MAX_PARTS = 10_000


@dataclass
class _FormPart:
    name: str = ""
    filename: str | None = None
    content: bytearray = field(default_factory=bytearray, repr=False)


class FileForm:
    """``fields`` has the fields before the file; ``filename`` is empty if no file was chosen."""

    def __init__(self, request: Request) -> None:
        """
        Raises:
            BadInput: the request is not such a form.
        """
        _, options = parse_options_header(request.headers.get("content-type"))
        boundary = options.get(b"boundary")
        if not boundary:
            raise _no_form()
        self.fields: dict[str, str] = {}
        self.filename = ""
        self._stream = request.stream()
        self._pieces: deque[bytes] = deque()
        self._part = _FormPart()
        self._header: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self._size = self._count = 0
        self._in_file = self._complete = False
        self._parser = MultipartParser(boundary, _callbacks(self))

    async def open(self) -> None:
        """Read up to the file's first bytes, or to the end of a form without a file.

        Raises:
            BadInput: it is malformed.
            TooLarge: its fields are too large.
        """
        while not (self._in_file or self._complete) and await self._feed():
            pass

    async def file(self) -> AsyncIterator[bytes]:
        """The file's bytes; empty if no file was chosen."""
        while True:
            while self._pieces:
                yield self._pieces.popleft()
            if not await self._feed():
                break
        if not self._complete:
            raise _no_form()

    async def _feed(self) -> bool:
        async for chunk in self._stream:
            if not chunk:
                continue
            try:
                self._parser.write(chunk)
            except FormParserError:
                raise _no_form() from None
            if self._size > MAX_FIELDS_BYTES or self._count > MAX_PARTS:
                raise TooLarge("the form's fields are too long")
            return True
        return False

    # --- callbacks of the parser --------------------------------------------------------------

    def on_part_begin(self) -> None:
        self._part = _FormPart()
        self._count += 1
        self._in_file = False

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def on_header_end(self) -> None:
        name, value = (bytes(part) for part in self._header)
        self._header = (bytearray(), bytearray())
        if name.lower() == b"content-disposition":
            _, options = parse_options_header(value)
            self._part.name = options.get(b"name", b"").decode(errors="replace")
            if b"filename" in options:
                self._part.filename = options[b"filename"].decode(errors="replace")

    def on_headers_finished(self) -> None:
        if self._part.filename:
            self.filename = self._part.filename
            self._in_file = True

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._pieces.append(data[start:end])
            return
        self._part.content += data[start:end]
        self._size += end - start

    def on_part_end(self) -> None:
        if self._part.filename is None:
            self.fields[self._part.name] = self._part.content.decode(errors="replace")

    def on_end(self) -> None:
        self._complete = True


def _callbacks(form: FileForm) -> MultipartCallbacks:
    return {
        "on_part_begin": form.on_part_begin,
        "on_header_field": form.on_header_field,
        "on_header_value": form.on_header_value,
        "on_header_end": form.on_header_end,
        "on_headers_finished": form.on_headers_finished,
        "on_part_data": form.on_part_data,
        "on_part_end": form.on_part_end,
        "on_end": form.on_end,
    }


def _no_form() -> BadInput:
    return BadInput("this is not a form of this proxy", hint="use the form of the page")


# --- a visit --------------------------------------------------------------------------------------

LOG_IN = "/login/"
LET_IN = "/device/"
#: The route name of former addresses of pages.
MOVED = "moved"
MAX_FORM_BYTES = 4 << 20
MAX_FORM_FIELDS = 10_000
#: Bounds of a list: an untrusted API may have a list without an end.
MOST_LIST_PAGES = 1000
MOST_LIST_BYTES = 256 << 20
_ID = re.compile(ids.PATTERN)
#: The required forms of parts of a page's path, by the parameter names in routes.
_FORMS = {
    "id": _ID,
    "member": _ID,
    "question": _ID,
    "job": re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
}
_QUESTION = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class Visit:
    """A request for a page. ``inside`` calls endpoints on behalf of the visitor, if there is
    one.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        #: The fields of the form as typed; the last value of each name.
        self.form: Mapping[str, str] = {}
        #: The secret path above this page; its links begin with it.
        self.at = at_of(request)
        self.session = request.cookies.get(SESSION, "") if self.at else ""
        self.csrf = request.cookies.get(CSRF, "") if self.at else ""
        #: The form with its file, if the page accepts a file and the request has one.
        self.sent_file: FileForm | None = None
        self.known = False
        #: the identifier of the logged-in user
        self.user = ""
        #: the frame around the page; None if the visitor is not logged in
        self.frame: frame.PageFrame | None = None
        self.device: DeviceSecret | None = request.scope.get(SCOPE_DEVICE)
        #: The endpoints' requests to the API for this page.
        self.tally = PageCost()
        #: The name of the question that this page shows, if its address has another name or none.
        self.question = ""
        #: The error that the page shows; also of its form, which is shown again as it was typed.
        self.refusal: ErsError | None = None
        self._inside = Inside(request, {})

    @property
    def id(self) -> str:
        """The identifier in the page's path."""
        return self.part("id")

    def part(self, name: str) -> str:
        """A part of the page's path, checked for its form."""
        return str(self.request.path_params[name])

    @property
    def has_form(self) -> bool:
        """Whether the request is a form."""
        return self.request.method == "POST"

    @property
    def sends(self) -> bool:
        """Whether a form is to be carried out, instead of a page shown, which may be that of a
        refused form.
        """
        return self.has_form and self.refusal is None

    @property
    def is_over_mirror(self) -> bool:
        """Whether the proxy reads from a mirror, where devices are the only logins."""
        return services_of(self.request).mirrored is not None

    @property
    def is_for_part(self) -> bool:
        """Whether a script requests a part of the page's content."""
        sent = self.request.headers
        return "hx-request" in sent and sent.get("hx-target", "main") not in ("main", "")

    @cached_property
    def desk(self) -> Desk:
        return services_of(self.request).desks.of(self.session)

    @property
    def journal(self) -> Journal:
        """The journal of data that left this proxy for pages of this session."""
        return self.desk.item(("journal",), Journal)

    @property
    def cost(self) -> str:
        """The cost of the page for a script: requests, bytes both ways, pages of the index,
        rows.
        """
        tally = self.tally
        return f"{tally.requests} {tally.sent + tally.received} {tally.pages} {tally.rows}"

    async def open(self, *, public: bool, files: bool = False, part: bool = False) -> None:
        """Check the URL, read the form and identify the visitor.

        Args:
            files: whether the form may contain a file, which is not read yet.
            part: whether the answer is a fragment, so that the frame is not loaded.

        Raises:
            NotFound: the path contains a malformed identifier.
            NotAuthenticated: the visitor is not logged in, on a page that is not ``public``.
            NotAllowed: a form without the session's CSRF token.
            TooLarge: the form is too long.
        """
        # Also around a page without login, or if the request is refused before login.
        self.frame = frame.find_last(services_of(self.request).desks.known(self.session))
        for name, form in _FORMS.items():
            if name in self.request.path_params and not form.fullmatch(self.part(name)):
                raise NotFound("there is no such page")
        if self.has_form and files and answers.media_type(self.request) == FORM_MEDIA_TYPE:
            self.sent_file = FileForm(self.request)
            await self.sent_file.open()
            self.form = self.sent_file.fields
        elif self.has_form:
            self.form = await _read_form(self.request)
        if public or (self.path == LET_IN and self.is_over_mirror):
            return
        caller = await services_of(self.request).caller(self.as_session())
        headers = {"authorization": caller.auth}
        if self.is_over_mirror:
            # Over a mirror the session counts in addition to the request's device.
            headers["cookie"] = self.request.headers.get("cookie", "")
        self._inside = Inside(self.request, headers)
        self.known = True
        self.user = ids.to_text(caller.user)
        self.desk.user = caller.user
        if not (part or self.is_for_part):
            self.frame = await frame.keep_fresh(self, self.desk)

    def as_session(self, method: str = "") -> Request:
        """The request as the pages' scripts would send it: cookies and the CSRF header."""
        headers = self._session_headers().items()
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        changed = {"headers": raw, "method": method or self.request.method}
        return Request({**self.request.scope, **changed})

    def _session_headers(self) -> dict[str, str]:
        sent = self.request.headers
        cookie = sent.get("cookie", "") if self.at else ""
        headers = {"host": sent.get("host", ""), "cookie": cookie}
        token = sent.get("x-csrftoken") or self.text("csrf")
        if self.has_form and token:
            headers["x-csrftoken"] = token
        if "origin" in sent:
            headers["origin"] = sent["origin"]
        return headers

    def text(self, name: str, default: str = "") -> str:
        """A field of the form."""
        return self.form.get(name, default)

    async def ask(
        self, method: str, path: str, body: Any = None, params: Parameters | None = None
    ) -> Any:
        """The JSON answer of an endpoint; raises the endpoint's error."""
        return (await self._inside.ask(method, path, body, params=params)).json()

    async def read(self, kind: type[T], path: str = "", **params: str) -> T:
        """The answer of an endpoint as ``kind``, or the page's dataset, schema or organization;
        raises the endpoint's error.
        """
        path = path or f"/api/{COLLECTIONS[kind]}/{self.id}/"
        return (await self.answer("GET", path, params=params)).read(kind)

    async def answer(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Parameters | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ProxyAnswer:
        """Call an endpoint like :meth:`ask`, with additional headers; returns the complete
        answer.
        """
        return await self._inside.ask(method, path, body, params=params, headers=headers)

    async def ask_as_session(self, path: str, body: Any = None) -> ProxyAnswer:
        """POST with the cookies themselves, for requests about the session."""
        return await self._inside.ask("POST", path, body, headers=self._session_headers())

    def show(self, html: str, policy: str) -> Response:
        """A page without a template, under its own Content-Security-Policy."""
        return HTMLResponse(html, headers={**PAGE_HEADERS, "Content-Security-Policy": policy})

    async def hand_on(
        self,
        method: str,
        path: str,
        name: str,
        media_type: str,
        *,
        body: Any = None,
        params: Parameters | None = None,
    ) -> Response:
        """The answer of an endpoint as a streamed file download; raises the endpoint's error."""

        async def content() -> AsyncGenerator[bytes, None]:
            async with self._inside.stream(method, path, body, params) as pieces:
                yield b""
                async for piece in pieces:
                    yield piece

        begun = content()
        await anext(begun)
        response = answers.Download(begun, media_type)
        response.headers.update(file_headers(name))
        return response

    def stream(self, path: str, body: Any) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """POST; the answer in pieces as they arrive; raises the endpoint's error."""
        return self._inside.stream("POST", path, body)

    async def every(self, kind: type[T], path: str = "", **params: str) -> list[T]:
        """All results of a list, page by page; by default, of all datasets, schemas or
        organizations.

        Raises:
            ApiFailed: the list has no end.
        """
        path = path or f"/api/{COLLECTIONS[kind]}/"
        items: list[T] = []
        limit, size = 1000, 0
        for _ in range(MOST_LIST_PAGES):
            params |= {"limit": str(limit), "offset": str(len(items))}
            answer = await self.answer("GET", path, params=params)
            size += len(answer.body)
            if size > MOST_LIST_BYTES:
                break
            page = answer.read(ListPage[kind])  # type: ignore[valid-type] # of a variable
            items += page.results
            if page.next is None or not page.results:
                return items
            limit = len(page.results)  # the endpoint may shorten a long page
        raise ApiFailed("a list of the API has no end")

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page; after a refusal, with its error and status."""
        error = self.refusal
        mirrored = services_of(self.request).mirrored
        html = templates.get_template(template).render(
            csrf=self.csrf,
            visitor=self.user,
            known=self.known or self.frame is not None,
            frame=self.frame or frame.PageFrame(),
            path=self.path,
            here=self.here,
            at=self.at,
            built=words.scripts_are_built(),
            is_part=self.is_for_part,
            copied=None if mirrored is None else mirrored.known,
            is_copy=mirrored is not None,
            count_of=lambda schema: frame.find_count(self.desk, schema),
            problem=error,
            **values,
        )
        if error is None:
            return HTMLResponse(html, status, headers=PAGE_HEADERS)
        headers = {**PAGE_HEADERS, "X-Error-Code": error.reason}
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        return HTMLResponse(html, problems.status_of(error), headers=headers)

    def problem(self, error: ErsError, template: str = "problem.html", **values: Any) -> Response:
        """A page that shows an error: its own page, or the form that was sent."""
        self.refusal = error
        return self.render(template, **values)

    def download(self, content: bytes, name: str) -> Response:
        """A file download."""
        return Response(content, headers=file_headers(name), media_type="application/octet-stream")

    @property
    def path(self) -> str:
        """The page's path, without the secret path."""
        path: str = self.request.scope["path"]
        return path

    @property
    def here(self) -> str:
        """The page's path, and the name of the question that it shows."""
        question = self.question or self.request.query_params.get("q", "")
        return f"{self.path}?q={question}" if _QUESTION.fullmatch(question) else self.path

    def go(self, path: str) -> Response:
        """Redirect after a form was processed: to another page, or to this page with the result."""
        sent = self.request.headers
        shown = urlsplit(sent.get("hx-current-url", "")).path
        # A script shows a record in a panel next to the table; so the redirect's target is shown
        # there as well.
        if "hx-request" in sent and sent.get("hx-target") == "panel":
            return RedirectResponse(self.at + path, 303, headers=PAGE_HEADERS)
        # A script would show the other page within the current page, under the current address.
        if "hx-request" in sent and not (path == self.path and shown in ("", self.at + path)):
            return _elsewhere(self.at + path)
        return RedirectResponse(self.at + path, 303, headers=PAGE_HEADERS)

    def let_in(self, session: str, csrf: str, path: str, device: DeviceSecret) -> Response:
        """Redirect to a page below the secret path of ``device``, whose cookie the browser gets."""
        cookie = PageCookie(device, session, csrf)
        target = cookie.at + path
        if "hx-request" in self.request.headers:
            response: Response = _elsewhere(target)
        else:
            response = RedirectResponse(target, 303, headers=PAGE_HEADERS)
        self._set_cookie(response, cookie)
        return response

    def let_out(self, path: str) -> Response:
        """Redirect to a page, without the session; the browser keeps its device."""
        response = self.go(path)
        if self.device is not None:
            self._set_cookie(response, PageCookie(self.device))
        return response

    def _set_cookie(self, response: Response, cookie: PageCookie) -> None:
        name = services_of(self.request).cookie_name
        cookie.put_into(response, name, secure=self.request.url.scheme == "https")

    def forget(self) -> None:
        """Drop the cached data of the ended session, except for its desk."""
        services = services_of(self.request)
        self.frame = None
        frame.forget(services.desks.known(self.session))
        for method in ("GET", "POST"):
            with suppress(NotAuthenticated):  # the request may have no credentials
                services.access.forget(credentials_of(self.as_session(method)))


async def _read_form(request: Request) -> dict[str, str]:
    if answers.media_type(request) != "application/x-www-form-urlencoded":
        raise BadInput("this is not a form of this proxy", hint="use the form of the page")
    body = await answers.read_body(request, limit=MAX_FORM_BYTES)
    return await aside(_parse, body) if len(body) > LONG_BYTES else _parse(body)


def _parse(body: bytes) -> dict[str, str]:
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
    path: str,
    endpoint: Endpoint,
    *,
    methods: Sequence[str] = ("GET",),
    public: bool = False,
    files: bool = False,
    changes: bool = True,
    part: bool = False,
) -> Route:
    """Make a route to a page. ``public`` pages need no login; forms of ``files`` pages may contain
    a file; forms of pages without ``changes`` only read; ``part`` answers are fragments of other
    pages. If a form is refused, ``endpoint`` is called again to show its page with the error.
    """

    def back_to(visit: Visit) -> str:
        """This page, if it can be a redirect target: the address of a form may show nothing."""
        return visit.here if "GET" in methods else "/"

    async def carry_out(visit: Visit) -> Response:
        try:
            return await endpoint(visit)
        except ErsError as error:
            if not (changes and visit.sends and "GET" in methods):
                raise
            visit.refusal = error
        return await endpoint(visit)

    async def answer(request: Request) -> Response:
        visit = Visit(request)
        try:
            await visit.open(public=public, files=files, part=part)
            try:
                if not visit.known:
                    return await carry_out(visit)
                with keep_journal(visit.journal, visit.tally):
                    response = await (
                        _answer_once(visit, carry_out) if changes else endpoint(visit)
                    )
                response.headers["X-Server-Asked"] = visit.cost
                return response
            finally:
                if changes and visit.has_form and visit.known:
                    frame.mark_outdated(services_of(request).desks.known(visit.session))
        except NotAuthenticated as error:
            if visit.is_over_mirror:
                # Over a mirror the device is the login.
                visit.forget()
                return visit.problem(error, "device_mirror.html", next=back_to(visit), typed="")
            if public or visit.path == LET_IN:
                return visit.problem(error)
            if error.reason in ("device_needed", "device_unknown"):
                return _to(visit, LET_IN, back=back_to(visit))
            visit.forget()
            return _to(visit, LOG_IN, back=back_to(visit))
        except NotFound as error:
            # The object may be gone because the visitor was removed from its organization.
            if visit.known and not (part or visit.is_for_part):
                frame.mark_outdated(visit.desk)
                visit.frame = await frame.keep_fresh(visit, visit.desk)
            # The page that the form or the link was on has shown the object.
            if not error.hint and visit.known and (visit.has_form or visit.is_for_part):
                error.hint = "it may have been deleted since you opened this page"
            return visit.problem(error)
        except ErsError as error:
            return visit.problem(error)
        except Exception as error:
            await answers.on_bug(request, error)
            return visit.problem(ErsError("an unexpected error occurred in the proxy"))

    return Route(path, answer, methods=list(methods))


@dataclass
class _SentForm:
    """The form that a session sent last: its digest, and its answer once it was carried out."""

    digest: bytes
    answering: asyncio.Lock = field(default_factory=asyncio.Lock)
    answer: Response | None = field(default=None, repr=False)


async def _answer_once(visit: Visit, endpoint: Endpoint) -> Response:
    """Carry out a form once, even if its button is pressed a second time before the answer comes;
    scripts prevent that by themselves.
    """
    drawn = visit.text("drawn")
    has_file = visit.sent_file is not None and visit.sent_file.filename
    if not drawn or has_file or "hx-request" in visit.request.headers:
        return await endpoint(visit)
    content = repr((visit.here, sorted(visit.form.items()))).encode()
    digest = hashlib.sha256(content).digest()
    sent = visit.desk.find(("sent",), _SentForm)
    if sent is None or sent.digest != digest:
        sent = _SentForm(digest)
        visit.desk.put(("sent",), sent)
    async with sent.answering:
        if sent.answer is not None:
            return sent.answer
        response = await endpoint(visit)
        if response.status_code < 400 and not isinstance(response, StreamingResponse):
            sent.answer = response
        return response


def moved(old: str, new: str) -> Route:
    """Redirects from the old address of a page to the new page, with the query."""

    async def lead(visit: Visit) -> Response:
        _, mark, question = visit.here.partition("?")
        return visit.go(new.format(**visit.request.path_params) + mark + question)

    route = page(old, lead)
    route.name = MOVED
    return route


def _to(visit: Visit, page: str, *, back: str) -> Response:
    """Redirect to a page that has to be passed first, and afterwards to ``back``."""
    target = visit.at + (page if back == "/" else f"{page}?next={back}")
    if "hx-request" in visit.request.headers:
        return _elsewhere(target)
    return RedirectResponse(target, 303, headers=PAGE_HEADERS)


def _elsewhere(path: str) -> Response:
    """A redirect for htmx, which would follow an HTTP redirect and put that page into a part of the
    current page.
    """
    return Response(status_code=204, headers={"HX-Redirect": quote(path, safe="/?=")})


def file_headers(name: str) -> dict[str, str]:
    """The headers of a download. A name may contain text from the API."""
    kept = _NO_FILE_NAME.sub("-", name)
    return {**PAGE_HEADERS, "Content-Disposition": f'attachment; filename="{kept}"'}


# --- proofs in forms that reveal or change keys ---------------------------------------------------


def proof_of(visit: Visit) -> dict[str, str] | None:
    """The proof in a form: the account's password, with a code of its second factor if it has one;
    or the passphrase.
    """
    typed = {name: visit.text(f"proof-{name}") for name in ("password", "code", "passphrase")}
    return {name: value for name, value in typed.items() if value} or None
