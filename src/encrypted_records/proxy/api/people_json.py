"""People of an organization in answers, and shares in request bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from encrypted_records import runtime
from encrypted_records.client.proxy import sharing as structs
from encrypted_records.errors import ErsError
from encrypted_records.index.roster.access import (
    InvitationStatus,
    ReadRequests,
    StandingRequest,
    check_answer,
    status_of,
)
from encrypted_records.index.roster.belief import RosterSummary, head_words
from encrypted_records.index.roster.roster import Roster, due_datasets
from encrypted_records.model import roster as form
from encrypted_records.model.ids import reference, to_text
from encrypted_records.proxy.api.json_schema import DATASET_NAME, SCHEMA_NAME
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.services import Services
from encrypted_records.proxy.sharing.reading import View
from encrypted_records.proxy.sharing.settling import AppliedChanges
from encrypted_records.rules.roster_state import InvitationState, Member, Scope

DatasetName = Annotated[str, Meta(extra_json_schema=DATASET_NAME)]
SchemaName = Annotated[str, Meta(extra_json_schema=SCHEMA_NAME)]
_RIGHTS: dict[structs.ShareRole, Literal[1, 2]] = {"writer": 1, "reader": 2}
_ROLES: dict[int, structs.ShareRole] = {right: role for role, right in _RIGHTS.items()}
#: The state of an invitation whose address was invited again.
_REPLACED = "replaced"


FewSchemas = Annotated[
    list[SchemaName], Meta(extra_json_schema={"maxItems": form.MAX_SINGLE_SCHEMAS})
]


class ShareWanted(msgspec.Struct, forbid_unknown_fields=True):
    """A dataset to share, with all of its schemas where ``schemas`` is left out."""

    dataset: DatasetName
    role: structs.ShareRole
    schemas: FewSchemas | None = None


#: Requested shares are limited to the shares of an organization's thousand datasets.
Shares = Annotated[list[ShareWanted], Meta(max_length=2 * form.MAX_DATASETS)]


async def read_shares(
    services: Services, holder: Holder, wanted: Iterable[ShareWanted]
) -> list[form.Share]:
    """
    Raises:
        BadInput: a reference is unknown.
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
    role: structs.ShareRole,
    schemas: Sequence[str] | None,
    *,
    pointer: str = "/schemas",
) -> form.Share:
    """
    Raises:
        ErsError: as :func:`read_shares`.
    """
    find, own_hosts = services.sharing.shown_names.of_reference, services.own_origins
    named = [
        await find(holder, schema, "schemas", pointer=f"{pointer}/{number}", own_hosts=own_hosts)
        for number, schema in enumerate(schemas or ())
    ]
    return form.Share(dataset, _RIGHTS[role], named)


def right_of(role: structs.ShareRole) -> Literal[1, 2]:
    """The right by which the roster states a role."""
    return _RIGHTS[role]


@dataclass(frozen=True, slots=True)
class OwnersAnswers:
    """The API's answers to owners about invitations, services and accounts, in addition to the
    roster.

    Attributes:
        answers: answers of invited users.
        waiting: ids of the invitations that the API reports as waiting; None without a request.
        number: the roster's newest entry at the time of the request.
        used: last use of each service, by its id; None without a request.
        accounts: ids of people with an account; None without a request.
    """

    answers: Sequence[form.Answer] = ()
    waiting: Set[str] | None = None
    number: int = 0
    used: Mapping[str, datetime | None] | None = None
    accounts: Mapping[str, str] | None = None


def people_of(
    view: View,
    answers: OwnersAnswers,
    requests: ReadRequests,
    first: RosterSummary | None = None,
) -> structs.People:
    """Readers with their rights, since when, and who admitted them; invited users; access requests;
    and pending changes.

    Args:
        requests: those of all members for an owner, otherwise the user's.
        first: the roster summary that this proxy was shown on first use.
    """
    roster = view.roster
    return structs.People(
        organization=reference("organizations", view.organization),
        number=roster.number,
        words=head_words(roster),
        people=[_member(roster, member, view.user, answers) for member in roster.members()],
        invitations=[
            _invitation(roster, invitation, answers)
            for invitation in roster.invitations()
            if invitation.open
        ],
        due=[
            structs.Due(
                dataset=reference("datasets", dataset.dataset),
                name=_dataset_name(roster, dataset.dataset),
                because=sorted({_name(roster, loss.member) for loss in dataset.losses}),
                schemas=[schema.name for schema in dataset.open],
            )
            for dataset in due_datasets(roster)
        ],
        datasets=[
            structs.SignedDataset(
                dataset=reference("datasets", dataset.dataset),
                slug=dataset.slug,
                name=dataset.name,
                listed=bool(roster.listed_at(dataset.dataset)),
                may_ask=_roles_to_ask_for(roster, view.user, dataset.dataset),
                schemas=[
                    structs.SharedSchema(reference("schemas", placed.schema), placed.name)
                    for placed in roster.schemas(dataset.dataset)
                    if placed.slug
                ],
            )
            for dataset in roster.datasets()
            if dataset.slug
        ],
        requests=[request_of(roster, request) for request in requests.standing],
        requests_refused=requests.forged,
        first_shown=None
        if first is None
        else structs.FirstShown(first.members, first.number, first.time, first.words),
    )


