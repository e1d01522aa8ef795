"""Members ask for access to listed datasets; owners share or decline; the API can make nobody ask,
and has nobody given anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from encrypted_records.index.roster.access import make_request
from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.roster import AccessRequest, AccessRequestBody
from tests.proxy.sharing.people import Person
from tests.proxy.sharing.shared import Shared, refused
from tests.proxy.sharing.test_lies import changes
from tests.support.front import Asked, Reply, honest
from tests.support.service import call
from tests.support.store import Store


@dataclass
class Three:
    """Ada owns, with a dataset Bills; Grace and Alan are in another dataset."""

    shared: Shared
    grace: Person
    alan: Person
    #: what the proxies of the three are asked through
    owner: Store
    asks: Store
    other: Store
    #: the path of Bills
    bills: str

    @property
    def organization(self) -> str:
        return self.shared.team.ada.account.organization

    def people(self, by: Store) -> Any:
        answer = by.proxy("GET", f"{self.organization}people/")
        assert answer.status == 200, answer.body
        return answer.json()

    def requests(self, by: Store) -> list[tuple[str, str, str]]:
        """Who asks for what, in which role; and by whom it was declined, where it was."""
        return [
            (one["email"], one["name"], "declined" if one["declined"] else one["role"])
            for one in self.people(by)["requests"]
        ]

    def may_ask(self, by: Store) -> list[str]:
        """The roles in Bills that may be asked for."""
        (bills,) = [one for one in self.people(by)["datasets"] if one["dataset"] == self.bills]
        roles: list[str] = bills["may_ask"]
        return roles

    def set_listed(self, *, listed: bool = True) -> None:
        answer = self.owner.proxy("PUT", f"{self.bills}listed/", {"listed": listed})
        assert (answer.status, answer.json()["listed"]) == (200, listed)

    def ask(self, by: Store | None = None, role: str = "reader") -> int:
        answer = (by or self.asks).proxy("PUT", f"{self.bills}requests/", {"role": role})
        assert answer.status in (200, 201), answer.body
        return answer.status

    def share(self, with_: Person, role: str, dataset: str = "") -> None:
        """The owner shares, by a command on the machine of the proxy."""
        service, auth = self.owner.service, self.owner.account.auth
        url = f"{service.proxy_url}{dataset or self.bills}people/{ids.to_text(with_.id)}/"
        answer = call("PUT", url, {"role": role}, auth=auth, headers=service.door)
        assert answer.status == 200, answer.body

    def decline(self, of: Person) -> int:
        path = f"{self.bills}requests/{ids.to_text(of.id)}/"
        return self.owner.proxy("DELETE", path).status

    def stored(self, by: Person) -> list[AccessRequest]:
        """Requests as the API has them."""
        answer = by.call("GET", f"{self.organization}requests/")
        return wire.decode_all(answer.body, AccessRequest)

    def lie(self, to: Person, change: Callable[[list[AccessRequest]], list[AccessRequest]]) -> None:
        """The API shows other requests to one person from here on."""

        def lie(asked: Asked, reply: Reply) -> Reply:
            if asked.method != "GET" or not asked.path.endswith("/requests/"):
                return reply
            told = change(wire.decode_all(reply.body, AccessRequest))
            return reply.with_body(wire.encode(told))

        self.shared.fronts[to.id].lie = lie

    def shares_of(self, person: Person) -> set[bytes]:
        standing = self.shared.team.view(self.shared.team.ada).roster.member(person.id)
        assert standing is not None
        return {share.dataset for share in standing.shares}


@pytest.fixture(scope="module")
def people(lasting: Shared) -> Three:
    team = lasting.team
    grace, alan = (lasting.person(form.READER) for _ in range(2))
    owner, asks, other = (lasting.proxy(person) for person in (team.ada, grace, alan))
    return Three(lasting, grace, alan, owner, asks, other, bills="")


@pytest.fixture
def three(people: Three) -> Iterator[Three]:
    """The three, and a dataset Bills of the test's own."""
    bills = people.shared.team.ada.new_dataset("Bills")["url"]
    three, fronts = replace(people, bills=bills), dict(people.shared.fronts)
    three.set_listed()
    yield three
    people.shared.fronts.update(fronts)
    for front in fronts.values():
        front.lie = honest
    # With it its requests end.
    three.set_listed(listed=False)


def test_a_member_asks_and_the_owner_who_agrees_shares(three: Three) -> None:
    email = three.grace.account.email
    assert three.ask(role="writer") == 201
    assert three.requests(three.owner) == [(email, "Bills", "writer")]
    assert three.requests(three.asks) == [(email, "Bills", "writer")]
    assert three.asks.proxy("GET", three.bills).status == 404
    three.share(three.grace, "writer")
    assert three.requests(three.owner) == three.requests(three.asks) == []
    assert three.stored(three.shared.team.ada) == []
    assert three.asks.proxy("GET", three.bills).status == 200
    answer = three.asks.proxy("PUT", f"{three.bills}requests/", {"role": "reader"})
    assert refused(answer) == (409, "already_shared")


