"""Unique fields: whoever comes first has a value, and everybody else is told who."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from encrypted_records.errors import LogBroken
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.ingest.seal import seal
from encrypted_records.model import wire
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import Commit
from tests.index.world import World
from tests.proxy.beside import first, front, other, proxy, running, store
from tests.support.eventually import eventually
from tests.support.front import Asked, Front, Reply
from tests.support.proxies import Proxy
from tests.support.service import Answer, Service
from tests.support.store import Store

__all__ = ["first", "front", "other", "proxy", "running", "store"]

DEFINITION: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "email": {"type": "string"},
        "site": {"type": "string"},
        "number": {"type": "integer", "minimum": 0, "maximum": 1000},
        "device": {"type": "string", "format": "uuid"},
    },
    "unique": [["email"], ["site", "number"], ["device"]],
}
LONG = "x" * 60


def until_waiting(proxy: Proxy, count: int) -> None:
    """Until so many ingests wait for a commit that is under way."""
    lines = proxy.services.direct_ingest._commits._gathering._lines
    eventually(lambda: sum(len(line.waiting) for line in lines.values()) >= count)


def refusals(answer: Answer) -> list[tuple[int, str]]:
    assert answer.status == 409, answer.body
    assert answer.json()["code"] == "not_unique"
    return [(error["row"], error["field"]) for error in answer.json()["errors"]]


def everything(store: Store) -> list[dict[str, Any]]:
    return [one["data"] for one in store.everything()]


@pytest.mark.parametrize(
    ("there", "sent"),
    [
        ({"email": "ada@x"}, {"email": "ada@x"}),
        ({"email": "e\u0301"}, {"email": "\u00e9"}),
        ({"email": LONG + "a"}, {"email": LONG + "a"}),
        ({"site": "a", "number": 1}, {"site": "a", "number": 1}),
        (
            {"device": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"},
            {"device": "6BA7B810-9DAD-11D1-80B4-00C04FD430C8"},
        ),
    ],
)
def test_an_equal_value_is_refused_and_its_holder_named(
    store: Store, there: dict[str, Any], sent: dict[str, Any]
) -> None:
    (holder,) = store.ingest([there])
    answer = store.send([{"email": "other"}, sent])
    ((row, field),) = refusals(answer)
    assert (row, field) == (2, max(sent))
    assert f"/api/records/{holder}/" in answer.json()["errors"][0]["detail"]
    assert everything(store) == [there]


def test_other_and_absent_values_collide_with_none(store: Store) -> None:
    rows: list[dict[str, Any]] = [
        {"email": LONG + "a", "site": "a", "number": 1},
        {"email": LONG + "b", "site": "a", "number": 2},
        {"email": "A", "site": "b", "number": 1},
        {"email": "a", "site": "a"},
        {"site": "a"},
        {"site": "a"},
        {},
    ]
    store.ingest(rows)
    store.ingest([{}, {"site": "a"}])
    assert len(everything(store)) == len(rows) + 2


def test_equal_values_in_one_request_are_named_by_their_row(store: Store) -> None:
    answer = store.send([{"email": "a"}, {"email": "b"}, {"email": "a"}])
    assert refusals(answer) == [(3, "email")]
    assert "row 1 of this request" in answer.json()["errors"][0]["detail"]
    assert everything(store) == []


def test_a_value_is_free_again_when_its_record_is_gone_or_changed(store: Store) -> None:
    one, two = store.ingest([{"email": "a"}, {"email": "b"}])
    assert store.proxy("DELETE", f"/api/records/{one}/").status == 204
    assert refusals(store.send([{"email": "b"}])) == [(1, "email")]
    changed = store.proxy("PATCH", f"/api/records/{two}/", {"data": {"email": "c"}})
    assert changed.status == 200, changed.body
    store.ingest([{"email": "a"}, {"email": "b"}])
    assert refusals(store.send([{"email": "c"}])) == [(1, "email")]


def test_a_change_keeps_its_own_value_and_takes_no_other(store: Store) -> None:
    one, two = store.ingest([{"email": "a", "number": 1}, {"email": "b"}])
    kept = store.proxy("PATCH", f"/api/records/{one}/", {"data": {"number": 2}})
    assert kept.status == 200, kept.body
    taken = store.proxy("PUT", f"/api/records/{two}/", {"data": {"email": "a"}})
    assert refusals(taken) == [(1, "email")]
    assert f"/api/records/{one}/" in taken.json()["errors"][0]["detail"]
    assert taken.json()["errors"][0]["pointer"] == "/data/email"


def test_two_proxies_that_race_for_a_value_have_one_winner(
    store: Store, other: Store, front: Front
) -> None:
    """The other proxy has looked, and its commit is on its way, when this one stores the value."""
    other.ingest([{"email": "begin"}])
    winner: list[str] = []

    def overtake(asked: Asked) -> Reply | None:
        if asked.path == "/api/commits/" and asked.method == "POST" and not winner:
            winner.extend(store.ingest([{"email": "a"}]))
        return None

    front.invent = overtake
    answer = other.send([{"email": "a"}])
    assert refusals(answer) == [(1, "email")]
    assert f"/api/records/{winner[0]}/" in answer.json()["errors"][0]["detail"]
    assert sorted(one["email"] for one in everything(store)) == ["a", "begin"]


def test_other_values_that_come_meanwhile_refuse_nobody(
    store: Store, other: Store, front: Front
) -> None:
    """More often than any other conflict would be tried again."""
    other.ingest([{"email": "begin"}])
    overtaken: list[str] = []

    def overtake(asked: Asked) -> Reply | None:
        if asked.path == "/api/commits/" and asked.method == "POST" and len(overtaken) < 8:
            overtaken.extend(store.ingest([{"email": f"other {len(overtaken)}"}]))
        return None

    front.invent = overtake
    answer = other.send([{"email": "mine"}])
    assert answer.status == 201, answer.body
    assert len(overtaken) == 8
    assert len(everything(store)) == 10


def test_of_two_equal_values_in_one_shared_commit_one_wins(
    store: Store, other: Store, front: Front, proxy: Proxy
) -> None:
    other.ingest([{"email": "begin"}])
    came, go = threading.Event(), threading.Event()
    commits = 0

    def hold(asked: Asked) -> Reply | None:
        nonlocal commits
        if asked.path == "/api/commits/" and asked.method == "POST":
            commits += 1
            if commits == 1:
                came.set()
                assert go.wait(60)
        return None

    front.invent = hold
    try:
        with ThreadPoolExecutor(4) as pool:
            leading = pool.submit(other.send, [{"email": "leading"}])
            assert came.wait(60)
            waiting = [pool.submit(other.send, [{"email": "a"}]) for _ in range(2)]
            waiting.append(pool.submit(other.send, [{"email": "b"}]))
            until_waiting(proxy, 3)
            go.set()
            answers = [one.result() for one in [leading, *waiting]]
    finally:
        go.set()
    assert commits == 2
    assert [answer.status for answer in answers[::3]] == [201, 201]
    won, lost = sorted(answers[1:3], key=lambda one: one.status)
    assert won.status == 201
    assert refusals(lost) == [(1, "email")]
    assert won.json()[0]["url"] in lost.json()["errors"][0]["detail"]
    assert len(everything(store)) == 4


def test_unique_fields_may_be_dropped(store: Store) -> None:
    store.ingest([{"email": "a"}])
    fewer = DEFINITION | {"unique": [["site", "number"]]}
    assert store.proxy("PATCH", store.schema, {"schema": fewer}).status == 200
    store.ingest([{"email": "a"}])
    assert len(everything(store)) == 2


def test_a_log_that_slips_a_record_in_between_is_refused(service: Service) -> None:
    """An API that does not refuse such a commit cannot have it read."""
    assert service
    text = '{"type":"object","properties":{"a":{"type":"string"}},"unique":[["a"]]}'
    world = World(text)
    world.ingest([{"a": "begin"}])
    late = Ledger(world.keys, new_id())
    late.extend(world.delta(world.log, 1))
    slipped = seal(late, world.definition, world.plain([{"a": "x"}])).upload
    world.kill([(0, 0)])  # a commit that adds nothing is nobody's affair
    world.ingest([{"a": "x"}])
    with pytest.raises(LogBroken, match="added before a commit"):
        world.apply(slipped)


def test_a_log_with_a_commit_that_looked_for_nothing_is_refused(service: Service) -> None:
    assert service
    text = '{"type":"object","properties":{"a":{"type":"string"}},"unique":[["a"]]}'
    world = World(text)
    careless = replace(world.definition, unique=())
    drafted = seal(world.ledger, careless, world.plain([{"a": "x"}])).upload
    body = msgspec.structs.replace(
        wire.decode_commit_body(drafted.commit),
        definition=world.definition.digest,
        definition_text=world.definition.canonical,
        groups=[
            msgspec.structs.replace(group, definition=world.definition.digest)
            for group in wire.decode_commit_body(drafted.commit).groups
        ],
        segments=[
            msgspec.structs.replace(segment, definition=world.definition.digest)
            for segment in wire.decode_commit_body(drafted.commit).segments
        ],
    )
    encoded = wire.encode_commit_body(body)
    commit = Commit(encoded, world.key.log.compute(encoded), b"")
    with pytest.raises(LogBroken, match="checked for equal ones"):
        world.apply(replace(drafted, commit=commit))
