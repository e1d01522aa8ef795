"""Everything that a proxy offers, as objects: :class:`AsyncClient` and what it leads to.

This is the one source of the synchronous client, too: ``synchronous.py`` is made of it by
``python -m tests.client.synchronous``, which leaves out what waits. What goes to the proxy is
so always written as ``await self._link.proxy...`` or ``async for one in self._link.proxy...``.

Names, slugs, ids and paths will do wherever something is to be named.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from encrypted_records.client import DEFAULT_PROXY, expressions, rows
from encrypted_records.client.bars import job_bar
from encrypted_records.client.jobs import JobProgress
from encrypted_records.client.links import AsyncLink
from encrypted_records.client.media import media_type_of
from encrypted_records.client.proxy import User
from encrypted_records.client.resources import Resource
from encrypted_records.client.rows import AsyncRows, async_pieces
from encrypted_records.client.transport import Authorization
from encrypted_records.errors import ErsError, Flaw, InvalidRecords
from encrypted_records.model.ids import reference
from encrypted_records.model.questions import MAX_LIMIT

#: A condition as docs/http-api.md has it, or an expression such as ``age >= 18``.
Where = Mapping[str, Any] | str | None

#: Flaws that an error about a job lists.
_FLAWS = 1000


class AsyncClient:
    """A proxy, used by one account.

    Args:
        email, password: who asks.
        auth: what gives an Authorization value instead, asked for each request.
        organization: where to look for names; not needed by those who have one.

    Every method raises the :class:`~encrypted_records.errors.ErsError` that the service answers
    with, or an ``Unavailable``.
    """

    def __init__(
        self,
        proxy_url: str = DEFAULT_PROXY,
        *,
        email: str | None = None,
        password: str | None = None,
        auth: Authorization | None = None,
        organization: str | None = None,
    ) -> None:
        self._link = AsyncLink(
            proxy_url, email=email, password=password, auth=auth, organization=organization
        )

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
        await self._link.close()

    async def user(self) -> User:
        """The account, and the paths of its organizations."""
        return await self._link.proxy.user()

    async def datasets(self) -> AsyncIterator[AsyncDataset]:
        filters = await self._link.names.in_organization()
        async for one in self._link.proxy.listing("datasets", **filters):
            yield AsyncDataset(self._link, one)

    async def dataset(self, name: str) -> AsyncDataset:
        """
        Raises:
            NotFound, InvalidSetting: there is none of that name, or there are several.
        """
        return AsyncDataset(self._link, await self._link.names.dataset(name))

    async def create_dataset(
        self,
        name: str,
        *,
        slug: str | None = None,
        description: str | None = None,
        organization: str | None = None,
    ) -> AsyncDataset:
        """A new dataset, of the only organization where none is named."""
        owner = await self._link.names.organization(organization)
        found = await self._link.proxy.create(
            "datasets", name=name, organization=owner["url"], slug=slug, description=description
        )
        return AsyncDataset(self._link, found)

    async def schemas(self) -> AsyncIterator[AsyncSchema]:
        filters = await self._link.names.in_organization()
        async for one in self._link.proxy.listing("schemas", **filters):
            yield AsyncSchema(self._link, one)

    async def schema(self, name: str, *, dataset: str | None = None) -> AsyncSchema:
        """A schema by its name, alone or behind those of its dataset and organization, as in
        ``acme/medical/patient``.

        Raises:
            NotFound, InvalidSetting: there is none of that name, or there are several.
        """
        return AsyncSchema(self._link, await self._link.names.schema(name, dataset))

    async def record(self, id: str) -> AsyncRecord:  # noqa: A002
        found = await self._link.proxy.record(id)
        return AsyncRecord(self._link, found["id"], found["schema"], found["data"])

    async def jobs(self) -> AsyncIterator[AsyncJob]:
        """Your jobs of the last thirty days, the newest first."""
        async for one in self._link.proxy.jobs():
            yield AsyncJob(self._link, one["job_id"])

    def job(self, id: str) -> AsyncJob:  # noqa: A002
        return AsyncJob(self._link, id)


class _AsyncResource:
    """What datasets and schemas have in common. ``members`` is all that the service says of it."""

    def __init__(self, link: AsyncLink, members: Resource) -> None:
        self._link = link
        self.members = members

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.slug}>"

    @property
    def id(self) -> str:
        return str(self.members["id"])

    @property
    def url(self) -> str:
        """Its path."""
        return str(self.members["url"])

    @property
    def name(self) -> str:
        return str(self.members["name"])

    @property
    def slug(self) -> str:
        return str(self.members["slug"])

    @property
    def description(self) -> str:
        return str(self.members["description"])

    async def update(
        self, *, name: str | None = None, slug: str | None = None, description: str | None = None
    ) -> None:
        """Change what is named here; the rest stays."""
        self.members = await self._link.proxy.change(
            self.url, name=name, slug=slug, description=description
        )

    async def delete(self, *, cascade: bool = False) -> None:
        """Delete it.

        Args:
            cascade: with all that is in it, which is refused otherwise.
        """
        await self._link.proxy.delete(self.url, cascade=cascade)


class AsyncDataset(_AsyncResource):
    async def schemas(self) -> AsyncIterator[AsyncSchema]:
        async for one in self._link.proxy.listing("schemas", dataset=self.id):
            yield AsyncSchema(self._link, one)

    async def create_schema(
        self,
        name: str,
        definition: Mapping[str, Any],
        *,
        slug: str | None = None,
        description: str | None = None,
    ) -> AsyncSchema:
        """A new schema; ``definition`` is its JSON Schema, as docs/http-api.md describes it."""
        found = await self._link.proxy.create(
            "schemas",
            name=name,
            dataset=self.url,
            schema=definition,
            slug=slug,
            description=description,
        )
        return AsyncSchema(self._link, found)


class AsyncSchema(_AsyncResource):
    @property
    def definition(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.members["schema"]
        return found

    async def ingest(
        self, rows: AsyncRows, *, skip_invalid: bool = False, progress: bool = False
    ) -> int:
        """Store any number of rows: all of them, or on any error none. How many were stored.

        Up to 100 go in one request, which is repeated under one key where its answer is lost. More
        become a job, whose bytes are sent again after an interruption only where the proxy says
        that it does not have them. So no row is stored twice.

        Args:
            rows: field names and values, such as a generator's; it is read as it is sent.
            skip_invalid: store the good rows where some are bad, instead of nothing.
            progress: show a bar on a terminal.

        Raises:
            InvalidRecords: rows do not fit; ``flaws`` says which.
        """
        upload, offset = None, 0
        async for piece in async_pieces(rows):
            if piece.rows and not skip_invalid:
                return len(await self._link.proxy.ingest(self.url, piece.rows))
            if upload is None and not piece.body:
                return 0
            if upload is None:
                upload = await self._link.proxy.begin_stream(
                    "rows.ndjson", schema=self.id, skip_invalid=skip_invalid
                )
            offset = await self._link.proxy.append(
                upload[0], offset, piece.body, is_last=piece.is_last
            )
        assert upload is not None  # the last piece is always there
        job = AsyncJob(self._link, upload[1])
        done = await job.wait(progress=progress)
        rejected = await self._link.proxy.rejected_rows(job.id) if skip_invalid else 0
        return done.total - rejected

    async def upload(
        self, path: Path | str, *, skip_invalid: bool = False, batch_size: int | None = None
    ) -> AsyncJob:
        """Send a file of CSV, JSON or JSON lines, of any size, and begin the job that stores it.

        Connections may break: each attempt goes on with what the proxy does not have yet.
        """
        file = Path(path)
        upload, job = await self._link.proxy.begin_upload(
            file,
            media_type_of(file),
            schema=self.id,
            batch_size=batch_size,
            skip_invalid=skip_invalid,
        )
        await self._link.proxy.send_upload(upload, file)
        return AsyncJob(self._link, job)

    def search(
        self,
        where: Where = None,
        *,
        order_by: Sequence[str] | None = None,
        fields: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> AsyncSearch:
        """The records that fit; nothing is asked before they are looked at.

        Args:
            where: see :data:`Where`; None selects all.
            order_by: field names, with ``-`` before those that descend.
            fields: which fields to return; None returns all.
            limit: the first so many; None is all.
        """
        return AsyncSearch(self, where, order_by, fields, limit)

    async def count(self, where: Where = None) -> int:
        """How many records fit. None is opened."""
        found = await self._link.proxy.search(self.url, where=condition(where), limit=0)
        return found.count or 0

    async def aggregate(self, *measures: str, where: Where = None, **options: Any) -> Any:
        """Measures of the records that fit, taken from the index.

        Args:
            measures: such as ``"avg(age)"``, ``"percentile(age, 50, 90)"`` or ``"count"``.
            options: ``group_by``, ``order``, ``limit``, as docs/http-api.md has them.
        """
        asked = [expressions.parse_measure(one) for one in measures or ("count",)]
        return await self._link.proxy.aggregate(self.url, asked, where=condition(where), **options)

    async def delete_matching(self, where: Mapping[str, Any] | str, *, confirm: int) -> int:
        """Delete the records that fit; how many.

        Args:
            confirm: how many there have to be, such as :meth:`count` said; else nothing is deleted.
        """
        asked = condition(where) or {}
        return await self._link.proxy.delete_matching(self.url, asked, confirm=confirm)


class AsyncSearch:
    """Records that fit a condition, fetched page by page while they are looked at."""

    def __init__(
        self,
        schema: AsyncSchema,
        where: Where,
        order_by: Sequence[str] | None,
        fields: Sequence[str] | None,
        limit: int | None,
    ) -> None:
        self._link = schema._link
        self._schema = schema
        self._where = condition(where)
        self._order_by = order_by
        self._fields = fields
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[AsyncRecord]:
        cursor, left = None, self._limit
        while left != 0:
            page = await self._link.proxy.search(
                self._schema.url,
                where=self._where,
                order_by=self._order_by,
                fields=self._fields,
                limit=MAX_LIMIT if left is None else min(left, MAX_LIMIT),
                cursor=cursor,
                count=False,
            )
            for one in page.results:
                yield AsyncRecord(self._link, one.id, one.schema, one.data)
            cursor = page.next_cursor
            left = None if left is None else left - len(page.results)
            if cursor is None:
                return

    async def to_arrow(self) -> Any:
        """All of them as a ``pyarrow.Table``, exact; absent values are nulls."""
        return rows.to_arrow(await self._data(), self._shown())

    async def to_pandas(self) -> Any:
        """All of them as a ``pandas.DataFrame``: integers as Int64, other numbers as float64, which
        may round them."""
        return rows.to_pandas(await self._data(), self._shown())

    async def _data(self) -> list[Mapping[str, Any]]:
        return [one.data async for one in self]

    def _shown(self) -> Mapping[str, Any]:
        """The definition of the fields that are asked for."""
        specs = self._schema.definition["properties"]
        return {"properties": {name: specs[name] for name in self._fields or specs}}


class AsyncRecord:
    """A record, opened. ``data`` is field names and values; ``schema`` is a path."""

    def __init__(self, link: AsyncLink, id: str, schema: str, data: Mapping[str, Any]) -> None:  # noqa: A002
        self._link = link
        self.id = id
        self.schema = schema
        self.data = data

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def __getitem__(self, field: str) -> Any:
        return self.data[field]

    @property
    def url(self) -> str:
        """Its path."""
        return reference("records", self.id)

    async def update(self, data: Mapping[str, Any], *, replace: bool = False) -> None:
        """Change the fields in ``data``, where None removes one; or with ``replace`` all."""
        found = await self._link.proxy.change_record(self.id, data, replace=replace)
        self.data = found["data"]

    async def delete(self) -> None:
        await self._link.proxy.delete_record(self.id)


class AsyncJob:
    """A batch job, which goes on whether somebody looks on or not."""

    def __init__(self, link: AsyncLink, id: str) -> None:  # noqa: A002
        self._link = link
        self.id = id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    async def status(self) -> JobProgress:
        return await self._link.proxy.job(self.id)

    async def watch(self) -> AsyncIterator[JobProgress]:
        """Its progress now, its changes, and the last of them."""
        async for one in self._link.proxy.watch(self.id):
            yield one

    async def wait(self, *, progress: bool = False) -> JobProgress:
        """Its last word, when it has completed.

        Args:
            progress: show a bar on a terminal.

        Raises:
            InvalidRecords: rows do not fit; ``flaws`` says which.
            ErsError: it failed for another reason.
        """
        with job_bar(shown=progress) as move:
            async for one in self.watch():
                move(one.processed, one.total or None)
        if one.status == "completed":
            return one
        flaws = await self.flaws()
        if flaws:
            raise InvalidRecords("rows were rejected, and nothing was stored", flaws=flaws)
        raise ErsError(one.error or "the job failed", code="job_failed")

    async def flaws(self) -> tuple[Flaw, ...]:
        """What is wrong with which rows, up to the first thousand flaws."""
        found = []
        async for one in self._link.proxy.job_errors(self.id):
            found.append(Flaw(one["code"], one["detail"], row=one["row"], field=one.get("field")))
            if len(found) == _FLAWS:
                break
        return tuple(found)

    async def cancel(self) -> None:
        """Cancel it, so that nothing of it is stored; or forget one that has ended."""
        await self._link.proxy.cancel_job(self.id)


def condition(where: Where) -> Mapping[str, Any] | None:
    """
    Raises:
        BadInput: it is an expression that cannot be understood.
    """
    return expressions.parse(where) if isinstance(where, str) else where
