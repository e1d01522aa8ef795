"""Ingest plain records: parse -> validate -> seal -> send -> settle.

A direct ingest is atomic, even across several schemas: all its commits are sent to the API in one
request, which stores them in one transaction. Nothing is sent before all of its records are valid.

A commit is one durable transaction at the API, no matter how many records it adds. During a commit
of a schema, further ingests of the same caller wait, and the next commit includes them, up to a
number of requests and of bytes. Each request keeps its answer, its idempotency key (docs/SPEC.md,
section 2.2) and its refusal: an invalid record, or a request that was stored before, affects only
its sender.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from encrypted_records import runtime
from encrypted_records.crypto.keys import SchemaKey, UidKey
from encrypted_records.errors import (
    BadInput,
    Conflict,
    DoesNotOpen,
    ErsError,
    Flaw,
    InvalidRecords,
    MergeFirst,
    NotFound,
    time_of,
)
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.ingest.blocks import RawRecord
from encrypted_records.ingest.check import validate
from encrypted_records.ingest.parsing import parse_records
from encrypted_records.ingest.seal import SealedCommit, seal
from encrypted_records.model import ids
from encrypted_records.model.predicates import UniqueKey, keys_of
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import Gathering, Waiting, WaitingLine, by_size
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.sharing.shown_names import ShownNames
from encrypted_records.proxy.write.committer import (
    LOST_RACES,
    STORED_BEFORE,
    ChangeAttempts,
    Committer,
)
from encrypted_records.proxy.write.merge_scheduler import MergeScheduler
from encrypted_records.proxy.write.unique import Owner, UniqueKeys, claim, not_unique, owners_of

HEADER = "Idempotency-Key"
#: Seconds by which a key's time, which becomes the records' time, may differ from the present.
OLDEST, NEWEST = 86_400, 300
_HOW_TO_MAKE = "create a UUID of version 7 for each request; a repetition uses the same one"


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Identifies a request that is stored once: its key (16 bytes) and its body's SHA-256."""

    key: bytes
    digest: bytes

    @classmethod
    def of(cls, header: str | None, body: bytes) -> IdempotencyKey | None:
        """The key of a request with this header and body; None without the header.

        Raises:
            BadInput: ``invalid_idempotency_key``.
        """
        if header is None:
            return None
        try:
            key = uuid.UUID(header.strip().strip('"'))
        except ValueError:
            raise _invalid("it is not a UUID") from None
        if key.version != 7:
            raise _invalid("it is not a UUID of version 7")
        made, now = ids.milliseconds(key.bytes) / 1000, runtime.wall()
        if not -NEWEST < now - made < OLDEST:
            raise _invalid(
                f"it is {_clock(made)} by the clock that created it, and {_clock(now)}"
                " by this proxy's clock",
                hint="set both clocks, for instance by NTP, and send it with a new key",
            )
        return cls(key.bytes, hashlib.sha256(body).digest())

    def require_later(self, moment: int) -> None:
        """Check that the request was first sent after a moment, in milliseconds since 1970.

        Raises:
            Conflict: ``repeat_too_old``; by its key's time it may have been sent before.
        """
        if ids.milliseconds(self.key) <= moment + NEWEST * 1000:
            raise Conflict(
                "it can no longer be determined whether this request was stored: all records"
                " were re-encrypted since",
                code="repeat_too_old",
                hint="check whether its records are stored; send the missing ones with a new key",
            )

    def request_id(self, key: UidKey) -> bytes:
        """The id by which the log recognises the request under its schema's key."""
        return self.record_id(key, 0)

    def record_id(self, key: UidKey, number: int) -> bytes:
        """The id of the request's record ``number``, counted from 1, under its schema's key."""
        return ids.at(self.key, key.of_request(self.key, self.digest, number))


def _clock(seconds: float) -> str:
    try:
        return time_of(seconds)
    except (ValueError, OverflowError):  # beyond the year 9999
        return "after the year 9999"


def _invalid(why: str, hint: str = _HOW_TO_MAKE) -> BadInput:
    return BadInput(
        f"{HEADER} cannot be used: {why}",
        code="invalid_idempotency_key",
        flaws=(Flaw("invalid", why, field=HEADER),),
        hint=hint,
    )


#: Sealing and indexing up to this many fields is faster than starting a thread.
FEW_CELLS = 32


