"""Change and delete records: read -> check the version -> edit -> validate -> seal -> send.

A change seals a new row under the record's id, one version higher, and ends the old row in the
same commit, so that a record is never there twice nor gone in between. Whoever loses a race
starts again from the record as it has become; a caller who named a version is told instead.
Repeating a request is safe: what is stored follows from what it says, not from how often it came.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from encrypted_records.client.api import Api
from encrypted_records.errors import (
    Conflict,
    InvalidRecords,
    PreconditionFailed,
    TooLarge,
)
from encrypted_records.ingest.seal import seal
from encrypted_records.ingest.validate import validate
from encrypted_records.model.conditions import Conditions
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.questions import refuse_unknown
from encrypted_records.model.records import PlainRecord, RowRef
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.asking import Asker, Asking
from encrypted_records.proxy.committing import ATTEMPTS, LOST_RACES, Committer
from encrypted_records.proxy.current import Current, current
from encrypted_records.proxy.merger import Merger
from encrypted_records.proxy.resolving import matching
from encrypted_records.proxy.schemas import Schemas, SchemaState

log = logging.getLogger(__name__)

#: Records that one request may delete; every proxy reads the commit that names their rows.
MAX_DELETED = 100_000
_SOMEBODY_WAS_FASTER = LOST_RACES | {"row_not_live", "record_version", "record_exists"}

T = TypeVar("T")

#: From a record's data to what it is to become, unvalidated.
Edit = Callable[[Mapping[str, Any]], Mapping[str, Any]]
#: Which versions may be changed; None stands for any.
Versions = frozenset[int] | None


@dataclass(frozen=True, slots=True)
class Changed:
    record: PlainRecord
    schema: bytes
    definition: SchemaDefinition


class Changer:
    def __init__(
        self, api: Api, schemas: Schemas, asker: Asker, committer: Committer, merger: Merger
    ) -> None:
        self._api = api
        self._schemas = schemas
        self._asker = asker
        self._committer = committer
        self._merger = merger

    async def change(
        self,
        caller: Caller,
        record_id: bytes,
        edit: Edit,
        *,
        versions: Versions,
        schema: bytes | None,
    ) -> Changed:
        """The record as it has become.

        Args:
            schema: the one it is to be of, where the caller says so.

        Raises:
            NotFound: there is no such record, or not for this caller.
            PreconditionFailed: it has another version than those named.
            InvalidRecords: it would not fit its schema; nothing was changed.
            ErsError: as :meth:`Committer.store`.
        """

        async def attempt() -> Changed | None:
            (found,) = await current(self._api, self._schemas, caller, [record_id])
            _require_version(found, versions)
            if schema not in (None, found.state.id):
                raise InvalidRecords("the record belongs to another schema, which is fixed")
            state = found.state
            async with state.lock:
                await self._committer.ready(caller, [state])
                if not state.ledger.view().is_live(found.row.group, found.row.ordinal):
                    return None
                record = _edited(found.record, edit, state.definition)
                upload = await asyncio.to_thread(
                    seal, state.ledger, state.definition, [record], killed=[found.row]
                )
                await self._committer.store(caller, [(state, upload)])
            await self._merger.after_ingest(caller, state)
            return Changed(record, state.id, state.definition)

        return await self._repeated(attempt)

    async def delete(
        self, caller: Caller, record_ids: Sequence[bytes], *, versions: Versions = None
    ) -> None:
        """Delete all of these records, or none.

        Raises:
            NotFound: one of them is not there, or not for this caller.
            PreconditionFailed: one has another version than those named.
            ErsError: as :meth:`Committer.store`.
        """

        async def attempt() -> bool | None:
            found = await current(self._api, self._schemas, caller, record_ids)
            rows: dict[bytes, tuple[SchemaState, list[RowRef]]] = {}
            for one in found:
                _require_version(one, versions)
                rows.setdefault(one.state.id, (one.state, []))[1].append(one.row)
            return await self._end(caller, [rows[schema] for schema in sorted(rows)])

        await self._repeated(attempt)

    async def delete_where(
        self, caller: Caller, schema: bytes, body: Mapping[str, Any], confirmed: int
    ) -> int:
        """Delete all records that match, at once; how many they were.

        Args:
            body: with the members ``where`` and ``filters`` of a search.
            confirmed: how many the caller expects.

        Raises:
            Conflict: ``confirm_count``; they are as many as the message says.
            TooLarge: more than ``MAX_DELETED``.
            ErsError: as :meth:`Asker.ask` and :meth:`Committer.store`.
        """

        async def question(asking: Asking) -> tuple[SchemaState, list[RowRef]]:
            refuse_unknown(body, {"schema", "where", "filters"})
            where = Conditions(asking.definition).read(body)
            found = await matching(asking, where)
            places = (place for part in found for place in part.places.tolist())
            return asking.state, [asking.view.ref(place) for place in places]

        async def attempt() -> int | None:
            state, rows = await self._asker.ask(caller, schema, question)
            if len(rows) != confirmed:
                raise Conflict(
                    f"the condition selects {len(rows)} records",
                    code="confirm_count",
                    hint=f"to delete them, repeat the request with ?confirm={len(rows)}",
                )
            if len(rows) > MAX_DELETED:
                raise TooLarge(
                    f"at most {MAX_DELETED} records are deleted at once",
                    hint="narrow the condition, and delete them in several requests",
                )
            if rows and await self._end(caller, [(state, rows)]) is None:
                return None
            return len(rows)

        return await self._repeated(attempt)

    async def _end(
        self, caller: Caller, rows: Sequence[tuple[SchemaState, list[RowRef]]]
    ) -> bool | None:
        """End these rows, each schema's in one commit; None where one is not live any more."""
        async with AsyncExitStack() as held:
            # In the order of ids, so that two requests over the same schemas cannot deadlock.
            for state, _ in rows:
                await held.enter_async_context(state.lock)
            await self._committer.ready(caller, [state for state, _ in rows])
            drafts = []
            for state, refs in rows:
                view = state.ledger.view()
                if not all(view.is_live(ref.group, ref.ordinal) for ref in refs):
                    return None
                drafts.append((state, state.ledger.draft(state.definition.digest, killed=refs)))
            await self._committer.store(caller, drafts)
        for state, _ in rows:
            # Where many rows are dead, what the index says of them goes with a merge.
            await self._merger.after_ingest(caller, state)
        return True

    async def _repeated(self, attempt: Callable[[], Awaitable[T | None]]) -> T:
        """The outcome of an attempt that lost no race."""
        for number in range(1, ATTEMPTS + 1):
            try:
                outcome = await attempt()
            except Conflict as error:
                if number == ATTEMPTS or error.reason not in _SOMEBODY_WAS_FASTER:
                    raise
                log.info("a change lost a race (%s), starting it again", error.reason)
            else:
                if outcome is not None:
                    return outcome
        raise Conflict("the record keeps changing", hint="try again")


def _require_version(found: Current, versions: Versions) -> None:
    if versions is not None and found.record.version not in versions:
        raise PreconditionFailed(
            f"the record has version {found.record.version} by now",
            hint="read it again, and repeat the change with its new ETag if it is still wanted",
        )


def _edited(record: PlainRecord, edit: Edit, definition: SchemaDefinition) -> PlainRecord:
    data, flaws = validate(definition, edit(record.data), row=1, pointer="/data")
    if flaws:
        raise InvalidRecords(
            "the record would not fit its schema",
            flaws=tuple(flaws),
            hint="nothing was changed; correct the places listed under errors",
        )
    return PlainRecord(record.record_id, record.version + 1, data)
