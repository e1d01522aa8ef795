"""The schema editor's form and the definition that it stands for are one and the same."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from encrypted_records.errors import InvalidDefinition, Malformed, NotAuthenticated
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.proxy.pages.schema_form import SchemaDraft, draft_of
from encrypted_records.proxy.pages.templating import templates

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 200, "title": "Name"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "height": {
            "type": "number",
            "minimum": Decimal("0.25"),
            "maximum": 3,
            "precision": 2,
        },
    },
    "title": "Person",
    "required": ["name"],
}


def form_of(draft: SchemaDraft) -> dict[str, str]:
    """What a browser would send of the form that shows this draft."""
    form = {"rest": draft.rest_json, "json": draft.json, "json-shown": draft.json}
    for number, row in enumerate(draft.rows):
        form |= {
            f"field-{number}": row.name,
            f"type-{number}": row.type,
            f"minimum-{number}": row.minimum,
            f"maximum-{number}": row.maximum,
            f"precision-{number}": row.precision,
            f"more-{number}": row.more_json,
        }
        for name in ("required", "unique"):
            if getattr(row, name):
                form[f"{name}-{number}"] = "yes"
    return form


def shown(definition: Any) -> SchemaDraft:
    draft = SchemaDraft()
    draft.take(definition)
    return draft


def test_a_definition_comes_out_of_the_form_as_it_went_in() -> None:
    assert draft_of(form_of(shown(DEFINITION))).definition() == DEFINITION


def test_what_is_typed_into_the_table_is_in_the_definition() -> None:
    form = form_of(shown(DEFINITION)) | {"maximum-1": " 120 ", "field-0": "full name"}
    form["required-1"] = "yes"
    del form["required-0"]

    found = draft_of(form).definition()

    assert found["properties"]["age"]["maximum"] == 120
    assert list(found["properties"]) == ["full name", "age", "height"]
    assert found["required"] == ["age"]


def test_a_field_that_becomes_a_string_loses_its_bounds() -> None:
    form = form_of(shown(DEFINITION)) | {"type-2": "string"}

    assert draft_of(form).definition()["properties"]["height"] == {"type": "string"}


def test_rules_of_a_text_are_edited_without_json() -> None:
    ruled = {"type": "string", "padTo": 31, "x-index": ["words"], "title": "Note"}
    listed = {"type": "string", "enum": ["north", "south"]}
    before = {"type": "object", "properties": {"note": ruled, "ward": listed}}
    form = form_of(shown(before))
    untouched = {"text-0": "yes", "words-0": "yes", "pad-0": "31", "values-0": ""}
    untouched |= {"text-1": "yes", "pad-1": "", "values-1": "north\r\nsouth"}
    assert draft_of(form | untouched).definition() == before

    changed = untouched | {"pad-0": "63", "values-1": " east \r\nnorth\r\n\r\neast"}
    del changed["words-0"]
    found = draft_of(form | changed).definition()["properties"]
    assert found["note"] == {"type": "string", "padTo": 63, "title": "Note"}
    assert found["ward"] == {"type": "string", "enum": ["east", "north"]}

    # Nonsense is refused by name, not dropped.
    bad = draft_of(form | untouched | {"pad-0": "many"}).definition()
    with pytest.raises(InvalidDefinition) as refused:
        parse_definition(json.dumps(bad))
    assert [flaw.pointer for flaw in refused.value.flaws] == ["/schema/properties/note/padTo"]


def test_values_that_lines_do_not_say_stay_as_they_are() -> None:
    listed = {"type": "string", "enum": ["a\nb", " c", ""]}
    draft = shown({"type": "object", "properties": {"odd": listed}})
    assert draft.rows[0].lines is None
    form = form_of(draft) | {"text-0": "yes", "pad-0": "", "values-0": "x"}
    assert draft_of(form).definition()["properties"]["odd"] == listed


def test_edited_json_goes_before_the_table_and_untouched_json_does_not() -> None:
    form = form_of(shown(DEFINITION)) | {"maximum-1": "120"}
    edited = {"type": "object", "properties": {"city": {"type": "string"}}}

    assert draft_of(form).definition()["properties"]["age"]["maximum"] == 120
    assert draft_of(form | {"json": json.dumps(edited)}).definition() == edited


@pytest.mark.parametrize("typed", ["ten", "1e5", "", "0x10", "1,5"])
def test_a_bound_that_is_no_number_is_refused_with_its_field(typed: str) -> None:
    form = form_of(shown(DEFINITION)) | {"minimum-1": typed}
    if not typed:
        assert "minimum" not in draft_of(form).definition()["properties"]["age"]
        return
    with pytest.raises(InvalidDefinition) as caught:
        draft_of(form).definition()
    assert [flaw.field for flaw in caught.value.flaws] == ["age"]


def test_two_fields_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidDefinition):
        draft_of(form_of(shown(DEFINITION)) | {"field-1": "name"}).definition()


def test_json_that_no_table_can_show_is_refused_by_name() -> None:
    form = form_of(shown(DEFINITION))
    with pytest.raises(Malformed):
        draft_of(form | {"json": "{"})
    with pytest.raises(InvalidDefinition):
        draft_of(form | {"json": '{"type": "object"}'})
    with pytest.raises(InvalidDefinition):
        draft_of(form | {"json": '{"properties": {"a": 1}}'})


FORMATS: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "born": {"type": "string", "format": "date", "title": "Born"},
        "alive": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
        "device": {"type": "string", "format": "uuid"},
        "email": {"type": "string", "padTo": 60},
        "site": {"type": "string"},
    },
    "unique": [["email"], ["device", "site"]],
}


def test_formats_are_types_of_the_table_and_unique_fields_are_marked_in_it() -> None:
    draft = shown(FORMATS)
    assert [row.type for row in draft.rows] == ["date", "boolean", "uuid", "string", "string"]
    assert [row.unique for row in draft.rows] == [False, False, False, True, False]
    assert draft.rest == {"unique": [["device", "site"]]}
    assert draft_of(form_of(draft)).definition() == FORMATS


def test_a_format_and_a_mark_that_are_chosen_in_the_table_are_in_the_definition() -> None:
    form = form_of(shown(DEFINITION)) | {"type-0": "date", "unique-1": "yes"}
    definition = draft_of(form).definition()
    assert definition["formats"] == "enforced"
    assert definition["properties"]["name"] == {
        "type": "string",
        "format": "date",
        "title": "Name",
    }
    assert definition["unique"] == [["age"]]
    plain = draft_of(form_of(shown(FORMATS)) | dict.fromkeys(("type-0", "type-2"), "string"))
    plain.rows[1].type = "integer"
    plain.rows[1].minimum, plain.rows[1].maximum = "0", "1"
    assert "formats" not in plain.definition()


def test_a_format_that_is_not_enforced_stays_a_remark() -> None:
    plain = {key: value for key, value in FORMATS.items() if key != "formats"}
    draft = shown(plain)
    assert draft.rows[0].type == "string"
    assert draft_of(form_of(draft)).definition() == plain


def test_a_text_field_becomes_a_number_of_any_size_and_can_be_stored() -> None:
    """A padded text or a list of texts leaves nothing behind that no number may have."""
    texts = {"amount": {"type": "string", "padTo": 31}, "kind": {"type": "string", "enum": ["1"]}}
    form = form_of(shown({"type": "object", "properties": texts}))
    draft = draft_of(form | {"type-0": "number", "type-1": "integer"})
    draft.follow("type")
    definition = draft.definition()
    parsed = parse_definition(json.dumps(definition, default=str))
    assert parsed.fields["amount"].accept(Decimal("-12.34")) is not None
    assert parsed.fields["kind"].accept(10**17) is not None
    assert "enum" not in definition["properties"]["kind"]


def test_values_that_the_server_can_read_are_named_and_can_be_taken_out() -> None:
    fields = {"kind": {"type": "string", "enum": ["a", "x" * 40], "title": "Kind"}, "n": NUMBER}
    draft = shown({"type": "object", "properties": fields})
    assert [row.published for row in draft.rows] == [["a", "x" * 40], ["1", "2", "7"]]
    assert draft.publishes
    for do in ("unlist-0", "unlist-1"):
        draft = draft_of(form_of(draft))
        draft.follow(do)
    assert not draft.publishes
    assert draft.definition()["properties"] == {
        "kind": {"type": "string", "title": "Kind", "padTo": 63},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
    }


def test_a_button_of_a_row_that_is_not_there_does_nothing() -> None:
    draft = shown(DEFINITION)
    for number in ("", "9", "x", "\u00b2", "1" * 5000):
        draft.follow(f"unlist-{number}")
        assert not draft.follow_rows(f"remove-{number}")
    assert draft.definition() == DEFINITION


NUMBER = {"type": "integer", "minimum": 0, "maximum": 9, "enum": [1, 2], "default": 7}


@pytest.mark.parametrize(
    "definition",
    [
        '{"properties": {"born": {"type": "date"}}}',
        '{"properties": {"born": {"type": "string", "format": ["date"]}}, "formats": "enforced"}',
        '{"properties": {"born": {"type": ["date"], "format": "date"}}, "formats": "enforced"}',
    ],
)
def test_definitions_of_a_strange_form_are_shown_for_the_endpoint_to_judge(definition: str) -> None:
    draft = draft_of({"json": definition, "json-shown": ""})
    assert draft.rows[0].name == "born"
    assert "born" in draft.definition()["properties"]


def test_hidden_members_that_somebody_else_wrote_replace_no_fields() -> None:
    forged = '{"properties": 5, "required": 5, "type": "array", "retention": {"days": 3}}'
    draft = draft_of({"field-0": "age", "type-0": "string", "rest": forged})
    assert draft.definition() == {
        "type": "object",
        "properties": {"age": {"type": "string"}},
        "retention": {"days": 3},
    }


def test_an_error_of_no_field_has_the_words_of_the_pages_and_a_way_out() -> None:
    error = NotAuthenticated("no device", code="device_needed", hint="ers device add")
    shown = {"problem": error, "at": "/~secret", "path": "/import/", "known": True}
    parts: Any = templates.get_template("schema_parts.html").make_module(shown)
    said = str(parts.editor_problem(SchemaDraft()))
    assert '<a class="button" href="/~secret/device/">Register this browser</a>' in said
    assert "ers device add" not in said
