"""Values as pages show them, such as numbers, times and sizes, and the controls to type them.

A form uses the browser's own control for a type if it loses nothing. A browser control shows
nothing if a value does not match its format, and drops digits that it does not support. Such a
value gets a text field, so that it is shown unchanged.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup, escape

from encrypted_records import runtime
from encrypted_records.errors import TIME, Flaw
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.model.field_types.base import FieldType
from encrypted_records.model.field_types.calendar import DATE
from encrypted_records.model.strict_json import MAX_NUMBER_LENGTH

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def sentence(text: str) -> str:
    """Make a sentence from a message in lower case without a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def marked(text: object) -> Markup:
    """Text as HTML, with code in place of text between backquotes."""
    parts = str(text).split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part)
        for at, part in enumerate(parts)
    )


def position_of(flaw: Flaw) -> str:
    """The position of an error in the input: the row and the field, or the last name of the
    pointer.
    """
    name = flaw.field or (flaw.pointer or "").rpartition("/")[2]
    return ", ".join(part for part in (f"row {flaw.row}" if flaw.row else "", name) if part)


def plain(value: object) -> str:
    """A record's value, as a person would type it; empty if there is none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal) and _is_short(value):
        return f"{value:f}"
    return str(value)


def _is_short(number: Decimal) -> bool:
    """Whether it has few digits without an exponent: a few bytes of the API may mean a billion."""
    return abs(number.adjusted()) <= MAX_NUMBER_LENGTH


def whole(typed: str, most_digits: int) -> int | None:
    """A typed number without a sign; None for another text, or for more digits."""
    is_number = typed.isascii() and typed.isdecimal() and len(typed) <= most_digits
    return int(typed) if is_number else None


def grouped(value: object) -> str:
    """A number with its digits in groups of three: ``1,234.5``; anything else as :func:`plain`."""
    if isinstance(value, bool):
        return plain(value)
    if isinstance(value, Decimal) and _is_short(value):
        return f"{value:,f}"
    return f"{value:,}" if isinstance(value, int) else plain(value)


def rounded(value: object) -> str:
    """A mean: grouped, with at most two decimals if there are digits before them."""
    if not isinstance(value, Decimal | float):
        return grouped(value)
    exact = Decimal(value)
    if exact and abs(exact) < 1:
        return f"{exact:.3g}"
    text = f"{exact:,.2f}"
    return text.rstrip("0").rstrip(".")


def short(number: float) -> str:
    """A count on a scale: ``950``, ``1.2k``, ``15M``."""
    for unit, size_of_unit in (("M", 1_000_000), ("k", 1000)):
        if number >= size_of_unit:
            return f"{number / size_of_unit:.3g}{unit}"
    return f"{number:.3g}"


def percent(part: float, total: float) -> str:
    """A share, which is shown as 0 % or 100 % only if it is exact."""
    share = 100 * part / total if total else 0.0
    if not share:
        return "0 %"
    if share < 0.01:
        return "under 0.01 %"
    if 99.9 < share < 100:
        return "over 99.9 %"
    return f"{share:.2g} %" if share < 10 else f"{share:.3g} %"


#: Maximum characters: a label next to a bar has room for some thirty.
_LABEL_CHARACTERS = 80
_NUMBER = re.compile(r"(-?)([0-9]+)((?:\.[0-9]+)?)")
#: Minimum digits before the point for grouping. Whole numbers of four digits may be years.
_GROUPED_FROM = 5
#: A boolean shows a sign before its word.
_FLAGS = {True: "<b class=yes>true</b>", False: "<b class=no>false</b>"}
#: Characters that change the display of others, or are invisible.
_INVISIBLE = ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")
#: Line ends and tabs, which people type: a symbol, and its name.
_BREAKS = {
    "\n": ("\u23ce", "new line"),
    "\r": ("\u240d", "carriage return"),
    "\t": ("\u21e5", "tab"),
}
_NON_JOINER, _JOINER = "\u200c", "\u200d"
#: Scripts in which a joiner changes the shape of the neighbouring letters, and is part of the
#: spelling (Unicode Standard Annex #31, section 2.3), by the first word of their letters' names.
_JOINING = frozenset(
    "ARABIC SYRIAC MONGOLIAN NKO DEVANAGARI BENGALI GURMUKHI GUJARATI ORIYA TAMIL TELUGU KANNADA"
    " MALAYALAM SINHALA KHMER MYANMAR TIBETAN".split()
)
_EMOJI_PRESENTATION = "\ufe0f"
#: A flag of a region, such as that of Wales, is a black flag and invisible letters.
_BLACK_FLAG, _TAGS = "\U0001f3f4", "".join(map(chr, range(0xE0020, 0xE0080)))


def reveal(text: object, *, lines: bool = False) -> Markup:
    """Text as HTML with nothing hidden: control characters are shown by name.

    Joiners within an emoji or between letters of a script that needs them are left unchanged.

    Args:
        lines: leave line ends as they are.
    """
    written = str(text)
    if written.isprintable():
        return escape(written)
    parts: list[Markup] = []
    for at, sign in enumerate(written):
        if unicodedata.category(sign) not in _INVISIBLE or (lines and sign == "\n"):
            parts.append(escape(sign))
        elif sign in _BREAKS:
            shown = Markup('<span class="break" title="{}">{}</span>')
            parts.append(shown.format(_BREAKS[sign][1], _BREAKS[sign][0]))
        elif _is_spelling(written, at):
            parts.append(escape(sign))
        else:
            shown = Markup('<span class="control" title="{0}">{0}</span>')
            parts.append(shown.format(f"U+{ord(sign):04X}"))
    return Markup("").join(parts)


def _is_spelling(text: str, at: int) -> bool:
    """Whether an invisible character is part of the spelling of the neighbouring characters."""
    sign, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if not before:
        return False
    if sign in _TAGS:
        return text[:at].rstrip(_TAGS).endswith(_BLACK_FLAG)
    if sign not in (_NON_JOINER, _JOINER) or not after:
        return False
    if sign == _JOINER and unicodedata.category(after) == "So":
        return before == _EMOJI_PRESENTATION or unicodedata.category(before) in ("So", "Sk")
    script = _script(before)
    return script in _JOINING and script == _script(after)


def _script(letter: str) -> str:
    """The first word of the name of a letter or mark; empty for other characters."""
    is_of_words = unicodedata.category(letter)[0] in "LM"
    return unicodedata.name(letter, "").partition(" ")[0] if is_of_words else ""


def digits(value: object) -> Markup:
    """A stored number as HTML: gaps between groups of three digits, which are not in its text, so
    that the copied text is the stored number. Four digits without decimals stay together.
    """
    return Markup(write_digits(value))  # noqa: S704 - digits and a sign, or escaped


def write_digits(value: object) -> str:
    """Format like :func:`digits`, as HTML, for callers that format many values."""
    if type(value) is int:  # the most frequent type, hundreds per page
        if -10_000 < value < 10_000:
            return str(value)
        first, gap, groups = f"{value:,}".partition(",")
        return f"{first}<span>{groups.replace(gap, '</span><span>')}</span>"
    if isinstance(value, bool):
        return _FLAGS[value]
    text = plain(value)
    number = _NUMBER.fullmatch(text)
    if number is None:
        return str(escape(text))
    sign, integer_digits, decimals = number.groups()
    if len(integer_digits) < _GROUPED_FROM - bool(decimals):
        return text
    head = len(integer_digits) % 3 or 3
    gaps = "".join(
        f"<span>{integer_digits[at : at + 3]}</span>" for at in range(head, len(integer_digits), 3)
    )
    return f"{sign}{integer_digits[:head]}{gaps}{decimals}"


def shortened(text: str, most: int = _LABEL_CHARACTERS) -> str:
    """The beginning of a long text, for people to read."""
    return text if len(text) <= most else f"{text[:most]}…"


def format_minutes(minutes: float) -> str:
    """``12 hours``, ``45 minutes``"""
    count = round(minutes)
    if count % 60:
        return format_count(count, "minute")
    return format_count(count // 60, "hour")


def format_count(number: int, singular: str, many: str = "") -> str:
    """``1 record``, ``12,345 records``"""
    return f"{number:,} {singular if number == 1 else many or singular + 's'}"


def size(number: float) -> str:
    """A number of bytes, in the largest unit that gives a number above one."""
    for unit in _UNITS:
        if number < 1000 or unit == _UNITS[-1]:
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "bytes" or number >= 100 else f"{number:.1f} {unit}"


def duration(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    for limit, unit_seconds, unit in (
        (90, 1, "second"),
        (5400, 60, "minute"),
        (172800, 3600, "hour"),
    ):
        if seconds < limit:
            return format_count(round(seconds / unit_seconds), unit)
    return format_count(round(seconds / 86400), "day")


def moment(value: str | float | datetime | None) -> str:
    """A time of the API (ISO 8601, or seconds since 1970), to the minute, in UTC."""
    if not value:
        return "not known"
    return _instant(value).strftime("%Y-%m-%d %H:%M UTC")


def timed(value: str | float | datetime | None) -> Markup:
    """The same as HTML, which a script shows in the browser's time zone."""
    if not value:
        return escape(moment(value))
    exact = _instant(value).isoformat(timespec="seconds")
    return Markup('<time datetime="{}">{}</time>').format(exact, moment(value))


