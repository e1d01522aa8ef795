"""Who may do what: the table in roles.txt has a row for each operation of both documents.

The second half holds what the rows must never say, whoever writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.roles.people import ROLES, set_up
from tests.roles.walk import HOSTS, SAFE, TABLE, line_of, observe, read_table
from tests.support.service import Service

ROWS = read_table()
#: For everybody, whatever they show.
PUBLIC = {
    "GET /api/status/",
    "GET /api/csrf/",
    "GET /api/openapi.json",
    "POST /api/accounts/login/",
    "POST /api/accounts/register/",
    "POST /api/accounts/verify-registration/",
    "POST /api/accounts/confirm-email/",
    "POST /api/accounts/send-reset-password-link/",
    "POST /api/accounts/reset-password/",
    "POST /api/token/",
    "POST /api/token/refresh/",
    "POST /api/token/verify/",
}
#: What a POST asks for and does not change.
READ_BY_BODY = {
    "PUT /api/schemas/{schema_id}/holds/",
    "DELETE /api/schemas/{schema_id}/holds/",
    "POST /api/schemas/{schema_id}/digests/",
    "POST /api/schemas/{schema_id}/names/",
    "POST /api/schemas/{schema_id}/pages/",
    "POST /api/schemas/{schema_id}/rows/",
    "POST /api/schemas/{id}/salvage/",
    "POST /api/schemas/{id}/verify/",
    "POST /api/datasets/{id}/search/",
    "POST /api/schemas/estimate/",
    "POST /api/readings/detect/",
    "POST /api/schemas/infer/",
    "POST /api/schemas/preview/",
    "POST /api/records/aggregate/",
    "POST /api/records/columns/",
    "POST /api/records/decrypt/",
    "POST /api/records/explain/",
    "POST /api/records/export/",
    "POST /api/records/sealed/",
    "POST /api/records/search/",
    "POST /api/records/why/",
}
#: Under an id that the one who asks has chosen; nothing of anybody else's has it.
OWN_JOBS = {
    "api DELETE /api/jobs/{job}/",
    "api DELETE /api/jobs/{job}/parts/",
    "api POST /api/jobs/{job}/token/",
    "api DELETE /api/schemas/{schema_id}/holds/",
    "proxy OPTIONS /api/files/{id}/",
}
#: Whoever was removed reads who removed them, and nothing else of the log.
OWN_REMOVAL = {f"{host} GET /api/organizations/{{organization_id}}/audit-log/" for host in HOSTS}
#: No token does any of this.
PERSONAL = ("/api/accounts/", "/api/tokens/", "/api/keyring/", "/api/devices/", "/api/invitations/")


@pytest.fixture(scope="module")
def seen(services: Callable[[str], Service]) -> Iterator[dict[str, tuple[str, ...]]]:
    stage = set_up(services("sqlite"))
    yield {operation: row for host in HOSTS for operation, row in observe(stage, host).items()}


def test_every_operation_answers_every_role_as_the_table_says(
    seen: dict[str, tuple[str, ...]],
) -> None:
    wrong = [line_of(one, row) for one, row in seen.items() if ROWS.get(one) != row]
    gone = ROWS.keys() - seen.keys()
    assert not gone, f"{TABLE.name} has rows of operations that no document has"
    assert not wrong, "\n".join([f"{TABLE.name} should say:", *wrong])


def test_the_table_names_the_roles_and_has_a_status_for_each() -> None:
    header = next(line for line in TABLE.read_text().splitlines() if line.startswith("# host"))
    assert tuple(header.split()[4:]) == ROLES
    assert all(len(row) == len(ROLES) for row in ROWS.values())
    assert all(one.isdecimal() for row in ROWS.values() for one in row)


def column(role: str) -> dict[str, int]:
    return {operation: int(row[ROLES.index(role)]) for operation, row in ROWS.items()}


@pytest.mark.parametrize("role", ["anonymous", "unverified", "loggedout"])
def test_who_is_nobody_gets_what_is_public_and_nothing_else(role: str) -> None:
    for operation, status in column(role).items():
        if operation.partition(" ")[2] not in PUBLIC:
            assert status == 401, operation


@pytest.mark.parametrize("role", ["stranger", "removed"])
def test_who_does_not_belong_finds_nothing_that_has_a_name(role: str) -> None:
    known = OWN_JOBS | (OWN_REMOVAL if role == "removed" else set())
    for operation, status in column(role).items():
        if "{" in operation and operation not in known:
            assert status in (400, 403, 404), operation


def test_a_token_that_reads_changes_nothing() -> None:
    for operation, status in column("reads").items():
        _, method, path = operation.split()
        if method in SAFE or f"{method} {path}" in PUBLIC | READ_BY_BODY:
            continue
        assert status in (401, 403), operation


def test_a_token_of_one_dataset_finds_nothing_of_another() -> None:
    told = ("/api/datasets/{", "/api/schemas/{", "/api/records/{", "/dataset/{")
    for operation, status in column("elsewhere").items():
        if any(one in operation for one in told):
            assert status in (403, 404), operation


@pytest.mark.parametrize("role", ["reads", "elsewhere", "writes"])
def test_a_token_does_nothing_that_is_its_user_s_alone(role: str) -> None:
    for operation, status in column(role).items():
        _, method, path = operation.split()
        personal = path.startswith(PERSONAL) or ("organizations" in path and method not in SAFE)
        # Of a roster, what a first record needs: test_first_records has what is refused.
        reads = (method, path) == ("GET", "/api/invitations/") or path.endswith("/roster/")
        if personal and not reads and f"{method} {path}" not in PUBLIC:
            assert status == 403, operation


def test_a_member_deletes_nothing_that_others_made() -> None:
    for operation, status in column("member").items():
        if " DELETE " in operation and operation not in OWN_JOBS:
            assert status >= 400, operation
