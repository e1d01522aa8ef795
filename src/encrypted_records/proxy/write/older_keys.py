"""Forget older keys of a dataset: verify that no data is sealed under them, have the ciphertext
from before a reseal erased, and sign that they are forgotten.

Nothing of it is kept here. What is left to do follows from the roster, the logs and what the API
says of its files, so that whatever was interrupted is done by asking for it once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from encrypted_records.client.api import Api
from encrypted_records.client.erasure import ErasureApi
from encrypted_records.errors import Conflict, Flaw, NotFound
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.model import ids
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.search.dataset_schemas import DatasetSchema, DatasetSchemas
from encrypted_records.proxy.sharing.service import Sharing
from encrypted_records.proxy.write.erasure import Eraser, ErasureReceipt


@dataclass(frozen=True, slots=True)
class SealedUnder:
    """A schema and its number of records; ``present`` tells whether all data is encrypted under the
    present key, and ``resealed`` is the version of its log at which the last of it was
    re-encrypted.
    """

    schema: bytes
    records: int
    present: bool
    resealed: int


@dataclass(frozen=True, slots=True)
class KeysInUse:
    """Keys of a dataset: the oldest epoch that is not forgotten, the present one, and how its
    schemas are sealed. ``absent`` are schemas that the roster has and the API does not show: as
    long as there are any, no key is forgotten.
    """

    oldest: int
    epoch: int
    schemas: Sequence[SealedUnder]
    absent: Sequence[DatasetSchema]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The outcome: done, unless something is not erased yet."""

    keys: KeysInUse
    waits_for: Sequence[ErasureReceipt] = ()


class OlderKeys:
    def __init__(
        self,
        api: Api,
        schemas: Schemas,
        sharing: Sharing,
        datasets: DatasetSchemas,
        eraser: Eraser,
    ) -> None:
        self._api = api
        self._erasures = ErasureApi(api.transport)
        self._schemas = schemas
        self._sharing = sharing
        self._datasets = datasets
        self._eraser = eraser

    async def look(self, caller: Holder, dataset: bytes) -> KeysInUse:
        """Find out what the older keys of a dataset are still needed for; nothing is changed.

        Raises:
            NotAllowed: ``owners_only``, ``not_admitted``.
            NotFound: there is no such dataset, or the roster has no keys of it.
            ErsError: as :meth:`Schemas.verified`.
        """
        return await self._look(caller, await self._organization(caller, dataset), dataset)

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
        listed = [
            ids.from_text(text) for text in await self._erasures.schemas_of(dataset, caller.auth)
        ]
        found, absent = [], []
        for schema in sorted({*placed, *listed}):
            try:
                # By the log itself: a checkpoint is somebody's word, and what is forgotten is lost.
                state = await self._schemas.verified(caller, schema)
            except NotFound:
                # What has no signed name was deleted, or never had a commit.
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
        """Remove all keys of a dataset except the present one from grants and proxies. If that is
        done already, nothing changes.

        Raises:
            Conflict: ``epoch_in_use``: something is sealed under an older key, or is read;
                ``nothing_to_forget``: there never was an older one; ``epoch_moved``.
            SchemaUnsigned: the API hides a schema, which may need an older key.
            ErsError: as :meth:`look`, :meth:`Eraser.erase` and :meth:`Forgetting.forget`.
        """
        organization = await self._organization(caller, dataset)
        keys = await self._look(caller, organization, dataset)
        if keys.epoch == 1:
            raise Conflict(
                "the dataset has had only one key",
                code="nothing_to_forget",
                hint="ers share rotate begins a new one; then re-encrypt everything",
            )
        if keys.oldest == keys.epoch:
            return Forgotten(keys)
        for hidden in keys.absent:
            await self._datasets.require_gone(caller, hidden)
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
                f"{_path(schema)}: {held.email} still reads version {held.version} ({held.reason})"
                for schema in left
                for held in schema.left.holds
            ]
        )
        if left:
            return Forgotten(keys, left)
        await self._sharing.forgetting.forget(caller, organization, dataset, keys.epoch)
        return Forgotten(KeysInUse(keys.epoch, keys.epoch, keys.schemas, keys.absent))

    async def _erase(self, caller: Holder, keys: KeysInUse) -> list[ErasureReceipt]:
        """Have what was sealed again go from the API's files; what has not gone."""
        wanted = []
        for schema in keys.schemas:
            if schema.resealed:
                said = await self._erasures.progress(schema.schema, caller.auth)
                if said.done < schema.resealed:
                    wanted.append(schema.schema)
        resealed = {schema.schema: schema.resealed for schema in keys.schemas}
        receipts = await self._eraser.erase(caller, wanted) if wanted else []
        return [receipt for receipt in receipts if receipt.left.done < resealed[receipt.schema]]

    async def _organization(self, caller: Holder, dataset: bytes) -> bytes:
        shown = await self._sharing.api.dataset(dataset, caller.auth)
        named = ids.from_reference(shown.organization, "organizations", pointer="/organization")
        return await self._sharing.finder.organization_of(caller, dataset, named)


def _oldest_key(ledger: Ledger, epoch: int) -> int:
    """The oldest epoch under which something of a log's data is sealed."""
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
        raise Conflict(
            "older keys of the dataset are still needed",
            code="epoch_in_use",
            hint="ers dataset reseal re-encrypts all of it; readers finish by themselves, or"
            " after a day. Then repeat this",
            flaws=tuple(Flaw("epoch_in_use", reason) for reason in reasons),
        )
