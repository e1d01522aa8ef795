"""The pages behind the links in messages, used as a browser would, without one."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import secrets
from html import unescape
from urllib.parse import urlencode, urlsplit

import pytest

from encrypted_records.proxy.pages import frame
from encrypted_records.proxy.pages.templating import templates
from tests.support.eventually import eventually
from tests.support.page_visits import logged_in
from tests.support.service import Account, Answer, Service, call

PASSWORD = "violet harbour 49 lantern"


def register(service: Service) -> tuple[str, str]:
    """A fresh address, and the link that its message holds."""
    address = f"{secrets.token_hex(6)}@example.org"
    body = {"email": address, "password": PASSWORD, "password_confirm": PASSWORD}
    url = f"{service.proxy_url}/api/accounts/register/"
    assert call("POST", url, body | {"organization_name": "Pages"}).status == 201
    return address, link_in_message(service, address)


def link_in_message(service: Service, address: str) -> str:
    signed = service.link_for(address)
    query = {
        "user_id": signed.user_id,
        "timestamp": signed.timestamp,
        "signature": signed.signature,
    }
    return f"{service.proxy_url}/verify-registration/?{urlencode(query)}"


def submit(page: Answer, service: Service, **typed: str) -> Answer:
    """Press the button of the page's form."""
    html = page.body.decode()
    action = re.search(r'<form method="post" action="([^"]+)"', html)
    assert action
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', html))
    values = {name: unescape(value) for name, value in fields.items()} | typed
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": service.proxy_url,
    }
    url = service.proxy_url + action.group(1)
    return call("POST", url, urlencode(values).encode(), headers=headers)


def can_log_in(service: Service, address: str, password: str) -> bool:
    body = {"email": address, "password": password}
    return call("POST", f"{service.proxy_url}/api/token/", body).status == 200


def test_opening_the_link_changes_nothing_and_its_button_confirms_the_address(
    service: Service,
) -> None:
    address, link = register(service)

    page = call("GET", link)
    assert page.status == 200
    assert not can_log_in(service, address, PASSWORD)

    done = submit(page, service)
    assert done.status == 200
    assert b"Your address is confirmed" in done.body
    assert can_log_in(service, address, PASSWORD)

    again = submit(page, service)
    assert again.status == 400
    assert b'role="alert"' in again.body


def test_the_message_links_to_that_page(service: Service) -> None:
    address, link = register(service)

    messages = [path.read_text() for path in (service.data_dir / "mail").glob("*.eml")]
    (mine,) = [text for text in messages if address in text]
    plain = re.sub(r"=\r?\n", "", mine).replace("=3D", "=")
    signature = urlsplit(link).query.rpartition("signature=")[2]
    assert f"{service.proxy_url}/verify-registration/?" in plain
    assert signature in plain


def test_a_new_password_is_chosen_on_the_page_of_a_reset_link(service: Service) -> None:
    account: Account = service.new_account()
    url = f"{service.proxy_url}/api/accounts/send-reset-password-link/"
    assert call("POST", url, {"email": account.email}).status == 200
    page = wait_for_reset_page(service, account.email)

    weak = submit(page, service, password="short")
    assert weak.status == 400
    assert b"short" not in weak.body.partition(b"<main")[2].replace(b"too short", b"")
    done = submit(weak, service, password=PASSWORD)

    assert done.status == 200, done.body
    assert can_log_in(service, account.email, PASSWORD)
    assert not can_log_in(service, account.email, account.password)


def wait_for_reset_page(service: Service, address: str) -> Answer:
    """The page of the newest message to an address that has two."""

    def values() -> dict[str, str]:
        messages = sorted(
            (service.data_dir / "mail").glob("*.eml"), key=lambda p: p.stat().st_mtime_ns
        )
        texts = [path.read_text() for path in messages if address in path.read_text()]
        for text in texts:
            if "/reset-password/?" in text:
                plain = text.partition("Content-Type: text/html")[0]
                found = re.findall(r"^(user_id|timestamp|signature): (\S+)", plain, re.MULTILINE)
                return dict(found)
        return {}

    signed = eventually(values, "a reset link comes")
    return call("GET", f"{service.proxy_url}/reset-password/?{urlencode(signed)}")


PUBLIC = ["/login/", "/register/", "/forgot-password/", "/verify-registration/", "/reset-password/"]


