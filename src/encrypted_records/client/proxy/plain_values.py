"""Values of Python and its libraries -> values that JSON can say.

Each is said exactly, and equal values alike, or it is refused by the name of its kind. The encoder
of JSON is not asked: it rounds the offset of an instant to minutes, and makes a text of bytes.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any
from uuid import UUID

from encrypted_records.errors import BadInput, Flaw

#: Of these JSON says each value as it is.
AS_IT_IS = frozenset({str, int, bool, type(None)})
STORABLE = "texts, finite numbers, true, false and None can be sent, and objects and lists of these"
NO_NUMBER = "NaN and infinities cannot be stored"
_NANOSECONDS = 10**9
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MINUTE = datetime.timedelta(minutes=1)


class _Unsayable(Exception):
    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = ""


def plain(body: Any) -> Any:
    """``body`` with all its values as JSON can say them.

    Raises:
        BadInput: one cannot be said. Its place and its kind are named, never the value.
    """
    try:
        return _plain(body)
    except _Unsayable as error:
        flaws = (Flaw("type", error.detail, pointer=error.pointer or None),)
        raise BadInput(error.detail, hint=STORABLE, flaws=flaws) from None


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in AS_IT_IS:
        return value
    if kind is float or kind is Decimal:
        return _number(value)
    library = kind.__module__.partition(".")[0]
    if library == "pandas" and kind.__name__ in ("NAType", "NaTType"):
        return None  # before dates: NaT calls itself one
    if library == "numpy":
        return _of_numpy(value)
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, float | Decimal):
        return _number(value)
    if isinstance(value, Mapping):
        return {name: _at(name, item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(kind, "n_sequence_fields"):
        return [_at(place, item) for place, item in enumerate(value)]
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | UUID):
        return _as_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        detail = f"{kind.__name__} cannot be stored; make them a text, such as one of base64"
        raise _Unsayable(detail)
    if library == "pandas" or hasattr(kind, "n_sequence_fields"):
        raise _Unsayable(f"a {kind.__name__} cannot be stored; make it a text or a number")
    return value  # the encoder knows it, or names its kind


def _number(value: float | Decimal) -> float | Decimal:
    if not (value.is_finite() if isinstance(value, Decimal) else isfinite(value)):
        raise _Unsayable(NO_NUMBER)
    return value


def _at(place: str | int, value: Any) -> Any:
    try:
        return _plain(value)
    except _Unsayable as error:
        token = str(place).replace("~", "~0").replace("/", "~1")
        error.pointer = f"/{token}{error.pointer}"
        raise


def _of_numpy(value: Any) -> Any:
    kind = type(value).__name__
    if kind == "datetime64":
        text = str(value)
        return None if text == "NaT" else _even_decimals(text)
    made = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
    if kind == "timedelta64" or type(made).__module__ == "numpy":
        raise _Unsayable(f"a {kind} of NumPy cannot be stored; make it a text or a number")
    return _plain(made)


def _as_text(value: datetime.date | datetime.time | datetime.timedelta | UUID) -> str:
    if isinstance(value, datetime.datetime):
        return _instant(value)
    if isinstance(value, datetime.timedelta):
        whole = value // datetime.timedelta(microseconds=1)
        return duration_of(1000 * whole + int(getattr(value, "nanoseconds", 0)))
    return str(value) if isinstance(value, UUID) else value.isoformat()


def _instant(value: datetime.datetime) -> str:
    offset = value.utcoffset()
    try:
        # RFC 3339 has minutes, and zones had seconds: the instant is kept, not the offset.
        moment = value.astimezone(datetime.UTC) if offset and offset % _MINUTE else value
        text = moment.isoformat()
    except (OverflowError, ValueError):
        raise _Unsayable("an instant is outside the years 1 to 9999 in UTC") from None
    return text if moment.utcoffset() != datetime.timedelta(0) else f"{text[:-6]}Z"


def _even_decimals(text: str) -> str:
    """A time with none, 6 or 9 decimals, as those of pandas are written, or as many as it needs."""
    whole, _, decimals = text.partition(".")
    decimals = decimals.rstrip("0")
    if not decimals:
        return f"{whole}:00" if "T" in whole and whole.count(":") == 1 else whole
    return f"{whole}.{decimals.ljust(6 if len(decimals) <= 6 else 9, '0')}"


def duration_of(nanoseconds: int) -> str:
    """A duration as text."""
    seconds, rest = divmod(abs(nanoseconds), _NANOSECONDS)
    decimals = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{'-' if nanoseconds < 0 else ''}PT{seconds}{decimals}S"


def instant_of(nanoseconds: int, zone: datetime.tzinfo | None) -> datetime.datetime | str:
    """An instant of libraries that count nanoseconds since 1970; a text where it is none of whole
    microseconds, which are all that Python has.

    Args:
        zone: in which it is shown; None for local times without any.
    """
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    moment = _EPOCH + datetime.timedelta(seconds=seconds)
    moment = moment.replace(tzinfo=None) if zone is None else moment.astimezone(zone)
    if rest % 1000 == 0:
        return moment.replace(microsecond=rest // 1000)
    text = _instant(moment)
    return f"{text[:19]}.{rest:09d}{text[19:]}"


def time_of(nanoseconds: int) -> datetime.time | str:
    """A time of day, as :func:`instant_of` an instant."""
    moment = instant_of(nanoseconds, None)
    return moment.time() if isinstance(moment, datetime.datetime) else moment.partition("T")[2]
