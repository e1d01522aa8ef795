"""PostgreSQL tables: field types for their columns, and their rows, read page by page after the
last stored key.

Numbers and booleans are read as such, everything else as PostgreSQL's text, with settings that do
not depend on the server. Messages of the driver are never shown, because they may contain the URL
and thus a password.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, LiteralString

from encrypted_records.cli.input.importer import Row, Shape, SourceTable
from encrypted_records.errors import InvalidSetting, NotFound, Unavailable
from encrypted_records.model import field_types
from encrypted_records.model.field_types import PLAIN, TYPES
from encrypted_records.model.field_types.plain import UUID

if TYPE_CHECKING:
    from encrypted_records.cli.login.session import CommandSession
    from encrypted_records.client.proxy.connection import ShownSchema


_WHOLE = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
_FLOATING = ("real", "double precision")
TEXTS = ("text", "character varying")
#: Types of keys whose order is the same in PostgreSQL and here.
KEYS: tuple[LiteralString, ...] = (
    *("smallint", "integer", "bigint", "numeric"),
    *("text", "character varying", "uuid"),
)
_ARGUMENTS = re.compile(r"\(([0-9]+)(?:,(-?[0-9]+))?\)")
#: Types whose columns become fields of a fixed type, whatever their values are.
_DECLARED = {name: kind for kind in TYPES for name in kind.sql.names}
#: Decimals of numbers that are declared without a scale.
_DECIMALS = 9
_PADDED = 63
_JSON = ("json", "jsonb")
_EXTREMES: tuple[LiteralString, ...] = ("min({0})", "max({0})")
_FINITE: LiteralString = (
    "nullif(nullif(nullif({0}::text, 'NaN'), 'Infinity'), '-Infinity')::numeric"
)


@dataclass(frozen=True)
class TableColumn:
    """
    Attributes:
        kind: PostgreSQL's name of its type, without length or precision, which are in ``size`` and
            ``scale``.
        longest: bytes of the longest label of an enum.
    """

    name: str
    kind: str
    required: bool
    size: int | None = None
    scale: int = 0
    longest: int | None = None

    @property
    def is_list(self) -> bool:
        return self.kind.endswith("[]")

    @property
    def shown(self) -> LiteralString:
        """The SQL expression for its values; ``{0}`` is the column."""
        if self.kind in (*_WHOLE, *_FLOATING, "numeric"):
            return "{0}"
        if self.kind == "money":
            return "{0}::numeric"
        if self.kind in _DECLARED:
            return _DECLARED[self.kind].sql.shown
        return "to_json({0})::text" if self.is_list else "{0}::text"


def column_of(name: str, declared: str, *, required: bool, longest: int | None) -> TableColumn:
    """
    Args:
        declared: its type in the format of ``format_type``: ``numeric(12,2)``, ``timestamp(3) with
            time zone``.
    """
    kind = _ARGUMENTS.sub("", declared, count=1)
    found = _ARGUMENTS.search(declared)
    if found is None:
        return TableColumn(name, kind, required, longest=longest)
    return TableColumn(name, kind, required, int(found[1]), int(found[2] or 0), longest)


def measures_of(column: TableColumn) -> tuple[LiteralString, ...]:
    """SQL expressions for properties of a column's values beyond its type; ``{0}`` is the
    column.
    """
    if column.kind in _FLOATING or (column.kind == "numeric" and column.size is None):
        return (
            f"min({_FINITE})",
            f"max({_FINITE})",
            f"max(min_scale({_FINITE}))",
        )
    if column.kind == "bigint":
        return _EXTREMES
    known = (*_WHOLE, "numeric", "money", *_DECLARED)
    if column.kind in known or column.longest is not None or _has_length(column):
        return ()
    return ("max(octet_length({0}::text))",)


def field_of(column: TableColumn, seen: list[Any]) -> tuple[dict[str, Any], str | None]:
    """The field for a column, and a remark to check.

    Args:
        seen: the results of :func:`measures_of`; None without values.
    """
    kind = column.kind
    if kind in _WHOLE:
        return _whole_number_field(column, seen)
    if kind in (*_FLOATING, "numeric"):
        return _decimal(column, seen)
    if kind == "money":
        return field_types.propose_number(2, 16), None
    if kind in _DECLARED:
        return _DECLARED[kind].propose(), _DECLARED[kind].sql.note
    if column.longest is not None:
        return {"type": "string", "padTo": max(column.longest, 1)}, None
    if _has_length(column):
        assert column.size is not None
        return {
            "type": "string",
            "maxLength": column.size,
            "padTo": min(4 * column.size, _PADDED),
        }, None
    note = None
    if column.is_list:
        note = "a list: kept as JSON text"
    elif kind in _JSON:
        note = "JSON: kept as text"
    elif kind not in TEXTS:
        note = f"{kind}: kept as text, as PostgreSQL writes it"
    return field_types.propose_text((seen[0] if seen else None) or 0), note


def _has_length(column: TableColumn) -> bool:
    return column.kind in ("character varying", "character") and column.size is not None


def _whole_number_field(column: TableColumn, seen: list[Any]) -> tuple[dict[str, Any], str | None]:
    most = _WHOLE[column.kind]
    if seen and seen[0] is not None and max(-seen[0], seen[1]) > field_types.WHOLE:
        return field_types.propose_text(20), "more than 18 digits: kept as text"
    return field_types.propose_whole_number(-most, most - 1), None


def _decimal(column: TableColumn, seen: list[Any]) -> tuple[dict[str, Any], str | None]:
    if column.size is not None:
        if column.size > field_types.MAX_DIGITS or not 0 <= column.scale <= column.size:
            return field_types.propose_text(column.size + 2), "more than 18 digits: kept as text"
        return field_types.propose_number(column.scale, column.size - column.scale), None
    low, high, scale = (*seen, None, None, None)[:3]
    digits = 1 if low is None else max(max(-low, high).adjusted() + 1, 1)
    field: dict[str, Any] | None
    if column.kind == "numeric" and digits <= _DECIMALS and (scale or 0) <= _DECIMALS:
        field = field_types.propose_number(_DECIMALS, _DECIMALS)
    else:
        field = field_types.propose_decimal(digits, scale or 0)
    if field is None:
        return field_types.propose_text(31), "more than 18 digits: kept as text"
    kept = field.get("precision", 0)
    return field, f"a value with more than {kept} decimals is refused"


_SETTINGS = {
    "default_transaction_read_only": "on",
    "datestyle": "ISO, YMD",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "client_encoding": "UTF8",
}
_CONNECT_SECONDS = 15
#: Rows per fetch from the server.
_AT_ONCE = 2_000


class PostgresqlTable(SourceTable):
    """
    Args:
        table: its name, optionally with its namespace: ``public.people``.
        key: columns that identify a row; by default, the primary key.
    """

    def __init__(self, url: str, table: str, key: tuple[str, ...] = ()) -> None:
        from psycopg import ProgrammingError, conninfo  # noqa: PLC0415 - only imports need it

        self._url = url
        try:
            parts = conninfo.conninfo_to_dict(url)
        except ProgrammingError:
            raise InvalidSetting(
                "this is not the URL of a database",
                hint="postgresql://user@host:5432/name; the password can be in PGPASSWORD",
            ) from None
        namespace, _, self.name = table.rpartition(".")
        self._namespace = namespace or "public"
        self._server = f"{parts.get('host') or 'localhost'}:{parts.get('port') or 5432}"
        self.group = str(parts.get("dbname") or parts.get("user") or "postgresql")
        #: whether the URL contains a password
        self.has_password = bool(parts.get("password"))
        self._key = key
        self._columns: list[TableColumn] = []
        #: columns with distinct values
        self._unique: list[str] = []
        self.mark = f"postgresql {self._server} {self.group} {self._namespace}.{self.name}"

    # --- schema of the table --------------------------------------------------------------------

    async def look(self) -> None:
        """Read the columns and the key of the table.

        Raises:
            NotFound: there is no such table, or it cannot be read.
            InvalidSetting: there is no key, or its type has another order here.
        """
        async with self._connect() as connection:
            rows = await (
                await connection.execute(
                    # For a domain, use its base type.
                    "SELECT a.attname, CASE WHEN t.typtype = 'd'"
                    " THEN format_type(t.typbasetype, t.typtypmod)"
                    " ELSE format_type(a.atttypid, a.atttypmod) END,"
                    " a.attnotnull OR t.typnotnull,"
                    " coalesce(array_position(i.indkey::int2[], a.attnum), -1),"
                    " (SELECT max(octet_length(e.enumlabel::text)) FROM pg_enum e"
                    " WHERE e.enumtypid = a.atttypid),"
                    " EXISTS (SELECT FROM pg_index u WHERE u.indrelid = c.oid AND u.indisunique"
                    " AND u.indnkeyatts = 1 AND u.indkey[0] = a.attnum AND u.indpred IS NULL)"
                    " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                    " JOIN pg_attribute a ON a.attrelid = c.oid"
                    " JOIN pg_type t ON t.oid = a.atttypid"
                    " LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary"
                    " WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'm', 'v')"
                    " AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
                    (self._namespace, self.name),
                )
            ).fetchall()
        if not rows:
            raise NotFound(
                f"there is no table {self._namespace}.{self.name}",
                hint="name its namespace as well, as in --table sales.orders",
            )
        self._columns = [
            column_of(name, kind, required=required, longest=longest)
            for name, kind, required, _, longest, _ in rows
        ]
        self._unique = [name for name, *_, unique in rows if unique]
        known = {column.name: column for column in self._columns}
        key_columns = sorted((position, name) for name, _, _, position, *_ in rows if position >= 0)
        self._key = self._key or tuple(name for _, name in key_columns)
        if not self._key:
            raise InvalidSetting(
                f"{self.name} has no primary key",
                hint="name columns that identify its rows and are never null: --key",
            )
        for name in self._key:
            if name not in known:
                raise InvalidSetting(f"{self.name} has no column {name}")
            if known[name].kind not in KEYS:
                raise InvalidSetting(
                    f"the type {known[name].kind} cannot be used as a key",
                    hint=f"name another with --key, of one of these: {', '.join(KEYS)}",
                )

    async def shape(self) -> Shape:
        from psycopg import sql  # noqa: PLC0415 - only imports need it

        selected: list[Any] = [sql.SQL("1")]
        measured = [
            (column, measure) for column in self._columns for measure in measures_of(column)
        ]
        selected += [
            sql.SQL(measure).format(sql.Identifier(field.name)) for field, measure in measured
        ]
        async with self._connect() as connection:
            query = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(selected), self._table)
            row = await (await connection.execute(query)).fetchone()
        assert row is not None
        seen: dict[str, list[Any]] = {}
        for (column, _), value in zip(measured, row[1:], strict=True):
            seen.setdefault(column.name, []).append(value)
        fields: dict[str, dict[str, Any]] = {}
        notes: dict[str, str] = {}
        for column in self._columns:
            fields[column.name], note = field_of(column, seen.get(column.name, []))
            if note:
                notes[column.name] = note
        for name in self._unique:
            remark = "its values are unique there: --unique keeps this rule"
            notes[name] = "; ".join(part for part in (notes.get(name), remark) if part)
        required = [column.name for column in self._columns if column.required]
        return Shape(fields, required, notes)

    async def total(self) -> int:
        from psycopg import sql  # noqa: PLC0415 - only imports need it

        async with self._connect() as connection:
            query = sql.SQL("SELECT count(*) FROM {}").format(self._table)
            row = await (await connection.execute(query)).fetchone()
        return int(row[0])

    # --- its rows -------------------------------------------------------------------------------

    async def rows(self, pointer: Any, most: int) -> AsyncGenerator[Row, None]:
        from psycopg import sql  # noqa: PLC0415 - only imports need it

        shown = [
            sql.SQL(column.shown).format(sql.Identifier(column.name)) for column in self._columns
        ]
        keys = [self._order(name) for name in self._key]
        after: sql.Composable = sql.SQL("")
        if pointer is not None:
            casts = {kind: sql.SQL("%s::" + kind) for kind in KEYS}
            after = sql.SQL("WHERE ({}) > ({})").format(
                sql.SQL(", ").join(keys),
                sql.SQL(", ").join([casts[self._kind(name)] for name in self._key]),
            )
        query = sql.SQL("SELECT {} FROM {} {} ORDER BY {} LIMIT {}").format(
            sql.SQL(", ").join(shown), self._table, after, sql.SQL(", ").join(keys), most
        )
        names = [column.name for column in self._columns]
        async with (
            self._connect() as connection,
            connection.transaction(),
            connection.cursor("ers_import") as cursor,
        ):
            cursor.itersize = _AT_ONCE
            await cursor.execute(query, pointer or ())
            async for row in cursor:
                yield dict(zip(names, row, strict=True))

    def after(self, pointer: Any, row: Row, count: int) -> tuple[Any, ...]:
        key = tuple(row[name] for name in self._key)
        for name, value in zip(self._key, key, strict=True):
            if value is None:
                raise InvalidSetting(
                    f"the key {name} is null in a row", hint="name another column: --key"
                )
            if isinstance(value, str) and not unicodedata.is_normalized("NFC", value):
                raise InvalidSetting(
                    f"a value of the key {name} is not normalized text (NFC), which would be"
                    " sorted differently here",
                    hint="name another with --key",
                )
        return key

    async def resume(self, session: CommandSession, schema: ShownSchema, read: int) -> Any:
        """The pointer after the greatest stored key; None if no record is stored.

        Raises:
            InvalidSetting: a field of the schema orders the key differently.
        """
        fields = schema.definition["properties"]
        for name in self._key:
            is_number = self._kind(name) not in (*TEXTS, *UUID.sql.names)
            if name not in fields or PLAIN[fields[name]["type"]].is_number != is_number:
                raise InvalidSetting(
                    f"the schema cannot order the key {name} as the table does",
                    hint="name another with --key",
                )
        answer = await session.client.search(
            schema.url,
            order_by=[f"-{name}" for name in self._key],
            fields=list(self._key),
            limit=1,
            count=False,
        )
        if not answer.results:
            return None
        return tuple(answer.results[0].data[name] for name in self._key)

    # --- queries --------------------------------------------------------------------------------

    @property
    def _table(self) -> Any:
        from psycopg import sql  # noqa: PLC0415 - only imports need it

        return sql.Identifier(self._namespace, self.name)

    def _kind(self, name: str) -> str:
        return next(column.kind for column in self._columns if column.name == name)

    def _order(self, name: str) -> Any:
        """A key expression with the order of records: texts by code points."""
        from psycopg import sql  # noqa: PLC0415 - only imports need it

        plain = sql.Identifier(name)
        if self._kind(name) in TEXTS:
            return sql.SQL('{} COLLATE "C"').format(plain)
        return plain

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Any]:
        """
        Raises:
            InvalidSetting: the server refuses the login, has no such database, or refuses a query.
            Unavailable: there is no connection, or it was lost.
        """
        import psycopg  # noqa: PLC0415 - only imports need it
        from psycopg import sql  # noqa: PLC0415

        settings = ", ".join(["set_config(%s, %s, false)"] * len(_SETTINGS))
        try:
            async with await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, connect_timeout=_CONNECT_SECONDS
            ) as connection:
                parameters = [word for pair in _SETTINGS.items() for word in pair]
                await connection.execute(sql.SQL(f"SELECT {settings}"), parameters)
                yield connection
        except psycopg.Error as error:
            raise self._ours(error) from None

    def _ours(self, error: Any) -> InvalidSetting | Unavailable:
        # A refused connection has no code; then only the text is used.
        state, text = error.sqlstate or "", str(error)
        if state.startswith("28") or "authentication failed" in text or "no password" in text:
            return InvalidSetting(
                f"PostgreSQL at {self._server} refuses user or password",
                hint="name the user in the URL; the password can be in PGPASSWORD or ~/.pgpass",
            )
        if state.startswith("3D") or ("database" in text and "does not exist" in text):
            return InvalidSetting(f"PostgreSQL at {self._server} has no database {self.group}")
        if state.startswith("42"):
            return InvalidSetting(
                f"PostgreSQL does not let {self._namespace}.{self.name} be read ({state})",
                hint="grant SELECT on it to the user of the URL",
            )
        return Unavailable(
            f"PostgreSQL at {self._server} cannot be reached, or the connection was lost",
            code="source_unavailable",
            hint="run the same command again to continue where it stopped",
        )
