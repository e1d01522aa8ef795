"""A proxy that is told to end while it waits for the API."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support.front import Asked, Reply, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Answer, Service
from tests.support.store import new_store


def test_requests_that_wait_for_the_api_are_answered_by_name(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, {"type": "object", "properties": {"name": {"type": "string"}}})
    let_go, waiting = threading.Event(), threading.Semaphore(0)

    def hold(_asked: Asked) -> Reply | None:
        waiting.release()
        let_go.wait(60)
        return None

    found: dict[str, Answer] = {}

    def ask(name: str, method: str, path: str, body: Any = None) -> None:
        found[name] = behind.proxy(method, path, body)

    with running_front(service.base_url) as front, ExitStack() as stack:
        proxy = stack.enter_context(running_proxy(front.url, tmp_path))
        behind = dataclasses.replace(
            store, service=dataclasses.replace(service, proxy_url=proxy.url)
        )
        record = [{"schema": store.schema, "data": {}}]
        asked = {
            "search": ("POST", "/api/records/search/", {"schema": store.schema}),
            "ingest": ("POST", "/api/records/ingest/", record),
            "forwarded": ("GET", "/api/datasets/", None),
        }
        assert behind.proxy(*asked["search"]).status == 200
        front.invent = hold
        threads = [threading.Thread(target=ask, args=(name, *one)) for name, one in asked.items()]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert waiting.acquire(timeout=60)
        try:
            stack.close()  # the proxy is told to end
        finally:
            let_go.set()
        for thread in threads:
            thread.join(60)
    for name in asked:
        answer = found[name]
        assert (answer.status, answer.json()["code"]) == (503, "stopping"), (name, answer.body)
        assert int(answer.headers["Retry-After"]) > 0
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.headers["X-Request-ID"]
