"""A session after its login: statements in, answers out.

The simple protocol runs a text of statements at once. The extended protocol keeps prepared
statements and portals; after an error it drops messages until `Sync`. Transactions have only a
state: each statement reads its tables at their newest version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from encrypted_records import runtime
from encrypted_records.errors import ErsError
from encrypted_records.sql.failures import Failure, failure_of
from encrypted_records.sql.limits import WireLimits
from encrypted_records.sql.wire import messages as m
from encrypted_records.sql.wire import statements as st
from encrypted_records.sql.wire.answers import QueryRows, StatementAnswers
from encrypted_records.sql.wire.channel import Channel, ClientGone
from encrypted_records.sql.wire.parameters import Description
from encrypted_records.sql.wire.results import CopyWriter, RowEncoder
from encrypted_records.sql.wire.settings import REPORTED, SessionSettings, assignment

#: Seconds between interrupts, and the time limit for a client that does not read when a statement
#: should end.
_AGAIN, _STUCK_SECONDS = 0.5, 2.0
#: The memory of a token beside its text.
_TOKEN_BYTES = 100


@dataclass(slots=True)
class Prepared:
    """A parsed statement, described with this catalogue; without columns, it answers with no
    rows.
    """

    statement: st.SqlStatement
    described: Description
    catalogue: object
    characters: int = field(init=False)

    def __post_init__(self) -> None:
        texts = (self.statement.sql, *chain.from_iterable(self.described.columns))
        self.characters = sum(map(len, texts)) + _TOKEN_BYTES * len(self.statement.words)


@dataclass(slots=True)
class Portal:
    """A running or future statement, with its remaining rows.

    Attributes:
        parameters: formats and bytes, which are decoded in the session's process.
        forms: the format of each column, 0 for text or 1 for binary.
        answer: None before the first Execute.
    """

    prepared: Prepared
    parameters: Sequence[tuple[int, bytes | None]] = field(repr=False)
    forms: Sequence[int]
    answer: QueryRows | None = None
    done: bool = False


class WireSession:
    """
    Args:
        answers: the dataset, as this login sees it.
        settings: the client's settings at the start.
    """

    def __init__(
        self,
        channel: Channel,
        answers: StatementAnswers,
        settings: SessionSettings,
        limits: WireLimits,
    ) -> None:
        self._channel, self._answers, self._limits = channel, answers, limits
        self._settings = settings
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._transaction = "I"
        self._failed = False
        self._reason: Failure | None = None
        self._running = False
        channel.on_end = self._on_end
        self._handlers: dict[type, Callable[[Any], Awaitable[None]]] = {
            m.Parse: self._parse,
            m.Bind: self._bind,
            m.Describe: self._describe,
            m.Execute: self._execute,
            m.Close: self._close,
        }

    # --- messages ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Answer until the client ends.

        Raises:
            ProtocolViolation: the client's bytes violate the protocol.
            Failure: a failure that ends the session.
            ClientGone: the connection has ended.
        """
        try:
            while not isinstance(message := await self._channel.receive(), m.Terminate):
                await self._take(message)
                await self._turn()
        finally:
            await self._end_portals()

    async def _turn(self) -> None:
        """Wait until the client reads its answers, and let other sessions run.

        Raises:
            ClientGone: it does not read them.
        """
        try:
            async with asyncio.timeout(self._limits.statement_seconds):
                await self._channel.flush()
        except TimeoutError:
            self._channel.abort()
            raise ClientGone from None
        await runtime.sleep(0)

    async def _take(self, message: m.Message) -> None:
        match message:
            case m.Sync():
                self._failed = False
                if self._transaction == "I":
                    await self._end_portals()
                self._ready()
            case m.CopyInput() | m.Flush():
                pass
            case _ if self._failed:
                pass
            case m.SimpleQuery(sql):
                await self._query(sql)
            case m.Password():
                raise m.ProtocolViolation("invalid message: password after the login")
            case m.FunctionCall():
                self._tell(Failure("0A000", "function calls by OID are not supported"))
                self._failed = False
                self._ready()
            case _:
                await self._guarded(self._handlers[type(message)](message))

    async def _guarded(self, work: Awaitable[None]) -> bool:
        """Whether the work succeeded; otherwise its error is sent."""
        try:
            await work
        except (Failure, ErsError) as error:
            failure = self._reason if self._reason is not None else failure_of(error)
            self._reason = None
            if failure.fatal:
                raise failure from None
            self._tell(failure)
            return False
        return True

    def _tell(self, failure: Failure) -> None:
        self._failed = True
        if self._transaction == "T":
            self._transaction = "E"
        self._channel.write(
            m.error_response("ERROR", failure.state, failure.message, hint=failure.hint)
        )

    def _ready(self) -> None:
        self._channel.write(m.ready(self._transaction))

    # --- ending a statement -----------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel the running statement, requested by the client on another connection."""
        self._stop(Failure("57014", "canceling statement due to user request"))

    def _on_end(self) -> None:
        if self._running:
            self._stop(Failure("57014", "the client has ended the connection", fatal=True))

    def _stop(self, reason: Failure) -> None:
        if self._running and self._reason is None:
            self._reason = reason
            self._interrupt(reason)

    def _interrupt(self, reason: Failure) -> None:
        """Interrupt the statement repeatedly until it ends: its work may begin after an
        interrupt.
        """
        if self._running and self._reason is reason:
            self._answers.interrupt()
            asyncio.get_running_loop().call_later(_AGAIN, self._interrupt, reason)

    def _expire(self) -> None:
        self._stop(Failure("57014", "canceling statement due to statement timeout"))
        self._drop_stuck(self._reason, waited=False)

    def _drop_stuck(self, reason: Failure | None, *, waited: bool) -> None:
        """Drop a client that does not read its rows: no interrupt reaches it."""
        if not self._running or self._reason is not reason:
            return
        if waited and self._channel.waits:
            self._channel.abort()
            return
        later = partial(self._drop_stuck, reason, waited=True)
        asyncio.get_running_loop().call_later(_STUCK_SECONDS, later)

    async def _bounded(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work with a time limit and cancellation."""
        statement_seconds = self._settings.statement_milliseconds / 1_000
        seconds = min(
            statement_seconds or self._limits.statement_seconds, self._limits.statement_seconds
        )
        self._running, self._reason = True, None
        try:
            try:
                await self._answers.prepare()
                if self._reason is not None:  # the client has not waited for the process
                    raise self._reason
            except BaseException:
                work.close()
                raise
            timer = asyncio.get_running_loop().call_later(seconds, self._expire)
            try:
                await work
            finally:
                timer.cancel()
        finally:
            self._running = False
        self._reason = None

    # --- the simple protocol ----------------------------------------------------------------------

    async def _query(self, sql: str) -> None:
        await self._drop("")
        if await self._guarded(self._check_length(sql)):
            found = await runtime.in_thread(st.split, sql)  # seconds for long lists
            if not found:
                self._channel.write(m.EMPTY_QUERY)
            for statement in found:
                if not await self._guarded(self._bounded(self._answer_simple(statement))):
                    break
                await self._turn()
        self._failed = False
        self._ready()

    async def _check_length(self, sql: str) -> None:
        if len(sql) > self._limits.statement_characters:
            raise Failure(
                "54000",
                f"a statement has more than {self._limits.statement_characters} characters",
                hint="send long lists as one array parameter",
            )

    def _encoder(self, columns: Sequence[tuple[str, str]], forms: Sequence[int]) -> RowEncoder:
        return RowEncoder(columns, forms, iso_intervals=self._settings.iso_intervals)

    async def _answer_simple(self, statement: st.SqlStatement) -> None:
        if statement.first == "copy":
            self._check_transaction(statement)
            await self._copy(statement)
        elif (tag := await self._command(statement)) is not None:
            self._channel.write(m.command_complete(tag))
        else:
            answer = await self._answers.run(statement.sql, None, ())
            try:
                encoder = self._encoder(answer.columns, ())
                self._channel.write(m.row_description(encoder.described))
                await self._send_rows(answer, encoder, 0)
                self._channel.write(m.command_complete(f"SELECT {answer.sent}"))
            finally:
                await answer.close()

    async def _send_rows(self, answer: QueryRows, encoder: RowEncoder, most: int) -> bool:
        """Send rows up to a limit, 0 for none; returns whether there may be more."""
        left = most
        while (
            batch := await answer.next(
                min(left or self._limits.batch_rows, self._limits.batch_rows)
            )
        ) is not None:
            for row in encoder.rows(batch):
                self._channel.write(row)
            await self._channel.flush()
            if self._reason is not None:
                raise self._reason
            if most:
                left -= batch.num_rows
                if left == 0:
                    return True
        return False

    # --- the extended protocol --------------------------------------------------------------------

    async def _parse(self, message: m.Parse) -> None:
        # EXPLAIN ANALYZE runs its statement even when it is only described.
        await self._bounded(self._prepare(message))

    async def _prepare(self, message: m.Parse) -> None:
        await self._check_length(message.sql)
        if not message.name:
            self._prepared.pop("", None)
        found = await runtime.in_thread(st.split, message.sql)
        if len(found) > 1:
            raise Failure("42601", "cannot insert multiple commands into a prepared statement")
        if message.name in self._prepared:
            raise Failure("42P05", f"prepared statement {message.name!r} already exists")
        if len(self._prepared) >= self._limits.prepared:
            raise Failure("53000", f"a session has at most {self._limits.prepared} statements")
        statement = found[0] if found else st.SqlStatement("", ())
        described = Description((), ())
        if statement.first in st.READS:
            self._check_transaction(statement)
            described = await self._answers.describe(statement.sql, message.types)
            # The session's process reads the others, which take more memory than the text.
            statement = st.SqlStatement(statement.sql, statement.words[:1])
        elif statement.first == "show":
            described = Description((), [(name, "VARCHAR") for name in self._shown(statement)[0]])
        elif statement.first == "fetch":
            described = Description((), self._cursor(st.fetched(statement)).columns)
        elif statement.first == "declare":
            query = st.declared(statement).query
            described = await self._answers.describe(query.sql, message.types)
            described = Description(described.parameters, ())
        prepared = Prepared(statement, described, self._answers.catalogue)
        characters = sum(kept.characters for kept in (prepared, *self._prepared.values()))
        if characters > self._limits.prepared_characters:
            raise Failure("53200", "the session's prepared statements are too long together")
        self._prepared[message.name] = prepared
        self._channel.write(m.PARSE_COMPLETE)

    def _named(self, name: str) -> Prepared:
        try:
            return self._prepared[name]
        except KeyError:
            raise Failure("26000", f"prepared statement {name!r} does not exist") from None

    async def _bind(self, message: m.Bind) -> None:
        prepared = self._named(message.statement)
        types = prepared.described.parameters
        if len(message.values) != len(types):
            raise Failure(
                "08P01",
                f"bind message supplies {len(message.values)} parameters, but prepared statement"
                f" {message.statement!r} requires {len(types)}",
            )
        if message.portal and message.portal in self._portals:
            raise Failure("42P03", f"portal {message.portal!r} already exists")
        await self._drop(message.portal)
        if len(self._portals) >= self._limits.portals:
            raise Failure("53000", f"a session has at most {self._limits.portals} portals")
        values = list(zip(_each(message.formats, len(types)), message.values, strict=True))
        kept = [portal.parameters for portal in self._portals.values()]
        if sum(len(value or b"") for _, value in chain(values, *kept)) > self._limits.portal_bytes:
            raise Failure("53200", "the parameters of the session's portals are too long together")
        columns = len(prepared.described.columns)
        self._portals[message.portal] = Portal(
            prepared, values, _each(message.result_formats, columns)
        )
        self._channel.write(m.BIND_COMPLETE)

    def _portal(self, name: str) -> Portal:
        try:
            return self._portals[name]
        except KeyError:
            raise Failure("34000", f"portal {name!r} does not exist") from None

    async def _describe(self, message: m.Describe) -> None:
        forms: Sequence[int] = ()
        if message.kind == "S":
            prepared = self._named(message.name)
            oids = [kind.oid for kind in prepared.described.parameters]
            self._channel.write(m.parameter_description(oids))
        else:
            portal = self._portal(message.name)
            prepared, forms = portal.prepared, portal.forms
        if prepared.described.columns:
            encoder = RowEncoder(prepared.described.columns, forms)
            self._channel.write(m.row_description(encoder.described))
        else:
            self._channel.write(m.NO_DATA)

    async def _close(self, message: m.Close) -> None:
        if message.kind == "S":
            self._prepared.pop(message.name, None)
        else:
            await self._drop(message.name)
        self._channel.write(m.CLOSE_COMPLETE)

    async def _execute(self, message: m.Execute) -> None:
        portal = self._portal(message.portal)
        await self._bounded(self._execute_portal(portal, message.rows))

    async def _execute_portal(self, portal: Portal, most: int) -> None:
        statement = portal.prepared.statement
        if not statement.words:
            self._channel.write(m.EMPTY_QUERY)
        elif statement.first == "copy":
            self._check_transaction(statement)
            await self._copy(statement)
        elif statement.first in st.READS:
            await self._execute_query(portal, most)
        elif (tag := await self._command(statement, portal)) is not None:
            self._channel.write(m.command_complete(tag))

    async def _execute_query(self, portal: Portal, most: int) -> None:
        self._check_transaction(portal.prepared.statement)
        if portal.done:
            self._channel.write(m.command_complete("SELECT 0"))
            return
        answer = await self._rows_of(portal)
        before = answer.sent
        if await self._send_rows(answer, self._encoder(answer.columns, portal.forms), most):
            self._channel.write(m.PORTAL_SUSPENDED)
            return
        portal.done = True
        self._channel.write(m.command_complete(f"SELECT {answer.sent - before}"))
        await answer.close()

    async def _rows_of(self, portal: Portal) -> QueryRows:
        """The rows of a portal, whose statement starts when they are first needed.

        Raises:
            Failure: the columns are no longer those that were described.
        """
        if portal.answer is None:
            statement, described = portal.prepared.statement, portal.prepared.described
            portal.answer = await self._answers.run(statement.sql, described, portal.parameters)
            if self._answers.catalogue is not portal.prepared.catalogue:
                # Fields of the same type may have other names, or another order.
                types = [kind.oid for kind in described.parameters]
                described = await self._answers.describe(statement.sql, types)
            oids = RowEncoder(portal.answer.columns, ()).oids
            columns = portal.prepared.described.columns
            if described.columns != columns or oids != RowEncoder(columns, ()).oids:
                raise Failure(
                    "0A000",
                    "cached plan must not change result type",
                    hint="a schema has changed: prepare the statement again, or reconnect",
                )
            portal.prepared.catalogue = self._answers.catalogue
        return portal.answer

    async def _drop(self, name: str) -> None:
        portal = self._portals.pop(name, None)
        if portal is not None and portal.answer is not None:
            await portal.answer.close()

    async def _end_portals(self) -> None:
        for name in list(self._portals):
            await self._drop(name)

    # --- commands answered without the engine -----------------------------------------------------

    def _check_transaction(self, statement: st.SqlStatement) -> None:
        if self._transaction == "E" and statement.first not in _ENDS:
            raise Failure(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            )

    async def _command(
        self, statement: st.SqlStatement, portal: Portal | None = None
    ) -> str | None:
        """Run a command that is not a query, and return its tag; None for a query.

        Args:
            portal: of the command in the extended protocol.

        Raises:
            Failure: it is refused; 25006 if it would write.
        """
        self._check_transaction(statement)
        first = statement.first
        if first in st.READS:
            return None
        if first in _TRANSACTIONS:
            return await self._change_transaction(statement)
        match first:
            case "set":
                self._set(statement)
            case "reset":
                name = statement.words[1].word if len(statement.words) > 1 else ""
                self._settings.reset(None if name in ("", "all") else name)
            case "show":
                names, rows = self._shown(statement)
                await self._send_texts(names, rows, extended=portal is not None)
            case "declare":
                await self._declare(st.declared(statement), portal)
                return "DECLARE CURSOR"
            case "fetch":
                return await self._fetch(st.fetched(statement), portal)
            case "close":
                await self._close_cursor(statement)
                return "CLOSE CURSOR"
            case "deallocate":
                self._deallocate(statement)
            case "discard":
                await self._discard(statement)
                return f"DISCARD {statement.words[-1].word.upper()}"
            case "unlisten":
                pass
            case "prepare" | "execute" | "listen" | "lock" | "move" | "notify":
                raise Failure("0A000", f"{first.upper()} is not supported")
            case _ if first not in _WRITES:
                raise Failure("42601", f'syntax error at or near "{statement.words[0].text[:40]}"')
            case _:
                raise Failure(
                    "25006",
                    f"cannot execute {first.upper()} in a read-only transaction",
                    hint="SQL reads records and changes nothing",
                )
        return first.upper()

    async def _change_transaction(self, statement: st.SqlStatement) -> str:
        first, words = statement.first, [token.word for token in statement.words]
        if first in ("begin", "start"):
            if "write" in words:
                raise Failure("25006", "a transaction here is read only")
            self._transaction = "T"
            return "BEGIN" if first == "begin" else "START TRANSACTION"
        if first in ("savepoint", "release"):
            return first.upper()
        if first == "rollback" and "to" in words:
            if self._transaction == "I":
                raise Failure("25P01", "ROLLBACK TO SAVEPOINT is for transaction blocks only")
            self._transaction = "T"
            return "ROLLBACK"
        failed, self._transaction = self._transaction == "E", "I"
        await self._end_portals()
        return "ROLLBACK" if failed or first in ("rollback", "abort") else "COMMIT"

    def _set(self, statement: st.SqlStatement) -> None:
        assigned = assignment(statement)
        if assigned is None:
            return
        name, value = assigned
        if value.lower() == "default":
            self._settings.reset(name)
        else:
            name = self._settings.put(name, value)
        if name in REPORTED:
            self._channel.write(m.parameter_status(REPORTED[name], self._settings.show(name)))

    def _shown(self, statement: st.SqlStatement) -> tuple[list[str], list[list[str]]]:
        words = [token.word for token in statement.words[1:]]
        if words == ["all"]:
            rows = [[name, value, ""] for name, value in self._settings.all()]
            return ["name", "setting", "description"], rows
        if words[:2] == ["transaction", "isolation"]:
            words = ["transaction_isolation"]
        name = (
            "_".join(words[:2])
            if words[:1] == ["time"]
            else ".".join(word for word in words if word != ".")
        )
        return [name], [[self._settings.show(name)]]

    async def _send_texts(
        self, names: Sequence[str], rows: Sequence[Sequence[str]], *, extended: bool
    ) -> None:
        encoder = RowEncoder([(name, "VARCHAR") for name in names], ())
        if not extended:
            self._channel.write(m.row_description(encoder.described))
        columns = [[row[at].encode() for row in rows] for at in range(len(names))]
        for row in m.data_rows(columns, len(rows)):
            self._channel.write(row)

    def _deallocate(self, statement: st.SqlStatement) -> None:
        name = statement.words[-1].word
        if name == "all":
            self._prepared.clear()
        else:
            self._named(name)
            del self._prepared[name]

    async def _discard(self, statement: st.SqlStatement) -> None:
        if statement.words[-1].word == "all":
            self._prepared.clear()
            self._settings.reset()
            await self._end_portals()

    # --- cursors ----------------------------------------------------------------------------------

    async def _declare(self, declared: st.Declared, given: Portal | None) -> None:
        """Declare a cursor, with the parameters of the command's portal."""
        if declared.name in self._portals:
            raise Failure("42P03", f"cursor {declared.name!r} already exists")
        types = given.prepared.described.parameters if given is not None else ()
        oids = [kind.oid for kind in types]
        described = await self._answers.describe(declared.query.sql, oids)
        if len(described.parameters) > len(types):
            raise Failure("42P02", f"there is no parameter ${len(described.parameters)}")
        forms = [0] * len(described.columns)
        parameters = given.parameters if given is not None else ()
        prepared = Prepared(declared.query, described, self._answers.catalogue)
        self._portals[declared.name] = Portal(prepared, parameters, forms)

    def _cursor(self, fetched: st.Fetched) -> Description:
        return self._portal(fetched.name).prepared.described

    async def _fetch(self, fetched: st.Fetched, target: Portal | None) -> str:
        """Rows of a cursor, in the formats of the FETCH command's portal."""
        portal = self._portal(fetched.name)
        columns = portal.prepared.described.columns
        if target is None:
            encoder = self._encoder(columns, portal.forms)
            self._channel.write(m.row_description(encoder.described))
        elif target.prepared.described.columns != columns:
            raise Failure("0A000", "cached plan must not change result type")
        else:
            encoder = self._encoder(columns, target.forms)
        if portal.done:
            return "FETCH 0"
        answer = await self._rows_of(portal)
        before = answer.sent
        if not await self._send_rows(answer, encoder, fetched.rows):
            portal.done = True
            await answer.close()
        return f"FETCH {answer.sent - before}"

    async def _close_cursor(self, statement: st.SqlStatement) -> None:
        name = statement.words[-1].word
        if name == "all":
            await self._end_portals()
        else:
            self._portal(name)
            await self._drop(name)

    # --- COPY -------------------------------------------------------------------------------------

    async def _copy(self, statement: st.SqlStatement) -> None:
        copied = st.copied(statement)
        answer = await self._answers.run(copied.query, None, ())
        try:
            writer = CopyWriter(copied, answer.columns, iso_intervals=self._settings.iso_intervals)
            self._channel.write(m.copy_out(writer.form, len(answer.columns)))
            head = writer.head
            if head and not writer.form:
                self._channel.write(m.copy_data(head))
                head = b""
            while (batch := await answer.next(self._limits.batch_rows)) is not None:
                for row in writer.rows(batch):
                    # The binary header comes with the first row, as in PostgreSQL.
                    self._channel.write(m.copy_data(head + row))
                    head = b""
                await self._channel.flush()
                if self._reason is not None:
                    raise self._reason
            if head or writer.tail:
                self._channel.write(m.copy_data(head + writer.tail))
            self._channel.write(m.COPY_DONE)
            self._channel.write(m.command_complete(f"COPY {answer.sent}"))
        finally:
            await answer.close()


_TRANSACTIONS = frozenset(
    {"begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release"}
)
_WRITES = frozenset(
    "alter analyze attach call checkpoint cluster comment create delete detach do drop export force"
    " grant import insert install load merge pragma reassign refresh reindex revoke security"
    " truncate update use vacuum".split()
)
#: Statements that end a failed transaction.
_ENDS = frozenset({"rollback", "abort", "commit", "end"})


def _each(forms: Sequence[int], count: int) -> list[int]:
    """A format for each: an empty list means text, a single format applies to all.

    Raises:
        Failure: the number of formats is wrong.
    """
    if len(forms) <= 1:
        return [*(forms or (0,))] * count
    if len(forms) != count:
        raise Failure("08P01", f"bind message has {len(forms)} formats for {count} columns")
    return list(forms)
