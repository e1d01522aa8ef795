"""A proxy with its lives: it is started, killed and started again on what the kill left."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette

from encrypted_records.model import strict_json
from encrypted_records.model.credentials import DOOR_HEADER
from encrypted_records.proxy.app import GRACEFUL_SECONDS, create_app
from encrypted_records.proxy.settings import Overrides, ProxySettings
from tests.simulation.api import BASE_URL
from tests.simulation.loop import owner
from tests.simulation.network import Ending, Network, SimulatedTransport
from tests.simulation.workers import SimulatedWorkers
from tests.simulation.world import Fuse, World

#: Seconds that a request waits in a client's own hands, at most: longer than all its parts may.
PATIENCE = 3000.0
#: Bytes of a body that come at once.
_PIECE_BYTES = 16 << 10
#: Parts of the paths that need a proof: they come from the user who runs the proxy.
_PROVED = (
    *("/api/keyring/", "/api/devices/", "/people/", "/services/", "/recover/"),
    *("/accept-log/", "/rollback/"),
)


class Gone(Exception):
    """The proxy ended before it answered."""


class Waited(AssertionError):
    """Somebody waited for ever, or nearly so."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """Of a problem document, else empty."""
        return str(self.json().get("code", "")) if self.status >= 400 else ""

    def __str__(self) -> str:
        return f"{self.status} {self.body[:2000].decode(errors='replace')}"


class Proxy:
    """
    Attributes:
        name: of its machine: letters only.
        folder: of the life that runs, or ran last.
        kills: how many there were.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        *,
        overrides: Mapping[str, Any] | None = None,
        lost: int = 0,
    ) -> None:
        """
        Args:
            overrides: members of ``Overrides``, besides what the simulation replaces.
            lost: percent of the workers' tasks whose process ends in the middle.
        """
        self.world: World = network.world
        self.network = network
        self.name = name
        self._number = 0
        self.kills = 0
        self.folder = self._folder()
        self.lost = lost
        self._overrides = dict(overrides or {})
        self._context = contextvars.Context()
        self._app: Starlette | None = None
        self._waiting: set[asyncio.Future[Any]] = set()
        self._working: set[asyncio.Task[None]] = set()
        self._reviving = asyncio.Lock()
        self._stop = asyncio.Event()
        self._living: asyncio.Task[None] | None = None

    @property
    def life(self) -> str:
        """The owner of what it does."""
        return f"{self.name}{self._number}"

    @property
    def runs(self) -> bool:
        return self._app is not None

    def _folder(self) -> Path:
        return self.world.folder / self.name / str(self._number)

    # --- its lives ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin a life on the folder as it is.

        Raises:
            Gone: it was killed before it was ready.
        """
        assert not self.runs
        if self._living is not None:
            self._number += 1
            left, self.folder = self.folder, self._folder()
            _copy(left, self.folder)
        self._context = contextvars.Context()
        self._context.run(owner.set, self.life)
        self._stop = asyncio.Event()
        ready: asyncio.Future[Starlette] = self.world.loop.create_future()
        self._waiting.add(ready)
        self._living = self.world.loop.create_task(
            self._live(ready, self._stop), context=self._context
        )
        try:
            self._app = await ready
        finally:
            self._waiting.discard(ready)

    async def _live(self, ready: asyncio.Future[Starlette], stop: asyncio.Event) -> None:
        try:
            app = create_app(self._settings(), self._replaced())
            async with app.router.lifespan_context(app):
                ready.set_result(app)
                await stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
                return
            raise

    def _settings(self) -> ProxySettings:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return ProxySettings(
            self.folder, "127.0.0.1", 8080, BASE_URL, access="api", door=self.folder / "door"
        )

    def _replaced(self) -> Overrides:
        return Overrides(
            transport=functools.partial(SimulatedTransport, self.network),
            workers=lambda _: SimulatedWorkers(self.world, self.lost),
            **self._overrides,
        )

    def kill(self) -> None:
        """End it here and now, as SIGKILL does."""
        if self._living is None or self.life in self.world.loop.dead:
            return
        self.kills += 1
        self.world.loop.kill(self.life)
        self.world.lives.pop(self.life, None)
        self.network.ends.pop(self.life, None)
        self._app = None
        left = self.folder
        self._number += 1
        self.folder = self._folder()
        _copy(left, self.folder)
        self._living = None
        for one in sorted(self._waiting, key=hash):
            if not one.done():
                one.set_exception(Gone(self.name))
        self._waiting.clear()
        self._working.clear()

    def kill_at(self, points: int) -> None:
        """End it in the middle of something: after so many points that it passes from now on."""

        def burn() -> None:
            self.kill()
            self.world.loop.leave()

        self.world.lives[self.life] = Fuse(points, burn).pass_point

    def kill_sending(self, requests: int, *, done: bool, to: str = "") -> None:
        """End it with one of its requests, after so many: before the API has it, or once the API
        has done it.

        Args:
            to: a part of these requests' path; all count, if it is empty.
        """
        life = self.life

        def end() -> None:
            if self.life == life:  # a request can arrive when another kill was first
                self.kill()

        self.network.ends[life] = Ending(requests, done, end, to)

    async def stop(self) -> None:
        """End it as a signal does; or a kill is first."""
        living, stop = self._living, self._stop
        assert living is not None
        self.world.lives.pop(self.life, None)
        self._app = None
        if self._working:
            # As its server does: what is not answered by then is given up.
            await asyncio.wait(self._working, timeout=GRACEFUL_SECONDS)
            if self._living is not living:
                return
        for one in sorted(self._working, key=hash):
            one.cancel()
        stop.set()
        ended: asyncio.Future[None] = self.world.loop.create_future()
        self._waiting.add(ended)

        def end(_: object) -> None:
            if not ended.done():
                ended.set_result(None)

        living.add_done_callback(end)
        try:
            async with asyncio.timeout(PATIENCE):
                await ended
        except Gone:
            return
        except TimeoutError:
            raise Waited(f"{self.life} does not end") from None
        finally:
            self._waiting.discard(ended)
        living.result()

    async def revive(self) -> None:
        """Start it until it runs, where it does not."""
        async with self._reviving:
            while not self.runs:
                # A start has room: it gives back what it has kept for that (proxy/disk.py).
                self.world.full.discard(self.name)
                try:
                    await self.start()
                except Gone:
                    continue

    def keep_copy(self) -> Path:
        """A copy of the folder of a proxy that does not run, for :meth:`put_back`."""
        assert not self.runs
        kept = self.world.folder / self.name / f"kept-{self._number}"
        _copy(self.folder, kept)
        return kept

    def put_back(self, kept: Path) -> None:
        """Have the folder be what it was when it was copied, as a restored backup is."""
        assert not self.runs
        shutil.rmtree(self.folder)
        _copy(kept, self.folder)

    def take_keys(self, other: Proxy) -> None:
        """Have this proxy, which does not run, use the keyrings of another one."""
        assert not self.runs
        ours, theirs = self.folder / "proxy", other.folder / "proxy"
        ours.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(ours / "keyrings", ignore_errors=True)
        shutil.copytree(theirs / "keyrings", ours / "keyrings")
        shutil.copyfile(theirs / "machine.key", ours / "machine.key")
        (ours / "machine.key").chmod(0o600)

    # --- what it is asked --------------------------------------------------------------------

    @property
    def services(self) -> Any:
        assert self._app is not None
        return self._app.state.services

    async def call(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        auth: str,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request.

        Args:
            target: path and query, percent-encoded.
            body: bytes, or anything JSON can say.

        Raises:
            Gone: the proxy does not run, or ended before it answered.
            Waited: no answer came for an hour.
        """
        if self._app is None:
            raise Gone(self.name)
        data = body if isinstance(body, bytes) or body is None else strict_json.encode(body)
        sent = {"host": "127.0.0.1:8080", "authorization": auth}
        if data is not None:
            sent |= {"content-type": "application/json", "content-length": str(len(data))}
        sent |= {name.lower(): value for name, value in (headers or {}).items()}
        if any(part in target for part in _PROVED):
            sent[DOOR_HEADER.lower()] = (self.folder / "door").read_text()
        outcome: asyncio.Future[Answer] = self.world.loop.create_future()
        self._waiting.add(outcome)
        work = _answer(self._app, _scope(method, target, sent), data or b"", outcome)
        task = self.world.loop.create_task(work, context=self._context.copy())
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        try:
            async with asyncio.timeout(PATIENCE):
                return await outcome
        except TimeoutError:
            raise Waited(f"{method} {target} has no answer: {task}") from None
        finally:
            self._waiting.discard(outcome)


