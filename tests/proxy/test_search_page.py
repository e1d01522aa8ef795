"""What a page of records asks the API, and that it is of the schema as it is by now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import urlencode

import pytest

from encrypted_records.proxy.pages import search, search_form
from tests.support.front import Front, honest, running_front
from tests.support.page_visits import Browser, logged_in
from tests.support.proxies import running_proxy
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


@dataclass
class World:
    front: Front
    store: Store
    browser: Browser

    @property
    def path(self) -> str:
        return f"/schemas/{self.store.schema_id}/search/"

    def search(self, **form: str) -> Answer:
        """As a script sends the form, for the part of the page that it shows."""
        url = f"{self.browser.service.proxy_url}{self.browser.at}{self.path}"
        headers = {
            "Cookie": self.browser.cookie,
            "Origin": self.browser.service.proxy_url,
            "HX-Request": "true",
            "HX-Target": "search",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        fields = {"csrf": self.browser.cookie.rpartition(".")[2], "do": "search", **form}
        return call("POST", url, urlencode(fields).encode(), headers=headers)


@pytest.fixture
def world(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("search")
    with running_front(service.base_url) as front, running_proxy(front.url, folder) as proxy:
        own = replace(service, proxy_url=proxy.url)
        store = new_store(own, DEFINITION)
        store.ingest([{"name": "Ada"}, {"name": "Grace"}])
        world = World(front, store, logged_in(own, store.account))
        assert world.browser.visit(world.path).status == 200
        assert world.search().status == 200
        yield world


def test_the_tab_of_records_has_their_number_until_something_may_have_changed(
    world: World,
) -> None:
    fields = f"/schemas/{world.store.schema_id}/fields/"

    def count() -> list[str]:
        page = world.browser.visit(fields).body.decode()
        return re.findall(r'id="tab-count"[^>]*>([^<]+)<', page)

    assert count() == ["2"]
    world.search(**{"part-0": 'name = "Ada"'})
    assert count() == ["2"]
    added = f"/schemas/{world.store.schema_id}/add/"
    assert world.browser.visit(added, **{"value-0": "Edsger"}).status == 200
    assert count() == []
    world.browser.visit(f"/datasets/{dataset_of(world)}/")
    assert count() == ["3"]


def dataset_of(world: World) -> str:
    url = world.store.service.proxy_url + world.store.schema
    return str(call("GET", url, auth=world.store.account.auth).json()["dataset"].split("/")[-2])


def test_a_search_asks_the_api_for_no_more_than_the_records(world: World) -> None:
    world.front.forget()
    answer = world.search(**{"ask": "name = 'Ada'"})
    assert b"1 record<" in answer.body
    asked = [one.path.partition("?")[0] for one in world.front.asked]
    assert f"/api/schemas/{world.store.schema_id}/" not in asked
    of_the_frame = ("/api/datasets/", "/api/organizations/", "/api/invitations/", "/api/schemas/")
    assert not set(asked) & set(of_the_frame)
    assert len(asked) <= 2, asked
    # What surrounds a page is not sent again.
    assert b"<nav" not in answer.body.partition(b'id="search"')[0]


def test_completions_ask_the_api_for_no_more_than_a_search(world: World) -> None:
    def complete(typed: str) -> bytes:
        world.front.forget()
        path = f"/schemas/{world.store.schema_id}/complete/"
        answer = world.browser.visit(path, ask=typed, caret=str(len(typed)))
        assert answer.status == 200
        return answer.body

    for typed, offered in (("na", b"<bdi>name</bdi>"), ("name st", b"<bdi>starts with</bdi>")):
        assert offered in complete(typed)
        assert [one.path for one in world.front.asked] == []
    assert b'<bdi>Grace</bdi> <span class="quiet">1</span>' in complete('name = "Gr')
    assert b"Ada" not in complete('name = "Gr')
    # The head of the log, as before every search; no value is in any address.
    assert len(world.front.asked) <= 2
    assert not [one for one in world.front.asked if "Gr" in one.path]

    # Another end of a text is not looked for instead.
    assert b"<bdi>" not in complete('name = "Xy')
    # Nothing surrounds them that would be looked at again after a change.
    settings = f"/schemas/{world.store.schema_id}/settings/"
    assert world.browser.visit(settings, do="save", name="", description="").status == 400
    assert b"<bdi>name</bdi>" in complete("na")
    assert [one.path for one in world.front.asked] == []


def test_a_line_that_is_not_understood_says_where_and_the_answer_stays(world: World) -> None:
    answer = world.search(ask="name = Ada")
    assert answer.status == 400
    assert answer.headers["HX-Retarget"] == "#filters"
    said = answer.body.decode()
    assert 'data-wrong-at="7"' in said
    assert "Expected a value" in said
    assert 'value="name = Ada"' in said
    # Its records still lead to those before and after them.
    shown = world.browser.visit(world.path).body.decode()
    assert world.search(ask="name = Ada").status == 400
    (first, *_) = re.findall(r"/records/([0-9A-Za-z]{22})/", shown)
    assert b"1 of 2 on this page" in world.browser.visit(f"/records/{first}/").body
    # A field that somebody else has added meanwhile is known by then.
    more = {"type": "object", "properties": {"name": {"type": "string"}, "w": {"type": "string"}}}
    assert world.store.proxy("PATCH", world.store.schema, {"schema": more}).status == 200
    assert b"<strong>0 records</strong>" in world.search(ask="w = 'a'").body


def test_a_line_that_is_not_understood_is_said_without_scripts_while_the_api_is_down(
    world: World,
) -> None:
    world.front.lie = lambda _asked, _reply: None
    answer = world.browser.visit(world.path, do="search", ask="name = Ada")
    assert answer.status == 400
    assert "Expected a value" in answer.body.decode()
    assert 'value="name = Ada"' in answer.body.decode()


def test_forged_numbers_of_fields_and_parts_are_refused(world: World) -> None:
    huge = "1" * 5000
    pair = f"/schemas/{world.store.schema_id}/pair/"
    assert world.browser.visit(pair, down=huge, across="0").status == 404
    assert world.browser.visit(world.path, do=f"remove:{huge}").status == 400


def test_a_row_that_no_number_leads_to_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (search, search_form):
        monkeypatch.setattr(module, "MAX_OFFSET", 0)
    answer = world.search(do="row", row="2")
    assert b"1 to 2 shown" in answer.body
    assert b"Row numbers can be at most 1." in answer.body
    assert b"to reach row 2" in answer.body
    assert b"Row numbers can be at most" not in world.search(do="row", row="1").body


def test_a_change_made_here_shows_with_the_next_search(world: World) -> None:
    schema = world.store.schema_id
    changed = world.browser.visit(
        f"/schemas/{schema}/settings/", do="save", name="Other rows", description=""
    )
    assert changed.status == 200, changed.body
    shown = world.browser.visit(world.path)
    assert b"<h1><bdi>Other rows</bdi>" in shown.body


def test_a_field_that_somebody_else_has_added_shows_with_its_first_value(world: World) -> None:
    more = {"name": {"type": "string"}, "city": {"type": "string"}}
    definition = {"type": "object", "properties": more}
    changed = world.store.proxy("PATCH", world.store.schema, {"schema": definition})
    assert changed.status == 200, changed.body
    world.store.ingest([{"name": "Alan", "city": "London"}])
    shown = world.search()
    assert b"<bdi>city</bdi>" in shown.body
    assert b"London" in shown.body
    # And a filter by it is no filter by a field that there is not.
    found = world.search(**{"ask": "city = 'London'"})
    assert b"1 record<" in found.body


def test_a_link_opens_nothing_while_the_api_does_not_say_who_reaches_the_schema(
    world: World,
) -> None:
    asked = {"part-0": "name = 'Ada'"}
    made = world.browser.visit(f"/schemas/{world.store.schema_id}/link/", **asked)
    found = re.search(r'value="https?://[^/]+(/go/[^#]+)(#k=[^"]+)"', made.body.decode())
    assert found is not None
    world.front.lie = lambda _asked, _reply: None
    answer = world.browser.visit(found[1], secret=found[2])
    assert (answer.status, b"Ada" in answer.body) == (502, False)
    world.front.lie = honest
    assert b"1 record<" in world.browser.visit(found[1], secret=found[2]).body
