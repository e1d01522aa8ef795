"""An object store that refuses or truncates: OpenStack Swift behind a front that spoils what is
read or what is written. One that is away, slow or silent is in ``tests/server/test_bulk_s3.py``.

Whoever asks hears in bounded time that it is the store. Of a job nothing is seen until all of it is
stored, once; and then the store has the objects that the database names, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import obstore
import pytest

from tests.support import forked, jobs
from tests.support.eventually import eventually
from tests.support.front import Asked, Front, Lie, Reply, honest, running_front
from tests.support.objects import wait_until_swept
from tests.support.service import ERS, Service, clean_environment, running_service
from tests.support.store import Store, new_schema, new_store
from tests.support.swift import NODES, Swift

BUCKET = "spoiled"
DEFINITION = {
    "type": "object",
    "properties": {"number": {"type": "integer", "minimum": 0, "maximum": 10**6}},
    "required": ["number"],
}
MANY = 300
#: Within which it must be said that it is the store; a proxy gives an API up after some twenty.
BOUNDED_SECONDS = 40.0


@dataclass(frozen=True)
class World:
    """A service whose parts all lie behind the front, and an account of it."""

    swift: Swift
    front: Front
    service: Service
    store: Store
    #: variables of its API
    environment: Mapping[str, str]

    def names(self) -> set[str]:
        """Of what lies in the bucket."""
        found = obstore.list(self.swift.bucket(BUCKET))
        return {one["path"].rpartition("/")[2] for some in found for one in some}

    def another_schema(self) -> Store:
        return replace(self.store, schema=new_schema(self.service, self.store.account, DEFINITION))


@pytest.fixture(scope="module")
def world(swift: Swift, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_front(swift.endpoint) as front:
        url = f"s3://{BUCKET}/of/ours?endpoint={front.url}&least=0&cache=0"
        folder = tmp_path_factory.mktemp("service") / "data"
        swift.make_bucket(BUCKET)
        environment = {"ERS_BULK_URL": url, **swift.credentials}
        with running_service(folder, environment=environment) as service:
            yield World(swift, front, service, new_store(service, DEFINITION), environment)


Spoiling = Callable[[World], AbstractContextManager[Lie]]


@contextmanager
def refusing(_world: World) -> Iterator[Lie]:
    yield lambda _asked, _reply: Reply(503, {"Content-Type": "application/xml"}, b"<Error/>")


@contextmanager
def cutting_answers(_world: World) -> Iterator[Lie]:
    """Half of what there is, as if it were all."""
    yield lambda _asked, reply: reply.with_body(reply.body[: len(reply.body) // 2])


@contextmanager
def keeping_half(world: World) -> Iterator[Lie]:
    """A store that says that it has everything, and has kept half of it."""

    def keep(asked: Asked, reply: Reply) -> Reply:
        path = asked.path.partition("?")[0].removeprefix(f"/{BUCKET}/")
        obstore.put(world.swift.bucket(BUCKET), path, asked.body[: len(asked.body) // 2])
        return reply

    yield keep


@contextmanager
def cutting_bodies(world: World) -> Iterator[Lie]:
    """Something on the way that passes half of each object on; the store sees it by its digest."""
    ask = world.front.ask

    def cut(asked: Asked, headers: dict[str, str]) -> Reply:
        return ask(replace(asked, body=asked.body[: len(asked.body) // 2]), headers)

    world.front.ask = cut  # type: ignore[method-assign,assignment]
    try:
        yield honest
    finally:
        del world.front.ask


@contextmanager
def spoiled(world: World, how: Spoiling, method: str) -> Iterator[None]:
    """Requests by one method are spoiled, and no other."""
    with how(world) as lie:

        def of_method(asked: Asked, reply: Reply) -> Reply | None:
            return lie(asked, reply) if asked.method == method else reply

        with world.front.telling(of_method):
            yield


def started(store: Store) -> str:
    return jobs.started(store, jobs.as_json(store, [{"number": at} for at in range(MANY)]))


def numbers(store: Store) -> list[int]:
    return sorted(one["data"]["number"] for one in store.everything())


def swept(world: World) -> None:
    wait_until_swept(world.service.data_dir, world.names)


@pytest.mark.parametrize("how", [refusing, cutting_bodies, keeping_half])
def test_a_job_waits_for_a_store_that_takes_nothing_and_names_it_and_stores_once(
    how: Spoiling, world: World
) -> None:
    store = world.another_schema()
    with spoiled(world, how, "PUT"):
        said = len(world.service.log)
        path = started(store)
        waits = f"job {path.split('/')[-2]} waits"
        eventually(lambda: waits in world.service.log[said:], "it waits", BOUNDED_SECONDS)
        [line, *_] = [
            splitline for splitline in world.service.log[said:].splitlines() if waits in splitline
        ]
        assert "bulk store" in line
        told = jobs.status(store, path)
        assert told["status"] == "processing" and "error" not in told
        # What is small is stored beside the store, and of the job nothing is to be seen.
        assert store.send([{"number": MANY}]).status == 201
        assert numbers(store) == [MANY]
    jobs.completed(store, path)
    assert numbers(store) == list(range(MANY + 1))
    swept(world)
    assert numbers(store) == list(range(MANY + 1))


@pytest.mark.parametrize("how", [refusing, cutting_answers])
def test_a_question_names_a_store_that_gives_nothing_and_is_answered_when_it_does(
    how: Spoiling, world: World
) -> None:
    store = world.another_schema()
    jobs.completed(store, started(store))
    where = {"field": "number", "op": "eq", "value": MANY // 2}
    with spoiled(world, how, "GET"):
        refused = store.ask(where)
    said = refused.json()
    assert refused.status >= 500, said
    assert said["code"] in {"bulk_store_unavailable", "object_lost", "object_altered"}, said
    if said["code"] != "bulk_store_unavailable":
        assert any(name in said["detail"] for name in world.names()), said
    assert [result["data"] for result in store.search(where)["results"]] == [{"number": MANY // 2}]


def test_a_storage_node_that_is_killed_under_a_job_costs_it_nothing(world: World) -> None:
    store = world.another_schema()
    path = started(store)
    world.swift.kill(NODES[0])
    try:
        jobs.completed(store, path)
        assert numbers(store) == list(range(MANY))
    finally:
        world.swift.start(NODES[0])
    # The bucket's list lacks what was stored while a node was away, until Swift mends it; what is
    # missing there is not said to be lost.
    whole = forked.run(
        [*ERS, "verify", "--stored"],
        clean_environment(ERS_DATA_DIR=str(world.service.data_dir), **world.environment),
    )
    assert whole.returncode == 0, whole.stdout + whole.stderr
