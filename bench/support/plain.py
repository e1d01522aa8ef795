"""The same records in plaintext behind the API's own stack: Django, psycopg, PostgreSQL.

One table with a B-tree index on every column, and one view that takes the questions of
``POST /api/records/search/`` and ``.../aggregate/`` as far as benchmarks ask them. It checks no
credentials, no values and no rights, which is to its advantage.

    PLAIN_DATABASE_URL=postgresql://... python -m bench.support.plain PORT
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import django
import psycopg
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from psycopg import sql

from bench.support.people import FIELDS, INTEGERS
from encrypted_records.listening.pace import ServerLimits
from encrypted_records.listening.serving import Server, listening

_URL = "PLAIN_DATABASE_URL"
_COMPARE = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_MEASURES = {
    "count": "count(*)",
    "min": "min({})",
    "max": "max({})",
    "sum": "sum({})::bigint",
    "percentile": "percentile_disc(%s) WITHIN GROUP (ORDER BY {})",
}
_local = threading.local()


def load(url: str, file: Path) -> None:
    """Copy a CSV file into a new table ``people`` that has an index on each column."""
    columns = [
        sql.SQL("{} bigint" if name in INTEGERS else '{} text COLLATE "C"').format(
            sql.Identifier(name)
        )
        for name in FIELDS
    ]
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS people")
        connection.execute(sql.SQL("CREATE TABLE people ({})").format(sql.SQL(", ").join(columns)))
        for name in FIELDS:
            connection.execute(sql.SQL("CREATE INDEX ON people ({})").format(sql.Identifier(name)))
        with (
            connection.cursor() as cursor,
            cursor.copy("COPY people FROM STDIN (FORMAT csv, HEADER true)") as copy,
            file.open("rb") as source,
        ):
            while piece := source.read(1 << 20):
                copy.write(piece)


def _connection() -> psycopg.Connection[Any]:
    if not hasattr(_local, "connection"):
        # Values in the text of the statement, so that each is planned for what it asks.
        _local.connection = psycopg.connect(
            os.environ[_URL], autocommit=True, cursor_factory=psycopg.ClientCursor
        )
    connection: psycopg.Connection[Any] = _local.connection
    return connection


def search(request: HttpRequest) -> JsonResponse:
    asked = json.loads(request.body)
    where, values = _where(asked["where"])
    order = [
        sql.SQL("{} DESC" if one.startswith("-") else "{}").format(
            sql.Identifier(one.removeprefix("-"))
        )
        for one in asked.get("order_by", [])
    ]
    statement = sql.SQL("SELECT {} FROM people WHERE {} {} LIMIT {}").format(
        sql.SQL(", ").join(map(sql.Identifier, FIELDS)),
        where,
        sql.SQL("ORDER BY ") + sql.SQL(", ").join(order) if order else sql.SQL(""),
        asked["limit"],
    )
    found = _connection().execute(statement, values).fetchall()
    rows = [dict(zip(FIELDS, row, strict=True)) for row in found]
    return JsonResponse({"results": [{"data": row} for row in rows]})


def aggregate(request: HttpRequest) -> JsonResponse:
    asked = json.loads(request.body)
    where, values = _where(asked.get("where"))
    groups = [sql.Identifier(name) for name in asked.get("group_by", [])]
    measures, shares = [], []
    for measure in asked["measures"]:
        field = sql.Identifier(measure["field"]) if "field" in measure else sql.SQL("*")
        measures.append(sql.SQL(_MEASURES[measure["op"]]).format(field))
        shares += [p / 100 for p in measure.get("p", [])]
    statement = sql.SQL("SELECT {} FROM people WHERE {}").format(
        sql.SQL(", ").join([*groups, *measures]), where
    )
    if groups:
        listed = sql.SQL(", ").join(groups)
        statement += sql.SQL(" GROUP BY {} ORDER BY {} LIMIT 100").format(listed, listed)
    found = _connection().execute(statement, [*shares, *values]).fetchall()
    return JsonResponse({"rows": found})


def _where(condition: Any) -> tuple[sql.Composable, list[Any]]:
    if condition is None:
        return sql.SQL("true"), []
    if "and" in condition:
        parts = [_where(one) for one in condition["and"]]
        joined = sql.SQL(" AND ").join([part for part, _ in parts])
        return joined, [value for _, values in parts for value in values]
    field, op = sql.Identifier(condition["field"]), condition["op"]
    if "of" in condition:
        inner, values = _where(condition["of"]["where"])
        selected = sql.SQL("SELECT {} FROM people WHERE {}").format(
            sql.Identifier(condition["of"]["field"]), inner
        )
        return sql.SQL("{} IN ({})").format(field, selected), values
    value = condition["value"]
    if op == "between":
        return sql.SQL("{} BETWEEN %s AND %s").format(field), value
    if op == "prefix":
        assert not set("%_\\") & set(value)
        return sql.SQL("{} LIKE %s").format(field), [f"{value}%"]
    if op == "contains":
        return sql.SQL("strpos({}, %s) > 0").format(field), [value]
    return sql.SQL(f"{{}} {_COMPARE[op]} %s").format(field), [value]


def status(_request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


urlpatterns = [
    path("api/status/", status),
    path("api/records/search/", search),
    path("api/records/aggregate/", aggregate),
]


def _serve(port: int) -> None:
    from encrypted_records.server.gateway.admission import RequestPlaces, Room
    from encrypted_records.server.gateway.gateway import Gateway

    settings.configure(ALLOWED_HOSTS=["127.0.0.1"], ROOT_URLCONF="bench.support.plain")
    django.setup()
    room = Room(Path(tempfile.gettempdir()))
    gateway = Gateway(get_wsgi_application(), room, RequestPlaces(8), lambda *_: None)
    with listening("127.0.0.1", port, "PORT") as sockets:
        Server(gateway, ServerLimits(), stop_seconds=1, lifespan="off").run(sockets)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
