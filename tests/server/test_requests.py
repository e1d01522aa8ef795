"""Members ask for access to datasets that are listed; the API keeps what they have signed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from encrypted_records.crypto.identity import Identity
from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.roster import AccessRequest, AccessRequestBody, Listing
from tests.server.api import Account, Api, id_bytes
from tests.server.rosters import Person, Ring, admission, found, put_answer, share, standing
from tests.server.test_session_store import rows
from tests.server.writer import FRAMES

INVALID = (400, "invalid_entry")
DAY = 86_400


@dataclass
class Asking:
    """An organization with a listed dataset, and Grace, who is a member without any dataset."""

    api: Api
    ring: Ring
    dataset: Any
    grace: Person

    @property
    def path(self) -> str:
        return f"{self.ring.owner.account.organization}requests/"

    def request(
        self, by: Person | None = None, identity: Identity | None = None, **changes: Any
    ) -> AccessRequest:
        person = by or self.grace
        body = AccessRequestBody(
            format=1,
            organization=self.ring.organization,
            dataset=id_bytes(self.dataset),
            member=person.uid,
            right=form.READER,
            number=self.ring.number,
            digest=self.ring.digest,
            time=int(time.time()),
        )
        encoded = form.encode_request_body(msgspec.structs.replace(body, **changes))
        return AccessRequest(encoded, (identity or person.identity).sign("request", encoded), 0)

    def put(self, request: AccessRequest, by: Person | None = None) -> tuple[int, str]:
        account = (by or self.grace).account
        answer = account.call("PUT", self.path, wire.encode([request]), **FRAMES)
        return answer.status, answer.code if answer.status >= 400 else ""

    def ask(self, **changes: Any) -> AccessRequest:
        request = self.request(**changes)
        assert self.put(request) == (201, "")
        return request

    def shown(self, by: Person | None = None) -> list[AccessRequest]:
        answer = (by or self.ring.owner).account.call("GET", self.path)
        assert answer.status == 200, answer.body
        return wire.decode_all(answer.body, AccessRequest)

    def end(self, by: Person, of: Person | None = None) -> tuple[int, str]:
        path = f"{self.path}{self.dataset['id']}/{(of or self.grace).id}/"
        answer = by.account.call("DELETE", path)
        return answer.status, answer.code if answer.status >= 400 else ""

    def sign(self, content: Any) -> None:
        self.ring.add(*self.ring.chain(content))

    def age(self, column: str, days: int) -> None:
        """Turn a time of all requests of Grace back."""
        at = f"datetime({column}, '-{days} days')"
        if self.api.database_url:
            at = f"{column} - interval '{days} days'"
        own = f"SELECT id FROM organizations_membership WHERE user_id = {self._stored_id()}"
        self.api.execute(
            f"UPDATE access_request SET {column} = {at} WHERE membership_id IN ({own})"
        )

    def _stored_id(self) -> str:
        return _literal(self.api, self.grace.uid)

    def actions(self) -> list[tuple[str, str]]:
        path = f"{self.ring.owner.account.organization}audit-log/"
        entries = self.ring.owner.account.call("GET", path).json()["results"]
        wanted = ("access.", "dataset.listed", "dataset.unlisted")
        return [
            (entry["action"], entry["subject"])
            for entry in entries
            if entry["action"].startswith(wanted)
        ]


def _literal(api: Api, identifier: bytes) -> str:
    """An id in a statement."""
    return f"'\\x{identifier.hex()}'" if api.database_url else f"X'{identifier.hex()}'"


@pytest.fixture
def asking(api: Api, guests: list[Account]) -> Asking:
    ring, grace = found(api.new_account()), Person(guests[0])
    dataset = ring.owner.account.new_dataset()
    ring.begin(dataset)
    ring.join(grace)
    ring.add(*ring.chain(Listing(id_bytes(dataset), 1)))
    return Asking(api, ring, dataset, grace)


def test_a_member_asks_and_the_owner_sees_it(asking: Asking) -> None:
    request = asking.ask()
    assert asking.shown() == asking.shown(asking.grace) == [request]
    # Who asks reaches no more of the dataset than before.
    assert asking.grace.account.call("GET", asking.dataset["url"]).status == 404


@pytest.mark.both_databases
def test_a_request_that_is_sent_again_is_there_once(asking: Asking) -> None:
    request = asking.ask()
    assert asking.put(request) == (200, "")
    writes = asking.ask(right=form.WRITER)
    assert asking.shown() == [writes]
    assert [action for action, _ in asking.actions()] == ["access.requested"] * 2 + [
        "dataset.listed"
    ]


def test_other_members_and_strangers_see_no_request(
    asking: Asking, guests: list[Account], bob: Account
) -> None:
    asking.ask()
    eve = Person(guests[1])
    asking.ring.join(eve, [share(asking.dataset)])
    assert asking.shown(eve) == []
    assert asking.end(eve) == (403, "owners_only")
    assert bob.call("GET", asking.path).status == 404
    assert asking.end(Person(bob)) == (404, "not_found")


def test_nobody_asks_in_the_name_of_another(asking: Asking, guests: list[Account]) -> None:
    eve = Person(guests[1])
    asking.ring.join(eve)
    assert asking.put(asking.request(), by=eve) == INVALID
    assert asking.put(asking.request(identity=eve.identity)) == INVALID
    assert asking.put(asking.request(member=eve.uid)) == INVALID
    altered = msgspec.structs.replace(asking.request(), body=asking.request(time=1).body)
    assert asking.put(altered) == INVALID
    assert asking.shown() == []


def test_only_a_listed_dataset_is_asked_for(asking: Asking) -> None:
    other = asking.ring.owner.account.new_dataset()
    asking.ring.begin(other)
    refused = (403, "not_listed")
    assert asking.put(asking.request(dataset=id_bytes(other))) == refused
    assert asking.put(asking.request(dataset=ids.new_id())) == refused
    asking.ask()
    asking.sign(Listing(id_bytes(asking.dataset), 0))
    assert asking.shown() == []
    assert asking.put(asking.request()) == refused
    dataset = asking.dataset["url"]
    assert asking.actions() == [
        ("dataset.unlisted", dataset),
        ("access.requested", dataset),
        ("dataset.listed", dataset),
    ]


def test_only_owners_list_a_dataset_that_the_organization_has(asking: Asking) -> None:
    ring, dataset = asking.ring, id_bytes(asking.dataset)
    assert ring.refuses(Listing(dataset, 0), by=asking.grace) == (403, "owners_only")
    assert ring.refuses(Listing(ids.new_id(), 1)) == INVALID
    assert asking.ring.owner.account.call("DELETE", asking.dataset["url"]).status == 204
    assert ring.refuses(Listing(dataset, 1)) == INVALID


def test_a_request_names_the_newest_entry_of_the_roster(asking: Asking) -> None:
    number, digest = asking.ring.number, asking.ring.digest
    asking.sign(Listing(id_bytes(asking.dataset), 1))
    assert asking.put(asking.request(number=number, digest=digest)) == (409, "roster_moved")
    assert asking.put(asking.request(digest=bytes(32))) == (409, "roster_moved")
    assert asking.put(asking.request(time=int(time.time()) - 31 * DAY)) == INVALID


def test_whoever_has_the_right_does_not_ask_for_it(asking: Asking) -> None:
    ring, grace = asking.ring, asking.grace
    entry = ring.follow(ring.sign(standing(grace, [share(asking.dataset)])))
    ring.add(entry, ring.grant(asking.dataset, grace))
    assert asking.put(asking.request()) == (409, "already_shared")
    asking.ask(right=form.WRITER)
    assert asking.put(asking.request(by=ring.owner), by=ring.owner) == INVALID


def test_what_the_owner_shares_ends_the_request_for_it_and_no_other(asking: Asking) -> None:
    ring, grace = asking.ring, asking.grace
    other = ring.owner.account.new_dataset()
    ring.begin(other)
    asking.sign(Listing(id_bytes(other), 1))
    asking.ask(right=form.WRITER)
    kept = asking.ask(dataset=id_bytes(other))
    entry = ring.follow(ring.sign(standing(grace, [share(asking.dataset)])))
    ring.add(entry, ring.grant(asking.dataset, grace))
    assert asking.shown() == asking.shown(grace) == [kept]


def test_who_asked_withdraws(asking: Asking) -> None:
    asking.ask()
    assert asking.end(asking.grace) == (204, "")
    assert asking.shown() == asking.shown(asking.grace) == []
    assert asking.end(asking.grace) == (404, "no_request")
    asking.ask()
    assert [action for action, _ in asking.actions()][:2] == [
        "access.requested",
        "access.withdrawn",
    ]


def test_who_was_declined_sees_it_and_waits_a_week(asking: Asking) -> None:
    owner, grace = asking.ring.owner, asking.grace
    request = asking.ask()
    assert asking.end(owner) == (204, "")
    assert asking.end(owner) == (204, "")
    assert asking.shown() == []
    [declined] = asking.shown(grace)
    assert declined.body == request.body
    assert abs(declined.declined - time.time()) < DAY
    # Nor is it taken back to be made anew.
    assert asking.end(grace) == (404, "no_request")
    assert asking.put(request) == asking.put(asking.request()) == (409, "request_declined")
    assert asking.actions()[0] == ("access.declined", f"/api/users/{grace.id}/")
    assert len([action for action, _ in asking.actions() if action == "access.declined"]) == 1
    asking.age("declined", 8)
    again = asking.ask()
    assert asking.shown() == asking.shown(grace) == [again]


def test_a_request_of_last_month_is_shown_to_nobody(asking: Asking) -> None:
    asking.ask()
    asking.age("created", 31)
    assert asking.shown() == asking.shown(asking.grace) == []


def test_a_member_has_twenty_requests_at_most(asking: Asking) -> None:
    ring, account = asking.ring, asking.ring.owner.account
    for _ in range(20):
        dataset = account.new_dataset()
        ring.begin(dataset)
        asking.sign(Listing(id_bytes(dataset), 1))
        asking.ask(dataset=id_bytes(dataset))
    assert asking.put(asking.request()) == (413, "too_large")
    assert len(asking.shown()) == 20
    asking.age("created", 31)
    asking.ask()


@contextmanager
def gone(asking: Asking) -> Iterator[None]:
    """What is done here leaves no request in the database."""
    asking.ask()
    count = "SELECT count(*) FROM access_request WHERE dataset_id = "
    where = _literal(asking.api, id_bytes(asking.dataset))
    assert rows(asking.api, count + where) == [(1,)]
    yield
    assert rows(asking.api, count + where) == [(0,)]


def test_a_member_who_is_removed_takes_their_requests_along(asking: Asking) -> None:
    with gone(asking):
        asking.sign(form.Remove(asking.grace.uid))


def test_a_member_with_other_keys_has_no_request_of_before(asking: Asking) -> None:
    ring, grace = asking.ring, asking.grace.renewed()
    with gone(asking):
        invited = ring.invite(grace, member=grace.uid)
        given = ring.answer(grace, invited)
        assert put_answer(grace, given).status == 201
        asking.sign(admission(grace, given))


def test_a_dataset_that_is_deleted_takes_its_requests_along(asking: Asking) -> None:
    with gone(asking):
        assert asking.ring.owner.account.call("DELETE", asking.dataset["url"]).status == 204


@pytest.mark.both_databases
def test_an_account_that_is_deleted_takes_its_requests_along(asking: Asking, api: Api) -> None:
    asking.grace = Person(api.new_account())
    asking.ring.join(asking.grace)
    with gone(asking):
        body = {"password": asking.grace.account.password, "unsigned": True}
        answer = asking.grace.account.call("POST", "/api/accounts/delete/", body)
        assert answer.status == 200, answer.body


def test_a_request_that_is_malformed_is_refused(asking: Asking) -> None:
    request = asking.request()
    cut = msgspec.structs.replace(request, body=request.body[:-1])
    assert asking.put(cut) == (400, "malformed_frame")
    later = msgspec.structs.replace(request, body=b"\x98\x02" + request.body[2:])
    assert asking.put(later) == (415, "unsupported")
    answer = asking.grace.account.call("PUT", asking.path, wire.encode([request] * 2), **FRAMES)
    assert (answer.status, answer.code) == (400, "malformed_frame")
