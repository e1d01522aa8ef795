"""A sound request for each operation: with what the owner has, so that roles alone decide.

What a role uses up is made anew for the next one.
"""

from __future__ import annotations

import base64
import re
import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from encrypted_records.model import wire
from encrypted_records.model.records import BlockRef, PageRef
from tests.roles.people import DEFINITION, Stage, named
from tests.server.checkpoints import made
from tests.server.staged import Job
from tests.server.writer import FRAMES, Writer, first_row, only_segment, person
from tests.support.eventually import eventually
from tests.support.service import call

TUS = {"Tus-Resumable": "1.0.0"}
#: No role is named by it, and no login ends: what is refused is the content.
NONSENSE = {
    "POST /api/accounts/login/",
    "POST /api/accounts/register/",
    "POST /api/accounts/verify-registration/",
    "POST /api/accounts/reset-password/",
    "POST /api/accounts/confirm-email/",
    "POST /api/token/",
    "POST /api/token/refresh/",
    "POST /api/token/verify/",
}
#: What is asked of these depends on who asks.
OF_ONE_ROLE = {"POST /api/accounts/logout/", "POST /api/tokens/", "POST /api/webhooks/"}


@dataclass(frozen=True)
class Sent:
    """A request: the path, and whatever else it has."""

    path: str
    body: Any = None
    headers: Mapping[str, str] | None = None


def of(stage: Stage, host: str, operation: str, role: str) -> Sent:
    """What this role asks of an operation, such as ``GET /api/datasets/{id}/``."""
    made = _MAKERS.get(f"{host} {operation}") or _MAKERS.get(operation)
    if made is not None:
        return made(stage, role)
    method, _, path = operation.partition(" ")
    body: Any = {} if operation in NONSENSE or method in ("POST", "PUT", "PATCH") else None
    return Sent(_fill(stage, path, uses_up=method == "DELETE"), body)


def _fill(stage: Stage, path: str, *, uses_up: bool = False) -> str:
    """The path with the ids of what the owner has."""
    organization = stage.organization.split("/")[-2]
    ids = {
        "/organizations/": organization,
        "/datasets/": stage.dataset["id"],
        "/schemas/": stage.schema["id"],
        "/records/": stage.record,
        "/users/": stage.owner.id,
        "/requests/": stage.owner.id,
    }
    if "/people/" in path:
        ids["/people/"] = stage.owner.id
    if "/members/" in path:
        ids["/members/"] = stage.further.pop() if uses_up else stage.further[-1]
    slugs = {"/dataset/": stage.dataset["slug"], "/schema/": stage.schema["slug"]}

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}{(ids | slugs)[match[1]]}"

    filled = re.sub(r"(/[a-z-]+/)\{\w+\}", fill, path)
    assert "{" not in filled, path
    return filled


def _at(template: str, body: Callable[[Stage], Any]) -> Callable[[Stage, str], Sent]:
    return lambda stage, role: Sent(_fill(stage, template), body(stage))


def _of_body(make: Callable[[Stage], str], body: Any) -> Callable[[Stage, str], Sent]:
    return lambda stage, role: Sent(make(stage), body)


def _of_new(make: Callable[[Stage], str]) -> Callable[[Stage, str], Sent]:
    return lambda stage, role: Sent(make(stage))


def _commit(stage: Stage, role: str) -> Sent:
    writer = stage.new_writer()
    body = b"".join(wire.encode_uploads([writer.adding([person()])]))
    return Sent("/api/commits/", body, FRAMES)


def _stored(stage: Stage) -> tuple[Writer, Any]:
    writer = stage.new_writer()
    upload = writer.adding([person()])
    writer.send(upload)
    return writer, upload


def _manifest(stage: Stage, role: str) -> Sent:
    return Sent(f"{_stored(stage)[0].schema['url']}manifest/")


def _checkpoint(stage: Stage, role: str) -> Sent:
    writer = _stored(stage)[0]
    return Sent(f"{writer.schema['url']}checkpoints/", wire.encode([made(writer)]), FRAMES)


def _pages(stage: Stage, role: str) -> Sent:
    writer, upload = _stored(stage)
    body = wire.encode([PageRef(only_segment(upload).uid, 0)])
    return Sent(f"{writer.schema['url']}pages/", body, FRAMES)


