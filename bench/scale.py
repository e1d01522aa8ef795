"""How questions, memory and what is written grow with the number of records.

Stores ``--records`` generated records of five fields in one schema, by jobs of ``--job``, and
beside them ``--beside`` (a hundredth), each in a schema, a database and a proxy of its own. A run
that was interrupted goes on with the next one on the same ``--folder``. Then all questions are put
to both in turn; what they must find follows from the records' numbers, and is compared.

Warm is a question that was asked before. Growth is that over the smaller number. Pages are those
that a question takes of a proxy that holds nothing of the index. What is written is that of API and
PostgreSQL together, and what is kept their folders and tables; the proxy's own spool is not in it.

    .venv/bin/python -m bench.scale --records 10000000 --folder /var/tmp/scale
    .venv/bin/python -m bench.scale --singles 1000000 --folder /var/tmp/singles

With ``--singles``, so many records are stored one by one instead, by direct ingests over HTTP
(:mod:`bench.support.singles`). docs/scale.md has figures.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.support import singles, stack, volume
from bench.support.processes import Meter
from bench.support.table import Row, show
from tests.support.postgres import running_server
from tests.support.store import Store

LIMIT = 10
#: Different questions of each kind, and how often each is asked once it is warm.
KINDS_OF_VALUES, ROUNDS = 20, 5
#: Answers that are compared with what they must be, which takes longer than the question.
CHECKED = 3
#: Milliseconds and growth that a question has at most, and rows a second at the least.
MOST_MS, MOST_GROWTH, MOST_GROWTH_OF_SORTS = 15.0, 2.0, 3.0
LEAST_RATE, LEAST_ROWS = 40e6, 1e6
MOST_FIRST_MS, MOST_MIB, MOST_WORKER_MIB, MOST_WRITTEN = 3000.0, 500.0, 400.0, 4.0
Body = dict[str, Any]


@dataclass(frozen=True)
class Side:
    """The records of one number, and who is asked about them."""

    total: int
    folder: Path
    base_url: str
    database: str
    meter: Meter
    store: Store
    kept: volume.Kept


@dataclass(frozen=True)
class Question:
    """``rows``: how many rows the answer of a body is of, where its time may grow with them."""

    name: str
    make: Callable[[int, random.Random], Body]
    check: Callable[[int, Body, Any], None] = lambda *_: None
    path: str = "/api/records/search/"
    rows: Callable[[Any], int] | None = None
    growth: float = MOST_GROWTH


@dataclass(frozen=True)
class Figures:
    """Milliseconds of each warm time; pages and rows of one question, in the middle."""

    warm: list[float]
    pages: float
    rows: float

    @property
    def p50(self) -> float:
        return statistics.median(self.warm)


def _numbers(total: int, chance: random.Random, width: int) -> list[int]:
    first = chance.randrange(max(1, total - width + 1))
    return [first, first + width - 1]


def _between(name: str, ends: list[int]) -> Body:
    return {"field": name, "op": "between", "value": ends}


def _unique(total: int, chance: random.Random) -> Body:
    code = volume.record(chance.randrange(total))["code"]
    return {"where": {"field": "code", "op": "eq", "value": code}}


def _check_unique(_: int, body: Body, answer: Any) -> None:
    (found,) = answer["results"]
    assert found["data"] == volume.record(found["data"]["number"])
    assert found["data"]["code"] == body["where"]["value"]


def _common(total: int, chance: random.Random) -> Body:
    city = volume.record(chance.randrange(total))["city"]
    return {"where": {"field": "city", "op": "eq", "value": city}}


def _check_common(_: int, body: Body, answer: Any) -> None:
    assert answer["results"]
    for result in answer["results"]:
        assert result["data"]["city"] == body["where"]["value"], result
        assert result["data"] == volume.record(result["data"]["number"])


def _page(total: int, chance: random.Random) -> Body:
    where = _between("number", _numbers(total, chance, total // 10))
    return {"where": where, "order_by": ["number"]}


def _check_page(_: int, body: Body, answer: Any) -> None:
    first = body["where"]["value"][0]
    found = [result["data"] for result in answer["results"]]
    assert found == [volume.record(first + at) for at in range(LIMIT)]


def _sorted(_: int, chance: random.Random) -> Body:
    where = {"field": "status", "op": "eq", "value": chance.choice(volume.STATES)}
    return {"where": where, "order_by": ["amount", "-number"]}


def _check_sorted(total: int, body: Body, answer: Any) -> None:
    state = volume.STATES.index(body["where"]["value"])
    first = np.empty(0, dtype=[("amount", np.int64), ("number", np.int64)])
    for block in volume.blocks(0, total, 1 << 20):
        own = block.states == state
        some = np.empty(int(own.sum()), dtype=first.dtype)
        some["amount"], some["number"] = block.amounts[own], -block.numbers[own].astype(np.int64)
        first = np.sort(np.concatenate([first, some]), order=["amount", "number"])[:LIMIT]
    assert [result["data"]["number"] for result in answer["results"]] == (-first["number"]).tolist()


def _count(measures: list[Body], where: Any) -> Body:
    return {"where": where, "measures": measures}


def _above(_: int, chance: random.Random) -> Body:
    least = volume.STEP * chance.randrange(volume.MOST // volume.STEP)
    return _count([{"op": "count"}], {"field": "amount", "op": "ge", "value": least})


def _check_above(total: int, body: Body, answer: Any) -> None:
    least = np.uint64(body["where"]["value"])
    true = sum(int((block.amounts >= least).sum()) for block in volume.blocks(0, total, 1 << 20))
    assert answer["measures"][0]["value"] == true


def _ends(_: int, __: random.Random) -> Body:
    return _count([{"op": op, "field": "amount"} for op in ("min", "max")], None)


def _check_ends(total: int, _: Body, answer: Any) -> None:
    amounts = [block.amounts for block in volume.blocks(0, total, 1 << 20)]
    true = [
        min(int(amount.min()) for amount in amounts),
        max(int(amount.max()) for amount in amounts),
    ]
    assert [one["value"] for one in answer["measures"]] == true


def _percentile(_: int, chance: random.Random) -> Body:
    share = chance.randrange(1, 100)
    return _count([{"op": "percentile", "field": "amount", "p": [share]}], None)


def _groups(field: str, _: int, __: random.Random) -> Body:
    return _count([{"op": "count"}], None) | {"group_by": [field]}


def _check_states(total: int, _: Body, answer: Any) -> None:
    true = [0] * len(volume.STATES)
    for block in volume.blocks(0, total, 1 << 20):
        for state, count in enumerate(np.bincount(block.states.astype(np.int64))):
            true[state] += int(count)
    told = {group["group"]["status"]: group["measures"][0]["value"] for group in answer["groups"]}
    assert told == dict(zip(volume.STATES, true, strict=True))


def _two_ranges(total: int, chance: random.Random) -> Body:
    least = volume.STEP * chance.randrange(volume.MOST // volume.STEP // 2)
    ranges = [
        _between("number", _numbers(total, chance, total // 2)),
        _between("amount", [least, least + volume.MOST // 2]),
    ]
    return _count([{"op": "count"}], {"and": ranges})


def _check_two_ranges(_: int, body: Body, answer: Any) -> None:
    (first, last), (least, most) = (one["value"] for one in body["where"]["and"])
    true = 0
    for block in volume.blocks(first, last + 1, 1 << 20):
        amounts = block.amounts
        true += int(((amounts >= np.uint64(least)) & (amounts <= np.uint64(most))).sum())
    assert answer["measures"][0]["value"] == true


def _means(total: int, chance: random.Random) -> Body:
    where = _between("number", _numbers(total, chance, total // 2))
    return _count([{"op": "count"}, {"op": "avg", "field": "amount"}], where)


def _check_means(_: int, body: Body, answer: Any) -> None:
    first, last = body["where"]["value"]
    true = sum(int(block.amounts.sum()) for block in volume.blocks(first, last + 1, 1 << 20))
    count = last + 1 - first
    assert answer["measures"][0]["value"] == count
    assert abs(float(answer["measures"][1]["value"]) - true / count) < 0.01


def _counted(answer: Any) -> int:
    return int(answer["measures"][0]["value"])


_MEASURE = "/api/records/aggregate/"
QUESTIONS = (
    Question("equality, unique", _unique, _check_unique),
    Question("equality, common", _common, _check_common),
    Question("first rows of a range, in its order", _page, _check_page),
    Question("common, by two fields", _sorted, _check_sorted, growth=MOST_GROWTH_OF_SORTS),
    Question("count of one comparison", _above, _check_above, _MEASURE),
    Question("least and greatest", _ends, _check_ends, _MEASURE),
    Question("a percentile", _percentile, path=_MEASURE),
    Question("groups of 4 values", partial(_groups, "status"), _check_states, _MEASURE),
    Question("groups of 2,000 values", partial(_groups, "city"), path=_MEASURE),
    Question("count of two ranges", _two_ranges, _check_two_ranges, _MEASURE, rows=_counted),
    Question("mean of a half", _means, _check_means, _MEASURE, rows=_counted),
)


def measure(question: Question, sides: list[Side]) -> list[Figures]:
    """Of each side, asked in turn."""
    chances = [random.Random(question.name) for _ in sides]
    bodies = [
        [_asked(question, side, chance) for _ in range(KINDS_OF_VALUES)]
        for side, chance in zip(sides, chances, strict=True)
    ]
    rows: list[list[int]] = [[] for _ in sides]
    pages: list[list[int]] = [[] for _ in sides]
    warm: list[list[float]] = [[] for _ in sides]
    for at, side in enumerate(sides):
        asking = stack.logged_in(side.store)
        answers = [asking.post(question.path, body) for body in bodies[at]]
        rows[at] = [question.rows(answer) if question.rows else 0 for answer in answers]
        for body in bodies[at][:CHECKED]:
            pages[at].append(asking.post("/api/records/explain/", body)["pages"])
        asking.close()
        for body, answer in zip(bodies[at][:CHECKED], answers, strict=False):
            question.check(side.total, body, answer)
    # Others than above: checking takes longer than a connection waits.
    askings = [stack.logged_in(side.store) for side in sides]
    for _ in range(ROUNDS):
        for number in range(KINDS_OF_VALUES):
            for at, asking in enumerate(askings):
                began = time.perf_counter()
                asking.post(question.path, bodies[at][number])
                warm[at].append(1000 * (time.perf_counter() - began))
    for asking in askings:
        asking.close()
    middles = ([statistics.median(one) for one in many] for many in (pages, rows))
    return [Figures(*one) for one in zip(warm, *middles, strict=True)]


def _asked(question: Question, side: Side, chance: random.Random) -> Body:
    body = {"schema": side.store.schema, **question.make(side.total, chance)}
    return body if question.path == _MEASURE else body | {"limit": LIMIT}


def row(question: Question, small: Figures, large: Figures) -> Row:
    growth = large.p50 / small.p50
    beside = f"at the fewer {small.p50:7.1f}  growth {growth:5.2f}"
    beside += f"  pages {small.pages:,.0f}, {large.pages:,.0f}"
    if question.rows:
        rate = 1000 * large.rows / large.p50
        beside += f"  {rate / 1e6:.0f} million rows/s"
        # Of few rows, the time is that of any question.
        beside += f", {verdict(rate >= LEAST_RATE)}" if large.rows >= LEAST_ROWS else ""
    else:
        met = growth <= question.growth and (large.p50 <= MOST_MS or question.growth > MOST_GROWTH)
        beside += f"  {verdict(met)}"
    return Row(question.name, f"{large.p50:7.1f} ms", beside)


def verdict(met: bool) -> str:
    return "met" if met else "missed"


@contextmanager
def filled(folder: Path, server: str, postmaster: int, total: int, job: int) -> Iterator[Side]:
    """So many records, stored now as far as they are not there, and a running proxy."""
    folder.mkdir(exist_ok=True)
    database = stack.database(server, f"scale{folder.name}")
    with (
        stack.running_api(folder, database) as (base_url, api),
        stack.running_proxy(folder, base_url) as service,
    ):
        store, kept = volume.opened(folder, service)
        meter = Meter(service, api)
        print(f"\n{total:,} records in {folder}", flush=True)
        volume.fill(folder, store, kept, meter, [api, postmaster], total, job)
        yield Side(total, folder, base_url, database, meter, store, kept)


def show_side(side: Side, asking_mib: float) -> None:
    kept = side.kept
    bytes_kept = volume.kept_bytes(side.folder, side.database)
    first = volume.first_answers(side.folder, side.base_url, side.store)
    ratio = side.kept.written / bytes_kept
    most = max(kept.proxy, asking_mib)
    status = side.store.proxy("GET", f"/api/records/status/?schema={side.store.schema_id}").json()
    rate = side.total / kept.seconds
    rows = [
        Row("stored by jobs", f"{rate:,.0f}/s", f"then {kept.merging:.0f} s of merging"),
        Row("segments", f"{status['segments']['live']:,}"),
        Row("kept of a record", f"{bytes_kept / side.total:,.0f} bytes"),
        Row("written per byte kept", f"{ratio:.2f}", verdict(ratio <= MOST_WRITTEN)),
        Row("written of a record", f"{kept.written / side.total:,.0f} bytes"),
        Row("processors, of a record", f"{1e6 * kept.processor / side.total:.1f} us"),
        Row("a new proxy's first answer", f"{first:,.0f} ms", verdict(first <= MOST_FIRST_MS)),
        Row("proxy while it stored", f"{kept.proxy:.0f} MiB", verdict(most <= MOST_MIB)),
        Row("proxy while it was asked", f"{asking_mib:.0f} MiB"),
        Row(
            "one of its workers", f"{kept.worker:.0f} MiB", verdict(kept.worker <= MOST_WORKER_MIB)
        ),
    ]
    show(f"{side.total:,} records", rows)


def run(folder: Path, server: str, postmaster: int, totals: list[int], job: int) -> None:
    with ExitStack() as opened:
        sides = [
            opened.enter_context(filled(folder / f"{total}", server, postmaster, total, job))
            for total in totals
        ]
        for side in sides:
            side.meter.forget_peak()
        found = [(question, measure(question, sides)) for question in QUESTIONS]
        peaks = [side.meter.peak_mib() for side in sides]
        show(
            f"{totals[1]:,} records beside {totals[0]:,}, warm p50",
            [row(question, *both) for question, both in found],
        )
        for side, peak in zip(sides, peaks, strict=True):
            show_side(side, peak)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # else what was started stays
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--beside", type=int, help="fewer records, a hundredth if not said")
    parser.add_argument("--job", type=int, default=volume.JOB, help="records of one job")
    parser.add_argument("--singles", type=int, help="store so many one by one instead")
    parser.add_argument("--folder", type=Path, help="keeps what was stored; temporary if none")
    chosen = parser.parse_args()
    with stack.kept(chosen.folder) as folder:
        (folder / "postgres").mkdir(exist_ok=True)
        with running_server(folder / "postgres", durable=True) as server:
            if chosen.singles:
                singles.run(folder, server, chosen.singles)
                return
            pid = (folder / "postgres" / "data" / "postmaster.pid").read_text().split()[0]
            fewer = chosen.beside or max(1000, chosen.records // 100)
            run(folder, server, int(pid), [fewer, chosen.records], chosen.job)


if __name__ == "__main__":
    main()
