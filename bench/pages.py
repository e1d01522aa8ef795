"""The page of records beside the endpoint that it asks: how much does a page cost above that?

Both are asked the same questions in turn, warm, fifty records and a count each, over one connection
each: the endpoint with a token, the page with its form (as a script sends it) and by its address
(as a browser opens it). Printed are milliseconds, p50 / p95, and the processor time of proxy and
API together, whose ratio is what a busy machine disturbs least. The goal is a ratio of 1.5.

    .venv/bin/python -m bench.pages --records 1000000 --folder /var/tmp/bench-pages

The folder keeps what was stored for the next run.
"""

from __future__ import annotations

import argparse
import http.client
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from bench.support import people, stack
from bench.support.processes import Meter
from bench.support.table import Row, show
from tests.support.page_visits import Browser, logged_in
from tests.support.store import Store

GOAL = 1.5
#: What a page shows of an answer.
RECORDS = 50
#: Different questions of each kind.
KINDS_OF_VALUES = 10
Form = dict[str, str]
Body = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """The same question as a form of the page, and as the body of a search."""

    name: str
    make: Callable[[random.Random, int], tuple[Form, Body]]


def _everything(_chance: random.Random, _total: int) -> tuple[Form, Body]:
    return {}, {}


def _equality(chance: random.Random, _total: int) -> tuple[Form, Body]:
    status = chance.choice(["active", "closed", "new", "pending"])
    form = {"part-0": f'status = "{status}"'}
    return form, {"where": {"field": "status", "op": "eq", "value": status}}


def _range(share: float) -> Callable[[random.Random, int], tuple[Form, Body]]:
    def make(chance: random.Random, total: int) -> tuple[Form, Body]:
        width = max(1, int(total * share))
        first = chance.randrange(total - width + 1)
        last = first + width - 1
        form = {"part-0": f"number between {first} and {last}"}
        return form, {"where": {"field": "number", "op": "between", "value": [first, last]}}

    return make


def _sorted_tenth(chance: random.Random, total: int) -> tuple[Form, Body]:
    form, body = _range(0.1)(chance, total)
    form |= {"order": "salary", "descending": "yes"}
    return form, body | {"order_by": [{"field": "salary", "descending": True}]}


QUESTIONS = [
    Question("all records", _everything),
    Question("equality, common", _equality),
    Question("range over a share of 0.001", _range(0.001)),
    Question("range over a share of 0.5", _range(0.5)),
    Question("a tenth, by salary", _sorted_tenth),
]


class Pages:
    """One connection of a browser that is logged in."""

    def __init__(self, browser: Browser, schema: str) -> None:
        self._browser = browser
        self.path = f"{browser.at}/schemas/{schema}/search/"
        self._connection = http.client.HTTPConnection(
            urlsplit(browser.service.proxy_url).netloc, timeout=600
        )

    def send(self, form: Form) -> tuple[str, str]:
        """What the form answers to a script: the page, and its address."""
        sent = {"csrf": self._browser.cookie.rpartition(".")[2], "do": "search", **form}
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "HX-Request": "true",
            "HX-Target": "search",
            "Origin": self._browser.service.proxy_url,
        }
        return self._ask("POST", self.path, urlencode(sent), headers)

    def open(self, address: str) -> tuple[str, str]:
        return self._ask("GET", address, None, {})

    def _ask(
        self, method: str, path: str, body: str | None, headers: dict[str, str]
    ) -> tuple[str, str]:
        headers = {"Cookie": self._browser.cookie, **headers}
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, (answer.status, text[:2000])
        headers_of_step = ("HX-Push-Url", "HX-Replace-Url")
        steps = [answer.headers[name] for name in headers_of_step if name in answer.headers]
        return text, str(next(iter(steps), path))


@dataclass
class Asked:
    """Of one way to ask: milliseconds of each time, and the processor's of all."""

    times: list[float] = field(default_factory=list)
    processor: float = 0.0

    @property
    def each(self) -> float:
        return 1000 * self.processor / len(self.times)

    def says(self) -> str:
        p95 = sorted(self.times)[int(0.95 * len(self.times))]
        return f"{statistics.median(self.times):6.1f} /{p95:6.1f}"


def measure(
    question: Question, store: Store, total: int, rounds: int, meter: Meter
) -> dict[str, Asked]:
    """The figures of each way. Before that, all ways have given the same answer."""
    chance = random.Random(question.name)
    made = [question.make(chance, total) for _ in range(KINDS_OF_VALUES)]
    asking = stack.logged_in(store)
    pages = Pages(logged_in(store.service, store.account), store.schema_id)
    addresses = []
    for form, body in made:
        answer = asking.post("/api/records/search/", endpoint_body(store, body))
        text, address = pages.send(form)
        addresses.append(address)
        for page in (text, pages.open(address)[0]):
            assert f"{answer['count']:,} record" in page
            assert all(f"/records/{result['id']}/" in page for result in answer["results"])

    def send(at: int) -> None:
        # A session keeps its latest questions: an address of long ago is not known any more.
        addresses[at] = pages.send(made[at][0])[1]

    ways: dict[str, list[Callable[[], Any]]] = {
        "endpoint": [
            lambda body=body: asking.post("/api/records/search/", endpoint_body(store, body))  # type: ignore[misc]
            for _, body in made
        ],
        "form": [partial(send, at) for at in range(len(made))],
        "address": [lambda at=at: pages.open(addresses[at]) for at in range(len(made))],  # type: ignore[misc]
    }
    found = {way: Asked() for way in ways}
    for _ in range(rounds):
        for way, calls in ways.items():
            busy = meter.both
            for call in calls:
                began = time.perf_counter()
                call()
                found[way].times.append((time.perf_counter() - began) * 1000)
            found[way].processor += meter.both - busy
    asking.close()
    return found


def endpoint_body(store: Store, body: Body) -> Body:
    return {"schema": store.schema, "limit": RECORDS, "count": True, **body}


def rows_of(name: str, found: dict[str, Asked]) -> list[Row]:
    endpoint = found["endpoint"]
    rows = []
    for way, asked in found.items():
        beside = f"processor {asked.each:5.1f}"
        if way != "endpoint":
            ratio = asked.each / endpoint.each
            waited = statistics.median(asked.times) / statistics.median(endpoint.times)
            met = "met" if ratio <= GOAL else "missed"
            beside += f"  ratio {ratio:4.2f}, of the time {waited:4.2f}  goal {GOAL} {met}"
        rows.append(Row(f"{name}: {way}", f"{asked.says()} ms", beside))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="keeps what was stored; temporary if none")
    parser.add_argument("--rounds", type=int, default=10, help="of 10 questions of each kind")
    parser.add_argument("--store-only", action="store_true", help="store the records, and end")
    chosen = parser.parse_args()
    with stack.kept(chosen.folder) as folder:
        file = people.csv_file(folder, chosen.records)
        with (
            stack.running_api(folder, None) as (base_url, api),
            stack.running_proxy(folder, base_url) as service,
        ):
            store, rate = stack.stored_people(folder, service, file)
            print(f"{chosen.records:,} records, stored by a CSV job at {rate}", flush=True)
            if chosen.store_only:
                return
            meter = Meter(service, api)
            rows: list[Row] = []
            for question in QUESTIONS:
                found = measure(question, store, chosen.records, chosen.rounds, meter)
                rows += rows_of(question.name, found)
            show("warm p50 / p95, 50 records decrypted; ratio to the endpoint", rows)


if __name__ == "__main__":
    main()