def _rows(stage: Stage, role: str) -> Sent:
    writer, upload = _stored(stage)
    body = wire.encode([first_row(upload)])
    return Sent(f"{writer.schema['url']}rows/", body, FRAMES)


def _digests(stage: Stage, role: str) -> Sent:
    writer, upload = _stored(stage)
    body = wire.encode([first_row(upload)])
    return Sent(f"{writer.schema['url']}digests/", body, FRAMES)


def _names(stage: Stage, role: str) -> Sent:
    writer, upload = _stored(stage)
    row = first_row(upload)
    return Sent(f"{writer.schema['url']}names/", wire.encode([BlockRef(row.group, 0, 1)]), FRAMES)


def _staging(stage: Stage, role: str) -> Sent:
    job = Job(stage.new_writer())
    body = b"".join(wire.encode_part(job.adding(0, [person()])))
    return Sent(f"{job.writer.schema['url']}staging/", body, FRAMES)


def _publish(stage: Stage, role: str) -> Sent:
    job = Job(stage.new_writer())
    job.stage(job.adding(0, [person()]))
    body = wire.encode([job.commit().commit])
    return Sent(f"/api/jobs/{job.id}/publish/", body, FRAMES)


def _log_out(stage: Stage, role: str) -> Sent:
    """By another login of the role's, since this one is needed further on."""
    somebody = stage.person(role)
    headers = {} if somebody is None else {"Authorization": somebody.log_in()}
    return Sent("/api/accounts/logout/", None, headers)


def _token(stage: Stage, role: str) -> Sent:
    somebody = stage.person(role) or stage.owner
    return Sent("/api/tokens/", named(password=somebody.account.password))


def _hook(stage: Stage, role: str) -> Any:
    """With a token of whoever asks: nobody else's will do."""
    somebody = stage.person(role) or stage.owner
    body = named(password=somebody.account.password)
    token = somebody.post("/api/tokens/", body)["token"]
    return _schema_body(stage, url="https://example.invalid/", token=token)


def _webhook(stage: Stage) -> str:
    """A new one of the owner's, instead of the one before."""
    for one in stage.owner.proxy("GET", "/api/webhooks/").json()["results"]:
        stage.owner.proxy("DELETE", one["url"])
    made = stage.owner.proxy("POST", "/api/webhooks/", _hook(stage, "owner"))
    assert made.status == 201, made.body
    return str(made.json()["url"])


def _invitation(stage: Stage) -> str:
    made = stage.new_invitation(f"{secrets.token_hex(6)}@example.org")
    return f"{stage.organization}invitations/{made}/"


def _job(suffix: str = "") -> Callable[[Stage, str], Sent]:
    """A job that the owner has at the proxy, and that has ended or soon will."""

    def make(stage: Stage, role: str) -> Sent:
        row = [{"schema": stage.schema["url"], "data": {"name": "job"}}]
        begun = stage.owner.proxy("POST", "/api/jobs/upload/", row)
        assert begun.status == 201, begun.body
        name = begun.json()["job_id"]
        watch(stage, name)
        return Sent(f"/api/jobs/{name}/{suffix}")

    return make


def watch(stage: Stage, job: str) -> None:
    """Wait for a job of the owner's."""

    def is_completed() -> bool:
        return bool(stage.owner.proxy("GET", f"/api/jobs/{job}/").json()["status"] == "completed")

    eventually(is_completed, "the job ends")


def _upgrade(auth: str) -> dict[str, str]:
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    return headers | {"Sec-WebSocket-Key": key} | ({"Authorization": auth} if auth else {})


def _socket(stage: Stage, role: str) -> Sent:
    job = _job()(stage, role).path.split("/")[-2]
    return Sent(f"/api/ws/jobs/{job}/", None, _upgrade(""))


def _upload(stage: Stage, role: str) -> Sent:
    kind = base64.b64encode(b"application/json").decode()
    sent = TUS | {"Upload-Length": "9", "Upload-Metadata": f"filetype {kind}"}
    return Sent("/api/files/", b"", sent)


