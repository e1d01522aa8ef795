"""The audit log of an organization, for its owners."""

from __future__ import annotations

from starlette.responses import Response

from encrypted_records.proxy.routes.web.visit import Visit, page

PAGE_ENTRIES = 100


async def start(visit: Visit) -> Response:
    """Straight to the only organization, or a choice among several."""
    organizations = await visit.every("/api/organizations/")
    if len(organizations) == 1:
        return visit.go(f"/audit-log/{organizations[0]['id']}/")
    return visit.render("audit_start.html", organizations=organizations)


async def log(visit: Visit) -> Response:
    """A page of entries. The address may hold where it begins: that tells nothing."""
    organization = await visit.ask("GET", f"/api/organizations/{visit.id}/")
    at = visit.request.query_params.get("offset", "")
    offset = int(at) if at.isascii() and at.isdecimal() and len(at) < 9 else 0
    entries = await visit.ask(
        "GET",
        f"/api/organizations/{visit.id}/audit-log/",
        params={"limit": str(PAGE_ENTRIES), "offset": str(offset)},
    )
    return visit.render(
        "audit.html",
        organization=organization,
        entries=entries["results"],
        count=entries["count"],
        offset=offset,
        step=PAGE_ENTRIES,
    )


routes = [page("/audit-log/", start), page("/audit-log/{id}/", log)]
