"""Jobs: those of all schemas or of one, each with its phases, its bad rows, and an undo.

The interface knows four states; users want to know more: whether a job is being checked, stored or
packed, why it waits, and that a cancelled job did not fail. So :class:`JobView` has one word for
the state, the progress of each phase, and the speed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from starlette.responses import Response

from encrypted_records.client.proxy.connection import ShownSchema
from encrypted_records.client.proxy.jobs import Job, JobPage
from encrypted_records.client.sdk.condition_language import write
from encrypted_records.errors import Conflict, ErsError, NotFound
from encrypted_records.proxy.pages.formatting import size
from encrypted_records.proxy.pages.page import Visit, page

Word = Literal[
    "uploading", "checking", "storing", "packing", "completed", "failed", "cancelled", "undone"
]

LIVE: frozenset[Word] = frozenset({"uploading", "checking", "storing", "packing"})
_CANCELLED = "(job_cancelled)"


@dataclass(frozen=True, slots=True)
class Phase:
    """One of the three or four phases of a job's bar. ``share`` is 0 to 1, or None if unknown;
    ``figures`` is the text below it.
    """

    name: str
    share: float | None
    figures: str


@dataclass(frozen=True, slots=True)
class JobView:
    about: Job
    #: the schemas' names by id, as far as they are known
    names: Mapping[str, str]

    @property
    def id(self) -> str:
        return self.about.job_id

    @property
    def word(self) -> Word:
        about = self.about
        status = about.status
        if status == "failed":
            return "cancelled" if str(about.error).endswith(_CANCELLED) else "failed"
        if status == "completed":
            return "undone" if about.undone else "completed"
        if status == "uploading":
            return "uploading"
        if not about.current_batch:
            return "checking"
        left = about.packs - about.packed
        return "packing" if left and about.processed >= about.total else "storing"

    @property
    def seals_again(self) -> bool:
        """Whether the job only re-encrypts records."""
        return self.about.work == "reseal"

    @property
    def live(self) -> bool:
        return self.word in LIVE

    @property
    def title(self) -> str:
        """The file's name, or a substitute if no name was given."""
        if self.seals_again:
            return "Re-encrypt all records"
        return self.about.file or f"Job {self.id[:8]}"

    @property
    def schemas(self) -> list[tuple[str, str]]:
        """Identifier and name of each schema of its records."""
        return [(schema, self.names.get(schema, schema)) for schema in self.about.schemas]

    @property
    def schema(self) -> str | None:
        """The schema's identifier, if there is exactly one schema."""
        schemas = self.about.schemas
        return schemas[0] if len(schemas) == 1 else None

    @property
    def line(self) -> str:
        """The text after the name of its state."""
        about, word = self.about, self.word
        if word == "checking":
            return f", {about.total:,} records so far" if about.total else ""
        if not about.total or word in ("uploading", "cancelled"):
            return ""
        total = f"{about.total:,} record{'' if about.total == 1 else 's'}"
        return f", {about.processed:,} of {total}"

    @property
    def waits(self) -> str:
        """The reason why the job is idle at the moment."""
        return self.about.waits or ""

    @property
    def error(self) -> str:
        """The reason of the failure, without the code and the hint for programs."""
        message = str(self.about.error) if self.word == "failed" else ""
        return message.partition("; ")[0].removesuffix(f" ({self.code})")

    @property
    def code(self) -> str:
        """The code at the end of its error."""
        return str(self.about.error).rpartition(" (")[2].rstrip(")")

    @property
    def seconds(self) -> float | None:
        """The duration of the job in seconds."""
        finished = self.about.finished
        return None if finished is None else max(0.0, finished - self.about.created)

    @property
    def rate(self) -> float | None:
        """Records that were encrypted and stored per second, once all are stored."""
        about = self.about
        if about.status != "completed" or not about.checked or not about.finished:
            return None
        return about.processed / max(about.finished - about.checked, 0.001) or None

    @property
    def phases(self) -> list[Phase]:
        """The bar: uploaded, checked, stored, and packed for a large job."""
        about, word = self.about, self.word
        total, processed = about.total, about.processed
        sent = about.received is not None
        # A bar without a value moves.
        sent_share = 1.0 if sent else 0.0 if self.waits else None
        checked = sent and word != "checking"
        stored = processed / total if checked and total else 0.0
        so_far = f"{processed:,} of {total:,}" if checked and total else ""
        packs, packed = about.packs, about.packed
        last = [Phase("packed", packed / packs, f"{packed} of {packs}")] if packs else []
        return [
            Phase("uploaded", sent_share, size(about.size) if sent else ""),
            Phase("checked", (1.0 if checked else None) if sent else 0.0, f"{total:,}"),
            Phase("stored", stored, so_far),
            *last,
        ]


