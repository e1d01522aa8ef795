"""A conjunction has one range of each field, and means what it meant."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.model.definition import Value
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.predicates import (
    Absent,
    And,
    Not,
    NumberIn,
    NumberRange,
    Or,
    Predicate,
    Range,
    TextRange,
    join_ranges,
    matches,
)

DEFINITION = parse_definition(
    '{"type": "object", "properties": {"text": {"type": "string"}, "other": {"type": "string"},'
    ' "n": {"type": "integer", "minimum": 0, "maximum": 9}}}'
)
LETTERS = st.text("ab", max_size=3)
BOUNDS = st.none() | LETTERS
NUMBERS = st.integers(0, 9)
LEAVES: st.SearchStrategy[Predicate] = st.one_of(
    st.builds(NumberRange, st.just("n"), NUMBERS, NUMBERS),
    st.builds(
        TextRange, st.sampled_from(["text", "other"]), BOUNDS, BOUNDS, st.booleans(), st.booleans()
    ),
    st.builds(NumberIn, st.just("n"), st.frozensets(NUMBERS, min_size=1, max_size=3)),
    st.just(Absent("text")),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Or(tuple(parts))),
        inner.map(Not),
    ),
    max_leaves=12,
)
RECORDS = st.fixed_dictionaries({}, optional={"n": NUMBERS, "text": LETTERS, "other": LETTERS})


@given(CONDITIONS, st.lists(RECORDS, min_size=1, max_size=20))
def test_a_joined_condition_means_what_it_meant(
    condition: Predicate, records: list[dict[str, Value]]
) -> None:
    joined = join_ranges(condition)
    for record in records:
        assert matches(joined, record, DEFINITION) == matches(condition, record, DEFINITION)
    for parts in _conjunctions(joined):
        fields = [part.field for part in parts if isinstance(part, Range)]
        assert len(fields) == len(set(fields))
        assert len(parts) > 1
        assert not any(isinstance(part, And) for part in parts)


def _conjunctions(predicate: Predicate) -> Iterator[tuple[Predicate, ...]]:
    match predicate:
        case And(parts) | Or(parts):
            if isinstance(predicate, And):
                yield parts
            for part in parts:
                yield from _conjunctions(part)
        case Not(part):
            yield from _conjunctions(part)


def test_bounds_without_their_value_are_narrower() -> None:
    def bound(low: str | None, high: str | None, *, included: bool) -> TextRange:
        return TextRange("text", low, high, included, included)

    parts = (
        bound("a", None, included=True),
        bound(None, "b", included=False),
        bound("a", None, included=False),
        bound(None, "b", included=True),
    )
    joined = join_ranges(And(parts))
    assert isinstance(joined, TextRange)
    assert (joined.low, joined.low_included) == ("a", False)
    assert (joined.high, joined.high_included) == ("b", False)
