"""Organizations: who belongs to them, inviting and removing people, renaming; one's invitations."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from encrypted_records.errors import ErsError, NotFound
from encrypted_records.proxy.routes.web.visit import Visit, page

_METHODS = ("GET", "POST")


async def start(visit: Visit) -> Response:
    """Those one belongs to, and those one is invited to; straight to the only one."""
    problem: ErsError | None = None
    if visit.sends:
        do, _, invitation = visit.text("do").partition(":")
        try:
            if do == "accept":
                await visit.ask("POST", f"/api/invitations/{invitation}/accept/")
            if do == "decline":
                await visit.ask("DELETE", f"/api/invitations/{invitation}/")
        except ErsError as error:
            problem = error
        else:
            return visit.go("/organizations/")
    shown: dict[str, Any] = {
        "organizations": await visit.every("/api/organizations/"),
        "invitations": await visit.every("/api/invitations/"),
    }
    if problem is not None:
        return visit.problem(problem, "organizations.html", **shown)
    if len(shown["organizations"]) == 1 and not shown["invitations"]:
        return visit.go(f"/organizations/{shown['organizations'][0]['id']}/")
    return visit.render("organizations.html", **shown)


async def one(visit: Visit) -> Response:
    url = f"/api/organizations/{visit.id}/"
    if not visit.sends:
        return await _shown(visit, url)
    do, _, target = visit.text("do").partition(":")
    try:
        match do:
            case "rename":
                await visit.ask("PATCH", url, {"name": visit.text("name")})
            case "invite":
                invited = {"email": visit.text("email"), "role": visit.text("role")}
                await visit.ask("POST", f"{url}invitations/", invited)
            case "withdraw":
                await visit.ask("DELETE", f"{url}invitations/{target}/")
            case "owner" | "member":
                await visit.ask("PATCH", f"{url}members/{target}/", {"role": do})
    except ErsError as error:
        return await _shown(visit, url, error)
    return visit.go(f"/organizations/{visit.id}/")


async def _shown(visit: Visit, url: str, problem: ErsError | None = None) -> Response:
    user = await visit.ask("GET", "/api/users/self/")
    members = await visit.every(f"{url}members/")
    owns = any(one["email"] == user["email"] and one["role"] == "owner" for one in members)
    values: dict[str, Any] = {
        "organization": await visit.ask("GET", url),
        "members": members,
        "user": user,
        "owns": owns,
        "invitations": await visit.every(f"{url}invitations/") if owns else [],
        "typed": visit.form,
    }
    if problem is not None:
        return visit.problem(problem, "organization.html", **values)
    return visit.render("organization.html", **values)


async def remove(visit: Visit) -> Response:
    """Asks first; who removes themselves leaves."""
    url = f"/api/organizations/{visit.id}/"
    members = await visit.every(f"{url}members/")
    wanted = visit.request.path_params["member"]
    found = [member for member in members if member["url"].split("/")[-2] == wanted]
    if not found:
        raise NotFound("there is no such member")
    user = await visit.ask("GET", "/api/users/self/")
    values: dict[str, Any] = {
        "organization": await visit.ask("GET", url),
        "member": found[0],
        "leaves": found[0]["email"] == user["email"],
    }
    if not visit.sends:
        return visit.render("member_remove.html", **values)
    try:
        await visit.ask("DELETE", f"{url}members/{wanted}/")
    except ErsError as error:
        return visit.problem(error, "member_remove.html", **values)
    return visit.go("/organizations/" if values["leaves"] else f"/organizations/{visit.id}/")


routes = [
    page("/organizations/", start, methods=_METHODS),
    page("/organizations/{id}/", one, methods=_METHODS),
    page("/organizations/{id}/remove/{member}/", remove, methods=_METHODS),
]
