"""Import a table as an encrypted schema: each page is a batch job, and each row is stored once.

A page is stored all or none, and its job is recorded before its first row is sent. So a command
that resumes after a kill can determine the page's fate: a job without all its bytes is cancelled,
and its page is read again; a complete job is awaited. The position of the next page is read from
the stored records, or counted: the recorded state contains no value of any row.

A columnar file (Parquet, Arrow, Feather) is such a table, which can be read from any row on.

A schema for the table is made from the declared columns, and from rules beyond names and types that
only the table's owner can decide.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from encrypted_records import errors
from encrypted_records.cli.input.files import batches
from encrypted_records.cli.input.upload_sources import COLUMNAR, batches_of
from encrypted_records.cli.login.session import CommandSession
from encrypted_records.cli.state_file import StateFile
from encrypted_records.cli.terminal import format_count, warn
from encrypted_records.client.proxy.connection import ShownSchema
from encrypted_records.client.proxy.uploads import LocalFile
from encrypted_records.client.sdk.files import bar
from encrypted_records.client.sdk.frames import ColumnFacts, field_of, rows_of
from encrypted_records.client.sdk.names import as_sent
from encrypted_records.client.sdk.rows import encode_row
from encrypted_records.model import field_types
from encrypted_records.model.field_types import PLAIN, proposed_type
from encrypted_records.model.samples import FieldNote, FieldReading

#: Rows of a page, and thus the maximum to be sent again after a kill.
PAGE_ROWS = 20_000
#: Bytes per request.
_PIECE_BYTES = 4 << 20

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Shape:
    """The declared columns of a table.

    Attributes:
        fields: the field of the definition for each column.
        required: columns that must not be null.
        notes: remarks for the user to check, by column.
    """

    fields: dict[str, dict[str, Any]]
    required: list[str]
    notes: dict[str, str]


class SourceTable(ABC):
    """A source with ordered rows, which can be read from any pointer onwards.

    Attributes:
        mark: a text that identifies the source; it has no password and no value.
        name, group: default names of its schema and dataset.
    """

    mark: str
    name: str
    group: str

    @abstractmethod
    async def shape(self) -> Shape: ...

    @abstractmethod
    async def total(self) -> int:
        """The total number of rows."""

    @abstractmethod
    def rows(self, pointer: Any, most: int) -> AsyncGenerator[Row, None]:
        """The next rows after a pointer, at most ``most``."""

    @abstractmethod
    def after(self, pointer: Any, row: Row, count: int) -> Any:
        """The pointer after ``row``, the last of ``count`` rows after ``pointer``."""

    @abstractmethod
    async def resume(self, session: CommandSession, schema: ShownSchema, read: int) -> Any:
        """The pointer after the stored records, when ``read`` rows were read."""


class ImportProgress(msgspec.Struct, frozen=True):
    """The progress of an import.

    Attributes:
        schema: its path.
        read: rows of finished pages; ``stored``: those of them that were not rejected.
        job: the job of the current page; empty without one.
    """

    schema: str
    read: int = 0
    stored: int = 0
    job: str = ""


def remembered_imports() -> StateFile[ImportProgress]:
    """This user's unfinished imports on this machine."""
    return StateFile("imports", ImportProgress)


@dataclass(frozen=True)
class Outcome:
    """``rounded`` counts, by field, the values that this run has stored with fewer decimals than
    the table has.
    """

    schema: str
    stored: int
    rejected: int
    rounded: Mapping[str, int]


