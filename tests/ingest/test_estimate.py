"""The words of an estimate are those of the document on leakage, its sizes those of segments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from encrypted_records.crypto.keys import Keyring
from encrypted_records.index import columns
from encrypted_records.index.building import Builder, Shell
from encrypted_records.ingest.estimate import REVEALS, estimate
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id

LEAKAGE = Path(__file__).parents[2] / "docs" / "LEAKAGE.md"


@pytest.mark.parametrize("kind", ["string", "integer", "number"])
def test_what_a_field_reveals_is_said_in_the_words_of_the_document(kind: str) -> None:
    document = " ".join(LEAKAGE.read_text().split())

    for sentence in REVEALS[kind].values():  # type: ignore[index]
        assert sentence in document


DEFINITION = parse_definition(
    """{"type": "object", "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 1000000000},
        "age": {"type": "integer", "minimum": 0, "maximum": 120}}}"""
)


@pytest.mark.parametrize(("records", "off"), [(100, 0.0), (4097, 0.0), (65_537, 0.2)])
def test_the_index_is_as_large_as_a_segment_of_random_values(records: int, off: float) -> None:
    key = Keyring.generate().schema(new_id(), new_id()).newest
    chance = np.random.default_rng(1)
    values = {
        "name": [chance.bytes(6).hex() for _ in range(records)],
        "n": chance.integers(0, 10**9 + 1, records).tolist(),
        "age": chance.integers(0, 121, records).tolist(),
    }
    builder = Builder(key, DEFINITION, Shell([(new_id(), 0)], np.arange(records, dtype=np.uint32)))
    for name, spec in DEFINITION.fields.items():
        builder.add(name, columns.build(spec, key.field(spec), values[name]))
    stored = sum(len(page.data) for page in builder.finish().pages)

    found = estimate(DEFINITION, records, {"name": 12})

    assert found.index_bytes * records == pytest.approx(stored, rel=off or 1e-9)
