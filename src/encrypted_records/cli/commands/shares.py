"""Read and write rights, as ``ers share list`` shows them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from encrypted_records.client.proxy.sharing import People, PersonOrService, Shared

#: Members of the rows, in the order of their columns.
_REST = ("since", "known_by", "admitted_by", "last_used", "account", "id")
COLUMNS = ("name", "role", "shares", *_REST)
COLUMNS_OF_READERS = ("name", "role", "schemas", *_REST)


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
