"""Normalization equals the standard library's for every text, and takes linear time for any."""

from __future__ import annotations

import random
import time
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.model.texts import _SHORT, Form, normalized

FORMS: tuple[Form, ...] = ("NFC", "NFD", "NFKC", "NFKD")
EVERY = range(0x110000)


@cache
def marks() -> list[str]:
    return [one for one in map(chr, EVERY) if unicodedata.combining(one)]


def decomposing() -> list[str]:
    """What is no mark by its own class, and yet becomes one or ends in one."""
    return [
        one
        for one in map(chr, EVERY)
        if unicodedata.combining(unicodedata.normalize("NFKD", one)[-1])
        and not unicodedata.combining(one)
    ]


def texts() -> st.SearchStrategy[str]:
    """Marks out of order, with what begins and ends them; long enough for the way around."""
    among = ["a", "\u1100", "\uac00", "\u09c7", "\u0041\u030a", *marks(), *decomposing()]
    drawn = st.lists(st.sampled_from(among) | st.characters(), min_size=_SHORT, max_size=4 * _SHORT)
    return drawn.map("".join)


@given(st.deferred(texts), st.sampled_from(FORMS))
def test_every_text_becomes_what_the_standard_library_makes_of_it(text: str, form: Form) -> None:
    assert normalized(form, text) == unicodedata.normalize(form, text)


@given(st.text(), st.sampled_from(FORMS))
def test_so_does_a_short_one(text: str, form: Form) -> None:
    assert normalized(form, text) == unicodedata.normalize(form, text)


@pytest.mark.parametrize("form", FORMS)
def test_so_does_every_character_among_marks(form: Form) -> None:
    around = "\u0315\u0300\u0316\u093c"
    composed = [one for one in map(chr, EVERY) if unicodedata.decomposition(one)]
    named = composed + marks() + [chr(point) for point in EVERY[:0x3400]]
    for at in range(0, len(named), 100):
        text = 32 * around + around.join(named[at : at + 100]) + around
        assert normalized(form, text) == unicodedata.normalize(form, text)


def out_of_order(size: int) -> Iterator[str]:
    """Texts of about so many bytes of UTF-8, on which sorting by insertion is slowest."""
    by_class = {unicodedata.combining(mark): mark for mark in marks()}
    falling = [by_class[own] for own in sorted(by_class, reverse=True)]
    for first, then in pairwise(falling):
        pair = first + then
        yield pair * (size // len(pair.encode()))
    yield "".join(falling) * (size // len("".join(falling).encode()))
    for one in "\u0f73\u0f81\u0344\uff9e\u1e69\ufb2c":  # which come out of order when taken apart
        yield (one + "\u0315\u0300") * (size // len((one + "\u0315\u0300").encode()))
    chance = random.Random(0)
    drawn = chance.choices(marks(), k=size // 3)
    yield "".join(drawn)
    yield "".join(sorted(drawn, key=unicodedata.combining, reverse=True))


@pytest.mark.parametrize("form", FORMS)
def test_marks_in_any_order_take_linear_time(form: Form) -> None:
    for small, large in zip(out_of_order(1 << 11), out_of_order(1 << 17), strict=True):
        assert normalized(form, small) == unicodedata.normalize(form, small)
        started = time.process_time()
        normalized(form, large)
        # By insertion a second each and more; this way some milliseconds.
        assert time.process_time() - started < 0.3


def test_a_megabyte_of_marks_takes_a_tenth_of_a_second() -> None:
    text = "\u0315\u0300" * (1 << 18)
    normalized("NFC", text)
    started = time.process_time()
    found = normalized("NFC", text)
    assert time.process_time() - started < 0.5  # by insertion four minutes
    assert found == "\u0300" * (1 << 18) + "\u0315" * (1 << 18)
