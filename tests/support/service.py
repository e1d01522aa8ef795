"""A real ``ers up`` in its own process, on free ports and a data folder of its own."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from encrypted_records.cli.mailbox import SignedLink, wait_for_link

READY_SECONDS = 60.0
#: What ers up promises after SIGTERM.
STOP_SECONDS = 10.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def call(
    method: str,
    url: str,
    body: Any = None,
    *,
    auth: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request, whatever its outcome; ``body`` is bytes, or anything JSON can say."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json"} if data is not None else {}
    sent |= dict(headers or {})
    if auth is not None:
        sent["Authorization"] = auth
    request = urllib.request.Request(url, data=data, headers=sent, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as answer:
        with answer:
            return Answer(answer.code, answer.headers, answer.read())


def cookies_of(answer: Answer) -> dict[str, str]:
    """The cookies that an answer sets, by name."""
    lines = answer.headers.get_all("Set-Cookie") or []  # type: ignore[attr-defined] # HTTPMessage
    pairs = [line.partition(";")[0].partition("=") for line in lines]
    return {name: value for name, _, value in pairs}


@dataclass(frozen=True)
class Account:
    """A verified account and the organization it owns (a path)."""

    email: str
    password: str = field(repr=False)
    organization: str

    @property
    def auth(self) -> str:
        return "Basic " + base64.b64encode(f"{self.email}:{self.password}".encode()).decode()


@dataclass(frozen=True)
class Service:
    process: subprocess.Popen[bytes]
    base_url: str
    proxy_url: str
    data_dir: Path
    log_file: Path
    database_url: str | None = None

    @property
    def log(self) -> str:
        """All it has said so far, on stdout and stderr."""
        return self.log_file.read_text(errors="replace")

    def new_account(self) -> Account:
        """Register somebody new and follow the link in the message."""
        name = secrets.token_hex(6)
        email, password = f"{name}@example.org", secrets.token_urlsafe(15)
        registered = call(
            "POST",
            f"{self.base_url}/api/accounts/register/",
            {
                "email": email,
                "password": password,
                "password_confirm": password,
                "organization_name": f"Organization {name}",
            },
        )
        assert registered.status in (200, 201), registered
        link = self.link_for(email)
        verified = call(
            "POST",
            f"{self.base_url}/api/accounts/verify-registration/",
            {
                "user_id": link.user_id,
                "timestamp": link.timestamp,
                "signature": link.signature,
            },
        )
        assert verified.status == 200, verified
        account = Account(email, password, "")
        user = call("GET", f"{self.base_url}/api/users/self/", auth=account.auth)
        assert user.status == 200, user
        return Account(email, password, user.json()["organizations"][0])

    def session_of(self, account: Account) -> dict[str, str]:
        """The headers of a browser that has logged in at the proxy, its CSRF token among them."""
        body = {"email": account.email, "password": account.password}
        login = call("POST", f"{self.proxy_url}/api/accounts/login/", body)
        assert login.status == 200, login
        csrf = call("GET", f"{self.proxy_url}/api/csrf/")
        cookies = cookies_of(login) | cookies_of(csrf)
        return {
            "Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items()),
            "X-CSRFToken": csrf.json()["csrfToken"],
            "Origin": self.proxy_url,
        }

    def link_for(self, email: str) -> SignedLink:
        """The link in the newest message to ``email``, waited for."""
        with ThreadPoolExecutor(1) as pool:  # callable from inside a running event loop, too
            waiting = wait_for_link(self.data_dir / "mail", email)
            return pool.submit(asyncio.run, waiting).result()

    def children(self) -> list[int]:
        """The processes that ``ers up`` started and theirs, from Linux's process table."""
        return descendants(self.process.pid)

    def stop(self) -> int:
        """End it as a supervisor would; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            for child in task.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def gone(pids: Sequence[int], *, within: float) -> bool:
    """Whether none of ``pids`` runs any more, at the latest after ``within`` seconds."""
    deadline = time.monotonic() + within
    while any(_runs(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


#: Tests register and log in more often than people do from one machine.
MANY = ",".join(f"{name}=100000/hour" for name in "passwords register reset links invite".split())


def clean_environment(**more: str) -> dict[str, str]:
    """Ours without any setting of the service but limits and hashes that suit tests, which make
    hundreds of accounts; and no config file."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ERS_")}
    return kept | {
        "ERS_CONFIG": os.devnull,
        "ERS_RATE_LIMITS": MANY,
        "ERS_PASSWORD_HASHING": "light",
        **more,
    }


@contextmanager
def running_service(
    data_dir: Path,
    *arguments: str,
    command: str = "up",
    database_url: str | None = None,
    environment: Mapping[str, str] | None = None,
    ports: Sequence[int] = (),
) -> Iterator[Service]:
    """``ers up``, ready for requests; nothing of it is left when the block is.

    ``ports`` of the API and the proxy are free ones, unless somebody must find it where it was.
    """
    api_port, proxy_port = ports or free_ports(2)
    log_file = data_dir.parent / f"{data_dir.name}-{api_port}.log"
    chosen = clean_environment(
        ERS_DATA_DIR=str(data_dir), ERS_API_PORT=str(api_port), ERS_PROXY_PORT=str(proxy_port)
    ) | dict(environment or {})
    if database_url:
        chosen["ERS_DATABASE_URL"] = database_url
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "encrypted_records.cli.main", command, *arguments],
            env=chosen,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    service = Service(
        process,
        f"http://127.0.0.1:{api_port}",
        f"http://127.0.0.1:{proxy_port}",
        data_dir,
        log_file,
        database_url,
    )
    try:
        _wait_until_ready(service)
        yield service
    finally:
        started = service.children()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            for pid in [process.pid, *started]:
                os.kill(pid, signal.SIGKILL)
            process.wait()


def _wait_until_ready(service: Service) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        ended = service.process.poll()
        assert ended is None, f"ers up ended with exit code {ended}:\n{service.log}"
        assert time.monotonic() < deadline, f"ers up was not ready in time:\n{service.log}"
        try:
            if call("GET", f"{service.proxy_url}/api/status/").status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
