"""A batch job: :class:`Job`.

Made of ``async_jobs.py`` by ``python -m scripts.synchronous_client``; change it there.
"""

# ruff: noqa: A002, UP028

from __future__ import annotations

from collections.abc import Iterator

from encrypted_records.client.proxy.jobs import JobProgress
from encrypted_records.client.proxy.transport import explain
from encrypted_records.client.sdk.event_loop import Link
from encrypted_records.client.sdk.progress_bars import job_bar
from encrypted_records.client.sdk.rows import warn_of_rounding
from encrypted_records.errors import Conflict, ErsError, Flaw, InvalidRecords, Unavailable

_FLAWS = 1000


class Job:
    """A batch job. It continues when the client disconnects."""

    def __init__(self, link: Link, id: str) -> None:
        self._link = link
        self.id = id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def status(self) -> JobProgress:
        return self._link.run(self._link.proxy.job(self.id))

    def watch(self) -> Iterator[JobProgress]:
        """Yield the job's present progress, each change, and the final one."""
        for progress in self._link.each(self._link.proxy.watch(self.id)):
            yield progress

    def wait(self, *, progress: bool = False) -> JobProgress:
        """Wait until the job has completed; returns its final state, and warns
        (:class:`.ValuesRounded`) if values were rounded.

        Args:
            progress: show a bar on a terminal.

        Raises:
            InvalidRecords: rows do not fit; ``flaws`` says which.
            Conflict: ``not_unique``; others have values of unique fields, as ``flaws`` says.
            ErsError: it failed for another reason.
        """
        with job_bar(shown=progress) as move:
            for state in self.watch():
                move(state.processed, state.total or None)
        if state.status == "completed":
            try:
                rounded = self._link.run(self._link.proxy.rounded_values(self.id))
            except Unavailable:
                warn_of_rounding(None)
            else:
                warn_of_rounding(rounded)
            return state
        flaws = self.flaws()
        if {flaw.code for flaw in flaws} == {"not_unique"}:
            raise explain(
                Conflict(
                    "rows have unique values that other records already have; nothing was stored",
                    code="not_unique",
                    flaws=flaws,
                )
            )
        if flaws:
            raise explain(InvalidRecords("rows were rejected, and nothing was stored", flaws=flaws))
        raise ErsError(state.error or "the job failed", code="job_failed")

    def flaws(self) -> tuple[Flaw, ...]:
        """Errors of rows, up to the first thousand."""
        flaws = []
        for row in self._link.each(self._link.proxy.job_errors(self.id)):
            flaws.append(Flaw(row["code"], row["detail"], row=row["row"], field=row.get("field")))
            if len(flaws) == _FLAWS:
                break
        return tuple(flaws)

    def cancel(self) -> None:
        """Cancel it, so that nothing of it is stored; or forget one that has ended."""
        self._link.run(self._link.proxy.cancel_job(self.id))
