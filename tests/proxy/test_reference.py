"""The proxy's document: the API's endpoints that it forwards, and all of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import schemathesis
from starlette.routing import Route

from encrypted_records.proxy.routes import (
    changes,
    exports,
    files,
    jobs,
    keyring,
    questions,
    records,
    schemas,
)
from encrypted_records.proxy.routes.answered import ANSWERS, PARAMETERS, PROBLEMS, SUMMARIES
from encrypted_records.proxy.routes.reference import BODIES
from encrypted_records.proxy.tus import headers as header
from encrypted_records.proxy.tus import protocol
from tests.support.generated import statuses_of
from tests.support.service import Account, Service, call

OWN = [
    route
    for room in (changes, exports, jobs, keyring, questions, records, schemas)
    for route in room.routes
    if isinstance(route, Route)
]
#: Of each endpoint; the first names something that is there.
EXAMPLES = 2


@pytest.fixture(scope="module")
def account(service: Service) -> Account:
    return service.new_account()


@pytest.fixture(scope="module")
def document(service: Service, account: Account) -> dict[str, Any]:
    found = call("GET", f"{service.proxy_url}/api/openapi.json", auth=account.auth)
    assert found.status == 200, found.body
    described: dict[str, Any] = found.json()
    return described


def test_it_describes_what_the_proxy_has_and_forwards(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    for route in OWN:
        for method in (route.methods or set()) - {"HEAD"}:
            operation = document["paths"][route.path][method.lower()]
            assert operation["summary"]
            assert {"401", "422", "502"} <= set(operation["responses"])
    assert "post" in document["paths"]["/api/datasets/"]
    for ends_here in ("/api/commits/", "/api/token/session/"):
        assert ends_here not in document["paths"]


def test_what_is_described_exists(document: dict[str, Any]) -> None:
    for method, path in {*BODIES, *ANSWERS, *PARAMETERS, *PROBLEMS, *SUMMARIES}:
        assert method.lower() in document["paths"][path], path


def test_uploads_are_described_with_their_methods_and_headers(document: dict[str, Any]) -> None:
    assert {route.path for route in files.routes if route.path.endswith("/")} == {
        *("/api/files/", "/api/files/{id}/")
    }
    for path, on_upload in (("/api/files/", False), ("/api/files/{id}/", True)):
        described = document["paths"][path]
        assert set(described) == {m.lower() for m in protocol.allowed(on_upload=on_upload)}
    creation = document["paths"]["/api/files/"]["post"]
    assert {"Location", "X-Job-Id"} <= set(creation["responses"]["201"]["headers"])
    assert {"410", "423", "460", "507"} <= set(creation["responses"])
    sent = {one["name"] for one in document["paths"]["/api/files/{id}/"]["patch"]["parameters"]}
    assert {"id", "Tus-Resumable", "Upload-Offset", "Upload-Checksum"} <= sent


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for link in set(re.findall(r"'\$ref': '#/([\w/.-]+)'", repr(document))):
        place: Any = document
        for step in link.split("/"):
            place = place[step]


def test_it_can_be_read_without_script_or_other_hosts(service: Service, account: Account) -> None:
    page = call("GET", f"{service.proxy_url}/api/docs/", auth=account.auth)
    assert page.status == 200
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert b"POST /api/records/search/" in page.body
    assert b"<script" not in page.body
    assert call("GET", f"{service.proxy_url}/api/docs/").status == 401


@schemathesis.serializer(header.CONTENT_TYPE)
def some_bytes(_context: Any, value: Any) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)


def test_generated_requests_find_no_undocumented_answer_of_the_proxys_own(
    services: Callable[[str], Service],
) -> None:
    """Of somebody of its own, whose keyring the requests may turn over."""
    service = services("sqlite")  # which database the API has makes no difference here
    account = service.new_account()
    ids = prepared(service, account)
    own = set(ANSWERS) - {("GET", "/api/ws/jobs/{id}/")}
    document = call("GET", f"{service.proxy_url}/api/openapi.json", auth=account.auth).json()
    # Without the API's, whose endpoints its own tests ask.
    document["paths"] = {
        path: {name: one for name, one in methods.items() if (name.upper(), path) in own}
        for path, methods in document["paths"].items()
    }
    headers = {"Authorization": account.auth}
    failures, statuses = [], set()
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        operation = found.ok()
        own.remove((operation.method.upper(), operation.path))
        aim = partial(name_known, ids, operation.path)
        try:
            statuses |= set(
                statuses_of(operation, service.proxy_url, headers, examples=EXAMPLES, aim=aim)
            )
        except Exception as failure:  # of every kind; all are shown at once
            failures.append(f"{operation.label}: {failure}")
    assert not failures, "\n".join(failures)
    assert not own
    assert {200, 201, 204, 400, 404} <= statuses


def prepared(service: Service, account: Account) -> dict[str, str]:
    """Ids of things that are there, by the collection in the path."""

    def made(path: str, body: Any, **headers: str) -> Any:
        found = call("POST", service.proxy_url + path, body, auth=account.auth, headers=headers)
        assert found.status == 201, found.body
        return found

    dataset = made("/api/datasets/", {"name": "d", "organization": account.organization}).json()
    definition = {"type": "object", "properties": {"name": {"type": "string"}}}
    body = {"name": "s", "dataset": dataset["url"], "schema": definition}
    schema = made("/api/schemas/", body).json()
    record = {"schema": schema["url"], "data": {"name": "Ada"}}
    stored = made("/api/records/ingest/", [record]).json()
    job = made("/api/jobs/upload/", [record]).headers["X-Job-ID"]
    upload = made(
        "/api/files/",
        b"",
        **{"Tus-Resumable": "1.0.0", "Upload-Length": "9", "Content-Length": "0"},
    )
    return {
        "schemas": schema["id"],
        "records": stored[0]["id"],
        "jobs": job,
        "files": upload.headers["Location"].rpartition("/")[2],
    }


def name_known(ids: dict[str, str], path: str, case: Any) -> None:
    """Have a request name what is there."""
    known = ids.get(path.split("/")[2], "")
    case.path_parameters = dict.fromkeys(case.path_parameters or {}, known)
    if "schema" in (case.query or {}):
        case.query["schema"] = ids["schemas"]
