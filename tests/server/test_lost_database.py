"""A database that is gone is missed: the next start makes no new, empty service of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.server.api import PASSWORD, running_api
from tests.server.conftest import Stopped
from tests.server.copies import clone
from tests.server.test_serve import refusal
from tests.support.postgres import NewDatabase


def refused(folder: Path, url: str | None = None) -> str:
    (folder / "log").unlink(missing_ok=True)
    return refusal(folder, database_url=url)


def gone(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("lose", "remembered"),
    [(gone, True), (emptied, False)],
    ids=["served", "of an earlier version"],
)
def test_a_lost_sqlite_file_is_refused_by_name(
    stopped: Stopped, lose: Callable[[Path], None], *, remembered: bool
) -> None:
    if not remembered:
        (stopped.api_folder / "served").unlink()
    lose(stopped.database)
    left = sorted(stopped.api_folder.iterdir())

    said = refused(stopped.folder)

    assert said.startswith(f"database_lost: the database {stopped.database} is ")
    assert sorted(stopped.api_folder.iterdir()) == left, "nothing was made in its place"


def test_what_a_lost_file_left_beside_it_is_not_touched_and_a_backup_is_taken(
    stopped: Stopped, tmp_path: Path
) -> None:
    """SQLite drops a log that belongs to no database, as soon as it makes a new one."""
    backup = shutil.copy(stopped.database, tmp_path)
    log = stopped.database.with_name("db.sqlite3-wal")
    log.write_bytes(b"the last records")
    stopped.database.unlink()
    assert "is gone" in refused(stopped.folder)
    assert log.read_bytes() == b"the last records"

    log.unlink()
    shutil.copy(backup, stopped.database)
    with running_api(stopped.folder) as api:
        assert api.token_pair(stopped.account.email, PASSWORD).status == 200


def test_the_way_out_that_the_refusal_names_is_one(stopped: Stopped) -> None:
    stopped.database.unlink()
    refused(stopped.folder)
    (stopped.api_folder / "secret.key").unlink()
    (stopped.api_folder / "served").unlink()
    with running_api(stopped.folder) as api:
        assert api.token_pair(stopped.account.email, PASSWORD).status == 401


def test_a_first_start_that_ended_before_there_was_a_database_can_be_repeated(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data" / "api"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "served").touch()
    (folder / "secret.key").write_text("x" * 80)
    (folder / "db.sqlite3").touch()
    with running_api(tmp_path) as api:
        assert api.call("GET", "/api/status/").status == 200


def test_a_folder_with_a_key_and_no_database_was_no_first_start(tmp_path: Path) -> None:
    """As an earlier version left it, or a backup that had the key alone."""
    folder = tmp_path / "data" / "api"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "secret.key").write_text("x" * 80)
    assert refused(tmp_path).startswith("database_lost: ")


def test_another_database_than_the_one_served_is_refused_on_postgresql(
    tmp_path: Path, postgresql: NewDatabase
) -> None:
    first, empty = postgresql.with_tables(), postgresql()
    with running_api(tmp_path, database_url=first) as api:
        address = api.new_account().email
    base, _, name = first.rpartition("/")
    other, restored = f"{base}/{name}other", f"{base}/{name}restored"
    for copied in (other, restored):
        clone(base, name, copied.rpartition("/")[2])
    with psycopg.connect(other) as server:
        server.execute("UPDATE django_migrations SET applied = applied - interval '1 us'")

    assert "is empty, and not the one that this folder was used with" in refused(tmp_path, empty)
    with psycopg.connect(empty) as server:
        tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        assert server.execute(tables).fetchone() == (0,), "nothing was made in it"
    assert "is another one, and not the one" in refused(tmp_path, other)
    # A backup of it is the same one, under whatever name.
    with running_api(tmp_path, database_url=restored) as api:
        assert api.token_pair(address, PASSWORD).status == 200


def test_a_folder_may_serve_a_database_of_each_kind(
    stopped: Stopped, postgresql: NewDatabase
) -> None:
    with running_api(stopped.folder, database_url=postgresql.with_tables()) as api:
        assert api.token_pair(stopped.account.email, PASSWORD).status == 401
    with running_api(stopped.folder) as api:
        assert api.token_pair(stopped.account.email, PASSWORD).status == 200
