"""Passwords in the database: of the strength that was asked for, whichever made them before."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from tests.server.api import PASSWORD, free_port, running_api, start


def kept_hash(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "data" / "api" / "db.sqlite3")) as database:
        (found,) = database.execute("SELECT password FROM accounts_user").fetchone()
    return str(found)


def test_a_login_makes_a_hash_anew_that_has_another_strength(tmp_path: Path) -> None:
    with running_api(tmp_path, environment={"ERS_PASSWORD_HASHING": "light"}) as api:
        email = api.new_account().email
    assert kept_hash(tmp_path).startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")

    with running_api(tmp_path, environment={"ERS_PASSWORD_HASHING": "standard"}) as api:
        assert api.token_pair(email, "wrong").status == 401
        assert "m=19456," in kept_hash(tmp_path)
        assert api.token_pair(email, PASSWORD).status == 200
        assert kept_hash(tmp_path).startswith("argon2$argon2id$v=19$m=102400,t=2,p=8$")
        assert api.token_pair(email, PASSWORD).status == 200


def test_an_unknown_strength_is_refused_at_the_start(tmp_path: Path) -> None:
    environment = {"ERS_PASSWORD_HASHING": "none"}
    process = start(tmp_path, port=free_port(), environment=environment)
    try:
        assert process.wait(60) != 0
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert "ERS_PASSWORD_HASHING is 'none'" in (tmp_path / "log").read_text()
