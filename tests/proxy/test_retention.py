"""Records go when they are older than the signed definition lets them be; no API hastens it."""

from __future__ import annotations

import asyncio
import dataclasses
import html
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest

from encrypted_records.ingest.seal import seal
from encrypted_records.model import ids
from encrypted_records.model.definition import DAY_MILLISECONDS
from encrypted_records.model.records import BlockNames, PlainRecord
from encrypted_records.proxy.process import CLOCK
from encrypted_records.proxy.search.context import QueryContext
from encrypted_records.proxy.services import Services
from encrypted_records.proxy.settings import Overrides
from tests.proxy.lies import on
from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.front import Asked, Front, Lie, Reply, running_front
from tests.support.page_visits import logged_in
from tests.support.proxies import running_proxy
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
from tests.support.service import Answer, Service
from tests.support.store import Store, new_store

DAYS = 30
BY_DATE = {"days": DAYS, "field": "seen"}
BY_AGE = {"days": DAYS}


def definition_of(rule: dict[str, Any] | None, kind: str = "date") -> dict[str, Any]:
    kept = {} if rule is None else {"retention": rule}
    return {
        "type": "object",
        "formats": "enforced",
        "properties": {
            "name": {"type": "string"},
            "seen": {"type": "string", "format": kind},
        },
        **kept,
    }


def rows_by_date(kind: str = "date") -> list[dict[str, Any]]:
    """Three that go, and three that stay: days are far from the edge, whatever midnight does."""
    now = datetime.now(UTC)

    def row(days: int) -> dict[str, Any]:
        moment = (now - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"name": f"{days} days", "seen": moment if kind == "date-time" else moment[:10]}

    return [row(days) for days in (32, 400, 9000, 28, -5)] + [{"name": "no date"}]


def look(store: Store) -> dict[str, Any]:
    answer = store.proxy("GET", f"{store.schema}retention/")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def run(store: Store) -> Answer:
    return store.proxy("POST", f"{store.schema}retention/")


def actions(store: Store) -> list[str]:
    entries = store.api("GET", f"{store.account.organization}audit-log/").json()["results"]
    return [entry["action"] for entry in entries if entry["subject"] == store.schema]


@pytest.mark.parametrize("kind", ["date", "date-time"])
def test_records_go_by_a_date_of_theirs_and_those_without_one_stay(
    service: Service, kind: str
) -> None:
    store = new_store(service, definition_of(BY_DATE, kind))
    early = run(store)
    assert (early.status, early.json()["code"]) == (409, "no_retention")
    assert "no record was ever stored" in early.json()["detail"]
    named = store.ingest(rows_by_date(kind))
    gone, left = named[:3], named[3:]
    due = look(store)
    assert (due["retention"], due["records"]) == (BY_DATE, 3)
    assert look(store) == due  # to look lets nothing go
    done = run(store)
    assert (done.status, done.json()["deleted"]) == (200, 3), done.body
    assert done.json()["before"] == due["before"]
    assert store.found() == left
    assert all(store.proxy("GET", f"/api/records/{one}/").status == 404 for one in gone)
    assert actions(store).count("records.expired") == 1
    assert run(store).json()["deleted"] == 0
    assert actions(store).count("records.expired") == 1
    assert "records.deleted" not in actions(store)
    asked = {"schema": definition_of({"days": 20, "field": "seen"}, kind), "dry_run": True}
    assert store.proxy("POST", f"{store.schema}change/", asked).json()["old_enough"] == 1
    assert store.found() == left


def test_the_page_of_a_schema_says_what_goes_and_lets_it_go(service: Service) -> None:
    store = new_store(service, definition_of(BY_DATE))
    left = store.ingest(rows_by_date())[3:]
    browser = logged_in(service, store.account)
    page = f"/schemas/{store.schema_id}/settings/"
    shown = browser.visit(page).body.decode()
    assert "Records expire 30 days after" in shown
    assert "<b>3 records</b>" in shown
    after = browser.visit(page, do="expire").body.decode()
    assert "<b>0 records</b>" in after
    assert store.found() == left
    plain = store.another_schema(definition_of(None))
    shown = browser.visit(f"/schemas/{plain.schema_id}/retention/").body.decode()
    assert "Records stay until somebody deletes them" in shown


