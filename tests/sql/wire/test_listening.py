"""`ers sql --listen` serves until it is told to end; beyond loopback by TLS alone."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from encrypted_records.errors import InvalidSetting
from encrypted_records.sql.wire.server import tls_context
from tests.support.listener import running_listener
from tests.support.service import Account, Service

ARGUMENTS = [sys.executable, "-m", "encrypted_records", "sql"]


@contextmanager
def listening(running: Service, *more: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "ERS_PROXY_URL": running.proxy_url}
    process = subprocess.Popen(
        [*ARGUMENTS, *more],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_the_command_listens_without_a_login_until_it_is_told_to_end(
    running: Service, owner: Account, clinic: str
) -> None:
    with listening(running, "--listen", "127.0.0.1:0") as process:
        assert process.stdout is not None
        found = re.fullmatch(
            r"Listening on 127\.0\.0\.1:(\d+) for clients of PostgreSQL\.\n",
            process.stdout.readline(),
        )
        assert found is not None
        with psycopg.connect(
            host="127.0.0.1",
            port=int(found[1]),
            user=owner.email,
            password=owner.password,
            dbname=clinic,
        ) as connection:
            assert connection.execute("SELECT count(*) FROM patient").fetchone() == (3,)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:5433", "5433", "127.0.0.1:99999"])
def test_an_address_that_cannot_be_is_refused_by_name(
    running: Service, owner: Account, address: str
) -> None:
    with listening(running, "--listen", address) as process:
        _, told = process.communicate(timeout=300)
    assert process.returncode not in (0, None)
    assert "--listen" in told


def _certificate(folder: Path) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "listener.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "listener.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(folder / "listener.pem"), str(folder / "listener.key")


def test_a_client_verifies_the_listeners_certificate(
    running: Service, owner: Account, clinic: str, tmp_path: Path
) -> None:
    certificate, key = _certificate(tmp_path)
    with running_listener(
        running.proxy_url,
        user=owner.email,
        password=owner.password,
        database=clinic,
        tls=tls_context(certificate, key),
    ) as listener:
        with psycopg.connect(
            listener.dsn, host="localhost", sslmode="verify-full", sslrootcert=certificate
        ) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert connection.pgconn.ssl_in_use
        with pytest.raises(psycopg.OperationalError, match="certificate"):
            psycopg.connect(listener.dsn, sslmode="verify-full")


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(InvalidSetting, match="certificate"):
        tls_context(str(tmp_path / "empty"), str(tmp_path / "empty"))
    assert ssl.HAS_TLSv1_3
