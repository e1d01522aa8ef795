"""A lying API, lost answers, and owners who do things at once: named errors, nothing half done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from encrypted_records.crypto.identity import Identity
from encrypted_records.errors import ErsError
from encrypted_records.model import wire
from encrypted_records.model.roster import Answer, RosterEntry
from encrypted_records.proxy.sharing.settling import AppliedChanges, Sharing
from tests.proxy.sharing.people import Person, Team
from tests.support.front import Asked, Front, Reply, running_front


@pytest.fixture
def front(team: Team) -> Iterator[Front]:
    """Between the owner's proxy and the API."""
    assert team.made
    with running_front(team.ada.service.base_url) as one:
        team.ada.url = one.url
        yield one


def with_keys_of_its_own(answer: Answer) -> Answer:
    keys = Identity(os.urandom(32), os.urandom(32), os.urandom(64)).keys
    return msgspec.structs.replace(answer, keys=keys)


def as_somebody_else(answer: Answer) -> Answer:
    return msgspec.structs.replace(answer, member=os.urandom(16))


def to_another_invitation(answer: Answer) -> Answer:
    return msgspec.structs.replace(answer, id=os.urandom(16))


@pytest.mark.parametrize("lie", [with_keys_of_its_own, as_somebody_else, to_another_invitation])
def test_an_answer_that_the_api_has_changed_lets_nobody_in(
    team: Team, front: Front, lie: Callable[[Answer], Answer]
) -> None:
    grace = team.somebody()
    team.accept(grace, team.invite(grace))

    def change(asked: Asked, reply: Reply) -> Reply:
        if not asked.path.endswith("/answers/"):
            return reply
        return reply.with_body(
            wire.encode([lie(one) for one in wire.decode_all(reply.body, Answer)])
        )

    with front.telling(change):
        settled = team.settle()
    assert settled.admitted == []
    assert [trouble.error.reason for trouble in settled.troubles] == ["invitation_words"]
    assert team.settle().admitted == [grace.account.email]


def test_answers_that_the_api_swaps_repeats_or_replays_let_in_nobody_but_the_invited(
    team: Team, front: Front
) -> None:
    seen: list[Answer] = []

    def showing(change: Callable[[list[Answer]], list[Answer]]) -> AppliedChanges:
        def lie(asked: Asked, reply: Reply) -> Reply:
            if not asked.path.endswith("/answers/"):
                return reply
            return reply.with_body(wire.encode(change(wire.decode_all(reply.body, Answer))))

        with front.telling(lie):
            return team.settle()

    def swap(answers: list[Answer]) -> list[Answer]:
        seen[:] = answers
        one, other = answers
        return [
            msgspec.structs.replace(one, id=other.id),
            msgspec.structs.replace(other, id=one.id),
        ]

    grace, alan = team.somebody(), team.somebody()
    for person in (grace, alan):
        team.accept(person, team.invite(person))
    invented = showing(lambda answers: [to_another_invitation(one) for one in answers * 50])
    assert (invented.admitted, len(invented.troubles)) == ([], 2)
    swapped = showing(swap)
    assert swapped.admitted == []
    assert [one.error.reason for one in swapped.troubles] == ["invitation_words"] * 2
    repeated = showing(lambda answers: [*answers, *answers])
    assert set(repeated.admitted) == {grace.account.email, alan.account.email}
    assert (len(repeated.admitted), repeated.troubles) == (2, [])

    async def remove(sharing: Sharing) -> None:
        await sharing.members.remove(team.ada.holder, team.organization, grace.id)

    team.ada.do(remove)
    again = team.invite(grace)
    (old,) = [one for one in seen if one.member == grace.id]
    replayed = showing(lambda _: [old, msgspec.structs.replace(old, id=again.id)])
    assert replayed.admitted == []
    assert [one.error.reason for one in replayed.troubles] == ["invitation_words"]


def test_an_invited_proxy_answers_no_roster_but_the_inviters(team: Team) -> None:
    """The API shows the organization as it was before the invitation, or another one."""
    other = Team(team.somebody(), team.folder)
    other.ada.organization_path = ""
    assert other.made
    grace = team.somebody()
    invited = team.invite(grace)
    entries = other.ada.call("GET", f"{other.ada.account.organization}roster/").body
    with running_front(grace.service.base_url) as front:
        grace.url = front.url

        def swap(asked: Asked, reply: Reply) -> Reply:
            return reply.with_body(entries) if "/roster/" in asked.path else reply

        with front.telling(swap):
            assert team.refusal(lambda: team.accept(grace, invited)) == "roster_broken"
        sent = [one for one in front.asked if one.method == "PUT"]
        assert sent == []
        team.accept(grace, invited)


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_answer_is_looked_for_in_the_roster(team: Team, front: Front, arrives: bool) -> None:
    def is_change(asked: Asked) -> bool:
        return asked.method == "POST" and asked.path.endswith("/roster/")

    def lose(asked: Asked, reply: Reply) -> Reply:
        return Reply(503, {}, b"") if is_change(asked) else reply

    def stop(asked: Asked) -> Reply | None:
        return Reply(503, {}, b"") if is_change(asked) and not arrives else None

    def rotate(sharing: Sharing) -> Any:
        return sharing.settling.rotate(team.ada.holder, team.organization, team.dataset)

    front.invent = stop
    with front.telling(lose):
        if arrives:
            assert team.ada.do(rotate)
        else:
            with pytest.raises(ErsError) as refused:
                team.ada.do(rotate)
            assert "is not known" in refused.value.message
    front.invent = lambda _asked: None
    assert set(team.keys(team.ada)) == ({1, 2} if arrives else {1})


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, b"x"), (403, b"owners_only"), (404, b"not_found"), (409, b"roster_moved"), (429, b"x")],
)
def test_a_share_that_the_api_stores_and_claims_to_have_refused_is_reported_as_made(
    team: Team, front: Front, status: int, code: bytes
) -> None:
    grace = team.somebody()

    def refuse(asked: Asked, reply: Reply) -> Reply:
        if asked.method != "POST" or not asked.path.endswith("/roster/"):
            return reply
        body = b'{"code": "%s", "detail": "x"}' % code
        return Reply(status, {"Content-Type": "application/problem+json"}, body)

    with front.telling(refuse):
        invited = team.invite(grace)
        team.accept(grace, invited)
        assert team.settle().admitted == [grace.account.email]
    assert team.view(team.ada).roster.member(grace.id) is not None


