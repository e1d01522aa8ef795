"""Files that a program sends: how the proxy reads them, and bars of progress.

Some decisions on the reading of a file only a user can make.
Bars are drawn on stderr with rate and time left, on a terminal alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from encrypted_records.client.proxy.transport import explain
from encrypted_records.errors import Flaw, InvalidRecords, ReadingQuestion, ReadingRefused
from encrypted_records.model.samples import FileReading, Preview

#: By the reason for a question about a column: what the file leaves open, and how to say it.
_QUESTIONS = {
    "date_format": ("the order of day and month is ambiguous", '"format": "dd/mm/yyyy"'),
    "decimal": ("a mark could separate thousands or decimals", '"decimal": ","'),
    "null": ('several words could mean "no value"', '"null": ["..."]'),
}
_OTHER = ("can be read in several ways", '"type": "text"')


def path_of(file: object) -> Path:
    """The path of a file that a caller names.

    Raises:
        TypeError: it is not a path.
    """
    try:
        return Path(file)  # type: ignore[arg-type]  # it says what it does not take
    except TypeError:
        kind = type(file).__name__
        detail = f"not the path of a file: {kind}; Schema.ingest() stores rows and frames"
        raise TypeError(detail) from None


def _require_no_difference(found: FileReading) -> None:
    open_ones = [difference for difference in found.differences if not difference.taken]
    if not open_ones:
        return
    says = [difference.say for difference in open_ones]
    hint = "kept=False detects the reading again; with keep=True, also for later files"
    if all(says):
        hint = f"reading={_merged(says)!r} accepts this file; with keep=True, also later files"
    raise explain(
        ReadingRefused(
            "the file differs from the previous file:"
            f" {'; '.join(difference.detail for difference in open_ones)}",
            flaws=tuple(
                Flaw("reading", "is not as in the previous file", field=difference.column)
                for difference in open_ones
            ),
            hint=f"nothing was stored; {hint}",
        )
    )


def _merged(says: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """All words about a reading, those about its columns by column."""
    merged: dict[str, Any] = {}
    columns: dict[str, dict[str, Any]] = {}
    for say in says:
        merged |= say or {}
        for name, choices in (say or {}).get("columns", {}).items():
            columns.setdefault(name, {}).update(choices)
    return merged | ({"columns": columns} if columns else {})


def require_certain(found: FileReading) -> None:
    """
    Raises:
        ReadingQuestion: it leaves open what only a person can say.
        ReadingRefused: it is not read as the file before, in what may change values.
    """
    _require_no_difference(found)
    flaws, members, columns = [], [], []
    for member in found.guessed:
        value = found.reading[member]
        flaws.append(Flaw("reading", f"{member} is a guess: {value}"))
        members.append(f'"{member}": {msgspec.json.encode(value).decode()}')
    for field in found.fields:
        if field.ask is not None:
            text, answer = _QUESTIONS.get(field.ask, _OTHER)
            flaws.append(Flaw("reading", text, field=field.name))
            columns.append(f"{msgspec.json.encode(field.name).decode()}: {{{answer}}}")
    if columns:
        members.append(f'"columns": {{{", ".join(columns)}}}')
    if flaws:
        question = ReadingQuestion(
            "how this file is read has to be confirmed",
            flaws=tuple(flaws),
            hint=f"nothing was stored; if the guesses are right: reading={{{', '.join(members)}}}"
            + ('; {"type": "text"} keeps a column as it is written' if columns else ""),
        )
        question.reading = found
        raise explain(question)


def require_valid(seen: Preview) -> None:
    """
    Raises:
        InvalidRecords: some of the first rows of a file are invalid.
    """
    if not seen.bad_rows:
        return
    hint = "skip_invalid=True stores the valid rows"
    if seen.unread:
        column = msgspec.json.encode(seen.unread[0]).decode()
        hint += (
            f'; or read the column in another way: reading={{"columns": {{{column}:'
            ' {"type": "text"}}}, or "format" for dates, "null" for words that mean "no value"'
        )
    raise explain(InvalidRecords(seen.refusal, flaws=tuple(seen.errors), hint=hint))


def in_words_of_python(error: ReadingRefused) -> ReadingRefused:
    """The refusal of a file, with the members that a program gives instead of options."""
    members = [(flaw.pointer or "").strip("/") for flaw in error.flaws]
    hints = [f'reading={{"{member}": ...}}' for member in members if member]
    hint = "; ".join([*filter(None, [error.hint]), *hints])
    return explain(ReadingRefused(error.message, flaws=error.flaws, hint=hint))


#: Told how much is done, and of how much (None where that is not known).
Moved = Callable[[int, int | None], None]


@contextmanager
def bar(label: str, *, of_bytes: bool = False, last: str = "") -> Iterator[Moved]:
    """A bar while the block runs; yields what moves it. No terminal, no bar.

    Args:
        of_bytes: what is counted, rather than records.
        last: the label once all is done that is counted, where the block goes on after that.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    # rich takes longer to import than most commands take to run.
    from rich import progress  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    counted = (
        (progress.DownloadColumn(binary_units=True), progress.TransferSpeedColumn())
        if of_bytes
        else (progress.MofNCompleteColumn(), progress.TextColumn("{task.fields[rate]}"))
    )
    columns = (
        progress.TextColumn("  {task.description}"),
        progress.BarColumn(),
        *counted,
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=None, rate="")

        def move(done: int, total: int | None) -> None:
            speed = shown.tasks[0].speed
            rate = f"{speed:,.0f}/s" if speed else ""
            now = last if last and total and done >= total else label
            shown.update(task, completed=done, total=total, rate=rate, description=now)

        yield move


@contextmanager
def job_bar(*, shown: bool = True) -> Iterator[Moved]:
    """The :func:`bar` of a job, where one is wanted."""
    if not shown:
        yield lambda _done, _total: None
        return
    with bar("storing records", last="packing and publishing") as move:
        yield move
