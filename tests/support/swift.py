"""OpenStack Swift with its S3 API, on loopback: a proxy, servers of accounts and containers, and
three nodes that store objects, each with a copy. A real store for tests of the bulk store.

It is installed when it is first asked for, by ``scripts/install-swift``, into an environment of its
own; where that cannot be done, those tests are skipped.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest

from tests.support import children
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.service import ANSWER_SECONDS

if TYPE_CHECKING:
    from obstore.store import S3Store

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".venv" / "swift"
KEY, SECRET = "test:tester", "testing"
COPIES = 3
#: The nodes that have a copy of each object.
NODES = tuple(f"object{number}" for number in range(COPIES))
_KINDS = ("account", "container", *NODES)

#: Swift reads this file at a fixed place, which only root can write. A server ends with the process
#: that started it (PR_SET_PDEATHSIG), also where that was killed.
_RUN = """
import ctypes, signal, sys
from importlib import import_module
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
from swift.common import utils
utils.SWIFT_CONF_FILE = sys.argv[1]
from swift.common import constraints, storage_policy
constraints.reload_constraints()
storage_policy.reload_storage_policies()
name, conf = sys.argv[2:]
kind = name.rstrip("0123456789")
sys.argv = [kind, conf]
package = {"object": "obj"}.get(kind, kind)
module = import_module(f"swift.{package}.server")
if hasattr(module, "main"):
    sys.exit(module.main())
from swift.common.wsgi import run_wsgi
sys.exit(run_wsgi(conf, f"{kind}-server"))
"""
_RINGS = """
import sys
from pathlib import Path
from swift.common.ring import RingBuilder
folder, account, container, *nodes = sys.argv[1:]
copies = len(nodes)
rings = {"account": [account] * copies, "container": [container] * copies, "object": nodes}
for kind, ports in rings.items():
    builder = RingBuilder(4, copies, 1)
    for number, port in enumerate(map(int, ports)):
        builder.add_dev({"id": number, "region": 1, "zone": number, "ip": "127.0.0.1",
                         "port": port, "device": f"d{number}", "weight": 1.0,
                         "replication_ip": "127.0.0.1", "replication_port": port, "meta": ""})
    builder.rebalance()
    builder.get_ring().save(str(Path(folder) / f"{kind}.ring.gz"))
"""
_COMMON = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
disable_fallocate = true
log_level = ERROR
"""
_STORAGE = """
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
_PROXY = """
[pipeline:main]
pipeline = catch_errors s3api tempauth proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
dns_compliant_bucket_names = false
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
"""


@dataclass(frozen=True)
class Swift:
    """``ports`` and ``servers`` are by kind; those of :data:`NODES` by name."""

    python: Path
    folder: Path
    ports: dict[str, int]
    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports['proxy']}"

    @property
    def credentials(self) -> dict[str, str]:
        """Variables of the environment, as the SDKs have them."""
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def bucket(self, name: str, prefix: str | None = None) -> S3Store:
        """A bucket as a client of the store sees it."""
        from obstore.store import S3Store

        return S3Store(
            name,
            prefix=prefix,
            region="us-east-1",
            access_key_id=KEY,
            secret_access_key=SECRET,
            config={"endpoint": self.endpoint},
            client_options={"allow_http": True},
        )

    def make_bucket(self, name: str) -> None:
        import obstore

        url = obstore.sign(self.bucket(name), "PUT", "", timedelta(minutes=5))
        with urlopen(Request(url, method="PUT"), timeout=ANSWER_SECONDS) as answer:
            assert answer.status == 200

    def kill(self, kind: str) -> None:
        _end(self.servers[kind])

    def start(self, kind: str) -> None:
        """Start a server, and wait until it answers."""
        conf, log = self.folder / f"{kind}.conf", self.folder / f"{kind}.log"
        common = _COMMON.format(port=self.ports[kind], user=getpass.getuser(), folder=self.folder)
        own = _STORAGE.format(kind=kind.rstrip("0123456789"))
        conf.write_text(common + (_PROXY if kind == "proxy" else own))
        # Tests end servers of a store that all files share, and start them again.
        with log.open("ab") as stream, children.lasting():
            self.servers[kind] = subprocess.Popen(
                [self.python, "-c", _RUN, self.folder / "swift.conf", kind, conf],
                stdout=stream,
                stderr=stream,
            )
        _wait_until_up(self.ports[kind], self.servers[kind], log)

    def files_of(self, name: str) -> list[Path]:
        """The copies of an object on the devices, found by what Swift calls it there."""
        return [
            path
            for path in (self.folder / "devices").rglob("*.data")
            if f"/{name}".encode() in os.getxattr(path, "user.swift.metadata")
        ]


def install() -> Path:
    """The Python that has Swift; tests are skipped where it cannot be had."""
    HOME.parent.mkdir(exist_ok=True)
    with (HOME.parent / "swift.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [ROOT / "scripts" / "install-swift", HOME], capture_output=True, check=False
        )
    if done.returncode:
        pytest.skip("OpenStack Swift cannot be installed here (scripts/install-swift)")
    return HOME / "bin" / "python"


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swift]:
    """A store that files of tests share, each with a bucket of its own name. It has all of its
    servers whenever a test begins."""
    with running_swift(tmp_path_factory.mktemp("swift")) as running:
        yield running


@contextmanager
def running_swift(folder: Path) -> Iterator[Swift]:
    """A store that is ready; nothing of it is left running when the block is."""
    python = install()
    for number in range(COPIES):
        (folder / "devices" / f"d{number}").mkdir(parents=True, exist_ok=True)
    ports = {kind: free_port() for kind in (*_KINDS, "proxy")}
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = tests\nswift_hash_path_prefix = tests\n"
    )
    rings = [str(ports[kind]) for kind in _KINDS]
    subprocess.run([python, "-c", _RINGS, folder, *rings], check=True)
    swift = Swift(python, folder, ports)
    try:
        for kind in ports:
            swift.start(kind)
        yield swift
    finally:
        for process in swift.servers.values():
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(60)


def _wait_until_up(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    def is_up() -> bool:
        assert process.poll() is None, log.read_text()
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except OSError:
            return False
        finally:
            connection.close()
        return True

    eventually(is_up, f"a server is up on port {port}")
