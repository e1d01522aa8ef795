"""Log lines of both sides: their request ids, and the data that no line may contain.

A line consists of our words, names of exceptions and places in code. Messages of exceptions are
left out, because databases and parsers quote their input. Errors of a database appear by the name
that the database gives them: SQLite's, or the SQLSTATE. The event loop quotes the tasks, arguments
and results that its lines are about, so only the first words of these lines are kept. The parser of
forms quotes bytes of malformed forms, so its words are left out. Python prints the text of an error
that ends a thread, unless :func:`log_uncaught` replaces that.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import traceback
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType

from encrypted_records.errors import ErsError

#: The id in log lines outside of requests.
NO_REQUEST = "-"
#: The id of the request that this thread or task is answering; outgoing requests carry it on.
request_id: ContextVar[str] = ContextVar("request_id", default=NO_REQUEST)

#: Quotations of the event loop begin in another line, or are arguments.
_QUOTES = re.compile(r"[\n(]")
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class TextFormatter(logging.Formatter):
    """One line for people: time, level, request, logger, words."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = f"{when} {record.levelname} [{request_id.get()}] {record.name}: "
        line += words_of(record)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 - logging's name
        lines: list[str] = []
        error: BaseException | None = ei[1]
        while error is not None:
            lines += [part.rstrip() for part in traceback.format_tb(error.__traceback__)]
            database = f": {error.message}" if isinstance(error, ErsError) else ""
            if name := database_name(error):
                database = f" ({name})"
            lines.append(f"{type(error).__module__}.{type(error).__qualname__}{database}")
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\n".join(lines)


class JsonFormatter(TextFormatter):
    """One JSON object for machines, with the same content."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "request_id": request_id.get(),
            "logger": record.name,
            "message": words_of(record),
        }
        line |= getattr(record, "facts", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def words_of(record: logging.LogRecord) -> str:
    """The message of a record, as far as it quotes nothing."""
    if record.name.startswith("python_multipart"):
        return "a form is malformed"  # its lines have bytes of the form, as numbers
    return _QUOTES.split(str(record.msg))[0] if record.name == "asyncio" else record.getMessage()


def log_to_stderr(form: str = "text", level: int = logging.INFO, *, force: bool = False) -> None:
    """Write the lines of this process to standard error.

    Args:
        form: ``text`` or ``json``.
        force: also if something is configured already.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(form))
    logging.basicConfig(level=level, handlers=[handler], force=force)


def log_uncaught() -> None:
    """Log errors that end a thread of this process, or that come where nobody can catch them."""
    threading.excepthook = sys.unraisablehook = _log_uncaught


def _log_uncaught(uncaught: threading.ExceptHookArgs | sys.UnraisableHookArgs) -> None:
    kind = uncaught.exc_type.__name__
    logging.getLogger(__name__).error("unexpected %s", kind, exc_info=uncaught.exc_value)


def take_id(sent: str) -> str:
    """The request id that the caller sent, if it is well-formed; otherwise a fresh id."""
    return sent if _SANE_ID.fullmatch(sent) else uuid.uuid4().hex


def database_name(error: BaseException) -> str:
    """SQLite's or PostgreSQL's name of an error, such as SQLITE_FULL or 53100."""
    name = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
    return name if isinstance(name, str) else ""


def formatter(form: str) -> logging.Formatter:
    return JsonFormatter() if form == "json" else TextFormatter()
