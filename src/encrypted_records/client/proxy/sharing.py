"""Read and change the members of an organization and their rights.

Objects with words or a service's string do not print them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from encrypted_records.client.proxy.connection import Connection
from encrypted_records.client.proxy.keyring import Proof, proof_member

ShareRole = Literal["reader", "writer"]


class SharedSchema(msgspec.Struct, frozen=True):
    schema: str
    name: str


class Shared(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rights of a person in a dataset: in all of its schemas if ``schemas`` is None.

    For a present member, ``entry`` is the number of the roster entry since which the member has had
    at least these rights without a break, and ``since`` is its time by the clock of its signer.
    """

    dataset: str
    name: str
    role: ShareRole
    schemas: list[SharedSchema] | None
    entry: int | None = None
    since: int | None = None


class PersonOrService(msgspec.Struct, frozen=True, kw_only=True):
    """A person or service in an organization.

    Attributes:
        name: the e-mail address, or a service's name, by the signed roster.
        entry: the number of the roster entry that admitted the member.
        since: its time in seconds since 1970, by the clock of the owner who signed it.
        owner_since: the time at which the member became an owner; None if not an owner.
        known_by: how the member's keys came into the roster: founder, words, recovery, or owner.
        expires: time in seconds since 1970 at which a service ends; None: never.
        last_used: for a service, shown to owners: in seconds since 1970, to the minute, as reported
            by the API; None: never.
        email_now: for a person: the address of the account where the API reports
            another one than the signed ``name``, until an owner has signed it.
        account_gone: for a person: whether the API reports that the account is
            deleted; None if the API was not asked. The member stays until an owner removes them.
    """

    id: str
    name: str
    type: Literal["person", "service"]
    role: Literal["owner", "member"]
    shares: list[Shared]
    entry: int
    since: int
    admitted_by: str
    known_by: str
    expires: int | None
    you: bool
    owner_since: int | None
    last_used: int | None
    account_gone: bool | None
    email_now: str | None