def _of_upload(
    headers: Mapping[str, str] = TUS, body: bytes | None = None
) -> Callable[[Stage, str], Sent]:
    def make(stage: Stage, role: str) -> Sent:
        sent = _upload(stage, role)
        url = stage.service.proxy_url + sent.path
        begun = call("POST", url, b"", auth=stage.owner.auth, headers=sent.headers)
        assert begun.status == 201, begun.body
        name = begun.headers["Location"].split("/")[-1]
        return Sent(f"/api/files/{name}/", body, headers)

    return make


def _schema_body(stage: Stage, **more: Any) -> Any:
    return {"schema": stage.schema["url"]} | more


def _row(stage: Stage) -> Any:
    return [_schema_body(stage, data={"name": "new", "age": 1})]


def _sealed(stage: Stage) -> Any:
    asked = f"/api/records/{stage.record}/?sealed=true"
    return stage.owner.proxy("GET", asked).json()


_NOBODY = {"op": "eq", "field": "name", "value": "nobody"}
_NEW_RECORD = _of_new(lambda stage: f"/api/records/{stage.new_record()}/")
_DATA = {"data": {"name": "changed"}}
_JOB_OF_API = _of_new(lambda stage: f"/api/jobs/{uuid.uuid4()}/")
_MAKERS: dict[str, Callable[[Stage, str], Sent]] = {
    "POST /api/accounts/logout/": _log_out,
    "POST /api/accounts/send-reset-password-link/": _at(
        "/api/accounts/send-reset-password-link/", lambda _: {"email": "nobody@example.org"}
    ),
    "POST /api/tokens/": _token,
    "DELETE /api/tokens/{id}/": _of_new(lambda stage: str(stage.new_token()["url"])),
    "POST /api/organizations/": _at("/api/organizations/", lambda stage: {"name": "Another"}),
    "POST /api/datasets/": _at(
        "/api/datasets/", lambda stage: named(organization=stage.organization)
    ),
    "PUT /api/datasets/{id}/": _at(
        "/api/datasets/{id}/", lambda stage: named(organization=stage.organization)
    ),
    "PATCH /api/datasets/{id}/": _at("/api/datasets/{id}/", lambda _: named()),
    "DELETE /api/datasets/{id}/": _of_new(lambda stage: str(stage.new_dataset()["url"])),
    "POST /api/schemas/": _at(
        "/api/schemas/", lambda stage: named(dataset=stage.dataset["url"], schema=DEFINITION)
    ),
    "PUT /api/schemas/{id}/": _at(
        "/api/schemas/{id}/",
        lambda stage: named(dataset=stage.dataset["url"], schema=DEFINITION),
    ),
    "PATCH /api/schemas/{id}/": _at("/api/schemas/{id}/", lambda _: named()),
    "DELETE /api/schemas/{id}/": _of_new(lambda stage: str(stage.new_schema()["url"])),
    "PUT /api/organizations/{id}/": _at("/api/organizations/{id}/", lambda _: named()),
    "PATCH /api/organizations/{id}/": _at("/api/organizations/{id}/", lambda _: named()),
    "GET /api/organizations/by-slug/{slug}/": _of_new(
        lambda stage: (
            "/api/organizations/by-slug/"
            f"{stage.owner.call('GET', stage.organization).json()['slug']}/"
        )
    ),
    "POST /api/organizations/{organization_id}/invitations/": _at(
        "/api/organizations/{organization_id}/invitations/",
        lambda _: {"email": f"{secrets.token_hex(6)}@example.org"},
    ),
    "DELETE /api/organizations/{organization_id}/invitations/{invitation_id}/": _of_new(
        _invitation
    ),
    "PATCH /api/organizations/{organization_id}/members/{user_id}/": _at(
        "/api/organizations/{organization_id}/members/{user_id}/", lambda _: {"role": "member"}
    ),
    "DELETE /api/invitations/{invitation_id}/": _of_new(
        lambda stage: f"/api/invitations/{stage.invite_owner()}/"
    ),
    "POST /api/invitations/{invitation_id}/accept/": _of_new(
        lambda stage: f"/api/invitations/{stage.invite_owner()}/accept/"
    ),
    "GET /api/invitations/{invitation_id}/answer/": _of_new(
        lambda stage: f"/api/invitations/{stage.invite_owner()}/answer/"
    ),
    "PUT /api/invitations/{invitation_id}/answer/": lambda stage, role: Sent(
        f"/api/invitations/{stage.invite_owner()}/answer/", b"", FRAMES
    ),
    "POST /api/organizations/{organization_id}/roster/": lambda stage, role: Sent(
        _fill(stage, "/api/organizations/{organization_id}/roster/"), b"", FRAMES
    ),
    "POST /api/invitations/{id}/words/": _of_body(
        lambda stage: f"/api/invitations/{stage.dataset['id']}/words/", {"words": "none of them"}
    ),
    "POST /api/organizations/{id}/people/": _at(
        "/api/organizations/{id}/people/", lambda _: {"email": "somebody@example.org"}
    ),
    "POST /api/organizations/{id}/rollback/": _at(
        "/api/organizations/{id}/rollback/", lambda _: {"number": 0, "digest": "0" * 64}
    ),
    "PATCH /api/organizations/{id}/people/{member}/": _at(
        "/api/organizations/{id}/people/{member}/", lambda _: {"role": "owner"}
    ),
    "PUT /api/datasets/{id}/people/{member}/": _at(
        "/api/datasets/{id}/people/{member}/", lambda _: {"role": "reader"}
    ),
    "PUT /api/organizations/{organization_id}/requests/": lambda stage, role: Sent(
        _fill(stage, "/api/organizations/{organization_id}/requests/"), b"", FRAMES
    ),
    "DELETE /api/organizations/{organization_id}/requests/{dataset_id}/{user_id}/": _of_new(
        lambda stage: f"{stage.organization}requests/{stage.dataset['id']}/{stage.owner.id}/"
    ),
    "PUT /api/datasets/{id}/listed/": _at("/api/datasets/{id}/listed/", lambda _: {"listed": True}),
    "PUT /api/datasets/{id}/requests/": _at(
        "/api/datasets/{id}/requests/", lambda _: {"role": "reader"}
    ),
    "POST /api/organizations/{id}/recover/": _at(
        "/api/organizations/{id}/recover/", lambda _: {"phrases": ["none"]}
    ),
    "proxy POST /api/organizations/{id}/services/": _at(
        "/api/organizations/{id}/services/", lambda _: {"name": "nightly", "shares": []}
    ),
    "POST /api/commits/": _commit,
    "GET /api/schemas/{schema_id}/manifest/": _manifest,
    "POST /api/schemas/{schema_id}/checkpoints/": _checkpoint,
    "POST /api/schemas/{schema_id}/pages/": _pages,
    "POST /api/schemas/{schema_id}/rows/": _rows,
    "POST /api/schemas/{schema_id}/digests/": _digests,
    "POST /api/schemas/{schema_id}/names/": _names,
    "POST /api/schemas/{schema_id}/staging/": _staging,
    # Of a new one: an erasure waits for holds.
    "PUT /api/schemas/{schema_id}/holds/": lambda stage, role: Sent(
        f"{stage.new_schema()['url']}holds/",
        {"id": str(uuid.uuid4()), "version": 0, "reason": "reading"},
    ),
    "DELETE /api/schemas/{schema_id}/holds/": _of_new(
        lambda stage: f"{stage.schema['url']}holds/?id={uuid.uuid4()}"
    ),
    "POST /api/datasets/{id}/forget/": _of_body(lambda s: f"{s.new_dataset()['url']}forget/", {}),
    "POST /api/datasets/{id}/erase/": _of_body(
        lambda stage: f"{stage.new_dataset()['url']}erase/", {"field": "name", "value": "nobody"}
    ),
    "api POST /api/jobs/{job}/publish/": _publish,
    "api POST /api/jobs/{job}/token/": _of_new(lambda _: f"/api/jobs/{uuid.uuid4()}/token/"),
    "api DELETE /api/jobs/{job}/": _JOB_OF_API,
    "api DELETE /api/jobs/{job}/parts/": _of_new(lambda _: f"/api/jobs/{uuid.uuid4()}/parts/"),
    "GET /api/records/": _of_new(lambda stage: f"/api/records/?schema={stage.schema['id']}"),
    "PUT /api/records/{id}/": lambda stage, role: Sent(_NEW_RECORD(stage, role).path, _DATA),
    "PATCH /api/records/{id}/": lambda stage, role: Sent(_NEW_RECORD(stage, role).path, _DATA),
    "DELETE /api/records/{id}/": _NEW_RECORD,
    "DELETE /api/records/": _of_new(lambda stage: f"/api/records/?id={stage.new_record()}"),
    "POST /api/records/delete/": _at(
        "/api/records/delete/?confirm=0", lambda stage: _schema_body(stage, where=_NOBODY)
    ),
    "POST /api/records/ingest/": _at("/api/records/ingest/", _row),
    "POST /api/records/sealed/": _at("/api/records/sealed/", lambda stage: {"ids": [stage.record]}),
    "POST /api/records/decrypt/": _at("/api/records/decrypt/", _sealed),
    "POST /api/records/search/": _at("/api/records/search/", _schema_body),
    "POST /api/records/explain/": _at("/api/records/explain/", _schema_body),
    "POST /api/records/why/": _at("/api/records/why/", _schema_body),
    "POST /api/records/export/": _at("/api/records/export/", _schema_body),
    "POST /api/records/columns/": _at(
        "/api/records/columns/", lambda stage: _schema_body(stage, fields=["age"])
    ),
    "POST /api/records/aggregate/": _at(
        "/api/records/aggregate/", lambda stage: _schema_body(stage, measures=[{"op": "count"}])
    ),
    "POST /api/webhooks/": lambda stage, role: Sent("/api/webhooks/", _hook(stage, role)),
    "GET /api/webhooks/{id}/": _of_new(_webhook),
    "DELETE /api/webhooks/{id}/": _of_new(_webhook),
    "POST /api/webhooks/{id}/resume/": _of_body(lambda stage: f"{_webhook(stage)}resume/", {}),
    "GET /api/records/changes/": _of_new(
        lambda stage: f"/api/records/changes/?schema={stage.schema['id']}"
    ),
    "GET /api/records/status/": _of_new(
        lambda stage: f"/api/records/status/?schema={stage.schema['id']}"
    ),
    "POST /api/schemas/infer/": lambda stage, role: Sent(
        "/api/schemas/infer/", b"name\nAda\n", {"Content-Type": "text/csv"}
    ),
    "POST /api/readings/detect/": lambda stage, role: Sent(
        "/api/readings/detect/", b"name\nAda\n", {"Content-Type": "application/octet-stream"}
    ),
    "PUT /api/schemas/{id}/reading/": _at(
        "/api/schemas/{id}/reading/",
        lambda _: {"columns": [{"source": "Name", "name": "name"}]},
    ),
    "POST /api/schemas/preview/": _at(
        "/api/schemas/preview/",
        lambda _: {"schema": DEFINITION, "sample": "name\nAda\n", "format": "csv"},
    ),
    "POST /api/schemas/estimate/": _at(
        "/api/schemas/estimate/",
        lambda _: {"schema": DEFINITION, "records": 9, "string_bytes": {}},
    ),
    "POST /api/jobs/upload/": _at("/api/jobs/upload/", _row),
    "proxy GET /api/jobs/{id}/": _job(),
    "proxy DELETE /api/jobs/{id}/": _job(),
    "GET /api/jobs/{id}/about/": _job("about/"),
    "GET /api/jobs/{id}/bad-rows/": _job("bad-rows/"),
    "GET /api/jobs/{id}/errors/": _job("errors/"),
    "GET /api/jobs/{id}/reading/": _job("reading/"),
    "GET /api/jobs/{id}/records/": _job("records/"),
    "DELETE /api/jobs/{id}/records/": _job("records/?confirm=1"),
    "GET /api/ws/jobs/{id}/": _socket,
    "POST /api/files/": _upload,
    "OPTIONS /api/files/": lambda stage, role: Sent("/api/files/"),
    "OPTIONS /api/files/{id}/": _of_upload(),
    "HEAD /api/files/{id}/": _of_upload(),
    "DELETE /api/files/{id}/": _of_upload(),
    "PATCH /api/files/{id}/": _of_upload(
        TUS | {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}, b"[{"
    ),
    "DELETE /api/devices/{id}/": lambda stage, role: Sent("/api/devices/AbCdEf12/"),
    "POST /api/keyring/restore/": lambda stage, role: Sent("/api/keyring/restore/", {}),
}
