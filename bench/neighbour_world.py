"""What :mod:`bench.neighbours` asks with: one account, its schemas, and requests of theirs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.support import people
from bench.support.neighbours import Asked, Caller, records
from tests.support import jobs
from tests.support.service import Service
from tests.support.store import Store, new_store

MARKS = "\u0315\u0300"
MIB = 1 << 20
JSON = {"Content-Type": "application/json"}
CSV = {"Content-Type": "text/csv"}
NDJSON = {"Content-Type": "application/x-ndjson"}


@dataclass(frozen=True)
class Case:
    """``at_once``: so many of these requests at a time."""

    name: str
    ask: Callable[[], Asked]
    at_once: int = 1


@dataclass(frozen=True)
class World:
    """Who asks, and schemas of theirs: of one string; of as many fields as there may be; with
    many segments; with many records; with long strings."""

    caller: Caller
    text: Store
    wide: Store
    segments: Store
    many: Store
    long: Store

    def post(
        self,
        name: str,
        path: str,
        body: Any,
        headers: dict[str, str] | None = None,
        *,
        at_once: int = 1,
    ) -> Case:
        data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        return Case(name, lambda: self.caller.ask("POST", path, data, headers), at_once)

    def get(self, name: str, path: str, headers: dict[str, str] | None = None) -> Case:
        return Case(name, lambda: self.caller.ask("GET", path, None, headers))


def text_field(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"t": {"type": "string", **keywords}}}


def wide_fields(count: int = 512, **keywords: Any) -> dict[str, Any]:
    kind = {"type": "string", **keywords}
    return {"type": "object", "properties": {f"f{at:03}": kind for at in range(count)}}


NUMBER_AND_TEXT = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 10**9},
        "t": {"type": "string"},
    },
}


def prepare(service: Service, count: int, folder: Path) -> World:
    text = new_store(service, text_field())
    caller = Caller(text)

    def ingest(store: Store, rows: Sequence[Any]) -> None:
        found = caller.ask("POST", "/api/records/ingest/", records(store.schema, rows))
        assert found.status == 201, found

    segments = text.another_schema(NUMBER_AND_TEXT)
    for at in range(60):
        ingest(segments, [{"n": 1000 * at + one, "t": f"{one}"} for one in range(9)])
    wide = text.another_schema(wide_fields())
    for _ in range(4):
        ingest(wide, [{f"f{at:03}": f"{row}" for at in range(512)} for row in range(50)])
    long = text.another_schema(text_field())
    for at in range(9):
        ingest(long, [{"t": f"{at} {one} " + MARKS * (MIB // 5)} for one in range(14)])
    many = text.another_schema(people.DEFINITION)
    upload = b"".join(people.as_upload(people.csv_file(folder, count), many.schema_id))
    jobs.completed(many, jobs.started(many, upload, "text/csv"), within=600)
    while not many.proxy("POST", f"{many.schema}merge/", {}).json()["done"]:
        pass
    return World(caller, text, wide, segments, many, long)
