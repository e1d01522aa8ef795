"""What the buttons of the records page do to its question."""

from __future__ import annotations

import random
from typing import Any

import pytest

from encrypted_records.errors import BadInput
from encrypted_records.proxy.pages.questions import change_question, read_pick, write_pick
from encrypted_records.proxy.pages.search_form import Question, types_of

STRANGE = "na:me\u202e"
DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        STRANGE: {"type": "number", "minimum": 0, "maximum": 9, "precision": 1},
    },
}
TYPES = types_of(DEFINITION)


def press(question: Question, do: str, **typed: str) -> Question:
    """The question after the form that carries ``question`` was sent by a button."""
    form = dict(question.carried()) | {name.replace("_", "-"): text for name, text in typed.items()}
    return change_question(Question.read(form, TYPES), do, form, DEFINITION)


def any_question(chance: random.Random) -> Question:
    parts = [f"age >= {number}" for number in chance.sample(range(99), chance.randrange(4))]
    return Question(
        parts,
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
        assert Question.read(dict(question.carried()), TYPES) == question


def test_a_cursor_is_used_for_its_own_question_only() -> None:
    question = Question(["age >= 30"], pages=["first"])

    assert press(question, "next", cursor="second").pages == ["first", "second"]
    assert press(question, "next", cursor="second", ask="city = 'x'").pages == []
    assert press(question, "previous").pages == []


def test_every_button_asks_what_was_typed_into_the_line_too() -> None:
    question = press(Question(["age >= 30"]), "dense", ask="city = 'x' and age >= 30")
    assert question.parts == ["age >= 30", 'city = "x"']
    assert question.dense


def test_a_part_goes_back_into_the_line_or_away() -> None:
    question = Question(["age >= 30", "mary"])
    edited = press(question, "edit:0")
    assert (edited.parts, edited.typed) == (["mary"], "age >= 30")
    assert press(question, "remove:1").parts == ["age >= 30"]
    assert press(question, f"filter:{STRANGE}").typed == f"`{STRANGE}` "


def test_a_picked_value_is_one_more_of_its_field_until_it_is_picked_again() -> None:
    rome, oslo = ("pick:" + write_pick("city", "eq", [city]) for city in ("Rome", "Oslo"))
    question = press(Question(["age = 1 or age = 2", 'city = "Rome"']), oslo)
    assert question.parts == ["age = 1 or age = 2", 'city in ("Rome", "Oslo")']
    assert question.own_pick("city", TYPES) == (1, ["Rome", "Oslo"])
    question = press(press(question, rome), oslo)
    assert question.parts == ["age = 1 or age = 2"]
    quoted = "pick:" + write_pick("city", "eq", ['two\nlines "\u202e'])
    assert press(Question(), quoted).where(TYPES) == {
        "and": [{"field": "city", "op": "eq", "value": 'two\nlines "\u202e'}]
    }


def test_bars_of_numbers_and_of_what_is_missing_narrow() -> None:
    between = "pick:" + write_pick("age", "between", ["30", "40"])
    missing = "pick:" + write_pick("city", "missing", [])
    assert press(press(Question(), between), missing).parts == [
        "age between 30 and 40",
        "city is null",
    ]


def test_ends_typed_below_a_picture_become_a_part() -> None:
    assert press(Question(), "search", from_1="30", to_1="40").parts == ["age between 30 and 40"]
    assert press(Question(), "search", from_1="", to_1="40").parts == ["age <= 40"]
    with pytest.raises(BadInput):
        press(Question(), "search", from_1="many")


def test_columns_sort_both_ways_hide_and_come_back() -> None:
    question = press(Question(pages=["x"]), f"down:{STRANGE}")
    assert (question.order, question.descending, question.pages) == (STRANGE, True, [])
    question = press(question, f"hide:{STRANGE}")
    question = press(question, "hide:city")
    # The last column stays.
    assert press(question, "hide:age").hidden == [STRANGE, "city"]
    assert press(question, "show").hidden == []
    assert press(question, "clear") == Question(hidden=[STRANGE, "city"])


def test_a_part_that_finds_nothing_is_asked_another_way() -> None:
    question = Question(['city = "rome"'])
    assert press(question, "value:0:Rome: old").parts == ['city = "Rome: old"']
    assert press(question, "loosen:0").parts == ['city contains "rome" folded']


@pytest.mark.parametrize(
    "do",
    [
        *("sort:nothing", "hide:", "pick:{}", "pick:[1]", 'pick:["age","eq",[1]]', "value:7:x"),
        *('pick:["age","eq",[]]', 'pick:["age","between",["1"]]', "loosen:0", "edit:x"),
        f"remove:{'1' * 5000}",
    ],
)
def test_a_button_that_the_page_has_not_is_refused(do: str) -> None:
    with pytest.raises(BadInput):
        press(Question(["age is null"]), do)


def test_a_pick_reads_as_it_was_written() -> None:
    assert read_pick(write_pick("city", "eq", ['"\u202e']), TYPES) == ("city", "eq", ['"\u202e'])
