"""What questions cost a proxy's processor, and what they ask of the API, as a change leaves it.

Thirteen kinds of question go to two proxies in turn: one of this checkout, and one of another
folder with sources (``--against``), both on the same records, with the same keys and the same API.
Printed are, of each kind, milliseconds of the proxy's processor when it was asked before (warm) and
when it was not, and the largest of the requests that the first one made of the API, as pages and
rows of each. It fails where warm questions take more than a tenth longer than those of the other
sources, as a mean, or one kind more than a fifth.

    git worktree add ../before main
    .venv/bin/python -m bench.question_costs --records 20000 --against ../before/src
    .venv/bin/python -m bench.question_costs --records 1000000 --folder /var/tmp/costs

The folder keeps what was loaded for the next run.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.support import people, stack
from bench.support.table import Row, show
from encrypted_records.model import wire
from encrypted_records.model.records import PageRef, RowRef
from tests.support.front import Asked, Front, running_front
from tests.support.second_proxy import with_keyrings
from tests.support.service import Service
from tests.support.store import Store

Body = dict[str, Any]
SEARCH, AGGREGATE = "/api/records/search/", "/api/records/aggregate/"
LIMIT = 10
#: Different questions of each kind, and records that die before they are asked.
KINDS_OF_VALUES, DEAD = 10, 40
#: How much longer warm questions may take: as a mean, and of one kind.
MEAN, MOST = 1.1, 1.2


@dataclass(frozen=True)
class Question:
    name: str
    make: Callable[[random.Random], Body]
    path: str = SEARCH
    #: whether the second page is asked for, too
    goes_on: bool = False


def questions(total: int, sample: Sequence[Mapping[str, str]]) -> list[Question]:
    def one_of(name: str, chance: random.Random) -> str:
        return chance.choice(sample)[name]

    def equal(name: str) -> Callable[[random.Random], Body]:
        return lambda chance: {"field": name, "op": "eq", "value": one_of(name, chance)}

    def between(share: float) -> Callable[[random.Random], Body]:
        width = int(total * share)

        def make(chance: random.Random) -> Body:
            first = chance.randrange(total - width + 1)
            return {"field": "number", "op": "between", "value": [first, first + width - 1]}

        return make

    def ages(chance: random.Random) -> Body:
        least = chance.randrange(18, 60)
        return {"field": "age", "op": "between", "value": [least, least + 19]}

    def two_ranges(chance: random.Random) -> Body:
        return {"and": [between(0.5)(chance), ages(chance)]}

    def either(chance: random.Random) -> Body:
        return {"or": [equal("country")(chance), {"not": ages(chance)}]}

    def contains(chance: random.Random) -> Body:
        return {"field": "email", "op": "contains", "value": one_of("email", chance)[1:9]}

    def search(
        name: str, where: Callable[[random.Random], Any], *, goes_on: bool = False, **more: Any
    ) -> Question:
        return Question(
            name,
            lambda chance: {"where": where(chance), "limit": LIMIT, **more},
            goes_on=goes_on,
        )

    def measured(name: str, where: Callable[[random.Random], Any], **more: Any) -> Question:
        def make(chance: random.Random) -> Body:
            return {"where": where(chance), "measures": [{"op": "count"}], **more}

        return Question(name, make, AGGREGATE)

    numbers = [{"op": op, "field": "salary"} for op in ("min", "sum", "avg")]
    middle = [{"op": "percentile", "field": "salary", "p": [50]}]
    return [
        search("equality, unique", equal("uuid")),
        search("a quarter, two pages", equal("status"), goes_on=True),
        search("a half, with its count", between(0.5), count=True),
        search("either, with its count", either, count=True),
        search("part of a text", contains),
        search("two ranges, by a number", two_ranges, order_by=["-salary"], goes_on=True),
        search("a quarter, by two fields", equal("status"), order_by=["age", "-number"]),
        search("all, by a text", lambda _: None, order_by=["-last", "email"], goes_on=True),
        measured("count of two ranges", two_ranges),
        measured("count of a part of a text", contains),
        measured("three measures of a half", between(0.5), measures=numbers),
        measured("a percentile of all", lambda _: None, measures=middle),
        measured("groups of a half", between(0.5), group_by=["country"]),
    ]


@dataclass
class Asker:
    """A proxy of some sources, whose requests are noted."""

    asking: stack.Asking
    front: Front
    pid: int
    #: by question: milliseconds of the processor
    new: dict[str, list[float]] = field(default_factory=dict)
    warm: dict[str, list[float]] = field(default_factory=dict)
    #: by question: of the first one, pages and rows of each request
    seen: dict[str, list[str]] = field(default_factory=dict)

    def ask(self, schema: str, question: Question, body: Body) -> list[Any]:
        """The answers, without what names a page."""
        answers = [self.asking.post(question.path, {"schema": schema} | body)]
        if question.goes_on:
            more = {"schema": schema, **body, "cursor": answers[0]["next_cursor"]}
            answers.append(self.asking.post(question.path, more))
        for answer in answers:
            answer.pop("next_cursor", None)
        return answers

    def used(self) -> float:
        """Seconds of processor time of the proxy, with threads that ended (clock_getcpuclockid)."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def measure(self, schema: str, question: Question, body: Body, *, warm: bool) -> list[Any]:
        self.front.forget()
        began = self.used()
        found = self.ask(schema, question, body)
        times = self.warm if warm else self.new
        times.setdefault(question.name, []).append(1000 * (self.used() - began))
        self.seen.setdefault(question.name, [one for one in map(_shown, self.front.asked) if one])
        return found


