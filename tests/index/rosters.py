"""People of one organization, for tests of its roster: each has a keyring, and signs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from encrypted_records.crypto.identity import Identity
from encrypted_records.crypto.invitations import InvitationSecret
from encrypted_records.crypto.keys import DatasetKey, Keyring
from encrypted_records.index.roster.access import (
    admit,
    answer_invitation,
    compose_invite,
    seal_grant,
)
from encrypted_records.index.roster.roster import Roster, sign_entry
from encrypted_records.model import roster as form
from encrypted_records.model.roster import (
    Answer,
    Content,
    EntryBody,
    Grant,
    MemberStanding,
    RosterEntry,
    Share,
)
from encrypted_records.rules.roster_judging import Void

ORGANIZATION = bytes(15) + b"o"
DAY = 86_400
NOW = 1_800_000_000


def uid(name: str) -> bytes:
    """16 bytes that are the same whenever a test asks for this name."""
    return hashlib.sha256(name.encode()).digest()[:16]


@dataclass
class Person:
    name: str
    keyring: Keyring = field(default_factory=Keyring.generate)
    organization: bytes = ORGANIZATION

    @property
    def id(self) -> bytes:
        return uid(self.name)

    @property
    def identity(self) -> Identity:
        return self.of(self.keyring.newest)

    def of(self, version: int) -> Identity:
        return self.keyring.root(version).identity(self.organization, self.id, version)

    def standing(
        self, roster: Roster, *shares: Share, role: int = form.MEMBER
    ) -> MemberStanding[str]:
        """The keys of this person, with all that shows whose they are."""
        version = self.keyring.newest
        identity = self.of(version)
        key = self.keyring.root(version).anchor(self.organization, self.id, version)
        anchor = key.anchor(roster.found)
        proof = identity.sign("keys", roster.found, self.id, identity.keys, anchor)
        return MemberStanding(
            self.id,
            form.PERSON,
            form.OWNER if role == form.OWNER else form.MEMBER,
            f"{self.name}@example.org",
            identity.keys,
            anchor,
            proof,
            b"",
            0,
            list(shares),
        )


def again(person: Person, *shares: Share, role: int = form.MEMBER) -> MemberStanding[str]:
    """Another standing under the keys that there are."""
    owner = role == form.OWNER
    return MemberStanding(
        person.id,
        form.PERSON,
        form.OWNER if owner else form.MEMBER,
        f"{person.name}@example.org",
        b"",
        b"",
        b"",
        b"",
        0,
        list(shares),
    )


def reader(dataset: str, *schemas: str) -> Share:
    return Share(uid(dataset), form.READER, [uid(schema) for schema in schemas])


def writer(dataset: str, *schemas: str) -> Share:
    return Share(uid(dataset), form.WRITER, [uid(schema) for schema in schemas])


class Team:
    """An organization that ``ada`` has founded, and its roster."""

    def __init__(self, name: str = "ada", keyring: Keyring | None = None) -> None:
        self.people: dict[str, Person] = {name: Person(name, keyring or Keyring.generate())}
        self.entries: list[RosterEntry] = []
        self.keys: dict[bytes, dict[int, DatasetKey]] = {}
        self.roster = Roster(ORGANIZATION)
        founder = self.person(name)
        keys = founder.identity.keys
        self.accept(founder, form.FoundingEntry(keys, f"{name}@example.org", uid("nonce") * 2))

    def person(self, name: str) -> Person:
        return self.people.setdefault(name, Person(name))

    def sign(self, actor: Person, content: Content, *, time: int = NOW) -> RosterEntry:
        """The next entry by somebody, whether it counts or not."""
        head = self.roster.head
        body = EntryBody(ORGANIZATION, head.number + 1, head.digest, time, actor.id, content)
        encoded, openings = form.encode_entry_body(body)
        return RosterEntry(encoded, actor.identity.sign("roster", encoded), openings)

    def put(self, actor: Person, content: Content, *, time: int = NOW) -> Void | None:
        """Append what somebody signs, and say why it does not count."""
        return self.take(self.sign(actor, content, time=time))

    def take(self, entry: RosterEntry) -> Void | None:
        void = self.roster.append(entry)
        self.entries.append(entry)
        return void

    def accept(self, actor: Person, content: Content, *, time: int = NOW) -> None:
        """Append what has to count."""
        entry = sign_entry(self.roster, actor.identity, actor.id, time, content)
        assert self.take(entry) is None

    @property
    def ada(self) -> Person:
        return self.people["ada"]

    def dataset(self, name: str, epoch: int = 1, *ends: form.End, by: str = "ada") -> DatasetKey:
        """A dataset, or a new epoch of one."""
        key = DatasetKey.generate(ORGANIZATION, uid(name), epoch)
        self.keys.setdefault(uid(name), {})[epoch] = key
        content = form.DatasetName(uid(name), name, name.title(), epoch, key.commitment, list(ends))
        self.accept(self.people[by], content)
        return key

    def place(self, dataset: str, *schemas: str, by: str = "ada") -> None:
        self.accept(self.people[by], [placement(dataset, schema) for schema in schemas])

    def invite(
        self,
        name: str,
        *shares: Share,
        by: str = "ada",
        member: bytes = b"",
        label: str = "",
        expires: int = NOW + 7 * DAY,
    ) -> InvitationSecret:
        secret = InvitationSecret.generate()
        invite = compose_invite(
            self.roster,
            secret,
            invitation=uid(label or f"invitation of {name}"),
            name=f"{name}@example.org",
            expires=expires,
            shares=shares,
            member=member,
        )
        self.accept(self.people[by], invite)
        return secret

    def answer(
        self, name: str, secret: InvitationSecret, *, label: str = "", now: int = NOW
    ) -> Answer:
        person = self.person(name)
        version = person.keyring.newest
        return answer_invitation(
            self.roster,
            secret,
            invitation=uid(label or f"invitation of {name}"),
            member=person.id,
            identity=person.identity,
            anchor=person.keyring.root(version).anchor(ORGANIZATION, person.id, version),
            now=now,
        )

    def join(self, name: str, *shares: Share, by: str = "ada") -> Person:
        """Invite somebody, let them answer, and admit them."""
        secret = self.invite(name, *shares, by=by)
        self.accept(self.people[by], admit(self.roster, self.answer(name, secret), NOW))
        return self.person(name)

    def grant(self, name: str, dataset: str, by: str = "ada") -> Grant:
        owner = self.people[by]
        return seal_grant(
            self.roster,
            owner.identity,
            owner.id,
            member=uid(name),
            dataset=uid(dataset),
            keys=self.keys[uid(dataset)],
        )


def placement(dataset: str, schema: str, slug: str | None = None) -> form.Placement:
    wanted = schema if slug is None else slug
    definition = hashlib.sha256(schema.encode()).digest()
    return form.Placement(uid(schema), uid(dataset), wanted, wanted.title(), definition)


def names(members: Sequence[object]) -> list[str]:
    return [str(getattr(member, "name", "")).partition("@")[0] for member in members]


def two_datasets() -> Team:
    """Ada owns; ``people`` and ``bills`` are datasets, with schemas ``adults``, ``rents``."""
    team = Team()
    team.dataset("people")
    team.dataset("bills")
    team.place("people", "adults", "children")
    team.place("bills", "rents")
    return team
