"""Who is known waits for nobody, however many of the same login have come before."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from encrypted_records.model import ids
from encrypted_records.proxy.auth import Access, Caller, RequestCredentials

TOKEN = RequestCredentials("bearer", "a.b.c")
CROWD = 50


class Api:
    """Says who somebody is when it may; ``asked`` counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.user = ids.to_text(uuid.uuid4().bytes)

    async def user_id(self, _auth: str) -> str:
        self.asked += 1
        await self.may_answer.wait()
        return self.user


def access_to(api: Api) -> Access:
    given: Any = api
    return Access(given)


def at_once(access: Access) -> Caller:
    """The caller, without any other step of the event loop.

    Raises:
        AssertionError: there is something to wait for.
    """
    asking = access.caller(TOKEN)
    try:
        asking.send(None)
    except StopIteration as end:
        found: Caller = end.value
        return found
    asking.close()
    raise AssertionError("it waits")


def test_all_who_waited_for_the_same_answer_go_on_together() -> None:
    async def scene() -> None:
        api = Api()
        access = access_to(api)
        crowd = [asyncio.create_task(access.caller(TOKEN)) for _ in range(CROWD)]
        await asyncio.sleep(0)
        with pytest.raises(AssertionError, match="it waits"):
            at_once(access)
        api.may_answer.set()
        steps = 0
        while not all(one.done() for one in crowd):
            await asyncio.sleep(0)
            steps += 1
        assert steps < CROWD / 5
        assert at_once(access).auth == "Bearer a.b.c"
        assert {one.user for one in await asyncio.gather(*crowd)} == {at_once(access).user}
        assert api.asked == 1

    asyncio.run(scene())


def test_who_goes_away_leaves_the_answer_to_the_others() -> None:
    async def scene() -> None:
        api = Api()
        access = access_to(api)
        crowd = [asyncio.create_task(access.caller(TOKEN)) for _ in range(3)]
        await asyncio.sleep(0)
        crowd[0].cancel()
        await asyncio.sleep(0)
        api.may_answer.set()
        assert (await crowd[1]).user == (await crowd[2]).user
        assert api.asked == 1

    asyncio.run(scene())


def test_who_is_asked_for_anew_is_known_to_nobody_until_the_answer() -> None:
    async def scene() -> None:
        api = Api()
        api.may_answer.set()
        access = access_to(api)
        await access.caller(TOKEN)
        api.may_answer.clear()
        again = asyncio.create_task(access.caller(TOKEN, refresh=True))
        for _ in range(5):
            await asyncio.sleep(0)
        assert api.asked == 2
        with pytest.raises(AssertionError, match="it waits"):
            at_once(access)
        api.may_answer.set()
        await again
        assert at_once(access) == await again
        assert api.asked == 2

    asyncio.run(scene())
