"""A database put back from a backup knows what was there then, and nothing since."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.server.api import PASSWORD, Account, Api, running_api
from tests.server.copies import clone, copy_of
from tests.server.sessions import NEW_PASSWORD, session_of
from tests.server.test_copies import RESET
from tests.server.test_logins import bearer, refresh, self_status
from tests.support.postgres import NewDatabase


@dataclass(frozen=True)
class Given:
    """What a user was given at one time."""

    pair: dict[str, str]
    session: dict[str, str]


def given(account: Account) -> Given:
    pair = cast(dict[str, str], account.api.token_pair(account.email, PASSWORD).json())
    return Given(pair, session_of(account.api, account.email))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_old_database_knows_nothing_that_was_given_out_since(
    kind: str, tmp_path: Path, postgresql: NewDatabase
) -> None:
    """What was ended since is back with it, which is why a new key belongs to such a database."""
    url = postgresql.with_tables() if kind == "postgresql" else None
    with ExitStack() as running:
        api = running.enter_context(running_api(tmp_path, database_url=url))
        account = api.new_account()
        before, ended, rotated = given(account), given(account), given(account)
        old, old_url = copy_of(api, tmp_path / "old")
        rotated_on = refresh(api, rotated.pair["refresh"]).json()
        for headers in (bearer(ended.pair["access"]), ended.session):
            assert api.call("POST", "/api/accounts/logout/", headers=headers).status == 200
            assert self_status(api, headers) == 401
        since = given(account)
        assert api.call("POST", RESET, {"email": account.email}).status == 200
        link = api.signed(account.email, count=2) | {"password": NEW_PASSWORD}

        if old_url is None:
            running.close()
        restore(api, old, old_url)  # of PostgreSQL, under the running API
        if old_url is None:
            api = running.enter_context(running_api(tmp_path))

        assert self_status(api, bearer(since.pair["access"])) == 401
        assert self_status(api, since.session) == 401
        assert refresh(api, since.pair["refresh"]).status == 401
        assert api.call("POST", "/api/accounts/reset-password/", link).code == "invalid_link"
        assert self_status(api, bearer(before.pair["access"])) == 200
        assert self_status(api, before.session) == 200
        # The old database takes the new refresh token for one that was used already.
        assert refresh(api, rotated_on["refresh"]).status == 401
        assert self_status(api, bearer(rotated_on["access"])) == 401
        assert self_status(api, bearer(ended.pair["access"])) == 200, "as operations.md says"

    (tmp_path / "data" / "api" / "secret.key").unlink()
    with running_api(tmp_path, database_url=url) as api:
        for one in (before, ended, since, rotated):
            assert self_status(api, bearer(one.pair["access"])) == 401
            assert self_status(api, one.session) == 401
            assert refresh(api, one.pair["refresh"]).status == 401
        assert api.token_pair(account.email, PASSWORD).status == 200


def restore(api: Api, old: Path, old_url: str | None) -> None:
    if api.database_url is None or old_url is None:
        for path in (api.data_dir / "api").glob("db.sqlite3*"):
            path.unlink()
        shutil.copy(old / "data" / "api" / "db.sqlite3", api.data_dir / "api")
    else:
        base, _, name = api.database_url.rpartition("/")
        clone(base, old_url.rpartition("/")[2], name)
