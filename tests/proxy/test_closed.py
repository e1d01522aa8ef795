"""With other keys all is refused by name. An API that alters is in ``test_hostile_api.py``, and one
that forgets in ``test_accepting_logs.py``."""

from __future__ import annotations

from pathlib import Path

from tests.support.fixtures import at
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


def test_a_proxy_with_another_keyring_is_refused_on_every_way_to_the_records(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, DEFINITION)
    (record_id,) = store.ingest([{"name": "first"}])
    sealed = store.api("GET", f"/api/records/{record_id}/").json()
    with running_proxy(service.base_url, tmp_path) as other:
        there = at(store, other)
        answers = [
            there.ask(),
            there.send([{"name": "second"}]),
            there.proxy("GET", f"/api/records/{record_id}/"),
            there.proxy("GET", f"/api/records/?schema={store.schema_id}"),
            there.proxy("POST", "/api/records/decrypt/", sealed),
        ]
    for answer in answers:
        assert (answer.status, answer.json()["code"]) == (422, "key_missing")
        assert sealed["key_id"] in answer.json()["detail"]
    listed = store.api("GET", f"/api/records/?schema={store.schema_id}").json()
    assert listed["count"] == 1
