"""Erase deleted data from every file, and forget older keys of a dataset.

To erase, the index is merged without the deleted records, and the API is asked to erase its files.
The API's answers are trusted no more here than elsewhere: it can keep what it likes. A receipt
states the API's answer. The proxy's caches are erased when the proxy says so.

Older keys are forgotten once no data is sealed under them and the ciphertext from before a reseal
is erased. No state of this is kept here. The remaining work follows from the roster, the logs and
the API's word on its files, so an interrupted request is completed by repeating it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from encrypted_records import errors, runtime
from encrypted_records.client.api import Api
from encrypted_records.client.proxy.erasure import IndexLeft
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.model import ids, resources
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.records import RowRef, Segment
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.schemas.store import LedgerStore
from encrypted_records.proxy.search.caches import DiskCache
from encrypted_records.proxy.search.context import DatasetSchema, DatasetSchemas
from encrypted_records.proxy.search.lookup import look_up
from encrypted_records.proxy.sharing.settling import Sharing
from encrypted_records.proxy.write.merge_scheduler import MergeScheduler
from encrypted_records.proxy.write.update import ANY_VERSION, Updater, VersionsById

#: Seconds for which a request waits until the data is erased: less than clients and front servers
#: usually wait for an answer.
WAIT_SECONDS = 20.0
#: The first and the longest pause between two polls; each poll is a separate request.
POLL_INTERVAL, MAX_POLL_INTERVAL = 0.3, 3.0


@dataclass(frozen=True, slots=True)
class ErasureCost:
    """The rewriting that an erasure takes: ``segments`` of the index, which have ``rows``."""

    schema: bytes
    segments: int
    rows: int


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """The erasure of one schema up to a version of its log, whose digest it names.

    ``merged`` rows of the index were written again. ``gone`` is whether the API says that nothing
    is left; if not, ``left`` says what is left, and for which readers.
    """

    schema: bytes
    version: int
    log_digest: bytes
    merged: int
    gone: bool
    left: resources.ErasureState


@dataclass(frozen=True, slots=True)
class MatchingRecords:
    """Records of the schema ``slug`` with a value: ``count`` that the condition ``where`` finds."""

    slug: str
    where: dict[str, Any]
    count: int


@dataclass(frozen=True, slots=True)
class SubjectReceipt:
    """The number of deleted records in each schema, and the erasure of their data."""

    deleted: Mapping[bytes, int]
    erased: Sequence[ErasureReceipt]


@dataclass(eq=False, repr=False)
class Eraser:
    _api: Api
    _schemas: Schemas
    _merger: MergeScheduler
    _changer: Updater
    _datasets: DatasetSchemas
    _pages: DiskCache
    _ledgers: LedgerStore
    _wait_seconds: float = WAIT_SECONDS

    async def look_briefly(self, caller: Holder, schema: bytes) -> resources.ErasureProgress:
        """Progress at the API; nothing is counted."""
        return await self._api.erasure_progress(schema, caller.auth)

    async def look(self, caller: Holder, schema: bytes) -> tuple[resources.ErasureState, IndexLeft]:
        """The ended data of a schema that remains: at the API, and in its index."""
        state = await self._schemas.refresh(caller, schema)
        snapshot = state.ledger.snapshot()
        segments = snapshot.dying
        since = [snapshot.dying_since(segment) for segment in segments]
        index = IndexLeft(
            len(segments),
            sum(len(snapshot.dead_rows(segment)) - segment.purged for segment in segments),
            min((day for day in since if day is not None), default=None),
        )
        return await self._api.erasure(schema, caller.auth), index

    async def estimate(self, caller: Holder, record_ids: Sequence[bytes]) -> list[ErasureCost]:
        """The cost of erasing these records; nothing is changed.

        Raises:
            NotFound: a record does not exist, or the caller may not read it.
        """
        records = await look_up(self._api, self._schemas, caller, record_ids)
        rows: dict[bytes, tuple[SchemaState, list[RowRef]]] = {}
        for record in records:
            rows.setdefault(record.state.id, (record.state, []))[1].append(record.row)
        return [_cost_of(state, refs) for state, refs in rows.values()]

    async def delete(
        self, caller: Holder, record_ids: Sequence[bytes], *, versions: VersionsById = ANY_VERSION
    ) -> list[ErasureReceipt]:
        """Delete all of these records, or none, and erase their data.

        Raises:
            Unavailable: they are deleted, and not erased yet.
            ErsError: as :meth:`Updater.delete`; nothing was deleted.
        """
        schemas = {record.schema for record in await self.estimate(caller, record_ids)}
        await self._changer.delete(caller, record_ids, versions=versions)
        return await self._erase_deleted(caller, schemas)

    async def _erase_deleted(
        self, caller: Holder, schemas: Collection[bytes]
    ) -> list[ErasureReceipt]:
        """Erase after a deletion, like :meth:`erase`. Other errors would say that nothing was
        deleted.

        Raises:
            Unavailable: it failed.
        """
        try:
            return await self.erase(caller, schemas)
        except (errors.BadInput, errors.Refused) as error:
            raise errors.Unavailable(
                f"{error.message}; the records are deleted, but not erased yet",
                code=error.reason,
                retry_after=error.retry_after,
                hint="repeat the erasure of their schema; they are already deleted",
            ) from error

    async def erase(self, caller: Holder, schemas: Collection[bytes]) -> list[ErasureReceipt]:
        """Erase all ended data of these schemas, and wait for it.

        Raises:
            ErsError: it failed; completed steps stay done, and it can be repeated.
        """
        requested: list[tuple[SchemaState, int, resources.ErasureState]] = []
        for schema in sorted(schemas):
            state = await self._schemas.refresh(caller, schema)
            merged = await self._merger.purge(caller, state)
            requested.append((state, merged, await self._api.erase(schema, caller.auth)))
            # A stored log has the headers of segments, sealed.
            await runtime.in_thread(self._ledgers.drop, caller.user, schema)
        await runtime.in_thread(self._empty_logs)
        until = runtime.monotonic() + self._wait_seconds
        receipts = []
        for state, merged, requested_state in requested:
            head = state.ledger.head
            left = await self._wait(caller, state, requested_state, head.version, until)
            # Nothing here depends on it: the receipt only quotes the API.
            gone = left.done >= head.version
            receipts.append(ErasureReceipt(state.id, head.version, head.digest, merged, gone, left))
        return receipts

    async def _wait(
        self,
        caller: Holder,
        state: SchemaState,
        requested: resources.ErasureState,
        version: int,
        until: float,
    ) -> resources.ErasureState:
        """The state once all data up to a version is gone, once a hold delays it, or at the moment
        ``until``. Only the end is counted: each poll in between is a small request.
        """
        latest: resources.ErasureProgress | resources.ErasureState = requested
        pause = POLL_INTERVAL
        while latest.done < version and not latest.holds:
            left = until - runtime.monotonic()
            if left <= 0:
                break
            await runtime.sleep(min(pause, left))
            pause = min(pause * 1.5, MAX_POLL_INTERVAL)
            latest = await self._api.erasure_progress(state.id, caller.auth)
        if latest is requested:
            return requested
        return await self._api.erasure(state.id, caller.auth)

    def _empty_logs(self) -> None:
        self._pages.empty_log()
        self._ledgers.empty_log()

    async def find_subject(
        self, caller: Holder, dataset: bytes, field: str, value: object
    ) -> dict[bytes, MatchingRecords]:
        """The matching records of each schema of a dataset that has the field.

        Raises:
            BadInput: ``unknown_field``; no schema has the field.
            SchemaUnsigned: the API hides a schema that was signed.
            ErsError: as :meth:`Updater.count_where`.
        """
        found: dict[bytes, MatchingRecords] = {}
        for schema, shown in (await self._datasets.of_dataset(caller, dataset)).items():
            try:
                state = await self._schemas.refresh(caller, schema)
            except errors.NotFound:
                # Taken as empty only if the schema is unsigned, or its name was freed.
                await self._datasets.require_removed(caller, shown)
                continue
            spec = state.definition.fields.get(field)
            if spec is None:
                continue
            where = {"field": field, "op": "eq", "value": _of_kind(spec, value)}
            body = {"where": where}
            count = await self._changer.count_where(caller, schema, body)
            found[schema] = MatchingRecords(shown.slug, body, count)
        if not found:
            detail = "no schema of the dataset has this field"
            raise errors.BadInput(
                detail,
                code="unknown_field",
                flaws=(errors.Flaw("unknown_field", detail, pointer="/field"),),
            )
        return found

    async def erase_subject(
        self, caller: Holder, dataset: bytes, field: str, value: object, confirmed: int
    ) -> SubjectReceipt:
        """Delete and erase all records of a dataset that have this value.

        Records are deleted from one schema after the other. If a schema fails, the error states how
        many records of which schemas were deleted before; repeating the request with the remaining
        number deletes the rest and erases all of them.

        Raises:
            Conflict: ``confirm_count``; the number of records differs from ``confirmed``; the
                message states it.
            ErsError: as for :meth:`find_subject`, :meth:`Updater.delete_where` and :meth:`delete`.
        """
        found = await self.find_subject(caller, dataset, field, value)
        total = sum(matching.count for matching in found.values())
        if total != confirmed:
            raise errors.Conflict(
                f"the condition matches {total} {'record' if total == 1 else 'records'} in"
                f" {len(found)} {'schema' if len(found) == 1 else 'schemas'}",
                code="confirm_count",
                hint=f"to delete and erase them, repeat the request with ?confirm={total}",
            )
        deleted: dict[bytes, int] = {}
        for schema, matching in sorted(found.items(), key=itemgetter(0)):
            if matching.count:
                try:
                    await self._changer.delete_where(caller, schema, matching.where, matching.count)
                except errors.ErsError as error:
                    _tell_deleted(error, [found[before] for before in deleted])
                    raise
            deleted[schema] = matching.count
        return SubjectReceipt(deleted, await self._erase_deleted(caller, found.keys()))


def _tell_deleted(error: errors.ErsError, before: Iterable[MatchingRecords]) -> None:
    """Add to an error the records that were deleted before it."""
    done = [f"{matching.count} of {matching.slug}" for matching in before if matching.count]
    if done:
        error.message = f"{error.message}; records deleted before that: {', '.join(done)}"
        error.hint = (
            "repeat the request with the number of remaining records: it also erases those"
            " that are already deleted"
        )


def _cost_of(state: SchemaState, rows: Sequence[RowRef]) -> ErasureCost:
    snapshot = state.ledger.snapshot()
    groups = {ref.group for ref in rows}
    segments: dict[bytes, Segment] = {segment.uid: segment for segment in snapshot.dying}
    segments |= {
        segment.uid: segment
        for segment in snapshot.segments
        if any(uid in groups for uid, _ in snapshot.groups_of(segment))
    }
    return ErasureCost(state.id, len(segments), sum(segment.count for segment in segments.values()))


def _of_kind(spec: FieldSpec, value: object) -> object:
    """A value in the type of its field: a command sends all values as text.

    Raises:
        InvalidQuery: the field is numeric, and the value is not a number.
    """
    if not isinstance(value, str):
        return value
    read = spec.field_type.of_cell(value)
    if spec.field_type.is_number and isinstance(read, str):
        detail = "expected a number"
        raise errors.InvalidQuery(detail, flaws=(errors.Flaw("type", detail, pointer="/value"),))
    return read


@dataclass(frozen=True, slots=True)
class SealedUnder:
    """A schema and its number of records; ``present`` tells whether all data is encrypted under the
    current key, and ``resealed`` is the version of its log at which the last of it was
    re-encrypted.
    """

    schema: bytes
    records: int
    present: bool
    resealed: int


@dataclass(frozen=True, slots=True)
class KeysInUse:
    """Keys of a dataset: the oldest epoch that is not forgotten, the current epoch, and how its
    schemas are sealed. ``absent`` are schemas that the roster has and the API does not show: while
    there are any, no key is forgotten.
    """

    oldest: int
    epoch: int
    schemas: Sequence[SealedUnder]
    absent: Sequence[DatasetSchema]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The outcome: done, unless some data is not erased yet."""

    keys: KeysInUse
    waits_for: Sequence[ErasureReceipt] = ()


