"""Rights in an organization: invite, share, revoke, make owners, services, recover.

The words of an invitation and the secret key of a service are only in the answer that makes them:
not in a URL, not in a form field that is sent again, and not in the browser's storage. Typed input
is shown again after an error, except words and passwords.

A form gives a member rights for each dataset: none, read, or read and write; on all of its schemas,
or only the ticked ones. Owners also change all rights in one table, with people and services in
rows and datasets in columns. Each cell contains the right that it has shown. If another owner has
changed one of the changed cells since, nothing is changed; cells that the visitor did not change
keep their current right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from encrypted_records import runtime
from encrypted_records.client.proxy.connection import ShownDataset, ShownSchema
from encrypted_records.errors import BadInput, Conflict, NotFound
from encrypted_records.model import ids
from encrypted_records.model.resources import InvitationResource, OrganizationResource
from encrypted_records.proxy.pages import keyring
from encrypted_records.proxy.pages.formatting import whole
from encrypted_records.proxy.pages.page import Visit, page, proof_of

RIGHTS = {"": "nothing", "reader": "reads", "writer": "reads and writes"}
_ID = re.compile(ids.PATTERN)
#: Prefixes of field names; an identifier follows.
_RIGHT, _ONLY = "right-", "only-"


@dataclass(frozen=True, slots=True)
class Choice:
    """The rights chosen for one dataset; empty ``schemas`` are all schemas, including later
    ones.
    """

    dataset: str
    name: str
    role: str
    schemas: frozenset[str]
    #: identifier and name of each schema of the dataset that can be ticked
    known: Sequence[tuple[str, str]]
    #: whether the dataset's name is signed
    signed: bool

    def as_share(self) -> dict[str, Any]:
        """The rights in the form that the proxy's endpoints accept."""
        share: dict[str, Any] = {"dataset": self.dataset, "role": self.role}
        return share | ({"schemas": sorted(self.schemas)} if self.schemas else {})


async def choices_of(
    visit: Visit,
    organization: str,
    people: Mapping[str, Any],
    before: Sequence[Mapping[str, Any]] = (),
) -> list[Choice]:
    """The choice for each dataset of an organization, from the form; or, if none was sent, from the
    shares ``before``.

    Signed datasets and schemas have their signed names: otherwise an API that swaps names could
    make an owner share another dataset than the one displayed. Only those that are not signed yet
    have the names that the API reports.

    Args:
        people: the people of the organization, as the proxy shows them.
    """
    names: dict[str, str] = {}
    called = {id_of(dataset["dataset"]): str(dataset["name"]) for dataset in people["datasets"]}
    known: dict[str, dict[str, str]] = {}
    for listed in await visit.every(ShownDataset, organization=organization):
        names[listed.id] = listed.name
    for below in await visit.every(ShownSchema, organization=organization):
        known.setdefault(id_of(below.dataset), {})[below.id] = below.name
    for shared in people["datasets"]:
        dataset = id_of(shared["dataset"])
        signed = {id_of(schema["schema"]): schema["name"] for schema in shared["schemas"]}
        for schemas in known.values():
            for schema in signed.keys() & schemas.keys():
                del schemas[schema]
        known.setdefault(dataset, {}).update(signed)
    return [
        Choice(
            dataset,
            name,
            *(_sent(visit, dataset) if visit.form else _shared(before, dataset)),
            [item for item in known.get(dataset, {}).items() if _ID.fullmatch(item[0])],
            dataset in called,
        )
        for dataset, name in (names | called).items()
        # The identifier becomes part of a path.
        if _ID.fullmatch(dataset)
    ]


def changed_choices(choices: Sequence[Choice], before: Sequence[Mapping[str, Any]]) -> list[Choice]:
    """The choices that differ from the current shares."""
    return [
        choice
        for choice in choices
        if (choice.role, choice.schemas) != _shared(before, choice.dataset)
    ]


def _sent(visit: Visit, dataset: str) -> tuple[str, frozenset[str]]:
    role = visit.text(f"{_RIGHT}{dataset}")
    if role not in RIGHTS or not role:
        return "", frozenset()
    begins = f"{_ONLY}{dataset}-"
    return role, frozenset(
        name.removeprefix(begins) for name in visit.form if name.startswith(begins)
    )


def _shared(shares: Sequence[Mapping[str, Any]], dataset: str) -> tuple[str, frozenset[str]]:
    for share in shares:
        if id_of(share["dataset"]) == dataset:
            schemas = share["schemas"] or ()
            return str(share["role"]), frozenset(id_of(schema["schema"]) for schema in schemas)
    return "", frozenset()


def id_of(path: str) -> str:
    """The identifier at the end of a path."""
    return str(path).rstrip("/").rpartition("/")[2]


# --- pages of members -----------------------------------------------------------------------------

_METHODS = ("GET", "POST")
_DAY = 86_400
#: More days than any service may last.
_MOST_DIGITS = 6


async def start(visit: Visit) -> Response:
    """The people of the only organization, or a choice of organizations."""
    return visit.go("/organizations/")


