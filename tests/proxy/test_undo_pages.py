"""Undo on pages: edited and deleted records come back as the button says, and once."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.responses import Response

from encrypted_records.errors import Conflict, PreconditionFailed
from encrypted_records.proxy.pages import internal_client, records
from tests.support.jobs import as_json, completed, started
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


def change(store: Store, record: str, name: str) -> None:
    changed = store.proxy("PATCH", f"/api/records/{record}/", {"data": {"name": name}})
    assert changed.status == 200


def names(store: Store) -> list[str]:
    return sorted(one["data"]["name"] for one in store.everything())


def test_the_undo_of_one_edit_does_not_undo_another(
    store: Store, ids: list[str], browser: Browser
) -> None:
    first = hidden(edit(browser, ids[0], "Ada", "Ida"), "etag")
    second = hidden(edit(browser, ids[0], "Ida", "Eda"), "etag")
    assert first != second
    undo = f"/records/{ids[0]}/undo/"
    refused = browser.visit(undo, etag=first)
    assert (refused.status, "has changed this record since" in refused.body.decode()) == (409, True)
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
    assert browser.visit(put_back, record=ids[1]).status == 200
    assert browser.visit(put_back, record=ids[1]).status == 404
    assert names(store) == ["Grace"]
    # The page of the earlier deletion may still be open in another tab.
    assert browser.visit(put_back, record=ids[0]).status == 200
    assert browser.visit(put_back, record=ids[0]).status == 404
    assert names(store) == ["Ada", "Grace"]


@pytest.mark.parametrize("more", [{}, {"erase": "yes"}])
def test_a_record_that_changed_since_the_page_was_shown_stays_and_is_shown_again(
    store: Store, ids: list[str], browser: Browser, more: dict[str, str]
) -> None:
    etag = hidden(browser.visit(f"/records/{ids[0]}/delete/"), "etag")
    change(store, ids[0], "Eda")
    refused = browser.visit(f"/records/{ids[0]}/delete/", etag=etag, **more)
    page = refused.body.decode()
    assert refused.status == 409
    assert "has changed this record since, so nothing was deleted" in page
    assert "Eda" in page
    assert names(store) == ["Eda", "Grace"]
    agreed = hidden(refused, "etag")
    assert browser.visit(f"/records/{ids[0]}/delete/", etag=agreed, **more).status == 200
    assert names(store) == ["Grace"]


class Overtaken:
    """A visit that sends the form of a deletion; the record changes after it was first read."""

    sends, id = True, "2JaBQk33WQsJd9EaCr2hDN"

    def __init__(self) -> None:
        self.record = {"id": self.id, "schema": "/api/schemas/x/", "data": {"name": "Ada"}}
        self.version = 1
        self.shown: dict[str, Any] = {}

    def text(self, name: str, default: str = "") -> str:
        return {"etag": '"1"'}.get(name, default)

    async def ask(self, method: str, path: str, **_: Any) -> Any:
        return {"costs": []}

    async def answer(self, method: str, path: str, **more: Any) -> internal_client.ProxyAnswer:
        if method == "DELETE":
            self.record, self.version = {**self.record, "data": {"name": "Eda"}}, 2
            assert more["headers"]["if-match"] == '"1"'
            raise PreconditionFailed("the record now has version 2")
        etag = f'"{self.version}"'.encode()
        return internal_client.ProxyAnswer(200, [(b"etag", etag)], json.dumps(self.record).encode())

    def render(self, template: str, **shown: Any) -> Response:
        self.shown = shown
        return Response()


def test_a_change_between_reading_and_deleting_keeps_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    visit: Any = Overtaken()
    monkeypatch.setattr(records, "_query", lambda _: "")
    with pytest.raises(Conflict, match="nothing was deleted"):
        asyncio.run(records.delete(visit))
    visit.sends = False
    asyncio.run(records.delete(visit))
    assert (visit.shown["thing"]["data"], visit.shown["etag"]) == ({"name": "Eda"}, '"2"')


def test_after_an_erasure_nothing_is_offered(
    store: Store, ids: list[str], browser: Browser
) -> None:
    browser.visit(f"/records/{ids[0]}/delete/", do="delete")
    erased = browser.visit(f"/records/{ids[1]}/delete/", erase="yes")
    assert "The record was deleted." in erased.body.decode()
    assert "Store it again" not in erased.body.decode()


def ticks(browser: Browser, store: Store) -> dict[str, str]:
    """The ticks of all records of the table, as a form sends them."""
    table = browser.visit(f"/schemas/{store.schema_id}/search/").body.decode()
    found = dict(re.findall(r"form=ticked name=(t\d+) value=([\w.]+)", table))
    assert len(found) == len(store.found())
    return found


def edit_all(browser: Browser, store: Store, once: str, value: str, **ticked: str) -> Answer:
    form = {"do": "store", "field": "0", "once": once, "value-0": value, **ticked}
    return browser.visit(f"/schemas/{store.schema_id}/ticked/", **form)


@pytest.mark.usefixtures("ids")
def test_a_form_that_has_stored_a_value_is_refused_with_another_one(
    store: Store, browser: Browser
) -> None:
    ticked = ticks(browser, store)
    assert b"name was changed in 2 records." in edit_all(browser, store, "a", "Eda", **ticked).body
    again = edit_all(browser, store, "a", "Ida", **ticked)
    assert again.status == 400
    assert b"This form has stored another value before." in again.body
    assert names(store) == ["Eda", "Eda"]


@pytest.mark.usefixtures("ids")
def test_an_edit_of_ticked_records_that_is_sent_twice_at_once_is_carried_out_once(
    store: Store, browser: Browser
) -> None:
    ticked = ticks(browser, store)
    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(edit_all, browser, store, "b", "Eda", **ticked) for _ in range(4)]
    answers = [one.result().body for one in sent]
    assert all(b"left as they are" not in one and b"left as it is" not in one for one in answers)
    assert sum(b"name was changed in 2 records." in one for one in answers) >= 1
    assert names(store) == ["Eda", "Eda"]

    def undo() -> int:
        form = {"do": "undo", "edit": "b"}
        return browser.visit(f"/schemas/{store.schema_id}/ticked/", **form).status

    with ThreadPoolExecutor(4) as pool:
        undone = [pool.submit(undo) for _ in range(4)]
    assert sorted(one.result() for one in undone) == [200, 404, 404, 404]
    assert names(store) == ["Ada", "Grace"]


@pytest.mark.usefixtures("ids")
def test_a_record_that_a_form_ticks_twice_is_edited_once(store: Store, browser: Browser) -> None:
    shown = ticks(browser, store)
    edited = edit_all(browser, store, "c", "Eda", **shown, t98=shown["t0"], t99=shown["t0"])
    assert b"name was changed in 2 records." in edited.body
    assert b"left as it is" not in edited.body


def test_an_edit_is_undone_by_nobody_else(store: Store, ids: list[str], browser: Browser) -> None:
    edit_all(browser, store, "d", "Eda", **ticks(browser, store))
    other = logged_in(store.service, store.account)
    form = {"do": "undo", "edit": "d"}
    assert other.visit(f"/schemas/{store.schema_id}/ticked/", **form).status == 404
    assert names(store) == ["Eda", "Eda"]
    assert len(ids) == 2


def test_a_job_whose_records_were_all_changed_since_has_nothing_to_undo(
    store: Store, browser: Browser
) -> None:
    job = started(store, as_json(store, [{"name": "Ada"}]))
    assert completed(store, job)["status"] == "completed"
    (record,) = store.found()
    page = f"{job.removeprefix('/api')}undo/"
    assert b"1 of them is unchanged and will be deleted." in browser.visit(page).body
    change(store, record, "Ida")
    assert b"All records of this job were deleted or changed since" in browser.visit(page).body
    assert store.proxy("DELETE", f"/api/records/{record}/").status == 204