def with_times(text: str) -> Markup:
    """The text of an error, with its times formatted by :func:`timed`."""
    shown, at = Markup(), 0
    for found in TIME.finditer(text):
        with suppress(ValueError):  # an API may write any digits
            shown += escape(text[at : found.start()]) + timed(found[0])
            at = found.end()
    return shown + escape(text[at:])


def _instant(value: str | float | datetime) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        try:
            return value.astimezone(UTC)
        except OverflowError:  # of an API: within a day of the first or last year there is
            return value.replace(tzinfo=UTC)
    return datetime.fromtimestamp(float(value), UTC)


def age(then: float) -> str:
    """The time since ``then`` in the largest unit: ``5 min``, ``3 days``."""
    seconds = max(0, int(runtime.wall() - then))
    for unit_seconds, one, many in ((86_400, "day", "days"), (3600, "h", "h"), (60, "min", "min")):
        if seconds >= unit_seconds:
            count = seconds // unit_seconds
            return f"{count:,} {one if count == 1 else many}"
    return "under 1 min"


def second(value: float) -> Markup:
    """A time of today, in seconds since 1970, as HTML like :func:`timed`: ``14:03:05 UTC``."""
    instant = datetime.fromtimestamp(value, UTC)
    exact, shown = instant.isoformat(timespec="seconds"), instant.strftime("%H:%M:%S UTC")
    return Markup('<time datetime="{}" data-clock>{}</time>').format(exact, shown)


