"""Tables that a caller can query: one for each schema of each dataset that the proxy shows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Protocol

from encrypted_records.client.proxy.connection import Named, ShownDataset, ShownSchema
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_definition

#: DuckDB's types by Arrow's. Decimal types differ only in their name.
_TYPES = {
    "int64": "BIGINT",
    "string": "VARCHAR",
    "bool": "BOOLEAN",
    "uuid": "UUID",
    "date32[day]": "DATE",
    "time64[us]": "TIME",
    "timestamp[us]": "TIMESTAMP",
    "timestamp[us, tz=UTC]": "TIMESTAMP WITH TIME ZONE",
    "duration[us]": "INTERVAL",
}
#: The schema of DuckDB that plans refer to.
INTERNAL = "_columns"
#: Schemas of DuckDB that cannot be datasets.
_RESERVED = frozenset({"information_schema", "pg_catalog", "_catalogues", INTERNAL})


#: Keywords of DuckDB that cannot name a table or column without quotes.
KEYWORDS = frozenset(
    " all analyse analyze and anti any array as asc asof asymmetric at authorization binary"
    " both by case cast check collate collation column columns concurrently constraint create"
    " cross default deferrable desc describe distinct do else end except false fetch for"
    " foreign freeze from full generated glob group having ilike in initially inner intersect"
    " into is isnull join lambda lateral leading left like limit map natural not notnull null"
    " offset on only or order outer overlaps pivot pivot_longer pivot_wider placing positional"
    " primary qualify references returning right select semi show similar some struct"
    " summarize symmetric table tablesample then to trailing true try_cast tuple union unique"
    " unpack unpivot using variadic verbose when where window with".split()
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column of a table or of a result.

    Attributes:
        name: in SQL, which ignores case: of fields ``name`` and ``Name`` the second is called
            ``Name_1``.
        type: DuckDB's, such as ``DECIMAL(18,2)``.
        field: the field of the schema; empty for a column of a result.
        arrow: the type in which the proxy sends it; empty for a column of a result.
    """

    name: str
    type: str
    field: str = ""
    arrow: str = ""

    @property
    def in_sql(self) -> str:
        """The name as statements have it: quoted if necessary."""
        return in_sql(self.name)


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table: a schema of the proxy.

    Attributes:
        dataset: the slug of its dataset: the schema in SQL, and the database for SQL clients.
        name: its slug.
        schema: its path at the proxy.
        description: from its definition, or empty.
        digest: of the fields and their types: :attr:`SchemaDefinition.columns_digest`.
    """

    dataset: str
    name: str
    schema: str
    columns: tuple[SqlColumn, ...]
    description: str = ""
    digest: str = ""

    @property
    def qualified(self) -> str:
        """The table name, qualified by its dataset."""
        return f"{self.dataset}.{self.name}"

    @property
    def in_sql(self) -> str:
        """The qualified name as statements have it: quoted if necessary."""
        return f"{in_sql(self.dataset)}.{in_sql(self.name)}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All tables, and the datasets, some of which may have none.

    ``left_out`` are slugs that several datasets share, or that DuckDB reserves; naming an
    organization makes the former unambiguous.
    """

    datasets: tuple[str, ...]
    tables: tuple[SqlTable, ...]
    left_out: tuple[str, ...] = ()

    def in_dataset(self, dataset: str) -> list[SqlTable]:
        return [table for table in self.tables if table.dataset == dataset]

    def named(self, name: str, dataset: str | None) -> list[SqlTable]:
        """Tables with a name, with or without a dataset; several if datasets share the name.

        Args:
            dataset: the dataset whose tables need no qualification; None for all.
        """
        wanted = name.casefold()
        return [
            table
            for table in self.tables
            if wanted in (table.qualified.casefold(), table.in_sql.casefold())
            or (dataset in (None, table.dataset) and wanted == table.name.casefold())
        ]


class Lists(Protocol):
    """Lists a proxy's resources, page after page."""

    def read_all(self, kind: type[Named], /, **filters: str) -> AsyncIterator[Named]: ...


async def load_catalogue(client: Lists, filters: dict[str, str]) -> Catalogue:
    """The tables that a caller may read, by their datasets and names.

    Args:
        filters: of the lists, such as the organization's id.

    Raises:
        ErsError: the proxy's error.
    """
    slugs = {
        dataset.url: dataset.slug async for dataset in client.read_all(ShownDataset, **filters)
    }
    times = Counter(slug.casefold() for slug in slugs.values())
    unclear = {slug for slug in slugs.values() if times[slug.casefold()] > 1}
    unclear |= {slug for slug in slugs.values() if slug.casefold() in _RESERVED}
    schemas = [
        schema
        async for schema in client.read_all(ShownSchema, **filters)
        if slugs.get(schema.dataset, "") not in {"", *unclear}
    ]
    schemas.sort(key=lambda schema: (slugs[schema.dataset], schema.slug))
    taken: dict[str, set[str]] = {}
    tables = []
    for schema in schemas:
        dataset = slugs[schema.dataset]
        definition = parse_definition(bytes(schema.schema))
        tables.append(
            SqlTable(
                dataset,
                _free_name(schema.slug, taken.setdefault(dataset, set())),
                schema.url,
                tuple(_columns(definition)),
                schema.description,
                definition.columns_digest,
            )
        )
    datasets = sorted({slug for slug in slugs.values() if slug not in unclear})
    return Catalogue(tuple(datasets), tuple(tables), tuple(sorted(unclear)))


def _columns(definition: SchemaDefinition) -> Iterable[SqlColumn]:
    taken: set[str] = set()
    for spec in definition.fields.values():
        arrow = spec.field_type.column_type(spec)
        yield SqlColumn(_free_name(spec.name, taken), duckdb_type(arrow), spec.name, arrow)


def _free_name(wanted: str, taken: set[str]) -> str:
    """``wanted``, with a number appended if another name differs only in case."""
    name, number = wanted, 0
    while name.casefold() in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name.casefold())
    return name


def duckdb_type(arrow: str) -> str:
    """The type of DuckDB for one of :meth:`FieldType.column_type`."""
    if arrow.startswith("decimal128"):
        return arrow.replace("decimal128", "DECIMAL").replace(" ", "")
    return _TYPES[arrow]


def in_sql(name: str) -> str:
    """A name as statements have it: quoted if necessary."""
    is_plain = _PLAIN.fullmatch(name) and name.casefold() not in KEYWORDS
    return name if is_plain else quoted(name)


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
