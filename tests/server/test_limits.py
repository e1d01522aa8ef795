"""Lockout and throttles: who is kept waiting, for how long, and who is not."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.api import PASSWORD, Account, Answer, Api, basic, running_api
from tests.server.sessions import NEW_PASSWORD, session_of
from tests.support.postgres import NewDatabase

ELSEWHERE = {"X-Forwarded-For": "198.51.100.7"}


@pytest.fixture(scope="module")
def fronted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API that believes its peer, with the limits it has by itself."""
    environment = {"ERS_TRUSTED_PROXIES": "127.0.0.1", "ERS_RATE_LIMITS": "passwords=1000/minute"}
    with running_api(tmp_path_factory.mktemp("fronted"), environment=environment) as running:
        yield running


@pytest.fixture
def account(fronted: Api) -> Account:
    return fronted.new_account()


def log_in(api: Api, email: str, password: str, way: str = "token", **headers: str) -> Answer:
    if way == "basic":
        sent = basic(email, password) | headers
        return api.call("GET", "/api/users/self/", headers=sent)
    path = {"token": "/api/token/", "login": "/api/accounts/login/"}[way]
    return api.call("POST", path, {"email": email, "password": password}, headers=headers)


def lock_out(api: Api, email: str) -> Answer:
    """Lock an address by its tenth wrong password, most of which are only noted."""
    assert log_in(api, email, "wrong").status == 401
    api.execute("UPDATE accounts_tally SET count = 9 WHERE count = 1 AND until IS NULL")
    assert log_in(api, email, "wrong").status == 401
    return log_in(api, email, "wrong")


def test_ten_wrong_passwords_by_any_way_close_all_three(fronted: Api, account: Account) -> None:
    ways = ["token", "login", "basic"] * 4
    answers = [log_in(fronted, account.email, f"wrong {at}", ways[at]) for at in range(11)]
    assert [answer.status for answer in answers] == [401] * 10 + [429]
    refused = answers[-1]
    assert refused.code == "too_many_failures"
    assert 1 <= int(refused.headers["Retry-After"]) <= 5
    for way in ("token", "login", "basic"):
        again = log_in(fronted, account.email.upper(), PASSWORD, way)
        assert (again.status, again.code) == (429, "too_many_failures")
        assert again.headers["Retry-After"].isdecimal()


def test_what_no_address_can_be_costs_neither_a_sorting_nor_a_hash(fronted: Api) -> None:
    def seconds(address: str) -> float:
        started = fronted.busy_seconds
        for _ in range(20):
            refused = log_in(fronted, address, "wrong", "basic", **{"X-Forwarded-For": _anybody()})
            assert (refused.status, refused.code) == (401, "bad_credentials")
        return fronted.busy_seconds - started

    # By insertion, twenty seconds more.
    assert seconds("\u0315\u0300" * 12_000) < 5 + 10 * seconds("nobody at all")


def _anybody() -> str:
    return f"198.51.100.{secrets.randbelow(250)}, 203.0.113.{secrets.randbelow(250)}"


def test_an_address_without_account_is_locked_alike(fronted: Api, account: Account) -> None:
    nobody = fronted.new_address()
    unknown, known = lock_out(fronted, nobody), lock_out(fronted, account.email)
    assert (unknown.status, unknown.json()) == (known.status, known.json())


def test_a_lockout_leaves_sessions_tokens_and_other_places_alone(
    fronted: Api, account: Account
) -> None:
    session = session_of(fronted, account.email)
    pair = fronted.token_pair(account.email, PASSWORD).json()
    lock_out(fronted, account.email)
    assert fronted.call("GET", "/api/users/self/", headers=session).status == 200
    bearer = {"Authorization": f"Bearer {pair['access']}"}
    assert fronted.call("GET", "/api/users/self/", headers=bearer).status == 200
    refreshed = fronted.call("POST", "/api/token/refresh/", {"refresh": pair["refresh"]})
    assert refreshed.status == 200
    assert log_in(fronted, account.email, PASSWORD, **ELSEWHERE).status == 200


def test_each_further_failure_doubles_the_wait(fronted: Api, account: Account) -> None:
    lock_out(fronted, account.email)
    waits = []
    for _ in range(3):
        fronted.execute("UPDATE accounts_tally SET until = NULL")
        assert log_in(fronted, account.email, "wrong").status == 401
        waits.append(int(log_in(fronted, account.email, "wrong").headers["Retry-After"]))
    # Each is shorter by what has passed since, on a busy machine by seconds.
    assert 5 < waits[0] <= 10 < waits[1] <= 20 < waits[2] <= 40, waits


def test_nobody_waits_for_weeks_because_the_clock_was_ahead_for_a_while(
    fronted: Api, account: Account
) -> None:
    path, body = "/api/accounts/send-reset-password-link/", {"email": "nobody@example.org"}
    source = {"X-Forwarded-For": "192.0.2.79"}
    assert fronted.call("POST", path, body, headers=source).status == 200
    assert lock_out(fronted, account.email).status == 429
    later = "2099-01-01 00:00:00+00:00"
    fronted.execute(
        f"UPDATE accounts_tally SET count = 99, until = '{later}', forgotten = '{later}'"
    )
    assert log_in(fronted, account.email, PASSWORD).status == 200
    assert fronted.call("POST", path, body, headers=source).status == 200