@cache
def scripts_are_built() -> bool:
    """Whether the bundles exist; they cannot be built without Node."""
    return files("encrypted_records.proxy.pages").joinpath("static/built/pages.js").is_file()


FILTERS: Mapping[str, Callable[..., Any]] = {
    "sentence": sentence,
    "marked": marked,
    "position": position_of,
    "plain": plain,
    "grouped": grouped,
    "digits": digits,
    "reveal": reveal,
    "shortened": shortened,
    "counted": format_count,
    "size": size,
    "duration": duration,
    "moment": timed,
    "with_times": with_times,
    "second": second,
    "share": percent,
    "age": age,
}


# --- controls for values --------------------------------------------------------------------------

#: Number of digits beyond which browsers compare numbers inexactly.
_EXACT_DIGITS = 15
#: Longer texts, and texts of several lines, get an input of several lines.
_LONG_TEXT = 80
_TYPED_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
#: The values of a boolean, and their labels.
BOOLEANS = (("true", "yes"), ("false", "no"))


@dataclass(frozen=True, slots=True)
class Widget:
    """Attributes:
    form: ``input``, ``lines`` (of text), ``menu`` or ``buttons`` (one of ``choices``), or
        ``instant``: a date and time, and its ``offset`` from UTC.
    type: HTML type of an ``input``.
    attributes: more attributes of an ``input``.
    label: the kind of value, as text.
    """

    form: str
    value: str
    label: str
    type: str = "text"
    attributes: Mapping[str, str] = field(default_factory=dict)
    choices: Sequence[tuple[str, str]] = ()
    offset: str = ""


