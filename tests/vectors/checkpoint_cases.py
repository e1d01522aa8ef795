"""Checkpoints of a log of signed commits, and some that do not count."""

from __future__ import annotations

from typing import Any

from tests.reference import Refused, log
from tests.reference import checkpoint as ref
from tests.reference import definitions as defs
from tests.reference.checkpoint import Checkpoint
from tests.reference.identity import schema, sign
from tests.reference.keys import mac
from tests.reference.msgpack import pack, unpack
from tests.reference.signed_log import Commit, follow
from tests.vectors.commit_cases import DEFINITION, EPOCHS, REMOVED, TOGETHER, WRITER, make_roster
from tests.vectors.roster_cases import Maker
from tests.vectors.sharing_people import (
    ADULTS,
    MEMBERS,
    NOW,
    ORGANIZATION,
    PEOPLE,
    fixed,
    identity,
    root,
    uid,
)

#: Entry of the roster's end, with the second epoch.
NEWEST = TOGETHER + 2
MOMENT = 1_790_000_000_000
SINCE = MOMENT - 7 * ref.DAY
A, B, D = uid(80), uid(81), uid(82)
#: A number's least class.
CLASSES = [[8, 1]]


def _id(number: int, days: int = 0) -> bytes:
    """An id with a time in it."""
    return (MOMENT + days * ref.DAY + number).to_bytes(6, "big") + uid(90 + number)[6:]


def _group(name: bytes, epoch: int, count: int) -> list[Any]:
    digest = defs.digest(DEFINITION)
    return [name, epoch, count, [1], CLASSES, digest, fixed(f"rows {name.hex()}")]


def _segment(name: bytes, epoch: int, count: int, purged: int, *groups: Any) -> list[Any]:
    digest = fixed(f"pages {name.hex()}")
    return [name, "mini", epoch, count, purged, list(groups), 1, digest, defs.digest(DEFINITION)]


def _changes() -> list[list[Any]]:
    """Groups, segments, killed, replaced, requests and exact of each commit."""
    first, second, third, fourth = (uid(83 + at) for at in range(4))
    return [
        [[_group(A, 1, 3)], [_segment(first, 1, 3, 0, [A, 0])], [], [], [_id(9, -30)], 0],
        [
            [_group(B, 1, 2)],
            [_segment(second, 1, 2, 0, [B, 0])],
            [[A, [[0, 2]]]],
            [],
            [_id(8), _id(7)],
            0,
        ],
        [[], [_segment(third, 2, 3, 2, [A, 0], [B, 3])], [], [first, second], [], 0],
        [[_group(D, 2, 1)], [_segment(fourth, 2, 1, 0, [D, 0])], [[B, [[1, 1]]]], [], [], 0],
    ]


def _commits(maker: Maker) -> list[Commit]:
    made: list[Commit] = []
    for at, changes in enumerate(_changes()):
        number = TOGETHER if at < 2 else NEWEST
        epoch = 1 if number <= REMOVED else 2
        keys = schema(EPOCHS[epoch - 1], ORGANIZATION, ADULTS, epoch)
        heads = ref.digests_of(made)
        digests = [log.commit_digest(body, hmac) for body, hmac, _ in made]
        body = pack(
            [
                *(1, _id(at), ADULTS, keys.key_id, epoch, number, maker.roster.digests[number]),
                *(MEMBERS["ada"], defs.digest(DEFINITION)),
                b"" if made else defs.canonical_text(DEFINITION),
                *(WRITER, at + 1, digests[-1] if digests else log.EMPTY_LOG),
                *(at, heads[-1], *changes, [], []),
            ]
        )
        hmac = log.commit_mac(keys.log, body)
        signed = sign(identity("ada").sign, "commit", log.commit_digest(body, hmac))
        made.append((body, hmac, signed))
    return made


