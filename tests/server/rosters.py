"""Members who sign: rosters as proxies make them, against a real API."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import msgspec

from encrypted_records.crypto.identity import Identity
from encrypted_records.crypto.invitations import InvitationKeys, InvitationSecret
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Answer as Answered
from encrypted_records.model.roster import EntryBody, Grant, GrantBody, RosterEntry
from tests.server.api import Account, Answer, Api, id_bytes
from tests.server.writer import FRAMES, PERSON_DEFINITION, Writer

ZERO = bytes(32)


def _one_or_two(number: int) -> Literal[1, 2]:
    """A right or a role."""
    return 1 if number == 1 else 2


def new_identity() -> Identity:
    return Identity(os.urandom(32), os.urandom(32), os.urandom(64))


@dataclass(frozen=True)
class Person:
    """An account with keys of its own, or a service."""

    account: Account
    identity: Identity = field(default_factory=new_identity)
    #: where it is no account's, which is asked
    known_id: str = ""

    @cached_property
    def id(self) -> str:
        return self.known_id or str(self.account.call("GET", "/api/users/self/").json()["id"])

    @cached_property
    def uid(self) -> bytes:
        return ids.from_text(self.id)

    def renewed(self) -> Person:
        """The same under other keys."""
        return Person(self.account)


def share(dataset: Any, right: int = form.READER, schemas: Iterable[Any] = ()) -> form.Share:
    return form.Share(
        id_bytes(dataset), _one_or_two(right), [id_bytes(schema) for schema in schemas]
    )


def standing(
    person: Person,
    shares: Sequence[form.Share] = (),
    *,
    role: int = form.MEMBER,
    found: bytes = b"",
    invitation: bytes = b"",
    **changes: Any,
) -> form.MemberStanding[str]:
    """What an owner signs of a member; with ``found``, the member's keys are stated."""
    keys = person.identity.keys if found else b""
    anchor = os.urandom(32) if found else b""
    proof = person.identity.sign("keys", found, person.uid, keys, anchor) if found else b""
    stated = form.MemberStanding(
        person.uid,
        1,
        _one_or_two(role),
        person.account.email,
        keys,
        anchor,
        proof,
        invitation,
        0,
        list(shares),
    )
    return msgspec.structs.replace(stated, **changes)


def placement(schema: Any, **changes: Any) -> form.Placement:
    """A schema of ``PERSON`` where and as it is."""
    dataset = ids.from_text(schema["dataset"].split("/")[-2])
    digest = PERSON_DEFINITION.digest
    stated = form.Placement(id_bytes(schema), dataset, schema["slug"], schema["name"], digest)
    return msgspec.structs.replace(stated, **changes)