async def invite(visit: Visit) -> Response:
    """Invite an address; the answer to the form shows the twelve words, once."""
    choices = await choices_of(visit, visit.id, await visit.ask("GET", f"{_url(visit)}people/"))
    # Requested before the change: nothing may fail between a secret that is shown once and its
    # page.
    organization = await visit.read(OrganizationResource)
    if not visit.sends:
        return await _form(visit, "people_invite.html", organization, choices=choices)
    body = {
        "email": visit.text("email"),
        "shares": _chosen(choices),
        "new": visit.text("new") == "yes",
        "proof": proof_of(visit),
    }
    made = await visit.ask("POST", f"{_url(visit)}people/", body)
    shown = {"organization": organization, "email": visit.text("email"), "made": made}
    return visit.render("people_words.html", **shown)


async def make_service(visit: Visit) -> Response:
    """Make a service; the answer to the form shows its secret key, once."""
    choices = await choices_of(visit, visit.id, await visit.ask("GET", f"{_url(visit)}people/"))
    organization = await visit.read(OrganizationResource)
    if not visit.sends:
        return await _form(visit, "people_new_service.html", organization, choices=choices)
    body = {
        "name": visit.text("name"),
        "shares": _chosen(choices),
        "expires": _end(visit.text("days")),
        "proof": proof_of(visit),
    }
    made = await visit.ask("POST", f"{_url(visit)}services/", body)
    shown = {"organization": organization, "name": visit.text("name"), "made": made}
    return visit.render("people_service.html", **shown)


def _end(days: str) -> int | None:
    """The end of a service, in seconds since 1970; None if no days were chosen.

    Raises:
        BadInput: not a number of days; the service must not become unlimited by mistake.
    """
    if not days:
        return None
    number = whole(days, _MOST_DIGITS)
    if number is None:
        raise BadInput("the number of days until it expires must be a number")
    return int(runtime.wall()) + number * _DAY


