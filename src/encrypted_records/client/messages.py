"""Requests and responses, as :mod:`.transport` sends and receives them, and a journal of requests.

A journal records the requests made in its context, including its tasks, on behalf of a user, for
that user to see. A note has no header, no parameter and no body: neither credentials nor data that
others must not see.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from encrypted_records import runtime
from encrypted_records.errors import ApiFailed, ErsError
from encrypted_records.http import problem

T = TypeVar("T")


class Patience:
    """A block that ends with ``TimeoutError`` if nothing was transferred for ``seconds``, or too
    little.

    A transfer at ``least_rate`` bytes a second or more is in time, whatever its size.
    """

    def __init__(self, seconds: float, least_rate: float) -> None:
        self._seconds = seconds
        self._least_rate = least_rate
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + seconds
        self._timeout = asyncio.timeout_at(self._end)
        self._is_on = True

    def note(self, count: int) -> None:
        """Record that ``count`` more bytes were sent or received."""
        self._end += count / self._least_rate
        if self._is_on:
            self._timeout.reschedule(min(self._end, self._loop.time() + self._seconds))

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_on = False
        await self._timeout.__aexit__(kind, error, trace)


CHUNK_BYTES = 1 << 18

#: A body that is entirely in memory.
Whole = bytes | memoryview
#: A stream can be sent only once: a request with a stream is never repeated.
Body = Whole | AsyncIterable[bytes] | None


#: Longest wait that a server may ask for, in seconds: that of the limits per hour.
MOST_RETRY_AFTER = 3600
_RETRY_AFTER = re.compile("[0-9]{1,6}")


def read_retry_after(value: str) -> int | None:
    """The seconds in a Retry-After header, at most an hour; None if it has no number of seconds."""
    return min(int(value), MOST_RETRY_AFTER) if _RETRY_AFTER.fullmatch(value) else None


class Closing(ABC):
    """A context manager that closes the object at the end of its block."""

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes
    from_api: bool = False

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ApiFailed: it is not JSON.
        """
        return self.convert(object)

    def convert(self, kind: type[T]) -> T:
        """The body as JSON of type ``kind`` (anything msgspec converts to), with exact numbers.

        Raises:
            ApiFailed: it is not JSON of this type.
        """
        try:
            return msgspec.json.Decoder(kind, float_hook=Decimal).decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ApiFailed("the answer was not the JSON that was expected") from None

    def check(self) -> Self:
        """This response, if it is neither an error nor a redirection, which is never followed.

        Raises:
            ErsError: the error that its problem document names.
        """
        if self.status < 300:
            return self
        raise problem.to_error(self.status, self.body, self.retry_after, from_api=self.from_api)

    @property
    def retry_after(self) -> int | None:
        """The seconds to wait that the server states."""
        return read_retry_after(self.headers.get("Retry-After", ""))

    @property
    def date(self) -> float | None:
        """The sender's time, in seconds since 1970, to the second; None if it states none."""
        try:
            return parsedate_to_datetime(self.headers["Date"]).timestamp()
        except (KeyError, ValueError, OverflowError):
            return None


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request that may be sent several times."""

    method: str
    path: str
    data: Whole | None = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    params: Mapping[str, str] | None = field(repr=False)
    patience: Patience
    auth: str | None = field(repr=False)
    bare: bool
    #: the answers after which it was repeated
    refusals: list[Response] = field(default_factory=list, repr=False)
    #: the failures without an answer after which it was repeated
    silences: list[ErsError] = field(default_factory=list, repr=False)

    def conclude(self, answer: Response) -> Response:
        """Check the answer like :meth:`Response.check`; the error mentions earlier tries."""
        try:
            return answer.check()
        except ErsError as error:
            error.repeated = bool(self.silences or self.refusals)
            raise

    def body(self) -> Body:
        """The body to send; a large body in pieces, so that progress is visible."""
        if self.data is None:
            return None
        if len(self.data) <= CHUNK_BYTES:
            return bytes(self.data)
        return self._pieces(memoryview(self.data))

    async def _pieces(self, data: memoryview) -> AsyncIterator[bytes]:
        for start in range(0, len(data), CHUNK_BYTES):
            yield bytes(data[start : start + CHUNK_BYTES])
            self.patience.note(min(CHUNK_BYTES, len(data) - start))


#: Maximum notes in a journal.
MOST_NOTES = 20


@dataclass(frozen=True, slots=True)
class Note:
    """A request as sent. ``sent`` and ``received`` are the bytes of its body and of the answer's;
    None if they were not counted. ``at`` is in seconds since 1970.
    """

    method: str
    path: str
    sent: int | None
    received: int | None
    status: int
    at: float


@dataclass(slots=True)
class PageCost:
    """The cost of rendering a page: the number of ``requests`` sent for it, with the bytes ``sent``
    and ``received``; and the index ``pages`` and ``rows`` that its queries needed, from the cache
    or the API, as EXPLAIN counts them.
    """

    requests: int = 0
    sent: int = 0
    received: int = 0
    pages: int = 0
    rows: int = 0


class Journal:
    """The newest notes, the newest last."""

    def __init__(self) -> None:
        self._notes: deque[Note] = deque(maxlen=MOST_NOTES)

    def __iter__(self) -> Iterator[Note]:
        return iter(list(self._notes))

    def add(self, made: Note) -> None:
        self._notes.append(made)


_journal: ContextVar[tuple[Journal, PageCost] | None] = ContextVar("journal", default=None)


@contextmanager
def keep_journal(journal: Journal, tally: PageCost) -> Iterator[None]:
    """Note in ``journal``, and add up in ``tally``, the requests sent until the block ends."""
    token = _journal.set((journal, tally))
    try:
        yield
    finally:
        _journal.reset(token)


def note_query(pages: int, rows: int) -> None:
    """Count a query that needed these pages of the index and rows."""
    if (kept := _journal.get()) is not None:
        kept[1].pages += pages
        kept[1].rows += rows


def note_request(
    method: str, target: str, sent: int | None, received: int | None, status: int
) -> None:
    """Note a request that was answered. Only the path of its address is kept."""
    if (kept := _journal.get()) is None:
        return
    journal, tally = kept
    path = target.partition("?")[0]
    journal.add(Note(method, path, sent, received, status, runtime.wall()))
    tally.requests += 1
    tally.sent += sent or 0
    tally.received += received or 0
