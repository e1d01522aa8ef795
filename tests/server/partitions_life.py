"""Everything that the API says of its bulky tables, said of tables in partitions, as a program of
its own: half of the partitions lie in another database, behind postgres_fdw.

Each statement is explained before it is run: which partitions it would ask. Arguments: data folder,
URL of the database, URL of the other one or ``citus``, path of a file with the members of an
account. Each statement goes to stdout, as JSON, with how many partitions of a table it would ask
beyond one for each group or segment that it names.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from encrypted_records.model import ids, wire
from encrypted_records.model.records import BlockRef, Page, PageRef, RowRef
from tests.server.api import Account
from tests.server.bulk_life import age, erase_all, sweep_all
from tests.server.erasure_steps import Here
from tests.server.staged import Job
from tests.server.writer import FRAMES, Writer, person, segment_over

#: Table, and its key; the first column says in which partition a row lies.
TABLES = {
    "record_row": ("group_id", "ordinal"),
    "row_run": ("group_id", "first"),
    "index_page": ("segment_id", "number"),
}
PARTITIONS = 16
#: More than a run of digests has.
MANY = 70
_NAME = re.compile(rf'"Relation Name": "({"|".join(TABLES)})_(\d+)"')
_ONE = re.compile(r"\b(group_id|segment_id) = %s")
_TABLE = re.compile(rf"\b({'|'.join(TABLES)})\b")


def partition(url: str, other_url: str) -> None:
    """Have the bulky tables in partitions, each second one in the other database."""
    other = conninfo_to_dict(other_url)
    with (
        psycopg.connect(url, autocommit=True) as here,
        psycopg.connect(other_url, autocommit=True) as there,
    ):
        here.execute("CREATE EXTENSION postgres_fdw")
        options = sql.SQL("host {}, port {}, dbname {}").format(
            *(sql.Literal(str(other[name])) for name in ("host", "port", "dbname"))
        )
        here.execute(
            sql.SQL("CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw OPTIONS ({})").format(
                options
            )
        )
        here.execute(
            sql.SQL("CREATE USER MAPPING FOR CURRENT_USER SERVER other OPTIONS (user {})").format(
                sql.Literal(str(other["user"]))
            )
        )
        for table, key in TABLES.items():
            _partition_one(here, there, table, key)


def distribute(url: str) -> None:
    """Have Citus distribute them, as docs/operations.md says."""
    document = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    (said,) = re.findall(r"```sql\n(CREATE EXTENSION citus;.*?)```", document, re.DOTALL)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(said.encode())


def _partition_one(
    here: psycopg.Connection[Any], there: psycopg.Connection[Any], table: str, key: tuple[str, str]
) -> None:
    whole = sql.Identifier(table)
    columns = here.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [table],
    ).fetchall()
    listed = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns
    )
    primary = sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, key)))
    here.execute(sql.SQL("DROP TABLE {}").format(whole))
    here.execute(
        sql.SQL("CREATE TABLE {} ({}) PARTITION BY HASH ({})").format(
            whole, listed, sql.Identifier(key[0])
        )
    )
    for at in range(PARTITIONS):
        part = sql.Identifier(f"{table}_{at}")
        place = sql.SQL("FOR VALUES WITH (MODULUS {}, REMAINDER {})").format(
            sql.Literal(PARTITIONS), sql.Literal(at)
        )
        if at % 2:
            there.execute(sql.SQL("CREATE TABLE {} ({}, {})").format(part, listed, primary))
            here.execute(
                sql.SQL("CREATE FOREIGN TABLE {} PARTITION OF {} {} SERVER other").format(
                    part, whole, place
                )
            )
        else:
            here.execute(sql.SQL("CREATE TABLE {} PARTITION OF {} {}").format(part, whole, place))
            here.execute(sql.SQL("ALTER TABLE {} ADD {}").format(part, primary))


class Explaining:
    """By statement, how many partitions it would ask beyond those that it names, at most."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def __call__(
        self, execute: Any, statement: str, parameters: Any, many: bool, context: Any
    ) -> Any:
        if _TABLE.search(statement):
            assert not many
            with context["connection"].connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
                (plan,) = cursor.fetchone()
            asked: dict[str, set[str]] = {}
            for table, at in _NAME.findall(json.dumps(plan)):
                asked.setdefault(table, set()).add(at)
            more = max(map(len, asked.values()), default=0) - _count_named(statement, parameters)
            # However many it names.
            short = re.sub(r"%s(, %s)+", "...", " ".join(statement.split()))
            self.seen[short] = max(self.seen.get(short, 0), more)
        return execute(statement, parameters, many, context)


