"""A short way for what proxies ask with every search, the log, pages, and rows, and for what they
store with every ingest: a commit.

Finding the view among all paths, and what the framework makes around it, takes several times as
long as the view. Here the same functions as there (:mod:`.reads`, :mod:`.writes`) answer a request
that is plain: a known path, the token of a login, and nothing that is wrong. Anything else goes the
long way, as if this were not here. So what is refused is refused in one place, and by the same
checks. Only a commit that loses a race is refused here, in the same words: it would be tried twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponseBase, UnreadablePostError
from django.urls import ResolverMatch, resolve

from encrypted_records.errors import Conflict, ErsError, Malformed, StoreUnavailable
from encrypted_records.model import ids, wire
from encrypted_records.server import permissions
from encrypted_records.server.accounts.authentication import claims_of
from encrypted_records.server.accounts.models import User
from encrypted_records.server.commits import checks, commits
from encrypted_records.server.data_plane import reads, writes
from encrypted_records.server.gateway.admission import SENDER
from encrypted_records.server.http import problems

_PATH = re.compile(r"/api/schemas/([^/]+)/(manifest|pages|rows)/")
_COMMITS = "/api/commits/"
_SINCE = re.compile(r"since=([0-9]{1,18})")
#: By the last part of the path: the method, what its answer is, and the methods that the path has.
_READS = {
    "manifest": ("GET", reads.answer_log, "GET, HEAD, OPTIONS"),
    "pages": ("POST", reads.answer_pages, "POST, OPTIONS"),
    "rows": ("POST", reads.answer_rows, "POST, OPTIONS"),
}
#: Reasons to refuse a request, and a database that fails. Anything else is a mistake of ours, which
#: the other way would hide: it leaves as one.
_REFUSED = (ErsError, DatabaseError, SuspiciousOperation, UnreadablePostError)
#: What the middleware that is passed over puts into every answer.
_HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class ShortWay:
    """Middleware, behind that which logs requests and refuses those that no view should see."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        path = request.path_info
        match = _PATH.fullmatch(path)
        try:
            if match is not None:
                answer = _answer(request, match[1], match[2])
            else:
                answer = _apply(request) if path == _COMMITS else None
        except _REFUSED:  # it happens on the long way again, and is said there
            answer = None
        return self.get_response(request) if answer is None else answer


def _answer(request: HttpRequest, schema_id: str, what: str) -> HttpResponseBase | None:
    """The answer; None of a request that goes the long way.

    Raises:
        ErsError: as that request will on the long way; and whatever else is of :data:`_REFUSED`.
    """
    method, read, allowed = _READS[what]
    if request.method != method:
        return None
    meta = request.META
    if method == "POST" and meta.get("CONTENT_TYPE") != wire.MEDIA_TYPE:
        return None
    since = None
    if query := meta.get("QUERY_STRING"):
        asked = _SINCE.fullmatch(query)
        if asked is None:
            return None
        since = int(asked[1])
    claims = claims_of(meta.get("HTTP_AUTHORIZATION", ""))
    found = None if claims is None else permissions.data_of_login(*claims, schema_id)
    if found is None:
        return None
    user, schema = found
    reads.note(user, schema)

    def body() -> bytes:
        if not request.body:
            raise Malformed("the body is empty", code="malformed_frame")
        return request.body

    answer: HttpResponseBase
    try:
        answer = read(schema, since, body)
    except StoreUnavailable as error:
        answer = problems.answer(error)
    return _complete(request, answer, user, allowed, what)


def _apply(request: HttpRequest) -> HttpResponseBase | None:
    """As :func:`_answer`, of a commit to one schema."""
    meta = request.META
    if request.method != "POST" or meta.get("CONTENT_TYPE") != wire.MEDIA_TYPE:
        return None
    claims = None if meta.get("QUERY_STRING") else claims_of(meta.get("HTTP_AUTHORIZATION", ""))
    if claims is None:
        return None
    uploads = wire.decode_uploads(request.body)
    if len(uploads) != 1:
        return None
    commit = checks.check(uploads[0])
    found = permissions.written_by_login(*claims, ids.to_text(commit.body.schema))
    if found is None:
        return None
    user, schema = found
    try:
        answer = writes.answer(commits.apply_reached(user, [(schema, commit)]))
    except Conflict as lost:
        answer = problems.answer(lost)
    return _complete(request, answer, user, "POST, OPTIONS", "commits")


def _complete(
    request: HttpRequest, answer: HttpResponseBase, user: User, allowed: str, what: str
) -> HttpResponseBase:
    """An answer with all that it has on the long way."""
    for name, value in _HEADERS.items():
        answer.headers[name] = value
    if request.is_secure():
        answer.headers["Strict-Transport-Security"] = f"max-age={settings.SECURE_HSTS_SECONDS}"
    answer.headers["Allow"] = allowed
    request.META[SENDER] = user.pk
    request.resolver_match = _match_of(what)
    return answer


@cache
def _match_of(what: str) -> ResolverMatch:
    """For metrics, which count requests by the pattern of their path."""
    return resolve(_COMMITS if what == "commits" else f"/api/schemas/any/{what}/")
