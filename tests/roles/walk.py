"""Every operation of both OpenAPI documents, asked by every role."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.roles import requests
from tests.roles.people import ROLES, Stage
from tests.roles.requests import Sent
from tests.support.service import ANSWER_SECONDS, Service, call

TABLE = Path(__file__).with_name("roles.txt")
#: Of an organization with a roster, in which things are shared.
SHARED_TABLE = TABLE.with_name("shared.txt")
HOSTS = ("api", "proxy")
SAFE = ("GET", "HEAD", "OPTIONS")
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")


def operations(document: Any) -> Iterator[str]:
    for path, methods in document["paths"].items():
        yield from (f"{method.upper()} {path}" for method in methods if method.upper() in METHODS)


def observe(stage: Stage, host: str, roles: Sequence[str] = ROLES) -> dict[str, tuple[str, ...]]:
    """By operation, the status that each role gets."""
    service = stage.service
    url = service.base_url if host == "api" else service.proxy_url
    document = call("GET", f"{url}/api/openapi.json", auth=stage.owner.auth).json()
    seen: dict[str, tuple[str, ...]] = {}
    for operation in sorted(operations(document), key=_by_path):
        forget_wrong_passwords(service)
        statuses = []
        sent: Sent | None = None
        for role in roles:
            if sent is None or operation in requests.OF_ONE_ROLE:
                sent = requests.of(stage, host, operation, role)
            auth = stage.auths[role if role in stage.auths else f"{role} at {host}"]
            status = ask(url, operation, sent, auth)
            statuses.append(str(status))
            if status < 400 and operation.partition(" ")[0] not in SAFE:
                sent = None  # it may have used up what was there
        seen[f"{host} {operation}"] = tuple(statuses)
    return seen


def _by_path(operation: str) -> tuple[str, int]:
    method, _, path = operation.partition(" ")
    return path, METHODS.index(method)


def ask(url: str, operation: str, sent: Sent, auth: str) -> int:
    host, port = url.removeprefix("http://").split(":")
    headers = dict(sent.headers or {})
    told = auth if auth and "Authorization" not in headers else None
    method = operation.partition(" ")[0]
    if "Upgrade" in headers:
        connection = HTTPConnection(host, int(port), timeout=ANSWER_SECONDS)
        try:
            more = {"Authorization": told} if told else {}
            connection.request(method, sent.path, headers=headers | more)
            return connection.getresponse().status
        finally:
            connection.close()
    return call(method, url + sent.path, sent.body, auth=told, headers=headers).status


def forget_wrong_passwords(service: Service) -> None:
    """An account that was never confirmed has no right ones, and is not to be locked out."""
    path = service.data_dir / "api" / "db.sqlite3"
    with closing(sqlite3.connect(path, timeout=30)) as database:
        database.execute("DELETE FROM accounts_tally")
        database.commit()


def read_table(table: Path = TABLE) -> dict[str, tuple[str, ...]]:
    lines = table.read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {" ".join(row[:3]): tuple(row[3:]) for row in rows}


def line_of(operation: str, statuses: tuple[str, ...]) -> str:
    return f"{operation:<82}" + "".join(f"{status:>11}" for status in statuses)
