"""Columns of the records that a condition selects as a stream of Arrow, a window at a time.

Every row is of one version of the log. Rows come segment by segment, in the order in which each
stores them. No record is opened, but for texts that are longer than an index key holds, and where
the condition leaves a record open.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow

from encrypted_records.crypto.format import INDEX_KEY_BYTES
from encrypted_records.index.ordinals import Ordinals, ordinals
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.column_windows import (
    FieldValues,
    read_long_texts,
    read_window,
)
from encrypted_records.index.query.matching import match_rows
from encrypted_records.index.segments.loaded import OpenedSegment
from encrypted_records.model.condition_parser import Conditions
from encrypted_records.model.definition import FieldSpec, SchemaDefinition
from encrypted_records.model.joins import Joins
from encrypted_records.model.predicates import Predicate
from encrypted_records.model.queries import parse_fields, refuse_unknown
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.search import arrow_values
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.export import named_if_gone, put_first
from encrypted_records.proxy.search.holding import VersionHold, holding
from encrypted_records.proxy.search.joins import parse_body

#: Bytes of the values of one window, by the widest that its fields can have.
WINDOW_BYTES = 64 << 20
#: The same where a batch of so many rows would take more.
MOST_WINDOW_BYTES = 256 << 20
#: Rows of one record batch.
BATCH_ROWS = 1 << 17
_MEMBERS = frozenset({"schema", "fields", "where", "filters"})

Pieces = AsyncGenerator[bytes, None]


@dataclass(frozen=True, slots=True)
class Columns:
    """``pieces`` is the stream, which may be read once; the caller closes it. ``version`` is that
    of the log."""

    version: int
    pieces: Pieces


@dataclass(frozen=True, slots=True)
class _Asked:
    fields: tuple[str, ...]
    where: Predicate


def _parse(body: Mapping[str, Any], definition: SchemaDefinition, joins: Joins) -> _Asked:
    refuse_unknown(body, _MEMBERS)
    conditions = Conditions(definition, joins)
    where = conditions.read(body)
    fields = parse_fields(body.get("fields"), conditions)
    # A field that is named twice is sent once.
    return _Asked(tuple(dict.fromkeys(definition.fields if fields is None else fields)), where)


async def read_columns(
    runner: QueryRunner, caller: Holder, schema: bytes, body: Mapping[str, Any]
) -> Columns:
    """The columns that a request asks for.

    The first window is read before this returns, so that an HTTP status can still report most
    errors.

    Raises:
        InvalidQuery: it cannot be asked.
        ErsError: as :meth:`QueryRunner.ask`.
    """

    async def question(context: QueryContext) -> Columns:
        asked = await parse_body(_parse, body, context)
        condition = await context.condition(asked.where)
        parts = await context.run(match_rows(context.space, condition))
        windows = list(_windows(context, parts, asked.fields))
        pieces = _write(context, windows, asked.fields)
        if len(windows) > 1:
            hold = VersionHold.of_export(context.upstream)
            await hold.begin()
            pieces = holding(hold, pieces)
        first = await anext(pieces)
        return Columns(
            context.snapshot.version,
            named_if_gone(runner, context, put_first(first, pieces)),
        )

    return await runner.ask(caller, schema, question)


# --- windows --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Window:
    """The rows of one segment from the ``first`` to before the ``end`` of those that match."""

    part: Candidates
    first: int
    end: int

    def rows(self) -> Ordinals:
        return ordinals(self.part.matches.possible[self.first : self.end])


def _windows(
    context: QueryContext, parts: Sequence[Candidates], fields: Sequence[str]
) -> Iterator[_Window]:
    width = sum(_width(context.definition.fields[name]) for name in fields)
    width = max(1, width)
    most = max(BATCH_ROWS, WINDOW_BYTES // width)
    # A batch of hundreds of fields has fewer rows.
    most = max(1, min(most, MOST_WINDOW_BYTES // width))
    for part in parts:
        for first in range(0, len(part), most):
            yield _Window(part, first, min(len(part), first + most))


def _width(spec: FieldSpec) -> int:
    """Bytes of a row's number, and of its key, which may be one of its own."""
    if spec.field_type.is_text:
        return 8 + INDEX_KEY_BYTES
    return 8 + (16 if spec.kind.of_bytes else 8)


async def _write(
    context: QueryContext, windows: Sequence[_Window], fields: Sequence[str]
) -> Pieces:
    """The stream in nonempty pieces: its schema in the first, its end in the last."""
    specs = [context.definition.fields[name] for name in fields]
    told = {
        "log_version": str(context.snapshot.version),
        "definition": context.definition.columns_digest,
    }
    kind = pyarrow.schema([arrow_values.field_of(spec) for spec in specs], told)
    sink = _Sink()
    # It is closed at the end of a whole stream alone: a thread may still write when another ends.
    writer = pyarrow.ipc.new_stream(sink, kind)
    for window in windows:
        async for batch in _batches(context, window, specs, kind):
            yield await aside(sink.write_batch, writer, batch)
    writer.close()
    yield sink.take()


async def _batches(
    context: QueryContext, window: _Window, specs: Sequence[FieldSpec], kind: pyarrow.Schema
) -> AsyncGenerator[pyarrow.RecordBatch, None]:
    segment: OpenedSegment = window.part.segment  # type: ignore[assignment] # of either form
    rows = await aside(window.rows)
    names = [spec.name for spec in specs]
    values = await context.run(read_window(context.space, segment, names, rows))
    for first, end in await aside(_cut, values, len(rows), context.fetcher.window(context.state)):
        some = await aside(_part, values, first, end)
        texts = await context.run(
            read_long_texts(context.space, window.part.places, rows[first:end], some)
        )
        yield await aside(_batch_of, specs, kind, some, texts, end - first)


def _cut(values: Mapping[str, FieldValues], rows: int, opened: int) -> list[tuple[int, int]]:
    """The first row of each batch, and that after its last: at most ``opened`` rows where texts
    are read from opened records."""
    has_long = any(len(field.long) for field in values.values())
    most = min(BATCH_ROWS, opened) if has_long else BATCH_ROWS
    return [(first, min(rows, first + most)) for first in range(0, rows, most)]


def _part(values: Mapping[str, FieldValues], first: int, end: int) -> dict[str, FieldValues]:
    return {name: field.part(first, end) for name, field in values.items()}


def _batch_of(
    specs: Sequence[FieldSpec],
    kind: pyarrow.Schema,
    values: Mapping[str, FieldValues],
    texts: Mapping[str, Mapping[int, str]],
    rows: int,
) -> pyarrow.RecordBatch:
    if not specs:
        # Without a column, the number of rows is all there is.
        none = pyarrow.Array.from_buffers(pyarrow.struct([]), rows, [None])
        return pyarrow.RecordBatch.from_struct_array(none)
    arrays = [
        arrow_values.array_of(spec, values[spec.name], texts.get(spec.name, {})) for spec in specs
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=kind)


class _Sink:
    """A file that keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def write_batch(self, writer: pyarrow.RecordBatchStreamWriter, batch: Any) -> bytes:
        writer.write_batch(batch)
        return self.take()

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken
