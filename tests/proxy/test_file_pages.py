"""Files on pages: a workbook becomes a schema, the next file is read as it, jobs tell of cells."""

from __future__ import annotations

import json
import re
import secrets
from base64 import urlsafe_b64encode
from html.parser import HTMLParser
from operator import itemgetter
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.page_visits import Browser, logged_in
from tests.support.service import Account, Answer, Service, call
from tests.support.workbooks import sheet, xlsx


def send(browser: Browser, path: str, name: str, body: bytes, **form: str) -> Answer:
    """A form with a file, as a browser without scripts sends it."""
    mark = secrets.token_hex(8)
    fields = {"csrf": browser.cookie.rpartition(".")[2], **form}
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    head = f'Content-Disposition: form-data; name="file"; filename="{name}"'
    parts.append(f"--{mark}\r\n{head}\r\n\r\n".encode() + body + f"\r\n--{mark}--\r\n".encode())
    headers = {
        "Cookie": browser.cookie,
        "Origin": browser.service.proxy_url,
        "Content-Type": f"multipart/form-data; boundary={mark}",
    }
    url = f"{browser.service.proxy_url}{browser.at}{path}"
    return call("POST", url, b"".join(parts), headers=headers)


class Form(HTMLParser):
    """The values of a page's inputs and choices, as a browser would send them."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self._choice = ""
        self._is_text = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        if tag == "input" and told.get("type") not in ("checkbox", "file"):
            self.values[told.get("name", "")] = told.get("value", "")
        elif tag == "select":
            self._choice = told.get("name", "")
        elif tag == "option" and ("selected" in told or self._choice not in self.values):
            self.values[self._choice] = told.get("value", "")
            self._is_text = "value" not in told

    def handle_data(self, data: str) -> None:
        if self._is_text:
            self.values[self._choice], self._is_text = data.strip(), False


def made(browser: Browser, name: str, body: bytes) -> str:
    """The id of the schema that the page of an import makes of a file."""
    file = {"file": name, "size": str(len(body)), "head": urlsafe_b64encode(body).decode()}
    looked = browser.visit("/import/", **file, do="look")
    assert looked.status == 200, looked.body
    form = Form()
    form.feed(looked.body.decode())
    form.values.pop("csrf")
    dataset = {"dataset": "", "new_dataset": secrets.token_hex(4)}
    answer = browser.visit("/import/", **form.values | file | dataset | {"do": "make"})
    assert answer.status == 200, re.sub(r"(?s)<[^>]*>|\s+", " ", answer.body.decode())
    return str(re.findall(r"/schemas/(\w+)/upload/", answer.body.decode())[0])


def test_a_file_whose_first_rows_do_not_fit_is_refused_before_anything_is_created(
    service: Service,
) -> None:
    browser = logged_in(service, service.new_account())
    body = b"id;born\n1;01.02.1980\n2;31.02.1980\n3;05.06.1980\n"
    file = {"file": "born.csv", "size": str(len(body)), "head": urlsafe_b64encode(body).decode()}
    said = {"said": json.dumps({"columns": {"born": {"type": "date"}}})}
    form = Form()
    form.feed(browser.visit("/import/", **file, **said, do="look").body.decode())
    form.values.pop("csrf")
    dataset = {"dataset": "", "new_dataset": "Born"}
    sent = form.values | file | dataset | {"do": "make"}
    refused = browser.visit("/import/", **sent)
    text = re.sub(r"(?s)<[^>]*>|\s+", " ", refused.body.decode())
    assert refused.status == 400
    assert "row 2, born: is not a day as dd.mm.yyyy" in text
    assert "Store the valid rows even if others are invalid" in text
    assert ">Born<" not in browser.visit("/import/").body.decode()
    assert browser.visit("/import/", **sent, skip="yes").status == 200


def test_a_workbook_is_imported_and_the_next_file_is_read_as_it_or_refused(
    service: Service,
) -> None:
    account = service.new_account()
    browser = logged_in(service, account)
    first = xlsx({"Data": sheet([["Nr", "Betrag"], ["001", 1.5], ["002", 2.5]])})
    schema = made(browser, "kunden.xlsx", first)
    page = browser.visit(f"/schemas/{schema}/upload/").body.decode()
    assert "A file like the previous one" in page
    later = xlsx({"Data": sheet([["Sales"], [], ["Betrag", "Nr"], [7.25, "003"], ["k.A.", "004"]])})
    path = f"/schemas/{schema}/upload/"
    refused = send(browser, path, "feb.xlsx", later, do="next")
    assert refused.status == 400
    assert "differs from the previous file: Betrag: &#39;k.A.&#39;" in refused.body.decode()
    later = xlsx({"Data": sheet([["Sales"], [], ["Betrag", "Nr"], [7.25, "003"], [None, "004"]])})
    assert send(browser, path, "feb.xlsx", later, do="next").status == 200
    again = send(browser, path, "feb.xlsx", later, do="next")
    assert (again.status, b"Store the records of this file again" in again.body) == (409, True)

    def told() -> str | None:
        listed = browser.visit(f"/schemas/{schema}/jobs/").body.decode()
        (job,) = set(re.findall(r"/jobs/([0-9a-f-]{36})/", listed))
        page = browser.visit(f"/jobs/{job}/").body.decode()
        return page if "How the file" in page else None

    report = eventually(told)
    assert report is not None
    assert "2 rows were read, 1 row above the table left out." in report
    form = Form()
    form.feed(report)
    assert form.values["part-0"] == "Betrag is null"
    found = browser.visit(f"/schemas/{schema}/search/", **{"part-0": "Betrag is null"}, do="search")
    assert b"004" in found.body and b"003" not in found.body
    kept = f"{service.proxy_url}/api/schemas/{schema}/reading/"
    assert call("DELETE", kept, auth=account.auth).status == 204
    third = xlsx({"Data": sheet([["Nr", "Betrag"], ["005", 3.5]])})
    unread = send(browser, path, "mar.xlsx", third, do="next")
    assert (unread.status, b"reading is kept for this schema" in unread.body) == (400, True)


RECORDS = [
    {"Nr": "001", "price": 1.5, "at": {"city": "Ulm"}},
    {"Nr": "002", "price": 2.25, "tags": ["a"]},
]
#: One document in each form that JSON comes in; the last one is an export of this service.
DOCUMENTS = {
    "array.json": json.dumps(RECORDS),
    "lines.ndjson": "\n".join(map(json.dumps, RECORDS)),
    "named.csv": json.dumps(RECORDS, indent=2),
    "within.json": json.dumps({"next": None, "results": RECORDS}, indent=2),
    "exported.json": json.dumps([{"data": record} for record in RECORDS]),
}


@pytest.fixture(scope="module")
def importer(service: Service) -> tuple[Browser, Account]:
    account = service.new_account()
    return logged_in(service, account), account


@pytest.mark.parametrize("name", DOCUMENTS)
def test_json_is_imported_by_a_reading_as_any_file(
    importer: tuple[Browser, Account], name: str
) -> None:
    browser, account = importer
    body = DOCUMENTS[name].encode()
    schema = made(browser, name, body)
    kept = call(
        "GET", f"{browser.service.proxy_url}/api/schemas/{schema}/reading/", auth=account.auth
    )
    assert kept.json()["container"] in ("json", "ndjson")
    sent = send(browser, f"/schemas/{schema}/upload/", name, body, do="send")
    assert sent.status == 200, sent.body

    def stored() -> list[dict[str, Any]] | None:
        url = f"{browser.service.proxy_url}/api/records/?schema={schema}"
        results = call("GET", url, auth=account.auth).json()["results"]
        return [record["data"] for record in results] if len(results) == 2 else None

    data = eventually(stored)
    assert data is not None
    assert [(record["Nr"], record["price"]) for record in sorted(data, key=itemgetter("Nr"))] == [
        ("001", 1.5),
        ("002", 2.25),
    ]
    assert next(record for record in data if record["Nr"] == "002")["tags"] == '["a"]'


def test_the_head_of_long_json_is_enough_for_its_fields(
    importer: tuple[Browser, Account],
) -> None:
    browser, _ = importer
    lines = "".join(f"{json.dumps({'n': at, 'note': 'x' * 500})}\n" for at in range(500))
    array = f"[{','.join(lines.splitlines())}]"
    for name, body in (("long.ndjson", lines), ("long.json", array)):
        for size in (5_000, 200_000):
            head = body.encode()[:size]
            told = {"file": name, "size": str(len(body)), "head": urlsafe_b64encode(head).decode()}
            page = browser.visit("/import/", **told, do="look").body.decode()
            assert re.search(r"About (4\d\d|500) records", page), (name, size)
            assert "do not fit" not in page


def test_a_document_that_leaves_open_which_list_has_the_records_has_a_control_for_it(
    importer: tuple[Browser, Account],
) -> None:
    browser, _ = importer
    body = json.dumps({"a": [{"x": 1}], "b": [{"y": "2"}]}).encode()
    told = {"file": "b.json", "size": str(len(body)), "head": urlsafe_b64encode(body).decode()}
    asked = browser.visit("/import/", **told, do="look")
    assert asked.status == 400
    page = asked.body.decode()
    assert "several lists of objects" in page
    assert 'name="sheet"' in page
    assert 'name="delimiter"' not in page
    told_now = browser.visit("/import/", **told, sheet="b", do="look")
    assert (told_now.status, b'value="y"' in told_now.body) == (200, True)
