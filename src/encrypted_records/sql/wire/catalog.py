"""PostgreSQL's catalogues: `pg_catalog` and `information_schema`, for tools that list tables.

A separate connection holds their relations, with PostgreSQL's columns, and the functions that tools
call; it contains names and types, but no records. Its schema precedes DuckDB's in the search path,
so statements find these relations. PostgreSQL's syntax that DuckDB cannot parse
(`OPERATOR(pg_catalog.~)`, `'patient'::regclass`) is rewritten token by token, only in statements
that read catalogues.
"""

# ruff: noqa: S608 - names are those of this file, and texts are quoted

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow

from encrypted_records.sql.catalogue import Catalogue, quoted
from encrypted_records.sql.connections import lock, open_closed, real_tables
from encrypted_records.sql.failures import Failure
from encrypted_records.sql.limits import SqlLimits
from encrypted_records.sql.wire.settings import VERSION
from encrypted_records.sql.wire.statements import SqlStatement, SqlToken
from encrypted_records.sql.wire.types import TYPES, ColumnType, column_type

SCHEMA = "_catalogues"
#: OIDs from PostgreSQL's `pg_namespace.dat`; the others start at 16384.
_PG_CATALOG, _PUBLIC, _INFORMATION, _FIRST = 11, 2200, 13_000, 16_384
_SHORT = {
    "": "VARCHAR",
    "o": "UINTEGER",
    "8": "BIGINT",
    "4": "INTEGER",
    "2": "SMALLINT",
    "b": "BOOLEAN",
}
_FORMATTED = {
    "bool": "boolean", "int8": "bigint", "int2": "smallint", "int4": "integer",
    "float4": "real", "float8": "double precision", "char": '"char"', "bpchar": "character",
    "varchar": "character varying", "time": "time without time zone",
    "timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone",
}  # fmt: skip
_CATEGORY = {
    "bool": "B", "int8": "N", "int2": "N", "int4": "N", "float4": "N", "float8": "N",
    "numeric": "N", "oid": "N", "date": "D", "time": "D", "timestamp": "D", "timestamptz": "D",
    "interval": "T", "bytea": "U", "uuid": "U", "json": "U",
}  # fmt: skip
_UNDERSCORED = frozenset(
    {"date", "interval", "json", "numeric", "time", "timestamp", "timestamptz", "uuid"}
)
#: Names in PostgreSQL's catalogue statements, besides those that begin with ``pg_``.
_WORDS = frozenset(
    {"information_schema", "version", "current_database", "current_schema", "current_schemas",
     "current_catalog", "current_user", "session_user", "current_setting", "set_config",
     "regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole", "format_type",
     "obj_description", "col_description", "shobj_description", "has_table_privilege",
     "has_schema_privilege", "has_database_privilege", "has_column_privilege",
     "has_any_column_privilege", "has_function_privilege", "quote_ident", "quote_literal",
     "to_regclass", "to_regtype", "txid_current", "inet_server_addr", "inet_server_port",
     "array_lower", "array_upper", "getdatabaseencoding", "parse_ident"}
)  # fmt: skip
#: OIDs of the catalogues, from their `.dat` files.
_OWN = {
    "pg_type": 1247, "pg_proc": 1255, "pg_class": 1259, "pg_database": 1262,
    "pg_constraint": 2606, "pg_namespace": 2615, "pg_trigger": 2620,
}  # fmt: skip
#: DuckDB functions with other names, and columns of `pg_type` that name functions.
_RENAMED = {"json_build_object": "json_object", "jsonb_build_object": "json_object"}
_FUNCTIONS = frozenset(
    {"typinput", "typoutput", "typreceive", "typsend", "typmodin", "typmodout", "typanalyze"}
)
_SCHEMAS = frozenset({"pg_catalog", "information_schema"})
_OPEN, _CLOSE = SqlToken("other", "(", 0, 0), SqlToken("other", ")", 0, 0)
_SELECT, _AS = SqlToken("word", "SELECT", 0, 0), SqlToken("word", "AS", 0, 0)
_UNNEST = SqlToken("word", "unnest", 0, 0)
_NO_TEXT = (
    SqlToken("word", "error", 0, 0),
    _OPEN,
    SqlToken("string", "'functions are those of DuckDB, which shows no definition'", 0, 0),
    _CLOSE,
)
#: Words after a table without an alias.
_AFTER_TABLE = frozenset(
    {",", ")", "cross", "except", "full", "group", "having", "inner", "intersect", "join", "left",
     "limit", "natural", "on", "order", "right", "union", "using", "where"}
)  # fmt: skip
#: Words of an expression that names a table.
_MOST_PARTS = 64
#: Functions that tools read as tables of one row.
_SCALARS = frozenset({"current_database", "current_schema", "pg_backend_pid", "version"})
_REG = frozenset({"regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole"})


