"""A job that seals all records again holds the version that it reads as long as it runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tests.support import jobs
from tests.support.erasures import seen_through
from tests.support.front import Asked, Reply, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


def test_a_reseal_holds_what_it_reads_until_it_ends_and_an_erasure_goes_on_then(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, DEFINITION)
    held: list[dict[str, Any]] = []

    def look(asked: Asked, reply: Reply) -> Reply:
        """Each time that a part is staged, before the job hears of it."""
        if asked.path.endswith("/staging/"):
            held.extend(store.api("GET", f"{store.schema}holds/").json())
        return reply

    with running_front(service.base_url) as front, running_proxy(front.url, tmp_path) as proxy:
        behind = dataclasses.replace(
            store, service=dataclasses.replace(service, proxy_url=proxy.url)
        )
        gone, *left = behind.ingest([{"name": f"name {n}"} for n in range(5)])
        with front.telling(look):
            begun = behind.proxy("POST", f"{store.schema}reseal/")
            assert begun.status == 202, begun.body
            jobs.completed(behind, begun.headers["X-Job-Status-URL"])
        assert {one["reason"] for one in held} == {"job"}
        assert {one["email"] for one in held} == {store.account.email}
        assert store.api("GET", f"{store.schema}holds/").json() == []
        erased = seen_through(behind, behind.proxy("DELETE", f"/api/records/{gone}/?erase=true"))
        assert erased["gone"]
        assert behind.found() == left