def checkpoint(maker: Maker, found: list[Commit], name: str = "ada", **changes: Any) -> Checkpoint:
    """What a member signs of the log."""
    signer, kind = changes.pop("signer", name), changes.pop("kind", "checkpoint")
    epoch, number = changes.pop("epoch", 2), changes.pop("roster", NEWEST)
    since = changes.pop("since", SINCE)
    keys = schema(EPOCHS[epoch - 1], ORGANIZATION, changes.pop("schema", ADULTS), epoch)
    ends = ref.ends_at(maker.entries, ADULTS, number, len(found))
    state = changes.pop("state", None)
    packed = ref.state_of(found, ends, since)
    if state is not None:
        packed = state(packed)
    body = pack(
        [
            *(1, keys.schema, keys.key_id, epoch, number),
            changes.pop("roster_digest", maker.roster.digests[number]),
            MEMBERS[name],
            *(len(found), changes.pop("digest", ref.digests_of(found)[-1]), packed),
        ]
    )
    assert not changes
    hmac = mac(keys.checkpoint, body)
    return body, hmac, sign(identity(signer).sign, kind, ref.digest_of(body, hmac))


def checkpoints() -> dict[str, Any]:
    early = _commits(make_roster(bytes(32)))[:2]
    maker = make_roster(ref.digests_of(early)[2])
    found = _commits(maker)
    follow(maker.entries, ORGANIZATION, ADULTS, EPOCHS, found)
    good = [checkpoint(maker, found), checkpoint(maker, found[:3]), checkpoint(maker, found[:2])]
    return {
        "organization": ORGANIZATION.hex(),
        "schema": ADULTS.hex(),
        "dataset": PEOPLE.hex(),
        "member": MEMBERS["ada"].hex(),
        "root": root("ada").hex(),
        "kv": 1,
        "keys": [key.hex() for key in EPOCHS],
        "entries": maker.listed,
        "now": now(),
        "requests_since": SINCE,
        "log": [_shown(one) for one in found],
        "good": [_shown(one, K_checkpoint=_key().hex()) for one in good],
        "bad": [_bad(maker, why, one) for why, one in _wrong(maker, found)],
    }


def _key() -> bytes:
    return schema(EPOCHS[1], ORGANIZATION, ADULTS, 2).checkpoint


def now() -> int:
    return max(NOW * 1000, MOMENT + ref.DAY)


def _shown(one: Commit, **more: Any) -> dict[str, Any]:
    names = ("body", "mac", "signature")
    return {**more, **{name: part.hex() for name, part in zip(names, one, strict=True)}}


def _without_segments(packed: bytes) -> bytes:
    members = unpack(packed)
    members[17] = members[17][:-1]
    return pack(members)


def _wrong(maker: Maker, found: list[Commit]) -> list[tuple[str, Checkpoint]]:
    def one(why: str, **changes: Any) -> tuple[str, Checkpoint]:
        return why, checkpoint(maker, found, **changes)

    body, hmac, signature = checkpoint(maker, found)
    return [
        one("a reader's", name="grace"),
        one("of a writer who was removed", name="alan"),
        one("of a removed writer, dated back", name="alan", roster=TOGETHER),
        ("of the epoch before", checkpoint(maker, found[:2], epoch=1, roster=TOGETHER)),
        one("signed by another member", signer="grace"),
        one("signed as a commit", kind="commit"),
        ("without a signature", (body, hmac, b"")),
        ("with another HMAC", (body, bytes(32), signature)),
        ("cut short", (body[:-1], hmac, signature)),
        ("altered", (body[:-1] + bytes([body[-1] ^ 1]), hmac, signature)),
        one("of another schema", schema=uid(99)),
        one("of another roster", roster_digest=bytes(32)),
        one("of another digest", digest=bytes(32)),
        one("with a part of its state", state=lambda packed: packed[:-1]),
        one("with a group that no segment covers", state=_without_segments),
        one("that names too few requests", since=now() - ref.DAY),
    ]


def _bad(maker: Maker, why: str, one: Checkpoint) -> dict[str, Any]:
    keys = schema(EPOCHS[1], ORGANIZATION, ADULTS, 2)
    try:
        ref.read(maker.entries, keys, now(), one)
    except Refused as error:
        return _shown(one, why=why, error=error.code)
    raise AssertionError(f"the reference takes a checkpoint {why}")