def test_a_member_may_ask_for_the_roles_that_they_do_not_have(three: Three) -> None:
    assert three.may_ask(three.asks) == ["reader", "writer"]
    assert three.may_ask(three.owner) == []
    three.share(three.grace, "reader")
    assert three.may_ask(three.asks) == ["writer"]
    three.share(three.grace, "writer")
    assert three.may_ask(three.asks) == []
    three.set_listed(listed=False)
    assert three.may_ask(three.other) == []


def test_nobody_but_owners_sees_who_else_asks(three: Three) -> None:
    three.ask()
    assert three.requests(three.other) == []
    path = f"{three.bills}requests/{ids.to_text(three.grace.id)}/"
    assert refused(three.other.proxy("DELETE", path)) == (403, "owners_only")


def test_asking_again_changes_nothing_but_the_role(three: Three) -> None:
    assert three.ask() == 201
    first = three.stored(three.grace)
    assert three.ask() == 200
    assert three.stored(three.grace) == first
    assert three.ask(role="writer") == 201
    assert three.requests(three.owner) == [(three.grace.account.email, "Bills", "writer")]


def test_an_answer_that_was_lost_leaves_one_request(three: Three) -> None:
    front = three.shared.fronts[three.grace.id]
    lost = 0

    def lose(asked: Asked, reply: Reply) -> Reply | None:
        nonlocal lost
        if asked.method == "PUT" and asked.path.endswith("/requests/") and not lost:
            lost += 1
            return None
        return reply

    front.lie = lose
    assert three.ask() in (200, 201)
    assert lost == 1 and len(three.stored(three.grace)) == 1


def test_who_asked_withdraws(three: Three) -> None:
    three.ask()
    path = f"{three.bills}requests/"
    assert three.asks.proxy("DELETE", path).status == 204
    assert three.requests(three.owner) == three.requests(three.asks) == []
    assert refused(three.asks.proxy("DELETE", path)) == (404, "no_request")
    assert three.ask() == 201


def test_who_was_declined_sees_it_and_cannot_ask_again_at_once(three: Three) -> None:
    three.ask()
    assert three.decline(three.grace) == 204
    assert three.requests(three.owner) == []
    assert three.requests(three.asks) == [(three.grace.account.email, "Bills", "declined")]
    answer = three.asks.proxy("PUT", f"{three.bills}requests/", {"role": "reader"})
    assert refused(answer) == (409, "request_declined")
    # The owner may change their mind.
    three.share(three.grace, "reader")
    assert three.requests(three.asks) == []
    assert three.asks.proxy("GET", three.bills).status == 200


def test_what_is_not_listed_is_not_asked_for(three: Three) -> None:
    three.ask()
    three.set_listed(listed=False)
    assert three.requests(three.owner) == three.requests(three.asks) == []
    front = three.shared.fronts[three.grace.id]
    front.forget()
    answer = three.asks.proxy("PUT", f"{three.bills}requests/", {"role": "reader"})
    assert refused(answer) == (403, "not_listed")
    assert changes(front) == []
    unknown = f"/api/datasets/{ids.to_text(ids.new_id())}/requests/"
    assert refused(three.asks.proxy("PUT", unknown, {"role": "reader"})) == (404, "not_found")
    [bills] = [one for one in three.people(three.asks)["datasets"] if one["dataset"] == three.bills]
    assert not bills["listed"]


def test_a_dataset_is_listed_once_and_by_owners_alone(three: Three) -> None:
    number = three.people(three.owner)["number"]
    three.set_listed()
    assert three.people(three.owner)["number"] == number
    people = three.shared.team.made["url"]
    answer = three.asks.proxy("PUT", f"{people}listed/", {"listed": True})
    assert refused(answer) == (403, "owners_only")
    own = three.owner.proxy("PUT", f"{three.bills}requests/", {"role": "reader"})
    assert refused(own) == (409, "owners_have_all")


def test_an_owner_who_is_asked_by_several_sees_who_asked_first(three: Three) -> None:
    three.ask(three.asks)
    three.ask(three.other, role="writer")
    three.lie(three.shared.team.ada, lambda shown: [*reversed(shown), *shown])
    assert {one[0] for one in three.requests(three.owner)} == {
        three.grace.account.email,
        three.alan.account.email,
    }
    assert len(three.requests(three.owner)) == 2
    asked = [one["asked"] for one in three.people(three.owner)["requests"]]
    assert asked == sorted(asked)


def restated(request: AccessRequest, **changes: Any) -> AccessRequest:
    body = msgspec.structs.replace(form.read_request(request), **changes)
    return msgspec.structs.replace(request, body=form.encode_request_body(body))


