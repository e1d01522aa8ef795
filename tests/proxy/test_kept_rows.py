"""Rows that a proxy keeps are those that live, and open; and nothing else is made of them."""

from __future__ import annotations

import base64
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.model import wire
from encrypted_records.model.records import RowRef, SealedRow, StoredRow
from encrypted_records.proxy.process import ROW_CHECKS
from encrypted_records.proxy.search.caches import RowCache
from encrypted_records.proxy.settings import Overrides
from tests.proxy.lies import each, flipped, of, on
from tests.support.front import Asked, Front, Lie, Reply, running_front
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Account, Answer, Service, call
from tests.support.store import new_schema

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 10**6},
    },
}
#: Small enough that merges happen.
TIERS = (Tier(64, 3), Tier(256, 2))


@dataclass
class Place:
    """A schema behind a front, and a proxy of its own that can be started again."""

    front: Front
    account: Account
    schema: str
    folder: Path
    stack: ExitStack = field(default_factory=ExitStack)
    proxy: Proxy = field(init=False)
    #: of each request for rows, while :meth:`note` is told of them
    came: list[bool] = field(default_factory=list)

    def start(self) -> None:
        self.proxy = self.stack.enter_context(
            running_proxy(self.front.url, self.folder, overrides=Overrides(tiers=TIERS))
        )

    def stop(self) -> None:
        """All that it had begun to keep is kept then."""
        self.stack.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        headers = self.proxy.door
        return call(method, self.proxy.url + path, body, auth=self.account.auth, headers=headers)

    def ingest(self, data: list[dict[str, Any]]) -> list[str]:
        records = [{"schema": self.schema, "data": one} for one in data]
        answer = self.call("POST", "/api/records/ingest/", records)
        assert answer.status == 201, answer.body
        return [one["id"] for one in answer.json()]

    def search(self, where: Any = None, **more: Any) -> Answer:
        body = {"schema": self.schema, "where": where, **more}
        return self.call("POST", "/api/records/search/", body)

    def found(self, where: Any = None, **more: Any) -> dict[str, dict[str, Any]]:
        """By id, what a search of the highest limit finds."""
        answer = self.search(where, **{"limit": 1000, **more})
        assert answer.status == 200, answer.body
        return {result["id"]: result["data"] for result in answer.json()["results"]}

    def requests(self) -> list[tuple[set[RowRef], bool]]:
        """The rows of each request since this was last asked, and whether they came; forget
        them. No two requests go at once."""
        asked = [one for one in self.front.asked if "/rows/" in one.path]
        came = self.came
        self.came = []
        self.front.forget()
        refs = [list(wire.decode_all(one.body, RowRef)) for one in asked]
        assert all(len(set(ref)) == len(ref) for ref in refs)
        return [(set(one), whole) for one, whole in zip(refs, came, strict=True)]

    def note(self, asked: Asked, reply: Reply) -> Reply:
        """Note whether rows came, and pass the answer on."""
        if "/rows/" in asked.path:
            self.came.append(any(isinstance(one, StoredRow) for one in wire.decode(reply.body)))
        return reply

    def rows(self) -> list[RowRef]:
        """The rows asked for since this was last asked, and forget them."""
        asked = [one for one in self.front.asked if "/rows/" in one.path]
        self.front.forget()
        return [ref for one in asked for ref in wire.decode_all(one.body, RowRef)]

    @property
    def file(self) -> Path:
        return self.folder / "proxy" / "pages.sqlite3"

    def blocks(self) -> dict[int, bytes]:
        """The blocks of rows on disk, by number."""
        schema = self.proxy.services.schemas.in_use()[0].id
        with closing(sqlite3.connect(self.file)) as database:
            statement = "SELECT number, data FROM page WHERE segment = ?"
            return dict(database.execute(statement, (schema,)).fetchall())

    def in_memory(self) -> list[bytes]:
        """The rows in memory."""
        services = self.proxy.services
        (state,) = services.schemas.in_use()
        blocks = RowCache(services.segments, services.stores.pages).in_memory(
            state.id, set(range(20))
        )
        assert blocks
        return [row for block in blocks.values() for row in block.rows.values()]

    def settled(self) -> None:
        """Have the proxy look at all that came."""
        self.proxy.settle(ROW_CHECKS)


@pytest.fixture
def place(service: Service, tmp_path: Path) -> Iterator[Place]:
    """200 rows, of which the proxy has asked for none."""
    account = service.new_account()
    with running_front(service.base_url) as front:
        made = Place(front, account, new_schema(service, account, DEFINITION), tmp_path)
        made.start()
        for start in (0, 100):
            made.ingest([{"name": f"name {n}", "n": n} for n in range(start, start + 100)])
        front.forget()
        yield made
        made.stop()


def at(n: int) -> dict[str, Any]:
    return {"field": "n", "op": "eq", "value": n}


