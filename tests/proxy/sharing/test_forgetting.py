"""Older keys of a dataset are forgotten: what they open is gone from the API, and nobody is granted
them any more."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from encrypted_records.model import roster as form
from encrypted_records.proxy.process import ROW_CHECKS
from tests.e2e.database import database_of
from tests.proxy.sharing.people import Person, Team
from tests.proxy.sharing.shared import Shared, numbers, refused
from tests.proxy.sharing.test_removed_members import held_by, id_of, opened_rows
from tests.proxy.test_erasing import in_files, index_bytes, sealed_fields
from tests.proxy.test_reseal import groups, resealed
from tests.support.eventually import eventually
from tests.support.front import Asked, Reply, nothing
from tests.support.proxies import settle_all
from tests.support.service import Answer
from tests.support.store import Store

LONG = "longer than what the index holds of a text, whatever it is: "


def rotate(store: Store, shared: Shared) -> None:
    answer = store.proxy("POST", f"{shared.team.made['url']}rotate/")
    assert answer.status == 200, answer.body


def ask(store: Store, shared: Shared, **body: Any) -> Answer:
    return store.proxy("POST", f"{shared.team.made['url']}forget/", body)


def forgotten(store: Store, shared: Shared) -> dict[str, Any]:
    """What the last answer says, once the bytes are gone."""

    def receipt() -> dict[str, Any] | None:
        answer = ask(store, shared)
        assert answer.status in (200, 202), answer.body
        return answer.json() if answer.status == 200 else None

    found = eventually(receipt, "the bytes are gone", pause=0.1)
    assert found is not None and found["forgotten"]
    return found


def grants_under(epoch: int, team: Team) -> list[bytes]:
    """The middle of each grant that the API keeps of an epoch."""
    with database_of(team.ada.service) as database:
        kept = database.run(
            "SELECT body FROM roster_grant WHERE epoch = %s AND dataset = %s", epoch, team.dataset
        )
    bodies = [bytes(one["body"]) for one in kept]
    return [body[len(body) // 2 :][:64] for body in bodies]


def in_files_of_api(shared: Shared, needles: list[bytes]) -> set[bytes]:
    """Those of these that some file of the API or its database contains."""
    return in_files(Store(shared.team.ada.service, shared.team.ada.account, shared.schema), needles)


def in_files_of_owner(shared: Shared, needles: list[bytes]) -> set[bytes]:
    """The same of the proxy that forgets, whose caches go with it."""
    ada = shared.team.ada
    own = replace(ada.service, data_dir=ada.folder, database_url=None)
    return in_files(Store(own, ada.account, shared.schema), needles)


def epochs(team: Team, person: Person) -> list[int]:
    """Those that a new proxy of somebody's is granted."""
    return sorted(team.keys(person))


def test_older_keys_open_nothing_that_the_api_stores_and_are_granted_to_nobody(
    shared: Shared,
) -> None:
    team = shared.team
    ada = shared.proxy(team.ada)
    named = ada.ingest([{"n": n, "s": f"{LONG}{n % 2}"} for n in range(6)])
    assert ada.proxy("DELETE", f"/api/records/{named[0]}/").status == 204
    writer, reader = shared.person(form.WRITER), shared.person(form.READER)
    grace, alan = shared.proxy(writer), shared.proxy(reader)
    assert numbers(ada) == numbers(grace) == numbers(alan) == [1, 2, 3, 4, 5]
    old = held_by(team.ada, team.organization, team.dataset)
    sealed = [piece for one in named[1:] for piece in sealed_fields(ada, one)]
    sealed += [*index_bytes(ada), *grants_under(1, team)]
    assert in_files_of_api(shared, sealed) == set(sealed)
    settle_all(ROW_CHECKS)
    assert in_files_of_owner(shared, sealed)
    rotate(ada, shared)
    resealed(ada)

    assert forgotten(ada, shared)["oldest"] == 2

    assert in_files_of_api(shared, sealed) == in_files_of_owner(shared, sealed) == set()

    for person in (team.ada, writer, reader):
        assert epochs(team, person) == [2]
    with database_of(team.ada.service) as database:
        assert opened_rows(database, old[1].schema(id_of(shared.schema))) == set()
        counted = database.run(
            "SELECT count(*) AS n FROM roster_grant WHERE epoch < 2 AND dataset = %s", team.dataset
        )
        assert counted[0]["n"] == 0
    more = grace.ingest([{"n": 7, "s": f"{LONG}1"}])
    for store in (ada, grace, alan):
        odd = store.found({"field": "s", "op": "eq", "value": f"{LONG}1"})
        assert odd == [named[1], named[3], named[5], *more]
    assert {epoch for _, epoch in groups(ada)} == {2}


def test_nothing_is_forgotten_while_the_api_hides_a_schema(shared: Shared) -> None:
    ada = shared.proxy(shared.team.ada)
    hidden = replace(ada, schema=shared.new_schema("Children"))
    for store in (ada, hidden):
        store.ingest([{"n": 1}, {"n": 2}])
    rotate(ada, shared)
    for store in (ada, hidden):
        resealed(store)
    front = shared.fronts[shared.team.ada.id]
    missing = json.dumps({"type": "x", "title": "x", "status": 404, "code": "not_found"}).encode()
    kind = {"Content-Type": "application/problem+json"}
    front.invent = lambda asked: (
        Reply(404, kind, missing) if hidden.schema_id in asked.path else None
    )
    looked = ask(ada, shared, dry_run=True)
    assert (looked.status, looked.json()["absent"]) == (200, ["Children"])
    assert refused(ask(ada, shared)) == (422, "schema_unsigned")
    assert "children" in ask(ada, shared).json()["detail"]
    assert shared.team.view(shared.team.ada).roster.first(shared.team.dataset) == 1
    front.invent = nothing
    assert numbers(hidden) == [1, 2]
    assert forgotten(ada, shared)["oldest"] == 2
    assert numbers(ada) == numbers(hidden) == [1, 2]


