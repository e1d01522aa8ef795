"""Records as the API has them, of those that a search has found."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from encrypted_records.model.records import StoredRow
from tests.proxy.lies import each, flipped, on
from tests.proxy.test_kept_rows import DEFINITION, Place, at
from tests.support.front import running_front
from tests.support.service import Service, call
from tests.support.store import new_schema

PATH = "/api/records/sealed/"


@pytest.fixture
def place(service: Service, tmp_path: Path) -> Iterator[Place]:
    account = service.new_account()
    with running_front(service.base_url) as front:
        made = Place(front, account, new_schema(service, account, DEFINITION), tmp_path)
        made.start()
        made.ingest([{"name": f"name {n}", "n": n} for n in range(40)])
        front.forget()
        yield made
        made.stop()


def named(place: Place, ids: list[str]) -> list[str]:
    """The requests that told the API one of these ids."""
    paths = [one.path for one in place.front.asked]
    return [path for path in paths if any(one in path for one in ids)]


def test_what_was_found_is_shown_as_the_api_has_it_without_naming_it(place: Place) -> None:
    ids = list(place.found({"field": "n", "op": "between", "value": [3, 7]}))
    place.settled()
    place.front.forget()

    answer = place.call("POST", PATH, {"ids": ids})

    assert answer.status == 200, answer.body
    assert named(place, ids) == []
    assert place.rows() == []
    stored = [place.call("GET", f"/api/records/{one}/?sealed=true").json() for one in ids]
    assert answer.json() == stored
    opened = place.call("POST", "/api/records/decrypt/", answer.json()).json()
    assert [one["data"]["n"] for one in opened] == [3, 4, 5, 6, 7]


def test_a_record_that_was_not_found_lately_is_read_by_its_id(place: Place) -> None:
    ids = list(place.found())
    place.restart()
    place.front.forget()

    answer = place.call("POST", PATH, {"ids": ids[:2]})

    assert [one["id"] for one in answer.json()] == ids[:2]
    assert named(place, ids[:2])


def test_a_row_too_wide_to_be_kept_is_shown_as_well(place: Place) -> None:
    (wide,) = place.ingest([{"name": "x" * 40_000, "n": 500}])
    assert list(place.found(at(500))) == [wide]

    (sealed,) = place.call("POST", PATH, {"ids": [wide]}).json()

    assert len(base64.b64decode(sealed["fields"]["name"])) > 40_000


def test_one_that_was_deleted_or_is_somebody_elses_is_not_found(
    place: Place, service: Service
) -> None:
    first, second = list(place.found())[:2]
    assert place.call("DELETE", f"/api/records/{first}/").status == 204
    assert place.call("POST", PATH, {"ids": [first]}).status == 404

    stranger = service.new_account()
    url = place.proxy.url + PATH
    answer = call("POST", url, {"ids": [second]}, auth=stranger.auth, headers=place.proxy.door)
    assert answer.status == 404


def spoil(stored: StoredRow) -> StoredRow:
    fields = [flipped(field, len(field) - 1) for field in stored.row.fields]
    return replace(stored, row=replace(stored.row, fields=fields))


def test_bytes_that_do_not_open_are_not_shown(place: Place) -> None:
    """A wide row is fetched again, and the API may alter it the second time."""
    (wide,) = place.ingest([{"name": "x" * 40_000, "n": 500}])
    assert list(place.found(at(500))) == [wide]

    with place.front.telling(on(("rows",), each(StoredRow, spoil))):
        answer = place.call("POST", PATH, {"ids": [wide]})

    assert (answer.status, answer.json()["code"]) == (422, "does_not_open")


@pytest.mark.parametrize(
    "body",
    [{}, {"ids": []}, {"ids": "x"}, {"ids": [1]}, {"ids": ["x"] * 101}, {"ids": ["x"], "more": 1}],
)
def test_what_is_no_list_of_ids_is_refused(place: Place, body: Any) -> None:
    assert place.call("POST", PATH, body).status == 400
