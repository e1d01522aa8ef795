"""``ers sql``: SELECT over records, on this machine.

``ers sql --listen`` puts PostgreSQL's protocol in front of a proxy, in the foreground, and
``ers mcp`` offers the same to an agent, over standard input and output.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from encrypted_records import logs, runtime
from encrypted_records.cli.commands.selection import dataset_option, safe_cells_option
from encrypted_records.cli.login.session import CommandSession, ProxyAddress, connected
from encrypted_records.cli.output import Output
from encrypted_records.cli.terminal import say, warn
from encrypted_records.errors import ErsError, InvalidSetting, SqlError
from encrypted_records.listening.binding import CannotListen, bound
from encrypted_records.sql.limits import STANDARD, STANDARD_WIRE, require_mcp, require_sql

if TYPE_CHECKING:
    from encrypted_records.client.proxy.client import ProxyClient
    from encrypted_records.sql.engine import Engine, StatementResult


_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+)):(\d{1,5})")


def listening_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a command that may listen."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_FILE = click.Path(exists=True, dir_okay=False)
_OPTIONS = (
    click.option(
        "--listen",
        metavar="HOST:PORT",
        help="Answer clients of PostgreSQL at this address until Ctrl-C: psql, DBeaver, pandas.",
    ),
    click.option(
        "--tls-cert",
        type=_FILE,
        help="Certificate of the listener, a PEM file; needed beyond loopback.",
    ),
    click.option("--tls-key", type=_FILE, help="Key of that certificate, a PEM file."),
)


async def serve(
    proxy: ProxyAddress, address: str, certificate: str | None, key: str | None
) -> None:
    """Serve clients of PostgreSQL until SIGINT or SIGTERM. Each logs in by itself; this command's
    own login and devices are not used for them.

    Raises:
        InvalidSetting: the address or the certificate cannot be used.
    """
    from encrypted_records.sql.wire.server import Listener, check_host, tls_context  # noqa: PLC0415 - optional, slow to import

    host, port = _parsed(address)
    if (certificate is None) != (key is None):
        raise InvalidSetting("--tls-cert and --tls-key must be given together")
    tls = tls_context(certificate, key) if certificate and key else None
    check_host(host, tls)
    logs.log_to_stderr()
    listener = Listener(_connecting(proxy), tls=tls, limits=STANDARD_WIRE, sql_limits=STANDARD)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Each session may keep a thread busy, and none is to wait for another's statement.
    loop.set_default_executor(ThreadPoolExecutor(STANDARD_WIRE.connections + STANDARD_WIRE.waiting))
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows has Ctrl-C as KeyboardInterrupt
            loop.add_signal_handler(number, stopped.set)
    try:
        with bound(host, port) as sockets:
            async with listener.listening(sockets):
                say(f"Listening on {host}:{sockets[0].getsockname()[1]} for clients of PostgreSQL.")
                warn("Database: a dataset's slug. User: e-mail. Password: yours, or an API token.")
                await stopped.wait()
    except CannotListen as error:
        raise InvalidSetting(
            f"--listen cannot use {error.host}:{port} ({error.strerror})",
            hint="choose another port, or stop the program that uses it",
        ) from None


def _parsed(address: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found[3]) > 65_535:
        raise InvalidSetting("--listen takes HOST:PORT", hint="for example --listen 127.0.0.1:5433")
    return found[1] or found[2], int(found[3])


def _connecting(proxy: ProxyAddress) -> Callable[[str, str, str | None, str | None], ProxyClient]:
    from encrypted_records.client.proxy.client import ProxyClient  # noqa: PLC0415 - slow to import

    def connect(user: str, password: str, token: str | None, device: str | None) -> ProxyClient:
        if token is not None:
            return ProxyClient(proxy.proxy_url, token=token, headers=proxy.headers, device=device)
        return ProxyClient(
            proxy.proxy_url, email=user, password=password, headers=proxy.headers, device=device
        )

    return connect


#: Rows that a table shows; every other form is whole.
MOST_SHOWN = 1000
_HELP = r"""\dt          list the tables
\d TABLE     list a table's columns
\timing      show how long a statement takes, or no longer
\q           quit; so does Ctrl-D
Ctrl-C cancels a statement, or discards its lines. Statements end with a semicolon."""


@click.command()
@click.argument("statement", required=False)
@dataset_option
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with statements to run.",
)
@click.option(
    "--output",
    "-o",
    "form",
    type=click.Choice(["table", "csv", "json", "ndjson", "parquet"]),
    envvar="ERS_OUTPUT",
    show_envvar=True,
    show_default="table on a terminal, else ndjson",
    help="Format of results.",
)
@safe_cells_option
@click.option("--timing", is_flag=True, help="Show how long each statement takes.")
@listening_options
@connected(organization=True, login_optional="listen")
async def sql(
    session: CommandSession,
    statement: str | None,
    dataset: str | None,
    file: Path | None,
    form: str | None,
    safe_cells: bool,
    timing: bool,
    listen: str | None,
    tls_cert: str | None,
    tls_key: str | None,
) -> None:
    """Run STATEMENT, a SELECT, over the records that you can read; without one, open a prompt.

    A dataset is a schema of SQL, and a schema a table. DuckDB runs the statement on this machine,
    over columns that the proxy decrypts; the API sees which fields are read. Only SELECT is
    possible. The prompt keeps its history until it ends, and does not write it to disk.

    \b
    Examples:
      ers sql "SELECT city, count(*), median(age) FROM patient GROUP BY city"
      ers sql -o parquet "SELECT * FROM medical.patient" > patients.parquet
      ers sql --dataset medical
      ers sql --listen 127.0.0.1:5433
    """
    require_sql()
    if listen is not None:
        if statement is not None or file is not None:
            raise click.UsageError("--listen takes no statement")
        await serve(session.proxy, listen, tls_cert, tls_key)
        return
    from encrypted_records.sql.engine import Engine  # noqa: PLC0415 - optional, slow to import

    if statement is not None and file is not None:
        raise click.UsageError("give either a statement or --file")
    if form == "parquet" and sys.stdout.isatty():
        raise InvalidSetting(
            "Parquet cannot be written to a terminal", hint="add > FILE to the command"
        )
    if safe_cells and form != "csv":
        raise click.UsageError("--safe-cells is for CSV: -o csv")
    filters = await session.names.in_organization()
    form = form or ("table" if sys.stdout.isatty() else "ndjson")
    shell = _SqlShell(form, safe=safe_cells, timing=timing)
    async with Engine(
        session.client, dataset=dataset, organization=filters.get("organization")
    ) as engine:
        if statement is None and file is None and sys.stdin.isatty():
            await shell.prompt(engine)
            return
        try:
            for each in await engine.split(statement or _read(file)):
                await shell.run(engine, each)
        except SqlError as error:
            if error.reason == "sql_canceled":
                raise click.Abort from None
            raise


class _SqlShell:
    def __init__(self, form: str, *, safe: bool, timing: bool) -> None:
        self._form = form
        self._safe = safe
        self._timing = timing

    async def run(self, engine: Engine, statement: str) -> None:
        """Run a statement and write its result; Ctrl-C cancels it."""
        began = runtime.monotonic()
        with _interrupts(engine):
            async with await engine.execute(statement) as result:
                await self._write(result)
        if self._timing:
            warn(f"{(runtime.monotonic() - began) * 1000:.0f} ms")

    async def _write(self, result: StatementResult) -> None:
        from encrypted_records.sql.rendering import rows_of, unique_names  # noqa: PLC0415

        names = unique_names(column.name for column in result.columns)
        if self._form == "parquet":
            await _write_parquet(result, names)
            return
        most = MOST_SHOWN if self._form == "table" else None
        counted = 0

        async def rows() -> AsyncIterator[dict[str, Any]]:
            nonlocal counted
            async for batch in result.batches():
                for row in rows_of(batch, names):
                    counted += 1
                    if most is None or counted <= most:
                        yield row

        if self._safe:
            say(_safe_line(names))
            async for row in rows():
                say(_safe_line(row.values()))
            return
        await Output(self._form).many(rows(), names, called="rows")
        if most is not None and counted > most:
            warn(f"{counted:,} rows, of which the first {most:,} are shown: -o csv writes all")

    async def prompt(self, engine: Engine) -> None:
        """Statements and commands, line by line, until the end of input."""
        with suppress(ImportError):
            import readline  # noqa: F401, PLC0415 - lines are edited, and kept until the end

        say(f"{len(engine.tables())} tables; \\? for help")
        unfinished = ""
        while True:
            try:
                line = _read_line("  -> " if unfinished else f"{engine.dataset or 'ers'}=> ")
                if line is None or line.strip() == "\\q":
                    return
                if not unfinished and line.strip() in ("quit", "exit"):
                    return
                unfinished = await self._take(engine, unfinished, line)
            except KeyboardInterrupt:
                say("")
                unfinished = ""
            except ErsError as error:
                unfinished = ""
                state = f" ({error.sqlstate})" if isinstance(error, SqlError) else ""
                warn(f"error: {error.message}{state}")
                if error.hint:
                    warn(f"hint: {error.hint}")

    async def _take(self, engine: Engine, unfinished: str, line: str) -> str:
        """The unfinished statement after another line."""
        from encrypted_records.sql.wire.statements import tokens  # noqa: PLC0415 - slow to import

        if line.startswith("\\") or (line.strip() == "help" and not unfinished):
            await self._command(engine, line.split())
            return unfinished
        unfinished += f"{line}\n"
        words = [token.text for token in tokens(unfinished)]
        if not words:
            return ""
        if words[-1] != ";" or "'" in words or '"' in words:  # a quote alone is still open
            return unfinished
        for statement in await engine.split(unfinished):
            await self.run(engine, statement)
        return ""

    async def _command(self, engine: Engine, words: list[str]) -> None:
        match words:
            case ["\\dt"] | ["\\d"] | ["\\d", _]:
                await engine.refresh()
                await self._list(engine, *words[1:])
            case ["\\timing"]:
                self._timing = not self._timing
                say(f"timing is {'on' if self._timing else 'off'}")
            case _:
                say(_HELP)

    async def _list(self, engine: Engine, name: str | None = None) -> None:
        from encrypted_records.sql import rendering  # noqa: PLC0415 - optional, slow to import

        if name is None:
            rows = rendering.describe_tables(engine.tables())
            columns = ["dataset", "table", "columns", "description"]
        else:
            wanted = name.rstrip(";").replace('"', "")
            tables = engine.catalogue.named(wanted, engine.dataset)
            if len(tables) != 1:
                found = ", ".join(table.in_sql for table in tables)
                warn(
                    f"error: {name} may be {found}" if found else f"error: there is no table {name}"
                )
                return
            rows = rendering.describe_columns(tables[0])
            columns = ["column", "type", "field"]

        await Output("table").many(rows, columns, called="tables")


def _read(file: Path | None) -> str:
    """
    Raises:
        InvalidSetting: it is no text, or cannot be read.
    """
    try:
        return sys.stdin.read() if file is None else file.read_text("utf-8")
    except OSError as error:
        raise InvalidSetting(f"the statements cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSetting("the statements are not UTF-8") from None


def _read_line(prompt: str) -> str | None:
    """A line of input; None at the end.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(prompt)
    except EOFError:
        say("")
        return None
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _interrupts(engine: Engine) -> Iterator[None]:
    """Ctrl-C cancels the statement."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, engine.cancel)
    except (NotImplementedError, RuntimeError):  # Windows, or no main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _safe_line(values: Iterable[Any]) -> str:
    """A line of CSV for spreadsheets."""
    from encrypted_records.sql.rendering import csv_row  # noqa: PLC0415 - optional, slow to import

    return csv_row(values, safe=True).decode().removesuffix("\r\n")


async def _write_parquet(result: StatementResult, names: list[str]) -> None:
    import pyarrow  # noqa: PLC0415 - optional, slow to import
    from pyarrow import parquet  # noqa: PLC0415

    from encrypted_records.sql import rendering  # noqa: PLC0415

    types = [rendering.as_durations(pyarrow.nulls(0, kind)).type for kind in result.schema.types]
    schema = pyarrow.schema(list(zip(names, types, strict=True)))
    out = _UntilFailure(sys.stdout.buffer)
    try:
        with parquet.ParquetWriter(out, schema) as writer:
            try:
                async for batch in result.batches():
                    columns = [rendering.as_durations(column) for column in batch.columns]
                    writer.write_batch(pyarrow.RecordBatch.from_arrays(columns, schema=schema))
            except BaseException:
                out.failed = True
                raise
    except pyarrow.ArrowNotImplementedError:
        raise InvalidSetting(
            "Parquet has no type for a column of the result, such as an interval of months",
            hint="cast the column to VARCHAR",
        ) from None


class _UntilFailure:
    """A file that takes nothing once ``failed`` is set: the footer, which the writer then writes,
    would make a whole file of some of the rows."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.failed = False
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self.failed:
            self._file.write(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()


@click.command()
@connected()
async def mcp(session: CommandSession) -> None:
    """Serve the tools list_schemas, describe_schema, query and why_nothing to an agent, by the
    Model Context Protocol over standard input and output.

    ERS_TOKEN must hold an API token with the scope read; the agent sees the datasets of that token
    and gets no key. Everything that a tool shows to the agent leaves this machine with it, for the
    provider of the agent's model.

    \b
    Example:
      ERS_TOKEN="$(cat agent.token)" ers mcp
    """
    require_mcp()
    from encrypted_records.sql.agent import Tools, refuse_wide_token  # noqa: PLC0415 - optional
    from encrypted_records.sql.engine import Engine  # noqa: PLC0415 - optional

    refuse_wide_token(await session.who.login() if session.who.login else "")
    # An agent's host keeps this log. The library's lines quote answers, and so would its handler.
    logs.log_to_stderr(level=logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.WARNING)
    async with Engine(session.client) as engine:
        await Tools(session.client, engine).server().run_stdio_async()
