"""What a proxy has seen of an organization stays seen: across restarts, and for each user alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from encrypted_records.crypto.keys import Keyring
from encrypted_records.errors import (
    IdentityReplaced,
    NotAllowed,
    RosterOlder,
    RosterUnknown,
    Startup,
)
from encrypted_records.index.roster.belief import RosterForked
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model.roster import Remove
from encrypted_records.proxy.rosters import Rosters
from tests.index.rosters import ORGANIZATION, Team, reader, uid


@pytest.fixture
def team() -> Team:
    team = Team()
    team.dataset("people")
    team.join("grace", reader("people"))
    return team


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rosters.sqlite3"


@pytest.fixture
def seen(file: Path) -> Iterator[Rosters]:
    store = Rosters(file)
    yield store
    store.close()


def test_a_roster_is_remembered_across_restarts(team: Team, file: Path) -> None:
    first = Rosters(file)
    assert first.believe(team.roster, uid("grace"), team.person("grace").keyring).first_use
    first.close()
    cut = Roster(ORGANIZATION, team.entries[:-1])
    again = Rosters(file)
    with pytest.raises(RosterOlder):
        again.believe(cut, uid("grace"), team.person("grace").keyring)
    team.join("alan")
    assert not again.believe(team.roster, uid("grace"), team.person("grace").keyring).first_use
    head = again.get(uid("grace"), ORGANIZATION)
    assert head is not None and head.number == team.roster.number
    again.close()


def test_a_shorter_or_other_roster_is_never_remembered_over_a_longer_one(
    team: Team, seen: Rosters
) -> None:
    seen.remember(uid("ada"), team.roster)
    before = seen.get(uid("ada"), ORGANIZATION)
    other = Team("ada")
    for _ in range(team.roster.number + 1):
        other.put(other.ada, Remove(uid("nobody")))
    assert other.roster.number > team.roster.number
    for wrong in (Roster(ORGANIZATION, team.entries[:2]), other.roster):
        with pytest.raises(RosterOlder):
            seen.remember(uid("ada"), wrong)
    assert seen.get(uid("ada"), ORGANIZATION) == before


def test_beside_another_memory_only_a_beginning_of_what_that_has_is_remembered(
    team: Team, seen: Rosters, tmp_path: Path
) -> None:
    ada = uid("ada")
    seen.remember(ada, team.roster)
    seen.keep_entries(ada, ORGANIZATION, list(enumerate(team.entries, 1)))
    before = seen.get(ada, ORGANIZATION)
    beside = Rosters(tmp_path / "beside.sqlite3", reference=seen)
    beginning = Roster(ORGANIZATION, team.entries[:2])
    fork = Team.__new__(Team)
    fork.people, fork.entries = team.people, team.entries[:1]
    fork.roster = Roster(ORGANIZATION, fork.entries)
    fork.put(team.ada, Remove(uid("nobody")))

    assert beside.has_seen(ada, ORGANIZATION), "one that is shown without a roster is refused"
    for wrong in (fork.roster, Team("ada").roster):
        with pytest.raises(RosterForked):
            beside.remember(ada, wrong)
    beside.remember(ada, beginning)
    newest = beside.get(ada, ORGANIZATION)
    assert newest is not None and newest.number == 2
    beside.remember(ada, team.roster)
    assert seen.get(ada, ORGANIZATION) == before


def test_what_was_not_believed_is_not_remembered(team: Team, seen: Rosters) -> None:
    with pytest.raises(RosterUnknown):
        seen.believe(team.roster, uid("grace"), Keyring.generate())
    assert seen.get(uid("grace"), ORGANIZATION) is None


def test_each_user_has_seen_for_themselves(team: Team, seen: Rosters) -> None:
    seen.believe(team.roster, uid("ada"), team.ada.keyring)
    assert seen.get(uid("grace"), ORGANIZATION) is None
    assert seen.get(uid("ada"), uid("another organization")) is None


def test_a_removal_is_remembered_by_who_was_removed(team: Team, seen: Rosters) -> None:
    """Else an API could show the earlier roster to the same user again."""
    keyring = team.person("grace").keyring
    seen.believe(team.roster, uid("grace"), keyring)
    earlier = team.roster.copy()
    team.accept(team.ada, Remove(uid("grace")))
    with pytest.raises(NotAllowed):
        seen.believe(team.roster, uid("grace"), keyring)
    with pytest.raises(RosterOlder):
        seen.believe(earlier, uid("grace"), keyring)


def test_other_keys_of_a_user_in_a_known_organization_are_named(team: Team, seen: Rosters) -> None:
    seen.believe(team.roster, uid("grace"), team.person("grace").keyring)
    with pytest.raises(IdentityReplaced):
        seen.believe(team.roster, uid("grace"), Keyring.generate())


def test_a_damaged_file_is_named(file: Path) -> None:
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(Startup, match=r"rosters\.sqlite3"):
        Rosters(file)
