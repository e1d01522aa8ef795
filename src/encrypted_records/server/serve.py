"""Start the API and serve until it is stopped.

All problems are found before the port opens, and reported in one line: a folder that cannot be
written, a port in use, a database that is unreachable or was written by a newer version.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from encrypted_records import metrics
from encrypted_records.errors import DatabaseDamaged, DatabaseDiskFailed, DatabaseFull, Startup
from encrypted_records.heap import bound_heap
from encrypted_records.listening.binding import names_of
from encrypted_records.listening.connections import Lingering
from encrypted_records.listening.pace import ServerLimits
from encrypted_records.listening.serving import (
    Server,
    listening,
    require_descriptors,
    room_for_connections,
    settle,
)
from encrypted_records.logs import log_uncaught
from encrypted_records.server.db.databases import Served

#: Per process; more than processors, because they wait for the database.
THREADS = 8
#: The most threads that one sender occupies at once.
THREADS_PER_SENDER = 6
#: Seconds after a signal for running requests to end, and then for messages to be sent.
STOP_SECONDS, LAST_SECONDS = 3, 2
#: An idle API has 24 file descriptors open.
LEAST_DESCRIPTORS = 32
#: A proxy closes an idle connection after 10 seconds, that is, before the API does. Its bodies may
#: arrive over a slow line.
LIMITS = ServerLimits(idle_seconds=15, known_least_rate=16 << 10)
_MIGRATION_LOCK = 0x45525331
#: Apps of earlier versions, whose migrations are recorded in their databases.
_RETIRED_APPS = frozenset({"token_blacklist"})


@dataclass(frozen=True)
class ApiSettings:
    """Settings of an API, of which operators' commands need only the folder and the database.
    ``None`` stands for the value in the data folder; ``processes`` is the number of worker
    processes.
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    database_url: str | None = None
    email_url: str | None = None
    public_url: str = ""
    log_format: str = "text"
    metrics_port: int | None = None
    processes: int = 1


def run(settings: ApiSettings) -> None:
    """Serve in this process's foreground until SIGTERM or SIGINT.

    This must be the process's main thread.

    Raises:
        Startup: the API cannot start here; the message says why in one line.
    """
    with prepared(settings) as sockets:
        if settings.metrics_port is not None:
            from encrypted_records.server import metrics as api_metrics  # noqa: PLC0415 - needs Django

            metrics.serve(settings.metrics_port, api_metrics.registry)
        _serve(settings, sockets, first=True)


@contextmanager
def prepared(settings: ApiSettings) -> Iterator[list[socket.socket]]:
    """Prepare folder and database; yields listening sockets.

    Raises:
        Startup: the API cannot start here; the message says why in one line.
    """
    require_descriptors(LEAST_DESCRIPTORS)
    os.umask(0o077)  # files in the data folder are for their owner alone
    _prepare_folders(settings.data_dir)
    # Detects a port in use before the database is touched.
    with listening(settings.host, settings.port, "--api-port"):
        pass
    _set_environment(settings)
    _prepare_database(Served(settings.data_dir / "api"))
    with listening(settings.host, settings.port, "--api-port") as sockets:
        yield sockets


def work(settings: ApiSettings, sockets: list[socket.socket], *, first: bool) -> None:
    """Serve as one of several processes, after another process has called :func:`prepared`.

    This must be the process's main thread.

    Args:
        first: whether this is the process that does the work needed only once.
    """
    os.umask(0o077)
    _set_environment(settings)
    import django  # noqa: PLC0415 - reads the settings, which read the environment set above

    django.setup()
    _serve(settings, sockets, first=first)


def tell_metrics(port: int, folder: Path) -> None:
    """Serve the metrics of several processes in a folder, and of the stored data, in a thread.

    Raises:
        OSError: the port cannot be used.
    """
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - only this needs it
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

    from encrypted_records.server.metrics import Stored  # noqa: PLC0415 - as all that needs Django

    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    registry.register(Stored())
    metrics.serve(port, registry)


def forget_counts(folder: Path, pid: int) -> None:
    """Drop the gauges of a process that has ended; its counters stay."""
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - as above

    mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]


