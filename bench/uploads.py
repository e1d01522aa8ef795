"""Resumable uploads: as fast as the official Node server, although ours seals what it stores?

Uploads ``--mib`` MiB in one PATCH to ours and to ``@tus/server`` in turn, ``--rounds`` times, both
writing to the same disk, from the same client. Ours syncs before it answers; of both it is measured
how long it takes until all is on disk. With ``--memory``, one upload of 5 GiB to ours, and the most
memory that its process has had.

    .venv/bin/python -m bench.uploads --mib 2048
"""

from __future__ import annotations

import argparse
import http.client
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from bench.support.processes import memory_mib, processor_seconds
from tests.support.service import Service, running_service

NODE = Path(__file__).with_name("node")
PIECE = os.urandom(1 << 20)


@dataclass(frozen=True)
class Server:
    name: str
    create: str
    headers: dict[str, str]
    pid: int
    folder: Path


@dataclass(frozen=True)
class Figures:
    seconds: float
    processor: float
    sync: float


def upload(server: Server, mib: int) -> Figures:
    """One upload in one PATCH; seconds until its answer, and until all of it is on disk."""
    url = urlsplit(server.create)
    assert url.hostname and url.port
    headers = server.headers | {"Tus-Resumable": "1.0.0"}
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=600)
    length = {"Upload-Length": str(mib << 20), "Content-Length": "0"}
    connection.request("POST", url.path, headers=headers | length)
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    answer.read()
    path = urlsplit(answer.headers["Location"]).path
    busy, started = processor_seconds(server.pid), time.perf_counter()
    connection.putrequest("PATCH", path)
    sent = {
        "Upload-Offset": "0",
        "Content-Type": "application/offset+octet-stream",
        "Content-Length": str(mib << 20),
    }
    for name, value in (headers | sent).items():
        connection.putheader(name, value)
    connection.endheaders()
    for _ in range(mib):
        connection.send(PIECE)
    answer = connection.getresponse()
    assert answer.status == 204, answer.read()
    seconds = time.perf_counter() - started
    busy = processor_seconds(server.pid) - busy
    os.sync()
    sync = time.perf_counter() - started - seconds
    connection.close()
    for file in server.folder.iterdir():
        file.unlink()
    return Figures(seconds, busy, sync)


@contextmanager
def ours(folder: Path) -> Iterator[Server]:
    with running_service(folder / "data") as service:
        account = service.new_account()
        yield Server(
            "ours",
            f"{service.proxy_url}/api/files/",
            {"Authorization": account.auth},
            _proxy_of(service),
            folder / "data" / "proxy" / "spool",
        )


def _proxy_of(service: Service) -> int:
    """The process that listens for the proxy."""
    (found,) = [
        pid
        for pid in service.children()
        if Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"cli.main\0proxy\0")
    ]
    return found


@contextmanager
def theirs(folder: Path) -> Iterator[Server]:
    if not (NODE / "node_modules").exists():
        subprocess.run(["npm", "ci", "--silent", "--ignore-scripts"], cwd=NODE, check=True)
    folder = folder / "node"
    folder.mkdir()
    command = ["node", str(NODE / "server.mjs"), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            yield Server("@tus/server", f"http://127.0.0.1:{port}/files", {}, process.pid, folder)
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="upload 5 GiB to ours alone")
    parser.add_argument("--folder", type=Path, help="where both write; a temporary folder if none")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name, ours(Path(name)) as own:
        if chosen.memory:
            figures = upload(own, 5 << 10)
            peak = memory_mib(own.pid, "VmHWM")
            print(f"5 GiB in {figures.seconds:.1f} s, at most {peak:.0f} MiB of memory")
            return
        with theirs(Path(name)) as other:
            compare(own, other, chosen.mib, chosen.rounds)


def compare(own: Server, other: Server, mib: int, rounds: int) -> None:
    taken: dict[str, list[Figures]] = {own.name: [], other.name: []}
    for _ in range(rounds):
        for server in (own, other):
            taken[server.name].append(upload(server, mib))
    print(f"{mib} MiB in one PATCH, median of {rounds}; ours seals and syncs before it answers")
    rates = {}
    for name, several in taken.items():
        rates[name] = mib / median(one.seconds for one in several)
        synced = mib / median(one.seconds + one.sync for one in several)
        busy = median(one.processor for one in several)
        print(
            f"  {name:12} {rates[name]:6.0f} MiB/s, {synced:6.0f} with all on disk,"
            f" {1000 * busy / mib:5.2f} ms of processor time a MiB"
        )
    print(f"  ours / theirs: {rates[own.name] / rates[other.name]:.2f}")


if __name__ == "__main__":
    main()
