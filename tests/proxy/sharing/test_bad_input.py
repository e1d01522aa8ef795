"""What somebody gets wrong while sharing: an error that says what to do, and nothing half done."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

from encrypted_records.model import ids
from encrypted_records.model import roster as form
from tests.proxy.sharing.people import Person
from tests.proxy.sharing.shared import Shared
from tests.proxy.sharing.test_shared_records import service_of
from tests.support.service import Answer, call
from tests.support.store import Store

NOBODY = ids.to_text(ids.new_id())
#: Method, path and body of a request, and how it is refused.
Case = tuple[str, str, Any, tuple[int, str]]


def told(answer: Answer) -> tuple[int, str]:
    """How something was refused, which says what to do next."""
    problem = answer.json()
    return answer.status, problem["code"] if problem.get("hint") else f"no hint: {problem}"


def ask(store: Store, method: str, path: str, body: Any) -> Answer:
    """As a command does on the machine of the proxy."""
    service, auth = store.service, store.account.auth
    return call(method, service.proxy_url + path, body, auth=auth, headers=service.door)


class Before:
    """What of an organization must not change by what is refused."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._was = self._is()

    def _is(self) -> list[bytes]:
        ada, path = self._shared.team.ada, self._shared.team.ada.account.organization
        lists = [f"{path}{one}/" for one in ("roster", "answers", "invitations", "services")]
        return [ada.call("GET", f"{one}?limit=100").body for one in lists]

    def check(self) -> None:
        assert self._is() == self._was


def check_all(shared: Shared, store: Store, cases: Iterable[Case]) -> None:
    before, wrong = Before(shared), []
    for method, path, body, wanted in cases:
        answer = told(ask(store, method, path, body))
        if answer != wanted:
            wrong.append((method, path, str(body)[:200], answer))
    assert not wrong, "\n".join(map(str, wrong))
    before.check()


def words_path(invitation: str) -> str:
    return f"/api/invitations/{invitation}/words/"


def end_now(person: Person, invitation: bytes) -> None:
    """At the API, as a week would."""
    path = person.service.data_dir / "api" / "db.sqlite3"
    with closing(sqlite3.connect(path, timeout=30)) as database, database:
        changed = database.execute(
            "UPDATE organizations_invitation SET expires = '2001-01-01 00:00:00' WHERE id = ?",
            (invitation,),
        )
        assert changed.rowcount == 1


def test_words_that_are_not_right_are_named_and_let_nobody_in(shared: Shared) -> None:
    team = shared.team
    used, grace = shared.person(form.READER), team.somebody()
    grace.folder = shared.folder / "grace" / "proxy"
    other, late, gone = team.somebody(), team.somebody(), team.somebody()
    asked = shared.proxy(grace)
    invited, foreign = team.invite(grace), team.invite(other)
    words, waiting = invited.words.split(), ids.to_text(invited.id)
    mistyped = [
        " ".join(words[:11]),
        " ".join([*words, words[0]]),
        " ".join([*words[:11], "notaword"]),
        " ".join(reversed(words)),
        "",
        "x" * 200_000,
        "\0",
    ]
    wrong = (400, "invitation_words")
    over = (409, "invitation_over")
    check_all(
        shared,
        asked,
        [
            *[("POST", words_path(waiting), {"words": one}, wrong) for one in mistyped],
            ("POST", words_path(waiting), {"words": foreign.words}, wrong),
            # The right ones, of what waits for another account or for none.
            ("POST", words_path(ids.to_text(foreign.id)), {"words": foreign.words}, over),
            ("POST", words_path(NOBODY), {"words": invited.words}, over),
        ],
    )
    assert not list(grace.folder.rglob("*.keyring")), "wrong words make no keyring"

    expired, withdrawn = team.invite(late), team.invite(gone)
    end_now(late, expired.id)
    team.ada.do(
        lambda sharing: sharing.members.remove(team.ada.holder, team.organization, withdrawn.id)
    )
    taken = team.invite(used)
    team.accept(used, taken)
    assert team.settle().admitted == [used.account.email]
    before = Before(shared)
    for person, one in ((late, expired), (gone, withdrawn), (used, taken)):
        store = Store(asked.service, person.account, shared.schema)
        answer = store.proxy("POST", words_path(ids.to_text(one.id)), {"words": one.words})
        assert told(answer) == over
    before.check()
    # And the right words of the right person still count.
    given = asked.proxy("POST", words_path(waiting), {"words": invited.words.upper()})
    assert given.status == 200, given.body
    assert team.settle().admitted == [grace.account.email]


