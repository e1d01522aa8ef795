"""Browsers that have logged in."""

from __future__ import annotations

from tests.server.api import PASSWORD, Answer, Api

NEW_PASSWORD = "staple battery horse"


def session_of(api: Api, address: str, password: str = PASSWORD) -> dict[str, str]:
    """Cookie and CSRF headers of a browser that has logged in."""
    answer = api.call("POST", "/api/accounts/login/", {"email": address, "password": password})
    assert answer.status == 200, answer.body
    assert all("HttpOnly" in line for line in set_cookies(answer) if "sessionid" in line)
    csrf = api.call("GET", "/api/csrf/")
    pairs = [line.partition(";")[0] for line in set_cookies(answer) if "sessionid" in line]
    pairs += [line.partition(";")[0] for line in set_cookies(csrf)]
    return {"Cookie": "; ".join(pairs), "X-CSRFToken": csrf.json()["csrfToken"]}


def set_cookies(answer: Answer) -> list[str]:
    return answer.headers.get_all("Set-Cookie") or []
