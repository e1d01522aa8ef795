"""API tokens of people, at the API and through a proxy: made, limited, listed, revoked."""

from __future__ import annotations

import base64
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from tests.support.eventually import eventually
from tests.support.service import Account, Answer, Service, call

PERSON = {"type": "object", "properties": {"name": {"type": "string"}}}
IN_A_DAY = 86_400


@dataclass(frozen=True)
class World:
    """Somebody with two datasets, of one schema and one record each."""

    service: Service
    account: Account
    datasets: tuple[str, str]
    schemas: tuple[str, str]
    records: tuple[str, str]

    @property
    def hosts(self) -> tuple[str, str]:
        return self.service.base_url, self.service.proxy_url

    def make(self, **members: Any) -> Any:
        """A token, through the proxy, with Basic credentials."""
        body = {"name": "nightly"} | members
        made = call("POST", f"{self.service.proxy_url}/api/tokens/", body, auth=self.account.auth)
        assert made.status == 201, made.body
        return made.json()

    def as_token(self, token: Any, method: str, path: str, body: Any = None) -> Answer:
        """A request to the proxy with a token."""
        url = self.service.proxy_url + path
        return call(method, url, body, auth=f"Bearer {token['token']}")

    def search(self, token: Any, schema: str) -> Answer:
        return self.as_token(token, "POST", "/api/records/search/", {"schema": schema})

    def listed(self) -> list[Any]:
        answer = call("GET", f"{self.service.base_url}/api/tokens/", auth=self.account.auth)
        assert answer.status == 200, answer.body
        found: list[Any] = answer.json()["results"]
        return found


def code_of(answer: Answer) -> str:
    return str(answer.json()["code"])


def new_world(service: Service) -> World:
    account = service.new_account()

    def post(path: str, body: Any) -> Any:
        made = call("POST", service.proxy_url + path, body, auth=account.auth)
        assert made.status == 201, made.body
        return made.json()

    names = ("people", "places")
    datasets = [
        post("/api/datasets/", {"name": name, "organization": account.organization})["url"]
        for name in names
    ]
    schemas = [
        post("/api/schemas/", {"name": "One", "dataset": dataset, "schema": PERSON})["url"]
        for dataset in datasets
    ]
    stored = [
        post("/api/records/ingest/", [{"schema": schema, "data": {"name": name}}])[0]["url"]
        for schema, name in zip(schemas, names, strict=True)
    ]
    return World(
        service,
        account,
        (datasets[0], datasets[1]),
        (schemas[0], schemas[1]),
        (stored[0], stored[1]),
    )


@pytest.fixture(scope="module")
def worlds() -> Callable[[Service], World]:
    made: dict[str, World] = {}

    def of(service: Service) -> World:
        return made.setdefault(service.base_url, new_world(service))

    return of


@pytest.fixture
def world(service: Service, worlds: Callable[[Service], World]) -> World:
    return worlds(service)


def test_a_token_of_one_dataset_reaches_no_other_on_either_host(world: World) -> None:
    token = world.make(scope="write", datasets=[world.datasets[0]])
    auth = f"Bearer {token['token']}"
    # The person has searched both: what the proxy keeps in memory opens nothing to the token.
    for schema in world.schemas:
        url = f"{world.service.proxy_url}/api/records/search/"
        assert call("POST", url, {"schema": schema}, auth=world.account.auth).status == 200

    assert world.search(token, world.schemas[0]).status == 200
    stored = [{"schema": world.schemas[0], "data": {"name": "people"}}]
    assert world.as_token(token, "POST", "/api/records/ingest/", stored).status == 201

    other = [{"schema": world.schemas[1], "data": {"wrong": 1}}]
    for method, path, body in (
        ("POST", "/api/records/search/", {"schema": world.schemas[1]}),
        ("POST", "/api/records/aggregate/", {"schema": world.schemas[1], "measures": ["count"]}),
        ("POST", "/api/records/export/", {"schema": world.schemas[1]}),
        ("GET", world.records[1], None),
        ("POST", "/api/records/sealed/", {"ids": [world.records[1].split("/")[-2]]}),
        ("GET", f"/api/records/?schema={world.schemas[1].split('/')[-2]}", None),
        ("GET", f"{world.schemas[1]}log/", None),
        ("POST", "/api/records/ingest/", other),
        ("DELETE", world.records[1], None),
        ("POST", f"{world.schemas[1]}merge/", {}),
        ("PATCH", world.schemas[1], {"schema": PERSON}),
    ):
        refused = world.as_token(token, method, path, body)
        assert refused.status in (400, 404), (method, path, refused.status, refused.body)
        assert b"places" not in refused.body
        assert b"unknown_field" not in refused.body, "the definition is not told either"
    for host in world.hosts:
        for method, path in (
            ("GET", world.schemas[1]),
            ("GET", world.datasets[1]),
            ("DELETE", world.datasets[1]),
        ):
            assert call(method, host + path, auth=auth).status == 404, (host, method, path)
        datasets = call("GET", f"{host}/api/datasets/", auth=auth).json()["results"]
        assert [dataset["url"] for dataset in datasets] == [world.datasets[0]]
        schemas = call("GET", f"{host}/api/schemas/", auth=auth).json()["results"]
        assert [schema["url"] for schema in schemas] == [world.schemas[0]]
        for path in ("members/", "invitations/", "audit-log/"):
            refused = call("GET", f"{host}{world.account.organization}{path}", auth=auth)
            assert (refused.status, code_of(refused)) == (403, "token_limited"), path
        new = {"name": "third", "organization": world.account.organization}
        refused = call("POST", f"{host}/api/datasets/", new, auth=auth)
        assert (refused.status, code_of(refused)) == (403, "token_limited")


