"""Clients that are generated of the OpenAPI documents do the main job, against a real service."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.generated import (
    NODE,
    PythonClient,
    compile_typescript,
    generate_python,
    generate_typescript,
    run,
)
from tests.clients.people import ended, job_of
from tests.support.service import Account, Service, call
from tests.support.store import Store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "faker": "name"},
        "age": {"type": "integer", "minimum": 0, "maximum": 130, "unit": "years"},
    },
    "required": ["name"],
}
#: All that openapi-python-client cannot take of a document: bodies of frames, of text and of Arrow.
FRAMES = (
    "/api/commits/",
    "/api/invitations/{invitation_id}/answer/",
    "/api/jobs/{job}/publish/",
    "/api/organizations/{organization_id}/answers/",
    "/api/organizations/{organization_id}/grants/",
    "/api/organizations/{organization_id}/requests/",
    "/api/organizations/{organization_id}/roster/",
    "/api/schemas/{schema_id}/checkpoints/",
    "/api/schemas/{schema_id}/digests/",
    "/api/schemas/{schema_id}/manifest/",
    "/api/schemas/{schema_id}/names/",
    "/api/schemas/{schema_id}/pages/",
    "/api/schemas/{schema_id}/rows/",
    "/api/schemas/{schema_id}/staging/",
)
TEXTS = (
    "/api/jobs/upload/",
    "/api/records/columns/",
    "/api/schemas/infer/",
    "/api/schemas/{id}/verify/",
)


@pytest.fixture(scope="module")
def service(services: Callable[[str], Service]) -> Service:
    return services("sqlite")


@pytest.fixture(scope="module")
def account(service: Service) -> Account:
    return service.new_account()


@pytest.fixture(scope="module")
def documents(service: Service, account: Account) -> dict[str, dict[str, Any]]:
    hosts = {"proxy": service.proxy_url, "api": service.base_url}
    return {
        name: call("GET", f"{url}/api/openapi.json", auth=account.auth).json()
        for name, url in hosts.items()
    }


@pytest.fixture(scope="module")
def packages(
    documents: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[str]]]:
    """The packages made of both documents, and what the generator said of each."""
    folder = tmp_path_factory.mktemp("packages")
    said = {
        "proxy_client": generate_python(documents["proxy"], folder, "proxy_client", overrides=True),
        "api_client": generate_python(documents["api"], folder, "api_client", overrides=False),
    }
    sys.path.insert(0, str(folder))
    yield said
    sys.path.remove(str(folder))


def paths_of(said: list[str]) -> set[str]:
    return {found[1] for line in said if (found := re.search(r" (/api/\S*) ", line))}


def test_nothing_but_frames_and_texts_is_left_out_of_python_clients(
    packages: dict[str, list[str]],
) -> None:
    assert paths_of(packages["api_client"]) == set(FRAMES)
    assert paths_of(packages["proxy_client"]) == set(TEXTS)
    # Of these two, the bodies of JSON are there.
    assert not [line for line in packages["proxy_client"] if "will not be generated" in line]


def test_without_any_setting_all_of_an_upload_but_its_bytes_is_there(
    documents: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    document = documents["proxy"]
    uploads = {path: document["paths"][path] for path in ("/api/files/", "/api/files/{id}/")}
    said = generate_python(document | {"paths": uploads}, tmp_path, "uploads", overrides=False)
    made = {file.stem for file in (tmp_path / "uploads" / "api" / "files").glob("*.py")}
    names = {method["operationId"] for methods in uploads.values() for method in methods.values()}
    assert made - {"__init__"} == names - {"append_to_upload"}
    assert [line for line in said if "will not" in line] == [
        "WARNING parsing PATCH /api/files/{id}/ within files. Endpoint will not be generated."
    ]


def log_in(package: str, url: str, account: Account) -> PythonClient:
    client = PythonClient.of(package, url)
    pair = client.call(
        "token.token_create",
        body=client.model("LoginRequest", email=account.email, password=account.password),
    )
    assert pair.status_code == 200
    return client.logged_in(pair.parsed.access)


def new_schema(client: PythonClient, name: str) -> tuple[Any, Any]:
    """A dataset and a schema in it, of the caller's own organization."""
    user = client.call("users.users_self_retrieve").parsed
    [organization] = user.organizations
    shown = client.call(
        "organizations.organizations_retrieve", organization.rstrip("/").rpartition("/")[2]
    )
    assert shown.parsed.url == organization
    dataset = client.call(
        "datasets.datasets_create",
        body=client.model("DatasetRequest", name=name, organization=organization),
    )
    assert dataset.status_code == 201
    schema = client.call(
        "schemas.schemas_create",
        body=client.model(
            "SchemaRequest", name=name, dataset=dataset.parsed.url, schema=DEFINITION
        ),
    )
    assert schema.status_code == 201
    assert schema.parsed.schema.to_dict() == DEFINITION
    return dataset.parsed, schema.parsed


