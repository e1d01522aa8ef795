"""A log of signed commits behind a roster of its own, and commits that do not count."""

from __future__ import annotations

from typing import Any

from tests.reference import Refused, log
from tests.reference import definitions as defs
from tests.reference.identity import schema, sign
from tests.reference.msgpack import pack
from tests.reference.signed_log import Commit, follow
from tests.vectors.roster_cases import (
    DATASET,
    FORGET,
    FOUND,
    INVITE,
    MEMBER,
    PLACE,
    REMOVE,
    Maker,
    commitment,
    dataset_key,
    standing,
)
from tests.vectors.sharing_people import (
    ADULTS,
    FIRST,
    MEMBERS,
    NOW,
    ORGANIZATION,
    PEOPLE,
    SECOND,
    fixed,
    identity,
    root,
    uid,
)

_TEXT = '{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":%d}}}'
DEFINITION, OTHER = defs.load(_TEXT % 9), defs.load(_TEXT % 99)
WRITER = uid(64)
EPOCHS = [dataset_key(1), dataset_key(2)]
#: Entries at which everybody is there, and after Alan was removed.
TOGETHER, REMOVED = 7, 8


def make_roster(head: bytes, *, later: bool = False) -> Maker:
    """
    Args:
        head: the log's digest where the second epoch begins, behind its second commit.
        later: whether an entry of its own says that, behind the one with which the epoch begins.
    """
    maker = Maker()
    put = maker.put
    keys = identity("ada").keys
    put("an organization begins", "ada", FOUND, [keys, "ada@example.org", fixed("nonce")])
    people = [PEOPLE, "people", "People"]
    put("a dataset with its first key", "ada", DATASET, [*people, 1, commitment(1), []])
    placed = [[ADULTS, PEOPLE, "adults", "Adults", defs.digest(DEFINITION)]]
    put("a schema is placed", "ada", PLACE, placed)
    for name, invitation, right in (("grace", FIRST, 2), ("alan", SECOND, 1)):
        shares = [[PEOPLE, right, []]]
        invite = maker.invite(invitation, name, shares, NOW + 100)
        put(f"{name} is invited", "ada", INVITE, invite)
        stated = standing(name, maker.shown(name), shares, invitation=invitation)
        put(f"{name} is admitted", "ada", MEMBER, stated)
    put("alan is removed", "ada", REMOVE, [MEMBERS["alan"]])
    ends = [[ADULTS, 2, head]]
    begun = [*people, 2, commitment(2)]
    put("the second epoch", "ada", DATASET, [*begun, [] if later else ends])
    if later:
        put("where the log ended with it", "ada", DATASET, [*begun, ends])
    return maker


def commit(maker: Maker, before: list[Commit], name: str, number: int, **changes: Any) -> Commit:
    """The next commit, by the roster at an entry."""
    epoch = changes.pop("key_version", 1 if number <= REMOVED else 2)
    signer = changes.pop("signer", name)
    kind = changes.pop("kind", "commit")
    definition = changes.pop("definition", DEFINITION)
    keys = schema(EPOCHS[epoch - 1], ORGANIZATION, ADULTS, epoch)
    digests = [log.commit_digest(body, hmac) for body, hmac, _ in before]
    heads = [log.EMPTY_LOG]
    for digest in digests:
        heads.append(log.next_log_digest(heads[-1], digest))
    stated = changes.pop("roster_digest", maker.roster.digests[number])
    assert not changes
    body = pack(
        [
            *(1, uid(70 + len(before)), ADULTS, keys.key_id, epoch, number, stated),
            *(MEMBERS[name], defs.digest(definition)),
            b"" if before else defs.canonical_text(definition),
            *(WRITER, len(before) + 1, digests[-1] if digests else log.EMPTY_LOG),
            *(len(before), heads[-1], [], [], [], [], [], 0, [], []),
        ]
    )
    hmac = log.commit_mac(keys.log, body)
    signature = sign(identity(signer).sign, kind, log.commit_digest(body, hmac))
    return body, hmac, signature


def commits() -> dict[str, Any]:
    before = make_roster(bytes(32))
    first = commit(before, [], "ada", TOGETHER)
    second = commit(before, [first], "alan", TOGETHER)
    head = log.EMPTY_LOG
    for body, hmac, _ in (first, second):
        head = log.next_log_digest(head, log.commit_digest(body, hmac))
    maker = make_roster(head)
    good = [first, second]
    good.append(commit(maker, good, "ada", TOGETHER + 2))
    digests = _follow(maker, good)
    return {
        "organization": ORGANIZATION.hex(),
        "schema": ADULTS.hex(),
        "dataset": PEOPLE.hex(),
        "member": MEMBERS["ada"].hex(),
        "root": root("ada").hex(),
        "kv": 1,
        "keys": [key.hex() for key in EPOCHS],
        "entries": maker.listed,
        "good": [
            _shown(one, digest=digest.hex()) for one, digest in zip(good, digests[1:], strict=True)
        ],
        "bad": [_bad(maker, good, *one) for one in _wrong(maker, good)],
        "forgotten": _forgotten(make_roster(head), good),
        "open": _open(make_roster(head, later=True), good[:2]),
    }


