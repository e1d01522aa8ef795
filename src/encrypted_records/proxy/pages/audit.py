"""The audit log of an organization, for its owners."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from encrypted_records.proxy.pages.audit_lines import ACTIONS, lines_of, names_of
from encrypted_records.proxy.pages.formatting import is_day
from encrypted_records.proxy.pages.page import Visit, page

PAGE_ENTRIES = 100
_ASKED = ("action", "without", "user", "until")


def _takes(name: str, value: str, people: Mapping[str, str]) -> bool:
    """Whether the log can be asked for this; an address may hold anything."""
    match name:
        case "action" | "without":
            return value in ACTIONS
        case "user":
            return value in people
    return is_day(value)


async def start(visit: Visit) -> Response:
    """Straight to the only organization, or a choice among several."""
    organizations = await visit.every("/api/organizations/")
    if len(organizations) == 1:
        return visit.go(f"/audit-log/{organizations[0]['id']}/")
    return visit.render("audit_start.html", organizations=organizations)


async def log(visit: Visit) -> Response:
    """A page of entries. The address may hold where it begins, the kind, a person and a day: that
    tells nothing."""
    organization = await visit.ask("GET", f"/api/organizations/{visit.id}/")
    query = visit.request.query_params
    at = query.get("offset", "")
    offset = int(at) if at.isascii() and at.isdecimal() and len(at) < 9 else 0
    url = f"/api/organizations/{visit.id}/"
    joined = {"action": "member.joined", "limit": "1000"}
    left = (await visit.ask("GET", f"{url}audit-log/", params=joined))["results"]
    members = await visit.every(f"{url}members/")
    present = {str(member["user"]) for member in members}
    people = {
        str(member["user"]).split("/")[-2]: str(member["email"])
        + ("" if str(member["user"]) in present else ", who left")
        for member in (*members, *left)
        if member["user"] and member["email"]
    }
    asked = {name: value for name in _ASKED if _takes(name, value := query.get(name, ""), people)}
    entries = await visit.ask(
        "GET",
        f"{url}audit-log/",
        params={"limit": str(PAGE_ENTRIES), "offset": str(offset), **asked},
    )
    return visit.render(
        "audit.html",
        organization=organization,
        people=people,
        asked=asked,
        more="".join(f"&{name}={value}" for name, value in asked.items()),
        lines=lines_of(entries["results"], await names_of(visit)),
        actions=ACTIONS,
        shown=len(entries["results"]),
        count=entries["count"],
        offset=offset,
        step=PAGE_ENTRIES,
    )


routes = [page("/audit-log/", start), page("/audit-log/{id}/", log)]