def change_and_delete(client: PythonClient, dataset: Any, schema: Any) -> None:
    changed = client.call(
        "datasets.datasets_partial_update",
        dataset.id,
        body=client.model("PatchedDatasetRequest", description="of somebody"),
    )
    assert changed.parsed.description == "of somebody"
    listed = client.call("schemas.schemas_list", dataset=dataset.url, limit=5)
    assert [result.url for result in listed.parsed.results] == [schema.url]
    gone = client.call("datasets.datasets_destroy", dataset.id, cascade=True)
    assert gone.status_code == 204
    missing = client.call("schemas.schemas_retrieve", schema.id)
    assert (missing.status_code, missing.parsed.code) == (404, "not_found")


@pytest.mark.usefixtures("packages")
def test_a_python_client_of_the_api_does_what_the_api_does_without_keys(
    service: Service, account: Account
) -> None:
    client = log_in("api_client", service.base_url, account)
    dataset, schema = new_schema(client, "python-api")
    assert client.call("records.records_list", schema=schema.id).parsed.results == []
    change_and_delete(client, dataset, schema)


@pytest.mark.usefixtures("packages")
def test_a_python_client_of_the_proxy_does_the_main_job(service: Service, account: Account) -> None:
    client = log_in("proxy_client", service.proxy_url, account)
    dataset, schema = new_schema(client, "python-proxy")

    rows = [{"name": name, "age": age} for name, age in (("Ada", 36), ("Alan", 41), ("Grace", 85))]
    stored = client.call(
        "records.ingest_records",
        body=[client.model("NewRecord", schema=schema.url, data=row) for row in rows],
    )
    assert stored.status_code == 201
    assert [one.schema for one in stored.parsed] == [schema.url] * 3
    refused = client.call(
        "records.ingest_records",
        body=[client.model("NewRecord", schema=schema.url, data={"age": 131})],
    )
    assert refused.status_code == 400
    assert {error.field for error in refused.parsed.errors} == {"name", "age"}

    job = client.call(
        "jobs.create_job",
        body=[client.model("CreateJobJsonBodyItem", data={"name": "Edsger", "age": 72})],
        schema=schema.id,
        x_batch_size=5,
    )
    assert job.status_code == 201
    assert job.headers["X-Job-ID"] == str(job.parsed.job_id)
    store = Store(service, account, schema.url)
    assert ended(store, str(job.parsed.job_id))["status"] == "completed"
    assert client.call("jobs.get_job", job.parsed.job_id).parsed.processed == 1

    content = f"name,age,schema_id:{schema.id}\nBarbara,80\n".encode()
    made = client.call(
        "files.create_upload",
        tus_resumable=client.value("CreateUploadTusResumable", "1.0.0"),
        upload_length=len(content),
        upload_metadata=f"filename {base64.b64encode(b'people.csv').decode()}",
    )
    assert made.status_code == 201
    upload = made.headers["Location"].rpartition("/")[2]
    sent = client.call(
        "files.append_to_upload",
        upload,
        body=client.file(content),
        tus_resumable=client.value("AppendToUploadTusResumable", "1.0.0"),
        upload_offset=0,
    )
    assert (sent.status_code, sent.headers["Upload-Offset"]) == (204, str(len(content)))
    assert ended(store, job_of(upload))["status"] == "completed"

    found = client.call(
        "records.search_records",
        body=client.model(
            "SearchRecordsBody",
            schema=schema.url,
            where={"field": "age", "op": "ge", "value": 50},
            order_by=["-age"],
            count=True,
        ),
    )
    assert found.status_code == 200
    assert found.parsed.count == 3
    assert [result.data.to_dict()["name"] for result in found.parsed.results] == [
        *("Grace", "Barbara", "Edsger"),
    ]
    measured = client.call(
        "records.aggregate_records",
        body=client.model(
            "AggregateRecordsBody", schema=schema.url, measures=[{"op": "max", "field": "age"}]
        ),
    )
    assert [measure.to_dict()["value"] for measure in measured.parsed.measures] == [85]

    first = stored.parsed[0].id
    patched = client.call(
        "records.update_record",
        first,
        body=client.model("UpdateRecordBody", data={"age": 37}),
    )
    assert patched.parsed.data.to_dict() == {"name": "Ada", "age": 37}
    assert client.call("records.delete_record", first).status_code == 204
    assert client.call("records.get_record", first).status_code == 404
    change_and_delete(client, dataset, schema)


def test_a_typescript_client_is_checked_by_tsc_and_does_the_main_job(
    service: Service, account: Account, documents: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    for name, document in documents.items():
        generate_typescript(document, tmp_path, name)
    program = compile_typescript(NODE / "main_job.ts", tmp_path)
    asked = {
        "proxy": service.proxy_url,
        "api": service.base_url,
        "email": account.email,
        "password": account.password,
        "definition": DEFINITION,
    }
    done = json.loads(run(["node", program], stdin=json.dumps(asked)))
    assert done == {
        "ingested": 3,
        "refused": ["age", "name"],
        "jobs": ["completed", "completed", "completed"],
        "found": ["Grace", "Barbara", "Edsger", "Margaret"],
        "count": 4,
        "maximum": 85,
        "patched": {"name": "Ada", "age": 37},
        "deleted": 404,
        "sealed": 6,
        "gone": "not_found",
    }
