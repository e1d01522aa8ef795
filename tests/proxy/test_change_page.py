"""The page on which a schema with records gets another definition: the plan, then the change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest

from tests.support.jobs import ended
from tests.support.page_visits import Browser, logged_in
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Full name"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "code": {"type": "string"},
    },
}
ROWS = [{"name": "Ada", "age": 36, "code": "7"}, {"name": "Kurt", "age": 71, "code": "x"}]
FIELD = re.compile(r'<(?:input|textarea|select)[^>]*? name="([^"]+)"[^>]*?(?: value="([^"]*)")?')


@pytest.fixture(scope="module")
def service(services: Callable[[str], Service]) -> Service:
    return services("sqlite")


class Page:
    def __init__(self, service: Service) -> None:
        self.store: Store = new_store(service, DEFINITION)
        self.store.ingest(ROWS)
        self.browser: Browser = logged_in(service, self.store.account)

    def ask(self, path: str, **form: str) -> str:
        sent = {name.replace("_", "-"): value for name, value in form.items()}
        answer = self.browser.visit(f"/schemas/{self.store.schema_id}/{path}", **sent)
        return re.sub(r"\s+", " ", unescape(answer.body.decode()))

    def change(self, **form: str) -> str:
        return self.ask("fields/", **{**rows_of(DEFINITION), **form})

    @property
    def definition(self) -> Any:
        return self.store.proxy("GET", self.store.schema).json()["schema"]


def rows_of(definition: dict[str, Any], **names: str) -> dict[str, str]:
    """The rows of the form as the page shows them, some fields under new ``names``."""
    form = {"name": "Patients"}
    for number, (name, rules) in enumerate(definition["properties"].items()):
        more = {key: value for key, value in rules.items() if key == "title"}
        form |= {
            f"field-{number}": names.get(name, name),
            f"was-{number}": name,
            f"type-{number}": rules["type"],
            f"minimum-{number}": str(rules.get("minimum", "")),
            f"maximum-{number}": str(rules.get("maximum", "")),
            f"more-{number}": json.dumps(more),
        }
    return form


def planned(shown: str) -> str:
    (mark,) = re.findall(r'name="planned" value="([0-9a-f]{8})"', shown)
    return str(mark)


@pytest.fixture
def page(service: Service) -> Page:
    return Page(service)


def test_a_field_gets_another_name_and_keeps_its_values(page: Page) -> None:
    assert 'name="was-1" value="age"' in page.ask("fields/")
    form = rows_of(DEFINITION, age="years") | {"maximum_1": "150"}
    shown = page.change(**form, do="plan")
    assert "years: it was named 'age' (at once)" in re.sub(r"</?\w+[^>]*>", "", shown)
    assert "age" in page.definition["properties"]
    page.change(**form, do="apply", planned=planned(shown))
    assert page.definition["properties"]["years"]["maximum"] == 150
    found = page.store.search({"field": "years", "op": "eq", "value": 36})["results"]
    assert [one["data"]["name"] for one in found] == ["Ada"]


def test_what_stands_in_the_way_is_counted_and_shown_by_a_search(page: Page) -> None:
    shown = page.change(maximum_1="60", do="plan")
    assert "1 record prevents the change, of 2." in shown
    assert 'name="planned"' not in shown
    (form,) = [one for one in shown.split("<form ") if "Show them</button>" in one]
    filters = dict(re.findall(r'type="hidden" name="(part-0)" value="([^"]*)"', form))
    assert filters == {"part-0": "age in (71)"}
    found = page.ask("search/", do="search", **filters)
    assert ("Kurt" in found, "Ada" in found) == (True, False)
    assert page.definition["properties"]["age"]["maximum"] == 120


def test_a_definition_that_somebody_has_changed_since_is_not_replaced(page: Page) -> None:
    shown = page.ask("fields/")
    (replaced,) = re.findall(r'name="replaces"[^>]*>([^<]*)<', shown)
    theirs = {**DEFINITION, "retention": {"days": 900}}
    assert page.store.proxy("PATCH", page.store.schema, {"schema": theirs}).status == 200
    for do in ("plan", "apply"):
        refused = page.change(maximum_1="150", replaces=replaced, do=do)
        assert "changed the fields since you opened this page" in refused
        assert 'name="planned"' not in refused
    assert page.definition == theirs
    (now,) = re.findall(r'name="replaces"[^>]*>([^<]*)<', page.ask("fields/"))
    assert 'name="planned"' in page.change(maximum_1="150", replaces=now, do="plan")


def test_addresses_of_before_lead_to_the_pages_that_took_their_place(page: Page) -> None:
    at = f"{page.browser.at}/schemas/{page.store.schema_id}/"
    for old, new in {
        "edit/": "fields/",
        "change/": "fields/",
        "retention/": "settings/",
        "look/?q=abcdefghijklmnop": "overview/",
        "": "search/",
    }.items():
        assert f'href="{at}{new}" aria-current="page"' in page.ask(old), old


def test_another_type_and_a_field_less_seal_all_records_again_once_that_is_said(
    page: Page,
) -> None:
    form = rows_of(DEFINITION) | {"type_1": "string"}
    for part in ("field", "was", "type"):
        del form[f"{part}-2"]
    assert "1 record stands in the way" not in page.ask("fields/", **form, do="plan")
    shown = page.ask("fields/", **form, do="plan")
    assert "2 records prevent the change, of 2." in shown
    assert 'value="code"' in shown
    shown = page.ask("fields/", **form, drop_0="code", do="plan")
    assert "Re-encrypting 2 records takes about" in shown
    told = page.ask("fields/", **form, drop_0="code", do="apply", planned=planned(shown))
    (job,) = set(re.findall(r"/jobs/([0-9a-f-]{36})/", told))
    assert ended(page.store, f"/api/jobs/{job}/")["status"] == "completed"
    page.ask("fields/")
    assert page.definition["properties"] == {
        "name": {"type": "string", "title": "Full name"},
        "age": {"type": "string"},
    }
    (ada,) = page.store.search({"field": "age", "op": "eq", "value": "36"})["results"]
    assert ada["data"] == {"name": "Ada", "age": "36"}


def test_titles_that_somebody_changed_since_are_not_replaced_by_those_of_the_reseal(
    page: Page,
) -> None:
    form = rows_of(DEFINITION) | {"type_1": "string"}
    shown = page.ask("fields/", **form, do="plan")
    told = page.ask("fields/", **form, do="apply", planned=planned(shown))
    (job,) = set(re.findall(r"/jobs/([0-9a-f-]{36})/", told))
    assert ended(page.store, f"/api/jobs/{job}/")["status"] == "completed"
    changed = page.definition
    changed["properties"]["age"]["title"] = "Years of age"
    page.store.proxy("POST", f"{page.store.schema}change/", {"schema": changed})
    for _ in range(2):
        assert "Years of age" in page.ask("fields/")
    assert page.definition["properties"]["age"]["title"] == "Years of age"


def test_what_would_take_something_else_by_now_is_shown_again_and_not_done(page: Page) -> None:
    shown = page.change(maximum_1="75", do="plan")
    mark = planned(shown)
    page.store.ingest([{"name": "Old", "age": 110}])
    again = page.change(maximum_1="75", do="apply", planned=mark)
    assert "1 record prevents the change, of 3." in again
    assert planned(page.change(maximum_1="115", do="plan")) != mark
    assert "What the change requires" in page.change(maximum_1="115", do="apply", planned=mark)
    assert page.definition["properties"]["age"]["maximum"] == 120


def test_a_definition_that_is_none_is_said_and_nothing_is_planned(page: Page) -> None:
    for form in ({"minimum_1": "ten"}, {"json": "{", "json_shown": ""}, {"field_1": "name"}):
        shown = page.change(**form, do="plan")
        assert 'role="alert"' in shown
        assert "What the change requires</h2>" not in shown