def widget_of(kind: str, spec: Mapping[str, Any], value: str) -> Widget:
    """
    Args:
        kind: the field's type, or its enforced format.
        spec: the field in the definition.
        value: the shown value as text; empty for none.
    """
    field_type = BY_NAME[kind]
    control, label = field_type.control, field_type.said
    shows = not value or re.fullmatch(control.pattern, value) is not None
    if "enum" in spec or "const" in spec:
        listed = [plain(value) for value in spec.get("enum", [spec.get("const")])]
        if not value or value in listed:
            return Widget(
                "menu", value, "one of a list", choices=[(choice, choice) for choice in listed]
            )
    elif control.form == "number":
        return _of_number(field_type, spec, value)
    elif control.form == "choice" and value in ("", *(typed for typed, _ in BOOLEANS)):
        return Widget("buttons", value, label, choices=BOOLEANS)
    elif control.form == "native" and shows:
        attributes = {**control.attributes, **({"step": _step(value)} if control.steps else {})}
        return Widget("input", value, label, control.html, attributes)
    elif control.form == "instant" and shows:
        instant = re.fullmatch(control.pattern, value)
        local, offset = (instant["local"], instant["offset"]) if instant else ("", "Z")
        return Widget("instant", local, label, attributes={"step": _step(local)}, offset=offset)
    elif field_type.is_text and ("\n" in value or len(value) > _LONG_TEXT):
        return Widget("lines", value, label)
    shown = {"placeholder": control.example} if control.hints else {}
    return Widget("input", value, label, attributes={"dir": "auto", **shown})


def _step(time: str) -> str:
    """Seconds, or the number of decimals in a value's seconds."""
    return "0.001" if "." in time else "1"


def _of_number(field_type: FieldType, spec: Mapping[str, Any], value: str) -> Widget:
    least, most = Decimal(spec["minimum"]), Decimal(spec["maximum"])
    decimals = int(spec.get("precision", 0)) if field_type.has_decimals else 0
    label = f"{field_type.said}, {grouped(least)} to {grouped(most)}"
    if decimals:
        label += f", {format_count(decimals, 'decimal')}"
    digits = len(f"{max(abs(least), abs(most)):.0f}") + decimals
    if digits > _EXACT_DIGITS or not (not value or _TYPED_NUMBER.fullmatch(value)):
        return Widget("input", value, label, attributes={"inputmode": "decimal"})
    # A number with more decimals is not refused here: the schema decides about rounding.
    step = "any" if field_type.has_decimals else "1"
    limits = {"step": step, "min": plain(least), "max": plain(most)}
    return Widget("input", value, label, "number", limits)


def is_day(text: str) -> bool:
    """Whether a browser's date field can show this."""
    return re.fullmatch(DATE.control.pattern, text) is not None


def instant_of(local: str, offset: str) -> str:
    """Join a date, a time and an offset to an instant: with seconds, and without trailing zeros in
    the decimals.
    """
    if not local.strip():
        return ""
    if re.fullmatch(r".*T[0-9]{2}:[0-9]{2}", local):
        local += ":00"
    if "." in local:
        local = local.rstrip("0").rstrip(".")
    return f"{local}{offset.strip()}"
