"""What has a slug can be read by it, by those who reach it and by nobody else."""

from __future__ import annotations

import pytest

from encrypted_records.model.ids import new_id, to_text
from tests.server.api import PERSON, Account


def paths(account: Account) -> dict[str, str]:
    """The path by slug -> the path by id of an organization, a dataset and a schema of its own."""
    dataset = account.new_dataset()
    schema = account.post(
        "/api/schemas/", {"name": "People", "dataset": dataset["url"], "schema": PERSON}
    )
    organization = account.call("GET", account.organization).json()
    return {
        f"/api/organizations/by-slug/{organization['slug']}/": organization["url"],
        f"{account.organization}dataset/{dataset['slug']}/": dataset["url"],
        f"{dataset['url']}schema/{schema['slug']}/": schema["url"],
    }


def test_by_slug_is_as_by_id(ada: Account) -> None:
    for by_slug, by_id in paths(ada).items():
        answer = ada.call("GET", by_slug)
        assert answer.status == 200, by_slug
        assert answer.body == ada.call("GET", by_id).body


def test_a_stranger_finds_nothing_there(ada: Account, bob: Account) -> None:
    for by_slug in paths(ada):
        answer = bob.call("GET", by_slug)
        assert (answer.status, answer.code) == (404, "not_found"), by_slug
        assert ada.api.call("GET", by_slug).status == 401


@pytest.mark.parametrize("slug", ["nothing", "a.b", "%00", "%E9", "%2e%2e", "x" * 300])
def test_a_slug_that_nobody_has_is_not_found(ada: Account, slug: str) -> None:
    dataset = ada.new_dataset()
    nowhere = to_text(new_id())
    for path in (
        f"/api/organizations/by-slug/{slug}/",
        f"{ada.organization}dataset/{slug}/",
        f"{dataset['url']}schema/{slug}/",
        f"/api/organizations/{nowhere}/dataset/{slug}/",
        f"/api/datasets/0/schema/{slug}/",
    ):
        assert ada.call("GET", path).status == 404, path


def test_they_are_for_reading_alone(ada: Account) -> None:
    for by_slug in paths(ada):
        for method in ("PUT", "PATCH", "DELETE", "POST"):
            answer = ada.call(method, by_slug, {})
            assert answer.status == 405, by_slug
            assert "GET" in answer.headers["Allow"]


def test_a_dataset_of_another_organization_with_the_same_slug_is_not_this_one(
    ada: Account, bob: Account
) -> None:
    mine, theirs = ada.new_dataset(slug="patients"), bob.new_dataset(slug="patients")
    assert ada.call("GET", f"{ada.organization}dataset/patients/").json()["id"] == mine["id"]
    assert bob.call("GET", f"{bob.organization}dataset/patients/").json()["id"] == theirs["id"]
    assert ada.call("GET", f"{bob.organization}dataset/patients/").status == 404
