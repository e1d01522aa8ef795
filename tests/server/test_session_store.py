"""Sessions are stored under a digest of their cookie, and do whatever Django's own sessions do."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.server.api import Account, Api
from tests.server.sessions import session_of
from tests.server.test_logins import self_status

#: Runs in the API's own code, on the database of a running API.
_ENGINE = """
import json
import django
django.setup()
from django.contrib.sessions.models import Session
from encrypted_records.server.accounts.logins import SessionStore, login_secret

def keys():
    return set(Session.objects.values_list("session_key", flat=True))

said = {}
first = SessionStore()
first["who"] = "ada"
first.save()
cookie = first.session_key
said["by its cookie"] = SessionStore(cookie).get("who")
said["cookie in the table"] = cookie in keys()
said["by what the table has"] = [SessionStore(key).get("who") for key in keys()].count("ada")
said["exists"] = [first.exists(key) for key in (cookie, "x" * 32)]
before = len(keys())
first.cycle_key()
first.save()
said["after a new key"] = [SessionStore(key).get("who") for key in (cookie, first.session_key)]
said["secrets differ"] = login_secret(first) != login_secret(SessionStore(cookie))
said["rows more"] = len(keys()) - before
last = first.session_key
first.flush()
said["after its end"] = SessionStore(last).get("who")
said["rows less"] = before - len(keys())
said["without a cookie"] = login_secret(SessionStore())
print(json.dumps(said))
"""


def environment(data_dir: Path, database_url: str | None) -> dict[str, str]:
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "encrypted_records.server.settings",
        "ERS_DATA_DIR": str(data_dir),
        "ERS_DATABASE_URL": database_url or "",
    }


def python(data_dir: Path, database_url: str | None, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment(data_dir, database_url),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(api: Api, statement: str) -> list[Any]:
    if api.database_url is None:
        with closing(sqlite3.connect(api.data_dir / "api" / "db.sqlite3")) as database:
            return database.execute(statement).fetchall()
    with psycopg.connect(api.database_url) as server:
        return server.execute(statement.encode()).fetchall()


def cookie_of(session: dict[str, str]) -> str:
    [found] = [
        pair.partition("=")[2]
        for pair in session["Cookie"].split("; ")
        if pair.startswith("sessionid=")
    ]
    return found


def test_a_session_is_found_by_its_cookie_and_not_by_what_the_table_has(
    api: Api, ada: Account
) -> None:
    session = session_of(api, ada.email)
    cookie = cookie_of(session)
    keys = [key for (key,) in rows(api, "SELECT session_key FROM django_session")]
    assert keys
    assert cookie not in keys
    assert self_status(api, {"Cookie": f"sessionid={cookie}"}) == 200
    for key in keys:
        assert self_status(api, {"Cookie": f'sessionid="{key}"'}) == 401


def test_a_session_s_whole_life(api: Api) -> None:
    said = json.loads(python(api.data_dir, api.database_url, "-c", _ENGINE))
    assert said == {
        "by its cookie": "ada",
        "cookie in the table": False,
        "by what the table has": 0,
        "exists": [True, False],
        "after a new key": [None, "ada"],
        "secrets differ": True,
        "rows more": 0,
        "after its end": None,
        "rows less": 1,
        "without a cookie": "",
    }


def test_logging_out_and_a_new_password_leave_no_row_behind(api: Api) -> None:
    account = api.new_account()
    count = "SELECT count(*) FROM django_session"
    [(before,)] = rows(api, count)
    session = session_of(api, account.email)
    body = {"old_password": account.password}
    body |= dict.fromkeys(("password", "password_confirm"), "staple battery horse")
    changed = api.call("POST", "/api/accounts/change-password/", body, headers=session)
    assert changed.status == 200
    [(between,)] = rows(api, count)
    assert between == before + 1, "the row went over to the new cookie"
    new = [line for line in changed.headers.get_all("Set-Cookie") or [] if "sessionid" in line]
    session["Cookie"] = session["Cookie"].replace(
        cookie_of(session), new[0].partition(";")[0].partition("=")[2]
    )
    assert self_status(api, session) == 200
    assert api.call("POST", "/api/accounts/logout/", headers=session).status == 200
    assert rows(api, count) == [(before,)]


def test_a_token_of_a_session_ends_when_its_cookie_is_replaced(api: Api) -> None:
    account = api.new_account()
    session = session_of(api, account.email)
    traded = api.call("POST", "/api/token/session/", headers=session).json()["access"]
    bearer = {"Authorization": f"Bearer {traded}"}
    assert self_status(api, bearer) == 200
    body = {"old_password": account.password}
    body |= dict.fromkeys(("password", "password_confirm"), "staple battery horse")
    assert api.call("POST", "/api/accounts/change-password/", body, headers=session).status == 200
    assert self_status(api, bearer) == 401


@pytest.mark.both_databases
def test_expired_sessions_are_cleared_and_others_stay(api: Api, ada: Account) -> None:
    stays = session_of(api, ada.email)
    goes = session_of(api, ada.email)
    [(before,)] = rows(api, "SELECT count(*) FROM django_session")
    # Which of the rows is whose, the table does not tell: the newest is the last that was made.
    api.execute(
        "UPDATE django_session SET expire_date = '2020-01-01' WHERE session_key ="
        " (SELECT session_key FROM django_session ORDER BY expire_date DESC LIMIT 1)"
    )
    assert self_status(api, goes) == 401
    python(api.data_dir, api.database_url, "-m", "django", "clearsessions")
    assert rows(api, "SELECT count(*) FROM django_session") == [(before - 1,)]
    assert self_status(api, stays) == 200
