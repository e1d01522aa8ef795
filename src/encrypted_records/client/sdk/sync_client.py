"""The asynchronous client: all functions of a proxy as objects, beginning with
:class:`Client`.

Made of ``async_client.py`` by ``python -m scripts.synchronous_client``; change it there.
"""

# ruff: noqa: A002, UP028

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from encrypted_records.client import DEFAULT_PROXY
from encrypted_records.client.limits import STANDARD, ClientLimits
from encrypted_records.client.proxy.changes import Changes
from encrypted_records.client.proxy.connection import ShownDataset, several
from encrypted_records.client.proxy.credentials import TOKEN_LIFETIME
from encrypted_records.client.proxy.erasure import ErasedData, KeysOfDataset
from encrypted_records.client.proxy.keyring import Code, Devices, OwnDevice, Proof
from encrypted_records.client.proxy.records import FoundIn
from encrypted_records.client.proxy.sql import SqlResult
from encrypted_records.client.proxy.transport import Device
from encrypted_records.client.sdk.condition_language import Where, condition
from encrypted_records.client.sdk.event_loop import Calls, Link
from encrypted_records.client.sdk.files import (
    in_words_of_python,
    path_of,
    require_certain,
    require_valid,
)
from encrypted_records.client.sdk.proposal import proposal_of
from encrypted_records.client.sdk.rows import Frame, check_record_id
from encrypted_records.client.sdk.sync_schemas import ImportedFile, Job, Named, Record, Schema
from encrypted_records.client.transport import Authorization
from encrypted_records.errors import Conflict, ReadingRefused
from encrypted_records.model import resources

if TYPE_CHECKING:
    from encrypted_records.sql.limits import SqlLimits


class Dataset(Named[ShownDataset]):
    def schemas(self) -> Iterator[Schema]:
        for schema in self._link.each(self._link.names.schemas(self.resource)):
            yield Schema(self._link, schema)

    def search(self, where: Where = None, *, limit: int = 10) -> list[FoundIn]:
        """Search every schema of the dataset that has the condition's fields: counts, and first
        records.

        Args:
            where: see :data:`Where`; None selects all. The condition cannot refer to other schemas.
            limit: maximum number of records for each schema, up to 100.
        """
        return self._link.run(
            self._link.proxy.search_dataset(self.url, condition(where), limit=limit)
        )

    def create_schema(
        self,
        name: str,
        definition: Mapping[str, Any] | Frame | type,
        *,
        slug: str | None = None,
        description: str | None = None,
        get_or_create: bool = False,
    ) -> Schema:
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
        schema = self._link.run(
            self._link.names.create_schema(
                *(self.resource, name, proposal.definition),
                slug=slug,
                description=description,
                get_or_create=get_or_create,
            )
        )
        return Schema(self._link, schema, proposal.notes)

    def import_file(
        self,
        path: Path | str,
        *,
        name: str | None = None,
        reading: Mapping[str, Any] | None = None,
        tight: bool = False,
        skip_invalid: bool = False,
        progress: bool = False,
    ) -> ImportedFile:
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
            found = self._link.run(self._link.proxy.look_at_file(where, reading, tight=tight))
        except ReadingRefused as error:
            raise in_words_of_python(error) from None
        require_certain(found)
        if not skip_invalid:
            require_valid(self._link.run(self._link.proxy.preview_file(where, found)))
        schema = self.create_schema(name or where.stem, found.schema, get_or_create=True)
        if schema.count():
            raise Conflict(
                f"a schema {schema.slug} already exists and has records",
                code="slug_taken",
                hint="choose another name; or store the file there: schema.import_file(path)",
            )
        return schema.store_file(
            where, found, keeps=True, skip_invalid=skip_invalid, again=False, progress=progress
        )

    def reseal(self, *, forget: bool = False, progress: bool = False) -> KeysOfDataset:
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
        keys = self._link.run(self._link.proxy.look_at_keys(self.url))
        for schema in keys.schemas:
            if not schema.present:
                job = Job(self._link, self._link.run(self._link.proxy.reseal_schema(schema.schema)))
                job.wait(progress=progress)
        if forget:
            return self._link.run(self._link.proxy.forget_keys(self.url))
        return self._link.run(self._link.proxy.look_at_keys(self.url))

    def erase(self, field: str, value: object, *, confirm: int | None = None) -> ErasedData:
        """Delete every record of its schemas with this value, erase the bytes, and wait; returns
        the receipt, which contains no value.

        Args:
            confirm: the expected number of records; without it nothing is deleted, and the error
                ``confirm_count`` states the number.
        """
        return self._link.run(
            self._link.proxy.erase_subject(self.url, field, value, confirm=confirm)
        )


