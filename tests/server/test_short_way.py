"""What proxies ask with every search is answered on a short way, and as on the long one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model.records import CommitUpload, PageRef, RowRef
from tests.server.api import Account, Answer, Api
from tests.server.test_session_store import python
from tests.server.writer import FRAMES, Writer, body_of, person

#: A parameter that no view reads, and that the short way does not know.
LONG = "beside=1"


@dataclass(frozen=True)
class Filled:
    writer: Writer
    upload: CommitUpload

    @property
    def account(self) -> Account:
        return self.writer.account

    @property
    def url(self) -> str:
        return str(self.writer.schema["url"])

    def body(self, what: str) -> bytes | None:
        body = body_of(self.upload)
        if what == "pages":
            return wire.encode([PageRef(body.segments[0].uid, 0)])
        return wire.encode([RowRef(body.groups[0].uid, 0)]) if what == "rows" else None

    def ask(
        self, what: str, query: str, account: Account | None = None, body: bytes | None = None
    ) -> Answer:
        sent = self.body(what) if body is None else body
        headers = FRAMES if sent is not None else {}
        method = "GET" if what == "manifest" else "POST"
        path = f"{self.url}{what}/?{query}".rstrip("?")
        return (account or self.account).call(method, path, sent, **headers)


@pytest.fixture(scope="module")
def filled(api: Api) -> Iterator[Filled]:
    account = api.new_account()
    writer = Writer(account, account.new_schema())
    upload = writer.adding([person()])
    writer.send(upload)
    yield Filled(writer, upload)


def alike(short: Answer, long: Answer) -> bool:
    def shown(answer: Answer) -> tuple[int, bytes, dict[str, str]]:
        changing = {"date", "x-request-id"}
        headers = {
            name.lower(): value
            for name, value in answer.headers.items()
            if name.lower() not in changing
        }
        return answer.status, answer.body, headers

    assert shown(short) == shown(long)
    return True


@pytest.mark.parametrize("what", ["manifest", "pages", "rows"])
@pytest.mark.parametrize("since", ["", "since=0", "since=1"])
def test_both_ways_give_the_same_answer(filled: Filled, what: str, since: str) -> None:
    short, long = filled.ask(what, since), filled.ask(what, f"{since}&{LONG}")
    assert alike(short, long)
    assert (short.status, len(short.body) > 0) == (200, True)


@pytest.mark.parametrize("what", ["manifest", "pages", "rows"])
@pytest.mark.parametrize("since", ["since=2", "since=-1", "since=x", "since=9999999999999999999"])
def test_both_ways_refuse_the_same_versions(filled: Filled, what: str, since: str) -> None:
    short, long = filled.ask(what, since), filled.ask(what, f"{since}&{LONG}")
    assert (short.status, short.code) == (long.status, long.code)
    assert short.status in (400, 409)


@pytest.mark.parametrize("what", ["pages", "rows"])
@pytest.mark.parametrize("body", [b"", b"\x00", b"nonsense" * 1000, b"\xff" * 100_000])
def test_both_ways_refuse_the_same_bodies(filled: Filled, what: str, body: bytes) -> None:
    short, long = filled.ask(what, "", body=body), filled.ask(what, LONG, body=body)
    assert (short.status, short.code) == (long.status, long.code)
    assert short.status in (400, 413, 415)


@pytest.mark.parametrize("what", ["manifest", "pages", "rows"])
def test_both_ways_show_a_stranger_nothing(filled: Filled, bob: Account, what: str) -> None:
    for query in ("", LONG):
        answer = filled.ask(what, query, bob)
        assert (answer.status, answer.code) == (404, "not_found")


@pytest.mark.parametrize("what", ["manifest", "pages", "rows"])
def test_both_ways_end_with_the_login(filled: Filled, what: str) -> None:
    account = filled.account
    tokens = account.api.call(
        "POST", "/api/token/", {"email": account.email, "password": account.password}
    ).json()
    other = replace(account, token=tokens["access"])
    assert filled.ask(what, "", other).status == 200
    assert other.call("POST", "/api/accounts/logout/").status in (200, 204)
    for query in ("", LONG):
        answer = filled.ask(what, query, other)
        assert (answer.status, answer.code) == (401, "bad_token")


@pytest.mark.parametrize("what", ["manifest", "pages", "rows"])
def test_an_api_token_keeps_its_limits_on_both_ways(filled: Filled, what: str) -> None:
    account = filled.account
    here = filled.writer.schema["dataset"]
    elsewhere = account.new_dataset()["url"]
    for dataset, status in ((here, 200), (elsewhere, 404)):
        wanted = {"name": f"of {dataset}", "scope": "read", "datasets": [dataset]}
        made = account.post("/api/tokens/", {**wanted, "password": account.password})
        limited = replace(account, token=made["token"])
        for query in ("", LONG):
            assert filled.ask(what, query, limited).status == status


def test_a_schema_that_is_not_there_is_missing_on_both_ways(filled: Filled) -> None:
    for name in (ids.to_text(ids.new_id()), "x", "%2e%2e"):
        for query in ("", f"?{LONG}"):
            answer = filled.account.call("GET", f"/api/schemas/{name}/manifest/{query}")
            assert (answer.status, answer.code) == (404, "not_found")


def test_nobody_reads_what_its_owners_would_not_see(api: Api) -> None:
    account = api.new_account()
    path = f"{account.new_schema()['url']}manifest/"
    api.execute("ALTER TABLE organizations_auditentry RENAME TO away")
    try:
        refused = [account.call("GET", path + query).status for query in ("", f"?{LONG}", "")]
    finally:
        api.execute("ALTER TABLE away RENAME TO organizations_auditentry")
    assert min(refused) >= 500
    assert [account.call("GET", path).status for _ in range(2)] == [200, 200]
    entries = account.call("GET", f"{account.organization}audit-log/").json()["results"]
    assert [one["action"] for one in entries].count("records.read") == 1


def user_of(account: Account) -> str:
    """The number of an account's user, in SQL."""
    return f"(SELECT id FROM accounts_user WHERE email = '{account.email}')"