def test_the_page_of_a_rule_takes_another_one_and_says_first_what_goes(service: Service) -> None:
    store = new_store(service, definition_of(None))
    store.ingest(rows_by_date())
    browser = logged_in(service, store.account)
    page = f"/schemas/{store.schema_id}/settings/"
    shown = browser.visit(page, do="keep", days="30", field="seen", stay="").body.decode()
    assert "3 records would expire at once under this rule" in shown
    assert look(store)["retention"] is None
    refused = browser.visit(page, do="keep", days="soon", field="seen", stay="")
    assert (refused.status, b'value="soon"' in refused.body) == (400, True)
    # A rule that lets more go than was agreed to is asked about again.
    fewer = browser.visit(page, do="keep-and-let-go:2", days="30", field="seen", stay="")
    assert b"keep-and-let-go:3" in fewer.body
    assert look(store)["retention"] is None
    browser.visit(page, do="keep-and-let-go:3", days="30", field="seen", stay="")
    assert look(store)["retention"] == BY_DATE
    # A page that shows no rule by now replaces none.
    stale = browser.visit(page, do="keep", days="", field="", stay="always", shown="")
    assert (stale.status, b"changed the rule since you opened this page" in stale.body) == (
        409,
        True,
    )
    assert look(store)["retention"] == BY_DATE
    (rule,) = re.findall(r'name="shown" value="([^"]*)"', stale.body.decode())
    form = {"days": "", "field": "", "stay": "always", "shown": html.unescape(rule)}
    browser.visit(page, do="keep", **form)
    assert look(store)["retention"] is None


def store_old(store: Store, folder: Path, names: Sequence[str], *, days: int) -> list[str]:
    """Records that a proxy stored so many days ago, as their ids say."""
    moment = int(time.time() * 1000) - days * DAY_MILLISECONDS
    plain = [
        PlainRecord(moment.to_bytes(6, "big") + ids.new_id()[6:], 1, {"name": name})
        for name in names
    ]

    async def act(proxy: Proxy) -> None:
        upload = seal(proxy.state.ledger, proxy.state.definition, plain).upload
        (receipt,) = await proxy.services.api.commit([upload], proxy.caller.auth)
        await proxy.services.schemas.settle(proxy.caller, proxy.state, upload, receipt)

    act_as_second(store, folder, act)
    return [ids.to_text(one.record_id) for one in plain]


def test_a_record_is_as_old_as_its_first_version_whatever_became_of_it_since(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, definition_of(None))
    young = store.ingest([{"name": "young"}, {"name": "other"}])
    folder = with_keyrings(service, tmp_path)
    old = store_old(store, folder, ["a", "b", "c"], days=DAYS + 2)
    young += store_old(store, folder, ["d"], days=DAYS - 2)
    changed = store.proxy("PATCH", f"/api/records/{old[1]}/", {"data": {"name": "changed"}})
    assert changed.status == 200, changed.body
    due = look(store)
    assert (due["retention"], due["before"], due["records"]) == (None, None, 0)
    assert (run(store).status, run(store).json()["code"]) == (409, "no_retention")
    # Sealed again, all of them are of one group and one moment.
    begun = store.proxy("POST", f"{store.schema}reseal/")
    jobs.completed(store, begun.headers["X-Job-Status-URL"])
    asked = {"schema": definition_of(BY_AGE), "dry_run": True}
    planned = store.proxy("POST", f"{store.schema}change/", asked).json()
    assert (planned["takes"], planned["old_enough"]) == ("commit", 3)
    answer = store.proxy("PATCH", store.schema, {"schema": definition_of(BY_AGE)})
    assert answer.status == 200, answer.body
    assert look(store)["records"] == 3
    assert run(store).json()["deleted"] == 3
    assert sorted(store.found()) == sorted(young)


def test_the_first_question_of_a_day_carries_the_rule_out(service: Service) -> None:
    store = new_store(service, definition_of(BY_DATE))
    left = store.ingest(rows_by_date())[3:]
    eventually(lambda: store.found() == left, "what is old enough is gone")
    assert "records.expired" in actions(store)
    # Once a day: what is old now goes tomorrow, or when somebody asks.
    again = store.ingest(rows_by_date()[:1])
    assert again[0] in store.found()
    assert run(store).json()["deleted"] == 1


