"""The real API: Django's WSGI application over SQLite, called as a function.

It serves one request at a time, so races of its own threads are not reached here. A template
database with accounts is made once in a process; each world has a copy.
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import importlib
import io
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import unquote

import msgspec

from tests.simulation.world import World

T = TypeVar("T")

_WITH_CLOCKS = (
    *("jwt.api_jwt", "rest_framework_simplejwt.backends", "rest_framework_simplejwt.state"),
    *("encrypted_records.server.urls", "encrypted_records.server.wsgi"),
)

#: The host that proxies believe to ask.
HOST = "127.0.0.1:8000"
BASE_URL = f"http://{HOST}"
#: Accounts of the template, and those of the world that warms a process up.
PEOPLE = ("ada", "bea", "cleo", "dora")
WARM_PEOPLE = ("wim", "wanda", "willa", "walt")


class PowerCut(BaseException):
    """The API's process ends here."""


@dataclass(frozen=True)
class Reply:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass(frozen=True)
class Account:
    """``organization`` is the path of the one that it owns."""

    name: str
    email: str
    password: str
    organization: str

    @property
    def auth(self) -> str:
        """The Authorization value of its requests."""
        return "Basic " + base64.b64encode(f"{self.email}:{self.password}".encode()).decode()


@dataclass(frozen=True)
class Template:
    """A database with accounts, and nothing else in it."""

    database: Path
    accounts: Mapping[str, Account]


