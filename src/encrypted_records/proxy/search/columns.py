"""Columns of the records that a condition selects as an Arrow stream, a window at a time.

All rows are of one version of the log. They come segment by segment, in the order in which each
segment stores them. Records are opened only for texts that are longer than an index key holds, and
where the index does not decide whether a record matches. If the query has an order, its first
records are found and opened like those of a search.

Keys become exact Arrow arrays, without a Python value for each row. Requires pyarrow, which is part
of the extra ``sql``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_PREFIX, UUID_KEY_BYTES
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.packing import matrix
from encrypted_records.index.ordinals import Ordinals, ordinals
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.column_windows import (
    Codes,
    FieldValues,
    RowKeys,
    WindowPlan,
    is_sent_as_text,
    plan_windows,
    read_field,
    read_long_texts,
)
from encrypted_records.index.query.matching import match_rows
from encrypted_records.index.query.pages import find_top
from encrypted_records.index.segments.loaded import OpenedSegment
from encrypted_records.model.definition import FieldSpec, SchemaDefinition, Value
from encrypted_records.model.field_types.base import text_of
from encrypted_records.model.field_types.calendar import MICROSECONDS_PER_DAY
from encrypted_records.model.predicates import Joins, Predicate
from encrypted_records.model.queries import (
    MAX_LIMIT,
    Conditions,
    Rank,
    invalid_query,
    parse_fields,
    parse_ranking,
    refuse_unknown,
    whole_number,
)
from encrypted_records.model.records import PlainRecord
from encrypted_records.model.texts import comparable
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import aside
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.export import conflict_if_gone
from encrypted_records.proxy.search.joins import parse_body
from encrypted_records.proxy.search.upstream import DeferredHold, VersionHold

#: Days from January 1 of the year 1, where grids begin, to January 1, 1970.
_EPOCH = date(1970, 1, 1).toordinal() - 1
_WORD = 1 << 64
_BYTE_OF_ESCAPES = b"\x01"


def field_of(spec: FieldSpec) -> pyarrow.Field:
    """The Arrow field for a schema's field: texts are dictionaries."""
    kind = _type_of(spec)
    if pyarrow.types.is_string(kind):
        kind = pyarrow.dictionary(pyarrow.int32(), kind)
    return pyarrow.field(spec.name, kind)


def _type_of(spec: FieldSpec) -> pyarrow.DataType:
    name = spec.field_type.column_type(spec)
    known = {
        "date32[day]": pyarrow.date32(),
        "time64[us]": pyarrow.time64("us"),
        "timestamp[us]": pyarrow.timestamp("us"),
        "timestamp[us, tz=UTC]": pyarrow.timestamp("us", "UTC"),
        "duration[us]": pyarrow.duration("us"),
        "uuid": pyarrow.uuid(),
    }
    if name.startswith("decimal128"):
        digits, decimals = name.removeprefix("decimal128(").removesuffix(")").split(", ")
        return pyarrow.decimal128(int(digits), int(decimals))
    return known[name] if name in known else pyarrow.type_for_alias(name)


def array_of_values(spec: FieldSpec, given: Sequence[Value]) -> pyarrow.Array:
    """The values of a field in some records; None is an absent value."""
    if spec.field_type.is_text:
        texts = [None if value is None else comparable(str(value)) for value in given]
        return pyarrow.array(texts, pyarrow.string()).dictionary_encode()
    present = values.present_values(given)
    make = values.uuid_keys if spec.kind.of_bytes else partial(values.to_offsets, spec)
    is_present = np.array([value is not None for value in given], np.bool_)
    return array_of(
        spec, FieldValues(make(present), np.where(is_present, np.cumsum(is_present), 0))
    )