class WaitingInvitation(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation that no entry has ended; ``expires`` is in seconds since 1970.

    ``status`` is waiting, answered, expired, or, by the API's word, declined or replaced by another
    invitation.
    """

    id: str
    email: str
    member: str | None
    status: str
    answer_refused: str | None
    invited_by: str
    expires: int
    shares: list[Shared]


class Due(msgspec.Struct, frozen=True):
    """A dataset of which something is due: a new key, because of those who lost something of it; or
    ends of the logs of ``schemas``, to which former writers could still add."""

    dataset: str
    name: str
    because: list[str]
    schemas: list[str]


class SignedDataset(msgspec.Struct, frozen=True):
    """A dataset as the roster names it, with the schemas that were placed in it.

    Attributes:
        listed: whether members may ask for access.
        may_ask: roles that the user does not have in all of it.
    """

    dataset: str
    slug: str
    name: str
    listed: bool
    may_ask: list[ShareRole]
    schemas: list[SharedSchema]


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member's request for access to a dataset, which the member has signed.

    Attributes:
        dataset: path of the dataset; ``name`` is its name by the roster.
        member: id of the member; ``email`` is their address by the roster.
        asked: time of the request, in seconds since 1970, by the member's clock.
        declined: time at which an owner declined it, as reported by the API; None: it waits.
        owners: addresses of those who may share the dataset; only in the answer to a request.
    """

    dataset: str
    name: str
    member: str
    email: str
    role: ShareRole
    asked: int
    declined: int | None
    owners: list[str] = msgspec.field(default_factory=list)


class FirstShown(msgspec.Struct, frozen=True):
    """An organization as the proxy saw it on first use.

    Attributes:
        members: number of people and services.
        number: number of its newest entry.
        since: time at which that was signed, in seconds since 1970.
        words: eight words of it.
    """

    members: int
    number: int
    since: int
    words: str


class People(msgspec.Struct, frozen=True, kw_only=True):
    """An organization by its roster.

    Attributes:
        number: number of its newest entry.
        words: eight words, the same for everybody who sees the same roster.
        requests: requests for access: of all members for an owner, otherwise the user's own.
        requests_refused: number of requests that the API shows and no member signed.
    """

    organization: str
    number: int
    words: str
    people: list[PersonOrService]
    invitations: list[WaitingInvitation]
    due: list[Due]
    datasets: list[SignedDataset]
    requests: list[OpenRequest]
    requests_refused: int
    first_shown: FirstShown | None


class DatasetReader(NamedTuple):
    """An owner, or a member by a share of a dataset: for all of its schemas if ``schemas`` is None.
    The member has had at least this right since the time ``since``.
    """

    who: PersonOrService
    role: str
    schemas: list[SharedSchema] | None
    since: int | None


def covers(share: Shared, dataset: str, schema: str | None = None) -> bool:
    """Whether a share is of a dataset, or of one schema of it; both given by path."""
    named = None if share.schemas is None else {each.schema for each in share.schemas}
    return share.dataset == dataset and (schema is None or named is None or schema in named)


def readers_of(people: People, dataset: str, schema: str | None = None) -> Iterator[DatasetReader]:
    """The readers of a dataset or schema: each owner, and each share that gives the right."""
    for person in people.people:
        if person.role == "owner":
            yield DatasetReader(person, "owner", None, person.owner_since)
        for share in person.shares:
            if covers(share, dataset, schema):
                yield DatasetReader(person, share.role, share.schemas, share.since)


class ReplacedInvitation(msgspec.Struct, frozen=True):
    """An invitation of the same address, whose place a new one takes; its words do nothing more."""

    id: str
    shares: list[Shared]


class NewInvitation(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation with its twelve words, which are shown only once. Tell them by phone or in
    person; never by mail.
    """

    id: str
    words: str
    expires: int
    member: str | None
    replaced: ReplacedInvitation | None

    def __repr__(self) -> str:
        return f"<invitation {self.id}>"


class Joined(msgspec.Struct, frozen=True):
    """The organization of an accepted invitation, once an owner's proxy has admitted the user."""

    organization: str
    invited_by: str
    members: int


class SettlingTrouble(msgspec.Struct, frozen=True):
    name: str
    code: str
    detail: str
    hint: str


class Settled(msgspec.Struct, frozen=True):
    """Names of those who were let in and put out, and of datasets with new keys; and troubles."""

    admitted: list[str]
    removed: list[str]
    rotated: list[str]
    troubles: list[SettlingTrouble]


class ListedDataset(msgspec.Struct, frozen=True):
    """Whether members may ask for access to a dataset."""

    dataset: str
    listed: bool


class Recovered(msgspec.Struct, frozen=True):
    """The recovery of an organization.

    Attributes:
        by: name of the lost owner by whose phrases the caller is an owner now.
    """

    by: str


class NewService(msgspec.Struct, frozen=True):
    """A service with its secret key, which is shown only once. ``expires`` 0: never."""

    id: str
    key: str
    expires: int

    def __repr__(self) -> str:
        return f"<service {self.id}>"


class SharingCalls(Connection):
    async def people(self, organization: str) -> People:
        """People and services with their rights; ``organization`` is its path."""
        return (await self._ask("GET", f"{organization}people/")).convert(People)

    async def invite(
        self,
        organization: str,
        email: str,
        shares: Sequence[Mapping[str, Any]] | None = None,
        *,
        new: bool = False,
        proof: Proof | None = None,
    ) -> NewInvitation:
        """Invite a person, who will prove their identity with twelve words.

        Args:
            shares: as docs/http-api.md describes them; None keeps the shares of a present member.
            new: confirms that this account was never in the organization, although a former member
                had the same address.
        """
        body: dict[str, Any] = {"email": email, **proof_member(proof)}
        if shares is not None:
            body["shares"] = list(shares)
        if new:
            body["new"] = True
        return (await self._ask("POST", f"{organization}people/", body)).convert(NewInvitation)

    async def answer_invitation(self, invitation: str, words: str) -> Joined:
        """Answer an invitation, given by id, with the inviter's words."""
        path = f"/api/invitations/{invitation}/words/"
        return (await self._ask("POST", path, {"words": words})).convert(Joined)

    async def share(
        self,
        dataset: str,
        member: str,
        role: ShareRole,
        schemas: Sequence[str] | None = None,
        *,
        proof: Proof | None = None,
    ) -> Settled:
        """Share a dataset, given by path, with a member, given by id; replaces earlier shares of
        it.
        """
        body: dict[str, Any] = {"role": role, **proof_member(proof)}
        if schemas:
            body["schemas"] = list(schemas)
        return (await self._ask("PUT", f"{dataset}people/{member}/", body)).convert(Settled)

    async def unshare(self, dataset: str, member: str) -> Settled:
        """Remove a member's access to a dataset."""
        return (await self._ask("DELETE", f"{dataset}people/{member}/")).convert(Settled)

    async def list_dataset(self, dataset: str, *, listed: bool = True) -> None:
        """Let members request access to a dataset, given by path, or stop that."""
        await self._ask("PUT", f"{dataset}listed/", {"listed": listed})

    async def ask_for_access(self, dataset: str, role: ShareRole = "reader") -> OpenRequest:
        """Request access to a listed dataset, given by path; replaces an earlier request for it.

        An owner agrees by :meth:`share`, or declines.
        """
        answer = await self._ask("PUT", f"{dataset}requests/", {"role": role})
        return answer.convert(OpenRequest)

    async def withdraw_request(self, dataset: str) -> None:
        """Withdraw your request for a dataset, given by path."""
        await self._ask("DELETE", f"{dataset}requests/")

    async def decline_request(self, dataset: str, member: str) -> None:
        """Decline the request of a member, given by id, for a dataset, given by path."""
        await self._ask("DELETE", f"{dataset}requests/{member}/")

    async def change_role(
        self, organization: str, member: str, role: str, *, proof: Proof | None = None
    ) -> Settled:
        """Make a member an owner, or an owner a member."""
        body = {"role": role, **proof_member(proof)}
        return (await self._ask("PATCH", f"{organization}people/{member}/", body)).convert(Settled)

    async def change_address(
        self, organization: str, member: str, email: str, *, proof: Proof | None = None
    ) -> Settled:
        """Sign another e-mail address for a member; keys and rights stay."""
        body = {"email": email, **proof_member(proof)}
        return (await self._ask("PATCH", f"{organization}people/{member}/", body)).convert(Settled)

    async def remove_person(self, organization: str, member: str) -> Settled:
        """Remove a member or a service, withdraw an invitation, or leave."""
        return (await self._ask("DELETE", f"{organization}people/{member}/")).convert(Settled)

    async def settle(self, organization: str) -> Settled:
        """Apply all pending changes."""
        return (await self._ask("POST", f"{organization}settle/")).convert(Settled)

    async def rotate_dataset(self, dataset: str) -> Settled:
        """Give a dataset a new key, which seals new data from now on."""
        return (await self._ask("POST", f"{dataset}rotate/")).convert(Settled)

    async def recover_organization(
        self, organization: str, phrases: Sequence[str], *, proof: Proof | None = None
    ) -> str:
        """Become an owner with the words of a lost owner; returns that owner's name."""
        body = {"phrases": list(phrases), **proof_member(proof)}
        answer = await self._ask("POST", f"{organization}recover/", body)
        return answer.convert(Recovered).by

    async def create_service(
        self,
        organization: str,
        name: str,
        shares: Sequence[Mapping[str, Any]],
        *,
        expires: int | None = None,
        proof: Proof | None = None,
    ) -> NewService:
        """Create an account for a program; ``expires`` is in seconds since 1970."""
        body = {
            "name": name,
            "shares": list(shares),
            "expires": expires,
            **proof_member(proof),
        }
        return (await self._ask("POST", f"{organization}services/", body)).convert(NewService)