def test_whatever_is_done_the_answers_are_right_and_no_row_is_asked_for_twice(place: Place) -> None:
    chance = random.Random(16)
    held = place.found()
    had = set(place.rows())
    assert len(had) == 200
    place.front.lie = place.note
    for step in range(60):
        some = chance.choice(list(held))
        match step % 6:
            case 0:
                data = [
                    {"name": f"more {step}", "n": 1000 + n} for n in range(chance.randrange(1, 40))
                ]
                held |= dict(zip(place.ingest(data), data, strict=True))
            case 1:
                n = chance.randrange(2000)
                assert (
                    place.call("PATCH", f"/api/records/{some}/", {"data": {"n": n}}).status == 200
                )
                held[some] = {**held[some], "n": n}
            case 2:
                assert place.call("DELETE", f"/api/records/{some}/").status == 204
                del held[some]
            case 3 if step % 12 == 3:
                assert place.call("POST", "/api/keyring/rotate/").status == 201
            case 3:
                assert place.call("POST", f"{place.schema}merge/").status == 200
            case 4 if step % 12 == 4:
                place.restart()
        low = chance.randrange(1500)
        high = low + chance.randrange(300)
        where = {"field": "n", "op": "between", "value": [low, high]}
        assert place.found(where) == {
            one: data for one, data in held.items() if low <= data["n"] <= high
        }
        requests = place.requests()
        for at, (rows, came) in enumerate(requests):
            assert had.isdisjoint(rows)
            # Behind a merge the API may say that the state is another one, and gives none: all of
            # them are asked for again, and nothing else is.
            assert came or rows <= requests[at + 1][0]
            had |= rows if came else set()
    assert place.found() == held


def test_a_proxy_that_starts_again_asks_for_nothing_that_it_had(place: Place) -> None:
    whole = place.found()
    place.restart()
    place.front.forget()
    assert place.found() == whole
    assert place.rows() == []


def test_nothing_is_kept_of_a_record_that_was_deleted_or_changed(place: Place) -> None:
    ids = list(place.found())
    place.settled()
    for number, path in enumerate((f"/api/records/{ids[3]}/", f"/api/records/{ids[70]}/")):
        sealed = place.call("GET", f"{path}?sealed=true").json()["fields"]
        parts = [base64.b64decode(one) for one in sealed.values()]
        assert all(any(part in data for data in place.blocks().values()) for part in parts)
        if number:
            assert place.call("PATCH", path, {"data": {"n": 7}}).status == 200
        else:
            assert place.call("DELETE", path).status == 204
        assert not any(part in data for data in place.blocks().values() for part in parts)
        assert not any(part in row for row in place.in_memory() for part in parts)
    # Their neighbours are here as before.
    place.front.forget()
    assert len(place.found({"field": "n", "op": "between", "value": [0, 99]})) == 99 + 1 - 1
    assert len(place.rows()) == 1  # what the changed one became


@pytest.mark.parametrize("away", [True, False])
def test_what_another_proxy_deleted_is_dropped_when_this_one_learns_of_it(
    place: Place, tmp_path_factory: pytest.TempPathFactory, away: bool
) -> None:
    path = f"/api/records/{list(place.found())[3]}/"
    sealed = place.call("GET", f"{path}?sealed=true").json()["fields"]
    parts = [base64.b64decode(one) for one in sealed.values()]
    place.settled()
    assert any(parts[0] in data for data in place.blocks().values())
    if away:
        place.stop()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "proxy").mkdir()
    shutil.copytree(place.folder / "proxy" / "keyrings", elsewhere / "proxy" / "keyrings")
    shutil.copy(place.folder / "proxy" / "machine.key", elsewhere / "proxy" / "machine.key")
    with running_proxy(place.front.url, elsewhere) as other:
        gone = call("DELETE", other.url + path, auth=place.account.auth)
        assert gone.status == 204
    if away:
        place.start()
    assert place.found(at(150))
    assert not any(part in data for data in place.blocks().values() for part in parts)


# --- a damaged disk ----------------------------------------------------------------------------


def _flip_rows(rows: list[Any]) -> list[Any]:
    return [[group, ordinal, flipped(row, len(row) - 3)] for group, ordinal, row in rows]


