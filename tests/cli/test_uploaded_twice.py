"""A file that was stored is stored again only by who says so, through whichever door it comes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from encrypted_records import AsyncClient, Client
from encrypted_records.cli.command_group import CommandLimits
from encrypted_records.client.sdk.sync_client import Dataset
from encrypted_records.errors import Conflict, ErsError, InvalidSetting, UploadedBefore
from tests.cli.command import Ers, environment
from tests.cli.terminals import COMMAND
from tests.support import forked
from tests.support.fifo import fifo
from tests.support.front import running_front
from tests.support.held_back import HeldBack
from tests.support.proxies import running_proxy
from tests.support.service import Account, Answer, Service, call, clean_environment
from tests.support.store import new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}
ROWS = [{"name": f"person {number}"} for number in range(150)]
CSV = ("name\n" + "".join(f"{row['name']}\n" for row in ROWS)).encode()
RESUMABLE = CommandLimits(resumable_bytes=1)
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


@pytest.fixture
def client(running: Service, account: Account) -> Iterator[Client]:
    with Client(running.proxy_url, email=account.email, password=account.password) as one:
        yield one


@pytest.fixture
def dataset(client: Client) -> Dataset:
    return client.create_dataset(f"d{secrets.token_hex(4)}")


@pytest.fixture
def schema(dataset: Dataset) -> str:
    return dataset.create_schema("people", DEFINITION).id


def write(path: Path) -> Path:
    match path.suffix:
        case ".csv":
            path.write_bytes(CSV)
        case ".ndjson":
            path.write_bytes(LINES)
        case ".json":
            path.write_text(json.dumps([{"data": row} for row in ROWS]))
        case _:
            parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    return path


def counted(client: Client, schema: str) -> int:
    return client.schema(schema).count()


def refused(said: Any) -> str:
    """The job that a refusal of the command names."""
    assert (said.code, said.out) == (4, ""), said
    assert "to store it again: --again; to see that job: ers job get " in said.err
    words = said.err.split()
    assert words[:2] == ["error:", "job"]
    assert re.search(
        r" this file (?:at|, which was sent at) 20\d\d-\d\d-\d\d \d\d:\d\d\b", said.err
    )
    return str(words[2])


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("import", "--exact"), "a.csv"),
        (("import", "--exact"), "a.ndjson"),
        (("import", "--exact"), "a.json"),
        (("import", "--exact"), "a.parquet"),
        (("record", "create", "--file"), "a.ndjson"),
    ],
)
def test_the_same_file_is_refused_and_its_job_is_named_unless_it_is_wanted_again(
    ers: Ers, client: Client, schema: str, tmp_path: Path, command: tuple[str, ...], name: str
) -> None:
    upload: list[str | Path] = [*command, write(tmp_path / name), "--schema", schema]
    job = ers.done(*upload).one["job_id"]

    assert refused(ers(*upload)) == job
    assert counted(client, schema) == 150

    again = ers.done(*upload, "--again")
    assert again.one["job_id"] != job
    assert counted(client, schema) == 300


def test_the_same_bytes_from_a_pipe_or_standard_input_are_refused_too(
    ers: Ers, client: Client, schema: str, tmp_path: Path
) -> None:
    upload = ("import", "--exact", "--schema", schema)
    with fifo(tmp_path / "first", CSV) as path:
        job = ers.done(*upload, path).one["job_id"]
    with fifo(tmp_path / "second", CSV) as path:
        assert refused(ers(*upload, path)) == job
    assert refused(ers(*upload, "-", typed=CSV.decode())) == job
    assert refused(ers(*upload, write(tmp_path / "third.csv"))) == job
    assert counted(client, schema) == 150
    ers.done(*upload, "-", typed="name\nAda\n")
    assert counted(client, schema) == 151


def test_rows_that_replace_others_may_come_again(
    ers: Ers, dataset: Dataset, tmp_path: Path
) -> None:
    unique = dataset.create_schema("unique", DEFINITION | {"unique": [["name"]]})
    upload = ("import", "--exact", write(tmp_path / "a.csv"), "--schema", unique.id)
    for _ in range(2):
        ers.done(*upload, "--on-conflict", "replace")
    assert unique.upload(tmp_path / "a.csv", on_conflict="skip").wait().status == "completed"
    assert unique.count() == 150


def by_command(ers: Ers, running: Service, account: Account, schema: str, path: Path) -> None:
    said = ers("import", "--exact", path, "--schema", schema)
    if said.code:
        raise UploadedBefore.by(refused(said), said.err)


def by_resumable_command(
    ers: Ers, running: Service, account: Account, schema: str, path: Path
) -> None:
    said = ers("import", "--exact", path, "--schema", schema, limits=RESUMABLE)
    if said.code:
        raise UploadedBefore.by(refused(said), said.err)


def by_client(ers: Ers, running: Service, account: Account, schema: str, path: Path) -> None:
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        client.schema(schema).upload(path).wait()


def by_asynchronous_client(
    ers: Ers, running: Service, account: Account, schema: str, path: Path
) -> None:
    async def upload() -> None:
        async with AsyncClient(
            running.proxy_url, email=account.email, password=account.password
        ) as client:
            job = await (await client.schema(schema)).upload(path)
            await job.wait()

    asyncio.run(upload())


def _sent(
    running: Service, account: Account, path: str, body: bytes, said: dict[str, str], **more: str
) -> Answer:
    pairs = (f"{name} {b64encode(text.encode()).decode()}" for name, text in said.items())
    headers = {"Upload-Metadata": ",".join(pairs)} | {
        name.replace("_", "-"): text for name, text in more.items()
    }
    answer = call("POST", running.proxy_url + path, body, auth=account.auth, headers=headers)
    if answer.status == 409:
        raise UploadedBefore.by(answer.json()["job_id"], answer.json()["detail"])
    assert answer.status == 201, answer.body
    return answer


def by_page(ers: Ers, running: Service, account: Account, schema: str, path: Path) -> None:
    """What the page of uploads sends."""
    ends = hashlib.sha256(CSV[: 1 << 16] + CSV[-(1 << 16) :]).hexdigest()
    said = {"filename": "from a page.csv", "schema": schema, "ends": ends, "on_repeat": "refuse"}
    more = {"Tus_Resumable": "1.0.0", "Content_Type": "application/offset+octet-stream"}
    _sent(running, account, "/api/files/", CSV, said, Upload_Length=str(len(CSV)), **more)


def by_page_without_scripts(
    ers: Ers, running: Service, account: Account, schema: str, path: Path
) -> None:
    said = {"filename": "from another page.csv", "on_repeat": "refuse"}
    path_of_jobs = f"/api/jobs/upload/?schema={schema}"
    _sent(running, account, path_of_jobs, CSV, said, Content_Type="text/csv")


Door = Callable[[Ers, Service, Account, str, Path], None]
DOORS: list[Door] = [
    by_command,
    by_resumable_command,
    by_client,
    by_asynchronous_client,
    by_page,
    by_page_without_scripts,
]


@pytest.mark.parametrize(("first", "second"), list(pairwise([*DOORS, DOORS[0]])))
def test_what_one_door_stored_the_next_door_refuses(
    ers: Ers,
    client: Client,
    running: Service,
    account: Account,
    schema: str,
    tmp_path: Path,
    first: Door,
    second: Door,
) -> None:
    """Round and round, so that all say the same of a file."""
    path = write(tmp_path / "a.csv")
    first(ers, running, account, schema, path)
    job = next(iter(client.jobs())).id
    ers.done("job", "watch", job)
    with pytest.raises(UploadedBefore) as before:
        second(ers, running, account, schema, path)
    assert before.value.job_id == job
    assert counted(client, schema) == 150


def test_of_two_uploads_of_a_file_at_the_same_time_one_is_stored(
    running: Service, account: Account, client: Client, schema: str, tmp_path: Path
) -> None:
    """Each was begun before the other was there."""
    path = write(tmp_path / "a.csv")

    async def upload() -> list[Any]:
        async with AsyncClient(
            running.proxy_url, email=account.email, password=account.password
        ) as one:
            begun = [
                await one.calls.begin_stream("a.csv", schema=schema, again=False) for _ in range(2)
            ]
            await asyncio.gather(
                *(one.calls.append(at, 0, path.read_bytes(), is_last=True) for at, _ in begun)
            )
            return [await one.calls.wait(job) for _, job in begun]

    ends = asyncio.run(upload())

    assert sorted(end.status for end in ends) == ["completed", "failed"]
    (failed,) = [end for end in ends if end.status == "failed"]
    assert failed.error is not None and failed.error.endswith("(uploaded_before)")
    assert counted(client, schema) == 150


def test_a_pipe_is_uploaded_by_the_clients_and_not_twice(
    client: Client, schema: str, tmp_path: Path
) -> None:
    people = client.schema(schema)
    with fifo(tmp_path / "second", CSV + b"x\n" * 40_000) as path:
        assert people.upload(path).wait().total == 40_150
    assert people.count() == 40_150
    with fifo(tmp_path / "third", CSV + b"x\n" * 40_000) as path, pytest.raises(ErsError) as error:
        people.upload(path).wait()
    assert "uploaded_before" in error.value.message
    assert people.count() == 40_150


def test_a_file_that_changes_while_it_is_sent_is_refused_and_nothing_is_stored(
    client: Client, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.csv")
    proxy = client._link.proxy
    begin = proxy.begin_upload

    async def change(*given: Any, **more: Any) -> Any:
        begun = await begin(*given, **more)
        path.write_bytes(CSV[:100])
        return begun

    monkeypatch.setattr(proxy, "begin_upload", change)
    with pytest.raises(InvalidSetting, match="was changed while it was sent"):
        client.schema(schema).upload(path)
    assert counted(client, schema) == 0


def test_a_command_goes_on_with_the_job_that_an_interrupted_command_began(
    services: Callable[[str], Service], tmp_path: Path
) -> None:
    service = services("sqlite")
    with (
        running_front(service.base_url) as front,
        running_proxy(front.url, tmp_path / "proxy") as proxy,
    ):
        there = Service(
            service.process, service.base_url, proxy.url, service.data_dir, service.log_file
        )
        store = new_store(there, DEFINITION)
        told = clean_environment(
            **environment(there, store.account) | {"XDG_STATE_HOME": str(tmp_path / "state")}
        )
        path = write(tmp_path / "a.csv")
        upload = [*COMMAND, "import", "--exact", str(path), "--schema", store.schema_id]
        held = HeldBack(holds=lambda asked: "staged" in asked.path or "publish" in asked.path)
        with front.telling(held):
            job = forked.run([*upload, "--detach"], told).stdout.strip()
            assert held.came.wait(60)
            again = forked.Forked(
                upload, env=told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            assert again.stderr is not None
            line = again.stderr.readline()
            held.go.set()
            out, err = again.communicate(timeout=90)
        assert line == f"job {job} is already storing this file; this is its progress\n"
        assert (again.returncode, json.loads(out)["job_id"]) == (0, job), err
        assert len(store.everything()) == 150


def test_datasets_and_schemas_of_one_name_are_one_unless_a_slug_says_otherwise(
    ers: Ers, client: Client
) -> None:
    name = f"Census {secrets.token_hex(4)}"
    census = client.create_dataset(name)
    adult = census.create_schema("Adult", DEFINITION)

    for make in (
        lambda: client.create_dataset(name),
        lambda: census.create_schema("Adult", DEFINITION),
    ):
        with pytest.raises(Conflict, match="already exists, with the slug") as refusal:
            make()
        assert refusal.value.reason == "slug_taken"
    said = ers("dataset", "create", "--name", name)
    assert (said.code, "--get-or-create" in said.err) == (4, True)

    assert client.create_dataset(name, get_or_create=True).id == census.id
    assert census.create_schema("Adult", DEFINITION, get_or_create=True).id == adult.id
    assert ers.done("dataset", "create", "--name", name, "--get-or-create").one["id"] == census.id
    make_schema = ("schema", "create", "--dataset", census.id, "--name", "Adult", "--file", "-")
    typed = json.dumps(DEFINITION)
    assert ers(*make_schema, typed=typed).code == 4
    assert ers.done(*make_schema, "--get-or-create", typed=typed).one["id"] == adult.id

    other = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}
    with pytest.raises(Conflict) as different:
        census.create_schema("Adult", other, get_or_create=True)
    assert different.value.reason == "other_definition"
    said = ers(*make_schema, "--get-or-create", typed=json.dumps(other))
    assert (said.code, "another definition" in said.err) == (4, True)
    assert [one.id for one in census.schemas()] == [adult.id]

    second = client.create_dataset(name, slug=f"second-{secrets.token_hex(4)}")
    assert second.id != census.id
    with pytest.raises(InvalidSetting, match="names 2 datasets"):
        client.create_dataset(name, get_or_create=True)
    assert client.create_dataset(name, slug=second.slug, get_or_create=True).id == second.id
    new = client.create_dataset(f"new {name}", get_or_create=True)
    exact = {
        "type": "object",
        "properties": {"n": {"type": "number", "minimum": 0.1, "maximum": 1, "precision": 2}},
    }
    one = new.create_schema("n", exact, get_or_create=True)
    assert new.create_schema("n", exact, get_or_create=True).id == one.id
