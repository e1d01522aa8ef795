"""Searching over HTTP: client, proxy, API, PostgreSQL, with ten rows decrypted.

Every question is also put to the same records in plaintext (``bench.support.plain``), on the same
PostgreSQL, in turn with ours; both must answer alike. Warm is a question that was asked before, new
one that was not, though others were; cold is the first one put to a proxy that has just started and
has no page on disk, and unread the first one put to such a proxy once it knows the log. Figures are
milliseconds as the client sees them, p50 / p95; those of processors, of proxy and API together and
of the plaintext view, are the ones that a busy machine disturbs least. ``bench.questions`` has
words, dates and reasons, ``bench.upsert`` upserts.

    .venv/bin/python -m bench.search --records 100000 1000000 --folder /var/tmp/bench

The folder keeps what was loaded for the next run. Ten million records take about 30 GB there.

With ``--stores files swift`` the same is stored and asked with OpenStack Swift as the bulk store as
well, ten processes on this machine, and compared with files.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.support import answers, people, plain, results, stack
from bench.support.processes import Meter
from bench.support.table import Row, show
from tests.support.postgres import running_server
from tests.support.store import Store

Body = dict[str, Any]

LIMIT = 10
#: The slug of the only schema of its dataset.
SCHEMA = "rows"
SHARES = ("0.00001", "0.001", "0.1", "0.5")
#: Different questions of each kind.
KINDS_OF_VALUES = 20


@dataclass(frozen=True)
class Goal:
    """Milliseconds at a million records, warm; no ``p95`` is set where it is None."""

    p50: int
    p95: int | None = None

    def __str__(self) -> str:
        return f"{self.p50}" if self.p95 is None else f"{self.p50} / {self.p95}"

    def is_met(self, p50: float, p95: float) -> bool:
        return p50 <= self.p50 and (self.p95 is None or p95 <= self.p95)


SEARCH = Goal(10, 30)
#: Of counts and aggregates.
MEASURE = Goal(50)
#: Of a semi-join of all rows with all.
JOIN = Goal(2000)
#: Of more records the values of a semi-join of all may take more than a proxy lets them.
MOST_JOINED = 1_000_000
#: Milliseconds of a question over Swift of which no page or row was read before, and of warm p50
#: over Swift to that over files.
UNREAD_OVER_SWIFT, OVER_FILES = 100, 1.5
COUNT: Body = {"measures": [{"op": "count"}]}
#: Of a part of a text, in a field whose values are all different, and in one of few.
PART_OF_UNIQUE, PART_OF_COMMON = Goal(60), Goal(10)


@dataclass(frozen=True)
class Question:
    name: str
    make: Callable[[random.Random], Body]
    goal: Goal
    aggregates: bool = False

    @property
    def path(self) -> str:
        return f"/api/records/{'aggregate' if self.aggregates else 'search'}/"


def questions(total: int, sample: Sequence[Body]) -> list[Question]:
    def search(
        name: str, where: Callable[[random.Random], Body], goal: Goal = SEARCH, **more: Any
    ) -> Question:
        return Question(name, lambda chance: {"where": where(chance), "limit": LIMIT, **more}, goal)

    def measured(
        name: str, where: Callable[[random.Random], Any], goal: Goal = MEASURE, **more: Any
    ) -> Question:
        def make(chance: random.Random) -> Body:
            return {"where": where(chance), "measures": [{"op": "count"}], **more}

        return Question(name, make, goal, aggregates=True)

    def one_of(field: str, chance: random.Random) -> Any:
        return chance.choice(sample)[field]

    def equal(field: str) -> Callable[[random.Random], Body]:
        return lambda chance: {"field": field, "op": "eq", "value": one_of(field, chance)}

    def between(share: float) -> Callable[[random.Random], Body]:
        width = max(1, int(total * share))

        def make(chance: random.Random) -> Body:
            first = chance.randrange(total - width + 1)
            return {"field": "number", "op": "between", "value": [first, first + width - 1]}

        return make

    def two_ranges(chance: random.Random) -> Body:
        age = chance.randrange(18, 60)
        ages = {"field": "age", "op": "between", "value": [age, age + 9]}
        return {"and": [between(0.5)(chance), ages]}

    def prefix(chance: random.Random) -> Body:
        return {"field": "email", "op": "prefix", "value": one_of("email", chance)[:9]}

    def contains(field: str) -> Callable[[random.Random], Body]:
        return lambda chance: {
            "field": field,
            "op": "contains",
            "value": one_of(field, chance)[1:9],
        }

    def among(field: str) -> Callable[[random.Random], Body]:
        """In all of the column itself: as many values as there are rows."""
        of = {"schema": SCHEMA, "field": field, "where": None}
        return lambda _: {"field": field, "op": "in", "of": of}

    numbers = [
        {"op": "count"},
        *({"op": op, "field": "salary"} for op in ("min", "max", "sum")),
        {"op": "percentile", "field": "salary", "p": [50]},
    ]
    joins = [
        measured("semi-join of all, numbers", among("number"), JOIN),
        measured("semi-join of all, texts", among("email"), JOIN),
    ]
    return [
        search("equality, unique", equal("uuid")),
        search("equality, common", equal("status")),
        *(search(f"range over a share of {share}", between(float(share))) for share in SHARES),
        search("prefix", prefix),
        search("part of a text, unique", contains("email"), PART_OF_UNIQUE),
        search("part of a text, common", contains("status"), PART_OF_COMMON),
        search("two ranges", two_ranges),
        search("a tenth, by salary", between(0.1), order_by=["-salary"]),
        search("common, by age and number", equal("status"), order_by=["age", "-number"]),
        *(joins if total <= MOST_JOINED else []),
        measured("count of a half", between(0.5)),
        measured("count of two ranges", two_ranges),
        measured("group by status of a half", between(0.5), group_by=["status"]),
        measured("group all by country", lambda _: None, group_by=["country"]),
        measured("five measures of a tenth", between(0.1), measures=numbers),
    ]


@dataclass(frozen=True)
class Figures:
    """Milliseconds of each time it was asked; of ``processor`` those of proxy and API for one.

    ``first`` are those of questions that were not asked before, by a proxy that was asked others,
    ``unread`` those of proxies that know the log, and have no page or row.
    """

    warm: list[float]
    first: list[float]
    plain: list[float]
    processor: float
    plain_processor: float
    cold: list[float]
    unread: list[float]


def percentile(found: Sequence[float], share: float) -> float:
    return sorted(found)[min(len(found) - 1, int(len(found) * share))]


def timed(ask: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    answer = ask()
    return (time.perf_counter() - started) * 1000, answer


def measure(
    question: Question,
    store: Store,
    ours: stack.Asking,
    theirs: stack.Asking,
    rounds: int,
    used: Callable[[], tuple[float, float]],
) -> tuple[list[float], list[float], list[float], float, float]:
    """Milliseconds of ours, warm and the first time, and of the other side, asked in turn; once the
    answers were found alike. Then those of the processors that ``used`` tells in seconds."""
    before = used()
    chance = random.Random(question.name)
    bodies = [question.make(chance) for _ in range(KINDS_OF_VALUES)]
    own, firsts, plain_ones = [], [], []
    for at in range(rounds + 1):
        if at == 1:
            before = used()
        for body in bodies:
            mine, answer = timed(lambda: ours.post(question.path, {"schema": store.schema} | body))  # noqa: B023
            other, reference = timed(lambda: theirs.post(question.path, body))  # noqa: B023
            if at == 0:
                answers.compare(body, answer, reference, aggregates=question.aggregates)
                firsts.append(mine)
            else:
                own.append(mine)
                plain_ones.append(other)
    ours_used, plain_used = (1000 * (b - a) / len(own) for a, b in zip(before, used(), strict=True))
    return own, firsts, plain_ones, ours_used, plain_used


def first_time(
    question: Question, folder: Path, base_url: str, store: Store, at: int, *, knows: bool
) -> float:
    """Milliseconds of the first question to a proxy that has just started, with no page on disk.

    Args:
        knows: whether it was asked before how many records there are, which the log says.
    """
    for file in (folder / "proxy" / "proxy").glob("pages.sqlite3*"):
        file.unlink()
    with stack.running_proxy(folder, base_url) as service:
        fresh = Store(service, store.account, store.schema)
        asking = stack.logged_in(fresh)
        if knows:
            asking.post("/api/records/aggregate/", {"schema": store.schema, "where": None} | COUNT)
        body = {"schema": store.schema} | question.make(random.Random(at))
        milliseconds, _ = timed(lambda: asking.post(question.path, body))
        asking.close()
    return milliseconds


def of_size(
    folder: Path,
    server: str,
    total: int,
    rounds: int,
    colds: int,
    environment: Mapping[str, str],
) -> dict[str, Figures]:
    """The figures by question; prints how the records were stored.

    Args:
        environment: variables of the API.
    """
    folder.mkdir(exist_ok=True)
    file = people.csv_file(folder, total)
    plain_url = stack.database(server, f"plain{folder.name}")
    if not (folder / "store.json").exists():
        plain.load(plain_url, file)
        with psycopg.connect(plain_url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE people")
    found: dict[str, tuple[list[float], list[float], list[float], float, float]] = {}
    with (
        stack.running_api(folder, stack.database(server, f"sealed{folder.name}"), environment) as (
            base_url,
            api,
        ),
        stack.running_plain(plain_url) as (view, view_id),
    ):
        with stack.running_proxy(folder, base_url) as service:
            store, rate = stack.stored_people(folder, service, file)
            print(f"\n{total:,} records, stored by a CSV job at {rate}", flush=True)
            asked = questions(total, sample_of(file))
            ours, theirs = stack.logged_in(store), stack.Asking(view, {})
            meter = Meter(service, api)
            used = lambda: (meter.both, meter.seconds(view_id))  # noqa: E731
            for question in asked:
                found[question.name] = measure(question, store, ours, theirs, rounds, used)
        return {
            question.name: Figures(
                *found[question.name],
                *(
                    [
                        first_time(question, folder, base_url, store, at, knows=knows)
                        for at in range(colds)
                    ]
                    for knows in (False, True)
                ),
            )
            for question in asked
        }


def sample_of(file: Path) -> list[Body]:
    with file.open(newline="") as source:
        return list(itertools.islice(csv.DictReader(source), 50_000))


def rows_of(
    found: dict[str, Figures],
    goals: dict[str, Goal],
    before: dict[str, Figures],
    files: dict[str, Figures],
) -> list[Row]:
    """A row for each question.

    Args:
        before: the figures of the fewest records.
        files: those of as many records in files, where these are in another store.
    """
    rows = []
    for name, figures in found.items():
        p50, p95 = (percentile(figures.warm, share) for share in (0.5, 0.95))
        plain50, plain95 = (percentile(figures.plain, share) for share in (0.5, 0.95))
        beside = [f"processor {figures.processor:5.1f} / {figures.plain_processor:4.1f}"]
        beside.append(f"new {percentile(figures.first, 0.5):6.1f}")
        for what, times in (("cold", figures.cold), ("unread", figures.unread)):
            beside += [f"{what} {statistics.median(times):6.1f}"] if times else []
        beside.append(f"plaintext {plain50:6.1f} /{plain95:6.1f}  ratio {p50 / plain50:5.2f}")
        if name in before:
            growth = p50 / percentile(before[name].warm, 0.5)
            beside.append(f"growth {growth:4.2f}")
        if name in files:
            ratio = p50 / percentile(files[name].warm, 0.5)
            beside.append(f"of files {ratio:4.2f}, goal {OVER_FILES}: {_met(ratio <= OVER_FILES)}")
        else:
            goal = goals[name]
            beside.append(f"goal {goal!s:7} {_met(goal.is_met(p50, p95))}")
        rows.append(Row(name, f"{p50:6.1f} /{p95:6.1f} ms", "  ".join(beside)))
    for what, times in (
        ("cold", [one for figures in found.values() for one in figures.cold]),
        ("unread", [one for figures in found.values() for one in figures.unread]),
    ):
        if times:
            p50 = percentile(times, 0.5)
            said = f"goal {UNREAD_OVER_SWIFT}: {_met(p50 <= UNREAD_OVER_SWIFT)}"
            judged = bool(files) and what == "unread"
            rows.append(Row(f"all, {what}", f"{p50:6.1f} ms p50", said if judged else ""))
    return rows


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def keep(name: str, found: dict[str, Figures]) -> None:
    """For docs/performance.md."""

    def both(times: Sequence[float]) -> list[float]:
        return [round(percentile(times, share), 1) for share in (0.5, 0.95)]

    figures = {
        name: {
            "p50_p95": both(one.warm),
            "processor": round(one.processor, 1),
            "plaintext_processor": round(one.plain_processor, 1),
            "plaintext_p50_p95": both(one.plain),
        }
        for name, one in found.items()
    }
    results.keep(f"search-{name}", figures, machine=stack.describe_machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, help="keeps what was loaded; temporary if none")
    parser.add_argument("--rounds", type=int, default=5, help="of 20 questions of each kind")
    parser.add_argument("--cold", type=int, default=3, help="starts of the proxy for each kind")
    parser.add_argument("--stores", nargs="+", default=["files"], choices=["files", "swift"])
    parser.add_argument("--keep", action="store_true", help="in bench/results.json")
    chosen = parser.parse_args()
    goals = {question.name: question.goal for question in questions(1, [])}
    with stack.kept(chosen.folder) as folder:
        (folder / "postgres").mkdir(exist_ok=True)
        with running_server(folder / "postgres", durable=True) as server:
            in_files: dict[int, dict[str, Figures]] = {}
            for kind in sorted(chosen.stores):
                fewest: dict[str, Figures] = {}
                for total in sorted(chosen.records):
                    name = f"{total}" if kind == "files" else f"{total}-{kind}"
                    with stack.running_bulk_store(folder, kind) as environment:
                        found = of_size(
                            folder / name, server, total, chosen.rounds, chosen.cold, environment
                        )
                    title = "warm p50 / p95, ten rows decrypted; growth over the fewest records"
                    show(f"{kind}: {title}", rows_of(found, goals, fewest, in_files.get(total, {})))
                    if chosen.keep:
                        keep(name, found)
                    fewest = fewest or found
                    if kind == "files":
                        in_files[total] = found


if __name__ == "__main__":
    main()
