"""A batch job: :class:`AsyncJob`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from encrypted_records.client.proxy.jobs import JobProgress
from encrypted_records.client.proxy.transport import explain
from encrypted_records.client.sdk.event_loop import AsyncLink
from encrypted_records.client.sdk.progress_bars import job_bar
from encrypted_records.client.sdk.rows import warn_of_rounding
from encrypted_records.errors import Conflict, ErsError, Flaw, InvalidRecords, Unavailable

#: Flaws that an error about a job lists.
_FLAWS = 1000


class AsyncJob:
    """A batch job. It continues when the client disconnects."""

    def __init__(self, link: AsyncLink, id: str) -> None:  # noqa: A002
        self._link = link
        self.id = id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    async def status(self) -> JobProgress:
        return await self._link.proxy.job(self.id)

    async def watch(self) -> AsyncIterator[JobProgress]:
        """Yield the job's present progress, each change, and the final one."""
        async for progress in self._link.proxy.watch(self.id):
            yield progress

    async def wait(self, *, progress: bool = False) -> JobProgress:
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
            async for state in self.watch():
                move(state.processed, state.total or None)
        if state.status == "completed":
            try:
                rounded = await self._link.proxy.rounded_values(self.id)
            except Unavailable:
                # Its rows are stored: an error would have them sent again.
                warn_of_rounding(None)
            else:
                warn_of_rounding(rounded)
            return state
        flaws = await self.flaws()
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

    async def flaws(self) -> tuple[Flaw, ...]:
        """Errors of rows, up to the first thousand."""
        flaws = []
        async for row in self._link.proxy.job_errors(self.id):
            flaws.append(Flaw(row["code"], row["detail"], row=row["row"], field=row.get("field")))
            if len(flaws) == _FLAWS:
                break
        return tuple(flaws)

    async def cancel(self) -> None:
        """Cancel it, so that nothing of it is stored; or forget one that has ended."""
        await self._link.proxy.cancel_job(self.id)