def test_what_an_owner_asks_for_wrongly_changes_nothing(shared: Shared) -> None:
    team = shared.team
    reader = shared.person(form.READER)
    organization, dataset = team.ada.account.organization, team.made["url"]
    people, services = f"{organization}people/", f"{organization}services/"
    ada, known = (f"{people}{ids.to_text(one.id)}/" for one in (team.ada, reader))
    in_dataset = f"{dataset}people/"
    share = {"dataset": dataset, "role": "reader"}
    foreign = {"dataset": team.somebody().new_dataset()["url"], "role": "reader"}

    def invite(address: str, *shares: Any, **more: Any) -> tuple[str, str, Any]:
        return "POST", people, {"email": address, "shares": list(shares), **more}

    check_all(
        shared,
        shared.proxy(team.ada),
        [
            (*invite("nobody", share), (400, "invalid_entry")),
            ("POST", people, {"email": "new@example.org"}, (400, "invalid")),
            (*invite(reader.account.email, share, new=True), (409, "already_member")),
            (*invite("new@example.org", foreign), (404, "not_found")),
            ("PUT", f"{in_dataset}{NOBODY}/", {"role": "reader"}, (404, "not_a_member")),
            (
                "PUT",
                f"{in_dataset}{ids.to_text(team.ada.id)}/",
                {"role": "reader"},
                (409, "owners_have_all"),
            ),
            ("PATCH", f"{people}{NOBODY}/", {"role": "owner"}, (404, "not_a_member")),
            ("DELETE", f"{people}{NOBODY}/", None, (404, "not_a_member")),
            ("DELETE", ada, None, (409, "last_owner")),
            ("PATCH", ada, {"role": "member"}, (409, "last_owner")),
            ("POST", f"{organization}recover/", {"phrases": ["none"]}, (400, "invalid_phrase")),
            ("POST", services, {"name": "x", "shares": [share], "expires": 1}, (400, "invalid")),
        ],
    )
    only = (403, "owners_only")
    check_all(
        shared,
        shared.proxy(reader),
        [
            (*invite("new@example.org", share), only),
            ("PUT", f"{in_dataset}{ids.to_text(reader.id)}/", {"role": "writer"}, only),
            ("PATCH", known, {"role": "owner"}, only),
            ("DELETE", ada, None, only),
            ("POST", services, {"name": "x", "shares": [share]}, only),
        ],
    )


def test_who_has_no_keyring_here_is_told_so_and_gets_none_by_looking(shared: Shared) -> None:
    """It would stand in the way of the one that they bring."""
    shared.proxy(shared.team.ada).ingest([{"n": 1}])
    grace = shared.person(form.WRITER)
    grace.folder = shared.folder / "new-machine" / "proxy"
    empty = shared.proxy(grace)
    people = f"{shared.team.ada.account.organization}people/"
    missing = (422, "key_missing")
    row = {"schema": shared.schema, "data": {"n": 2}}
    check_all(
        shared,
        empty,
        [
            ("GET", people, None, missing),
            ("POST", "/api/records/search/", {"schema": shared.schema}, missing),
            ("POST", "/api/records/ingest/", [row], missing),
            ("DELETE", f"{people}{ids.to_text(grace.id)}/", None, missing),
        ],
    )
    assert not list(grace.folder.rglob("*.keyring"))


def test_a_service_string_that_is_not_right_opens_nothing(shared: Shared) -> None:
    shared.proxy(shared.team.ada).ingest([{"n": 1}])
    program = service_of(shared, form.WRITER)
    asked = shared.proxy(shared.team.ada)
    key, another = program.password, service_of(shared, form.READER).password
    mixed = f"{another.rpartition('_')[0]}_{key.rpartition('_')[2]}"
    before = Before(shared)
    for wrong in (key[:-1], f"{key}x", mixed, "ers1_", "ers1_x_y", "ers2" + key[4:]):
        one = Store(asked.service, replace(program, password=wrong), shared.schema)
        assert told(one.send([{"n": 2}]))[0] == 401
    before.check()
