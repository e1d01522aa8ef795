"""Records as a file: NDJSON, CSV or Arrow, streamed, and never ended as a whole one when it is not.

An answer that fails after it began is cut: the connection is closed in the middle of the chunked
body, which every HTTP client reports.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Send

from encrypted_records.errors import ErsError, Flaw, InvalidQuery
from encrypted_records.http import problem
from encrypted_records.model import json_text
from encrypted_records.model.media_types import Format

log = logging.getLogger(__name__)

_MEDIA_TYPES = {
    Format.NDJSON: Format.NDJSON.media_type,
    Format.CSV: f"{Format.CSV.media_type}; charset=utf-8; header=present",
}
_NAMES = {kind.value: kind for kind in _MEDIA_TYPES}


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a file; ``safe`` is whether no spreadsheet may run a text of it, and
    ``names_schema`` whether the header of CSV ends in the schema's id.
    """

    kind: Format
    safe: bool
    names_schema: bool = False

    @property
    def csv(self) -> bool:
        return self.kind is Format.CSV

    def download(self, content: AsyncGenerator[bytes, None]) -> Download:
        """The answer of this form."""
        return Download(content, _MEDIA_TYPES[self.kind], by_line=not self.csv)


def form_of(request: Request, body: dict[str, Any]) -> Form:
    """The form that ``format``, ``safe_cells`` and ``with_schema_id`` ask for, which are taken out
    of the body; or else the header Accept.

    Raises:
        InvalidQuery: there is no such form.
    """
    name = body.pop("format", None)
    if name is None:
        wanted = request.headers.get("accept", "")
        name = "csv" if "text/csv" in wanted and "ndjson" not in wanted else "ndjson"
    kind = _NAMES.get(name) if isinstance(name, str) else None
    if kind is None:
        detail = f"expected one of {', '.join(_NAMES)}"
        raise InvalidQuery(detail, flaws=(Flaw("type", detail, "/format"),))
    return Form(kind, _of_csv(body, "safe_cells", kind), _of_csv(body, "with_schema_id", kind))


def _of_csv(body: dict[str, Any], name: str, kind: Format) -> bool:
    value = body.pop(name, False)
    if not isinstance(value, bool) or (value and kind is not Format.CSV):
        detail = "expected true or false; true is for CSV only"
        raise InvalidQuery(detail, flaws=(Flaw("type", detail, f"/{name}"),))
    return value


class Download(StreamingResponse):
    """A body from which a client can tell whether it is complete.

    A failure of NDJSON has a line of its own; CSV and Arrow have no room for it.
    """

    def __init__(
        self, content: AsyncGenerator[bytes, None], media_type: str, *, by_line: bool = False
    ) -> None:
        """
        Args:
            content: is closed when the answer ends, also where its client has gone away.
            by_line: whether it is NDJSON.
        """
        super().__init__(content, media_type=media_type)
        self._content = content
        self.headers["Cache-Control"] = "no-store"
        self._by_line = by_line

    async def stream_response(self, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            async with aclosing(self._content):
                await send(head)
                async for chunk in self._content:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except ErsError as error:
            log.warning("a download was interrupted: %s", error.message)
            last = json_line({"error": problem.of_error(error)}) if self._by_line else b""
            await send({"type": "http.response.body", "body": last, "more_body": True})
            # Not ended: the server then closes the connection without the last chunk.
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def json_line(content: Any) -> bytes:
    return json_text.encode(content) + b"\n"
