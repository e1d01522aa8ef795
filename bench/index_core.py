"""The sealed index by itself, on one core: what sealing, merging and asking cost.

Claims, each as a ratio or a figure of one run:

- sealing and indexing ten-field records reaches 35 % of a bare loop of AES-GCM over their fields,
  and 100 times libmongocrypt's explicit encryption of the same records (where it is installed);
- above 65,536 records the index of ten fields costs at most 60 bytes a record;
- a merge of a million records takes less than 700 MiB beside the sealed pages of its inputs;
- at a million records, with opened pages in memory, equality takes under a millisecond and a range
  over half of all records a few.

``python -m bench.index_core [--records N]``; times are of the processor, so that a busy machine
disturbs them less.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bench.support.libmongocrypt import records_per_second as libmongocrypt
from bench.support.people import DEFINITION as PEOPLE
from bench.support.people import record
from bench.support.processes import memory_mib
from bench.support.table import Row, show
from encrypted_records.crypto.keys import Keyring
from encrypted_records.index.columns import column as columns
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.segments.builder import Builder, Shell
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.merge import SegmentMerger
from encrypted_records.index.segments.mini import Built
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.ingest.seal import seal
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.model.queries import parse_query
from encrypted_records.model.records import PAGE_BYTES, PlainRecord

DEFINITION = parse_definition(json.dumps(PEOPLE))
KEY = Keyring.generate().schema(new_id(), new_id()).newest


def cpu(work: Callable[[], object], times: int = 1) -> float:
    """Seconds of the processor that one run takes at best."""
    best = float("inf")
    for _ in range(times):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def sealing(rows: Sequence[dict[str, Any]]) -> list[Row]:
    plain = [PlainRecord(new_id(), 1, row) for row in rows]
    ledger = Ledger(Keyring.generate().schema(new_id(), new_id()), new_id())
    ours = len(rows) / cpu(lambda: seal(ledger, DEFINITION, plain), 3)
    values = [str(value).encode() for row in rows for value in row.values()]
    key, context = AESGCM(bytes(32)), bytes(60)

    def bare() -> None:
        for number, value in enumerate(values):
            key.encrypt(number.to_bytes(12, "big"), value, context)

    bare_rate = len(rows) / cpu(bare, 3)
    found = [
        Row("seal and index", f"{ours:,.0f} records/s"),
        Row("bare loop of AES-GCM", f"{bare_rate:,.0f} records/s", f"{ours / bare_rate:.0%}"),
    ]
    other = libmongocrypt(rows[:50])
    if other is None:
        return [*found, Row("libmongocrypt", "not installed: uv sync --group bench")]
    return [*found, Row("libmongocrypt", f"{other:,.0f} records/s", f"{ours / other:,.0f} times")]


def built(rows: Sequence[dict[str, Any]]) -> Built:
    every = np.arange(len(rows), dtype=np.uint32)
    builder = Builder(KEY, DEFINITION, Shell([(new_id(), 0)], every))
    for name, spec in DEFINITION.fields.items():
        builder.add(name, columns.build(spec, KEY.field(spec), [row[name] for row in rows]))
    return builder.finish()


class Opened:
    """A segment and its sealed pages."""

    def __init__(self, made: Built) -> None:
        self.segment = LoadedSegment(OpenedHeader(KEY, DEFINITION, made.segment, made.header))
        self.pages = {page.number: page.data for page in made.pages}

    def put(self, wanted: Callable[[], set[int]]) -> int:
        total = 0
        while numbers := wanted():
            total += len(numbers)
            for number in numbers:
                self.segment.put(number, self.pages[number])
        return total


def merging(total: int) -> tuple[Opened, list[Row]]:
    chance = random.Random(7)
    parts = max(2, -(-total // 65_536))
    step = -(-total // parts)
    inputs = [
        Opened(built([record(chance, number) for number in range(first, min(first + step, total))]))
        for first in range(0, total, step)
    ]
    snapshot = Snapshot(1, tuple(source.segment.segment for source in inputs), {}, {})
    before = memory_mib("self", "VmRSS")
    # Linux forgets the peak so far.
    Path("/proc/self/clear_refs").write_text("5")
    made: list[Built] = []

    def work() -> None:
        dead = [snapshot.dead_rows(source.segment.segment) for source in inputs]
        opened = [source.segment for source in inputs]
        groups = [one.segment.groups for one in opened]
        merge = SegmentMerger(KEY, DEFINITION, opened, groups, dead)
        for name in merge.fields:
            for one in inputs:
                one.put(lambda: one.segment.missing_columns([name]))  # noqa: B023
            merge.take(name)
            for one in inputs:
                one.segment.blocks.clear()
        made.append(merge.finish())

    seconds = cpu(work)
    more = memory_mib("self", "VmHWM") - before
    size = made[0].segment.pages * PAGE_BYTES / total
    return Opened(made[0]), [
        Row(f"merge {parts} segments", f"{total / seconds:,.0f} records/s", f"{seconds:.1f} s"),
        Row("entries of a column", f"{10 * total / seconds:,.0f} entries/s"),
        Row("memory at most beyond the inputs' sealed pages", f"{more:,.0f} MiB"),
        Row("index", f"{size:.1f} bytes/record"),
    ]


def asking(opened: Opened, total: int) -> list[Row]:
    one = record(random.Random(7), 0)["uuid"]
    first_half = {"field": "number", "op": "lt", "value": total // 2}
    questions: dict[str, Any] = {
        "equality, unique": {"field": "uuid", "op": "eq", "value": one},
        "equality, a quarter": {"field": "status", "op": "eq", "value": "new"},
        "prefix": {"field": "email", "op": "prefix", "value": "kari"},
        "range, 10^-5": {"field": "number", "op": "lt", "value": max(1, total // 10**5)},
        "range, half": {"field": "salary", "op": "lt", "value": 500_000},
        "two ranges": {"and": [first_half, {"field": "age", "op": "between", "value": [18, 55]}]},
    }
    found = []
    for name, where in questions.items():
        asked = parse_query({"where": where}, DEFINITION).where
        opened.segment = LoadedSegment(opened.segment.opened)
        condition = Condition.of(asked, KEY, DEFINITION)
        pages = 0

        def cold() -> None:
            nonlocal pages
            pages = opened.put(lambda: condition.missing(opened.segment))  # noqa: B023

        seconds = cpu(cold)
        warm = cpu(lambda: (condition.missing(opened.segment), condition.match(opened.segment)), 9)  # noqa: B023
        matches = len(condition.match(opened.segment).certain)
        counted = condition.count(opened.segment)
        assert counted in (None, matches)
        found.append(
            Row(
                name,
                f"{warm * 1000:.2f} ms warm",
                f"{pages} pages, opened in {seconds * 1000:.1f} ms; {matches:,} records",
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    total = parser.parse_args().records
    chance = random.Random(1)
    show("one core, ten fields", sealing([record(chance, number) for number in range(4096)]))
    for size in sorted({min(100_000, total), total}):
        opened, rows = merging(size)
        show(f"{size:,} records", rows + asking(opened, size))


if __name__ == "__main__":
    main()
