"""Passwords in the database: of the strength that was asked for, whichever made them before."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.server.api import PASSWORD, free_port, running_api, start
from tests.support.service import clean_environment
from tests.support.startup.sitecustomize import HASHING


def kept_hash(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "data" / "api" / "db.sqlite3")) as database:
        (found,) = database.execute("SELECT password FROM accounts_user").fetchone()
    return str(found)


def test_a_login_makes_a_hash_anew_that_has_another_strength(tmp_path: Path) -> None:
    # Without what lowers the cost in other tests.
    light = {"ERS_PASSWORD_HASHING": "light", "PYTHONPATH": ""}
    with running_api(tmp_path, environment=light) as api:
        email = api.new_account().email
    assert kept_hash(tmp_path).startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")

    with running_api(tmp_path, environment={"ERS_PASSWORD_HASHING": "standard"}) as api:
        assert api.token_pair(email, "wrong").status == 401
        assert "m=19456," in kept_hash(tmp_path)
        assert api.token_pair(email, PASSWORD).status == 200
        assert kept_hash(tmp_path).startswith("argon2$argon2id$v=19$m=102400,t=2,p=8$")
        assert api.token_pair(email, PASSWORD).status == 200


def test_only_processes_that_tests_start_have_a_lower_cost() -> None:
    program = f"from {HASHING} import Light; print(Light.memory_cost, Light.time_cost)"
    for environment, cost in ((clean_environment(), "8 1"), (dict(os.environ), "19456 2")):
        said = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
        assert said.strip() == cost


def test_an_unknown_strength_is_refused_at_the_start(tmp_path: Path) -> None:
    environment = {"ERS_PASSWORD_HASHING": "none"}
    process = start(tmp_path, port=free_port(), environment=environment)
    try:
        assert process.wait(60) != 0
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert "ERS_PASSWORD_HASHING is 'none'" in (tmp_path / "log").read_text()
