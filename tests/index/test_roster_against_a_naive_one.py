"""Whatever entries come, by whomever: the roster says what a naive one says that keeps all states.

The naive one is the second implementation, which replays entries with a copy of the whole state
for each (``tests/reference/roster.py``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from encrypted_records.crypto.identity import MemberKeys
from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.index.roster.roster import Roster, due_datasets
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Content, EntryBody, RosterEntry, Share, cut_entry
from encrypted_records.rules.roster_state import EVERYTHING, Member, Scope
from tests.index.rosters import NOW, ORGANIZATION, Person, uid
from tests.reference import roster as naive

NAMES = ("ada", "grace", "alan", "edith")
DATASETS = [uid(one) for one in ("people", "bills")]
SCHEMAS = [uid(one) for one in ("adults", "children", "rents")]
#: one of them is the id of a person, too
INVITATIONS = [uid("first"), uid("second"), uid("alan")]


@cache
def person(name: str) -> Person:
    roots = {kv: RootKey(uid(f"{name}{kv}") * 2) for kv in (1, 2)}
    return Person(name, Keyring(roots))


@cache
def keys(name: str, version: int) -> bytes:
    return person(name).of(version).keys


@cache
def sign(name: str, version: int, body: bytes) -> bytes:
    return person(name).of(version).sign("roster", body)


@cache
def proof(name: str, version: int, member: bytes, found: bytes) -> bytes:
    identity = person(name).of(version)
    return identity.sign("keys", found, member, identity.keys, b"a" * 32)


def labels(chance: Random) -> tuple[str, str]:
    """Slug and name; seldom none."""
    return chance.choice([("", ""), *[("x", "X"), ("y", "Y")] * 9])


def shares(chance: Random) -> list[Share]:
    found = []
    for _ in range(chance.choice([0, 1, 1, 2])):
        schemas = SCHEMAS if chance.random() < 0.1 else SCHEMAS[:2]
        single = [chance.choice(schemas) for _ in range(chance.choice([0, 0, 1, 2]))]
        dataset = chance.choice([DATASETS[0]] * 8 + [DATASETS[1], uid("none")])
        right: Any = chance.choice([form.WRITER, form.READER])
        found.append(Share(dataset, right, single))
    return found


def standing(chance: Random, roster: Roster) -> form.MemberStanding[str]:
    name, version = chance.choice(NAMES), chance.choice([1, 1, 2])
    before = roster.member(uid(name))
    member = chance.choice([uid(name)] * 20 + [uid("grace"), uid("first")])
    owner = chance.random() < 0.3
    given_keys = before is None or not before.present or chance.random() < 0.4
    shown = [keys(name, version), b"a" * 32, proof(name, version, member, roster.found)]
    parts = shown if given_keys else [b"", b"", b""]
    if chance.random() < 0.1:
        parts[chance.randrange(3)] = chance.choice([b"", b"a" * len(parts[0])])
    lengths = (1249, 32, 64)
    parts = [part if len(part) == size else b"" for part, size in zip(parts, lengths, strict=True)]
    usual = before.type if before else form.PERSON
    kind: Any = chance.choice([usual] * 12 + [form.PERSON, form.SERVICE])
    invitation = chance.choice(INVITATIONS) if chance.random() < 0.25 else b""
    shared = [] if owner and chance.random() < 0.8 else shares(chance)
    role: Any = form.OWNER if owner else form.MEMBER
    return form.MemberStanding(
        member, kind, role, name, parts[0], parts[1], parts[2], invitation, 0, shared
    )


def dataset(chance: Random, roster: Roster) -> form.DatasetName:
    which = chance.choice(DATASETS)
    epoch = roster.epoch(which)
    present = epoch.epoch if epoch else 0
    number = max(1, present + chance.choice([0, 0, 1, 1, 1, 2, -1]))
    commitment = chance.choice([b"c" * 32] * 8 + [b"e" * 32])
    ended = number > present or chance.random() < 0.5
    ends = [
        form.End(chance.choice(SCHEMAS), version, chance.choice([bytes(32), b"d" * 32]))
        for version in chance.sample([0, 0, 1, 2], chance.choice([0, 1, 2]) if ended else 0)
    ]
    return form.DatasetName(which, *labels(chance), number, commitment, ends)


def places(chance: Random) -> list[form.Placement]:
    found = []
    for _ in range(chance.choice([1, 1, 2])):
        schema = chance.choice(SCHEMAS)
        home = DATASETS[SCHEMAS.index(schema) // 2]
        where = chance.choice([home] * 8 + [*DATASETS, uid("none")])
        found.append(form.Placement(schema, where, *labels(chance), b"d" * 32))
    return found


def invite(chance: Random) -> form.Invite[str]:
    wanted = uid(chance.choice(NAMES)) if chance.random() < 0.5 else b""
    expires = NOW + chance.choice([0, 10, 30])
    which = chance.choice(INVITATIONS)
    answer_key = bytes(32) if chance.random() < 0.05 else b"k" * 32
    return form.Invite(which, wanted, "n", expires, answer_key, shares(chance), b"c" * 32)


def content(chance: Random, roster: Roster) -> Content:
    kind = chance.choices(range(6), [4, 4, 9, 3, 2, 0.5])[0]
    if kind == 0:
        return dataset(chance, roster)
    if kind == 1:
        return places(chance)
    if kind == 2:
        return standing(chance, roster)
    if kind == 3:
        return invite(chance)
    if kind == 4:
        return form.Remove(chance.choice([*map(uid, NAMES), *INVITATIONS]))
    return form.FoundingEntry(keys("ada", 1), "ada", bytes(32))


def opening(roster: Roster) -> Content:
    """A dataset with a schema, so that more of what comes counts."""
    if roster.number == 1:
        return form.DatasetName(DATASETS[0], "x", "X", 1, b"c" * 32, [])
    return [form.Placement(SCHEMAS[0], DATASETS[0], "x", "X", b"d" * 32)]


def signer(chance: Random, roster: Roster) -> tuple[str, str, int]:
    """Who is named as actor, and whose keys of which version sign: mostly an owner's own."""
    owners = [owner.member for owner in roster.owners()]
    likely = [name for name in NAMES if uid(name) in owners]
    name = chance.choice(likely * 12 + list(NAMES))
    standing = roster.member(uid(name))
    known = [kv for kv in (1, 2) if standing and standing.keys == keys(name, kv)]
    return name, chance.choice([name] * 25 + ["alan"]), chance.choice(known * 25 + [1, 2])


