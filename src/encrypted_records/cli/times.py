"""Times in tables, in the time zone of this machine, or in UTC with ``--utc``; and in errors.

JSON and CSV contain times as the HTTP API sends them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from encrypted_records.errors import TIME

_IN_UTC = f"{__name__}.utc"
#: Length of a day without a time, which is a day of UTC.
_DAY = len("2026-01-31")
#: Members of resources that are times.
TIMES = frozenset({"created", "updated", "expires", "last_used", "since"})


def _remember(context: click.Context, _param: click.Parameter, value: bool) -> None:
    context.meta[_IN_UTC] = value


utc_option = click.option(
    "--utc",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    help="Show times of tables in UTC (default: local time).",
)


def minute(value: Any) -> str:
    """A time to the minute, such as ``2026-01-31 08:30``; in UTC with a Z behind it.

    Args:
        value: seconds since 1970, or a text as in ISO 8601, in UTC unless it says otherwise; None
            is empty. A text that is only a day, or no time at all, is returned as it is.
    """
    if value is None or value == "":
        return ""
    if isinstance(value, str) and len(value) <= _DAY:
        return value
    zone = UTC if _in_utc() else None
    try:
        shown = _moment(value).astimezone(zone)
    except (ValueError, OverflowError, OSError, TypeError):
        return str(value)  # an API may send anything
    return f"{shown:%Y-%m-%d %H:%M}{'Z' if zone else ''}"


def with_minutes(text: str) -> str:
    """The text of an error, with its times as :func:`minute` shows them."""
    return TIME.sub(lambda found: minute(found[0]), text)


def _moment(value: Any) -> datetime:
    if not isinstance(value, str):
        return datetime.fromtimestamp(value, UTC)
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def day(seconds: int) -> str:
    """The day of a time in seconds since 1970; empty for 0."""
    return minute(seconds)[:_DAY] if seconds else ""


def _in_utc() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_IN_UTC))
