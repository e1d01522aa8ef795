"""A schema with a past: records stored, changed and deleted, and what was true at each version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from encrypted_records.model.ids import from_text
from tests.e2e.database import database_of
from tests.support.service import Answer
from tests.support.store import Store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": -50, "maximum": 1000},
        "x": {"type": "number", "minimum": -5, "maximum": 5, "precision": 2},
    },
}


@dataclass
class Row:
    """One version of a record, and the log's versions that brought and ended it."""

    record: str
    version: int
    data: dict[str, Any]
    stored: int
    ended: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.record, self.version


@dataclass
class History:
    store: Store
    rows: list[Row] = field(default_factory=list)
    version: int = 0

    @property
    def schema(self) -> bytes:
        return from_text(self.store.schema_id)

    def ingest(self, *data: dict[str, Any]) -> list[str]:
        made = self.store.ingest(data)
        self.version += 1
        pairs = zip(made, data, strict=True)
        self.rows += [Row(record, 1, one, self.version) for record, one in pairs]
        return made

    def change(self, record: str, **data: Any) -> None:
        answer = self.store.proxy("PATCH", f"/api/records/{record}/", {"data": data})
        assert answer.status == 200, answer.body
        before = self._end(record)
        self.rows.append(Row(record, before.version + 1, before.data | data, self.version))

    def delete(self, record: str) -> None:
        assert self.store.proxy("DELETE", f"/api/records/{record}/").status == 204
        self._end(record)

    def _end(self, record: str) -> Row:
        self.version += 1
        (live,) = (row for row in self.rows if row.record == record and row.ended is None)
        live.ended = self.version
        return live

    def live(self, version: int) -> list[Row]:
        """What was there at a version."""
        return [row for row in self.rows if row.stored <= version and not _by(row.ended, version)]

    def best(self, sound: int, *, ended: bool = True) -> dict[tuple[str, int], bool]:
        """Id and version of what can be saved where the log holds up to ``sound``, and whether the
        log proves it."""
        behind = [row for row in self.rows if row.stored > sound and (ended or row.ended is None)]
        newest: dict[str, int] = {}
        for row in behind:
            newest[row.record] = max(row.version, newest.get(row.record, 0))
        found = {
            row.key: True
            for row in self.live(sound)
            if newest.get(row.record, 0) < row.version and (ended or row.ended is None)
        }
        return found | dict.fromkeys(newest.items(), False)

    def data(self) -> dict[tuple[str, int], dict[str, Any]]:
        return {row.key: row.data for row in self.rows}

    def spoil_log(self, version: int) -> None:
        """Change the commit of a version, behind the API's back."""
        with database_of(self.store.service) as database:
            commits = database.of_schema("commit_log", self.schema, "version")
            mac = bytes(commits[version - 1]["mac"])
            database.change("commit_log", commits[version - 1], mac=mac[:-1] + bytes([mac[-1] ^ 1]))

    def lose_log(self) -> None:
        with database_of(self.store.service) as database:
            database.run("DELETE FROM commit_log WHERE schema_id = %s", self.schema)


def _by(moment: int | None, version: int) -> bool:
    return moment is not None and moment <= version


def lived(store: Store) -> History:
    """Seven commits: two ingests, three changes and two deletions."""
    history = History(store)
    made = history.ingest(*({"name": f"name {n}", "n": n - 2, "x": n / 4} for n in range(5)))
    history.change(made[1], n=51)
    history.delete(made[2])
    history.ingest({"name": "=1+1"}, {"n": 7})
    history.change(made[3], name="changed")
    history.delete(made[4])
    history.change(made[1], n=52)
    return history


@dataclass(frozen=True)
class Saved:
    """What a salvage has answered: its records in their order, and the report."""

    records: list[dict[str, Any]]
    report: dict[str, Any]

    @property
    def found(self) -> dict[tuple[str, int], bool]:
        return {(record["id"], record["version"]): record["proven"] for record in self.records}


def salvage(store: Store, **members: Any) -> Answer:
    return store.proxy("POST", f"{store.schema}salvage/", members)


def saved(store: Store, **members: Any) -> Saved:
    """A salvage that must come to its end."""
    return answered(salvage(store, **members))


def answered(answer: Answer) -> Saved:
    assert answer.status == 200, answer.body
    *records, last = _lines(answer)
    assert list(last) == ["salvage"]
    return Saved(records, last["salvage"])


def _lines(answer: Answer) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in answer.body.splitlines() if line)
