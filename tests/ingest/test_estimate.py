"""The words of an estimate are those of the document on leakage."""

from __future__ import annotations

from pathlib import Path

import pytest

from encrypted_records.ingest.estimate import REVEALS

LEAKAGE = Path(__file__).parents[2] / "docs" / "LEAKAGE.md"


@pytest.mark.parametrize("kind", ["string", "integer", "number"])
def test_what_a_field_reveals_is_said_in_the_words_of_the_document(kind: str) -> None:
    document = " ".join(LEAKAGE.read_text().split())

    for sentence in REVEALS[kind].values():  # type: ignore[index]
        assert sentence in document
