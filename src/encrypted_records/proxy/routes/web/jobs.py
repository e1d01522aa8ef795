"""Upload and jobs. The files themselves go from the browser to /api/files/, by TUS."""

from __future__ import annotations

from starlette.responses import Response

from encrypted_records.proxy.routes.web.visit import Visit, page

#: Jobs, and bad rows, that a page shows.
SHOWN_JOBS = 50
SHOWN_FLAWS = 100


async def upload(visit: Visit) -> Response:
    schema = await visit.ask("GET", f"/api/schemas/{visit.id}/")
    return visit.render("upload.html", schema=schema)


async def jobs(visit: Visit) -> Response:
    found = await visit.ask("GET", "/api/jobs/", params={"limit": str(SHOWN_JOBS)})
    return visit.render("jobs.html", jobs=found["results"], count=found["count"])


async def job(visit: Visit) -> Response:
    """One job; its form cancels it, or forgets it when it has ended."""
    if visit.sends:
        await visit.ask("DELETE", f"/api/jobs/{visit.id}/")
        return visit.go("/jobs/")
    found = await visit.ask("GET", f"/api/jobs/{visit.id}/")
    flaws = await visit.ask(
        "GET", f"/api/jobs/{visit.id}/errors/", params={"limit": str(SHOWN_FLAWS)}
    )
    return visit.render("job.html", job=found | {"job_id": visit.id}, flaws=flaws)


routes = [
    page("/schemas/{id}/upload/", upload),
    page("/jobs/", jobs),
    page("/jobs/{id}/", job, methods=("GET", "POST")),
]