class DirectIngest:
    def __init__(
        self,
        schemas: Schemas,
        committer: Committer,
        merger: MergeScheduler,
        unique: UniqueKeys,
        shown_names: ShownNames,
        own_origins: tuple[str, ...],
    ) -> None:
        self._committer = committer
        self._schemas = schemas
        self._merger = merger
        self._unique = unique
        self._shown_names = shown_names
        self._own_origins = own_origins
        self._commits = SharedCommits(self._commit)

    async def ingest(
        self, caller: Holder, body: bytes, key: IdempotencyKey | None = None
    ) -> list[CreatedRecord]:
        """Store the records of a direct ingest's body, all or none.

        Args:
            key: of a request that may be a repetition.

        Returns:
            The created records, in the order of the input; for a repeated request, those that it
            created the first time.

        Raises:
            BadInput: the body or a record is not valid; nothing was stored.
            ErsError: as :meth:`Schemas.refresh`; also if the API refuses or is unavailable.
        """
        raw = await by_size(len(body), few=True)(parse_records, body)
        wanted = await group_by_schema(caller, raw, self._shown_names, self._own_origins)
        request = IngestRequest(wanted, key, len(body))
        until = self._merger.give_up_at()
        attempts = ChangeAttempts(until, LOST_RACES)
        while attempts.left:
            states = await self._load(caller, wanted)
            try:
                created = await self._commits.store(Ingest(request, caller, states))
            except InvalidRecords:
                # The definition may have changed since: only the current definition may refuse.
                if not await self._catch_up(caller, states):
                    raise
                attempts.left -= 1
            except NotFound:
                self._schemas.forget(caller, wanted)
                raise NotFound(
                    "a schema was deleted, or you can no longer reach it",
                    code="schema_deleted",
                    hint="nothing was stored; ask an owner whether you are still a member",
                ) from None
            except MergeFirst:
                # Other writers may come first any number of times: only the deadline ends this.
                await self._merger.make_room(caller, list(states.values()), until=until)
            except Conflict as error:
                await attempts.lost(error)
                await self._catch_up(caller, states)
            else:
                for state in states.values():
                    await self._merger.after_ingest(caller, state)
                return [created[record.row] for record in raw]
        raise Conflict("the schema keeps changing", hint="try again")

    async def _load(
        self, caller: Holder, wanted: Mapping[bytes, Sequence[RawRecord]]
    ) -> dict[bytes, SchemaState]:
        """
        Raises:
            InvalidRecords: records name schemas that the caller cannot read.
            ErsError: as :meth:`Schemas.load`.
        """
        states: dict[bytes, SchemaState] = {}
        flaws: list[Flaw] = []
        for schema, records in wanted.items():
            try:
                states[schema] = await self._schemas.load(caller, schema)
            except NotFound:
                flaws += [
                    Flaw(
                        "unknown_reference",
                        "names no schema that you can reach",
                        f"/{record.row - 1}/schema",
                        record.row,
                    )
                    for record in records
                ]
        if flaws:
            flaws.sort(key=lambda flaw: flaw.row or 0)
            raise InvalidRecords("not every schema can be reached", flaws=tuple(flaws))
        return states

    async def _commit(self, together: Sequence[WaitingIngest]) -> None:
        """Store ingests of one caller by one commit of each schema, whose locks are held.

        Raises:
            ErsError: no unsettled ingest is stored, as far as is known.
        """
        caller, states = together[0].item.caller, together[0].item.states
        await self._committer.prepare(caller, list(states.values()), adds=True)
        fresh, repeated = _sort_out(states, together)
        if not fresh:
            return
        self._merger.require_room(list(states.values()))
        cells = _count_cells(states, fresh)
        run = by_size(sum(waiter.item.request.size for waiter in fresh), few=cells <= FEW_CELLS)
        plain, outcomes = await run(_validate, states, fresh)
        for schema, state in states.items():
            if state.definition.unique:
                await self._refuse_taken(caller, state, schema, plain, outcomes)
        drafts = await run(_draft, states, plain)
        if drafts:
            uploads = [(state, draft.upload) for state, draft in drafts]
            built = [draft.built for _, draft in drafts]
            await self._committer.store(caller, uploads, built=built)
        for asking, first in [*((waiter, waiter) for waiter in fresh), *repeated]:
            outcome = outcomes[first]
            if isinstance(outcome, ErsError):
                asking.refuse(outcome)
            else:
                asking.settle(outcome)

    async def _refuse_taken(
        self,
        caller: Holder,
        state: SchemaState,
        schema: bytes,
        plain: _Plain,
        outcomes: _Outcomes,
    ) -> None:
        """Refuse the requests with keys that stored records, or earlier requests, have."""
        definition = state.definition

        async def look_up(asking: Iterable[WaitingIngest]) -> dict[UniqueKey, Owner]:
            sent = [record for ingest in asking for record in plain[ingest].get(schema, ())]
            keys = {key for record in sent for key in keys_of(definition, record.data)}
            return dict(owners_of(await self._unique.look_up(caller, state, keys)))

        try:
            taken = await look_up(plain)
        except DoesNotOpen:
            # The altered row or page may concern the keys of one request only.
            taken = {}
            for waiting in list(plain):
                try:
                    taken |= await look_up([waiting])
                except DoesNotOpen as error:
                    outcomes[waiting] = error
                    del plain[waiting]
        for waiting, records_of in list(plain.items()):
            numbers = [raw.row for raw in waiting.item.request.wanted.get(schema, ())]
            records = zip(numbers, records_of.get(schema, ()), strict=True)
            claimed, flaws = claim(definition, records, taken)
            if flaws:
                outcomes[waiting] = not_unique(flaws)
                del plain[waiting]
            else:
                taken |= claimed

    async def _catch_up(self, caller: Holder, states: Mapping[bytes, SchemaState]) -> bool:
        """Bring all schemas to the API's newest version; whether a definition changed.

        Their states may be replaced: after a keyring is rotated, the old states are useless.
        """
        before = [state.definition.digest for state in states.values()]
        fresh = [await self._schemas.refresh(caller, schema) for schema in states]
        return before != [state.definition.digest for state in fresh]


