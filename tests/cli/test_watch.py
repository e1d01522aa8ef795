"""``ers watch``: a program that applies its lines holds what a search finds."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from encrypted_records.cli.commands import changes
from tests.cli.command import Ers, Said
from tests.cli.test_record import DEFINITION, create_schema


@pytest.fixture
def schema(ers: Ers) -> str:
    slug = create_schema(ers, DEFINITION)
    store(ers, slug, "Ada")
    return slug


def store(ers: Ers, schema: str, name: str) -> str:
    typed = json.dumps([{"name": name}])
    said = ers.done(
        "record", "create", "--schema", schema, "--file", "-", "-o", "json", typed=typed
    )
    (created,) = json.loads(said.out)
    return str(created["id"])


def told(said: Said) -> list[tuple[str, str]]:
    return [(line["op"], line.get("data", {}).get("name", "")) for line in said.lines]


def test_every_record_comes_first_and_the_last_line_has_the_cursor(ers: Ers, schema: str) -> None:
    said = ers.done("watch", "--schema", schema, "--once")
    assert told(said) == [("upsert", "Ada"), ("current", "")]
    cursor = said.lines[-1]["cursor"]
    store(ers, schema, "Grace")
    said = ers.done("watch", "--schema", schema, "--once", "--from", cursor)
    assert told(said) == [("upsert", "Grace"), ("current", "")]
    assert told(ers.done("watch", "--schema", schema, "--once", "--from", "now")) == [
        ("current", "")
    ]


def test_a_cursor_in_a_file_continues_where_the_last_run_ended(
    ers: Ers, schema: str, tmp_path: Path
) -> None:
    kept = tmp_path / "cursor"
    watch = ("watch", "--schema", schema, "--once", "--cursor-file", str(kept))
    assert told(ers.done(*watch))[0] == ("upsert", "Ada")
    grace = store(ers, schema, "Grace")
    ers.done("record", "delete", grace, "--yes")
    said = ers.done(*watch)
    assert [line["op"] for line in said.lines] == ["delete", "current"]
    assert said.lines[0]["id"] == grace
    assert told(ers.done(*watch)) == [("current", "")]
    refused = ers(
        "watch", "--schema", schema, "--once", "--cursor-file", str(kept), "--from", "now"
    )
    assert refused.code == 2
    assert "--from" in refused.err


#: Of a log that this one is not.
FOREIGN = "kwEAxBAAAAAAAAAAAAAAAAAAAAAA"


def test_a_cursor_that_cannot_go_on_fails_with_a_hint_or_begins_again(
    ers: Ers, schema: str, tmp_path: Path
) -> None:
    kept = tmp_path / "cursor"
    kept.write_text(FOREIGN)
    watch = ("watch", "--schema", schema, "--once", "--cursor-file", str(kept))
    refused = ers(*watch)
    assert refused.code == 3
    assert "--restart" in refused.err
    said = ers.done(*watch, "--restart")
    assert told(said) == [("restart", ""), ("upsert", "Ada"), ("current", "")]
    assert kept.read_text().strip() == said.lines[-1]["cursor"]


def test_lines_in_a_file_are_on_disk_before_the_cursor_behind_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    cursor = tmp_path / "cursor"
    with (tmp_path / "lines").open("w") as lines:
        monkeypatch.setattr(sys, "stdout", lines)
        changes._KeptCursor(None, cursor).move("next")
    assert synced == [(tmp_path / "lines").stat().st_ino, cursor.stat().st_ino]
