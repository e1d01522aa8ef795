"""Databases of before the migrations were one file per app: their tables are those of today, and
what is left over goes.

A database that went through all migrations of then is used as it is. An API refuses a database that
went through only some of them, and changes nothing.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.server.api import Account, Api, running_api
from tests.server.test_serve import refusal
from tests.server.test_session_store import rows
from tests.support.postgres import NewDatabase

#: Rows of ``django_migrations`` in such a database, in the order of then.
THEN = {
    "accounts": (
        "0001_initial",
        "0002_logins",
        "0003_tallies",
        "0004_job_grant",
        "0005_what_a_copy_does_not_hold",
        "0006_api_tokens",
        "0007_job_grants",
        "0008_repeated_refreshes",
    ),
    "organizations": (
        "0001_initial",
        "0002_members_and_audit_log",
        "0003_roster",
        "0004_use_of_services",
        "0005_forgotten_epochs",
        "0006_fewer_indexes",
        "0007_openings",
    ),
    "datasets": (
        "0001_initial",
        "0002_key_versions",
        "0003_canonical_definition",
        "0004_stored_rows",
        "0005_creators",
        "0006_log_definitions",
        "0007_resealed",
        "0008_fewer_indexes",
    ),
    "records": (
        "0001_initial",
        "0002_store_sealed_bytes_uncompressed",
        "0003_key_id_of_a_group",
        "0004_staging",
        "0005_replaced_segments",
        "0006_requests",
        "0007_digests",
        "0008_groups_that_end",
        "0009_signatures",
        "0010_bulk",
        "0012_erasure",
        "0014_checkpoints",
        "0015_cache_files",
        "0016_fewer_indexes",
        "0017_attempts_at_parts",
        "0018_dead_rows_of_empty_groups",
        "0019_what_ended_groups_had",
    ),
}
#: Columns of then that nothing reads any more. The table of used keys went with them.
GONE = {
    "roster_standing": ("is_service", "name", "anchor", "expires"),
    "roster_dataset": ("commitment", "since"),
    "roster_seat": ("actor", "ended"),
}
#: What came since, as statements that take it away.
SINCE = (
    "DROP TABLE second_factor",
    "DROP TABLE recovery_code",
    "ALTER TABLE accounts_user DROP COLUMN has_second_factor",
    "ALTER TABLE accounts_link DROP COLUMN new_address",
    "ALTER TABLE accounts_user DROP COLUMN deleted",
    "DROP INDEX audit_removals",
    "DROP TABLE access_request",
    "DROP TABLE clock_mark",
)
NAMES = "SELECT app, name FROM django_migrations ORDER BY app, name"


@dataclass(frozen=True)
class Earlier:
    """A database of then, with an account and a dataset, that no API serves now."""

    folder: Path
    url: str | None
    api: Api
    account: Account
    dataset: str


@pytest.fixture(params=["sqlite", "postgresql"])
def earlier(request: pytest.FixtureRequest, tmp_path: Path, postgresql: NewDatabase) -> Earlier:
    url = postgresql.with_tables() if request.param == "postgresql" else None
    with running_api(tmp_path, database_url=url) as api:
        account = api.new_account()
        dataset = account.new_dataset()["url"]
    for app, names in THEN.items():
        # The first row stays the first: by when it was written an API knows its database.
        api.execute(
            f"UPDATE django_migrations SET name = '{names[0]}'"
            f" WHERE app = '{app}' AND name = '0001_tables'"
        )
        api.execute(f"DELETE FROM django_migrations WHERE app = '{app}' AND name <> '{names[0]}'")
        for name in names[1:]:
            api.execute(
                "INSERT INTO django_migrations (app, name, applied)"
                f" VALUES ('{app}', '{name}', '2026-11-27')"
            )
    for table, columns in GONE.items():
        for column in columns:
            api.execute(f"ALTER TABLE {table} ADD COLUMN {column} integer NOT NULL DEFAULT 0")
    for statement in SINCE:
        api.execute(statement)
    api.execute("CREATE TABLE roster_used_key (id integer PRIMARY KEY)")
    (tmp_path / "log").unlink()
    return Earlier(tmp_path, url, api, account, dataset)


def is_there(api: Api, statement: str) -> bool:
    """Whether the database has what is asked for."""
    try:
        rows(api, statement)
    except (sqlite3.Error, psycopg.Error):
        return False
    return True


def test_a_database_that_went_through_all_migrations_of_then_is_used_as_it_is(
    earlier: Earlier,
) -> None:
    for _ in ("what it was", "what it is now"):
        with running_api(earlier.folder, database_url=earlier.url) as api:
            pair = api.token_pair(earlier.account.email, earlier.account.password)
            assert pair.status == 200, pair.body
            bearer = {"Authorization": f"Bearer {pair.json()['access']}"}
            assert api.call("GET", earlier.dataset, headers=bearer).status == 200
            for table, columns in GONE.items():
                for column in columns:
                    assert not is_there(api, f"SELECT {column} FROM {table}")
            assert not is_there(api, "SELECT id FROM roster_used_key")


# What it went through is read by the same statement from either database.
@pytest.mark.parametrize("earlier", ["sqlite"], indirect=True)
def test_a_database_that_lacks_one_of_them_is_refused_by_name_and_left_as_it_was(
    earlier: Earlier,
) -> None:
    for app, names in THEN.items():
        row = f"app = '{app}' AND name = '{names[-1]}'"
        earlier.api.execute(f"UPDATE django_migrations SET app = 'sites' WHERE {row}")
        before = rows(earlier.api, NAMES)

        said = refusal(earlier.folder, database_url=earlier.url)

        assert said.startswith("cannot_start: the database was last used by an earlier version")
        assert rows(earlier.api, NAMES) == before
        (earlier.folder / "log").unlink()
        earlier.api.execute(
            f"UPDATE django_migrations SET app = '{app}' WHERE name = '{names[-1]}'"
        )