def signed(body: EntryBody, name: str, version: int) -> RosterEntry:
    encoded, openings = form.encode_entry_body(body)
    return RosterEntry(encoded, sign(name, version, encoded), openings)


def foundation() -> RosterEntry:
    content = form.FoundingEntry(keys("ada", 1), "ada", bytes(32))
    body = EntryBody(ORGANIZATION, 1, bytes(32), NOW, uid("ada"), content)
    return signed(body, "ada", 1)


def as_naive(scope: Scope) -> object:
    return naive.ALL if scope == EVERYTHING else set(scope.schemas)


def check_equal(roster: Roster, number: int, state: naive.State) -> None:
    """What can be asked of an entry in the past."""
    present = {member.member for member in roster.members(number)}
    assert present == {one for one, it in state.members.items() if it["present"]}
    assert {owner.member for owner in roster.owners(number)} == state.owners() != set()
    for member in present:
        standing = roster.member(member, number)
        assert standing is not None and standing.keys == state.members[member]["keys"]
        for dataset in DATASETS:
            reads = as_naive(roster.reads(member, dataset, number))
            assert reads == state.may(member, dataset, write=False)
            writes = as_naive(roster.writes(member, dataset, number))
            assert writes == state.may(member, dataset, write=True)
    for dataset in DATASETS:
        epoch = roster.epoch(dataset, number)
        begun = state.epochs.get(dataset, [])
        assert (epoch.epoch if epoch else 0) == len(begun)
        named = roster.dataset(dataset, number)
        assert ((named.slug, named.name) if named else None) == state.datasets.get(dataset)
    for schema in SCHEMAS:
        placed = roster.schema(schema, number)
        parts = (placed.dataset, placed.slug, placed.name, placed.definition) if placed else None
        assert parts == state.schemas.get(schema)