def _count_named(statement: str, parameters: Any) -> int:
    """Of how many groups or segments a statement is."""
    if _ONE.search(statement):
        return 1
    last = parameters[-1]
    return len(last) if isinstance(last, list) else len(parameters)


def live(account: Account, data: Path) -> None:
    """Every kind of request and of work that touches rows or pages."""
    writer = Writer(account, account.new_schema())
    url = writer.schema["url"]
    rows = [person() for _ in range(MANY)]
    first = writer.adding(rows)
    writer.send(first)
    [group], [segment] = ([one.uid for one in some] for some in _named(first))
    for path, wanted in (
        ("rows/", [RowRef(group, 3), RowRef(group, 69)]),
        ("pages/", [PageRef(segment, 0)]),
        ("names/", [BlockRef(group, 0, writer.fields[0])]),
        ("digests/", [RowRef(group, 3), PageRef(segment, 0)]),
    ):
        answer = account.call("POST", f"{url}{path}", wire.encode(wanted), **FRAMES)
        assert answer.status == 200, (path, answer.body)
    listing = f"/api/records/?schema={writer.schema['id']}"
    record = f"/api/records/{ids.to_text(rows[3].record_id)}/"
    for path in (listing, f"{listing}&dead=true", record):
        assert account.call("GET", path).status == 200
    # A job: a part that is staged twice, rows that change; then one that is dropped.
    job = Job(writer)
    assert job.post(job.adding(0, [person()])).status == 201
    job.stage(job.adding(0, [person(rows[0].record_id, 2), person()]))
    commit = job.commit(killed=[RowRef(group, 0)])
    answer = job.publish(commit)
    assert answer.status == 201, answer.body
    writer.follow(commit)
    both = [RowRef(group, 3), RowRef(next(iter(job.groups)), 1)]
    answer = account.call("POST", f"{url}rows/", wire.encode(both), **FRAMES)
    assert answer.status == 200, answer.body
    dropped = Job(writer)
    dropped.stage(dropped.adding(0, [person()]))
    assert dropped.drop().status == 204
    # A merge of both segments, whose pages are staged; and a row that dies and is erased.
    sizes = {group: MANY} | {uid: one.count for uid, one in job.groups.items()}
    merge = Job(writer)
    merged = segment_over(sizes.items(), "paged", pages=2)
    pages = [Page(merged.uid, at, b"\x01" + os.urandom((16 << 10) - 1)) for at in range(2)]
    merge.stage(merge.part(0, [], [merged], [], pages))
    commit = merge.commit(replaced=[segment, *job.segments])
    assert merge.publish(commit).status in (200, 201)
    writer.follow(commit)
    writer.send(writer.make(killed=[RowRef(group, 5)]))
    erase_all()
    sweep_all()
    _look_and_move(data)
    assert account.call("DELETE", f"{url}?cascade=true").status == 204


def _named(upload: Any) -> tuple[Any, Any]:
    body = wire.decode_commit_body(upload.commit)
    return body.groups, body.segments


def _look_and_move(data: Path) -> None:
    from django.conf import settings

    from encrypted_records.server.inventory import moving, verifying
    from encrypted_records.server.objects import choice

    assert list(verifying.Verification().flaws()) == []
    settings.BULK_URL = f"file://{data}/moved?least=0"
    choice.chosen.cache_clear()
    move = moving.Move()
    move.run()
    assert (move.rows, move.pages, move.damaged) == (MANY, 2, [])
    age()


def main(data_dir: str, database_url: str, other_url: str, credentials: str) -> None:
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "encrypted_records.server.settings",
        "ERS_DATA_DIR": data_dir,
        "ERS_DATABASE_URL": database_url,
        "ERS_BULK_URL": "database://",
    }
    import django
    from django.db import connection

    if other_url == "citus":
        distribute(database_url)
    else:
        partition(database_url, other_url)
    django.setup()
    explaining = Explaining()
    connection.ensure_connection()
    if other_url != "citus":
        connection.execute_wrappers.append(explaining)
    api: Any = Here(Path(data_dir))
    account = Account(api, **json.loads(Path(credentials).read_text()))
    live(account, Path(data_dir))
    sys.stdout.write(json.dumps(explaining.seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
