"""The proxy's document: the API's endpoints that it forwards, and all of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import schemathesis
from schemathesis.core.result import Ok

from encrypted_records.model.forwarded import FORWARDED
from encrypted_records.model.ids import PATTERN, SLUG
from encrypted_records.proxy.api import ROUTES
from encrypted_records.proxy.api.endpoint import PathRoute, operations_of
from encrypted_records.proxy.api.openapi import nameless
from encrypted_records.proxy.uploads import tus
from encrypted_records.proxy.uploads import tus as header
from tests.support.generated import statuses_of
from tests.support.page_visits import logged_in
from tests.support.service import Account, Service, call

OWN = {(operation.method, operation.path): operation for operation in operations_of(ROUTES)}
SOCKET = ("GET", "/api/ws/jobs/{id}/")
#: Of each endpoint; the first names something that is there.
EXAMPLES = 2


@pytest.fixture(scope="module")
def account(service: Service) -> Account:
    return service.new_account()


@pytest.fixture(scope="module")
def document(service: Service, account: Account) -> dict[str, Any]:
    found = call("GET", f"{service.proxy_url}/api/openapi.json")
    assert found.status == 200, found.body
    described: dict[str, Any] = found.json()
    return described


def test_it_describes_what_the_proxy_has_and_forwards(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    for method, path in OWN:
        operation = document["paths"][path][method.lower()]
        assert operation["summary"]
        assert {"401", "422", "502"} <= set(operation["responses"])
    assert "post" in document["paths"]["/api/datasets/"]
    assert {"502", "504"} <= set(document["paths"]["/api/users/{id}/"]["get"]["responses"])
    for ends_here in ("/api/commits/", "/api/token/session/", "/api/schemas/{schema_id}/rows/"):
        assert ends_here not in document["paths"]


def test_a_parameter_that_it_does_not_describe_is_refused(
    service: Service, account: Account
) -> None:
    for path in (f"{account.organization}people/", "/api/webhooks/", "/api/jobs/"):
        refused = call("GET", f"{service.proxy_url}{path}?colour=red", auth=account.auth)
        assert (refused.status, refused.json()["code"]) == (400, "invalid_query"), path


def test_of_the_apis_endpoints_it_has_those_that_are_handed_on(document: dict[str, Any]) -> None:
    own = {(method, nameless(path)) for method, path in OWN}
    others = {
        (method.upper(), nameless(path))
        for path, methods in document["paths"].items()
        for method in methods
    } - own
    forwarded = {(one.method, nameless(one.template)) for one in FORWARDED}
    assert others == (forwarded | {("GET", "/api/status/")}) - own


def test_every_path_of_the_proxys_own_is_described(document: dict[str, Any]) -> None:
    undescribed = {"/api/{path:path}", "/api/status/", "/api/files", "/api/files/{id}"}
    routes = [route for route in ROUTES if isinstance(route, PathRoute)]
    assert {route.path for route in routes} - undescribed == {
        path for _, path in set(OWN) - {SOCKET}
    }
    for route in routes:
        if route.allowed and route.path not in undescribed:
            described = {path.upper() for path in document["paths"][route.path]}
            assert described == route.allowed - {"HEAD"}, route.path


def test_every_operation_has_a_name_a_summary_and_a_tag(document: dict[str, Any]) -> None:
    operations = [method for methods in document["paths"].values() for method in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", name) for name in names), names
    assert all(
        operation["summary"] and "\n" not in operation["summary"] for operation in operations
    )
    tags = [tag["name"] for tag in document["tags"]]
    assert len(set(tags)) == len(tags)
    for operation in operations:
        assert len(operation["tags"]) == 1
        assert operation["tags"][0] in tags


def test_what_the_proxy_refuses_by_its_form_is_refused_by_the_document(
    document: dict[str, Any],
) -> None:
    paths = document["paths"]
    for path, name, form in (
        ("/api/records/{id}/", "get", PATTERN),
        ("/api/schemas/{id}/merge/", "post", SLUG),
    ):
        [schema] = [
            parameter["schema"]
            for parameter in paths[path][name]["parameters"]
            if parameter["name"] == "id"
        ]
        assert schema["pattern"] == f"^{form}$"
    body = paths["/api/records/ingest/"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"]["items"] == {"$ref": "#/components/schemas/NewRecord"}
    parts = document["components"]["schemas"]
    assert {"Record", "SealedRecord", "RecordPage", "SearchPage", "Job"} <= set(parts)
    reference = parts["NewRecord"]["properties"]["schema"]["pattern"]
    assert re.search(reference, "/api/schemas/" + "2" * 22 + "/")
    assert not re.search(reference, "/api/datasets/" + "2" * 22 + "/")
    for path, methods in paths.items():
        for method, operation in methods.items():
            for one in operation.get("parameters", ()):
                if one["name"] == "limit":
                    assert one["schema"]["minimum"] == 1, (method, path)
    kinds = set(paths["/api/jobs/upload/"]["post"]["requestBody"]["content"])
    assert kinds == {"text/csv", "application/json", "application/x-ndjson"}
    assert "'const'" not in repr([paths[path] for _, path in OWN])


def test_uploads_are_described_with_their_methods_and_headers(document: dict[str, Any]) -> None:
    for path, on_upload in (("/api/files/", False), ("/api/files/{id}/", True)):
        described = document["paths"][path]
        assert set(described) == {m.lower() for m in tus.list_methods(on_upload=on_upload)}
    creation = document["paths"]["/api/files/"]["post"]
    assert {"Location", "X-Job-Id"} <= set(creation["responses"]["201"]["headers"])
    assert {"410", "423", "460", "507"} <= set(creation["responses"])
    sent = {
        parameter["name"]: parameter["schema"]
        for parameter in document["paths"]["/api/files/{id}/"]["patch"]["parameters"]
    }
    assert sent["Tus-Resumable"] == {"type": "string", "enum": ["1.0.0"]}
    assert {"id", "Tus-Resumable", "Upload-Offset", "Upload-Checksum"} <= set(sent)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for link in set(re.findall(r"'\$ref': '#/([\w/.-]+)'", repr(document))):
        part: Any = document
        for step in link.split("/"):
            part = part[step]


def test_it_can_be_read_without_script_or_other_hosts(service: Service, account: Account) -> None:
    page = logged_in(service, account).visit("/docs/")
    assert page.status == 200
    assert "default-src 'none'; style-src 'sha256-" in page.headers["Content-Security-Policy"]
    assert b"POST /api/records/search/" in page.body
    assert b"<script" not in page.body
    # Nothing under /api/ is HTML.
    elsewhere = call("GET", f"{service.proxy_url}/api/docs/", auth=account.auth)
    assert (elsewhere.status, elsewhere.json()["code"]) == (404, "not_forwarded")
    assert "/docs/" in elsewhere.json()["hint"]


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
    own = set(OWN) - {SOCKET}
    document = call("GET", f"{service.proxy_url}/api/openapi.json", auth=account.auth).json()
    # Without the API's, whose endpoints its own tests ask.
    document["paths"] = {
        path: {name: one for name, one in methods.items() if (name.upper(), path) in own}
        for path, methods in document["paths"].items()
    }
    headers = {"Authorization": account.auth}
    failures, statuses = [], set()
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        own.remove((operation.method.upper(), operation.path))
        aim = partial(name_known, ids, operation.method.upper(), operation.path)
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
    reading = {"name": "t", "scope": "read", "password": account.password}
    hook = {
        "schema": schema["url"],
        "url": "https://example.invalid/",
        "token": made("/api/tokens/", reading).json()["token"],
    }
    device = made("/api/devices/", {"create": True, "name": "d"}, **service.door).json()
    return {
        "devices": device["id"],
        "datasets": dataset["id"],
        "organizations": account.organization.split("/")[-2],
        "invitations": dataset["id"],
        "schemas": schema["id"],
        "records": stored[0]["id"],
        "jobs": job,
        "webhooks": made("/api/webhooks/", hook).json()["id"],
        "files": upload.headers["Location"].rpartition("/")[2],
    }


def name_known(ids: dict[str, str], method: str, path: str, case: Any) -> None:
    """Have a request name what is there, and one that makes something make it."""
    if "{" in path:
        known = ids[path.split("/")[2]]
        case.path_parameters = dict.fromkeys(case.path_parameters, known)
    if "schema" in (case.query or {}):
        case.query["schema"] = ids["schemas"]
    if (method, path) == ("POST", "/api/files/"):
        case.headers.clear()
        case.headers.update({"Tus-Resumable": "1.0.0", "Upload-Length": "9"})
        case.body = b""
    if (method, path) == ("POST", "/api/records/ingest/"):
        case.body = [{"schema": f"/api/schemas/{ids['schemas']}/", "data": {"name": "Ada"}}]
        case.media_type = "application/json"
