"""Read and write rights, and requests for them, as ``ers share`` shows them."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from encrypted_records.cli.login.session import CommandSession
from encrypted_records.client.proxy.sharing import (
    OpenRequest,
    People,
    PersonOrService,
    Shared,
    SignedDataset,
)
from encrypted_records.errors import InvalidSetting, NotFound

#: Members of the rows, in the order of their columns.
_REST = ("since", "known_by", "admitted_by", "last_used", "account", "id")
COLUMNS = ("name", "role", "shares", *_REST)
COLUMNS_OF_READERS = ("name", "role", "schemas", *_REST)
COLUMNS_OF_LISTED = ("slug", "name", "id", "request", "owners")
COLUMNS_OF_REQUESTS = ("email", "dataset", "role", "asked", "status", "member")


@dataclass(frozen=True, slots=True)
class ShareTarget:
    """The dataset whose readers are asked for, by path; or one schema of it."""

    organization: str
    dataset: str
    schema: str | None = None

    def has(self, share: Shared) -> bool:
        """Whether a share is of it."""
        if share.dataset != self.dataset:
            return False
        if self.schema is None or share.schemas is None:
            return True
        return any(schema.schema == self.schema for schema in share.schemas)


def rows_of(people: People) -> Iterator[Mapping[str, Any]]:
    """Everybody, with all that they have, and since when they are in."""
    for person in people.people:
        yield {
            "name": _name(person),
            "role": person.role if person.type == "person" else "service",
            "shares": "everything" if person.role == "owner" else shares_told(person.shares),
            "since": minute_of(person.since),
            **_rest(person),
        }


def rows_of_readers(people: People, place: ShareTarget) -> Iterator[Mapping[str, Any]]:
    """The readers of a dataset or schema: a row for each owner and for each share that gives the
    right, with the time since which the member has had at least that.
    """
    for person in people.people:
        if person.role == "owner":
            yield _reader(person, "owner", None, person.owner_since)
        for share in person.shares:
            if place.has(share):
                yield _reader(person, share.role, share.schemas, share.since)


def _reader(
    member: PersonOrService, role: str, schemas: Sequence[Any] | None, since: int | None
) -> Mapping[str, Any]:
    return {
        "name": _name(member),
        "role": role,
        "schemas": "all" if schemas is None else ", ".join(each.name for each in schemas),
        "since": minute_of(since),
        **_rest(member),
    }


def _name(member: PersonOrService) -> str:
    return "deleted account" if member.account_gone else member.name


def _rest(member: PersonOrService) -> dict[str, Any]:
    return {
        "known_by": member.known_by,
        "admitted_by": member.admitted_by,
        "last_used": minute_of(member.last_used),
        "account": "gone" if member.account_gone else "",
        "id": member.id,
    }


def remarks_of(people: People, place: ShareTarget | None = None) -> Iterator[str]:
    """Remarks beside the rows: deleted accounts, invitations, pending changes, the roster; for a
    place, only the invitations and pending changes that concern it.
    """
    for person in people.people:
        if person.email_now:
            # Quoted, since the API wrote one of them, and a shell would obey what is in it.
            signed, reported = (shlex.quote(text) for text in (person.name, person.email_now))
            yield (
                f"Changed: {person.name} has the address {person.email_now} now, according to"
                " the API; ask them, then: ers organization member update"
                f" {signed} --email {reported}"
            )
        if person.account_gone:
            yield (
                f"Gone: {person.id} no longer has an account, according to the API; an"
                f" owner removes it with ers organization member delete {person.id}"
            )
    for invitation in people.invitations:
        if place is not None and not any(place.has(share) for share in invitation.shares):
            continue
        state = invitation.status
        if invitation.answer_refused:
            state = f"an answer was refused ({invitation.answer_refused})"
        if invitation.status == "declined":
            state = (
                "declined, according to the API; withdraw it with ers share withdraw"
                f" {shlex.quote(invitation.email)}"
            )
        told = shares_told(invitation.shares)
        yield f"Invited: {invitation.email}, {told}: {state}, {invitation.id}"
    yield from remarks_of_requests(people, place)
    for due in people.due:
        if place is not None and due.dataset != place.dataset:
            continue
        if due.because:
            because = ", ".join(due.because)
            yield f"Pending: {due.name} needs a new key because of {because}: ers share settle"
        if due.schemas:
            yield (
                f"Pending: members who lost the right to write in {due.name} may still add"
                f" to {', '.join(due.schemas)} until the logs are closed: ers share settle"
            )
    if people.number:
        yield f"Roster: entry {people.number}, {people.words}"


def remarks_of_requests(people: People, place: ShareTarget | None = None) -> Iterator[str]:
    """Remarks about requests for access, or about those that concern a place: what to do next."""
    you = next((person for person in people.people if person.you), None)
    for request in people.requests:
        if place is not None and request.dataset != place.dataset:
            continue
        told = f"Asked: {request.email}, {request.name} ({request.role})"
        if request.declined is not None:
            yield f"{told}: declined, according to the API"
        elif you is not None and you.role == "owner":
            who = shlex.quote(request.email)
            of = f"{who} --dataset {shlex.quote(_slug_of(people, request.dataset))}"
            yield f"{told}: ers share set {of} --role {request.role}, or ers share decline {of}"
        else:
            yield f"{told}: waiting for an owner"
    if people.requests_refused:
        yield (
            f"Refused: {people.requests_refused} of the requests for access that the API shows were"
            " not signed by the member they name"
        )


def _slug_of(people: People, dataset: str) -> str:
    return next(named.slug for named in people.datasets if named.dataset == dataset)


def rows_of_requests(people: People) -> Iterator[Mapping[str, Any]]:
    """Requests for access, the oldest first."""
    for request in people.requests:
        yield {
            "email": request.email,
            "dataset": request.name,
            "role": request.role,
            "asked": minute_of(request.asked),
            "status": _status_of(request),
            "member": request.member,
        }


def _status_of(request: OpenRequest) -> str:
    if request.declined is None:
        return "waiting"
    return f"declined {minute_of(request.declined)}"


def rows_of_listed(people: People) -> Iterator[Mapping[str, Any]]:
    """The listed datasets that the user does not have as a whole; to owners nothing is listed."""
    requests = {request.dataset: request for request in people.requests}
    owners = ", ".join(person.name for person in people.people if person.role == "owner")
    for dataset in people.datasets:
        if dataset.may_ask:
            request = requests.get(dataset.dataset)
            status = "" if request is None else f"{request.role}, {_status_of(request)}"
            yield {
                "slug": dataset.slug,
                "name": dataset.name,
                "id": _id_of(dataset),
                "request": status,
                "owners": owners,
            }


async def people_of_all(session: CommandSession) -> list[People]:
    """The people of the organization that was named, or of each organization."""
    return [await session.client.people(url) for url in await session.names.organizations()]


def dataset_named(every: Iterable[People], named: str) -> SignedDataset:
    """The dataset of the rosters with this slug, name, id or path, whether it is shared or not.

    Raises:
        NotFound: there is none.
        InvalidSetting: there are several.
    """
    datasets = [dataset for people in every for dataset in people.datasets]
    found = [dataset for dataset in datasets if named in (dataset.dataset, _id_of(dataset))] or [
        dataset for dataset in datasets if named in (dataset.slug, dataset.name)
    ]
    if not found:
        raise NotFound(
            f"your organizations have no dataset {named}",
            hint="ers dataset list --listed shows the datasets that you can ask for",
        )
    if len(found) > 1:
        named_apart = ", ".join(f"{_id_of(dataset)} ({dataset.slug})" for dataset in found)
        raise InvalidSetting(
            f"{named} names {len(found)} datasets",
            hint=f"name the organization with --organization, or an id: {named_apart}",
        )
    return found[0]


def _id_of(dataset: SignedDataset) -> str:
    return dataset.dataset.rstrip("/").rpartition("/")[2]


async def each(rows: Iterable[Mapping[str, Any]]) -> AsyncIterator[Mapping[str, Any]]:
    """Rows as :meth:`Output.many` takes them."""
    for row in rows:
        yield row


def minute_of(seconds: int | None) -> str:
    """A time in seconds since 1970, to the minute, such as ``2026-01-31T08:30Z``; empty where there
    is none."""
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%MZ}"


def shares_told(shares: Sequence[Shared]) -> str:
    told = []
    for share in shares:
        of = "" if share.schemas is None else "/" + ",".join(each.name for each in share.schemas)
        told.append(f"{share.name}{of} ({share.role})")
    return ", ".join(told) or "nothing"
