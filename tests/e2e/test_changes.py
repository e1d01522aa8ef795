"""Records are changed and deleted whole or not at all, and nobody's change is lost unseen."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "height": {"type": "number", "minimum": 0, "maximum": 3, "precision": 2},
    },
    "required": ["name"],
}
ADA: dict[str, Any] = {"name": "Ada", "age": 36, "height": 1.65}


@pytest.fixture(scope="module")
def base(service: Service) -> Store:
    return new_store(service, DEFINITION)


@pytest.fixture
def store(base: Store) -> Store:
    return base.another_schema(DEFINITION)


def send(store: Store, method: str, record: str, body: Any = None, match: str = "") -> Answer:
    return call(
        method,
        f"{store.service.proxy_url}/api/records/{record}",
        body,
        auth=store.account.auth,
        headers={"If-Match": match} if match else {},
    )


def data_of(store: Store, record_id: str) -> Any:
    return store.proxy("GET", f"/api/records/{record_id}/").json()["data"]


def test_a_replaced_record_keeps_its_id_and_loses_what_was_left_out(store: Store) -> None:
    (identifier,) = store.ingest([ADA])

    answer = send(store, "PUT", f"{identifier}/", {"data": {"name": "Ada Lovelace", "age": 37}})

    assert answer.status == 200, answer.body
    assert answer.json() == {
        "id": identifier,
        "url": f"/api/records/{identifier}/",
        "schema": store.schema,
        "data": {"name": "Ada Lovelace", "age": 37},
    }
    assert data_of(store, identifier) == {"name": "Ada Lovelace", "age": 37}
    assert store.found({"field": "name", "op": "eq", "value": "Ada"}) == []
    assert store.found({"field": "age", "op": "eq", "value": 37}) == [identifier]
    assert store.search(count=True)["count"] == 1


def test_a_merge_changes_what_it_names_and_null_removes(store: Store) -> None:
    (identifier,) = store.ingest([ADA])

    changed = send(store, "PATCH", f"{identifier}/", {"data": {"age": 37, "height": None}})

    assert changed.json()["data"] == {"name": "Ada", "age": 37}
    assert data_of(store, identifier) == {"name": "Ada", "age": 37}
    assert store.found({"field": "height", "op": "is_null"}) == [identifier]


def test_the_etag_is_the_version_on_both_sides_and_rises_by_one(store: Store) -> None:
    (identifier,) = store.ingest([ADA])
    path = f"/api/records/{identifier}/"
    for version in (1, 2, 3):
        etag = f'"{version}"'
        assert store.proxy("GET", path).headers["ETag"] == etag
        assert store.api("GET", path).headers["ETag"] == etag
        changed = send(store, "PATCH", f"{identifier}/", {"data": {"age": version}}, etag)
        assert changed.status == 200
        assert changed.headers["ETag"] == f'"{version + 1}"'


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_a_stale_etag_changes_nothing(store: Store, method: str) -> None:
    (identifier,) = store.ingest([ADA])
    send(store, "PATCH", f"{identifier}/", {"data": {"age": 1}})
    body = None if method == "DELETE" else {"data": {"name": "x"}}

    for stale in ('"1"', 'W/"2"', '"1", "7"', '"x"'):
        answer = send(store, method, f"{identifier}/", body, stale)
        assert (answer.status, answer.json()["code"]) == (412, "precondition_failed")
    malformed = send(store, method, f"{identifier}/", body, "2")
    assert malformed.status == 400
    assert data_of(store, identifier) == {**ADA, "age": 1}
    for fresh in ('"1", "2"', "*"):
        (copy,) = store.ingest([ADA])
        send(store, "PATCH", f"{copy}/", {"data": {"age": 1}})
        assert send(store, method, f"{copy}/", body, fresh).status in (200, 204)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_a_condition_that_there_is_no_record_changes_none(store: Store, method: str) -> None:
    (identifier,) = store.ingest([ADA])
    body = None if method == "DELETE" else {"data": {"name": "x"}}
    url = f"{store.service.proxy_url}/api/records/{identifier}/"
    for condition, status in (("*", 412), ('"7"', 400)):
        headers = {"If-None-Match": condition}
        assert call(method, url, body, auth=store.account.auth, headers=headers).status == status
    assert data_of(store, identifier) == ADA


@pytest.mark.parametrize(
    ("method", "data", "code"),
    [
        ("PUT", {"age": 3}, "required"),
        ("PATCH", {"name": None}, "required"),
        ("PATCH", {"age": 200}, "maximum"),
        ("PATCH", {"age": "old"}, "type"),
        ("PUT", {"name": "x", "gone": 1}, "unknown_field"),
    ],
)
def test_what_would_not_fit_the_schema_is_refused_with_its_place(
    store: Store, method: str, data: dict[str, Any], code: str
) -> None:
    (identifier,) = store.ingest([ADA])

    answer = send(store, method, f"{identifier}/", {"data": data})

    assert (answer.status, answer.json()["code"]) == (400, "invalid_records")
    assert [flaw["code"] for flaw in answer.json()["errors"]] == [code]
    assert data_of(store, identifier) == ADA


def test_a_body_that_is_no_change_is_refused(store: Store) -> None:
    (identifier,) = store.ingest([ADA])
    bodies: list[object] = [{}, {"data": []}, {"data": ADA, "more": 1}, ADA, [ADA]]
    for body in bodies:
        assert send(store, "PUT", f"{identifier}/", body).status == 400
    other = store.another_schema(DEFINITION)
    assert send(store, "PUT", f"{identifier}/", {"schema": other.schema, "data": ADA}).status == 400
    assert send(store, "PUT", f"{identifier}/", {"schema": store.schema, "data": ADA}).status == 200


def test_a_deleted_record_is_gone_from_everywhere(store: Store) -> None:
    gone, kept = store.ingest([ADA, ADA])

    assert send(store, "DELETE", f"{gone}/").status == 204

    assert store.found() == [kept]
    assert store.found({"field": "name", "op": "eq", "value": "Ada"}) == [kept]
    for side in (store.proxy, store.api):
        assert side("GET", f"/api/records/{gone}/").status == 404
    for method, body in (("DELETE", None), ("PUT", {"data": ADA}), ("PATCH", {"data": {}})):
        assert send(store, method, f"{gone}/", body).status == 404
    assert store.proxy("GET", f"/api/records/?schema={store.schema_id}").json()["count"] == 1


def test_several_are_deleted_by_their_ids_all_or_none(store: Store) -> None:
    other = store.another_schema(DEFINITION)
    ids = [*store.ingest([ADA] * 3), *other.ingest([ADA] * 2)]

    missing = send(store, "DELETE", f"?id={ids[0]}&id={store.schema_id}")
    assert (missing.status, missing.json()["code"]) == (404, "not_found")
    assert len(store.found()) == 3
    deleted = send(store, "DELETE", "?" + "&".join(f"id={one}" for one in [*ids[1:], ids[1]]))
    assert (deleted.status, deleted.json()) == (200, {"deleted": 4})
    assert (store.found(), other.found()) == ([ids[0]], [])
    for query in ("", "?id=short", f"?id={ids[0]}&where=1"):
        assert send(store, "DELETE", query).status == 400


def test_several_with_versions_are_deleted_only_as_long_as_each_has_its_own(store: Store) -> None:
    ids = store.ingest([ADA, ADA, ADA])
    send(store, "PATCH", f"{ids[1]}/", {"data": {"age": 1}})

    def delete(*versions: object, of: list[str] = ids) -> Answer:
        named = "&".join(f"id={one}" for one in of)
        return send(store, "DELETE", f"?{named}" + "".join(f"&version={v}" for v in versions))

    # The second has the version that the others do not have, and the other way round.
    refused = delete(1, 1, 2)
    assert (refused.status, refused.json()["code"]) == (412, "precondition_failed")
    flaws = refused.json()["errors"]
    assert [(flaw["row"], flaw["detail"].split(":")[0]) for flaw in flaws] == [
        (2, ids[1]),
        (3, ids[2]),
    ]
    assert delete(1, 2).status == 400
    assert delete(1, "x", 1).status == 400
    assert delete(1, 2, -1).status == 400
    assert store.search(count=True)["count"] == 3
    assert delete(1, 2, 1).json() == {"deleted": 3}
    assert store.search(count=True)["count"] == 0


def test_a_condition_deletes_as_many_as_were_confirmed_and_no_other_number(store: Store) -> None:
    ids = store.ingest([{"name": f"{n % 3}{'x' * 60}{n}"} for n in range(30)])
    # The prefix is longer than an index key, so these records are decided by opening them.
    where = {"field": "name", "op": "prefix", "value": f"1{'x' * 60}1"}
    chosen = [one for n, one in enumerate(ids) if n % 3 == 1 and str(n).startswith("1")]
    body = {"schema": store.schema, "where": where}

    for query in ("", "?confirm=0", f"?confirm={len(chosen) + 1}"):
        refused = store.proxy("POST", f"/api/records/delete/{query}", body)
        assert (refused.status, refused.json()["code"]) == (409, "confirm_count")
        assert f"matches {len(chosen)} records" in refused.json()["detail"]
    deleted = store.proxy("POST", f"/api/records/delete/?confirm={len(chosen)}", body)
    assert (deleted.status, deleted.json()) == (200, {"deleted": len(chosen)})
    assert store.found() == [one for one in ids if one not in chosen]
    nothing = store.proxy("POST", "/api/records/delete/?confirm=0", body)
    assert (nothing.status, nothing.json()) == (200, {"deleted": 0})


def test_a_delete_that_says_more_than_a_condition_is_refused(store: Store) -> None:
    store.ingest([ADA])
    bodies: list[dict[str, object]] = [
        {"limit": 1},
        {"where": {"field": "gone", "op": "is_null"}},
        {"order_by": []},
    ]
    for body in bodies:
        asked = {"schema": store.schema, **body}
        assert store.proxy("POST", "/api/records/delete/?confirm=1", asked).status == 400
    unreadable = store.proxy("POST", "/api/records/delete/?confirm=all", {"schema": store.schema})
    assert unreadable.status == 400
    assert len(store.found()) == 1


def test_a_page_of_another_site_may_not_delete(store: Store) -> None:
    (identifier,) = store.ingest([ADA])
    answer = call(
        "DELETE",
        f"{store.service.proxy_url}/api/records/{identifier}/",
        auth=store.account.auth,
        headers={"Origin": "https://evil.example"},
    )
    assert answer.json()["code"] == "cross_site"
    assert store.found() == [identifier]


def sealed_lengths(store: Store, record_id: str) -> dict[str, int]:
    fields = store.api("GET", f"/api/records/{record_id}/").json()["fields"]
    return {name: len(base64.b64decode(sealed)) for name, sealed in fields.items()}


def test_a_change_after_a_loosened_rule_does_not_show_how_long_a_value_is(base: Store) -> None:
    """The value was sealed at the class of the longest choice, and is sealed again."""
    kind = {"type": "string", "enum": ["a", "x" * 70]}
    definition = {
        "type": "object",
        "properties": {"kind": kind, "age": DEFINITION["properties"]["age"]},  # type: ignore[index]
    }
    store = base.another_schema(definition)
    (identifier,) = store.ingest([{"kind": "a", "age": 1}])
    before = sealed_lengths(store, identifier)
    kind.pop("enum")
    assert store.proxy("PATCH", store.schema, {"schema": definition}).status == 200

    assert send(store, "PATCH", f"{identifier}/", {"data": {"age": 2}}).status == 200

    assert data_of(store, identifier) == {"kind": "a", "age": 2}
    assert sealed_lengths(store, identifier) == before
    (added,) = store.ingest([{"kind": "a", "age": 1}])
    assert sealed_lengths(store, added)["kind"] < before["kind"]
