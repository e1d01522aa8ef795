"""The five data plane endpoints that proxies call constantly: the log, pages, rows, commits and
staging.

Middleware answers them, after the middleware that logs and filters requests. URL resolution and the
overhead of REST framework would take several times as long as the answer. Credentials, token limits
and errors are the same as for all other paths: the same authenticators identify the caller, and
:mod:`..http.problems` formats errors.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, UnreadablePostError
from django.urls import ResolverMatch
from django.utils.cache import patch_vary_headers
from rest_framework.exceptions import APIException

from encrypted_records.errors import BadInput, ErsError, Flaw, Malformed, NotAllowed
from encrypted_records.model import wire
from encrypted_records.model.records import ATTEMPT_HEADER, Commit, PageRef, RowRef
from encrypted_records.server import permissions
from encrypted_records.server.accounts import authentication
from encrypted_records.server.accounts.authentication import WITH_JOBS, Use, identify
from encrypted_records.server.accounts.models import JobGrant, User
from encrypted_records.server.commits import commits, staging
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.http import problems
from encrypted_records.server.http.bodies import invalid_parameter, stream
from encrypted_records.server.organizations import audit
from encrypted_records.server.rows import queries

#: Errors that are meant for the client. Any other exception is a bug, and is raised as such.
_MEANT = (
    ErsError,
    APIException,
    DatabaseError,
    PermissionDenied,
    SuspiciousOperation,
    UnreadablePostError,
)


@dataclass(frozen=True)
class ApiRequest:
    """A request, its sender and the credentials; ``schema_id`` is from its path."""

    request: HttpRequest
    user: User
    credentials: object
    schema_id: str

    @property
    def job(self) -> JobGrant | None:
        """The job that sends the request, if it is not a user."""
        return self.credentials if isinstance(self.credentials, JobGrant) else None

    def body(self) -> bytes:
        """The body; it is removed from the request.

        Raises:
            Malformed: there is none.
            Unsupported: its media type is not that of frames.
        """
        if self.request.META.get("CONTENT_LENGTH") in (None, "", "0"):
            raise Malformed("the body is empty", code="malformed_frame")
        if self.request.content_type != wire.MEDIA_TYPE:
            raise problems.unsupported_media_type()
        body: bytes = self.request.read()
        return body

    def version(self, name: str) -> int | None:
        """A parameter that names a version of the log.

        Raises:
            BadInput: it is not a number.
        """
        text = self.request.GET.get(name)
        if text is None:
            return None
        if not _is_number(text):
            raise invalid_parameter(name, "expected a version of the log")
        return int(text)

    def read_schema(self) -> Schema:
        """The schema of the request; the read is noted in the audit log.

        Raises:
            NotFound: the user cannot reach such a schema.
        """
        return find_to_read(self.user, self.schema_id)


@dataclass(frozen=True)
class Endpoint:
    """An endpoint: one method of a path.

    ``parameters`` are query and header parameters by name, in the form of OpenAPI; ``statuses`` are
    the success statuses.
    """

    method: str
    use: Use
    answer: Callable[[ApiRequest], HttpResponseBase]
    parameters: Mapping[str, dict[str, Any]]
    statuses: tuple[int, ...] = (200,)


def find_to_read(user: User, schema_id: str) -> Schema:
    """The schema whose data a user reads now; the read is noted for the owners to see.

    Raises:
        NotFound: the user cannot reach such a schema.
    """
    schema = permissions.data_of(user, schema_id)
    note_reading(user, schema)
    return schema


def note_reading(user: User, schema: Schema) -> None:
    audit.note_once(user, audit.Action.RECORDS_READ, schema.dataset.organization_id, schema.url)


def answer_manifest(call: ApiRequest) -> HttpResponseBase:
    """The log of a schema's commits after the version ``since``.

    With ``checkpoint``, the newest version that the caller knows (0 for none), the newest
    checkpoint comes first where there is one, and the log after it or after that version.
    """
    known = call.version("checkpoint")
    schema = call.read_schema()
    if known is not None:
        return stream(commits.log_behind(schema, known))
    return stream(queries.manifest(schema, call.version("since") or 0))


def answer_pages(call: ApiRequest) -> HttpResponseBase:
    """Index pages by segment and number, in the order asked."""
    schema, since = call.read_schema(), call.version("since")
    wanted = wire.decode_all(call.body(), PageRef)
    return _behind_log(schema, since, lambda: queries.pages(schema, wanted))


def answer_rows(call: ApiRequest) -> HttpResponseBase:
    """Sealed rows by group and ordinal, in the order asked."""
    schema, since = call.read_schema(), call.version("since")
    wanted = wire.decode_all(call.body(), RowRef)
    return _behind_log(schema, since, lambda: queries.rows(schema, wanted))


def _behind_log(
    schema: Schema, since: int | None, items: Callable[[], Iterable[msgspec.Struct]]
) -> HttpResponseBase:
    """``items``, after the log since version ``since`` if the caller sent one.

    If the log has moved on, only the log is sent: the client must repeat the request based on the
    new state.
    """
    if since is None:
        return stream(items())
    log = queries.manifest(schema, since)
    return stream(log if since < schema.version else chain(log, items()))


def answer_commits(call: ApiRequest) -> HttpResponseBase:
    """Apply commits, each to a schema of its own, all or none."""
    because = call.request.GET.get("because")
    if because not in (None, "retention"):
        raise invalid_parameter("because", "expected retention")
    uploads = wire.decode_uploads(call.body())
    # A job publishes the data it adds in another way; here it may only merge segments.
    if call.job is not None and not all(only_merges(upload.commit) for upload in uploads):
        raise NotAllowed("a job's token can only merge segments here")
    return receipts(commits.apply(call.user, uploads, by_retention=because is not None))


def only_merges(commit: Commit) -> bool:
    """Whether a commit changes nothing but the index."""
    body = wire.decode_commit_body(commit)
    return not (body.groups or body.killed or body.definition_text)


def receipts(outcome: commits.CommitOutcome) -> HttpResponse:
    return HttpResponse(
        wire.encode(outcome.receipts),
        status=201 if outcome.created else 200,
        content_type=wire.MEDIA_TYPE,
    )


def answer_staging(call: ApiRequest) -> HttpResponseBase:
    """Store a part of a commit ahead of it, unless a later attempt at the part is there."""
    attempt = call.request.headers.get(ATTEMPT_HEADER, "0")
    if not _is_number(attempt):
        detail = "expected the number of an attempt"
        raise BadInput(
            f"the header {ATTEMPT_HEADER} is not valid",
            flaws=(Flaw("invalid", detail, header=ATTEMPT_HEADER),),
        )
    upload = wire.decode_part(call.body())
    if upload.part.groups:
        require_own(call.job, upload.part.staging)
    # All columns in one query: the part is checked against the definition.
    reached = permissions.schemas(call.user).select_related("dataset__organization")
    schema = permissions.find(reached, call.schema_id)
    permissions.require_writer(call.user, schema)
    is_new = staging.add(call.user, schema, upload, call.job, attempt=int(attempt))
    return HttpResponse(status=201 if is_new else 200)


def require_own(grant: object, job: bytes) -> None:
    """
    Raises:
        NotAllowed: the credentials belong to a different job.
    """
    if isinstance(grant, JobGrant) and bytes(grant.job) != job:
        raise NotAllowed("a job's token is valid only for its own job")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


_NUMBER = {"in": "query", "schema": {"type": "integer"}}
_RETENTION = {"in": "query", "schema": {"enum": ["retention"], "type": "string"}}
#: By the last part of the path.
ENDPOINTS = {
    "manifest": Endpoint(
        "GET", Use.READ, answer_manifest, {"checkpoint": _NUMBER, "since": _NUMBER}
    ),
    "pages": Endpoint("POST", Use.READ, answer_pages, {"since": _NUMBER}),
    "rows": Endpoint("POST", Use.READ, answer_rows, {"since": _NUMBER}),
    "staging": Endpoint(
        "POST", Use.WRITE, answer_staging, {ATTEMPT_HEADER: _NUMBER | {"in": "header"}}, (200, 201)
    ),
    "commits": Endpoint("POST", Use.WRITE, answer_commits, {"because": _RETENTION}, (200, 201)),
}
_PATH = re.compile(r"/api/(?:schemas/([^/]+)/(manifest|pages|rows|staging)|(commits))/")


def _path(name: str, schema_id: str) -> str:
    return f"api/{name}/" if name == "commits" else f"api/schemas/{schema_id}/{name}/"


_MATCHES = {
    name: ResolverMatch(endpoint.answer, (), {}, route=_path(name, "<str:schema_id>"))
    for name, endpoint in ENDPOINTS.items()
}


class DataPlane:
    """Middleware that answers the five paths, for every method."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        match = _PATH.fullmatch(request.path_info)
        if match is None:
            return self.get_response(request)
        name = match[2] or match[3]
        endpoint = ENDPOINTS[name]
        request.resolver_match = _MATCHES[name]
        methods = ("GET", "HEAD") if endpoint.method == "GET" else (endpoint.method,)
        try:
            user, credentials = identify(request)
            is_known = request.method in methods
            authentication.require_within(request.META, user, endpoint.use if is_known else None)
            if is_known:
                answer = endpoint.answer(ApiRequest(request, user, credentials, match[1]))
            elif request.method == "OPTIONS":
                answer = HttpResponse()
            else:
                answer = problems.method_not_allowed(request.path_info, methods)
        except _MEANT as error:
            problem = problems.handle(error, {})
            if problem is None:
                raise
            answer = problem
        if getattr(getattr(request, "session", None), "accessed", False):
            patch_vary_headers(answer, ("Cookie",))
        answer.headers["Allow"] = ", ".join((*methods, "OPTIONS"))
        return answer