def test_a_token_whose_only_dataset_is_deleted_reaches_nothing(world: World) -> None:
    organization = {"organization": world.account.organization}
    url = f"{world.service.base_url}/api/datasets/"
    dataset = call("POST", url, {"name": "short", **organization}, auth=world.account.auth).json()
    token = world.make(datasets=[dataset["url"]])
    gone = call("DELETE", world.service.base_url + dataset["url"], auth=world.account.auth)
    assert gone.status == 204
    assert world.as_token(token, "GET", "/api/datasets/").json()["results"] == []
    assert world.search(token, world.schemas[0]).status == 404
    assert next(one for one in world.listed() if one["id"] == token["id"])["datasets"] == []


def test_a_job_keeps_within_the_limits_of_the_token_that_began_it(world: World) -> None:
    token = world.make(scope="write", datasets=[world.datasets[0]])
    rows = [{"schema": schema, "data": {"name": "z"}} for schema in world.schemas]
    for row, status in zip(rows, ("completed", "failed"), strict=True):
        begun = world.as_token(token, "POST", "/api/jobs/upload/", [row])
        assert begun.status == 201, begun.body
        job = f"/api/jobs/{begun.json()['job_id']}/"
        assert ended(world, token, job)["status"] == status
    # Another token of the same person does not see it, the person does.
    other = world.make(scope="write")
    assert world.as_token(other, "GET", job).status == 404
    assert world.as_token(other, "GET", "/api/jobs/").json()["count"] == 0
    assert world.as_token(token, "GET", "/api/jobs/").json()["count"] == 2
    assert call("GET", world.service.proxy_url + job, auth=world.account.auth).status == 200
    # And what a token knows of the API's paths of jobs does not help it with another's.
    for method, path in (("POST", f"{job}token/"), ("DELETE", job)):
        url = world.service.base_url + path
        assert call(method, url, auth=f"Bearer {other['token']}").status < 500


def ended(world: World, token: Any, job: str) -> Any:
    def progress() -> Any:
        return world.as_token(token, "GET", job).json()

    eventually(lambda: progress()["status"] in ("completed", "failed"), "the job ends")
    return progress()


def test_a_resumable_upload_is_for_the_token_that_began_it(world: World) -> None:
    token, other = world.make(scope="write"), world.make(scope="write")
    kind = base64.b64encode(b"application/json").decode()
    headers = {
        "Tus-Resumable": "1.0.0",
        "Upload-Length": "10",
        "Upload-Metadata": f"filetype {kind}",
    }
    proxy = world.service.proxy_url
    auth = f"Bearer {token['token']}"
    begun = call("POST", f"{proxy}/api/files/", b"", auth=auth, headers=headers)
    assert begun.status == 201, begun.body
    address = begun.headers["Location"]
    resumable = {"Tus-Resumable": "1.0.0"}
    strange = f"Bearer {other['token']}"
    assert call("HEAD", address, auth=strange, headers=resumable).status == 404
    assert call("DELETE", address, auth=strange, headers=resumable).status == 404
    assert call("HEAD", address, auth=auth, headers=resumable).status == 200
    assert call("DELETE", address, auth=auth, headers=resumable).status == 204


