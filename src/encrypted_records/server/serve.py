"""Starting the API and serving it until told to stop.

Everything that can be wrong is found before the port opens, and said in one line: a folder that
cannot be written, a port in use, a database out of reach or written by a newer version.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.server import Server

from encrypted_records.errors import Startup

#: One process, since two would fight over SQLite and share no cache; its threads wait for the
#: database while others compute.
THREADS = 8
#: Requests held at once before new connections wait.
BACKPRESSURE = 64
STOP_SECONDS = 3
_MIGRATION_LOCK = 0x45525331
#: Apps of earlier versions, whose migrations stand in databases that they made.
_RETIRED_APPS = frozenset({"token_blacklist"})


@dataclass(frozen=True)
class ApiSettings:
    """How to run the API. ``None`` stands for what the data folder holds."""

    data_dir: Path
    host: str
    port: int
    database_url: str | None
    email_url: str | None
    public_url: str
    log_format: str = "text"
    metrics_port: int | None = None


def run(settings: ApiSettings) -> None:
    """Serve in this process's foreground until SIGTERM or SIGINT.

    The calling process must be allowed to have children, and this must be its main thread.

    Raises:
        Startup: the API cannot start here; the message says why in one line.
    """
    os.umask(0o077)  # whatever is made in the data folder is for its owner alone
    _prepare_folders(settings.data_dir)
    _check_port(settings.host, settings.port)
    _set_environment(settings)
    _prepare_database()
    server = Server(
        "encrypted_records.server.wsgi:application",
        address=settings.host,
        port=settings.port,
        interface=Interfaces.WSGI,
        workers=1,
        blocking_threads=THREADS,
        blocking_threads_idle_timeout=600,
        backpressure=BACKPRESSURE,
        http1_settings=HTTP1Settings(keep_alive=True),
        workers_kill_timeout=STOP_SECONDS,
        websockets=False,
        log_enabled=False,
    )
    server.serve()


def _prepare_folders(data_dir: Path) -> None:
    try:
        for folder in (data_dir, data_dir / "api", data_dir / "mail"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError
    except OSError as error:
        reason = (error.strerror or "permission denied").lower()
        raise Startup(
            f"the data folder {data_dir} cannot be written: {reason}",
            hint="choose another folder, or give this user the right to write there",
        ) from None


def _check_port(host: str, port: int) -> None:
    """Find a port that is taken now; granian would share it with a listener of its own kind."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = (error.strerror or "not possible").lower()
            raise Startup(
                f"cannot listen on {host} port {port}: {reason}",
                hint="stop what listens there, or choose another port",
            ) from None


def _set_environment(settings: ApiSettings) -> None:
    given = {
        "DJANGO_SETTINGS_MODULE": "encrypted_records.server.settings",
        "ERS_DATA_DIR": str(settings.data_dir.absolute()),
        "ERS_DATABASE_URL": settings.database_url,
        "ERS_EMAIL_URL": settings.email_url,
        "ERS_PUBLIC_URL": settings.public_url,
        "ERS_LOG_FORMAT": settings.log_format,
        "ERS_API_METRICS_PORT": None
        if settings.metrics_port is None
        else str(settings.metrics_port),
        "API_SUPERVISOR_PID": str(os.getpid()),
    }
    for name, value in given.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _prepare_database() -> None:
    """Bring the database to this version, and leave no connection behind for workers to inherit."""
    import django  # noqa: PLC0415 - reads the settings, which read the environment set above
    from django.core.management import call_command  # noqa: PLC0415
    from django.db import DatabaseError, connections  # noqa: PLC0415

    django.setup()
    try:
        with _one_at_a_time():
            _refuse_newer()
            call_command("migrate", verbosity=0, interactive=False)
            call_command("clearsessions", verbosity=0)
            _drop_expired()
    except DatabaseError:
        raise Startup(
            "the database does not answer, or refuses what the API needs",
            hint="check that it runs, that ERS_DATABASE_URL names it, and that its user owns it",
        ) from None
    finally:
        connections.close_all()


def _drop_expired() -> None:
    from encrypted_records.server.accounts import limits, logins, registration  # noqa: PLC0415
    from encrypted_records.server.organizations import audit  # noqa: PLC0415
    from encrypted_records.server.records import staging  # noqa: PLC0415

    logins.drop_expired()
    limits.drop_forgotten()
    audit.drop_old()
    registration.drop_expired()
    staging.drop_expired()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Keep a second API on the same PostgreSQL waiting while the first migrates."""
    from django.db import connection  # noqa: PLC0415

    if connection.vendor != "postgresql":
        connection.ensure_connection()
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_MIGRATION_LOCK])
        yield
        cursor.execute("SELECT pg_advisory_unlock(%s)", [_MIGRATION_LOCK])


def _refuse_newer() -> None:
    from django.db import connection  # noqa: PLC0415
    from django.db.migrations.loader import MigrationLoader  # noqa: PLC0415

    loader = MigrationLoader(connection, ignore_no_migrations=True)
    unknown = set(loader.applied_migrations) - set(loader.disk_migrations)
    if any(app not in _RETIRED_APPS for app, _ in unknown):
        raise Startup(
            "the database was last used by a newer version of this service",
            hint="start that version, or restore the backup made before the upgrade",
        )
