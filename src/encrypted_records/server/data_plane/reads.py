"""What proxies read of a schema: its log, and pages and rows behind it. One function each, for the
views and for the short way (:mod:`.short_way`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

import msgspec
from django.http import StreamingHttpResponse

from encrypted_records.model import wire
from encrypted_records.model.records import PageRef, RowRef
from encrypted_records.server import permissions
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.http.frames import stream
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.rows import queries

#: Gives the body of a request, which is not read before somebody may ask.
Body = Callable[[], bytes]


def find(user: User, schema_id: str) -> Schema:
    """The schema whose data a user reads now, which is noted.

    Raises:
        NotFound: the user reaches no such thing.
    """
    schema = permissions.data_of(user, schema_id)
    note(user, schema)
    return schema


def note(user: User, schema: Schema) -> None:
    """Have the owners see that somebody reads a schema."""
    audit.note_once(user, Action.RECORDS_READ, schema.dataset.organization_id, schema.url)


def answer_log(schema: Schema, since: int | None, _body: Body) -> StreamingHttpResponse:
    """The log after version ``since``.

    Raises:
        Conflict: as :func:`queries.manifest`.
    """
    return stream(queries.manifest(schema, since or 0))


def answer_pages(schema: Schema, since: int | None, body: Body) -> StreamingHttpResponse:
    """The pages that the body names, behind the log.

    Raises:
        ErsError: as :func:`queries.pages` and :func:`wire.decode_all`.
    """
    wanted = wire.decode_all(body(), PageRef)
    return _behind_log(schema, since, lambda: queries.pages(schema, wanted))


def answer_rows(schema: Schema, since: int | None, body: Body) -> StreamingHttpResponse:
    """The rows that the body names, behind the log.

    Raises:
        ErsError: as :func:`queries.rows` and :func:`wire.decode_all`.
    """
    wanted = wire.decode_all(body(), RowRef)
    return _behind_log(schema, since, lambda: queries.rows(schema, wanted))


def _behind_log(
    schema: Schema, since: int | None, items: Callable[[], Iterable[msgspec.Struct]]
) -> StreamingHttpResponse:
    """``items``, behind the log after ``since`` where the caller names a version of it.

    When the log has moved on, it comes alone: what was asked for by an old state is asked again.
    """
    if since is None:
        return stream(items())
    log = queries.manifest(schema, since)
    return stream(log if since < schema.version else chain(log, items()))
