"""The synchronous client: the objects of :mod:`.async_client`, whose answers are waited for.

Each class has the methods of the asynchronous class with the same name, where they are described.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, Unpack, cast

from encrypted_records.client import DEFAULT_PROXY
from encrypted_records.client.proxy.connection import ShownDataset, ShownSchema
from encrypted_records.client.sdk import async_schemas
from encrypted_records.client.sdk.async_client import AsyncClient, AsyncDataset
from encrypted_records.client.sdk.event_loop import (
    AsyncLink,
    BlockingLink,
    Calls,
    ClientOptions,
    Link,
    Synchronous,
    each_of,
    finish,
    waited,
)
from encrypted_records.model.samples import FileReading


class Job(Synchronous):
    """A batch job. It continues when the client disconnects."""

    id: str

    status = waited(async_schemas.AsyncJob.status)
    watch = waited(async_schemas.AsyncJob.watch)
    wait = waited(async_schemas.AsyncJob.wait)
    flaws = waited(async_schemas.AsyncJob.flaws)
    cancel = waited(async_schemas.AsyncJob.cancel)


class Record(Synchronous, Mapping[str, Any]):
    """A record, opened: field names and values.

    Attributes:
        data: the same.
        schema: its path.
        etag: of the record as it was read or changed; None if a search found it.
    """

    id: str
    schema: str
    data: Mapping[str, Any]
    etag: str | None
    url: str

    def __getitem__(self, field: str) -> Any:
        return self.data[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    update = waited(async_schemas.AsyncRecord.update)
    delete = waited(async_schemas.AsyncRecord.delete)


class Named(Synchronous):
    """The common base of datasets and schemas; ``resource`` is the service's answer."""

    id: str
    members: Mapping[str, Any]
    url: str
    name: str
    slug: str
    description: str

    update = waited(async_schemas.AsyncNamed.update)
    delete = waited(async_schemas.AsyncNamed.delete)


@dataclass(frozen=True)
class ImportedFile:
    """The result of an import: ``stored`` rows are in ``schema``, ``rejected`` rows were invalid;
    ``reading`` describes how the file and its cells were read."""

    schema: Schema
    job: Job
    stored: int
    rejected: int
    reading: FileReading

    @classmethod
    def of(cls, done: async_schemas.AsyncImportedFile) -> ImportedFile:
        return cls(Schema(done.schema), Job(done.job), done.stored, done.rejected, done.reading)


class Search(Synchronous):
    """Records that match a condition, fetched page by page while they are read."""

    def __iter__(self) -> Iterator[Record]:
        return map(Record, each_of(aiter(self._inner)))

    def __len__(self) -> int:
        return self._count()

    def first(self) -> Record | None:
        """The first record, or None if there is none. No other record is opened."""
        found = finish(self._inner.first())
        return None if found is None else Record(found)

    _count = waited(async_schemas.AsyncSearch.count_all)
    to_arrow = waited(async_schemas.AsyncSearch.to_arrow)
    to_pandas = waited(async_schemas.AsyncSearch.to_pandas)
    to_polars = waited(async_schemas.AsyncSearch.to_polars)


class Schema(Named):
    """A schema. ``notes`` are remarks about its fields, if it was created from a frame or a
    class.
    """

    resource: ShownSchema
    notes: Mapping[str, str]
    definition: Mapping[str, Any]

    reseal = waited(async_schemas.AsyncCare.reseal, Job)
    erase_deleted = waited(async_schemas.AsyncCare.erase_deleted)
    look_at_retention = waited(async_schemas.AsyncCare.look_at_retention)
    carry_out_retention = waited(async_schemas.AsyncCare.carry_out_retention)
    change = waited(async_schemas.AsyncSchema.change)
    ingest = waited(async_schemas.AsyncSchema.ingest)
    upsert = waited(async_schemas.AsyncSchema.upsert)
    upload = waited(async_schemas.AsyncSchema.upload, Job)
    import_file = waited(async_schemas.AsyncSchema.import_file, ImportedFile.of)
    store_file = waited(async_schemas.AsyncSchema.store_file, ImportedFile.of)
    search = waited(async_schemas.AsyncSchema.search, Search)
    get = waited(async_schemas.AsyncSchema.get, Record)
    count = waited(async_schemas.AsyncSchema.count)
    why = waited(async_schemas.AsyncSchema.why)
    aggregate = waited(async_schemas.AsyncSchema.aggregate)
    changes = waited(async_schemas.AsyncSchema.changes)
    delete_matching = waited(async_schemas.AsyncSchema.delete_matching)


class Dataset(Named):
    resource: ShownDataset

    schemas = waited(AsyncDataset.schemas, Schema)
    search = waited(AsyncDataset.search)
    create_schema = waited(AsyncDataset.create_schema, Schema)
    import_file = waited(AsyncDataset.import_file, ImportedFile.of)
    reseal = waited(AsyncDataset.reseal)
    erase = waited(AsyncDataset.erase)


class _BlockingClient(AsyncClient):
    def __init__(self, link: Link) -> None:
        self._link = cast(AsyncLink, BlockingLink(link))


class Client(Synchronous):
    """A proxy, used by one account; see :class:`.AsyncClient` for its options and errors."""

    def __init__(self, proxy_url: str = DEFAULT_PROXY, **options: Unpack[ClientOptions]) -> None:
        self._link = Link(proxy_url, **options)
        super().__init__(_BlockingClient(self._link))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._link.described}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; later calls raise ``ClientClosed``."""
        self._link.close()

    @property
    def calls(self) -> Calls:
        """Direct calls of the proxy's endpoints, one method each, for operations without an object
        here.
        """
        return Calls(self._inner._link.proxy)

    user = waited(AsyncClient.user)
    devices = waited(AsyncClient.devices)
    add_device = waited(AsyncClient.add_device)
    create_device = waited(AsyncClient.create_device)
    device_code = waited(AsyncClient.device_code)
    revoke_device = waited(AsyncClient.revoke_device)
    create_token = waited(AsyncClient.create_token)
    tokens = waited(AsyncClient.tokens)
    revoke_token = waited(AsyncClient.revoke_token)
    datasets = waited(AsyncClient.datasets, Dataset)
    dataset = waited(AsyncClient.dataset, Dataset)
    create_dataset = waited(AsyncClient.create_dataset, Dataset)
    schemas = waited(AsyncClient.schemas, Schema)
    schema = waited(AsyncClient.schema, Schema)
    changes = waited(AsyncClient.changes)
    record = waited(AsyncClient.record, Record)
    sql = waited(AsyncClient.sql)
    jobs = waited(AsyncClient.jobs, Job)
    job = waited(AsyncClient.job, Job)
