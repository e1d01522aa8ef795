"""SIGKILL between any two steps of an object's life: nothing acknowledged is lost, and the sweep
leaves exactly the objects that something points to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.server.api import Account, running_api
from tests.support.service import clean_environment


def test_a_kill_at_any_step_loses_nothing_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """On SQLite and files; :mod:`.test_bulk_s3` has PostgreSQL and S3."""
    with running_api(tmp_path) as api:
        account = api.new_account()
    deaths = deaths_of_a_life(tmp_path, account)
    assert deaths["POST staging"] > 20


def deaths_of_a_life(
    folder: Path,
    account: Account,
    *,
    database_url: str = "",
    bulk_url: str = "",
    environment: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """How often each kind of request has died, in places of its own."""
    seen = json.loads(
        ran(
            ["tests.server.bulk_life", folder / "data", database_url, bulk_url],
            account,
            folder,
            environment,
        )
    )
    # Rows and their mini; then rows, and the pages of the merge.
    assert seen["published"] == {"named": 2}
    assert seen["left"] == {"named": 2}
    deaths: dict[str, int] = seen["deaths"]
    assert deaths["POST publish"] > 4
    assert deaths["sweep"] > 2
    assert deaths["erase"] > 5
    return deaths


def ran(
    program: list[Any], account: Account, folder: Path, environment: Mapping[str, str] | None
) -> bytes:
    """What a program says that ends well, once it was given the account."""
    members = ("email", "password", "token", "organization")
    credentials = folder / "credentials"
    credentials.write_text(json.dumps({name: getattr(account, name) for name in members}))
    return subprocess.run(
        [sys.executable, "-m", *program, credentials],
        env=clean_environment(**(environment or {})),
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
