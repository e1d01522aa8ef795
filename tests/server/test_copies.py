"""A copy of the API's folder and database is no login: not by what stands in it, not by its key."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import jwt
import pytest

from encrypted_records.model import ids
from tests.server.api import PASSWORD, Account, Api, running_api, signed_values
from tests.server.copies import Row, clone, copy_of, forms, read_all, texts
from tests.server.sessions import NEW_PASSWORD, session_of
from tests.server.test_admin import Browser
from tests.server.test_logins import bearer, refresh, self_status
from tests.support.postgres import NewDatabase
from tests.support.service import ANSWER_SECONDS, MANY

RESET = "/api/accounts/send-reset-password-link/"


@dataclass(frozen=True)
class Victim:
    """Somebody with a login of every kind, who can use all of it at the time of the theft."""

    account: Account
    user_id: str
    pair: dict[str, str]
    session: dict[str, str]
    #: of somebody whose address was not confirmed yet
    verification: dict[str, Any]
    reset: dict[str, Any]
    job: str
    admin: Browser


@dataclass(frozen=True)
class Robbed:
    """An API, what was stolen of it, and whom it would let in."""

    api: Api
    victim: Victim
    key: str
    tables: dict[str, list[Row]]
    #: all values of all tables, as somebody could send them; without those of an empty database
    values: list[str]
    #: the copy: a data folder, and the URL of its database if that is PostgreSQL
    folder: Path
    database_url: str | None


@pytest.fixture(scope="module")
def robbed(tmp_path_factory: pytest.TempPathFactory, postgresql: NewDatabase) -> Iterator[Robbed]:
    folder, url = tmp_path_factory.mktemp("robbed"), postgresql.with_tables()
    environment = {
        "ERS_RATE_LIMITS": f"{MANY},tokens=1000000/minute",
        "ERS_ADMIN": "victim@example.org",
    }
    with running_api(folder, database_url=url, environment=environment) as api:
        everybody_knows = texts(read_all(*copy_of(api, tmp_path_factory.mktemp("empty"))))
        victim = with_every_login(api, "victim@example.org")
        copy, copied_url = copy_of(api, tmp_path_factory.mktemp("copy"))
        tables = read_all(copy, copied_url)
        values = sorted(texts(tables) - everybody_knows)
        key = (copy / "data" / "api" / "secret.key").read_text()
        yield Robbed(api, victim, key, tables, values, copy, copied_url)
        # All that was tried has ended nothing of the owner's.
        works(api, victim)


def with_every_login(api: Api, address: str) -> Victim:
    assert api.register(address).status == 201
    assert api.call("POST", "/api/accounts/verify-registration/", api.signed(address)).status == 200
    pair = api.token_pair(address, PASSWORD).json()
    me = api.call("GET", "/api/users/self/", headers=bearer(pair["access"])).json()
    account = Account(api, address, PASSWORD, pair["access"], me["organizations"][0])
    waiting = api.new_address()
    assert api.register(waiting).status == 201
    assert api.call("POST", RESET, {"email": address}).status == 200
    admin = Browser(api)
    assert admin.log_in(address, PASSWORD).status == 302
    job = account.call("POST", "/api/jobs/0196f0a0-0000-4000-8000-000000000000/token/")
    assert job.status == 201, job.body
    account.post(f"{account.organization}invitations/", {"email": waiting, "role": "member"})
    victim = Victim(
        account,
        me["id"],
        pair,
        session_of(api, address),
        signed_values(api.messages_to(waiting, 2)[0]),
        api.signed(address, count=2),
        job.json()["token"],
        admin,
    )
    works(api, victim)
    return victim


def works(api: Api, victim: Victim) -> None:
    assert self_status(api, bearer(victim.pair["access"])) == 200
    assert self_status(api, victim.session) == 200
    assert verified(api, victim.pair["refresh"])
    assert victim.admin.ask("GET", "/admin/").status == 200
    assert as_job(api, victim.job) == 404


def verified(api: Api, token: str) -> bool:
    return api.call("POST", "/api/token/verify/", {"token": token}).status == 200


def as_job(api: Api, token: str) -> int:
    """404 for who may ask for this manifest, which is none; 401 for anybody else."""
    path = f"/api/schemas/{ids.to_text(ids.new_id())}/manifest/"
    return api.call("GET", path, headers={"Authorization": f"Job {token}"}).status


class Trier:
    """Shows values to an API, one connection for all, and collects what it lets in."""

    def __init__(self, api: Api) -> None:
        self.connection = HTTPConnection("127.0.0.1", api.port, timeout=ANSWER_SECONDS)

    def status(self, method: str, path: str, body: Any = None, **headers: str) -> int:
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        self.connection.request(method, path, data, headers)
        answer = self.connection.getresponse()
        answer.read()
        return answer.status

    def as_bearer(self, token: str) -> int:
        return self.status("GET", "/api/users/self/", Authorization=f"Bearer {token}")

    def as_cookie(self, value: str) -> int:
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        return self.status("GET", "/api/users/self/", Cookie=f'sessionid="{quoted}"')

    def as_refresh(self, token: str) -> int:
        return self.status("POST", "/api/token/refresh/", {"refresh": token})

    def as_job(self, token: str) -> int:
        path = f"/api/schemas/{ids.to_text(ids.new_id())}/manifest/"
        return self.status("GET", path, Authorization=f"Job {token}")

    def as_link(self, signed: dict[str, Any], kind: str) -> int:
        return self.status("POST", f"/api/accounts/{kind}/", signed)


@pytest.fixture
def trier(robbed: Robbed) -> Iterator[Trier]:
    made = Trier(robbed.api)
    yield made
    made.connection.close()


def test_what_stands_in_any_table_lets_nobody_in(robbed: Robbed, trier: Trier) -> None:
    assert {"accounts_login", "django_session", "accounts_link", "job_grant"} <= set(robbed.tables)
    assert robbed.victim.user_id in robbed.values  # so ids are among them
    assert len(robbed.values) > 80
    let_in: list[tuple[str, int]] = []
    for value in robbed.values:
        for way in (trier.as_bearer, trier.as_cookie, trier.as_refresh, trier.as_job):
            if (status := way(value)) not in (401, 400):
                let_in.append((f"{way.__name__}: {value}", status))
    assert let_in == []


def test_no_value_of_any_table_is_the_signature_of_a_link(robbed: Robbed, trier: Trier) -> None:
    waiting = robbed.victim.verification
    reset = robbed.victim.reset | {"password": NEW_PASSWORD}
    for value in robbed.values:
        change = {"signature": value[:200]}
        assert trier.as_link(waiting | change, "verify-registration") == 400
        assert trier.as_link(reset | change, "reset-password") == 400


def test_no_secret_that_was_given_out_stands_in_any_table(robbed: Robbed) -> None:
    """Neither as it is, nor as the bytes that it spells, nor as a part of something else."""
    victim = robbed.victim
    cookies = dict(
        pair.split("=", 1) for pair in victim.session["Cookie"].split("; ") if "=" in pair
    )
    claims = jwt.decode(victim.pair["access"], options={"verify_signature": False})
    next_one = jwt.decode(victim.pair["refresh"], options={"verify_signature": False})
    given = [
        cookies["sessionid"],
        victim.admin.cookies["sessionid"],
        claims["secret"],
        next_one["jti"],
        victim.job,
        victim.reset["signature"].split(".")[0],
        victim.verification["signature"].split(".")[0],
    ]
    assert min(map(len, given)) >= 32
    spelled = [base64.urlsafe_b64decode(claims["secret"] + "="), bytes.fromhex(next_one["jti"])]
    everything = repr(robbed.tables) + " ".join(robbed.values)
    assert [one for one in given if one in everything] == []
    assert [one for one in spelled if repr(one)[2:-1] in everything] == []


def test_tokens_that_the_stolen_key_signs_over_any_column_let_nobody_in(
    robbed: Robbed, trier: Trier
) -> None:
    logins = [ids.to_text(bytes(row["id"])) for row in robbed.tables["accounts_login"]]
    assert len(logins) >= 2
    mine = jwt.decode(robbed.victim.pair["access"], options={"verify_signature": False})
    assert mine["login"] in logins
    now = int(time.time())
    whole: list[Any] = [None, "", 0, [], {"secret": 1}, "\ud800", "x" * 3000]
    for secret in [*whole, *robbed.values]:
        for login in logins:
            claims = {"login": login, "secret": secret, "iat": now, "exp": now + 600}
            claims |= {"user_id": robbed.victim.user_id}
            access = claims | {"token_type": "access", "jti": "0" * 32}
            assert trier.as_bearer(jwt.encode(access, robbed.key, "HS256")) == 401, secret
            again = claims | {"token_type": "refresh", "jti": str(secret)}
            token = jwt.encode(again, robbed.key, "HS256")
            if len(token) <= 4096:
                assert trier.as_refresh(token) == 401, secret
    without = {"login": mine["login"], "exp": now + 600, "token_type": "access", "jti": "0" * 32}
    assert trier.as_bearer(jwt.encode(without, robbed.key, "HS256")) == 401
    odd = without | {"exp": 10**30}
    assert trier.as_bearer(jwt.encode(odd, robbed.key, "HS256")) == 401


def test_the_stolen_key_is_the_one_that_signs(robbed: Robbed, trier: Trier) -> None:
    """Else the test above would refuse for the wrong reason."""
    claims = jwt.decode(robbed.victim.pair["access"], robbed.key, ["HS256"])
    assert trier.as_bearer(jwt.encode(claims, robbed.key, "HS256")) == 200


def test_a_token_of_an_api_whose_clock_is_some_seconds_ahead_is_valid(
    robbed: Robbed, trier: Trier
) -> None:
    claims = jwt.decode(robbed.victim.pair["access"], robbed.key, ["HS256"])
    now = int(time.time())
    answers = [
        trier.as_bearer(jwt.encode(claims | {"iat": now + ahead}, robbed.key, "HS256"))
        for ahead in (15, 3600)
    ]
    assert answers == [200, 401]


def test_the_secret_of_one_login_is_worth_nothing_for_another(robbed: Robbed, trier: Trier) -> None:
    """Also to somebody who has an account of their own beside the stolen key."""
    thief = robbed.api.new_account()
    theirs = jwt.decode(thief.token, robbed.key, ["HS256"])
    assert trier.as_bearer(jwt.encode(theirs, robbed.key, "HS256")) == 200
    victims = jwt.decode(robbed.victim.pair["access"], robbed.key, ["HS256"])
    mixed = victims | {"secret": theirs["secret"]}
    assert trier.as_bearer(jwt.encode(mixed, robbed.key, "HS256")) == 401
    again = mixed | {"token_type": "refresh"}
    assert trier.as_refresh(jwt.encode(again, robbed.key, "HS256")) == 401


def test_links_that_the_stolen_key_signs_are_refused(robbed: Robbed, trier: Trier) -> None:
    """Made by the API's own code, on the copy, for the very users of the copy."""
    made = run_on_copy(
        robbed,
        "from encrypted_records.server.accounts import mail\n"
        f"reset = mail.ResetLink({{'user_id': {robbed.victim.user_id!r}}})\n"
        f"waiting = {robbed.victim.verification['user_id']!r}\n"
        "verification = mail.VerificationLink({'user_id': waiting})\n"
        "print(json.dumps([reset.get_signed_data(), verification.get_signed_data()]))\n",
    )
    reset, verification = made
    assert trier.as_link(reset | {"password": NEW_PASSWORD}, "reset-password") == 400
    assert trier.as_link(verification, "verify-registration") == 400


