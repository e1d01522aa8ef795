"""Questions over one segment of millions of rows: processor time and memory, at the index alone.

A segment of five fields is built in this process: different texts, 2,000 cities, 4 states, 10,000
amounts, and running numbers. Then each question is asked as a proxy asks it: columns by row are
kept from one question to the next as far as the cache of a proxy would, and other pages are opened
anew from their sealed bytes, a window at a time. Printed are, of each, the processor's milliseconds
for a million rows, first and again, and the most memory beyond the sealed pages and the columns
that are kept (of another run, under tracemalloc).

    .venv/bin/python -m bench.large_segments --rows 4194304
    .venv/bin/python -m bench.large_segments --rows 16777216 --texts 4194304

Texts take the most to build: with ``--texts``, only so many rows have one.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.support.table import Row, show
from encrypted_records.crypto.keys import Keyring
from encrypted_records.index.columns.column import Column, key_type
from encrypted_records.index.columns.dictionary import ByRow, ColumnSums
from encrypted_records.index.log.snapshot import GroupPlaces
from encrypted_records.index.query.aggregate import aggregate
from encrypted_records.index.query.asking import STANDARD, Asking, Keep, KeptColumn, Need, Work
from encrypted_records.index.query.candidates import Candidates, Matches
from encrypted_records.index.query.choices import COMPARISON, Way, choose, comparison_figures
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.key_sets import Texts, needs_whole
from encrypted_records.index.query.leaves import read_tests
from encrypted_records.index.query.narrowing import NarrowRequest, narrow
from encrypted_records.index.query.sort import first
from encrypted_records.index.query.sorted_scan import ScanRequest, SortedScan
from encrypted_records.index.segments.builder import Builder, Shell
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.mini import Built
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.index.segments.reading import Reading, fits_by_row, turn_round
from encrypted_records.model.aggregations import parse_aggregation
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.ids import new_id
from encrypted_records.model.queries import parse_query

MOST, STEP, CITIES, STATES = 10**6, 100, 2000, ("active", "closed", "new", "pending")
DEFINITION = parse_definition(
    json.dumps(
        {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "city": {"type": "string"},
                "status": {"type": "string", "enum": list(STATES)},
                "amount": {"type": "integer", "minimum": 0, "maximum": MOST},
                "number": {"type": "integer", "minimum": 0, "maximum": 10**10},
            },
        }
    )
)
KEY = Keyring.generate().schema(new_id(), new_id()).newest
WANT = 11
#: Bytes of columns by row that are kept: as a proxy keeps.
KEPT = 256 << 20
T = TypeVar("T")


def sorted_column(keys: NDArray[Any], ordinals: NDArray[np.uint32], rows: int) -> Column:
    """The rows that ``ordinals`` are not of are absent."""
    order = np.argsort(keys, kind="stable")
    missing = np.arange(len(ordinals), rows, dtype=np.uint32)
    return Column(np.concatenate((missing, ordinals[order])), keys[order])


def built(rows: int, texts: int) -> Built:
    chance = np.random.default_rng(7)
    every = np.arange(rows, dtype=np.uint32)
    builder = Builder(KEY, DEFINITION, Shell([(new_id(), 0)], every))
    kind = key_type(KeyKind.TEXT)
    for name in DEFINITION.fields:
        own = every
        if name == "text":
            own = every[:texts]
            words = chance.integers(0, 2**63, texts)
            keys: NDArray[Any] = np.array([b"%016x text" % word for word in words.tolist()], kind)
        elif name in ("city", "status"):
            few = CITIES if name == "city" else len(STATES)
            names = [f"city {at:04}" for at in range(few)] if name == "city" else list(STATES)
            keys = np.array(names, kind)[chance.integers(0, few, rows)]
        elif name == "amount":
            keys = chance.integers(0, MOST // STEP, rows).astype(np.uint64) * np.uint64(STEP)
        else:
            keys = every.astype(np.uint64)
        builder.add(name, sorted_column(keys, own, rows))
    return builder.finish()


@dataclass
class Asked:
    """One segment, its sealed pages, and the columns by row that are kept of it."""

    made: Built
    kept: dict[str, ByRow] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pages = {page.number: page.data for page in self.made.pages}
        self.segment = LoadedSegment(
            OpenedHeader(KEY, DEFINITION, self.made.segment, self.made.header)
        )
        self.opened = 0
        count = self.made.segment.count
        self.places = GroupPlaces(np.array([0]), np.array([count]), np.array([0]))

    def again(self) -> None:
        """As another question finds it."""
        self.segment = LoadedSegment(self.segment.opened)
        self.opened = 0

    def put(self, numbers: set[int] | frozenset[int]) -> None:
        self.opened += len(numbers)
        for number in numbers:
            self.segment.put(number, self.pages[number])

    def read(self, reading: Reading[T]) -> T:
        try:
            while True:
                self.put(next(reading))
        except StopIteration as end:
            found: T = end.value
            return found

    def by_row(self, name: str) -> None:
        if name not in self.kept:
            self.keep(name, self.read(turn_round(self.segment, name)))
        self.segment.columns[name] = self.kept[name]

    def keep(self, name: str, column: ByRow) -> None:
        self.kept[name] = column
        while sum(one.size for one in self.kept.values()) > KEPT:
            del self.kept[next(iter(self.kept))]

    def answer(self, asking: Asking[T]) -> T:
        found: object = None
        work = Work(None)
        try:
            while True:
                step = asking.send(found)
                found = None
                if isinstance(step, Need):  # there is one segment
                    self.put(step.pages | self.segment.missing_directories(step.directories))
                elif isinstance(step, Work):
                    found, work = work, step
                elif isinstance(step, KeptColumn):
                    found = self.kept.get(step.field)
                elif isinstance(step, Keep) and not isinstance(step.made, ColumnSums):
                    self.keep(step.field, step.made)
        except StopIteration as end:
            value: T = end.value
            return value

    def match(self, where: Any) -> Matches:
        asked = parse_query({"where": where}, DEFINITION).where
        condition = Condition.of(asked, KEY, DEFINITION)
        self.put(condition.missing_to_find(self.segment))
        memo = condition.memo(self.segment)
        for test in condition.untested(self.segment):
            if not needs_whole(self.segment, test.field):
                continue
            if self.read(fits_by_row(self.segment, test.field)):
                self.by_row(test.field)
            else:
                (memo.found[test.number],) = self.read(read_tests(self.segment, [test]))
        for leaf in condition.leaves:
            figures = comparison_figures(leaf, self.segment, STANDARD)
            if leaf.in_windows and choose(COMPARISON, figures) is not Way.AT_ONCE:
                self.by_row(leaf.field)
                memo.found[leaf.number] = self.read(leaf.read(self.segment))
        self.put(condition.missing(self.segment))
        found = condition.match(self.segment)
        self.segment.blocks.clear()
        return found

    def measure(self, body: Mapping[str, Any]) -> object:
        aggregation = parse_aggregation(body, DEFINITION)
        part = Candidates(self.segment, self.match(body.get("where")), self.places)
        found = self.answer(aggregate(aggregation, DEFINITION, [part], Texts()))
        assert found is not None
        return found

    def first(self, where: Any, order_by: list[str]) -> object:
        order = parse_query({"order_by": order_by}, DEFINITION).order
        matches = self.match(where)
        self.put(self.segment.missing_directories([order[0].field]))
        request = ScanRequest(
            order=order[0],
            among=matches.possible.__and__,
            count=len(matches.possible),
            want=WANT,
            start=None,
            key_range=None,
            alone=len(order) == 1,
            places=self.places,
        )
        scan = SortedScan(self.segment, request)
        while missing := scan.missing_pages():
            self.put(missing)
        result = scan.result()
        among = matches.possible if result is None else result.rows
        known = {} if result is None else {order[0].field: result.dictionary}
        wanted = NarrowRequest(order, among, WANT, None, self.places, known)
        found = self.answer(narrow(self.segment, wanted))
        part = Candidates(
            self.segment, Matches.exactly(found.rows), self.places, found.dictionaries
        )
        rows = first([part], order, Texts(), want=WANT)
        assert rows is not None
        assert len(rows) == WANT
        return rows


def questions(rows: int) -> dict[str, Callable[[Asked], object]]:
    half = {"field": "number", "op": "between", "value": [rows // 4, 3 * rows // 4]}
    cheap = {"field": "amount", "op": "between", "value": [MOST // 5, 7 * MOST // 10]}
    state = {"field": "status", "op": "eq", "value": "new"}

    def measure(ops: list[Any], where: Any = None, **more: Any) -> Callable[[Asked], object]:
        return lambda asked: asked.measure({"measures": ops, "where": where, **more})

    def mean(name: str) -> list[Any]:
        return [{"op": "avg", "field": name}]

    ends = [{"op": "min", "field": "number"}, {"op": "max", "field": "number"}]
    middle = [{"op": "percentile", "field": "amount", "p": 50}]
    count = [{"op": "count"}]
    text = {"field": "text", "op": "contains", "value": "abc"}
    like = {"field": "text", "op": "contains", "value": "ABC", "fold": True}
    return {
        "count of two ranges": measure(count, {"and": [half, cheap]}),
        "mean of a half": measure(mean("amount"), half),
        "mean of different numbers": measure(mean("number"), cheap),
        "least and greatest": measure(ends),
        "a percentile": measure(middle),
        "groups of 2,000 values": measure(count, group_by=["city"]),
        "means of 2,000 groups": measure(mean("amount"), group_by=["city"]),
        "means of different numbers by group": measure(mean("number"), group_by=["city"]),
        "two fields' groups": measure(count, group_by=["city", "status"]),
        "texts that contain": measure(count, text),
        "the same, folded": measure(count, like),
        "common, by two fields": lambda asked: asked.first(state, ["amount", "-number"]),
        "all, by city and text": lambda asked: asked.first(None, ["-city", "text"]),
    }


def measured(made: Built, rows: int) -> list[Row]:
    timed, traced = Asked(made), Asked(made)
    found = []
    for name, question in questions(rows).items():
        times, pages = [], []
        for _ in range(2):
            timed.again()
            began = time.process_time()
            question(timed)
            times.append(1000 * (time.process_time() - began))
            pages.append(timed.opened)
        traced.again()
        tracemalloc.start()
        kept = set(traced.kept)
        question(traced)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        new = sum(one.size for field, one in traced.kept.items() if field not in kept)
        million = rows / 1e6
        beside = f"again {times[1] / million:8.2f}  pages {pages[0]:,}, {pages[1]:,}"
        beside += f"  at most {(peak - new) / 2**20:,.0f} MiB, and {new / 2**20:,.0f} kept"
        found.append(Row(name, f"{times[0] / million:.2f} ms", beside))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1 << 22)
    parser.add_argument("--texts", type=int, help="rows that have a text; all if not said")
    chosen = parser.parse_args()
    began = time.process_time()
    made = built(chosen.rows, min(chosen.rows, chosen.texts or chosen.rows))
    seconds = time.process_time() - began
    title = f"a segment of {chosen.rows:,} rows, {made.segment.pages:,} pages"
    show(
        f"{title}, built in {seconds:.0f} s; processor time for a million rows",
        measured(made, chosen.rows),
    )


if __name__ == "__main__":
    main()
