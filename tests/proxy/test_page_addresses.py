"""What stands in a page's address reaches the API as an identifier, or not at all."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import pytest
from starlette.routing import Route

from encrypted_records.model.ids import new_id, to_text
from encrypted_records.proxy import pages as web
from encrypted_records.proxy.pages.page import file_headers
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.page_visits import logged_in
from tests.support.proxies import running_proxy
from tests.support.service import ANSWER_SECONDS, Service, call
from tests.support.store import new_schema

ID = to_text(new_id())
JOB = "0a1b2c3d-0a1b-4c2d-8e3f-0a1b2c3d4e5f"
PATTERNS = sorted(
    {route.path for route in web.routes if isinstance(route, Route) and "{" in route.path}
    - {web.home.last.path}
)
WRONG = (
    *("x%3fcascade=true&", "..", "%2e%2e", "x%0d%0aX-Evil:%20y", "%00", "%ff", "%c3%a4", "%23"),
    *("x;y", "%5c", ".", "self", ID[:-1], ID + "2", ID[:-1] + "0", ID + "%0a", "%20" + ID),
    *(JOB.upper(), JOB.replace("-", ""), "{" + JOB + "}", "urn:uuid:" + JOB, "%252e"),
)


@dataclass(frozen=True)
class Place:
    front: Front
    url: str
    #: The secret path below which the cookie counts.
    at: str
    cookie: str
    schema: str

    def get(self, path: str, **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        """As it is: no client of ours tidies the path up."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=ANSWER_SECONDS)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request("GET", self.at + path, headers={"Cookie": self.cookie, **named})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def place(
    services: Callable[[str], Service], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    service = services("sqlite")  # which database the API has makes no difference here
    account = service.new_account()
    definition = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema = new_schema(service, account, definition)
    folder = tmp_path_factory.mktemp("addresses")
    with running_front(service.base_url) as front, running_proxy(front.url, folder) as proxy:
        browser = logged_in(replace(service, proxy_url=proxy.url), account)
        yield Place(front, proxy.url, browser.at, browser.cookie, schema.split("/")[-2])


def filled(pattern: str, value: str, other: str = ID) -> str:
    """The pattern with ``value`` for its first part, and ``other`` for the rest."""
    for name in ("{id}", "{job}", "{member}"):
        if name in pattern:
            pattern = pattern.replace(name, value)
            value = other
    return pattern


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_is_no_identifier_is_no_page(place: Place, pattern: str) -> None:
    wrong = (*WRONG, ID) if "{job}" in pattern else (*WRONG, JOB)
    place.front.forget()
    for value in wrong:
        for more in ({}, {"HX_Request": "true"}):
            status, headers, body = place.get(filled(pattern, value), **more)
            assert status in (404, 405), (pattern, value, status)
            assert "X-Evil" not in headers
            assert status == 405 or headers["Content-Type"].startswith("text/html")
            assert status == 405 or b"there is no such " in body.lower()
    if "{member}" in pattern:
        for value in wrong:
            assert place.get(filled(pattern, ID, value))[0] == 404
    # Who is asking has not even been looked at.
    assert not place.front.asked


@pytest.mark.parametrize(
    "path", ["/%0d%0ax/", "/%00", "/%ff/", "/static/%00", "/static/%0d%0a.css"]
)
def test_other_addresses_that_are_odd_are_404(place: Place, path: str) -> None:
    for more in ({}, {"HX_Request": "true"}):
        assert place.get(path, **more)[0] == 404


def test_what_the_api_says_leads_to_no_path_of_its_choice(place: Place) -> None:
    """A schema names its dataset, which its page then asks for."""
    for path in (
        f"/api/datasets/{ID}/?cascade=true&",
        "/api/datasets/../../logout/",
        "/api/datasets/\r\nX-Evil: y/",
        "/api/datasets/\ud800/",
        "/api/\u00e4/",
        "http://evil.example/",
        "/logout/",
        "",
        7,
        None,
    ):

        def lie(asked: Asked, reply: Reply, path: object = path) -> Reply:
            if asked.path != f"/api/schemas/{place.schema}/":
                return reply
            found = json.loads(reply.body) | {"dataset": path}
            return replace(reply, body=json.dumps(found).encode())

        place.front.forget()
        with place.front.telling(lie):
            assert place.get(f"/schemas/{place.schema}/people/")[0] == 502, path
        # What surrounds the page asks for a list of datasets, by a path of its own.
        asked_for = [one.path for one in place.front.asked if "datasets" in one.path]
        assert [path for path in asked_for if not path.startswith("/api/datasets/?limit=")] == []


def test_a_slug_of_the_apis_that_is_none_makes_no_download(place: Place) -> None:
    slug = 'x"\r\nContent-Type: text/html\r\n\r\n<script>1</script>'

    def lie(asked: Asked, reply: Reply) -> Reply:
        if asked.path != f"/api/schemas/{place.schema}/" or reply.status != 200:
            return reply
        return replace(reply, body=json.dumps(json.loads(reply.body) | {"slug": slug}).encode())

    form = f"format=csv&csrf={place.cookie.rpartition('.')[2]}".encode()
    headers = {
        "Cookie": place.cookie,
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": place.url,
    }
    with place.front.telling(lie):
        url = f"{place.url}{place.at}/schemas/{place.schema}/export/"
        answer = call("POST", url, form, headers=headers)
    assert answer.status == 502, answer.body
    assert "Content-Disposition" not in answer.headers
    assert b"<script>1" not in answer.body
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_a_name_makes_no_header_of_a_download() -> None:
    headers = file_headers('x"\r\nContent-Type: text/html\r\n\r\n<script>1</script>.csv')
    assert headers["Content-Disposition"] == (
        'attachment; filename="x-Content-Type-text-html-script-1-script-.csv"'
    )
