"""``ers record``: what is stored is found again, in the form that a person or a program wants."""

from __future__ import annotations

import csv
import io
import json
import secrets
from decimal import Decimal
from pathlib import Path

import pytest

from encrypted_records.cli.command_group import CommandLimits
from encrypted_records.cli.output import Output
from encrypted_records.client.limits import ClientLimits
from tests.cli.command import Ers
from tests.support.service import Account, Service, call

DEFINITION = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "height": {"type": "number", "minimum": 0, "maximum": 3, "precision": 18},
            "a,b": {"type": "string"},
        },
        "required": ["name"],
    }
)
PEOPLE = [
    {"name": "Ada", "age": 36, "height": 1.65},
    {"name": "Grace", "age": 85, "a,b": ""},
    {"name": "Alan", "age": 41, "a,b": 'say "x",\ny'},
]


@pytest.fixture
def schema(ers: Ers) -> str:
    """The slug of a schema of its own."""
    return create_schema(ers, DEFINITION)


def create_schema(ers: Ers, definition: str) -> str:
    slug = f"people-{secrets.token_hex(4)}"
    ers.done("dataset", "create", "--name", slug, "--slug", slug)
    ers.done(
        *("schema", "create", "--dataset", slug, "--name", slug, "--slug", slug, "--file", "-"),
        typed=definition,
    )
    return slug


@pytest.fixture
def people(ers: Ers, schema: str) -> str:
    """The same, with PEOPLE in it."""
    ers.done("record", "create", "--schema", schema, "--file", "-", typed=json.dumps(PEOPLE))
    return schema


def names(said: str) -> list[str]:
    return [json.loads(line)["data"]["name"] for line in said.splitlines()]


def test_records_come_as_plain_objects_or_with_data_or_with_their_schemas_name(
    ers: Ers, schema: str, tmp_path: Path
) -> None:
    file = tmp_path / "people.json"
    file.write_text(
        json.dumps(
            [
                {"name": "plain"},
                {"data": {"name": "with data"}},
                {"schema": schema, "data": {"name": "with schema"}},
                {"schema": f"{schema}/{schema}", "data": {"name": "with path"}},
            ]
        )
    )

    stored = ers.done("record", "create", "--file", file, "--schema", schema)

    assert [set(line) for line in stored.lines] == [{"id", "url"}] * 4
    found = ers.done("record", "search", "--schema", schema)
    assert names(found.out) == ["plain", "with data", "with schema", "with path"]
    assert [line["id"] for line in found.lines] == [line["id"] for line in stored.lines]


def test_records_come_one_per_line_too_and_keep_every_digit(ers: Ers, schema: str) -> None:
    height = "1.000000000000000001"
    lines = f'{{"name": "Ada", "height": {height}}}\n\n{{"name": "Alan"}}\n'
    ers.done("record", "create", "--schema", schema, "--file", "-", typed=lines)

    found = ers.done("record", "search", "--schema", schema, f"height = {height}").out
    assert json.loads(found, parse_float=Decimal)["data"]["height"] == Decimal(height)


@pytest.mark.parametrize(
    ("records", "place"),
    [
        ('[{"name": "Ada"}, {"age": 3}]', "row 2, name: "),
        ('[{"name": "Ada"}, {"name": "Alan", "age": 131}]', "row 2, age: "),
        ('[{"name": "Ada"}, 3]', "row 2: expected an object"),
        ('[{"name": "Ada"}, {"schema": 3, "data": {}}]', "row 2, schema: expected the name"),
        ("[]", "the file has no records"),
    ],
)
def test_one_bad_record_is_named_and_nothing_is_stored(
    ers: Ers, schema: str, records: str, place: str
) -> None:
    said = ers("record", "create", "--schema", schema, "--file", "-", typed=records)

    assert said.code == 6
    assert place in said.err
    assert "nothing was stored" in said.err
    assert ers.done("record", "search", "--schema", schema, "--count").out == "0\n"


def test_more_records_than_are_read_at_once_are_stored_as_they_come(ers: Ers, schema: str) -> None:
    few = CommandLimits(at_once=101)
    rows = [{"name": str(number), "age": number % 100} for number in range(303)]
    create = ("record", "create", "--schema", schema, "--file", "-")

    bad = ers(*create, typed=json.dumps([*rows[:250], {"name": "x", "age": 131}, 7]), limits=few)
    assert (bad.code, "row 252: expected an object" in bad.err) == (6, True)
    assert ers.done("record", "list", "--schema", schema).out == ""

    assert ers.done(*create, typed=json.dumps(rows), limits=few).one["status"] == "completed"
    found = ers.done("record", "list", "--schema", schema, "--all")
    assert [line["data"] for line in found.lines] == rows


