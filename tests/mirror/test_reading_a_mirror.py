"""A proxy answers from a mirror what it answers from the API, and says how old that is."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from encrypted_records.mirror.copy import MirrorCopy
from encrypted_records.mirror.layout import read_head
from encrypted_records.mirror.serving import serving_inline
from encrypted_records.model import ids, wire
from encrypted_records.model.records import BlockRef, PageRef, RowRef
from encrypted_records.proxy.http.sessions import cookie_name
from tests.mirror.copies import Place, basic
from tests.support import jobs
from tests.support.page_visits import Browser, logged_in
from tests.support.proxies import Proxy
from tests.support.service import call
from tests.support.store import Store

#: Of one column there is more than one page.
MANY = 9000
CONDITIONS: list[Any] = [
    None,
    {"field": "age", "op": "between", "value": [20, 40]},
    {"field": "name", "op": "eq", "value": "person 17"},
    {"field": "note", "op": "has_words", "value": "cats"},
    {"field": "age", "op": "gt", "value": 149},
]


def people(count: int) -> list[dict[str, Any]]:
    return [
        {"name": f"person {number}", "age": number % 90, "note": f"likes {number % 7} cats"}
        for number in range(count)
    ]


def change(store: Store, records: list[str]) -> None:
    """Records of every life: stored, changed, deleted."""
    assert store.proxy("DELETE", f"/api/records/{records[3]}/").status == 204
    assert store.proxy("PATCH", f"/api/records/{records[4]}/", {"data": {"age": 99}}).status == 200


def answers(store: Store) -> list[Any]:
    """What the proxy says about everything, without the age."""
    measures = [{"op": "count"}, {"op": "sum", "field": "age"}, {"op": "max", "field": "age"}]
    aggregate = {"schema": store.schema, "measures": measures, "group_by": []}
    record = store.everything()[7]["id"]
    told = [
        store.proxy("POST", "/api/records/aggregate/", aggregate),
        store.proxy("GET", f"/api/records/{record}/"),
        store.proxy("GET", f"/api/records/{record}/?sealed=true"),
        store.proxy("POST", "/api/records/export/", {"schema": store.schema, "format": "csv"}),
        store.proxy("GET", f"/api/datasets/?organization={store.account.organization}"),
        store.proxy("GET", store.schema),
    ]
    assert [answer.status for answer in told] == [200] * len(told), told
    return [store.everything(where) for where in CONDITIONS] + [answer.body for answer in told]


def test_every_question_has_the_answer_of_the_api(store: Store, place: Place) -> None:
    records = store.ingest(people(300))
    change(store, records)
    expected = answers(store)
    place.copy(store)

    with place.read(store) as mirrored:
        assert answers(mirrored) == expected
    assert len(expected[0]) == 299


def test_a_slug_leads_to_its_schema_over_a_mirror_and_an_unknown_one_is_not_found(
    store: Store, place: Place
) -> None:
    store.ingest(people(2))
    slug = store.proxy("GET", store.schema).json()["slug"]
    paths = ("/api/schemas/nowhere/", "/api/datasets/nowhere/", "/api/schemas/nowhere/log/")
    expected = [store.proxy("GET", path).body for path in paths]
    place.copy(store)

    with place.read(store) as mirrored:
        assert mirrored.proxy("GET", f"/api/schemas/{slug}/").json()["url"] == store.schema
        told = [mirrored.proxy("GET", path) for path in paths]
    assert [answer.status for answer in told] == [404, 404, 404]
    assert [answer.body for answer in told] == expected


def test_so_it_is_of_an_index_of_many_pages(store: Store, proxy: Proxy, place: Place) -> None:
    jobs.completed(store, jobs.started(store, jobs.as_json(store, people(MANY))))
    proxy.settle()
    change(store, store.found({"field": "age", "op": "eq", "value": 5}))
    expected = [store.everything(where) for where in CONDITIONS]
    place.copy(store)
    copy = MirrorCopy(place.folder, read_head(place.folder))
    segments = copy.log(store.schema_id).objects().snapshot.segments

    with place.read(store) as mirrored:
        assert [mirrored.everything(where) for where in CONDITIONS] == expected
    assert max(segment.pages for segment in segments) > 1
    assert place.flaws() == []


def test_an_answer_says_when_it_was_copied_and_when_its_newest_commit_was_made(
    store: Store, place: Place
) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    store.ingest(people(2))
    place.copy(store)

    with place.read(store) as mirrored:
        answer = mirrored.ask()
    told = answer.json()["mirror"]
    for name in ("taken", "newest_commit"):
        assert before <= datetime.fromisoformat(told[name]) <= datetime.now(UTC)
    assert told["age"] >= 0
    assert answer.headers["X-ERS-Mirror"].startswith(f"taken={told['taken']}; age=")
    assert "mirror" not in store.search()


def test_every_page_says_that_it_shows_a_copy_and_of_what(store: Store, place: Place) -> None:
    store.ingest(people(2))
    browser = logged_in(store.service, store.account)
    assert 'id="mirror"' not in browser.visit("/datasets/").body.decode()
    code = store.service.code_for(store.account)
    assert browser.visit("/device/", shown=code).status == 200
    place.copy(store)

    with place.read(store) as mirrored:
        port = int(mirrored.service.proxy_url.rpartition(":")[2])
        cookie = f"{cookie_name(port)}={browser.cookie.partition('=')[2]}"
        reading = Browser(mirrored.service, browser.at, cookie)
        page = reading.visit("/datasets/")
        search = reading.visit(f"/schemas/{store.schema_id}/search/")
    for answer in (page, search):
        assert answer.status == 200, answer.headers["X-Error-Code"]
        assert f"a copy of {store.service.base_url}, taken" in answer.body.decode()
    assert "person 1" in search.body.decode()


def test_a_caller_is_known_by_a_device_of_this_proxy_and_by_nothing_else(
    store: Store, place: Place
) -> None:
    store.ingest(people(2))
    place.copy(store)
    another = new_device(store)

    with place.read(store) as mirrored:
        body = {"schema": store.schema}
        url = f"{mirrored.service.proxy_url}/api/records/search/"
        with_password = call("POST", url, body, auth=store.account.auth)
        unknown = another.__class__(mirrored.service, store.account, store.schema, another.device)
        wrong = replace(store.account, password="wrong")
        by_device = replace(mirrored, account=wrong).ask()
    assert (with_password.status, with_password.json()["code"]) == (401, "device_needed")
    assert by_device.status == 200
    with place.read(store) as mirrored:
        refused = replace(mirrored, device=unknown.device).ask()
    assert (refused.status, refused.json()["code"]) == (401, "device_unknown")


def new_device(store: Store) -> Store:
    return Store(store.service, store.account, store.schema)


def test_the_served_mirror_hands_out_the_bytes_that_the_api_hands_out(
    store: Store, place: Place
) -> None:
    store.ingest(people(40))
    place.copy(store)
    copy = MirrorCopy(place.folder, read_head(place.folder))
    snapshot = copy.log(store.schema_id).ledger.snapshot()
    (segment,), (group,) = snapshot.segments, snapshot.in_order
    rows = wire.encode([RowRef(group.uid, ordinal) for ordinal in (0, 7, 39)])
    pages = wire.encode([PageRef(segment.uid, 0)])
    record = store.found()[0]
    reads = [
        ("GET", store.schema, None),
        ("GET", "/api/schemas/", None),
        ("GET", "/api/datasets/?limit=1", None),
        ("GET", store.account.organization, None),
        ("GET", f"{store.schema}manifest/?since=0", None),
        ("GET", f"{store.schema}manifest/?since=1", None),
        ("GET", f"{store.account.organization}roster/?since=1", None),
        ("GET", f"{store.account.organization}grants/", None),
        ("POST", f"{store.schema}pages/?since=1", pages),
        ("POST", f"{store.schema}rows/", rows),
        ("POST", f"{store.schema}digests/", rows),
        ("POST", f"{store.schema}digests/", pages),
        ("GET", f"/api/records/{record}/", None),
        ("GET", f"/api/records/?schema={store.schema_id}&limit=3&offset=2", None),
    ]
    frames = {"Content-Type": wire.MEDIA_TYPE}
    member = call("GET", f"{store.service.base_url}/api/users/self/", auth=store.account.auth)

    with serving_inline(place.folder) as (url, secret):
        auth = basic(member.json()["id"], secret)
        for method, path, body in reads:
            headers = frames if body else {}
            api = call(
                method,
                store.service.base_url + path,
                body,
                auth=store.account.auth,
                headers=headers,
            )
            mirror = call(method, url + path, body, auth=auth, headers=headers)
            assert (mirror.status, mirror.headers.get_content_type()) == (
                api.status,
                api.headers.get_content_type(),
            ), path
            if body or (path.endswith(("grants/", "=1", "=0")) and "limit" not in path):
                assert mirror.body == api.body, path
            else:
                assert json.loads(mirror.body) == json.loads(api.body), path


def test_the_served_mirror_refuses_what_the_api_refuses(store: Store, place: Place) -> None:
    store.ingest(people(70))
    place.copy(store)
    copy = MirrorCopy(place.folder, read_head(place.folder))
    (group,) = copy.log(store.schema_id).ledger.snapshot().in_order
    row = RowRef(group.uid, 0)
    field = group.fields[0]
    refused = [
        ("GET", "/api/datasets/?limit=0", None),
        ("GET", "/api/datasets/?offset=-1", None),
        ("GET", f"/api/records/?schema={store.schema_id}&limit=0", None),
        ("GET", f"{store.schema}manifest/?since=99", None),
        ("GET", f"{store.schema}manifest/?checkpoint=99", None),
        ("POST", f"{store.schema}rows/", []),
        ("POST", f"{store.schema}rows/", [row] * 1001),
        ("POST", f"{store.schema}rows/", [RowRef(group.uid, 70)]),
        ("POST", f"{store.schema}rows/?since=99", [row]),
        ("POST", f"{store.schema}pages/", [PageRef(group.uid, 0)]),
        ("POST", f"{store.schema}digests/", []),
        ("POST", f"{store.schema}digests/", [row] * 101),
        ("POST", f"{store.schema}digests/", [BlockRef(group.uid, 0, field)]),
        ("POST", f"{store.schema}names/", []),
        ("POST", f"{store.schema}names/", [BlockRef(group.uid, 0, field)] * 65),
        ("POST", f"{store.schema}names/", [BlockRef(group.uid, 1, field)]),
        ("POST", f"{store.schema}names/", [BlockRef(group.uid, 128, field)]),
    ]
    member = call("GET", f"{store.service.base_url}/api/users/self/", auth=store.account.auth)

    with serving_inline(place.folder) as (url, secret):
        auth = basic(member.json()["id"], secret)
        for method, path, items in refused:
            body = None if items is None else wire.encode(items)
            headers = {} if items is None else {"Content-Type": wire.MEDIA_TYPE}
            api = call(
                method,
                store.service.base_url + path,
                body,
                auth=store.account.auth,
                headers=headers,
            )
            mirror = call(method, url + path, body, auth=auth, headers=headers)
            assert api.status >= 400, path
            assert (mirror.status, mirror.json()["code"]) == (api.status, api.json()["code"]), path


def test_every_page_of_a_list_of_records_has_the_records_of_the_api(
    store: Store, place: Place
) -> None:
    for _ in range(2):
        change(store, store.ingest(people(70)))
    place.copy(store)
    listed = f"/api/records/?schema={store.schema_id}"
    member = call("GET", f"{store.service.base_url}/api/users/self/", auth=store.account.auth)

    with serving_inline(place.folder) as (url, secret):
        auth = basic(member.json()["id"], secret)
        for asked in ("&limit=1000", *(f"&limit=50&offset={at}" for at in range(0, 200, 25))):
            api = call("GET", store.service.base_url + listed + asked, auth=store.account.auth)
            mirror = call("GET", url + listed + asked, auth=auth)
            assert mirror.json() == api.json(), asked


def test_a_mirror_can_be_copied_from_a_mirror(store: Store, place: Place) -> None:
    store.ingest(people(5))
    place.copy(store)
    second = Place(place.path.with_name("second"), place.data_dir)
    member = read_head(place.folder).member

    with serving_inline(place.folder) as (url, secret):
        second.copy_from(url, basic(member, secret))
    assert second.flaws() == []
    with second.read(store) as mirrored:
        assert mirrored.everything() == store.everything()


@pytest.mark.parametrize("path", ["/api/tokens/", "/api/nothing/"])
def test_what_a_mirror_does_not_hold_is_named(path: str, store: Store, place: Place) -> None:
    store.ingest(people(1))
    place.copy(store)

    with serving_inline(place.folder) as (url, secret):
        auth = basic(ids.to_text(ids.new_id()), secret)
        answer = call("GET", url + path, auth=auth)
    assert (answer.status, answer.json()["code"]) == (404, "not_mirrored")
    assert store.service.base_url in answer.json()["hint"]


def test_what_else_is_read_of_a_schema_is_read_of_a_mirror(store: Store, place: Place) -> None:
    changes = f"/api/records/changes/?schema={store.schema}&cursor="
    begun = store.proxy("GET", changes.removesuffix("&cursor=")).json()["cursor"]
    change(store, store.ingest(people(70)))
    now = store.proxy("GET", changes + begun).json()["cursor"]
    store.ingest(people(2))
    place.copy(store)
    same = [
        ("GET", f"/api/records/?schema={store.schema_id}", None),
        ("POST", "/api/records/why/", {"schema": store.schema, "where": CONDITIONS[4]}),
        ("POST", "/api/records/columns/", {"schema": store.schema, "fields": ["age"]}),
        ("POST", f"{store.schema}verify/", {}),
        ("GET", f"{store.schema}log/", None),
        ("GET", f"{store.schema}repair/", None),
        ("GET", f"{store.schema}retention/", None),
        ("GET", "/api/jobs/", None),
        ("GET", "/api/keyring/", None),
    ]
    expected = [store.proxy(*asked).body for asked in same]
    told = store.proxy("GET", changes + now).json()["results"]

    with place.read(store) as mirrored:
        assert [mirrored.proxy(*asked).body for asked in same] == expected
        shown = mirrored.proxy("GET", changes + now)
        over = mirrored.proxy("GET", changes + begun)
        salvaged = mirrored.proxy("POST", f"{store.schema}salvage/", {})
    assert shown.json()["results"] == told
    assert (over.status, over.json()["code"]) == (410, "start_again"), "a deleted row is gone"
    assert salvaged.body.count(b'"proven":true') == 71
