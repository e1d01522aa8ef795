"""Organizations: who reads what in them, invitations, renaming, and the owners' audit log.

Members are shown as the roster lists them, which the proxy has verified. An organization without a
roster has shared and stored nothing yet, and the server's list of members is shown. Removing and
leaving have their own page, which explains what they do and what they cannot do.

Entries of the audit log become readable lines: names instead of paths, equal entries together.
Actors and objects have the names that the API reports. A path becomes a link only if it is that of
a dataset or a schema that the visitor can access.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from starlette.responses import Response

from encrypted_records.client.proxy.connection import ShownDataset, ShownSchema
from encrypted_records.errors import ErsError, NotAuthenticated, NotFound
from encrypted_records.model import resources
from encrypted_records.proxy.pages.formatting import is_day, whole
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.people import id_of, owns

_METHODS = ("GET", "POST")
AuditPage = resources.ListPage[resources.AuditEntryResource]


async def own_organizations(visit: Visit) -> list[resources.OrganizationResource]:
    """The organizations that the visitor belongs to, at least one.

    Raises:
        NotFound: there is none.
    """
    organizations = await visit.every(resources.OrganizationResource)
    if not organizations:
        raise NotFound(
            "you belong to no organization", hint="accept an invitation, or create an organization"
        )
    return organizations


async def start(visit: Visit) -> Response:
    """The organizations of the visitor and invitations to others; redirects to the only
    organization if there are no invitations.
    """
    if visit.sends:
        do, _, invitation = visit.text("do").partition(":")
        if do == "make":
            made = await visit.ask("POST", "/api/organizations/", {"name": visit.text("name")})
            return visit.go(f"/organizations/{made['id']}/")
        try:
            if do == "accept":
                await visit.ask("POST", f"/api/invitations/{invitation}/accept/")
            if do == "decline":
                await visit.ask("DELETE", f"/api/invitations/{invitation}/")
        except ErsError as error:
            if do != "accept" or error.reason != "through_a_proxy":
                raise
            return visit.go(f"/invitations/{invitation}/")  # this invitation needs words
        return visit.go("/organizations/")
    shown: dict[str, Any] = {
        "organizations": await visit.every(resources.OrganizationResource),
        "invitations": await visit.every(resources.InvitationResource, "/api/invitations/"),
        "wanted_name": visit.text("name"),
    }
    is_only = len(shown["organizations"]) == 1 and not shown["invitations"]
    if is_only and visit.refusal is None:
        return visit.go(f"/organizations/{shown['organizations'][0].id}/")
    return visit.render("organizations.html", **shown)


async def show(visit: Visit) -> Response:
    url = f"/api/organizations/{visit.id}/"
    if not visit.sends:
        return await _show(visit, url)
    do, _, target = visit.text("do").partition(":")
    match do:
        case "rename":
            await visit.ask("PATCH", url, {"name": visit.text("name")})
        case "withdraw":
            await visit.ask("DELETE", f"{url}people/{target}/")
        case "ask":
            body = {"role": visit.text("role")}
            await visit.ask("PUT", f"/api/datasets/{target}/requests/", body)
        case "withdraw-request":
            await visit.ask("DELETE", f"/api/datasets/{target}/requests/")
        case "decline":
            dataset, _, member = target.partition(":")
            await visit.ask("DELETE", f"/api/datasets/{dataset}/requests/{member}/")
        case "settle":
            _keep_done(visit, await visit.ask("POST", f"{url}settle/"))
        case "withdraw-member":
            await visit.ask("DELETE", f"{url}invitations/{target}/")
        case "owner" | "member":
            await visit.ask("PATCH", f"{url}members/{target}/", {"role": do})
    return visit.go(f"/organizations/{visit.id}/")


def _keep_done(visit: Visit, done: dict[str, Any]) -> None:
    """Store the result of a change, which the next page shows once."""
    visit.desk.put(("settled", visit.id), done)


async def _show(visit: Visit, url: str) -> Response:
    done = visit.desk.take(("settled", visit.id), dict)
    organization = await visit.ask("GET", url)
    people: dict[str, Any] | None = None
    closed = False
    try:
        people = await visit.ask("GET", f"{url}people/")
        if done is None and visit.refusal is None and _is_due(people):
            done = await visit.ask("POST", f"{url}settle/")
            people = await visit.ask("GET", f"{url}people/")
    except NotAuthenticated as error:
        if error.reason not in ("device_needed", "device_unknown"):
            raise
        closed = True
    except ErsError as error:
        visit.refusal = visit.refusal or error
    unsigned = people is not None and not people["number"]
    return visit.render(
        "organization.html",
        organization=organization,
        people=people,
        closed=closed,
        done=done,
        typed=visit.form,
        you=next((person for person in (people or {}).get("people", ()) if person["you"]), None),
        askable=[] if people is None else list(_askable(people)),
        plain=await _members(visit, url) if unsigned else None,
    )


def _askable(people: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The listed datasets that the visitor may request, with the open request, if there is one, and
    the remaining roles.
    """
    requests = {request["dataset"]: request for request in people["requests"]}
    for dataset in people["datasets"]:
        if dataset["may_ask"]:
            yield {
                "id": id_of(dataset["dataset"]),
                "name": dataset["name"],
                "request": requests.get(dataset["dataset"]),
                "roles": dataset["may_ask"],
            }