def _roles_to_ask_for(roster: Roster, user: bytes, dataset: bytes) -> list[structs.ShareRole]:
    """The roles in a listed dataset that a member does not have for all of it."""
    member = roster.member(user)
    if (
        member is None
        or member.owns
        or member.type == form.SERVICE
        or not roster.listed_at(dataset)
    ):
        return []
    rights: tuple[tuple[structs.ShareRole, Scope], ...] = (
        ("reader", member.reads(dataset)),
        ("writer", member.writes(dataset)),
    )
    return [role for role, scope in rights if not scope.whole]


def nobody(organization: bytes) -> structs.People:
    """An organization without a roster: an owner founds it with the first share."""
    return structs.People(
        organization=reference("organizations", organization),
        number=0,
        words="",
        people=[],
        invitations=[],
        due=[],
        datasets=[],
        requests=[],
        requests_refused=0,
        first_shown=None,
    )


def _member(
    roster: Roster, member: Member, user: bytes, answers: OwnersAnswers
) -> structs.PersonOrService:
    last_used, gone, address = None, None, None
    if member.type == form.SERVICE and answers.used is not None:
        used = answers.used.get(to_text(member.member))
        last_used = None if used is None else int(used.timestamp())
    if member.type == form.PERSON and answers.accounts is not None:
        address = answers.accounts.get(to_text(member.member))
        # A member who joined after the API's answer does not count as removed.
        gone = member.joined <= answers.number and address is None
    differs = address is not None and address.casefold() != member.name.casefold()
    return structs.PersonOrService(
        id=to_text(member.member),
        name=member.name,
        type="service" if member.type == form.SERVICE else "person",
        role="owner" if member.owns else "member",
        shares=[
            share_of(roster, share, roster.had_since(member.member, share))
            for share in member.shares
        ],
        owner_since=roster.time_at(roster.owned_since(member.member)) if member.owns else None,
        entry=member.joined,
        since=roster.time_at(member.joined),
        admitted_by=_name(roster, member.admitted_by),
        known_by=_known_by(roster, member),
        expires=member.expires or None,
        you=member.member == user,
        last_used=last_used,
        account_gone=gone,
        email_now=address if differs else None,
    )


def _known_by(roster: Roster, member: Member) -> str:
    if member.type == form.SERVICE:
        return "owner"
    if member.member == roster.founder and member.joined == 1:
        return "founder"
    return "words" if member.invitation else "recovery"


def share_of(roster: Roster, share: form.Share, entry: int | None = None) -> structs.Shared:
    """
    Args:
        entry: the entry since which a member has the share.
    """
    schemas = [
        structs.SharedSchema(reference("schemas", schema), _schema_name(roster, schema))
        for schema in share.schemas
    ]
    return structs.Shared(
        dataset=reference("datasets", share.dataset),
        name=_dataset_name(roster, share.dataset),
        role=_ROLES[share.right],
        schemas=schemas or None,
        entry=entry,
        since=None if entry is None else roster.time_at(entry),
    )


def request_of(
    roster: Roster, request: StandingRequest, owners: Iterable[str] = ()
) -> structs.OpenRequest:
    body = request.body
    return structs.OpenRequest(
        dataset=reference("datasets", body.dataset),
        name=_dataset_name(roster, body.dataset),
        member=to_text(body.member),
        email=_name(roster, body.member),
        role=_ROLES[body.right],
        asked=body.time,
        declined=request.declined or None,
        owners=list(owners),
    )


def _invitation(
    roster: Roster, invitation: InvitationState, answers: OwnersAnswers
) -> structs.WaitingInvitation:
    now, content = int(runtime.wall()), invitation.content
    given = next((answer for answer in answers.answers if answer.id == content.id), None)
    answered, refused = given is not None, None
    if given is not None:
        try:
            check_answer(roster, given, now)
        except ErsError as error:
            answered, refused = False, error.reason
    ended = (
        answers.waiting is not None
        and invitation.number <= answers.number
        and to_text(content.id) not in answers.waiting
    )
    replaced = ended and _is_replaced(roster, invitation)
    status = status_of(invitation, now, answered=answered, declined=ended and not replaced)
    return structs.WaitingInvitation(
        id=to_text(content.id),
        email=content.name,
        member=to_text(content.member) if content.member else None,
        status=_REPLACED if replaced else str(status),
        answer_refused=refused if status is InvitationStatus.WAITING else None,
        invited_by=_name(roster, invitation.inviter),
        expires=content.expires,
        shares=[share_of(roster, share) for share in content.shares],
    )


def _is_replaced(roster: Roster, invitation: InvitationState) -> bool:
    """Whether the same address was invited again later; the API keeps one invitation per
    address.
    """
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


def settled_of(applied: AppliedChanges) -> structs.Settled:
    troubles = [
        structs.SettlingTrouble(
            trouble.name, trouble.error.reason, trouble.error.message, trouble.error.hint
        )
        for trouble in applied.troubles
    ]
    return structs.Settled(
        list(applied.admitted), list(applied.removed), list(applied.rotated), troubles
    )
