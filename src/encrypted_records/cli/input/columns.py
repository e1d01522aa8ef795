"""Files of columns (Parquet, Arrow, Feather) as tables that can be imported, from any row on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from encrypted_records.cli.input.importer import Row, Shape, SourceTable, in_thread
from encrypted_records.cli.input.upload_sources import COLUMNAR, batches_of
from encrypted_records.client.media import LocalFile
from encrypted_records.client.sdk.arrow_types import ColumnFacts, field_of
from encrypted_records.errors import InvalidSetting

if TYPE_CHECKING:
    from encrypted_records.cli.login.session import CommandSession
    from encrypted_records.client.proxy.resources import Resource


class ColumnFile(SourceTable):
    """A file whose rows are counted: one that was changed meanwhile is another file."""

    def __init__(self, path: str) -> None:
        if Path(path).suffix.lower() not in COLUMNAR:
            raise InvalidSetting(
                f"{path} is not a Parquet, Arrow or Feather file",
                hint="import CSV and JSON under their own names: ers import FILE.csv",
            )
        #: read several times, and so opened once: all of them see the same rows
        self._file = LocalFile(Path(path))
        next(batches_of(self._file), None)  # says what is wrong with it
        self.name = Path(path).stem
        self.group = "Imported files"
        #: where the next row is, and what reads from there
        self._reading: tuple[int, Iterator[Row]] | None = None
        self.mark = f"file {self._file.mark}"

    async def shape(self) -> Shape:
        import asyncio  # noqa: PLC0415 - slow to import

        return await asyncio.to_thread(self._shape)

    def _shape(self) -> Shape:
        seen: dict[str, ColumnFacts] = {}
        declared: Any = None
        for batch in batches_of(self._file):
            declared = batch.schema
            for column, arrow_field in zip(batch.columns, declared, strict=True):
                seen.setdefault(arrow_field.name, ColumnFacts()).add(column, arrow_field)
        if declared is None:
            raise InvalidSetting("the file is empty: it has no columns")
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
        async for row in in_thread(islice(rows, most)):
            yield row
            count += 1
        self._reading = pointer + count, rows

    def after(self, pointer: Any, row: Row, count: int) -> int:
        return int(pointer or 0) + count

    async def resume(self, session: CommandSession, schema: Resource, read: int) -> int:
        return read

    def _rows(self, skipped: int) -> Iterator[Row]:
        from encrypted_records.client.sdk.frames import rows_of  # noqa: PLC0415 - slow to import

        left = skipped
        for batch in batches_of(self._file):
            if left >= batch.num_rows:
                left -= batch.num_rows
                continue
            yield from cast(Iterator[Mapping[str, Any]], rows_of(batch.slice(left)))
            left = 0
