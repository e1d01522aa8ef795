"""The words of an estimate are those of the document on leakage, its sizes those of segments."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from encrypted_records.crypto.keys import Keyring
from encrypted_records.errors import InvalidRecords, TooLarge
from encrypted_records.index.columns import column as columns
from encrypted_records.index.segments.builder import Builder, Shell
from encrypted_records.ingest.estimate import REVEALS, Sample, estimate, look_at
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.model.record_formats import Format

LEAKAGE = Path(__file__).parents[2] / "docs" / "LEAKAGE.md"


@pytest.mark.parametrize("kind", ["text", "number"])
def test_what_a_field_reveals_is_said_in_the_words_of_the_document(kind: str) -> None:
    document = " ".join(LEAKAGE.read_text().split())

    for sentence in msgspec.structs.astuple(REVEALS[kind]):
        assert sentence in document


def test_of_a_field_whose_lengths_tell_nothing_this_is_said() -> None:
    text = """{"type": "object", "properties": {
        "plain": {"type": "string"}, "choice": {"type": "string", "enum": ["a"]},
        "padded": {"type": "string", "padTo": 31}, "short": {"type": "string", "maxLength": 9}}}"""
    said = {
        field.name: field.reveals.api for field in estimate(parse_definition(text), 9, {}).fields
    }
    document = " ".join(LEAKAGE.read_text().split())
    assert all(sentence in document for sentence in said.values())
    assert said["choice"] == said["short"] != said["plain"] == said["padded"]


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


def sampled(definition: str, rows: str) -> Sample:
    text = f'{{"type": "object", "properties": {definition}}}'
    return look_at(parse_definition(text), rows.encode(), Format.CSV)


def test_a_sample_says_what_lengths_tell_and_what_padding_costs() -> None:
    rows = "".join(("m,Ann," if at % 3 else f"f,{'x' * 40},") + f"{at}\n" for at in range(60))
    number = '"n": {"type": "integer", "minimum": 0, "maximum": 99}'
    bare = f'{{"sex": {{"type": "string"}}, "name": {{"type": "string"}}, {number}}}'
    found = sampled(bare, f"sex,name,n\n{rows}")

    assert (found.rows, found.refused) == (60, 0)
    sex, name, n = (found.fields[one] for one in ("sex", "name", "n"))
    # The name's length tells the sex, whose own length tells nothing.
    assert [sex.told.attack, sex.told.guess, sex.told.bits] == pytest.approx([1, 2 / 3, 0])
    assert name.told.bits == pytest.approx(0.918, abs=0.001)
    assert [name.text, name.sealed] == pytest.approx([46 / 3, (2 * 32 + 48) / 3])
    # Ann would fit into 16 bytes, and takes 32; a padTo of 47 takes 48 for all.
    assert [sex.padding, name.padding, n.padding] == pytest.approx([16, 32 / 3, 0])
    assert (sex.pad_to, name.pad_to, n.pad_to) == (None, 47, None)
    assert name.hiding == pytest.approx(48 - (2 * 32 + 48) / 3)
    padded = bare.replace('"name": {"type": "string"', '"name": {"type": "string", "padTo": 47')
    hidden = sampled(padded, f"sex,name,n\n{rows}")
    assert {field.told.advantage for field in hidden.fields.values()} == {0}
    assert hidden.fields["name"].padding == pytest.approx((2 * 32 + 0) / 3)
    assert {field.pad_to for field in hidden.fields.values()} == {None}


def test_rows_that_do_not_fit_are_left_out_of_a_sample_and_counted() -> None:
    field = '{"a": {"type": "string", "enum": ["x", "y"]}}'
    found = sampled(field, "a\nx\ny\nsecret\nx\n")
    assert (found.rows, found.refused) == (3, 1)
    for rows in ("a\nx\nsecret\n", "b\nsecret\nsecret\n"):
        with pytest.raises(InvalidRecords, match="fewer than two") as caught:
            sampled(field, rows)
        assert "secret" not in repr(caught.value.flaws)


def test_artificial_records_fit_every_definition() -> None:
    text = """{"type": "object", "properties": {
        "choice": {"type": "string", "enum": ["a", "b"]},
        "nothing": {"type": "string", "enum": [null]},
        "one": {"type": "string", "maxLength": 1}, "none": {"type": "string", "maxLength": 0}}}"""
    assert estimate(parse_definition(text), 10, {"one": 30}).rate > 0


def test_an_estimate_of_long_strings_makes_up_no_more_than_a_few() -> None:
    fields = ",".join(f'"f{at}": {{"type": "string"}}' for at in range(16))
    definition = parse_definition(f'{{"type": "object", "properties": {{{fields}}}}}')
    long = dict.fromkeys(definition.fields, 1 << 20)
    assert estimate(definition, 10, long).row_bytes > 16 << 20
    longer = parse_definition(
        f'{{"type": "object", "properties": {{"g": {{"type": "string"}}, {fields}}}}}'
    )
    with pytest.raises(TooLarge):
        estimate(longer, 10, long | {"g": 1})
