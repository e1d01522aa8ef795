"""A schema gains an index of words: old records are found before and after a reseal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from encrypted_records.index.segments.merge_policy import Tier
from tests.proxy.test_reseal import resealed
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

NOTES = ["Fever since Monday", "no FEVER, no cough", "a cough", None, "f\u00e9ver " + "x" * 200]
FEVER = {"field": "note", "op": "has_words", "value": "fever"}
PHRASE = {"field": "note", "op": "has_phrase", "value": "no fever"}


def definition(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"note": {"type": "string", **more}}}


def explained(store: Store, where: Any) -> dict[str, Any]:
    body = {"schema": store.schema, "where": where}
    answer = store.proxy("POST", "/api/records/explain/", body)
    assert answer.status == 200
    found: dict[str, Any] = answer.json()
    return found


def test_records_from_before_the_index_are_found_and_a_reseal_lists_their_words(
    service: Service,
) -> None:
    store = new_store(service, definition())
    named = store.ingest([{"note": note} if note else {} for note in NOTES])
    with_fever = [named[0], named[1], named[4]]
    assert store.found(FEVER) == with_fever
    assert explained(store, FEVER)["scan"] == "column"

    body = {"schema": definition(**{"x-index": ["words"]}), "dry_run": True}
    told = store.proxy("POST", f"{store.schema}change/", body).json()
    assert (told["takes"], [change["code"] for change in told["changes"]]) == (
        "commit",
        ["index_changed"],
    )
    changed = store.proxy("POST", f"{store.schema}change/", {**body, "dry_run": False})
    assert changed.json()["applied"], changed.body
    assert store.found(FEVER) == with_fever
    rows = explained(store, FEVER)["rows"]
    assert (rows["certain"], rows["unsure"]) == (0, len(NOTES))

    named += store.ingest([{"note": "fever again"}, {"note": "nothing"}])
    with_fever.append(named[5])
    assert store.found(FEVER) == with_fever
    resealed(store)
    assert store.found(FEVER) == with_fever
    assert store.found(PHRASE) == [named[1]]
    rows = explained(store, FEVER)["rows"]
    assert (rows["certain"], rows["unsure"]) == (4, 0)

    patched = store.proxy("PATCH", f"/api/records/{named[0]}/", {"data": {"note": "well"}})
    assert patched.status == 200
    assert store.proxy("DELETE", f"/api/records/{named[4]}/").status == 204
    assert set(store.found(FEVER)) == {named[1], named[5]}
    assert set(store.found({"not": FEVER})) == {named[0], named[2], named[3], named[6]}


def test_minis_whose_words_take_many_bytes_become_pages_that_a_worker_stages(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, definition(**{"x-index": ["words"]}))
    # Each has room for nearly as many words as a mini may have, and takes some 1.4 MiB.
    named = [store.ingest([{"note": f"fever {one} " * 80_000}])[0] for one in range(7)]

    async def merge(proxy: Proxy) -> list[Any]:
        before = [segment.form for segment in proxy.state.ledger.snapshot().segments]
        merger = proxy.merger(Tier(4096, 1), pages_at_once=100)
        outcome = await merger.merge_next(proxy.caller, proxy.state)
        assert outcome is not None
        await proxy.services.schemas.refresh(proxy.caller, proxy.state.id)
        return before + [segment.form for segment in proxy.state.ledger.snapshot().segments]

    forms = act_as_second(store, with_keyrings(service, tmp_path), merge)
    assert forms == ["mini"] * 7 + ["paged"]
    assert store.found(FEVER) == named
    assert store.found({"field": "note", "op": "has_phrase", "value": "3 fever"}) == [named[3]]
    # More words than a mini may have are pages from the beginning.
    named += store.ingest([{"note": "fever at night " * 60_000}, {"note": "a cough"}])
    assert store.found(FEVER) == named[:8]
    resealed(store)
    assert store.found(FEVER) == named[:8]
    rows = explained(store, FEVER)["rows"]
    assert (rows["certain"], rows["unsure"]) == (8, 0)
