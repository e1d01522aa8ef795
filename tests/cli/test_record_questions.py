"""``ers record`` sorts, measures, exports, changes and deletes what the service has."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.client.sdk.condition_language import parse_measure
from encrypted_records.client.transport import Transport
from encrypted_records.errors import InvalidQuery, ProxyUnreachable
from tests.cli.command import Ers

DEFINITION = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "city": {"type": "string"},
        },
        "required": ["name"],
    }
)
PEOPLE = [
    {"name": "Ada", "age": 36, "city": "Oslo"},
    {"name": "Grace", "age": 85, "city": "Oslo"},
    {"name": "Alan", "age": 41, "city": "Rome"},
    {"name": "Edsger", "city": ""},
]


@pytest.fixture
def people(ers: Ers) -> str:
    slug = f"people-{secrets.token_hex(4)}"
    ers.done("dataset", "create", "--name", slug, "--slug", slug)
    ers.done(
        *("schema", "create", "--dataset", slug, "--name", slug, "--slug", slug, "--file", "-"),
        typed=DEFINITION,
    )
    ers.done("record", "create", "--schema", slug, "--file", "-", typed=json.dumps(PEOPLE))
    return slug


def names(ers: Ers, schema: str, *more: str) -> list[str]:
    found = ers.done("record", "search", "--schema", schema, *more)
    return [line["data"]["name"] for line in found.lines]


def test_a_search_is_sorted_by_several_fields(ers: Ers, people: str) -> None:
    assert names(ers, people, "--order-by=-age") == ["Grace", "Alan", "Ada", "Edsger"]
    assert names(ers, people, "--order-by", "city,-age") == ["Edsger", "Grace", "Ada", "Alan"]


def test_values_of_another_schema_and_a_whole_dataset_are_asked(ers: Ers, people: str) -> None:
    cities = json.dumps({"type": "object", "properties": {"city": {"type": "string"}}})
    made = ("schema", "create", "--dataset", people, "--name", "Cities", "--slug", "cities")
    ers.done(*made, "--file", "-", typed=cities)
    rows = json.dumps([{"city": "Rome"}, {"city": "Bern"}])
    named = ("--schema", f"{people}/cities")
    ers.done("record", "create", *named, "--file", "-", typed=rows)

    assert names(ers, people, "city in (select city from cities)") == ["Alan"]
    both = "city not in (select city from cities where city != 'Bern') and age > 40"
    assert names(ers, people, both) == ["Grace"]

    ask = ("dataset", "search", people)
    table = ers.done(*ask, "city = 'Rome' or age < 40", "-o", "csv").out.splitlines()
    assert table == ["slug,name,count,note", f'{people},{people},2,""', "cities,Cities,,has no age"]
    own, other = ers.done(*ask, 'city = "Rome"', "--limit", "1").lines
    assert (own["count"], other["count"]) == (1, 1)
    assert other["results"][0]["data"] == {"city": "Rome"}


def test_measures_of_all_and_of_groups(ers: Ers, people: str) -> None:
    ask = ("record", "aggregate", "--schema", people)

    assert ers.done(*ask).one["measures"] == [{"op": "count", "value": 4}]
    both = ers.done(*ask, "age > 40", "--measure", "max(age)", "--measure", "count").one
    assert [measure["value"] for measure in both["measures"]] == [85, 2]
    spread = ers.done(*ask, "age > 40", "--measure", "stddev(age)").one["measures"]
    assert spread[0]["value"] == 31.112698  # of 41 and 85, the root of 968

    table = ers.done(*ask, "--group-by", "city", "--measure", "sum(age)", "-o", "csv").out
    assert table.splitlines() == ["city,sum(age)", '"",', "Oslo,121", "Rome,41"]
    few = ers.done(*ask, "--group-by", "city", "--order=-count", "--limit", "1")
    assert few.one["group"] == {"city": "Oslo"}
    assert "there are 3 groups" in few.err


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        ("count", {"op": "count"}),
        ("Count(age)", {"op": "count", "field": "age"}),
        ("percentile(age, 50, 99.9)", {"op": "percentile", "field": "age", "p": [50, 99.9]}),
        ("histogram(age, 4)", {"op": "histogram", "field": "age", "bins": 4}),
        ("histogram(`a b`,0,18)", {"op": "histogram", "field": "a b", "bounds": [0, 18]}),
        ("distinct(city, 5)", {"op": "distinct", "field": "city", "limit": 5}),
    ],
)
def test_a_measure_is_read(text: str, measure: dict[str, Any]) -> None:
    found = parse_measure(text)
    assert found.keys() == measure.keys()
    assert all(str(found[name]) == str(measure[name]) or name == "p" for name in measure)
    assert [float(one) for one in found.get("p", [])] == measure.get("p", [])


@pytest.mark.parametrize("text", ["", "(age)", "avg(", "avg(age", "avg()", "avg(age, 3)", "avg x"])
def test_what_is_no_measure_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InvalidQuery, match="at character"):
        parse_measure(text)


def test_an_export_can_be_uploaded_again(ers: Ers, people: str, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    ers.done("record", "export", "--schema", people, "--file", file, "--order-by", "name")
    assert file.read_text().splitlines()[0] == "name,age,city"
    assert list(tmp_path.glob("*.part")) == []

    ers.done("import", "--exact", file, "--schema", people)
    assert len(names(ers, people, "name = 'Ada'")) == 2
    ada = ("--schema", people, "name = 'Ada'")
    ers.done("record", "export", *ada, "--file", file, "--with-schema-id", "--yes")
    assert file.read_text().splitlines()[0].startswith("name,age,city,schema_id:")
    ers.done("import", "--exact", file)
    assert len(names(ers, people, "name = 'Ada'")) == 4
    assert ers("record", "export", *ada, "--with-schema-id").code == 2


@pytest.mark.parametrize(
    ("shown", "store"),
    [
        (("export",), ("import",)),
        (("search", "--output", "ndjson"), ("record", "create", "--file")),
        (("search", "--output", "json"), ("import",)),
    ],
)
def test_records_that_were_shown_are_stored_again_as_they_are(
    ers: Ers, people: str, tmp_path: Path, shown: tuple[str, ...], store: tuple[str, ...]
) -> None:
    file = tmp_path / f"out.{shown[-1] if len(shown) > 1 else 'ndjson'}"
    ada = ("--schema", people, "name = 'Ada'")
    before = len(names(ers, people, "name = 'Ada'"))
    file.write_text(ers.done("record", *shown, *ada).out)
    proposed = json.loads(ers.done("schema", "infer", file).out)
    assert set(proposed["properties"]) >= {"name", "age"}
    ers.done(*store, file)
    assert len(names(ers, people, "name = 'Ada'")) == 2 * before


def test_an_export_for_a_spreadsheet_has_no_formula_and_is_csv(
    ers: Ers, people: str, tmp_path: Path
) -> None:
    ers.done("record", "create", "--schema", people, "--file", "-", typed='{"name": "=1+1"}')
    where = ("--schema", people, "name = '=1+1'")
    plain = ers.done("record", "export", *where, "--format", "csv")
    safe = ers.done("record", "export", *where, "--format", "csv", "--safe-cells")
    assert plain.out.splitlines()[1].startswith("=1+1,")
    assert safe.out.splitlines()[1].startswith('"\'=1+1",')
    assert ers("record", "export", *where, "--safe-cells").code == 2


def test_an_export_that_breaks_off_leaves_no_file(
    ers: Ers, people: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Transport, answer: Any) -> Any:
        yield b"name,age\n"
        raise ProxyUnreachable("cut")

    monkeypatch.setattr(Transport, "_chunks", broken)
    said = ers("record", "export", "--schema", people, "--file", tmp_path / "out.csv")
    assert said.code == 5
    assert list(tmp_path.glob("out*")) == []


def test_a_record_is_changed_in_part_or_as_a_whole(ers: Ers, people: str) -> None:
    record = ers.done("record", "search", "--schema", people, "name = 'Ada'").one["id"]
    update = ("record", "update", record, "--file", "-")

    changed = ers.done(*update, typed='{"age": 37, "city": null}').one
    assert (changed["id"], changed["data"]) == (record, {"name": "Ada", "age": 37})
    replaced = ers.done(*update, "--replace", typed='{"name": "Ada L."}').one
    assert replaced["data"] == {"name": "Ada L."}
    assert ers(*update, typed='{"age": 131}').code == 6
    assert ers(*update, typed='[{"age": 1}, {"age": 2}]').code == 2


def test_a_record_that_somebody_changed_is_neither_changed_nor_deleted_by_its_old_version(
    ers: Ers, people: str
) -> None:
    record = ers.done("record", "search", "--schema", people, "name = 'Ada'").one["id"]
    update = ("record", "update", record, "--file", "-")
    delete = ("record", "delete", record, "--yes")
    assert ers.done("record", "get", record).one["version"] == 1
    assert ers.done(*update, "--if-version", "1", typed='{"age": 37}').one["version"] == 2

    for command in (update, delete, (*delete, "--erase")):
        refused = ers(*command, "--if-version", "1", typed='{"age": 38}')
        assert (refused.code, "the record now has version 2" in refused.err) == (4, True)
        assert "ETag" not in refused.err
    assert ers.done("record", "get", record).one["data"]["age"] == 37
    assert ers.done(*delete, "--if-version", "2").out == "Deleted 1 record.\n"
    matching = ("record", "delete", "--schema", people, "--matching", "age > 40", "--yes")
    assert ers(*matching, "--if-version", "1").code == 2


def test_records_are_deleted_by_id_or_by_condition(ers: Ers, people: str) -> None:
    record = ers.done("record", "search", "--schema", people, "name = 'Ada'").one["id"]
    matching = ("record", "delete", "--schema", people, "--matching", "age > 40")

    assert ers(*matching).code == 2
    assert ers("record", "delete", record, "--schema", people).code == 2
    assert ers.done(*matching, "--yes").out == "Deleted 2 records.\n"
    assert ers.done("record", "delete", record, "--yes").out == "Deleted 1 record.\n"
    assert ers("record", "delete", record, "--yes").code == 3
    assert names(ers, people) == ["Edsger"]