def _is_due(people: dict[str, Any]) -> bool:
    """Whether the visitor, as an owner, has pending changes that need no further input."""
    answered = any(invitation["status"] == "answered" for invitation in people["invitations"])
    return owns(people) and (answered or bool(people["due"]))


async def _members(visit: Visit, url: str) -> dict[str, Any]:
    """The server's data about an organization without a roster."""
    user = await visit.ask("GET", "/api/users/self/")
    members = await visit.every(resources.MemberResource, f"{url}members/")
    invited = resources.InvitationResource
    owns = any(member.email == user["email"] and member.role == "owner" for member in members)
    return {
        "members": members,
        "user": user,
        "owns": owns,
        "invitations": await visit.every(invited, f"{url}invitations/") if owns else [],
    }


async def remove(visit: Visit) -> Response:
    """Asks for confirmation first; members who remove themselves leave."""
    url = f"/api/organizations/{visit.id}/"
    wanted = visit.part("member")
    people = await visit.ask("GET", f"{url}people/")
    if people["number"]:
        matching = [person for person in people["people"] if person["id"] == wanted]
        leaves = bool(matching) and matching[0]["you"]
        path = f"{url}people/{wanted}/"
    else:
        user = await visit.ask("GET", "/api/users/self/")
        members = await visit.every(resources.MemberResource, f"{url}members/")
        matching = [
            {"name": member.email, "type": "person", "shares": [], "role": member.role}
            for member in members
            if member.url.split("/")[-2] == wanted
        ]
        leaves = bool(matching) and matching[0]["name"] == user["email"]
        path = f"{url}members/{wanted}/"
    if not matching:
        raise NotFound("there is no such member")
    if not visit.sends:
        organization = await visit.read(resources.OrganizationResource)
        shown = {"organization": organization, "member": matching[0], "leaves": leaves}
        return visit.render("member_remove.html", **shown, signed=bool(people["number"]))
    answered = await visit.answer("DELETE", path)
    if leaves:
        return visit.go("/organizations/")
    if people["number"]:
        _keep_done(visit, answered.json())
    return visit.go(f"/organizations/{visit.id}/")


# --- the audit log --------------------------------------------------------------------------------

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

    since: datetime
    until: datetime
    who: str
    did: str
    name: str
    path: str
    subject: str
    source: str
    count: int = 1


