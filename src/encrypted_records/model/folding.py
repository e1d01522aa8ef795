"""Spellings made alike: capital and small letters, accents, widths, ligatures."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from encrypted_records.model.normalization import normalized


def folded(text: str) -> str:
    """NFKC, then casefold, then without marks (category Mn), in NFC.

    No character depends on others that a zero character separates from it: texts that are joined
    by zeros are folded as if each were alone.
    """
    if text.isascii():
        return text.lower()
    apart = normalized("NFKD", normalized("NFKC", text).casefold())
    return normalized("NFC", _marks().sub("", apart))


@cache
def _marks() -> re.Pattern[str]:
    # All assigned marks lie below, or are variation selectors (tests/model/test_folding.py).
    points = [*range(0x300, 0x20000), *range(0xE0100, 0xE01F0)]
    marks = [point for point in points if unicodedata.category(chr(point)) == "Mn"]
    runs: list[list[int]] = []
    for point in marks:
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return re.compile("[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in runs) + "]+")