def test_a_request_that_the_api_made_up_is_shown_as_nobodys(three: Three) -> None:
    """With another member's name, another dataset or right, or under other keys."""
    three.ask()
    alan = three.alan.id
    team = three.shared.team
    view = team.view(three.alan)
    in_alans_name = make_request(
        view.roster, view.identity, three.grace.id, ids.from_text(three.bills.split("/")[-2]), 2, 1
    )
    made_up: list[Callable[[AccessRequest], AccessRequest]] = [
        lambda real: restated(real, member=alan),
        lambda real: restated(real, right=form.WRITER),
        lambda real: restated(real, time=form.read_request(real).time + 1),
        lambda real: msgspec.structs.replace(real, signature=bytes(64)),
        lambda real: msgspec.structs.replace(real, body=real.body + b"\x00"),
        lambda _: in_alans_name,
    ]
    for make in made_up:

        def instead(
            shown: list[AccessRequest], make: Callable[[AccessRequest], AccessRequest] = make
        ) -> list[AccessRequest]:
            return [make(shown[0])]

        three.lie(team.ada, instead)
        people = three.people(three.owner)
        assert (people["requests"], people["requests_refused"]) == ([], 1)
    three.lie(team.ada, lambda shown: shown)
    assert three.people(three.owner)["requests_refused"] == 0


def test_a_request_of_before_that_the_api_shows_again_has_ended_with_what_was_shared(
    three: Three,
) -> None:
    three.ask()
    replayed = three.stored(three.grace)
    three.share(three.grace, "reader")
    three.lie(three.shared.team.ada, lambda _: replayed)
    assert three.requests(three.owner) == []
    # Nor does it come back once the dataset is taken away again.
    path = f"{three.bills}people/{ids.to_text(three.grace.id)}/"
    assert three.owner.proxy("DELETE", path).status == 200
    assert three.requests(three.owner) == []


def test_an_api_that_shows_what_was_withdrawn_or_declined_has_nobody_given_anything(
    three: Three,
) -> None:
    """The member did sign it, so an owner sees it again; nothing follows from that by itself."""
    three.ask()
    replayed = three.stored(three.grace)
    assert three.asks.proxy("DELETE", f"{three.bills}requests/").status == 204
    three.lie(three.shared.team.ada, lambda _: replayed)
    assert len(three.requests(three.owner)) == 1
    before = three.shares_of(three.grace)
    settle = three.owner.proxy("POST", f"{three.organization}settle/")
    assert (settle.status, settle.json()["admitted"]) == (200, [])
    assert three.shares_of(three.grace) == before


def test_an_api_that_hides_requests_or_says_they_were_declined_changes_no_right(
    three: Three,
) -> None:
    three.ask()
    three.lie(three.shared.team.ada, lambda _: [])
    assert three.requests(three.owner) == []
    three.lie(
        three.grace,
        lambda shown: [msgspec.structs.replace(one, declined=1_800_000_000) for one in shown],
    )
    assert three.requests(three.asks) == [(three.grace.account.email, "Bills", "declined")]
    three.share(three.grace, "reader")
    assert three.requests(three.asks) == []


def test_an_api_that_shows_a_member_requests_of_others_has_them_left_out(three: Three) -> None:
    three.ask(three.other)
    others = three.stored(three.alan)
    three.lie(three.grace, lambda _: others)
    assert three.requests(three.asks) == []


def test_an_api_without_the_entry_that_lists_a_dataset_is_named(three: Three) -> None:
    """What members may ask for is the owners' word, and not the API's."""
    front = three.shared.fronts[three.grace.id]
    assert three.people(three.asks)["number"]

    def cut(asked: Asked, reply: Reply) -> Reply:
        if "/roster/" not in asked.path:
            return reply
        entries = wire.decode_all(reply.body, form.RosterEntry)
        return reply.with_body(wire.encode(entries[:-1]))

    fresh = three.shared.proxy(three.grace)
    front = three.shared.fronts[three.grace.id]
    front.lie = cut
    answer = fresh.proxy("PUT", f"{three.bills}requests/", {"role": "reader"})
    assert refused(answer) == (422, "roster_older")


def test_a_member_with_other_rights_meanwhile_has_their_other_request_stand(three: Three) -> None:
    three.ask()
    three.share(three.grace, "writer", three.shared.team.made["url"])
    assert three.requests(three.owner) == [(three.grace.account.email, "Bills", "reader")]


def test_a_request_says_nothing_but_who_asks_for_what_and_when(three: Three) -> None:
    three.ask()
    [stored] = three.stored(three.shared.team.ada)
    body = form.read_request(stored)
    assert set(AccessRequestBody.__struct_fields__) == {
        "format",
        "organization",
        "dataset",
        "member",
        "right",
        "number",
        "digest",
        "time",
    }
    assert body.member == three.grace.id
    assert body.dataset == ids.from_text(three.bills.split("/")[-2])
