"""The asynchronous client: all functions of a proxy as objects, beginning with
:class:`AsyncClient`.

The coroutines of these objects are those of the synchronous client, too (:mod:`.sync_client`). So
they await only ``self._link.proxy``, ``self._link.names``, each other, and the caller's rows.

Names, slugs, ids and paths will do wherever something is to be named.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from encrypted_records.client import DEFAULT_PROXY
from encrypted_records.client.proxy.changes import Changes
from encrypted_records.client.proxy.connection import ShownDataset, several
from encrypted_records.client.proxy.credentials import TOKEN_LIFETIME
from encrypted_records.client.proxy.erasure import ErasedData, KeysOfDataset
from encrypted_records.client.proxy.keyring import Code, Devices, OwnDevice, Proof
from encrypted_records.client.proxy.records import FoundIn
from encrypted_records.client.proxy.sql import SqlResult
from encrypted_records.client.sdk.async_schemas import (
    AsyncImportedFile,
    AsyncJob,
    AsyncNamed,
    AsyncRecord,
    AsyncSchema,
)
from encrypted_records.client.sdk.condition_language import Where, condition
from encrypted_records.client.sdk.event_loop import AsyncCalls, AsyncLink, ClientOptions
from encrypted_records.client.sdk.files import (
    in_words_of_python,
    path_of,
    require_certain,
    require_valid,
)
from encrypted_records.client.sdk.proposal import proposal_of
from encrypted_records.client.sdk.rows import Frame, check_record_id
from encrypted_records.errors import Conflict, ReadingRefused
from encrypted_records.model import resources

if TYPE_CHECKING:
    from encrypted_records.sql.limits import SqlLimits


class AsyncDataset(AsyncNamed[ShownDataset]):
    async def schemas(self) -> AsyncIterator[AsyncSchema]:
        async for schema in self._link.names.schemas(self.resource):
            yield AsyncSchema(self._link, schema)

    async def search(self, where: Where = None, *, limit: int = 10) -> list[FoundIn]:
        """Search every schema of the dataset that has the condition's fields: counts, and first
        records.

        Args:
            where: see :data:`Where`; None selects all. The condition cannot refer to other schemas.
            limit: maximum number of records for each schema, up to 100.
        """
        return await self._link.proxy.search_dataset(self.url, condition(where), limit=limit)

    async def create_schema(
        self,
        name: str,
        definition: Mapping[str, Any] | Frame | type,
        *,
        slug: str | None = None,
        description: str | None = None,
        get_or_create: bool = False,
    ) -> AsyncSchema:
        """Create a schema. Read the ``notes`` of a proposed definition.

        Args:
            definition: the JSON Schema, as docs/http-api.md describes it; or a frame of pandas,
                Polars or Arrow, a dataclass, ``msgspec.Struct``, Pydantic model or ``TypedDict``:
                the fields get its types.
            get_or_create: return the dataset's schema with this slug or name, if it exists.

        Raises:
            Conflict: ``slug_taken``; the dataset has a schema with this name or slug.
                ``other_definition``; that schema has another definition.
            InvalidSetting: a column or a member has values that cannot be stored.
        """
        proposal = proposal_of(definition)
        schema = await self._link.names.create_schema(
            *(self.resource, name, proposal.definition),
            slug=slug,
            description=description,
            get_or_create=get_or_create,
        )
        return AsyncSchema(self._link, schema, proposal.notes)

    async def import_file(
        self,
        path: Path | str,
        *,
        name: str | None = None,
        reading: Mapping[str, Any] | None = None,
        tight: bool = False,
        skip_invalid: bool = False,
        progress: bool = False,
    ) -> AsyncImportedFile:
        """Create a schema for a CSV file of any form, a JSON file or a workbook, and store all its
        rows, as ``ers import`` does. The reading is kept for the next file, which
        ``schema.import_file`` stores.

        The file's form is detected. If it is ambiguous, an error asks for the missing choices, and
        nothing is created.

        Args:
            name: name of the schema (default: the file's name).
            reading: known parts of the reading, such as ``{"delimiter": ";", "decimal": ","}`` or
                ``{"columns": {"born": {"format": "dd/mm/yyyy"}}}``, as docs/python.md lists it.
            tight: propose bounds close to the numbers of the file.
            skip_invalid: if some rows are invalid, store the valid rows instead of nothing.
            progress: show a bar on a terminal.

        Raises:
            ReadingQuestion: the reading of the file is ambiguous.
            ReadingRefused: the file cannot be read, or not with this ``reading``.
            InvalidRecords: rows are invalid; ``flaws`` lists the errors. If the first rows already
                have errors, no schema is created.
            Conflict: ``slug_taken``; a schema with this name exists, and has another definition or
                records. ``uploaded_before``.
        """
        where = path_of(path)
        try:
            found = await self._link.proxy.look_at_file(where, reading, tight=tight)
        except ReadingRefused as error:
            raise in_words_of_python(error) from None
        require_certain(found)
        if not skip_invalid:
            require_valid(await self._link.proxy.preview_file(where, found))
        schema = await self.create_schema(name or where.stem, found.schema, get_or_create=True)
        if await schema.count():
            raise Conflict(
                f"a schema {schema.slug} already exists and has records",
                code="slug_taken",
                hint="choose another name; or store the file there: schema.import_file(path)",
            )
        return await schema.store_file(
            where, found, keeps=True, skip_invalid=skip_invalid, again=False, progress=progress
        )

    async def reseal(self, *, forget: bool = False, progress: bool = False) -> KeysOfDataset:
        """Re-encrypt each schema that has data under an older key than the current one, by a job;
        returns the keys that are needed after that. For owners.

        Args:
            forget: have grants lack all older keys from then on, once nothing is left that they
                open. A user who kept an older grant and an older copy of the data can still
                decrypt that copy.
            progress: show a bar on a terminal.

        Raises:
            Conflict: ``reseal_under_way``, ``epoch_in_use``, ``nothing_to_forget``; what was done
                before stays done, and it can be repeated.
            NotAllowed: ``owners_only``.
        """
        keys = await self._link.proxy.look_at_keys(self.url)
        for schema in keys.schemas:
            if not schema.present:
                job = AsyncJob(self._link, await self._link.proxy.reseal_schema(schema.schema))
                await job.wait(progress=progress)
        if forget:
            return await self._link.proxy.forget_keys(self.url)
        return await self._link.proxy.look_at_keys(self.url)

    async def erase(self, field: str, value: object, *, confirm: int | None = None) -> ErasedData:
        """Delete every record of its schemas with this value, erase the bytes, and wait; returns
        the receipt, which contains no value.

        Args:
            confirm: the expected number of records; without it nothing is deleted, and the error
                ``confirm_count`` states the number.
        """
        return await self._link.proxy.erase_subject(self.url, field, value, confirm=confirm)


class AsyncClient:
    """A proxy, used by one account.

    Args:
        email, password: of the account.
        token: an API token instead; it expires, and may be limited to datasets.
        auth: returns an Authorization value instead; called for each request.
        device: the secret of a registered device, or a ``new_device()``.
        organization: the organization of the names; not needed for members of only one.
        limits: sizes of requests, and time limits.

    Every method raises the :class:`~encrypted_records.errors.ErsError` of the service, or
    ``Unavailable``.
    """

    def __init__(self, proxy_url: str = DEFAULT_PROXY, **options: Unpack[ClientOptions]) -> None:
        self._link = AsyncLink(proxy_url, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; later calls raise ``ClientClosed``."""
        await self._link.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._link.described}>"

    @property
    def calls(self) -> AsyncCalls:
        """Direct calls of the proxy's endpoints, one method each, for operations without an object
        here.
        """
        return self._link.calls

    async def user(self) -> resources.UserResource:
        """The account, and the paths of its organizations."""
        return await self._link.proxy.user()

    async def devices(self) -> Devices:
        """Devices that may use your keyring at this proxy, and events of the keyring."""
        return await self._link.proxy.devices()

    async def add_device(self, /, name: str = "", **shown: str) -> OwnDevice:
        """Register this client's device, or a new one. Keep its secret.

        Args:
            shown: ``code``, ``passphrase`` or ``phrase``, as for :meth:`ProxyClient.add_device`.
        """
        return await self._link.proxy.add_device(name, **shown)

    async def create_device(self, name: str, *, proof: Proof | None = None) -> OwnDevice:
        """Create a device for another program; its secret is returned only once."""
        return await self._link.proxy.create_device(name, proof=proof)

    async def device_code(self, *, proof: Proof | None = None) -> Code:
        """A code that registers one more device, once."""
        return await self._link.proxy.device_code(proof=proof)

    async def revoke_device(self, id: str, *, proof: Proof | None = None) -> None:  # noqa: A002
        """Revoke a device; your own device needs no proof."""
        await self._link.proxy.revoke_device(id, proof=proof)

    async def create_token(
        self,
        name: str,
        *,
        scope: resources.Scope = "read",
        datasets: str | Sequence[str] | None = None,
        expires_in: timedelta = TOKEN_LIFETIME,
        password: str | None = None,
    ) -> resources.CreatedApiTokenResource:
        """Create an API token for another program; its text is returned only once.

        Args:
            datasets: name or names of the datasets to which it is limited; None is all of yours.
            password: of the account, unless this client was created with it.
        """
        paths = None
        if datasets is not None:
            paths = [(await self._link.names.dataset(name)).url for name in several(datasets)]
        return await self._link.proxy.create_token(
            name, scope=scope, datasets=paths, expires_in=expires_in, password=password
        )

    async def tokens(self) -> AsyncIterator[resources.ApiTokenResource]:
        """Your API tokens, with their rights and times of use."""
        async for token in self._link.proxy.api_tokens():
            yield token

    async def revoke_token(self, id: str) -> None:  # noqa: A002
        """Revoke an API token."""
        await self._link.proxy.revoke_token(id)

    async def datasets(self) -> AsyncIterator[AsyncDataset]:
        async for dataset in self._link.names.datasets():
            yield AsyncDataset(self._link, dataset)

    async def dataset(self, name: str) -> AsyncDataset:
        """
        Raises:
            NotFound, InvalidSetting: nothing has that name, or several do.
        """
        return AsyncDataset(self._link, await self._link.names.dataset(name))

    async def create_dataset(
        self,
        name: str,
        *,
        slug: str | None = None,
        description: str | None = None,
        organization: str | None = None,
        get_or_create: bool = False,
    ) -> AsyncDataset:
        """Create a dataset, in your only organization unless you name another.

        Args:
            get_or_create: return the dataset with this slug or name, if it exists.

        Raises:
            Conflict: ``slug_taken``; a dataset with this name or slug exists.
        """
        dataset = await self._link.names.create_dataset(
            *(name, organization), slug=slug, description=description, get_or_create=get_or_create
        )
        return AsyncDataset(self._link, dataset)

    async def schemas(self) -> AsyncIterator[AsyncSchema]:
        async for schema in self._link.names.schemas():
            yield AsyncSchema(self._link, schema)

    async def schema(self, name: str, *, dataset: str | None = None) -> AsyncSchema:
        """A schema by its name, optionally after its dataset and organization, as in
        ``acme/medical/patient``.

        Raises:
            NotFound, InvalidSetting: nothing has that name, or several do.
        """
        return AsyncSchema(self._link, await self._link.names.schema(name, dataset))

    async def changes(
        self,
        schema: str,
        cursor: str | None = None,
        *,
        dataset: str | None = None,
        follow: bool = True,
    ) -> AsyncIterator[Changes]:
        """The changes of a schema's records, as described at :meth:`.AsyncSchema.changes`.

        Args:
            schema, dataset: as for :meth:`schema`.
        """
        named = await self._link.names.schema(schema, dataset)
        async for page in self._link.proxy.changes(named.url, cursor, follow=follow):
            yield page

    async def record(self, id: str) -> AsyncRecord:  # noqa: A002
        """The record with this id.

        Raises:
            NotFound: you can read no such record.
        """
        check_record_id(id)
        record, etag = await self._link.proxy.record(id)
        return AsyncRecord(self._link, record.id, record.schema, record.data, etag)

    async def sql(
        self,
        statement: str,
        parameters: Sequence[object] | Mapping[str, object] = (),
        *,
        dataset: str | None = None,
        limits: SqlLimits | None = None,
    ) -> SqlResult:
        """The rows of a SELECT over the records that you can read, as frames. The statement runs in
        this process, over columns that the proxy decrypts. Requires the extra ``sql``.

        Args:
            parameters: values for ``$1`` or ``?``, or by name for ``$name``.
            dataset: slug of the dataset whose tables need no qualification; not needed if you can
                access only one.
            limits: limits of time and memory.

        Raises:
            SqlError: the statement cannot be run; the SQLSTATE names the reason.
            NotInstalled: the extra is missing here, or at the proxy.
        """
        filters = await self._link.names.in_organization()
        return await self._link.proxy.sql(
            statement,
            parameters,
            dataset=dataset,
            organization=filters.get("organization"),
            limits=limits,
        )

    async def jobs(self) -> AsyncIterator[AsyncJob]:
        """Your jobs of the last thirty days, the newest first."""
        async for job in self._link.proxy.jobs():
            yield AsyncJob(self._link, job.job_id)

    def job(self, id: str) -> AsyncJob:  # noqa: A002
        return AsyncJob(self._link, id)
