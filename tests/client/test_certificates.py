"""An API whose certificate is refused: the reason is named, because it may be this clock."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_server

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from encrypted_records.client.transport import Transport
from encrypted_records.errors import TIME, ApiUnreachable


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of localhost that nobody else has signed, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "certificate").write_bytes(made.public_bytes(pem))
    form = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(pem, form, serialization.NoEncryption())
    (folder / "key").write_bytes(secret)
    return folder / "certificate", folder / "key"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path))
    with create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                with suppress(ssl.SSLError, ConnectionError):
                    try:
                        connection, _ = listening.accept()
                    except OSError:
                        return
                    context.wrap_socket(connection, server_side=True).close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"https://localhost:{listening.getsockname()[1]}"


def test_a_certificate_that_is_refused_is_named_with_the_time_of_this_clock(url: str) -> None:
    async def ask() -> None:
        transport = Transport(url)
        try:
            await transport.request("GET", "/api/status/", repeatable=False)
        finally:
            await transport.close()

    refused = f"the certificate of {url} was refused: self-signed certificate"
    with pytest.raises(ApiUnreachable, match=refused) as error:
        asyncio.run(ask())
    assert TIME.search(error.value.hint)