class Clock:
    def __init__(self) -> None:
        self.days = 0

    def __call__(self) -> float:
        return time.time() + self.days * DAY_MILLISECONDS / 1000


@dataclass
class Place:
    """A store behind a front, with a proxy of its own whose clock can be set."""

    store: Store
    front: Front
    clock: Clock
    services: Services


@contextmanager
def placed(store: Store, folder: Path, *, days: int = 0) -> Iterator[Place]:
    """The store by a proxy of its own, which finds its clock so many days ahead when it starts."""
    clock = Clock()
    clock.days = days
    with (
        running_front(store.service.base_url) as front,
        running_proxy(
            front.url, with_keyrings(store.service, folder), overrides=Overrides(clock=clock)
        ) as proxy,
    ):
        proxy.settle(CLOCK)
        service = dataclasses.replace(store.service, proxy_url=proxy.url)
        behind = dataclasses.replace(store, service=service)
        yield Place(behind, front, clock, proxy.services)


@pytest.fixture(scope="module")
def place(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Two records of today, under a rule by age."""
    store = new_store(service, definition_of(BY_AGE))
    with placed(store, tmp_path_factory.mktemp("retention")) as place:
        place.store.ingest([{"name": "one"}, {"name": "two"}])
        yield place


@pytest.fixture
def unmoved(place: Place) -> Iterator[Place]:
    """What it has afterwards is what it had."""
    before = place.store.found()
    yield place
    place.front.lie, place.clock.days = lambda _asked, reply: reply, 0
    assert len(before) == 2
    assert place.store.found() == before


def stating(days: float | str | None) -> Lie:
    """The API's time is so many days off, or this text; None states none."""

    def lie(_asked: Asked, reply: Reply) -> Reply:
        headers = {name: one for name, one in reply.headers.items() if name.lower() != "date"}
        if isinstance(days, str):
            headers["Date"] = days
        elif days is not None:
            headers["Date"] = formatdate(time.time() + days * 86_400, usegmt=True)
        return dataclasses.replace(reply, headers=headers)

    return lie


@pytest.mark.parametrize(
    ("own", "stated"),
    [(0, 400), (0, -2), (400, 0), (-2, 0), (0, None), (0, "soon"), (-2, -2)],
)
def test_a_clock_that_cannot_be_right_deletes_nothing_and_says_why(
    unmoved: Place, own: int, stated: float | str | None
) -> None:
    unmoved.clock.days = own
    with unmoved.front.telling(stating(stated)):
        answer = run(unmoved.store)
    assert (answer.status, answer.json()["code"]) == (409, "clock_wrong"), answer.body


@pytest.mark.parametrize("stated", [2, None])
def test_a_clock_that_is_behind_stores_nothing_that_others_would_delete_for_its_age(
    place: Place, stated: float | None
) -> None:
    place.services.changer._committer._right_until = 0.0
    aged = place.store.another_schema(definition_of(BY_AGE))
    dated = place.store.another_schema(definition_of(BY_DATE))
    with place.front.telling(stating(stated)):
        answer = aged.send([{"name": "new"}])
        assert (answer.status, answer.json()["code"]) == (409, "clock_wrong"), answer.body
        assert len(dated.ingest([{"name": "new"}])) == 1
    assert aged.found() == []
    assert len(aged.ingest([{"name": "new"}])) == 1


def older(items: list[msgspec.Struct]) -> list[msgspec.Struct]:
    """The names of rows, of ten years ago."""
    first = (int(time.time() * 1000) - 3650 * DAY_MILLISECONDS).to_bytes(6, "big")
    told: list[msgspec.Struct] = []
    for item in items:
        assert isinstance(item, BlockNames)
        rows = [
            row and msgspec.structs.replace(row, record_id=first + row.record_id[6:])
            for row in item.rows
        ]
        told.append(msgspec.structs.replace(item, rows=rows))
    return told


def test_an_api_that_says_that_records_are_older_has_none_deleted(place: Place) -> None:
    store = place.store.another_schema(definition_of(BY_AGE))
    named = store.ingest([{"name": "one"}, {"name": "two"}])
    with place.front.telling(on(["names"], older)):
        answer = run(store)
    assert answer.json()["code"] == "does_not_open", answer.body
    assert run(store).json()["deleted"] == 0
    assert store.found() == named


def shorter(_asked: Asked, reply: Reply) -> Reply:
    """The API shows a rule by which all is too old tomorrow."""
    if not reply.headers.get("Content-Type", "").startswith("application/json"):
        return reply
    return reply.with_body(re.sub(rb'("days": ?)30', rb"\g<1>1", reply.body))


def test_the_rule_is_that_of_the_log_whatever_the_api_shows(place: Place) -> None:
    store = place.store.another_schema(definition_of(BY_AGE))
    named = store.ingest([{"name": "one"}])
    with place.front.telling(shorter):
        shown = store.proxy("GET", store.schema).json()["schema"]["retention"]
        assert (shown, look(store)["retention"]) == ({"days": 1}, BY_AGE)
        assert run(store).json()["retention"] == BY_AGE
    assert store.found() == named


def test_after_both_clocks_jumped_ahead_records_go_only_once_somebody_says_that_they_are_right(
    place: Place,
) -> None:
    store = place.store.another_schema(definition_of(BY_AGE))
    named = store.ingest([{"name": "one"}, {"name": "two"}])
    assert "clock_jumped" not in store.proxy("GET", "/api/status/").json()
    place.clock.days = 400
    try:
        with place.front.telling(stating(400)):
            assert store.found() == named
            done = run(store)
            assert (done.status, done.json()["deleted"], done.json()["held"]) == (200, 0, 2)
            assert "400 days" in done.json()["doubt"]
            due = look(store)
            assert (due["records"], due["held"]) == (0, 2)
            assert "400 days" in due["doubt"]
            assert store.proxy("GET", "/api/status/").json()["clock_jumped"] is True
            browser = logged_in(store.service, store.account)
            page = f"/schemas/{store.schema_id}/settings/"
            shown = html.unescape(browser.visit(page).body.decode())
            assert "This machine's clock is right" in shown
            assert "<b>2 records</b>, because" in shown
            assert store.found() == named
            browser.visit(page, do="expire", clock="right")
            assert store.found() == []
            assert (look(store)["held"], look(store)["doubt"]) == (0, None)
            assert "clock_jumped" not in store.proxy("GET", "/api/status/").json()
    finally:
        place.clock.days = 0


def test_records_that_are_old_enough_without_the_days_in_doubt_go(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, definition_of(BY_DATE))
    with placed(store, tmp_path) as place, place.front.telling(stating(20)):
        place.clock.days = 20
        named = place.store.ingest(rows_by_date())
        done = run(place.store).json()
        # Of 32, 400 and 9000 days, and then of 28, which would be 48 by that clock.
        assert (done["deleted"], done["held"]) == (3, 1)
        assert "jumped ahead by 20 days" in done["doubt"]
        assert place.store.found() == named[3:]


def test_a_new_proxy_doubts_a_time_long_after_the_logs_last_earlier_day(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, definition_of(BY_AGE))
    named = store.ingest([{"name": "one"}])
    with placed(store, tmp_path, days=400) as place, place.front.telling(stating(400)):
        done = run(place.store).json()
        assert (done["deleted"], done["held"]) == (0, 1)
        assert "400 days old" in done["doubt"]
        assert place.store.found() == named


def test_a_rule_that_is_taken_away_meanwhile_deletes_nothing(place: Place) -> None:
    store = place.store.another_schema(definition_of(BY_DATE))
    named = store.ingest(rows_by_date())
    retainer = place.services.retainer
    original: Callable[..., Any] = retainer._find
    taken: list[int] = []

    async def find(now: float, context: QueryContext) -> list[int]:
        found: list[int] = await original(now, context)
        if not taken:
            change = {"schema": definition_of(None)}
            answer = await asyncio.to_thread(store.proxy, "PATCH", store.schema, change)
            taken.append(answer.status)
        return found

    retainer._find = find  # type: ignore[method-assign]
    try:
        answer = run(store)
    finally:
        del retainer._find
    assert taken == [200]
    assert (answer.status, answer.json()["code"]) == (409, "no_retention"), answer.body
    assert store.found() == named
