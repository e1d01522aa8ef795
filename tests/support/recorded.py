"""An HTTPS server that answers as a cloud service was documented to: no such service is asked.

Its certificate is made for each test. It notes what it was sent.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: (path, body, headers) -> (status, body, headers)
Answer = Callable[[str, dict[str, Any], dict[str, str]], tuple[int, Any, dict[str, str]]]


@dataclass
class Recorded:
    """Where the server is, the certificate to trust, and the requests so far."""

    port: int
    certificate: Path
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


@contextmanager
def recorded_server(folder: Path, answer: Answer) -> Iterator[Recorded]:
    """A server on loopback, until the block ends."""
    certificate = _certificate(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(size)
            body = json.loads(text) if text.startswith(b"{") else {}
            path = self.path.partition("?")[0]
            server.requests.append((path, body))
            status, found, headers = answer(path, body, dict(self.headers))
            content = json.dumps(found).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815 - the server's name for the verb

        def log_message(self, *_: object) -> None:
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    serving.socket = context.wrap_socket(serving.socket, server_side=True)
    server = Recorded(serving.server_port, certificate)
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join()


def _certificate(folder: Path) -> Path:
    """A file with a new certificate for ``localhost``, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "recorded.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path
