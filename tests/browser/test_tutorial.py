"""The steps of the tutorial in the browser, of which it has the pictures (SCREENSHOTS=1)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.visitor import ROOT, Visitor

DOCUMENT = ROOT / "docs" / "tutorial.md"


def test_the_tutorial_works_in_the_browser(visitor: Visitor, tmp_path: Path) -> None:
    text = DOCUMENT.read_text()
    program = re.search(r"<<'END'\n(.*?)^END$", text, re.DOTALL | re.MULTILINE)
    assert program
    subprocess.run([sys.executable, "-c", program[1]], cwd=tmp_path, check=True)
    page = visitor.page
    visitor.go("/")
    visitor.picture("tutorial-start")
    visitor.go("/register/")
    visitor.picture("tutorial-account")
    visitor.log_in(visitor.site.new_account())

    visitor.go("/import/")
    page.locator("[data-uploads] input[type=file]").set_input_files(tmp_path / "patients.csv")
    expect(page.locator("#rows")).to_contain_text("records, ")
    visitor.picture("tutorial-file", part="main table")
    visitor.type("Name of the schema", "Patient")
    visitor.picture("tutorial-import")

    visitor.press("Encrypt and store")
    expect(page.locator(".file")).to_contain_text("completed, 1,000 of 1,000 records")
    visitor.picture("tutorial-job")

    page.locator("main").get_by_role("link", name=re.compile("[Ss]earch|Patient")).first.click()
    schema = re.search(r"/schemas/([^/]+)/", page.url)
    assert schema
    visitor.go(f"/schemas/{schema[1]}/search/")
    visitor.ask("diagnosis = 'asthma' and temperature >= 40")
    expect(page.locator(".found")).to_contain_text("22 records")
    visitor.picture("tutorial-search")

    visitor.go(f"/schemas/{schema[1]}/trust/")
    expect(page.locator(".path")).to_contain_text("encrypted records")
    visitor.picture("tutorial-trust")

    visitor.go("/keyring/")
    expect(page.locator("main")).to_contain_text("words")
    visitor.picture("tutorial-words")
