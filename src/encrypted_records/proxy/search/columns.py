"""Columns of the records that a condition selects as a stream of Arrow, a window at a time.

Every row is of one version of the log. Rows come segment by segment, in the order in which each
stores them. No record is opened, but for texts that are longer than an index key holds, and where
the condition leaves a record open. The first records of an order are found and opened as those of a
search are.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow

from encrypted_records.index.ordinals import Ordinals, ordinals
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.column_windows import (
    FieldValues,
    WindowPlan,
    plan_windows,
    read_field,
    read_long_texts,
)
from encrypted_records.index.query.matching import match_rows
from encrypted_records.index.query.pages import find_top
from encrypted_records.index.segments.loaded import OpenedSegment
from encrypted_records.model.condition_parser import Conditions, invalid_query
from encrypted_records.model.definition import FieldSpec, SchemaDefinition
from encrypted_records.model.joins import Joins
from encrypted_records.model.predicates import Predicate
from encrypted_records.model.queries import (
    MAX_LIMIT,
    Rank,
    parse_fields,
    parse_ranking,
    refuse_unknown,
    whole_number,
)
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.search import arrow_values
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.export import named_if_gone, put_first
from encrypted_records.proxy.search.holding import VersionHold, holding
from encrypted_records.proxy.search.joins import parse_body

#: Bytes of the values of one window, about, and the same where a window of so many rows takes more.
WINDOW_BYTES, WINDOW_ROWS = 128 << 20, 1 << 20
MOST_WINDOW_BYTES = 192 << 20
#: Rows of one record batch.
BATCH_ROWS = 1 << 17
_MEMBERS = frozenset({"schema", "fields", "where", "filters", "order_by", "limit", "offset"})

Pieces = AsyncGenerator[bytes, None]


@dataclass(frozen=True, slots=True)
class ColumnStream:
    """``pieces`` is the stream, which may be read once; the caller closes it. ``version`` is that
    of the log."""

    version: int
    pieces: Pieces


@dataclass(frozen=True, slots=True)
class _Asked:
    """``limit`` None is all records that match; else ``offset`` more than it are sent."""

    fields: tuple[str, ...]
    where: Predicate
    ranks: tuple[Rank, ...]
    limit: int | None
    offset: int


def _parse(body: Mapping[str, Any], definition: SchemaDefinition, joins: Joins) -> _Asked:
    refuse_unknown(body, _MEMBERS)
    conditions = Conditions(definition, joins)
    where = conditions.read(body)
    fields = parse_fields(body.get("fields"), conditions)
    ranks = parse_ranking(body.get("order_by"), conditions)
    limit = body.get("limit")
    if limit is not None:
        limit = whole_number(limit, "/limit", 1, MAX_LIMIT)
    elif ranks:
        raise invalid_query("order_by", "columns have an order with a limit alone", "/order_by")
    offset = whole_number(body.get("offset", 0), "/offset", 0, MAX_LIMIT if limit else 0)
    for position, rank in enumerate(ranks):
        spec = definition.fields[rank.key.field]
        if not spec.field_type.is_text and spec.field_type.column_type(spec) == "string":
            detail = "the field's numbers are sent as texts, which have another order"
            raise invalid_query("order_by", detail, f"/order_by/{position}")
    # A field that is named twice is sent once.
    chosen = tuple(dict.fromkeys(definition.fields if fields is None else fields))
    return _Asked(chosen, where, ranks, limit, offset)


async def read_columns(
    runner: QueryRunner, caller: Holder, schema: bytes, body: Mapping[str, Any]
) -> ColumnStream:
    """The columns that a request asks for.

    The first window is read before this returns, so that an HTTP status can still report most
    errors.

    Raises:
        InvalidQuery: it cannot be asked.
        ErsError: as :meth:`QueryRunner.ask`.
    """

    async def question(context: QueryContext) -> ColumnStream:
        asked = await parse_body(_parse, body, context)
        if asked.limit is not None:
            want, later = asked.offset + asked.limit, asked.offset > 0
            records = await context.run(
                find_top(context.space, asked.where, asked.ranks, want, later=later)
            )
            piece = await aside(_write_records, context, records, asked.fields)
            return ColumnStream(context.snapshot.version, _whole(piece))
        condition = await context.condition(asked.where)
        parts = await context.run(match_rows(context.space, condition))
        pieces = _write(context, parts, asked.fields)
        if sum(map(len, parts)) > BATCH_ROWS:
            hold = VersionHold.of_export(context.upstream)
            await hold.begin()
            pieces = holding(hold, pieces)
        first = await anext(pieces)
        return ColumnStream(
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


def _windows(part: Candidates, row_bytes: int) -> Iterator[_Window]:
    """Windows of about the same size: for each of them, columns that are not kept are read once."""
    most = max(WINDOW_ROWS, WINDOW_BYTES // row_bytes)
    # A window of hundreds of fields has fewer rows.
    most = max(1, min(most, MOST_WINDOW_BYTES // row_bytes))
    size = -(-len(part) // -(-len(part) // most))
    for first in range(0, len(part), size):
        yield _Window(part, first, min(len(part), first + size))


async def _write(
    context: QueryContext, parts: Sequence[Candidates], fields: Sequence[str]
) -> Pieces:
    """The stream in nonempty pieces: its schema in the first, its end in the last."""
    specs = [context.definition.fields[name] for name in fields]
    kind, sink = _schema_of(context, specs), _Sink()
    # It is closed at the end of a whole stream alone: a thread may still write when another ends.
    writer = pyarrow.ipc.new_stream(sink, kind)
    for part in parts:
        if not len(part):
            continue
        segment: OpenedSegment = part.segment  # type: ignore[assignment] # of either form
        plan = await context.run(plan_windows(context.space, segment, fields))
        for window in _windows(part, plan.row_bytes):
            async for batch in _batches(context, window, specs, kind, plan):
                yield await aside(sink.write_batch, writer, batch)
    writer.close()
    yield sink.take()


def _write_records(
    context: QueryContext, records: Sequence[PlainRecord], fields: Sequence[str]
) -> bytes:
    """The whole stream of some records."""
    specs = [context.definition.fields[name] for name in fields]
    kind, sink = _schema_of(context, specs), _Sink()
    writer = pyarrow.ipc.new_stream(sink, kind)
    if records:
        arrays = {
            spec.name: arrow_values.array_of_values(
                spec, [record.data.get(spec.name) for record in records]
            )
            for spec in specs
        }
        writer.write_batch(_batch_of(specs, kind, arrays, 0, len(records), {}, {}))
    writer.close()
    return sink.take()


async def _whole(piece: bytes) -> Pieces:
    yield piece


def _schema_of(context: QueryContext, specs: Sequence[FieldSpec]) -> pyarrow.Schema:
    told = {
        "log_version": str(context.snapshot.version),
        "definition": context.definition.columns_digest,
    }
    return pyarrow.schema([arrow_values.field_of(spec) for spec in specs], told)


async def _batches(
    context: QueryContext,
    window: _Window,
    specs: Sequence[FieldSpec],
    kind: pyarrow.Schema,
    plan: WindowPlan,
) -> AsyncGenerator[pyarrow.RecordBatch, None]:
    segment: OpenedSegment = window.part.segment  # type: ignore[assignment] # of either form
    rows = await aside(window.rows)
    texts: dict[str, FieldValues] = {}
    arrays: dict[str, pyarrow.Array] = {}
    for spec in specs:
        reading = read_field(context.space, segment, spec.name, rows, keep=spec.name in plan.kept)
        values = await context.run(reading)
        if spec.field_type.is_text:
            texts[spec.name] = values
        else:
            arrays[spec.name] = await aside(arrow_values.array_of, spec, values)
        del values
    for first, end in await aside(_cut, texts, len(rows), context.fetcher.window(context.state)):
        some = await aside(_part, texts, first, end)
        long = await context.run(
            read_long_texts(context.space, window.part.places, rows[first:end], some)
        )
        yield await aside(_batch_of, specs, kind, arrays, first, end, some, long)


def _cut(texts: Mapping[str, FieldValues], rows: int, opened: int) -> list[tuple[int, int]]:
    """The first row of each batch, and that after its last: at most ``opened`` rows where texts
    are read from opened records."""
    has_long = any(len(field.long) for field in texts.values())
    most = min(BATCH_ROWS, opened) if has_long else BATCH_ROWS
    return [(first, min(rows, first + most)) for first in range(0, rows, most)]


def _part(values: Mapping[str, FieldValues], first: int, end: int) -> dict[str, FieldValues]:
    return {name: field.part(first, end) for name, field in values.items()}


def _batch_of(
    specs: Sequence[FieldSpec],
    kind: pyarrow.Schema,
    arrays: Mapping[str, pyarrow.Array],
    first: int,
    end: int,
    texts: Mapping[str, FieldValues],
    long: Mapping[str, Mapping[int, str]],
) -> pyarrow.RecordBatch:
    if not specs:
        # Without a column, the number of rows is all there is.
        none = pyarrow.Array.from_buffers(pyarrow.struct([]), end - first, [None])
        return pyarrow.RecordBatch.from_struct_array(none)
    columns = [
        arrow_values.texts_of(texts[spec.name], long.get(spec.name, {}))
        if spec.name in texts
        else arrays[spec.name][first:end]
        for spec in specs
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=kind)


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
