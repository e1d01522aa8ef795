"""The sums of rosters that an API keeps in memory never decide against what is stored.

Two APIs serve one database, so each has added up a roster that the other one goes on with; and the
database is changed behind their backs, as a backup that is restored changes it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.model.signatures import KeyParts, join_keys, split_keys
from tests.server.api import Api, running_api
from tests.server.rosters import Person, Ring, found, share, standing
from tests.support.postgres import NewDatabase

INVALID = (400, "invalid_entry")


@dataclass(frozen=True)
class Two:
    """APIs of one database."""

    first: Api
    second: Api


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, postgresql: NewDatabase) -> Iterator[Two]:
    url, folder = postgresql.with_tables(), tmp_path_factory.mktemp("two")
    environment = {"ERS_SECRET_KEY_FILE": str(folder / "secret.key")}
    paths = [folder / "first", folder / "second"]
    for path in paths:
        path.mkdir()
    with (
        running_api(paths[0], database_url=url, environment=environment) as first,
        running_api(paths[1], database_url=url, environment=environment) as second,
    ):
        yield Two(first, second)


@pytest.fixture
def ring(two: Two) -> Ring:
    return found(two.first.new_account())


@pytest.fixture
def dataset(ring: Ring) -> Any:
    made = ring.owner.account.new_dataset()
    ring.begin(made)
    return made


def at(api: Api, person: Person) -> Person:
    """Somebody who calls this API."""
    return Person(replace(person.account, api=api), person.identity, person.id)


def add(ring: Ring, api: Api, *items: Any) -> None:
    """Send what must be taken, to this API."""
    ring.add(*items, by=at(api, ring.owner))


def refused(ring: Ring, api: Api, content: Any) -> tuple[int, str]:
    return ring.refused(ring.sign(content), by=at(api, ring.owner))


def go_back(ring: Ring, api: Api, head: tuple[int, bytes]) -> None:
    """Have the database hold what it held when this was the roster's newest entry."""
    organization = f"'\\x{ring.organization.hex()}'"
    number, digest = head
    api.execute(
        f"DELETE FROM roster_entry WHERE organization_id = {organization} AND number > {number}"
    )
    api.execute(
        f"UPDATE organizations_organization SET roster_number = {number},"
        f" roster_digest = '\\x{digest.hex()}' WHERE id = {organization}"
    )
    ring.number, ring.digest = head
    ring.__dict__.pop("verified", None)
    ring.verify(ring.entries())


def test_an_api_goes_on_with_entries_that_another_one_has_stored(
    two: Two, ring: Ring, dataset: Any
) -> None:
    for epoch in range(2, 8):
        api = (two.first, two.second)[epoch % 2]
        assert refused(ring, api, ring.dataset(dataset, epoch + 1)) == INVALID
        entry = ring.follow(ring.sign(ring.dataset(dataset, epoch)))
        add(ring, api, entry, ring.grant(dataset, ring.owner, epoch))


def test_an_owner_who_was_removed_at_one_api_signs_nothing_at_the_other(
    two: Two, ring: Ring, dataset: Any
) -> None:
    grace = Person(two.first.new_account())
    ring.join(grace)
    add(
        ring,
        two.second,
        ring.follow(ring.sign(standing(grace, role=form.OWNER))),
        ring.grant(dataset, grace),
    )
    signed = ring.dataset(dataset, 1, commitment=bytes(32))
    by_grace = ring.sign(signed, by=grace)
    add(ring, two.first, ring.follow(ring.sign(form.Remove(grace.uid))))
    # As it was signed before, and again behind the removal; by an owner's hand, who may.
    assert ring.refused(by_grace, by=at(two.second, ring.owner)) == (409, "roster_moved")
    for api in (two.second, two.first):
        late = ring.sign(form.Remove(ring.owner.uid), by=grace)
        assert ring.refused(late, by=at(api, ring.owner)) == INVALID


def test_entries_of_a_request_that_was_refused_count_for_nobody(
    two: Two, ring: Ring, dataset: Any
) -> None:
    grace = Person(two.first.new_account())
    ring.join(grace)
    head = ring.number, ring.digest
    entries = ring.chain(
        standing(grace, role=form.OWNER), form.Remove(grace.uid), form.Remove(ids.new_id())
    )
    assert ring.refused(*entries) == INVALID
    ring.number, ring.digest = head
    assert ring.refuses(form.Remove(ring.owner.uid)) == (409, "last_owner")
    # Nor those of one that lacks a grant, though each of its entries counts.
    entries = ring.chain(standing(grace, role=form.OWNER))
    assert ring.refused(*entries) == (400, "grants_incomplete")
    ring.number, ring.digest = head
    assert ring.refuses(form.Remove(ring.owner.uid)) == (409, "last_owner")
    add(
        ring,
        two.second,
        ring.follow(ring.sign(standing(grace, [share(dataset)]))),
        *[ring.grant(dataset, grace)],
    )


def test_a_roster_that_was_restored_goes_on_from_what_is_stored(
    two: Two, ring: Ring, dataset: Any
) -> None:
    head = ring.number, ring.digest
    ring.begin(dataset, epoch=2)
    ring.begin(dataset, epoch=3)
    go_back(ring, two.first, head)
    # Both have added up more, the second what the first one has stored.
    for api in (two.first, two.second):
        assert refused(ring, api, ring.dataset(dataset, 4)) == INVALID
    entry = ring.follow(ring.sign(ring.dataset(dataset, 2)))
    add(ring, two.second, entry, ring.grant(dataset, ring.owner, 2))
    # As long as the one that was lost, and another.
    entry = ring.follow(ring.sign(ring.dataset(dataset, 3)))
    add(ring, two.first, entry, ring.grant(dataset, ring.owner, 3))


def test_a_roster_that_lacks_an_entry_takes_none(two: Two, ring: Ring, dataset: Any) -> None:
    organization = f"'\\x{ring.organization.hex()}'"
    ring.begin(dataset, epoch=2)
    two.first.execute(
        f"DELETE FROM roster_entry WHERE organization_id = {organization} AND number = 2"
    )
    assert refused(ring, two.second, ring.dataset(dataset, 3)) == (500, "database_damaged")


@pytest.mark.parametrize("column", ["body", "openings"])
def test_a_roster_with_an_entry_that_cannot_be_read_takes_none_and_blames_no_caller(
    two: Two, ring: Ring, dataset: Any, column: str
) -> None:
    organization = f"'\\x{ring.organization.hex()}'"
    ring.begin(dataset, epoch=2)
    two.first.execute(
        f"UPDATE roster_entry SET {column} = '\\x00'"
        f" WHERE organization_id = {organization} AND number = 2"
    )
    assert refused(ring, two.second, ring.dataset(dataset, 3)) == (500, "database_damaged")


def test_two_organizations_go_on_each_with_its_own_roster(two: Two, ring: Ring) -> None:
    other = found(two.first.new_account())
    for _ in range(2):
        for each in (ring, other):
            mine = each.owner.account.new_dataset()
            each.begin(mine)
            theirs = other if each is ring else ring
            foreign = theirs.sign(theirs.dataset(mine, 2))
            assert each.refused(foreign) == INVALID
            assert each.refused(each.sign(each.dataset(mine, 2), by=theirs.owner)) == INVALID


@pytest.mark.parametrize("part", ["x25519", "mlkem"])
def test_keys_to_which_nothing_can_be_sealed_are_nobodys(ring: Ring, part: str) -> None:
    """A reader lets no such entry count, so nobody could go on from it."""
    renewed = ring.owner.renewed()
    parts = split_keys(renewed.identity.keys)
    assert parts is not None
    worse = {"x25519": bytes(32), "mlkem": b"\xff" * 1152 + bytes(32)}
    keys = join_keys(KeyParts(**(parts._asdict() | {part: worse[part]})))
    anchor = os.urandom(32)
    proof = renewed.identity.sign("keys", ring.found, renewed.uid, keys, anchor)
    stated = standing(renewed, role=form.OWNER, keys=keys, anchor=anchor, proof=proof)
    assert ring.refuses(stated) == INVALID


_KEEPING = """
import django
django.setup()
from encrypted_records.server.organizations.models import Organization
from encrypted_records.server.organizations.roster_change import RosterStates

states, first = RosterStates(most_bytes=1 << 20), Organization()
kept = states.of(first)
print(states.of(first) is kept)
for _ in range(10_000):
    newest = Organization()
    states.of(newest)
print(states.of(newest) is states.of(newest), states.of(first) is kept)
"""


def test_organizations_without_a_roster_fill_no_memory() -> None:
    # In a process of its own: the settings are the server's.
    done = subprocess.run(
        [sys.executable, "-c", _KEEPING],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "encrypted_records.server.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["True", "True", "False"], done.stderr


def test_a_dataset_has_1024_epochs(ring: Ring, dataset: Any) -> None:
    assert form.MAX_EPOCHS == 1024
    begun = [ring.dataset(dataset, epoch) for epoch in range(2, form.MAX_EPOCHS + 1)]
    while begun:
        some, begun = begun[:100], begun[100:]
        entries = ring.chain(*some)
        ring.add(*entries, ring.grant(dataset, ring.owner, some[-1].epoch))
    assert ring.refuses(ring.dataset(dataset, form.MAX_EPOCHS + 1)) == INVALID
