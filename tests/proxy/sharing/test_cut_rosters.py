"""Names in a roster that the API does not show, or shows beside the wrong entry.

An API token that is limited to a dataset is shown the names that concern it. Whatever an API makes
of that, it changes no check: nobody comes in, goes out, or gets a right by a name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from encrypted_records.index.roster import belief
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import credentials, ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.roster import RosterEntry
from encrypted_records.model.signatures import Withheld
from encrypted_records.proxy.api.integrity import _shown_standing as shown_standing
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.founding import WantedNames
from encrypted_records.proxy.sharing.reading import RosterComparison, View
from encrypted_records.proxy.sharing.settling import Sharing
from encrypted_records.proxy.sharing.shown_names import ShownAs, ShownName
from tests.proxy.sharing.people import Person, Team
from tests.proxy.sharing.test_hostile_rosters import rotate
from tests.proxy.sharing.test_lies import changes, entries_of, lying
from tests.support.front import Asked, Reply

Entries = list[RosterEntry]
Shows = Callable[[Entries], Entries]


def limited(person: Person, dataset: Any) -> Holder:
    """The person, by a token of one dataset."""
    wanted = {"name": "reads", "scope": "write", "password": person.account.password}
    made = person.call("POST", "/api/tokens/", wanted | {"datasets": [dataset["url"]]})
    assert made.status == 201, made.body
    text = made.json()["token"]
    return replace(person.holder, auth=f"Bearer {text}", token=credentials.parse_api_token(text))


def read(person: Person, team: Team, *holders: Holder) -> list[Roster]:
    """The rosters that a proxy reads for them, one after the other."""

    async def act(sharing: Sharing) -> list[Roster]:
        views: list[View | None] = [
            await sharing.reader.read(holder, team.organization) for holder in holders
        ]
        assert None not in views
        return [view.roster for view in views if view is not None]

    return person.do(act)


def showing(shows: Shows) -> Callable[[Asked, Reply], Reply]:
    def lie(asked: Asked, reply: Reply) -> Reply:
        if asked.method != "GET" or "/roster/" not in asked.path:
            return reply
        return reply.with_body(wire.encode(shows(wire.decode_all(reply.body, RosterEntry))))

    return lie


def without_names(entries: Entries) -> Entries:
    return [msgspec.structs.replace(entry, openings=[]) for entry in entries]


def without_one_name(entries: Entries) -> Entries:
    return [*entries[:-1], *without_names(entries[-1:])]


def with_names_swapped(entries: Entries) -> Entries:
    """Those of the first two entries that have any."""
    one, other, *_ = [at for at, entry in enumerate(entries) if entry.openings]
    shown = list(entries)
    shown[one] = msgspec.structs.replace(entries[one], openings=entries[other].openings)
    shown[other] = msgspec.structs.replace(entries[other], openings=entries[one].openings)
    return shown


def with_a_name_of_another(entries: Entries) -> Entries:
    """Beside the right one."""
    both = [*entries[-1].openings, *entries[0].openings]
    return [*entries[:-1], msgspec.structs.replace(entries[-1], openings=both)]


def with_a_name_altered(entries: Entries) -> Entries:
    [opening] = entries[0].openings
    altered = opening[:-1] + bytes([opening[-1] ^ 1])
    return [msgspec.structs.replace(entries[0], openings=[altered]), *entries[1:]]


@pytest.mark.parametrize(
    ("shows", "code"),
    [
        (without_names, "roster_withheld"),
        (without_one_name, "roster_withheld"),
        (with_names_swapped, "roster_broken"),
        (with_a_name_of_another, "roster_broken"),
        (with_a_name_altered, "roster_broken"),
    ],
)
def test_who_has_logged_in_takes_no_roster_with_other_names_than_were_signed(
    team: Team, shows: Shows, code: str
) -> None:
    team.join()
    with lying(team.ada, showing(shows)) as front:
        assert team.refusal(team.settle) == code
        assert team.refusal(lambda: rotate(team)) == code
        assert team.refusal(lambda: team.keys(team.ada)) == code
        assert changes(front) == []
    assert set(team.keys(team.ada)) == {1}


@pytest.mark.parametrize("shows", [with_names_swapped, with_a_name_of_another, with_a_name_altered])
def test_a_token_takes_no_roster_with_other_names_than_were_signed(
    team: Team, shows: Shows
) -> None:
    token = limited(team.ada, team.made)
    with lying(team.ada, showing(shows)):
        assert team.refusal(lambda: read(team.ada, team, token)) == "roster_broken"


def test_a_token_of_one_dataset_judges_by_the_same_roster_with_fewer_names(team: Team) -> None:
    apart = team.ada.new_dataset("Apart")
    team.begin(apart)
    grace = team.join(team.share(form.WRITER))
    eve = team.join(form.Share(ids.from_text(apart["id"]), form.WRITER, []))
    token = limited(team.ada, team.made)
    whole, cut = read(team.ada, team, team.ada.holder, token)
    # From what its user was shown the token goes on; alone, it is shown less.
    [alone] = read(team.ada, team, token)
    assert whole.head == cut.head == alone.head and not whole.withheld and alone.withheld
    named = {member.member: member.name for member in alone.members()}
    assert named[grace.id] == grace.account.email
    assert isinstance(named[eve.id], Withheld)
    called = {dataset.dataset: dataset.name for dataset in alone.datasets()}
    assert called[team.dataset] == "People"
    assert isinstance(called[ids.from_text(apart["id"])], Withheld)
    # Nor does a reading with fewer names stand in the way of one with all.
    assert not read(team.ada, team, token, team.ada.holder)[1].withheld

    team.ada.do(
        lambda sharing: sharing.members.remove(team.ada.holder, team.organization, grace.id)
    )
    team.ada.do(lambda sharing: sharing.members.remove(team.ada.holder, team.organization, eve.id))
    [after] = read(team.ada, team, token)
    assert [member.member for member in after.members()] == [team.ada.id]
    for gone in (grace, eve):
        assert not after.writes(gone.id, team.dataset)
    # An API that hides the removal shows another chain.
    with lying(team.ada, showing(lambda entries: entries[:-1])):
        assert team.refusal(lambda: read(team.ada, team, token)) == "roster_older"


def test_names_that_a_proxy_was_shown_stay_kept_where_a_token_is_shown_less(team: Team) -> None:
    team.begin(team.ada.new_dataset("Apart"))
    token = limited(team.ada, team.made)
    read(team.ada, team, team.ada.holder)
    read(team.ada, team, token)

    async def kept(sharing: Sharing) -> Entries:
        return sharing.reader.rosters.kept_entries(team.ada.id, team.organization, 1)

    assert team.ada.do(kept) == entries_of(team)


def test_entries_that_a_token_alone_has_read_are_listed_without_names_when_they_are_lost(
    team: Team,
) -> None:
    grace = team.join()
    roster, entries = team.view(team.ada).roster, entries_of(team)
    lost = [form.read_entry(form.cut_entry(entry, set())) for entry in entries]
    told = shown_standing(RosterComparison(roster, "older", belief.remember(roster), 0, lost)).lost
    assert b"\\u0000" not in msgspec.json.encode(told)
    said = {(entry.what, entry.who) for entry in told}
    assert {("invited", None), ("stood", ids.to_text(grace.id))} <= said
    assert ("dataset", ids.to_text(team.dataset)) in said


def find(team: Team, holder: Holder, shown: ShownName, by: str) -> ShownAs | None:
    async def act(sharing: Sharing) -> ShownAs | None:
        [found] = await sharing.shown_names.find(
            holder, [shown], everywhere=True, by_names={by} if by else set()
        )
        return found

    return team.ada.do(act)


def test_nothing_is_found_by_a_name_that_a_token_is_not_shown(team: Team) -> None:
    token = limited(team.ada, team.made)
    shown = ShownName(team.dataset, team.organization, "people", "People", None)
    assert find(team, token, shown, "People") == ShownAs(shown, signed=True)
    with lying(team.ada, showing(without_names)):
        assert team.refusal(lambda: find(team, token, shown, "People")) == "roster_withheld"
        assert find(team, token, shown, "") == ShownAs(shown, signed=False)


def test_what_nobody_has_signed_may_have_a_name_that_a_token_is_not_shown(team: Team) -> None:
    """An API could show it by the name of another dataset."""
    apart = team.ada.new_dataset("Apart")
    shown = ShownName(ids.new_id(), team.organization, "apart", "Apart", None)
    token = limited(team.ada, team.made)
    assert find(team, token, shown, "Apart") == ShownAs(shown, signed=None)
    team.begin(apart)
    assert find(team, team.ada.holder, shown, "Apart") == ShownAs(shown, signed=False)
    assert find(team, token, shown, "Apart") == ShownAs(shown, signed=False)


def test_a_token_signs_no_name_that_it_is_not_shown(team: Team) -> None:
    assert team.made
    token = limited(team.ada, team.made)

    async def act(sharing: Sharing) -> None:
        named = sharing.naming.name_dataset
        await named(token, team.organization, team.dataset, WantedNames(name="Persons"))

    with lying(team.ada, showing(without_names)) as front:
        assert team.refusal(lambda: team.ada.do(act)) == "roster_withheld"
        assert changes(front) == []


def test_a_slug_that_another_dataset_gets_is_freed_before_for_all_to_see(team: Team) -> None:
    """A token of the first dataset is not shown what the second is called now."""
    assert team.made
    apart = team.ada.new_dataset("Apart")
    team.begin(apart)
    token = limited(team.ada, team.made)
    entries = entries_of(team)
    sent: list[RosterEntry] = []

    def taking(asked: Asked, reply: Reply) -> Reply:
        """An API that takes whatever is signed."""
        if asked.method == "POST" and asked.path.endswith("/roster/"):
            sent.extend(one for one in wire.decode(asked.body) if isinstance(one, RosterEntry))
            return replace(reply, status=201).with_body(b"")
        if asked.path.startswith(f"/api/organizations/{ids.to_text(team.organization)}/roster/"):
            since = int(asked.path.partition("since=")[2] or 0)
            cut = [form.cut_entry(entry, {team.dataset}) for entry in [*entries, *sent]]
            return reply.with_body(wire.encode((cut if token_asks else [*entries, *sent])[since:]))
        return reply

    async def rename(sharing: Sharing) -> None:
        named = sharing.naming.name_dataset
        wanted = WantedNames(slug="people", name="People")
        await named(team.ada.holder, team.organization, ids.from_text(apart["id"]), wanted)

    token_asks = False
    with lying(team.ada, taking):
        team.ada.do(rename)
        assert len(sent) == 2
        token_asks = True
        [roster] = read(team.ada, team, token)
    first = roster.dataset(team.dataset)
    assert first is not None and (first.slug, first.name) == ("", "")