def mentions(statement: SqlStatement) -> bool:
    """Whether a statement names something that exists only in catalogues."""
    return any(
        token.word.startswith("pg_") or token.word in _WORDS
        for token in statement.words
        if token.kind in ("word", "quoted")
    )


def _reads_by_text(statement: SqlStatement) -> bool:
    """Whether a statement reads tables named only in a string, so that they cannot be listed."""
    return any(
        token.word.lower() in ("query", "query_table") and after.text == "("
        for token, after in pairwise(statement.words)
    )


class PgCatalog:
    """The catalogues of one session.

    Args:
        catalogue: all tables that the login can read.
        dataset: the database; only its tables are listed.
        user: the login's e-mail.
        settings: the results of ``current_setting``.
        process: the result of ``pg_backend_pid``.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        dataset: str,
        limits: SqlLimits,
        *,
        user: str,
        settings: Mapping[str, str],
        process: int,
    ) -> None:
        self.catalogue, self.dataset = catalogue, dataset
        self.connection = open_closed(limits, plans=True)
        try:
            self.connection.execute(real_tables(catalogue, dataset))
            self.connection.execute(_relations())
            rows = _RelationRows(catalogue, dataset, user)
            for name, columns in rows.tables():
                self._fill(name, columns)
            self._fill("pg_settings", {"name": list(settings), "setting": list(settings.values())})
            texts = {"user": user, "dataset": dataset, "process": str(process)}
            words = self.connection.execute(
                "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'"
            ).fetchall()
            functions = _functions(texts, settings, [word for (word,) in words])
            path = f"{quoted(dataset)},{SCHEMA}".replace("'", "''")
            setup = f"{functions}; SET integer_division = true; SET search_path = '{path}'"
            lock(self.connection, setup)
        except BaseException:
            self.connection.close()
            raise

    def _fill(self, name: str, columns: Mapping[str, Sequence[Any]]) -> None:
        table = pyarrow.table({key: pyarrow.array(values) for key, values in columns.items()})
        self.connection.register("filling", table)
        self.connection.execute(
            f"INSERT INTO {SCHEMA}.{quoted(name)} BY NAME SELECT * FROM filling"
        )
        self.connection.unregister("filling")

    def answers(self, statement: SqlStatement) -> SqlStatement | None:
        """The statement in DuckDB's syntax, if it reads catalogues; None if it reads records.

        Raises:
            Failure: it reads both.
        """
        if not mentions(statement) or _reads_by_text(statement):
            return None
        words = list(_rewritten(statement, self.dataset))
        # With NULL in place of parameters, because a statement with parameters cannot be bound.
        sql = " ".join("NULL" if token.kind == "parameter" else token.text for token in words)
        try:
            found = {name.lower() for name in self.connection.get_table_names(sql)}
        except duckdb.Error:
            found = {token.word.lower() for token in words}
        # Tables of all datasets: an unknown table of records would appear to have no rows.
        tables = {table.name.lower() for table in self.catalogue.tables}
        catalogues = {name for name in found if name in _names()}
        records = (found & tables) - catalogues
        if records and catalogues:
            raise Failure(
                "0A000",
                "a statement reads records and catalogues: read them by two statements",
            )
        return None if records else _placed(words)

    def close(self) -> None:
        self.connection.close()


def with_oids(kind: str) -> str:
    """A type for a catalogue's column: this numeric type is used only for OIDs."""
    return kind.replace("UINTEGER", "OID")


def column_name(name: str) -> str:
    """PostgreSQL's name of a catalogue query's column, by which Knex finds ``version``."""
    return re.sub(r'^"?(\w+)"?\(\)$', r"\1", name)


