"""Changes of the records page's question by its buttons. Pure.

The name of a button is an action and its target, such as ``sort:age``. Input that was typed before
the button was pressed is in the same form, and is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from encrypted_records.client.sdk.condition_language import write, write_field
from encrypted_records.errors import BadInput, Flaw, InvalidQuery
from encrypted_records.proxy.pages.formatting import plain
from encrypted_records.proxy.pages.search_form import (
    Question,
    condition_of,
    is_dated,
    is_listed,
    number,
    one_of,
    read_line,
    read_value,
    types_of,
)

#: Comparisons of bars, and how many values each has.
_PICKS = {"eq": 1, "between": 2, "missing": 0}


def change(
    question: Question, do: str, form: Mapping[str, str], definition: Mapping[str, Any]
) -> Question:
    """The question after a button was pressed.

    Args:
        question: what the form carries.
        do: the button's action and target.
        definition: of the schema that is asked.

    Raises:
        NotUnderstood: what was typed into the line is no question; nothing is changed.
        BadInput: no button of the page has this name, or a number cannot be read.
    """
    types = types_of(definition)
    for part in read_line(form.get("ask", ""), definition):
        question.add(part)
    _take_ranges(question, form, types)
    action, _, target = do.partition(":")
    match action:
        case "next" if form.get("cursor"):
            if form.get("asked") == question.mark():
                question.pages.append(form["cursor"])
        case "previous":
            question.go_back()
        case "row" | "search":  # Enter in the field of the number presses the first button
            _go_to_row(question, form.get("row", ""))
        case "sort" | "up" | "down" | "hide" | "filter":
            _change_column(question, action, _known(target, types), types)
        case "show":
            question.hidden = []
        case "dense":
            question.dense = not question.dense
        case "sealed":
            question.sealed = not question.sealed
        case "remove" | "edit" | "loosen" | "value":
            _change_part(question, action, target, types)
        case "pick":
            _pick(question, target, types)
        case "clear":
            return Question(hidden=question.hidden, dense=question.dense, sealed=question.sealed)
    return question


def _go_to_row(question: Question, typed: str) -> None:
    """Go to the record with a typed number; blanks and commas are ignored."""
    number = re.sub(r"[\s,.']", "", typed)
    if number.isascii() and number.isdecimal():
        question.begin()
        question.wanted = max(1, int(number[:9]))
        question.go_to(str(question.wanted - 1))


def _change_column(question: Question, action: str, name: str, types: Mapping[str, str]) -> None:
    match action:
        case "sort":
            question.sort(name)
        case "hide":
            if name not in question.hidden and len(question.hidden) + 1 < len(types):
                question.hidden.append(name)
        case "filter":
            question.typed = f"{write_field(name)} "
        case _:
            question.order_by(name, descending=action == "down")


def _known(name: str, types: Mapping[str, str]) -> str:
    if name not in types:
        raise _unknown()
    return name


def _take_ranges(question: Question, form: Mapping[str, str], types: Mapping[str, str]) -> None:
    """The ends that were typed below pictures, in place of those that were asked for before."""
    for position, name in enumerate(types):
        low, high = (form.get(f"{end}-{position}", "").strip() for end in ("from", "to"))
        if (low or high) and (not is_listed(types[name]) or is_dated(types[name])):
            place, (least, most) = question.own_stretch(name, types) or (None, (None, None))
            low, high = low or plain(least), high or plain(most)
            op, typed = ("between", [low, high]) if low and high else ("ge", [low])
            if not low:
                op, typed = "le", [high]
            flaws: list[Flaw] = []
            values = [
                text if is_dated(types[name]) else number(text, name, flaws) for text in typed
            ]
            if flaws:
                raise InvalidQuery("a range cannot be read", flaws=tuple(flaws), hint="")
            value = values if op == "between" else values[0]
            part = write({"field": name, "op": op, "value": value})
            question.add(part) if place is None else question.replace(place, [part])


def _change_part(question: Question, action: str, target: str, types: Mapping[str, str]) -> None:
    place, _, value = target.partition(":")
    if place not in map(str, range(len(question.parts))):
        raise _unknown()
    at = int(place)
    part = question.parts[at]
    if action == "edit":
        question.typed = part
    if action in ("edit", "remove"):
        question.replace(at, [])
        return
    where = condition_of(part, types)
    if "field" not in where or not isinstance(where.get("value"), str | list):
        raise _unknown()
    name = where["field"]
    if action == "value":
        question.replace(at, [write(one_of(name, [value]))])
    else:
        typed = where["value"] if isinstance(where["value"], str) else where["value"][0]
        looser = {"field": name, "op": "contains", "value": typed, "fold": True}
        question.replace(at, [write(looser)])


def _pick(question: Question, target: str, types: Mapping[str, str]) -> None:
    """A bar of a picture."""
    name, op, texts = read_pick(target, types)
    if op == "missing":
        question.add(write({"field": name, "op": "is_null", "value": True}))
        return
    values = [read_value(types[name], text, name, []) for text in texts]
    if op == "eq":
        question.toggle(name, values[0], types)
    else:
        question.add(write({"field": name, "op": op, "value": values}))


def read_pick(text: str, types: Mapping[str, str]) -> tuple[str, str, list[str]]:
    """The field, comparison and values that a bar of a picture stands for.

    Raises:
        BadInput: it is no bar of the page.
    """
    try:
        name, op, values = msgspec.json.decode(text, type=tuple[str, str, list[str]])
    except msgspec.DecodeError:
        raise _unknown() from None
    if name not in types or len(values) != _PICKS.get(op, -1):
        raise _unknown()
    return name, op, values


def write_pick(name: str, op: str, values: list[str]) -> str:
    """The target of a button that :func:`read_pick` reads."""
    return msgspec.json.encode((name, op, values)).decode()


def _unknown() -> BadInput:
    return BadInput("the page has no such button", hint="load the page again")
