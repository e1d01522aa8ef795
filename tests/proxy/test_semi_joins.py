"""Records whose value is among those of another schema: found through a real API as a comparison of
all values would find them, in every way to ask; and what is refused, by name."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model.predicates import MAX_JOIN_DEPTH, MAX_JOINS
from tests import oracle
from tests.support.second_proxy import Proxy, act_as_second, store_groups, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

PATIENTS: dict[str, Any] = {
    "email": {"type": "string"},
    "number": {"type": "integer", "minimum": 0, "maximum": 9000},
    "code": {"type": "number", "minimum": -1, "maximum": 9000, "precision": 2},
    "born": {"type": "string", "format": "date"},
    "device": {"type": "string", "format": "uuid"},
    "alive": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
}
#: The same things, with other bounds, decimals and names.
VISITS: dict[str, Any] = {
    "who": {"type": "string", "maxLength": 200},
    "patient": {"type": "integer", "minimum": -500, "maximum": 90000},
    "cost": {"type": "number", "minimum": -10, "maximum": 90000, "precision": 3},
    "day": {"type": "string", "format": "date"},
    "device": {"type": "string", "format": "uuid"},
    "ward": {"type": "string"},
}
#: Of each more than are looked up one by one.
MANY = 2600
#: Of the index of a number.
SEVERAL_PAGES = 30_000
#: Beyond what an index key keeps.
LONG = "the same beginning of every one of these long addresses, and "
#: In two spellings, that NFC makes one.
ACCENT = "andr\u00e9"


def email(number: int, *, decomposed: bool) -> str:
    if number % 40 == 0:
        return f"{LONG}{number // 40}"
    spelled = unicodedata.normalize("NFD", ACCENT) if decomposed else ACCENT
    return f"{spelled if number % 7 == 0 else 'jones'}{number}@example.org"


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def patient(number: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "email": email(number, decomposed=False),
        "number": number,
        "code": Decimal(number) / 4,
        "born": f"{1900 + number % 100}-01-{1 + number % 28:02}",
        "device": uuid(number),
        "alive": number % 2 == 0,
    }
    return {name: value for name, value in found.items() if number % 11 or name == "alive"}


def visit(number: int) -> dict[str, Any]:
    """Of every second patient, and of some that are nobody."""
    found: dict[str, Any] = {
        "who": email(2 * number, decomposed=True),
        "patient": 2 * number - 300,
        "cost": Decimal(number * 3) / 8,
        "day": f"{1900 + number % 50}-01-{1 + number % 28:02}",
        "device": uuid(3 * number),
        "ward": f"ward {number % 3}",
    }
    return {name: value for name, value in found.items() if number % 13 or name == "ward"}


PEOPLE = [patient(number) for number in range(MANY)]
SEEN = [visit(number) for number in range(MANY)]
PAIRS = [("email", "who"), ("number", "patient"), ("code", "cost"), ("number", "cost")]
PAIRS += [("code", "patient"), ("born", "day"), ("device", "device")]
WARD: dict[str, Any] = {"field": "ward", "op": "eq", "value": "ward 1"}
FEW: dict[str, Any] = {"field": "patient", "op": "lt", "value": -200}


def definition(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "formats": "enforced", "properties": fields}


class Places:
    """Patients, and the visits of the same dataset."""

    def __init__(self, patients: Store, visits: str) -> None:
        self.patients, self.visits = patients, visits

    def among(self, own: str, name: str, where: Any = None, *, schema: str = "") -> dict[str, Any]:
        of = {"schema": schema or self.visits, "field": name, "where": where}
        return {"field": own, "op": "in", "of": of}

    def ask(self, path: str, **body: Any) -> Any:
        body = {"schema": self.patients.schema, **body}
        answer = self.patients.proxy("POST", f"/api/records/{path}/", body)
        assert answer.status == 200, answer.body
        return answer

    def refused(self, where: Any) -> tuple[int, str, str]:
        answer = self.patients.ask(where)
        (flaw,) = answer.json()["errors"]
        return answer.status, flaw["code"], flaw["pointer"]


@pytest.fixture(scope="module")
def places(services: Callable[[str], Service], tmp_path_factory: pytest.TempPathFactory) -> Places:
    patients = new_store(services("sqlite"), definition(PATIENTS))
    dataset = patients.proxy("GET", patients.schema).json()["dataset"]
    made = patients.proxy(
        "POST",
        "/api/schemas/",
        {"name": "Visits", "dataset": dataset, "schema": definition(VISITS)},
    ).json()
    visits = Store(patients.service, patients.account, made["url"], patients.device)
    # Some as small segments beside the large ones.
    patients.ingest(PEOPLE[:3])
    visits.ingest(SEEN[:3])
    folder = with_keyrings(patients.service, tmp_path_factory.mktemp("joins"))

    async def fill(proxy: Proxy, rows: list[dict[str, Any]]) -> None:
        fields = proxy.state.definition.fields
        plain = [{name: fields[name].accept(row[name]) for name in row} for row in rows]
        await proxy.ingest(plain[3:])

    for store, rows in ((patients, PEOPLE), (visits, SEEN)):
        act_as_second(store, folder, partial(fill, rows=rows))
    return Places(patients, made["url"])


def kept(fields: dict[str, Any], name: str, row: dict[str, Any]) -> Any:
    value = row.get(name)
    if value is None:
        return None
    if fields[name]["type"] == "string":
        return oracle.nfc(value)
    return oracle.rounded(fields[name], value)


def expected(own: str, name: str, fits: Callable[[dict[str, Any]], bool]) -> list[int]:
    there = {kept(VISITS, name, row) for row in SEEN if fits(row)} - {None}
    return [at for at, row in enumerate(PEOPLE) if kept(PATIENTS, own, row) in there]


@pytest.mark.parametrize(("own", "name"), PAIRS)
def test_values_are_found_whatever_bounds_and_decimals_the_fields_have(
    places: Places, own: str, name: str
) -> None:
    for where, fits in (
        (None, lambda row: True),
        (WARD, lambda row: row["ward"] == "ward 1"),
        (FEW, lambda row: row.get("patient", 0) < -200),
    ):
        among = expected(own, name, fits)
        condition = places.among(own, name, where)
        for asked, numbers in (
            (condition, among),
            ({"not": condition}, sorted(set(range(MANY)) - set(among))),
        ):
            found = places.ask("search", where=asked, count=True, limit=5).json()
            assert found["count"] == len(numbers)
            shown = [result["data"] for result in found["results"]]
            assert [one["alive"] for one in shown] == [PEOPLE[at]["alive"] for at in numbers[:5]]
            first = places.ask("search", where=asked, limit=5).json()
            assert first["results"] == found["results"]
            count = places.ask("aggregate", where=asked).json()["measures"][0]["value"]
            assert count == len(numbers)
        lines = places.ask("export", where=condition, fields=[own]).body.splitlines()
        assert len(lines) == len(among)
    assert expected(own, name, lambda row: True)


def test_it_combines_with_everything_and_goes_deeper(places: Places) -> None:
    inner = places.among(
        "patient",
        "number",
        {"field": "alive", "op": "eq", "value": True},
        schema=places.patients.schema,
    )
    both = {"and": [places.among("email", "who", inner), {"not": places.among("born", "day")}]}
    alive = {row["number"] for row in PEOPLE if row["alive"] and "number" in row}
    one = set(expected("email", "who", lambda row: row.get("patient") in alive))
    other = set(expected("born", "day", lambda row: True))
    pages, cursor = [], None
    while True:
        page = places.ask(
            "search", where=both, order_by=["-number"], limit=100, cursor=cursor
        ).json()
        pages += [record["data"]["number"] for record in page["results"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    numbers = sorted((PEOPLE[at]["number"] for at in one - other), reverse=True)
    assert pages == numbers
    assert numbers


def test_explain_names_what_was_asked_of_which_version(places: Places) -> None:
    told = places.ask("explain", where=places.among("email", "who"), limit=0, count=True).json()
    (join,) = told["joins"]
    assert (join["pointer"], join["schema"], join["field"]) == ("/where", places.visits, "who")
    assert join["rows"] == MANY
    assert join["values"] == len({oracle.nfc(row["who"]) for row in SEEN if "who" in row})
    assert join["version"] == 2
    assert (told["scan"], told["scanned"]) == ("column", ["email"])
    few = places.ask("explain", where=places.among("number", "patient", FEW)).json()
    assert few["scan"] == "ranges"
    assert not places.ask("explain").json()["joins"]


def test_two_comparisons_of_one_field_in_another_schema_are_one_range(
    places: Places, tmp_path: Path
) -> None:
    """What is read of the index is what one comparison takes, and not a set for each of two."""
    numbers = {"n": {"type": "integer", "minimum": 0, "maximum": 10**6}}
    theirs = places.patients.another_schema(definition(numbers))
    theirs.ingest([{"n": 0}])
    store_groups(theirs, tmp_path, [{"n": number} for number in range(SEVERAL_PAGES)])
    low, high = SEVERAL_PAGES // 2, SEVERAL_PAGES // 2 + 20

    def told(where: dict[str, Any]) -> tuple[int, int, int]:
        asked = places.among("number", "n", where, schema=theirs.schema)
        answer = places.ask("explain", where=asked, limit=0, count=True).json()
        (join,) = answer["joins"]
        return answer["pages"], answer["requests"], join["rows"]

    bounds = [{"field": "n", "op": "ge", "value": low}, {"field": "n", "op": "le", "value": high}]
    as_one = {"field": "n", "op": "between", "value": [low, high]}
    assert told({"and": bounds}) == told(as_one)


def test_why_counts_it_as_any_comparison(places: Places) -> None:
    nobody = places.among("email", "who", {"field": "ward", "op": "eq", "value": "none"})
    told = places.ask("why", where={"and": [nobody, places.among("born", "day")]}).json()
    none, some = told["comparisons"]
    assert (none["pointer"], none["count"], none["folded"]) == ("/where/and/0", 0, None)
    assert some["count"] == len(expected("born", "day", lambda row: True))


def test_a_schema_is_named_by_its_name_in_the_dataset_its_id_or_its_path(places: Places) -> None:
    count = len(expected("number", "patient", lambda row: True))
    address = places.patients.service.proxy_url + places.visits
    for schema in ("visits", "VISITS", places.visits, places.visits.split("/")[-2], address):
        asked = places.among("number", "patient", schema=schema)
        assert places.ask("search", where=asked, limit=0, count=True).json()["count"] == count


def test_what_cannot_be_asked_is_refused_with_the_place(places: Places) -> None:
    own = {"field": "email", "op": "in"}
    deep: dict[str, Any] = places.among("email", "who")
    for _ in range(MAX_JOIN_DEPTH):
        deep = places.among("email", "email", deep, schema=places.patients.schema)
    stranger = new_store(places.patients.service, definition(VISITS))
    many = {"or": [places.among("email", "who")] * (MAX_JOINS + 1)}
    of = "/where/of"
    for where, told in [
        (places.among("email", "nothing"), (400, "unknown_field", f"{of}/field")),
        (places.among("number", "who"), (400, "type", f"{of}/field")),
        (places.among("born", "who"), (400, "type", f"{of}/field")),
        (places.among("alive", "patient"), (400, "type", f"{of}/field")),
        (places.among("email", "who", schema="nobody's"), (400, "unknown_schema", f"{of}/schema")),
        # There is one, but not for this caller: the answer is the same.
        (
            places.among("email", "who", schema=stranger.schema),
            (400, "unknown_schema", f"{of}/schema"),
        ),
        (
            places.among("email", "who", {"field": "ward", "op": "eq", "value": 1}),
            (400, "type", f"{of}/where/value"),
        ),
        ({**own, "of": {"field": "who"}}, (400, "type", f"{of}/schema")),
        ({**own, "of": {"schema": places.visits}}, (400, "type", f"{of}/field")),
        ({**own, "of": []}, (400, "type", of)),
        (
            {**own, "of": {"schema": places.visits, "field": "who", "x": 1}},
            (400, "unknown_member", f"{of}/x"),
        ),
        ({**places.among("email", "who"), "op": "eq"}, (400, "op", "/where/op")),
        ({**places.among("email", "who"), "value": ["a"]}, (400, "unknown_member", "/where/value")),
        ({**places.among("email", "who"), "fold": True}, (400, "unknown_member", "/where/fold")),
        (deep, (400, "too_deep", f"/where{'/of/where' * MAX_JOIN_DEPTH}/of")),
        (many, (400, "too_many", f"/where/or/{MAX_JOINS}/of")),
    ]:
        assert places.refused(where) == told


def test_pages_go_on_with_what_the_other_schema_had_when_they_began(places: Places) -> None:
    one_text = definition({"k": {"type": "string"}})
    mine, theirs = (places.patients.another_schema(one_text) for _ in range(2))
    mine.ingest([{"k": str(number)} for number in range(6)])
    ids = theirs.ingest([{"k": "1"}, {"k": "3"}, {"k": "5"}])
    where = {"field": "k", "op": "in", "of": {"schema": theirs.schema, "field": "k"}}
    first = mine.search(where, limit=1)
    assert [result["data"]["k"] for result in first["results"]] == ["1"]
    theirs.ingest([{"k": "4"}])
    rest = mine.search(where, limit=5, cursor=first["next_cursor"])
    assert [result["data"]["k"] for result in rest["results"]] == ["3", "5"]
    # What begins now sees it; what was deleted is gone at once, as rows of the answer would be.
    assert len(mine.search(where)["results"]) == 4
    assert theirs.proxy("DELETE", f"/api/records/{ids[1]}/").status == 204
    rest = mine.search(where, limit=5, cursor=first["next_cursor"])
    assert [result["data"]["k"] for result in rest["results"]] == ["5"]
    # The cursor is of a question with one join.
    for other in (None, {"and": [where, where]}):
        refused = mine.ask(other, cursor=first["next_cursor"])
        assert refused.json()["errors"][0]["code"] == "cursor"
    gone = mine.proxy(
        "POST", "/api/records/delete/?confirm=3", {"schema": mine.schema, "where": where}
    )
    assert gone.status == 200
    assert [result["data"]["k"] for result in mine.search()["results"]] == ["0", "2", "3"]