@dataclass
class Import:
    session: CommandSession
    table: SourceTable
    skip_invalid: bool = False
    page_rows: int = PAGE_ROWS

    def __post_init__(self) -> None:
        self._state = remembered_imports()
        self._rounded = Counter[str]()
        self._key = f"{self.session.address} {self.session.who.email} {self.table.mark}"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the table against other imports on this machine.

        Raises:
            Locked: another command imports it.
        """
        digest = hashlib.sha256(self._key.encode()).hexdigest()[:16]
        with self._state.lock_file(digest) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise errors.Locked(
                    f"another command is importing {self.table.name}",
                    hint="wait until it has ended",
                ) from None
            yield

    def find_begun(self) -> str | None:
        """The schema that an earlier command began to fill; None if there is none."""
        remembered = self._state.read().get(self._key)
        return None if remembered is None else remembered.schema

    def begin(self, schema: ShownSchema) -> None:
        """Record the schema that is filled from now on."""
        self._state.put(self._key, ImportProgress(schema.url))

    def forget(self) -> None:
        self._state.put(self._key, None)

    async def run(self, schema: ShownSchema, total: int) -> Outcome:
        """Store the remaining rows.

        Raises:
            InvalidRecords: rows of a page are invalid; nothing of it was stored.
            Conflict: the schema holds other records than this import stored.
        """
        done = await self._catch_up(schema)
        pointer = await self.table.resume(self.session, schema, done.read)
        rejected = 0
        if done.read:
            warn(f"continuing after {format_count(done.read, 'row')}")
        with bar("importing records") as move:
            move(done.read, total)
            while True:
                async with aclosing(self.table.rows(pointer, self.page_rows)) as rows:
                    page = _RowPage(self.table, rows, schema, pointer, done.read)
                    first = await page.begin()
                    if first is None:
                        break
                    job = await self._send(
                        page, first, schema, done, lambda count: move(count, max(total, count))
                    )
                bad = await self._finish(job, done)
                rejected += bad
                pointer = page.pointer
                done = ImportProgress(
                    done.schema, done.read + page.count, done.stored + page.count - bad
                )
                self._state.put(self._key, done)
        return Outcome(schema.url, done.stored, rejected, self._rounded)

    async def _send(
        self,
        page: _RowPage,
        first: bytes,
        schema: ShownSchema,
        done: ImportProgress,
        moved: Callable[[int], None],
    ) -> str:
        """Send a page; returns its job."""
        upload, job = await self.session.client.begin_stream(
            "rows.ndjson", schema=schema.id, skip_invalid=self.skip_invalid
        )
        # Before any row is sent: from now on, the job shows what happened to the rows.
        self._state.put(self._key, msgspec.structs.replace(done, job=job))
        offset = 0
        async for piece, is_last in page.pieces(first):
            offset = await self.session.client.append(upload, offset, piece, is_last=is_last)
            moved(done.read + page.count)
        return job

    async def _finish(self, job: str, done: ImportProgress) -> int:
        """The number of rejected rows of a page, when its job has ended.

        Raises:
            InvalidRecords: rows are invalid, and nothing of the page is stored.
            ErsError: it failed for another reason.
        """
        last = await self.session.client.wait(job)
        about = await self.session.client.job_about(job)
        bad = about.bad_rows
        if last.status == "completed":
            self._rounded.update(about.rounded)
            return bad
        self._state.put(self._key, done)
        if not bad:
            raise errors.ErsError(last.error or "the job failed", code="job_failed")
        flaws = [
            errors.Flaw(
                error.code,
                error.detail,
                row=None if error.row is None else done.read + error.row,
                field=error.field,
            )
            async for error in self.session.client.job_errors(job)
        ]
        raise errors.InvalidRecords(
            f"{format_count(bad, 'row')} of {self.table.name} did not match the schema",
            flaws=tuple(flaws),
            hint=f"{format_count(done.stored, 'record')} before this page are stored; correct the"
            " rows and repeat the command, or leave them out with --skip-invalid",
        )

    async def _catch_up(self, schema: ShownSchema) -> ImportProgress:
        """The progress after pending jobs of earlier commands have ended."""
        done = self._state.read()[self._key]
        if done.job:
            done = await self._settle(done)
            self._state.put(self._key, done)
        count = (await self.session.client.search(schema.url, limit=0)).count or 0
        if count != done.stored:
            raise errors.Conflict(
                f"the schema has {format_count(count, 'record')}, and this import stored"
                f" {done.stored}",
                code="import_disturbed",
                hint="somebody else stored or deleted records: import into another schema (--name)",
            )
        return done

    async def _settle(self, done: ImportProgress) -> ImportProgress:
        """Finish, or cancel, a page that an earlier command left; returns the progress after it."""
        client = self.session.client
        over = msgspec.structs.replace(done, job="")
        try:
            progress = await client.job(done.job)
            if progress.status == "uploading":
                # The job waits for bytes that never arrive. A cancelled job stores nothing.
                with suppress(errors.NotFound):
                    await client.cancel_job(done.job)
                return over
            last = await client.wait(done.job)
            about = await client.job_about(done.job)
        except errors.NotFound:
            return over  # forgotten; the count of the records tells if it was stored
        if last.status != "completed":
            return over
        self._rounded.update(about.rounded)
        stored = done.stored + last.total - about.bad_rows
        return ImportProgress(done.schema, done.read + last.total, stored)


class _RowPage:
    """The rows of a job."""

    def __init__(
        self,
        table: SourceTable,
        rows: AsyncIterator[Row],
        schema: ShownSchema,
        pointer: Any,
        before: int,
    ) -> None:
        self._rows = rows
        self._table = table
        self._specs: Mapping[str, Any] = schema.definition["properties"]
        self._before = before
        self._from = pointer
        self.pointer = pointer
        self.count = 0

    async def begin(self) -> bytes | None:
        """Its first line; None if there are no more rows."""
        row = await anext(self._rows, None)
        return None if row is None else self._line(row)

    async def pieces(self, first: bytes) -> AsyncIterator[tuple[bytes, bool]]:
        """Yield the bytes to send, and whether they are the last."""
        buffer = bytearray(first)
        async for row in self._rows:
            if len(buffer) >= _PIECE_BYTES:
                yield bytes(buffer), False
                buffer.clear()
            buffer += self._line(row)
        yield bytes(buffer), True

    def _line(self, row: Row) -> bytes:
        self.count += 1
        self.pointer = self._table.after(self._from, row, self.count)
        fitted = {name: _fit(value, self._specs.get(name)) for name, value in row.items()}
        present = {name: value for name, value in fitted.items() if value is not None}
        return encode_row(present, self._before + self.count)[1]


def _fit(value: Any, spec: Mapping[str, Any] | None) -> Any:
    """A value in the form for its field: numbers with more digits than JSON numbers may have become
    texts. A value that is not a number becomes a text, too, so that its row is rejected and counted
    like other invalid rows.
    """
    if isinstance(value, float | Decimal) and not is_finite(value):
        return str(value)
    if value is None or isinstance(value, str) or spec is None or PLAIN[spec["type"]].is_number:
        return value
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value) if isinstance(value, int | float) else value


def is_finite(value: float | Decimal) -> bool:
    return value.is_finite() if isinstance(value, Decimal) else isfinite(value)


class ColumnFile(SourceTable):
    """A columnar file, whose pointers are row numbers; a changed file counts as another file."""

    def __init__(self, path: str) -> None:
        if Path(path).suffix.lower() not in COLUMNAR:
            raise errors.InvalidSetting(
                f"{path} is not a Parquet, Arrow or Feather file",
                hint="import CSV and JSON under their own names: ers import FILE.csv",
            )
        #: read several times, but opened once, so that all reads see the same rows
        self._file = LocalFile(Path(path))
        next(batches_of(self._file), None)  # raises an error if the file is unreadable
        self.name = self._file.path.stem
        self.group = "Imported files"
        #: the number of the next row, and the iterator that reads from there
        self._reading: tuple[int, Iterator[Row]] | None = None
        self.mark = f"file {self._file.mark}"

    async def shape(self) -> Shape:
        return await asyncio.to_thread(self._shape)

    def _shape(self) -> Shape:
        seen: dict[str, ColumnFacts] = {}
        declared: Any = None
        for batch in batches_of(self._file):
            declared = batch.schema
            for column, arrow_field in zip(batch.columns, declared, strict=True):
                seen.setdefault(arrow_field.name, ColumnFacts()).add(column, arrow_field)
        if declared is None:
            raise errors.InvalidSetting("the file is empty: it has no columns")
        fields: dict[str, dict[str, Any]] = {}
        notes: dict[str, str] = {}
        for arrow_field in declared:
            fields[arrow_field.name], note = field_of(arrow_field, seen[arrow_field.name])
            if note:
                notes[arrow_field.name] = note
        return Shape(
            fields,
            [arrow_field.name for arrow_field in declared if not arrow_field.nullable],
            notes,
        )

    async def total(self) -> int:
        return sum(batch.num_rows for batch in batches_of(self._file))

    async def rows(self, pointer: Any, most: int) -> AsyncGenerator[Row, None]:
        if self._reading is None or self._reading[0] != pointer:
            self._reading = pointer, self._rows(int(pointer))
        rows = self._reading[1]
        count = 0
        async for batch in batches(islice(rows, most), 1000):
            for row in batch:
                yield row
            count += len(batch)
        self._reading = pointer + count, rows

    def after(self, pointer: Any, row: Row, count: int) -> int:
        return int(pointer or 0) + count

    async def resume(self, session: CommandSession, schema: ShownSchema, read: int) -> int:
        return read

    def _rows(self, skipped: int) -> Iterator[Row]:
        left = skipped
        for batch in batches_of(self._file):
            if left >= batch.num_rows:
                left -= batch.num_rows
                continue
            yield from cast(Iterator[Mapping[str, Any]], rows_of(batch.slice(left)))
            left = 0


#: Observations of each field.
Notes = Mapping[str, FieldNote | FieldReading]


@dataclass(frozen=True)
class WantedRules:
    """The fields that get a list of allowed values, are unique, or are required; and whether bounds
    are close to the observed values.
    """

    enum: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    tight: bool = False

    def apply(self, definition: dict[str, Any], notes: Notes) -> None:
        """Add the wanted rules to a definition.

        Raises:
            InvalidSetting: there is no such field, or the observed rows contradict a rule.
        """
        fields = definition["properties"]
        for name in (*self.enum, *self.unique, *self.required):
            if name not in fields:
                raise errors.InvalidSetting(f"the file has no field {name}")
        for name in self.enum:
            values = notes[name].values
            if not proposed_type(fields[name]).is_text or not values:
                raise errors.InvalidSetting(
                    f"{name} is not a text column with few values", hint=f"leave out --enum {name}"
                )
            fields[name] = {"type": "string", "enum": values}
        for name in self.required:
            if notes[name].absent:
                rows = format_count(notes[name].absent, "row")
                raise errors.InvalidSetting(f"{name} is missing in {rows}: it cannot be required")
        for name in self.unique:
            if not notes[name].unique:
                raise errors.InvalidSetting(
                    f"a value of {name} occurs more than once, or is missing: it cannot be unique",
                    hint=f"correct the rows, or leave out --unique {name}",
                )
        if self.required:
            definition["required"] = list(dict.fromkeys(self.required))
        if self.unique:
            definition["unique"] = [[name] for name in dict.fromkeys(self.unique)]


def takes_wanted_rules(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :class:`WantedRules`, which the command gets as ``rules``."""

    @click.option(
        "--enum",
        multiple=True,
        metavar="FIELD",
        help="Allow only the file's values in this field; the API can read this list.",
    )
    @click.option(
        "--unique",
        multiple=True,
        metavar="FIELD",
        help="Refuse two records with the same value of this field.",
    )
    @click.option(
        "--required", multiple=True, metavar="FIELD", help="Require this field in every record."
    )
    @click.option("--tight", is_flag=True, help="Propose bounds close to the file's numbers.")
    @functools.wraps(command)
    def with_rules(
        *arguments: Any,
        enum: tuple[str, ...],
        unique: tuple[str, ...],
        required: tuple[str, ...],
        tight: bool,
        **options: Any,
    ) -> Any:
        return command(*arguments, rules=WantedRules(enum, unique, required, tight), **options)

    return with_rules


