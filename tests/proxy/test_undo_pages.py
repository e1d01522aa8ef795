"""Undo on pages: edited and deleted records come back as the button says, and once."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.page_visits import Browser, logged_in
from tests.support.service import Answer, Service
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.fixture(scope="module")
def store(service: Service) -> Store:
    return new_store(service, DEFINITION)


@pytest.fixture
def ids(store: Store) -> Iterator[list[str]]:
    yield store.ingest([{"name": "Ada"}, {"name": "Grace"}])
    for one in store.found():
        assert store.proxy("DELETE", f"/api/records/{one}/").status == 204


@pytest.fixture
def browser(store: Store) -> Browser:
    return logged_in(store.service, store.account)


def hidden(answer: Answer, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', answer.body.decode())
    return found[1].replace("&#34;", '"') if found else ""


def edit(browser: Browser, record: str, shown: str, typed: str) -> Answer:
    etag = hidden(browser.visit(f"/records/{record}/edit/"), "etag")
    form = {"etag": etag, "shown-0": shown, "value-0": typed}
    return browser.visit(f"/records/{record}/edit/", **form)


def names(store: Store) -> list[str]:
    return sorted(one["data"]["name"] for one in store.everything())


def test_the_undo_of_one_edit_does_not_undo_another(
    store: Store, ids: list[str], browser: Browser
) -> None:
    first = hidden(edit(browser, ids[0], "Ada", "Ida"), "etag")
    second = hidden(edit(browser, ids[0], "Ida", "Eda"), "etag")
    assert first != second
    undo = f"/records/{ids[0]}/undo/"
    assert browser.visit(undo, etag=first).status == 404
    assert names(store) == ["Eda", "Grace"]
    assert browser.visit(undo, etag=second).status == 200
    assert names(store) == ["Grace", "Ida"]
    assert browser.visit(undo, etag=second).status == 404


def test_a_deleted_record_is_stored_again_by_the_button_that_is_of_it(
    store: Store, ids: list[str], browser: Browser
) -> None:
    first = browser.visit(f"/records/{ids[0]}/delete/", do="delete")
    second = browser.visit(f"/records/{ids[1]}/delete/", do="delete")
    assert [hidden(one, "record") for one in (first, second)] == ids
    put_back = f"/schemas/{store.schema_id}/put-back/"
    assert browser.visit(put_back, record=ids[0]).status == 404
    assert names(store) == []
    assert browser.visit(put_back, record=ids[1]).status == 200
    assert browser.visit(put_back, record=ids[1]).status == 404
    assert names(store) == ["Grace"]


def test_after_an_erasure_nothing_is_offered(
    store: Store, ids: list[str], browser: Browser
) -> None:
    browser.visit(f"/records/{ids[0]}/delete/", do="delete")
    erased = browser.visit(f"/records/{ids[1]}/delete/", erase="yes")
    assert "The record was deleted." in erased.body.decode()
    assert "Store it again" not in erased.body.decode()
