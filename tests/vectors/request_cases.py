"""Requests for access behind a short roster, and what stands in the way of others."""

from __future__ import annotations

from typing import Any

from tests.reference import Refused
from tests.reference import requests as ref
from tests.reference.identity import sign
from tests.reference.msgpack import pack
from tests.reference.roster import Roster
from tests.vectors.roster_cases import (
    DATASET,
    FOUND,
    LIST,
    MEMBER,
    REMOVE,
    Maker,
    commitment,
    standing,
)
from tests.vectors.sharing_people import (
    BILLS,
    MEMBERS,
    NOW,
    ORGANIZATION,
    OTHER,
    PEOPLE,
    fixed,
    identity,
    uid,
)

READ, WRITE = 2, 1


def _roster() -> tuple[Maker, dict[str, int]]:
    """The entries, and the number of those that requests are told by."""
    maker = Maker()
    put, at = maker.put, {}

    def mark(name: str) -> None:
        at[name] = len(maker.entries)

    reads = [[BILLS, READ, []]]
    keys = identity("ada").keys
    put("an organization begins", "ada", FOUND, [keys, "ada@example.org", fixed("nonce")])
    put("people", "ada", DATASET, [PEOPLE, "people", "People", 1, commitment(1), []])
    put("bills", "ada", DATASET, [BILLS, "bills", "Bills", 1, fixed("bills"), []])
    put("Alan reads bills", "ada", MEMBER, standing("alan", maker.shown("alan"), reads))
    service = standing("nightly", maker.shown("nightly"), [], type=2)
    put("a service", "ada", MEMBER, service)
    mark("before bills")
    put("bills are listed", "ada", LIST, [BILLS, 1])
    mark("before Grace")
    put("Grace is in no dataset", "ada", MEMBER, standing("grace", maker.shown("grace"), []))
    mark("asked")
    put("people are listed, too", "ada", LIST, [PEOPLE, 1])
    nothing = [b"", b"", b""]
    has = standing("grace", nothing, [[PEOPLE, READ, []]])
    put("Grace reads people", "ada", MEMBER, has)
    mark("later")
    has = standing("grace", nothing, [[PEOPLE, READ, []], *reads])
    put("and bills", "ada", MEMBER, has)
    mark("given")
    has = standing("grace", nothing, [[PEOPLE, READ, []]])
    put("and no longer", "ada", MEMBER, has)
    mark("taken away")
    put("Alan has other keys", "ada", MEMBER, standing("alan", maker.shown("alan", 2), reads))
    put("people are listed no more", "ada", LIST, [PEOPLE, 0])
    put("Grace is removed", "ada", REMOVE, [MEMBERS["grace"]])
    mark("removed")
    has = standing("grace", maker.shown("grace"), [])
    put("Grace is back", "ada", MEMBER, has)
    mark("back")
    put("the name of bills is freed", "ada", DATASET, [BILLS, "", "", 1, fixed("bills"), []])
    mark("freed")
    return maker, at


def _body(maker: Maker, number: int, member: str = "grace", **parts: Any) -> list[Any]:
    found: dict[str, Any] = {
        "format": 1,
        "organization": ORGANIZATION,
        "dataset": BILLS,
        "member": MEMBERS[member],
        "right": READ,
        "number": number,
        "digest": maker.roster.digests[number] if number < len(maker.roster.digests) else bytes(32),
        "time": NOW,
    }
    return list((found | parts).values())


def requests() -> dict[str, Any]:
    maker, at = _roster()
    return {
        "organization": ORGANIZATION.hex(),
        "entries": maker.listed,
        "roots": {name: [fixed(f"root of {name} {kv}").hex() for kv in (1, 2)] for name in MEMBERS},
        "requests": [
            *_judged(maker, at),
            *(_shown(maker, why, at["asked"], request) for why, request in _of_others(maker, at)),
            *(_shown(maker, why, at["asked"], request) for why, request in _malformed(maker, at)),
        ],
    }


