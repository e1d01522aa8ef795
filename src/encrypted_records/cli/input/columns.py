"""Files of columns (Parquet, Arrow, Feather) as tables that can be imported, from any row on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from decimal import Decimal
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from encrypted_records.cli.input.import_schema import make_shape
from encrypted_records.cli.input.importer import SAMPLE_ROWS, Row, Shape, SourceTable, in_thread
from encrypted_records.cli.input.upload_sources import COLUMNAR, batches_of
from encrypted_records.client.media import LocalFile
from encrypted_records.errors import InvalidSetting

if TYPE_CHECKING:
    from encrypted_records.cli.login.session import CommandSession
    from encrypted_records.client.proxy.resources import Resource


class ColumnFile(SourceTable):
    """A file whose rows are counted: one that was changed meanwhile is another file."""

    def __init__(self, path: str) -> None:
        if Path(path).suffix.lower() not in COLUMNAR:
            raise InvalidSetting(
                f"{path} is no file of columns",
                hint="of CSV and JSON: ers schema infer, ers schema create, ers job upload",
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
        from pyarrow import compute, types  # noqa: PLC0415 - optional, and slow to import

        held: dict[str, list[Any]] = {}
        scales: dict[str, int] = {}
        absent: set[str] = set()
        names: list[str] = []
        for batch in batches_of(self._file):
            names = batch.schema.names
            for name, column in zip(names, batch.columns, strict=True):
                if column.null_count:
                    absent.add(name)
                kind = column.type
                if name not in held and (finest := _finer_than_microseconds(column, name)):
                    held[name] = [finest]  # no format has it: the sample is to show one
                floating, decimal = types.is_floating(kind), types.is_decimal(kind)
                if not (types.is_integer(kind) or floating or decimal):
                    continue
                extremes = compute.min_max(column).as_py()
                if extremes["min"] is None or not isfinite(extremes["min"]):
                    continue
                known = held.get(name, [extremes["min"], extremes["max"]])
                held[name] = [min(known[0], extremes["min"]), max(known[1], extremes["max"])]
                if floating:
                    scales[name] = max(scales.get(name, 0), *map(_places, column.to_pylist()), 0)
                elif decimal:
                    scales[name] = kind.scale
        for name, scale in scales.items():
            if scale and name in held:
                step = Decimal(1).scaleb(-scale)
                held[name].append(-step if held[name][1] < 0 else step)
        sample = list(islice(self._rows(0), SAMPLE_ROWS))
        required = [name for name in names if name not in absent]
        return make_shape(sample, names, held, required)

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


def _finer_than_microseconds(column: Any, name: str) -> str | None:
    """A value of a column of times in nanoseconds that has more than microseconds, as text."""
    from pyarrow import types  # noqa: PLC0415 - optional, and slow to import

    from encrypted_records.client.sdk.frames import cells_of_arrow  # noqa: PLC0415 - slow to import

    if not (types.is_temporal(column.type) and getattr(column.type, "unit", "") == "ns"):
        return None
    return next((one for one in cells_of_arrow(column, name, 0) if isinstance(one, str)), None)


def _places(value: float | None) -> int:
    """Decimal places of a float, as short as it can be written."""
    if value is None or not isfinite(value):
        return 0
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    return -exponent if isinstance(exponent, int) and exponent < 0 else 0
