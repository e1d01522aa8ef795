"""How pages write numbers, shares and texts."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from encrypted_records.proxy.pages import formatting as words


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (0, 5431, "0 %"),
        (2, 5431, "0.037 %"),
        (1, 10**6, "under 0.01 %"),
        (1, 3, "33.3 %"),
        (999_999, 10**6, "over 99.9 %"),
        (5, 5, "100 %"),
    ],
)
def test_a_share_is_never_nothing_or_all_where_it_is_not(part: int, whole: int, said: str) -> None:
    assert words.percent(part, whole) == said


@pytest.mark.parametrize(
    "number", [0, -7, 1997, 12345, -1234567, Decimal("999.5"), Decimal("8908.02"), 10**30]
)
def test_grouped_digits_are_the_stored_ones_when_they_are_copied(number: int | Decimal) -> None:
    html = str(words.digits(number))
    assert re.sub(r"</?span>", "", html) == words.plain(number)
    whole, point, _ = words.plain(number).lstrip("-").partition(".")
    assert ("<span>" in html) == (len(whole) >= (4 if point else 5))


def test_numbers_are_grouped_in_what_is_said() -> None:
    assert words.grouped(Decimal("293747.13")) == "293,747.13"
    assert words.rounded(Decimal("7283.034567")) == "7,283.03"
    assert words.rounded(Decimal("0.000123456")) == "0.000123"
    assert words.format_count(1, "cell") == "1 cell"


def test_times_in_the_text_of_an_error_become_times_of_the_browser_and_nothing_else_does() -> None:
    text = "<b> at 2026-01-31T20:30:15Z, 2026-13-31T20:30:15Z & 2026-01-31"
    assert words.with_times(text) == (
        '&lt;b&gt; at <time datetime="2026-01-31T20:30:15+00:00">2026-01-31 20:30 UTC</time>'
        ", 2026-13-31T20:30:15Z &amp; 2026-01-31"
    )


def test_what_hides_in_a_text_is_named_and_nothing_becomes_html() -> None:
    assert words.reveal("<b>") == "&lt;b&gt;"
    assert "U+202E" in words.reveal("a\u202eb")
    assert words.reveal("a\nb") == 'a<span class="break" title="new line">\u23ce</span>b'
    assert words.reveal("a\nb", lines=True) == "a\nb"
    assert words.reveal("<\u200b>").count("<") == 2
    assert words.reveal("مرحبا 日本") == "مرحبا 日本"


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",
        "\u2764\ufe0f\u200d\U0001f525",
        "\U0001f3f4\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0915\u094d\u200d\u0937",
    ],
)
def test_joiners_that_belong_to_how_people_write_are_left_alone(text: str) -> None:
    assert words.reveal(text) == text


@pytest.mark.parametrize(
    "text",
    ["ab\u200dc", "pay\u200cpal", "\u200dx", "x\U000e0067", "\u0645\u200c", "\u0645\u200ca"],
)
def test_joiners_that_only_hide_are_named(text: str) -> None:
    assert words.reveal(text).count('class="control"') == 1


@pytest.mark.parametrize("extreme", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_times_beyond_the_calendar_in_utc_are_shown_in_the_offset_that_they_state(
    extreme: str,
) -> None:
    assert words.moment(extreme).removesuffix(" UTC") == extreme[:16].replace("T", " ").lstrip("0")
