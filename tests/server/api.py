"""Driving a real API process over real HTTP."""

from __future__ import annotations

import base64
import email
import email.policy
import functools
import json
import re
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path
from typing import Any

import psycopg

from encrypted_records.model import ids
from tests.support.eventually import eventually
from tests.support.forked import Forked
from tests.support.ports import free_port
from tests.support.service import ANSWER_SECONDS, clean_environment, new_accounts
from tests.support.tables import give_tables

__all__ = ["free_port"]

PASSWORD = "correct horse battery"
PUBLIC_URL = "http://proxy.example:8080"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name"],
}
_START = """
import sys
from pathlib import Path
from encrypted_records.server.serve import ApiSettings, run
from encrypted_records.errors import ErsError
data_dir, port, database_url, email_url, public_url, log_format = sys.argv[1:]
try:
    run(ApiSettings(Path(data_dir), "127.0.0.1", int(port), database_url or None,
                    email_url or None, public_url, log_format))
except ErsError as error:
    sys.exit(f"{error.reason}: {error.message}")
"""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The stable code of a problem document; fails on anything else."""
        assert self.headers["Content-Type"] == "application/problem+json", self.body
        document = self.json()
        assert document["status"] == self.status
        assert {"type", "title", "detail"} <= set(document)
        return str(document["code"])

    def flaws(self) -> dict[str, str]:
        """Pointer (or parameter) -> code of everything the problem document lists."""
        listed = self.json()["errors"]
        return {flaw.get("pointer", flaw.get("parameter")): flaw["code"] for flaw in listed}


@dataclass(frozen=True)
class Account:
    """A verified account; ``organization`` is the path of the one it owns."""

    api: Api = field(repr=False)
    email: str
    password: str
    token: str = field(repr=False)
    organization: str

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        bearer = {"Authorization": f"Bearer {self.token}"}
        return self.api.call(method, path, body, headers=bearer | headers)

    def post(self, path: str, body: Any) -> Any:
        """Create something that must succeed."""
        answer = self.call("POST", path, body)
        assert answer.status == 201, answer.body
        return answer.json()

    def new_dataset(self, **members: Any) -> Any:
        name = f"dataset {secrets.token_hex(4)}"
        return self.post(
            "/api/datasets/", {"name": name, "organization": self.organization} | members
        )

    def new_schema(self, definition: Any = None, **members: Any) -> Any:
        if "dataset" not in members:
            members["dataset"] = self.new_dataset()["url"]
        name = f"schema {secrets.token_hex(4)}"
        return self.post("/api/schemas/", {"name": name, "schema": definition or PERSON} | members)


@dataclass(frozen=True)
class Api:
    process: subprocess.Popen[bytes]
    port: int
    data_dir: Path
    log: Path
    database_url: str | None = None
    #: addresses and organizations of accounts that nobody has yet, where they are made many at a
    #: time; no message went to them
    ready: list[tuple[str, str]] | None = field(default=None, repr=False, compare=False)

    def execute(self, statement: str) -> None:
        """Change the database behind the API's back."""
        if self.database_url is None:
            with closing(sqlite3.connect(self.data_dir / "api" / "db.sqlite3")) as database:
                database.execute(statement)
                database.commit()
        else:
            with psycopg.connect(self.database_url, autocommit=True) as connection:
                connection.execute(statement.encode())

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request; ``body`` is bytes, or anything JSON can say."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, path, data, sent | dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def new_address(self) -> str:
        return f"{secrets.token_hex(6)}@example.org"

    def register(self, address: str, password: str = PASSWORD, **members: str) -> Answer:
        body = {
            "email": address,
            "password": password,
            "password_confirm": password,
            "organization_name": "Acme",
        }
        return self.call("POST", "/api/accounts/register/", body | members)

    def messages_to(self, address: str, count: int) -> list[EmailMessage]:
        """All messages to an address, oldest first, once there are ``count`` of them."""

        def came() -> list[EmailMessage]:
            paths = [
                path for path in (self.data_dir / "mail").glob("*.eml") if _may_name(path, address)
            ]
            messages = [_message(path) for path in sorted(paths, key=_made)]
            return [message for message in messages if message["To"] == address]

        def all_came() -> list[EmailMessage] | None:
            return found if len(found := came()) >= count else None

        if count == 0:
            return came()
        found = eventually(all_came, f"{count} messages come to {address}", pause=0.005)
        assert found
        return found

    def signed(self, address: str, count: int = 1) -> dict[str, Any]:
        """The signed values of the newest of ``count`` messages to an address."""
        return signed_values(self.messages_to(address, count)[-1])

    def new_account(self) -> Account:
        if self.ready is not None:
            if not self.ready:
                made = new_accounts(self.data_dir, self.database_url, PASSWORD)
                self.ready.extend((email, organization) for email, _, organization in made)
            address, organization = self.ready.pop()
            token = self.token_pair(address, PASSWORD).json()["access"]
            return Account(self, address, PASSWORD, token, organization)
        address = self.new_address()
        assert self.register(address).status == 201
        signed = self.signed(address)
        verified = self.call("POST", "/api/accounts/verify-registration/", signed)
        assert verified.status == 200, verified.body
        pair = self.token_pair(address, PASSWORD).json()
        me = self.call(
            "GET", "/api/users/self/", headers={"Authorization": f"Bearer {pair['access']}"}
        ).json()
        return Account(self, address, PASSWORD, pair["access"], me["organizations"][0])

    @property
    def busy_seconds(self) -> float:
        """Of a processor, that it has used so far: what else the machine does is no part of it."""
        # Linux's clock of another process's processor time: clock_getcpuclockid(3).
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def token_pair(self, address: str, password: str) -> Answer:
        return self.call("POST", "/api/token/", {"email": address, "password": password})


