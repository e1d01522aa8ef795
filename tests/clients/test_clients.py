"""The clients that users have bring a file over, also where connections keep breaking."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from requests import ConnectionError as Broken
from tusclient.client import TusClient
from tusclient.exceptions import TusCommunicationError

from tests.clients.people import DEFINITION, People, assert_stored, ended, job_of, written
from tests.support.cutting import Way, breaking_way
from tests.support.service import Service, running_service
from tests.support.store import Store, new_schema

HERE = Path(__file__).parent
CHUNK = 256 << 10


@pytest.fixture(scope="module")
def uploading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Also under the name, with any port, of the ways that lead to it."""
    folder = tmp_path_factory.mktemp("clients") / "data"
    names = {"ERS_ALLOWED_HOSTS": "127.0.0.1"}
    with running_service(folder, environment=names) as service:
        yield service


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
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    there = urlsplit(uploading.proxy_url)
    assert there.hostname and there.port
    with breaking_way(
        there.hostname, there.port, seed=seed, cuts=5, bytes_before=2 * CHUNK
    ) as found:
        yield found


@pytest.fixture
def people(tmp_path: Path, store: Store) -> People:
    return written(tmp_path, store, kind="csv", count=600, size=4_000)


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
    assert "error" not in found, found
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
    assert way.made > 0
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


def test_a_file_of_another_kind_fails_its_job_in_words_that_help(
    uploading: Service, store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    file.write_bytes(b"PK\x03\x04" + bytes(2000))
    found = by_tus_js(store, uploading.proxy_url, People(file, []))
    payload = ended(store, job_of(found["url"]))
    assert payload["status"] == "failed"
    assert "Excel" in payload["error"]
    assert "CSV" in payload["error"]
