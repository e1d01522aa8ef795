"""How pages say things: sentences of errors, numbers, times, sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from importlib.resources import files
from typing import Any

from encrypted_records.errors import Flaw

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def sentence(text: str) -> str:
    """A message, which is lower case and without a full stop, as a sentence of its own."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def place(flaw: Flaw) -> str:
    """Where in what was sent: the row and the field, or the last name of the pointer."""
    name = flaw.field or (flaw.pointer or "").rpartition("/")[2]
    return ", ".join(part for part in (f"row {flaw.row}" if flaw.row else "", name) if part)


def plain(value: object) -> str:
    """A record's value, as a person would type it; nothing where there is none."""
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)


def counted(number: int, one: str, many: str = "") -> str:
    """``1 record``, ``12,345 records``"""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: float) -> str:
    """Bytes in the largest unit that leaves a number above one."""
    for unit in _UNITS:
        if number < 1000 or unit == _UNITS[-1]:
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "bytes" or number >= 100 else f"{number:.1f} {unit}"


def duration(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    for limit, one, unit in ((90, 1, "second"), (5400, 60, "minute"), (172800, 3600, "hour")):
        if seconds < limit:
            return counted(round(seconds / one), unit)
    return counted(round(seconds / 86400), "day")


def moment(value: str | float | None) -> str:
    """A time of the API (ISO 8601, or seconds since 1970), to the minute, in UTC."""
    if not value:
        return "not known"
    if isinstance(value, str):
        found = datetime.fromisoformat(value)
    else:
        found = datetime.fromtimestamp(float(value), UTC)
    return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def scripts_are_built() -> bool:
    """Whether the bundles are there; without Node they could not be made."""
    return files("encrypted_records.proxy.web").joinpath("static/built/pages.js").is_file()


FILTERS: Mapping[str, Callable[..., Any]] = {
    "sentence": sentence,
    "place": place,
    "plain": plain,
    "counted": counted,
    "size": size,
    "duration": duration,
    "moment": moment,
}
