"""The operators' pages: for whom the settings name, and for nobody by default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.server.api import PASSWORD, Account, Answer, Api, running_api
from tests.server.sessions import set_cookies
from tests.server.writer import Writer, person

OPERATOR = "operator@example.org"


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("operated")
    with running_api(folder, environment={"ERS_ADMIN": f"Operator@example.org, {OPERATOR}"}) as api:
        api.register(OPERATOR)
        api.call("POST", "/api/accounts/verify-registration/", api.signed(OPERATOR))
        yield api


class Browser:
    """Cookies kept, forms sent with their token."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.cookies: dict[str, str] = {}

    def ask(self, method: str, path: str, **fields: str) -> Answer:
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        body = None
        if method == "POST":
            page = self.ask("GET", path)
            token = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', page.body)
            assert token
            headers["Cookie"] = "; ".join(f"{name}={one}" for name, one in self.cookies.items())
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = urlencode(fields | {"csrfmiddlewaretoken": token[1].decode()}).encode()
        answer = self.api.call(method, path, body, headers=headers)
        pairs = [line.partition(";")[0].partition("=") for line in set_cookies(answer)]
        self.cookies |= {name: value for name, _, value in pairs}
        return answer

    def log_in(self, email: str, password: str) -> Answer:
        return self.ask("POST", "/admin/login/?next=/admin/", username=email, password=password)


def test_by_default_there_is_no_admin(api: Api) -> None:
    for path in ("/admin/", "/admin/login/", "/admin/static/admin/css/base.css"):
        assert api.call("GET", path).status == 404


def test_an_operator_sees_accounts_and_no_secret_or_ciphertext(operated: Api) -> None:
    account = operated.new_account()
    schema = account.new_schema(name="unmistakable-needle")
    writer = Writer(account, schema)
    assert writer.post(writer.adding([person()])).status == 201
    browser = Browser(operated)
    assert browser.log_in(OPERATOR, PASSWORD).status == 302
    index = browser.ask("GET", "/admin/")
    assert index.status == 200
    sections = set(re.findall(rb'href="/admin/(\w+/\w+)/"', index.body))
    assert sections == {
        b"accounts/user",
        b"organizations/organization",
        b"organizations/auditentry",
    }
    shown = b""
    for section in sections:
        listed = browser.ask("GET", f"/admin/{section.decode()}/")
        assert listed.status == 200
        shown += listed.body
        for path in re.findall(rb'href="(/admin/\w+/\w+/[^"?]+/change/)', listed.body)[:3]:
            page = browser.ask("GET", path.decode())
            assert page.status == 200, path
            shown += page.body
    assert account.email.encode() in shown
    for hidden in (b"argon2", b"unmistakable-needle", account.token.encode()):
        assert hidden not in shown
    styles = browser.ask("GET", "/admin/static/admin/css/base.css")
    assert styles.status == 200
    assert "default-src 'self'" in index.headers["Content-Security-Policy"]


def test_nobody_else_gets_in(operated: Api) -> None:
    account = operated.new_account()
    browser = Browser(operated)
    assert browser.log_in(account.email, account.password).status == 200
    assert browser.ask("GET", "/admin/").status == 302
    bearer = {"Authorization": f"Bearer {account.token}"}
    assert operated.call("GET", "/admin/accounts/user/", headers=bearer).status == 302


def test_an_operator_s_session_is_none_of_the_api(operated: Api) -> None:
    browser = Browser(operated)
    browser.log_in(OPERATOR, PASSWORD)
    assert browser.ask("GET", "/api/users/self/").status == 401


def test_shutting_an_account_ends_what_it_had_and_opening_it_brings_nothing_back(
    operated: Api,
) -> None:
    account: Account = operated.new_account()
    me = account.call("GET", "/api/users/self/").json()["id"]
    browser = Browser(operated)
    browser.log_in(OPERATOR, PASSWORD)
    listed = browser.ask("GET", f"/admin/accounts/user/?q={account.email}").body
    [path] = set(re.findall(rb'href="(/admin/accounts/user/[^"?]+/change/)', listed))
    assert browser.ask("POST", path.decode()).status == 302
    assert account.call("GET", "/api/users/self/").status == 401
    assert operated.token_pair(account.email, PASSWORD).status == 401
    assert browser.ask("POST", path.decode(), is_active="on").status == 302
    assert account.call("GET", "/api/users/self/").status == 401
    pair = operated.token_pair(account.email, PASSWORD)
    again = {"Authorization": f"Bearer {pair.json()['access']}"}
    assert operated.call("GET", "/api/users/self/", headers=again).json()["id"] == me


def test_wrong_passwords_there_count_with_all_others(operated: Api) -> None:
    address = operated.new_address()
    browser = Browser(operated)
    for _ in range(5):
        assert browser.log_in(address, "wrong").status == 200
        assert operated.token_pair(address, "wrong").status == 401
    refused = operated.token_pair(address, "wrong")
    assert (refused.status, refused.code) == (429, "too_many_failures")
