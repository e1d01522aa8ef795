"""What ``ers demo`` shows once the service runs, all of it over HTTP through the proxy.

Each run makes an account, an organization and a dataset of its own, so that it can be repeated
on one data folder.
"""

from __future__ import annotations

import csv
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from encrypted_records.cli import terminal
from encrypted_records.cli.mailbox import wait_for_link
from encrypted_records.cli.settings import Settings
from encrypted_records.client.objects import AsyncClient, AsyncSchema
from encrypted_records.client.proxy import ProxyClient
from encrypted_records.errors import InvalidSetting

#: Rows of a result that are printed.
SHOWN = 5
_NUMBERS = ("integer", "number")


@dataclass(frozen=True)
class Example:
    """Census records and their schema (examples/README.md names the source)."""

    definition: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read census.csv: numbers by the schema's types, empty cells left out.

        Raises:
            InvalidSetting: the files are not there.
        """
        try:
            definition = json.loads((folder / "census.schema.json").read_text("utf-8"))
            with (folder / "census.csv").open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
        except OSError as error:
            raise InvalidSetting(
                f"no example data in {folder}: {(error.strerror or '').lower()}",
                hint="run it in a checkout, or name its examples folder with --examples",
            ) from None
        types = {name: spec["type"] for name, spec in definition["properties"].items()}
        return cls(definition, [_values(row, types) for row in rows])


def _values(row: Mapping[str, str], types: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: int(cell) if types[name] in _NUMBERS else cell for name, cell in row.items() if cell
    }


async def show(settings: Settings, example: Example) -> None:
    """Register, store, search; print what came back and how long each step took."""
    address = f"demo-{secrets.token_hex(4)}@example.org"
    password = secrets.token_urlsafe(15)
    await _open_account(settings, address, password)
    async with AsyncClient(settings.proxy_url, email=address, password=password) as client:
        with _step("make a dataset and a schema of 15 fields"):
            dataset = await client.create_dataset("Census")
            schema = await dataset.create_schema("Adult", example.definition)
        with _step(f"encrypt and store {len(example.records)} records"):
            await schema.ingest(example.records, progress=True)
        await _search(schema)
    terminal.say("Look around with curl; README.md shows how:")
    terminal.say(f"  account   {address}")
    terminal.say(f"  password  {password}")
    terminal.say(f"  schema    {schema.url}")


async def _open_account(settings: Settings, address: str, password: str) -> None:
    """Register and verify an account."""
    async with ProxyClient(settings.proxy_url) as client:
        with _step(f"register {address}"):
            await client.register(
                email=address,
                password=password,
                organization_name=f"Demo of {address.partition('@')[0]}",
            )
        with _step("verify the address with the link from its mail"):
            link = await wait_for_link(settings.data_dir / "mail", address)
            await client.verify_registration(
                user_id=link.user_id, timestamp=link.timestamp, signature=link.signature
            )


async def _search(schema: AsyncSchema) -> None:
    fields = ["age", "occupation", "education", "hours_per_week", "native_country"]
    for what, where in (
        ("exact search: native_country = Cuba", "native_country = 'Cuba'"),
        ("range search: age from 70 to 79", "age between 70 and 79"),
    ):
        with _step(what):
            found = [one.data async for one in schema.search(where, fields=fields, limit=SHOWN)]
            count = await schema.count(where)
        terminal.say()
        for line in terminal.table(found, fields):
            terminal.say(f"    {line}")
        terminal.say(f"    {len(found)} of {count} records")
        terminal.say()


@contextmanager
def _step(what: str) -> Iterator[None]:
    """Time a step; its line appears when it has succeeded."""
    start = time.perf_counter()
    yield
    terminal.say(f"{time.perf_counter() - start:7.3f} s  {what}")