def make_owner(settings: ApiSettings, email: str, organization: str) -> None:
    """Make an account an owner of an organization, named by its slug. An API may run meanwhile.

    Raises:
        Startup: there is no API in the data folder, or its database cannot be used.
        NotFound: there is no such account, or organization.
    """
    prepare_operator(settings)
    from django.db import DatabaseError  # noqa: PLC0415

    from encrypted_records.server.organizations import members  # noqa: PLC0415

    try:
        members.make_owner(email, organization)
    except DatabaseError as error:
        raise unusable(error) from None


def prepare_operator(settings: ApiSettings) -> None:
    """Set up Django for operator commands; an API may be running at the same time.

    Raises:
        Startup: there is no API in the data folder.
    """
    if settings.database_url is None and not (settings.data_dir / "api" / "db.sqlite3").exists():
        raise Startup(
            f"there is no API in {settings.data_dir}",
            hint="name the API's folder with --data-dir, or its database with --database-url",
        )
    os.umask(0o077)
    _set_environment(settings)
    import django  # noqa: PLC0415 - as all that needs Django

    django.setup()


def _serve(settings: ApiSettings, sockets: list[socket.socket], *, first: bool) -> None:
    from encrypted_records.server import metrics as api_metrics  # noqa: PLC0415 - as all that needs Django
    from encrypted_records.server.erasure import sweeping  # noqa: PLC0415
    from encrypted_records.server.gateway.admission import RequestPlaces, Room  # noqa: PLC0415
    from encrypted_records.server.gateway.gateway import Gateway  # noqa: PLC0415
    from encrypted_records.server.objects import block_cache, cache_files, choice  # noqa: PLC0415
    from encrypted_records.server.urls import urlpatterns  # noqa: F401, PLC0415 - before settle()
    from encrypted_records.server.wsgi import application  # noqa: PLC0415

    bound_heap(arenas=1)
    log_uncaught()
    most = choice.chosen().cache // settings.processes
    block_cache.open_cache(settings.data_dir / "api", most)
    watch = block_cache.watch_cache
    threading.Thread(target=watch, name="copies", daemon=True).start()
    sweep = partial(sweeping.sweep_for_ever, chores() if first else {})
    threading.Thread(target=sweep, name="sweeping", daemon=True).start()
    room = Room(settings.data_dir / "api")
    places = RequestPlaces(THREADS, most_per_sender=THREADS_PER_SENDER)
    gateway = Gateway(application, room, places, api_metrics.count_refused)
    limits = replace(LIMITS, connections=room_for_connections(LIMITS.connections))
    server = Server(
        Lingering(gateway),
        limits,
        stop_seconds=STOP_SECONDS,
        closed=metrics.ClosedConnections(api_metrics.registry).observe,
        lifespan="off",
    )
    settle()
    server.run(sockets=sockets)
    _end_within(LAST_SECONDS)
    block_cache.end_cache(cache_files)


def _end_within(seconds: float) -> None:
    """Have this process end in time, even if a mail server does not answer."""

    def end() -> None:
        time.sleep(seconds)
        os._exit(0)

    threading.Thread(target=end, name="end", daemon=True).start()


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


def _set_environment(settings: ApiSettings) -> None:
    given = {
        "DJANGO_SETTINGS_MODULE": "encrypted_records.server.settings",
        "ERS_DATA_DIR": str(settings.data_dir.absolute()),
        "ERS_OWN_NAMES": ",".join(names_of(settings.host)),
        "ERS_DATABASE_URL": settings.database_url,
        "ERS_EMAIL_URL": settings.email_url,
        "ERS_PUBLIC_URL": settings.public_url,
        "ERS_LOG_FORMAT": settings.log_format,
    }
    for name, value in given.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _prepare_database(served: Served) -> None:
    """Migrate the database to this version, and leave no connection for workers to inherit."""
    import django  # noqa: PLC0415 - reads the settings, which read the environment set above
    from django.core.management import call_command  # noqa: PLC0415
    from django.db import DatabaseError, connection, connections  # noqa: PLC0415

    served.begin()
    django.setup()
    from encrypted_records.server.objects import choice  # noqa: PLC0415 - as all that needs it

    choice.chosen()  # reports an invalid URL before anything is served
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite":
        served.check_file(Path(name))
    try:
        with _one_at_a_time():
            served.check(connection.vendor, name, _first_prepared())
            _refuse_other_versions()
            call_command("migrate", verbosity=0, interactive=False)
            served.remember(connection.vendor, _first_prepared() or "")
            _drop_expired()
    except DatabaseError as error:
        raise _cannot_start(error) from None
    finally:
        connections.close_all()