def test_a_token_ends_on_its_day_and_with_the_password(service: Service) -> None:
    world = new_world(service)
    late, token = world.make(expires_in=IN_A_DAY), world.make()
    moment = "2020-01-01 00:00:00"
    execute(world, f"UPDATE api_token SET expires = '{moment}' WHERE name = 'nightly'")
    for one in (late, token):
        assert world.search(one, world.schemas[0]).status == 401
    token = world.make()
    assert world.search(token, world.schemas[0]).status == 200
    new = "another long password 7"
    body = {"old_password": world.account.password, "password": new, "password_confirm": new}
    url = f"{service.base_url}/api/accounts/change-password/"
    assert call("POST", url, body, auth=world.account.auth).status == 200
    assert world.search(token, world.schemas[0]).status == 401


def execute(world: World, statement: str) -> None:
    url = world.service.database_url
    if url is None:
        path = world.service.data_dir / "api" / "db.sqlite3"
        with closing(sqlite3.connect(path)) as database:
            database.execute(statement)
            database.commit()
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.encode())


def test_a_list_says_what_each_token_may_and_when_it_was_used(world: World) -> None:
    made = world.make(name="for the report", datasets=[world.datasets[1]])
    (before,) = [one for one in world.listed() if one["id"] == made["id"]]
    assert "token" not in before
    assert before == {name: value for name, value in made.items() if name != "token"}
    assert (before["scope"], before["datasets"]) == ("read", [world.datasets[1]])
    assert before["last_used"] is None
    assert world.search(made, world.schemas[1]).status == 200
    (after,) = [one for one in world.listed() if one["id"] == made["id"]]
    assert after["last_used"] in (time.strftime("%Y-%m-%d", time.gmtime(at)) for at in days())


def days() -> tuple[float, float]:
    return time.time(), time.time() - 60


def test_a_token_is_made_with_the_password_alone_and_by_no_token(world: World) -> None:
    pair = {"email": world.account.email, "password": world.account.password}
    url = f"{world.service.base_url}/api/token/"
    bearer = f"Bearer {call('POST', url, pair).json()['access']}"
    strong = world.make(scope="write")
    for host in world.hosts:
        path = f"{host}/api/tokens/"
        for body, code in (({}, "required"), ({"password": "wrong one"}, "wrong_password")):
            refused = call("POST", path, {"name": "x", **body}, auth=bearer)
            assert refused.status == 400
            assert [error["code"] for error in refused.json()["errors"]] == [code]
        made = call("POST", path, {"name": "x", "password": pair["password"]}, auth=bearer)
        assert made.status == 201
        for method, address, sent in (
            ("GET", "/api/tokens/", None),
            ("POST", "/api/tokens/", {"name": "x", "password": pair["password"]}),
            ("DELETE", made.json()["url"], None),
            ("POST", "/api/accounts/change-password/", {}),
            ("POST", "/api/accounts/logout/", None),
            ("PATCH", world.account.organization, {"name": "x"}),
            ("POST", f"{world.account.organization}invitations/", {"email": "x@example.org"}),
        ):
            refused = call(method, host + address, sent, auth=f"Bearer {strong['token']}")
            assert (refused.status, code_of(refused)) == (403, "token_limited"), (host, address)
    for method, address in (
        ("GET", "/api/keyring/"),
        ("POST", "/api/keyring/backup/"),
        ("POST", "/api/keyring/rotate/"),
        ("GET", "/api/devices/"),
        ("POST", "/api/devices/"),
        ("POST", f"{world.schemas[0]}accept-log/"),
    ):
        refused = world.as_token(strong, method, address, {} if method == "POST" else None)
        assert (refused.status, code_of(refused)) == (403, "token_limited"), address


def test_what_is_asked_of_a_new_token_is_checked(world: World) -> None:
    stranger = new_world(world.service)
    for members, code in (
        ({"scope": "admin"}, "invalid_choice"),
        ({"expires_in": 59}, "min_value"),
        ({"expires_in": 367 * IN_A_DAY}, "max_value"),
        ({"datasets": []}, "min_length"),
        ({"datasets": [stranger.datasets[0]]}, "unknown_reference"),
        ({"datasets": "people"}, "not_a_list"),
        ({"secret": "x"}, "unknown_member"),
        ({"name": ""}, "blank"),
    ):
        url = f"{world.service.base_url}/api/tokens/"
        refused = call("POST", url, {"name": "x"} | members, auth=world.account.auth)
        assert refused.status == 400, members
        assert [error["code"] for error in refused.json()["errors"]] == [code]
