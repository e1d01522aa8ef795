"""Questions about words, parts of texts and dates over HTTP, and why nothing was found.

Notes of 8 to 40 words, drawn from 50,000 by Zipf's law, in a field whose words are indexed; an
instant, and an e-mail address that each record has alone. Warm is a question that was asked before.
Figures are milliseconds as the client sees them, p50 / p95, with ten records decrypted.

    .venv/bin/python -m bench.questions --records 100000 --folder /var/tmp/bench
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

from bench.jobs import send
from bench.support import people, stack
from bench.support.table import Row, show
from tests.support import jobs
from tests.support.postgres import running_server
from tests.support.service import Account, Service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "note": {"type": "string", "x-index": ["words"]},
        "email": {"type": "string"},
        "seen": {"type": "string", "format": "date-time"},
    },
}
VOCABULARY = 50_000
_SHARES = list(accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))
_BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
PATIENCE = 7200
#: Different questions of each kind.
KINDS_OF_VALUES = 20
Body = dict[str, Any]
Make = Callable[[random.Random], Body]


def some_words(chance: random.Random, count: int) -> list[str]:
    ranks = chance.choices(range(VOCABULARY), cum_weights=_SHARES, k=count)
    return [f"word{rank}" for rank in ranks]


def row(chance: random.Random, number: int) -> dict[str, str]:
    return {
        "note": " ".join(some_words(chance, chance.randrange(8, 41))),
        "email": f"somebody{number}@example.com",
        "seen": (_BEGIN + timedelta(seconds=97 * number)).isoformat(),
    }


def csv_file(folder: Path, total: int) -> Path:
    path = folder / f"notes-{total}.csv"
    chance = random.Random(5)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(DEFINITION["properties"])
        writer.writerows(row(chance, number).values() for number in range(total))
    return path


def questions(total: int) -> dict[str, tuple[int, Make]]:
    """By name: the goal in milliseconds at a million records, and how a condition is made."""

    def note(op: str, words: Callable[[random.Random], list[str]]) -> Make:
        return lambda chance: {"field": "note", "op": op, "value": " ".join(words(chance))}

    def rare(chance: random.Random) -> list[str]:
        return [f"word{chance.randrange(VOCABULARY // 2, VOCABULARY)}"]

    def day(chance: random.Random) -> Body:
        moment = _BEGIN + timedelta(seconds=97 * chance.randrange(total))
        return {"field": "seen", "op": "eq", "value": moment.date().isoformat()}

    def part(chance: random.Random) -> Body:
        return {"field": "email", "op": "contains", "value": f"body{chance.randrange(total)}@"}

    return {
        "has_words, one rare word": (20, note("has_words", rare)),
        "has_words, a frequent and a rare": (
            20,
            note("has_words", lambda one: ["word3", *rare(one)]),
        ),
        "has_words, two frequent": (
            20,
            note("has_words", lambda one: ["word1", f"word{one.randrange(2, 99)}"]),
        ),
        "has_phrase, two frequent": (
            0,
            note("has_phrase", lambda one: ["word1", f"word{one.randrange(2, 99)}"]),
        ),
        "contains, unique": (60, part),
        "a day of instants": (10, day),
    }


def stored(folder: Path, service: Service, total: int) -> Store:
    note = folder / "store.json"
    if note.exists():
        told = json.loads(note.read_text())
        return Store(service, Account(**told["account"]), told["schema"])
    store = new_store(service, DEFINITION)
    upload = people.as_upload(csv_file(folder, total), store.schema_id)
    began = time.monotonic()
    path = send(store, upload, "text/csv", 1000)
    count = jobs.completed(store, path, within=PATIENCE)["total"]
    print(f"{count / (time.monotonic() - began):,.0f} records/s")
    stack.merge(store)
    note.touch(mode=0o600)
    note.write_text(json.dumps({"account": asdict(store.account), "schema": store.schema}))
    return store


def measure(ask: Callable[[Body], Any], make: Make, rounds: int) -> list[float]:
    bodies = [make(random.Random(at)) for at in range(KINDS_OF_VALUES)]
    found = []
    for at in range(rounds + 1):
        for body in bodies:
            began = time.perf_counter()
            ask(body)
            if at:
                found.append((time.perf_counter() - began) * 1000)
    return sorted(found)


def shown(name: str, found: Sequence[float], goal: int) -> Row:
    p50, p95 = (found[int(len(found) * share)] for share in (0.5, 0.95))
    met = f"goal {goal} {'met' if p50 <= goal else 'missed'}" if goal else ""
    return Row(name, f"{p50:6.1f} /{p95:6.1f} ms", met)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="keeps what was loaded; temporary if none")
    parser.add_argument("--rounds", type=int, default=5, help="of 20 questions of each kind")
    chosen = parser.parse_args()
    total: int = chosen.records
    with stack.kept(chosen.folder) as whole:
        folder = whole / f"questions-{total}"
        (folder / "postgres").mkdir(exist_ok=True, parents=True)
        with (
            running_server(folder / "postgres", durable=True) as server,
            stack.running_api(folder, stack.database(server, "questions")) as (base_url, _),
            stack.running_proxy(folder, base_url) as service,
        ):
            store = stored(folder, service, total)
            asking = stack.logged_in(store)

            def search(where: Body) -> Any:
                body = {"schema": store.schema, "where": where, "limit": 10}
                return asking.post("/api/records/search/", body)

            def why(where: Body) -> Any:
                return asking.post("/api/records/why/", {"schema": store.schema, "where": where})

            rows = [
                shown(name, measure(search, make, chosen.rounds), goal)
                for name, (goal, make) in questions(total).items()
            ]
            nothing = {"field": "note", "op": "has_words", "value": "nowhere"}
            rows.append(shown("why nothing has a word", measure(why, lambda _: nothing, 1), 0))
            show(f"{total:,} records, warm p50 / p95, ten decrypted", rows)


if __name__ == "__main__":
    main()
