"""What a proxy's ledger costs at sizes that nobody stores for a benchmark: commits without records.

Rows, pages and headers are left out; all that a ledger looks at is there, authenticated: groups,
segments, merges and compactions, as jobs and direct ingests leave them. Printed is

- of a log of ``--groups`` groups in ``--segments`` segments, as jobs leave it: how long a new proxy
  takes to verify it, to go on from what it kept, and what the view behind one commit more costs
  (where segments lie, what to merge, and which groups to make one of);
- of ``--ingests`` ingests of one record each, merged and compacted as a proxy does it: how many
  groups and segments there are at most, how often a row is sealed again, what an ingest costs of
  the ledger in the first and in the last fifth, how long the log takes to verify, and how large a
  checkpoint of it is and how long a new proxy takes to begin with it.

All times are of the processor, which other work on the machine disturbs least.

    .venv/bin/python -m bench.synthetic_ledger --ingests 100000
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from bench.support.table import Row, show
from encrypted_records.crypto.keys import Keyring, SchemaKeys
from encrypted_records.index.log import checkpoint, ledger_state
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.segments.merge_policy import Crowds, worth_merging
from encrypted_records.model.ciphertext_lengths import NUMBER_CLASS
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import (
    MAX_MINI_RECORDS,
    CommitUpload,
    Group,
    LogEntry,
    ManifestDelta,
    Segment,
)

T = TypeVar("T")
DEFINITION = parse_definition(
    b'{"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}}'
)
ROWS_OF_A_CHUNK = 39_321


class Log:
    """A log, and the ledger of who writes it."""

    def __init__(self) -> None:
        self.keys: SchemaKeys = Keyring.generate().schema(new_id(), new_id())
        self.ledger = Ledger(self.keys, new_id())
        self.entries: list[LogEntry] = []

    def add(self, upload: CommitUpload) -> None:
        entry = LogEntry(len(self.entries) + 1, upload.commit)
        self.ledger.extend(self.delta([entry]))
        self.entries.append(entry)

    def delta(self, entries: Sequence[LogEntry]) -> ManifestDelta:
        version = entries[-1].version
        digest = DEFINITION.digest
        return ManifestDelta(self.keys.schema, version, None, digest, list(entries), [])

    def replay(self) -> Ledger:
        ledger = Ledger(self.keys, new_id())
        ledger.extend(self.delta(self.entries))
        return ledger

    @property
    def bytes(self) -> int:
        return sum(len(entry.commit.body) for entry in self.entries)


def group(count: int) -> Group:
    fields, uid, rows = DEFINITION.ids, os.urandom(16), os.urandom(32)
    return Group(uid, 1, count, fields, [NUMBER_CLASS], DEFINITION.digest, rows)


def segment(groups: Sequence[tuple[bytes, int]], count: int) -> Segment:
    """Over groups with their bases."""
    form = "mini" if count <= MAX_MINI_RECORDS else "paged"
    pages = 1 if form == "mini" else -(-count // 1024)
    named = [(uid, base) for uid, base in groups]
    stated = (os.urandom(16), form, 1, count, 0, named, pages, os.urandom(32))
    return Segment(*stated, DEFINITION.digest)  # type: ignore[arg-type]


def store(log: Log, counts: Sequence[int]) -> None:
    """One commit of groups of so many rows, in one segment."""
    groups = [group(count) for count in counts]
    laid, base = [], 0
    for one in groups:
        laid.append((one.uid, base))
        base += one.count
    log.add(log.ledger.draft(DEFINITION, groups=groups, segments=[segment(laid, base)]))


def merge(log: Log, chosen: Sequence[Segment], snapshot: Snapshot) -> None:
    laid, base = [], 0
    for one in chosen:
        laid += [(uid, base + at) for uid, at in snapshot.groups_of(one)]
        base += one.count
    replaced = [one.uid for one in chosen]
    log.add(log.ledger.draft(DEFINITION, segments=[segment(laid, base)], replaced=replaced))


def jobs(groups: int, segments: int) -> list[Row]:
    log = Log()
    for at in range(segments):
        own = groups * (at + 1) // segments - groups * at // segments
        store(log, [ROWS_OF_A_CHUNK] * own)
    ledger, verified = timed(log.replay)
    kept = ledger.state().encode()
    _, restored = timed(lambda: Ledger.restore(log.keys, new_id(), ledger_state.decode(kept)))
    crowds = Crowds()
    look(ledger.snapshot(), crowds)
    store(log, [1])
    ledger.extend(log.delta(log.entries[-1:]))
    _, viewed = timed(lambda: look(ledger.snapshot(), crowds))
    return [
        Row("groups, segments", f"{groups:,}, {segments:,}"),
        Row("log", f"{log.bytes / 1e6:.1f} MB"),
        Row("verified from its beginning", f"{verified:.2f} s"),
        Row("kept", f"{len(kept) / 1e6:.1f} MB, read in {restored:.2f} s"),
        Row("view behind one commit more", f"{1000 * viewed:.1f} ms"),
    ]


def look(snapshot: Snapshot, crowds: Crowds) -> None:
    """What is asked of a view after a commit, and by a question."""
    for one in snapshot.segments:
        snapshot.places(one)
        snapshot.dead_rows(one)
    worth_merging(snapshot, now=time.time_ns() // 1_000_000)
    crowds.find(snapshot)


def ingests(count: int) -> list[Row]:
    log, crowds = Log(), Crowds()
    sealed = most_groups = most_segments = 0
    parts = [0.0] * 5
    for at in range(count):
        began = time.process_time()
        store(log, [1])
        sealed += settle(log, crowds)
        parts[5 * at // count] += time.process_time() - began
        snapshot = log.ledger.snapshot()
        most_groups = max(most_groups, len(snapshot.groups))
        most_segments = max(most_segments, len(snapshot.segments))
    ledger, verified = timed(log.replay)
    assert ledger.snapshot().count == count
    each = [1e6 * spent * 5 / count for spent in (parts[0], parts[-1])]
    return [
        Row("ingests of one record", f"{count:,}"),
        Row("log", f"{log.bytes / 1e6:.1f} MB, {len(log.entries):,} commits"),
        Row("groups, segments at most", f"{most_groups:,}, {most_segments:,}"),
        Row("times a row is sealed again", f"{sealed / count:.2f}"),
        Row("an ingest, first and last fifth", f"{each[0]:.0f} us, {each[1]:.0f} us"),
        Row("verified from its beginning", f"{verified:.2f} s"),
        Row("kept", f"{len(ledger.state().encode()) / 1e6:.2f} MB"),
        checkpoint_of(log, ledger),
    ]


def checkpoint_of(log: Log, ledger: Ledger) -> Row:
    now = time.time_ns() // 1_000_000
    since = now - checkpoint.REPEATED_MS
    made, making = timed(lambda: checkpoint.make(ledger, ledger.state(), since))
    begun, taken = timed(lambda: checkpoint.take(made, log.keys, new_id(), None, now))
    assert begun.snapshot().count == ledger.snapshot().count
    size = f"{len(made.body) / 1e6:.2f} MB"
    return Row("a checkpoint", size, f"made in {making:.2f} s, taken in {taken:.2f} s")


def settle(log: Log, crowds: Crowds) -> int:
    """Merge and compact until nothing is left to do; how many rows were sealed again."""
    sealed = 0
    while True:
        snapshot = log.ledger.snapshot()
        chosen = worth_merging(snapshot, now=time.time_ns() // 1_000_000)
        if chosen:
            merge(log, chosen, snapshot)
            continue
        crowd = crowds.find(snapshot)
        if crowd is None:
            return sealed
        rows = crowd.end - crowd.first
        log.add(log.ledger.draft(DEFINITION, groups=[group(rows)], ended=crowd.groups))
        sealed += rows


def timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.process_time()
    done = work()
    return done, time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=25_432)
    parser.add_argument("--segments", type=int, default=1_590)
    parser.add_argument("--ingests", type=int, default=20_000)
    chosen = parser.parse_args()
    show("as jobs leave it", jobs(chosen.groups, chosen.segments))
    show("as small ingests leave it", ingests(chosen.ingests))


if __name__ == "__main__":
    main()
