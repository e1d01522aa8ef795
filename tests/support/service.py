"""A real ``ers up`` in its own process, on free ports and a data folder of its own."""

from __future__ import annotations

import asyncio
import atexit
import base64
import functools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any

from encrypted_records.cli.data_folder import SignedLink, newest_link, wait_for_link
from encrypted_records.cli.settings import APP
from encrypted_records.cli.state_file import door_path
from encrypted_records.errors import NotFound
from encrypted_records.model.credentials import DOOR_HEADER
from tests.support.eventually import comes_about, eventually
from tests.support.forked import Forked, inherited, python_path, run
from tests.support.ports import free_ports
from tests.support.tables import give_tables

__all__ = ["free_ports"]

READY_SECONDS = 120.0
#: Longer than the server itself waits for anything before it answers.
ANSWER_SECONDS = 150.0
#: What ers up promises after SIGTERM.
STOP_SECONDS = 10.0


#: Without a proxy of the environment's; to make one takes a third of what a request does.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
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
    try:
        with _opener.open(request, timeout=ANSWER_SECONDS) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as answer:
        with answer:
            return Answer(answer.code, answer.headers, answer.read())


def cookies_of(answer: Answer) -> dict[str, str]:
    """The cookies that an answer sets, by name."""
    lines = answer.headers.get_all("Set-Cookie") or []
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
    #: accounts that nobody has yet, where they are made many at a time
    ready: list[Account] | None = field(default=None, repr=False, compare=False)

    @property
    def state_dir(self) -> Path:
        """Where commands of the user who runs it keep what they remember, and find its door."""
        return state_of(self.data_dir)

    @property
    def door(self) -> dict[str, str]:
        """The header that a command of that user proves itself with."""
        port = self.proxy_url.rpartition(":")[2]
        path = DOORS.get(self.proxy_url) or door_path(int(port), self.state_dir / APP)
        return {DOOR_HEADER: path.read_text()}

    def code_for(self, account: Account) -> str:
        """A code that lets in one device of the account's, made through the door."""
        made = call(
            "POST", f"{self.proxy_url}/api/devices/code/", {}, auth=account.auth, headers=self.door
        )
        assert made.status == 201, made
        return str(made.json()["code"])

    @property
    def log(self) -> str:
        """All it has said so far, on stdout and stderr."""
        return self.log_file.read_text(errors="replace")

    def new_account(self, email: str = "") -> Account:
        """Somebody new, who has followed the link in the message where they registered."""
        if self.ready is not None and not email:
            if not self.ready:
                made = new_accounts(self.data_dir, self.database_url)
                self.ready.extend(Account(*one) for one in made)
            return self.ready.pop()
        name = secrets.token_hex(6)
        email, password = email or f"{name}@example.org", secrets.token_urlsafe(15)
        # An address that was used before may have messages of then.
        earlier = {path.name for path in self._mail.glob("*.eml")}
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
        link = eventually(
            lambda: _link(self._mail, email, earlier), f"a message comes to {email}", pause=0.002
        )
        assert link
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

    @property
    def _mail(self) -> Path:
        return self.data_dir / "mail"

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


def _link(mail: Path, email: str, others: set[str]) -> SignedLink | None:
    try:
        return newest_link(mail, email, others)
    except NotFound:
        return None


#: Of proxies that run in this process: their doors, by URL.
DOORS: dict[str, Path] = {}


def state_of(data_dir: Path) -> Path:
    return data_dir.with_name(f"{data_dir.name}-state")


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            for child in task.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def gone(pids: Sequence[int], *, within: float) -> bool:
    """Whether none of ``pids`` runs any more, at the latest after ``within`` seconds."""
    return comes_about(lambda: not any(map(_runs, pids)), within)


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


#: Starts the ``ers`` of this checkout.
ERS = (sys.executable, "-m", "encrypted_records.cli.main")
#: Tests register and log in more often than people do from one machine.
MANY = ",".join(f"{name}=100000/hour" for name in "passwords register reset links invite".split())


