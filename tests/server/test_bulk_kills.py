"""SIGKILL between any two steps of an object's life: nothing acknowledged is lost, and the sweep
leaves exactly the objects that something points to.

The life, and not this list, says which steps there are: :mod:`.bulk_life` dies at each that it
comes to, one after the other, and looks at what is left after each. So a step that is new and not
listed here fails a test, and so does one that is listed and that nobody has died at.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.server.api import Account, running_api
from tests.support.postgres import NewDatabase
from tests.support.service import clean_environment
from tests.support.swift import Swift

BUCKET = "killed"
_FILE_IS_WRITTEN = (
    "before a folder is synced",
    "before a file is written",
    "when a file is half written",
    "before a file is synced",
    "before a file is named",
)
_PUT = ("before the store is asked to put", "after the store was asked to put")
_DELETE = ("before the store is asked to delete", "after the store was asked to delete")
_ENDS = ("before a transaction ends", "after a transaction ended")
_BEGINS = ("before its row says writing", *_ENDS)


def steps(written: tuple[str, ...], deleted: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The steps of an object's life, by what is asked of the API.

    Args:
        written, deleted: those of the store.
    """
    return {
        # A part is staged, in the place of one that was staged before.
        "POST staging": (
            *_BEGINS,
            *written,
            "before its row says stored",
            "before its row says doomed",
            *_ENDS,
        ),
        # A job's commit, and that of a merge, which replaces the job's segments.
        "POST publish": ("before its row says named", "before its row says doomed", *_ENDS),
        "DELETE job": ("before its row says doomed", *_ENDS),
        "sweep": (
            "before its row says since when",
            *deleted,
            "before its row says nothing any more",
            *_ENDS,
        ),
        # An object is written again without a row.
        "erase": (
            "before its row says since when",
            *_BEGINS,
            *written,
            "before its row says stored",
            "before its row says named",
            "before its row says doomed",
            *_ENDS,
        ),
    }


FILES = steps(_FILE_IS_WRITTEN, ("before a file is deleted", "before a folder is synced"))
S3 = steps(_PUT, _DELETE)
LIVES = {"sqlite and files": FILES, "postgresql and s3": S3}


@pytest.mark.parametrize("where", LIVES)
def test_a_kill_at_any_step_loses_nothing_and_leaves_nothing_behind(
    where: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    postgresql: NewDatabase,
) -> None:
    database_url = "" if where.startswith("sqlite") else postgresql.with_tables()
    bulk_url, environment = "", {}
    if where.endswith("s3"):
        swift: Swift = request.getfixturevalue("swift")
        swift.make_bucket(BUCKET)
        bulk_url = f"s3://{BUCKET}/of/ours?endpoint={swift.endpoint}&least=0"
        environment = swift.credentials
    with running_api(tmp_path, database_url=database_url or None) as api:
        account = api.new_account()
    program = ["tests.server.bulk_life", tmp_path / "data", database_url, bulk_url]
    life = json.loads(ran(program, account, tmp_path, environment))
    died_at = {asked: set(named) for asked, named in life["deaths"].items()}
    assert died_at == {asked: set(named) for asked, named in LIVES[where].items()}
    # Rows and their mini; then rows, and the pages of the merge.
    assert life["published"] == life["left"] == {"named": 2}


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
