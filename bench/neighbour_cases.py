"""The requests that :mod:`bench.neighbours` repeats: the worst that is accepted, by kind."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

from bench.neighbour_world import CSV, MARKS, MIB, NDJSON, Case, World, text_field, wide_fields
from bench.support.neighbours import records
from encrypted_records.crypto.format import (
    KEYRING_MAGIC,
    KEYRING_VERSION,
    NONCE_BYTES,
    SALT_BYTES,
    WRAP_PASSPHRASE,
)
from tests.support.page_visits import logged_in
from tests.support.service import call


def storing(world: World) -> Iterator[Case]:
    path = "/api/records/ingest/"
    text, wide = world.text.schema, world.wide.schema
    yield world.post(
        "ingest: 16 MB of marks out of order",
        path,
        records(text, [{"t": MARKS * (MIB // 5)}] * 16),
    )
    yield world.post(
        "ingest: 100 short marks, 100,000 values",
        path,
        records(wide, [{f"f{at:03}": MARKS * 60 for at in range(512)}] * 100)[: 16 << 20],
    )
    yield world.post(
        "ingest: 100 strings of 160 kB", path, records(text, [{"t": "x" * 160_000}] * 100)
    )
    yield world.post(
        "ingest: 51,200 values",
        path,
        records(wide, [{f"f{at:03}": "x" for at in range(512)}] * 100),
    )
    yield world.post(
        "ingest: a million unknown fields",
        path,
        records(text, [{f"{at}": 1 for at in range(15_000)}] * 100),
    )
    yield world.post("ingest: 16 MB of {}", path, b"[" + b"{}," * (5 * MIB) + b"{}]")
    yield world.post("ingest: 16 MB of [", path, b"[" + b"[]," * (5 * MIB) + b"[]]")
    yield world.post("ingest: 16 MB of numbers", path, b"[" + b"1," * (8 * MIB - 2) + b"1]")
    yield world.post("ingest: 16 MB of decimals", path, b"[" + b"1.5," * (4 * MIB - 2) + b"1]")
    yield world.post("ingest: a string of 16 MB", path, b'["' + b"\\u0301" * (MIB * 5 // 2) + b'"]')
    (pattern,) = [world.text.another_schema(text_field(pattern="(x+x+)+y$")).schema]
    yield world.post(
        "ingest: 16 strings of 1 MB by pattern",
        path,
        records(pattern, [{"t": "x" * 1_000_000}] * 16),
    )
    patterns = world.text.another_schema(wide_fields(512, pattern="^(a?){900}.{900}$")).schema
    yield world.post(
        "ingest: 512 patterns",
        path,
        records(patterns, [{f"f{at:03}": "a" * 60 for at in range(512)}] * 100),
    )
    record = world.text.ingest([{"t": "a"}])[0]
    yield Case(
        "PATCH: a record by 1 MB of marks",
        lambda: world.caller.ask(
            "PATCH",
            f"/api/records/{record}/",
            json.dumps({"data": {"t": MARKS * (MIB // 5)}}, ensure_ascii=False).encode(),
        ),
    )


def asking(world: World) -> Iterator[Case]:
    search, aggregate = "/api/records/search/", "/api/records/aggregate/"
    segments, many, long, wide = (
        one.schema for one in (world.segments, world.many, world.long, world.wide)
    )

    def some(number: int) -> list[dict[str, Any]]:
        return [
            {"field": "n", "op": "in", "value": list(range(at, at + 1000))} for at in range(number)
        ]

    yield world.post("search: 16 MB of {}", search, b'{"schema": [' + b"{}," * (5 * MIB) + b"{}]}")
    for number in (4, 32):
        yield world.post(
            f"search: {number},000 values",
            search,
            {"schema": segments, "where": {"or": some(number)}},
        )
    texts = [
        {"field": "email", "op": "in", "value": [f"{at} {one}" for one in range(1000)]}
        for at in range(4)
    ]
    yield world.post(
        "search: 4,000 texts of many",
        search,
        {"schema": many, "where": {"or": texts}, "count": True},
    )
    ranges = [{"field": "t", "op": "gt", "value": "9" * 60 + f"{at}"} for at in range(256)]
    yield world.post("search: 256 ranges", search, {"schema": segments, "where": {"or": ranges}})
    yield world.post(
        "search: 4 values of 1 MB of marks",
        search,
        {
            "schema": segments,
            "where": {"or": [{"field": "t", "op": "eq", "value": MARKS * (MIB // 5)}] * 4},
        },
    )
    yield world.post("search: 16 long strings", search, {"schema": long, "limit": 16})
    yield world.post("search: all long strings", search, {"schema": long, "limit": 1000})
    negated = [
        {"not": {"field": "t", "op": "prefix", "value": f"{'x' * 60}{at}"}} for at in range(250)
    ]
    yield world.post(
        "search: long strings by 250 comparisons",
        search,
        {"schema": long, "where": {"and": negated}, "limit": 100},
    )
    yield world.post(
        "search: long strings in order", search, {"schema": long, "order_by": ["t"], "limit": 16}
    )
    yield world.post("search: 200 records of 512 fields", search, {"schema": wide, "limit": 1000})
    yield world.post(
        "search: 1000 records of many", search, {"schema": many, "limit": 1000, "count": True}
    )
    compared = [{"not": {"field": "email", "op": "eq", "value": f"{at}"}} for at in range(256)]
    yield world.post(
        "search: 1000 records by 256 comparisons",
        search,
        {"schema": many, "where": {"and": compared}, "limit": 1000},
    )
    yield world.post(
        "search: in the order of 4 fields",
        search,
        {"schema": many, "order_by": ["last", "first", "city", "-age"], "limit": 1000},
    )
    yield world.get(
        "list: the last of many", f"/api/records/?schema={many}&offset=99000&limit=1000"
    )
    yield world.post(
        "aggregate: 100,000 groups",
        aggregate,
        {
            "schema": many,
            "group_by": ["first", "last", "city"],
            "limit": 1000,
            "measures": [
                {"op": "sum", "field": "salary"},
                {"op": "distinct", "field": "age"},
                {"op": "percentile", "field": "number", "p": list(range(100))},
            ],
        },
    )
    yield world.post(
        "aggregate: 32 lists of values",
        aggregate,
        {"schema": many, "measures": [{"op": "distinct", "field": "email", "limit": 1000}] * 32},
    )
    yield world.post(
        "aggregate: 32 measures of 1000 groups",
        aggregate,
        {
            "schema": many,
            "group_by": ["last"],
            "limit": 1000,
            "measures": [{"op": "distinct", "field": "email", "limit": 1000}] * 16
            + [{"op": "histogram", "field": "number", "bins": 1000}] * 16,
        },
    )
    yield world.post(
        "explain: in the order of 4 fields",
        "/api/records/explain/",
        {"schema": many, "order_by": ["last", "first", "city", "-age"], "limit": 1000},
    )
    for form in ("ndjson", "csv"):
        yield world.post(
            f"export: many, {form}", "/api/records/export/", {"schema": many, "format": form}
        )
    yield world.post(
        "export: many in order", "/api/records/export/", {"schema": many, "order_by": ["email"]}
    )
    yield world.post(
        "export: long strings", "/api/records/export/", {"schema": long, "format": "csv"}
    )
    yield world.post("delete by condition: not confirmed", "/api/records/delete/", {"schema": many})
    sealed = call(
        "GET",
        f"{world.caller.store.service.base_url}/api/records/?schema={world.long.schema_id}&limit=8",
        auth=world.caller.store.account.auth,
    ).json()["results"]
    yield world.post("decrypt: 8 long strings", "/api/records/decrypt/", sealed)
    sealed = call(
        "GET",
        f"{world.caller.store.service.base_url}/api/records/?schema={world.wide.schema_id}&limit=200",
        auth=world.caller.store.account.auth,
    ).json()["results"]
    yield world.post("decrypt: 200 records of 512 fields", "/api/records/decrypt/", sealed)


def defining(world: World) -> Iterator[Case]:
    infer, estimate = "/api/schemas/infer/", "/api/schemas/estimate/"
    yield world.post("infer: 1 MB of commas", infer, b"," * MIB, CSV)
    yield world.post(
        "infer: 1 MB of names", infer, ",".join(map(str, range(150_000))).encode() + b"\n", CSV
    )
    yield world.post(
        "infer: 512 columns, 10,000 rows",
        infer,
        (",".join(f"f{at}" for at in range(512)) + "\n" + (",".join(["1.5"] * 512) + "\n") * 8000),
        CSV,
    )
    yield world.post("infer: 16 MB of small rows", infer, "a\n" + "1\n" * (7 * MIB), CSV)
    yield world.post(
        "infer: 16 MB of JSON", infer, b"[" + b'{"a":1},' * (2 * MIB - 2) + b'{"a":1}]'
    )
    yield world.post("infer: 16 MB of NDJSON", infer, b'{"a":1}\n' * (2 * MIB - 2), NDJSON)
    yield world.post(
        "infer: one object of a million names",
        infer,
        "[{" + ",".join(f'"{at}":1' for at in range(MIB)) + "}]",
    )
    yield world.post(
        "estimate: 512 strings of 1 MB",
        estimate,
        {
            "schema": wide_fields(64),
            "records": 10**9,
            "string_bytes": {f"f{at:03}": 1 << 14 for at in range(64)},
        },
    )
    yield world.post("estimate: 512 fields", estimate, {"schema": wide_fields(), "records": 10**9})
    enum = [f"{at:06}" for at in range(100_000)]
    yield world.post(
        "estimate: an enum of 100,000",
        estimate,
        {"schema": text_field(enum=enum), "records": 10**9},
    )
    yield world.post(
        "estimate: 1 MB of flaws",
        estimate,
        {
            "schema": {
                "type": "object",
                "properties": {"a": {"type": "string", **{f"{at}": 1 for at in range(80_000)}}},
            },
            "records": 1,
        },
    )
    yield world.post(
        "estimate: 512 patterns",
        estimate,
        {"schema": wide_fields(512, pattern="^(a?){900}.{900}$"), "records": 10**9},
    )
    yield world.post(
        "new schema: an enum of 100,000",
        "/api/schemas/",
        {"name": "x", "dataset": _dataset(world), "schema": text_field(enum=enum)},
    )
    yield world.get("openapi document", "/api/openapi.json")


def _dataset(world: World) -> str:
    found: str = world.text.proxy("GET", world.text.schema).json()["dataset"]
    return found


def keys(world: World) -> Iterator[Case]:
    restore, file = "/api/keyring/restore/", "/api/keyring/backup/file/"
    door = world.caller.store.service.door
    marks = {"passphrase": MARKS * (4 * MIB - 100)}
    yield world.post("unlock: 16 MB of marks", "/api/keyring/unlock/", marks, door)
    yield world.post("backup file", file, {"passphrase": "correct horse"}, door, at_once=8)
    costly = {"file": base64.b64encode(_costly_file()).decode(), "passphrase": "x"}
    yield world.post("restore: the costliest file", restore, costly, door, at_once=8)
    phrase = "abandon " * 23 + "art"
    yield world.post("restore: 1,500 phrases", restore, {"phrases": [phrase] * 1500}, door)
    yield world.post("restore: 100,000 phrases", restore, {"phrases": [phrase] * 100_000}, door)


def _costly_file() -> bytes:
    head = KEYRING_MAGIC + bytes((KEYRING_VERSION, WRAP_PASSPHRASE))
    cost = b"".join(one.to_bytes(4, "big") for one in (1_048_576, 1, 1))
    return head + cost + bytes(SALT_BYTES + NONCE_BYTES + 100)


def jobs_of(world: World) -> Iterator[Case]:
    header = ",".join(f"{at}" for at in range(2 * MIB)).encode()[: 15 << 20]
    yield world.post(
        "job: a header of 15 MB",
        f"/api/jobs/upload/?schema={world.text.schema_id}",
        header + b"\n1\n",
        CSV,
    )
    yield world.post(
        "job: 16 MB of flawed rows",
        f"/api/jobs/upload/?schema={world.many.schema_id}",
        b"age\n" + b"x\n" * (8 * MIB),
        CSV,
    )
    yield world.get("jobs: the list", "/api/jobs/?limit=1000")


def pages(world: World) -> Iterator[Case]:
    service = world.caller.store.service
    browser = logged_in(service, world.caller.store.account)
    own = {"Cookie": browser.cookie, "Origin": service.proxy_url}
    form = {**own, "Content-Type": "application/x-www-form-urlencoded"}
    csrf = {"csrf": browser.cookie.rpartition(".")[2]}

    def get(name: str, path: str) -> Case:
        return world.get(f"page: {name}", browser.at + path, own)

    def send(name: str, path: str, fields: dict[str, str]) -> Case:
        body = urlencode({**csrf, **fields}).encode()
        return world.post(f"page: {name}", browser.at + path, body, form)

    escaped = b"email=" + b"%41" * (4 * MIB // 3 - 1000)
    yield world.post("page: a login form of 4 MB", "/login/", escaped, form)
    wide, long, many = (one.schema_id for one in (world.wide, world.long, world.many))
    yield get("512 fields", f"/schemas/{wide}/")
    editor = f"/schemas/{wide}/edit/"
    yield get("the editor of 512 fields", editor)
    enum = text_field(enum=[f"{at:06}" for at in range(90_000)])
    yield send("a definition of 1 MB", editor, {"json": json.dumps(enum), "do": "check"})
    rows = {f"{name}-{at}": "string" for at in range(3000) for name in ("field", "type", "more")}
    yield send("an editor of 3,000 rows", editor, rows)
    sample = {"do": "infer", "sample": "a,b\n" + "1,x\n" * 400_000}
    dataset = _dataset(world).split("/")[-2]
    yield send("a sample of 2 MB", f"/datasets/{dataset}/new-schema/", sample)
    yield get("50 records of 512 fields", f"/schemas/{wide}/search/")
    yield get("50 long strings", f"/schemas/{long}/search/")
    yield get("a look at many", f"/schemas/{many}/look/")


def ending(world: World) -> Iterator[Case]:
    """What changes the world."""
    caller, many, long = world.caller, world.many, world.long
    upload = "n,t\n" + "".join(f"{at},text {at}\n" for at in range(100_000))
    path = f"/api/jobs/upload/?schema={world.segments.schema_id}"
    yield world.post("job: 100,000 records", path, upload.encode(), CSV)
    named = "&".join(f"id={one}" for one in long.found()[:50])
    yield Case("delete 50 long strings", lambda: caller.ask("DELETE", f"/api/records/?{named}"))
    count = min(100_000, many.search(limit=0, count=True)["count"])
    some = {"schema": many.schema, "where": {"field": "number", "op": "lt", "value": count}}
    yield world.post(f"delete {count:,} records", f"/api/records/delete/?confirm={count}", some)


GROUPS: dict[str, Callable[[World], Iterator[Case]]] = {
    "storing": storing,
    "asking": asking,
    "defining": defining,
    "keys": keys,
    "jobs": jobs_of,
    "pages": pages,
    "ending": ending,
}
