"""Lists of schemas whose definitions are long: the proxy holds a page of them whole, to name each
as it was signed, and so makes the page shorter."""

from __future__ import annotations

from typing import Any

import pytest

from encrypted_records import Client
from encrypted_records.model import ids
from encrypted_records.proxy.api.relay import WHOLE_BYTES
from encrypted_records.proxy.sharing.founding import placement_of
from encrypted_records.proxy.sharing.settling import Sharing
from tests.proxy.sharing.shared import Shared
from tests.support.front import Asked, Reply
from tests.support.store import Store

#: Each with a definition of nearly the 1 MiB that one may have.
LONG = 34


def long_definition(number: int) -> dict[str, Any]:
    fields = {"n": {"type": "integer", "minimum": 0, "maximum": number}}
    listed = [f"{at:04}{'x' * 900}" for at in range(1_100)]
    return {"type": "object", "properties": fields | {"s": {"type": "string", "enum": listed}}}


@pytest.fixture
def ada(shared: Shared) -> Store:
    return shared.proxy(shared.team.ada)


def pages(ada: Store, path: str | None) -> list[list[dict[str, Any]]]:
    found = []
    while path is not None:
        answer = ada.proxy("GET", path)
        assert answer.status == 200, answer.body
        assert len(answer.body) <= WHOLE_BYTES
        page = answer.json()
        found.append(page["results"])
        path = page["next"]
    return found


def test_a_list_that_is_too_long_to_be_held_comes_in_shorter_pages(
    shared: Shared, ada: Store
) -> None:
    made = [shared.new_schema(f"Long {at}", long_definition(at)) for at in range(LONG)]
    team = shared.team

    async def place(sharing: Sharing) -> None:
        first = await placement_of(
            sharing.api, team.ada.holder, ids.from_text(made[0].split("/")[-2])
        )
        await sharing.founding.place(team.ada.holder, team.organization, [first])

    team.ada.do(place)
    whole = ada.api("GET", "/api/schemas/?limit=1000").body
    assert len(whole) > WHOLE_BYTES
    found = pages(ada, f"/api/schemas/?limit=1000&dataset={ids.to_text(team.dataset)}")
    assert [len(one) for one in found] == [16, 16, 3]
    every = {one["url"]: one["signed"] for page in found for one in page}
    assert every == {one: one == made[0] or None for one in [shared.schema, *made]}
    # So do clients, which ask for a thousand.
    account = team.ada.account
    with Client(ada.service.proxy_url, email=account.email, password=account.password) as client:
        assert {schema.url for schema in client.schemas()} == set(every)


def test_an_answer_that_no_page_of_the_api_s_is_as_long_as_is_not_handed_on(
    shared: Shared, ada: Store
) -> None:
    asked: list[str] = []

    def lie(request: Asked, reply: Reply) -> Reply:
        if not request.path.startswith("/api/schemas/"):
            return reply
        asked.append(request.path)
        return reply.with_body(reply.body + b" " * WHOLE_BYTES)

    with shared.fronts[shared.team.ada.id].telling(lie):
        for path, times in (("/api/schemas/?slug=adults", 2), (shared.schema, 1)):
            asked.clear()
            answer = ada.proxy("GET", path)
            assert (answer.status, answer.json()["code"]) == (502, "api_answer"), answer.body
            assert len(asked) == times, answer.body
