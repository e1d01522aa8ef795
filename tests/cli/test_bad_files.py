"""Files that nobody can store: refused by name on every way in, in bounded memory, with nothing
stored. Files that were damaged: on every way in they are read alike, or refused so."""

from __future__ import annotations

import http.client
import json
import secrets
import select
import sqlite3
import struct
import subprocess
import sys
import zlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from encrypted_records import Client
from encrypted_records.client.sdk.sync_client import Dataset, Schema
from encrypted_records.errors import BadInput, ReadingQuestion
from encrypted_records.model import credentials
from encrypted_records.model.samples import FileReading
from encrypted_records.proxy.workers import messages
from tests.cli.command import Ers
from tests.support.mutated_files import count_of_mutations, mutations
from tests.support.page_visits import Browser, logged_in
from tests.support.service import Account, Service, call, running_service
from tests.support.store import new_store

TWO_GIB = 2 << 30
#: Run a worker, and print its peak: here it would be that of all children that there ever were.
WEIGHED = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "encrypted_records.proxy.workers.main"], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""
OTHER_TABLES = ("accounts_", "organizations_", "django_", "sqlite_")
_ZIP = struct.Struct("<4s5H3I2H")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")


def deflated(mebibytes: int) -> bytes:
    """Blanks, as many as asked for, which deflate to a thousandth."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * mebibytes + zlib.compressobj(9, zlib.DEFLATED, -15).flush()


def bomb(mebibytes: int, said: int) -> bytes:
    """A workbook whose sheet unfolds to so much; its entry says another size, in bytes."""
    parts = {"[Content_Types].xml": b"<x/>", "xl/workbook.xml": b"<x/>"}
    stored = {name: (zlib.compress(part)[2:-4], len(part)) for name, part in parts.items()}
    stored["xl/worksheets/sheet1.xml"] = deflated(mebibytes), said
    body, entries = b"", b""
    for name, (data, size) in stored.items():
        crc = zlib.crc32(parts.get(name, b""))
        about = (20, 0, 8, 0, 0x5A21, crc, len(data), size, len(name))
        entries += _ENTRY.pack(b"PK\1\2", 20, *about, 0, 0, 0, 0, 0, len(body)) + name.encode()
        body += _ZIP.pack(b"PK\3\4", *about, 0) + name.encode() + data
    end = _END.pack(b"PK\5\6", 0, 0, len(stored), len(stored), len(entries), len(body), 0)
    return body + entries + end


LOGIN = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>a,b</body></html>\n"
MIXED = "name,city\nJürgen,Köln\nZoë,Nîmes\nÅsa,Malmö\n".encode() + "Jörg,Öhringen\n".encode(
    "cp1252"
)
#: tests/ingest/test_reading.py and test_containers.py have more kinds, of the same reader.
BAD = {
    "bomb.xlsx": (bomb(2100, 2100 << 20), "expands to more than 256 MiB"),
    "lie.xlsx": (bomb(2100, 1000), "damaged"),
    "packed.csv": (b"\x1f\x8b\x08\0\0\0\0\0\0\3" + deflated(1500), "compressed with gzip"),
    "login.csv": (LOGIN, "web page"),
    "cut.csv": (b'a,b\n1,x\n2,y\n3,"z', "quote is not closed"),
    "mixed.csv": (MIXED, "mixed"),
    "line.csv": (b"a" * (3 << 20), "more than a MiB"),
}


def stored_at(service: Service) -> dict[str, int]:
    """Rows of each table at the API, but those about accounts; and bytes of its other files."""
    folder = service.data_dir / "api"
    files = [one for one in folder.rglob("*") if one.is_file() and "db.sqlite3" not in one.name]
    counts = {"files": len(files), "bytes": sum(one.stat().st_size for one in files)}
    with closing(sqlite3.connect(folder / "db.sqlite3")) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in tables:
            if not name.startswith(OTHER_TABLES):
                counts[name] = database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
    assert len(counts) > 5
    return counts


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One that no other file uses: what its tests deleted would be swept between two counts."""
    with running_service(tmp_path_factory.mktemp("alone") / "data") as service:
        yield service


@pytest.fixture(scope="module")
def client(running: Service, account: Account) -> Iterator[Client]:
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        yield client


@pytest.fixture(scope="module")
def browser(running: Service, account: Account) -> Browser:
    return logged_in(running, account)


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_table_is_refused_by_name_on_every_way_and_nothing_is_stored(
    ers: Ers,
    running: Service,
    account: Account,
    client: Client,
    browser: Browser,
    tmp_path: Path,
    name: str,
) -> None:
    body, says = BAD[name]
    path = tmp_path / name
    path.write_bytes(body)
    dataset = client.create_dataset(f"Bad {secrets.token_hex(4)}")
    before = stored_at(running)

    url = f"{running.proxy_url}/api/readings/detect/"
    headers = {"Content-Type": "application/octet-stream"}
    answer = call("POST", url, body, auth=account.auth, headers=headers)
    assert answer.status in (400, 413), answer.body
    assert says in answer.json()["detail"], answer.json()

    said = ers("import", path, "--dataset", dataset.slug, "--yes")
    assert said.code != 0
    assert says in said.err
    with pytest.raises(BadInput) as caught:
        dataset.import_file(path)
    assert says in caught.value.message

    head = urlsafe_b64encode(body[: 5 << 19]).decode()
    page = browser.visit("/import/", file=name, size=str(len(body)), head=head, do="look")
    assert page.status in (400, 413)
    assert says in page.body.decode() or len(body) > 5 << 19
    assert stored_at(running) == before
    assert not list(dataset.schemas())