def test_records_are_listed_opened_or_sealed_as_they_were_stored(ers: Ers, people: str) -> None:
    listing = ("record", "list", "--schema", people)

    opened = ers.done(*listing)
    two = ers.done(*listing, "--limit", "2", "--output", "csv")
    table = ers.done(*listing, "-o", "table")
    sealed = ers.done(*listing, "--sealed", "--all")

    assert names(opened.out) == ["Ada", "Grace", "Alan"]
    assert [line.split(",")[0] for line in two.out.splitlines()] == ["name", "Ada", "Grace"]
    assert "more than 2" in two.err
    assert (table.err, table.out.splitlines()[2].split()[0]) == (
        "3 records\n",
        opened.lines[0]["id"],
    )
    assert '"Ada"' not in sealed.out
    assert ers.done("record", "decrypt", "-", typed=sealed.out).lines == opened.lines
    assert ers(*listing, "--all", "--limit", "3").code == 2


def test_records_without_a_schema_are_refused_with_the_way_out(ers: Ers) -> None:
    said = ers("record", "create", "--file", "-", typed='{"name": "Ada"}')
    assert said.code == 6
    assert "--schema" in said.err


@pytest.mark.parametrize("command", ["get", "update", "delete"])
def test_text_that_is_not_a_record_id_is_refused_with_the_commands_that_show_ids(
    ers: Ers, command: str
) -> None:
    options = {"update": ("--file", "-"), "delete": ("--yes",)}.get(command, ())
    said = ers("record", command, "Ada", *options, typed="{}")
    assert said.code == 3
    assert "this is not a record id: an id has 22 characters" in said.err
    assert "ers record list and ers record search show the ids" in said.err


def test_a_search_is_asked_by_expression_by_json_or_by_both(ers: Ers, people: str) -> None:
    search = ("record", "search", "--schema", people)
    older = json.dumps({"field": "age", "op": "gt", "value": 40})

    assert names(ers.done(*search, "age > 40").out) == ["Grace", "Alan"]
    assert names(ers.done(*search, "--where", older).out) == ["Grace", "Alan"]
    assert names(ers.done(*search, "name prefix 'A'", "--where", older).out) == ["Alan"]
    assert ers.done(*search, "age > 40", "--count").out == "2\n"
    assert ers.done(*search, "age > 130").out == ""


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("search", "age", "=", "30"), "put the condition in quotes, such as 'age > 30'"),
        (("export", "age", "=", "30"), "put the condition in quotes, such as 'age > 30'"),
        (("delete", "--matching", "age", "=", "30"), "such as --matching 'age > 30'"),
    ],
)
def test_a_condition_that_the_shell_has_split_is_answered_with_quotes(
    ers: Ers, command: tuple[str, ...], words: str
) -> None:
    said = ers("record", *command, "--schema", "people")
    assert (said.code, words in said.err) == (2, True)


def test_a_limit_that_cuts_says_so_and_all_does_not(ers: Ers, people: str) -> None:
    search = ("record", "search", "--schema", people)

    two, three, every = (
        ers.done(*search, *more) for more in (["--limit", "2"], ["--limit", "3"], ["--all"])
    )

    assert (names(two.out), "more than 2" in two.err) == (["Ada", "Grace"], True)
    assert (len(three.lines), three.err) == (3, "")
    assert (len(every.lines), every.err) == (3, "")
    assert ers(*search, "--all", "--limit", "3").code == 2


def test_pages_are_followed_until_the_last(ers: Ers, schema: str) -> None:
    records = json.dumps([{"name": str(number)} for number in range(7)])
    ers.done("record", "create", "--schema", schema, "--file", "-", typed=records)
    few = CommandLimits(client=ClientLimits(page=3))

    for more, count in ((["--all"], 7), (["--limit", "5"], 5), (["--limit", "6"], 6)):
        found = ers.done("record", "search", "--schema", schema, *more, limits=few)
        assert names(found.out) == [str(number) for number in range(count)]


def test_csv_can_be_read_back_and_tells_absent_from_empty(ers: Ers, people: str) -> None:
    said = ers.done("record", "search", "--schema", people, "--output", "csv")

    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [row["name"] for row in rows] == ["Ada", "Grace", "Alan"]
    assert rows[2]["a,b"] == PEOPLE[2]["a,b"]
    known = [line["id"] for line in ers.done("record", "search", "--schema", people).lines]
    assert said.out.splitlines()[:3] == [
        'name,age,height,"a,b",leave_out:id',
        f"Ada,36,1.65{16 * '0'},,{known[0]}",
        f'Grace,85,,"",{known[1]}',
    ]
    copy = ers.done("import", "--exact", "-", "--schema", people, "--format", "csv", typed=said.out)
    assert copy.one["status"] == "completed"


