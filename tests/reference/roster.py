"""Section 15.4: the roster, replayed entry by entry, with a whole state kept for each."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.reference import Refused
from tests.reference.identity import check_keys, check_signing_key, is_signed
from tests.reference.roster_form import (
    DATASET,
    FORGET,
    FOUND,
    INVITE,
    LIST,
    MEMBER,
    PLACE,
    REMOVE,
    Malformed,
    read,
)

#: body, signature and openings
Entry = tuple[bytes, bytes, list[bytes]]
OWNER, WRITER, SERVICE = 1, 1, 2
ALL = "all"


@dataclass
class State:
    """What holds after one entry. Members that were removed stay, with ``present`` false."""

    members: dict[bytes, dict[str, Any]] = field(default_factory=dict)
    invitations: dict[bytes, dict[str, Any]] = field(default_factory=dict)
    #: dataset to (slug, name)
    datasets: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    #: dataset to the commitments of its epochs
    epochs: dict[bytes, list[bytes]] = field(default_factory=dict)
    #: dataset to the oldest epoch that is not forgotten, and the entry that said so
    forgotten: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    #: schema to (dataset, slug, name, definition)
    schemas: dict[bytes, tuple[bytes, str, str, bytes]] = field(default_factory=dict)
    #: dataset to the entry of kind 9 that was the newest, where that lists it
    listings: dict[bytes, int] = field(default_factory=dict)
    #: schema to the newest end, and the epoch of that
    ends: dict[bytes, tuple[int, bytes, int]] = field(default_factory=dict)
    #: dataset to the schemas that its newest epoch found and has not ended
    open: dict[bytes, set[bytes]] = field(default_factory=dict)
    #: dataset to those who lost something since its newest epoch
    lost: dict[bytes, set[bytes]] = field(default_factory=dict)
    #: every key that there ever was, and its member
    keys: list[tuple[bytes, bytes]] = field(default_factory=list)

    def owners(self) -> set[bytes]:
        return {one for one, it in self.members.items() if it["present"] and it["role"] == OWNER}

    def may(self, member: bytes, dataset: bytes, *, write: bool) -> set[bytes] | str:
        """The schemas of a dataset that somebody may read or write; ALL for all."""
        it = self.members.get(member)
        if it is None or not it["present"]:
            return set()
        if it["role"] == OWNER:
            return ALL
        found: set[bytes] = set()
        for of, right, schemas in it["shares"]:
            if of == dataset and (right == WRITER or not write):
                if not schemas:
                    return ALL
                found |= set(schemas)
        return found

    def due(self) -> set[bytes]:
        left = {one for one, which in self.open.items() if any(self.schemas[at][1] for at in which)}
        lost = {one for one, who in self.lost.items() if who}
        return {one for one in left | lost if self.datasets[one][0]}

    def listed(self, dataset: bytes) -> int:
        """The entry that lists a dataset; 0 where none does."""
        return self.listings.get(dataset, 0) if self.datasets.get(dataset, ("",))[0] else 0

    def is_of_another(self, member: bytes, keys: bytes) -> bool:
        own = {keys[1:33], keys[33:65], keys[65:]}
        return any(key in own and whose != member for key, whose in self.keys)


def _has_less(before: set[bytes] | str, after: set[bytes] | str) -> bool:
    if after == ALL:
        return False
    return before == ALL or not set(before) <= set(after)


@dataclass
class Roster:
    organization: bytes
    digests: list[bytes] = field(default_factory=lambda: [bytes(32)])
    #: the state after each entry; the first is that of none
    states: list[State] = field(default_factory=lambda: [State()])
    #: why each entry is void, or None
    voids: list[str | None] = field(default_factory=list)

    def extend(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry) -> str | None:
        body, signature, openings = entry
        broken = Refused("roster_broken")
        try:
            parts = read(body, openings)
        except Malformed:
            raise broken from None
        _, organization, number, previous, time, actor, kind, content = parts
        if (organization, number, previous) != (
            self.organization,
            len(self.digests),
            self.digests[-1],
        ):
            raise broken
        if number > 100_000:
            raise Refused("unsupported")
        state = copy.deepcopy(self.states[-1])
        digest = hashlib.sha256(body + signature).digest()
        void: str | None = None
        if number == 1:
            if kind != FOUND or not _loads(content[0]):
                raise broken
            if not is_signed(content[0][1:33], "roster", body, signature):
                raise broken
            _stand(state, actor, 1, 1, content[1], content[0], [])
        else:
            void = "signature"
            it = state.members.get(actor, {"present": False})
            if it["present"] and is_signed(it["keys"][1:33], "roster", body, signature):
                void = self._void(state, actor, time, kind, content)
            if void is None:
                self._do(state, actor, kind, content, digest)
        self.digests.append(digest)
        self.states.append(self.states[-1] if void else state)
        self.voids.append(void)
        return void

    def _void(self, state: State, actor: bytes, time: int, kind: int, content: Any) -> str | None:
        owner = actor in state.owners()
        if kind == FOUND:
            return "founded"
        if kind == REMOVE:
            return _void_remove(state, actor, content[0])
        if kind == PLACE:
            return _void_place(state, actor, content)
        if not owner:
            return "right"
        if kind == INVITE:
            if content[0] in state.members or content[0] in state.invitations:
                return "id"
            if not _can_sign(content[4]):
                return "keys"
            return _void_shares(state, content[5])
        if kind == DATASET:
            return _void_dataset(state, content)
        if kind == FORGET:
            dataset, first = content
            if dataset not in state.epochs:
                return "absent"
            oldest = state.forgotten.get(dataset, (1, 0))[0]
            return None if oldest < first <= len(state.epochs[dataset]) else "epoch"
        if kind == LIST:
            return None if content[0] in state.epochs else "absent"
        return self._void_member(state, time, content)

    def _void_member(self, state: State, time: int, content: list[Any]) -> str | None:
        member, kind, role, _, keys, anchor, proof, invitation, _, shares = content
        it = state.members.get(member)
        present = it is not None and it["present"]
        if member in state.invitations:
            return "id"
        if not present and sum(member["present"] for member in state.members.values()) >= 1000:
            return "limit"
        if kind == SERVICE and (role == OWNER or invitation):
            return "role"
        if it is not None and it["type"] != kind:
            return "role"
        if role == OWNER and shares:
            return "shares"
        if not keys and not anchor and not proof:
            if not present or invitation:
                return "keys"
        else:
            if not keys or not anchor or not proof or not _loads(keys):
                return "keys"
            if state.is_of_another(member, keys):
                return "keys"
            signed = self.digests[1] + member + keys + anchor
            if not is_signed(keys[1:33], "keys", signed, proof):
                return "proof"
        if invitation:
            invite = state.invitations.get(invitation)
            if invite is None or invite["over"] or invite["expires"] <= time:
                return "invitation"
            if invite["member"] != member if invite["member"] else it is not None:
                return "invitation"
            if role == OWNER:
                return "role"
        if role != OWNER and state.owners() == {member}:
            return "last_owner"
        return _void_shares(state, shares)

    def _do(self, state: State, actor: bytes, kind: int, content: Any, digest: bytes) -> None:
        if kind == INVITE:
            state.invitations[content[0]] = {
                "member": content[1],
                "expires": content[3],
                "answer_key": content[4],
                "by": actor,
                "over": "",
                "digest": digest,
            }
        elif kind == MEMBER:
            member, type_, role, name, keys, _, _, invitation, _, shares = content
            keys = keys or state.members[member]["keys"]
            _stand(state, member, type_, role, name, keys, shares)
            if invitation:
                state.invitations[invitation]["over"] = "admitted"
        elif kind == REMOVE and content[0] in state.invitations:
            state.invitations[content[0]]["over"] = "withdrawn"
        elif kind == REMOVE:
            it = state.members[content[0]]
            parts = (it["type"], it["role"], it["name"], it["keys"], it["shares"])
            _stand(state, content[0], *parts, present=False)
        elif kind == DATASET:
            dataset, slug, name, epoch, commitment, ends = content
            for other, (taken, _) in list(state.datasets.items()):
                if slug and taken == slug:
                    state.datasets[other] = ("", "")
            state.datasets[dataset] = (slug, name)
            begun = state.epochs.setdefault(dataset, [])
            if epoch > len(begun):
                begun.append(commitment)
                state.lost[dataset] = set()
                state.open[dataset] = {
                    schema for schema, (of, *_) in state.schemas.items() if of == dataset
                }
            state.ends |= {schema: (version, at, epoch) for schema, version, at in ends}
            state.open[dataset] -= {schema for schema, *_ in ends}
        elif kind == FORGET:
            state.forgotten[content[0]] = (content[1], len(self.digests))
        elif kind == LIST:
            state.listings[content[0]] = len(self.digests) if content[1] else 0
        else:
            for schema, dataset, slug, name, definition in content:
                for other, (of, taken, _, what) in list(state.schemas.items()):
                    if slug and (of, taken) == (dataset, slug):
                        state.schemas[other] = (of, "", "", what)
                state.schemas[schema] = (dataset, slug, name, definition)


def _loads(keys: bytes) -> bool:
    try:
        check_keys(keys)
    except Refused:
        return False
    return True


def _can_sign(key: bytes) -> bool:
    try:
        check_signing_key(key)
    except Refused:
        return False
    return True


def _stand(
    state: State,
    member: bytes,
    type_: int,
    role: int,
    name: str,
    keys: bytes,
    shares: list[Any],
    *,
    present: bool = True,
) -> None:
    before = {
        dataset: [state.may(member, dataset, write=write) for write in (False, True)]
        for dataset in state.epochs
    }
    owned = member in state.owners()
    other_keys = member in state.members and state.members[member]["keys"] != keys
    state.members[member] = {
        "type": type_,
        "role": role,
        "name": name,
        "keys": keys,
        "shares": shares,
        "present": present,
    }
    state.keys += [(keys[1:33], member), (keys[33:65], member), (keys[65:], member)]
    for dataset, rights in before.items():
        after = [state.may(member, dataset, write=write) for write in (False, True)]
        less = any(_has_less(one, other) for one, other in zip(rights, after, strict=True))
        if rights[0] and (less or other_keys):
            state.lost[dataset].add(member)
    if owned and member not in state.owners():
        for invite in state.invitations.values():
            if invite["by"] == member and not invite["over"]:
                invite["over"] = "withdrawn"


def _void_shares(state: State, shares: list[Any]) -> str | None:
    for at, (dataset, right, schemas) in enumerate(shares):
        if dataset not in state.epochs:
            return "shares"
        if any(other[:2] == [dataset, right] for other in shares[:at]):
            return "shares"
        if len(set(schemas)) != len(schemas):
            return "shares"
        for schema in schemas:
            if schema not in state.schemas or state.schemas[schema][0] != dataset:
                return "shares"
    return None


def _void_remove(state: State, actor: bytes, which: bytes) -> str | None:
    if actor not in state.owners() and actor != which:
        return "right"
    if which in state.members:
        if not state.members[which]["present"]:
            return "absent"
        return "last_owner" if state.owners() == {which} else None
    if which in state.invitations:
        return "invitation" if state.invitations[which]["over"] else None
    return "absent"


def _void_dataset(state: State, content: list[Any]) -> str | None:
    dataset, _, _, epoch, commitment, ends = content
    begun = state.epochs.get(dataset, [])
    if not begun and len(state.epochs) >= 500:
        return "limit"
    if epoch not in (len(begun), len(begun) + 1):
        return "epoch"
    if epoch == len(begun):
        if commitment != begun[-1]:
            return "commitment"
    elif epoch > 1024:
        return "limit"
    for at, (schema, version, digest) in enumerate(ends):
        placed, earlier = state.schemas.get(schema), state.ends.get(schema)
        if placed is None or placed[0] != dataset or schema in [end[0] for end in ends[:at]]:
            return "ends"
        if version == 0 and digest != bytes(32):
            return "ends"
        if earlier is not None and version < earlier[0]:
            return "ends"
        if earlier is not None and version == earlier[0] and digest != earlier[1]:
            return "ends"
        if earlier is not None and version != earlier[0] and epoch == earlier[2]:
            return "ends"
    return None


def _void_place(state: State, actor: bytes, content: list[Any]) -> str | None:
    if any(state.may(actor, dataset, write=True) != ALL for _, dataset, *_ in content):
        return "right"
    if len({schema for schema, *_ in content}) != len(content):
        return "place"
    if any(dataset not in state.epochs for _, dataset, *_ in content):
        return "absent"
    for schema, dataset, *_ in content:
        if schema in state.schemas and state.schemas[schema][0] != dataset:
            return "place"
    new = {schema for schema, *_ in content} - set(state.schemas)
    return "limit" if len(state.schemas) + len(new) > 10_000 else None