@pytest.mark.parametrize("what", ["manifest", "pages", "rows"])
def test_what_a_user_reaches_no_more_is_read_on_neither_way(api: Api, what: str) -> None:
    account = api.new_account()
    writer = Writer(account, account.new_schema())
    upload = writer.adding([person()])
    writer.send(upload)
    filled, other = Filled(writer, upload), account.new_schema()
    user = user_of(account)

    def said() -> set[tuple[int, str]]:
        answers = [filled.ask(what, query) for query in ("", LONG)]
        return {(one.status, "" if one.status == 200 else one.code) for one in answers}

    def sql(url: str) -> str:
        own = ids.from_text(url.rstrip("/").rpartition("/")[2]).hex()
        return f"X'{own}'" if api.database_url is None else f"'\\x{own}'"

    def share(dataset: str, schema: str | None) -> None:
        stored = "NULL" if schema is None else sql(schema)
        api.execute(
            'INSERT INTO roster_shared (organization_id, member, dataset, "schema", writes)'
            f" SELECT {sql(account.organization)}, {user}, {sql(dataset)}, {stored}, false"
        )

    mine = f"user_id = {user}"
    reached, hidden = {(200, "")}, {(404, "not_found")}
    assert said() == reached
    api.execute(f"UPDATE organizations_membership SET all_data = false WHERE {mine}")
    assert said() == hidden
    share(other["dataset"], None)
    share(other["dataset"], other["url"])
    assert said() == hidden
    share(writer.schema["dataset"], writer.schema["url"])
    assert said() == reached
    api.execute(f'DELETE FROM roster_shared WHERE "schema" = {sql(writer.schema["url"])}')
    assert said() == hidden
    share(writer.schema["dataset"], None)
    assert said() == reached
    api.execute(f"DELETE FROM organizations_membership WHERE {mine}")
    assert said() == hidden
    api.execute(f"UPDATE accounts_user SET is_active = false WHERE id = {user}")
    assert {status for status, _ in said()} == {401}


def test_a_login_that_is_over_reads_on_neither_way(api: Api) -> None:
    account = api.new_account()
    path = f"{account.new_schema()['url']}manifest/"
    assert account.call("GET", path).status == 200
    mine = f"user_id = {user_of(account)}"
    api.execute(f"UPDATE accounts_login SET expires = '2020-01-01 00:00:00' WHERE {mine}")
    assert [account.call("GET", path + query).status for query in ("", f"?{LONG}")] == [401, 401]


#: Asks the short way alone, in the API's own code, for something at which it makes a mistake.
_MISTAKEN = """
import django
django.setup()
from django.test import RequestFactory
from encrypted_records.server import permissions
from encrypted_records.errors import NotAuthenticated
from encrypted_records.server.data_plane import short_way

def way(request):
    print("long way")

def ask(error):
    def data_of_login(*_):
        raise error
    short_way.claims_of = lambda header: ("login", b"secret")
    permissions.data_of_login = data_of_login
    try:
        short_way.ShortWay(way)(RequestFactory().get("/api/schemas/any/manifest/"))
    except TypeError:
        print("mistake")

ask(NotAuthenticated("no"))
ask(TypeError("a mistake of ours"))
"""


def test_a_mistake_on_the_short_way_is_not_hidden_by_the_long_one(filled: Filled) -> None:
    api = filled.account.api
    said = python(api.data_dir, api.database_url, "-c", _MISTAKEN)
    assert said.splitlines() == ["long way", "mistake"]
