"""The paths that proxies ask with every search are answered past REST framework, by its rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model.records import CommitUpload, PageRef, RowRef
from tests.server.api import Account, Answer, Api, basic
from tests.server.sessions import session_of
from tests.server.writer import FRAMES, Writer, body_of, person

READS = pytest.mark.parametrize("what", ["manifest", "pages", "rows"])


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


@READS
@pytest.mark.parametrize("since", ["", "since=0", "since=1", "other=1"])
def test_they_answer_with_frames_and_with_the_headers_of_every_path(
    filled: Filled, what: str, since: str
) -> None:
    answer = filled.ask(what, since)
    assert (answer.status, len(answer.body) > 0) == (200, True)
    assert answer.headers["Content-Type"] == wire.MEDIA_TYPE
    methods = "GET, HEAD, OPTIONS" if what == "manifest" else "POST, OPTIONS"
    assert answer.headers["Allow"] == methods
    of_all = filled.account.call("GET", "/api/users/self/").headers
    for name in ("Cache-Control", "X-Frame-Options", "X-Content-Type-Options", "X-Request-ID"):
        assert (name in answer.headers, name in of_all) == (True, True)


@READS
@pytest.mark.parametrize(
    ("since", "status"),
    [("since=2", 409), ("since=-1", 400), ("since=x", 400), ("since=9999999999999999999", 400)],
)
def test_versions_that_the_log_cannot_have_are_refused(
    filled: Filled, what: str, since: str, status: int
) -> None:
    assert filled.ask(what, since).status == status


@pytest.mark.parametrize("what", ["pages", "rows"])
@pytest.mark.parametrize("body", [b"\x00", b"nonsense" * 1000, b"\xff" * 100_000])
def test_bodies_that_are_no_frames_are_refused(filled: Filled, what: str, body: bytes) -> None:
    assert filled.ask(what, "", body=body).status in (400, 413, 415)


@pytest.mark.parametrize("what", ["pages", "rows", "staging"])
def test_a_body_that_is_empty_or_of_another_type_is_refused_by_name(
    filled: Filled, what: str
) -> None:
    path = f"{filled.url}{what}/"
    empty = filled.account.call("POST", path, b"", **FRAMES)
    assert (empty.status, empty.code) == (400, "malformed_frame")
    other = filled.account.call("POST", path, b"{}", **{"Content-Type": "application/json"})
    assert (other.status, other.code) == (415, "unsupported_media_type")


def test_another_method_is_refused_after_the_credentials(filled: Filled) -> None:
    for path, method, allowed in (
        (f"{filled.url}manifest/", "POST", "GET, HEAD, OPTIONS"),
        (f"{filled.url}rows/", "GET", "POST, OPTIONS"),
        ("/api/commits/", "DELETE", "POST, OPTIONS"),
    ):
        answer = filled.account.call(method, path)
        assert (answer.status, answer.code) == (405, "method_not_allowed")
        assert answer.headers["Allow"] == allowed
        assert filled.account.api.call(method, path).status == 401
        options = filled.account.call("OPTIONS", path)
        assert (options.status, options.body, options.headers["Allow"]) == (200, b"", allowed)
        assert filled.account.api.call("OPTIONS", path).status == 401


@READS
def test_a_browser_reads_by_its_session_and_sends_its_csrf_token(filled: Filled, what: str) -> None:
    account = filled.account
    session = session_of(account.api, account.email)
    method, body = ("GET" if what == "manifest" else "POST"), filled.body(what)
    headers = session | (FRAMES if body is not None else {})
    answer = account.api.call(method, f"{filled.url}{what}/", body, headers=headers)
    assert (answer.status, "Cookie" in answer.headers["Vary"]) == (200, True)
    if body is not None:
        del headers["X-CSRFToken"]
        refused = account.api.call(method, f"{filled.url}{what}/", body, headers=headers)
        assert (refused.status, refused.code) == (403, "csrf_failed")


@READS
def test_a_password_reads_as_well(filled: Filled, what: str) -> None:
    account = filled.account
    method, body = ("GET" if what == "manifest" else "POST"), filled.body(what)
    for password, status in ((account.password, 200), ("another one", 401)):
        headers = basic(account.email, password) | (FRAMES if body is not None else {})
        answer = account.api.call(method, f"{filled.url}{what}/", body, headers=headers)
        assert answer.status == status


@READS
def test_a_stranger_is_shown_nothing(filled: Filled, bob: Account, what: str) -> None:
    answer = filled.ask(what, "", bob)
    assert (answer.status, answer.code) == (404, "not_found")


@READS
def test_nothing_is_read_after_the_login_ended(filled: Filled, what: str) -> None:
    account = filled.account
    tokens = account.api.call(
        "POST", "/api/token/", {"email": account.email, "password": account.password}
    ).json()
    other = replace(account, token=tokens["access"])
    assert filled.ask(what, "", other).status == 200
    assert other.call("POST", "/api/accounts/logout/").status in (200, 204)
    answer = filled.ask(what, "", other)
    assert (answer.status, answer.code) == (401, "bad_token")


@READS
def test_an_api_token_keeps_its_limits(filled: Filled, what: str) -> None:
    account = filled.account
    here = filled.writer.schema["dataset"]
    elsewhere = account.new_dataset()["url"]
    for dataset, status in ((here, 200), (elsewhere, 404)):
        wanted = {"name": f"of {dataset}", "scope": "read", "datasets": [dataset]}
        made = account.post("/api/tokens/", {**wanted, "password": account.password})
        limited = replace(account, token=made["token"])
        assert filled.ask(what, "", limited).status == status


def test_a_schema_that_is_not_there_is_missing(filled: Filled) -> None:
    for name in (ids.to_text(ids.new_id()), "x", "%2e%2e"):
        answer = filled.account.call("GET", f"/api/schemas/{name}/manifest/")
        assert (answer.status, answer.code) == (404, "not_found")


def test_nobody_reads_what_its_owners_would_not_see(api: Api) -> None:
    account = api.new_account()
    path = f"{account.new_schema()['url']}manifest/"
    api.execute("ALTER TABLE organizations_auditentry RENAME TO away")
    try:
        refused = [account.call("GET", path).status for _ in range(2)]
    finally:
        api.execute("ALTER TABLE away RENAME TO organizations_auditentry")
    assert min(refused) >= 500
    assert [account.call("GET", path).status for _ in range(2)] == [200, 200]
    entries = account.call("GET", f"{account.organization}audit-log/").json()["results"]
    assert [entry["action"] for entry in entries].count("records.read") == 1


def user_of(account: Account) -> str:
    """The number of an account's user, in SQL."""
    return f"(SELECT id FROM accounts_user WHERE email = '{account.email}')"


@pytest.mark.both_databases
@READS
def test_schemas_that_a_user_reaches_no_more_are_not_read(api: Api, what: str) -> None:
    account = api.new_account()
    writer = Writer(account, account.new_schema())
    upload = writer.adding([person()])
    writer.send(upload)
    filled, other = Filled(writer, upload), account.new_schema()
    user = user_of(account)

    def said() -> set[tuple[int, str]]:
        answer = filled.ask(what, "")
        return {(answer.status, "" if answer.status == 200 else answer.code)}

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


@pytest.mark.both_databases
def test_a_login_that_is_over_reads_nothing(api: Api) -> None:
    account = api.new_account()
    path = f"{account.new_schema()['url']}manifest/"
    assert account.call("GET", path).status == 200
    mine = f"user_id = {user_of(account)}"
    api.execute(f"UPDATE accounts_login SET expires = '2020-01-01 00:00:00' WHERE {mine}")
    assert account.call("GET", path).status == 401
