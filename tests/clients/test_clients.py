"""The clients that users have bring a file over, also where connections keep breaking."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiotus
import pytest
from requests import ConnectionError as Broken
from tusclient.client import TusClient
from tusclient.exceptions import TusCommunicationError

from tests.clients.people import DEFINITION, People, assert_stored, job_of, written
from tests.support.cutting import Way, breaking_way
from tests.support.service import Service
from tests.support.store import Store, new_schema

HERE = Path(__file__).parent
CHUNK = 256 << 10
#: Of a file that takes a while: rows, and bytes of a row.
ROWS, ROW_BYTES = 400, 40_000


@pytest.fixture(scope="module")
def uploading(services: Callable[[str], Service]) -> Service:
    """Also under the name, with any port, of the ways that lead to it."""
    return services("loopback")


@pytest.fixture(scope="module")
def account_store(uploading: Service) -> Store:
    account = uploading.new_account()
    return Store(uploading, account, new_schema(uploading, account, DEFINITION))


@pytest.fixture
def store(account_store: Store) -> Store:
    """A schema of this test's own."""
    return account_store.another_schema(DEFINITION)


@pytest.fixture
def way(uploading: Service) -> Iterator[Way]:
    """Five cuts, each within a chunk, so that a client that sends each chunk by a connection of its
    own meets them as surely as one that keeps its connection."""
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    there = urlsplit(uploading.proxy_url)
    assert there.hostname and there.port
    with breaking_way(there.hostname, there.port, seed=seed, cuts=5, bytes_before=CHUNK) as found:
        yield found


@pytest.fixture
def people(tmp_path: Path, store: Store) -> People:
    return written(tmp_path, store, kind="csv", count=600, size=4_000)


@pytest.fixture
def long_way(uploading: Service) -> Iterator[Way]:
    """The same for a large file: three cuts, each within the next 4 MiB, so before its end."""
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    there = urlsplit(uploading.proxy_url)
    assert there.hostname and there.port
    with breaking_way(there.hostname, there.port, seed=seed, cuts=3, bytes_before=4 << 20) as found:
        yield found


@pytest.fixture
def many(tmp_path: Path, store: Store) -> People:
    """16 MB of records."""
    return written(tmp_path, store, kind="csv", count=ROWS, size=ROW_BYTES)


def by_tuspy(store: Store, url: str, people: People, **options: Any) -> str:
    """Upload the file; the job's id."""
    client = TusClient(f"{url}/api/files/", headers={"Authorization": store.account.auth})
    uploader = client.uploader(
        str(people.file),
        metadata={"filename": people.file.name, "filetype": "text/csv"},
        retries=20,
        retry_delay=0,
        **options,
    )
    uploader.upload()
    assert uploader.url is not None
    return job_of(uploader.url)


def by_tus_js(store: Store, url: str, people: People, **options: Any) -> dict[str, Any]:
    """Upload the file; what the client says of it."""
    found = told_by_tus_js(store, url, people, **options)
    assert "error" not in found, found
    return found


def told_by_tus_js(store: Store, url: str, people: People, **options: Any) -> dict[str, Any]:
    """The same, of an upload that may be refused."""
    asked = {
        "file": str(people.file),
        "endpoint": f"{url}/api/files/",
        "headers": {"Authorization": store.account.auth},
        "metadata": {"filename": people.file.name},
        "retryDelays": [0, 0, 100, 100, 200, 500, 1000, 1000],
        **options,
    }
    done = subprocess.run(
        ["node", str(HERE / "upload.mjs")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("chunk_size", [CHUNK, sys.maxsize], ids=["in chunks", "in one piece"])
def test_tuspy_uploads_a_file(
    uploading: Service, store: Store, people: People, chunk_size: int
) -> None:
    job = by_tuspy(store, uploading.proxy_url, people, chunk_size=chunk_size)
    assert_stored(store, job, people)


def test_tuspy_uploads_with_checksums(uploading: Service, store: Store, people: People) -> None:
    job = by_tuspy(store, uploading.proxy_url, people, chunk_size=CHUNK, upload_checksum=True)
    assert_stored(store, job, people)


def test_tuspy_gets_through_a_breaking_network(store: Store, way: Way, people: People) -> None:
    job = by_tuspy_stubbornly(store, way.url, people)
    assert way.made == 5
    assert_stored(store, job, people)


def by_tuspy_stubbornly(store: Store, url: str, people: People) -> str:
    """It does not try a creation again by itself, nor a question for the offset."""
    client = TusClient(f"{url}/api/files/", headers={"Authorization": store.account.auth})
    uploader = client.uploader(
        str(people.file),
        metadata={"filename": people.file.name, "filetype": "text/csv"},
        chunk_size=CHUNK,
    )
    for _ in range(30):
        try:
            if uploader.url is not None:
                uploader.offset = uploader.get_offset()
            uploader.upload()
        except (TusCommunicationError, Broken):
            continue
        assert uploader.url is not None
        return job_of(uploader.url)
    raise AssertionError("it never got through")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunkSize": CHUNK},
        {"chunkSize": CHUNK, "deferred": True},
        {"uploadDataDuringCreation": True, "chunkSize": CHUNK},
        {"overridePatchMethod": True},
        {"parallelUploads": 3, "chunkSize": CHUNK},
    ],
    ids=["one piece", "chunks", "deferred length", "with creation", "override", "parallel"],
)
def test_tus_js_client_uploads_a_file(
    uploading: Service, store: Store, people: People, options: dict[str, Any]
) -> None:
    found = by_tus_js(store, uploading.proxy_url, people, **options)
    assert_stored(store, job_of(found["url"]), people)
    named = found["headers"]
    assert named["X-Job-Id"] == job_of(found["url"])
    assert named["X-Job-Status-Url"].startswith(f"{uploading.proxy_url}/api/jobs/")
    assert named["X-Job-Websocket-Url"].startswith("ws://")


