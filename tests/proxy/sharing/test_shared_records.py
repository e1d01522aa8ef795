"""Several people store and find the same records, each with a proxy and a keyring of their own."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from typing import Any

import pytest

from encrypted_records.model import ids
from encrypted_records.model import roster as form
from tests.proxy.sharing.shared import DEFINITION, Shared, numbers, refused
from tests.support.jobs import as_json, completed, started
from tests.support.service import Account
from tests.support.store import Store

WIDER = {"type": "integer", "minimum": -10, "maximum": 99_999}


@dataclass(frozen=True)
class Program(Account):
    """A service, which has a string in place of a password."""

    @property
    def auth(self) -> str:
        return f"Bearer {self.password}"


@dataclass(frozen=True)
class Three:
    """An owner, a writer and a reader, each by their proxy, with a schema that has no record."""

    owner: Store
    writer: Store
    reader: Store


@pytest.fixture(scope="module")
def people(lasting: Shared) -> Three:
    writer, reader = lasting.person(form.WRITER), lasting.person(form.READER)
    return Three(*(lasting.proxy(person) for person in (lasting.team.ada, writer, reader)))


@pytest.fixture
def three(lasting: Shared, people: Three) -> Three:
    schema = lasting.new_schema()
    return Three(
        *(replace(one, schema=schema) for one in (people.owner, people.writer, people.reader))
    )


def test_what_one_stores_another_finds_and_changes(three: Three) -> None:
    ada, grace = three.owner, three.writer
    assert numbers(ada) == []
    (first, _) = ada.ingest([{"n": 1, "s": "one"}, {"n": 2}])
    assert numbers(grace) == [1, 2]
    assert grace.found({"field": "n", "op": "eq", "value": 1}) == [first]
    grace.ingest([{"n": 3}])
    assert grace.proxy("PATCH", f"/api/records/{first}/", {"data": {"n": 7}}).status == 200
    assert numbers(ada) == numbers(grace) == [2, 3, 7]
    assert ada.proxy("DELETE", f"/api/records/{first}/").status == 204
    assert numbers(grace) == [2, 3]


def test_a_definition_is_changed_by_a_signed_commit_and_others_follow(three: Three) -> None:
    ada, grace, reader = three.owner, three.writer, three.reader
    ada.ingest([{"n": 1}, {"n": 9000}])
    assert numbers(grace) == [1, 9000]
    wider = DEFINITION | {"properties": {**DEFINITION["properties"], "n": WIDER}}
    taken = ada.proxy("POST", f"{ada.schema}change/", {"schema": wider})
    assert (taken.status, taken.json()["takes"]) == (200, "commit"), taken.body
    grace.ingest([{"n": -5}, {"n": 50_000}])
    assert numbers(ada) == numbers(grace) == [-5, 1, 9000, 50_000]
    assert ada.found({"field": "n", "op": "gt", "value": 9000}) != []
    assert numbers(reader) == [-5, 1, 9000, 50_000]
    refusal = reader.proxy("POST", f"{ada.schema}change/", {"schema": DEFINITION})
    assert refused(refusal) == (409, "needs_reencryption")
    looser = wider | {"properties": {**wider["properties"], "more": {"type": "string"}}}
    assert refused(reader.proxy("POST", f"{ada.schema}change/", {"schema": looser})) == (
        403,
        "not_writer",
    )
    assert numbers(grace) == [-5, 1, 9000, 50_000]


def test_a_reader_finds_what_a_writer_finds(three: Three) -> None:
    ada, reader = three.owner, three.reader
    rows = [{"n": at * 37 % 100, "s": f"{'ab'[at % 2]}{at % 7}"} for at in range(60)]
    ada.ingest(rows, at_once=20)
    chance = random.Random(18)
    for _ in range(12):
        bound, text = chance.randrange(100), f"{chance.choice('ab')}{chance.randrange(7)}"
        asked: dict[str, Any] = chance.choice(
            [
                {"field": "n", "op": chance.choice(["lt", "gt", "eq"]), "value": bound},
                {"field": "s", "op": "eq", "value": text},
                {"not": {"field": "s", "op": "prefix", "value": text[0]}},
                {
                    "or": [
                        {"field": "n", "op": "lt", "value": bound},
                        {"field": "s", "op": "eq", "value": text},
                    ]
                },
            ]
        )
        for order in (["n"], ["-s", "n"]):
            found = [store.search(asked, limit=30, order_by=order) for store in (ada, reader)]
            assert found[0]["results"] == found[1]["results"]
            assert len(found[0]["results"]) == min(30, sum(_matches(asked, row) for row in rows))


def _matches(asked: dict[str, Any], row: dict[str, Any]) -> bool:
    if "or" in asked:
        return any(_matches(one, row) for one in asked["or"])
    if "not" in asked:
        return not _matches(asked["not"], row)
    have, value = row[asked["field"]], asked["value"]
    tests = {"lt": have < value, "gt": have > value, "eq": have == value}
    return str(have).startswith(value) if asked["op"] == "prefix" else tests[asked["op"]]


def test_a_reader_reads_and_stores_nothing(three: Three) -> None:
    three.owner.ingest([{"n": 1}])
    assert numbers(three.reader) == [1]
    assert refused(three.reader.send([{"n": 2}])) == (403, "not_writer")


def test_who_was_let_into_one_schema_reads_it_and_not_its_neighbour(shared: Shared) -> None:
    ada = shared.proxy(shared.team.ada)
    ada.ingest([{"n": 1}])
    neighbour = Store(ada.service, ada.account, shared.new_schema("Children"), ada.device)
    neighbour.ingest([{"n": 2}])
    one = shared.proxy(shared.person(form.WRITER, shared.schema))
    assert numbers(one) == [1]
    one.ingest([{"n": 5}])
    assert numbers(ada) == [1, 5]
    assert Store(one.service, one.account, neighbour.schema).ask().status == 404


@pytest.mark.parametrize("signing", ["sign", "store"])
def test_a_member_stores_for_what_an_owner_signs_and_for_nothing_else(
    three: Three, signing: str
) -> None:
    ada, writer = three.owner, three.writer
    assert numbers(writer) == []
    assert refused(writer.send([{"n": 1}])) == (422, "schema_unsigned")
    if signing == "sign":
        seen = ada.proxy("POST", f"{ada.schema}sign/", {"dry_run": True}).json()["shown"]
        assert ada.proxy("POST", f"{ada.schema}sign/", {"seen": seen}).json()["applied"]
    else:
        ada.ingest([{"n": 2}])
    writer.ingest([{"n": 1}])
    assert 1 in numbers(ada)


def test_after_a_removal_others_go_on_under_the_next_key(shared: Shared) -> None:
    ada = shared.proxy(shared.team.ada)
    ada.ingest([{"n": 1}])
    gone, stays = shared.person(form.WRITER), shared.person(form.WRITER)
    grace, alan = shared.proxy(gone), shared.proxy(stays)
    grace.ingest([{"n": 2}])
    assert numbers(alan) == [1, 2]
    team = shared.team
    team.ada.do(lambda sharing: sharing.members.remove(team.ada.holder, team.organization, gone.id))
    team.settle()
    assert refused(grace.send([{"n": 3}])) == (404, "schema_deleted")
    ada.ingest([{"n": 4}])
    alan.ingest([{"n": 5}])
    assert numbers(alan) == numbers(ada) == [1, 2, 4, 5]
    log = team.ada.call("GET", f"{shared.schema}").json()
    assert log["key_version"] == 2
    # So does a proxy that has seen nothing.
    assert numbers(shared.proxy(shared.person(form.READER))) == [1, 2, 4, 5]


def test_a_job_stores_signed_records(three: Three) -> None:
    ada, grace = three.owner, three.writer
    ada.ingest([{"n": 1}])
    rows = [{"n": n, "s": "x"} for n in range(10, 30)]
    completed(grace, started(grace, as_json(grace, rows)))
    assert numbers(ada) == [1, *range(10, 30)]


def test_a_proxy_stores_on_after_it_has_begun_an_epoch_itself(shared: Shared) -> None:
    ada = shared.proxy(shared.team.ada)
    ada.ingest([{"n": 1}])
    rotated = ada.proxy("POST", f"{shared.team.made['url']}rotate/")
    assert rotated.status == 200, rotated.body
    ada.ingest([{"n": 2}])
    assert numbers(ada) == [1, 2]


def service_of(shared: Shared, right: int) -> Program:
    team = shared.team
    made = team.ada.do(
        lambda sharing: sharing.services.make(
            team.ada.holder,
            team.organization,
            "nightly",
            [team.share(right)],
            int(time.time()) + 3600,
        )
    )
    return Program("nightly", made.key, team.ada.account.organization)


def test_a_service_stores_by_its_string_alone_and_the_api_never_sees_it(shared: Shared) -> None:
    ada = shared.proxy(shared.team.ada)
    ada.ingest([{"n": 1}])
    program = service_of(shared, form.WRITER)
    here = Store(ada.service, program, ada.schema)
    completed(here, started(here, as_json(here, [{"n": 2}, {"n": 3}])))
    here.ingest([{"n": 4}])
    assert numbers(here) == numbers(ada) == [1, 2, 3, 4]
    assert here.proxy("GET", ada.schema).json()["url"] == ada.schema
    folder = shared.team.ada.folder
    assert len(list((folder / "keyrings").glob("*.keyring"))) == 1
    secret = program.password[-32:].encode()
    front = shared.fronts[shared.team.ada.id]
    assert front.asked
    for asked in front.asked:
        assert secret not in repr((asked.path, asked.headers)).encode() + asked.body
    for path in ("/api/keyring/rotate/", "/api/devices/code/"):
        assert refused(here.proxy("POST", path, {})) == (403, "token_limited")


def test_a_service_that_reads_stores_nothing_and_one_that_was_removed_reads_nothing(
    shared: Shared,
) -> None:
    ada = shared.proxy(shared.team.ada)
    ada.ingest([{"n": 1}])
    program = service_of(shared, form.READER)
    here = Store(ada.service, program, ada.schema)
    assert numbers(here) == [1]
    assert refused(here.send([{"n": 2}])) == (403, "not_writer")
    team, service = shared.team, ids.from_text(program.password.split("_")[1])
    team.ada.do(lambda sharing: sharing.members.remove(team.ada.holder, team.organization, service))
    assert refused(here.ask()) == (401, "bad_token")


def test_a_service_string_at_the_api_is_refused_with_what_to_do(shared: Shared) -> None:
    program = service_of(shared, form.READER)
    at_api = Store(shared.team.ada.service, program, shared.schema)
    answer = at_api.api("GET", shared.schema)
    assert refused(answer) == (401, "service_key_exposed")
    assert "delete the service" in answer.json()["hint"]
    # Where a password belongs, a proxy sends nothing on.
    ada = shared.proxy(shared.team.ada)
    front = shared.fronts[shared.team.ada.id]
    before = len(front.asked)
    wrong = Store(ada.service, Account("nightly", program.password, ""), ada.schema)
    for path in (ada.schema, "/api/jobs/"):
        assert refused(wrong.proxy("GET", path)) == (401, "bad_token")
    assert len(front.asked) == before
