"""Batch jobs of a store, by plain HTTP and WebSocket."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from websockets.sync.client import ClientConnection, connect

from encrypted_records.model import credentials, strict_json
from tests.support.eventually import eventually
from tests.support.service import Answer, call
from tests.support.store import Store

ENDED = ("completed", "failed")
#: A job of a test takes a second or two; a crowded machine may need many more.
PATIENCE = 90.0


def as_json(store: Store, rows: Sequence[Mapping[str, object]]) -> bytes:
    return strict_json.encode([{"schema": store.schema, "data": row} for row in rows])


def as_csv(store: Store, rows: Sequence[dict[str, Any]], names: Sequence[str]) -> bytes:
    """The interface's own form: rows have no cell below ``schema_id:...``."""
    lines = [",".join([*names, f"schema_id:{store.schema_id}"])]
    lines += [",".join(str(row.get(name, "")) for name in names) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def upload(
    store: Store,
    body: bytes,
    kind: str = "application/json",
    *,
    query: str = "",
    **headers: str,
) -> Answer:
    sent = {"Content-Type": kind} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    url = f"{store.service.proxy_url}/api/jobs/upload/{query}"
    sent = {credentials.DEVICE_HEADER: store.device.text, **sent}
    return call("POST", url, body, auth=store.account.auth, headers=sent)


def started(store: Store, body: bytes, kind: str = "application/json", **options: Any) -> str:
    """The path of a job that was taken."""
    answer = upload(store, body, kind, **options)
    assert answer.status == 201, answer.body
    assert answer.headers["X-Job-ID"] == answer.json()["job_id"]
    path = answer.headers["X-Job-Status-URL"]
    assert path == f"/api/jobs/{answer.json()['job_id']}/"
    assert answer.headers["X-Job-Websocket-URL"] == path.replace("/api/", "/api/ws/", 1)
    return path


def status(store: Store, path: str) -> dict[str, Any]:
    answer = store.proxy("GET", path)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def ended(store: Store, path: str, *, within: float = PATIENCE) -> dict[str, Any]:
    """The final payload."""

    def found() -> dict[str, Any] | None:
        told = status(store, path)
        return told if told["status"] in ENDED else None

    payload = eventually(found, "the job ends", within)
    assert payload is not None
    return payload


def completed(store: Store, path: str, **options: Any) -> dict[str, Any]:
    found = ended(store, path, **options)
    assert found["status"] == "completed", found
    return found


def flaws(store: Store, path: str) -> list[tuple[int, str | None, str]]:
    answer = store.proxy("GET", f"{path}errors/")
    assert answer.status == 200, answer.body
    return [(result["row"], result["field"], result["code"]) for result in answer.json()["results"]]


def socket(store: Store, path: str, **headers: str) -> ClientConnection:
    url = store.service.proxy_url.replace("http://", "ws://") + path.replace("/api/", "/api/ws/", 1)
    sent = headers if headers else {"Authorization": store.account.auth}
    return connect(url, additional_headers=sent, proxy=None, close_timeout=5)


def messages(connection: ClientConnection) -> Iterator[dict[str, Any]]:
    """What the socket says until it closes."""
    for text in connection:
        yield json.loads(text)