def tell_of(notes: Notes, definition: Mapping[str, Any]) -> None:
    """Print remarks about fields on stderr, and how many values of each the API can read."""
    for name, note in notes.items():
        listed = definition["properties"][name].get("enum", [])
        if listed:
            warn(
                f"{name}: the API can read its {format_count(len(listed), 'value')} in the"
                " definition; a record with another value is refused"
            )
        elif note.note:
            warn(f"{name}: {note.note}")


def definition_of(shape: Shape, rules: WantedRules) -> dict[str, Any]:
    """The proposed definition for a table; remarks are printed on stderr.

    Raises:
        InvalidSetting: a wanted rule names no column, or a column of the wrong type.
    """
    definition = field_types.propose_definition(dict(shape.fields), shape.required)
    # No row is examined: the notes exclude no rule but a list of values.
    notes = {
        name: FieldNote(name, 0, 0, shape.notes.get(name), None, None, None, None, unique=True)
        for name in shape.fields
    }
    rules.apply(definition, notes)
    tell_of(notes, definition)
    return definition


async def make_schema(
    session: CommandSession,
    table: SourceTable,
    dataset: str | None,
    name: str | None,
    rules: WantedRules,
) -> ShownSchema:
    """Create a schema for a table, and its dataset if it is missing.

    Raises:
        Conflict: ``slug_taken``; a schema with that name exists, and this import did not create it.
    """
    definition = definition_of(await table.shape(), rules)
    return await create_schema(
        session,
        dataset or table.group,
        name or table.name,
        definition,
        hint="choose another name with --name; only the machine that began an import can continue"
        " it",
    )


