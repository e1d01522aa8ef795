"""Fixtures that tests of several rooms share."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import psycopg
import pytest

from encrypted_records import runtime
from tests import weights
from tests.reference import profiles
from tests.support import children
from tests.support.draws import Seeded
from tests.support.place import memory, place
from tests.support.postgres import NewDatabase, postgresql, postgresql_url
from tests.support.service import Service, running_service
from tests.support.swift import swift

__all__ = ["postgresql", "postgresql_url", "profiles", "swift"]


HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Whoever runs the tests in the background has them ignore Ctrl-C, and what is ignored is
    inherited: the commands that tests interrupt would not notice."""
    # Rewriting the asserts of all files takes 17 s of processor: what one process has rewritten,
    # the others read.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # Files come in our order, instead of those with the most tests first.
    config.option.loadscopereorder = False
    if folder := memory():
        # Where pytest makes folders: a proxy starts with a dozen databases, and each commit to them
        # would wait for a disk.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(children.Watch())
    target = config.getoption("--weigh")
    if target and not hasattr(config, "workerinput"):
        config.pluginmanager.register(weights.Scales(Path(target)))


def pytest_collection(session: pytest.Session) -> None:
    """Each of several processes begins with files of its own, so that none rewrites all asserts."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.option.file_or_dir:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in sorted(HERE.rglob("test_*.py"))[number::count]:
        name = ".".join(path.relative_to(HERE.parent).with_suffix("").parts)
        with suppress(Exception, pytest.skip.Exception):  # its collection will tell
            importlib.import_module(name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--weigh", metavar="FILE", help="write how long files of tests took")
    parser.addoption("--seed", help="of tests/simulation: the seeds to run, such as 1234 or 0-99")


#: Bytes of memory that one more process takes with its services, their folders and a browser: five
#: had 18 GB and 5 GB of folders near the end of a run.
WORKER_BYTES = 5 << 30
#: Where a container shows what its own limit is (cgroup v2).
CGROUP = Path("/sys/fs/cgroup")


@pytest.hookimpl(optionalhook=True)  # also where pytest-xdist is left out, as by tests/alone.py
def pytest_xdist_auto_num_workers() -> int | None:
    """Two for each processor and one more, as far as memory allows: tests wait for services and
    pages, by a measurement for two thirds of their time. None leaves it to xdist, as a number in
    its own variable does."""
    processors = os.cpu_count()
    if processors is None or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    workers = min(2 * processors + 1, _available() // WORKER_BYTES)
    return workers if workers > processors else None


def _available() -> int:
    """Bytes of memory that can be had, of the machine and within a container's limit. Memory that
    files are kept in meanwhile is counted: making the environment fills it. 0 where nothing tells.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    free = int(dict(line.split(":") for line in lines)["MemAvailable"].split()[0]) << 10
    try:
        limit, used = ((CGROUP / f"memory.{name}").read_text() for name in ("max", "current"))
        lines = (CGROUP / "memory.stat").read_text().splitlines()
    except OSError:
        return free
    if limit.strip() == "max":
        return free
    kept = dict(line.split() for line in lines)
    of_files = int(kept["active_file"]) + int(kept["inactive_file"])
    return min(free, int(limit) - int(used) + of_files)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What a test draws, and a proxy in its process, follows from its name: it is the same in each
    run. ``TEST_SEED=1`` draws others."""
    before, runtime.machine = runtime.machine, Seeded(item.nodeid)
    try:
        return (yield)
    finally:
        runtime.machine = before


#: Of the kind "loopback", for clients that come through a port of a test's own: further names would
#: mean a device for each request.
LOOPBACK = {"ERS_ALLOWED_HOSTS": "127.0.0.1", "ERS_ACCESS": "api"}
#: Fixtures behind which a whole service is started.
STARTED = {"services", "service", "running", "strict"}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a started service; ``make test-fast`` leaves it out. Where several processes
    share the files, the ones that take longest come first."""
    for item in items:
        if isinstance(item, pytest.Function) and STARTED & set(item.fixturenames):
            item.add_marker(pytest.mark.service)
    if hasattr(config, "workerinput"):
        seconds = weights.read()
        items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0))


def pytest_collection_finish() -> None:
    """A test file that sets Django up has logging write to the stderr of that moment, which pytest
    closes at the end: servers in this process that still end would write to what is closed."""
    for handler in list(logging.root.handlers):
        if type(handler) is logging.StreamHandler:
            logging.root.removeHandler(handler)
    # Eleven thousand tests stay until the end; visiting them took an eighth of this process's time.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def in_memory() -> Iterator[Path]:
    """A folder for services of the whole run."""
    with place() as folder:
        yield folder


@pytest.fixture(scope="session")
def services(in_memory: Path, postgresql: NewDatabase) -> Iterator[Callable[[str], Service]]:
    """A service on a kind of database, running from when it is first asked for to the last test.

    A fixture with parameters would end one service whenever a file asks for the other, and a start
    takes seconds.
    """
    with ExitStack() as stack:

        @cache
        def of(kind: str) -> Service:
            url = postgresql.with_tables() if kind == "postgresql" else None
            (in_memory / kind).mkdir()
            with children.lasting():
                told = LOOPBACK if kind == "loopback" else None
                data = in_memory / kind / "data"
                started = running_service(data, database_url=url, environment=told)
                return replace(stack.enter_context(started), ready=[])

        yield of


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def service(request: pytest.FixtureRequest, services: Callable[[str], Service]) -> Service:
    """A real service, once on each database."""
    return services(request.param)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The URL of a fresh database for a service of the test's own; None for the embedded one."""
    if request.param == "sqlite":
        return None
    new_database: NewDatabase = request.getfixturevalue("postgresql")
    return new_database.with_tables()


@pytest.fixture(scope="module")
def database_folder(database: str | None) -> Path | None:
    """Where PostgreSQL keeps its files, the write-ahead log among them."""
    if database is None:
        return None
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        row = connection.execute("SHOW data_directory").fetchone()
    assert row is not None
    return Path(row[0])