class ApiServer:
    """One API of one world.

    Attributes:
        served: how many requests it has answered.
    """

    def __init__(self, world: World, template: Path | None = None) -> None:
        self._world = world
        self._context = contextvars.Context()
        self._fuse: int | None = None
        self._copies = 0
        self.served = 0
        self.file = world.folder / "api" / "db.sqlite3"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if template is not None:
            shutil.copyfile(template, self.file)
        self.run(self._open)

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """In a context of the API's own, where no event loop runs."""
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return self._context.run(function, *arguments)
        finally:
            asyncio._set_running_loop(running)

    def _open(self) -> None:
        from django.conf import settings
        from django.db import connections

        self._forget()
        settings.DATA_DIR = self.file.parent.parent
        settings.BULK_URL = (self.file.parent / "objects").as_uri()
        connections["default"].settings_dict["NAME"] = str(self.file)
        wrappers = connections["default"].execute_wrappers
        wrappers[:] = [self._statement]

    def _forget(self) -> None:
        """Drop what a process has in memory, as its end does."""
        from django.core.cache import cache
        from django.db import connections

        from encrypted_records.server.erasure import erasing, sweeping
        from encrypted_records.server.objects import block_cache, choice
        from encrypted_records.server.records import store

        own = connections["default"]
        with suppress(Exception):
            own.close()
        own.connection = None
        own.in_atomic_block = False
        own.savepoint_ids, own.run_on_commit, own.atomic_blocks = [], [], []
        own.needs_rollback = own.closed_in_transaction = False
        cache.clear()
        erasing._emptied.clear()
        erasing._looks.clear()
        sweeping._next_runs.requests = 0.0
        block_cache._opened.clear()
        choice.chosen.cache_clear()
        store._clock = store._CertainClock()

    def restart(self) -> None:
        """End the process and start another one on the same database."""
        self.run(self._open)

    def _statement(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self._burn()
        return execute(sql, params, many, context)

    def _burn(self) -> None:
        if self._fuse is not None:
            self._fuse -= 1
            if self._fuse < 0:
                raise PowerCut

    def exchange(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        fuse: int | None = None,
    ) -> Reply:
        """Serve one request.

        Args:
            target: path and query, percent-encoded.
            fuse: the process ends before this statement or commit, counted from 0.

        Raises:
            PowerCut: it did; it was started again.
        """
        self._fuse = fuse
        try:
            return self.run(self._serve, method, target, headers, body)
        except PowerCut:
            self._fuse = None
            self.restart()
            raise
        finally:
            self._fuse = None

    def _serve(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        from encrypted_records.server.wsgi import application

        said: list[tuple[int, list[tuple[str, str]]]] = []

        def start(
            status: str, sent: list[tuple[str, str]], _: Any = None
        ) -> Callable[[bytes], object]:
            said.append((int(status[:3]), sent))
            return lambda _: None

        self.served += 1
        result = application(_environ(method, target, headers, body), start)
        try:
            content = b"".join(result)
        finally:
            result.close()
        ((status, sent),) = said
        # As the server in front of the application does.
        return Reply(status, [*sent, ("Date", formatdate(time.time(), usegmt=True))], content)

    def sweep(self) -> None:
        """Have everything go whose time is over, as its own thread does."""

        def look() -> None:
            from encrypted_records.server.erasure import sweeping

            sweeping.look()

        self.run(look)

    def keep_copy(self) -> Path:
        """A copy of all that it stores, as a backup is."""
        self.restart()
        self._copies += 1
        kept = self._world.folder / f"api-{self._copies}"
        shutil.copytree(self.file.parent, kept)
        return kept

    def put_back(self, kept: Path) -> None:
        """Have it go on with such a copy, and without what was stored since."""
        self.run(self._forget)
        shutil.rmtree(self.file.parent)
        shutil.copytree(kept, self.file.parent)
        self.restart()

    def close(self) -> None:
        self.run(self._forget)


def _environ(method: str, target: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    path, _, query = target.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(path, "latin-1"),
        "QUERY_STRING": query,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8000",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": HOST,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in headers.items():
        key = name.upper().replace("-", "_")
        if key == "CONTENT_TYPE":
            environ[key] = value
        elif key not in ("CONTENT_LENGTH", "HOST"):
            environ[f"HTTP_{key}"] = value
    return environ


# --- once in a process -----------------------------------------------------------------------


def prepare(folder: Path) -> None:
    """Set Django up for this process."""
    os.environ.update(
        DJANGO_SETTINGS_MODULE="encrypted_records.server.settings",
        ERS_DATA_DIR=str(folder),
        ERS_OWN_NAMES="127.0.0.1,localhost",
        ERS_PUBLIC_URL="http://127.0.0.1:8080",
        ERS_EMAIL_URL="memorymail://",
        ERS_RATE_LIMITS=",".join(
            f"{name}=1000000/hour"
            for name in "passwords register reset links invite tokens messages".split()
        ),
    )
    os.environ.pop("ERS_DATABASE_URL", None)
    (folder / "api").mkdir(parents=True, exist_ok=True)
    import django

    django.setup()
    for name in _WITH_CLOCKS:  # before clocks are replaced, all that has names for them
        importlib.import_module(name)
    from django.conf import settings
    from django.db.backends.sqlite3.base import DatabaseWrapper

    from encrypted_records.server.accounts import mail

    # What a hash costs is no matter of order.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    mail.later = lambda write, argument: write(argument)
    plain = DatabaseWrapper._commit  # type: ignore[attr-defined]

    def commit(self: Any) -> Any:
        _pass_statement(self)
        return plain(self)

    DatabaseWrapper._commit = commit  # type: ignore[attr-defined]
    settings.DATABASES["default"].setdefault("OPTIONS", {})["factory"] = _Connection


def _pass_statement(database: Any) -> None:
    for wrapper in database.execute_wrappers:
        wrapper.__self__._burn()


class _Cursor(sqlite3.Cursor):
    """Watch the statements that the API writes itself (server/db/statements.py). Django's pass its
    wrappers."""

    def execute(self, sql: str, values: Any = (), /) -> Self:
        from django.db import connections

        _pass_statement(connections["default"])
        return super().execute(sql, values)


class _Connection(sqlite3.Connection):
    def cursor(self, factory: Any = _Cursor) -> Any:
        return super().cursor(factory)


def make_template(folder: Path) -> None:
    """Make a database with tables and accounts, in a world of its own."""
    world = World("template", folder / "template")
    with world.installed():
        server = ApiServer(world)
        server.run(_migrate)
        accounts = [_register(server, name) for name in (*PEOPLE, *WARM_PEOPLE)]
        server.close()
    with closing(sqlite3.connect(server.file)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (folder / "accounts.json").write_bytes(msgspec.json.encode(accounts))


def read_template(folder: Path) -> Template:
    """What :func:`make_template` has left there."""
    accounts = msgspec.json.decode((folder / "accounts.json").read_bytes(), type=list[Account])
    database = folder / "template" / "api" / "db.sqlite3"
    return Template(database, {account.name: account for account in accounts})


def _migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0, interactive=False)


def _register(server: ApiServer, name: str) -> Account:
    from django.core import mail

    email, password = f"{name}@example.org", f"the long password of {name}"
    body = {
        "email": email,
        "password": password,
        "password_confirm": password,
        "organization_name": f"House of {name}",
    }
    answer = _post(server, "/api/accounts/register/", body)
    assert answer.status in (200, 201), answer
    text = str(mail.outbox[-1].body)
    signed = dict(re.findall(r"(user_id|timestamp|signature)[=:]\s*([^&\s]+)", text))
    verified = _post(
        server, "/api/accounts/verify-registration/", {n: unquote(v) for n, v in signed.items()}
    )
    assert verified.status == 200, (text, verified)
    token = _post(server, "/api/token/", {"email": email, "password": password}).json()["access"]
    user = server.exchange("GET", "/api/users/self/", {"Authorization": f"Bearer {token}"}, b"")
    assert user.status == 200, user
    return Account(name, email, password, user.json()["organizations"][0])


def _post(server: ApiServer, path: str, body: Any) -> Reply:
    kind = {"Content-Type": "application/json"}
    return server.exchange("POST", path, kind, msgspec.json.encode(body))
