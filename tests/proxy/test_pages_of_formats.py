"""Pages know dates, and the unique fields of a schema, also without scripts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.page_visits import Browser, logged_in
from tests.support.service import Answer, Service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "born": {"type": "string", "format": "date"},
        "seen": {"type": "string", "format": "date-time"},
        "email": {"type": "string"},
        "noted": {"type": "string", "format": "local-date-time"},
        "took": {"type": "string", "format": "duration"},
    },
    "unique": [["email"]],
}


@dataclass
class World:
    store: Store
    browser: Browser

    def visit(self, path: str, **form: str) -> Answer:
        answer = self.browser.visit(f"/schemas/{self.store.schema_id}/{path}", **form)
        assert answer.status == 200, answer.body
        return answer


@pytest.fixture(scope="module")
def world(service: Service) -> World:
    store = new_store(service, DEFINITION)
    # Sixty days of two months, and instants of three years.
    store.ingest(
        [
            {
                "born": f"2026-{1 + n // 30:02}-{1 + n % 28:02}",
                "seen": f"{2020 + 30 * (n % 3)}-06-15T12:00:00Z",
                "email": f"{n}@x",
            }
            for n in range(60)
        ]
        + [{"email": "none"}]
    )
    return World(store, logged_in(service, store.account))


def columns(answer: Answer) -> list[tuple[str, int]]:
    """What each column of a picture is of, and how many records it has."""
    found = re.findall(r"<title>([^<]*): ([0-9,]+) records?", answer.body.decode())
    return [(unescape(label), int(count)) for label, count in found]


def test_dates_are_counted_by_the_shortest_period_that_gives_few_columns(world: World) -> None:
    days = columns(world.visit("facet/0/", large="yes"))
    assert (days[0], days[-1], len(days)) == (("2026-01-01", 2), ("2026-02-28", 1), 59)
    assert sum(count for _, count in days) == 60


def test_years_without_a_record_are_columns_too(world: World) -> None:
    years = columns(world.visit("facet/1/", large="yes"))
    assert years == [
        (str(year), 20 if year in (2020, 2050, 2080) else 0) for year in range(2020, 2081)
    ]


def test_days_chosen_below_a_picture_become_a_filter_that_finds_them(world: World) -> None:
    typed = {"from-0": "2026-02-01", "to-0": "2026-02-28"}
    found = world.visit("search/", do="search", **typed)
    assert b"<strong>30 records</strong>" in found.body
    # What a filter finds has the columns of all, and all stands behind it.
    asked = {"part-0": "born = 2026-02"}
    picture = world.visit("facet/0/", large="yes", **asked)
    assert b'class="behind"' in picture.body
    months = [(label[:7], count) for label, count in columns(picture)]
    assert {label for label, count in months if count} == {"2026-02"}
    assert {label for label, _ in months} == {"2026-01", "2026-02"}


def test_the_editor_changes_formats_and_unique_fields_without_scripts(world: World) -> None:
    store = world.store.another_schema(DEFINITION)
    page = World(store, world.browser)
    shown = page.visit("fields/").body.decode()
    assert re.search(r'name="unique-2"[^>]* checked', shown)
    assert not re.search(r'name="unique-0"[^>]* checked', shown)
    form = {
        **{"do": "plan", "field-0": "born", "type-0": "date"},
        **{"field-1": "seen", "type-1": "date-time", "field-2": "email", "type-2": "string"},
        **{"field-3": "since", "type-3": "time", "unique-0": "yes"},
    }
    plan = page.visit("fields/", **form).body.decode()
    (planned,) = re.findall(r'name="planned" value="([^"]*)"', plan)
    page.visit("fields/", **form | {"do": "apply", "planned": planned})
    changed = store.proxy("GET", store.schema).json()["schema"]
    assert changed["formats"] == "enforced"
    assert changed["properties"]["since"] == {"type": "string", "format": "time"}
    assert changed["unique"] == [["born"]]
    assert re.search(r'name="unique-0"[^>]* checked', page.visit("fields/").body.decode())


def test_pages_say_which_values_were_rounded_once_beside_the_record_and_beside_the_job(
    world: World,
) -> None:
    price = {"type": "number", "minimum": 0, "maximum": 9, "precision": 1}
    store = world.store.another_schema({"type": "object", "properties": {"price": price}})
    page = World(store, world.browser)
    said = b"Rounded to the decimals that the schema keeps: <bdi>price</bdi>."

    added = page.visit("add/", **{"value-0": "3.99"})
    assert said in added.body
    (record,) = store.everything()
    assert said not in world.browser.visit(f"/records/{record['id']}/").body
    form = {"shown-0": "4.0", "value-0": "2.75"}
    assert said in world.browser.visit(f"/records/{record['id']}/edit/", **form).body
    form = {"shown-0": "2.8", "value-0": "2.5"}
    assert said not in world.browser.visit(f"/records/{record['id']}/edit/", **form).body

    body = [{"schema": store.schema, "data": {"price": 0.25}}]
    job = store.proxy("POST", "/api/jobs/upload/", body).json()["job_id"]
    about = f"/api/jobs/{job}/about/"
    eventually(lambda: store.proxy("GET", about).json()["status"] == "completed")
    assert store.proxy("GET", about).json()["rounded"] == {"price": 1}
    shown = world.browser.visit(f"/jobs/{job}/").body
    assert b"1 value of <bdi>price</bdi> rounded to the decimals" in shown


def test_a_form_of_a_record_that_is_sent_again_stores_it_once(world: World) -> None:
    store = world.store.another_schema({"type": "object", "properties": {"n": {"type": "string"}}})
    page = World(store, world.browser)
    (once,) = re.findall(r'name="once" value="([^"]+)"', page.visit("add/").body.decode())
    form = {"value-0": "typed", "once": once}
    first, second = (page.visit("add/", **form).body for _ in range(2))
    assert b"Record of" in first
    assert b"Record of" in second
    assert [one["data"] for one in store.everything()] == [{"n": "typed"}]

    # Nobody can tell whether a form of long ago was sent before.
    old = {**form, "once": "01900000-0000-7000-8000-000000000000"}
    refused = world.browser.visit(f"/schemas/{store.schema_id}/add/", **old)
    assert refused.status == 400
    assert b"loaded more than a day ago" in refused.body
    (again,) = re.findall(r'name="once" value="([^"]+)"', refused.body.decode())
    page.visit("add/", **{"value-0": "typed", "once": again})
    assert len(store.everything()) == 2


def test_a_form_takes_durations_and_local_times_as_browsers_send_them(world: World) -> None:
    places = {name: place for place, name in enumerate(DEFINITION["properties"])}
    typed = {"email": "timed", "noted": "2026-01-31T08:30", "took": "PT90M"}
    form = {f"value-{places[name]}": text for name, text in typed.items()}
    world.visit("add/", do="add", **form)
    where = {"field": "took", "op": "gt", "value": "PT1H"}
    (found,) = world.store.search(where)["results"]
    assert found["data"] == {
        "email": "timed",
        "noted": "2026-01-31T08:30:00",
        "took": "PT1H30M",
    }
