"""Jobs into unique fields: what collides is named, left out, or stored in place of the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from encrypted_records.model import wire
from encrypted_records.model.records import BlockNames
from tests.proxy.beside import first, front, other, proxy, running, store
from tests.support.front import Asked, Front, Reply
from tests.support.jobs import as_csv, as_json, completed, ended, flaws, started
from tests.support.store import Store

__all__ = ["first", "front", "other", "proxy", "running", "store"]

DEFINITION: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "email": {"type": "string"},
        "site": {"type": "string"},
        "number": {"type": "integer", "minimum": 0, "maximum": 100_000},
        "day": {"type": "string", "format": "date"},
    },
    "unique": [["email"], ["site", "number"]],
}
NAMES = ("email", "site", "number", "day")
Row = dict[str, Any]


def send(store: Store, rows: Sequence[Row], *, by: str = "", **headers: str) -> str:
    query = f"?by={by}" if by else ""
    return started(store, as_csv(store, rows, NAMES), "text/csv", query=query, **headers)


def everything(store: Store) -> list[Row]:
    return sorted((one["data"] for one in store.everything()), key=repr)


def details(store: Store, path: str) -> list[str]:
    return [result["detail"] for result in store.proxy("GET", f"{path}errors/").json()["results"]]


def test_a_job_without_equal_values_is_stored_in_every_layout(store: Store) -> None:
    completed(store, send(store, [{"email": "a", "site": "x", "number": 1}, {"site": "x"}]))
    rows: list[Row] = [{"email": "b", "site": "x", "number": 2}, {"site": "x"}, {"number": 1}]
    completed(store, started(store, as_json(store, rows)))
    lines = b"\n".join(
        msgspec.json.encode({"schema": store.schema, "data": one}) for one in [{"email": "c"}]
    )
    completed(store, started(store, lines, "application/x-ndjson"))
    assert len(everything(store)) == 6


def test_what_collides_is_named_and_nothing_is_stored(store: Store) -> None:
    (holder,) = store.ingest([{"email": "e\u0301", "site": "x", "number": 1}])
    rows: list[Row] = [
        {"email": "new", "site": "a", "number": 1},
        {"email": "\u00e9"},
        {"email": "other", "site": "a", "number": 1},
        {"email": "z", "site": "x", "number": 1},
    ]
    path = send(store, rows)
    job = ended(store, path)
    assert (job["status"], "(not_unique)" in job["error"]) == ("failed", True)
    assert job["error"].startswith("3 of 4 records have unique values")
    assert "on conflict, skip leaves them out, and replace stores them" in job["error"]
    assert flaws(store, path) == [
        (2, "email", "not_unique"),
        (3, "site", "not_unique"),
        (4, "site", "not_unique"),
    ]
    record, row, both = details(store, path)
    assert f"/api/records/{holder}/" in record
    assert "row 1 of this file" in row
    assert "number, site" in both
    assert len(everything(store)) == 1


def test_rows_that_collide_are_left_out_where_that_is_asked_for(store: Store) -> None:
    store.ingest([{"email": "a", "day": "2026-01-01"}])
    rows: list[Row] = [
        {"email": "a", "site": "x", "number": 1},
        {"email": "b", "site": "x", "number": 1},
        {"email": "b"},
        {"site": "x"},
    ]
    path = send(store, rows, X_On_Conflict="skip")
    completed(store, path)
    # The first row is left out, so that it keeps the second one's values from nobody.
    assert flaws(store, path) == [(1, "email", "not_unique"), (3, "email", "not_unique")]
    assert everything(store) == sorted([{"email": "a", "day": "2026-01-01"}, *rows[1::2]], key=repr)
    about = store.proxy("GET", f"{path}about/").json()
    assert (about["bad_rows"], about["replaced"], about["total"]) == (2, 0, 4)


def test_a_conflict_is_a_fault_like_others_unless_something_else_is_said(store: Store) -> None:
    store.ingest([{"email": "a"}])
    rows: list[Row] = [{"email": "a"}, {"number": "x"}, {"email": "b"}]
    path = send(store, rows, X_On_Invalid="skip")
    completed(store, path)
    assert flaws(store, path) == [(1, "email", "not_unique"), (2, "number", "type")]
    assert everything(store) == [{"email": "a"}, {"email": "b"}]
    failed = ended(store, send(store, rows, X_On_Invalid="skip", X_On_Conflict="fail"))
    assert failed["status"] == "failed"


def test_records_are_replaced_under_their_ids(store: Store) -> None:
    ada, kurt = store.ingest([{"email": "ada", "number": 1}, {"email": "kurt", "number": 2}])
    rows: list[Row] = [{"email": "new"}, {"email": "ada", "number": 7, "day": "2026-02-28"}]
    path = send(store, rows, by="email", X_On_Conflict="replace")
    completed(store, path)
    assert store.proxy("GET", f"{path}about/").json()["replaced"] == 1
    changed = store.proxy("GET", f"/api/records/{ada}/")
    assert (changed.json()["data"], changed.headers["ETag"]) == (rows[1], '"2"')
    assert store.proxy("GET", f"/api/records/{kurt}/").json()["data"]["number"] == 2
    assert everything(store) == sorted([*rows, {"email": "kurt", "number": 2}], key=repr)
    again = store.proxy("PATCH", f"/api/records/{ada}/", {"data": {"number": 8}})
    assert (again.status, again.headers["ETag"]) == (200, '"3"')


def test_a_file_that_is_sent_twice_is_there_once(store: Store) -> None:
    """More rows than one page of the index holds, in several segments."""
    rows: list[Row] = [
        {"email": f"{n}@x", "site": "s", "number": n, "day": f"2026-01-{n % 28 + 1:02}"}
        for n in range(5000)
    ]
    before = sorted(rows, key=repr)
    completed(store, send(store, rows, by="email", X_On_Conflict="replace"))
    ids = {one["id"] for one in store.everything()}
    completed(store, send(store, rows[::-1], by="number,site", X_On_Conflict="replace"))
    assert everything(store) == before
    assert {one["id"] for one in store.everything()} == ids
    half = [{**row, "day": "2027-01-01"} for row in rows[::2]] + [{"email": "more"}]
    completed(store, send(store, half, by="email", X_On_Conflict="replace"))
    assert everything(store) == sorted([*half, *rows[1::2]], key=repr)


def test_values_move_between_records_of_one_file(store: Store) -> None:
    store.ingest([{"email": "a", "site": "x", "number": 1}, {"email": "b", "site": "x"}])
    rows: list[Row] = [
        {"email": "b", "site": "x", "number": 1},
        {"email": "a", "site": "x", "number": 2},
    ]
    completed(store, send(store, rows, by="email", X_On_Conflict="replace"))
    assert everything(store) == sorted(rows, key=repr)


def test_what_replaces_one_record_must_not_collide_with_another(store: Store) -> None:
    (taken,) = store.ingest([{"email": "a", "site": "x", "number": 1}])
    before = everything(store)
    rows: list[Row] = [
        {"email": "b", "site": "x", "number": 1},
        {"site": "y"},
        {"email": "c"},
        {"email": "c"},
    ]
    path = send(store, rows, by="email", X_On_Conflict="replace")
    failed = ended(store, path)
    assert failed["status"] == "failed"
    # Who asked to replace is not told to.
    assert "skip invalid rows" in failed["error"]
    assert "on conflict" not in failed["error"]
    found = [(1, "site", "not_unique"), (2, "email", "required"), (4, "email", "not_unique")]
    assert flaws(store, path) == found
    assert f"/api/records/{taken}/" in details(store, path)[0]
    assert everything(store) == before
    skipped = send(store, rows, by="email", X_On_Conflict="replace", X_On_Invalid="skip")
    completed(store, skipped)
    assert flaws(store, skipped) == found
    assert everything(store) == sorted([*before, {"email": "c"}], key=repr)


@pytest.mark.parametrize("by", ["", "number", "site,email"])
def test_a_job_must_name_the_set_that_finds_records(store: Store, by: str) -> None:
    job = ended(store, send(store, [{"email": "a"}], by=by, X_On_Conflict="replace"))
    assert (job["status"], "(invalid_parameter)" in job["error"]) == ("failed", True)
    assert everything(store) == []


def test_values_that_come_while_a_job_runs_are_looked_at(
    store: Store, other: Store, front: Front
) -> None:
    """The other proxy has sealed its rows, and is about to publish them."""
    (ada,) = store.ingest([{"email": "ada", "number": 1}])
    came: list[str] = []

    def overtake(asked: Asked) -> Reply | None:
        if asked.path.endswith("/publish/") and not came:
            came.extend(store.ingest([{"email": "new"}, {"email": "kurt"}]))
            changed = store.proxy("PATCH", f"/api/records/{ada}/", {"data": {"number": 2}})
            assert changed.status == 200
        return None

    front.invent = overtake
    rows: list[Row] = [{"email": "new", "number": 5}, {"email": "ada", "number": 6}]
    completed(other, send(other, rows, by="email", X_On_Conflict="replace"))
    assert everything(store) == sorted([*rows, {"email": "kurt"}], key=repr)
    assert store.proxy("GET", f"/api/records/{came[0]}/").headers["ETag"] == '"2"'
    assert store.proxy("GET", f"/api/records/{ada}/").headers["ETag"] == '"3"'


def test_a_job_that_others_overtake_is_told_who_has_its_values(
    store: Store, other: Store, front: Front
) -> None:
    other.ingest([{"email": "begin"}])
    came: list[str] = []

    def overtake(asked: Asked) -> Reply | None:
        if asked.path.endswith("/publish/") and not came:
            came.extend(store.ingest([{"email": "a"}]))
        return None

    front.invent = overtake
    path = send(other, [{"email": "b"}, {"email": "a"}])
    job = ended(other, path)
    assert (job["status"], "(not_unique)" in job["error"]) == ("failed", True)
    assert f"/api/records/{came[0]}/" in details(other, path)[0]
    assert [one["email"] for one in everything(store)] == ["a", "begin"]


def test_an_api_that_lies_of_who_a_row_is_is_refused(
    store: Store, other: Store, front: Front
) -> None:
    store.ingest([{"email": f"{n}"} for n in range(3)])

    def lie(asked: Asked, reply: Reply) -> Reply:
        if not asked.path.endswith("/names/"):
            return reply
        (block,) = wire.decode_all(reply.body, BlockNames)
        rows = block.rows[1:] + block.rows[:1]
        told = msgspec.structs.replace(block, rows=rows)
        return reply.with_body(wire.encode([told]))

    with front.telling(lie):
        path = send(other, [{"email": "1", "number": 9}], by="email", X_On_Conflict="replace")
        job = ended(other, path)
    assert (job["status"], "(does_not_open)" in job["error"]) == ("failed", True)
    assert all("number" not in one for one in everything(store))
