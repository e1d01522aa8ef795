"""Progress of uploads and jobs: bars on stderr with rate and time left, on a terminal alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
