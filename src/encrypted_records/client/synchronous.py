"""Everything that a proxy offers, as objects: :class:`Client` and what it leads to.

Made of ``objects.py`` by ``python -m tests.client.synchronous``; change it there.
"""

# ruff: noqa: A002, UP028

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from encrypted_records.client import DEFAULT_PROXY, expressions, rows
from encrypted_records.client.bars import job_bar
from encrypted_records.client.jobs import JobProgress
from encrypted_records.client.links import Link
from encrypted_records.client.media import media_type_of
from encrypted_records.client.proxy import User
from encrypted_records.client.resources import Resource
from encrypted_records.client.rows import Rows, pieces
from encrypted_records.client.transport import Authorization
from encrypted_records.errors import ErsError, Flaw, InvalidRecords
from encrypted_records.model.ids import reference
from encrypted_records.model.questions import MAX_LIMIT

Where = Mapping[str, Any] | str | None
_FLAWS = 1000


class Client:
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
        self._link = Link(
            proxy_url, email=email, password=password, auth=auth, organization=organization
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
        self._link.close()

    def user(self) -> User:
        """The account, and the paths of its organizations."""
        return self._link.run(self._link.proxy.user())

    def datasets(self) -> Iterator[Dataset]:
        filters = self._link.run(self._link.names.in_organization())
        for one in self._link.each(self._link.proxy.listing("datasets", **filters)):
            yield Dataset(self._link, one)

    def dataset(self, name: str) -> Dataset:
        """
        Raises:
            NotFound, InvalidSetting: there is none of that name, or there are several.
        """
        return Dataset(self._link, self._link.run(self._link.names.dataset(name)))

    def create_dataset(
        self,
        name: str,
        *,
        slug: str | None = None,
        description: str | None = None,
        organization: str | None = None,
    ) -> Dataset:
        """A new dataset, of the only organization where none is named."""
        owner = self._link.run(self._link.names.organization(organization))
        found = self._link.run(
            self._link.proxy.create(
                "datasets", name=name, organization=owner["url"], slug=slug, description=description
            )
        )
        return Dataset(self._link, found)

    def schemas(self) -> Iterator[Schema]:
        filters = self._link.run(self._link.names.in_organization())
        for one in self._link.each(self._link.proxy.listing("schemas", **filters)):
            yield Schema(self._link, one)

    def schema(self, name: str, *, dataset: str | None = None) -> Schema:
        """A schema by its name, alone or behind those of its dataset and organization, as in
        ``acme/medical/patient``.

        Raises:
            NotFound, InvalidSetting: there is none of that name, or there are several.
        """
        return Schema(self._link, self._link.run(self._link.names.schema(name, dataset)))

    def record(self, id: str) -> Record:
        found = self._link.run(self._link.proxy.record(id))
        return Record(self._link, found["id"], found["schema"], found["data"])

    def jobs(self) -> Iterator[Job]:
        """Your jobs of the last thirty days, the newest first."""
        for one in self._link.each(self._link.proxy.jobs()):
            yield Job(self._link, one["job_id"])

    def job(self, id: str) -> Job:
        return Job(self._link, id)


class _Resource:
    """What datasets and schemas have in common. ``members`` is all that the service says of it."""

    def __init__(self, link: Link, members: Resource) -> None:
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

    def update(
        self, *, name: str | None = None, slug: str | None = None, description: str | None = None
    ) -> None:
        """Change what is named here; the rest stays."""
        self.members = self._link.run(
            self._link.proxy.change(self.url, name=name, slug=slug, description=description)
        )

    def delete(self, *, cascade: bool = False) -> None:
        """Delete it.

        Args:
            cascade: with all that is in it, which is refused otherwise.
        """
        self._link.run(self._link.proxy.delete(self.url, cascade=cascade))


class Dataset(_Resource):
    def schemas(self) -> Iterator[Schema]:
        for one in self._link.each(self._link.proxy.listing("schemas", dataset=self.id)):
            yield Schema(self._link, one)

    def create_schema(
        self,
        name: str,
        definition: Mapping[str, Any],
        *,
        slug: str | None = None,
        description: str | None = None,
    ) -> Schema:
        """A new schema; ``definition`` is its JSON Schema, as docs/http-api.md describes it."""
        found = self._link.run(
            self._link.proxy.create(
                "schemas",
                name=name,
                dataset=self.url,
                schema=definition,
                slug=slug,
                description=description,
            )
        )
        return Schema(self._link, found)


class Schema(_Resource):
    @property
    def definition(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.members["schema"]
        return found

    def ingest(self, rows: Rows, *, skip_invalid: bool = False, progress: bool = False) -> int:
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
        upload, offset = (None, 0)
        for piece in pieces(rows):
            if piece.rows and (not skip_invalid):
                return len(self._link.run(self._link.proxy.ingest(self.url, piece.rows)))
            if upload is None and (not piece.body):
                return 0
            if upload is None:
                upload = self._link.run(
                    self._link.proxy.begin_stream(
                        "rows.ndjson", schema=self.id, skip_invalid=skip_invalid
                    )
                )
            offset = self._link.run(
                self._link.proxy.append(upload[0], offset, piece.body, is_last=piece.is_last)
            )
        assert upload is not None
        job = Job(self._link, upload[1])
        done = job.wait(progress=progress)
        rejected = self._link.run(self._link.proxy.rejected_rows(job.id)) if skip_invalid else 0
        return done.total - rejected

    def upload(
        self, path: Path | str, *, skip_invalid: bool = False, batch_size: int | None = None
    ) -> Job:
        """Send a file of CSV, JSON or JSON lines, of any size, and begin the job that stores it.

        Connections may break: each attempt goes on with what the proxy does not have yet.
        """
        file = Path(path)
        upload, job = self._link.run(
            self._link.proxy.begin_upload(
                file,
                media_type_of(file),
                schema=self.id,
                batch_size=batch_size,
                skip_invalid=skip_invalid,
            )
        )
        self._link.run(self._link.proxy.send_upload(upload, file))
        return Job(self._link, job)

    def search(
        self,
        where: Where = None,
        *,
        order_by: Sequence[str] | None = None,
        fields: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Search:
        """The records that fit; nothing is asked before they are looked at.

        Args:
            where: see :data:`Where`; None selects all.
            order_by: field names, with ``-`` before those that descend.
            fields: which fields to return; None returns all.
            limit: the first so many; None is all.
        """
        return Search(self, where, order_by, fields, limit)

    def count(self, where: Where = None) -> int:
        """How many records fit. None is opened."""
        found = self._link.run(self._link.proxy.search(self.url, where=condition(where), limit=0))
        return found.count or 0

    def aggregate(self, *measures: str, where: Where = None, **options: Any) -> Any:
        """Measures of the records that fit, taken from the index.

        Args:
            measures: such as ``"avg(age)"``, ``"percentile(age, 50, 90)"`` or ``"count"``.
            options: ``group_by``, ``order``, ``limit``, as docs/http-api.md has them.
        """
        asked = [expressions.parse_measure(one) for one in measures or ("count",)]
        return self._link.run(
            self._link.proxy.aggregate(self.url, asked, where=condition(where), **options)
        )

    def delete_matching(self, where: Mapping[str, Any] | str, *, confirm: int) -> int:
        """Delete the records that fit; how many.

        Args:
            confirm: how many there have to be, such as :meth:`count` said; else nothing is deleted.
        """
        asked = condition(where) or {}
        return self._link.run(self._link.proxy.delete_matching(self.url, asked, confirm=confirm))


class Search:
    """Records that fit a condition, fetched page by page while they are looked at."""

    def __init__(
        self,
        schema: Schema,
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

    def __iter__(self) -> Iterator[Record]:
        cursor, left = (None, self._limit)
        while left != 0:
            page = self._link.run(
                self._link.proxy.search(
                    self._schema.url,
                    where=self._where,
                    order_by=self._order_by,
                    fields=self._fields,
                    limit=MAX_LIMIT if left is None else min(left, MAX_LIMIT),
                    cursor=cursor,
                    count=False,
                )
            )
            for one in page.results:
                yield Record(self._link, one.id, one.schema, one.data)
            cursor = page.next_cursor
            left = None if left is None else left - len(page.results)
            if cursor is None:
                return

    def to_arrow(self) -> Any:
        """All of them as a ``pyarrow.Table``, exact; absent values are nulls."""
        return rows.to_arrow(self._data(), self._shown())

    def to_pandas(self) -> Any:
        """All of them as a ``pandas.DataFrame``: integers as Int64, other numbers as float64, which
        may round them."""
        return rows.to_pandas(self._data(), self._shown())

    def _data(self) -> list[Mapping[str, Any]]:
        return [one.data for one in self]

    def _shown(self) -> Mapping[str, Any]:
        """The definition of the fields that are asked for."""
        specs = self._schema.definition["properties"]
        return {"properties": {name: specs[name] for name in self._fields or specs}}


class Record:
    """A record, opened. ``data`` is field names and values; ``schema`` is a path."""

    def __init__(self, link: Link, id: str, schema: str, data: Mapping[str, Any]) -> None:
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

    def update(self, data: Mapping[str, Any], *, replace: bool = False) -> None:
        """Change the fields in ``data``, where None removes one; or with ``replace`` all."""
        found = self._link.run(self._link.proxy.change_record(self.id, data, replace=replace))
        self.data = found["data"]

    def delete(self) -> None:
        self._link.run(self._link.proxy.delete_record(self.id))


class Job:
    """A batch job, which goes on whether somebody looks on or not."""

    def __init__(self, link: Link, id: str) -> None:
        self._link = link
        self.id = id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def status(self) -> JobProgress:
        return self._link.run(self._link.proxy.job(self.id))

    def watch(self) -> Iterator[JobProgress]:
        """Its progress now, its changes, and the last of them."""
        for one in self._link.each(self._link.proxy.watch(self.id)):
            yield one

    def wait(self, *, progress: bool = False) -> JobProgress:
        """Its last word, when it has completed.

        Args:
            progress: show a bar on a terminal.

        Raises:
            InvalidRecords: rows do not fit; ``flaws`` says which.
            ErsError: it failed for another reason.
        """
        with job_bar(shown=progress) as move:
            for one in self.watch():
                move(one.processed, one.total or None)
        if one.status == "completed":
            return one
        flaws = self.flaws()
        if flaws:
            raise InvalidRecords("rows were rejected, and nothing was stored", flaws=flaws)
        raise ErsError(one.error or "the job failed", code="job_failed")

    def flaws(self) -> tuple[Flaw, ...]:
        """What is wrong with which rows, up to the first thousand flaws."""
        found = []
        for one in self._link.each(self._link.proxy.job_errors(self.id)):
            found.append(Flaw(one["code"], one["detail"], row=one["row"], field=one.get("field")))
            if len(found) == _FLAWS:
                break
        return tuple(found)

    def cancel(self) -> None:
        """Cancel it, so that nothing of it is stored; or forget one that has ended."""
        self._link.run(self._link.proxy.cancel_job(self.id))


def condition(where: Where) -> Mapping[str, Any] | None:
    """
    Raises:
        BadInput: it is an expression that cannot be understood.
    """
    return expressions.parse(where) if isinstance(where, str) else where
