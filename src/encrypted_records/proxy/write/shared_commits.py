"""Direct ingests that wait for each other share a commit.

A commit is one durable transaction at the API, however many records it adds. While one of a schema
is under way, further ingests of the same caller wait, and the next commit takes all who wait. Each
keeps its own answer, its own idempotency key (docs/SPEC.md, section 2.2) and its own refusal: a
record that does not fit, or a request that was stored before, concerns nobody but its sender.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from encrypted_records.errors import BadInput, Conflict
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.gathering import Gathering, Line, Waiting
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.write.committer import STORED_BEFORE
from encrypted_records.proxy.write.ingest_request import CreatedRecord, IngestRequest

#: What one shared commit takes: bytes of bodies, and requests. A larger body goes alone.
MOST_BYTES = 256 << 10
MOST_REQUESTS = 128

#: Who asks, under which credentials and from which device, for which states of schemas.
_Key = tuple[bytes, str, str | None, tuple[int, ...]]
Created = dict[int, CreatedRecord]


@dataclass(frozen=True, slots=True, eq=False)
class Ingest:
    """A request, its caller, and the states of all schemas that it names, by id."""

    request: IngestRequest
    caller: Holder
    states: Mapping[bytes, SchemaState]


WaitingIngest = Waiting[Ingest, Created]


class SharedCommits:
    def __init__(self, store: Callable[[Sequence[WaitingIngest]], Awaitable[None]]) -> None:
        """
        Args:
            store: stores what ingests of the same states bring by one commit of each schema, whose
                locks are held, and settles or refuses every one of them.
        """
        self._store = store
        self._gathering: Gathering[_Key, Ingest, Created] = Gathering(self._commit)

    async def store(self, ingest: Ingest) -> Created:
        """Store a request's records together with those of others who wait.

        Raises:
            ErsError: as ``store`` has refused it.
        """
        caller, states = ingest.caller, ingest.states
        # Another caller's commit is never shared: the API judges each by its credentials.
        of_states = tuple(id(states[schema]) for schema in sorted(states))
        key = (caller.user, caller.auth, caller.device, of_states)
        return await self._gathering.ask(key, ingest)

    async def _commit(self, line: Line[Ingest, Created]) -> None:
        states = line.waiting[0].item.states
        async with AsyncExitStack() as held:
            # In the order of ids: two over the same schemas cannot deadlock.
            for schema in sorted(states):
                await held.enter_async_context(states[schema].lock)
            await self._store_apart(line.take(_fit))

    async def _store_apart(self, together: Sequence[WaitingIngest]) -> None:
        """Store ingests by one commit, or, where the API refuses what a single request among them
        may have brought, by smaller commits: that request alone gets the refusal.

        Raises:
            ErsError: as ``store`` raises it, of all that are not settled.
        """
        left = [one for one in together if not one.outcome.done()]
        if not left:
            return
        try:
            await self._store(left)
        except (BadInput, Conflict) as error:
            # Both say that nothing was stored. Other conflicts are with the state, which all of
            # these requests share.
            if isinstance(error, Conflict) and error.reason not in STORED_BEFORE:
                raise
            if len(left) == 1:
                left[0].refuse(error)
                return
            half = len(left) // 2
            await self._store_apart(left[:half])
            await self._store_apart(left[half:])


def _fit(ingests: Sequence[Ingest]) -> int:
    size = 0
    for count, one in enumerate(ingests[:MOST_REQUESTS]):
        size += one.request.size
        if size > MOST_BYTES:
            return count
    return min(len(ingests), MOST_REQUESTS)