def array_of(spec: FieldSpec, given: FieldValues | RowKeys) -> pyarrow.Array:
    """The values of a field, which does not hold texts, in some rows. Row-major keys are
    overwritten.

    Raises:
        DoesNotOpen: a key stands for no value of the field.
    """
    kind = _type_of(spec)
    if pyarrow.types.is_string(kind):
        assert isinstance(given, FieldValues)
        return _dictionary(_written(spec, given.keys), given.codes)
    if isinstance(given, RowKeys):
        cells, present = _cells(spec, kind, given.keys), given.present
    else:
        first = np.zeros(1, given.keys.dtype)  # for absent rows
        keys = np.concatenate((first, given.keys))
        cells, present = _cells(spec, kind, keys).take(given.codes, axis=0), given.codes != 0
    rows = len(cells)
    if pyarrow.types.is_boolean(kind):
        cells = np.packbits(cells, bitorder="little")
    if spec.kind.of_bytes:
        storage = _filled(pyarrow.binary(UUID_KEY_BYTES), rows, cells, present)
        return pyarrow.ExtensionArray.from_storage(pyarrow.uuid(), storage)
    return _filled(kind, rows, cells, present)


# --- texts ----------------------------------------------------------------------------------------


def texts_of(given: FieldValues, long: Mapping[int, str]) -> pyarrow.Array:
    """The values of a text field in some rows.

    Args:
        long: the texts that are longer than keys hold, by the keys' indexes.

    Raises:
        DoesNotOpen: a key holds no text.
    """
    return _dictionary(_texts(given.keys, long), given.codes)


def _texts(keys: Keys, long: Mapping[int, str]) -> pyarrow.Array:
    if keys.dtype.itemsize > INDEX_KEY_PREFIX:
        keys = keys.astype(f"S{INDEX_KEY_PREFIX}")
    padded = keys.tobytes()
    if long or _BYTE_OF_ESCAPES in padded:
        long_texts = (long.get(at) for at in range(len(keys)))
        return pyarrow.array(
            [
                values.text_of(bytes(key)) if text is None else text
                for key, text in zip(keys.tolist(), long_texts, strict=True)
            ],
            pyarrow.string(),
        )
    offsets = np.zeros(len(keys) + 1, np.int32)
    np.cumsum(np.strings.str_len(keys), out=offsets[1:])
    # Order bytes contain no zero, so all nonzero bytes are text.
    data = padded.translate(None, b"\0")
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
    texts = pyarrow.Array.from_buffers(pyarrow.string(), len(keys), buffers)
    try:
        texts.validate(full=True)
    except pyarrow.ArrowInvalid:
        raise DoesNotOpen("an index key contains no text") from None
    return texts


def _written(spec: FieldSpec, keys: Keys) -> pyarrow.Array:
    """Numbers with more digits than Arrow decimals hold, as text."""
    shown = [text_of(values.from_key(spec, key)) for key in keys.tolist()]
    return pyarrow.array(shown, pyarrow.string())


def _dictionary(texts: pyarrow.Array, codes: Codes) -> pyarrow.Array:
    indices = codes.astype(np.int32)
    indices -= np.int32(1)
    places = _filled(pyarrow.int32(), len(indices), indices, codes != 0)
    return pyarrow.DictionaryArray.from_arrays(places, texts)


# --- points and uuids -----------------------------------------------------------------------------


def _cells(spec: FieldSpec, kind: pyarrow.DataType, keys: Keys) -> NDArray[Any]:
    """The values of keys in Arrow's representation; for booleans, whether each is true. The keys
    are overwritten."""
    if spec.kind.of_bytes:
        return matrix(keys).view(np.uint64)
    rules = spec.numbers
    if len(keys) and int(keys.max()) > rules.highest - rules.lowest:
        raise DoesNotOpen("an encrypted number is outside its field's bounds")
    if pyarrow.types.is_decimal(kind):
        return _wide(keys, rules.lowest)
    # Modulo 2**64: a result that fits is right.
    keys += np.uint64(_start(kind, rules.lowest) % _WORD)
    points = keys.view(np.int64)
    if pyarrow.types.is_boolean(kind):
        return points.astype(np.bool_)
    return points.astype(np.int32) if kind.bit_width == 32 else points


def _start(kind: pyarrow.DataType, lowest: int) -> int:
    """Arrow's number for the point at which a grid begins."""
    if pyarrow.types.is_date32(kind):
        return lowest - _EPOCH
    if pyarrow.types.is_timestamp(kind):
        return lowest - _EPOCH * MICROSECONDS_PER_DAY
    return lowest


def _wide(offsets: NDArray[np.uint64], lowest: int) -> NDArray[np.uint64]:
    """Points as 128-bit numbers, lower half first."""
    low, high = np.uint64(lowest % _WORD), np.uint64((lowest >> 64) % _WORD)
    offsets += low
    words = np.empty((len(offsets), 2), np.uint64)
    words[:, 0] = offsets
    words[:, 1] = high
    words[:, 1] += offsets < low
    return words


def _filled(
    kind: Any, rows: int, cells: NDArray[Any], present: NDArray[np.bool_] | None
) -> pyarrow.Array:
    """An array made of these bytes. ``pyarrow.array`` would import pandas, if installed, which
    takes as long as several columns."""
    mask = None
    if present is not None and not present.all():
        mask = pyarrow.py_buffer(np.packbits(present, bitorder="little"))
    return pyarrow.Array.from_buffers(kind, rows, [mask, pyarrow.py_buffer(cells)])


# --- the stream -----------------------------------------------------------------------------------

#: A window has as many rows as have this many bytes of values, but at least this many rows, as long
#: as these do not exceed the maximum size below.
WINDOW_BYTES, WINDOW_ROWS = 96 << 20, 1 << 20
MOST_WINDOW_BYTES = 192 << 20
#: Rows of one record batch.
BATCH_ROWS = 1 << 17
#: Writes of fewer bytes are joined with adjacent writes.
_SMALL_BYTES = 64 << 10
#: Up to this many bytes, the distinct texts of a window are sent once, not with each batch.
_FEW_BYTES = 64 << 10
_MEMBERS = frozenset({"schema", "fields", "where", "filters", "order_by", "limit", "offset"})

#: A piece of the stream; most pieces are views of Arrow's memory.
Piece = bytes | memoryview
Pieces = AsyncGenerator[Piece, None]


@dataclass(frozen=True, slots=True)
class ColumnStream:
    """``first`` is the beginning of the stream, of the first window. ``rest`` may be read once, and
    the caller closes it. ``version`` is the version of the log."""

    version: int
    first: Piece
    rest: Pieces


@dataclass(frozen=True, slots=True)
class _ColumnsQuery:
    """If ``limit`` is None, all matching records are sent; else ``limit`` plus ``offset``."""

    fields: tuple[str, ...]
    where: Predicate
    ranks: tuple[Rank, ...]
    limit: int | None
    offset: int


def _parse(body: Mapping[str, Any], definition: SchemaDefinition, joins: Joins) -> _ColumnsQuery:
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
        if not spec.field_type.is_text and is_sent_as_text(spec):
            detail = "the field's numbers are sent as texts, which have another order"
            raise invalid_query("order_by", detail, f"/order_by/{position}")
    # A field that is named twice is sent once.
    chosen = tuple(dict.fromkeys(definition.fields if fields is None else fields))
    return _ColumnsQuery(chosen, where, ranks, limit, offset)


async def read_columns(
    runner: QueryRunner, caller: Holder, schema: bytes, body: Mapping[str, Any]
) -> ColumnStream:
    """The columns of a request.

    The first window is read before this returns, so that an HTTP status can still report most
    errors.

    Raises:
        InvalidQuery: the request is not valid.
        ErsError: as :meth:`QueryRunner.ask`.
    """

    async def question(context: QueryContext) -> ColumnStream:
        query = await parse_body(_parse, body, context)
        if query.limit is not None:
            want, later = query.offset + query.limit, query.offset > 0
            records = await context.run(
                find_top(context.space, query.where, query.ranks, want, later=later)
            )
            written = await aside(_write_records, context, records, query.fields)
            return ColumnStream(context.snapshot.version, written[0], _each(written[1:]))
        condition = await context.condition(query.where)
        parts = await context.run(match_rows(context.space, condition))
        pieces = _write(context, [part for part in parts if len(part)], query.fields)
        first = await anext(pieces)
        return ColumnStream(
            context.snapshot.version, first, conflict_if_gone(runner, context, pieces)
        )

    return await runner.ask(caller, schema, question)


