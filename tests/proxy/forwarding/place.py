"""A proxy whose API lies when it is told to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.support.front import Asked, Front, Lie
from tests.support.service import Account, Answer, call

SCRIPT = b"<!doctype html><script>document.title = 'ran'</script>"

SELF = "/api/users/self/"

DATA = {
    "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass
class Place:
    """A proxy whose API is behind a front that lies when it is told to."""

    front: Front
    proxy: str
    account: Account

    def call(
        self, method: str, path: str, body: Any = None, *, auth: str = "", **headers: str
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = self.proxy + path
        return call(method, url, body, auth=auth or self.account.auth, headers=named)

    def anybody(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return call(method, self.proxy + path, body, headers=named)

    def code(self, *asked: Any, **headers: str) -> tuple[int, str]:
        answer = self.call(*asked, **headers)
        return answer.status, answer.json()["code"]

    @property
    def last(self) -> Asked:
        return self.front.asked[-1]


def instead(**changes: Any) -> Lie:
    """The honest answer, with other parts."""
    return lambda _asked, reply: replace(reply, **changes)


def adding(**headers: str) -> Lie:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _asked, reply: replace(reply, headers={**reply.headers, **named})