async def names_of(visit: Visit) -> dict[str, str]:
    """Names of the datasets, schemas and organizations that the visitor can see, by URL."""
    names = {dataset.url: dataset.name for dataset in await visit.every(ShownDataset)}
    names |= {schema.url: schema.name for schema in await visit.every(ShownSchema)}
    owners = await visit.every(resources.OrganizationResource)
    return names | {owner.url: owner.name for owner in owners}


def lines_of(
    entries: Sequence[resources.AuditEntryResource], names: Mapping[str, str]
) -> list[AuditLine]:
    """Lines in the order of entries, the newest first; consecutive entries that differ only in time
    are one line.
    """
    lines: list[AuditLine] = []
    for entry in entries:
        line = _entry_line(entry, names)
        before = lines[-1] if lines else None
        if before is not None and _key(before) == _key(line):
            lines[-1] = replace(before, since=line.since, count=before.count + 1)
        else:
            lines.append(line)
    return lines


def _entry_line(entry: resources.AuditEntryResource, names: Mapping[str, str]) -> AuditLine:
    subject, action = entry.subject, entry.action
    leads = subject in names and subject.startswith(("/api/datasets/", "/api/schemas/"))
    return AuditLine(
        since=entry.created,
        until=entry.created,
        who=entry.email or "somebody",
        did=ACTIONS.get(action, action.replace(".", " ")),
        name=names.get(subject, ""),
        path=subject.removeprefix("/api") if leads else "",
        subject=subject,
        source=entry.source,
    )


def _key(line: AuditLine) -> Iterable[str]:
    return line.who, line.did, line.subject, line.source


PAGE_ENTRIES = 100
_FILTERS = ("action", "without", "user", "until")


def _takes(name: str, value: str, people: Mapping[str, str]) -> bool:
    """Whether the log accepts this filter; an address may contain anything."""
    match name:
        case "action" | "without":
            return value in ACTIONS
        case "user":
            return value in people
    return is_day(value)


async def find_log(visit: Visit) -> Response:
    """Redirect to the only organization, or show a choice of several."""
    organizations = await visit.every(resources.OrganizationResource)
    if len(organizations) == 1:
        return visit.go(f"/audit-log/{organizations[0].id}/")
    return visit.render("audit_start.html", organizations=organizations)


async def show_log(visit: Visit) -> Response:
    """A page of entries. The address may contain the start, the kind, a person and a day: these
    reveal nothing.
    """
    organization = await visit.read(resources.OrganizationResource)
    query = visit.request.query_params
    offset = whole(query.get("offset", ""), 8) or 0
    url = f"/api/organizations/{visit.id}/"
    joined = {"action": "member.joined", "limit": "1000"}
    left = await visit.read(AuditPage, f"{url}audit-log/", **joined)
    members = await visit.every(resources.MemberResource, f"{url}members/")
    present = {member.user: member.email for member in members}
    gone = {entry.user: f"{entry.email}, who left" for entry in left.results if entry.email}
    people = {
        user.split("/")[-2]: text for user, text in (present | gone | present).items() if user
    }
    filters = {
        name: value for name in _FILTERS if _takes(name, value := query.get(name, ""), people)
    }
    shown = {"limit": str(PAGE_ENTRIES), "offset": str(offset), **filters}
    entries = await visit.read(AuditPage, f"{url}audit-log/", **shown)
    return visit.render(
        "audit.html",
        organization=organization,
        people=people,
        filters=filters,
        more="".join(f"&{name}={value}" for name, value in filters.items()),
        lines=lines_of(entries.results, await names_of(visit)),
        actions=ACTIONS,
        shown=len(entries.results),
        count=entries.count,
        offset=offset,
        step=PAGE_ENTRIES,
    )


routes = [
    page("/organizations/", start, methods=_METHODS),
    page("/organizations/{id}/", show, methods=_METHODS),
    page("/organizations/{id}/remove/{member}/", remove, methods=_METHODS),
    page("/audit-log/", find_log),
    page("/audit-log/{id}/", show_log),
]