def _judged(maker: Maker, at: dict[str, int]) -> list[dict[str, Any]]:
    asked, month = at["asked"], 30 * 86_400
    grace = ref.make(_body(maker, asked), identity("grace"))
    writes = ref.make(_body(maker, asked, "alan", right=WRITE), identity("alan"))
    early = ref.make(_body(maker, at["before bills"], "alan", right=WRITE), identity("alan"))
    people = ref.make(_body(maker, asked, dataset=PEOPLE), identity("grace"))
    people_later = ref.make(
        _body(maker, at["later"], dataset=PEOPLE, right=WRITE), identity("grace")
    )
    again = ref.make(_body(maker, at["taken away"]), identity("grace"))

    def shown(why: str, after: str, request: ref.Request, now: int = NOW) -> dict[str, Any]:
        return _shown(maker, why, at[after], request, now)

    return [
        shown("Grace asks to read", "asked", grace),
        shown("a reader asks to write", "asked", writes),
        shown("as long as nothing of it changes", "later", grace),
        shown("it was given", "given", grace),
        shown("it was given, and taken away", "taken away", grace),
        shown("who lost it asks again", "taken away", again),
        shown("who asked was removed", "removed", again),
        shown("and came back", "back", again),
        shown("before the dataset was listed", "asked", early),
        shown("a dataset that was listed later", "later", people),
        shown("a reader of people asks to write", "taken away", people_later),
        shown("the name of the dataset was freed", "freed", again),
        shown("people are listed no more", "freed", people_later),
        shown("under keys of before", "freed", writes),
        shown("in the last second", "asked", grace, NOW + month - 1),
        shown("too late", "asked", grace, NOW + month),
        shown("a clock that is a day ahead", "asked", grace, NOW - 86_400),
        shown("a clock that is further ahead", "asked", grace, NOW - 86_401),
    ]


def _of_others(maker: Maker, at: dict[str, int]) -> list[tuple[str, ref.Request]]:
    asked = at["asked"]

    def by(name: str, why: str, **parts: Any) -> tuple[str, ref.Request]:
        return why, ref.make(_body(maker, asked, name, **parts), identity(name))

    body = pack(_body(maker, asked))
    freed = _body(maker, at["freed"])
    return [
        by("alan", "a reader asks to read"),
        by("ada", "an owner"),
        by("nightly", "a service"),
        by("mallory", "a stranger"),
        by("grace", "of another organization", organization=uid(97)),
        by("grace", "a dataset that is not there", dataset=OTHER),
        by("grace", "a dataset that nobody listed", dataset=PEOPLE),
        by("grace", "behind another roster", digest=fixed("another roster")),
        ("behind an entry that is not there yet", ref.make(freed, identity("grace"))),
        ("before who asks was in", ref.make(_body(maker, at["before Grace"]), identity("grace"))),
        ("in the name of another", ref.make(_body(maker, asked), identity("alan"))),
        ("signed as an entry", (body, sign(identity("grace").sign, "roster", body))),
        ("another right than signed", (pack(_body(maker, asked, right=WRITE)), _sign(body))),
    ]


def _malformed(maker: Maker, at: dict[str, int]) -> list[tuple[str, ref.Request]]:
    right = _body(maker, at["asked"])
    whole = pack(right)

    def changed(place: int, value: Any) -> bytes:
        return pack([*right[:place], value, *right[place + 1 :]])

    listed = [
        ("empty", b""),
        ("cut short", whole[:-1]),
        ("a byte too much", whole + b"\x00"),
        ("a part too few", pack(right[:-1])),
        ("a part too many", pack([*right, 0])),
        ("a longer spelling of a number", whole.replace(b"\x98\x01", b"\x98\xcc\x01", 1)),
        ("of format 0", changed(0, 0)),
        ("of a later format", changed(0, 2)),
        ("a dataset that is no id", changed(2, b"bills")),
        ("a right that there is not", changed(4, 3)),
        ("behind entry 0", changed(5, 0)),
        ("a time that is no number", changed(7, "now")),
    ]
    return [(why, (body, _sign(body))) for why, body in listed]


def _sign(body: bytes) -> bytes:
    return sign(identity("grace").sign, "request", body)


def _shown(
    maker: Maker, why: str, after: int, request: ref.Request, now: int = NOW
) -> dict[str, Any]:
    """A request as it is judged behind entry ``after``."""
    roster = Roster(ORGANIZATION)
    roster.extend(maker.entries[:after])
    shown: dict[str, Any] = {
        "why": why,
        "after": after,
        "now": now,
        "body": request[0].hex(),
        "signature": request[1].hex(),
    }
    try:
        return shown | {"fault": ref.fault(roster, request, now)}
    except Refused as refused:
        return shown | {"error": refused.code}
