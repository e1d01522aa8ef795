"""From nothing to an answer, on the census of examples/, by clicks alone."""

from __future__ import annotations

import re
import secrets

from playwright.sync_api import expect

from tests.browser.visitor import CENSUS, Visitor

PASSWORD = "violet harbour 49 lantern"


def register(visitor: Visitor) -> str:
    email = f"{secrets.token_hex(6)}@example.org"
    visitor.go("/")
    visitor.press("Register an account.")
    visitor.type("E-mail address", email)
    visitor.type("Name of your organization", "Analytical Engines")
    visitor.type("Password", PASSWORD)
    visitor.type("Password again", PASSWORD)
    visitor.press("Register")
    visitor.expect_heading("Check your mail")
    expect(visitor.page.locator("main")).to_contain_text("No mail server is configured")
    return email


def test_an_empty_account_is_led_to_its_first_answer(visitor: Visitor) -> None:
    email = register(visitor)
    page = visitor.page
    visitor.go(visitor.signed_link("verify-registration", email))
    visitor.press("Confirm my address")
    visitor.press("Log in")
    visitor.type("E-mail address", email)
    visitor.type("Password", PASSWORD)
    visitor.press("Log in")
    visitor.expect_heading("First steps")
    visitor.picture("first-steps")

    visitor.press("Go to the keyring")
    page.locator("#show-proof").fill(PASSWORD)
    visitor.press("Show the words to write down")
    words = visitor.shown_words()
    assert len(words) == 24
    visitor.press("I have written them down")
    visitor.type_words(words)
    expect(page.get_by_text("Backed up:")).to_be_visible()
    # A page has some words of the list by itself.
    shown = page.locator("main").inner_text().split()
    assert sum(word in shown for word in words) < 12

    visitor.go("/")
    visitor.press("Create a dataset")
    visitor.type("Name", "Census")
    visitor.press("Create the dataset")
    schema = visitor.make_schema_from(CENSUS, "People", "hours_per_week")

    visitor.go("/")
    visitor.press("Upload a file")
    visitor.upload(CENSUS)
    visitor.newest_job("completed, 1,000 of 1,000 records")

    visitor.go(f"/schemas/{schema}/search/")
    visitor.press("Add a record")
    for label, text in {"age": "49", "sex": "Female", "education": "Masters"}.items():
        visitor.type(label, text)
    visitor.press("Store the record")
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text("hours_per_week")
    # What was typed is still there.
    expect(page.get_by_label("age", exact=True)).to_have_value("49")
    for label in ("hours_per_week", "fnlwgt", "education_num", "capital_gain", "capital_loss"):
        visitor.type(label, "12")
    told = {"marital_status": "Divorced", "relationship": "Unmarried", "race": "White"}
    for label, text in (told | {"income": ">50K"}).items():
        visitor.type(label, text)
    visitor.press("Store the record")
    page.wait_for_url(re.compile(r"/records/"))

    # Who has records is shown how they stand, at every visit.
    visitor.go("/")
    visitor.expect_heading("Overview")
    expect(page.locator(".cards .card")).to_contain_text("1,001 records")
    expect(page.locator(".tile").first).to_contain_text("1,001")
    visitor.press("People")
    assert page.url.endswith(f"/schemas/{schema}/search/")
    assert visitor.found().startswith("1,001 records")
    visitor.ask("native_country = 'Cuba'")
    # grep of census.csv says the same
    expect(page.locator(".found")).to_have_text("4 records, 1 to 4 shown")
