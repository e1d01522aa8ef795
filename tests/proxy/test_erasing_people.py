"""A person is erased from a dataset whose schemas are deleted from one after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from encrypted_records.http import problem
from tests.support.front import Asked, Reply, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import new_store

DEFINITION: dict[str, Any] = {"type": "object", "properties": {"email": {"type": "string"}}}
ADA = {"email": "ada@example.org"}


def test_an_erasure_that_stops_names_what_is_deleted_and_can_be_repeated(
    service: Service, tmp_path: Path
) -> None:
    with (
        running_front(service.base_url) as front,
        running_proxy(front.url, tmp_path / "proxy") as proxy,
    ):
        made = new_store(service, DEFINITION)
        first = replace(made, service=replace(service, proxy_url=proxy.url))
        about = first.proxy("GET", first.schema).json()
        body = {"name": "visits", "dataset": about["dataset"], "schema": DEFINITION}
        second = replace(first, schema=first.proxy("POST", "/api/schemas/", body).json()["url"])
        for store in (first, second):
            store.ingest([ADA, ADA, {"email": "other@example.org"}])
        erase = f"{about['dataset']}erase/"
        subject = {"field": "email", "value": ADA["email"]}

        commits = 0

        def refuse_the_second(asked: Asked) -> Reply | None:
            nonlocal commits
            commits += asked.path == "/api/commits/"
            refused = asked.path == "/api/commits/" and commits > 1
            text = b'{"code": "not_allowed", "detail": "no"}'
            return Reply(403, {"Content-Type": problem.MEDIA_TYPE}, text) if refused else None

        front.invent = refuse_the_second
        stopped = first.proxy("POST", f"{erase}?confirm=4", subject)
        front.invent = lambda _asked: None

        counts = {store.schema: len(store.everything()) for store in (first, second)}
        assert sorted(counts.values()) == [1, 3]
        (done,) = [path for path, count in counts.items() if count == 1]
        slug = first.proxy("GET", done).json()["slug"]
        assert stopped.status == 403
        assert f"records deleted before that: 2 of {slug}" in stopped.json()["detail"]
        assert "repeat the request" in stopped.json()["hint"]

        refused = first.proxy("POST", f"{erase}?confirm=4", subject)
        assert (refused.status, refused.json()["code"]) == (409, "confirm_count")
        receipt = first.proxy("POST", f"{erase}?confirm=2", subject).json()
        assert (receipt["deleted"], receipt["gone"]) == (2, True)
        assert {one["schema"] for one in receipt["schemas"]} == set(counts)
        assert [len(store.everything()) for store in (first, second)] == [1, 1]
