"""What opens can be exported, whatever has become of the log; and the report says what is unknown.

The rows are the honest ones of a real database, whose log is lost, and those that an API makes up.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import credentials
from encrypted_records.model.records import RowRef
from encrypted_records.proxy.settings import Overrides
from tests.e2e.database import database_of
from tests.support import jobs
from tests.support.front import Asked, Front, Lie, Reply, running_front
from tests.support.history import DEFINITION, History, Saved, answered, lived, salvage, saved
from tests.support.older import older_store
from tests.support.outsider import outsider
from tests.support.proxies import running_proxy
from tests.support.second_proxy import beside
from tests.support.service import Service
from tests.support.store import Store, new_schema

#: Merges would be versions of the log that no test has asked for.
UNMERGED = Overrides(most_dead=2.0)
NARROW, FULL = Overrides(salvaged_bytes=64 << 10), Overrides(salvage_pages=1)


@dataclass(frozen=True)
class Sides:
    service: Service
    front: Front
    folder: Path


@pytest.fixture(scope="module")
def sides(
    services: Callable[[str], Service], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sides]:
    service = services("sqlite")
    folder = tmp_path_factory.mktemp("salvage")
    with (
        running_front(service.base_url) as front,
        running_proxy(front.url, folder, overrides=UNMERGED) as proxy,
    ):
        yield Sides(replace(service, proxy_url=proxy.url), front, folder)


@pytest.fixture
def store(sides: Sides) -> Store:
    return older_store(sides.service, DEFINITION)


@pytest.fixture
def history(store: Store) -> History:
    return lived(store)


def assert_authentic(found: Saved, history: History) -> None:
    """Each record is one that was stored, as it was stored, and none is there twice."""
    data = history.data()
    ids = [record["id"] for record in found.records]
    assert len(ids) == len(set(ids))
    for record in found.records:
        assert record["data"] == data[record["id"], record["version"]]
        assert record["schema"] == history.store.schema


def test_of_a_sound_log_it_is_the_export_and_nothing_is_unknown(history: History) -> None:
    found = saved(history.store)
    exported = history.store.everything()
    assert [
        {k: record[k] for k in ("id", "url", "schema", "data")} for record in found.records
    ] == exported
    assert found.found == dict.fromkeys((row.key for row in history.live(7)), True)
    report = found.report
    assert (report["fault"], report["unknown"], report["version"]) == (None, [], 7)
    counts = {"rows": 10, "records": 5, "proven": 5, "ended": 5}
    assert {name: report[name] for name in counts} == counts
    others = ("older", "left_out", "unopened", "without_key", "beyond", "incomplete", "missing")
    assert {report[name] for name in others} == {0}


def test_where_the_log_breaks_off_the_newest_version_of_every_record_is_saved(
    history: History,
) -> None:
    for spoilt in range(7, 0, -1):
        history.spoil_log(spoilt)
        for ended in (True, False):
            found = saved(history.store, ended=ended)
            assert_authentic(found, history)
            assert found.found == history.best(spoilt - 1, ended=ended)
            report = found.report
            assert report["version"] == spoilt - 1
            assert report["fault"]["code"] == "log_broken"
            assert "deleted records may be among these" in report["unknown"]
            assert report["rows"] == len(history.rows)
            handled = ("records", "ended", "older", "left_out")
            assert sum(report[name] for name in handled) == report["rows"]
            assert report["records"] == len(found.records)
            assert report["proven"] == sum(found.found.values())
            assert (report["left_out"] > 0) == (not ended)


def test_without_any_log_rows_open_by_their_own_keys(history: History) -> None:
    history.lose_log()
    found = saved(history.store)
    assert_authentic(found, history)
    assert found.found == history.best(0)
    assert len(found.found) == 7
    assert found.report["proven"] == 0
    kept = saved(history.store, ended=False)
    assert set(kept.found) == {row.key for row in history.live(7)}


def test_an_api_that_fails_at_the_log_alone_does_not_keep_rows_from_being_saved(
    history: History, sides: Sides
) -> None:
    def lie(asked: Asked, reply: Reply) -> Reply:
        return reply.with_body(b"nonsense") if "/manifest/" in asked.path else reply

    with sides.front.telling(lie):
        found = saved(history.store)
    assert found.found == history.best(0)
    assert found.report["fault"]["code"] == "api_failed"


def test_rows_that_a_member_without_key_has_declared_dead_are_saved(history: History) -> None:
    live = {row.key for row in history.live(7)}
    first = history.store.api("GET", f"/api/records/?schema={history.store.schema_id}").json()
    killed = [
        RowRef(bytes.fromhex(result["group"]), result["ordinal"]) for result in first["results"]
    ]
    outsider(history.store).break_log(history.store, killed=killed, rows=3)
    found = saved(history.store)
    assert found.found == dict.fromkeys(live, True)
    assert found.report["unopened"] == 3
    assert saved(history.store, ended=False).report["left_out"] == len(live)


def test_rows_of_every_key_version_are_saved_without_a_log(history: History) -> None:
    assert history.store.proxy("POST", "/api/keyring/rotate/").status == 201
    history.ingest({"name": "under the second key"})
    history.lose_log()
    found = saved(history.store)
    assert_authentic(found, history)
    assert found.found == history.best(0)


def test_what_was_staged_and_never_published_is_not_saved(history: History, sides: Sides) -> None:
    def invent(asked: Asked) -> Reply | None:
        return Reply(403, {}, b"") if asked.path.endswith("/publish/") else None

    sides.front.invent = invent
    try:
        body = jobs.as_json(history.store, [{"name": "never published"}])
        assert jobs.ended(history.store, jobs.started(history.store, body))["status"] == "failed"
    finally:
        sides.front.invent = lambda _: None
    history.lose_log()
    assert saved(history.store).found == history.best(0)


def test_rows_that_are_lost_or_do_not_open_are_counted(history: History) -> None:
    with database_of(history.store.service) as database:
        groups = database.of_schema("record_group", history.schema, "id")
        rows = database.run("SELECT * FROM record_row WHERE group_id = %s", groups[0]["id"])
        database.run(
            "DELETE FROM record_row WHERE group_id = %s AND ordinal = %s", groups[0]["id"], 0
        )
        sealed = bytes(rows[3]["sealed"])
        database.change("record_row", rows[3], sealed=sealed[:-1] + bytes([sealed[-1] ^ 1]))
        fourth = database.run("SELECT * FROM record_row WHERE group_id = %s", groups[2]["id"])[0]
        database.change("record_row", fourth, sealed=b"\x00")
    found = saved(history.store)
    assert_authentic(found, history)
    # Of the two that do not open one had been changed since; the first row is not handed out.
    assert (found.report["unopened"], found.report["missing"]) == (1, 2)
    assert len(found.records) == 3
    history.lose_log()
    found = saved(history.store)
    assert (found.report["unopened"], found.report["missing"]) == (2, 0)


def test_csv_is_as_exports_write_it(history: History) -> None:
    exported = history.store.proxy(
        "POST", "/api/records/export/", {"schema": history.store.schema, "format": "csv"}
    )
    assert salvage(history.store, format="csv").body == exported.body
    history.spoil_log(1)
    answer = salvage(history.store, format="csv", safe_cells=True)
    assert answer.headers["Content-Type"].startswith("text/csv")
    head, *rows = list(csv.reader(io.StringIO(answer.body.decode(), newline="")))
    assert head == ["name", "n", "x"]
    named = salvage(history.store, format="csv", with_schema_id=True).body.split(b"\r\n")[0]
    assert named.decode() == f"name,n,x,schema_id:{history.store.schema_id}"
    data = history.data()
    names = {data[key].get("name", "") for key in history.best(0)}
    assert {row[0] for row in rows} == (names - {"=1+1"}) | {"'=1+1"}
    assert "-2" in {row[1] for row in rows}


def test_strangers_and_members_without_keys_save_nothing(history: History) -> None:
    stranger = Store(
        history.store.service, history.store.service.new_account(), history.store.schema
    )
    assert salvage(stranger).status == 404
    member = replace(
        history.store,
        account=outsider(history.store).account,
        device=credentials.generate_device_secret(),
    )
    answer = salvage(member)
    assert (answer.status, answer.json()["code"]) == (422, "key_missing")
    # Nor with a keyring of their own.
    assert member.proxy("POST", "/api/keyring/backup/", {}).status == 200
    report = saved(member).report
    assert report["fault"]["code"] == "key_missing"
    assert (report["records"], report["without_key"]) == (0, len(history.rows))


@pytest.mark.parametrize(
    "members",
    [
        {"format": "xml"},
        {"ended": 1},
        {"safe_cells": True},
        {"with_schema_id": True},
        {"where": None},
    ],
)
def test_what_cannot_be_asked_is_refused(history: History, members: dict[str, Any]) -> None:
    answer = salvage(history.store, **members)
    assert (answer.status, answer.json()["code"]) == (400, "invalid_query")


def test_many_rows_come_in_pages_of_a_size_that_fits(
    store: Store, sides: Sides, tmp_path: Path
) -> None:
    store.ingest([{"name": f"{n} " + "x" * 2000, "n": n} for n in range(300)])
    with beside(store, sides.front.url, sides.folder, tmp_path / "x", NARROW) as here:
        sides.front.forget()
        assert [record["data"]["n"] for record in saved(here).records] == list(range(300))
    sizes = [asked.path.rpartition("=")[2] for asked in sides.front.asked if "dead" in asked.path]
    assert sizes[:3] == ["100", "50", "25"]
    assert set(sizes[3:]) == {"20"}


# --- what an API may make up --------------------------------------------------------------------

Rows = list[dict[str, Any]]


def _listing(change: Callable[[dict[str, Any]], None]) -> Lie:
    """Change what the API says that it has."""

    def lie(asked: Asked, reply: Reply) -> Reply:
        if "dead=true" not in asked.path or reply.status >= 400:
            return reply
        page = json.loads(reply.body)
        change(page)
        return reply.with_body(json.dumps(page).encode())

    return lie


def _each(**members: Callable[[Any], Any]) -> Lie:
    def change(page: dict[str, Any]) -> None:
        for row in page["results"]:
            row |= {name: made(row[name]) for name, made in members.items()}

    return _listing(change)


def _rows(change: Callable[[Rows], Rows]) -> Lie:
    def edit(page: dict[str, Any]) -> None:
        page["results"] = change(page["results"])

    return _listing(edit)


def _exchanged(rows: Rows, *names: str) -> Rows:
    """Each row with these members of the next one."""
    moved = rows[1:] + rows[:1]
    return [
        one | {name: other[name] for name in names} for one, other in zip(rows, moved, strict=True)
    ]


def _without_a_field(rows: Rows) -> Rows:
    return [row | {"fields": dict(list(row["fields"].items())[1:])} for row in rows]


def _renamed(rows: Rows) -> Rows:
    """The ciphertext of one field under the name of another."""
    found = []
    for row in rows:
        names, values = list(row["fields"]), list(row["fields"].values())
        found.append(row | {"fields": dict(zip(names, values[1:] + values[:1], strict=True))})
    return found


def _without_dead(page: dict[str, Any]) -> None:
    for row in page["results"]:
        del row["dead"]


LIES: dict[str, Lie] = {
    "other ids": _rows(lambda rows: _exchanged(rows, "id")),
    "other versions": _each(version=lambda version: version + 1),
    "other places": _rows(lambda rows: _exchanged(rows, "ordinal")),
    "other groups": _rows(lambda rows: _exchanged(rows, "group")),
    "others' fields": _rows(lambda rows: _exchanged(rows, "fields")),
    "other names of fields": _rows(_renamed),
    "other keys": _each(key_id=lambda _: "00" * 8),
    "other key versions": _each(key_version=lambda version: version + 1),
    "no key": _each(key_id=lambda _: "zz"),
    "no group": _each(group=lambda _: "zz"),
    "no ids": _each(id=lambda _: "!"),
    "ordinals beyond any group": _each(ordinal=lambda _: 2**32 - 1),
    "rows twice": _rows(lambda rows: rows[: len(rows) // 2] * 2),
    "rows backwards": _rows(lambda rows: rows[::-1]),
    "all dead": _each(dead=lambda _: True),
    "none dead": _each(dead=lambda _: False),
    "no rows": _rows(lambda _: []),
    "one field less": _rows(_without_a_field),
    "a field more": _each(fields=lambda fields: fields | {"more": next(iter(fields.values()))}),
    "no fields": _each(fields=lambda _: {}),
    "more rows than were asked for": _rows(lambda rows: rows * 500),
    "a count without end": _listing(lambda page: page.update(count=2**62)),
    "a count that is none": _listing(lambda page: page.update(count=-1)),
    "a count of nothing": _listing(lambda page: page.update(count=0)),
    "no JSON": lambda asked, reply: reply.with_body(b"[") if "dead" in asked.path else reply,
    "another listing": _listing(_without_dead),
}


def test_whatever_an_api_says_that_it_has_what_is_saved_was_stored(
    history: History, sides: Sides
) -> None:
    for sound in (7, 3, 0):
        if sound < 7:
            history.spoil_log(sound + 1)
        for name, lie in LIES.items():
            with sides.front.telling(lie):
                answer = salvage(history.store)
            if answer.status == 200:
                assert_saved_what_was_stored(answered(answer), history, sound, name)
            else:
                assert answer.json()["code"] == "api_failed", name
        assert saved(history.store).found == history.best(sound)


def assert_saved_what_was_stored(found: Saved, history: History, sound: int, lie: str) -> None:
    if lie == "one field less":
        # Of rows that the log does not have nobody can tell; they are counted. The others stay.
        assert found.report["incomplete"] == found.report["records"]
        assert found.report["proven"] == 0
        return
    assert_authentic(found, history)
    assert found.report["records"] == len(found.records)
    proven = {key for key, is_proven in found.found.items() if is_proven}
    assert proven <= {row.key for row in history.live(sound)}, lie


def test_a_salvage_that_breaks_off_does_not_end_as_a_whole_one(
    store: Store, sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.ingest([{"n": n} for n in range(250)])
    asked_for: list[str] = []

    def lie(asked: Asked, reply: Reply) -> Reply:
        asked_for.extend([asked.path] if "dead=true" in asked.path else [])
        return Reply(500, {}, b"") if len(asked_for) > 1 else reply

    with sides.front.telling(lie), pytest.raises(Exception, match="IncompleteRead"):
        salvage(store)


def test_a_disk_without_room_for_the_list_of_ids_is_named(
    history: History, sides: Sides, tmp_path: Path
) -> None:
    history.spoil_log(1)
    with beside(history.store, sides.front.url, sides.folder, tmp_path / "x", FULL) as here:
        answer = salvage(here)
    assert (answer.status, answer.json()["code"]) == (507, "out_of_space")
    assert "temporary files" in answer.json()["detail"]


def test_two_schemas_of_one_definition_do_not_mix(history: History, sides: Sides) -> None:
    other = Store(
        history.store.service,
        history.store.account,
        new_schema(history.store.service, history.store.account, DEFINITION),
    )
    other.ingest([{"name": "another schema's"}])
    path = f"/api/records/?schema={other.schema_id}&dead=true"
    theirs = other.api("GET", path).json()["results"]
    history.spoil_log(1)
    with sides.front.telling(_rows(lambda rows: rows + theirs)):
        found = saved(history.store)
    assert found.found == history.best(0)
    assert found.report["without_key"] == 1