@pytest.mark.parametrize("name", ["bomb.xlsx", "lie.xlsx", "packed.csv", "line.csv"])
def test_the_memory_of_a_worker_is_bounded_whatever_it_looks_at(name: str) -> None:
    task = messages.encode(messages.DetectTask(BAD[name][0][: 16 << 20], True, b"", False))
    sent = len(task).to_bytes(messages.LENGTH_BYTES, "big") + task
    ended = subprocess.run(
        [sys.executable, "-c", WEIGHED], input=sent, capture_output=True, check=True, timeout=120
    )
    failed = messages.decode_from_worker(ended.stdout[messages.LENGTH_BYTES :])
    assert isinstance(failed, messages.Failed)
    assert int(ended.stderr.split()[-1]) * 1024 < TWO_GIB


READING = {"columns": [{"source": "a", "name": "a"}, {"source": "b", "name": "b"}]}
FIELDS = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}


def streamed(url: str, headers: dict[str, str], first: bytes, size: int) -> tuple[int, int, bytes]:
    """Send a file of one endless line until all is sent or an answer comes: how much that was,
    and the answer's status and body."""
    place = urlsplit(url)
    assert place.hostname
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=120)
    connection.putrequest("POST", f"{place.path}?{place.query}")
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.putheader("Content-Length", str(size))
    connection.endheaders()
    piece, sent = first + b"x" * ((1 << 20) - len(first)), 0
    while sent < size and not select.select([connection.sock], [], [], 0)[0]:
        try:
            connection.sock.sendall(piece)
        except ConnectionError:
            break
        sent += len(piece)
        piece = b"x" * (1 << 20)
    answer = connection.getresponse()
    return sent, answer.status, answer.read()


def test_a_line_of_two_gigabytes_is_refused_when_its_beginning_is_there(
    running: Service, account: Account
) -> None:
    store = new_store(running, FIELDS)
    before = stored_at(running)
    told = b64encode(json.dumps(READING).encode()).decode()
    headers = {
        "Authorization": store.account.auth,
        "Content-Type": "application/octet-stream",
        "Upload-Metadata": f"reading {told}",
        credentials.DEVICE_HEADER: store.device.text,
    }
    url = f"{running.proxy_url}/api/jobs/upload/?schema={store.schema_id}"
    sent, status, body = streamed(url, headers, b"", TWO_GIB)
    assert status in (400, 413), body
    assert sent < 256 << 20
    assert stored_at(running) == before


def stored_by_python(dataset: Dataset, path: Path) -> Schema | None:
    """The schema of a file, of which what is likely is said, and nothing of what nobody can know.
    None where it is refused."""
    try:
        try:
            return dataset.import_file(path, name="python").schema
        except ReadingQuestion as question:
            found = question.reading
            assert isinstance(found, FileReading)
            said: dict[str, Any] = {member: found.reading[member] for member in found.guessed}
            asked = {field.name: {"type": "text"} for field in found.fields if field.ask}
            said |= {"columns": asked} if asked else {}
            return dataset.import_file(path, name="python", reading=said).schema
    except BadInput as error:
        assert error.message
        return None


def rows_of(schema: Schema) -> list[str]:
    return sorted(repr(sorted(record.data.items())) for record in schema.search())


def test_mutated_files_are_read_alike_or_refused_on_every_way(
    ers: Ers, running: Service, account: Account, tmp_path: Path
) -> None:
    browser = logged_in(running, account)
    url = f"{running.proxy_url}/api/readings/detect/"
    headers = {"Content-Type": "application/octet-stream"}
    refused = stored = 0
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        for number, body in enumerate(mutations(count_of_mutations(8))):
            path = tmp_path / f"mutated{number}.csv"
            path.write_bytes(body)
            dataset = client.create_dataset(f"Mutated {secrets.token_hex(4)}")
            before = stored_at(running)
            answer = call("POST", url, body, auth=account.auth, headers=headers)
            head = urlsafe_b64encode(body).decode()
            page = browser.visit(
                "/import/", file=path.name, size=str(len(body)), head=head, do="look"
            )
            flags: list[str] = []
            if answer.status == 200:
                found = answer.json()
                for guess in found["guessed"]:
                    flags += [f"--{guess}", str(found["reading"][guess])]
                assert page.status == 200, number
            else:
                assert answer.status in (400, 413), (number, answer.body)
                assert answer.json()["detail"]
                assert page.status == answer.status, number
            said = ers("import", path, "--dataset", dataset.slug, "--name", "ers", "--yes", *flags)
            schema = stored_by_python(dataset, path)
            assert (said.code == 0) is (schema is not None), (number, said.err)
            made = {each.name: each for each in dataset.schemas()}
            if schema is not None:
                stored += 1
                assert rows_of(made["ers"]) == rows_of(schema) != [], number
                continue
            refused += 1
            assert said.code in (2, 5, 6), (number, said.err)
            assert "error" in said.err or "rejected" in said.err, (number, said.err)
            # A schema may be there whose first rows fit, and then one did not: it is empty.
            assert not any(each.count() for each in made.values()), number
            if answer.status != 200:
                assert stored_at(running) == before, number
    assert stored
    assert refused
