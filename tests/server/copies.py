"""Copies of an API's folder and database, and everything that stands in them."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from encrypted_records.errors import Malformed
from encrypted_records.model import ids
from tests.server.api import Api
from tests.support.eventually import eventually

Row = dict[str, Any]


def copy_of(api: Api, target: Path) -> tuple[Path, str | None]:
    """A copy of an API's folder, without its messages, and of its database, as they are now."""
    (target / "data" / "api").mkdir(parents=True, mode=0o700)
    for path in (api.data_dir / "api").iterdir():
        if not path.name.startswith("db.sqlite3"):
            shutil.copy(path, target / "data" / "api")
    if api.database_url is None:
        with (
            closing(sqlite3.connect(api.data_dir / "api" / "db.sqlite3")) as source,
            closing(sqlite3.connect(target / "data" / "api" / "db.sqlite3")) as copy,
        ):
            source.backup(copy)
        return target, None
    base, _, name = api.database_url.rpartition("/")
    copied = f"{name}copy"
    clone(base, name, copied)
    return target, f"{base}/{copied}"


def clone(base: str, name: str, copied: str) -> None:
    """Have PostgreSQL copy a database; the API, whose connections stand in the way, makes new."""
    ends = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
    drops = sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(copied))
    makes = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
    with psycopg.connect(f"{base}/postgres", autocommit=True) as server:

        def is_copied() -> bool:
            for one in (name, copied):
                server.execute(ends, [one])
            server.execute(drops)
            try:
                server.execute(makes.format(sql.Identifier(copied), sql.Identifier(name)))
            except psycopg.errors.ObjectInUse:
                return False  # what the API does by itself from time to time was faster
            return True

        eventually(is_copied, "the database is copied", pause=0)


def read_all(folder: Path, database_url: str | None) -> dict[str, list[Row]]:
    """Every row of every table."""
    if database_url is None:
        with closing(sqlite3.connect(folder / "data" / "api" / "db.sqlite3")) as database:
            found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {name: rows_of(database, name) for (name,) in found.fetchall()}
    with psycopg.connect(database_url) as server:
        public = server.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        )
        return {name: rows_of(server, name) for (name,) in public.fetchall()}


def rows_of(database: Any, table: str) -> list[Row]:
    cursor = database.execute(f'SELECT * FROM "{table}"')
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def texts(tables: dict[str, list[Row]]) -> set[str]:
    """Every value of every column as texts that could be sent, and the parts of what is signed."""
    found: set[str] = set()
    for rows in tables.values():
        for row in rows:
            for value in row.values():
                found |= set(forms(value))
    return {one for one in found if one and one.isprintable() and one.isascii()}


def forms(value: Any) -> Iterator[str]:
    if isinstance(value, memoryview):
        value = bytes(value)
    if isinstance(value, bytes):
        yield value.hex()
        yield base64.urlsafe_b64encode(value).decode().rstrip("=")
        yield base64.b85encode(value).decode()
        with suppress(Malformed, ValueError):
            yield ids.to_text(value)
    elif isinstance(value, str):
        yield value
        for part in value.split(":"):
            yield part
            yield from within(part)
    elif not isinstance(value, bool | datetime) and value is not None:
        yield str(value)


def within(part: str) -> Iterator[str]:
    """What stands in the JSON that a session's data are, once they are unpacked."""
    packed = part.removeprefix(".")
    try:
        data = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        members = json.loads(zlib.decompress(data) if part.startswith(".") else data)
    except (ValueError, zlib.error):
        return
    if isinstance(members, dict):
        yield from (str(member) for member in members.values())