def _open(maker: Maker, before: list[Commit]) -> dict[str, Any]:
    """A log that its second epoch did not end at once: a removed member's commit counts until the
    last entry, which ends it behind the two commits before, and does not count from then on."""
    backdated = commit(maker, before, "alan", TOGETHER)
    left = make_roster(log.EMPTY_LOG, later=True)
    left.entries.pop()
    assert _follow(left, [*before, backdated])
    good = [*before, commit(maker, before, "ada", TOGETHER + 2)]
    digest = _follow(maker, good)[-1]
    why = "of a removed member, behind an end that came later"
    return {
        "entries": maker.listed,
        "good": _shown(good[-1], digest=digest.hex()),
        "bad": _bad(maker, before, why, len(before), backdated),
    }


def _forgotten(maker: Maker, good: list[Commit]) -> dict[str, Any]:
    """The same log behind one more entry, by which the first epoch is forgotten: to be read with
    the second key alone, and not taken where it ends before that."""
    maker.put("the first epoch is forgotten", "ada", FORGET, [PEOPLE, 2])
    unproven = [(body, bytes(32), signature) for body, _, signature in good[:1]]
    cut = [
        _bad(maker, good[:count], "that is the last", count - 1, good[count - 1], forgotten=1)
        for count in (1, 2)
    ]
    wrong = _bad(
        maker, [], "with another HMAC, which its signature covers", 0, unproven[0], forgotten=1
    )
    assert _follow(maker, good, forgotten=1)
    return {"entry": maker.listed[-1], "bad": [*cut, wrong]}


def _shown(one: Commit, **more: Any) -> dict[str, Any]:
    names = ("body", "mac", "signature")
    return {**more, **{name: part.hex() for name, part in zip(names, one, strict=True)}}


def _follow(maker: Maker, found: list[Commit], forgotten: int = 0) -> list[bytes]:
    keys = [b"" if at < forgotten else key for at, key in enumerate(EPOCHS)]
    return follow(maker.entries, ORGANIZATION, ADULTS, keys, found)


def _wrong(maker: Maker, good: list[Commit]) -> list[tuple[str, int, Commit]]:
    """Why, how many commits come before, and the commit."""

    def one(
        why: str, after: int, name: str, number: int, **changes: Any
    ) -> tuple[str, int, Commit]:
        return why, after, commit(maker, good[:after], name, number, **changes)

    now = TOGETHER + 2
    return [
        one("a reader's", 0, "grace", TOGETHER),
        one("of somebody who never joined", 0, "mallory", TOGETHER),
        one("signed by another member", 1, "alan", TOGETHER, signer="ada"),
        one("signed as something else", 1, "alan", TOGETHER, kind="checkpoint"),
        ("without a signature", 1, (*good[1][:2], b"")),
        ("with another HMAC", 1, (good[1][0], bytes(32), good[1][2])),
        one("of a member who was removed", 1, "alan", REMOVED),
        one("of a removed member, backdated behind the end of the epoch", 2, "alan", TOGETHER),
        one("of an owner, under the key that ended", 2, "ada", REMOVED),
        one("of an epoch that its roster does not have", 2, "ada", TOGETHER, key_version=2),
        one("under an older key than its roster has", 2, "ada", now, key_version=1),
        one("of the next epoch before the last one ended", 1, "ada", now),
        one("by an older roster than the commit before", 1, "ada", TOGETHER - 1),
        one("of another roster", 1, "ada", TOGETHER, roster_digest=bytes(32)),
        one("of no roster", 1, "ada", 0),
        one("before the schema was placed", 0, "ada", 2),
        one("with another definition than was placed", 0, "ada", TOGETHER, definition=OTHER),
        one("in place of the one at which the epoch ended", 1, "ada", TOGETHER),
    ]


def _bad(
    maker: Maker, good: list[Commit], why: str, after: int, found: Commit, forgotten: int = 0
) -> dict[str, Any]:
    try:
        _follow(maker, [*good[:after], found], forgotten)
    except Refused as error:
        return _shown(found, why=why, after=after, error=error.code)
    raise AssertionError(f"the reference takes a commit {why}")