@pytest.mark.parametrize("parallel", [1, 3])
def test_tus_js_client_gets_through_a_breaking_network(
    store: Store, way: Way, people: People, parallel: int
) -> None:
    found = by_tus_js(
        store,
        way.url,
        people,
        chunkSize=CHUNK,
        parallelUploads=parallel,
        metadata={"filename": "people.csv", "filetype": "text/csv"},
    )
    assert way.made > 0
    assert_stored(store, job_of(found["url"]), people)


def test_a_json_file_is_known_by_its_name(uploading: Service, store: Store, tmp_path: Path) -> None:
    people = written(tmp_path, store, kind="json", count=50, size=100)
    found = by_tus_js(store, uploading.proxy_url, people)
    assert_stored(store, job_of(found["url"]), people)


def test_a_file_of_another_kind_is_refused_in_words_that_help(
    uploading: Service, store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    file.write_bytes(b"PK\x03\x04" + bytes(2000))
    told = told_by_tus_js(store, uploading.proxy_url, People(file, []))
    newest = store.proxy("GET", "/api/jobs/?limit=1").json()["results"][0]
    assert newest["status"] == "failed"
    for error in (told["error"], newest["error"]):
        assert "Excel" in error
        assert "CSV" in error


def test_tuspy_stops_in_the_middle_and_another_one_goes_on(
    uploading: Service, store: Store, many: People
) -> None:
    client = TusClient(
        f"{uploading.proxy_url}/api/files/", headers={"Authorization": store.account.auth}
    )
    metadata = {"filename": many.file.name, "filetype": "text/csv"}
    first = client.uploader(str(many.file), chunk_size=2 << 20, metadata=metadata)
    first.upload(stop_at=6 << 20)
    assert first.offset < many.file.stat().st_size
    second = client.uploader(str(many.file), chunk_size=5 << 20, url=first.url)
    assert second.offset == first.offset
    second.upload()
    assert second.url is not None
    assert_stored(store, job_of(second.url), many)


def test_aiotus_gets_a_large_file_through_a_breaking_network(
    store: Store, long_way: Way, many: People
) -> None:
    with many.file.open("rb") as file:
        url = asyncio.run(
            aiotus.upload(
                f"{long_way.url}/api/files/",
                file,
                metadata={"filename": many.file.name.encode(), "filetype": b"text/csv"},
                config=aiotus.RetryConfiguration(retry_attempts=20, max_retry_period_seconds=0.2),
                headers={"Authorization": store.account.auth},
            )
        )
    assert url is not None
    assert long_way.made == 3
    assert_stored(store, job_of(str(url)), many)


def test_tus_js_client_is_ended_in_the_middle_and_goes_on_in_another_process(
    uploading: Service, store: Store, many: People, tmp_path: Path
) -> None:
    options = {"storage": str(tmp_path / "uploads.json"), "chunkSize": 2 << 20}
    ended_early = by_tus_js(store, uploading.proxy_url, many, abortAt=6 << 20, **options)
    found = by_tus_js(store, uploading.proxy_url, many, **options)
    assert found["resumed"] == found["url"] == ended_early["url"]
    assert_stored(store, job_of(found["url"]), many)


def test_curl_gets_a_large_file_through_a_breaking_network(
    store: Store, long_way: Way, many: People
) -> None:
    content = many.file.read_bytes()
    name = base64.b64encode(many.file.name.encode()).decode()
    upload = ""
    for _ in range(10):
        code, made = by_curl(
            *("-X", "POST", f"{long_way.url}/api/files/", "-H", f"Upload-Length: {len(content)}"),
            *("-H", f"Upload-Metadata: filename {name}"),
            auth=store.account.auth,
        )
        if code == 0:
            upload = made["location"]
            break
    offset, broken = 0, 0
    for _ in range(20):
        # As `tail -c +OFFSET FILE | curl -T -` sends it, where the offset counts from 1.
        code, answered = by_curl(
            *("-X", "PATCH", "-T", "-", upload, "-H", f"Upload-Offset: {offset}"),
            *("-H", "Content-Type: application/offset+octet-stream"),
            auth=store.account.auth,
            stdin=content[offset:],
        )
        if code == 0 and answered["status"] == "204":
            assert answered["upload-offset"] == str(len(content))
            break
        broken += 1
        code, told = by_curl("-I", upload, auth=store.account.auth)
        if code == 0 and told["status"] == "200":
            assert offset <= int(told["upload-offset"]) < len(content)
            offset = int(told["upload-offset"])
    assert long_way.made == 3
    assert broken > 0
    assert_stored(store, job_of(upload), many)


def by_curl(*arguments: str, auth: str, stdin: bytes = b"") -> tuple[int, dict[str, str]]:
    """curl's exit code, and the headers of the last answer in lower case, ``status`` among them."""
    done = subprocess.run(
        [
            *("curl", "-sS", "-i", "--max-time", "60", *arguments),
            *("-H", "Tus-Resumable: 1.0.0", "-H", f"Authorization: {auth}"),
        ],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=120,
    )
    *_, last = done.stdout.decode().split("HTTP/1.1 ")
    status, *lines = last.split("\r\n\r\n")[0].splitlines() or [""]
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    return done.returncode, headers | {"status": status[:3]}
