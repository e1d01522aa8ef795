"""An owner lets a dataset's older keys go by its page: a new key, all of it sealed again, and the
older one forgotten."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect

from tests.browser.visitor import Visitor
from tests.proxy.test_reseal import groups
from tests.support import jobs
from tests.support.service import Service
from tests.support.store import new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
}


def test_a_new_key_is_begun_all_is_sealed_under_it_and_the_older_one_is_forgotten(
    visitor: Visitor, site: Service
) -> None:
    store = new_store(site, DEFINITION)
    named = store.ingest([{"n": n} for n in range(5)])
    dataset = store.proxy("GET", store.schema).json()["dataset"].removeprefix("/api")
    page = visitor.page
    visitor.log_in(store.account, f"{dataset}settings/")
    visitor.press("Keys")
    visitor.expect_heading("Keys of data")
    expect(page.locator("#keys")).to_contain_text("The dataset has had no other key.")

    visitor.press("Rotate the key")
    expect(page.locator("#keys")).to_contain_text("encrypted under key 2")
    expect(page.locator("main")).to_contain_text(
        "First, 5 records of 1 schema must be re-encrypted"
    )
    expect(page.get_by_role("button", name="Forget the older keys")).to_have_count(0)
    assert visitor.serious_flaws() == []

    visitor.press("Re-encrypt them")
    visitor.expect_heading("Jobs")
    newest = store.proxy("GET", "/api/jobs/").json()["results"][0]["job_id"]
    jobs.completed(store, f"/api/jobs/{newest}/")
    assert {epoch for _, epoch in groups(store)} == {2}

    visitor.go(f"{dataset}keys/")
    expect(page.locator("main")).to_contain_text("the newest key")
    assert visitor.serious_flaws() == []
    forgotten = page.locator("#keys", has_text="All earlier keys are forgotten")
    # What was sealed before is erased by the API a little later.
    for _ in range(60):
        visitor.press("Forget the older keys")
        waits = page.get_by_text("The data from before the re-encryption is not erased yet.")
        expect(forgotten.or_(waits)).to_be_visible()
        if forgotten.count():
            break
        page.wait_for_timeout(1000)
    expect(page.get_by_role("button", name="Forget the older keys")).to_have_count(0)
    assert store.found() == named


def test_a_dataset_that_nobody_stored_into_has_no_keys_to_show(
    visitor: Visitor, site: Service
) -> None:
    store = new_store(site, DEFINITION)
    dataset = store.proxy("GET", store.schema).json()["dataset"].removeprefix("/api")
    visitor.log_in(store.account, f"{dataset}settings/")
    link = visitor.page.get_by_role("link", name="Keys", exact=True)
    expect(visitor.page.get_by_role("link", name="Delete…", exact=True)).to_be_visible()
    expect(link).to_have_count(0)
    store.ingest([{"n": 1}])
    visitor.page.reload()
    expect(link).to_be_visible()