@functools.cache
def _read(path: Path) -> bytes:
    """A message, which is whole when it gets this name."""
    return path.read_bytes()


def _may_name(path: Path, address: str) -> bool:
    """To take a message apart takes a hundred times as long."""
    return not address.isascii() or address.encode() in _read(path)


def _message(path: Path) -> EmailMessage:
    message = email.message_from_bytes(_read(path), policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


def _made(path: Path) -> int:
    return path.stat().st_mtime_ns


def text_of(message: EmailMessage, kind: str = "plain") -> str:
    body = message.get_body((kind,))
    assert body is not None
    return str(body.get_content())


def signed_values(message: EmailMessage) -> dict[str, Any]:
    text = text_of(message)
    values = dict(re.findall(r"^(user_id|timestamp|signature): (\S+)$", text, re.MULTILINE))
    return {**values, "timestamp": int(values["timestamp"])}


def basic(address: str, password: str) -> dict[str, str]:
    pair = base64.b64encode(f"{address}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def id_bytes(resource: Any) -> bytes:
    return ids.from_text(resource["id"])


def start(
    folder: Path,
    *,
    port: int,
    database_url: str | None = None,
    email_url: str | None = None,
    public_url: str = PUBLIC_URL,
    log_format: str = "text",
    environment: Mapping[str, str] | None = None,
    stderr: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start an API process; its output goes to ``log`` in the folder, or what it says to
    ``stderr``, a file that is open."""
    with (folder / "log").open("ab") as log:
        return Forked(
            [sys.executable, "-c", _START, str(folder / "data"), str(port), database_url or "",
             email_url or "", public_url, log_format],
            stdout=log,
            stderr=log if stderr is None else stderr,
            env=clean_environment(**(environment or {})),
        )  # fmt: skip


def wait_until_up(port: int, process: subprocess.Popen[bytes]) -> None:
    def is_up() -> bool:
        assert process.poll() is None, "the API ended while it started"
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/api/status/")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    eventually(is_up, "the API is up")


@contextmanager
def running_api(
    folder: Path,
    *,
    database_url: str | None = None,
    email_url: str | None = None,
    public_url: str = PUBLIC_URL,
    log_format: str = "text",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Api]:
    if database_url is None:
        give_tables(folder / "data")
    port = free_port()
    process = start(
        folder,
        port=port,
        database_url=database_url,
        email_url=email_url,
        public_url=public_url,
        log_format=log_format,
        environment=environment,
    )
    try:
        wait_until_up(port, process)
        yield Api(process, port, folder / "data", folder / "log", database_url)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