# --- windows --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Window:
    """The matches ``first`` to before ``end`` in one segment."""

    part: Candidates
    first: int
    end: int

    def rows(self) -> Ordinals:
        possible = self.part.matches.possible
        if self.end - self.first < len(possible):
            # A slice of a bitmap would visit each of its members.
            possible = possible & BitMap(range(possible[self.first], possible[self.end - 1] + 1))
        return ordinals(possible)


def _windows(part: Candidates, row_bytes: int) -> Iterator[_Window]:
    """Windows of about the same size; columns that are not cached are read once for each window."""
    most = max(WINDOW_ROWS, WINDOW_BYTES // row_bytes)
    # A window of hundreds of fields has fewer rows.
    most = max(1, min(most, MOST_WINDOW_BYTES // row_bytes))
    size = -(-len(part) // -(-len(part) // most))
    for first in range(0, len(part), size):
        yield _Window(part, first, min(len(part), first + size))


async def _write(
    context: QueryContext, parts: Sequence[Candidates], fields: Sequence[str]
) -> Pieces:
    """The stream in nonempty pieces: its schema in the first, its end in the last.

    The version is held if anything remains to be read after the first piece.
    """
    specs = [context.definition.fields[name] for name in fields]
    stream = _ArrowStream(_schema_of(context, specs))
    async with DeferredHold(VersionHold.of_export(context.upstream)) as hold:
        if len(parts) > 1 and sum(map(len, parts)) > BATCH_ROWS:
            await hold.begin()
        for part in parts:
            segment: OpenedSegment = part.segment  # type: ignore[assignment] # of either form
            plan = await context.run(plan_windows(context.space, segment, fields, len(part)))
            windows = list(_windows(part, plan.row_bytes))
            if len(windows) > 1:
                await hold.begin()
            for window in windows:
                async for batch in _batches(context, window, specs, plan, stream, hold):
                    for piece in batch:
                        yield piece
        for piece in stream.end():
            yield piece


def _write_records(
    context: QueryContext, records: Sequence[PlainRecord], fields: Sequence[str]
) -> list[Piece]:
    """The whole stream of some records."""
    specs = [context.definition.fields[name] for name in fields]
    stream = _ArrowStream(_schema_of(context, specs))
    pieces: list[Piece] = []
    if records:
        arrays = {
            spec.name: array_of_values(spec, [record.data.get(spec.name) for record in records])
            for spec in specs
        }
        pieces += stream.write(arrays, len(records))
    return pieces + stream.end()


async def _each(pieces: Sequence[Piece]) -> Pieces:
    for piece in pieces:
        yield piece


def _schema_of(context: QueryContext, specs: Sequence[FieldSpec]) -> pyarrow.Schema:
    metadata = {
        "log_version": str(context.snapshot.version),
        "definition": context.definition.columns_digest,
    }
    return pyarrow.schema([field_of(spec) for spec in specs], metadata)


async def _batches(
    context: QueryContext,
    window: _Window,
    specs: Sequence[FieldSpec],
    plan: WindowPlan,
    stream: _ArrowStream,
    hold: DeferredHold,
) -> AsyncGenerator[list[Piece], None]:
    if not specs:
        for first in range(window.first, window.end, WINDOW_ROWS):
            yield await aside(stream.write, {}, min(WINDOW_ROWS, window.end - first))
        return
    segment: OpenedSegment = window.part.segment  # type: ignore[assignment] # of either form
    rows = await aside(window.rows)
    texts: dict[str, FieldValues] = {}
    arrays: dict[str, pyarrow.Array] = {}
    for spec in specs:
        reading = read_field(context.space, segment, spec.name, rows, plan)
        values = await context.run(reading)
        if isinstance(values, RowKeys) or not spec.field_type.is_text:
            arrays[spec.name] = await aside(array_of, spec, values)
        elif values.keys.nbytes <= _FEW_BYTES and not len(values.long):
            arrays[spec.name] = await aside(texts_of, values, {})
        else:
            texts[spec.name] = values
        del values
    has_long = any(len(field.long) for field in texts.values())
    # Records are opened for long texts, so many rows at a time.
    most = min(BATCH_ROWS, context.fetcher.window(context.state)) if has_long else BATCH_ROWS
    if has_long and len(rows) > most:
        await hold.begin()
    for first in range(0, len(rows), most):
        end = min(len(rows), first + most)
        if not has_long:
            yield await aside(_write_part, stream, arrays, texts, first, end)
            continue
        texts_of_part = await aside(_part, texts, first, end)
        reading_long = read_long_texts(
            context.space, window.part.places, rows[first:end], texts_of_part
        )
        long = await context.run(reading_long)
        yield await aside(_write_texts, stream, arrays, texts_of_part, long, first, end)


def _part(values: Mapping[str, FieldValues], first: int, end: int) -> dict[str, FieldValues]:
    return {name: field.part(first, end) for name, field in values.items()}


def _write_part(
    stream: _ArrowStream,
    arrays: Mapping[str, pyarrow.Array],
    texts: Mapping[str, FieldValues],
    first: int,
    end: int,
) -> list[Piece]:
    return _write_texts(stream, arrays, _part(texts, first, end), {}, first, end)


def _write_texts(
    stream: _ArrowStream,
    arrays: Mapping[str, pyarrow.Array],
    texts: Mapping[str, FieldValues],
    long: Mapping[str, Mapping[int, str]],
    first: int,
    end: int,
) -> list[Piece]:
    """The batch of rows ``first`` to before ``end`` of a window's arrays, with their texts."""
    columns = {name: array[first:end] for name, array in arrays.items()}
    for name, field in texts.items():
        columns[name] = texts_of(field, long.get(name, {}))
    return stream.write(columns, end - first)


class _ArrowStream:
    """An Arrow stream, taken piece by piece."""

    def __init__(self, schema: pyarrow.Schema) -> None:
        self._schema, self._file = schema, _File()
        # Closed only at the end of a whole stream: if the stream ends early, a thread may still
        # write.
        self._writer = pyarrow.ipc.new_stream(self._file, schema)

    def write(self, columns: Mapping[str, pyarrow.Array], rows: int) -> list[Piece]:
        """A batch of the schema's columns, in nonempty pieces."""
        if columns:
            arrays = [columns[name] for name in self._schema.names]
            batch = pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)
        else:
            # If there is no column, the batch has nothing but its number of rows.
            none = pyarrow.Array.from_buffers(pyarrow.struct([]), rows, [None])
            batch = pyarrow.RecordBatch.from_struct_array(none)
        assert batch.num_rows == rows
        self._writer.write_batch(batch)
        return self._file.take()

    def end(self) -> list[Piece]:
        self._writer.close()
        return self._file.take()


class _File:
    """A file that keeps written data until it is taken; large writes are not copied."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._small: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | pyarrow.Buffer) -> int:
        size = len(data)
        if size < _SMALL_BYTES:
            self._small.append(bytes(data))
        else:
            self._join_small()
            self._pieces.append(memoryview(data))
        return size

    def flush(self) -> None:
        pass

    def take(self) -> list[Piece]:
        self._join_small()
        taken, self._pieces = self._pieces, []
        return taken

    def _join_small(self) -> None:
        if self._small:
            self._pieces.append(b"".join(self._small))
            self._small = []
