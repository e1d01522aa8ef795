"""A member that nobody reads is refused with its place: it may be a misspelt one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.api import PERSON, Account, Api

LINK = {"user_id": "x", "timestamp": 1, "signature": "x"}
PUBLIC: dict[str, dict[str, Any]] = {
    "/api/accounts/register/": {
        "email": "a@example.org",
        "password": "correct horse battery",
        "password_confirm": "correct horse battery",
        "organization_name": "A",
    },
    "/api/accounts/login/": {"email": "a@example.org", "password": "x"},
    "/api/accounts/verify-registration/": LINK,
    "/api/accounts/reset-password/": LINK | {"password": "correct horse battery"},
    "/api/accounts/send-reset-password-link/": {"email": "a@example.org"},
    "/api/token/": {"email": "a@example.org", "password": "x"},
    "/api/token/refresh/": {"refresh": "x"},
    "/api/token/verify/": {"token": "x"},
}


@pytest.mark.parametrize("path", PUBLIC)
def test_accounts_and_tokens_refuse_it(api: Api, path: str) -> None:
    answer = api.call("POST", path, PUBLIC[path] | {"e/mail": "x"})
    assert answer.status == 400
    assert answer.flaws() == {"/e~1mail": "unknown_member"}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize("kind", ["datasets", "schemas"])
def test_datasets_and_schemas_refuse_it_and_nothing_is_made(
    ada: Account, method: str, kind: str
) -> None:
    dataset = ada.new_dataset()
    schema = ada.post("/api/schemas/", {"name": "s", "dataset": dataset["url"], "schema": PERSON})
    body = {"name": "new", "descripton": "typed too fast"} | (
        {"organization": ada.organization}
        if kind == "datasets"
        else {"dataset": dataset["url"], "schema": PERSON}
    )
    one = dataset if kind == "datasets" else schema
    path = f"/api/{kind}/" if method == "POST" else one["url"]
    before = ada.call("GET", f"/api/{kind}/").json()
    answer = ada.call(method, path, body)
    assert answer.status == 400
    assert answer.flaws() == {"/descripton": "unknown_member"}
    assert "description" in answer.json()["errors"][0]["detail"]
    assert ada.call("GET", f"/api/{kind}/").json() == before


def test_it_is_named_beside_what_else_is_wrong(ada: Account) -> None:
    answer = ada.call("POST", "/api/datasets/", {"nam": "x", "organization": "nowhere"})
    assert answer.flaws() == {
        "/nam": "unknown_member",
        "/name": "required",
        "/organization": "invalid_reference",
    }


def test_what_was_read_may_be_sent_back_whole(ada: Account) -> None:
    dataset = ada.new_dataset()
    assert ada.call("PUT", dataset["url"], dataset).status == 200
    schema = ada.post("/api/schemas/", {"name": "s", "dataset": dataset["url"], "schema": PERSON})
    assert ada.call("PUT", schema["url"], schema).status == 200
    organization = ada.call("GET", ada.organization).json()
    assert ada.call("PUT", ada.organization, organization).status == 200


def test_organizations_members_and_invitations_refuse_it(ada: Account) -> None:
    members = ada.call("GET", f"{ada.organization}members/").json()["results"]
    for method, path, body in (
        ("PATCH", ada.organization, {"name": "A", "slgu": "b"}),
        ("PATCH", members[0]["url"], {"role": "owner", "slgu": "b"}),
        ("POST", f"{ada.organization}invitations/", {"email": "b@example.org", "slgu": "b"}),
    ):
        answer = ada.call(method, path, body)
        assert answer.flaws() == {"/slgu": "unknown_member"}, path
