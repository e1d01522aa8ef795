"""One condition asked of a whole dataset: what each schema says, or why it says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from encrypted_records import Client
from encrypted_records.proxy.search import search
from tests.proxy.lies import cut
from tests.support.front import running_front
from tests.support.page_visits import logged_in
from tests.support.proxies import running_proxy
from tests.support.service import Account, Service, call

TEXT = {"type": "string"}
AGE = {"type": "integer", "minimum": 0, "maximum": 150}
SCHEMAS = {
    "people": {"email": TEXT, "age": AGE},
    "orders": {"email": TEXT, "total": AGE},
    "odd": {"email": AGE},
    "empty": {"email": TEXT},
    "other": {"phone": TEXT},
}
ADA = {"field": "email", "op": "eq", "value": "ada@example.org"}


class Dataset:
    def __init__(self, proxy: str, account: Account) -> None:
        self.proxy, self.account = proxy, account
        made = self.call(
            "POST", "/api/datasets/", {"name": "All", "organization": account.organization}
        ).json()
        self.url = made["url"]
        self.schemas = {
            name: self.call(
                "POST",
                "/api/schemas/",
                {
                    "name": name,
                    "dataset": self.url,
                    "schema": {"type": "object", "properties": fields},
                },
            ).json()["url"]
            for name, fields in SCHEMAS.items()
        }
        for name, rows in (
            ("people", [{"email": "ada@example.org", "age": age} for age in range(3)]),
            ("orders", [{"email": f"{who}@example.org", "total": 1} for who in ("ada", "bob")]),
            ("odd", [{"email": 1}]),
            ("other", [{"phone": "1"}]),
        ):
            records = [{"schema": self.schemas[name], "data": row} for row in rows]
            assert self.call("POST", "/api/records/ingest/", records).status == 201

    def call(self, method: str, path: str, body: Any = None, account: Account | None = None) -> Any:
        return call(method, self.proxy + path, body, auth=(account or self.account).auth)

    def search(self, **body: Any) -> Any:
        return self.call("POST", f"{self.url}search/", body)

    def counts(self, **body: Any) -> dict[str, int | None]:
        answer = self.search(**body)
        assert answer.status == 200, answer.body
        return {result["slug"]: result["count"] for result in answer.json()["results"]}


@pytest.fixture(scope="module")
def dataset(services: Callable[[str], Service]) -> Dataset:
    service = services("sqlite")
    return Dataset(service.proxy_url, service.new_account())


def test_each_schema_says_how_many_it_has_and_shows_the_first(dataset: Dataset) -> None:
    answer = dataset.search(where=ADA, limit=2).json()
    assert answer["next_cursor"] is None
    people, orders, odd, empty, other = answer["results"]
    assert [result["slug"] for result in answer["results"]] == list(SCHEMAS)
    assert (people["count"], len(people["results"]), people["missing"]) == (3, 2, [])
    assert people["schema"] == dataset.schemas["people"]
    assert people["results"][0]["data"] == {"email": "ada@example.org", "age": 0}
    assert (orders["count"], len(orders["results"]), orders["error"]) == (1, 1, None)
    # A field of the name, of another type: the reason is that schema's, and others answer.
    assert (odd["count"], odd["results"]) == (None, [])
    assert odd["error"]["code"] == "invalid_query"
    assert odd["error"]["errors"][0]["pointer"] == "/where/value"
    assert (empty["count"], empty["error"]) == (0, None)
    assert (other["count"], other["missing"], other["error"]) == (None, ["email"], None)
    both = {"and": [ADA, {"not": {"field": "age", "op": "ge", "value": 2}}]}
    assert dataset.counts(where=both)["people"] == 2
    assert dataset.counts(where=both)["orders"] is None
    assert dataset.counts(filters=[{"label": "total", "value": 1}])["orders"] == 2
    assert set(dataset.counts().values()) == {3, 2, 1, 0}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"where": 3}, "/where"),
        ({"where": {**ADA, "op": "like it"}}, "/where/op"),
        ({"where": {"field": "age", "op": "ge", "value": "old"}}, "/where/value"),
        ({"limit": 101}, "/limit"),
        ({"cursor": "nothing"}, "/cursor"),
        ({"after": None}, "/after"),
        ({"where": {"field": "email", "op": "in", "of": {}}}, "/where/of"),
    ],
)
def test_what_no_schema_takes_is_refused(
    dataset: Dataset, body: dict[str, Any], pointer: str
) -> None:
    refused = dataset.search(**body)
    assert refused.status == 400
    assert refused.json()["errors"][0]["pointer"] == pointer


def test_who_cannot_read_the_dataset_is_told_nothing_of_it(
    dataset: Dataset, services: Callable[[str], Service]
) -> None:
    stranger = services("sqlite").new_account()
    refused = dataset.call("POST", f"{dataset.url}search/", {"where": ADA}, stranger)
    assert (refused.status, refused.json()["code"]) == (404, "not_found")


def test_the_page_of_a_dataset_asks_all_of_its_schemas(
    dataset: Dataset, services: Callable[[str], Service]
) -> None:
    browser = logged_in(services("sqlite"), dataset.account)
    at = dataset.url.removeprefix("/api")
    assert b"Search all schemas" in browser.visit(at).body
    shown = browser.visit(f"{at}search/", condition='email = "ada@example.org"').body.decode()
    assert "3 records" in shown
    assert "it has no field <bdi>email</bdi>" in shown
    assert "Expected an integer" in shown
    assert 'value="email = &#34;ada@example.org&#34;"' in shown
    for wrong in ("email =", "nothing = 1 and"):
        refused = browser.visit(f"{at}search/", condition=wrong)
        assert refused.status == 400
        assert "at character" in refused.body.decode()


def test_what_cannot_be_proven_right_is_that_schemas_error(
    services: Callable[[str], Service], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = services("sqlite")
    account = service.new_account()
    with running_front(service.base_url) as front, running_proxy(front.url, tmp_path) as proxy:
        dataset = Dataset(proxy.url, account)
        lie = cut(("pages", "rows", "manifest"), lambda body: body[:-1] + bytes([body[-1] ^ 1]))

        def of_people(asked: Any, reply: Any) -> Any:
            people = dataset.schemas["people"].split("/")[-2] in asked.path
            return lie(asked, reply) if people else reply

        with front.telling(of_people):
            people, orders, *_ = dataset.search(where=ADA).json()["results"]
        assert people["count"] is None
        assert people["error"]["code"] in ("altered", "does_not_open", "log_broken", "api_failed")
        assert orders["count"] == 1
        # Two schemas a request: the client asks on.
        monkeypatch.setattr(search, "MOST_SCHEMAS", 2)
        first = dataset.search(where=ADA).json()
        assert [result["slug"] for result in first["results"]] == ["people", "orders"]
        assert first["next_cursor"] == dataset.schemas["orders"].split("/")[-2]
        with Client(proxy.url, email=account.email, password=account.password) as client:
            found = client.dataset("all").search('email = "ada@example.org"', limit=1)
        assert [one.count for one in found] == [3, 1, None, 0, None]
        assert found[0].results[0].data["age"] == 0
        assert "ada" not in repr(found)