async def create_schema(
    session: CommandSession, dataset: str, name: str, definition: Mapping[str, Any], *, hint: str
) -> ShownSchema:
    """Create a schema, and its dataset if it is missing.

    An existing schema of that name is used if it has this definition and no records, and no other
    import has begun to fill it: an interrupted command may have created it.

    Args:
        hint: the next step if another schema has that name, whose path replaces ``{path}``.

    Raises:
        Conflict: ``slug_taken``; another schema has that name.
    """
    try:
        parent = await session.names.dataset(dataset)
    except errors.NotFound:
        if "/" in dataset:
            raise
        organization = (await session.names.organization()).url
        parent = await session.client.create_dataset(name=dataset, organization=organization)
    async for resource in session.client.read_all(ShownSchema, dataset=parent.id, name=name):
        path = f"{parent.slug}/{resource.slug}"
        if await _is_unused(session, resource, definition):
            warn(f"continuing with the schema {path}, which has no records yet")
            return resource
        reason = f"a schema {path} already exists"
        raise errors.Conflict(reason, code="slug_taken", hint=hint.format(path=path))
    return await session.client.create_schema(name=name, dataset=parent.url, definition=definition)


async def _is_unused(
    session: CommandSession, schema: ShownSchema, definition: Mapping[str, Any]
) -> bool:
    """Whether a schema has this definition, no records, and no running import."""
    begun = {remembered.schema for remembered in remembered_imports().read().values()}
    if schema.url in begun or as_sent(schema.definition) != as_sent(definition):
        return False
    return (await session.client.search(schema.url, limit=0)).count == 0
