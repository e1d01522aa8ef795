"""Whether this machine's clock may decide what is old enough to be deleted."""

from __future__ import annotations

from encrypted_records.errors import Conflict
from encrypted_records.model.retention import DAY_MILLISECONDS

#: How far the clock may be from others, in seconds.
MOST_SECONDS = DAY_MILLISECONDS / 1000


def require_right(now: float, *, api: float | None, newest: int) -> None:
    """Compare the clock with what others say. Neither of them alone has anything deleted: they only
    prevent it.

    Args:
        now: by the clock, in seconds since 1970.
        api: the API's time; None where it states none.
        newest: when the newest commit of the log stored or ended records, in milliseconds.

    Raises:
        Conflict: ``clock_wrong``.
    """
    if api is None:
        raise _wrong("the API states no time, with which this clock could be compared")
    if abs(now - api) > MOST_SECONDS:
        raise _wrong("this machine's clock is more than a day off the API's")
    if newest / 1000 - now > MOST_SECONDS:
        raise _wrong("this machine's clock is more than a day behind the newest commit of the log")


def _wrong(why: str) -> Conflict:
    return Conflict(
        f"nothing is deleted by age: {why}",
        code="clock_wrong",
        hint="set the clocks of this machine and of the API's, then try again",
    )
