"""Columns of a file: how their values are spread, which go into which field, which are left out."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import Browser, Error, Route, expect

from encrypted_records.proxy.pages import uploads
from tests.browser.census import Census
from tests.browser.test_importing import chosen
from tests.browser.visitor import CENSUS, Visitor, expect_after_reloads, wait_until
from tests.support.service import Account, Service, call

PEOPLE = ("name", "age", "city")


def new_people(site: Service, account: Account) -> str:
    """An empty schema of three fields, of which the age is required; its id."""
    definition = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "city": {"type": "string"},
        },
        "required": ["age"],
    }

    def post(path: str, body: object) -> dict[str, str]:
        answer = call("POST", site.proxy_url + path, body, auth=account.auth)
        assert answer.status == 201, answer
        made: dict[str, str] = answer.json()
        return made

    dataset = post("/api/datasets/", {"name": "People", "organization": account.organization})
    body = {"name": "People", "dataset": dataset["url"], "schema": definition}
    return post("/api/schemas/", body)["id"]


def stored(site: Service, account: Account, schema: str) -> list[dict[str, object]]:
    answer = call("GET", f"{site.proxy_url}/api/records/?schema={schema}", auth=account.auth)
    return [result["data"] for result in answer.json()["results"]]


def test_a_preview_draws_numbers_and_counts_texts(visitor: Visitor, census: Census) -> None:
    visitor.log_in(census.account, "/import/")
    chosen(visitor, CENSUS)
    heads = visitor.page.locator(".preview thead th")
    age = heads.filter(has_text="age").locator("svg.spread")
    said = age.first.get_attribute("aria-label") or ""
    assert said.startswith("17 to 90, in 16 stretches: ")
    counts = [int(one) for one in said.partition(": ")[2].split(", ")]
    assert sum(counts) == 1000
    # Bars are as high as their counts say.
    heights = age.first.locator("rect").evaluate_all(
        "all => all.map((one) => Number(one.getAttribute('height')))"
    )
    assert len(heights) == len([count for count in counts if count])
    assert heights.index(max(heights)) == counts.index(max(counts))
    sexes = [line.split(",")[9] for line in CENSUS.read_text().splitlines()[1:]]
    males = f"{sexes.count('Male') / 10:.3g} %"
    expect(heads.filter(has_text=re.compile("^sex")).first).to_contain_text(f"Male {males}")


def test_a_column_that_is_left_out_is_neither_field_nor_stored(
    visitor: Visitor, site: Service
) -> None:
    account = site.new_account()
    visitor.log_in(account, "/import/")
    chosen(visitor, CENSUS)
    page = visitor.page
    expect(page.locator(".preview thead th")).to_have_count(16)
    page.get_by_label("Leave out fnlwgt").check()
    expect(page.locator(".preview thead th")).to_have_count(15)
    expect(page.get_by_label("Leave out fnlwgt")).to_be_checked()
    visitor.press("Encrypt and store")
    expect(page.locator(".file")).to_contain_text(
        "completed, 1,000 of 1,000 records", timeout=60_000
    )
    schemas = call("GET", f"{site.proxy_url}/api/schemas/", auth=account.auth).json()["results"]
    assert "fnlwgt" not in schemas[0]["schema"]["properties"]
    first = stored(site, account, schemas[0]["id"])[0]
    row = dict(zip(*(line.split(",") for line in CENSUS.read_text().splitlines()[:2]), strict=True))
    del row["fnlwgt"]
    assert {name: str(value) for name, value in first.items()} == row


def test_a_column_without_a_name_is_given_one(visitor: Visitor, tmp_path: Path) -> None:
    """As spreadsheets and data frames write their row numbers."""
    file = tmp_path / "frame.csv"
    file.write_text(",name,age\n0,Ada,36\n1,Grace,85\n")
    visitor.log_in(visitor.site.new_account(), "/import/")
    chosen(visitor, file)
    expect(visitor.page.locator("#field-0")).to_have_value("column_1")
    expect(visitor.page.locator(".read-as").first).to_contain_text("In the file: no name.")
    visitor.press("Encrypt and store")
    expect(visitor.page.locator(".file")).to_contain_text(
        "completed, 2 of 2 records", timeout=60_000
    )


def test_headings_are_given_fields_before_a_file_is_sent(
    visitor: Visitor, site: Service, tmp_path: Path
) -> None:
    account = site.new_account()
    schema = new_people(site, account)
    file = tmp_path / "list.csv"
    file.write_text('Note,NAME,years,City\n"a, b",Ada,36,London\nx,Grace,old,Arlington\n')
    visitor.log_in(account, f"/schemas/{schema}/upload/")
    page = visitor.page
    page.locator("[data-uploads] input[type=file]").set_input_files(file)
    # Letters decide where the name does not; a required field without a column is said.
    expect(page.locator("#column-0")).to_have_value("")
    expect(page.locator("#column-1")).to_have_value("name")
    expect(page.locator("#column-3")).to_have_value("city")
    expect(page.locator("#columns")).to_contain_text("No column goes into age")
    page.get_by_label("Field of years").select_option("age")
    expect(page.locator("#preview")).to_contain_text("1 row does not fit")
    expect(page.locator(".preview td.unfit")).to_contain_text("old")
    assert visitor.serious_flaws() == []
    page.get_by_label("Store the valid rows even if others are invalid").check()
    page.get_by_role("button", name="Upload 1 file").click()
    expect(page.locator(".file")).to_contain_text("completed", timeout=60_000)
    assert stored(site, account, schema) == [{"name": "Ada", "age": 36, "city": "London"}]


#: Chooses an option in the very task in which its select comes into the page: nobody is quicker.
AT_ONCE = """
new MutationObserver((_changes, observer) => {
  const select = document.querySelector('#preview #column-0');
  if (!select) return;
  observer.disconnect();
  select.value = 'name';
  for (const kind of ['input', 'change'])
    select.dispatchEvent(new Event(kind, { bubbles: true }));
}).observe(document, { childList: true, subtree: true });
"""


def test_a_file_with_other_headings_is_not_sent_under_the_first_ones(
    visitor: Visitor, site: Service, tmp_path: Path
) -> None:
    account = site.new_account()
    schema = new_people(site, account)
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("who,age\nAda,36\n")
    second.write_text("city,age\nLondon,7\n")
    page = visitor.page
    page.add_init_script(AT_ONCE)
    visitor.log_in(account, f"/schemas/{schema}/upload/")
    page.locator("[data-uploads] input[type=file]").set_input_files([first, second])
    expect(page.locator(".preview thead th").nth(1)).to_contain_text("name")
    page.get_by_role("button", name="Upload 2 files").click()
    for number in (0, 1):
        expect(page.locator(".file").nth(number)).to_contain_text(
            "completed, 1 of 1 record", timeout=60_000
        )
    found = sorted(stored(site, account, schema), key=lambda one: str(one["age"]))
    assert found == [{"name": "Ada", "age": 36}, {"city": "London", "age": 7}]


def test_a_file_waits_for_what_was_chosen_last_and_is_not_sent_without_it(
    visitor: Visitor, site: Service, tmp_path: Path
) -> None:
    """However long the answers take, in whatever order choices and the button are pressed."""
    account = site.new_account()
    schema = new_people(site, account)
    file = tmp_path / "list.csv"
    file.write_text("who,age,place\nAda,36,London\n")
    page = visitor.page
    visitor.log_in(account, f"/schemas/{schema}/upload/")
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.url) if "/api/files/" in one.url else None)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route) if route.request.method == "POST" else route.continue_()

    page.locator("[data-uploads] input[type=file]").set_input_files(file)
    expect(page.locator("#column-0")).to_have_value("")
    page.route("**/upload/", hold)
    upload = page.get_by_role("button", name="Upload 1 file")
    with page.expect_request("**/upload/"):
        page.get_by_label("Field of who").select_option("name")
    upload.click()
    with page.expect_request("**/upload/"):
        page.get_by_label("Field of place").select_option("city")
    # The answer to the first choice, which would bring the second one back, was given up.
    wait_until(page, lambda: len(held) == 2)
    held.pop().abort()
    expect(page.locator(".away")).to_contain_text("Trying again")
    expect(page.get_by_label("Field of who")).to_be_focused()
    expect(page.locator(".file")).to_contain_text("ready")
    assert sent == []
    # The page asks again by itself, and is answered now; then the button sends.
    page.unroute("**/upload/")
    for route in held:
        with suppress(Error):  # the first one was given up
            route.continue_()
    expect(page.locator(".preview thead th").nth(3)).to_contain_text("city")
    upload.click()
    expect(page.locator(".file")).to_contain_text("completed, 1 of 1 record", timeout=60_000)
    assert stored(site, account, schema) == [{"name": "Ada", "age": 36, "city": "London"}]
    visitor.complaints.clear()  # of the request that had no answer


def test_two_choices_that_are_made_at_once_both_count(visitor: Visitor, census: Census) -> None:
    visitor.log_in(census.account, "/import/")
    chosen(visitor, CENSUS)
    page = visitor.page
    held: list[Route] = []
    page.route("**/import/", lambda route: held.append(route))  # noqa: PLW0108
    for name in ("fnlwgt", "race"):
        with page.expect_request("**/import/"):
            page.get_by_label(f"Leave out {name}").check()
    wait_until(page, lambda: len(held) == 2)
    page.unroute("**/import/")
    for route in reversed(held):
        with suppress(Error):  # the first one was given up
            route.continue_()
    expect(page.locator(".preview thead th")).to_have_count(14)
    for name in ("fnlwgt", "race"):
        expect(page.get_by_label(f"Leave out {name}")).to_be_checked()


def test_without_scripts_columns_are_chosen_in_the_form(
    chromium: Browser, site: Service, tmp_path: Path
) -> None:
    account = site.new_account()
    schema = new_people(site, account)
    file = tmp_path / "list.csv"
    file.write_bytes("\ufeffNote,Name,years\r\nx,Ada,36\r\n".encode())
    context = chromium.new_context(base_url=site.proxy_url, java_script_enabled=False)
    without = Visitor(site, context.new_page(), [])
    without.log_in(account, f"/schemas/{schema}/upload/")
    page = without.page
    page.get_by_label("Choose files, or drop them here").set_input_files(file)
    without.press("Upload the file")
    expect(page.get_by_role("alert").first).to_contain_text("columns of this file are not those")
    expect(page.locator("#column-1")).to_have_value("name")
    page.get_by_label("Field of years").select_option("age")
    page.get_by_label("Choose files, or drop them here").set_input_files(file)
    without.press("Upload the file")
    page.wait_for_url(re.compile("/jobs/[0-9a-f-]{36}/"))
    expect_after_reloads(page.locator(".job").first, "completed")
    assert stored(site, account, schema) == [{"name": "Ada", "age": 36}]
    context.close()


def test_values_stay_out_of_the_definition_but_where_they_are_asked_for(
    visitor: Visitor, census: Census
) -> None:
    page = visitor.page
    visitor.log_in(census.account, f"/datasets/{census.dataset}/new-schema/")
    page.get_by_label("Choose a file").set_input_files(CENSUS)
    page.get_by_text("Proposed from").wait_for()
    expect(page.locator("#editor")).not_to_contain_text("Female")
    lengths = page.get_by_role("region", name="What lengths reveal")
    expect(lengths.locator("tbody tr")).to_have_count(15)
    told = lengths.locator("tr").filter(has_text=re.compile("^sex")).locator("td")
    assert re.fullmatch(r"\d+\.\d %", told.nth(0).inner_text())
    # One length for both values: nothing is learned beyond the more frequent one.
    assert told.nth(0).inner_text() == told.nth(1).inner_text()

    # Of the file that is there already; it need not be chosen again.
    page.get_by_label("Propose lists of values").check()
    sex = page.get_by_text("The server can read these 2 values: Female, Male.")
    expect(sex).to_be_visible()
    page.get_by_role("button", name="Remove them from the definition: the values of sex").click()
    expect(sex).to_have_count(0)


def test_what_is_proposed_for_headings() -> None:
    proposed = uploads.propose_fields(
        ["Age", " name", "e-mail", "name", "x"], ["name", "age", "E mail"]
    )
    assert proposed == ["age", "", "E mail", "name", ""]
    heading = uploads.heading_of('\ufeff"a\nb",c\r\n1,2\r\n')
    assert heading == uploads.Heading(("a\nb", "c"), len('\ufeff"a\nb",c\r\n'))
    assert uploads.with_header('\ufeff"a\nb",c\r\n1,2\r\n', heading, ["", "n,o"]) == (
        'leave_out:1,"n,o"\r\n1,2\r\n'
    )
    for odd in ("", "\n", ",,\n", '"a', 'a"b,c\n', "x," * 2000):
        assert uploads.heading_of(odd) in (None, uploads.Heading(('a"b', "c"), 6))
    forged = {"heading": heading.json, "column-0": "no such field", "column-1": "c"}
    assert uploads.chosen_fields(forged, heading, ["c"]) == ["", "c"]
    assert uploads.chosen_fields(forged | {"heading": "[]"}, heading, ["c"]) is None
