"""Nothing that an API answers runs in the browser of somebody who is logged in at the proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import visiting
from tests.browser.visitor import Visitor
from tests.support.front import Asked, Front, Reply, nothing, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Service

#: What an API would like to run at the proxy's address, in the victim's name.
_EVIL = "document.title = 'ran'; fetch('/api/csrf/?ran'); fetch('/ran/')"
HTML = f"<!doctype html><title>quiet</title><script>{_EVIL}</script>".encode()
SVG = f"<svg xmlns='http://www.w3.org/2000/svg'><script>{_EVIL}</script></svg>".encode()
KINDS = {
    "text/html": HTML,
    "application/xhtml+xml": HTML.replace(
        b"<!doctype html>", b"<html xmlns='http://www.w3.org/1999/xhtml'>"
    )
    + b"</html>",
    "image/svg+xml": SVG,
    "text/javascript": _EVIL.encode(),
    # Long enough not to be looked into on its way.
    "application/json": HTML + b" " * (300 << 10),
}


@dataclass
class Victim:
    """Somebody at a proxy whose API lies; ``bare`` is the same as an old browser would reach it,
    which says nothing of where it goes."""

    front: Front
    bare: Front
    visitor: Visitor
    requested: list[str]

    @property
    def proxy(self) -> str:
        return self.visitor.site.proxy_url

    def ran(self) -> bool:
        self.visitor.page.wait_for_timeout(50)
        asked = [*self.requested, *(asked.path for asked in self.front.asked)]
        return self.visitor.page.title() == "ran" or any("ran" in one for one in asked)


@pytest.fixture(scope="module")
def logged_in(
    chromium: Browser, site: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Victim]:
    with (
        running_front(site.base_url) as front,
        running_proxy(front.url, tmp_path_factory.mktemp("victim")) as proxy,
        running_front(proxy.url) as bare,
        visiting(chromium, replace(site, proxy_url=proxy.url), quiet=False) as visitor,
    ):
        bare.hidden = frozenset(
            {"host", "origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"}
        )
        requested: list[str] = []
        visitor.page.context.on("request", lambda request: requested.append(request.url))
        visitor.log_in(site.new_account())
        yield Victim(front, bare, visitor, requested)


@pytest.fixture
def victim(logged_in: Victim) -> Iterator[Victim]:
    visitor = logged_in.visitor
    visitor.go("/datasets/")
    visitor.expect_heading("Datasets")
    logged_in.front.forget()
    logged_in.bare.forget()
    logged_in.requested.clear()
    yield logged_in
    logged_in.front.invent = nothing
    visitor.page.goto(f"{logged_in.proxy}{visitor.at}/account/")


def always(kind: str) -> Callable[[Asked], Reply]:
    """The lie of that media type, whatever was asked, with a session of the API's choice."""
    reply = Reply(200, {"Content-Type": kind}, KINDS[kind], (f"sessionid={'e' * 32}; Path=/",))
    return lambda _asked: reply


def test_a_link_to_an_answer_of_the_apis_runs_nothing(victim: Victim) -> None:
    visitor = victim.visitor
    at = visitor.below("")
    assert at.startswith("/~")
    for kind, path in product(
        KINDS, ("/api/users/self/", f"{at}/api/users/self/", "/api/evil/", "/api/status/")
    ):
        victim.front.invent = always(kind)
        answer = visitor.page.goto(victim.proxy + path)
        assert answer is not None
        assert (answer.status, answer.json()["code"]) == (403, "not_a_page")
        assert not victim.ran()
    # The API has not even been asked.
    assert victim.front.asked == []


def test_nor_in_a_browser_that_does_not_say_where_it_goes(victim: Victim) -> None:
    page = victim.visitor.page
    page.goto(f"{victim.bare.url}/login/")
    assert victim.bare.asked  # it is the way there
    for kind, path in product(
        KINDS, ("/api/users/self/", "/api/csrf/", "/api/evil/", "/api/status/")
    ):
        victim.front.invent = always(kind)
        answer = page.goto(victim.bare.url + path)
        assert answer is not None
        assert answer.headers["content-type"] in ("application/json", "application/problem+json")
        assert answer.headers["content-security-policy"].startswith("sandbox;")
        assert not victim.ran()
    assert any(asked.path == "/api/users/self/" for asked in victim.front.asked)
    assert all(cookie["value"] != "e" * 32 for cookie in page.context.cookies())


def test_a_page_of_another_site_gets_nothing_through_the_victims_browser(victim: Victim) -> None:
    """Another port of the same machine, which browsers call the same site."""
    at, proxy = victim.visitor.below(""), victim.proxy
    targets = [f"{proxy}{prefix}/api/{name}/" for prefix in ("", at) for name in ("csrf", "jobs")]
    parts = [
        f"<script src='{target}'></script><img src='{target}'><iframe src='{target}'></iframe>"
        f"<object data='{target}'></object><link rel=stylesheet href='{target}'>"
        f"<script>fetch('{target}', {{credentials: 'include', mode: 'no-cors'}});"
        f"fetch('{target}', {{method: 'POST', credentials: 'include', mode: 'no-cors',"
        " body: '1'});"
        f"navigator.sendBeacon('{target}', 'x');"
        f"new WebSocket('{target.replace('http', 'ws')}')</script>"
        for target in targets
    ]
    mean = "<!doctype html>" + "".join(parts)
    victim.front.invent = always("text/javascript")

    def serve(asked: Asked) -> Reply:
        return Reply(200, {"Content-Type": "text/html"}, mean.encode())

    with running_front(proxy) as site:
        site.invent = serve
        victim.visitor.page.goto(f"{site.url}/")
        victim.visitor.page.wait_for_load_state("networkidle")
        assert len(victim.requested) > len(targets)
        # None of these requests came as far as the API.
        assert victim.front.asked == []
        # But a link leads to a page, and back into the session.
        victim.front.invent = nothing
        victim.visitor.page.evaluate(f"location.href = '{proxy}{at}/datasets/'")
        victim.visitor.page.wait_for_url(f"{proxy}{at}/**")
    assert not victim.ran()
