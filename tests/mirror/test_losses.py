"""A run of ``ers mirror`` gives up nothing because of a list, which nobody signs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import msgspec
import pytest

from encrypted_records.errors import ApiFailed, Conflict
from encrypted_records.mirror import layout
from encrypted_records.mirror.copier import CopyTotals
from encrypted_records.mirror.copy import begin_log
from encrypted_records.mirror.layout import (
    HEAD,
    MirrorHead,
    OrganizationHead,
    SchemaHead,
    read_head,
)
from encrypted_records.mirror.serving import serving_inline
from encrypted_records.model import ids, wire
from tests.mirror.copies import Place, basic
from tests.mirror.test_reading_a_mirror import people
from tests.support.store import Store

Lists = dict[str, list[dict[str, Any]]]


@pytest.fixture
def copied(store: Store, place: Place) -> Place:
    store.ingest(people(3))
    place.copy(store)
    return place


def an_api_that_shows(place: Place, change: Callable[[MirrorHead, Lists], None]) -> Place:
    """A mirror that answers as an API does whose lists are others."""
    other = Place(place.path.with_name("lies"), place.data_dir)
    shutil.copytree(place.path, other.path)
    head = read_head(other.folder)
    lists = msgspec.json.decode(other.folder.read(head.resources), type=Lists)
    change(head, lists)
    data = msgspec.json.encode(lists)
    head = msgspec.structs.replace(head, resources=layout.by_content("resources", data, ".json"))
    other.folder.write(head.resources, data)
    other.folder.write(HEAD, msgspec.json.encode(head))
    return other


def copy_again(place: Place, shown: Place, *, forget: bool = False) -> CopyTotals:
    with serving_inline(shown.folder) as (url, secret):
        member = read_head(shown.folder).member
        return place.copy_from(url, basic(member, secret), forget=forget)


def without_schemas(head: MirrorHead, lists: Lists) -> None:
    head.schemas.clear()
    lists["schemas"].clear()


def without_anything(head: MirrorHead, lists: Lists) -> None:
    without_schemas(head, lists)
    head.organizations.clear()
    lists["organizations"].clear()


@pytest.mark.parametrize("change", [without_schemas, without_anything])
def test_what_the_api_no_longer_lists_stays_and_is_named(
    change: Callable[[MirrorHead, Lists], None], copied: Place
) -> None:
    before = copied.contents()
    shown = an_api_that_shows(copied, change)
    lost = read_head(copied.folder)

    with pytest.raises(Conflict) as raised:
        copy_again(copied, shown)
    assert raised.value.reason == "mirror_would_lose"
    assert any(name in raised.value.message for name in {**lost.organizations, **lost.schemas})
    assert copied.contents() == before

    assert copy_again(copied, shown, forget=True).deleted > 0
    assert read_head(copied.folder).schemas == {}
    assert copied.flaws() == []


def test_a_schema_whose_deletion_the_roster_shows_goes_with_the_next_run(
    copied: Place, store: Store
) -> None:
    kept = store.another_schema({"type": "object", "properties": {"s": {"type": "string"}}})
    kept.ingest([{"s": "stays"}])
    copied.copy(store)
    assert store.schema_id in read_head(copied.folder).schemas
    assert store.proxy("DELETE", f"{store.schema}?cascade=true").status == 204

    copied.copy(store)

    assert list(read_head(copied.folder).schemas) == [kept.schema_id]
    assert not any(store.schema_id in str(path) for path in copied.files())


def test_a_schema_that_is_shown_elsewhere_with_another_log_is_refused(
    copied: Place, store: Store
) -> None:
    before = copied.contents()
    other = ids.to_text(ids.new_id())

    def elsewhere(head: MirrorHead, lists: Lists) -> None:
        grants = layout.by_content(f"organizations/{other}/grants", wire.encode([]))
        head.organizations[other] = OrganizationHead([], 0, "", grants)
        empty = begin_log(ids.from_text(other), ids.from_text(store.schema_id), None).ledger.head
        head.schemas[store.schema_id] = SchemaHead(other, [], 0, empty.digest.hex())
        (organization,) = lists["organizations"]
        lists["organizations"].append(organization | {"id": other})
        lists["schemas"][0]["organization"] = f"/api/organizations/{other}/"

    shown = an_api_that_shows(copied, elsewhere)
    grants = wire.encode([])
    shown.folder.write(layout.by_content(f"organizations/{other}/grants", grants), grants)
    for forget in (False, True):
        with pytest.raises(Conflict) as raised:
            copy_again(copied, shown, forget=forget)
        assert raised.value.reason == "mirror_would_lose"
    assert copied.contents() == before


def test_a_schema_of_an_organization_that_is_not_listed_is_an_error_of_the_api(
    copied: Place,
) -> None:
    def nowhere(_head: MirrorHead, lists: Lists) -> None:
        lists["organizations"].clear()

    shown = an_api_that_shows(copied, nowhere)
    with pytest.raises(ApiFailed, match="not the organization that has it"):
        copy_again(copied, shown)


@pytest.mark.parametrize("name", ["schemas/sql/people.sql", "resources/logo.png"])
def test_files_that_only_lie_in_a_folder_of_that_name_are_left_alone(
    name: str, copied: Place, store: Store
) -> None:
    fresh = replace(copied, path=copied.path.with_name("fresh"))
    for place in (fresh, copied):
        (place.path / name).parent.mkdir(parents=True, exist_ok=True)
        (place.path / name).write_bytes(b"mine")

    with pytest.raises(Exception, match="no mirror") as raised:
        fresh.copy(store)
    assert getattr(raised.value, "reason", "") == "mirror_of_another"
    assert fresh.contents() == {name: b"mine"}
    copied.copy(store)
    assert copied.contents()[name] == b"mine"


@pytest.mark.parametrize("listed", [5, None, ["id"], {"slug": "a"}, {"id": 5}, {"id": "a"}])
def test_an_api_that_lists_something_else_than_resources_is_named(
    listed: object, place: Place
) -> None:
    class Lying(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            user = {"id": ids.to_text(ids.new_id()), "organizations": []}
            page = {"count": 1, "next": None, "previous": None, "results": [listed]}
            body = json.dumps(user if "/users/" in self.path else page).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Lying) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            with pytest.raises(ApiFailed):
                place.copy_from(f"http://127.0.0.1:{server.server_port}", "Bearer any")
        finally:
            server.shutdown()
