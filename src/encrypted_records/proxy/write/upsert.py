"""Store records, or replace by them those that have the same unique values.

Lookup, replacement and addition are one commit, which is exact as every commit of a schema with
unique fields is (:mod:`.unique`): all or nothing, and a repetition finds what it stored.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from encrypted_records.errors import BadInput, Conflict, Flaw, InvalidRecords, MergeFirst
from encrypted_records.ingest.blocks import RawRecord
from encrypted_records.ingest.check import validate
from encrypted_records.ingest.parse_json import parse_records
from encrypted_records.ingest.seal import seal
from encrypted_records.model import ids
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.predicates import UniqueKey, greatest_classes, keys_of
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.offload import Run, by_size
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.sharing.shown_names import ShownNames
from encrypted_records.proxy.write.committer import ATTEMPTS, LOST_RACES, Committer, keeps_moving
from encrypted_records.proxy.write.merge_scheduler import MergeScheduler
from encrypted_records.proxy.write.unique import (
    LiveRecord,
    UniqueKeys,
    claim,
    not_unique,
    owners_of,
)

log = logging.getLogger(__name__)

_RACE_LOST = LOST_RACES | {"row_not_live", "record_version"}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UpsertOutcome:
    """A record as it is stored by now, and whether there was one in its place; ``rounded`` are the
    fields whose values have fewer decimals than were sent."""

    id: bytes
    schema: bytes
    replaced: bool
    rounded: Sequence[str]


class Upserter:
    def __init__(
        self,
        schemas: Schemas,
        committer: Committer,
        merger: MergeScheduler,
        unique: UniqueKeys,
        shown_names: ShownNames,
        own_origins: tuple[str, ...],
    ) -> None:
        self._schemas = schemas
        self._committer = committer
        self._merger = merger
        self._unique = unique
        self._shown_names = shown_names
        self._own_origins = own_origins

    async def store(self, caller: Holder, body: bytes, by: Sequence[str]) -> list[UpsertOutcome]:
        """Store all of these records, or none, in the order of the input.

        Args:
            body: as of a direct ingest, with records of one schema.
            by: the fields of a set that is unique, in any order.

        Raises:
            BadInput: the records are not valid, or ``by`` is no set of the schema.
            Conflict: ``not_unique``; others have values of another set.
            ErsError: as :meth:`Committer.store`.
        """
        run = by_size(len(body))
        raw = await run(parse_records, body)
        schema = await self._schema_of(caller, raw)
        until = self._merger.give_up_at()
        attempt = 0
        while attempt < ATTEMPTS:
            attempt += 1
            state = await self._schemas.load(caller, schema)
            before = state.definition.digest
            try:
                async with state.lock:
                    stored = await self._attempt(caller, state, raw, tuple(sorted(by)), run)
            except MergeFirst:
                await self._merger.make_room(caller, [state], until=until)
                attempt -= 1
            except BadInput:
                # The definition may have changed since: only the present one may refuse.
                fresh = await self._schemas.refresh(caller, schema)
                if fresh.definition.digest == before:
                    raise
            except Conflict as error:
                if error.reason not in _RACE_LOST:
                    raise
                moved = await keeps_moving(error, until)
                if attempt == ATTEMPTS and not moved:
                    raise
                attempt -= moved
                log.info("a commit lost a race (%s) and is drafted again", error.reason)
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
        found: dict[str | None, bytes] = {}
        named: bytes | None = None
        for record in raw:
            pointer = f"/{record.row - 1}/schema"
            key = record.schema if isinstance(record.schema, str) else None
            try:
                schema = found.get(key) or await self._shown_names.of_reference(
                    *(caller, record.schema, "schemas"),
                    pointer=pointer,
                    own_hosts=self._own_origins,
                )
            except BadInput as error:
                flaws = tuple(replace(flaw, row=record.row) for flaw in error.flaws)
                raise InvalidRecords("the schema is not named correctly", flaws=flaws) from None
            found[key] = schema
            if named not in (None, schema):
                flaw = Flaw("invalid_reference", "names a different schema", pointer, record.row)
                raise InvalidRecords("the records are of several schemas", flaws=(flaw,))
            named = schema
        assert named is not None  # a body without records is refused when it is parsed
        return named

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
                hint="name the fields of one set in the definition's unique, separated by commas",
            )
        self._merger.require_room([state])
        fresh = await run(_validate, definition, raw, by)
        every = {key for record in fresh for key in keys_of(definition, record.data)}
        stored = await self._unique.look_up(caller, state, every)
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
        InvalidRecords: some do not fit, or lack a field that they are found by.
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
    """The records as they are to be stored, and those that they replace."""
    records: list[PlainRecord] = []
    replaced: dict[bytes, LiveRecord] = {}
    for record in fresh:
        (key,) = keys_of(definition, record.data, [by])
        there = stored.get(key)
        if there is None:
            records.append(record)
            continue
        old = there.record
        replaced[old.record_id] = there
        records.append(PlainRecord(old.record_id, old.version + 1, record.data))
    return records, list(replaced.values())
