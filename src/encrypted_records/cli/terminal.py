"""What goes to the terminal, and how.

Results go to stdout; errors, progress and logs go to stderr. An error is one line ``error: what
happened`` and, where there is a way out, a second ``hint: how to go on``. No traceback reaches a
user unless ``ERS_TRACEBACK=1`` asks for it. Exit codes: 0 done, 1 failed, 2 misused,
130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from encrypted_records.errors import ErsError, InvalidSetting

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130
#: Flaws of an input shown below an error; the rest are counted.
FLAWS_SHOWN = 5


def say(line: str = "") -> None:
    """A line of the result, at once: whoever reads a pipe waits for it."""
    click.echo(line)


def report(error: ErsError) -> int:
    """Show one of our errors; the exit code it stands for."""
    _trace()
    _error(error.message, error.hint)
    for flaw in error.flaws[:FLAWS_SHOWN]:
        row = "" if flaw.row is None else f"row {flaw.row}"
        place = ", ".join(part for part in (row, flaw.field or flaw.pointer) if part)
        click.echo(f"  {place}: {flaw.detail}" if place else f"  {flaw.detail}", err=True)
    if len(error.flaws) > FLAWS_SHOWN:
        click.echo(f"  and {len(error.flaws) - FLAWS_SHOWN} more", err=True)
    return MISUSED if isinstance(error, InvalidSetting) else FAILED


def report_misuse(error: click.ClickException) -> int:
    """Show what click found wrong with the command line."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "ers"
    message = error.format_message().rstrip(".")
    _error(message[:1].lower() + message[1:], f"see {command} --help")
    return MISUSED


def report_bug(error: BaseException) -> int:
    """Show a failure that is ours. Its text is left out: it may quote a record or a secret."""
    _trace()
    _error(
        f"internal error ({type(error).__name__})",
        "this is a bug; repeat it with ERS_TRACEBACK=1 set and report what that shows",
    )
    return FAILED


def _trace() -> None:
    if os.environ.get("ERS_TRACEBACK"):
        traceback.print_exc()


def _error(message: str, hint: str) -> None:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while the block runs; yields what moves it on. No terminal, no bar."""
    if not sys.stderr.isatty():
        yield lambda _step: None
        return
    # rich takes longer to import than most commands take to run.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda step: bar.advance(task, step)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """Lines of a table: the column names, then a line per row, absent values left blank."""
    cells = [[str(row.get(name, "")) for name in columns] for row in rows]
    widths = [max(len(line[at]) for line in [list(columns), *cells]) for at in range(len(columns))]
    for line in [list(columns), ["-" * width for width in widths], *cells]:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield "  ".join(padded).rstrip()
