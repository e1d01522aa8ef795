"""People of an organization as answers show them; and shares as bodies give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec

from encrypted_records import runtime
from encrypted_records.errors import ErsError
from encrypted_records.index.roster.belief import RosterSummary, head_words
from encrypted_records.index.roster.due import due_datasets
from encrypted_records.index.roster.invitations import InvitationStatus, check_answer, status_of
from encrypted_records.index.roster.requests import ReadRequests, StandingRequest
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.model.ids import reference, to_text
from encrypted_records.model.roster import Answer, Share
from encrypted_records.proxy.api.json_schema import (
    DATASET_NAME,
    SCHEMA_NAME,
    Part,
    array_of,
    object_of,
    one_of,
)
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.services import Services
from encrypted_records.proxy.sharing.reading import View
from encrypted_records.proxy.sharing.settling import AppliedChanges
from encrypted_records.rules.roster_state import InvitationState, Member, Scope

Role = Literal["reader", "writer"]
_RIGHTS: dict[str, Literal[1, 2]] = {"writer": 1, "reader": 2}
_ROLES = {right: role for role, right in _RIGHTS.items()}
#: The state of an invitation whose address was invited once more.
_REPLACED = "replaced"
#: Requested shares are read as those of an organization's thousand datasets.
MAX_SHARES = 2 * form.MAX_DATASETS

SHARE: Part = object_of(
    {"dataset": DATASET_NAME, "role": one_of("reader", "writer")},
    schemas=array_of(SCHEMA_NAME, maxItems=16),
)
SHARES: Part = array_of(SHARE, maxItems=MAX_SHARES)


class ShareWanted(msgspec.Struct, forbid_unknown_fields=True):
    """One dataset's, for all of its schemas where ``schemas`` is left out."""

    dataset: str
    role: Role
    schemas: list[str] | None = None


async def read_shares(
    services: Services, holder: Holder, wanted: Iterable[ShareWanted]
) -> list[Share]:
    """
    Raises:
        BadInput: a reference leads nowhere.
        ErsError: as :meth:`ShownNames.by_slug`.
    """
    find = services.sharing.shown_names.of_reference
    return [
        await read_share(
            services,
            holder,
            await find(
                *(holder, share.dataset, "datasets"),
                pointer=f"/shares/{number}/dataset",
                own_hosts=services.own_origins,
            ),
            share.role,
            share.schemas,
            pointer=f"/shares/{number}/schemas",
        )
        for number, share in enumerate(wanted)
    ]


async def read_share(
    services: Services,
    holder: Holder,
    dataset: bytes,
    role: Role,
    schemas: Sequence[str] | None,
    *,
    pointer: str = "/schemas",
) -> Share:
    """
    Raises:
        ErsError: as :func:`read_shares`.
    """
    find, own = services.sharing.shown_names.of_reference, services.own_origins
    named = [
        await find(holder, schema, "schemas", pointer=f"{pointer}/{number}", own_hosts=own)
        for number, schema in enumerate(schemas or ())
    ]
    return Share(dataset, _RIGHTS[role], named)


def right_of(role: Role) -> Literal[1, 2]:
    """The right by which the roster states a role."""
    return _RIGHTS[role]


@dataclass(frozen=True, slots=True)
class OwnersAnswers:
    """Answers of the API to owners on invitations, services and accounts, beside the roster.

    Attributes:
        answers: of the invited.
        waiting: the ids of those that it says still wait; None where it was not asked.
        number: the roster's newest entry when it was asked.
        used: when each service was last used, by its id; None where it was not asked.
        accounts: the ids of people who have one; None where it was not asked.
    """

    answers: Sequence[Answer] = ()
    waiting: Set[str] | None = None
    number: int = 0
    used: Mapping[str, datetime | None] | None = None
    accounts: Mapping[str, str] | None = None


def people_json(
    view: View,
    told: OwnersAnswers,
    requests: ReadRequests,
    first: RosterSummary | None = None,
) -> dict[str, Any]:
    """Readers and what they read, since when, let in by whom; the invited; who asks for access; and
    what is pending.

    Args:
        requests: those of all members for an owner, else those of the user.
        first: what this proxy was shown of the organization on first use.
    """
    roster = view.roster
    return {
        "organization": reference("organizations", view.organization),
        "number": roster.number,
        "words": head_words(roster),
        "people": [_member(roster, member, view.user, told) for member in roster.members()],
        "invitations": [
            _invitation(roster, invitation, told)
            for invitation in roster.invitations()
            if invitation.open
        ],
        "due": [
            {
                "dataset": reference("datasets", dataset.dataset),
                "name": _dataset_name(roster, dataset.dataset),
                "because": sorted({_name(roster, loss.member) for loss in dataset.losses}),
                "schemas": [schema.name for schema in dataset.open],
            }
            for dataset in due_datasets(roster)
        ],
        "datasets": [
            {
                "dataset": reference("datasets", dataset.dataset),
                "slug": dataset.slug,
                "name": dataset.name,
                "listed": bool(roster.listed_at(dataset.dataset)),
                "may_ask": _roles_to_ask_for(roster, view.user, dataset.dataset),
                "schemas": [
                    {"schema": reference("schemas", each.schema), "name": each.name}
                    for each in roster.schemas(dataset.dataset)
                    if each.slug
                ],
            }
            for dataset in roster.datasets()
            if dataset.slug
        ],
        "requests": [request_json(roster, request) for request in requests.standing],
        "requests_refused": requests.forged,
        "first_shown": None
        if first is None
        else {
            "members": first.members,
            "number": first.number,
            "since": first.time,
            "words": first.words,
        },
    }


