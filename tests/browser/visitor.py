"""What somebody does in a browser, in the words of the pages."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Page, expect

from tests.support.service import Account, Service

ROOT = Path(__file__).parents[2]
CENSUS = ROOT / "examples" / "census.csv"
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
#: Where screenshots for the documents go when they are asked for.
PICTURES = ROOT / "docs" / "images"


@dataclass
class Visitor:
    """``complaints`` is what the browser's console has said so far."""

    site: Service
    page: Page
    complaints: list[str]

    def go(self, path: str) -> None:
        self.page.goto(path)

    def press(self, name: str) -> None:
        """The button of this name in the page's own part, or else the link."""
        main = self.page.locator("main")
        button = main.get_by_role("button", name=name, exact=True)
        link = main.get_by_role("link", name=name, exact=True)
        button.or_(link).first.wait_for()
        (button if button.count() else link).first.click()

    def type(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).fill(text)

    def heading(self) -> str:
        return self.page.locator("h1").inner_text()

    def log_in(self, account: Account) -> None:
        self.go("/login/")
        self.type("E-mail address", account.email)
        self.type("Password", account.password)
        self.press("Log in")
        self.page.wait_for_url("/")

    def signed_link(self, page: str, email: str) -> str:
        """The path of the link in the newest message to ``email``."""
        signed = self.site.link_for(email)
        values = {
            "user_id": signed.user_id,
            "timestamp": signed.timestamp,
            "signature": signed.signature,
        }
        return f"/{page}/?{urlencode(values)}"

    def make_dataset(self, name: str) -> None:
        self.go("/datasets/new/")
        self.type("Name", name)
        self.press("Make the dataset")

    def make_schema_from(self, path: Path, name: str) -> str:
        """From the page of a dataset to a schema proposed from a file; its identifier."""
        self.press("Define a schema")
        self.page.get_by_label("Choose a file").set_input_files(path)
        self.page.get_by_text("Proposed from").wait_for()
        self.type("Name", name)
        self.press("Make the schema")
        self.page.wait_for_url(re.compile(r"/schemas/[^/]+/$"))
        return self.page.url.rstrip("/").rpartition("/")[2]

    def upload(self, path: Path) -> None:
        """On the page for it: one file."""
        self.page.locator(".uppy-Dashboard-input").first.set_input_files(path)
        self.page.get_by_role("button", name="Upload 1 file").click()

    def newest_job(self, state: str) -> None:
        """Wait until the first of the page's jobs is in a state."""
        line = self.page.locator("#job-list [data-job-line], #job-list strong").first
        expect(line).to_have_text(re.compile(state), timeout=60_000)

    def found(self) -> str:
        return self.page.locator(".found").inner_text()

    def add_filter(self, number: int, field: str, op: str, value: str) -> None:
        """One more row of the filter builder; each choice is answered before the next is made."""
        page = self.page
        self.press("Add a filter")
        page.locator(f"#field-{number}").wait_for()
        for part, choice in (("field", field), ("op", op)):
            chooser = page.locator(f"#{part}-{number}")
            if chooser.locator("option:checked").inner_text() != choice:
                with page.expect_response("**/search/"):
                    chooser.select_option(label=choice)
                # The answer is here, but maybe not yet in the page: what is chosen or typed
                # before that goes away with the old part of it.
                expect(page.locator(".htmx-request, .htmx-swapping")).to_have_count(0)
        page.locator(f"#value-{number}").fill(value)

    def numbers(self, column: str) -> list[int]:
        """What the results show in a column."""
        headers = self.page.locator("table.records thead th").all_inner_texts()
        place = [text.split()[0] if text.split() else "" for text in headers].index(column) + 1
        cells = self.page.locator(f"table.records tbody td:nth-child({place})")
        return [int(text) for text in cells.all_inner_texts()]

    def serious_flaws(self) -> list[str]:
        """What axe finds on this page that keeps people from using it, in light and in dark."""
        self.page.evaluate(AXE.read_text())
        found = self._flaws("{}")
        self.page.emulate_media(color_scheme="dark")
        if self.page.locator("[data-uppy-theme]").count():
            # The uploader follows by a script of its own, colour after colour.
            self.page.reload()
            self.page.locator("[data-uppy-theme=dark]").first.wait_for()
            self.page.evaluate(AXE.read_text())
        found += self._flaws("{runOnly: ['color-contrast']}")
        self.page.emulate_media(color_scheme="light")
        return found

    def _flaws(self, options: str) -> list[str]:
        found: dict[str, Any] = self.page.evaluate(f"axe.run({options})")
        return [
            f"{self.page.url}: {flaw['id']}: {flaw['help']}: {node['html'][:160]}"
            for flaw in found["violations"]
            if flaw["impact"] in ("serious", "critical")
            for node in flaw["nodes"]
        ]

    def picture(self, name: str) -> None:
        """For the documents, when ``SCREENSHOTS`` is set."""
        if os.environ.get("SCREENSHOTS"):
            PICTURES.mkdir(exist_ok=True)
            # The usual way of hiding the caret is an inline style.
            self.page.screenshot(path=PICTURES / f"{name}.png", caret="initial", scale="css")