@functools.cache
def state_home() -> Path:
    """What commands keep between runs, where a test names no folder of its own."""
    folder = tempfile.mkdtemp(prefix="ers-state-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def state_beside(service: Service, folder: Path) -> str:
    """``folder`` as a place for logins and devices of its own, with the door of a service."""
    ours, theirs = folder / "encrypted-records", service.state_dir / "encrypted-records"
    ours.mkdir(mode=0o700, parents=True, exist_ok=True)
    door = f"door-{service.proxy_url.rpartition(':')[2]}"
    (ours / door).symlink_to(theirs / door)
    return str(folder)


def clean_environment(**more: str) -> dict[str, str]:
    """Ours without any setting of the service but limits and hashes that suit tests, which make
    hundreds of accounts; no config file, and a place for what is kept between commands."""
    kept = {name: value for name, value in inherited().items() if not name.startswith("ERS_")}
    return kept | {
        "XDG_STATE_HOME": str(state_home()),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "ERS_CONFIG": os.devnull,
        "ERS_RATE_LIMITS": MANY,
        "ERS_PASSWORD_HASHING": "light",
        "PYTHONPATH": python_path(),
        **more,
    }


#: Of a process that makes accounts: the API's own code, without requests and messages.
_MAKE_ACCOUNTS = """
import json, secrets, sys
from pathlib import Path
from encrypted_records.server.serve import ApiSettings, prepare_operator
data_dir, database, count = Path(sys.argv[1]), sys.argv[2] or None, int(sys.argv[3])
fixed = sys.argv[4]
prepare_operator(ApiSettings(data_dir, "127.0.0.1", 0, database, None, "http://127.0.0.1"))
from django.db import transaction
from django.utils import timezone
from encrypted_records.server.accounts.models import User
from encrypted_records.server.organizations.models import create_organization
made = []
with transaction.atomic():
    for _ in range(count):
        name, password = secrets.token_hex(6), fixed or secrets.token_urlsafe(15)
        confirmed = {"is_active": True, "verified": timezone.now()}
        user = User.objects.create_user(f"{name}@example.org", password, **confirmed)
        organization = create_organization(f"Organization {name}", user.pk)
        made.append((user.email, password, f"/api/organizations/{organization.pk}/"))
print(json.dumps(made))
"""
_ACCOUNTS_AT_ONCE = 100


def new_accounts(
    data_dir: Path, database_url: str | None, password: str = ""
) -> list[tuple[str, str, str]]:
    """Addresses, passwords and organizations of verified accounts at an API that runs. To register
    one takes seven times as much of a processor.

    Args:
        password: of all; each has another one, if none is given.
    """
    given = [data_dir, database_url or "", _ACCOUNTS_AT_ONCE, password]
    line = [sys.executable, "-c", _MAKE_ACCOUNTS, *given]
    done = run([str(word) for word in line], clean_environment())
    assert done.returncode == 0, done.stderr
    return [tuple(one) for one in json.loads(done.stdout)]


@contextmanager
def running_service(
    data_dir: Path,
    *arguments: str,
    command: str = "up",
    database_url: str | None = None,
    environment: Mapping[str, str] | None = None,
    ports: Sequence[int] = (),
    program: Sequence[str | Path] = ERS,
) -> Iterator[Service]:
    """``ers up``, ready for requests; nothing of it is left when the block is.

    ``ports`` of the API and the proxy are free ones, unless somebody must find it where it was.
    ``program`` is what starts an ``ers`` of another environment.
    """
    api_port, proxy_port = ports or free_ports(2)
    log_file = data_dir.parent / f"{data_dir.name}-{api_port}.log"
    chosen = clean_environment(
        ERS_DATA_DIR=str(data_dir),
        ERS_API_PORT=str(api_port),
        ERS_PROXY_PORT=str(proxy_port),
        XDG_STATE_HOME=str(state_of(data_dir)),
    ) | dict(environment or {})
    if database_url:
        chosen["ERS_DATABASE_URL"] = database_url
        # Tests have many accounts; a proxy whose database is elsewhere is for one by itself.
        chosen.setdefault("ERS_ACCESS", "api")
    elif command in ("up", "api") and program is ERS:
        give_tables(data_dir)
    with log_file.open("ab") as log:
        process = Forked(
            [*program, command, *arguments],
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
    def is_ready() -> bool:
        ended = service.process.poll()
        assert ended is None, f"ers up ended with exit code {ended}:\n{service.log}"
        try:
            return call("GET", f"{service.proxy_url}/api/status/").status == 200
        except OSError:
            return False

    assert comes_about(is_ready, READY_SECONDS), f"ers up was not ready in time:\n{service.log}"