def test_a_new_member_reads_by_the_newer_keys_alone(shared: Shared) -> None:
    """The log begins under a key that nobody has any more; its signatures have to do."""
    team = shared.team
    ada = shared.proxy(team.ada)
    ada.ingest([{"n": n} for n in range(4)])
    rotate(ada, shared)
    ada.ingest([{"n": 4}])
    resealed(ada)
    forgotten(ada, shared)
    ada.ingest([{"n": 5}])
    late = shared.person(form.WRITER)
    assert epochs(team, late) == [2]
    grace = shared.proxy(late)
    assert numbers(grace) == [0, 1, 2, 3, 4, 5]
    grace.ingest([{"n": 6}])
    assert numbers(ada) == [0, 1, 2, 3, 4, 5, 6]
    checked = grace.proxy("POST", f"{shared.schema}verify/")
    assert checked.status == 200
    assert b'"altered"' not in checked.body or b'"altered":0' in checked.body.replace(b" ", b"")


def test_only_owners_may_and_only_when_nothing_needs_an_older_key(shared: Shared) -> None:
    team = shared.team
    ada = shared.proxy(team.ada)
    ada.ingest([{"n": 1}])
    grace = shared.proxy(shared.person(form.WRITER))
    alan = shared.proxy(shared.person(form.READER))
    for store in (grace, alan):
        for body in ({}, {"dry_run": True}):
            assert refused(ask(store, shared, **body)) == (403, "owners_only")
    assert refused(ask(ada, shared)) == (409, "nothing_to_forget")
    rotate(ada, shared)
    answer = ask(ada, shared)
    assert refused(answer) == (409, "epoch_in_use")
    assert shared.schema in answer.json()["errors"][0]["detail"]
    assert epochs(team, team.ada) == [1, 2]
    assert ask(ada, shared, dry_run=True).json() == {
        "epoch": 2,
        "oldest": 1,
        "forgotten": False,
        "schemas": [{"schema": shared.schema, "records": 1, "present": False}],
        "absent": [],
    }
    resealed(ada)
    assert ask(ada, shared, dry_run=True).json()["schemas"][0]["present"]
    forgotten(ada, shared)
    assert forgotten(ada, shared)["epoch"] == 2, "a second time is no mistake"


def test_who_reads_an_older_version_is_named_and_nothing_is_forgotten(shared: Shared) -> None:
    team = shared.team
    ada = shared.proxy(team.ada)
    ada.ingest([{"n": 1}])
    rotate(ada, shared)
    uid = "00000000-0000-4000-8000-000000000001"
    hold = {"id": uid, "version": 1, "reason": "export"}
    assert ada.api("PUT", f"{shared.schema}holds/", hold).status == 200
    resealed(ada)
    answer = ask(ada, shared)
    assert refused(answer) == (409, "epoch_in_use")
    detail = answer.json()["errors"][0]["detail"]
    assert team.ada.account.email in detail
    assert "export" in detail
    assert epochs(team, team.ada) == [1, 2]
    assert ada.api("DELETE", f"{shared.schema}holds/?id={uid}").status == 204
    forgotten(ada, shared)
    assert epochs(team, team.ada) == [2]


def test_keys_are_forgotten_once_more_and_given_out_without_the_older_ones(shared: Shared) -> None:
    team = shared.team
    ada = shared.proxy(team.ada)
    ada.ingest([{"n": 1}])
    for epoch in (2, 3):
        rotate(ada, shared)
        resealed(ada)
        assert forgotten(ada, shared)["oldest"] == epoch
        assert epochs(team, team.ada) == [epoch]
    rotate(ada, shared)
    assert epochs(team, team.ada) == [3, 4]
    late = shared.person(form.READER)
    assert epochs(team, late) == [3, 4]
    single = shared.person(form.READER, shared.schema)
    ada.ingest([{"n": 2}])
    for person in (late, single):
        assert numbers(shared.proxy(person)) == [1, 2]


def test_an_older_grant_that_an_api_shows_again_has_nobody_store_under_older_keys(
    shared: Shared,
) -> None:
    """To a proxy that runs, and to one that starts: it kept what it once handed out."""
    team = shared.team
    ada = shared.proxy(team.ada)
    ada.ingest([{"n": 1}])
    writer = shared.person(form.WRITER)
    grace = shared.proxy(writer)
    front = shared.fronts[writer.id]
    kept: dict[str, Reply] = {}

    def keep(asked: Asked, reply: Reply) -> Reply:
        if asked.method == "GET" and "/grants/" in asked.path:
            kept[asked.path] = reply
        return reply

    with front.telling(keep):
        grace.ingest([{"n": 2}])
    assert kept
    rotate(ada, shared)
    resealed(ada)
    forgotten(ada, shared)

    def again(asked: Asked, reply: Reply) -> Reply:
        return kept.get(asked.path, reply) if asked.method == "GET" else reply

    with front.telling(again):
        said = grace.send([{"n": 3}])
        assert said.status >= 400, said.body
        assert numbers(ada) == [1, 2]
    late = shared.proxy(writer, folder=shared.folder / "late")
    with shared.fronts[writer.id].telling(again):
        assert late.send([{"n": 4}]).status >= 400
    assert grace.send([{"n": 5}]).status == 201
    assert numbers(ada) == numbers(grace) == [1, 2, 5]
    assert {epoch for _, epoch in groups(ada)} == {2}
