"""Endpoints for the people of an organization: invite, accept, share, request access, revoke, apply
pending changes.

Endpoints that grant rights require a proof in the same request (:mod:`..admission`). The words of
an invitation and a service's secret key are only in the answer that makes them, and in no log,
error or other answer.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records import runtime
from encrypted_records.client.proxy import sharing as structs
from encrypted_records.client.proxy.keyring import Proof
from encrypted_records.errors import BadInput, NotFound
from encrypted_records.index.roster.access import ReadRequests
from encrypted_records.model import roster as form
from encrypted_records.model.ids import from_path, reference, to_text
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints, proven
from encrypted_records.proxy.api.parameters import id_in_path
from encrypted_records.proxy.api.people_json import (
    OwnersAnswers,
    SchemaName,
    Shares,
    nobody,
    people_of,
    read_share,
    read_shares,
    request_of,
    right_of,
    settled_of,
    share_of,
)
from encrypted_records.proxy.http.messages import answer, read_struct
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.services import Services, services_of
from encrypted_records.proxy.sharing.founding import prepare_shares

#: Maximum lifetime of a service in seconds.
_LONGEST_SERVICE = 10 * 366 * 86_400


EmailAddress = Annotated[str, Meta(min_length=3, max_length=form.MAX_NAME)]


class InvitationRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A person to invite; without ``shares``, a present member comes back under new keys."""

    email: EmailAddress
    shares: Shares | None = None
    new: bool = False
    proof: Proof | None = None


class GivenWords(msgspec.Struct, forbid_unknown_fields=True):
    """The twelve words of an invitation."""

    words: spec.NonEmpty

    def __repr__(self) -> str:
        return "<words>"


class MemberChange(msgspec.Struct, forbid_unknown_fields=True):
    """Another role of a member, or another address: one of them."""

    role: Literal["owner", "member"] | None = None
    email: EmailAddress | None = None
    proof: Proof | None = None


class ShareChange(msgspec.Struct, forbid_unknown_fields=True):
    """A member's share of a dataset, of all of its schemas where ``schemas`` is left out."""

    role: structs.ShareRole
    schemas: Annotated[list[SchemaName], Meta(max_length=form.MAX_SINGLE_SCHEMAS)] | None = None
    proof: Proof | None = None


class ListingChange(msgspec.Struct, forbid_unknown_fields=True):
    """Whether members may ask for access to a dataset."""

    listed: bool


class AccessWanted(msgspec.Struct, forbid_unknown_fields=True):
    """The role in a dataset that a member asks for."""

    role: structs.ShareRole


class OwnersPhrases(msgspec.Struct, forbid_unknown_fields=True):
    """The recovery phrases of an owner who lost access."""

    phrases: list[str]
    proof: Proof | None = None

    def __repr__(self) -> str:
        return "<phrases>"


class ServiceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A service to create; ``expires`` is in seconds since 1970, never if left out."""

    name: Annotated[str, Meta(min_length=1, max_length=150)]
    shares: Shares
    expires: Annotated[int, Meta(extra_json_schema={"minimum": 1})] | None = None
    proof: Proof | None = None


_PROOF = spec.or_null(spec.shape(Proof))

endpoint = Endpoints("people")
_PEOPLE = "/api/organizations/{id}/people/"
_PERSON = "/api/organizations/{id}/people/{member}/"
_IN_DATASET = "/api/datasets/{id}/people/{member}/"
_OWN_REQUEST = "/api/datasets/{id}/requests/"


@endpoint(
    "GET",
    _PEOPLE,
    summary=(
        "Show who reads and writes what, who is invited and which changes are pending, by"
        " the signed roster."
    ),
    answers={200: spec.json_answer(structs.People)},
)
async def list_people(request: Request, services: Services, holder: Holder) -> Response:
    organization = id_in_path(request)
    view = await services.sharing.reader.read(holder, organization)
    if view is None:
        return answer(nobody(organization))
    sharing = services.sharing
    by_login = holder.token is None and holder.service is None
    # Unverified data from the API, for display: only the roster decides about members and their
    # rights.
    answers = OwnersAnswers()
    if view.believed.standing.owns:
        number = view.roster.number
        answers = OwnersAnswers(
            await sharing.api.answers(organization, holder.auth),
            await sharing.api.invitations_of(organization, holder.auth),
            number,
            await sharing.api.services(organization, holder.auth)
            if any(member.type == form.SERVICE for member in view.roster.members())
            else {},
            await sharing.api.accounts_of(organization, holder.auth),
        )
    elif by_login:
        accounts = await sharing.api.accounts_of(organization, holder.auth)
        answers = OwnersAnswers(number=view.roster.number, accounts=accounts)
    if answers.accounts is not None:
        # Read again: a request that an entry has ended meanwhile does not count as declined.
        view = await sharing.reader.read(holder, organization) or view
    requests = await sharing.asking.read(view) if by_login else ReadRequests([])
    rosters = sharing.reader.rosters
    first = await runtime.in_thread(rosters.first_shown, holder.user, organization)
    return answer(people_of(view, answers, requests, first))


@endpoint.bare(
    "POST",
    _PEOPLE,
    summary="Invite a person by twelve words, which only this answer contains.",
    body=spec.json_body(InvitationRequest),
    answers={201: spec.json_answer(structs.NewInvitation)},
)
async def invite_person(request: Request) -> Response:
    """Without ``shares``, somebody who is in the organization comes back under new keys, and keeps
    what they have. With ``new``, an account is invited that never was in it, under an address that
    somebody else had there. Tell the words by phone or in person: the mail has none. One invitation
    counts for each address: ``replaced`` shows the earlier one, with its shares.
    """
    services, holder, body = await proven(request, InvitationRequest)
    organization = id_in_path(request)
    shares = None
    if body.shares is not None:
        shares = await read_shares(services, holder, body.shares)
        await _prepare(services, holder, organization, shares)
    invited = await services.sharing.inviting.invite(
        holder, organization, body.email, shares, new=body.new
    )
    replaced = None
    if invited.replaced is not None:
        content = invited.replaced.content
        shares_before = [share_of(invited.roster, share) for share in content.shares]
        replaced = structs.ReplacedInvitation(to_text(content.id), shares_before)
    made = structs.NewInvitation(
        id=to_text(invited.id),
        words=invited.words,
        expires=invited.expires,
        member=to_text(invited.member) if invited.member else None,
        replaced=replaced,
    )
    return answer(made, 201)


@endpoint(
    "POST",
    "/api/invitations/{id}/words/",
    summary="Answer an invitation with its twelve words.",
    body=spec.json_body(GivenWords),
    answers={200: spec.json_answer(structs.Joined)},
)
async def answer_invitation(request: Request, services: Services, holder: Holder) -> Response:
    """The words show that the organization's roster is the inviter's, and show the owners whose
    keys these are. An owner's proxy lets the invited in then.
    """
    body = await read_struct(request, GivenWords)
    given = await services.sharing.inviting.accept(holder, id_in_path(request), body.words)
    organization = reference("organizations", given.organization)
    return answer(structs.Joined(organization, given.inviter, given.members))


@endpoint.bare(
    "PATCH",
    _PERSON,
    summary="Make a member an owner, or an owner a member without datasets; or sign another"
    " e-mail address of a member.",
    body=spec.json_body(
        {
            "oneOf": [
                spec.object_of({"role": spec.enum_of("owner", "member")}, proof=_PROOF),
                spec.object_of({"email": spec.text_of(3, form.MAX_NAME)}, proof=_PROOF),
            ]
        }
    ),
    answers={200: spec.json_answer(structs.Settled)},
)
async def change_person(request: Request) -> Response:
    """The API reports another address (``email_now``) once the person has changed it; ask the
    person, because only your signature has other proxies show it.
    """
    services = services_of(request)
    await services.caller(request)
    change = await read_struct(request, MemberChange)
    if (change.role is None) == (change.email is None):
        raise BadInput(
            "the change names neither a role nor an address, or both",
            hint='send "role", or "email", in a request of its own',
        )
    holder = await services.proofs.demand(request, change.proof)
    organization, member = id_in_path(request), _member_in_path(request)
    members = services.sharing.members
    if change.email is not None:
        await members.rename(holder, organization, member, change.email)
    else:
        await members.set_role(holder, organization, member, owner=change.role == "owner")
    return await _settle(services, holder, organization)


@endpoint(
    "DELETE",
    _PERSON,
    summary="Remove a member or a service, withdraw an invitation, or leave.",
    answers={200: spec.json_answer(structs.Settled)},
)
async def remove_person(request: Request, services: Services, holder: Holder) -> Response:
    """The removal counts at once; then each dataset they were in gets a new key for later records.
    They may have copied earlier records.
    """
    organization, member = id_in_path(request), _member_in_path(request)
    await services.sharing.members.remove(holder, organization, member)
    if member == holder.user:
        services.sharing.forget_user(holder.user)
        return answer(_NOTHING_DONE)
    return await _settle(services, holder, organization)


@endpoint.bare(
    "PUT",
    _IN_DATASET,
    summary="Share a dataset, or some of its schemas, with a member.",
    body=spec.json_body(ShareChange),
    answers={200: spec.json_answer(structs.Settled)},
)
async def share_dataset(request: Request) -> Response:
    services, holder, change = await proven(request, ShareChange)
    dataset, member = id_in_path(request), _member_in_path(request)
    wanted = await read_share(services, holder, dataset, change.role, change.schemas)
    organization = await services.sharing.organization_of(holder, dataset)
    await _prepare(services, holder, organization, [wanted])
    await services.sharing.members.set_shares(holder, organization, dataset, member, [wanted])
    return await _settle(services, holder, organization)


@endpoint(
    "DELETE",
    _IN_DATASET,
    summary="End a member's access to a dataset.",
    answers={200: spec.json_answer(structs.Settled)},
)
async def unshare_dataset(request: Request, services: Services, holder: Holder) -> Response:
    dataset, member = id_in_path(request), _member_in_path(request)
    organization = await services.sharing.organization_of(holder, dataset)
    await services.sharing.members.set_shares(holder, organization, dataset, member, [])
    return await _settle(services, holder, organization)


@endpoint(
    "PUT",
    "/api/datasets/{id}/listed/",
    summary="List a dataset, so that members may ask for access to it, or end that.",
    body=spec.json_body(ListingChange),
    answers={200: spec.json_answer(structs.ListedDataset)},
)
async def list_dataset(request: Request, services: Services, holder: Holder) -> Response:
    """Owners sign this. Nobody gets access by it; that a dataset exists, and its name, every member
    reads in the roster anyhow.
    """
    change, dataset = await read_struct(request, ListingChange), id_in_path(request)
    organization = await services.sharing.organization_of(holder, dataset)
    if change.listed:
        share = form.Share(dataset, form.READER, [])
        await _prepare(services, holder, organization, [share])
    await services.sharing.asking.set_listed(holder, organization, dataset, listed=change.listed)
    return answer(structs.ListedDataset(reference("datasets", dataset), change.listed))


@endpoint(
    "PUT",
    _OWN_REQUEST,
    summary="Ask for access to a listed dataset.",
    body=spec.json_body(AccessWanted),
    answers={
        201: spec.json_answer(structs.OpenRequest),
        200: spec.json_answer(
            structs.OpenRequest, description="There is such a request, and it waits"
        ),
    },
)
async def ask_for_access(request: Request, services: Services, holder: Holder) -> Response:
    """The request is signed with your keys, and waits for the ``owners``. It takes the place of an
    earlier one for the same dataset. It contains no text: tell the owners why in another way.
    """
    body, dataset = await read_struct(request, AccessWanted), id_in_path(request)
    right = right_of(body.role)
    view, made, new = await services.sharing.asking.ask(holder, dataset, right)
    owners = [owner.name for owner in view.roster.owners()]
    return answer(request_of(view.roster, made, owners), 201 if new else 200)


@endpoint(
    "DELETE",
    _OWN_REQUEST,
    summary="Withdraw a request for access.",
    answers={204: spec.empty_answer("The request is withdrawn")},
)
async def withdraw_request(request: Request, services: Services, holder: Holder) -> Response:
    await services.sharing.asking.end(holder, id_in_path(request), holder.user)
    return Response(status_code=204)


@endpoint(
    "DELETE",
    "/api/datasets/{id}/requests/{member}/",
    summary="Decline a member's request for access.",
    answers={204: spec.empty_answer("The request is declined")},
)
async def decline_request(request: Request, services: Services, holder: Holder) -> Response:
    """The member sees it, and cannot repeat the request for a week. To agree, share the dataset."""
    dataset, member = id_in_path(request), _member_in_path(request)
    await services.sharing.asking.end(holder, dataset, member)
    return Response(status_code=204)


@endpoint(
    "POST",
    "/api/organizations/{id}/settle/",
    summary=(
        "Apply pending changes: admit people who answered, remove expired services, rotate keys."
    ),
    answers={200: spec.json_answer(structs.Settled)},
)
async def settle_organization(request: Request, services: Services, holder: Holder) -> Response:
    return await _settle(services, holder, id_in_path(request))


@endpoint(
    "POST",
    "/api/datasets/{id}/rotate/",
    summary="Rotate a dataset's key for new records.",
    answers={200: spec.json_answer(structs.Settled)},
)
async def rotate_dataset(request: Request, services: Services, holder: Holder) -> Response:
    dataset = id_in_path(request)
    organization = await services.sharing.organization_of(holder, dataset)
    await services.sharing.settling.rotate(holder, organization, dataset)
    return await _settle(services, holder, organization)


@endpoint.bare(
    "POST",
    "/api/organizations/{id}/recover/",
    summary="Become an owner by the recovery phrases of an owner who lost access.",
    body=spec.json_body(OwnersPhrases),
    answers={200: spec.json_answer(structs.Recovered)},
)
async def recover_organization(request: Request) -> Response:
    """The operator of the API has to make the caller an owner there first: ``ers api owner``."""
    services, holder, body = await proven(request, OwnersPhrases)
    name = await services.api.email(holder.auth)
    by = await services.sharing.recovering.recover(holder, id_in_path(request), name, body.phrases)
    return answer(structs.Recovered(by))


@endpoint.bare(
    "POST",
    "/api/organizations/{id}/services/",
    summary=(
        "Create a service: a program with its own keys. Only this answer contains its secret key."
    ),
    body=spec.json_body(ServiceRequest),
    answers={201: spec.json_answer(structs.NewService)},
)
async def create_service(request: Request) -> Response:
    """``expires`` is in seconds since 1970; left out, the service does not expire."""
    services, holder, body = await proven(request, ServiceRequest)
    now = int(runtime.wall())
    if body.expires is not None and not now < body.expires <= now + _LONGEST_SERVICE:
        raise BadInput(
            "a service must expire within ten years from now, or never",
            hint="give expires in seconds since 1970, or leave it out",
        )
    organization = id_in_path(request)
    shares = await read_shares(services, holder, body.shares)
    await _prepare(services, holder, organization, shares)
    made = await services.sharing.services.make(
        holder, organization, body.name, shares, body.expires or 0
    )
    return answer(structs.NewService(to_text(made.id), made.key, made.expires), 201)


_NOTHING_DONE = structs.Settled([], [], [], [])


async def _settle(services: Services, holder: Holder, organization: bytes) -> Response:
    settled = await services.sharing.settling.settle(holder, organization)
    return answer(settled_of(settled))


async def _prepare(
    services: Services, holder: Holder, organization: bytes, shares: list[form.Share]
) -> None:
    sharing = services.sharing
    name = await services.api.email(holder.auth)
    try:
        await prepare_shares(sharing.api, sharing.founding, holder, organization, name, shares)
    except NotFound as error:
        raise NotFound(
            "a dataset or schema to be shared does not exist, or you cannot reach it",
            code=error.reason,
            hint="nothing was shared; ers dataset list and ers schema list show what you can reach",
        ) from None


def _member_in_path(request: Request) -> bytes:
    return from_path(request.path_params["member"])