def _shown(asked: Asked) -> str:
    path = asked.path.partition("?")[0]
    if path.endswith("/pages/"):
        return f"{len(wire.decode_all(asked.body, PageRef))}p"
    if path.endswith("/rows/"):
        return f"{len(wire.decode_all(asked.body, RowRef))}r"
    return ""


@contextmanager
def _asker(folder: Path, base_url: str, store: Store, sources: Path, name: str) -> Iterator[Asker]:
    """A proxy of these sources that holds the keys and nothing else."""
    shutil.rmtree(folder / name, ignore_errors=True)
    with_keyrings(replace(store.service, data_dir=folder / "proxy"), folder / name)
    shutil.copy(folder / "proxy" / "format", folder / name)
    with ExitStack() as held:
        front = held.enter_context(running_front(base_url))
        more = {"PYTHONPATH": str(sources)}
        service = held.enter_context(stack.running_proxy(folder, front.url, name, more))
        asking = stack.Asking(service.proxy_url, {"Authorization": store.account.auth})
        asking.get("/api/users/self/")
        yield Asker(asking, front, service.process.pid)
        asking.close()


def _stored(folder: Path, service: Service, file: Path) -> Store:
    is_new = not (folder / "store.json").exists()
    store, _ = stack.stored_people(folder, service, file)
    if is_new:
        for result in store.search(None, limit=DEAD, order_by=["email"])["results"]:
            assert store.proxy("DELETE", result["url"]).status == 204
    return store


def compared(folder: Path, total: int, rounds: int, against: Path) -> tuple[Asker, Asker]:
    """What was measured of the other sources, and of these."""
    file = people.csv_file(folder, total)
    with file.open(newline="") as source:
        sample = list(itertools.islice(csv.DictReader(source), 50_000))
    own = Path(__file__).parents[1] / "src"
    with stack.running_api(folder, None) as (base_url, _):
        with stack.running_proxy(folder, base_url) as service:
            store = _stored(folder, service, file)
        with (
            _asker(folder, base_url, store, against, "other") as other,
            _asker(folder, base_url, store, own, "own") as ours,
        ):
            asked = questions(total, sample)
            bodies = {one.name: list(_bodies(one)) for one in asked}
            # All kinds in each round: a machine is as busy for one of them as for another.
            for at in range(rounds + 1):
                for question in asked:
                    for number, body in enumerate(bodies[question.name]):
                        both = [other, ours] if number % 2 else [ours, other]
                        found = [
                            one.measure(store.schema, question, body, warm=at > 0) for one in both
                        ]
                        assert found[0] == found[1], (question.name, body)
            return other, ours


def _bodies(question: Question) -> Iterator[Body]:
    chance = random.Random(question.name)
    for _ in range(KINDS_OF_VALUES):
        yield question.make(chance)


def rows_of(other: Asker, ours: Asker) -> list[Row]:
    found = []
    for name, warm in ours.warm.items():
        beside = [f"{ratio(other, ours, name):4.2f} of {_mostly(other.warm[name]):7.2f}"]
        beside.append(f"new {_mostly(ours.new[name]):7.2f} of {_mostly(other.new[name]):7.2f}")
        beside.append(" ".join(ours.seen[name]) or "nothing")
        if ours.seen[name] != other.seen[name]:
            beside.append(f"and the other {' '.join(other.seen[name]) or 'nothing'}")
        found.append(Row(name, f"{_mostly(warm):7.2f} ms", "  ".join(beside)))
    return found


def ratio(other: Asker, ours: Asker, name: str) -> float:
    """How many times as long a warm question takes."""
    return _mostly(ours.warm[name]) / _mostly(other.warm[name])


def _mostly(found: Sequence[float]) -> float:
    """The mean of the faster half: what else works on the machine makes others slower."""
    return statistics.mean(sorted(found)[: (len(found) + 1) // 2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="keeps what was loaded; temporary if none")
    parser.add_argument("--rounds", type=int, default=4, help="of 10 questions of each kind")
    own = Path(__file__).parents[1] / "src"
    parser.add_argument("--against", type=Path, default=own, help="sources to compare with")
    chosen = parser.parse_args()
    with stack.kept(chosen.folder) as folder:
        other, ours = compared(folder, chosen.records, chosen.rounds, chosen.against.absolute())
    show(f"{chosen.records:,} records, the proxy's processor", rows_of(other, ours))
    ratios = {name: ratio(other, ours, name) for name in ours.warm}
    mean = statistics.geometric_mean(ratios.values())
    worst = max(ratios, key=ratios.__getitem__)
    print(f"\nmean {mean:.3f}, at most {ratios[worst]:.3f} ({worst})")
    if mean > MEAN or ratios[worst] > MOST:
        sys.exit(f"more than {MEAN} as a mean, or {MOST} of one kind")


if __name__ == "__main__":
    main()