def test_the_right_password_clears_the_count(fronted: Api, account: Account) -> None:
    for _ in range(2):
        assert log_in(fronted, account.email, "wrong").status == 401
        fronted.execute("UPDATE accounts_tally SET count = 8 WHERE count = 1 AND until IS NULL")
        assert log_in(fronted, account.email, "wrong").status == 401
        assert log_in(fronted, account.email, PASSWORD).status == 200


def test_the_old_password_of_a_change_is_guarded_too(fronted: Api, account: Account) -> None:
    body = {
        "old_password": "wrong",
        "password": NEW_PASSWORD,
        "password_confirm": NEW_PASSWORD,
    }
    lock_out(fronted, account.email)
    fronted.execute("UPDATE accounts_tally SET until = NULL")
    statuses = [
        account.call("POST", "/api/accounts/change-password/", body).status for _ in range(2)
    ]
    assert statuses == [400, 429]


def test_only_a_trusted_peer_may_say_who_is_asking(api: Api, ada: Account) -> None:
    """Else whoever guesses passwords would be somebody else each time."""
    account = api.new_account()
    claims = [{"X-Forwarded-For": f"198.51.100.{at}"} for at in range(10)]
    assert {log_in(api, account.email, "wrong", **claim).status for claim in claims} == {401}
    assert log_in(api, account.email, PASSWORD, **ELSEWHERE).status == 429


def test_what_stands_left_of_the_trusted_hops_is_not_believed(
    fronted: Api, account: Account
) -> None:
    for at in range(10):
        claim = {"X-Forwarded-For": f"203.0.113.{at}, 198.51.100.9"}
        assert log_in(fronted, account.email, "wrong", **claim).status == 401
    same = {"X-Forwarded-For": "198.51.100.9, 127.0.0.1"}
    assert log_in(fronted, account.email, PASSWORD, **same).status == 429


def test_processes_share_one_count(tmp_path: Path, postgresql: NewDatabase) -> None:
    url = postgresql.with_tables()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    key = {"ERS_SECRET_KEY_FILE": str(tmp_path / "secret.key")}
    with (
        running_api(tmp_path / "one", database_url=url, environment=key) as one,
        running_api(tmp_path / "other", database_url=url, environment=key) as other,
    ):
        address = one.new_address()
        for at in range(10):
            assert log_in([one, other][at % 2], address, "wrong").status == 401
        for api in (one, other):
            assert log_in(api, address, "wrong").status == 429


@pytest.mark.parametrize(
    ("path", "body", "times"),
    [
        ("/api/accounts/register/", {}, 20),
        ("/api/accounts/send-reset-password-link/", {"email": "nobody@example.org"}, 20),
        ("/api/accounts/reset-password/", {}, 60),
    ],
)
def test_what_sends_messages_or_tries_links_is_throttled_by_source(
    fronted: Api, path: str, body: dict[str, str], times: int
) -> None:
    source = {"X-Forwarded-For": "192.0.2.77"}
    statuses = {fronted.call("POST", path, body, headers=source).status for _ in range(times)}
    assert 429 not in statuses
    refused = fronted.call("POST", path, body, headers=source)
    assert (refused.status, refused.code) == (429, "throttled")
    assert 3500 < int(refused.headers["Retry-After"]) <= 3600
    assert fronted.call("POST", path, body, headers=ELSEWHERE).status != 429


def test_a_mailbox_gets_ten_messages_an_hour_and_the_answer_stays_the_same(fronted: Api) -> None:
    account = fronted.new_account()
    path = "/api/accounts/send-reset-password-link/"
    source = {"X-Forwarded-For": "192.0.2.78"}
    answers = [
        fronted.call("POST", path, {"email": account.email}, headers=source) for _ in range(12)
    ]
    assert {(answer.status, answer.body) for answer in answers} == {(200, answers[0].body)}
    # The courier works in order: what somebody else is sent comes after all of these.
    other = fronted.new_address()
    assert fronted.register(other).status == 201
    fronted.messages_to(other, 1)
    assert len(fronted.messages_to(account.email, 10)) == 10


def test_no_address_or_password_that_was_tried_stands_in_the_database(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        log_in(api, "unmistakable-needle@example.org", "unmistakable-needle")
    files = (tmp_path / "data" / "api").glob("db.sqlite3*")
    assert not any(b"unmistakable-needle" in path.read_bytes() for path in files)


def test_https_is_believed_of_a_trusted_peer_alone(fronted: Api, api: Api) -> None:
    told = {"X-Forwarded-Proto": "https"}
    header = "Strict-Transport-Security"
    assert fronted.call("GET", "/api/status/", headers=told).headers[header] == "max-age=31536000"
    assert header not in api.call("GET", "/api/status/", headers=told).headers


def test_what_proxies_ask_with_every_search_says_https_too(fronted: Api) -> None:
    account = fronted.new_account()
    path = f"{account.new_schema()['url']}manifest/"
    answer = account.call("GET", path, **{"X-Forwarded-Proto": "https"})
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