async def group_by_schema(
    caller: Holder,
    raw: Sequence[RawRecord],
    shown_names: ShownNames,
    own_origins: tuple[str, ...],
) -> dict[bytes, list[RawRecord]]:
    """The records by the schema that they name, in the order of the input.

    Raises:
        InvalidRecords: with the flaws of all records that do not name a schema correctly.
    """
    found: dict[str | None, bytes] = {}
    wanted: dict[bytes, list[RawRecord]] = {}
    flaws: list[Flaw] = []
    for record in raw:
        pointer = f"/{record.row - 1}/schema"
        key = record.schema if isinstance(record.schema, str) else None
        try:
            schema = found.get(key) or await shown_names.of_reference(
                *(caller, record.schema, "schemas"), pointer=pointer, own_hosts=own_origins
            )
        except BadInput as error:
            flaws += [replace(flaw, row=record.row) for flaw in error.flaws]
        else:
            found[key] = schema
            wanted.setdefault(schema, []).append(record)
    if flaws:
        raise InvalidRecords("a schema is not named correctly", flaws=tuple(flaws))
    return wanted


def _count_cells(states: Mapping[bytes, SchemaState], fresh: Sequence[WaitingIngest]) -> int:
    """The number of fields of all these records; absent fields are sealed as well."""
    return sum(
        len(records) * len(states[schema].definition.fields)
        for ingest in fresh
        for schema, records in ingest.item.request.wanted.items()
    )


#: Maximum of one shared commit: bytes of bodies, and requests. A larger body goes alone.
MOST_BYTES = 256 << 10
MOST_REQUESTS = 128

