"""The page of API tokens, without a script: made, shown once, listed, revoked."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from tests.support.page_visits import Browser, logged_in
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}
PATH = "/account/tokens/"


def text_of(answer: Answer) -> str:
    return answer.body.decode()


def token_in(answer: Answer) -> str:
    found = re.findall(r'value="(ers[rw]1_[A-Za-z0-9_-]{43})"', text_of(answer))
    (token,) = found
    return str(token)


def make(browser: Browser, password: str, **form: str) -> Answer:
    asked = {"do": "make", "name": "report", "scope": "read", "days": "30", "reach": "all"}
    return browser.visit(PATH, **asked | {"password": password} | form)


def test_a_token_is_shown_once_listed_and_revoked(service: Service) -> None:
    store = new_store(service, DEFINITION)
    store.ingest([{"name": "Ada"}])
    browser = logged_in(service, store.account)
    assert PATH in text_of(browser.visit("/account/"))

    made = make(browser, store.account.password)
    assert made.status == 200
    token = token_in(made)
    assert token.startswith("ersr1_")
    url = f"{service.proxy_url}/api/records/search/"
    found = call("POST", url, {"schema": store.schema}, auth=f"Bearer {token}")
    assert [result["data"] for result in found.json()["results"]] == [{"name": "Ada"}]

    listed = text_of(browser.visit(PATH))
    assert token not in listed
    assert "all of yours" in listed
    assert "never" not in listed
    (name,) = re.findall(r'value="revoke:([A-Za-z0-9]{22})"', listed)
    assert "revoke:" not in text_of(browser.visit(PATH, do=f"revoke:{name}"))
    refused = call("POST", url, {"schema": store.schema}, auth=f"Bearer {token}")
    assert refused.status == 401


def test_a_form_that_ticks_no_dataset_makes_no_token_of_all(service: Service) -> None:
    store = new_store(service, DEFINITION)
    browser = logged_in(service, store.account)
    refused = make(browser, store.account.password, reach="some")
    assert refused.status == 400
    assert make(browser, store.account.password, days="1" * 5000).status == 400
    assert "ersr1_" not in text_of(refused)
    schema = call("GET", service.proxy_url + store.schema, auth=store.account.auth)
    dataset = schema.json()["dataset"].split("/")[-2]
    limited = make(browser, store.account.password, reach="some", **{f"dataset-{dataset}": "yes"})
    answer = call("GET", f"{service.proxy_url}/api/tokens/", auth=store.account.auth)
    assert limited.status == 200
    (one,) = answer.json()["results"]
    assert one["datasets"] == [f"/api/datasets/{dataset}/"]


def test_without_the_password_there_is_no_token_and_what_was_typed_stays(
    service: Service,
) -> None:
    store = new_store(service, DEFINITION)
    browser = logged_in(service, store.account)
    refused = make(browser, "another password", name="for <b>tests</b>", scope="write")
    assert refused.status == 400
    page = text_of(refused)
    assert "Is not the current password" in page
    assert 'value="for &lt;b&gt;tests&lt;/b&gt;"' in page
    assert "another password" not in page
    assert "ersw1_" not in page
    answer = call("GET", f"{service.proxy_url}/api/tokens/", auth=store.account.auth)
    assert answer.json()["results"] == []


def listed(service: Service, store: Store) -> list[str]:
    answer = call("GET", f"{service.proxy_url}/api/tokens/", auth=store.account.auth)
    return sorted(token["name"] for token in answer.json()["results"])


def drawn_in(page: Answer) -> str:
    return str(re.findall(r"name=drawn value=([A-Za-z0-9_-]{12})>", text_of(page))[-1])


def test_a_button_that_is_pressed_twice_makes_one_token_and_both_answers_show_it(
    service: Service,
) -> None:
    store = new_store(service, DEFINITION)
    browser = logged_in(service, store.account)
    drawn = drawn_in(browser.visit(PATH))
    with ThreadPoolExecutor() as clicks:
        sent = [clicks.submit(make, browser, store.account.password, drawn=drawn) for _ in "12"]
        answers = [answer.result() for answer in sent]
    assert len({token_in(answer) for answer in answers}) == 1
    assert listed(service, store) == ["report"]


def test_what_is_typed_otherwise_or_into_another_page_makes_another_token(
    service: Service,
) -> None:
    store = new_store(service, DEFINITION)
    browser = logged_in(service, store.account)
    drawn = drawn_in(browser.visit(PATH))
    refused = make(browser, "another password", drawn=drawn)
    assert refused.status == 400
    for form in ({"drawn": drawn}, {"drawn": drawn, "name": "other"}, {"drawn": drawn_in(refused)}):
        assert make(browser, store.account.password, **form).status == 200
    assert listed(service, store) == ["other", "report", "report"]