@cache
def _columns() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Relations with their columns, from `catalog_columns.txt`."""
    text = resources.files(__package__).joinpath("catalog_columns.txt").read_text("utf-8")
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("  "):
            lines[-1] += line[1:]
        elif not line.startswith("#"):
            lines.append(line)
    relations = {}
    for line in lines:
        name, _, columns = line.partition(" = ")
        pairs = [column.partition(":")[::2] for column in columns.split()]
        relations[name] = [(column, _SHORT.get(kind, kind)) for column, kind in pairs]
    return relations


def _names() -> frozenset[str]:
    return frozenset(_columns())


@cache
def _relations() -> str:
    """SQL that creates every relation, empty."""
    parts = [f"CREATE SCHEMA {SCHEMA};"]
    for name, columns in _columns().items():
        listed = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns)
        if "oid" in dict(columns):
            listed += f", tableoid UINTEGER DEFAULT {_OWN.get(name, 'NULL')}"
        parts.append(f"CREATE TABLE {SCHEMA}.{quoted(name)} ({listed});")
    types = (
        "name",
        *sorted(_REG),
        "regoperator",
        "xid",
        "cid",
        "int2vector",
        "oidvector",
        "pg_node_tree",
    )
    parts += [f"CREATE TYPE {SCHEMA}.{name} AS VARCHAR;" for name in types]
    parts.append(f"CREATE TYPE {SCHEMA}.oid AS UINTEGER;")
    return "\n".join(parts)


class _RelationRows:
    """The rows of the relations that have any."""

    def __init__(self, catalogue: Catalogue, dataset: str, user: str) -> None:
        self._catalogue, self._dataset, self._user = catalogue, dataset, user
        self._tables = catalogue.in_dataset(dataset)
        self._namespace = _FIRST

    def tables(self) -> Iterator[tuple[str, Mapping[str, Sequence[Any]]]]:
        yield (
            "pg_namespace",
            {
                "oid": [_PG_CATALOG, _INFORMATION, self._namespace],
                "nspname": ["pg_catalog", "information_schema", self._dataset],
                "nspowner": [10, 10, 10],
            },
        )
        yield "pg_database", self._databases()
        yield "pg_roles", {
            "oid": [10], "rolname": [self._user], "rolsuper": [False], "rolinherit": [True],
            "rolcreaterole": [False], "rolcreatedb": [False], "rolcanlogin": [True],
            "rolreplication": [False], "rolconnlimit": [-1], "rolbypassrls": [False],
        }  # fmt: skip
        yield "pg_user", {"usename": [self._user], "usesysid": [10], "usesuper": [False]}
        yield "pg_am", {"oid": [2], "amname": ["heap"], "amtype": ["t"]}
        yield "pg_tablespace", {"oid": [1663], "spcname": ["pg_default"], "spcowner": [10]}
        types = self._types()
        yield "pg_type", types
        functions = sorted({*types["typinput"], *types["typreceive"]})
        yield (
            "pg_proc",
            {
                "oid": [at + 1 for at in range(len(functions))],
                "proname": functions,
                "pronamespace": [_PG_CATALOG for _ in functions],
                "prokind": ["f" for _ in functions],
            },
        )
        if self._tables:
            yield "pg_class", self._classes()
            yield (
                "pg_tables",
                {
                    "schemaname": [self._dataset for _ in self._tables],
                    "tablename": [table.name for table in self._tables],
                    "tableowner": [self._user for _ in self._tables],
                    "hasindexes": [False for _ in self._tables],
                    "hasrules": [False for _ in self._tables],
                    "hastriggers": [False for _ in self._tables],
                },
            )
            yield "pg_attribute", self._attributes()
            yield "pg_description", self._descriptions()
        yield from self._information()

    def _databases(self) -> Mapping[str, Sequence[Any]]:
        names = list(self._catalogue.datasets)
        return {
            "oid": [_FIRST - 1 - at for at in range(len(names))],
            "datname": names,
            **{
                key: [value] * len(names)
                for key, value in {
                    "datdba": 10, "encoding": 6, "datlocprovider": "c", "datistemplate": False,
                    "datallowconn": True, "datconnlimit": -1, "dattablespace": 1663,
                    "datcollate": "C", "datctype": "C",
                }.items()
            },
        }  # fmt: skip

    def _types(self) -> Mapping[str, Sequence[Any]]:
        rows = [
            (kind.oid, kind.name, kind.size, _CATEGORY.get(kind.name, "S"), 0, kind.array, "b")
            for kind in TYPES
        ]
        rows += [
            (kind.array, f"_{kind.name}", -1, "A", kind.oid, 0, "b") for kind in TYPES if kind.array
        ]
        names = ("oid", "typname", "typlen", "typcategory", "typelem", "typarray", "typtype")
        columns: dict[str, Sequence[Any]] = dict(
            zip(names, map(list, zip(*rows, strict=True)), strict=True)
        )
        count = len(rows)
        fixed = {
            "typnamespace": _PG_CATALOG, "typowner": 10, "typbyval": False, "typispreferred": False,
            "typisdefined": True, "typdelim": ",", "typrelid": 0, "typnotnull": False,
            "typbasetype": 0, "typtypmod": -1, "typndims": 0, "typcollation": 0,
            "typsubscript": "-", "typalign": "i", "typstorage": "p", "typmodin": "-",
        }  # fmt: skip
        columns |= {key: [value] * count for key, value in fixed.items()}
        columns["typinput"] = [_function(row, "in") for row in rows]
        columns["typoutput"] = [_function(row, "out") for row in rows]
        columns["typreceive"] = [_function(row, "recv") for row in rows]
        columns["typsend"] = [_function(row, "send") for row in rows]
        return columns

    def _oid(self, at: int) -> int:
        return _FIRST + 1 + at

    def _classes(self) -> Mapping[str, Sequence[Any]]:
        fixed = {
            "relnamespace": self._namespace, "reltype": 0, "reloftype": 0, "relowner": 10,
            "relam": 2, "relfilenode": 0, "reltablespace": 0, "relpages": 0, "reltuples": -1.0,
            "relallvisible": 0, "reltoastrelid": 0, "relhasindex": False, "relisshared": False,
            "relpersistence": "p", "relkind": "r", "relchecks": 0, "relhasrules": False,
            "relhastriggers": False, "relhassubclass": False, "relrowsecurity": False,
            "relforcerowsecurity": False, "relispopulated": True, "relreplident": "d",
            "relispartition": False, "relrewrite": 0, "relfrozenxid": 0, "relminmxid": 0,
        }  # fmt: skip
        return {
            "oid": [self._oid(at) for at in range(len(self._tables))],
            "relname": [table.name for table in self._tables],
            "relnatts": [len(table.columns) for table in self._tables],
            "relacl": [[f"{self._user}=r/{self._user}"] for _ in self._tables],
            **{key: [value] * len(self._tables) for key, value in fixed.items()},
        }

    def _placed_columns(self) -> Iterator[tuple[int, str, int, str, ColumnType]]:
        for at, table in enumerate(self._tables):
            for number, column in enumerate(table.columns, 1):
                kind = column_type(column.type)
                assert kind is not None
                yield self._oid(at), table.name, number, column.name, kind

    def _attributes(self) -> Mapping[str, Sequence[Any]]:
        rows = list(self._placed_columns())
        fixed = {
            "attstattarget": -1, "attndims": 0, "attcacheoff": -1, "attbyval": False,
            "attalign": "i", "attstorage": "p", "attcompression": "", "attnotnull": False,
            "atthasdef": False, "atthasmissing": False, "attidentity": "", "attgenerated": "",
            "attisdropped": False, "attislocal": True, "attinhcount": 0, "attcollation": 0,
        }  # fmt: skip
        return {
            "attrelid": [row[0] for row in rows],
            "attname": [row[3] for row in rows],
            "attnum": [row[2] for row in rows],
            "atttypid": [row[4].oid for row in rows],
            "attlen": [row[4].size for row in rows],
            "atttypmod": [row[4].modifier for row in rows],
            **{key: [value] * len(rows) for key, value in fixed.items()},
        }

    def _descriptions(self) -> Mapping[str, Sequence[Any]]:
        described = [(at, table) for at, table in enumerate(self._tables) if table.description]
        return {
            "objoid": pyarrow.array([self._oid(at) for at, _ in described], pyarrow.int64()),
            "classoid": pyarrow.array([_OWN["pg_class"] for _ in described], pyarrow.int64()),
            "objsubid": pyarrow.array([0 for _ in described], pyarrow.int32()),
            "description": pyarrow.array(
                [table.description for _, table in described], pyarrow.string()
            ),
        }

    def _information(self) -> Iterator[tuple[str, Mapping[str, Sequence[Any]]]]:
        dataset = self._dataset
        yield "information_schema_information_schema_catalog_name", {"catalog_name": [dataset]}
        schemas = ["pg_catalog", "information_schema", dataset]
        yield (
            "information_schema_schemata",
            {
                "catalog_name": [dataset] * 3,
                "schema_name": schemas,
                "schema_owner": [self._user] * 3,
            },
        )
        if not self._tables:
            return
        count = len(self._tables)
        yield (
            "information_schema_tables",
            {
                "table_catalog": [dataset] * count,
                "table_schema": [dataset] * count,
                "table_name": [table.name for table in self._tables],
                "table_type": ["BASE TABLE"] * count,
                "is_insertable_into": ["NO"] * count,
                "is_typed": ["NO"] * count,
            },
        )
        yield (
            "information_schema_table_privileges",
            {
                "grantor": [self._user] * count,
                "grantee": [self._user] * count,
                "table_catalog": [dataset] * count,
                "table_schema": [dataset] * count,
                "table_name": [table.name for table in self._tables],
                "privilege_type": ["SELECT"] * count,
                "is_grantable": ["NO"] * count,
                "with_hierarchy": ["YES"] * count,
            },
        )
        yield "information_schema_columns", self._information_columns()

    def _information_columns(self) -> Mapping[str, Sequence[Any]]:
        rows = list(self._placed_columns())
        dataset = self._dataset
        numbers = [_precision(row[4]) for row in rows]
        fixed = {
            "table_catalog": dataset, "table_schema": dataset, "udt_catalog": dataset,
            "udt_schema": "pg_catalog", "is_nullable": "YES", "is_self_referencing": "NO",
            "is_identity": "NO", "is_generated": "NEVER", "is_updatable": "NO",
        }  # fmt: skip
        return {
            "table_name": [row[1] for row in rows],
            "column_name": [row[3] for row in rows],
            "ordinal_position": [row[2] for row in rows],
            "dtd_identifier": [str(row[2]) for row in rows],
            "data_type": [_FORMATTED.get(row[4].element.name, row[4].element.name) for row in rows],
            "udt_name": [row[4].element.name for row in rows],
            "numeric_precision": pyarrow.array([number[0] for number in numbers], pyarrow.int32()),
            "numeric_precision_radix": pyarrow.array(
                [number[1] for number in numbers], pyarrow.int32()
            ),
            "numeric_scale": pyarrow.array([number[2] for number in numbers], pyarrow.int32()),
            "datetime_precision": pyarrow.array(
                [_clock_precision(row[4]) for row in rows], pyarrow.int32()
            ),
            **{key: [value] * len(rows) for key, value in fixed.items()},
        }


def _function(row: tuple[Any, ...], end: str) -> str:
    """The name of a type's function, by which ADBC identifies types."""
    name = str(row[1])
    if row[4]:
        return f"array_{end}"
    return f"{name}_{end}" if name in _UNDERSCORED else f"{name}{end}"


