"""A clock that is ahead for a moment ends no upload."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from encrypted_records.proxy.process import CLOCK, UPLOAD_SWEEP
from encrypted_records.proxy.settings import Overrides
from encrypted_records.proxy.uploads.service import LIFETIME_SECONDS
from tests.support import jobs
from tests.support.fixtures import front, proxy, store
from tests.support.proxies import Proxy
from tests.support.service import Answer, call
from tests.support.store import Store

__all__ = ["front", "proxy", "store"]

DAY = 86_400.0
TUS = {"Tus-Resumable": "1.0.0"}


@dataclass
class Clocks:
    """The wall's, which somebody may set, and the one that only goes on."""

    wall: float = field(default_factory=time.time)
    real: float = 1000.0

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.real += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def overrides(clocks: Clocks) -> Overrides:
    return Overrides(clock=lambda: clocks.wall, real_time=lambda: clocks.real)


@pytest.fixture
def definition() -> dict[str, Any]:
    return {"type": "object", "properties": {"t": {"type": "string"}}}


def send(store: Store, method: str, path: str, body: bytes | None, **headers: str) -> Answer:
    sent = TUS | {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"{store.service.proxy_url}{path}"
    return call(method, url, body, auth=store.account.auth, headers=sent)


def append(store: Store, path: str, offset: int, body: bytes) -> Answer:
    kind = "application/offset+octet-stream"
    return send(store, "PATCH", path, body, Content_Type=kind, Upload_Offset=str(offset))


def create(store: Store, size: int) -> Answer:
    """Ask for an upload of a JSON file, with a job."""
    kind = base64.b64encode(b"application/json").decode()
    told = {"Upload_Length": str(size), "Upload_Metadata": f"filetype {kind}"}
    return send(store, "POST", "/api/files/", b"", **told)


def begin(store: Store, data: bytes) -> tuple[str, str]:
    """The paths of an upload and of its job, after the first ten bytes."""
    made = create(store, len(data))
    assert made.status == 201, made.body
    path = f"/api/files/{made.headers['Location'].rsplit('/', 1)[1]}"
    assert append(store, path, 0, data[:10]).status == 204
    return path, f"/api/jobs/{made.headers['X-Job-Id']}/"


def test_an_upload_outlives_a_clock_that_was_forty_days_ahead_for_a_moment(
    store: Store, proxy: Proxy, clocks: Clocks
) -> None:
    data = jobs.as_json(store, [{"t": "x"}])
    path, job = begin(store, data)
    proxy.settle(CLOCK)
    clocks.wall += 40 * DAY
    clocks.real += 1
    proxy.settle(UPLOAD_SWEEP)
    assert send(store, "HEAD", path, None).headers["Upload-Offset"] == "10"
    clocks.wall -= 40 * DAY
    assert append(store, path, 10, data[10:]).status == 204
    jobs.completed(store, job)


def test_an_upload_expires_once_its_time_is_really_over(store: Store, clocks: Clocks) -> None:
    path, job = begin(store, jobs.as_json(store, [{"t": "x"}]))
    for _ in range(8):
        clocks.pass_by(DAY)
        store.proxy("GET", "/api/jobs/")
    assert clocks.wall > time.time() + LIFETIME_SECONDS
    assert send(store, "HEAD", path, None).status == 410
    assert jobs.ended(store, job)["error"].endswith("(upload_expired)")