# --- pages ----------------------------------------------------------------------------------------

#: Maximum numbers of jobs, of kinds of errors, and of bad rows on a page.
SHOWN_JOBS = 50
SHOWN_FLAWS = 100
SHOWN_ROWS = 20


async def jobs(visit: Visit) -> Response:
    return await _listed(visit, None)


async def of_schema(visit: Visit) -> Response:
    """The jobs of one schema."""
    return await _listed(visit, visit.id)


async def _listed(visit: Visit, schema: str | None) -> Response:
    names = await _names(visit)
    params = {"limit": str(SHOWN_JOBS)} | ({"schema": schema} if schema else {})
    listed = await visit.read(JobPage, "/api/jobs/", **params)
    views = [JobView(job, names) for job in listed.results]
    used = {schema for view in views for schema, _ in view.schemas} | (
        {schema} if schema else set()
    )
    return visit.render(
        "jobs.html",
        jobs=views,
        count=listed.count,
        schema=schema,
        schemas=sorted((names.get(schema, schema), schema) for schema in used),
    )


async def _names(visit: Visit) -> dict[str, str]:
    return {schema.id: schema.name for schema in await visit.every(ShownSchema)}


async def _view(visit: Visit) -> JobView:
    about = await visit.read(Job, f"/api/jobs/{visit.part('job')}/about/")
    return JobView(about, await _names(visit))


async def job(visit: Visit) -> Response:
    """A job; its form cancels it, or deletes it after its end."""
    job_id = visit.part("job")
    if visit.sends:
        await visit.ask("DELETE", f"/api/jobs/{job_id}/")
        return visit.go("/jobs/")
    view = await _view(visit)
    flaws = await visit.ask(
        "GET", f"/api/jobs/{job_id}/errors/", params={"limit": str(SHOWN_FLAWS)}
    )
    bad = await visit.ask("GET", f"/api/jobs/{job_id}/bad-rows/")
    try:
        report = await visit.ask("GET", f"/api/jobs/{job_id}/reading/")
    except NotFound:
        report = None  # there is no report, or not yet
    return visit.render(
        "job.html",
        job=view,
        flaws=flaws,
        preview=_as_preview(bad["results"], flaws["results"]),
        report=report,
        # The conditions that find the records without a field.
        lacking={}
        if report is None
        else {name: write({"field": name, "op": "is_null"}) for name in report["absent"]},
    )


def _as_preview(
    rows: Sequence[Mapping[str, Any]], flaws: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Bad rows, in the form of a preview's table."""
    columns = list(dict.fromkeys(name for row in rows for name in row["data"]))
    wrong: dict[int, dict[str | None, str]] = {}
    for flaw in flaws:
        wrong.setdefault(flaw["row"], {})[flaw["field"]] = flaw["detail"]
        if flaw["field"] is not None and flaw["field"] not in columns:
            columns.append(flaw["field"])
    shown = [
        {"row": row["row"], "cells": [row["data"].get(name) for name in columns]}
        for row in rows[:SHOWN_ROWS]
    ]
    return {"columns": columns, "rows": shown, "wrong": wrong}


async def undo(visit: Visit) -> Response:
    """Show how many records would be deleted, and delete them when their number is typed."""
    job_id = visit.part("job")
    view = await _view(visit)
    path = f"/api/jobs/{job_id}/records/"
    problem: ErsError | None = None
    typed = visit.text("count").replace(",", "").strip()
    if visit.sends and typed.isascii() and typed.isdecimal():
        try:
            await visit.ask("DELETE", path, params={"confirm": typed})
            return visit.go(f"/jobs/{job_id}/")
        except Conflict as error:
            if error.reason != "confirm_count":
                raise
    count = (await visit.ask("GET", path))["count"]
    if visit.sends:
        detail = f"this is not their number, which is {count:,}; nothing was deleted"
        problem = Conflict(detail, code="confirm_count", hint="")
        return visit.problem(problem, "job_undo.html", job=view, count=count)
    return visit.render("job_undo.html", job=view, count=count)


async def bad_rows(visit: Visit) -> Response:
    """The bad rows as a file, because browsers do not navigate to addresses under /api/."""
    job = visit.part("job")
    name, path = f"bad-rows-{job[:8]}.csv", f"/api/jobs/{job}/errors/"
    return await visit.hand_on("GET", path, name, "text/csv", params={"format": "csv"})


routes = [
    page("/jobs/", jobs),
    page("/schemas/{id}/jobs/", of_schema),
    page("/jobs/{job}/", job, methods=("GET", "POST")),
    page("/jobs/{job}/undo/", undo, methods=("GET", "POST")),
    page("/jobs/{job}/bad-rows/", bad_rows),
]
