"""The forms for name and description of schemas and datasets, without a browser: what a second tab
or a second person has stored meanwhile is not overwritten."""

from __future__ import annotations

import re
from html import unescape

import pytest

from tests.support.page_visits import Browser, logged_in
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.fixture
def store(service: Service) -> Store:
    return new_store(service, DEFINITION)


@pytest.fixture
def browser(store: Store) -> Browser:
    return logged_in(store.service, store.account)


def path_of(store: Store, kind: str) -> str:
    if kind == "schemas":
        return store.schema
    schema = call("GET", store.service.proxy_url + store.schema, auth=store.account.auth)
    return str(schema.json()["dataset"])


def etag_in(page: Answer) -> str:
    (etag,) = re.findall(r'name="etag" value="([^"]+)"', page.body.decode())
    return unescape(etag)


def stored(store: Store, path: str) -> tuple[str, str]:
    told = call("GET", store.service.proxy_url + path, auth=store.account.auth).json()
    return told["name"], told["description"]


@pytest.mark.parametrize("kind", ["schemas", "datasets"])
@pytest.mark.parametrize("records", [0, 1])
def test_a_second_tab_overwrites_no_name_silently(
    store: Store, browser: Browser, kind: str, records: int
) -> None:
    if records:
        store.ingest([{"name": "Ada"}])
    path = path_of(store, kind)
    page = f"{path.removeprefix('/api')}settings/"
    shown = etag_in(browser.visit(page))
    first = {"do": "save", "name": "Visits", "description": "of 2026", "etag": shown}
    assert browser.visit(page, **first).status == 200
    assert stored(store, path) == ("Visits", "of 2026")

    late = first | {"name": "<b>Patients</b>", "description": "typed late"}
    refused = browser.visit(page, **late)
    said = refused.body.decode()
    assert refused.status == 409
    assert "somebody has changed this" in said.lower()
    assert 'value="&lt;b&gt;Patients&lt;/b&gt;"' in said
    assert 'value="typed late"' in said
    assert "<bdi>Visits</bdi>" in said
    assert "<bdi>of 2026</bdi>" in said
    assert stored(store, path) == ("Visits", "of 2026")

    # Sent once more, for what is stored now.
    assert browser.visit(page, **late | {"etag": etag_in(refused)}).status == 200
    assert stored(store, path) == ("<b>Patients</b>", "typed late")


def test_a_refused_name_keeps_the_version_that_it_is_for(store: Store, browser: Browser) -> None:
    page = f"{store.schema.removeprefix('/api')}settings/"
    shown = etag_in(browser.visit(page))
    refused = browser.visit(page, do="save", name="", description="kept", etag=shown)
    assert refused.status == 400
    assert etag_in(refused) == shown
    assert 'value="kept"' in refused.body.decode()


def test_a_refused_form_is_shown_again_with_the_reason_above_it(
    store: Store, browser: Browser
) -> None:
    page = f"{store.schema.removeprefix('/api')}reseal/"
    refused = browser.visit(page, drawn="1")
    assert (refused.status, refused.headers["X-Error-Code"]) == (409, "nothing_to_reseal")
    said = refused.body.decode()
    assert said.index('class="problem"') < said.index("Re-encrypt all records</button>")


def test_if_match_is_for_no_definition_which_a_log_has(store: Store) -> None:
    store.ingest([{"name": "Ada"}])
    url = store.service.proxy_url + store.schema
    etag = call("GET", url, auth=store.account.auth).headers["ETag"]
    body = {"schema": DEFINITION | {"required": ["name"]}}
    headers = {"If-Match": str(etag)}
    refused = call("PATCH", url, body, auth=store.account.auth, headers=headers)
    assert refused.status == 400
    assert call("GET", url, auth=store.account.auth).json()["schema"] == DEFINITION


def test_who_is_in_no_organization_is_told_so_when_they_make_a_dataset(service: Service) -> None:
    owner, other = service.new_account(), service.new_account()
    invited = {"email": other.email, "role": "owner"}
    url = f"{service.proxy_url}{other.organization}"
    # Their own organization goes on with another owner.
    call("POST", f"{url}invitations/", invited | {"email": owner.email}, auth=other.auth)
    (one,) = call("GET", f"{service.proxy_url}/api/invitations/", auth=owner.auth).json()["results"]
    accept = f"{service.proxy_url}/api/invitations/{one['id']}/accept/"
    assert call("POST", accept, auth=owner.auth).status == 201
    (own,) = [
        member["url"]
        for member in call("GET", f"{url}members/", auth=other.auth).json()["results"]
        if member["email"] == other.email
    ]
    assert call("DELETE", service.proxy_url + own, auth=other.auth).status == 204

    answer = logged_in(service, other).visit("/datasets/new/")
    assert answer.status == 404
    assert b"You belong to no organization" in answer.body
