"""The audit log of an organization, for its owners.

Entries become readable lines: names instead of paths, equal entries together. Actors and objects
have the names that the API reports. A path becomes a link only if it is that of a dataset or a
schema that the visitor can access.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from encrypted_records.proxy.pages.formatting import is_day
from encrypted_records.proxy.pages.page import Visit, page

#: Every action of docs/http-api.md, in the words of a line: "who <words> what".
ACTIONS: Mapping[str, str] = {
    "login": "logged in",
    "logout": "logged out",
    "password.changed": "changed the password",
    "password.reset": "reset the password",
    "account.deleted": "deleted their account",
    "email.changed": "changed the e-mail address",
    "factor.added": "added a second factor",
    "factor.removed": "removed the second factor",
    "token.created": "created an API token",
    "token.revoked": "revoked an API token",
    "organization.changed": "changed the organization",
    "organization.founded": "founded the signed member list of",
    "service.created": "created a service account",
    "member.invited": "invited a person",
    "member.uninvited": "withdrew an invitation",
    "member.joined": "joined",
    "member.changed": "changed a member's role",
    "member.removed": "removed a member",
    "dataset.created": "created the dataset",
    "dataset.changed": "changed the dataset",
    "dataset.deleted": "deleted the dataset",
    "dataset.key": "created a new key for the dataset",
    "dataset.forgot": "deleted older keys of the dataset",
    "dataset.listed": "let members ask for the dataset",
    "dataset.unlisted": "ended requests for the dataset",
    "access.requested": "asked for access to the dataset",
    "access.withdrawn": "withdrew a request for the dataset",
    "access.declined": "declined a member's request",
    "schema.created": "created the schema",
    "schema.changed": "changed the schema",
    "schema.deleted": "deleted the schema",
    "schema.key": "created a new key for",
    "records.stored": "stored records in",
    "records.changed": "changed records of",
    "records.deleted": "deleted records of",
    "records.expired": "deleted expired records of",
    "records.read": "read records of",
    "records.erased": "erased deleted records of",
    "records.resealed": "re-encrypted records in",
    "records.compacted": "joined small groups of",
    "index.merged": "merged the index of",
}


@dataclass(frozen=True, slots=True)
class AuditLine:
    """Attributes:
    since: time of the oldest entry; ``until``, of the newest.
    name: name of the object; empty if it is gone, or not known here.
    path: the object's page; empty if there is none.
    count: number of equal entries.
    """

    since: str
    until: str
    who: str
    did: str
    name: str
    path: str
    subject: str
    source: str
    count: int = 1


async def names_of(visit: Visit) -> dict[str, str]:
    """Names of the datasets, schemas and organizations that the visitor can see, by URL."""
    names: dict[str, str] = {}
    for kind in ("datasets", "schemas", "organizations"):
        names |= {entry["url"]: entry["name"] for entry in await visit.every(f"/api/{kind}/")}
    return names


def lines_of(entries: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> list[AuditLine]:
    """Lines in the order of entries, the newest first; consecutive entries that differ only in time
    are one line.
    """
    lines: list[AuditLine] = []
    for entry in entries:
        line = _line(entry, names)
        before = lines[-1] if lines else None
        if before is not None and _key(before) == _key(line):
            lines[-1] = replace(before, since=line.since, count=before.count + 1)
        else:
            lines.append(line)
    return lines


def _line(entry: Mapping[str, Any], names: Mapping[str, str]) -> AuditLine:
    subject, action = str(entry["subject"] or ""), str(entry["action"])
    leads = subject in names and subject.startswith(("/api/datasets/", "/api/schemas/"))
    return AuditLine(
        since=entry["created"],
        until=entry["created"],
        who=str(entry["email"] or "somebody"),
        did=ACTIONS.get(action, action.replace(".", " ")),
        name=names.get(subject, ""),
        path=subject.removeprefix("/api") if leads else "",
        subject=subject,
        source=str(entry["source"] or ""),
    )


def _key(line: AuditLine) -> Iterable[str]:
    return line.who, line.did, line.subject, line.source


# --- pages ----------------------------------------------------------------------------------------

PAGE_ENTRIES = 100
_ASKED = ("action", "without", "user", "until")


def _takes(name: str, value: str, people: Mapping[str, str]) -> bool:
    """Whether the log accepts this filter; an address may contain anything."""
    match name:
        case "action" | "without":
            return value in ACTIONS
        case "user":
            return value in people
    return is_day(value)


async def start(visit: Visit) -> Response:
    """Redirect to the only organization, or show a choice of several."""
    organizations = await visit.every("/api/organizations/")
    if len(organizations) == 1:
        return visit.go(f"/audit-log/{organizations[0]['id']}/")
    return visit.render("audit_start.html", organizations=organizations)


async def log(visit: Visit) -> Response:
    """A page of entries. The address may contain the start, the kind, a person and a day: these
    reveal nothing.
    """
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