def _precision(kind: ColumnType) -> tuple[int | None, int | None, int | None]:
    """Digits, their base and the decimals, for `information_schema.columns`."""
    match kind.element.name:
        case "int2" | "int4" | "int8":
            return kind.element.size * 8, 2, 0
        case "numeric" if kind.modifier >= 0:
            return (kind.modifier - 4) >> 16, 10, (kind.modifier - 4) & 0xFFFF
        case "float4" | "float8":
            return {4: 24, 8: 53}[kind.element.size], 2, None
        case _:
            return None, None, None


def _clock_precision(kind: ColumnType) -> int | None:
    if kind.element.name == "date":
        return 0
    return 6 if kind.element.name in ("time", "timestamp", "timestamptz", "interval") else None


def _text(value: str) -> str:
    """A text as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def _functions(
    texts: Mapping[str, str], settings: Mapping[str, str], reserved: Sequence[str]
) -> str:
    """PostgreSQL functions that tools call on catalogues. Ignored arguments are named ``_1`` and so
    on.
    """
    user, dataset, process = (_text(texts[name]) for name in ("user", "dataset", "process"))
    # Without a subquery, so that it can be an argument of a table function.
    set_to = " ".join(f"WHEN {_text(name)} THEN {_text(to)}" for name, to in settings.items())
    listed = ", ".join(map(_text, reserved))
    simple = f"regexp_full_match(a, '[a-z_][a-z0-9_$]*') AND a NOT IN ({listed})"
    before, sign = "regexp_extract(f, '^(.*?)%[sIL]', 1, 's')", "regexp_extract(f, '%([sIL])', 1)"
    behind = f"substr(f, length({before}) + 3)"
    put = (
        f"{before} || CASE {sign} WHEN 'I' THEN {SCHEMA}.quote_ident(a::VARCHAR)"
        f" WHEN 'L' THEN {SCHEMA}.quote_literal(a::VARCHAR) ELSE coalesce(a::VARCHAR, '') END"
    )
    formatted = " ".join(f"WHEN '{name}' THEN '{text}'" for name, text in _FORMATTED.items())
    oids = " ".join(f"WHEN '{name}' THEN {oid}" for name, oid in _OWN.items())
    plain = f"CASE ltrim(typname, '_') {formatted} ELSE ltrim(typname, '_') END"
    decimals = "'(' || ((m - 4) >> 16) || ',' || ((m - 4) & 65535) || ')'"
    defined = {
        "version()": f"'PostgreSQL {VERSION} (encrypted-records over DuckDB)'",
        "current_database()": dataset,
        "current_catalog()": dataset,
        "current_schema()": dataset,
        "current_schemas(a)": f"CASE WHEN a THEN ['pg_catalog', {dataset}] ELSE [{dataset}] END",
        "current_user()": user,
        "session_user()": user,
        "pg_backend_pid()": f"{process}::INTEGER",
        "pg_get_userbyid(a)": user,
        "pg_is_in_recovery()": "false",
        "pg_client_encoding()": "'UTF8'",
        "getdatabaseencoding()": "'UTF8'",
        "pg_encoding_to_char(a)": "'UTF8'",
        "pg_char_to_encoding(a)": "6",
        "pg_table_is_visible(a)": f"a >= {_FIRST}",
        "pg_type_is_visible(a)": "true",
        "pg_statistics_obj_is_visible(a)": "true",
        "format_type(o, m)": (
            f"(SELECT {plain} || CASE WHEN typname = 'numeric' AND m > 0 THEN {decimals} ELSE ''"
            f" END || CASE WHEN typelem > 0 THEN '[]' ELSE '' END FROM {SCHEMA}.pg_type"
            " WHERE oid = o)"
        ),
        "obj_description(o)": f"(SELECT description FROM {SCHEMA}.pg_description"
        " WHERE objoid = o AND objsubid = 0)",
        "obj_description(o, c)": f"(SELECT description FROM {SCHEMA}.pg_description"
        " WHERE objoid = o AND objsubid = 0 AND c = 'pg_class')",
        "col_description(a, b)": "NULL::VARCHAR",
        "shobj_description(a, b)": "NULL::VARCHAR",
        "current_setting(a)": f"CASE lower(a) {set_to} END",
        "current_setting(a, b)": f"CASE lower(a) {set_to} END",
        "set_config(a, b, c)": "b",
        "to_regclass(a)": (
            f"CASE replace(split_part(a, '.', -1), '\"', '') {oids} ELSE"
            f" (SELECT oid FROM {SCHEMA}.pg_class WHERE relname ="
            " replace(split_part(a, '.', -1), '\"', '')) END"
        ),
        "to_regtype(a)": f"(SELECT typname FROM {SCHEMA}.pg_type WHERE typname = a)",
        "_type_of(a)": f"(SELECT oid FROM {SCHEMA}.pg_type WHERE typname ="
        " replace(split_part(a, '.', -1), '\"', ''))",
        "_namespace_of(a)": f"(SELECT oid FROM {SCHEMA}.pg_namespace WHERE nspname = a)",
        "quote_ident(a)": (
            f"CASE WHEN {simple} THEN a ELSE '\"' || replace(a, '\"', '\"\"') || '\"' END"
        ),
        "parse_ident(a)": (
            'list_transform(regexp_extract_all(a, \'"(?:[^"]|"")*"|[^."]+\'), lambda part:'
            " CASE WHEN part[1] = '\"' THEN replace(part[2:-2], '\"\"', '\"')"
            " ELSE lower(trim(part)) END)"
        ),
        "pg_terminate_backend(a)": "false",
        "pg_cancel_backend(a)": "false",
        "quote_literal(a)": "'''' || replace(a, '''', '''''') || ''''",
        "_formatted(f, a)": f"{put} || {behind}",
        "format(f, a)": f"{SCHEMA}._formatted(f, a)",
        "format(f, a, b)": f"{put} || {SCHEMA}._formatted({behind}, b)",
        "txid_current()": "1::BIGINT",
        "array_remove(a, b)": "list_filter(a, lambda x: x IS DISTINCT FROM b)",
        "array_lower(a, b)": "CASE WHEN len(a) > 0 AND b = 1 THEN 1 END",
        "array_upper(a, b)": "CASE WHEN len(a) > 0 AND b = 1 THEN len(a)::INTEGER END",
        "information_schema__pg_expandarray(a)": "{'x': unnest(a), 'n': generate_subscripts(a, 1)}",
        "has_schema_privilege(a, b)": "upper(b) = 'USAGE'",
        "has_schema_privilege(a, b, c)": "upper(c) = 'USAGE'",
        "has_database_privilege(a, b)": "upper(b) = 'CONNECT'",
        "has_database_privilege(a, b, c)": "upper(c) = 'CONNECT'",
        "has_function_privilege(a, b)": "true",
        "pg_try_advisory_lock(a)": "true",
        "pg_advisory_lock(a)": "NULL::VARCHAR",
        "pg_advisory_unlock(a)": "true",
        "pg_advisory_unlock_all()": "NULL::VARCHAR",
        "pg_relation_is_publishable(a)": "false",
        "pg_export_snapshot()": "NULL::VARCHAR",
        "pg_size_pretty(a)": "format_bytes(a::BIGINT)",
    }
    for name in ("has_table_privilege", "has_any_column_privilege"):
        defined[f"{name}(a, b)"] = "upper(b) LIKE '%SELECT%'"
        defined[f"{name}(a, b, c)"] = "upper(c) LIKE '%SELECT%'"
    sizes = ("relation", "total_relation", "table", "database", "tablespace")
    defined |= {f"pg_{name}_size(a)": "NULL::BIGINT" for name in sizes}
    absent = {
        "pg_get_expr": 3, "pg_get_indexdef": 3, "pg_get_constraintdef": 2, "pg_get_viewdef": 2,
        "pg_get_serial_sequence": 2, "pg_get_functiondef": 1, "pg_get_function_arguments": 1,
        "pg_get_function_identity_arguments": 1, "pg_get_function_result": 1,
        "pg_get_triggerdef": 2, "pg_get_ruledef": 2, "pg_get_partkeydef": 1,
        "pg_get_statisticsobjdef_columns": 1, "pg_describe_object": 3, "pg_tablespace_location": 1,
        "pg_get_partition_constraintdef": 1, "pg_stat_get_numscans": 1, "pg_indexes_size": 1,
        "pg_get_function_sqlbody": 1,
    }  # fmt: skip
    for name, most in absent.items():
        for count in range(1, most + 1):
            names = ", ".join(f"_{at}" for at in range(count))
            defined[f"{name}({names})"] = "NULL::VARCHAR"
    grouped: dict[str, list[str]] = {}
    for head, body in defined.items():
        name, _, arguments = head.partition("(")
        grouped.setdefault(name, []).append(f"({arguments} AS {body}")
    partitions = (
        f"CREATE MACRO {SCHEMA}.pg_partition_tree(a) AS TABLE SELECT 0::UINTEGER AS relid,"
        " 0::UINTEGER AS parentrelid, true AS isleaf, 0 AS level WHERE false"
    )
    options = (
        f"CREATE MACRO {SCHEMA}.pg_options_to_table(a) AS TABLE"
        " SELECT '' AS option_name, '' AS option_value WHERE false"
    )
    shown = f"CREATE MACRO {SCHEMA}.pg_show_all_settings() AS TABLE FROM {SCHEMA}.pg_settings"
    keywords = (
        f"CREATE MACRO {SCHEMA}.pg_get_keywords() AS TABLE SELECT keyword_name AS word,"
        " upper(keyword_category[1]) AS catcode, keyword_category AS catdesc"
        " FROM duckdb_keywords()"
    )
    return ";\n".join(
        [
            *(
                f"CREATE MACRO {SCHEMA}.{quoted(name)}{', '.join(bodies)}"
                for name, bodies in grouped.items()
            ),
            keywords,
            partitions,
            options,
            shown,
        ]
    )


# --- PostgreSQL's syntax in DuckDB's ----------------------------------------------------------


def _placed(words: Sequence[SqlToken]) -> SqlStatement:
    """A statement of these words, with their positions in it."""
    placed, at = [], 0
    for token in words:
        placed.append(SqlToken(token.kind, token.text, at, at + len(token.text)))
        at += len(token.text) + 1
    return SqlStatement(" ".join(token.text for token in words), placed)


def _rewritten(statement: SqlStatement, dataset: str) -> Iterator[SqlToken]:
    words = list(_without_schemas(statement.words, dataset))
    at = 0
    while at < len(words):
        step, made = _replaced(words, at)
        yield from made
        at += step


def _without_schemas(words: Sequence[SqlToken], dataset: str) -> Iterator[SqlToken]:
    """Remove ``pg_catalog.``, make ``information_schema.`` part of the name, and remove a database
    before either.
    """
    at = 0
    while at < len(words):
        token = words[at]
        names = [word.word for word in words[at : at + 4]]
        if names[:2] == [dataset, "."] and names[3:] == ["."] and names[2] in _SCHEMAS:
            at += 2
            continue
        qualifies = at + 2 < len(words) and words[at + 1].text == "."
        if qualifies and token.word == "pg_catalog":
            at += 2
        elif qualifies and token.word == "information_schema":
            name, after = words[at + 2], words[at + 3 : at + 4]
            if [word.text for word in after] == ["."]:  # a column of the relation
                yield name
            else:
                yield SqlToken("word", f"information_schema_{name.word}", 0, 0)
                if not after or after[0].word in _AFTER_TABLE:
                    yield from (_AS, name)
            at += 3
        else:
            yield token
            at += 1


def _call_length(words: Sequence[SqlToken], at: int, name: str, before: Sequence[str]) -> int:
    """The number of words of a call, with its parentheses; 0 for words other than this call after
    one of ``before``.
    """
    if at == 0 or words[at - 1].word not in before or words[at].word != name:
        return 0
    place = _closing(words, at + 1)
    return place + 1 - at if place > at + 1 else 0


def _closing(words: Sequence[SqlToken], at: int) -> int:
    """The place of the parenthesis that closes the one here; -1 if there is none."""
    depth = 0
    for place, token in enumerate(words[at:], at):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0:
            return place if place > at else -1
    return -1


def _replaced_call(words: Sequence[SqlToken], at: int) -> tuple[int, Sequence[SqlToken]]:
    """As :func:`_replaced`, for calls and parentheses; 0 words for others."""
    token = words[at]
    if length := _call_length(words, at, "generate_series", (",", "select")):
        # Rows, where DuckDB has a list; in FROM both are rows.
        return length, [_UNNEST, _OPEN, *words[at : at + length], _CLOSE]
    # FROM may read the call as a table; in a list of expressions the same words mean the same.
    if length := _call_length(words, at, "string_to_array", (",", "from")):
        after = words[at + length :]
        alias = after[1:2] if after and after[0].word == "as" else after[:1]
        if alias and alias[0].kind in ("word", "quoted") and alias[0].word != "from":
            called = words[at : at + length]
            return length, [_OPEN, _SELECT, *called, _AS, alias[0], _CLOSE]
    if token.word in _SCALARS and (length := _call_length(words, at, token.word, ("from",))):
        after = words[at + length : at + length + 2]
        name = after[1] if len(after) > 1 and after[0].word == "as" else token
        return length, [_OPEN, _SELECT, *words[at : at + length], _AS, name, _CLOSE]
    # A name put together of parts, such as TypeORM's: the parentheses are not those of a call.
    before = words[at - 1]
    if token.text == "(" and (before.kind in ("other", "sign") or before.word == "select"):
        length = _closing(words[at : at + _MOST_PARTS], 0) + 1
        cast = [word.word for word in words[at + length : at + length + 2]]
        if length and cast == ["::", "regclass"]:
            looked_up = SqlToken("word", "to_regclass", 0, 0)
            return length + 2, [looked_up, *words[at : at + length]]
    return 0, ()


def _replaced(words: Sequence[SqlToken], at: int) -> tuple[int, Sequence[SqlToken]]:
    """The number of words to replace at a position, and their replacement."""
    if (replaced := _replaced_call(words, at))[0]:
        return replaced
    token = words[at]
    following = [token.word for token in words[at + 1 : at + 5]]
    if token.word == "operator" and following[:1] == ["("] and ")" in following:
        end = at + 1 + following.index(")")
        sign = "".join(token.text for token in words[at + 2 : end])
        return end + 1 - at, [SqlToken("other", sign, 0, 0)]
    if token.word == "collate" and following and words[at - 1].word != "as":
        return 2, ()
    # Drivers of Ruby and .NET join pg_proc by "p.oid = t.typreceive", which is a name here.
    joined = following[::2] == ["=", "."] and not _FUNCTIONS.isdisjoint(following[3:])
    if token.word in _RENAMED or (token.word == "oid" and joined):
        return 1, [SqlToken("word", _RENAMED.get(token.word, "proname"), 0, 0)]
    if token.word in _FUNCTIONS and following[1:2] == ["0"] and following[0] in ("=", "<>", "!="):
        # Functions have names here, but no OIDs.
        return 3, [token, words[at + 1], SqlToken("string", "'-'", 0, 0)]
    if following[:1] == ["::"] and (made := _looked_up(token, "".join(following[1:2]))):
        of_function = following[1].startswith("regproc") and following[2:] == ["::", "oid"]
        return (5, _NO_TEXT) if of_function else (3, made)  # psql's \sf wants its text
    as_cast = token.word == "cast" and following[:1] == ["("] and following[2:3] == ["as"]
    if as_cast and (made := _looked_up(words[at + 2], "".join(following[3:4]))):
        return 6, made
    if token.kind == "string" and token.value[:1] == "{" and token.value[-1:] == "}":
        listed = token.value[1:-1].replace("'", "''")
        made = [SqlToken("string", f"'[{listed}]'", 0, 0)]
        if at > 1 and words[at - 2].word in ("any", "all") and following[:1] == [")"]:
            made += [SqlToken("cast", "::", 0, 0), SqlToken("word", "VARCHAR[]", 0, 0)]
        return 1, made
    return 1, [token]


def _looked_up(token: SqlToken, kind: str) -> Sequence[SqlToken]:
    """The OID of the object that a text names, if it is cast to such a type."""
    if token.kind not in ("string", "parameter") or kind not in _REG:
        return ()
    if kind in ("regproc", "regprocedure", "regrole"):
        return [token]
    function = {"regtype": "_type_of", "regnamespace": "_namespace_of"}.get(kind, "to_regclass")
    return [
        SqlToken("word", function, 0, 0),
        SqlToken("other", "(", 0, 0),
        token,
        SqlToken("cast", "::", 0, 0),
        SqlToken("word", "VARCHAR", 0, 0),
        SqlToken("other", ")", 0, 0),
    ]