@pytest.mark.parametrize("path", [*PUBLIC, "/no/such/page/"])
def test_pages_load_nothing_from_elsewhere_and_run_no_inline_script(
    service: Service, path: str
) -> None:
    page = call("GET", service.proxy_url + path)

    assert page.status == (200 if path in PUBLIC else 404)
    assert page.headers["Content-Type"].startswith("text/html")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["Referrer-Policy"] == "same-origin"
    assert page.headers["Cache-Control"] == "no-store"
    html = page.body.decode()
    assert re.sub(r'<script src="/static/[^"]+" defer></script>', "", html).count("<script") == 0
    loaded = re.findall(r'(?:src|href)="([^"#]+)"', html)
    assert any(re.fullmatch(r"/static/pages\.[0-9a-f]{12}\.css", target) for target in loaded)
    for target in loaded:
        assert target.startswith("/")
        assert call("GET", service.proxy_url + target).status == 200
    assert "camera=()" in page.headers["Permissions-Policy"]


def test_files_of_pages_are_kept_by_browsers_until_their_content_changes(service: Service) -> None:
    html = call("GET", f"{service.proxy_url}/login/").body.decode()
    (address,) = re.findall(r'href="(/static/pages\.[0-9a-f]{12}\.css)"', html)
    digest = address.split(".")[1]

    kept = call("GET", service.proxy_url + address)
    assert kept.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert hashlib.sha256(kept.body).hexdigest().startswith(digest)
    # An address of another content, and the plain one, are asked for again each time.
    for other in (address.replace(digest, "0" * 12), "/static/pages.css"):
        answer = call("GET", service.proxy_url + other)
        assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-cache")
        assert answer.body == kept.body
    assert call("GET", f"{service.proxy_url}/static/none.{digest}.css").status == 404


def test_files_of_pages_are_compressed_and_pages_are_not(service: Service) -> None:
    accepts = {"Accept-Encoding": "gzip"}
    sheet = call("GET", f"{service.proxy_url}/static/pages.css", headers=accepts)
    assert sheet.headers["Content-Encoding"] == "gzip"
    assert b"--" in gzip.decompress(sheet.body)
    page = call("GET", f"{service.proxy_url}/login/", headers=accepts)
    assert "Content-Encoding" not in page.headers


def test_pages_are_sent_without_the_indentation_of_their_templates(service: Service) -> None:
    page = call("GET", service.proxy_url + "/login/").body.decode()
    assert "<form" in page
    assert [line for line in page.splitlines() if line[:1].isspace()] == []


def test_what_a_link_carries_cannot_break_out_of_the_page(service: Service) -> None:
    query = urlencode({"user_id": '"><script>alert(1)</script>'})

    page = call("GET", f"{service.proxy_url}/verify-registration/?{query}")

    assert b"<script>alert" not in page.body
    assert submit(page, service).status == 400
    assert submit(page, service, timestamp="1" * 5000).status == 400


def test_a_form_of_another_site_is_refused(service: Service) -> None:
    url = f"{service.proxy_url}/verify-registration/"
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": "https://evil.example",
    }

    assert call("POST", url, b"user_id=x", headers=headers).status == 403


def test_pages_without_their_scripts_say_so_and_ask_for_none() -> None:
    shown: dict[str, object] = {
        "csrf": "",
        "at": "",
        "path": "/",
        "here": "/",
        "problem": None,
        "title": "Jobs",
        "lines": [],
        "link": None,
        "frame": frame.PageFrame(),
        "visitor": "",
        "is_part": False,
        "is_copy": False,
    }

    html = templates.get_template("said.html").render(known=True, built=False, **shown)

    assert "make web" in html
    assert "<script" not in html


def test_a_forged_form_of_an_import_is_answered_by_the_page(service: Service) -> None:
    browser = logged_in(service, service.new_account())
    known = {"columns": [{"source": name, "name": name} for name in ("name", "age", "more")]}
    form = {"file": "people.csv", "sample": "name,age\nAda,x\n", "field-0": "name", "do": "check"}
    form |= {"reading": json.dumps(known), "type-1": "date", "kind-1": "string"}
    answer = browser.visit("/import/", **form)
    assert (answer.status, b"people.csv" in answer.body) == (400, True)
