"""``ers schema status``, ``ers schema accept-log`` and ``ers salvage`` where a log is at fault."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from encrypted_records.client.transport import Transport
from encrypted_records.model.records import ManifestDelta
from encrypted_records.proxy.settings import Overrides
from tests.cli.command import Ers, environment
from tests.proxy.lies import each, on
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.history import DEFINITION, History, lived
from tests.support.older import older_store
from tests.support.proxies import running_proxy
from tests.support.service import Service


@dataclass(frozen=True)
class Sides:
    """The service behind a front and a proxy of its own, on ``folder``."""

    service: Service
    front: Front
    folder: Path


#: Merges would be versions of the log that no test has asked for.
UNMERGED = Overrides(most_dead=2.0)


@pytest.fixture(scope="module")
def sides(running: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    folder = tmp_path_factory.mktemp("logs")
    with (
        running_front(running.base_url) as front,
        running_proxy(front.url, folder, overrides=UNMERGED) as proxy,
    ):
        yield Sides(replace(running, proxy_url=proxy.url), front, folder)


@pytest.fixture
def history(sides: Sides) -> History:
    # Nobody signs there, so a member without the key can put into the log what breaks it.
    return lived(older_store(sides.service, DEFINITION))


@pytest.fixture
def here(ers: Ers, history: History) -> Ers:
    """The command, as the owner of the history."""
    ers.set(**environment(history.store.service, history.store.account))
    # Accepting a log takes a proof, from a device that was registered.
    ers.set(ERS_DEVICE=history.store.device.text)
    return ers


def older(front: Front, version: int) -> AbstractContextManager[None]:
    """The API's log as it was at a version."""

    def cut(delta: ManifestDelta) -> ManifestDelta:
        return msgspec.structs.replace(delta, version=version, entries=delta.entries[:version])

    return front.telling(on(("manifest",), each(ManifestDelta, cut)))


def test_the_status_of_a_whole_log_shows_its_head(here: Ers, history: History) -> None:
    schema = history.store.schema_id
    shown = here.done("schema", "status", schema).one
    assert (shown["state"], shown["version"], shown["records"]) == ("whole", 7, 5)
    assert "at" not in shown
    table = here.done("schema", "status", schema, "--output", "table", "--at", "7").out
    assert f"digest   {shown['digest']}\n" in table
    assert f"at version 7: {shown['digest']}\n" in table
    assert here("schema", "status", schema, "--at", "8").code == 2


def test_an_older_log_is_shown_with_what_is_lost_and_accepted_when_that_is_meant(
    here: Ers, history: History, sides: Sides
) -> None:
    schema = history.store.schema_id
    with older(sides.front, 4):
        status = here("schema", "status", schema, "--output", "table")
        assert status.code == 4
        assert "state    older" in status.out
        assert "seen     version 7: " in status.out
        assert "ers schema accept-log" in status.err

        refused = here("schema", "accept-log", schema)
        assert refused.code == 2
        assert "--yes" in refused.err
        assert here("schema", "status", schema).one["state"] == "older"

        said = here.done("schema", "accept-log", schema, "--yes")
        assert "version 4 of 20" in said.err
        assert "gives up the changes in versions 5 to 7" in said.err
        assert "is at version 4, 6 records" in said.out
        assert here.done("schema", "status", schema).one["state"] == "whole"
    assert "nothing to accept" in here.done("schema", "accept-log", schema).out


def test_a_log_that_went_another_way_takes_a_flag_of_its_own(
    here: Ers, history: History, sides: Sides
) -> None:
    schema = history.store.schema_id
    with closing(sqlite3.connect(sides.folder / "proxy" / "heads.sqlite3")) as seen, seen:
        for table in ("user_head", "user_passed"):
            seen.execute(
                f"UPDATE {table} SET digest = zeroblob(32) WHERE schema = ? AND version > 4",
                (history.schema,),
            )
    status = here("schema", "status", schema)
    assert (status.code, status.one["state"], status.one["common"]) == (4, "forked", 4)
    refused = here("schema", "accept-log", schema, "--yes")
    assert refused.code == 4
    assert "3 commits instead of 3" in refused.err
    assert "--forked" in refused.err
    said = here.done("schema", "accept-log", schema, "--yes", "--forked")
    assert "It has 3 other changes instead" in said.err
    assert here.done("schema", "status", schema).one["state"] == "whole"


def test_a_broken_log_is_not_accepted_and_what_opens_is_saved(
    here: Ers, history: History, tmp_path: Path
) -> None:
    schema = history.store.schema_id
    history.spoil_log(4)
    assert here("schema", "status", schema).one["state"] == "broken"
    refused = here("schema", "accept-log", schema, "--yes", "--forked")
    assert refused.code == 4
    assert "ers salvage" in refused.err

    said = here.done("salvage", schema)
    found = {(line["id"], line["version"]): line["proven"] for line in said.lines}
    assert found == history.best(3)
    assert "6 records, 2 of them proven by the log" in said.err
    assert "the log is valid up to version 3: a commit in the log is not authentic" in said.err
    assert "not certain: deleted records may be among these" in said.err

    file = tmp_path / "saved.csv"
    here.done("salvage", schema, "--file", file, "--without-ended")
    head, *rows = list(csv.reader(file.open(newline="")))
    assert head == ["name", "n", "x"]
    assert len(rows) == len(history.best(3, ended=False))
    assert ["=1+1", "", ""] in rows
    here.done("salvage", schema, "--file", file, "--safe-cells")
    assert ["'=1+1", "", ""] in list(csv.reader(file.open(newline="")))


def test_what_was_saved_can_be_stored_in_a_new_schema(
    here: Ers, history: History, tmp_path: Path
) -> None:
    history.lose_log()
    file = tmp_path / "saved.csv"
    here.done("salvage", history.store.schema_id, "--file", file)
    other = history.store.another_schema(DEFINITION)
    here.done("import", "--exact", file, "--schema", other.schema_id)
    data = history.data()
    stored = [one["data"] for one in other.everything()]
    assert len(stored) == len(history.best(0))
    assert all(data[key] in stored for key in history.best(0))


def test_the_exit_code_says_that_something_did_not_open(
    here: Ers, history: History, sides: Sides
) -> None:
    def lie(asked: Asked, reply: Reply) -> Reply:
        if "dead=true" not in asked.path:
            return reply
        page = json.loads(reply.body)
        for row in page["results"][:1]:
            row["id"] = page["results"][1]["id"]
        return reply.with_body(json.dumps(page).encode())

    with sides.front.telling(lie):
        said = here("salvage", history.store.schema_id)
    assert said.code == 4
    assert len(said.lines) == 4
    assert "rows that cannot be decrypted: 1" in said.err
    assert "cannot be decrypted: 1" in said.err


@pytest.mark.parametrize("kept", [b"", b'{"id": "1"}\n', b'{"id": "1"'])
def test_a_salvage_that_breaks_off_leaves_no_file(
    here: Ers, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bytes
) -> None:
    async def cut(self: Transport, answer: Any) -> Any:
        yield kept

    monkeypatch.setattr(Transport, "_chunks", cut)
    said = here("salvage", history.store.schema_id, "--file", tmp_path / "saved.ndjson")
    assert said.code == 5
    assert list(tmp_path.glob("saved*")) == []


def test_safe_cells_are_for_csv(here: Ers, history: History) -> None:
    assert here("salvage", history.store.schema_id, "--safe-cells").code == 2