async def change(visit: Visit) -> Response:
    """Change the rights of a member, and whether the member is an owner."""
    people = await visit.ask("GET", f"{_url(visit)}people/")
    member = find_member(people, visit.part("member"))
    shares: Sequence[dict[str, Any]] = member["shares"]
    wanted = _request_of(people, member["id"], visit.request.query_params.get("request", ""))
    choices = await choices_of(visit, visit.id, people, _with_request(shares, wanted))
    if visit.sends:
        path = f"{_url(visit)}people/{member['id']}/"
        match visit.text("do"):
            case "share":
                await _share(visit, choices, shares)
            case "owner" | "member" as role:
                await visit.ask("PATCH", path, {"role": role, "proof": proof_of(visit)})
            case "address":
                body = {"email": visit.text("email"), "proof": proof_of(visit)}
                await visit.ask("PATCH", path, body)
        return visit.go(f"/organizations/{visit.id}/")
    owners = [person for person in people["people"] if person["role"] == "owner"]
    return await _form(
        visit,
        "people_change.html",
        await visit.read(OrganizationResource),
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
    """The shares that the form shows: the requested share replaces the current share."""
    if wanted is None:
        return list(shares)
    kept = [share for share in shares if share["dataset"] != wanted["dataset"]]
    return [*kept, {"dataset": wanted["dataset"], "role": wanted["role"], "schemas": None}]


async def _share(visit: Visit, choices: Sequence[Choice], before: Sequence[dict[str, Any]]) -> None:
    """Share dataset by dataset: if a dataset fails, the earlier changes stay and are shown."""
    for change in changed_choices(choices, before):
        path = f"/api/datasets/{change.dataset}/people/{visit.part('member')}/"
        if not change.role:
            await visit.ask("DELETE", path)
            continue
        body: dict[str, Any] = {"role": change.role, "proof": proof_of(visit)}
        if change.schemas:
            body["schemas"] = sorted(change.schemas)
        await visit.ask("PUT", path, body)


async def recover(visit: Visit) -> Response:
    """Become an owner with the recovery words of a lost owner."""
    if not visit.sends:
        organization = await visit.read(OrganizationResource)
        return await _form(visit, "people_recover.html", organization)
    body = {"phrases": keyring.phrases_of(visit.text("phrase")), "proof": proof_of(visit)}
    done = await visit.ask("POST", f"{_url(visit)}recover/", body)
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


async def answer(visit: Visit) -> Response:
    """Answer an invitation with its twelve words."""
    invitations = await visit.every(InvitationResource, "/api/invitations/")
    found = [invitation for invitation in invitations if invitation.id == visit.id]
    if not found:
        raise NotFound(
            "there is no such open invitation for this account",
            hint="it was used, withdrawn or declined, or is for another address; ask to be invited"
            " again",
        )
    if not visit.sends:
        return visit.render("people_answer.html", invitation=found[0])
    words = " ".join(keyring.words_of(visit.text("words")))
    given = await visit.ask("POST", f"/api/invitations/{visit.id}/words/", {"words": words})
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
        BadInput: nothing was chosen, so the new member could read nothing.
    """
    chosen = [choice.as_share() for choice in choices if choice.role]
    if not chosen:
        raise BadInput("nothing is shared", hint="choose rights for at least one dataset")
    return chosen


def owns(people: Mapping[str, Any]) -> bool:
    """Whether the visitor is an owner, by an answer about the people of an organization."""
    return any(person["you"] and person["role"] == "owner" for person in people.get("people", ()))


async def _form(
    visit: Visit, template: str, organization: OrganizationResource, **values: Any
) -> Response:
    """Show one of these pages with the typed input, without secrets."""
    access = await visit.ask("GET", "/api/devices/")
    shown = {"organization": organization, "access": access, "typed": visit.form}
    return visit.render(template, **shown, **values)


def _url(visit: Visit) -> str:
    return f"/api/organizations/{visit.id}/"


# --- the table of rights --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RightCell:
    """The right of a member in a dataset: one of :data:`RIGHTS`.

    Attributes:
        now: the current right in the signed list.
        shown: the right that the visitor's form has shown.
        typed: the right in the form.
        schemas: names of the only schemas that the right is for; such a cell is changed on the
            member's own page.
    """

    member: str
    dataset: str
    now: str
    shown: str
    typed: str
    schemas: Sequence[str] = ()

    @property
    def name(self) -> str:
        return f"{self.member}-{self.dataset}"

    @property
    def chosen(self) -> str:
        """The right that the visitor wants: the current right if the visitor did not change it."""
        return self.now if self.typed == self.shown else self.typed

    @property
    def is_changed(self) -> bool:
        return self.typed != self.shown and (self.typed != self.now or bool(self.schemas))

    @property
    def is_overtaken(self) -> bool:
        """Whether the right is neither the shown nor the typed right, or is only for some
        schemas.
        """
        return bool(self.schemas) or self.now not in (self.shown, self.typed)


@dataclass(frozen=True, slots=True)
class MatrixRow:
    member: dict[str, Any]
    cells: Sequence[RightCell]


def matrix_rows(visit: Visit, people: dict[str, Any]) -> list[MatrixRow]:
    """A line for each member except owners, who have all rights."""
    datasets = [id_of(dataset["dataset"]) for dataset in people["datasets"]]
    members = [person for person in people["people"] if person["role"] != "owner"]
    return [
        MatrixRow(member, [_cell_of(visit, member, dataset) for dataset in datasets])
        for member in members
    ]


def _cell_of(visit: Visit, member: dict[str, Any], dataset: str) -> RightCell:
    shares = [share for share in member["shares"] if id_of(share["dataset"]) == dataset]
    now = str(shares[0]["role"]) if shares else ""
    schemas = [str(schema["name"]) for schema in shares[0]["schemas"] or ()] if shares else []
    name = f"{member['id']}-{dataset}"
    shown = visit.text(f"was-{name}", now)
    typed = visit.text(f"right-{name}", shown)
    return RightCell(member["id"], dataset, now, shown, typed, schemas)


def _changed_cells(lines: Sequence[MatrixRow]) -> Iterator[RightCell]:
    """
    Raises:
        BadInput: an unknown right.
        Conflict: a changed cell no longer has the right that was shown.
    """
    for cell in (cell for line in lines for cell in line.cells if cell.is_changed):
        if cell.typed not in RIGHTS:
            raise BadInput("there is no such right", hint="choose one from the menu")
        if cell.is_overtaken:
            raise Conflict(
                "somebody has changed these rights since you opened the table, so nothing"
                " was changed",
                hint="the table shows the current rights, and yours where they differ: check"
                " them, then apply yours if you still want them",
            )
        yield cell


async def show_matrix(visit: Visit) -> Response:
    """The table; for a sent form, the changes in order: changes before a failure stay, and are
    shown.
    """
    people = await visit.ask("GET", f"{_url(visit)}people/")
    lines = matrix_rows(visit, people)
    if visit.sends:
        for cell in list(_changed_cells(lines)):
            await _change_cell(visit, cell)
        return visit.go(f"/organizations/{visit.id}/")
    return visit.render(
        "people_matrix.html",
        organization=await visit.ask("GET", _url(visit)),
        access=await visit.ask("GET", "/api/devices/"),
        datasets=people["datasets"],
        lines=lines,
        rights=RIGHTS,
    )


async def _change_cell(visit: Visit, cell: RightCell) -> None:
    path = f"/api/datasets/{cell.dataset}/people/{cell.member}/"
    if cell.typed:
        await visit.ask("PUT", path, {"role": cell.typed, "proof": proof_of(visit)})
    else:
        await visit.ask("DELETE", path)


routes = [
    page("/people/", start),
    page("/organizations/{id}/invite/", invite, methods=_METHODS),
    page("/organizations/{id}/new-service/", make_service, methods=_METHODS),
    page("/organizations/{id}/people/{member}/", change, methods=_METHODS),
    page("/organizations/{id}/recover/", recover, methods=_METHODS),
    page("/invitations/{id}/", answer, methods=_METHODS),
    page("/organizations/{id}/rights/", show_matrix, methods=("GET", "POST")),
]
