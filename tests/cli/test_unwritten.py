"""Output that cannot be written is an error with a reason and a code, whatever the command."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.command import Ers, environment
from tests.support.service import Account, Service, clean_environment
from tests.support.store import Store, new_schema

ERS = (sys.executable, "-m", "encrypted_records")
FULL = Path("/dev/full")
DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}
DISK = "error: standard output cannot be written: no space left on device\n"
CLOSED = "error: standard output cannot be written: it is closed\n"
HINT = "hint: the command may have succeeded: check before you repeat it\n"

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")


@pytest.fixture(scope="module")
def told(running: Service, account: Account) -> Mapping[str, str]:
    return clean_environment(**environment(running, account))


@pytest.fixture(scope="module")
def schema(running: Service, account: Account) -> str:
    store = Store(running, account, new_schema(running, account, DEFINITION))
    store.ingest([{"name": f"person {number}"} for number in range(50)])
    return store.schema_id


def run(told: Mapping[str, str], redirected: str, *arguments: str) -> tuple[int, str, str]:
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", *ERS, *arguments]
    done = subprocess.run(command, env=dict(told), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_full_disk_and_a_closed_output_are_named(told: Mapping[str, str], schema: str) -> None:
    of_schema = ("--schema", schema)
    for redirected, said, asked in (
        ("> /dev/full", DISK, ("--version",)),
        (">&-", CLOSED, ("-V",)),
        ("> /dev/full", DISK, ("record", "search", "--help")),
        (">&-", CLOSED, ("help", "record")),
        ("> /dev/full", DISK, ("completion", "bash")),
        ("> /dev/full", DISK, ("dataset", "list", "-o", "table")),
        (">&-", CLOSED, ("user", "get")),
        ("> /dev/full", DISK, ("record", "search", *of_schema, "-o", "csv")),
        (">&-", CLOSED, ("record", "search", *of_schema, "-o", "json", "--all")),
        ("> /dev/full", DISK, ("record", "export", *of_schema)),
        (">&-", CLOSED, ("doctor",)),
    ):
        assert run(told, redirected, *asked) == (1, "", said + HINT), asked


def test_nobody_who_reads_errors_stops_no_command(told: Mapping[str, str], schema: str) -> None:
    asked = ("record", "export", "--schema", schema)
    for redirected in ("2> /dev/full", "2>&-"):
        code, out, _ = run(told, redirected, *asked)
        assert (code, len(out.splitlines())) == (0, 50)
        assert run(told, redirected, "record", "search", "--schema", "no-such-one") == (3, "", "")
    assert run(told, "> /dev/full 2>&1", *asked)[0] == 1
    assert run(told, "<&- >&- 2>&-", *asked)[0] == 1


def test_closed_standard_input_is_empty(told: Mapping[str, str], schema: str) -> None:
    code, _, err = run(told, "<&-", "record", "create", "--file", "-", "--schema", schema)
    assert (code, err.splitlines()[0].startswith("error: - is neither a JSON array")) == (2, True)


def test_a_file_never_gets_what_a_closed_output_should(
    told: Mapping[str, str], schema: str, tmp_path: Path
) -> None:
    """The system gives the next file that is opened the number of a closed stream."""
    file = tmp_path / "out.ndjson"
    assert (
        run(told, ">&- 2>&-", "record", "export", "--schema", schema, "--file", str(file))[0] == 0
    )
    assert len(file.read_text().splitlines()) == 50


def test_a_result_goes_into_a_pipe_and_does_not_take_its_place(
    ers: Ers, schema: str, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[str] = []
    reading = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
    reading.start()
    ers.done("record", "export", "--schema", schema, "--file", pipe, "--yes")
    reading.join(timeout=60)
    assert len(found[0].splitlines()) == 50
    assert pipe.is_fifo()
    full = ers("record", "export", "--schema", schema, "--file", FULL, "--yes")
    assert (full.code, full.err.splitlines()[0]) == (
        2,
        "error: /dev/full cannot be written: no space left on device",
    )
    assert not FULL.is_file()


def test_a_folder_of_ones_own_that_cannot_be_written_is_named(
    told: Mapping[str, str], schema: str, tmp_path: Path
) -> None:
    (tmp_path / "a file").write_text("")
    state = {**told, "XDG_STATE_HOME": str(tmp_path / "a file")}
    rows = tmp_path / "rows.csv"
    rows.write_text("name\nAda\n")
    code, _, err = run(state, "", "import", "--exact", str(rows), "--schema", schema)
    assert (code, "this is a bug" in err) in ((1, False), (2, False))
    assert str(tmp_path / "a file") in err.splitlines()[0]
