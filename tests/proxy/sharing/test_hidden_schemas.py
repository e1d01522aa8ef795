"""What is asked of a dataset is asked of every schema that was signed there: an API that hides one,
or calls another by its name, has nobody believe that it holds nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from encrypted_records.model import roster as form
from tests.proxy.sharing.alone import DEFINITION, Alone
from tests.proxy.sharing.shared import numbers, refused
from tests.support.front import Asked, Reply
from tests.support.store import Store

ERASE = {"field": "n", "value": 7}
CONDITION = {"field": "n", "op": "eq", "value": 7}
MISSING = {"type": "x/not_found", "title": "x", "status": 404, "code": "not_found"}


@dataclass
class World:
    """A dataset with the schemas ``adults`` and ``visits``, each with a record of number 7."""

    alone: Alone
    adults: Store
    visits: Store

    @property
    def dataset(self) -> str:
        shown: str = self.adults.proxy("GET", self.adults.schema).json()["dataset"]
        return shown

    def make(self, name: str) -> Store:
        body = {"name": name, "dataset": self.dataset, "schema": DEFINITION}
        made = self.adults.proxy("POST", "/api/schemas/", body)
        assert made.status == 201, made.body
        return replace(self.adults, schema=made.json()["url"])

    def counted(self) -> dict[str, tuple[int | None, str | None]]:
        """Of each schema how many have the number, or why that is not known."""
        answer = self.adults.proxy("POST", f"{self.dataset}search/", {"where": CONDITION})
        assert answer.status == 200, answer.body
        return {
            result["slug"]: (result["count"], result["error"] and result["error"]["code"])
            for result in answer.json()["results"]
        }


@pytest.fixture
def world(alone: Alone) -> World:
    made = World(alone, alone.store, alone.store)
    made.visits = made.make("Visits")
    made.adults.ingest([{"n": 7}, {"n": 1}])
    made.visits.ingest([{"n": 7}, {"n": 2}])
    return made


def list_without(schema: str) -> Callable[[Asked, Reply], Reply]:
    def cut(asked: Asked, reply: Reply) -> Reply:
        if asked.path.partition("?")[0] != "/api/schemas/" or asked.method != "GET":
            return reply
        told = json.loads(reply.body)
        left = [result for result in told["results"] if result["url"] != schema]
        return reply.with_body(json.dumps({**told, "results": left}).encode())

    return cut


@pytest.fixture
def hidden(world: World) -> Iterator[World]:
    """The API has no schema ``visits`` any more, it says."""
    hide = list_without(world.visits.schema)

    def nothing_there(asked: Asked, reply: Reply) -> Reply:
        if world.visits.schema_id not in asked.path:
            return hide(asked, reply)
        headers = {"Content-Type": "application/problem+json"}
        return Reply(404, headers, json.dumps(MISSING).encode())

    with world.alone.front.telling(nothing_there):
        yield world


def test_a_schema_that_a_list_lacks_is_searched_and_erased_from_all_the_same(
    world: World,
) -> None:
    slug = world.adults.proxy("GET", world.adults.schema).json()["slug"]
    with world.alone.front.telling(list_without(world.visits.schema)):
        assert world.counted() == {slug: (1, None), "visits": (1, None)}
        done = world.adults.proxy("POST", f"{world.dataset}erase/?confirm=2", ERASE)
    assert done.status in (200, 202), done.body
    assert done.json()["deleted"] == 2
    assert (numbers(world.adults), numbers(world.visits)) == ([1], [2])


def test_of_a_schema_that_the_api_hides_nobody_is_said_to_be_erased(hidden: World) -> None:
    for query in ("?dry_run=true", "?confirm=1"):
        answer = hidden.adults.proxy("POST", f"{hidden.dataset}erase/{query}", ERASE)
        assert refused(answer) == (422, "schema_unsigned")
        assert "visits" in answer.json()["detail"]
    assert numbers(hidden.adults) == [1, 7]
    assert hidden.counted()["visits"] == (None, "schema_unsigned")


@pytest.mark.parametrize("status", [403, 404])
def test_an_api_that_hides_the_roster_with_a_schema_has_nothing_answered_without_it(
    world: World, status: int
) -> None:
    slug = world.adults.proxy("GET", world.adults.schema).json()["slug"]
    cut = list_without(world.visits.schema)
    told = json.dumps({**MISSING, "status": status}).encode()

    def hide(asked: Asked, reply: Reply) -> Reply:
        if "/roster/" in asked.path:
            return Reply(status, {"Content-Type": "application/problem+json"}, told)
        return cut(asked, reply)

    with world.alone.front.telling(hide):
        for path, body in (
            (f"{world.dataset}erase/?confirm=1", ERASE),
            (f"{world.dataset}search/", {"where": CONDITION}),
        ):
            assert refused(world.adults.proxy("POST", path, body)) == (422, "roster_older")
        named = world.adults.proxy("GET", f"/api/schemas/?slug={slug}")
        assert refused(named) == (422, "roster_older")
        listed = world.adults.proxy("GET", "/api/schemas/").json()["results"]
        assert [one["signed"] for one in listed] == [False]
    assert numbers(world.adults) == [1, 7]
    assert numbers(world.visits) == [2, 7]


def test_a_schema_named_in_a_question_is_the_one_that_was_signed_by_that_name(
    world: World,
) -> None:
    news = world.make("News")
    news.ingest([{"n": 1}])
    pair = (world.visits.schema_id.encode(), news.schema_id.encode())

    def swap(asked: Asked, reply: Reply) -> Reply:
        if asked.path.partition("?")[0] != "/api/schemas/":
            return reply
        body = reply.body.replace(pair[0], b"@@").replace(pair[1], pair[0])
        return reply.with_body(body.replace(b"@@", pair[1]))

    where = {"field": "n", "op": "in", "of": {"schema": "visits", "field": "n"}}
    with world.alone.front.telling(swap):
        for asked, found in ((where, [7]), ({"not": where}, [1])):
            answer = world.adults.search(asked)["results"]
            assert [one["data"]["n"] for one in answer] == found


def placed(world: World) -> dict[bytes, str]:
    """The slugs of datasets and schemas, as the roster has them."""
    slugs: dict[bytes, str] = {}
    for entry in world.alone.entries():
        if isinstance(entry, list):
            slugs |= {each.schema: each.slug for each in entry}
        elif isinstance(entry, form.DatasetName):
            slugs[entry.dataset] = entry.slug
    return slugs


def test_what_an_owner_deletes_has_no_name_in_the_roster_any_more(world: World) -> None:
    before = placed(world)
    assert all(before.values())
    assert world.adults.proxy("DELETE", f"{world.visits.schema}?cascade=true").status == 204
    assert sorted(filter(None, placed(world).values())) == sorted(
        slug for slug in before.values() if slug != "visits"
    )
    assert "visits" not in world.counted()
    # The name is free for another schema, which is another one for everybody.
    again = world.make("Visits")
    again.ingest([{"n": 7}])
    assert world.counted()["visits"] == (1, None)
    assert world.adults.proxy("DELETE", f"{world.dataset}?cascade=true").status == 204
    assert not any(placed(world).values())


def test_a_deletion_whose_name_stayed_is_repeated_to_free_it(world: World) -> None:
    def lost(asked: Asked) -> Reply | None:
        return Reply(503, {}, b"") if asked.method == "POST" and "/roster/" in asked.path else None

    front = world.alone.front
    front.invent = lost
    assert world.adults.proxy("DELETE", f"{world.visits.schema}?cascade=true").status == 204
    front.invent = lambda _asked: None
    assert world.counted()["visits"] == (None, "schema_unsigned")
    assert world.adults.proxy("DELETE", world.visits.schema).status == 404
    assert "visits" not in world.counted()
