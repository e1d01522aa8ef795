"""``ers job``: any number of records, seen through to the end, with an exit code to rely on."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from encrypted_records.cli.command_group import CommandLimits
from encrypted_records.client.limits import ClientLimits
from encrypted_records.client.messages import Response
from encrypted_records.client.transport import Transport
from encrypted_records.errors import ProxyUnreachable
from tests.cli.command import Ers, environment
from tests.support import forked
from tests.support.eventually import eventually
from tests.support.service import Account, Service, clean_environment

DEFINITION = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
        },
        "required": ["name"],
    }
)
PEOPLE = [{"name": f"person {number}", "age": number % 100} for number in range(250)]
COMMAND = [sys.executable, "-m", "encrypted_records.cli.main"]
BAD = "name,age\nAda,36\nAlan,411\n,3\n"


@pytest.fixture
def schema(ers: Ers) -> str:
    slug = f"people-{secrets.token_hex(4)}"
    ers.done("dataset", "create", "--name", slug, "--slug", slug)
    ers.done(
        *("schema", "create", "--dataset", slug, "--name", slug, "--slug", slug, "--file", "-"),
        typed=DEFINITION,
    )
    return slug


def count(ers: Ers, schema: str) -> int:
    return int(ers.done("record", "search", "--schema", schema, "--count").out)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    match path.suffix:
        case ".csv":
            lines = [f"{row['name']},{row['age']}" for row in rows]
            path.write_text("\n".join(["name,age", *lines]))
        case ".json":
            path.write_text(json.dumps([{"data": row} for row in rows]))
        case ".ndjson":
            path.write_text("\n".join(map(json.dumps, rows)))
        case _:
            parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def test_a_file_of_corrections_is_one_command(ers: Ers, tmp_path: Path) -> None:
    unique = json.dumps(json.loads(DEFINITION) | {"unique": [["name"]]})
    slug = f"people-{secrets.token_hex(4)}"
    ers.done("dataset", "create", "--name", slug, "--slug", slug)
    make = ("schema", "create", "--dataset", slug, "--name", slug, "--slug", slug, "--file", "-")
    ers.done(*make, typed=unique)
    file = tmp_path / "a.parquet"
    write(file, PEOPLE[:3])
    upload = ("import", "--exact", file, "--schema", slug)
    ers.done(*upload)
    again = ers(*upload, "--again")
    assert (again.code, "row 1, name: /api/records/" in again.err) == (6, True)
    write(file, [{"name": "person 1", "age": 77}, {"name": "new", "age": 1}])
    ers.done(*upload, "--on-conflict", "replace", "--by", "name")
    assert count(ers, slug) == 4
    found = ers.done("record", "search", "age = 77", "--schema", slug, "--count").out
    assert int(found) == 1
    write(file, [{"name": "person 1", "age": 5}, {"name": "newer", "age": 1}])
    left_out = ers(*upload, "--on-conflict", "skip")
    assert (left_out.code, count(ers, slug)) == (6, 5)


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.ndjson", "a.parquet"])
def test_a_file_of_any_form_is_stored_and_its_end_reported(
    ers: Ers, schema: str, tmp_path: Path, name: str
) -> None:
    write(tmp_path / name, PEOPLE)

    said = ers.done("import", "--exact", tmp_path / name, "--schema", schema, "--batch-size", "100")

    assert said.err == ""
    job = said.one
    assert (job["status"], job["processed"], job["total_batches"]) == ("completed", 250, 3)
    assert count(ers, schema) == 250
    found = ers.done("record", "search", "--schema", schema, "name = 'person 249'").one
    assert found["data"] == PEOPLE[249]


def test_standard_input_is_stored_too(ers: Ers, schema: str) -> None:
    ers.done("import", "--exact", "-", "--schema", schema, typed="name,age\nAda,36\n")
    assert count(ers, schema) == 1


def test_more_records_than_a_request_takes_become_a_job(ers: Ers, schema: str) -> None:
    text = json.dumps([*PEOPLE[:100], {"schema": schema, "data": PEOPLE[100]}])
    said = ers.done("record", "create", "--file", "-", "--schema", schema, typed=text)
    assert said.one["status"] == "completed"
    assert count(ers, schema) == 101


async def cut() -> None:
    raise ProxyUnreachable("cut")


async def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(60)  # until it takes effect


@pytest.mark.parametrize(("interruption", "code"), [(cut, 5), (ctrl_c, 130)])
def test_a_file_that_was_interrupted_goes_on_with_the_same_command(
    ers: Ers,
    schema: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interruption: Callable[[], Awaitable[None]],
    code: int,
) -> None:
    write(tmp_path / "a.csv", PEOPLE)
    limits = CommandLimits(
        client=ClientLimits(request_bytes=1000, upload_pauses=()), resumable_bytes=3000
    )
    real, sent = Transport.request, []

    async def request(self: Transport, method: str, path: str, **more: Any) -> Response:
        if method == "PATCH":
            sent.append(int(more["headers"]["Upload-Offset"]))
            if len(sent) == 3:
                await interruption()
        return await real(self, method, path, **more)

    monkeypatch.setattr(Transport, "request", request)
    command = ("import", "--exact", tmp_path / "a.csv", "--schema", schema)

    broken = ers(*command, limits=limits)
    assert (broken.code, broken.out) == (code, "")
    assert "run the same command to resume it" in broken.err
    again = ers.done(*command, limits=limits)

    assert "resuming an upload: " in again.err
    assert again.one["status"] == "completed"
    assert sent[:4] == [0, 1000, 2000, 2000]
    assert count(ers, schema) == 250
    assert "continuing" not in ers.done(*command, "--again", limits=limits).err


def test_bad_rows_are_named_and_nothing_is_stored(ers: Ers, schema: str) -> None:
    said = ers("import", "--exact", "-", "--schema", schema, typed=BAD)

    assert said.code == 6
    assert said.one["status"] == "failed"
    assert "  row 2, age: above the maximum of 130\n" in said.err
    assert "nothing was stored" in said.err
    assert "ers import with --skip-invalid stores the other rows\n" in said.err
    assert "X-On" not in said.out + said.err
    assert count(ers, schema) == 0

    job = said.one["job_id"]
    flaws = ers.done("job", "errors", job, "--output", "csv").out.splitlines()
    assert [line.split(",")[:3] for line in flaws] == [
        ["row", "field", "code"],
        ["2", "age", "maximum"],
        ["3", "name", "required"],
    ]
    assert ers("job", "watch", job).code == 6


@pytest.mark.parametrize("form", ["plain.json", "plain.ndjson", "records.json"])
def test_half_of_a_surrogate_pair_is_named_by_row_and_field_and_left_out_where_asked(
    ers: Ers, schema: str, tmp_path: Path, form: str
) -> None:
    file = tmp_path / form
    rows: list[dict[str, Any]] = [{"name": "Ada", "age": 1}, {"name": "cut \ud800", "age": 2}]
    if form.startswith("records"):
        rows = [{"data": row} for row in rows]
    lines = list(map(json.dumps, rows))
    file.write_text("\n".join(lines) if form.endswith("ndjson") else f"[{','.join(lines)}]")
    said = ers("import", "--exact", file, "--schema", schema)
    assert said.code == 6
    assert "  row 2, name: holds half of a surrogate pair\n" in said.err
    assert count(ers, schema) == 0
    assert ers("import", "--exact", file, "--schema", schema, "--skip-invalid").code == 6
    assert count(ers, schema) == 1


def test_the_good_rows_are_stored_where_that_is_asked_for(ers: Ers, schema: str) -> None:
    said = ers("import", "--exact", "-", "--schema", schema, "--skip-invalid", typed=BAD)
    assert said.code == 6
    assert said.one["status"] == "completed"
    assert "the other rows were stored" in said.err
    assert count(ers, schema) == 1


def test_a_job_that_is_not_waited_for_can_be_asked_about_and_forgotten(
    ers: Ers, schema: str
) -> None:
    started = ers.done(
        "import", "--exact", "-", "--schema", schema, "--detach", typed="name\nAda\n"
    )
    job = started.out.strip()

    assert ers.done("job", "watch", job).one["status"] == "completed"
    assert ers.done("job", "get", job).one["processed"] == 1
    assert job in [line["job_id"] for line in ers.done("job", "list").lines]

    ers.done("job", "cancel", job)
    assert ers("job", "get", job).code == 3
    assert count(ers, schema) == 1


def test_a_header_that_does_not_fit_is_refused_while_the_file_is_still_on_its_way(
    ers: Ers, schema: str, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.csv"
    with file.open("w") as out:
        out.write("name,agee\n")
        out.write("a person of no particular name,36\n" * 300_000)
    said = ers("import", "--exact", file, "--schema", schema)
    assert said.code == 2
    assert "column 2 is not in the schema" in said.err
    assert "hint: without --exact, ers import detects how the file is written" in said.err


def test_a_source_that_fails_on_the_way_says_why_and_nothing_is_stored(
    ers: Ers, schema: str, tmp_path: Path
) -> None:
    rows = [{"name": "x", "age": 1.0}] * 50_000 + [{"name": "y", "age": float("nan")}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "nan.parquet")
    said = ers("import", "--exact", tmp_path / "nan.parquet", "--schema", schema)
    assert said.code == 6
    assert "row 50001, age: NaN" in said.err
    assert count(ers, schema) == 0


def test_ctrl_c_leaves_the_job_running_and_says_how_to_watch_it(
    ers: Ers, schema: str, running: Service, account: Account, tmp_path: Path
) -> None:
    file = tmp_path / "many.csv"
    file.write_text("name,age\n" + "Ada,36\n" * 60_000)
    before = {line["job_id"] for line in ers.done("job", "list").lines}
    process = forked.Forked(
        [*COMMAND, "import", "--exact", file, "--schema", schema],
        env=clean_environment(**environment(running, account)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def begun() -> Any:
        assert process.poll() is None
        new = [line for line in ers.done("job", "list").lines if line["job_id"] not in before]
        # Its total is known once the check has begun, and by then the watcher watches.
        return next((one["job_id"] for one in new if one["total"]), None)

    job = eventually(begun, "the job has begun")
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (130, "")
    assert err.strip() == f"the job goes on; watch it with: ers job watch {job}"
    assert ers.done("job", "watch", job).one["processed"] == 60_000
    assert count(ers, schema) == 60_000
