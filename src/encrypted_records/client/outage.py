"""Share the news that a server does not answer with all requests that wait for it.

Requests wait for each other, for instance for the same credentials to be traded. When the first of
them times out, the next would wait as long again, and the last for minutes. Therefore each request
that began before the timeout was known fails at once. A later request tries again.
"""

from __future__ import annotations

from contextvars import ContextVar

from encrypted_records import runtime
from encrypted_records.errors import ApiTimeout, ApiUnreachable

#: When the request came in on whose behalf something is asked, on the monotonic clock; endless
#: where nobody waits.
came_in: ContextVar[float] = ContextVar("came_in", default=float("inf"))

#: For how many seconds it counts that there was no answer.
FRESH_SECONDS = 5.0


class Outage:
    """The outage of a server, as one event loop sees it."""

    def __init__(self) -> None:
        self._heard = 0.0
        self._failed = 0.0
        self._error: ApiUnreachable | ApiTimeout | None = None

    def heard(self) -> None:
        """It has answered."""
        self._heard = runtime.monotonic()
        self._error = None

    def note_failure(self, error: ApiUnreachable | ApiTimeout, began: float) -> None:
        """A request that began then got no answer."""
        if self._heard < began:
            self._failed = runtime.monotonic()
            self._error = error

    def refuse(self) -> None:
        """
        Raises:
            ApiUnreachable, ApiTimeout: as another request has just done, and anyone who waits came
                in before it did.
        """
        fresh = runtime.monotonic() - self._failed < FRESH_SECONDS
        if self._error is not None and fresh and came_in.get() < self._failed:
            error = self._error
            raise type(error)(error.message, code=error.reason, hint=error.hint)
