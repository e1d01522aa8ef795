"""Organizations: joining, roles, leaving, and what their owners can read of it afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from encrypted_records.model import ids
from tests.server.api import PASSWORD, Account, Answer, Api, basic, text_of
from tests.server.overtaking import overtaken
from tests.server.sessions import session_of
from tests.server.writer import Writer, first_row, only_segment, person


def invite(owner: Account, email: str, **members: str) -> Answer:
    return owner.call("POST", f"{owner.organization}invitations/", {"email": email} | members)


def join(owner: Account, other: Account, **members: str) -> str:
    """Make ``other`` a member; the path of the membership."""
    assert invite(owner, other.email, **members).status == 201
    waiting = other.call("GET", "/api/invitations/").json()["results"]
    [invitation] = [one for one in waiting if one["organization"] == owner.organization]
    joined = other.call("POST", f"/api/invitations/{invitation['id']}/accept/")
    assert joined.status == 201, joined.body
    return str(joined.json()["url"])


def emails(account: Account, organization: str) -> dict[str, str]:
    listed = account.call("GET", f"{organization}members/").json()["results"]
    return {one["email"]: one["role"] for one in listed}


@pytest.fixture
def owner(api: Api) -> Account:
    return api.new_account()


@pytest.fixture
def guest(api: Api) -> Account:
    return api.new_account()


def test_whoever_accepts_an_invitation_becomes_a_member(owner: Account, guest: Account) -> None:
    dataset = owner.new_dataset()
    assert guest.call("GET", dataset["url"]).status == 404

    join(owner, guest)

    assert emails(owner, owner.organization) == {owner.email: "owner", guest.email: "member"}
    assert guest.call("GET", dataset["url"]).status == 200
    assert owner.organization in guest.call("GET", "/api/users/self/").json()["organizations"]
    assert guest.call("GET", "/api/invitations/").json()["count"] == 0


def test_an_invitation_is_answered_alike_with_and_without_an_account(
    api: Api, owner: Account
) -> None:
    guest, nobody = api.new_account(), api.new_address()
    known, unknown = invite(owner, guest.email), invite(owner, nobody)
    assert (known.status, unknown.status) == (201, 201)
    varying = {"id", "email", "created", "expires"}
    told = [
        {name: value for name, value in answer.json().items() if name not in varying}
        for answer in (known, unknown)
    ]
    assert told[0] == told[1]
    assert emails(owner, owner.organization) == {owner.email: "owner"}
    for address in (guest.email, nobody):
        [message] = api.messages_to(address, 1)
        assert owner.email in text_of(message)
        assert known.json()["organization_name"] in text_of(message, "html")


def test_an_invitation_is_for_its_address_alone(
    owner: Account, guest: Account, bob: Account
) -> None:
    made = invite(owner, guest.email.upper()).json()
    for path in (f"/api/invitations/{made['id']}/accept/", f"/api/invitations/{made['id']}/"):
        method = "POST" if path.endswith("accept/") else "DELETE"
        assert bob.call(method, path).status == 404
    assert guest.call("DELETE", f"/api/invitations/{made['id']}/").status == 204
    assert guest.call("POST", f"/api/invitations/{made['id']}/accept/").status == 404


def test_an_owner_lists_and_withdraws_invitations(owner: Account, guest: Account) -> None:
    first = invite(owner, guest.email).json()
    again = invite(owner, guest.email, role="owner").json()
    listed = owner.call("GET", f"{owner.organization}invitations/").json()["results"]
    assert listed == [again]
    path = f"{owner.organization}invitations/"
    assert owner.call("DELETE", f"{path}{first['id']}/").status == 404
    assert owner.call("DELETE", f"{path}{again['id']}/").status == 204
    assert guest.call("GET", "/api/invitations/").json()["results"] == []


LOCKED = "SELECT 1 FROM organizations_organization WHERE id = %s FOR NO KEY UPDATE"


def uid_of(path: str) -> bytes:
    return ids.from_text(path.split("/")[-2])


def test_an_invitation_that_is_withdrawn_meanwhile_makes_nobody_a_member(
    api: Api, owner: Account, guest: Account
) -> None:
    made = invite(owner, guest.email).json()
    path = f"/api/invitations/{made['id']}/accept/"
    withdrawn = "DELETE FROM organizations_invitation WHERE organization_id = %s"
    late = overtaken(
        api, f"{LOCKED};{withdrawn}", uid_of(owner.organization), lambda: guest.call("POST", path)
    )
    assert (late.status, late.code) == (404, "not_found")
    assert emails(owner, owner.organization) == {owner.email: "owner"}


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_a_member_who_is_removed_meanwhile_is_not_found(
    api: Api, owner: Account, guest: Account, method: str
) -> None:
    mine = join(owner, guest)
    removed = "DELETE FROM organizations_membership WHERE organization_id = %s AND role = 'member'"
    body = {"role": "owner"} if method == "PATCH" else None
    late = overtaken(
        api,
        f"{LOCKED};{removed}",
        uid_of(owner.organization),
        lambda: owner.call(method, mine, body),
    )
    assert (late.status, late.code) == (404, "not_found")
    assert entries(owner, "?action=member.removed") == []


def test_a_new_name_takes_no_entry_back_that_a_roster_got_meanwhile(
    api: Api, owner: Account
) -> None:
    grows = "UPDATE organizations_organization SET roster_number = 7 WHERE id = %s"
    uid = uid_of(owner.organization)
    renamed = overtaken(
        api, grows, uid, lambda: owner.call("PATCH", owner.organization, {"name": "Acme Ltd"})
    )
    assert renamed.status == 200
    assert owner.call("GET", owner.organization).json()["name"] == "Acme Ltd"
    assert api.database_url is not None
    with psycopg.connect(api.database_url) as database:
        head = "SELECT roster_number FROM organizations_organization WHERE id = %s"
        assert database.execute(head, (uid,)).fetchone() == (7,)


def test_an_expired_invitation_is_gone(api: Api, owner: Account, guest: Account) -> None:
    made = invite(owner, guest.email).json()
    api.execute(
        "UPDATE organizations_invitation SET expires = '2020-01-01 00:00:00+00'"
        f" WHERE email = '{guest.email}'"
    )
    assert guest.call("GET", "/api/invitations/").json()["count"] == 0
    assert guest.call("POST", f"/api/invitations/{made['id']}/accept/").status == 404


def test_members_read_and_only_owners_change(owner: Account, guest: Account, bob: Account) -> None:
    mine = join(owner, guest)
    theirs = f"{owner.organization}members/{owner.call('GET', '/api/users/self/').json()['id']}/"
    assert guest.call("GET", f"{owner.organization}members/").status == 200
    refused = [
        guest.call("PATCH", mine, {"role": "owner"}),
        guest.call("DELETE", theirs),
        guest.call("POST", f"{owner.organization}invitations/", {"email": bob.email}),
        guest.call("GET", f"{owner.organization}invitations/"),
        guest.call("GET", f"{owner.organization}audit-log/"),
        guest.call("PATCH", owner.organization, {"name": "Ours"}),
    ]
    assert [(one.status, one.code) for one in refused] == [(403, "owners_only")] * len(refused)


def test_the_removed_are_told_who_removed_them_and_nothing_else(
    api: Api, owner: Account, guest: Account
) -> None:
    log = f"{owner.organization}audit-log/"
    assert guest.call("GET", log).status == 404
    mine = join(owner, guest)
    assert guest.call("GET", log).code == "owners_only"
    assert owner.call("DELETE", mine).status == 204
    for query in ("", "?action=member.removed"):
        (told,) = guest.call("GET", log + query).json()["results"]
        assert (told["email"], told["action"]) == (owner.email, "member.removed")
        assert (told["source"], told["request_id"]) == ("", "")
    assert guest.call("GET", f"{log}?action=login").json()["results"] == []
    assert api.new_account().call("GET", log).status == 404
    (shown,) = entries(owner, "?action=member.removed")
    assert shown["source"]


def test_leaving_ends_what_a_member_reaches(owner: Account, guest: Account) -> None:
    mine = join(owner, guest)
    dataset = owner.new_dataset()
    assert guest.call("DELETE", mine).status == 204
    for path in (dataset["url"], owner.organization, f"{owner.organization}members/"):
        assert guest.call("GET", path).status == 404


def test_a_plain_member_deletes_nothing_of_others(owner: Account, guest: Account) -> None:
    join(owner, guest)
    dataset = owner.new_dataset()
    theirs = owner.new_schema(dataset=dataset["url"])
    name = {"name": "mine", "organization": owner.organization}
    mine = guest.post("/api/datasets/", name)
    own = guest.new_schema(dataset=dataset["url"])
    inside = guest.new_schema(dataset=mine["url"])

    def may_delete(account: Account, url: str) -> bool:
        """As the headers say to whoever reads it."""
        return "DELETE" in account.call("GET", url).headers["Allow"]

    for url in (theirs["url"], dataset["url"], f"{dataset['url']}?cascade=true"):
        answer = guest.call("DELETE", url)
        assert (answer.status, answer.code) == (403, "owners_only"), url
        assert not may_delete(guest, url)
        assert may_delete(owner, url)
    for made in (mine, own, inside):
        assert may_delete(guest, made["url"])
    added = owner.new_schema(dataset=mine["url"])
    assert not may_delete(guest, mine["url"])
    cascade = f"{mine['url']}?cascade=true"
    assert guest.call("DELETE", cascade).status == 403
    assert owner.call("DELETE", added["url"]).status == 204
    assert guest.call("GET", inside["url"]).status == 200
    assert guest.call("DELETE", cascade).status == 204
    assert guest.call("GET", inside["url"]).status == 404
    assert guest.call("DELETE", own["url"]).status == 204
    # Owners delete all.
    again = guest.new_schema(dataset=dataset["url"])
    assert owner.call("DELETE", again["url"]).status == 204
    assert owner.call("DELETE", f"{dataset['url']}?cascade=true").status == 204


def test_the_last_owner_stays(owner: Account, guest: Account) -> None:
    mine = join(owner, guest)
    own_id = owner.call("GET", "/api/users/self/").json()["id"]
    own = f"{owner.organization}members/{own_id}/"
    for refused in (owner.call("DELETE", own), owner.call("PATCH", own, {"role": "member"})):
        assert (refused.status, refused.code) == (409, "last_owner")
    promoted = owner.call("PATCH", mine, {"role": "owner"})
    assert (promoted.status, promoted.json()["role"]) == (200, "owner")
    assert owner.call("DELETE", own).status == 204
    assert emails(guest, owner.organization) == {guest.email: "owner"}


@pytest.mark.both_databases
def test_of_two_owners_who_leave_at_once_one_stays(owner: Account, guest: Account) -> None:
    mine = join(owner, guest, role="owner")
    own_id = owner.call("GET", "/api/users/self/").json()["id"]
    own = f"{owner.organization}members/{own_id}/"
    with ThreadPoolExecutor(2) as pool:
        left = pool.map(lambda pair: pair[0].call("DELETE", pair[1]), [(owner, own), (guest, mine)])
    assert sorted(answer.status for answer in left) == [204, 409]


@pytest.mark.parametrize(
    ("body", "flaws"),
    [
        ({}, {"/email": "required"}),
        ({"email": "nobody"}, {"/email": "invalid"}),
        ({"email": "a@example.org", "role": "king"}, {"/role": "invalid_choice"}),
    ],
)
def test_an_invitation_says_what_is_wrong_with_it(
    ada: Account, body: dict[str, str], flaws: dict[str, str]
) -> None:
    refused = ada.call("POST", f"{ada.organization}invitations/", body)
    assert (refused.status, refused.flaws()) == (400, flaws)


@pytest.mark.both_databases
def test_a_member_is_not_invited_again(ada: Account) -> None:
    refused = invite(ada, ada.email.upper())
    assert (refused.status, refused.code) == (409, "already_member")


# --- the audit log ------------------------------------------------------------------------


def entries(owner: Account, query: str = "") -> list[dict[str, Any]]:
    listed = owner.call("GET", f"{owner.organization}audit-log/{query}")
    assert listed.status == 200, listed.body
    found: list[dict[str, Any]] = listed.json()["results"]
    return found


def test_the_actor_is_right_for_all_three_logins(api: Api, owner: Account) -> None:
    me = owner.call("GET", "/api/users/self/").json()["url"]
    bearer = {"Authorization": f"Bearer {owner.token}"}
    ways = [bearer, basic(owner.email, PASSWORD), session_of(api, owner.email)]
    for at, headers in enumerate(ways):
        body = {"name": f"dataset {at}", "organization": owner.organization}
        sent = headers | {"X-Request-ID": f"way-{at}"}
        assert api.call("POST", "/api/datasets/", body, headers=sent).status == 201
    made = entries(owner, "?action=dataset.created")
    told = [(entry["user"], entry["email"], entry["request_id"]) for entry in made]
    assert told == [(me, owner.email, f"way-{at}") for at in (2, 1, 0)]
    assert {entry["source"] for entry in made} == {"127.0.0.1"}
    assert {entry["action"] for entry in entries(owner)} >= {"login"}


@pytest.mark.both_databases
def test_it_tells_what_was_done_to_what_and_no_name_or_value(
    api: Api, owner: Account, guest: Account
) -> None:
    needle = "unmistakable-needle"
    dataset = owner.new_dataset(name=needle)
    schema = owner.new_schema(dataset=dataset["url"], description=needle)
    owner.call("PATCH", schema["url"], {"name": f"{needle} 2"})
    writer = Writer(owner, schema)
    row = person()
    stored = writer.adding([row])
    writer.send(stored)
    changed = writer.adding([person(row.record_id, 2)], killed=[first_row(stored)])
    writer.send(changed)
    writer.send(writer.make(killed=[first_row(changed)]))
    writer.send(writer.merging([only_segment(stored), only_segment(changed)], [1, 1]))
    for _ in range(2):
        assert owner.call("GET", f"/api/records/?schema={schema['id']}").status == 200
    joined = join(owner, guest)
    owner.call("PATCH", joined, {"role": "owner"})
    owner.call("DELETE", joined)
    owner.call("DELETE", f"{dataset['url']}?cascade=true")
    owner.call("PATCH", owner.organization, {"name": needle})

    told = [(entry["action"], entry["subject"]) for entry in reversed(entries(owner))]

    guest_url = guest.call("GET", "/api/users/self/").json()["url"]
    assert [one for one in told if one[0] != "login"] == [
        ("dataset.created", dataset["url"]),
        ("schema.created", schema["url"]),
        ("schema.changed", schema["url"]),
        ("schema.key", schema["url"]),
        ("records.stored", schema["url"]),
        ("records.read", schema["url"]),  # the log, before what follows it; not again in a minute
        ("records.changed", schema["url"]),
        ("records.deleted", schema["url"]),
        ("index.merged", schema["url"]),
        ("member.invited", owner.organization),
        ("member.joined", guest_url),
        ("member.changed", guest_url),
        ("member.removed", guest_url),
        ("dataset.deleted", dataset["url"]),
        ("organization.changed", owner.organization),
    ]
    assert needle not in json.dumps(entries(owner))


def test_what_is_refused_or_undone_leaves_no_entry(owner: Account) -> None:
    dataset = owner.new_dataset(slug="taken")
    body = {"name": "x", "slug": "taken", "organization": owner.organization}
    assert owner.call("POST", "/api/datasets/", body).status == 409
    assert owner.call("PATCH", dataset["url"], {"name": ""}).status == 400
    assert [entry["subject"] for entry in entries(owner, "?action=dataset.created")] == [
        dataset["url"]
    ]
    assert entries(owner, "?action=dataset.changed") == []


@pytest.mark.parametrize(
    "asked",
    ["action=nothing", "without=nothing", "user=nobody", f"user={'z' * 22}", "until=yesterday"],
)
def test_what_the_log_does_not_know_is_refused(ada: Account, asked: str) -> None:
    refused = ada.call("GET", f"{ada.organization}audit-log/?{asked}")
    name = asked.partition("=")[0]
    code = "invalid_reference" if name == "user" else "invalid_parameter"
    assert (refused.status, refused.flaws()) == (400, {name: code})


@pytest.mark.both_databases
def test_the_log_is_read_of_one_person_without_an_action_and_until_a_day(
    owner: Account, guest: Account
) -> None:
    join(owner, guest)
    every = entries(owner)
    assert {entry["email"] for entry in every} == {owner.email, guest.email}
    me = owner.call("GET", "/api/users/self/").json()["url"]
    own = [entry for entry in every if entry["email"] == owner.email]
    assert entries(owner, f"?user={me}") == entries(owner, f"?user={me.split('/')[-2]}") == own
    without = [entry for entry in every if entry["action"] != "member.joined"]
    assert entries(owner, "?without=member.joined") == without != every
    day = every[0]["created"][:10]
    assert entries(owner, f"?until={day}") == every
    assert entries(owner, "?until=9999-12-31") == every
    assert entries(owner, "?until=2020-01-31") == []


# --- nothing of one organization is reached from outside ------------------------------------


def every_operation(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for path, methods in document["paths"].items():
        yield from ((method.upper(), path) for method in methods if method != "parameters")


def test_no_route_shows_an_organization_to_anybody_else(
    api: Api, owner: Account, guest: Account, bob: Account
) -> None:
    """Every route of the document, with every id of the first organization put into it."""
    assert guest.call("DELETE", join(owner, guest)).status == 204
    name = "unmistakable-organization"
    owner.call("PATCH", owner.organization, {"name": name})
    dataset = owner.new_dataset(name=name)
    schema = owner.new_schema(dataset=dataset["url"], name=name)
    writer = Writer(owner, schema)
    assert writer.post(writer.adding([person()])).status == 201
    listed = owner.call("GET", f"/api/records/?schema={schema['id']}").json()["results"]
    invited = invite(owner, api.new_address()).json()
    mine = owner.call("GET", "/api/users/self/").json()
    secrets = [
        owner.organization.split("/")[-2],
        *(dataset["id"], schema["id"], listed[0]["id"], invited["id"], mine["id"]),
    ]
    telling = [one.encode() for one in (name, owner.email, invited["email"], *secrets)]
    document = owner.call("GET", "/api/openapi.json").json()
    outsiders: dict[str, Callable[..., Answer]] = {
        "another organization": bob.call,
        "nobody": api.call,
        "a member who has left": guest.call,
    }
    asked = 0
    for method, path in every_operation(document):
        if path == "/api/accounts/logout/":
            continue  # it would end what the other routes are asked with
        names = re.findall(r"\{(\w+)\}", path)
        for identifier in secrets if names else [""]:
            filled = re.sub(r"\{\w+\}", identifier, path)
            body: dict[str, object] | None = {} if method in ("POST", "PUT", "PATCH") else None
            for who, ask in outsiders.items():
                answer = ask(method, filled, body)
                asked += 1
                assert answer.status < 500, (who, method, filled, answer.body)
                if names:
                    assert answer.status >= 400, (who, method, filled)
                shown = answer.body.replace(identifier.encode(), b"") if names else answer.body
                assert not [one for one in telling if one in shown], (who, method, filled)
    assert asked > 100
    # And it is all there still.
    assert owner.call("GET", schema["url"]).json()["name"] == name
    assert emails(owner, owner.organization) == {owner.email: "owner"}
    for query in ("schemas/?dataset=", "schemas/?organization=", "datasets/?organization="):
        for identifier in secrets:
            assert name.encode() not in bob.call("GET", f"/api/{query}{identifier}").body
