"""Convert all exceptions to ``application/problem+json``.

Our exceptions (:class:`.ErsError`), the framework's and Django's all become the same document,
which is made by :mod:`encrypted_records.http.problem`. A 401 names the ways of sending credentials,
a 429 says how long to wait.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import DatabaseError, IntegrityError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from rest_framework import exceptions as drf

from encrypted_records import errors
from encrypted_records.http import problem
from encrypted_records.model.strict_json import escape_pointer
from encrypted_records.server.db import databases
from encrypted_records.server.http.bodies import to_json

REALM = "encrypted-records"
CHALLENGES = f'Basic realm="{REALM}", charset="UTF-8", Bearer realm="{REALM}"'

#: Requests to these are for proxies, which encrypt.
_PATHS_OF_PROXIES = (
    "/api/devices/",
    "/api/files/",
    "/api/jobs/",
    "/api/keyring/",
    "/api/readings/",
    "/api/records/",
    "/api/schemas/estimate/",
    "/api/schemas/infer/",
    "/api/schemas/preview/",
    "/api/webhooks/",
)

_log = logging.getLogger(__name__)


def handle(exc: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """The framework's exception handler; None leaves a bug of ours to :func:`server_error`."""
    if isinstance(exc, drf.MethodNotAllowed):
        return method_not_allowed(context["request"].path, context["view"].allowed_methods)
    if isinstance(exc, DatabaseError) and (failed := _of_database(exc)):
        return failed
    error = to_error(exc)
    return None if error is None else answer(error)


def _of_database(exc: DatabaseError) -> HttpResponse | None:
    """The answer if a database is full, damaged or away; None for other errors."""
    fault = databases.meaning_of(exc)
    if fault is not None:
        _log.error("%s", fault.message, exc_info=exc)
        return answer(fault)
    if not isinstance(exc, OperationalError):
        return None
    _log.error("the database did not answer", exc_info=exc)
    response = _document(
        503, "database_unavailable", "the database did not answer", hint="try again shortly"
    )
    response["Retry-After"] = "2"
    return response


def method_not_allowed(path: str, allowed: Iterable[str]) -> HttpResponse:
    methods = ", ".join(allowed)
    response = _document(
        405,
        "method_not_allowed",
        "this path does not have such a method",
        hint=_hint_of_proxies(path) or f"its methods are {methods}",
    )
    response["Allow"] = methods
    return response


def _hint_of_proxies(path: str) -> str:
    """The hint for a path that proxies have, and that the API lacks or has for less; empty for
    others."""
    if not path.startswith(_PATHS_OF_PROXIES):
        return ""
    return "send it to a proxy: this is the API, which must not receive plaintext"


def unsupported_media_type() -> errors.ErsError:
    return errors.Unsupported(
        "the body has a media type that this path does not accept",
        code="unsupported_media_type",
        hint="name the media type of docs/http-api.md in Content-Type",
    )


def answer(error: errors.ErsError) -> HttpResponse:
    """An error of ours as a response."""
    response = _respond(problem.of_error(error))
    if response.status_code == 401:
        response["WWW-Authenticate"] = CHALLENGES
    if response.status_code == 429:
        response["Retry-After"] = str(error.retry_after or 1)
    return response


#: The meaning of each foreign exception; the first match decides.
_MEANINGS: tuple[tuple[tuple[type[Exception], ...], Callable[[], errors.ErsError]], ...] = (
    ((drf.ParseError, UnreadablePostError), lambda: errors.Malformed("the body cannot be read")),
    ((drf.NotAuthenticated,), lambda: errors.NotAuthenticated("this path needs credentials")),
    (
        (drf.AuthenticationFailed,),
        lambda: errors.NotAuthenticated("the credentials are not valid", code="bad_credentials"),
    ),
    (
        (drf.PermissionDenied, PermissionDenied),
        lambda: errors.NotAllowed("you are not allowed to do this"),
    ),
    (
        (drf.NotFound, Http404),
        lambda: errors.NotFound("this does not exist, or you cannot reach it"),
    ),
    ((drf.UnsupportedMediaType,), unsupported_media_type),
    (
        # Two requests conflicted in the database; the later request failed.
        (IntegrityError,),
        lambda: errors.Conflict(
            "another request changed this at the same time", hint="read it again and repeat"
        ),
    ),
    ((SuspiciousOperation,), lambda: errors.BadInput("the request is not valid")),
)


def to_error(exc: Exception) -> errors.ErsError | None:
    """Our error with the meaning of ``exc``, without any value that ``exc`` may quote."""
    if isinstance(exc, errors.ErsError):
        return exc
    if isinstance(exc, drf.ValidationError):
        return errors.BadInput(
            "the request is not valid",
            hint="correct the named values",
            flaws=tuple(_flaws(exc.detail, "")),
        )
    return next((make() for kinds, make in _MEANINGS if isinstance(exc, kinds)), None)


def _flaws(detail: Any, pointer: str) -> Iterator[errors.Flaw]:
    if isinstance(detail, dict):
        for name, inner in detail.items():
            is_of_whole = name == "non_field_errors"
            yield from _flaws(
                inner, pointer if is_of_whole else f"{pointer}/{escape_pointer(str(name))}"
            )
    elif isinstance(detail, list):
        for inner in detail:
            yield from _flaws(inner, pointer)
    else:
        code = getattr(detail, "code", "invalid") or "invalid"
        yield errors.Flaw(code, str(detail), pointer=pointer)


def _document(status: int, code: str, detail: str, *, hint: str = "") -> HttpResponse:
    return _respond(problem.document(status, code, detail, hint=hint))


def _respond(document: dict[str, Any]) -> HttpResponse:
    return HttpResponse(
        to_json(document), status=document["status"], content_type=problem.MEDIA_TYPE
    )


# Django's own handlers, for errors outside the framework's views.


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(errors.BadInput("the request is not valid"))


def forbidden(request: HttpRequest, reason: str = "", **_: Any) -> HttpResponse:
    return answer(errors.NotAllowed("you are not allowed to do this"))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    slash = "" if request.path.endswith("/") else "paths end in a slash"
    hint = _hint_of_proxies(request.path) or slash
    return answer(errors.NotFound("there is no such path", hint=hint))


def server_error(request: HttpRequest) -> HttpResponse:
    exc = sys.exc_info()[1]
    if isinstance(exc, DatabaseError) and (response := _of_database(exc)):
        return response
    return _document(
        500,
        "internal_error",
        "an internal error occurred",
        hint="its log has the details under the X-Request-ID of this answer",
    )
