"""What the buttons of the records page do to its question."""

from __future__ import annotations

import random

import pytest

from encrypted_records.errors import BadInput
from encrypted_records.proxy.pages.comparisons import phrases_of
from encrypted_records.proxy.pages.question_changes import change, read_pick, write_pick
from encrypted_records.proxy.pages.search_form import Filter, Question

TYPES = {"city": "string", "age": "integer", "na:me\u202e": "number"}


def press(question: Question, do: str, **typed: str) -> Question:
    """The question after the form that carries ``question`` was sent by a button."""
    form = dict(question.carried(TYPES)) | {
        name.replace("_", "-"): text for name, text in typed.items()
    }
    return change(Question.read(form, TYPES), do, form, TYPES)


def any_question(chance: random.Random) -> Question:
    filters = []
    for _ in range(chance.randrange(4)):
        name = chance.choice(list(TYPES))
        one = Filter(name, chance.choice(list(phrases_of(TYPES[name]))))
        one.narrows = chance.random() < 0.3
        one.any_spelling = chance.random() < 0.3
        takes = one.takes(TYPES)
        many = takes if takes < 9 else chance.randrange(3)
        one.values = [f"{chance.randrange(1000)}" for _ in range(many)]
        filters.append(one)
    return Question(
        filters,
        any_of=chance.random() < 0.5,
        order=chance.choice(["", *TYPES]),
        descending=chance.random() < 0.5,
        pages=[f"cursor{n}=" for n in range(chance.randrange(3))],
        hidden=chance.sample(list(TYPES), chance.randrange(3)),
        dense=chance.random() < 0.5,
        sealed=chance.random() < 0.5,
    )


def test_a_form_carries_all_of_its_question() -> None:
    chance = random.Random(4)
    for _ in range(300):
        question = any_question(chance)
        assert Question.read(dict(question.carried(TYPES)), TYPES) == question


def test_a_cursor_is_used_for_its_own_filters_only() -> None:
    question = Question([Filter("age", "ge", ["30"])], pages=["first"])

    assert press(question, "next", cursor="second").pages == ["first", "second"]
    assert press(question, "next", cursor="second", value_0="31").pages == []
    assert press(question, "previous").pages == []
    # A filter that nothing was typed into changes nothing.
    blank = {"field_1": "age", "op_1": "ge", "value_1": " "}
    assert press(question, "next", cursor="second", **blank).pages == ["first", "second"]


def test_what_is_picked_must_fit_also_beside_alternatives() -> None:
    question = Question([Filter("age", "ge", ["60"]), Filter("city", "eq", ["Rome"])], any_of=True)

    picked = press(question, "pick:" + write_pick("city", "eq", ["Oslo"]))

    rome, oslo = ({"field": "city", "op": "eq", "value": city} for city in ("Rome", "Oslo"))
    old = {"field": "age", "op": "ge", "value": 60}
    assert picked.any_of
    assert picked.where(TYPES) == {"and": [{"or": [old, rome]}, oslo]}
    assert [link for link, _ in picked.says(TYPES)] == ["where", "or", "and"]


def test_ends_typed_below_a_picture_become_a_filter() -> None:
    both = press(Question(), "search", from_1="30", to_1="40")
    one = press(Question(), "search", from_1="", to_1="40")

    assert both.where(TYPES) == {"and": [{"field": "age", "op": "between", "value": [30, 40]}]}
    assert one.where(TYPES) == {"and": [{"field": "age", "op": "le", "value": 40}]}
    assert one.says(TYPES) == [("where", ("age", "is at most", "40"))]


def test_columns_sort_both_ways_hide_and_come_back() -> None:
    name = "na:me\u202e"
    question = press(Question(pages=["x"]), f"down:{name}")
    assert (question.order, question.descending, question.pages) == (name, True, [])
    question = press(question, f"hide:{name}")
    question = press(question, "hide:city")
    # The last column stays.
    assert press(question, "hide:age").hidden == [name, "city"]
    assert press(question, "show").hidden == []
    assert press(question, "clear") == Question(hidden=[name, "city"])


def test_a_suggested_value_is_taken_or_added_to_a_list() -> None:
    one = Question([Filter("city", "eq", ["Ro"])])
    several = Question([Filter("city", "in", ["Oslo"])])

    assert press(one, "value:0:Rome: old").filters[0].values == ["Rome: old"]
    assert press(several, "value:0:Rome").filters[0].values == ["Oslo", "Rome"]


@pytest.mark.parametrize(
    "do", ["sort:nothing", "hide:", "pick:{}", "pick:[1]", 'pick:["age","eq",[1]]', "value:7:x"]
)
def test_a_button_that_the_page_has_not_is_refused(do: str) -> None:
    with pytest.raises(BadInput):
        press(Question(), do)


def test_a_pick_reads_as_it_was_written() -> None:
    assert read_pick(
        write_pick(
            "city",
            "eq",
            ['"\u202e'],
        ),
        TYPES,
    ) == Filter("city", "eq", ['"\u202e'])