@dataclass(eq=False, repr=False)
class OlderKeys:
    _api: Api
    _schemas: Schemas
    _sharing: Sharing
    _datasets: DatasetSchemas
    _eraser: Eraser

    async def look(self, caller: Holder, dataset: bytes) -> KeysInUse:
        """Find out what the older keys of a dataset are still needed for; nothing is changed.

        Raises:
            NotAllowed: ``owners_only``, ``not_admitted``.
            NotFound: the dataset does not exist, or the roster has no keys of it.
            ErsError: as :meth:`Schemas.verified`.
        """
        organization = await self._sharing.organization_of(caller, dataset)
        return await self._look(caller, organization, dataset)

    async def _look(self, caller: Holder, organization: bytes, dataset: bytes) -> KeysInUse:
        oldest, epoch = await self._sharing.forgetting.look(caller, organization, dataset)
        view = await self._sharing.reader.read(caller, organization)
        assert view is not None, "a roster that was read is there"
        placed = {
            schema.schema: DatasetSchema(
                schema.schema, schema.slug, schema.name, signed=bool(schema.slug)
            )
            for schema in view.roster.schemas(dataset)
        }
        await self._api.require_dataset(dataset, caller.auth)
        found_there = await self._api.schemas_of(dataset, caller.auth)
        listed = [ids.from_text(schema.id) for schema in found_there]
        found, absent = [], []
        for schema in sorted({*placed, *listed}):
            try:
                # From the log itself: a checkpoint is only a claim, and forgotten keys are lost.
                state = await self._schemas.verified(caller, schema)
            except errors.NotFound:
                # A schema without a signed name was deleted, or never had a commit.
                if schema in placed and placed[schema].signed:
                    absent.append(placed[schema])
                continue
            ledger = state.ledger
            found.append(
                SealedUnder(
                    schema,
                    ledger.snapshot().count,
                    _oldest_key(ledger, epoch) >= epoch,
                    ledger.resealed.version,
                )
            )
        return KeysInUse(oldest, epoch, found, absent)

    async def forget(self, caller: Holder, dataset: bytes) -> Forgotten:
        """Remove all keys of a dataset except the current key from grants and proxies. If that is
        done already, nothing changes.

        Raises:
            Conflict: ``epoch_in_use``: data is sealed under an older key, or is read;
                ``nothing_to_forget``: there never was an older key; ``epoch_moved``.
            SchemaUnsigned: the API hides a schema, which may need an older key.
            ErsError: as :meth:`look`, :meth:`Eraser.erase` and :meth:`Forgetting.forget`.
        """
        organization = await self._sharing.organization_of(caller, dataset)
        keys = await self._look(caller, organization, dataset)
        if keys.epoch == 1:
            raise errors.Conflict(
                "the dataset has had only one key",
                code="nothing_to_forget",
                hint="ers share rotate begins a new one; then re-encrypt everything",
            )
        if keys.oldest == keys.epoch:
            return Forgotten(keys)
        for hidden in keys.absent:
            await self._datasets.require_removed(caller, hidden)
        _refuse(
            [
                f"{_path(schema)} has records under an older key"
                for schema in keys.schemas
                if not schema.present
            ]
        )
        left = await self._erase(caller, keys)
        _refuse(
            [
                f"{_path(schema)}: {hold.email} still reads version {hold.version} ({hold.reason})"
                for schema in left
                for hold in schema.left.holds
            ]
        )
        if left:
            return Forgotten(keys, left)
        await self._sharing.forgetting.forget(caller, organization, dataset, keys.epoch)
        return Forgotten(KeysInUse(keys.epoch, keys.epoch, keys.schemas, keys.absent))

    async def _erase(self, caller: Holder, keys: KeysInUse) -> list[ErasureReceipt]:
        """Have old ciphertext of resealed data erased by the API; returns what is not erased."""
        wanted = []
        for schema in keys.schemas:
            if schema.resealed:
                progress = await self._eraser.look_briefly(caller, schema.schema)
                if progress.done < schema.resealed:
                    wanted.append(schema.schema)
        resealed = {schema.schema: schema.resealed for schema in keys.schemas}
        receipts = await self._eraser.erase(caller, wanted) if wanted else []
        return [receipt for receipt in receipts if receipt.left.done < resealed[receipt.schema]]


def _oldest_key(ledger: Ledger, epoch: int) -> int:
    """The oldest epoch under which any of a log's data is sealed."""
    snapshot = ledger.snapshot()
    if not ledger.version:
        return epoch
    return min(
        ledger.tails.version,
        ledger.key.version,
        *(group.group.key_version for group in snapshot.groups.values()),
        *(segment.key_version for segment in snapshot.segments),
    )


def _path(under: SealedUnder | ErasureReceipt) -> str:
    return ids.reference("schemas", under.schema)


def _refuse(reasons: Sequence[str]) -> None:
    if reasons:
        raise errors.Conflict(
            "older keys of the dataset are still needed",
            code="epoch_in_use",
            hint="ers dataset reseal re-encrypts all of it; readers finish by themselves, or"
            " after a day. Then repeat this",
            flaws=tuple(errors.Flaw("epoch_in_use", reason) for reason in reasons),
        )
