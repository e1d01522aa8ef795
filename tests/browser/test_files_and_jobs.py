"""A file on its way is told apart, told of in plain words, never stored twice by mistake; and what
its job stored can be taken back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Request, Route, WebSocketRoute, expect

from tests.browser.census import Census
from tests.browser.conftest import visiting
from tests.browser.test_never_blank import end_session
from tests.browser.test_widths import photograph
from tests.browser.visitor import Visitor
from tests.support.jobs import completed, started
from tests.support.service import Service, call
from tests.support.store import Store, new_schema

PASSPHRASE = "violet harbour 49 lantern"
DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name"],
}


@pytest.fixture
def people(site: Service, census: Census) -> Store:
    """A schema of its own, of the account that the other tests log in to."""
    account = site.new_account()
    return Store(site, account, new_schema(site, account, DEFINITION))


def written(folder: Path, *rows: str, name: str = "people.csv") -> Path:
    file = folder / name
    file.write_text("\n".join(["name,age", *rows, ""]))
    return file


def count(people: Store) -> int:
    return len(people.everything())


def opened(visitor: Visitor, people: Store, page: str = "upload") -> None:
    visitor.log_in(people.account, f"/schemas/{people.schema_id}/{page}/")


def test_the_same_file_is_stored_again_only_after_a_question(
    visitor: Visitor, people: Store, tmp_path: Path
) -> None:
    page = visitor.page
    opened(visitor, people)
    file = written(tmp_path, "Ada,36", "Grace,85")
    visitor.upload(file)
    visitor.newest_job("completed, 2 of 2 records")

    visitor.go(f"/schemas/{people.schema_id}/upload/")
    visitor.upload(file)
    row = page.locator(".file")
    expect(row).to_contain_text(
        re.compile(r"stored this file at \d\d? [A-Z][a-z]{2,3}, \d\d:\d\d: 2 records")
    )
    assert visitor.serious_flaws() == []
    assert count(people) == 2

    again = page.get_by_role("button", name="Store again people.csv", exact=True)
    again.click()
    expect(row).to_contain_text("completed, 2 of 2 records")
    assert count(people) == 4


def test_a_file_that_a_program_has_stored_is_stored_again_only_after_a_question(
    visitor: Visitor, people: Store, tmp_path: Path
) -> None:
    file = written(tmp_path, "Ada,36", "Grace,85")
    completed(
        people, started(people, file.read_bytes(), "text/csv", query=f"?schema={people.schema_id}")
    )
    opened(visitor, people)
    visitor.upload(file)
    row = visitor.page.locator(".file")
    expect(row.get_by_role("button", name="Store again people.csv", exact=True)).to_be_visible()
    assert count(people) == 2


def test_a_locked_keyring_is_said_in_place_and_unlocking_it_is_all_that_is_missing(
    chromium: Browser, site: Service, tmp_path: Path
) -> None:
    account = site.new_account()
    people = Store(site, account, new_schema(site, account, DEFINITION))
    people.ingest([{"name": "Alan"}])
    change = {"new": PASSPHRASE, "proof": {"password": account.password}}
    with visiting(chromium, site, quiet=False) as visitor:
        opened(visitor, people)
        visitor.be_let_in(account)
        visitor.go(f"/schemas/{people.schema_id}/upload/")
        changed = people.proxy("POST", "/api/keyring/passphrase/", change)
        assert changed.status == 200, changed.body
        assert people.proxy("POST", "/api/keyring/lock/").status == 200
        visitor.upload(written(tmp_path, "Ada,36"))
        row = visitor.page.locator(".file")
        expect(row.get_by_role("alert")).to_have_text(
            "Your keyring is locked, so nothing can be encrypted. Unlock the keyring."
        )
        assert "tus" not in row.inner_text()
        assert visitor.serious_flaws() == []
        # In a tab of its own: the file that was chosen stays chosen.
        with visitor.page.context.expect_page() as tab:
            row.get_by_role("link", name="Unlock the keyring").click()
        passphrase = tab.value.locator("form:has([value=unlock]) input[name=passphrase]")
        passphrase.fill(PASSPHRASE)
        passphrase.press("Enter")
        expect(passphrase).to_have_count(0)
        row.get_by_role("button", name="Try again people.csv").click()
        expect(row).to_contain_text("completed, 1 of 1 record")


def test_a_file_whose_job_fails_is_not_called_complete(
    visitor: Visitor, people: Store, tmp_path: Path
) -> None:
    opened(visitor, people)
    visitor.upload(written(tmp_path, "Ada,36", "Grace,eighty"))

    row = visitor.page.locator(".file")
    expect(row.locator(".state")).to_have_text("failed")
    expect(row.get_by_role("alert")).to_contain_text("1 of 2 records does not match the schema")
    assert "omplete" not in row.inner_text()
    assert "(" not in row.get_by_role("alert").inner_text()
    visitor.newest_job("failed")
    assert visitor.serious_flaws() == []
    # Its page shows the row itself.
    row.get_by_role("link", name="Job of people.csv").click()
    bad = visitor.page.get_by_role("region", name="Values of the rejected rows").locator("tbody tr")
    expect(bad).to_have_count(1)
    assert bad.locator("td").first.inner_text() == "Grace"
    expect(bad.locator("td.unfit")).to_contain_text("eighty")
    assert visitor.serious_flaws() == []
    photograph(visitor, "job-failed")


def test_jobs_are_told_apart_and_those_of_one_schema_are_listed_alone(
    visitor: Visitor, people: Store, tmp_path: Path
) -> None:
    opened(visitor, people)
    name = "first <b>\u202egnp.csv"  # turns no text around it, and is no tag
    visitor.upload(written(tmp_path, "Ada,36", name=name))
    visitor.newest_job("completed, 1 of 1 record")

    visitor.go("/jobs/")
    card = visitor.page.locator(".jobs > li").first
    assert card.get_by_role("link").locator("bdi").first.inner_text() == name
    facts = card.locator(".job-facts").inner_text()
    assert "rows" in facts  # the schema's name
    assert re.search(r"\d+ \w+,? \d\d:\d\d", facts)
    assert re.search(r"\d+ bytes", facts)
    assert re.search(r"second", facts)
    assert re.search(r"[\d,]+ records/s", facts)
    visitor.go(f"/schemas/{people.schema_id}/jobs/")
    expect(visitor.page.locator(".jobs > li")).to_have_count(1)
    assert visitor.serious_flaws() == []


def test_a_cancelled_job_is_cancelled_and_not_failed(
    visitor: Visitor, people: Store, site: Service
) -> None:
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": "1000"}
    made = call("POST", f"{site.proxy_url}/api/files/", auth=people.account.auth, headers=headers)
    job = made.headers["X-Job-Id"]
    visitor.log_in(people.account, f"/jobs/{job}/")
    expect(visitor.page.locator(".state")).to_have_text("uploading")
    visitor.press("Cancel this job")
    visitor.page.wait_for_url("**/jobs/")

    visitor.go(f"/jobs/{job}/")
    expect(visitor.page.locator(".state")).to_have_text("cancelled")
    expect(visitor.page.get_by_text("You have cancelled this job.")).to_be_visible()
    said = visitor.page.locator("main").inner_text()
    assert "failed" not in said
    assert "job_cancelled" not in said


def test_a_file_whose_job_could_not_be_cancelled_stays_with_the_reason(
    visitor: Visitor, people: Store, tmp_path: Path
) -> None:
    page = visitor.page
    page.route_web_socket(re.compile(r"/api/ws/jobs/"), lambda _: None)  # the job has no news
    problem = json.dumps({"status": 401, "code": "not_authenticated", "detail": "no session"})
    asked: list[Request] = []

    def answer(route: Route) -> None:
        asked.append(route.request)
        if len(asked) == 1:
            route.fulfill(status=401, content_type="application/problem+json", body=problem)
        else:
            route.fulfill(status=204)

    page.route("**/api/jobs/*/", answer)
    opened(visitor, people)
    visitor.upload(written(tmp_path, "Ada,36"))
    row = page.locator(".file")
    expect(row.get_by_role("link", name="Job of people.csv")).to_be_visible()
    expect(row.get_by_role("button", name="Pause people.csv")).to_be_hidden()  # it has arrived
    row.get_by_role("button", name="Cancel people.csv").click()
    expect(row.get_by_role("alert")).to_contain_text(
        "The job was not cancelled. Your session has ended."
    )
    expect(row.get_by_role("link", name="Log in")).to_be_visible()
    row.get_by_role("button", name="Cancel people.csv").click()
    expect(row).to_have_count(0)
    assert [request.method for request in asked] == ["DELETE", "DELETE"]
    visitor.complaints.clear()  # of the request that was refused


def test_a_job_is_cancelled_with_the_token_of_a_login_in_another_tab(
    visitor: Visitor, people: Store, tmp_path: Path
) -> None:
    page = visitor.page
    page.route_web_socket(re.compile(r"/api/ws/jobs/"), lambda _: None)  # the job has no news
    opened(visitor, people)
    visitor.upload(written(tmp_path, "Ada,36"))
    row = page.locator(".file")
    expect(row.get_by_role("link", name="Job of people.csv")).to_be_visible()
    expect(row.get_by_role("button", name="Pause people.csv")).to_be_hidden()  # it has arrived
    end_session(visitor)
    other = Visitor(visitor.site, page.context.new_page(), [], visitor.at)
    other.log_in(people.account)

    tokens: list[str] = []

    def answer(route: Route) -> None:
        tokens.append(route.request.headers["x-csrftoken"])
        response = route.fetch()
        # The job has ended by then: here only the token counts.
        route.fulfill(response=response) if response.status == 403 else route.fulfill(status=204)

    page.route("**/api/jobs/*/", answer)
    row.get_by_role("button", name="Cancel people.csv").click()
    expect(row).to_have_count(0)
    assert len(set(tokens)) == len(tokens) == 2
    visitor.complaints.clear()  # of the request that was refused


def test_what_a_job_stored_is_deleted_after_its_number_is_typed(
    visitor: Visitor, people: Store, tmp_path: Path
) -> None:
    people.ingest([{"name": "Alan"}])
    opened(visitor, people)
    visitor.upload(written(tmp_path, "Ada,36", "Grace,85"))
    visitor.newest_job("completed")
    visitor.go("/jobs/")
    photograph(visitor, "jobs-some")
    visitor.page.get_by_role("link", name="people.csv", exact=True).first.click()
    visitor.expect_heading("people.csv")
    photograph(visitor, "job")
    visitor.press("Undo: delete what it stored…")

    expect(visitor.page.locator("main")).to_contain_text("2 of them are unchanged")
    photograph(visitor, "job-undo")
    visitor.type("To confirm, type their number: 2", "3")
    visitor.press("Delete permanently")
    expect(visitor.page.get_by_role("alert")).to_contain_text("not their number, which is 2")
    assert count(people) == 3
    assert visitor.serious_flaws() == []
    visitor.type("To confirm, type their number: 2", "2")
    visitor.press("Delete permanently")

    expect(visitor.page.locator(".state")).to_have_text("undone")
    assert [one["data"]["name"] for one in people.everything()] == ["Alan"]


def test_without_scripts_a_form_sends_the_file(
    chromium: Browser, site: Service, people: Store, tmp_path: Path
) -> None:
    context = chromium.new_context(base_url=site.proxy_url, java_script_enabled=False)
    page = context.new_page()
    without = Visitor(site, page, [])
    opened(without, people)
    file = written(tmp_path, *(f"P{number},{number % 90}" for number in range(2_000)))

    def send() -> None:
        page.get_by_label("Choose files, or drop them here").set_input_files(file)
        without.press("Upload the file")

    send()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/"))
    without.expect_heading("people.csv")
    while page.locator(".state").inner_text() != "completed":
        assert page.locator(".state").inner_text() in ("checking", "storing")
        page.reload()
    assert count(people) == 2_000

    without.go(f"/schemas/{people.schema_id}/upload/")
    send()
    expect(page.get_by_role("alert")).to_contain_text("UTC: 2,000 records")
    page.get_by_label("Store the records of this file again").check()
    send()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/"))
    without.go(f"/schemas/{people.schema_id}/upload/")
    without.press("Upload the file")  # nothing is chosen: the browser says so
    assert page.url.endswith("/upload/")
    # Another page, which does not know the session's token, sends nothing.
    forged = context.request.post(
        page.url,
        multipart={
            "csrf": "x" * 32,
            "again": "yes",
            "file": {"name": "a.csv", "mimeType": "text/csv", "buffer": file.read_bytes()},
        },
    )
    assert forged.status == 403
    assert people.proxy("GET", f"/api/jobs/?schema={people.schema_id}").json()["count"] == 2
    other = tmp_path / "letter.txt"
    other.write_text("no rows")
    page.get_by_label("Choose files, or drop them here").set_input_files(other)
    without.press("Upload the file")
    expect(page.get_by_role("alert")).to_contain_text("not one of .csv")
    context.close()


def test_a_live_job_says_its_phases_its_speed_and_what_is_left(
    visitor: Visitor, people: Store, site: Service
) -> None:
    """The proxy's messages are played here, so that each phase lasts until it was looked at."""
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": "1000"}
    made = call("POST", f"{site.proxy_url}/api/files/", auth=people.account.auth, headers=headers)
    job = made.headers["X-Job-Id"]
    page = visitor.page
    sockets: list[WebSocketRoute] = []

    def taken(socket: WebSocketRoute) -> None:
        sockets.append(socket)

    page.route_web_socket(re.compile(r"/api/ws/jobs/"), taken)
    visitor.log_in(people.account, f"/jobs/{job}/")
    line, bars = page.locator("[data-job-line]"), page.locator(".phases progress")

    def say(processed: int, total: int, batch: int) -> None:
        payload = {"status": "processing", "processed": processed, "total": total}
        # The overview has followed the job as well.
        sockets[-1].send(json.dumps({**payload, "current_batch": batch, "total_batches": 30_000}))

    expect(line).to_have_text("uploading")
    # Nobody sends the file, and nothing moves.
    waits = page.get_by_text("The job is waiting: its upload was interrupted")
    expect(waits).to_be_visible()
    assert bars.nth(0).get_attribute("value") == "0.0"
    say(0, 197_636, 0)
    expect(waits).to_have_count(0)
    expect(line).to_have_text("checking, 197,636 records so far")
    assert bars.nth(1).get_attribute("value") is None
    say(0, 300_000, 1)
    page.wait_for_timeout(400)
    say(98_304, 300_000, 9831)
    expect(line).to_have_text(
        re.compile(r"storing, 98,304 of 300,000 records, [\d,]+/s, \d+ s left")
    )
    expect(page.locator(".phases")).to_contain_text("checked 300,000")
    expect(page.locator(".phases")).to_contain_text("stored 98,304 of 300,000")
    shares = bars.evaluate_all("all => all.map((one) => one.value)")
    assert shares == [1, 1, pytest.approx(0.328, abs=0.001)]
    assert visitor.serious_flaws() == []
    # How far a large job is packed when all of it is stored, the page itself says.
    with page.expect_request(re.compile(rf"/jobs/{job}/$")):
        say(300_000, 300_000, 30_000)


def test_all_records_are_sealed_again_from_the_page_of_their_schema(
    visitor: Visitor, people: Store
) -> None:
    named = people.ingest([{"name": "Ada", "age": 36}, {"name": "Grace", "age": 85}])
    visitor.log_in(people.account, f"/schemas/{people.schema_id}/settings/")
    visitor.press("Re-encrypt…")
    visitor.press("Re-encrypt all records")
    expect(visitor.page.locator(".job-line")).to_contain_text("completed, 2 of 2 records")
    expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Re-encrypt all records")
    expect(visitor.page.get_by_role("link", name="Undo")).to_have_count(0)
    assert people.found() == named
