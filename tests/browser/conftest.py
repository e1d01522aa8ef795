"""A service and a real Chromium that visits its pages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.browser.census import Census, stored_census
from tests.browser.visitor import PATIENCE, Visitor
from tests.support.service import Service, running_service


@pytest.fixture(scope="session")  # pytest leaves the package and comes back to it, file by file
def site(in_memory: Path) -> Iterator[Service]:
    """A service of these tests' own. Its database does not matter to pages: SQLite is quick."""
    with running_service(in_memory / "site") as running:
        yield replace(running, ready=[])


@pytest.fixture(scope="module")  # some files store more into it
def census(site: Service) -> Census:
    """An account with 200 census records in it."""
    return stored_census(site, 200)


@pytest.fixture(scope="package")  # no longer: Playwright's event loop would be in others' way
def chromium() -> Iterator[Browser]:
    # Of the first, a window costs a fifth of the processor that one of the others does.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    assert path, "these tests need Chromium; scripts/install-chromium installs it on Debian"
    with sync_playwright() as playwright:
        # The sandbox needs what containers and root do not have; only our own pages are visited.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def reader(chromium: Browser, site: Service, census: Census) -> Iterator[Visitor]:
    """Somebody who may read the records, with a browser for all tests of a file that is wide enough
    for pictures beside the table."""
    with visiting(chromium, site) as visitor:
        visitor.page.set_viewport_size({"width": 1440, "height": 900})
        visitor.log_in(census.account)
        yield visitor


@pytest.fixture
def visitor(chromium: Browser, site: Service) -> Iterator[Visitor]:
    """Somebody with a browser of their own, who is not logged in."""
    with visiting(chromium, site) as one:
        yield one


@contextmanager
def visiting(chromium: Browser, site: Service, *, quiet: bool = True) -> Iterator[Visitor]:
    """A browser of one's own.

    Args:
        quiet: whether its console has nothing to complain of, which is looked at in the end.
    """
    context = chromium.new_context(
        base_url=site.proxy_url, viewport={"width": 1100, "height": 800}, locale="en-GB"
    )
    context.set_default_timeout(PATIENCE)
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        # A form that is shown again with what is wrong is answered with 400 or 409.
        refused = re.search(r"status of (400|409)", message.text)
        # A request that a later choice has made needless; of one that fails more is said.
        given_up = re.match(r"htmx:(afterRequest|sendAbort)\b", message.text)
        if message.type == "error" and not refused and not given_up:
            complaints.append(message.text)

    def listen(page: Page) -> None:
        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))

    context.on("page", listen)
    try:
        yield Visitor(site, context.new_page(), complaints)
    finally:
        context.close()
    # Refused by the Content-Security-Policy, not found, or an exception in a script of ours.
    assert not quiet or complaints == []
