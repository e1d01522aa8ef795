"""Results: a table for people, JSON lines or CSV for programs.

On a terminal, results are tables; elsewhere they are JSON: lists are arrays, but results of any
length have one object per line. ``--output``, ``ERS_OUTPUT`` and the profile override this. Numbers
keep all their digits. Lists are written page by page as they arrive, except tables, whose columns
must be measured first. Tables show local times; records show the stored values.
"""

from __future__ import annotations

import re
import sys
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Any, TypeVar

import click

from encrypted_records.cli.settings import FORMATS, ProfileOption
from encrypted_records.cli.terminal import (
    cut,
    minute,
    pad,
    printable,
    say,
    table,
    utc_option,
    warn,
    width_of,
    with_minutes,
)

if TYPE_CHECKING:
    from msgspec import Struct

Command = TypeVar("Command", bound=Callable[..., Any])
Row = Mapping[str, Any]

#: Longer table cells are cut; all other formats are complete.
_WIDEST = 60


def takes_output(command: Command) -> Command:
    """Give a command ``--output`` and pass it the chosen :class:`Output`."""
    option = click.option(
        "--output",
        "-o",
        cls=ProfileOption,
        type=click.Choice(FORMATS),
        envvar="ERS_OUTPUT",
        show_envvar=True,
        callback=lambda _ctx, _param, form: Output(form or default_format(), chosen=bool(form)),
        show_default="table on a terminal, else json",
        help="Format of results.",
    )
    return option(utc_option(command))


def default_format() -> str:
    return "table" if sys.stdout.isatty() else "json"


@dataclass(frozen=True)
class Output:
    """
    Attributes:
        form: one of FORMATS.
        chosen: whether the user chose the form explicitly.
    """

    form: str
    chosen: bool = True

    def as_stream(self) -> Output:
        """The same output for results of any length: one object per line, unless the user chose
        JSON. The reader of an array has to wait for its end.
        """
        return Output("ndjson") if self.form == "json" and not self.chosen else self

    def write_object(self, thing: Row | Struct, *, times: Collection[str] = ()) -> None:
        """Write a single object; a table has a line for each member.

        Args:
            times: as for :meth:`many`.
        """
        thing = row_of(thing)
        if self.form == "table":
            widest = max(map(width_of, thing), default=0)
            for name, value in _with_times(thing, times).items():
                say(f"{pad(name, widest)}  {_cell(value)}")
        elif self.form == "csv":
            say(_csv_line(thing))
            say(_csv_line(thing.values()))
        else:
            say(_json(thing, pretty=self.form == "json"))

    async def many(
        self,
        things: AsyncIterable[Row | Struct] | Iterable[Row | Struct],
        columns: Sequence[str],
        cells: Callable[[Row], Row] = lambda thing: thing,
        *,
        called: str,
        times: Collection[str] = (),
    ) -> int:
        """Write a list; returns the number of items.

        Args:
            columns: of the table and the CSV.
            cells: returns an item's cells; JSON shows the item itself.
            called: a name for the items, for the message to people if the list is empty.
            times: columns that a table shows as local times, or as texts of errors with such times.
        """
        in_local_time = cells
        if self.form == "table":
            in_local_time = lambda thing: _with_times(cells(thing), times)  # noqa: E731
        write = {"table": self._table, "csv": self._csv, "json": self._array}.get(
            self.form, self._lines
        )
        count = await write(_rows(things), columns, in_local_time)
        if self.form == "table" and not count:
            warn(f"no {called}")
        return count

    async def _table(
        self, things: AsyncIterable[Row], columns: Sequence[str], cells: Callable[[Row], Row]
    ) -> int:
        rows = [
            {name: _cell(value) for name, value in cells(thing).items()} async for thing in things
        ]
        if rows:
            for line in table(rows, columns):
                say(line)
        return len(rows)

    async def _csv(
        self, things: AsyncIterable[Row], columns: Sequence[str], cells: Callable[[Row], Row]
    ) -> int:
        say(_csv_line(columns))
        count = 0
        async for thing in things:
            row = cells(thing)
            say(_csv_line(row.get(name) for name in columns))
            count += 1
        return count

    async def _array(
        self, things: AsyncIterable[Row], columns: Sequence[str], cells: Callable[[Row], Row]
    ) -> int:
        count = 0
        pending = "[]"
        async for thing in things:
            say(f"{pending}," if count else "[")
            pending = indent(_json(thing, pretty=True), "  ")
            count += 1
        say(f"{pending}\n]" if count else pending)
        return count

    async def _lines(
        self, things: AsyncIterable[Row], columns: Sequence[str], cells: Callable[[Row], Row]
    ) -> int:
        count = 0
        async for thing in things:
            say(_json(thing, pretty=False))
            count += 1
        return count


async def _rows(
    things: AsyncIterable[Row | Struct] | Iterable[Row | Struct],
) -> AsyncIterator[Row]:
    if isinstance(things, AsyncIterable):
        async for thing in things:
            yield row_of(thing)
    else:
        for thing in things:
            yield row_of(thing)


def row_of(thing: Row | Struct) -> dict[str, Any]:
    """The members of an object or of a structure."""
    if isinstance(thing, dict):
        return thing
    from encrypted_records.model import strict_json  # noqa: PLC0415 - slow to import

    row: dict[str, Any] = strict_json.loads(strict_json.encode(thing))
    return row


def _json(thing: Any, *, pretty: bool) -> str:
    import msgspec  # noqa: PLC0415 - slow to import

    from encrypted_records.model import strict_json  # noqa: PLC0415

    text = strict_json.encode(thing)
    return (msgspec.json.format(text, indent=2) if pretty else text).decode()


def _text(value: Any) -> str:
    if isinstance(value, bool | Mapping | list):
        return _json(value, pretty=False)
    return "" if value is None else str(value)


def _cell(value: Any) -> str:
    return cut(printable(_text(value)), _WIDEST)


def _with_times(row: Row, times: Collection[str]) -> Row:
    return {
        name: with_minutes(minute(value)) if name in times else value for name, value in row.items()
    }


def _csv_line(values: Iterable[Any]) -> str:
    """A line in the format of RFC 4180. An absent value is an empty cell, an empty text is quoted:
    the service reads CSV this way, and the csv module cannot distinguish them.
    """
    return ",".join("" if value is None else _csv_cell(_text(value)) for value in values)


def _csv_cell(text: str) -> str:
    plain = re.fullmatch(r'[^",\r\n]+', text)
    return text if plain else '"' + text.replace('"', '""') + '"'