#: Of SQLite, and SQLSTATE: a table or column is missing, as before the first start of a version.
_MISSING = frozenset({"SQLITE_ERROR", "42P01", "42703"})


def unusable(error: BaseException) -> Startup:
    """The error of an operator's command for a database that fails."""
    from encrypted_records.server.db import databases  # noqa: PLC0415

    if databases.error_name(error) in _MISSING:
        return Startup(
            "the API's database lacks tables of this version",
            hint="start this version's API on it once",
        )
    return _cannot_start(error)


def _cannot_start(error: BaseException) -> Startup:
    """The error for a database that cannot be used: which database, and the problem."""
    from django.db import connection  # noqa: PLC0415

    from encrypted_records.server.db import databases  # noqa: PLC0415

    which = f"the database {connection.settings_dict['NAME']}"
    match databases.meaning_of(error):
        case DatabaseDamaged() as fault:
            return Startup(
                f"{which} is damaged: restore it",
                hint="put a backup of it in its place; docs/operations.md says how",
                code=fault.reason,
            )
        case DatabaseFull() as fault:
            return Startup(
                f"the disk that holds {which} is full",
                hint="make room there, then try again",
                code=fault.reason,
            )
        case DatabaseDiskFailed() as fault:
            return Startup(
                f"the disk that holds {which} fails, or is read-only",
                hint="check the disk and the system's log, then try again",
                code=fault.reason,
            )
    name = databases.error_name(error)
    return Startup(
        "the database does not answer, or denies the API something that it needs"
        + (f" ({name})" if name else ""),
        hint="check that it runs, that ERS_DATABASE_URL names it, and that its user owns it",
    )


def chores() -> dict[Callable[[], object], float]:
    """Work that one process of an API does now and then, with the seconds between two times."""
    from encrypted_records.server.inventory import walk  # noqa: PLC0415

    return {_drop_expired: 24 * 3600.0, walk.report_strangers: 7 * 24 * 3600.0}


def _drop_expired() -> None:
    """Delete what is kept for a limited time; at the start too, for an API that seldom runs."""
    from django.core.management import call_command  # noqa: PLC0415

    from encrypted_records.server.accounts import limits, logins, mail, registration  # noqa: PLC0415
    from encrypted_records.server.organizations import audit, members  # noqa: PLC0415

    call_command("clearsessions", verbosity=0)
    logins.drop_expired()
    mail.drop_expired_links()
    mail.drop_old()
    limits.drop_forgotten()
    audit.drop_old()
    members.drop_old_requests()
    registration.drop_expired()


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


def _first_prepared() -> str | None:
    """When the database was first prepared, to the microsecond; None if it is empty."""
    from django.db import connection  # noqa: PLC0415
    from django.db.migrations.recorder import MigrationRecorder  # noqa: PLC0415

    recorder = MigrationRecorder(connection)
    first = recorder.migration_qs.order_by("pk").first() if recorder.has_table() else None
    return None if first is None else first.applied.isoformat()


def _refuse_other_versions() -> None:
    """Refuse a database of a newer version, or of a version too old to upgrade."""
    from django.db import connection  # noqa: PLC0415
    from django.db.migrations.loader import MigrationLoader  # noqa: PLC0415

    loader = MigrationLoader(connection, ignore_no_migrations=True)
    applied = set(loader.applied_migrations)
    replaced = {
        migration for found in loader.disk_migrations.values() for migration in found.replaces
    }
    if applied & replaced and not replaced <= applied:
        raise Startup(
            "the database was last used by an earlier version of this service, whose tables"
            " this version cannot upgrade",
            hint="first start the version that docs/upgrading.md names for such a database",
        )
    unknown = applied - set(loader.disk_migrations) - replaced
    if any(app not in _RETIRED_APPS for app, _ in unknown):
        raise Startup(
            "the database was last used by a newer version of this service",
            hint="start that version, or restore the backup made before the upgrade",
        )