def describe(result: dict[str, Any], generator: Any, request: Any, public: Any) -> dict[str, Any]:
    """A hook that adds these paths to the OpenAPI document, which does not know them otherwise."""
    body = {"content": {wire.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
    for name, endpoint in ENDPOINTS.items():
        is_read = endpoint.method == "GET"
        of_schema = [] if name == "commits" else ["schema_id"]
        collection = "schemas_" if of_schema else ""
        sends = name != "staging"
        operation: dict[str, Any] = {
            "operationId": f"{collection}{name}_{'retrieve' if is_read else 'create'}",
            "description": inspect.getdoc(endpoint.answer),
            "parameters": [
                {"in": "path", "name": named, "schema": {"type": "string"}, "required": True}
                for named in of_schema
            ]
            + [{"name": name, **described} for name, described in endpoint.parameters.items()],
            "tags": ["schemas" if of_schema else name],
            **({} if is_read else {"requestBody": body}),
            "security": [{kind.__name__.lower(): []} for kind in WITH_JOBS],
            "responses": {
                str(status): {**body, "description": ""}
                if sends
                else {"description": "No response body"}
                for status in endpoint.statuses
            },
        }
        result["paths"][f"/{_path(name, '{schema_id}')}"] = {endpoint.method.lower(): operation}
    result["paths"] = dict(sorted(result["paths"].items()))
    return result
