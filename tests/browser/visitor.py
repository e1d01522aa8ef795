"""What somebody does in a browser, in the words of the pages."""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Locator, Page, expect

from tests.support.service import Account, Service

ROOT = Path(__file__).parents[2]
CENSUS = ROOT / "examples" / "census.csv"
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
#: Where screenshots for the documents go when they are asked for.
PICTURES = ROOT / "docs" / "images"
#: How long anything may take, in milliseconds, also on a machine that has much else to do: waiting
#: costs nothing where it passes.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)
#: Rows that axe does not look at: records behind the first four, but for the last. They take half
#: of its time where there are fifty.
ALIKE = "[['table.records tbody tr:nth-child(n+5):not(:last-child)']]"
#: Also the one that axe leaves out unless it is asked for: names that lack what is written.
EVERY_RULE = (
    "{resultTypes: ['violations'], rules: {'label-content-name-mismatch': {enabled: true}}}"
)
#: What htmx has asked for and not yet put into the page.
IN_FLIGHT = ".htmx-request, .htmx-swapping"
#: Forms that have something done and are not answered yet.
SENT_ONCE = "main form.htmx-request:not([data-repeatable])"
#: Nothing that the page shows is still on its way: htmx marks what it has asked for, and pictures
#: come into their places; beside records, into those that are in view.
SETTLED = """() => {
  const places = [...document.querySelectorAll('[data-facet]')];
  const awaited = places.filter((one) => {
    const beside = one.closest('.facets')?.getBoundingClientRect();
    const { top, bottom } = one.getBoundingClientRect();
    return !beside
      || (top < Math.min(innerHeight, beside.bottom) && bottom > Math.max(0, beside.top));
  });
  return document.readyState === 'complete' && !document.querySelector('.htmx-request')
    && awaited.every((one) => !one.checkVisibility() || one.querySelector('.part'));
}"""


