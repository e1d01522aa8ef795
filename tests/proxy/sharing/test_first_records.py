"""The first owner who stores founds the organization, and notices no step."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from tests.proxy.sharing.alone import DEFINITION, Alone
from tests.proxy.sharing.people import new_person
from tests.support.front import Asked, Reply, nothing
from tests.support.jobs import as_json, completed, started
from tests.support.older import make_older
from tests.support.proxies import running_proxy
from tests.support.service import Account, Answer, Service, call
from tests.support.store import Store

WIDER = {"type": "object", "properties": {"n": {"type": "integer", "minimum": -9, "maximum": 9999}}}
FAILURE = Reply(503, {}, b"")
#: Seconds after which something hangs.
PATIENCE = 60.0


FOUNDED = ["FoundingEntry", "DatasetName", "list"]


def numbers(store: Store) -> list[int]:
    return sorted(one["data"]["n"] for one in store.everything())


def refused(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json()["code"]


def test_one_alone_founds_by_storing_in_one_request_and_signs_what_is_stored(alone: Alone) -> None:
    assert numbers(alone.store) == []
    alone.store.ingest([{"n": 1}])
    alone.store.ingest([{"n": 2}])
    assert numbers(alone.store) == [1, 2]
    assert alone.kinds() == FOUNDED
    assert alone.commits() == [(3, True), (3, True)]
    assert len(alone.sent()) == 1


def test_many_first_records_at_once_found_one_organization(alone: Alone) -> None:
    stores = [alone.store, *(alone.store.another_schema(DEFINITION) for _ in range(3))]
    with ThreadPoolExecutor(len(stores)) as threads:
        answers = list(threads.map(lambda store: store.send([{"n": 7}]), stores))
    assert [answer.status for answer in answers] == [201] * len(stores)
    assert alone.kinds().count("FoundingEntry") == 1
    for store in stores:
        assert numbers(store) == [7]
        assert all(signed for _, signed in alone.commits(store.schema))


@pytest.mark.parametrize("reaches", [False, True])
def test_a_first_record_that_was_interrupted_founds_the_same_organization(
    alone: Alone, reaches: bool
) -> None:
    kept: list[bytes] = []

    def lose(asked: Asked) -> Reply | None:
        if asked.method == "POST" and "/roster/" in asked.path:
            kept.append(asked.body)
            return None if reaches else FAILURE
        return None

    def lose_answer(asked: Asked, reply: Reply) -> Reply | None:
        return FAILURE if asked.method == "POST" and "/roster/" in asked.path else reply

    alone.front.invent = lose
    with alone.front.telling(lose_answer if reaches else alone.front.lie):
        assert alone.store.send([{"n": 1}]).status in (502, 503)
    alone.front.invent = nothing
    alone.store.ingest([{"n": 2}])
    assert numbers(alone.store) == [2]
    assert alone.kinds() == FOUNDED
    first = next(wire.decode(kept[0]))
    every = alone.store.api("GET", f"{alone.person.account.organization}roster/").body
    assert wire.decode_all(every, form.RosterEntry)[0] == first


def test_a_proxy_that_looked_before_somebody_stored_finds_and_stores(
    alone: Alone, api: Service, tmp_path: Path
) -> None:
    """The other one has a copy of the keyring, and its own memory of an empty schema."""
    alone.store.proxy("POST", "/api/keyring/backup/", {"all": True})
    (phrase,) = alone.store.proxy("POST", "/api/keyring/backup/", {"all": True}).json()
    with running_proxy(api.base_url, tmp_path / "second") as proxy:
        service = replace(api, proxy_url=proxy.url, data_dir=tmp_path / "second")
        second = Store(service, alone.person.account, alone.store.schema)
        body = {"phrases": [phrase["phrase"]]}
        assert second.proxy("POST", "/api/keyring/restore/", body).status == 201
        other = second.another_schema(DEFINITION)
        assert numbers(second) == numbers(other) == []
        alone.store.ingest([{"n": 1}])
        assert numbers(second) == [1]
        other.ingest([{"n": 2}])
        assert numbers(other) == [2]
        assert all(signed for _, signed in alone.commits(other.schema))


def test_an_organization_with_records_from_before_goes_on_without_a_roster(alone: Alone) -> None:
    make_older(alone.store.service, alone.person.account)
    alone.store.ingest([{"n": 1}])
    alone.store.ingest([{"n": 2}])
    assert numbers(alone.store) == [1, 2]
    assert alone.commits() == [(0, False), (0, False)]
    assert alone.entries() == []

    async def found(sharing: Any) -> None:
        person = alone.person
        await sharing.founding.found(person.holder, person.organization, person.account.email)

    with pytest.raises(Exception, match="shows no roster"):
        replace(alone.person, folder=alone.person.folder / "flows").do(found)


def test_who_owns_nothing_stores_nothing_before_an_owner_did(
    alone: Alone, api: Service, tmp_path: Path
) -> None:
    grace = new_person(api, tmp_path)
    organization = alone.person.account.organization
    alone.person.call("POST", f"{organization}invitations/", {"email": grace.account.email})
    waiting = grace.call("GET", "/api/invitations/").json()["results"][0]["id"]
    assert grace.call("POST", f"/api/invitations/{waiting}/accept/").status == 201
    hers = replace(alone.store, account=grace.account)
    assert refused(hers.send([{"n": 1}])) == (403, "not_admitted")
    assert alone.entries() == []
    alone.store.ingest([{"n": 1}])
    assert refused(hers.send([{"n": 1}])) in {(403, "not_admitted"), (404, "schema_deleted")}
    assert numbers(alone.store) == [1]


def test_a_job_is_the_first_to_store(alone: Alone) -> None:
    completed(alone.store, started(alone.store, as_json(alone.store, [{"n": 1}, {"n": 2}])))
    assert numbers(alone.store) == [1, 2]
    assert alone.kinds() == FOUNDED
    second = alone.store.another_schema(DEFINITION)
    completed(second, started(second, as_json(second, [{"n": 3}])))
    assert numbers(second) == [3]
    assert alone.kinds() == [*FOUNDED, "DatasetName", "list"]


@dataclass(frozen=True)
class ByToken(Account):
    @property
    def auth(self) -> str:
        return f"Bearer {self.password}"


def test_an_api_token_stores_first_and_signs_nothing_that_gives_a_right(alone: Alone) -> None:
    numbers(alone.store)
    made = alone.store.api("POST", "/api/tokens/", {"name": "x", "scope": "write"})
    assert made.status == 201, made.body
    account = ByToken("", made.json()["token"], alone.person.account.organization)
    program = replace(alone.store, account=account)
    program.ingest([{"n": 1}])
    completed(program, started(program, as_json(program, [{"n": 2}])))
    assert numbers(alone.store) == [1, 2]
    assert alone.kinds() == FOUNDED
    path = f"{account.organization}roster/"
    person = alone.person
    body = form.EntryBody(person.organization, 4, bytes(32), 1, person.id, form.Remove(person.id))
    encoded, openings = form.encode_entry_body(body)
    frames = wire.encode([form.RosterEntry(encoded, bytes(64), openings)])
    answer = call(
        "POST",
        alone.store.service.base_url + path,
        frames,
        auth=account.auth,
        headers={"Content-Type": wire.MEDIA_TYPE},
    )
    assert refused(answer) == (403, "token_limited")


def test_names_of_what_was_signed_are_changed_through_the_proxy(alone: Alone) -> None:
    alone.store.ingest([{"n": 1}])
    schema = alone.store.schema
    dataset = alone.store.api("GET", schema).json()["dataset"]
    for path in (schema, dataset):
        wanted = {"name": "Another name", "slug": "another-slug"}
        assert refused(alone.store.api("PATCH", path, wanted)) == (409, "through_a_proxy")
        assert alone.store.proxy("PATCH", path, wanted).status == 200
        shown = alone.store.api("GET", path).json()
        assert {name: shown[name] for name in wanted} == wanted
    alone.store.ingest([{"n": 2}])
    assert numbers(alone.store) == [1, 2]
    placed = [entry for entry in alone.entries() if isinstance(entry, list)]
    assert (placed[-1][0].slug, placed[-1][0].name) == ("another-slug", "Another name")


def test_a_definition_changes_between_a_record_that_does_not_fit_and_the_first_that_does(
    alone: Alone,
) -> None:
    assert alone.store.send([{"n": -5}]).status == 400
    assert alone.kinds() == FOUNDED, "the record was looked at under the keys that it would have"
    bad = alone.store.proxy("PATCH", alone.store.schema, {"schema": {"type": "nonsense"}})
    assert bad.status == 400
    body = {"schema": WIDER}
    assert refused(alone.store.api("PATCH", alone.store.schema, body)) == (409, "through_a_proxy")
    assert alone.store.proxy("PATCH", alone.store.schema, body).status == 200
    alone.store.ingest([{"n": -5}])
    assert numbers(alone.store) == [-5]
    definition = ids.from_text(alone.store.schema_id)
    placed = [entry[0] for entry in alone.entries() if isinstance(entry, list)]
    assert {one.schema for one in placed} == {definition}
    assert placed[-1].slug and placed[0].definition != placed[-1].definition


def test_records_that_are_stored_just_before_a_change_is_signed_get_it_by_a_commit(
    alone: Alone,
) -> None:
    """The change was refused because the roster had to say it; since then it is the log."""
    assert alone.store.send([{"n": -5}]).status == 400
    comes, goes, stored = Event(), Event(), Event()
    since: list[str] = []

    def hold(asked: Asked) -> Reply | None:
        if asked.path == "/api/commits/":
            comes.set()
            assert goes.wait(PATIENCE)
        elif asked.path == alone.store.schema and (since or asked.method == "PATCH"):
            since.append(asked.method)
            # There was no log yet, and what the roster has to say is looked for.
            if since == ["PATCH", "GET", "GET"]:
                goes.set()
                assert stored.wait(PATIENCE)
        return None

    def note(asked: Asked, reply: Reply) -> Reply:
        if asked.path == "/api/commits/":
            assert reply.status == 201
            stored.set()
        return reply

    alone.front.invent = hold
    with alone.front.telling(note), ThreadPoolExecutor(1) as threads:
        ingest = threads.submit(alone.store.send, [{"n": 1}])
        assert comes.wait(PATIENCE)
        changed = alone.store.proxy("PATCH", alone.store.schema, {"schema": WIDER})
        assert ingest.result().status == 201
    alone.front.invent = nothing
    assert since[:4] == ["PATCH", "GET", "GET", "PATCH"]
    assert changed.status == 200, changed.body
    alone.store.ingest([{"n": -5}])
    assert numbers(alone.store) == [-5, 1]


def test_a_definition_that_an_api_swapped_after_it_was_signed_is_refused(alone: Alone) -> None:
    assert alone.store.send([{"n": -5}]).status == 400

    def swap(asked: Asked, reply: Reply) -> Reply | None:
        if asked.method == "GET" and asked.path == alone.store.schema:
            return reply.with_body(reply.body.replace(b"9999", b"9998"))
        return reply

    alone.store.proxy("POST", "/api/keyring/lock/")
    with running_proxy(alone.front.url, alone.person.folder.parent / "again") as proxy:
        # A proxy that has seen nothing: the roster alone says what was signed.
        (phrase,) = alone.store.proxy("POST", "/api/keyring/backup/", {"all": True}).json()
        service = replace(
            alone.store.service, proxy_url=proxy.url, data_dir=alone.person.folder.parent / "again"
        )
        fresh = replace(alone.store, service=service)
        body = {"phrases": [phrase["phrase"]]}
        assert fresh.proxy("POST", "/api/keyring/restore/", body).status == 201
        with alone.front.telling(swap):
            assert refused(fresh.send([{"n": 1}]))[1] in ("schema_unsigned", "stale_definition")
    assert alone.commits() == []
