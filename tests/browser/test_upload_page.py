"""Files go by TUS into jobs, whatever happens to page and proxy on the way."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, Page, Request, Route, expect

from tests.browser.census import Census
from tests.browser.conftest import visiting
from tests.browser.visitor import CENSUS, Visitor, wait_until
from tests.support.eventually import eventually
from tests.support.service import call, free_ports, running_service

ROW_BYTES = 64 << 10


def test_a_file_becomes_records_while_its_progress_shows(visitor: Visitor, census: Census) -> None:
    visitor.log_in(census.account, census.page("upload"))

    visitor.upload(CENSUS)
    visitor.newest_job("completed, 1,000 of 1,000 records")

    visitor.go(census.page("search"))
    assert visitor.found().startswith(f"{len(census.rows) + 1000:,} records")


def test_bad_rows_are_shown_and_can_be_downloaded_and_nothing_is_stored(
    visitor: Visitor, census: Census, tmp_path: Path
) -> None:
    header, *rows = CENSUS.read_text().splitlines()[:20]
    rows[3] = "old" + rows[3][2:]
    file = tmp_path / "people.csv"
    file.write_text("\n".join([header, *rows]))
    visitor.log_in(census.account, census.page("search"))
    before = visitor.found()
    visitor.go(census.page("upload"))

    visitor.upload(file)
    visitor.newest_job("failed")
    visitor.page.get_by_role("link", name="people.csv", exact=True).click()

    cells = visitor.page.get_by_role("region", name="Invalid rows").locator("td")
    expect(cells.nth(0)).to_have_text("4")
    expect(cells.nth(1)).to_have_text("age")
    with visitor.page.expect_download() as download:
        visitor.press("Download as CSV")
    assert "age" in Path(download.value.path()).read_text()
    visitor.go(census.page("search"))
    assert visitor.found() == before


class HeldUpload:
    """Lets the requests of a page's upload begin and none of them end: of each the proxy gets a
    piece, and the page no answer."""

    def __init__(self, page: Page, file: Path, piece: int) -> None:
        self.offsets: list[int] = []
        self._page = page
        self._content = file.read_bytes()
        self._piece = piece
        page.route("**/api/files/*", self._hold)

    def _hold(self, route: Route) -> None:
        if route.request.method != "PATCH":
            route.continue_()
            return
        offset = int(route.request.headers["upload-offset"])
        # The browser tells no test what a file's request holds.
        stored = route.fetch(post_data=self._content[offset : offset + self._piece])
        assert stored.status == 204
        self.offsets.append(offset)

    def wait_for(self, offsets: list[int]) -> None:
        wait_until(self._page, lambda: self.offsets == offsets)


def test_an_upload_goes_on_after_a_pause_and_after_the_proxy_was_killed(
    chromium: Browser, tmp_path: Path
) -> None:
    ports = free_ports(2)
    file = tmp_path / "notes.ndjson"
    rows = 48
    line = json.dumps({"data": {"note": "n" * ROW_BYTES}}) + "\n"
    file.write_text(line * rows)
    third = file.stat().st_size // 3
    with running_service(tmp_path / "data", ports=ports) as service:
        account = service.new_account()
        dataset = call(
            "POST",
            f"{service.proxy_url}/api/datasets/",
            {"name": "Notes", "organization": account.organization},
            auth=account.auth,
        ).json()
        definition = {"type": "object", "properties": {"note": {"type": "string"}}}
        schema = call(
            "POST",
            f"{service.proxy_url}/api/schemas/",
            {"name": "Note", "dataset": dataset["url"], "schema": definition},
            auth=account.auth,
        ).json()
        with visiting(chromium, service, quiet=False) as visitor:
            visitor.log_in(account, f"/schemas/{schema['id']}/upload/")
            held = HeldUpload(visitor.page, file, third)
            visitor.upload(file)
            held.wait_for([0])
            visitor.press("Pause notes.ndjson")
            visitor.page.get_by_text("paused").wait_for()
            visitor.press("Resume notes.ndjson")
            held.wait_for([0, third])
            for pid in [service.process.pid, *service.children()]:
                os.kill(pid, signal.SIGKILL)
            _wait_until_closed(ports)
            with running_service(tmp_path / "data", ports=ports):
                _go_on(visitor, file, offset=2 * third, rows=rows)


def _wait_until_closed(ports: Iterable[int]) -> None:
    """A killed process has its ports until the system has taken all it had away."""
    for port in ports:
        eventually(partial(_is_closed, port), f"nobody listens on {port}")


def _is_closed(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


def _go_on(visitor: Visitor, file: Path, *, offset: int, rows: int) -> None:
    """Reload the page, choose the file again, and see that only the rest of it is sent."""
    offsets: list[int] = []
    made: list[str] = []

    def heard(request: Request) -> None:
        if request.method == "PATCH":
            offsets.append(int(request.headers["upload-offset"]))
        if request.method == "POST" and request.url.endswith("/api/files/"):
            made.append(request.url)

    visitor.page.on("dialog", lambda dialog: dialog.accept())
    visitor.page.reload()
    # Before the reload, the browser would send on the request that is held.
    visitor.page.unroute_all()
    visitor.page.on("request", heard)
    visitor.upload(file)
    visitor.newest_job(f"completed, {rows} of {rows} records")
    assert made == []
    assert offsets == [offset]


def test_a_file_that_was_chosen_before_the_script_came_is_taken(
    visitor: Visitor, census: Census
) -> None:
    page = visitor.page
    visitor.log_in(census.account)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/built/*.js", hold)
    page.goto(visitor.below("/import/"), wait_until="commit")
    page.locator("#chosen").set_input_files(CENSUS)
    expect(page.locator(".drop.scripted")).to_have_count(0)
    for route in held:
        route.continue_()
    expect(page.locator(".preview tbody tr")).to_have_count(20)