@dataclass
class Ring:
    """An organization's roster as one of its owners goes on with it."""

    owner: Person
    number: int = 0
    digest: bytes = ZERO
    found: bytes = b""

    @cached_property
    def verified(self) -> Roster:
        """What a proxy makes of the entries that the API has taken."""
        return Roster(self.organization)

    @property
    def path(self) -> str:
        return f"{self.owner.account.organization}roster/"

    @property
    def organization(self) -> bytes:
        return ids.from_text(self.owner.account.organization.split("/")[-2])

    def sign(self, content: Any, by: Person | None = None, **changes: Any) -> RosterEntry:
        """The next entry, which :meth:`follow` goes on from."""
        actor = by or self.owner
        body = EntryBody(
            organization=changes.pop("organization", self.organization),
            number=changes.pop("number", self.number + 1),
            previous=changes.pop("previous", self.digest),
            time=changes.pop("time", int(time.time())),
            actor=changes.pop("actor", actor.uid),
            content=content,
        )
        encoded, openings = form.encode_entry_body(body)
        kind = changes.pop("kind", "roster")
        assert not changes
        return RosterEntry(encoded, actor.identity.sign(kind, encoded), openings)

    def follow(self, entry: RosterEntry) -> RosterEntry:
        self.number, self.digest = self.number + 1, form.entry_digest(entry)
        self.found = self.found or self.digest
        return entry

    def chain(self, *contents: Any, by: Person | None = None) -> list[RosterEntry]:
        """Entries that follow each other."""
        return [self.follow(self.sign(content, by)) for content in contents]

    def send(self, *items: Any, by: Person | None = None) -> Answer:
        account = (by or self.owner).account
        return account.call("POST", self.path, wire.encode(items), **FRAMES)

    def add(self, *items: Any, by: Person | None = None) -> None:
        """Send what must be taken."""
        answer = self.send(*items, by=by)
        assert answer.status == 201, answer.body
        self.verify(item for item in items if isinstance(item, RosterEntry))

    def verify(self, entries: Iterable[RosterEntry]) -> None:
        """Check that readers let count what the API has taken."""
        assert {self.verified.append(entry) for entry in entries} <= {None}

    def refused(self, *items: Any, by: Person | None = None) -> tuple[int, str]:
        answer = self.send(*items, by=by)
        return answer.status, answer.code

    def refuses(self, content: Any, by: Person | None = None, **changes: Any) -> tuple[int, str]:
        """What a next entry meets that is not taken; the ring stays where it is."""
        return self.refused(self.sign(content, by, **changes), by=by)

    def grant(self, dataset: Any, to: Person, epoch: int = 1, **changes: Any) -> Grant:
        """Keys that nobody opens in these tests, sealed at the present head."""
        by = changes.pop("by", self.owner)
        body = GrantBody(
            format=1,
            organization=self.organization,
            dataset=id_bytes(dataset),
            epoch=epoch,
            member=to.uid,
            number=self.number,
            digest=self.digest,
            actor=by.uid,
            sealed=os.urandom(1120 + 60),
        )
        encoded = form.encode_grant_body(msgspec.structs.replace(body, **changes))
        return Grant(encoded, by.identity.sign("grant", encoded))

    def dataset(self, dataset: Any, epoch: int = 1, **changes: Any) -> form.DatasetName:
        stated = form.DatasetName(
            id_bytes(dataset), dataset["slug"], dataset["name"], epoch, os.urandom(32), []
        )
        return msgspec.structs.replace(stated, **changes)

    def begin(
        self, dataset: Any, *people: Person, epoch: int = 1, **changes: Any
    ) -> form.DatasetName:
        """Begin an epoch, with grants for the owner and others."""
        content = self.dataset(dataset, epoch, **changes)
        entries = self.chain(content)
        self.add(*entries, *(self.grant(dataset, one, epoch) for one in (self.owner, *people)))
        return content

    def writer(self, schema: Any, by: Person | None = None, **more: Any) -> Writer:
        """Who signs commits at the present head."""
        person = by or self.owner
        signs = person.identity.sign
        writer = Writer(
            person.account,
            schema,
            signs=lambda commit: signs("commit", wire.commit_digest(commit)),
            **more,
        )
        writer.stated = (self.number, self.digest, person.uid)
        return writer

    def entries(self, since: int = 0, by: Account | None = None) -> list[RosterEntry]:
        answer = (by or self.owner.account).call("GET", f"{self.path}?since={since}")
        assert answer.status == 200, answer.body
        return wire.decode_all(answer.body, RosterEntry)

    def grants_of(self, person: Person) -> list[GrantBody]:
        path = f"{self.owner.account.organization}grants/"
        answer = person.account.call("GET", path)
        assert answer.status == 200, answer.body
        return [form.read_grant(one) for one in wire.decode_all(answer.body, Grant)]

    def invite(self, person: Person, shares: Sequence[form.Share] = (), **changes: Any) -> Invited:
        """Invite somebody, by a request that must be taken."""
        invited = self.invitation(person, shares, **changes)
        self.add(self.follow(self.sign(invited.content)))
        return Invited(invited.content, invited.keys, self.digest)

    def invitation(
        self, person: Person, shares: Sequence[form.Share] = (), **changes: Any
    ) -> Invited:
        identifier = ids.new_id()
        keys = InvitationSecret.generate().keys(self.organization, identifier)
        content = form.Invite(
            id=identifier,
            member=b"",
            name=person.account.email,
            expires=int(time.time()) + 7 * 86_400,
            answer_key=keys.answer_key,
            shares=list(shares),
            check=ZERO,
        )
        content = msgspec.structs.replace(content, **changes)
        check = keys.compute_check(self.digest, content)
        return Invited(msgspec.structs.replace(content, check=check), keys, b"")

    def answer(self, person: Person, invited: Invited) -> Answered:
        """What somebody who has the words answers."""
        anchor = os.urandom(32)
        keys = person.identity.keys
        proof = person.identity.sign("keys", self.found, person.uid, keys, anchor)
        return invited.keys.answer(
            invited.digest,
            organization=self.organization,
            invitation=invited.content.id,
            member=person.uid,
            keys=keys,
            anchor=anchor,
            proof=proof,
        )

    def join(
        self, person: Person, shares: Sequence[form.Share] = (), role: int = form.MEMBER
    ) -> form.MemberStanding[str]:
        """Invite, answer, admit, with grants of every dataset shared."""
        invited = self.invite(person, shares)
        given = self.answer(person, invited)
        assert put_answer(person, given).status == 201
        content = admission(person, given, shares, role)
        entry = self.follow(self.sign(content))
        grants = [self.grant({"id": ids.to_text(one.dataset)}, person) for one in shares]
        self.add(entry, *grants)
        return content


@dataclass(frozen=True)
class Invited:
    content: form.Invite[str]
    keys: InvitationKeys
    #: of its entry
    digest: bytes

    @property
    def path(self) -> str:
        return f"/api/invitations/{ids.to_text(self.content.id)}/answer/"


def put_answer(person: Person, given: Answered, path: str = "") -> Answer:
    path = path or f"/api/invitations/{ids.to_text(given.id)}/answer/"
    return person.account.call("PUT", path, wire.encode([given]), **FRAMES)


def admission(
    person: Person, given: Answered, shares: Sequence[form.Share] = (), role: int = form.MEMBER
) -> form.MemberStanding[str]:
    return form.MemberStanding(
        given.member,
        1,
        _one_or_two(role),
        person.account.email,
        given.keys,
        given.anchor,
        given.proof,
        given.id,
        0,
        list(shares),
    )


@dataclass(frozen=True)
class Team:
    """An owner's organization with a schema that is placed, and somebody who writes there."""

    ring: Ring
    dataset: Any
    schema: Any
    writer: Person


def team_of(api: Api) -> Team:
    ring = found(api.new_account())
    dataset = ring.owner.account.new_dataset()
    ring.begin(dataset)
    schema = ring.owner.account.new_schema(dataset=dataset["url"])
    ring.add(*ring.chain([placement(schema)]))
    writer = Person(api.new_account())
    ring.join(writer, [share(dataset, form.WRITER)])
    return Team(ring, dataset, schema, writer)


def found(account: Account) -> Ring:
    """An organization whose roster has its first entry."""
    ring = Ring(Person(account))
    content = form.FoundingEntry(ring.owner.identity.keys, account.email, os.urandom(32))
    ring.add(*ring.chain(content))
    return ring
