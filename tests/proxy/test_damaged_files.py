"""Damaged files of the proxy: named, with what deleting them costs, and never guessed at."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from encrypted_records.errors import Startup, Unavailable
from encrypted_records.http import problem
from encrypted_records.index.log.order import LogHead
from encrypted_records.model import ids
from encrypted_records.proxy.app import create_app
from encrypted_records.proxy.disk import Database
from encrypted_records.proxy.schemas.store import Heads
from encrypted_records.proxy.settings import ProxySettings
from tests.support.service import clean_environment, free_ports
from tests.support.sqlite_files import have_read_again

#: What somebody loses with each of them.
LOSSES = {
    "access.sqlite3": "all devices are then unknown",
    "heads.sqlite3": "no longer notices if the API's data is older",
    "jobs.sqlite3": "batch jobs are then forgotten",
    "questions.sqlite3": ("saved questions and kept readings are then gone"),
    "webhooks.sqlite3": "webhooks are then gone",
    "uploads.sqlite3": "unfinished resumable uploads are then forgotten",
}


def header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * 100)


def first_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * (4096 - 100))


def last_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-4096, os.SEEK_END)
        file.write(b"\xff" * 4096)


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def proxy_on(folder: Path) -> None:
    """Start a proxy's parts and end them."""

    async def run() -> None:
        app = create_app(ProxySettings(folder, "127.0.0.1", 1, "http://127.0.0.1:9"))
        async with app.router.lifespan_context(app):
            pass

    asyncio.run(run())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    proxy_on(tmp_path)
    return tmp_path


@pytest.mark.parametrize("damage", [header, first_page, half, last_page])
@pytest.mark.parametrize("name", LOSSES)
def test_a_damaged_file_stops_the_start_by_its_name_and_says_what_deleting_it_costs(
    folder: Path, name: str, damage: Callable[[Path], None]
) -> None:
    path = folder / "proxy" / name
    damage(path)
    with pytest.raises(Startup, match="is damaged") as refused:
        proxy_on(folder)
    assert str(path) in refused.value.message
    assert LOSSES[name] in refused.value.hint
    # The way out is one.
    for beside in ("", "-wal", "-shm"):
        path.with_name(name + beside).unlink(missing_ok=True)
    proxy_on(folder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_command_says_so_in_two_lines_and_ends(folder: Path) -> None:
    header(folder / "proxy" / "jobs.sqlite3")
    (port,) = free_ports(1)
    (folder / "format").write_text("api 2\nproxy 2\n")
    ended = subprocess.run(
        [sys.executable, "-m", "encrypted_records.cli.main", "proxy"],
        env=clean_environment(ERS_DATA_DIR=str(folder), ERS_PROXY_PORT=str(port)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    *_, said, hint = ended.stderr.splitlines()
    assert "jobs.sqlite3 is damaged" in said
    assert "delete it" in hint


def test_a_file_that_cannot_be_opened_is_no_damage(folder: Path) -> None:
    path = folder / "proxy" / "heads.sqlite3"
    path.unlink()
    path.mkdir()
    with pytest.raises(Startup, match=r"heads\.sqlite3: SQLITE_CANTOPEN"):
        proxy_on(folder)


def test_a_page_that_is_damaged_under_a_running_proxy_is_named_in_its_log_and_well_titled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heads = Heads(tmp_path / "heads.sqlite3")
    known = [ids.new_id() for _ in range(500)]
    for number, schema in enumerate(known):
        heads.remember(bytes(16), schema, LogHead(number, bytes(32)))
    have_read_again(tmp_path / "heads.sqlite3")
    for page in range(1, (tmp_path / "heads.sqlite3").stat().st_size // 4096):
        with (tmp_path / "heads.sqlite3").open("r+b") as file:
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)
    caplog.set_level(logging.ERROR)
    with pytest.raises(Unavailable) as failed:
        heads.get(bytes(16), known[250])
    assert "heads.sqlite3 fails: SQLITE_CORRUPT" in caplog.text
    answered = problem.of_error(failed.value)
    assert (answered["code"], answered["title"]) == (
        "proxy_store_failed",
        "The proxy's disk fails",
    )
    assert str(tmp_path) not in str(answered)
    heads.close()


def test_a_transaction_that_is_left_in_the_middle_keeps_nobody_out(tmp_path: Path) -> None:
    tables = "CREATE TABLE IF NOT EXISTS number (one INTEGER)"
    file = Database(tmp_path / "numbers.sqlite3", tables, code="", message="", loss="")
    with pytest.raises(KeyError), file.writing() as database:
        database.execute("INSERT INTO number VALUES (1)")
        raise KeyError
    found: list[list[int]] = []

    def look() -> None:
        with file.asking() as database:
            found.append(database.execute("SELECT one FROM number").fetchall())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(60)
    assert found == [[]]
    file.close()
