"""Tables: columns by display width, times of this machine, names instead of ids."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest
from rich.cells import cell_len

from encrypted_records.cli import terminal
from encrypted_records.cli.terminal import minute, with_minutes
from encrypted_records.errors import Flaw, UploadedBefore, time_of
from tests.cli.command import Ers

WIDE = ["Ada", "王小明", "e\u0301te\u0301", "👩\u200d👧", "Łukasz"]
DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "seen": {"type": "string", "format": "date-time"},
    },
    "formats": "enforced",
}


@pytest.fixture
def seoul(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine nine hours ahead of UTC."""
    monkeypatch.setenv("TZ", "Asia/Seoul")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_columns_are_aligned_by_the_width_of_characters() -> None:
    rows = [{"name": name, "age": "36"} for name in WIDE]
    lines = list(terminal.table(rows, ("name", "age")))
    assert {cell_len(line.removesuffix("36")) for line in lines[2:]} == {8}


@pytest.mark.parametrize("text", ["x" * 61, "王" * 31, "e\u0301" * 61])
def test_long_cells_are_cut_to_the_width(text: str) -> None:
    shown = terminal.cut(text, 60)
    assert shown.endswith("\u2026")
    assert 59 <= cell_len(shown) <= 60
    assert terminal.cut(text[:10], 60) == text[:10]


@pytest.mark.usefixtures("seoul")
def test_times_are_of_this_machine() -> None:
    assert minute("2026-01-31T20:30:15.123456Z") == "2026-02-01 05:30"
    assert minute("2026-01-31T20:30:15+02:00") == "2026-02-01 03:30"
    assert minute("2026-01-31 20:30") == "2026-02-01 05:30"
    assert minute(1_769_891_400) == "2026-02-01 05:30"
    assert minute("2026-01-31") == "2026-01-31"
    assert minute(None) == ""
    for odd in ("no time of any kind", "9999-12-31T23:59:59Z", 10**20, [1]):
        assert minute(odd) == str(odd)


@pytest.mark.usefixtures("seoul")
def test_times_in_the_text_of_an_error_are_of_this_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = f"stored at {time_of(1_769_891_415)}: 2 records"
    assert text == "stored at 2026-01-31T20:30:15Z: 2 records"
    flaw = Flaw("invalid", text)
    assert terminal.report(UploadedBefore(text, hint=text, flaws=(flaw,))) == terminal.REFUSED
    assert capsys.readouterr().err.count("stored at 2026-02-01 05:30: 2 records") == 3
    odd = "2026-13-31T20:30:15Z, 2026-01-31T20:30:15Z"
    assert with_minutes(odd) == "2026-13-31T20:30:15Z, 2026-02-01 05:30"


@pytest.mark.usefixtures("seoul")
def test_a_table_shows_local_times_and_slugs_and_json_what_the_api_has(ers: Ers) -> None:
    ers.done("dataset", "create", "--name", "Clinic", "--slug", "clinic")
    ers.done(
        *("schema", "create", "--dataset", "clinic", "--name", "Visit", "--file", "-"),
        typed=json.dumps(DEFINITION),
    )
    row = {"name": "Ada", "seen": "2026-01-31T20:30:15Z"}
    ers.done("record", "create", "--schema", "visit", "--file", "-", typed=json.dumps(row))

    sent = ers.done("schema", "list").one
    local, utc = (
        ers.done("schema", "list", "-o", "table", *more).out.splitlines()[2].split()
        for more in ([], ["--utc"])
    )
    assert sent["dataset"].startswith("/api/datasets/")
    assert local[3] == utc[3] == "clinic"
    assert f"{utc[4]}T{utc[5]}" == f"{sent['created'][:16]}Z"
    assert (int(local[5][:2]) - int(utc[5][:2])) % 24 == 9
    shown = ers.done("schema", "get", "visit", "-o", "table").out
    assert re.search(r"^dataset +clinic$", shown, re.MULTILINE)
    assert (
        "2026-01-31T20:30:15Z" in ers.done("record", "list", "--schema", "visit", "-o", "table").out
    )
    logged = ers.done("organization", "audit-log", "-o", "table").out
    assert re.search(r" records\.stored +visit ", logged)
    assert re.search(r" dataset\.created +clinic ", logged)
    assert "/api/" not in logged
