"""The refusal of a shared commit is that of the request it is about, and of no other in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import uuid_utils

from encrypted_records.errors import BadInput, Conflict, DoesNotOpen
from encrypted_records.model import ids, wire
from encrypted_records.model.records import CommitUpload, Receipt
from encrypted_records.proxy.write import ingest as ingest_module
from encrypted_records.proxy.write.ingest import (
    CreatedRecord,
    DirectIngest,
    IdempotencyKey,
    IngestRequest,
)
from tests.proxy.beside import first
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
from tests.support.service import Answer, Service, call
from tests.support.store import Store

__all__ = ["first"]

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10_000}},
}
Made = list[CreatedRecord]


@pytest.fixture
def store(first: Store) -> Store:
    made = first.another_schema(DEFINITION)
    made.ingest([{"n": 0}])
    return made


@pytest.fixture
def folder(first: Store, service: Service, tmp_path: Path) -> Path:
    """The data folder of another proxy, with the account's keyring."""
    assert first.schema
    return with_keyrings(service, tmp_path / "other")


def body(store: Store, *numbers: object) -> bytes:
    return json.dumps([{"schema": store.schema, "data": {"n": n}} for n in numbers]).encode()


def send(store: Store, data: bytes, key: str) -> Answer:
    """Through the proxy that runs already."""
    url = f"{store.service.proxy_url}/api/records/ingest/"
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    return call("POST", url, data, auth=store.account.auth, headers=headers)


def new_key() -> str:
    return str(uuid_utils.uuid7())


class Crowd:
    """Requests to the second proxy that all wait while its first commit is under way."""

    def __init__(self, store: Store, proxy: Proxy) -> None:
        self.store, self.proxy = store, proxy
        #: how many commits the second proxy sent, and what refuses the next ones
        self.sent: list[CommitUpload] = []
        self.refuse: Callable[[CommitUpload], None] = lambda _upload: None
        self._came, self._go = asyncio.Event(), asyncio.Event()
        self._commit = proxy.services.api.commit
        proxy.services.api.commit = self._hold_first  # type: ignore[method-assign]

    async def _hold_first(
        self, uploads: Sequence[CommitUpload], auth: str, *, because: str = ""
    ) -> list[Receipt]:
        self.sent += uploads
        for upload in uploads:
            self.refuse(upload)
        receipts = await self._commit(uploads, auth, because=because)
        if not self._came.is_set():
            self._came.set()
            await self._go.wait()
        return receipts

    async def _ingest(self, data: bytes, key: str | None) -> Made:
        ingest: DirectIngest = self.proxy.services.direct_ingest
        made = IdempotencyKey.of(key, data)
        return await ingest.ingest(self.proxy.caller, data, made)

    async def send(
        self, several: Sequence[tuple[bytes, str | None]], meanwhile: Callable[[], None]
    ) -> list[Made | BaseException]:
        """The outcomes of requests that share a commit, once ``meanwhile`` is done."""
        held = asyncio.create_task(self._ingest(body(self.store, 9_999), None))
        await self._came.wait()
        tasks = [asyncio.create_task(self._ingest(data, key)) for data, key in several]
        (line,) = self.proxy.services.direct_ingest._commits._gathering._lines.values()
        async with asyncio.timeout(60):
            while len(line.waiting) < len(several):  # noqa: ASYNC110 - a line has no event
                await asyncio.sleep(0.001)
        await asyncio.to_thread(meanwhile)
        self._go.set()
        assert len(await held) == 1
        return await asyncio.gather(*tasks, return_exceptions=True)


def run(store: Store, folder: Path, work: Callable[[Crowd], Awaitable[None]]) -> None:
    act_as_second(store, folder, lambda proxy: work(Crowd(store, proxy)))


def numbers(store: Store) -> list[int]:
    return sorted(int(one["data"]["n"]) for one in store.everything())


def ids_of(answer: Answer) -> list[str]:
    return [one["id"] for one in answer.json()]


def test_a_request_stored_through_another_proxy_gets_its_first_answer_and_disturbs_nobody(
    store: Store, folder: Path
) -> None:
    repeated, also = (body(store, 1, 2), new_key()), (body(store, 3), new_key())
    first: list[Answer] = []

    def store_through_the_other() -> None:
        first.extend(send(store, *one) for one in (repeated, also))

    async def work(crowd: Crowd) -> None:
        fresh = [(body(store, n), key) for n, key in ((4, None), (5, new_key()), (6, None))]
        several = [fresh[0], repeated, fresh[1], also, fresh[2]]

        made = await crowd.send(several, store_through_the_other)

        assert not [one for one in made if isinstance(one, BaseException)]
        assert [answer.status for answer in first] == [201, 201]
        named = [[ids.to_text(record.id) for record in one] for one in made]  # type: ignore[union-attr]
        assert [named[1], named[3]] == [ids_of(answer) for answer in first]

    run(store, folder, work)
    assert numbers(store) == [0, 1, 2, 3, 4, 5, 6, 9_999]


