"""The audit log of an organization, for its owners."""

from __future__ import annotations

from starlette.responses import Response

from encrypted_records.proxy.pages.audit_lines import ACTIONS, lines_of, names_of
from encrypted_records.proxy.pages.page import Visit, page

PAGE_ENTRIES = 100


async def start(visit: Visit) -> Response:
    """Straight to the only organization, or a choice among several."""
    organizations = await visit.every("/api/organizations/")
    if len(organizations) == 1:
        return visit.go(f"/audit-log/{organizations[0]['id']}/")
    return visit.render("audit_start.html", organizations=organizations)


async def log(visit: Visit) -> Response:
    """A page of entries. The address may hold where it begins, and the kind: that tells nothing."""
    organization = await visit.ask("GET", f"/api/organizations/{visit.id}/")
    query = visit.request.query_params
    at = query.get("offset", "")
    offset = int(at) if at.isascii() and at.isdecimal() and len(at) < 9 else 0
    action = query.get("action", "") if query.get("action", "") in ACTIONS else ""
    entries = await visit.ask(
        "GET",
        f"/api/organizations/{visit.id}/audit-log/",
        params={"limit": str(PAGE_ENTRIES), "offset": str(offset)}
        | ({"action": action} if action else {}),
    )
    return visit.render(
        "audit.html",
        organization=organization,
        lines=lines_of(entries["results"], await names_of(visit)),
        actions=ACTIONS,
        action=action,
        shown=len(entries["results"]),
        count=entries["count"],
        offset=offset,
        step=PAGE_ENTRIES,
    )


routes = [page("/audit-log/", start), page("/audit-log/{id}/", log)]
