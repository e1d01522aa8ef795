"""A definition has one spelling in the log, and nothing else is taken for it."""

from __future__ import annotations

import pytest

from encrypted_records.errors import InvalidDefinition, Malformed
from encrypted_records.model.definition_parser import (
    MAX_CANONICAL_BYTES,
    parse_canonical,
    parse_definition,
)

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


def test_a_definition_is_refused_that_is_too_large_with_its_numbers_written_out() -> None:
    """A commit has to bring it so, and everybody who reads the log has to parse it."""
    bounds = '"minimum": 0, "maximum": 18446744073709551615'
    numbers = ",".join(f"{at}e14" for at in range(1_000, 106_000))
    field = f'{{"type": "integer", {bounds}, "enum": [{numbers}]}}'
    with pytest.raises(InvalidDefinition) as caught:
        parse_definition(f'{{"type": "object", "properties": {{"n": {field}}}}}')
    assert [flaw.code for flaw in caught.value.flaws] == ["too_large"]