def _roles_to_ask_for(roster: Roster, user: bytes, dataset: bytes) -> list[Role]:
    """The roles in a listed dataset that a member does not have in all of it."""
    member = roster.member(user)
    if (
        member is None
        or member.owns
        or member.type == form.SERVICE
        or not roster.listed_at(dataset)
    ):
        return []
    rights: tuple[tuple[Role, Scope], ...] = (
        ("reader", member.reads(dataset)),
        ("writer", member.writes(dataset)),
    )
    return [role for role, scope in rights if not scope.whole]


def nobody_json(organization: bytes) -> dict[str, Any]:
    """An organization without a roster: an owner founds it by sharing something."""
    return {
        "organization": reference("organizations", organization),
        "number": 0,
        "words": "",
        "people": [],
        "invitations": [],
        "due": [],
        "datasets": [],
        "requests": [],
        "requests_refused": 0,
        "first_shown": None,
    }


def _member(roster: Roster, member: Member, user: bytes, told: OwnersAnswers) -> dict[str, Any]:
    shown = {
        "id": to_text(member.member),
        "name": member.name,
        "type": "service" if member.type == form.SERVICE else "person",
        "role": "owner" if member.owns else "member",
        "shares": [
            share_json(roster, share) | _since(roster, roster.had_since(member.member, share))
            for share in member.shares
        ],
        "owner_since": roster.time_at(roster.owned_since(member.member)) if member.owns else None,
        **_since(roster, member.joined),
        "admitted_by": _name(roster, member.admitted_by),
        "known_by": _known_by(roster, member),
        "expires": member.expires or None,
        "you": member.member == user,
    }
    if member.type == form.SERVICE and told.used is not None:
        used = told.used.get(to_text(member.member))
        shown["last_used"] = None if used is None else int(used.timestamp())
    if member.type == form.PERSON and told.accounts is not None:
        # A member who joined after the API was asked is not taken for gone.
        asked = member.joined <= told.number
        address = told.accounts.get(to_text(member.member))
        shown["account_gone"] = asked and address is None
        differs = address is not None and address.casefold() != member.name.casefold()
        shown["email_now"] = address if differs else None
    return shown


def _since(roster: Roster, entry: int) -> dict[str, int]:
    return {"entry": entry, "since": roster.time_at(entry)}


def _known_by(roster: Roster, member: Member) -> str:
    if member.type == form.SERVICE:
        return "owner"
    if member.member == roster.founder and member.joined == 1:
        return "founder"
    return "words" if member.invitation else "recovery"


def share_json(roster: Roster, share: Share) -> dict[str, Any]:
    return {
        "dataset": reference("datasets", share.dataset),
        "name": _dataset_name(roster, share.dataset),
        "role": _ROLES[share.right],
        "schemas": [
            {"schema": reference("schemas", schema), "name": _schema_name(roster, schema)}
            for schema in share.schemas
        ]
        or None,
    }


def request_json(roster: Roster, request: StandingRequest) -> dict[str, Any]:
    body = request.body
    return {
        "dataset": reference("datasets", body.dataset),
        "name": _dataset_name(roster, body.dataset),
        "member": to_text(body.member),
        "email": _name(roster, body.member),
        "role": _ROLES[body.right],
        "asked": body.time,
        "declined": request.declined or None,
    }


def _invitation(roster: Roster, invitation: InvitationState, told: OwnersAnswers) -> dict[str, Any]:
    now, content = int(runtime.wall()), invitation.content
    given = next((answer for answer in told.answers if answer.id == content.id), None)
    answered, refused = given is not None, None
    if given is not None:
        try:
            check_answer(roster, given, now)
        except ErsError as error:
            answered, refused = False, error.reason
    ended = (
        told.waiting is not None
        and invitation.number <= told.number
        and to_text(content.id) not in told.waiting
    )
    replaced = ended and _is_replaced(roster, invitation)
    status = status_of(invitation, now, answered=answered, declined=ended and not replaced)
    return {
        "id": to_text(content.id),
        "email": content.name,
        "member": to_text(content.member) if content.member else None,
        "status": _REPLACED if replaced else str(status),
        "answer_refused": refused if status is InvitationStatus.WAITING else None,
        "invited_by": _name(roster, invitation.inviter),
        "expires": content.expires,
        "shares": [share_json(roster, share) for share in content.shares],
    }


def _is_replaced(roster: Roster, invitation: InvitationState) -> bool:
    """Whether the same address was invited again since; the API keeps one of an address."""
    name = invitation.content.name.casefold()
    return any(
        later.number > invitation.number and later.content.name.casefold() == name
        for later in roster.invitations()
    )


def _name(roster: Roster, member: bytes) -> str:
    standing = roster.member(member)
    return standing.name if standing is not None else ""


def _dataset_name(roster: Roster, dataset: bytes) -> str:
    named = roster.dataset(dataset)
    return named.name if named is not None else ""


def _schema_name(roster: Roster, schema: bytes) -> str:
    placed = roster.schema(schema)
    return placed.name if placed is not None else ""


def settled_json(settled: AppliedChanges) -> dict[str, Any]:
    return {
        "admitted": settled.admitted,
        "removed": settled.removed,
        "rotated": settled.rotated,
        "troubles": [
            {
                "name": trouble.name,
                "code": trouble.error.reason,
                "detail": trouble.error.message,
                "hint": trouble.error.hint,
            }
            for trouble in settled.troubles
        ],
    }
