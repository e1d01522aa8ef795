"""Web servers with TLS in front of a service, as deploy/ has them, with other ports and names."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

from tests.support.eventually import eventually
from tests.support.service import free_ports

DEPLOY = Path(__file__).parents[2] / "deploy"
NAMES = {"api": "records.example.org", "proxy": "proxy.example.org"}


@dataclass(frozen=True)
class Front:
    """One of the two names, as a client reaches it: by TLS, and by nothing else."""

    name: str
    port: int
    context: ssl.SSLContext

    @property
    def url(self) -> str:
        return f"https://{self.name}:{self.port}"

    def connected_plain(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def connected(self) -> ssl.SSLSocket:
        return self.context.wrap_socket(self.connected_plain(), server_hostname=self.name)

    def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection(self.name, self.port)
        connection.sock = self.connected()
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()


@contextmanager
def running_nginx(folder: Path, upstreams: Mapping[str, str]) -> Iterator[dict[str, Front]]:
    """Both files in one nginx; ``upstreams`` has host and port of each side."""
    certificate = new_certificate(folder)
    ports = dict(zip(NAMES, free_ports(2), strict=True))
    for side, name in NAMES.items():
        text = (DEPLOY / "nginx" / f"{side}.conf").read_text()
        text = replaced(text, "listen 443 ssl", f"listen 127.0.0.1:{ports[side]} ssl")
        text = replaced(
            text,
            f"server 127.0.0.1:{8000 if side == 'api' else 8080};",
            f"server {upstreams[side]};",
        )
        text = replaced(text, f"/etc/ssl/{name}.pem", str(certificate))
        text = replaced(text, f"/etc/ssl/private/{name}.key", str(certificate))
        (folder / f"{side}.conf").write_text(text)
    places = [
        f"{what}_temp_path {folder}/{what};"
        for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    ]
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user} daemon off; pid {folder}/pid; error_log stderr;\nevents {{}}\n"
        f"http {{ access_log off; {' '.join(places)} include {folder}/api.conf;"
        f" include {folder}/proxy.conf; }}\n"
    )
    command = [_program("nginx"), "-e", "stderr", "-p", str(folder), "-c", "nginx.conf"]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "warn" not in checked.stderr, checked.stderr
    with _running([command], folder, {}, ports, certificate) as fronts:
        yield fronts


@contextmanager
def running_caddy(folder: Path, upstreams: Mapping[str, str]) -> Iterator[dict[str, Front]]:
    """Each file in a Caddy of its own, since their deadlines differ."""
    certificate = new_certificate(folder)
    ports = dict(zip(NAMES, free_ports(2), strict=True))
    commands = []
    for side, name in NAMES.items():
        text = (DEPLOY / "caddy" / f"{side}.Caddyfile").read_text()
        # No certificate authority, no port 80 and no control socket in a test.
        text = replaced(text, "\tservers {", "\tadmin off\n\tauto_https off\n\tservers {")
        text = replaced(text, "{$ERS_NAME:", "https://{$ERS_NAME:")
        text = replaced(
            text, "\treverse_proxy {$", f"\ttls {certificate} {certificate}\n\treverse_proxy {{$"
        )
        (folder / side).write_text(text)
        variables = f"ERS_NAME={name}:{ports[side]}", f"ERS_UPSTREAM={upstreams[side]}"
        run = [_program("caddy"), "run", "--adapter", "caddyfile", "--config", str(folder / side)]
        commands.append(["env", *variables, *run])
    with _running(commands, folder, {"HOME": str(folder)}, ports, certificate) as fronts:
        yield fronts


def replaced(text: str, old: str, new: str) -> str:
    """What a test changes must be there, or it would try something else than what is delivered."""
    assert old in text, old
    return text.replace(old, new)


def new_certificate(folder: Path) -> Path:
    """A certificate for both names, with its key, in one file."""
    path = folder / "certificate.pem"
    subject = ["-subj", "/CN=test", "-addext"]
    names = "subjectAltName=" + ",".join(f"DNS:{name}" for name in NAMES.values())
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split()
    subprocess.run(
        [*command, *subject, names, "-keyout", path, "-out", f"{path}.crt"],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def _program(name: str) -> str:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") or name


@contextmanager
def _running(
    commands: list[list[str]],
    folder: Path,
    environment: Mapping[str, str],
    ports: Mapping[str, int],
    certificate: Path,
) -> Iterator[dict[str, Front]]:
    context = ssl.create_default_context(cafile=f"{certificate}.crt")
    log = folder / "log"
    with log.open("ab") as output:
        started = [
            subprocess.Popen(
                command, env={**os.environ, **environment}, stdout=output, stderr=output
            )
            for command in commands
        ]
    try:
        fronts = {side: Front(NAMES[side], port, context) for side, port in ports.items()}

        def all_answer() -> bool:
            assert all(one.poll() is None for one in started), log.read_text()
            return all(map(_answers, fronts.values()))

        eventually(all_answer, "they answer")
        yield fronts
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.wait(60)


def _answers(front: Front) -> bool:
    try:
        front.connected().close()
    except OSError:
        return False
    return True
