"""The effects of all commits between a version and a snapshot.

Those of the newest commits are in memory. Earlier commits are asked of the API once more: they are
the ones that were verified if they lead from one of the log's digests to another.
"""

from __future__ import annotations

from collections.abc import Sequence

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.errors import LogBroken
from encrypted_records.index.log.effects import Effects, GroupUnknown, Replay, stored_before
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import EMPTY_DIGEST
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model import wire
from encrypted_records.model.records import LogEntry
from encrypted_records.proxy.feed.cursor import start_again
from encrypted_records.proxy.keyrings.holder import Holder

#: Commits that are read again for a consumer; one that is further behind lists all records sooner.
MOST_COMMITS = 20_000


async def read_effects(
    api: Api, caller: Holder, ledger: Ledger, snapshot: Snapshot, since: int
) -> list[Effects]:
    """The effects of the commits after ``since``, up to the snapshot.

    Raises:
        Gone: ``start_again``; they are too many, or end rows of which nothing says what they were.
        LogBroken: the API hands out other commits than those that were verified.
        ErsError: as :meth:`Api.manifest`.
    """
    recent = ledger.effects_since(since)
    if recent is not None:
        return [effects for effects in recent if effects.version <= snapshot.version]
    digest = ledger.digest_at(since)
    passed = range(since, snapshot.version)
    if digest is None or len(passed) > MOST_COMMITS or not all(map(ledger.digest_at, passed)):
        raise start_again("it is too old")
    entries = await _fetch(api, caller, ledger, snapshot, since, digest)
    try:
        return await runtime.in_thread(_replay, entries, snapshot)
    except GroupUnknown:
        pass
    if snapshot.version > MOST_COMMITS:
        raise start_again("it is too old")
    entries = await _fetch(api, caller, ledger, snapshot, 0, EMPTY_DIGEST)
    try:
        every = await runtime.in_thread(_replay, entries, snapshot)
    except GroupUnknown:
        raise start_again("records were deleted that can no longer be named") from None
    return [effects for effects in every if effects.version > since]


async def _fetch(
    api: Api, caller: Holder, ledger: Ledger, snapshot: Snapshot, since: int, digest: bytes
) -> list[LogEntry]:
    deltas = await api.manifest(ledger.keys.schema, since, caller.auth)
    entries = [entry for delta in deltas for entry in delta.entries]
    entries = [entry for entry in entries if entry.version <= snapshot.version]
    if [entry.version for entry in entries] != list(range(since + 1, snapshot.version + 1)):
        raise LogBroken("the log has a gap")
    reached = await runtime.in_thread(_digest_after, digest, entries)
    if reached != ledger.digest_at(snapshot.version):
        raise LogBroken("the API returns other commits than those that were verified")
    return entries


def _digest_after(digest: bytes, entries: Sequence[LogEntry]) -> bytes:
    for entry in entries:
        digest = wire.next_log_digest(digest, entry.commit)
    return digest


def _replay(entries: Sequence[LogEntry], snapshot: Snapshot) -> list[Effects]:
    """
    Raises:
        GroupUnknown: as :meth:`Replay.follow`.
    """
    bodies = [wire.decode_commit_body(entry.commit) for entry in entries]
    replay = Replay(snapshot, stored_before(snapshot, bodies))
    return [replay.follow(body, entry.version) for body, entry in zip(bodies, entries, strict=True)]