def test_two_owners_who_settle_at_once_begin_one_epoch(team: Team) -> None:
    grace, gone = owner(team), team.join()

    async def remove(sharing: Sharing) -> None:
        await sharing.members.remove(team.ada.holder, team.organization, gone.id)

    team.ada.do(remove)
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(team.settle, (team.ada, grace)))
    assert sum(len(one.rotated) for one in done) == 1
    assert [one.troubles for one in done] == [[], []]
    assert team.keys(grace) == team.keys(team.ada)
    assert set(team.keys(grace)) == {1, 2}


def is_grants(asked: Asked) -> bool:
    return asked.path.partition("?")[0].endswith("/grants/")


def test_a_grant_that_is_newer_than_the_roster_read_before_it_is_no_lie(team: Team) -> None:
    """Another owner ends the epoch after this one has read the roster, and before its grants."""
    grace, gone = owner(team), team.join()
    team.ada.do(lambda sharing: sharing.members.remove(team.ada.holder, team.organization, gone.id))
    others: list[AppliedChanges] = []
    with running_front(grace.service.base_url) as front:
        grace.url = front.url

        def settle_before(asked: Asked) -> None:
            if is_grants(asked) and not others:
                others.append(team.settle(team.ada))

        front.invent = settle_before
        settled = team.settle(grace)
        held = team.keys(grace)
    assert [(other.rotated, other.troubles) for other in others] == [(["People"], [])]
    assert (settled.rotated, settled.troubles) == ([], [])
    assert set(held) == {1, 2}


def test_a_grant_of_entries_that_the_api_keeps_back_is_refused(team: Team) -> None:
    grace = owner(team)
    number = team.view(grace).roster.number
    rotate(team)
    with running_front(grace.service.base_url) as front:
        grace.url = front.url
        with front.telling(up_to(number)):
            assert team.refusal(lambda: team.keys(grace)) == "grant_broken"
        # Once it was read on, and not for ever.
        assert len([one for one in front.asked if "/roster/" in one.path]) == 2


def up_to(number: int) -> Callable[[Asked, Reply], Reply]:
    """The answers of an API whose roster ends with an entry."""

    def keep_back(asked: Asked, reply: Reply) -> Reply:
        _path, _, since = asked.path.partition("/roster/?since=")
        if not since:
            return reply
        entries = wire.decode_all(reply.body, RosterEntry)
        return reply.with_body(wire.encode(entries[: max(0, number - int(since))]))

    return keep_back


def test_a_running_proxy_notices_that_the_api_has_an_earlier_roster(
    team: Team, front: Front
) -> None:
    ada, organization = team.ada, team.organization

    async def read_before_and_after(sharing: Sharing) -> None:
        view = await sharing.reader.read(ada.holder, organization)
        assert view is not None
        with front.telling(up_to(view.roster.number - 1)):
            await sharing.reader.read(ada.holder, organization)

    assert team.refusal(lambda: ada.do(read_before_and_after)) == "roster_older"


def rotate(team: Team, by: Person | None = None) -> None:
    who = by or team.ada
    who.do(lambda sharing: sharing.settling.rotate(who.holder, team.organization, team.dataset))


def test_of_two_owners_who_remove_each_other_one_stays(team: Team) -> None:
    grace = owner(team)

    def remove(pair: tuple[Person, Person]) -> str:
        who, whom = pair
        try:
            who.do(lambda sharing: sharing.members.remove(who.holder, team.organization, whom.id))
        except ErsError as error:
            return error.reason
        return ""

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(remove, ((team.ada, grace), (grace, team.ada))))
    assert sorted(said)[0] == ""
    assert sorted(said)[1] in {"not_found", "not_admitted", "owners_only"}
    left = team.ada if said[0] == "" else grace
    assert [one.member for one in team.view(left).roster.owners()] == [left.id]


def owner(team: Team) -> Person:
    """A second one."""
    person = team.join()

    async def promote(sharing: Sharing) -> None:
        await sharing.members.set_role(team.ada.holder, team.organization, person.id, owner=True)

    team.ada.do(promote)
    return person
