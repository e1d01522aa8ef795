"""Section 7.9: what a log adds up to, naively, and whose word for it counts.

Of logs in which only rows and segments end: no reseals, and no groups that stand for others.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tests.reference import Refused
from tests.reference.definitions import u32
from tests.reference.identity import is_signed
from tests.reference.keys import Schema, mac
from tests.reference.log import commit_digest, next_log_digest
from tests.reference.msgpack import pack, unpack
from tests.reference.roster import ALL, Entry, Roster
from tests.reference.signed_log import Commit, ends_of

#: body, HMAC and signature
Checkpoint = tuple[bytes, bytes, bytes]
BEHIND = 20_000
DAY = 86_400_000
MEMBERS = 23


def u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def moment(identifier: bytes) -> int:
    return int.from_bytes(identifier[:6], "big")


def digests_of(log: list[Commit]) -> list[bytes]:
    digests = [bytes(32)]
    for body, hmac, _ in log:
        digests.append(next_log_digest(digests[-1], commit_digest(body, hmac)))
    return digests


def state_of(log: list[Commit], ends: list[list[Any]], since: int) -> bytes:
    """What the commits add up to."""
    groups: list[list[Any]] = []
    segments: list[list[Any]] = []
    dead: dict[bytes, set[int]] = {}
    deaths: dict[bytes, list[list[int]]] = {}
    writers: dict[bytes, bytes] = {}
    epochs: list[list[int]] = []
    keys: list[list[Any]] = []
    definitions: list[bytes] = []
    requests: list[bytes] = []
    stored: dict[int, int] = {}
    named = defined_at = added_at = last = 0
    for version, (encoded, hmac, _) in enumerate(log, 1):
        body = unpack(encoded)
        identifier, _, key_id, kv, named = body[1:6]
        text, writer, counter = body[9:12]
        added, indexed, killed, replaced, stated = body[15:20]
        if not epochs or epochs[-1][1] != kv:
            epochs.append([version, kv])
            keys.append([kv, key_id])
        if text:
            definitions, defined_at = [text], version
        writers[writer] = u64(counter) + commit_digest(encoded, hmac)
        requests += [one for one in stated if moment(one) >= since]
        groups += added
        segments = [segment for segment in segments if segment[0] not in replaced] + indexed
        for uid, runs in killed:
            rows = {at for first, count in runs for at in range(first, first + count)}
            dead[uid] = dead.get(uid, set()) | rows
            deaths.setdefault(uid, []).append([moment(identifier), len(rows)])
        if added:
            added_at = version
            day = moment(identifier) // DAY
            stored[day] = stored.get(day, 0) + sum(one[2] for one in added)
        if added or killed:
            last = max(last, moment(identifier))
    shapes: list[list[Any]] = []
    for group in groups:
        if group[3:6] not in shapes:
            shapes.append(group[3:6])
    ended = [group[0] for group in groups if group[0] in dead]
    digests = digests_of(log)[max(0, len(log) - BEHIND) :]
    columns = [
        b"".join(group[0] for group in groups),
        b"".join(u32(group[1]) for group in groups),
        b"".join(u32(group[2]) for group in groups),
        b"".join(u32(shapes.index(group[3:6])) for group in groups),
        b"".join(group[6] for group in groups),
    ]
    return pack(
        [
            *(b"".join(digests), ends, keys[0], keys[-1], epochs[-1][0], epochs),
            *(definitions, [hashlib.sha256(definitions[-1]).digest()], defined_at, [0, 0, []]),
            *(named, b"".join(uid + writers[uid] for uid in sorted(writers))),
            *(since, b"".join(sorted(requests)), added_at, shapes, columns, segments),
            [[uid, _runs(dead[uid])] for uid in ended],
            [[uid, deaths[uid]] for uid in ended],
            *([[day, stored[day]] for day in sorted(stored)], last, []),
        ]
    )


def _runs(rows: set[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for at in sorted(rows):
        if runs and sum(runs[-1]) == at:
            runs[-1][1] += 1
        else:
            runs.append([at, 1])
    return runs


def digest_of(body: bytes, hmac: bytes) -> bytes:
    return hashlib.sha256(body + hmac).digest()


def ends_at(entries: list[Entry], schema: bytes, number: int, version: int) -> list[list[Any]]:
    """Where the roster says, up to an entry, that the log stood."""
    roster = Roster(unpack(entries[0][0])[1])
    roster.extend(entries)
    found = ends_of(entries[:number], roster.voids[:number], schema)
    every = {at: digest.to_bytes(32, "big") for _, at, digest in found if at <= version}
    return [[at, every[at]] for at in sorted(every)]


def read(entries: list[Entry], keys: Schema, now: int, checkpoint: Checkpoint) -> list[Any]:
    """The members of the state, of a checkpoint that is to be taken.

    Args:
        keys: the schema's, of the newest epoch.
        now: in milliseconds since 1970.
    """
    broken = Refused("checkpoint_broken")
    encoded, hmac, signature = checkpoint
    roster = Roster(keys.organization)
    roster.extend(entries)
    try:
        body = unpack(encoded)
        version_of_form, schema, key_id, kv, number, stated, member, version, digest, packed = body
        state = unpack(packed)
    except Exception:
        raise broken from None
    if version_of_form != 1 or schema != keys.schema or len(state) != MEMBERS:
        raise broken
    if (kv, key_id) != (keys.kv, keys.key_id) or mac(keys.checkpoint, encoded) != hmac:
        raise broken
    if number >= len(roster.digests) or roster.digests[number] != stated:
        raise broken
    present = roster.states[-1]
    writes = present.may(member, present.schemas[schema][0], write=True)
    if writes != ALL and schema not in writes:
        raise broken
    key = present.members[member]["keys"][1:33]
    if not is_signed(key, "checkpoint", digest_of(encoded, hmac), signature):
        raise broken
    digests, ends = state[0], state[1]
    if len(digests) != 32 * (min(version, BEHIND) + 1) or digests[-32:] != digest:
        raise broken
    if ends != ends_at(entries, schema, number, version) or state[22]:
        raise broken
    if state[12] > now - 2 * DAY:
        raise broken
    covered = [uid for segment in state[17] for uid, _ in segment[5]]
    uids = state[16][0]
    if sorted(covered) != sorted(uids[at : at + 16] for at in range(0, len(uids), 16)):
        raise broken
    return list(state)
