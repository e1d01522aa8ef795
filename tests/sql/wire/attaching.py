"""Attach a database of PostgreSQL's protocol to DuckDB, and print what it reads."""

# ruff: noqa: T201 - the answer goes to a test

import sys
from pathlib import Path

import duckdb
import duckdb_extension_postgres_scanner as extension  # type: ignore[import-not-found]

(path,) = Path(extension.__file__).parent.rglob("*.duckdb_extension")
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
connection.execute(f"LOAD '{path}'")
connection.execute(f"ATTACH '{sys.argv[1]}' AS records (TYPE postgres, READ_ONLY)")
for asked in (
    "SELECT table_name, column_name, data_type FROM duckdb_columns()"
    " WHERE database_name = 'records' ORDER BY table_name, column_index",
    "SELECT * REPLACE (seen::VARCHAR AS seen, key::VARCHAR AS key)"
    " FROM records.clinic.patient ORDER BY id",
    "SELECT p.name, sum(v.cost) FROM records.clinic.patient p"
    " JOIN records.clinic.visit v ON v.patient = p.id WHERE p.born > DATE '1970-01-01'"
    " GROUP BY 1 ORDER BY 1",
    "SELECT * FROM postgres_query('records', 'SELECT max(cost) FROM visit')",
):
    for row in connection.execute(asked).fetchall():
        print("|".join(map(str, row)))
try:
    connection.execute("DELETE FROM records.clinic.visit")
except duckdb.Error:
    print("refused")
