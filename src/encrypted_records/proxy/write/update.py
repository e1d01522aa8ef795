"""Change, delete and upsert records: read -> check the version -> edit -> validate -> seal -> send.

A change seals a new row under the record's id, one version higher, and ends the old row in the same
commit, so that a record is never there twice nor missing in between. A change that loses a race
starts again from the new record; if the caller named a version, it fails instead. Repeating a
request is safe: the result depends on its content, not on how often it came.

An upsert stores records, or replaces those that have the same unique values. Lookup, replacement
and addition are one commit, which is exact like every commit of a schema with unique fields
(:mod:`.unique`): all or nothing, and a repetition finds the records that it stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.errors import (
    BadInput,
    Conflict,
    Flaw,
    InvalidRecords,
    MergeFirst,
    PreconditionFailed,
    TooLarge,
)
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.ingest.blocks import RawRecord
from encrypted_records.ingest.check import validate
from encrypted_records.ingest.parsing import parse_records
from encrypted_records.ingest.seal import seal
from encrypted_records.model import ids
from encrypted_records.model.definition import SchemaDefinition, hint_of_sets
from encrypted_records.model.predicates import (
    Joins,
    Predicate,
    UniqueKey,
    greatest_classes,
    keys_of,
)
from encrypted_records.model.queries import Conditions, refuse_unknown
from encrypted_records.model.records import PlainRecord, RowRef
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import Run, by_size
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.joins import parse_body
from encrypted_records.proxy.search.lookup import CurrentRecord, look_up, require_unaltered
from encrypted_records.proxy.sharing.shown_names import ShownNames
from encrypted_records.proxy.write.committer import ROW_RACES, ChangeAttempts, Committer
from encrypted_records.proxy.write.ingest import group_by_schema
from encrypted_records.proxy.write.merge_scheduler import MergeScheduler
from encrypted_records.proxy.write.unique import (
    LiveRecord,
    UniqueKeys,
    claim,
    not_unique,
    owners_of,
)

#: Records that one request may delete; every proxy reads the commit that names their rows.
MAX_DELETED = 100_000

T = TypeVar("T")

#: From a record's data to its new data, unvalidated.
Edit = Callable[[Mapping[str, Any]], Mapping[str, Any]]
#: From a query's context to the numbers of rows.
Find = Callable[[QueryContext], Awaitable[Sequence[int]]]
#: The versions that may be changed; None allows any.
Versions = frozenset[int] | None
#: The same, by record id.
VersionsById = Mapping[bytes, Versions]
ANY_VERSION: VersionsById = MappingProxyType({})


class _SegmentsMerged(Exception):
    """There were too many segments for one more; now there are fewer."""


@dataclass(frozen=True, slots=True)
class StoredChange:
    """``rounded`` are the fields whose values are stored with fewer decimals than were sent."""

    record: PlainRecord
    schema: bytes
    definition: SchemaDefinition
    rounded: Sequence[str]


@dataclass(eq=False, repr=False)
class Updater:
    _api: Api
    _schemas: Schemas
    _runner: QueryRunner
    _committer: Committer
    _merger: MergeScheduler
    _unique: UniqueKeys

    async def change(
        self,
        caller: Holder,
        record_id: bytes,
        edit: Edit,
        *,
        versions: Versions,
        schema: bytes | None,
        keeps: bool,
        run: Run,
    ) -> StoredChange:
        """Change a record; returns the changed record.

        Args:
            keeps: whether ``edit`` may keep stored values: then the stored record must match its
                commit.
            schema: the schema of the record, if the caller states it.
            run: where the record is validated and sealed.

        Raises:
            NotFound: the record does not exist, or the caller may not read it.
            PreconditionFailed: the record has a version that is not allowed.
            InvalidRecords: it would not fit its schema; nothing was changed.
            Altered: the stored record is not as it was stored, and ``keeps`` is true.
            ErsError: as :meth:`Committer.store`.
        """

        until = self._merger.give_up_at()

        async def attempt() -> StoredChange | None:
            (present,) = await look_up(self._api, self._schemas, caller, [record_id])
            _require_version(present, versions)
            if schema not in (None, present.state.id):
                raise InvalidRecords(
                    "the record belongs to another schema, which cannot be changed"
                )
            if keeps:
                await require_unaltered(self._api, self._schemas, caller, present)
            state = present.state
            try:
                async with state.lock:
                    record = await self._store_change(caller, present, edit, run)
                    definition = state.definition
            except MergeFirst:
                await self._merger.make_room(caller, [state], until=until)
                raise _SegmentsMerged from None
            if record is None:
                return None
            await self._merger.after_ingest(caller, state)
            rounded = definition.find_rounded(edit(present.record.data))
            return StoredChange(record, state.id, definition, rounded)

        return await self._repeat(attempt, until=until)

    async def _store_change(
        self, caller: Holder, present: CurrentRecord, edit: Edit, run: Run
    ) -> PlainRecord | None:
        """The changed record; None if it is no longer live. The lock is held."""
        state = present.state
        await self._committer.prepare(caller, [state])
        snapshot = state.ledger.snapshot()
        if not snapshot.is_live(present.row.group, present.row.ordinal):
            return None
        if present.definition.digest != snapshot.definition.digest:
            return None  # its fields may have other names now
        before = snapshot.groups[present.row.group].group
        self._merger.require_room([state])
        record = await run(_apply, present.record, edit, state.definition)
        if state.definition.unique:
            keys = keys_of(state.definition, record.data)
            stored = await self._unique.look_up(caller, state, keys)
            taken = owners_of(stored, but=[present.row])
            _, flaws = claim(state.definition, [(1, record)], taken, data="/data")
            if flaws:
                raise not_unique(flaws)
        sealed = await run(
            seal, state.ledger, state.definition, [record], killed=[present.row], before=before
        )
        await self._committer.store(caller, [(state, sealed.upload)], built=[sealed.built])
        return record

    async def delete(
        self, caller: Holder, record_ids: Sequence[bytes], *, versions: VersionsById = ANY_VERSION
    ) -> None:
        """Delete all of these records, or none.

        Raises:
            NotFound: a record does not exist, or the caller may not read it.
            PreconditionFailed: a record has a version that ``versions`` does not allow.
            ErsError: as for :meth:`Committer.store`.
        """

        async def attempt() -> bool | None:
            records = await look_up(self._api, self._schemas, caller, record_ids)
            rows: dict[bytes, tuple[SchemaState, list[RowRef]]] = {}
            _require_versions(records, versions)
            for record in records:
                rows.setdefault(record.state.id, (record.state, []))[1].append(record.row)
            return await self._end(caller, [rows[schema] for schema in sorted(rows)])

        await self._repeat(attempt)

    async def delete_where(
        self, caller: Holder, schema: bytes, body: Mapping[str, Any], confirmed: int
    ) -> int:
        """Delete all records that match, at once; returns how many they were.

        Args:
            body: with the members ``where`` and ``filters`` of a search.
            confirmed: how many the caller expects.

        Raises:
            Conflict: ``confirm_count``; the number differs, and the message states it.
            TooLarge: more than ``MAX_DELETED``.
            ErsError: as :meth:`QueryRunner.ask` and :meth:`Committer.store`.
        """

        async def attempt() -> int | None:
            context, parts = await self._runner.ask(caller, schema, partial(_match, body))
            count = sum(map(len, parts))
            if count != confirmed:
                raise Conflict(
                    f"the condition matches {count} records",
                    code="confirm_count",
                    hint=f"to delete them, repeat the request with ?confirm={count}",
                )
            if count > MAX_DELETED:
                raise TooLarge(
                    f"at most {MAX_DELETED} records can be deleted at once",
                    hint="narrow the condition, and delete them in several requests",
                )
            rows = await runtime.in_thread(_refs, parts, context.snapshot)
            if rows and await self._end(caller, [(context.state, rows)]) is None:
                return None
            return count

        return await self._repeat(attempt)

    async def count_where(self, caller: Holder, schema: bytes, body: Mapping[str, Any]) -> int:
        """The number of records that :meth:`delete_where` would delete."""
        _, parts = await self._runner.ask(caller, schema, partial(_match, body))
        return sum(map(len, parts))

    async def delete_groups(self, caller: Holder, schema: bytes, groups: Sequence[bytes]) -> int:
        """Delete all live records of these groups; returns how many they were.

        More than ``MAX_DELETED`` are deleted in several commits, one after the other.

        Raises:
            ErsError: as :meth:`Committer.store`; what was deleted before stays deleted.
        """

        async def attempt() -> int | None:
            state = await self._schemas.refresh(caller, schema)
            live = state.ledger.snapshot().live_of(groups)
            rows = await runtime.in_thread(lambda: list(islice(live, MAX_DELETED)))
            if rows and await self._end(caller, [(state, rows)]) is None:
                return None
            return len(rows)

        deleted = 0
        while count := await self._repeat(attempt):
            deleted += count
        return deleted

    async def delete_rows(self, caller: Holder, state: SchemaState, rows: Sequence[RowRef]) -> None:
        """Delete up to ``MAX_DELETED`` records by the position of their rows; used for rows that
        cannot be read.

        Raises:
            Conflict: a row is no longer live.
            ErsError: as for :meth:`Committer.store`.
        """
        if await self._end(caller, [(state, list(rows))]) is None:
            raise Conflict("a record was deleted by somebody else", hint="try again")

    async def delete_found(
        self, caller: Holder, schema: bytes, find: Find, *, because: str = ""
    ) -> int:
        """Delete the records that a query finds, until it finds none; returns how many they were.

        More than ``MAX_DELETED`` are deleted in several commits, one after the other.

        Args:
            find: returns the numbers of rows; rows found under one definition are not deleted under
                another.
            because: the reason, for the API's audit log.

        Raises:
            ErsError: as :meth:`QueryRunner.ask` and :meth:`Committer.store`; what was deleted
                before stays deleted.
        """

        async def question(context: QueryContext) -> tuple[QueryContext, Sequence[int]]:
            return context, await find(context)

        async def attempt() -> int | None:
            context, numbers = await self._runner.ask(caller, schema, question)
            batch, snapshot = numbers[:MAX_DELETED], context.snapshot
            rows = await runtime.in_thread(lambda: [snapshot.ref(number) for number in batch])
            if not rows:
                return 0
            under = snapshot.definition.digest
            ended = await self._end(caller, [(context.state, rows)], under=under, because=because)
            return None if ended is None else len(rows)

        deleted = 0
        while batch := await self._repeat(attempt):
            deleted += batch
        return deleted

    async def _end(
        self,
        caller: Holder,
        rows: Sequence[tuple[SchemaState, list[RowRef]]],
        *,
        under: bytes | None = None,
        because: str = "",
    ) -> bool | None:
        """End these rows, those of each schema in one commit; None if a row is no longer live, or
        the definition is not ``under``, with which they were found."""
        async with AsyncExitStack() as locks:
            # In the order of ids, so that two requests over the same schemas cannot deadlock.
            for state, _ in rows:
                await locks.enter_async_context(state.lock)
            await self._committer.prepare(caller, [state for state, _ in rows])
            drafts = []
            for state, refs in rows:
                snapshot = state.ledger.snapshot()
                if under not in (None, state.definition.digest):
                    return None
                if not all(snapshot.is_live(ref.group, ref.ordinal) for ref in refs):
                    return None
                drafts.append((state, state.ledger.draft(state.definition, killed=refs)))
            await self._committer.store(caller, drafts, because=because)
        for state, _ in rows:
            # If many rows are dead, a merge removes their index keys.
            await self._merger.after_ingest(caller, state)
        return True

    async def _repeat(
        self, attempt: Callable[[], Awaitable[T | None]], *, until: float | None = None
    ) -> T:
        """Repeat an attempt until it loses no race; returns its outcome.

        Args:
            until: how long others may keep changing the data it depends on, see
                :func:`keeps_moving`.
        """
        until = self._merger.give_up_at() if until is None else until
        attempts = ChangeAttempts(until, ROW_RACES)
        while attempts.left:
            try:
                outcome = await attempt()
            except _SegmentsMerged:
                continue
            except Conflict as error:
                await attempts.lost(error)
            else:
                if outcome is not None:
                    return outcome
                attempts.left -= 1
        raise Conflict("the record keeps changing", hint="try again")


def _condition(body: Mapping[str, Any], definition: SchemaDefinition, joins: Joins) -> Predicate:
    refuse_unknown(body, {"schema", "where", "filters"})
    return Conditions(definition, joins).read(body)


async def _match(
    body: Mapping[str, Any], context: QueryContext
) -> tuple[QueryContext, list[Candidates]]:
    where = await parse_body(_condition, body, context)
    return context, await context.match_rows(where)


def _refs(parts: Sequence[Candidates], snapshot: Snapshot) -> list[RowRef]:
    return [snapshot.ref(position) for part in parts for position in part.positions.tolist()]


def _require_version(record: CurrentRecord, versions: Versions) -> None:
    if versions is not None and record.record.version not in versions:
        raise PreconditionFailed(
            f"the record now has version {record.record.version}",
            hint="read it again, and repeat the change with its new version if you still want it",
        )


def _require_versions(records: Sequence[CurrentRecord], versions: VersionsById) -> None:
    """
    Raises:
        PreconditionFailed: with a flaw for each record that has another version.
    """
    flaws: list[Flaw] = []
    for number, record in enumerate(records, start=1):
        try:
            _require_version(record, versions.get(record.record.record_id))
        except PreconditionFailed as error:
            if len(records) == 1:
                raise
            name = ids.to_text(record.record.record_id)
            detail = f"{name}: {error.message}"
            flaws.append(Flaw("precondition_failed", detail, row=number, parameter="version"))
    if flaws:
        raise PreconditionFailed(
            f"{len(flaws)} of the {len(records)} records now have another version",
            hint="nothing was changed; read them again, and repeat the request without them or"
            " with their new versions",
            flaws=tuple(flaws),
        )


def _apply(record: PlainRecord, edit: Edit, definition: SchemaDefinition) -> PlainRecord:
    data, flaws = validate(definition, edit(record.data), row=1, pointer="/data")
    if flaws:
        raise InvalidRecords(
            "the record would not match its schema",
            flaws=tuple(flaws),
            hint="nothing was changed; correct the named fields",
        )
    return PlainRecord(record.record_id, record.version + 1, data)


@dataclass(frozen=True, slots=True)
class UpsertOutcome:
    """A stored record, and whether it replaced another; ``rounded`` are the fields whose values
    have fewer decimals than were sent."""

    id: bytes
    schema: bytes
    replaced: bool
    rounded: Sequence[str]


@dataclass(eq=False, repr=False)
class Upserter:
    _schemas: Schemas
    _committer: Committer
    _merger: MergeScheduler
    _unique: UniqueKeys
    _shown_names: ShownNames
    _own_origins: tuple[str, ...]

    async def store(self, caller: Holder, body: bytes, by: Sequence[str]) -> list[UpsertOutcome]:
        """Store all of these records, or none, in the order of the input.

        Args:
            body: as for a direct ingest, with records of one schema.
            by: the fields of a unique set, in any order.

        Raises:
            BadInput: the records are not valid, or ``by`` is not a unique set of the schema.
            Conflict: ``not_unique``; other records have values of another set.
            ErsError: as :meth:`Committer.store`.
        """
        run = by_size(len(body))
        raw = await run(parse_records, body)
        schema = await self._schema_of(caller, raw)
        until = self._merger.give_up_at()
        attempts = ChangeAttempts(until, ROW_RACES)
        while attempts.left:
            state = await self._schemas.load(caller, schema)
            before = state.definition.digest
            try:
                async with state.lock:
                    stored = await self._attempt(caller, state, raw, tuple(sorted(by)), run)
            except MergeFirst:
                await self._merger.make_room(caller, [state], until=until)
            except BadInput:
                # The definition may have changed since: only the current definition may refuse.
                fresh = await self._schemas.refresh(caller, schema)
                if fresh.definition.digest == before:
                    raise
                attempts.left -= 1
            except Conflict as error:
                await attempts.lost(error)
                await self._schemas.refresh(caller, schema)
            else:
                await self._merger.after_ingest(caller, state)
                return stored
        raise Conflict("the schema keeps changing", hint="try again")

    async def _schema_of(self, caller: Holder, raw: Sequence[RawRecord]) -> bytes:
        """
        Raises:
            InvalidRecords: they do not all name one schema.
        """
        # A body without records is refused when it is parsed.
        (schema, _), *others = (
            await group_by_schema(caller, raw, self._shown_names, self._own_origins)
        ).items()
        if others:
            row = others[0][1][0].row
            pointer = f"/{row - 1}/schema"
            flaw = Flaw("invalid_reference", "names a different schema", pointer, row)
            raise InvalidRecords("the records are of several schemas", flaws=(flaw,))
        return schema

    async def _attempt(
        self,
        caller: Holder,
        state: SchemaState,
        raw: Sequence[RawRecord],
        by: tuple[str, ...],
        run: Run,
    ) -> list[UpsertOutcome]:
        """The lock is held."""
        await self._committer.prepare(caller, [state], adds=True)
        definition = state.definition
        if by not in definition.unique:
            detail = f"{', '.join(by)} is not one of the sets of unique fields"
            raise BadInput(
                detail,
                code="invalid_parameter",
                flaws=(Flaw("invalid_parameter", detail, parameter="by"),),
                hint=hint_of_sets(definition),
            )
        self._merger.require_room([state])
        fresh = await run(_validate, definition, raw, by)
        keys = {key for record in fresh for key in keys_of(definition, record.data)}
        stored = await self._unique.look_up(caller, state, keys)
        records, replaced = _put_in_place(definition, fresh, by, stored)
        taken = owners_of(stored, but=[stored.row for stored in replaced])
        numbered = [(stored.row, record) for stored, record in zip(raw, records, strict=True)]
        _, flaws = claim(definition, numbered, taken)
        if flaws:
            raise not_unique(flaws)
        sealed = await run(
            seal,
            state.ledger,
            definition,
            records,
            killed=[stored.row for stored in replaced],
            before=greatest_classes([stored.group for stored in replaced]),
        )
        await self._committer.store(caller, [(state, sealed.upload)], built=[sealed.built])
        return [
            UpsertOutcome(
                stored.record_id, state.id, stored.version > 1, definition.find_rounded(sent.data)
            )
            for sent, stored in zip(raw, records, strict=True)
        ]


def _validate(
    definition: SchemaDefinition, raw: Sequence[RawRecord], by: Sequence[str]
) -> list[PlainRecord]:
    """The records as accepted, each under a new id.

    Raises:
        InvalidRecords: some do not fit, or lack a field of ``by``.
    """
    plain: list[PlainRecord] = []
    flaws: list[Flaw] = []
    for record in raw:
        pointer = f"/{record.row - 1}/data"
        data, errors = validate(definition, record.data, row=record.row, pointer=pointer)
        flaws += errors
        named = {flaw.field for flaw in errors}
        flaws += [
            Flaw(
                "required", "this field identifies the record to replace", pointer, record.row, name
            )
            for name in by
            if name not in data and name not in named
        ]
        plain.append(PlainRecord(ids.new_record_ids(1)[0], 1, data))
    if flaws:
        raise InvalidRecords("not all records match the schema", flaws=tuple(flaws))
    return plain


def _put_in_place(
    definition: SchemaDefinition,
    fresh: Sequence[PlainRecord],
    by: tuple[str, ...],
    stored: dict[UniqueKey, LiveRecord],
) -> tuple[list[PlainRecord], list[LiveRecord]]:
    """The records to be stored, and those that they replace."""
    records: list[PlainRecord] = []
    replaced: dict[bytes, LiveRecord] = {}
    for record in fresh:
        (key,) = keys_of(definition, record.data, [by])
        found = stored.get(key)
        if found is None:
            records.append(record)
            continue
        old = found.record
        replaced[old.record_id] = found
        records.append(PlainRecord(old.record_id, old.version + 1, record.data))
    return records, list(replaced.values())
