"""A file of records that is a few MiB large, and a check that all of it was stored."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encrypted_records.model.ids import from_text
from tests.support.eventually import eventually
from tests.support.service import call
from tests.support.store import Store

DEFINITION = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 0, "maximum": 10**6},
        "text": {"type": "string"},
    },
    "required": ["number", "text"],
}
ENDED = ("completed", "failed")


@dataclass(frozen=True)
class People:
    """``rows`` as they are in ``file``."""

    file: Path
    rows: list[dict[str, Any]]


def written(folder: Path, store: Store, *, kind: str, count: int, size: int) -> People:
    """``count`` rows of ``size`` bytes each, as CSV or JSON."""
    chance = random.Random(count)
    letters = [chance.randbytes(-(-size // 2)).hex()[:size] for _ in range(count)]
    rows = [{"number": number, "text": text} for number, text in enumerate(letters)]
    file = folder / f"people.{kind}"
    if kind == "csv":
        lines = [f"number,text,schema_id:{store.schema_id}"]
        lines += [f"{row['number']},{row['text']}" for row in rows]
        file.write_text("\n".join(lines) + "\n")
    else:
        file.write_text(json.dumps([{"schema": store.schema, "data": row} for row in rows]))
    return People(file, rows)


def job_of(upload: str) -> str:
    """The job of an upload's URL; it has the upload's id, written otherwise."""
    return str(uuid.UUID(bytes=from_text(upload.rstrip("/").rpartition("/")[2])))


def ended(store: Store, job: str, *, within: float = 120) -> dict[str, Any]:
    """The last payload of a job, waited for."""

    def payload() -> dict[str, Any]:
        answer = call("GET", f"{store.service.proxy_url}/api/jobs/{job}/", auth=store.account.auth)
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    eventually(lambda: payload()["status"] in ENDED, "the job ends", within)
    return payload()


def assert_stored(store: Store, job: str, people: People) -> None:
    """The job has stored these rows, each once."""
    payload = ended(store, job)
    assert payload["status"] == "completed", payload
    assert payload["total"] == payload["processed"] == len(people.rows)
    stored = sorted((one["data"] for one in store.everything()), key=lambda row: row["number"])
    assert stored == people.rows