class Client:
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

    def __init__(
        self,
        proxy_url: str = DEFAULT_PROXY,
        *,
        email: str | None = None,
        password: str | None = None,
        token: str | None = None,
        auth: Authorization | None = None,
        device: Device | str | None = None,
        organization: str | None = None,
        limits: ClientLimits = STANDARD,
    ) -> None:
        self._link = Link(
            proxy_url,
            email=email,
            password=password,
            token=token,
            auth=auth,
            device=device,
            organization=organization,
            limits=limits,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; later calls raise ``ClientClosed``."""
        self._link.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._link.described}>"

    @property
    def calls(self) -> Calls:
        """Direct calls of the proxy's endpoints, one method each, for operations without an object
        here.
        """
        return self._link.calls

    def user(self) -> resources.UserResource:
        """The account, and the paths of its organizations."""
        return self._link.run(self._link.proxy.user())

    def devices(self) -> Devices:
        """Devices that may use your keyring at this proxy, and events of the keyring."""
        return self._link.run(self._link.proxy.devices())

    def add_device(self, name: str = "", **shown: str) -> OwnDevice:
        """Register this client's device, or a new one. Keep its secret.

        Args:
            shown: ``code``, ``passphrase`` or ``phrase``, as for :meth:`ProxyClient.add_device`.
        """
        return self._link.run(self._link.proxy.add_device(name, **shown))

    def create_device(self, name: str, *, proof: Proof | None = None) -> OwnDevice:
        """Create a device for another program; its secret is returned only once."""
        return self._link.run(self._link.proxy.create_device(name, proof=proof))

    def device_code(self, *, proof: Proof | None = None) -> Code:
        """A code that registers one more device, once."""
        return self._link.run(self._link.proxy.device_code(proof=proof))

    def revoke_device(self, id: str, *, proof: Proof | None = None) -> None:
        """Revoke a device; your own device needs no proof."""
        self._link.run(self._link.proxy.revoke_device(id, proof=proof))

    def create_token(
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
            paths = [
                self._link.run(self._link.names.dataset(name)).url for name in several(datasets)
            ]
        return self._link.run(
            self._link.proxy.create_token(
                name, scope=scope, datasets=paths, expires_in=expires_in, password=password
            )
        )

    def tokens(self) -> Iterator[resources.ApiTokenResource]:
        """Your API tokens, with their rights and times of use."""
        for token in self._link.each(self._link.proxy.api_tokens()):
            yield token

    def revoke_token(self, id: str) -> None:
        """Revoke an API token."""
        self._link.run(self._link.proxy.revoke_token(id))

    def datasets(self) -> Iterator[Dataset]:
        for dataset in self._link.each(self._link.names.datasets()):
            yield Dataset(self._link, dataset)

    def dataset(self, name: str) -> Dataset:
        """
        Raises:
            NotFound, InvalidSetting: nothing has that name, or several do.
        """
        return Dataset(self._link, self._link.run(self._link.names.dataset(name)))

    def create_dataset(
        self,
        name: str,
        *,
        slug: str | None = None,
        description: str | None = None,
        organization: str | None = None,
        get_or_create: bool = False,
    ) -> Dataset:
        """Create a dataset, in your only organization unless you name another.

        Args:
            get_or_create: return the dataset with this slug or name, if it exists.

        Raises:
            Conflict: ``slug_taken``; a dataset with this name or slug exists.
        """
        dataset = self._link.run(
            self._link.names.create_dataset(
                *(name, organization),
                slug=slug,
                description=description,
                get_or_create=get_or_create,
            )
        )
        return Dataset(self._link, dataset)

    def schemas(self) -> Iterator[Schema]:
        for schema in self._link.each(self._link.names.schemas()):
            yield Schema(self._link, schema)

    def schema(self, name: str, *, dataset: str | None = None) -> Schema:
        """A schema by its name, optionally after its dataset and organization, as in
        ``acme/medical/patient``.

        Raises:
            NotFound, InvalidSetting: nothing has that name, or several do.
        """
        return Schema(self._link, self._link.run(self._link.names.schema(name, dataset)))

    def changes(
        self,
        schema: str,
        cursor: str | None = None,
        *,
        dataset: str | None = None,
        follow: bool = True,
    ) -> Iterator[Changes]:
        """The changes of a schema's records, as described at :meth:`.AsyncSchema.changes`.

        Args:
            schema, dataset: as for :meth:`schema`.
        """
        named = self._link.run(self._link.names.schema(schema, dataset))
        for page in self._link.each(self._link.proxy.changes(named.url, cursor, follow=follow)):
            yield page

    def record(self, id: str) -> Record:
        """The record with this id.

        Raises:
            NotFound: you can read no such record.
        """
        check_record_id(id)
        record, etag = self._link.run(self._link.proxy.record(id))
        return Record(self._link, record.id, record.schema, record.data, etag)

    def sql(
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
        filters = self._link.run(self._link.names.in_organization())
        return self._link.run(
            self._link.proxy.sql(
                statement,
                parameters,
                dataset=dataset,
                organization=filters.get("organization"),
                limits=limits,
            )
        )

    def jobs(self) -> Iterator[Job]:
        """Your jobs of the last thirty days, the newest first."""
        for job in self._link.each(self._link.proxy.jobs()):
            yield Job(self._link, job.job_id)

    def job(self, id: str) -> Job:
        return Job(self._link, id)
