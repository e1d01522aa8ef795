"""What the buttons of the records page do to its question. Pure.

Each button is named by an action and its target, such as ``sort:age``. Whatever was typed before it
was pressed is in the same form, and counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

from encrypted_records.errors import BadInput
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.proxy.pages.comparisons import phrases_of
from encrypted_records.proxy.pages.search_form import Filter, Question, is_dated, is_listed


def change(
    question: Question,
    do: str,
    form: Mapping[str, str],
    types: Mapping[str, str],
    listed: Collection[str] = (),
) -> Question:
    """The question after a button was pressed.

    Args:
        question: what the form carries.
        do: the button's action and target.
        listed: the fields that take one of a list of values.

    Raises:
        BadInput: no button of the page has this name.
    """
    _take_ranges(question, form, types)
    action, _, target = do.partition(":")
    match action:
        case "next" if form.get("cursor"):
            if form.get("asked") == question.mark(types):
                question.pages.append(form["cursor"])
        case "previous":
            question.go_back()
        case "row" | "search":  # Enter in the field of the number presses the first button
            _go_to_row(question, form.get("row", ""))
        case "sort" | "up" | "down" | "hide" | "filter":
            _change_column(question, action, _known(target, types), types, listed)
        case "show":
            question.hidden = []
        case "dense":
            question.dense = not question.dense
        case "sealed":
            question.sealed = not question.sealed
        case "add":
            question.filters.append(_new_filter(next(iter(types), ""), types, listed))
        case "remove" if target.isdecimal():
            del question.filters[int(target) : int(target) + 1]
            question.begin()
        case "pick":
            question.toggle(read_pick(target, types), types)
        case "value":
            _set_value(question, target, types)
        case "loosen" if target.isdecimal():
            _loosen(question, int(target))
        case "clear":
            return Question(hidden=question.hidden, dense=question.dense, sealed=question.sealed)
    return question


def _go_to_row(question: Question, typed: str) -> None:
    """To the record of a number that somebody typed; blanks and commas do not count."""
    number = re.sub(r"[\s,.']", "", typed)
    if number.isascii() and number.isdecimal():
        question.begin()
        question.wanted = max(1, int(number[:9]))
        question.go_to(str(question.wanted - 1))


def _change_column(
    question: Question,
    action: str,
    name: str,
    types: Mapping[str, str],
    listed: Collection[str],
) -> None:
    match action:
        case "sort":
            question.sort(name)
        case "hide":
            if name not in question.hidden and len(question.hidden) + 1 < len(types):
                question.hidden.append(name)
        case "filter":
            question.filters.append(_new_filter(name, types, listed))
        case _:
            question.order_by(name, descending=action == "down")


def _known(name: str, types: Mapping[str, str]) -> str:
    if name not in types:
        raise _unknown()
    return name


def _new_filter(name: str, types: Mapping[str, str], listed: Collection[str]) -> Filter:
    """A text is looked for anywhere in a value and in any spelling, unless somebody says more."""
    if (name not in types or BY_NAME[types[name]].is_text) and name not in listed:
        return Filter(name, "contains", any_spelling=True)
    return Filter(name, next(iter(phrases_of(types.get(name, "")))))


def _take_ranges(question: Question, form: Mapping[str, str], types: Mapping[str, str]) -> None:
    """The ends that were typed below pictures, as filters."""
    for position, name in enumerate(types):
        ends = [form.get(f"{end}-{position}", "").strip() for end in ("from", "to")]
        if any(ends) and (not is_listed(types[name]) or is_dated(types[name])):
            question.narrow(Filter(name, "between", ends))


def _set_value(question: Question, target: str, types: Mapping[str, str]) -> None:
    """A value that was suggested for a filter: the whole of it, or one more of its list."""
    number, _, value = target.partition(":")
    if not number.isdecimal() or int(number) >= len(question.filters):
        raise _unknown()
    chosen = question.filters[int(number)]
    if chosen.takes(types) == 9:
        chosen.values = [*(one for one in chosen.values if one != value), value]
    else:
        chosen.values = [value]
        if chosen.takes(types) != 1:
            chosen.op = "eq"
    question.begin()


def _loosen(question: Question, number: int) -> None:
    """Look for a text anywhere in its field, in any spelling."""
    if number >= len(question.filters):
        raise _unknown()
    chosen = question.filters[number]
    chosen.op, chosen.values, chosen.any_spelling = "contains", [chosen.first], True
    question.begin()


def read_pick(text: str, types: Mapping[str, str]) -> Filter:
    """The filter that a bar of a picture stands for.

    Raises:
        BadInput: it is no bar of the page.
    """
    try:
        name, op, values = msgspec.json.decode(text, type=tuple[str, str, list[str]])
    except msgspec.DecodeError:
        raise _unknown() from None
    if name not in types or op not in phrases_of(types[name]):
        raise _unknown()
    return Filter(name, op, values)


def write_pick(name: str, op: str, values: list[str]) -> str:
    """The target of a button that :func:`read_pick` reads."""
    return msgspec.json.encode((name, op, values)).decode()


def _unknown() -> BadInput:
    return BadInput("the page has no such button", hint="load the page again")
