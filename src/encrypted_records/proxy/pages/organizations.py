"""Organizations: who reads what in them, the visitor's invitations, renaming.

Members are shown as the roster lists them, which the proxy has verified. An organization without a
roster has shared and stored nothing yet, and the server's list of members is shown. Removing and
leaving have their own page, which explains what they do and what they cannot do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.responses import Response

from encrypted_records.errors import ErsError, NotAuthenticated, NotFound
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.people import id_of

_METHODS = ("GET", "POST")


async def own_organizations(visit: Visit) -> list[dict[str, Any]]:
    """The organizations that the visitor belongs to, at least one.

    Raises:
        NotFound: there is none.
    """
    organizations = await visit.every("/api/organizations/")
    if not organizations:
        raise NotFound(
            "you belong to no organization", hint="accept an invitation, or create an organization"
        )
    return organizations


async def start(visit: Visit) -> Response:
    """The organizations of the visitor and invitations to others; redirects to the only
    organization if there are no invitations.
    """
    problem: ErsError | None = None
    if visit.sends:
        do, _, invitation = visit.text("do").partition(":")
        try:
            if do == "accept":
                await visit.ask("POST", f"/api/invitations/{invitation}/accept/")
            if do == "make":
                made = await visit.ask("POST", "/api/organizations/", {"name": visit.text("name")})
                return visit.go(f"/organizations/{made['id']}/")
            if do == "decline":
                await visit.ask("DELETE", f"/api/invitations/{invitation}/")
        except ErsError as error:
            if do == "accept" and error.reason == "through_a_proxy":
                return visit.go(f"/invitations/{invitation}/")  # this invitation needs words
            problem = error
        else:
            return visit.go("/organizations/")
    shown: dict[str, Any] = {
        "organizations": await visit.every("/api/organizations/"),
        "invitations": await visit.every("/api/invitations/"),
        "wanted_name": visit.text("name"),
    }
    if problem is not None:
        return visit.problem(problem, "organizations.html", **shown)
    if len(shown["organizations"]) == 1 and not shown["invitations"]:
        return visit.go(f"/organizations/{shown['organizations'][0]['id']}/")
    return visit.render("organizations.html", **shown)


async def show(visit: Visit) -> Response:
    url = f"/api/organizations/{visit.id}/"
    if not visit.sends:
        return await _show(visit, url)
    do, _, target = visit.text("do").partition(":")
    try:
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
    except ErsError as error:
        return await _show(visit, url, error)
    return visit.go(f"/organizations/{visit.id}/")


def _keep_done(visit: Visit, done: dict[str, Any]) -> None:
    """Store the result of a change, which the next page shows once."""
    visit.desk.put(("settled", visit.id), done)


async def _show(visit: Visit, url: str, problem: ErsError | None = None) -> Response:
    done = visit.desk.take(("settled", visit.id), dict)
    organization = await visit.ask("GET", url)
    people: dict[str, Any] | None = None
    closed = False
    try:
        people = await visit.ask("GET", f"{url}people/")
        if done is None and problem is None and _is_due(people):
            done = await visit.ask("POST", f"{url}settle/")
            people = await visit.ask("GET", f"{url}people/")
    except NotAuthenticated as error:
        if error.reason not in ("device_needed", "device_unknown"):
            raise
        closed = True
    except ErsError as error:
        problem = problem or error
    values: dict[str, Any] = {
        "organization": organization,
        "people": people,
        "closed": closed,
        "done": done,
        "typed": visit.form,
        "you": next((person for person in (people or {}).get("people", ()) if person["you"]), None),
        "askable": [] if people is None else list(_askable(people)),
        "plain": None,
    }
    if people is not None and not people["number"]:
        values["plain"] = await _members(visit, url)
    if problem is not None:
        return visit.problem(problem, "organization.html", **values)
    return visit.render("organization.html", **values)


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
    owns = any(person["you"] and person["role"] == "owner" for person in people["people"])
    answered = any(invitation["status"] == "answered" for invitation in people["invitations"])
    return owns and (answered or bool(people["due"]))


async def _members(visit: Visit, url: str) -> dict[str, Any]:
    """The server's data about an organization without a roster."""
    user = await visit.ask("GET", "/api/users/self/")
    members = await visit.every(f"{url}members/")
    owns = any(member["email"] == user["email"] and member["role"] == "owner" for member in members)
    return {
        "members": members,
        "user": user,
        "owns": owns,
        "invitations": await visit.every(f"{url}invitations/") if owns else [],
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
        members = await visit.every(f"{url}members/")
        matching = [
            {"name": member["email"], "type": "person", "shares": [], "role": member["role"]}
            for member in members
            if member["url"].split("/")[-2] == wanted
        ]
        leaves = bool(matching) and matching[0]["name"] == user["email"]
        path = f"{url}members/{wanted}/"
    if not matching:
        raise NotFound("there is no such member")
    values: dict[str, Any] = {
        "organization": await visit.ask("GET", url),
        "member": matching[0],
        "leaves": leaves,
        "signed": bool(people["number"]),
    }
    if not visit.sends:
        return visit.render("member_remove.html", **values)
    try:
        answered = await visit.answer("DELETE", path)
    except ErsError as error:
        return visit.problem(error, "member_remove.html", **values)
    if leaves:
        return visit.go("/organizations/")
    if values["signed"]:
        _keep_done(visit, answered.json())
    return visit.go(f"/organizations/{visit.id}/")


routes = [
    page("/organizations/", start, methods=_METHODS),
    page("/organizations/{id}/", show, methods=_METHODS),
    page("/organizations/{id}/remove/{member}/", remove, methods=_METHODS),
]
