"""The OpenAPI document: complete, true, and readable."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import schemathesis
from schemathesis.core.result import Ok

from encrypted_records.model import ids, wire
from tests.server.api import PASSWORD, Account, Api, basic, running_api
from tests.server.writer import Writer, person
from tests.support.generated import statuses_of
from tests.support.postgres import NewDatabase

#: Requests of each operation, of what is there. Others are in ``tests/clients``.
EXAMPLES = 1


@schemathesis.serializer(wire.MEDIA_TYPE)
def frames(_context: Any, value: Any) -> bytes:
    """Any text, sent as if it were frames."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)


@pytest.fixture(scope="module")
def strict_api(tmp_path_factory: pytest.TempPathFactory, postgresql: NewDatabase) -> Iterator[Api]:
    """On PostgreSQL, which refuses more than SQLite does."""
    with running_api(
        tmp_path_factory.mktemp("openapi"), database_url=postgresql.with_tables()
    ) as running:
        yield running


@pytest.fixture(scope="module")
def document(ada: Account) -> dict[str, Any]:
    found: dict[str, Any] = ada.call("GET", "/api/openapi.json").json()
    return found


def test_every_operation_says_what_it_answers_with_and_to_whom(document: dict[str, Any]) -> None:
    open_to_all = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert {"400", "503"} <= set(operation["responses"]), (method, path)
            if not operation.get("security"):
                open_to_all.add(path)
            else:
                assert {"401", "403", "429"} <= set(operation["responses"]), (method, path)
            named = {
                parameter["name"]
                for parameter in operation["parameters"]
                if parameter["in"] == "path"
            }
            assert all(f"{{{name}}}" in path for name in named)
    assert open_to_all == {
        *("/api/status/", "/api/csrf/", "/api/token/", "/api/token/refresh/"),
        *("/api/token/verify/", "/api/accounts/login/", "/api/accounts/register/"),
        *("/api/accounts/verify-registration/", "/api/accounts/send-reset-password-link/"),
        *("/api/accounts/reset-password/", "/api/accounts/confirm-email/"),
    }


def test_every_operation_has_a_name_a_summary_and_a_tag(
    document: dict[str, Any],
) -> None:
    operations = [method for methods in document["paths"].values() for method in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(
        operation["summary"] and "\n" not in operation["summary"] for operation in operations
    )
    tags = [tag["name"] for tag in document["tags"]]
    assert len(set(tags)) == len(tags)
    assert {tag for operation in operations for tag in operation["tags"]} == set(tags)
    assert all(len(operation["tags"]) == 1 for operation in operations)


def test_what_is_sent_has_no_members_that_only_answers_have(document: dict[str, Any]) -> None:
    parts = document["components"]["schemas"]
    for operations in document["paths"].values():
        for operation in operations.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                assert "readOnly" not in repr(parts.get(name)), name
    assert set(parts["DatasetRequest"]["required"]) == {"name", "organization"}
    assert {"id", "url", "created", "modified"} <= set(parts["Dataset"]["required"])


def test_ids_references_and_limits_have_their_forms(document: dict[str, Any]) -> None:
    paths = document["paths"]
    [by_id] = paths["/api/datasets/{id}/"]["get"]["parameters"]
    assert by_id["schema"]["pattern"] == f"^{ids.PATTERN}$"
    named = document["components"]["schemas"]["SchemaRequest"]["properties"]["dataset"]
    some = ids.to_text(ids.new_id())
    for right in (some, f"/api/datasets/{some}/", f"https://api.example/api/datasets/{some}/"):
        assert re.search(named["pattern"], right)
    for wrong in ("", "people", f"/api/datasets/{some}", f"/api/datasets/{some}/x/"):
        assert not re.search(named["pattern"], wrong)
    for path, operations in paths.items():
        least = {
            operation["name"]: operation["schema"].get("minimum")
            for operation in operations.get("get", {}).get("parameters", ())
            if operation["name"] in ("limit", "offset")
        }
        assert least in ({}, {"limit": 1, "offset": 0}), path


def test_ones_own_account_is_a_path_of_its_own(document: dict[str, Any], ada: Account) -> None:
    described = document["paths"]["/api/users/self/"]["get"]
    assert "200" in described["responses"]
    assert described["parameters"] == []
    assert ada.call("GET", "/api/users/self/").status == 200


def test_it_can_be_read_without_script_or_other_hosts(ada: Account) -> None:
    page = ada.call("GET", "/api/docs/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'; style-src 'sha256-" in page.headers["Content-Security-Policy"]
    html = page.body.decode()
    for loading in ("<script", "src=", "<link", "@import", "url("):
        assert loading not in html
    assert "POST /api/datasets/" in html
    assert 'id="Problem"' in html
    assert ada.api.call("GET", "/api/docs/").status == 401


def test_every_path_answers_options(document: dict[str, Any], ada: Account) -> None:
    paths = [path for path in document["paths"] if "{" not in path or "organization_id" in path]
    own = ada.organization.split("/")[-2]
    some = ids.to_text(ids.new_id())
    for path in paths:
        asked = re.sub(r"\{\w+\}", some, path.replace("{organization_id}", own))
        assert ada.call("OPTIONS", asked).status < 500, path


def test_generated_requests_find_no_undocumented_answer_and_no_failure(
    strict_api: Api,
) -> None:
    owner = strict_api.new_account()
    schema = owner.new_schema()
    writer = Writer(owner, schema)
    assert writer.post(writer.adding([person()])).status == 201
    [record] = owner.call("GET", f"/api/records/?schema={schema['id']}").json()["results"]
    real = {
        "organization_id": owner.organization.split("/")[-2],
        "schema_id": schema["id"],
        "invitation_id": ids.to_text(ids.new_id()),
        "user_id": ids.to_text(ids.new_id()),
        "record": record["id"],
    }
    collections = {
        "organizations": real["organization_id"],
        "datasets": schema["dataset"].split("/")[-2],
        "schemas": schema["id"],
        "records": record["id"],
        "users": "self",
    }
    document = owner.call("GET", "/api/openapi.json").json()
    described = schemathesis.openapi.from_dict(document)
    # Basic: whatever logs out or changes logins cannot end what this test asks with.
    headers = basic(owner.email, PASSWORD)
    base = f"http://127.0.0.1:{strict_api.port}"
    failures, asked = [], 0
    for found in described.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        known = real | {"id": collections.get(operation.path.split("/")[2], "")}
        aim = partial(name_known, known)
        try:
            asked += len(statuses_of(operation, base, headers, examples=EXAMPLES, aim=aim))
        except Exception as failure:  # of every kind; all are shown at once
            failures.append(f"{operation.label}: {failure}")
    assert not failures, "\n".join(failures)
    assert asked > 50


def name_known(known: Mapping[str, str], case: Any) -> None:
    """Have a request name what is there, unless it would be gone then."""
    if case.method != "DELETE":
        names = case.path_parameters or {}
        case.path_parameters = {name: known.get(name) or names[name] for name in names}
