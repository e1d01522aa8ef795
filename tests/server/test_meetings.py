"""Erasures that meet sweeps, moves, deletions and readers, on both databases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.api import running_api
from tests.support.postgres import NewDatabase
from tests.support.service import clean_environment


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_erasures_finish_whatever_comes_between_their_steps(
    tmp_path: Path, request: pytest.FixtureRequest, database: str
) -> None:
    url = None
    if database == "postgresql":
        new: NewDatabase = request.getfixturevalue("postgresql")
        url = new()
    with running_api(tmp_path, database_url=url) as api:
        account = api.new_account()
    members = ("email", "password", "token", "organization")
    credentials = tmp_path / "credentials"
    credentials.write_text(json.dumps({name: getattr(account, name) for name in members}))

    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.server.erasure_life",
            tmp_path / "data",
            url or "",
            credentials,
        ],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        check=True,
    )

    assert len(json.loads(ran.stdout)) > 5