def test_a_field_may_be_called_like_any_column_of_ours(ers: Ers) -> None:
    small = {"type": "integer", "minimum": 0, "maximum": 99}
    odd = ["id", "count", "record id", "measure count", "max(id)", "url", "schema", "data", "group"]
    definition = {"type": "object", "properties": dict.fromkeys(odd, small)}
    schema = create_schema(ers, json.dumps(definition))
    rows = [{name: at + 10 * row for at, name in enumerate(odd)} for row in range(3)]
    ers.done("record", "create", "--schema", schema, "--file", "-", typed=json.dumps(rows))
    known = [line["id"] for line in ers.done("record", "search", "--schema", schema).lines]

    for command in ("list", "search"):
        said = ers.done("record", command, "--schema", schema, "--output", "csv")
        found = list(csv.DictReader(io.StringIO(said.out)))
        assert [one.pop("leave_out:id") for one in found] == known
        assert found == [{name: str(value) for name, value in row.items()} for row in rows]
        table = ers.done("record", command, "--schema", schema, "--output", "table").out
        lines = [line.split() for line in table.splitlines()[2:]]
        assert [line[0] for line in lines] == known
        assert [line[1:] for line in lines] == [[str(one) for one in row.values()] for row in rows]
        assert table.startswith("record record id ")

    asked = ("--group-by", "count,id", "--measure", "count", "--measure", "max(id)")
    table = ers.done("record", "aggregate", "--schema", schema, *asked, "-o", "csv").out
    assert table.splitlines() == [
        "count,id,measure count,max(id)",
        *(f"{1 + 10 * row},{10 * row},1,{10 * row}" for row in range(3)),
    ]


def test_json_is_one_array_and_a_table_has_a_line_per_record(ers: Ers, people: str) -> None:
    search = ("record", "search", "--schema", people, "--fields", "age,name")

    array = json.loads(ers.done(*search, "--output", "json").out)
    table = ers.done(*search, "--output", "table")

    assert [list(one["data"]) for one in array] == [["age", "name"]] * 3
    assert [line.split()[1:] for line in table.out.splitlines()[2:]] == [
        ["36", "Ada"],
        ["85", "Grace"],
        ["41", "Alan"],
    ]
    assert table.err == "3 records\n"
    assert json.loads(ers.done(*search, "age > 130", "-o", "json").out) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["aeg > 3"], "error: the schema has no field aeg"),
        (["--fields", "name,aeg"], "error: the schema has no field aeg"),
        (["--order-by", "-aeg"], "error: the schema has no field aeg"),
        (["age >"], "error: expected a value after >, at character 6 of the expression"),
        (["--where", "{"], "error: --where: not JSON at line 1, column 2"),
        (["age = 'x'"], "error: the search is not valid"),
    ],
)
def test_a_question_that_cannot_be_asked_is_misuse(
    ers: Ers, people: str, arguments: list[str], error: str
) -> None:
    said = ers("record", "search", "--schema", people, *arguments)
    assert said.code == 2
    assert said.err.startswith(error)


def test_a_field_whose_name_has_a_comma_can_be_asked_for(ers: Ers, people: str) -> None:
    said = ers.done("record", "search", "--schema", people, "`a,b` = ''", "--fields", "a,b")
    assert said.one["data"] == {"a,b": ""}


def test_a_record_is_shown_opened_or_sealed_and_opened_again(ers: Ers, people: str) -> None:
    found = ers.done("record", "search", "--schema", people, "--limit", "1").one

    opened = ers.done("record", "get", found["id"]).one
    sealed = ers.done("record", "get", found["id"], "--sealed")
    again = ers.done("record", "decrypt", "-", typed=sealed.out).one

    assert opened == found | {"version": 1}
    assert again == found
    assert '"Ada"' not in sealed.out
    assert set(sealed.one["fields"]) == set(json.loads(DEFINITION)["properties"])
    assert ers("record", "get", found["id"][::-1]).code in (2, 3)


def test_plaintext_is_not_sent_to_an_address_that_is_the_apis(
    ers: Ers, people: str, running: Service, account: Account
) -> None:
    said = ers(
        *("record", "create", "--schema", people, "--proxy-url", running.base_url, "--file", "-"),
        typed='{"name": "secret-4711"}',
    )
    assert said.code == 4
    assert "is not a proxy" in said.err
    assert call("GET", f"{running.base_url}/api/status/").status == 200


def test_cells_of_a_table_are_cut_and_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output("table").write_object({"a": "x" * 100, "bc": "\x1b[31m", "d": None, "e": ["f"]})
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["a   " + "x" * 59 + "\u2026", "bc  \\x1b[31m", "d   ", 'e   ["f"]']
