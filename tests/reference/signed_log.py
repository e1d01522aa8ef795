"""Section 7.5.1: whose commits count, by the roster. What commits do to data is not looked at."""

from __future__ import annotations

from tests.reference import Refused
from tests.reference.identity import is_signed, schema
from tests.reference.log import commit_digest, commit_mac, next_log_digest
from tests.reference.msgpack import unpack
from tests.reference.roster import ALL, Entry, Roster

#: body, HMAC and signature
Commit = tuple[bytes, bytes, bytes]
DATASET = 5


def ends_of(entries: list[Entry], voids: list[str | None], wanted: bytes) -> list[tuple[int, ...]]:
    """Epoch, version and digest (as a number) wherever an entry says where the log stood."""
    found: list[tuple[int, ...]] = []
    for (body, _signature, _openings), void in zip(entries, voids, strict=True):
        *_, kind, content = unpack(body)
        if void is None and kind == DATASET:
            found += [
                (content[2], version, int.from_bytes(digest, "big"))
                for of, version, digest in content[4]
                if of == wanted
            ]
    return found


def follow(
    entries: list[Entry], organization: bytes, wanted: bytes, keys: list[bytes], log: list[Commit]
) -> list[bytes]:
    """The log's digest at each version.

    Args:
        keys: the dataset's, by epoch from 1 on; those that were forgotten are not looked at.
    """
    roster = Roster(organization)
    roster.extend(entries)
    ends = ends_of(entries, roster.voids, wanted)
    digests, before, oldest, epoch = [bytes(32)], 0, 1, 1
    broken = Refused("log_broken")
    for version, (body, hmac, signature) in enumerate(log, 1):
        parts = unpack(body)
        epoch, number, roster_digest, member, definition = parts[4:9]
        if number < before or number >= len(roster.digests):
            raise broken
        if roster.digests[number] != roster_digest:
            raise broken
        before, state = number, roster.states[number]
        placed = state.schemas.get(wanted)
        if placed is None:
            raise broken
        dataset = placed[0]
        oldest = roster.states[-1].forgotten.get(dataset, (1, 0))[0]
        writes = state.may(member, dataset, write=True)
        if writes != ALL and wanted not in writes:
            raise broken
        digest = commit_digest(body, hmac)
        if not is_signed(state.members[member]["keys"][1:33], "commit", digest, signature):
            raise broken
        if epoch != len(state.epochs[dataset]):
            raise broken
        if version == 1 and definition != placed[3]:
            raise broken
        digests.append(next_log_digest(digests[-1], digest))
        for began, at, named in ends:
            if (version <= at) != (epoch < began):
                raise broken
            if version == at and digests[-1] != named.to_bytes(32, "big"):
                raise broken
        if epoch < oldest:
            continue
        if commit_mac(schema(keys[epoch - 1], organization, wanted, epoch).log, body) != hmac:
            raise broken
    if log and epoch < oldest:
        raise broken
    return digests
