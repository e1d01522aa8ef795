"""What is stored is compared with what was signed, and what the API shows is signed when asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from encrypted_records.model.records import MAX_MINI_RECORDS, Page, StoredRow
from tests.proxy.lies import each, on
from tests.proxy.sharing.alone import DEFINITION, Alone
from tests.support.erasures import seen_through
from tests.support.front import Lie
from tests.support.jobs import as_json, completed, started
from tests.support.service import Answer


def verified(alone: Alone) -> tuple[list[str], dict[str, Any]]:
    answer = alone.store.proxy("POST", f"{alone.store.schema}verify/")
    assert answer.status == 200, answer.body
    *places, report = [json.loads(line) for line in answer.body.splitlines() if line]
    return [place["altered"] for place in places], report["verify"]


def filled(alone: Alone) -> list[str]:
    """Two groups, of which one has dead rows in one of two runs."""
    ids = alone.store.ingest([{"n": n} for n in range(100)])
    alone.store.ingest([{"n": 500}])
    for one in ids[:2]:
        assert alone.store.proxy("DELETE", f"/api/records/{one}/").status == 204
    return ids


def altered_row(ordinal: int) -> Lie:
    """The row of this place with another byte at its end."""

    def alter(row: StoredRow) -> StoredRow:
        first, *rest = row.row.fields
        if row.ordinal != ordinal:
            return row
        other = first[:-1] + bytes([first[-1] ^ 1])
        changed = msgspec.structs.replace(row.row, fields=[other, *rest])
        return msgspec.structs.replace(row, row=changed)

    return on(("rows",), each(StoredRow, alter))


def altered_page() -> Lie:
    def alter(page: Page) -> Page:
        return msgspec.structs.replace(page, data=page.data[:-1] + bytes([page.data[-1] ^ 1]))

    return on(("pages",), each(Page, alter))


def test_what_is_as_it_was_stored_is_said_to_be(alone: Alone) -> None:
    filled(alone)
    places, report = verified(alone)
    assert places == []
    counts = {name: report[name] for name in ("groups", "rows", "altered")}
    assert counts == {"groups": 2, "rows": 99, "altered": 0}
    assert report["segments"] == report["pages"] > 0


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        # In a run with dead rows, and in one without.
        (lambda: altered_row(5), "row 5"),
        (lambda: altered_row(70), "row 70"),
        (altered_page, "the index is not the one that was stored"),
    ],
)
def test_each_alteration_is_named_with_its_place_and_nothing_else(
    alone: Alone, lie: Callable[[], Lie], said: str
) -> None:
    filled(alone)
    with alone.front.telling(lie()):
        places, report = verified(alone)
    assert places and all(said in place for place in places)
    assert report["altered"] == len(places)
    assert verified(alone)[0] == []


def test_one_altered_page_of_many_is_found(alone: Alone) -> None:
    rows = [{"n": n % 1000} for n in range(MAX_MINI_RECORDS + 1)]
    completed(alone.store, started(alone.store, as_json(alone.store, rows)))
    _, report = verified(alone)
    assert report["pages"] > report["segments"] == 1

    def alter(page: Page) -> Page:
        if page.number != report["pages"] - 1:
            return page
        return msgspec.structs.replace(page, data=page.data[:-1] + bytes([page.data[-1] ^ 1]))

    with alone.front.telling(on(("pages",), each(Page, alter))):
        places, altered = verified(alone)
    assert places and all("the index is not the one that was stored" in place for place in places)
    assert altered["altered"] == len(places)
    assert verified(alone)[0] == []


def test_beside_a_row_that_was_removed_an_altered_one_is_still_found(alone: Alone) -> None:
    """Of what is removed the API keeps the digest, so that the others of its run can be proven."""
    ids = alone.store.ingest([{"n": n} for n in range(10)])
    removed = alone.store.proxy("DELETE", f"/api/records/{ids[4]}/?erase=true")
    assert seen_through(alone.store, removed)["gone"]
    places, report = verified(alone)
    assert (places, report["rows"]) == ([], 9)
    with alone.front.telling(altered_row(5)):
        places, _ = verified(alone)
    assert places and all("row 5" in place for place in places)


def sign(alone: Alone, **members: Any) -> Answer:
    return alone.store.proxy("POST", f"{alone.store.schema}sign/", members)


def test_a_change_that_was_cut_short_is_shown_and_signed_when_asked(alone: Alone) -> None:
    alone.store.ingest([{"n": 1}])
    assert sign(alone).json()["changes"] == []

    def renamed(asked: Any, reply: Any) -> Any:
        if asked.method == "GET" and asked.path == alone.store.schema:
            return reply.with_body(reply.body.replace(b'"name":"rows"', b'"name":"lines"'))
        return reply

    with alone.front.telling(renamed):
        shown = sign(alone, dry_run=True).json()
        assert (shown["changes"], shown["applied"]) == (["name"], False)
        assert (shown["signed"]["name"], shown["shown"]["name"]) == ("rows", "lines")
        other = {**shown["shown"], "name": "others"}
        assert sign(alone, seen=other).status == 409
        done = sign(alone, seen=shown["shown"])
        assert (done.status, done.json()["applied"]) == (200, True)
    placed = [entry for entry in alone.entries() if isinstance(entry, list)]
    assert [one[0].name for one in placed] == ["rows", "lines"]
    assert alone.store.api("GET", alone.store.schema).json()["name"] == "lines"
    alone.store.ingest([{"n": 2}])


def test_a_schema_without_records_is_signed_before_its_first(alone: Alone) -> None:
    shown = sign(alone, dry_run=True).json()
    assert (shown["signed"], shown["changes"]) == (None, ["slug", "name", "definition"])
    assert alone.entries() == []
    assert sign(alone, seen=shown["shown"]).json()["applied"] is True
    assert alone.kinds() == ["FoundingEntry", "DatasetName", "list"]
    assert sign(alone, dry_run=True).json()["changes"] == []


def test_what_was_signed_is_changed_before_its_first_record(alone: Alone) -> None:
    shown = sign(alone, dry_run=True).json()
    assert sign(alone, seen=shown["shown"]).json()["applied"] is True
    other = {**DEFINITION, "properties": {"m": {"type": "string"}}}
    changed = alone.store.proxy("POST", f"{alone.store.schema}change/", {"schema": other})
    assert (changed.status, changed.json()["applied"]) == (200, True), changed.body
    assert alone.store.api("GET", alone.store.schema).json()["schema"] == other
    alone.store.ingest([{"m": "first"}])
    assert sign(alone, dry_run=True).json()["changes"] == []


def test_what_nobody_has_looked_at_is_not_signed_with_the_first_entry(alone: Alone) -> None:
    """An API that shows one schema to who agrees, and another while it is signed."""
    shown = sign(alone, dry_run=True).json()["shown"]
    times = 0

    def renamed(asked: Any, reply: Any) -> Any:
        nonlocal times
        if asked.method != "GET" or asked.path != alone.store.schema:
            return reply
        times += 1
        if times == 1:
            return reply
        return reply.with_body(reply.body.replace(b'"name":"rows"', b'"name":"lines"'))

    with alone.front.telling(renamed):
        assert sign(alone, seen=shown).status == 409
    assert times > 1
    assert alone.entries() == []
    assert sign(alone, seen=shown).json()["applied"] is True
