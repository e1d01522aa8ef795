"""The readers of the records, as the first page names them."""

from __future__ import annotations

from typing import Any

import pytest

from encrypted_records.proxy.pages.home import weigh_people


def person(name: str, role: str, *, you: bool = False, shares: int = 0) -> dict[str, Any]:
    return {"name": name, "role": role, "you": you, "shares": [{}] * shares}


def test_an_organization_without_a_signed_list_says_nothing_of_who_reads() -> None:
    safety = weigh_people({"number": 0, "people": [], "requests": []}, [], "/organizations/x/")
    assert safety.others is None
    assert safety.steps == []


@pytest.mark.parametrize(
    ("people", "others", "said", "label"),
    [
        (
            [person("ada", "owner", you=True), person("bob", "member")],
            [],
            "Nobody else owns your organization.",
            "Make another member an owner",
        ),
        (
            [person("ada", "owner"), person("bob", "member", you=True, shares=1)],
            ["ada"],
            "Your organization has only one owner.",
            "See its people",
        ),
        (
            [person("ada", "owner"), person("bob", "owner", you=True)],
            ["ada"],
            "Your organization has 2 owners.",
            "",
        ),
    ],
)
def test_readers_beside_the_visitor_are_owners_and_those_with_a_share(
    people: list[dict[str, Any]], others: list[str], said: str, label: str
) -> None:
    safety = weigh_people({"number": 3, "people": people, "requests": []}, [], "/organizations/x/")
    assert safety.others == others
    (step,) = safety.steps
    assert (step.text, step.label, step.done) == (said, label, not label)
