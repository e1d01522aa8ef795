"""A roster in which each kind counts and each rule makes an entry void; entries that break it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.reference import Refused
from tests.reference import identity as ids
from tests.reference import invitations as inv
from tests.reference.msgpack import pack
from tests.reference.roster import Entry, Roster
from tests.reference.roster_form import commit_to, conceal, cut
from tests.vectors.sharing_people import (
    ADULTS,
    BILLS,
    CHILDREN,
    FIRST,
    MEMBERS,
    NOW,
    ORGANIZATION,
    OTHER,
    PEOPLE,
    SECOND,
    fixed,
    identity,
    uid,
)

FOUND, INVITE, MEMBER, REMOVE, DATASET, PLACE = range(1, 7)
FORGET, LIST = 8, 9
SECRETS = {FIRST: fixed("first invitation")[:16], SECOND: fixed("second invitation")[:16]}
END = fixed("end of a log")
DEFINITION = fixed("definition")


def dataset_key(epoch: int) -> bytes:
    return fixed(f"D of people {epoch}")


def commitment(epoch: int) -> bytes:
    return ids.commitment(dataset_key(epoch), ORGANIZATION, PEOPLE, epoch)


class Maker:
    """Entries one after another, each with why it is there."""

    def __init__(self) -> None:
        self.roster = Roster(ORGANIZATION)
        self.listed: list[dict[str, Any]] = []
        self.entries: list[Entry] = []
        self.salts = 0

    def body(self, actor: str, kind: int, content: Any, time: int = NOW) -> list[Any]:
        number = len(self.roster.digests)
        previous = self.roster.digests[-1]
        return [2, ORGANIZATION, number, previous, time, MEMBERS[actor], kind, content]

    def put(
        self,
        why: str,
        actor: str,
        kind: int,
        content: Any,
        *,
        void: str | None = None,
        time: int = NOW,
        as_kind: str = "roster",
        kv: int = 1,
    ) -> None:
        signed, openings = conceal(kind, content, self.salt)
        body = pack(self.body(actor, kind, signed, time))
        signature = ids.sign(identity(actor, kv).sign, as_kind, body)
        entry = (body, signature, openings)
        assert self.roster.append(entry) == void, (why, self.roster.voids[-1])
        self.entries.append(entry)
        self.listed.append(
            {
                "why": why,
                "body": body.hex(),
                "signature": signature.hex(),
                "openings": [opening.hex() for opening in openings],
                "void": void,
                "digest": self.roster.digests[-1].hex(),
            }
        )

    def salt(self) -> bytes:
        self.salts += 1
        return fixed(f"salt {self.salts}")[:16]

    @property
    def found(self) -> bytes:
        return self.roster.digests[1]

    def shown(self, name: str, kv: int = 1, member: str | None = None) -> list[bytes]:
        """Keys, anchor and proof."""
        own = identity(name, kv)
        anchor = ids.anchor(own, self.found)
        signed = self.found + MEMBERS[member or name] + own.keys + anchor
        return [own.keys, anchor, ids.sign(own.sign, "keys", signed)]

    def invite(self, invitation: bytes, name: str, shares: list[Any], expires: int) -> list[Any]:
        keys = inv.keys_of(SECRETS[invitation], ORGANIZATION, invitation)
        content = [invitation, b"", f"{name}@example.org", expires, keys.answer_key, shares]
        return [*content, inv.check(keys, self.roster.digests[-1], content)]


def standing(name: str, shown: list[bytes], shares: list[Any], **parts: Any) -> list[Any]:
    return [
        MEMBERS[name],
        parts.get("type", 1),
        parts.get("role", 2),
        f"{name}@example.org",
        *shown,
        parts.get("invitation", b""),
        parts.get("expires", 0),
        shares,
    ]


def make() -> Maker:
    maker = Maker()
    put, nothing = maker.put, [b"", b"", b""]
    keys = identity("ada").keys
    put("an organization begins", "ada", FOUND, [keys, "ada@example.org", fixed("nonce")])
    people = [PEOPLE, "people", "People", 1, commitment(1), []]
    put("a dataset with its first key", "ada", DATASET, people)
    placed = [
        [ADULTS, PEOPLE, "adults", "Adults", DEFINITION],
        [CHILDREN, PEOPLE, "children", "Children", DEFINITION],
    ]
    put("two schemas are placed", "ada", PLACE, placed)
    reads, writes = [[PEOPLE, 2, []]], [[PEOPLE, 1, [ADULTS]]]
    put(
        "Grace is invited as a reader",
        "ada",
        INVITE,
        maker.invite(FIRST, "grace", reads, NOW + 100),
    )
    grace = standing("grace", maker.shown("grace"), reads, invitation=FIRST)
    put("late", "ada", MEMBER, grace, void="invitation", time=NOW + 100)
    owner = standing("grace", maker.shown("grace"), [], invitation=FIRST, role=1)
    put("an invitation makes no owner", "ada", MEMBER, owner, void="role")
    put("Grace is admitted", "ada", MEMBER, grace)
    put("the invitation was used", "ada", MEMBER, grace, void="invitation")
    put("a member removes nobody else", "grace", REMOVE, [MEMBERS["ada"]], void="right")
    put("a reader places nothing", "grace", PLACE, placed, void="right")
    put("an id that is taken", "ada", INVITE, maker.invite(FIRST, "alan", [], NOW), void="id")
    shares = [[BILLS, 1, []]]
    put(
        "a share of no dataset",
        "ada",
        INVITE,
        maker.invite(SECOND, "alan", shares, NOW),
        void="shares",
    )
    everybody = maker.invite(SECOND, "alan", writes, NOW + 100)
    everybody[4] = b"\x01" + bytes(31)
    put("everybody could answer", "ada", INVITE, everybody, void="keys")
    put("Alan is invited", "ada", INVITE, maker.invite(SECOND, "alan", writes, NOW + 100))
    put("and not any more", "ada", REMOVE, [SECOND])
    put("nothing to withdraw", "ada", REMOVE, [SECOND], void="invitation")
    alan = standing("alan", maker.shown("alan"), writes, invitation=SECOND)
    put("the invitation was withdrawn", "ada", MEMBER, alan, void="invitation")
    put("Alan writes one schema", "ada", MEMBER, standing("alan", maker.shown("alan"), writes))
    put("not a writer of the whole dataset", "alan", PLACE, placed, void="right")
    _put_keys(maker)
    put(
        "a member signs as a grant",
        "ada",
        REMOVE,
        [MEMBERS["alan"]],
        void="signature",
        as_kind="grant",
    )
    put("an unknown actor", "mallory", REMOVE, [MEMBERS["ada"]], void="signature")
    put("a second foundation", "ada", FOUND, [keys, "ada@example.org", fixed("n")], void="founded")
    put("the last owner stays", "ada", REMOVE, [MEMBERS["ada"]], void="last_owner")
    demoted = standing("ada", nothing, [])
    put("and stays an owner", "ada", MEMBER, demoted, void="last_owner")
    put("nobody to remove", "ada", REMOVE, [uid(99)], void="absent")
    service = standing("nightly", maker.shown("nightly"), [], type=2, role=1)
    put("a service owns nothing", "ada", MEMBER, service, void="role")
    service = standing(
        "nightly", maker.shown("nightly"), [[PEOPLE, 1, []]], type=2, expires=NOW + 9
    )
    put("a service writes", "ada", MEMBER, service)
    put("Alan is removed", "ada", REMOVE, [MEMBERS["alan"]])
    put("and signs nothing any more", "alan", REMOVE, [MEMBERS["alan"]], void="signature")
    put("he was removed", "ada", REMOVE, [MEMBERS["alan"]], void="absent")
    _put_data(maker, placed)
    rotated = standing("grace", maker.shown("grace", 2), reads)
    put("Grace has other keys", "ada", MEMBER, rotated)
    return maker


def _put_keys(maker: Maker) -> None:
    put, nothing = maker.put, [b"", b"", b""]
    put("keys are left out", "ada", MEMBER, standing("mallory", nothing, []), void="keys")
    keys, anchor, proof = maker.shown("mallory")
    cut = standing("mallory", [keys, b"", proof], [])
    put("an anchor is left out", "ada", MEMBER, cut, void="keys")
    stolen = standing("mallory", maker.shown("grace", member="mallory"), [])
    put("keys of another member", "ada", MEMBER, stolen, void="keys")
    mixed = keys[:33] + identity("grace").keys[33:]
    signed = maker.found + MEMBERS["mallory"] + mixed + anchor
    shown = [mixed, anchor, ids.sign(identity("mallory").sign, "keys", signed)]
    put("some keys of another member", "ada", MEMBER, standing("mallory", shown, []), void="keys")
    small = keys[:1] + b"\x01" + bytes(31) + keys[33:]
    # Right for every message, where nobody looks at the order of the key.
    shown = [small, anchor, b"\x01" + bytes(63)]
    put("a key of small order", "ada", MEMBER, standing("mallory", shown, []), void="keys")
    shown = [keys[:65] + b"\xff" * 1184, anchor, proof]
    put("keys that do not load", "ada", MEMBER, standing("mallory", shown, []), void="keys")
    shown = [keys, anchor, bytes(64)]
    put("no proof", "ada", MEMBER, standing("mallory", shown, []), void="proof")
    other = maker.shown("mallory", member="alan")
    put("a proof for another member", "ada", MEMBER, standing("mallory", other, []), void="proof")


def _put_data(maker: Maker, placed: list[Any]) -> None:
    put = maker.put
    ends = [[ADULTS, 3, END], [CHILDREN, 0, bytes(32)]]

    def people(epoch: int, of: int, ended: list[Any]) -> list[Any]:
        return [PEOPLE, "people", "People", epoch, commitment(of), ended]

    put("an epoch is left out", "ada", DATASET, people(3, 3, []), void="epoch")
    put("another key for this epoch", "ada", DATASET, people(1, 2, []), void="commitment")
    put("an end of another schema", "ada", DATASET, people(2, 2, [[OTHER, 1, END]]), void="ends")
    put("an end at 0 of something", "ada", DATASET, people(2, 2, [[ADULTS, 0, END]]), void="ends")
    put("the second epoch", "ada", DATASET, people(2, 2, ends[:1]))
    put("an earlier end", "ada", DATASET, people(3, 3, [[ADULTS, 2, END]]), void="ends")
    later = [[ADULTS, 4, END], ends[1]]
    put("another end with this epoch", "ada", DATASET, people(2, 2, later), void="ends")
    put("a reader ends no log", "grace", DATASET, people(2, 2, ends[1:]), void="right")
    put("the epoch ends the other log", "ada", DATASET, people(2, 2, ends[1:]))
    put("the same ends once more", "ada", DATASET, people(2, 2, ends))
    put("an earlier epoch", "ada", DATASET, people(1, 1, []), void="epoch")
    bills = [BILLS, "bills", "Bills", 1, fixed("commitment of bills"), []]
    put("a second dataset", "ada", DATASET, bills)
    put("no key of bills is older", "ada", FORGET, [BILLS, 1], void="epoch")
    put("the second key of bills", "ada", DATASET, [*bills[:3], 2, fixed("second of bills"), []])
    put("a reader forgets nothing", "grace", FORGET, [BILLS, 2], void="right")
    put("keys of a dataset that nobody made", "ada", FORGET, [uid(98), 1], void="absent")
    put("an epoch that has not begun", "ada", FORGET, [BILLS, 3], void="epoch")
    put("the first key of bills is forgotten", "ada", FORGET, [BILLS, 2])
    put("it was forgotten before", "ada", FORGET, [BILLS, 2], void="epoch")
    put("a reader lists nothing", "grace", LIST, [PEOPLE, 1], void="right")
    put("nothing is listed that nobody made", "ada", LIST, [uid(98), 1], void="absent")
    put("people are listed", "ada", LIST, [PEOPLE, 1])
    put("bills are listed", "ada", LIST, [BILLS, 1])
    put("people are listed no more", "ada", LIST, [PEOPLE, 0])
    moved = [[ADULTS, BILLS, "adults", "Adults", DEFINITION]]
    put("a schema does not move", "ada", PLACE, moved, void="place")
    put("a schema twice", "ada", PLACE, [placed[0]] * 2, void="place")
    lost = [[OTHER, uid(98), "other", "Other", DEFINITION]]
    put("a dataset that nobody made", "ada", PLACE, lost, void="absent")
    freed = [[OTHER, PEOPLE, "", "", bytes(32)]]
    put("a name is freed that there never was", "ada", PLACE, freed)
    taken = [[OTHER, PEOPLE, "adults", "Others", DEFINITION]]
    put("a service takes a slug over", "nightly", PLACE, taken)


def rosters() -> dict[str, Any]:
    maker = make()
    state = maker.roster.states[-1]
    return {
        "organization": ORGANIZATION.hex(),
        "entries": maker.listed,
        "members": {
            member.hex(): {
                "present": it["present"],
                "type": it["type"],
                "role": it["role"],
                "name": it["name"],
                "keys": it["keys"].hex(),
            }
            for member, it in state.members.items()
        },
        "rights": [
            {
                "entry": number,
                "member": member.hex(),
                "schema": schema.hex(),
                "reads": _has(maker.roster, number, member, schema, write=False),
                "writes": _has(maker.roster, number, member, schema, write=True),
            }
            for number in range(1, len(maker.roster.states), 4)
            for member in MEMBERS.values()
            for schema in (ADULTS, CHILDREN)
        ],
        "epochs": {one.hex(): len(begun) for one, begun in state.epochs.items()},
        "oldest": {one.hex(): first for one, (first, _) in state.forgotten.items()},
        "listed": {one.hex(): state.listed(one) for one in state.datasets},
        "slugs": {one.hex(): placed[1] for one, placed in state.schemas.items()},
        "due": sorted(one.hex() for one in state.due()),
        "due_at": [sorted(one.hex() for one in state.due()) for state in maker.roster.states[1:]],
        "head_words": inv.spelled(maker.roster.digests[-1]),
        "cut": [
            {
                "dataset": dataset.hex(),
                "openings": [
                    [one.hex() for one in cut(body, openings, {dataset})]
                    for body, _, openings in maker.entries
                ],
            }
            for dataset in (PEOPLE, BILLS, OTHER)
        ],
        "broken": _broken(maker),
    }


def _has(roster: Roster, number: int, member: bytes, schema: bytes, *, write: bool) -> bool:
    state = roster.states[number]
    if schema not in state.schemas:
        return False
    may = state.may(member, state.schemas[schema][0], write=write)
    return may == "all" or schema in may


def _broken(maker: Maker) -> list[dict[str, Any]]:
    """What cannot stand behind all the others; the last two cannot stand first."""
    right = maker.body("ada", REMOVE, [MEMBERS["grace"]])

    def changed(at: int, value: Any) -> bytes:
        return pack([*right[:at], value, *right[at + 1 :]])

    def with_names(kind: int, content: Any) -> tuple[bytes, list[bytes]]:
        signed, openings = conceal(kind, content, maker.salt)
        return pack([*right[:6], kind, signed]), openings

    whole, known = pack(right), standing("grace", [b"", b"", b""], [])
    listed: list[tuple[Any, ...]] = [
        ("empty", b""),
        ("cut short", whole[:-1]),
        ("a byte too much", whole + b"\x00"),
        ("a longer spelling of a number", whole.replace(b"\x98\x02", b"\x98\xcc\x02", 1)),
        ("a part too few", pack(right[:7])),
        ("a part too many", pack([*right, 0])),
        ("of an earlier format", changed(0, 1)),
        ("of a later format", changed(0, 3)),
        ("of another organization", changed(1, uid(97))),
        ("its number is taken", changed(2, right[2] - 1)),
        ("its number comes later", changed(2, right[2] + 1)),
        ("behind another entry", changed(3, fixed("another"))),
        ("a time that is no number", changed(4, "now")),
        ("an actor that is no id", changed(5, b"ada")),
        ("a kind that is kept for later", changed(6, 7)),
        ("a kind that nobody knows", changed(6, 10)),
        ("a content of another kind", changed(6, MEMBER)),
        ("an id that is too short", changed(7, [b"x"])),
        ("257 placements", pack([*right[:6], PLACE, [[ADULTS, PEOPLE, b""]] * 257])),
        ("an epoch of 0 to forget", pack([*right[:6], FORGET, [PEOPLE, 0]])),
        ("a part too many to forget", pack([*right[:6], FORGET, [PEOPLE, 1, 1]])),
        ("listed twice over", pack([*right[:6], LIST, [PEOPLE, 2]])),
        ("a part too few to list", pack([*right[:6], LIST, [PEOPLE]])),
        ("a name in place of its commitment", pack([*right[:6], PLACE, [[ADULTS, PEOPLE, "a"]]])),
        ("a right that is none", *with_names(MEMBER, [*known[:9], [[PEOPLE, 3, []]]])),
        ("an id that is none", *with_names(MEMBER, [b"", *known[1:]])),
        *_of_other_lengths(right),
        *_badly_opened(maker, right),
    ]
    found = [_refused(maker.roster, *one) for one in listed]
    first = [2, ORGANIZATION, 1, bytes(32), NOW, MEMBERS["ada"], REMOVE, [MEMBERS["ada"]]]
    of_grace = [identity("grace").keys, "ada@example.org", fixed("nonce")]
    founded, openings = conceal(FOUND, of_grace, maker.salt)
    other = pack([*first[:6], FOUND, founded])
    found.append(_refused(Roster(ORGANIZATION), "the first is no foundation", pack(first)))
    found.append(
        _refused(Roster(ORGANIZATION), "a foundation with another's keys", other, openings)
    )
    return found


def _of_other_lengths(right: list[Any]) -> Iterator[tuple[str, bytes]]:
    """Parts that are empty or of one length, with a length between."""
    member = standing("grace", [b"", b"", b""], [])
    member[3] = fixed("a commitment")
    for why, at in (("keys", 4), ("an anchor", 5), ("a proof", 6), ("an invitation", 7)):
        short = [*member[:at], b"short", *member[at + 1 :]]
        yield f"{why} of another length", pack([*right[:6], MEMBER, short])
    invited = [FIRST, b"short", member[3], NOW, fixed("answer key"), [], fixed("check")]
    yield "a member of another length who is invited", pack([*right[:6], INVITE, invited])
    dataset = [PEOPLE, b"short", 1, commitment(1), []]
    yield "a commitment of another length", pack([*right[:6], DATASET, dataset])


def _badly_opened(maker: Maker, right: list[Any]) -> list[tuple[str, bytes, list[bytes]]]:
    """Openings that are not those of their entry, or break the form."""
    salt = fixed("salt of an opening")[:16]

    def opened(why: str, opening: bytes, kind: int = PLACE) -> tuple[str, bytes, list[bytes]]:
        hidden = commit_to(opening)
        content: list[Any] = [[ADULTS, PEOPLE, hidden]]
        if kind == DATASET:
            content = [PEOPLE, hidden, 2, commitment(2), []]
        elif kind == MEMBER:
            content = standing("grace", [b"", b"", b""], [])
            content[3] = hidden
        return why, pack([*right[:6], kind, content]), [opening]

    good = pack([salt, "adults", "Adults", DEFINITION])
    _, body, _ = opened("", good)
    earlier = maker.entries[0][2]
    listed: list[tuple[str, bytes, list[bytes]]] = [
        ("an opening that is none of this entry's", pack(right), [good]),
        ("an opening of another entry", body, earlier),
        ("an opening of another entry besides", body, [good, *earlier]),
        ("an opening twice", body, [good, good]),
        ("an opening that was altered", body, [good[:-1] + b"x"]),
        ("an opening that is empty", body, [b""]),
        opened("an opening that is no list", b"x"),
        opened("an opening with a part too many", pack([salt, "a", "A", DEFINITION, 0])),
        opened("a dataset's opening for a schema", pack([salt, "a", "A"])),
        opened("a schema's opening for a dataset", good, DATASET),
        opened("a dataset's opening for a member", pack([salt, "a", "A"]), MEMBER),
        opened("a salt that is too short", pack([salt[:15], "a", "A", DEFINITION])),
        opened("a slug with a space", pack([salt, "a b", "A", DEFINITION])),
        opened("a slug without a name", pack([salt, "a", "", DEFINITION])),
        opened("a name without a slug", pack([salt, "", "A"]), DATASET),
        opened("a name that is empty", pack([salt, ""]), MEMBER),
        opened("a name that is too long", pack([salt, "x" * 255]), MEMBER),
        opened("a name with NUL", pack([salt, "\0a"]), MEMBER),
        opened("a longer spelling of an opening", b"\xdc\x00\x04" + good[1:]),
    ]
    return listed


def _refused(
    roster: Roster, why: str, body: bytes, openings: Sequence[bytes] = ()
) -> dict[str, Any]:
    signature = ids.sign(identity("ada").sign, "roster", body)
    try:
        roster.append((body, signature, list(openings)))
    except Refused as refused:
        return {
            "why": why,
            "after": len(roster.digests) - 1,
            "body": body.hex(),
            "signature": signature.hex(),
            "openings": [opening.hex() for opening in openings],
            "error": refused.code,
        }
    raise AssertionError(why)
