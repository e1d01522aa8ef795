"""Jobs: those of all schemas or of one, each with its phases, its bad rows, and a way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from encrypted_records.client.sdk.condition_language import write
from encrypted_records.errors import Conflict, ErsError, NotFound
from encrypted_records.proxy.pages.job_view import JobView
from encrypted_records.proxy.pages.page import Visit, page

#: Jobs, what is wrong with rows, and bad rows, that a page shows.
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
    listed = await visit.ask("GET", "/api/jobs/", params=params)
    views = [JobView(result, names) for result in listed["results"]]
    used = {schema for view in views for schema, _ in view.schemas} | (
        {schema} if schema else set()
    )
    return visit.render(
        "jobs.html",
        jobs=views,
        count=listed["count"],
        schema=schema,
        schemas=sorted((names.get(schema, schema), schema) for schema in used),
    )


async def _names(visit: Visit) -> dict[str, str]:
    return {schema["id"]: schema["name"] for schema in await visit.every("/api/schemas/")}


async def job(visit: Visit) -> Response:
    """A job; its form cancels it, or forgets it after its end."""
    job_id = visit.part("job")
    if visit.sends:
        await visit.ask("DELETE", f"/api/jobs/{job_id}/")
        return visit.go("/jobs/")
    about = await visit.ask("GET", f"/api/jobs/{job_id}/about/")
    view = JobView(about, await _names(visit))
    flaws = await visit.ask("GET", _flaws(visit), params={"limit": str(SHOWN_FLAWS)})
    bad = await visit.ask("GET", f"/api/jobs/{job_id}/bad-rows/")
    try:
        report = await visit.ask("GET", f"/api/jobs/{job_id}/reading/")
    except NotFound:
        report = None  # it has none, or is not checked yet
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
    """Bad rows as the table of a preview shows rows."""
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
    """Says how many records would be deleted, and deletes them when their number is typed."""
    job_id = visit.part("job")
    view = JobView(await visit.ask("GET", f"/api/jobs/{job_id}/about/"), await _names(visit))
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
    """The rows that did not fit, as a file: browsers go to no address under /api/."""
    await visit.ask("GET", _flaws(visit), params={"limit": "1"})  # a problem is shown as a page
    name = f"bad-rows-{visit.part('job')[:8]}.csv"
    return visit.hand_on("GET", _flaws(visit), name, params={"format": "csv"})


def _flaws(visit: Visit) -> str:
    return f"/api/jobs/{visit.part('job')}/errors/"


routes = [
    page("/jobs/", jobs),
    page("/schemas/{id}/jobs/", of_schema),
    page("/jobs/{job}/", job, methods=("GET", "POST")),
    page("/jobs/{job}/undo/", undo, methods=("GET", "POST")),
    page("/jobs/{job}/bad-rows/", bad_rows),
]
