"""A definition has one spelling in the log, and nothing else is taken for it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from encrypted_records.errors import InvalidDefinition, Malformed
from encrypted_records.model.definition_parser import (
    MAX_CANONICAL_BYTES,
    parse_canonical,
    parse_definition,
)
from encrypted_records.model.field_types.base import ValueRefused

TEXT = '{"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "string"}}}'
GOOD = parse_definition(TEXT).canonical


def test_the_one_spelling_is_read_as_it_was_written() -> None:
    assert parse_canonical(GOOD) == parse_definition(TEXT)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense" * 130_000,
        b"[" * 100_000,
        GOOD + b" ",
        GOOD.replace(b'"next":3', b'"next":2'),
        GOOD.replace(b"[2,1]", b"[2,2]"),
        GOOD.replace(b"[2,1]", b"[2]"),
        GOOD.replace(b"[2,1]", b"[2,0]"),
        GOOD.replace(b'"string"', b'"strinG"'),
        GOOD.replace(b'{"type":"string"}', b'{"type":"string","title":"A"}', 1),
        GOOD.replace(b'"ids"', b'"Ids"'),
        b" " * MAX_CANONICAL_BYTES + GOOD,
    ],
    ids=lambda text: f"{len(text)} bytes: {text[-30:]!r}",
)
def test_anything_else_is_refused(text: bytes) -> None:
    assert text != GOOD
    with pytest.raises(Malformed):
        parse_canonical(text)


NUMBER = '{"type":"number","minimum":0,"maximum":9,"precision":1}'
ROUNDED = f'{{"type":"object","properties":{{"n":{NUMBER}}}%s}}'


def test_a_definition_that_refuses_to_round_says_so_in_its_one_spelling() -> None:
    exact = parse_definition(ROUNDED % ',"rounding":"refuse"')
    assert b'"type":"object","rounding":"refuse","properties"' in exact.canonical
    assert parse_canonical(exact.canonical) == exact
    rounds = parse_definition(ROUNDED % "")
    assert parse_definition(ROUNDED % ',"rounding":"half-even"').canonical == rounds.canonical

    assert rounds.fields["n"].accept(Decimal("0.25")) == Decimal("0.2")
    assert exact.fields["n"].accept(Decimal("0.20")) == Decimal("0.2")
    with pytest.raises(ValueRefused) as refused:
        exact.fields["n"].accept(Decimal("0.25"))
    assert refused.value.code == "precision"


@pytest.mark.parametrize("wrong", ['"Refuse"', '"half-up"', "null", "true", "[]"])
def test_another_word_for_rounding_is_refused(wrong: str) -> None:
    for name in ("rounding", "Rounding"):
        with pytest.raises(InvalidDefinition) as caught:
            parse_definition(ROUNDED % f',"{name}":{wrong}')
        assert [flaw.pointer for flaw in caught.value.flaws] == [f"/schema/{name}"]


def test_a_definition_is_refused_that_is_too_large_with_its_numbers_written_out() -> None:
    """A commit has to bring it so, and everybody who reads the log has to parse it."""
    bounds = '"minimum": 0, "maximum": 18446744073709551615'
    numbers = ",".join(f"{at}e14" for at in range(1_000, 106_000))
    field = f'{{"type": "integer", {bounds}, "enum": [{numbers}]}}'
    with pytest.raises(InvalidDefinition) as caught:
        parse_definition(f'{{"type": "object", "properties": {{"n": {field}}}}}')
    assert [flaw.code for flaw in caught.value.flaws] == ["too_large"]
