"""What signed commits cost end to end: the same records stored and searched with and without them.

Two organizations of one API and one proxy: one with a roster, whose commits are signed, and one
from before there were rosters, which a record without a signature makes it. Both are asked in
turns, in rounds, so that what else the machine does meets both. The design's goals: storing is at
most 3 % slower, searching not at all.

    .venv/bin/python -m bench.signing --records 20000 --rounds 5

Times are of the processors of both sides; those of the clock stand beside them.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.jobs import send
from bench.support import people, stack
from bench.support.processes import Meter
from bench.support.table import Row, show
from encrypted_records.model import wire
from encrypted_records.proxy.sharing.settling import Sharing
from tests.proxy.sharing.people import Person
from tests.server.api import PERSON, Api
from tests.server.api import Account as ApiAccount
from tests.server.writer import Writer, person
from tests.support import jobs
from tests.support.service import Service, call
from tests.support.store import Store, new_store

#: Records of one direct ingest; how many of them, and of searches, a round has.
AT_ONCE, INGESTS, SEARCHES = 100, 20, 100


@dataclass
class Measured:
    """Seconds of the processor, and of the clock, of each round."""

    processor: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)


def has_roster(store: Store) -> bool:
    path = f"{store.account.organization}roster/?since=0"
    return store.api("GET", path).body != wire.encode([])


def unsigned_store(service: Service) -> Store:
    """Of an organization with a record that nobody signed: it goes on without a roster."""
    account = service.new_account()
    made = call(
        "POST",
        f"{service.base_url}/api/datasets/",
        {"name": "before", "organization": account.organization},
        auth=account.auth,
    ).json()
    body = {"name": "before", "dataset": made["url"], "schema": PERSON}
    schema = call("POST", f"{service.base_url}/api/schemas/", body, auth=account.auth).json()
    credentials = {"email": account.email, "password": account.password}
    token = call("POST", f"{service.base_url}/api/token/", credentials).json()["access"]
    port = urlsplit(service.base_url).port
    assert port is not None
    api = Api(service.process, port, service.data_dir, service.log_file)
    own = ApiAccount(api, account.email, account.password, token, account.organization)
    writer = Writer(own, schema)
    writer.send(writer.adding([person()]))
    body = {"name": "people", "dataset": made["url"], "schema": people.DEFINITION}
    schema = call("POST", f"{service.base_url}/api/schemas/", body, auth=account.auth).json()
    return Store(service, account, schema["url"])


def signed_store(service: Service, folder: Path) -> Store:
    store = new_store(service, people.DEFINITION)
    owner = Person(service, store.account, folder / "proxy" / "proxy")

    async def found(sharing: Sharing) -> None:
        await sharing.founding.found(owner.holder, owner.organization, store.account.email)

    owner.do(found)
    return store


def ingest(store: Store, chance: random.Random) -> None:
    for _ in range(INGESTS):
        store.ingest([people.record(chance, chance.randrange(10**9)) for _ in range(AT_ONCE)])


def search(store: Store, chance: random.Random) -> None:
    for _ in range(SEARCHES):
        store.search({"field": "age", "op": "eq", "value": chance.randrange(18, 95)}, limit=10)


def upload(store: Store, file: Path) -> None:
    pieces = people.as_upload(file, store.schema_id)
    jobs.completed(store, send(store, pieces, "text/csv", 1000), within=stack.PATIENCE)


Work = Callable[[Store, random.Random], None]


def measure(
    meter: Meter, stores: Sequence[Store], work: Work, rounds: int
) -> tuple[Measured, Measured]:
    """The same work on both stores in turns, after one round that does not count."""
    found = Measured(), Measured()
    for turn in range(rounds + 1):
        order = (0, 1) if turn % 2 else (1, 0)
        for at in order:
            meter.rest()
            used, began = meter.both, time.perf_counter()
            work(stores[at], random.Random(turn))
            if turn:
                found[at].clock.append(time.perf_counter() - began)
                found[at].processor.append(meter.both - used)
    return found


def compared(what: str, both: tuple[Measured, Measured], goal: float) -> Row:
    unsigned, signed = both
    ratio = statistics.median(signed.processor) / statistics.median(unsigned.processor)
    clock = statistics.median(signed.clock) / statistics.median(unsigned.clock)
    spread = max(unsigned.processor) / min(unsigned.processor)
    met = "met" if ratio <= goal else "missed"
    return Row(
        what,
        f"{ratio:.3f} of the processor, {clock:.3f} of the clock",
        f"goal {goal:.2f}: {met}; unsigned rounds differ by {spread:.2f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=20_000, help="of each round's batch job")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    with (
        stack.kept(None) as folder,
        stack.running_api(folder, None) as (base_url, api),
        stack.running_proxy(folder, base_url) as service,
    ):
        file = people.csv_file(folder, chosen.records)
        stores = (unsigned_store(service), signed_store(service, folder))
        meter = Meter(service, api)
        kinds: list[tuple[str, Work, float]] = [
            ("direct ingest, 100 records", ingest, 1.03),
            (f"batch job, {chosen.records} records", lambda store, _: upload(store, file), 1.03),
            ("search, ten records", search, 1.0),
        ]
        rows = [
            compared(what, measure(meter, stores, work, chosen.rounds), goal)
            for what, work, goal in kinds
        ]
        if [has_roster(store) for store in stores] != [False, True]:
            raise SystemExit("these are not one organization without a roster and one with it")
    show("signed / unsigned", rows)


if __name__ == "__main__":
    main()
