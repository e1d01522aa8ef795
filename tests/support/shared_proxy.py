"""A proxy at level device that several people share, and the machines that they sit at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from encrypted_records.proxy.keyrings.devices import NEW_KEYRINGS
from tests.cli.command import Said, run_here
from tests.support.listening import Tap, tapped
from tests.support.service import Account, Service, clean_environment, free_ports
from tests.support.sides import running_side


@dataclass
class SharedProxy:
    """An API, a tap on the way to it, and a proxy of another data folder.

    Attributes:
        state: where the user who runs the proxy finds its door.
    """

    api: Service
    tap: Tap
    folder: Path
    port: int
    state: Path
    access: str = "device"
    _proxy: ExitStack = field(default_factory=ExitStack)
    _made: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "proxy.log").read_text(errors="replace") + self.api.log

    def start(self) -> None:
        settings = {
            "ERS_DATA_DIR": str(self.folder / "proxy"),
            "ERS_PROXY_PORT": str(self.port),
            "ERS_BASE_URL": f"http://127.0.0.1:{self.tap.port}",
            "ERS_ACCESS": self.access,
            "XDG_STATE_HOME": str(self.state),
        }
        side = running_side("proxy", settings, self.url, self.folder / "proxy.log")
        self.process = self._proxy.enter_context(side)

    def stop(self) -> None:
        self._proxy.close()

    def make_room(self) -> None:
        """Start anew where no more keyrings may be made from this address."""
        self._made += 1
        if self._made == NEW_KEYRINGS:
            self.stop()
            self.start()
            self._made = 0


@contextmanager
def shared_proxy(folder: Path) -> Iterator[SharedProxy]:
    api_port, proxy_port = free_ports(2)
    url, log = f"http://127.0.0.1:{api_port}", folder / "api.log"
    with ExitStack() as stack:
        api = {"ERS_DATA_DIR": str(folder / "api"), "ERS_API_PORT": str(api_port)}
        process = stack.enter_context(running_side("api", api, url, log))
        tap = stack.enter_context(tapped(api_port))
        service = Service(process, url, url, folder / "api", log)
        proxy = SharedProxy(service, tap, folder, proxy_port, folder / "operator")
        proxy.start()
        stack.callback(proxy.stop)
        yield proxy


@dataclass
class Machine:
    """Somebody's machine: what its commands keep, and no door but where ``state`` has one."""

    url: str
    account: Account
    state: Path
    told: dict[str, str] = field(default_factory=dict)

    def ers(self, *arguments: str, typed: str = "", **told: str) -> Said:
        """Run a command as whoever is logged in."""
        environment = clean_environment(
            ERS_PROXY_URL=self.url,
            ERS_OUTPUT="ndjson",
            XDG_STATE_HOME=str(self.state),
            **{**self.told, **told},
        )
        return run_here(environment, *arguments, typed=typed)

    def done(self, *arguments: str, typed: str = "", **told: str) -> Said:
        said = self.ers(*arguments, typed=typed, **told)
        assert said.code == 0, (arguments, said.out, said.err)
        return said

    def log_in(self) -> Said:
        return self.done("login", "--email", self.account.email, ERS_PASSWORD=self.account.password)
