"""Pages without a browser: what one sends, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from tests.support.service import Account, Answer, Service, call, cookies_of


@dataclass
class Browser:
    """Somebody who is logged in on the pages: a secret path, and the cookie of it."""

    service: Service
    at: str
    cookie: str

    def visit(self, path: str, **form: str) -> Answer:
        """A page, or what its form answers; redirects are followed."""
        url = f"{self.service.proxy_url}{self.at}{path}"
        headers = {"Cookie": self.cookie, "Origin": self.service.proxy_url}
        if not form:
            return call("GET", url, headers=headers)
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        csrf = self.cookie.rpartition(".")[2]
        return call("POST", url, urlencode({"csrf": csrf, **form}).encode(), headers=headers)


def logged_in(service: Service, account: Account) -> Browser:
    form = {"email": account.email, "password": account.password, "next": ""}
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": service.proxy_url,
        "HX-Request": "true",  # a browser follows the redirect by itself, and shows nothing of it
    }
    answer = call("POST", f"{service.proxy_url}/login/", urlencode(form).encode(), headers=headers)
    assert answer.status == 204, answer.body
    ((name, value),) = cookies_of(answer).items()
    line = str(answer.headers["Set-Cookie"])
    at = str(answer.headers["HX-Redirect"]).rstrip("/")
    assert f"Path={at}/;" in line
    assert "HttpOnly" in line
    assert "samesite=strict" in line.lower()
    return Browser(service, at, f"{name}={value}")