def check_present(roster: Roster, state: naive.State) -> None:
    """What can be asked of the newest entry alone."""
    assert {due_dataset.dataset for due_dataset in due_datasets(roster)} == state.due()
    for dataset in DATASETS:
        left = {one for one in state.open.get(dataset, ()) if state.schemas[one][1]}
        assert {one.schema for one in roster.open(dataset)} == left
    for schema in SCHEMAS:
        newest = [(end.version, end.digest, end.epoch) for end in roster.ends(schema)[-1:]]
        assert newest == ([state.ends[schema]] if schema in state.ends else [])
    for invitation in roster.invitations():
        it = state.invitations[invitation.content.id]
        over = "admitted" if invitation.admitted else "withdrawn" if invitation.withdrawn else ""
        assert over == it["over"] and invitation.digest == it["digest"]
    holders: dict[bytes, bytes] = {}
    for history in roster.histories():
        for standing in history:
            for key in MemberKeys(standing.keys).parts:
                assert holders.setdefault(key, standing.member) == standing.member


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_random_entries_of_random_actors_add_up_to_what_a_naive_roster_says(seed: int) -> None:
    # Hypothesis's own draws repeat one another so much that few of the entries would count.
    chance = Random(seed)
    first = foundation()
    entries: list[RosterEntry] = [first]
    roster, other = Roster(ORGANIZATION, entries), naive.Roster(ORGANIZATION)
    other.append((first.body, first.signature, first.openings))
    for _ in range(chance.randint(10, 40)):
        name, by, version = signer(chance, roster)
        head = roster.head
        time = NOW + chance.randint(0, 20)
        what = content(chance, roster) if roster.number > 2 else opening(roster)
        body = EntryBody(ORGANIZATION, head.number + 1, head.digest, time, uid(name), what)
        entry = signed(body, by, version)
        before = observed(roster)
        void = roster.append(entry)
        assert other.append((entry.body, entry.signature, entry.openings)) == void
        assert roster.head.digest == other.digests[-1]
        if void is not None:
            assert observed(roster) == before
        check_present(roster, other.states[-1])
        entries.append(entry)
    again = Roster(ORGANIZATION, entries)
    assert again.voids == roster.voids
    for names in (set[bytes](), {DATASETS[0]}, {*DATASETS}):
        check_cut(Roster(ORGANIZATION, (cut_entry(entry, names) for entry in entries)), roster)
    for number, state in enumerate(other.states):
        if number:
            check_equal(roster, number, state)


def check_cut(cut: Roster, whole: Roster) -> None:
    """Who is not shown all names judges all alike."""
    assert (cut.voids, cut.head) == (whole.voids, whole.head)
    assert list(map(judged, cut.histories())) == list(map(judged, whole.histories()))
    for dataset in DATASETS:
        assert cut.epochs(dataset) == whole.epochs(dataset)
        assert cut.first(dataset) == whole.first(dataset)
        assert cut.losses(dataset) == whole.losses(dataset)
    for schema in SCHEMAS:
        assert cut.ends(schema) == whole.ends(schema)
        placed, known = cut.schema(schema), whole.schema(schema)
        assert (placed and placed.dataset) == (known and known.dataset)
    ended = [
        (invitation.content.id, invitation.admitted, invitation.withdrawn)
        for invitation in cut.invitations()
    ]
    assert ended == [
        (invitation.content.id, invitation.admitted, invitation.withdrawn)
        for invitation in whole.invitations()
    ]


def judged(standings: list[Member]) -> list[Member]:
    return [replace(one, name="") for one in standings]


def observed(roster: Roster) -> Any:
    """Everything that a void entry must leave as it is."""
    return (
        list(roster.histories()),
        roster.datasets(),
        [roster.epochs(one) for one in DATASETS],
        [roster.losses(one) for one in DATASETS],
        [roster.schema(schema) for schema in SCHEMAS],
        [roster.ends(schema) for schema in SCHEMAS],
        [roster.open(one) for one in DATASETS],
        roster.invitations(),
    )