def _copy(left: Path, folder: Path) -> None:
    """What a process that was killed leaves: without SQLite's shared memory."""
    if left.exists():
        shutil.copytree(left, folder, ignore=shutil.ignore_patterns("*-shm"))


def _scope(method: str, target: str, headers: Mapping[str, str]) -> dict[str, Any]:
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8080),
        "state": {},
    }


async def _answer(
    app: Starlette, scope: dict[str, Any], body: bytes, outcome: asyncio.Future[Answer]
) -> None:
    pieces = [body[at : at + _PIECE_BYTES] for at in range(0, len(body), _PIECE_BYTES)] or [b""]
    gone = asyncio.get_running_loop().create_future()
    status, headers, content = 0, {}, bytearray()

    async def receive() -> dict[str, Any]:
        if not pieces:
            await gone  # a client that waits for the answer
        await asyncio.sleep(0)
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        nonlocal status, headers
        await asyncio.sleep(0)
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {n.decode().lower(): v.decode("latin-1") for n, v in message["headers"]}
        elif message["type"] == "http.response.body":
            content.extend(message.get("body", b""))
            if not message.get("more_body") and not outcome.done():
                outcome.set_result(Answer(status, headers, bytes(content)))

    try:
        await app(scope, receive, send)
    except asyncio.CancelledError:
        if not outcome.done():
            outcome.set_exception(Gone("it was stopped"))
    except Exception as error:
        if not outcome.done():
            outcome.set_exception(error)
    if not outcome.done():
        outcome.set_exception(AssertionError("no whole answer"))
