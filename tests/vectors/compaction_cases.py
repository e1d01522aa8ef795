"""A log in which groups become one while their segment stays (SPEC 7.7.2), and commits that break
it. Rows and pages are not in it: what a commit does to groups and segments follows from its body.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tests.reference import Refused, log
from tests.reference import definitions as defs
from tests.reference.groups import State, follow
from tests.reference.msgpack import pack
from tests.vectors.cases import ORGANIZATION, ROOT, SCHEMA, people_key

DEFINITION = defs.load('{"type":"object","properties":{"n":{"type":"string"}}}')
KEY = people_key()
LEAST = 32


def name(label: str, size: int = 16) -> bytes:
    return hashlib.sha256(f"compactions: {label}".encode()).digest()[:size]


WRITER = name("writer")
A, B, C, D, E, F, G, H, K = (name(f"group {one}") for one in "abcdefghi")
COUNTS = {A: 2, B: 3, C: 1, D: 2, E: 1, F: 5, G: 6, H: 3, K: 9}


def group(uid: bytes, least: int = LEAST, count: int = 0) -> list[Any]:
    stated = [uid, 1, count or COUNTS[uid], [1], [[least, 0]], defs.digest(DEFINITION)]
    return [*stated, name(uid.hex(), 32)]


def segment(label: str, groups: list[bytes], purged: int = 0) -> list[Any]:
    bases, base = [], 0
    for one in groups:
        bases.append([one, base])
        base += COUNTS[one]
    stated = [name(label), "mini", 1, base - purged, purged, bases, 1, name(f"{label} pages", 32)]
    return [*stated, defs.digest(DEFINITION)]


ORDER = ("groups", "segments", "killed", "replaced", "requests", "exact", "ended", "holes")


class Maker:
    def __init__(self) -> None:
        self.commits: list[tuple[bytes, bytes]] = []

    def body(self, text: bytes = b"", **parts: Any) -> bytes:
        """The next commit, that does nothing but ``parts``."""
        version = len(self.commits)
        heads, last = [log.EMPTY_LOG], log.EMPTY_LOG
        for commit in self.commits:
            last = log.commit_digest(*commit)
            heads.append(log.next_log_digest(heads[-1], last))
        own = [parts.pop(one, 0 if one == "exact" else []) for one in ORDER]
        assert not parts
        return pack(
            [
                *(1, name(f"commit {version}"), SCHEMA, KEY.key_id, 1, *log.UNSIGNED),
                *(defs.digest(DEFINITION), text, WRITER, version + 1, last, version, heads[-1]),
                *own,
            ]
        )

    def add(self, **parts: Any) -> None:
        body = self.body(**parts)
        self.commits.append((body, log.commit_mac(KEY.log, body)))

    @property
    def bodies(self) -> list[bytes]:
        return [body for body, _ in self.commits]


def _good() -> Maker:
    made = Maker()
    text = defs.canonical_text(DEFINITION)
    made.add(text=text, groups=[group(A), group(B)], segments=[segment("ab", [A, B])])
    made.add(groups=[group(C)], segments=[segment("c", [C])])
    made.add(groups=[group(D)], segments=[segment("d", [D])])
    # d comes before c in the segment, though not in the log.
    every = [name("ab"), name("d"), name("c")]
    made.add(segments=[segment("abdc", [A, B, D, C])], replaced=every)
    made.add(killed=[[B, [[1, 1]]]])
    made.add(groups=[group(F)], ended=[A, B], holes=[[F, [[3, 1]]]])
    made.add(groups=[group(E)], segments=[segment("e", [E])], killed=[[F, [[0, 1]]]])
    made.add(segments=[segment("fcde", [F, C, D, E], 2)], replaced=[name("abdc"), name("e")])
    made.add(groups=[group(G)], ended=[F, C], holes=[[G, [[0, 1]]]], killed=[[G, [[3, 1]]]])
    made.add(groups=[group(H)], ended=[D, E])
    made.add(groups=[group(K)], ended=[G, H], holes=[[K, [[0, 1], [3, 1]]]])
    made.add(segments=[segment("i", [K], 2)], replaced=[name("fcde")])
    return made


def compactions() -> dict[str, Any]:
    made = _good()
    states = follow(made.bodies)
    digest, shown = log.EMPTY_LOG, []
    for (body, mac), state in zip(made.commits, states, strict=True):
        digest = log.next_log_digest(digest, log.commit_digest(body, mac))
        shown.append(
            {"digest": digest.hex(), **_state(state), "body": body.hex(), "mac": mac.hex()}
        )
    return {
        "organization": ORGANIZATION.hex(),
        "schema": SCHEMA.hex(),
        "root": ROOT.hex(),
        "good": shown,
        "bad": [_bad(made, *one) for one in _wrong()],
    }


def _state(state: State) -> dict[str, Any]:
    return {
        "groups": [uid.hex() for uid in state.groups],
        "dead": {uid.hex(): sorted(rows) for uid, rows in state.dead.items()},
        "segments": {
            uid.hex(): [[one.hex(), base] for one, base in places]
            for uid, places in state.segments.items()
        },
    }


def _bad(made: Maker, why: str, after: int, parts: dict[str, Any]) -> dict[str, Any]:
    before = Maker()
    before.commits = made.commits[:after]
    body = before.body(**parts)
    try:
        follow([*before.bodies, body])
    except Refused as refused:
        mac = log.commit_mac(KEY.log, body)
        error = {"why": why, "after": after, "error": refused.code}
        return {**error, "body": body.hex(), "mac": mac.hex()}
    raise AssertionError(why)


def _wrong() -> list[tuple[str, int, dict[str, Any]]]:
    """Why, how many commits come before, and what the commit does."""
    ends = {"ended": [A, B], "holes": [[F, [[3, 1]]]]}
    honest = {"groups": [group(F)], **ends}
    halves = [group(F, count=2), group(G, count=3)]
    over_d = {"ended": [B, C], "holes": [[F, [[1, 1]]]]}
    text = defs.canonical_text(DEFINITION)
    return [
        ("it adds a segment", 5, {**honest, "segments": [segment("f", [F], 1)]}),
        ("it says that nothing was added", 5, {**honest, "exact": 1}),
        ("it brings a definition", 5, {**honest, "text": text}),
        ("it adds two groups", 5, {"groups": halves, "ended": [A, B], "holes": [[G, [[1, 1]]]]}),
        ("it adds no group", 5, {"ended": [A, B]}),
        ("it stores a request", 5, {**honest, "requests": [name("request")]}),
        ("its groups are of two segments", 2, {"groups": [group(F, count=4)], "ended": [B, C]}),
        (
            "its groups are no neighbours in the segment",
            5,
            {"groups": [group(F, count=4)], **over_d},
        ),
        (
            "its groups are no neighbours in the log",
            5,
            {"groups": [group(F)], "ended": [B, D], "holes": [[F, [[1, 1]]]]},
        ),
        ("its groups are out of order", 5, {**honest, "ended": [B, A]}),
        ("a group that it ends has ended", 6, {**honest}),
        ("a dead row lives again", 5, {"groups": [group(F)], "ended": [A, B]}),
        ("a live row is a hole", 5, {**honest, "holes": [[F, [[2, 2]]]]}),
        ("a class is lower", 5, {"groups": [group(F, 16)], **ends}),
        ("a row of an ended group dies", 6, {"killed": [[A, [[0, 1]]]]}),
        (
            "a merge names the groups of before",
            6,
            {"segments": [segment("abcd", [A, B, D, C])], "replaced": [name("abdc")]},
        ),
    ]