#: The caller, with credentials and device, and the states of schemas.
_Key = tuple[bytes, str, str | None, tuple[int, ...]]


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
        """The key that the ids of this request are made with: the key by which the log knows the
        request, if it does. All data may have been resealed since the request first came.

        Raises:
            Conflict: ``repeat_too_old``; it may have come before, under a key that is missing here.
        """
        assert self.key is not None
        former = ledger.former
        for key in former:
            if ledger.has_request(self.key.request_id(key.uids)):
                return key
        if len(former) < len(ledger.resealed.former):
            self.key.require_later(ledger.resealed.moment)
        return ledger.tails

    def is_stored(self, states: Mapping[bytes, SchemaState]) -> bool:
        """Whether the logs show that it was stored; without a key they cannot show it."""
        identifiers = self.ids_in(states)
        return bool(identifiers) and all(
            states[schema].ledger.has_request(identifier)
            for schema, identifier in identifiers.items()
        )

    def assign_ids(self, states: Mapping[bytes, SchemaState]) -> dict[int, CreatedRecord]:
        """The record of each row, provided that it is valid; a repeated request gives its rows the
        same ids again."""
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
                f"{rows} of the records {'does' if rows == 1 else 'do'} not match the schema",
                flaws=tuple(flaws),
            )
        return plain


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
            store: stores ingests of the same states with one commit for each schema, whose locks
                are held, and settles or refuses each ingest.
        """
        self._store = store
        self._gathering: Gathering[_Key, Ingest, Created] = Gathering(self._commit)

    async def store(self, ingest: Ingest) -> Created:
        """Store a request's records together with those of waiting requests.

        Raises:
            ErsError: the error with which ``store`` refused it.
        """
        caller, states = ingest.caller, ingest.states
        # Another caller's commit is never shared: the API judges each by its credentials.
        of_states = tuple(id(states[schema]) for schema in sorted(states))
        key = (caller.user, caller.auth, caller.device, of_states)
        return await self._gathering.ask(key, ingest)

    async def _commit(self, line: WaitingLine[Ingest, Created]) -> None:
        states = line.waiting[0].item.states
        async with AsyncExitStack() as locks:
            # In the order of ids: two commits over the same schemas cannot deadlock.
            for schema in sorted(states):
                await locks.enter_async_context(states[schema].lock)
            await self._store_apart(line.take(_fit))

    async def _store_apart(self, together: Sequence[WaitingIngest]) -> None:
        """Store ingests by one commit. If the API refuses that for a reason that a single request
        may have caused, store them by smaller commits, so that only that request is refused.

        Raises:
            ErsError: the error of ``store``, for all requests that are not settled.
        """
        left = [ingest for ingest in together if not ingest.outcome.done()]
        if not left:
            return
        try:
            await self._store(left)
        except (BadInput, Conflict) as error:
            # Both say that nothing was stored. Other conflicts concern the state, which all of
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
    for count, ingest in enumerate(ingests[:MOST_REQUESTS]):
        size += ingest.request.size
        if size > MOST_BYTES:
            return count
    return min(len(ingests), MOST_REQUESTS)


_Outcomes = dict[WaitingIngest, Created | ErsError]
#: The valid requests' records, by schema.
_Plain = dict[WaitingIngest, dict[bytes, list[PlainRecord]]]


def _sort_out(
    states: Mapping[bytes, SchemaState], together: Sequence[WaitingIngest]
) -> tuple[list[WaitingIngest], list[tuple[WaitingIngest, WaitingIngest]]]:
    """Settle the requests that the logs have.

    Returns:
        The other requests, each once; and each repetition with the request that it repeats.
    """
    fresh: list[WaitingIngest] = []
    repeated: list[tuple[WaitingIngest, WaitingIngest]] = []
    first: dict[tuple[bytes, ...], WaitingIngest] = {}
    for ingest in together:
        try:
            identifiers = tuple(ingest.item.request.ids_in(states).values())
        except Conflict as error:  # its key is too old; the keys of the others may be younger
            ingest.refuse(error)
            continue
        if ingest.item.request.is_stored(states):
            ingest.settle(ingest.item.request.assign_ids(states))
        elif identifiers and identifiers in first:
            repeated.append((ingest, first[identifiers]))
        else:
            fresh.append(ingest)
            first[identifiers] = ingest
    return fresh, repeated


def _validate(
    states: Mapping[bytes, SchemaState], fresh: Sequence[WaitingIngest]
) -> tuple[_Plain, _Outcomes]:
    """The valid records, and the outcome of each request."""
    outcomes: _Outcomes = {}
    plain: _Plain = {}
    for ingest in fresh:
        created = ingest.item.request.assign_ids(states)
        try:
            plain[ingest] = ingest.item.request.validate(states, created)
            outcomes[ingest] = created
        except InvalidRecords as error:
            outcomes[ingest] = error
    return plain, outcomes


def _draft(
    states: Mapping[bytes, SchemaState], plain: _Plain
) -> list[tuple[SchemaState, SealedCommit]]:
    """Commits of all these records; empty if there are none."""
    records: dict[bytes, list[PlainRecord]] = {schema: [] for schema in states}
    requests: dict[bytes, list[bytes]] = {schema: [] for schema in states}
    for ingesting, by_schema in plain.items():
        for schema, plain_records in by_schema.items():
            records[schema] += plain_records
        for schema, identifier in ingesting.item.request.ids_in(states).items():
            requests[schema].append(identifier)
    return [
        (state, seal(state.ledger, state.definition, records[schema], requests=requests[schema]))
        for schema, state in states.items()
        if records[schema]
    ]