def _swap_rows(rows: list[Any]) -> list[Any]:
    moved = rows[1:] + rows[:1]
    return [[a[0], a[1], b[2]] for a, b in zip(rows, moved, strict=True)]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "other bytes": lambda data: msgspec.msgpack.encode(_flip_rows(msgspec.msgpack.decode(data))),
    "each other's rows": lambda data: msgspec.msgpack.encode(
        _swap_rows(msgspec.msgpack.decode(data))
    ),
    "no block": lambda data: b"no block at all",
    "half a block": lambda data: data[: len(data) // 2],
    "nothing": lambda data: b"",
    "another kind of thing": lambda data: msgspec.msgpack.encode([[1, "2", None]]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_row_that_was_damaged_on_disk_is_fetched_anew(place: Place, damage: str) -> None:
    whole = place.found()
    place.settled()
    schema = place.proxy.services.schemas.in_use()[0].id
    place.stop()
    with closing(sqlite3.connect(place.file)) as database, database:
        for rowid, data in database.execute(
            "SELECT rowid, data FROM page WHERE segment = ?", (schema,)
        ).fetchall():
            changed = DAMAGES[damage](data)
            database.execute("UPDATE page SET data = ? WHERE rowid = ?", (changed, rowid))
    place.start()
    place.front.forget()
    assert place.found() == whole
    assert len(place.rows()) == 200
    assert place.found() == whole
    assert place.rows() == []


def test_blocks_that_changed_places_on_disk_are_fetched_anew(place: Place) -> None:
    whole = place.found()
    place.settled()
    schema = place.proxy.services.schemas.in_use()[0].id
    place.stop()
    with closing(sqlite3.connect(place.file)) as database, database:
        move = "UPDATE page SET number = ? WHERE segment = ? AND number = ?"
        for new, old in ((10, 0), (0, 1), (1, 10)):
            database.execute(move, (new, schema, old))
    place.start()
    place.front.forget()
    assert place.found() == whole
    assert len(place.rows()) == 128


# --- an API that alters what is not needed -----------------------------------------------------


def _all_but(keep: int, change: Callable[[list[StoredRow]], list[StoredRow]]) -> Lie:
    """Change the rows that come beside the one with this ordinal in its group."""

    def edit(rows: list[StoredRow]) -> list[StoredRow]:
        kept = [row for row in rows if row.ordinal == keep]
        others = change([row for row in rows if row.ordinal != keep])
        by_place = {(row.group, row.ordinal): row for row in [*kept, *others]}
        return [
            by_place[row.group, row.ordinal] for row in rows if (row.group, row.ordinal) in by_place
        ]

    return on(("rows",), of(StoredRow, edit))


def _spoilt(row: StoredRow) -> StoredRow:
    fields = [flipped(one, len(one) - 1) for one in row.row.fields]
    return StoredRow(row.group, row.ordinal, SealedRow(row.row.record_id, row.row.version, fields))


def test_rows_altered_beside_those_needed_are_told_of_whether_they_are_needed_or_not(
    place: Place,
) -> None:
    with place.front.telling(_all_but(50, lambda rows: [_spoilt(row) for row in rows])):
        assert list(place.found(at(50)).values()) == [{"name": "name 50", "n": 50}]
    place.settled()
    # The same question needs none of them.
    refused = place.search(at(50))
    assert (refused.status, refused.json()["code"]) == (422, "row_altered")
    assert place.blocks() == {}
    for n in (50, 51, 50):
        assert list(place.found(at(n)).values()) == [{"name": f"name {n}", "n": n}]


def test_one_altered_row_is_not_told_of_by_a_question_that_needs_it_alone(place: Place) -> None:
    """So that an API cannot see by what fails which row was wanted."""

    def one_of(rows: list[StoredRow]) -> list[StoredRow]:
        return [_spoilt(row) if row.ordinal == 51 else row for row in rows]

    with place.front.telling(_all_but(50, one_of)):
        assert len(place.found(at(50))) == 1
    place.settled()
    assert place.search(at(199)).json()["code"] == "row_altered"
    place.front.forget()
    assert list(place.found(at(51)).values()) == [{"name": "name 51", "n": 51}]
    assert len(place.rows()) > 1


LEFT_OUT: dict[str, Callable[[list[StoredRow]], list[StoredRow]]] = {
    "one is missing": lambda rows: rows[1:],
    "all are missing": lambda rows: [],
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_an_answer_that_lacks_rows_beside_those_needed_is_refused(place: Place, name: str) -> None:
    with place.front.telling(_all_but(50, LEFT_OUT[name])):
        refused = place.search(at(50))
    assert (refused.status, refused.json()["code"]) == (502, "api_failed")
    place.settled()
    assert place.blocks() == {}
    assert len(place.found(at(50))) == 1


def test_rows_beside_those_needed_that_are_others_are_refused(place: Place) -> None:
    def renamed(row: StoredRow) -> StoredRow:
        return row if row.ordinal == 50 else StoredRow(row.group, row.ordinal + 1, row.row)

    with place.front.telling(on(("rows",), each(StoredRow, renamed))):
        refused = place.search(at(50))
    assert (refused.status, refused.json()["code"]) == (422, "log_broken")
    assert len(place.found(at(50))) == 1


def test_what_came_with_an_answer_that_failed_is_not_kept(place: Place) -> None:
    def lie(asked: Asked, reply: Reply) -> Reply | None:
        spoil = each(StoredRow, lambda row: _spoilt(row) if row.ordinal == 50 else row)
        return on(("rows",), spoil)(asked, reply)

    with place.front.telling(lie):
        refused = place.search(at(50))
    assert (refused.status, refused.json()["code"]) == (422, "does_not_open")
    place.settled()
    assert place.blocks() == {}
    place.front.forget()
    assert len(place.found(at(51))) == 1
    assert len(place.rows()) > 1
