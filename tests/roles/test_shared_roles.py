"""Who may do what where things are shared by a roster: the table in shared.txt has a row for each
operation of both documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.roles.shared_stage import ROLES, set_up
from tests.roles.test_roles import OWN_JOBS, PUBLIC, READ_BY_BODY
from tests.roles.walk import HOSTS, SAFE, SHARED_TABLE, line_of, observe, read_table
from tests.support.service import Service

ROWS = read_table(SHARED_TABLE)


@pytest.fixture(scope="module")
def seen(services: Callable[[str], Service]) -> Iterator[dict[str, tuple[str, ...]]]:
    stage = set_up(services("sqlite"))
    yield {one: row for host in HOSTS for one, row in observe(stage, host, ROLES).items()}


def test_every_operation_answers_readers_writers_and_services_as_the_table_says(
    seen: dict[str, tuple[str, ...]],
) -> None:
    wrong = [line_of(one, row) for one, row in seen.items() if ROWS.get(one) != row]
    gone = ROWS.keys() - seen.keys()
    assert not gone, f"{SHARED_TABLE.name} has rows of operations that no document has"
    assert not wrong, "\n".join([f"{SHARED_TABLE.name} should say:", *wrong])


def test_the_table_names_the_roles_and_has_a_status_for_each() -> None:
    header = next(line for line in SHARED_TABLE.read_text().splitlines() if "# host" in line)
    assert tuple(header.split()[4:]) == ROLES
    assert all(len(row) == len(ROLES) for row in ROWS.values())
    assert all(one.isdecimal() for row in ROWS.values() for one in row)


#: What is one's own: accounts, tokens, keyrings, devices, uploads, jobs and webhooks.
OWN = (
    *("/api/accounts/", "/api/token", "/api/keyring/", "/api/devices/"),
    *("/api/files/", "/api/jobs/", "/api/webhooks/"),
)
#: Each reader's own, although the schema is shared: their proxy alone keeps them.
OWN_READINGS = {"proxy PUT /api/schemas/{id}/reading/", "proxy DELETE /api/schemas/{id}/reading/"}
#: The request is sound, and in this organization there is nothing for it to do.
FINDS_NOTHING_TO_DO = {
    "proxy POST /api/records/delete/",
    "proxy POST /api/schemas/{id}/merge/",
    "proxy POST /api/schemas/{id}/repair/",
    "proxy POST /api/schemas/{id}/sign/",
}
#: Who invites, or signs an entry, is looked at once there is something to look at. Those who belong
#: to an organization found no other (409): reader, writer and service alike.
FOUNDING = "POST /api/organizations/"
JUDGED_BEFORE = {
    f"api {FOUNDING}",
    "api PUT /api/invitations/{invitation_id}/answer/",
    "api PUT /api/organizations/{organization_id}/requests/",
    "api POST /api/organizations/{organization_id}/roster/",
}


def column(role: str) -> dict[str, int]:
    return {operation: int(row[ROLES.index(role)]) for operation, row in ROWS.items()}


def test_who_reads_changes_nothing_that_is_shared() -> None:
    for operation, status in column("reader").items():
        host, method, path = operation.split()
        if method in SAFE or path.startswith(OWN) or f"{method} {path}" in PUBLIC | READ_BY_BODY:
            continue
        if operation not in OWN_JOBS | OWN_READINGS | FINDS_NOTHING_TO_DO:
            assert 400 <= status < 500, operation
            assert host != "api" or status in (403, 404) or operation in JUDGED_BEFORE, operation


def test_a_service_does_nothing_that_is_a_persons_at_a_proxy() -> None:
    for operation, status in column("service").items():
        host, method, path = operation.split()
        personal = path.startswith(("/api/keyring/", "/api/devices/")) or path.endswith("/words/")
        if host == "proxy" and (personal or (path.startswith("/api/org") and method not in SAFE)):
            assert status == (409 if f"{method} {path}" == FOUNDING else 403), operation
