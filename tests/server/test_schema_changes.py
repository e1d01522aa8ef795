"""What may happen to a schema that has records."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model.records import Commit, CommitUpload, RowRef, SealedRow
from tests.server.api import Account
from tests.server.writer import Writer, body_of, sealed_number, sealed_string

RICH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 50, "minLength": 2, "pattern": "^[A-Z]"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150, "multipleOf": 2},
        "size": {"type": "number", "minimum": 0, "maximum": 9, "precision": 1, "enum": [1, 2]},
    },
    "required": ["name"],
}
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def sealed(ada: Account) -> Writer:
    """A schema of RICH with a record."""
    writer = Writer(ada, ada.new_schema(RICH))
    add_record(writer)
    return writer


def a_row() -> SealedRow:
    return SealedRow(ids.new_id(), 1, [sealed_string(208), sealed_number(), sealed_number()])


def add_record(writer: Writer) -> RowRef:
    upload = writer.adding([a_row()])
    writer.send(upload)
    return RowRef(body_of(upload).groups[0].uid, 0)


def changed(change: Change) -> dict[str, Any]:
    definition = copy.deepcopy(RICH)
    change(definition)
    return definition


def redefine(writer: Writer, definition: dict[str, Any], **changes: Any) -> None:
    upload = writer.changing(definition, **changes)
    writer.send(upload)
    body = body_of(upload)
    writer.definition, writer.canonical = body.definition, body.definition_text


REFUSED: dict[str, Change] = {
    "a field removed": lambda d: d["properties"].pop("age"),
    "a type changed": lambda d: d["properties"].update(age={"type": "string"}),
    "fewer decimals": lambda d: d["properties"]["size"].update(precision=0),
    "a format enforced": lambda d: (
        d.update(formats="enforced"),
        d["properties"].update(name={"type": "string", "format": "uuid"}),
    ),
}
#: Refused as well, unless the commit says that no record came in between.
PROVEN: dict[str, Change] = {
    "a minimum raised": lambda d: d["properties"]["age"].update(minimum=1),
    "a maximum lowered": lambda d: d["properties"]["age"].update(maximum=149),
    "a field required": lambda d: d["required"].append("age"),
    "a new field required": lambda d: (
        d["properties"].update(new={"type": "string"}),
        d["required"].append("new"),
    ),
    "a length tightened": lambda d: d["properties"]["name"].update(maxLength=49),
    "a short length tightened": lambda d: d["properties"]["name"].update(minLength=3),
    "a pattern changed": lambda d: d["properties"]["name"].update(pattern="^[a-z]"),
    "a step changed": lambda d: d["properties"]["age"].update(multipleOf=4),
    "a bound added": lambda d: d["properties"]["age"].update(exclusiveMinimum=3),
    "a choice removed": lambda d: d["properties"]["size"].update(enum=[1]),
    "choices added": lambda d: d["properties"]["age"].update(enum=[2]),
    "unique fields added": lambda d: d.update(unique=[["name"], ["age", "size"]]),
}
ALLOWED: dict[str, Change] = {
    "a minimum lowered": lambda d: d["properties"]["age"].update(minimum=-1),
    "a maximum raised": lambda d: d["properties"]["age"].update(maximum=151),
    "more decimals": lambda d: d["properties"]["size"].update(precision=2),
    "an optional field added": lambda d: d["properties"].update(new={"type": "string"}),
    "required loosened": lambda d: d.pop("required"),
    "annotations": lambda d: d["properties"]["age"].update(title="Age"),
    "another spelling": lambda d: d["properties"]["age"].update(maximum=150.0),
    "rules dropped": lambda d: [
        d["properties"]["name"].pop(rule) for rule in ("maxLength", "minLength", "pattern")
    ],
    "a length loosened": lambda d: d["properties"]["name"].update(maxLength=51, minLength=1),
    "a choice added": lambda d: d["properties"]["size"].update(enum=[1, 2, 3]),
    "any choice": lambda d: d["properties"]["size"].pop("enum"),
    "any step": lambda d: d["properties"]["age"].pop("multipleOf"),
    "formats enforced": lambda d: (
        d.update(formats="enforced"),
        d["properties"].update(new={"type": "string", "format": "date"}),
    ),
}


#: Other spellings of one definition, and words about it.
SPELLINGS = ("annotations", "another spelling")


@pytest.mark.parametrize("change", [*REFUSED.values(), *PROVEN.values()], ids=[*REFUSED, *PROVEN])
def test_what_would_break_stored_records_is_refused(sealed: Writer, change: Change) -> None:
    answer = sealed.post(sealed.changing(changed(change)))
    assert (answer.status, answer.code) == (409, "needs_reencryption")
    assert "re-encrypted" in answer.json()["hint"]
    assert all(pointer.startswith("/schema/") for pointer in answer.flaws())


@pytest.mark.parametrize("name", [name for name in ALLOWED if name not in SPELLINGS])
def test_what_leaves_stored_records_valid_is_a_commit(ada: Account, name: str) -> None:
    writer = Writer(ada, ada.new_schema(RICH))
    add_record(writer)
    definition = changed(ALLOWED[name])
    upload = writer.changing(definition)
    refused = ada.call("PATCH", writer.schema["url"], {"schema": definition})
    assert (refused.status, refused.code) == (409, "through_a_proxy")
    assert list(refused.flaws()) == ["/schema"]
    writer.send(upload)
    shown = ada.call("GET", writer.schema["url"]).json()["schema"]
    assert shown == definition | {"required": definition.get("required", [])}
    taken = ada.call("PATCH", writer.schema["url"], {"schema": definition | {"title": "A"}})
    assert taken.status == 200, taken.body
    assert taken.json()["schema"] == definition | {"title": "A"}
    assert writer.manifest()[-1].definition == body_of(upload).definition


def test_what_demands_more_says_that_no_record_came_in_between(ada: Account) -> None:
    writer = Writer(ada, ada.new_schema(RICH))
    before = writer.make().commit  # has not seen the record
    add_record(writer)
    narrower = changed(PROVEN["a maximum lowered"])
    seen = wire.decode_commit_body(before)
    behind = {"seen": seen.seen, "seen_digest": seen.seen_digest}
    assert writer.refused(writer.changing(narrower, exact=1, **behind)) == (409, "log_moved")
    late = writer.adding([a_row()])
    redefine(writer, narrower, exact=1)
    # Sealed for the definition before: it may hold what the new one does not allow.
    group, segment = body_of(late).groups, body_of(late).segments
    again = writer.make(groups=group, segments=segment, rows=late.rows, pages=late.pages)
    assert writer.refused(again) == (409, "stale_definition")


@pytest.mark.both_databases
@pytest.mark.parametrize("name", ["a maximum raised", "more decimals", "an optional field added"])
def test_of_two_definitions_made_to_follow_the_same_one_the_second_has_lost_a_race(
    ada: Account, name: str
) -> None:
    """Beside the first it gives an id to another field, or takes back what that allowed."""
    writer = Writer(ada, ada.new_schema(RICH))
    add_record(writer)
    before = wire.decode_commit_body(writer.make().commit)
    late = writer.changing(changed(ALLOWED[name]))
    others = changed(lambda d: d["properties"].update(other={"type": "string"}))
    others["properties"]["age"]["maximum"] = 200
    redefine(writer, others)
    again: dict[str, Any] = {
        "definition": body_of(late).definition,
        "definition_text": body_of(late).definition_text,
    }
    behind: dict[str, Any] = {"seen": before.seen, "seen_digest": before.seen_digest}
    assert writer.refused(writer.make(**again, **behind)) == (409, "log_moved")
    assert writer.refused(writer.make(**again))[1] in ("invalid_commit", "needs_reencryption")


def test_what_was_sealed_before_a_wider_definition_is_taken_after_it(ada: Account) -> None:
    writer = Writer(ada, ada.new_schema(RICH))
    add_record(writer)
    late = writer.adding([a_row()])
    redefine(writer, changed(ALLOWED["a maximum raised"]))
    both = changed(ALLOWED["a maximum raised"])
    ALLOWED["more decimals"](both)
    redefine(writer, both)
    again = writer.make(
        groups=body_of(late).groups,
        segments=body_of(late).segments,
        rows=late.rows,
        pages=late.pages,
    )
    writer.send(again)


@pytest.mark.parametrize("name", SPELLINGS)
def test_another_spelling_of_a_definition_is_no_change_of_it(sealed: Writer, name: str) -> None:
    definition = changed(ALLOWED[name])
    answer = sealed.account.call("PATCH", sealed.schema["url"], {"schema": definition})
    assert answer.status == 200, answer.body
    assert answer.json()["schema"] == definition
    assert sealed.manifest()[-1].definition == sealed.definition


def test_a_definition_without_a_commit_may_become_any_other(ada: Account) -> None:
    schema = ada.new_schema(RICH)
    definition = changed(REFUSED["a type changed"])
    assert ada.call("PATCH", schema["url"], {"schema": definition}).status == 200
    writer = Writer(ada, schema)
    assert writer.refused(writer.adding([a_row()])) == (409, "stale_definition")


def test_a_definition_that_does_not_follow_its_log_is_refused(sealed: Writer) -> None:
    definition = changed(ALLOWED["an optional field added"])
    upload = sealed.changing(definition)
    text = body_of(upload).definition_text
    wrong: list[tuple[dict[str, Any], tuple[int, str]]] = [
        ({"definition": bytes(32)}, (400, "invalid_commit")),
        ({"definition_text": text + b" "}, (400, "invalid_commit")),
        (
            _named(text.replace(b'"ids":[2,1,3,4]', b'"ids":[2,1,4,3]')),
            (409, "needs_reencryption"),
        ),
        (_named(text.replace(b'"ids":[2,1,3,4]', b'"ids":[2,1,3,5]')), (400, "invalid_commit")),
        (_named(text.replace(b'"next":5', b'"next":9')), (400, "invalid_commit")),
        (_named(text.replace(b'"ids"', b'"Ids"')), (400, "invalid_commit")),
        (_named(b'{"next":2,"ids":[1],"schema":{}}'), (400, "invalid_commit")),
        (_named(b"nonsense" * 1000), (400, "invalid_commit")),
        ({"definition_text": b""}, (400, "invalid_commit")),
    ]
    assert b'"ids":[2,1,3,4]' in text
    for members, expected in wrong:
        assert sealed.refused(sealed.changing(definition, **members)) == expected, members
    also_adds = sealed.adding([a_row()])
    body = msgspec.structs.replace(
        body_of(also_adds), definition=body_of(upload).definition, definition_text=text
    )
    commit = Commit(wire.encode_commit_body(body), bytes(32), b"")
    mixed = CommitUpload(commit, also_adds.rows, also_adds.pages)
    assert sealed.refused(mixed) == (400, "invalid_commit")


def test_the_first_commit_brings_the_definition(ada: Account) -> None:
    writer = Writer(ada, ada.new_schema(RICH))
    assert writer.refused(writer.adding([a_row()], definition_text=b"")) == (400, "invalid_commit")
    other = writer.changing(changed(ALLOWED["an optional field added"]))
    assert writer.refused(other) == (409, "stale_definition")


def _named(text: bytes) -> dict[str, Any]:
    return {"definition": hashlib.sha256(text).digest(), "definition_text": text}


def test_names_may_change_and_the_key_stays(sealed: Writer) -> None:
    before = sealed.account.call("GET", sealed.schema["url"]).json()
    body = {"name": "Renamed", "slug": "renamed", "description": "New words"}
    after = sealed.account.call("PATCH", sealed.schema["url"], body).json()
    assert {name: after[name] for name in body} == body
    assert after["key_id"] == before["key_id"]
    assert after["schema"] == before["schema"]


def test_a_schema_stays_in_its_organization_and_may_change_its_dataset(ada: Account) -> None:
    schema = ada.new_schema()
    elsewhere = ada.new_dataset()["url"]
    moved = ada.call("PATCH", schema["url"], {"dataset": elsewhere})
    assert (moved.status, moved.json()["dataset"]) == (200, elsewhere)


def test_the_definition_stays_bound_after_the_last_record_died(ada: Account) -> None:
    writer = Writer(ada, ada.new_schema(RICH))
    ref = add_record(writer)
    writer.send(writer.make(killed=[ref]))
    upload = writer.changing(changed(REFUSED["fewer decimals"]))
    assert writer.refused(upload) == (409, "needs_reencryption")


def test_a_schema_with_records_goes_only_with_cascade(ada: Account) -> None:
    writer = Writer(ada, ada.new_schema(RICH))
    ref = add_record(writer)
    url = writer.schema["url"]
    record = ada.call("GET", f"/api/records/?schema={writer.schema['id']}").json()["results"][0]
    refused = ada.call("DELETE", url)
    assert (refused.status, refused.code) == (409, "schema_not_empty")
    assert ada.call("GET", record["url"]).status == 200
    assert ada.call("DELETE", f"{url}?cascade=true").status == 204
    assert ada.call("GET", url).status == 404
    assert ada.call("GET", record["url"]).status == 404
    emptied = Writer(ada, ada.new_schema(RICH))
    ref = add_record(emptied)
    emptied.send(emptied.make(killed=[ref]))
    assert ada.call("DELETE", emptied.schema["url"]).status == 204


@pytest.mark.both_databases
def test_a_dataset_goes_with_all_its_records_by_cascade(ada: Account) -> None:
    writer = Writer(ada, ada.new_schema(RICH))
    add_record(writer)
    assert ada.call("DELETE", f"{writer.schema['dataset']}?cascade=true").status == 204
    assert ada.call("GET", f"{writer.schema['url']}manifest/").status == 404
