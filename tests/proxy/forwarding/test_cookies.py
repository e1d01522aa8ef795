"""Cookies of the API's: the session's two, written anew, where a session begins or ends."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.proxy.forwarding.place import SELF, Place, instead
from tests.support.service import Answer, call

_KEY = "k" * 32


def cookies(answer: Answer) -> list[str]:
    lines: list[str] = answer.headers.get_all("Set-Cookie") or []
    return lines


def log_in(place: Place, *, headers: Mapping[str, str] | None = None) -> Answer:
    body = {"email": place.account.email, "password": place.account.password}
    return call("POST", f"{place.proxy}/api/accounts/login/", body, headers=headers)


def test_the_sessions_cookies_are_written_anew(place: Place) -> None:
    lines = sorted(cookies(log_in(place)))
    assert [line.partition("=")[0] for line in lines] == ["csrftoken", "sessionid"]
    csrf, session = (line.split("; ", 1)[1] for line in lines)
    assert session == "Path=/; SameSite=Lax; Max-Age=1209600; HttpOnly"
    assert csrf == "Path=/; SameSite=Lax; Max-Age=31449600"
    by_https = cookies(log_in(place, headers={"X-Forwarded-Proto": "https"}))
    assert len(by_https) == 2
    assert all(line.endswith("; Secure") for line in by_https)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("ers_8080=x; Path=/", None),
        ("__Host-sessionid=x; Path=/", None),
        ("sessionid=a b; Path=/", None),
        ('sessionid="x"; Path=/', None),
        (f"sessionid={'k' * 65}", None),
        (f"sessionid ={_KEY}", None),
        (f"SessionID={_KEY}", None),
        (
            f"sessionid={_KEY}; Domain=example; Path=/api; SameSite=None; Max-Age=99999999999",
            f"sessionid={_KEY}; Path=/; SameSite=Lax; Max-Age=1209600; HttpOnly",
        ),
        (f"sessionid={_KEY}", f"sessionid={_KEY}; Path=/; SameSite=Lax; HttpOnly"),
        (
            'sessionid=""; expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=0; Path=/',
            "sessionid=; Path=/; SameSite=Lax; Max-Age=0; HttpOnly",
        ),
        (
            f"csrftoken={_KEY}; Max-Age=-5; HttpOnly",
            "csrftoken=; Path=/; SameSite=Lax; Max-Age=0",
        ),
    ],
)
def test_a_cookie_of_the_apis_is_ours_or_none(place: Place, told: str, kept: str | None) -> None:
    with place.front.telling(instead(cookies=[told])):
        assert cookies(log_in(place)) == ([] if kept is None else [kept])


def test_only_beginning_and_ending_sessions_sets_cookies(place: Place) -> None:
    with place.front.telling(instead(cookies=[f"sessionid={_KEY}", f"csrftoken={_KEY}"])):
        for method, path in (("GET", SELF), ("POST", "/api/token/"), ("GET", "/api/status/")):
            assert not cookies(place.call(method, path, {} if method == "POST" else None)), path
        assert len(cookies(place.call("POST", "/api/accounts/logout/"))) == 2
        (one,) = cookies(place.call("GET", "/api/csrf/"))
        assert one.startswith("csrftoken=")


def test_logging_out_takes_the_cookie_away(place: Place) -> None:
    headers = {"Cookie": "; ".join(line.partition(";")[0] for line in cookies(log_in(place)))}
    csrf = call("GET", f"{place.proxy}/api/csrf/", headers=headers).json()["csrfToken"]
    headers["X-CSRFToken"] = csrf
    out = call("POST", f"{place.proxy}/api/accounts/logout/", headers=headers)
    assert out.status == 200
    assert "sessionid=; Path=/; SameSite=Lax; Max-Age=0; HttpOnly" in cookies(out)
