"""A direct ingest as it waits to be stored: its records, their ids and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import Flaw, InvalidRecords
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.ingest.blocks import RawRecord
from encrypted_records.ingest.validate import validate
from encrypted_records.model import ids
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.write.idempotency import IdempotencyKey


@dataclass(frozen=True, slots=True)
class CreatedRecord:
    """``rounded`` are the fields whose values are stored with fewer decimals than were sent."""

    id: bytes
    schema: bytes
    rounded: Sequence[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class IngestRequest:
    """
    Attributes:
        wanted: the records by the schema that they name.
        key: of a request that may be a repetition.
        size: of its body, in bytes.
    """

    wanted: Mapping[bytes, Sequence[RawRecord]]
    key: IdempotencyKey | None
    size: int

    def ids_in(self, states: Mapping[bytes, SchemaState]) -> dict[bytes, bytes]:
        """The request's id in each of its schemas' logs; empty without a key."""
        if self.key is None:
            return {}
        return {
            schema: self.key.request_id(self._key_in(states[schema].ledger).uids)
            for schema in self.wanted
        }

    def _key_in(self, ledger: Ledger) -> SchemaKey:
        """The key that the ids of this request are made with: the one by which the log knows it, if
        it does; all may have been sealed again since it came first.

        Raises:
            Conflict: ``repeat_too_old``; it may have come before, under a key that is not here.
        """
        assert self.key is not None
        held = ledger.former
        for key in held:
            if ledger.has_request(self.key.request_id(key.uids)):
                return key
        if len(held) < len(ledger.resealed.former):
            self.key.require_later(ledger.resealed.moment)
        return ledger.tails

    def is_stored(self, states: Mapping[bytes, SchemaState]) -> bool:
        """Whether the logs show that it was stored; without a key nothing can show it."""
        own = self.ids_in(states)
        return bool(own) and all(
            states[schema].ledger.has_request(identifier) for schema, identifier in own.items()
        )

    def assign_ids(self, states: Mapping[bytes, SchemaState]) -> dict[int, CreatedRecord]:
        """The record of each row, if it fits; a repeated request gives its rows the same ids
        again."""
        key = self.key
        uids = {schema: self._key_in(states[schema].ledger) for schema in self.wanted if key}
        return {
            record.row: CreatedRecord(
                key.record_id(uids[schema].uids, record.row) if key else ids.new_record_ids(1)[0],
                schema,
                states[schema].definition.find_rounded(record.data),
            )
            for schema, records in self.wanted.items()
            for record in records
        }

    def validate(
        self, states: Mapping[bytes, SchemaState], created: Mapping[int, CreatedRecord]
    ) -> dict[bytes, list[PlainRecord]]:
        """Every record as accepted, under its id.

        Raises:
            InvalidRecords: with the flaws of all records, in the order of the input.
        """
        plain: dict[bytes, list[PlainRecord]] = {}
        flaws: list[Flaw] = []
        for schema, records in self.wanted.items():
            definition = states[schema].definition
            for record in records:
                data, errors = validate(
                    definition, record.data, row=record.row, pointer=f"/{record.row - 1}/data"
                )
                flaws += errors
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