def expect_after_reloads(place: Locator, text: str) -> None:
    """Wait for a text on a page that does not change by itself, as without scripts."""
    for _ in range(PATIENCE // 500):
        if text in place.inner_text():
            return
        place.page.wait_for_timeout(500)
        place.page.reload()
    expect(place).to_contain_text(text)


def wait_until(page: Page, came: Callable[[], bool]) -> None:
    """Wait for what the browser tells a test, such as a request that is held."""
    for _ in range(PATIENCE // 20):
        if came():
            return
        page.wait_for_timeout(20)  # what was told is heard in here
    assert came()


@dataclass
class Visitor:
    """``complaints`` is what the browser's console has said so far."""

    site: Service
    page: Page
    complaints: list[str]
    #: the secret path that the browser's pages lay below last
    at: str = ""

    def go(self, path: str) -> None:
        self.page.goto(self.below(path))

    def below(self, path: str) -> str:
        """The path as this browser has it: below the secret one, where there is one."""
        found = re.match(r"[a-z]+://[^/]+(/~[a-z2-7]{16})/", self.page.url)
        self.at = found[1] if found else self.at
        return self.at + path

    def press(self, name: str) -> None:
        """The button of this name in the page's own part, or else the link."""
        main = self.page.locator("main")
        button = main.get_by_role("button", name=name, exact=True)
        link = main.get_by_role("link", name=name, exact=True)
        button.or_(link).first.wait_for()
        (button if button.count() else link).first.click()
        # What is done next would break off a form that is on its way.
        expect(self.page.locator(SENT_ONCE)).to_have_count(0)

    def focus_nothing_by_clicks(self) -> None:
        """From the next page on, a click moves the focus to no control, as in Safari and in
        Firefox on macOS."""
        self.page.add_init_script(
            "addEventListener('mousedown', (event) => {"
            " if (!event.target.closest('button, label, [type=checkbox], [type=radio]')) return;"
            " event.preventDefault(); document.activeElement.blur(); }, true)"
        )

    def type(self, label: str, text: str) -> None:
        field = self.page.get_by_label(label, exact=True)
        if field.evaluate("element => element.localName") == "select":
            field.select_option(text)
        else:
            field.fill(text)

    def expect_heading(self, text: str) -> None:
        """Wait for the page of this heading: a click returns before the next page is there."""
        expect(self.page.locator("h1")).to_have_text(text)

    def heading(self) -> str:
        return self.page.locator("h1").inner_text()

    def log_in(self, account: Account, page: str = "") -> None:
        """Send what the form of the page sends, without that page, and go to ``page``.

        The page itself costs ten times as much; test_first_steps.py, among others, types into it.
        """
        self._send("/login/", {"email": account.email, "password": account.password})
        if page:
            self.go(page)

    def be_let_in(self, account: Account) -> None:
        """Send a code that was made on the machine of the proxy, without the page for it."""
        kept = self.page.context.cookies(f"{self.site.proxy_url}{self.below('/')}")
        (token,) = (cookie["value"].rpartition(".")[2] for cookie in kept)
        self._send("/device/", {"csrf": token, "shown": self.site.code_for(account)})

    def _send(self, path: str, form: dict[str, str | float | bool]) -> None:
        """A form that leads to the first page below the secret path."""
        url, own = f"{self.site.proxy_url}{self.below(path)}", {"Origin": self.site.proxy_url}
        answer = self.page.request.post(url, form=form, headers=own, max_redirects=0)
        found = re.fullmatch(r"(/~[a-z2-7]{16})/", answer.headers.get("location", ""))
        assert found, (answer.status, answer.text())
        self.page.goto("about:blank")  # what it shows may lie below the path of another user
        self.at = found[1]

    def log_out(self) -> None:
        self.page.get_by_role("button", name="Log out").click()
        self.expect_heading("Log in")

    def prove(self, form: str, account: Account) -> None:
        """Type the account's password into a form that gives keys out or changes them."""
        self.page.locator(f"#{form}-proof").fill(account.password)

    def shown_words(self) -> list[str]:
        """The words of the keyring, of the page that has them hidden."""
        words = self.page.locator(".phrase li")
        words.first.wait_for(state="attached")
        assert "".join(words.all_inner_texts()) == ""
        self.page.get_by_label("Keep them shown").check()
        expect(words.first).to_be_visible()
        return words.all_inner_texts()

    def type_words(self, words: list[str], *, wrong: int = 0) -> int:
        """Those of the 24 that are asked for; how many. The last ``wrong`` of them mistyped."""
        fields = self.page.locator("main input[id^=word-]")
        fields.first.wait_for()
        count = fields.count()
        for at in range(count):
            place = int((fields.nth(at).get_attribute("id") or "").removeprefix("word-"))
            fields.nth(at).fill("abandon" * 2 if at >= count - wrong else words[place - 1])
        self.press("Confirm")
        return count

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
        self.press("Create the dataset")

    def make_schema_from(self, path: Path, name: str, *required: str) -> str:
        """From the page of a dataset to a schema proposed from a file; its identifier.

        Args:
            required: the fields that each record is to have.
        """
        self.press("Define a schema")
        self.page.get_by_label("Choose a file").set_input_files(path)
        self.page.get_by_text("Proposed from").wait_for()
        for field in required:
            self.page.get_by_label(f"{field} is required", exact=True).check()
        self.type("Name", name)
        self.press("Create the schema")
        self.page.wait_for_url(re.compile(r"/schemas/[^/]+/upload/$"))
        return self.page.url.split("/")[-3]

    def upload(self, path: Path) -> None:
        """On the page for it: one file."""
        self.page.locator("[data-uploads] input[type=file]").set_input_files(path)
        self.page.get_by_role("button", name="Upload 1 file").click()

    def newest_job(self, state: str) -> None:
        """Wait until the first of the page's jobs is in a state, as long as it gets on: on a busy
        machine nobody knows how long that takes."""
        line = self.page.locator("#job-list [data-job-line], #job-list strong").first
        said, unchanged = "", 0
        while not re.search(state, said):
            assert unchanged < 120, f"the job stays where it is: {said!r}"
            self.page.wait_for_timeout(500)
            now = line.inner_text() if line.count() else ""
            unchanged = unchanged + 1 if now == said else 0
            said = now

    def found(self) -> str:
        return self.page.locator(".found").inner_text()

    def ask(self, line: str) -> None:
        """Type into the line that asks, and press Enter; what the answer says is waited for."""
        # The next press takes the place of one that is not answered yet, which would be lost.
        expect(self.page.locator(IN_FLIGHT)).to_have_count(0)
        self.page.locator("#line").fill(line)
        self.page.locator("#line").press("Enter")

    def open_record(self, number: int) -> None:
        """The record of this number, which opens beside the table."""
        self.page.get_by_role("link", name=f"Record {number}", exact=True).click()
        self.page.locator("#panel #record").wait_for()

    def numbers(self, column: str) -> list[int]:
        """What the results show in a column."""
        headers = self.page.locator("table.records thead th").all_inner_texts()
        place = [text.split()[0] if text.split() else "" for text in headers].index(column) + 1
        cells = self.page.locator(f"table.records tbody td:nth-child({place})")
        return [int(text) for text in cells.all_inner_texts()]

    def serious_flaws(self, *, dark: bool = True) -> list[str]:
        """What axe finds wrong with this page, however grave, in light and in dark."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text())
        found = self._flaws(EVERY_RULE)
        if dark:
            self.page.emulate_media(color_scheme="dark")
            found += self._flaws("{runOnly: ['color-contrast']}")
            self.page.emulate_media(color_scheme="light")
        return found

    def _flaws(self, options: str) -> list[str]:
        # Colours in the middle of a transition are of no page.
        self.page.wait_for_function(
            f"() => !document.querySelector('{IN_FLIGHT}, .htmx-settling')"
            " && document.getAnimations().every((one) => one.playState !== 'running')"
        )
        found: dict[str, Any] = self.page.evaluate(f"axe.run({{exclude: {ALIKE}}}, {options})")
        return [
            f"{self.page.url}: {flaw['id']}: {flaw['help']}: {node['html'][:160]}"
            for flaw in found["violations"]
            for node in flaw["nodes"]
        ]

    def picture(self, name: str, kind: str = "webp", part: str = "") -> None:
        """For the documents, when ``SCREENSHOTS`` is set; of ``part`` alone, a selector."""
        if os.environ.get("SCREENSHOTS"):
            PICTURES.mkdir(exist_ok=True)
            self.page.wait_for_function(SETTLED)
            self.page.evaluate("Promise.all(document.getAnimations().map((one) => one.finished))")
            session = self.page.context.new_cdp_session(self.page)
            wanted = {"format": kind, "quality": 80}
            if part and (box := self.page.locator(part).first.bounding_box()):
                wanted["clip"] = {**box, "scale": 1}
            taken = session.send("Page.captureScreenshot", wanted)
            session.detach()
            (PICTURES / f"{name}.{kind}").write_bytes(b64decode(taken["data"]))
