"""Owners and writers who do things at once: each change is there once, or refused by name."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from encrypted_records.errors import Conflict, ErsError
from encrypted_records.ingest.seal import seal
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.model.records import CommitUpload, PlainRecord
from encrypted_records.proxy.write.committer import Committer
from tests.proxy.sharing.people import Team
from tests.proxy.sharing.shared import Shared, numbers
from tests.proxy.sharing.test_hostile_rosters import owner, rotate
from tests.support.front import Asked, Reply, running_front
from tests.support.second_proxy import second_proxy
from tests.support.service import Answer
from tests.support.store import Store


def test_two_owners_who_begin_epochs_at_once_begin_one_after_the_other(team: Team) -> None:
    grace = owner(team)

    def rotate(at: int) -> bool:
        by = (team.ada, grace)[at % 2]
        try:
            return by.do(
                lambda sharing: sharing.settling.rotate(by.holder, team.organization, team.dataset)
            )
        except ErsError as error:
            assert error.reason == "roster_moved"
            return False

    with ThreadPoolExecutor(2) as pool:
        began = sum(pool.map(rotate, range(4)))
    assert sorted(team.keys(team.ada)) == list(range(1, 2 + began))
    assert team.keys(grace) == team.keys(team.ada)
    assert not team.view(grace).roster.voids


def test_a_reading_that_an_own_change_overtakes_is_not_taken_for_an_older_roster(
    team: Team,
) -> None:
    """The change is remembered after the API was asked, and before its answer is believed."""
    ada = team.ada
    assert team.made
    with running_front(ada.service.base_url) as front:
        invited: list[str] = []

        def overtake(asked: Asked, reply: Reply) -> Reply:
            if "/roster/" in asked.path and not invited:
                invited.append("grace@example.org")
                ada.do(
                    lambda sharing: sharing.inviting.invite(
                        ada.holder, team.organization, invited[0], [team.share()]
                    )
                )
            return reply

        ada.url = front.url
        with front.telling(overtake):
            waiting = team.view(ada).roster.invitations()
    assert [one.content.name for one in waiting] == invited == ["grace@example.org"]


def test_readings_that_a_second_process_overtakes_again_and_again_are_taken(team: Team) -> None:
    """Two commands of one person at once: each time that one has read on to what is remembered,
    the other remembers more."""
    ada = team.ada
    assert team.made
    addresses = [f"{at}@example.org" for at in range(3)]
    with running_front(ada.service.base_url) as front:
        left = list(addresses)

        def overtake(asked: Asked, reply: Reply) -> Reply:
            if asked.method == "GET" and "/roster/" in asked.path and left:
                invite(ada.service.base_url, left.pop(0))
            return reply

        def invite(url: str, address: str) -> None:
            ada.url = url
            ada.do(
                lambda sharing: sharing.inviting.invite(
                    ada.holder, team.organization, address, [team.share()]
                )
            )

        with front.telling(overtake):
            ada.url = front.url
            waiting = team.view(ada).roster.invitations()
    assert [one.content.name for one in waiting] == addresses


def test_an_own_change_that_a_second_process_reads_on_from_is_done(team: Team) -> None:
    """Its entry is stored, and before that is known here the other has added one behind it."""
    ada = team.ada
    assert team.made
    with running_front(ada.service.base_url) as front:
        left = ["second@example.org"]

        def overtake(asked: Asked, reply: Reply) -> Reply:
            if asked.method == "POST" and "/roster/" in asked.path and left:
                ada.url = ada.service.base_url
                invite(left.pop())
            return reply

        def invite(address: str) -> None:
            ada.do(
                lambda sharing: sharing.inviting.invite(
                    ada.holder, team.organization, address, [team.share()]
                )
            )

        with front.telling(overtake):
            ada.url = front.url
            invite("first@example.org")
    waiting = [invitation.content.name for invitation in team.view(ada).roster.invitations()]
    assert waiting == ["first@example.org", "second@example.org"]


def test_a_commit_that_meets_a_removal_on_its_way_is_made_anew(shared: Shared) -> None:
    """It is sealed before somebody is put out, and arrives after it: the API takes it under the
    next key alone."""
    team = shared.team
    ada = shared.proxy(team.ada)
    ada.ingest([{"n": 1}])
    gone, stays = shared.person(form.READER), shared.person(form.WRITER)
    grace = shared.proxy(stays)
    assert numbers(grace) == [1]
    removals: list[Answer] = []

    def put_out(asked: Asked) -> Reply | None:
        if asked.path == "/api/commits/" and not removals:
            assert ada.api("GET", ada.schema).json()["key_version"] == 1
            removals.append(shared.put_out(ada, gone))
        return None

    shared.fronts[stays.id].invent = put_out
    grace.ingest([{"n": 2}])
    assert [removal.json()["rotated"] for removal in removals] == [["People"]]
    assert numbers(ada) == numbers(grace) == [1, 2]
    assert ada.api("GET", ada.schema).json()["key_version"] == 2


def test_a_commit_that_its_own_proxy_knows_to_be_late_is_not_sent(shared: Shared) -> None:
    """Something else of the proxy reads that an epoch has begun, after the commit was sealed."""
    team = shared.team
    ada = shared.proxy(team.ada)
    ada.ingest([{"n": 1}])
    grace = shared.person(form.WRITER)
    with running_front(grace.service.base_url) as front:
        service = replace(ada.service, base_url=front.url)
        store = Store(service, grace.account, shared.schema)

        async def act() -> None:
            async with second_proxy(store, grace.folder.parent) as proxy:
                services, caller, state = proxy.services, proxy.caller, proxy.state
                committer = Committer(services.api, services.schemas, services.fetcher.keep_built)

                def sealed() -> CommitUpload:
                    record = PlainRecord(ids.new_id(), 1, {"n": 2})
                    return seal(state.ledger, state.definition, [record]).upload

                async with state.lock:
                    await committer.prepare(caller, [state])
                    late = sealed()
                    await asyncio.to_thread(rotate, team)
                    await services.sharing.reader.read(caller, team.organization)
                    with pytest.raises(Conflict) as refused:
                        await committer.store(caller, [(state, late)])
                    assert refused.value.reason == "roster_moved"
                    assert [one for one in front.asked if one.path == "/api/commits/"] == []
                    await committer.prepare(caller, [state])
                    await committer.store(caller, [(state, sealed())])

        asyncio.run(act())
    assert numbers(ada) == [1, 2]
    assert ada.api("GET", ada.schema).json()["key_version"] == 2


def test_new_keys_come_however_many_logs_move_meanwhile(shared: Shared) -> None:
    """One log moves three times, and is ended later; then another one does."""
    ada = shared.proxy(shared.team.ada)
    ada.ingest([{"n": 1}])
    neighbour = replace(ada, schema=shared.new_schema("Children"))
    neighbour.ingest([{"n": 1}])
    grace = shared.proxy(shared.person(form.WRITER))
    other = replace(grace, schema=neighbour.schema)
    assert numbers(grace) == numbers(other) == [1]
    tries: list[int] = []

    def store_before(asked: Asked) -> None:
        if asked.method == "POST" and "/roster/" in asked.path:
            tries.append(len(tries))
            if len(tries) <= 4:
                (grace if len(tries) <= 3 else other).ingest([{"n": len(tries) + 1}])

    shared.fronts[shared.team.ada.id].invent = store_before
    rotated = ada.proxy("POST", f"{shared.team.made['url']}rotate/")
    # Five until the epoch begins, and one that ends the logs which have moved.
    assert (rotated.status, len(tries)) == (200, 6), rotated.body
    roster = shared.team.view(shared.team.ada).roster
    assert roster.open(shared.team.dataset) == []
    for store, version in ((ada, 4), (other, 2)):
        (end,) = roster.ends(ids.from_text(store.schema_id))
        assert (end.epoch, end.version) == (2, version)
    ada.ingest([{"n": 9}])
    assert numbers(grace) == [1, 2, 3, 4, 9]
    assert numbers(other) == [1, 5]
    assert ada.api("GET", ada.schema).json()["key_version"] == 2