def test_a_repetition_alone_in_its_commit_gets_its_first_answer(store: Store, folder: Path) -> None:
    repeated = body(store, 1, 2), new_key()
    first: list[Answer] = []

    async def work(crowd: Crowd) -> None:
        (made,) = await crowd.send([repeated], lambda: first.append(send(store, *repeated)))

        assert not isinstance(made, BaseException), made
        assert [ids.to_text(record.id) for record in made] == ids_of(first[0])
        # The commit that was held, and the repetition, which the API refused.
        assert len(crowd.sent) == 2

    run(store, folder, work)
    assert numbers(store) == [0, 1, 2, 9_999]


REFUSALS = {
    "a record that is there": Conflict("it is stored already", code="record_exists"),
    "a record that is not sound": BadInput("a row is too long", code="invalid_commit"),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_what_the_api_refuses_of_one_request_refuses_no_other(
    store: Store, folder: Path, kind: str
) -> None:
    """The log shows which requests are repetitions; here it shows nothing, so the refusal stays."""
    error, key = REFUSALS[kind], new_key()

    async def work(crowd: Crowd) -> None:
        unfit = body(store, 3), key
        state = crowd.proxy.state
        known = IdempotencyKey.of(key, unfit[0])
        assert known is not None
        named = known.request_id(state.ledger.tails.uids)

        def refuse(upload: CommitUpload) -> None:
            if named in wire.decode_commit_body(upload.commit).requests:
                raise error

        crowd.refuse = refuse
        fresh: list[tuple[bytes, str | None]] = [(body(store, n), new_key()) for n in range(10, 26)]

        made = await crowd.send([*fresh[:3], unfit, *fresh[3:]], lambda: None)

        assert [one for one in made if isinstance(one, BaseException)] == [error]
        # The smaller commits are few: each half that stores takes all of it at once.
        assert len(crowd.sent) < 30

    run(store, folder, work)
    assert numbers(store) == [0, *range(10, 26), 9_999]


def test_a_key_that_is_too_old_refuses_its_request_alone(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = new_key()

    def refuse(self: IngestRequest, ledger: Any) -> Any:
        if self.key is not None and self.key.key == uuid_utils.UUID(old).bytes:
            raise Conflict("it can no longer be determined", code="repeat_too_old")
        return original(self, ledger)

    original = ingest_module.IngestRequest._key_in

    async def work(crowd: Crowd) -> None:
        monkeypatch.setattr(ingest_module.IngestRequest, "_key_in", refuse)
        several = [(body(store, 1), new_key()), (body(store, 2), old), (body(store, 3), None)]

        made = await crowd.send(several, lambda: None)

        assert [isinstance(one, BaseException) for one in made] == [False, True, False]
        assert isinstance(made[1], Conflict)
        assert made[1].reason == "repeat_too_old"
        assert len(crowd.sent) == 2

    run(store, folder, work)
    assert numbers(store) == [0, 1, 3, 9_999]


def test_an_altered_row_refuses_only_the_request_whose_unique_value_it_has(
    first: Store, folder: Path
) -> None:
    store = first.another_schema({**DEFINITION, "unique": [["n"]]})
    store.ingest([{"n": 0}])

    async def work(crowd: Crowd) -> None:
        unique = crowd.proxy.services.direct_ingest._unique
        original = unique.look_up

        async def look_up(caller: Any, state: Any, keys: Any) -> Any:
            if any(key.values == (2,) for key in keys):
                raise DoesNotOpen("a row was altered")
            return await original(caller, state, keys)

        unique.look_up = look_up  # type: ignore[method-assign]
        several: list[tuple[bytes, str | None]] = [(body(store, n), None) for n in (1, 2, 0, 3)]

        made = await crowd.send(several, lambda: None)

        kinds = [type(one) for one in made]
        assert kinds == [list, DoesNotOpen, Conflict, list]
        assert len(crowd.sent) == 2

    run(store, folder, work)
    assert numbers(store) == [0, 1, 3, 9_999]
