"""Rights in an organization: invite, share, revoke, make owners, services, recover.

The words of an invitation and the secret key of a service are only in the answer that makes them:
not in a URL, not in a form field that is sent again, and not in the browser's storage. Typed input
is shown again after an error, except words and passwords.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from encrypted_records import runtime
from encrypted_records.errors import BadInput, ErsError, NotFound
from encrypted_records.proxy.pages import phrases
from encrypted_records.proxy.pages.page import Visit, page, proof_of
from encrypted_records.proxy.pages.shares import Choice, changed, choices_of, id_of

_METHODS = ("GET", "POST")
_DAY = 86_400
#: More days than any service may last.
_MOST_DIGITS = 6


async def start(visit: Visit) -> Response:
    """The people of the only organization, or which there are."""
    return visit.go("/organizations/")


async def invite(visit: Visit) -> Response:
    """Invite an address; the answer to the form shows the twelve words, once."""
    choices = await choices_of(visit, visit.id, await visit.ask("GET", f"{_url(visit)}people/"))
    # Asked before: nothing may fail between what is said once and its page.
    organization = await visit.ask("GET", _url(visit))
    problem: ErsError | None = None
    if visit.sends:
        try:
            body = {
                "email": visit.text("email"),
                "shares": _chosen(choices),
                "new": visit.text("new") == "yes",
                "proof": proof_of(visit),
            }
            made = await visit.ask("POST", f"{_url(visit)}people/", body)
        except ErsError as error:
            problem = error
        else:
            return visit.render(
                "people_words.html",
                organization=organization,
                email=visit.text("email"),
                made=made,
            )
    return await _form(visit, "people_invite.html", problem, choices=choices)


async def make_service(visit: Visit) -> Response:
    """Make a service; the answer to the form shows its string, once."""
    choices = await choices_of(visit, visit.id, await visit.ask("GET", f"{_url(visit)}people/"))
    organization = await visit.ask("GET", _url(visit))
    problem: ErsError | None = None
    if visit.sends:
        try:
            body = {
                "name": visit.text("name"),
                "shares": _chosen(choices),
                "expires": _end(visit.text("days")),
                "proof": proof_of(visit),
            }
            made = await visit.ask("POST", f"{_url(visit)}services/", body)
        except ErsError as error:
            problem = error
        else:
            return visit.render(
                "people_service.html",
                organization=organization,
                name=visit.text("name"),
                made=made,
            )
    return await _form(visit, "people_new_service.html", problem, choices=choices)


def _end(days: str) -> int | None:
    """When a service ends, in seconds since 1970; None where no days were chosen.

    Raises:
        BadInput: this is no number of days: it must not become a service that never ends.
    """
    if not days:
        return None
    if not (days.isascii() and days.isdecimal() and len(days) <= _MOST_DIGITS):
        raise BadInput("the number of days until it expires must be a number")
    return int(runtime.wall()) + int(days) * _DAY


async def change(visit: Visit) -> Response:
    """Change the rights of a member, and whether the member is an owner."""
    people = await visit.ask("GET", f"{_url(visit)}people/")
    member = find_member(people, visit.part("member"))
    shares: Sequence[dict[str, Any]] = member["shares"]
    wanted = _request_of(people, member["id"], visit.request.query_params.get("request", ""))
    choices = await choices_of(visit, visit.id, people, _with_request(shares, wanted))
    problem: ErsError | None = None
    if visit.sends:
        try:
            if visit.text("do") == "share":
                await _share(visit, choices, shares)
            elif visit.text("do") in ("owner", "member"):
                body = {"role": visit.text("do"), "proof": proof_of(visit)}
                await visit.ask("PATCH", f"{_url(visit)}people/{member['id']}/", body)
            elif visit.text("do") == "address":
                body = {"email": visit.text("email"), "proof": proof_of(visit)}
                await visit.ask("PATCH", f"{_url(visit)}people/{member['id']}/", body)
        except ErsError as error:
            problem = error
        else:
            return visit.go(f"/organizations/{visit.id}/")
    owners = [person for person in people["people"] if person["role"] == "owner"]
    return await _form(
        visit,
        "people_change.html",
        problem,
        choices=choices,
        member=member,
        wanted=wanted,
        only_owner=len(owners) == 1,
    )


def _request_of(people: dict[str, Any], member: str, dataset: str) -> dict[str, Any] | None:
    """The request of a member for a dataset, as the proxy has verified it."""
    found: list[dict[str, Any]] = [
        request
        for request in people["requests"]
        if (request["member"], id_of(request["dataset"])) == (member, dataset)
    ]
    return found[0] if found else None


def _with_request(
    shares: Sequence[dict[str, Any]], wanted: dict[str, Any] | None
) -> list[dict[str, Any]]:
    """The shares that the form is to show: with what is asked for in place of what there is."""
    if wanted is None:
        return list(shares)
    kept = [share for share in shares if share["dataset"] != wanted["dataset"]]
    return [*kept, {"dataset": wanted["dataset"], "role": wanted["role"], "schemas": None}]


async def _share(visit: Visit, choices: Sequence[Choice], before: Sequence[dict[str, Any]]) -> None:
    """Share dataset by dataset: if a dataset fails, the earlier changes stay and are shown."""
    for change in changed(choices, before):
        path = f"/api/datasets/{change.dataset}/people/{visit.part('member')}/"
        if not change.role:
            await visit.ask("DELETE", path)
            continue
        body: dict[str, Any] = {"role": change.role, "proof": proof_of(visit)}
        if change.schemas:
            body["schemas"] = sorted(change.schemas)
        await visit.ask("PUT", path, body)


async def recover(visit: Visit) -> Response:
    """Become an owner by the recovery words of an owner who was lost."""
    problem: ErsError | None = None
    if visit.sends:
        try:
            words = phrases.phrases_of(visit.text("phrase"))
            body = {"phrases": words, "proof": proof_of(visit)}
            done = await visit.ask("POST", f"{_url(visit)}recover/", body)
        except ErsError as error:
            problem = error
        else:
            return visit.render(
                "said.html",
                title="You own the organization",
                lines=[
                    f"Your access comes from the keys of {done['by']}.",
                    "Show the words of your own keyring now, and keep them: they are the"
                    " organization's recovery words from now on.",
                ],
                link=(f"/organizations/{visit.id}/", "Go to the people"),
            )
    return await _form(visit, "people_recover.html", problem)


async def answer(visit: Visit) -> Response:
    """Answer an invitation with its twelve words."""
    invitations = await visit.every("/api/invitations/")
    found = [invitation for invitation in invitations if invitation["id"] == visit.id]
    if not found:
        raise NotFound(
            "there is no such open invitation for this account",
            hint="it was used, withdrawn or declined, or is for another address; ask to be invited"
            " again",
        )
    if visit.sends:
        words = " ".join(phrases.words_of(visit.text("words")))
        try:
            given = await visit.ask("POST", f"/api/invitations/{visit.id}/words/", {"words": words})
        except ErsError as error:
            return visit.problem(error, "people_answer.html", invitation=found[0])
        return visit.render(
            "said.html",
            title="The words were correct",
            lines=[
                "An owner's proxy admits you when it sees your answer;"
                f" {given['invited_by']} invited you. Proxies check about once a minute while"
                " their owners work.",
                "The shared datasets then appear among your datasets.",
            ],
            link=("/datasets/", "Go to the datasets"),
        )
    return visit.render("people_answer.html", invitation=found[0])


def find_member(people: dict[str, Any], member: str) -> dict[str, Any]:
    """
    Raises:
        NotFound: the roster has no member with that id.
    """
    found: list[dict[str, Any]] = [person for person in people["people"] if person["id"] == member]
    if not found:
        raise NotFound("there is no such member")
    return found[0]


def _chosen(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """
    Raises:
        BadInput: nothing was chosen, so that who comes in would read nothing.
    """
    chosen = [choice.as_share() for choice in choices if choice.role]
    if not chosen:
        raise BadInput("nothing is shared", hint="choose rights for at least one dataset")
    return chosen


async def _form(visit: Visit, template: str, problem: ErsError | None, **values: Any) -> Response:
    """Show one of these pages with the typed input, without secrets."""
    shown = {
        "organization": await visit.ask("GET", _url(visit)),
        "access": await visit.ask("GET", "/api/devices/"),
        "typed": visit.form,
        **values,
    }
    if problem is not None:
        return visit.problem(problem, template, **shown)
    return visit.render(template, **shown)


def _url(visit: Visit) -> str:
    return f"/api/organizations/{visit.id}/"


routes = [
    page("/people/", start),
    page("/organizations/{id}/invite/", invite, methods=_METHODS),
    page("/organizations/{id}/new-service/", make_service, methods=_METHODS),
    page("/organizations/{id}/people/{member}/", change, methods=_METHODS),
    page("/organizations/{id}/recover/", recover, methods=_METHODS),
    page("/invitations/{id}/", answer, methods=_METHODS),
]
