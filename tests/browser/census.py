"""Real records for pages to show, stored as programs store them."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tests.browser.visitor import CENSUS
from tests.support.service import Account, Service, call

DEFINITION = CENSUS.with_name("census.schema.json")


@dataclass(frozen=True)
class Census:
    account: Account
    dataset: str
    schema: str
    rows: list[dict[str, Any]]

    @property
    def rare_age(self) -> str:
        """An age that exactly one of the rows has."""
        ages = Counter(row["age"] for row in self.rows)
        return str(next(age for age, count in ages.items() if count == 1))

    @property
    def organization(self) -> str:
        """The path of its page."""
        return self.account.organization.removeprefix("/api")

    def page(self, name: str) -> str:
        return f"/schemas/{self.schema}/{name}/"


def stored_census(site: Service, count: int) -> Census:
    account = site.new_account()
    definition = json.loads(DEFINITION.read_text())

    def post(path: str, body: Any) -> Any:
        answer = call("POST", site.proxy_url + path, body, auth=account.auth)
        assert answer.status == 201, answer
        return answer.json()

    dataset = post("/api/datasets/", {"name": "Census", "organization": account.organization})
    body = {"name": "People", "dataset": dataset["url"], "schema": definition}
    schema = post("/api/schemas/", body)
    with CENSUS.open(newline="") as file:
        rows = [_record(row, definition) for row in islice(csv.DictReader(file), count)]
    for start in range(0, count, 100):
        batch = [{"schema": schema["url"], "data": row} for row in rows[start : start + 100]]
        post("/api/records/ingest/", batch)
    return Census(account, dataset["id"], schema["id"], rows)


def _record(row: dict[str, str], definition: dict[str, Any]) -> dict[str, Any]:
    kinds = definition["properties"]
    return {
        name: text if kinds[name]["type"] == "string" else int(text)
        for name, text in row.items()
        if text
    }
