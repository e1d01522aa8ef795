"""Bring plain records into the store: parse -> validate -> seal -> send -> settle.

A direct ingest is all or nothing, also over several schemas: all its commits go to the API in
one request, which stores them in one transaction. Nothing is sent before every record is valid.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from encrypted_records.errors import (
    BadInput,
    Conflict,
    Flaw,
    InvalidRecords,
    NotFound,
)
from encrypted_records.ingest.blocks import RawRecord
from encrypted_records.ingest.parse_json import parse_records
from encrypted_records.ingest.seal import seal
from encrypted_records.ingest.validate import validate
from encrypted_records.model import ids
from encrypted_records.model.records import CommitUpload, PlainRecord
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.committing import ATTEMPTS, LOST_RACES, Committer
from encrypted_records.proxy.merger import Merger
from encrypted_records.proxy.once import Once
from encrypted_records.proxy.schemas import Schemas, SchemaState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Created:
    id: bytes
    schema: bytes


class Runner:
    def __init__(
        self,
        schemas: Schemas,
        committer: Committer,
        merger: Merger,
        *,
        own_origins: tuple[str, ...],
    ) -> None:
        self._committer = committer
        self._schemas = schemas
        self._merger = merger
        self._own_origins = own_origins

    async def ingest(self, caller: Caller, body: bytes, once: Once | None = None) -> list[Created]:
        """Store the records of a direct ingest's body, all or none.

        Args:
            once: of a request that may be a repetition.

        Returns:
            What was created, now or when the request came first, in the order of the input.

        Raises:
            BadInput: the body or a record is not valid; nothing was stored.
            ErsError: as :meth:`Schemas.fresh`; also where the API refuses or is away.
        """
        raw = await asyncio.to_thread(parse_records, body)
        wanted = self._by_schema(raw)
        for attempt in range(1, ATTEMPTS + 1):
            states = {schema: await self._schemas.known(caller, schema) for schema in wanted}
            try:
                created = await self._store(caller, states, wanted, once)
            except InvalidRecords:
                # By a definition that may have changed since: only the present one may refuse.
                if not await self._catch_up(caller, states):
                    raise
            except NotFound:
                self._schemas.forget(caller, wanted)
                raise Conflict(
                    "a schema was deleted while its records were on their way",
                    code="schema_deleted",
                    hint="nothing was stored; store the records under another schema",
                ) from None
            except Conflict as error:
                if attempt == ATTEMPTS or error.reason not in LOST_RACES:
                    raise
                log.info("a commit lost a race (%s), drafting it again", error.reason)
                await self._catch_up(caller, states)
            else:
                for state in states.values():
                    await self._merger.after_ingest(caller, state)
                return [created[record.row] for record in raw]
        raise Conflict("the schema keeps changing", hint="try again")

    def _by_schema(self, raw: Sequence[RawRecord]) -> dict[bytes, list[RawRecord]]:
        wanted: dict[bytes, list[RawRecord]] = {}
        flaws: list[Flaw] = []
        for record in raw:
            pointer = f"/{record.row - 1}/schema"
            try:
                schema = ids.from_reference(
                    record.schema, "schemas", pointer=pointer, own_hosts=self._own_origins
                )
            except BadInput as error:
                flaws.append(Flaw("invalid_reference", error.message, pointer, record.row))
            else:
                wanted.setdefault(schema, []).append(record)
        if flaws:
            raise InvalidRecords("not every record names a schema", flaws=tuple(flaws))
        return wanted

    async def _store(
        self,
        caller: Caller,
        states: Mapping[bytes, SchemaState],
        wanted: Mapping[bytes, Sequence[RawRecord]],
        once: Once | None,
    ) -> dict[int, Created]:
        async with AsyncExitStack() as held:
            # In the order of ids, so that two ingests over the same schemas cannot deadlock.
            for schema in sorted(states):
                await held.enter_async_context(states[schema].lock)
            await self._committer.ready(caller, list(states.values()))
            created = _created(states, wanted, once)
            commits = {
                schema: once.commit_id(state.ledger.tails.uids) if once else None
                for schema, state in states.items()
            }
            if all(one and states[schema].ledger.has(one) for schema, one in commits.items()):
                return created
            plain = await asyncio.to_thread(_validated, states, wanted, created)
            drafts: list[tuple[SchemaState, CommitUpload]] = []
            for schema, state in states.items():
                upload = await asyncio.to_thread(
                    seal,
                    state.ledger,
                    state.definition,
                    plain[schema],
                    commit_id=commits[schema],
                )
                drafts.append((state, upload))
            await self._committer.store(caller, drafts)
        return created

    async def _catch_up(self, caller: Caller, states: Mapping[bytes, SchemaState]) -> bool:
        """Bring all schemas to the API's newest version; whether a definition changed.

        Their states may be others then: a keyring that was rotated makes the old ones useless.
        """
        before = [state.definition.digest for state in states.values()]
        fresh = [await self._schemas.fresh(caller, schema) for schema in states]
        return before != [state.definition.digest for state in fresh]


def _created(
    states: Mapping[bytes, SchemaState],
    wanted: Mapping[bytes, Sequence[RawRecord]],
    once: Once | None,
) -> dict[int, Created]:
    """What each row becomes; a request that is repeated gives its rows the same ids again."""
    return {
        record.row: Created(
            once.record_id(states[schema].ledger.tails.uids, record.row) if once else ids.new_id(),
            schema,
        )
        for schema, records in wanted.items()
        for record in records
    }


def _validated(
    states: Mapping[bytes, SchemaState],
    wanted: Mapping[bytes, Sequence[RawRecord]],
    created: Mapping[int, Created],
) -> dict[bytes, list[PlainRecord]]:
    """Every record as accepted, under its id.

    Raises:
        InvalidRecords: with the flaws of all records, in the order of the input.
    """
    plain: dict[bytes, list[PlainRecord]] = {}
    flaws: list[Flaw] = []
    for schema, records in wanted.items():
        definition = states[schema].definition
        for record in records:
            data, found = validate(
                definition, record.data, row=record.row, pointer=f"/{record.row - 1}/data"
            )
            flaws += found
            identifier = created[record.row].id
            plain.setdefault(schema, []).append(PlainRecord(identifier, 1, data))
    if flaws:
        flaws.sort(key=lambda flaw: flaw.row or 0)
        rows = len({flaw.row for flaw in flaws})
        raise InvalidRecords(
            f"{rows} of the records {'does' if rows == 1 else 'do'} not fit the schema",
            flaws=tuple(flaws),
        )
    return plain