def run_on_copy(robbed: Robbed, script: str) -> Any:
    """What a script says as JSON that runs in the API's own code, on the stolen copy."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "encrypted_records.server.settings",
        "ERS_DATA_DIR": str(robbed.folder / "data"),
        "ERS_DATABASE_URL": robbed.database_url or "",
    }
    start = "import json, django\ndjango.setup()\n"
    done = subprocess.run(
        [sys.executable, "-c", start + script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_an_api_started_on_the_copy_gives_out_nothing_that_the_real_one_takes(
    robbed: Robbed, tmp_path: Path
) -> None:
    """Whoever has the copy can have a new password there, by a message that is theirs to read."""
    folder, url = again(robbed, tmp_path)
    real, address = robbed.api, robbed.victim.account.email
    environment = {"ERS_RATE_LIMITS": MANY, "ERS_ADMIN": address}
    with running_api(folder, database_url=url, environment=environment) as thieves:
        assert thieves.call("POST", RESET, {"email": address}).status == 200
        sent = thieves.signed(address) | {"password": NEW_PASSWORD}
        refused = real.call("POST", "/api/accounts/reset-password/", sent)
        assert (refused.status, refused.code) == (400, "invalid_link")

        assert thieves.call("POST", "/api/accounts/reset-password/", sent).status == 200
        pair = thieves.token_pair(address, NEW_PASSWORD).json()
        session = session_of(thieves, address, NEW_PASSWORD)
        admin = Browser(thieves)
        assert admin.log_in(address, NEW_PASSWORD).status == 302
        assert self_status(thieves, bearer(pair["access"])) == 200
        assert admin.ask("GET", "/admin/").status == 200

    assert self_status(real, bearer(pair["access"])) == 401
    assert self_status(real, session) == 401
    assert refresh(real, pair["refresh"]).status == 401
    there = Browser(real)
    there.cookies |= admin.cookies
    assert there.ask("GET", "/admin/").status == 302


def again(robbed: Robbed, tmp_path: Path) -> tuple[Path, str | None]:
    """A copy of the copy, to work with."""
    folder = tmp_path / "copy"
    shutil.copytree(robbed.folder, folder)
    if robbed.database_url is None:
        return folder, None
    base, _, name = robbed.database_url.rpartition("/")
    clone(base, name, f"{name}2")
    return folder, f"{base}/{name}2"


def test_the_operators_pages_take_nothing_of_the_session_table(robbed: Robbed) -> None:
    for row in robbed.tables["django_session"]:
        for value in {str(row["session_key"]), *forms(row["session_data"])}:
            there = Browser(robbed.api)
            there.cookies["sessionid"] = value if ";" not in value else ""
            assert there.ask("GET", "/admin/").status == 302
