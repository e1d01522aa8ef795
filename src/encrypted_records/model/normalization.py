"""Unicode normalization (UAX #15) in linear time, for every text.

CPython sorts each run of combining marks by insertion, in quadratic time, and lets no other thread
run meanwhile: a megabyte of marks that are out of order kept a process busy for many minutes.
Nothing else in this package may call :func:`unicodedata.normalize` (tests/test_house.py).
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any, Literal

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

#: Characters up to which insertion is quick: 20 microseconds at worst.
_SHORT = 128


def comparable(text: str) -> str:
    """The form in which strings are compared: NFC (UAX #15), nothing else folded."""
    return text if text.isascii() else normalized("NFC", text)


def normalized(form: Form, text: str) -> str:
    """``unicodedata.normalize(form, text)``, equal for every text."""
    if len(text) <= _SHORT:
        return unicodedata.normalize(form, text)
    # This does not sort: it ends where marks are out of order.
    if unicodedata.is_normalized(form, text):
        return text
    return unicodedata.normalize(form, _ordered("NFKD" if "K" in form else "NFD", text))


def _ordered(form: Literal["NFD", "NFKD"], text: str) -> str:
    """An equivalent text whose marks are in canonical order already.

    Runs of marks are decomposed and sorted stably by combining class, which is what the standard
    calls their canonical order. Marks that other characters begin a run with, at most three by the
    standard's data, are still moved by insertion.
    """
    # Commands start without it, and few texts come here.
    import numpy as np  # noqa: PLC0415

    classes, several = _marks(form)
    for mark, parts in several:
        text = text.replace(mark, parts)
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    own = classes[points]
    # Every character that is no mark begins a run, and is the first of it: its class is 0.
    order = np.lexsort((own, np.cumsum(own == 0)))
    return points[order].tobytes().decode("utf-32-le", "surrogatepass")


@cache
def _marks(form: Literal["NFD", "NFKD"]) -> tuple[Any, list[tuple[str, str]]]:
    """The combining class of every code point, as an array; and what only stands for other marks,
    with these marks, in the order in which they are to be replaced."""
    import numpy as np  # noqa: PLC0415

    classes = np.zeros(0x110000, np.uint8)
    several: list[tuple[str, str]] = []
    for point in range(0x110000):
        character = chr(point)
        own = unicodedata.combining(character)
        if own:
            classes[point] = own
        if unicodedata.decomposition(character):
            parts = unicodedata.normalize(form, character)
            if parts != character and all(map(unicodedata.combining, parts)):
                several.append((character, parts))
    return classes, several
